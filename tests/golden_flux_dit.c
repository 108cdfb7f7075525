// The cases of the transformer with double and single blocks: one evaluation with everything inside it, the same
// evaluation inside a batch and behind others, with references whose keys and values are kept, and with adapters.
//
// The reference's joint rows are text, target, references; the library's are target, references, text. Of the variant
// that keeps references they are text, references, target; the library's are references, target, text.
#include "golden_flux_dit.h"
#include "at_once.h"
#include "golden_denoiser.h"
#include "merged_weights.h"
#include "models/flux_dit.h"
#include "models/network_state.h"
#include "plan_runner.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- One case's inputs ----------------------------------------------------------------------------------------------

typedef struct dit_inputs {
    array latents, references[SUMI_MAX_REFERENCES], text;
    int32_t reference_count;
    float time;           // sigma
    const char* expected; // the tensor that velocities are compared with
} dit_inputs;

static void free_inputs(dit_inputs* in)
{
    array_free(&in->latents);
    array_free(&in->text);
    for (int32_t i = 0; i < in->reference_count; i++) array_free(&in->references[i]);
}

static int32_t side(const array* planes, int32_t axis) { return (int32_t)planes->shape[axis]; }

static bool take_inputs(golden_case* c, const golden_case* source, const sumi_flux_dit* model, dit_inputs* in)
{
    *in = (dit_inputs){.latents = input(source, "latent"), .text = input(source, "text"), .expected = "out"};
    array t = input(source, "t");
    bool good = in->latents.rank == 3 && in->latents.shape[0] == model->channels && in->text.rank == 2
             && in->text.shape[1] == model->feature_width && t.count == 1;
    in->time = good ? t.values[0] : 0;
    for (int32_t i = 0; good && i < SUMI_MAX_REFERENCES; i++) {
        char name[32];
        snprintf(name, sizeof name, "ref.%d", (int)i);
        in->references[i] = input(source, name);
        if (in->references[i].values == NULL) break;
        in->reference_count++;
        good = in->references[i].rank == 3 && in->references[i].shape[0] == model->channels;
    }
    array_free(&t);
    if (!good) case_fails(c, "the case lacks latent, text or t, or they do not fit the model");
    return good;
}

// Another case's inputs, or this case's own. False after reporting; close the set of `out` unless it is this case's.
static bool open_inputs(golden_case* c, golden_case* out)
{
    const char* name = json_text(c->json, "inputs_of");
    char path[2400];
    sumi_error error = {0};
    *out = *c;
    if (name == NULL) return true;
    snprintf(path, sizeof path, "%s/%s.safetensors", c->folder, name);
    sumi_tensor_set_init(&out->set, &c->g->heap, NULL);
    if (sumi_tensor_set_open(&out->set, path, &error) == SUMI_OK) return true;
    case_fails(c, "%s", error.text);
    sumi_tensor_set_close(&out->set);
    return false;
}

// ---- Running the module ---------------------------------------------------------------------------------------------

static void write_values(plan_run* run)
{
    denoiser_run* r = run->context;
    const dit_inputs* in = r->in;
    write_items(run, r, in->latents.values, in->latents.shape[0], in->latents.count / in->latents.shape[0]);
    write_floats(run, r->text, 0, in->text.values, in->text.count);
    float* times = calloc((size_t)r->time_count, sizeof *times);
    for (int32_t i = 0; i < r->time_count; i++) times[i] = 1000.0f * r->times[i];
    write_floats(run, r->times_value, 0, times, r->time_count);
    free(times);
    for (int32_t i = 0; i < in->reference_count; i++)
        write_floats(run, r->references[i], 0, in->references[i].values, in->references[i].count);
}

static bool run_dit(golden_case* c, denoiser_run* r)
{
    const dit_inputs* in = r->in;
    const int32_t height = side(&in->latents, 1), width = side(&in->latents, 2), channels = side(&in->latents, 0);
    sumi_plan plan;
    begin_plan(c, &plan);
    sumi_plan_adapters(&plan, r->uses, r->use_count);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    r->x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, r->item_count * channels, height * width);
    r->text = sumi_plan_bound(&plan, "features", SUMI_ELEMENT_ACTIVATION, side(&in->text, 0), side(&in->text, 1));
    r->times_value = sumi_plan_bound(&plan, "times", SUMI_ELEMENT_FLOAT, r->time_count, 1);
    sumi_prompt_features prompts[8];
    sumi_reference_latents references[SUMI_MAX_REFERENCES];
    for (int32_t p = 0; p < r->prompt_count; p++)
        prompts[p] = (sumi_prompt_features){.value = {r->text}, .count = {r->prompt_rows[p]}};
    for (int32_t i = 0; i < in->reference_count; i++) {
        const int32_t h = side(&in->references[i], 1), w = side(&in->references[i], 2);
        r->references[i] = sumi_plan_bound(&plan, "reference", SUMI_ELEMENT_FLOAT, channels, h * w);
        references[i] = (sumi_reference_latents){r->references[i], h, w};
    }
    sumi_denoising job = {.height = height,
                          .width = width,
                          .prompts = prompts,
                          .prompt_count = r->prompt_count,
                          .references = references,
                          .reference_count = in->reference_count,
                          .evaluation_count = r->time_count,
                          .times = r->times_value,
                          .computes_unused_rows = r->whole};
    plan_run run = {.c = c, .write = write_values, .probe = probe_denoiser, .context = r};
    const sumi_evaluation_list list = {r->list, r->list_count, 1};
    return run_denoiser(&run, &sumi_flux_dit_module, r->model, &plan, &job, &list, r->x, &r->velocities);
}

// Evaluation `index` of the list against the case's tensor.
static void compare_velocity(golden_case* c, const denoiser_run* r, int32_t index)
{
    const dit_inputs* in = r->in;
    const array* latents = &in->latents;
    array out = array_make(r->velocities.values + index * latents->count, 3, latents->shape);
    compare(c, in->expected, &out);
    array_free(&out);
}

// ---- Inside ---------------------------------------------------------------------------------------------------------

// The ops that make what the reference calls `name`. %d is the number of a block. rows: 'i' of the pictures, 't' of the
// text, 'j' of both, in the library's order; 'k' or 'v' of what is kept of the references; ' ' others.
typedef struct inside {
    const char *name, *label;
    watch_kind kind;
    char rows;
} inside;
static const inside s_inside[] = {{"t_sinusoid", "time_embed.time_embed", WATCH_ROWS, ' '},
                                  {"temb", "time_embed.linear_2", WATCH_ROWS, ' '},
                                  {"mod_img", "double_stream_modulation_img", WATCH_PRODUCT, ' '},
                                  {"mod_txt", "double_stream_modulation_txt", WATCH_PRODUCT, ' '},
                                  {"mod_single", "single_stream_modulation", WATCH_PRODUCT, ' '},
                                  {"x_embed", "x_embedder", WATCH_ROWS, 'i'},
                                  {"text_embed", "context_embedder", WATCH_ROWS, 't'},
                                  {"double.%d.q_normed", "transformer_blocks.%d.attn.qk_norm_rope", WATCH_Q, 'i'},
                                  {"double.%d.attn_img", "transformer_blocks.%d.attn.to_out.0", WATCH_PRODUCT, 'i'},
                                  {"double.%d.attn_txt", "transformer_blocks.%d.attn.to_add_out", WATCH_PRODUCT, 't'},
                                  {"double.%d.ff_img", "transformer_blocks.%d.ff.linear_out", WATCH_PRODUCT, 'i'},
                                  {"double.%d.img", "transformer_blocks.%d.ff.linear_out", WATCH_ROWS, 'i'},
                                  {"double.%d.txt", "transformer_blocks.%d.ff_context.linear_out", WATCH_ROWS, 't'},
                                  {"single.%d.branch", "single_transformer_blocks.%d.attn.to_out", WATCH_PRODUCT, 'j'},
                                  {"single.%d.out", "single_transformer_blocks.%d.attn.to_out", WATCH_ROWS, 'j'},
                                  {"rope_cos", "rope", WATCH_COS, 'j'},
                                  {"rope_sin", "rope", WATCH_SIN, 'j'},
                                  {"final", "norm_out", WATCH_ROWS, 'f'},
                                  {"k_double", "references.transformer_blocks.0.copy", WATCH_ROWS, 'k'},
                                  {"v_single", "references.single_transformer_blocks.0.copy", WATCH_ROWS, 'v'}};
#define INSIDE_COUNT (sizeof s_inside / sizeof *s_inside)

// Writes `pattern` with the number in place of %d.
static void put_number(char* out, size_t bytes, const char* pattern, int number)
{
    const char* mark = strstr(pattern, "%d");
    if (mark == NULL) snprintf(out, bytes, "%s", pattern);
    else snprintf(out, bytes, "%.*s%d%s", (int)(mark - pattern), pattern, number, mark + 2);
}

// Every third row of the kept keys or values, which are the left and the right half of the columns.
static void compare_kept(golden_case* c, const sumi_flux_dit* model, char part, const watch* one)
{
    enum { EVERY = 3 };
    if (one->got.values == NULL) {
        not_checked(c, one->expected, "no op of the plan made it");
        return;
    }
    const int64_t width = model->dim, rows = (one->got.shape[0] + EVERY - 1) / EVERY;
    if (one->got.count != one->got.shape[0] * 2 * width) {
        case_fails(c, "%s: what is kept has %lld values", one->expected, (long long)one->got.count);
        return;
    }
    array got = array_make(NULL, 3, (const int64_t[]){rows, model->heads, model->head_dim});
    for (int64_t r = 0; r < rows; r++) {
        memcpy(got.values + r * width, one->got.values + EVERY * r * 2 * width + (part == 'v' ? width : 0),
               (size_t)width * sizeof(float));
    }
    compare(c, one->expected, &got);
    array_free(&got);
}

// What a watch took, in the reference's order of rows.
static void compare_inside(golden_case* c, const dit_inputs* in, char rows, watch* one)
{
    const int64_t text = in->text.shape[0], all = one->got.rank > 0 ? one->got.shape[0] : 0,
                  tokens = in->latents.shape[1] * in->latents.shape[2];
    int64_t pictures = tokens;
    for (int32_t i = 0; i < in->reference_count; i++)
        pictures += in->references[i].shape[1] * in->references[i].shape[2];
    if (one->got.values == NULL) {
        not_checked(c, one->expected, "no op of the plan made it");
        return;
    }
    const int64_t width = all > 0 ? one->got.count / all : 0;
    int64_t first = 0, count = all;
    if (rows == 'i') count = pictures;
    if (rows == 'f') count = tokens;
    const bool is_good = rows == ' '
                      || (rows == 'j'   ? all == pictures + text
                          : rows == 't' ? all == text
                                        : all >= count);
    if (!is_good) {
        case_fails(c, "%s: its ops made %lld rows", one->expected, (long long)all);
        return;
    }
    array got = array_make(NULL, rows == 'f' ? 2 : one->got.rank, one->got.shape);
    (void)first;
    if (rows == 'f') { // the library computes the targets' rows only
        array_free(&got);
        got = array_make(NULL, 2, (const int64_t[]){pictures, width});
    }
    for (int64_t r = 0; r < count; r++) {
        const int64_t to = rows == 'j' ? (r + text) % (pictures + text) : r;
        memcpy(got.values + to * width, one->got.values + r * width, (size_t)width * sizeof(float));
    }
    if (rows == 'i') got.count = count * width, got.shape[0] = count;
    if (rows == ' ' && all == 1) got.rank = 1, got.shape[0] = width;
    if (rows == 'f' && pictures > tokens) compare_partly(c, one->expected, &got, tokens);
    else compare(c, one->expected, &got);
    array_free(&got);
}

// The whole evaluation with the rows that nothing reads, for its intermediates.
static void run_inside(golden_case* c, denoiser_run* r)
{
    const sumi_flux_dit* model = r->model;
    watcher* w = calloc(1, sizeof *w);
    char rows[MAX_WATCHES];
    w->q_heads = w->kv_heads = model->heads;
    w->head_dim = model->head_dim;
    for (size_t i = 0; i < INSIDE_COUNT; i++) {
        const bool has_blocks = strstr(s_inside[i].name, "%d") != NULL;
        const int32_t blocks = !has_blocks                                 ? 1
                             : strncmp(s_inside[i].name, "double", 6) == 0 ? model->double_count
                                                                           : model->single_count;
        for (int32_t b = 0; b < blocks; b++) {
            char name[64], label[96];
            put_number(name, sizeof name, s_inside[i].name, (int)b);
            put_number(label, sizeof label, s_inside[i].label, (int)b);
            if (!has_expected(c, name)) continue;
            rows[w->count] = s_inside[i].rows;
            if (add_watch(w, name, s_inside[i].kind, "%s", label) == NULL) case_fails(c, "too many watches");
        }
    }
    r->w = w;
    r->whole = true;
    if (run_dit(c, r)) compare_velocity(c, r, 0);
    for (int i = 0; i < w->count; i++) {
        if (c->by_op && (rows[i] == 'k' || rows[i] == 'v')) compare_kept(c, model, rows[i], &w->list[i]);
        else if (c->by_op) compare_inside(c, r->in, rows[i], &w->list[i]);
        array_free(&w->list[i].got);
        free(w->list[i].before);
    }
    r->w = NULL;
    r->whole = false;
    free(w);
}

// ---- Kinds ----------------------------------------------------------------------------------------------------------

static void run_dit_case(golden_case* c, const sumi_network* network)
{
    golden_case source;
    dit_inputs in = {.reference_count = 0};
    if (!open_inputs(c, &source)) return;
    const sumi_flux_dit* model = network->denoiser;
    if (take_inputs(c, &source, model, &in)) {
        const sumi_evaluation list = {0, 0};
        const int32_t text = side(&in.text, 0);
        const float times[] = {0.9f, 0.25f, in.time};
        denoiser_run r = {.model = model,
                          .in = &in,
                          .run = run_dit,
                          .compare = compare_velocity,
                          .list = &list,
                          .list_count = 1,
                          .item_count = 1,
                          .prompt_rows = &text,
                          .prompt_count = 1,
                          .times = &in.time,
                          .time_count = 1};
        run_inside(c, &r);
        if (run_dit(c, &r)) compare_velocity(c, &r, 0);
        run_in_batch(c, &r, text);
        r.times = times; // as the last of three
        r.time_count = 3;
        if (run_dit(c, &r)) compare_velocity(c, &r, 0);
        if (has_expected(c, "next_out")) { // of other latents at a later time, with what was kept before
            const float both[] = {in.time, (float)json_number(c->json, "next_t", 0)};
            array_free(&in.latents);
            in.latents = input(&source, "next_latent");
            in.expected = "next_out";
            r.times = both;
            r.time_count = 2;
            if (in.latents.rank != 3 || in.latents.shape[0] != model->channels)
                case_fails(c, "the case lacks next_latent");
            else if (run_dit(c, &r)) compare_velocity(c, &r, 0);
        }
        array_free(&r.velocities);
    }
    free_inputs(&in);
    if (source.set.tensors != c->set.tensors) sumi_tensor_set_close(&source.set);
}

// merged.MODULE: the last rows of W with all adapters merged.
static void compare_merged(golden_case* c, const sumi_network* network, const sumi_adapter_use* uses, int32_t use_count)
{
    for (size_t i = 0; i < c->set.count; i++) {
        const char* name = expected_name(c, i);
        char folded[SUMI_NAME_BYTES];
        if (name == NULL || strncmp(name, "merged.", 7) != 0
            || !sumi_fold_path(name + 7, strlen(name + 7), folded, sizeof folded))
            continue;
        for (size_t t = 0; t < network->weights.target_count; t++) {
            const sumi_adapter_target* target = &network->weights.targets[t];
            if (strcmp(target->path, folded) != 0) continue;
            target += target->more_parts; // the last rows are those of the last part
            const sumi_weight* weight = network->weights.weights[target->weight_index];
            const int32_t rows =
                c->set.tensors[i].shape[0] < target->rows ? (int32_t)c->set.tensors[i].shape[0] : target->rows;
            array merged = array_make(NULL, 2, (const int64_t[]){rows, target->cols});
            for (int32_t r = 0; r < rows; r++)
                merged_row(weight, uses, use_count, target->row_begin + target->rows - rows + r,
                           merged.values + (int64_t)r * target->cols);
            compare(c, name, &merged);
            array_free(&merged);
            break;
        }
    }
}

static void run_adapter_case(golden_case* c, const sumi_network* network)
{
    enum { MAX_ADAPTERS = 8 };
    const node* list = json_get(c->json, "adapters");
    golden_case source;
    dit_inputs in = {.reference_count = 0};
    sumi_adapter_file* files[MAX_ADAPTERS] = {NULL};
    sumi_adapter_use uses[MAX_ADAPTERS];
    int32_t count = 0;
    sumi_error error = {0};
    if (list == NULL || !open_inputs(c, &source)) {
        if (list == NULL) case_fails(c, "the case names no adapters");
        return;
    }
    for (const node* n = list->first; n != NULL && count < MAX_ADAPTERS && error.result == SUMI_OK; n = n->next) {
        char path[2400];
        const char* file = json_text(n, "file");
        join_path(path, sizeof path, c->folder, file != NULL ? file : "");
        if (open_adapter_file(&c->g->heap, network, path, &error, &files[count]) != SUMI_OK) break;
        uses[count] = (sumi_adapter_use){sumi_adapter_get(files[count]), (float)json_number(n, "strength", 1.0)};
        count++;
    }
    if (error.result != SUMI_OK) case_fails(c, "%s", error.text);
    else if (take_inputs(c, &source, network->denoiser, &in)) {
        const sumi_evaluation evaluation = {0, 0};
        const int32_t text = side(&in.text, 0);
        denoiser_run r = {.model = network->denoiser,
                          .in = &in,
                          .run = run_dit,
                          .compare = compare_velocity,
                          .list = &evaluation,
                          .list_count = 1,
                          .item_count = 1,
                          .prompt_rows = &text,
                          .prompt_count = 1,
                          .times = &in.time,
                          .time_count = 1,
                          .uses = uses,
                          .use_count = count};
        if (run_dit(c, &r)) compare_velocity(c, &r, 0);
        array_free(&r.velocities);
        if (!c->by_op) compare_merged(c, network, uses, count);
    }
    free_inputs(&in);
    for (int32_t i = 0; i < count; i++) {
        const sumi_adapter* adapter = sumi_adapter_get(files[i]);
        for (int32_t d = 0; d < adapter->delta_count; d++)
            runner_release_weights(c->g->runner,
                                   (const sumi_weight* const[]){&adapter->deltas[d].down, &adapter->deltas[d].up}, 2);
        sumi_adapter_close(files[i]);
    }
    if (source.set.tensors != c->set.tensors) sumi_tensor_set_close(&source.set);
}

// The case's checkpoint. Cases of the variant that keeps references say so by their family.
static const sumi_network* network_of(golden_case* c)
{
    const char *family = json_text(c->json, "family"), *model = json_text(c->json, "model");
    char path[2048], key[sizeof c->g->network_key];
    if (strcmp(family, "flux2-klein-kv") != 0 || model == NULL) return case_network(c, c->json);
    join_path(path, sizeof path, c->folder, model);
    snprintf(key, sizeof key, "%.2000s|kv", path);
    return open_network(c, key, NULL, &(sumi_network_desc){.path = path, .variant = "kv"});
}

bool run_flux_dit_case(golden_case* c)
{
    const bool is_dit = strcmp(c->kind, "dit") == 0;
    if (!is_dit && strcmp(c->kind, "adapter") != 0) return false;
    const sumi_network* network = network_of(c);
    if (network == NULL) return true;
    if (is_dit) run_dit_case(c, network);
    else run_adapter_case(c, network);
    return true;
}
