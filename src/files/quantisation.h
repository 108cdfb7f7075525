// What a checkpoint says about its quantisation as a whole: "quantization_config" in config.json, or in the metadata of
// safetensors. What it says about single layers is read in tensor_scaling.c.
#ifndef SUMI_FILES_QUANTISATION_H
#define SUMI_FILES_QUANTISATION_H
#include "base/result.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sumi_quantisation {
    bool is_said;    // there is such an object; the other members are 0 otherwise
    char method[64]; // "fp8", "compressed-tensors"; "" if it is not named
    char format[64]; // what the method's own key says: "float-quantized", "NVFP4"
    // rows and columns of the weight's blocks that share a scale ("weight_block_size"); 0: not given
    int32_t block_rows, block_cols;
    bool has_transform;     // the inputs of layers are transformed by matrices that the file has or names
    bool has_swapped_codes; // "swap_weight_nibbles"
} sumi_quantisation;

// A text in JSON, and its path for messages.
typedef struct sumi_quantisation_text {
    const char* data;
    size_t bytes;
    const char* path;
} sumi_quantisation_text;
// Reads the members of the object that a "quantization_config" is. Unknown members are ignored. A text that is not an
// object is the method's name.
sumi_result sumi_quantisation_read(const sumi_quantisation_text* text, sumi_quantisation* out, sumi_error* error);
// The same for a config.json that may have the object as a member. out->is_said is false if it has none, or null.
sumi_result sumi_quantisation_read_config(const sumi_quantisation_text* config, sumi_quantisation* out,
                                          sumi_error* error);
// NULL if weights of this quantisation can be read, as far as their tensors say the rest. Otherwise its name for a
// message, "SVDQuant (nunchaku)" or "modelopt, W4A16_AWQ", which may be in `text`.
const char* sumi_quantisation_unknown(const sumi_quantisation* quantisation, char* text, size_t text_bytes);

// What messages advise, as the end of a sentence.
#define SUMI_QUANTISATION_ADVICE "take the bf16, fp8 (one scale), int8_tensorwise or GGUF file of the model"
#endif
