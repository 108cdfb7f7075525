// Sorting in place without extra memory. The C library's qsort may allocate outside the host program's allocator.
#ifndef SUMI_BASE_SORT_H
#define SUMI_BASE_SORT_H
#include <stddef.h>

// Interface as qsort: ascending by `compare`, which is negative when a comes before b. Equal elements end up in an
// unspecified but reproducible order. This is a heap sort: no input is slower than O(n log n).
void sumi_sort(void* list, size_t count, size_t element_bytes, int (*compare)(const void* a, const void* b));
#endif
