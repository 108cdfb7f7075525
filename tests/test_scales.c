// Stored weights of 8 bits: their scales are found under every name, and quantisations that are not known are refused.
#include "files/checkpoint.h"
#include "files/tensor_scaling.h"
#include "memory_files.h"

typedef struct scaled {
    sumi_tensor_set set;
    sumi_component component;
    char prefix[8];
} scaled;

static void scaled_begin(scaled* s, const char* prefix)
{
    memset(s, 0, sizeof *s);
    sumi_tensor_set_init(&s->set, &s_heap, NULL);
    snprintf(s->prefix, sizeof s->prefix, "%s", prefix);
    s->component = (sumi_component){.present = true, .set = &s->set, .prefix = s->prefix, .path = "file.safetensors"};
}

// A tensor of up to two dimensions: rows 0 is a single value, cols 0 a vector.
static void scaled_add(scaled* s, const char* name, sumi_dtype dtype, int64_t rows, int64_t cols, const void* data)
{
    const uint64_t count = (uint64_t)((rows > 0 ? rows : 1) * (cols > 0 ? cols : 1));
    const sumi_tensor tensor = {.dtype = dtype,
                                .rank = (rows > 0) + (cols > 0),
                                .shape = {rows, cols},
                                .data = data,
                                .bytes = sumi_dtype_bytes(dtype, count),
                                .file_index = -1};
    CHECK_NUMBER(sumi_tensor_set_add(&s->set, name, strlen(name), &tensor, "memory", NULL), SUMI_OK);
}

static void scaled_say(scaled* s, const char* layer, const char* json)
{
    char name[64];
    snprintf(name, sizeof name, "%s.comfy_quant", layer);
    scaled_add(s, name, SUMI_DTYPE_U8, (int64_t)strlen(json), 0, json);
}

TEST(scales_of_fp8_and_int8_files_are_found)
{
    static const float s_values[4] = {0.5f, 0.25f, 3.0f, 0.0f};
    static const uint16_t s_half = 0x3400; // 0.25
    static const char s_fp8[] = "{\"format\":\"float8_e4m3fn\"}";
    static const signed char s_bytes[2 * 256] = {1};
    scaled s;
    scaled_begin(&s, "p.");
    scaled_add(&s, "p.a.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_add(&s, "p.b.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_add(&s, "p.b.scale_weight", SUMI_DTYPE_F32, 0, 0, &s_values[0]);
    scaled_add(&s, "p.c.weight", SUMI_DTYPE_F8_E5M2, 2, 0, s_values);
    scaled_add(&s, "p.c.weight_scale", SUMI_DTYPE_F32, 1, 1, &s_values[1]);
    scaled_say(&s, "p.c", s_fp8);
    scaled_add(&s, "p.d.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_add(&s, "p.d.weight_scale", SUMI_DTYPE_F32, 0, 0, &s_values[2]);
    scaled_add(&s, "p.n.weight", SUMI_DTYPE_BF16, 2, 0, s_values);
    scaled_add(&s, "p.n.bias", SUMI_DTYPE_BF16, 2, 0, s_values);
    scaled_add(&s, "p.rows.weight", SUMI_DTYPE_F8_E4M3, 2, 4, s_values);
    scaled_add(&s, "p.rows.weight_scale", SUMI_DTYPE_F32, 2, 0, s_values);
    scaled_add(&s, "p.whole.weight", SUMI_DTYPE_I8, 2, 4, s_bytes);
    scaled_add(&s, "p.whole.weight_scale", SUMI_DTYPE_F16, 1, 0, &s_half);
    scaled_say(&s, "p.whole", "{\"format\":\"int8_tensorwise\",\"convrot\":false}");
    scaled_add(&s, "p.r256.weight", SUMI_DTYPE_I8, 2, 256, s_bytes);
    scaled_add(&s, "p.r256.weight_scale", SUMI_DTYPE_F32, 2, 1, &s_values[1]);
    scaled_say(&s, "p.r256", "{\"convrot\":true,\"format\":\"int8_tensorwise\"}");
    scaled_add(&s, "p.r16.weight", SUMI_DTYPE_I8, 2, 32, s_bytes);
    scaled_add(&s, "p.r16.weight_scale", SUMI_DTYPE_F32, 2, 1, s_values);
    scaled_say(&s, "p.r16", "{\"format\":\"int8_tensorwise\",\"params\":{\"convrot\":true,\"convrot_groupsize\":16}}");
    const char metadata[] = "{\"format_version\":\"1.0\",\"layers\":{\"x\":{\"format\":\"nvfp4\"},\"p.d\":{\"format\":"
                            "\"float8_e4m3fn\",\"n\":[1]}}}";
    sumi_metadata_add(&s.set, "_quantization_metadata", 22, metadata, sizeof metadata - 1, NULL);
    static const struct {
        const char* name;
        sumi_tensor_scaling want;
    } s_cases[] = {{"a.weight", {.scale = 1}},
                   {"b.weight", {.scale = 0.5f, .is_scaled = true}},
                   {"c.weight", {.scale = 0.25f, .is_scaled = true}},
                   {"d.weight", {.scale = 3, .is_scaled = true}},
                   {"rows.weight", {.scale = 1, .row_scales = &s_values[0], .is_scaled = true}},
                   {"whole.weight", {.scale = 0.25f, .is_scaled = true}},
                   {"r256.weight", {.scale = 1, .row_scales = &s_values[1], .rotation = 256, .is_scaled = true}},
                   {"r16.weight", {.scale = 1, .row_scales = &s_values[0], .rotation = 16, .is_scaled = true}},
                   {"n.weight", {.scale = 1}},
                   {"n.bias", {.scale = 1}},
                   {"gone.weight", {.scale = 1}},
                   {"w", {.scale = 1}}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        const sumi_tensor_scaling* want = &s_cases[i].want;
        sumi_tensor_scaling got = {.scale = -1};
        sumi_error error = {0};
        CHECK_NUMBER(sumi_tensor_find_scaling(&s.component, s_cases[i].name, &got, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        const bool is_same = got.scale == want->scale && got.row_scales == want->row_scales
                          && got.rotation == want->rotation && got.is_scaled == want->is_scaled;
        if (!is_same) printf("  in %s\n", s_cases[i].name);
        CHECK(is_same);
    }
    sumi_tensor_set_close(&s.set);
}

TEST(quantisations_that_are_not_known_are_refused)
{
    static const float s_values[64] = {0.5f, 0.25f, 3.0f, INFINITY};
    static const signed char s_bytes[4 * 1024] = {1};
    scaled s;
    scaled_begin(&s, "");
    scaled_add(&s, "blocks.weight", SUMI_DTYPE_F8_E4M3, 2, 4, s_values);
    scaled_add(&s, "blocks.weight_scale", SUMI_DTYPE_F32, 2, 2, s_values);
    scaled_add(&s, "others.weight", SUMI_DTYPE_F8_E4M3, 2, 4, s_values);
    scaled_add(&s, "others.weight_scale", SUMI_DTYPE_F32, 3, 1, s_values);
    scaled_add(&s, "vector.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_add(&s, "vector.weight_scale", SUMI_DTYPE_F32, 2, 0, s_values);
    scaled_add(&s, "none.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    const sumi_tensor none = {.dtype = SUMI_DTYPE_F32, .rank = 1, .data = s_values, .file_index = -1};
    CHECK_NUMBER(sumi_tensor_set_add(&s.set, "none.weight_scale", 17, &none, "memory", NULL), SUMI_OK);
    scaled_add(&s, "group.weight", SUMI_DTYPE_I8, 2, 1024, s_bytes);
    scaled_add(&s, "group.weight_scale", SUMI_DTYPE_F32, 2, 0, s_values);
    scaled_say(&s, "group", "{\"format\":\"int8_tensorwise\",\"convrot\":true,\"convrot_groupsize\":1024}");
    scaled_add(&s, "cut.weight", SUMI_DTYPE_I8, 2, 384, s_bytes);
    scaled_add(&s, "cut.weight_scale", SUMI_DTYPE_F32, 2, 0, s_values);
    scaled_say(&s, "cut", "{\"format\":\"int8_tensorwise\",\"convrot\":true}");
    scaled_add(&s, "line.weight", SUMI_DTYPE_I8, 256, 0, s_bytes);
    scaled_add(&s, "line.weight_scale", SUMI_DTYPE_F32, 0, 0, s_values);
    scaled_say(&s, "line", "{\"format\":\"int8_tensorwise\",\"convrot\":true}");
    scaled_add(&s, "bare.weight", SUMI_DTYPE_I8, 2, 4, s_bytes);
    scaled_say(&s, "bare", "{\"format\":\"int8_tensorwise\"}");
    scaled_add(&s, "w4a8.weight", SUMI_DTYPE_I8, 2, 4, s_bytes);
    scaled_say(&s, "w4a8", "{\"format\":\"asym_w4a8_int8\"}");
    scaled_add(&s, "wrong.weight", SUMI_DTYPE_BF16, 2, 4, s_bytes);
    scaled_add(&s, "wrong.weight_scale", SUMI_DTYPE_F32, 0, 0, s_values);
    scaled_say(&s, "wrong", "{\"format\":\"int8_tensorwise\"}");
    scaled_add(&s, "small.weight", SUMI_DTYPE_I8, 2, 4, s_bytes);
    scaled_add(&s, "small.weight_scale", SUMI_DTYPE_BF16, 2, 1, s_values);
    scaled_say(&s, "small", "{\"format\":\"int8_tensorwise\"}");
    scaled_add(&s, "packed.weight", SUMI_DTYPE_F8_E4M3, 32, 4, s_bytes);
    scaled_add(&s, "packed.weight_scale", SUMI_DTYPE_Q8_0, 32, 0, s_values);
    scaled_add(&s, "fp4.weight", SUMI_DTYPE_U8, 2, 0, s_values);
    scaled_add(&s, "fp4.weight_scale", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_add(&s, "fp4.weight_scale_2", SUMI_DTYPE_F32, 0, 0, s_values);
    scaled_add(&s, "int8.weight", SUMI_DTYPE_I8, 2, 0, s_values);
    scaled_add(&s, "int8.weight_scale", SUMI_DTYPE_F32, 0, 0, s_values);
    scaled_add(&s, "broken.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_say(&s, "broken", "{\"format\":");
    scaled_add(&s, "infinite.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_add(&s, "infinite.scale_weight", SUMI_DTYPE_F32, 0, 0, &s_values[3]);
    scaled_add(&s, "last.weight", SUMI_DTYPE_F8_E4M3, 4, 4, s_values);
    scaled_add(&s, "last.weight_scale", SUMI_DTYPE_F32, 4, 1, s_values);
    scaled_add(&s, "listed.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    const char metadata[] = "{\"layers\":{\"listed\":{\"format\":\"mxfp8\"}}}";
    sumi_metadata_add(&s.set, "_quantization_metadata", 22, metadata, sizeof metadata - 1, NULL);
    static const struct {
        const char* name;
        sumi_result result;
        const char *word, *also;
    } s_cases[] = {
        {"blocks.weight", SUMI_NOT_SUPPORTED, "fp8 with a scale per block", "blocks.weight"},
        {"others.weight", SUMI_NOT_SUPPORTED, "fp8 with a scale per block", "others.weight"},
        {"vector.weight", SUMI_NOT_SUPPORTED, "fp8 with a scale per block", "vector.weight"},
        {"none.weight", SUMI_NOT_SUPPORTED, "fp8 with a scale per block", "none.weight"},
        {"group.weight", SUMI_NOT_SUPPORTED, "int8_tensorwise, convrot in groups of 1024", "group.weight"},
        {"cut.weight", SUMI_FILE_MALFORMED, "384", "cut.weight"},
        {"line.weight", SUMI_NOT_SUPPORTED, "int8_tensorwise, convrot", "line.weight"},
        {"bare.weight", SUMI_NOT_SUPPORTED, "without a scale", "bare.weight"},
        {"w4a8.weight", SUMI_NOT_SUPPORTED, "asym_w4a8_int8", "w4a8.weight"},
        {"wrong.weight", SUMI_NOT_SUPPORTED, "int8_tensorwise", "wrong.weight"},
        {"small.weight", SUMI_NOT_SUPPORTED, "BF16", "small.weight_scale"},
        {"packed.weight", SUMI_NOT_SUPPORTED, "Q8_0", "packed.weight_scale"},
        {"fp4.weight", SUMI_NOT_SUPPORTED, "nvfp4", "fp4.weight"},
        {"int8.weight", SUMI_NOT_SUPPORTED, "int8 of an unknown format", "int8.weight"},
        {"listed.weight", SUMI_NOT_SUPPORTED, "mxfp8", "listed.weight"},
        {"broken.weight", SUMI_FILE_MALFORMED, "JSON", "file.safetensors"},
        {"infinite.weight", SUMI_FILE_MALFORMED, "finite", "infinite.scale_weight"},
        {"last.weight", SUMI_FILE_MALFORMED, "finite", "last.weight_scale"},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_error error = {0};
        sumi_tensor_scaling scaling;
        CHECK_NUMBER(sumi_tensor_find_scaling(&s.component, s_cases[i].name, &scaling, &error), s_cases[i].result);
        if (strstr(error.text, s_cases[i].word) == NULL || strstr(error.text, s_cases[i].also) == NULL) {
            printf("  poor message: %s\n", error.text);
            t_errors++;
        }
    }
    sumi_tensor_set_close(&s.set);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(scales_of_fp8_and_int8_files_are_found);
    RUN(quantisations_that_are_not_known_are_refused);
    TEST_END();
}
