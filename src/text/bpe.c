// Byte pair encoding of one piece: start with its characters and merge the adjacent pair of lowest rank (the leftmost
// of equals) until no pair has a rank (Sennrich, Haddow and Birch 2016).
//
// Two algorithms give the same ids. Pieces of up to SHORT symbols, which are nearly all pieces of a byte-level
// tokenizer, keep the ranks of their pairs in an array and search it for the smallest before each merge: quadratic, but
// within one or two cache lines. Longer pieces (Gemma's are whole prompts) use linked symbols and a heap with the key
// (rank, position). Heap entries that a merge has made stale are dropped when they are popped:
//
//     symbols   h <-> e <-> l <-> l <-> o          rank[i]: of the pair (i, next of i), NONE when it has none
//     heap      (rank of "l l", 2), (rank of "h e", 0), ...     valid while rank[position] is still that rank
//
// Listed merges give each pair its own rank, so an unchanged rank means an unchanged pair. With ranks from scores
// several pairs may share a rank; an entry then stands for the pair that is now at its position, which is in the heap
// with the same key. n symbols make at most n + 2 (n - 1) heap entries.
//
// A merge makes a token of the text that its symbols stand for. So no merge crosses a place in the text that no token
// crosses, and the text before such a cut can be encoded by itself. Long pieces are searched for cuts: the tokens that
// begin at each character are found, and a character after the ends of all of them begins a new part. A
// piece without a cut ("aaaa", if "aa" is a token) is one part, which is encoded in steps.
#include "text/tokenizer_run.h"

enum {
    SHORT = 48,
    PART_BYTES = 1024, // a piece of up to this size is not cut
    // After this many bytes without a cut, as many are skipped before the search continues: a piece without any cut
    // takes little more time than it would without the search.
    SWEPT_BYTES = 4096,
    SKIPPED_BYTES = 28672,
    SYMBOL_WORK = 4, // of one symbol, of one pair
    MERGE_WORK = 24,
    WRITE_WORK = 1
};
#define NONE SUMI_VOCABULARY_NONE

typedef struct symbol {
    uint32_t id, rank, result; // rank and result: of the merge with the next symbol
    uint32_t previous, next;
    // The symbol's text in the part. Empty for unknown characters and byte tokens, which never merge. Used only with
    // by_score.
    uint32_t begin, end;
} symbol;

static symbol* symbol_at(const sumi_bpe_state* s, uint32_t index)
{
    return sumi_pages_at(&s->symbols, index, sizeof(symbol));
}

size_t sumi_byte_level_character(unsigned char byte, char out[4])
{
    bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    // the 68 other bytes, in order: 0..32, 127..160, 173
    uint32_t remapped = byte <= 32 ? byte : byte <= 160 ? byte - 127u + 33u : 67u;
    return sumi_utf8_encode(printable ? byte : 0x100 + remapped, out);
}

// ---- Symbols --------------------------------------------------------------------------------------------------------

static inline sumi_result add_symbol(sumi_tokenizer_run* run, uint32_t id, size_t begin, size_t end)
{
    SUMI_ASSERT(id != NONE);
    sumi_bpe_state* s = &run->bpe;
    const uint32_t index = s->symbol_count;
    SUMI_TRY(sumi_pages_reserve(run->heap, &s->symbols, index, sizeof(symbol), run->error));
    symbol* added = symbol_at(s, index);
    s->symbol_count = index + 1;
    added->id = id;
    added->begin = (uint32_t)begin;
    added->end = (uint32_t)end;
    return SUMI_OK;
}

static sumi_result add_unknown(sumi_tokenizer_run* run)
{
    sumi_bpe_state* s = &run->bpe;
    if (!s->unknown_waits) return SUMI_OK;
    s->unknown_waits = false;
    return add_symbol(run, run->tokenizer->bpe.unknown_id, 0, 0);
}

// Adds the symbols of one character, which is `length` bytes of the part at `at`. The order of the checks is the
// reference's. As in the reference, byte fallback does not end a run of unknown characters.
static inline sumi_result add_character(sumi_tokenizer_run* run, const char* text, size_t bytes, size_t at,
                                        size_t length)
{
    SUMI_ASSERT(bytes >= 1 && bytes <= 4);
    const sumi_bpe* bpe = &run->tokenizer->bpe;
    uint32_t entry = sumi_vocabulary_find(&bpe->vocabulary, text, bytes);
    if (entry != NONE) {
        SUMI_TRY(add_unknown(run));
        return add_symbol(run, sumi_vocabulary_id(&bpe->vocabulary, entry), at, at + length);
    }
    if (bpe->byte_fallback) {
        bool has_all_bytes = true;
        for (size_t i = 0; i < bytes; i++)
            has_all_bytes = has_all_bytes && bpe->byte_ids[(unsigned char)text[i]] != NONE;
        if (has_all_bytes) {
            for (size_t i = 0; i < bytes; i++) SUMI_TRY(add_symbol(run, bpe->byte_ids[(unsigned char)text[i]], 0, 0));
            return SUMI_OK;
        }
    }
    if (!bpe->has_unknown) {
        return SUMI_OK; // the reference drops the character too
    }
    if (bpe->unknown_id == NONE) {
        return sumi_fail(
            run->error, SUMI_FILE_MALFORMED,
            "the tokenizer has no token for the character %.*s, and its unk_token is not in its vocabulary", (int)bytes,
            text);
    }
    if (!bpe->fuse_unknown) SUMI_TRY(add_unknown(run));
    run->bpe.unknown_waits = true;
    return SUMI_OK;
}

static sumi_result make_symbols(sumi_tokenizer_run* run, const char* piece)
{
    sumi_bpe_state* s = &run->bpe;
    const sumi_bpe* bpe = &run->tokenizer->bpe;
    for (size_t at = s->symbol_bytes; at < s->part_bytes; at = s->symbol_bytes) {
        if (sumi_run_must_pause(run)) return SUMI_OK;
        run->work += SYMBOL_WORK;
        const size_t length = bpe->byte_level ? 1 : sumi_utf8_length(piece + at);
        const uint32_t id = bpe->byte_level ? bpe->byte_ids[(unsigned char)piece[at]] : NONE;
        if (!bpe->byte_level) {
            SUMI_TRY(add_character(run, piece + at, length, at, length));
        } else if (id != NONE && !s->unknown_waits) {
            SUMI_TRY(add_symbol(run, id, at, at + 1));
        } else {
            char stand_in[4];
            const size_t bytes = sumi_byte_level_character((unsigned char)piece[at], stand_in);
            SUMI_TRY(add_character(run, stand_in, bytes, at, 1));
        }
        s->symbol_bytes = at + length;
    }
    SUMI_TRY(add_unknown(run));
    s->cursor = s->queue_count = 0;
    s->phase = SUMI_BPE_RANK;
    return SUMI_OK;
}

// ---- Merging --------------------------------------------------------------------------------------------------------

static void merge_short(sumi_tokenizer_run* run, uint32_t* id, size_t count)
{
    SUMI_ASSERT(count <= SHORT);
    const sumi_merges* merges = &run->tokenizer->bpe.merges;
    uint32_t rank[SHORT], result[SHORT];
    run->work += MERGE_WORK * count;
    for (size_t i = 0; i < count; i++)
        rank[i] = i + 1 < count ? sumi_merges_find(merges, id[i], id[i + 1], &result[i]) : NONE;
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i < count; i++) best = rank[i] < rank[best] ? i : best;
        if (count == 0 || rank[best] == NONE) break;
        id[best] = result[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            id[i] = id[i + 1];
            rank[i] = rank[i + 1];
            result[i] = result[i + 1];
        }
        rank[best] = best + 1 < count ? sumi_merges_find(merges, id[best], id[best + 1], &result[best]) : NONE;
        if (best > 0) rank[best - 1] = sumi_merges_find(merges, id[best - 1], id[best], &result[best - 1]);
    }
    for (size_t i = 0; i < count; i++) sumi_ids_put(&run->ids, id[i]);
}

// `keys`: the queue's first page if it holds the whole queue, as it does for usual pieces; otherwise NULL.
static inline uint64_t* key_of(const sumi_bpe_state* s, uint64_t* keys, uint32_t index)
{
    return keys != NULL ? keys + index : sumi_pages_at(&s->queue, index, sizeof(uint64_t));
}

static inline void sift_up(sumi_bpe_state* s, uint64_t* keys, uint64_t key)
{
    uint32_t index = s->queue_count++;
    while (index > 0 && *key_of(s, keys, (index - 1) / 2) > key) {
        *key_of(s, keys, index) = *key_of(s, keys, (index - 1) / 2);
        index = (index - 1) / 2;
    }
    *key_of(s, keys, index) = key;
}

static inline uint64_t sift_down(sumi_bpe_state* s, uint64_t* keys)
{
    SUMI_ASSERT(s->queue_count > 0);
    const uint32_t count = --s->queue_count;
    const uint64_t top = *key_of(s, keys, 0), last = *key_of(s, keys, count);
    uint32_t index = 0;
    for (uint32_t child = 1; child < count; child = 2 * index + 1) {
        child += child + 1 < count && *key_of(s, keys, child + 1) < *key_of(s, keys, child);
        const uint64_t key = *key_of(s, keys, child);
        if (key >= last) break;
        *key_of(s, keys, index) = key;
        index = child;
    }
    *key_of(s, keys, index) = last;
    return top;
}

static sumi_result queue_push(sumi_tokenizer_run* run, uint64_t key)
{
    sumi_bpe_state* s = &run->bpe;
    SUMI_TRY(sumi_pages_reserve(run->heap, &s->queue, s->queue_count, sizeof(uint64_t), run->error));
    if (s->queue_count < SUMI_PAGE_ELEMENTS) {
        sift_up(s, s->queue.first, key);
    } else {
        sift_up(s, NULL, key);
    }
    return SUMI_OK;
}

static uint64_t queue_pop(sumi_bpe_state* s)
{
    return s->queue_count <= SUMI_PAGE_ELEMENTS ? sift_down(s, s->queue.first) : sift_down(s, NULL);
}

// The rank of the token whose text is that of two adjacent symbols together; NONE if no token has it.
static uint32_t find_joined(sumi_tokenizer_run* run, const char* piece, const symbol* left, const symbol* right,
                            uint32_t* out_result)
{
    const sumi_bpe* bpe = &run->tokenizer->bpe;
    if (left->begin == left->end || right->begin == right->end) return NONE;
    SUMI_ASSERT(left->end == right->begin);
    const size_t bytes = right->end - left->begin;
    if (bytes > bpe->vocabulary.max_bytes) return NONE;
    run->work += bytes / 8;
    const uint32_t entry = sumi_vocabulary_find(&bpe->vocabulary, piece + left->begin, bytes);
    if (entry == NONE) return NONE;
    *out_result = sumi_vocabulary_id(&bpe->vocabulary, entry);
    return ((const uint32_t*)bpe->ranks)[entry];
}

// Finds the merge of the symbol at `position` with the next one and adds it to the queue.
static sumi_result rank_pair(sumi_tokenizer_run* run, const char* piece, uint32_t position)
{
    const sumi_bpe* bpe = &run->tokenizer->bpe;
    symbol* left = symbol_at(&run->bpe, position);
    if (left->next == NONE) {
        left->rank = NONE;
    } else {
        const symbol* right = symbol_at(&run->bpe, left->next);
        left->rank = bpe->by_score ? find_joined(run, piece, left, right, &left->result)
                                   : sumi_merges_find(&bpe->merges, left->id, right->id, &left->result);
    }
    return left->rank != NONE ? queue_push(run, (uint64_t)left->rank << 32 | position) : SUMI_OK;
}

static sumi_result rank_pairs(sumi_tokenizer_run* run, const char* piece)
{
    sumi_bpe_state* s = &run->bpe;
    for (; s->cursor < s->symbol_count; s->cursor++) {
        if (sumi_run_must_pause(run)) return SUMI_OK;
        run->work += SYMBOL_WORK;
        symbol* ranked = symbol_at(s, s->cursor);
        ranked->previous = s->cursor == 0 ? NONE : s->cursor - 1;
        ranked->next = s->cursor + 1 == s->symbol_count ? NONE : s->cursor + 1;
        SUMI_TRY(rank_pair(run, piece, s->cursor));
    }
    s->phase = SUMI_BPE_MERGE;
    return SUMI_OK;
}

static sumi_result merge_pairs(sumi_tokenizer_run* run, const char* piece)
{
    sumi_bpe_state* s = &run->bpe;
    while (s->queue_count != 0) {
        if (sumi_run_must_pause(run)) return SUMI_OK;
        run->work += MERGE_WORK;
        const uint64_t key = queue_pop(s);
        const uint32_t position = (uint32_t)key;
        symbol* left = symbol_at(s, position);
        if (left->rank != key >> 32) continue;
        SUMI_ASSERT(left->next != NONE);
        symbol* right = symbol_at(s, left->next);
        SUMI_ASSERT(right->previous == position);
        left->id = left->result;
        left->end = right->end;
        left->next = right->next;
        right->rank = NONE; // makes the queue's entries for this symbol stale
        if (left->next != NONE) symbol_at(s, left->next)->previous = position;
        SUMI_TRY(rank_pair(run, piece, position));
        if (left->previous != NONE) SUMI_TRY(rank_pair(run, piece, left->previous));
    }
    s->cursor = s->symbol_count > 0 ? 0 : NONE;
    s->phase = SUMI_BPE_WRITE;
    return SUMI_OK;
}

static void write_symbols(sumi_tokenizer_run* run)
{
    sumi_bpe_state* s = &run->bpe;
    for (; s->cursor != NONE; s->cursor = symbol_at(s, s->cursor)->next) {
        if (sumi_run_must_pause(run)) return;
        run->work += WRITE_WORK;
        sumi_ids_put(&run->ids, symbol_at(s, s->cursor)->id);
    }
    s->phase = SUMI_BPE_TRIM;
}

// ---- Parts ----------------------------------------------------------------------------------------------------------

void sumi_bpe_reset(sumi_bpe_state* state)
{
    *state = (sumi_bpe_state){.symbols = state->symbols, .queue = state->queue, .mapped = state->mapped};
}

// With ignore_merges a piece that is itself a token becomes that token, even if the merges would give other ids. Looks
// the piece up.
static sumi_result find_piece(sumi_tokenizer_run* run, const char* piece, size_t bytes, uint32_t* out_entry)
{
    SUMI_ASSERT(bytes > 0);
    const sumi_bpe* bpe = &run->tokenizer->bpe;
    *out_entry = NONE;
    if (bytes > bpe->vocabulary.max_bytes) return SUMI_OK;
    run->work += 1 + bytes / 4;
    if (!bpe->byte_level) {
        *out_entry = sumi_vocabulary_find(&bpe->vocabulary, piece, bytes);
        return SUMI_OK;
    }
    sumi_text_buffer* text = &run->bpe.mapped;
    text->bytes = 0;
    SUMI_TRY(sumi_text_reserve(run->heap, text, 4 * bytes, run->error));
    for (size_t i = 0; i < bytes; i++)
        text->bytes += sumi_byte_level_character((unsigned char)piece[i], sumi_text_data(text) + text->bytes);
    *out_entry = sumi_vocabulary_find(&bpe->vocabulary, sumi_text_data(text), text->bytes);
    return SUMI_OK;
}

// Byte level: the stand-in characters for the part of the window's text that has none yet.
static sumi_result map_window(sumi_tokenizer_run* run, const sumi_window* in)
{
    sumi_bpe_state* s = &run->bpe;
    const size_t more = in->bytes - s->mapped_bytes;
    SUMI_TRY(sumi_text_reserve(run->heap, &s->mapped, 4 * more, run->error));
    run->work += more / 2;
    for (; s->mapped_bytes < in->bytes; s->mapped_bytes++) {
        s->mapped.bytes += sumi_byte_level_character((unsigned char)in->text[s->mapped_bytes],
                                                     sumi_text_data(&s->mapped) + s->mapped.bytes);
    }
    return SUMI_OK;
}

// Tokens that begin before `begin` reach no further than max_bytes after it.
static void begin_sweep(sumi_bpe_state* s, const sumi_bpe* bpe, const sumi_window* in, size_t begin)
{
    s->is_sweeping = true;
    s->swept = s->sweep_begin = sumi_window_whole(in, begin);
    s->reach = s->sweep_begin > 0 ? s->sweep_begin + bpe->vocabulary.max_bytes : 0;
    s->mapped.bytes = s->mapped_at = 0;
    s->mapped_bytes = s->sweep_begin;
}

// The length in the text of the longest token at `swept`. *out_length: of the character there; *out_is_token: it is a
// token itself.
static size_t longest_at_swept(sumi_tokenizer_run* run, const sumi_window* in, size_t* out_length, bool* out_is_token)
{
    sumi_bpe_state* s = &run->bpe;
    const sumi_vocabulary* vocabulary = &run->tokenizer->bpe.vocabulary;
    run->work += SYMBOL_WORK;
    if (!run->tokenizer->bpe.byte_level) {
        const char* text = in->text + s->swept;
        *out_length = sumi_utf8_length(text);
        return sumi_vocabulary_longest(vocabulary, text, in->bytes - s->swept, *out_length, out_is_token, &run->work);
    }
    const char* text = sumi_text_data(&s->mapped) + s->mapped_at;
    const size_t stand_in_bytes = sumi_utf8_length(text),
                 longest = sumi_vocabulary_longest(vocabulary, text, s->mapped.bytes - s->mapped_at, stand_in_bytes,
                                                   out_is_token, &run->work);
    size_t bytes = 0; // one for each stand-in character
    for (size_t i = 0; i < longest; i++) bytes += ((unsigned char)text[i] & 0xC0) != 0x80;
    *out_length = 1;
    s->mapped_at += stand_in_bytes;
    return bytes;
}

// Looks for a cut after `swept`, up to `end`. *out_cut: its position; 0: none in the text that is known so far.
static sumi_result sweep_to(sumi_tokenizer_run* run, const sumi_window* in, size_t end, size_t* out_cut)
{
    sumi_bpe_state* s = &run->bpe;
    const sumi_bpe* bpe = &run->tokenizer->bpe;
    if (bpe->byte_level) SUMI_TRY(map_window(run, in));
    // unknown characters in a row may be one symbol, whatever is cut
    const bool unknown_may_wait = bpe->has_unknown && !(bpe->byte_fallback && bpe->has_all_bytes);
    const size_t ahead = in->is_last ? 0 : bpe->vocabulary.max_bytes;
    while (s->swept < end && s->swept + ahead < in->bytes && !sumi_run_must_pause(run)) {
        bool is_token;
        size_t length;
        const size_t token_end = s->swept + longest_at_swept(run, in, &length, &is_token);
        s->reach = token_end > s->reach ? token_end : s->reach;
        s->swept += length;
        if (s->reach <= s->swept && (is_token || !unknown_may_wait) && s->swept < in->bytes) {
            *out_cut = s->swept;
            return SUMI_OK;
        }
    }
    return SUMI_OK;
}

// Looks for a cut in the window: first near PART_BYTES, then here and there.
static sumi_result sweep(sumi_tokenizer_run* run, const sumi_window* in, size_t* out_cut)
{
    sumi_bpe_state* s = &run->bpe;
    const sumi_bpe* bpe = &run->tokenizer->bpe;
    const size_t max_bytes = bpe->vocabulary.max_bytes, around = 2 * max_bytes;
    *out_cut = 0;
    if (!s->is_sweeping) begin_sweep(s, bpe, in, around < PART_BYTES ? PART_BYTES - around : 0);
    for (;;) {
        const size_t end = s->sweep_begin + SWEPT_BYTES + max_bytes;
        SUMI_TRY(sweep_to(run, in, end, out_cut));
        if (*out_cut != 0 || s->swept < end || in->bytes - s->swept <= SKIPPED_BYTES) return SUMI_OK;
        begin_sweep(s, bpe, in, s->swept + SKIPPED_BYTES);
    }
}

// Waits for a part of the piece that can be encoded by itself. *out_bytes: its bytes; 0: none yet.
static sumi_result find_part(sumi_tokenizer_run* run, const sumi_window* in, size_t* out_bytes, sumi_pull* out_pull)
{
    const sumi_bpe* bpe = &run->tokenizer->bpe;
    const bool may_cut = in->bytes > PART_BYTES && !bpe->merges_stand_ins
                      && !(bpe->ignore_merges && in->bytes <= bpe->vocabulary.max_bytes);
    *out_bytes = 0;
    if (may_cut) {
        SUMI_TRY(sweep(run, in, out_bytes));
        if (*out_bytes != 0 || sumi_run_must_pause(run)) return SUMI_OK;
    }
    if (!in->is_last) return sumi_run_pull(run, run->stage_count - 1, out_pull);
    *out_bytes = in->bytes;
    return SUMI_OK;
}

static sumi_result begin_part(sumi_tokenizer_run* run, const sumi_window* in, sumi_pull* out_pull)
{
    sumi_bpe_state* s = &run->bpe;
    SUMI_TRY(find_part(run, in, &s->part_bytes, out_pull));
    if (s->part_bytes == 0) return SUMI_OK;
    s->symbol_bytes = 0;
    s->symbol_count = 0;
    s->is_sweeping = false;
    s->phase = SUMI_BPE_SYMBOLS;
    if (!run->tokenizer->bpe.ignore_merges || s->is_cut || s->part_bytes < in->bytes) return SUMI_OK;
    uint32_t entry;
    SUMI_TRY(find_piece(run, in->text, s->part_bytes, &entry));
    if (entry != NONE) {
        sumi_ids_put(&run->ids, sumi_vocabulary_id(&run->tokenizer->bpe.vocabulary, entry));
        s->phase = SUMI_BPE_TRIM;
    }
    return SUMI_OK;
}

static void end_part(sumi_tokenizer_run* run, sumi_window* in)
{
    sumi_bpe_state* s = &run->bpe;
    while (sumi_pages_trim(run->heap, &s->symbols, SUMI_KEPT_PAGES, 1)
           || sumi_pages_trim(run->heap, &s->queue, SUMI_KEPT_PAGES, 1)) {
        if (sumi_run_must_pause(run)) return;
        run->work += SUMI_PAGE_ELEMENTS / 2;
    }
    sumi_window_take(in, s->part_bytes);
    s->is_cut = true;
    s->phase = SUMI_BPE_READ;
}

// Encodes a short word if every byte of it has a token, as in most words. Returns whether it did.
static bool encode_word(sumi_tokenizer_run* run, sumi_window* in)
{
    const sumi_bpe* bpe = &run->tokenizer->bpe;
    if (!in->is_last || in->bytes > SHORT || !bpe->byte_level || bpe->ignore_merges) return false;
    uint32_t ids[SHORT];
    for (size_t i = 0; i < in->bytes; i++) {
        ids[i] = bpe->byte_ids[(unsigned char)in->text[i]];
        if (ids[i] == NONE) return false;
    }
    merge_short(run, ids, in->bytes);
    sumi_window_take(in, in->bytes);
    return true;
}

// Goes through the phases of a part as far as the step's work allows.
static sumi_result encode_part(sumi_tokenizer_run* run, sumi_window* in)
{
    sumi_bpe_state* s = &run->bpe;
    const sumi_bpe* bpe = &run->tokenizer->bpe;
    if (s->phase == SUMI_BPE_SYMBOLS) SUMI_TRY(make_symbols(run, in->text));
    if (s->phase == SUMI_BPE_RANK && s->symbol_count <= SHORT && !bpe->by_score) {
        uint32_t ids[SHORT];
        for (uint32_t i = 0; i < s->symbol_count; i++) ids[i] = symbol_at(s, i)->id;
        merge_short(run, ids, s->symbol_count);
        s->phase = SUMI_BPE_TRIM;
    }
    if (s->phase == SUMI_BPE_RANK) SUMI_TRY(rank_pairs(run, in->text));
    if (s->phase == SUMI_BPE_MERGE) SUMI_TRY(merge_pairs(run, in->text));
    if (s->phase == SUMI_BPE_WRITE) write_symbols(run);
    if (s->phase == SUMI_BPE_TRIM) end_part(run, in);
    return SUMI_OK;
}

sumi_result sumi_bpe_run(sumi_tokenizer_run* run, sumi_pull* out_pull)
{
    sumi_bpe_state* s = &run->bpe;
    sumi_window* in = &run->stages[run->stage_count - 1].out;
    *out_pull = SUMI_PULL_MORE;
    if (s->phase == SUMI_BPE_READ) {
        if (!s->has_piece || (in->is_last && in->bytes == 0)) {
            SUMI_TRY(sumi_run_pull(run, run->stage_count - 1, out_pull));
            s->has_piece = *out_pull == SUMI_PULL_MORE;
            s->is_cut = false;
            if (!s->has_piece || (in->is_last && in->bytes == 0)) return SUMI_OK;
        }
        if (encode_word(run, in)) return SUMI_OK;
        SUMI_TRY(begin_part(run, in, out_pull));
    }
    SUMI_TRY(encode_part(run, in));
    if (sumi_run_must_pause(run)) *out_pull = SUMI_PULL_PAUSE;
    return SUMI_OK;
}
