// Pillow resizes in two passes, with 8 bits between them: first each row, then each column. So bands of rows, and then
// blocks of columns, can be resized one at a time, with the same bits as the whole picture:
//
//     source  --bands of rows-->  intermediate [height of the source][width of the result]  --blocks of columns-->  result
//
// Each piece computes its table of filter weights again; pieces are large enough that this takes little time.
#include "jobs/job_pictures.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/result.h"
#include "jobs/buffers.h"
#include "models/network.h"
#include "pictures/picture_sizes.h"
#include "pictures/pixels.h"
#include <string.h>

#define PIECE 3000000.0 // multiplications: about two milliseconds

// Number of taps of the filter's window.
static double taps(sumi_filter filter, int32_t from, int32_t to)
{
    const double least = filter == SUMI_FILTER_LANCZOS ? 6.0 : 4.0;
    return from > to ? least * from / to : least;
}

static int32_t count_that_fits(double operations_each, int32_t remaining_count)
{
    double count = PIECE / (operations_each > 1.0 ? operations_each : 1.0);
    return count < 1.0 ? 1 : count < remaining_count ? (int32_t)count : remaining_count;
}

static void remove_alpha(const sumi_pixels* source, int32_t row, int32_t count, unsigned char* into)
{
    for (int32_t y = row; y < row + count; y++) {
        const unsigned char* from = (const unsigned char*)source->data + (size_t)y * (size_t)source->row_bytes;
        for (int32_t x = 0; x < source->width; x++, from += 4, into += 3) memcpy(into, from, 3);
    }
}

static int32_t channels_of(const sumi_resize_args* args)
{
    return args->source->channel_count == 4 ? 3 : args->source->channel_count;
}

static sumi_result resize_rows(sumi_temporary* temporary, sumi_workspace* workspace, const sumi_resize_args* args,
                               sumi_resize* resize, sumi_error* error)
{
    const sumi_pixels* source = args->source;
    const int32_t channels = channels_of(args), width = args->width;
    SUMI_ASSERT(resize->row < source->height && resize->column == 0);
    int32_t count =
        count_that_fits(taps(args->filter, source->width, width) * width * channels, source->height - resize->row);
    SUMI_ASSERT(count >= 1 && resize->row + count <= source->height);
    const unsigned char* from = (const unsigned char*)source->data + (size_t)resize->row * (size_t)source->row_bytes;
    int32_t row_bytes = source->row_bytes;
    if (source->channel_count == 4) {
        row_bytes = source->width * 3;
        SUMI_TRY(sumi_block_reserve(temporary->parent, &workspace->values, (uint64_t)row_bytes * (uint64_t)count,
                                    "an image's rows", error));
        remove_alpha(source, resize->row, count, workspace->values.data);
        from = workspace->values.data;
    }
    uint8_t* to = (uint8_t*)workspace->intermediate.data + (size_t)resize->row * (size_t)width * (size_t)channels;
    SUMI_TRY(sumi_pixels_resize(&temporary->heap, &(sumi_pixels){from, source->width, count, row_bytes, channels},
                                &(sumi_resized_pixels){to, width, count, args->filter}, error));
    resize->row += count;
    return SUMI_OK;
}

static sumi_result resize_columns(sumi_temporary* temporary, sumi_workspace* workspace, const sumi_resize_args* args,
                                  sumi_resize* resize, sumi_error* error)
{
    const int32_t from_height = args->source->height, width = args->width, height = args->height,
                  channels = channels_of(args);
    SUMI_ASSERT(resize->row == from_height && resize->column < width);
    const int32_t count =
        count_that_fits(taps(args->filter, from_height, height) * height * channels, width - resize->column);
    SUMI_ASSERT(count >= 1 && resize->column + count <= width);
    const size_t row = (size_t)width * (size_t)channels, piece = (size_t)count * (size_t)channels,
                 column_offset = (size_t)resize->column * (size_t)channels;
    SUMI_TRY(sumi_block_reserve(temporary->parent, &workspace->values, (uint64_t)piece * (uint64_t)height,
                                "an image's columns", error));
    uint8_t* block = workspace->values.data;
    const uint8_t* intermediate = workspace->intermediate.data;
    SUMI_TRY(sumi_pixels_resize(
        &temporary->heap, &(sumi_pixels){intermediate + column_offset, count, from_height, (int32_t)row, channels},
        &(sumi_resized_pixels){block, count, height, args->filter}, error));
    for (int32_t y = 0; y < height; y++)
        memcpy((uint8_t*)workspace->picture.data + (size_t)y * row + column_offset, block + (size_t)y * piece, piece);
    resize->column += count;
    return SUMI_OK;
}

sumi_result sumi_resize_advance(sumi_workspace* workspace, const sumi_resize_args* args, sumi_resize* resize,
                                sumi_pixels* out_picture, sumi_error* error)
{
    const sumi_pixels* source = args->source;
    const int32_t width = args->width, height = args->height, channels = channels_of(args);
    SUMI_ASSERT(width > 0 && height > 0 && resize->row >= 0 && resize->column >= 0);
    SUMI_ASSERT(source->data != NULL && source->data != workspace->picture.data
                && source->data != workspace->intermediate.data && source->data != workspace->values.data);
    if (source->width == width && source->height == height) {
        *out_picture = *source;
        return SUMI_OK;
    }
    *out_picture = (sumi_pixels){0};
    const uint64_t row = (uint64_t)width * (uint64_t)channels;
    SUMI_TRY(sumi_block_reserve(workspace->heap, &workspace->intermediate, row * (uint64_t)source->height,
                                "an image between two passes of its resize", error));
    SUMI_TRY(
        sumi_block_reserve(workspace->heap, &workspace->picture, row * (uint64_t)height, "a resized image", error));
    sumi_temporary temporary;
    sumi_temporary_begin(&temporary, workspace->heap, &workspace->temporary);
    sumi_result result = resize->row < source->height ? resize_rows(&temporary, workspace, args, resize, error)
                                                      : resize_columns(&temporary, workspace, args, resize, error);
    sumi_temporary_end(&temporary);
    SUMI_TRY(result);
    if (resize->column < width) return SUMI_OK;
    *out_picture = (sumi_pixels){workspace->picture.data, width, height, width * channels, channels};
    *resize = (sumi_resize){0, 0};
    return SUMI_OK;
}

uint64_t sumi_resize_bytes(const sumi_resize_args* args)
{
    const sumi_pixels* source = args->source;
    if (source->width == args->width && source->height == args->height) return 0;
    const uint64_t channels = (uint64_t)channels_of(args), row = (uint64_t)args->width * channels;
    const uint64_t rows = (uint64_t)count_that_fits(taps(args->filter, source->width, args->width) * (double)row,
                                                    source->height)
                        * (uint64_t)source->width * 3,
                   columns = (uint64_t)count_that_fits(taps(args->filter, source->height, args->height) * args->height
                                                           * (double)channels,
                                                       args->width)
                           * (uint64_t)args->height * channels;
    return row * (uint64_t)(source->height + args->height) + (rows > columns ? rows : columns);
}

// ---- References -----------------------------------------------------------------------------------------------------

int32_t sumi_references_tokens(const sumi_references* references)
{
    int32_t tokens = 0;
    for (int32_t i = 0; i < references->count; i++) tokens += references->list[i].sizes.tokens;
    return tokens;
}

static uint64_t rgb_bytes(sumi_picture_size size) { return (uint64_t)size.width * (uint64_t)size.height * 3; }

uint64_t sumi_references_resize_bytes(const sumi_references* references)
{
    uint64_t largest_bytes = 0;
    for (int32_t i = 0; i < references->count; i++) {
        const sumi_reference* reference = &references->list[i];
        const sumi_reference_sizes* sizes = &reference->sizes;
        uint64_t resize_bytes = sumi_resize_bytes(
            &(sumi_resize_args){&reference->source, sizes->resized.width, sizes->resized.height, SUMI_FILTER_LANCZOS});
        uint64_t picture_bytes = rgb_bytes(sizes->autoencoder);
        if (sizes->vision.width > 0) {
            const sumi_pixels first = {NULL, sizes->first.width, sizes->first.height, 3 * sizes->first.width, 3};
            const uint64_t vision_bytes[] = {
                sumi_resize_bytes(&(sumi_resize_args){&reference->source, sizes->first.width, sizes->first.height,
                                                      SUMI_FILTER_LANCZOS}),
                sumi_resize_bytes(
                    &(sumi_resize_args){&first, sizes->vision.width, sizes->vision.height, SUMI_FILTER_BICUBIC})
                    + rgb_bytes(sizes->vision)};
            for (int k = 0; k < 2; k++) resize_bytes = vision_bytes[k] > resize_bytes ? vision_bytes[k] : resize_bytes;
            if (rgb_bytes(sizes->first) > picture_bytes) picture_bytes = rgb_bytes(sizes->first);
        }
        if (resize_bytes + picture_bytes > largest_bytes) largest_bytes = resize_bytes + picture_bytes;
    }
    return largest_bytes;
}
