// What a file says about an adapter outside of its tensors. The first source that says something counts:
//
//   lora_adapter_metadata    a JSON object in the header of the file (diffusers)
//   adapter_config.json      a JSON object beside the file (PEFT), which belongs to adapter_model.safetensors alone: a
//                            file of another name in the same folder is another adapter
//   nothing                  scales are 1
//
// lora_alpha in the header, a number, has priority over adapter_config.json.
//
// Where the object describes several components ("transformer.r", "text_encoder.r"), each has a config with its own
// entries. Entries without a component ("r") are of all of them.
//
// The scale of a module is alpha / rank, with use_rslora alpha / sqrt(rank). alpha_pattern and rank_pattern have other
// numbers for some modules: the first pattern that matches counts (adapter_pattern.h).
#ifndef SUMI_MODELS_ADAPTER_CONFIG_H
#define SUMI_MODELS_ADAPTER_CONFIG_H
#include "files/tensors.h"
#include "models/limits.h"

typedef struct sumi_adapter_config {
    sumi_file file;    // of the first config: adapter_config.json, open while it is in use
    const char* text;  // the JSON object; NULL: there is none
    size_t bytes;      // length of `text`
    const char* path;  // of the file that contains it, for messages
    double alpha;      // negative: not given
    double rank;       // negative: not given
    bool has_patterns; // the object has an alpha_pattern or a rank_pattern
    int32_t component; // 0: the denoiser; otherwise a text encoder, counted from 1
    bool has_own;      // the object has entries of this component: those of others do not count
    bool is_metadata;  // `text` is in the header of the adapter's file
    bool rank_stabilised;
    bool uses_dora;
    bool scales_whole_factors; // peft_type LOKR: alpha / r also where both factors of LoKr are stored in full
} sumi_adapter_config;

// One config for the denoiser and one for each text encoder.
#define SUMI_ADAPTER_CONFIGS (1 + SUMI_MAX_TEXT_ENCODERS)
// `path` is the file that `set` was read from. Path and set must outlive the configs, which are zeroed before.
sumi_result sumi_adapter_configs_read(sumi_adapter_config configs[SUMI_ADAPTER_CONFIGS], sumi_heap* heap,
                                      const sumi_files* files, const sumi_tensor_set* set, const char* path,
                                      sumi_error* error);
void sumi_adapter_configs_close(sumi_adapter_config configs[SUMI_ADAPTER_CONFIGS]); // accepts zeroed configs
// The config of a component; for SUMI_ADAPTER_ANY_ENCODER the first text encoder's.
const sumi_adapter_config* sumi_adapter_config_of(const sumi_adapter_config configs[SUMI_ADAPTER_CONFIGS],
                                                  int32_t encoder);

// alpha of a module, whose name is the first `bytes` of a tensor's name; negative: not given.
double sumi_adapter_config_alpha(const sumi_adapter_config* config, const char* module, size_t bytes);
// The rank that the config gives for a module; negative: not given.
double sumi_adapter_config_rank(const sumi_adapter_config* config, const char* module, size_t bytes);
// SUMI_TENSOR_MISMATCH if the config gives another rank for the module.
sumi_result sumi_adapter_config_check_rank(const sumi_adapter_config* config, const char* module, size_t bytes,
                                           int32_t rank, sumi_error* error);
#endif
