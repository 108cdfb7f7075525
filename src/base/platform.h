// The only door to the operating system: clock, threads, locks, mapped files, system libraries, processor facts.
// platform.c is the only file that includes OS headers.
#ifndef SUMI_BASE_PLATFORM_H
#define SUMI_BASE_PLATFORM_H
#include "base/result.h"
#include <stdatomic.h>

uint64_t sumi_clock_ns(void); // monotonic
void sumi_sleep_us(uint32_t microseconds);
#if defined(_WIN32)
#define SUMI_SLEEP_SLACK_US 16000 // a sleep may take so much longer: a tick of the system's clock
#else
#define SUMI_SLEEP_SLACK_US 300 // 50 on a quiet machine
#endif
int32_t sumi_cpu_count(void); // logical processors this process may use, at least 1

typedef struct sumi_cpu_features {
    bool avx2_fma_f16c; // AVX2, FMA and F16C together, usable by the OS
    bool avx512;        // F, BW, DQ, VL together, usable by the OS
    bool avx512_bf16;
    bool neon;
} sumi_cpu_features;
sumi_cpu_features sumi_cpu_detect(void);

// Sized to hold any platform's object; no allocation.
typedef struct sumi_mutex {
    _Alignas(16) unsigned char storage[64];
#if defined(SUMI_CHECKED)
    atomic_uintptr_t owner; // sumi_this_thread() of who holds it; 0: nobody
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
bool sumi_condition_wait_us(sumi_condition* condition, sumi_mutex* mutex, uint64_t microseconds); // false: time ran out
void sumi_condition_broadcast(sumi_condition* condition);
uintptr_t sumi_this_thread(void);                 // a number that no other running thread has; never 0
uint64_t sumi_process_id(void);                   // another one in a child after a fork
bool sumi_mutex_is_held(const sumi_mutex* mutex); // by this thread. For assertions; defined in checked builds only

typedef struct sumi_thread {
    _Alignas(16) unsigned char storage[16];
} sumi_thread;
typedef void sumi_thread_function(void* context);
// The thread runs function(context). `start` must stay in place until sumi_thread_join.
typedef struct sumi_thread_start {
    sumi_thread_function* function;
    void* context;
    bool low_priority;
} sumi_thread_start;
bool sumi_thread_begin(sumi_thread* thread, const sumi_thread_start* start);
void sumi_thread_join(sumi_thread* thread);

// A read-only mapping of a whole file. The pages belong to the page cache, not to the host's allocator: a driver may
// page-lock them where is_shared. A private mapping would get a copy of every page that is locked; it is for file
// systems that offer nothing else.
typedef struct sumi_mapping {
    const void* data;
    uint64_t bytes;
    void* handle;
    bool is_shared;
} sumi_mapping;
// FILE_NOT_FOUND, FILE_READ_FAILED
sumi_result sumi_mapping_open(sumi_mapping* mapping, const char* path, sumi_error* error);
void sumi_mapping_close(sumi_mapping* mapping);

// Zeroed memory of the operating system's in large pages, for a driver to page-lock: a multiple of SUMI_LARGE_PAGE,
// aligned to it. NULL: there is none, or this system has no such pages.
#define SUMI_LARGE_PAGE ((size_t)2 << 20)
void* sumi_large_pages_take(size_t bytes);
void sumi_large_pages_give(void* memory, size_t bytes); // accepts NULL

bool sumi_path_is_folder(const char* path);
bool sumi_path_is_file(const char* path);
// Joins folder and name with '/' into out; false when it does not fit.
bool sumi_path_join(char* out, size_t out_bytes, const char* folder, const char* name);

// A shared library of the operating system's own (a driver), by the name its loader knows; NULL: there is none. Never
// closed: others in the process may hold it, and its threads outlive us. On Windows only the system folder is searched,
// so that nobody can plant one.
void* sumi_library_open(const char* name);
// The same of a library that the host may have brought: on Windows also beside the program and in the folders that it
// has added.
void* sumi_library_find(const char* name);
typedef void sumi_library_function(void);                                    // to be cast to what the symbol is
sumi_library_function* sumi_library_symbol(void* library, const char* name); // NULL: it has none of this name
#endif
