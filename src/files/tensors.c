// A set of tensors: an array in the order of reading, and an open-addressed hash table over the names.
//
//     slots  [ 0 | 3 | 0 | 1 | 2 | ... ]   hash slots: tensor index + 1, 0 is free; a power of two, at most half full;
//                                          linear probing
//     text   blocks that never move, so that names may be kept as pointers
//
// Whenever the table grows it is rebuilt with a new seed (the address of its memory).
#include "files/tensors.h"
#include "base/assert.h"
#include <string.h>

#define TEXT_BLOCK_BYTES 65536u

void sumi_tensor_set_init(sumi_tensor_set* set, sumi_heap* heap, const sumi_files* files)
{
    SUMI_ASSERT(heap != NULL);
    memset(set, 0, sizeof *set);
    set->heap = heap;
    set->files = files;
    set->text_used = TEXT_BLOCK_BYTES; // no block yet
}

void sumi_tensor_set_close(sumi_tensor_set* set)
{
    if (set->heap == NULL) return;
    for (size_t i = 0; i < set->opened_count; i++) sumi_file_close(&set->opened[i]);
    for (size_t i = 0; i < set->text_block_count; i++) sumi_free(set->heap, set->text_blocks[i]);
    sumi_free(set->heap, set->text_blocks);
    sumi_free(set->heap, set->opened);
    sumi_free(set->heap, set->metadata);
    sumi_free(set->heap, set->tensors);
    sumi_free(set->heap, set->slots);
    memset(set, 0, sizeof *set);
}

// ---- Names ----------------------------------------------------------------------------------------------------------

// Copies a text, terminated, into the set's text blocks. A text of a quarter block or more gets its own block, which is
// inserted before the current one.
static sumi_result copy_into_set(sumi_tensor_set* set, const char* text, size_t bytes, sumi_error* error,
                                 const char** out_text)
{
    const bool large = bytes >= TEXT_BLOCK_BYTES / 4;
    if (large || bytes + 1 > TEXT_BLOCK_BYTES - set->text_used) {
        SUMI_TRY(sumi_grow(set->heap, (void**)&set->text_blocks, &set->text_block_capacity, set->text_block_count + 1,
                           sizeof *set->text_blocks, error));
        const size_t block_bytes = large ? bytes + 1 : TEXT_BLOCK_BYTES;
        char* block = sumi_alloc(set->heap, block_bytes);
        if (block == NULL) return sumi_out_of_memory(error, block_bytes, "tensor names");
        set->text_blocks[set->text_block_count++] = block;
        if (large) {
            memcpy(block, text, bytes);
            block[bytes] = '\0';
            if (set->text_block_count > 1) {
                set->text_blocks[set->text_block_count - 1] = set->text_blocks[set->text_block_count - 2];
                set->text_blocks[set->text_block_count - 2] = block;
            }
            *out_text = block;
            return SUMI_OK;
        }
        set->text_used = 0;
    }
    SUMI_ASSERT(set->text_block_count > 0 && set->text_used + bytes + 1 <= TEXT_BLOCK_BYTES);
    char* copy = set->text_blocks[set->text_block_count - 1] + set->text_used;
    memcpy(copy, text, bytes);
    copy[bytes] = '\0';
    set->text_used += bytes + 1;
    *out_text = copy;
    return SUMI_OK;
}

// FNV-1a that starts from the seed. hash_slot finishes the hash with a multiply and a fold, so that the low bits depend
// on all bits.
static uint64_t hash_more(uint64_t hash, const char* text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    return hash;
}

static size_t hash_slot(const sumi_tensor_set* set, uint64_t hash)
{
    SUMI_ASSERT(set->slot_count > 0 && (set->slot_count & (set->slot_count - 1)) == 0);
    hash ^= hash >> 32;
    hash *= 0x9e3779b97f4a7c15u;
    return (size_t)(hash >> 29) & (set->slot_count - 1);
}

// The hash slot that holds prefix + name, or the free one where that name belongs. Requires slot_count > 0.
static size_t find_slot(const sumi_tensor_set* set, const char* prefix, size_t prefix_bytes, const char* name,
                        size_t name_bytes)
{
    SUMI_ASSERT(set->slot_count > 0 && set->count < set->slot_count); // a free hash slot ends every search
    size_t slot = hash_slot(set, hash_more(hash_more(set->hash_seed, prefix, prefix_bytes), name, name_bytes));
    for (; set->slots[slot] != 0; slot = (slot + 1) & (set->slot_count - 1)) {
        const char* slot_name = set->tensors[set->slots[slot] - 1].name;
        // strncmp stops at the terminator of `slot_name`, so a shorter name is not read past its end
        if (strncmp(slot_name, prefix, prefix_bytes) == 0 && strncmp(slot_name + prefix_bytes, name, name_bytes) == 0
            && slot_name[prefix_bytes + name_bytes] == '\0')
            break;
    }
    return slot;
}

static sumi_result grow_slots(sumi_tensor_set* set, sumi_error* error)
{
    const size_t slot_count = set->slot_count == 0 ? 256 : set->slot_count * 2;
    uint32_t* slots = sumi_alloc_array(set->heap, slot_count, sizeof *slots);
    if (slots == NULL) return sumi_out_of_memory(error, slot_count * sizeof *slots, "the table of tensor names");
    memset(slots, 0, slot_count * sizeof *slots);
    sumi_free(set->heap, set->slots);
    set->slots = slots;
    set->slot_count = slot_count;
    set->hash_seed = 0xcbf29ce484222325u ^ (uint64_t)(uintptr_t)slots;
    for (size_t i = 0; i < set->count; i++) {
        const char* name = set->tensors[i].name;
        slots[find_slot(set, "", 0, name, strlen(name))] = (uint32_t)i + 1;
    }
    return SUMI_OK;
}

const sumi_tensor* sumi_tensor_find_prefixed(const sumi_tensor_set* set, const char* prefix, const char* name)
{
    if (set->slot_count == 0) return NULL;
    const uint32_t entry = set->slots[find_slot(set, prefix, strlen(prefix), name, strlen(name))];
    return entry > 0 ? &set->tensors[entry - 1] : NULL;
}

const sumi_tensor* sumi_tensor_find(const sumi_tensor_set* set, const char* name)
{
    return sumi_tensor_find_prefixed(set, "", name);
}

sumi_result sumi_tensor_set_add(sumi_tensor_set* set, const char* name, size_t name_bytes, const sumi_tensor* tensor,
                                const char* path, sumi_error* error)
{
    SUMI_ASSERT(set->heap != NULL && tensor->rank >= 0 && tensor->rank <= SUMI_TENSOR_MAX_RANK);
    SUMI_ASSERT(tensor->file_index >= -1 && tensor->file_index < (int64_t)set->opened_count);
    SUMI_ASSERT(tensor->data != NULL || tensor->bytes == 0);
    if (name_bytes > 0 && memchr(name, '\0', name_bytes) != NULL) {
        return sumi_fail(error, SUMI_FILE_MALFORMED, "%s: the name of tensor %zu holds a NUL character", path,
                         set->count);
    }
    if (set->count >= UINT32_MAX - 1) return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: more than 2^32 tensors", path);
    if ((set->count + 1) * 2 > set->slot_count) SUMI_TRY(grow_slots(set, error));
    const size_t slot = find_slot(set, "", 0, name, name_bytes);
    if (set->slots[slot] != 0) {
        const sumi_tensor* existing = &set->tensors[set->slots[slot] - 1];
        const bool is_in_other_file = existing->file_index >= 0 && existing->file_index != tensor->file_index;
        return sumi_fail(error, SUMI_FILE_MALFORMED, "%s: tensor %.120s occurs twice%s%s", path, existing->name,
                         is_in_other_file ? ", first in " : "",
                         is_in_other_file ? set->opened[existing->file_index].path : "");
    }
    SUMI_TRY(sumi_grow(set->heap, (void**)&set->tensors, &set->capacity, set->count + 1, sizeof *set->tensors, error));
    const char* copied_name;
    SUMI_TRY(copy_into_set(set, name, name_bytes, error, &copied_name));
    set->tensors[set->count] = *tensor;
    set->tensors[set->count].name = copied_name;
    SUMI_ASSERT(set->slots[slot] == 0 && (set->count + 1) * 2 <= set->slot_count);
    set->slots[slot] = (uint32_t)++set->count;
    return SUMI_OK;
}

// ---- Metadata -------------------------------------------------------------------------------------------------------

sumi_result sumi_metadata_add(sumi_tensor_set* set, const char* key, size_t key_bytes, const char* value,
                              size_t value_bytes, sumi_error* error)
{
    SUMI_ASSERT(key != NULL && value != NULL);
    if ((key_bytes > 0 && memchr(key, '\0', key_bytes) != NULL)
        || (value_bytes > 0 && memchr(value, '\0', value_bytes) != NULL))
        return SUMI_OK;
    SUMI_TRY(sumi_grow(set->heap, (void**)&set->metadata, &set->metadata_capacity, set->metadata_count + 1,
                       sizeof *set->metadata, error));
    sumi_metadata* entry = &set->metadata[set->metadata_count];
    SUMI_TRY(copy_into_set(set, key, key_bytes, error, &entry->key));
    SUMI_TRY(copy_into_set(set, value, value_bytes, error, &entry->value));
    set->metadata_count++;
    return SUMI_OK;
}

const char* sumi_metadata_find(const sumi_tensor_set* set, const char* key)
{
    for (size_t i = set->metadata_count; i > 0; i--) {
        if (strcmp(set->metadata[i - 1].key, key) == 0) return set->metadata[i - 1].value;
    }
    return NULL;
}
