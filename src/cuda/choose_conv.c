// See choose_conv.h.
#include "cuda/choose_conv.h"
#include "kernels/conv.h"

sumi_cuda_conv_shape sumi_cuda_conv_shape_of(const sumi_plan* plan, const sumi_op* op)
{
    sumi_cuda_conv_shape s = {.height = op->u.conv.height,
                              .width = op->u.conv.width,
                              .kernel = op->u.conv.kernel,
                              .stride = op->u.conv.stride,
                              .parities = 1};
    bool folds = op->u.conv.upsamples && s.kernel == 3;
    int32_t scale = op->u.conv.upsamples && !folds ? 2 : 1;
    s.in = sumi_plan_info(plan, op->in[0])->cols;
    s.x_pitch = sumi_plan_info(plan, op->in[0])->pitch;
    s.y_pitch = sumi_plan_info(plan, op->out)->pitch;
    s.above = op->u.conv.above;
    s.padded = (s.in + 7) / 8 * 8;
    s.out = op->weight->rows;
    s.pad = op->u.conv.pads_end ? 0 : s.kernel / 2;
    s.upsamples_plain = scale == 2;
    if (folds) {
        s.kernel = 2;
        s.parities = 4;
    }
    s.tile_height = (s.height - s.above - op->u.conv.below) * scale / s.stride;
    s.tile_width = s.width * scale / s.stride;
    return s;
}

bool sumi_cuda_begins_aligned(const sumi_plan* plan, sumi_value value)
{
    return sumi_plan_info(plan, value)->base_element % 8 == 0;
}

int32_t sumi_cuda_conv_halo_channels(const sumi_cuda_conv_shape* s)
{
    if (s->out % 192 == 0 && s->in % 64 == 0) return 64;
    if (s->out % 96 == 0 && s->in % 96 == 0) return 96;
    if (s->out == 144 && s->in % 48 == 0 && s->in >= 96) return 96;
    return (s->out % 96 == 0 || s->out % 128 == 0) && s->in % 64 == 0 ? 64 : 0;
}

int32_t sumi_cuda_conv_narrow_shared(const sumi_cuda_conv_shape* s)
{
    return s->out == 4 ? SUMI_CONV_NARROW_O4_SHARED(s->in) : SUMI_CONV_NARROW_SHARED(s->in);
}

sumi_cuda_conv_kind sumi_cuda_choose_conv(const sumi_cuda_device* device, const sumi_plan* plan, const sumi_op* op,
                                          const sumi_cuda_conv_shape* s, bool allows_hopper)
{
    bool is_strip = op->u.conv.above + op->u.conv.below > 0;
    if (s->kernel == 3 && s->stride == 1 && s->pad == 1 && s->out <= 4 && !is_strip && s->y_pitch == s->out
        && s->x_pitch % 8 == 0 && s->in % (s->out == 4 ? 16 : 32) == 0 && s->in <= SUMI_CONV_NARROW_MAX_CHANNELS
        && sumi_cuda_conv_narrow_shared(s) <= device->shared_per_block)
        return SUMI_CUDA_CONV_NARROW;
    // a padded copy can be made only of tightly packed pixels
    bool is_even = s->out % 8 == 0 && s->y_pitch % 8 == 0
                && (s->in % 8 == 0 ? s->x_pitch % 8 == 0 : s->x_pitch == s->in && !is_strip);
    if (!is_even || s->upsamples_plain || !sumi_cuda_begins_aligned(plan, op->in[0])
        || !sumi_cuda_begins_aligned(plan, op->out))
        return SUMI_CUDA_CONV_ANY;
    // With stride 2 the kernel reads pairs of rows and columns. Pictures smaller than a patch are computed by the
    // portable kernels.
    bool fits = s->stride == 1 ? s->pad == s->kernel / 2 || s->parities == 4
                               : s->kernel == 3 && s->pad == 0 && s->height % 2 == 0 && s->width % 2 == 0;
    if (!sumi_cuda_has_hopper(device, allows_hopper) || op->bias == NULL || !fits || s->tile_width < 16
        || s->tile_height < 8)
        return SUMI_CUDA_CONV_PORTABLE;
    bool has_halo = s->parities == 4 ? op->in[1].id == 0 || s->out % 96 == 0 : s->kernel == 3 && s->stride == 1;
    return has_halo && sumi_cuda_conv_halo_channels(s) != 0 ? SUMI_CUDA_CONV_HALO : SUMI_CUDA_CONV_HOPPER;
}

// Whether a tile of the kernels of conv_halo_sm90.cu with a norm has all output channels.
static bool has_norm_tile(const sumi_cuda_conv_shape* s)
{
    return (s->out == 96 && s->in % 96 == 0) || (s->out == 192 && s->in % 64 == 0);
}

bool sumi_cuda_conv_takes_norm(const sumi_cuda_device* device, const sumi_plan* plan, const sumi_op* op,
                               bool allows_hopper)
{
    const sumi_cuda_conv_shape s = sumi_cuda_conv_shape_of(plan, op);
    return op->in[1].id == 0 && s.parities == 1 && has_norm_tile(&s)
        && sumi_cuda_choose_conv(device, plan, op, &s, allows_hopper) == SUMI_CUDA_CONV_HALO;
}
