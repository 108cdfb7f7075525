#include "text/vocabulary.h"
#include "base/assert.h"
#include <string.h>

// FNV-1a over the bytes, so that the hash of a text is computed from the hash of its prefix. hash_mix afterwards
// strengthens the weak bits.
#define HASH_BEGIN 0xCBF29CE484222325u

static uint64_t hash_step(uint64_t hash, char byte) { return (hash ^ (unsigned char)byte) * 0x100000001B3u; }

static uint64_t hash_mix(uint64_t hash)
{
    hash ^= hash >> 32;
    hash *= 0x9FB21C651E98DF25u;
    return hash ^ hash >> 28;
}

static uint64_t hash_text(const char* text, size_t bytes)
{
    uint64_t hash = HASH_BEGIN;
    for (size_t i = 0; i < bytes; i++) hash = hash_step(hash, text[i]);
    return hash;
}

// A hash slot holds the top byte of the mixed hash and entry + 1. Its position in the table comes from the low bits.
static uint32_t slot_of(uint64_t mixed, size_t entry)
{
    SUMI_ASSERT(entry < SUMI_VOCABULARY_MAX_COUNT);
    return (uint32_t)(mixed >> 56) << 24 | ((uint32_t)entry + 1);
}

static bool slot_matches(uint32_t slot, uint64_t mixed) { return slot >> 24 == mixed >> 56; }

static uint32_t slot_entry(uint32_t slot)
{
    SUMI_ASSERT((slot & 0xFFFFFFu) != 0);
    return (slot & 0xFFFFFFu) - 1;
}

static void slot_put(uint32_t* slots, size_t slot_count, uint64_t mixed, size_t entry)
{
    SUMI_ASSERT(slot_count > 0 && (slot_count & (slot_count - 1)) == 0);
    size_t slot_index = (size_t)mixed & (slot_count - 1);
    while (slots[slot_index] != 0) slot_index = (slot_index + 1) & (slot_count - 1);
    slots[slot_index] = slot_of(mixed, entry);
}

static size_t slots_for(size_t count)
{
    size_t slot_count = 64;
    while (slot_count * 3 / 4 < count) slot_count *= 2;
    return slot_count;
}

static sumi_result capacity_error(sumi_error* error, const char* what)
{
    return sumi_fail(error, SUMI_NOT_SUPPORTED,
                     "the tokenizer has more than %u %s; use the released tokenizer of the model",
                     SUMI_VOCABULARY_MAX_COUNT, what);
}

// ---- Vocabulary -----------------------------------------------------------------------------------------------------

sumi_result sumi_vocabulary_begin(sumi_vocabulary* vocabulary, sumi_heap* heap, size_t expected_count,
                                  bool with_prefixes, sumi_error* error)
{
    SUMI_ASSERT(heap != NULL && expected_count <= SUMI_VOCABULARY_MAX_COUNT);
    *vocabulary = (sumi_vocabulary){.heap = heap};
    vocabulary->slot_count = slots_for(expected_count);
    vocabulary->slots = sumi_alloc_zero(heap, vocabulary->slot_count * sizeof *vocabulary->slots);
    if (vocabulary->slots == NULL)
        return sumi_out_of_memory(error, vocabulary->slot_count * sizeof *vocabulary->slots, "a vocabulary");
    if (with_prefixes) {
        // about 16 bits per token; with the 250,002 tokens of XLM-R a quarter of the bits are set
        uint32_t log2_bits = 15;
        while (log2_bits < 28 && ((size_t)1 << log2_bits) < expected_count * 16) log2_bits++;
        vocabulary->prefix_shift = 64 - log2_bits;
        vocabulary->prefixes = sumi_alloc_zero(heap, ((size_t)1 << log2_bits) / 8);
        if (vocabulary->prefixes == NULL)
            return sumi_out_of_memory(error, ((size_t)1 << log2_bits) / 8, "a vocabulary");
    }
    SUMI_TRY(sumi_grow(heap, &vocabulary->text, &vocabulary->text_capacity, expected_count * 8 + 64, 1, error));
    SUMI_TRY(sumi_grow(heap, &vocabulary->entries, &vocabulary->entry_capacity, expected_count + 2,
                       sizeof(sumi_vocabulary_entry), error));
    ((sumi_vocabulary_entry*)vocabulary->entries)[0] = (sumi_vocabulary_entry){0, 0};
    return SUMI_OK;
}

void sumi_vocabulary_destroy(sumi_vocabulary* vocabulary)
{
    if (vocabulary->heap != NULL) {
        sumi_free(vocabulary->heap, vocabulary->text);
        sumi_free(vocabulary->heap, vocabulary->entries);
        sumi_free(vocabulary->heap, vocabulary->slots);
        sumi_free(vocabulary->heap, vocabulary->prefixes);
    }
    *vocabulary = (sumi_vocabulary){0};
}

const char* sumi_vocabulary_text(const sumi_vocabulary* vocabulary, uint32_t entry, size_t* out_bytes)
{
    SUMI_ASSERT(entry < vocabulary->count);
    const sumi_vocabulary_entry* entries = vocabulary->entries;
    SUMI_ASSERT(entries[entry].begin <= entries[entry + 1].begin && entries[entry + 1].begin <= vocabulary->text_bytes);
    *out_bytes = entries[entry + 1].begin - entries[entry].begin;
    return (const char*)vocabulary->text + entries[entry].begin;
}

bool sumi_vocabulary_is_joined(const sumi_vocabulary* vocabulary, uint32_t entry, const char* left, size_t left_bytes,
                               const char* right, size_t right_bytes)
{
    if (entry >= vocabulary->count) return false;
    size_t bytes;
    const char* text = sumi_vocabulary_text(vocabulary, entry, &bytes);
    return bytes == left_bytes + right_bytes && memcmp(text, left, left_bytes) == 0
        && memcmp(text + left_bytes, right, right_bytes) == 0;
}

static uint32_t find_hashed(const sumi_vocabulary* vocabulary, const char* text, size_t bytes, uint64_t mixed)
{
    SUMI_ASSERT(vocabulary->count < vocabulary->slot_count); // an empty hash slot ends every search
    for (size_t slot_index = (size_t)mixed & (vocabulary->slot_count - 1);;
         slot_index = (slot_index + 1) & (vocabulary->slot_count - 1)) {
        uint32_t slot = vocabulary->slots[slot_index];
        if (slot == 0) return SUMI_VOCABULARY_NONE;
        if (slot_matches(slot, mixed)) {
            size_t entry_bytes;
            const char* entry_text = sumi_vocabulary_text(vocabulary, slot_entry(slot), &entry_bytes);
            if (entry_bytes == bytes && memcmp(entry_text, text, bytes) == 0) return slot_entry(slot);
        }
    }
}

uint32_t sumi_vocabulary_find(const sumi_vocabulary* vocabulary, const char* text, size_t bytes)
{
    return vocabulary->slots == NULL ? SUMI_VOCABULARY_NONE
                                     : find_hashed(vocabulary, text, bytes, hash_mix(hash_text(text, bytes)));
}

static void prefetch(const void* address)
{
#if defined(__GNUC__) || defined(__clang__)
    __builtin_prefetch(address);
#else
    (void)address;
#endif
}

uint64_t sumi_vocabulary_prefetch(const sumi_vocabulary* vocabulary, const char* text, size_t bytes)
{
    uint64_t mixed = hash_mix(hash_text(text, bytes));
    prefetch(&vocabulary->slots[(size_t)mixed & (vocabulary->slot_count - 1)]);
    return mixed;
}

void sumi_vocabulary_prefetch_entry(const sumi_vocabulary* vocabulary, uint64_t hash)
{
    uint32_t slot = vocabulary->slots[(size_t)hash & (vocabulary->slot_count - 1)];
    if (slot != 0) prefetch((const sumi_vocabulary_entry*)vocabulary->entries + slot_entry(slot));
}

uint32_t sumi_vocabulary_find_prefetched(const sumi_vocabulary* vocabulary, const char* text, size_t bytes,
                                         uint64_t hash)
{
    SUMI_ASSERT(hash == hash_mix(hash_text(text, bytes)));
    return find_hashed(vocabulary, text, bytes, hash);
}

static sumi_result vocabulary_rehash(sumi_vocabulary* vocabulary, sumi_error* error)
{
    SUMI_ASSERT(vocabulary->slot_count > 0);
    size_t slot_count = vocabulary->slot_count * 2;
    uint32_t* slots = sumi_alloc_zero(vocabulary->heap, slot_count * sizeof *slots);
    if (slots == NULL) return sumi_out_of_memory(error, slot_count * sizeof *slots, "a vocabulary");
    for (uint32_t entry = 0; entry < vocabulary->count; entry++) {
        size_t bytes;
        const char* text = sumi_vocabulary_text(vocabulary, entry, &bytes);
        slot_put(slots, slot_count, hash_mix(hash_text(text, bytes)), entry);
    }
    sumi_free(vocabulary->heap, vocabulary->slots);
    vocabulary->slots = slots;
    vocabulary->slot_count = slot_count;
    return SUMI_OK;
}

static size_t prefix_bit(const sumi_vocabulary* vocabulary, uint64_t hash)
{
    SUMI_ASSERT(vocabulary->prefixes != NULL && vocabulary->prefix_shift >= 36 && vocabulary->prefix_shift <= 49);
    return (size_t)((hash ^ hash >> 29) * 0xBF58476D1CE4E5B9u >> vocabulary->prefix_shift);
}

sumi_result sumi_vocabulary_add(sumi_vocabulary* vocabulary, const char* text, size_t bytes, uint32_t id,
                                uint32_t* out_entry, bool* out_existed, sumi_error* error)
{
    SUMI_ASSERT(vocabulary->heap != NULL && (bytes == 0 || text != NULL));
    uint64_t mixed = hash_mix(hash_text(text, bytes));
    *out_entry = find_hashed(vocabulary, text, bytes, mixed);
    *out_existed = *out_entry != SUMI_VOCABULARY_NONE;
    if (*out_existed) return SUMI_OK;
    if (vocabulary->count >= SUMI_VOCABULARY_MAX_COUNT || bytes > UINT32_MAX - vocabulary->text_bytes)
        return capacity_error(error, "tokens");
    if (vocabulary->count + 1 > vocabulary->slot_count * 3 / 4) SUMI_TRY(vocabulary_rehash(vocabulary, error));
    SUMI_TRY(sumi_grow(vocabulary->heap, &vocabulary->text, &vocabulary->text_capacity, vocabulary->text_bytes + bytes,
                       1, error));
    SUMI_TRY(sumi_grow(vocabulary->heap, &vocabulary->entries, &vocabulary->entry_capacity, vocabulary->count + 2,
                       sizeof(sumi_vocabulary_entry), error));
    if (bytes != 0) {
        memcpy((char*)vocabulary->text + vocabulary->text_bytes, text, bytes);
        vocabulary->first_bytes[(unsigned char)text[0]] = true;
    }
    if (vocabulary->prefixes != NULL) {
        uint64_t hash = HASH_BEGIN;
        for (size_t i = 0; i < bytes; i++) {
            hash = hash_step(hash, text[i]);
            size_t bit = prefix_bit(vocabulary, hash);
            vocabulary->prefixes[bit / 8] |= (uint8_t)(1u << bit % 8);
        }
    }
    vocabulary->max_bytes = bytes > vocabulary->max_bytes ? bytes : vocabulary->max_bytes;
    sumi_vocabulary_entry* entries = vocabulary->entries;
    *out_entry = (uint32_t)vocabulary->count;
    entries[vocabulary->count].id = id;
    vocabulary->text_bytes += bytes;
    vocabulary->count++;
    entries[vocabulary->count] = (sumi_vocabulary_entry){(uint32_t)vocabulary->text_bytes, 0};
    SUMI_ASSERT(vocabulary->count * 4 <= vocabulary->slot_count * 3 && vocabulary->count < vocabulary->entry_capacity);
    SUMI_ASSERT(vocabulary->text_bytes <= vocabulary->text_capacity);
    slot_put(vocabulary->slots, vocabulary->slot_count, mixed, *out_entry);
    return SUMI_OK;
}

bool sumi_vocabulary_next(const sumi_vocabulary* vocabulary, sumi_vocabulary_walk* walk, const char* text, size_t bytes)
{
    SUMI_ASSERT(walk->bytes <= bytes);
    if (walk->bytes == 0) walk->hash = HASH_BEGIN;
    while (walk->bytes < bytes) {
        walk->hash = hash_step(walk->hash, text[walk->bytes]);
        walk->bytes++;
        size_t bit = prefix_bit(vocabulary, walk->hash);
        if ((vocabulary->prefixes[bit / 8] >> bit % 8 & 1) == 0) return false;
        walk->entry = find_hashed(vocabulary, text, walk->bytes, hash_mix(walk->hash));
        if (walk->entry != SUMI_VOCABULARY_NONE) return true;
    }
    return false;
}

size_t sumi_vocabulary_longest(const sumi_vocabulary* vocabulary, const char* text, size_t bytes, size_t short_bytes,
                               bool* out_has, uint64_t* work)
{
    size_t longest = 0;
    sumi_vocabulary_walk walk = {0};
    *out_has = false;
    while (sumi_vocabulary_next(vocabulary, &walk, text, bytes)) {
        longest = walk.bytes;
        *out_has = *out_has || longest == short_bytes;
    }
    *work += walk.bytes;
    return longest;
}

// ---- Merges ---------------------------------------------------------------------------------------------------------

static uint64_t hash_pair(uint32_t left, uint32_t right)
{
    uint64_t hash = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    return hash_mix(hash);
}

sumi_result sumi_merges_begin(sumi_merges* merges, sumi_heap* heap, size_t expected_count, sumi_error* error)
{
    SUMI_ASSERT(heap != NULL && expected_count <= SUMI_VOCABULARY_MAX_COUNT);
    *merges = (sumi_merges){.heap = heap};
    merges->slot_count = slots_for(expected_count);
    merges->slots = sumi_alloc_zero(heap, merges->slot_count * sizeof *merges->slots);
    if (merges->slots == NULL)
        return sumi_out_of_memory(error, merges->slot_count * sizeof *merges->slots, "the merges of a tokenizer");
    return sumi_grow(heap, &merges->list, &merges->capacity, expected_count + 1, sizeof(sumi_merge), error);
}

void sumi_merges_destroy(sumi_merges* merges)
{
    if (merges->heap != NULL) {
        sumi_free(merges->heap, merges->list);
        sumi_free(merges->heap, merges->slots);
    }
    *merges = (sumi_merges){0};
}

// The hash slot that holds the pair, or the empty one where the pair belongs.
static uint32_t* merge_slot(const sumi_merges* merges, uint32_t left, uint32_t right, uint64_t mixed)
{
    SUMI_ASSERT(merges->slots != NULL && merges->count < merges->slot_count);
    const sumi_merge* list = merges->list;
    for (size_t slot_index = (size_t)mixed & (merges->slot_count - 1);;
         slot_index = (slot_index + 1) & (merges->slot_count - 1)) {
        uint32_t slot = merges->slots[slot_index];
        if (slot == 0
            || (slot_matches(slot, mixed) && list[slot_entry(slot)].left == left
                && list[slot_entry(slot)].right == right))
            return &merges->slots[slot_index];
    }
}

static sumi_result merges_rehash(sumi_merges* merges, sumi_error* error)
{
    size_t old_count = merges->slot_count;
    uint32_t* old = merges->slots;
    uint32_t* slots = sumi_alloc_zero(merges->heap, old_count * 2 * sizeof *slots);
    if (slots == NULL) return sumi_out_of_memory(error, old_count * 2 * sizeof *slots, "the merges of a tokenizer");
    const sumi_merge* list = merges->list;
    for (size_t i = 0; i < old_count; i++) { // over the hash slots, not the list: replaced merges stay replaced
        if (old[i] != 0) {
            const sumi_merge* merge = &list[slot_entry(old[i])];
            slot_put(slots, old_count * 2, hash_pair(merge->left, merge->right), slot_entry(old[i]));
        }
    }
    sumi_free(merges->heap, old);
    merges->slots = slots;
    merges->slot_count = old_count * 2;
    return SUMI_OK;
}

sumi_result sumi_merges_add(sumi_merges* merges, uint32_t left, uint32_t right, uint32_t result, sumi_error* error)
{
    SUMI_ASSERT(merges->heap != NULL);
    if (merges->count >= SUMI_VOCABULARY_MAX_COUNT) return capacity_error(error, "merges");
    if (merges->count + 1 > merges->slot_count * 3 / 4) SUMI_TRY(merges_rehash(merges, error));
    SUMI_TRY(sumi_grow(merges->heap, &merges->list, &merges->capacity, merges->count + 1, sizeof(sumi_merge), error));
    uint64_t mixed = hash_pair(left, right);
    uint32_t* slot = merge_slot(merges, left, right, mixed);
    ((sumi_merge*)merges->list)[merges->count] = (sumi_merge){left, right, result};
    SUMI_ASSERT(merges->count < merges->capacity && (merges->count + 1) * 4 <= merges->slot_count * 3);
    *slot = slot_of(mixed, merges->count);
    merges->count++;
    return SUMI_OK;
}

uint32_t sumi_merges_find(const sumi_merges* merges, uint32_t left, uint32_t right, uint32_t* out_result)
{
    uint32_t slot = *merge_slot(merges, left, right, hash_pair(left, right));
    if (slot == 0) return SUMI_VOCABULARY_NONE;
    *out_result = ((const sumi_merge*)merges->list)[slot_entry(slot)].result;
    return slot_entry(slot);
}
