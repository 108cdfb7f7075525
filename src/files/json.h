// A strict JSON reader (RFC 8259) that walks the text once and builds nothing: the caller asks for the next thing and
// says what it does with it. Made for an 11 MB tokenizer.json and for hostile safetensors headers: no token array,
// bounded depth, every malformed byte is refused with its position.
//
//     sumi_json j; sumi_json_begin(&j, text, bytes, error);
//     if (sumi_json_object(&j)) while (sumi_json_key(&j, &key)) { if (sumi_json_is(&key, "vocab")) ...; else sumi_json_skip(&j); }
//     SUMI_TRY(sumi_json_end(&j));             // the first error of the whole walk, if any; also refuses bytes after the value
//
// After an error every call returns false / zero, so loops end by themselves and one check at the end is enough.
#ifndef SUMI_FILES_JSON_H
#define SUMI_FILES_JSON_H
#include "base/result.h"

#define SUMI_JSON_MAX_DEPTH 64

// a string as it stands between its quotes
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
    const char* name; // of the text, for messages: set it after begin; NULL: "the JSON text"
    // what malformed text is reported as: SUMI_FILE_MALFORMED unless changed after begin
    sumi_result failure;
    int32_t depth;
    bool failed;
    uint8_t state[SUMI_JSON_MAX_DEPTH + 1]; // per level: first / later member, object / array
} sumi_json;

void sumi_json_begin(sumi_json* json, const void* text, size_t bytes, sumi_error* error);
sumi_result sumi_json_end(sumi_json* json);
sumi_json_type sumi_json_peek(sumi_json* json); // the next value's type, nothing consumed

bool sumi_json_object(sumi_json* json); // enters an object; any other value is an error
// the next key; false at the closing brace, which is consumed
bool sumi_json_key(sumi_json* json, sumi_json_text* out_key);
bool sumi_json_array(sumi_json* json);
// true when another item follows; false at the closing bracket, which is consumed
bool sumi_json_item(sumi_json* json);
bool sumi_json_string(sumi_json* json, sumi_json_text* out_text);
// correctly rounded for up to 19 digits and powers of ten to 22, else within 1e-15; no overflow
double sumi_json_number(sumi_json* json);
int64_t sumi_json_integer(sumi_json* json);   // exact; a fraction, exponent or overflow is an error
uint64_t sumi_json_unsigned(sumi_json* json); // as integer; any minus sign is an error
bool sumi_json_bool(sumi_json* json);
// consumes null and returns true; false and nothing consumed otherwise
bool sumi_json_null(sumi_json* json);
void sumi_json_skip(sumi_json* json); // any value, checked as strictly as if it were read

// Marks the walk as failed with a reason of the caller's ("shape is negative"); adds the byte position.
void sumi_json_refuse(sumi_json* json, const char* reason);

// Strings: compare with a literal, or decode escapes into UTF-8 (surrogate pairs joined, lone surrogates refused at
// reading time).
bool sumi_json_is(const sumi_json_text* text, const char* literal);
// bytes needed, no terminator; writes when they fit (bytes <= text->bytes always suffice)
size_t sumi_json_decode(const sumi_json_text* text, char* into, size_t capacity);

// Whether bytes are well-formed UTF-8: no overlong forms, no surrogates, nothing past U+10FFFF.
bool sumi_utf8_is_valid(const void* text, size_t bytes);
#endif
