// Measures forms of the attention of Hopper in e4m3 beside the one in bf16: other settings of
// kernels/attention_forward_sm90.cuh than those that the library has, one after the other in turns. Not a test: a table
// to choose the settings by. Needs an H100 or H200 to itself, no library, and nvcc where it is built:
//
//     nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -Ikernels -I. tests/tune_cuda_attention.cu \
//         -o build/tune_cuda_attention -ldl
//     build/tune_cuda_attention [--units] [--seconds S] [PART ..]      PART: of the name of a shape or of a form
//
// A line per form and shape:
//
//     us        a launch of attention in a graph of many, median of the rounds; for e4m3 then the same with the packing
//               of v before each, and the packing alone
//     TF/s      of the attention alone
//     part      of bf16's time, with the packing
//     error     of sampled rows against float32, relative, in norm
//     MHz, W    what the driver said while it ran
//
// Before them the errors of forms for odd sizes, where q and k are values that e4m3 holds: of P and v alone.
//
// --units: cycles that a multiprocessor's quarter takes for a warp's instruction, of those that decide here.
#include "kernels/attention_sm90.cu"
#undef ATTENTION_KERNEL
#include "kernels/attention_fp8_sm90.cu"
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda.h>
#include <cuda_runtime.h>
#include <dlfcn.h>
#include <string>
#include <unistd.h>
#include <vector>

#define CHECK_CUDA(call)                                                                                               \
    do {                                                                                                               \
        const cudaError_t error = (call);                                                                              \
        if (error != cudaSuccess) {                                                                                    \
            printf("%s: %s (line %d)\n", #call, cudaGetErrorString(error), __LINE__);                                  \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

// ---- Forms ----------------------------------------------------------------------------------------------------------
PACK_KERNEL(pack_d64, 64, false)
PACK_KERNEL(pack_d80, 80, false)
PACK_KERNEL(pack_d96_sums, 96, true)
PACK_KERNEL(pack_d128_sums, 128, true)

typedef struct form {
    const char* name;
    const void* kernel;
    int dim, rows, stages;
    const void* pack; // NULL: bf16
    int v_channels;   // of a tile
    int bf16_shared;
} form;
#define MAXIMA SOFTMAX_MAXIMA
#define CHECKED SOFTMAX_CHECKED
#define SUMMED SOFTMAX_SUMMED
// name, dim, consumers, stages, overlap, polynomial, softmax, parts, q in registers
#define FORMS(X)                                                                                                       \
    X(d96_m, 96, 3, 3, false, 0, MAXIMA, 1, false)                                                                     \
    X(d96_m_p8, 96, 3, 3, false, 8, MAXIMA, 1, false)                                                                  \
    X(d96_m_p4, 96, 3, 3, false, 4, MAXIMA, 1, false)                                                                  \
    X(d96_c, 96, 3, 3, false, 0, CHECKED, 1, false)                                                                    \
    X(d96_ch, 96, 3, 3, false, 0, CHECKED, 2, false)                                                                   \
    X(d96_ch_s4, 96, 3, 4, false, 0, CHECKED, 2, false)                                                                \
    X(d96_ch_p8, 96, 3, 3, false, 8, CHECKED, 2, false)                                                                \
    X(d96_ch_p4, 96, 3, 3, false, 4, CHECKED, 2, false)                                                                \
    X(d96_ch_p2, 96, 3, 3, false, 2, CHECKED, 2, false)                                                                \
    X(d96_cq, 96, 3, 3, false, 0, CHECKED, 4, false)                                                                   \
    X(d96_cq_p4, 96, 3, 3, false, 4, CHECKED, 4, false)                                                                \
    X(d96_sh, 96, 3, 3, false, 0, SUMMED, 2, false)                                                                    \
    X(d96_sh_p8, 96, 3, 3, false, 8, SUMMED, 2, false)                                                                 \
    X(d96_sh_p4, 96, 3, 3, false, 4, SUMMED, 2, false)                                                                 \
    X(d96_2_ch, 96, 2, 4, false, 0, CHECKED, 2, true)                                                                  \
    X(d96_2_ch_p4, 96, 2, 4, false, 4, CHECKED, 2, true)                                                               \
    X(d128_m_p8, 128, 3, 3, false, 8, MAXIMA, 1, false)                                                                \
    X(d128_cq, 128, 3, 3, false, 0, CHECKED, 4, false)                                                                 \
    X(d128_cq_s4, 128, 3, 4, false, 0, CHECKED, 4, false)                                                              \
    X(d128_cq_p8, 128, 3, 3, false, 8, CHECKED, 4, false)                                                              \
    X(d128_2_m, 128, 2, 4, false, 0, MAXIMA, 1, false)                                                                 \
    X(d128_2_mo, 128, 2, 4, true, 0, MAXIMA, 1, false)                                                                 \
    X(d128_2_ch, 128, 2, 4, false, 0, CHECKED, 2, false)                                                               \
    X(d128_2_chr, 128, 2, 4, false, 0, CHECKED, 2, true)                                                               \
    X(d128_2_chr_p8, 128, 2, 4, false, 8, CHECKED, 2, true)                                                            \
    X(d128_2_shr, 128, 2, 4, false, 0, SUMMED, 2, true)                                                                \
    X(d64_m, 64, 3, 4, false, 0, MAXIMA, 1, false)                                                                     \
    X(d64_ch, 64, 3, 4, false, 0, CHECKED, 2, false)                                                                   \
    X(d64_ch_p4, 64, 3, 4, false, 4, CHECKED, 2, false)                                                                \
    X(d80_m, 80, 3, 4, false, 0, MAXIMA, 1, false)                                                                     \
    X(d80_ch, 80, 3, 4, false, 0, CHECKED, 2, false)
#define DEFINE(NAME, ...) E4M3_KERNEL(form_##NAME, __VA_ARGS__)
FORMS(DEFINE)

static const void* pack_of(int dim, int softmax)
{
    return softmax == SUMMED ? dim == 96 ? (const void*)pack_d96_sums : (const void*)pack_d128_sums
         : dim == 128        ? (const void*)sumi_attention_pack_values_d128
         : dim == 96         ? (const void*)sumi_attention_pack_values_d96
         : dim == 80         ? (const void*)pack_d80
                             : (const void*)pack_d64;
}
#define ROW(NAME, DIM, CONSUMERS, STAGES, OVERLAP, POLYNOMIAL, SOFTMAX, PARTS, QR)                                     \
    {#NAME,                                                                                                            \
     (const void*)form_##NAME,                                                                                         \
     DIM,                                                                                                              \
     64 * CONSUMERS,                                                                                                   \
     STAGES,                                                                                                           \
     pack_of(DIM, SOFTMAX),                                                                                            \
     DIM + (SOFTMAX == SUMMED ? 8 : 0),                                                                                \
     0},
static const form s_forms[] = {
    {"bf16_d128", (const void*)sumi_attention_sm90_d128, 128, 192, 2, NULL, 0, 230400},
    {"bf16_d128_c2", (const void*)sumi_attention_sm90_d128_c2, 128, 128, 2, NULL, 0, 197632},
    {"bf16_d96", (const void*)sumi_attention_sm90_d96, 96, 192, 2, NULL, 0, 173056},
    {"bf16_d80", (const void*)sumi_attention_sm90_d80, 80, 192, 4, NULL, 0, 226304},
    {"bf16_d64", (const void*)sumi_attention_sm90_d64, 64, 192, 4, NULL, 0, 181248},
    {"d128_now", (const void*)sumi_attention_sm90_fp8_d128, 128, 192, 3, pack_of(128, MAXIMA), 128, 0},
    FORMS(ROW)};
enum { FORM_COUNT = sizeof s_forms / sizeof *s_forms };

typedef struct shape {
    const char* name;
    int tokens, second, heads, kv_heads, dim; // second: of the tokens, those of the second span
    float logits;                             // q is multiplied by this
    bool is_timed;
} shape;
static const shape s_shapes[] = {
    {"odd 77", 77, 0, 4, 2, 0, 1.f, false},           {"odd 129", 129, 0, 3, 1, 0, 1.f, false},
    {"odd 1000 + 33", 1033, 33, 3, 1, 0, 1.f, false}, {"odd 4097", 4097, 0, 4, 2, 0, 1.f, false},
    {"peaked 1500", 1500, 0, 4, 2, 0, 4.f, false},    {"very peaked 1500", 1500, 0, 4, 2, 0, 16.f, false},
    {"long 24904", 24904, 0, 2, 1, 0, 1.f, false},    {"NewBie 1024", 4352, 0, 24, 8, 96, 1.f, true},
    {"NewBie 512", 1280, 0, 24, 8, 96, 1.f, true},    {"Z-Image 1024", 4224, 0, 30, 30, 128, 1.f, true},
    {"Z-Image 512", 1152, 0, 30, 30, 128, 1.f, true}, {"Qwen 512", 1280, 0, 24, 24, 128, 1.f, true},
    {"Qwen 2512", 24904, 0, 24, 24, 128, 1.f, true},  {"heads of 64", 4224, 0, 30, 30, 64, 1.f, true},
    {"heads of 80", 5476, 0, 16, 16, 80, 1.f, true},
};
enum { SHAPE_COUNT = sizeof s_shapes / sizeof *s_shapes };

// ---- Small kernels --------------------------------------------------------------------------------------------------
static __global__ void fill_random(u16* x, int64_t count, u32 seed, int pitch, int first, int columns, float spread)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const int column = (int)(i % pitch);
        if (column < first || column >= first + columns) continue;
        u64 state = (u64)i * 0x9E3779B97F4A7C15ull + seed;
        float sum = 0.f; // of four uniform numbers: nearly normal
        for (int k = 0; k < 4; k++) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            u64 mixed = (state >> 29 ^ state) * 0xBF58476D1CE4E5B9ull;
            sum += (float)(u32)(mixed >> 40) * (1.f / 16777216.f) - 0.5f;
        }
        const float value = sum * 1.7320508f * spread;
        x[i] = (u16)(pack_bf16(value, value) & 0xFFFF);
    }
}
// q and k as qk_norm_rope writes them: e4m3 in the first bytes of each head.
static __global__ void round_heads(const u16* from, uint8_t* to, int rows, int pitch, int heads, int dim)
{
    const int64_t count = (int64_t)rows * heads * dim / 4;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        const int64_t row = i * 4 / (heads * dim);
        const int column = (int)(i * 4 % (heads * dim)), head = column / dim, channel = column % dim;
        const u16* x = from + row * pitch + column;
        *(u32*)(to + (row * pitch + head * dim) * 2 + channel) =
            pack_e4m3(__uint_as_float((u32)x[0] << 16), __uint_as_float((u32)x[1] << 16),
                      __uint_as_float((u32)x[2] << 16), __uint_as_float((u32)x[3] << 16));
    }
}
// q and k as values that e4m3 holds, so that what is left is a kernel's own error.
static __global__ void make_exact(u16* x, int rows, int pitch, int columns)
{
    const int64_t count = (int64_t)rows * columns;
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x) {
        u16* at = x + i / columns * pitch + i % columns;
        const u32 code = pack_e4m3(__uint_as_float((u32)*at << 16), 0.f, 0.f, 0.f) & 0xFF;
        u32 halves; // two float16
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"((unsigned short)code));
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((unsigned short)(halves & 0xFFFF)));
        *at = (u16)(pack_bf16(value, value) & 0xFFFF);
    }
}
// Attention of some rows in float. A block computes one row of one head.
static __global__ void reference_rows(const u16* qkv, float* out, const int* rows, int tokens, int pitch, int heads,
                                      int group, int dim, float scale)
{
    extern __shared__ float weights[]; // of the keys
    __shared__ float query[128], partial[256];
    const int row = rows[blockIdx.x], head = blockIdx.y, kv = head / group, kv_heads = heads / group;
    for (int c = threadIdx.x; c < dim; c += blockDim.x)
        query[c] = __uint_as_float((u32)qkv[(int64_t)row * pitch + head * dim + c] << 16);
    __syncthreads();
    float largest = -INFINITY;
    for (int key = threadIdx.x; key < tokens; key += blockDim.x) {
        const u16* k = qkv + (int64_t)key * pitch + (heads + kv) * dim;
        float sum = 0.f;
        for (int c = 0; c < dim; c++) sum += query[c] * __uint_as_float((u32)k[c] << 16);
        weights[key] = sum * scale;
        largest = fmaxf(largest, sum * scale);
    }
    partial[threadIdx.x] = largest;
    __syncthreads();
    for (int i = 0; i < (int)blockDim.x; i++) largest = fmaxf(largest, partial[i]);
    __syncthreads();
    float sum = 0.f;
    for (int key = threadIdx.x; key < tokens; key += blockDim.x) sum += weights[key] = expf(weights[key] - largest);
    partial[threadIdx.x] = sum;
    __syncthreads();
    sum = 0.f;
    for (int i = 0; i < (int)blockDim.x; i++) sum += partial[i];
    for (int c = threadIdx.x; c < dim; c += blockDim.x) {
        float value = 0.f;
        for (int key = 0; key < tokens; key++)
            value += weights[key]
                   * __uint_as_float((u32)qkv[(int64_t)key * pitch + (heads + kv_heads + kv) * dim + c] << 16);
        out[((int64_t)blockIdx.x * heads + head) * dim + c] = value / sum;
    }
}
// counts[0]: numbers that are no finite ones
static __global__ void count_bad(const u16* x, int64_t count, int* bad)
{
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < count; i += (int64_t)gridDim.x * blockDim.x)
        if ((x[i] & 0x7F80) == 0x7F80) atomicAdd(bad, 1);
}

// ---- Launches, as launch_attention.c makes them ---------------------------------------------------------------------
typedef CUresult (*encode_function)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                                    const cuuint64_t*, const cuuint32_t*, const cuuint32_t*, CUtensorMapInterleave,
                                    CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
static encode_function s_encode;
static int s_units;
static cudaStream_t s_stream;
static unsigned char *s_qkv, *s_qkv8, *s_out, *s_tiles, *s_scales;

static void make_map(sumi_attention_map* out, void* address, bool is_bytes, int slab, int slab_bytes, int rows,
                     int slabs, int pitch_bytes, int box_rows, int box_slabs)
{
    CUtensorMap map;
    const int box_columns = is_bytes ? 128 : slab;
    const cuuint64_t dims[3] = {(cuuint64_t)slab, (cuuint64_t)rows, (cuuint64_t)slabs};
    const cuuint64_t strides[2] = {(cuuint64_t)pitch_bytes, (cuuint64_t)slab_bytes};
    const cuuint32_t box[3] = {(cuuint32_t)box_columns, (cuuint32_t)box_rows, (cuuint32_t)box_slabs},
                     ones[3] = {1, 1, 1};
    const CUresult result = s_encode(&map, is_bytes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
                                     3, address, dims, strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                     is_bytes || slab == 64 ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : slab == 32           ? CU_TENSOR_MAP_SWIZZLE_64B
                                                            : CU_TENSOR_MAP_SWIZZLE_32B,
                                     CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (result != CUDA_SUCCESS) printf("cuTensorMapEncodeTiled: %d\n", (int)result), exit(1);
    memcpy(out, &map, sizeof *out);
}

typedef struct launch {
    sumi_attention_sm90_maps maps;
    sumi_attention_sm90_shape shape;
    sumi_attention_fp8_values values;
    sumi_attention_pack_args pack;
    int blocks, threads, shared, pack_tiles;
} launch;

static int up(int a, int b) { return (a + b - 1) / b; }

static void prepare(launch* l, const form* f, const shape* s, int dim)
{
    const int pitch = (s->heads + 2 * s->kv_heads) * dim,
              slab = dim % 64 == 0 ? 64
                   : dim % 32 == 0 ? 32
                                   : 16,
              first = s->tokens - s->second, counts[2] = {first, s->second}, begins[2] = {0, first};
    memset(l, 0, sizeof *l);
    for (int span = 0; span < (s->second > 0 ? 2 : 1); span++) {
        const int64_t offset = (int64_t)begins[span] * pitch * 2;
        if (f->pack != NULL) {
            make_map(&l->maps.q[0][span], s_qkv8 + offset, true, dim, 2 * dim, counts[span], s->heads, 2 * pitch, 64,
                     1);
            make_map(&l->maps.kv[0][span], s_qkv8 + offset, true, dim, 2 * dim, counts[span], pitch / dim, 2 * pitch,
                     128, 1);
        } else {
            make_map(&l->maps.q[0][span], s_qkv + offset, false, slab, 2 * slab, counts[span], s->heads * dim / slab,
                     2 * pitch, 64, dim / slab);
            make_map(&l->maps.kv[0][span], s_qkv + offset, false, slab, 2 * slab, counts[span], pitch / slab, 2 * pitch,
                     128, dim / slab);
        }
        make_map(&l->maps.out[0][span], s_out + (int64_t)begins[span] * s->heads * dim * 2, false, slab, 2 * slab,
                 counts[span], s->heads * dim / slab, 2 * s->heads * dim, 64, dim / slab);
    }
    const int groups = up(first, 64) + up(s->second, 64), consumers = f->rows / 64, tiles = up(groups, consumers),
              total = tiles * s->heads, remaining = total % s_units, last = s->second > 0 ? s->second : first;
    const bool has_boundary = s->second > 0 && first % 128 != 0;
    sumi_attention_sm90_shape* shape = &l->shape;
    shape->heads = s->heads;
    shape->group = s->heads / s->kv_heads;
    shape->k_slab = f->pack != NULL ? s->heads : s->heads * dim / slab;
    shape->v_slab = (s->heads + s->kv_heads) * dim / slab;
    shape->scale_log2 = (float)(1.4426950408889634 / sqrt((double)dim));
    shape->blocks_per_split_tile = remaining > 0 ? std::min(consumers, s_units / remaining) : 1;
    shape->split_begin = shape->blocks_per_split_tile > 1 ? total - remaining : total;
    shape->tile_end = total + remaining * (shape->blocks_per_split_tile - 1);
    shape->sequences[0] = {total,
                           tiles,
                           up(first, 64),
                           groups,
                           up(first, 128),
                           up(first, 128) + up(s->second, 128),
                           (last - 1) % 128 + 1,
                           has_boundary ? up(first, 128) - 1 : -1,
                           has_boundary ? first % 128 : -1};
    l->blocks = std::min(shape->tile_end, s_units);
    l->threads = 128 * (consumers + 1);
    l->pack_tiles = up(first, 128) + up(s->second, 128);
    l->shared = f->pack == NULL
                  ? f->bf16_shared
                  : consumers * 64 * 128 + f->stages * 128 * (128 + f->v_channels) + consumers * 64 * dim * 2 + 1024;
    l->values = {(uint64_t)s_tiles, (uint64_t)s_scales, l->pack_tiles, {0}, 0};
    l->pack = {(uint64_t)s_qkv8, l->values,         pitch, (s->heads + s->kv_heads) * dim, 0, 0,
               {0, first},       {first, s->second}};
    CHECK_CUDA(cudaFuncSetAttribute(f->kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, l->shared));
}

static void run_pack(launch* l, const form* f, const shape* s, int dim)
{
    void* params[] = {&l->pack};
    CHECK_CUDA(cudaLaunchKernel(f->pack, dim3(l->pack_tiles, s->kv_heads), dim3(2 * dim), params, 0, s_stream));
}
static void run_attention(launch* l, const form* f)
{
    void* params[] = {&l->maps, &l->shape, &l->values};
    CHECK_CUDA(cudaLaunchKernel(f->kernel, dim3(l->blocks), dim3(l->threads), params, l->shared, s_stream));
}

// ---- Clock and power ------------------------------------------------------------------------------------------------
static int (*s_clock_of)(void*, int, unsigned*);
static int (*s_power_of)(void*, unsigned*);
static void* s_device;
static void open_nvml(void)
{
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
    if (library == NULL) return;
    int (*init)(void) = (int (*)(void))dlsym(library, "nvmlInit_v2");
    int (*get)(unsigned, void**) = (int (*)(unsigned, void**))dlsym(library, "nvmlDeviceGetHandleByIndex_v2");
    if (init == NULL || get == NULL || init() != 0 || get(0, &s_device) != 0) return;
    s_clock_of = (int (*)(void*, int, unsigned*))dlsym(library, "nvmlDeviceGetClockInfo");
    s_power_of = (int (*)(void*, unsigned*))dlsym(library, "nvmlDeviceGetPowerUsage");
}

// ---- Measuring ------------------------------------------------------------------------------------------------------
enum { PACK = 1, ATTENTION = 2, ROUNDS = 7 };
static cudaGraphExec_t record(launch* l, const form* f, const shape* s, int what, int times)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    CHECK_CUDA(cudaStreamBeginCapture(s_stream, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < times; i++) {
        if (what & PACK) run_pack(l, f, s, s->dim);
        if (what & ATTENTION) run_attention(l, f);
    }
    CHECK_CUDA(cudaStreamEndCapture(s_stream, &graph));
    CHECK_CUDA(cudaGraphInstantiate(&exec, graph, 0));
    CHECK_CUDA(cudaGraphDestroy(graph));
    return exec;
}
static double run_graph(cudaGraphExec_t graph, cudaEvent_t begin, cudaEvent_t end, double* mhz, double* watts)
{
    float ms;
    CHECK_CUDA(cudaEventRecord(begin, s_stream));
    CHECK_CUDA(cudaGraphLaunch(graph, s_stream));
    CHECK_CUDA(cudaEventRecord(end, s_stream));
    unsigned clock = 0, power = 0;
    if (s_clock_of != NULL && s_power_of != NULL) { // near the end, while it runs
        while (cudaEventQuery(end) == cudaErrorNotReady) {
            unsigned c, p;
            if (s_clock_of(s_device, 1, &c) != 0 || s_power_of(s_device, &p) != 0) break;
            clock = c, power = p;
        }
    }
    CHECK_CUDA(cudaEventSynchronize(end));
    CHECK_CUDA(cudaEventElapsedTime(&ms, begin, end));
    *mhz = clock, *watts = power * 1e-3;
    return 1e3 * ms;
}
static double median(std::vector<double> v)
{
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
}

static bool s_all_right = true;
static const char* volatile s_running = "";
static void stop_waiting(int)
{
    printf("FAILED: %s has run for 30 s: it hangs\n", s_running);
    fflush(stdout);
    _exit(1);
}
static void watch(const char* name)
{
    s_running = name;
    alarm(30);
}

// Runs it once with the output poisoned, and again. Returns the relative error of the sampled rows.
static double check(launch* l, const form* f, const shape* s, int dim)
{
    const int64_t out_count = (int64_t)s->tokens * s->heads * dim;
    std::vector<int> rows;
    const int samples = s->tokens < 64 ? s->tokens : 64;
    for (int i = 0; i < samples; i++) rows.push_back((int)((int64_t)i * (s->tokens - 1) / std::max(samples - 1, 1)));
    int *device_rows, *bad, bad_count = 0;
    float* want;
    CHECK_CUDA(cudaMalloc(&device_rows, samples * sizeof(int)));
    CHECK_CUDA(cudaMalloc(&bad, sizeof(int)));
    CHECK_CUDA(cudaMalloc(&want, (size_t)samples * s->heads * dim * sizeof(float)));
    CHECK_CUDA(cudaMemcpy(device_rows, rows.data(), samples * sizeof(int), cudaMemcpyHostToDevice));
    CHECK_CUDA(cudaFuncSetAttribute(reference_rows, cudaFuncAttributeMaxDynamicSharedMemorySize, 200000));
    reference_rows<<<dim3(samples, s->heads), 256, s->tokens * sizeof(float), s_stream>>>(
        (const u16*)s_qkv, want, device_rows, s->tokens, (s->heads + 2 * s->kv_heads) * dim, s->heads,
        s->heads / s->kv_heads, dim, (float)(1.0 / sqrt((double)dim)));
    CHECK_CUDA(cudaGetLastError());
    std::vector<u16> outs[2];
    for (int run = 0; run < 2; run++) {
        outs[run].resize(out_count);
        CHECK_CUDA(cudaMemsetAsync(s_out, 0xFF, out_count * 2, s_stream)); // NaN
        if (f->pack != NULL) {
            CHECK_CUDA(
                cudaMemsetAsync(s_tiles, 0xFF, (size_t)l->pack_tiles * s->kv_heads * 128 * f->v_channels, s_stream));
            run_pack(l, f, s, dim);
        }
        run_attention(l, f);
        CHECK_CUDA(cudaMemsetAsync(bad, 0, sizeof(int), s_stream));
        count_bad<<<256, 256, 0, s_stream>>>((const u16*)s_out, out_count, bad);
        CHECK_CUDA(cudaMemcpyAsync(&bad_count, bad, sizeof(int), cudaMemcpyDeviceToHost, s_stream));
        CHECK_CUDA(cudaStreamSynchronize(s_stream));
        CHECK_CUDA(cudaMemcpy(outs[run].data(), s_out, out_count * 2, cudaMemcpyDeviceToHost));
        if (bad_count > 0) {
            printf("    %s, %s: %d numbers are not finite\n", f->name, s->name, bad_count);
            s_all_right = false;
        }
    }
    if (memcmp(outs[0].data(), outs[1].data(), out_count * 2) != 0) {
        printf("    %s, %s: the second run differs\n", f->name, s->name);
        s_all_right = false;
    }
    std::vector<float> wanted((size_t)samples * s->heads * dim);
    CHECK_CUDA(cudaMemcpy(wanted.data(), want, wanted.size() * sizeof(float), cudaMemcpyDeviceToHost));
    double difference = 0.0, norm = 0.0;
    for (int i = 0; i < samples; i++)
        for (int c = 0; c < s->heads * dim; c++) {
            const u32 bits = (u32)outs[0][(int64_t)rows[i] * s->heads * dim + c] << 16;
            float got;
            memcpy(&got, &bits, 4);
            const double w = wanted[(size_t)i * s->heads * dim + c];
            difference += (got - w) * (got - w);
            norm += w * w;
        }
    cudaFree(device_rows), cudaFree(bad), cudaFree(want);
    return sqrt(difference / norm);
}

static void fill(const shape* s, int dim)
{
    const int pitch = (s->heads + 2 * s->kv_heads) * dim;
    const int64_t count = (int64_t)s->tokens * pitch;
    fill_random<<<1024, 256, 0, s_stream>>>((u16*)s_qkv, count, 1, pitch, 0, s->heads * dim, s->logits);
    fill_random<<<1024, 256, 0, s_stream>>>((u16*)s_qkv, count, 2, pitch, s->heads * dim, 2 * s->kv_heads * dim, 1.f);
    if (!s->is_timed)
        make_exact<<<1024, 256, 0, s_stream>>>((u16*)s_qkv, s->tokens, pitch, (s->heads + s->kv_heads) * dim);
    CHECK_CUDA(cudaMemcpyAsync(s_qkv8, s_qkv, count * 2, cudaMemcpyDeviceToDevice, s_stream));
    round_heads<<<1024, 256, 0, s_stream>>>((const u16*)s_qkv, s_qkv8, s->tokens, pitch, s->heads + s->kv_heads, dim);
    CHECK_CUDA(cudaStreamSynchronize(s_stream));
    CHECK_CUDA(cudaGetLastError());
}

// ---- Units ----------------------------------------------------------------------------------------------------------
enum { UNIT_STEPS = 64, UNIT_WARPS = 16 };
template <int KIND> static __global__ void __launch_bounds__(32 * UNIT_WARPS) time_unit(long long* cycles, float seed)
{
    float x[8];
    u32 w[8];
    for (int i = 0; i < 8; i++) x[i] = seed + threadIdx.x + i, w[i] = threadIdx.x * 7 + i;
    __syncthreads();
    const long long begin = clock64();
#pragma unroll 1
    for (int n = 0; n < 100; n++) {
#pragma unroll
        for (int step = 0; step < UNIT_STEPS; step++) {
            const int i = step % 8;
            if (KIND == 0 || KIND == 5 || (KIND == 6 && step % 3 < 2))
                asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i]));
            if (KIND == 1 || KIND == 5 || (KIND == 6 && step % 3 == 2)) {
                unsigned short h;
                asm volatile("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(h) : "f"(x[i]), "f"(x[(i + 1) % 8]));
                asm volatile("" ::"h"(h));
            }
            if (KIND == 2) asm volatile("max.f32 %0, %0, %1;" : "+f"(x[i]) : "f"(x[(i + 3) % 8]));
            if (KIND == 3) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(x[i]) : "f"(x[(i + 3) % 8]), "f"(seed));
            if (KIND == 4) asm volatile("add.u32 %0, %0, %1;" : "+r"(w[i]) : "r"(w[(i + 3) % 8]));
            if (KIND == 7) {
                asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[i]));
                asm volatile("max.f32 %0, %0, %1;" : "+f"(x[(i + 4) % 8]) : "f"(x[(i + 3) % 8]));
            }
        }
    }
    const long long end = clock64();
    float sum = 0.f;
    for (int i = 0; i < 8; i++) sum += x[i] + (float)w[i];
    if (threadIdx.x == 0 || sum == 1.2345f) cycles[blockIdx.x] = end - begin;
}
// One, two or three warpgroups multiply; A in shared memory or in registers.
template <int WARPGROUPS, bool REGISTERS, int N>
static __global__ void __launch_bounds__(128 * WARPGROUPS, 1) time_wgmma(long long* cycles)
{
    extern __shared__ __align__(1024) unsigned char memory[];
    const u32 base = (smem_addr(memory) + 1023) & ~1023u, group = threadIdx.x / 128;
    for (u32 i = threadIdx.x; i < 64 * 1024 / 4; i += 128 * WARPGROUPS)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(base + 4 * i), "r"(i * 0x9E3779B9u & 0x3F3F3F3Fu) : "memory");
    float d[N / 2] = {};
    u32 a[4] = {0x38383838u ^ threadIdx.x, 0x38393839u, 0x37383738u, 0x39383938u};
    FENCE_PROXY_ASYNC();
    __syncthreads();
    const u32 a_low = wgmma_descriptor_low(base + 32768 + group * 8192, 16), b_low = wgmma_descriptor_low(base, 16);
    const long long begin = clock64();
#pragma unroll 1
    for (int n = 0; n < 100; n++) {
        warpgroup_fence_operand(d);
        WGMMA_FENCE();
#pragma unroll
        for (int k = 0; k < 4; k++) {
            const u64 b = wgmma_swizzled_descriptor<1, 1024>(b_low + 2 * k);
            if constexpr (REGISTERS) wgmma_registers<N, SUMI_OPERANDS_E4M3>::mma(d, a, b, 1);
            else wgmma_shared<N, SUMI_OPERANDS_E4M3>::mma(d, wgmma_swizzled_descriptor<1, 1024>(a_low + 2 * k), b, 1);
        }
        WGMMA_COMMIT();
        WGMMA_WAIT(0);
        warpgroup_fence_operand(d);
    }
    __syncthreads();
    const long long end = clock64();
    float sum = 0.f;
    for (int i = 0; i < N / 2; i++) sum += d[i];
    if (threadIdx.x == 0 || sum == 1.2345f) cycles[blockIdx.x] = end - begin;
}

static void print_units(void)
{
    static const struct {
        const char* name;
        void (*kernel)(long long*, float);
    } s_units_list[] = {{"ex2", time_unit<0>},
                        {"cvt e4m3x2", time_unit<1>},
                        {"max", time_unit<2>},
                        {"fma", time_unit<3>},
                        {"add.u32", time_unit<4>},
                        {"ex2 and cvt, a pair", time_unit<5>},
                        {"two ex2 and a cvt, by instruction", time_unit<6>},
                        {"ex2 and max, a pair", time_unit<7>}};
    static const struct {
        const char* name;
        void (*kernel)(long long*);
        int warpgroups, n;
    } s_products[] = {{"wgmma 64x128x32, A in shared memory, 1 warpgroup", time_wgmma<1, false, 128>, 1, 128},
                      {"wgmma 64x128x32, A in shared memory, 3 warpgroups", time_wgmma<3, false, 128>, 3, 128},
                      {"wgmma 64x128x32, A in registers, 1 warpgroup", time_wgmma<1, true, 128>, 1, 128},
                      {"wgmma 64x128x32, A in registers, 3 warpgroups", time_wgmma<3, true, 128>, 3, 128},
                      {"wgmma 64x96x32, A in registers, 3 warpgroups", time_wgmma<3, true, 96>, 3, 96}};
    long long *cycles, host = 0;
    CHECK_CUDA(cudaMalloc(&cycles, s_units * sizeof *cycles));
    for (size_t i = 0; i < sizeof s_units_list / sizeof *s_units_list; i++) {
        for (int run = 0; run < 2; run++)
            s_units_list[i].kernel<<<s_units, 32 * UNIT_WARPS, 0, s_stream>>>(cycles, 0.5f);
        CHECK_CUDA(cudaStreamSynchronize(s_stream));
        CHECK_CUDA(cudaMemcpy(&host, cycles, sizeof host, cudaMemcpyDeviceToHost));
        printf("unit  %-52s %6.2f cycles a warp\n", s_units_list[i].name,
               (double)host / (100.0 * UNIT_STEPS * UNIT_WARPS / 4));
    }
    for (size_t i = 0; i < sizeof s_products / sizeof *s_products; i++) {
        CHECK_CUDA(cudaFuncSetAttribute((const void*)s_products[i].kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        100000));
        for (int run = 0; run < 2; run++)
            s_products[i].kernel<<<s_units, 128 * s_products[i].warpgroups, 100000, s_stream>>>(cycles);
        CHECK_CUDA(cudaStreamSynchronize(s_stream));
        CHECK_CUDA(cudaMemcpy(&host, cycles, sizeof host, cudaMemcpyDeviceToHost));
        const double each = (double)host / (400.0 * s_products[i].warpgroups);
        printf("unit  %-52s %6.2f cycles each, %.2f of the rate\n", s_products[i].name, each,
               s_products[i].n / 2.0 / each);
    }
    cudaFree(cycles);
}

// ---- The program ----------------------------------------------------------------------------------------------------
static std::vector<std::string> s_parts;
static bool is_wanted(const char* name)
{
    bool has_part = s_parts.empty();
    for (const std::string& part : s_parts) has_part = has_part || strstr(name, part.c_str()) != NULL;
    return has_part;
}

int main(int argc, char** argv)
{
    bool has_units = false;
    double seconds = 0.02; // of a form in a round
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--units") == 0) has_units = true;
        else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) seconds = atof(argv[++i]);
        else s_parts.push_back(argv[i]);
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    signal(SIGALRM, stop_waiting);
    cudaDeviceProp properties;
    CHECK_CUDA(cudaGetDeviceProperties(&properties, 0));
    s_units = properties.multiProcessorCount;
    if (properties.major != 9) return printf("%s is not a Hopper\n", properties.name), 1;
    printf("%s, %d multiprocessors\n", properties.name, s_units);
    cudaDriverEntryPointQueryResult found;
    CHECK_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void**)&s_encode, 12000, cudaEnableDefault,
                                                &found));
    if (s_encode == NULL) return printf("the driver has no cuTensorMapEncodeTiled\n"), 1;
    open_nvml();
    CHECK_CUDA(cudaStreamCreate(&s_stream));
    if (has_units) print_units();
    const size_t room = (size_t)24904 * 72 * 128 * 2 + 4096;
    CHECK_CUDA(cudaMalloc(&s_qkv, room));
    CHECK_CUDA(cudaMalloc(&s_qkv8, room));
    CHECK_CUDA(cudaMalloc(&s_out, room));
    CHECK_CUDA(cudaMalloc(&s_tiles, room));
    CHECK_CUDA(cudaMalloc(&s_scales, 1 << 22));
    cudaEvent_t begin, end;
    CHECK_CUDA(cudaEventCreate(&begin));
    CHECK_CUDA(cudaEventCreate(&end));
    static double worst[FORM_COUNT][8];
    int odd = 0;
    for (int n = 0; n < SHAPE_COUNT; n++) {
        const shape* s = &s_shapes[n];
        if (s->is_timed) continue;
        static const int dims[] = {64, 80, 96, 128};
        for (int dim : dims) {
            fill(s, dim);
            for (int i = 0; i < FORM_COUNT; i++) {
                const form* f = &s_forms[i];
                launch l;
                if (f->dim != dim) continue;
                if (!is_wanted(f->name) && !is_wanted(s->name)) continue;
                watch(f->name);
                prepare(&l, f, s, dim);
                worst[i][odd] = check(&l, f, s, dim);
                if (!(worst[i][odd] < (f->pack != NULL ? 0.06 : 0.01)))
                    printf("    %s, %s: off by %.3g\n", f->name, s->name, worst[i][odd]), s_all_right = false;
            }
        }
        odd++;
    }
    printf("own errors:           ");
    for (int n = 0, k = 0; n < SHAPE_COUNT; n++)
        if (!s_shapes[n].is_timed) printf(" | %s", s_shapes[n].name), k++;
    printf("\n");
    for (int i = 0; i < FORM_COUNT; i++) {
        printf("  %-16s", s_forms[i].name);
        for (int k = 0; k < odd; k++) printf(" %9.2e", worst[i][k]);
        printf("\n");
    }
    for (int n = 0; n < SHAPE_COUNT; n++) {
        const shape* s = &s_shapes[n];
        if (!s->is_timed) continue;
        const double flops = 4.0 * s->tokens * s->tokens * s->heads * s->dim;
        fill(s, s->dim);
        printf("%s: %d tokens, %d heads of %d (%d)\n", s->name, s->tokens, s->heads, s->dim, s->kv_heads);
        typedef struct measured {
            const form* f;
            launch l;
            cudaGraphExec_t graphs[3]; // attention, both, packing
            int times[3];
            std::vector<double> us[3], mhz, watts;
            double error;
        } measured;
        std::vector<measured> list;
        for (int i = 0; i < FORM_COUNT; i++) {
            if (s_forms[i].dim != s->dim
                || !(is_wanted(s_forms[i].name) || is_wanted(s->name) || s_forms[i].pack == NULL))
                continue;
            list.emplace_back();
            measured* m = &list.back();
            m->f = &s_forms[i];
            watch(m->f->name);
            prepare(&m->l, m->f, s, s->dim);
            m->error = check(&m->l, m->f, s, s->dim);
            for (int k = 0; k < (m->f->pack != NULL ? 3 : 1); k++) {
                const int what = k == 0 ? ATTENTION : k == 1 ? PACK | ATTENTION : PACK;
                const double us = k == 2 ? 10.0 : flops / 700e6;
                m->times[k] = std::max(2, std::min(2000, (int)((k == 0 ? seconds : seconds / 2) * 1e6 / us)));
                m->graphs[k] = record(&m->l, m->f, s, what, m->times[k]);
            }
        }
        double bf16_us = 0.0;
        for (int round = -1; round < ROUNDS; round++)
            for (measured& m : list) {
                watch(m.f->name);
                for (int k = 0; k < (m.f->pack != NULL ? 3 : 1); k++) {
                    double mhz, watts;
                    const double us = run_graph(m.graphs[k], begin, end, &mhz, &watts) / m.times[k];
                    if (round < 0) continue;
                    m.us[k].push_back(us);
                    if (k == 0) m.mhz.push_back(mhz), m.watts.push_back(watts);
                }
            }
        for (measured& m : list) {
            const double us = median(m.us[0]);
            if (m.f->pack == NULL) bf16_us = bf16_us == 0.0 ? us : std::min(bf16_us, us);
            const double both = m.f->pack != NULL ? median(m.us[1]) : us;
            printf("  %-16s %8.1f us  with v %8.1f, v alone %5.1f | %6.0f TF/s | %.3f of bf16 | error %.2e | %4.0f MHz "
                   "%3.0f W | %d blocks, %d tiles\n",
                   m.f->name, us, both, m.f->pack != NULL ? median(m.us[2]) : 0.0, flops / us / 1e6, both / bf16_us,
                   m.error, median(m.mhz), median(m.watts), m.l.blocks, m.l.shape.tile_end);
            for (int k = 0; k < (m.f->pack != NULL ? 3 : 1); k++) CHECK_CUDA(cudaGraphExecDestroy(m.graphs[k]));
        }
        fflush(stdout);
    }
    printf(s_all_right ? "all results are finite, the same again, and near the reference\n" : "FAILED: see above\n");
    return s_all_right ? 0 : 1;
}
