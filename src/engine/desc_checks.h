// Checks and copies that several descs share.
#ifndef SUMI_ENGINE_DESC_CHECKS_H
#define SUMI_ENGINE_DESC_CHECKS_H
#include "engine/buffers.h"
#include "pictures/pixels.h"

sumi_result sumi_check_model(const sumi_engine* engine, const sumi_model* model, sumi_error* error);
sumi_result sumi_check_size(const sumi_model* model, int32_t width, int32_t height, sumi_error* error);
// values NULL: nothing to check
sumi_result sumi_check_finite(const float* values, uint64_t count, const char* member, sumi_error* error);
// row_bytes 0 becomes what it means.
sumi_pixels sumi_pixels_settled(const sumi_pixels* pixels);
// The pixels a job reads, rows packed tightly; pass 1 measures.
sumi_pixels sumi_pixels_copy(sumi_packer* packer, const sumi_pixels* pixels);
#endif
