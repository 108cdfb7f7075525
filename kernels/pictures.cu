// Both ends of an image's path through the device: 8-bit pixels in and out, blending of neighbouring tiles, and copies
// of tiles into the image. All kernels are bound by bytes. Sizes and grids: pictures.h.
#include "common.cuh"
#include "pictures.h"

SUMI_DEVICE int64_t thread_index() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
SUMI_DEVICE int64_t thread_count() { return (int64_t)gridDim.x * blockDim.x; }

// y = byte / 255 * 2 - 1
extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_pixels_in(const __grid_constant__ sumi_pixels_in_args a)
{
    const uint8_t* bytes = (const uint8_t*)a.bytes + (a.per_item ? *(const int32_t*)a.counter * a.item_rows * 3 : 0);
    const int64_t begin = (int64_t)a.row_begin * 3, end = (int64_t)a.row_end * 3;
    for (int64_t i = begin + thread_index(); i < end; i += thread_count()) {
        const int row = (int)(i / 3), channel = (int)(i - (int64_t)row * 3);
        const int64_t pixel = (int64_t)(a.top + row / a.width) * a.picture_width + a.left + row % a.width;
        ((bf16*)a.y)[i] = __float2bfloat16_rn((float)bytes[pixel * 3 + channel] / 255.0f * 2.0f - 1.0f);
    }
}

// y = (byte / 255 - mean) / deviation. The columns of y are (channel, frame, y, x). A thread writes its value into
// every frame.
extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_patches_in(const __grid_constant__ sumi_patches_in_args a)
{
    const int area = a.patch * a.patch, per_cell = a.cell * a.cell;
    const int64_t count = (int64_t)(a.row_end - a.row_begin) * 3 * area;
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const int row = a.row_begin + (int)(i / (3 * area)), column = (int)(i % (3 * area)), channel = column / area,
                  at = column - channel * area, in_cell = row % per_cell,
                  cell = ((const int32_t*)a.cells)[row / per_cell];
        const bool is_known = cell >= 0 && cell < a.cell_count;
        const int known = is_known ? cell : 0;
        const int py = (known / a.cells_across * a.cell + in_cell / a.cell) * a.patch + at / a.patch,
                  px = (known % a.cells_across * a.cell + in_cell % a.cell) * a.patch + at % a.patch;
        const float byte = (float)((const uint8_t*)a.bytes)[((int64_t)py * a.width + px) * 3 + channel];
        const bf16 value = __float2bfloat16_rn(is_known ? (byte / 255.0f - a.mean[channel]) / a.deviation[channel]
                                                        : __int_as_float(0x7fffffff));
        bf16* y = (bf16*)a.y + ((int64_t)row * 3 + channel) * a.frames * area + at;
        for (int frame = 0; frame < a.frames; frame++) y[(int64_t)frame * area] = value;
    }
}

// The byte of a value in [-1, 1]. Adds 1 to `bad` if v is not finite.
SUMI_DEVICE uint32_t to_byte(float v, int& bad)
{
    bad += !isfinite(v);
    return (uint32_t)__float2int_rn(__saturatef(v * 0.5f + 0.5f) * 255.0f); // NaN becomes 0
}

// x where the opacity is 255, otherwise b + opacity / 255 (x - b), with b = byte / 127.5 - 1. In bf16, b is close
// enough that sumi_pixels_out returns the same byte: the error of b is at most 1/512, a quarter of a byte's step.
extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_composite(const __grid_constant__ sumi_composite_args a)
{
    for (int64_t r = a.row_begin + thread_index(); r < a.row_end; r += thread_count()) {
        const int64_t pixel = r % a.rows;
        const uint32_t opacity = ((const uint8_t*)a.opacity)[pixel];
        if (opacity == 255) continue;
        bf16* x = (bf16*)a.pictures + 3 * r;
        const uint8_t* beneath = (const uint8_t*)a.beneath + 3 * pixel;
        const float share = (float)opacity / 255.0f;
#pragma unroll
        for (int c = 0; c < 3; c++) {
            const float b = (float)beneath[c] / 127.5f - 1.0f;
            x[c] = __float2bfloat16(opacity == 0 ? b : fmaf(share, __bfloat162float(x[c]) - b, b));
        }
    }
}

// byte = round(clamp(x / 2 + 1 / 2) * 255). The count is an integer, so the order in which blocks add to it does not
// matter.
extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_pixels_out(const __grid_constant__ sumi_pixels_out_args a)
{
    const bf16* x = (const bf16*)a.x;
    uint8_t* bytes = (uint8_t*)a.bytes;
    int bad = 0;
    for (int64_t i = a.begin + thread_index() * SUMI_PICTURES_VALUES; i < a.end;
         i += thread_count() * SUMI_PICTURES_VALUES) {
        if (i + SUMI_PICTURES_VALUES <= a.end) {
            float v[8];
            load8(x + i, v);
            uint32_t b[8];
#pragma unroll
            for (int k = 0; k < 8; k++) b[k] = to_byte(v[k], bad);
            *(uint2*)(bytes + i) =
                make_uint2(b[0] | b[1] << 8 | b[2] << 16 | b[3] << 24, b[4] | b[5] << 8 | b[6] << 16 | b[7] << 24);
        } else {
            for (int64_t k = i; k < a.end; k++) bytes[k] = (uint8_t)to_byte(__bfloat162float(x[k]), bad);
        }
    }
    if (a.not_finite && bad > 0) atomicAdd((int32_t*)a.not_finite, bad);
}

// The values equal those that the CPU computes from bytes and bf16 when a host program fetches the image.
extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_pixels_to(const __grid_constant__ sumi_pixels_to_args a)
{
    const int x = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (x >= a.width) return;
    const int64_t pixel = (int64_t)blockIdx.y * a.width + x;
    uint8_t* row = (uint8_t*)a.to + blockIdx.y * a.pitch;
    if (a.format == SUMI_PIXELS_RGB32F) {
        const bf16* from = (const bf16*)a.from + 3 * pixel;
        for (int c = 0; c < 3; c++) ((float*)row)[3 * x + c] = __bfloat162float(from[c]) * 0.5f + 0.5f;
        return;
    }
    const uint8_t* from = (const uint8_t*)a.from + 3 * pixel;
    const uint32_t r = from[0], g = from[1], b = from[2];
    if (a.format == SUMI_PIXELS_RGBA8) ((uint32_t*)row)[x] = r | g << 8 | b << 16 | 0xff000000u;
    else if (a.format == SUMI_PIXELS_BGRA8) ((uint32_t*)row)[x] = b | g << 8 | r << 16 | 0xff000000u;
    else row[3 * x] = (uint8_t)r, row[3 * x + 1] = (uint8_t)g, row[3 * x + 2] = (uint8_t)b;
}

// The copy of sumi_tile_place, with elements of 16, 4 or 2 bytes.
template <class Element> SUMI_DEVICE void place(const sumi_tile_place_args& a)
{
    const Element* tile = (const Element*)a.tile;
    Element* picture =
        (Element*)a.picture + (a.per_item ? *(const int32_t*)a.counter * a.item_elements : 0) + a.picture_first;
    const int64_t count = (int64_t)(a.row_end - a.row_begin) * a.row_elements;
    for (int64_t i = thread_index(); i < count; i += thread_count()) {
        const int64_t row = a.row_begin + i / a.row_elements, at = i % a.row_elements;
        picture[row * a.picture_pitch + at] = tile[row * a.tile_pitch + at];
    }
}

extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_tile_place(const __grid_constant__ sumi_tile_place_args a)
{
    if (a.element_bytes == 16) place<uint4>(a);
    else if (a.element_bytes == 4) place<uint32_t>(a);
    else place<uint16_t>(a);
}

// b[i] = a[i of the neighbouring tile's last `count`] (1 - i / count) + b[i] (i / count): first the rows with the tile
// above, then the columns with the tile to the left. A value depends on itself and the neighbouring tiles only, so both
// are computed in one pass. It is rounded once.
template <class Element> SUMI_DEVICE void blend(const sumi_tile_blend_args& a)
{
    Element* tile = (Element*)a.tile;
    const int64_t upper = (int64_t)a.above_count * a.width,
                  pixels = upper + (int64_t)(a.height - a.above_count) * a.left_count;
    for (int64_t i = thread_index(); i < pixels * a.channels; i += thread_count()) {
        const int64_t pixel = i / a.channels;
        const int c = (int)(i % a.channels);
        const bool is_upper = pixel < upper;
        const int y = (int)(is_upper ? pixel / a.width : a.above_count + (pixel - upper) / a.left_count);
        const int x = (int)(is_upper ? pixel % a.width : (pixel - upper) % a.left_count);
        Element* to = tile + ((int64_t)y * a.width + x) * a.channels + c;
        float v = value_of(*to);
        if (y < a.above_count) {
            const double share = (double)y / (double)a.above_count;
            const int64_t from = ((int64_t)(a.above_height - a.above_count + y) * a.width + x) * a.channels + c;
            v = value_of(((const Element*)a.above)[from]) * (float)(1.0 - share) + v * (float)share;
        }
        if (x < a.left_count) {
            const double share = (double)x / (double)a.left_count;
            const int64_t from = ((int64_t)y * a.left_width + a.left_width - a.left_count + x) * a.channels + c;
            v = value_of(((const Element*)a.left)[from]) * (float)(1.0 - share) + v * (float)share;
        }
        set(*to, v);
    }
}

extern "C" __global__ void __launch_bounds__(SUMI_PICTURES_THREADS)
    sumi_tile_blend(const __grid_constant__ sumi_tile_blend_args a)
{
    if (a.is_float) blend<float>(a);
    else blend<bf16>(a);
}
