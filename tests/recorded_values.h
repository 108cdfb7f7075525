// What tests of sampling share: recorded values of the reference implementations, and schedules in one call.
#ifndef RECORDED_VALUES_H
#define RECORDED_VALUES_H
#include "base/file.h"
#include "files/json.h"
#include "files/tensors.h"
#include "sampling/schedule.h"
#include "test.h"

// ---- Helpers --------------------------------------------------------------------------------------------------------

static sumi_heap s_heap;

static inline bool open_set(sumi_tensor_set* set, const char* path)
{
    sumi_error error = {0};
    sumi_tensor_set_init(set, &s_heap, NULL);
    if (sumi_tensor_set_open(set, path, &error) == SUMI_OK) return true;
    printf("  %s: %s\n", path, error.text);
    sumi_tensor_set_close(set);
    return false;
}

// A copy of a tensor's values as float (bytes and indices stay exact in it up to 2^24); NULL when there is none. The
// caller frees it.
static inline float* values_of(const sumi_tensor_set* set, const char* name, size_t* out_count)
{
    const sumi_tensor* tensor = sumi_tensor_find(set, name);
    *out_count = 0;
    if (tensor == NULL) return NULL;
    size_t count = 1;
    for (int32_t i = 0; i < tensor->rank; i++) count *= (size_t)tensor->shape[i];
    float* values = malloc((count + 1) * sizeof *values);
    sumi_dtype_to_float(tensor->dtype, tensor->data, values, count);
    *out_count = count;
    return values;
}

static inline bool read_json(const char* path, sumi_file* file, sumi_json* json, sumi_error* error)
{
    memset(file, 0, sizeof *file);
    if (sumi_file_open(file, &s_heap, NULL, path, error) != SUMI_OK) {
        printf("  %s\n", error->text);
        return false;
    }
    sumi_json_begin(json, file->data, (size_t)file->bytes, error);
    return true;
}

static inline bool same_float(float a, float b) { return memcmp(&a, &b, sizeof a) == 0; }

// ---- Schedules ------------------------------------------------------------------------------------------------------

static inline void write_rule(const sumi_sigma_rule* rule, int32_t image_tokens, int32_t steps, float* sigmas)
{
    sumi_error error = {0};
    CHECK_NUMBER(sumi_sigma_rule_check(rule, &error), SUMI_OK);
    CHECK_NUMBER(sumi_schedule_write(rule, image_tokens, steps, sigmas, &error), SUMI_OK);
}

static inline void shifted(float shift, int32_t steps, float* sigmas)
{
    write_rule(&(sumi_sigma_rule){.shift = shift}, 0, steps, sigmas);
}
#endif
