#ifndef SUMI_JOBS_POOL_H
#define SUMI_JOBS_POOL_H
#include "base/result.h"
#include <sumi.h>

// Memory for one picture: in use by the host program or by a job, or free for the next job.
typedef struct sumi_picture {
    struct sumi_picture* next;
    void* pixels;
    size_t bytes;
    uint64_t handle; // 0: free
} sumi_picture;

// Returns a picture of at least `bytes` bytes, in use. sumi_picture_release makes it free again.
sumi_result sumi_picture_take(sumi_engine* engine, size_t bytes, sumi_picture** out_picture, sumi_error* error);
void sumi_picture_release(sumi_engine* engine, uint64_t handle);
void sumi_pictures_close(sumi_engine* engine);
#endif
