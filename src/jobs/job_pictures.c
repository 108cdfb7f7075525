// Pillow resizes in two passes, with 8 bits between them: first each row, then each column. So rows of the source, and
// then rows of the result, can be made some at a time, with the same bits as the whole picture:
//
//     source  --some rows-->  intermediate [height of the source][width of the result]  --columns, some rows-->  result
//
// A pass that changes nothing is left out. The table of filter weights of a pass is made with its first piece, and the
// workers share the rows of a piece.
#include "jobs/job_pictures.h"
#include "base/assert.h"
#include "base/memory.h"
#include "base/result.h"
#include "jobs/buffers.h"
#include "models/network.h"
#include "pictures/picture_sizes.h"
#include "pictures/pixels.h"

#define PIECE 8000000.0 // multiplications: one or two milliseconds of one thread

// Multiplications for a value: the taps of the filter's window.
static double taps(sumi_filter filter, int32_t from, int32_t to)
{
    const double least = filter == SUMI_FILTER_LANCZOS ? 6.0 : 4.0;
    return from == to ? 1.0 : from > to ? least * from / to : least;
}

static int32_t count_that_fits(double operations_each, int32_t remaining_count)
{
    double count = PIECE / (operations_each > 1.0 ? operations_each : 1.0);
    return count < 1.0 ? 1 : count < remaining_count ? (int32_t)count : remaining_count;
}

static int32_t channels_of(const sumi_resize_args* args)
{
    return args->source->channel_count == 4 ? 3 : args->source->channel_count;
}

static bool is_whole(const sumi_resize_args* args)
{
    return args->source->width == args->width && args->source->height == args->height;
}
static bool passes_rows(const sumi_resize_args* args)
{
    return args->source->width != args->width || channels_of(args) != args->source->channel_count;
}
static bool passes_columns(const sumi_resize_args* args) { return args->source->height != args->height; }

static uint64_t row_bytes(const sumi_resize_args* args) { return (uint64_t)args->width * (uint64_t)channels_of(args); }
static uint64_t intermediate_bytes(const sumi_resize_args* args)
{
    return passes_rows(args) && passes_columns(args) ? row_bytes(args) * (uint64_t)args->source->height : 0;
}
static uint64_t axis_bytes(sumi_filter filter, int32_t from, int32_t to)
{
    return from != to ? sumi_resize_axis_bytes(from, to, filter) : 0;
}
static uint64_t larger_axis_bytes(const sumi_resize_args* args)
{
    const uint64_t rows = axis_bytes(args->filter, args->source->width, args->width),
                   columns = axis_bytes(args->filter, args->source->height, args->height);
    return rows > columns ? rows : columns;
}

// The axis of a pass, which its first piece makes.
static const sumi_resize_axis* axis_of(const sumi_workspace* workspace, sumi_filter filter, int32_t from, int32_t to,
                                       bool is_first)
{
    if (from == to) return NULL;
    return is_first ? sumi_resize_axis_make(workspace->axis.data, from, to, filter) : workspace->axis.data;
}

static void resize_rows(const sumi_workspace* workspace, const sumi_resize_args* args, sumi_resize* resize)
{
    const sumi_pixels* source = args->source;
    const int32_t width = args->width, begin = resize->row,
                  count = count_that_fits(taps(args->filter, source->width, width) * (double)row_bytes(args),
                                          source->height - begin);
    SUMI_ASSERT(count >= 1 && begin + count <= source->height && resize->row_out == 0);
    const sumi_resize_pass pass = {.axis = axis_of(workspace, args->filter, source->width, width, begin == 0),
                                   .from = source->data,
                                   .from_row_bytes = (size_t)source->row_bytes,
                                   .into =
                                       passes_columns(args) ? workspace->intermediate.data : workspace->picture.data,
                                   .width = source->width,
                                   .from_channels = source->channel_count,
                                   .channels = channels_of(args)};
    sumi_resize_rows(&pass, workspace->workers, begin, begin + count);
    resize->row += count;
}

static void resize_columns(const sumi_workspace* workspace, const sumi_resize_args* args, sumi_resize* resize)
{
    const sumi_pixels* source = args->source;
    const int32_t height = args->height, begin = resize->row_out, channels = channels_of(args),
                  count = count_that_fits(taps(args->filter, source->height, height) * (double)row_bytes(args),
                                          height - begin);
    SUMI_ASSERT(count >= 1 && begin + count <= height && resize->row == source->height);
    const bool is_second = passes_rows(args);
    const sumi_resize_pass pass = {.axis = axis_of(workspace, args->filter, source->height, height, begin == 0),
                                   .from = is_second ? workspace->intermediate.data : source->data,
                                   .from_row_bytes = is_second ? (size_t)row_bytes(args) : (size_t)source->row_bytes,
                                   .into = workspace->picture.data,
                                   .width = args->width,
                                   .from_channels = channels,
                                   .channels = channels};
    sumi_resize_columns(&pass, workspace->workers, begin, begin + count);
    resize->row_out += count;
}

sumi_result sumi_resize_advance(sumi_workspace* workspace, const sumi_resize_args* args, sumi_resize* resize,
                                sumi_pixels* out_picture, sumi_error* error)
{
    const sumi_pixels* source = args->source;
    const int32_t width = args->width, height = args->height, channels = channels_of(args);
    SUMI_ASSERT(width > 0 && height > 0 && resize->row >= 0 && resize->row_out >= 0);
    SUMI_ASSERT(source->data != NULL && source->data != workspace->picture.data
                && source->data != workspace->intermediate.data);
    if (is_whole(args)) {
        *out_picture = *source;
        return SUMI_OK;
    }
    *out_picture = (sumi_pixels){0};
    SUMI_TRY(sumi_block_reserve(workspace->heap, &workspace->axis, larger_axis_bytes(args),
                                "the weights of an image's resize", error));
    SUMI_TRY(sumi_block_reserve(workspace->heap, &workspace->intermediate, intermediate_bytes(args),
                                "an image between two passes of its resize", error));
    SUMI_TRY(sumi_block_reserve(workspace->heap, &workspace->picture, row_bytes(args) * (uint64_t)height,
                                "a resized image", error));
    if (!passes_rows(args)) resize->row = source->height;
    if (resize->row < source->height) resize_rows(workspace, args, resize);
    else resize_columns(workspace, args, resize);
    if (resize->row < source->height || (passes_columns(args) && resize->row_out < height)) return SUMI_OK;
    *out_picture = (sumi_pixels){workspace->picture.data, width, height, width * channels, channels};
    *resize = (sumi_resize){0, 0};
    return SUMI_OK;
}

uint64_t sumi_resize_bytes(const sumi_resize_args* args)
{
    if (is_whole(args)) return 0;
    return larger_axis_bytes(args) + intermediate_bytes(args) + row_bytes(args) * (uint64_t)args->height;
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
                    &(sumi_resize_args){&first, sizes->vision.width, sizes->vision.height, SUMI_FILTER_BICUBIC})};
            for (int k = 0; k < 2; k++) resize_bytes = vision_bytes[k] > resize_bytes ? vision_bytes[k] : resize_bytes;
            if (rgb_bytes(sizes->first) > picture_bytes) picture_bytes = rgb_bytes(sizes->first);
        }
        if (resize_bytes + picture_bytes > largest_bytes) largest_bytes = resize_bytes + picture_bytes;
    }
    return largest_bytes;
}
