// The cases of the transformer whose prefix is computed once: one evaluation with everything inside it, the same
// evaluation inside a batch and behind others, again from what was kept at another time, from files of other layouts,
// and with adapters.
//
// The reference's joint rows are the prompt with its references and then the target, as the library's are; the library
// computes them as two matrices.
#include "at_once.h"
#include "golden_component.h"
#include "golden_denoiser.h"
#include "golden_qwen_image_21.h"
#include "models/network_state.h"
#include "models/prefix_dit.h"
#include "models/signatures.h"
#include "plan_runner.h"
#include <stdlib.h>
#include <string.h>

static const sumi_prefix_dit_settings s_settings = {.axis_share = {16, 56, 56}, .theta = 10000.0};

// ---- One case's inputs ----------------------------------------------------------------------------------------------

typedef struct dit_inputs {
    array latents, references[SUMI_MAX_REFERENCES], text; // of pictures: planes
    int32_t height, width, reference_height[SUMI_MAX_REFERENCES], reference_width[SUMI_MAX_REFERENCES];
    sumi_span places[SUMI_MAX_REFERENCES]; // of the references, in the rows of the text
    int32_t reference_count, padding;
    float time;           // sigma
    bool shares;          // the prompts of a batch begin alike
    const char* expected; // the tensor that velocities are compared with
} dit_inputs;

static void free_inputs(dit_inputs* in)
{
    array_free(&in->latents);
    array_free(&in->text);
    for (int32_t i = 0; i < in->reference_count; i++) array_free(&in->references[i]);
}

static int32_t text_rows(const dit_inputs* in) { return (int32_t)in->text.shape[0]; }

// The rows of the text up to the end of the last reference.
static int32_t rows_of_references(const dit_inputs* in)
{
    const sumi_span* last = in->reference_count > 0 ? &in->places[in->reference_count - 1] : NULL;
    return last != NULL ? last->begin + last->count : 0;
}

// Rows [first, first + count) of [rows, channels] as planes.
static array planes_of(const array* rows, int64_t first, int64_t count)
{
    const int64_t channels = rows->shape[1];
    array planes = array_make(NULL, 2, (const int64_t[]){channels, count});
    for (int64_t r = 0; r < count; r++)
        for (int64_t k = 0; k < channels; k++) planes.values[k * count + r] = rows->values[(first + r) * channels + k];
    return planes;
}

static bool read_grid(const node* n, int32_t* height, int32_t* width)
{
    if (n == NULL || n->type != NODE_LIST || n->count != 2) return false;
    *height = (int32_t)n->first->number;
    *width = (int32_t)n->first->next->number;
    return *height > 0 && *width > 0;
}

// "layout": numbers of text rows and grids of references in turns; image_pads says which rows of the text the latter
// have.
static bool read_layout(const golden_case* c, dit_inputs* in)
{
    const node *layout = json_get(c->json, "layout"), *n = layout;
    array pads = input(c, "image_pads");
    int32_t row = 0;
    bool good = layout != NULL && pads.count == in->text.shape[0]
             && read_grid(json_get(c->json, "target_grid"), &in->height, &in->width);
    if (good && layout->type == NODE_LIST) n = layout->first;
    for (; good && n != NULL; n = layout->type == NODE_LIST ? n->next : NULL) {
        if (n->type != NODE_LIST) {
            row += (int32_t)n->number;
            continue;
        }
        const int32_t i = in->reference_count;
        good = i < SUMI_MAX_REFERENCES && read_grid(n, &in->reference_height[i], &in->reference_width[i]);
        if (!good) break;
        in->places[i] = (sumi_span){row, in->reference_height[i] * in->reference_width[i] / 4};
        for (int32_t r = 0; r < in->places[i].count; r++)
            good = good && row + r < pads.count && pads.values[row + r] != 0;
        row += in->places[i].count;
        in->reference_count++;
    }
    good = good && row == text_rows(in);
    array_free(&pads);
    return good;
}

static bool take_inputs(golden_case* c, const sumi_prefix_dit* model, dit_inputs* in)
{
    array x = input(c, "x"), t = input(c, "t"), mask = input(c, "mask");
    *in = (dit_inputs){.text = input(c, "txt"), .expected = "out"};
    bool good = x.rank == 2 && x.shape[1] == model->channels && in->text.rank == 2
             && in->text.shape[1] == model->feature_width && t.count == 1 && read_layout(c, in);
    int64_t first = 0;
    for (int32_t i = 0; good && i < in->reference_count; i++) {
        const int64_t count = (int64_t)in->reference_height[i] * in->reference_width[i];
        good = first + count <= x.shape[0];
        if (good) in->references[i] = planes_of(&x, first, count);
        first += count;
    }
    good = good && first + in->height * in->width == x.shape[0];
    if (good) {
        in->latents = planes_of(&x, first, x.shape[0] - first);
        in->time = t.values[0];
        for (int64_t r = 0; r < mask.count; r++) in->padding += mask.values[r] == 0;
    } else {
        case_fails(c, "the case lacks x, txt, t, image_pads or its layout, or they do not fit the model");
    }
    array_free(&x);
    array_free(&t);
    array_free(&mask);
    return good;
}

// ---- Running the module ---------------------------------------------------------------------------------------------

static void write_values(plan_run* run)
{
    denoiser_run* r = run->context;
    const dit_inputs* in = r->in;
    write_items(run, r, in->latents.values, in->latents.shape[0], in->latents.shape[1]);
    write_floats(run, r->text, 0, in->text.values, in->text.count);
    write_floats(run, r->times_value, 0, r->times, r->time_count);
    for (int32_t i = 0; i < in->reference_count; i++)
        write_floats(run, r->references[i], 0, in->references[i].values, in->references[i].count);
}

static bool run_dit(golden_case* c, denoiser_run* r)
{
    const dit_inputs* in = r->in;
    const int32_t channels = (int32_t)in->latents.shape[0];
    sumi_plan plan;
    begin_plan(c, &plan);
    sumi_plan_adapters(&plan, r->uses, r->use_count);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    r->x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, r->item_count * channels, in->height * in->width);
    r->text = sumi_plan_bound(&plan, "features", SUMI_ELEMENT_ACTIVATION, text_rows(in), (int32_t)in->text.shape[1]);
    r->times_value = sumi_plan_bound(&plan, "times", SUMI_ELEMENT_FLOAT, r->time_count, 1);
    sumi_prompt_features prompts[8];
    sumi_reference_latents references[SUMI_MAX_REFERENCES];
    for (int32_t p = 0; p < r->prompt_count; p++) {
        prompts[p] = (sumi_prompt_features){.value = {r->text}, .count = {r->prompt_rows[p]}, .padding = in->padding};
        memcpy(prompts[p].references, in->places, sizeof in->places);
    }
    for (int32_t i = 0; i < in->reference_count; i++) {
        const int32_t h = in->reference_height[i], w = in->reference_width[i];
        r->references[i] = sumi_plan_bound(&plan, "reference", SUMI_ELEMENT_FLOAT, channels, h * w);
        references[i] = (sumi_reference_latents){r->references[i], h, w};
    }
    sumi_denoising job = {.height = in->height,
                          .width = in->width,
                          .prompts = prompts,
                          .prompt_count = r->prompt_count,
                          .references = references,
                          .reference_count = in->reference_count,
                          .shared_rows = in->shares ? rows_of_references(in) : 0,
                          .evaluation_count = r->time_count,
                          .times = r->times_value,
                          .computes_unused_rows = r->whole};
    plan_run run = {.c = c, .write = write_values, .probe = probe_denoiser, .context = r};
    const sumi_evaluation_list list = {r->list, r->list_count, 1};
    return run_denoiser(&run, &sumi_prefix_dit_module, r->model, &plan, &job, &list, r->x, &r->velocities);
}

// Evaluation `index` of the list against the case's tensor, [tokens, channels], and against results of mistakes.
static void compare_velocity(golden_case* c, const denoiser_run* r, int32_t index)
{
    const dit_inputs* in = r->in;
    const int64_t channels = in->latents.shape[0], tokens = in->latents.shape[1];
    const float* planes = r->velocities.values + index * channels * tokens;
    array out = array_make(NULL, 2, (const int64_t[]){tokens, channels});
    for (int64_t t = 0; t < tokens; t++)
        for (int64_t k = 0; k < channels; k++) out.values[t * channels + k] = planes[k * tokens + t];
    compare(c, in->expected, &out);
    for (size_t i = 0; i < c->set.count && strcmp(in->expected, "out") == 0; i++) {
        if (strncmp(c->set.tensors[i].name, "wrong.", 6) == 0) compare_wrong(c, c->set.tensors[i].name + 6, &out);
    }
    array_free(&out);
}

// ---- Inside ---------------------------------------------------------------------------------------------------------

// The ops that make what the reference calls `name`: of the prefix, of the targets, or of both, whose rows follow each
// other then. part: 'k' or 'v' of what is kept.
typedef struct inside {
    const char *name, *prefix_label, *label;
    watch_kind kind;
    char part;
} inside;

// In %s: the number of the last block.
static const inside s_inside[] = {
    {"time_proj", "time_text_embed.time_embed", NULL, WATCH_ROWS, 0},
    {"temb", "time_text_embed.timestep_embedder.linear_2", NULL, WATCH_ROWS, 0},
    {"modulation", "modulation.1", NULL, WATCH_PRODUCT, 0},
    {"text_norm", "txt_in.text_norm", NULL, WATCH_ROWS, 0},
    {"txt_in", "txt_in.out_layer", NULL, WATCH_PRODUCT, 0},
    {"img_in", NULL, "img_in", WATCH_ROWS, 0},
    {"rope_cos", "prefix.rope", "rope", WATCH_COS, 0},
    {"rope_sin", "prefix.rope", "rope", WATCH_SIN, 0},
    {"q0", "prefix.transformer_blocks.0.attn.qk_norm_rope", "transformer_blocks.0.attn.qk_norm_rope", WATCH_Q, 0},
    {"k0", "prefix.transformer_blocks.0.attn.qk_norm_rope", "transformer_blocks.0.attn.qk_norm_rope", WATCH_K, 0},
    {"attn0", "prefix.transformer_blocks.0.attn.to_out.0", "transformer_blocks.0.attn.to_out.0", WATCH_PRODUCT, 0},
    {"mlp0", "prefix.transformer_blocks.0.img_mlp.out", "transformer_blocks.0.img_mlp.out", WATCH_PRODUCT, 0},
    {"block0", "prefix.transformer_blocks.0.img_mlp.out", "transformer_blocks.0.img_mlp.out", WATCH_ROWS, 0},
    {"norm_out", NULL, "norm_out", WATCH_ROWS, 0},
    {"prefix_k_last", "prefix.transformer_blocks.%s.copy", NULL, WATCH_ROWS, 'k'},
    {"prefix_v_last", "prefix.transformer_blocks.%s.copy", NULL, WATCH_ROWS, 'v'}};
#define INSIDE_COUNT (sizeof s_inside / sizeof *s_inside)

// Writes `label` with `number` in place of %s.
static void watch_label(watcher* w, const inside* one, const char* label, int32_t number)
{
    const char* mark = strstr(label, "%s");
    if (mark == NULL) add_watch(w, one->name, one->kind, "%s", label);
    else add_watch(w, one->name, one->kind, "%.*s%d%s", (int)(mark - label), label, (int)number, mark + 2);
}

// The rows of `first`, then those of `second`; either may be NULL.
static array join_rows(const array* first, const array* second)
{
    const array* one = first != NULL ? first : second;
    const int64_t rows = one->shape[0], more = second != NULL && first != NULL ? second->shape[0] : 0,
                  width = one->count / rows;
    array both = array_make(NULL, one->rank, (const int64_t[]){rows + more, one->shape[1], one->shape[2]});
    memcpy(both.values, one->values, (size_t)(rows * width) * sizeof(float));
    if (more > 0) memcpy(both.values + rows * width, second->values, (size_t)(more * width) * sizeof(float));
    return both;
}

// Rows of padding see other padding in the reference or not; they do not count. Takes them from expect.NAME.
static void leave_out_padding(const golden_case* c, const char* name, const dit_inputs* in, array* got)
{
    const int64_t rows = got->shape[0], targets = in->latents.shape[1], width = got->count / rows,
                  first = rows - targets - in->padding;
    for (size_t i = 0; i < c->set.count && first >= 0; i++) {
        if (strncmp(c->set.tensors[i].name, "expect.", 7) != 0 || strcmp(c->set.tensors[i].name + 7, name) != 0)
            continue;
        array expected = array_of(&c->set.tensors[i]);
        if (expected.count == got->count) {
            memcpy(got->values + first * width, expected.values + first * width,
                   (size_t)(in->padding * width) * sizeof(float));
        }
        array_free(&expected);
    }
}

static void compare_inside(golden_case* c, const inside* one, const denoiser_run* r, const watch* first,
                           const watch* second)
{
    const sumi_prefix_dit* model = r->model;
    const dit_inputs* in = r->in;
    if ((first != NULL && first->got.values == NULL) || (second != NULL && second->got.values == NULL)) {
        not_checked(c, one->name, "no op of the plan made it");
        return;
    }
    array got = join_rows(first != NULL ? &first->got : NULL, second != NULL ? &second->got : NULL);
    if (one->part != 0) { // a half of the columns, as heads
        const int64_t rows = got.shape[0], width = got.shape[1] / 2;
        array half = array_make(NULL, 3, (const int64_t[]){rows, model->heads, model->head_dim});
        for (int64_t row = 0; row < rows; row++) {
            memcpy(half.values + row * width, got.values + row * 2 * width + (one->part == 'v' ? width : 0),
                   (size_t)width * sizeof(float));
        }
        array_free(&got);
        got = half;
    }
    if (first != NULL && second != NULL && in->padding > 0) leave_out_padding(c, one->name, in, &got);
    compare(c, one->name, &got);
    array_free(&got);
}

static void run_inside(golden_case* c, denoiser_run* r)
{
    const sumi_prefix_dit* model = r->model;
    watcher* w = calloc(1, sizeof *w);
    w->q_heads = w->kv_heads = model->heads;
    w->head_dim = model->head_dim;
    for (size_t i = 0; i < INSIDE_COUNT; i++) {
        const inside* one = &s_inside[i];
        if (!has_expected(c, one->name)) continue;
        if (one->prefix_label != NULL) watch_label(w, one, one->prefix_label, model->block_count - 1);
        if (one->label != NULL) watch_label(w, one, one->label, model->block_count - 1);
    }
    r->w = w;
    r->whole = true;
    if (run_dit(c, r)) compare_velocity(c, r, 0);
    int k = 0;
    for (size_t i = 0; i < INSIDE_COUNT; i++) {
        const inside* one = &s_inside[i];
        if (!has_expected(c, one->name)) continue;
        const watch *first = one->prefix_label != NULL ? &w->list[k++] : NULL,
                    *second = one->label != NULL ? &w->list[k++] : NULL;
        if (c->by_op) compare_inside(c, one, r, first, second);
    }
    for (k = 0; k < w->count; k++) {
        array_free(&w->list[k].got);
        free(w->list[k].before);
    }
    r->w = NULL;
    r->whole = false;
    free(w);
}

// ---- Files ----------------------------------------------------------------------------------------------------------

typedef struct opened_model {
    case_component component;
    sumi_prefix_dit model;
    sumi_error error;
} opened_model;

static void close_model(golden_case* c, opened_model* m) { close_component(c, &m->component); }

// The transformer of the case's checkpoint, or of another file, given from the folder above the cases on. False after
// reporting; close_model in any case.
static bool open_model(golden_case* c, const char* file, opened_model* m)
{
    static const char* const s_prefixes[] = {"", "model.diffusion_model.", NULL};
    static const sumi_signature s_signature = {.component = SUMI_COMPONENT_TRANSFORMER,
                                               .network = "prefix",
                                               .prefixes = s_prefixes,
                                               .tensors = {"txt_in.text_norm.weight", "modulation.1.weight"}};
    memset(m, 0, sizeof *m);
    case_component* component = &m->component;
    char folder[2400], path[2400];
    const char* model = json_text(c->json, "model");
    snprintf(folder, sizeof folder, "%.2000s/../%.64s", c->folder, model != NULL ? model : "model");
    snprintf(path, sizeof path, "%.2000s/../%.200s", c->folder, file != NULL ? file : "");
    sumi_weight_list_init(&component->list, &c->g->heap);
    sumi_checkpoint_desc desc = {.path = folder,
                                 .without_text_encoder = true,
                                 .signatures = &s_signature,
                                 .signature_count = 1,
                                 .class_words = sumi_class_words()};
    if (file != NULL) desc.component_paths[SUMI_COMPONENT_TRANSFORMER] = path;
    const sumi_component* part = &component->checkpoint.components[SUMI_COMPONENT_TRANSFORMER];
    if (sumi_checkpoint_open(&component->checkpoint, &c->g->heap, NULL, &desc, &m->error) != SUMI_OK
        || !part->present) {
        case_fails(c, "%s", m->error.result != SUMI_OK ? m->error.text : "the checkpoint has no transformer");
        return false;
    }
    component->binder = (sumi_binder){
        .list = &component->list, .component = part, .what = "the transformer", .adaptable = true, .error = &m->error};
    component->config = (sumi_module_config){.data = part->config.data,
                                             .bytes = (size_t)part->config.bytes,
                                             .path = part->config.path != NULL ? part->config.path : part->path};
    if (sumi_prefix_dit_module.bind(&m->model, &s_settings, &component->binder, &component->config) == SUMI_OK)
        return true;
    case_fails(c, "%s", m->error.text);
    return false;
}

// ---- Kinds ----------------------------------------------------------------------------------------------------------

static denoiser_run run_of(const opened_model* m, const dit_inputs* in, const int32_t* rows)
{
    static const sumi_evaluation s_list = {0, 0};
    return (denoiser_run){.model = &m->model,
                          .in = in,
                          .run = run_dit,
                          .compare = compare_velocity,
                          .list = &s_list,
                          .list_count = 1,
                          .item_count = 1,
                          .prompt_rows = rows,
                          .prompt_count = 1,
                          .times = &in->time,
                          .time_count = 1};
}

static void run_dit_case(golden_case* c, const opened_model* m, dit_inputs* in)
{
    const int32_t text = text_rows(in);
    denoiser_run r = run_of(m, in, &text);
    run_inside(c, &r);
    if (run_dit(c, &r)) compare_velocity(c, &r, 0);
    // prompts that are shorter than their references' places, or than their padding, are none
    r.least_rows = rows_of_references(in) + 1;
    for (int32_t shares = 0; shares < 2 && in->padding == 0 && r.least_rows <= text; shares++) {
        in->shares = shares != 0;
        run_in_batch(c, &r, text);
    }
    in->shares = false;
    const float times[] = {0.9f, 0.25f, in->time}, halves[] = {in->time, in->time / 2};
    r.times = times; // as the last of three
    r.time_count = 3;
    if (run_dit(c, &r)) compare_velocity(c, &r, 0);
    if (has_expected(c, "out_half_t")) { // from what was kept before another time
        r.times = halves;
        r.time_count = 2;
        in->expected = "out_half_t";
        if (run_dit(c, &r)) compare_velocity(c, &r, 0);
    }
    array_free(&r.velocities);
}

// "files": each with the tensor that it gives.
static void run_files(golden_case* c, const node* files)
{
    for (const node* n = files->first; n != NULL; n = n->next) {
        opened_model* m = calloc(1, sizeof *m);
        dit_inputs in = {.reference_count = 0};
        const char *file = json_text(n, "file"), *tensor = json_text(n, "tensor");
        if (file == NULL || tensor == NULL || strncmp(tensor, "expect.", 7) != 0) {
            case_fails(c, "a file has no name or no tensor");
        } else if (open_model(c, file, m) && take_inputs(c, &m->model, &in)) {
            const int32_t text = text_rows(&in);
            denoiser_run r = run_of(m, &in, &text);
            in.expected = tensor + 7;
            if (run_dit(c, &r)) compare_velocity(c, &r, 0);
            array_free(&r.velocities);
        }
        free_inputs(&in);
        close_model(c, m);
        free(m);
    }
}

static void release_adapter(golden_case* c, sumi_adapter_file* file)
{
    const sumi_adapter* adapter = sumi_adapter_get(file);
    for (int32_t d = 0; d < adapter->delta_count; d++)
        runner_release_weights(c->g->runner,
                               (const sumi_weight* const[]){&adapter->deltas[d].down, &adapter->deltas[d].up}, 2);
    sumi_adapter_close(file);
}

// "adapters": each with the tensor that it gives; "file" null: none.
static void run_adapters(golden_case* c, const opened_model* m, dit_inputs* in)
{
    const node* list = json_get(c->json, "adapters");
    // An adapter needs of a network only the weights that it may change.
    sumi_network* network = calloc(1, sizeof *network);
    network->heap = &c->g->heap;
    network->weights = m->component.list;
    network->info.has_text_encoder = true;
    network->info.family = "prefix";
    network->is_open = true;
    for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next) {
        const char *file = json_text(n, "file"), *tensor = json_text(n, "tensor");
        char path[2400];
        sumi_adapter_file* opened = NULL;
        sumi_error error = {0};
        const int32_t text = text_rows(in);
        denoiser_run r = run_of(m, in, &text);
        sumi_adapter_use use = {NULL, (float)json_number(n, "strength", 1.0)};
        if (tensor == NULL || strncmp(tensor, "expect.", 7) != 0) {
            case_fails(c, "an adapter has no tensor");
            continue;
        }
        snprintf(path, sizeof path, "%.2000s/../%.200s", c->folder, file != NULL ? file : "");
        if (file != NULL && open_adapter_file(&c->g->heap, network, path, &error, &opened) != SUMI_OK) {
            case_fails(c, "%s", error.text);
            continue;
        }
        if (opened != NULL) {
            use.adapter = sumi_adapter_get(opened);
            r.uses = &use;
            r.use_count = 1;
        }
        in->expected = tensor + 7;
        if (run_dit(c, &r)) compare_velocity(c, &r, 0);
        array_free(&r.velocities);
        if (opened != NULL) release_adapter(c, opened);
    }
    if (list == NULL) case_fails(c, "the case names no adapters");
    free(network);
}

// ---- Tables at the released sizes -----------------------------------------------------------------------------------

typedef struct table_run {
    golden_case* c;
    denoiser_run r; // its watches
    array times;
    sumi_value text, times_value;
} table_run;

static void write_table_inputs(plan_run* run)
{
    const table_run* t = run->context;
    write_floats(run, t->times_value, 0, t->times.values, t->times.count);
}

static void probe_tables(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    table_run* t = run->context;
    if (t->r.w != NULL) watch_op(run, t->r.w, op, counter, before);
}

// A model of one block and one head of the released size, whose weights are 0: only its tables are of interest.
typedef struct table_model {
    sumi_prefix_dit model;
    sumi_prefix_dit_block block;
    int32_t weight_count;
    float zeros[256 * 512];
} table_model;

static sumi_weight zero_weight(table_model* m, int32_t rows, int32_t cols)
{
    return (sumi_weight){.name = "zeros",
                         .index = m->weight_count++,
                         .rows = rows,
                         .cols = cols,
                         .tensor_count = 1,
                         .tensors = {{.data = m->zeros, .dtype = SUMI_DTYPE_F32, .rows = rows, .scale = 1.0f}}};
}

static table_model* make_table_model(int32_t time_width)
{
    enum { DIM = 128, WIDTH = 8 };
    table_model* m = calloc(1, sizeof *m);
    m->block = (sumi_prefix_dit_block){.qkv = zero_weight(m, 3 * DIM, DIM),
                                       .q_norm = zero_weight(m, 1, DIM),
                                       .k_norm = zero_weight(m, 1, DIM),
                                       .out = zero_weight(m, DIM, DIM),
                                       .gate_up = zero_weight(m, 2 * WIDTH, DIM),
                                       .down = zero_weight(m, DIM, WIDTH)};
    m->model = (sumi_prefix_dit){.settings = &s_settings,
                                 .channels = WIDTH,
                                 .dim = DIM,
                                 .heads = 1,
                                 .head_dim = DIM,
                                 .hidden = WIDTH,
                                 .feature_width = WIDTH,
                                 .time_width = time_width,
                                 .time_hidden = DIM,
                                 .axis_pairs = {8, 28, 28},
                                 .eps = 1e-6f,
                                 .block_count = 1,
                                 .image_in = zero_weight(m, DIM, WIDTH),
                                 .text_norm = zero_weight(m, 1, WIDTH),
                                 .text_in = zero_weight(m, DIM, WIDTH),
                                 .text_out = zero_weight(m, DIM, DIM),
                                 .time_in = zero_weight(m, DIM, time_width),
                                 .time_out = zero_weight(m, DIM, DIM),
                                 .modulation = zero_weight(m, 4 * DIM, DIM),
                                 .final_modulation = zero_weight(m, DIM, DIM),
                                 .final_linear = zero_weight(m, WIDTH, DIM),
                                 .blocks = &m->block};
    return m;
}

static void free_table_model(golden_case* c, table_model* m)
{
    const sumi_prefix_dit* model = &m->model;
    const sumi_prefix_dit_block* block = &m->block;
    const sumi_weight* const weights[] = {&block->qkv,        &block->q_norm,           &block->k_norm,
                                          &block->out,        &block->gate_up,          &block->down,
                                          &model->image_in,   &model->text_norm,        &model->text_in,
                                          &model->text_out,   &model->time_in,          &model->time_out,
                                          &model->modulation, &model->final_modulation, &model->final_linear};
    runner_release_weights(c->g->runner, weights, sizeof weights / sizeof *weights);
    free(m);
}

// The rows that input.NAME.rows lists, of the joint sequence that input.NAME.text and grids describe: text, references,
// text, and the last grid as the target. The evaluation itself is not written.
static void run_rope_table(golden_case* c, const char* name, table_model* m, table_run* t, watcher* w)
{
    char key[64];
    snprintf(key, sizeof key, "%s.text", name);
    array text = input(c, key);
    snprintf(key, sizeof key, "%s.grids", name);
    array grids = input(c, key);
    snprintf(key, sizeof key, "%s.rows", name);
    array rows = input(c, key);
    sumi_plan plan;
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    if (text.count == 2 && grids.rank == 2 && grids.shape[1] == 2 && grids.shape[0] >= 1 && grids.shape[0] <= 3) {
        const int32_t before = (int32_t)text.values[0], count = (int32_t)grids.shape[0] - 1;
        sumi_prompt_features prompt = {.count = {before}};
        sumi_reference_latents references[2];
        for (int32_t i = 0; i < count; i++) {
            references[i].height = (int32_t)grids.values[2 * i];
            references[i].width = (int32_t)grids.values[2 * i + 1];
            references[i].latents = sumi_plan_bound(&plan, "reference", SUMI_ELEMENT_FLOAT, m->model.channels,
                                                    references[i].height * references[i].width);
            prompt.references[i] = (sumi_span){prompt.count[0], 1};
            prompt.count[0]++;
        }
        prompt.count[0] += (int32_t)text.values[1];
        t->text = prompt.value[0] =
            sumi_plan_bound(&plan, "features", SUMI_ELEMENT_ACTIVATION, prompt.count[0], m->model.feature_width);
        t->times_value = sumi_plan_bound(&plan, "times", SUMI_ELEMENT_FLOAT, (int32_t)t->times.count, 1);
        sumi_denoising job = {.height = (int32_t)grids.values[2 * count],
                              .width = (int32_t)grids.values[2 * count + 1],
                              .prompts = &prompt,
                              .prompt_count = 1,
                              .references = references,
                              .reference_count = count,
                              .evaluation_count = (int32_t)t->times.count,
                              .times = t->times_value,
                              .state = calloc(1, sumi_prefix_dit_module.state_bytes)};
        const sumi_evaluation evaluation = {0, 0};
        const sumi_evaluation_list list = {&evaluation, 1, 0};
        sumi_prefix_dit_module.write_prepare(&m->model, &plan, &job);
        sumi_prefix_dit_module.write_layout(&m->model, &plan, &job, &list);
        free(job.state);
        sumi_error error = {0};
        plan_run run = {.c = c, .write = write_table_inputs, .probe = probe_tables, .context = t};
        if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
        else run_plan(&run, &plan);
    } else {
        case_fails(c, "%s: the case lacks text, grids or rows", name);
    }
    // the watches: cosines of prefix and target, then sines
    for (int32_t k = 0; k < 2 && c->by_op && w->list[2 * k].got.values != NULL && w->list[2 * k + 1].got.values != NULL;
         k++) {
        array joint = join_rows(&w->list[2 * k].got, &w->list[2 * k + 1].got);
        array listed = array_make(NULL, 2, (const int64_t[]){rows.count, joint.shape[1]});
        for (int64_t r = 0; r < rows.count; r++) {
            const int64_t from = (int64_t)rows.values[r] < joint.shape[0] ? (int64_t)rows.values[r] : 0;
            memcpy(listed.values + r * joint.shape[1], joint.values + from * joint.shape[1],
                   (size_t)joint.shape[1] * sizeof(float));
        }
        snprintf(key, sizeof key, "%s.%s", name, k == 0 ? "cos" : "sin");
        compare(c, key, &listed);
        array_free(&listed);
        array_free(&joint);
    }
    end_plan(c, &plan);
    array_free(&text);
    array_free(&grids);
    array_free(&rows);
}

static void run_tables(golden_case* c)
{
    static const char* const s_names[] = {"rope_t2i", "rope_edit"};
    array expected = input(c, "time.t");
    table_run t = {.c = c, .times = expected};
    table_model* m = make_table_model(256);
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names && t.times.count > 0; i++) {
        watcher* w = calloc(1, sizeof *w);
        add_watch(w, "cos", WATCH_COS, "prefix.rope");
        add_watch(w, "cos", WATCH_COS, "rope");
        add_watch(w, "sin", WATCH_SIN, "prefix.rope");
        add_watch(w, "sin", WATCH_SIN, "rope");
        add_watch(w, "time.sinusoid", WATCH_ROWS, "time_text_embed.time_embed");
        t.r.w = w;
        run_rope_table(c, s_names[i], m, &t, w);
        array* sinusoid = &w->list[4].got;
        if (i == 0 && c->by_op && sinusoid->values != NULL) {
            sinusoid->shape[0] = t.times.count; // time 0 of the prefix comes after them
            sinusoid->count = t.times.count * sinusoid->shape[1];
            compare(c, "time.sinusoid", sinusoid);
        }
        for (int k = 0; k < w->count; k++) array_free(&w->list[k].got);
        free(w);
    }
    free_table_model(c, m);
    array_free(&expected);
}

bool run_prefix_dit_case(golden_case* c)
{
    const bool is_dit = strcmp(c->kind, "dit") == 0;
    if (strcmp(c->kind, "op") == 0 && has_expected(c, "rope_t2i.cos")) {
        run_tables(c);
        return true;
    }
    if (!is_dit && strcmp(c->kind, "adapter") != 0) return false;
    const node* files = json_get(c->json, "files");
    if (is_dit && files != NULL) {
        run_files(c, files);
        return true;
    }
    opened_model* m = calloc(1, sizeof *m);
    dit_inputs in = {.reference_count = 0};
    if (open_model(c, NULL, m) && take_inputs(c, &m->model, &in)) {
        if (is_dit) run_dit_case(c, m, &in);
        else run_adapters(c, m, &in);
    }
    free_inputs(&in);
    close_model(c, m);
    free(m);
    return true;
}
