// What the library does in steps, from begin to end.
#ifndef SUMI_TESTS_AT_ONCE_H
#define SUMI_TESTS_AT_ONCE_H
#include "files/tensors.h"
#include "models/network_state.h"
#include "models/prompt_reader.h"
#include "pictures/pixels.h"
#include "plan/plan.h"
#include "sampling/noise.h"

// ---- Files

static inline sumi_result finish_opening(sumi_tensor_opening* opening, sumi_tensor_set* set, sumi_error* error)
{
    for (bool done = false; !done;) SUMI_TRY(sumi_tensor_opening_step(opening, set, error, &done));
    return SUMI_OK;
}

// Opens the tensors in a folder whose files are named after `stem`.
static inline sumi_result open_tensor_folder(sumi_tensor_set* set, const char* folder, const char* stem,
                                             sumi_error* error)
{
    sumi_tensor_opening opening = {0};
    bool found;
    sumi_result result =
        sumi_tensor_opening_locate_folder(&opening, set->heap, set->files, folder, stem, error, &found);
    if (result == SUMI_OK && !found)
        result = sumi_fail(error, SUMI_FILE_NOT_FOUND, "%s: holds no tensors named %s", folder, stem);
    if (result == SUMI_OK) result = finish_opening(&opening, set, error);
    sumi_tensor_opening_end(&opening);
    return result;
}

// Opens the shards of an index, then checks that every tensor that it names exists.
static inline sumi_result read_index(sumi_tensor_set* set, const sumi_index_text* index, sumi_error* error)
{
    sumi_tensor_opening opening = {.heap = set->heap};
    sumi_result result = sumi_index_list_shards(&opening, index, error);
    if (result == SUMI_OK) result = finish_opening(&opening, set, error);
    if (result == SUMI_OK) result = sumi_index_check(set, set->heap, index, error);
    sumi_tensor_opening_end(&opening);
    return result;
}

// ---- Adapters

static inline sumi_result open_adapter_file(sumi_heap* heap, const sumi_network* network, const char* path,
                                            sumi_error* error, sumi_adapter_file** out_file)
{
    float progress;
    sumi_result result = sumi_adapter_open_begin(heap, NULL, network, path, error, out_file);
    for (bool is_done = false; result == SUMI_OK && !is_done;)
        result = sumi_adapter_open_step(*out_file, 0, &is_done, &progress, error);
    if (result != SUMI_OK) {
        sumi_adapter_close(*out_file);
        *out_file = NULL;
    }
    return result;
}

// ---- Prompts

static inline sumi_result read_prompt(const sumi_network* network, int32_t encoder, const sumi_prompt_text* prompt,
                                      const sumi_prompt_ids* ids, int32_t* out_count, sumi_error* error)
{
    *out_count = 0;
    sumi_prompt_reader* reader;
    SUMI_TRY(sumi_prompt_reader_create(network->heap, error, &reader));
    sumi_result result = sumi_prompt_reader_begin(reader, network, encoder, prompt, ids, error);
    for (bool is_done = false; result == SUMI_OK && !is_done;)
        result = sumi_prompt_reader_step(reader, UINT64_MAX, &is_done, error);
    if (result == SUMI_OK) *out_count = sumi_prompt_reader_count(reader);
    sumi_prompt_reader_destroy(reader);
    return result;
}

// ---- Plans

// Cuts a plan into slices of a predicted time of at most max_us each (0: one slice per op, each op whole).
static inline sumi_result plan_slice(sumi_plan* plan, const sumi_rates* rates, uint32_t max_us, sumi_error* error)
{
    return sumi_plan_slice(plan, &(sumi_slicing){.rates = rates, .max_us = max_us, .gathered_us = max_us}, error);
}

// ---- Numbers

static inline void torch_cuda_randn(sumi_torch_cuda_generator* generator, float* into, size_t count)
{
    sumi_torch_cuda_randn_range(generator, into, count, 0, count);
    sumi_torch_cuda_skip(generator, count);
}

static inline uint8_t pixel_from_unit(float value)
{
    uint8_t rgba[4];
    sumi_planes_to_rgba((const float[]){value, value, value}, 1, rgba);
    return rgba[0];
}
#endif
