// Unicode for the tokenizers. NFC works on the smallest possible segments. Most text consists of "plain" code points,
// which never change and never compose with a preceding code point. Only a run of other code points, with the plain
// code point before it, is decomposed and composed:
//
//     x y z e ◌̣ ◌́ a b          z and e are plain; the segment is  e ◌̣ ◌́ ; everything else is copied
//           ^^^^^^^
//
// The canonical ordering is written here because utf8proc_decompose sorts by swapping adjacent marks, which is
// quadratic in a run of marks: a 100 kB prompt of alternating marks would take seconds. utf8proc_normalize_utf32
// composes in linear time. Neither utf8proc_decompose_char nor utf8proc_normalize_utf32 allocates.
#include "text/unicode.h"
#include <utf8proc.h>

typedef struct code_point_range {
    uint32_t first, last;
} code_point_range;

#include "text/unicode_tables.inc"

#define RANGE_COUNT(table) (sizeof(table) / sizeof *(table))

static bool in_ranges(const code_point_range* ranges, size_t count, uint32_t code_point)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (code_point > ranges[middle].last) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && code_point >= ranges[low].first;
}

// ---- UTF-8 ----------------------------------------------------------------------------------------------------------

sumi_result sumi_utf8_repair(sumi_heap* heap, sumi_text_buffer* out, const char* text, size_t bytes, sumi_error* error)
{
    size_t at = 0, copied = 0;
    while (at < bytes) {
        bool valid;
        size_t length = sumi_utf8_part(text + at, bytes - at, &valid);
        if (!valid) {
            SUMI_TRY(sumi_text_append(heap, out, text + copied, at - copied, error));
            SUMI_TRY(sumi_text_append(heap, out, "\xEF\xBF\xBD", 3, error));
            copied = at + length;
        }
        at += length;
    }
    return sumi_text_append(heap, out, text + copied, at - copied, error);
}

// ---- Classes --------------------------------------------------------------------------------------------------------

bool sumi_char_is_space(uint32_t code_point)
{
    if (code_point < 0x80) { return code_point == ' ' || (code_point >= '\t' && code_point <= '\r'); }
    return in_ranges(s_spaces, RANGE_COUNT(s_spaces), code_point);
}

sumi_char_class sumi_char_classify(uint32_t code_point)
{
    if (code_point < 0x80) {
        if ((code_point | 0x20) >= 'a' && (code_point | 0x20) <= 'z') { return SUMI_CHAR_LETTER; }
        if (code_point >= '0' && code_point <= '9') { return SUMI_CHAR_NUMBER; }
        return sumi_char_is_space(code_point) ? SUMI_CHAR_SPACE : SUMI_CHAR_OTHER;
    }
    if (in_ranges(s_letters, RANGE_COUNT(s_letters), code_point)) { return SUMI_CHAR_LETTER; }
    if (in_ranges(s_numbers, RANGE_COUNT(s_numbers), code_point)) { return SUMI_CHAR_NUMBER; }
    return in_ranges(s_spaces, RANGE_COUNT(s_spaces), code_point) ? SUMI_CHAR_SPACE : SUMI_CHAR_OTHER;
}

bool sumi_char_is_word(uint32_t code_point)
{
    // Alphabetic + marks + decimal digits + connectors + joiners. Beyond letters, letter numbers and marks, Alphabetic
    // contains only the circled letters.
    if (sumi_char_classify(code_point) == SUMI_CHAR_LETTER || code_point == 0x200C || code_point == 0x200D) {
        return true;
    }
    switch (utf8proc_category((utf8proc_int32_t)code_point)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: break;
    }
    return (code_point >= 0x24B6 && code_point <= 0x24E9) || (code_point >= 0x1F130 && code_point <= 0x1F149)
        || (code_point >= 0x1F150 && code_point <= 0x1F169) || (code_point >= 0x1F170 && code_point <= 0x1F189);
}

// ---- NFC ------------------------------------------------------------------------------------------------------------

// NFC_Quick_Check = Yes and combining class 0: the code point never changes and never composes with a preceding one.
// Covers a few large ranges, not all such code points.
static bool is_plain(uint32_t code_point)
{
    return code_point < 0x300 || (code_point >= 0x4E00 && code_point <= 0x9FFF)
        || (code_point >= 0x3400 && code_point <= 0x4DBF) || (code_point >= 0xAC00 && code_point <= 0xD7A3)
        || (code_point >= 0x3041 && code_point <= 0x3096) || (code_point >= 0x30A1 && code_point <= 0x30FA)
        || (code_point >= 0x0400 && code_point <= 0x0482) || (code_point >= 0x048A && code_point <= 0x052F)
        || (code_point >= 0x2010 && code_point <= 0x205E) || (code_point >= 0x3000 && code_point <= 0x3029)
        || (code_point >= 0xFF01 && code_point <= 0xFF60);
}

// The code point is copied, and nothing composes across it.
static bool is_standalone(uint32_t code_point)
{
    // U+11A7 precedes the first trailing consonant of Hangul; utf8proc 2.8 takes it for a trailing consonant of index 0
    // and drops it
    return code_point == 0x11A7 || in_ranges(s_nfc_apart, RANGE_COUNT(s_nfc_apart), code_point);
}

bool sumi_nfc_is_plain(const char* text, size_t bytes)
{
    for (size_t at = 0, length; at < bytes; at += length) {
        if (!is_plain(sumi_utf8_get(text + at, &length))) { return false; }
    }
    return true;
}

static int32_t combining_class(int32_t code_point) { return utf8proc_get_property(code_point)->combining_class; }

// Sorts a run of marks by combining class, stably. Runs are short except in hostile text: insertion sort for up to 32
// marks, counting sort above.
static sumi_result sort_marks(sumi_heap* heap, sumi_nfc_scratch* scratch, size_t begin, size_t end, sumi_error* error)
{
    size_t count = end - begin;
    int32_t* points = scratch->points;
    if (count <= 32) {
        for (size_t i = begin + 1; i < end; i++) {
            int32_t mark = points[i], order = combining_class(mark);
            size_t to = i;
            for (; to > begin && combining_class(points[to - 1]) > order; to--) { points[to] = points[to - 1]; }
            points[to] = mark;
        }
        return SUMI_OK;
    }
    SUMI_TRY(sumi_grow(heap, &scratch->points, &scratch->capacity, end + count, sizeof(int32_t), error));
    points = scratch->points;
    size_t first[257] = {0};
    for (size_t i = begin; i < end; i++) { first[combining_class(points[i]) + 1]++; }
    for (size_t i = 1; i < 257; i++) { first[i] += first[i - 1]; }
    for (size_t i = begin; i < end; i++) { points[end + first[combining_class(points[i])]++] = points[i]; }
    memcpy(points + begin, points + end, count * sizeof *points);
    return SUMI_OK;
}

static sumi_result normalize_stretch(sumi_heap* heap, sumi_text_buffer* out, sumi_nfc_scratch* scratch,
                                     const char* text, size_t bytes, sumi_error* error)
{
    const utf8proc_option_t options = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    enum { MAX_DECOMPOSITION = 32 }; // canonical decompositions have at most 4 code points
    size_t count = 0;
    for (size_t at = 0, length; at < bytes; at += length) {
        SUMI_TRY(
            sumi_grow(heap, &scratch->points, &scratch->capacity, count + MAX_DECOMPOSITION, sizeof(int32_t), error));
        int32_t* points = scratch->points;
        int32_t code_point = (int32_t)sumi_utf8_get(text + at, &length);
        int last_boundclass = 0;
        utf8proc_ssize_t made =
            utf8proc_decompose_char(code_point, points + count, MAX_DECOMPOSITION, options, &last_boundclass);
        if (made < 0 || made > MAX_DECOMPOSITION) {
            return sumi_fail(error, SUMI_INTERNAL, "utf8proc cannot decompose U+%04X; use libutf8proc 2.8 or later",
                             (unsigned)code_point);
        }
        count += (size_t)made;
    }
    size_t run = 0; // begin of the run of marks that ends before i
    for (size_t i = 0; i <= count; i++) {
        if (i == count || combining_class(((int32_t*)scratch->points)[i]) == 0) {
            SUMI_TRY(sort_marks(heap, scratch, run, i, error));
            run = i + 1;
        }
    }
    utf8proc_ssize_t composed = utf8proc_normalize_utf32(scratch->points, (utf8proc_ssize_t)count, options);
    if (composed < 0) {
        return sumi_fail(error, SUMI_INTERNAL, "utf8proc cannot compose a text; use libutf8proc 2.8 or later");
    }
    SUMI_TRY(sumi_text_reserve(heap, out, 4 * (size_t)composed, error));
    const int32_t* points = scratch->points;
    for (utf8proc_ssize_t i = 0; i < composed; i++) {
        out->bytes += sumi_utf8_encode((uint32_t)points[i], sumi_text_data(out) + out->bytes);
    }
    return SUMI_OK;
}

sumi_result sumi_nfc_append(sumi_heap* heap, sumi_text_buffer* out, sumi_nfc_scratch* scratch, const char* text,
                            size_t bytes, sumi_error* error)
{
    size_t at = 0;
    while (at < bytes) {
        size_t begin = at, last_plain = at, length = 0;
        uint32_t code_point = 0;
        while (at < bytes && (code_point = sumi_utf8_get(text + at, &length), is_plain(code_point))) {
            last_plain = at;
            at += length;
        }
        if (at == bytes || is_standalone(code_point)) {
            at += at == bytes ? 0 : length;
            SUMI_TRY(sumi_text_append(heap, out, text + begin, at - begin, error));
            continue;
        }
        SUMI_TRY(sumi_text_append(heap, out, text + begin, last_plain - begin, error));
        while (
            at < bytes
            && (code_point = sumi_utf8_get(text + at, &length), !is_plain(code_point) && !is_standalone(code_point))) {
            at += length;
        }
        SUMI_TRY(normalize_stretch(heap, out, scratch, text + last_plain, at - last_plain, error));
    }
    return SUMI_OK;
}

// ---- Clusters -------------------------------------------------------------------------------------------------------

bool sumi_cluster_ends(uint32_t before, uint32_t after, int32_t* state)
{
    const uint32_t any_mark = 0x0300; // stands for marks that utf8proc does not know
    if (after >= 0x0897) {
        before = in_ranges(s_cluster_extend, RANGE_COUNT(s_cluster_extend), before) ? any_mark : before;
        after = in_ranges(s_cluster_extend, RANGE_COUNT(s_cluster_extend), after) ? any_mark : after;
    } else if (before >= 0x0897 && in_ranges(s_cluster_extend, RANGE_COUNT(s_cluster_extend), before)) {
        before = any_mark;
    }
    return utf8proc_grapheme_break_stateful((utf8proc_int32_t)before, (utf8proc_int32_t)after, state);
}
