// Checks and copies that several kinds of descs share. The functions run inside public calls on the thread of the host
// program, take no lock and do not block. Checks return SUMI_INVALID_ARGUMENT; the text names the member.
#ifndef SUMI_ENGINE_DESC_CHECKS_H
#define SUMI_ENGINE_DESC_CHECKS_H
#include "base/result.h"
#include "jobs/buffers.h"

sumi_result sumi_check_model(const sumi_engine* engine, const sumi_model* model, sumi_error* error);
sumi_result sumi_check_size(const sumi_model* model, int32_t width, int32_t height, sumi_error* error);
// Refuses NaN and infinity among `count` values. NULL passes.
sumi_result sumi_check_finite(const float* values, uint64_t count, const char* member, sumi_error* error);
// Returns the pixels with row_bytes 0 replaced by the value that 0 stands for: width * channel_count, no gaps.
sumi_pixels sumi_pixels_with_row_bytes(const sumi_pixels* pixels);
// Copies pixels into the packer's block, with no gaps between rows. While the packer measures (buffers.h), the returned
// `data` is NULL.
sumi_pixels sumi_pixels_copy(sumi_packer* packer, const sumi_pixels* pixels);
#endif
