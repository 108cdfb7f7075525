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
#include "base/assert.h"
#include "base/utf8.h"
#include "text/tokenizer_parts.h"

enum { SHORT = 48 };
#define NONE SUMI_VOCABULARY_NONE

typedef struct symbol {
    uint32_t id, rank, result; // rank and result: of the merge with the next symbol
    uint32_t previous, next;
    // The symbol's text in the piece. Empty for unknown characters and byte tokens, which never merge. Used only with
    // by_score.
    uint32_t begin, end;
} symbol;

size_t sumi_byte_level_character(unsigned char byte, char out[4])
{
    bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    // the 68 other bytes, in order: 0..32, 127..160, 173
    uint32_t remapped = byte <= 32 ? byte : byte <= 160 ? byte - 127u + 33u : 67u;
    return sumi_utf8_encode(printable ? byte : 0x100 + remapped, out);
}

// ---- Symbols --------------------------------------------------------------------------------------------------------

typedef struct symbol_list {
    sumi_heap* heap;
    const sumi_bpe* bpe;
    sumi_model_scratch* scratch;
    symbol* symbols;
    size_t count;
    uint32_t begin, end; // of the character that is being added
    // fuse_unk: unknown characters in a row become one symbol, which is added when a known one follows
    bool unknown_waits;
} symbol_list;

static void add_symbol(symbol_list* list, uint32_t id)
{
    SUMI_ASSERT(list->count < list->scratch->symbol_capacity && id != NONE);
    symbol* added = &list->symbols[list->count++]; // make_symbols reserved one symbol per byte
    added->id = id;
    added->begin = added->end = 0;
}

// Adds the symbols of one character. The order of the checks is the reference's; so is that byte fallback does not end
// a run of unknown characters.
static sumi_result add_character(symbol_list* list, const char* text, size_t bytes, sumi_error* error)
{
    SUMI_ASSERT(bytes >= 1 && bytes <= 4);
    const sumi_bpe* bpe = list->bpe;
    uint32_t entry = sumi_vocabulary_find(&bpe->vocabulary, text, bytes);
    if (entry != NONE) {
        if (list->unknown_waits) {
            add_symbol(list, bpe->unknown_id);
            list->unknown_waits = false;
        }
        add_symbol(list, sumi_vocabulary_id(&bpe->vocabulary, entry));
        list->symbols[list->count - 1].begin = list->begin;
        list->symbols[list->count - 1].end = list->end;
        return SUMI_OK;
    }
    if (bpe->byte_fallback) {
        bool has_all_bytes = true;
        for (size_t i = 0; i < bytes; i++) {
            has_all_bytes = has_all_bytes && bpe->byte_ids[(unsigned char)text[i]] != NONE;
        }
        if (has_all_bytes) {
            for (size_t i = 0; i < bytes; i++) { add_symbol(list, bpe->byte_ids[(unsigned char)text[i]]); }
            return SUMI_OK;
        }
    }
    if (!bpe->has_unknown) {
        return SUMI_OK; // the reference drops the character too
    }
    if (bpe->unknown_id == NONE) {
        return sumi_fail(
            error, SUMI_FILE_MALFORMED,
            "the tokenizer has no token for the character %.*s, and its unk_token is not in its vocabulary", (int)bytes,
            text);
    }
    if (list->unknown_waits && !bpe->fuse_unknown) { add_symbol(list, bpe->unknown_id); }
    list->unknown_waits = true;
    return SUMI_OK;
}

static sumi_result make_symbols(symbol_list* list, const char* piece, size_t bytes, sumi_error* error)
{
    sumi_model_scratch* scratch = list->scratch;
    // capacity: one symbol per byte, and one for a pending unknown after the symbols of byte fallback
    SUMI_TRY(sumi_grow(list->heap, &scratch->symbols, &scratch->symbol_capacity, bytes + 1, sizeof(symbol), error));
    list->symbols = scratch->symbols;
    for (size_t i = 0, length; i < bytes; i += length) {
        if (!list->bpe->byte_level) {
            length = sumi_utf8_length(piece + i);
            list->begin = (uint32_t)i;
            list->end = (uint32_t)(i + length);
            SUMI_TRY(add_character(list, piece + i, length, error));
            continue;
        }
        length = 1;
        uint32_t id = list->bpe->byte_ids[(unsigned char)piece[i]];
        if (id != NONE && !list->unknown_waits) {
            add_symbol(list, id);
        } else {
            char character[4];
            size_t character_bytes = sumi_byte_level_character((unsigned char)piece[i], character);
            SUMI_TRY(add_character(list, character, character_bytes, error));
        }
    }
    if (list->unknown_waits) { add_symbol(list, list->bpe->unknown_id); }
    return SUMI_OK;
}

// ---- Merging --------------------------------------------------------------------------------------------------------

static void merge_short(const sumi_merges* merges, symbol* symbols, size_t count, sumi_ids* out)
{
    SUMI_ASSERT(count <= SHORT);
    uint32_t id[SHORT], rank[SHORT], result[SHORT];
    for (size_t i = 0; i < count; i++) {
        id[i] = symbols[i].id;
        rank[i] = i + 1 < count ? sumi_merges_find(merges, id[i], symbols[i + 1].id, &result[i]) : NONE;
    }
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i < count; i++) { best = rank[i] < rank[best] ? i : best; }
        if (count == 0 || rank[best] == NONE) { break; }
        id[best] = result[best];
        count--;
        for (size_t i = best + 1; i < count; i++) {
            id[i] = id[i + 1];
            rank[i] = rank[i + 1];
            result[i] = result[i + 1];
        }
        rank[best] = best + 1 < count ? sumi_merges_find(merges, id[best], id[best + 1], &result[best]) : NONE;
        if (best > 0) { rank[best - 1] = sumi_merges_find(merges, id[best - 1], id[best], &result[best - 1]); }
    }
    for (size_t i = 0; i < count; i++) { sumi_ids_put(out, id[i]); }
}

typedef struct merge_queue {
    uint64_t* keys; // rank << 32 | position; a heap, smallest first
    size_t count;
} merge_queue;

static void queue_push(merge_queue* queue, uint64_t key)
{
    size_t index = queue->count++;
    while (index > 0 && queue->keys[(index - 1) / 2] > key) {
        queue->keys[index] = queue->keys[(index - 1) / 2];
        index = (index - 1) / 2;
    }
    queue->keys[index] = key;
}

static uint64_t queue_pop(merge_queue* queue)
{
    SUMI_ASSERT(queue->count > 0);
    uint64_t top = queue->keys[0], last = queue->keys[--queue->count];
    size_t index = 0;
    for (size_t child = 1; child < queue->count; child = 2 * index + 1) {
        child += child + 1 < queue->count && queue->keys[child + 1] < queue->keys[child];
        if (queue->keys[child] >= last) { break; }
        queue->keys[index] = queue->keys[child];
        index = child;
    }
    queue->keys[index] = last;
    return top;
}

// The rank of the token whose text is that of two adjacent symbols together; NONE if there is no such token.
static uint32_t find_joined(const sumi_bpe* bpe, const char* piece, const symbol* left, const symbol* right,
                            uint32_t* out_result)
{
    if (left->begin == left->end || right->begin == right->end) { return NONE; }
    SUMI_ASSERT(left->end == right->begin);
    const uint32_t entry = sumi_vocabulary_find(&bpe->vocabulary, piece + left->begin, right->end - left->begin);
    if (entry == NONE) { return NONE; }
    *out_result = sumi_vocabulary_id(&bpe->vocabulary, entry);
    return ((const uint32_t*)bpe->ranks)[entry];
}

// Finds the merge of the symbol at `position` with the next one and adds it to the queue.
static void rank_pair(const sumi_bpe* bpe, const char* piece, symbol* symbols, uint32_t position, merge_queue* queue)
{
    symbol* left = &symbols[position];
    if (left->next == NONE) {
        left->rank = NONE;
    } else {
        const symbol* right = &symbols[left->next];
        left->rank = bpe->by_score ? find_joined(bpe, piece, left, right, &left->result)
                                   : sumi_merges_find(&bpe->merges, left->id, right->id, &left->result);
    }
    if (left->rank != NONE) { queue_push(queue, (uint64_t)left->rank << 32 | position); }
}

static sumi_result merge_long(symbol_list* list, const char* piece, sumi_ids* out, sumi_error* error)
{
    SUMI_ASSERT(list->count < NONE);
    symbol* symbols = list->symbols;
    uint32_t count = (uint32_t)list->count;
    SUMI_TRY(sumi_grow(list->heap, &list->scratch->queue, &list->scratch->queue_capacity, 3 * (size_t)count,
                       sizeof(uint64_t), error));
    merge_queue queue = {list->scratch->queue, 0};
    for (uint32_t i = 0; i < count; i++) {
        symbols[i].previous = i == 0 ? NONE : i - 1;
        symbols[i].next = i + 1 == count ? NONE : i + 1;
        rank_pair(list->bpe, piece, symbols, i, &queue);
    }
    SUMI_ASSERT(queue.count <= count);
    while (queue.count != 0) {
        uint64_t key = queue_pop(&queue);
        uint32_t position = (uint32_t)key;
        symbol* left = &symbols[position];
        if (left->rank != key >> 32) { continue; }
        symbol* right = &symbols[left->next];
        SUMI_ASSERT(left->next != NONE && right->previous == position);
        left->id = left->result;
        left->end = right->end;
        left->next = right->next;
        right->rank = NONE; // makes the queue's entries for this symbol stale
        if (left->next != NONE) { symbols[left->next].previous = position; }
        rank_pair(list->bpe, piece, symbols, position, &queue);
        if (left->previous != NONE) { rank_pair(list->bpe, piece, symbols, left->previous, &queue); }
    }
    for (uint32_t i = count > 0 ? 0 : NONE; i != NONE; i = symbols[i].next) { sumi_ids_put(out, symbols[i].id); }
    return SUMI_OK;
}

// With ignore_merges a piece that is itself a token becomes that token, even if the merges would give other ids. Looks
// the piece up.
static sumi_result find_piece(symbol_list* list, const char* piece, size_t bytes, uint32_t* out_entry,
                              sumi_error* error)
{
    SUMI_ASSERT(bytes > 0);
    if (!list->bpe->byte_level) {
        *out_entry = sumi_vocabulary_find(&list->bpe->vocabulary, piece, bytes);
        return SUMI_OK;
    }
    sumi_text_buffer* text = &list->scratch->text;
    text->bytes = 0;
    SUMI_TRY(sumi_text_reserve(list->heap, text, 4 * bytes, error));
    for (size_t i = 0; i < bytes; i++) {
        text->bytes += sumi_byte_level_character((unsigned char)piece[i], sumi_text_data(text) + text->bytes);
    }
    *out_entry = sumi_vocabulary_find(&list->bpe->vocabulary, sumi_text_data(text), text->bytes);
    return SUMI_OK;
}

sumi_result sumi_bpe_encode(sumi_heap* heap, const sumi_bpe* bpe, sumi_model_scratch* scratch, const char* piece,
                            size_t bytes, sumi_ids* out, sumi_error* error)
{
    SUMI_ASSERT(bytes > 0 && bytes < NONE);
    symbol_list list = {.heap = heap, .bpe = bpe, .scratch = scratch};
    if (bpe->ignore_merges) {
        uint32_t entry = NONE;
        SUMI_TRY(find_piece(&list, piece, bytes, &entry, error));
        if (entry != NONE) {
            sumi_ids_put(out, sumi_vocabulary_id(&bpe->vocabulary, entry));
            return SUMI_OK;
        }
    }
    SUMI_TRY(make_symbols(&list, piece, bytes, error));
    if (list.count > SHORT || bpe->by_score) { return merge_long(&list, piece, out, error); }
    merge_short(&bpe->merges, list.symbols, list.count, out);
    return SUMI_OK;
}
