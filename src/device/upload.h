// How weights are copied to the device:
//
//   mapped file --workers--> pinned buffer --copy stream--> weight                                     bf16 matrices without padding
//                                          \-> device buffer --kernels/upload.cu--> weight              all else: other types, interleaved rows
//
// With one worker, in calls without a budget, large weights of the first kind are copied from the mapping itself
// (mapped_upload.h).
//
// A weight with a change (plan/weight.h) goes the second way, as floats that the workers compute from its rows, so that
// the sum is rounded once, to the type of the form. A buffer is the unit of waiting and pinning: a megabyte in updates
// with a budget, otherwise eight. The workers fill a batch of buffers together.
#ifndef SUMI_DEVICE_UPLOAD_H
#define SUMI_DEVICE_UPLOAD_H
#include "device/residency.h"

// The most device memory that uploads need beside the weights, for any list of the weights that were added.
typedef struct sumi_device_staging {
    uint64_t total, largest_row;
    bool converts;
} sumi_device_staging;
void sumi_device_staging_add(sumi_device_staging* staging, const sumi_weight* weight, sumi_device_form form);
uint64_t sumi_device_staging_bytes(const sumi_device_staging* staging);

// Uploads the weights of the list from its cursor on until the time is over. *out_done: all were uploaded. Waits at
// most for the copy of one buffer, and pins or unpins at most one buffer after its time is over. Before such a list is
// freed or shortened, call sumi_device_weights_settle.
sumi_result sumi_device_weights_upload(sumi_device_weights* weights, sumi_device_list* list, sumi_device_budget budget,
                                       bool* out_done, sumi_error* error);
// Copies the weight at the cursor, which is not resident, to `address` on the device, on the copy stream. Blocks while
// buffers are busy. Keeps the buffers for the next weights of the list.
sumi_result sumi_device_weights_upload_to(sumi_device_weights* weights, const sumi_device_list* list, uint64_t address,
                                          sumi_error* error);
// Waits for all uploads, then frees their pinned memory and device memory.
void sumi_device_weights_settle(sumi_device_weights* weights);

// Bytes that one worker copies at a time.
#define SUMI_DEVICE_ITEM_BYTES (256u << 10)
// Bytes per microsecond of one thread that copies from the page cache, at least. Limits a batch by the caller's budget.
#define SUMI_DEVICE_SLOWEST_BYTES_PER_US 2048
#endif
