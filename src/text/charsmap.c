// Layout of the blob, little-endian:
//
//     u32 trie_bytes | u32 unit[trie_bytes / 4] | replacements: "text\0text\0..."
//
//     unit   bit 31: holds a value     bits 0..7: label     bit 8: a value follows
//            bits 10..30: offset, multiplied by 256 if bit 9 is set
//
// From a node at p, byte c leads to unit[p ^ c] if that unit's label is c. The children of that unit, and at label 0
// its value, are at p ^ c ^ offset. The blob is untrusted: every index is checked before use, and a lookup that leaves
// the trie finds nothing.
#include "text/charsmap.h"
#include "base/assert.h"
#include "text/unicode.h"

static uint32_t unit_at(const sumi_charsmap* map, size_t index)
{
    SUMI_ASSERT(map->blob != NULL);
    const unsigned char* u = map->blob + 4 * index;
    return (uint32_t)u[0] | (uint32_t)u[1] << 8 | (uint32_t)u[2] << 16 | (uint32_t)u[3] << 24;
}

static size_t unit_offset(uint32_t unit) { return (size_t)(unit >> 10) << ((unit & 0x200) >> 6); }

static const char* replacements(const sumi_charsmap* map) { return (const char*)map->blob + 4 * map->unit_count; }

// Finds the replacement of the shortest key that `text` begins with. SentencePiece takes the longest key; the reference
// (huggingface/tokenizers) takes the first it meets. So e + U+0323 + U+0301 loses its accent, which is the input that
// the models get from the reference.
static bool find_shortest_key(const sumi_charsmap* map, const char* text, size_t bytes, size_t* out_begin,
                              size_t* out_bytes)
{
    size_t at = unit_offset(unit_at(map, 0));
    for (size_t i = 0; i < bytes && text[i] != '\0'; i++) {
        at ^= (unsigned char)text[i];
        if (at >= map->unit_count) return false;
        uint32_t unit = unit_at(map, at);
        if ((unit & 0x800000FFu) != (unsigned char)text[i]) return false;
        at ^= unit_offset(unit);
        if (unit >> 8 & 1) {
            if (at >= map->unit_count) return false;
            size_t begin = unit_at(map, at) & 0x7FFFFFFFu;
            const char* first = replacements(map) + begin;
            // a replacement must not begin inside a character: the result must stay UTF-8
            if (begin >= map->replacement_bytes || ((unsigned char)*first & 0xC0) == 0x80) return false;
            const char* end = memchr(first, '\0', map->replacement_bytes - begin);
            *out_begin = begin;
            *out_bytes = end != NULL ? (size_t)(end - first) : map->replacement_bytes - begin;
            return true;
        }
    }
    return false;
}

static int32_t base64_digit(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A'
         : c >= 'a' && c <= 'z' ? c - 'a' + 26
         : c >= '0' && c <= '9' ? c - '0' + 52
         : c == '+'             ? 62
         : c == '/'             ? 63
                                : -1;
}

// Decodes RFC 4648 base64 with padding. Returns the bytes written, SIZE_MAX if the text is malformed. `into` has a
// capacity of bytes / 4 * 3.
static size_t base64_decode(const char* text, size_t bytes, unsigned char* into)
{
    SUMI_ASSERT(bytes == 0 || text != NULL);
    size_t written = 0;
    if (bytes % 4 != 0) return SIZE_MAX;
    for (size_t i = 0; i < bytes; i += 4) {
        int32_t padding = i + 4 == bytes ? (text[i + 3] == '=') + (text[i + 3] == '=' && text[i + 2] == '=') : 0;
        uint32_t group = 0;
        for (int32_t k = 0; k < 4; k++) {
            int32_t digit = k >= 4 - padding ? 0 : base64_digit(text[i + (size_t)k]);
            if (digit < 0) return SIZE_MAX;
            group = group << 6 | (uint32_t)digit;
        }
        for (int32_t k = 0; k < 3 - padding; k++) into[written++] = (unsigned char)(group >> (16 - 8 * k));
    }
    return written;
}

// Checks the blob's sizes and removes the size field at its beginning.
static sumi_result take_blob(sumi_charsmap* map, size_t blob_bytes, const char* path, sumi_error* error)
{
    size_t trie_bytes = blob_bytes >= 4 ? unit_at(map, 0) : 0; // the size field is at the position of unit 0
    if (trie_bytes < 4 || trie_bytes % 4 != 0 || trie_bytes > blob_bytes - 4) {
        return sumi_fail(
            error, SUMI_FILE_MALFORMED,
            "%s: normalizer.precompiled_charsmap has %zu bytes, its trie needs %zu; download the file again", path,
            blob_bytes, trie_bytes);
    }
    memmove(map->blob, map->blob + 4, blob_bytes - 4);
    map->unit_count = trie_bytes / 4;
    map->replacement_bytes = blob_bytes - 4 - trie_bytes;
    if (!sumi_utf8_is_valid(replacements(map), map->replacement_bytes)) {
        return sumi_fail(error, SUMI_FILE_MALFORMED,
                         "%s: a replacement in normalizer.precompiled_charsmap is not UTF-8; download the file again",
                         path);
    }
    for (int32_t c = 0; c < 128; c++) {
        char text = (char)c;
        size_t begin = 0, length = 0;
        bool found = find_shortest_key(map, &text, 1, &begin, &length);
        map->ascii[c].begin = found ? (int32_t)begin : -1;
        map->ascii[c].bytes = (uint32_t)length;
    }
    return SUMI_OK;
}

static sumi_result reserve_blob(sumi_charsmap* map, sumi_heap* heap, size_t bytes, sumi_error* error)
{
    SUMI_ASSERT(map->heap == NULL && map->blob == NULL); // must be zeroed
    map->heap = heap;
    map->blob = sumi_alloc(heap, bytes);
    return map->blob != NULL ? SUMI_OK : sumi_out_of_memory(error, bytes, "a character map");
}

sumi_result sumi_charsmap_begin(sumi_charsmap* map, sumi_heap* heap, const char* base64, size_t bytes, const char* path,
                                sumi_error* error)
{
    SUMI_TRY(reserve_blob(map, heap, bytes / 4 * 3 + 4, error));
    size_t blob_bytes = base64_decode(base64, bytes, map->blob);
    if (blob_bytes == SIZE_MAX) {
        return sumi_fail(error, SUMI_FILE_MALFORMED,
                         "%s: normalizer.precompiled_charsmap is not base64; download the file again", path);
    }
    return take_blob(map, blob_bytes, path, error);
}

sumi_result sumi_charsmap_begin_bytes(sumi_charsmap* map, sumi_heap* heap, const void* data, size_t bytes,
                                      const char* path, sumi_error* error)
{
    SUMI_ASSERT(bytes > 0);
    SUMI_TRY(reserve_blob(map, heap, bytes, error));
    memcpy(map->blob, data, bytes);
    return take_blob(map, bytes, path, error);
}

void sumi_charsmap_destroy(sumi_charsmap* map)
{
    if (map->heap != NULL) sumi_free(map->heap, map->blob);
    *map = (sumi_charsmap){0};
}

static sumi_result append_character(const sumi_charsmap* map, const char* text, size_t bytes,
                                    const sumi_text_output* out)
{
    SUMI_ASSERT(bytes >= 1);
    size_t begin = 0, length = 0;
    bool found;
    if (bytes == 1) {
        found = map->ascii[(unsigned char)*text].begin >= 0;
        begin = found ? (size_t)map->ascii[(unsigned char)*text].begin : 0;
        SUMI_ASSERT(begin <= map->replacement_bytes);
        length = map->ascii[(unsigned char)*text].bytes;
    } else {
        found = find_shortest_key(map, text, bytes, &begin, &length);
    }
    return found ? sumi_text_put(out, replacements(map) + begin, length) : sumi_text_put(out, text, bytes);
}

enum { MAX_WHOLE_CLUSTER = 5, CLUSTER_WORK = 8 }; // longer clusters are looked up character by character

static sumi_result append_characters(const sumi_charsmap* map, sumi_text_piece* piece, size_t end,
                                     const sumi_text_output* out)
{
    const size_t before = out->buffer->bytes;
    while (piece->taken < end) {
        const size_t length = sumi_utf8_length(piece->text + piece->taken);
        SUMI_TRY(append_character(map, piece->text + piece->taken, length, out));
        piece->taken += length;
    }
    piece->done += CLUSTER_WORK + (out->buffer->bytes - before) / 8;
    return SUMI_OK;
}

// Appends the next characters of a long cluster, up to its end or the piece's.
static sumi_result append_long_cluster(const sumi_charsmap* map, sumi_charsmap_state* state, sumi_text_piece* piece,
                                       const sumi_text_output* out)
{
    while (piece->taken < piece->bytes && piece->done < piece->work) {
        size_t length;
        const uint32_t after = sumi_utf8_get(piece->text + piece->taken, &length);
        if (sumi_cluster_ends(state->before, after, &state->break_state)) {
            *state = (sumi_charsmap_state){0};
            return SUMI_OK;
        }
        state->before = after;
        SUMI_TRY(append_characters(map, piece, piece->taken + length, out));
    }
    return SUMI_OK;
}

// Appends a cluster, or the beginning of a long one. False: more text is needed to know where the cluster ends.
static sumi_result append_cluster(const sumi_charsmap* map, sumi_charsmap_state* state, sumi_text_piece* piece,
                                  const sumi_text_output* out, bool* out_known)
{
    const char* text = piece->text;
    size_t length, at = piece->taken, end = at;
    state->before = sumi_utf8_get(text + at, &length);
    state->break_state = 0;
    bool ends = false;
    for (end += length; end < piece->bytes && !ends && end - at <= MAX_WHOLE_CLUSTER;) {
        const uint32_t after = sumi_utf8_get(text + end, &length);
        ends = sumi_cluster_ends(state->before, after, &state->break_state);
        if (!ends) {
            state->before = after;
            end += length;
        }
    }
    ends = ends || (end == piece->bytes && piece->is_last);
    state->is_inside = !ends && end - at > MAX_WHOLE_CLUSTER;
    *out_known = ends || state->is_inside;
    if (!*out_known) return SUMI_OK;
    size_t begin = 0, replaced = 0;
    if (end - at <= MAX_WHOLE_CLUSTER && find_shortest_key(map, text + at, end - at, &begin, &replaced)) {
        piece->taken = end;
        piece->done += CLUSTER_WORK + replaced / 8;
        return sumi_text_put(out, replacements(map) + begin, replaced);
    }
    return append_characters(map, piece, end, out);
}

// How many of the next bytes are ASCII characters that the map leaves alone and that are whole clusters, because an
// ASCII character follows; as many as the work allows.
static size_t unchanged_bytes(const sumi_charsmap* map, const sumi_text_piece* piece)
{
    const unsigned char* text = (const unsigned char*)piece->text + piece->taken;
    const size_t rest = piece->bytes - piece->taken, most = 2 * (piece->work - piece->done),
                 end = rest < most ? rest : most;
    size_t at = 0;
    while (at < end && text[at] < 0x80 && map->ascii[text[at]].begin < 0 && text[at] != '\r') at++;
    return at > 0 && (at == rest ? !piece->is_last : text[at] >= 0x80) ? at - 1 : at;
}

sumi_result sumi_charsmap_append(const sumi_charsmap* map, sumi_charsmap_state* state, sumi_text_piece* piece,
                                 const sumi_text_output* out)
{
    SUMI_ASSERT(map->blob != NULL && map->unit_count > 0);
    const char* text = piece->text;
    while (piece->taken < piece->bytes && piece->done < piece->work) {
        if (state->is_inside) {
            SUMI_TRY(append_long_cluster(map, state, piece, out));
            continue;
        }
        const size_t at = piece->taken, same = unchanged_bytes(map, piece);
        if (same > 0) {
            SUMI_TRY(sumi_text_put(out, text + at, same));
            piece->taken += same;
            piece->done += 1 + same / 2;
            continue;
        }
        const bool is_end = at + 1 == piece->bytes;
        // an ASCII character before another ASCII character is a whole cluster, except CR before LF
        if ((unsigned char)text[at] < 0x80
            && (is_end ? piece->is_last : ((unsigned char)text[at + 1] < 0x80 && text[at] != '\r'))) {
            SUMI_TRY(append_character(map, text + at, 1, out));
            piece->taken++;
            piece->done++;
            continue;
        }
        bool is_known;
        SUMI_TRY(append_cluster(map, state, piece, out, &is_known));
        if (!is_known) break;
    }
    return SUMI_OK;
}
