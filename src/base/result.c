#include "base/result.h"
#include <stdarg.h>
#include <stdio.h>

sumi_result sumi_fail(sumi_error* error, sumi_result result, const char* format, ...)
{
    if (error != NULL && error->result == SUMI_OK) {
        error->result = result;
        va_list arguments;
        va_start(arguments, format);
        vsnprintf(error->text, sizeof error->text, format, arguments);
        va_end(arguments);
    }
    return result;
}
