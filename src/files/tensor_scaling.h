// How the elements of a quantised weight become values: its scales, its codes, its rotation.
#ifndef SUMI_FILES_TENSOR_SCALING_H
#define SUMI_FILES_TENSOR_SCALING_H
#include "base/decoding.h"
#include "files/checkpoint.h"

// Elements are decoded, rows are rotated, then multiplied by their scale, then columns by theirs.
typedef struct sumi_tensor_scaling {
    float scale;            // of all elements; 1 if there is none
    const void* row_scales; // one float32 per row, unaligned, in the mapped file; NULL: none
    int32_t rotation;       // columns that are rotated together (base/rotation.h); 0: none
    bool is_scaled;         // the file has a scale; an integer tensor is then a weight
    bool has_decoding;
    sumi_decoding decoding; // factors of blocks and columns, and 4-bit codes
    int32_t packed;         // elements in one of the tensor along its rows: 2 for 4-bit codes, otherwise 1
} sumi_tensor_scaling;
// Finds the scaling of a stored weight; {1} for a tensor without one. name has no prefix, for example
// "layers.0.attention.out.weight". For a layer L the known forms are
//   fp8, int8          L.weight_scale, L.scale_weight (the older "scaled_fp8" files), L.weight_scale_inv, L.scale: one
//                      factor, one for each row, or one for each block, in any floating type. Blocks are those of
//                      weight_block_size or group_size, otherwise of 128 x 128, or of a size that divides the weight
//   int8_tensorwise    with "convrot": true the rows are rotated
//   mxfp8              L.weight_scale: a power of two for each 32 columns, in tiles
//   nvfp4              pairs of e2m1 in L.weight; L.weight_scale: e4m3 for each 16 columns; L.weight_scale_2: one factor.
//                      ComfyUI's files have the first element of a pair in the high bits, and the scales in tiles;
//                      ModelOpt's have it in the low bits, and the scales in rows
//   convrot_w4a4       pairs of signed integers, the first in the low bits; L.weight_scale: for each row; rotated
//   asym_w4a8_int8     pairs of codes, the first in the low bits, of the table L.weight_codebook, or integers from -8
//                      on; L.weight_s_rel: for each group_size columns, the product is rounded to an integer;
//                      L.weight_s_channel: for each row; rotated
//   any of them        L.pre_quant_scale: a factor for each column
// where the format is in a tensor "comfy_quant" or in _quantization_metadata of the header. Scales of activations are
// ignored. All others, and everything beside a quantised weight that is not known, fail with SUMI_NOT_SUPPORTED; the
// message names the tensor and the format.
sumi_result sumi_tensor_find_scaling(const sumi_component* component, const char* name, sumi_tensor_scaling* out,
                                     sumi_error* error);
// Elements of a stored tensor along an axis, each 4-bit code counted, for descriptions of files: also of a quantisation
// that fails above. 0: the component lacks the tensor, or the tensor the axis.
int64_t sumi_tensor_find_size(const sumi_component* component, const char* name, int32_t axis);
// Whether everything beside the component's quantised weights is known. If it is, one pass over the names has said so for
// all weights (sumi_component.knows_neighbours); otherwise each weight is examined when it is used.
bool sumi_tensor_neighbours_are_known(const sumi_component* component);
#endif
