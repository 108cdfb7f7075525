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
         "qwen-image-controlnet",
         "",
         "ControlNet"},
        {{"transformer_blocks.0.img_mod.1.qweight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "qwen-image-svdquant",
         "",
         "SVDQuant"},
        {{"model.diffusion_model.input_blocks.0.0.weight", "model.diffusion_model.time_embed.0.weight"},
         4,
         4,
         SUMI_COMPONENT_TRANSFORMER,
         "unet",
         "model.diffusion_model.",
         "SDXL"},
        {{"double_blocks.0.img_attn.qkv.weight"}, 2, 8, SUMI_COMPONENT_TRANSFORMER, "flux", "", "Flux"},
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
        {{"v.patch_embd.weight", "v.post_ln.weight", "mm.0.weight", "mm.2.weight"},
         4,
         3,
         SUMI_COMPONENT_VISION,
         "qwen2.5-vl-mmproj",
         "",
         "mmproj"},
        {{"vae.decoder.conv_in.weight"}, 4, 16, SUMI_COMPONENT_VAE, "flux-vae", "vae.", NULL},
        {{"first_stage_model.decoder.conv_in.weight"},
         4,
         4,
         SUMI_COMPONENT_VAE,
         "unet-vae",
         "first_stage_model.",
         "4 latent"},
        {{"decoder.conv_in.weight"}, 5, 16, SUMI_COMPONENT_VAE, "qwen-vae", "", NULL},
        {{"decoder.conv1.weight"}, 5, 16, SUMI_COMPONENT_VAE, "qwen-vae", "", NULL},
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
    CHECK_TEXT(sumi_family_of_class("StableDiffusionXLPipeline"), "");
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

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(signatures_tell_networks_and_refuse_by_name);
    RUN(signatures_come_from_the_caller);
    RUN(checkpoint_finds_two_encoders_and_a_vision_tower);
    RUN(tokenizers_are_found_beside_the_weights);
    TEST_END();
}
