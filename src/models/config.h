// Reads the few members of a config.json that a network needs, into variables that already hold their defaults.
#ifndef SUMI_MODELS_CONFIG_H
#define SUMI_MODELS_CONFIG_H
#include "base/result.h"

typedef enum sumi_config_kind {
    SUMI_CONFIG_INTEGER,
    SUMI_CONFIG_NUMBER,
    SUMI_CONFIG_BOOL,
    SUMI_CONFIG_INTEGERS,
    SUMI_CONFIG_TEXTS,
    SUMI_CONFIG_NUMBERS
} sumi_config_kind;

#define SUMI_CONFIG_TEXT_BYTES 32 // of one text, its end included; longer ones are cut

typedef struct sumi_config_field {
    const char* key; // "a", or "a.b" and so on for members of nested objects
    sumi_config_kind kind;
    // int32_t, double, bool, int32_t[capacity], char[capacity][SUMI_CONFIG_TEXT_BYTES], float[capacity]
    void* into;
    int32_t capacity; // of lists
    int32_t* count;   // of lists: how many there were, at most capacity; a longer list is refused
} sumi_config_field;

// json == NULL: nothing is read. Members that are absent or null keep their defaults; one of another type is
// SUMI_FILE_MALFORMED, naming path and key.
sumi_result sumi_config_read(const void* json, size_t bytes, const char* path, const sumi_config_field* fields,
                             int32_t field_count, sumi_error* error);
#endif
