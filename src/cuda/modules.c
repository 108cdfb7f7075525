#include "cuda/modules.h"
#include "base/assert.h"
#include "base/memory.h"
#include "cuda/cuda.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/image.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// One .cu file, and its images that suit the device best.
typedef struct source {
    const sumi_cuda_image* binary; // or NULL
    const sumi_cuda_image* text;   // or NULL
    CUmodule module;               // NULL: not loaded, or left out
    bool waits;                    // `text` is to be compiled when a plan wants it
    bool is_wanted;
} source;

// An image of PTX of at least this size waits until a plan wants it. All smaller ones together take the driver three
// seconds of CPU time (H100).
#define LARGE_IMAGE (256u << 10)

typedef struct kernel {
    const char* name;
    int32_t source_index;
    CUfunction function;   // looked up at the first use
    uint32_t shared_bytes; // the dynamic shared memory that it was prepared for
    uint64_t use_count;
} kernel;

struct sumi_cuda_modules {
    sumi_heap* heap;
    const sumi_cuda_device* device;
    source* sources;
    int32_t source_count, loaded_count; // sources are loaded in order
    kernel* kernels;                    // sorted by name
    int32_t kernel_count;
    int32_t ready_count; // kernels [0, ready_count) were looked up when the modules had been loaded
    bool notes_wanted;
    // While images are compiled: the texts of the wanted sources.
    sumi_cuda_compiler* compiler;
    sumi_cuda_compiled* items;
    int32_t item_count;
};

// ---- Choosing -------------------------------------------------------------------------------------------------------

// 90 is 9.0a, which runs only on 9.0. Other machine code runs on devices of the same major version that are not older:
// that of 8.0 on 8.6 and 8.9, that of 12.0 on 12.1. (Not on Tegra: its driver refuses it, and the PTX is loaded.) PTX
// runs on everything newer.
static bool runs_on(const sumi_cuda_image* image, int32_t capability)
{
    if (image->target == 90) return capability == 90;
    return image->target <= capability && (!image->is_binary || image->target / 10 == capability / 10);
}

static void choose_image(source* chosen, const sumi_cuda_image* image)
{
    const sumi_cuda_image** best = image->is_binary ? &chosen->binary : &chosen->text;
    if (*best == NULL || image->target > (*best)->target) *best = image;
}

static const sumi_cuda_image* any_image(const source* of) { return of->binary != NULL ? of->binary : of->text; }
static bool is_required(const source* of) { return of->text != NULL && of->text->target <= 80; }

static int compare_kernels(const void* a, const void* b)
{
    return strcmp(((const kernel*)a)->name, ((const kernel*)b)->name);
}

void sumi_cuda_machine_code(char* text, size_t capacity)
{
    bool has[256] = {false};
    for (int32_t i = 0; i < sumi_cuda_image_count; i++) {
        const int32_t target = sumi_cuda_images[i].target;
        if (sumi_cuda_images[i].is_binary && target < (int32_t)(sizeof has)) has[target] = true;
    }
    size_t used = 0;
    text[0] = 0;
    for (int32_t target = 0; target < (int32_t)sizeof has && used < capacity; target++) {
        if (has[target])
            used += (size_t)snprintf(text + used, capacity - used, "%s%d.%d%s", used > 0 ? " " : "", (int)target / 10,
                                     (int)target % 10, target == 90 ? "a" : "");
    }
}

sumi_result sumi_cuda_modules_create(sumi_heap* heap, const sumi_cuda_device* device, const sumi_cuda_image* images,
                                     int32_t image_count, sumi_error* error, sumi_cuda_modules** out_modules)
{
    SUMI_ASSERT(image_count >= 0 && (image_count == 0 || images != NULL));
    *out_modules = NULL;
    sumi_cuda_modules* modules = sumi_alloc_zero(heap, sizeof *modules);
    if (modules == NULL) return sumi_out_of_memory(error, sizeof *modules, "the table of GPU kernels");
    modules->heap = heap;
    modules->device = device;
    modules->sources = sumi_alloc_zero(heap, ((size_t)image_count + 1) * sizeof *modules->sources);
    if (modules->sources == NULL) {
        sumi_cuda_modules_destroy(modules);
        return sumi_out_of_memory(error, ((size_t)image_count + 1) * sizeof(source), "the table of GPU kernels");
    }
    int32_t kernel_count = 0;
    for (int32_t i = 0; i < image_count; i++) {
        if (!runs_on(&images[i], device->capability)) continue;
        source* last = modules->source_count > 0 ? &modules->sources[modules->source_count - 1] : NULL;
        if (last == NULL || strcmp(any_image(last)->source, images[i].source) != 0) {
            last = &modules->sources[modules->source_count++];
            kernel_count += images[i].kernel_count;
        }
        choose_image(last, &images[i]);
    }
    modules->kernels = sumi_alloc_zero(heap, ((size_t)kernel_count + 1) * sizeof *modules->kernels);
    if (modules->kernels == NULL) {
        sumi_cuda_modules_destroy(modules);
        return sumi_out_of_memory(error, ((size_t)kernel_count + 1) * sizeof(kernel), "the table of GPU kernels");
    }
    for (int32_t s = 0; s < modules->source_count; s++) {
        const sumi_cuda_image* image = any_image(&modules->sources[s]);
        for (int32_t k = 0; k < image->kernel_count; k++)
            modules->kernels[modules->kernel_count++] = (kernel){.name = image->kernels[k], .source_index = s};
    }
    sumi_sort(modules->kernels, (size_t)modules->kernel_count, sizeof *modules->kernels, compare_kernels);
    *out_modules = modules;
    return SUMI_OK;
}

// ---- Loading --------------------------------------------------------------------------------------------------------

static sumi_result refusal_of(const sumi_cuda_modules* modules, const sumi_cuda_image* image, CUresult refusal,
                              const char* log, sumi_error* error)
{
    char what[320];
    snprintf(what, sizeof what, "loading the GPU kernels of %s%s%.200s", image->source, log[0] != 0 ? ": " : "", log);
    return sumi_cuda_failure(&modules->device->driver, refusal, what, error);
}

static sumi_result load_source(const sumi_cuda_modules* modules, source* next, sumi_error* error)
{
    const sumi_cuda_image* images[2] = {next->binary, next->text};
    char log[SUMI_CUDA_LOG_BYTES] = "";
    CUresult refusal = CUDA_SUCCESS;
    for (int i = 0; i < 2 && next->module == NULL; i++) {
        if (images[i] == NULL) continue;
        next->waits = i == 1 && sumi_cuda_can_compile_at_once(modules->device);
        if (next->waits) return SUMI_OK;
        SUMI_TRY(sumi_cuda_load_image(modules->heap, modules->device, images[i], &next->module, &refusal, log, error));
    }
    if (next->module != NULL || !is_required(next)) return SUMI_OK;
    return refusal_of(modules, next->text, refusal, log, error);
}

// ---- Compiling ------------------------------------------------------------------------------------------------------

bool sumi_cuda_modules_wait(const sumi_cuda_modules* modules)
{
    bool waits = false;
    for (int32_t s = 0; s < modules->source_count; s++) waits = waits || modules->sources[s].waits;
    return waits;
}

void sumi_cuda_modules_note_wanted(sumi_cuda_modules* modules, bool enabled) { modules->notes_wanted = enabled; }

int32_t sumi_cuda_modules_compiling(const sumi_cuda_modules* modules, int32_t* out_done)
{
    *out_done = modules->compiler != NULL ? sumi_cuda_compile_done(modules->compiler) : 0;
    return modules->compiler != NULL ? modules->item_count : 0;
}

static void free_items(sumi_cuda_modules* modules)
{
    sumi_free(modules->heap, modules->items);
    modules->items = NULL;
    modules->item_count = 0;
}

// Waits for the threads, and takes the modules that they have loaded. Returns the first failure.
static sumi_result take_compiled(sumi_cuda_modules* modules, sumi_error* error)
{
    sumi_cuda_compile_end(modules->compiler);
    modules->compiler = NULL;
    sumi_result first = SUMI_OK;
    for (int32_t i = 0; i < modules->item_count; i++) {
        const sumi_cuda_compiled* item = &modules->items[i];
        source* of = modules->sources;
        while (of->text != item->image) of++;
        of->is_wanted = false;
        of->module = item->module;
        // The driver would refuse a refused image again, so it is left out if possible. Other failures may be
        // temporary.
        of->waits = item->result != SUMI_OK || (item->module == NULL && is_required(of));
        if (first != SUMI_OK || item->module != NULL) continue;
        first = item->result != SUMI_OK ? sumi_fail_with(error, &item->error)
                                        : refusal_of(modules, item->image, item->refusal, item->log, error);
    }
    free_items(modules);
    return first;
}

static int32_t count_wanted(const sumi_cuda_modules* modules)
{
    int32_t count = 0;
    for (int32_t s = 0; s < modules->source_count; s++)
        count += modules->sources[s].waits && modules->sources[s].is_wanted;
    return count;
}

static int compare_images(const void* a, const void* b)
{
    const sumi_cuda_compiled *first = a, *second = b;
    return first->image->bytes > second->image->bytes ? -1 : first->image->bytes < second->image->bytes;
}

static sumi_result begin_compiling(sumi_cuda_modules* modules, sumi_error* error)
{
    const int32_t count = count_wanted(modules);
    modules->items = sumi_alloc_array(modules->heap, (size_t)count, sizeof *modules->items);
    if (modules->items == NULL)
        return sumi_out_of_memory(error, (size_t)count * sizeof *modules->items, "compiling GPU kernels");
    for (int32_t s = 0; s < modules->source_count; s++) {
        const source* of = &modules->sources[s];
        if (of->waits && of->is_wanted) modules->items[modules->item_count++] = (sumi_cuda_compiled){.image = of->text};
    }
    sumi_sort(modules->items, (size_t)count, sizeof *modules->items, compare_images);
    const sumi_result result =
        sumi_cuda_compile_begin(modules->heap, modules->device, modules->items, count, error, &modules->compiler);
    if (result != SUMI_OK) free_items(modules);
    return result;
}

// The small images that wait are compiled with the model. Waits for them.
static sumi_result compile_small(sumi_cuda_modules* modules, sumi_error* error)
{
    for (int32_t s = 0; s < modules->source_count; s++) {
        source* of = &modules->sources[s];
        of->is_wanted = of->waits && of->text->bytes < LARGE_IMAGE;
    }
    if (count_wanted(modules) == 0) return SUMI_OK;
    SUMI_TRY(begin_compiling(modules, error));
    return take_compiled(modules, error);
}

sumi_result sumi_cuda_modules_step(sumi_cuda_modules* modules, bool* out_done, float* out_progress, sumi_error* error)
{
    if (modules->loaded_count < modules->source_count) {
        SUMI_TRY(load_source(modules, &modules->sources[modules->loaded_count], error));
        modules->loaded_count++;
    }
    *out_progress = modules->source_count > 0 ? (float)modules->loaded_count / (float)modules->source_count : 1.0f;
    *out_done = false;
    if (modules->loaded_count < modules->source_count) return SUMI_OK;
    SUMI_TRY(compile_small(modules, error));
    *out_done = true;
    return SUMI_OK;
}

sumi_result sumi_cuda_modules_compile(sumi_cuda_modules* modules, bool* out_done, sumi_error* error)
{
    *out_done = false;
    if (modules->compiler != NULL && sumi_cuda_compile_done(modules->compiler) < modules->item_count) return SUMI_OK;
    if (modules->compiler != NULL) SUMI_TRY(take_compiled(modules, error));
    *out_done = count_wanted(modules) == 0;
    return *out_done ? SUMI_OK : begin_compiling(modules, error);
}

void sumi_cuda_modules_destroy(sumi_cuda_modules* modules)
{
    if (modules == NULL) return;
    const sumi_cuda_driver* driver = &modules->device->driver;
    sumi_error ignored = {0};
    if (modules->compiler != NULL) (void)take_compiled(modules, &ignored);
    for (int32_t s = 0; s < modules->loaded_count; s++) {
        if (modules->sources[s].module != NULL) driver->cuModuleUnload(modules->sources[s].module);
    }
    sumi_free(modules->heap, modules->kernels);
    sumi_free(modules->heap, modules->sources);
    sumi_free(modules->heap, modules);
}

// ---- Finding --------------------------------------------------------------------------------------------------------

static kernel* find_kernel(const sumi_cuda_modules* modules, const char* name)
{
    kernel key = {.name = name};
    return bsearch(&key, modules->kernels, (size_t)modules->kernel_count, sizeof key, compare_kernels);
}

bool sumi_cuda_has_kernel(const sumi_cuda_modules* modules, const char* name)
{
    const kernel* entry = find_kernel(modules, name);
    if (entry == NULL) return false;
    const source* of = &modules->sources[entry->source_index];
    return of->module != NULL || of->waits;
}

// A driver that loads lazily loads a kernel's code when it is first asked for its properties, and may wait meanwhile
// for work that runs in the context (on an H100 it did not). A capture would forbid this if the thread's mode were not
// relaxed.
static sumi_result make_ready(const sumi_cuda_modules* modules, kernel* entry, uint32_t shared_bytes, sumi_error* error)
{
    const sumi_cuda_driver* driver = &modules->device->driver;
    CUresult result = CUDA_SUCCESS;
    if (entry->function == NULL) {
        CUfunction function = NULL;
        int registers = 0;
        result = driver->cuModuleGetFunction(&function, modules->sources[entry->source_index].module, entry->name);
        if (result == CUDA_SUCCESS)
            result = driver->cuFuncGetAttribute(&registers, CU_FUNC_ATTRIBUTE_NUM_REGS, function);
        if (result == CUDA_SUCCESS) entry->function = function;
    }
    if (result == CUDA_SUCCESS && shared_bytes > entry->shared_bytes) {
        result = driver->cuFuncSetAttribute(entry->function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                            (int)shared_bytes);
        if (result == CUDA_SUCCESS) entry->shared_bytes = shared_bytes;
    }
    return result == CUDA_SUCCESS ? SUMI_OK : sumi_cuda_failure(driver, result, entry->name, error);
}

void sumi_cuda_modules_ready_step(sumi_cuda_modules* modules, int32_t count, bool* out_done)
{
    SUMI_ASSERT(modules->loaded_count == modules->source_count && count >= 1);
    for (int32_t i = 0; i < count && modules->ready_count < modules->kernel_count; i++) {
        kernel* entry = &modules->kernels[modules->ready_count++];
        sumi_error ignored = {0};
        if (entry->function == NULL && modules->sources[entry->source_index].module != NULL)
            (void)make_ready(modules, entry, 0, &ignored);
    }
    *out_done = modules->ready_count == modules->kernel_count;
}

sumi_result sumi_cuda_kernel(sumi_cuda_modules* modules, const char* name, uint32_t shared_bytes,
                             CUfunction* out_function, sumi_error* error)
{
    *out_function = NULL;
    kernel* entry = find_kernel(modules, name);
    source* of = entry != NULL ? &modules->sources[entry->source_index] : NULL;
    if (of != NULL && of->waits && modules->notes_wanted) {
        of->is_wanted = true;
        return SUMI_OK;
    }
    if (of == NULL || of->module == NULL) {
        return sumi_fail(error, SUMI_INTERNAL,
                         "no loaded image has a kernel %s for compute capability %d.%d; please report this message",
                         name, (int)(modules->device->capability / 10), (int)(modules->device->capability % 10));
    }
    if (shared_bytes > (uint32_t)modules->device->shared_per_block) {
        return sumi_fail(
            error, SUMI_INTERNAL,
            "%s needs %u bytes of shared memory, a block of this device has %d; please report this message", name,
            shared_bytes, (int)modules->device->shared_per_block);
    }
    if (entry->function == NULL || shared_bytes > entry->shared_bytes)
        SUMI_TRY(make_ready(modules, entry, shared_bytes, error));
    entry->use_count++;
    *out_function = entry->function;
    return SUMI_OK;
}

void sumi_cuda_list_kernels(const sumi_cuda_modules* modules, sumi_kernel_callback* seen, void* user_data)
{
    for (int32_t k = 0; k < modules->kernel_count; k++)
        seen(modules->kernels[k].name, modules->kernels[k].use_count, user_data);
}
