// Sizes of pictures, on the processor.
#ifndef SCALE_H
#define SCALE_H
#include "generator.h"

// Four times the size by cubic B-splines: what a preview of an eighth of the picture's size needs to look soft instead
// of blocky. RGBA8.
SharedPixels enlarged(const Pixels& from);
// The mean of the pixels under each new one, whose colours count by their alpha; no side longer than `side`. RGBA8.
SharedPixels reduced(const Pixels& from, int side);
#endif
