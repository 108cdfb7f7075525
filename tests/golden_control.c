// The cases of control nets, for all families that have some: what a file is, and one evaluation of the denoiser with
// nets. Pictures and pipelines: golden_control_pipeline.c.
#include "golden_control.h"
#include "golden_watch.h"
#include "models/control_module.h"
#include "models/network_state.h"
#include "models/next_dit.h"
#include "pictures/pixels.h"
#include "plan_runner.h"
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

// ---- Packed rows ----------------------------------------------------------------------------------------------------

// Of element `feature` of token `token`, in [channels, height * width]: channel slowest, then row and column of the
// patch.
static int64_t plane_index(int64_t height, int64_t width, int64_t token, int64_t feature)
{
    const int64_t columns = width / 2, y = token / columns * 2 + feature / 2 % 2, x = token % columns * 2 + feature % 2;
    return feature / 4 * height * width + y * width + x;
}

// [tokens, 4 * channels] of a grid to [channels, height, width].
static array unpack_rows(const array* rows, int64_t height, int64_t width)
{
    array planes = array_make(NULL, 3, (const int64_t[]){rows->shape[1] / 4, height, width});
    for (int64_t t = 0; t < rows->shape[0]; t++)
        for (int64_t k = 0; k < rows->shape[1]; k++)
            planes.values[plane_index(height, width, t, k)] = rows->values[t * rows->shape[1] + k];
    return planes;
}

array pack_planes(const float* planes, int64_t channels, int64_t height, int64_t width)
{
    array rows = array_make(NULL, 2, (const int64_t[]){height * width / 4, 4 * channels});
    for (int64_t t = 0; t < rows.shape[0]; t++)
        for (int64_t k = 0; k < rows.shape[1]; k++)
            rows.values[t * rows.shape[1] + k] = planes[plane_index(height, width, t, k)];
    return rows;
}

bool is_packed(const golden_case* c)
{
    const char* family = json_text(c->json, "family");
    return family != NULL && strncmp(family, "qwen", 4) == 0;
}

void leave_out(golden_case* c, const char* tensor, const char* why)
{
    const sumi_tensor* found = sumi_tensor_find(&c->set, tensor);
    if (found == NULL) return;
    c->seen[found - c->set.tensors] = true;
    if (!c->by_op) not_checked(c, tensor, why);
}

// ---- Nets -----------------------------------------------------------------------------------------------------------

sumi_control_net* open_control(golden_case* c, const sumi_network* network, const char* file)
{
    char path[2400];
    sumi_error error = {0};
    sumi_control_net* net = NULL;
    float progress;
    bool done = false;
    join_path(path, sizeof path, c->folder, file != NULL ? file : "");
    sumi_result result = sumi_control_net_open_begin(network, NULL, path, &error, &net);
    while (result == SUMI_OK && !done) result = sumi_control_net_open_step(net, 1000, &done, &progress, &error);
    if (result == SUMI_OK) return net;
    case_fails(c, "%s", error.text);
    sumi_control_net_close(net);
    return NULL;
}

void close_control(golden_case* c, sumi_control_net* net)
{
    if (net == NULL) return;
    int32_t count;
    const sumi_weight* const* weights = sumi_control_net_weights(net, &count);
    if (count > 0) runner_release_weights(c->g->runner, weights, (size_t)count);
    sumi_control_net_close(net);
}

bool open_controls(golden_case* c, const sumi_network* network, case_controls* out)
{
    const node* list = json_get(c->json, "control");
    *out = (case_controls){.count = 0};
    for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next) {
        if (out->count == MAX_CASE_CONTROLS) {
            case_fails(c, "the case names more than %d control nets", MAX_CASE_CONTROLS);
            return false;
        }
        const char* kind = json_text(n, "kind");
        sumi_control_net* net = out->nets[out->count] = open_control(c, network, json_text(n, "file"));
        if (net == NULL) return false;
        out->nodes[out->count] = n;
        out->strengths[out->count++] = (float)json_number(n, "strength", 1.0);
        if (kind == NULL || strcmp(kind, sumi_control_net_get_info(net)->kind) != 0) {
            case_fails(c, "the net is a %s, not a %s", sumi_control_net_get_info(net)->kind, kind);
            return false;
        }
    }
    if (out->count == 0) case_fails(c, "the case names no control net");
    return out->count > 0;
}

void close_controls(golden_case* c, case_controls* controls)
{
    for (int32_t k = 0; k < MAX_CASE_CONTROLS; k++) close_control(c, controls->nets[k]);
}

void write_strengths(plan_run* run, const case_controls* controls, sumi_value strengths, int32_t width)
{
    float* values = calloc((size_t)controls->count * (size_t)width + 1, sizeof *values);
    for (int32_t k = 0; k < controls->count; k++)
        for (int32_t i = 0; i < width; i++) values[k * width + i] = controls->strengths[k];
    write_floats(run, strengths, 0, values, (int64_t)controls->count * width);
    free(values);
}

// ---- What a file is -------------------------------------------------------------------------------------------------

// The model for nets of this family, as another case of the folder names it. NULL: there is none.
static node* case_of_family(golden_case* c, const char* family)
{
    DIR* folder = opendir(c->folder);
    node* found = NULL;
    for (struct dirent* entry; folder != NULL && found == NULL && (entry = readdir(folder)) != NULL;) {
        char path[2600], message[SUMI_ERROR_TEXT_BYTES];
        const size_t bytes = strlen(entry->d_name);
        if (bytes < 5 || strcmp(entry->d_name + bytes - 5, ".json") != 0) continue;
        join_path(path, sizeof path, c->folder, entry->d_name);
        node* json = json_read(path, message, sizeof message);
        const char* its_family = json != NULL ? json_text(json, "family") : NULL;
        if (its_family != NULL && strcmp(its_family, family) == 0 && json_text(json, "model") != NULL) found = json;
        else json_free(json);
    }
    if (folder != NULL) closedir(folder);
    return found;
}

// Compares the places of hint number `hint`, or of all, with a list of layers.
static bool has_places(const sumi_control_net_info* info, const node* list)
{
    int32_t i = 0;
    for (const node* n = list->first; n != NULL; n = n->next, i++)
        if (i >= info->place_count || info->places[i] != (int32_t)n->number) return false;
    return i == info->place_count;
}

static bool has_hints(const sumi_control_net_info* info, const node* list)
{
    int32_t i = 0;
    for (const node* n = list->first; n != NULL; n = n->next, i++)
        if (i >= info->place_count || info->places[i] != i || info->hints[i] != (int32_t)n->number) return false;
    return i == info->place_count;
}

static void detect_file(golden_case* c, const node* file)
{
    const char *path = json_text(file, "file"), *family = json_text(file, "family"), *kind = json_text(file, "kind");
    node* base = family != NULL ? case_of_family(c, family) : NULL;
    sumi_network* network = base != NULL ? case_network(c, base) : NULL;
    if (base == NULL) case_fails(c, "%s: no case of the folder names a model of its family", path);
    sumi_control_net* net = network != NULL ? open_control(c, network, path) : NULL;
    if (net != NULL) {
        const sumi_control_net_info* info = sumi_control_net_get_info(net);
        const int32_t channels = sumi_control_channels(info->planes, network->info.latent_channels),
                      wanted = (int32_t)json_number(file, "control_channels", -1);
        const node *places = json_get(file, "base_layers_with_hint"), *hints = json_get(file, "hint_of_base_layer");
        char what[2400];
        snprintf(what, sizeof what, "kind of %s", path);
        report(c, what, 0, 0, kind != NULL && strcmp(kind, info->kind) == 0);
        snprintf(what, sizeof what, "channels of %s", path);
        report(c, what, abs(channels - wanted), 0, channels == wanted);
        snprintf(what, sizeof what, "places of %s", path);
        report(c, what, 0, 0,
               (places != NULL || hints != NULL) && (places == NULL || has_places(info, places))
                   && (hints == NULL || has_hints(info, hints)));
    }
    close_control(c, net);
    json_free(base);
}

static void run_detect(golden_case* c)
{
    const node* files = json_get(c->json, "files");
    if (files == NULL || files->first == NULL) case_fails(c, "the case names no files");
    for (const node* n = files != NULL ? files->first : NULL; n != NULL; n = n->next) detect_file(c, n);
}

// ---- One evaluation -------------------------------------------------------------------------------------------------

typedef struct forward {
    sumi_network* network;
    case_controls controls;
    array latents, text, planes[MAX_CASE_CONTROLS]; // planes: [channels, height, width]
    int64_t text_rows;                              // that are not masked
    float time;
    bool is_packed; // the case has rows of packed patches
    watcher* w;
    sumi_value x, features, times, strengths, control_planes[MAX_CASE_CONTROLS];
    int32_t width;      // of the stream
    int32_t sums_alone; // is_sum_alone
    array velocity;
} forward;

static void free_forward(golden_case* c, forward* f)
{
    for (int32_t k = 0; k < MAX_CASE_CONTROLS; k++) array_free(&f->planes[k]);
    array_free(&f->latents);
    array_free(&f->text);
    array_free(&f->velocity);
    close_controls(c, &f->controls);
}

// An input as planes.
static array planes_of(const golden_case* c, const char* name, int64_t height, int64_t width)
{
    array in = input(c, name);
    if (in.values == NULL || in.rank != 2 || in.shape[0] * 4 != height * width) return in;
    array planes = unpack_rows(&in, height, width);
    array_free(&in);
    return planes;
}

static bool take_forward(golden_case* c, forward* f)
{
    const node* grid = json_get(c->json, "target_grid");
    int64_t height = 0, width = 0;
    f->is_packed = is_packed(c) && grid != NULL && grid->first != NULL && grid->first->next != NULL;
    if (f->is_packed) {
        height = 2 * (int64_t)grid->first->number;
        width = 2 * (int64_t)grid->first->next->number;
    }
    f->latents = f->is_packed ? planes_of(c, "x", height, width) : input(c, "latent");
    f->text = input(c, f->is_packed ? "txt" : "cap_feats");
    array t = input(c, "t"), mask = input(c, "mask");
    bool good = f->latents.rank == 3 && f->text.rank == 2 && t.count == 1;
    f->time = good ? t.values[0] : 0;
    f->text_rows = good ? f->text.shape[0] : 0;
    for (int64_t i = 0; good && i < mask.count; i++) f->text_rows -= mask.values[i] == 0;
    for (int32_t k = 0; k < f->controls.count && good; k++) {
        char name[32];
        snprintf(name, sizeof name, "control.%d", (int)k);
        f->planes[k] = f->is_packed ? planes_of(c, name, height, width) : input(c, "control");
        const sumi_control_net_info* info = sumi_control_net_get_info(f->controls.nets[k]);
        good = f->planes[k].rank == 3
            && f->planes[k].shape[0] == sumi_control_channels(info->planes, (int32_t)f->latents.shape[0])
            && f->planes[k].shape[1] == f->latents.shape[1] && f->planes[k].shape[2] == f->latents.shape[2];
    }
    array_free(&t);
    array_free(&mask);
    if (!good) case_fails(c, "the case lacks latents, text, t or control, or they do not fit the nets");
    return good;
}

static void write_forward(plan_run* run)
{
    const forward* f = run->context;
    write_floats(run, f->x, 0, f->latents.values, f->latents.count);
    write_floats(run, f->features, 0, f->text.values, f->text_rows * f->text.shape[1]);
    write_floats(run, f->times, 0, &f->time, 1);
    for (int32_t k = 0; k < f->controls.count; k++)
        write_floats(run, f->control_planes[k], 0, f->planes[k].values, f->planes[k].count);
    write_strengths(run, &f->controls, f->strengths, f->width);
}

// Whether this is a block's last sum in Z-Image, and the next op is no norm of the same rows, with which it would be one
// op on a GPU.
static bool is_sum_alone(const sumi_op* op)
{
    const size_t bytes = strlen(op->label), end = strlen(".ffn_norm2");
    return op->kind == SUMI_OP_NORM_GATE_ADD && bytes > end && strcmp(op->label + bytes - end, ".ffn_norm2") == 0
        && strncmp(op->label, "context_", 8) != 0
        && (op[1].kind != SUMI_OP_NORM_MODULATE || op[1].in[0].id != op->out.id);
}

static void probe_forward(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    forward* f = run->context;
    f->sums_alone += before && is_sum_alone(op);
    if (f->w != NULL) watch_op(run, f->w, op, counter, before);
}

static bool run_one(golden_case* c, forward* f)
{
    const int32_t channels = (int32_t)f->latents.shape[0], height = (int32_t)f->latents.shape[1],
                  width = (int32_t)f->latents.shape[2];
    const sumi_denoiser_module* module = f->network->recipe->denoiser;
    sumi_planned_control controls[MAX_CASE_CONTROLS];
    sumi_plan plan;
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    f->width = module->properties(f->network->denoiser).stream_width;
    f->sums_alone = 0;
    f->x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, channels, height * width);
    f->features =
        sumi_plan_bound(&plan, "features", SUMI_ELEMENT_ACTIVATION, (int32_t)f->text_rows, (int32_t)f->text.shape[1]);
    f->times = sumi_plan_bound(&plan, "times", SUMI_ELEMENT_FLOAT, 1, 1);
    f->strengths = sumi_plan_bound(&plan, "strengths", SUMI_ELEMENT_FLOAT, 1, f->controls.count * f->width);
    for (int32_t k = 0; k < f->controls.count; k++) {
        f->control_planes[k] = sumi_plan_bound(&plan, "control_planes", SUMI_ELEMENT_FLOAT,
                                               (int32_t)f->planes[k].shape[0], height * width);
        controls[k] = sumi_control_of(f->controls.nets[k]);
        controls[k].planes = f->control_planes[k];
        controls[k].picture_count = 1;
        controls[k].strength = (sumi_step_row){f->strengths, k * f->width, false};
        controls[k].state = calloc(1, controls[k].module->state_bytes);
    }
    const sumi_prompt_features prompt = {.value = {f->features}, .count = {(int32_t)f->text_rows}};
    const sumi_evaluation evaluation = {0, 0};
    const sumi_evaluation_list list = {&evaluation, 1, 0};
    sumi_denoising job = {.height = height,
                          .width = width,
                          .prompts = &prompt,
                          .prompt_count = 1,
                          .evaluation_count = 1,
                          .times = f->times,
                          .controls = controls,
                          .control_count = f->controls.count,
                          .active_controls = (1u << f->controls.count) - 1,
                          .computes_unused_rows = f->w != NULL};
    plan_run run = {.c = c, .write = write_forward, .probe = probe_forward, .context = f};
    const bool good = run_denoiser(&run, module, f->network->denoiser, &plan, &job, &list, f->x, &f->velocity);
    for (int32_t k = 0; k < f->controls.count; k++) free(controls[k].state);
    // the denoiser and every net end with such a sum in both stages
    if (good && f->sums_alone > 2 + 2 * f->controls.count)
        case_fails(c, "%d sums and norms that a GPU could compute as one are apart", f->sums_alone);
    return good;
}

// Tensors of the inside, and the ops that make them. Each has an index but for the last.
static const struct {
    const char *expected, *labels[2];
} s_inside[] = {
    {"refiner_hint.", {"control_noise_refiner.%d.after_proj", "control_layers.image_%d.after_proj"}},
    {"hint.", {"control_layers.%d.after_proj", "control_layers.%d.after_proj"}},
    {"added.", {"control.%d.hint", "control.%d.hint"}},
};

// Adds a watch of both possible labels; the op that is in the plan fills one of them.
static void watch_inside(golden_case* c, watcher* w)
{
    for (size_t i = 0; i < c->set.count; i++) {
        const char* name = expected_name(c, i);
        for (size_t k = 0; name != NULL && k < sizeof s_inside / sizeof *s_inside; k++) {
            const size_t bytes = strlen(s_inside[k].expected);
            if (strncmp(name, s_inside[k].expected, bytes) != 0) continue;
            for (int l = 0; l < (strcmp(s_inside[k].labels[0], s_inside[k].labels[1]) == 0 ? 1 : 2); l++) {
                char label[96];
                const char *format = s_inside[k].labels[l], *number = strstr(format, "%d");
                snprintf(label, sizeof label, "%.*s%d%s", (int)(number - format), format, atoi(name + bytes),
                         number + 2);
                add_watch(w, name, WATCH_PRODUCT, "%s", label);
            }
        }
    }
}

// The stored tensors have every n-th row of what was computed.
static void compare_rows(golden_case* c, const char* name, const array* got)
{
    char key[160];
    snprintf(key, sizeof key, "expect.%s", name);
    const sumi_tensor* tensor = sumi_tensor_find(&c->set, key);
    if (tensor == NULL || got->values == NULL || tensor->rank != 2) return;
    const node *tensors = json_get(c->json, "tensors"), *one = tensors != NULL ? json_get(tensors, key) : NULL;
    const char *about = one != NULL ? json_text(one, "about") : NULL,
               *every = about != NULL ? strstr(about, "every ") : NULL;
    const int64_t step = every != NULL ? atoi(every + 6) : 1, width = got->count / got->shape[0];
    array part = array_make(NULL, 2, (const int64_t[]){tensor->shape[0], width});
    for (int64_t r = 0; r < tensor->shape[0] && r * step < got->shape[0]; r++)
        memcpy(part.values + r * width, got->values + r * step * width, (size_t)width * sizeof(float));
    compare(c, name, &part);
    array_free(&part);
}

static void compare_inside(golden_case* c, forward* f, watcher* w)
{
    const float strength = f->controls.strengths[0];
    for (int i = 0; i < w->count; i++) {
        watch* one = &w->list[i];
        const bool is_scaled = strncmp(one->expected, "added.", 6) == 0;
        for (int64_t k = 0; k < one->got.count && is_scaled; k++) one->got.values[k] *= strength;
        if (c->by_op) compare_rows(c, one->expected, &one->got);
        array_free(&one->got);
        free(one->before);
    }
}

// Compares the output.
static void compare_out(golden_case* c, forward* f)
{
    const int64_t channels = f->latents.shape[0], height = f->latents.shape[1], width = f->latents.shape[2];
    // Z-Image's tensor is the network's output, the velocity with another sign
    for (int64_t i = 0; i < f->velocity.count && !f->is_packed; i++) f->velocity.values[i] = -f->velocity.values[i];
    array out = f->is_packed ? pack_planes(f->velocity.values, channels, height, width)
                             : array_make(f->velocity.values, 3, f->latents.shape);
    compare(c, "out", &out);
    array_free(&out);
}

// A second run computes the rows that nothing reads, whose hints are stored too.
static void run_forward(golden_case* c)
{
    forward f = {.network = case_network(c, c->json)};
    if (f.network == NULL) return;
    if (open_controls(c, f.network, &f.controls) && take_forward(c, &f)) {
        if (run_one(c, &f)) compare_out(c, &f);
        watcher* w = f.w = calloc(1, sizeof *f.w);
        watch_inside(c, w);
        if (has_expected(c, "refined_control")) { // the stream after its last block in the refiner stage
            const sumi_next_dit* base = f.network->denoiser;
            add_watch(w, "refined_control", WATCH_ROWS, "control_noise_refiner.%d.ffn_norm2",
                      (int)base->refiner_count - 1);
            add_watch(w, "refined_control", WATCH_ROWS, "control_layers.image_%d.ffn_norm2",
                      (int)sumi_control_net_get_info(f.controls.nets[0])->place_count - 1);
        }
        if (w->count > 0 && run_one(c, &f)) compare_inside(c, &f, w);
        leave_out(c, "expect_diffusers.out",
                  "diffusers keeps the refiner's hints from the denoiser; the nets were "
                  "trained by the authors' rule");
        free(w);
    }
    free_forward(c, &f);
}

bool run_control_case(golden_case* c)
{
    if (strcmp(c->kind, "control_detect") == 0) run_detect(c);
    else if (strcmp(c->kind, "control") == 0) run_forward(c);
    else if (strcmp(c->kind, "control_input") == 0) run_control_input(c);
    else if (strcmp(c->kind, "control_pipeline") == 0) run_control_pipeline(c);
    else return false;
    return true;
}
