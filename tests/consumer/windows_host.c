// A host in the manner of Visual Studio: compiled for its ABI, linked with sumi.dll by an import library in its format,
// and with nothing of MinGW's. It calls one function of each kind: structs come back by value, handles go in by value,
// and sumi calls its allocator, its log and its completion. It has no C library: what it needs of one is below.
// It is linked with /subsystem:windows.
// usage: windows_host MODEL FILE      writes the size and a sum of a picture to FILE, as host.c prints them
#include <sumi.h>

// ---- The system -----------------------------------------------------------------------------------------------------

typedef void* handle;
#define IMPORT __declspec(dllimport)
IMPORT char* __stdcall GetCommandLineA(void);
IMPORT handle __stdcall CreateFileA(const char* name, unsigned access, unsigned share, void* security, unsigned how,
                                    unsigned flags, handle like);
IMPORT int __stdcall WriteFile(handle file, const void* data, unsigned bytes, unsigned* written, void* overlapped);
IMPORT int __stdcall CloseHandle(handle object);
IMPORT handle __stdcall GetProcessHeap(void);
IMPORT void* __stdcall HeapAlloc(handle heap, unsigned flags, size_t bytes);
IMPORT int __stdcall HeapFree(handle heap, unsigned flags, void* memory);
IMPORT handle __stdcall GetConsoleWindow(void);
IMPORT unsigned __stdcall GetConsoleProcessList(unsigned* ids, unsigned count);
IMPORT void __stdcall ExitProcess(unsigned code);

// ---- What compilers expect of a C library ---------------------------------------------------------------------------

int _fltused = 1;
void* memcpy(void* to, const void* from, size_t bytes);
void* memset(void* to, int value, size_t bytes);

void* memcpy(void* to, const void* from, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) ((volatile char*)to)[i] = ((const char*)from)[i];
    return to;
}

void* memset(void* to, int value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) ((volatile char*)to)[i] = (char)value;
    return to;
}

// ---- The host -------------------------------------------------------------------------------------------------------

typedef struct host {
    long live, logged, completed;
} host;

static void* allocate(size_t bytes, size_t alignment, void* user_data)
{
    char* block = HeapAlloc(GetProcessHeap(), 0, bytes + alignment + sizeof(void*));
    if (block == 0) return 0;
    const uintptr_t begin = ((uintptr_t)block + sizeof(void*) + alignment - 1) / alignment * alignment;
    ((void**)begin)[-1] = block;
    ((host*)user_data)->live++;
    return (void*)begin;
}

static void release(void* memory, size_t bytes, void* user_data)
{
    (void)bytes;
    ((host*)user_data)->live--;
    HeapFree(GetProcessHeap(), 0, ((void**)memory)[-1]);
}

static void write_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)level, (void)result;
    if (text[0] != 0) ((host*)user_data)->logged++;
}

static void complete(sumi_job job, sumi_job_state state, void* job_user_data, void* user_data)
{
    (void)job;
    if (state == SUMI_JOB_DONE && job_user_data == user_data) ((host*)user_data)->completed++;
}

// Returns the line of a failure, or 0.
static int draw(host* h, const char* model_path, sumi_size* out_size, uint64_t* out_sum)
{
#define NEED(condition)                                                                                                \
    if (!(condition)) return __LINE__
    NEED(sumi_check_version(SUMI_VERSION_NUMBER) == SUMI_OK);
    NEED(sumi_result_text(SUMI_OK)[0] != 0);
    const sumi_allocator allocator = {allocate, release, h};
    const sumi_completion completion = {complete, h};
    sumi_engine_desc desc = sumi_engine_defaults();
    desc.backend = SUMI_BACKEND_CPU;
    desc.log = (sumi_log){write_log, h};
    desc.allocator = &allocator;
    desc.completion = &completion;
    sumi_engine* engine = 0;
    NEED(sumi_engine_create(&desc, &engine) == SUMI_OK && h->live > 0);
    sumi_model* model = 0;
    NEED(sumi_open_model(engine, model_path, &model) == SUMI_OK);
    NEED(sumi_model_get_info(model).family[0] != 0);

    const sumi_image_item item = {.text = "a red house on the grass", .seed = 7};
    sumi_image_desc image_desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    image_desc.width = image_desc.height = 16;
    image_desc.step_count = 1;
    image_desc.items = &item;
    image_desc.item_count = 1;
    image_desc.user_data = h;
    sumi_job job;
    NEED(sumi_submit_images(engine, &image_desc, &job) == SUMI_OK);
    while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE) sumi_engine_update(engine, 1000);
    NEED(sumi_job_wait(engine, job, SUMI_FOREVER) == SUMI_OK);
    NEED(sumi_job_poll(engine, job).progress == 1.0f && h->completed == 1);
    sumi_image image;
    NEED(sumi_fetch_images(engine, job, &image, 1) == SUMI_OK);
    *out_size = (sumi_size){image.width, image.height};
    *out_sum = 14695981039346656037u; // FNV-1a
    for (int32_t y = 0; y < image.height; y++) {
        const unsigned char* row = (const unsigned char*)image.pixels + (size_t)y * (size_t)image.row_bytes;
        for (int32_t i = 0; i < image.width * 4; i++) *out_sum = (*out_sum ^ row[i]) * 1099511628211u;
    }
    sumi_images_release(engine, &image, 1);
    NEED(sumi_submit_images(engine, 0, &job) == SUMI_INVALID_ARGUMENT && h->logged > 0);
    sumi_model_close(model);
    NEED(sumi_engine_get_info(engine).job_count == 0);
    sumi_engine_destroy(engine);
    NEED(h->live == 0);
    unsigned id; // a program of /subsystem:windows has no console, and sumi has made none
    NEED(GetConsoleWindow() == 0 && GetConsoleProcessList(&id, 1) == 0);
    return 0;
}

static char* add_number(char* at, uint64_t value, unsigned base, int digits)
{
    char text[20];
    int count = 0;
    for (; value > 0 || count < digits; value /= base) text[count++] = "0123456789abcdef"[value % base];
    while (count > 0) *at++ = text[--count];
    return at;
}

static char* next_word(char* at, char** out_word)
{
    while (*at == ' ') at++;
    *out_word = at;
    while (*at != 0 && *at != ' ') at++;
    if (*at != 0) *at++ = 0;
    return at;
}

void mainCRTStartup(void);
void mainCRTStartup(void)
{
    char *program, *model, *file_name, line[64], *at = line;
    (void)next_word(next_word(next_word(GetCommandLineA(), &program), &model), &file_name);
    host h = {0};
    sumi_size size = {0};
    uint64_t sum = 0;
    const int failure = draw(&h, model, &size, &sum);
    if (failure != 0) ExitProcess((unsigned)failure);
    at = add_number(at, (uint64_t)size.width, 10, 1);
    memcpy(at, " x ", 3);
    at = add_number(at + 3, (uint64_t)size.height, 10, 1);
    memcpy(at, ", ", 2);
    at = add_number(at + 2, sum, 16, 16);
    *at++ = '\n';
    unsigned written = 0;
    const handle file = CreateFileA(file_name, 0x40000000 /* GENERIC_WRITE */, 0, 0, 2 /* CREATE_ALWAYS */, 0x80, 0);
    if (!WriteFile(file, line, (unsigned)(at - line), &written, 0)) ExitProcess(1);
    CloseHandle(file);
    ExitProcess(0);
}
