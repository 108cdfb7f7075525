// The tensors that identify the networks of known families: the table with which checkpoints are opened. A
// network that is known but not supported has a signature with a refusal.
#ifndef SUMI_MODELS_SIGNATURES_H
#define SUMI_MODELS_SIGNATURES_H
#include "files/checkpoint.h"

// Transformers: "z-image", "newbie-image", "qwen-image". Text encoders: "qwen3", "qwen2.5-vl", "gemma3"; "jina-clip" as
// the second one. Vision tower: "qwen2.5-vl-vision". VAEs: "flux-vae", "qwen-vae", "qwen-vae-2.1".
const sumi_signature* sumi_signatures(size_t* out_count);
// Control nets, in the place of a transformer: "z-image-fun", "qwen-image-instantx", "qwen-image-fun",
// "qwen-image-blockwise". A separate table, because their tensors have names of the transformers too.
const sumi_signature* sumi_control_signatures(size_t* out_count);
// The models that a control net of this name is for, for messages.
const char* sumi_control_family(const char* network);
// By component, as in sumi_checkpoint_desc.
const char* const* const* sumi_class_words(void);

// The methods of quantisation that are refused by name, for every component.
const sumi_foreign_method* sumi_foreign_methods(size_t* out_count);

// The family whose pipeline class a model_index.json names ("ZImagePipeline": "z-image"); "" if it is not known.
const char* sumi_family_of_class(const char* class_name);

// Refuses a checkpoint if one of its components is known, but not supported: SUMI_NOT_SUPPORTED for a method of
// quantisation, SUMI_MODEL_UNKNOWN for another network, with a sentence.
sumi_result sumi_signatures_check(const sumi_checkpoint* checkpoint, sumi_error* error);
#endif
