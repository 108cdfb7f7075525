// Random checkpoints in the layout of the released ones, so that speed can be measured without downloading any.
// Pictures made with them are noise.
#ifndef SYNTHETIC_H
#define SYNTHETIC_H
#include <stdbool.h>
#include <stdint.h>
#include <sumi.h>

typedef enum synthetic_family { SYNTHETIC_Z_IMAGE, SYNTHETIC_QWEN_IMAGE, SYNTHETIC_NEWBIE } synthetic_family;

typedef struct synthetic_config {
    synthetic_family family;
    // The transformer. Its feed-forward has int(dim / 3 * 8) channels in Z-Image, as in the reference, 4 dim in
    // Qwen-Image, which has no refiners, and 4 dim up to a multiple of 256 in NewBie-image.
    int32_t dim, layers, refiners, heads;
    int32_t kv_heads; // of NewBie-image; the others have as many as heads
    // Qwen3, Qwen2.5-VL or Gemma 3; the width is also the captions'
    int32_t text_width, text_layers, text_heads, text_kv_heads, text_head, text_hidden, vocabulary;
    int32_t text_window; // of Gemma 3: how far most of its layers look back
    // Jina CLIP's text tower, of NewBie-image; heads of 64
    int32_t pooled_width, pooled_layers, pooled_hidden, pooled_vocabulary;
    int32_t vision_width, vision_layers, vision_heads, vision_hidden; // of Qwen-Image
    int32_t vae_widths[4], vae_resnets, vae_groups;                   // Qwen-Image's has no groups
    // Of Qwen-Image: what the checkpoint says it is. 0: for text to image; 1: Qwen-Image-Edit, which takes one picture;
    // more: Edit-Plus.
    int32_t references;
    // weights as float32 instead of bfloat16
    bool float32;
    // What the matrices of the denoiser's blocks and the text encoder's, token embeddings too, are stored as; NULL: as
    // everything else. GGUF's block types make a GGUF file of the component. A block type takes Q8_0 for matrices whose
    // rows no number of blocks fills, and leaves those as they are that Q8_0 cannot take either.
    const struct synthetic_type* stored;
    // 20 channels of what comes before a block's products are 15 to 40 times as large as the others, as trained networks
    // have them: by the weights of norms, in Qwen-Image by the modulation's biases.
    bool outliers;
} synthetic_config;

// The released sizes in bfloat16: z_image 20 GB, qwen_image 41 GB and 16 GB of encoders, newbie 7 GB and 9 GB of
// encoders.
extern const synthetic_config synthetic_tiny, synthetic_mid, synthetic_z_image;
extern const synthetic_config synthetic_qwen_image_tiny, synthetic_qwen_image_mid, synthetic_qwen_image;
extern const synthetic_config synthetic_newbie_tiny, synthetic_newbie_mid, synthetic_newbie;
// "tiny", "mid", "z-image", "qwen-image-tiny", "qwen-image-mid", "qwen-image", "newbie-tiny", "newbie-mid", "newbie";
// NULL: none of them
const synthetic_config* synthetic_find(const char* name);
// What options call formats of weights. False: another name.
#define SYNTHETIC_WEIGHTS "bf16|fp8|int8|int4|as-stored"
bool synthetic_weights(const char* name, sumi_weight_format* out_weights);
const char* synthetic_weights_name(sumi_weight_format weights); // AUTO is bf16: on a GPU

// Rows of features that come with every prompt, of the template around it; every byte of SYNTHETIC_WORDS is one more,
// for the tokenizer has no merges. A picture that a prompt refers to adds its own.
int32_t synthetic_template_rows(const synthetic_config* config);
// What a text begins with so that no other words come in front of it: NewBie-image's mark, else "".
const char* synthetic_opening(const synthetic_config* config);
// Not a word of it is one of a template's, which are tokens as a whole.
#define SYNTHETIC_WORDS "red foxes run in deep snow under old trees, "

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
