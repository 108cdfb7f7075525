#include "lines.h"
#include "system.h"
#include <stdlib.h>
#include <string.h>

lines lines_read(const char* path)
{
    lines l = {0};
    FILE* file = system_open(path, "rb");
    if (!file) return l;
    const long bytes = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    l.text = bytes > 0 ? calloc((size_t)bytes + 1, 1) : NULL;
    l.at = l.text ? malloc(((size_t)bytes + 1) * sizeof *l.at) : NULL;
    const bool is_read =
        l.at && fseek(file, 0, SEEK_SET) == 0 && fread(l.text, 1, (size_t)bytes, file) == (size_t)bytes;
    for (char* line = is_read ? strtok(l.text, "\r\n") : NULL; line; line = strtok(NULL, "\r\n"))
        l.at[l.count++] = line;
    fclose(file);
    return l;
}

void lines_free(lines* l)
{
    free(l->at);
    free(l->text);
    *l = (lines){0};
}
