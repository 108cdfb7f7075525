// Any bytes as a safetensors file. What is accepted must lie inside of the file, cover it exactly, be found by name and
// survive being written again. What is found to be quantised is decoded, at the ends of its rows and columns.
// Seeds: tests/golden/common/files/safetensors/valid tests/golden/common/files/safetensors/malformed tests/golden/common/files/int8 tests/golden/common/files/quantised tests/golden/z-image/prompts
#include "files/tensor_scaling.h"
#include "files/tensors.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

static void check(bool good)
{
    if (!good) abort();
}

// Reads as the binder of weights does: a row of elements from the first to the last column.
static void decode(const sumi_tensor* tensor, const sumi_tensor_scaling* scaling)
{
    const int64_t rows = tensor->rank == 2 ? tensor->shape[0] : 0;
    const int64_t cols = rows > 0 ? tensor->shape[1] * scaling->packed : 0;
    if (rows < 1 || rows > INT32_MAX || cols < 1 || cols > 100000) return;
    const sumi_dtype dtype = scaling->packed == 2 ? SUMI_DTYPE_CODES4 : tensor->dtype;
    float *values = malloc((size_t)cols * sizeof *values), last;
    for (int64_t row = 0; row<rows; row += rows> 1 ? rows - 1 : 1) {
        const sumi_decoding_span span = {
            dtype, (const unsigned char*)tensor->data + sumi_dtype_bytes(dtype, (uint64_t)(row * cols)), (int32_t)row,
            0, (int32_t)cols};
        sumi_decode(&scaling->decoding, &span, values);
        sumi_decode_columns(&scaling->decoding, 0, (int32_t)cols, values);
        if (scaling->row_scales != NULL) memcpy(&last, (const unsigned char*)scaling->row_scales + 4 * row, 4);
    }
    check(scaling->rotation == 0 || cols % scaling->rotation == 0);
    free(values);
}

static void find_scalings(const sumi_tensor_set* set)
{
    sumi_component component = {.present = true, .set = set, .prefix = "", .path = "fuzz"};
    sumi_error error = {0};
    const char* said = sumi_metadata_find(set, "quantization_config");
    const sumi_quantisation_text text = {said, said != NULL ? strlen(said) : 0, "fuzz"};
    char name[192];
    if (said != NULL && sumi_quantisation_read(&text, &component.quantisation, &error) != SUMI_OK) return;
    (void)sumi_quantisation_unknown(&component.quantisation, name, sizeof name);
    for (size_t i = 0; i < set->count && i < 64; i++) {
        sumi_tensor_scaling scaling;
        error = (sumi_error){0};
        const sumi_result result = sumi_tensor_find_scaling(&component, set->tensors[i].name, &scaling, &error);
        check((result == SUMI_OK) == (error.text[0] == '\0'));
        if (result == SUMI_OK && scaling.is_scaled) decode(&set->tensors[i], &scaling);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes)
{
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_tensor_set set, again;
    sumi_error error = {0};
    sumi_tensor_set_init(&set, &heap, NULL);
    const sumi_result result = sumi_safetensors_read(&set, data, bytes, "fuzz", &error);
    check((result == SUMI_OK) == (error.text[0] == '\0'));
    check(heap.peak < 1000000 + 64 * (uint64_t)bytes);
    if (result == SUMI_OK) {
        uint64_t sum = 0;
        for (size_t i = 0; i < set.count; i++) {
            const sumi_tensor* t = &set.tensors[i];
            check((const uint8_t*)t->data >= data && (const uint8_t*)t->data + t->bytes <= data + bytes);
            check(sumi_tensor_find(&set, t->name) == t);
            sum += t->bytes;
            float first;
            const bool is_one = sumi_dtype_is_number(t->dtype) && sumi_dtype_get(t->dtype)->block == 1;
            if (t->bytes > 0 && is_one) sumi_dtype_to_float(t->dtype, t->data, &first, 1);
        }
        find_scalings(&set);
        check(sum <= bytes);
        const uint64_t needed =
            sumi_safetensors_write(set.tensors, set.count, set.metadata, set.metadata_count, NULL, 0);
        unsigned char* image = malloc((size_t)needed);
        check(sumi_safetensors_write(set.tensors, set.count, set.metadata, set.metadata_count, image, needed)
              == needed);
        sumi_tensor_set_init(&again, &heap, NULL);
        // "__metadata__" with an escape in it is read as metadata, so a tensor cannot have that name: everything reads
        // back
        check(sumi_safetensors_read(&again, image, needed, "again", &error) == SUMI_OK && again.count == set.count
              && again.metadata_count == set.metadata_count);
        for (size_t i = 0; i < set.count; i++) {
            check(strcmp(again.tensors[i].name, set.tensors[i].name) == 0
                  && again.tensors[i].bytes == set.tensors[i].bytes);
        }
        sumi_tensor_set_close(&again);
        free(image);
    }
    sumi_tensor_set_close(&set);
    check(heap.allocated_bytes == 0);
    return 0;
}
