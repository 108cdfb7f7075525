// The scales of stored 8-bit weights.
#ifndef SUMI_FILES_TENSOR_SCALING_H
#define SUMI_FILES_TENSOR_SCALING_H
#include "files/checkpoint.h"

// How the elements of a stored fp8 or int8 weight become values: each row is rotated, then multiplied by its scale.
typedef struct sumi_tensor_scaling {
    float scale;            // of all elements; 1 if there is none
    const void* row_scales; // one float32 per row, unaligned, in the mapped file; NULL: none
    int32_t rotation;       // columns that are rotated together (base/rotation.h); 0: none
    bool is_scaled;         // the file has a scale; an integer tensor is then a weight
} sumi_tensor_scaling;
// Finds the scaling of a stored weight; {1} for a tensor without one. name has no prefix, for example
// "layers.0.attention.out.weight". For a layer L the known forms are
//   L.scale_weight                             fp8, one value (the older "scaled_fp8" files)
//   L.weight_scale with a format of fp8        one value, or one for each row
//   L.weight_scale with int8_tensorwise        the same; with "convrot": true rows are rotated
// where the format is in a tensor "comfy_quant" or in _quantization_metadata of the header. All others (nvfp4, mxfp8,
// scales per block) fail with SUMI_NOT_SUPPORTED; the message names tensor and format.
sumi_result sumi_tensor_find_scaling(const sumi_component* component, const char* name, sumi_tensor_scaling* out,
                                     sumi_error* error);
#endif
