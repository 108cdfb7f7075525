// Functions of the operating system beyond C, for samples and tests, with the same behaviour on POSIX and Windows.
// Paths and arguments are UTF-8.
#ifndef SYSTEM_H
#define SYSTEM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// With __USE_MINGW_ANSI_STDIO printf takes the formats of the C standard instead of Microsoft's.
#if defined(__MINGW32__) && !defined(__clang__)
#define SYSTEM_PRINTF(format_index, first_index) __attribute__((format(gnu_printf, format_index, first_index)))
#elif defined(__GNUC__) || defined(__clang__)
#define SYSTEM_PRINTF(format_index, first_index) __attribute__((format(printf, format_index, first_index)))
#else
#define SYSTEM_PRINTF(format_index, first_index)
#endif

// Call first in main. Returns the arguments in UTF-8, which live as long as the program. The standard streams then do
// not convert line ends, and stderr is not buffered.
char** system_begin(int argc, char** argv);

// For allocators of engines: alignment is a power of two. Memory blocks have exactly the requested size, so that a
// sanitizer detects an access to the first byte after a block.
void* system_allocate(size_t bytes, size_t alignment); // NULL: no memory
void system_release(void* memory);                     // accepts NULL

uint64_t system_clock_ns(void);        // steady; the clock of sumi_trace_span
double system_processor_seconds(void); // that this process has computed so far, on all processors
void system_sleep_us(uint32_t microseconds);
uint32_t system_random(void); // another number at every call, as a default seed; not for secrets

FILE* system_open(const char* path, const char* mode); // as fopen; NULL and errno on failure
// SYSTEM_OTHER: a device or a pipe
typedef enum system_kind { SYSTEM_NOTHING, SYSTEM_FILE, SYSTEM_FOLDER, SYSTEM_OTHER } system_kind;
system_kind system_look_at(const char* path);
bool system_can_write(const char* path); // to a file, or new files to a folder
// When a file was last written, to compare it with other files and with the same one later; 0: there is no such file.
uint64_t system_changed_ns(const char* path);
// Writes the path of the file that a symbolic link stands for, also when it does not exist yet; any other path as it is,
// and on Windows every path. Returns false for links in a circle and for paths that are too long.
bool system_resolve_link(const char* path, char* into, size_t capacity);
bool system_move(const char* path, const char* to_path); // a file, replacing another; false and errno on failure
bool system_remove(const char* path);                    // a file or an empty folder
bool system_make_folder(const char* path);               // true also if it exists
// Creates a folder for temporary files; its name begins with `name`.
bool system_make_scratch(char* path, size_t capacity, const char* name);
// Returns the sorted names in a folder, without names that begin with a dot.
char** system_list(const char* path, int* out_count);
void system_free_list(char** names, int count);
const char* system_file_name(const char* path); // the name after the last separator

// Opens a library that other code may use, too: one of the system's by its name, such as a driver, or another one by a
// path with a separator in it. NULL: not found.
void* system_library_open(const char* name);
void* system_library_find(void* library, const char* name); // a function; NULL: the library has none of this name
void system_library_close(void* library);                   // accepts NULL

bool system_is_terminal(FILE* stream); // a terminal that understands escape sequences
#endif
