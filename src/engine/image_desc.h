// From the host's desc to a plan job: every member is looked at, and everything it points to is copied.
#ifndef SUMI_ENGINE_IMAGE_DESC_H
#define SUMI_ENGINE_IMAGE_DESC_H
#include "engine/engine.h"

// Writes the desc with its size settled: 0 x 0 becomes what follows from the references. SUMI_INVALID_ARGUMENT,
// SUMI_NOT_SUPPORTED, SUMI_DESC_NOT_INITIALIZED; the text names the member.
sumi_result sumi_image_desc_check(const sumi_engine* engine, const sumi_image_desc* desc, sumi_image_desc* out_settled,
                                  sumi_error* error);
// Tells the log what a desc that passed says in vain: negative prompts without guidance.
void sumi_image_desc_tell_unused(const sumi_engine* engine, const sumi_image_desc* desc);
// Fills a zeroed job from a desc that passed. Arrays go into `lists` and `input`, which must outlive it.
sumi_result sumi_image_desc_copy(sumi_heap* heap, const sumi_image_desc* desc, sumi_block* lists, sumi_block* input,
                                 sumi_plan_job* job, sumi_error* error);

// Pieces that other descs share.
sumi_result sumi_check_model(const sumi_engine* engine, const sumi_model* model, sumi_error* error);
sumi_result sumi_check_size(const sumi_model* model, int32_t width, int32_t height, sumi_error* error);
// values NULL: nothing to check
sumi_result sumi_check_finite(const float* values, uint64_t count, const char* member, sumi_error* error);
// row_bytes 0 becomes what it means.
sumi_pixels sumi_pixels_settled(const sumi_pixels* pixels);
// The pixels a job reads, rows packed tightly; pass 1 measures.
sumi_pixels sumi_pixels_copy(sumi_packer* packer, const sumi_pixels* pixels);
#endif
