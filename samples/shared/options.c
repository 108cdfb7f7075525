#include "options.h"
#include "synthetic.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool options_read_synthetic(const char* value, void* into)
{
    const synthetic_config** config = into;
    *config = synthetic_find(value);
    return *config != NULL;
}

bool options_read_weights(const char* value, void* into)
{
    sumi_weight_format* weights = into;
    return synthetic_weights(value, weights);
}

bool options_read_attention(const char* value, void* into)
{
    sumi_attention_format* attention = into;
    *attention = strcmp(value, "bf16") == 0 ? SUMI_ATTENTION_BF16
               : strcmp(value, "8bit") == 0 ? SUMI_ATTENTION_8BIT
                                            : SUMI_ATTENTION_AUTO;
    return *attention != SUMI_ATTENTION_AUTO;
}

static bool refuse(const char* program, const char* name, const char* value, const char* wanted)
{
    fprintf(stderr, "%s: %s %s: give %s\n", program, name, value, wanted);
    return false;
}

static bool read_number(const char* program, const option* o, const char* value)
{
    const bool is_whole = o->whole != NULL || o->seed != NULL;
    char *end, wanted[100];
    const double number = strtod(value, &end);
    snprintf(wanted, sizeof wanted, "a %snumber from %.16g to %.16g", is_whole ? "whole " : "", o->least, o->most);
    if (end == value || *end != '\0' || !(number >= o->least && number <= o->most)
        || (is_whole && number != floor(number)))
        return refuse(program, o->name, value, wanted);
    if (o->number) *o->number = number;
    if (o->real) *o->real = (float)number;
    if (o->whole) *o->whole = (int32_t)number;
    if (o->seed) *o->seed = (uint64_t)number;
    return true;
}

static bool read_value(const char* program, const option* o, const char* value)
{
    char rest;
    if (o->text) {
        *o->text = value;
        return true;
    }
    if (o->width) {
        const bool is_size = sscanf(value, "%dx%d%c", o->width, o->height, &rest) == 2;
        return (is_size && *o->width > 0 && *o->height > 0)
            || refuse(program, o->name, value, "pixels, such as 512x512");
    }
    if (o->backend) {
        *o->backend = strcmp(value, "cpu") == 0  ? SUMI_BACKEND_CPU
                    : strcmp(value, "cuda") == 0 ? SUMI_BACKEND_CUDA
                                                 : SUMI_BACKEND_AUTO;
        return *o->backend != SUMI_BACKEND_AUTO
            || refuse(program, o->name, value, "cpu or cuda; without it a GPU is taken, if any");
    }
    if (o->read) return o->read(value, o->into) || refuse(program, o->name, value, o->wanted);
    return read_number(program, o, value);
}

bool options_read(const char* program, const option* options, size_t count, int argc, char** argv,
                  const char** out_model, bool* out_wants_help)
{
    for (int at = 1; at < argc; at++) {
        const char* name = argv[at];
        if (strcmp(name, "--help") == 0) return *out_wants_help = true;
        if (name[0] != '-') {
            if (*out_model) return refuse(program, "a second model", name, "one only");
            *out_model = name;
            continue;
        }
        size_t i = 0;
        while (i < count && strcmp(name, options[i].name) != 0) i++;
        if (i == count) {
            fprintf(stderr, "%s: there is no option %s: %s --help lists them\n", program, name, program);
            return false;
        }
        if (options[i].flag) {
            *options[i].flag = true;
        } else if (at + 1 == argc) {
            fprintf(stderr, "%s: %s lacks its value: %s --help lists the options\n", program, name, program);
            return false;
        } else if (!read_value(program, &options[i], argv[++at])) {
            return false;
        }
    }
    return true;
}
