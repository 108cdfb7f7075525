// Launchers of the ops on pictures (NHWC): convolutions, group norms, shortcuts, tiles, 8-bit pixels. Kernels:
// kernels/{conv_halo_sm90,conv_sm90,conv,conv_narrow,conv_any,group_norm,pictures}.cu.
//
// A group norm that directly follows the convolution which writes its picture need not read that picture a third time.
// On 9.0 the epilogue of the convolution leaves sums per group in scratch memory, and GROUP_SUMS, the very next op,
// only adds these sums. Then scratch is laid out as
//
//     | padded input of the convolution | its sums | partial sums of GROUP_SUMS |
//
// for both ops. A picture may be written by several convolutions, one per strip. Their sums are stored in the order of
// their patches and stay until the last strip is done, because the ops between them use no scratch. The plan and the
// device alone decide which ops do so, so slices change no bits.
#include "base/assert.h"
#include "base/numbers.h"
#include "cuda/choose_conv.h"
#include "cuda/device.h"
#include "cuda/launch.h"
#include "device/form.h"
#include "kernels/conv.h"
#include "kernels/group_norm.h"
#include "kernels/pictures.h"

enum { SCRATCH_ALIGNMENT = 512 };

// Blocks for `count` threads, for kernels with grid-stride loops.
static uint32_t blocks_for(int64_t count)
{
    int64_t blocks = (count + SUMI_PICTURES_THREADS - 1) / SUMI_PICTURES_THREADS;
    return (uint32_t)(blocks > 65535 ? 65535 : blocks);
}

// ---- CONV -----------------------------------------------------------------------------------------------------------

typedef sumi_cuda_conv_shape conv_shape;
typedef sumi_cuda_conv_kind conv_kind;

// ---- Convolutions that leave sums -----------------------------------------------------------------------------------

// Whether the convolution writes all of `picture` or a strip of it.
static bool writes_picture(const sumi_plan* plan, const sumi_op* op, sumi_value picture)
{
    return op->kind == SUMI_OP_CONV
        && (op->out.id == picture.id || sumi_plan_info(plan, op->out)->cut_from.id == picture.id);
}

// The first row (of tiles) that a strip writes, counted in the whole picture.
static int32_t first_row(const sumi_plan* plan, const sumi_op* op, sumi_value picture, const conv_shape* s)
{
    int32_t row = op->out.id == picture.id ? 0 : sumi_plan_info(plan, op->out)->cut_from_row;
    return row / s->tile_width / (s->parities == 4 ? 4 : 1);
}

// Sums that a convolution leaves for each patch of 16 x 8 pixels and parity, one for each warp that computes the patch;
// 0: it leaves none.
static int32_t sums_per_patch(const sumi_cuda_device* device, const sumi_plan* plan, const sumi_op* op,
                              bool allows_hopper)
{
    conv_shape s = sumi_cuda_conv_shape_of(plan, op);
    if (s.out != 128 && s.out != 256 && s.out != 512) return 0;
    conv_kind kind = sumi_cuda_choose_conv(device, plan, op, &s, allows_hopper);
    return kind == SUMI_CUDA_CONV_HALO ? 4 : kind == SUMI_CUDA_CONV_HOPPER && op->in[1].id == 0 ? 8 : 0;
}

// Whether the GROUP_SUMS at `op_index` can use the sums of the convolutions before it.
static bool finds_sums(const sumi_cuda_device* device, const sumi_plan* plan, int32_t op_index, bool allows_hopper)
{
    const sumi_op* sums = &plan->ops[op_index];
    if (sums->kind != SUMI_OP_GROUP_SUMS || sums->u.group.groups != 32) return false;
    sumi_value picture = sums->in[0];
    int32_t rows = sumi_plan_info(plan, picture)->rows, done = 0, per_patch = 0;
    // The last product that was queried: strips have few shapes, and the query takes the most time.
    const sumi_op* linear = NULL;
    for (int32_t i = op_index - 1; i >= 0 && plan->ops[i].section == sums->section; i--) {
        const sumi_op* op = &plan->ops[i];
        if (writes_picture(plan, op, picture)) {
            conv_shape s = sumi_cuda_conv_shape_of(plan, op);
            bool is_all = op->rows == rows, ends = sumi_plan_info(plan, op->out)->cut_from_row + op->rows == rows;
            int32_t left = sums_per_patch(device, plan, op, allows_hopper);
            if (left == 0 || (per_patch != 0 && left != per_patch)) return false;
            if (is_all) return i == op_index - 1;
            per_patch = left;
            if (s.in != s.padded || first_row(plan, op, picture, &s) % 8 != 0 || (!ends && s.tile_height % 8 != 0))
                return false;
            done += op->rows;
            if (done >= rows) return true;
        } else if (op->kind == SUMI_OP_LINEAR && linear != NULL && linear->weight == op->weight
                   && linear->rows == op->rows) {
            continue;
        } else if (op->kind == SUMI_OP_LINEAR && sumi_cuda_linear_scratch(device, plan, op) == 0) {
            linear = op;
        } else if (op->kind != SUMI_OP_GROUP_NORM) {
            return false; // it may use the scratch memory
        }
    }
    return false;
}

// Index of the GROUP_SUMS for which the convolution at `op_index` leaves sums, or -1.
static int32_t sums_op(const sumi_cuda_device* device, const sumi_plan* plan, int32_t op_index, bool allows_hopper)
{
    const sumi_op* op = &plan->ops[op_index];
    for (int32_t i = op_index + 1; (size_t)i < plan->op_count && plan->ops[i].section == op->section; i++) {
        const sumi_op* next = &plan->ops[i];
        if (next->kind == SUMI_OP_GROUP_SUMS)
            return writes_picture(plan, op, next->in[0]) && finds_sums(device, plan, i, allows_hopper) ? i : -1;
        if (next->kind != SUMI_OP_CONV && next->kind != SUMI_OP_GROUP_NORM && next->kind != SUMI_OP_LINEAR) break;
    }
    return -1;
}

// Entries of the sums of the whole picture of `rows` pixels; the convolution writes all of them or a strip.
static int64_t sums_entries(const conv_shape* s, int32_t rows, int32_t per_patch)
{
    int32_t height = rows / s->tile_width / (s->parities == 4 ? 4 : 1);
    return (int64_t)SUMI_CONV_SM90_PATCHES(s->tile_width, height) * s->parities * per_patch;
}
// Where the sums begin in scratch: after the copy of the input with padded channels that the tensor cores need.
static uint64_t padded_bytes(const conv_shape* s)
{
    return s->padded == s->in
             ? 0
             : sumi_align((uint64_t)s->height * (uint64_t)s->width * (uint64_t)s->padded * 2, SCRATCH_ALIGNMENT);
}
static uint64_t sums_bytes(int64_t entries)
{
    return sumi_align((uint64_t)entries * 64 * sizeof(float), SCRATCH_ALIGNMENT);
}

uint64_t sumi_cuda_conv_scratch(const sumi_cuda_device* device, const sumi_plan* plan, const sumi_op* op)
{
    conv_shape s = sumi_cuda_conv_shape_of(plan, op);
    int32_t sums = sums_op(device, plan, (int32_t)(op - plan->ops), true);
    if (sums < 0) return padded_bytes(&s);
    const int32_t per_patch = sums_per_patch(device, plan, op, true);
    return padded_bytes(&s) + sums_bytes(sums_entries(&s, plan->ops[sums].rows, per_patch));
}

// Device addresses of a convolution.
typedef struct conv_data {
    CUdeviceptr x, y, residual, weight, bias, sums;
    int32_t pitch;
} conv_data;

static sumi_result launch_narrow(const sumi_cuda_run* run, const conv_shape* s, const conv_data* d)
{
    int32_t begin, end,
        units = sumi_divide_up(s->tile_width, SUMI_CONV_NARROW_WIDTH)
              * sumi_divide_up(s->tile_height, SUMI_CONV_NARROW_ROWS);
    sumi_cuda_share(run, units, &begin, &end);
    sumi_conv_narrow_args args = {.x = d->x,
                                  .weight = d->weight,
                                  .y = d->y,
                                  .residual = d->residual,
                                  .bias = d->bias,
                                  .width = s->width,
                                  .height = s->height,
                                  .in_channels = s->in,
                                  .out_channels = s->out,
                                  .weight_pitch = d->pitch,
                                  .unit_begin = begin,
                                  .x_pitch = s->x_pitch};
    return sumi_cuda_launch_args(run, s->out == 4 ? "sumi_conv_narrow_o4" : "sumi_conv_narrow",
                                 (sumi_cuda_grid){(uint32_t)(end - begin), 1, 1, SUMI_CONV_NARROW_THREADS,
                                                  (uint32_t)sumi_cuda_conv_narrow_shared(s)},
                                 &args);
}

static sumi_conv_args portable_args(const conv_shape* s, const conv_data* d, int32_t unit_begin)
{
    return (sumi_conv_args){.x = d->x,
                            .weight = d->weight,
                            .y = d->y,
                            .residual = d->residual,
                            .bias = d->bias,
                            .width = s->width,
                            .height = s->height,
                            .tile_width = s->tile_width,
                            .tile_height = s->tile_height,
                            .in_channels = s->in,
                            .out_channels = s->out,
                            .weight_pitch = d->pitch,
                            .kernel = s->kernel,
                            .stride = s->stride,
                            .pad = s->pad,
                            .parities = s->parities,
                            .unit_begin = unit_begin,
                            .above = s->above,
                            .x_pitch = s->x_pitch,
                            .y_pitch = s->y_pitch};
}

static sumi_result launch_any_conv(const sumi_cuda_run* run, const conv_shape* s, const conv_data* d)
{
    int32_t begin, end;
    sumi_cuda_share(run, run->op->rows, &begin, &end);
    sumi_conv_any_args args = {
        .conv = portable_args(s, d, begin), .upsamples_plain = s->upsamples_plain, .pixel_end = end};
    return sumi_cuda_launch_args(run, "sumi_conv_any",
                                 (sumi_cuda_grid){(uint32_t)sumi_divide_up(end - begin, SUMI_CONV_ANY_PIXELS),
                                                  (uint32_t)sumi_divide_up(s->out, SUMI_CONV_ANY_COLUMNS), 1,
                                                  SUMI_CONV_ANY_THREADS, 0},
                                 &args);
}

static sumi_result launch_portable_conv(const sumi_cuda_run* run, const conv_shape* s, const conv_data* d)
{
    // blocks: how many fit on a multiprocessor by registers. k_block: channels that are multiplied between two
    // barriers. slower: time for the same products, relative to the fastest tile (an H100 at 128 to 512 channels).
    static const struct {
        const char* name;
        int32_t columns, threads, shared, blocks, k_block;
        double slower;
    } s_tiles[] = {{"sumi_conv_n64", 64, SUMI_CONV_N64_THREADS, SUMI_CONV_N64_SHARED, 3, 32, 1.40},
                   {"sumi_conv_n96", 96, SUMI_CONV_N96_THREADS, SUMI_CONV_N96_SHARED, 2, 32, 1.28},
                   {"sumi_conv_n96w", 96, SUMI_CONV_N96W_THREADS, SUMI_CONV_N96W_SHARED, 2, 64, 1.17},
                   {"sumi_conv_n128", 128, SUMI_CONV_N128_THREADS, SUMI_CONV_N128_SHARED, 2, 32, 1.10},
                   {"sumi_conv_n128w", 128, SUMI_CONV_N128W_THREADS, SUMI_CONV_N128W_SHARED, 2, 64, 1.03},
                   {"sumi_conv_n256", 256, SUMI_CONV_N256_THREADS, SUMI_CONV_N256_SHARED, 1, 32, 1.0}};
    const bool takes_wide = sumi_cuda_has_wide_multiprocessors(run->device);
    int32_t pixel_tiles = sumi_divide_up(s->tile_width * s->tile_height, SUMI_CONV_TILE_PIXELS), best = 0;
    double best_cost = 0.0;
    for (int32_t i = 0; i < (int32_t)(sizeof s_tiles / sizeof *s_tiles); i++) { // the smallest rounds x work per round
        if (i > 0 && s_tiles[i].shared > run->device->shared_per_block) continue;
        if (s_tiles[i].k_block == 64 && (!takes_wide || s->in % 64 != 0)) continue;
        int32_t blocks = sumi_max_int(
            1, sumi_min_int(s_tiles[i].blocks, run->device->shared_per_multiprocessor / (s_tiles[i].shared + 1024)));
        int64_t at_once = (int64_t)sumi_max_int(1, run->device->multiprocessors) * blocks,
                units = (int64_t)pixel_tiles * s->parities * sumi_divide_up(s->out, s_tiles[i].columns);
        double cost = (double)((units + at_once - 1) / at_once) * blocks * s_tiles[i].columns * s_tiles[i].slower;
        if (i == 0 || cost < best_cost) {
            best = i;
            best_cost = cost;
        }
    }
    int32_t begin, end;
    sumi_cuda_share(run, pixel_tiles * s->parities * sumi_divide_up(s->out, s_tiles[best].columns), &begin, &end);
    sumi_conv_args args = portable_args(s, d, begin);
    return sumi_cuda_launch_args(run, s_tiles[best].name,
                                 (sumi_cuda_grid){(uint32_t)(end - begin), 1, 1, (uint32_t)s_tiles[best].threads,
                                                  (uint32_t)s_tiles[best].shared},
                                 &args);
}

// What the epilogue of a convolution on Hopper does.
typedef enum hopper_form {
    HOPPER_PLAIN,
    HOPPER_RESIDUAL,
    HOPPER_UP_RESIDUAL, // a residual of an upsampling convolution
    HOPPER_NORM,        // the norm after it is applied to the result
    HOPPER_FORMS
} hopper_form;

// The kernels for Hopper that have the same tile.
typedef struct hopper_tile {
    int32_t columns, patch_height, channels; // channels of a k-block of conv_halo_sm90.cu; 0: of conv_sm90.cu
    int32_t shared;
    double slower; // time for the same products, relative to the fastest tile (one H200)
    // without sums or with those of groups of 4, 8, 16 channels; NULL: there is none
    const char* names[HOPPER_FORMS][4];
} hopper_tile;

static const hopper_tile* hopper_tile_of(const conv_shape* s)
{
    static const hopper_tile s_128 = {.columns = 128,
                                      .patch_height = 8,
                                      .shared = SUMI_CONV_SM90_N128_SHARED,
                                      .names = {{"sumi_conv_sm90_n128", "sumi_conv_sm90_n128_stats4"},
                                                {"sumi_conv_sm90_n128_residual"},
                                                {"sumi_conv_sm90_n128_residual"}}};
    static const hopper_tile s_256 = {
        .columns = 256,
        .patch_height = 8,
        .shared = SUMI_CONV_SM90_N256_SHARED,
        .names = {{"sumi_conv_sm90_n256", NULL, "sumi_conv_sm90_n256_stats8", "sumi_conv_sm90_n256_stats16"},
                  {"sumi_conv_sm90_n256_residual"},
                  {"sumi_conv_sm90_n256_residual"}}};
    return sumi_divide_up(s->out, 128) * 128 < sumi_divide_up(s->out, 256) * 256 ? &s_128 : &s_256;
}

static int32_t hopper_items(const conv_shape* s, const hopper_tile* tile)
{
    const int32_t patches = sumi_divide_up(s->tile_width, 16) * sumi_divide_up(s->tile_height, tile->patch_height);
    return sumi_divide_up(patches, 2) * s->parities * sumi_divide_up(s->out, tile->columns);
}

static hopper_form form_of(const sumi_cuda_run* run, const conv_shape* s, const conv_data* d)
{
    if (sumi_cuda_is_fused_conv(run->plan, run->op_index)) return HOPPER_NORM;
    return d->residual == 0 ? HOPPER_PLAIN : s->parities == 4 ? HOPPER_UP_RESIDUAL : HOPPER_RESIDUAL;
}

// The tile with the least rounds x work of a round, of those with the same order of sums.
static const hopper_tile* halo_tile_of(const sumi_cuda_device* device, const conv_shape* s, hopper_form form)
{
    static const hopper_tile s_tiles[] = {
        {96,
         16,
         96,
         SUMI_CONV_HALO_256X96_C96_SHARED,
         1.0,
         {{"sumi_conv_halo_256x96_c96"},
          {"sumi_conv_halo_256x96_c96_residual"},
          {"sumi_conv_halo_256x96_c96_up_residual"}}},
        {96,
         8,
         96,
         SUMI_CONV_HALO_128X96_C96_SHARED,
         1.06,
         {{"sumi_conv_halo_128x96_c96"},
          {"sumi_conv_halo_128x96_c96_residual"},
          {"sumi_conv_halo_128x96_c96_up_residual"},
          {"sumi_conv_halo_128x96_c96_norm"}}},
        {144,
         8,
         96,
         SUMI_CONV_HALO_128X144_C96_SHARED,
         1.0,
         {{"sumi_conv_halo_128x144_c96"}, {"sumi_conv_halo_128x144_c96_residual"}}},
        {192,
         8,
         64,
         SUMI_CONV_HALO_128X192_C64_SHARED,
         1.0,
         {{"sumi_conv_halo_128x192_c64"},
          {"sumi_conv_halo_128x192_c64_residual"},
          {"sumi_conv_halo_128x192_c64_up_residual"},
          {"sumi_conv_halo_128x192_c64_norm"}}},
        {128,
         8,
         64,
         SUMI_CONV_HALO_128X128_C64_SHARED,
         1.05,
         {{"sumi_conv_halo_128x128_c64", "sumi_conv_halo_128x128_c64_stats4", "sumi_conv_halo_128x128_c64_stats8",
           "sumi_conv_halo_128x128_c64_stats16"},
          {"sumi_conv_halo_128x128_c64_residual", "sumi_conv_halo_128x128_c64_residual_stats4",
           "sumi_conv_halo_128x128_c64_residual_stats8", "sumi_conv_halo_128x128_c64_residual_stats16"}}},
        {96,
         8,
         64,
         SUMI_CONV_HALO_128X96_C64_SHARED,
         1.10,
         {{"sumi_conv_halo_128x96_c64"},
          {"sumi_conv_halo_128x96_c64_residual"},
          {"sumi_conv_halo_128x96_c64_up_residual"}}}};
    const int32_t clusters = sumi_max_int(1, device->multiprocessors / 2);
    const hopper_tile* best = NULL;
    double best_cost = 0.0;
    for (size_t i = 0; i < sizeof s_tiles / sizeof *s_tiles; i++) {
        const hopper_tile* tile = &s_tiles[i];
        // a norm reads all channels of a pixel
        const bool fits =
            tile->columns == 144 || form == HOPPER_NORM ? s->out == tile->columns : s->out % tile->columns == 0;
        if (tile->channels != sumi_cuda_conv_halo_channels(s) || !fits || tile->names[form][0] == NULL) continue;
        const double cost =
            (double)sumi_divide_up(hopper_items(s, tile), clusters) * tile->patch_height * tile->columns * tile->slower;
        if (best == NULL || cost < best_cost) {
            best = tile;
            best_cost = cost;
        }
    }
    SUMI_ASSERT(best != NULL); // choose_conv.c says that there is one
    return best;
}

// A map of x or of the weights, and of its tail of 32 channels. Kernels without tails get the map itself.
static sumi_result make_maps(const sumi_cuda_run* run, sumi_cuda_tensor tensor, bool has_tail, CUtensorMap out_maps[2])
{
    SUMI_TRY(sumi_cuda_tensor_map(run, &tensor, &out_maps[0]));
    if (has_tail) {
        tensor.swizzle = CU_TENSOR_MAP_SWIZZLE_64B;
        tensor.box[0] = 32;
    }
    return sumi_cuda_tensor_map(run, &tensor, &out_maps[1]);
}

// conv_sm90.cu and conv_halo_sm90.cu.
static sumi_result launch_hopper_conv(const sumi_cuda_run* run, const conv_shape* s, const conv_data* d,
                                      const hopper_tile* tile)
{
    const uint64_t in = (uint64_t)s->in, out = (uint64_t)s->out, w = (uint64_t)s->tile_width,
                   h = (uint64_t)s->tile_height, p = s->parities == 4 ? 2 : 1;
    const uint64_t px = (uint64_t)s->x_pitch, py = (uint64_t)s->y_pitch;
    const bool has_halo = tile->channels != 0;
    const uint32_t patch_height = (uint32_t)tile->patch_height;
    const CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    const CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
    const sumi_cuda_tensor x =
        s->stride == 2 ? (sumi_cuda_tensor){.address = d->x,
                                            .type = type,
                                            .swizzle = swizzle,
                                            .rank = 5,
                                            .dims = {in, 2, w, 2, h},
                                            .strides = {px * 2, px * 4, px * 4 * w, px * 8 * w},
                                            .box = {64, 1, 16, 1, 8}}
                       : (sumi_cuda_tensor){.address = d->x,
                                            .type = type,
                                            .swizzle = swizzle,
                                            .rank = 4,
                                            .dims = {in, w, (uint64_t)s->height, 1},
                                            .strides = {px * 2, px * 2 * w, px * 2 * w * (uint64_t)s->height},
                                            .box = {64, has_halo ? 18 : 16, patch_height + (has_halo ? 2 : 0), 1}};
    const uint64_t taps = (uint64_t)s->kernel * (uint64_t)s->kernel;
    const sumi_cuda_tensor weight = {.address = d->weight,
                                     .type = type,
                                     .swizzle = swizzle,
                                     .rank = 2,
                                     .dims = {taps * in, p * p * out},
                                     .strides = {taps * in * 2},
                                     .box = {64, (uint32_t)tile->columns / 2}};
    sumi_cuda_tensor y = {.address = d->y,
                          .type = type,
                          .swizzle = has_halo ? CU_TENSOR_MAP_SWIZZLE_64B : swizzle,
                          .rank = 5,
                          .dims = {out, p, w, p, h},
                          .strides = {py * 2, py * 2 * p, py * 2 * p * w, py * 2 * p * p * w},
                          .box = {64, 1, 16, 1, 4}};
    if (has_halo) {
        y.box[0] = 32;
        y.box[2] = y.box[4] = 8;
    }
    CUtensorMap x_maps[2], weight_maps[2], y_map, residual_map;
    SUMI_TRY(make_maps(run, x, tile->channels == 96, x_maps));
    SUMI_TRY(make_maps(run, weight, tile->channels == 96, weight_maps));
    SUMI_TRY(sumi_cuda_tensor_map(run, &y, &y_map));
    if (d->residual != 0) y.address = d->residual;
    SUMI_TRY(sumi_cuda_tensor_map(run, &y, &residual_map));

    int32_t begin, end;
    sumi_cuda_share(run, hopper_items(s, tile), &begin, &end);
    sumi_conv_sm90_args args = {.bias = d->bias,
                                .width = s->tile_width,
                                .height = s->tile_height,
                                .in_channels = s->in,
                                .out_channels = s->out,
                                .kernel = s->kernel,
                                .stride = s->stride,
                                .parities = s->parities,
                                .item_begin = begin,
                                .item_end = end,
                                .above = s->above};
    int32_t stats = 0;
    const int32_t sums = sums_op(run->device, run->plan, run->op_index, run->allows_hopper);
    if (sums >= 0) {
        const int32_t first = first_row(run->plan, run->op, run->plan->ops[sums].in[0], s);
        const int64_t patches_before = (int64_t)sumi_divide_up(s->tile_width, 16) * (first / 8),
                      per_patch = sums_per_patch(run->device, run->plan, run->op, run->allows_hopper);
        args.stats = d->sums + (uint64_t)(patches_before * s->parities * per_patch) * 64 * sizeof(float);
        stats = s->out == 128 ? 1 : s->out == 256 ? 2 : 3;
    }
    const hopper_form form = form_of(run, s, d);
    if (form == HOPPER_NORM) {
        sumi_cuda_run next = *run;
        next.op = &run->plan->ops[++next.op_index];
        args.norm = sumi_cuda_find_weight(&next, next.op->weight).data;
        args.norm_eps = next.op->u.norm.eps;
    }
    const char* name = tile->names[form][stats];
    SUMI_ASSERT(name != NULL); // sums_per_patch says which leave sums
    void* halo_params[] = {&x_maps[0], &x_maps[1], &weight_maps[0], &weight_maps[1], &y_map, &residual_map, &args};
    void* params[] = {&x_maps[0], &weight_maps[0], &y_map, &residual_map, &args};
    const uint32_t blocks = (uint32_t)sumi_min_int(run->device->multiprocessors / 2 * 2, 2 * (end - begin));
    return sumi_cuda_launch(run, name, (sumi_cuda_grid){blocks, 1, 1, 384, (uint32_t)tile->shared},
                            has_halo ? halo_params : params);
}

// If the number of channels is not a multiple of 8 (3 of a picture): makes a copy padded with zeros, like the weights.
// Each slice makes it again, which costs few bytes compared with the convolution's output.
static sumi_result pad_input(const sumi_cuda_run* run, conv_shape* s, conv_data* d)
{
    if (s->padded == s->in) return SUMI_OK;
    sumi_conv_pad_args args = {
        .x = d->x, .y = run->scratch, .pixels = (int64_t)s->height * s->width, .channels = s->in, .pitch = s->padded};
    SUMI_TRY(sumi_cuda_launch_args(run, "sumi_conv_pad_channels",
                                   (sumi_cuda_grid){blocks_for((args.pixels * args.pitch + 7) / 8), 1, 1, 256, 0},
                                   &args));
    d->x = run->scratch;
    s->in = s->x_pitch = s->padded;
    return SUMI_OK;
}

sumi_result sumi_cuda_conv(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    conv_shape s = sumi_cuda_conv_shape_of(run->plan, op);
    if (s.parities == 4 && (s.stride != 1 || op->u.conv.pads_end)) {
        return sumi_fail(run->error, SUMI_INTERNAL,
                         "%s: a convolution that upsamples and strides at once has no CUDA kernel", op->label);
    }
    sumi_device_weight weight = sumi_cuda_find_weight(run, op->weight);
    conv_data d = {.x = sumi_cuda_value(run, op->in[0]),
                   .y = sumi_cuda_value(run, op->out),
                   .residual = sumi_cuda_value(run, op->in[1]),
                   .weight = weight.data,
                   .bias = sumi_cuda_find_weight(run, op->bias).data,
                   .sums = run->scratch + padded_bytes(&s),
                   .pitch = weight.pitch};
    if (run->range_begin >= run->range_end) return SUMI_OK;
    switch (sumi_cuda_choose_conv(run->device, run->plan, op, &s, run->allows_hopper)) {
    case SUMI_CUDA_CONV_NARROW: return launch_narrow(run, &s, &d);
    case SUMI_CUDA_CONV_ANY: return launch_any_conv(run, &s, &d);
    case SUMI_CUDA_CONV_HALO:
        return launch_hopper_conv(run, &s, &d, halo_tile_of(run->device, &s, form_of(run, &s, &d)));
    case SUMI_CUDA_CONV_HOPPER:
        SUMI_TRY(pad_input(run, &s, &d));
        return launch_hopper_conv(run, &s, &d, hopper_tile_of(&s));
    case SUMI_CUDA_CONV_PORTABLE: SUMI_TRY(pad_input(run, &s, &d)); return launch_portable_conv(run, &s, &d);
    }
    return SUMI_OK;
}

// ---- GROUP_SUMS, GROUP_NORM -----------------------------------------------------------------------------------------

// Rows of one thread block: 128 KiB of a large picture, down to 32 KiB of a small one, so that small pictures still
// fill the device.
static int32_t piece_rows(int32_t rows, int32_t channels)
{
    int64_t values = (int64_t)rows * channels;
    return sumi_max_int(1, (values >= 1 << 26 ? 65536 : values >= 1 << 24 ? 32768 : 16384) / channels);
}

static int32_t piece_count(const sumi_op* op, int32_t channels)
{
    return sumi_divide_up(op->u.group.block_rows, piece_rows(op->rows, channels));
}

// Groups that begin within eight neighbouring channels; 0: use the kernel for any shape.
static int32_t groups_of_eight(int32_t channels, int32_t groups)
{
    int32_t size = channels / groups;
    if (channels % 8 != 0 || channels > SUMI_GROUP_MAX_CHANNELS) return 0;
    return size % 8 == 0 ? 1 : size == 4 ? 2 : size == 2 ? 4 : 0;
}

static bool is_even(const sumi_plan* plan, sumi_value value)
{
    return sumi_plan_info(plan, value)->pitch % 8 == 0 && sumi_cuda_begins_aligned(plan, value);
}

static int32_t sums_groups(const sumi_plan* plan, const sumi_op* op)
{
    return is_even(plan, op->in[0]) ? groups_of_eight(sumi_plan_info(plan, op->in[0])->cols, op->u.group.groups) : 0;
}

static uint64_t group_sum_bytes(const sumi_plan* plan, const sumi_op* op)
{
    int32_t pieces = sums_groups(plan, op) != 0 ? piece_count(op, sumi_plan_info(plan, op->in[0])->cols) : 1;
    return pieces == 1
             ? 0
             : (uint64_t)op->u.group.block_count * (uint64_t)pieces * (uint64_t)op->u.group.groups * 2 * sizeof(float);
}

uint64_t sumi_cuda_group_scratch(const sumi_cuda_device* device, const sumi_plan* plan, const sumi_op* op)
{
    if (op->kind != SUMI_OP_GROUP_SUMS) return 0;
    uint64_t separate_bytes = group_sum_bytes(plan, op), joined_bytes = 0;
    int32_t index = (int32_t)(op - plan->ops);
    if (finds_sums(device, plan, index, true)) {
        joined_bytes =
            sumi_cuda_conv_scratch(device, plan, op - 1) + (uint64_t)SUMI_GROUP_CONV_BLOCKS * 64 * sizeof(double);
    }
    return separate_bytes > joined_bytes ? separate_bytes : joined_bytes;
}

// Adds the sums that the convolutions left; the last of these convolutions is the previous op. The slice that contains
// the first work range does all of it, because the sums are of patches, not of blocks of rows.
static sumi_result join_conv_sums(const sumi_cuda_run* run)
{
    const sumi_op *op = run->op, *conv = op - 1;
    if (run->range_begin > 0) return SUMI_OK;
    conv_shape s = sumi_cuda_conv_shape_of(run->plan, conv);
    const int64_t entries =
        sums_entries(&s, op->rows, sums_per_patch(run->device, run->plan, conv, run->allows_hopper));
    sumi_group_conv_args args = {.stats = run->scratch + padded_bytes(&s),
                                 .sums = sumi_cuda_value(run, op->out),
                                 .arrivals = run->arrivals,
                                 .entries = entries,
                                 .rows = op->rows,
                                 .group_size = s.out / 32,
                                 .block_rows = op->rows,
                                 .block_count = 1};
    args.block_sums = args.stats + sums_bytes(entries);
    return sumi_cuda_launch_args(run, "sumi_group_sums_conv",
                                 (sumi_cuda_grid){SUMI_GROUP_CONV_BLOCKS, 1, 1, SUMI_GROUP_THREADS, 0}, &args);
}

sumi_result sumi_cuda_group_sums(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    if (run->range_begin >= run->range_end) return SUMI_OK;
    if (finds_sums(run->device, run->plan, run->op_index, run->allows_hopper)) return join_conv_sums(run);
    int32_t channels = sumi_cuda_cols(run, op->in[0]), each = sums_groups(run->plan, op);
    sumi_group_sums_args args = {.x = sumi_cuda_value(run, op->in[0]),
                                 .sums = sumi_cuda_value(run, op->out),
                                 .piece_moments = run->scratch,
                                 .arrivals = run->arrivals,
                                 .rows = op->rows,
                                 .channels = channels,
                                 .groups = op->u.group.groups,
                                 .block_rows = op->u.group.block_rows,
                                 .block_begin = run->range_begin,
                                 .pieces = each != 0 ? piece_count(op, channels) : 1,
                                 .piece_rows = piece_rows(op->rows, channels),
                                 .x_pitch = sumi_cuda_pitch(run, op->in[0])};
    const char* name = each == 1 ? "sumi_group_sums_1"
                     : each == 2 ? "sumi_group_sums_2"
                     : each == 4 ? "sumi_group_sums_4"
                                 : "sumi_group_sums_any";
    return sumi_cuda_launch_args(run, name,
                                 (sumi_cuda_grid){(uint32_t)(each != 0 ? args.pieces : args.groups),
                                                  (uint32_t)(run->range_end - run->range_begin), 1, SUMI_GROUP_THREADS,
                                                  0},
                                 &args);
}

// Whether the sums that a GROUP_NORM reads come from convolutions.
static bool reads_conv_sums(const sumi_cuda_run* run)
{
    int32_t i = run->op_index - 1;
    while (i >= 0 && (run->plan->ops[i].kind != SUMI_OP_GROUP_SUMS || run->plan->ops[i].out.id != run->op->in[1].id))
        i--;
    return i >= 0 && finds_sums(run->device, run->plan, i, run->allows_hopper);
}

sumi_result sumi_cuda_group_norm(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    bool is_joined = reads_conv_sums(run);
    int32_t begin, end, channels = sumi_cuda_cols(run, op->in[0]), groups = op->u.group.groups;
    if (groups > SUMI_GROUP_MAX_GROUPS) {
        return sumi_fail(run->error, SUMI_NOT_SUPPORTED,
                         "%s: a group norm of %d groups; the CUDA kernels know at most %d", op->label, (int)groups,
                         SUMI_GROUP_MAX_GROUPS);
    }
    sumi_group_norm_args args = {.x = sumi_cuda_value(run, op->in[0]),
                                 .sums = sumi_cuda_value(run, op->in[1]),
                                 .y = sumi_cuda_value(run, op->out),
                                 .weight = sumi_cuda_find_weight(run, op->weight).data,
                                 .bias = sumi_cuda_find_weight(run, op->bias).data,
                                 .rows = op->rows,
                                 .channels = channels,
                                 .groups = groups,
                                 .block_rows = is_joined ? op->u.group.all_rows : op->u.group.block_rows,
                                 .block_count = is_joined ? 1 : op->u.group.block_count,
                                 .unit_rows = piece_rows(op->rows, channels),
                                 .silu = op->u.group.silu,
                                 .eps = op->u.group.eps,
                                 .all_rows = op->u.group.all_rows,
                                 .x_pitch = sumi_cuda_pitch(run, op->in[0]),
                                 .y_pitch = sumi_cuda_pitch(run, op->out)};
    sumi_cuda_share(run, sumi_divide_up(op->rows, args.unit_rows), &begin, &end);
    args.unit_begin = begin;
    bool is_fast = channels % 8 == 0 && channels <= SUMI_GROUP_MAX_CHANNELS && is_even(run->plan, op->in[0])
                && is_even(run->plan, op->out);
    return sumi_cuda_launch_args(
        run, is_fast ? "sumi_group_norm" : "sumi_group_norm_any",
        (sumi_cuda_grid){(uint32_t)(end - begin), 1, 1, SUMI_GROUP_THREADS, (uint32_t)groups * 8}, &args);
}

// ---- SHORTCUT -------------------------------------------------------------------------------------------------------

sumi_result sumi_cuda_shortcut(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_op_shortcut* s = &op->u.shortcut;
    sumi_shortcut_args args = {.x = sumi_cuda_value(run, op->in[0]),
                               .y = sumi_cuda_value(run, op->out),
                               .width = s->width,
                               .in_channels = sumi_cuda_cols(run, op->in[0]),
                               .out_channels = sumi_cuda_cols(run, op->out),
                               .frames = s->frames,
                               .scale = s->scale,
                               .upsamples = s->upsamples};
    // strips begin at any row, so their first pixel is aligned only if every pixel is
    args.vector = args.out_channels % SUMI_PICTURES_VALUES == 0 && args.y % 16 == 0 ? SUMI_PICTURES_VALUES : 1;
    args.size = s->upsamples ? args.out_channels * s->frames * 4 / args.in_channels
                             : args.in_channels * s->frames * s->scale * s->scale / args.out_channels;
    sumi_cuda_share(run, op->rows, &args.row_begin, &args.row_end);
    return sumi_cuda_launch_args(
        run, "sumi_shortcut",
        (sumi_cuda_grid){blocks_for((int64_t)(args.row_end - args.row_begin) * (args.out_channels / args.vector)), 1, 1,
                         SUMI_PICTURES_THREADS, 0},
        &args);
}

// ---- TILE_BLEND, TILE_PLACE -----------------------------------------------------------------------------------------

sumi_result sumi_cuda_tile_blend(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    sumi_tile_blend_args args = {.tile = sumi_cuda_value(run, op->out),
                                 .above = sumi_cuda_value(run, op->in[1]),
                                 .left = sumi_cuda_value(run, op->in[2]),
                                 .height = op->u.blend.height,
                                 .width = op->u.blend.width,
                                 .channels = sumi_cuda_cols(run, op->out),
                                 .above_height = op->u.blend.above_height,
                                 .left_width = op->u.blend.left_width,
                                 .is_float = sumi_cuda_element(run, op->out) == SUMI_ELEMENT_FLOAT};
    if (args.above != 0)
        args.above_count = sumi_min_int(op->u.blend.extent, sumi_min_int(args.height, args.above_height));
    if (args.left != 0) args.left_count = sumi_min_int(op->u.blend.extent, sumi_min_int(args.width, args.left_width));
    int64_t values =
        ((int64_t)args.above_count * args.width + (int64_t)(args.height - args.above_count) * args.left_count)
        * args.channels;
    if (run->range_begin >= run->range_end) return SUMI_OK;
    return sumi_cuda_launch_args(run, "sumi_tile_blend",
                                 (sumi_cuda_grid){blocks_for(values), 1, 1, SUMI_PICTURES_THREADS, 0}, &args);
}

sumi_result sumi_cuda_tile_place(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    int64_t bytes = sumi_cuda_element(run, op->out) == SUMI_ELEMENT_FLOAT ? 4 : 2,
            pixel = sumi_cuda_cols(run, op->out) * bytes;
    if (sumi_cuda_element(run, op->in[0]) != sumi_cuda_element(run, op->out))
        return sumi_fail(run->error, SUMI_INTERNAL, "%s: tile and image have other elements", op->label);
    int64_t tile_pitch = op->u.tile_place.tile_width * pixel, picture_pitch = op->u.tile_place.picture_width * pixel,
            row = op->u.tile_place.width * pixel;
    int64_t first = op->u.tile_place.y * picture_pitch + op->u.tile_place.x * pixel,
            item = op->u.tile_place.item_rows * pixel;
    int64_t alignment = tile_pitch | picture_pitch | row | first | item;
    int64_t element = alignment % 16 == 0 ? 16 : alignment % 4 == 0 ? 4 : 2;
    sumi_tile_place_args args = {.tile = sumi_cuda_value(run, op->in[0]),
                                 .picture = sumi_cuda_value(run, op->out),
                                 .counter = run->counter,
                                 .item_elements = item / element,
                                 .picture_first = first / element,
                                 .tile_pitch = (int32_t)(tile_pitch / element),
                                 .picture_pitch = (int32_t)(picture_pitch / element),
                                 .row_elements = (int32_t)(row / element),
                                 .per_item = op->u.tile_place.per_item,
                                 .element_bytes = (int32_t)element};
    sumi_cuda_share(run, op->u.tile_place.height, &args.row_begin, &args.row_end);
    return sumi_cuda_launch_args(
        run, "sumi_tile_place",
        (sumi_cuda_grid){blocks_for((int64_t)(args.row_end - args.row_begin) * args.row_elements), 1, 1,
                         SUMI_PICTURES_THREADS, 0},
        &args);
}

// ---- PIXELS_IN, PATCHES_IN, COMPOSITE, PIXELS_OUT -------------------------------------------------------------------

sumi_result sumi_cuda_pixels_in(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    sumi_pixels_in_args args = {.bytes = sumi_cuda_value(run, op->in[0]),
                                .y = sumi_cuda_value(run, op->out),
                                .counter = run->counter,
                                .item_rows = op->u.pixels.item_rows,
                                .width = op->u.pixels.width,
                                .top = op->u.pixels.y,
                                .left = op->u.pixels.x,
                                .picture_width = op->u.pixels.picture_width,
                                .per_item = op->u.pixels.per_item,
                                .cols = op->u.pixels.cols,
                                .channels = sumi_cuda_cols(run, op->out)};
    sumi_cuda_share(run, op->rows, &args.row_begin, &args.row_end);
    return sumi_cuda_launch_args(run, "sumi_pixels_in",
                                 (sumi_cuda_grid){blocks_for((int64_t)(args.row_end - args.row_begin) * args.channels),
                                                  1, 1, SUMI_PICTURES_THREADS, 0},
                                 &args);
}

sumi_result sumi_cuda_patches_in(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    const sumi_op_patches_in* p = &op->u.patches;
    sumi_patches_in_args args = {.bytes = sumi_cuda_value(run, op->in[0]),
                                 .cells = sumi_cuda_value(run, op->in[1]),
                                 .y = sumi_cuda_value(run, op->out),
                                 .width = p->width,
                                 .patch = p->patch,
                                 .cell = p->cell,
                                 .frames = p->frames,
                                 .cells_across = p->width / (p->patch * p->cell),
                                 .cell_count = op->rows / (p->cell * p->cell)};
    for (int32_t c = 0; c < 3; c++) {
        args.mean[c] = p->mean[c];
        args.deviation[c] = p->deviation[c];
    }
    sumi_cuda_share(run, op->rows, &args.row_begin, &args.row_end);
    return sumi_cuda_launch_args(
        run, "sumi_patches_in",
        (sumi_cuda_grid){blocks_for((int64_t)(args.row_end - args.row_begin) * 3 * p->patch * p->patch), 1, 1,
                         SUMI_PICTURES_THREADS, 0},
        &args);
}

sumi_result sumi_cuda_composite(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    sumi_composite_args args = {.pictures = sumi_cuda_value(run, op->out),
                                .beneath = sumi_cuda_value(run, op->in[1]),
                                .opacity = sumi_cuda_value(run, op->in[2]),
                                .rows = sumi_cuda_rows(run, op->in[1]),
                                .cols = sumi_cuda_cols(run, op->out)};
    sumi_cuda_share(run, op->rows, &args.row_begin, &args.row_end);
    return sumi_cuda_launch_args(
        run, "sumi_composite",
        (sumi_cuda_grid){blocks_for(args.row_end - args.row_begin), 1, 1, SUMI_PICTURES_THREADS, 0}, &args);
}

sumi_result sumi_cuda_pixels_out(sumi_cuda_run* run)
{
    const sumi_op* op = run->op;
    int32_t begin, end;
    int64_t values = (int64_t)op->rows * sumi_cuda_cols(run, op->in[0]),
            units = (values + SUMI_PICTURES_VALUES - 1) / SUMI_PICTURES_VALUES;
    sumi_cuda_share(run, (int32_t)units, &begin, &end);
    sumi_pixels_out_args args = {.x = sumi_cuda_value(run, op->in[0]),
                                 .bytes = sumi_cuda_value(run, op->out),
                                 .not_finite = sumi_cuda_value(run, op->in[1]),
                                 .begin = (int64_t)begin * SUMI_PICTURES_VALUES,
                                 .end = (int64_t)end * SUMI_PICTURES_VALUES};
    if (args.end > values) args.end = values;
    return sumi_cuda_launch_args(run, "sumi_pixels_out",
                                 (sumi_cuda_grid){blocks_for(end - begin), 1, 1, SUMI_PICTURES_THREADS, 0}, &args);
}
