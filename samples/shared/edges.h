// The edges of a picture, as control nets that follow edges were trained on: white lines of one pixel on black. This is
// Canny's filter with what the annotators of such nets use: no blur, Sobel's gradients, the sum of their absolute
// values, the thresholds 100 and 200. Diagonal lines are stairs, as with OpenCV.
// It takes the luma of BT.601 instead of the strongest channel.
#ifndef EDGES_H
#define EDGES_H
#include <stdbool.h>
#include <stdint.h>

// `from` has rows from the top without gaps, 3 or 4 channels of which the fourth is ignored; `to` takes one byte per
// pixel, 255 on an edge, else 0. The outermost pixels count on beyond the borders. False: no memory.
bool edges_find(const uint8_t* from, int32_t width, int32_t height, int32_t channel_count, uint8_t* to);
#endif
