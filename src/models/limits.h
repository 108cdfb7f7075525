// The most there can be of things in one job, and of parts in one network.
#ifndef SUMI_MODELS_LIMITS_H
#define SUMI_MODELS_LIMITS_H

#define SUMI_MAX_TEXT_ENCODERS 2
#define SUMI_MAX_ITEMS 64     // pictures in one job
#define SUMI_MAX_PROMPTS 128  // distinct prompts in one job: a positive and a negative one per picture
#define SUMI_MAX_REFERENCES 8 // pictures that one job refers to
#define SUMI_MAX_SIZES 64     // of pictures that the authors of a model name
#endif
