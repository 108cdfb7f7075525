// Launch contracts of group_norm.cu. x, y: bf16 [rows][channels], rows = pixels. Groups are runs of `size` = channels /
// groups channels.
// Both may lie apart: x_pitch, y_pitch are elements from row to row, multiples of 8 where channels are.
// The rows are cut into blocks of block_rows; sums [blocks][groups][2] float holds each block's mean and sum of squared
// deviations from it.
#ifndef SUMI_KERNELS_GROUP_NORM_H
#define SUMI_KERNELS_GROUP_NORM_H
#include <stdint.h>

// sumi_group_sums_{1,2,4} (groups that begin among eight channels: size a multiple of 8, 4, 2): grid (pieces, blocks of
// the launch), block 256.
// channels a multiple of 8, at most 2048; x 16-byte aligned.
// sumi_group_sums_any: any shape, grid (groups, blocks of the launch), block 256, pieces and parts unused.
typedef struct sumi_group_sums_args {
    uint64_t x, sums;
    uint64_t parts;    // float [blocks][pieces][groups][2], only when pieces > 1
    uint64_t arrivals; // uint32 [blocks], zero before and after
    int32_t rows, channels, groups, block_rows, block_begin;
    int32_t pieces, piece_rows; // of a block
    int32_t x_pitch;
} sumi_group_sums_args;

// sumi_group_sums_conv: the same from what a convolution with group sums left (conv_sm90.cu), 32 groups; grid
// SUMI_GROUP_CONV_PIECES, block 256. Every block gets the whole picture's mean and its share of the squared deviations.
typedef struct sumi_group_conv_args {
    uint64_t stats; // float [patches][parities][8][32][2]: sums, sums of squares
    uint64_t parts; // double [SUMI_GROUP_CONV_PIECES][32][2]
    uint64_t sums, arrivals;
    int64_t entries; // patches * parities * 8
    int32_t rows, size, block_rows, block_count;
} sumi_group_conv_args;
enum { SUMI_GROUP_CONV_PIECES = 128 };

// sumi_group_norm: channels a multiple of 8, at most 2048, addresses 16-byte aligned; sumi_group_norm_any: any shape.
// Grid: units of the launch, block 256, shared groups * 8 bytes. Unit u is the run of unit_rows rows that is u-th from
// the end. y may be x.
typedef struct sumi_group_norm_args {
    uint64_t x, sums, y;
    uint64_t weight, bias; // float [channels]; 0: one, zero
    int32_t rows, channels, groups, block_rows, block_count;
    int32_t unit_rows, unit_begin, silu;
    float eps;
    int32_t all_rows; // that were summed; rows may be some of them
    int32_t x_pitch, y_pitch;
} sumi_group_norm_args;

enum { SUMI_GROUP_THREADS = 256, SUMI_GROUP_MAX_CHANNELS = 2048, SUMI_GROUP_MAX_GROUPS = 4096 };
#endif
