// How networks are told by their tensors: the families that the library has, those that it refuses by name, signatures
// of the caller, and what belongs to a component.
#include "files/checkpoint.h"
#include "files/tensors.h"
#include "memory_files.h"
#include "models/signatures.h"

// One file of tensors, the first of the given rank and second size; the others have one element.
static void put_shaped(memory_files* files, const char* path, int32_t rank, int64_t second, const char* const* names)
{
    static float s_zeros[128];
    sumi_tensor tensors[8];
    size_t count = 0;
    for (; names[count] != NULL; count++) {
        tensors[count] = (sumi_tensor){
            .name = names[count], .dtype = SUMI_DTYPE_F32, .rank = 1, .shape = {1}, .data = s_zeros, .bytes = 4};
    }
    tensors[0].rank = rank;
    for (int32_t i = 0; i < rank; i++) tensors[0].shape[i] = i == 1 ? second : 1;
    tensors[0].bytes = 4 * (uint64_t)(rank > 1 ? second : 1);
    const uint64_t bytes = sumi_safetensors_write(tensors, count, NULL, 0, NULL, 0);
    void* image = malloc((size_t)bytes);
    sumi_safetensors_write(tensors, count, NULL, 0, image, bytes);
    put_bytes(files, path, image, (size_t)bytes);
    files->list[files->count - 1].owned = true;
}

TEST(signatures_tell_networks_and_refuse_by_name)
{
    static const struct {
        const char* names[4];
        int32_t rank;
        int64_t second;
        sumi_component_kind kind;
        const char *network, *prefix, *refusal;
    } s_cases[] = {
        {{"cap_embedder.1.weight", "layers.0.adaLN_modulation.0.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "z-image",
         "",
         NULL},
        {{"inner_model.cap_embedder.1.weight", "inner_model.clip_text_pooled_proj.0.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "newbie-image",
         "inner_model.",
         NULL},
        {{"cap_embedder.1.weight", "layers.0.adaLN_modulation.1.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "lumina-2",
         "",
         "Lumina"},
        {{"model.diffusion_model.transformer_blocks.0.img_mod.1.weight",
          "model.diffusion_model.time_text_embed.addition_t_embedding.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "qwen-image-layered",
         "model.diffusion_model.",
         "Layered"},
        {{"transformer_blocks.0.img_mod.1.weight", "controlnet_blocks.0.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "qwen-image-instantx",
         "",
         "ControlNet"},
        {{"controlnet_blocks.0.y_rms.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "qwen-image-blockwise",
         "",
         "Qwen-Image"},
        {{"control_blocks.0.after_proj.weight", "control_blocks.0.img_mlp.out.weight", "control_img_in.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "qwen-image-2.1-fun",
         "",
         "control net for Qwen-Image-2.1, which is not supported"},
        {{"transformer.control_blocks.0.after_proj.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "qwen-image-fun",
         "transformer.",
         "Qwen-Image"},
        {{"control_all_x_embedder.2-1.weight"}, 2, 8, SUMI_COMPONENT_TRANSFORMER, "z-image-fun", "", "Z-Image"},
        {{"model.diffusion_model.input_blocks.0.0.weight", "model.diffusion_model.time_embed.0.weight"},
         4,
         4,
         SUMI_COMPONENT_TRANSFORMER,
         "unet",
         "model.diffusion_model.",
         "SDXL"},
        {{"double_blocks.0.img_attn.qkv.weight"}, 2, 8, SUMI_COMPONENT_TRANSFORMER, "flux", "", "FLUX.1"},
        {{"double_stream_modulation_img.linear.weight", "single_stream_modulation.linear.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "flux2",
         "",
         NULL},
        {{"model.diffusion_model.double_stream_modulation_img.lin.weight",
          "model.diffusion_model.single_stream_modulation.lin.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "flux2",
         "model.diffusion_model.",
         NULL},
        {{"text_encoders.qwen3_4b.transformer.model.embed_tokens.weight",
          "text_encoders.qwen3_4b.transformer.model.layers.0.self_attn.q_norm.weight"},
         2,
         8,
         SUMI_COMPONENT_TEXT_ENCODER,
         "qwen3",
         "text_encoders.qwen3_4b.transformer.",
         NULL},
        {{"token_embd.weight", "blk.0.attn_q_norm.weight"}, 2, 8, SUMI_COMPONENT_TEXT_ENCODER, "qwen3", "", NULL},
        {{"token_embd.weight", "blk.0.attn_q_norm.weight", "blk.0.post_ffw_norm.weight"},
         2,
         8,
         SUMI_COMPONENT_TEXT_ENCODER,
         "gemma3",
         "",
         NULL},
        {{"token_embd.weight", "blk.0.ssm_a"}, 2, 8, SUMI_COMPONENT_TEXT_ENCODER, "qwen3.5", "", "PE-T2I"},
        {{"text_encoders.qwen35.transformer.model.language_model.embed_tokens.weight",
          "text_encoders.qwen35.transformer.model.language_model.layers.0.linear_attn.A_log"},
         2,
         8,
         SUMI_COMPONENT_TEXT_ENCODER,
         "qwen3.5",
         "text_encoders.qwen35.transformer.",
         "PE-I2I"},
        {{"token_embd.weight", "blk.0.attn_q.bias"}, 2, 8, SUMI_COMPONENT_TEXT_ENCODER, "qwen2.5-vl", "", NULL},
        {{"model.embed_tokens.weight", "model.layers.0.self_attn.q_norm.weight",
          "model.layers.0.pre_feedforward_layernorm.weight"},
         2,
         8,
         SUMI_COMPONENT_TEXT_ENCODER,
         "gemma3",
         "",
         NULL},
        {{"language_model.model.embed_tokens.weight", "language_model.model.layers.0.pre_feedforward_layernorm.weight"},
         2,
         8,
         SUMI_COMPONENT_TEXT_ENCODER,
         "gemma3",
         "",
         NULL},
        {{"model.language_model.embed_tokens.weight", "model.language_model.layers.0.self_attn.q_proj.bias"},
         2,
         8,
         SUMI_COMPONENT_TEXT_ENCODER,
         "qwen2.5-vl",
         "",
         NULL},
        {{"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.bias"},
         2,
         8,
         SUMI_COMPONENT_TEXT_ENCODER,
         "qwen2.5-vl",
         "",
         NULL},
        {{"text_encoders.jina_clip.text_model.transformer.roberta.emb_ln.weight"},
         1,
         1,
         SUMI_COMPONENT_TEXT_ENCODER_2,
         "jina-clip",
         "text_encoders.jina_clip.",
         NULL},
        {{"model.emb_ln.weight", "model.embeddings.word_embeddings.weight"},
         1,
         1,
         SUMI_COMPONENT_TEXT_ENCODER_2,
         "jina-clip",
         "",
         NULL},
        {{"model.visual.patch_embed.proj.weight", "model.visual.merger.ln_q.weight"},
         5,
         3,
         SUMI_COMPONENT_VISION,
         "qwen2.5-vl-vision",
         "model.visual.",
         NULL},
        {{"v.patch_embd.weight.1", "v.blk.0.ffn_gate.weight", "v.post_ln.weight", "mm.2.weight"},
         4,
         3,
         SUMI_COMPONENT_VISION,
         "qwen2.5-vl-vision",
         "",
         NULL},
        {{"v.patch_embd.weight", "v.blk.0.ln1.weight", "v.post_ln.weight", "mm.2.weight"},
         4,
         3,
         SUMI_COMPONENT_VISION,
         "mmproj",
         "",
         "mmproj"},
        {{"vae.decoder.conv_in.weight"}, 4, 16, SUMI_COMPONENT_VAE, "flux-vae", "vae.", NULL},
        {{"decoder.conv_in.weight", "decoder.post_quant_conv.weight"}, 4, 32, SUMI_COMPONENT_VAE, "flux-vae", "", NULL},
        {{"first_stage_model.decoder.conv_in.weight"},
         4,
         4,
         SUMI_COMPONENT_VAE,
         "unet-vae",
         "first_stage_model.",
         "4 latent"},
        {{"decoder.conv_in.weight"}, 5, 16, SUMI_COMPONENT_VAE, "qwen-vae", "", NULL},
        {{"decoder.conv1.weight"}, 5, 16, SUMI_COMPONENT_VAE, "qwen-vae", "", NULL},
        {{"vae.decoder.up_blocks.0.upsampler.resample.1.weight", "vae.decoder.conv_in.weight"},
         4,
         16,
         SUMI_COMPONENT_VAE,
         "qwen-vae-2.1",
         "vae.",
         NULL},
        {{"encoder.conv1.weight", "decoder.conv1.weight", "decoder.upsamples.0.upsamples.0.residual.0.gamma"},
         5,
         4,
         SUMI_COMPONENT_VAE,
         "qwen-vae-2.1",
         "",
         NULL},
        {{"decoder.conv1.weight", "decoder.upsamples.0.upsamples.0.residual.0.gamma"},
         5,
         48,
         SUMI_COMPONENT_VAE,
         "wan-vae-2.2",
         "",
         "Wan 2.2"},
        {{"vae.decoder.conv_in.weight", "vae.decoder.up_blocks.0.upsampler.resample.1.weight"},
         5,
         48,
         SUMI_COMPONENT_VAE,
         "wan-vae-2.2",
         "vae.",
         "Wan 2.2"},
        {{"encoder.conv1.weight", "decoder.conv1.weight"}, 5, 4, SUMI_COMPONENT_VAE, "qwen-vae-layered", "", "Layered"},
        {{"encoder.conv_in.weight", "decoder.conv_in.weight"},
         5,
         4,
         SUMI_COMPONENT_VAE,
         "qwen-vae-layered",
         "",
         "Layered"},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        memory_files files = {.with_map = true};
        sumi_files host;
        const char* names[5] = {0};
        memcpy(names, s_cases[i].names, sizeof s_cases[i].names);
        put_shaped(&files, "one.safetensors", s_cases[i].rank, s_cases[i].second, names);
        sumi_checkpoint c = {0};
        sumi_error error;
        CHECK_NUMBER(open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.path = "one.safetensors"}, &error),
                     SUMI_OK);
        for (int kind = 0; kind < SUMI_COMPONENT_COUNT; kind++)
            CHECK(c.components[kind].present == (kind == (int)s_cases[i].kind));
        const sumi_component* component = &c.components[s_cases[i].kind];
        CHECK_TEXT(sumi_component_network(component), s_cases[i].network);
        CHECK_TEXT(component->prefix, s_cases[i].prefix);
        const sumi_result result = sumi_signatures_check(&c, &error);
        CHECK_NUMBER(result, s_cases[i].refusal != NULL ? SUMI_MODEL_UNKNOWN : SUMI_OK);
        CHECK(strstr(error.text, s_cases[i].refusal != NULL ? s_cases[i].refusal : "") != NULL);
        CHECK(s_cases[i].refusal == NULL || strstr(error.text, "one.safetensors: ") == error.text);
        sumi_checkpoint_close(&c);
        release(&files);
    }
    CHECK_TEXT(sumi_family_of_class("QwenImageEditPlusPipeline"), "qwen-image");
    CHECK_TEXT(sumi_family_of_class("QwenImageLayeredPipeline"), "qwen-image-layered");
    CHECK_TEXT(sumi_family_of_class("Flux2KleinPipeline"), "flux2");
    CHECK_TEXT(sumi_family_of_class("StableDiffusionXLPipeline"), "");
}

// Every method of quantisation that is refused, by the names that its program writes, for every component and for
// files that no signature knows.
TEST(signatures_refuse_foreign_quantisation_by_its_name)
{
    static const struct {
        const char *names[2], *method;
        sumi_dtype beside; // the type of the second tensor
    } s_marks[] = {
        {{"x.qweight", "x.wscales"}, "SVDQuant (nunchaku)", SUMI_DTYPE_F32},
        {{"x.qweight", "x.wtscale"}, "SVDQuant (nunchaku)", SUMI_DTYPE_F32},
        {{"x.qweight", "x.smooth_factor"}, "SVDQuant (nunchaku)", SUMI_DTYPE_F32},
        {{"x.proj_down", "x.proj_up"}, "SVDQuant (nunchaku)", SUMI_DTYPE_F32},
        {{"x.qweight", "x.g_idx"}, "with GPTQ,", SUMI_DTYPE_F32},
        {{"x.qweight", "x.qzeros"}, "AWQ or GPTQ", SUMI_DTYPE_F32},
        {{"x.qweight"}, "AWQ, GPTQ or SVDQuant", SUMI_DTYPE_F32},
        {{"x.weight.quant_state.bitsandbytes__nf4", "x.weight.absmax"}, "bitsandbytes (nf4)", SUMI_DTYPE_F32},
        {{"x.weight.quant_state.bitsandbytes__fp4", "x.weight.quant_map"}, "bitsandbytes (fp4)", SUMI_DTYPE_F32},
        {{"x.weight.absmax"}, "bitsandbytes (4 bits)", SUMI_DTYPE_F32},
        {{"x.weight.quant_map"}, "bitsandbytes (4 bits)", SUMI_DTYPE_F32},
        {{"x.SCB"}, "bitsandbytes (int8)", SUMI_DTYPE_F32},
        {{"x.svd_up", "x.svd_down"}, "SDNQ", SUMI_DTYPE_F32},
        {{"x.zero_point", "x.scale"}, "SDNQ", SUMI_DTYPE_F32},
        {{"x.scale", "x.weight"}, "SDNQ", SUMI_DTYPE_U8},
        {{"x.scale", "x.weight"}, NULL, SUMI_DTYPE_F32}, // a factor beside a weight may mean anything
        {{"x.scale", "y.weight"}, NULL, SUMI_DTYPE_U8},
        {{"x.weight._data", "x.weight._scale"}, "quanto", SUMI_DTYPE_F32},
        {{"x._weight_qdata"}, "torchao", SUMI_DTYPE_F32},
        {{"x.weight:qdata"}, "torchao", SUMI_DTYPE_F32},
        {{"x.weight_packed"}, "compressed-tensors", SUMI_DTYPE_F32},
        {{"x.W_q"}, "HQQ", SUMI_DTYPE_F32},
        {{"x.wscales"}, "SVDQuant (nunchaku)", SUMI_DTYPE_F32},
        {{"x.qzeros"}, "AWQ or GPTQ", SUMI_DTYPE_F32},
        {{"x.weight._data"}, "quanto", SUMI_DTYPE_F32},
        {{"x.weight_quantized"}, "an unknown program", SUMI_DTYPE_F32},
        {{"x.weight", "x.weight_scale"}, NULL, SUMI_DTYPE_F32}, // fp8 and int8 with scales, which are read
        {{"x.weight", "x.comfy_quant"}, NULL, SUMI_DTYPE_F32},
    };
    static const char* const s_parts[][3] = {
        {"cap_embedder.1.weight", "layers.0.adaLN_modulation.0.weight"}, // Z-Image
        {"embed_tokens.weight", "layers.0.self_attn.q_norm.weight"},     // Qwen3
        {"decoder.conv_in.weight"},
        {"unknown"},
    };
    static const sumi_component_kind s_kinds[] = {SUMI_COMPONENT_TRANSFORMER, SUMI_COMPONENT_TEXT_ENCODER,
                                                  SUMI_COMPONENT_VAE, SUMI_COMPONENT_TRANSFORMER};
    static float s_zeros[4];
    for (size_t m = 0; m < sizeof s_marks / sizeof *s_marks; m++) {
        for (size_t p = 0; p < sizeof s_parts / sizeof *s_parts; p++) {
            memory_files files = {.count = 0};
            sumi_tensor tensors[4];
            size_t count = 0;
            for (size_t i = 0; i < 2 && s_marks[m].names[i] != NULL; i++) {
                const sumi_dtype type = i == 1 ? s_marks[m].beside : SUMI_DTYPE_F32;
                tensors[count++] = (sumi_tensor){.name = s_marks[m].names[i],
                                                 .dtype = type,
                                                 .rank = 1,
                                                 .shape = {1},
                                                 .data = s_zeros,
                                                 .bytes = type == SUMI_DTYPE_U8 ? 1 : 4};
            }
            for (size_t i = 0; s_parts[p][i] != NULL; i++)
                tensors[count++] = (sumi_tensor){.name = s_parts[p][i],
                                                 .dtype = SUMI_DTYPE_F32,
                                                 .rank = 2,
                                                 .shape = {1, 1},
                                                 .data = s_zeros,
                                                 .bytes = 4};
            static unsigned char s_image[4096];
            const uint64_t bytes = sumi_safetensors_write(tensors, count, NULL, 0, s_image, sizeof s_image);
            CHECK(bytes <= sizeof s_image);
            put_bytes(&files, "part.safetensors", s_image, (size_t)bytes);
            for (int32_t is_given = 0; is_given < 2; is_given++) { // the file alone; the file as the path of its part
                sumi_checkpoint_desc desc = {.path = "part.safetensors"};
                if (is_given) {
                    desc.path = NULL;
                    desc.component_paths[s_kinds[p]] = "part.safetensors";
                }
                sumi_files host;
                sumi_checkpoint c;
                sumi_error error;
                sumi_result result = open_checkpoint(&c, &files, &host, &desc, &error);
                if (result == SUMI_OK) result = sumi_signatures_check(&c, &error);
                if (s_marks[m].method == NULL) {
                    CHECK_NUMBER(result, p < 3 ? SUMI_OK : SUMI_MODEL_UNKNOWN);
                } else {
                    CHECK_NUMBER(result, SUMI_NOT_SUPPORTED);
                    CHECK(strncmp(error.text, "part.safetensors: its weights are quantised with ", 49) == 0);
                    CHECK(strstr(error.text, s_marks[m].method) != NULL);
                    CHECK(strstr(error.text, s_marks[m].names[0]) != NULL);
                    CHECK(strstr(error.text, "take the bf16, fp8 ") != NULL);
                }
                sumi_checkpoint_close(&c);
            }
            release(&files);
        }
    }
}

TEST(signatures_come_from_the_caller)
{
    static const char* const s_prefixes[] = {"", "*.net.", NULL};
    const sumi_signature table[] = {
        {.component = SUMI_COMPONENT_TRANSFORMER,
         .network = "small",
         .prefixes = s_prefixes,
         .tensors = {"a", "b"},
         .shape = {2, 1, 1, 8}},
        {.component = SUMI_COMPONENT_TRANSFORMER,
         .network = "large",
         .prefixes = s_prefixes,
         .tensors = {"a", "b"},
         .shape = {2, 1, 9, 64}},
        {.component = SUMI_COMPONENT_TRANSFORMER, .network = "any", .tensors = {"a"}},
        {.component = SUMI_COMPONENT_VAE, .network = "by class", .class_name = "AutoencoderX"},
        {.component = SUMI_COMPONENT_TEXT_ENCODER, .network = "by architecture", .class_name = "XModel"},
    };
    static const struct {
        const char* names[3];
        int64_t second;
        const char *network, *prefix;
    } s_cases[] = {
        {{"a", "b"}, 8, "small", ""},     {{"a", "b"}, 9, "large", ""},
        {{"a", "b"}, 65, "any", ""},      {{"x.net.a", "x.net.b"}, 9, "large", "x.net."},
        {{"a", "x.net.b"}, 9, "any", ""}, {{"x.net.a", "y.net.b"}, 9, NULL, NULL},
        {{"x.a", "x.b"}, 9, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        memory_files files = {.with_map = true};
        sumi_files host;
        put_shaped(&files, "one.safetensors", 2, s_cases[i].second,
                   (const char* const[]){s_cases[i].names[0], s_cases[i].names[1], NULL});
        sumi_checkpoint c = {0};
        sumi_error error;
        const sumi_checkpoint_desc desc = {.path = "one.safetensors", .signatures = table, .signature_count = 5};
        CHECK_NUMBER(open_checkpoint(&c, &files, &host, &desc, &error),
                     s_cases[i].network != NULL ? SUMI_OK : SUMI_MODEL_UNKNOWN);
        if (s_cases[i].network != NULL) {
            CHECK_TEXT(network_of(&c), s_cases[i].network);
            CHECK_TEXT(c.components[SUMI_COMPONENT_TRANSFORMER].prefix, s_cases[i].prefix);
        }
        sumi_checkpoint_close(&c);
        release(&files);
    }
    // by class where the tensors say nothing
    memory_files files = {.with_map = true};
    sumi_files host;
    put_tensors(&files, "m/vae/model.safetensors", NAMES("unheard.of"));
    put_text(&files, "m/vae/config.json",
             "{\"x\":[1],\"architectures\":[\"Y\",\"Z\"],\"_class_name\":\"AutoencoderX\"}");
    put_tensors(&files, "m/text_encoder/model.safetensors", NAMES("unheard.of"));
    put_text(&files, "m/text_encoder/config.json", "{\"architectures\":[\"XModel\"],\"y\":2}");
    put_tensors(&files, "m/transformer/model.safetensors", NAMES("unheard.of"));
    put_text(&files, "m/transformer/config.json", "{\"architectures\":[]}");
    sumi_checkpoint c = {0};
    sumi_error error;
    const sumi_checkpoint_desc desc = {.path = "m", .signatures = table, .signature_count = 5};
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &desc, &error), SUMI_OK);
    CHECK_TEXT(sumi_component_network(&c.components[SUMI_COMPONENT_VAE]), "by class");
    CHECK_TEXT(sumi_component_network(&c.components[SUMI_COMPONENT_TEXT_ENCODER]), "by architecture");
    CHECK(c.components[SUMI_COMPONENT_TRANSFORMER].present
          && c.components[SUMI_COMPONENT_TRANSFORMER].signature == NULL);
    sumi_checkpoint_close(&c);
    release(&files);
    CHECK_NUMBER(s_heap.allocated_bytes, 0);
}

TEST(checkpoint_finds_two_encoders_and_a_vision_tower)
{
    memory_files files = {.with_map = true};
    sumi_files host;
    put_pair(&files);
    put_text(&files, "q/preprocessor_config.json", "{\"q\":1}");
    put_text(&files, "q/broken.json", "{");
    put_tensors(&files, "tower.safetensors", NAMES("patch_embed.proj.weight", "merger.ln_q.weight"));
    put_tensors(&files, "second/text_encoder_2/model.safetensors",
                NAMES("text_model.transformer.roberta.emb_ln.weight"));
    sumi_checkpoint c = {0};
    sumi_error error;
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.path = "p"}, &error), SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK_TEXT(network_of(&c), "newbie-image");
    const sumi_component* vision = &c.components[SUMI_COMPONENT_VISION];
    CHECK_TEXT(vision->prefix, "visual.");
    CHECK(vision->set == c.components[SUMI_COMPONENT_TEXT_ENCODER].set && vision->config.data != NULL);
    CHECK(holds(vision, "blocks.0.norm1.weight") && !holds(vision, "model.embed_tokens.weight"));
    CHECK_TEXT(c.components[SUMI_COMPONENT_TEXT_ENCODER_2].path, "p/clip_model");
    CHECK_TEXT(c.components[SUMI_COMPONENT_TEXT_ENCODER_2].config.path, "p/clip_model/config.json");
    const sumi_checkpoint_tokenizer* t = c.tokenizers;
    CHECK(t[0].form == SUMI_TOKENIZER_VOCABULARY && t[1].form == SUMI_TOKENIZER_SENTENCEPIECE);
    CHECK_TEXT(t[0].path, "p/text_encoder/vocab.json");
    CHECK_TEXT(t[0].folder, "p/text_encoder");
    CHECK_TEXT(t[1].path, "p/clip_model/sentencepiece.bpe.model");
    CHECK(t[0].merges.data != NULL && t[0].added.data != NULL && t[0].config.data != NULL && t[0].special.data != NULL);
    CHECK(t[1].bytes == 5 && t[1].merges.data == NULL && t[1].config.data == NULL);
    CHECK_TEXT(c.processor.path, "p/processor/preprocessor_config.json");
    sumi_checkpoint_close(&c);
    // nothing that a prompt needs
    CHECK_NUMBER(
        open_checkpoint(&c, &files, &host,
                        &(sumi_checkpoint_desc){.path = "p", .without_text_encoder = true, .processor_path = "gone"},
                        &error),
        SUMI_OK);
    CHECK(!c.components[SUMI_COMPONENT_TEXT_ENCODER].present && !c.components[SUMI_COMPONENT_TEXT_ENCODER_2].present
          && !c.components[SUMI_COMPONENT_VISION].present);
    CHECK(c.tokenizers[0].form == SUMI_TOKENIZER_ABSENT && c.tokenizers[1].form == SUMI_TOKENIZER_ABSENT
          && c.processor.data == NULL);
    sumi_checkpoint_close(&c);
    // a path each
    CHECK_NUMBER(
        open_checkpoint(
            &c, &files, &host,
            &(sumi_checkpoint_desc){
                .path = "p",
                .component_paths =
                    {[SUMI_COMPONENT_VISION] = "tower.safetensors", [SUMI_COMPONENT_TEXT_ENCODER_2] = "second"},
                .tokenizer_paths = {"p/clip_model", "p/text_encoder/vocab.json"},
                .processor_path = "q"},
            &error),
        SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK_TEXT(vision->path, "tower.safetensors");
    CHECK_TEXT(vision->prefix, "");
    CHECK_TEXT(c.components[SUMI_COMPONENT_TEXT_ENCODER_2].path, "second/text_encoder_2");
    CHECK(t[0].form == SUMI_TOKENIZER_SENTENCEPIECE && t[1].form == SUMI_TOKENIZER_VOCABULARY
          && t[1].merges.data != NULL);
    CHECK_TEXT(c.processor.path, "q/preprocessor_config.json");
    sumi_checkpoint_close(&c);
    // a tower in its text encoder's folder, given by itself
    CHECK_NUMBER(open_checkpoint(&c, &files, &host,
                                 &(sumi_checkpoint_desc){.component_paths = {[SUMI_COMPONENT_VISION] = "p"}}, &error),
                 SUMI_OK);
    CHECK_TEXT(vision->path, "p/text_encoder");
    sumi_checkpoint_close(&c);
    static const struct {
        sumi_checkpoint_desc desc;
        sumi_result result;
        const char *word, *also;
    } s_cases[] = {
        {{.path = "p", .processor_path = "p/clip_model"},
         SUMI_FILE_NOT_FOUND,
         "p/clip_model",
         "preprocessor_config.json"},
        {{.path = "p", .processor_path = "q/broken.json"}, SUMI_FILE_MALFORMED, "q/broken.json", "JSON"},
        {{.path = "p", .tokenizer_paths = {"q"}}, SUMI_FILE_NOT_FOUND, "q: ", "tokenizer.model"},
        {{.path = "p", .component_paths = {[SUMI_COMPONENT_VAE] = "tower.safetensors"}},
         SUMI_MODEL_UNKNOWN,
         "known vae",
         "vision \"qwen2.5-vl-vision\""},
        {{.path = "p", .component_paths = {[SUMI_COMPONENT_TEXT_ENCODER_2] = "p/text_encoder"}},
         SUMI_MODEL_UNKNOWN,
         "text_encoder_2",
         "text_encoder \"qwen2.5-vl\""},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        CHECK_NUMBER(open_checkpoint(&c, &files, &host, &s_cases[i].desc, &error), s_cases[i].result);
        CHECK(strstr(error.text, s_cases[i].word) != NULL && strstr(error.text, s_cases[i].also) != NULL);
        sumi_checkpoint_close(&c);
    }
    release(&files);
    CHECK_NUMBER(s_heap.allocated_bytes, 0);
}

TEST(tokenizers_are_found_beside_the_weights)
{
    memory_files files = {.with_map = true};
    sumi_files host;
    put_tensors(&files, "t/gemma.safetensors", NAMES("model.embed_tokens.weight"));
    put_tensors(&files, "t/jina.safetensors",
                NAMES("model.emb_ln.weight", "model.embeddings.word_embeddings.weight", "spiece_model"));
    put_tensors(&files, "u/jina.safetensors", NAMES("text_model.transformer.roberta.emb_ln.weight"));
    put_text(&files, "t/tokenizer.json", "{}");
    put_text(&files, "odd/pieces", "\x0A\x03\x0A\x01x");
    put_text(&files, "odd/text", " \n{}");
    sumi_checkpoint c = {0};
    sumi_error error;
    sumi_checkpoint_desc desc = {.component_paths = {[SUMI_COMPONENT_TEXT_ENCODER] = "t/gemma.safetensors",
                                                     [SUMI_COMPONENT_TEXT_ENCODER_2] = "t/jina.safetensors"}};
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &desc, &error), SUMI_OK);
    CHECK(c.tokenizers[0].form == SUMI_TOKENIZER_JSON);
    CHECK_TEXT(c.tokenizers[0].path, "t/tokenizer.json");
    CHECK(c.tokenizers[1].form == SUMI_TOKENIZER_SENTENCEPIECE && c.tokenizers[1].bytes == 4
          && c.tokenizers[1].folder == NULL);
    CHECK_TEXT(c.tokenizers[1].path, "t/jina.safetensors");
    sumi_checkpoint_close(&c);
    // a tokenizer.json beside two encoders is the first one's; the message names where the second one's was looked for
    desc.component_paths[SUMI_COMPONENT_TEXT_ENCODER_2] = "u/jina.safetensors";
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &desc, &error), SUMI_OK);
    CHECK(c.tokenizers[1].form == SUMI_TOKENIZER_ABSENT);
    CHECK_NUMBER(sumi_checkpoint_tokenizer_missing(&c.tokenizers[1], 1, "u/jina.safetensors", &error),
                 SUMI_FILE_NOT_FOUND);
    CHECK(strstr(error.text, "merges.txt") != NULL && strstr(error.text, "in u/tokenizer_2") != NULL);
    sumi_checkpoint_close(&c);
    // files whose names say nothing
    desc.tokenizer_paths[0] = "odd/pieces";
    desc.tokenizer_paths[1] = "odd/text";
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &desc, &error), SUMI_OK);
    CHECK(c.tokenizers[0].form == SUMI_TOKENIZER_SENTENCEPIECE && c.tokenizers[1].form == SUMI_TOKENIZER_JSON);
    sumi_checkpoint_close(&c);
    release(&files);
    CHECK_NUMBER(s_heap.allocated_bytes, 0);
}

// A GGUF file of an encoder's first tensors, with the metadata of another file, which has no tensors.
static void put_gguf_encoder(memory_files* files, const char* path, const char* metadata_path)
{
    static const char* const s_names[] = {"blk.0.attn_q_norm.weight", "token_embd.weight"};
    size_t bytes;
    unsigned char* metadata = read_whole(metadata_path, &bytes);
    CHECK(metadata != NULL && memcmp(metadata + 8, "\0\0\0\0\0\0\0\0", 8) == 0);
    unsigned char* image = calloc(bytes + 256, 1);
    if (metadata != NULL) memcpy(image, metadata, bytes);
    free(metadata);
    image[8] = 2; // tensors: a name, one dimension of one element, float32, an offset
    for (unsigned char i = 0; i < 2; i++) {
        image[bytes] = (unsigned char)strlen(s_names[i]);
        memcpy(image + bytes + 8, s_names[i], strlen(s_names[i]));
        bytes += 8 + strlen(s_names[i]);
        image[bytes] = image[bytes + 4] = 1;
        image[bytes + 16] = (unsigned char)(32 * i);
        bytes += 24;
    }
    bytes = (bytes + 31) / 32 * 32 + 64;
    put_bytes(files, path, image, bytes);
    files->list[files->count - 1].owned = true;
}

// The tokenizer in the file itself comes last: files beside it say more.
TEST(a_gguf_encoder_brings_its_tokenizer)
{
    memory_files files = {0};
    sumi_files host = callbacks(&files);
    put_gguf_encoder(&files, "t/te.gguf", "tests/golden/common/tokenizers/qwen/tokenizer.gguf");
    put_text(&files, "given/tokenizer.json", "{}");
    sumi_checkpoint c = {0};
    sumi_error error;
    sumi_checkpoint_desc desc = {.component_paths = {[SUMI_COMPONENT_TEXT_ENCODER] = "t/te.gguf"}};
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &desc, &error), SUMI_OK);
    CHECK_TEXT(sumi_component_network(&c.components[SUMI_COMPONENT_TEXT_ENCODER]), "qwen3");
    CHECK(c.tokenizers[0].form == SUMI_TOKENIZER_GGUF && c.tokenizers[0].set != NULL && c.tokenizers[0].bytes > 10000);
    CHECK_TEXT(c.tokenizers[0].path, "t/te.gguf");
    sumi_checkpoint_close(&c);
    desc.tokenizer_paths[0] = "given/tokenizer.json";
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &desc, &error), SUMI_OK);
    CHECK(c.tokenizers[0].form == SUMI_TOKENIZER_JSON);
    sumi_checkpoint_close(&c);
    desc.tokenizer_paths[0] = NULL;
    put_text(&files, "t/tokenizer.json", "{}");
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &desc, &error), SUMI_OK);
    CHECK(c.tokenizers[0].form == SUMI_TOKENIZER_JSON);
    CHECK_TEXT(c.tokenizers[0].path, "t/tokenizer.json");
    sumi_checkpoint_close(&c);
    release(&files);
    CHECK_NUMBER(s_heap.allocated_bytes, 0);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(signatures_tell_networks_and_refuse_by_name);
    RUN(signatures_refuse_foreign_quantisation_by_its_name);
    RUN(signatures_come_from_the_caller);
    RUN(checkpoint_finds_two_encoders_and_a_vision_tower);
    RUN(tokenizers_are_found_beside_the_weights);
    RUN(a_gguf_encoder_brings_its_tokenizer);
    TEST_END();
}
