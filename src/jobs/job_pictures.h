// Pictures of the host program that a job reads: resized in pieces, and the references of edit models.
#ifndef SUMI_JOBS_JOB_PICTURES_H
#define SUMI_JOBS_JOB_PICTURES_H
#include "base/memory.h"
#include "base/result.h"
#include "models/limits.h"
#include "models/network.h"
#include "pictures/pixels.h"

// ---- Resizes --------------------------------------------------------------------------------------------------------
//
// Resizes pictures of the host program in pieces, because a Lanczos resize of a large photograph takes longer than a
// frame on one thread.

struct sumi_workspace;

typedef struct sumi_resize_args {
    const sumi_pixels* source; // 1, 3 or 4 channels. Not in blocks that resizes use
    int32_t width, height;     // of the result
    sumi_filter filter;
    bool keeps_alpha; // colours are resized by their alpha, as sumi_pixels_to_rgba does it; false: alpha is left out
} sumi_resize_args;

// Progress of a resize. All zero before the first piece and after the last one.
typedef struct sumi_resize {
    int32_t row;     // of the source: rows before it have passed
    int32_t row_out; // of the result: rows before it are made
} sumi_resize;

// Resizes some rows of the source, then the columns of some rows of the result. After the last piece out_picture->data
// is not NULL, and *out_picture is the result in the workspace's block `picture`: with 1 or 3 channels, or 4 of a source
// whose alpha is kept. A source that already has the right size is its own result. The bits are those of one call of
// sumi_pixels_to_rgb or sumi_pixels_to_rgba.
sumi_result sumi_resize_advance(struct sumi_workspace* workspace, const sumi_resize_args* args, sumi_resize* resize,
                                sumi_pixels* out_picture, sumi_error* error);
// Bytes that the workspace's blocks need for such a resize.
uint64_t sumi_resize_bytes(const sumi_resize_args* args);
// Packs a picture that has the right size already as an autoencoder reads it: RGB, or for 4 channels RGBA, whose alpha
// is 255 if the picture has none. Allocates nothing.
sumi_result sumi_picture_pack(sumi_heap* heap, const sumi_pixels* picture, int32_t channels, void* into,
                              sumi_error* error);

// ---- References -----------------------------------------------------------------------------------------------------
//
// The reference pictures of a job of an edit model: given by the host program, or kept by a prompt that was encoded
// before.
//
//   source --Lanczos--> sizes.resized --window--> sizes.autoencoder: read by the VAE encoder; kept by prompts
//          --Lanczos--> sizes.first --bicubic--> sizes.vision: read by the vision tower
//
// The vision tower, if the model has one, reads pictures only to encode texts. A picture that a prompt has kept has the
// autoencoder's size, and no text can be encoded with it, because the vision tower needs the source. A network whose
// autoencoder reads four channels keeps the alpha of pictures through both Lanczos resizes; its vision tower sees them
// in front of white.

typedef struct sumi_reference {
    sumi_pixels source; // the host program's picture, then the job's own copy
    sumi_reference_sizes sizes;
} sumi_reference;

typedef struct sumi_references {
    sumi_reference list[SUMI_MAX_REFERENCES];
    int32_t count;
    bool are_of_prompt; // the pictures were kept by a prompt and have the autoencoder's sizes
} sumi_references;

// Tokens of all references in a prompt.
int32_t sumi_references_tokens(const sumi_references* references);
// The most bytes of a workspace that the resizes of these references need. channels: of the autoencoder's pictures.
uint64_t sumi_references_resize_bytes(const sumi_references* references, int32_t channels);
#endif
