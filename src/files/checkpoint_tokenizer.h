// Finds the files of a text encoder's tokenizer.
#ifndef SUMI_FILES_CHECKPOINT_TOKENIZER_H
#define SUMI_FILES_CHECKPOINT_TOKENIZER_H
#include "files/checkpoint.h"

// Searches the path that the caller gave, otherwise the model's folder, otherwise the folders around the encoder's
// weights. A missing tokenizer is a failure only if the caller gave its path; otherwise its form stays
// SUMI_TOKENIZER_ABSENT.
sumi_result sumi_checkpoint_resolve_tokenizer(sumi_checkpoint* checkpoint, int32_t encoder, sumi_error* error);
// Opens the tokenizer from the file or folder `path`, which must exist.
sumi_result sumi_checkpoint_open_tokenizer_path(sumi_checkpoint* checkpoint, sumi_checkpoint_tokenizer* tokenizer,
                                                const char* path, sumi_error* error);
void sumi_checkpoint_close_tokenizer(sumi_checkpoint* checkpoint, sumi_checkpoint_tokenizer* tokenizer);
#endif
