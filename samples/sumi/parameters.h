// The "parameters" text of a PNG, as other tools write and read it:
//
//     a lighthouse at dusk
//     Negative prompt: blurry
//     Steps: 8, Sampler: Euler, CFG scale: 1, Seed: 7, Size: 1024x1024, Model: Z-Image-Turbo, ...
#ifndef PARAMETERS_H
#define PARAMETERS_H
#include <stddef.h>
#include <sumi.h>

typedef struct parameters {
    const char *prompt, *negative; // NULL: none
    const sumi_image_desc* desc;
    const sumi_image* image; // its seed and size are written, and its step_count when a deadline chose the steps
    const char* model_name;
    const char* lora_names[16]; // names of desc->loras
} parameters;

// Writes the text in UTF-8, zero-terminated, and cuts it at `capacity` bytes. Returns the number of bytes of the whole
// text without the terminator.
size_t parameters_write(const parameters* from, char* into, size_t capacity);
const char* parameters_solver_name(sumi_solver solver); // "DPM++ 2M"
#endif
