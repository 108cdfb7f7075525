// Host memory: every byte the library holds comes from here, and so from the host's allocator. Each block carries its
// size in a small header so that releases can hand the size back, as the host's allocator is promised.
#ifndef SUMI_BASE_MEMORY_H
#define SUMI_BASE_MEMORY_H
#include "base/result.h"
#include <stdatomic.h>

#define SUMI_ALIGNMENT 64u // of every block: a cache line, and one AVX-512 register

typedef struct sumi_heap {
    sumi_allocator allocator;   // allocate == NULL: the C library's
    atomic_uint_fast64_t held;  // bytes now, headers included
    atomic_uint_fast64_t peak;  // most bytes ever held
    atomic_uint_fast64_t count; // allocations ever made: the "zero allocations per job" test reads it
} sumi_heap;

void sumi_heap_init(sumi_heap* heap, const sumi_allocator* allocator);

// Uninitialised memory aligned to SUMI_ALIGNMENT, NULL when the host has none. bytes == 0 gives a valid block.
void* sumi_alloc(sumi_heap* heap, size_t bytes);
void* sumi_alloc_zero(sumi_heap* heap, size_t bytes);
// count * element with the overflow checked; NULL on overflow.
void* sumi_alloc_array(sumi_heap* heap, size_t count, size_t element_bytes);
void sumi_free(sumi_heap* heap, void* memory);           // accepts NULL
char* sumi_copy_text(sumi_heap* heap, const char* text); // NULL for NULL or no memory

// Makes room for `needed` elements in a growing array: *memory is reallocated to at least double when it is too small,
// contents kept.
// Use as: SUMI_TRY(sumi_grow(heap, (void**)&list, &capacity, count + 1, sizeof *list, error));
sumi_result sumi_grow(sumi_heap* heap, void** memory, size_t* capacity, size_t needed, size_t element_bytes,
                      sumi_error* error);

// The text every failed allocation gives.
sumi_result sumi_out_of_memory(sumi_error* error, size_t bytes, const char* what);
#endif
