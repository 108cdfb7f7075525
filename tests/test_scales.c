// Quantised weights: their scales are found under every name, and whatever is not known is refused. The values of the
// formats are in test_weights.
#include "files/checkpoint.h"
#include "files/quantisation.h"
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
    scaled_add(&s, "p.n.scale", SUMI_DTYPE_BF16, 2, 0, s_values); // a layer may have one for itself
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
    static const float s_values[64] = {0.5f, 0.25f, 3.0f, INFINITY, 0.5f, 0.5f, 0.5f, 0.5f};
    static const signed char s_bytes[4 * 1024] = {1}, s_many[128 * 128] = {1};
    scaled s;
    scaled_begin(&s, "");
    scaled_add(&s, "blocks.weight", SUMI_DTYPE_F8_E4M3, 2, 6, s_bytes);
    scaled_add(&s, "blocks.weight_scale", SUMI_DTYPE_F32, 2, 2, s_values + 4); // blocks of 3
    scaled_add(&s, "fine.weight", SUMI_DTYPE_F8_E4M3, 128, 128, s_many);
    scaled_add(&s, "fine.weight_scale", SUMI_DTYPE_F8_E8M0, 128, 4, s_many); // in tiles or not?
    scaled_add(&s, "bytes.weight", SUMI_DTYPE_F8_E4M3, 2, 64, s_bytes);
    scaled_add(&s, "bytes.weight_scale", SUMI_DTYPE_U8, 2, 2, s_bytes);
    scaled_add(&s, "twice.weight", SUMI_DTYPE_F8_E4M3, 2, 4, s_bytes);
    scaled_add(&s, "twice.weight_scale", SUMI_DTYPE_F32, 2, 1, s_values);
    scaled_add(&s, "twice.weight_scale_inv", SUMI_DTYPE_F32, 2, 1, s_values);
    scaled_add(&s, "large.weight", SUMI_DTYPE_F8_E4M3, 2, 4, s_bytes);
    scaled_add(&s, "large.scale", SUMI_DTYPE_F32, 2, 1, s_values + 1);
    scaled_add(&s, "mx.weight", SUMI_DTYPE_F8_E4M3, 64, 64, s_many);
    scaled_add(&s, "mx.weight_scale", SUMI_DTYPE_F8_E8M0, 64, 2, s_many);
    scaled_say(&s, "mx", "{\"format\":\"mxfp8\"}");
    scaled_add(&s, "rows4.weight", SUMI_DTYPE_U8, 4, 16, s_bytes);
    scaled_add(&s, "rows4.weight_scale", SUMI_DTYPE_F8_E4M3, 4, 2, s_bytes);
    scaled_add(&s, "rows4.weight_scale_2", SUMI_DTYPE_F32, 0, 0, s_values);
    scaled_say(&s, "rows4", "{\"format\":\"nvfp4\"}");
    scaled_add(&s, "zeros.weight", SUMI_DTYPE_I8, 2, 4, s_bytes);
    scaled_add(&s, "zeros.weight_scale", SUMI_DTYPE_F32, 2, 1, s_values);
    scaled_add(&s, "zeros.weight_zero_point", SUMI_DTYPE_I8, 2, 1, s_bytes);
    scaled_add(&s, "bnb.weight", SUMI_DTYPE_U8, 8, 1, s_bytes);
    scaled_add(&s, "bnb.weight.absmax", SUMI_DTYPE_F32, 2, 0, s_values);
    scaled_add(&s, "smooth.weight", SUMI_DTYPE_F8_E4M3, 2, 4, s_bytes);
    scaled_add(&s, "smooth.smooth_factor", SUMI_DTYPE_BF16, 4, 0, s_values);
    scaled_add(&s, "awq.weight", SUMI_DTYPE_F8_E4M3, 2, 4, s_bytes);
    scaled_add(&s, "awq.pre_quant_scale", SUMI_DTYPE_BF16, 2, 0, s_values);
    scaled_add(&s, "correct.weight", SUMI_DTYPE_I8, 2, 16, s_bytes);
    scaled_add(&s, "correct.weight_s_rel", SUMI_DTYPE_F8_E4M3, 2, 2, s_bytes);
    scaled_add(&s, "correct.weight_s_channel", SUMI_DTYPE_F32, 2, 0, s_values + 4);
    scaled_add(&s, "correct.weight_correction", SUMI_DTYPE_F32, 2, 2, s_values);
    scaled_say(&s, "correct", "{\"format\":\"asym_w4a8_int8\",\"convrot_groupsize\":16}");
    scaled_add(&s, "turned.weight", SUMI_DTYPE_I8, 2, 128, s_bytes);
    scaled_add(&s, "turned.weight_scale", SUMI_DTYPE_F32, 2, 1, s_values);
    scaled_say(&s, "turned", "{\"quarot\":true,\"quarot_groupsize\":128}");
    scaled_add(&s, "zero4.weight", SUMI_DTYPE_I8, 2, 4, s_bytes);
    scaled_add(&s, "zero4.weight_scale", SUMI_DTYPE_BF16, 1, 2, s_values);
    scaled_add(&s, "zero4.weight_zeros", SUMI_DTYPE_BF16, 1, 2, s_values);
    scaled_say(&s, "zero4", "{\"format\":\"awq_w4a16\"}");
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
    scaled_add(&s, "small.weight_scale", SUMI_DTYPE_I32, 2, 1, s_values);
    scaled_say(&s, "small", "{\"format\":\"int8_tensorwise\"}");
    scaled_add(&s, "packed.weight", SUMI_DTYPE_F8_E4M3, 32, 4, s_bytes);
    scaled_add(&s, "packed.weight_scale", SUMI_DTYPE_Q8_0, 32, 0, s_values);
    scaled_add(&s, "fp4.weight", SUMI_DTYPE_U8, 2, 0, s_values);
    scaled_add(&s, "fp4.weight_scale", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_add(&s, "fp4.weight_scale_2", SUMI_DTYPE_F32, 0, 0, s_values);
    scaled_add(&s, "int8.weight", SUMI_DTYPE_I8, 2, 0, s_values);
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
        {"small.weight", SUMI_NOT_SUPPORTED, "type I32", "small.weight_scale"},
        {"packed.weight", SUMI_NOT_SUPPORTED, "Q8_0", "packed.weight_scale"},
        {"fp4.weight", SUMI_NOT_SUPPORTED, "nvfp4", "fp4.weight"},
        {"int8.weight", SUMI_NOT_SUPPORTED, "int8 without a scale", "int8.weight"},
        {"fine.weight", SUMI_NOT_SUPPORTED, "mxfp8", "fine.weight"},
        {"bytes.weight", SUMI_NOT_SUPPORTED, "mxfp8", "bytes.weight"},
        {"twice.weight", SUMI_NOT_SUPPORTED, "two scales", "weight_scale_inv"},
        {"large.weight", SUMI_NOT_SUPPORTED, "scale above 1", "large.weight"},
        {"mx.weight", SUMI_NOT_SUPPORTED, "mxfp8", "tiles of 128 x 4"},
        {"rows4.weight", SUMI_NOT_SUPPORTED, "nvfp4", "tiles of 128 x 4"},
        {"zeros.weight", SUMI_NOT_SUPPORTED, "zeros.weight", "weight_zero_point"},
        {"bnb.weight", SUMI_NOT_SUPPORTED, "bnb.weight", "weight.absmax"},
        {"smooth.weight", SUMI_NOT_SUPPORTED, "smooth.weight", "smooth_factor"},
        {"awq.weight", SUMI_NOT_SUPPORTED, "awq.weight", "pre_quant_scale"},
        {"correct.weight", SUMI_NOT_SUPPORTED, "correct.weight", "weight_correction"},
        {"turned.weight", SUMI_NOT_SUPPORTED, "quarot", "turned.weight"},
        {"zero4.weight", SUMI_NOT_SUPPORTED, "awq_w4a16", "zero4.weight"},
        {"listed.weight", SUMI_NOT_SUPPORTED, "mxfp8", "listed.weight"},
        {"broken.weight", SUMI_FILE_MALFORMED, "JSON", "file.safetensors"},
        {"infinite.weight", SUMI_FILE_MALFORMED, "finite", "infinite.scale_weight"},
        {"last.weight", SUMI_FILE_MALFORMED, "finite", "last.weight_scale"},
    };
    CHECK(!sumi_tensor_neighbours_are_known(&s.component));
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

// ---- What a checkpoint says as a whole ------------------------------------------------------------------------------

TEST(the_whole_quantisation_is_known_or_named)
{
    static const struct {
        const char *object, *unknown; // NULL: known
    } s_cases[] = {
        {"{\"quant_method\":\"fp8\",\"fmt\":\"e4m3\",\"weight_block_size\":[128,64]}", NULL},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\",\"config_groups\":{}}", NULL},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"int-quantized\",\"transform_config\":{}}", NULL},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"float-quantized\",\"transform_config\":"
         "{\"config_groups\":{\"v\":{}}}}",
         "transform_config"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"pack-quantized\"}",
         "compressed-tensors, pack-quantized"},
        {"{\"quant_method\":\"compressed-tensors\",\"format\":\"nvfp4-pack-quantized\"}", "nvfp4-pack-quantized"},
        {"{\"producer\":{\"name\":\"modelopt\",\"version\":\"0.3\"},\"quant_algo\":\"NVFP4\"}", NULL},
        {"{\"quant_method\":\"modelopt\",\"quant_algo\":\"W4A8_AWQ\"}", "modelopt, W4A8_AWQ"},
        {"{\"method\":\"svdquant\",\"weight\":{\"dtype\":\"int4\"}}", "SVDQuant"},
        {"{\"quant_method\":\"bitsandbytes\",\"load_in_4bit\":true}", "bitsandbytes"},
        {"{\"quant_method\":\"sdnq\"}", "SDNQ"},
        {"{\"quant_method\":\"of tomorrow\"}", "of tomorrow"},
        {"{\"bits\":4}", "does not name"},
    };
    sumi_quantisation plain;
    const sumi_quantisation_text method = {"gptq", 4, "metadata"};
    char plain_name[192];
    CHECK_NUMBER(sumi_quantisation_read(&method, &plain, NULL), SUMI_OK);
    CHECK(plain.is_said && strcmp(plain.method, "gptq") == 0);
    CHECK_TEXT(sumi_quantisation_unknown(&plain, plain_name, sizeof plain_name), "GPTQ");
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        char config[512], name[192];
        snprintf(config, sizeof config, "{\"a\":[1],\"quantization_config\":%s}", s_cases[i].object);
        sumi_quantisation one = {0}, two = {0};
        sumi_error error = {0};
        const sumi_quantisation_text alone = {s_cases[i].object, strlen(s_cases[i].object), "metadata"},
                                     whole = {config, strlen(config), "config.json"};
        CHECK_NUMBER(sumi_quantisation_read(&alone, &one, &error), SUMI_OK);
        CHECK_NUMBER(sumi_quantisation_read_config(&whole, &two, &error), SUMI_OK);
        CHECK(one.is_said && memcmp(&one, &two, sizeof one) == 0);
        const char* unknown = sumi_quantisation_unknown(&one, name, sizeof name);
        const bool is_right = s_cases[i].unknown == NULL
                                ? unknown == NULL
                                : unknown != NULL && strstr(unknown, s_cases[i].unknown) != NULL;
        if (!is_right) printf("  %s: %s\n", s_cases[i].object, unknown != NULL ? unknown : "known");
        CHECK(is_right);
        if (i == 0) CHECK(one.block_rows == 128 && one.block_cols == 64);
    }
    static const char* const s_silent[] = {"{}", "{\"quantization_config\":null}", "{\"quantization_config\":[1]}"};
    for (size_t i = 0; i < 3; i++) {
        sumi_quantisation got = {.is_said = true};
        const sumi_quantisation_text text = {s_silent[i], strlen(s_silent[i]), "config.json"};
        CHECK_NUMBER(sumi_quantisation_read_config(&text, &got, NULL), SUMI_OK);
        CHECK(!got.is_said);
    }
    static const char* const s_broken[] = {"{\"weight_block_size\":[128]}", "{\"weight_block_size\":[0,1]}",
                                           "{\"weight_block_size\":[1,2,3]}", "{\"weight_block_size\":[\"a\",1]}",
                                           "{\"method\":"};
    for (size_t i = 0; i < sizeof s_broken / sizeof *s_broken; i++) {
        sumi_quantisation got;
        sumi_error error = {0};
        const sumi_quantisation_text text = {s_broken[i], strlen(s_broken[i]), "config.json"};
        CHECK_NUMBER(sumi_quantisation_read(&text, &got, &error), SUMI_FILE_MALFORMED);
        CHECK(strstr(error.text, "config.json") != NULL);
    }
}

// One pass over all names finds what the look at each weight would.
TEST(what_is_beside_weights_is_known_or_found)
{
    static const unsigned char s_bytes[64] = {1};
    static const struct {
        const char* name;
        bool is_known;
    } s_cases[] = {{"p.l.input_scale", true},  {"p.l.smooth", false},       {"p.l.weight.absmax", false},
                   {"p.l.norm.smooth", true},  {"p.m.smooth", true},        {"q.l.smooth", true},
                   {"p.l.weight_scale", true}, {"p.l.lora_A.weight", true}, {"p.smooth", true},
                   {"p.l.weight_shape", false}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        scaled s;
        scaled_begin(&s, "p.");
        scaled_add(&s, "p.l.weight", SUMI_DTYPE_F8_E4M3, 2, 4, s_bytes);
        scaled_add(&s, "p.m.weight", SUMI_DTYPE_BF16, 2, 4, s_bytes);
        scaled_add(&s, s_cases[i].name, SUMI_DTYPE_F32, 0, 0, &(float){0.5f});
        if (sumi_tensor_neighbours_are_known(&s.component) != s_cases[i].is_known) printf("  %s\n", s_cases[i].name);
        CHECK(sumi_tensor_neighbours_are_known(&s.component) == s_cases[i].is_known);
        sumi_tensor_set_close(&s.set);
    }
}

// Blocks that are said have to fit the scales; with others of the same number the picture would be wrong.
TEST(blocks_are_those_that_the_file_says)
{
    static const unsigned char s_bytes[96 * 96] = {1};
    static const float s_scales[16] = {0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f};
    static const struct {
        int32_t block_rows, block_cols, rows, cols; // said; 0: nothing
        sumi_result result;
        int32_t use_rows, use_cols;
    } s_cases[] = {{0, 0, 3, 3, SUMI_OK, 32, 32},          {32, 32, 3, 3, SUMI_OK, 32, 32},
                   {40, 64, 3, 2, SUMI_OK, 40, 64},        {64, 64, 3, 3, SUMI_NOT_SUPPORTED, 0, 0},
                   {0, 0, 1, 2, SUMI_NOT_SUPPORTED, 0, 0}, {128, 128, 1, 1, SUMI_OK, 0, 0}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        scaled s;
        scaled_begin(&s, "");
        s.component.quantisation = (sumi_quantisation){
            .is_said = true, .method = "fp8", .block_rows = s_cases[i].block_rows, .block_cols = s_cases[i].block_cols};
        scaled_add(&s, "l.weight", SUMI_DTYPE_F8_E4M3, 96, 96, s_bytes);
        scaled_add(&s, "l.weight_scale_inv", SUMI_DTYPE_F32, s_cases[i].rows, s_cases[i].cols, s_scales);
        sumi_tensor_scaling got;
        sumi_error error = {0};
        CHECK_NUMBER(sumi_tensor_find_scaling(&s.component, "l.weight", &got, &error), s_cases[i].result);
        if (s_cases[i].result == SUMI_OK) {
            CHECK_NUMBER(got.decoding.block_rows, s_cases[i].use_rows);
            CHECK_NUMBER(got.decoding.block_cols, s_cases[i].use_cols);
            CHECK(got.has_decoding == (s_cases[i].use_rows > 0));
        }
        sumi_tensor_set_close(&s.set);
    }
}

// The order of nvfp4's pairs differs between programs: without a name it is not guessed.
TEST(nvfp4_is_read_in_the_order_of_its_program)
{
    static const unsigned char s_bytes[4 * 32] = {1};
    static const float s_one = 1.0f;
    static const char* const s_methods[] = {"modelopt", "modelopt", ""};
    for (int i = 0; i < 3; i++) {
        scaled s;
        scaled_begin(&s, "");
        s.component.quantisation = (sumi_quantisation){.is_said = true, .has_swapped_codes = i == 1};
        strcpy(s.component.quantisation.method, s_methods[i]);
        scaled_add(&s, "l.weight", SUMI_DTYPE_U8, 4, 32, s_bytes);
        scaled_add(&s, "l.weight_scale", SUMI_DTYPE_F8_E4M3, 4, 4, s_bytes);
        scaled_add(&s, "l.weight_scale_2", SUMI_DTYPE_F32, 0, 0, &s_one);
        sumi_tensor_scaling got;
        sumi_error error = {0};
        CHECK_NUMBER(sumi_tensor_find_scaling(&s.component, "l.weight", &got, &error),
                     i < 2 ? SUMI_OK : SUMI_NOT_SUPPORTED);
        if (i < 2) CHECK(got.packed == 2 && got.decoding.high_first == (i == 1) && !got.decoding.is_tiled);
        else CHECK(strstr(error.text, "nvfp4") != NULL && strstr(error.text, "l.weight") != NULL);
        CHECK_NUMBER(sumi_tensor_find_size(&s.component, "l.weight", 1), 64); // whether the order is known or not
        CHECK_NUMBER(sumi_tensor_find_size(&s.component, "l.weight", 0), 4);
        CHECK_NUMBER(sumi_tensor_find_size(&s.component, "l.weight_scale", 1), 4);
        CHECK_NUMBER(sumi_tensor_find_size(&s.component, "l.weight", 2), 0);
        CHECK_NUMBER(sumi_tensor_find_size(&s.component, "none", 0), 0);
        sumi_tensor_set_close(&s.set);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(scales_of_fp8_and_int8_files_are_found);
    RUN(quantisations_that_are_not_known_are_refused);
    RUN(the_whole_quantisation_is_known_or_named);
    RUN(what_is_beside_weights_is_known_or_found);
    RUN(blocks_are_those_that_the_file_says);
    RUN(nvfp4_is_read_in_the_order_of_its_program);
    TEST_END();
}
