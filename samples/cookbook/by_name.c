// A plug-in that opens the shared library by its name. Nothing of sumi is linked: types come from the header, functions
// from the library.
#include "cookbook.h"
#include "system.h"
#include <string.h>

// [excerpt by_name]
typedef struct sumi_functions {
    sumi_result (*check_version)(uint32_t header_version);
    const char* (*result_text)(sumi_result result);
    sumi_engine_desc (*engine_defaults)(void);
    sumi_result (*engine_create)(const sumi_engine_desc* desc, sumi_engine** out_engine);
    void (*engine_destroy)(sumi_engine* engine);
    sumi_result (*open_model)(sumi_engine* engine, const char* path, sumi_model** out_model);
    sumi_result (*generate)(sumi_engine* engine, sumi_model* model, const char* text, uint64_t seed, sumi_image* image);
} sumi_functions;

static bool find_functions(void* library, sumi_functions* f)
{
    const struct {
        const char* name;
        void* into;
    } entries[] = {
        {"sumi_check_version", &f->check_version},
        {"sumi_result_text", &f->result_text},
        {"sumi_engine_defaults", &f->engine_defaults},
        {"sumi_engine_create", &f->engine_create},
        {"sumi_engine_destroy", &f->engine_destroy},
        {"sumi_open_model", &f->open_model},
        {"sumi_generate", &f->generate},
    };
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void* symbol = system_library_find(library, entries[i].name); // dlsym or GetProcAddress
        if (!symbol) return fprintf(stderr, "cookbook: the library has no %s\n", entries[i].name), false;
        memcpy(entries[i].into, &symbol, sizeof symbol);
        // Before anything else is called: structs are passed by value, and may be larger in another version.
        if (i == 0 && f->check_version(SUMI_VERSION_NUMBER) != SUMI_OK)
            return fprintf(stderr, "cookbook: the library is of another version\n"), false;
    }
    return true;
}
// [end]

static sumi_result draw(const recipe_host* host, const sumi_functions* f)
{
    sumi_engine_desc desc = f->engine_defaults();
    desc.cpu_thread_count = 0;
    desc.log.write = recipe_log;
    sumi_engine* engine;
    sumi_model* model;
    sumi_image image;
    sumi_result result = f->engine_create(&desc, &engine);
    if (result == SUMI_OK) result = f->open_model(engine, host->model_path, &model);
    if (result == SUMI_OK) result = f->generate(engine, model, host->prompt, 7, &image);
    if (result == SUMI_OK) result = recipe_write(host, &image);
    f->engine_destroy(engine);
    return result;
}

sumi_result recipe_by_name(const recipe_host* host)
{
    void* library = system_library_open(host->files[0]);
    if (!library) return fprintf(stderr, "cookbook: %s cannot be opened\n", host->files[0]), SUMI_FILE_NOT_FOUND;
    sumi_functions f;
    const sumi_result result = find_functions(library, &f) ? draw(host, &f) : SUMI_VERSION_MISMATCH;
    system_library_close(library);
    return result;
}
