// Cases of small autoencoders. Each is computed whole and in strips, which must give the same bits.
#include "models/autoencoders.h"
#include "cuda_ops/scene.h"

// ---- flux_vae.c: group norms ----------------------------------------------------------------------------------------
static void make_conv(scene* s, sumi_weight* w, sumi_weight* bias, int in, int out, int kernel)
{
    *w = *matrix_weight(s, out, in * kernel * kernel, 0);
    *bias = *bias_of(s, out, 0);
}
static void make_norm(scene* s, sumi_weight* w, sumi_weight* bias, int channels)
{
    *w = *norm_weight(s, channels, 0);
    *bias = *bias_of(s, channels, 0);
}
static void make_block(scene* s, sumi_vae_block* b, int in, int out)
{
    make_norm(s, &b->norm1, &b->norm1_bias, in);
    make_conv(s, &b->conv1, &b->conv1_bias, in, out, 3);
    make_norm(s, &b->norm2, &b->norm2_bias, out);
    make_conv(s, &b->conv2, &b->conv2_bias, out, out, 3);
    b->has_shortcut = in != out;
    if (b->has_shortcut) make_conv(s, &b->shortcut, &b->shortcut_bias, in, out, 1);
}
// Two stages of two blocks each, with `first` and `second` channels, and `middle` channels between them and the
// latents.
static void make_half(scene* s, sumi_vae_half* half, int first, int second, int middle, int in, int out)
{
    half->is_present = true;
    half->stage_count = 2;
    make_conv(s, &half->conv_in, &half->conv_in_bias, in, middle == second ? first : middle, 3);
    for (int i = 0; i < 2; i++) make_block(s, &half->middle[i], middle, middle);
    make_norm(s, &half->attention_norm, &half->attention_norm_bias, middle);
    make_conv(s, &half->attention.qkv, &half->attention.qkv_bias, middle, 3 * middle, 1);
    make_conv(s, &half->attention.out, &half->attention.out_bias, middle, middle, 1);
    for (int stage = 0; stage < 2; stage++) {
        int channels = stage == 0 ? first : second;
        half->stages[stage].block_count = 2;
        for (int i = 0; i < 2; i++)
            make_block(s, &half->stages[stage].blocks[i], stage == 1 && i == 0 ? first : channels, channels);
    }
    half->stages[0].resamples = true;
    make_conv(s, &half->stages[0].resample, &half->stages[0].resample_bias, first, first, 3);
    make_norm(s, &half->norm_out, &half->norm_out_bias, second == middle ? middle : second);
    make_conv(s, &half->conv_out, &half->conv_out_bias, second == middle ? middle : second, out, 3);
}
// Images of m x n pixels, k and 2 k channels, a groups; b: bytes of a strip; c: decodes, otherwise encodes
static void build_autoencoder(scene* s, const op_case* c)
{
    bool decodes = c->c != 0;
    static sumi_flux_vae s_vae[2]; // static, because the plan points to its weights after this function
    sumi_flux_vae* vae = &s_vae[decodes];
    *vae = (sumi_flux_vae){.latent_channels = 4,
                           .groups = c->a,
                           .factor = 2,
                           .packing = 1,
                           .scale = {0.5f},
                           .shift = {0.1f},
                           .statistics_count = 1};
    if (decodes) make_half(s, &vae->decoder, 2 * c->k, c->k, 2 * c->k, 4, 3);
    else make_half(s, &vae->encoder, c->k, 2 * c->k, 2 * c->k, 3, 8);
    sumi_value from = decodes ? floats(s, 4, c->m / 2 * (c->n / 2)) : random_bytes(s, c->m * c->n, 3);
    for (int i = 0; i < 2; i++) {
        vae->strip_bytes = i == 0 ? UINT64_MAX : (uint64_t)c->b;
        const sumi_vae_tiling tiling = sumi_flux_vae_module.tiling(vae);
        sumi_value out;
        if (decodes) {
            out = sumi_plan_value(&s->plan, "picture", SUMI_ELEMENT_ACTIVATION, c->m * c->n, 3);
            sumi_vae_tiles_decode(&tiling, &s->plan, &(sumi_tile_source){from, c->m / 2, c->n / 2}, 0, out);
        } else {
            out = sumi_vae_tiles_encode(&tiling, &s->plan, &(sumi_tile_source){from, c->m, c->n}, 0);
        }
        expect(s, out, c->bound);
    }
    s->equal_pairs[0].a = 0, s->equal_pairs[0].b = 1;
    s->equal_pair_count = 1;
}
// ---- qwen_vae.c: norms over the channels of one pixel ---------------------------------------------------------------
static void make_pixel_block(scene* s, sumi_vae_block* b, int in, int out)
{
    b->norm1 = *norm_weight(s, in, 0);
    b->conv1 = *one_time_slice(matrix_weight(s, out, 27 * in, 0));
    b->conv1_bias = *bias_of(s, out, 0);
    b->norm2 = *norm_weight(s, out, 0);
    b->conv2 = *one_time_slice(matrix_weight(s, out, 27 * out, 0));
    b->conv2_bias = *bias_of(s, out, 0);
    b->has_shortcut = in != out;
    if (b->has_shortcut) make_conv(s, &b->shortcut, &b->shortcut_bias, in, out, 1);
}
static void make_pixel_half(scene* s, sumi_vae_half* half, int first, int second, int middle, int in, int out)
{
    const bool decodes = middle == first;
    half->is_present = true;
    half->stage_count = 2;
    make_conv(s, &half->conv_in, &half->conv_in_bias, in, first, 3);
    for (int i = 0; i < 2; i++) make_pixel_block(s, &half->middle[i], middle, middle);
    half->attention_norm = *norm_weight(s, middle, 0);
    make_conv(s, &half->attention.qkv, &half->attention.qkv_bias, middle, 3 * middle, 1);
    make_conv(s, &half->attention.out, &half->attention.out_bias, middle, middle, 1);
    for (int stage = 0; stage < 2; stage++) {
        half->stages[stage].block_count = 2;
        for (int i = 0; i < 2; i++)
            make_pixel_block(s, &half->stages[stage].blocks[i],
                             stage == 1 && i == 0 && !decodes ? first
                             : stage == 0                     ? first
                                                              : second,
                             stage == 0 ? first : second);
    }
    half->stages[0].resamples = true;
    make_conv(s, &half->stages[0].resample, &half->stages[0].resample_bias, first, decodes ? second : first, 3);
    half->norm_out = *norm_weight(s, second, 0);
    make_conv(s, &half->conv_out, &half->conv_out_bias, second, out, 3);
    const int joint = decodes ? in : out;
    make_conv(s, &half->quant, &half->quant_bias, joint, joint, 1);
}
// Images of m x n pixels, k and 2 k channels; b: bytes of a strip; c: decodes, otherwise encodes
static void build_pixel_autoencoder(scene* s, const op_case* c)
{
    bool decodes = c->c != 0;
    static sumi_qwen_vae s_vae[2]; // static, because the plan points to its weights after this function
    sumi_qwen_vae* vae = &s_vae[decodes];
    *vae = (sumi_qwen_vae){.channels = 4, .picture_channels = 3, .factor = 2, .tiles = {3, 4}};
    for (int i = 0; i < 4; i++) vae->scale[i] = 0.5f + 0.25f * (float)i, vae->shift[i] = 0.1f * (float)i;
    if (decodes) make_pixel_half(s, &vae->decoder, 2 * c->k, c->k, 2 * c->k, 4, 3);
    else make_pixel_half(s, &vae->encoder, c->k, 2 * c->k, 2 * c->k, 3, 8);
    sumi_value from = decodes ? floats(s, 4, c->m / 2 * (c->n / 2)) : random_bytes(s, c->m * c->n, 3);
    for (int i = 0; i < 2; i++) {
        vae->strip_bytes = i == 0 ? UINT64_MAX : (uint64_t)c->b;
        const sumi_vae_tiling tiling = sumi_qwen_vae_module.tiling(vae);
        sumi_value out;
        if (decodes) {
            out = sumi_plan_value(&s->plan, "picture", SUMI_ELEMENT_ACTIVATION, c->m * c->n, 3);
            sumi_vae_tiles_decode(&tiling, &s->plan, &(sumi_tile_source){from, c->m / 2, c->n / 2}, 0, out);
        } else {
            out = sumi_vae_tiles_encode(&tiling, &s->plan, &(sumi_tile_source){from, c->m, c->n}, 0);
        }
        expect(s, out, c->bound);
    }
    s->equal_pairs[0].a = 0, s->equal_pairs[0].b = 1;
    s->equal_pair_count = 1;
}
static const op_case s_autoencoder[] = {
    {"pixel norms, decoder 72x8, 8 channels", build_pixel_autoencoder, 72, 8, 8, 0, 1, 1, .bound = 3e-2},
    {"pixel norms, encoder 40x12, 8 channels", build_pixel_autoencoder, 40, 12, 8, 0, 1, 0, .bound = 3e-2},
    {"pixel norms, decoder 128x96, 96 channels", build_pixel_autoencoder, 128, 96, 96, 0, 1, 1, .bound = 3e-2},
    {"pixel norms, decoder 64x96, 192 channels", build_pixel_autoencoder, 64, 96, 192, 0, 1, 1, .bound = 3e-2},
    {"pixel norms, encoder 128x96, 96 channels", build_pixel_autoencoder, 128, 96, 96, 0, 1, 0, .bound = 3e-2},

    {"decoder 72x8, 8 channels", build_autoencoder, 72, 8, 8, 4, 1, 1, .bound = 3e-2},
    {"encoder 40x12, 8 channels", build_autoencoder, 40, 12, 8, 4, 1, 0, .bound = 3e-2},
    {"decoder 128x96, 128 channels", build_autoencoder, 128, 96, 128, 32, 1, 1, .bound = 3e-2},
    {"decoder 64x48, 256 channels", build_autoencoder, 64, 48, 256, 32, 1, 1, .bound = 3e-2},
    {"encoder 128x96, 128 channels", build_autoencoder, 128, 96, 128, 32, 1, 0, .bound = 3e-2},
};
CASE_TABLE(autoencoder);
