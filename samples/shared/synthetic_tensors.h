// The tensors of synthetic checkpoints: names, shapes, and how their random values are distributed.
#ifndef SYNTHETIC_TENSORS_H
#define SYNTHETIC_TENSORS_H
#include "synthetic.h"
#include <stddef.h>

#define SYNTHETIC_LATENTS 16     // channels of latents, but of FLUX.2 [klein] and Qwen-Image-2.1
#define SYNTHETIC_ADAPTER_RANK 4 // of the adapters inside Jina CLIP
#define SYNTHETIC_DEEP_LEVELS 3  // of DeepStack in Qwen3-VL

typedef struct listed_tensor {
    char name[128];
    int64_t shape[5];
    int32_t rank;
    float center, spread; // values are uniform in center +- spread
} listed_tensor;

typedef struct tensor_list {
    listed_tensor* tensors;
    size_t count, capacity;
    bool out_of_memory;
} tensor_list;

int32_t synthetic_vae_channels(const synthetic_config* config); // of the pictures that its VAE decodes

#define SYNTHETIC_MAX_PARTS 4
// Returns the path of a checkpoint's file of tensors, NULL after the last one.
const char* tensor_list_path(const synthetic_config* config, int32_t part);
// Lists the tensors of that file in the order in which it stores them. When memory runs out, out_of_memory is set.
// Free with tensor_list_free either way.
tensor_list tensor_list_make(const synthetic_config* config, int32_t part);
// Adds the scale tensor that belongs to each matrix in fp8.
void tensor_list_add_scales(tensor_list* list);
void tensor_list_free(tensor_list* list);

int64_t tensor_elements(const listed_tensor* t);
// Whether files of quantised networks quantise this tensor: matrices in the blocks of the denoiser and of the language
// model, and token embeddings. Not quantised are the vision tower, the encoder of pooled vectors, and the layers before
// and after the blocks.
bool tensor_is_quantised(const listed_tensor* t);
#endif
