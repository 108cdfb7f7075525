// Unpacks a weight from its file's type to bf16, before a product of many rows: sumi_unpack_<type>, the types of
// stored.h.
//   from  the rows of one stacked tensor, [rows][cols] in the file's type      to  bf16 [stack_rows][cols]
//   grid  any number of blocks      block SUMI_UNPACK_THREADS      no shared memory
// Bound by memory: of each element two bytes are written, and half a byte to one byte is read.
//
// The rows of a stacked tensor are whole quantisation blocks of its type, so they are read as one array: a warp unpacks
// 256 elements of it at a time (a chunk), a lane 8 of them.
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
        if (a.is_gated) { // the interleaved row, as upload_row() in upload.cuh
            // 32-bit division is enough: a weight has fewer than 2^32 elements
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
