// One job as one plan: text, captions, start image, denoising, decoding. The engine fills a request, gets a plan and
// the handles of everything it writes before the run and reads after it. Nothing here knows a family: the network's
// recipe says which parts write what.
//
//   VISION x1    TEXT x1   IMAGE x1     PREPARE x1   IMAGE x1   DENOISE xE (counter = evaluation)    DECODE x items (counter = item)   TRANSFER x1
//   references   ids       references   captions     start      evaluations with the same guidance   one item's picture                8-bit pixels
//                                       modulation   noise      form one repeated section; a change
//                                       rotary                  of guidance begins a new one
//
// The tables `times` and `solver` have one row per evaluation; the plan depends only on shapes and on which evaluations
// are guided, so one plan serves every seed, prompt of the same length, sigma table and guidance scale.
#ifndef SUMI_MODELS_PIPELINE_H
#define SUMI_MODELS_PIPELINE_H
#include "models/limits.h"
#include "models/network.h"
#include "sampling/solver.h"

// The structs of a request have no gaps, and each of their members is in a table of engine/plan_key.c: a plan is cached
// by them.

// A picture that a job refers to, in the sizes that it is resized to before it is written.
typedef struct sumi_pipeline_reference {
    // As the vision tower sees it, in pixels: multiples of its cell. Of no use when all prompts are given.
    int32_t vision_width, vision_height;
    int32_t width, height; // as the autoencoder sees it, in pixels: multiples of info.size_multiple
} sumi_pipeline_reference;

typedef struct sumi_pipeline_prompt {
    // ids, or rows of the given features: sumi_network_feature_rows of the ids
    int32_t token_count[SUMI_MAX_TEXT_ENCODERS];
    // Of ids for text encoder 0: where the tokens of each reference begin, in the request's order.
    int32_t picture_row[SUMI_MAX_REFERENCES];
    bool given; // features were encoded before: write them instead of ids
    bool unused[3];
} sumi_pipeline_prompt;

typedef struct sumi_pipeline_item {
    int32_t positive, negative;
} sumi_pipeline_item; // indices of prompts. negative: -1 when no evaluation is guided

typedef enum sumi_pipeline_goal {
    SUMI_GOAL_IMAGES,  // the whole way
    SUMI_GOAL_PROMPTS, // text encoding alone: ids in, features out
    SUMI_GOAL_ENCODE   // an image to latents: pixels (and eps) in, clean latents of one item out
} sumi_pipeline_goal;

typedef struct sumi_pipeline_request {
    const sumi_pipeline_prompt* prompts; // distinct prompts: items with the same text share one
    const sumi_pipeline_item* items;
    // What all prompts and items refer to. SUMI_GOAL_PROMPTS uses the vision tower's sizes alone.
    const sumi_pipeline_reference* references;
    const bool* guided;               // one per evaluation: also run the negative prompts. NULL: none
    const sumi_adapter_use* adapters; // must outlive the plan
    sumi_pipeline_goal goal;
    int32_t prompt_count, item_count, reference_count, adapter_count;
    // Ids that all prompts which are not given begin with, to be computed once: what sumi_pipeline_shared says, or 0.
    int32_t shared_tokens[SUMI_MAX_TEXT_ENCODERS];
    int32_t width, height;            // pixels, multiples of info.size_multiple
    int32_t evaluation_count;         // rows of the solver table, at least 1
    int32_t tile_latent;              // side of a VAE tile in latents, a multiple of 4; 0: whole pictures
    sumi_guidance_rule guidance_rule; // MODEL: the network's own
    float norm_limit; // of NORM_LIMIT: the guided prediction's norm is at most this times the positive one's; 0: off
    bool has_base, has_history; // the solver's rows use y, h (see sumi_pipeline_needs)
    // encode `pixels` and begin at sigma = first evaluation's with noise added; otherwise x is the noise itself
    bool starts_from_image;
    bool starts_from_latents; // the same with the start's latents given: write `clean` instead of `pixels`
    bool samples_posterior;   // read `eps` when encoding; otherwise the mode
    // blend with the re-noised start image outside `mask`; needs starts_from_image or starts_from_latents
    bool inpaints;
    // pictures are put over the start image, by `opacity`; needs starts_from_image
    bool composites;
    bool previews;       // linear RGB of the clean estimate at every evaluation
    bool without_decode; // latents are the product
    bool unused[3];
} sumi_pipeline_request;

typedef struct sumi_pipeline_rows {
    sumi_value value;
    int32_t row, count;
} sumi_pipeline_rows; // rows [row, row + count) of a bound value

// Bound values; {0} when the request has no use for them. "in": the engine writes before the run. "out": it reads after
// (or during) it.
typedef struct sumi_pipeline {
    // in   int32 [tokens, 1], prompts that are not given; its last `count` ids where shared_tokens says that the others
    // are the first such prompt's
    sumi_pipeline_rows ids[SUMI_MAX_PROMPTS][SUMI_MAX_TEXT_ENCODERS];
    // in   activations [rows, width] of given prompts; out with SUMI_GOAL_PROMPTS
    sumi_pipeline_rows features[SUMI_MAX_PROMPTS][SUMI_MAX_TEXT_ENCODERS];
    // in   float [evaluations, 1]: sumi_network_time of each row's sigma
    sumi_value times;
    // in   float [evaluations, 12]: the array of sumi_solver_row as it is in memory, guidance filled in
    sumi_value solver;
    sumi_value noise;  // in   float [items * channels, h * w]; with starts_from_image or starts_from_latents
    sumi_value eps;    // in   float [items * channels, h * w] (SUMI_GOAL_ENCODE: one item); posterior noise
    sumi_value pixels; // in   bytes [height * width, 3]: the start image, tightly packed RGB
    // in   bytes [height * width, 3] of each reference, for the vision tower and for the autoencoder
    sumi_value vision_pixels[SUMI_MAX_REFERENCES], reference_pixels[SUMI_MAX_REFERENCES];
    sumi_value mask;    // in   float [1, h * w]: 1 = repaint
    sumi_value opacity; // in   bytes [height * width, 1], with composites: 255 = what is made, 0 = the start image
    // in   float [items * channels, h * w]: the noise, when there is no start. out: the latents after every evaluation
    sumi_value x;
    sumi_value base, history; // out, in  float, same shape, with has_base and has_history: the solver's other states
    sumi_value clean;         // out  float, same shape: the encoded start image. in with starts_from_latents
    sumi_value velocity;      // (not bound; for tests) d x / d sigma after guidance
    sumi_value preview;       // out  float [items * 3, h * w] in [-1, 1], new after every evaluation
    sumi_value picture;       // out  activations [items * H * W, 3]: decoder output, nominal range [-1, 1]
    sumi_value bytes;         // out  bytes [items * H * W, 3]
    sumi_value not_finite; // out  int [1, 1]: how many values of the picture are not finite; zeroed by the plan itself
    int32_t latent_height, latent_width;
} sumi_pipeline;

// How many ids a text encoder computes once where all prompts that are not given begin with them: up to the last
// picture's end, or what of the template is not handed on. It depends on the counts alone, so that plans do not differ
// with the words of a prompt. 0: it does not pay, or this encoder cannot.
int32_t sumi_pipeline_shared(const sumi_network* network, const sumi_pipeline_request* request, int32_t encoder);

// Whether a solver's rows read the base y or the history h.
void sumi_pipeline_needs(const sumi_solver_row* rows, int32_t count, bool* out_base, bool* out_history);

// Checks the request against the network, writes the plan (which the caller has begun) and finishes it. On failure the
// caller still ends the plan.
sumi_result sumi_pipeline_write(const sumi_network* network, const sumi_pipeline_request* request, sumi_plan* plan,
                                sumi_pipeline* out_pipeline, sumi_error* error);
// The same with the rows that nothing reads (sumi_denoising.every_row), for tests that compare all of them with the
// reference's.
sumi_result sumi_pipeline_write_every_row(const sumi_network* network, const sumi_pipeline_request* request,
                                          sumi_plan* plan, sumi_pipeline* out_pipeline, sumi_error* error);
#endif
