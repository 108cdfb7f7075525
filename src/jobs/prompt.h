// Encoded prompts in memory: what a prompt job makes and an image job is given. engine/prompts.c saves and loads them.
#ifndef SUMI_JOBS_PROMPT_H
#define SUMI_JOBS_PROMPT_H
#include "base/result.h"
#include "models/limits.h"
#include "pictures/picture_sizes.h"

#define SUMI_FAMILY_BYTES 32

// Rows [row, row + count) of a prompt's features, which a reference replaces.
typedef struct sumi_reference_place {
    int32_t row, count;
} sumi_reference_place;

struct sumi_prompt {
    sumi_engine* engine;
    sumi_prompt *next, **link;
    uint64_t block_bytes; // size of the block of this object, at least what the object needs
    char family[SUMI_FAMILY_BYTES];
    int32_t encoder_count;
    int32_t token_count[SUMI_MAX_TEXT_ENCODERS], width[SUMI_MAX_TEXT_ENCODERS];
    float* features[SUMI_MAX_TEXT_ENCODERS]; // [token_count][width], in the block of this object
    // The references that the prompt was encoded with, as the VAE encoder reads them: bytes [height][width][channels],
    // RGB or RGBA, in the block of this object.
    int32_t reference_count, picture_channels;
    sumi_picture_size reference_sizes[SUMI_MAX_REFERENCES];
    unsigned char* references[SUMI_MAX_REFERENCES];
    // Where the references stand in the features of the first encoder; count 0: the model does not need to know.
    sumi_reference_place places[SUMI_MAX_REFERENCES];
    char* adapters; // those that changed the features, as sumi_prompt_info has them; in the block of this object
};

#define SUMI_PROMPT_ADAPTERS_BYTES 2048 // of their text, with its end

typedef struct sumi_prompt_shape {
    const char* family;
    int32_t encoder_count;
    const int32_t *token_count, *width;        // [encoder_count]
    int32_t reference_count, picture_channels; // the latter 3 or 4, with references
    sumi_picture_size references[SUMI_MAX_REFERENCES];
    sumi_reference_place places[SUMI_MAX_REFERENCES];
    const char* adapters; // NULL: none
} sumi_prompt_shape;
// Creates an empty prompt with memory for features and references of these sizes.
//
// The engine keeps the block of one freed prompt (`spare_prompt`) for the next one. The features of 512 tokens are 5
// MB: memory that the C library has just got from the system has no pages yet, and the first write to each of them cost
// 1.7 of the 2.3 ms in which those features are converted (AMD EPYC), every time.
sumi_result sumi_prompt_create(sumi_engine* engine, const sumi_prompt_shape* shape, sumi_prompt** out_prompt,
                               sumi_error* error);
void sumi_prompt_free(sumi_prompt* prompt);
// Frees the spare block, when the engine is destroyed and has no prompts any more.
void sumi_prompts_close(sumi_engine* engine);
#endif
