// Weights that are streamed: their bytes in pinned memory as the device wants them, and copies of those into the ring.
#ifndef SUMI_CUDA_PINNED_COPIES_H
#define SUMI_CUDA_PINNED_COPIES_H
#include "cuda/residency.h"

// Whether a weight that is streamed is copied from its file's mapping, so that it needs no pinned memory.
bool sumi_cuda_streams_mapped(const sumi_cuda_weights* weights, const sumi_weight* weight, sumi_cuda_form form);
// The next rows of a resident (sumi_cuda_form_is_made_on_cpu) into its image, about budget_us of this thread's time. *row: the
// next one, 0 at first.
void sumi_cuda_weights_fill_pinned_copy(sumi_cuda_weights* weights, int32_t index, int32_t* row, uint32_t budget_us);
// From its image, which is complete, into the ring, on the copy stream.
sumi_result sumi_cuda_weights_copy_out(const sumi_cuda_weights* weights, const sumi_cuda_resident* resident,
                                       CUdeviceptr to, sumi_error* error);
#endif
