// A growing UTF-8 text on the heap. Buffers belong to the tokenizer and keep their capacity, so a second text of the
// same size allocates nothing.
#ifndef SUMI_TEXT_TEXT_BUFFER_H
#define SUMI_TEXT_TEXT_BUFFER_H
#include "base/memory.h"
#include <string.h>

typedef struct sumi_text_buffer {
    void* memory; // void*, so that sumi_grow can take its address; read it through sumi_text_data
    size_t bytes, capacity;
} sumi_text_buffer;

static inline char* sumi_text_data(const sumi_text_buffer* buffer) { return (char*)buffer->memory; }

// Grows the capacity for `more` bytes after the current ones.
static inline sumi_result sumi_text_reserve(sumi_heap* heap, sumi_text_buffer* buffer, size_t more, sumi_error* error)
{
    return sumi_grow(heap, &buffer->memory, &buffer->capacity, buffer->bytes + more, 1, error);
}

static inline sumi_result sumi_text_append(sumi_heap* heap, sumi_text_buffer* buffer, const char* text, size_t bytes,
                                           sumi_error* error)
{
    if (bytes != 0) { // an empty text may have no address
        SUMI_TRY(sumi_text_reserve(heap, buffer, bytes, error));
        memcpy(sumi_text_data(buffer) + buffer->bytes, text, bytes);
        buffer->bytes += bytes;
    }
    return SUMI_OK;
}

// Where a function appends text, and where it says why it failed.
typedef struct sumi_text_output {
    sumi_heap* heap;
    sumi_text_buffer* buffer;
    sumi_error* error;
} sumi_text_output;

static inline sumi_result sumi_text_put(const sumi_text_output* out, const char* text, size_t bytes)
{
    return sumi_text_append(out->heap, out->buffer, text, bytes, out->error);
}

static inline void sumi_text_release(sumi_heap* heap, sumi_text_buffer* buffer)
{
    sumi_free(heap, buffer->memory);
    *buffer = (sumi_text_buffer){0};
}
#endif
