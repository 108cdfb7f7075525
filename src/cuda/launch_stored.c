#include "base/assert.h"
#include "base/numbers.h"
#include "cuda/device.h"
#include "cuda/launch.h"
#include "cuda/linear.h"
#include "device/form.h"
#include "device/stored.h"

// clang-format off
static const struct type { const char *unpack, *gemm[2]; int32_t bytes; } s_types[SUMI_STORED_TYPE_COUNT] = {
#define ROW(name, number, bytes) [number] = {"sumi_unpack_" #name, {"sumi_gemm_stored_" #name "_16", "sumi_gemm_stored_" #name "_64"}, bytes},
    SUMI_STORED_TYPES(ROW)
#undef ROW
};
static const char* const s_hopper[SUMI_STORED_TYPE_COUNT][3] = {
#define ROW(name, number, bytes) [number] = {"sumi_gemm_stored_sm90_" #name "_64", "sumi_gemm_stored_sm90_" #name "_128", "sumi_gemm_stored_sm90_" #name "_256"},
    SUMI_STORED_SM90_TYPES(ROW)
#undef ROW
};
static const struct tile { int32_t rows, groups, x_slots, w_slots; } s_tiles[] = {
#define ROW(rows, x, w) {rows, 0, x, w},
    SUMI_GEMM_STORED_TILES(ROW)
#undef ROW
#define ROW(rows, groups, x) {rows, groups, x, 0},
    SUMI_GEMM_STORED_SM90_TILES(ROW)
#undef ROW
};
// clang-format on
enum {
    TILES = sizeof s_tiles / sizeof *s_tiles,
    // Measured on an H200 (tests/tune_cuda_linear.c --stored): these kernels are faster for few rows of anything; those
    // for Hopper up to 256 rows, or 512 rows of large matrices. For more rows unpacking first is faster.
    PORTABLE_TILES = 2,
    FEW_ROWS = 16,
    PORTABLE_ROWS = 64,
    HOPPER_ROWS = 256,
    HOPPER_VALUES = 3 << 20, // elements of a matrix, at least
    MANY_VALUES = 24 << 20,
    MAX_SPLIT = 16,
    // Blocks that share a tile must add up partial sums, which takes as long as this many chunks. Tiles are shared if
    // that is less than the longest block's excess over an equal share.
    SHARING_CHUNKS = 3,
    ARRIVALS = 65536 // length of run->arrivals
};

// ---- Unpacking ------------------------------------------------------------------------------------------------------

sumi_result sumi_cuda_unpack(const sumi_cuda_run* run, const sumi_weight* weight, sumi_device_form form,
                             CUdeviceptr from, bool is_gated, CUdeviceptr to)
{
    SUMI_ASSERT(from % 16 == 0 && to % 16 == 0);
    enum { WARP_ELEMENTS = 256, BLOCKS = 16 }; // BLOCKS: per multiprocessor, each with several turns
    sumi_device_stored_tensor tensors[SUMI_WEIGHT_MAX_TENSORS];
    const int32_t count = sumi_device_stored_tensors(weight, form, tensors);
    int32_t row = 0;
    for (int32_t p = 0; p < count; row += tensors[p++].rows) {
        const int32_t type = tensors[p].type;
        SUMI_ASSERT(type >= 0);
        sumi_unpack_args args = {.from = from + tensors[p].offset,
                                 .to = to,
                                 .elements = (int64_t)tensors[p].rows * weight->cols,
                                 .cols = weight->cols,
                                 .row_begin = row,
                                 .stack_rows = weight->rows,
                                 .is_gated = is_gated,
                                 .scale = tensors[p].scale};
        const int64_t per_block = (int64_t)(SUMI_UNPACK_THREADS / 32) * WARP_ELEMENTS,
                      blocks = (args.elements + per_block - 1) / per_block,
                      max_blocks =
                          (int64_t)BLOCKS * (run->device->multiprocessors > 0 ? run->device->multiprocessors : 1);
        void* params[] = {&args};
        SUMI_TRY(sumi_cuda_launch(
            run, s_types[type].unpack,
            (sumi_cuda_grid){(uint32_t)(blocks < max_blocks ? blocks : max_blocks), 1, 1, SUMI_UNPACK_THREADS, 0},
            params));
    }
    return SUMI_OK;
}

// ---- Few rows -------------------------------------------------------------------------------------------------------

static uint32_t shared_of(int32_t type, int32_t tile)
{
    const int32_t bytes = s_types[type].bytes;
    const struct tile* t = &s_tiles[tile];
    return (uint32_t)(t->groups > 0 ? SUMI_GEMM_STORED_SM90_SHARED(bytes, t->rows, t->groups, t->x_slots)
                                    : SUMI_GEMM_STORED_SHARED(bytes, t->rows, t->x_slots, t->w_slots));
}

// The smallest tile of a kind that holds the rows, or the largest that fits into shared memory; -1: none.
static int32_t choose_tile(const sumi_cuda_device* device, int32_t type, bool is_hopper, int32_t rows)
{
    int32_t tile = -1;
    for (int32_t i = 0; i < TILES; i++) {
        const bool fits =
            (s_tiles[i].groups > 0) == is_hopper && shared_of(type, i) <= (uint32_t)device->shared_per_block;
        if (fits && (tile < 0 || s_tiles[tile].rows < rows)) tile = i;
    }
    return tile;
}

// How many blocks of a cluster share the chunks of a tile: the fewest that make the longest block's work shortest. All
// clusters run at once. The blocks of a cluster run on one group of 16 or 18 multiprocessors. Some of these may be
// missing, so only a limited number of large clusters fits.
static int32_t choose_cluster(int32_t multiprocessors, int32_t tiles, int32_t chunks)
{
    enum { GROUP = 18, SURE = 16 };
    int32_t cluster = 1;
    for (int32_t c = 2; c <= sumi_min_int(chunks, SUMI_GEMM_STORED_SM90_CLUSTER); c++) {
        if (multiprocessors / GROUP * (SURE / c) >= tiles) cluster = c;
    }
    return sumi_divide_up(chunks, sumi_divide_up(chunks, cluster));
}

sumi_cuda_stored_choice sumi_cuda_choose_stored(const sumi_cuda_device* device, bool allows_hopper,
                                                const sumi_weight* weight, sumi_device_form form, int32_t rows)
{
    const sumi_cuda_stored_choice none = {.tile = -1, .blocks = 1, .cluster = 1};
    sumi_device_stored_tensor tensors[SUMI_WEIGHT_MAX_TENSORS];
    const int32_t count = sumi_device_stored_tensors(weight, form, tensors), type = tensors[0].type;
    // If chunks of 256 elements are multiples of 16 bytes, the kernels assume that rows are too.
    const bool is_aligned = type >= 0 && (s_types[type].bytes % 16 != 0 || tensors[0].row_bytes % 16 == 0);
    bool takes = weight->cols % 64 == 0 && is_aligned && device->forced_linear == NULL;
    for (int32_t p = 1; p < count; p++) takes = takes && tensors[p].type == tensors[0].type;
    const int64_t values = (int64_t)weight->rows * weight->cols;
    const bool is_hopper = sumi_cuda_has_hopper(device, allows_hopper) && rows > FEW_ROWS && values >= HOPPER_VALUES
                        && type >= 0 && s_hopper[type][0] != NULL;
    const int32_t max_rows = !is_hopper ? PORTABLE_ROWS : values >= MANY_VALUES ? 2 * HOPPER_ROWS : HOPPER_ROWS;
    if (!takes || rows > max_rows) return none;
    const int32_t tile = choose_tile(device, type, is_hopper, rows);
    if (tile < 0) return none;
    const int32_t tile_rows = s_tiles[tile].rows, cols = is_hopper ? 64 * s_tiles[tile].groups : SUMI_GEMM_STORED_COLS,
                  across = sumi_divide_up(rows, tile_rows), tiles = sumi_divide_up(weight->rows, cols),
                  multiprocessors = device->multiprocessors > 0 ? device->multiprocessors : 1;
    if ((int64_t)tiles * across > ARRIVALS) return none;
    int32_t blocks, cluster = 1; // Hopper: number of blocks; otherwise: splits of k
    if (is_hopper) {
        const int32_t chunks = sumi_divide_up(weight->cols, 256),
                      available = multiprocessors / across < 1 ? 1 : multiprocessors / across, work = tiles * chunks;
        cluster = choose_cluster(available, tiles, chunks);
        blocks = cluster * tiles;
        if (cluster == 1 && (blocks > available || chunks - work / available > SHARING_CHUNKS))
            blocks = sumi_min_int(available, work / 2); // an equal share of all chunks, two at least
    } else { // as many as fill the multiprocessors, at least 512 elements of k each
        const int32_t fitting = device->shared_per_multiprocessor / (int32_t)(shared_of(type, tile) + 1024),
                      max_blocks = multiprocessors * (fitting < 1 ? 1 : sumi_min_int(fitting, 4));
        blocks = sumi_min_int(sumi_min_int(max_blocks / (tiles * across), weight->cols / 512), MAX_SPLIT);
    }
    blocks = blocks < 1 ? 1 : blocks;
    const bool has_partial_sums = is_hopper ? cluster == 1 && blocks != tiles : blocks > 1;
    const uint64_t partial_tiles =
        is_hopper ? 2 * (uint64_t)blocks * (uint64_t)across : (uint64_t)tiles * (uint64_t)across * (uint64_t)blocks;
    return (sumi_cuda_stored_choice){.tile = tile,
                                     .blocks = blocks,
                                     .cluster = cluster,
                                     .unit_rows = tile_rows,
                                     .partial_sum_bytes = has_partial_sums ? partial_tiles * (uint64_t)tile_rows
                                                                                 * (uint64_t)cols * sizeof(float)
                                                                           : 0};
}

sumi_result sumi_cuda_launch_stored(const sumi_cuda_run* run, const sumi_weight* weight, sumi_device_form form,
                                    CUdeviceptr from, const sumi_cuda_stored_choice* choice,
                                    sumi_gemm_stored_args* args)
{
    SUMI_ASSERT(choice->tile >= 0 && args->m >= 1 && args->x % 16 == 0 && args->ldx % 8 == 0);
    sumi_device_stored_tensor tensors[SUMI_WEIGHT_MAX_TENSORS];
    const int32_t count = sumi_device_stored_tensors(weight, form, tensors), type = tensors[0].type;
    int32_t end = 0;
    for (int32_t p = 0; p < SUMI_GEMM_STORED_TENSORS; p++) {
        if (p < count) end += tensors[p].rows;
        args->from[p] = p < count ? from + tensors[p].offset : 0;
        args->end[p] = end;
        args->scale[p] = p < count ? tensors[p].scale : 1.0f;
    }
    args->partial_sums = run->scratch;
    args->arrivals = run->arrivals;
    args->n = weight->rows;
    args->k = weight->cols;
    args->row_bytes = (int32_t)tensors[0].row_bytes;
    args->split = choice->blocks;
    args->cluster = choice->cluster;
    const char* name = choice->tile < PORTABLE_TILES ? s_types[type].gemm[choice->tile]
                                                     : s_hopper[type][choice->tile - PORTABLE_TILES];
    const uint32_t across = (uint32_t)sumi_divide_up(args->m, choice->unit_rows),
                   shared = shared_of(type, choice->tile);
    if (s_tiles[choice->tile].groups == 0) {
        const sumi_cuda_grid grid = {(uint32_t)sumi_divide_up(weight->rows, SUMI_GEMM_STORED_COLS), across,
                                     (uint32_t)choice->blocks, SUMI_GEMM_STORED_THREADS, shared};
        return sumi_cuda_launch(run, name, grid, (void*[]){args});
    }
    CUtensorMap x;
    const sumi_cuda_tensor tensor = {.address = args->x,
                                     .type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                     .swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                                     .rank = 2,
                                     .dims = {(uint64_t)weight->cols, (uint64_t)args->m},
                                     .strides = {2 * (uint64_t)args->ldx},
                                     .box = {64, (uint32_t)choice->unit_rows}};
    SUMI_TRY(sumi_cuda_tensor_map(run, &tensor, &x));
    const sumi_cuda_grid grid = {(uint32_t)choice->blocks, across, 1,
                                 (uint32_t)SUMI_GEMM_STORED_SM90_THREADS(s_tiles[choice->tile].groups), shared};
    return sumi_cuda_launch_clusters(run, name, grid, choice->cluster > 1 ? (uint32_t)choice->cluster : 0,
                                     (void*[]){&x, args});
}
