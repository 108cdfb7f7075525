// What is said about the scales of an adapter outside of its tensors, in this order:
//
//   lora_adapter_metadata    a JSON object in the header of the file (diffusers)
//   adapter_config.json      a JSON object beside the file (PEFT, LyCORIS); lora_alpha in the header of the file goes first
//   nothing                  scales are 1
//
// alpha / rank is the scale of a module, alpha / sqrt(rank) with use_rslora. alpha_pattern and rank_pattern say other
// numbers for some modules, by their names or the ends of these.
#ifndef SUMI_MODELS_ADAPTER_CONFIG_H
#define SUMI_MODELS_ADAPTER_CONFIG_H
#include "files/tensors.h"

typedef struct sumi_adapter_config {
    sumi_file file;    // adapter_config.json, while it is used
    const char* text;  // the object; NULL: there is none
    size_t bytes;      // of it
    const char* path;  // of the file that holds it, for messages
    double alpha;      // negative: not said
    double rank;       // negative: not said
    bool has_patterns; // the object has an alpha_pattern or a rank_pattern
    bool rank_stabilised;
} sumi_adapter_config;

// `path` is the file that `set` was read from. It and the set outlive the config, which was zeroed.
sumi_result sumi_adapter_config_read(sumi_adapter_config* config, sumi_heap* heap, const sumi_files* files,
                                     const sumi_tensor_set* set, const char* path, sumi_error* error);
void sumi_adapter_config_close(sumi_adapter_config* config); // accepts a zeroed one

// alpha of a module, the first `bytes` of a tensor's name; negative when nothing says it.
double sumi_adapter_config_alpha(const sumi_adapter_config* config, const char* module, size_t bytes);
// SUMI_TENSOR_MISMATCH where the config says that the module has another rank.
sumi_result sumi_adapter_config_check_rank(const sumi_adapter_config* config, const char* module, size_t bytes,
                                           int32_t rank, sumi_error* error);
#endif
