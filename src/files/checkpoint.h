// A model's files: where its parts are and what is in them, told by content. Knows tensors, not networks: names stay as
// the files have them.
//
//     diffusers folder                  one file                              parts given one by one
//       model_index.json                  model.diffusion_model.*  \            transformer_path, text_encoder_path,
//       transformer/ text_encoder/ vae/   text_encoders.X.transformer.*  parts  vae_path, tokenizer_path:
//       tokenizer/ scheduler/             vae.*                    /            each a folder or a file
//
// A part is looked for where it was asked for (its own path, else its folder below `path`), then in every other file
// that was opened: a transformer file that also holds the VAE serves both. What is not there is not an error:
// part.present is false and the model decides what it needs.
//
//     sumi_checkpoint c = {0};
//     r = sumi_checkpoint_begin(&c, heap, files, &desc, error);
//     for (bool done = false; r == SUMI_OK && !done;) r = sumi_checkpoint_step(&c, &done, error);   // each step opens one file
//     ... sumi_checkpoint_close(&c);                                                                // at any time, also half-way
#ifndef SUMI_FILES_CHECKPOINT_H
#define SUMI_FILES_CHECKPOINT_H
#include "files/tensors.h"

typedef enum sumi_part_kind {
    SUMI_PART_TRANSFORMER,
    SUMI_PART_TEXT_ENCODER,
    SUMI_PART_VAE,
    SUMI_PART_COUNT
} sumi_part_kind;

typedef struct sumi_part {
    bool present;
    const sumi_tensor_set* set; // may serve several parts
    char* prefix;               // in front of the part's tensor names in the set; "" for none
    // the folder or file it came from; where it was looked for when it is not present, NULL when nowhere
    const char* path;
    sumi_file config; // config.json; config.data is NULL when there is none. Well-formed JSON when there is
} sumi_part;

typedef struct sumi_checkpoint_desc {
    const char* path;                        // a diffusers folder, a part's folder or a file; may be NULL
    const char* part_paths[SUMI_PART_COUNT]; // override or complete what `path` holds; NULL: from path
    const char* tokenizer_path;              // a tokenizer.json or the folder it is in
    bool without_text_encoder;               // neither text encoder nor tokenizer are looked for
} sumi_checkpoint_desc;

typedef struct sumi_checkpoint {
    sumi_part parts[SUMI_PART_COUNT];
    // a guess by the transformer's tensors, else by model_index.json: "z-image", "qwen-image", "newbie-image", or ""
    const char* family;
    char class_name[64]; // "_class_name" of model_index.json, "" without one
    sumi_file tokenizer; // tokenizer.json; data is NULL when there is none
    // the folder the tokenizer's files are in, when one was found (tokenizer.json, or vocab.json and merges.txt); else
    // NULL
    char* tokenizer_folder;
    sumi_file scheduler; // scheduler_config.json, well-formed; data is NULL when there is none
    // from here on: how far the opening is
    sumi_heap* heap;
    const sumi_files* files;
    struct sumi_source* sources;
    int32_t source_count; // one per path that was given or found
    char *path, *tokenizer_path;
    bool path_is_folder, without_text_encoder;
    int32_t stage, current;
    size_t file_count, opened_count;
} sumi_checkpoint;

// checkpoint must be zeroed. files and heap must outlive it; the desc's texts are copied.
sumi_result sumi_checkpoint_begin(sumi_checkpoint* checkpoint, sumi_heap* heap, const sumi_files* files,
                                  const sumi_checkpoint_desc* desc, sumi_error* error);
// One file per call: 0.2 ms for a header of 500 tensors. After a failure only close is left.
sumi_result sumi_checkpoint_step(sumi_checkpoint* checkpoint, bool* out_done, sumi_error* error);
float sumi_checkpoint_progress(const sumi_checkpoint* checkpoint); // 0..1, by files, never falls
// begin and all steps.
sumi_result sumi_checkpoint_open(sumi_checkpoint* checkpoint, sumi_heap* heap, const sumi_files* files,
                                 const sumi_checkpoint_desc* desc, sumi_error* error);
void sumi_checkpoint_close(sumi_checkpoint* checkpoint); // accepts a zeroed or half-open one

// The tensor called prefix + name, NULL when the part is not present or has no such tensor.
const sumi_tensor* sumi_checkpoint_part_find(const sumi_part* part, const char* name);
// The name without the part's prefix, NULL when the tensor is not of this part. For walking over part->set->tensors.
const char* sumi_checkpoint_part_name(const sumi_part* part, const sumi_tensor* tensor);
const char* sumi_part_kind_name(sumi_part_kind kind); // "transformer", "text_encoder", "vae": also the folder's name

// The factor that a stored fp8 weight is multiplied by, 1 for a tensor without one. name:
// "layers.0.attention.out.weight", without prefix. Knows
//   L.scale_weight                             one value (the older "scaled_fp8" files)
//   L.weight_scale with a format of fp8        one value ("comfy_quant" tensors, or _quantization_metadata in the header)
// and refuses what a factor cannot express with SUMI_NOT_SUPPORTED, naming tensor and format: int8, nvfp4, mxfp8,
// scales per row or block.
sumi_result sumi_tensor_scale(const sumi_part* part, const char* name, float* out_scale, sumi_error* error);
#endif
