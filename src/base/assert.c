#include "base/assert.h"
#if defined(SUMI_CHECKED)
#include <stdio.h>

void sumi_assert_failed(const char* condition, const char* file, int line)
{
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    fflush(stderr);
    __builtin_trap();
}
#endif
