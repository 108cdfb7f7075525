// The CUDA driver, opened at run time. Nothing is linked, so the host program starts on machines without a driver.
// Every entry is looked up with the version in which the signature used here appeared (cudaTypedefs.h), never with the
// version of the toolkit at build time.
#ifndef SUMI_CUDA_DRIVER_H
#define SUMI_CUDA_DRIVER_H
#include "base/result.h"
#include <cuda.h>
#include <cudaTypedefs.h>

// cudaGLTypedefs.h has these types, but needs OpenGL's headers.
typedef CUresult(CUDAAPI* PFN_cuGLGetDevices_v6050)(unsigned* count, CUdevice* devices, unsigned capacity, int list);
typedef CUresult(CUDAAPI* PFN_cuGraphicsGLRegisterImage_v3000)(CUgraphicsResource* resource, unsigned texture,
                                                               unsigned target, unsigned flags);
typedef CUresult(CUDAAPI* PFN_cuGraphicsGLRegisterBuffer_v3000)(CUgraphicsResource* resource, unsigned buffer,
                                                                unsigned flags);
// Of cudaD3D11.h, which only toolkits for Windows have. `texture` is an ID3D11Resource*.
typedef CUresult(CUDAAPI* PFN_cuGraphicsD3D11RegisterResource_v3000)(CUgraphicsResource* resource, void* texture,
                                                                     unsigned flags);

// X(name, ABI version, needed). If a needed entry is missing, the result is SUMI_DRIVER_TOO_OLD; other missing entries
// are NULL.
#define SUMI_CUDA_ENTRIES(X)                                                                                           \
    X(cuInit, 2000, true)                                                                                              \
    X(cuDriverGetVersion, 2020, true)                                                                                  \
    X(cuGetErrorName, 6000, true)                                                                                      \
    X(cuGetErrorString, 6000, true)                                                                                    \
    X(cuDeviceGetCount, 2000, true)                                                                                    \
    X(cuDeviceGet, 2000, true)                                                                                         \
    X(cuDeviceGetName, 2000, true)                                                                                     \
    X(cuDeviceGetAttribute, 2000, true)                                                                                \
    X(cuDeviceGetUuid, 11040, true)                                                                                    \
    X(cuDeviceGetLuid, 10000, false)                                                                                   \
    X(cuDeviceTotalMem, 3020, true)                                                                                    \
    X(cuDevicePrimaryCtxRetain, 7000, true)                                                                            \
    X(cuDevicePrimaryCtxRelease, 11000, true)                                                                          \
    X(cuCtxPushCurrent, 4000, true)                                                                                    \
    X(cuCtxPopCurrent, 4000, true)                                                                                     \
    X(cuCtxGetDevice, 2000, true)                                                                                      \
    X(cuCtxGetStreamPriorityRange, 5050, true)                                                                         \
    X(cuModuleLoadDataEx, 2010, true)                                                                                  \
    X(cuModuleUnload, 2000, true)                                                                                      \
    X(cuLinkCreate, 6050, false)                                                                                       \
    X(cuLinkAddData, 6050, false)                                                                                      \
    X(cuLinkComplete, 5050, false)                                                                                     \
    X(cuLinkDestroy, 5050, false)                                                                                      \
    X(cuModuleGetFunction, 2000, true)                                                                                 \
    X(cuFuncSetAttribute, 9000, true)                                                                                  \
    X(cuFuncGetAttribute, 2020, true)                                                                                  \
    X(cuLaunchKernel, 4000, true)                                                                                      \
    X(cuLaunchKernelEx, 11060, false)                                                                                  \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050, true)                                                         \
    X(cuMemAlloc, 3020, true)                                                                                          \
    X(cuMemFree, 3020, true)                                                                                           \
    X(cuMemGetInfo, 3020, true)                                                                                        \
    X(cuMemHostAlloc, 2020, true)                                                                                      \
    X(cuMemFreeHost, 2000, true)                                                                                       \
    X(cuMemcpyHtoDAsync, 3020, true)                                                                                   \
    X(cuMemcpyDtoHAsync, 3020, true)                                                                                   \
    X(cuMemcpyDtoDAsync, 3020, true)                                                                                   \
    X(cuMemsetD8Async, 3020, true)                                                                                     \
    X(cuMemsetD32Async, 3020, true)                                                                                    \
    X(cuStreamCreateWithPriority, 5050, true)                                                                          \
    X(cuStreamDestroy, 4000, true)                                                                                     \
    X(cuStreamQuery, 2000, true)                                                                                       \
    X(cuStreamSynchronize, 2000, true)                                                                                 \
    X(cuStreamWaitEvent, 3020, true)                                                                                   \
    X(cuStreamIsCapturing, 10000, true)                                                                                \
    X(cuStreamBeginCapture, 10010, true)                                                                               \
    X(cuStreamEndCapture, 10000, true)                                                                                 \
    X(cuThreadExchangeStreamCaptureMode, 10010, true)                                                                  \
    X(cuGraphInstantiateWithFlags, 11040, true)                                                                        \
    X(cuGraphUpload, 11010, true)                                                                                      \
    X(cuGraphLaunch, 10000, true)                                                                                      \
    X(cuGraphExecDestroy, 10000, true)                                                                                 \
    X(cuGraphDestroy, 10000, true)                                                                                     \
    X(cuEventCreate, 2000, true)                                                                                       \
    X(cuEventDestroy, 4000, true)                                                                                      \
    X(cuEventRecord, 2000, true)                                                                                       \
    X(cuEventQuery, 2000, true)                                                                                        \
    X(cuEventSynchronize, 2000, true)                                                                                  \
    X(cuEventElapsedTime, 2000, true)                                                                                  \
    X(cuMemFreeAsync, 11020, false)                                                                                    \
    X(cuMemHostRegister, 6050, false)                                                                                  \
    X(cuMemHostUnregister, 4000, false)                                                                                \
    X(cuTensorMapEncodeTiled, 12000, false)                                                                            \
    X(cuMemcpy2DAsync, 3020, false)                                                                                    \
    X(cuGLGetDevices, 6050, false)                                                                                     \
    X(cuGraphicsGLRegisterImage, 3000, false)                                                                          \
    X(cuGraphicsUnregisterResource, 3000, false)                                                                       \
    X(cuGraphicsMapResources, 3000, false)                                                                             \
    X(cuGraphicsUnmapResources, 3000, false)                                                                           \
    X(cuGraphicsSubResourceGetMappedArray, 3000, false)                                                                \
    X(cuArray3DGetDescriptor, 3020, false)                                                                             \
    X(cuGraphicsGLRegisterBuffer, 3000, false)                                                                         \
    X(cuGraphicsD3D11RegisterResource, 3000, false)                                                                    \
    X(cuGraphicsResourceGetMappedPointer, 3020, false)                                                                 \
    X(cuImportExternalMemory, 10000, false)                                                                            \
    X(cuDestroyExternalMemory, 10000, false)                                                                           \
    X(cuExternalMemoryGetMappedBuffer, 10000, false)                                                                   \
    X(cuExternalMemoryGetMappedMipmappedArray, 10000, false)                                                           \
    X(cuMipmappedArrayGetLevel, 5000, false)                                                                           \
    X(cuMipmappedArrayDestroy, 5000, false)                                                                            \
    X(cuImportExternalSemaphore, 10000, false)                                                                         \
    X(cuDestroyExternalSemaphore, 10000, false)                                                                        \
    X(cuSignalExternalSemaphoresAsync, 10000, false)                                                                   \
    X(cuWaitExternalSemaphoresAsync, 10000, false)

typedef struct sumi_cuda_driver {
#define SUMI_CUDA_MEMBER(name, version, needed) PFN_##name##_v##version name;
    SUMI_CUDA_ENTRIES(SUMI_CUDA_MEMBER)
#undef SUMI_CUDA_MEMBER
    int32_t version; // 13000 for CUDA 13.0
} sumi_cuda_driver;

// Opens and initialises the driver. SUMI_NO_DEVICE: without a driver library or a device. SUMI_DRIVER_TOO_OLD: a
// needed entry is missing. The library is never closed, because other code in the process may use it and its threads
// live on.
sumi_result sumi_cuda_driver_open(sumi_cuda_driver* out_driver, sumi_error* error);

// The result of a failed driver call. The text contains `what` and the driver's own name, number and description.
//   SUMI_OUT_OF_DEVICE_MEMORY; SUMI_NO_DEVICE, SUMI_DRIVER_TOO_OLD, SUMI_DEVICE_UNSUPPORTED (mostly when an engine is
//   created); SUMI_WRONG_STATE (no OpenGL context)
//   SUMI_INTERNAL      the driver refuses the arguments of this call, and the context continues
//   SUMI_DEVICE_LOST   the context is lost, for the host program too. Any other code counts as that.
sumi_result sumi_cuda_failure(const sumi_cuda_driver* driver, CUresult result, const char* what, sumi_error* error);
// Both are for calls that sumi can work without. loses_context: the driver says that the context is lost.
// may_be_refusal: it has refused the call, or the code is an unexpected one.
bool sumi_cuda_loses_context(CUresult result);
bool sumi_cuda_may_be_refusal(CUresult result);

// While another thread of the host program captures a graph in global mode, a "potentially unsafe" call by this thread
// fails and breaks that capture. CUDA documents no list of these calls; frees and the first launch of a kernel are
// among them, as well as allocations and event queries. Between sumi_cuda_relax and sumi_cuda_unrelax no call is
// unsafe. sumi_cuda_enter and sumi_cuda_leave use them around every call except cuInit.
CUstreamCaptureMode sumi_cuda_relax(const sumi_cuda_driver* driver);
void sumi_cuda_unrelax(const sumi_cuda_driver* driver, CUstreamCaptureMode mode); // mode: what sumi_cuda_relax returned

// SUMI_CU(driver, call, "what it was for"): returns from the calling function if the driver call fails. Needs a
// variable `error` in scope.
#define SUMI_CU(driver, call, what)                                                                                    \
    do {                                                                                                               \
        CUresult cu_result_ = (driver)->call;                                                                          \
        if (cu_result_ != CUDA_SUCCESS) return sumi_cuda_failure((driver), cu_result_, (what), error);                 \
    } while (0)
#endif
