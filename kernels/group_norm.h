// Launch contracts of group_norm.cu. x and y: bf16 [rows][channels], rows = pixels. A group is group_size = channels /
// groups neighbouring channels. x_pitch and y_pitch are the elements from row to row; they are multiples of 8 where
// channels is. The rows are divided into blocks of block_rows rows ("row blocks"). sums [row blocks][groups][2] float
// holds, for each row block and group, the mean and the sum of squared deviations from this mean. All kernels have
// blocks of 256 threads and are bound by bytes.
//
// The same on the CPU, in float32, which tests compare with: src/cpu/pictures.c.
#ifndef SUMI_KERNELS_GROUP_NORM_H
#define SUMI_KERNELS_GROUP_NORM_H
#include <stdint.h>

// sumi_group_sums_1, _2 and _4, by the number of groups in eight channels (_1: group_size a multiple of 8; _2: 4;
// _4: 2). Grid (pieces, row blocks of this launch). channels is a multiple of 8, at most 2048; x is 16-byte aligned. A
// row block is divided into `pieces` pieces of piece_rows rows, one per thread block. sumi_group_sums_any: any shape.
// Grid (groups, row blocks of this launch); pieces and piece_moments are not used.
typedef struct sumi_group_sums_args {
    uint64_t x, sums;
    uint64_t piece_moments; // scratch memory, float [row blocks][pieces][groups][2], only when pieces > 1
    uint64_t arrivals;      // uint32 [row blocks of this launch], zero before and after the launch
    int32_t rows, channels, groups, block_rows, block_begin;
    int32_t pieces, piece_rows; // of a row block
    int32_t x_pitch;
} sumi_group_sums_args;

// sumi_group_sums_conv: the same sums from the group sums of a convolution (conv_sm90.cu, conv_halo_sm90.cu), for 32 groups. Grid
// SUMI_GROUP_CONV_BLOCKS. Every row block gets the mean of the whole image, and a share of the squared deviations that
// is proportional to its rows.
typedef struct sumi_group_conv_args {
    uint64_t stats;          // float [entries][32][2]: sums, sums of squares
    uint64_t block_sums;     // scratch memory, double [SUMI_GROUP_CONV_BLOCKS][32][2]
    uint64_t sums, arrivals; // arrivals: one uint32, zero before and after the launch
    int64_t entries;         // patches * parities * warps of a patch
    int32_t rows, group_size, block_rows, block_count;
} sumi_group_conv_args;
enum { SUMI_GROUP_CONV_BLOCKS = 128 };

// sumi_group_norm: channels a multiple of 8, at most 2048, addresses 16-byte aligned. sumi_group_norm_any: any shape.
// Grid (units of this launch), dynamic shared memory groups * 8 bytes. A unit is unit_rows rows. Units are numbered
// from the end of the image. y may be x.
typedef struct sumi_group_norm_args {
    uint64_t x, sums, y;
    uint64_t weight, bias; // float [channels]; 0: the weight is 1, the bias 0
    int32_t rows, channels, groups, block_rows, block_count;
    int32_t unit_rows, unit_begin, silu;
    float eps;
    int32_t all_rows; // The rows that were summed. `rows` may be fewer of them.
    int32_t x_pitch, y_pitch;
} sumi_group_norm_args;

enum { SUMI_GROUP_THREADS = 256, SUMI_GROUP_MAX_CHANNELS = 2048, SUMI_GROUP_MAX_GROUPS = 4096 };
#endif
