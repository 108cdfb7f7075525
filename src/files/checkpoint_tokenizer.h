// Which files a text encoder's tokenizer is in.
#ifndef SUMI_FILES_CHECKPOINT_TOKENIZER_H
#define SUMI_FILES_CHECKPOINT_TOKENIZER_H
#include "files/checkpoint.h"

// Where it was asked for, else in the model's folder, else beside the encoder's weights. What is not there is no failure.
sumi_result sumi_checkpoint_resolve_tokenizer(sumi_checkpoint* checkpoint, int32_t encoder, sumi_error* error);
// The file or folder `given`, which must exist.
sumi_result sumi_checkpoint_open_given_tokenizer(sumi_checkpoint* checkpoint, sumi_checkpoint_tokenizer* tokenizer,
                                                 const char* given, sumi_error* error);
void sumi_checkpoint_close_tokenizer(sumi_checkpoint* checkpoint, sumi_checkpoint_tokenizer* tokenizer);
#endif
