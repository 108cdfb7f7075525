// Host memory. sumi takes every byte from the host program's allocator through these functions. A small header in front
// of each block holds its size, because the host program's release function is promised the size.
#ifndef SUMI_BASE_MEMORY_H
#define SUMI_BASE_MEMORY_H
#include "base/result.h"
#include <stdatomic.h>
#include <stddef.h>

#define SUMI_ALIGNMENT 64u // of every block, in bytes: a cache line and one AVX-512 register

typedef struct sumi_heap {
    sumi_allocator allocator;             // sumi_heap_init fills in the C library's if the host program gives none
    atomic_uint_fast64_t allocated_bytes; // now, headers included
    atomic_uint_fast64_t peak;            // the largest allocated_bytes so far
    atomic_uint_fast64_t count;           // allocations ever made; the "zero allocations per job" test reads it
} sumi_heap;

void sumi_heap_init(sumi_heap* heap, const sumi_allocator* allocator);

// Returns uninitialised memory aligned to SUMI_ALIGNMENT, or NULL if the allocator has none. bytes == 0 gives a valid
// block.
void* sumi_alloc(sumi_heap* heap, size_t bytes);
void* sumi_alloc_zero(sumi_heap* heap, size_t bytes);
// Allocates count * element_bytes bytes. NULL if the product overflows.
void* sumi_alloc_array(sumi_heap* heap, size_t count, size_t element_bytes);
void sumi_free(sumi_heap* heap, void* memory);           // accepts NULL
char* sumi_copy_text(sumi_heap* heap, const char* text); // NULL if text is NULL or memory ran out

// Grows *memory to a capacity of at least `needed` elements and at least double the old one, and keeps the contents.
// Does nothing if the capacity suffices.
// Use as: SUMI_TRY(sumi_grow(heap, (void**)&list, &capacity, count + 1, sizeof *list, error));
sumi_result sumi_grow(sumi_heap* heap, void** memory, size_t* capacity, size_t needed, size_t element_bytes,
                      sumi_error* error);

// Every failed host allocation reports this text.
sumi_result sumi_out_of_memory(sumi_error* error, size_t bytes, const char* what);

// Sorts in place without extra memory (sort.c). The C library's qsort may allocate outside the host program's allocator.
// Interface as qsort: ascending by `compare`, which is negative when a comes before b. Equal elements end up in an
// unspecified but reproducible order. This is a heap sort: no input is slower than O(n log n).
void sumi_sort(void* list, size_t count, size_t element_bytes, int (*compare)(const void* a, const void* b));
#endif
