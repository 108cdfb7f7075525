// Files that the commands read and write: single tensors, whole files, output paths.
#ifndef FILES_H
#define FILES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILES_MESSAGE_BYTES 1024 // of every `message` below: a sentence that names the file

typedef struct file_tensor {
    float* values; // free() it
    int64_t shape[8];
    int32_t rank;
    size_t count;
} file_tensor;

// "FILE.safetensors:NAME", or "FILE.safetensors" when it holds one tensor only; GGUF files as well. Any number type is
// converted to float.
bool tensor_read(const char* source, file_tensor* tensor, char* message);
bool tensor_write(const char* path, const char* name, const float* values, const int64_t* shape, int32_t rank,
                  char* message);

bool file_read(const char* path, void** out_data, size_t* out_bytes, char* message); // free() the data
bool file_write(const char* path, const void* data, size_t bytes, char* message);

// Files appear whole or not at all: they are written under another name and moved when complete.
//     output_path(...); ... write to into ...; output_finish(path, into, written, message)
void output_path(const char* path, char* into, size_t capacity);
bool output_finish(const char* path, const char* written_path, bool written, char* message);
// False when the folder of `path` does not exist or cannot be written: told before minutes of work, not after.
bool output_is_possible(const char* path, char* message);
// "out.png", 3 -> "out-3.png"
void numbered_path(const char* path, int32_t number, char* into, size_t capacity);
#endif
