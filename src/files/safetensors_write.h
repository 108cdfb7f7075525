// Writes a small safetensors file into memory (latents, prompts, test data). The library uses it for saved prompts, the
// command line tool too.
#ifndef SUMI_FILES_SAFETENSORS_WRITE_H
#define SUMI_FILES_SAFETENSORS_WRITE_H
#include "files/tensors.h"

// Returns the bytes needed and writes only if capacity suffices. Tensors are written in the given order; names and
// metadata are escaped. Plain dtypes only, because GGUF's block types have no name in this format. Each tensor's bytes
// must match its shape.
uint64_t sumi_safetensors_write(const sumi_tensor* tensors, size_t count, const sumi_metadata* metadata,
                                size_t metadata_count, void* into, uint64_t capacity);
#endif
