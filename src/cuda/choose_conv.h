// Which kernels compute a convolution, and whether they apply a norm to the result before they store it. A plan is
// arranged (arrange.h) and launched (launch_pictures.c) by the same answers.
#ifndef SUMI_CUDA_CHOOSE_CONV_H
#define SUMI_CUDA_CHOOSE_CONV_H
#include "cuda/device.h"
#include "plan/plan.h"

typedef struct sumi_cuda_conv_shape {
    int32_t height, width; // of the input as it is stored
    // Of the pixels that tiles cover: of the output, or of the input if upsampling is folded into the weights.
    int32_t tile_height, tile_width;
    int32_t in, padded, out;               // channels; padded: `in` rounded up to 8, like the weights
    int32_t kernel, stride, pad, parities; // as the kernels see them: with four parities the kernel is 2 taps wide
    int32_t above;                         // rows of the input above the strip
    int32_t x_pitch, y_pitch;              // elements from pixel to pixel
    bool upsamples_plain;                  // an upsampled 1x1 convolution
} sumi_cuda_conv_shape;
// Whether a view begins at a multiple of 16 bytes.
bool sumi_cuda_begins_aligned(const sumi_plan* plan, sumi_value value);
sumi_cuda_conv_shape sumi_cuda_conv_shape_of(const sumi_plan* plan, const sumi_op* op);

// HALO and HOPPER: the kernels of conv_halo_sm90.cu and conv_sm90.cu.
typedef enum sumi_cuda_conv_kind {
    SUMI_CUDA_CONV_NARROW,
    SUMI_CUDA_CONV_HALO,
    SUMI_CUDA_CONV_HOPPER,
    SUMI_CUDA_CONV_PORTABLE,
    SUMI_CUDA_CONV_ANY
} sumi_cuda_conv_kind;
// Depends on the shape of the whole op, never on the slice. Reads no offsets of values, which plans have later.
sumi_cuda_conv_kind sumi_cuda_choose_conv(const sumi_cuda_device* device, const sumi_plan* plan, const sumi_op* op,
                                          const sumi_cuda_conv_shape* shape, bool allows_hopper);

// The channels of a k-block of the kernels of conv_halo_sm90.cu, 64 or 96, which determine the order of sums; 0: there
// are none for these channels. It depends on channels alone, so strips and tiles of a picture have the bits of the whole.
int32_t sumi_cuda_conv_halo_channels(const sumi_cuda_conv_shape* shape);
// Bytes of shared memory of the kernel of conv_narrow.cu.
int32_t sumi_cuda_conv_narrow_shared(const sumi_cuda_conv_shape* shape);
// Whether a kernel of conv_halo_sm90.cu writes silu(norm(y)) in place of this convolution's y.
bool sumi_cuda_conv_takes_norm(const sumi_cuda_device* device, const sumi_plan* plan, const sumi_op* op,
                               bool allows_hopper);
#endif
