#include "models/pipeline.h"
#include "base/assert.h"
#include "models/control_module.h"
#include "models/network_modules.h"
#include "models/network_state.h"
#include <stddef.h>
#include <string.h>

#define MAX_EVALUATIONS 4096
#define SIGMA_COLUMN 8 // of sumi_solver_row
#define GUIDANCE_COLUMN 10
#define SOLVER_COLUMNS 12
#define MAX_FEATURE_ROWS 65536
// How far residuals are extrapolated (block_residuals.h). Guidance multiplies the difference of two predictions, and
// with it their errors. bench.md has results for other numbers.
#define MOST_AHEAD 0.5f
#define MOST_AHEAD_GUIDED 0.25f

_Static_assert(sizeof(sumi_solver_row) == SOLVER_COLUMNS * sizeof(float),
               "the solver table is the rows as they are in memory");
_Static_assert(offsetof(sumi_solver_row, sigma) == SIGMA_COLUMN * sizeof(float)
                   && offsetof(sumi_solver_row, guidance) == GUIDANCE_COLUMN * sizeof(float),
               "columns of the solver table");

float sumi_pipeline_most_ahead(bool guides) { return guides ? MOST_AHEAD_GUIDED : MOST_AHEAD; }

void sumi_pipeline_needs(const sumi_solver_row* rows, int32_t count, bool* out_base, bool* out_history)
{
    *out_base = *out_history = false;
    for (int32_t i = 0; i < count; i++) {
        *out_base = *out_base || rows[i].cy != 0.0f;
        *out_history =
            *out_history || rows[i].ch != 0.0f || rows[i].hx != 0.0f || rows[i].hv != 0.0f || rows[i].hh != 0.0f;
    }
}

// ---- Checks ---------------------------------------------------------------------------------------------------------

static sumi_result check_prompts(const sumi_network* network, const sumi_pipeline_request* r, sumi_error* error)
{
    const sumi_network_info* info = &network->info;
    if (r->goal == SUMI_GOAL_ENCODE) return SUMI_OK;
    if (r->prompt_count < 1 || r->prompt_count > SUMI_MAX_PROMPTS) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "a job takes 1 to %d distinct prompts, not %d", SUMI_MAX_PROMPTS,
                         (int)r->prompt_count);
    }
    for (int32_t p = 0; p < r->prompt_count; p++) {
        for (int32_t e = 0; e < info->text_encoder_count; e++) {
            const bool has_features = r->prompts[p].has_features;
            const int32_t count = r->prompts[p].token_count[e],
                          min_count = has_features ? 1 : info->min_prompt_tokens[e],
                          padded_tokens = network->recipe->encoders[e].prompt.padded_tokens,
                          max_count = has_features && info->is_pooled[e] ? 1
                                    : has_features || padded_tokens == 0 ? MAX_FEATURE_ROWS
                                                                         : padded_tokens;
            if (count < min_count || count > max_count) {
                return sumi_fail(error, SUMI_INVALID_ARGUMENT, "prompt %d has %d tokens; %d to %d are possible", (int)p,
                                 (int)count, (int)min_count, (int)max_count);
            }
        }
        if (!r->prompts[p].has_features && !info->has_text_encoder) {
            return sumi_fail(error, SUMI_NOT_SUPPORTED,
                             "the model was opened without a text encoder; open it with text_encoder_path and "
                             "tokenizer_path, or use prompts encoded before");
        }
    }
    return SUMI_OK;
}

static sumi_result check_request_size(const sumi_network_info* info, const sumi_pipeline_request* r, bool decodes,
                                      sumi_error* error)
{
    int32_t multiple = info->size_multiple;
    if (r->width < multiple || r->height < multiple || r->width % multiple != 0 || r->height % multiple != 0
        || r->width > info->max_side || r->height > info->max_side) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "an image of %d x %d is not possible: width and height are multiples of %d up to %d",
                         (int)r->width, (int)r->height, (int)multiple, (int)info->max_side);
    }
    bool encodes = r->goal == SUMI_GOAL_ENCODE || r->starts_from_image;
    if ((encodes && !info->has_vae_encoder) || (decodes && !info->has_vae_decoder)) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "the model was opened without a VAE %s; open it with vae_path",
                         encodes && !info->has_vae_encoder ? "encoder" : "decoder");
    }
    if (r->tile_latent < 0 || r->tile_latent * info->packing % 4 != 0) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "a VAE tile of %d latents is not a multiple of %d",
                         (int)r->tile_latent, 4 / (int)info->packing);
    }
    return SUMI_OK;
}

static sumi_result check_request_items(const sumi_network_info* info, const sumi_pipeline_request* r, sumi_error* error)
{
    if (r->item_count < 1 || r->item_count > SUMI_MAX_ITEMS
        || (int64_t)r->item_count * r->width * r->height > INT32_MAX / 4) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "%d images of %d x %d are too many for one job; the most are %d images and 536 million pixels",
                         (int)r->item_count, (int)r->width, (int)r->height, SUMI_MAX_ITEMS);
    }
    if (r->evaluation_count < 1 || r->evaluation_count > MAX_EVALUATIONS) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "%d evaluations are not possible; 1 to %d are",
                         (int)r->evaluation_count, MAX_EVALUATIONS);
    }
    bool guides = false;
    for (int32_t e = 0; r->guided != NULL && e < r->evaluation_count; e++) guides = guides || r->guided[e];
    for (int32_t i = 0; i < r->item_count; i++) {
        if (r->items[i].positive < 0 || r->items[i].positive >= r->prompt_count
            || r->items[i].negative >= r->prompt_count || (guides && r->items[i].negative < 0)) {
            return sumi_fail(
                error, SUMI_INVALID_ARGUMENT,
                "image %d refers to a prompt that does not exist, or has no negative prompt although guidance is on",
                (int)i);
        }
    }
    if (r->inpaints && !r->starts_from_image && !r->starts_from_latents)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "inpainting needs a start image");
    if (r->composites && !r->starts_from_image)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "compositing needs a start image");
    if (r->start_is_reference && !r->starts_from_image && !r->starts_from_latents)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "a start image that is a reference needs a start image");
    if (r->start_is_reference && info->max_references == 0)
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "a start image cannot be a reference: this %s model takes none",
                         info->family);
    if (r->starts_from_image && r->starts_from_latents)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "a job starts from an image or from latents, not from both");
    if (r->previews && info->preview == NULL) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "previews are not supported for latents of %d channels",
                         (int)info->latent_channels);
    }
    return SUMI_OK;
}

// Sharing pays only if it saves at least one in this many rows of a text encoder, because it needs extra ops.
#define MAX_ROWS_PER_SAVED_ROW 5

// ---- Sections -------------------------------------------------------------------------------------------------------

// Whether any prompt still has to be encoded.
static bool encodes_text(const sumi_pipeline_request* r)
{
    bool encodes = false;
    for (int32_t p = 0; p < r->prompt_count; p++) encodes = encodes || !r->prompts[p].has_features;
    return encodes;
}

// Whether the vision tower runs: references are part of the prompts, and a prompt has to be encoded.
static bool sees_references(const sumi_network* network, const sumi_pipeline_request* r)
{
    return network->info.prompts_read_references && r->reference_count > 0 && encodes_text(r);
}

int32_t sumi_pipeline_shared(const sumi_network* network, const sumi_pipeline_request* request, int32_t encoder)
{
    const sumi_recipe_encoder* recipe = &network->recipe->encoders[encoder];
    int32_t shared = network->encoders[encoder].dropped_rows, prompts = 0;
    int64_t rows = 0;
    if (!recipe->module->properties(network->encoders[encoder].model).shares_beginning) return 0;
    if (recipe->prompt.padded_tokens > 0) return 0; // sumi_text_batch
    const int32_t pictures = encoder == 0 && network->info.prompts_read_references ? request->reference_count : 0;
    if (pictures > 0 && network->vision == NULL) return 0; // refused in any case
    const sumi_pipeline_prompt* first = NULL;
    for (int32_t p = 0; p < request->prompt_count; p++) {
        const sumi_pipeline_prompt* prompt = &request->prompts[p];
        if (prompt->has_features) continue;
        first = first == NULL ? prompt : first;
        prompts++;
        rows += prompt->token_count[encoder];
    }
    for (int32_t i = 0; i < pictures && first != NULL; i++) {
        const int32_t cell = network->recipe->vision->properties(network->vision).cell;
        const sumi_pipeline_reference* reference = &request->references[i];
        const int32_t end =
            first->reference_row[i] + reference->vision_height / cell * (reference->vision_width / cell);
        shared = end > shared ? end : shared;
    }
    for (int32_t p = 0; p < request->prompt_count; p++) {
        const sumi_pipeline_prompt* prompt = &request->prompts[p];
        if (prompt->has_features) continue;
        if (prompt->token_count[encoder] <= shared) return 0;
        for (int32_t i = 0; i < pictures; i++) {
            if (prompt->reference_row[i] != first->reference_row[i]) return 0;
        }
    }
    return prompts > 1 && (int64_t)shared * (prompts - 1) * MAX_ROWS_PER_SAVED_ROW >= rows ? shared : 0;
}

int32_t sumi_pipeline_shared_features(const sumi_network* network, const sumi_pipeline_request* request)
{
    const sumi_pipeline_prompt* first = request->prompts;
    const int32_t last = request->reference_count - 1;
    if (!network->info.prompts_place_references || request->prompt_count < 2 || last < 0) return 0;
    for (int32_t p = 0; p < request->prompt_count; p++) {
        const sumi_pipeline_prompt* prompt = &request->prompts[p];
        if (!prompt->has_features
            || memcmp(prompt->reference_row, first->reference_row, sizeof first->reference_row) != 0
            || memcmp(prompt->reference_rows, first->reference_rows, sizeof first->reference_rows) != 0)
            return 0;
    }
    return first->reference_row[last] + first->reference_rows[last];
}

void sumi_pipeline_keep_references(const sumi_network* network, sumi_pipeline_request* request, int32_t count,
                                   sumi_pipeline_prompt* prompts)
{
    SUMI_ASSERT(count >= 0 && count <= request->reference_count);
    const bool are_read = network->info.prompts_read_references && network->vision != NULL;
    const int32_t cell = are_read ? network->recipe->vision->properties(network->vision).cell : 1;
    for (int32_t p = 0; p < request->prompt_count; p++) {
        prompts[p] = request->prompts[p];
        for (int32_t i = count; i < request->reference_count; i++) {
            const sumi_pipeline_reference* reference = &request->references[i];
            if (prompts[p].has_features) prompts[p].token_count[0] -= prompts[p].reference_rows[i];
            else if (are_read)
                prompts[p].token_count[0] -= reference->vision_height / cell * (reference->vision_width / cell);
            prompts[p].reference_row[i] = prompts[p].reference_rows[i] = 0;
        }
        SUMI_ASSERT(prompts[p].token_count[0] > 0);
    }
    request->prompts = prompts;
    request->reference_count = count;
    // What all begin with is now shorter, and is still the same in all.
    for (int32_t e = 0; e < network->info.text_encoder_count; e++) {
        if (request->shared_tokens[e] > 0) request->shared_tokens[e] = sumi_pipeline_shared(network, request, e);
    }
    if (request->shared_feature_rows > 0)
        request->shared_feature_rows = sumi_pipeline_shared_features(network, request);
}

// The rows of a prompt's features at which a reference stands. The request has passed its checks.
static sumi_span reference_span(const sumi_network* network, const sumi_pipeline_request* r, int32_t prompt,
                                int32_t reference)
{
    const sumi_pipeline_prompt* p = &r->prompts[prompt];
    if (p->has_features) return (sumi_span){p->reference_row[reference], p->reference_rows[reference]};
    const int32_t cell = network->recipe->vision->properties(network->vision).cell;
    const sumi_pipeline_reference* size = &r->references[reference];
    return (sumi_span){sumi_network_feature_row(network, 0, p->reference_row[reference]),
                       size->vision_height / cell * (size->vision_width / cell)};
}

// Whether every reference has rows in the features of every prompt, one reference after the other.
static sumi_result check_places(const sumi_network* network, const sumi_pipeline_request* r, sumi_error* error)
{
    for (int32_t p = 0; p < r->prompt_count && network->info.prompts_place_references; p++) {
        const sumi_pipeline_prompt* prompt = &r->prompts[p];
        const int32_t rows = prompt->has_features ? prompt->token_count[0]
                                                  : sumi_network_feature_rows(network, 0, prompt->token_count[0]);
        for (int32_t i = 0, after = 0; i < r->reference_count; i++) {
            const sumi_span span = reference_span(network, r, p, i);
            if (span.begin < after || span.count < 1 || span.count > rows - span.begin) {
                return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                                 "reference %d has no rows in the features of prompt %d: encode the prompt with the "
                                 "references of the job",
                                 (int)i, (int)p);
            }
            after = span.begin + span.count;
        }
    }
    return SUMI_OK;
}

static bool is_size_good(int32_t width, int32_t height, int32_t multiple, int32_t max_side)
{
    return width >= multiple && height >= multiple && width % multiple == 0 && height % multiple == 0
        && width <= max_side && height <= max_side;
}

static sumi_result check_request_references(const sumi_network* network, const sumi_pipeline_request* r,
                                            sumi_error* error)
{
    const sumi_network_info* info = &network->info;
    if (r->reference_count == 0) return SUMI_OK;
    if (r->reference_count < 0 || r->reference_count > info->max_references) {
        return sumi_fail(error, info->max_references > 0 ? SUMI_INVALID_ARGUMENT : SUMI_NOT_SUPPORTED,
                         "%d references are not possible: this %s model takes %d", (int)r->reference_count,
                         info->family, (int)info->max_references);
    }
    const bool sees = sees_references(network, r), reads = r->goal == SUMI_GOAL_IMAGES;
    if (sees && network->vision == NULL) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "the model was opened without a vision tower, so prompts with references cannot be encoded; "
                         "open it with text_encoder_path or vision_path, or use prompts encoded before");
    }
    if (reads && !info->has_vae_encoder) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "the model was opened without a VAE encoder, which references need; open it with vae_path");
    }
    const int32_t cell = sees ? network->recipe->vision->properties(network->vision).cell : 1;
    for (int32_t i = 0; i < r->reference_count; i++) {
        const sumi_pipeline_reference* reference = &r->references[i];
        if ((sees && !is_size_good(reference->vision_width, reference->vision_height, cell, info->max_side))
            || (reads && !is_size_good(reference->width, reference->height, info->size_multiple, info->max_side))) {
            return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                             "reference %d is %d x %d pixels for the vision tower and %d x %d for the VAE; sizes are "
                             "multiples of %d and of %d, up to %d",
                             (int)i, (int)reference->vision_width, (int)reference->vision_height, (int)reference->width,
                             (int)reference->height, (int)cell, (int)info->size_multiple, (int)info->max_side);
        }
    }
    return reads ? check_places(network, r, error) : SUMI_OK;
}

static sumi_result check_request_controls(const sumi_network_info* info, const sumi_pipeline_request* r,
                                          sumi_error* error)
{
    if (r->control_count < 0 || r->control_count > SUMI_MAX_CONTROLS) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "%d control nets are not possible; up to %d are",
                         (int)r->control_count, SUMI_MAX_CONTROLS);
    }
    for (int32_t i = 0; i < r->control_count; i++) {
        const sumi_pipeline_control* control = &r->controls[i];
        const sumi_control_net_info* net = sumi_control_net_get_info(control->net);
        if (control->picture_count != 1 && control->picture_count != r->item_count) {
            return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                             "control net %d has %d pictures; give one for all images, or one for each of %d", (int)i,
                             (int)control->picture_count, (int)r->item_count);
        }
        const bool reads_picture = net->planes != SUMI_PLANES_MASKED_MASK,
                   reads_mask = net->planes != SUMI_PLANES_PICTURE, needs_mask = net->planes == SUMI_PLANES_MASKED_MASK;
        if ((control->has_picture && !reads_picture) || (control->has_mask && !reads_mask)
            || (needs_mask && !control->has_mask) || (!control->has_picture && !control->has_mask)) {
            return sumi_fail(error, SUMI_INVALID_ARGUMENT, "control net %d (%s) reads %s", (int)i, net->kind,
                             needs_mask   ? "an image to inpaint with its mask, and nothing else"
                             : reads_mask ? "a control picture, an image to inpaint with its mask, or both"
                                          : "a control picture, and no image to inpaint");
        }
        if (!info->has_vae_encoder) {
            return sumi_fail(error, SUMI_NOT_SUPPORTED,
                             "the model was opened without a VAE encoder, which control pictures need; open it with "
                             "vae_path");
        }
    }
    return SUMI_OK;
}

static sumi_result check_shared(const sumi_network* network, const sumi_pipeline_request* r, sumi_error* error)
{
    if (r->shared_feature_rows != 0 && r->shared_feature_rows != sumi_pipeline_shared_features(network, r))
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "prompts cannot share %d rows of features",
                         (int)r->shared_feature_rows);
    for (int32_t e = 0; e < SUMI_MAX_TEXT_ENCODERS; e++) {
        const int32_t shared = r->shared_tokens[e];
        if (shared == 0 || (e < network->info.text_encoder_count && shared == sumi_pipeline_shared(network, r, e)))
            continue;
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "prompts cannot share %d tokens of text encoder %d", (int)shared,
                         (int)e);
    }
    return SUMI_OK;
}

typedef struct writer {
    const sumi_network* network;
    const sumi_network_info* info;
    const sumi_pipeline_request* r;
    sumi_plan* plan;
    sumi_pipeline* out;
    bool decodes; // ends with the VAE decoder
    sumi_prompt_features features[SUMI_MAX_PROMPTS];
    sumi_text_picture pictures[SUMI_MAX_PROMPTS * SUMI_MAX_REFERENCES];
    sumi_vision_rows vision_rows[SUMI_MAX_REFERENCES]; // which take the place of tokens in prompts
    sumi_reference_latents references[SUMI_MAX_REFERENCE_LATENTS];
    int32_t reference_count; // of those whose latents were written
    sumi_planned_control controls[SUMI_MAX_CONTROLS];
    char* control_states; // one after the other
    sumi_denoising denoising;
    sumi_evaluation evaluation_lists[2][2 * SUMI_MAX_ITEMS]; // 0: positive prompts; 1: positive, then negative
    int32_t positive[SUMI_MAX_ITEMS], negative[SUMI_MAX_ITEMS];
    // sumi_extrapolation.whole_sigmas of reused and of whole evaluations
    sumi_value whole_sigmas, earlier_sigmas;
    sumi_value no_residual; // float, of the size of x: zeros
} writer;

// Makes the result of an op readable after the run.
static void make_bound(sumi_plan* plan, sumi_value value)
{
    if (value.id > 0 && (size_t)value.id <= plan->value_count) plan->values[value.id - 1].bound = true;
}

static sumi_step_row solver_column(const writer* w, int32_t column, bool per_step)
{
    SUMI_ASSERT(column >= 0 && column < SOLVER_COLUMNS);
    return (sumi_step_row){w->out->solver, column, per_step};
}

// Runs every reference through the vision tower, once for all prompts.
static void write_vision(writer* w)
{
    const sumi_pipeline_request* r = w->r;
    if (!sees_references(w->network, r)) return;
    sumi_plan_section(w->plan, SUMI_SECTION_VISION, 1, 0);
    for (int32_t i = 0; i < r->reference_count; i++) {
        const sumi_pipeline_reference* reference = &r->references[i];
        w->out->vision_pixels[i] = sumi_plan_bound(w->plan, "vision_pixels", SUMI_ELEMENT_BYTE,
                                                   reference->vision_height * reference->vision_width, 3);
        w->vision_rows[i] = w->network->recipe->vision->write(w->network->vision, w->plan, w->out->vision_pixels[i],
                                                              reference->vision_height, reference->vision_width);
    }
}

// Lists the positions of the references' rows among the tokens of all prompts that are encoded.
static int32_t list_pictures(writer* w, const int32_t* first_id)
{
    const sumi_pipeline_request* r = w->r;
    int32_t count = 0;
    if (!sees_references(w->network, r)) return 0;
    const sumi_vision_properties tower = w->network->recipe->vision->properties(w->network->vision);
    for (int32_t p = 0; p < r->prompt_count && (count == 0 || r->shared_tokens[0] == 0); p++) {
        for (int32_t i = 0; i < r->reference_count && !r->prompts[p].has_features; i++) {
            sumi_text_picture* picture = &w->pictures[count++];
            *picture = (sumi_text_picture){.row = first_id[p] + r->prompts[p].reference_row[i],
                                           .grid_height = r->references[i].vision_height / tower.cell,
                                           .grid_width = r->references[i].vision_width / tower.cell,
                                           .value = w->vision_rows[i].value,
                                           .deep_count = tower.deep_count};
            memcpy(picture->deep, w->vision_rows[i].deep, sizeof picture->deep);
        }
    }
    return count;
}

// Joins the features of a prompt whose beginning is another prompt's.
static sumi_value join_features(const writer* w, int32_t encoder, sumi_value features, int32_t first_row, int32_t count)
{
    const int32_t dropped = w->network->encoders[encoder].dropped_rows,
                  shared_rows = w->r->shared_tokens[encoder] - dropped;
    SUMI_ASSERT(shared_rows > 0 && shared_rows < count);
    sumi_value joined =
        sumi_plan_value(w->plan, "joined_features", SUMI_ELEMENT_ACTIVATION, count, w->info->feature_width[encoder]);
    sumi_plan_copy_rows(w->plan,
                        &(sumi_plan_copy_args){.x = features, .x_row = dropped, .y = joined, .rows = shared_rows});
    sumi_plan_copy_rows(
        w->plan,
        &(sumi_plan_copy_args){
            .x = features, .x_row = first_row, .y = joined, .y_row = shared_rows, .rows = count - shared_rows});
    return joined;
}

// All prompts that are encoded go through an encoder together, so that its weights are read once. Each prompt is a
// separate sequence; a beginning that all share is computed once, as rows of the first prompt.
static void write_text(writer* w)
{
    const sumi_pipeline_request* r = w->r;
    for (int32_t e = 0; e < w->info->text_encoder_count; e++) {
        int32_t counts[SUMI_MAX_PROMPTS], first_id[SUMI_MAX_PROMPTS], skipped[SUMI_MAX_PROMPTS], encoded = 0, rows = 0;
        for (int32_t p = 0; p < r->prompt_count; p++) {
            int32_t count = r->prompts[p].token_count[e];
            w->features[p].row[e] = 0;
            if (r->prompts[p].has_features) {
                w->features[p].count[e] = count;
                w->features[p].value[e] =
                    sumi_plan_bound(w->plan, "features", SUMI_ELEMENT_ACTIVATION, count, w->info->feature_width[e]);
                w->out->features[p][e] = (sumi_pipeline_rows){w->features[p].value[e], 0, count};
            } else {
                // features of the template's beginning are not passed on
                w->features[p].count[e] = sumi_network_feature_rows(w->network, e, count);
                w->features[p].row[e] = w->info->is_pooled[e] ? encoded : rows + w->network->encoders[e].dropped_rows;
                first_id[p] = rows;
                skipped[p] = encoded > 0 ? r->shared_tokens[e] : 0;
                w->features[p].row[e] -= skipped[p];
                counts[encoded++] = count;
                rows += sumi_network_id_rows(w->network, e, count) - skipped[p];
            }
        }
        if (encoded == 0) continue;
        sumi_plan_section(w->plan, SUMI_SECTION_TEXT, 1, 0);
        sumi_value ids = sumi_plan_bound(w->plan, "ids", SUMI_ELEMENT_INT, rows, 1);
        sumi_value features = w->network->recipe->encoders[e].module->write(
            w->network->encoders[e].model, w->plan,
            &(sumi_text_batch){.ids = ids,
                               .counts = counts,
                               .prompt_count = encoded,
                               .padded_rows = w->network->recipe->encoders[e].prompt.padded_tokens,
                               .shared = encoded > 1 ? r->shared_tokens[e] : 0,
                               .pictures = w->pictures,
                               .picture_count = e == 0 ? list_pictures(w, first_id) : 0});
        if (r->goal == SUMI_GOAL_PROMPTS) make_bound(w->plan, features);
        for (int32_t p = 0; p < r->prompt_count; p++) {
            if (!r->prompts[p].has_features) {
                const int32_t id_count = sumi_network_id_rows(w->network, e, r->prompts[p].token_count[e]) - skipped[p];
                w->features[p].value[e] = features;
                w->out->ids[p][e] = (sumi_pipeline_rows){ids, first_id[p], id_count};
                // some of its features are rows of the first prompt
                if (skipped[p] > 0 && w->features[p].row[e] < first_id[p]) {
                    w->features[p].value[e] = join_features(w, e, features, first_id[p], w->features[p].count[e]);
                    w->features[p].row[e] = 0;
                    if (r->goal == SUMI_GOAL_PROMPTS) make_bound(w->plan, w->features[p].value[e]);
                }
                if (r->goal == SUMI_GOAL_PROMPTS) {
                    w->out->features[p][e] =
                        (sumi_pipeline_rows){w->features[p].value[e], w->features[p].row[e], w->features[p].count[e]};
                }
            }
        }
    }
}

// Finds the places of references in the features of all prompts, for denoisers that put them there, and with how many
// rows all prompts begin alike.
static void place_references(writer* w)
{
    const sumi_pipeline_request* r = w->r;
    bool encodes_all = true;
    if (!w->info->prompts_place_references) return;
    for (int32_t p = 0; p < r->prompt_count; p++) {
        encodes_all = encodes_all && !r->prompts[p].has_features;
        for (int32_t i = 0; i < r->reference_count; i++)
            w->features[p].references[i] = reference_span(w->network, r, p, i);
    }
    const int32_t shared = sumi_network_feature_row(w->network, 0, r->shared_tokens[0]);
    w->denoising.shared_rows = encodes_all && shared > 0 ? shared : r->shared_feature_rows;
}

static sumi_vae_tiling tiling_of(const writer* w)
{
    sumi_vae_tiling tiling = w->network->recipe->autoencoder->tiling(w->network->autoencoder);
    tiling.long_strips = w->r->long_strips;
    return tiling;
}

// Encodes every reference to clean latents, the mode of its posterior.
static void write_references(writer* w)
{
    const sumi_pipeline_request* r = w->r;
    if (r->reference_count == 0) return;
    SUMI_ASSERT(w->reference_count <= 1 && r->reference_count <= SUMI_MAX_REFERENCES
                && w->network->autoencoder != NULL);
    const sumi_vae_tiling tiling = tiling_of(w);
    sumi_plan_section(w->plan, SUMI_SECTION_IMAGE, 1, 0);
    for (int32_t i = 0; i < r->reference_count; i++) {
        const sumi_pipeline_reference* reference = &r->references[i];
        sumi_reference_latents* into = &w->references[w->reference_count++];
        into->height = reference->height / w->info->vae_factor;
        into->width = reference->width / w->info->vae_factor;
        w->out->reference_pixels[i] = sumi_plan_bound(w->plan, "reference_pixels", SUMI_ELEMENT_BYTE,
                                                      reference->height * reference->width, tiling.picture_channels);
        const sumi_tile_source pixels = {w->out->reference_pixels[i], reference->height, reference->width};
        const sumi_value moments = sumi_vae_tiles_encode(&tiling, w->plan, &pixels, r->tile_latent);
        into->latents = sumi_plan_value(w->plan, "reference_latents", SUMI_ELEMENT_FLOAT, w->info->latent_channels,
                                        into->height * into->width);
        sumi_vae_posterior(&tiling, w->plan, moments, SUMI_NO_VALUE,
                           &(sumi_tile_source){into->latents, into->height, into->width});
    }
}

// Encodes a picture of `columns` bytes per pixel to latents at the rows of `planes` from `row` on.
static void write_control_latents(writer* w, sumi_value pixels, sumi_value eps, sumi_value planes, int32_t row)
{
    const sumi_pipeline_request* r = w->r;
    const int32_t channels = w->info->latent_channels, size = w->out->latent_height * w->out->latent_width;
    const sumi_vae_tiling tiling = tiling_of(w);
    const sumi_tile_source source = {pixels, r->height, r->width};
    const sumi_value moments = sumi_vae_tiles_encode(&tiling, w->plan, &source, r->tile_latent),
                     latents = sumi_plan_value(w->plan, "control_latents", SUMI_ELEMENT_FLOAT, channels, size);
    sumi_vae_posterior(&tiling, w->plan, moments, eps,
                       &(sumi_tile_source){latents, w->out->latent_height, w->out->latent_width});
    sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = latents, .y = planes, .y_row = row});
}

// The planes of control picture `p` of net `k`, at the rows of `planes` from `row` on.
static void write_control_picture(writer* w, int32_t k, int32_t p, sumi_value planes, int32_t row)
{
    const sumi_pipeline_control* control = &w->r->controls[k];
    const sumi_control_planes layout = sumi_control_net_get_info(control->net)->planes;
    sumi_pipeline* out = w->out;
    const int32_t channels = w->info->latent_channels, pixels = w->r->height * w->r->width,
                  size = out->latent_height * out->latent_width,
                  mask_row = row + channels, // the middle plane, or the last one
        masked_row = layout == SUMI_PLANES_MASKED_MASK ? row : mask_row + 1;
    if (control->samples_posterior)
        out->control_eps[k][p] = sumi_plan_bound(w->plan, "control_eps", SUMI_ELEMENT_FLOAT, channels, size);
    if (control->has_picture) {
        out->control_pixels[k][p] = sumi_plan_bound(w->plan, "control_pixels", SUMI_ELEMENT_BYTE, pixels, 3);
        write_control_latents(w, out->control_pixels[k][p], out->control_eps[k][p], planes, row);
    }
    if (!control->has_mask) return;
    out->masked_pixels[k][p] = sumi_plan_bound(w->plan, "masked_pixels", SUMI_ELEMENT_BYTE, pixels, 4);
    out->control_mask[k][p] = sumi_plan_bound(w->plan, "control_mask", SUMI_ELEMENT_FLOAT, 1, size);
    write_control_latents(w, out->masked_pixels[k][p],
                          layout == SUMI_PLANES_MASKED_MASK ? out->control_eps[k][p] : SUMI_NO_VALUE, planes,
                          masked_row);
    sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = out->control_mask[k][p], .y = planes, .y_row = mask_row});
}

// The room for the state of a module, so that the one after it is aligned.
static size_t state_bytes(size_t bytes) { return (bytes + 15) / 16 * 16; }

// What control nets read: it is the same in all evaluations.
static void write_controls(writer* w)
{
    const sumi_pipeline_request* r = w->r;
    sumi_pipeline* out = w->out;
    const int32_t width = w->network->recipe->denoiser->properties(w->network->denoiser).stream_width,
                  size = out->latent_height * out->latent_width;
    if (r->control_count == 0) return;
    out->strength_width = width;
    out->strengths = sumi_plan_bound(w->plan, "strengths", SUMI_ELEMENT_FLOAT, 1, r->control_count * width);
    sumi_plan_section(w->plan, SUMI_SECTION_IMAGE, 1, 0);
    for (int32_t k = 0; k < r->control_count; k++) {
        const sumi_pipeline_control* control = &r->controls[k];
        const sumi_control_planes layout = sumi_control_net_get_info(control->net)->planes;
        const int32_t channels = sumi_control_channels(layout, w->info->latent_channels),
                      pictures = control->picture_count;
        const sumi_value planes =
            sumi_plan_value(w->plan, "control_planes", SUMI_ELEMENT_FLOAT, pictures * channels, size);
        // the planes of a picture that is not given are 0
        if (layout == SUMI_PLANES_PICTURE_MASK_MASKED && !(control->has_picture && control->has_mask))
            sumi_plan_fill_rows(w->plan, planes, NULL, &(sumi_span){0, pictures * channels}, 1);
        for (int32_t p = 0; p < pictures; p++) write_control_picture(w, k, p, planes, p * channels);
        out->control_planes[k] = planes;
        w->controls[k] = sumi_control_of(control->net);
        w->controls[k].planes = planes;
        w->controls[k].picture_count = pictures;
        w->controls[k].strength = (sumi_step_row){out->strengths, k * width, false};
        w->controls[k].state = w->control_states;
        w->control_states += state_bytes(w->controls[k].module->state_bytes);
    }
    w->denoising.controls = w->controls;
    w->denoising.control_count = r->control_count;
}

// Makes latents of the picture's size the next reference.
static void add_reference(writer* w, sumi_value latents)
{
    w->references[w->reference_count++] =
        (sumi_reference_latents){latents, w->out->latent_height, w->out->latent_width};
}

// Encodes the start image once, and computes clean latents for each item, with its own sample of the posterior.
static void write_start_image(writer* w, int32_t item_count)
{
    const sumi_pipeline_request* r = w->r;
    sumi_pipeline* out = w->out;
    SUMI_ASSERT(item_count >= 1 && item_count <= SUMI_MAX_ITEMS);
    int32_t channels = w->info->latent_channels, size = out->latent_height * out->latent_width;
    sumi_plan_section(w->plan, SUMI_SECTION_IMAGE, 1, 0);
    const sumi_vae_tiling tiling = tiling_of(w);
    out->pixels = sumi_plan_bound(w->plan, "pixels", SUMI_ELEMENT_BYTE, r->height * r->width, tiling.picture_channels);
    out->clean = sumi_plan_bound(w->plan, "clean", SUMI_ELEMENT_FLOAT, item_count * channels, size);
    if (r->samples_posterior)
        out->eps = sumi_plan_bound(w->plan, "eps", SUMI_ELEMENT_FLOAT, item_count * channels, size);
    const sumi_tile_source pixels = {out->pixels, r->height, r->width};
    const sumi_value moments = sumi_vae_tiles_encode(&tiling, w->plan, &pixels, r->tile_latent);
    sumi_value latents = sumi_plan_value(w->plan, "item_latents", SUMI_ELEMENT_FLOAT, channels, size);
    for (int32_t i = 0; i < item_count; i++) {
        if (r->samples_posterior || i == 0) { // the mode is the same for all items
            sumi_value eps = SUMI_NO_VALUE;
            if (r->samples_posterior) {
                eps = sumi_plan_value(w->plan, "item_eps", SUMI_ELEMENT_FLOAT, channels, size);
                sumi_plan_copy_rows(
                    w->plan, &(sumi_plan_copy_args){.x = out->eps, .x_row = i * channels, .y = eps, .rows = channels});
            }
            sumi_vae_posterior(&tiling, w->plan, moments, eps,
                               &(sumi_tile_source){latents, out->latent_height, out->latent_width});
        }
        sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = latents, .y = out->clean, .y_row = i * channels});
    }
    if (!r->start_is_reference) return;
    if (r->samples_posterior) { // a reference is the mode
        latents = sumi_plan_value(w->plan, "reference_latents", SUMI_ELEMENT_FLOAT, channels, size);
        sumi_vae_posterior(&tiling, w->plan, moments, SUMI_NO_VALUE,
                           &(sumi_tile_source){latents, out->latent_height, out->latent_width});
    }
    add_reference(w, latents);
}

// The given latents of the start image, the same for every item.
static void write_start_latents(writer* w)
{
    const sumi_pipeline_request* r = w->r;
    const int32_t channels = w->info->latent_channels, size = w->out->latent_height * w->out->latent_width;
    w->out->clean = sumi_plan_bound(w->plan, "clean", SUMI_ELEMENT_FLOAT, r->item_count * channels, size);
    if (!r->start_is_reference) return;
    sumi_value latents = w->out->clean;
    if (r->item_count > 1) {
        latents = sumi_plan_value(w->plan, "reference_latents", SUMI_ELEMENT_FLOAT, channels, size);
        sumi_plan_section(w->plan, SUMI_SECTION_IMAGE, 1, 0);
        sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = w->out->clean, .y = latents, .rows = channels});
    }
    add_reference(w, latents);
}

// Writes x and the other states of the solver. They begin as copies of x: rows that do not use a state multiply it by
// zero, and a stray NaN would survive that.
static void write_states(writer* w, sumi_plan_solve_args* solve)
{
    const sumi_pipeline_request* r = w->r;
    sumi_pipeline* out = w->out;
    int32_t rows = r->item_count * w->info->latent_channels, size = out->latent_height * out->latent_width;
    out->x = sumi_plan_bound(w->plan, "x", SUMI_ELEMENT_FLOAT, rows, size);
    *solve =
        (sumi_plan_solve_args){.x = out->x, .row = solver_column(w, 0, true), .channels = w->info->latent_channels};
    if (r->starts_from_latents && !r->start_is_reference) write_start_latents(w);
    if (r->starts_from_image || r->starts_from_latents) {
        out->noise = sumi_plan_bound(w->plan, "noise", SUMI_ELEMENT_FLOAT, rows, size);
        sumi_plan_add_noise(w->plan, out->noise, out->clean, solver_column(w, SIGMA_COLUMN, false), out->x);
    }
    if (r->inpaints) {
        out->mask = sumi_plan_bound(w->plan, "mask", SUMI_ELEMENT_FLOAT, 1, size);
        solve->mask = out->mask;
        if (r->item_count > 1) { // the op reads one plane per item
            solve->mask = sumi_plan_value(w->plan, "item_masks", SUMI_ELEMENT_FLOAT, r->item_count, size);
            for (int32_t i = 0; i < r->item_count; i++) {
                sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = out->mask, .y = solve->mask, .y_row = i});
            }
        }
        solve->noise = out->noise;
        solve->clean = out->clean;
    }
    if (r->has_base) {
        solve->y = out->base = sumi_plan_bound(w->plan, "base", SUMI_ELEMENT_FLOAT, rows, size);
        sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = out->x, .y = solve->y});
    }
    if (r->has_history) {
        solve->h = out->history = sumi_plan_bound(w->plan, "history", SUMI_ELEMENT_FLOAT, rows, size);
        sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = out->x, .y = solve->h});
    }
}

static bool is_guided(const sumi_pipeline_request* r, int32_t evaluation)
{
    return r->guided != NULL && r->guided[evaluation];
}

static uint32_t active_controls(const sumi_pipeline_request* r, int32_t evaluation)
{
    const uint32_t all = (1u << r->control_count) - 1;
    return r->active_controls != NULL ? all & r->active_controls[evaluation] : all;
}

// Whether an evaluation has the same ops as the one before it, so that both are in one section.
static bool continues_section(const sumi_pipeline_request* r, int32_t evaluation)
{
    return is_guided(r, evaluation) == is_guided(r, evaluation - 1)
        && active_controls(r, evaluation) == active_controls(r, evaluation - 1);
}

// Whether any section of evaluations has an alternative.
static bool has_alternatives(const sumi_pipeline_request* r)
{
    int32_t longest = 0, count = 0;
    for (int32_t e = 0; e < r->evaluation_count; e++) {
        count = e > 0 && continues_section(r, e) ? count + 1 : 1;
        longest = count > longest ? count : longest;
    }
    return r->caches_steps && longest >= SUMI_PIPELINE_FEWEST_CACHED;
}

// Makes copies of a state, which a section with an alternative keeps: out[0] before the last whole evaluation, out[1]
// before the one before that. Both are the state itself at first.
static void make_kept_states(const writer* w, const char* name, sumi_value state, sumi_value out[2])
{
    for (int32_t i = 0; i < 2 && state.id != 0; i++) {
        out[i] = sumi_plan_bound(w->plan, name, SUMI_ELEMENT_FLOAT, sumi_plan_rows(w->plan, state),
                                 sumi_plan_cols(w->plan, state));
        sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = state, .y = out[i]});
    }
}

static sumi_value make_zeros(const writer* w, const char* name, int32_t rows, int32_t cols)
{
    const sumi_value value = sumi_plan_value(w->plan, name, SUMI_ELEMENT_FLOAT, rows, cols);
    sumi_plan_fill_rows(w->plan, value, NULL, &(sumi_span){0, rows}, 1);
    return value;
}

static void make_kept(writer* w)
{
    make_kept_states(w, "kept_x", w->out->x, w->out->kept_x);
    make_kept_states(w, "kept_base", w->out->base, w->out->kept_base);
    make_kept_states(w, "kept_history", w->out->history, w->out->kept_history);
    w->denoising.extrapolation.sigma = solver_column(w, SIGMA_COLUMN, true);
    w->whole_sigmas = make_zeros(w, "whole_sigmas", 2, SOLVER_COLUMNS);
    w->earlier_sigmas = make_zeros(w, "earlier_sigmas", 2, SOLVER_COLUMNS);
    w->no_residual =
        make_zeros(w, "no_residual", sumi_plan_rows(w->plan, w->out->x), sumi_plan_cols(w->plan, w->out->x));
}

// Keeps the solver's states and the row of its table before a whole evaluation, and the copies from before the previous
// one.
static void write_kept(const writer* w)
{
    const sumi_value states[] = {w->out->x, w->out->base, w->out->history},
                     *kept[] = {w->out->kept_x, w->out->kept_base, w->out->kept_history};
    for (int32_t i = 0; i < 3; i++) {
        if (states[i].id == 0) continue;
        sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = kept[i][0], .y = kept[i][1]});
        sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = states[i], .y = kept[i][0]});
    }
    const sumi_value sigmas = w->whole_sigmas,
                     row = sumi_plan_modulation(w->plan, &(sumi_plan_modulation_args){.label = "whole_sigma",
                                                                                      .table = w->out->solver,
                                                                                      .rows = 1,
                                                                                      .per_step = true,
                                                                                      .element = SUMI_ELEMENT_FLOAT});
    sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = sigmas, .y = w->earlier_sigmas});
    sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = sigmas, .x_row = 1, .y = sigmas, .rows = 1});
    sumi_plan_copy_rows(w->plan, &(sumi_plan_copy_args){.x = row, .y = sigmas, .y_row = 1});
}

static sumi_evaluation_list evaluations_of(const writer* w, bool guides)
{
    return (sumi_evaluation_list){w->evaluation_lists[guides], w->r->item_count * (guides ? 2 : 1), guides};
}

static sumi_value write_guidance(const writer* w, sumi_value predictions)
{
    const sumi_pipeline_request* r = w->r;
    return sumi_plan_guide(w->plan, &(sumi_plan_guide_args){.predictions = predictions,
                                                            .item_count = r->item_count,
                                                            .channels = w->info->latent_channels,
                                                            .positive = w->positive,
                                                            .negative = w->negative,
                                                            .scale = solver_column(w, GUIDANCE_COLUMN, true),
                                                            .rule = r->guidance_rule != SUMI_GUIDANCE_MODEL
                                                                      ? r->guidance_rule
                                                                      : w->info->guidance_rule,
                                                            .norm_limit = r->norm_limit,
                                                            .width = w->out->latent_width,
                                                            .patch_size = w->info->patch_size});
}

// Measures in a whole evaluation how far its prediction v is from that of a reused one.
static void write_reuse_error(writer* w, sumi_value v, bool guides)
{
    const sumi_value reused = w->denoising.reused_velocities;
    w->out->reuse_error = sumi_plan_residual_change(
        w->plan, &(sumi_plan_residual_change_args){.label = "reuse_error",
                                                   .x = v,
                                                   .before = w->no_residual,
                                                   .kept = guides ? write_guidance(w, reused) : reused,
                                                   .change = w->out->reuse_error});
}

// Writes one evaluation of the batch and the solver's update into the section that was begun. Returns the guided
// prediction.
static sumi_value write_step(writer* w, const sumi_plan_solve_args* states, bool guides)
{
    const sumi_pipeline_request* r = w->r;
    const sumi_evaluation_list list = evaluations_of(w, guides);
    sumi_value v =
        w->network->recipe->denoiser->write_evaluation(w->network->denoiser, w->plan, &w->denoising, &list, w->out->x);
    if (guides) v = write_guidance(w, v);
    if (w->denoising.kind == SUMI_EVALUATION_WHOLE) write_reuse_error(w, v, guides);
    if (r->previews) {
        sumi_plan_preview(w->plan, &(sumi_plan_preview_args){.x = w->out->x,
                                                             .v = v,
                                                             .sigma = solver_column(w, SIGMA_COLUMN, true),
                                                             .channels = w->info->preview->channel_count,
                                                             .packing = w->info->packing,
                                                             .width = w->out->latent_width * w->info->packing,
                                                             .factors = &w->info->preview->factors[0][0],
                                                             .bias = w->info->preview->bias,
                                                             .rgb = w->out->preview});
    }
    sumi_plan_solve_args solve = *states;
    solve.v = v;
    sumi_plan_solve(w->plan, &solve);
    return v;
}

// Writes the section of consecutive evaluations with the same guidance.
static void write_denoise(writer* w, const sumi_plan_solve_args* states, bool guides, int32_t first, int32_t repeat)
{
    SUMI_ASSERT(repeat >= 1 && first >= 0 && first <= w->r->evaluation_count - repeat);
    const bool caches = w->r->caches_steps && repeat >= SUMI_PIPELINE_FEWEST_CACHED;
    sumi_plan_section(w->plan, SUMI_SECTION_DENOISE, repeat, first);
    w->denoising.kind = caches ? SUMI_EVALUATION_WHOLE : SUMI_EVALUATION_PLAIN;
    w->denoising.active_controls = active_controls(w->r, first);
    if (caches) write_kept(w);
    w->denoising.extrapolation.whole_sigmas = w->earlier_sigmas;
    w->denoising.extrapolation.most_ahead = sumi_pipeline_most_ahead(guides);
    const sumi_value v = write_step(w, states, guides);
    w->out->velocity = first == 0 ? v : w->out->velocity;
    if (!caches) return;
    sumi_plan_alternative(w->plan);
    w->denoising.kind = SUMI_EVALUATION_REUSED;
    w->denoising.extrapolation.whole_sigmas = w->whole_sigmas;
    write_step(w, states, guides);
}

static void write_denoising(writer* w, const sumi_plan_solve_args* states)
{
    const sumi_pipeline_request* r = w->r;
    for (int32_t i = 0; i < r->item_count; i++) {
        w->evaluation_lists[0][i] = w->evaluation_lists[1][i] = (sumi_evaluation){i, r->items[i].positive};
        w->evaluation_lists[1][r->item_count + i] = (sumi_evaluation){i, r->items[i].negative};
        w->positive[i] = i;
        w->negative[i] = r->item_count + i;
    }
    if (r->previews) {
        const int32_t side = SUMI_PREVIEW_FACTOR * w->info->preview_scale;
        w->out->preview = sumi_plan_bound(w->plan, "preview", SUMI_ELEMENT_FLOAT, r->item_count * 3,
                                          r->height / side * (r->width / side));
    }
    if (has_alternatives(r)) make_kept(w);
    bool has_layout[2] = {false, false};
    for (int32_t e = 0; e < r->evaluation_count; e++) {
        const bool guides = is_guided(r, e);
        if (!has_layout[guides]) { // still in the section before the first evaluation
            const sumi_evaluation_list list = evaluations_of(w, guides);
            w->network->recipe->denoiser->write_layout(w->network->denoiser, w->plan, &w->denoising, &list);
            has_layout[guides] = true;
        }
    }
    for (int32_t first = 0, e = 1; e <= r->evaluation_count; e++) {
        if (e < r->evaluation_count && continues_section(r, e)) continue;
        write_denoise(w, states, is_guided(r, first), first, e - first);
        first = e;
    }
}

static void write_pictures(writer* w)
{
    const sumi_pipeline_request* r = w->r;
    sumi_pipeline* out = w->out;
    const int32_t zero = 0;
    int32_t rows = r->item_count * r->height * r->width;
    const sumi_vae_tiling tiling = tiling_of(w);
    const int32_t channels = tiling.picture_channels;
    out->picture = sumi_plan_bound(w->plan, "picture", SUMI_ELEMENT_ACTIVATION, rows, channels);
    out->bytes = sumi_plan_bound(w->plan, "bytes", SUMI_ELEMENT_BYTE, rows, channels);
    out->not_finite = sumi_plan_constant(w->plan, "not_finite", SUMI_ELEMENT_INT, 1, 1, &zero);
    sumi_plan_section(w->plan, SUMI_SECTION_DECODE, r->item_count, 0);
    sumi_vae_tiles_decode(&tiling, w->plan, &(sumi_tile_source){out->x, out->latent_height, out->latent_width},
                          r->tile_latent, out->picture);
    sumi_plan_section(w->plan, SUMI_SECTION_TRANSFER, 1, 0);
    if (r->composites) {
        out->opacity = sumi_plan_bound(w->plan, "opacity", SUMI_ELEMENT_BYTE, r->height * r->width, 1);
        sumi_plan_composite(w->plan, out->picture, out->pixels, out->opacity);
    }
    sumi_plan_pixels_out(w->plan, out->picture, out->bytes, out->not_finite);
}

// Adds the changes of adapters to the weights of norms, once; the steps read the sums.
static void write_changed_norms(writer* w)
{
    for (int32_t u = 0; u < w->r->adapter_count; u++) {
        const sumi_adapter* adapter = w->r->adapters[u].adapter;
        for (int32_t d = 0; d < adapter->delta_count; d++) {
            if (adapter->deltas[d].kind != SUMI_DELTA_VECTOR) continue;
            SUMI_ASSERT((size_t)adapter->deltas[d].weight_index < w->network->weights.count);
            const sumi_weight* norm = w->network->weights.weights[adapter->deltas[d].weight_index];
            sumi_plan_prefix(w->plan, "%s.", norm->name);
            sumi_plan_changed_vector(w->plan, norm);
        }
    }
    sumi_plan_prefix(w->plan, "%s", "");
}

static void write_images(writer* w)
{
    const sumi_pipeline_request* r = w->r;
    sumi_pipeline* out = w->out;
    out->times = sumi_plan_bound(w->plan, "times", SUMI_ELEMENT_FLOAT, r->evaluation_count, 1);
    out->solver = sumi_plan_bound(w->plan, "solver", SUMI_ELEMENT_FLOAT, r->evaluation_count, SOLVER_COLUMNS);
    if (r->start_is_reference && r->starts_from_image) write_start_image(w, r->item_count);
    else if (r->start_is_reference) write_start_latents(w);
    write_references(w);
    place_references(w);
    write_controls(w);
    w->denoising.references = w->references;
    w->denoising.reference_count = w->reference_count;
    w->denoising.height = out->latent_height;
    w->denoising.width = out->latent_width;
    w->denoising.prompts = w->features;
    w->denoising.prompt_count = r->prompt_count;
    w->denoising.evaluation_count = r->evaluation_count;
    w->denoising.times = out->times;
    sumi_plan_section(w->plan, SUMI_SECTION_PREPARE, 1, 0);
    write_changed_norms(w);
    w->network->recipe->denoiser->write_prepare(w->network->denoiser, w->plan, &w->denoising);
    if (r->starts_from_image && !r->start_is_reference) write_start_image(w, r->item_count);
    sumi_plan_solve_args states;
    write_states(w, &states);
    write_denoising(w, &states);
    if (w->decodes) write_pictures(w);
}

static sumi_result write_pipeline(const sumi_network* network, const sumi_pipeline_request* request, bool decodes,
                                  bool computes_unused_rows, sumi_plan* plan, sumi_pipeline* out_pipeline,
                                  sumi_error* error)
{
    SUMI_ASSERT(network->is_open && plan->op_count == 0);
    SUMI_ASSERT(request->adapter_count == 0 || request->adapters != NULL || request->text_adapters != NULL);
    const sumi_network_info* info = sumi_network_get_info(network);
    memset(out_pipeline, 0, sizeof *out_pipeline);
    SUMI_TRY(check_prompts(network, request, error));
    if (request->goal != SUMI_GOAL_PROMPTS) {
        SUMI_TRY(check_request_size(info, request, decodes, error));
        out_pipeline->latent_height = request->height / info->vae_factor;
        out_pipeline->latent_width = request->width / info->vae_factor;
    }
    if (request->goal == SUMI_GOAL_IMAGES) SUMI_TRY(check_request_items(info, request, error));
    SUMI_TRY(check_request_references(network, request, error));
    SUMI_TRY(check_request_controls(info, request, error));
    SUMI_TRY(check_shared(network, request, error));
    // too large for the stack, which may be the host program's
    size_t bytes = sizeof(writer) + state_bytes(network->recipe->denoiser->state_bytes);
    for (int32_t k = 0; k < request->control_count; k++)
        bytes += state_bytes(sumi_control_of(request->controls[k].net).module->state_bytes);
    writer* w = sumi_alloc_zero(plan->heap, bytes);
    if (w == NULL) return sumi_out_of_memory(error, bytes, "writing a plan");
    w->network = network;
    w->info = info;
    w->r = request;
    w->plan = plan;
    w->out = out_pipeline;
    w->denoising.state = w + 1;
    w->control_states = (char*)(w + 1) + state_bytes(network->recipe->denoiser->state_bytes);
    w->decodes = decodes;
    w->denoising.computes_unused_rows = computes_unused_rows;
    w->denoising.keeps_residuals = request->goal == SUMI_GOAL_IMAGES && has_alternatives(request);
    if (request->goal == SUMI_GOAL_ENCODE) {
        write_start_image(w, 1);
    } else {
        sumi_plan_adapters(plan, request->text_adapters, request->text_adapters != NULL ? request->adapter_count : 0);
        write_vision(w);
        write_text(w);
        sumi_plan_adapters(plan, request->adapters, request->adapters != NULL ? request->adapter_count : 0);
        if (request->goal == SUMI_GOAL_IMAGES) write_images(w);
    }
    sumi_free(plan->heap, w);
    return sumi_plan_finish(plan, error);
}

sumi_result sumi_pipeline_write(const sumi_network* network, const sumi_pipeline_request* request, sumi_plan* plan,
                                sumi_pipeline* out_pipeline, sumi_error* error)
{
    return write_pipeline(network, request, request->goal == SUMI_GOAL_IMAGES, false, plan, out_pipeline, error);
}

sumi_result sumi_pipeline_write_latents(const sumi_network* network, const sumi_pipeline_request* request,
                                        bool computes_unused_rows, sumi_plan* plan, sumi_pipeline* out_pipeline,
                                        sumi_error* error)
{
    SUMI_ASSERT(request->goal == SUMI_GOAL_IMAGES);
    return write_pipeline(network, request, false, computes_unused_rows, plan, out_pipeline, error);
}
