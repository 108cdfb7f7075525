// Draws pictures that follow the depth of a scene, through a control net. One job is unfinished at a time, of the newest
// view that could be taken.
#ifndef STYLER_H
#define STYLER_H
#include "scene.h"
#include <sumi.h>

typedef struct styler_desc {
    const char *model, *control, *prompt;
    sumi_backend backend;
    bool copies;           // through host memory also where textures could be shared
    int32_t width, height; // of the scene and the pictures; 0: the model's native size, 512x512 at most
    int32_t steps;         // 0: the model's
    float strength;        // NAN: the usual one of the net
    float low, high;       // distances that become white and black, for the whole shot; both 0: of each picture alone
    uint64_t seed;
} styler_desc;

typedef struct styler {
    sumi_engine* engine;
    sumi_model* model;
    sumi_control* control;
    sumi_prompt *prompt, *negative;
    sumi_image_item item;
    sumi_control_use use;
    sumi_image_desc desc;
    sumi_depth depth;

    GLuint picture, picture_target; // the newest picture, whose first row is the top; a framebuffer to read it with
    sumi_target target;             // `picture`, where it is shared with the GPU
    GLuint depth_copy;              // R32F, imported in place of host memory
    float* host_depth;
    uint8_t* seen; // what the net saw of the newest picture: RGB8 from the top

    sumi_job job;
    bool has_job, is_cancelled;
    bool another_gave_way; // a running job was cancelled, and no picture has come since
    int32_t submitted, finished, cancelled;
} styler;

// Opens model and net and encodes the prompt; an OpenGL context is not needed yet. Returns false after printing a
// sentence. Call styler_close either way, while the context is current.
bool styler_open(styler* s, const styler_desc* desc);
// Makes the textures, and shares them with sumi where that is possible.
bool styler_begin(styler* s, const styler_desc* desc, const scene* view);
void styler_close(styler* s);

// Takes the view that was drawn last. Sets out_is_taken to false while an older one is drawn, which may be cancelled:
// then ask again with a newer view in the next frame. Both return false after printing why.
bool styler_take(styler* s, const scene* view, bool* out_is_taken);
// Brings the picture into its texture when it is done.
bool styler_turn(styler* s);
// Reads the newest picture: RGBA8 from the top.
void styler_read(const styler* s, uint8_t* into);
#endif
