// The file is produced through a sink that counts or copies: the first pass counts the header's bytes, the second
// writes the file.
#include "base/assert.h"
#include "files/tensors.h"
#include <string.h>

typedef struct sink {
    unsigned char* at; // NULL: the sink only counts
    uint64_t bytes;
} sink;

// data NULL: leaves bytes out, which the caller writes.
static void put_bytes(sink* s, const void* data, uint64_t bytes)
{
    if (s->at != NULL && bytes > 0) {
        if (data != NULL) memcpy(s->at, data, (size_t)bytes);
        s->at += bytes;
    }
    s->bytes += bytes;
}

static void put_header_text(sink* s, const char* text) { put_bytes(s, text, strlen(text)); }

static void put_number(sink* s, uint64_t value)
{
    char digits[20];
    size_t begin = sizeof digits;
    do {
        digits[--begin] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    put_bytes(s, digits + begin, sizeof digits - begin);
}

static void put_quoted(sink* s, const char* text)
{
    static const char s_hex[] = "0123456789abcdef";
    put_bytes(s, "\"", 1);
    for (; *text != '\0'; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            put_bytes(s, "\\", 1);
            put_bytes(s, text, 1);
        } else if (c < 0x20) {
            const char escape[6] = {'\\', 'u', '0', '0', s_hex[c >> 4], s_hex[c & 15]};
            put_bytes(s, escape, sizeof escape);
        } else {
            put_bytes(s, text, 1);
        }
    }
    put_bytes(s, "\"", 1);
}

static void put_header(sink* s, const sumi_tensor* tensors, size_t count, const sumi_metadata* metadata,
                       size_t metadata_count)
{
    put_bytes(s, "{", 1);
    if (metadata_count > 0) {
        put_header_text(s, "\"__metadata__\":{");
        for (size_t i = 0; i < metadata_count; i++) {
            put_header_text(s, i > 0 ? "," : "");
            put_quoted(s, metadata[i].key);
            put_bytes(s, ":", 1);
            put_quoted(s, metadata[i].value);
        }
        put_bytes(s, "}", 1);
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        put_header_text(s, i > 0 || metadata_count > 0 ? "," : "");
        put_quoted(s, tensors[i].name);
        put_header_text(s, ":{\"dtype\":");
        put_quoted(s, sumi_dtype_get(tensors[i].dtype)->name);
        put_header_text(s, ",\"shape\":[");
        for (int32_t k = 0; k < tensors[i].rank; k++) {
            put_header_text(s, k > 0 ? "," : "");
            put_number(s, (uint64_t)tensors[i].shape[k]);
        }
        put_header_text(s, "],\"data_offsets\":[");
        put_number(s, offset);
        put_bytes(s, ",", 1);
        offset += tensors[i].bytes;
        put_number(s, offset);
        put_header_text(s, "]}");
    }
    put_bytes(s, "}", 1);
}

uint64_t sumi_safetensors_write(const sumi_tensor* tensors, size_t count, const sumi_metadata* metadata,
                                size_t metadata_count, void* into, uint64_t capacity)
{
    SUMI_ASSERT(count == 0 || tensors != NULL);
    sink counted = {NULL, 0};
    put_header(&counted, tensors, count, metadata, metadata_count);
    const uint64_t padded = (counted.bytes + 7) / 8 * 8; // the data begins at a multiple of 8
    uint64_t needed = 8 + padded;
    for (size_t i = 0; i < count; i++) {
        needed += tensors[i].bytes;
        SUMI_ASSERT(sumi_dtype_get(tensors[i].dtype)->block == 1); // GGUF's block types have no name in this format
    }
    if (into == NULL || needed > capacity) return needed;
    sink written = {into, 0};
    for (int32_t i = 0; i < 8; i++) { put_bytes(&written, &(unsigned char){(unsigned char)(padded >> (8 * i))}, 1); }
    put_header(&written, tensors, count, metadata, metadata_count);
    put_bytes(&written, "       ", padded - counted.bytes);
    for (size_t i = 0; i < count; i++) put_bytes(&written, tensors[i].data, tensors[i].bytes);
    return needed;
}
