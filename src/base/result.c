#include "base/result.h"
#include "base/assert.h"
#include <stdarg.h>
#include <stdio.h>

sumi_result sumi_fail_at(const char* file, int line, sumi_error* error, sumi_result result, const char* format, ...)
{
    SUMI_ASSERT(result != SUMI_OK && format != NULL);
    if (error != NULL && error->result == SUMI_OK) {
        error->result = result;
        error->file = file;
        error->line = line;
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
    }
    return result;
}

sumi_result sumi_fail_with(sumi_error* error, const sumi_error* from)
{
    SUMI_ASSERT(from->result != SUMI_OK);
    if (error != NULL && error->result == SUMI_OK) *error = *from;
    return from->result;
}
