// How weights get to the device:
//
//   file, mapped --workers copy--> pinned buffer --copy stream--> its place                      bf16 matrices without padding
//                                                \-> raw device buffer --kernels/upload.cu--> place  everything else: other types, interleaved, permuted, folded, quantised
//
// A weight with a change (plan/weight.h) goes the second way, as the floats that the workers make of its rows: the sum is
// rounded once, to the form's type. A buffer is a megabyte, the unit of all waiting and pinning; a batch of buffers is
// filled by the workers together.
#ifndef SUMI_CUDA_UPLOAD_H
#define SUMI_CUDA_UPLOAD_H
#include "cuda/residency.h"

// Device memory that uploads take at most beside the places of weights, for any list of those that were added.
typedef struct sumi_cuda_staging {
    uint64_t total, largest_row;
    bool converts;
} sumi_cuda_staging;
void sumi_cuda_staging_add(sumi_cuda_staging* staging, const sumi_weight* weight, sumi_cuda_form form);
uint64_t sumi_cuda_staging_bytes(const sumi_cuda_staging* staging);

// Brings residents list[*cursor .. count) to the device until the time is over, *out_done when all of them are there.
// Waits at most for a buffer's copy, and pins or unpins at most one buffer beyond its time. A list that is freed or
// shortened before it is done: settle first.
sumi_result sumi_cuda_weights_send(sumi_cuda_weights* weights, const int32_t* list, int32_t count, int32_t* cursor,
                                   uint64_t until_ns, uint32_t budget_us, bool* out_done, sumi_error* error);
// Brings list[at] to `place`, where it does not stay: on the copy stream, in its order. Blocks while buffers are busy;
// keeps them for the next ones of the list.
sumi_result sumi_cuda_weights_pass(sumi_cuda_weights* weights, const int32_t* list, int32_t count, int32_t at,
                                   CUdeviceptr place, sumi_error* error);
// Gives the memory of every upload back to the host (pinned) and the device; waits for it first.
void sumi_cuda_weights_settle(sumi_cuda_weights* weights);

// Bytes that one worker copies at a time.
#define SUMI_CUDA_ITEM_BYTES (256u << 10)
// Of one thread that copies from the page cache: bounds a batch by the caller's budget.
#define SUMI_CUDA_SLOWEST_BYTES_PER_US 2048
#endif
