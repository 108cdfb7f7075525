// Lets the test programs run as on a CPU with fewer instructions: SUMI_CPU_LEVEL=portable, avx2 or avx512 masks
// what is above that level. Test programs are linked so that the library's sumi_cpu_detect() is this one
// (premake5.lua). The library itself reads no environment variable.
#include "base/platform.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

sumi_cpu_features __real_sumi_cpu_detect(void);
sumi_cpu_features __wrap_sumi_cpu_detect(void);

sumi_cpu_features __wrap_sumi_cpu_detect(void)
{
    static const char* const s_levels[] = {"portable", "avx2", "avx512"};
    const char* name = getenv("SUMI_CPU_LEVEL");
    sumi_cpu_features features = __real_sumi_cpu_detect();
    size_t level = 0;
    if (name == NULL || name[0] == '\0') return features;
    while (level < 3 && strcmp(name, s_levels[level]) != 0) level++;
    if (level == 3) {
        fprintf(stderr, "SUMI_CPU_LEVEL is \"%s\": it may be portable, avx2 or avx512\n", name);
        exit(2);
    }
    features.avx2_fma_f16c = features.avx2_fma_f16c && level >= 1;
    features.avx512 = features.avx512 && level >= 2;
    features.avx512_bf16 = features.avx512_bf16 && level >= 2;
    return features;
}
