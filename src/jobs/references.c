#include "jobs/references.h"
#include "jobs/resize.h"
#include "models/network.h"
#include "pictures/picture_sizes.h"
#include "pictures/pixels.h"

int32_t sumi_references_tokens(const sumi_references* references)
{
    int32_t tokens = 0;
    for (int32_t i = 0; i < references->count; i++) tokens += references->list[i].sizes.tokens;
    return tokens;
}

static uint64_t rgb_bytes(sumi_picture_size size) { return (uint64_t)size.width * (uint64_t)size.height * 3; }

uint64_t sumi_references_resize_bytes(const sumi_references* references)
{
    uint64_t largest_bytes = 0;
    for (int32_t i = 0; i < references->count; i++) {
        const sumi_reference* reference = &references->list[i];
        const sumi_reference_sizes* sizes = &reference->sizes;
        uint64_t resize_bytes = sumi_resize_bytes(&(sumi_resize_args){&reference->source, sizes->autoencoder.width,
                                                                      sizes->autoencoder.height, SUMI_FILTER_LANCZOS});
        uint64_t picture_bytes = rgb_bytes(sizes->autoencoder);
        if (sizes->vision.width > 0) {
            const sumi_pixels first = {NULL, sizes->first.width, sizes->first.height, 3 * sizes->first.width, 3};
            const uint64_t vision_bytes[] = {
                sumi_resize_bytes(&(sumi_resize_args){&reference->source, sizes->first.width, sizes->first.height,
                                                      SUMI_FILTER_LANCZOS}),
                sumi_resize_bytes(
                    &(sumi_resize_args){&first, sizes->vision.width, sizes->vision.height, SUMI_FILTER_BICUBIC})
                    + rgb_bytes(sizes->vision)};
            for (int k = 0; k < 2; k++) resize_bytes = vision_bytes[k] > resize_bytes ? vision_bytes[k] : resize_bytes;
            if (rgb_bytes(sizes->first) > picture_bytes) picture_bytes = rgb_bytes(sizes->first);
        }
        if (resize_bytes + picture_bytes > largest_bytes) largest_bytes = resize_bytes + picture_bytes;
    }
    return largest_bytes;
}
