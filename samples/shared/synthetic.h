// Checkpoints with random weights in the layout of the released ones, so that speed can be measured without a download.
// Images generated with them are noise.
#ifndef SYNTHETIC_H
#define SYNTHETIC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sumi.h>

typedef enum synthetic_family {
    SYNTHETIC_Z_IMAGE,
    SYNTHETIC_QWEN_IMAGE,
    SYNTHETIC_NEWBIE,
    SYNTHETIC_KLEIN,
    SYNTHETIC_QWEN_IMAGE_21
} synthetic_family;

// A control net of released layers, for the models of a family. Its places are those of a file without config.json.
typedef struct synthetic_control {
    const char* name; // "z-fun-2.1"
    synthetic_family family;
    int32_t layers;   // at most as many as the transformer has; 0: as many
    int32_t channels; // of the control picture's latents
    const char* path; // of its file, in the checkpoint's folder
} synthetic_control;
#define SYNTHETIC_CONTROLS "z-fun-1.0|z-fun-2.1|z-fun-2.1-lite|qwen-instantx|qwen-fun|qwen-blockwise"
#define SYNTHETIC_MAX_CONTROLS 3
const synthetic_control* synthetic_control_find(const char* name); // NULL: none of them

typedef struct synthetic_config {
    synthetic_family family;
    // The transformer. Its feed-forward has int(dim / 3 * 8) channels in Z-Image, as in the reference; 4 dim in
    // Qwen-Image, which has no refiners; 4 dim rounded up to a multiple of 256 in NewBie-image; and 3 dim in
    // Qwen-Image-2.1 and in FLUX.2 [klein], whose layers are the double blocks.
    int32_t dim, layers, refiners, heads;
    int32_t singles;       // single blocks of FLUX.2 [klein]
    bool keeps_references; // FLUX.2 [klein] 9B-kv: the checkpoint names the variant that computes references once
    int32_t kv_heads;      // in NewBie-image; in the other families equal to heads
    // The text encoder: Qwen3, Qwen2.5-VL, Qwen3-VL or Gemma 3. text_width is also the width of the transformer's text input, and
    // a third of it in FLUX.2 [klein].
    int32_t text_width, text_layers, text_heads, text_kv_heads, text_head, text_hidden, vocabulary;
    int32_t text_window; // tokens in the attention window of most layers of Gemma 3
    // The text tower of Jina CLIP, in NewBie-image; its heads have width 64.
    int32_t pooled_width, pooled_layers, pooled_hidden, pooled_vocabulary;
    int32_t vision_width, vision_layers, vision_heads, vision_hidden; // in Qwen-Image and Qwen-Image-2.1
    // Four widths, no groups in Qwen-Image. Qwen-Image-2.1 has five, the encoder's; those of the decoder are as many
    // times vae_decoder_width as they are times the first.
    int32_t vae_widths[5], vae_decoder_width, vae_resnets, vae_groups;
    // The variant of Qwen-Image that the checkpoint names. 0: text to image; 1: Qwen-Image-Edit, which takes one
    // reference image; more: Edit-Plus.
    int32_t references;
    // weights in float32 instead of bfloat16
    bool float32;
    // The stored type of the matrices in the blocks of the denoiser and of the text encoder, and of the token
    // embeddings; NULL: the type of all other tensors. With a block type of GGUF the component becomes a GGUF file.
    // Matrices whose rows are not a multiple of the block are stored in Q8_0, and those whose rows do not fit Q8_0
    // either are not quantised.
    const struct synthetic_type* stored;
    // 20 channels of the input of a block's products are 15 to 40 times as large as the others, as in trained networks.
    // The weights of norms make them so, in Qwen-Image the biases of the modulation.
    bool outliers;
    const synthetic_control* controls[SYNTHETIC_MAX_CONTROLS]; // nets beside the checkpoint; the first NULL ends them
} synthetic_config;

// The released sizes in bfloat16: z_image 20 GB, qwen_image 41 GB and 16 GB of encoders, newbie 7 GB and 9 GB of
// encoders, klein (4B) 8 GB and 8 GB of its encoder, klein_9b and klein_9b_kv 18 GB and 15 GB, qwen_image_21 14 GB and
// 16 GB of encoders.
extern const synthetic_config synthetic_tiny, synthetic_mid, synthetic_z_image;
extern const synthetic_config synthetic_qwen_image_tiny, synthetic_qwen_image_mid, synthetic_qwen_image;
extern const synthetic_config synthetic_newbie_tiny, synthetic_newbie_mid, synthetic_newbie;
extern const synthetic_config synthetic_klein_tiny, synthetic_klein_mid, synthetic_klein;
extern const synthetic_config synthetic_klein_9b, synthetic_klein_9b_kv_tiny, synthetic_klein_9b_kv;
extern const synthetic_config synthetic_qwen_image_21_tiny, synthetic_qwen_image_21_mid, synthetic_qwen_image_21;
// "tiny", "mid", "z-image", "qwen-image-tiny", "qwen-image-mid", "qwen-image", "newbie-tiny", "newbie-mid", "newbie",
// "klein-tiny", "klein-mid", "klein", "klein-9b", "klein-9b-kv-tiny", "klein-9b-kv", "qwen-image-21-tiny",
// "qwen-image-21-mid", "qwen-image-21";
// NULL: none of them
const synthetic_config* synthetic_find(const char* name);
// The names of weight formats in options. synthetic_weights returns false for another name.
#define SYNTHETIC_WEIGHTS "bf16|fp8|int8|int4|as-stored"
bool synthetic_weights(const char* name, sumi_weight_format* out_weights);
const char* synthetic_weights_name(sumi_weight_format weights); // "bf16" for AUTO

// Counts the elements of the checkpoint: of the matrices that formats of weights quantise, and of all other tensors but
// the table of token embeddings.
void synthetic_count(const synthetic_config* config, uint64_t* out_matrices, uint64_t* out_others);
// Counts the transformer's elements, and their bytes in its file.
void synthetic_count_transformer(const synthetic_config* config, uint64_t* out_values, uint64_t* out_bytes);

// Returns the rows of features that the template adds to every prompt. Every byte of SYNTHETIC_WORDS is one more row,
// because the tokenizer has no merges. Each reference image of a prompt adds further rows.
int32_t synthetic_template_rows(const synthetic_config* config);
// Returns the text with which a prompt must begin so that sumi puts no template in front of it: "<Prompt Start>" for
// NewBie-image, else "".
const char* synthetic_opening(const synthetic_config* config);
// Contains none of the words of a template, which are one token each.
#define SYNTHETIC_WORDS "red foxes run in deep snow under old trees, "

#if !defined(_WIN32)
// Writes a model folder into `folder`, which is created. Returns false after printing a sentence.
bool synthetic_write(const char* folder, const synthetic_config* config);
#endif
// Makes the same checkpoint in memory without a file: one block of random numbers is mapped many times, so that any
// size takes 64 MB. Returns NULL after printing a sentence. Load SYNTHETIC_PATH with these services in
// For sumi_engine_desc.files; close after the engine.
#define SYNTHETIC_PATH "synthetic"
typedef struct synthetic_files synthetic_files;
// Where the net of this number is in the checkpoint. `stored` in GGUF's types makes GGUF files.
void synthetic_control_path(const synthetic_config* config, int32_t index, char* into, size_t capacity);
synthetic_files* synthetic_open(const synthetic_config* config);
sumi_files synthetic_services(synthetic_files* files);
void synthetic_close(synthetic_files* files); // accepts NULL

// synthetic_save writes float32 tensors in memory to a safetensors file.
typedef struct synthetic_tensor {
    const char* name;
    const float* values;
    int32_t rank;
    int64_t shape[4];
} synthetic_tensor;
bool synthetic_save(const char* path, const synthetic_tensor* tensors, int32_t count);
#endif
