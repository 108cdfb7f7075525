// Copies of values between host memory and the device, through pinned memory. Inputs go through a ring buffer; each
// output has its own mirror in pinned memory, and an event after its copy.
#ifndef SUMI_CUDA_TRANSFERS_H
#define SUMI_CUDA_TRANSFERS_H
#include "cuda/state.h"
#include "interop/interop.h"

// Makes a mirror for each bound value that an op writes.
sumi_result sumi_cuda_make_mirrors(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error);
void sumi_cuda_drop_mirrors(sumi_cuda* cuda, sumi_cuda_plan* record);
// Makes a pinned copy of the constants. They never change, so `start` only has to copy them.
sumi_result sumi_cuda_make_constants(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error);
// Bytes of pinned memory that a plan takes here.
uint64_t sumi_cuda_pinned_bytes(const sumi_plan* plan);
// Copies the constants into the arena, when a run begins.
void sumi_cuda_copy_constants(sumi_cuda* cuda, const sumi_cuda_plan* record);
// Whether there is pinned memory for the ring buffer and the mirrors of the record.
bool sumi_cuda_has_pages(const sumi_cuda* cuda, const sumi_cuda_plan* record);
// Allocates one page, or outside of frames several at once, and more until the time is over.
sumi_result sumi_cuda_make_pages(sumi_cuda* cuda, const sumi_cuda_plan* record, uint64_t until_ns, sumi_error* error);
void sumi_cuda_runner_write(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset,
                            const void* data, uint64_t bytes);
sumi_result sumi_cuda_runner_fetch(sumi_runner* runner, const sumi_plan* plan, sumi_value value, sumi_error* error);
void sumi_cuda_runner_read(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, void* into,
                           uint64_t bytes);

// ---- Imports (imports.c)

// Memory and semaphores of OpenGL, Vulkan and Direct3D: the functions of interop/interop.h. The context must be
// current.

sumi_result sumi_cuda_import(sumi_cuda* cuda, const sumi_import_desc* desc, sumi_imported* out_import,
                             sumi_error* error);
void sumi_cuda_finish_import(const sumi_cuda* cuda, const sumi_imported* import);
void sumi_cuda_release_import(sumi_cuda* cuda, sumi_imported* import);
bool sumi_cuda_is_copying(const sumi_cuda* cuda, const sumi_imported* import);
sumi_result sumi_cuda_copy_to_import(const sumi_cuda* cuda, const sumi_import_copy* copy, sumi_error* error);

// ---- Depth buffers of imports (import_depth.c)

// Bytes of an import's memory: of the depth, and of all.
uint64_t sumi_cuda_depth_bytes(int32_t width, int32_t height);
uint64_t sumi_cuda_depth_all_bytes(int32_t width, int32_t height);
// Puts the kernels into the compute stream. The context must be current.
sumi_result sumi_cuda_write_depth(sumi_cuda* cuda, const sumi_plan* plan, const sumi_depth_input* input,
                                  sumi_error* error);

// ---- Targets of pictures that are not in host memory (targets.c)

// Puts the conversion into the compute stream. The context must be current.
sumi_result sumi_cuda_publish(sumi_cuda* cuda, const sumi_plan* plan, const sumi_publication* picture,
                              sumi_error* error);
#endif
