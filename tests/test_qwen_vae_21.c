// The Qwen-Image-2.1 autoencoder: every naming scheme, what is refused and how, that strips change no bit, and what
// memory the released sizes need. The numbers are golden_run's business.
#include "vae_fixture.h"

// ---- Made-up checkpoints --------------------------------------------------------------------------------------------

enum { LEVELS = 5, CHANNELS = 64 };

typedef struct sizes {
    int64_t encoder_base, decoder_base, picture_channels;
    int32_t blocks;
    int32_t levels[LEVELS];
    int32_t time; // 0: kernels of pictures; otherwise kernels over time have so many slices, of which the last counts
} sizes;

static void add_both(maker* m, const naming* at, const char* diffusers, const char* wan, const int64_t* shape,
                     int32_t rank)
{
    char a[192], b[192];
    snprintf(a, sizeof a, "%s%s", at->diffusers, diffusers);
    snprintf(b, sizeof b, "%s%s", at->other, wan);
    add(m, a, b, shape, rank);
}

typedef struct conv_shape {
    int64_t out, in, taps;
    int32_t time;
} conv_shape;

static void add_conv(maker* m, const naming* at, const char* diffusers, const char* wan, conv_shape s)
{
    char a[64], b[64];
    snprintf(a, sizeof a, "%s.weight", diffusers);
    snprintf(b, sizeof b, "%s.weight", wan);
    if (s.time > 0) add_both(m, at, a, b, (const int64_t[]){s.out, s.in, s.time, s.taps, s.taps}, 5);
    else add_both(m, at, a, b, (const int64_t[]){s.out, s.in, s.taps, s.taps}, 4);
    snprintf(a, sizeof a, "%s.bias", diffusers);
    snprintf(b, sizeof b, "%s.bias", wan);
    add_both(m, at, a, b, &s.out, 1);
}

static void add_block(maker* m, const sizes* s, const naming* at, int64_t in, int64_t out)
{
    add_both(m, at, "norm1.gamma", "residual.0.gamma", (const int64_t[]){in, 1, 1, 1}, 4);
    add_conv(m, at, "conv1", "residual.2", (conv_shape){out, in, 3, s->time});
    add_both(m, at, "norm2.gamma", "residual.3.gamma", (const int64_t[]){out, 1, 1, 1}, 4);
    add_conv(m, at, "conv2", "residual.6", (conv_shape){out, out, 3, s->time});
    if (in != out) add_conv(m, at, "conv_shortcut", "shortcut", (conv_shape){out, in, 1, s->time > 0});
}

static void add_middle(maker* m, const sizes* s, const char* side, int64_t channels)
{
    const naming first = name_at(side, "mid_block.resnets.0.", "middle.0."),
                 attention = name_at(side, "mid_block.attentions.0.", "middle.1."),
                 second = name_at(side, "mid_block.resnets.1.", "middle.2.");
    add_block(m, s, &first, channels, channels);
    add_both(m, &attention, "norm.gamma", "norm.gamma", (const int64_t[]){channels, 1, 1}, 3);
    add_conv(m, &attention, "to_qkv", "to_qkv", (conv_shape){3 * channels, channels, 1, 0});
    add_conv(m, &attention, "proj", "proj", (conv_shape){channels, channels, 1, 0});
    add_block(m, s, &second, channels, channels);
}

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
        add_block(m, s, &at, i == 0 ? in : out, out);
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
    add_middle(m, s, "encoder", channels);
    add_both(m, &encoder, "norm_out.gamma", "head.0.gamma", (const int64_t[]){channels, 1, 1, 1}, 4);
    add_conv(m, &encoder, "conv_out", "head.2", (conv_shape){2 * CHANNELS, channels, 3, s->time});
    add_conv(m, &none, "quant_conv", "conv1", (conv_shape){2 * CHANNELS, 2 * CHANNELS, 1, s->time > 0});
    add_conv(m, &none, "post_quant_conv", "conv2", (conv_shape){CHANNELS, CHANNELS, 1, s->time > 0});
    channels = s->decoder_base * s->levels[LEVELS - 1];
    add_conv(m, &decoder, "conv_in", "conv1", (conv_shape){channels, CHANNELS, 3, s->time});
    add_middle(m, s, "decoder", channels);
    for (int32_t i = 0; i < LEVELS; i++) channels = add_stage(m, s, true, i, channels);
    add_both(m, &decoder, "norm_out.gamma", "head.0.gamma", (const int64_t[]){channels, 1, 1, 1}, 4);
    add_conv(m, &decoder, "conv_out", "head.2", (conv_shape){s->picture_channels, channels, 3, s->time});
}

// Tensors that files have and nothing reads.
static void add_dead(maker* m)
{
    const naming up = name_at("decoder", "up_blocks.1.upsampler.", "upsamples.1.upsamples.2."),
                 down = name_at("encoder", "down_blocks.1.downsampler.", "downsamples.1.downsamples.1.");
    add_conv(m, &up, "time_conv", "time_conv", (conv_shape){7, 3, 1, 0});
    add_conv(m, &down, "time_conv", "time_conv", (conv_shape){7, 3, 1, 0});
}

static void begin_maker(maker* m, bool is_wan)
{
    *m = (maker){.has_other_names = is_wan, .norm = "gamma", .gain = 3.0f, .layer_rank = 3};
    open_maker(m, 16u << 20);
}

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

// Of height, width and tile.
static void check_same(const sumi_qwen_vae* a, const sumi_qwen_vae* b, const int32_t size[3])
{
    for (int decodes = 0; decodes < 2; decodes++) {
        vae_run runs[2] = {{.vae = a}, {.vae = b}};
        for (int i = 0; i < 2; i++) {
            runs[i].module = &sumi_qwen_vae_21_module;
            runs[i].decodes = decodes != 0;
            runs[i].height = size[0], runs[i].width = size[1], runs[i].tile = size[2];
        }
        check_same_bits(&runs[0], &runs[1]);
    }
}

TEST(strips_change_no_bit)
{
    static const sizes s_widths[] = {{2, 4, 4, 1, {1, 1, 2, 4, 4}, 0}, {4, 3, 4, 1, {1, 1, 1, 1, 1}, 0}};
    static const int32_t s_sizes[][2] = {{2, 1}, {3, 2}, {5, 2}};
    for (size_t k = 0; k < sizeof s_widths / sizeof *s_widths; k++) {
        maker m;
        bound b;
        sumi_error error = {0};
        begin_maker(&m, false);
        add_all(&m, &s_widths[k]);
        CHECK_NUMBER(bind(&b, &m, NULL, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        for (size_t i = 0; i < sizeof s_sizes / sizeof *s_sizes && error.result == SUMI_OK; i++) {
            sumi_qwen_vae by_strips = *(const sumi_qwen_vae*)b.vae, whole = by_strips;
            by_strips.strip_bytes = 1;
            whole.strip_bytes = UINT64_MAX;
            for (int32_t tile = 0; tile <= 4; tile += 4)
                check_same(&by_strips, &whole, (const int32_t[]){s_sizes[i][0], s_sizes[i][1], tile});
        }
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
        begin_maker(&m[i], i == 1 || i == 2);
        s.time = i == 2;
        add_all(&m[i], &s);
        if (i < 3) add_dead(&m[i]);
        CHECK_NUMBER(bind(&b[i], &m[i], i > 0 ? s_config : NULL, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        const sumi_autoencoder_properties properties = sumi_qwen_vae_21_module.properties(b[i].vae);
        CHECK(properties.channels == 64 && properties.factor == 16 && properties.picture_channels == 4);
        CHECK(properties.has_decoder && properties.has_encoder && properties.packing == 1);
    }
    for (int i = 1; i < 4 && error.result == SUMI_OK; i++) check_same(b[0].vae, b[i].vae, (const int32_t[]){2, 3, 0});
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
        begin_maker(&all, is_wan != 0);
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
    begin_maker(&m, false);
    add_all(&m, &s_small);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++)
        check_refused_by(&sumi_qwen_vae_21_module, &m, s_cases[i].config, s_cases[i].result, s_cases[i].holds);
    end_maker(&m);
    for (int is_wan = 0; is_wan < 2; is_wan++) { // the one of Wan 2.2 has pixels of 12 values
        begin_maker(&m, is_wan != 0);
        sizes s = s_small;
        s.picture_channels = 12;
        s.time = 3;
        add_all(&m, &s);
        check_refused_by(&sumi_qwen_vae_21_module, &m, NULL, SUMI_NOT_SUPPORTED, "12 values per pixel");
        end_maker(&m);
    }
    begin_maker(&m, false); // 3 channels cannot be averages of 8
    const sizes uneven = {2, 3, 4, 1, {1, 1, 2, 4, 5}, 0};
    add_all(&m, &uneven);
    check_refused_by(&sumi_qwen_vae_21_module, &m, NULL, SUMI_TENSOR_MISMATCH, "its shortcut cannot");
    end_maker(&m);
}

// ---- The released sizes ---------------------------------------------------------------------------------------------

// The arena of a plan in bfloat16, in pictures of `channels` channels as large as the result.
static double arena_of(const sumi_qwen_vae* vae, bool decodes, int32_t side, int32_t channels)
{
    sumi_plan plan;
    sumi_error error = {0};
    const int32_t latents = side / 16 * (side / 16), pixels = side * side;
    sumi_plan_begin(&plan, &s_heap, 2);
    sumi_plan_section(&plan, decodes ? SUMI_SECTION_DECODE : SUMI_SECTION_IMAGE, 1, 0);
    const sumi_vae_tiling tiling = sumi_qwen_vae_21_module.tiling(vae);
    if (decodes) {
        const sumi_value from = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, CHANNELS, latents),
                         to = sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_ACTIVATION, pixels, 4);
        sumi_vae_tiles_decode(&tiling, &plan, &(sumi_tile_source){from, side / 16, side / 16}, 0, to);
    } else {
        const sumi_value from = sumi_plan_bound(&plan, "pixels", SUMI_ELEMENT_BYTE, pixels, 4),
                         to = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, CHANNELS, latents);
        const sumi_value moments = sumi_vae_tiles_encode(&tiling, &plan, &(sumi_tile_source){from, side, side}, 0);
        sumi_vae_posterior(&tiling, &plan, moments, SUMI_NO_VALUE, &(sumi_tile_source){to, side / 16, side / 16});
    }
    CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_OK);
    CHECK_NUMBER(sumi_plan_validate(&plan, &error), SUMI_OK);
    CHECK_TEXT(error.text, "");
    const double arena = (double)plan.arena_bytes, of_pictures = arena / ((double)pixels * channels * 2);
    printf("  %s %4d x %4d: %7.1f MB, %.3f pictures of %d channels, %zu ops, %.2f TFLOP\n",
           decodes ? "decode" : "encode", (int)side, (int)side, arena / 1e6, of_pictures, (int)channels, plan.op_count,
           plan.total_flops / 1e12);
    sumi_plan_end(&plan);
    return of_pictures;
}

// The decoder's last stage makes 144 channels of 288, and its shortcut needs 144 at the size of the result: together 1.5
// pictures of 288.
TEST(the_released_sizes_need_little_more_than_their_largest_stage)
{
    maker m;
    bound b;
    sumi_error error = {0};
    begin_maker(&m, true);
    m.skips_data = true;
    add_all(&m, &s_released);
    CHECK_NUMBER(bind(&b, &m, NULL, &error), SUMI_OK); // without a config.json the statistics are the released ones
    CHECK_TEXT(error.text, "");
    const sumi_qwen_vae* vae = b.vae;
    CHECK(vae->shift[63] == 0.0304f && fabsf(vae->scale[0] * 3.2001f - 1.0f) < 1e-6f);
    printf("  %.1f M values are bound\n", (double)b.list.weight_bytes / 4e6);
    CHECK(arena_of(vae, true, 1024, 288) < 1.65);
    CHECK(arena_of(vae, true, 2048, 288) < 1.6);
    CHECK(arena_of(vae, false, 1024, 96) < 1.6);
    CHECK(arena_of(vae, false, 2048, 96) < 1.6);
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
