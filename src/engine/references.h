// The reference pictures of a job of an edit model: given by the host program, or kept by a prompt that was encoded
// before.
//
//   source --Lanczos--> sizes.autoencoder: read by the VAE encoder; kept by prompts
//          --Lanczos--> sizes.first --bicubic--> sizes.vision: read by the vision tower
//
// The vision tower reads pictures only to encode texts. A picture that a prompt has kept has the autoencoder's size,
// and no text can be encoded with it, because the vision tower needs the source.
#ifndef SUMI_ENGINE_REFERENCES_H
#define SUMI_ENGINE_REFERENCES_H
#include "engine/buffers.h"
#include "models/network.h"
#include "pictures/pixels.h"

typedef struct sumi_reference {
    sumi_pixels source; // the host program's picture, then the job's own copy
    sumi_reference_sizes sizes;
} sumi_reference;

typedef struct sumi_references {
    sumi_reference list[SUMI_MAX_REFERENCES];
    int32_t count;
    bool are_of_prompt; // the pictures were kept by a prompt and have the autoencoder's sizes
} sumi_references;

// Checks the members `references` and `reference_count` of a desc and computes the sizes. Does not check whether there
// are enough (sumi_references_check_count). Failures: SUMI_INVALID_ARGUMENT, SUMI_NOT_SUPPORTED.
sumi_result sumi_references_check(const sumi_model* model, const sumi_pixels* pictures, int32_t count,
                                  sumi_references* out_references, sumi_error* error);
sumi_result sumi_references_check_count(const sumi_model* model, int32_t count, sumi_error* error);
// Whether texts can be encoded with these references.
sumi_result sumi_references_check_vision(const sumi_model* model, const sumi_references* references, sumi_error* error);
// The references that a prompt keeps. The prompt must outlive them.
void sumi_references_of_prompt(const sumi_prompt* prompt, sumi_references* out_references);
// Whether a prompt was encoded with as many pictures, of the same sizes. `member` names the prompt in messages:
// "items[0].prompt".
sumi_result sumi_references_check_prompt(const sumi_references* references, const sumi_prompt* prompt,
                                         const char* member, sumi_error* error);

// Copies the references with their pixels into a packer.
sumi_references sumi_references_copy(sumi_packer* packer, const sumi_references* references);
// Tokens of all references in a prompt.
int32_t sumi_references_tokens(const sumi_references* references);
// The most bytes of a workspace that the resizes of these references need.
uint64_t sumi_references_resize_bytes(const sumi_references* references);
#endif
