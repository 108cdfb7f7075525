#include "base/memory.h"
#include "base/assert.h"
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32) // Windows has no aligned_alloc; _aligned_malloc needs _aligned_free
#include <malloc.h>
#define aligned_alloc(alignment, bytes) _aligned_malloc(bytes, alignment)
#define free(memory) _aligned_free(memory)
#endif

// Precedes every block and takes SUMI_ALIGNMENT bytes, so that the block stays aligned.
typedef struct block_header {
    uint64_t bytes; // of the whole allocation, including this header
} block_header;

static void* allocate_from_c(size_t bytes, size_t alignment, void* user_data)
{
    (void)user_data;
    return aligned_alloc(alignment, bytes);
}

static void release_to_c(void* memory, size_t bytes, void* user_data)
{
    (void)bytes;
    (void)user_data;
    free(memory);
}

void sumi_heap_init(sumi_heap* heap, const sumi_allocator* allocator)
{
    SUMI_ASSERT(allocator == NULL || (allocator->allocate == NULL) == (allocator->release == NULL));
    memset(heap, 0, sizeof *heap);
    if (allocator != NULL && allocator->allocate != NULL) {
        heap->allocator = *allocator;
    } else {
        heap->allocator = (sumi_allocator){allocate_from_c, release_to_c, NULL};
    }
    atomic_init(&heap->allocated_bytes, 0);
    atomic_init(&heap->peak, 0);
    atomic_init(&heap->count, 0);
}

void* sumi_alloc(sumi_heap* heap, size_t bytes)
{
    SUMI_ASSERT(heap->allocator.allocate != NULL && heap->allocator.release != NULL); // sumi_heap_init was called
    if (bytes > SIZE_MAX - 2 * SUMI_ALIGNMENT) return NULL;
    // aligned_alloc requires a multiple of the alignment; the host program's allocator gets the same rounded size
    size_t block_bytes = (bytes + 2 * SUMI_ALIGNMENT - 1) / SUMI_ALIGNMENT * SUMI_ALIGNMENT;
    SUMI_ASSERT(block_bytes % SUMI_ALIGNMENT == 0 && block_bytes - SUMI_ALIGNMENT >= bytes);
    unsigned char* memory = heap->allocator.allocate(block_bytes, SUMI_ALIGNMENT, heap->allocator.user_data);
    if (memory == NULL) return NULL;
    ((block_header*)(void*)memory)->bytes = block_bytes;
    uint64_t allocated = atomic_fetch_add(&heap->allocated_bytes, block_bytes) + block_bytes;
    atomic_fetch_add(&heap->count, 1);
    uint64_t peak = atomic_load(&heap->peak);
    while (allocated > peak && !atomic_compare_exchange_weak(&heap->peak, &peak, allocated)) {}
    return memory + SUMI_ALIGNMENT;
}

void* sumi_alloc_zero(sumi_heap* heap, size_t bytes)
{
    void* memory = sumi_alloc(heap, bytes);
    if (memory != NULL) memset(memory, 0, bytes);
    return memory;
}

void* sumi_alloc_array(sumi_heap* heap, size_t count, size_t element_bytes)
{
    if (element_bytes != 0 && count > SIZE_MAX / element_bytes) return NULL;
    return sumi_alloc(heap, count * element_bytes);
}

void sumi_free(sumi_heap* heap, void* memory)
{
    if (memory == NULL) return;
    unsigned char* block = (unsigned char*)memory - SUMI_ALIGNMENT;
    size_t bytes = (size_t)((block_header*)(void*)block)->bytes;
    SUMI_ASSERT((uintptr_t)memory % SUMI_ALIGNMENT == 0);
    // fails if the header was overwritten or the block is not from sumi_alloc
    SUMI_ASSERT(bytes >= SUMI_ALIGNMENT && bytes % SUMI_ALIGNMENT == 0);
    // fails if the block is another heap's or was freed twice
    SUMI_ASSERT(atomic_load(&heap->allocated_bytes) >= bytes);
    atomic_fetch_sub(&heap->allocated_bytes, bytes);
    heap->allocator.release(block, bytes, heap->allocator.user_data);
}

char* sumi_copy_text(sumi_heap* heap, const char* text)
{
    if (text == NULL) return NULL;
    size_t bytes = strlen(text) + 1;
    char* copy = sumi_alloc(heap, bytes);
    if (copy != NULL) memcpy(copy, text, bytes);
    return copy;
}

sumi_result sumi_out_of_memory(sumi_error* error, size_t bytes, const char* what)
{
    SUMI_ASSERT(what != NULL);
    return sumi_fail(error, SUMI_OUT_OF_HOST_MEMORY,
                     "the allocator has no %zu bytes for %s; free memory or use smaller sizes", bytes, what);
}

sumi_result sumi_grow(sumi_heap* heap, void** memory, size_t* capacity, size_t needed, size_t element_bytes,
                      sumi_error* error)
{
    SUMI_ASSERT(element_bytes > 0 && (*capacity == 0 || *memory != NULL));
    if (needed <= *capacity) return SUMI_OK;
    size_t grown = *capacity < 8 ? 8 : *capacity * 2;
    if (grown < needed) grown = needed;
    void* larger = sumi_alloc_array(heap, grown, element_bytes);
    if (larger == NULL) return sumi_out_of_memory(error, grown * element_bytes, "a growing list");
    if (*memory != NULL) {
        memcpy(larger, *memory, *capacity * element_bytes);
        sumi_free(heap, *memory);
    }
    *memory = larger;
    *capacity = grown;
    return SUMI_OK;
}
