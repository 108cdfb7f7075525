// An allocator that refuses one request and all behind it, and counts what is held:
//
//     for (int64_t n = 0; result != SUMI_OK; n++) {
//         failing f = {.left = n};
//         const sumi_allocator allocator = failing_allocator(&f);
//         ...
//         CHECK_NUMBER(f.held, 0);
//     }
#ifndef FAILING_H
#define FAILING_H
#include "system.h"
#include <sumi.h>

typedef struct failing {
    int64_t left;    // requests that are granted from now on
    int64_t refused; // requests so far that were not
    int64_t held;    // bytes, as allocations and releases say them
} failing;

static inline void* failing_allocate(size_t bytes, size_t alignment, void* user_data)
{
    failing* f = user_data;
    if (f->left-- <= 0) {
        f->refused++;
        return NULL;
    }
    f->held += (int64_t)bytes;
    return system_allocate(bytes, alignment);
}

static inline void failing_release(void* memory, size_t bytes, void* user_data)
{
    ((failing*)user_data)->held -= (int64_t)bytes;
    system_release(memory);
}

static inline sumi_allocator failing_allocator(failing* f)
{
    return (sumi_allocator){failing_allocate, failing_release, f};
}
#endif
