// Any bytes as a GGUF file. What is accepted must lie inside of the file; every value of small tensors is converted, and
// a tokenizer in the metadata is loaded and tried.
// Seeds: tests/golden/common/files/gguf tests/fuzz/seeds/gguf
#include "files/tensors.h"
#include "tokenizer_rules.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

static void check(bool good)
{
    if (!good) abort();
}

static void try_tokenizer(const sumi_tensor_set* set)
{
    static const char s_text[] = "ab  abc<e>\xE2\x96\x81 caf\xC3\xA9\n\xFF 12 aba<s>";
    sumi_heap_init(&s_heap, NULL);
    sumi_tokenizer* tokenizer = NULL;
    sumi_error error = {0};
    const sumi_result result = sumi_tokenizer_begin_gguf(&s_heap, set, "fuzz", &error, &tokenizer);
    check((result == SUMI_OK) == (error.text[0] == '\0'));
    if (result == SUMI_OK) tokenizer = finish(tokenizer);
    if (tokenizer != NULL) encode(tokenizer, s_text, sizeof s_text - 1, true);
    sumi_tokenizer_destroy(tokenizer);
    check(s_heap.allocated_bytes == 0);
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
        if (t->bytes > 0 && count <= 4096 && sumi_dtype_is_number(t->dtype)) {
            float* values = malloc((size_t)count * sizeof *values);
            sumi_dtype_to_float(t->dtype, t->data, values, (size_t)count);
            free(values);
        }
    }
    if (result == SUMI_OK) try_tokenizer(&set);
    sumi_tensor_set_close(&set);
    check(heap.allocated_bytes == 0);
    return 0;
}
