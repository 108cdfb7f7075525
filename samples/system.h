// What programs ask of the operating system beyond C, for samples and tests: POSIX and Windows, the same behind both.
// Paths and arguments are UTF-8.
#ifndef SYSTEM_H
#define SYSTEM_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// the standard's formats, which __USE_MINGW_ANSI_STDIO brings, instead of Microsoft's
#if defined(__MINGW32__) && !defined(__clang__)
#define SYSTEM_PRINTF(format_index, first_index) __attribute__((format(gnu_printf, format_index, first_index)))
#elif defined(__GNUC__) || defined(__clang__)
#define SYSTEM_PRINTF(format_index, first_index) __attribute__((format(printf, format_index, first_index)))
#else
#define SYSTEM_PRINTF(format_index, first_index)
#endif

// The first line of a main: its arguments in UTF-8, and standard streams that neither turn line ends nor hold back
// errors. What it returns lives as long as the program.
char** system_begin(int argc, char** argv);

// For allocators of engines: alignment is a power of two. Blocks are exactly as long as asked, so that a sanitizer sees
// the first byte behind.
void* system_allocate(size_t bytes, size_t alignment); // NULL: no memory
void system_release(void* memory);                     // accepts NULL

uint64_t system_clock_ns(void); // steady, and the clock of a trace's spans
void system_sleep_us(uint32_t microseconds);

FILE* system_open(const char* path, const char* mode); // fopen; NULL and errno
// other: a device, a pipe
typedef enum system_kind { SYSTEM_NOTHING, SYSTEM_FILE, SYSTEM_FOLDER, SYSTEM_OTHER } system_kind;
system_kind system_look_at(const char* path);
bool system_can_write(const char* path);                 // into a file, or new files into a folder
bool system_move(const char* path, const char* to_path); // a file, in the place of what was there; false and errno
bool system_remove(const char* path);                    // a file or an empty folder
bool system_make_folder(const char* path);               // true also when it was there
// a new folder among the system's temporary ones, its name beginning with `name`
bool system_make_scratch(char* path, size_t capacity, const char* name);
// names in a folder, sorted, without those that begin with a dot
char** system_list(const char* path, int* out_count);
void system_free_list(char** names, int count);
const char* system_file_name(const char* path); // what stands behind the last separator

bool system_is_terminal(FILE* stream); // one that takes escape sequences
#endif
