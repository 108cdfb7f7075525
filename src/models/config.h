// Reads the few members of a config.json that a network needs into variables that already hold their defaults.
#ifndef SUMI_MODELS_CONFIG_H
#define SUMI_MODELS_CONFIG_H
#include "base/result.h"

typedef enum sumi_config_kind {
    SUMI_CONFIG_INTEGER,
    SUMI_CONFIG_NUMBER,
    SUMI_CONFIG_BOOL,
    SUMI_CONFIG_INTEGERS,
    SUMI_CONFIG_NUMBERS,
    SUMI_CONFIG_TEXTS
} sumi_config_kind;

#define SUMI_CONFIG_TEXT_BYTES 32 // of one text with its terminating zero; longer texts are cut

typedef struct sumi_config_field {
    const char* key; // "a", or "a.b" and so on for members of nested objects
    sumi_config_kind kind;
    // int32_t, double, bool, int32_t[capacity], double[capacity], char[capacity][SUMI_CONFIG_TEXT_BYTES]
    void* into;
    int32_t capacity; // of lists
    int32_t* count;   // of lists: the number of elements, at most capacity; longer lists are refused
} sumi_config_field;

// A component's config.json. data NULL: there is none, and shapes and settings give everything.
typedef struct sumi_module_config {
    const void* data;
    size_t bytes;
    const char* path; // for messages; without a config.json, the path of the tensors' file
} sumi_module_config;

// Without a config.json nothing is read. Members that are absent or null keep their defaults. A member of another type
// is SUMI_FILE_MALFORMED, with path and key in the message.
sumi_result sumi_config_read(const sumi_module_config* config, const sumi_config_field* fields, int32_t field_count,
                             sumi_error* error);
#endif
