// Streamed weights: pinned copies, which hold their bytes in the device form, and copying these to the ring buffer on
// the device.
#ifndef SUMI_DEVICE_PINNED_COPIES_H
#define SUMI_DEVICE_PINNED_COPIES_H
#include "device/residency.h"

// Whether a weight that is streamed is copied from its file's mapping, so that it needs no pinned memory.
bool sumi_device_streams_mapped(const sumi_device_weights* weights, const sumi_weight* weight, sumi_device_form form);
// Writes the next rows of a weight's pinned copy, for about budget_us of this thread's time. The form is one that the
// CPU makes (sumi_device_form_is_made_on_cpu). *row: the next row, 0 at first.
void sumi_device_weights_fill_pinned_copy(sumi_device_weights* weights, int32_t index, int32_t* row,
                                          uint32_t budget_us);
// Copies a weight from its pinned copy, which is complete, to the ring buffer, on the copy stream.
sumi_result sumi_device_weights_copy_out(const sumi_device_weights* weights, const sumi_device_resident* resident,
                                         uint64_t to, sumi_error* error);
#endif
