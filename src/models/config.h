// Reads the few members of a config.json that a network needs into variables that already hold their defaults.
#ifndef SUMI_MODELS_CONFIG_H
#define SUMI_MODELS_CONFIG_H
#include "base/result.h"
#include "sampling/schedule.h"

typedef enum sumi_config_kind {
    SUMI_CONFIG_INTEGER,
    SUMI_CONFIG_NUMBER,
    SUMI_CONFIG_BOOL,
    SUMI_CONFIG_TEXT,
    SUMI_CONFIG_INTEGERS,
    SUMI_CONFIG_NUMBERS,
    SUMI_CONFIG_TEXTS,
    SUMI_CONFIG_BOOLS
} sumi_config_kind;

#define SUMI_CONFIG_TEXT_BYTES 32 // of one text with its terminating zero; longer texts are cut

typedef struct sumi_config_field {
    const char* key; // "a", or "a.b" and so on for members of nested objects
    sumi_config_kind kind;
    // int32_t, double, bool, char[SUMI_CONFIG_TEXT_BYTES], int32_t[capacity], double[capacity],
    // char[capacity][SUMI_CONFIG_TEXT_BYTES], bool[capacity]
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

// ---- scheduler_config.json (scheduler.c)

// A scheduler_config.json as diffusers writes it for FlowMatchEulerDiscreteScheduler. The released values:
// docs/architectures/qwen-image.md, "Schedule and guidance".

// The reference's values for members that a file does not have: static shift 1, no dynamic shift.
sumi_sigma_rule sumi_scheduler_defaults(void);
// The dynamic shift that several families were released with, for files without a scheduler_config.json.
sumi_sigma_rule sumi_scheduler_released_dynamic(void);

// Changes the members of `rule` that the file contains, so that an adapter's overrides can be read over the model's own
// values. shift_terminal null means no stretch; any other null counts as absent. json NULL: nothing is read. A rule of
// the kind SUMI_SHIFT_EMPIRICAL keeps its kind and its numbers where the file says `use_dynamic_shifting`, because the
// numbers are in no file; with false it becomes static.
// SUMI_FILE_MALFORMED: not a file of this kind. SUMI_NOT_SUPPORTED: the file has what sumi_sigma_rule cannot express
// (another class, other sigmas, noise between steps), or numbers that give no schedule. `rule` is then unchanged.
sumi_result sumi_scheduler_read(const void* json, size_t bytes, const char* path, sumi_sigma_rule* rule,
                                sumi_error* error);
#endif
