// Any bytes as a safetensors file. What is accepted must lie inside of the file, cover it exactly, be found by name and
// survive being written again.
// Seeds: tests/golden/common/files/safetensors/valid tests/golden/common/files/safetensors/malformed
#include "files/tensors.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

static void check(bool good)
{
    if (!good) abort();
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
            if (t->bytes > 0) sumi_dtype_to_float(t->dtype, t->data, &first, 1);
        }
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
