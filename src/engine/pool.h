#ifndef SUMI_ENGINE_POOL_H
#define SUMI_ENGINE_POOL_H
#include "base/result.h"
#include <sumi.h>

// A picture of ours: in the host's hands, or free for the next job.
typedef struct sumi_picture {
    struct sumi_picture* next;
    void* pixels;
    size_t bytes;
    uint64_t handle; // 0: free
} sumi_picture;

// A picture of at least `bytes` from the pool. Marked as used; sumi_picture_release gives it back.
sumi_result sumi_picture_take(sumi_engine* engine, size_t bytes, sumi_picture** out_picture, sumi_error* error);
void sumi_picture_release(sumi_engine* engine, uint64_t handle);
void sumi_pictures_close(sumi_engine* engine);
#endif
