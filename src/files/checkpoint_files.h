// How a checkpoint looks for files: paths, folders, sources.
#ifndef SUMI_FILES_CHECKPOINT_FILES_H
#define SUMI_FILES_CHECKPOINT_FILES_H
#include "files/checkpoint.h"

#define SUMI_ANY_COMPONENT (-1)

struct sumi_source {
    char* path;
    int32_t kind;    // of the component that the path is for, or SUMI_ANY_COMPONENT
    bool must_exist; // the caller gave the path for this component, or it is a single file
    bool is_no_file; // cannot be opened as a file: a folder, or it does not exist
    bool is_located; // weights were found at the path
    sumi_tensor_set set;
    sumi_tensor_opening opening;
};

// Joins folder and name into newly allocated memory, which the caller frees.
sumi_result sumi_checkpoint_join(sumi_heap* heap, const char* folder, const char* name, sumi_error* error,
                                 char** out_path);
// The folder that contains a file or folder, in newly allocated memory: "a/b.txt" -> "a", "a/b/" -> "a", "b.txt" ->
// ".".
sumi_result sumi_checkpoint_parent(sumi_heap* heap, const char* path, sumi_error* error, char** out_folder);
// A path where nothing exists is treated as a folder (sumi_file_is_folder); opening fails later if nothing is found
// in it.
bool sumi_checkpoint_is_folder(const sumi_checkpoint* checkpoint, const char* path);
sumi_result sumi_checkpoint_copy_text(sumi_heap* heap, const char* text, sumi_error* error, char** out_copy);
sumi_result sumi_checkpoint_check_json(const sumi_file* file, sumi_error* error);
// Opens folder/name if it exists; otherwise file->data stays NULL. is_json: the file must be a well-formed JSON object.
sumi_result sumi_checkpoint_open_optional(sumi_checkpoint* checkpoint, sumi_file* file, const char* folder,
                                          const char* name, bool is_json, sumi_error* error);
// The source of a component; NULL: none.
const struct sumi_source* sumi_checkpoint_source_of(const sumi_checkpoint* checkpoint, const sumi_component* component);

// ---- What is refused (checkpoint_refused.c)

// Writes the end of a sentence that begins with `path` and a colon.
void sumi_checkpoint_describe_method(const sumi_foreign_method* method, const sumi_tensor_set* set,
                                     const sumi_tensor* tensor, const char* path, char* text, size_t capacity);
// Fails with the reason if a folder without weights that can be opened was plainly meant to have some. `what` says whose
// they are, `stem` is the usual beginning of their files' names.
sumi_result sumi_checkpoint_check_folder(const sumi_checkpoint* checkpoint, const char* folder, const char* what,
                                         const char* stem, sumi_error* error);

// ---- The files of a text encoder's tokenizer

// Searches the path that the caller gave, otherwise the model's folder, otherwise the folders around the encoder's
// weights. A missing tokenizer is a failure only if the caller gave its path; otherwise its form stays
// SUMI_TOKENIZER_ABSENT.
sumi_result sumi_checkpoint_resolve_tokenizer(sumi_checkpoint* checkpoint, int32_t encoder, sumi_error* error);
// Opens the tokenizer from the file or folder `path`, which must exist.
sumi_result sumi_checkpoint_open_tokenizer_path(sumi_checkpoint* checkpoint, sumi_checkpoint_tokenizer* tokenizer,
                                                const char* path, sumi_error* error);
void sumi_checkpoint_close_tokenizer(sumi_checkpoint* checkpoint, sumi_checkpoint_tokenizer* tokenizer);
#endif
