// Which tensors a part must have, to name all that are missing: opening a model stops at the first one.
#ifndef EXPECTED_H
#define EXPECTED_H
#include "inside.h"

typedef struct missing_list {
    char names[64][192]; // canonical names, the first ones
    int32_t count;       // of all
} missing_list;

// False when the family is not known here: nothing is checked then.
bool expected_check(const char* family, const sumi_component* part, sumi_component_kind kind, missing_list* missing);
// Largest index + 1 of tensors called "prefix<index>.": the number of layers. 0: none.
int32_t expected_count(const sumi_component* part, const char* prefix);
// A number of a JSON object in a file, 0 when there is none.
double expected_config(const sumi_file* config, const char* key);
bool expected_flag(const sumi_file* config, const char* key); // whether a member is true
#endif
