// A strict JSON reader (RFC 8259; a byte order mark in front is passed over, as it allows) that passes over the text once and builds no tree: the caller asks for the next key,
// item or value and consumes or skips it. It is made for a tokenizer.json of 11 MB and for hostile safetensors headers:
// no token array, bounded depth, and every malformed byte is refused with its position.
//
//     sumi_json j; sumi_json_begin(&j, text, bytes, error);
//     if (sumi_json_object(&j)) while (sumi_json_key(&j, &key)) {
//         if (sumi_json_is(&key, "vocab")) ...; else sumi_json_skip(&j);
//     }
//     SUMI_TRY(sumi_json_end(&j)); // the first error of the whole text, if any; also refuses bytes after the value
//
// After an error every call returns false or zero, so loops end and one check at the end is enough.
#ifndef SUMI_FILES_JSON_H
#define SUMI_FILES_JSON_H
#include "base/result.h"

#define SUMI_JSON_MAX_DEPTH 64

// A string as it is between its quotes: escapes are not decoded.
typedef struct sumi_json_text {
    const char* data;
    size_t bytes;
    bool escaped;
} sumi_json_text;

typedef enum sumi_json_type {
    SUMI_JSON_ERROR,
    SUMI_JSON_OBJECT,
    SUMI_JSON_ARRAY,
    SUMI_JSON_STRING,
    SUMI_JSON_NUMBER,
    SUMI_JSON_TRUE,
    SUMI_JSON_FALSE,
    SUMI_JSON_NULL
} sumi_json_type;

typedef struct sumi_json {
    const char *begin, *at, *end;
    sumi_error* error;
    const char* name; // of the text, for messages; set it after begin. NULL: "the JSON text"
    // result code for malformed text: SUMI_FILE_MALFORMED unless changed after begin
    sumi_result failure;
    int32_t depth;
    bool failed;
    uint8_t state[SUMI_JSON_MAX_DEPTH + 1]; // per open bracket: is it an object, and has it had a member
} sumi_json;

void sumi_json_begin(sumi_json* json, const void* text, size_t bytes, sumi_error* error);
sumi_result sumi_json_end(sumi_json* json);
sumi_json_type sumi_json_peek(sumi_json* json); // the type of the next value; consumes nothing

bool sumi_json_object(sumi_json* json); // enters an object; any other value is an error
// Reads the next key. At the closing brace, consumes the brace and returns false.
bool sumi_json_key(sumi_json* json, sumi_json_text* out_key);
bool sumi_json_array(sumi_json* json);
// True if another item follows. At the closing bracket, consumes the bracket and returns false.
bool sumi_json_item(sumi_json* json);
bool sumi_json_string(sumi_json* json, sumi_json_text* out_text);
// Correctly rounded for up to 19 digits and powers of ten up to 22, otherwise within a relative error of 1e-15.
// Overflow is an error.
double sumi_json_number(sumi_json* json);
int64_t sumi_json_integer(sumi_json* json);   // exact; a fraction, exponent or overflow is an error
uint64_t sumi_json_unsigned(sumi_json* json); // as sumi_json_integer, and a minus sign is an error
bool sumi_json_bool(sumi_json* json);
// Consumes null and returns true, or consumes nothing and returns false.
bool sumi_json_null(sumi_json* json);
void sumi_json_skip(sumi_json* json); // passes over any value, checked as strictly as if it were read

// Marks the reading as failed with the caller's reason (such as "shape is negative") and the byte position.
void sumi_json_refuse(sumi_json* json, const char* reason);

// Compares a string with a literal. Escapes are decoded, surrogate pairs joined; lone surrogates were refused when the
// string was read.
bool sumi_json_is(const sumi_json_text* text, const char* literal);
// Decodes the string to UTF-8 without a terminator. Returns the bytes needed and writes only if they fit; text->bytes
// always suffice.
size_t sumi_json_decode(const sumi_json_text* text, char* into, size_t capacity);
#endif
