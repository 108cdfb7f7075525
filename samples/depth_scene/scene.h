// A small scene as a game has it: hills, boxes and a camera that walks on them. It is drawn with a perspective camera
// into a texture of colours and one of depth.
#ifndef SCENE_H
#define SCENE_H
#include "gl.h"

#define SCENE_NEAR 0.1f // planes of the camera, in metres
#define SCENE_FAR 200.0f

typedef struct camera {
    float x, z;       // on the ground, in metres; the hills give the height
    float yaw, pitch; // radians: 0 looks to -z and ahead
} camera;

typedef struct camera_step {
    float forward, right; // metres
    float turn, look_up;  // radians
} camera_step;
camera camera_begin(void);
// Returns whether the camera has moved.
bool camera_move(camera* c, const camera_step* step);

typedef struct scene {
    int32_t width, height;
    GLuint program, buffer, array;
    GLsizei vertex_count;
    GLuint colour, depth, target;               // textures, and the framebuffer of both
    GLuint copy_program, copy_array, copy_into; // the framebuffer of the pass that copies depth
} scene;

// Returns false after printing a sentence. Call scene_close either way, while the context is current.
bool scene_open(scene* s, int32_t width, int32_t height);
void scene_close(scene* s);
void scene_draw(const scene* s, const camera* c);
// Copies the depth that was drawn last: width * height floats in host memory, the lowest row first; or a texture R32F.
void scene_read_depth(const scene* s, float* into);
void scene_copy_depth(const scene* s, GLuint texture);
#endif
