#if !defined(_WIN32) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE // memfd_create
#endif
#include "views.h"

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>

uint64_t views_unit(void)
{
    SYSTEM_INFO info;
    GetSystemInfo(&info);
    return info.dwAllocationGranularity;
}

bool views_make(uint64_t bytes, view_block* out_block, void** out_memory)
{
    const HANDLE section = CreateFileMappingW(INVALID_HANDLE_VALUE, NULL, PAGE_READWRITE, (DWORD)(bytes >> 32),
                                              (DWORD)(bytes & 0xFFFFFFFFu), NULL);
    if (!section) return false;
    *out_memory = MapViewOfFile(section, FILE_MAP_WRITE, 0, 0, (SIZE_T)bytes);
    *out_block = (view_block){(intptr_t)section, bytes};
    if (!*out_memory) CloseHandle(section);
    return *out_memory != NULL;
}

void views_filled(const view_block* block, void* memory)
{
    (void)block;
    UnmapViewOfFile(memory);
}

void views_close(const view_block* block) { CloseHandle((HANDLE)block->handle); }

// A view cannot be put into a reservation: the addresses are found by one, which is given up before they are taken
// again. Another thread may be quicker, and then the whole is tried again.
void* views_reserve(uint64_t bytes, uint64_t private_bytes)
{
    for (int i = 0; i < 8; i++) {
        void* memory = VirtualAlloc(NULL, (SIZE_T)bytes, MEM_RESERVE, PAGE_NOACCESS);
        if (!memory) return NULL;
        VirtualFree(memory, 0, MEM_RELEASE);
        if (VirtualAlloc(memory, (SIZE_T)private_bytes, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE)) return memory;
    }
    return NULL;
}

bool views_map(void* at, uint64_t bytes, const view_block* block)
{
    return MapViewOfFileEx((HANDLE)block->handle, FILE_MAP_READ, 0, 0, (SIZE_T)bytes, at) == at;
}

void views_release(void* memory, uint64_t bytes, uint64_t mapped_bytes)
{
    unsigned char *at = memory, *end = at + mapped_bytes;
    (void)bytes;
    while (at < end) {
        MEMORY_BASIC_INFORMATION part;
        if (VirtualQuery(at, &part, sizeof part) == 0) return;
        at = (unsigned char*)part.BaseAddress + part.RegionSize;
        if (part.State == MEM_FREE) continue;
        if (part.Type == MEM_MAPPED) UnmapViewOfFile(part.AllocationBase);
        else VirtualFree(part.AllocationBase, 0, MEM_RELEASE);
    }
}

#else
#include <sys/mman.h>
#include <unistd.h>

uint64_t views_unit(void) { return (uint64_t)sysconf(_SC_PAGESIZE); }

bool views_make(uint64_t bytes, view_block* out_block, void** out_memory)
{
    const int file = memfd_create("sumi-views", 0);
    void* memory = file >= 0 && ftruncate(file, (off_t)bytes) == 0
                     ? mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                     : MAP_FAILED;
    if (memory == MAP_FAILED && file >= 0) close(file);
    if (memory == MAP_FAILED) return false;
    *out_block = (view_block){file, bytes};
    *out_memory = memory;
    return true;
}

void views_filled(const view_block* block, void* memory) { munmap(memory, (size_t)block->bytes); }
void views_close(const view_block* block) { close((int)block->handle); }

void* views_reserve(uint64_t bytes, uint64_t private_bytes)
{
    (void)private_bytes; // all of it is, until something else is mapped over it
    void* memory =
        mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

bool views_map(void* at, uint64_t bytes, const view_block* block)
{
    return mmap(at, (size_t)bytes, PROT_READ, MAP_SHARED | MAP_FIXED, (int)block->handle, 0) != MAP_FAILED;
}

void views_release(void* memory, uint64_t bytes, uint64_t mapped_bytes)
{
    (void)mapped_bytes;
    munmap(memory, (size_t)bytes);
}
#endif
