// One network under every naming scheme gives the same bits, and every missing or misshapen tensor is named.
#include "at_once.h"
#include "models/network_state.h"
#include "models/pipeline.h"
#include "network_fixture.h"
#include "system.h"
#include <stdatomic.h>

// ---- Helpers --------------------------------------------------------------------------------------------------------

static void copy_file(const char* from, const char* to)
{
    FILE* file = fopen(from, "rb");
    if (file == NULL) return;
    static char s_buffer[1 << 20];
    size_t bytes = fread(s_buffer, 1, sizeof s_buffer, file);
    fclose(file);
    write_file(to, s_buffer, bytes);
}

// ---- Opening --------------------------------------------------------------------------------------------------------

// The same VAE under LDM names, with the config that says how many groups it has.
TEST(vae_with_ldm_names_decodes_and_encodes_the_same)
{
    system_make_folder(scratch("vae"));
    copy_file(GOLDEN "single-file/ae.safetensors", scratch("vae/ae.safetensors"));
    copy_file(GOLDEN "model/vae/config.json", scratch("vae/config.json"));
    sumi_error error = {0};
    sumi_network *network = open_path(GOLDEN "model"), *other = NULL;
    CHECK_NUMBER(open_all(&s_heap,
                          &(sumi_network_desc){.path = GOLDEN "model", .vae_path = scratch("vae/ae.safetensors")},
                          &error, &other),
                 SUMI_OK);
    if (network == NULL || other == NULL) {
        printf("  %s\n", error.text);
        sumi_network_close(network);
        return;
    }
    static float s_noise[16 * 4 * 6], s_eps[16 * 4 * 6];
    static uint8_t s_pixels[32 * 48 * 3];
    static int32_t s_ids[2][512];
    fill(s_noise, 16 * 4 * 6, 1);
    fill(s_eps, 16 * 4 * 6, 2);
    for (size_t i = 0; i < sizeof s_pixels; i++) s_pixels[i] = (uint8_t)(i * 7);
    int32_t count;
    CHECK_NUMBER(read_prompt(network, 0, &(sumi_prompt_text){.text = "a cat", .bytes = 5},
                             &(sumi_prompt_ids){s_ids[0], 512, NULL}, &count, &error),
                 SUMI_OK);
    sumi_pipeline_prompt prompt = {.token_count = {count}};
    sumi_pipeline_item item = {0, -1};
    job j = {.r = {.prompts = &prompt,
                   .prompt_count = 1,
                   .items = &item,
                   .item_count = 1,
                   .width = 48,
                   .height = 32,
                   .starts_from_image = true,
                   .samples_posterior = true},
             .ids = (const int32_t(*)[512])s_ids,
             .noise = s_noise,
             .pixels = s_pixels,
             .eps = s_eps};
    set_schedule(&j, network, SUMI_SOLVER_EULER, 2, 0);
    uint8_t *a = NULL, *b = NULL;
    float *x = run_job(network, &j, 0, &a, &error), *y = run_job(other, &j, 0, &b, &error);
    CHECK(x != NULL && y != NULL && memcmp(x, y, sizeof s_noise) == 0);
    CHECK(a != NULL && b != NULL && memcmp(a, b, 32 * 48 * 3) == 0);
    free(x);
    free(y);
    free(a);
    free(b);
    sumi_network_close(network);
    sumi_network_close(other);
}

// Group counts come from the config alone: without it a released VAE has 32, which this small one cannot have.
TEST(vae_without_config_is_held_to_the_released_groups)
{
    sumi_error error = {0};
    sumi_network* network = NULL;
    system_make_folder(scratch("bare"));
    copy_file(GOLDEN "single-file/ae.safetensors", scratch("bare/ae.safetensors"));
    sumi_network_desc desc = {.transformer_path = GOLDEN "model/transformer",
                              .vae_path = scratch("bare/ae.safetensors")};
    CHECK_NUMBER(open_all(&s_heap, &desc, &error, &network), SUMI_TENSOR_MISMATCH);
    CHECK(strstr(error.text, "groups") != NULL);
    sumi_network_close(network);
}

// llama.cpp's names for the text encoder, in a safetensors file: the reader of the names does not care.
TEST(text_encoder_opens_with_bare_and_with_llama_cpp_names)
{
    static const char* const s_names[][2] = {{"self_attn.q_proj", "attn_q"},
                                             {"self_attn.k_proj", "attn_k"},
                                             {"self_attn.v_proj", "attn_v"},
                                             {"self_attn.q_norm", "attn_q_norm"},
                                             {"self_attn.k_norm", "attn_k_norm"},
                                             {"self_attn.o_proj", "attn_output"},
                                             {"post_attention_layernorm", "ffn_norm"},
                                             {"input_layernorm", "attn_norm"},
                                             {"mlp.gate_proj", "ffn_gate"},
                                             {"mlp.up_proj", "ffn_up"},
                                             {"mlp.down_proj", "ffn_down"},
                                             {"model.embed_tokens", "token_embd"},
                                             {"model.norm", "output_norm"},
                                             {"model.layers.", "blk."}};
    sumi_tensor_set set;
    CHECK(read_tensors(&set, GOLDEN "model/text_encoder", "model"));
    for (int scheme = 0; scheme < 2; scheme++) {
        sumi_tensor* tensors = malloc(set.count * sizeof *tensors);
        char(*texts)[256] = malloc(set.count * sizeof *texts);
        for (size_t i = 0; i < set.count; i++) {
            tensors[i] = set.tensors[i];
            snprintf(texts[i], sizeof *texts, "%s", set.tensors[i].name);
            char next[256];
            if (scheme == 0) {
                CHECK(sumi_replace_text(texts[i], "model.", "", next, sizeof next));
                strcpy(texts[i], next);
            }
            for (size_t k = 0; scheme == 1 && k < sizeof s_names / sizeof *s_names; k++)
                if (sumi_replace_text(texts[i], s_names[k][0], s_names[k][1], next, sizeof next))
                    strcpy(texts[i], next);
            tensors[i].name = texts[i];
        }
        system_make_folder(scratch(scheme == 0 ? "bare_te" : "llama_te"));
        const char* path = scratch(scheme == 0 ? "bare_te/model.safetensors" : "llama_te/model.safetensors");
        write_tensors(path, tensors, set.count, NULL, 0);
        copy_file(GOLDEN "model/text_encoder/config.json",
                  scratch(scheme == 0 ? "bare_te/config.json" : "llama_te/config.json"));
        sumi_error error = {0};
        sumi_network* network = NULL;
        sumi_network_desc desc = {
            .path = GOLDEN "model", .text_encoder_path = path, .tokenizer_path = GOLDEN "model/tokenizer"};
        CHECK_NUMBER(open_all(&s_heap, &desc, &error, &network), SUMI_OK);
        if (network == NULL) printf("  %s\n", error.text);
        CHECK(network != NULL && network->info.has_text_encoder);
        sumi_network_close(network);
        free(tensors);
        free(texts);
    }
    sumi_tensor_set_close(&set);
}

// All parts in one file under ComfyUI's prefixes, without any config: sizes from the shapes, the rest from the release.
TEST(all_in_one_file_gives_the_bits_of_its_parts)
{
    sumi_tensor_set transformer, text;
    CHECK(read_tensors(&transformer, GOLDEN "single-file/z_image_turbo_bf16.safetensors", NULL)
          && read_tensors(&text, GOLDEN "model/text_encoder", "model"));
    size_t count = transformer.count + text.count;
    sumi_tensor* tensors = malloc(count * sizeof *tensors);
    char(*names)[256] = malloc(count * sizeof *names);
    for (size_t i = 0; i < count; i++) {
        bool first = i < transformer.count;
        tensors[i] = first ? transformer.tensors[i] : text.tensors[i - transformer.count];
        snprintf(names[i], sizeof *names, "%s%s",
                 first ? "model.diffusion_model." : "text_encoders.qwen3_4b.transformer.", tensors[i].name);
        tensors[i].name = names[i];
    }
    write_tensors(scratch("all.safetensors"), tensors, count, NULL, 0);
    free(tensors);
    free(names);
    sumi_tensor_set_close(&transformer);
    sumi_tensor_set_close(&text);
    sumi_error error = {0};
    sumi_network *one = NULL, *parts = NULL;
    sumi_network_desc all = {.path = scratch("all.safetensors"), .tokenizer_path = GOLDEN "model/tokenizer"};
    sumi_network_desc single = {.transformer_path = GOLDEN "single-file/z_image_turbo_bf16.safetensors",
                                .text_encoder_path = GOLDEN "model/text_encoder"};
    CHECK_NUMBER(open_all(&s_heap, &all, &error, &one), SUMI_OK);
    CHECK_NUMBER(open_all(&s_heap, &single, &error, &parts), SUMI_OK);
    if (one != NULL && parts != NULL) {
        static float s_noise[16 * 4 * 6];
        static int32_t s_ids[1][512];
        int32_t tokens;
        fill(s_noise, 16 * 4 * 6, 3);
        CHECK_NUMBER(read_prompt(one, 0, &(sumi_prompt_text){.text = "a cat", .bytes = 5},
                                 &(sumi_prompt_ids){s_ids[0], 512, NULL}, &tokens, &error),
                     SUMI_OK);
        sumi_pipeline_prompt prompt = {.token_count = {tokens}};
        sumi_pipeline_item item = {0, -1};
        job j = {
            .r = {.prompts = &prompt, .prompt_count = 1, .items = &item, .item_count = 1, .width = 48, .height = 32},
            .stops_at_latents = true,
            .ids = (const int32_t(*)[512])s_ids,
            .noise = s_noise};
        set_schedule(&j, one, SUMI_SOLVER_EULER, 2, 0);
        float *x = run_job(one, &j, 0, NULL, &error), *y = run_job(parts, &j, 0, NULL, &error);
        CHECK(x != NULL && y != NULL && memcmp(x, y, sizeof s_noise) == 0);
        free(x);
        free(y);
    }
    if (error.result != SUMI_OK) printf("  %s\n", error.text);
    sumi_network_close(one);
    sumi_network_close(parts);
}

// A tensor left out or halved, one by one.
static void break_tensors(const sumi_tensor_set* set, const char* path, const sumi_network_desc* desc,
                          const char* unused_a, const char* unused_b)
{
    sumi_tensor* tensors = malloc((set->count + 1) * sizeof *tensors);
    uint64_t held = atomic_load(&s_heap.allocated_bytes);
    for (size_t broken = 0; broken < set->count; broken++) {
        bool is_unused =
            strstr(set->tensors[broken].name, unused_a) != NULL || strstr(set->tensors[broken].name, unused_b) != NULL;
        for (int how = 0; how < 2; how++) {
            size_t count = 0;
            for (size_t i = 0; i < set->count; i++) {
                if (i == broken && how == 0) continue;
                tensors[count] = set->tensors[i];
                if (i == broken) { // half as many rows; three become one
                    int32_t axis = tensors[count].rank == 2 && tensors[count].shape[0] == 1 ? 1 : 0;
                    tensors[count].bytes = tensors[count].bytes / (uint64_t)tensors[count].shape[axis]
                                         * (uint64_t)(tensors[count].shape[axis] / 2);
                    tensors[count].shape[axis] /= 2;
                }
                count++;
            }
            write_tensors(path, tensors, count, NULL, 0);
            sumi_error error = {0};
            sumi_network* network = NULL;
            sumi_result result = open_all(&s_heap, desc, &error, &network);
            // without its marks, the file is no model at all
            bool expected = is_unused ? result == SUMI_OK
                                      : result == SUMI_TENSOR_MISSING || result == SUMI_TENSOR_MISMATCH
                                            || result == SUMI_MODEL_UNKNOWN;
            if (!expected)
                printf("  %s %s: result %d, \"%s\"\n", how == 0 ? "without" : "half of", set->tensors[broken].name,
                       (int)result, error.text);
            CHECK(expected);
            CHECK(result == SUMI_OK || strstr(error.text, "broken") != NULL);
            sumi_network_close(network);
            CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), held);
        }
    }
    free(tensors);
}

TEST(every_missing_or_misshapen_tensor_of_the_transformer_is_named)
{
    sumi_tensor_set set;
    CHECK(read_tensors(&set, GOLDEN "single-file/z_image_turbo_bf16.safetensors", NULL));
    const char* path = scratch("broken.safetensors");
    break_tensors(&set, path, &(sumi_network_desc){.path = path}, "nothing unused", "nothing unused");
    sumi_tensor_set_close(&set);
    system_make_folder(scratch("broken"));
    copy_file(GOLDEN "model/transformer/config.json", scratch("broken/config.json"));
    CHECK(read_tensors(&set, GOLDEN "model/transformer", "diffusion_pytorch_model"));
    path = scratch("broken/diffusion_pytorch_model.safetensors");
    break_tensors(&set, path, &(sumi_network_desc){.transformer_path = scratch("broken")}, "nothing unused",
                  "nothing unused");
    sumi_tensor_set_close(&set);
    remove(scratch("broken/diffusion_pytorch_model.safetensors"));
}

TEST(every_missing_or_misshapen_tensor_of_the_vae_is_named)
{
    sumi_tensor_set set;
    const char* path = scratch("broken/ae.safetensors");
    system_make_folder(scratch("broken"));
    copy_file(GOLDEN "model/vae/config.json", scratch("broken/config.json"));
    for (int ldm = 0; ldm < 2; ldm++) {
        CHECK(ldm ? read_tensors(&set, GOLDEN "single-file/ae.safetensors", NULL)
                  : read_tensors(&set, GOLDEN "model/vae", "diffusion_pytorch_model"));
        break_tensors(&set, path,
                      &(sumi_network_desc){.transformer_path = GOLDEN "model/transformer", .vae_path = path},
                      "nothing unused", "nothing unused");
        sumi_tensor_set_close(&set);
    }
    remove(path);
}

// The last layer and the final norm are never used, so a file may lack them.
TEST(every_missing_or_misshapen_tensor_of_the_text_encoder_is_named)
{
    sumi_tensor_set set;
    system_make_folder(scratch("broken"));
    copy_file(GOLDEN "model/text_encoder/config.json", scratch("broken/config.json"));
    const char* path = scratch("broken/text.safetensors");
    CHECK(read_tensors(&set, GOLDEN "model/text_encoder", "model"));
    sumi_network_desc desc = {.transformer_path = GOLDEN "model/transformer",
                              .text_encoder_path = path,
                              .tokenizer_path = GOLDEN "model/tokenizer"};
    break_tensors(&set, path, &desc, ".layers.2.", "model.norm.");
    sumi_tensor_set_close(&set);
    remove(path);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_cpu(1)) return 1;
    RUN(vae_with_ldm_names_decodes_and_encodes_the_same);
    RUN(vae_without_config_is_held_to_the_released_groups);
    RUN(text_encoder_opens_with_bare_and_with_llama_cpp_names);
    RUN(all_in_one_file_gives_the_bits_of_its_parts);
    RUN(every_missing_or_misshapen_tensor_of_the_transformer_is_named);
    RUN(every_missing_or_misshapen_tensor_of_the_vae_is_named);
    RUN(every_missing_or_misshapen_tensor_of_the_text_encoder_is_named);
    end_networks();
    TEST_END();
}
