// What the tests of Wan-like autoencoders share: made-up checkpoints in the names of diffusers and of Wan, and the memory
// of a plan.
#ifndef WAN_VAE_FIXTURE_H
#define WAN_VAE_FIXTURE_H
#include "vae_fixture.h"

static inline void add_both(maker* m, const naming* at, const char* diffusers, const char* wan, const int64_t* shape,
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

static inline void add_conv(maker* m, const naming* at, const char* diffusers, const char* wan, conv_shape s)
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

// time: as in conv_shape, for kernels over time.
static inline void add_block(maker* m, const naming* at, int64_t in, int64_t out, int32_t time)
{
    add_both(m, at, "norm1.gamma", "residual.0.gamma", (const int64_t[]){in, 1, 1, 1}, 4);
    add_conv(m, at, "conv1", "residual.2", (conv_shape){out, in, 3, time});
    add_both(m, at, "norm2.gamma", "residual.3.gamma", (const int64_t[]){out, 1, 1, 1}, 4);
    add_conv(m, at, "conv2", "residual.6", (conv_shape){out, out, 3, time});
    if (in != out) add_conv(m, at, "conv_shortcut", "shortcut", (conv_shape){out, in, 1, time > 0});
}

static inline void add_middle(maker* m, const char* side, int64_t channels, int32_t time)
{
    const naming first = name_at(side, "mid_block.resnets.0.", "middle.0."),
                 attention = name_at(side, "mid_block.attentions.0.", "middle.1."),
                 second = name_at(side, "mid_block.resnets.1.", "middle.2.");
    add_block(m, &first, channels, channels, time);
    add_both(m, &attention, "norm.gamma", "norm.gamma", (const int64_t[]){channels, 1, 1}, 3);
    add_conv(m, &attention, "to_qkv", "to_qkv", (conv_shape){3 * channels, channels, 1, 0});
    add_conv(m, &attention, "proj", "proj", (conv_shape){channels, channels, 1, 0});
    add_block(m, &second, channels, channels, time);
}

static inline void add_end(maker* m, const char* side, int64_t channels, int64_t out, int32_t time)
{
    const naming at = name_at(side, "", "");
    add_both(m, &at, "norm_out.gamma", "head.0.gamma", (const int64_t[]){channels, 1, 1, 1}, 4);
    add_conv(m, &at, "conv_out", "head.2", (conv_shape){out, channels, 3, time});
}

// The other names are those of Wan.
static inline void begin_maker(maker* m, bool is_wan, size_t capacity)
{
    *m = (maker){.has_other_names = is_wan, .norm = "gamma", .gain = 3.0f, .layer_rank = 3};
    open_maker(m, capacity);
}

// Both compute the same, decoding and encoding. Of height, width and tile.
static inline void check_same(const sumi_autoencoder_module* module, const sumi_qwen_vae* a, const sumi_qwen_vae* b,
                              const int32_t size[3])
{
    for (int decodes = 0; decodes < 2; decodes++) {
        vae_run runs[2] = {{.vae = a}, {.vae = b}};
        for (int i = 0; i < 2; i++) {
            runs[i].module = module;
            runs[i].decodes = decodes != 0;
            runs[i].height = size[0], runs[i].width = size[1], runs[i].tile = size[2];
        }
        check_same_bits(&runs[0], &runs[1]);
    }
}

// Strips as small as they can be change no bit, in pictures of each {height, width} and in tiles.
static inline void check_strips(const sumi_autoencoder_module* module, const sumi_qwen_vae* vae,
                                const int32_t (*sizes)[2], size_t count)
{
    sumi_qwen_vae by_strips = *vae, whole = *vae;
    by_strips.strip_bytes = 1;
    whole.strip_bytes = UINT64_MAX;
    for (size_t i = 0; i < count; i++) {
        for (int32_t tile = 0; tile <= 4; tile += 4)
            check_same(module, &by_strips, &whole, (const int32_t[]){sizes[i][0], sizes[i][1], tile});
    }
}

// Convolutions of residual blocks that are lower than a patch of a GPU's kernels, which others compute in another order.
static inline int32_t count_low_convolutions(const sumi_plan* plan)
{
    int32_t count = 0;
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_op* op = &plan->ops[i];
        count += op->kind == SUMI_OP_CONV && op->u.conv.above + op->u.conv.below > 0 && !op->u.conv.upsamples
              && op->rows < 8 * op->u.conv.width;
    }
    return count;
}

// The arena of a plan in bfloat16 for a picture of side x side, in pictures of `channels` channels as large as the result.
typedef struct arena_case {
    bool decodes;
    int32_t side, tile, channels;
    bool long_strips;
} arena_case;

static inline double arena_of(const sumi_autoencoder_module* module, const sumi_qwen_vae* vae, arena_case a)
{
    sumi_plan plan;
    sumi_error error = {0};
    const sumi_autoencoder_properties is = module->properties(vae);
    const int32_t latent_side = a.side / is.factor, latents = latent_side * latent_side, pixels = a.side * a.side;
    sumi_plan_begin(&plan, &s_heap, 2);
    sumi_plan_section(&plan, a.decodes ? SUMI_SECTION_DECODE : SUMI_SECTION_IMAGE, 1, 0);
    sumi_vae_tiling tiling = module->tiling(vae);
    tiling.long_strips = a.long_strips;
    if (a.decodes) {
        const sumi_value from = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, is.channels, latents),
                         to = sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_ACTIVATION, pixels, is.picture_channels);
        sumi_vae_tiles_decode(&tiling, &plan, &(sumi_tile_source){from, latent_side, latent_side}, a.tile, to);
    } else {
        const sumi_value from = sumi_plan_bound(&plan, "pixels", SUMI_ELEMENT_BYTE, pixels, is.picture_channels),
                         to = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, is.channels, latents);
        const sumi_value moments =
            sumi_vae_tiles_encode(&tiling, &plan, &(sumi_tile_source){from, a.side, a.side}, a.tile);
        sumi_vae_posterior(&tiling, &plan, moments, SUMI_NO_VALUE, &(sumi_tile_source){to, latent_side, latent_side});
    }
    CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_OK);
    CHECK_NUMBER(sumi_plan_validate(&plan, &error), SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK_NUMBER(a.tile > 0 ? 0 : count_low_convolutions(&plan), 0);
    const double arena = (double)plan.arena_bytes, of_pictures = arena / ((double)pixels * a.channels * 2);
    printf("  %s %4d x %4d%s%s: %7.1f MB, %.3f pictures of %d channels, %zu ops, %.2f TFLOP\n",
           a.decodes ? "decode" : "encode", (int)a.side, (int)a.side, a.tile > 0 ? " in tiles" : "",
           a.long_strips ? ", long strips" : "", arena / 1e6, of_pictures, (int)a.channels, plan.op_count,
           plan.total_flops / 1e12);
    sumi_plan_end(&plan);
    return of_pictures;
}
#endif
