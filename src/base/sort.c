#include "base/assert.h"
#include "base/memory.h"
#include <stdbool.h>

typedef int compare_function(const void* a, const void* b);

static void swap(unsigned char* a, unsigned char* b, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char byte = a[i];
        a[i] = b[i];
        b[i] = byte;
    }
}

static void sift_down(unsigned char* heap, size_t root, size_t count, size_t bytes, compare_function* compare)
{
    for (size_t child; (child = 2 * root + 1) < count; root = child) {
        child += child + 1 < count && compare(heap + child * bytes, heap + (child + 1) * bytes) < 0;
        if (compare(heap + root * bytes, heap + child * bytes) >= 0) break;
        swap(heap + root * bytes, heap + child * bytes, bytes);
    }
}

SUMI_ONLY_ASSERTED static bool is_sorted(const unsigned char* list, size_t count, size_t bytes,
                                         compare_function* compare)
{
    for (size_t i = 1; i < count; i++) {
        if (compare(list + (i - 1) * bytes, list + i * bytes) > 0) return false;
    }
    return true;
}

void sumi_sort(void* list, size_t count, size_t element_bytes, compare_function* compare)
{
    SUMI_ASSERT(element_bytes > 0 && compare != NULL && (count == 0 || list != NULL));
    unsigned char* heap = list;
    for (size_t i = count / 2; i > 0; i--) sift_down(heap, i - 1, count, element_bytes, compare);
    for (size_t last = count; last > 1; last--) {
        swap(heap, heap + (last - 1) * element_bytes, element_bytes);
        sift_down(heap, 0, last - 1, element_bytes, compare);
    }
    SUMI_ASSERT(is_sorted(heap, count, element_bytes, compare));
}
