// The two tables of a tokenizer: texts to ids, and pairs of ids to merges. Both hold hundreds of thousands of entries
// in few megabytes:
//
//     text     "!\"#$%...ĠtheĠinĠa..."                all tokens, one after another
//     entries  {begin, id} {begin, id} ...            12.5 bytes per token of the 151,643 of Qwen, text included
//     slots    tag:8 | entry + 1:24                   hash slots: open addressing, 0 is empty; the tag avoids most
//                                                    reads of entries that do not match
#ifndef SUMI_TEXT_VOCABULARY_H
#define SUMI_TEXT_VOCABULARY_H
#include "base/memory.h"

#define SUMI_VOCABULARY_MAX_COUNT 0xFFFFFEu // entries fit the 24 bits of a hash slot; ids have the same limit
#define SUMI_VOCABULARY_NONE UINT32_MAX

typedef struct sumi_vocabulary_entry {
    uint32_t begin, id;
} sumi_vocabulary_entry;

typedef struct sumi_vocabulary {
    sumi_heap* heap;
    void* text;
    void* entries; // count + 1 of type sumi_vocabulary_entry: the last one only marks the end of the text
    uint32_t* slots;
    // a Bloom filter of all prefixes of all tokens, if asked for: sumi_vocabulary_next knows when no longer token can
    // match
    uint8_t* prefixes;
    size_t text_bytes, text_capacity, count, entry_capacity, slot_count;
    uint32_t prefix_shift; // 64 - log2(bits of prefixes)
    bool first_bytes[256]; // bytes with which some token begins
    size_t max_bytes;      // of the longest token
} sumi_vocabulary;

// Allocates the capacity for about expected_count tokens. A zeroed vocabulary and one that failed to begin may be
// destroyed.
sumi_result sumi_vocabulary_begin(sumi_vocabulary* vocabulary, sumi_heap* heap, size_t expected_count,
                                  bool with_prefixes, sumi_error* error);
void sumi_vocabulary_destroy(sumi_vocabulary* vocabulary);
// Adds a token, or finds the entry with the same text (*out_existed is true and its id unchanged). *out_entry is its
// entry.
sumi_result sumi_vocabulary_add(sumi_vocabulary* vocabulary, const char* text, size_t bytes, uint32_t id,
                                uint32_t* out_entry, bool* out_existed, sumi_error* error);
// Returns the entry or SUMI_VOCABULARY_NONE.
uint32_t sumi_vocabulary_find(const sumi_vocabulary* vocabulary, const char* text, size_t bytes);
const char* sumi_vocabulary_text(const sumi_vocabulary* vocabulary, uint32_t entry, size_t* out_bytes);

// Whether the text of `entry`, if it exists, is `left` followed by `right`.
bool sumi_vocabulary_is_joined(const sumi_vocabulary* vocabulary, uint32_t entry, const char* left, size_t left_bytes,
                               const char* right, size_t right_bytes);
// Finding in three steps, for the loader. Hash slots and entries are spread over megabytes; prefetching those of many
// tokens before the first is needed hides the memory latency (151,387 merges: 130 ms without, 70 ms with prefetching).
// sumi_vocabulary_prefetch prefetches the hash slot and returns the hash for the other two functions.
uint64_t sumi_vocabulary_prefetch(const sumi_vocabulary* vocabulary, const char* text, size_t bytes);
void sumi_vocabulary_prefetch_entry(const sumi_vocabulary* vocabulary, uint64_t hash);
uint32_t sumi_vocabulary_find_prefetched(const sumi_vocabulary* vocabulary, const char* text, size_t bytes,
                                         uint64_t hash);

static inline uint32_t sumi_vocabulary_id(const sumi_vocabulary* vocabulary, uint32_t entry)
{
    return ((const sumi_vocabulary_entry*)vocabulary->entries)[entry].id;
}

// Finds the tokens that a text begins with, shortest first (needs with_prefixes):
//     sumi_vocabulary_walk walk = {0};
//     while (sumi_vocabulary_next(&vocabulary, &walk, text, bytes)) use(walk.entry, walk.bytes);
typedef struct sumi_vocabulary_walk {
    uint64_t hash;
    size_t bytes; // length of the token found
    uint32_t entry;
} sumi_vocabulary_walk;
bool sumi_vocabulary_next(const sumi_vocabulary* vocabulary, sumi_vocabulary_walk* walk, const char* text,
                          size_t bytes);

// The length of the longest token that a text begins with; 0: none (needs with_prefixes). *out_has: whether
// text[0, short_bytes) is a token. Adds the number of bytes examined to *work.
size_t sumi_vocabulary_longest(const sumi_vocabulary* vocabulary, const char* text, size_t bytes, size_t short_bytes,
                               bool* out_has, uint64_t* work);

// ---- Merges: the rank of a merge is its index in the list -----------------------------------------------------------

typedef struct sumi_merge {
    uint32_t left, right, result;
} sumi_merge;

typedef struct sumi_merges {
    sumi_heap* heap;
    void* list; // sumi_merge
    uint32_t* slots;
    size_t count, capacity, slot_count;
} sumi_merges;

sumi_result sumi_merges_begin(sumi_merges* merges, sumi_heap* heap, size_t expected_count, sumi_error* error);
void sumi_merges_destroy(sumi_merges* merges);
// A repeated pair takes the later rank.
sumi_result sumi_merges_add(sumi_merges* merges, uint32_t left, uint32_t right, uint32_t result, sumi_error* error);
// Returns the rank or SUMI_VOCABULARY_NONE.
uint32_t sumi_merges_find(const sumi_merges* merges, uint32_t left, uint32_t right, uint32_t* out_result);
#endif
