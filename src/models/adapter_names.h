// The names of tensors in adapter files: which module a tensor changes, and which part of the change it is.
//
//   name  =  [prefix] module part     transformer.  layers.0.attention.to_q  .lora_A.weight       PEFT, diffusers
//                                     base_model.model.  layers.0.attention.to_q  .lora_A.NAME.weight
//                                     diffusion_model.  layers.0.attention.qkv  .lora_down.weight   ComfyUI, ai-toolkit
//                                     lora_unet_  layers_0_attention_to_q  .alpha                   kohya, musubi
//                                     lycoris_  layers_0_attention_qkv  .lokr_w1                    LyCORIS
//                                     lycoris_  layers_0_attention_norm1  .w_norm
//                                     text_encoder.  model.layers.0.self_attn.q_proj  .lora_A.weight
//                                     lora_te1_  model_layers_0_self_attn_q_proj  .lora_down.weight
//                                     text_encoders.qwen3_4b.transformer.  model.layers.0.self_attn.q_proj  .alpha
//
// NAME, the adapter's name in PEFT, is any, and ".weight" may be missing.
#ifndef SUMI_MODELS_ADAPTER_NAMES_H
#define SUMI_MODELS_ADAPTER_NAMES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum sumi_adapter_part {
    SUMI_PART_DOWN, // LoRA: [rank, in] and [out, rank]
    SUMI_PART_UP,
    SUMI_PART_UP_BIAS,
    SUMI_PART_LOHA_1_UP, // LoHa: (up down of 1) times (up down of 2), element by element
    SUMI_PART_LOHA_1_DOWN,
    SUMI_PART_LOHA_2_UP,
    SUMI_PART_LOHA_2_DOWN,
    SUMI_PART_LOKR_1, // LoKr: the Kronecker product of two factors, each in full or as a product
    SUMI_PART_LOKR_1_UP,
    SUMI_PART_LOKR_1_DOWN,
    SUMI_PART_LOKR_2,
    SUMI_PART_LOKR_2_UP,
    SUMI_PART_LOKR_2_DOWN,
    SUMI_PART_DIFF,      // the whole difference of a weight
    SUMI_PART_BIAS_DIFF, // the difference of a layer's bias
    SUMI_PART_NORM,      // LyCORIS: the differences of a norm's weight and bias
    SUMI_PART_NORM_BIAS,
    SUMI_PART_MAGNITUDE, // DoRA
    SUMI_PART_ALPHA,
    SUMI_PART_COUNT,
    SUMI_PART_REFUSED = SUMI_PART_COUNT, // of a kind that is not supported
    SUMI_PART_UNKNOWN
} sumi_adapter_part;

typedef struct sumi_adapter_name {
    sumi_adapter_part part;
    size_t module_bytes; // the module is at the front of the name, with its prefix
    const char* kind;    // of SUMI_PART_REFUSED
} sumi_adapter_name;
sumi_adapter_name sumi_adapter_read_name(const char* name);
// How a part's names end, for messages: ".lora_A or .lora_down".
const char* sumi_adapter_part_text(sumi_adapter_part part);

// Bytes of the prefixes that programs put before a module's path.
size_t sumi_adapter_prefix_bytes(const char* module, size_t bytes);
// The text encoder that a module is of by its prefix, counted from 1. 0: it is of the denoiser. A prefix without a
// number means the first one; ANY_ENCODER: the prefix says only that the module is of one.
#define SUMI_ADAPTER_ANY_ENCODER (-1)
int32_t sumi_adapter_encoder(const char* module, size_t bytes);
#endif
