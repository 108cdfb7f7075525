// Named tensors from files: the common result of reading safetensors, sharded indexes and GGUF. The data stays in the
// mapped file.
#ifndef SUMI_FILES_TENSORS_H
#define SUMI_FILES_TENSORS_H
#include "base/dtype.h"
#include "base/file.h"

#define SUMI_TENSOR_MAX_RANK 32 // more than any network needs; safetensors sets no limit, GGUF's is 4

typedef struct sumi_tensor {
    // UTF-8, terminated, owned by the set. Names that contain U+0000 are refused when the file is read
    const char* name;
    sumi_dtype dtype;
    int32_t rank;
    int64_t shape[SUMI_TENSOR_MAX_RANK]; // outermost first, as in PyTorch (GGUF's dimensions are reversed when read)
    const void* data;                    // points into the file; may be unaligned
    uint64_t bytes;
    int32_t file_index; // index into the set's `opened`; -1 if read from memory
    // the whole mapped file, if base/platform.c mapped it shared; NULL: the bytes are the host program's or a copy
    const void* mapping;
    uint64_t mapping_bytes;
} sumi_tensor;

// Metadata of the files as text; GGUF scalars as decimal text. Values with U+0000 and arrays are left out (those of a
// tokenizer are in token_arrays), except for the original shapes of ComfyUI: its converter flattens some tensors, which stay flat here, and the value of
// comfy.gguf.orig_shape.NAME is for example "2,3,1".
typedef struct sumi_metadata {
    const char *key, *value;
} sumi_metadata;

// The arrays of a GGUF file's metadata that describe its tokenizer, as they are in the file. text/gguf_tokenizer.c reads
// them.
typedef enum sumi_token_array {
    SUMI_TOKEN_ARRAY_TEXTS,  // tokenizer.ggml.tokens: texts; each is its length, 8 bytes, and its bytes
    SUMI_TOKEN_ARRAY_TYPES,  // tokenizer.ggml.token_type: 32-bit integers
    SUMI_TOKEN_ARRAY_SCORES, // tokenizer.ggml.scores: float32
    SUMI_TOKEN_ARRAY_MERGES, // tokenizer.ggml.merges: texts
    SUMI_TOKEN_ARRAY_COUNT
} sumi_token_array;

typedef struct sumi_metadata_array {
    const unsigned char* data; // NULL: the file has no such array, or one of another type; may be unaligned
    uint64_t bytes, count;     // all elements lie within the bytes
} sumi_metadata_array;

// A growing set of tensors from one or more files. Initialise it, open files into it, close it to release everything.
// After a failed open or read the set may hold some of the file's tensors and can only be closed.
typedef struct sumi_tensor_set {
    sumi_heap* heap;
    const sumi_files* files;
    sumi_tensor* tensors;
    size_t count, capacity;
    sumi_metadata* metadata;
    size_t metadata_count, metadata_capacity;
    sumi_metadata_array token_arrays[SUMI_TOKEN_ARRAY_COUNT];
    sumi_file* opened;
    size_t opened_count, opened_capacity;
    uint32_t* slots;
    size_t slot_count; // hash slots; each holds a tensor index + 1, or 0
    // differs for each table, so that no file can be made whose names all collide
    uint64_t hash_seed;
    char** text_blocks;
    size_t text_block_count, text_block_capacity;
    size_t text_used; // bytes used of the last text block, which holds names and metadata
} sumi_tensor_set;

void sumi_tensor_set_init(sumi_tensor_set* set, sumi_heap* heap, const sumi_files* files);
void sumi_tensor_set_close(sumi_tensor_set* set); // accepts a zeroed or half-filled set
// Adds the tensors of a file. The content decides the format: GGUF if it begins with GGUF's magic bytes, otherwise
// safetensors. A name that the set already has is SUMI_FILE_MALFORMED.
sumi_result sumi_tensor_set_open(sumi_tensor_set* set, const char* path, sumi_error* error);
const sumi_tensor* sumi_tensor_find(const sumi_tensor_set* set, const char* name); // NULL if there is none
// The tensor named prefix + name; NULL if there is none.
const sumi_tensor* sumi_tensor_find_prefixed(const sumi_tensor_set* set, const char* prefix, const char* name);
// NULL if there is none. If a key occurs several times, the last value, as in other readers.
const char* sumi_metadata_find(const sumi_tensor_set* set, const char* key);

// Opens files with one file per step, for callers that may not block for long. Zero it, call a locate function, step
// until done, then end (also after a failure or half-way). locate_file lists that one file, or all parts if its name is
// that of one: NAME-00002-of-00005.safetensors, and .gguf as llama-gguf-split writes them. locate_folder lists a folder's
// weights: the first that exists of `stem`.safetensors.index.json with its shards, `stem`.safetensors,
// `stem`.bf16.safetensors, `stem`.fp16.safetensors, `stem`.gguf, and the parts `stem`-00001-of-0000N of either kind,
// these only of built-in files. (Folders cannot be listed, so names are tried.) It sets *out_found to false and succeeds
// if the folder has none of them. Missing parts are named. Refused shard names: empty ones, "." and "..", and those that
// contain '/', '\\', ':' or a control character.
typedef struct sumi_tensor_opening {
    sumi_heap* heap;
    sumi_file index; // the index, open until sumi_tensor_opening_end
    char** paths;
    size_t count, capacity; // files to open
    size_t next;            // index of the next path
} sumi_tensor_opening;
sumi_result sumi_tensor_opening_locate_file(sumi_tensor_opening* opening, sumi_heap* heap, const sumi_files* files,
                                            const char* path, sumi_error* error);
sumi_result sumi_tensor_opening_locate_folder(sumi_tensor_opening* opening, sumi_heap* heap, const sumi_files* files,
                                              const char* folder, const char* stem, sumi_error* error, bool* out_found);
sumi_result sumi_tensor_opening_step(sumi_tensor_opening* opening, sumi_tensor_set* set, sumi_error* error,
                                     bool* out_done);
void sumi_tensor_opening_end(sumi_tensor_opening* opening);

// The readers of bytes in memory (fuzzers call them). `path` is for messages; data must outlive the set.
sumi_result sumi_safetensors_read(sumi_tensor_set* set, const void* data, uint64_t bytes, const char* path,
                                  sumi_error* error);
sumi_result sumi_gguf_read(sumi_tensor_set* set, const void* data, uint64_t bytes, const char* path, sumi_error* error);
// An index of shards, which are in `folder`.
typedef struct sumi_index_text {
    const void* data;
    uint64_t bytes;
    const char *folder, *path;
} sumi_index_text;
// Adds the shards' paths to opening->paths, whose heap is set.
sumi_result sumi_index_list_shards(sumi_tensor_opening* opening, const sumi_index_text* index, sumi_error* error);
// Checks that every tensor that the index names exists.
sumi_result sumi_index_check(const sumi_tensor_set* set, sumi_heap* heap, const sumi_index_text* index,
                             sumi_error* error);

// How many bytes of a name a message shows.
static inline int sumi_name_shown(uint64_t bytes) { return bytes < 120 ? (int)bytes : 120; }
// Adds one tensor and copies its name, for the readers and tests. A name that the set already has is
// SUMI_FILE_MALFORMED; `path` is for messages.
sumi_result sumi_tensor_set_add(sumi_tensor_set* set, const char* name, size_t name_bytes, const sumi_tensor* tensor,
                                const char* path, sumi_error* error);
sumi_result sumi_metadata_add(sumi_tensor_set* set, const char* key, size_t key_bytes, const char* value,
                              size_t value_bytes, sumi_error* error);

// ---- Writing (safetensors_write.c)

// Writes a small safetensors file into memory (latents, prompts, test data). The library uses it for saved prompts, the
// command line tool too.
//
// Returns the bytes needed and writes only if capacity suffices. Tensors are written in the given order; names and
// metadata are escaped. Plain dtypes only, because GGUF's block types have no name in this format. Each tensor's bytes
// must match its shape. Those of a tensor without data (NULL) are left to the caller. The tensors are the end of the
// file, without gaps.
uint64_t sumi_safetensors_write(const sumi_tensor* tensors, size_t count, const sumi_metadata* metadata,
                                size_t metadata_count, void* into, uint64_t capacity);
#endif
