// Reading of single tensors and of whole files, and output paths, for all commands.
#ifndef FILES_H
#define FILES_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILES_MESSAGE_BYTES 1024 // size of every `message` below, which receives a sentence that names the file

typedef struct file_tensor {
    float* values; // free() it
    int64_t shape[8];
    int32_t rank;
    size_t count;
} file_tensor;

// Reads the tensor "FILE.safetensors:NAME", or "FILE.safetensors" when the file holds one tensor only; GGUF files too.
// Any number type is converted to float.
bool tensor_read(const char* source, file_tensor* tensor, char* message);
bool tensor_write(const char* path, const char* name, const float* values, const int64_t* shape, int32_t rank,
                  char* message);

// Cuts ":NUMBER" off the end of a path. What is behind the last colon is a number, unless the whole text is a path.
// False: it is none. *out_has: there was one.
bool path_cut_number(char* path, float* out, bool* out_has);

#define ENCODED_MAX_BYTES ((size_t)1 << 30) // of an encoded prompt
// Reads at most `most_bytes`; a longer file is refused. "-" is standard input. free() the data.
bool file_read(const char* path, size_t most_bytes, void** out_data, size_t* out_bytes, char* message);
// Whether these bytes are text that a person wrote: no control characters but those of lines and tabs. Nothing is none.
bool file_is_text(const void* data, size_t bytes);
// A text out of a file or a path, as a terminal may print it (utf8_show). Returns the text itself if nothing has to be
// escaped, otherwise a copy that lives as long as the program.
const char* shown(const char* text);
// "-" is standard output. Any other file is written under another name and moved to its path when complete, so a partly
// written file never has the path. A symbolic link stays: the file that it stands for is replaced.
bool file_write(const char* path, const void* data, size_t bytes, char* message);
bool is_standard_output(const char* path);

// The same for a file that is written piece by piece: output_path(...); write the file whose path is in `into`;
// output_finish(path, into, written, message).
void output_path(const char* path, char* into, size_t capacity);
bool output_finish(const char* path, const char* written_path, bool written, char* message);
// Returns false when the folder of the path does not exist, or it cannot be written. Called before minutes of work.
bool output_is_possible(const char* path, char* message);
// The path of output `number` of `count`, which counts from 0. "out-%03d.png", 3 -> "out-003.png". A path without %
// stays as it is for one output; of several "out.png", 3 -> "out-3.png", with as many digits as the last one needs.
// Returns false when the path does not fit.
bool numbered_path(const char* path, int32_t number, int32_t count, char* into, size_t capacity);
// Returns false when the name of the file has a % that is not the one place of a number: %d, or %03d for another width.
bool numbered_path_is_possible(const char* path, char* message);
#endif
