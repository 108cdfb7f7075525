// The autoencoders of Flux.1 and Flux.2, in a network or by themselves: latents to pictures and back.
#include "golden_flux_vae.h"
#include "golden_component.h"
#include "golden_watch.h"
#include "models/autoencoders.h"
#include "models/network_state.h"
#include "models/recipe.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- The VAE --------------------------------------------------------------------------------------------------------

typedef struct flux_part {
    sumi_vae_tiling tiling;
    sumi_autoencoder_properties is; // its latents, for the denoiser
} flux_part;

typedef struct vae_job {
    array latent, image, eps;
    sumi_value latents, pixels, exact, eps_value, picture, bytes, moments;
    watcher* w;
} vae_job;

static void write_vae(plan_run* run)
{
    vae_job* job = run->context;
    golden* g = run->c->g;
    if (job->latents.id != 0) write_floats(run, job->latents, 0, job->latent.values, job->latent.count);
    if (job->eps_value.id != 0) write_floats(run, job->eps_value, 0, job->eps.values, job->eps.count);
    if (job->exact.id != 0) write_floats(run, job->exact, 0, job->image.values, job->image.count);
    else if (job->pixels.id != 0) {
        uint8_t* bytes = calloc((size_t)job->image.count + 1, 1);
        for (int64_t i = 0; i < job->image.count; i++) bytes[i] = (uint8_t)job->image.values[i];
        g->runner->functions->write(g->runner, run->plan, job->pixels, 0, bytes, (uint64_t)job->image.count);
        free(bytes);
    }
}

static void probe_vae(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    vae_job* job = run->context;
    if (job->w != NULL) watch_op(run, job->w, op, counter, before);
}

// NewBie-image's cases call the same things by diffusers' names.
static void to_plain_name(const char* name, char out[128])
{
    static const char* const s_names[][2] = {
        {"unscaled", "z"}, {"decoder.conv_in", "conv_in"}, {"decoder.mid_block", "mid"}, {"decoder.up_blocks.", "up"}};
    snprintf(out, 128, "%s", name);
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        const size_t length = strlen(s_names[i][0]);
        if (strncmp(name, s_names[i][0], length) == 0) snprintf(out, 128, "%s%s", s_names[i][1], name + length);
    }
}

static void watch_vae(golden_case* c, watcher* w, const char* side)
{
    bool decodes = strcmp(side, "decoder") == 0;
    for (size_t i = 0; i < c->set.count; i++) {
        const char* stored = expected_name(c, i);
        char name[128];
        int stage = 0, block = 0, used = 0;
        if (stored == NULL) continue;
        to_plain_name(stored, name);
        if (strcmp(name, "z") == 0 && decodes) add_watch(w, stored, WATCH_PLANES, "decoder.latent_in");
        if (strcmp(name, "conv_in") == 0) add_watch(w, stored, WATCH_PLANES, "%s.conv_in", side);
        if (strcmp(name, "post_quant_conv") == 0) add_watch(w, stored, WATCH_PLANES, "decoder.post_quant");
        if (strcmp(name, "before_quant_conv") == 0) add_watch(w, stored, WATCH_PLANES, "encoder.conv_out");
        if (strcmp(name, "mid") == 0) add_watch(w, stored, WATCH_PLANES, "%s.mid.1.conv2", side);
        if (strcmp(name, "mid.attention") == 0) add_watch(w, stored, WATCH_PLANES, "%s.mid.attention.out", side);
        if (strcmp(name, "norm_out") == 0) add_watch(w, stored, WATCH_PLAIN_NORM, "%s.norm_out", side);
        if (sscanf(name, "mid.resnet%d%n", &block, &used) == 1)
            add_watch(w, stored, WATCH_PLANES, "%s.mid.%d.%s", side, block,
                      name[used] == '.' ? name + used + 1 : "conv2");
        if (sscanf(name, decodes ? "up%d%n" : "down%d%n", &stage, &used) != 1) continue;
        if (name[used] == 0) add_watch(w, stored, WATCH_PLANES, "%s.%d.*", side, stage);
        else if (sscanf(name + used, ".resnet%d%n", &block, &used) == 1) {
            const char* rest = strstr(name, ".resnet") + 1 + strcspn(strstr(name, ".resnet") + 1, ".");
            add_watch(w, stored, WATCH_PLANES, "%s.%d.%d.%s", side, stage, block, rest[0] == '.' ? rest + 1 : "conv2");
        }
    }
}

static int32_t groups_of(golden_case* c, const flux_part* part)
{
    // of any group norm of the VAE: a plan's op tells, so that the runner needs no knowledge of the model's structure
    sumi_plan plan;
    sumi_plan_begin(&plan, &c->g->heap, 4);
    sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
    sumi_value latents = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, part->is.channels, 4);
    int32_t side = 2 * part->is.factor, groups = 1;
    sumi_value picture = sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_ACTIVATION, side * side, 3);
    sumi_vae_tiles_decode(&part->tiling, &plan, &(sumi_tile_source){latents, 2, 2}, 0, picture);
    for (size_t i = 0; i < plan.op_count; i++)
        if (plan.ops[i].kind == SUMI_OP_GROUP_NORM) groups = plan.ops[i].u.group.groups;
    sumi_plan_end(&plan);
    return groups;
}

static void run_decode(golden_case* c, const flux_part* part, int32_t tile)
{
    vae_job job = {.latent = input(c, "latent")};
    if (job.latent.rank != 3 || job.latent.shape[0] != part->is.channels) {
        case_fails(c, "the case lacks latent [%d, h, w]", (int)part->is.channels);
        array_free(&job.latent);
        return;
    }
    int32_t height = (int32_t)job.latent.shape[1], width = (int32_t)job.latent.shape[2], factor = part->is.factor;
    sumi_plan plan;
    const int32_t zero = 0;
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
    job.latents = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, (int32_t)job.latent.shape[0], height * width);
    job.picture = sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_ACTIVATION, height * width * factor * factor, 3);
    job.bytes = sumi_plan_bound(&plan, "bytes", SUMI_ELEMENT_BYTE, height * width * factor * factor, 3);
    sumi_value not_finite = sumi_plan_constant(&plan, "not_finite", SUMI_ELEMENT_INT, 1, 1, &zero);
    sumi_vae_tiles_decode(&part->tiling, &plan, &(sumi_tile_source){job.latents, height, width}, tile, job.picture);
    sumi_plan_pixels_out(&plan, job.picture, job.bytes, not_finite);
    sumi_error error = {0};
    plan_run run = {.c = c, .write = write_vae, .probe = probe_vae, .context = &job};
    watcher* w = calloc(1, sizeof *w);
    if (tile == 0) {
        w->groups = groups_of(c, part);
        watch_vae(c, w, "decoder");
        job.w = w;
    }
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        compare_watches(c, w);
        array image = read_planes(&run, job.picture, (int64_t)height * factor, (int64_t)width * factor),
              bytes = read_array(&run, job.bytes);
        compare(c, has_expected(c, "sample") ? "sample" : "image", &image);
        compare(c, "image_u8", &bytes);
        array_free(&image);
        array_free(&bytes);
    }
    end_plan(c, &plan);
    free(w);
    array_free(&job.latent);
}

// [2 * channels, h, w] as mean and logarithm of the variance.
static void compare_moments(golden_case* c, const array* moments)
{
    if (moments->values == NULL || !has_expected(c, "mean")) return;
    array half = *moments;
    half.shape[0] /= 2;
    half.count /= 2;
    compare(c, "mean", &half);
    half.values += half.count;
    compare(c, "logvar", &half);
}

// [3, h, w] to [h, w, 3].
static void to_rows(array* image)
{
    const int64_t height = image->shape[1], width = image->shape[2];
    array rows = array_make(NULL, 3, (const int64_t[]){height, width, 3});
    for (int64_t p = 0; p < height * width; p++)
        for (int64_t k = 0; k < 3; k++) rows.values[p * 3 + k] = image->values[k * height * width + p];
    array_free(image);
    *image = rows;
}

// Pixels between -1 and 1 that no 8-bit picture has: they take the place of what the plan makes of bytes.
static sumi_value give_exact_pixels(sumi_plan* plan, sumi_value pixels)
{
    for (size_t i = 0; i < plan->op_count; i++) {
        sumi_op* op = &plan->ops[i];
        if (op->kind != SUMI_OP_PIXELS_IN || op->in[0].id != pixels.id) continue;
        const sumi_value_info* out = sumi_plan_info(plan, op->out);
        op->kind = SUMI_OP_ACTIVATE;
        op->in[0] = sumi_plan_bound(plan, "exact_pixels", SUMI_ELEMENT_ACTIVATION, out->rows, out->cols);
        op->u.activate = (sumi_op_activate){.activation = SUMI_ACT_NONE};
        return op->in[0];
    }
    return SUMI_NO_VALUE;
}

static void run_encode(golden_case* c, const flux_part* part, int32_t tile)
{
    vae_job job = {.image = input(c, "image"), .eps = input(c, "eps")};
    const bool is_planar = job.image.rank == 3 && job.image.shape[0] == 3 && job.image.shape[2] != 3;
    if (is_planar) to_rows(&job.image);
    if (job.image.rank != 3 || job.image.shape[2] != 3) {
        case_fails(c, "the case lacks image [h, w, 3]");
        array_free(&job.image);
        array_free(&job.eps);
        return;
    }
    int32_t height = (int32_t)job.image.shape[0], width = (int32_t)job.image.shape[1], factor = part->is.factor,
            channels = part->is.channels;
    const sumi_vae_tiling* tiling = &part->tiling;
    const int32_t latent_height = height / factor, latent_width = width / factor, size = latent_height * latent_width;
    // A picture of half a latent more has moments, but no latents.
    const bool is_whole = height % factor == 0 && width % factor == 0;
    sumi_plan plan;
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_IMAGE, 1, 0);
    job.pixels = sumi_plan_bound(&plan, "pixels", SUMI_ELEMENT_BYTE, height * width, 3);
    if (job.eps.values != NULL) job.eps_value = sumi_plan_bound(&plan, "eps", SUMI_ELEMENT_FLOAT, channels, size);
    sumi_value mode = sumi_plan_bound(&plan, "mode", SUMI_ELEMENT_FLOAT, channels, size),
               sample = sumi_plan_bound(&plan, "sample", SUMI_ELEMENT_FLOAT, channels, size);
    job.moments = sumi_vae_tiles_encode(tiling, &plan, &(sumi_tile_source){job.pixels, height, width}, tile);
    if (is_whole) {
        sumi_vae_posterior(tiling, &plan, job.moments, SUMI_NO_VALUE,
                           &(sumi_tile_source){mode, latent_height, latent_width});
    } else if (job.moments.id > 0 && (size_t)job.moments.id <= plan.value_count) {
        plan.values[job.moments.id - 1].bound = true;
    }
    if (is_whole && job.eps.values != NULL)
        sumi_vae_posterior(tiling, &plan, job.moments, job.eps_value,
                           &(sumi_tile_source){sample, latent_height, latent_width});
    if (is_planar) job.exact = give_exact_pixels(&plan, job.pixels);
    sumi_error error = {0};
    plan_run run = {.c = c, .write = write_vae, .probe = probe_vae, .context = &job};
    watcher* w = calloc(1, sizeof *w);
    if (tile == 0) {
        w->groups = groups_of(c, part);
        watch_vae(c, w, "encoder");
        job.w = w;
    }
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        compare_watches(c, w);
        array moments = c->by_op || !is_whole
                          ? read_planes(&run, job.moments, height / tiling->factor, width / tiling->factor)
                          : (array){0},
              one = is_whole ? read_array(&run, mode) : (array){0},
              two = job.eps.values != NULL ? read_array(&run, sample) : (array){0};
        compare(c, "moments", &moments);
        compare_moments(c, &moments);
        if (is_whole) compare(c, has_expected(c, "latent") ? "latent" : "latent_mode", &one);
        if (job.eps.values != NULL) compare(c, "latent_sample", &two);
        array_free(&moments);
        array_free(&one);
        array_free(&two);
    }
    end_plan(c, &plan);
    free(w);
    array_free(&job.image);
    array_free(&job.eps);
}

static void run_part(golden_case* c, const flux_part* part, bool decodes, bool encodes)
{
    if ((decodes && !part->is.has_decoder) || (encodes && !part->is.has_encoder)) {
        case_fails(c, "the checkpoint has no such half of the VAE");
        return;
    }
    int32_t tile = 0;
    if (strcmp(c->kind, "vae_tiled") == 0) { // in latents of its own
        const int32_t packing = part->tiling.packing, side = (int32_t)json_number(c->json, "tile_latent_min_size", 0),
                      pixels = side * part->tiling.factor;
        if (json_number(c->json, "tile_overlap_factor", 0.25) != 0.25 || side < 1 || side % 4 != 0
            || json_number(c->json, "tile_sample_min_size", pixels) != pixels) {
            case_fails(c, "this library's tiles overlap by a quarter and are multiples of 4 latents");
            return;
        }
        tile = side / packing;
    }
    if (decodes && sumi_tensor_find(&c->set, "input.latent") != NULL) run_decode(c, part, tile);
    if (encodes && sumi_tensor_find(&c->set, "input.image") != NULL) run_encode(c, part, tile);
}

void run_flux_vae_case(golden_case* c, sumi_network* network, bool decodes, bool encodes)
{
    if (network == NULL) return;
    const sumi_autoencoder_module* module = network->recipe->autoencoder;
    const flux_part part = {module->tiling(network->autoencoder), module->properties(network->autoencoder)};
    run_part(c, &part, decodes, encodes);
}

bool run_flux_vae_alone(golden_case* c)
{
    const bool decodes = strcmp(c->kind, "vae_decode") == 0, encodes = strcmp(c->kind, "vae_encode") == 0,
               is_tiled = strcmp(c->kind, "vae_tiled") == 0;
    if (!decodes && !encodes && !is_tiled) return false;
    case_component component = {0};
    sumi_error error = {0};
    sumi_flux_vae* vae = calloc(1, sizeof *vae);
    if (open_component(c, SUMI_COMPONENT_VAE, "the VAE", &component)) {
        component.binder.error = &error;
        if (sumi_flux_vae_module.bind(vae, NULL, &component.binder, &component.config, false) != SUMI_OK) {
            case_fails(c, "%s", error.text);
        } else {
            const flux_part part = {sumi_flux_vae_module.tiling(vae), sumi_flux_vae_module.properties(vae)};
            run_part(c, &part, decodes || is_tiled, encodes || is_tiled);
        }
    }
    close_component(c, &component);
    free(vae);
    return true;
}
