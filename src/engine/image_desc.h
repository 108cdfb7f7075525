// From the host's desc to a plan job: every member is looked at, and everything it points to is copied.
#ifndef SUMI_ENGINE_IMAGE_DESC_H
#define SUMI_ENGINE_IMAGE_DESC_H
#include "engine/buffers.h"
#include "engine/plan_job.h"

// Writes the desc with its size settled: 0 x 0 becomes what follows from the references. SUMI_INVALID_ARGUMENT,
// SUMI_NOT_SUPPORTED, SUMI_DESC_NOT_INITIALIZED; the text names the member.
sumi_result sumi_image_desc_check(const sumi_engine* engine, const sumi_image_desc* desc, sumi_image_desc* out_settled,
                                  sumi_error* error);
// Tells the log what a desc that passed says in vain: negative prompts without guidance.
void sumi_image_desc_tell_unused(const sumi_engine* engine, const sumi_image_desc* desc);
// Fills a zeroed job from a desc that passed. Arrays go into `lists` and `input`, which must outlive it.
sumi_result sumi_image_desc_copy(sumi_heap* heap, const sumi_image_desc* desc, sumi_block* lists, sumi_block* input,
                                 sumi_plan_job* job, sumi_error* error);
#endif
