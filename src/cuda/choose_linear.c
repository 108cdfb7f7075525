// Which kernel computes a product. linear.h lists the methods.
//
// WGMMA and SPLIT are compared by one cost: the number of rounds of the resident clusters, times the time of one work
// item. PORTABLE counts rounds if m is large, and fills the multiprocessors by sharing k if m is small. The numbers for
// 9.0 were measured on an H100; to set them again, edit the constants below and run tests/tune_cuda_linear.c. Method,
// tile and split follow from the shape of the whole op, so that slices give the same bits. A slice computes a range of
// rows at multiples of the method's unit; a product of one unit is computed by the slice that contains the unit.
#include "base/assert.h"
#include "base/numbers.h"
#include "cuda/arrange.h"
#include "cuda/device.h"
#include "cuda/linear.h"
#include <string.h>

// clang-format off
// ---- The kernels ----------------------------------------------------------------------------------------------------
// Rows of the lists in gemm.h, with two consumer warpgroups and with three. ADDED: SUMI_EPILOGUE_SCALE for 8-bit operands.
#define KERNEL_2(PREFIX, OPERANDS, ADDED, HALVES, name, tile, EPILOGUE, M64_TILES, TILE_COLUMNS, STAGES, STORE_PASSES, SLAB_COLUMNS, PING_PONG)         \
    {PREFIX #name "_" #tile, SUMI_CUDA_EPILOGUE_##name, OPERANDS, PING_PONG, HALVES, SUMI_GEMM_SM90_ROWS(M64_TILES, PING_PONG), TILE_COLUMNS, STAGES,      \
     64 * (M64_TILES), SLAB_COLUMNS, 384, SUMI_GEMM_SM90_SHARED((EPILOGUE) | (ADDED), M64_TILES, TILE_COLUMNS, STAGES, STORE_PASSES, PING_PONG)},
#define KERNEL_3(PREFIX, OPERANDS, ADDED, HALVES, name, tile, EPILOGUE, TILE_COLUMNS, STAGES, STORE_PASSES, SLAB_COLUMNS)                                 \
    {PREFIX #name "_" #tile, SUMI_CUDA_EPILOGUE_##name, OPERANDS, false, HALVES, 192, TILE_COLUMNS, STAGES, 64, SLAB_COLUMNS, 512,                          \
     SUMI_GEMM_SM90_SHARED_3((EPILOGUE) | (ADDED), TILE_COLUMNS, STAGES, SLAB_COLUMNS)},
#define BF16_2(...) KERNEL_2("sumi_gemm_bf16_", SUMI_CUDA_BF16, 0, false, __VA_ARGS__)
#define BF16_HALVES_2(...) KERNEL_2("sumi_gemm_bf16_", SUMI_CUDA_BF16, 0, true, __VA_ARGS__)
#define BF16_3(...) KERNEL_3("sumi_gemm_bf16_", SUMI_CUDA_BF16, 0, false, __VA_ARGS__)
#define BF16_HALVES_3(...) KERNEL_3("sumi_gemm_bf16_", SUMI_CUDA_BF16, 0, true, __VA_ARGS__)
#define FP8_2(...) KERNEL_2("sumi_gemm_fp8_", SUMI_CUDA_E4M3, SUMI_EPILOGUE_SCALE, false, __VA_ARGS__)
#define FP8_HALVES_2(...) KERNEL_2("sumi_gemm_fp8_", SUMI_CUDA_E4M3, SUMI_EPILOGUE_SCALE, true, __VA_ARGS__)
#define FP8_3(...) KERNEL_3("sumi_gemm_fp8_", SUMI_CUDA_E4M3, SUMI_EPILOGUE_SCALE, false, __VA_ARGS__)
#define FP8_HALVES_3(...) KERNEL_3("sumi_gemm_fp8_", SUMI_CUDA_E4M3, SUMI_EPILOGUE_SCALE, true, __VA_ARGS__)
#define INT8_2(...) KERNEL_2("sumi_gemm_int8_", SUMI_CUDA_INT8, SUMI_EPILOGUE_SCALE, false, __VA_ARGS__)
#define INT8_HALVES_2(...) KERNEL_2("sumi_gemm_int8_", SUMI_CUDA_INT8, SUMI_EPILOGUE_SCALE, true, __VA_ARGS__)
#define INT8_3(...) KERNEL_3("sumi_gemm_int8_", SUMI_CUDA_INT8, SUMI_EPILOGUE_SCALE, false, __VA_ARGS__)
#define INT8_HALVES_3(...) KERNEL_3("sumi_gemm_int8_", SUMI_CUDA_INT8, SUMI_EPILOGUE_SCALE, true, __VA_ARGS__)
const sumi_cuda_wgmma sumi_cuda_wgmma_kernels[] = {
    SUMI_GEMM_SM90_BF16(BF16_2) SUMI_GEMM_SM90_BF16_3(BF16_3)
    SUMI_GEMM_SM90_BF16_HALVES(BF16_HALVES_2) SUMI_GEMM_SM90_BF16_HALVES_3(BF16_HALVES_3)
    SUMI_GEMM_SM90_8BIT(FP8_2) SUMI_GEMM_SM90_8BIT_3(FP8_3)
    SUMI_GEMM_SM90_8BIT_HALVES(FP8_HALVES_2) SUMI_GEMM_SM90_8BIT_HALVES_3(FP8_HALVES_3)
    SUMI_GEMM_SM90_8BIT(INT8_2) SUMI_GEMM_SM90_8BIT_3(INT8_3)
    SUMI_GEMM_SM90_8BIT_HALVES(INT8_HALVES_2) SUMI_GEMM_SM90_8BIT_HALVES_3(INT8_HALVES_3)
    SUMI_GEMM_SM90_INT8(INT8_2)
};
#undef KERNEL_2
#undef KERNEL_3
enum { WGMMA_COUNT = sizeof sumi_cuda_wgmma_kernels / sizeof *sumi_cuda_wgmma_kernels };

// The kernels for two products, and those for one product that have their tiles.
static const struct pair_kernel {
    const char *name, *pair;
} s_pair_kernels[] = {
#define ROW(epilogue, tile) {"sumi_gemm_int8_" #epilogue "_" #tile, "sumi_gemm_int8_pair_" #epilogue "_" #tile},
    SUMI_GEMM_SM90_PAIRS(ROW)
#undef ROW
};
enum { PAIR_COUNT = sizeof s_pair_kernels / sizeof *s_pair_kernels };

const sumi_cuda_split sumi_cuda_split_kernels[] = {
#define ROW(COLUMNS, STAGES) {"sumi_gemm_split_any_" #COLUMNS, "sumi_gemm_split_swiglu_" #COLUMNS, SUMI_CUDA_BF16, COLUMNS, SUMI_GEMM_SPLIT_SHARED(COLUMNS, STAGES)},
    SUMI_GEMM_SPLIT(ROW)
#undef ROW
#define ROW(COLUMNS, STAGES) {"sumi_gemm_split_int8_any_" #COLUMNS, "sumi_gemm_split_int8_swiglu_" #COLUMNS, SUMI_CUDA_INT8, COLUMNS, SUMI_GEMM_SPLIT_SHARED(COLUMNS, STAGES)},
    SUMI_GEMM_SPLIT_INT8(ROW)
#undef ROW
};
enum { SPLIT_COUNT = sizeof sumi_cuda_split_kernels / sizeof *sumi_cuda_split_kernels };

const sumi_cuda_portable sumi_cuda_portable_kernels[] = {
#define NUMBERS(TILE_ROWS, TILE_COLUMNS, K_BLOCK_BYTES, STAGES, WARP_ROWS, WARP_COLUMNS, MIN_BLOCKS) \
    TILE_ROWS, TILE_COLUMNS, K_BLOCK_BYTES, (TILE_ROWS) / (WARP_ROWS) * ((TILE_COLUMNS) / (WARP_COLUMNS)) * 32, MIN_BLOCKS, (STAGES) * ((TILE_ROWS) + (TILE_COLUMNS)) * (K_BLOCK_BYTES)
#define ROW(tile, ...) {"sumi_pgemm_bf16_plain_" #tile, "sumi_pgemm_bf16_swiglu_" #tile, NULL, NUMBERS(__VA_ARGS__), SUMI_CUDA_BF16, false},
    SUMI_GEMM_PORTABLE_TILES(ROW)
#undef ROW
#define ROW(tile, ...) {"sumi_pgemm_bf16_plain_" #tile, "sumi_pgemm_bf16_swiglu_" #tile, "sumi_pgemm_bf16_any_" #tile, NUMBERS(__VA_ARGS__), SUMI_CUDA_BF16, false},
    SUMI_GEMM_PORTABLE_TILES_ANY(ROW)
#undef ROW
#define ROW(tile, ...) {NULL, "sumi_pgemm_bf16_swiglu_" #tile, "sumi_pgemm_bf16_any_" #tile, NUMBERS(__VA_ARGS__), SUMI_CUDA_BF16, true},
    SUMI_GEMM_PORTABLE_SPLIT_TILES(ROW)
#undef ROW
#define ROW(tile, ...) {"sumi_pgemm_fp8_plain_" #tile, "sumi_pgemm_fp8_swiglu_" #tile, NULL, NUMBERS(__VA_ARGS__), SUMI_CUDA_E4M3, false},
    SUMI_GEMM_PORTABLE_FP8_TILES(ROW)
#undef ROW
#define ROW(tile, ...) {"sumi_pgemm_fp8_plain_" #tile, "sumi_pgemm_fp8_swiglu_" #tile, "sumi_pgemm_fp8_any_" #tile, NUMBERS(__VA_ARGS__), SUMI_CUDA_E4M3, false},
    SUMI_GEMM_PORTABLE_FP8_TILES_ANY(ROW)
#undef ROW
#define ROW(tile, ...) {"sumi_pgemm_int8_plain_" #tile, "sumi_pgemm_int8_swiglu_" #tile, NULL, NUMBERS(__VA_ARGS__), SUMI_CUDA_INT8, false},
    SUMI_GEMM_PORTABLE_INT8_TILES(ROW)
#undef ROW
#define ROW(tile, ...) {"sumi_pgemm_int8_plain_" #tile, "sumi_pgemm_int8_swiglu_" #tile, "sumi_pgemm_int8_any_" #tile, NUMBERS(__VA_ARGS__), SUMI_CUDA_INT8, false},
    SUMI_GEMM_PORTABLE_INT8_TILES_ANY(ROW)
#undef ROW
#define ROW(tile, ...) {NULL, "sumi_pgemm_int8_swiglu_" #tile, "sumi_pgemm_int8_any_" #tile, NUMBERS(__VA_ARGS__), SUMI_CUDA_INT8, true},
    SUMI_GEMM_PORTABLE_INT8_SPLIT_TILES(ROW)
#undef ROW
#undef NUMBERS
};
enum { PORTABLE_COUNT = sizeof sumi_cuda_portable_kernels / sizeof *sumi_cuda_portable_kernels };
// clang-format on

// ---- Choosing -------------------------------------------------------------------------------------------------------
enum {
    GEMV_ROWS = 16,
    // On 9.0: products of many columns and less k are faster with tiles (15360 x 256: 6.6 us against 9.6 us at 16 rows
    // on an H200).
    GEMV_K = 512,
    // On 9.0, for fewer rows: small portable tiles read the weights faster, unless there are more tiles than run at
    // once.
    HOPPER_ROWS = 65,
    NARROW = 64,      // the same is true up to this many columns, for any number of rows
    SPLIT_ROWS = 256, // k is shared on 9.0 for up to this many rows (for the narrow products of adapters always)
    // SPLIT computes int8 for up to this many rows; WGMMA computes more, for which SPLIT was not timed
    SPLIT_INT8_ROWS = 512,
    LITTLE_K = 512,
    LITTLE_K_ROWS = 1024,
    LIMITED_ROWS = 1024, // on 9.0, for more rows: see hopper_rates
    PORTABLE_SPLIT_ROWS = 700,
    ARRIVALS = 65536,                // length of run->arrivals
    MAX_PARTIAL_SUM_BYTES = 64 << 20 // the most scratch for partial sums
};

// Work items of a cluster: two tiles one above the other; in an odd last row of tiles, two tiles side by side.
int64_t sumi_cuda_tile_pairs(int32_t m, int32_t n, int32_t rows, int32_t cols)
{
    int32_t tm = sumi_divide_up(m, rows), tn = sumi_divide_up(n, cols);
    return (int64_t)(tm / 2) * tn + (tm % 2 != 0 ? (tn + 1) / 2 : 0);
}

int64_t sumi_cuda_whole_items(const sumi_cuda_wgmma* kernel, int64_t items, int64_t clusters)
{
    const int64_t left = items % clusters;
    return kernel->has_halves && 2 * left <= clusters ? items - left : items;
}

uint64_t sumi_cuda_partial_sum_bytes(const sumi_cuda_linear_choice* c, int32_t m, int32_t n)
{
    if (c->split <= 1) return 0;
    int32_t rows = 128, cols = 0;
    if (c->method == SUMI_CUDA_METHOD_GEMV) rows = m <= 8 ? 8 : 16, cols = 16;
    if (c->method == SUMI_CUDA_METHOD_SPLIT) cols = sumi_cuda_split_kernels[c->kernel].cols;
    if (c->method == SUMI_CUDA_METHOD_PORTABLE)
        rows = sumi_cuda_portable_kernels[c->kernel].rows, cols = sumi_cuda_portable_kernels[c->kernel].cols;
    return (uint64_t)sumi_divide_up(m, rows) * (uint64_t)sumi_divide_up(n, cols) * (uint64_t)c->split * (uint64_t)rows
         * (uint64_t)cols * sizeof(float);
}

// Costs on 9.0, in units of one k-block (128 bytes of k) of a 128 x 128 tile: 0.32 us on an H200 in bf16.
// tests/tune_cuda_linear.c measures the times that they stand for. All but s_launch were set together, by the times of
// single products on an H100 and by forwards there, where the power limit sometimes decides otherwise.
static const double s_launch = 3.0; // once per launch
// Epilogue of a tile that no other work hides, with the filling of the stages. With ping-pong only the last tile's counts.
static const double s_tile_end = 5.0, s_tile_end_8bit = 2.0;
// the extra time of SPLIT's epilogue, which decides at run time what to do; per 128 columns
static const double s_split_end = 4.0;
static const double s_split_rate = 1.2; // of its tiles relative to the others', for more rows than SPLIT_ROWS
static const double s_part_write = 4.0; // writing a partial sum, per 128 columns
static const double s_part_read = 3.5;  // reading and adding a partial sum, per 128 columns
// The least time for copying a k-block's operands, for each 256 rows of both
static const double s_copy = 0.8;

// What differs between products of few rows and those of more than LIMITED_ROWS.
typedef struct hopper_rates {
    // The part of the time that follows from the work instead of the rounds: idle multiprocessors leave power, and
    // bandwidth of L2 and memory, to the others, which makes those faster.
    double work_part;
    double read;      // the extra time of a k-block's products for twice the bytes from L2 of a tile of 128 x 256
    double ping_pong; // the extra time of ping-pong with 128 columns, beside the bytes that it reads
    // The same with 192 columns, for int8 alone. Many rows: set by pairs of products of 4096 and 128 rows, on an H200.
    // Beside tiles of 192 columns that two consumers share they took 0.97 (q, k, v), 0.99 (k = 3072, gated) and
    // 0.96 of the time (k = 12288, gated), the last as long as tiles of 256 columns. Few rows: not measured, so never
    // chosen.
    double wide_ping_pong;
    double tall; // the same of tiles of 192 rows
    // Time of half a tile, beside half of the whole one's. A last round of halves alone cannot hide its latencies; after
    // several rounds not all clusters begin it at the same time.
    double half;
} hopper_rates;
static const hopper_rates s_few_rows_rates = {0.4, 0.04, 0.15, 1.0, 0.015, 1.75},
                          s_many_rows_rates = {0.15, 0.06, 0.1, 0.0, 0.0, 1.05};
static const hopper_rates* rates_of(const sumi_cuda_shape* s)
{
    return s->m > LIMITED_ROWS ? &s_many_rows_rates : &s_few_rows_rates;
}

// Time of the products of a k-block, relative to tiles of 128 x 256. A pair of blocks reads 2 rows + cols from L2 for
// 2 rows x cols products. Products of many rows run at the power limit, where these bytes cost more time.
static double rate_of(const sumi_cuda_shape* s, int32_t rows, int32_t cols, bool is_ping_pong)
{
    const hopper_rates* rates = rates_of(s);
    const double read = 128.0 / cols + 64.0 / rows; // 1 for 128 x 256
    const double ping_pong = cols > 128 ? rates->wide_ping_pong : rates->ping_pong;
    return 1.0 + rates->read * (read - 1.0) + (is_ping_pong ? ping_pong : 0.0);
}
static double k_block_cost(int32_t rows, int32_t cols, double rate)
{
    const double products = rows * cols / 16384.0 * rate, copies = (rows + cols) / 256.0 * s_copy;
    return products > copies ? products : copies;
}

static int64_t items_of(const sumi_cuda_wgmma* kernel, const sumi_cuda_shape* s)
{
    return sumi_cuda_tile_pairs(s->m, s->n, kernel->rows, kernel->cols);
}

static int32_t k_blocks_of(const sumi_cuda_shape* s)
{
    return sumi_divide_up(s->k, s->operands != SUMI_CUDA_BF16 ? 128 : 64);
}

static double wgmma_cost(const sumi_cuda_wgmma* kernel, const sumi_cuda_shape* s, int64_t items, int64_t clusters)
{
    const hopper_rates* rates = rates_of(s);
    const int64_t whole = sumi_cuda_whole_items(kernel, items, clusters);
    const double whole_rounds = (double)((whole + clusters - 1) / clusters), half_rounds = whole < items ? 1.0 : 0.0;
    double rate = rate_of(s, kernel->rows, kernel->cols, kernel->is_ping_pong);
    const bool has_gelu = s->epilogue == SUMI_CUDA_EPILOGUE_gelu || s->epilogue == SUMI_CUDA_EPILOGUE_gelu_erf;
    // Ping-pong with 192 columns hides half of it: on an H200 gelu took 1.03 of the time of a bias alone there, and 1.06
    // with tiles of 192 columns that two consumers share.
    if (has_gelu && !kernel->is_ping_pong) rate *= 1.12;
    if (has_gelu && kernel->is_ping_pong && kernel->cols > 128) rate *= 1.06;
    const double work = (double)items / (double)clusters * kernel->rows * kernel->cols / 16384.0 * rate,
                 rounds = whole_rounds * k_block_cost(kernel->rows, kernel->cols, rate)
                        + half_rounds * k_block_cost(kernel->rows, kernel->cols / 2, rate * rates->half);
    const double ends = kernel->is_ping_pong ? 1.0 : whole_rounds + half_rounds;
    const double cost =
        s_launch + ends * (s->operands == SUMI_CUDA_BF16 ? s_tile_end : s_tile_end_8bit)
        + sumi_max_int(k_blocks_of(s), kernel->stages) * ((1.0 - rates->work_part) * rounds + rates->work_part * work);
    return kernel->rows == 192 ? cost * (1.0 + rates->tall) : cost;
}

// *out_cost: of the choice.
static bool choose_hopper_product(const sumi_cuda_device* device, const sumi_cuda_shape* s,
                                  sumi_cuda_linear_choice* best, double* out_cost)
{
    const int64_t clusters = sumi_max_int(device->multiprocessors / 2, 1);
    const int32_t blocks = k_blocks_of(s);
    double least = 0.0;
    best->method = SUMI_CUDA_METHOD_ANY;
    for (int32_t i = 0; i < WGMMA_COUNT; i++) {
        const sumi_cuda_wgmma* kernel = &sumi_cuda_wgmma_kernels[i];
        if (kernel->epilogue != s->epilogue || kernel->operands != s->operands) continue;
        const double cost = wgmma_cost(kernel, s, items_of(kernel, s), clusters);
        if (best->method == SUMI_CUDA_METHOD_ANY || cost < least) {
            least = *out_cost = cost;
            *best = (sumi_cuda_linear_choice){SUMI_CUDA_METHOD_WGMMA, i, 1, 2 * kernel->rows};
        }
    }
    // A product of many rows with small k is bound by its epilogue, which two portable blocks per multiprocessor hide
    // better than one block of these kernels.
    if (s->operands == SUMI_CUDA_E4M3 || (s->operands == SUMI_CUDA_INT8 && s->m > SPLIT_INT8_ROWS)
        || (s->epilogue == SUMI_CUDA_EPILOGUE_any && s->m > LITTLE_K_ROWS && s->k < LITTLE_K))
        return best->method != SUMI_CUDA_METHOD_ANY;
    for (int32_t i = 0; i < SPLIT_COUNT; i++) {
        const int32_t cols = sumi_cuda_split_kernels[i].cols;
        // Gated products are wide: they have enough tiles of 128 columns.
        if (sumi_cuda_split_kernels[i].operands != s->operands
            || (cols < 128 && s->epilogue == SUMI_CUDA_EPILOGUE_swiglu))
            continue;
        const int64_t pairs = sumi_cuda_tile_pairs(s->m, s->n, 128, cols),
                      tiles = (int64_t)sumi_divide_up(s->m, 128) * sumi_divide_up(s->n, cols);
        const double rate = rate_of(s, 128, cols, false) * (s->m > SPLIT_ROWS ? s_split_rate : 1.0),
                     width = cols / 128.0, block = k_block_cost(128, cols, rate);
        const bool shares_k =
            (s->m <= SPLIT_ROWS || s->operands == SUMI_CUDA_INT8 || s->n <= 256) && 2 * tiles <= ARRIVALS;
        for (int32_t split = 1; split <= 16 && (split == 1 || (shares_k && blocks >= 4 * split)); split++) {
            const sumi_cuda_linear_choice c = {SUMI_CUDA_METHOD_SPLIT, i, split, 256};
            if (sumi_cuda_partial_sum_bytes(&c, s->m, s->n) > MAX_PARTIAL_SUM_BYTES) break;
            const double rounds = (double)((pairs * split + clusters - 1) / clusters), join = split > 1 ? width : 0.0;
            const double cost =
                s_launch
                + rounds
                      * (sumi_divide_up(blocks, split) * block + s_tile_end + s_split_end * width + s_part_write * join)
                + split * s_part_read * join;
            if (best->method == SUMI_CUDA_METHOD_ANY || cost < least) {
                least = *out_cost = cost;
                *best = c;
            }
        }
    }
    return true;
}

const char* sumi_cuda_pair_name(int32_t kernel)
{
    SUMI_ASSERT(kernel >= 0 && kernel < WGMMA_COUNT);
    for (int32_t i = 0; i < PAIR_COUNT; i++)
        if (strcmp(s_pair_kernels[i].name, sumi_cuda_wgmma_kernels[kernel].name) == 0) return s_pair_kernels[i].pair;
    return NULL;
}

int32_t sumi_cuda_choose_pair(const sumi_cuda_device* device, const sumi_cuda_shape* first,
                              const sumi_cuda_shape* second)
{
    if (first->epilogue != second->epilogue || first->operands != SUMI_CUDA_INT8 || second->operands != SUMI_CUDA_INT8
        || first->n != second->n || first->k != second->k)
        return -1;
    const sumi_cuda_linear_choice* forced = device->forced_linear;
    if (forced != NULL)
        return forced->method == SUMI_CUDA_METHOD_WGMMA && sumi_cuda_pair_name(forced->kernel) != NULL ? forced->kernel
                                                                                                       : -1;
    const int64_t clusters = sumi_max_int(device->multiprocessors / 2, 1);
    const sumi_cuda_shape* larger = first->m >= second->m ? first : second;
    sumi_cuda_linear_choice ignored;
    double first_cost, second_cost;
    if (!choose_hopper_product(device, first, &ignored, &first_cost)
        || !choose_hopper_product(device, second, &ignored, &second_cost))
        return -1;
    int32_t best = -1;
    double least = first_cost + second_cost;
    for (int32_t i = 0; i < WGMMA_COUNT; i++) {
        const sumi_cuda_wgmma* tile = &sumi_cuda_wgmma_kernels[i];
        if (tile->operands != SUMI_CUDA_INT8 || tile->epilogue != first->epilogue || sumi_cuda_pair_name(i) == NULL)
            continue;
        const double together = wgmma_cost(tile, larger, items_of(tile, first) + items_of(tile, second), clusters);
        if (together >= least) continue;
        least = together;
        best = i;
    }
    return best;
}

const char* sumi_cuda_portable_name(const sumi_cuda_portable* kernel, sumi_cuda_epilogue e)
{
    return e == SUMI_CUDA_EPILOGUE_swiglu                         ? kernel->swiglu
         : e == SUMI_CUDA_EPILOGUE_plain && kernel->plain != NULL ? kernel->plain
                                                                  : kernel->any;
}

// For few rows: a small tile, and as many splits of k as fill the multiprocessors. False: no tile that can share k
// fits.
static bool choose_portable_split(const sumi_cuda_device* device, const sumi_cuda_shape* s,
                                  bool has_wide_multiprocessors, sumi_cuda_linear_choice* best)
{
    const int64_t multiprocessors = sumi_max_int(device->multiprocessors, 1);
    const int32_t max_rows = s->m <= 32 ? 32 : s->m <= 128 || s->n <= 64 ? 64 : 128;
    for (int32_t i = 0; i < PORTABLE_COUNT; i++) { // the first kernel that fits; they are sorted by size
        const sumi_cuda_portable* kernel = &sumi_cuda_portable_kernels[i];
        if (!kernel->shares_k || kernel->operands != s->operands || kernel->rows > max_rows
            || kernel->shared > (uint32_t)device->shared_per_block
            || (kernel->shared > 64 * 1024 && !has_wide_multiprocessors))
            continue;
        const int64_t tiles = (int64_t)sumi_divide_up(s->m, kernel->rows) * sumi_divide_up(s->n, kernel->cols);
        *best = (sumi_cuda_linear_choice){SUMI_CUDA_METHOD_PORTABLE, i, 1, kernel->rows};
        if (tiles > ARRIVALS) return true;
        if (kernel->rows == 32) { // small blocks: about 2.4 per multiprocessor
            const int64_t split = (12 * multiprocessors / 5 + tiles / 2) / tiles;
            best->split = sumi_max_int(1, sumi_min_int((int32_t)(split < 16 ? split : 16), s->k / 384));
            return true;
        }
        double least = (double)((tiles + multiprocessors - 1) / multiprocessors);
        for (int32_t split = 2; split <= 16 && s->k / split >= 384 && tiles * split <= 2 * multiprocessors; split++) {
            // the second term: adding the partial sums
            const double cost = (double)((tiles * split + multiprocessors - 1) / multiprocessors) / split
                              + split * 0.05 * 2560.0 / s->k;
            if (cost < least) {
                least = cost;
                best->split = split;
            }
        }
        return true;
    }
    return false;
}

static sumi_cuda_linear_choice choose_portable_product(const sumi_cuda_device* device, const sumi_cuda_shape* s)
{
    const bool has_wide_multiprocessors = sumi_cuda_has_wide_multiprocessors(device);
    const int64_t multiprocessors = sumi_max_int(device->multiprocessors, 1);
    sumi_cuda_linear_choice best = {SUMI_CUDA_METHOD_ANY, 0, 1, 64};
    if (s->operands != SUMI_CUDA_E4M3 && (s->m <= PORTABLE_SPLIT_ROWS || s->n <= 128)
        && choose_portable_split(device, s, has_wide_multiprocessors, &best))
        return best;
    double least = 0.0;
    for (int32_t i = 0; i < PORTABLE_COUNT; i++) {
        const sumi_cuda_portable* kernel = &sumi_cuda_portable_kernels[i];
        if (kernel->operands != s->operands || kernel->rows < 96
            || sumi_cuda_portable_name(kernel, s->epilogue) == NULL)
            continue;
        if (kernel->shared > (uint32_t)device->shared_per_block
            || (kernel->k_bytes == 128 && !has_wide_multiprocessors))
            continue;
        // other kernels are better for it
        if (kernel->shares_k && s->epilogue == SUMI_CUDA_EPILOGUE_plain) continue;
        // every block takes 1 KiB more
        const int32_t fitting = device->shared_per_multiprocessor / (int32_t)(kernel->shared + 1024);
        const int32_t blocks = sumi_max_int(1, sumi_min_int(kernel->blocks, fitting));
        const int64_t tiles = (int64_t)sumi_divide_up(s->m, kernel->rows) * sumi_divide_up(s->n, kernel->cols),
                      at_once = multiprocessors * blocks;
        const double rate = (kernel->cols == 256   ? 1.0
                             : kernel->rows == 128 ? 0.97
                                                   : 0.84)
                          * (kernel->k_bytes == 128 || !has_wide_multiprocessors ? 1.0 : 0.95);
        // A block that has its multiprocessor to itself in the last round takes 1.2 of its share of a full one.
        const int64_t left = tiles % at_once;
        double rounds = (double)(tiles / at_once) * blocks; // of one block per multiprocessor
        if (left > 0) rounds += blocks > 1 && left <= multiprocessors ? 1.2 : blocks;
        const double cost = rounds * kernel->rows * kernel->cols / rate;
        if (best.method == SUMI_CUDA_METHOD_ANY || cost < least) {
            least = cost;
            best = (sumi_cuda_linear_choice){SUMI_CUDA_METHOD_PORTABLE, i, 1, kernel->rows};
        }
    }
    return best;
}

sumi_cuda_linear_choice sumi_cuda_choose_linear(const sumi_cuda_device* device, bool allows_hopper,
                                                const sumi_cuda_shape* s)
{
    if (device->forced_linear != NULL) return *device->forced_linear;
    if (!s->reads_aligned) return (sumi_cuda_linear_choice){SUMI_CUDA_METHOD_ANY, 0, 1, 64};
    const bool is_hopper = sumi_cuda_has_hopper(device, allows_hopper);
    // Small portable tiles: 64 x 64, two blocks per multiprocessor.
    const bool is_small =
        s->operands == SUMI_CUDA_BF16
        && (s->n <= NARROW
            || (s->m < HOPPER_ROWS && (s->m <= 32 || sumi_divide_up(s->n, 64) <= 2 * device->multiprocessors)));
    const bool is_flat =
        s->m <= GEMV_ROWS && s->k < GEMV_K && s->n >= 4096 && is_hopper && s->epilogue != SUMI_CUDA_EPILOGUE_any;
    if (s->operands == SUMI_CUDA_BF16 && s->m <= GEMV_ROWS && !is_flat)
        return (sumi_cuda_linear_choice){SUMI_CUDA_METHOD_GEMV, 0, s->n < 2000 && s->k >= 1024 ? 2 : 1, GEMV_ROWS};
    sumi_cuda_linear_choice c;
    double cost;
    if (is_hopper && (!is_small || is_flat) && choose_hopper_product(device, s, &c, &cost)) return c;
    return choose_portable_product(device, s);
}

// ---- All of them ----------------------------------------------------------------------------------------------------
typedef struct choices {
    sumi_cuda_linear_choice* list;
    int32_t count, capacity;
} choices;

// Adds a choice for each split from 1 to max_split that leaves at least 128 elements of k, one k-block, to each range
// of k.
static void add_choice(choices* to, const sumi_cuda_shape* s, sumi_cuda_method method, int32_t kernel,
                       int32_t max_split, int32_t unit_rows)
{
    for (int32_t split = 1; split <= max_split && (split == 1 || s->k >= 128 * split); split++) {
        const sumi_cuda_linear_choice c = {method, kernel, split, unit_rows};
        if (sumi_cuda_partial_sum_bytes(&c, s->m, s->n) > MAX_PARTIAL_SUM_BYTES || to->count == to->capacity) return;
        to->list[to->count++] = c;
    }
}

int32_t sumi_cuda_list_linear(const sumi_cuda_device* device, bool allows_hopper, const sumi_cuda_shape* s,
                              sumi_cuda_linear_choice* out_list, int32_t capacity)
{
    choices to = {out_list, 0, capacity};
    if (!s->reads_aligned || s->k < 512) add_choice(&to, s, SUMI_CUDA_METHOD_ANY, 0, 1, 64);
    if (!s->reads_aligned) return to.count;
    if (s->operands == SUMI_CUDA_BF16 && s->m <= GEMV_ROWS) add_choice(&to, s, SUMI_CUDA_METHOD_GEMV, 0, 8, GEMV_ROWS);
    const bool is_hopper = sumi_cuda_has_hopper(device, allows_hopper);
    for (int32_t i = 0; i < WGMMA_COUNT && is_hopper; i++) {
        const sumi_cuda_wgmma* kernel = &sumi_cuda_wgmma_kernels[i];
        if (kernel->epilogue == s->epilogue && kernel->operands == s->operands)
            add_choice(&to, s, SUMI_CUDA_METHOD_WGMMA, i, 1, 2 * kernel->rows);
    }
    for (int32_t i = 0; i < SPLIT_COUNT && is_hopper; i++) {
        if (sumi_cuda_split_kernels[i].operands != s->operands) continue;
        const int64_t tiles =
            (int64_t)sumi_divide_up(s->m, 128) * sumi_divide_up(s->n, sumi_cuda_split_kernels[i].cols);
        add_choice(&to, s, SUMI_CUDA_METHOD_SPLIT, i, 2 * tiles <= ARRIVALS ? 16 : 1, 256);
    }
    for (int32_t i = 0; i < PORTABLE_COUNT; i++) {
        const sumi_cuda_portable* kernel = &sumi_cuda_portable_kernels[i];
        if (kernel->operands != s->operands || sumi_cuda_portable_name(kernel, s->epilogue) == NULL
            || kernel->shared > (uint32_t)device->shared_per_block)
            continue;
        const int64_t tiles = (int64_t)sumi_divide_up(s->m, kernel->rows) * sumi_divide_up(s->n, kernel->cols);
        add_choice(&to, s, SUMI_CUDA_METHOD_PORTABLE, i, kernel->shares_k && tiles <= ARRIVALS ? 16 : 1, kernel->rows);
    }
    return to.count;
}
