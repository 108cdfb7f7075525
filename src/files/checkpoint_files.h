// Where a checkpoint looks for files: paths, folders, sources.
#ifndef SUMI_FILES_CHECKPOINT_FILES_H
#define SUMI_FILES_CHECKPOINT_FILES_H
#include "files/checkpoint.h"

#define SUMI_ANY_COMPONENT (-1)

struct sumi_source {
    char* path;
    int32_t component; // what it was given for, or SUMI_ANY_COMPONENT
    bool given;        // named by the caller, so that it must exist
    bool is_folder;
    bool found; // holds weights
    sumi_tensor_set set;
    sumi_tensor_opening opening;
};

// folder/name in new memory.
sumi_result sumi_checkpoint_join(sumi_heap* heap, const char* folder, const char* name, sumi_error* error,
                                 char** out_path);
// The folder that a file or a folder is in: "a/b.txt" -> "a", "a/b/" -> "a", "b.txt" -> ".".
sumi_result sumi_checkpoint_parent(sumi_heap* heap, const char* path, sumi_error* error, char** out_folder);
// The host's file callbacks know files only: whatever does not open as one is taken for a folder, and then something
// must be found in it.
bool sumi_checkpoint_is_folder(const sumi_checkpoint* checkpoint, const char* path);
sumi_result sumi_checkpoint_copy_text(sumi_heap* heap, const char* text, sumi_error* error, char** out_copy);
sumi_result sumi_checkpoint_check_json(const sumi_file* file, sumi_error* error);
// Opens folder/name into file if it is there. file->data stays NULL otherwise.
sumi_result sumi_checkpoint_open_if_there(sumi_checkpoint* checkpoint, sumi_file* file, const char* folder,
                                          const char* name, bool is_json, sumi_error* error);
// The source that a component came from; NULL: none.
const struct sumi_source* sumi_checkpoint_source_of(const sumi_checkpoint* checkpoint, const sumi_component* component);
#endif
