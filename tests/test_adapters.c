// Adapters: names of every program, scales, what is left out, and what is refused. What the kinds of changes do is in
// test_adapter_kinds.c and test_lokr.c.
#include "models/adapter_pattern.h"
#include "models/network_state.h"
#include "network_fixture.h"
#include "system.h"
#include <stdatomic.h>

// ---- Adapters -------------------------------------------------------------------------------------------------------

static sumi_result open_adapter(const sumi_network* network, const char* path, sumi_error* error)
{
    sumi_adapter_file* file = NULL;
    sumi_result result = open_adapter_file(&s_heap, network, path, error, &file);
    sumi_adapter_close(file);
    return result;
}

static sumi_tensor matrix_of(const char* name, int64_t rows, int64_t cols, const float* values)
{
    return (sumi_tensor){.name = name,
                         .dtype = SUMI_DTYPE_F32,
                         .rank = 2,
                         .shape = {rows, cols},
                         .data = values,
                         .bytes = (uint64_t)(rows * cols) * 4};
}

// Whether a text has the parts of `pattern` between its '*', in their order.
static bool says(const char* text, const char* pattern)
{
    char part[256];
    while (text != NULL && *pattern != 0) {
        const size_t bytes = strcspn(pattern, "*");
        snprintf(part, sizeof part, "%.*s", (int)bytes, pattern);
        text = strstr(text, part);
        if (text != NULL) text += bytes;
        pattern += bytes + (pattern[bytes] == '*');
    }
    return text != NULL;
}

// One adapter in every spelling gives the same deltas.
TEST(adapter_names_of_every_program_are_understood)
{
    static const struct {
        const char *down, *up, *alpha;
    } s_spellings[] = {
        {"transformer.layers.0.attention.to_q.lora_A.weight", "transformer.layers.0.attention.to_q.lora_B.weight",
         NULL},
        {"layers.0.attention.to_q.lora_A.default.weight", "layers.0.attention.to_q.lora_B.default.weight", NULL},
        {"base_model.model.layers.0.attention.to_q.lora_A.weight",
         "base_model.model.layers.0.attention.to_q.lora_B.weight", NULL},
        {"diffusion_model.layers.0.attention.to_q.lora_down.weight",
         "diffusion_model.layers.0.attention.to_q.lora_up.weight", "diffusion_model.layers.0.attention.to_q.alpha"},
        {"model.diffusion_model.layers.0.attention.to_q.lora_A.weight",
         "model.diffusion_model.layers.0.attention.to_q.lora_B.weight", NULL},
        {"lora_unet_layers_0_attention_to_q.lora_down.weight", "lora_unet_layers_0_attention_to_q.lora_up.weight",
         "lora_unet_layers_0_attention_to_q.alpha"},
        {"lycoris_layers_0_attention_to_q.lora_down.weight", "lycoris_layers_0_attention_to_q.lora_up.weight",
         "lycoris_layers_0_attention_to_q.alpha"},
        {"layers.0.attention.to.q.lora.down.weight", "layers.0.attention.to.q.lora.up.weight", NULL},
        {"transformer.layers.0.attention.to_q.lora_A.my-style.weight",
         "transformer.layers.0.attention.to_q.lora_B.my-style.weight", "transformer.layers.0.attention.to_q.alpha"},
        {"layers.0.attention.to_q.lora_A.default", "layers.0.attention.to_q.lora_B.default", NULL},
        {"diffusion_model.layers.0.attention.to_q.lora_A", "diffusion_model.layers.0.attention.to_q.lora_B", NULL},
        {"lora_unet__layers_0_attention_to_q.lora_down.weight", "lora_unet__layers_0_attention_to_q.lora_up.weight",
         "lora_unet__layers_0_attention_to_q.alpha"},
        {"lora_transformer_layers_0_attention_to_q.lora_down.weight",
         "lora_transformer_layers_0_attention_to_q.lora_up.weight", "lora_transformer_layers_0_attention_to_q.alpha"},
        {"pipe.dit.layers.0.attention.to_q.lora_A.default.weight",
         "pipe.dit.layers.0.attention.to_q.lora_B.default.weight", NULL},
        {"base_model.model.transformer.layers.0.attention.to_q.lora_linear_layer.down.weight",
         "base_model.model.transformer.layers.0.attention.to_q.lora_linear_layer.up.weight", NULL}};
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) {
        CHECK(!"the model opens");
        return;
    }
    static float s_down[2 * 64], s_up[64 * 2], s_alpha = 1.0f;
    fill(s_down, 128, 5);
    fill(s_up, 128, 6);
    for (size_t i = 0; i < sizeof s_spellings / sizeof *s_spellings; i++) {
        sumi_tensor tensors[3] = {
            {.name = s_spellings[i].down,
             .dtype = SUMI_DTYPE_F32,
             .rank = 2,
             .shape = {2, 64},
             .data = s_down,
             .bytes = sizeof s_down},
            {.name = s_spellings[i].up,
             .dtype = SUMI_DTYPE_F32,
             .rank = 2,
             .shape = {64, 2},
             .data = s_up,
             .bytes = sizeof s_up},
            {.name = s_spellings[i].alpha, .dtype = SUMI_DTYPE_F32, .rank = 0, .data = &s_alpha, .bytes = 4}};
        write_tensors(scratch("adapter.safetensors"), tensors, s_spellings[i].alpha != NULL ? 3 : 2, NULL, 0);
        sumi_error error = {0};
        sumi_adapter_file* file = NULL;
        CHECK_NUMBER(open_adapter_file(&s_heap, network, scratch("adapter.safetensors"), &error, &file), SUMI_OK);
        if (file == NULL) {
            printf("  %s\n", error.text);
            continue;
        }
        const sumi_adapter* adapter = sumi_adapter_get(file);
        CHECK_NUMBER(adapter->delta_count, 1);
        CHECK_TEXT(network->weights.weights[adapter->deltas[0].weight_index]->name, "layers.0.attention.qkv");
        CHECK_NUMBER(adapter->deltas[0].row_begin, 0);
        CHECK_NEAR(adapter->deltas[0].scale, s_spellings[i].alpha != NULL ? 0.5 : 1.0, 0, 0);
        sumi_adapter_close(file);
    }
    sumi_network_close(network);
}

TEST(adapter_metadata_gives_alpha_per_module_and_rank_stabilised_scales)
{
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    static float s_down[4 * 64], s_up[64 * 4];
    sumi_tensor tensors[4] = {{.name = "transformer.layers.0.attention.to_k.lora_A.weight",
                               .dtype = SUMI_DTYPE_F32,
                               .rank = 2,
                               .shape = {4, 64},
                               .data = s_down,
                               .bytes = sizeof s_down},
                              {.name = "transformer.layers.0.attention.to_k.lora_B.weight",
                               .dtype = SUMI_DTYPE_F32,
                               .rank = 2,
                               .shape = {64, 4},
                               .data = s_up,
                               .bytes = sizeof s_up},
                              {.name = "transformer.layers.1.attention.to_out.0.lora_A.weight",
                               .dtype = SUMI_DTYPE_F32,
                               .rank = 2,
                               .shape = {4, 64},
                               .data = s_down,
                               .bytes = sizeof s_down},
                              {.name = "transformer.layers.1.attention.to_out.0.lora_B.weight",
                               .dtype = SUMI_DTYPE_F32,
                               .rank = 2,
                               .shape = {64, 4},
                               .data = s_up,
                               .bytes = sizeof s_up}};
    sumi_metadata metadata = {"lora_adapter_metadata",
                              "{\"transformer.r\": 4, \"transformer.lora_alpha\": 8, \"transformer.use_rslora\": true, "
                              "\"transformer.alpha_pattern\": {\"layers.1.attention.to_out.0\": 6}}"};
    write_tensors(scratch("peft.safetensors"), tensors, 4, &metadata, 1);
    sumi_error error = {0};
    sumi_adapter_file* file = NULL;
    CHECK_NUMBER(open_adapter_file(&s_heap, network, scratch("peft.safetensors"), &error, &file), SUMI_OK);
    if (file != NULL) {
        const sumi_adapter* adapter = sumi_adapter_get(file);
        CHECK_NUMBER(adapter->delta_count, 2);
        CHECK_NUMBER(adapter->deltas[0].row_begin, 64);     // k follows q
        CHECK_NEAR(adapter->deltas[0].scale, 4.0, 1e-6, 0); // 8 / sqrt(4)
        CHECK_NEAR(adapter->deltas[1].scale, 3.0, 1e-6, 0); // 6 / sqrt(4)
    }
    sumi_adapter_close(file);
    sumi_network_close(network);
}

// A folder as PEFT saves it, or its file: what adapter_config.json says of scales, and what it may not say.
TEST(adapter_config_beside_the_file_gives_scales)
{
    static const struct {
        const char *json, *header, *header_value; // NULL: not there
        bool has_alpha;
        sumi_result expected;
        double scale;     // of layers.0.attention.to_k, of rank 4
        const char* says; // where it fails
    } s_cases[] = {
        {NULL, NULL, NULL, false, SUMI_OK, 1.0, NULL},
        {"{\"r\": 4, \"lora_alpha\": 2}", NULL, NULL, false, SUMI_OK, 0.5, NULL},
        {"{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 6, \"use_rslora\": true}", NULL, NULL, false, SUMI_OK,
         3.0, NULL},
        {"{\"lora_alpha\": 2, \"alpha_pattern\": {\"to_q\": 1, \"attention.to_k\": 12, \"to_k\": 100}}", NULL, NULL,
         false, SUMI_OK, 3.0, NULL},
        {"{\"lora_alpha\": 2, \"alpha_pattern\": {\"o_k\": 12}}", NULL, NULL, false, SUMI_OK, 0.5, NULL},
        {"{\"lora_alpha\": 2, \"r\": 8, \"rank_pattern\": {\"^layers.0.attention.to_k\": 4}}", NULL, NULL, false,
         SUMI_OK, 0.5, NULL},
        {"{\"lora_alpha\": 2, \"r\": 8, \"rank_pattern\": {\"to_v\": 4}}", NULL, NULL, false, SUMI_TENSOR_MISMATCH, 0,
         "the rank 8, the tensors have 4"},
        {"{\"r\": 4, \"lora_alpha\": 2}", NULL, NULL, true, SUMI_OK, 0.25, NULL},
        // the file's own header goes first
        {"{\"r\": 4, \"lora_alpha\": 2}", "lora_alpha", "8", false, SUMI_OK, 2.0, NULL},
        {"{\"r\": 4, \"lora_alpha\": 2}", "lora_alpha", "None", false, SUMI_OK, 0.5, NULL},
        {"not json", "lora_adapter_metadata", "{\"transformer.lora_alpha\": 16}", false, SUMI_OK, 4.0, NULL},
        {NULL, "lora_alpha", "6", false, SUMI_OK, 1.5, NULL},
        {NULL, "lora_adapter_metadata", "{\"transformer.lora_alpha\": ", false, SUMI_FILE_MALFORMED, 0,
         "lora_adapter_metadata"},
        {"", NULL, NULL, false, SUMI_FILE_MALFORMED, 0, "adapter_config.json"},
        {"[1]", NULL, NULL, false, SUMI_FILE_MALFORMED, 0, "adapter_config.json"},
        {"{\"lora_alpha\": 2", NULL, NULL, false, SUMI_FILE_MALFORMED, 0, "adapter_config.json"},
        {"{\"lora_alpha\": 1e999}", NULL, NULL, false, SUMI_FILE_MALFORMED, 0, "adapter_config.json"},
        // regular expressions, as PEFT matches them; the first one counts
        {"{\"alpha_pattern\": {\"to_(q|v)\": 40, \"to_(k|v)\": 2}}", NULL, NULL, false, SUMI_OK, 0.5, NULL},
        {"{\"alpha_pattern\": {\".*\\\\.to_k\": 6, \".*\": 2}}", NULL, NULL, false, SUMI_OK, 1.5, NULL},
        {"{\"alpha_pattern\": {\"^layers\\\\.\\\\d+\\\\.attention\\\\.to_[kv]$\": 6}}", NULL, NULL, false, SUMI_OK, 1.5,
         NULL},
        {"{\"lora_alpha\": 8, \"alpha_pattern\": {\"attention\": 6, \"^to_k\": 6}}", NULL, NULL, false, SUMI_OK, 2.0,
         NULL},
        {"{\"r\": 8, \"rank_pattern\": {\"layers\\\\.[0-9]\\\\..*to_k\": 4}}", NULL, NULL, false, SUMI_OK, 1.0, NULL},
        {"{\"alpha_pattern\": {\"to_k(?=x)\": 2}}", NULL, NULL, false, SUMI_NOT_SUPPORTED, 0, "to_k(?=x)"},
        {"{\"rank_pattern\": {\"to_k{2}\": 2}}", NULL, NULL, false, SUMI_NOT_SUPPORTED, 0, "to_k{2}"},
        // the entries of the denoiser, wherever they are
        {NULL, "lora_adapter_metadata",
         "{\"text_encoder.r\": 16, \"text_encoder.lora_alpha\": 64, \"transformer.r\": 4, \"transformer.lora_alpha\": "
         "8}",
         false, SUMI_OK, 2.0, NULL},
        {NULL, "lora_adapter_metadata",
         "{\"transformer.r\": 4, \"transformer.lora_alpha\": 8, \"text_encoder.r\": 16, \"text_encoder.lora_alpha\": "
         "64, "
         "\"text_encoder.use_rslora\": true, \"text_encoder.alpha_pattern\": {\"to_k\": 1}}",
         false, SUMI_OK, 2.0, NULL},
        {NULL, "lora_adapter_metadata", "{\"transformer.lora_alpha\": 8, \"transformer_2.lora_alpha\": 64}", false,
         SUMI_OK, 2.0, NULL},
        {NULL, "lora_adapter_metadata", "{\"text_encoder.r\": 16, \"text_encoder.lora_alpha\": 64}", false, SUMI_OK,
         1.0, NULL},
        {"{\"use_dora\": true}", NULL, NULL, true, SUMI_TENSOR_MISSING, 0, "DoRA"},
        {"{\"peft_type\": \"OFT\"}", NULL, NULL, false, SUMI_NOT_SUPPORTED, 0, "OFT"},
    };
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) {
        CHECK(!"the model opens");
        return;
    }
    static float s_down[4 * 64], s_up[64 * 4], s_alpha = 1.0f;
    sumi_tensor tensors[3] = {{.name = "base_model.model.layers.0.attention.to_k.lora_A.weight",
                               .dtype = SUMI_DTYPE_F32,
                               .rank = 2,
                               .shape = {4, 64},
                               .data = s_down,
                               .bytes = sizeof s_down},
                              {.name = "base_model.model.layers.0.attention.to_k.lora_B.weight",
                               .dtype = SUMI_DTYPE_F32,
                               .rank = 2,
                               .shape = {64, 4},
                               .data = s_up,
                               .bytes = sizeof s_up},
                              {.name = "base_model.model.layers.0.attention.to_k.alpha",
                               .dtype = SUMI_DTYPE_F32,
                               .rank = 0,
                               .data = &s_alpha,
                               .bytes = 4}};
    system_make_folder(scratch("peft"));
    const uint64_t held = atomic_load(&s_heap.allocated_bytes);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        const sumi_metadata header = {s_cases[i].header, s_cases[i].header_value};
        write_tensors(scratch("peft/adapter_model.safetensors"), tensors, s_cases[i].has_alpha ? 3 : 2, &header,
                      s_cases[i].header != NULL);
        remove(scratch("peft/adapter_config.json"));
        if (s_cases[i].json != NULL)
            write_file(scratch("peft/adapter_config.json"), s_cases[i].json, strlen(s_cases[i].json));
        for (int k = 0; k < 3; k++) { // the folder, with a slash behind it, the file
            const char* path = scratch(k == 0 ? "peft" : k == 1 ? "peft/" : "peft/adapter_model.safetensors");
            sumi_error error = {0};
            sumi_adapter_file* file = NULL;
            const int errors = t_errors;
            CHECK_NUMBER(open_adapter_file(&s_heap, network, path, &error, &file), s_cases[i].expected);
            if (file != NULL) CHECK_NEAR(sumi_adapter_get(file)->deltas[0].scale, s_cases[i].scale, 1e-6, 0);
            if (s_cases[i].says != NULL) CHECK(strstr(error.text, s_cases[i].says) != NULL);
            if (t_errors > errors) printf("  case %d: %s\n", (int)i, error.text);
            sumi_adapter_close(file);
        }
    }
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), held);
    sumi_error error = {0};
    CHECK_NUMBER(open_adapter(network, scratch("no folder"), &error), SUMI_FILE_NOT_FOUND);
    CHECK(strstr(error.text, "adapter_model.safetensors") != NULL);
    sumi_network_close(network);
}

TEST(adapter_with_the_same_change_twice_is_applied_once)
{
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    static float s_down[2 * 64], s_up[192 * 2];
    static const char* const s_modules[] = {"to.q", "to.k", "to.v", "qkv", "out", "to.out.0"};
    static char s_names[12][96];
    sumi_tensor tensors[12];
    for (int i = 0; i < 6; i++) {
        int64_t rows = i == 3 ? 192 : 64;
        snprintf(s_names[2 * i], sizeof s_names[0], "layers.0.attention.%s.lora.down.weight", s_modules[i]);
        snprintf(s_names[2 * i + 1], sizeof s_names[0], "layers.0.attention.%s.lora.up.weight", s_modules[i]);
        tensors[2 * i] = (sumi_tensor){.name = s_names[2 * i],
                                       .dtype = SUMI_DTYPE_F32,
                                       .rank = 2,
                                       .shape = {2, 64},
                                       .data = s_down,
                                       .bytes = sizeof s_down};
        tensors[2 * i + 1] = (sumi_tensor){.name = s_names[2 * i + 1],
                                           .dtype = SUMI_DTYPE_F32,
                                           .rank = 2,
                                           .shape = {rows, 2},
                                           .data = s_up,
                                           .bytes = (uint64_t)rows * 8};
    }
    write_tensors(scratch("twice.safetensors"), tensors, 12, NULL, 0);
    sumi_error error = {0};
    sumi_adapter_file* file = NULL;
    CHECK_NUMBER(open_adapter_file(&s_heap, network, scratch("twice.safetensors"), &error, &file), SUMI_OK);
    if (file != NULL) CHECK_NUMBER(sumi_adapter_get(file)->delta_count, 4);
    else printf("  %s\n", error.text);
    sumi_adapter_close(file);
    sumi_network_close(network);
}

// PEFT's config is for PEFT's file. A folder of ComfyUI has many files, and none of them asks for it.
TEST(adapter_config_of_another_file_is_not_read)
{
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    static float s_down[4 * 64], s_up[64 * 4];
    const sumi_tensor tensors[2] = {
        matrix_of("layers.0.attention.to_k.lora_A.weight", 4, 64, s_down),
        matrix_of("layers.0.attention.to_k.lora_B.weight", 64, 4, s_up),
    };
    static const char s_config[] = "{\"peft_type\": \"LORA\", \"r\": 8, \"lora_alpha\": 16}";
    system_make_folder(scratch("peft"));
    write_file(scratch("peft/adapter_config.json"), s_config, strlen(s_config));
    static const char* const s_names[] = {"peft/my_style.safetensors", "peft/pytorch_lora_weights.safetensors",
                                          "peft/adapter_model.safetensors"};
    for (size_t i = 0; i < 3; i++) {
        sumi_error error = {0};
        sumi_adapter_file* file = NULL;
        write_tensors(scratch(s_names[i]), tensors, 2, NULL, 0);
        CHECK_NUMBER(open_adapter_file(&s_heap, network, scratch(s_names[i]), &error, &file),
                     i < 2 ? SUMI_OK : SUMI_TENSOR_MISMATCH);
        if (file != NULL) CHECK_NEAR(sumi_adapter_get(file)->deltas[0].scale, 1.0, 0, 0);
        sumi_adapter_close(file);
        if (i < 2) system_remove(scratch(s_names[i]));
    }
    sumi_network_close(network);
}

TEST(patterns_of_configs_are_matched_as_peft_does)
{
    static const struct {
        const char *pattern, *name;
        bool matches;
    } s_cases[] = {{"to_q", "layers.0.attention.to_q", true},
                   {"to_q", "to_q", true},
                   {"o_q", "layers.0.attention.to_q", false},
                   {"attention.to_q", "layers.0.attention.to_q", true},
                   {"attention.to_q", "layers.0.attention_to_q", true}, // a dot is any character
                   {"attention\\.to_q", "layers.0.attention_to_q", false},
                   {"layers.0", "layers.0.attention.to_q", false}, // to the end
                   {"layers\\.0\\..*", "layers.0.attention.to_q", true},
                   {"layers\\.0\\..*", "layers.10.attention.to_q", false},
                   {"^layers.0.attention.to_q$", "layers.0.attention.to_q", true},
                   {"^attention.to_q", "layers.0.attention.to_q", false},
                   {"to_q$", "layers.0.attention.to_q", true},
                   {"to_q$x", "layers.0.attention.to_qx", false},
                   {".*\\d+\\.attention.*", "layers.17.attention.to_q", true},
                   {"layers\\.\\d\\..*", "layers.17.attention.to_q", false},
                   {"layers\\.(1|2|17)\\.(attention|mlp)\\..+", "layers.17.attention.to_q", true},
                   {"layers\\.(1|2)\\.(attention|mlp)\\..+", "layers.17.attention.to_q", false},
                   {"to_[qkv]", "x.to_k", true},
                   {"to_[^qkv]", "x.to_k", false},
                   {"to_[a-m]", "x.to_k", true},
                   {"to_[]-]", "x.to_]", true},
                   {"[\\w.]+_k", "x.to_k", true},
                   {"(?:ab)+", "x.ababab", true},
                   {"(?:ab)+", "x.aba", false},
                   {"ab?c", "ac", true},
                   {"ab*?c", "abbbc", true},
                   {"a||b", "x.b", true},
                   {"(((a|b)*)*)*c", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaad", false},
                   {"", "x.", true},
                   {"", "x", false}};
    static const char* const s_unreadable[] = {"(",    ")",   "a)",    "[a",    "[",       "*a",
                                               "a{2}", "a**", "\\b",   "(?=a)", "(?!a)",   "(?P<x",
                                               "\\1",  "a\\", "[b-a]", "(a",    "[a-\\d]", "(?"};
    static sumi_pattern s_pattern;
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        const int errors = t_errors;
        CHECK(sumi_pattern_read(&s_pattern, s_cases[i].pattern, strlen(s_cases[i].pattern)));
        CHECK_NUMBER(sumi_pattern_matches(&s_pattern, s_cases[i].name, strlen(s_cases[i].name)), s_cases[i].matches);
        if (t_errors > errors) printf("  %s in %s\n", s_cases[i].pattern, s_cases[i].name);
    }
    for (size_t i = 0; i < sizeof s_unreadable / sizeof *s_unreadable; i++) {
        const bool is_read = sumi_pattern_read(&s_pattern, s_unreadable[i], strlen(s_unreadable[i]));
        CHECK(!is_read);
        if (is_read) printf("  %s\n", s_unreadable[i]);
    }
    char longest[4 * SUMI_PATTERN_MAX_STEPS];
    memset(longest, 'a', sizeof longest);
    CHECK(!sumi_pattern_read(&s_pattern, longest, sizeof longest));
    memset(longest, '(', sizeof longest);
    CHECK(!sumi_pattern_read(&s_pattern, longest, sizeof longest));
}

// ---- One layer under two names --------------------------------------------------------------------------------------

TEST(two_different_changes_of_one_layer_are_refused)
{
    enum { Q, K, V, FUSED, OUT, OUT_2, COUNT };
    static const char* const s_modules[COUNT] = {"to_q", "to_k", "to_v", "qkv", "out", "to_out.0"};
    static const struct {
        bool has[COUNT];
        int changed;    // this one's factors are others; -1: none
        int32_t deltas; // 0: refused
        const char* says;
    } s_cases[] = {
        {{[OUT] = true, [OUT_2] = true}, -1, 1, ""},
        {{[OUT] = true, [OUT_2] = true}, OUT, 0, "attention.out*attention.to_out.0*different"},
        {{[Q] = true, [K] = true, [V] = true, [FUSED] = true}, -1, 3, "1 fused layer *left out*attention.qkv"},
        {{[Q] = true, [FUSED] = true}, -1, 0, "attention.qkv*attention.to_q*different"},
        {{[K] = true, [V] = true, [FUSED] = true}, FUSED, 0, "attention.qkv*different"},
    };
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    static float s_down[2 * 64], s_up[192 * 2], s_other[192 * 2];
    static char s_names[2 * COUNT][96];
    fill(s_down, 128, 3), fill(s_up, 384, 4), fill(s_other, 384, 4);
    s_other[5] += 1.0f;
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_tensor tensors[2 * COUNT];
        size_t count = 0;
        for (int m = 0; m < COUNT; m++) {
            if (!s_cases[i].has[m]) continue;
            snprintf(s_names[count], sizeof s_names[0], "diffusion_model.layers.0.attention.%s.lora_down.weight",
                     s_modules[m]);
            tensors[count] = matrix_of(s_names[count], 2, 64, s_down);
            count++;
            snprintf(s_names[count], sizeof s_names[0], "diffusion_model.layers.0.attention.%s.lora_up.weight",
                     s_modules[m]);
            tensors[count] =
                matrix_of(s_names[count], m == FUSED ? 192 : 64, 2, s_cases[i].changed == m ? s_other : s_up);
            count++;
        }
        write_tensors(scratch("twice.safetensors"), tensors, count, NULL, 0);
        sumi_error error = {0};
        sumi_adapter_file* file = NULL;
        const int errors = t_errors;
        CHECK_NUMBER(open_adapter_file(&s_heap, network, scratch("twice.safetensors"), &error, &file),
                     s_cases[i].deltas > 0 ? SUMI_OK : SUMI_NOT_SUPPORTED);
        if (file != NULL) CHECK_NUMBER(sumi_adapter_get(file)->delta_count, s_cases[i].deltas);
        CHECK(says(file != NULL ? sumi_adapter_notice(file) : error.text, s_cases[i].says));
        if (file != NULL && s_cases[i].says[0] == 0) CHECK_TEXT(sumi_adapter_notice(file), "");
        if (t_errors > errors) printf("  case %d: %s\n", (int)i, file != NULL ? sumi_adapter_notice(file) : error.text);
        sumi_adapter_close(file);
    }
    sumi_network_close(network);
}

TEST(adapters_open_layer_by_layer_and_close_at_any_point)
{
    enum { LAYERS = 11 };
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    const uint64_t held = atomic_load(&s_heap.allocated_bytes);
    for (int steps = 0; steps <= LAYERS; steps++) {
        sumi_error error = {0};
        sumi_adapter_file* file = NULL;
        float progress = 0;
        bool is_done = false;
        CHECK_NUMBER(
            sumi_adapter_open_begin(&s_heap, NULL, network, GOLDEN "lora/lora_kohya.safetensors", &error, &file),
            SUMI_OK);
        if (file == NULL) break;
        for (int i = 0; i < steps; i++) {
            CHECK(!is_done && sumi_adapter_get(file)->delta_count == 0);
            CHECK_NUMBER(sumi_adapter_open_step(file, 0, &is_done, &progress, &error), SUMI_OK);
            CHECK_NEAR(progress, (i + 1.0) / LAYERS, 1e-6, 0);
        }
        if (steps == LAYERS && !is_done) // the last step looks at all layers together
            CHECK_NUMBER(sumi_adapter_open_step(file, 0, &is_done, &progress, &error), SUMI_OK);
        CHECK_NUMBER(is_done, steps == LAYERS);
        CHECK_NUMBER(sumi_adapter_get(file)->delta_count, steps == LAYERS ? LAYERS : 0);
        sumi_adapter_close(file);
        CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), held);
    }
    sumi_network_close(network);
}

// ---- What is left out, and what is refused --------------------------------------------------------------------------

TEST(layers_of_the_text_encoder_are_left_out_of_models_without_it)
{
    static const char* const s_names[] = {"text_encoder.model.layers.0.self_attn.q_proj",
                                          "lora_te_model_layers_0_self_attn_q_proj",
                                          "lora_te1_model_layers_0_self_attn_q_proj",
                                          "text_encoders.qwen25_7b.transformer.model.layers.0.self_attn.q_proj",
                                          "base_model.model.text_encoder_2.layers.0.q"};
    sumi_network* network = NULL;
    sumi_error failure = {0};
    CHECK_NUMBER(open_all(&s_heap, &(sumi_network_desc){.path = GOLDEN "model", .without_text_encoder = true}, &failure,
                          &network),
                 SUMI_OK);
    if (network == NULL) return;
    static float s_values[64 * 4];
    fill(s_values, 256, 3);
    for (size_t i = 0; i < 2 * sizeof s_names / sizeof *s_names; i++) {
        const bool is_alone = i % 2 == 1;
        char down[160], up[160];
        snprintf(down, sizeof down, "%s.lora_down.weight", s_names[i / 2]);
        snprintf(up, sizeof up, "%s.lora_up.weight", s_names[i / 2]);
        const sumi_tensor tensors[4] = {
            matrix_of(down, 4, 64, s_values), matrix_of(up, 64, 4, s_values),
            matrix_of("transformer.layers.0.attention.to_q.lora_down.weight", 4, 64, s_values),
            matrix_of("transformer.layers.0.attention.to_q.lora_up.weight", 64, 4, s_values)};
        write_tensors(scratch("adapter.safetensors"), tensors, is_alone ? 2 : 4, NULL, 0);
        sumi_error error = {0};
        sumi_adapter_file* file = NULL;
        CHECK_NUMBER(open_adapter_file(&s_heap, network, scratch("adapter.safetensors"), &error, &file),
                     is_alone ? SUMI_NOT_SUPPORTED : SUMI_OK);
        if (file != NULL) CHECK_NUMBER(sumi_adapter_get(file)->delta_count, 1);
        CHECK(says(file != NULL ? sumi_adapter_notice(file) : error.text,
                   is_alone ? "adapter.safetensors*all layers, 1, *text encoder*opened without it"
                            : "adapter.safetensors*1 layer *text encoder*opened without it"));
        sumi_adapter_close(file);
    }
    sumi_network_close(network);
}

TEST(layers_of_the_text_encoder_match_by_name_and_shape)
{
#define Q "model.layers.0.self_attn.q_proj"
    static const struct {
        const char* module;
        int32_t rows, cols;
        sumi_result result;
        const char* says;
    } s_cases[] = {
        {"text_encoder." Q, 128, 96, SUMI_OK, ""},
        {"text_encoder." Q, 64, 96, SUMI_TENSOR_MISMATCH, "text_encoder." Q "*the layer needs*[128, r]"},
        {"text_encoder.model.layers.9.self_attn.q_proj", 128, 96, SUMI_LORA_NO_MATCH, "text_encoder.model.layers.9"},
        {"text_encoder_2." Q, 128, 96, SUMI_LORA_NO_MATCH, "text_encoder_2." Q}, // there is only one
        {"lora_te2_" Q, 128, 96, SUMI_LORA_NO_MATCH, "lora_te2_" Q},
        {"transformer." Q, 128, 96, SUMI_LORA_NO_MATCH, "transformer." Q},
        {"text_encoder.layers.0.attention.to_q", 64, 64, SUMI_LORA_NO_MATCH, "text_encoder.layers.0.attention"},
        {"text_encoder.model.embed_tokens", 64, 96, SUMI_LORA_NO_MATCH, "text_encoder.model.embed_tokens"},
        {"bundle_emb.word", 64, 96, SUMI_NOT_SUPPORTED, "bundle_emb.word*textual inversion"},
    };
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    static float s_values[128 * 4];
    fill(s_values, 512, 3);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        char down[160], up[160];
        snprintf(down, sizeof down, "%s.lora_down.weight", s_cases[i].module);
        snprintf(up, sizeof up, "%s.lora_up.weight", s_cases[i].module);
        const sumi_tensor tensors[2] = {matrix_of(down, 4, s_cases[i].cols, s_values),
                                        matrix_of(up, s_cases[i].rows, 4, s_values)};
        write_tensors(scratch("adapter.safetensors"), tensors, 2, NULL, 0);
        sumi_error error = {0};
        sumi_adapter_file* file = NULL;
        CHECK_NUMBER(open_adapter_file(&s_heap, network, scratch("adapter.safetensors"), &error, &file),
                     s_cases[i].result);
        CHECK(says(error.text, s_cases[i].says));
        if (!says(error.text, s_cases[i].says)) printf("  %s\n", error.text);
        if (file != NULL) {
            CHECK_TEXT(sumi_adapter_notice(file), "");
            CHECK_NUMBER(sumi_adapter_get(file)->delta_count, 0);
            CHECK_NUMBER(sumi_adapter_get_text(file)->delta_count, 1);
        }
        sumi_adapter_close(file);
    }
    sumi_network_close(network);
}

// diffusers writes the numbers of each component into the header.
TEST(each_component_has_its_own_alpha_in_the_header)
{
    static const struct {
        const char* json;
        float denoiser, text;
    } s_cases[] = {{"{\"transformer.r\": 4, \"transformer.lora_alpha\": 8, \"text_encoder.r\": 4, "
                    "\"text_encoder.lora_alpha\": 2}",
                    2.0f, 0.5f},
                   {"{\"transformer.r\": 4, \"transformer.lora_alpha\": 8}", 2.0f, 1.0f},
                   {"{\"text_encoder.r\": 4, \"text_encoder.lora_alpha\": 2}", 1.0f, 0.5f},
                   {"{\"r\": 4, \"lora_alpha\": 12}", 3.0f, 3.0f}};
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    static float s_values[128 * 4];
    fill(s_values, 512, 3);
    const sumi_tensor tensors[4] = {matrix_of("text_encoder." Q ".lora_A.weight", 4, 96, s_values),
                                    matrix_of("text_encoder." Q ".lora_B.weight", 128, 4, s_values),
                                    matrix_of("transformer.layers.0.attention.to_q.lora_A.weight", 4, 64, s_values),
                                    matrix_of("transformer.layers.0.attention.to_q.lora_B.weight", 64, 4, s_values)};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        const sumi_metadata metadata = {"lora_adapter_metadata", s_cases[i].json};
        write_tensors(scratch("adapter.safetensors"), tensors, 4, &metadata, 1);
        sumi_error error = {0};
        sumi_adapter_file* file = NULL;
        CHECK_NUMBER(open_adapter_file(&s_heap, network, scratch("adapter.safetensors"), &error, &file), SUMI_OK);
        if (file == NULL) continue;
        CHECK_NUMBER(sumi_adapter_get(file)->delta_count, 1);
        CHECK_NUMBER(sumi_adapter_get_text(file)->delta_count, 1);
        CHECK_NEAR(sumi_adapter_get(file)->deltas[0].scale, s_cases[i].denoiser, 0, 0);
        CHECK_NEAR(sumi_adapter_get_text(file)->deltas[0].scale, s_cases[i].text, 0, 0);
        sumi_adapter_close(file);
    }
    sumi_network_close(network);
#undef Q
}

TEST(not_a_number_in_any_tensor_is_refused_by_its_name)
{
    static const struct {
        sumi_dtype dtype;
        int32_t bytes;
        uint32_t bits;
    } s_values[] = {{SUMI_DTYPE_F32, 4, 0x7fc00000}, {SUMI_DTYPE_F32, 4, 0xff800000}, {SUMI_DTYPE_F16, 2, 0x7e00},
                    {SUMI_DTYPE_F16, 2, 0x7c00},     {SUMI_DTYPE_BF16, 2, 0x7fc0},    {SUMI_DTYPE_F8_E4M3, 1, 0x7f},
                    {SUMI_DTYPE_F8_E5M2, 1, 0x7c}};
    static const char* const s_modules[] = {"lora_A.weight", "lora_B.weight", "dora_scale", "diff_b"};
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    static unsigned char s_bytes[64 * 64 * 4];
    static float s_zeros[64 * 4];
    for (size_t i = 0; i < sizeof s_values / sizeof *s_values * 4; i++) {
        const size_t v = i / 4, where = i % 4, count = where < 2 ? 256 : 64;
        const int32_t size = s_values[v].bytes;
        memset(s_bytes, 0, sizeof s_bytes);
        memcpy(s_bytes + (count - 1) * (size_t)size, &s_values[v].bits, (size_t)size); // little-endian
        char names[4][96];
        sumi_tensor tensors[4];
        for (size_t k = 0; k < 4; k++) {
            snprintf(names[k], sizeof names[k], "layers.0.attention.to_q.%s", s_modules[k]);
            tensors[k] = matrix_of(names[k], k == 0 ? 4 : 64, k == 0 ? 64 : k == 1 ? 4 : 1, s_zeros);
        }
        tensors[where].dtype = s_values[v].dtype;
        tensors[where].data = s_bytes;
        tensors[where].bytes = count * (uint64_t)size;
        write_tensors(scratch("wrong.safetensors"), tensors, 4, NULL, 0);
        sumi_error error = {0};
        char expected[192];
        snprintf(expected, sizeof expected, "wrong.safetensors*%s*NaN or infinity*value %d", names[where],
                 (int)count - 1);
        CHECK_NUMBER(open_adapter(network, scratch("wrong.safetensors"), &error), SUMI_FILE_MALFORMED);
        CHECK(says(error.text, expected));
        if (!says(error.text, expected)) printf("  %s\n", error.text);
    }
    sumi_network_close(network);
}

// Extractors write the differences of all weights, of those that do not differ, too.
TEST(differences_of_zero_cost_nothing)
{
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    static float s_zeros[64 * 64];
    const sumi_tensor tensors[4] = {matrix_of("diffusion_model.layers.0.attention.to_q.diff", 64, 64, s_zeros),
                                    matrix_of("diffusion_model.layers.0.attention.to_k.diff_b", 64, 1, s_zeros),
                                    matrix_of("diffusion_model.layers.0.attention_norm1.diff", 64, 1, s_zeros),
                                    matrix_of("diffusion_model.layers.0.attention_norm1.diff_b", 64, 1, s_zeros)};
    write_tensors(scratch("adapter.safetensors"), tensors, 4, NULL, 0);
    sumi_error error = {0};
    sumi_adapter_file* file = NULL;
    CHECK_NUMBER(open_adapter_file(&s_heap, network, scratch("adapter.safetensors"), &error, &file), SUMI_OK);
    if (file != NULL) CHECK_NUMBER(sumi_adapter_get(file)->delta_count, 0);
    else printf("  %s\n", error.text);
    sumi_adapter_close(file);
    sumi_network_close(network);
}

// Files that are no LoRA alone: Fun-Acc of Qwen-Image-2.1 has whole weights of norms, and one last layer for each step.
TEST(weights_instead_of_changes_are_refused_by_name)
{
    static const struct {
        const char* name; // beside a LoRA
        int32_t rank;
        int64_t shape[3];
        sumi_result expected;
        const char* says;
    } s_cases[] = {
        {"proj_out.weight", 3, {4, 64, 64}, SUMI_NOT_SUPPORTED, "proj_out.weight [4, 64, 64]*each of 4 steps*Turbo"},
        {"proj_out.diff", 3, {4, 64, 64}, SUMI_NOT_SUPPORTED, "proj_out.diff [4, 64, 64]*each of 4 steps*Fun-Acc"},
        {"lora_unet__proj_out.lora_up.weight", 3, {4, 64, 2}, SUMI_NOT_SUPPORTED, "lora_up.weight [4, 64, 2]*4 steps"},
        {"transformer_blocks.0.attn.norm_q.weight", 1, {32}, SUMI_NOT_SUPPORTED, "norm_q.weight would replace*a LoRA"},
        {"txt_in.text_norm.weight", 1, {64}, SUMI_NOT_SUPPORTED, "txt_in.text_norm.weight would replace*as a model"},
        {"diffusion_model.proj_out.weight", 2, {64, 64}, SUMI_NOT_SUPPORTED, "proj_out.weight would replace"},
        {"text_encoder.model.visual.blocks.1.mlp.linear_fc1.diff",
         2,
         {40, 24},
         SUMI_NOT_SUPPORTED,
         "vision tower*without"},
        {"lora_te_model_visual_blocks_1_mlp_linear_fc1.diff", 2, {40, 24}, SUMI_NOT_SUPPORTED, "vision tower*without"},
        {"txt_in.other_norm.weight", 1, {64}, SUMI_LORA_NO_MATCH, "1 layers*txt_in.other_norm.weight*another model"},
        {"transformer_blocks.0.attn.norm_q.scale", 1, {32}, SUMI_LORA_NO_MATCH, "norm_q.scale*another model"},
        {"proj_out.diff", 3, {64, 64, 1}, SUMI_OK, ""},
    };
    sumi_network* network = open_path("tests/golden/qwen-image-21/model");
    if (network == NULL) return;
    static float s_values[4 * 64 * 64];
    fill(s_values, 4 * 64 * 64, 5);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_tensor tensors[3] = {matrix_of("transformer_blocks.0.attn.to_q.lora_down.weight", 2, 64, s_values),
                                  matrix_of("transformer_blocks.0.attn.to_q.lora_up.weight", 64, 2, s_values),
                                  matrix_of(s_cases[i].name, 1, 1, s_values)};
        tensors[2].rank = s_cases[i].rank;
        for (int32_t k = 0; k < s_cases[i].rank; k++) {
            tensors[2].shape[k] = s_cases[i].shape[k];
            tensors[2].bytes *= (uint64_t)s_cases[i].shape[k];
        }
        write_tensors(scratch("whole.safetensors"), tensors, 3, NULL, 0);
        sumi_error error = {0};
        CHECK_NUMBER(open_adapter(network, scratch("whole.safetensors"), &error), s_cases[i].expected);
        CHECK(says(error.text, s_cases[i].says));
        if (!says(error.text, s_cases[i].says)) printf("  %s\n", error.text);
    }
    sumi_network_close(network);
}

TEST(adapter_that_does_not_fit_is_refused_by_name)
{
    static float s_values[64 * 64];
    static const struct {
        const char* names[2];
        int64_t shapes[2][2];
        sumi_result expected;
        const char* says;
    } s_cases[] = {{{"transformer.double_blocks.0.lora_A.weight", "transformer.double_blocks.0.lora_B.weight"},
                    {{2, 64}, {64, 2}},
                    SUMI_LORA_NO_MATCH,
                    "double_blocks"},
                   {{"layers.0.attention.to_q.lora_A.weight", "layers.0.attention.to_q.lora_B.weight"},
                    {{2, 32}, {64, 2}},
                    SUMI_TENSOR_MISMATCH,
                    "to_q"},
                   {{"layers.0.attention.to_q.lora_A.weight", "layers.0.attention.to_q.lora_B.weight"},
                    {{2, 64}, {64, 3}},
                    SUMI_TENSOR_MISMATCH,
                    "to_q"},
                   {{"layers.0.attention.to_q.lora_A.weight", "layers.0.attention.to_k.lora_B.weight"},
                    {{2, 64}, {64, 2}},
                    SUMI_TENSOR_MISSING,
                    "partner"},
                   {{"layers.0.attention.to_q.hada_w1_a", "layers.0.attention.to_q.hada_w1_b"},
                    {{64, 2}, {2, 64}},
                    SUMI_TENSOR_MISSING,
                    "to_q.hada_w1_a*partner*.hada_w2_a"},
                   {{"layers.0.attention.to_q.hada_w1_a", "layers.0.attention.to_q.hada_t1"},
                    {{64, 2}, {2, 2}},
                    SUMI_NOT_SUPPORTED,
                    "hada_t1*LoHa of a convolution"},
                   {{"layers.0.attention.to_q.lokr_w1", "layers.0.attention.to_q.lokr_t2"},
                    {{8, 8}, {8, 8}},
                    SUMI_NOT_SUPPORTED,
                    "lokr_t2*LoKr of a convolution"},
                   {{"layers.0.attention.to_q.lokr_w1", "layers.0.attention.to_q.lokr_w2"},
                    {{8, 8}, {8, 4}},
                    SUMI_TENSOR_MISMATCH,
                    "[8, 8] and [8, 4], the layer is [64, 64]"},
                   {{"layers.0.attention.to_q.lokr_w1", "layers.0.attention.to_k.lokr_w2"},
                    {{8, 8}, {8, 8}},
                    SUMI_TENSOR_MISSING,
                    "to_k needs either .lokr_w1 or both .lokr_w1_a and .lokr_w1_b"},
                   {{"layers.0.attention.to_q.lokr_w2_a", "layers.0.attention.to_q.lokr_w2_b"},
                    {{8, 2}, {2, 8}},
                    SUMI_TENSOR_MISSING,
                    "lokr_w1"},
                   {{"layers.0.attention.to_q.lokr_w1_a", "layers.0.attention.to_q.lokr_w1_b"},
                    {{8, 2}, {3, 8}},
                    SUMI_TENSOR_MISMATCH,
                    "multiplied"},
                   {{"lycoris_layers_0_attention_norm1.w_norm", "lycoris_layers_0_attention_norm1.b_norm"},
                    {{64, 1}, {64, 1}},
                    SUMI_NOT_SUPPORTED,
                    "bias of a norm"},
                   {{"lycoris_layers_0_attention_norm1.w_norm", "lycoris_layers_0_attention_norm2.w_norm"},
                    {{64, 1}, {32, 1}},
                    SUMI_TENSOR_MISMATCH,
                    "32 values"},
                   {{"lycoris_layers_0_attention_norm1.w_norm", "lycoris_layers_0_attention_to_q.w_norm"},
                    {{64, 1}, {64, 1}},
                    SUMI_LORA_NO_MATCH,
                    "to_q.w_norm"},
                   {{"layers.0.attention_norm1.lora_A.weight", "layers.0.attention_norm1.lora_B.weight"},
                    {{2, 64}, {1, 2}},
                    SUMI_LORA_NO_MATCH,
                    "attention_norm1"},
                   {{"lycoris_double_blocks_0.lokr_w1", "lycoris_double_blocks_0.lokr_w2"},
                    {{8, 8}, {8, 8}},
                    SUMI_LORA_NO_MATCH,
                    "double_blocks"},
                   {{"layers.0.attention.to_q.lora_magnitude_vector", "layers.0.attention.to_q.lora_B.weight"},
                    {{1, 64}, {64, 2}},
                    SUMI_TENSOR_MISSING,
                    "to_q.lora_B.weight*.lora_A"},
                   {{"layers.0.attention.to_q.dora_scale", "layers.0.attention.to_k.diff_b"},
                    {{64, 1}, {64, 1}},
                    SUMI_TENSOR_MISSING,
                    "to_q.dora_scale*partner*.lora_A"},
                   {{"layers.0.attention.to_q.diff", "layers.0.attention.to_q.dora_scale"},
                    {{64, 64}, {32, 1}},
                    SUMI_TENSOR_MISMATCH,
                    "to_q.dora_scale has 32 values*64 outputs and 64 inputs"},
                   {{"layers.0.attention.to_q.diff", "layers.0.attention.to_q.lora_A.weight"},
                    {{64, 64}, {2, 64}},
                    SUMI_NOT_SUPPORTED,
                    "to_q.lora_A.weight*to_q.diff*different changes"},
                   {{"layers.0.attention.to_q.diff", "layers.0.attention.to_k.diff"},
                    {{64, 64}, {64, 32}},
                    SUMI_TENSOR_MISMATCH,
                    "to_k.diff*[64, 32]*[64, 64]"},
                   {{"layers.0.attention.to_q.diff", "layers.0.attention.to_k.diff_b"},
                    {{64, 64}, {32, 1}},
                    SUMI_TENSOR_MISMATCH,
                    "to_k.diff_b has 32 values*64"},
                   {{"layers.0.attention_norm1.diff", "layers.0.attention_norm1.diff_b"},
                    {{64, 1}, {64, 1}},
                    SUMI_NOT_SUPPORTED,
                    "attention_norm1.diff_b*bias of a norm"},
                   {{"layers.0.attention.to_q.a1.weight", "layers.0.attention.to_q.b1.weight"},
                    {{2, 64}, {64, 2}},
                    SUMI_NOT_SUPPORTED,
                    "to_q.a1.weight*GLoRA"},
                   {{"layers.0.attention.to_q.oft_blocks", "layers.0.attention.to_q.alpha"},
                    {{8, 8}, {1, 1}},
                    SUMI_NOT_SUPPORTED,
                    "to_q.oft_blocks*OFT"},
                   {{"layers.0.attention.to_q.boft_R", "layers.0.attention.to_q.alpha"},
                    {{8, 8}, {1, 1}},
                    SUMI_NOT_SUPPORTED,
                    "to_q.boft_R*BOFT"},
                   {{"layers.0.attention.to_q.ia3_l", "layers.0.attention.to_k.ia3_l"},
                    {{64, 1}, {64, 1}},
                    SUMI_NOT_SUPPORTED,
                    "ia3_l*IA3"},
                   {{"layers.0.attention.to_q.weight", "layers.0.attention.to_q.on_input"},
                    {{64, 1}, {1, 1}},
                    SUMI_NOT_SUPPORTED,
                    "to_q.on_input*IA3"},
                   {{"layers.0.attention.to_q.set_weight", "layers.0.attention.to_k.set_weight"},
                    {{64, 64}, {64, 64}},
                    SUMI_NOT_SUPPORTED,
                    "set_weight*replaces"},
                   {{"layers.0.attention.to_q.lora_mid.weight", "layers.0.attention.to_q.lora_A.weight"},
                    {{2, 2}, {2, 64}},
                    SUMI_NOT_SUPPORTED,
                    "lora_mid*convolution"},
                   {{"layers.0.attention.to_q.lora_A.one.weight", "layers.0.attention.to_q.lora_A.two.weight"},
                    {{2, 64}, {4, 64}},
                    SUMI_NOT_SUPPORTED,
                    "lora_A.one.weight*lora_A.two.weight*different changes"},
                   {{"layers.0.attention.to_q.alpha", "layers.0.attention.to_k.alpha"},
                    {{1, 1}, {1, 1}},
                    SUMI_LORA_NO_MATCH,
                    "alpha"}};
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    uint64_t held = atomic_load(&s_heap.allocated_bytes);
    fill(s_values, 64 * 64, 5);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        const int errors = t_errors;
        sumi_tensor tensors[2];
        for (int k = 0; k < 2; k++)
            tensors[k] = (sumi_tensor){.name = s_cases[i].names[k],
                                       .dtype = SUMI_DTYPE_F32,
                                       .rank = 2,
                                       .shape = {s_cases[i].shapes[k][0], s_cases[i].shapes[k][1]},
                                       .data = s_values,
                                       .bytes = (uint64_t)(s_cases[i].shapes[k][0] * s_cases[i].shapes[k][1]) * 4};
        write_tensors(scratch("wrong.safetensors"), tensors, 2, NULL, 0);
        sumi_error error = {0};
        CHECK_NUMBER(open_adapter(network, scratch("wrong.safetensors"), &error), s_cases[i].expected);
        CHECK(says(error.text, s_cases[i].says) && strstr(error.text, "wrong.safetensors") != NULL);
        if (t_errors > errors) printf("  case %d: %s\n", (int)i, error.text);
    }
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), held);
    sumi_network_close(network);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_cpu(1)) return 1;
    RUN(adapter_names_of_every_program_are_understood);
    RUN(adapter_metadata_gives_alpha_per_module_and_rank_stabilised_scales);
    RUN(adapter_config_beside_the_file_gives_scales);
    RUN(adapter_with_the_same_change_twice_is_applied_once);
    RUN(adapter_config_of_another_file_is_not_read);
    RUN(adapters_open_layer_by_layer_and_close_at_any_point);
    RUN(patterns_of_configs_are_matched_as_peft_does);
    RUN(two_different_changes_of_one_layer_are_refused);
    RUN(layers_of_the_text_encoder_are_left_out_of_models_without_it);
    RUN(layers_of_the_text_encoder_match_by_name_and_shape);
    RUN(each_component_has_its_own_alpha_in_the_header);
    RUN(not_a_number_in_any_tensor_is_refused_by_its_name);
    RUN(differences_of_zero_cost_nothing);
    RUN(weights_instead_of_changes_are_refused_by_name);
    RUN(adapter_that_does_not_fit_is_refused_by_name);
    end_networks();
    TEST_END();
}
