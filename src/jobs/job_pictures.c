// Pillow resizes in two passes, with 8 bits between them: first each row, then each column. So rows of the source, and
// then rows of the result, can be made some at a time, with the same bits as the whole picture:
//
//     source  --some rows-->  intermediate [height of the source][width of the result]  --columns, some rows-->  result
//
// A pass that changes nothing is left out. The table of filter weights of a pass is made with its first piece, and the
// workers share the rows of a piece.
//
// Where alpha is kept, colours are multiplied by it before the first pass and divided by it after the second one. The
// rows of a piece are multiplied into memory after the intermediate rows. A picture whose width stays has a first pass
// as well, which copies them.
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

static bool has_alpha(const sumi_resize_args* args) { return args->keeps_alpha && args->source->channel_count == 4; }

static int32_t channels_of(const sumi_resize_args* args)
{
    return args->source->channel_count == 4 && !args->keeps_alpha ? 3 : args->source->channel_count;
}

static bool is_whole(const sumi_resize_args* args)
{
    return args->source->width == args->width && args->source->height == args->height;
}
static bool passes_rows(const sumi_resize_args* args)
{
    return args->source->width != args->width || channels_of(args) != args->source->channel_count || has_alpha(args);
}
static bool passes_columns(const sumi_resize_args* args) { return args->source->height != args->height; }

static uint64_t row_bytes(const sumi_resize_args* args) { return (uint64_t)args->width * (uint64_t)channels_of(args); }
static uint64_t intermediate_bytes(const sumi_resize_args* args)
{
    return passes_rows(args) && passes_columns(args) ? row_bytes(args) * (uint64_t)args->source->height : 0;
}

// Rows of the source, and of the result, that a piece from row `begin` on may have. To multiply or to divide a colour
// by its alpha counts like a few of the products of a resize.
#define ALPHA_PRODUCTS 4.0

static int32_t piece_of_rows(const sumi_resize_args* args, int32_t begin)
{
    const sumi_pixels* source = args->source;
    const double values = (double)source->width * (double)source->channel_count,
                 products = taps(args->filter, source->width, args->width) * (double)row_bytes(args);
    return count_that_fits(products + (has_alpha(args) ? ALPHA_PRODUCTS * values : 0.0), source->height - begin);
}

static int32_t piece_of_columns(const sumi_resize_args* args, int32_t begin)
{
    const double products =
        taps(args->filter, args->source->height, args->height) + (has_alpha(args) ? ALPHA_PRODUCTS : 0.0);
    return count_that_fits(products * (double)row_bytes(args), args->height - begin);
}

// The rows of the largest piece, multiplied by their alpha.
static uint64_t multiplied_bytes(const sumi_resize_args* args)
{
    return has_alpha(args) ? (uint64_t)piece_of_rows(args, 0) * (uint64_t)args->source->width * 4 : 0;
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

// Rows of RGBA that the workers share. into == from: they are divided by their alpha, otherwise multiplied.
typedef struct alpha_rows {
    const unsigned char* from;
    size_t from_row_bytes;
    unsigned char* into; // tightly packed
    int32_t width, count;
} alpha_rows;

static void apply_alpha(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    const alpha_rows* rows = context;
    const size_t width = (size_t)rows->width;
    for (int32_t y = begin; y < end; y++) {
        unsigned char* into = rows->into + (size_t)y * width * 4;
        if (rows->into == rows->from) sumi_pixels_divide_by_alpha(into, width);
        else sumi_pixels_premultiply(rows->from + (size_t)y * rows->from_row_bytes, width, into);
    }
}

#define ALPHA_PIXELS 16384 // A worker takes at least as many: 30 to 50 us.

static void share_alpha(const sumi_workspace* workspace, alpha_rows rows)
{
    if (workspace->workers == NULL) apply_alpha(0, rows.count, 0, &rows);
    else sumi_parallel(workspace->workers, rows.count, ALPHA_PIXELS / rows.width + 1, apply_alpha, &rows);
}

// A piece of this many rows, or a larger one where no call has a budget: not with alpha, for which there is memory for
// so many rows.
static int32_t rows_of_piece(const sumi_workspace* workspace, const sumi_resize_args* args, int32_t count, int32_t most)
{
    if (!workspace->is_unpaced || has_alpha(args)) return count;
    return count < most / SUMI_UNPACED_FACTOR ? count * SUMI_UNPACED_FACTOR : most;
}

static void divide_result(const sumi_workspace* workspace, const sumi_resize_args* args, int32_t begin, int32_t count)
{
    unsigned char* rows = (unsigned char*)workspace->picture.data + (size_t)begin * (size_t)row_bytes(args);
    if (has_alpha(args)) share_alpha(workspace, (alpha_rows){rows, (size_t)row_bytes(args), rows, args->width, count});
}

static void resize_rows(const sumi_workspace* workspace, const sumi_resize_args* args, sumi_resize* resize)
{
    const sumi_pixels* source = args->source;
    const int32_t width = args->width, begin = resize->row,
                  count = rows_of_piece(workspace, args, piece_of_rows(args, begin), source->height - begin);
    SUMI_ASSERT(count >= 1 && begin + count <= source->height && resize->row_out == 0);
    sumi_resize_pass pass = {.axis = axis_of(workspace, args->filter, source->width, width, begin == 0),
                             .from = source->data,
                             .from_row_bytes = (size_t)source->row_bytes,
                             .into = passes_columns(args) ? workspace->intermediate.data : workspace->picture.data,
                             .width = source->width,
                             .from_channels = source->channel_count,
                             .channels = channels_of(args)};
    if (!has_alpha(args)) {
        sumi_resize_rows(&pass, workspace->workers, begin, begin + count);
    } else {
        unsigned char* multiplied = (unsigned char*)workspace->intermediate.data + intermediate_bytes(args);
        share_alpha(workspace, (alpha_rows){pass.from + (size_t)begin * pass.from_row_bytes, pass.from_row_bytes,
                                            multiplied, source->width, count});
        pass.from = multiplied;
        pass.from_row_bytes = (size_t)source->width * 4;
        pass.into += (size_t)begin * (size_t)row_bytes(args);
        sumi_resize_rows(&pass, workspace->workers, 0, count);
    }
    if (!passes_columns(args)) divide_result(workspace, args, begin, count);
    resize->row += count;
}

static void resize_columns(const sumi_workspace* workspace, const sumi_resize_args* args, sumi_resize* resize)
{
    const sumi_pixels* source = args->source;
    const int32_t height = args->height, begin = resize->row_out, channels = channels_of(args),
                  count = rows_of_piece(workspace, args, piece_of_columns(args, begin), height - begin);
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
    divide_result(workspace, args, begin, count);
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
    SUMI_TRY(sumi_block_reserve(workspace->heap, &workspace->intermediate,
                                intermediate_bytes(args) + multiplied_bytes(args),
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
    return larger_axis_bytes(args) + intermediate_bytes(args) + multiplied_bytes(args)
         + row_bytes(args) * (uint64_t)args->height;
}

sumi_result sumi_picture_pack(sumi_heap* heap, const sumi_pixels* picture, int32_t channels, void* into,
                              sumi_error* error)
{
    SUMI_ASSERT(channels == 3 || channels == 4);
    if (channels == 3) return sumi_pixels_to_rgb(heap, picture, picture->width, picture->height, into, error);
    const sumi_resized_pixels packed = {into, picture->width, picture->height, SUMI_FILTER_LANCZOS};
    return sumi_pixels_to_rgba(heap, picture, &packed, error);
}

// ---- References -----------------------------------------------------------------------------------------------------

int32_t sumi_references_tokens(const sumi_references* references)
{
    int32_t tokens = 0;
    for (int32_t i = 0; i < references->count; i++) tokens += references->list[i].sizes.tokens;
    return tokens;
}

static uint64_t pixels_of(sumi_picture_size size) { return (uint64_t)size.width * (uint64_t)size.height; }

uint64_t sumi_references_resize_bytes(const sumi_references* references, int32_t channels)
{
    uint64_t largest_bytes = 0;
    const bool keeps_alpha = channels == 4;
    for (int32_t i = 0; i < references->count; i++) {
        const sumi_reference* reference = &references->list[i];
        const sumi_reference_sizes* sizes = &reference->sizes;
        uint64_t resize_bytes = sumi_resize_bytes(&(sumi_resize_args){
            &reference->source, sizes->resized.width, sizes->resized.height, SUMI_FILTER_LANCZOS, keeps_alpha});
        uint64_t pixels = pixels_of(sizes->autoencoder);
        if (sizes->vision.width > 0) {
            const sumi_pixels first = {NULL, sizes->first.width, sizes->first.height, 3 * sizes->first.width, 3};
            const uint64_t vision_bytes[] = {
                sumi_resize_bytes(&(sumi_resize_args){&reference->source, sizes->first.width, sizes->first.height,
                                                      SUMI_FILTER_LANCZOS, keeps_alpha}),
                sumi_resize_bytes(&(sumi_resize_args){&first, sizes->vision.width, sizes->vision.height,
                                                      SUMI_FILTER_BICUBIC, false})};
            for (int k = 0; k < 2; k++) resize_bytes = vision_bytes[k] > resize_bytes ? vision_bytes[k] : resize_bytes;
            if (pixels_of(sizes->first) > pixels) pixels = pixels_of(sizes->first);
        }
        const uint64_t bytes = resize_bytes + pixels * (uint64_t)channels;
        if (bytes > largest_bytes) largest_bytes = bytes;
    }
    return largest_bytes;
}
