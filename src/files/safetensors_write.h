// Writes a small safetensors file image in memory (latents, prompts, test data). Used by the library for saved prompts
// and by the command line.
#ifndef SUMI_FILES_SAFETENSORS_WRITE_H
#define SUMI_FILES_SAFETENSORS_WRITE_H
#include "files/tensors.h"

// Returns the bytes needed; writes only when capacity suffices. Tensors are laid out in the order given, names and
// metadata are escaped.
// Plain dtypes only, each tensor's bytes being those of its shape: the block types of GGUF have no name in this format.
uint64_t sumi_safetensors_write(const sumi_tensor* tensors, size_t count, const sumi_metadata* metadata,
                                size_t metadata_count, void* into, uint64_t capacity);
#endif
