// One image job as one plan: text encoding, captions, start image, denoising, decoding. The engine fills a request, and
// gets a plan and the handles of everything that it writes before the run and reads after it. This file knows no
// family: the network's recipe says which modules write what.
//
//   VISION x1    TEXT x1   IMAGE x1     PREPARE x1   IMAGE x1   DENOISE xE (counter = evaluation)    DECODE x items (counter = item)   TRANSFER x1
//   references   ids       references   captions     start      evaluations with the same guidance   one item's picture                8-bit pixels
//                                       modulation   noise      form one repeated section; a change
//                                       rotary                  of guidance begins a new one;
//                                                                  with caches_steps it may
//                                                                  have an alternative
//
// The tables `times` and `solver` have one row per evaluation. The plan depends only on shapes and on which evaluations
// are guided, so one plan serves every seed, all prompts of the same length, every sigma table and every guidance
// scale.
#ifndef SUMI_MODELS_PIPELINE_H
#define SUMI_MODELS_PIPELINE_H
#include "models/control.h"
#include "models/limits.h"
#include "models/network.h"
#include "sampling/solver.h"

// The structs of a request have no gaps, and each of their members is in a table of jobs/plan_key.c, because plans
// are cached by them.

// A reference picture, in the sizes to which it is resized before it is written.
typedef struct sumi_pipeline_reference {
    // Size for the vision tower, in pixels: multiples of its cell. Unused if all prompts are given, or if prompts do not
    // read references.
    int32_t vision_width, vision_height;
    int32_t width, height; // size for the autoencoder, in pixels: multiples of info.size_multiple
} sumi_pipeline_reference;

typedef struct sumi_pipeline_prompt {
    // Number of tokens without padding, or of rows of given features: sumi_network_feature_rows of the tokens.
    int32_t token_count[SUMI_MAX_TEXT_ENCODERS];
    // The first token of each reference among the ids for text encoder 0, in the request's order. Of given features the
    // first row, if info.prompts_place_references.
    int32_t reference_row[SUMI_MAX_REFERENCES];
    // How many rows of given features each reference has, if info.prompts_place_references. Otherwise 0.
    int32_t reference_rows[SUMI_MAX_REFERENCES];
    bool has_features; // the features were encoded before: write these instead of ids
    bool unused[3];
} sumi_pipeline_prompt;

typedef struct sumi_pipeline_item {
    int32_t positive, negative;
} sumi_pipeline_item; // indices of prompts; negative: -1 if no evaluation is guided

// A control net of a job, with the pictures that it reads. Which of them it can read: sumi_control_net_info.
typedef struct sumi_pipeline_control {
    const sumi_control_net* net; // must outlive the plan
    int32_t picture_count;       // one for each item, or 1 for all items
    bool has_picture;            // reads control_pixels
    bool has_mask;               // reads masked_pixels and control_mask
    bool samples_posterior;      // reads control_eps when it encodes the pictures; otherwise uses the mode
    bool unused[1];
} sumi_pipeline_control;

typedef enum sumi_pipeline_goal {
    SUMI_GOAL_IMAGES,  // a complete image job
    SUMI_GOAL_PROMPTS, // only text encoding: ids in, features out
    SUMI_GOAL_ENCODE   // an image to latents: pixels (and eps) in, clean latents of one item out
} sumi_pipeline_goal;

// The fewest evaluations of a section in which any can be reused: the first two and the last are whole.
#define SUMI_PIPELINE_FEWEST_CACHED 4

typedef struct sumi_pipeline_request {
    const sumi_pipeline_prompt* prompts; // distinct prompts: items with the same text share one
    const sumi_pipeline_item* items;
    // References of all prompts and items. SUMI_GOAL_PROMPTS uses only the vision tower's sizes.
    const sumi_pipeline_reference* references;
    const bool* guided; // for each evaluation: also run the negative prompts. NULL: none
    const sumi_pipeline_control* controls;
    // For each evaluation: bit k is set if controls[k] adds its hints. NULL: all do in every evaluation. Evaluations
    // without any are the same as in a job without control nets.
    const uint8_t* active_controls;
    const sumi_adapter_use* adapters; // of the denoiser; must outlive the plan
    // The same for the text encoders, as many: adapters of text that a job does not encode have no effect. NULL: none.
    const sumi_adapter_use* text_adapters;
    sumi_pipeline_goal goal;
    int32_t prompt_count, item_count, reference_count, adapter_count, control_count;
    // Number of ids with which all prompts that are not given begin, to be computed once: the result of
    // sumi_pipeline_shared, or 0.
    int32_t shared_tokens[SUMI_MAX_TEXT_ENCODERS];
    // Number of rows with which the features of all prompts begin alike, if all are given: up to the end of the last
    // reference. Rows of references need not be alike. 0, or the result of sumi_pipeline_shared_features.
    int32_t shared_feature_rows;
    int32_t width, height;            // pixels, multiples of info.size_multiple
    int32_t evaluation_count;         // rows of the solver table, at least 1
    int32_t tile_latent;              // side of a VAE tile in latents; * info.packing a multiple of 4; 0: no tiles
    sumi_guidance_rule guidance_rule; // MODEL: the network's own
    // for NORM_LIMIT: the norm of the guided prediction is at most this times the positive one's; 0: off
    float norm_limit;
    bool has_base, has_history; // rows of the solver use y, h (sumi_pipeline_needs)
    // Encodes `pixels` and begins at the sigma of the first evaluation, with noise added. False: x is the noise itself.
    bool starts_from_image;
    bool starts_from_latents; // the same with given latents of the start image: write `clean` instead of `pixels`
    bool samples_posterior;   // reads `eps` when it encodes; otherwise uses the mode
    // Blends with the re-noised start image outside of `mask`. Needs starts_from_image or starts_from_latents.
    bool inpaints;
    // The start image is the first reference too, before `references`: the mode of its posterior, or the given latents.
    // It is encoded once. Needs starts_from_image or starts_from_latents.
    bool start_is_reference;
    // Puts the pictures over the start image, by `opacity`. Needs starts_from_image.
    bool composites;
    bool previews; // linear RGB of the estimate of the clean latents at every evaluation
    // Sections of SUMI_PIPELINE_FEWEST_CACHED or more evaluations have an alternative, which reuses most of the last
    // whole evaluation (block_residuals.h).
    bool caches_steps;
    bool long_strips; // sumi_vae_tiling; needs more memory, and changes no bits
    bool unused[1];
} sumi_pipeline_request;

typedef struct sumi_pipeline_rows {
    sumi_value value;
    int32_t row, count;
} sumi_pipeline_rows; // rows [row, row + count) of a bound value

// Bound values; {0} if the request does not use them. "in": the engine writes them before the run. "out": it reads them
// after the run, or during it.
typedef struct sumi_pipeline {
    // in   int32 [tokens, 1], of prompts that are not given: sumi_network_id_rows of them. With shared_tokens: only the
    // last `count` ids; the others are the first such prompt's.
    sumi_pipeline_rows ids[SUMI_MAX_PROMPTS][SUMI_MAX_TEXT_ENCODERS];
    // in   activations [rows, width] of given prompts; out with SUMI_GOAL_PROMPTS
    sumi_pipeline_rows features[SUMI_MAX_PROMPTS][SUMI_MAX_TEXT_ENCODERS];
    // in   float [evaluations, 1]: sumi_network_time of each row's sigma
    sumi_value times;
    // in   float [evaluations, 12]: an array of sumi_solver_row as it is in memory, guidance filled in
    sumi_value solver;
    sumi_value noise; // in   float [items * channels, h * w]; with starts_from_image or starts_from_latents
    sumi_value eps;   // in   float [items * channels, h * w] (SUMI_GOAL_ENCODE: one item); posterior noise
    sumi_value
        pixels; // in   bytes [height * width, C]: the start image, tightly packed; C: the network's picture_channels
    // in   bytes [height * width, 3] of each reference, for the vision tower and for the autoencoder
    sumi_value vision_pixels[SUMI_MAX_REFERENCES], reference_pixels[SUMI_MAX_REFERENCES];
    // in   of each control net and picture: bytes [height * width, 3]; bytes [height * width, 4], the masked picture,
    // whose fourth byte is 0 where it is of the middle grey and 255 elsewhere; float [1, h * w], the mask: 1 = keep;
    // float [channels, h * w], posterior noise
    sumi_value control_pixels[SUMI_MAX_CONTROLS][SUMI_MAX_ITEMS], masked_pixels[SUMI_MAX_CONTROLS][SUMI_MAX_ITEMS],
        control_mask[SUMI_MAX_CONTROLS][SUMI_MAX_ITEMS], control_eps[SUMI_MAX_CONTROLS][SUMI_MAX_ITEMS];
    // in   float [1, controls * strength_width]: of each net its strength, as often as the stream is wide
    sumi_value strengths;
    int32_t strength_width;
    sumi_value control_planes[SUMI_MAX_CONTROLS]; // (not bound; for tests) what the nets read
    sumi_value mask;                              // in   float [1, h * w]: 1 = repaint
    sumi_value opacity; // in   bytes [height * width, 1], with composites: 255 = the new picture, 0 = the start image
    // in   float [items * channels, h * w]: the noise, without a start image. out: the latents after every evaluation
    sumi_value x;
    sumi_value base, history; // out, in  float, same shape, with has_base and has_history: the solver's other states
    // out  float, same shape, with caches_steps: x, base and history before the last whole evaluation of a section with
    // an alternative, and before the one before that
    sumi_value kept_x[2], kept_base[2], kept_history[2];
    // out  float [any, 2], with caches_steps: after a whole evaluation the sums of |prediction - what a reused one would
    // predict| and of |the latter|; all rows together
    sumi_value reuse_error;
    sumi_value clean;    // out  float, same shape: the encoded start image. in with starts_from_latents
    sumi_value velocity; // (not bound; for tests) d x / d sigma after guidance
    // out  float [items * 3, pixels] in [-1, 1], new after every evaluation: a preview, or what becomes one when each
    // pixel is info.preview_scale pixels high and wide
    sumi_value preview;
    sumi_value picture; // out  activations [items * H * W, C]: decoder output, nominal range [-1, 1]
    sumi_value bytes;   // out  bytes [items * H * W, C]
    // out  int [1, 1]: number of values of the picture that are not finite; the plan sets it to zero first
    sumi_value not_finite;
    int32_t latent_height, latent_width;
} sumi_pipeline;

// How many ids a text encoder computes only once, if all prompts that are not given begin with them: up to the end of
// the last picture, or the part of the template whose features are not passed on. It depends only on numbers of tokens,
// so that plans do not depend on the words of a prompt. 0: sharing does not pay, or this encoder cannot share.
int32_t sumi_pipeline_shared(const sumi_network* network, const sumi_pipeline_request* request, int32_t encoder);

// How many rows of given features a denoiser computes only once, if the features of all prompts begin alike: up to the
// end of the last reference. It depends only on numbers of rows. 0: sharing saves nothing, or not all prompts are given.
int32_t sumi_pipeline_shared_features(const sumi_network* network, const sumi_pipeline_request* request);

// Leaves the first `count` references of a request, as if its prompts had been read without the others: `prompts`, which
// has room for all, becomes its list. A few tokens that the template has around each picture stay, and so do the rows of
// given features of a model that does not say where references stand: the plan is then larger than that of such a job.
void sumi_pipeline_keep_references(const sumi_network* network, sumi_pipeline_request* request, int32_t count,
                                   sumi_pipeline_prompt* prompts);

// How much of the distance of two whole evaluations a reused one extrapolates at most (sumi_extrapolation).
float sumi_pipeline_most_ahead(bool guides);

// Whether rows of a solver read the base y or the history h.
void sumi_pipeline_needs(const sumi_solver_row* rows, int32_t count, bool* out_base, bool* out_history);

// Checks the request against the network, writes the plan, which the caller has begun, and finishes it. On failure the
// caller still ends the plan.
sumi_result sumi_pipeline_write(const sumi_network* network, const sumi_pipeline_request* request, sumi_plan* plan,
                                sumi_pipeline* out_pipeline, sumi_error* error);
// The same without the VAE decoder: the product is the latents (`x`). For tests, which compare a denoiser with its
// reference; computes_unused_rows as in sumi_denoising.
sumi_result sumi_pipeline_write_latents(const sumi_network* network, const sumi_pipeline_request* request,
                                        bool computes_unused_rows, sumi_plan* plan, sumi_pipeline* out_pipeline,
                                        sumi_error* error);
#endif
