#include "base/result.h"
#include "base/assert.h"
#include <stdarg.h>
#include <stdio.h>

sumi_result sumi_fail(sumi_error* error, sumi_result result, const char* format, ...)
{
    SUMI_ASSERT(result != SUMI_OK && format != NULL);
    if (error != NULL && error->result == SUMI_OK) {
        error->result = result;
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
    }
    return result;
}
