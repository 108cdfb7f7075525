// The pictures that a job of an edit model refers to: what the host gives, or what a prompt keeps of an earlier job.
//
//   the host's picture --Lanczos--> sizes.autoencoder: the autoencoder reads it; prompts keep it
//                      --Lanczos--> sizes.first --bicubic--> sizes.vision: the vision tower sees it
//
// The vision tower sees pictures for texts alone. A kept picture is of the autoencoder's size already, and no text can
// be encoded with it: what the vision tower saw was made of the host's picture, which is not there any more.
#ifndef SUMI_ENGINE_REFERENCES_H
#define SUMI_ENGINE_REFERENCES_H
#include "engine/buffers.h"
#include "models/network.h"
#include "pictures/pixels.h"

typedef struct sumi_reference {
    sumi_pixels source; // the host's picture, then the job's own copy
    sumi_reference_sizes sizes;
} sumi_reference;

typedef struct sumi_references {
    sumi_reference list[SUMI_MAX_REFERENCES];
    int32_t count;
    bool are_of_prompt; // by a prompt: the sources are of the autoencoder's sizes
} sumi_references;

// Checks the members `references` and `reference_count` of a desc, and finds the pictures' sizes. Whether there are
// enough of them the caller asks (sumi_references_check_count). SUMI_INVALID_ARGUMENT, SUMI_NOT_SUPPORTED.
sumi_result sumi_references_check(const sumi_model* model, const sumi_pixels* pictures, int32_t count,
                                  sumi_references* out_references, sumi_error* error);
sumi_result sumi_references_check_count(const sumi_model* model, int32_t count, sumi_error* error);
// Whether texts can be encoded with them.
sumi_result sumi_references_check_vision(const sumi_model* model, const sumi_references* references, sumi_error* error);
// Those of the prompt, which must outlive them.
void sumi_references_of_prompt(const sumi_prompt* prompt, sumi_references* out_references);
// Whether a prompt was encoded with as many pictures of the same sizes. `member` names it: "items[0].prompt".
sumi_result sumi_references_check_prompt(const sumi_references* references, const sumi_prompt* prompt,
                                         const char* member, sumi_error* error);

// Copies, with pixels of their own; pass 1 measures.
sumi_references sumi_references_copy(sumi_packer* packer, const sumi_references* references);
// Tokens that all of them take in a prompt.
int32_t sumi_references_tokens(const sumi_references* references);
// Bytes of a workspace that their resizes take at most.
uint64_t sumi_references_resize_bytes(const sumi_references* references);
#endif
