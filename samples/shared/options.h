// A small command line: options from a table, and one argument without a dash, the model. What is wrong is printed with
// the program's name and what to give instead.
#ifndef OPTIONS_H
#define OPTIONS_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sumi.h>

// One option, with its dashes. Exactly one of the places below is given, and it takes the value; `width` comes with
// `height`, and `read` with `into` and `wanted`. What is not on the command line leaves its place as it is.
typedef struct option {
    const char* name;
    bool* flag; // an option without a value
    const char** text;
    double* number; // this one and the three below: from `least` to `most`
    float* real;
    int32_t* whole;
    uint64_t* seed; // whole, OPTION_MOST_SEED at most
    double least, most;
    int32_t *width, *height; // such as 512x512
    sumi_backend* backend;
    bool (*read)(const char* value, void* into); // false: `value` is none of `wanted`
    void* into;
    const char* wanted;
} option;

// For `read`: into a const synthetic_config*, a sumi_weight_format, a sumi_attention_format.
bool options_read_synthetic(const char* value, void* into);
bool options_read_weights(const char* value, void* into);
bool options_read_attention(const char* value, void* into);
#define OPTIONS_SYNTHETIC "klein, klein-tiny, z-image, tiny, qwen-image, qwen-image-21, newbie" // the most used ones

#define OPTION_MOST_SEED 9007199254740991.0 // 2^53 - 1: a double does not have all whole numbers above

// Reads argv from argv[1] on. Returns false after printing a sentence. --help ends the reading with *out_wants_help.
bool options_read(const char* program, const option* options, size_t count, int argc, char** argv,
                  const char** out_model, bool* out_wants_help);
#endif
