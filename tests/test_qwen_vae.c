// The Qwen-Image autoencoder: every naming scheme, what is refused and how, that strips change no bit, and what memory
// the released sizes need. The numbers are golden_run's business.
#include "wan_vae_fixture.h"

// ---- Made-up checkpoints --------------------------------------------------------------------------------------------

enum { TIME = 3 }; // slices of kernels over time

// The released files: base 96, blocks 2, levels 1, 2, 4, 4, RGB. Latents have 16 channels.
static void add_all(maker* m, int64_t base, int32_t blocks, const int32_t* levels, int64_t picture_channels)
{
    const naming none = {"", ""}, encoder = name_at("encoder", "", ""), decoder = name_at("decoder", "", "");
    char a[64], b[64];
    int32_t flat = 0;
    int64_t channels = base * levels[0];
    add_conv(m, &encoder, "conv_in", "conv1", (conv_shape){channels, picture_channels, 3, TIME});
    for (int32_t level = 0; level < 4; level++) {
        const int64_t out = base * levels[level];
        for (int32_t i = 0; i <= blocks - (level == 3); i++, flat++) {
            snprintf(a, sizeof a, "down_blocks.%d.", (int)flat);
            snprintf(b, sizeof b, "downsamples.%d.", (int)flat);
            const naming at = name_at("encoder", a, b);
            if (i < blocks) add_block(m, &at, i == 0 ? channels : out, out, TIME);
            else add_conv(m, &at, "resample.1", "resample.1", (conv_shape){out, out, 3, 0});
        }
        channels = out;
    }
    add_middle(m, "encoder", channels, TIME);
    add_end(m, "encoder", channels, 32, TIME);
    add_conv(m, &none, "quant_conv", "conv1", (conv_shape){32, 32, 1, 1});

    add_conv(m, &none, "post_quant_conv", "conv2", (conv_shape){16, 16, 1, 1});
    add_conv(m, &decoder, "conv_in", "conv1", (conv_shape){channels, 16, 3, TIME});
    add_middle(m, "decoder", channels, TIME);
    flat = 0;
    for (int32_t level = 3; level >= 0; level--) {
        const int64_t out = base * levels[level];
        for (int32_t i = 0; i <= blocks + 1 - (level == 0); i++, flat++) {
            if (i <= blocks) snprintf(a, sizeof a, "up_blocks.%d.resnets.%d.", (int)(3 - level), (int)i);
            else snprintf(a, sizeof a, "up_blocks.%d.upsamplers.0.", (int)(3 - level));
            snprintf(b, sizeof b, "upsamples.%d.", (int)flat);
            const naming at = name_at("decoder", a, b);
            if (i <= blocks) add_block(m, &at, i == 0 ? channels : out, out, TIME);
            else add_conv(m, &at, "resample.1", "resample.1", (conv_shape){out / 2, out, 3, 0});
        }
        channels = level > 0 ? out / 2 : out;
    }
    add_end(m, "decoder", channels, picture_channels, TIME);
}

enum { CAPACITY = 4 << 20 }; // values of the largest made-up checkpoint

static const int32_t s_small[4] = {1, 2, 2, 2}, s_released[4] = {1, 2, 4, 4};
static const char s_config[] = "{\"latents_mean\": [0.5, -1, 0.25, 0, 1, 2, 3, 4, -4, -3, -2, -1, 0, 1, 0.5, 0.25],"
                               " \"latents_std\": [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8], \"z_dim\": 16,"
                               " \"attn_scales\": [], \"input_channels\": null}";

static sumi_result bind(bound* b, const maker* m, const char* config, sumi_error* error)
{
    b->module = &sumi_qwen_vae_module;
    return bind_on(b, &s_heap, m, config, error);
}

static void check_refused(const maker* m, const char* config, sumi_result wanted, const char* holds)
{
    check_refused_by(&sumi_qwen_vae_module, m, config, wanted, holds);
}

// ---- Runs -----------------------------------------------------------------------------------------------------------

TEST(strips_change_no_bit)
{
    maker m;
    bound b;
    sumi_error error = {0};
    begin_maker(&m, false, CAPACITY);
    add_all(&m, 8, 1, s_small, 3);
    CHECK_NUMBER(bind(&b, &m, s_config, &error), SUMI_OK);
    CHECK_TEXT(error.text, "");
    static const int32_t s_sizes[][2] = {{3, 2}, {5, 3}, {6, 2}, {7, 9}, {12, 2}};
    check_strips(&sumi_qwen_vae_module, b.vae, s_sizes, sizeof s_sizes / sizeof *s_sizes);
    unbind(&b);
    end_maker(&m);
}

TEST(wan_names_are_the_same_model)
{
    maker m[2];
    bound b[2];
    sumi_error error = {0};
    for (int i = 0; i < 2; i++) {
        begin_maker(&m[i], i == 1, CAPACITY);
        add_all(&m[i], 8, 2, s_small, 3);
        CHECK_NUMBER(bind(&b[i], &m[i], s_config, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        const sumi_autoencoder_properties properties = sumi_qwen_vae_module.properties(b[i].vae);
        CHECK(properties.channels == 16 && properties.factor == 8 && properties.sample_size == 0);
        CHECK(properties.has_decoder && properties.has_encoder);
    }
    check_same(&sumi_qwen_vae_module, b[0].vae, b[1].vae, (const int32_t[]){4, 3, 0});
    for (int i = 0; i < 2; i++) {
        unbind(&b[i]);
        end_maker(&m[i]);
    }
}

// ---- Refusals -------------------------------------------------------------------------------------------------------

TEST(every_missing_or_misshapen_tensor_is_named)
{
    for (int is_wan = 0; is_wan < 2; is_wan++) {
        maker all;
        begin_maker(&all, is_wan != 0, CAPACITY);
        add_all(&all, 8, 1, s_small, 3);
        for (size_t i = 0; i < all.set.count; i++) {
            const char* name = all.set.tensors[i].name;
            for (int is_missing = 0; is_missing < 2; is_missing++) {
                maker m;
                begin_maker(&m, is_wan != 0, CAPACITY);
                m.skips_data = true;
                if (is_missing) m.left_out = name;
                else m.doubled = name;
                add_all(&m, 8, 1, s_small, 3);
                check_damage(&sumi_qwen_vae_module, &m, s_config);
                end_maker(&m);
            }
        }
        end_maker(&all);
    }
}

TEST(what_the_part_cannot_do_is_refused)
{
    maker m;
    begin_maker(&m, false, CAPACITY);
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
        begin_maker(&m, is_wan != 0, CAPACITY);
        add_all(&m, 8, 1, s_small, 4);
        check_refused(&m, is_wan ? NULL : s_config, SUMI_NOT_SUPPORTED, "alpha channel");
        end_maker(&m);
    }
}

TEST(the_side_of_the_images_that_it_was_made_for_comes_from_the_config)
{
    maker m;
    begin_maker(&m, false, CAPACITY);
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
    begin_maker(&m, false, CAPACITY);
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

TEST(the_released_sizes_need_little_more_than_one_image)
{
    maker m;
    bound b;
    sumi_error error = {0};
    begin_maker(&m, false, CAPACITY);
    m.skips_data = true;
    add_all(&m, 96, 2, s_released, 3);
    const uint64_t before = atomic_load(&s_heap.allocated_bytes);
    CHECK_NUMBER(bind(&b, &m, NULL, &error), SUMI_OK); // without a config.json the statistics are the released ones
    CHECK_TEXT(error.text, "");
    // no kernel is copied: names and lists only
    CHECK(atomic_load(&s_heap.allocated_bytes) - before < 64 << 10);
    const sumi_qwen_vae* vae = b.vae;
    CHECK(vae->shift[7] == 1.5508f && fabsf(vae->scale[0] * 2.8184f - 1.0f) < 1e-6f);
    printf("  %.1f M values are bound\n", (double)b.list.weight_bytes / 4e6);
    CHECK(arena_of(&sumi_qwen_vae_module, vae, (arena_case){true, 1024, 0, 96, false}) < 1.35);
    CHECK(arena_of(&sumi_qwen_vae_module, vae, (arena_case){true, 1328, 0, 96, false}) < 1.25);
    CHECK(arena_of(&sumi_qwen_vae_module, vae, (arena_case){true, 2512, 0, 96, false}) < 1.12);
    CHECK(arena_of(&sumi_qwen_vae_module, vae, (arena_case){true, 4096, 0, 96, false}) < 1.12);
    CHECK(arena_of(&sumi_qwen_vae_module, vae, (arena_case){true, 2512, 32, 96, false}) < 0.3);
    CHECK(arena_of(&sumi_qwen_vae_module, vae, (arena_case){false, 1024, 0, 96, false}) < 1.4);
    CHECK(arena_of(&sumi_qwen_vae_module, vae, (arena_case){false, 2512, 0, 96, false}) < 1.4);
    CHECK(arena_of(&sumi_qwen_vae_module, vae, (arena_case){false, 4096, 0, 96, false}) < 1.4);
    // long strips take a few dozen MB
    const double longer = arena_of(&sumi_qwen_vae_module, vae, (arena_case){true, 1024, 0, 96, true});
    CHECK(longer < 1.5 && longer > arena_of(&sumi_qwen_vae_module, vae, (arena_case){true, 1024, 0, 96, false}));
    CHECK(arena_of(&sumi_qwen_vae_module, vae, (arena_case){true, 2512, 0, 96, true}) < 1.12);
    CHECK(arena_of(&sumi_qwen_vae_module, vae, (arena_case){false, 1024, 0, 96, true}) < 1.45);
    // strips that are as equal as possible would leave 8 rows for the last one
    CHECK(arena_of(&sumi_qwen_vae_module, vae, (arena_case){true, 1168, 0, 96, false}) < 1.3);
    CHECK(arena_of(&sumi_qwen_vae_module, vae, (arena_case){true, 1808, 0, 96, true}) < 1.25);
    unbind(&b);
    end_maker(&m);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_cpu(2)) return 1;
    RUN(strips_change_no_bit);
    RUN(wan_names_are_the_same_model);
    RUN(every_missing_or_misshapen_tensor_is_named);
    RUN(what_the_part_cannot_do_is_refused);
    RUN(the_side_of_the_images_that_it_was_made_for_comes_from_the_config);
    RUN(tiles_that_the_rule_does_not_divide_are_refused);
    RUN(the_released_sizes_need_little_more_than_one_image);
    end_cpu();
    TEST_END();
}
