// Cases of the Qwen-Image family about pictures that go into a prompt: the vision tower, its windows, its rotary table
// and attention at the released sizes, resizes and the rules of sizes.
#include "golden_pictures.h"
#include "golden_qwen_image.h"
#include "golden_watch.h"
#include "models/network_state.h"
#include "models/qwen_vision.h"
#include "pictures/picture_sizes.h"
#include "pictures/pixels.h"
#include "plan_runner.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Whether `from`, resized to the size of `want`, is `want` byte for byte.
static void compare_resize(golden_case* c, const char* label, const picture_file* from, const picture_file* want,
                           sumi_filter filter)
{
    const size_t bytes = 3 * (size_t)want->width * (size_t)want->height;
    uint8_t* got = calloc(bytes + 1, 1);
    sumi_error error = {0};
    int64_t different = 0;
    if (sumi_pixels_resize(&c->g->heap, &(sumi_pixels){from->pixels, from->width, from->height, 3 * from->width, 3},
                           &(sumi_resized_pixels){got, want->width, want->height, filter}, &error)
        != SUMI_OK)
        case_fails(c, "%s", error.text);
    for (size_t i = 0; i < bytes; i++) different += got[i] != want->pixels[i];
    report(c, label, (double)different, 0, different == 0);
    free(got);
}

// ---- The tower ------------------------------------------------------------------------------------------------------

typedef struct vision_job {
    picture_file picture;
    sumi_value pixels, rows;
    watcher w;
} vision_job;

static void write_picture(plan_run* run)
{
    const vision_job* job = run->context;
    golden* g = run->c->g;
    g->runner->functions->write(g->runner, run->plan, job->pixels, 0, job->picture.pixels,
                                3 * (uint64_t)job->picture.width * (uint64_t)job->picture.height);
}

static void probe_vision(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    vision_job* job = run->context;
    watch_op(run, &job->w, op, counter, before);
}

static void watch_vision(const golden_case* c, watcher* w, int index)
{
    char mine[16];
    snprintf(mine, sizeof mine, "%d.", index);
    for (size_t i = 0; i < c->set.count; i++) {
        const char* name = expected_name(c, i);
        int block;
        if (name == NULL || strncmp(name, mine, strlen(mine)) != 0) continue;
        const char* rest = name + strlen(mine);
        // A GPU has them in bfloat16, as the reference's tower has; what is stored is from before that.
        if (strcmp(rest, "pixel_values_rows") == 0 && !c->g->is_gpu)
            add_watch(w, name, WATCH_ROWS, "vision.patches_in");
        if (strcmp(rest, "patch_embed") == 0) add_watch(w, name, WATCH_ROWS, "vision.patch_embed");
        if (strcmp(rest, "cos") == 0) add_watch(w, name, WATCH_COS, "vision.rope");
        if (strcmp(rest, "sin") == 0) add_watch(w, name, WATCH_SIN, "vision.rope");
        if (sscanf(rest, "attn%d", &block) == 1) add_watch(w, name, WATCH_BRANCH, "vision.blocks.%d.attn.proj", block);
        if (sscanf(rest, "block%d", &block) == 1)
            add_watch(w, name, WATCH_ROWS, "vision.blocks.%d.mlp.down_proj", block);
    }
}

static array numbered_input(const golden_case* c, int index, const char* what)
{
    char name[64];
    snprintf(name, sizeof name, "%d.%s", index, what);
    return input(c, name);
}

// Rows in the order of the picture's cells, of rows in the order of its windows.
static array undo_windows(const array* rows, const array* order)
{
    array out = array_make(NULL, rows->rank, rows->shape);
    const int64_t per_cell = rows->shape[0] / order->count, width = rows->shape[1];
    for (int64_t r = 0; r < rows->shape[0]; r++) {
        const int64_t to = (int64_t)order->values[r / per_cell] * per_cell + r % per_cell;
        memcpy(out.values + to * width, rows->values + r * width, (size_t)width * sizeof(float));
    }
    return out;
}

static array pick_rows(const array* rows, const array* which)
{
    array out = array_make(NULL, 2, (const int64_t[]){which->count, rows->shape[1]});
    for (int64_t i = 0; i < which->count; i++) {
        const int64_t row = (int64_t)which->values[i];
        if (row >= 0 && row < rows->shape[0])
            memcpy(out.values + i * rows->shape[1], rows->values + row * rows->shape[1],
                   (size_t)rows->shape[1] * sizeof(float));
    }
    return out;
}

// What the reference has before it orders by windows is compared in that order, its patches as the rows that it kept.
static void reorder_watches(const golden_case* c, watcher* w, int index)
{
    array order = numbered_input(c, index, "window_index"), kept = numbered_input(c, index, "pixel_rows");
    for (int i = 0; i < w->count && order.values != NULL; i++) {
        watch* one = &w->list[i];
        const char* rest = strchr(one->expected, '.') + 1;
        const bool is_pixels = strcmp(rest, "pixel_values_rows") == 0;
        if (one->got.values == NULL || one->got.shape[0] % order.count != 0
            || !(is_pixels || strcmp(rest, "patch_embed") == 0 || strcmp(rest, "cos") == 0 || strcmp(rest, "sin") == 0))
            continue;
        array natural = undo_windows(&one->got, &order);
        array_free(&one->got);
        one->got = natural;
        if (is_pixels && kept.values != NULL) {
            one->got = pick_rows(&natural, &kept);
            array_free(&natural);
        }
    }
    array_free(&order);
    array_free(&kept);
}

static void run_picture(golden_case* c, const sumi_qwen_vision* model, int index, vision_job* job)
{
    const sumi_vision_properties properties = sumi_qwen_vision_module.properties(model);
    const int32_t height = job->picture.height, width = job->picture.width;
    char name[32];
    sumi_plan plan;
    sumi_error error = {0};
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
    job->pixels = sumi_plan_bound(&plan, "pixels", SUMI_ELEMENT_BYTE, height * width, 3);
    job->rows = sumi_plan_bound(&plan, "rows", SUMI_ELEMENT_ACTIVATION,
                                height / properties.cell * (width / properties.cell), properties.width);
    const sumi_value made = sumi_qwen_vision_module.write(model, &plan, job->pixels, height, width).value;
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = made, .y = job->rows});
    plan_run run = {.c = c, .write = write_picture, .probe = probe_vision, .context = job};
    watch_vision(c, &job->w, index);
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        array rows = read_array(&run, job->rows);
        snprintf(name, sizeof name, "%d.merger", index);
        compare(c, name, &rows);
        array_free(&rows);
        reorder_watches(c, &job->w, index);
        compare_watches(c, &job->w);
    }
    end_plan(c, &plan);
}

static bool open_tower(golden_case* c, case_component* component, sumi_qwen_vision* model)
{
    sumi_file processor_file = {0};
    sumi_error error = {0};
    bool good = open_component(c, SUMI_COMPONENT_VISION, "the vision tower", component)
             && open_checkpoint_file(c, "processor/preprocessor_config.json", &processor_file);
    if (good) {
        const sumi_module_config processor = {
            .data = processor_file.data, .bytes = (size_t)processor_file.bytes, .path = "preprocessor_config.json"};
        component->binder.error = &error;
        good = sumi_qwen_vision_module.bind(model, NULL, &component->binder, &component->config, &processor) == SUMI_OK;
        if (!good) case_fails(c, "%s", error.text);
    }
    sumi_file_close(&processor_file);
    return good;
}

// Order and ends of windows as the reference has them; its list of ends begins with 0 and counts patches.
static void compare_windows(golden_case* c, const char* label, int32_t high, int32_t wide, int32_t merge,
                            int32_t window, const array* order, const array* ends)
{
    const int32_t cells = high * wide, most = ((high - 1) / window + 1) * ((wide - 1) / window + 1);
    int32_t* got = calloc((size_t)(cells + most), sizeof *got);
    const int32_t count = sumi_qwen_vision_windows(high, wide, window, got, got + cells);
    int different = order->count != cells || ends->count != count + 1;
    for (int32_t i = 0; i < cells && different == 0; i++) different += got[i] != (int32_t)order->values[i];
    for (int32_t i = 0; i < count && different == 0; i++)
        different += got[cells + i] * merge * merge != (int32_t)ends->values[i + 1];
    report(c, label, different, 0, different == 0);
    free(got);
}

static void run_windows(golden_case* c, const sumi_qwen_vision* model)
{
    for (size_t i = 0; i < c->set.count; i++) {
        int high, wide, used = 0;
        if (sscanf(c->set.tensors[i].name, "input.window_index.%dx%d%n", &high, &wide, &used) != 2 || used == 0)
            continue;
        char name[64], label[64];
        snprintf(name, sizeof name, "cu_window_seqlens.%dx%d", high, wide);
        snprintf(label, sizeof label, "windows of %d x %d patches", high, wide);
        array order = array_of(&c->set.tensors[i]), ends = input(c, name);
        compare_windows(c, label, high / model->tower.merge, wide / model->tower.merge, model->tower.merge,
                        model->window, &order, &ends);
        array_free(&order);
        array_free(&ends);
    }
}

static void run_vision(golden_case* c)
{
    case_component component = {0};
    sumi_qwen_vision model = {0};
    const node* list = json_get(c->json, "images");
    if (open_tower(c, &component, &model)) {
        const sumi_vision_properties properties = sumi_qwen_vision_module.properties(&model);
        const sumi_size_limits limits = {properties.cell, properties.min_pixels, properties.max_pixels,
                                         LONGEST_PICTURE_RATIO};
        if (!c->by_op) run_windows(c, &model);
        int index = 0;
        for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next, index++) {
            vision_job job = {.pixels = SUMI_NO_VALUE};
            picture_file given = {0};
            char label[64];
            if (read_case_png(c, json_text(n, "image"), &given)
                && read_case_png(c, json_text(n, "resized"), &job.picture)) {
                sumi_picture_size size = {0};
                sumi_error error = {0};
                snprintf(label, sizeof label, "%d.size", index);
                bool same =
                    sumi_picture_size_within((sumi_picture_size){given.width, given.height}, &limits, &size, &error)
                        == SUMI_OK
                    && size.width == job.picture.width && size.height == job.picture.height;
                report(c, label, !same, 0, same);
                snprintf(label, sizeof label, "%d.resized", index);
                compare_resize(c, label, &given, &job.picture, SUMI_FILTER_BICUBIC);
                array order = numbered_input(c, index, "window_index"),
                      ends = numbered_input(c, index, "cu_window_seqlens");
                snprintf(label, sizeof label, "%d.windows", index);
                compare_windows(c, label, job.picture.height / properties.cell, job.picture.width / properties.cell,
                                model.tower.merge, model.window, &order, &ends);
                array_free(&order);
                array_free(&ends);
                run_picture(c, &model, index, &job);
            }
            picture_free(&given);
            picture_free(&job.picture);
        }
    }
    close_component(c, &component);
}

// ---- Resizes and sizes ----------------------------------------------------------------------------------------------

static void run_resizes(golden_case* c, const node* list)
{
    int index = 0;
    for (const node* n = list->first; n != NULL; n = n->next, index++) {
        static const struct {
            const char* key;
            sumi_filter filter;
        } s_filters[] = {{"lanczos", SUMI_FILTER_LANCZOS}, {"bicubic", SUMI_FILTER_BICUBIC}};
        for (size_t f = 0; f < sizeof s_filters / sizeof *s_filters; f++) {
            picture_file given = {0}, want = {0};
            char label[64];
            snprintf(label, sizeof label, "%d.%s", index, s_filters[f].key);
            if (read_case_png(c, json_text(n, "input"), &given)
                && read_case_png(c, json_text(n, s_filters[f].key), &want))
                compare_resize(c, label, &given, &want, s_filters[f].filter);
            picture_free(&given);
            picture_free(&want);
        }
    }
}

// {width, height} of a list of two numbers; zeros when there is none.
static sumi_picture_size size_of(const node* list)
{
    if (list == NULL || list->type != NODE_LIST || list->count != 2) return (sumi_picture_size){0, 0};
    return (sumi_picture_size){(int32_t)list->first->number, (int32_t)list->first->next->number};
}

static bool is_size(sumi_result result, sumi_picture_size got, sumi_picture_size want)
{
    if (want.width == 0) return result == SUMI_INVALID_ARGUMENT; // the reference refuses it
    return result == SUMI_OK && got.width == want.width && got.height == want.height;
}

static bool are_sizes_good(sumi_picture_size picture, const node* about, int64_t area, const sumi_size_limits* limits)
{
    sumi_picture_size size = {0}, seen = {0};
    sumi_error error = {0};
    const sumi_picture_size want = size_of(json_get(about, "size")), want_seen = size_of(json_get(about, "vl"));
    const sumi_result made = sumi_picture_size_of_area(picture, area, 32, &size, &error);
    const sumi_result looked = sumi_picture_size_within(size, limits, &seen, &error);
    return is_size(made, size, want) && is_size(looked, seen, want_seen)
        && (want_seen.width == 0
            || seen.width / limits->multiple * (seen.height / limits->multiple)
                   == (int32_t)json_number(about, "rows", -1));
}

// The sizes that a recipe gives a reference, against the row's: `read` of what the autoencoder reads, `seen` of what
// the vision tower sees. Sides beyond the recipe's limit are refused.
static bool are_references_good(const sumi_network* network, sumi_picture_size picture, const node* read,
                                const node* seen)
{
    const sumi_picture_size want_read = size_of(json_get(read, "size")), want_first = size_of(json_get(seen, "size")),
                            want_seen = size_of(json_get(seen, "vl"));
    const int32_t most = network->info.max_side;
    const bool is_refused = want_seen.width == 0 || want_read.width > most || want_read.height > most
                         || want_seen.width > most || want_seen.height > most;
    sumi_reference_sizes got = {.tokens = 0};
    sumi_error error = {0};
    const sumi_result result = sumi_network_reference_sizes(network, picture, &got, &error);
    if (is_refused) return result == SUMI_INVALID_ARGUMENT && error.text[0] != 0;
    return is_size(result, got.autoencoder, want_read) && is_size(result, got.first, want_first)
        && is_size(result, got.vision, want_seen) && got.tokens == (int32_t)json_number(seen, "rows", -1);
}

static void run_recipe_sizes(golden_case* c, const node* list, const char* model, const char* seen)
{
    const sumi_network* network = layered_network(c, model);
    int count = 0, wrong = 0;
    if (network == NULL) return;
    for (const node* n = list->first; n != NULL; n = n->next, count++) {
        const sumi_picture_size picture = size_of(json_get(n, "image"));
        const bool good = are_references_good(network, picture, json_get(n, "edit"), json_get(n, seen));
        if (!good) printf("  other sizes for %d x %d\n", (int)picture.width, (int)picture.height);
        wrong += !good;
    }
    char label[64];
    snprintf(label, sizeof label, "%d references of %s", count, model);
    report(c, label, wrong, 0, wrong == 0 && count > 0);
}

static void run_sizes(golden_case* c, const node* list)
{
    // those of the released processor and pipelines
    const sumi_size_limits limits = {28, 3136, 12845056, LONGEST_PICTURE_RATIO};
    int count = 0, wrong = 0;
    for (const node* n = list->first; n != NULL; n = n->next, count++) {
        const sumi_picture_size picture = size_of(json_get(n, "image"));
        sumi_picture_size own = {0};
        sumi_error error = {0};
        bool good = are_sizes_good(picture, json_get(n, "edit"), 1024 * 1024, &limits)
                 && are_sizes_good(picture, json_get(n, "cond"), 384 * 384, &limits)
                 && is_size(sumi_picture_size_within(picture, &limits, &own, &error), own,
                            size_of(json_get(n, "smart_resize")));
        if (!good) printf("  other sizes for %d x %d\n", (int)picture.width, (int)picture.height);
        wrong += !good;
    }
    char label[64];
    snprintf(label, sizeof label, "sizes of %d pictures", count);
    report(c, label, wrong, 0, wrong == 0 && count > 0);
    run_recipe_sizes(c, list, "edit", "edit");
    run_recipe_sizes(c, list, "edit-2509", "cond");
}

// ---- Ops at the released sizes --------------------------------------------------------------------------------------

static void run_rope(golden_case* c)
{
    array positions = input(c, "vit_rope.yx");
    const sumi_tensor* want = sumi_tensor_find(&c->set, "expect.vit_rope.cos");
    if (positions.values != NULL && positions.rank == 2 && want != NULL && want->rank == 2) {
        const int32_t rows = (int32_t)positions.shape[0], quarter = (int32_t)want->shape[1] / 2;
        int32_t* numbers = calloc((size_t)positions.count + 1, sizeof *numbers);
        for (int64_t i = 0; i < positions.count; i++) numbers[i] = (int32_t)positions.values[i];
        watcher w = {.count = 0};
        sumi_plan plan;
        sumi_error error = {0};
        begin_plan(c, &plan);
        sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
        sumi_value at = sumi_plan_constant(&plan, "positions", SUMI_ELEMENT_INT, rows, 2, numbers);
        sumi_plan_rope_table(
            &plan, &(sumi_plan_rope_args){.positions = at, .axes = 2, .pairs = {quarter, quarter}, .theta = 10000.0});
        add_watch(&w, "vit_rope.cos", WATCH_COS, "rope");
        add_watch(&w, "vit_rope.sin", WATCH_SIN, "rope");
        vision_job job = {.w = w};
        plan_run run = {.c = c, .probe = probe_vision, .context = &job};
        if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
        else if (run_plan(&run, &plan)) compare_watches(c, &job.w);
        end_plan(c, &plan);
        free(numbers);
    }
    array_free(&positions);
}

typedef struct attention_job {
    sumi_value qkv;
    float* values;
    int64_t count;
} attention_job;

static void write_qkv(plan_run* run)
{
    const attention_job* job = run->context;
    write_floats(run, job->qkv, 0, job->values, job->count);
}

// q, k and v [rows, heads, dim] of NAME as the columns of one matrix; NULL when one is missing.
static float* join_heads(const golden_case* c, const char* name, int64_t shape[3])
{
    static const char* const s_parts[] = {"q", "k", "v"};
    float* joined = NULL;
    for (int p = 0; p < 3; p++) {
        char part[64];
        snprintf(part, sizeof part, "%s.%s", name, s_parts[p]);
        array x = input(c, part);
        const bool fits = x.values != NULL && x.rank == 3 && (p == 0 || memcmp(x.shape, shape, 3 * sizeof *shape) == 0);
        if (fits && p == 0) {
            memcpy(shape, x.shape, 3 * sizeof *shape);
            joined = calloc(3 * (size_t)x.count + 1, sizeof *joined);
        }
        const int64_t width = fits ? shape[1] * shape[2] : 0;
        for (int64_t r = 0; fits && joined != NULL && r < shape[0]; r++)
            memcpy(joined + (3 * r + p) * width, x.values + r * width, (size_t)width * sizeof *joined);
        array_free(&x);
        if (!fits) {
            free(joined);
            return NULL;
        }
    }
    return joined;
}

static void run_attention(golden_case* c, const char* name)
{
    int64_t shape[3] = {0};
    float* qkv = join_heads(c, name, shape);
    if (qkv == NULL) return;
    const int32_t rows = (int32_t)shape[0], heads = (int32_t)shape[1], dim = (int32_t)shape[2];
    const sumi_sequence all = {.span = {{0, rows}}, .span_count = 1, .query_spans = 1};
    const sumi_attention attention = {.q_heads = heads,
                                      .kv_heads = heads,
                                      .dim = dim,
                                      .scale = 1.0f / sqrtf((float)dim),
                                      .sequences = &all,
                                      .sequence_count = 1};
    sumi_plan plan;
    sumi_error error = {0};
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
    attention_job job = {.values = qkv, .count = 3 * shape[0] * shape[1] * shape[2]};
    job.qkv = sumi_plan_bound(&plan, "qkv", SUMI_ELEMENT_ACTIVATION, rows, 3 * heads * dim);
    sumi_value out = sumi_plan_bound(&plan, "out", SUMI_ELEMENT_ACTIVATION, rows, heads * dim);
    sumi_plan_copy_rows(
        &plan, &(sumi_plan_copy_args){.x = sumi_plan_attention(&plan, "attention", job.qkv, &attention), .y = out});
    plan_run run = {.c = c, .write = write_qkv, .context = &job};
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        char expected[64];
        array got = read_array(&run, out);
        snprintf(expected, sizeof expected, "%s.out", name);
        compare(c, expected, &got);
        array_free(&got);
    }
    end_plan(c, &plan);
    free(qkv);
}

bool run_qwen_vision_case(golden_case* c)
{
    const node *vectors = json_get(c->json, "vectors"), *rows = json_get(c->json, "rows");
    if (strcmp(c->kind, "vision") == 0) run_vision(c);
    else if (strcmp(c->kind, "preprocess") == 0 && vectors != NULL) run_resizes(c, vectors);
    else if (strcmp(c->kind, "schedule") == 0 && rows != NULL) run_sizes(c, rows);
    else if (strcmp(c->kind, "op") == 0) {
        run_rope(c);
        run_attention(c, "attn80");
        run_attention(c, "attn128");
        run_attention(c, "attn384");
    } else return false;
    return true;
}
