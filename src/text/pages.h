// A list on the heap that grows without moving, page by page, so that no growth takes long.
#ifndef SUMI_TEXT_PAGES_H
#define SUMI_TEXT_PAGES_H
#include "base/assert.h"
#include "base/memory.h"

enum { SUMI_PAGE_ELEMENTS = 2048 };

typedef struct sumi_pages {
    void* first;            // page; NULL: there is none
    void* pages;            // of type void*
    size_t capacity, count; // of pages
} sumi_pages;

// Makes room for element `index`, when there is room for all before it.
static inline sumi_result sumi_pages_reserve(sumi_heap* heap, sumi_pages* list, size_t index, size_t element_bytes,
                                             sumi_error* error)
{
    if (index < list->count * SUMI_PAGE_ELEMENTS) return SUMI_OK;
    SUMI_ASSERT(index / SUMI_PAGE_ELEMENTS == list->count);
    SUMI_TRY(sumi_grow(heap, &list->pages, &list->capacity, list->count + 1, sizeof(void*), error));
    void* page = sumi_alloc_array(heap, SUMI_PAGE_ELEMENTS, element_bytes);
    if (page == NULL) return sumi_out_of_memory(error, SUMI_PAGE_ELEMENTS * element_bytes, "a text in pieces");
    list->first = list->count == 0 ? page : list->first;
    ((void**)list->pages)[list->count++] = page;
    return SUMI_OK;
}

// Frees pages from the end on, at most `max_freed`, until `kept` are left. Returns whether more remain to be freed.
static inline bool sumi_pages_trim(sumi_heap* heap, sumi_pages* list, size_t kept, size_t max_freed)
{
    for (; list->count > kept && max_freed > 0; max_freed--) sumi_free(heap, ((void**)list->pages)[--list->count]);
    return list->count > kept;
}

static inline void sumi_pages_release(sumi_heap* heap, sumi_pages* list)
{
    (void)sumi_pages_trim(heap, list, 0, SIZE_MAX);
    sumi_free(heap, list->pages);
    *list = (sumi_pages){0};
}

static inline void* sumi_pages_at(const sumi_pages* list, size_t index, size_t element_bytes)
{
    SUMI_ASSERT(index / SUMI_PAGE_ELEMENTS < list->count);
    if (index < SUMI_PAGE_ELEMENTS) return (unsigned char*)list->first + index * element_bytes;
    unsigned char* page = ((void* const*)list->pages)[index / SUMI_PAGE_ELEMENTS];
    return page + index % SUMI_PAGE_ELEMENTS * element_bytes;
}
#endif
