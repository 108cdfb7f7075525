// A number of logical processors that the test chooses, whatever the machine has. A test that includes this header is
// linked so that the library's sumi_cpu_count() is this one (premake5.lua); until fake_processors() it is the real one.
// One source of a program includes it.
#ifndef FAKE_PROCESSORS_H
#define FAKE_PROCESSORS_H
#include "base/platform.h"
#include <stdatomic.h>

static atomic_int s_processor_count; // 0: the machine's

int32_t __real_sumi_cpu_count(void);
int32_t __wrap_sumi_cpu_count(void);

static inline void fake_processors(int32_t count) { atomic_store(&s_processor_count, count); }

int32_t __wrap_sumi_cpu_count(void)
{
    const int32_t count = atomic_load(&s_processor_count);
    return count > 0 ? count : __real_sumi_cpu_count();
}
#endif
