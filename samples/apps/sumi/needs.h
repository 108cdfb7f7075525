// What an image takes of a card's memory, computed from the plan that the card would run: no GPU is needed, and nothing
// is measured. The command line reaches into the library for it (inside.h), because the public query, sumi_image_memory,
// needs an engine on the card in question.
#ifndef NEEDS_H
#define NEEDS_H
#include "inside.h"

#define NEEDS_FORMATS 5
#define NEEDS_CARDS 5
#define NEEDS_TOKENS 128                           // of a prompt and of a negative prompt, the template included
#define NEEDS_RESERVE_BYTES ((uint64_t)1000000000) // of each card, left to the driver and to other programs

extern const sumi_weight_format needs_formats[NEEDS_FORMATS];
extern const int32_t needs_card_gigabytes[NEEDS_CARDS]; // in units of 2^30 bytes, as cards are sold

typedef struct needs_job {
    int32_t width, height; // pixels
    int32_t token_count[SUMI_MAX_TEXT_ENCODERS], negative_token_count[SUMI_MAX_TEXT_ENCODERS];
    int32_t reference_count;   // up to the model's number; pictures as large as the image
    sumi_preset_values preset; // steps, solver, shift and guidance
    bool is_guided;
} needs_job;

// The job that a model's own preset makes: its steps, its guidance, NEEDS_TOKENS, and a reference if it takes any.
needs_job needs_usual_job(const sumi_network* network, int32_t width, int32_t height);

typedef struct needs_of_limit {
    bool fits;      // at all
    bool tiles_vae; // the picture is decoded in tiles
    uint64_t weight_bytes, other_bytes;
    uint64_t streamed_bytes; // of weights that are copied to the card for each use
    uint64_t step_bytes;     // the part of them that is copied in every step
} needs_of_limit;

typedef struct needs_row {
    sumi_weight_format weights;        // of the transformer; text encoders have what goes with it by default
    needs_of_limit whole;              // without a limit
    needs_of_limit cards[NEEDS_CARDS]; // all but NEEDS_RESERVE_BYTES of each card may be used
} needs_row;

// limits: bytes on the card, for each entry of `out`; 0: none.
sumi_result needs_under_limits(sumi_heap* heap, const sumi_network* network, const needs_job* job,
                               sumi_weight_format weights, const uint64_t* limits, int32_t limit_count,
                               needs_of_limit* out, sumi_error* error);
sumi_result needs_compute(sumi_heap* heap, const sumi_network* network, const needs_job* job,
                          needs_row out_rows[NEEDS_FORMATS], sumi_error* error);

// Counts the transformer's numbers, and what they take in its files, whose headers it reads. Where that fails both are
// 0, and opening the model tells why.
void needs_count_transformer(const sumi_network_desc* desc, uint64_t* out_values, uint64_t* out_bytes);
#endif
