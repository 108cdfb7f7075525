// The autoencoders of Qwen-Image and Qwen-Image-2.1 by themselves: latents to pictures, pictures to moments, whole and in
// tiles.
#include "golden_component.h"
#include "golden_pictures.h"
#include "golden_qwen_image.h"
#include "golden_qwen_image_21.h"
#include "golden_watch.h"
#include "models/autoencoders.h"
#include "plan_runner.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// What differs between the families.
typedef struct vae_family {
    const sumi_autoencoder_module* module;
    int32_t picture_channels;
    bool clamps_tiles, encodes_tiles; // the reference does
    const char* const (*names)[2];    // names in cases that do not say the stage, and the labels of their ops
} vae_family;

typedef struct vae_job {
    const vae_family* family;
    const sumi_qwen_vae* vae;
    int32_t tile; // 0: none
    array latent;
    picture_file image;
    sumi_value latents, pixels;
    watcher* w;
} vae_job;

static void write_input(plan_run* run)
{
    const vae_job* job = run->context;
    golden* g = run->c->g;
    if (job->latents.id != 0) write_floats(run, job->latents, 0, job->latent.values, job->latent.count);
    if (job->pixels.id != 0)
        g->runner->functions->write(g->runner, run->plan, job->pixels, 0, job->image.pixels,
                                    (uint64_t)job->image.height * (uint64_t)job->image.width
                                        * (uint64_t)job->family->picture_channels);
}

static void probe(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    watch_op(run, ((vae_job*)run->context)->w, op, counter, before);
}

// The label of the op whose output is called `name` in a half; "" if the name is not known.
static void find_label(const vae_job* job, bool decodes, const char* name, char* label, size_t bytes)
{
    static const char* const s_table[][2] = {{"post_quant", "post_quant"}, {"conv_in", "conv_in"},
                                             {"mid_res0", "mid.0.conv2"},  {"mid_attn", "mid.attention.out"},
                                             {"mid", "mid.1.conv2"},       {"conv_out", "conv_out"},
                                             {"vae_in", "latent_in"}};
    const sumi_vae_half* half = decodes ? &job->vae->decoder : &job->vae->encoder;
    const char *side = decodes ? "decoder" : "encoder", *way = decodes ? "up" : "down";
    const size_t length = strlen(way);
    *label = '\0';
    for (size_t i = 0; i < sizeof s_table / sizeof *s_table; i++)
        if (strcmp(name, s_table[i][0]) == 0) snprintf(label, bytes, "%s.%s", side, s_table[i][1]);
    for (size_t i = 0; job->family->names[i][0] != NULL; i++)
        if (strcmp(name, job->family->names[i][0]) == 0) snprintf(label, bytes, "%s", job->family->names[i][1]);
    if (*label != '\0') return;
    if (strncmp(name, "short", 5) == 0) {
        snprintf(label, bytes, "%s.%d.shortcut", side, atoi(name + 5));
    } else if (strncmp(name, way, length) == 0) {
        const int stage = atoi(name + length);
        if (stage < 0 || stage >= half->stage_count) return;
        if (half->stages[stage].resamples)
            snprintf(label, bytes, "%s.%d.%s", side, stage, decodes ? "upsample" : "downsample");
        else if (decodes)
            snprintf(label, bytes, "%s.%d.%d.conv2", side, stage, (int)half->stages[stage].block_count - 1);
        else snprintf(label, bytes, "%s.%d.add_shortcut", side, stage);
    }
}

// What the case expects of values inside. Of NAME_chN only channel N is stored.
static void watch_vae(golden_case* c, const vae_job* job, bool decodes)
{
    for (size_t i = 0; i < c->set.count; i++) {
        const char* expected = expected_name(c, i);
        char name[64], label[96];
        if (expected == NULL) continue;
        snprintf(name, sizeof name, "%.60s", expected);
        char* channel = strstr(name, "_ch");
        if (channel != NULL) *channel = '\0';
        const bool is_row = strcmp(name, "pixels_row0") == 0;
        find_label(job, decodes, name, label, sizeof label);
        if (*label == '\0' && !is_row) continue;
        if ((is_row || strcmp(name, "vae_in") == 0) && c->g->is_gpu) {
            not_checked(c, expected, "a GPU rounds it to bfloat16, and no error of that is stored");
            continue;
        }
        watch* one = add_watch(job->w, expected, WATCH_PLANES, "%s", is_row ? "encoder.pixels_in" : label);
        if (one != NULL && channel != NULL) {
            one->first = atoi(channel + 3);
            one->rows = 1;
        }
        if (one != NULL && is_row) one->cols = c->set.tensors[i].shape[1];
    }
}

// Of planes [channels, height, width]: every `step`-th row from `row` on of channels [first, first + count).
typedef struct cut {
    int64_t first, count, row, step, rows; // rows: at most
} cut;

static array cut_rows(const array* image, cut k)
{
    const int64_t height = image->shape[1], width = image->shape[2];
    int64_t rows = (height - k.row + k.step - 1) / k.step;
    rows = rows < k.rows ? rows : k.rows;
    array part = array_make(NULL, 3, (const int64_t[]){k.count, rows, width});
    for (int64_t i = 0; i < k.count * rows; i++)
        memcpy(part.values + i * width,
               image->values + ((k.first + i / rows) * height + k.row + i % rows * k.step) * width,
               (size_t)width * sizeof(float));
    return part;
}

// Whole pictures and the parts of them that cases store.
static void compare_image(golden_case* c, const array* image)
{
    const int64_t all = image->shape[1], channels = image->shape[0];
    const struct {
        const char* name;
        cut part;
    } parts[] = {{"image", {0, channels, 0, 1, all}},
                 {"image_rows", {0, channels, 1, 8, all}},
                 {"image_ch0", {0, 1, 0, 1, all}},
                 {"image_ch3_rows", {3, 1, 0, 5, all}}};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (!has_expected(c, parts[i].name)) continue;
        array part = cut_rows(image, parts[i].part);
        compare(c, parts[i].name, &part);
        array_free(&part);
    }
    array first = cut_rows(image, (cut){0, channels, 0, 1, 1});
    compare_wrong(c, "image_untiled_row0", &first);
    array_free(&first);
}

static void decode(golden_case* c, vae_job job)
{
    const sumi_qwen_vae* vae = job.vae;
    const int32_t channels = job.family->picture_channels;
    job.latent = input(c, "latent");
    job.w = calloc(1, sizeof(watcher));
    if (job.latent.rank != 3 || job.latent.shape[0] != vae->channels) {
        case_fails(c, "the case lacks latent [%d, h, w]", (int)vae->channels);
        array_free(&job.latent);
        free(job.w);
        return;
    }
    const int32_t height = (int32_t)job.latent.shape[1], width = (int32_t)job.latent.shape[2], factor = vae->factor,
                  pixels = height * width * factor * factor;
    sumi_plan plan;
    sumi_error error = {0};
    plan_run run = {.c = c, .write = write_input, .probe = probe, .context = &job};
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
    job.latents = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, vae->channels, height * width);
    const sumi_value picture = sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_ACTIVATION, pixels, channels),
                     bytes = sumi_plan_bound(&plan, "bytes", SUMI_ELEMENT_BYTE, pixels, channels);
    const int32_t zero = 0;
    const sumi_value not_finite = sumi_plan_constant(&plan, "not_finite", SUMI_ELEMENT_INT, 1, 1, &zero);
    const sumi_vae_tiling tiling = job.family->module->tiling(vae);
    sumi_vae_tiles_decode(&tiling, &plan, &(sumi_tile_source){job.latents, height, width}, job.tile, picture);
    sumi_plan_pixels_out(&plan, picture, bytes, not_finite);
    if (job.tile == 0) watch_vae(c, &job, true);
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        compare_watches(c, job.w);
        array image = read_planes(&run, picture, (int64_t)height * factor, (int64_t)width * factor);
        // the reference clamps, and the library where it makes bytes
        for (int64_t i = 0; i < image.count && (job.tile == 0 || job.family->clamps_tiles); i++)
            image.values[i] = fminf(fmaxf(image.values[i], -1.0f), 1.0f);
        compare_image(c, &image);
        char path[2400], file[300];
        snprintf(file, sizeof file, "%.250s.out.png", c->name);
        snprintf(path, sizeof path, "%.2000s/%s", c->folder, file);
        if (sumi_file_exists(NULL, path)) {
            array levels = read_array(&run, bytes);
            compare_png(c, file, &levels,
                        json_number(json_get(json_get(c->json, "tensors"), "expect.image"), "bf16_rel_l2", 0));
            array_free(&levels);
        }
        array_free(&image);
    }
    end_plan(c, &plan);
    free(job.w);
    array_free(&job.latent);
}

static void encode(golden_case* c, vae_job job)
{
    const sumi_qwen_vae* vae = job.vae;
    const node* list = json_get(c->json, "images");
    char path[2400], message[PICTURE_MESSAGE_BYTES];
    job.w = calloc(1, sizeof(watcher));
    snprintf(path, sizeof path, "%.2000s/%.300s", c->folder,
             list != NULL && list->first != NULL && list->first->text != NULL ? list->first->text : "");
    if (!picture_read(path, job.family->picture_channels, &job.image, message)) {
        case_fails(c, "%s", message);
        free(job.w);
        return;
    }
    const int32_t height = job.image.height, width = job.image.width, factor = vae->factor, channels = vae->channels,
                  size = height / factor * (width / factor);
    sumi_plan plan;
    sumi_error error = {0};
    plan_run run = {.c = c, .write = write_input, .probe = probe, .context = &job};
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_IMAGE, 1, 0);
    job.pixels = sumi_plan_bound(&plan, "pixels", SUMI_ELEMENT_BYTE, height * width, job.family->picture_channels);
    const sumi_value latents = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, channels, size);
    const sumi_vae_tiling tiling = job.family->module->tiling(vae);
    const sumi_value moments =
        sumi_vae_tiles_encode(&tiling, &plan, &(sumi_tile_source){job.pixels, height, width}, job.tile);
    if (moments.id > 0 && (size_t)moments.id <= plan.value_count) plan.values[moments.id - 1].bound = true;
    sumi_vae_posterior(&tiling, &plan, moments, SUMI_NO_VALUE,
                       &(sumi_tile_source){latents, height / factor, width / factor});
    if (job.tile == 0) watch_vae(c, &job, false);
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        compare_watches(c, job.w);
        array both = read_planes(&run, moments, height / factor, width / factor),
              normalised = read_array(&run, latents),
              mode = array_make(both.values, 2, (const int64_t[]){channels, size}),
              deviation = array_make(both.values + (int64_t)channels * size, 2, (const int64_t[]){channels, size});
        for (int64_t i = 0; i < deviation.count; i++)
            deviation.values[i] = expf(0.5f * fminf(fmaxf(deviation.values[i], -30.0f), 20.0f));
        compare(c, "moments", &both);
        compare(c, "mode", &mode);
        if (has_expected(c, "std")) compare(c, "std", &deviation);
        compare(c, "normalised", &normalised);
        array_free(&both);
        array_free(&normalised);
        array_free(&mode);
        array_free(&deviation);
    }
    end_plan(c, &plan);
    free(job.w);
    picture_free(&job.image);
}

static bool run_vae_case(golden_case* c, const vae_family* family)
{
    const bool decodes = strcmp(c->kind, "vae_decode") == 0, encodes = strcmp(c->kind, "vae_encode") == 0,
               is_tiled = strcmp(c->kind, "vae_tiled") == 0;
    if (!decodes && !encodes && !is_tiled) return false;
    case_component component = {0};
    sumi_error error = {0};
    sumi_qwen_vae* vae = calloc(1, sizeof *vae);
    vae_job job = {.family = family, .vae = vae};
    if (open_component(c, SUMI_COMPONENT_VAE, "the VAE", &component)) {
        component.binder.error = &error;
        if (family->module->bind(vae, NULL, &component.binder, &component.config, false) != SUMI_OK) {
            case_fails(c, "%s", error.text);
        } else {
            if (is_tiled) { // in pixels
                job.tile = (int32_t)json_number(c->json, "tile", 256) / vae->factor;
                vae->tiles = (sumi_tile_rule){(int32_t)json_number(c->json, "stride", 192) / vae->factor, job.tile};
            }
            if (decodes || is_tiled) decode(c, job);
            if (encodes || (is_tiled && family->encodes_tiles)) encode(c, job);
        }
    }
    close_component(c, &component);
    free(vae);
    return true;
}

bool run_qwen_vae_case(golden_case* c)
{
    // the reference numbers blocks and downsamplings of the encoder in one list
    static const char* const s_names[][2] = {{"down1", "encoder.0.1.conv2"},
                                             {"down2", "encoder.0.downsample"},
                                             {"down5", "encoder.1.downsample"},
                                             {NULL, NULL}};
    return run_vae_case(
        c,
        &(vae_family){.module = &sumi_qwen_vae_module, .picture_channels = 3, .encodes_tiles = true, .names = s_names});
}

bool run_qwen21_vae_case(golden_case* c)
{
    static const char* const s_names[][2] = {{NULL, NULL}};
    return run_vae_case(
        c, &(vae_family){
               .module = &sumi_qwen_vae_21_module, .picture_channels = 4, .clamps_tiles = true, .names = s_names});
}
