// Any bytes as a GGUF file. What is accepted must lie inside of the file; every value of small tensors is converted.
// Seeds: tests/golden/common/files/gguf
#include "files/tensors.h"
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

static void check(bool good)
{
    if (!good) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes)
{
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_tensor_set set;
    sumi_error error = {0};
    sumi_tensor_set_init(&set, &heap, NULL);
    const sumi_result result = sumi_gguf_read(&set, data, bytes, "fuzz", &error);
    check((result == SUMI_OK) == (error.text[0] == '\0'));
    check(heap.peak < 1000000 + 64 * (uint64_t)bytes);
    for (size_t i = 0; result == SUMI_OK && i < set.count; i++) {
        const sumi_tensor* t = &set.tensors[i];
        check((const uint8_t*)t->data >= data && (const uint8_t*)t->data + t->bytes <= data + bytes);
        check(sumi_tensor_find(&set, t->name) == t);
        uint64_t count = 1;
        for (int32_t k = 0; k < t->rank; k++) count *= (uint64_t)t->shape[k];
        check(sumi_dtype_bytes(t->dtype, count) == t->bytes);
        if (t->bytes > 0 && count <= 4096) {
            float* values = malloc((size_t)count * sizeof *values);
            sumi_dtype_to_float(t->dtype, t->data, values, (size_t)count);
            free(values);
        }
    }
    sumi_tensor_set_close(&set);
    check(heap.allocated_bytes == 0);
    return 0;
}
