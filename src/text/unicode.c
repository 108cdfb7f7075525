// Unicode for the tokenizers. NFC works on the smallest possible parts. Most text consists of "plain" code points, which
// never change and never compose with a preceding code point. They are copied; only other code points, with the plain
// code point before them, are decomposed and composed:
//
//     x y z e ◌̣ ◌́ a b          z and e are plain; the letter e with its marks is composed; everything else is copied
//           ^^^^^^^
//
// The canonical ordering is written here because utf8proc_decompose sorts by swapping adjacent marks, which is
// quadratic in a run of marks: a 100 kB prompt of alternating marks would take seconds. Here each combining class has a
// list of its marks. utf8proc_normalize_utf32 composes two code points. Neither it nor utf8proc_decompose_char
// allocates.
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

// How many bytes at the beginning are ASCII.
static size_t ascii_bytes(const char* text, size_t bytes)
{
    size_t at = 0;
    for (uint64_t eight; bytes - at >= sizeof eight; at += sizeof eight) {
        memcpy(&eight, text + at, sizeof eight);
        if ((eight & 0x8080808080808080u) != 0) break;
    }
    while (at < bytes && (unsigned char)text[at] < 0x80) at++;
    return at;
}

sumi_result sumi_utf8_repair(sumi_heap* heap, sumi_text_buffer* out, const char* text, size_t bytes, sumi_error* error)
{
    size_t at = ascii_bytes(text, bytes), copied = 0;
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
    if (code_point < 0x80) return code_point == ' ' || (code_point >= '\t' && code_point <= '\r');
    return in_ranges(s_spaces, RANGE_COUNT(s_spaces), code_point);
}

sumi_char_class sumi_char_classify(uint32_t code_point)
{
    if (code_point < 0x80) {
        if ((code_point | 0x20) >= 'a' && (code_point | 0x20) <= 'z') return SUMI_CHAR_LETTER;
        if (code_point >= '0' && code_point <= '9') return SUMI_CHAR_NUMBER;
        return sumi_char_is_space(code_point) ? SUMI_CHAR_SPACE : SUMI_CHAR_OTHER;
    }
    if (in_ranges(s_letters, RANGE_COUNT(s_letters), code_point)) return SUMI_CHAR_LETTER;
    if (in_ranges(s_numbers, RANGE_COUNT(s_numbers), code_point)) return SUMI_CHAR_NUMBER;
    return in_ranges(s_spaces, RANGE_COUNT(s_spaces), code_point) ? SUMI_CHAR_SPACE : SUMI_CHAR_OTHER;
}

bool sumi_char_is_word(uint32_t code_point)
{
    // Alphabetic + marks + decimal digits + connectors + joiners. Beyond letters, letter numbers and marks, Alphabetic
    // contains only the circled letters.
    if (sumi_char_classify(code_point) == SUMI_CHAR_LETTER || code_point == 0x200C || code_point == 0x200D) return true;
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

static int32_t combining_class(int32_t code_point) { return utf8proc_get_property(code_point)->combining_class; }

#define NFC_OPTIONS (UTF8PROC_STABLE | UTF8PROC_COMPOSE)
#define NO_MARK UINT32_MAX
#define FIRST_COMPOSING_LETTER 0x09BE // the first code point of combining class 0 that composes with one before it
enum { PLAIN_PER_WORK = 8, POINT_WORK = 8 }; // bytes of plain text per unit of work; units per other code point

static void clear_marks(sumi_nfc* nfc)
{
    nfc->mark_count = 0;
    nfc->kept_class = -1;
    memset(nfc->used, 0, sizeof nfc->used);
}

static sumi_result add_mark(sumi_heap* heap, sumi_nfc* nfc, int32_t point, uint32_t class, sumi_error* error)
{
    SUMI_TRY(sumi_grow(heap, &nfc->marks, &nfc->mark_capacity, nfc->mark_count + 1, sizeof(sumi_nfc_mark), error));
    sumi_nfc_mark* marks = nfc->marks;
    const uint32_t index = (uint32_t)nfc->mark_count++;
    marks[index] = (sumi_nfc_mark){point, NO_MARK};
    if ((nfc->used[class / 64] >> class % 64 & 1) != 0) {
        marks[nfc->last[class]].next = index;
    } else {
        nfc->used[class / 64] |= (uint64_t)1 << class % 64;
        nfc->first[class] = index;
    }
    nfc->last[class] = index;
    return SUMI_OK;
}

// Goes to the first mark, in the canonical order: by class, and within a class as in the text.
static void begin_marks(sumi_nfc* nfc)
{
    nfc->class_cursor = 0;
    nfc->mark_cursor = NO_MARK;
}

// The next mark in the canonical order, and its class; NULL after the last one.
static sumi_nfc_mark* next_mark(sumi_nfc* nfc, int32_t* out_class)
{
    sumi_nfc_mark* marks = nfc->marks;
    if (nfc->mark_cursor == NO_MARK) {
        while (nfc->class_cursor < 256 && (nfc->used[nfc->class_cursor / 64] >> nfc->class_cursor % 64 & 1) == 0)
            nfc->class_cursor++;
        if (nfc->class_cursor == 256) return NULL;
        nfc->mark_cursor = nfc->first[nfc->class_cursor];
    }
    sumi_nfc_mark* mark = &marks[nfc->mark_cursor];
    *out_class = (int32_t)nfc->class_cursor;
    nfc->mark_cursor = mark->next;
    nfc->class_cursor += mark->next == NO_MARK;
    return mark;
}

static bool compose(int32_t* letter, int32_t point)
{
    utf8proc_int32_t pair[2] = {*letter, point};
    if (utf8proc_normalize_utf32(pair, 2, NFC_OPTIONS) != 1) return false;
    *letter = pair[0];
    return true;
}

// Composes the letter with its marks, where possible, and with the letter after it. False: the step's work is done, and
// the rest follows.
static bool compose_letter(sumi_nfc* nfc, sumi_text_piece* piece)
{
    int32_t class = 0;
    while (nfc->has_letter) {
        if (piece->done >= piece->work) return false;
        sumi_nfc_mark* mark = next_mark(nfc, &class);
        if (mark == NULL) break;
        piece->done += POINT_WORK;
        // a mark after another one of its class does not reach the letter
        if (class > nfc->kept_class && compose(&nfc->letter, mark->point)) {
            mark->point = -1;
        } else {
            nfc->kept_class = class;
        }
    }
    if (nfc->has_letter && nfc->has_next_letter && nfc->kept_class < 0 && nfc->next_letter >= FIRST_COMPOSING_LETTER
        && compose(&nfc->letter, nfc->next_letter)) {
        nfc->has_next_letter = false; // Hangul, and vowels of Indian scripts
        clear_marks(nfc);
        nfc->phase = SUMI_NFC_READ;
        return true;
    }
    begin_marks(nfc);
    nfc->phase = SUMI_NFC_WRITE;
    return true;
}

// Writes the letter with its marks. The letter after it is the next one. False: the step's work is done.
static sumi_result write_letter(sumi_nfc* nfc, sumi_text_piece* piece, const sumi_text_output* to, bool* out_ended)
{
    sumi_text_buffer* out = to->buffer;
    *out_ended = false;
    if (nfc->has_letter) {
        SUMI_TRY(sumi_text_reserve(to->heap, out, 4, to->error));
        out->bytes += sumi_utf8_encode((uint32_t)nfc->letter, sumi_text_data(out) + out->bytes);
        nfc->has_letter = false;
    }
    int32_t class = 0;
    for (;;) {
        if (piece->done >= piece->work) return SUMI_OK;
        SUMI_TRY(sumi_text_reserve(to->heap, out, 4, to->error)); // before the mark is taken from its list
        const sumi_nfc_mark* mark = next_mark(nfc, &class);
        if (mark == NULL) break;
        piece->done += POINT_WORK;
        if (mark->point >= 0) out->bytes += sumi_utf8_encode((uint32_t)mark->point, sumi_text_data(out) + out->bytes);
    }
    clear_marks(nfc);
    nfc->letter = nfc->next_letter;
    nfc->has_letter = nfc->has_next_letter;
    nfc->has_next_letter = false;
    nfc->phase = SUMI_NFC_READ;
    *out_ended = true;
    return SUMI_OK;
}

static sumi_result decompose(sumi_nfc* nfc, int32_t code_point, sumi_error* error)
{
    int last_boundclass = 0;
    const utf8proc_ssize_t made =
        utf8proc_decompose_char(code_point, nfc->points, SUMI_NFC_MAX_DECOMPOSITION, NFC_OPTIONS, &last_boundclass);
    if (made < 0 || made > SUMI_NFC_MAX_DECOMPOSITION) {
        return sumi_fail(error, SUMI_INTERNAL, "utf8proc cannot decompose U+%04X; use libutf8proc 2.8 or later",
                         (unsigned)code_point);
    }
    nfc->point_count = (size_t)made;
    nfc->point_index = 0;
    return SUMI_OK;
}

// Copies plain and standalone characters, as many as the work allows. A plain character stays if the next one is not
// known or may compose with it; then it is *out_next_bytes long.
static sumi_result copy_plain(sumi_text_piece* piece, const sumi_text_output* out, size_t* out_next_bytes)
{
    const size_t room = (piece->work - piece->done) * PLAIN_PER_WORK, begin = piece->taken,
                 end = piece->bytes - begin < room ? piece->bytes : begin + room;
    size_t at = begin, last_plain = begin, length = 0;
    *out_next_bytes = 0;
    while (at < end) {
        const size_t ascii = ascii_bytes(piece->text + at, end - at);
        if (ascii > 0) {
            at += ascii;
            last_plain = at - 1;
            continue;
        }
        const uint32_t code_point = sumi_utf8_get(piece->text + at, &length);
        if (is_standalone(code_point)) {
            last_plain = at + length;
        } else if (is_plain(code_point)) {
            last_plain = at;
        } else {
            *out_next_bytes = last_plain < at ? sumi_utf8_length(piece->text + last_plain) : length;
            break;
        }
        at += length;
    }
    if (at == piece->bytes && piece->is_last) last_plain = at;
    if (last_plain > begin || *out_next_bytes > 0) piece->done += (at - begin) / PLAIN_PER_WORK + 1;
    piece->taken = last_plain;
    return sumi_text_put(out, piece->text + begin, last_plain - begin);
}

sumi_result sumi_nfc_append(sumi_nfc* nfc, sumi_text_piece* piece, const sumi_text_output* out)
{
    while (piece->done < piece->work) {
        if (nfc->phase == SUMI_NFC_COMPOSE) {
            if (!compose_letter(nfc, piece)) break;
            continue;
        }
        if (nfc->phase == SUMI_NFC_WRITE) {
            bool ended;
            SUMI_TRY(write_letter(nfc, piece, out, &ended));
            if (!ended) break;
            continue;
        }
        if (nfc->point_index < nfc->point_count) {
            const int32_t point = nfc->points[nfc->point_index], class = combining_class(point);
            if (class != 0) {
                SUMI_TRY(add_mark(out->heap, nfc, point, (uint32_t) class, out->error));
            } else if (nfc->has_letter || nfc->mark_count > 0) {
                nfc->next_letter = point;
                nfc->has_next_letter = true;
                begin_marks(nfc);
                nfc->phase = SUMI_NFC_COMPOSE;
            } else {
                nfc->letter = point;
                nfc->has_letter = true;
            }
            nfc->point_index++;
            piece->done += POINT_WORK;
            continue;
        }
        const bool holds = nfc->has_letter || nfc->mark_count > 0;
        size_t length = 0;
        if (!holds) {
            if (piece->taken == piece->bytes) break;
            clear_marks(nfc);
            const size_t before = piece->taken;
            SUMI_TRY(copy_plain(piece, out, &length));
            if (length == 0 && piece->taken == before) { break; } // the next character decides
            if (length == 0) continue;
        } else if (piece->taken < piece->bytes) {
            const uint32_t code_point = sumi_utf8_get(piece->text + piece->taken, &length);
            if (is_plain(code_point) || is_standalone(code_point)) length = 0;
        } else if (!piece->is_last) {
            break;
        }
        if (length != 0) {
            size_t unused;
            SUMI_TRY(decompose(nfc, (int32_t)sumi_utf8_get(piece->text + piece->taken, &unused), out->error));
            piece->taken += length;
            piece->done += POINT_WORK;
        } else {
            begin_marks(nfc);
            nfc->phase = SUMI_NFC_COMPOSE;
        }
    }
    return SUMI_OK;
}

void sumi_nfc_reset(sumi_nfc* nfc)
{
    clear_marks(nfc);
    nfc->has_letter = nfc->has_next_letter = false;
    nfc->point_count = nfc->point_index = 0;
    nfc->phase = SUMI_NFC_READ;
}

void sumi_nfc_release(sumi_heap* heap, sumi_nfc* nfc)
{
    sumi_free(heap, nfc->marks);
    *nfc = (sumi_nfc){0};
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
