// The reference pictures of a job of an edit model: given by the host program, or kept by a prompt that was encoded
// before.
//
//   source --Lanczos--> sizes.autoencoder: read by the VAE encoder; kept by prompts
//          --Lanczos--> sizes.first --bicubic--> sizes.vision: read by the vision tower
//
// The vision tower reads pictures only to encode texts. A picture that a prompt has kept has the autoencoder's size,
// and no text can be encoded with it, because the vision tower needs the source.
#ifndef SUMI_JOBS_REFERENCES_H
#define SUMI_JOBS_REFERENCES_H
#include "models/limits.h"
#include "models/network.h"

typedef struct sumi_reference {
    sumi_pixels source; // the host program's picture, then the job's own copy
    sumi_reference_sizes sizes;
} sumi_reference;

typedef struct sumi_references {
    sumi_reference list[SUMI_MAX_REFERENCES];
    int32_t count;
    bool are_of_prompt; // the pictures were kept by a prompt and have the autoencoder's sizes
} sumi_references;

// Tokens of all references in a prompt.
int32_t sumi_references_tokens(const sumi_references* references);
// The most bytes of a workspace that the resizes of these references need.
uint64_t sumi_references_resize_bytes(const sumi_references* references);
#endif
