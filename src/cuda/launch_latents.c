// Launchers of the ops on latents (one row per channel plane, always float): patches, noise, guidance, solver, preview,
// inputs and outputs of the VAE. The kernels are in kernels/latents.cu.
#include "base/numbers.h"
#include "cuda/device.h"
#include "cuda/launch.h"
#include "kernels/latents.h"

#define MAX_BLOCKS 16 // blocks per multiprocessor; the kernels have grid-stride loops

static bool is_float(const sumi_cuda_run* run, sumi_value value)
{
    return sumi_cuda_element(run, value) == SUMI_ELEMENT_FLOAT;
}

// One thread per element, at most MAX_BLOCKS per multiprocessor. y: items of a launch.
static sumi_cuda_grid latent_grid(const sumi_cuda_run* run, int64_t elements, int32_t y)
{
    const int64_t blocks = (elements + SUMI_LATENTS_THREADS - 1) / SUMI_LATENTS_THREADS;
    return (sumi_cuda_grid){(uint32_t)sumi_min_int64(blocks, (int64_t)run->device->multiprocessors * MAX_BLOCKS),
                            (uint32_t)y, 1, SUMI_LATENTS_THREADS, 0};
}

// ---- PATCHIFY, UNPATCHIFY: rows are sequences -----------------------------------------------------------------------
static sumi_result launch_patches(const sumi_cuda_run* run, const char* kernel, sumi_value latents, sumi_value rows,
                                  bool reads_latents)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range sequences = sumi_cuda_rows_of(run);
    sumi_patch_args args = {.latents = sumi_cuda_value(run, latents),
                            .rows = sumi_cuda_value(run, rows),
                            .rows_are_float = is_float(run, rows),
                            .height = op->u.patch.height,
                            .width = op->u.patch.width,
                            .channels = op->u.patch.channels,
                            .sign = op->u.patch.sign,
                            .by_channel = op->u.patch.by_channel,
                            .patch = op->u.patch.patch};
    const int64_t tokens = (int64_t)(args.height / args.patch) * (args.width / args.patch);
    for (int32_t first = sequences.begin; first < sequences.end; first += SUMI_LATENTS_BATCH) {
        int32_t count = 0;
        for (; count < SUMI_LATENTS_BATCH && first + count < sequences.end; count++) {
            // the latent of a sequence: the item's when latents are read, the sequence's own when predictions are
            // written
            args.latent[count] = reads_latents ? op->u.patch.items[first + count] : first + count;
            args.row_begin[count] = op->u.patch.row_begin[first + count];
        }
        SUMI_TRY(sumi_cuda_launch_args(run, kernel, latent_grid(run, tokens * args.channels, count), &args));
    }
    return SUMI_OK;
}
sumi_result sumi_cuda_patchify(sumi_cuda_run* run)
{
    return launch_patches(run, "sumi_patchify", run->op->in[0], run->op->out, true);
}
sumi_result sumi_cuda_unpatchify(sumi_cuda_run* run)
{
    return launch_patches(run, "sumi_unpatchify", run->op->out, run->op->in[0], false);
}

// ---- ADD_NOISE, SOLVE: rows are channel planes ----------------------------------------------------------------------
sumi_result sumi_cuda_add_noise(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range planes = sumi_cuda_rows_of(run);
    const int64_t plane = sumi_cuda_cols(run, op->out);
    sumi_add_noise_args args = {.noise = sumi_cuda_value(run, op->in[0]),
                                .clean = sumi_cuda_value(run, op->in[1]),
                                .x = sumi_cuda_value(run, op->out),
                                .counter = run->counter};
    args.sigma = sumi_cuda_step_of(run, op->u.add_noise.sigma);
    args.begin = planes.begin * plane;
    args.end = planes.end * plane;
    return sumi_cuda_launch_args(run, "sumi_add_noise", latent_grid(run, args.end - args.begin, 1), &args);
}

sumi_result sumi_cuda_solve(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range planes = sumi_cuda_rows_of(run);
    sumi_solve_args args = {.x = sumi_cuda_value(run, op->in[0]),
                            .y = sumi_cuda_value(run, op->in[1]),
                            .h = sumi_cuda_value(run, op->in[2]),
                            .v = sumi_cuda_value(run, op->in[3])};
    args.noise = sumi_cuda_value(run, op->in[4]);
    args.clean = sumi_cuda_value(run, op->in[5]);
    args.mask = sumi_cuda_value(run, op->mask);
    args.out = sumi_cuda_value(run, op->out);
    args.counter = run->counter;
    args.row = sumi_cuda_step_of(run, op->u.solve.row);
    args.plane = sumi_cuda_cols(run, op->out);
    args.channels = op->u.solve.channels;
    args.begin = planes.begin;
    args.end = planes.end;
    return sumi_cuda_launch_args(run, "sumi_solve",
                                 latent_grid(run, args.plane, (int32_t)sumi_min_int64(planes.end - planes.begin, 1024)),
                                 &args);
}

// ---- GUIDE, PREVIEW: rows are items ---------------------------------------------------------------------------------
static float norm_limit(const sumi_op* op)
{
    return op->u.guide.rule == SUMI_GUIDANCE_NORM_LIMIT ? op->u.guide.norm_limit : 0.0f;
}

uint64_t sumi_cuda_guide_scratch(const sumi_cuda_device* device, const sumi_plan* plan, const sumi_op* op)
{
    (void)device;
    (void)plan;
    return norm_limit(op) > 0.0f ? (uint64_t)op->u.guide.item_count * SUMI_GUIDE_BLOCKS * 2 * sizeof(double) : 0;
}

sumi_result sumi_cuda_guide(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range items = sumi_cuda_rows_of(run);
    sumi_guide_args args = {.predictions = sumi_cuda_value(run, op->in[0]),
                            .v = sumi_cuda_value(run, op->out),
                            .sums = run->scratch,
                            .counter = run->counter};
    args.scale = sumi_cuda_step_of(run, op->u.guide.scale);
    args.count = (int64_t)op->u.guide.channels * sumi_cuda_cols(run, op->out);
    args.limit = norm_limit(op);
    const bool rescales = op->u.guide.rule == SUMI_GUIDANCE_NORM_RESCALE;
    if (rescales) {
        args.plane = sumi_cuda_cols(run, op->out);
        args.width = op->u.guide.width;
        args.patch_size = op->u.guide.patch_size;
    }
    for (args.first_item = items.begin; args.first_item < items.end; args.first_item += SUMI_LATENTS_BATCH) {
        int32_t count = 0;
        for (; count < SUMI_LATENTS_BATCH && args.first_item + count < items.end; count++) {
            args.positive[count] = op->u.guide.positive[args.first_item + count];
            args.negative[count] = op->u.guide.negative[args.first_item + count];
        }
        if (rescales) {
            const int64_t tokens = args.plane / ((int64_t)args.patch_size * args.patch_size);
            SUMI_TRY(sumi_cuda_launch_args(run, "sumi_guide_rescale", latent_grid(run, tokens, count), &args));
            continue;
        }
        if (args.limit > 0.0f) {
            SUMI_TRY(sumi_cuda_launch_args(
                run, "sumi_guide_sums",
                (sumi_cuda_grid){SUMI_GUIDE_BLOCKS, (uint32_t)count, 1, SUMI_LATENTS_THREADS, 0}, &args));
        }
        SUMI_TRY(sumi_cuda_launch_args(run, "sumi_guide", latent_grid(run, args.count, count), &args));
    }
    return SUMI_OK;
}

sumi_result sumi_cuda_preview(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range items = sumi_cuda_rows_of(run);
    sumi_preview_args args = {.x = sumi_cuda_value(run, op->in[0]),
                              .v = sumi_cuda_value(run, op->in[1]),
                              .rgb = sumi_cuda_value(run, op->out),
                              .counter = run->counter};
    args.sigma = sumi_cuda_step_of(run, op->u.preview.sigma);
    args.packed = (sumi_packed){op->u.preview.packing, op->u.preview.width};
    args.plane = sumi_cuda_cols(run, op->out);
    args.channels = op->u.preview.channels;
    if (args.channels > SUMI_PREVIEW_CHANNELS) {
        return sumi_fail(run->error, SUMI_INTERNAL, "%s: a preview of %d latent channels; the kernel takes %d",
                         op->label, (int)args.channels, SUMI_PREVIEW_CHANNELS);
    }
    for (int32_t k = 0; k < 3; k++) args.bias[k] = op->u.preview.bias[k];
    for (int32_t i = 0; i < 3 * args.channels; i++) args.factors[i] = op->u.preview.factors[i];
    for (args.first_item = items.begin; args.first_item < items.end; args.first_item += 1024) {
        SUMI_TRY(sumi_cuda_launch_args(
            run, "sumi_preview",
            latent_grid(run, args.plane, (int32_t)sumi_min_int64(items.end - args.first_item, 1024)), &args));
    }
    return SUMI_OK;
}

// ---- POSTERIOR, LATENT_IN -------------------------------------------------------------------------------------------
static sumi_result set_statistics(const sumi_cuda_run* run, const float* scale, const float* shift, int32_t channels,
                                  sumi_channel_statistics* out)
{
    if (channels > SUMI_STATISTICS_CHANNELS) {
        return sumi_fail(run->error, SUMI_INTERNAL, "%s: statistics of %d latent channels; the kernel takes %d",
                         run->op->label, (int)channels, SUMI_STATISTICS_CHANNELS);
    }
    for (int32_t c = 0; c < channels; c++) {
        out->scale[c] = scale[c];
        out->shift[c] = shift[c];
    }
    return SUMI_OK;
}

sumi_result sumi_cuda_posterior(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    sumi_posterior_args args = {.moments = sumi_cuda_value(run, op->in[0]),
                                .eps = sumi_cuda_value(run, op->in[1]),
                                .latents = sumi_cuda_value(run, op->out)};
    args.packed = (sumi_packed){op->u.posterior.packing, op->u.posterior.width};
    args.moments_are_float = is_float(run, op->in[0]);
    args.plane = sumi_cuda_cols(run, op->out);
    args.channels = op->u.posterior.channels;
    const int32_t latent_channels = args.channels * args.packed.side * args.packed.side;
    SUMI_TRY(set_statistics(run, op->u.posterior.scale, op->u.posterior.shift, latent_channels, &args.statistics));
    return sumi_cuda_launch_args(
        run, "sumi_posterior",
        latent_grid(run, (int64_t)args.plane * latent_channels, run->range_begin < run->range_end ? 1 : 0), &args);
}

sumi_result sumi_cuda_latent_in(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_cuda_range pixels = sumi_cuda_rows_of(run);
    sumi_latent_in_args args = {
        .latents = sumi_cuda_value(run, op->in[0]), .picture = sumi_cuda_value(run, op->out), .counter = run->counter};
    args.packed = (sumi_packed){op->u.latent_in.packing, op->u.latent_in.width};
    args.picture_is_float = is_float(run, op->out);
    args.channels = op->u.latent_in.channels;
    args.height = op->u.latent_in.height;
    args.width = op->u.latent_in.width;
    args.y = op->u.latent_in.y;
    args.x = op->u.latent_in.x;
    args.tile_width = op->u.latent_in.tile_width;
    args.begin = pixels.begin;
    args.end = pixels.end;
    args.per_item = op->u.latent_in.per_item;
    SUMI_TRY(set_statistics(run, op->u.latent_in.scale, op->u.latent_in.shift,
                            args.channels * args.packed.side * args.packed.side, &args.statistics));
    return sumi_cuda_launch_args(run, "sumi_latent_in",
                                 latent_grid(run, (int64_t)(pixels.end - pixels.begin) * ((args.channels + 7) / 8), 1),
                                 &args);
}
