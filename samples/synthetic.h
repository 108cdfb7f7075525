// Random checkpoints in the layout of the released ones, so that speed can be measured without downloading any.
// Pictures made with them are noise.
#ifndef SYNTHETIC_H
#define SYNTHETIC_H
#include <stdbool.h>
#include <stdint.h>
#include <sumi.h>

typedef struct synthetic_config {
    // Z-Image; feed-forward int(dim / 3 * 8), as in the reference
    int32_t dim, layers, refiners, heads;
    // Qwen3; the width is also the captions'
    int32_t text_width, text_layers, text_heads, text_kv_heads, text_head, text_hidden, vocabulary;
    int32_t vae_widths[4], vae_resnets, vae_groups; // Flux VAE
    // weights as float32 instead of bfloat16
    bool float32;
} synthetic_config;

// z_image: the released sizes, 20 GB in bfloat16
extern const synthetic_config synthetic_tiny, synthetic_mid, synthetic_z_image;
const synthetic_config* synthetic_find(const char* name); // "tiny", "mid", "z-image"; NULL: none of them

// of the chat template around a prompt; every byte of the prompt is one token more (there are no merges)
#define SYNTHETIC_TEMPLATE_TOKENS 19

// Writes a model folder into `folder`, which is made. False: a sentence was printed.
bool synthetic_write(const char* folder, const synthetic_config* config);
// The same checkpoint in no file: one block of random numbers seen many times, so that any size costs 64 MB. NULL: a
// sentence was printed.
// Load SYNTHETIC_PATH with these services in sumi_engine_desc.files; close after the engine.
#define SYNTHETIC_PATH "synthetic"
typedef struct synthetic_files synthetic_files;
synthetic_files* synthetic_open(const synthetic_config* config);
sumi_files synthetic_services(synthetic_files* files);
void synthetic_close(synthetic_files* files); // accepts NULL

// A safetensors file of float32 tensors that are in memory.
typedef struct synthetic_tensor {
    const char* name;
    const float* values;
    int32_t rank;
    int64_t shape[4];
} synthetic_tensor;
bool synthetic_save(const char* path, const synthetic_tensor* tensors, int32_t count);
#endif
