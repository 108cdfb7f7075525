// What the vision towers of Qwen2.5-VL (qwen_vision.h) and Qwen3-VL (qwen3_vision.h) have in common: their configs, the
// processor's file, llama.cpp's metadata and names, the sizes that follow from the tensors, and the patches of a
// picture. A tower puts its own members beside these.
#ifndef SUMI_MODELS_QWEN_TOWER_H
#define SUMI_MODELS_QWEN_TOWER_H
#include "models/network_modules.h"

#define SUMI_QWEN_TOWER_MAX_BLOCKS 128
#define SUMI_QWEN_TOWER_NORM_EPS 1e-6f // no config gives it

// Defaults for values that neither the tensors' shapes nor a config.json give.
typedef struct sumi_qwen_tower_settings {
    int32_t heads;
    int32_t min_pixels, max_pixels; // limits of the area, in pixels
    double mean[3], deviation[3];   // of channels in [0, 1]
} sumi_qwen_tower_settings;

typedef struct sumi_qwen_tower {
    int32_t width, heads, block_count, hidden, out_width;
    int32_t patch, frames, merge; // patch: side in pixels; merge: patches along the side of a cell
    int32_t min_pixels, max_pixels;
    float mean[3], deviation[3];
} sumi_qwen_tower;

// ---- What the files say ---------------------------------------------------------------------------------------------

// Values from the files. 0 for an int32_t: not given. Values of the configs replace the settings'.
typedef struct sumi_qwen_tower_values {
    int32_t depth, width, hidden, out_width, channels, heads, patch, frames, merge;
    int32_t processor_patch, processor_frames, processor_merge;
    int32_t min_pixels, max_pixels, shortest, longest;
    double mean[3], deviation[3], rescale;
    int32_t mean_count, deviation_count;
    bool rescales, normalises;
    const char *numbers_path, *processor_path; // of the files that the numbers are from, for messages
} sumi_qwen_tower_values;

// What differs between the towers. Names of tensors are canonical.
typedef struct sumi_qwen_tower_kind {
    const char *name, *projector;                // "Qwen3-VL"; clip.projector_type of llama.cpp's files
    const char *hidden, *merger_in, *merger_out; // the weights whose shapes give the sizes
} sumi_qwen_tower_kind;

// The files of a tower: its config, which is vision_config in the text encoder's, and the processor's, both as bind
// has them.
typedef struct sumi_qwen_tower_files {
    const sumi_module_config *config, *processor;
    const sumi_config_field* fields; // further members of the config
    int32_t field_count;
} sumi_qwen_tower_files;

// Reads settings (or NULL), configs, and llama.cpp's metadata, in this order: a GGUF file describes its own tensors, so
// its numbers count before a config.json that lies elsewhere. Mean and deviation are the processor's. Failures are in b.
void sumi_qwen_tower_read(sumi_qwen_tower_values* values, sumi_binder* b, const sumi_qwen_tower_kind* kind,
                          const sumi_qwen_tower_settings* settings, const sumi_qwen_tower_files* files);
// A number of llama.cpp's metadata. Unchanged if there is none; -1 if it cannot be a size.
void sumi_qwen_tower_metadata(const sumi_component* component, const char* key, int32_t* into);
bool sumi_qwen_tower_is_from_llama_cpp(const sumi_binder* b);

// Sets all members of the tower. Widths follow from the tensors. The configs give the values that shapes do not show,
// and must not contradict the shapes. Whether there are all the blocks shows when they are bound.
void sumi_qwen_tower_measure(sumi_qwen_tower* tower, sumi_binder* b, const sumi_qwen_tower_kind* kind,
                             const sumi_qwen_tower_values* values);
// Whether a number of a config (0: not given) is another than the one that the tensors show.
bool sumi_qwen_tower_contradicts(int32_t config_size, int32_t size);

// ---- Weights --------------------------------------------------------------------------------------------------------

// llama.cpp's name of a tensor, by tables of {part of the canonical name, llama.cpp's part}: of tensors outside the
// blocks, and of those in them. Each ends with a row of NULL.
bool sumi_qwen_tower_alias(const char* canonical, const char* const (*whole)[2], const char* const (*in_blocks)[2],
                           char* out, size_t out_bytes);
// "blocks.3.norm1". Writes SUMI_NAME_BYTES. Returns out.
const char* sumi_qwen_tower_name_in(char* out, int32_t block, const char* module);
// The first layer, whose slices in time llama.cpp's files keep apart. bias NULL: it has none.
void sumi_qwen_tower_bind_patches(const sumi_qwen_tower* tower, sumi_binder* b, sumi_weight* weight, sumi_weight* bias);

// ---- Plan -----------------------------------------------------------------------------------------------------------

sumi_vision_properties sumi_qwen_tower_properties(const sumi_qwen_tower* tower);
// Whether pixels, [height * width, 3], can be cut into whole cells. Otherwise the plan has failed, or fails now.
bool sumi_qwen_tower_takes(const sumi_qwen_tower* tower, sumi_plan* plan, sumi_value pixels, int32_t height,
                           int32_t width);
// The values of the patches, [rows, 3 * frames * patch * patch]. cells: the picture's cells in the order of their rows.
sumi_value sumi_qwen_tower_write_patches(const sumi_qwen_tower* tower, sumi_plan* plan, sumi_value pixels,
                                         sumi_value cells, int32_t height, int32_t width);
// positions: (y, x) of the patch of every row.
sumi_value sumi_qwen_tower_write_rope(const sumi_qwen_tower* tower, sumi_plan* plan, sumi_value positions);
// Rotates q and k of [rows, 3 * width], and returns the output of attention within the sequences.
sumi_value sumi_qwen_tower_write_attention(const sumi_qwen_tower* tower, sumi_plan* plan, sumi_value qkv,
                                           sumi_value rope, const sumi_sequence* sequences, int32_t sequence_count);
#endif
