// The interface of an op's launcher: it may find addresses, find kernels, and put launches into the stream.
// A launcher is called while the graph of a slice is captured, or at every run without graphs. So it must not
// allocate or synchronise, and must not read anything that changes between runs. Kernels find the rows of the current
// step with the counter in device memory.
//
//   op kind --op_table.c--> launcher(run) --sumi_cuda_launch--> stream
//
// Values on the device: ACTIVATION is bfloat16, FLOAT float32, INT int32, BYTE uint8; row-major, tightly packed,
// 64-byte aligned. Results must not depend on how an op is cut into slices. Therefore the shape of the whole op decides
// which kernel and tile the op uses, and a slice computes a range of the same tiles.
#ifndef SUMI_CUDA_LAUNCH_H
#define SUMI_CUDA_LAUNCH_H
#include "cuda/arrange.h"
#include "cuda/modules.h"
#include "device/device_memory.h"
#include "device/form.h"
#include "kernels/step.h"
#include "kernels/stored.h"
#include "plan/plan.h"

struct sumi_cuda; // the runner (state.h)
typedef struct sumi_cuda_run {
    struct sumi_cuda* cuda;
    const sumi_cuda_device* device;
    sumi_cuda_modules* modules;
    const sumi_plan* plan;
    const sumi_op* op;
    int32_t op_index;
    // scratch: as many bytes as the op's scratch function returned. It contains what the previous op in the plan has
    // left there, otherwise anything.
    CUdeviceptr arena, scratch;
    CUdeviceptr counter; // int32 in device memory: the row of the step tables for the current iteration
    // 65536 uint32, zero between launches: counters of kernels that share k, which reset them to zero
    CUdeviceptr arrivals;
    CUstream stream;
    int32_t range_begin, range_end; // of op->range_count work ranges
    const sumi_slice* slice;        // that the op is in: all its ops are launched whole if there are several
    bool allows_hopper;             // false: use the portable kernels even on 9.0 (tests)
    sumi_error* error;
} sumi_cuda_run;
typedef sumi_result sumi_cuda_op(sumi_cuda_run* run);
// Returns bytes of scratch. NULL in the table: none.
typedef uint64_t sumi_cuda_op_scratch(const sumi_cuda_device* device, const sumi_plan* plan, const sumi_op* op);

CUdeviceptr sumi_cuda_value(const sumi_cuda_run* run, sumi_value value); // 0 for no value
int32_t sumi_cuda_cols(const sumi_cuda_run* run, sumi_value value);
int32_t sumi_cuda_rows(const sumi_cuda_run* run, sumi_value value);
// Elements from row to row: the number of columns, except for a view of some columns.
int32_t sumi_cuda_pitch(const sumi_cuda_run* run, sumi_value value);
sumi_element sumi_cuda_element(const sumi_cuda_run* run, sumi_value value);
// How the value is stored: BF16, or 8 bits if it has the mark SUMI_DEVICE_VALUE_QUANTISED.
sumi_cuda_operands sumi_cuda_operands_of(const sumi_cuda_run* run, sumi_value value);
CUdeviceptr sumi_cuda_quantised_scales(const sumi_cuda_run* run, sumi_value value);
bool sumi_cuda_is_gated(const sumi_cuda_run* run, sumi_value value);     // SUMI_DEVICE_VALUE_GATED
bool sumi_cuda_is_balanced(const sumi_cuda_run* run, sumi_value value);  // SUMI_DEVICE_VALUE_BALANCED
bool sumi_cuda_is_qk_e4m3(const sumi_cuda_run* run, sumi_value value);   // SUMI_CUDA_VALUE_QK_E4M3
bool sumi_cuda_is_kept_e4m3(const sumi_cuda_run* run, sumi_value value); // SUMI_CUDA_VALUE_KEPT_E4M3
// The form in which this op reads a weight; it is resident. GATED for a LINEAR with a gated output. `weight` is
// op->weight, op->bias or a member of the op's own struct (qk.k_weight).
sumi_device_form sumi_cuda_weight_form(const sumi_cuda_run* run, const sumi_weight* weight);
sumi_device_weight sumi_cuda_find_weight(const sumi_cuda_run* run, const sumi_weight* weight); // weight NULL: all zero

sumi_step sumi_cuda_step_of(const sumi_cuda_run* run, sumi_step_row row); // stride 0 if the row is not per step

// The rows (in the unit of sumi_op.rows) that this slice covers, for kernels that are not cut into their own units.
typedef struct sumi_cuda_range {
    int32_t begin, end;
} sumi_cuda_range;
sumi_cuda_range sumi_cuda_rows_of(const sumi_cuda_run* run);
// The units [unit_begin, unit_end) that this slice covers, of an op that is cut into `units` units of its kernel
// (tiles, blocks of 128 rows and so on). The share equals the share of the slice's work ranges. All slices together
// cover each unit once.
void sumi_cuda_share(const sumi_cuda_run* run, int32_t units, int32_t* unit_begin, int32_t* unit_end);

typedef struct sumi_cuda_grid {
    uint32_t x, y, z, block, shared_bytes;
} sumi_cuda_grid;
// Launches the named kernel. params: as for cuLaunchKernel.
sumi_result sumi_cuda_launch(const sumi_cuda_run* run, const char* kernel, sumi_cuda_grid grid, void** params);
// The same, with clusters of this many blocks along x, on Hopper. 0: the cluster size that the kernel is compiled with.
sumi_result sumi_cuda_launch_clusters(const sumi_cuda_run* run, const char* kernel, sumi_cuda_grid grid,
                                      uint32_t cluster, void** params);
// The same, for a kernel whose only parameter is a struct.
static inline sumi_result sumi_cuda_launch_args(const sumi_cuda_run* run, const char* kernel, sumi_cuda_grid grid,
                                                void* args)
{
    return sumi_cuda_launch(run, kernel, grid, (void*[]){args});
}
// A tensor of bf16 or of bytes (e4m3, int8) as kernels read it by TMA. dims[0] is innermost; strides[i] is that of
// dimension i + 1 in bytes.
typedef struct sumi_cuda_tensor {
    CUdeviceptr address;
    CUtensorMapDataType type;
    CUtensorMapSwizzle swizzle;
    uint32_t rank; // 2 to 5
    uint64_t dims[5], strides[4];
    uint32_t box[5];
} sumi_cuda_tensor;
// Makes its tiled tensor map. Out-of-bounds elements are zero; no interleave; 256-byte L2 promotion.
sumi_result sumi_cuda_tensor_map(const sumi_cuda_run* run, const sumi_cuda_tensor* tensor, CUtensorMap* out_map);

// ---- The launchers, by file -----------------------------------------------------------------------------------------
// launch_linear.c
sumi_cuda_op sumi_cuda_linear;
sumi_cuda_op_scratch sumi_cuda_linear_scratch;
// launch_attention.c
sumi_cuda_op sumi_cuda_attention;
sumi_cuda_op_scratch sumi_cuda_attention_scratch;
// Whether Hopper has kernels in e4m3 for heads of that many channels, and for kept keys if the op has them.
bool sumi_cuda_has_e4m3_attention(int32_t dim, bool has_kept);
// launch_rows.c
sumi_cuda_op sumi_cuda_embed_rows, sumi_cuda_fill_rows, sumi_cuda_copy_rows, sumi_cuda_mean_rows, sumi_cuda_add_rows,
    sumi_cuda_residual_change, sumi_cuda_add_residual, sumi_cuda_kronecker_add, sumi_cuda_activate, sumi_cuda_gated,
    sumi_cuda_norm_modulate, sumi_cuda_norm_gate_add, sumi_cuda_qk_norm_rope, sumi_cuda_rope_table,
    sumi_cuda_time_embed, sumi_cuda_finish_modulation;
// launch_latents.c
sumi_cuda_op sumi_cuda_patchify, sumi_cuda_unpatchify, sumi_cuda_add_noise, sumi_cuda_guide, sumi_cuda_solve,
    sumi_cuda_preview, sumi_cuda_posterior, sumi_cuda_latent_in;
sumi_cuda_op_scratch sumi_cuda_guide_scratch;
// launch_pictures.c
sumi_cuda_op sumi_cuda_pixels_in, sumi_cuda_patches_in, sumi_cuda_conv, sumi_cuda_shortcut, sumi_cuda_group_sums,
    sumi_cuda_group_norm, sumi_cuda_tile_blend, sumi_cuda_tile_place, sumi_cuda_composite, sumi_cuda_pixels_out;
sumi_cuda_op_scratch sumi_cuda_conv_scratch, sumi_cuda_group_scratch;

// op_table.c
typedef struct sumi_cuda_op_entry {
    sumi_cuda_op* run;
    sumi_cuda_op_scratch* scratch;
} sumi_cuda_op_entry;
extern const sumi_cuda_op_entry sumi_cuda_ops[SUMI_OP_KIND_COUNT];

// ---- Products that read a weight as it is stored (stored.h), and unpacking for other products (launch_stored.c)

// How a product of few rows is computed. tile -1: not by this kernel; the weight is unpacked first.
typedef struct sumi_cuda_stored_choice {
    int32_t tile, unit_rows;
    int32_t blocks;             // blocks that share k: those of one tile, or on Hopper all blocks of a row of tiles
    int32_t cluster;            // Hopper: blocks of a cluster, which share a tile; 1: see the kernel
    uint64_t partial_sum_bytes; // bytes of scratch for partial sums
} sumi_cuda_stored_choice;
// Depends on the rows of the whole op, so that slices give the same bits.
sumi_cuda_stored_choice sumi_cuda_choose_stored(const sumi_cuda_device* device, bool allows_hopper,
                                                const sumi_weight* weight, sumi_device_form form, int32_t rows);

// Unpacks the whole weight to bfloat16 at `to`. Rows are interleaved as FORM_GATED says, or in order.
sumi_result sumi_cuda_unpack(const sumi_cuda_run* run, const sumi_weight* weight, sumi_device_form form,
                             CUdeviceptr from, bool is_gated, CUdeviceptr to);
// args: the caller sets x, m, ldx, swiglu, is_gated and epilogue.
sumi_result sumi_cuda_launch_stored(const sumi_cuda_run* run, const sumi_weight* weight, sumi_device_form form,
                                    CUdeviceptr from, const sumi_cuda_stored_choice* choice,
                                    sumi_gemm_stored_args* args);
#endif
