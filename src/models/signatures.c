// The names come from the released files (diffusers and transformers), the authors' own files, ComfyUI's
// repacked files and llama.cpp's conversions. Norms and biases identify networks better than matrices, because
// quantised files keep them. If the names of one network include those of another, the one with more names comes first.
#include "models/signatures.h"
#include <string.h>

static const char* const s_denoiser[] = {
    "", "model.diffusion_model.", "diffusion_model.", "transformer.", "inner_model.", NULL};
static const char* const s_text[] = {
    "", "text_encoders.*.transformer.", "text_encoders.*.", "text_encoder.", "cond_stage_model.transformer.", NULL};
static const char* const s_vision[] = {"visual.",
                                       "model.visual.",
                                       "text_encoders.*.transformer.visual.",
                                       "text_encoders.*.transformer.model.visual.",
                                       "text_encoders.*.visual.",
                                       "text_encoder.visual.",
                                       "",
                                       NULL};
static const char* const s_vae[] = {"", "vae.", "first_stage_model.", NULL};

#define TRANSFORMER(name, ...)                                                                                         \
    {                                                                                                                  \
        .component = SUMI_COMPONENT_TRANSFORMER, .network = name, .prefixes = s_denoiser, .tensors = { __VA_ARGS__ }   \
    }
#define REFUSED_TRANSFORMER(name, why, ...)                                                                            \
    {                                                                                                                  \
        .component = SUMI_COMPONENT_TRANSFORMER, .network = name, .prefixes = s_denoiser, .refusal = why, .tensors = { \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define REFUSED_CLASS(name, why, class)                                                                                \
    {                                                                                                                  \
        .component = SUMI_COMPONENT_TRANSFORMER, .network = name, .refusal = why, .class_name = class                  \
    }
#define TEXT(name, ...)                                                                                                \
    {                                                                                                                  \
        .component = SUMI_COMPONENT_TEXT_ENCODER, .network = name, .prefixes = s_text, .tensors = { __VA_ARGS__ }      \
    }
#define REFUSED_TEXT(name, why, ...)                                                                                   \
    {                                                                                                                  \
        .component = SUMI_COMPONENT_TEXT_ENCODER, .network = name, .prefixes = s_text, .refusal = why, .tensors = {    \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }
#define TEXT_2(name, ...)                                                                                              \
    {                                                                                                                  \
        .component = SUMI_COMPONENT_TEXT_ENCODER_2, .network = name, .prefixes = s_text, .tensors = { __VA_ARGS__ }    \
    }
#define VISION(name, ...)                                                                                              \
    {                                                                                                                  \
        .component = SUMI_COMPONENT_VISION, .network = name, .prefixes = s_vision, .tensors = { __VA_ARGS__ }          \
    }
// A convolution of `dimensions` dimensions whose second size, its input channels, is `channels`; 0: any number.
#define VAE(name, why, dimensions, channels, ...)                                                                      \
    {                                                                                                                  \
        .component = SUMI_COMPONENT_VAE, .network = name, .prefixes = s_vae,                                           \
        .shape = {dimensions, 1, channels, channels}, .refusal = why, .tensors = {                                     \
            __VA_ARGS__                                                                                                \
        }                                                                                                              \
    }

#define WHY_LAYERED                                                                                                    \
    "this is Qwen-Image-Layered, which makes stacks of transparent layers and is not supported; use Qwen-Image, "      \
    "Qwen-Image-2512 or one of the Edit models"
#define WHY_LAYERED_VAE "this is the VAE of Qwen-Image-Layered, with four channels per pixel; use the VAE of Qwen-Image"
#define WHY_CONTROL(model)                                                                                             \
    "this is a control net (ControlNet) for " model                                                                    \
    ", not the model itself; open the model, and then this file as its "                                               \
    "control net"
#define WHY_CONTROL_21                                                                                                 \
    "this is a control net for Qwen-Image-2.1, which is not supported; take one for Qwen-Image or Qwen-Image-2512"
#define WHY_MMPROJ                                                                                                     \
    "this is the vision tower of another model as llama.cpp stores it (mmproj); give the mmproj file of Qwen2.5-VL "   \
    "or Qwen3-VL, whichever the model has, or its safetensors files, as vision_path"
#define WHY_LUMINA "this is Lumina-Image 2, which is not supported; its relatives Z-Image and NewBie-image are"
#define WHY_UNET                                                                                                       \
    "this is a U-Net as Stable Diffusion and SDXL have, which is not supported; this library runs diffusion "          \
    "transformers"
#define WHY_UNET_VAE                                                                                                   \
    "this is a VAE with 4 latent channels, as Stable Diffusion and SDXL have; use the one that was released with the " \
    "model"
#define WHY_WAN_2_2                                                                                                    \
    "this is the VAE of Wan 2.2, with 48 latent channels and without alpha; use the VAE of Qwen-Image-2.1"
#define WHY_QWEN_3_5                                                                                                   \
    "this is a language model of Qwen3.5, as the prompt rewriters Qwen-Image-2.1-PE-T2I and Qwen-Image-2.1-PE-I2I "    \
    "are; it writes prompts, and no image model reads its features: use the text encoder that was released with the "  \
    "model, Qwen3-VL-8B-Instruct for Qwen-Image-2.1"
#define WHY_FLUX_1 "this is FLUX.1, which is not supported; FLUX.2 [klein] is: use FLUX.2-klein-4B"

static const sumi_signature s_signatures[] = {
    // ---- transformers
    TRANSFORMER("newbie-image", "clip_text_pooled_proj.0.weight", "cap_embedder.1.weight"),
    TRANSFORMER("newbie-image", "clip_text_pooled_proj.0.weight", "time_caption_embed.caption_embedder.1.weight"),
    TRANSFORMER("z-image", "cap_embedder.1.weight", "layers.0.adaLN_modulation.0.weight"),
    // the same names with index 1, because an activation has index 0
    REFUSED_TRANSFORMER("lumina-2", WHY_LUMINA, "cap_embedder.1.weight", "layers.0.adaLN_modulation.1.weight"),
    REFUSED_TRANSFORMER("lumina-2", WHY_LUMINA, "time_caption_embed.caption_embedder.1.weight",
                        "layers.0.norm1.linear.weight"),
    REFUSED_TRANSFORMER("qwen-image-layered", WHY_LAYERED, "time_text_embed.addition_t_embedding.weight",
                        "transformer_blocks.0.img_mod.1.weight"),
    REFUSED_TRANSFORMER("qwen-image-instantx", WHY_CONTROL("Qwen-Image"), "controlnet_blocks.0.weight",
                        "transformer_blocks.0.img_mod.1.weight"),
    REFUSED_TRANSFORMER("qwen-image-blockwise", WHY_CONTROL("Qwen-Image"), "controlnet_blocks.0.y_rms.weight"),
    REFUSED_TRANSFORMER("qwen-image-2.1-fun", WHY_CONTROL_21, "control_blocks.0.img_mlp.out.weight",
                        "control_img_in.weight"),
    REFUSED_TRANSFORMER("qwen-image-fun", WHY_CONTROL("Qwen-Image"), "control_blocks.0.after_proj.weight"),
    REFUSED_TRANSFORMER("z-image-fun", WHY_CONTROL("Z-Image"), "control_all_x_embedder.2-1.weight"),
    TRANSFORMER("qwen-image", "transformer_blocks.0.img_mod.1.weight"),
    TRANSFORMER("qwen-image-2.1", "txt_in.text_norm.weight", "modulation.1.weight"),
    REFUSED_TRANSFORMER("unet", WHY_UNET, "input_blocks.0.0.weight", "time_embed.0.weight"),
    REFUSED_TRANSFORMER("unet", WHY_UNET, "time_embedding.linear_1.weight", "down_blocks.0.resnets.0.conv1.weight"),
    TRANSFORMER("flux2", "double_stream_modulation_img.linear.weight", "single_stream_modulation.linear.weight"),
    TRANSFORMER("flux2", "double_stream_modulation_img.lin.weight", "single_stream_modulation.lin.weight"),
    REFUSED_TRANSFORMER("flux", WHY_FLUX_1, "double_blocks.0.img_attn.qkv.weight"),
    REFUSED_CLASS("flux", WHY_FLUX_1, "FluxTransformer2DModel"),

    // ---- text encoders; Gemma 3 has the names of the others and more, so it comes first
    TEXT("gemma3", "language_model.model.layers.0.pre_feedforward_layernorm.weight",
         "language_model.model.embed_tokens.weight"),
    TEXT("gemma3", "model.language_model.layers.0.pre_feedforward_layernorm.weight",
         "model.language_model.embed_tokens.weight"),
    TEXT("gemma3", "language_model.layers.0.pre_feedforward_layernorm.weight", "language_model.embed_tokens.weight"),
    TEXT("gemma3", "model.layers.0.pre_feedforward_layernorm.weight", "model.embed_tokens.weight"),
    TEXT("gemma3", "layers.0.pre_feedforward_layernorm.weight", "embed_tokens.weight"),
    TEXT("gemma3", "blk.0.post_ffw_norm.weight", "token_embd.weight"),
    REFUSED_TEXT("qwen3.5", WHY_QWEN_3_5, "model.language_model.layers.0.linear_attn.A_log"),
    REFUSED_TEXT("qwen3.5", WHY_QWEN_3_5, "language_model.layers.0.linear_attn.A_log"),
    REFUSED_TEXT("qwen3.5", WHY_QWEN_3_5, "model.layers.0.linear_attn.A_log"),
    REFUSED_TEXT("qwen3.5", WHY_QWEN_3_5, "layers.0.linear_attn.A_log"),
    REFUSED_TEXT("qwen3.5", WHY_QWEN_3_5, "blk.0.ssm_a", "token_embd.weight"),
    TEXT("qwen3", "model.layers.0.self_attn.q_norm.weight", "model.embed_tokens.weight"),
    TEXT("qwen3", "layers.0.self_attn.q_norm.weight", "embed_tokens.weight"),
    // Qwen3-VL's language model, which is Qwen3's. Without its vision tower it cannot be told from it by names
    TEXT("qwen3", "model.language_model.layers.0.self_attn.q_norm.weight", "model.language_model.embed_tokens.weight"),
    TEXT("qwen3", "language_model.layers.0.self_attn.q_norm.weight", "language_model.embed_tokens.weight"),
    TEXT("qwen3", "blk.0.attn_q_norm.weight", "token_embd.weight"),
    TEXT("qwen2.5-vl", "model.language_model.layers.0.self_attn.q_proj.bias",
         "model.language_model.embed_tokens.weight"),
    TEXT("qwen2.5-vl", "language_model.layers.0.self_attn.q_proj.bias", "language_model.embed_tokens.weight"),
    TEXT("qwen2.5-vl", "model.layers.0.self_attn.q_proj.bias", "model.embed_tokens.weight"),
    TEXT("qwen2.5-vl", "layers.0.self_attn.q_proj.bias", "embed_tokens.weight"),
    TEXT("qwen2.5-vl", "blk.0.attn_q.bias", "token_embd.weight"),
    // another language model, or one whose first layer is incomplete: binding it reports the missing tensor
    TEXT("language-model", "model.language_model.embed_tokens.weight"),
    TEXT("language-model", "language_model.model.embed_tokens.weight"),
    TEXT("language-model", "model.embed_tokens.weight"),
    TEXT("language-model", "embed_tokens.weight"),
    TEXT("language-model", "token_embd.weight"),

    TEXT_2("jina-clip", "text_model.transformer.roberta.emb_ln.weight"),
    TEXT_2("jina-clip", "model.emb_ln.weight", "model.embeddings.word_embeddings.weight"),
    TEXT_2("jina-clip", "model.emb_ln.weight", "model.embeddings.word_embeddings.parametrizations.weight.original"),

    // ---- vision towers
    VISION("qwen2.5-vl-vision", "merger.ln_q.weight", "patch_embed.proj.weight"),
    VISION("qwen3-vl-vision", "merger.linear_fc1.weight", "pos_embed.weight", "blocks.0.mlp.linear_fc1.weight"),
    VISION("qwen3-vl-vision", "v.position_embd.weight", "v.patch_embd.weight.1", "v.blk.0.attn_qkv.weight",
           "mm.2.weight"),
    VISION("qwen2.5-vl-vision", "v.patch_embd.weight.1", "v.blk.0.ffn_gate.weight", "v.post_ln.weight", "mm.2.weight"),
    {.component = SUMI_COMPONENT_VISION,
     .network = "mmproj",
     .prefixes = s_vision,
     .refusal = WHY_MMPROJ,
     .tensors = {"v.patch_embd.weight", "v.blk.0.ln1.weight"}},

    // ---- VAEs; the causal ones have one more dimension. Wan's names of the same network come second
    VAE("wan-vae-2.2", WHY_WAN_2_2, 0, 48, "decoder.conv_in.weight", "decoder.up_blocks.0.upsampler.resample.1.weight"),
    VAE("wan-vae-2.2", WHY_WAN_2_2, 0, 48, "decoder.conv1.weight", "decoder.upsamples.0.upsamples.0.residual.0.gamma"),
    VAE("qwen-vae-2.1", NULL, 0, 0, "decoder.up_blocks.0.upsampler.resample.1.weight", "decoder.conv_in.weight"),
    VAE("qwen-vae-2.1", NULL, 0, 0, "decoder.upsamples.0.upsamples.0.residual.0.gamma", "decoder.conv1.weight"),
    VAE("qwen-vae-layered", WHY_LAYERED_VAE, 5, 4, "encoder.conv_in.weight"),
    VAE("qwen-vae-layered", WHY_LAYERED_VAE, 5, 4, "encoder.conv1.weight"),
    VAE("qwen-vae", NULL, 5, 0, "decoder.conv_in.weight"),
    VAE("qwen-vae", NULL, 5, 0, "decoder.conv1.weight"),
    VAE("unet-vae", WHY_UNET_VAE, 4, 4, "decoder.conv_in.weight"),
    VAE("flux-vae", NULL, 4, 0, "decoder.conv_in.weight"),
    VAE("autoencoder", NULL, 0, 0, "decoder.conv_in.weight"),
    VAE("autoencoder", NULL, 0, 0, "decoder.conv1.weight"),
};

static const sumi_signature s_control_signatures[] = {
    TRANSFORMER("z-image-fun", "control_all_x_embedder.2-1.weight", "control_layers.0.after_proj.weight"),
    TRANSFORMER("qwen-image-blockwise", "controlnet_blocks.0.y_rms.weight", "controlnet_blocks.0.input_proj.weight"),
    TRANSFORMER("qwen-image-instantx", "controlnet_blocks.0.weight", "transformer_blocks.0.img_mlp.net.0.proj.weight"),
    REFUSED_TRANSFORMER("qwen-image-2.1-fun", WHY_CONTROL_21, "control_blocks.0.img_mlp.out.weight",
                        "control_img_in.weight"),
    TRANSFORMER("qwen-image-fun", "control_blocks.0.after_proj.weight", "control_img_in.weight"),
};

const sumi_signature* sumi_control_signatures(size_t* out_count)
{
    *out_count = sizeof s_control_signatures / sizeof *s_control_signatures;
    return s_control_signatures;
}

const char* sumi_control_family(const char* network)
{
    return strncmp(network, "z-image", 7) == 0 ? "Z-Image" : "Qwen-Image";
}

const char* const* const* sumi_class_words(void)
{
    static const char* const s_transformers[] = {"Transformer", "DiT", NULL};
    static const char* const s_autoencoders[] = {"Autoencoder", NULL};
    static const char* const* const s_words[SUMI_COMPONENT_COUNT] = {
        [SUMI_COMPONENT_TRANSFORMER] = s_transformers, [SUMI_COMPONENT_VAE] = s_autoencoders};
    return s_words;
}

const sumi_signature* sumi_signatures(size_t* out_count)
{
    *out_count = sizeof s_signatures / sizeof *s_signatures;
    return s_signatures;
}

// What these programs write beside or in place of a layer's weight. The names are those of nunchaku (SVDQuant),
// AutoGPTQ and AutoAWQ, bitsandbytes, SDNQ, optimum-quanto, torchao, compressed-tensors and HQQ. A method with more marks
// comes before those that have some of them.
static const sumi_foreign_method s_methods[] = {
    {"SVDQuant (nunchaku)", {".qweight", ".wscales"}, false},
    {"SVDQuant (nunchaku)", {".qweight", ".wtscale"}, false},
    {"SVDQuant (nunchaku)", {".qweight", ".smooth_factor"}, false},
    {"SVDQuant (nunchaku)", {".proj_down", ".proj_up"}, false},
    {"GPTQ", {".qweight", ".g_idx"}, false},
    {"AWQ or GPTQ", {".qweight", ".qzeros"}, false},
    {"AWQ, GPTQ or SVDQuant (nunchaku)", {".qweight"}, false},
    {"bitsandbytes (nf4)", {".quant_state.bitsandbytes__nf4"}, false},
    {"bitsandbytes (fp4)", {".quant_state.bitsandbytes__fp4"}, false},
    {"bitsandbytes (4 bits)", {".absmax"}, false},
    {"bitsandbytes (4 bits)", {".quant_map"}, false},
    {"bitsandbytes (int8)", {".SCB"}, false},
    {"SDNQ", {".svd_up", ".svd_down"}, false},
    {"SDNQ", {".zero_point", ".scale"}, false},
    {"SDNQ", {".scale", ".weight"}, true},
    {"quanto (optimum-quanto)", {"._data", "._scale"}, false},
    {"torchao", {"weight_qdata"}, false},
    {"torchao", {":qdata"}, false},
    {"compressed-tensors", {".weight_packed"}, false},
    {"HQQ", {".W_q"}, false},
    // marks that are not whole
    {"SVDQuant (nunchaku)", {".wscales"}, false},
    {"AWQ or GPTQ", {".qzeros"}, false},
    {"quanto (optimum-quanto)", {".weight._data"}, false},
    {"an unknown program", {".weight_quantized"}, false},
};

const sumi_foreign_method* sumi_foreign_methods(size_t* out_count)
{
    *out_count = sizeof s_methods / sizeof *s_methods;
    return s_methods;
}

const char* sumi_family_of_class(const char* class_name)
{
    // a name that begins with another one comes before it
    static const char* const s_classes[][2] = {{"ZImage", "z-image"},
                                               {"QwenImageLayered", "qwen-image-layered"},
                                               {"QwenImage21", "qwen-image-2.1"},
                                               {"QwenImage", "qwen-image"},
                                               {"Flux2", "flux2"},
                                               {"Newbie", "newbie-image"},
                                               {"NewBie", "newbie-image"}};
    for (size_t i = 0; i < sizeof s_classes / sizeof *s_classes; i++) {
        if (strncmp(class_name, s_classes[i][0], strlen(s_classes[i][0])) == 0) return s_classes[i][1];
    }
    return "";
}

sumi_result sumi_signatures_check(const sumi_checkpoint* checkpoint, sumi_error* error)
{
    for (int32_t kind = 0; kind < SUMI_COMPONENT_COUNT; kind++) {
        const sumi_component* component = &checkpoint->components[kind];
        char text[1024];
        if (!sumi_component_is_refused(component, text, sizeof text)) continue;
        return sumi_fail(error, component->method != NULL ? SUMI_NOT_SUPPORTED : SUMI_MODEL_UNKNOWN, "%s: %s",
                         component->path, text);
    }
    return SUMI_OK;
}
