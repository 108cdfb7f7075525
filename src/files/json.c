// A pull reader for strict JSON (RFC 8259): one pass, no allocation, no recursion.
//
// The reader is a cursor and two bits for each open bracket: is it an object, and has it had a member. They determine
// what may come next:
//
//     {  "a"  :  [  1  ,  2  ]  }
//        key     ^item   ^item
//     depth 1    2              1 -> 0
//
// sumi_json_key and sumi_json_item consume the comma or the closing bracket; a value function consumes exactly one
// value. If a caller does not consume the value it was offered, the reader finds that value where a comma is due: such
// a mistake is an error, never an endless loop. The reader checks every byte that the cursor passes, also in skipped
// values: a text that sumi_json_end accepts is valid JSON from the first byte to the last.
#include "files/json.h"
#include "base/assert.h"
#include "base/utf8.h"
#include <math.h>
#include <string.h>

enum { IS_OBJECT = 1, HAS_MEMBERS = 2 };

// ---- Failure --------------------------------------------------------------------------------------------------------

void sumi_json_refuse(sumi_json* json, const char* reason)
{
    SUMI_ASSERT(json->at >= json->begin && json->at <= json->end);
    if (!json->failed) {
        json->failed = true;
        sumi_fail(json->error, json->failure, "%s: %s at byte %llu of its JSON",
                  json->name != NULL ? json->name : "the JSON text", reason,
                  (unsigned long long)(json->at - json->begin));
    }
    json->at = json->end; // nothing more is read, so every loop ends
}

void sumi_json_begin(sumi_json* json, const void* text, size_t bytes, sumi_error* error)
{
    memset(json, 0, sizeof *json);
    json->begin = json->at = bytes > 0 ? text : "";
    json->end = json->begin + bytes;
    if (bytes >= 3 && memcmp(json->at, "\xEF\xBB\xBF", 3) == 0) json->at += 3; // editors on Windows write the mark
    json->error = error;
    json->failure = SUMI_FILE_MALFORMED;
}

static void skip_space(sumi_json* json)
{
    while (json->at < json->end && (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t'))
        json->at++;
}

sumi_result sumi_json_end(sumi_json* json)
{
    if (!json->failed) {
        skip_space(json);
        if (json->depth != 0) {
            sumi_json_refuse(json, "the reader stopped inside a bracket");
        } else if (json->at != json->end) {
            sumi_json_refuse(json, "more text follows the value");
        }
    }
    return json->failed ? json->failure : SUMI_OK;
}

sumi_json_type sumi_json_peek(sumi_json* json)
{
    if (json->failed) return SUMI_JSON_ERROR;
    skip_space(json);
    if (json->at == json->end) {
        sumi_json_refuse(json, "the text ends where a value is expected");
        return SUMI_JSON_ERROR;
    }
    switch (*json->at) {
    case '{': return SUMI_JSON_OBJECT;
    case '[': return SUMI_JSON_ARRAY;
    case '"': return SUMI_JSON_STRING;
    case 't': return SUMI_JSON_TRUE;
    case 'f': return SUMI_JSON_FALSE;
    case 'n': return SUMI_JSON_NULL;
    case '-':
    case '0':
    case '1':
    case '2':
    case '3':
    case '4':
    case '5':
    case '6':
    case '7':
    case '8':
    case '9': return SUMI_JSON_NUMBER;
    default: sumi_json_refuse(json, "expected a value"); return SUMI_JSON_ERROR;
    }
}

// ---- Brackets -------------------------------------------------------------------------------------------------------

static bool enter(sumi_json* json, sumi_json_type type, const char* reason)
{
    SUMI_ASSERT(type == SUMI_JSON_OBJECT || type == SUMI_JSON_ARRAY);
    const sumi_json_type found = sumi_json_peek(json);
    if (found == SUMI_JSON_ERROR) return false;
    if (found != type) {
        sumi_json_refuse(json, reason);
        return false;
    }
    if (json->depth == SUMI_JSON_MAX_DEPTH) {
        sumi_json_refuse(json, "nested more than 64 deep");
        return false;
    }
    json->at++;
    json->depth++;
    json->state[json->depth] = type == SUMI_JSON_OBJECT ? IS_OBJECT : 0;
    return true;
}

bool sumi_json_object(sumi_json* json) { return enter(json, SUMI_JSON_OBJECT, "expected an object"); }

bool sumi_json_array(sumi_json* json) { return enter(json, SUMI_JSON_ARRAY, "expected an array"); }

// Consumes the comma between members or the closing bracket. True if a member follows.
static bool next_member(sumi_json* json, char closing, uint8_t kind)
{
    SUMI_ASSERT(json->failed || (json->depth >= 0 && json->depth <= SUMI_JSON_MAX_DEPTH));
    if (json->failed) return false;
    if (json->depth == 0 || (json->state[json->depth] & IS_OBJECT) != kind) {
        sumi_json_refuse(json, "the reader is not in such a bracket");
        return false;
    }
    skip_space(json);
    if (json->at == json->end) {
        sumi_json_refuse(json, kind == IS_OBJECT ? "the text ends inside an object" : "the text ends inside an array");
        return false;
    }
    if (*json->at == closing) {
        json->at++;
        json->depth--;
        return false;
    }
    if (json->state[json->depth] & HAS_MEMBERS) {
        if (*json->at != ',') {
            sumi_json_refuse(json, "expected a comma or the closing bracket");
            return false;
        }
        json->at++;
        skip_space(json);
        if (json->at < json->end && *json->at == closing) {
            sumi_json_refuse(json, "a comma before the closing bracket");
            return false;
        }
    }
    json->state[json->depth] |= HAS_MEMBERS;
    return true;
}

bool sumi_json_item(sumi_json* json) { return next_member(json, ']', 0); }

// ---- Strings --------------------------------------------------------------------------------------------------------

// True if none of the eight bytes is a quote, a backslash, a control character or a byte >= 0x80. This is the case for
// most of the text of most files.
static bool eight_plain(const char* at)
{
    uint64_t x;
    memcpy(&x, at, sizeof x);
    const uint64_t ones = 0x0101010101010101u, tops = 0x8080808080808080u;
    const uint64_t control = x - 0x20 * ones, quote = (x ^ 0x22 * ones) - ones, escape = (x ^ 0x5c * ones) - ones;
    return ((x | control | quote | escape) & tops) == 0;
}

static int32_t hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

// The value of four hex digits; -1 if they are not hex digits.
static int32_t hex_four(const char* at, const char* end)
{
    if (end - at < 4) return -1;
    int32_t value = 0;
    for (int32_t i = 0; i < 4; i++) {
        const int32_t digit = hex_digit(at[i]);
        if (digit < 0) return -1;
        value = value * 16 + digit;
    }
    return value;
}

// Moves the cursor past the escape that begins at it (with a backslash).
static bool skip_escape(sumi_json* json)
{
    SUMI_ASSERT(json->at < json->end && *json->at == '\\');
    const char* at = json->at;
    if (json->end - at < 2) {
        sumi_json_refuse(json, "the text ends inside a string");
        return false;
    }
    if (at[1] != 'u') {
        if (at[1] == '\0' || strchr("\"\\/bfnrt", at[1]) == NULL) {
            sumi_json_refuse(json, "an escape that JSON does not have");
            return false;
        }
        json->at += 2;
        return true;
    }
    const int32_t unit = hex_four(at + 2, json->end);
    if (unit < 0) {
        sumi_json_refuse(json, "\\u without four hex digits");
        return false;
    }
    json->at += 6;
    if (unit >= 0xd800 && unit < 0xe000) {
        const int32_t low = unit < 0xdc00 && json->end - json->at >= 6 && json->at[0] == '\\' && json->at[1] == 'u'
                              ? hex_four(json->at + 2, json->end)
                              : -1;
        if (low < 0xdc00 || low >= 0xe000) {
            json->at = at;
            sumi_json_refuse(json, "a lone surrogate in an escape");
            return false;
        }
        json->at += 6;
    }
    return true;
}

// Reads the string whose opening quote is at the cursor.
static bool read_string(sumi_json* json, sumi_json_text* out_text)
{
    SUMI_ASSERT(json->at < json->end && *json->at == '"');
    json->at++;
    const char* begin = json->at;
    bool escaped = false;
    for (;;) {
        while (json->end - json->at >= 8 && eight_plain(json->at)) json->at += 8;
        if (json->at == json->end) {
            sumi_json_refuse(json, "the text ends inside a string");
            return false;
        }
        const unsigned char c = (unsigned char)*json->at;
        if (c == '"') {
            break;
        } else if (c == '\\') {
            escaped = true;
            if (!skip_escape(json)) return false;
        } else if (c < 0x20) {
            sumi_json_refuse(json, "a control character in a string");
            return false;
        } else {
            bool is_valid;
            const size_t step = sumi_utf8_part(json->at, (size_t)(json->end - json->at), &is_valid);
            if (!is_valid) {
                sumi_json_refuse(json, "a string that is not UTF-8");
                return false;
            }
            json->at += step;
        }
    }
    *out_text = (sumi_json_text){begin, (size_t)(json->at - begin), escaped};
    json->at++;
    return true;
}

bool sumi_json_string(sumi_json* json, sumi_json_text* out_text)
{
    *out_text = (sumi_json_text){"", 0, false};
    const sumi_json_type found = sumi_json_peek(json);
    if (found == SUMI_JSON_ERROR) return false;
    if (found != SUMI_JSON_STRING) {
        sumi_json_refuse(json, "expected a string");
        return false;
    }
    return read_string(json, out_text);
}

bool sumi_json_key(sumi_json* json, sumi_json_text* out_key)
{
    *out_key = (sumi_json_text){"", 0, false};
    if (!next_member(json, '}', IS_OBJECT)) return false;
    if (json->at == json->end || *json->at != '"') {
        sumi_json_refuse(json, "expected a key in double quotes");
        return false;
    }
    if (!read_string(json, out_key)) return false;
    skip_space(json);
    if (json->at == json->end || *json->at != ':') {
        sumi_json_refuse(json, "expected a colon after the key");
        return false;
    }
    json->at++;
    return true;
}

// Decodes the next byte or escape of a string that has been read, as UTF-8 into out, and advances *at. Returns the
// bytes written, at most 4.
static size_t next_decoded(const char** at, const char* end, char out[4])
{
    SUMI_ASSERT(*at < end);
    const char* p = *at;
    if (*p != '\\') {
        *at = p + 1;
        out[0] = *p;
        return 1;
    }
    if (p[1] != 'u') {
        static const char s_from[] = "\"\\/bfnrt", s_to[] = "\"\\/\b\f\n\r\t";
        out[0] = s_to[strchr(s_from, p[1]) - s_from];
        *at = p + 2;
        return 1;
    }
    uint32_t c = (uint32_t)hex_four(p + 2, end);
    *at = p + 6;
    if (c >= 0xd800 && c < 0xe000) {
        c = 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)hex_four(p + 8, end) - 0xdc00);
        SUMI_ASSERT(c >= 0x10000 && c <= 0x10ffff);
        *at = p + 12;
    }
    return sumi_utf8_encode(c, out);
}

bool sumi_json_is(const sumi_json_text* text, const char* literal)
{
    size_t left = strlen(literal);
    if (!text->escaped) return text->bytes == left && memcmp(text->data, literal, left) == 0;
    const char *at = text->data, *end = at + text->bytes;
    while (at < end) {
        char piece[4];
        const size_t bytes = next_decoded(&at, end, piece);
        if (bytes > left || memcmp(piece, literal, bytes) != 0) return false;
        literal += bytes;
        left -= bytes;
    }
    return left == 0;
}

size_t sumi_json_decode(const sumi_json_text* text, char* into, size_t capacity)
{
    if (!text->escaped) {
        if (text->bytes > 0 && text->bytes <= capacity) memcpy(into, text->data, text->bytes);
        return text->bytes;
    }
    const char* end = text->data + text->bytes;
    size_t needed = 0;
    for (const char* at = text->data; at < end;) {
        char piece[4];
        needed += next_decoded(&at, end, piece);
    }
    if (needed <= capacity) {
        for (const char* at = text->data; at < end;) {
            char piece[4];
            const size_t bytes = next_decoded(&at, end, piece);
            memcpy(into, piece, bytes);
            into += bytes;
        }
    }
    return needed;
}

// ---- Numbers --------------------------------------------------------------------------------------------------------

static bool is_digit(const sumi_json* json, const char* at) { return at < json->end && *at >= '0' && *at <= '9'; }

typedef struct number {
    const char *begin, *end;
    bool negative, is_integer; // is_integer: without fraction and exponent
} number;

// Moves the cursor past one number and checks its grammar: -? (0 | [1-9][0-9]*) (. [0-9]+)? ([eE] [+-]? [0-9]+)?
static bool read_json_number(sumi_json* json, number* out)
{
    const sumi_json_type found = sumi_json_peek(json);
    if (found == SUMI_JSON_ERROR) return false;
    if (found != SUMI_JSON_NUMBER) {
        sumi_json_refuse(json, "expected a number");
        return false;
    }
    const char* at = json->at;
    *out = (number){at, at, *at == '-', true};
    at += *at == '-';
    if (!is_digit(json, at)) {
        sumi_json_refuse(json, "a minus sign without digits");
        return false;
    }
    if (*at == '0' && is_digit(json, at + 1)) {
        sumi_json_refuse(json, "a number with a leading zero");
        return false;
    }
    while (is_digit(json, at)) at++;
    if (at < json->end && *at == '.') {
        out->is_integer = false;
        at++;
        if (!is_digit(json, at)) {
            sumi_json_refuse(json, "a decimal point without digits");
            return false;
        }
        while (is_digit(json, at)) at++;
    }
    if (at < json->end && (*at == 'e' || *at == 'E')) {
        out->is_integer = false;
        at++;
        at += at < json->end && (*at == '+' || *at == '-');
        if (!is_digit(json, at)) {
            sumi_json_refuse(json, "an exponent without digits");
            return false;
        }
        while (is_digit(json, at)) at++;
    }
    SUMI_ASSERT(at > json->at && at <= json->end);
    out->end = at;
    json->at = at;
    return true;
}

// The exact rounding error factor * power - product, where `product` is the rounded product, computed with Dekker's
// split into halves of 26 bits. C's fma is not used because MinGW-w64's rounds twice.
static double product_error(double factor, double power, double product)
{
    // the factor is scaled down so that the split does not overflow
    const double scale = fabs(factor) > 0x1p900 ? 0x1p-100 : 1.0, split = 0x1p27 + 1.0;
    factor *= scale;
    const double factor_wide = split * factor, factor_high = factor_wide - (factor_wide - factor),
                 factor_low = factor - factor_high;
    const double power_wide = split * power, power_high = power_wide - (power_wide - power),
                 power_low = power - power_high;
    const double scaled_error =
        ((factor_high * power_high - product * scale) + factor_high * power_low + factor_low * power_high)
        + factor_low * power_low;
    return scaled_error / scale;
}

// digits * 10^power as a double. Never negative; not finite if too large. Powers of ten up to 10^22 are exact in
// double, so the result for them is the exact product or quotient of value + low (below), rounded once: the quotient's
// remainder is exact because product_error gives the rounding error of quotient * power, and the correction is
// accurate to 2^-100 of the result. Larger powers are applied in steps of 10^22, each of which rounds once; no
// configuration file or score uses them.
static double scale_by_ten(uint64_t digits, int32_t power)
{
    SUMI_ASSERT(digits < UINT64_C(10000000000000000000));
    static const double s_tens[23] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                      1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    double value = (double)digits;
    // the rounding error of value; digits < 10^19, so value fits in 64 bits
    double low = (double)(int64_t)(digits - (uint64_t)value);
    for (; power > 22 && value > 0 && value <= 1e300; power -= 22) {
        value *= 1e22;
        low = 0;
    }
    for (; power < -22 && value > 0; power += 22) {
        value /= 1e22;
        low = 0;
    }
    if (value == 0) return 0;
    if (power > 22) return HUGE_VAL;
    if (power >= 0) {
        const double ten = s_tens[power], product = value * ten;
        return product <= 1.7976931348623157e308 ? product + (product_error(value, ten, product) + low * ten)
                                                 : HUGE_VAL;
    }
    const double ten = s_tens[-power], quotient = value / ten, product = quotient * ten;
    return quotient + ((value - product) - product_error(quotient, ten, product) + low) / ten;
}

double sumi_json_number(sumi_json* json)
{
    number text;
    if (!read_json_number(json, &text)) return 0;
    uint64_t digits = 0;
    int32_t power = 0, digit_count = 0;
    bool fraction = false;
    const char* at = text.begin + text.negative;
    for (; at < text.end && *at != 'e' && *at != 'E'; at++) {
        if (*at == '.') {
            fraction = true;
            continue;
        }
        if (digit_count < 19) {
            digits = digits * 10 + (uint64_t)(*at - '0');
            digit_count += digits > 0; // leading zeros do not count
            power -= fraction;
        } else {
            power += !fraction && power < 100000;
        }
        power = power < -100000 ? -100000 : power;
    }
    if (at < text.end) {
        at++;
        const bool minus = *at == '-';
        at += *at == '-' || *at == '+';
        int32_t exponent = 0;
        for (; at < text.end; at++) exponent = exponent < 100000 ? exponent * 10 + (*at - '0') : exponent;
        power += minus ? -exponent : exponent;
    }
    const double value = scale_by_ten(digits, power);
    if (!(value <= 1.7976931348623157e308)) {
        json->at = text.begin;
        sumi_json_refuse(json, "a number too large for a double");
        return 0;
    }
    return text.negative ? -value : value;
}

// The magnitude of an integer that fits int64_t (allow_minus) or uint64_t.
static uint64_t read_magnitude(sumi_json* json, bool allow_minus, bool* out_negative)
{
    number text;
    *out_negative = false;
    if (!read_json_number(json, &text)) return 0;
    uint64_t value = 0;
    const char* reason = !text.is_integer              ? "expected a whole number, without point or exponent"
                       : text.negative && !allow_minus ? "expected a number that is not negative"
                                                       : NULL;
    for (const char* at = text.begin + text.negative; reason == NULL && at < text.end; at++) {
        const uint64_t digit = (uint64_t)(*at - '0');
        if (value > (UINT64_MAX - digit) / 10) reason = "a number that does not fit in 64 bits";
        value = value * 10 + digit;
    }
    const uint64_t limit = allow_minus ? (uint64_t)INT64_MAX + text.negative : UINT64_MAX;
    if (reason == NULL && value > limit) reason = "a number that does not fit in 64 bits";
    if (reason != NULL) {
        json->at = text.begin;
        sumi_json_refuse(json, reason);
        return 0;
    }
    *out_negative = text.negative;
    return value;
}

int64_t sumi_json_integer(sumi_json* json)
{
    bool negative;
    const uint64_t magnitude = read_magnitude(json, true, &negative);
    return !negative ? (int64_t)magnitude : magnitude == 0 ? 0 : -(int64_t)(magnitude - 1) - 1;
}

uint64_t sumi_json_unsigned(sumi_json* json)
{
    bool negative;
    return read_magnitude(json, false, &negative);
}

// ---- Literals and skipping ------------------------------------------------------------------------------------------

static bool read_literal(sumi_json* json, const char* literal)
{
    SUMI_ASSERT(json->at < json->end && *json->at == *literal);
    const size_t bytes = strlen(literal);
    if ((size_t)(json->end - json->at) < bytes || memcmp(json->at, literal, bytes) != 0) {
        sumi_json_refuse(json, "a word that is neither true, false nor null");
        return false;
    }
    json->at += bytes;
    return true;
}

bool sumi_json_bool(sumi_json* json)
{
    const sumi_json_type found = sumi_json_peek(json);
    if (found == SUMI_JSON_TRUE) return read_literal(json, "true");
    if (found == SUMI_JSON_FALSE) {
        read_literal(json, "false");
    } else if (found != SUMI_JSON_ERROR) {
        sumi_json_refuse(json, "expected true or false");
    }
    return false;
}

bool sumi_json_null(sumi_json* json) { return sumi_json_peek(json) == SUMI_JSON_NULL && read_literal(json, "null"); }

void sumi_json_skip(sumi_json* json)
{
    const int32_t depth = json->depth;
    sumi_json_text text;
    number passed;
    do {
        switch (sumi_json_peek(json)) {
        case SUMI_JSON_OBJECT: sumi_json_object(json); break;
        case SUMI_JSON_ARRAY: sumi_json_array(json); break;
        case SUMI_JSON_STRING: read_string(json, &text); break;
        case SUMI_JSON_NUMBER: read_json_number(json, &passed); break;
        case SUMI_JSON_TRUE:
        case SUMI_JSON_FALSE: sumi_json_bool(json); break;
        case SUMI_JSON_NULL: sumi_json_null(json); break;
        case SUMI_JSON_ERROR: return;
        }
        // move to the next value inside the skipped value and pass the brackets that end before it
        while (json->depth > depth && !json->failed) {
            if (json->state[json->depth] & IS_OBJECT ? sumi_json_key(json, &text) : sumi_json_item(json)) break;
        }
    } while (json->depth > depth && !json->failed);
}
