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

// A prompt has several users: the host program, or the job that makes it, and every image job that was submitted with
// it. The pump's thread reads what jobs read, while a call of the host program may make what no job reads.
struct sumi_prompt {
    sumi_engine* engine;
    sumi_prompt *next, **link;
    uint64_t serial;
    int32_t user_count;   // protected by `state_lock`
    uint64_t block_bytes; // size of the block of this object, at least what the object needs
    char family[SUMI_FAMILY_BYTES];
    int32_t encoder_count;
    int32_t token_count[SUMI_MAX_TEXT_ENCODERS], width[SUMI_MAX_TEXT_ENCODERS];
    // [token_count][width], in the block of this object: as float32, and, if these are the runner's activations, as
    // bfloat16 (`halves`, otherwise NULL). The prompt has one of the two from the beginning; the other is made of it
    // when somebody asks. Memory that nobody asked for was never written to, so the system gives it no pages.
    float* features[SUMI_MAX_TEXT_ENCODERS];
    uint16_t* halves[SUMI_MAX_TEXT_ENCODERS];
    bool has_features, has_halves;
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
// Creates an empty prompt with one user and memory for features and references of these sizes. Its creator writes the
// features; or the halves, and then exchanges has_features for has_halves.
//
// The engine keeps the block of one freed prompt (`spare_prompt`) for the next one. The features of 512 tokens are 5
// MB: memory that the C library has just got from the system has no pages yet, and the first write to each of them cost
// 1.7 of the 2.3 ms in which those features are converted (AMD EPYC), every time.
sumi_result sumi_prompt_create(sumi_engine* engine, const sumi_prompt_shape* shape, sumi_prompt** out_prompt,
                               sumi_error* error);
// Adds a user. Each user ends with sumi_prompt_free, and the last one frees the prompt. Both lock `state_lock` for a
// moment.
void sumi_prompt_share(sumi_prompt* prompt);
void sumi_prompt_free(sumi_prompt* prompt);
// The features of an encoder as float32; exact where the prompt has halves alone. They do not change after the first
// call, which converts all encoders' features and must be in a call of the host program.
const float* sumi_prompt_floats(sumi_prompt* prompt, int32_t encoder);
// Likewise as the runner has activations: float32, or bfloat16, rounded to nearest even.
const void* sumi_prompt_elements(sumi_prompt* prompt, int32_t encoder);
static inline size_t sumi_prompt_value_count(const sumi_prompt* prompt, int32_t encoder)
{
    return (size_t)prompt->token_count[encoder] * (size_t)prompt->width[encoder];
}
// Frees the prompts that the host program has not released, and the spare block, when the engine is destroyed and has no
// jobs any more.
void sumi_prompts_close(sumi_engine* engine);
#endif
