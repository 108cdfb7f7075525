// The tensors that a component must have, to name every missing one. Opening a model stops at the first missing tensor.
#ifndef EXPECTED_H
#define EXPECTED_H
#include "inside.h"

typedef struct missing_list {
    char names[64][192]; // canonical names of the first missing tensors
    int32_t count;       // of all missing tensors
} missing_list;

// Returns false when these tables do not have the family; then nothing is checked.
bool expected_check(const char* family, const sumi_component* part, sumi_component_kind kind, missing_list* missing);
// Returns the largest index + 1 of tensors named "prefix<index>.": the number of layers. 0: none.
int32_t expected_count(const sumi_component* part, const char* prefix);
// Returns a number of the JSON object in a file, 0 when the object has none of that name.
double expected_config(const sumi_file* config, const char* key);
bool expected_flag(const sumi_file* config, const char* key); // whether a member is true
#endif
