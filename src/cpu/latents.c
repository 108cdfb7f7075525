// Ops on latents (float, one row per channel plane): patches, noise, guidance, solver, preview, the output of
// the VAE's encoder and the input of its decoder.
#include "base/assert.h"
#include "cpu/ops_cpu.h"
#include <math.h>
#include <string.h>

typedef struct latent_loop {
    sumi_cpu_run* run;
    const float *x, *y, *h, *v, *noise, *clean, *mask;
    float *out, *y_out, *h_out;
    const float* row; // row of the step table
    int32_t plane;    // floats per channel plane
} latent_loop;

static void run_over_items(latent_loop* loop, sumi_loop_body* body)
{
    SUMI_ASSERT(loop->plane >= 1 && loop->out != NULL);
    sumi_parallel(loop->run->workers, loop->run->row_end - loop->run->row_begin, 1, body, loop);
}

// ---- PATCHIFY, UNPATCHIFY -------------------------------------------------------------------------------------------
// Patches of p x p pixels. Token (h, w), feature (ph * p + pw) * channels + c  <->  latent[c][p h + ph][p w + pw]. With
// by_channel the feature is c * p^2 + ph * p + pw. A loop item is a sequence.
static void move_patches(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    latent_loop* loop = context;
    const sumi_op* op = loop->run->op;
    bool from_latent = op->kind == SUMI_OP_PATCHIFY;
    const int32_t patch = op->u.patch.patch, area = patch * patch;
    int32_t width = op->u.patch.width, channels = op->u.patch.channels, columns = width / patch,
            tokens = op->u.patch.height / patch * columns;
    int32_t cols = sumi_cpu_cols(loop->run, from_latent ? op->out : op->in[0]);
    int32_t pixel_step = op->u.patch.by_channel ? 1 : channels, channel_step = op->u.patch.by_channel ? area : 1;
    for (int32_t s = loop->run->row_begin + begin; s < loop->run->row_begin + end; s++) {
        // patchify reads the latent of the sequence's item; unpatchify writes the sequence's own prediction
        int64_t latent = (int64_t)(from_latent ? op->u.patch.items[s] : s) * channels * loop->plane;
        for (int32_t t = 0; t < tokens; t++) {
            int64_t row = (int64_t)(op->u.patch.row_begin[s] + t) * cols;
            for (int32_t f = 0; f < area; f++) {
                int64_t pixel =
                    latent + (int64_t)(t / columns * patch + f / patch) * width + t % columns * patch + f % patch;
                for (int32_t c = 0; c < channels; c++, pixel += loop->plane) {
                    if (from_latent) {
                        loop->out[row + f * pixel_step + c * channel_step] = loop->x[pixel];
                    } else {
                        loop->out[pixel] = op->u.patch.sign * loop->x[row + f * pixel_step + c * channel_step];
                    }
                }
            }
        }
    }
}

sumi_result sumi_cpu_patchify(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->op->u.patch.height % run->op->u.patch.patch == 0
                && run->op->u.patch.width % run->op->u.patch.patch == 0);
    latent_loop loop = {.run = run,
                        .x = sumi_cpu_value(run, run->op->in[0]),
                        .out = sumi_cpu_value(run, run->op->out),
                        .plane = run->op->u.patch.height * run->op->u.patch.width};
    run_over_items(&loop, move_patches);
    return SUMI_OK;
}
sumi_result sumi_cpu_unpatchify(sumi_cpu_run* run) { return sumi_cpu_patchify(run); }

// ---- ADD_NOISE, SOLVE: a loop item is a channel plane ---------------------------------------------------------------
static void add_noise(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    latent_loop* loop = context;
    float sigma = loop->row[0];
    for (int64_t i = (int64_t)(loop->run->row_begin + begin) * loop->plane;
         i < (int64_t)(loop->run->row_begin + end) * loop->plane; i++)
        loop->out[i] = sigma * loop->noise[i] + (1.0f - sigma) * loop->clean[i];
}

sumi_result sumi_cpu_add_noise(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->op->u.add_noise.sigma.table.id != 0);
    const sumi_op* op = run->op;
    latent_loop loop = {.run = run,
                        .noise = sumi_cpu_value(run, op->in[0]),
                        .clean = sumi_cpu_value(run, op->in[1]),
                        .out = sumi_cpu_value(run, op->out),
                        .plane = sumi_cpu_cols(run, op->out)};
    loop.row = sumi_cpu_step(run, op->u.add_noise.sigma);
    run_over_items(&loop, add_noise);
    return SUMI_OK;
}

// The sum of factors[i] * values[i] over the factors that are not 0: a state that the solver has not written yet may
// hold anything. Each product and sum is rounded separately, as in the references.
static float combine(const float factors[4], const float values[4])
{
    float sum = 0.0f;
    bool is_first = true;
    for (int32_t t = 0; t < 4; t++) {
        if (factors[t] != 0.0f) {
            float term = factors[t] == 1.0f ? values[t] : factors[t] * values[t];
            sum = is_first ? term : sum + term;
            is_first = false;
        }
    }
    return sum;
}

static void solve(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    latent_loop* loop = context;
    const float* row = loop->row; // sumi_solver_row: cx cy cv ch hx hv hh keeps sigma blend_sigma guidance step
    const float next[4] = {row[0], row[1], row[2], row[3]}, history[4] = {row[4], 0.0f, row[5], row[6]};
    bool blends = loop->mask != NULL && row[9] >= 0.0f;
    for (int32_t plane = loop->run->row_begin + begin; plane < loop->run->row_begin + end; plane++) {
        int64_t first = (int64_t)plane * loop->plane;
        const float* mask =
            blends ? loop->mask + (int64_t)(plane / loop->run->op->u.solve.channels) * loop->plane : NULL;
        for (int32_t i = 0; i < loop->plane; i++) {
            int64_t at = first + i;
            const float values[4] = {loop->x[at], loop->y == NULL ? 0.0f : loop->y[at], loop->v[at],
                                     loop->h == NULL ? 0.0f : loop->h[at]};
            float x = combine(next, values);
            if (blends) {
                float noised = row[9] * loop->noise[at] + (1.0f - row[9]) * loop->clean[at];
                x = (1.0f - mask[i]) * noised + mask[i] * x;
            }
            if (loop->h_out != NULL) loop->h_out[at] = combine(history, values);
            if (loop->y_out != NULL && row[7] == 0.0f) loop->y_out[at] = x;
            loop->out[at] = x;
        }
    }
}

sumi_result sumi_cpu_solve(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->op->u.solve.row.table.id != 0 && run->op->u.solve.channels >= 1);
    const sumi_op* op = run->op;
    latent_loop loop = {.run = run,
                        .x = sumi_cpu_value(run, op->in[0]),
                        .y_out = sumi_cpu_value(run, op->in[1]),
                        .h_out = sumi_cpu_value(run, op->in[2]),
                        .v = sumi_cpu_value(run, op->in[3])};
    loop.noise = sumi_cpu_value(run, op->in[4]);
    loop.clean = sumi_cpu_value(run, op->in[5]);
    loop.mask = sumi_cpu_value(run, op->mask);
    loop.y = loop.y_out;
    loop.h = loop.h_out;
    loop.out = sumi_cpu_value(run, op->out);
    loop.plane = sumi_cpu_cols(run, op->out);
    loop.row = sumi_cpu_step(run, op->u.solve.row);
    run_over_items(&loop, solve);
    return SUMI_OK;
}

// ---- Packed latents -------------------------------------------------------------------------------------------------
// Where a latent has the values of pixel (y, x) of its picture, which is `width` pixels wide; see PREVIEW in ops.h.
// `pixel` is y * width + x.
typedef struct packed_place {
    int32_t channel; // k(0, y, x); channel c of the picture is c * packing^2 channels further
    int32_t at;      // in the plane of a channel
} packed_place;

static packed_place place_of(int32_t packing, int32_t width, int32_t pixel)
{
    if (packing == 1) return (packed_place){0, pixel};
    const int32_t y = pixel / width, x = pixel % width;
    return (packed_place){y % packing * packing + x % packing, y / packing * (width / packing) + x / packing};
}

// ---- GUIDE, PREVIEW: a loop item is a picture -----------------------------------------------------------------------
static double length_of(const float* x, int64_t count)
{
    double sum = 0.0;
    for (int64_t i = 0; i < count; i++) sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

// Scales each token of `v` to the length of the same token of `positive`. Sums run over channels, then rows, then
// columns, as on the GPU.
static void rescale_tokens(const sumi_op_guide* guide, const float* positive, float* v, int32_t plane)
{
    const int32_t patch = guide->patch_size, columns = guide->width / patch,
                  token_count = plane / guide->width / patch * columns;
    SUMI_ASSERT(patch >= 1 && guide->width % patch == 0 && token_count * patch * patch == plane);
    for (int32_t t = 0; t < token_count; t++) {
        const int64_t corner = (int64_t)(t / columns) * patch * guide->width + t % columns * patch;
        double before = 0.0, after = 0.0;
        for (int32_t c = 0; c < guide->channels; c++) {
            for (int32_t k = 0; k < patch * patch; k++) {
                const int64_t at = corner + (int64_t)c * plane + (int64_t)(k / patch) * guide->width + k % patch;
                before += (double)positive[at] * (double)positive[at];
                after += (double)v[at] * (double)v[at];
            }
        }
        const float factor = after > 0.0 ? (float)(sqrt(before) / sqrt(after)) : 0.0f;
        for (int32_t c = 0; c < guide->channels; c++) {
            for (int32_t k = 0; k < patch * patch; k++)
                v[corner + (int64_t)c * plane + (int64_t)(k / patch) * guide->width + k % patch] *= factor;
        }
    }
}

static void guide(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    latent_loop* loop = context;
    const sumi_op* op = loop->run->op;
    int64_t count = (int64_t)op->u.guide.channels * loop->plane;
    float s = loop->row == NULL ? 0.0f : loop->row[0],
          limit = op->u.guide.rule == SUMI_GUIDANCE_NORM_LIMIT ? op->u.guide.norm_limit : 0.0f;
    for (int32_t item = loop->run->row_begin + begin; item < loop->run->row_begin + end; item++) {
        const float* positive = loop->x + op->u.guide.positive[item] * count;
        SUMI_ASSERT(op->u.guide.positive[item] >= 0);
        float* out = loop->out + item * count;
        if (op->u.guide.negative[item] < 0 || s == 0.0f) {
            memcpy(out, positive, (size_t)count * sizeof(float));
            continue;
        }
        const float* negative = loop->x + op->u.guide.negative[item] * count;
        for (int64_t i = 0; i < count; i++) out[i] = positive[i] + s * (positive[i] - negative[i]);
        if (limit > 0.0f) {
            double before = length_of(positive, count), after = length_of(out, count);
            if (after > before * (double)limit)
                loop->run->kernels->scale(out, out, (float)(before * (double)limit / after), (int32_t)count);
        }
        if (op->u.guide.rule == SUMI_GUIDANCE_NORM_RESCALE) rescale_tokens(&op->u.guide, positive, out, loop->plane);
    }
}

sumi_result sumi_cpu_guide(sumi_cpu_run* run)
{
    latent_loop loop = {.run = run,
                        .x = sumi_cpu_value(run, run->op->in[0]),
                        .out = sumi_cpu_value(run, run->op->out),
                        .plane = sumi_cpu_cols(run, run->op->out)};
    loop.row = sumi_cpu_step(run, run->op->u.guide.scale);
    run_over_items(&loop, guide);
    return SUMI_OK;
}

static void preview(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    latent_loop* loop = context;
    const sumi_op* op = loop->run->op;
    const int32_t channels = op->u.preview.channels, packing = op->u.preview.packing, area = packing * packing,
                  plane = loop->plane / area; // of the latents; an item has as many values as pixels times channels
    float sigma = loop->row[0];
    for (int32_t item = loop->run->row_begin + begin; item < loop->run->row_begin + end; item++) {
        const float *x = loop->x + (int64_t)item * channels * loop->plane,
                    *v = loop->v + (int64_t)item * channels * loop->plane;
        float* out = loop->out + (int64_t)item * 3 * loop->plane;
        for (int32_t i = 0; i < loop->plane; i++) {
            float rgb[3] = {op->u.preview.bias[0], op->u.preview.bias[1], op->u.preview.bias[2]};
            const packed_place place = place_of(packing, op->u.preview.width, i);
            for (int32_t c = 0; c < channels; c++) {
                const int64_t at = (int64_t)(c * area + place.channel) * plane + place.at;
                float clean = x[at] - sigma * v[at];
                for (int32_t k = 0; k < 3; k++) rgb[k] += clean * op->u.preview.factors[c * 3 + k];
            }
            for (int32_t k = 0; k < 3; k++) out[(int64_t)k * loop->plane + i] = rgb[k];
        }
    }
}

sumi_result sumi_cpu_preview(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->op->u.preview.sigma.table.id != 0 && run->op->u.preview.channels >= 1);
    const sumi_op* op = run->op;
    latent_loop loop = {.run = run,
                        .x = sumi_cpu_value(run, op->in[0]),
                        .v = sumi_cpu_value(run, op->in[1]),
                        .out = sumi_cpu_value(run, op->out),
                        .plane = sumi_cpu_cols(run, op->out)};
    loop.row = sumi_cpu_step(run, op->u.preview.sigma);
    run_over_items(&loop, preview);
    return SUMI_OK;
}

// ---- POSTERIOR, LATENT_IN -------------------------------------------------------------------------------------------
sumi_result sumi_cpu_posterior(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->op->u.posterior.channels * 2 == sumi_cpu_cols(run, run->op->in[0]));
    SUMI_ASSERT(run->op->u.posterior.packing == 1 || run->op->u.posterior.width >= 2);
    const sumi_op* op = run->op;
    const float *moments = sumi_cpu_value(run, op->in[0]), *eps = sumi_cpu_value(run, op->in[1]);
    float* out = sumi_cpu_value(run, op->out);
    const int32_t channels = op->u.posterior.channels, packing = op->u.posterior.packing, area = packing * packing,
                  plane = sumi_cpu_cols(run, op->out);
    if (run->row_begin >= run->row_end) return SUMI_OK;
    for (int32_t c = 0; c < channels; c++) {
        for (int32_t i = 0; i < plane * area; i++) {
            const float* pixel = moments + (int64_t)i * 2 * channels;
            const packed_place place = place_of(packing, op->u.posterior.width, i);
            const int32_t k = c * area + place.channel;
            const int64_t at = (int64_t)k * plane + place.at;
            float z = pixel[c];
            if (eps != NULL) {
                float log_variance = pixel[channels + c]; // not fmaxf and fminf, which would make -30 of NaN
                log_variance = log_variance < -30.0f ? -30.0f : log_variance > 20.0f ? 20.0f : log_variance;
                z += (float)exp((double)(0.5f * log_variance)) * eps[at];
            }
            out[at] = (z - op->u.posterior.shift[k]) * op->u.posterior.scale[k];
        }
    }
    return SUMI_OK;
}

sumi_result sumi_cpu_latent_in(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->op->u.latent_in.tile_width >= 1 && run->op->u.latent_in.scale != NULL);
    const sumi_op* op = run->op;
    const int32_t channels = op->u.latent_in.channels, width = op->u.latent_in.width, packing = op->u.latent_in.packing,
                  area = packing * packing, plane = op->u.latent_in.height * width / area;
    const float* latents = (const float*)sumi_cpu_value(run, op->in[0])
                         + (int64_t)(op->u.latent_in.per_item ? run->counter : 0) * channels * area * plane;
    float* out = sumi_cpu_value(run, op->out);
    for (int32_t r = run->row_begin; r < run->row_end; r++) {
        const int32_t y = op->u.latent_in.y + r / op->u.latent_in.tile_width,
                      x = op->u.latent_in.x + r % op->u.latent_in.tile_width;
        const packed_place place = place_of(packing, width, y * width + x);
        for (int32_t c = 0; c < channels; c++) {
            const int32_t k = c * area + place.channel;
            out[(int64_t)r * channels + c] =
                latents[(int64_t)k * plane + place.at] / op->u.latent_in.scale[k] + op->u.latent_in.shift[k];
        }
    }
    return SUMI_OK;
}
