// Unpacks a weight from its file's type to bf16, before a product of many rows: sumi_unpack_<type>, the types of
// stored.h.
//   from  the rows of one stacked tensor, [rows][cols] in the file's type      to  bf16 [stack_rows][cols]
//   grid  any number of blocks      block SUMI_UNPACK_THREADS      no shared memory
// Bound by memory: of each element two bytes are written, and half a byte to one byte is read.
//
// The rows of a stacked tensor are whole quantisation blocks of its type, so they are read as one array: a warp unpacks
// 256 elements of it at a time (a chunk), a lane 8 of them.
#include "stored.cuh"

template <int TYPE> SUMI_DEVICE void unpack(const sumi_unpack_args& args)
{
    const int lane = (int)threadIdx.x & 31, warps = SUMI_UNPACK_THREADS / 32;
    const int64_t step = (int64_t)gridDim.x * warps * 256;
    // first: the first element of the warp's chunk.
    for (int64_t first = ((int64_t)blockIdx.x * warps + (threadIdx.x >> 5)) * 256; first < args.elements;
         first += step) {
        const int64_t element = first + 8 * lane;
        if (element >= args.elements) break;
        const stored<TYPE> chunk((const uint8_t*)args.from + first / 256 * stored_layout<TYPE>::BYTES, 8 * lane % 32);
        int64_t to_element = (int64_t)args.row_begin * args.cols + element;
        if (args.is_gated) { // the interleaved row, as upload_row() in upload.cuh
            // 32-bit division is enough: a weight has fewer than 2^32 elements
            const uint32_t tensor_row = (uint32_t)element / (uint32_t)args.cols,
                           column = (uint32_t)element - tensor_row * (uint32_t)args.cols;
            const int row = args.row_begin + (int)tensor_row, half = args.stack_rows / 2,
                      row_of_half = row < half ? row : row - half;
            to_element =
                ((int64_t)(row_of_half / 8) * 16 + (row < half ? 0 : 8) + row_of_half % 8) * args.cols + column;
        }
        store16((bf16*)args.to + to_element, stored_bf16(chunk, lane / 4, args.scale));
    }
}

#define DEFINE_KERNEL(name, number, bytes)                                                                             \
    extern "C" __global__ void __launch_bounds__(SUMI_UNPACK_THREADS)                                                  \
        sumi_unpack_##name(const __grid_constant__ sumi_unpack_args args)                                              \
    {                                                                                                                  \
        unpack<number>(args);                                                                                          \
    }
SUMI_STORED_TYPES(DEFINE_KERNEL)
