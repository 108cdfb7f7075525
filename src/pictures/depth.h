// Depth buffers of the host program as control pictures, in pieces.
//
//   depth --kind--> t = z or 1 / z --radix select--> percentiles --stretch--> 0 .. 1 --triangle filter--> 8 bits
//
// z is the distance from the camera's plane. With a near plane n and a far plane f, and w the share of the near plane
// (1 - d in a standard buffer, d in a reversed one, (1 - d) / 2 in OpenGL's coordinates), all kinds are
//
//   1 / z = w / n + (1 - w) / f
//
// Both terms are positive, so nothing cancels where the usual n f / (f - d (f - n)) loses most of its digits, and an
// infinite f needs no case.
#ifndef SUMI_PICTURES_DEPTH_H
#define SUMI_PICTURES_DEPTH_H
#include "base/memory.h"
#include "base/result.h"
#include <sumi.h>

// How distances become greys; each is the habit of an annotator with whose pictures nets were trained.
typedef enum sumi_depth_stretch {
    SUMI_STRETCH_INVERSE,  // t = 1 / z, from the 1st to the 99th percentile, near is white (MiDaS)
    SUMI_STRETCH_DISTANCE, // t = z, from the 2nd percentile, white, to the 85th; sky is black and not counted (ZoeDepth)
} sumi_depth_stretch;

// Checks a depth buffer of the host program, which is called `name` in messages.
sumi_result sumi_depth_check(const sumi_depth* depth, const char* name, sumi_error* error);
// The bytes of an element, and those from row to row.
int32_t sumi_depth_element_bytes(sumi_depth_format format);
int32_t sumi_depth_row_bytes(const sumi_depth* depth);

typedef struct sumi_depth_args {
    const sumi_depth* depth; // checked
    sumi_depth_stretch stretch;
    int32_t width, height; // of the control picture
} sumi_depth_args;
// Bytes of memory for the work on one picture.
uint64_t sumi_depth_bytes(const sumi_depth_args* args);
// Begins. `memory` has sumi_depth_bytes bytes, aligned to SUMI_ALIGNMENT; neither it nor the buffer may move or change
// until the end.
void sumi_depth_begin(const sumi_depth_args* args, void* memory);
// Does the next piece, of about two milliseconds. Returns true after the last one: `rgb` has the picture, tightly
// packed. The bits do not depend on the pieces.
bool sumi_depth_advance(void* memory, uint8_t* rgb);
#endif
