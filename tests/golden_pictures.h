// Pictures that a case names: read from their files, compared, and brought to the sizes in which a network refers to
// them.
#ifndef GOLDEN_PICTURES_H
#define GOLDEN_PICTURES_H
#include "golden_support.h"
#include "picture.h"
#include "pictures/picture_sizes.h"

enum { LONGEST_PICTURE_RATIO = 200 }; // of the sides; beyond, the reference refuses a picture

// With 3 or 4 channels. False after reporting; picture_free in any case.
bool read_case_picture(golden_case* c, const char* name, int32_t channels, picture_file* out);
// As RGB.
bool read_case_png(golden_case* c, const char* name, picture_file* out);
// Bytes [height * width, 3 or 4] against the file of that name, which may differ by one level. A backend in bfloat16 may be
// off by one and a half times `bf16`, the reference's own relative error in what was decoded, and by rounding; bf16 0:
// none is stored, and nothing is compared there.
void compare_png(golden_case* c, const char* name, const array* bytes, double bf16);

// The references of a job.
typedef struct case_pictures {
    int32_t count;
    sumi_pipeline_reference references[SUMI_MAX_REFERENCES];
    uint8_t* seen[SUMI_MAX_REFERENCES];   // RGB for the vision tower
    uint8_t* pixels[SUMI_MAX_REFERENCES]; // RGB or RGBA for the autoencoder; NULL: only prompts refer to them
    int32_t tokens[SUMI_MAX_REFERENCES];  // of a prompt
    sumi_picture_size last;               // of the last file
} case_pictures;

// How a family resizes references. An area of 0 leaves a picture as it is.
typedef struct picture_areas {
    int64_t seen;    // in pixels, before the vision tower's own rule
    int64_t encoded; // for the autoencoder; negative: no autoencoder looks at them
} picture_areas;

// Reads and resizes the pictures that a list of names in the json names; NULL: none. False after reporting.
// free_pictures in any case.
bool make_pictures(golden_case* c, const sumi_network* network, const node* names, picture_areas areas,
                   case_pictures* out);
void free_pictures(case_pictures* pictures);
void write_pictures(plan_run* run, const case_pictures* pictures); // all that the run's plan has values for
#endif
