// The host's pictures to the size of the job, in pieces: a photograph's Lanczos takes a tenth of a second, which no
// frame has.
#ifndef SUMI_ENGINE_RESIZE_H
#define SUMI_ENGINE_RESIZE_H
#include "engine/buffers.h"
#include "pictures/pixels.h"

struct sumi_workspace;

typedef struct sumi_resize_args {
    const sumi_pixels* source; // 1 or 3 channels; of 4 the alpha is dropped. Not in the blocks that resizes use
    int32_t width, height;     // of the result
    sumi_filter filter;
} sumi_resize_args;

// Zeroed to begin with, and again by the step that ends.
typedef struct sumi_resize {
    int32_t row, column;
} sumi_resize;

// Resizes some rows, then some columns, of the source. With *out_done, *out_picture is the result, with 1 or 3 channels,
// in the workspace's block `picture`; a source of the right size is its own result. The bits are those of
// sumi_pixels_resize in one go.
sumi_result sumi_resize_step(sumi_heap* heap, struct sumi_workspace* workspace, const sumi_resize_args* args,
                             sumi_resize* resize, bool* out_done, sumi_pixels* out_picture, sumi_error* error);
// Bytes that the blocks of a workspace take for such a resize, all but `temporary`.
uint64_t sumi_resize_bytes(const sumi_resize_args* args);
#endif
