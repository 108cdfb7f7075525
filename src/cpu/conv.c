// Convolution as a matrix product over pixels (rows) and taps x channels (depth) without storing the taps: each tile of
// A is gathered from the picture just before use. Pictures are NHWC, so a tap of a pixel is a contiguous run of
// channels.
//
//     A(pixel, tap * ci + c) = x[pixel's input row + ky][pixel's input column + kx][c], 0 outside
//     B(tap * ci + c, co)    = weight[co][c][tap]
//
// The weights are reordered into panels once, for all workers (9.4 MB for 512 -> 512 channels); the next slice of the
// same op reuses the panels. This takes milliseconds. So in an op that was cut (sumi_cpu_conv_cut) each of the first
// work ranges reorders a part of the weights, and the others compute pixels:
//
//     work ranges   | weights | weights | pixels | pixels | pixels | pixels |
//
// Upsampling by 2 (nearest) shifts the input coordinates. A 1x1 convolution has one tap.
#include "base/assert.h"
#include "base/numbers.h"
#include "cpu/ops_cpu.h"
#include <string.h>

typedef struct conv_source {
    const float* x;
    int32_t height, width, channels; // of the stored input, before upsampling
    int32_t out_width, kernel, stride, pad, shift;
    // above: input row at which the output's first row lies (an output may be a strip); pitch: floats from pixel to
    // pixel
    int32_t above, pitch;
} conv_source;

static void load_taps(const sumi_cpu_product* product, int32_t row, int32_t rows, int32_t k, int32_t depth, float* tile)
{
    SUMI_ASSERT(rows >= 1 && rows <= SUMI_CPU_MAX_TILE_ROWS && k + depth <= product->depth);
    const conv_source* source = product->source;
    const int32_t channels = source->channels, kernel = source->kernel;
    const int32_t height = source->height << source->shift, width = source->width << source->shift;
    // If adjacent pixels are contiguous in memory, the taps of a kernel row are one run.
    const bool has_runs = source->shift == 0 && source->pitch == channels;
    const int32_t first_tap = k / channels, first_ky = first_tap / kernel, first_kx = first_tap % kernel;
    int32_t y = row / source->out_width + (source->above << source->shift), x = row % source->out_width;
    for (int32_t r = 0; r < rows; r++) {
        float* to = tile + r * SUMI_CPU_A_STRIDE;
        const int32_t left = x * source->stride - source->pad;
        int32_t ky = first_ky, kx = first_kx, channel = k % channels;
        for (int32_t done = 0; done < depth;) {
            const int32_t iy = y * source->stride + ky - source->pad, ix = left + kx;
            const bool is_inside = iy >= 0 && iy < height && ix >= 0 && ix < width;
            const int32_t taps = has_runs && is_inside ? sumi_min_int(kernel - kx, width - ix) : 1,
                          count = sumi_min_int(taps * channels - channel, depth - done);
            if (!is_inside) {
                memset(to + done, 0, (size_t)count * sizeof(float));
            } else {
                int64_t pixel = (int64_t)(iy >> source->shift) * source->width + (ix >> source->shift);
                memcpy(to + done, source->x + pixel * source->pitch + channel, (size_t)count * sizeof(float));
            }
            done += count;
            channel = 0;
            kx += taps;
            if (kx >= kernel) {
                kx = 0;
                ky++;
            }
        }
        if (++x == source->out_width) {
            x = 0;
            y++;
        }
    }
}

// Loop items are panels of output channels, or rows of B for a narrow product (sumi_cpu_is_narrow), counted from the
// first one that is not packed yet.
static void pack_panels(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    SUMI_ASSERT(begin >= 0 && begin < end);
    const sumi_cpu_run* run = context;
    begin += *run->packed_count, end += *run->packed_count;
    const sumi_weight* weight = run->op->weight;
    int32_t taps = run->op->u.conv.kernel * run->op->u.conv.kernel, channels = weight->cols / taps,
            tile_cols = run->kernels->tile_cols;
    float* row = sumi_cpu_worker(run, worker_index);
    if (sumi_cpu_is_narrow(weight->rows)) {
        for (int32_t column = begin; column < end; column++) {
            sumi_weight_to_float(weight, column, 1, row, weight->cols);
            for (int32_t i = 0; i < weight->cols; i++) {
                run->shared[(size_t)column * (size_t)weight->cols + (size_t)i] =
                    row[i % channels * taps + i / channels];
            }
        }
        return;
    }
    for (int32_t p = begin; p < end; p++) {
        float* panel = run->shared + (size_t)p * (size_t)weight->cols * (size_t)tile_cols;
        for (int32_t j = 0; j < tile_cols; j++) {
            int32_t column = p * tile_cols + j;
            if (column < weight->rows) {
                sumi_weight_to_float(weight, column, 1, row, weight->cols);
            } else {
                memset(row, 0, (size_t)weight->cols * sizeof(float));
            }
            for (int32_t tap = 0; tap < taps; tap++) {
                for (int32_t c = 0; c < channels; c++) {
                    panel[((size_t)tap * (size_t)channels + (size_t)c) * (size_t)tile_cols + (size_t)j] =
                        row[c * taps + tap];
                }
            }
        }
    }
}

sumi_cpu_scratch sumi_cpu_conv_scratch(const sumi_cpu_kernels* kernels, const sumi_plan* plan, const sumi_op* op)
{
    (void)plan;
    uint64_t row = (uint64_t)op->weight->cols * sizeof(float),
             product = sumi_cpu_product_worker_bytes(kernels, op->weight->rows, op->rows);
    uint64_t panels = sumi_cpu_panel_bytes(kernels, op->weight->rows, op->weight->cols);
    return (sumi_cpu_scratch){panels + (uint64_t)op->weight->rows * sizeof(float), row > product ? row : product};
}

// Pixels of a range are whole tiles. A range of weights has about this many elements, and takes about as long as a
// range of pixels.
#define PACKED_ELEMENTS 131072

void sumi_cpu_conv_cut(const sumi_cpu_kernels* kernels, sumi_op* op)
{
    const int32_t tiles = sumi_divide_up(op->rows, kernels->tile_rows), cols = op->weight->rows,
                  items = sumi_cpu_is_narrow(cols) ? cols : sumi_divide_up(cols, kernels->tile_cols);
    const int64_t elements = (int64_t)cols * op->weight->cols;
    const double flops = 2.0 * sumi_plan_conv_effort(op->weight) * op->weight->cols * op->rows;
    const int32_t count = sumi_cpu_range_count(flops, op->bytes, tiles);
    op->is_cut = true;
    op->range_rows = sumi_min_int(op->rows, kernels->tile_rows * sumi_max_int(tiles / count, 1));
    op->preparing_count = (int32_t)sumi_min_int64(elements / PACKED_ELEMENTS, items);
    op->range_count = op->preparing_count + sumi_divide_up(op->rows, op->range_rows);
}

static float* bias_of(const sumi_cpu_run* run)
{
    const sumi_weight* weight = run->op->weight;
    return run->shared + sumi_cpu_panel_bytes(run->kernels, weight->rows, weight->cols) / sizeof(float);
}

// Reorders the weights of all work ranges before `range` that earlier slices have not reordered. In an op without such
// ranges the first range reorders all weights.
static void pack_until(sumi_cpu_run* run, int32_t range)
{
    const int32_t cols = run->op->weight->rows, range_count = run->op->preparing_count,
                  items = sumi_cpu_is_narrow(cols) ? cols : sumi_divide_up(cols, run->kernels->tile_cols),
                  end = range < range_count ? (int32_t)((int64_t)items * range / range_count) : items;
    if (*run->packed_count == 0 && run->op->bias != NULL) sumi_cpu_vector(run->op->bias, cols, bias_of(run));
    if (*run->packed_count >= end) return;
    sumi_parallel(run->workers, end - *run->packed_count, 1, pack_panels, run);
    *run->packed_count = end;
}

sumi_result sumi_cpu_conv(sumi_cpu_run* run)
{
    SUMI_ASSERT(run->op->u.conv.kernel == 1 || run->op->u.conv.kernel == 3);
    SUMI_ASSERT(run->op->u.conv.stride == 1 || run->op->u.conv.stride == 2);
    SUMI_ASSERT(run->op->weight->cols % (run->op->u.conv.kernel * run->op->u.conv.kernel) == 0);
    SUMI_ASSERT(run->op->weight->cols / (run->op->u.conv.kernel * run->op->u.conv.kernel)
                == sumi_cpu_cols(run, run->op->in[0]));
    const sumi_op* op = run->op;
    int32_t cols = op->weight->rows, kernel = op->u.conv.kernel, shift = op->u.conv.upsamples ? 1 : 0;
    conv_source source = {sumi_cpu_value(run, op->in[0]),
                          op->u.conv.height,
                          op->u.conv.width,
                          sumi_cpu_cols(run, op->in[0]),
                          0,
                          kernel,
                          op->u.conv.stride,
                          op->u.conv.pads_end ? 0 : kernel / 2,
                          shift,
                          op->u.conv.above,
                          sumi_cpu_pitch(run, op->in[0])};
    int32_t padding = op->u.conv.pads_end ? 1 : 2 * (kernel / 2);
    source.out_width = ((op->u.conv.width << shift) + padding - kernel) / op->u.conv.stride + 1;
    pack_until(run, run->range_end);
    if (run->row_begin >= run->row_end) return SUMI_OK;
    sumi_cpu_product product = {.run = run,
                                .row_begin = run->row_begin,
                                .row_end = run->row_end,
                                .share_end = 1,
                                .share_count = 1,
                                .cols = cols,
                                .depth = op->weight->cols,
                                .panels = run->shared,
                                .load = load_taps,
                                .source = &source};
    product.y = sumi_cpu_value(run, op->out);
    product.y_stride = sumi_cpu_pitch(run, op->out); // also the residual's
    product.residual = sumi_cpu_value(run, op->in[1]);
    product.finish = (sumi_cpu_finish){op->bias == NULL ? NULL : bias_of(run), NULL, SUMI_ACT_NONE, false, 1.0f};
    sumi_cpu_product_run(&product);
    return SUMI_OK;
}
