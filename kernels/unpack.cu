// Weights as their file has them to bfloat16, in front of a product of many rows: sumi_unpack_<type>. What bounds it is
// memory: each element is two bytes written, and half a byte to one read.
//
//   grid: any number of blocks      block SUMI_UNPACK_THREADS      no shared memory
//   A part's rows are whole blocks of its type, so they are one array: a warp takes 256 elements of it, a lane 8 of them.
#include "stored.cuh"

template <int TYPE> SUMI_DEVICE void unpack(const sumi_unpack_args& a)
{
    const int lane = (int)threadIdx.x & 31, warps = SUMI_UNPACK_THREADS / 32;
    const int64_t step = (int64_t)gridDim.x * warps * 256;
    for (int64_t first = ((int64_t)blockIdx.x * warps + (threadIdx.x >> 5)) * 256; first < a.elements; first += step) {
        const int64_t at = first + 8 * lane;
        if (at >= a.elements) break;
        const stored<TYPE> chunk((const uint8_t*)a.from + first / 256 * stored_layout<TYPE>::BYTES, 8 * lane % 32);
        int64_t to = (int64_t)a.row_begin * a.cols + at;
        if (a.is_gated) { // as upload_row in upload.cuh
            // a weight has fewer than 2^32 elements
            const uint32_t part_row = (uint32_t)at / (uint32_t)a.cols, col = (uint32_t)at - part_row * (uint32_t)a.cols;
            const int row = a.row_begin + (int)part_row, half = a.stack_rows / 2, in = row < half ? row : row - half;
            to = ((int64_t)(in / 8) * 16 + (row < half ? 0 : 8) + in % 8) * a.cols + col;
        }
        store16((bf16*)a.to + to, stored_bf16(chunk, lane / 4, a.scale));
    }
}

#define KERNEL(name, number, bytes)                                                                                    \
    extern "C" __global__ void __launch_bounds__(SUMI_UNPACK_THREADS)                                                  \
        sumi_unpack_##name(const __grid_constant__ sumi_unpack_args a)                                                 \
    {                                                                                                                  \
        unpack<number>(a);                                                                                             \
    }
SUMI_STORED_TYPES(KERNEL)
