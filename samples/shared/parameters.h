// The text about how a picture was made that other tools (AUTOMATIC1111's web UI, ComfyUI, Civitai) write into picture
// files and read from them:
//
//     a lighthouse at dusk
//     Negative prompt: blurry
//     Steps: 8, Sampler: Euler, CFG scale: 1, Seed: 7, Size: 1024x1024, Model: Z-Image-Turbo, ...
#ifndef PARAMETERS_H
#define PARAMETERS_H
#include <stdbool.h>
#include <stddef.h>
#include <sumi.h>

typedef struct parameters {
    const char *prompt, *negative; // NULL: none
    const char* model_name;        // NULL: unknown
    const char* loras;             // "ink:0.8, fox:1"; NULL: none
    const char* controls;          // control nets with strength and range: "depth:0.8:0:0.7, pose:1:0:1"; NULL: none
    int32_t step_count;            // of the whole schedule, also when a start image skips the first steps; 0: unknown
    int32_t width, height;         // 0: unknown
    int32_t solver;                // a sumi_solver; -1: unknown
    int32_t guidance_rule;         // a sumi_guidance_rule; SUMI_GUIDANCE_MODEL: not said
    int32_t noise;                 // a sumi_noise_source; -1: unknown
    int32_t reference_count;
    uint64_t seed;
    bool has_seed;
    float cfg_scale; // the classic scale, in which 1 is no guidance; negative: unknown
    float guidance;  // the same on the scale of the model's card, as sumi has it; negative: not said
    float strength;  // of a start image; negative: there was none
    float shift;     // 0: not said
    // Of the three at most one is above 0; all 0: none, or not said.
    float step_cache, step_cache_db;
    int32_t step_cache_every;
} parameters;

// Returns parameters in which everything is unknown.
parameters parameters_none(void);
// Writes the text in UTF-8, zero-terminated, and cuts it at `capacity` bytes. Bytes that are not UTF-8 become U+FFFD.
// Returns the number of bytes of the whole text without the terminator.
size_t parameters_write(const parameters* from, char* into, size_t capacity);
// Reads a text of sumi or of another tool. What the text does not say, or says in a way that is not understood, stays
// unknown; a text without settings is a prompt. The strings of `out` are in one block of memory, which is returned and
// freed with free(); NULL: no memory, and `out` is parameters_none().
char* parameters_read(const char* text, parameters* out);

// A step cache as text: "0.08", "auto:40" (the dB to keep) or "every:3"; "0" is off. Writes up to 24 bytes.
void parameters_write_step_cache(const parameters* from, char* into);
// Reads such a text; "auto" alone stands for PARAMETERS_STEP_CACHE_DB. False: it is something else, and nothing changes.
#define PARAMETERS_STEP_CACHE_DB 40.0f
bool parameters_read_step_cache(const char* text, parameters* out);

const char* parameters_solver_name(sumi_solver solver); // "DPM++ 2M"
// A scale of guidance as sumi has it for this model, and the classic scale.
float parameters_cfg_scale(const sumi_model_info* model, float guidance);
float parameters_guidance(const sumi_model_info* model, float cfg_scale);
#endif
