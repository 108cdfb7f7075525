// Launch contracts of depth.cu: a depth buffer becomes a control picture, in these launches:
//
//   state 0 | count, rank (digit 0) | count, rank (digit 1) | count, rank (digit 2) | picture
//
// With a range of the host program only the last one is launched. The depth is float [from_height][from_width], from the
// top, or from the bottom with bottom_up; the picture bytes [height][width][3], all three the same.
//
// sumi_depth_count: counts one digit of all values whose bits above it are those of a rank. Grid ceil(from_width *
// from_height / SUMI_DEPTH_COUNTED), block SUMI_DEPTH_THREADS, shared 32 KiB, static.
// sumi_depth_rank: finds the digit of each rank in the counts; after the last digit the range. Grid 1, block 32 *
// SUMI_DEPTH_RANKS.
// sumi_depth_picture: greys, resized. Grid ceil(width * height / SUMI_DEPTH_THREADS), block SUMI_DEPTH_THREADS.
//
// The same on the CPU, which also says why: src/pictures/depth.c. Distances and ranges are the same bits there.
#ifndef SUMI_KERNELS_DEPTH_H
#define SUMI_KERNELS_DEPTH_H
#include <stdint.h>

enum {
    SUMI_DEPTH_THREADS = 256,
    SUMI_DEPTH_COUNTED = 4096, // values of one block
    SUMI_DEPTH_RANKS = 4,
    SUMI_DEPTH_DIGITS = 3,
    SUMI_DEPTH_BINS = 2048
};

// In device memory, 8-byte aligned; all 0 at first.
typedef struct sumi_depth_state {
    uint32_t counts[SUMI_DEPTH_DIGITS][SUMI_DEPTH_RANKS][SUMI_DEPTH_BINS];
    // Of each rank: what is left of it, its bits so far, and the first rank with the same bits, which counts for it.
    uint32_t ranks[SUMI_DEPTH_RANKS], prefixes[SUMI_DEPTH_RANKS], owners[SUMI_DEPTH_RANKS];
    double shares[SUMI_DEPTH_RANKS / 2]; // of the second rank of each percentile
    float white, black, scale;
    uint32_t is_flat, is_empty, reserved; // white is black; no value counts
} sumi_depth_state;

typedef struct sumi_depth_kernel_args {
    uint64_t depth, state, picture;
    int32_t from_width, from_height, width, height;
    int32_t kind;    // sumi_depth_kind
    int32_t inverse; // values are 1 / distance
    int32_t bottom_up, digit;
    float inverse_near, inverse_far, far_plane;
    float sky;                 // its value
    float white, black, scale; // of a range that is given
    int32_t has_range;
} sumi_depth_kernel_args;
#endif
