// Control nets are told by their tensors, as the library does. Which layers of the model take a hint is in no tensor,
// and depends on the model: without --model it is told for the released one.
#include "control_inspection.h"
#include "commands.h"
#include "files.h"
#include "json_out.h"
#include "licence.h"
#include "session.h"
#include <stdio.h>
#include <string.h>

typedef struct control_kind {
    const char *network, *models; // whose nets they are
    const char *layers, *input;   // prefix of the layers; the embedder of control pictures
    int32_t base_layers;          // of the released model
    bool is_fun;                  // of image models; its mask comes between two latents
} control_kind;

static const control_kind s_kinds[] = {
    {"z-image-fun", "Z-Image", "control_layers.", "control_all_x_embedder.2-1.weight", 30, true},
    {"qwen-image-fun", "Qwen-Image-2512", "control_blocks.", "control_img_in.weight", 60, true},
    {"qwen-image-instantx", "Qwen-Image", "transformer_blocks.", "controlnet_x_embedder.weight", 60, false},
    {"qwen-image-blockwise", "Qwen-Image", "controlnet_blocks.", "img_in.weight", 60, false},
};
#define KIND_COUNT ((int32_t)(sizeof s_kinds / sizeof *s_kinds))
#define LATENT_CHANNELS 16 // of both families

typedef struct control_summary {
    const control_kind* of;
    const char* kind;     // as sumi_control_info has it; NULL: of no kind that this library knows
    const char* made_for; // by the file's name; NULL: it does not say
    int32_t layers, refiners;
    long long width, columns;
    bool takes_picture, takes_inpainting, is_tile;
    float strength;
    int32_t layer_total; // of the model that the places belong to
    int32_t place_count;
    int16_t places[SUMI_CONTROL_MAX_PLACES], hints[SUMI_CONTROL_MAX_PLACES];
    bool is_tried; // with a model, which told the places
} control_summary;

// ---- Without a model ------------------------------------------------------------------------------------------------

static bool is_zero(const sumi_tensor* tensor)
{
    const unsigned char* bytes = tensor->data;
    uint64_t i = 0;
    while (i < tensor->bytes && bytes[i] == 0) i++;
    return i == tensor->bytes;
}

// 2.0 has the tensors of 2.1, with projections of the refiner that are not there or zero.
static const char* fun_version(const sumi_component* part, long long columns)
{
    const sumi_tensor* projection = sumi_component_find(part, "control_noise_refiner.0.after_proj.weight");
    return columns == 4 * LATENT_CHANNELS            ? "z-fun-1.0"
         : columns != 4 * (2 * LATENT_CHANNELS + 1)  ? NULL
         : projection == NULL || is_zero(projection) ? "z-fun-2.0"
                                                     : "z-fun-2.1";
}

// After which layers of the released model a hint is added, by the rules of models/next_dit_fun.c and its like.
static void find_places(control_summary* net, const sumi_component* part)
{
    int32_t given[SUMI_CONTROL_MAX_PLACES], given_count = 0;
    const sumi_config_field fields[] = {
        {"control_layers_places", SUMI_CONFIG_INTEGERS, given, SUMI_CONTROL_MAX_PLACES, &given_count}};
    const sumi_module_config config = {
        .data = part->config.data, .bytes = (size_t)part->config.bytes, .path = part->config.path};
    sumi_error ignored = {0};
    if (part->config.data) (void)sumi_config_read(&config, fields, 1, &ignored);
    const int32_t total = net->of->base_layers, n = net->layers, rest = total % n, quotient = total / n;
    const bool rounds_up = 2 * rest > n || (2 * rest == n && quotient % 2 == 1); // half to even
    const int32_t distance = strcmp(net->of->network, "z-image-fun") == 0 ? quotient + rounds_up : quotient;
    net->layer_total = total;
    net->place_count = net->of->is_fun ? n : total;
    for (int32_t i = 0; i < net->place_count; i++) {
        net->places[i] = (int16_t)(!net->of->is_fun ? i : given_count == n ? given[i] : i * distance);
        net->hints[i] = (int16_t)(net->of->is_fun ? i : i / ((total + n - 1) / n));
    }
}

static void describe(const inspection* in, const sumi_component* part, control_summary* net)
{
    const char* network = sumi_component_network(part);
    *net = (control_summary){.of = NULL};
    for (int32_t i = 0; i < KIND_COUNT; i++) {
        if (strcmp(s_kinds[i].network, network) == 0) net->of = &s_kinds[i];
    }
    if (!net->of) return;
    const sumi_tensor* input = sumi_component_find(part, net->of->input);
    net->layers = expected_count(part, net->of->layers);
    net->width = input && input->rank == 2 ? (long long)input->shape[0] : 0;
    net->columns = input && input->rank == 2 ? (long long)input->shape[1] : 0;
    const bool is_z = strcmp(network, "z-image-fun") == 0, is_instantx = strcmp(network, "qwen-image-instantx") == 0;
    const bool inpaints = net->columns != 4 * LATENT_CHANNELS;
    net->kind = is_z            ? fun_version(part, net->columns)
              : net->of->is_fun ? "qwen-fun"
              : is_instantx     ? "qwen-instantx"
                                : "qwen-blockwise";
    net->takes_inpainting = inpaints;
    net->takes_picture = net->of->is_fun || !inpaints;
    net->strength = !net->of->is_fun                                 ? 1.0f
                  : !is_z                                            ? 0.8f
                  : net->kind && strcmp(net->kind, "z-fun-2.1") == 0 ? 0.9f
                                                                     : 0.75f;
    if (is_z && net->kind && strcmp(net->kind, "z-fun-2.0") != 0)
        net->refiners = expected_count(part, "control_noise_refiner.");
    net->made_for = strstr(in->path, "Z-Image-Turbo-Fun") ? "Z-Image Turbo"
                  : strstr(in->path, "Z-Image-Fun")       ? "Z-Image (Base)"
                                                          : NULL;
    net->is_tile = strstr(in->path, "Controlnet-Tile") != NULL;
    if (net->layers > 0 && net->layers <= net->of->base_layers) find_places(net, part);
}

// ---- With a model ---------------------------------------------------------------------------------------------------

// Reads the net for a model as generate does. Prints why it does not fit, and returns an exit code.
static int try_control(const inspection* in, control_summary* net)
{
    const session_args args = {.model = in->model, .backend = SUMI_BACKEND_CPU, .quiet = true};
    cli_session session = {0};
    char doing[1100];
    snprintf(doing, sizeof doing, "loading the control net %s", in->path);
    int code = session_open(&session, &args);
    if (code == EXIT_OK) code = session_load_model(&session, true, true);
    if (code == EXIT_OK) {
        sumi_control_desc desc = sumi_control_defaults(session.model);
        desc.path = in->path;
        sumi_job job;
        const sumi_result result = sumi_submit_control(session.engine, &desc, &job);
        code =
            result == SUMI_OK ? session_run(&session, job, doing, NULL, NULL) : session_fail(&session, result, doing);
        sumi_control* control = NULL;
        if (code == EXIT_OK && sumi_fetch_control(session.engine, job, &control) == SUMI_OK) {
            const sumi_control_info told = sumi_control_get_info(control);
            const sumi_control_net_info* info = sumi_control_net_get_info(control->net);
            net->is_tried = true;
            net->kind = info->kind;
            net->strength = told.strength;
            net->takes_picture = told.takes_picture;
            net->takes_inpainting = told.takes_inpainting;
            net->place_count = info->place_count;
            memcpy(net->places, info->places, sizeof net->places);
            memcpy(net->hints, info->hints, sizeof net->hints);
            sumi_control_release(control);
        }
    }
    session_close(&session);
    return code == EXIT_OK ? EXIT_OK : EXIT_FAILED;
}

// ---- Telling --------------------------------------------------------------------------------------------------------

static void find_licence(const inspection* in, const sumi_checkpoint* checkpoint, licence* out)
{
    licence_find(in->path, checkpoint, NULL, out);
    if (out->source[0]) return;
    snprintf(out->id, sizeof out->id, "apache-2.0");
    snprintf(out->source, sizeof out->source, "of the released nets of this kind: the file names none");
}

static void print_places(const control_summary* net)
{
    if (net->place_count == 0) return;
    printf("  %-14s after %s", "hints", !net->of->is_fun ? "every layer" : net->place_count == 1 ? "layer" : "layers");
    for (int32_t i = 0; i < net->place_count && net->of->is_fun; i++) printf("%s%d", i ? ", " : " ", net->places[i]);
    if (net->kind && strcmp(net->kind, "z-fun-2.1") == 0) printf(", and each refiner layer");
    if (net->is_tried) printf(", of this model\n");
    else printf(", of the released model, which has %d\n", net->layer_total);
}

static void print_net(const inspection* in, const sumi_checkpoint* checkpoint, const control_summary* net)
{
    const sumi_component* part = &checkpoint->components[SUMI_COMPONENT_TRANSFORMER];
    const tensor_totals sum = inspection_part_totals(part);
    licence found;
    find_licence(in, checkpoint, &found);
    printf("%s\n  %-14s ", shown(in->path), "control net");
    printf("%s, for %s", net->kind ? net->kind : "unknown", net->of->models);
    if (net->made_for) printf("; by its name for %s", net->made_for);
    printf("\n  %-14s ", "takes");
    if (net->takes_picture) printf("a control picture");
    if (net->takes_inpainting)
        printf("%sa picture to inpaint and its mask", net->takes_picture ? "; also, or instead, " : "");
    printf(" (%lld channels)\n", net->columns / 4);
    printf("  %-14s %d layer%s", "network", net->layers, net->layers == 1 ? "" : "s");
    if (net->refiners > 0) printf(" and %d refiner layer%s", net->refiners, net->refiners == 1 ? "" : "s");
    printf(", width %lld\n", net->width);
    print_places(net);
    printf("  %-14s %g is usual%s\n", "strength", (double)net->strength,
           net->is_tile ? "; 0.85 for Tile, which this is by its name" : "");
    printf("  %-14s %s (%s)\n", "licence", shown(found.id[0] ? found.id : found.name), shown(found.source));
    printf("  %-14s %zu, %.2f million values, %.1f MB\n", "tensors", sum.count, 1e-6 * (double)sum.values,
           1e-6 * (double)sum.bytes);
    for (int type = 0; type < SUMI_DTYPE_COUNT; type++) {
        if (sum.type_counts[type])
            printf("  %-14s %s: %zu tensors\n", "types", sumi_dtype_get((sumi_dtype)type)->name, sum.type_counts[type]);
    }
    if (net->is_tried) printf("  %-14s fits %s\n", "model", shown(in->model));
    for (size_t i = 0; i < part->set->count && in->lists_tensors; i++) {
        const sumi_tensor* tensor = &part->set->tensors[i];
        const char* name = sumi_component_tensor_name(part, tensor);
        if (!name) continue;
        printf("      %-60s %-8s [", shown(name), sumi_dtype_get(tensor->dtype)->name);
        for (int32_t axis = 0; axis < tensor->rank; axis++)
            printf("%s%lld", axis ? ", " : "", (long long)tensor->shape[axis]);
        printf("]\n");
    }
}

static void put_net(const inspection* in, const sumi_checkpoint* checkpoint, const control_summary* net)
{
    const tensor_totals sum = inspection_part_totals(&checkpoint->components[SUMI_COMPONENT_TRANSFORMER]);
    json_out out = {.file = stdout};
    licence found;
    find_licence(in, checkpoint, &found);
    json_begin_object(&out, NULL);
    json_text(&out, "path", in->path);
    json_text(&out, "kind", "control net");
    json_text(&out, "control_kind", net->kind);
    json_text(&out, "models", net->of->models);
    json_text(&out, "made_for", net->made_for);
    json_bool(&out, "takes_picture", net->takes_picture);
    json_bool(&out, "takes_inpainting", net->takes_inpainting);
    json_integer(&out, "channel_count", net->columns / 4);
    json_integer(&out, "layer_count", net->layers);
    json_integer(&out, "refiner_count", net->refiners);
    json_integer(&out, "width", net->width);
    json_number(&out, "strength", (double)net->strength);
    json_bool(&out, "is_tried", net->is_tried); // places are those of the model; otherwise of the released one
    json_begin_array(&out, "places");
    for (int32_t i = 0; i < net->place_count; i++) json_integer(&out, NULL, net->places[i]);
    json_end_array(&out);
    json_begin_array(&out, "hints");
    for (int32_t i = 0; i < net->place_count; i++) json_integer(&out, NULL, net->hints[i]);
    json_end_array(&out);
    json_begin_object(&out, "licence");
    json_text(&out, "id", found.id);
    json_text(&out, "name", found.name);
    json_text(&out, "link", found.link);
    json_text(&out, "source", found.source);
    json_end_object(&out);
    json_unsigned(&out, "tensor_count", sum.count);
    json_unsigned(&out, "value_count", sum.values);
    json_unsigned(&out, "bytes", sum.bytes);
    json_end_object(&out);
}

int inspect_control(inspection* in)
{
    sumi_error error = {0};
    sumi_checkpoint checkpoint = {0};
    control_summary net;
    sumi_checkpoint_desc desc = {.component_paths = {[SUMI_COMPONENT_TRANSFORMER] = in->path},
                                 .without_text_encoder = true,
                                 .transformer_name = "control net"};
    desc.signatures = sumi_control_signatures(&desc.signature_count);
    desc.methods = sumi_foreign_methods(&desc.method_count);
    static const char* const s_words[] = {"ControlNet", NULL};
    static const char* const* const s_class_words[SUMI_COMPONENT_COUNT] = {[SUMI_COMPONENT_TRANSFORMER] = s_words};
    desc.class_words = s_class_words;
    const sumi_component* part = &checkpoint.components[SUMI_COMPONENT_TRANSFORMER];
    int code = -1;
    if (sumi_checkpoint_open(&checkpoint, &in->heap, NULL, &desc, &error) == SUMI_OK && part->present) {
        describe(in, part, &net);
        const bool is_net = net.of != NULL;
        // Of Qwen-Image-2.1, or written by a program whose files are not read.
        const bool is_refused = sumi_signatures_check(&checkpoint, &error) != SUMI_OK;
        code = !is_net && !is_refused ? -1 : is_refused ? EXIT_FAILED : EXIT_OK;
        if (is_refused) fprintf(stderr, "sumi: %s\n", shown(error.text));
        if (is_net && !is_refused && in->model) code = try_control(in, &net);
        if (is_net && in->is_json) put_net(in, &checkpoint, &net);
        else if (is_net) print_net(in, &checkpoint, &net);
    }
    sumi_checkpoint_close(&checkpoint);
    return code;
}
