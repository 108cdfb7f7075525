// Resizes pictures of the host program in pieces. A Lanczos resize of a photograph takes a tenth of a second, too long
// for a frame.
#ifndef SUMI_JOBS_RESIZE_H
#define SUMI_JOBS_RESIZE_H
#include "base/memory.h"
#include "base/result.h"
#include "pictures/pixels.h"

struct sumi_workspace;

typedef struct sumi_resize_args {
    const sumi_pixels* source; // 1, 3 or 4 channels; alpha is left out. Not in blocks that resizes use
    int32_t width, height;     // of the result
    sumi_filter filter;
} sumi_resize_args;

// Progress of a resize. All zero before the first piece and after the last one.
typedef struct sumi_resize {
    int32_t row, column;
} sumi_resize;

// Resizes some rows, then some columns, of the source. When *out_done becomes true, *out_picture is the result, with 1
// or 3 channels, in the workspace's block `picture`. A source that already has the right size is its own result. The
// bits are those of one call of sumi_pixels_resize.
sumi_result sumi_resize_advance(sumi_heap* heap, struct sumi_workspace* workspace, const sumi_resize_args* args,
                                sumi_resize* resize, bool* out_done, sumi_pixels* out_picture, sumi_error* error);
// Bytes that the workspace's blocks need for such a resize, without `temporary`.
uint64_t sumi_resize_bytes(const sumi_resize_args* args);
#endif
