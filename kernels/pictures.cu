// Both ends of an image's path through the device: 8-bit pixels in and out, blending of neighbouring tiles, and copies
// of tiles into the image; and the shortcuts of an autoencoder, which move pixels too. All kernels are bound by bytes. Sizes and grids: pictures.h.
#include "common.cuh"
#include "pictures.h"

SUMI_DEVICE int64_t thread_index() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
SUMI_DEVICE int64_t thread_count() { return (int64_t)gridDim.x * blockDim.x; }

// y = byte / 255 * 2 - 1, times the fourth byte / 255 if there is one that does not become a channel
extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_pixels_in(const __grid_constant__ sumi_pixels_in_args args)
{
    const uint8_t* bytes =
        (const uint8_t*)args.bytes + (args.per_item ? *(const int32_t*)args.counter * args.item_rows * args.cols : 0);
    const int64_t begin = (int64_t)args.row_begin * args.channels, end = (int64_t)args.row_end * args.channels;
    for (int64_t i = begin + thread_index(); i < end; i += thread_count()) {
        const int row = (int)(i / args.channels), channel = (int)(i - (int64_t)row * args.channels);
        const int64_t pixel =
            (int64_t)(args.top + row / args.width) * args.picture_width + args.left + row % args.width;
        const float opacity = args.cols > args.channels ? (float)bytes[pixel * 4 + 3] / 255.0f : 1.0f;
        ((bf16*)args.y)[i] =
            __float2bfloat16_rn(((float)bytes[pixel * args.cols + channel] / 255.0f * 2.0f - 1.0f) * opacity);
    }
}

// y = (byte / 255 - mean) / deviation. The columns of y are (channel, frame, y, x). A thread writes its value into
// every frame. The rows of y are patches. Those of a cell are neighbours, so row % cell_patches is the patch in its
// cell.
extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_patches_in(const __grid_constant__ sumi_patches_in_args args)
{
    const int patch_pixels = args.patch * args.patch, cell_patches = args.cell * args.cell;
    const int64_t count = (int64_t)(args.row_end - args.row_begin) * 3 * patch_pixels;
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const int row = args.row_begin + (int)(i / (3 * patch_pixels)), column = (int)(i % (3 * patch_pixels)),
                  channel = column / patch_pixels, patch_pixel = column - channel * patch_pixels,
                  cell_patch = row % cell_patches, cell = ((const int32_t*)args.cells)[row / cell_patches];
        const bool is_known = cell >= 0 && cell < args.cell_count;
        const int read_cell = is_known ? cell : 0;
        const int y = (read_cell / args.cells_across * args.cell + cell_patch / args.cell) * args.patch
                    + patch_pixel / args.patch,
                  x = (read_cell % args.cells_across * args.cell + cell_patch % args.cell) * args.patch
                    + patch_pixel % args.patch;
        const float byte = (float)((const uint8_t*)args.bytes)[((int64_t)y * args.width + x) * 3 + channel];
        const bf16 value = __float2bfloat16_rn(is_known ? (byte / 255.0f - args.mean[channel]) / args.deviation[channel]
                                                        : __int_as_float(0x7fffffff));
        bf16* features = (bf16*)args.y + ((int64_t)row * 3 + channel) * args.frames * patch_pixels + patch_pixel;
        for (int frame = 0; frame < args.frames; frame++) features[(int64_t)frame * patch_pixels] = value;
    }
}

// The byte of a value in [-1, 1]. Adds 1 to not_finite if v is not finite.
SUMI_DEVICE uint32_t to_byte(float v, int& not_finite)
{
    not_finite += !isfinite(v);
    return (uint32_t)__float2int_rn(__saturatef(v * 0.5f + 0.5f) * 255.0f); // NaN becomes 0
}

// x where the opacity is 255, otherwise b + opacity / 255 (x - b), with b = beneath / 127.5 - 1. In bf16, b is close
// enough that sumi_pixels_out returns the same byte: the error of b is at most 1/512, a quarter of a byte's step.
extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_composite(const __grid_constant__ sumi_composite_args args)
{
    for (int64_t row = args.row_begin + thread_index(); row < args.row_end; row += thread_count()) {
        const int64_t pixel = row % args.rows;
        const uint32_t opacity = ((const uint8_t*)args.opacity)[pixel];
        if (opacity == 255) continue;
        bf16* x = (bf16*)args.pictures + args.cols * row;
        const uint8_t* beneath = (const uint8_t*)args.beneath + args.cols * pixel;
        const float weight = (float)opacity / 255.0f;
        float colour_weight = weight;
        if (args.cols == 4) { // colours count by their alpha
            const float over = weight * __saturatef(__bfloat162float(x[3]) * 0.5f + 0.5f),
                        under = (1.0f - weight) * ((float)beneath[3] / 255.0f);
            if (over + under > 0.0f) colour_weight = over / (over + under);
        }
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (c == args.cols) break;
            const float b = (float)beneath[c] / 127.5f - 1.0f;
            x[c] = __float2bfloat16(opacity == 0 ? b
                                                 : fmaf(c < 3 ? colour_weight : weight, __bfloat162float(x[c]) - b, b));
        }
    }
}

// byte = round(clamp(x / 2 + 1 / 2) * 255). The count is an integer, so the order in which blocks add to it does not
// matter.
extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_pixels_out(const __grid_constant__ sumi_pixels_out_args args)
{
    const bf16* x = (const bf16*)args.x;
    uint8_t* bytes = (uint8_t*)args.bytes;
    int not_finite = 0;
    for (int64_t i = args.begin + thread_index() * SUMI_PICTURES_VALUES; i < args.end;
         i += thread_count() * SUMI_PICTURES_VALUES) {
        if (i + SUMI_PICTURES_VALUES <= args.end) {
            float v[8];
            load8(x + i, v);
            uint32_t byte[8];
#pragma unroll
            for (int k = 0; k < 8; k++) byte[k] = to_byte(v[k], not_finite);
            *(uint2*)(bytes + i) = make_uint2(byte[0] | byte[1] << 8 | byte[2] << 16 | byte[3] << 24,
                                              byte[4] | byte[5] << 8 | byte[6] << 16 | byte[7] << 24);
        } else {
            for (int64_t k = i; k < args.end; k++) bytes[k] = (uint8_t)to_byte(__bfloat162float(x[k]), not_finite);
        }
    }
    if (args.not_finite && not_finite > 0) atomicAdd((int32_t*)args.not_finite, not_finite);
}

// The values equal those that the CPU computes from bytes and bf16 when a host program fetches the image.
extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_pixels_to(const __grid_constant__ sumi_pixels_to_args args)
{
    const int x = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (x >= args.width) return;
    const int64_t pixel = (int64_t)blockIdx.y * args.width + x;
    uint8_t* row = (uint8_t*)args.to + blockIdx.y * args.pitch;
    const bool has_alpha = args.channels == 4;
    if (args.format == SUMI_PIXELS_RGB32F) {
        const bf16* from = (const bf16*)args.from + args.channels * pixel;
        for (int c = 0; c < 3; c++) ((float*)row)[3 * x + c] = __bfloat162float(from[c]) * 0.5f + 0.5f;
        return;
    }
    if (args.format == SUMI_PIXELS_RGBA16F) {
        const bf16* from = (const bf16*)args.from + args.channels * pixel;
        const float alpha = has_alpha ? __saturatef(__bfloat162float(from[3]) * 0.5f + 0.5f) : 1.0f;
        uint16_t half[4];
        for (int c = 0; c < 4; c++)
            asm("cvt.rn.f16.f32 %0, %1;"
                : "=h"(half[c])
                : "f"(c < 3 ? __bfloat162float(from[c]) * 0.5f + 0.5f : alpha));
        ((uint32_t*)row)[2 * x] = half[0] | (uint32_t)half[1] << 16;
        ((uint32_t*)row)[2 * x + 1] = half[2] | (uint32_t)half[3] << 16;
        return;
    }
    const uint8_t* from = (const uint8_t*)args.from + args.channels * pixel;
    const uint32_t red = from[0], green = from[1], blue = from[2], alpha = has_alpha ? from[3] : 255u;
    if (args.format == SUMI_PIXELS_RGBA8) ((uint32_t*)row)[x] = red | green << 8 | blue << 16 | alpha << 24;
    else if (args.format == SUMI_PIXELS_BGRA8) ((uint32_t*)row)[x] = blue | green << 8 | red << 16 | alpha << 24;
    else row[3 * x] = (uint8_t)red, row[3 * x + 1] = (uint8_t)green, row[3 * x + 2] = (uint8_t)blue;
}

// Channel o of pixel (y, x) of the result of a shortcut: ops.h has the formula.
SUMI_DEVICE bf16 copied_up(const sumi_shortcut_args& args, const bf16* from, int o, int parity)
{
    return from[((o * args.frames + args.frames - 1) * 4 + parity) / args.size];
}

SUMI_DEVICE bf16 averaged_down(const sumi_shortcut_args& args, const bf16* from, int o)
{
    const int area = args.scale * args.scale;
    float sum = 0.0f;
    for (int i = o * args.size; i < (o + 1) * args.size; i++) {
        const int slice = i / area, channel = slice / args.frames, pixel = i - slice * area;
        if (slice - channel * args.frames == args.frames - 1)
            sum += __bfloat162float(
                from[((int64_t)(pixel / args.scale) * args.width + pixel % args.scale) * args.in_channels + channel]);
    }
    return __float2bfloat16_rn(sum / (float)args.size);
}

template <int VECTOR> SUMI_DEVICE void write_shortcut(const sumi_shortcut_args& args)
{
    const int vectors = args.out_channels / VECTOR, width = args.upsamples ? 2 * args.width : args.width / args.scale;
    const int64_t count = (int64_t)(args.row_end - args.row_begin) * vectors;
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const int row = args.row_begin + (int)(i / vectors), first = (int)(i % vectors) * VECTOR, y = row / width,
                  x = row - y * width;
        const int64_t pixel = args.upsamples ? (int64_t)(y / 2) * args.width + x / 2
                                             : (int64_t)y * args.scale * args.width + x * args.scale;
        const bf16* from = (const bf16*)args.x + pixel * args.in_channels;
        alignas(2 * VECTOR) bf16 values[VECTOR];
#pragma unroll
        for (int k = 0; k < VECTOR; k++)
            values[k] = args.upsamples ? copied_up(args, from, first + k, y % 2 * 2 + x % 2)
                                       : averaged_down(args, from, first + k);
        bf16* to = (bf16*)args.y + (int64_t)row * args.out_channels + first;
        if (VECTOR == 8) *(uint4*)to = *(const uint4*)values;
        else *to = values[0];
    }
}

extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_shortcut(const __grid_constant__ sumi_shortcut_args args)
{
    if (args.vector == 8) write_shortcut<8>(args);
    else write_shortcut<1>(args);
}

// The copy of sumi_tile_place, with elements of 16, 4 or 2 bytes.
template <class Element> SUMI_DEVICE void copy_tile(const sumi_tile_place_args& args)
{
    const Element* tile = (const Element*)args.tile;
    Element* picture = (Element*)args.picture + (args.per_item ? *(const int32_t*)args.counter * args.item_elements : 0)
                     + args.picture_first;
    const int64_t count = (int64_t)(args.row_end - args.row_begin) * args.row_elements;
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const int64_t row = args.row_begin + i / args.row_elements, column = i % args.row_elements;
        picture[row * args.picture_pitch + column] = tile[row * args.tile_pitch + column];
    }
}

extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_tile_place(const __grid_constant__ sumi_tile_place_args args)
{
    if (args.element_bytes == 16) copy_tile<uint4>(args);
    else if (args.element_bytes == 4) copy_tile<uint32_t>(args);
    else copy_tile<uint16_t>(args);
}

// tile[i] = neighbour[i] (1 - i / count) + tile[i] (i / count), for the tile's first `count` rows or columns and the
// neighbouring tile's last `count`: first the rows with the tile above, then the columns with the tile to the left. A
// value depends on itself and the neighbouring tiles only, so both are computed in one pass. It is rounded once. Only
// the pixels of these rows, and below them of these columns, are visited.
template <class Element> SUMI_DEVICE void blend_tile(const sumi_tile_blend_args& args)
{
    Element* tile = (Element*)args.tile;
    const int64_t upper_pixels = (int64_t)args.above_count * args.width,
                  pixels = upper_pixels + (int64_t)(args.height - args.above_count) * args.left_count;
    for (int64_t i = thread_index(); i < pixels * args.channels; i += thread_count()) {
        const int64_t pixel = i / args.channels;
        const int c = (int)(i % args.channels);
        const bool is_upper = pixel < upper_pixels;
        const int y =
            (int)(is_upper ? pixel / args.width : args.above_count + (pixel - upper_pixels) / args.left_count);
        const int x = (int)(is_upper ? pixel % args.width : (pixel - upper_pixels) % args.left_count);
        Element* to = tile + ((int64_t)y * args.width + x) * args.channels + c;
        float v = to_float(*to);
        if (y < args.above_count) {
            const double weight = (double)y / (double)args.above_count;
            const int64_t from =
                ((int64_t)(args.above_height - args.above_count + y) * args.width + x) * args.channels + c;
            v = to_float(((const Element*)args.above)[from]) * (float)(1.0 - weight) + v * (float)weight;
        }
        if (x < args.left_count) {
            const double weight = (double)x / (double)args.left_count;
            const int64_t from =
                ((int64_t)y * args.left_width + args.left_width - args.left_count + x) * args.channels + c;
            v = to_float(((const Element*)args.left)[from]) * (float)(1.0 - weight) + v * (float)weight;
        }
        assign(*to, v);
    }
}

extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_tile_blend(const __grid_constant__ sumi_tile_blend_args args)
{
    if (args.is_float) blend_tile<float>(args);
    else blend_tile<bf16>(args);
}
