// The Qwen-Image autoencoder by itself: latents to pictures, pictures to moments, whole and in tiles.
#include "golden_pictures.h"
#include "golden_qwen_image.h"
#include "golden_watch.h"
#include "models/autoencoders.h"
#include "picture.h"
#include "plan_runner.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct vae_job {
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
                                    (uint64_t)job->image.height * (uint64_t)job->image.width * 3);
}

static void probe(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    watch_op(run, ((vae_job*)run->context)->w, op, counter, before);
}

// What the case expects under a name that the table knows. Of NAME_ch0 the first channel is stored.
static void watch_vae(golden_case* c, watcher* w)
{
    static const char* const s_table[][2] = {{"vae_in", "decoder.latent_in"},
                                             {"post_quant", "decoder.post_quant"},
                                             {"conv_in", "decoder.conv_in"},
                                             {"mid_res0", "decoder.mid.0.conv2"},
                                             {"mid_attn", "decoder.mid.attention.out"},
                                             {"up0", "decoder.0.upsample"},
                                             {"up1_ch0", "decoder.1.upsample"},
                                             {"up2_ch0", "decoder.2.upsample"},
                                             {"down1_ch0", "encoder.0.1.conv2"},
                                             {"down2", "encoder.0.downsample"},
                                             {"down5", "encoder.1.downsample"},
                                             {"conv_out", "encoder.conv_out"}};
    for (size_t i = 0; i < sizeof s_table / sizeof *s_table; i++) {
        if (!has_expected(c, s_table[i][0])) continue;
        if (c->g->is_gpu && i == 0) {
            not_checked(c, s_table[i][0], "a GPU rounds it to bfloat16, and no error of that is stored");
            continue;
        }
        watch* one = add_watch(w, s_table[i][0], WATCH_PLANES, "%s", s_table[i][1]);
        const size_t length = strlen(s_table[i][0]);
        if (one != NULL && length > 4 && strcmp(s_table[i][0] + length - 4, "_ch0") == 0) one->rows = 1;
    }
    if (has_expected(c, "mid"))
        add_watch(w, "mid", WATCH_PLANES, "%s.mid.1.conv2", strcmp(c->kind, "vae_decode") == 0 ? "decoder" : "encoder");
    if (has_expected(c, "pixels_row0") && c->g->is_gpu)
        not_checked(c, "pixels_row0", "a GPU rounds it to bfloat16, and no error of that is stored");
    else if (has_expected(c, "pixels_row0")) add_watch(w, "pixels_row0", WATCH_ROWS, "encoder.pixels_in");
}

// The first row of a picture whose pixels were taken as rows of channels.
static void keep_first_row(watcher* w, const char* name, int64_t width)
{
    for (int i = 0; i < w->count; i++) {
        array* got = &w->list[i].got;
        if (strcmp(w->list[i].expected, name) != 0 || got->values == NULL) continue;
        const int64_t channels = got->shape[1];
        array row = array_make(NULL, 2, (const int64_t[]){channels, width});
        for (int64_t k = 0; k < channels; k++)
            for (int64_t x = 0; x < width; x++) row.values[k * width + x] = got->values[x * channels + k];
        array_free(got);
        *got = row;
    }
}

// Rows [0, rows) of a picture of planes.
static array top_rows(const array* image, int64_t rows)
{
    const int64_t planes = image->shape[0], height = image->shape[1], width = image->shape[2];
    array top = array_make(NULL, 3, (const int64_t[]){planes, rows, width});
    for (int64_t k = 0; k < planes; k++)
        memcpy(top.values + k * rows * width, image->values + k * height * width,
               (size_t)(rows * width) * sizeof(float));
    return top;
}

static void decode(golden_case* c, const sumi_qwen_vae* vae, int32_t tile)
{
    const bool is_tiled = tile > 0;
    vae_job job = {.latent = input(c, "latent"), .w = calloc(1, sizeof(watcher))};
    if (job.latent.rank != 3 || job.latent.shape[0] != vae->channels) {
        case_fails(c, "the case lacks latent [%d, h, w]", (int)vae->channels);
        array_free(&job.latent);
        free(job.w);
        return;
    }
    const int32_t height = (int32_t)job.latent.shape[1], width = (int32_t)job.latent.shape[2], factor = vae->factor;
    sumi_plan plan;
    sumi_error error = {0};
    plan_run run = {.c = c, .write = write_input, .probe = probe, .context = &job};
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
    job.latents = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, vae->channels, height * width);
    const sumi_value picture =
        sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_ACTIVATION, height * width * factor * factor, 3);
    const sumi_value bytes = sumi_plan_bound(&plan, "bytes", SUMI_ELEMENT_BYTE, height * width * factor * factor, 3);
    const int32_t zero = 0;
    const sumi_value not_finite = sumi_plan_constant(&plan, "not_finite", SUMI_ELEMENT_INT, 1, 1, &zero);
    const sumi_vae_tiling tiling = sumi_qwen_vae_module.tiling(vae);
    sumi_vae_tiles_decode(&tiling, &plan, &(sumi_tile_source){job.latents, height, width}, tile, picture);
    sumi_plan_pixels_out(&plan, picture, bytes, not_finite);
    if (!is_tiled) watch_vae(c, job.w);
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        compare_watches(c, job.w);
        array image = read_planes(&run, picture, (int64_t)height * factor, (int64_t)width * factor);
        // the reference clamps a whole picture, and tiles not
        for (int64_t i = 0; i < image.count && !is_tiled; i++)
            image.values[i] = fminf(fmaxf(image.values[i], -1.0f), 1.0f);
        compare(c, "image", &image);
        if (!is_tiled) {
            const node* about = json_get(json_get(c->json, "tensors"), "expect.image");
            array pixels = read_array(&run, bytes);
            char path[2400], file[300];
            snprintf(file, sizeof file, "%.250s.out.png", c->name);
            snprintf(path, sizeof path, "%.2000s/%s", c->folder, file);
            if (sumi_file_exists(NULL, path)) compare_png(c, file, &pixels, json_number(about, "bf16_rel_l2", 0));
            array_free(&pixels);
        }
        array first = top_rows(&image, 1);
        compare_wrong(c, "image_untiled_row0", &first);
        array_free(&first);
        array_free(&image);
    }
    end_plan(c, &plan);
    free(job.w);
    array_free(&job.latent);
}

static void encode(golden_case* c, const sumi_qwen_vae* vae, int32_t tile)
{
    const node* list = json_get(c->json, "images");
    char path[2400], message[PICTURE_MESSAGE_BYTES];
    vae_job job = {.w = calloc(1, sizeof(watcher))};
    snprintf(path, sizeof path, "%.2000s/%.300s", c->folder,
             list != NULL && list->first != NULL && list->first->text != NULL ? list->first->text : "");
    if (!picture_read(path, 3, &job.image, message)) {
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
    job.pixels = sumi_plan_bound(&plan, "pixels", SUMI_ELEMENT_BYTE, height * width, 3);
    const sumi_value latents = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, channels, size);
    const sumi_vae_tiling tiling = sumi_qwen_vae_module.tiling(vae);
    const sumi_value moments =
        sumi_vae_tiles_encode(&tiling, &plan, &(sumi_tile_source){job.pixels, height, width}, tile);
    if (moments.id > 0 && (size_t)moments.id <= plan.value_count) plan.values[moments.id - 1].bound = true;
    sumi_vae_posterior(&tiling, &plan, moments, SUMI_NO_VALUE,
                       &(sumi_tile_source){latents, height / factor, width / factor});
    if (tile == 0) watch_vae(c, job.w);
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        keep_first_row(job.w, "pixels_row0", width);
        compare_watches(c, job.w);
        array both = read_planes(&run, moments, height / factor, width / factor),
              normalised = read_array(&run, latents),
              mode = array_make(both.values, 2, (const int64_t[]){channels, size}),
              deviation = array_make(both.values + (int64_t)channels * size, 2, (const int64_t[]){channels, size});
        for (int64_t i = 0; i < deviation.count; i++)
            deviation.values[i] = expf(0.5f * fminf(fmaxf(deviation.values[i], -30.0f), 20.0f));
        compare(c, "moments", &both);
        compare(c, "mode", &mode);
        compare(c, "std", &deviation);
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

bool run_qwen_vae_case(golden_case* c)
{
    const bool decodes = strcmp(c->kind, "vae_decode") == 0, encodes = strcmp(c->kind, "vae_encode") == 0,
               is_tiled = strcmp(c->kind, "vae_tiled") == 0;
    if (!decodes && !encodes && !is_tiled) return false;
    case_component component = {0};
    sumi_error error = {0};
    sumi_qwen_vae* vae = calloc(1, sizeof *vae);
    int32_t tile = 0;
    if (open_component(c, SUMI_COMPONENT_VAE, "the VAE", &component)) {
        component.binder.error = &error;
        if (sumi_qwen_vae_module.bind(vae, NULL, &component.binder, &component.config, false) != SUMI_OK) {
            case_fails(c, "%s", error.text);
        } else {
            if (is_tiled) { // in pixels
                const int32_t size = (int32_t)json_number(c->json, "tile", 256) / vae->factor,
                              stride = (int32_t)json_number(c->json, "stride", 192) / vae->factor;
                tile = size;
                vae->tiles = (sumi_tile_rule){stride, size};
            }
            if (decodes || is_tiled) decode(c, vae, tile);
            if (encodes || is_tiled) encode(c, vae, tile);
        }
    }
    close_component(c, &component);
    free(vae);
    return true;
}
