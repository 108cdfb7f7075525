#include "picture_base.h"
#include "utf8.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

bool picture_allocate(picture_file* out, uint32_t width, uint32_t height, const char* path, char* message)
{
    if (width == 0 || height == 0 || width > PICTURE_MAX_SIDE || height > PICTURE_MAX_SIDE
        || (uint64_t)width * height > PICTURE_MAX_PIXELS)
        return picture_fail(message, "%s: %u x %u pixels are more than the %d this reader takes: scale it down", path,
                            width, height, PICTURE_MAX_PIXELS);
    out->width = (int32_t)width;
    out->height = (int32_t)height;
    out->pixels = malloc((size_t)width * height * 4);
    return out->pixels || picture_fail(message, "%s: no memory for %u x %u pixels", path, width, height);
}

void picture_free(picture_file* freed)
{
    free(freed->pixels);
    free(freed->parameters);
    *freed = (picture_file){0};
}

bool picture_fail(char* message, const char* format, ...)
{
    char raw[PICTURE_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    utf8_show(message, PICTURE_MESSAGE_BYTES, raw); // of names of files and of what codecs say
    return false;
}
