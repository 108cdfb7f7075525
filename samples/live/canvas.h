// The canvas of samples/live: what changes, and what the pictures are drawn from. In a paint tool this is the layer that
// the brush paints on; here it is a script, or a folder that another program writes to.
#ifndef CANVAS_H
#define CANVAS_H
#include "picture.h"
#include <sumi.h>

typedef struct canvas {
    sumi_pixels pixels; // the newest state; its memory lasts until the next call of canvas_take
    int32_t taken;      // how many inputs have come

    // A script: input i comes i / rate seconds after the beginning.
    int32_t frame_count;  // after the last one the first one follows; 0: there is no script
    picture_file* frames; // NULL: the program draws them
    uint8_t* drawn;
    double begin, rate; // seconds, inputs a second
    int32_t total;      // inputs of the whole script

    // A folder
    const char* folder;
    const char* left_out;          // names that begin so are no frames
    char path[1200], tried[1200];  // of the newest file, and of one that could not be read
    uint64_t changed_ns, tried_ns; // when they were written (system_changed_ns)
    double next_look;
    picture_file file;
} canvas;

// `frames` is a folder of pictures, all of which are read now, or how many frames of a brush stroke to draw. Returns
// false with a sentence in `message` (PICTURE_MESSAGE_BYTES).
bool canvas_open_script(canvas* c, const char* frames, sumi_size size, char* message);
bool canvas_open_folder(canvas* c, const char* folder, char* message);
void canvas_close(canvas* c);

// How many inputs have come since the last call. If any, `pixels` is the newest, and *out_came is when it came. Prints
// a sentence about a file in the folder that stays unreadable.
int32_t canvas_take(canvas* c, double now, double* out_came);
bool canvas_has_ended(const canvas* c); // of a folder never
#endif
