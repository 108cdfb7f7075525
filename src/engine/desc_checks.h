// Checks and copies that several kinds of descs share. The functions run inside public calls on the thread of the host
// program, take no lock and do not block. Checks return SUMI_INVALID_ARGUMENT; the text names the member.
#ifndef SUMI_ENGINE_DESC_CHECKS_H
#define SUMI_ENGINE_DESC_CHECKS_H
#include "base/result.h"
#include "jobs/buffers.h"
#include "jobs/job_pictures.h"
#include "jobs/plan_job.h"

sumi_result sumi_check_model(const sumi_engine* engine, const sumi_model* model, sumi_error* error);
sumi_result sumi_check_size(const sumi_model* model, int32_t width, int32_t height, sumi_error* error);
// Refuses NaN and infinity among `count` values. NULL passes.
sumi_result sumi_check_finite(const float* values, uint64_t count, const char* member, sumi_error* error);
// Returns the pixels with row_bytes 0 replaced by the value that 0 stands for: width * channel_count, no gaps.
sumi_pixels sumi_pixels_with_row_bytes(const sumi_pixels* pixels);
// Copies pixels into the packer's block, with no gaps between rows. While the packer measures (buffers.h), the returned
// `data` is NULL.
sumi_pixels sumi_pixels_copy(sumi_packer* packer, const sumi_pixels* pixels);

// Checks the members `loras` and `lora_count` of a desc.
sumi_result sumi_loras_check(const sumi_model* model, const sumi_lora_use* loras, int32_t count, sumi_error* error);
// Copies those that change what the job computes: it denoises, or it encodes text, or both.
void sumi_loras_copy(const sumi_lora_use* loras, int32_t count, bool denoises, bool encodes_text,
                     sumi_job_request* request);

// ---- References -----------------------------------------------------------------------------------------------------
//
// The references of descs: checked, and copied for a job.

// Checks the members `references` and `reference_count` of a desc and computes the sizes. Does not check whether there
// are enough (sumi_references_check_count). Failures: SUMI_INVALID_ARGUMENT, SUMI_NOT_SUPPORTED.
sumi_result sumi_references_check(const sumi_model* model, const sumi_pixels* pictures, int32_t count,
                                  sumi_references* out_references, sumi_error* error);
sumi_result sumi_references_check_count(const sumi_model* model, int32_t count, sumi_error* error);
// Whether texts can be encoded with these references.
sumi_result sumi_references_check_vision(const sumi_model* model, const sumi_references* references, sumi_error* error);
// The references that a prompt keeps. The prompt must outlive them.
void sumi_references_of_prompt(const sumi_prompt* prompt, sumi_references* out_references);
// Whether a prompt was encoded with as many pictures, of the same sizes, if prompts of the model read them. `member` names the prompt in messages:
// "items[0].prompt".
sumi_result sumi_references_check_prompt(const sumi_model* model, const sumi_references* references,
                                         const sumi_prompt* prompt, const char* member, sumi_error* error);

// Copies the references with their pixels into a packer. Those of a prompt keep pointing into it: the job is one of its
// users.
sumi_references sumi_references_copy(sumi_packer* packer, const sumi_references* references);
#endif
