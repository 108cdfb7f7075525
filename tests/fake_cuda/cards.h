// What is known of cards by their compute capability, 89 for 8.9: their shared memory, and which images they load. For
// stand-ins of the driver.
#ifndef SUMI_FAKE_CARDS_H
#define SUMI_FAKE_CARDS_H
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

// KiB of shared memory of a multiprocessor; a block may have all but one, after opting in. From the CUDA programming
// guide's table of compute capabilities.
static inline int card_shared_kib(int capability)
{
    switch (capability) {
    case 80:
    case 87: return 164;
    case 90:
    case 100:
    case 103: return 228;
    default: return 100; // 8.6, 8.9, 12.0 and 12.1: GeForce
    }
}

typedef struct image_target {
    bool is_binary;
    int capability; // 89 for 8.9; 0: the image does not tell
    bool is_exact;  // of 9.0a and the like, whose PTX runs nowhere else
} image_target;

// `image`: machine code (an ELF file) or PTX, as cuModuleLoadData takes it.
static inline image_target read_image_target(const void* image)
{
    const unsigned char* bytes = (const unsigned char*)image;
    image_target target = {false, 0, false};
    if (memcmp(bytes, "\177ELF", 4) == 0) {
        uint32_t flags;
        memcpy(&flags, bytes + 48, sizeof flags); // e_flags of 64-bit ELF
        target.is_binary = true;
        // Version 8 of the ABI, which CUDA 13 writes, has the capability in the second byte, earlier ones in the first.
        target.capability = (int)(bytes[8] >= 8 ? flags >> 8 & 0xFF : flags & 0xFF);
        return target;
    }
    // It stands in the first lines of megabytes, all of which strstr and strtol measure under the address sanitizer.
    static const char s_key[] = ".target sm_";
    const char* text = (const char*)image;
    while (*text != 0 && strncmp(text, s_key, sizeof s_key - 1) != 0) text++;
    if (*text == 0) return target;
    for (text += sizeof s_key - 1; *text >= '0' && *text <= '9'; text++)
        target.capability = 10 * target.capability + (*text - '0');
    target.is_exact = *text == 'a';
    return target;
}

// Machine code runs on devices of the same major version and the same or a higher minor one, PTX on everything newer.
static inline bool image_runs_on(image_target target, int capability)
{
    if (target.capability == 0) return true;
    if (target.is_exact) return target.capability == capability;
    return target.capability <= capability && (!target.is_binary || target.capability / 10 == capability / 10);
}
#endif
