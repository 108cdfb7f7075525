// The scales that stored weights of 8 bits have beside them.
#ifndef SUMI_FILES_TENSOR_SCALING_H
#define SUMI_FILES_TENSOR_SCALING_H
#include "files/checkpoint.h"

// What turns the elements of a stored fp8 or int8 weight into values: they are rotated in their rows, then multiplied.
typedef struct sumi_tensor_scaling {
    float scale;            // of all elements; 1 without one
    const void* row_scales; // float32 for each row, at no alignment, in the file; NULL: none
    int32_t rotation;       // columns that are rotated together (base/rotation.h); 0: none
    bool is_scaled;         // the file has a scale, so that integers are weights
} sumi_tensor_scaling;
// The scaling of a stored weight; of a tensor without one {1}. name: without prefix, as in "layers.0.attention.out.weight".
// Knows
//   L.scale_weight                             fp8, one value (the older "scaled_fp8" files)
//   L.weight_scale with a format of fp8        one value, or one for each row
//   L.weight_scale with int8_tensorwise        the same; with "convrot": true rows are rotated
// where formats are those of "comfy_quant" tensors, or of _quantization_metadata in the header. Refuses all others with
// SUMI_NOT_SUPPORTED, naming tensor and format: nvfp4, mxfp8, scales for blocks.
sumi_result sumi_tensor_find_scaling(const sumi_component* component, const char* name, sumi_tensor_scaling* out,
                                     sumi_error* error);
#endif
