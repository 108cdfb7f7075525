#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#define _CRT_RAND_S // rand_s in Windows' stdlib.h
#include "system.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h> // must come before shellapi.h, which uses its macros

#include <fcntl.h>
#include <io.h>
#include <malloc.h>
#include <shellapi.h>
#include <wchar.h>
#else
#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#endif

// ---- Lists of names -------------------------------------------------------------------------------------------------

// Takes ownership of `name`, which may be NULL.
static void add_name(char*** names, int* count, char* name)
{
    char** more = name && name[0] != '.' ? realloc(*names, (size_t)(*count + 1) * sizeof *more) : NULL;
    if (more) {
        *names = more;
        more[(*count)++] = name;
    } else {
        free(name);
    }
}

static int compare_names(const void* a, const void* b) { return strcmp(*(char* const*)a, *(char* const*)b); }

static char** sort_names(char** names, int count)
{
    if (count > 0) qsort(names, (size_t)count, sizeof *names, compare_names);
    return names;
}

void system_free_list(char** names, int count)
{
    for (int i = 0; i < count; i++) free(names[i]);
    free(names);
}

#if defined(_WIN32)

// ---- Windows --------------------------------------------------------------------------------------------------------

static char* to_utf8(const wchar_t* wide)
{
    const int bytes = WideCharToMultiByte(CP_UTF8, 0, wide, -1, NULL, 0, NULL, NULL);
    char* text = bytes > 0 ? malloc((size_t)bytes) : NULL;
    if (text) WideCharToMultiByte(CP_UTF8, 0, wide, -1, text, bytes, NULL, NULL);
    return text;
}

// Returns false and sets errno when the path is not UTF-8 or is too long.
#define WIDE_PATH 1024
static bool widen(const char* path, wchar_t* wide)
{
    if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, WIDE_PATH) > 0) return true;
    errno = ENOENT;
    return false;
}

char** system_begin(int argc, char** argv)
{
    _setmode(_fileno(stdin), _O_BINARY);
    _setmode(_fileno(stdout), _O_BINARY);
    _setmode(_fileno(stderr), _O_BINARY);
    setvbuf(stderr, NULL, _IONBF, 0); // without this call stderr is buffered unless it is a terminal
    int count = 0;
    // argv is in the code page of the machine, which lacks many characters
    wchar_t** wide = CommandLineToArgvW(GetCommandLineW(), &count);
    char** utf8 = wide && count == argc ? calloc((size_t)count + 1, sizeof *utf8) : NULL;
    for (int i = 0; utf8 && i < count; i++) {
        utf8[i] = to_utf8(wide[i]);
        if (!utf8[i]) utf8[i] = argv[i];
    }
    LocalFree(wide);
    return utf8 ? utf8 : argv;
}

void* system_allocate(size_t bytes, size_t alignment) { return _aligned_malloc(bytes ? bytes : 1, alignment); }
void system_release(void* memory) { _aligned_free(memory); }

uint64_t system_clock_ns(void)
{
    LARGE_INTEGER now, frequency;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&frequency);
    const uint64_t whole = (uint64_t)(now.QuadPart / frequency.QuadPart),
                   rest = (uint64_t)(now.QuadPart % frequency.QuadPart);
    return whole * 1000000000u + rest * 1000000000u / (uint64_t)frequency.QuadPart;
}

double system_processor_seconds(void)
{
    FILETIME begin, end, kernel, user;
    if (!GetProcessTimes(GetCurrentProcess(), &begin, &end, &kernel, &user)) return 0.0;
    const uint64_t units = ((uint64_t)kernel.dwHighDateTime << 32) + kernel.dwLowDateTime
                         + ((uint64_t)user.dwHighDateTime << 32) + user.dwLowDateTime;
    return 1e-7 * (double)units;
}

// The system's folder is the only one in which drivers are looked for, so that nobody can plant one.
void* system_library_open(const char* name)
{
    wchar_t wide[WIDE_PATH];
    const bool is_path = strchr(name, '/') != NULL || strchr(name, '\\') != NULL;
    if (!widen(name, wide)) return NULL;
    for (wchar_t* at = wide; *at != 0; at++)
        if (*at == L'/') *at = L'\\';
    return (void*)LoadLibraryExW(wide, NULL, is_path ? 0 : LOAD_LIBRARY_SEARCH_SYSTEM32);
}

void* system_library_find(void* library, const char* name)
{
    const FARPROC function = GetProcAddress((HMODULE)library, name);
    void* symbol;
    memcpy(&symbol, &function, sizeof symbol);
    return symbol;
}

void system_library_close(void* library)
{
    if (library) FreeLibrary((HMODULE)library);
}

void system_sleep_us(uint32_t microseconds) { Sleep((microseconds + 999) / 1000); }

uint32_t system_random(void)
{
    unsigned number = 0;
    return rand_s(&number) == 0 ? number : (uint32_t)(system_clock_ns() * 2654435761u);
}

FILE* system_open(const char* path, const char* mode)
{
    wchar_t wide[WIDE_PATH], wide_mode[16];
    return widen(path, wide) && widen(mode, wide_mode) ? _wfopen(wide, wide_mode) : NULL;
}

system_kind system_look_at(const char* path)
{
    wchar_t wide[WIDE_PATH];
    if (!widen(path, wide)) return SYSTEM_NOTHING;
    const DWORD attributes = GetFileAttributesW(wide);
    if (attributes == INVALID_FILE_ATTRIBUTES) return SYSTEM_NOTHING;
    if (attributes & FILE_ATTRIBUTE_DIRECTORY) return SYSTEM_FOLDER;
    return attributes & FILE_ATTRIBUTE_DEVICE ? SYSTEM_OTHER : SYSTEM_FILE;
}

// The access list of a folder says who may write; only a write shows it with certainty.
bool system_can_write(const char* path)
{
    wchar_t wide[WIDE_PATH];
    if (!widen(path, wide)) return false;
    const DWORD attributes = GetFileAttributesW(wide);
    return attributes != INVALID_FILE_ATTRIBUTES
        && ((attributes & FILE_ATTRIBUTE_DIRECTORY) != 0 || (attributes & FILE_ATTRIBUTE_READONLY) == 0);
}

uint64_t system_changed_ns(const char* path)
{
    wchar_t wide[WIDE_PATH];
    WIN32_FILE_ATTRIBUTE_DATA facts;
    if (!widen(path, wide) || !GetFileAttributesExW(wide, GetFileExInfoStandard, &facts)) return 0;
    return 100 * ((uint64_t)facts.ftLastWriteTime.dwHighDateTime << 32 | facts.ftLastWriteTime.dwLowDateTime);
}

// To create a link takes a privilege there, and moving a file to its path replaces the link.
bool system_resolve_link(const char* path, char* into, size_t capacity)
{
    return (size_t)snprintf(into, capacity, "%s", path) < capacity;
}

bool system_move(const char* path, const char* to_path)
{
    wchar_t wide[WIDE_PATH], wide_to[WIDE_PATH];
    if (!widen(path, wide) || !widen(to_path, wide_to)) return false;
    if (MoveFileExW(wide, wide_to, MOVEFILE_REPLACE_EXISTING)) return true;
    errno = GetLastError() == ERROR_FILE_NOT_FOUND || GetLastError() == ERROR_PATH_NOT_FOUND ? ENOENT : EACCES;
    return false;
}

bool system_remove(const char* path)
{
    wchar_t wide[WIDE_PATH];
    return widen(path, wide) && (DeleteFileW(wide) || RemoveDirectoryW(wide));
}

bool system_make_folder(const char* path)
{
    wchar_t wide[WIDE_PATH];
    return widen(path, wide) && (CreateDirectoryW(wide, NULL) || system_look_at(path) == SYSTEM_FOLDER);
}

bool system_make_scratch(char* path, size_t capacity, const char* name)
{
    wchar_t wide[WIDE_PATH];
    const DWORD length = GetTempPathW(WIDE_PATH, wide); // ends with a separator
    char* folder = length > 0 && length < WIDE_PATH ? to_utf8(wide) : NULL;
    bool is_made = false;
    for (unsigned attempt = 0; folder && !is_made && attempt < 100; attempt++) {
        const int written =
            snprintf(path, capacity, "%s%s-%lu-%u", folder, name, (unsigned long)GetCurrentProcessId(), attempt);
        is_made = written > 0 && (size_t)written < capacity && widen(path, wide) && CreateDirectoryW(wide, NULL);
    }
    free(folder);
    return is_made;
}

char** system_list(const char* path, int* out_count)
{
    char** names = NULL;
    *out_count = 0;
    char pattern[WIDE_PATH];
    wchar_t wide[WIDE_PATH];
    WIN32_FIND_DATAW found;
    const int written = snprintf(pattern, sizeof pattern, "%s/*", path);
    const HANDLE search = written > 0 && written < WIDE_PATH && widen(pattern, wide) ? FindFirstFileW(wide, &found)
                                                                                     : INVALID_HANDLE_VALUE;
    if (search == INVALID_HANDLE_VALUE) return NULL;
    do add_name(&names, out_count, to_utf8(found.cFileName));
    while (FindNextFileW(search, &found));
    FindClose(search);
    return sort_names(names, *out_count);
}

const char* system_file_name(const char* path)
{
    const char* name = path;
    for (const char* at = path; *at; at++) {
        if (*at == '/' || *at == '\\' || (*at == ':' && at == path + 1)) name = at + 1;
    }
    return name;
}

bool system_is_terminal(FILE* stream)
{
    const HANDLE console = (HANDLE)_get_osfhandle(_fileno(stream));
    DWORD mode;
    return GetConsoleMode(console, &mode) && SetConsoleMode(console, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
}

#else

// ---- POSIX ----------------------------------------------------------------------------------------------------------

char** system_begin(int argc, char** argv)
{
    (void)argc;
    return argv;
}

void* system_allocate(size_t bytes, size_t alignment)
{
    void* memory = NULL;
    return posix_memalign(&memory, alignment < sizeof(void*) ? sizeof(void*) : alignment, bytes ? bytes : 1) == 0
             ? memory
             : NULL;
}

void system_release(void* memory) { free(memory); }

uint64_t system_clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double system_processor_seconds(void)
{
    struct timespec time;
    if (clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time) != 0) return 0.0;
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void* system_library_open(const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); }
void* system_library_find(void* library, const char* name) { return dlsym(library, name); }
void system_library_close(void* library)
{
    if (library) dlclose(library);
}

void system_sleep_us(uint32_t microseconds)
{
    nanosleep(&(struct timespec){.tv_sec = (time_t)(microseconds / 1000000u),
                                 .tv_nsec = (long)(microseconds % 1000000u) * 1000},
              NULL);
}

uint32_t system_random(void)
{
    uint32_t number = 0;
    FILE* source = fopen("/dev/urandom", "rb");
    const size_t count = source ? fread(&number, sizeof number, 1, source) : 0;
    if (source) fclose(source);
    return count == 1 ? number : (uint32_t)((system_clock_ns() ^ (uint64_t)getpid() << 32) * 2654435761u >> 16);
}

FILE* system_open(const char* path, const char* mode) { return fopen(path, mode); }

system_kind system_look_at(const char* path)
{
    struct stat facts;
    if (stat(path, &facts) != 0) return SYSTEM_NOTHING;
    return S_ISREG(facts.st_mode) ? SYSTEM_FILE : S_ISDIR(facts.st_mode) ? SYSTEM_FOLDER : SYSTEM_OTHER;
}

bool system_can_write(const char* path)
{
    return access(path, system_look_at(path) == SYSTEM_FOLDER ? W_OK | X_OK : W_OK) == 0;
}

uint64_t system_changed_ns(const char* path)
{
    struct stat facts;
    if (stat(path, &facts) != 0) return 0;
    return (uint64_t)facts.st_mtim.tv_sec * 1000000000u + (uint64_t)facts.st_mtim.tv_nsec;
}

#define MAX_LINKS 40 // in a row; more are a circle, as in the kernel
bool system_resolve_link(const char* path, char* into, size_t capacity)
{
    if ((size_t)snprintf(into, capacity, "%s", path) >= capacity) return false;
    for (int i = 0; i < MAX_LINKS; i++) {
        char target[4096], joined[8192];
        const ssize_t length = readlink(into, target, sizeof target - 1);
        if (length <= 0) return true; // no link
        target[length] = 0;
        // A relative target begins in the folder of the link.
        const size_t folder = target[0] == '/' ? 0 : (size_t)(system_file_name(into) - into);
        const int written = snprintf(joined, sizeof joined, "%.*s%s", (int)folder, into, target);
        if (written < 0 || (size_t)written >= sizeof joined || (size_t)written >= capacity) return false;
        memcpy(into, joined, (size_t)written + 1);
    }
    return false;
}

bool system_move(const char* path, const char* to_path) { return rename(path, to_path) == 0; }
bool system_remove(const char* path) { return remove(path) == 0; }
bool system_make_folder(const char* path) { return mkdir(path, 0777) == 0 || system_look_at(path) == SYSTEM_FOLDER; }

bool system_make_scratch(char* path, size_t capacity, const char* name)
{
    const char* folder = getenv("TMPDIR");
    const int written = snprintf(path, capacity, "%s/%s-XXXXXX", folder && folder[0] ? folder : "/tmp", name);
    return written > 0 && (size_t)written < capacity && mkdtemp(path) != NULL;
}

char** system_list(const char* path, int* out_count)
{
    char** names = NULL;
    *out_count = 0;
    DIR* folder = opendir(path);
    if (!folder) return NULL;
    for (const struct dirent* entry = readdir(folder); entry; entry = readdir(folder)) {
        char* name = malloc(strlen(entry->d_name) + 1);
        add_name(&names, out_count, name ? strcpy(name, entry->d_name) : NULL);
    }
    closedir(folder);
    return sort_names(names, *out_count);
}

const char* system_file_name(const char* path)
{
    const char* slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool system_is_terminal(FILE* stream)
{
    const char* term = getenv("TERM");
    return isatty(fileno(stream)) && !(term && strcmp(term, "dumb") == 0);
}
#endif
