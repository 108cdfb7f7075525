// What an adapter's file changes, read without a model: its tensors by module, with everything checked that needs no
// model. So `sumi inspect` refuses the same files that a job refuses.
#ifndef SUMI_MODELS_ADAPTER_LAYERS_H
#define SUMI_MODELS_ADAPTER_LAYERS_H
#include "models/adapter_config.h"
#include "models/adapter_names.h"

// How a module's matrix changes.
typedef enum sumi_adapter_kind {
    SUMI_ADAPTER_NONE, // it does not; its bias or its norm does
    SUMI_ADAPTER_LORA,
    SUMI_ADAPTER_LOHA,
    SUMI_ADAPTER_LOKR,
    SUMI_ADAPTER_DIFF // the whole difference, of a norm's weight too
} sumi_adapter_kind;

typedef struct sumi_adapter_layer {
    const char* module; // at the front of a tensor's name, with its prefix
    size_t module_bytes;
    int32_t encoder; // 0: of the denoiser; otherwise sumi_adapter_encoder of the module
    sumi_adapter_kind kind;
    const sumi_tensor* parts[SUMI_PART_COUNT]; // NULL: not there
    int32_t rank;                              // of LoRA, LoHa, and LoKr with a factor that is a product; otherwise 0
    float scale;                               // alpha / rank, or another rule of the file
} sumi_adapter_layer;

#define SUMI_ADAPTER_SHOWN_NAMES 3
typedef struct sumi_adapter_layers {
    sumi_heap* heap;
    sumi_adapter_layer* layers; // ordered by module
    size_t count, capacity;
    size_t text_count;     // how many of them are of text encoders
    const char* text_name; // the name of the first such tensor
    // tensors that are part of no change
    size_t unknown_count;
    const char* unknown_names[SUMI_ADAPTER_SHOWN_NAMES];
} sumi_adapter_layers;

// `path` is the file that `set` was read from; the set must outlive the layers. `out` has its heap and is zeroed otherwise; close it after
// a failure, too. A module without one of its parts, parts that do not fit each other and a kind that is not supported
// are refused by name.
sumi_result sumi_adapter_layers_read(sumi_adapter_layers* out, const char* path, const sumi_tensor_set* set,
                                     const sumi_adapter_config configs[SUMI_ADAPTER_CONFIGS], sumi_error* error);
// Refuses a tensor with NaN or infinity by its name. It reads all of the layer's values.
sumi_result sumi_adapter_layer_check(const sumi_adapter_layer* layer, const char* path, sumi_error* error);
void sumi_adapter_layers_close(sumi_adapter_layers* layers); // accepts zeroed layers
void sumi_adapter_add_unknown(sumi_adapter_layers* layers, const char* name);

// Rows and columns of a factor, which has two dimensions, or more that are 1. False: it has another shape.
bool sumi_adapter_matrix_shape(const sumi_tensor* tensor, int32_t* rows, int32_t* cols);
#endif
