// The device port on the CUDA driver.
#ifndef SUMI_CUDA_PORT_CUDA_H
#define SUMI_CUDA_PORT_CUDA_H
#include "cuda/modules.h"
#include "device/port.h"

struct sumi_cuda;

typedef struct sumi_cuda_port {
    sumi_device_port port; // first, because the room `device` has a pointer to it
    const sumi_cuda_device* device;
    sumi_cuda_modules* modules; // before the first launch
    struct sumi_cuda* cuda;     // NULL in tests of memory and page locks alone: which have no plans
} sumi_cuda_port;

void sumi_cuda_port_init(sumi_cuda_port* port, const sumi_cuda_device* device, struct sumi_cuda* cuda);
#endif
