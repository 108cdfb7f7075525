#include "exif.h"
#include "utf8.h"
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define TAG_ORIENTATION 0x0112
#define TAG_EXIF_FOLDER 0x8769
#define TAG_USER_COMMENT 0x9286
#define TYPE_LONG 4
#define ENTRY_BYTES 12

typedef struct tiff {
    const uint8_t* data;
    size_t bytes;
    bool is_little_endian;
} tiff;

// Reading past the end gives 0, which is no tag, no count and no offset that is used.
static uint32_t read_number(const tiff* file, size_t offset, size_t number_bytes)
{
    if (offset > file->bytes || file->bytes - offset < number_bytes) return 0;
    uint32_t value = 0;
    for (size_t i = 0; i < number_bytes; i++)
        value = value << 8 | file->data[offset + (file->is_little_endian ? number_bytes - 1 - i : i)];
    return value;
}

// The offset of the last entry with this tag in the folder (image file directory) at `folder`; 0: there is none.
static size_t find_entry(const tiff* file, size_t folder, uint32_t tag)
{
    const size_t count = folder ? read_number(file, folder, 2) : 0;
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t entry = folder + 2 + i * ENTRY_BYTES;
        if (entry + ENTRY_BYTES > file->bytes) break;
        if (read_number(file, entry, 2) == tag) found = entry;
    }
    return found;
}

// UTF-16 without a byte order mark: most characters of a prompt have one byte that is 0, and it is the high one.
static bool looks_little_endian(const uint8_t* units, size_t unit_count)
{
    size_t even_zeros = 0, odd_zeros = 0;
    for (size_t i = 0; i < unit_count; i++) {
        even_zeros += units[2 * i] == 0;
        odd_zeros += units[2 * i + 1] == 0;
    }
    return odd_zeros > even_zeros;
}

// A comment begins with 8 bytes that name its encoding.
static char* read_comment(const uint8_t* text, size_t bytes)
{
    if (bytes < 8) return NULL;
    const bool is_unicode = memcmp(text, "UNICODE", 8) == 0;
    text += 8, bytes -= 8;
    if (is_unicode) {
        size_t count = bytes / 2;
        bool is_little_endian = looks_little_endian(text, count);
        if (count > 0 && (memcmp(text, "\xFF\xFE", 2) == 0 || memcmp(text, "\xFE\xFF", 2) == 0)) {
            is_little_endian = text[0] == 0xFF;
            text += 2, count--;
        }
        return utf8_from_utf16(text, count, is_little_endian);
    }
    const uint8_t* end = memchr(text, 0, bytes);
    const size_t length = end ? (size_t)(end - text) : bytes;
    uint32_t ignored;
    for (size_t i = 0, step; i < length; i += step) {
        step = utf8_decode((const char*)text + i, length - i, &ignored);
        if (step == 0) return utf8_from_latin1((const char*)text, length);
    }
    char* copy = malloc(length + 1);
    if (copy) {
        memcpy(copy, text, length);
        copy[length] = 0;
    }
    return copy;
}

static char* find_comment(const tiff* file, size_t folder)
{
    size_t entry = find_entry(file, folder, TAG_EXIF_FOLDER);
    if (entry) entry = find_entry(file, read_number(file, entry + 8, 4), TAG_USER_COMMENT);
    const size_t count = entry ? read_number(file, entry + 4, 4) : 0,
                 offset = entry ? read_number(file, entry + 8, 4) : 0;
    if (count < 8 || offset > file->bytes || count > file->bytes - offset) return NULL;
    char* comment = read_comment(file->data + offset, count);
    if (comment && comment[0] != 0) return comment;
    free(comment);
    return NULL;
}

void exif_read(const uint8_t* block, size_t bytes, int* orientation, char** comment)
{
    if (bytes >= 6 && memcmp(block, "Exif\0", 6) == 0) block += 6, bytes -= 6;
    if (bytes < 8 || (memcmp(block, "II*\0", 4) != 0 && memcmp(block, "MM\0*", 4) != 0)) return;
    const tiff file = {block, bytes, block[0] == 'I'};
    const size_t folder = read_number(&file, 4, 4), entry = find_entry(&file, folder, TAG_ORIENTATION);
    const bool is_long = entry && read_number(&file, entry + 2, 2) == TYPE_LONG;
    const uint32_t turned = entry ? read_number(&file, entry + 8, is_long ? 4 : 2) : 0;
    if (*orientation == 0 && turned <= 8) *orientation = (int)turned;
    if (!*comment) *comment = find_comment(&file, folder);
}

// ---- Writing: header, a folder with one entry, the EXIF folder with one entry, the comment; big-endian ------------------
static uint8_t* put_number(uint8_t* to, uint32_t value, int number_bytes)
{
    for (int i = number_bytes - 1; i >= 0; i--) *to++ = (uint8_t)(value >> 8 * i);
    return to;
}

static uint8_t* put_folder(uint8_t* to, uint32_t tag, uint32_t type, uint32_t count, uint32_t value)
{
    to = put_number(to, 1, 2); // entries
    to = put_number(to, tag, 2);
    to = put_number(to, type, 2);
    to = put_number(to, count, 4);
    to = put_number(to, value, 4);
    return put_number(to, 0, 4); // no further folder
}

uint8_t* exif_write(const char* comment, size_t* out_bytes)
{
    enum { HEADER = 8, FOLDER = 2 + ENTRY_BYTES + 4, UNDEFINED = 7 };
    const size_t length = strlen(comment);
    uint8_t* block = malloc(HEADER + 2 * FOLDER + 8 + 2 * length); // a character takes no more UTF-16 units than bytes
    if (!block) return NULL;
    uint8_t* text = block + HEADER + 2 * FOLDER;
    memcpy(text, "UNICODE", 8);
    text += 8;
    for (size_t i = 0, step; i < length; i += step) {
        uint32_t code_point = 0xFFFD;
        step = utf8_decode(comment + i, length - i, &code_point);
        if (step == 0) step = 1;
        if (code_point >= 0x10000) {
            text = put_number(text, 0xD800 + ((code_point - 0x10000) >> 10), 2);
            code_point = 0xDC00 + ((code_point - 0x10000) & 0x3FF);
        }
        text = put_number(text, code_point, 2);
    }
    const uint32_t comment_bytes = (uint32_t)(text - block - HEADER - 2 * FOLDER);
    memcpy(block, "MM\0*", 4);
    uint8_t* at = put_number(block + 4, HEADER, 4);
    at = put_folder(at, TAG_EXIF_FOLDER, TYPE_LONG, 1, HEADER + FOLDER);
    put_folder(at, TAG_USER_COMMENT, UNDEFINED, comment_bytes, HEADER + 2 * FOLDER);
    *out_bytes = (size_t)(text - block);
    return block;
}
