// Checkpoints: folders and single files become components, step by step; what is wrong is named; every allocation
// fails; and the golden checkpoints open.
#include "at_once.h"
#include "failing.h"
#include "files/checkpoint.h"
#include "files/tensor_scaling.h"
#include "memory_files.h"

// ---- Checkpoints ----------------------------------------------------------------------------------------------------

TEST(checkpoint_opens_a_diffusers_folder_step_by_step)
{
    memory_files files = {.with_map = true};
    put_model(&files);
    const sumi_files host = callbacks(&files);
    sumi_checkpoint c = {0};
    sumi_error error = {0};
    const sumi_checkpoint_desc desc = with_signatures((sumi_checkpoint_desc){.path = "m"});
    CHECK_NUMBER(sumi_checkpoint_begin(&c, &s_heap, &host, &desc, &error), SUMI_OK);
    float progress = sumi_checkpoint_progress(&c, 0.0f);
    CHECK(progress == 0.0f);
    int steps = 0;
    for (bool done = false; !done && steps < 100; steps++) {
        const int open_before = files.open_count;
        CHECK_NUMBER(sumi_checkpoint_step(&c, &done, &error), SUMI_OK);
        CHECK(done || files.open_count <= open_before + 1);
        CHECK(sumi_checkpoint_progress(&c, 0.0f) >= progress);
        progress = sumi_checkpoint_progress(&c, 0.0f);
    }
    CHECK(progress == 1.0f && steps > 5 && steps < 25);
    CHECK_TEXT(error.text, "");
    CHECK_TEXT(network_of(&c), "z-image");
    CHECK_TEXT(c.class_name, "ZImagePipeline");
    static const char* const s_names[] = {"cap_embedder.1.weight", "model.embed_tokens.weight",
                                          "decoder.conv_in.weight"};
    static const sumi_component_kind s_kinds[] = {SUMI_COMPONENT_TRANSFORMER, SUMI_COMPONENT_TEXT_ENCODER,
                                                  SUMI_COMPONENT_VAE};
    for (int i = 0; i < 3; i++) {
        const sumi_component* component = &c.components[s_kinds[i]];
        CHECK(component->present && holds(component, s_names[i]) && component->config.data != NULL);
        CHECK_TEXT(component->prefix, "");
        CHECK(strstr(component->path, sumi_component_kind_name(s_kinds[i])) != NULL);
    }
    CHECK(!c.components[SUMI_COMPONENT_TEXT_ENCODER_2].present && !c.components[SUMI_COMPONENT_VISION].present);
    CHECK(c.tokenizers[0].bytes == 2 && c.scheduler.data != NULL);
    CHECK_TEXT(c.tokenizers[0].folder, "m/tokenizer");
    sumi_checkpoint_close(&c);
    sumi_checkpoint_close(&c);
    CHECK_NUMBER(s_heap.allocated_bytes, 0);
    // cancelled after every number of steps
    for (int n = 0; n < steps; n++) {
        CHECK_NUMBER(sumi_checkpoint_begin(&c, &s_heap, &host, &desc, &error), SUMI_OK);
        for (int i = 0; i < n; i++) {
            bool done;
            CHECK_NUMBER(sumi_checkpoint_step(&c, &done, &error), SUMI_OK);
        }
        sumi_checkpoint_close(&c);
        CHECK_NUMBER(s_heap.allocated_bytes, 0);
        CHECK_NUMBER(files.open_count, 0);
    }
    release(&files);
}

TEST(checkpoint_without_text_encoder_does_not_open_it)
{
    memory_files files = {.with_map = true};
    sumi_files host;
    put_model(&files);
    sumi_checkpoint c = {0};
    sumi_error error;
    CHECK_NUMBER(open_checkpoint(&c, &files, &host,
                                 &(sumi_checkpoint_desc){.path = "m/",
                                                         .without_text_encoder = true,
                                                         .component_paths = {[SUMI_COMPONENT_TEXT_ENCODER] = "gone"}},
                                 &error),
                 SUMI_OK);
    CHECK(c.components[SUMI_COMPONENT_TRANSFORMER].present && c.components[SUMI_COMPONENT_VAE].present
          && !c.components[SUMI_COMPONENT_TEXT_ENCODER].present);
    CHECK(c.tokenizers[0].data == NULL && c.tokenizers[0].folder == NULL);
    sumi_checkpoint_close(&c);
    CHECK_NUMBER(
        sumi_checkpoint_begin(&c, &s_heap, &host,
                              &(sumi_checkpoint_desc){.without_text_encoder = true,
                                                      .component_paths = {[SUMI_COMPONENT_TEXT_ENCODER] = "gone"}},
                              &error),
        SUMI_INVALID_ARGUMENT);
    sumi_checkpoint_close(&c);
    release(&files);
}

TEST(checkpoint_finds_all_components_of_one_file)
{
    memory_files files = {0};
    sumi_files host;
    put_tensors(&files, "all.safetensors",
                NAMES("model.diffusion_model.cap_embedder.1.weight",
                      "model.diffusion_model.layers.0.adaLN_modulation.0.weight",
                      "text_encoders.qwen3_4b.transformer.model.embed_tokens.weight", "vae.decoder.conv_in.weight",
                      "vae.encoder.conv_in.weight", "something.else"));
    sumi_checkpoint c = {0};
    sumi_error error;
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.path = "all.safetensors"}, &error),
                 SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK_TEXT(network_of(&c), "z-image");
    CHECK_TEXT(c.components[SUMI_COMPONENT_TRANSFORMER].prefix, "model.diffusion_model.");
    CHECK_TEXT(c.components[SUMI_COMPONENT_TEXT_ENCODER].prefix, "text_encoders.qwen3_4b.transformer.");
    CHECK_TEXT(c.components[SUMI_COMPONENT_VAE].prefix, "vae.");
    CHECK(holds(&c.components[SUMI_COMPONENT_TRANSFORMER], "cap_embedder.1.weight")
          && holds(&c.components[SUMI_COMPONENT_TEXT_ENCODER], "model.embed_tokens.weight")
          && holds(&c.components[SUMI_COMPONENT_VAE], "encoder.conv_in.weight"));
    CHECK(!holds(&c.components[SUMI_COMPONENT_TRANSFORMER], "decoder.conv_in.weight")
          && !holds(&c.components[SUMI_COMPONENT_TRANSFORMER], "something.else"));
    int in_vae = 0;
    for (size_t i = 0; i < c.components[SUMI_COMPONENT_VAE].set->count; i++) {
        in_vae += sumi_component_tensor_name(&c.components[SUMI_COMPONENT_VAE],
                                             &c.components[SUMI_COMPONENT_VAE].set->tensors[i])
               != NULL;
    }
    CHECK_NUMBER(in_vae, 2);
    CHECK_NUMBER(files.open_count, 1); // one set serves all
    sumi_checkpoint_close(&c);
    release(&files);
    CHECK_NUMBER(s_heap.allocated_bytes, 0);
}

TEST(checkpoint_tells_single_components_by_content)
{
    static const struct {
        const char* name;
        sumi_component_kind kind;
        const char *prefix, *family;
    } s_cases[] = {
        {"diffusion_model.transformer_blocks.0.img_mod.1.weight", SUMI_COMPONENT_TRANSFORMER, "diffusion_model.",
         "qwen-image"},
        {"model.embed_tokens.weight", SUMI_COMPONENT_TEXT_ENCODER, "", ""},
        {"embed_tokens.weight", SUMI_COMPONENT_TEXT_ENCODER, "", ""},
        {"token_embd.weight", SUMI_COMPONENT_TEXT_ENCODER, "", ""},
        {"language_model.model.embed_tokens.weight", SUMI_COMPONENT_TEXT_ENCODER, "", ""},
        {"first_stage_model.decoder.conv_in.weight", SUMI_COMPONENT_VAE, "first_stage_model.", ""},
        {"decoder.conv1.weight", SUMI_COMPONENT_VAE, "", ""},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        memory_files files = {.with_map = true};
        sumi_files host;
        put_tensors(&files, "one.safetensors", NAMES(s_cases[i].name));
        sumi_checkpoint c = {0};
        sumi_error error;
        CHECK_NUMBER(open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.path = "one.safetensors"}, &error),
                     SUMI_OK);
        for (int kind = 0; kind < SUMI_COMPONENT_COUNT; kind++)
            CHECK(c.components[kind].present == (kind == (int)s_cases[i].kind));
        CHECK_TEXT(c.components[s_cases[i].kind].prefix, s_cases[i].prefix);
        CHECK_TEXT(network_of(&c), s_cases[i].family);
        sumi_checkpoint_close(&c);
        release(&files);
    }
}

TEST(checkpoint_prefers_the_usual_prefix)
{
    memory_files files = {.with_map = true};
    sumi_files host;
    put_tensors(&files, "two.safetensors",
                NAMES("vae.decoder.conv_in.weight", "first_stage_model.decoder.conv_in.weight",
                      "model_ema.transformer_blocks.0.img_mod.1.weight",
                      "model.diffusion_model.transformer_blocks.0.img_mod.1.weight",
                      "transformer.transformer_blocks.0.img_mod.1.weight",
                      "text_encoders..transformer.model.embed_tokens.weight"));
    sumi_checkpoint c = {0};
    sumi_error error;
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.path = "two.safetensors"}, &error),
                 SUMI_OK);
    CHECK_TEXT(c.components[SUMI_COMPONENT_VAE].prefix, "vae.");
    CHECK_TEXT(c.components[SUMI_COMPONENT_TRANSFORMER].prefix, "model.diffusion_model.");
    CHECK(!c.components[SUMI_COMPONENT_TEXT_ENCODER].present);
    sumi_checkpoint_close(&c);
    release(&files);
}

TEST(checkpoint_components_override_and_complete_each_other)
{
    memory_files files = {.with_map = true};
    sumi_files host;
    put_model(&files);
    put_tensors(&files, "other/t.safetensors",
                NAMES("cap_embedder.1.weight", "layers.0.adaLN_modulation.0.weight", "vae.decoder.conv_in.weight"));
    put_tensors(&files, "other/ae.safetensors", NAMES("decoder.conv_in.weight", "mine"));
    put_text(&files, "other/config.json", "{\"_class_name\":\"AutoencoderKL\",\"here\":1}");
    put_text(&files, "base/scheduler/scheduler_config.json", "{\"shift\":6.0}");
    sumi_checkpoint c = {0};
    sumi_error error;
    // a folder with one part from elsewhere; its config is the one beside it, because that speaks of a VAE
    CHECK_NUMBER(open_checkpoint(&c, &files, &host,
                                 &(sumi_checkpoint_desc){
                                     .path = "m", .component_paths = {[SUMI_COMPONENT_VAE] = "other/ae.safetensors"}},
                                 &error),
                 SUMI_OK);
    CHECK(holds(&c.components[SUMI_COMPONENT_VAE], "mine")
          && holds(&c.components[SUMI_COMPONENT_TRANSFORMER], "extra"));
    CHECK_TEXT(c.components[SUMI_COMPONENT_VAE].config.path, "other/config.json");
    sumi_checkpoint_close(&c);
    // a transformer from elsewhere keeps the folder's config; the config beside it is for something else
    CHECK_NUMBER(
        open_checkpoint(&c, &files, &host,
                        &(sumi_checkpoint_desc){
                            .path = "m", .component_paths = {[SUMI_COMPONENT_TRANSFORMER] = "other/t.safetensors"}},
                        &error),
        SUMI_OK);
    CHECK_TEXT(c.components[SUMI_COMPONENT_TRANSFORMER].config.path, "m/transformer/config.json");
    CHECK_TEXT(c.components[SUMI_COMPONENT_VAE].path, "m/vae");
    sumi_checkpoint_close(&c);
    // a VAE inside the transformer's file counts
    CHECK_NUMBER(open_checkpoint(
                     &c, &files, &host,
                     &(sumi_checkpoint_desc){.component_paths = {[SUMI_COMPONENT_TRANSFORMER] = "other/t.safetensors",
                                                                 [SUMI_COMPONENT_TEXT_ENCODER] = "m/text_encoder"}},
                     &error),
                 SUMI_OK);
    CHECK_TEXT(c.components[SUMI_COMPONENT_VAE].prefix, "vae.");
    CHECK(c.components[SUMI_COMPONENT_VAE].set == c.components[SUMI_COMPONENT_TRANSFORMER].set);
    CHECK_TEXT(c.tokenizers[0].folder, "m/tokenizer");
    sumi_checkpoint_close(&c);
    // whole model folders as parts, the scheduler of another folder, a tokenizer by file
    CHECK_NUMBER(
        open_checkpoint(&c, &files, &host,
                        &(sumi_checkpoint_desc){.path = "base",
                                                .component_paths = {[SUMI_COMPONENT_TRANSFORMER] = "m/transformer/",
                                                                    [SUMI_COMPONENT_TEXT_ENCODER] = "m",
                                                                    [SUMI_COMPONENT_VAE] = "m"},
                                                .tokenizer_paths = {"m/tokenizer/tokenizer.json"}},
                        &error),
        SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK(c.components[SUMI_COMPONENT_TRANSFORMER].present && c.components[SUMI_COMPONENT_TEXT_ENCODER].present
          && c.components[SUMI_COMPONENT_VAE].present && c.tokenizers[0].data != NULL);
    CHECK(c.scheduler.data != NULL && memcmp(c.scheduler.data, "{\"shift\":6.0}", 13) == 0);
    CHECK_TEXT(c.components[SUMI_COMPONENT_VAE].path, "m/vae");
    sumi_checkpoint_close(&c);
    // no base folder: the scheduler beside the transformer's folder
    CHECK_NUMBER(
        open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.component_paths = {"m/transformer"}}, &error),
        SUMI_OK);
    CHECK(c.scheduler.data != NULL && c.tokenizers[0].data == NULL && !c.components[SUMI_COMPONENT_TEXT_ENCODER].present
          && !c.components[SUMI_COMPONENT_VAE].present);
    sumi_checkpoint_close(&c);
    // a part's folder as the path
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.path = "m/vae"}, &error), SUMI_OK);
    CHECK(c.components[SUMI_COMPONENT_VAE].present && !c.components[SUMI_COMPONENT_TRANSFORMER].present
          && c.components[SUMI_COMPONENT_VAE].config.data != NULL);
    sumi_checkpoint_close(&c);
    release(&files);
    CHECK_NUMBER(s_heap.allocated_bytes, 0);
}

TEST(checkpoint_without_model_index_goes_on_by_content)
{
    memory_files files = {.with_map = true};
    sumi_files host;
    put_tensors(&files, "m/transformer/model.safetensors", NAMES("transformer_blocks.0.img_mod.1.weight"));
    put_text(&files, "m/text_encoder/tokenizer.json", "[]");
    put_text(&files, "m/text_encoder/config.json", "{}"); // a download that stopped: no weights
    sumi_checkpoint c = {0};
    sumi_error error;
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.path = "m"}, &error), SUMI_OK);
    CHECK_TEXT(network_of(&c), "qwen-image");
    CHECK(!c.components[SUMI_COMPONENT_TEXT_ENCODER].present && c.tokenizers[0].data != NULL);
    CHECK_TEXT(c.components[SUMI_COMPONENT_TEXT_ENCODER].path, "m/text_encoder");
    sumi_checkpoint_close(&c);
    release(&files);
}

TEST(checkpoint_refusals_name_what_is_wrong)
{
    memory_files files = {.with_map = true};
    sumi_files host;
    put_model(&files);
    put_tensors(&files, "lora.safetensors", NAMES("a.lora_A.weight"));
    put_text(&files, "bad/model_index.json", "{\"_class_name\":");
    put_tensors(&files, "bad/vae/model.safetensors", NAMES("decoder.conv_in.weight"));
    put_text(&files, "worse/vae/config.json", "[1]");
    put_tensors(&files, "worse/vae/model.safetensors", NAMES("decoder.conv_in.weight"));
    put_text(&files, "cut/transformer/diffusion_pytorch_model.safetensors.index.json",
             "{\"weight_map\":{\"x\":\"s9.safetensors\"}}");
    static const struct {
        sumi_checkpoint_desc desc;
        sumi_result result;
        const char* word;
    } s_cases[] = {
        {{0}, SUMI_INVALID_ARGUMENT, "no path"},
        {{.path = "nowhere"}, SUMI_FILE_NOT_FOUND, "nowhere"},
        {{.path = "lora.safetensors"}, SUMI_MODEL_UNKNOWN, "lora.safetensors"},
        {{.path = "m", .component_paths = {[SUMI_COMPONENT_VAE] = "lora.safetensors"}},
         SUMI_MODEL_UNKNOWN,
         "lora.safetensors"},
        {{.path = "m", .component_paths = {[SUMI_COMPONENT_VAE] = "m/tokenizer"}}, SUMI_FILE_NOT_FOUND, "m/tokenizer"},
        {{.path = "m", .tokenizer_paths = {"gone"}}, SUMI_FILE_NOT_FOUND, "gone"},
        {{.path = "bad"}, SUMI_FILE_MALFORMED, "bad/model_index.json"},
        {{.path = "worse"}, SUMI_FILE_MALFORMED, "worse/vae/config.json"},
        {{.path = "cut"}, SUMI_FILE_NOT_FOUND, "names it: download it"},
        {{.path = "m/model_index.json"}, SUMI_FILE_MALFORMED, "m/model_index.json"},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_checkpoint c = {0};
        sumi_error error;
        CHECK_NUMBER(open_checkpoint(&c, &files, &host, &s_cases[i].desc, &error), s_cases[i].result);
        if (strstr(error.text, s_cases[i].word) == NULL) {
            printf("  no \"%s\" in \"%s\"\n", s_cases[i].word, error.text);
            t_errors++;
        }
        sumi_checkpoint_close(&c);
        CHECK_NUMBER(s_heap.allocated_bytes, 0);
    }
    release(&files);
}

// ---- Memory that runs out -------------------------------------------------------------------------------------------

TEST(every_failed_allocation_is_survived)
{
    for (int what = 0; what < 5; what++) {
        memory_files files = {0};
        put_model(&files);
        put_tensors(&files, "all.safetensors",
                    NAMES("model.diffusion_model.transformer_blocks.0.img_mod.1.weight", "vae.decoder.conv_in.weight"));
        put_pair(&files);
        const sumi_files host = callbacks(&files);
        sumi_result result = SUMI_OUT_OF_HOST_MEMORY;
        int64_t n = 0;
        for (; result != SUMI_OK && n < 2000; n++) {
            failing f = {.left = n};
            sumi_heap heap;
            const sumi_allocator allocator = failing_allocator(&f);
            sumi_heap_init(&heap, &allocator);
            sumi_error error = {0};
            if (what == 0) {
                sumi_tensor_set set = {0};
                sumi_tensor_set_init(&set, &heap, &host);
                result = open_tensor_folder(&set, "m/transformer", "diffusion_pytorch_model", &error);
                sumi_tensor_set_close(&set);
            } else if (what == 1) {
                sumi_tensor_set set = {0};
                sumi_tensor_set_init(&set, &heap, NULL);
                result = sumi_tensor_set_open(&set, GOLDEN "safetensors/valid/metadata.safetensors", &error);
                result = result != SUMI_OK ? result
                       : sumi_tensor_set_open(&set, GOLDEN "safetensors/valid/header_not_in_offset_order.safetensors",
                                              NULL)
                                 == SUMI_FILE_MALFORMED
                           ? SUMI_OK
                           : SUMI_OUT_OF_HOST_MEMORY;
                sumi_tensor_set_close(&set);
            } else if (what == 2) {
                sumi_tensor_set set = {0};
                sumi_tensor_set_init(&set, &heap, NULL);
                result = sumi_tensor_set_open(&set, GOLDEN "gguf/metadata.gguf", &error);
                sumi_tensor_set_close(&set);
            } else if (what == 3) {
                sumi_checkpoint c = {0};
                const sumi_checkpoint_desc desc = with_signatures((sumi_checkpoint_desc){.path = "p"});
                result = sumi_checkpoint_open(&c, &heap, &host, &desc, &error);
                sumi_checkpoint_close(&c);
            } else {
                sumi_checkpoint c = {0};
                const sumi_checkpoint_desc desc = with_signatures(
                    (sumi_checkpoint_desc){.path = "m",
                                           .component_paths = {[SUMI_COMPONENT_VAE] = "all.safetensors"},
                                           .tokenizer_paths = {"m/tokenizer"}});
                result = sumi_checkpoint_open(&c, &heap, &host, &desc, &error);
                sumi_checkpoint_close(&c);
            }
            if (result != SUMI_OK && result != SUMI_OUT_OF_HOST_MEMORY) {
                printf("  after %lld allocations: result %d, %s\n", (long long)n, (int)result, error.text);
                t_errors++;
                break;
            }
            CHECK_NUMBER(f.held, 0);
            CHECK_NUMBER(files.open_count, 0);
        }
        CHECK(result == SUMI_OK && n > 5);
        release(&files);
    }
}

// ---- The golden checkpoints -----------------------------------------------------------------------------------------

static sumi_result open_golden(sumi_checkpoint* c, const sumi_checkpoint_desc* desc)
{
    sumi_error error = {0};
    const sumi_checkpoint_desc whole = with_signatures(*desc);
    const sumi_result result = sumi_checkpoint_open(c, &s_heap, NULL, &whole, &error);
    if (result != SUMI_OK) printf("  %s\n", error.text);
    return result;
}

TEST(golden_z_image_checkpoints_open)
{
#define Z "tests/golden/z-image/"
    size_t bytes;
    unsigned char* there = read_whole(Z "model/model_index.json", &bytes);
    if (there == NULL) SKIP("tests/golden/z-image is not there");
    free(there);
    sumi_checkpoint c = {0};
    CHECK_NUMBER(open_golden(&c, &(sumi_checkpoint_desc){.path = Z "model"}), SUMI_OK);
    CHECK_TEXT(network_of(&c), "z-image");
    CHECK_TEXT(c.class_name, "ZImagePipeline");
    CHECK(c.tokenizers[0].bytes > 1000 && c.scheduler.bytes > 10);
    CHECK(holds(&c.components[SUMI_COMPONENT_TRANSFORMER], "layers.1.attention.to_q.weight")
          && holds(&c.components[SUMI_COMPONENT_TEXT_ENCODER], "model.layers.2.mlp.gate_proj.weight")
          && holds(&c.components[SUMI_COMPONENT_VAE], "encoder.conv_in.weight"));
    CHECK(c.components[SUMI_COMPONENT_TRANSFORMER].config.data != NULL
          && c.components[SUMI_COMPONENT_TEXT_ENCODER].config.data != NULL
          && c.components[SUMI_COMPONENT_VAE].config.data != NULL);
    CHECK_NUMBER(c.components[SUMI_COMPONENT_TRANSFORMER].set->opened_count, 3);
    const size_t transformer_count = c.components[SUMI_COMPONENT_TRANSFORMER].set->count;
    sumi_checkpoint_close(&c);

    // the base model's scheduler with the other parts from the folder beside it
    CHECK_NUMBER(open_golden(&c, &(sumi_checkpoint_desc){.path = Z "model-base",
                                                         .component_paths = {[SUMI_COMPONENT_TRANSFORMER] = Z "model",
                                                                             [SUMI_COMPONENT_TEXT_ENCODER] =
                                                                                 Z "model/text_encoder",
                                                                             [SUMI_COMPONENT_VAE] = Z "model/vae"},
                                                         .tokenizer_paths = {Z "model/tokenizer"}}),
                 SUMI_OK);
    CHECK_TEXT(network_of(&c), "z-image");
    CHECK(c.scheduler.path != NULL && strcmp(c.scheduler.path, Z "model-base/scheduler/scheduler_config.json") == 0);
    CHECK_NUMBER(c.components[SUMI_COMPONENT_TRANSFORMER].set->count, transformer_count);
    sumi_checkpoint_close(&c);

    // single files, the transformer with the original names
    CHECK_NUMBER(open_golden(&c, &(sumi_checkpoint_desc){.path = Z "single-file/z_image_turbo_bf16.safetensors",
                                                         .component_paths = {[SUMI_COMPONENT_VAE] =
                                                                                 Z "single-file/ae.safetensors"}}),
                 SUMI_OK);
    CHECK_TEXT(network_of(&c), "z-image");
    CHECK(holds(&c.components[SUMI_COMPONENT_TRANSFORMER], "layers.0.attention.qkv.weight")
          && holds(&c.components[SUMI_COMPONENT_VAE], "decoder.mid.attn_1.q.weight")
          && !c.components[SUMI_COMPONENT_TEXT_ENCODER].present);
    CHECK(c.components[SUMI_COMPONENT_TRANSFORMER].config.data == NULL
          && c.components[SUMI_COMPONENT_VAE].config.data == NULL && c.scheduler.data == NULL);
    sumi_tensor_scaling scaling;
    CHECK(sumi_tensor_find_scaling(&c.components[SUMI_COMPONENT_TRANSFORMER], "layers.0.attention.qkv.weight", &scaling,
                                   NULL)
              == SUMI_OK
          && scaling.scale == 1.0f && !scaling.is_scaled);
    sumi_checkpoint_close(&c);
    // and laid over the folder, which gives the configs
    CHECK_NUMBER(
        open_golden(&c, &(sumi_checkpoint_desc){.path = Z "model",
                                                .component_paths = {[SUMI_COMPONENT_TRANSFORMER] = Z
                                                                    "single-file/z_image_turbo_bf16.safetensors"}}),
        SUMI_OK);
    CHECK(c.components[SUMI_COMPONENT_TRANSFORMER].config.data != NULL
          && holds(&c.components[SUMI_COMPONENT_TRANSFORMER], "layers.0.attention.qkv.weight")
          && c.components[SUMI_COMPONENT_TEXT_ENCODER].present && c.components[SUMI_COMPONENT_VAE].present);
    sumi_checkpoint_close(&c);
    CHECK_NUMBER(s_heap.allocated_bytes, 0);
}

TEST(golden_checkpoints_of_other_families_open)
{
    static const struct {
        const char *path, *family, *folder;
    } s_cases[] = {{"tests/golden/qwen-image/model", "qwen-image", "tokenizer"},
                   {"tests/golden/newbie/model", "newbie-image", "text_encoder"}};
    for (int i = 0; i < 2; i++) {
        char index[256];
        size_t bytes;
        snprintf(index, sizeof index, "%s/model_index.json", s_cases[i].path);
        unsigned char* there = read_whole(index, &bytes);
        if (there == NULL) SKIP("the golden folders of the other families are not there");
        free(there);
        sumi_checkpoint c = {0};
        CHECK_NUMBER(open_golden(&c, &(sumi_checkpoint_desc){.path = s_cases[i].path}), SUMI_OK);
        CHECK_TEXT(network_of(&c), s_cases[i].family);
        CHECK(c.components[SUMI_COMPONENT_TRANSFORMER].present && c.components[SUMI_COMPONENT_TEXT_ENCODER].present
              && c.components[SUMI_COMPONENT_VAE].present && c.scheduler.data != NULL);
        CHECK(c.tokenizers[0].folder != NULL && strstr(c.tokenizers[0].folder, s_cases[i].folder) != NULL);
        sumi_checkpoint_close(&c);
    }
}

// ---- Quantisation ---------------------------------------------------------------------------------------------------

// What config.json or the metadata say about the whole is known, or refused by its name and file. A config.json that
// belongs to other weights says nothing.
TEST(checkpoint_names_quantisations_that_are_not_known)
{
    static const struct {
        const char *config, *path, *says; // path: of the transformer, if it is not the folder's own; says NULL: opens
        bool is_metadata;
    } s_cases[] = {
        {"{\"quantization_config\":{\"quant_method\":\"gptq\",\"bits\":4}}", NULL, "GPTQ", false},
        {"{\"quantization_config\":{\"quant_method\":\"fp8\",\"weight_block_size\":[128,64]}}", NULL, NULL, false},
        {"{\"method\":\"svdquant\"}", "one.safetensors", "SVDQuant", true},
        {"{\"quantization_config\":{\"quant_method\":\"gptq\"}}", "one.safetensors", NULL, false},
        {"{\"quantization_config\":{\"weight_block_size\":[]}}", NULL, "does not name", false},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        memory_files files = {.with_map = true};
        sumi_files host;
        put_model(&files);
        for (int k = 0; k < files.count && !s_cases[i].is_metadata; k++) {
            if (strcmp(files.list[k].path, "m/transformer/config.json") == 0)
                files.list[k].data = s_cases[i].config, files.list[k].bytes = strlen(s_cases[i].config);
        }
        const float one = 1.0f;
        const sumi_tensor tensors[2] = {{.name = "cap_embedder.1.weight",
                                         .dtype = SUMI_DTYPE_F32,
                                         .rank = 1,
                                         .shape = {1},
                                         .data = &one,
                                         .bytes = 4},
                                        {.name = "layers.0.adaLN_modulation.0.weight",
                                         .dtype = SUMI_DTYPE_F8_E4M3,
                                         .rank = 1,
                                         .shape = {4},
                                         .data = &one,
                                         .bytes = 4}};
        const sumi_metadata metadata = {"quantization_config", s_cases[i].config};
        const size_t count = s_cases[i].is_metadata ? 1 : 0;
        const uint64_t bytes = sumi_safetensors_write(tensors, 2, &metadata, count, NULL, 0);
        void* image = malloc((size_t)bytes);
        sumi_safetensors_write(tensors, 2, &metadata, count, image, bytes);
        put_bytes(&files, "one.safetensors", image, (size_t)bytes);
        files.list[files.count - 1].owned = true;
        sumi_checkpoint c = {0};
        sumi_error error;
        const sumi_checkpoint_desc desc = {.path = "m", .component_paths = {s_cases[i].path}};
        CHECK_NUMBER(open_checkpoint(&c, &files, &host, &desc, &error),
                     s_cases[i].says == NULL ? SUMI_OK : SUMI_NOT_SUPPORTED);
        if (s_cases[i].says == NULL) {
            const sumi_quantisation* got = &c.components[SUMI_COMPONENT_TRANSFORMER].quantisation;
            CHECK(got->is_said == (i == 1) && got->block_rows == (i == 1 ? 128 : 0));
        } else {
            const char* file = s_cases[i].is_metadata ? s_cases[i].path : "m/transformer/config.json";
            CHECK(strstr(error.text, s_cases[i].says) != NULL && strstr(error.text, file) != NULL);
            CHECK(strstr(error.text, "take the bf16") != NULL);
        }
        sumi_checkpoint_close(&c);
        release(&files);
        CHECK_NUMBER(s_heap.allocated_bytes, 0);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(checkpoint_opens_a_diffusers_folder_step_by_step);
    RUN(checkpoint_without_text_encoder_does_not_open_it);
    RUN(checkpoint_finds_all_components_of_one_file);
    RUN(checkpoint_tells_single_components_by_content);
    RUN(checkpoint_prefers_the_usual_prefix);
    RUN(checkpoint_components_override_and_complete_each_other);
    RUN(checkpoint_without_model_index_goes_on_by_content);
    RUN(checkpoint_refusals_name_what_is_wrong);
    RUN(every_failed_allocation_is_survived);
    RUN(golden_z_image_checkpoints_open);
    RUN(golden_checkpoints_of_other_families_open);
    RUN(checkpoint_names_quantisations_that_are_not_known);
    TEST_END();
}
