#include "models/wan_vae.h"
#include "base/assert.h"
#include "base/numbers.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

// Bytes of a strip. 112 rows of 1024 x 1024 pixels with 96 channels are 7 rounds of patches on a Hopper GPU, 97 % full.
#define STRIP_BYTES (22u << 20)
// The same for long strips, 208 rows: 13 rounds, 97 % full. Half as many launches, and fewer rows at the ends of strips:
// decoding 1024 x 1024 pixels on an H200 takes 9.21 ms where strips of 112 rows take 9.48.
#define LONG_STRIP_BYTES (45u << 20)
// Rows of the last strip: conv1 computes one less, and a GPU has other kernels, with another order of sums, for pictures
// lower than a patch of 8 rows. With these rows, strips of any length have the same bits.
#define LEAST_LAST_ROWS 9

// ---- Names ----------------------------------------------------------------------------------------------------------

typedef struct renaming {
    const char *from, *to;
} renaming;

// The canonical name without `prefix`; NULL if it does not begin with the prefix.
static const char* after_prefix(const char* name, const char* prefix)
{
    size_t length = strlen(prefix);
    return strncmp(name, prefix, length) == 0 ? name + length : NULL;
}

// Wan's name of the module of a residual block that a name ends with.
static const char* block_module(const char* suffix, const char** out_begin)
{
    static const renaming s_modules[] = {{"norm1.", "residual.0."},
                                         {"conv1.", "residual.2."},
                                         {"norm2.", "residual.3."},
                                         {"conv2.", "residual.6."},
                                         {"conv_shortcut.", "shortcut."}};
    for (size_t i = 0; i < sizeof s_modules / sizeof *s_modules; i++) {
        const char* end = after_prefix(suffix, s_modules[i].from);
        if (end != NULL) {
            *out_begin = s_modules[i].to;
            return end;
        }
    }
    *out_begin = ""; // layers that resample have the same names
    return suffix;
}

bool sumi_wan_alias(const sumi_qwen_vae* vae, sumi_wan_stage_name* stage_name, const char* canonical, char* out,
                    size_t out_bytes)
{
    static const renaming s_modules[] = {{"post_quant_conv.", "conv2."},
                                         {"quant_conv.", "conv1."},
                                         {"encoder.conv_in.", "encoder.conv1."},
                                         {"decoder.conv_in.", "decoder.conv1."},
                                         {"encoder.norm_out.", "encoder.head.0."},
                                         {"decoder.norm_out.", "decoder.head.0."},
                                         {"encoder.conv_out.", "encoder.head.2."},
                                         {"decoder.conv_out.", "decoder.head.2."},
                                         {"encoder.mid_block.attentions.0.", "encoder.middle.1."},
                                         {"decoder.mid_block.attentions.0.", "decoder.middle.1."}};
    const char *suffix = NULL, *block_prefix = "";
    char prefix[SUMI_WAN_PREFIX_BYTES];
    int block = 0, used = 0;
    for (size_t i = 0; i < sizeof s_modules / sizeof *s_modules && suffix == NULL; i++) {
        suffix = after_prefix(canonical, s_modules[i].from);
        if (suffix != NULL) snprintf(prefix, sizeof prefix, "%s", s_modules[i].to);
    }
    if (suffix == NULL) {
        const char* side = after_prefix(canonical, "encoder.") != NULL ? "encoder" : "decoder";
        const char* inner = canonical + strlen("encoder.");
        if (strncmp(canonical, side, strlen(side)) != 0) return false;
        if (sscanf(inner, "mid_block.resnets.%1d.%n", &block, &used) == 1 && used > 0) {
            snprintf(prefix, sizeof prefix, "%s.middle.%d.", side, 2 * block);
        } else {
            inner = stage_name(vae, side, inner, prefix);
            used = 0;
            if (inner == NULL) return false;
        }
        suffix = block_module(inner + used, &block_prefix);
    }
    int length = snprintf(out, out_bytes, "%s%s%s", prefix, block_prefix, suffix);
    return length >= 0 && (size_t)length < out_bytes;
}

// ---- Weights --------------------------------------------------------------------------------------------------------

// Binds a 3x3 convolution with its bias, over time or of single pictures. Returns its output channels, which the file
// determines if the given number is 0; later layers check them.
static int32_t bind_wan_conv(sumi_binder* b, sumi_weight* weight, sumi_weight* bias, const char* module,
                             sumi_conv_size size)
{
    char name[SUMI_NAME_BYTES];
    size.kernel = 3;
    if (size.out == 0) size.out = sumi_bind_size(b, sumi_bind_join(name, module, "weight"), 0);
    const sumi_tensor* tensor = sumi_bind_find(b, sumi_bind_join(name, module, "weight"));
    (tensor != NULL && tensor->rank == 4 ? sumi_bind_conv : sumi_bind_causal_conv)(b, weight, module, size);
    sumi_bind_vector(b, bias, sumi_bind_join(name, module, "bias"), size.out);
    return size.out;
}

int32_t sumi_wan_bind_resample(sumi_binder* b, sumi_vae_stage* stage, const char* module, int32_t in_channels)
{
    return bind_wan_conv(b, &stage->resample, &stage->resample_bias, module, (sumi_conv_size){.in = in_channels});
}

int32_t sumi_wan_bind_block(sumi_binder* b, sumi_vae_block* w, const char* module, int32_t in_channels)
{
    char name[SUMI_NAME_BYTES];
    sumi_bind_vector(b, &w->norm1, sumi_bind_join(name, module, "norm1.gamma"), in_channels);
    int32_t out_channels = bind_wan_conv(b, &w->conv1, &w->conv1_bias, sumi_bind_join(name, module, "conv1"),
                                         (sumi_conv_size){.in = in_channels});
    sumi_bind_vector(b, &w->norm2, sumi_bind_join(name, module, "norm2.gamma"), out_channels);
    bind_wan_conv(b, &w->conv2, &w->conv2_bias, sumi_bind_join(name, module, "conv2"),
                  (sumi_conv_size){.in = out_channels, .out = out_channels});
    w->has_shortcut = in_channels != out_channels;
    if (w->has_shortcut) {
        sumi_bind_linear(b, &w->shortcut, &w->shortcut_bias, sumi_bind_join(name, module, "conv_shortcut"),
                         out_channels, in_channels);
    }
    return out_channels;
}

static void bind_wan_middle(sumi_binder* b, sumi_vae_half* half, const char* side, int32_t channels)
{
    char module[SUMI_NAME_BYTES], name[SUMI_NAME_BYTES];
    for (int32_t i = 0; i < 2; i++) {
        snprintf(module, sizeof module, "%s.mid_block.resnets.%d", side, (int)i);
        if (sumi_wan_bind_block(b, &half->middle[i], module, channels) != channels) {
            sumi_bind_fail(b, SUMI_TENSOR_MISMATCH, "%s: the middle block of the VAE changes the number of channels",
                           b->component->path);
        }
    }
    snprintf(module, sizeof module, "%s.mid_block.attentions.0", side);
    sumi_bind_vector(b, &half->attention_norm, sumi_bind_join(name, module, "norm.gamma"), channels);
    sumi_bind_linear(b, &half->attention.qkv, &half->attention.qkv_bias, sumi_bind_join(name, module, "to_qkv"),
                     3 * channels, channels);
    sumi_bind_linear(b, &half->attention.out, &half->attention.out_bias, sumi_bind_join(name, module, "proj"), channels,
                     channels);
}

void sumi_wan_refuse_count(sumi_binder* b, const char* what, int32_t count, int32_t max_count)
{
    sumi_bind_fail(b, SUMI_NOT_SUPPORTED, "%s: the VAE has %d %s; 1 to %d are supported", b->component->path,
                   (int)count, what, (int)max_count);
}

static void bind_wan_decoder(sumi_qwen_vae* vae, sumi_binder* b, sumi_wan_bind_stages* bind_stages)
{
    sumi_vae_half* half = &vae->decoder;
    sumi_bind_linear(b, &half->quant, &half->quant_bias, "post_quant_conv", vae->channels, vae->channels);
    int32_t channels =
        bind_wan_conv(b, &half->conv_in, &half->conv_in_bias, "decoder.conv_in", (sumi_conv_size){.in = vae->channels});
    bind_wan_middle(b, half, "decoder", channels);
    channels = bind_stages(vae, b, half, channels);
    sumi_bind_vector(b, &half->norm_out, "decoder.norm_out.gamma", channels);
    bind_wan_conv(b, &half->conv_out, &half->conv_out_bias, "decoder.conv_out",
                  (sumi_conv_size){.in = channels, .out = vae->picture_channels});
    half->is_present = b->result == SUMI_OK;
}

static void bind_wan_encoder(sumi_qwen_vae* vae, sumi_binder* b, sumi_wan_bind_stages* bind_stages)
{
    sumi_vae_half* half = &vae->encoder;
    int32_t channels = bind_wan_conv(b, &half->conv_in, &half->conv_in_bias, "encoder.conv_in",
                                     (sumi_conv_size){.in = vae->picture_channels});
    channels = bind_stages(vae, b, half, channels);
    bind_wan_middle(b, half, "encoder", channels);
    sumi_bind_vector(b, &half->norm_out, "encoder.norm_out.gamma", channels);
    bind_wan_conv(b, &half->conv_out, &half->conv_out_bias, "encoder.conv_out",
                  (sumi_conv_size){.in = channels, .out = 2 * vae->channels});
    sumi_bind_linear(b, &half->quant, &half->quant_bias, "quant_conv", 2 * vae->channels, 2 * vae->channels);
    half->is_present = b->result == SUMI_OK;
}

void sumi_wan_bind_halves(sumi_qwen_vae* vae, sumi_binder* b, const sumi_wan_stages* stages, bool without_encoder)
{
    vae->tiles = (sumi_tile_rule){3, 4};
    vae->strip_bytes = STRIP_BYTES;
    vae->long_strip_bytes = LONG_STRIP_BYTES;
    bind_wan_decoder(vae, b, stages->decoder);
    vae->factor = sumi_vae_factor(&vae->decoder);
    if (!without_encoder && b->result == SUMI_OK && sumi_bind_has_prefix(b, "encoder.")) {
        bind_wan_encoder(vae, b, stages->encoder);
        if (b->result == SUMI_OK && sumi_vae_factor(&vae->encoder) != vae->factor) {
            sumi_bind_fail(b, SUMI_TENSOR_MISMATCH,
                           "%s: the VAE's encoder downsamples by %d, its decoder upsamples by %d", b->component->path,
                           (int)sumi_vae_factor(&vae->encoder), (int)vae->factor);
        }
    }
}

// Checks the widths of the stages of a half: the encoder's in the order of the config; the decoder's in reverse, with
// one block more.
static void check_wan_half(const sumi_vae_half* half, bool decodes, sumi_binder* b, const sumi_wan_config* c,
                           const char* path)
{
    if (c->factor_count > 0) sumi_bind_check(b, path, "the length of dim_mult", c->factor_count, half->stage_count);
    for (int32_t s = 0; s < half->stage_count && b->result == SUMI_OK; s++) {
        const sumi_vae_stage* stage = &half->stages[s];
        const int32_t stage_index = decodes ? half->stage_count - 1 - s : s;
        const bool is_own = decodes && c->decoder_base != c->encoder_base; // width
        char key[64];
        snprintf(key, sizeof key, "%sbase_dim times dim_mult[%d]", is_own ? "decoder_" : "", (int)stage_index);
        const int64_t base = decodes ? c->decoder_base : c->encoder_base,
                      config_width = c->factor_count > 0 ? base * c->factors[stage_index] : 0;
        sumi_bind_check(b, path, key, config_width > INT32_MAX || config_width < 0 ? -1 : (int32_t)config_width,
                        stage->blocks[stage->block_count - 1].conv2.rows);
        sumi_bind_check(b, path, "num_res_blocks", c->blocks, stage->block_count - (decodes ? 1 : 0));
    }
}

void sumi_wan_check_halves(const sumi_qwen_vae* vae, sumi_binder* b, const sumi_wan_config* values, const char* path)
{
    if (b->result == SUMI_OK) check_wan_half(&vae->decoder, true, b, values, path);
    if (b->result == SUMI_OK && vae->encoder.is_present) check_wan_half(&vae->encoder, false, b, values, path);
}

// ---- config.json ----------------------------------------------------------------------------------------------------

void sumi_wan_read_config(sumi_qwen_vae* vae, sumi_binder* b, const sumi_module_config* config, sumi_wan_config* values)
{
    double attention[8];
    const sumi_config_field fields[] = {
        {"latents_mean", SUMI_CONFIG_NUMBERS, values->mean, SUMI_QWEN_VAE_MAX_CHANNELS, &values->mean_count},
        {"latents_std", SUMI_CONFIG_NUMBERS, values->deviation, SUMI_QWEN_VAE_MAX_CHANNELS, &values->deviation_count},
        {"attn_scales", SUMI_CONFIG_NUMBERS, attention, 8, &values->attention_count},
        {"patch_size", SUMI_CONFIG_INTEGER, &values->patch, 0, NULL},
        {"is_residual", SUMI_CONFIG_BOOL, &values->is_residual, 0, NULL},
        {"sample_size", SUMI_CONFIG_INTEGER, &vae->sample_size, 0, NULL},
        {"z_dim", SUMI_CONFIG_INTEGER, &values->channels, 0, NULL},
        {"base_dim", SUMI_CONFIG_INTEGER, &values->encoder_base, 0, NULL},
        {"decoder_base_dim", SUMI_CONFIG_INTEGER, &values->decoder_base, 0, NULL},
        {"num_res_blocks", SUMI_CONFIG_INTEGER, &values->blocks, 0, NULL},
        {"dim_mult", SUMI_CONFIG_INTEGERS, values->factors, SUMI_VAE_MAX_STAGES, &values->factor_count}};
    b->result = sumi_config_read(config, fields, sizeof fields / sizeof *fields, b->error);
    if (values->decoder_base == 0) values->decoder_base = values->encoder_base;
}

void sumi_wan_bind_statistics(sumi_qwen_vae* vae, sumi_binder* b, const sumi_module_config* config,
                              const sumi_wan_config* values)
{
    vae->channels = sumi_bind_size(b, "post_quant_conv.weight", 0);
    sumi_bind_check(b, config->path, "z_dim", values->channels, vae->channels);
    if (b->result != SUMI_OK) return;
    const bool has_statistics = values->mean_count > 0 || values->deviation_count > 0;
    bool is_good = true;
    const double *from_mean = has_statistics ? values->mean : values->released_mean,
                 *from_deviation = has_statistics ? values->deviation : values->released_deviation;
    if (vae->channels > SUMI_QWEN_VAE_MAX_CHANNELS
        || (has_statistics ? values->mean_count != vae->channels || values->deviation_count != vae->channels
                           : vae->channels != values->released_count)) {
        sumi_bind_fail(
            b, SUMI_TENSOR_MISMATCH,
            "%s: the VAE has %d channels of latents, and %s latents_mean and latents_std; put the config.json "
            "that belongs to it beside it",
            config->data != NULL ? config->path : b->component->path, (int)vae->channels,
            has_statistics ? "its config.json has another number of" : "no config.json gives");
        return;
    }
    for (int32_t c = 0; c < vae->channels; c++) {
        vae->shift[c] = (float)from_mean[c];
        vae->scale[c] = 1.0f / (float)from_deviation[c];
        is_good = is_good && isfinite(vae->shift[c]) && from_deviation[c] > 0 && isfinite(vae->scale[c]);
    }
    if (!is_good)
        sumi_bind_fail(b, SUMI_FILE_MALFORMED, "%s: latents_mean must be finite and latents_std above 0", config->path);
}

// ---- Forward --------------------------------------------------------------------------------------------------------

// Memory. The pictures with the most pixels decide how much memory a plan needs, and one of them is enough, because a
// residual block works in place. The values between its input x and its result, n and h, exist for one strip of rows at
// a time. conv2 writes a strip of the result over x once nothing reads these rows of x any more. Rows [0, a) are done,
// [a, b) are next:
//
//             0         a-1    a+1        b+1   b+2
//   x         |rrrrrrrrrrrr|xxxxxxxxxxxxxxxxxxxxxxxxxx|     norm1, SiLU of rows [a, b + 2)                     -> n
//   h                 |hhhh|hhhhhhhhhhhhhhhh|               conv1 of n, norm2, SiLU: rows [a + 1, b + 1)       -> h
//   result                 |rrrrrrrrrrrr|                   conv2 of h's rows [a - 1, b + 1) + x               -> x
//
// The last two rows of h stay for the next strip, which finds all rows of x that it reads unchanged. A block with a
// shortcut writes over the shortcut's output instead of x.
//
// A stage with a shortcut keeps its input until its end, so its first block writes over nothing. The decoder's shortcut
// is as large as the upsampled picture, so it is written there, strip by strip, and the convolution adds to it. The
// encoder's is small, so it is made before the blocks, which then may write over their input.
//
// The last upsampling of the decoder makes the largest picture from one of half its bytes. The small picture is at the
// beginning of the same memory and is read from its end backwards. The memory begins some rows before the large
// picture, so that its first rows do not overwrite rows that are still read.
//
// A picture between two layers of the network.
typedef struct picture {
    sumi_value value;
    int32_t height, width;
    // the value whose memory it fills completely; otherwise none
    sumi_value base;
    uint64_t min_bytes;   // wan_min_bytes of the half
    uint64_t strip_bytes; // of the half's strips
} picture;

static picture first_picture(const sumi_vae_tiling* tiling, sumi_value value, int32_t height, int32_t width)
{
    const sumi_qwen_vae* vae = tiling->model;
    return (picture){.value = value,
                     .height = height,
                     .width = width,
                     .base = value,
                     .strip_bytes = tiling->long_strips ? vae->long_strip_bytes : vae->strip_bytes};
}

// The reference divides a pixel by max(its length, 1e-12) and multiplies by sqrt(channels). A mean square plus this
// epsilon gives the same unless the length is within a few times of 1e-12: above, the epsilon vanishes beside the mean
// square; below, it is everything, and zeros stay zeros.
static float eps_of(int32_t channels) { return 1e-24f / (float)channels; }

static sumi_value write_wan_norm(sumi_plan* plan, sumi_plan_norm_args norm)
{
    norm.eps = eps_of(norm.weight->cols);
    return sumi_plan_norm(plan, &norm);
}

static sumi_value write_wan_conv(sumi_plan* plan, const char* label, picture x, const sumi_weight* weight,
                                 const sumi_weight* bias)
{
    return sumi_plan_conv(plan, &(sumi_plan_conv_args){.label = label,
                                                       .x = x.value,
                                                       .weight = weight,
                                                       .bias = bias,
                                                       .shape = {.height = x.height, .width = x.width}});
}

// Rows of a strip: all rows if the block's memory then fits into the memory that the half needs anyway; otherwise as
// many as strip_bytes allow for n and for h, with all strips of about equal size.
static int32_t wan_strip_rows(const sumi_plan* plan, picture x, const sumi_vae_block* w)
{
    int32_t in = w->conv1.cols / 9, out = w->conv1.rows;
    uint64_t column = (uint64_t)x.width * sumi_plan_element_bytes(plan, SUMI_ELEMENT_ACTIVATION);
    uint64_t fit = x.strip_bytes / (column * (uint64_t)sumi_max_int(in, out)); // rows
    if (fit >= (uint64_t)x.height
        || (uint64_t)x.height * column * (uint64_t)sumi_max_int(2 * in + out, in + 2 * out) <= x.min_bytes)
        return x.height;
    int32_t rows = sumi_vae_strip_rows(x.height, fit);
    while (rows < x.height && x.height % rows != 0 && x.height % rows < LEAST_LAST_ROWS)
        rows += SUMI_VAE_STRIP_MULTIPLE;
    return sumi_min_int(rows, x.height);
}

// A residual block that is computed `rows` rows at a time.
typedef struct block_strips {
    picture x;
    int32_t rows;
    sumi_value residual, y; // each may be x
} block_strips;

// y = residual + conv2(silu(norm2(conv1(silu(norm1(x))))))
static void write_wan_strips(sumi_plan* plan, const sumi_vae_block* w, const block_strips* strips)
{
    const picture x = strips->x;
    const sumi_value residual = strips->residual, y = strips->y;
    const int32_t in = w->conv1.cols / 9, out = w->conv1.rows, width = x.width, height = x.height, rows = strips->rows;
    sumi_value n_base =
        sumi_plan_value(plan, "normed_strip", SUMI_ELEMENT_ACTIVATION, sumi_min_int(rows + 2, height) * width, in);
    sumi_value h_base = sumi_plan_value(plan, "conv_strip", SUMI_ELEMENT_ACTIVATION, (rows + 2) * width, out);
    sumi_value h = sumi_vae_rows(plan, h_base, width, 0, rows + 2);
    for (int32_t a = 0; a < height; a += rows) {
        int32_t b = sumi_min_int(a + rows, height), begin = a > 0 ? a + 1 : 0, end = sumi_min_int(b + 1, height),
                carried_rows = a > 0 ? 2 : 0,
                h_rows = carried_rows + end - begin; // rows of h: those of the previous strip, and all
        if (begin < end) {
            int32_t from = sumi_max_int(begin - 1, 0), to = sumi_min_int(end + 1, height);
            sumi_value n = sumi_vae_rows(plan, n_base, width, 0, to - from),
                       fresh = sumi_vae_rows(plan, h, width, carried_rows, h_rows);
            write_wan_norm(plan, (sumi_plan_norm_args){.label = "norm1",
                                                       .x = sumi_vae_rows(plan, x.value, width, from, to),
                                                       .weight = &w->norm1,
                                                       .silu = true,
                                                       .y = n});
            sumi_plan_conv(plan,
                           &(sumi_plan_conv_args){
                               .label = "conv1",
                               .x = n,
                               .weight = &w->conv1,
                               .bias = &w->conv1_bias,
                               .shape = {.height = to - from, .width = width, .above = begin - from, .below = to - end},
                               .y = fresh});
            write_wan_norm(plan, (sumi_plan_norm_args){
                                     .label = "norm2", .x = fresh, .weight = &w->norm2, .silu = true, .y = fresh});
        }
        const sumi_value into = sumi_vae_rows(plan, y, width, a, b),
                         added = residual.id == y.id ? into : sumi_vae_rows(plan, residual, width, a, b);
        sumi_plan_conv(plan, &(sumi_plan_conv_args){
                                 .label = "conv2",
                                 .x = sumi_vae_rows(plan, h, width, 0, h_rows),
                                 .weight = &w->conv2,
                                 .bias = &w->conv2_bias,
                                 .shape = {.height = h_rows, .width = width, .above = a > 0, .below = b < height},
                                 .residual = added,
                                 .y = into});
        if (b < height) {
            sumi_plan_copy_rows(
                plan, &(sumi_plan_copy_args){.x = h, .y = h, .x_row = (h_rows - 2) * width, .rows = 2 * width});
        }
    }
}

// y = shortcut(x) + conv2(silu(norm2(conv1(silu(norm1(x)))))). keeps_x: x is read later.
static picture write_wan_block(sumi_plan* plan, const sumi_vae_block* w, picture x, bool keeps_x)
{
    int32_t rows = wan_strip_rows(plan, x, w);
    const bool is_new = keeps_x && !w->has_shortcut;
    picture y = x;
    if (w->has_shortcut) {
        y.base = y.value = sumi_plan_linear(
            plan, &(sumi_plan_linear_args){
                      .label = "shortcut", .x = x.value, .weight = &w->shortcut, .bias = &w->shortcut_bias}); // 1x1
    }
    if (rows < x.height) {
        if (is_new)
            y.base = y.value =
                sumi_plan_value(plan, "block", SUMI_ELEMENT_ACTIVATION, x.height * x.width, w->conv2.rows);
        // a picture written in strips must be read in strips, so both are cut from one view
        if (y.base.id == y.value.id) y.value = sumi_vae_rows(plan, y.base, y.width, 0, y.height);
        if (!w->has_shortcut && !is_new) x = y;
        write_wan_strips(plan, w, &(block_strips){x, rows, is_new ? x.value : y.value, y.value});
        return y;
    }
    picture h = x;
    h.value =
        write_wan_norm(plan, (sumi_plan_norm_args){.label = "norm1", .x = x.value, .weight = &w->norm1, .silu = true});
    h.value = write_wan_conv(plan, "conv1", h, &w->conv1, &w->conv1_bias);
    write_wan_norm(
        plan, (sumi_plan_norm_args){.label = "norm2", .x = h.value, .weight = &w->norm2, .silu = true, .y = h.value});
    const sumi_value written =
        sumi_plan_conv(plan, &(sumi_plan_conv_args){.label = "conv2",
                                                    .x = h.value,
                                                    .weight = &w->conv2,
                                                    .bias = &w->conv2_bias,
                                                    .shape = {.height = x.height, .width = x.width},
                                                    .residual = y.value,
                                                    .y = is_new ? SUMI_NO_VALUE : y.value});
    if (is_new) y.base = y.value = written;
    return y;
}

// Whether the shortcut of an encoder's stage is the stage's input itself.
static bool is_identity(const sumi_vae_stage* stage)
{
    return stage->shortcut_frames == 1 && !stage->resamples
        && stage->blocks[0].conv1.cols / 9 == stage->blocks[stage->block_count - 1].conv2.rows;
}

// The blocks of stage `index` of a half, without what resamples.
static picture write_stage(const sumi_qwen_vae* vae, sumi_plan* plan, const sumi_vae_half* half, int32_t index,
                           picture x)
{
    const sumi_vae_stage* stage = &half->stages[index];
    const bool decodes = half == &vae->decoder;
    const bool keeps_x = decodes ? stage->shortcut_frames > 0 : is_identity(stage);
    const char* side = decodes ? "decoder" : "encoder";
    for (int32_t i = 0; i < stage->block_count; i++) {
        sumi_plan_prefix(plan, "%s.%d.%d.", side, (int)index, (int)i);
        x = write_wan_block(plan, &stage->blocks[i], x, keeps_x && i == 0);
    }
    sumi_plan_prefix(plan, "%s.%d.", side, (int)index);
    return x;
}

// Residual block, attention over all pixels with one head as wide as the channels, residual block.
static picture write_wan_middle(sumi_plan* plan, const sumi_vae_half* half, picture x, const char* side)
{
    sumi_plan_prefix(plan, "%s.mid.0.", side);
    x = write_wan_block(plan, &half->middle[0], x, false);
    sumi_plan_prefix(plan, "%s.mid.attention.", side);
    sumi_value n =
        write_wan_norm(plan, (sumi_plan_norm_args){.label = "norm", .x = x.value, .weight = &half->attention_norm});
    sumi_vae_attention_write(&half->attention, plan, n, x.value, x.height * x.width);
    sumi_plan_prefix(plan, "%s.mid.1.", side);
    return write_wan_block(plan, &half->middle[1], x, false);
}

// Norm, SiLU, convolution. The norm works in place: the convolution to three channels reads a whole picture, and x is
// not read after it.
static sumi_value write_wan_end(sumi_plan* plan, const sumi_vae_half* half, picture x, const char* side)
{
    sumi_plan_prefix(plan, "%s.", side);
    write_wan_norm(plan, (sumi_plan_norm_args){
                             .label = "norm_out", .x = x.value, .weight = &half->norm_out, .silu = true, .y = x.value});
    return write_wan_conv(plan, "conv_out", x, &half->conv_out, &half->conv_out_bias);
}

// Nearest 2x and a convolution, plus the shortcut from the stage's input `first`, if there is one.
static picture write_wan_upsample(sumi_plan* plan, const sumi_vae_stage* stage, picture x, sumi_value first)
{
    uint64_t element = sumi_plan_element_bytes(plan, SUMI_ELEMENT_ACTIVATION);
    int32_t in = stage->resample.cols / 9, out = stage->resample.rows;
    picture y = {.height = 2 * x.height, .width = 2 * x.width, .min_bytes = x.min_bytes, .strip_bytes = x.strip_bytes};
    sumi_vae_growth growth = {.height = x.height,
                              .small_row = (uint64_t)x.width * (uint64_t)in * element,
                              .large_row = (uint64_t)y.width * (uint64_t)out * element};
    growth.spare_rows =
        (int32_t)(((SUMI_VAE_STRIP_MULTIPLE + 1) * growth.small_row + growth.large_row - 1) / growth.large_row);
    const sumi_value source = stage->shortcut_frames > 0 ? first : SUMI_NO_VALUE;
    const uint64_t source_bytes = source.id != 0 ? (uint64_t)sumi_plan_value_bytes(plan, source) : 0;
    bool grows =
        (uint64_t)x.height * growth.small_row + (uint64_t)y.height * growth.large_row + source_bytes > x.min_bytes
        && x.base.id != 0 && x.height > SUMI_VAE_STRIP_MULTIPLE && sumi_vae_can_grow(&growth);
    sumi_vae_upsampling upsampling = {
        .x = x.value, .height = x.height, .width = x.width, .shortcut = source, .frames = stage->shortcut_frames};
    if (!grows) {
        y.base = y.value = sumi_vae_upsample_whole(stage, plan, &upsampling);
        return y;
    }
    sumi_value shared_block =
        sumi_plan_value(plan, "shared_block", SUMI_ELEMENT_ACTIVATION, (growth.spare_rows + y.height) * y.width, out);
    sumi_plan_share(plan, x.base, shared_block);
    y.value = sumi_vae_rows(plan, shared_block, y.width, growth.spare_rows, growth.spare_rows + y.height);
    upsampling.y = y.value;
    upsampling.growth = &growth;
    sumi_vae_upsample_write(stage, plan, &upsampling);
    return y;
}

// Bytes of the picture with the most pixels, which is needed in any case, with the one that a block makes of it beside
// it if these differ in their channels.
static uint64_t wan_min_bytes(const sumi_plan* plan, const sumi_vae_stage* stage, int32_t height, int32_t width)
{
    const sumi_vae_block* w = &stage->blocks[0];
    const int32_t channels = w->conv1.cols / 9 + (w->has_shortcut ? w->conv1.rows : 0);
    return (uint64_t)height * (uint64_t)width * (uint64_t)channels
         * sumi_plan_element_bytes(plan, SUMI_ELEMENT_ACTIVATION);
}

static sumi_value decode_wan_tile(const sumi_vae_tiling* tiling, sumi_plan* plan, sumi_value latents, int32_t height,
                                  int32_t width)
{
    const sumi_qwen_vae* vae = tiling->model;
    const sumi_vae_half* half = &vae->decoder;
    SUMI_ASSERT(half->is_present);
    const sumi_value z = sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = "post_quant", .x = latents, .weight = &half->quant, .bias = &half->quant_bias});
    picture x = first_picture(tiling, z, height, width);
    x.min_bytes = wan_min_bytes(plan, &half->stages[half->stage_count - 1], height * vae->factor, width * vae->factor);
    x.base = x.value = write_wan_conv(plan, "conv_in", x, &half->conv_in, &half->conv_in_bias);
    x = write_wan_middle(plan, half, x, "decoder");
    for (int32_t s = 0; s < half->stage_count; s++) {
        const sumi_value first = x.value;
        x = write_stage(vae, plan, half, s, x);
        if (half->stages[s].resamples) x = write_wan_upsample(plan, &half->stages[s], x, first);
    }
    return write_wan_end(plan, half, x, "decoder");
}

// The shortcut of a stage of the encoder from its input x to its end; none if it has none.
static sumi_value write_down_shortcut(sumi_plan* plan, const sumi_vae_stage* stage, picture x)
{
    if (stage->shortcut_frames == 0) return SUMI_NO_VALUE;
    if (is_identity(stage)) return x.value;
    return sumi_plan_shortcut(
        plan,
        &(sumi_plan_shortcut_args){
            .label = "shortcut",
            .x = x.value,
            .shape = {.width = x.width, .frames = stage->shortcut_frames, .scale = stage->resamples ? 2 : 1},
            .channels = stage->resamples ? stage->resample.rows : stage->blocks[stage->block_count - 1].conv2.rows});
}

static sumi_value encode_wan_tile(const sumi_vae_tiling* tiling, sumi_plan* plan, sumi_value pixels, int32_t height,
                                  int32_t width)
{
    const sumi_qwen_vae* vae = tiling->model;
    const sumi_vae_half* half = &vae->encoder;
    SUMI_ASSERT(half->is_present);
    picture x = first_picture(tiling, pixels, height, width);
    x.min_bytes = wan_min_bytes(plan, &half->stages[0], height, width);
    x.base = x.value = write_wan_conv(plan, "conv_in", x, &half->conv_in, &half->conv_in_bias);
    for (int32_t s = 0; s < half->stage_count; s++) {
        const sumi_vae_stage* stage = &half->stages[s];
        sumi_plan_prefix(plan, "encoder.%d.", (int)s);
        const sumi_value shortcut = write_down_shortcut(plan, stage, x);
        x = write_stage(vae, plan, half, s, x);
        if (stage->resamples) {
            sumi_value half_size = sumi_plan_conv(
                plan,
                &(sumi_plan_conv_args){.label = "downsample",
                                       .x = x.value,
                                       .weight = &stage->resample,
                                       .bias = &stage->resample_bias,
                                       .shape = {.height = x.height, .width = x.width, .stride = 2, .pads_end = true},
                                       .residual = shortcut,
                                       .y = shortcut});
            x.value = x.base = half_size;
            x.height /= 2;
            x.width /= 2;
        } else if (shortcut.id != 0) {
            sumi_plan_add_rows(
                plan, &(sumi_plan_add_rows_args){.label = "add_shortcut", .x = shortcut, .y = x.value, .scale = 1.0f});
        }
    }
    x = write_wan_middle(plan, half, x, "encoder");
    sumi_value moments = write_wan_end(plan, half, x, "encoder");
    return sumi_plan_linear(
        plan,
        &(sumi_plan_linear_args){.label = "quant", .x = moments, .weight = &half->quant, .bias = &half->quant_bias});
}

// ---- The network module ---------------------------------------------------------------------------------------------

sumi_autoencoder_properties sumi_wan_properties(const void* model)
{
    const sumi_qwen_vae* vae = model;
    return (sumi_autoencoder_properties){.channels = vae->channels,
                                         .factor = vae->factor,
                                         .packing = 1,
                                         .picture_channels = vae->picture_channels,
                                         .sample_size = vae->sample_size,
                                         .has_encoder = vae->encoder.is_present,
                                         .has_decoder = vae->decoder.is_present,
                                         .has_long_strips = true};
}

sumi_vae_tiling sumi_wan_tiling(const void* model)
{
    const sumi_qwen_vae* vae = model;
    return (sumi_vae_tiling){.rule = vae->tiles,
                             .channels = vae->channels,
                             .factor = vae->factor,
                             .packing = 1,
                             .picture_channels = vae->picture_channels,
                             .statistics = {vae->scale, vae->shift, vae->channels},
                             .model = vae,
                             .decode = decode_wan_tile,
                             .encode = encode_wan_tile};
}
