// The only interface to the operating system: clock, threads, locks, mapped files, system libraries, CPU
// features. platform.c is the only file that includes OS headers.
#ifndef SUMI_BASE_PLATFORM_H
#define SUMI_BASE_PLATFORM_H
#include "base/result.h"
#include <stdatomic.h>

uint64_t sumi_clock_ns(void); // monotonic
void sumi_sleep_us(uint32_t microseconds);
uint32_t sumi_sleep_slack_us(void); // a sleep may take this much longer
int32_t sumi_cpu_count(void);       // logical processors that this process may use, at least 1

typedef struct sumi_cpu_features {
    bool avx2_fma_f16c; // AVX2, FMA and F16C together, and the OS saves their registers
    bool avx512;        // F, BW, DQ and VL together, and the OS saves their registers
    bool avx512_bf16;
    bool neon;
} sumi_cpu_features;
sumi_cpu_features sumi_cpu_detect(void);

// The storage holds the mutex or condition of any supported platform, so neither allocates.
typedef struct sumi_mutex {
    _Alignas(16) unsigned char storage[64];
#if defined(SUMI_CHECKED)
    atomic_uintptr_t owner; // sumi_this_thread() of the holder; 0: not held
#endif
} sumi_mutex;
typedef struct sumi_condition {
    _Alignas(16) unsigned char storage[64];
} sumi_condition;
bool sumi_mutex_init(sumi_mutex* mutex);
void sumi_mutex_destroy(sumi_mutex* mutex);
void sumi_mutex_lock(sumi_mutex* mutex);
void sumi_mutex_unlock(sumi_mutex* mutex);
bool sumi_condition_init(sumi_condition* condition);
void sumi_condition_destroy(sumi_condition* condition);
void sumi_condition_wait(sumi_condition* condition, sumi_mutex* mutex);
// false: the time ran out
bool sumi_condition_wait_us(sumi_condition* condition, sumi_mutex* mutex, uint64_t microseconds);
void sumi_condition_broadcast(sumi_condition* condition);
uintptr_t sumi_this_thread(void); // unique among running threads; never 0
// Tells a process from the child of a fork. Asking for the process's id is a system call, which took more than half of
// the time of a sumi_job_poll. Linux can instead give the child a zeroed copy of a page.
typedef struct sumi_process_mark {
    const volatile unsigned char* page; // not 0 in the process that made it; NULL: the system has no such pages
    uint64_t process_id;
} sumi_process_mark;
void sumi_process_mark_init(sumi_process_mark* mark); // for this process
bool sumi_process_is_other(const sumi_process_mark* mark);
void sumi_process_mark_close(sumi_process_mark* mark); // accepts a zeroed mark; in the process that made it
// true if the calling thread holds the mutex. For assertions; defined in checked builds only
bool sumi_mutex_is_held(const sumi_mutex* mutex);

typedef struct sumi_thread {
    _Alignas(16) unsigned char storage[16];
} sumi_thread;
typedef void sumi_thread_function(void* context);
// The thread runs function(context). `start` must not move or be freed before sumi_thread_join. Debuggers and profilers
// show the name; Linux has space for 15 characters. An empty name leaves the one that the system gives.
typedef struct sumi_thread_start {
    sumi_thread_function* function;
    void* context;
    bool low_priority;
    char name[16];
} sumi_thread_start;
bool sumi_thread_begin(sumi_thread* thread, const sumi_thread_start* start);
void sumi_thread_join(sumi_thread* thread);

// A read-only mapping of a whole file. Its pages belong to the operating system's page cache, not to the host program's
// allocator. A driver may page-lock the pages if is_shared. Page-locking a private mapping would copy every page;
// private mappings serve only file systems that refuse shared ones.
typedef struct sumi_mapping {
    const void* data;
    uint64_t bytes;
    void* handle;
    bool is_shared;
} sumi_mapping;
// Opens regular files only, and never blocks on anything else: a folder, pipe, socket or device is refused. Fails with
// SUMI_FILE_NOT_FOUND or SUMI_FILE_READ_FAILED. No other function of sumi opens a file.
sumi_result sumi_mapping_open(sumi_mapping* mapping, const char* path, sumi_error* error);
void sumi_mapping_close(sumi_mapping* mapping);
// A second file descriptor for the same thing, which child processes do not inherit. Negative: `descriptor` is not open,
// or this system has none.
int32_t sumi_descriptor_copy(int32_t descriptor);
void sumi_descriptor_close(int32_t descriptor);

// Takes zeroed memory in large pages from the operating system, for a driver to page-lock. bytes must be a multiple of
// SUMI_LARGE_PAGE; the memory is aligned to it, and child processes do not have it. NULL: memory ran out, or the system
// has no large pages.
#define SUMI_LARGE_PAGE ((size_t)2 << 20)
void* sumi_large_pages_take(size_t bytes);
void sumi_large_pages_give(void* memory, size_t bytes); // accepts NULL

// What is at a path. SUMI_PATH_OTHER: a pipe, socket or device, a symbolic link to nothing, a path below a file or
// below a link to nothing, or something that permissions hide. sumi_mapping_open says which of these it is.
typedef enum sumi_path_kind { SUMI_PATH_NOTHING, SUMI_PATH_FILE, SUMI_PATH_FOLDER, SUMI_PATH_OTHER } sumi_path_kind;
sumi_path_kind sumi_path_look_at(const char* path);
bool sumi_path_is_folder(const char* path);
bool sumi_path_is_file(const char* path);
// Joins folder and name with '/' into out. False if the result does not fit.
bool sumi_path_join(char* out, size_t out_bytes, const char* folder, const char* name);

// Opens a shared library of the operating system (a driver) by the name that the loader knows. NULL: not found. The
// library is never closed: other code in the process may use it, and its threads outlive sumi. On Windows only the
// system folder is searched, so that nobody can plant a library.
void* sumi_library_open(const char* name);
typedef void sumi_library_function(void);                                    // cast to the type of the symbol
sumi_library_function* sumi_library_symbol(void* library, const char* name); // NULL: the library has no such symbol
#endif
