// The canvas of samples/live: the inputs that the pictures are drawn from. In a paint tool this is the layer that the
// brush paints on; here it is a script, or a folder that another program writes to.
#ifndef CANVAS_H
#define CANVAS_H
#include "picture.h"
#include <sumi.h>

// A file of the folder, as it was when it was last looked at.
typedef struct canvas_file {
    const char* name;    // in canvas.names
    uint64_t changed_ns; // when it was written (system_changed_ns)
    int tries;           // how often it could not be read
    bool is_taken;       // nothing is left to do with it
} canvas_file;

typedef struct canvas {
    sumi_pixels pixels; // the newest input, as its file has it; its memory lasts until the next call of canvas_take
    int32_t taken;      // how many inputs have come

    // A script: input i comes i / rate seconds after the beginning.
    double rate;          // inputs a second; the program sets both before it opens
    int32_t total;        // inputs of the whole script
    double begin;         // seconds
    int32_t frame_count;  // after the last one the first one follows
    picture_file* frames; // NULL: the program draws them
    uint8_t* drawn;

    // A folder
    const char* folder;         // NULL: it is a script
    const char* result;         // the file that pictures are written to, or NULL
    uint64_t result_changed_ns; // when this program wrote it: such a file in the folder is no input
    char** names;
    canvas_file* files; // one for each name
    int file_count;
    double next_look;
    picture_file newest;
} canvas;

// `frames` is a folder of pictures, all of which are read now, or how many frames of a brush stroke to draw. Returns
// false with a sentence in `message` (PICTURE_MESSAGE_BYTES). Call canvas_close either way.
bool canvas_open_script(canvas* c, const char* frames, char* message);
// A file is an input as soon as it can be read, and again after each change.
bool canvas_open_folder(canvas* c, const char* folder, char* message);
bool canvas_has_picture(const char* folder); // a PNG, JPEG or WebP file
void canvas_close(canvas* c);
// Now is the beginning of a script; `size` is that of frames that are drawn. Returns false without memory.
bool canvas_begin(canvas* c, sumi_size size, double now);

// Returns how many inputs have come since the last call. If any, `pixels` is the newest, and *out_came is when it came.
// Prints a sentence about a file in the folder that stays unreadable.
int32_t canvas_take(canvas* c, double now, double* out_came);
bool canvas_has_ended(const canvas* c); // never of a folder
#endif
