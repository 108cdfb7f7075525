// The Qwen-Image-2.1 autoencoder: every naming scheme, what is refused and how, that strips change no bit, and what
// memory the released sizes need. The numbers are golden_run's business.
#include "wan_vae_fixture.h"

// ---- Made-up checkpoints --------------------------------------------------------------------------------------------

enum { LEVELS = 5, CHANNELS = 64 };

typedef struct sizes {
    int64_t encoder_base, decoder_base, picture_channels;
    int32_t blocks;
    int32_t levels[LEVELS];
    int32_t time; // 0: kernels of pictures; otherwise kernels over time have so many slices, of which the last counts
} sizes;

// Stage `index` of a half, with the dead kernel over time that files have. Returns its channels.
static int64_t add_stage(maker* m, const sizes* s, bool decodes, int32_t index, int64_t in)
{
    const char *side = decodes ? "decoder" : "encoder", *way = decodes ? "up" : "down";
    const int32_t blocks = s->blocks + decodes;
    const int64_t out = decodes ? s->decoder_base * s->levels[LEVELS - 1 - index] : s->encoder_base * s->levels[index];
    char a[64], b[64];
    for (int32_t i = 0; i < blocks; i++) {
        snprintf(a, sizeof a, "%s_blocks.%d.resnets.%d.", way, (int)index, (int)i);
        snprintf(b, sizeof b, "%ssamples.%d.%ssamples.%d.", way, (int)index, way, (int)i);
        const naming at = name_at(side, a, b);
        add_block(m, &at, i == 0 ? in : out, out, s->time);
    }
    if (index == LEVELS - 1) return out;
    snprintf(a, sizeof a, "%s_blocks.%d.%ssampler.", way, (int)index, way);
    snprintf(b, sizeof b, "%ssamples.%d.%ssamples.%d.", way, (int)index, way, (int)blocks);
    const naming at = name_at(side, a, b);
    add_conv(m, &at, "resample.1", "resample.1", (conv_shape){out, out, 3, 0});
    return out;
}

static void add_all(maker* m, const sizes* s)
{
    const naming none = {"", ""}, encoder = name_at("encoder", "", ""), decoder = name_at("decoder", "", "");
    int64_t channels = s->encoder_base;
    add_conv(m, &encoder, "conv_in", "conv1", (conv_shape){channels, s->picture_channels, 3, s->time});
    for (int32_t i = 0; i < LEVELS; i++) channels = add_stage(m, s, false, i, channels);
    add_middle(m, "encoder", channels, s->time);
    add_end(m, "encoder", channels, 2 * CHANNELS, s->time);
    add_conv(m, &none, "quant_conv", "conv1", (conv_shape){2 * CHANNELS, 2 * CHANNELS, 1, s->time > 0});
    add_conv(m, &none, "post_quant_conv", "conv2", (conv_shape){CHANNELS, CHANNELS, 1, s->time > 0});
    channels = s->decoder_base * s->levels[LEVELS - 1];
    add_conv(m, &decoder, "conv_in", "conv1", (conv_shape){channels, CHANNELS, 3, s->time});
    add_middle(m, "decoder", channels, s->time);
    for (int32_t i = 0; i < LEVELS; i++) channels = add_stage(m, s, true, i, channels);
    add_end(m, "decoder", channels, s->picture_channels, s->time);
}

// Tensors that files have and nothing reads.
static void add_dead(maker* m)
{
    const naming up = name_at("decoder", "up_blocks.1.upsampler.", "upsamples.1.upsamples.2."),
                 down = name_at("encoder", "down_blocks.1.downsampler.", "downsamples.1.downsamples.1.");
    add_conv(m, &up, "time_conv", "time_conv", (conv_shape){7, 3, 1, 0});
    add_conv(m, &down, "time_conv", "time_conv", (conv_shape){7, 3, 1, 0});
}

enum { CAPACITY = 16 << 20 }; // values of the largest made-up checkpoint

static const sizes s_small = {2, 4, 4, 1, {1, 1, 2, 4, 4}, 0}, s_released = {96, 144, 4, 2, {1, 2, 4, 8, 8}, 0};
static const char s_config[] = "{\"z_dim\": 64, \"is_residual\": true, \"base_dim\": 2, \"decoder_base_dim\": 4, "
                               "\"dim_mult\": [1, 1, 2, 4, 4], \"num_res_blocks\": 1, \"attn_scales\": [], "
                               "\"patch_size\": null, \"temperal_downsample\": [false, true, true, true]}";

static sumi_result bind(bound* b, const maker* m, const char* config, sumi_error* error)
{
    b->module = &sumi_qwen_vae_21_module;
    return bind_on(b, &s_heap, m, config, error);
}

// ---- Runs -----------------------------------------------------------------------------------------------------------

TEST(strips_change_no_bit)
{
    static const sizes s_widths[] = {{2, 4, 4, 1, {1, 1, 2, 4, 4}, 0}, {4, 3, 4, 1, {1, 1, 1, 1, 1}, 0}};
    static const int32_t s_sizes[][2] = {{2, 1}, {3, 2}, {5, 2}};
    for (size_t k = 0; k < sizeof s_widths / sizeof *s_widths; k++) {
        maker m;
        bound b;
        sumi_error error = {0};
        begin_maker(&m, false, CAPACITY);
        add_all(&m, &s_widths[k]);
        CHECK_NUMBER(bind(&b, &m, NULL, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        if (error.result == SUMI_OK)
            check_strips(&sumi_qwen_vae_21_module, b.vae, s_sizes, sizeof s_sizes / sizeof *s_sizes);
        unbind(&b);
        end_maker(&m);
    }
}

TEST(all_names_and_kernels_are_the_same_model)
{
    // diffusers; Wan; Wan with kernels over time of one slice; diffusers without dead tensors
    maker m[4];
    bound b[4];
    sumi_error error = {0};
    for (int i = 0; i < 4; i++) {
        sizes s = s_small;
        begin_maker(&m[i], i == 1 || i == 2, CAPACITY);
        s.time = i == 2;
        add_all(&m[i], &s);
        if (i < 3) add_dead(&m[i]);
        CHECK_NUMBER(bind(&b[i], &m[i], i > 0 ? s_config : NULL, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        const sumi_autoencoder_properties properties = sumi_qwen_vae_21_module.properties(b[i].vae);
        CHECK(properties.channels == 64 && properties.factor == 16 && properties.picture_channels == 4);
        CHECK(properties.has_decoder && properties.has_encoder && properties.packing == 1);
    }
    for (int i = 1; i < 4 && error.result == SUMI_OK; i++)
        check_same(&sumi_qwen_vae_21_module, b[0].vae, b[i].vae, (const int32_t[]){2, 3, 0});
    for (int i = 0; i < 4; i++) {
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
        add_all(&all, &s_small);
        for (size_t i = 0; i < all.set.count; i++) {
            for (int is_missing = 0; is_missing < 2; is_missing++) {
                maker m = {.has_other_names = is_wan != 0, .norm = "gamma", .layer_rank = 3, .skips_data = true};
                open_maker(&m, 1u << 16);
                if (is_missing) m.left_out = all.set.tensors[i].name;
                else m.doubled = all.set.tensors[i].name;
                add_all(&m, &s_small);
                check_damage(&sumi_qwen_vae_21_module, &m, s_config);
                end_maker(&m);
            }
        }
        end_maker(&all);
    }
}

TEST(what_the_part_cannot_do_is_refused)
{
    static const struct {
        const char* config;
        sumi_result result;
        const char* holds;
    } s_cases[] = {
        {"{\"is_residual\": false}", SUMI_NOT_SUPPORTED, "is_residual"},
        {"{\"attn_scales\": [0.5]}", SUMI_NOT_SUPPORTED, "attn_scales"},
        {"{\"patch_size\": 2}", SUMI_NOT_SUPPORTED, "Wan 2.2"},
        {"{\"in_channels\": 12}", SUMI_NOT_SUPPORTED, "12 values per pixel"},
        {"{\"out_channels\": 3}", SUMI_NOT_SUPPORTED, "red, green, blue and alpha"},
        {"{\"temperal_downsample\": [true]}", SUMI_TENSOR_MISMATCH, "temperal_downsample has 1 elements"},
        {"{\"temperal_downsample\": [1]}", SUMI_FILE_MALFORMED, "config.json"},
        {"{\"temperal_downsample\": [true, true, true, true, true, true, true]}", SUMI_FILE_MALFORMED, "too long"},
        {"{\"z_dim\": 48}", SUMI_TENSOR_MISMATCH, "z_dim"},
        {"{\"base_dim\": 3, \"dim_mult\": [1, 1, 2, 4, 4]}", SUMI_TENSOR_MISMATCH, "base_dim"},
        {"{\"base_dim\": 2, \"decoder_base_dim\": 3, \"dim_mult\": [1, 1, 2, 4, 4]}", SUMI_TENSOR_MISMATCH,
         "decoder_base_dim"},
        {"{\"base_dim\": 2, \"decoder_base_dim\": 4, \"dim_mult\": [1, 1, 2, 4]}", SUMI_TENSOR_MISMATCH, "dim_mult"},
        {"{\"num_res_blocks\": 2}", SUMI_TENSOR_MISMATCH, "num_res_blocks"},
        {"{\"latents_mean\": [1, 2], \"latents_std\": [1, 2]}", SUMI_TENSOR_MISMATCH, "64 channels"},
    };
    maker m;
    begin_maker(&m, false, CAPACITY);
    add_all(&m, &s_small);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++)
        check_refused_by(&sumi_qwen_vae_21_module, &m, s_cases[i].config, s_cases[i].result, s_cases[i].holds);
    end_maker(&m);
    for (int is_wan = 0; is_wan < 2; is_wan++) { // the one of Wan 2.2 has pixels of 12 values
        begin_maker(&m, is_wan != 0, CAPACITY);
        sizes s = s_small;
        s.picture_channels = 12;
        s.time = 3;
        add_all(&m, &s);
        check_refused_by(&sumi_qwen_vae_21_module, &m, NULL, SUMI_NOT_SUPPORTED, "12 values per pixel");
        end_maker(&m);
    }
    begin_maker(&m, false, CAPACITY); // 3 channels cannot be averages of 8
    const sizes uneven = {2, 3, 4, 1, {1, 1, 2, 4, 5}, 0};
    add_all(&m, &uneven);
    check_refused_by(&sumi_qwen_vae_21_module, &m, NULL, SUMI_TENSOR_MISMATCH, "its shortcut cannot");
    end_maker(&m);
}

// ---- The released sizes ---------------------------------------------------------------------------------------------

// The decoder's last stage makes 144 channels of 288, and its shortcut needs 144 at the size of the result: together 1.5
// pictures of 288.
TEST(the_released_sizes_need_little_more_than_their_largest_stage)
{
    maker m;
    bound b;
    sumi_error error = {0};
    begin_maker(&m, true, CAPACITY);
    m.skips_data = true;
    add_all(&m, &s_released);
    CHECK_NUMBER(bind(&b, &m, NULL, &error), SUMI_OK); // without a config.json the statistics are the released ones
    CHECK_TEXT(error.text, "");
    const sumi_qwen_vae* vae = b.vae;
    CHECK(vae->shift[63] == 0.0304f && fabsf(vae->scale[0] * 3.2001f - 1.0f) < 1e-6f);
    printf("  %.1f M values are bound\n", (double)b.list.weight_bytes / 4e6);
    CHECK(arena_of(&sumi_qwen_vae_21_module, vae, (arena_case){true, 1024, 0, 288, false}) < 1.65);
    CHECK(arena_of(&sumi_qwen_vae_21_module, vae, (arena_case){true, 2048, 0, 288, false}) < 1.6);
    CHECK(arena_of(&sumi_qwen_vae_21_module, vae, (arena_case){false, 1024, 0, 96, false}) < 1.6);
    CHECK(arena_of(&sumi_qwen_vae_21_module, vae, (arena_case){false, 2048, 0, 96, false}) < 1.6);
    // long strips take a few dozen MB
    CHECK(arena_of(&sumi_qwen_vae_21_module, vae, (arena_case){true, 1024, 0, 288, true}) < 1.65);
    CHECK(arena_of(&sumi_qwen_vae_21_module, vae, (arena_case){false, 1024, 0, 96, true}) < 1.75);
    CHECK(arena_of(&sumi_qwen_vae_21_module, vae, (arena_case){false, 2048, 0, 96, true}) < 1.6);
    unbind(&b);
    end_maker(&m);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_cpu(2)) return 1;
    RUN(strips_change_no_bit);
    RUN(all_names_and_kernels_are_the_same_model);
    RUN(every_missing_or_misshapen_tensor_is_named);
    RUN(what_the_part_cannot_do_is_refused);
    RUN(the_released_sizes_need_little_more_than_their_largest_stage);
    end_cpu();
    TEST_END();
}
