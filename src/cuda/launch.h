// What a launcher of an op sees, and what it may do: find addresses, find kernels, put launches into the stream. It is
// called while a slice's graph is captured (or, without graphs, each time), so it must not allocate, synchronise, or
// read anything that changes between runs: per-step rows are found by the kernels, from the counter in device memory.
//
//   op kind --op_table.c--> launcher(run) --sumi_cuda_launch--> stream
//
// Values on the device: ACTIVATION is bfloat16, FLOAT float32, INT int32, BYTE uint8; row-major, tightly packed,
// 64-byte aligned. Results must not depend on how an op is cut into slices: which kernel and tile an op uses follows
// from the whole op's shape; a slice runs a range of the same tiles.
#ifndef SUMI_CUDA_LAUNCH_H
#define SUMI_CUDA_LAUNCH_H
#include "cuda/arrange.h"
#include "cuda/device_memory.h"
#include "cuda/form.h"
#include "cuda/modules.h"
#include "kernels/step.h"
#include "plan/plan.h"

struct sumi_cuda; // the runner, state.h
typedef struct sumi_cuda_run {
    struct sumi_cuda* cuda;
    const sumi_cuda_device* device;
    sumi_cuda_modules* modules;
    const sumi_plan* plan;
    const sumi_op* op;
    int32_t op_index;
    // scratch: as large as the op's scratch function asked; what the op before it in the plan left there, else anything
    CUdeviceptr arena, scratch;
    CUdeviceptr counter; // int32 in device memory: the running iteration's row of the step tables
    // 65536 uint32, zero between launches (split-k counters: kernels leave them zero)
    CUdeviceptr arrivals;
    CUstream stream;
    int32_t range_begin, range_end; // of op->part_count; all of them: 0, part_count
    bool is_whole;                  // the slice holds all parts
    bool allows_hopper;             // false: use the portable kernels even on 9.0 (tests)
    sumi_error* error;
} sumi_cuda_run;
typedef sumi_result sumi_cuda_op(sumi_cuda_run* run);
// bytes; NULL in the table: none
typedef uint64_t sumi_cuda_op_scratch(const sumi_cuda_device* device, const sumi_plan* plan, const sumi_op* op);

CUdeviceptr sumi_cuda_value(const sumi_cuda_run* run, sumi_value value); // 0 for none
int32_t sumi_cuda_cols(const sumi_cuda_run* run, sumi_value value);
int32_t sumi_cuda_rows(const sumi_cuda_run* run, sumi_value value);
// elements from row to row: cols but for a view of some columns
int32_t sumi_cuda_pitch(const sumi_cuda_run* run, sumi_value value);
sumi_element sumi_cuda_element(const sumi_cuda_run* run, sumi_value value);
// What a value is kept in: BF16, or 8 bits by its mark SUMI_CUDA_VALUE_8BIT; then where its scales are.
sumi_cuda_operands sumi_cuda_operands_of(const sumi_cuda_run* run, sumi_value value);
CUdeviceptr sumi_cuda_8bit_scales(const sumi_cuda_run* run, sumi_value value);
bool sumi_cuda_is_gated(const sumi_cuda_run* run, sumi_value value);    // SUMI_CUDA_VALUE_GATED
bool sumi_cuda_is_balanced(const sumi_cuda_run* run, sumi_value value); // SUMI_CUDA_VALUE_BALANCED
// The form of a weight that this op uses; it is resident. For LINEAR with a gated output: GATED. `weight` is
// op->weight, op->bias or the struct's own (qk.k_weight).
sumi_cuda_form sumi_cuda_weight_form(const sumi_cuda_run* run, const sumi_weight* weight);
sumi_cuda_weight sumi_cuda_find_weight(const sumi_cuda_run* run, const sumi_weight* weight); // weight NULL: all zero

sumi_step sumi_cuda_step_of(const sumi_cuda_run* run, sumi_step_row row); // stride 0 when not per step

// Rows of the op (in the sense of sumi_op.rows) that this slice covers, for kernels that have no cut of their own.
typedef struct sumi_cuda_range {
    int32_t begin, end;
} sumi_cuda_range;
sumi_cuda_range sumi_cuda_rows_of(const sumi_cuda_run* run);
// Units of an op's own cut (tiles, rows / 128 ...) that this slice covers: [unit_begin, unit_end) of `units`, the same
// share as its parts; all slices together cover each unit once.
void sumi_cuda_share(const sumi_cuda_run* run, int32_t units, int32_t* unit_begin, int32_t* unit_end);

typedef struct sumi_cuda_grid {
    uint32_t x, y, z, block, shared_bytes;
} sumi_cuda_grid;
// One launch of the named kernel. params: as cuLaunchKernel takes them.
sumi_result sumi_cuda_launch(const sumi_cuda_run* run, const char* kernel, sumi_cuda_grid grid, void** params);
// The same in clusters of so many blocks along x, on Hopper; 0: as the kernel is compiled.
sumi_result sumi_cuda_launch_clusters(const sumi_cuda_run* run, const char* kernel, sumi_cuda_grid grid,
                                      uint32_t cluster, void** params);
// The same of a kernel whose one parameter is a struct.
static inline sumi_result sumi_cuda_launch_args(const sumi_cuda_run* run, const char* kernel, sumi_cuda_grid grid,
                                                void* args)
{
    return sumi_cuda_launch(run, kernel, grid, (void*[]){args});
}
// A 2-D .. 5-D tiled tensor map of bf16 (or bytes: e4m3, int8); dims[0] is innermost; strides[i] in bytes is of dimension i +
// 1. Zero fill, no interleave, 256-byte L2 promotion.
sumi_result sumi_cuda_tensor_map(const sumi_cuda_run* run, CUtensorMap* out_map, CUtensorMapDataType type,
                                 uint32_t rank, CUdeviceptr address, const uint64_t* dims, const uint64_t* strides,
                                 const uint32_t* box, CUtensorMapSwizzle swizzle);

// ---- The launchers, by file -----------------------------------------------------------------------------------------
// launch_linear.c
sumi_cuda_op sumi_cuda_linear;
sumi_cuda_op_scratch sumi_cuda_linear_scratch;
// launch_attention.c
sumi_cuda_op sumi_cuda_attention;
sumi_cuda_op_scratch sumi_cuda_attention_scratch;
// launch_rows.c
sumi_cuda_op sumi_cuda_embed_rows, sumi_cuda_fill_rows, sumi_cuda_copy_rows, sumi_cuda_mean_rows,
    sumi_cuda_kronecker_add, sumi_cuda_activate, sumi_cuda_gated, sumi_cuda_norm_modulate, sumi_cuda_norm_gate_add,
    sumi_cuda_qk_norm_rope, sumi_cuda_rope_table, sumi_cuda_time_embed, sumi_cuda_finish_modulation;
// x [rows][2 cols] of bfloat16, columns interleaved as FORM_GATED says -> y [rows][cols] = act(gate) * up.
sumi_result sumi_cuda_gate_rows(const sumi_cuda_run* run, CUdeviceptr x, CUdeviceptr y, int32_t rows, int32_t cols,
                                sumi_activation activation);
// launch_latents.c
sumi_cuda_op sumi_cuda_patchify, sumi_cuda_unpatchify, sumi_cuda_add_noise, sumi_cuda_guide, sumi_cuda_solve,
    sumi_cuda_preview, sumi_cuda_posterior, sumi_cuda_latent_in;
sumi_cuda_op_scratch sumi_cuda_guide_scratch;
// launch_pictures.c
sumi_cuda_op sumi_cuda_pixels_in, sumi_cuda_patches_in, sumi_cuda_conv, sumi_cuda_group_sums, sumi_cuda_group_norm,
    sumi_cuda_tile_blend, sumi_cuda_tile_place, sumi_cuda_composite, sumi_cuda_pixels_out;
sumi_cuda_op_scratch sumi_cuda_conv_scratch, sumi_cuda_group_scratch;
#endif
