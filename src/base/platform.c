// The only file that includes OS headers. Each group of functions has its Windows version beside the POSIX one.
#if !defined(_WIN32)
#define _GNU_SOURCE
#endif
#include "base/platform.h"
#include "base/assert.h"
#include <stdio.h>
#include <string.h>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/resource.h>
#include <sys/syscall.h>
#endif
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

// ---- Clock ----------------------------------------------------------------------------------------------------------

#if defined(_WIN32)
uint64_t sumi_clock_ns(void)
{
    LARGE_INTEGER now, frequency;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&frequency);
    uint64_t seconds = (uint64_t)(now.QuadPart / frequency.QuadPart),
             remainder = (uint64_t)(now.QuadPart % frequency.QuadPart);
    return seconds * 1000000000u + remainder * 1000000000u / (uint64_t)frequency.QuadPart;
}

void sumi_sleep_us(uint32_t microseconds) { Sleep((microseconds + 999) / 1000); }

uint32_t sumi_sleep_slack_us(void) { return 16000; } // one tick of the system clock

int32_t sumi_cpu_count(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwNumberOfProcessors > 0 ? (int32_t)info.dwNumberOfProcessors : 1;
}
#else
uint64_t sumi_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void sumi_sleep_us(uint32_t microseconds)
{
    struct timespec time = {(time_t)(microseconds / 1000000u), (long)(microseconds % 1000000u) * 1000};
    nanosleep(&time, NULL);
}

uint32_t sumi_sleep_slack_us(void) { return 300; } // 50 was seen on a quiet machine

int32_t sumi_cpu_count(void)
{
#if defined(__linux__)
    cpu_set_t set; // respects taskset and the cpusets of containers
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0) return CPU_COUNT(&set);
#endif
    long count = sysconf(_SC_NPROCESSORS_ONLN);
    return count > 0 ? (int32_t)count : 1;
}
#endif

// ---- CPU ------------------------------------------------------------------------------------------------------------

#if defined(__x86_64__) || defined(__i386__)
static uint64_t read_xcr0(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}
#endif

sumi_cpu_features sumi_cpu_detect(void)
{
    sumi_cpu_features features = {0};
#if defined(__x86_64__) || defined(__i386__)
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return features;
    bool has_xsave = (c & (1u << 27)) != 0, has_fma = (c & (1u << 12)) != 0, has_f16c = (c & (1u << 29)) != 0;
    if (!has_xsave || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return features;
    // registers that the OS saves: bits 0x06 are xmm and ymm, 0xe6 adds zmm and the mask registers
    uint64_t saved = read_xcr0();
    features.avx2_fma_f16c = (b & (1u << 5)) && has_fma && has_f16c && (saved & 0x06) == 0x06;
    uint32_t avx512 = (1u << 16) | (1u << 17) | (1u << 30) | (1u << 31); // F, DQ, BW, VL
    features.avx512 = features.avx2_fma_f16c && (b & avx512) == avx512 && (saved & 0xe6) == 0xe6;
    if (features.avx512 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) features.avx512_bf16 = (a & (1u << 5)) != 0;
#elif defined(__ARM_NEON)
    features.neon = true;
#endif
    return features;
}

// ---- Locks and threads ----------------------------------------------------------------------------------------------

// In checked builds each mutex records the thread that holds it, for assertions. A thread that waits for a condition
// does not hold the mutex meanwhile.
#if defined(_WIN32)
uintptr_t sumi_this_thread(void) { return (uintptr_t)GetCurrentThreadId(); }
void sumi_process_mark_init(sumi_process_mark* mark) { *mark = (sumi_process_mark){NULL, 0}; }
bool sumi_process_is_other(const sumi_process_mark* mark) // Windows has no fork
{
    (void)mark;
    return false;
}
void sumi_process_mark_close(sumi_process_mark* mark) { (void)mark; }
#else
uintptr_t sumi_this_thread(void) { return (uintptr_t)pthread_self(); }

#if defined(MADV_WIPEONFORK)
#define MARK_BYTES 4096u // the system rounds up to its pages

static volatile unsigned char* make_mark(void)
{
    void* page = mmap(NULL, MARK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return NULL;
    if (madvise(page, MARK_BYTES, MADV_WIPEONFORK) != 0) { // an older kernel
        munmap(page, MARK_BYTES);
        return NULL;
    }
    return page;
}
#endif

void sumi_process_mark_init(sumi_process_mark* mark)
{
    *mark = (sumi_process_mark){.page = NULL, .process_id = (uint64_t)getpid()};
#if defined(MADV_WIPEONFORK)
    volatile unsigned char* page = make_mark();
    if (page != NULL) *page = 1;
    mark->page = page;
#endif
}

bool sumi_process_is_other(const sumi_process_mark* mark)
{
    return mark->page != NULL ? *mark->page == 0 : mark->process_id != (uint64_t)getpid();
}

void sumi_process_mark_close(sumi_process_mark* mark)
{
#if defined(MADV_WIPEONFORK)
    if (mark->page != NULL) munmap((void*)(uintptr_t)mark->page, MARK_BYTES);
#endif
    mark->page = NULL;
}
#endif

#if defined(SUMI_CHECKED)
bool sumi_mutex_is_held(const sumi_mutex* mutex)
{
    return atomic_load_explicit(&mutex->owner, memory_order_relaxed) == sumi_this_thread();
}

static void set_owner(sumi_mutex* mutex)
{
    atomic_store_explicit(&mutex->owner, sumi_this_thread(), memory_order_relaxed);
}
static void clear_owner(sumi_mutex* mutex) { atomic_store_explicit(&mutex->owner, 0, memory_order_relaxed); }
#else
static void set_owner(sumi_mutex* mutex) { (void)mutex; }
static void clear_owner(sumi_mutex* mutex) { (void)mutex; }
#endif

#if defined(_WIN32)
static bool native_mutex_init(sumi_mutex* mutex)
{
    InitializeSRWLock((SRWLOCK*)(void*)mutex->storage);
    return true;
}
static void native_mutex_destroy(sumi_mutex* mutex) { (void)mutex; }
static void native_mutex_lock(sumi_mutex* mutex) { AcquireSRWLockExclusive((SRWLOCK*)(void*)mutex->storage); }
static void native_mutex_unlock(sumi_mutex* mutex) { ReleaseSRWLockExclusive((SRWLOCK*)(void*)mutex->storage); }
bool sumi_condition_init(sumi_condition* condition)
{
    InitializeConditionVariable((CONDITION_VARIABLE*)(void*)condition->storage);
    return true;
}
void sumi_condition_destroy(sumi_condition* condition) { (void)condition; }
static void native_wait(sumi_condition* condition, sumi_mutex* mutex)
{
    SleepConditionVariableSRW((CONDITION_VARIABLE*)(void*)condition->storage, (SRWLOCK*)(void*)mutex->storage, INFINITE,
                              0);
}
static bool native_wait_us(sumi_condition* condition, sumi_mutex* mutex, uint64_t microseconds)
{
    uint64_t milliseconds = (microseconds + 999) / 1000;
    DWORD timeout = milliseconds >= INFINITE ? INFINITE - 1 : (DWORD)milliseconds;
    return SleepConditionVariableSRW((CONDITION_VARIABLE*)(void*)condition->storage, (SRWLOCK*)(void*)mutex->storage,
                                     timeout, 0)
        != 0;
}
void sumi_condition_broadcast(sumi_condition* condition)
{
    WakeAllConditionVariable((CONDITION_VARIABLE*)(void*)condition->storage);
}

// SetThreadDescription is in Windows 10 1607 and newer only, so it is looked up.
static void name_this_thread(const char* name)
{
    typedef HRESULT(WINAPI * set_description)(HANDLE thread, PCWSTR description);
    HMODULE kernel32 = GetModuleHandleW(L"kernel32.dll");
    FARPROC found = kernel32 != NULL ? GetProcAddress(kernel32, "SetThreadDescription") : NULL;
    if (found == NULL) return;
    set_description set;
    memcpy(&set, &found, sizeof set);
    wchar_t wide[sizeof(((sumi_thread_start*)NULL)->name)];
    size_t length = 0;
    for (; name[length] != 0; length++) { wide[length] = (wchar_t)name[length]; } // names are ASCII
    wide[length] = 0;
    set(GetCurrentThread(), wide);
}

static DWORD WINAPI thread_entry(void* context)
{
    const sumi_thread_start* start = context;
    if (start->name[0] != 0) name_this_thread(start->name);
    if (start->low_priority) SetThreadPriority(GetCurrentThread(), THREAD_PRIORITY_BELOW_NORMAL);
    start->function(start->context);
    return 0;
}

bool sumi_thread_begin(sumi_thread* thread, const sumi_thread_start* start)
{
    SUMI_ASSERT(start->function != NULL);
    HANDLE handle = CreateThread(NULL, 0, thread_entry, (void*)(uintptr_t)start, 0, NULL);
    memcpy(thread->storage, &handle, sizeof handle);
    return handle != NULL;
}

void sumi_thread_join(sumi_thread* thread)
{
    HANDLE handle;
    memcpy(&handle, thread->storage, sizeof handle);
    WaitForSingleObject(handle, INFINITE);
    CloseHandle(handle);
}
#else
_Static_assert(sizeof(pthread_mutex_t) <= sizeof(sumi_mutex), "a mutex fits its storage");
_Static_assert(sizeof(pthread_cond_t) <= sizeof(sumi_condition), "a condition fits its storage");
_Static_assert(sizeof(pthread_t) <= sizeof(sumi_thread), "a thread fits its storage");

static pthread_mutex_t* native_mutex(sumi_mutex* mutex) { return (pthread_mutex_t*)(void*)mutex->storage; }
static pthread_cond_t* native_condition(sumi_condition* condition)
{
    return (pthread_cond_t*)(void*)condition->storage;
}

static bool native_mutex_init(sumi_mutex* mutex) { return pthread_mutex_init(native_mutex(mutex), NULL) == 0; }
static void native_mutex_destroy(sumi_mutex* mutex) { pthread_mutex_destroy(native_mutex(mutex)); }
static void native_mutex_lock(sumi_mutex* mutex) { pthread_mutex_lock(native_mutex(mutex)); }
static void native_mutex_unlock(sumi_mutex* mutex) { pthread_mutex_unlock(native_mutex(mutex)); }

bool sumi_condition_init(sumi_condition* condition)
{
#if defined(__APPLE__)
    return pthread_cond_init(native_condition(condition), NULL) == 0;
#else
    pthread_condattr_t attributes; // the monotonic clock: a change of the wall clock must not lengthen a wait
    if (pthread_condattr_init(&attributes) != 0) return false;
    bool ok = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC) == 0
           && pthread_cond_init(native_condition(condition), &attributes) == 0;
    pthread_condattr_destroy(&attributes);
    return ok;
#endif
}
void sumi_condition_destroy(sumi_condition* condition) { pthread_cond_destroy(native_condition(condition)); }
static void native_wait(sumi_condition* condition, sumi_mutex* mutex)
{
    pthread_cond_wait(native_condition(condition), native_mutex(mutex));
}

static bool native_wait_us(sumi_condition* condition, sumi_mutex* mutex, uint64_t microseconds)
{
    struct timespec deadline;
#if defined(__APPLE__)
    clock_gettime(CLOCK_REALTIME, &deadline);
#else
    clock_gettime(CLOCK_MONOTONIC, &deadline);
#endif
    uint64_t nanoseconds = (uint64_t)deadline.tv_nsec + microseconds % 1000000u * 1000u;
    deadline.tv_sec += (time_t)(microseconds / 1000000u + nanoseconds / 1000000000u);
    deadline.tv_nsec = (long)(nanoseconds % 1000000000u);
    return pthread_cond_timedwait(native_condition(condition), native_mutex(mutex), &deadline) == 0;
}
void sumi_condition_broadcast(sumi_condition* condition) { pthread_cond_broadcast(native_condition(condition)); }

static void* thread_entry(void* context)
{
    const sumi_thread_start* start = context;
#if defined(__APPLE__)
    if (start->name[0] != 0) pthread_setname_np(start->name);
#elif defined(__linux__)
    if (start->name[0] != 0) pthread_setname_np(pthread_self(), start->name);
    if (start->low_priority) {
        // on Linux the nice value is per thread; a failure is harmless
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), 10);
    }
#endif
    start->function(start->context);
    return NULL;
}

bool sumi_thread_begin(sumi_thread* thread, const sumi_thread_start* start)
{
    SUMI_ASSERT(start->function != NULL);
    pthread_t native;
    if (pthread_create(&native, NULL, thread_entry, (void*)(uintptr_t)start) != 0) return false;
    memcpy(thread->storage, &native, sizeof native);
    return true;
}

void sumi_thread_join(sumi_thread* thread)
{
    pthread_t native;
    memcpy(&native, thread->storage, sizeof native);
    pthread_join(native, NULL);
}
#endif

bool sumi_mutex_init(sumi_mutex* mutex)
{
    clear_owner(mutex);
    return native_mutex_init(mutex);
}

void sumi_mutex_destroy(sumi_mutex* mutex)
{
    SUMI_ASSERT(!sumi_mutex_is_held(mutex));
    native_mutex_destroy(mutex);
}

void sumi_mutex_lock(sumi_mutex* mutex)
{
    SUMI_ASSERT(!sumi_mutex_is_held(mutex)); // locking twice would deadlock
    native_mutex_lock(mutex);
    set_owner(mutex);
}

void sumi_mutex_unlock(sumi_mutex* mutex)
{
    SUMI_ASSERT(sumi_mutex_is_held(mutex));
    clear_owner(mutex);
    native_mutex_unlock(mutex);
}

void sumi_condition_wait(sumi_condition* condition, sumi_mutex* mutex)
{
    SUMI_ASSERT(sumi_mutex_is_held(mutex));
    clear_owner(mutex);
    native_wait(condition, mutex);
    set_owner(mutex);
}

bool sumi_condition_wait_us(sumi_condition* condition, sumi_mutex* mutex, uint64_t microseconds)
{
    SUMI_ASSERT(sumi_mutex_is_held(mutex));
    clear_owner(mutex);
    const bool was_woken = native_wait_us(condition, mutex, microseconds);
    set_owner(mutex);
    return was_woken;
}

// ---- Files ----------------------------------------------------------------------------------------------------------

#if defined(_WIN32)
// Converts UTF-8 to UTF-16. False if it is not valid UTF-8 or does not fit.
static bool widen(const char* text, wchar_t* out, int capacity)
{
    return MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, text, -1, out, capacity) > 0;
}

// Windows accepts paths of up to MAX_PATH (260) characters as they are. Longer ones, up to 32,767, need a prefix that
// switches off all processing of paths: they must be absolute, with backslashes, without "." and "..".
#define MOST_PATH 4096 // as much as a stack should hold
#define LONG_PREFIX L"\\\\?\\"
#define LONG_SHARE_PREFIX L"\\\\?\\UNC" // instead of the first backslash of "\\server\share"
typedef struct native_path {
    wchar_t text[MOST_PATH + 8];
} native_path;

// Converts a UTF-8 path to the form that Windows' functions take. False if the path is not valid UTF-8 or does not fit.
static bool native_path_of(const char* path, native_path* out)
{
    wchar_t given[MOST_PATH], full[MOST_PATH];
    if (!widen(path, given, MOST_PATH)) return false;
    const DWORD length = GetFullPathNameW(given, MOST_PATH, full, NULL); // without the terminating zero, if it fits
    if (length == 0) full[0] = 0;                                        // an empty path
    if (length >= MOST_PATH) return false;
    const bool is_share = wcsncmp(full, L"\\\\", 2) == 0;
    const bool has_prefix = is_share && (full[2] == L'?' || full[2] == L'.'); // "\\?\" already, or "\\.\" of a device
    if (length < MAX_PATH || has_prefix) wcscpy(out->text, given);
    else {
        wcscpy(out->text, is_share ? LONG_SHARE_PREFIX : LONG_PREFIX);
        wcscat(out->text, is_share ? full + 1 : full);
    }
    return true;
}

static DWORD attributes_of(const char* path)
{
    native_path native;
    return native_path_of(path, &native) ? GetFileAttributesW(native.text) : INVALID_FILE_ATTRIBUTES;
}

// Whether the folder of a missing path exists. For a missing file in a good folder the system reports another error, so
// an existing folder is a link to nothing, or not a folder.
static bool has_broken_folder(const char* path)
{
    char folder[4096];
    size_t bytes = strlen(path);
    if (bytes >= sizeof folder) return false;
    while (bytes > 0 && path[bytes - 1] != '/' && path[bytes - 1] != '\\') bytes--;
    if (bytes < 2) return false;
    memcpy(folder, path, bytes - 1);
    folder[bytes - 1] = '\0';
    return attributes_of(folder) != INVALID_FILE_ATTRIBUTES;
}

static sumi_result fail_to_open(const char* path, DWORD reason, sumi_error* error)
{
    const DWORD attributes = attributes_of(path);
    if (attributes != INVALID_FILE_ATTRIBUTES && (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0)
        return sumi_fail(error, SUMI_FILE_READ_FAILED, "%s: is a folder, not a regular file; check the path", path);
    const bool is_missing =
        reason == ERROR_FILE_NOT_FOUND || reason == ERROR_PATH_NOT_FOUND || reason == ERROR_INVALID_NAME;
    if (is_missing && attributes != INVALID_FILE_ATTRIBUTES)
        return sumi_fail(error, SUMI_FILE_NOT_FOUND, "%s: is a symbolic link to something that does not exist", path);
    if (reason == ERROR_PATH_NOT_FOUND && has_broken_folder(path))
        return sumi_fail(error, SUMI_FILE_NOT_FOUND,
                         "%s: its folder is a file, or a symbolic link to something that does not exist", path);
    if (is_missing) return sumi_fail(error, SUMI_FILE_NOT_FOUND, "%s: no such file; check the path", path);
    if (reason == ERROR_SHARING_VIOLATION || reason == ERROR_LOCK_VIOLATION)
        return sumi_fail(error, SUMI_FILE_READ_FAILED,
                         "%s: another program has it open, to write it or without sharing it: wait until it is "
                         "written, or close it there",
                         path);
    if (reason == ERROR_ACCESS_DENIED)
        return sumi_fail(error, SUMI_FILE_READ_FAILED,
                         "%s: cannot be opened for reading, because its permissions forbid it; check the path", path);
    return sumi_fail(error, SUMI_FILE_READ_FAILED, "%s: cannot be opened for reading (Windows error %lu)", path,
                     (unsigned long)reason);
}

// The only function that opens files. Names of devices (CON, NUL, COM1) and of pipes open too, so the type decides.
static sumi_result open_file(const char* path, HANDLE* out_file, uint64_t* out_bytes, sumi_error* error)
{
    native_path native;
    if (!native_path_of(path, &native))
        return sumi_fail(error, SUMI_FILE_NOT_FOUND, "%s: not a usable UTF-8 path of under %d characters", path,
                         MOST_PATH);
    HANDLE file =
        CreateFileW(native.text, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, FILE_ATTRIBUTE_NORMAL, NULL);
    if (file == INVALID_HANDLE_VALUE) return fail_to_open(path, GetLastError(), error);
    if (GetFileType(file) != FILE_TYPE_DISK) {
        CloseHandle(file);
        return sumi_fail(error, SUMI_FILE_READ_FAILED, "%s: is a device or a pipe, not a regular file; check the path",
                         path);
    }
    LARGE_INTEGER bytes;
    if (!GetFileSizeEx(file, &bytes)) {
        const DWORD reason = GetLastError();
        CloseHandle(file);
        return sumi_fail(error, SUMI_FILE_READ_FAILED, "%s: its size cannot be read (Windows error %lu)", path,
                         (unsigned long)reason);
    }
    *out_file = file;
    *out_bytes = (uint64_t)bytes.QuadPart;
    return SUMI_OK;
}

sumi_result sumi_mapping_open(sumi_mapping* mapping, const char* path, sumi_error* error)
{
    memset(mapping, 0, sizeof *mapping);
    HANDLE file = INVALID_HANDLE_VALUE;
    SUMI_TRY(open_file(path, &file, &mapping->bytes, error));
    DWORD reason = 0;
    if (mapping->bytes > 0) {
        mapping->handle = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
        mapping->data = mapping->handle != NULL ? MapViewOfFile(mapping->handle, FILE_MAP_READ, 0, 0, 0) : NULL;
        reason = GetLastError();
    }
    CloseHandle(file);
    if (mapping->bytes > 0 && mapping->data == NULL) {
        sumi_mapping_close(mapping);
        return sumi_fail(error, SUMI_FILE_READ_FAILED, "%s: cannot be mapped (Windows error %lu)", path,
                         (unsigned long)reason);
    }
    return SUMI_OK;
}

void sumi_mapping_close(sumi_mapping* mapping)
{
    if (mapping->data != NULL) UnmapViewOfFile(mapping->data);
    if (mapping->handle != NULL) CloseHandle(mapping->handle);
    memset(mapping, 0, sizeof *mapping);
}

void* sumi_large_pages_take(size_t bytes)
{
    (void)bytes; // large pages need a privilege that players' accounts do not have
    return NULL;
}

void sumi_large_pages_give(void* memory, size_t bytes) { (void)memory, (void)bytes; }

int32_t sumi_descriptor_copy(int32_t descriptor)
{
    (void)descriptor;
    return -1;
}

void sumi_descriptor_close(int32_t descriptor) { (void)descriptor; }

sumi_path_kind sumi_path_look_at(const char* path)
{
    const DWORD attributes = attributes_of(path), reason = GetLastError();
    if (attributes != INVALID_FILE_ATTRIBUTES)
        return (attributes & FILE_ATTRIBUTE_DIRECTORY) != 0 ? SUMI_PATH_FOLDER : SUMI_PATH_FILE;
    if (reason == ERROR_PATH_NOT_FOUND) return has_broken_folder(path) ? SUMI_PATH_OTHER : SUMI_PATH_NOTHING;
    return reason == ERROR_FILE_NOT_FOUND || reason == ERROR_INVALID_NAME ? SUMI_PATH_NOTHING : SUMI_PATH_OTHER;
}
#else
int32_t sumi_descriptor_copy(int32_t descriptor) { return fcntl(descriptor, F_DUPFD_CLOEXEC, 0); }

void sumi_descriptor_close(int32_t descriptor) { (void)close(descriptor); }

// What is wrong with a path that does not exist: the length of the part at its beginning that is a link to nothing, or
// that is not a folder although the path continues. 0: nothing exists there.
static size_t find_broken_part(const char* path)
{
    char part[4096];
    const size_t path_bytes = strlen(path);
    if (path_bytes >= sizeof part) return 0;
    memcpy(part, path, path_bytes + 1);
    for (size_t bytes = path_bytes; bytes > 0;) {
        while (bytes > 1 && part[bytes - 1] == '/') { bytes--; } // a link with a slash after it is followed
        part[bytes] = '\0';
        struct stat status;
        if (lstat(part, &status) == 0) {
            const bool is_reached = stat(part, &status) == 0 && (bytes == path_bytes || S_ISDIR(status.st_mode));
            return is_reached ? 0 : bytes;
        }
        while (bytes > 0 && part[bytes - 1] != '/') bytes--;
        if (bytes == 1) { return 0; } // the root
    }
    return 0;
}

static sumi_result fail_to_open(const char* path, int reason, sumi_error* error)
{
    if (reason != ENOENT && reason != ENOTDIR) {
        return sumi_fail(error, SUMI_FILE_READ_FAILED, "%s: cannot be opened for reading%s; check the path", path,
                         reason == EACCES  ? ", because its permissions forbid it"
                         : reason == ELOOP ? ", because its symbolic links form a circle"
                                           : "");
    }
    const size_t bytes = find_broken_part(path);
    if (bytes == strlen(path)) {
        return sumi_fail(error, SUMI_FILE_NOT_FOUND,
                         "%s: is a symbolic link to something that does not exist; copy or download the file", path);
    }
    if (bytes > 0) {
        return sumi_fail(error, SUMI_FILE_NOT_FOUND,
                         "%s: no such file, because %.*s is not a folder, or is a symbolic link to something that does "
                         "not exist; check the path",
                         path, (int)bytes, path);
    }
    return sumi_fail(error, SUMI_FILE_NOT_FOUND, "%s: no such file; check the path", path);
}

static sumi_result check_regular(const char* path, const struct stat* status, sumi_error* error)
{
    const mode_t mode = status->st_mode;
    if (S_ISREG(mode)) return SUMI_OK;
    return sumi_fail(error, SUMI_FILE_READ_FAILED, "%s: is a %s, not a regular file; check the path", path,
                     S_ISDIR(mode)    ? "folder"
                     : S_ISFIFO(mode) ? "pipe"
                     : S_ISSOCK(mode) ? "socket"
                                      : "device");
}

// The only function that opens files. It checks the path first, so that it never lets in a writer that waits at a pipe
// and never touches a device. It checks the open file again, because the path may mean another file by then. In that
// case O_NONBLOCK keeps a pipe without a writer from blocking, and O_NOCTTY a terminal from controlling the process.
static sumi_result open_file(const char* path, int* out_file, uint64_t* out_bytes, sumi_error* error)
{
    struct stat status;
    if (stat(path, &status) != 0) return fail_to_open(path, errno, error);
    SUMI_TRY(check_regular(path, &status, error));
    const int file = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file < 0) return fail_to_open(path, errno, error);
    const sumi_result result = fstat(file, &status) == 0
                                 ? check_regular(path, &status, error)
                                 : sumi_fail(error, SUMI_FILE_READ_FAILED, "%s: its size cannot be read", path);
    if (result != SUMI_OK) {
        (void)close(file);
        return result;
    }
    *out_file = file;
    *out_bytes = (uint64_t)status.st_size;
    return SUMI_OK;
}

sumi_result sumi_mapping_open(sumi_mapping* mapping, const char* path, sumi_error* error)
{
    memset(mapping, 0, sizeof *mapping);
    int file = -1;
    SUMI_TRY(open_file(path, &file, &mapping->bytes, error));
    if (mapping->bytes > 0) {
        void* data = mmap(NULL, (size_t)mapping->bytes, PROT_READ, MAP_SHARED, file, 0);
        mapping->is_shared = data != MAP_FAILED;
        // some file systems in user space refuse shared mappings
        if (data == MAP_FAILED) data = mmap(NULL, (size_t)mapping->bytes, PROT_READ, MAP_PRIVATE, file, 0);
        if (data == MAP_FAILED) {
            close(file);
            mapping->bytes = 0;
            return sumi_fail(error, SUMI_FILE_READ_FAILED,
                             "%s: the system cannot map it (address space or limits exhausted)", path);
        }
        mapping->data = data;
    }
    close(file);
    return SUMI_OK;
}

void sumi_mapping_close(sumi_mapping* mapping)
{
    if (mapping->data != NULL) munmap((void*)(uintptr_t)mapping->data, (size_t)mapping->bytes);
    memset(mapping, 0, sizeof *mapping);
}

#if defined(__linux__)
void* sumi_large_pages_take(size_t bytes)
{
    if (bytes == 0 || bytes % SUMI_LARGE_PAGE != 0 || bytes > SIZE_MAX - SUMI_LARGE_PAGE) return NULL;
    char* reserved = mmap(NULL, bytes + SUMI_LARGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (reserved == MAP_FAILED) return NULL;
    // mmap aligns to small pages only: the memory before and after the aligned range is unmapped.
    const size_t before = (SUMI_LARGE_PAGE - (uintptr_t)reserved % SUMI_LARGE_PAGE) % SUMI_LARGE_PAGE;
    char* memory = reserved + before;
    if (before > 0) munmap(reserved, before);
    if (before < SUMI_LARGE_PAGE) munmap(memory + bytes, SUMI_LARGE_PAGE - before);
    SUMI_ASSERT((uintptr_t)memory % SUMI_LARGE_PAGE == 0 && memory >= reserved);
    // if the system has no large pages, small ones remain: page-locking them takes longer, nothing else changes
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    // Older kernels would let a process and its child share the pages after a fork, and move the first to write away
    // from the page that the device reads or writes.
    (void)madvise(memory, bytes, MADV_DONTFORK);
    return memory;
}

void sumi_large_pages_give(void* memory, size_t bytes)
{
    SUMI_ASSERT((uintptr_t)memory % SUMI_LARGE_PAGE == 0 && bytes % SUMI_LARGE_PAGE == 0);
    if (memory != NULL) munmap(memory, bytes);
}
#else
void* sumi_large_pages_take(size_t bytes)
{
    (void)bytes;
    return NULL;
}

void sumi_large_pages_give(void* memory, size_t bytes) { (void)memory, (void)bytes; }
#endif

sumi_path_kind sumi_path_look_at(const char* path)
{
    struct stat status;
    if (stat(path, &status) == 0)
        return S_ISREG(status.st_mode) ? SUMI_PATH_FILE : S_ISDIR(status.st_mode) ? SUMI_PATH_FOLDER : SUMI_PATH_OTHER;
    const bool is_missing = errno == ENOENT || errno == ENOTDIR;
    return is_missing && find_broken_part(path) == 0 ? SUMI_PATH_NOTHING : SUMI_PATH_OTHER;
}
#endif

bool sumi_path_is_folder(const char* path) { return sumi_path_look_at(path) == SUMI_PATH_FOLDER; }
bool sumi_path_is_file(const char* path) { return sumi_path_look_at(path) == SUMI_PATH_FILE; }

bool sumi_path_join(char* out, size_t out_bytes, const char* folder, const char* name)
{
    SUMI_ASSERT(out_bytes > 0 && folder != NULL && name != NULL);
    size_t length = strlen(folder);
    const char* between = length > 0 && folder[length - 1] != '/' ? "/" : "";
    int written = snprintf(out, out_bytes, "%s%s%s", folder, between, name);
    return written >= 0 && (size_t)written < out_bytes;
}

// ---- Libraries ------------------------------------------------------------------------------------------------------

#if defined(_WIN32)
void* sumi_library_open(const char* name)
{
    wchar_t wide[260];
    return widen(name, wide, 260) ? (void*)LoadLibraryExW(wide, NULL, LOAD_LIBRARY_SEARCH_SYSTEM32) : NULL;
}

sumi_library_function* sumi_library_symbol(void* library, const char* name)
{
    FARPROC address = GetProcAddress((HMODULE)library, name);
    sumi_library_function* function = NULL;
    memcpy(&function, &address, sizeof function);
    return function;
}
#else
void* sumi_library_open(const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }

sumi_library_function* sumi_library_symbol(void* library, const char* name)
{
    void* address = dlsym(library, name);
    sumi_library_function* function = NULL;
    // C has no cast from an object pointer to a function pointer; POSIX guarantees that both have the same
    // representation
    memcpy(&function, &address, sizeof function);
    return function;
}
#endif
