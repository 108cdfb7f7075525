// The Qwen-Image autoencoder: every naming scheme, what is refused and how, that strips change no bit, and what memory
// the released sizes need. The numbers are golden_run's business.
#include "at_once.h"
#include "cpu/cpu.h"
#include "models/autoencoders.h"
#include "plan/validate.h"
#include "plan_runner.h"
#include "test.h"
#include <stdatomic.h>

static sumi_heap s_heap;
static sumi_workers* s_workers;
static sumi_runner* s_runner;

// ---- Made-up checkpoints --------------------------------------------------------------------------------------------

// Tensors in the layout of the released files, all random and from one block of memory.
typedef struct maker {
    sumi_tensor_set set;
    bool is_wan;           // names
    bool skips_data;       // shapes are wanted: all tensors are the same bytes
    const char* left_out;  // a tensor that is missing, by the name it would have; NULL: none
    const char* misshapen; // one whose first dimension is doubled
    float* data;
    size_t used, capacity;
    uint32_t random;
    int made; // tensors
} maker;

static float next_random(maker* m)
{
    m->random = m->random * 1664525u + 1013904223u;
    return (float)(m->random >> 8) / 16777216.0f - 0.5f;
}

static void add(maker* m, const char* diffusers, const char* wan, const int64_t* shape, int32_t rank)
{
    const char* name = m->is_wan ? wan : diffusers;
    sumi_tensor tensor = {.dtype = SUMI_DTYPE_F32, .rank = rank, .file_index = -1};
    size_t count = 1;
    int64_t inner = 1;
    for (int32_t i = 0; i < rank; i++) {
        tensor.shape[i] = shape[i];
        count *= (size_t)shape[i];
        inner *= i > 0 ? shape[i] : 1;
    }
    if (m->skips_data) m->used = 0;
    if (m->used + count > m->capacity) {
        printf("  the test has no room for %s\n", name);
        exit(1);
    }
    // about as large behind a layer as before it
    const float scale = rank < 3 ? 0.2f : 3.0f / sqrtf((float)inner);
    for (size_t i = 0; i < count && !m->skips_data; i++)
        m->data[m->used + i] = scale * next_random(m) + (strstr(diffusers, "gamma") != NULL ? 1.0f : 0.0f);
    tensor.data = m->data + m->used;
    tensor.bytes = count * sizeof(float);
    m->used += count;
    m->made++;
    if (m->misshapen != NULL && strcmp(name, m->misshapen) == 0) tensor.shape[0] *= 2;
    sumi_error error = {0};
    if (m->left_out != NULL && strcmp(name, m->left_out) == 0) return;
    CHECK(sumi_tensor_set_add(&m->set, name, strlen(name), &tensor, "made up", &error) == SUMI_OK);
}

typedef struct naming {
    char diffusers[96], wan[96];
} naming;

static void add_both(maker* m, const naming* at, const char* diffusers, const char* wan, const int64_t* shape,
                     int32_t rank)
{
    char a[192], b[192];
    snprintf(a, sizeof a, "%s%s", at->diffusers, diffusers);
    snprintf(b, sizeof b, "%s%s", at->wan, wan);
    add(m, a, b, shape, rank);
}

static void add_conv(maker* m, const naming* at, const char* diffusers, const char* wan, int64_t out, int64_t in,
                     int64_t taps)
{
    char a[64], b[64];
    snprintf(a, sizeof a, "%s.weight", diffusers);
    snprintf(b, sizeof b, "%s.weight", wan);
    add_both(m, at, a, b, (const int64_t[]){out, in, taps, taps, taps}, 5);
    snprintf(a, sizeof a, "%s.bias", diffusers);
    snprintf(b, sizeof b, "%s.bias", wan);
    add_both(m, at, a, b, &out, 1);
}

static void add_picture_conv(maker* m, const naming* at, const char* name, int64_t out, int64_t in, int64_t taps)
{
    char text[64];
    snprintf(text, sizeof text, "%s.weight", name);
    add_both(m, at, text, text, (const int64_t[]){out, in, taps, taps}, 4);
    snprintf(text, sizeof text, "%s.bias", name);
    add_both(m, at, text, text, &out, 1);
}

static void add_block(maker* m, const naming* at, int64_t in, int64_t out)
{
    add_both(m, at, "norm1.gamma", "residual.0.gamma", (const int64_t[]){in, 1, 1, 1}, 4);
    add_conv(m, at, "conv1", "residual.2", out, in, 3);
    add_both(m, at, "norm2.gamma", "residual.3.gamma", (const int64_t[]){out, 1, 1, 1}, 4);
    add_conv(m, at, "conv2", "residual.6", out, out, 3);
    if (in != out) add_conv(m, at, "conv_shortcut", "shortcut", out, in, 1);
}

static naming name_at(const char* diffusers, const char* wan, const char* side)
{
    naming n;
    snprintf(n.diffusers, sizeof n.diffusers, "%s.%s", side, diffusers);
    snprintf(n.wan, sizeof n.wan, "%s.%s", side, wan);
    return n;
}

static void add_middle(maker* m, const char* side, int64_t channels)
{
    const naming first = name_at("mid_block.resnets.0.", "middle.0.", side),
                 attention = name_at("mid_block.attentions.0.", "middle.1.", side),
                 second = name_at("mid_block.resnets.1.", "middle.2.", side);
    add_block(m, &first, channels, channels);
    add_both(m, &attention, "norm.gamma", "norm.gamma", (const int64_t[]){channels, 1, 1}, 3);
    add_picture_conv(m, &attention, "to_qkv", 3 * channels, channels, 1);
    add_picture_conv(m, &attention, "proj", channels, channels, 1);
    add_block(m, &second, channels, channels);
}

static void add_end(maker* m, const char* side, int64_t channels, int64_t out)
{
    const naming at = name_at("", "", side);
    add_both(m, &at, "norm_out.gamma", "head.0.gamma", (const int64_t[]){channels, 1, 1, 1}, 4);
    add_conv(m, &at, "conv_out", "head.2", out, channels, 3);
}

// The released files: base 96, blocks 2, levels 1, 2, 4, 4, RGB. Latents have 16 channels.
static void add_all(maker* m, int64_t base, int32_t blocks, const int32_t* levels, int64_t picture_channels)
{
    const naming none = {"", ""}, encoder = name_at("", "", "encoder"), decoder = name_at("", "", "decoder");
    char a[64], b[64];
    int32_t flat = 0;
    int64_t channels = base * levels[0];
    add_conv(m, &encoder, "conv_in", "conv1", channels, picture_channels, 3);
    for (int32_t level = 0; level < 4; level++) {
        const int64_t out = base * levels[level];
        for (int32_t i = 0; i <= blocks - (level == 3); i++, flat++) {
            snprintf(a, sizeof a, "down_blocks.%d.", (int)flat);
            snprintf(b, sizeof b, "downsamples.%d.", (int)flat);
            const naming at = name_at(a, b, "encoder");
            if (i < blocks) add_block(m, &at, i == 0 ? channels : out, out);
            else add_picture_conv(m, &at, "resample.1", out, out, 3);
        }
        channels = out;
    }
    add_middle(m, "encoder", channels);
    add_end(m, "encoder", channels, 32);
    add_conv(m, &none, "quant_conv", "conv1", 32, 32, 1);

    add_conv(m, &none, "post_quant_conv", "conv2", 16, 16, 1);
    add_conv(m, &decoder, "conv_in", "conv1", channels, 16, 3);
    add_middle(m, "decoder", channels);
    flat = 0;
    for (int32_t level = 3; level >= 0; level--) {
        const int64_t out = base * levels[level];
        for (int32_t i = 0; i <= blocks + 1 - (level == 0); i++, flat++) {
            if (i <= blocks) snprintf(a, sizeof a, "up_blocks.%d.resnets.%d.", (int)(3 - level), (int)i);
            else snprintf(a, sizeof a, "up_blocks.%d.upsamplers.0.", (int)(3 - level));
            snprintf(b, sizeof b, "upsamples.%d.", (int)flat);
            const naming at = name_at(a, b, "decoder");
            if (i <= blocks) add_block(m, &at, i == 0 ? channels : out, out);
            else add_picture_conv(m, &at, "resample.1", out / 2, out, 3);
        }
        channels = level > 0 ? out / 2 : out;
    }
    add_end(m, "decoder", channels, picture_channels);
}

static void begin_maker(maker* m, bool is_wan)
{
    *m = (maker){.is_wan = is_wan, .capacity = 4u << 20, .random = 5};
    m->data = calloc(m->capacity, sizeof *m->data);
    sumi_tensor_set_init(&m->set, &s_heap, NULL);
}

static void end_maker(maker* m)
{
    sumi_tensor_set_close(&m->set);
    free(m->data);
}

static const int32_t s_small[4] = {1, 2, 2, 2}, s_released[4] = {1, 2, 4, 4};
static const char s_config[] = "{\"latents_mean\": [0.5, -1, 0.25, 0, 1, 2, 3, 4, -4, -3, -2, -1, 0, 1, 0.5, 0.25],"
                               " \"latents_std\": [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8], \"z_dim\": 16,"
                               " \"attn_scales\": [], \"input_channels\": null}";

typedef struct bound {
    sumi_weight_list list;
    sumi_qwen_vae* vae;
} bound;

static sumi_result bind(bound* b, const maker* m, const char* config, sumi_error* error)
{
    static char s_no_prefix[] = "";
    const sumi_component component = {.present = true, .set = &m->set, .prefix = s_no_prefix, .path = "made-up"};
    const sumi_module_config text = {.data = config,
                                     .bytes = config != NULL ? strlen(config) : 0,
                                     .path = config != NULL ? "config.json" : "made-up"};
    sumi_weight_list_init(&b->list, &s_heap);
    sumi_binder binder = {.list = &b->list, .component = &component, .what = "the VAE", .error = error};
    b->vae = calloc(1, sizeof *b->vae);
    return sumi_qwen_vae_module.bind(b->vae, NULL, &binder, &text, false);
}

static void unbind(bound* b)
{
    sumi_weight_list_close(&b->list);
    free(b->vae);
}

// ---- Runs -----------------------------------------------------------------------------------------------------------

// Decodes made-up latents (or encodes a made-up picture) of height x width latents; returns what was made as floats.
static float* run(const sumi_qwen_vae* vae, bool decodes, int32_t height, int32_t width, int32_t tile,
                  size_t* out_count)
{
    sumi_plan plan;
    sumi_error error = {0};
    const sumi_rates rates = {1e3, 1e3, 1.0};
    const int32_t latents = height * width, pixels = latents * vae->factor * vae->factor;
    sumi_runner_begin_plan(s_runner, &plan, &s_heap);
    sumi_plan_section(&plan, decodes ? SUMI_SECTION_DECODE : SUMI_SECTION_IMAGE, 1, 0);
    const sumi_vae_tiling tiling = sumi_qwen_vae_module.tiling(vae);
    sumi_value from, to;
    if (decodes) {
        from = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, vae->channels, latents);
        to = sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_ACTIVATION, pixels, 3);
        sumi_vae_tiles_decode(&tiling, &plan, &(sumi_tile_source){from, height, width}, tile, to);
    } else {
        from = sumi_plan_bound(&plan, "pixels", SUMI_ELEMENT_BYTE, pixels, 3);
        to = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, vae->channels, latents);
        const sumi_tile_source picture = {from, height * vae->factor, width * vae->factor};
        sumi_vae_posterior(&tiling, &plan, sumi_vae_tiles_encode(&tiling, &plan, &picture, tile), SUMI_NO_VALUE,
                           &(sumi_tile_source){to, height, width});
    }
    sumi_result result = sumi_plan_finish(&plan, &error);
    if (result == SUMI_OK) result = plan_slice(&plan, &rates, 2000, &error);
    if (result == SUMI_OK) result = plan_ready(s_runner, &plan, &error);
    const size_t in_bytes = (size_t)sumi_plan_info(&plan, from)->bytes,
                 out_bytes = (size_t)sumi_plan_info(&plan, to)->bytes;
    float* made = calloc(1, out_bytes + 1);
    maker random = {.random = 77};
    if (result == SUMI_OK) {
        s_runner->functions->start(s_runner, &plan);
        void* data = calloc(1, in_bytes + 1);
        for (size_t i = 0; i < in_bytes / (decodes ? 4 : 1); i++) {
            if (decodes) ((float*)data)[i] = 2.0f * next_random(&random);
            else ((uint8_t*)data)[i] = (uint8_t)(255.0f * (next_random(&random) + 0.5f));
        }
        s_runner->functions->write(s_runner, &plan, from, 0, data, in_bytes);
        free(data);
        result = plan_run_all(s_runner, &plan, NULL, &error);
    }
    if (result == SUMI_OK) result = plan_read(s_runner, &plan, to, made, &error);
    CHECK_TEXT(error.text, "");
    plan_release(s_runner, &plan);
    sumi_plan_end(&plan);
    *out_count = out_bytes / 4;
    return made;
}

static bool is_alive(const float* values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
    return sum > 1e-4 * (double)count && sum < 1e8 * (double)count; // false for NaN
}

static void check_same(const sumi_qwen_vae* a, const sumi_qwen_vae* b, bool decodes, int32_t height, int32_t width,
                       int32_t tile)
{
    size_t count = 0, other_count = 0;
    float *one = run(a, decodes, height, width, tile, &count),
          *two = run(b, decodes, height, width, tile, &other_count);
    CHECK(is_alive(one, count));
    CHECK_NUMBER(other_count, count);
    CHECK(count == other_count && memcmp(one, two, count * sizeof *one) == 0);
    free(one);
    free(two);
}

TEST(strips_change_no_bit)
{
    maker m;
    bound b;
    sumi_error error = {0};
    begin_maker(&m, false);
    add_all(&m, 8, 1, s_small, 3);
    CHECK_NUMBER(bind(&b, &m, s_config, &error), SUMI_OK);
    CHECK_TEXT(error.text, "");
    static const int32_t s_sizes[][2] = {{3, 2}, {5, 3}, {6, 2}, {7, 9}, {12, 2}};
    for (size_t i = 0; i < sizeof s_sizes / sizeof *s_sizes; i++) {
        sumi_qwen_vae by_strips = *b.vae, whole = *b.vae;
        by_strips.strip_bytes = 1;
        whole.strip_bytes = UINT64_MAX;
        for (int32_t tile = 0; tile <= 4; tile += 4) {
            check_same(&by_strips, &whole, true, s_sizes[i][0], s_sizes[i][1], tile);
            check_same(&by_strips, &whole, false, s_sizes[i][0], s_sizes[i][1], tile);
        }
    }
    unbind(&b);
    end_maker(&m);
}

TEST(wan_names_are_the_same_model)
{
    maker m[2];
    bound b[2];
    sumi_error error = {0};
    for (int i = 0; i < 2; i++) {
        begin_maker(&m[i], i == 1);
        add_all(&m[i], 8, 2, s_small, 3);
        CHECK_NUMBER(bind(&b[i], &m[i], s_config, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        const sumi_autoencoder_properties properties = sumi_qwen_vae_module.properties(b[i].vae);
        CHECK(properties.channels == 16 && properties.factor == 8 && properties.sample_size == 0);
        CHECK(properties.has_decoder && properties.has_encoder);
    }
    check_same(b[0].vae, b[1].vae, true, 4, 3, 0);
    check_same(b[0].vae, b[1].vae, false, 4, 3, 0);
    for (int i = 0; i < 2; i++) {
        unbind(&b[i]);
        end_maker(&m[i]);
    }
}

// ---- Refusals -------------------------------------------------------------------------------------------------------

static void check_refused(const maker* m, const char* config, sumi_result wanted, const char* holds)
{
    bound b;
    sumi_error error = {0};
    CHECK_NUMBER(bind(&b, m, config, &error), wanted);
    if (strstr(error.text, holds) == NULL) printf("  \"%s\" does not say %s\n", error.text, holds);
    CHECK(strstr(error.text, holds) != NULL);
    unbind(&b);
}

TEST(every_missing_or_misshapen_tensor_is_named)
{
    for (int is_wan = 0; is_wan < 2; is_wan++) {
        maker all;
        begin_maker(&all, is_wan != 0);
        add_all(&all, 8, 1, s_small, 3);
        for (size_t i = 0; i < all.set.count; i++) {
            const char* name = all.set.tensors[i].name;
            for (int is_missing = 0; is_missing < 2; is_missing++) {
                maker m;
                begin_maker(&m, is_wan != 0);
                m.skips_data = true;
                if (is_missing) m.left_out = name;
                else m.misshapen = name;
                add_all(&m, 8, 1, s_small, 3);
                bound b;
                sumi_error error = {0};
                const sumi_result result = bind(&b, &m, s_config, &error);
                CHECK(result == (is_missing ? SUMI_TENSOR_MISSING : SUMI_TENSOR_MISMATCH));
                // a wider layer may first show in the shape of one that reads it or is read by it
                if (is_missing && strstr(error.text, name) == NULL) printf("  without %s: %s\n", name, error.text);
                CHECK(!is_missing || strstr(error.text, name) != NULL);
                unbind(&b);
                end_maker(&m);
            }
        }
        end_maker(&all);
    }
}

TEST(what_the_part_cannot_do_is_refused)
{
    maker m;
    begin_maker(&m, false);
    add_all(&m, 8, 1, s_small, 3);
    check_refused(&m, "{\"latents_mean\": [1, 2], \"latents_std\": [1, 2]}", SUMI_TENSOR_MISMATCH, "16 channels");
    check_refused(&m, "{\"latents_mean\": [1, 2, 3]}", SUMI_TENSOR_MISMATCH, "latents_std");
    check_refused(&m,
                  "{\"latents_mean\": [0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0], \"latents_std\": "
                  "[1,1,1,1,1,1,1,0,1,1,1,1,1,1,1,1]}",
                  SUMI_FILE_MALFORMED, "above 0");
    check_refused(&m, "{\"latents_mean\": 3}", SUMI_FILE_MALFORMED, "config.json");
    check_refused(&m, "{\"attn_scales\": [0.5]}", SUMI_NOT_SUPPORTED, "not the VAE of Qwen-Image");
    check_refused(&m, "{\"patch_size\": 2}", SUMI_NOT_SUPPORTED, "not the VAE of Qwen-Image");
    check_refused(&m, "{\"input_channels\": 4}", SUMI_NOT_SUPPORTED, "Qwen-Image-Layered");
    end_maker(&m);
    for (int is_wan = 0; is_wan < 2; is_wan++) {
        begin_maker(&m, is_wan != 0);
        add_all(&m, 8, 1, s_small, 4);
        check_refused(&m, is_wan ? NULL : s_config, SUMI_NOT_SUPPORTED, "alpha channel");
        end_maker(&m);
    }
}

TEST(the_side_of_the_images_that_it_was_made_for_comes_from_the_config)
{
    maker m;
    begin_maker(&m, false);
    add_all(&m, 8, 1, s_small, 3);
    bound b;
    sumi_error error = {0};
    CHECK_NUMBER(bind(&b, &m, "{\"sample_size\": 256, \"z_dim\": 16}", &error), SUMI_OK);
    CHECK_NUMBER(sumi_qwen_vae_module.properties(b.vae).sample_size, 256);
    unbind(&b);
    check_refused(&m, "{\"sample_size\": \"large\"}", SUMI_FILE_MALFORMED, "config.json");
    end_maker(&m);
}

TEST(tiles_that_the_rule_does_not_divide_are_refused)
{
    maker m;
    bound b;
    sumi_error error = {0};
    begin_maker(&m, false);
    m.skips_data = true;
    add_all(&m, 8, 1, s_small, 3);
    CHECK_NUMBER(bind(&b, &m, s_config, &error), SUMI_OK);
    for (int32_t tile = -4; tile <= 6; tile += 5) {
        sumi_plan plan;
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
        const sumi_value from = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, 16, 80),
                         to = sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_ACTIVATION, 80 * 64, 3);
        const sumi_vae_tiling tiling = sumi_qwen_vae_module.tiling(b.vae);
        sumi_vae_tiles_decode(&tiling, &plan, &(sumi_tile_source){from, 8, 10}, tile, to);
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_INVALID_ARGUMENT);
        CHECK(strstr(error.text, "multiple of 4") != NULL);
        sumi_plan_end(&plan);
    }
    unbind(&b);
    end_maker(&m);
}

// ---- The released sizes ---------------------------------------------------------------------------------------------

// The arena of a plan in bfloat16, in pictures of 96 channels as large as the result.
static double arena_of(const sumi_qwen_vae* vae, bool decodes, int32_t side, int32_t tile)
{
    sumi_plan plan;
    sumi_error error = {0};
    const int32_t latents = side / 8 * (side / 8), pixels = side * side;
    sumi_plan_begin(&plan, &s_heap, 2);
    sumi_plan_section(&plan, decodes ? SUMI_SECTION_DECODE : SUMI_SECTION_IMAGE, 1, 0);
    const sumi_vae_tiling tiling = sumi_qwen_vae_module.tiling(vae);
    if (decodes) {
        const sumi_value from = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, 16, latents),
                         to = sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_ACTIVATION, pixels, 3);
        sumi_vae_tiles_decode(&tiling, &plan, &(sumi_tile_source){from, side / 8, side / 8}, tile, to);
    } else {
        const sumi_value from = sumi_plan_bound(&plan, "pixels", SUMI_ELEMENT_BYTE, pixels, 3),
                         to = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, 16, latents);
        const sumi_value moments = sumi_vae_tiles_encode(&tiling, &plan, &(sumi_tile_source){from, side, side}, tile);
        sumi_vae_posterior(&tiling, &plan, moments, SUMI_NO_VALUE, &(sumi_tile_source){to, side / 8, side / 8});
    }
    CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_OK);
    CHECK_NUMBER(sumi_plan_validate(&plan, &error), SUMI_OK);
    CHECK_TEXT(error.text, "");
    const double arena = (double)plan.arena_bytes, of_pictures = arena / ((double)pixels * 96 * 2);
    printf("  %s %4d x %4d%s: %7.1f MB, %.3f pictures of 96 channels, %zu ops\n", decodes ? "decode" : "encode",
           (int)side, (int)side, tile > 0 ? " in tiles" : "", arena / 1e6, of_pictures, plan.op_count);
    sumi_plan_end(&plan);
    return of_pictures;
}

TEST(the_released_sizes_need_little_more_than_one_image)
{
    maker m;
    bound b;
    sumi_error error = {0};
    begin_maker(&m, false);
    m.skips_data = true;
    add_all(&m, 96, 2, s_released, 3);
    const uint64_t before = atomic_load(&s_heap.allocated_bytes);
    CHECK_NUMBER(bind(&b, &m, NULL, &error), SUMI_OK); // without a config.json the statistics are the released ones
    CHECK_TEXT(error.text, "");
    // no kernel is copied: names and lists only
    CHECK(atomic_load(&s_heap.allocated_bytes) - before < 64 << 10);
    CHECK(b.vae->shift[7] == 1.5508f && fabsf(b.vae->scale[0] * 2.8184f - 1.0f) < 1e-6f);
    printf("  %.1f M values are bound\n", (double)b.list.weight_bytes / 4e6);
    CHECK(arena_of(b.vae, true, 1024, 0) < 1.35);
    CHECK(arena_of(b.vae, true, 1328, 0) < 1.25);
    CHECK(arena_of(b.vae, true, 2512, 0) < 1.12);
    CHECK(arena_of(b.vae, true, 4096, 0) < 1.12);
    CHECK(arena_of(b.vae, true, 2512, 32) < 0.3);
    CHECK(arena_of(b.vae, false, 1024, 0) < 1.4);
    CHECK(arena_of(b.vae, false, 2512, 0) < 1.4);
    CHECK(arena_of(b.vae, false, 4096, 0) < 1.4);
    unbind(&b);
    end_maker(&m);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_error error = {0};
    sumi_heap_init(&s_heap, NULL);
    if (sumi_workers_create(&s_heap, NULL, 2, &error, &s_workers) != SUMI_OK
        || sumi_cpu_create(&s_heap, s_workers, SUMI_CPU_AUTO, &error, &s_runner) != SUMI_OK) {
        printf("%s\n", error.text);
        return 1;
    }
    RUN(strips_change_no_bit);
    RUN(wan_names_are_the_same_model);
    RUN(every_missing_or_misshapen_tensor_is_named);
    RUN(what_the_part_cannot_do_is_refused);
    RUN(the_side_of_the_images_that_it_was_made_for_comes_from_the_config);
    RUN(tiles_that_the_rule_does_not_divide_are_refused);
    RUN(the_released_sizes_need_little_more_than_one_image);
    s_runner->functions->destroy(s_runner);
    sumi_workers_destroy(s_workers);
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
    TEST_END();
}
