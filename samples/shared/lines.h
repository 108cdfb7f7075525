// A text file of which every line is an item, such as a prompt.
#ifndef LINES_H
#define LINES_H
#include <stdbool.h>
#include <stdint.h>

typedef struct lines {
    char** at;     // the lines that are not empty, without their ends
    int32_t count; // 0: the file cannot be read, or has no such line
    char* text;    // the memory that they are in
} lines;

lines lines_read(const char* path);
void lines_free(lines* l);
#endif
