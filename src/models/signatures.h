// How the networks of the known families look in their files: the table that a checkpoint is opened with. A network that
// is known but cannot be used has a signature with a refusal.
#ifndef SUMI_MODELS_SIGNATURES_H
#define SUMI_MODELS_SIGNATURES_H
#include "files/checkpoint.h"

// Transformers "z-image", "newbie-image", "qwen-image"; text encoders "qwen3", "qwen2.5-vl", "gemma3", as the second one
// "jina-clip"; vision tower "qwen2.5-vl-vision"; VAEs "flux-vae", "qwen-vae".
const sumi_signature* sumi_signatures(size_t* out_count);
// By component, as sumi_checkpoint_desc wants them.
const char* const* const* sumi_class_words(void);

// The family whose pipeline class a model_index.json names ("ZImagePipeline": "z-image"); "" when none is known.
const char* sumi_family_of_class(const char* class_name);

// Refuses, with SUMI_MODEL_UNKNOWN and a sentence, a checkpoint one of whose components has a signature with a refusal.
sumi_result sumi_signatures_check(const sumi_checkpoint* checkpoint, sumi_error* error);
#endif
