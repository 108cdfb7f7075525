#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#define _POSIX_C_SOURCE 200809L
#define _DEFAULT_SOURCE // madvise
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#endif
#include "fake_system.h"
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
static SRWLOCK s_lock = SRWLOCK_INIT;

void fake_system_lock(void) { AcquireSRWLockExclusive(&s_lock); }
void fake_system_unlock(void) { ReleaseSRWLockExclusive(&s_lock); }

uint64_t fake_system_now_ns(void)
{
    LARGE_INTEGER now, frequency;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&frequency);
    const uint64_t seconds = (uint64_t)(now.QuadPart / frequency.QuadPart);
    const uint64_t rest = (uint64_t)(now.QuadPart % frequency.QuadPart);
    return seconds * 1000000000u + rest * 1000000000u / (uint64_t)frequency.QuadPart;
}

void fake_system_sleep_ns(uint64_t ns) { Sleep((DWORD)((ns + 999999) / 1000000)); }

// At the top of the address space. Low addresses are like the numbers that kernels are given, which would then count as
// addresses of memory that was freed.
void* fake_system_allocate(size_t alignment, size_t bytes, int fill)
{
    (void)alignment; // it is aligned to 64 KiB
    void* memory = VirtualAlloc(NULL, bytes, MEM_RESERVE | MEM_COMMIT | MEM_TOP_DOWN, PAGE_READWRITE);
    if (memory != NULL && fill != 0) memset(memory, fill, bytes);
    return memory;
}

void fake_system_release(void* memory, size_t bytes)
{
    (void)bytes;
    if (memory != NULL && !VirtualFree(memory, 0, MEM_RELEASE)) abort();
}

int fake_system_file_begin(void) { abort(); }
int fake_system_file_copy(int descriptor)
{
    (void)descriptor;
    abort();
}
void fake_system_file_close(int descriptor) { (void)descriptor; }
unsigned long long fake_system_file_of(int descriptor)
{
    (void)descriptor;
    return 0;
}

void* fake_system_handle_begin(void)
{
    const HANDLE handle = CreateEventW(NULL, TRUE, FALSE, NULL);
    if (handle == NULL) abort();
    return handle;
}

bool fake_system_handle_end(void* handle)
{
    DWORD flags;
    return GetHandleInformation(handle, &flags) && CloseHandle(handle);
}
#else
static pthread_mutex_t s_lock = PTHREAD_MUTEX_INITIALIZER;

void fake_system_lock(void) { pthread_mutex_lock(&s_lock); }
void fake_system_unlock(void) { pthread_mutex_unlock(&s_lock); }

uint64_t fake_system_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void fake_system_sleep_ns(uint64_t ns)
{
    nanosleep(&(struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)}, NULL);
}

// Pages of the system's own for what is large. They are zero, and cost nothing before they are used: most of the memory
// of models of gigabytes never is, and setting it to zero took half of the time of test_cuda_cards. The address sanitizer
// sees around blocks of malloc alone.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define HAS_ADDRESS_SANITIZER
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define HAS_ADDRESS_SANITIZER
#endif
static bool has_own_pages(size_t bytes)
{
#if defined(HAS_ADDRESS_SANITIZER)
    (void)bytes;
    return false;
#else
    return bytes >= (size_t)1 << 20;
#endif
}

// Using gigabytes in pages of 4 KiB takes three times as long.
static void use_large_pages(unsigned char* memory, size_t bytes)
{
    const uintptr_t page = (uintptr_t)2 << 20, begin = ((uintptr_t)memory + page - 1) / page * page;
    const uintptr_t end = ((uintptr_t)memory + bytes) / page * page;
    if (begin < end) (void)madvise((void*)begin, end - begin, MADV_HUGEPAGE);
}

void* fake_system_allocate(size_t alignment, size_t bytes, int fill)
{
    void* memory = NULL;
    const bool is_zero = has_own_pages(bytes);
    if (is_zero) {
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (memory == MAP_FAILED) return NULL;
    } else if (posix_memalign(&memory, alignment, bytes) != 0) return NULL;
    use_large_pages(memory, bytes);
    if (!is_zero || fill != 0) memset(memory, fill, bytes);
    return memory;
}

void fake_system_release(void* memory, size_t bytes)
{
    if (memory != NULL && has_own_pages(bytes)) munmap(memory, bytes);
    else free(memory);
}

int fake_system_file_begin(void)
{
    char name[] = "/tmp/fake_shared_XXXXXX";
    const int descriptor = mkstemp(name);
    if (descriptor < 0) abort();
    unlink(name);
    return descriptor;
}

int fake_system_file_copy(int descriptor)
{
    const int copy = dup(descriptor);
    if (copy < 0) abort();
    return copy;
}

void fake_system_file_close(int descriptor) { close(descriptor); }

unsigned long long fake_system_file_of(int descriptor)
{
    struct stat status;
    return fstat(descriptor, &status) == 0 ? (unsigned long long)status.st_ino : 0;
}

void* fake_system_handle_begin(void)
{
    void* handle = malloc(1);
    if (handle == NULL) abort();
    return handle;
}

bool fake_system_handle_end(void* handle)
{
    free(handle);
    return true;
}
#endif
