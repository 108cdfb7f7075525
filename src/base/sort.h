// Sorting in place without memory of its own: the C library's qsort may take memory that is not the host's.
#ifndef SUMI_BASE_SORT_H
#define SUMI_BASE_SORT_H
#include <stddef.h>

// As qsort: ascending by `compare`, which is negative when a comes before b. Equal elements end up in any order, the
// same one every time. A heap sort: no bad case.
void sumi_sort(void* list, size_t count, size_t element_bytes, int (*compare)(const void* a, const void* b));
#endif
