// Limits of the numbers of things in one job and in one network.
#ifndef SUMI_MODELS_LIMITS_H
#define SUMI_MODELS_LIMITS_H

#define SUMI_MAX_TEXT_ENCODERS 2
#define SUMI_MAX_ITEMS 64      // pictures in one job
#define SUMI_MAX_PROMPTS 128   // distinct prompts in one job: a positive and a negative one per item
#define SUMI_MAX_REFERENCES 10 // reference pictures of one job
// What a denoiser reads: the references of the job, and a start image that is one too.
#define SUMI_MAX_REFERENCE_LATENTS (1 + SUMI_MAX_REFERENCES)
#define SUMI_MAX_CONTROLS 4 // control nets of one job
#define SUMI_MAX_SIZES 64   // picture sizes that the authors of a model name
#endif
