// Writes JSON for --json, indented by two blanks. `key` is NULL inside an array and for the outermost value.
#ifndef JSON_OUT_H
#define JSON_OUT_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define JSON_MAX_DEPTH 16

typedef struct json_out {
    FILE* file;
    int depth;
    bool has_items[JSON_MAX_DEPTH]; // of the objects and arrays that are open
} json_out;

void json_begin_object(json_out* out, const char* key);
void json_end_object(json_out* out); // the outermost one ends the line, too
void json_begin_array(json_out* out, const char* key);
void json_end_array(json_out* out);
void json_text(json_out* out, const char* key, const char* text); // NULL: null; bytes that are not UTF-8: U+FFFD
void json_integer(json_out* out, const char* key, int64_t value);
void json_unsigned(json_out* out, const char* key, uint64_t value);
void json_number(json_out* out, const char* key, double value); // not finite: null
void json_bool(json_out* out, const char* key, bool value);
#endif
