// Named tensors out of files: what safetensors, sharded indexes and GGUF have in common once they are read. The data
// stays in the mapped file.
#ifndef SUMI_FILES_TENSORS_H
#define SUMI_FILES_TENSORS_H
#include "base/dtype.h"
#include "base/file.h"

#define SUMI_TENSOR_MAX_RANK 32 // more than any network needs; the formats themselves set no limit or 4

typedef struct sumi_tensor {
    const char* name; // UTF-8, terminated, owned by the set. Names that hold U+0000 are refused at reading
    sumi_dtype dtype;
    int32_t rank;
    int64_t shape[SUMI_TENSOR_MAX_RANK]; // outermost first, as PyTorch prints it (GGUF dims are reversed at reading)
    const void* data;                    // in the file; no alignment promised
    uint64_t bytes;
    int32_t file_index; // which file of the set, an index into `opened`; -1 when read from memory
    // all of the file, where it is mapped by base/platform.c and shared; NULL: the bytes are the host's, or a copy
    const void* mapping;
    uint64_t mapping_bytes;
} sumi_tensor;

// Strings; GGUF scalars as decimal text. Values holding U+0000 are left out, and arrays but for ComfyUI's original
// shapes: its converter flattens some tensors, which stay flat here, and comfy.gguf.orig_shape.NAME says "2,3,1".
typedef struct sumi_metadata {
    const char *key, *value;
} sumi_metadata;

// A growing set of tensors from one or more files. Zero it, then open files into it; close releases everything.
// After a failed open or read the set may hold a part of the file's tensors: the only thing left to do with it is to
// close it.
typedef struct sumi_tensor_set {
    sumi_heap* heap;
    const sumi_files* files;
    sumi_tensor* tensors;
    size_t count, capacity;
    sumi_metadata* metadata;
    size_t metadata_count, metadata_capacity;
    sumi_file* opened;
    size_t opened_count, opened_capacity;
    uint32_t* slots;
    size_t slot_count; // hash of names -> index + 1
    // differs from table to table, so that no file can be made whose names all collide
    uint64_t hash_seed;
    char** text_blocks;
    size_t text_block_count, text_block_capacity;
    size_t text_used; // names live here
} sumi_tensor_set;

void sumi_tensor_set_init(sumi_tensor_set* set, sumi_heap* heap, const sumi_files* files);
void sumi_tensor_set_close(sumi_tensor_set* set); // accepts a zeroed or half-filled set
// Adds the tensors of a file, told apart by content (GGUF magic, else safetensors). A name the set already has is
// SUMI_FILE_MALFORMED.
sumi_result sumi_tensor_set_open(sumi_tensor_set* set, const char* path, sumi_error* error);
// Adds a folder's weights: the first there is of `stem`.safetensors.index.json with its shards, `stem`.safetensors,
// `stem`.bf16.safetensors, `stem`.fp16.safetensors, `stem`.gguf. (Folders cannot be listed through the host's file
// callbacks, so names are tried.) Shard names with '/', '\\', ':', NUL or nothing in them, "." and ".." are refused.
sumi_result sumi_tensor_set_open_folder(sumi_tensor_set* set, const char* folder, const char* stem, sumi_error* error);
const sumi_tensor* sumi_tensor_find(const sumi_tensor_set* set, const char* name); // NULL when there is none
// the tensor called prefix + name
const sumi_tensor* sumi_tensor_find_prefixed(const sumi_tensor_set* set, const char* prefix, const char* name);
// NULL when there is none; of several the last, as other readers do
const char* sumi_metadata_find(const sumi_tensor_set* set, const char* key);

// The same opening, one file per step, for callers that may not block long. Zero it; locate; step until done; end (also
// after a failure, or in the middle). locate of a file path makes a list of that one file; found = false and no failure
// when the folder holds none of the names above.
typedef struct sumi_tensor_opening {
    sumi_heap* heap;
    sumi_file index; // the sharded index while it is in use
    char** paths;
    size_t count, capacity; // files to open
    size_t next;
} sumi_tensor_opening;
sumi_result sumi_tensor_opening_locate_file(sumi_tensor_opening* opening, sumi_heap* heap, const char* path,
                                            sumi_error* error);
sumi_result sumi_tensor_opening_locate_folder(sumi_tensor_opening* opening, sumi_heap* heap, const sumi_files* files,
                                              const char* folder, const char* stem, sumi_error* error, bool* out_found);
sumi_result sumi_tensor_opening_step(sumi_tensor_opening* opening, sumi_tensor_set* set, sumi_error* error,
                                     bool* out_done);
void sumi_tensor_opening_end(sumi_tensor_opening* opening);

// The readers, over bytes in memory (fuzzers call these). `path` is for messages; data must outlive the set.
sumi_result sumi_safetensors_read(sumi_tensor_set* set, const void* data, uint64_t bytes, const char* path,
                                  sumi_error* error);
sumi_result sumi_gguf_read(sumi_tensor_set* set, const void* data, uint64_t bytes, const char* path, sumi_error* error);
// An index: opens its shards, which lie in `folder`, then checks that every tensor it names is there.
sumi_result sumi_index_read(sumi_tensor_set* set, const void* data, uint64_t bytes, const char* folder,
                            const char* path, sumi_error* error);
// Its two halves: the paths of the shards into opening->paths, and the check.
sumi_result sumi_index_list_shards(sumi_tensor_opening* opening, const void* data, uint64_t bytes, const char* folder,
                                   const char* path, sumi_error* error);
sumi_result sumi_index_check(const sumi_tensor_set* set, sumi_heap* heap, const void* data, uint64_t bytes,
                             const char* path, sumi_error* error);

// Bytes of a name that a message shows.
static inline int sumi_name_shown(uint64_t bytes) { return bytes < 120 ? (int)bytes : 120; }
// For the readers and tests: adds one tensor, copying the name. A name that is there already is SUMI_FILE_MALFORMED;
// `path` is for messages.
sumi_result sumi_tensor_set_add(sumi_tensor_set* set, const char* name, size_t name_bytes, const sumi_tensor* tensor,
                                const char* path, sumi_error* error);
sumi_result sumi_metadata_add(sumi_tensor_set* set, const char* key, size_t key_bytes, const char* value,
                              size_t value_bytes, sumi_error* error);
#endif
