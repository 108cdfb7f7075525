// The driver's entries.
#include "cards.h"
#include "fake_state.h"
#include "fake_system.h"
#include <cudaTypedefs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---- Entering -------------------------------------------------------------------------------------------------------

#define MAX_CONTEXTS 32
static _Thread_local fake_context* s_contexts[MAX_CONTEXTS];
static _Thread_local int s_context_count, s_context_base; // base: of fake_make_current
static _Thread_local CUstreamCaptureMode s_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
static _Thread_local int s_captures; // begun by this thread and not ended
static _Thread_local CUstreamCaptureMode s_capture_mode;

enum {
    ANYWHERE = 0,
    IN_CONTEXT = 1,
    // "potentially unsafe", for sure: a capture of this thread's forbids it, unless the thread's mode is relaxed
    FORBIDDEN_IN_CAPTURE = 2,
    NEVER_IN_OURS = 4, // allocates, loads or waits: not while we capture, whatever the mode
    WORKS_WHEN_LOST = 8,
    HARMLESS = 16 // whoever captures
};

static CUresult leave(CUresult result)
{
    fake_log_result(result);
    fake_unlock();
    return result;
}

static CUresult enter(const char* name, unsigned rules)
{
    fake_lock();
    fake_entry* entry = NULL;
    for (int i = 0; i < fake_entry_count && entry == NULL; i++) {
        if (strcmp(fake_entries[i].name, name) == 0) entry = &fake_entries[i];
    }
    if (entry == NULL) abort(); // an entry that is not in the table
    entry->calls++;
    fake_log_call(name);
    if (fake.call_ns > 0) fake_pass_ns((uint64_t)fake.call_ns);
    if (fake.fail_name != NULL && fake.fail_nth > 0 && strcmp(fake.fail_name, name) == 0 && --fake.fail_nth == 0) {
        fake.has_failed = true;
        return (CUresult)fake.fail_code;
    }
    if ((rules & IN_CONTEXT) && (s_context_count == 0 || s_contexts[s_context_count - 1] == NULL)) {
        fake_violation("%s without a current context", name);
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (fake.is_lost && (rules & IN_CONTEXT) && !(rules & WORKS_WHEN_LOST)) return CUDA_ERROR_ILLEGAL_ADDRESS;
    if ((rules & NEVER_IN_OURS) && s_captures > 0) fake_violation("%s while this thread captures", name);
    const bool is_ours = (rules & FORBIDDEN_IN_CAPTURE) && s_captures > 0
                      && s_capture_mode != CU_STREAM_CAPTURE_MODE_RELAXED && s_mode != CU_STREAM_CAPTURE_MODE_RELAXED;
    const bool is_hosts = !(rules & HARMLESS) && fake.host_captures > 0 && s_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (!(rules & HARMLESS) && s_mode != CU_STREAM_CAPTURE_MODE_RELAXED)
        fake_violation("%s while the thread's capture mode is not relaxed", name);
    if (!is_ours && !is_hosts) return CUDA_SUCCESS;
    for (fake_object* object = fake.alive; object != NULL && is_hosts; object = object->next) {
        if (object->kind == FAKE_STREAM && ((fake_stream*)object)->is_hosts_capture)
            ((fake_stream*)object)->is_spoilt = true;
    }
    fake_violation("%s while %s captures", name, is_ours ? "this thread" : "the host");
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult fake_enter_library(const char* name) { return enter(name, IN_CONTEXT | WORKS_WHEN_LOST); }

#define ENTER(name, rules)                                                                                             \
    do {                                                                                                               \
        CUresult refused_ = enter(name, rules);                                                                        \
        if (refused_ != CUDA_SUCCESS) return leave(refused_);                                                          \
    } while (0)
#define NEED(condition, ...)                                                                                           \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fake_violation(__VA_ARGS__);                                                                               \
            return leave(CUDA_ERROR_INVALID_VALUE);                                                                    \
        }                                                                                                              \
    } while (0)
#define NEED_ALIVE(handle, kind, name)                                                                                 \
    do {                                                                                                               \
        fake_log_handle((handle), (kind));                                                                             \
        NEED(fake_is_alive((handle), (kind)), "%s: a handle that is dead or of another kind", name);                   \
    } while (0)
#define NEED_STREAM(stream, name)                                                                                      \
    do {                                                                                                               \
        NEED((stream) != NULL, "%s: the NULL stream", name);                                                           \
        NEED_ALIVE(stream, FAKE_STREAM, name);                                                                         \
    } while (0)

static fake_context* current(void) { return s_contexts[s_context_count - 1]; }

// ---- Driver and devices ---------------------------------------------------------------------------------------------

CUresult CUDAAPI cuInit(unsigned flags)
{
    ENTER("cuInit", HARMLESS);
    NEED(flags == 0, "cuInit: flags");
    return leave(fake.device_count > 0 ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE);
}

CUresult CUDAAPI cuDriverGetVersion(int* version)
{
    ENTER("cuDriverGetVersion", HARMLESS);
    *version = fake.driver_version;
    return leave(CUDA_SUCCESS);
}

static const struct {
    int code;
    const char *name, *text;
} s_errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the provided PTX was compiled with an unsupported toolchain."},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
};

CUresult CUDAAPI cuGetErrorName(CUresult error, const char** text)
{
    *text = NULL;
    for (size_t i = 0; i < sizeof s_errors / sizeof s_errors[0]; i++) {
        if (s_errors[i].code == (int)error) {
            *text = s_errors[i].name;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char** text)
{
    *text = NULL;
    for (size_t i = 0; i < sizeof s_errors / sizeof s_errors[0]; i++) {
        if (s_errors[i].code == (int)error) {
            *text = s_errors[i].text;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuDeviceGetCount(int* count)
{
    ENTER("cuDeviceGetCount", ANYWHERE);
    *count = fake.device_count;
    return leave(CUDA_SUCCESS);
}

static bool is_device(CUdevice device) { return device >= 0 && device < fake.device_count; }

CUresult CUDAAPI cuDeviceGet(CUdevice* device, int ordinal)
{
    ENTER("cuDeviceGet", ANYWHERE);
    if (!is_device(ordinal)) return leave(CUDA_ERROR_INVALID_DEVICE); // a host may ask for any
    *device = ordinal;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetName(char* name, int length, CUdevice device)
{
    ENTER("cuDeviceGetName", ANYWHERE);
    NEED(is_device(device), "cuDeviceGetName: no such device");
    snprintf(name, (size_t)length, "Fake %d", device);
    return leave(CUDA_SUCCESS);
}

static unsigned max_shared(void) { return (unsigned)(card_shared_kib(fake.capability) - 1) << 10; }

CUresult CUDAAPI cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device)
{
    ENTER("cuDeviceGetAttribute", ANYWHERE);
    fake_log_add(" %d of %d", (int)attribute, (int)device);
    NEED(is_device(device), "cuDeviceGetAttribute: no such device");
    const bool is_hopper = fake.capability == 90;
    switch ((int)attribute) {
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *value = fake.capability / 10; break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *value = fake.capability % 10; break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
        *value = fake.multiprocessors > 0 ? fake.multiprocessors : is_hopper ? 132 : 84;
        break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: *value = 49152; break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = (int)max_shared(); break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
        *value = card_shared_kib(fake.capability) << 10;
        break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE: *value = is_hopper ? 52428800 : 6291456; break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *value = 1980000; break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE: *value = 2619000; break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH: *value = is_hopper ? 5120 : 384; break;
    case CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED: *value = fake.locks_read_only; break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *value = 32; break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *value = 1024; break;
    case CU_DEVICE_ATTRIBUTE_TIMELINE_SEMAPHORE_INTEROP_SUPPORTED: *value = fake.driver_version >= 11020; break;
    default: *value = 0; break;
    }
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device)
{
    ENTER("cuDeviceGetUuid", ANYWHERE);
    NEED(is_device(device), "cuDeviceGetUuid: no such device");
    for (int i = 0; i < 16; i++) uuid->bytes[i] = (char)(16 * device + i);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDeviceGetLuid(char* luid, unsigned* node_mask, CUdevice device)
{
    ENTER("cuDeviceGetLuid", ANYWHERE);
    NEED(is_device(device), "cuDeviceGetLuid: no such device");
    for (int i = 0; i < 8; i++) luid[i] = (char)(8 * device + i + 1);
    *node_mask = 1;
    return leave(CUDA_SUCCESS);
}

#define DEVICE_BYTES (fake.device_bytes > 0 ? fake.device_bytes : (uint64_t)1 << 30)

CUresult CUDAAPI cuDeviceTotalMem(size_t* bytes, CUdevice device)
{
    ENTER("cuDeviceTotalMem", ANYWHERE);
    NEED(is_device(device), "cuDeviceTotalMem: no such device");
    *bytes = DEVICE_BYTES;
    return leave(CUDA_SUCCESS);
}

// ---- Contexts -------------------------------------------------------------------------------------------------------

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device)
{
    ENTER("cuDevicePrimaryCtxRetain", ANYWHERE);
    fake_log_add(" %d", (int)device);
    NEED(is_device(device), "cuDevicePrimaryCtxRetain: no such device");
    if (fake.primary[device] == NULL) {
        fake.primary[device] = fake_make(sizeof(fake_context), FAKE_CONTEXT);
        fake.primary[device]->device = device;
        fake.primary[device]->is_primary = true;
    }
    fake.primary[device]->retained++;
    *context = (CUcontext)fake.primary[device];
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device)
{
    ENTER("cuDevicePrimaryCtxRelease", ANYWHERE);
    NEED(device >= 0 && device < 4 && fake.primary[device] != NULL, "cuDevicePrimaryCtxRelease: it is not retained");
    if (--fake.primary[device]->retained == 0) {
        fake_unmake(fake.primary[device]);
        fake.primary[device] = NULL;
    }
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext context)
{
    ENTER("cuCtxPushCurrent", ANYWHERE);
    NEED_ALIVE(context, FAKE_CONTEXT, "cuCtxPushCurrent");
    NEED(s_context_count < MAX_CONTEXTS, "cuCtxPushCurrent: pushed and never popped");
    s_contexts[s_context_count++] = (fake_context*)context;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext* context)
{
    ENTER("cuCtxPopCurrent", ANYWHERE);
    NEED(s_context_count > s_context_base, "cuCtxPopCurrent: nothing of ours is pushed");
    *context = (CUcontext)s_contexts[--s_context_count];
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice* device)
{
    ENTER("cuCtxGetDevice", IN_CONTEXT);
    *device = current()->device;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int* least, int* greatest)
{
    ENTER("cuCtxGetStreamPriorityRange", IN_CONTEXT);
    *least = 0;
    *greatest = -5;
    return leave(CUDA_SUCCESS);
}

// ---- Kernels --------------------------------------------------------------------------------------------------------

static void say_jit_error(unsigned count, const CUjit_option* options, void** values, const char* text)
{
    char* log = NULL;
    size_t bytes = 0;
    for (unsigned i = 0; i < count; i++) {
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER) log = values[i];
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) bytes = (size_t)(uintptr_t)values[i];
    }
    if (log != NULL && bytes > 0) snprintf(log, bytes, "%s", text);
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned count, CUjit_option* options,
                                    void** values)
{
    ENTER("cuModuleLoadDataEx", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    const image_target target = read_image_target(image);
    fake_log_add(" %s %d%s", target.is_binary ? "machine code" : "PTX", target.capability, target.is_exact ? "a" : "");
    if ((target.is_binary && !fake.takes_binaries) || !image_runs_on(target, fake.capability))
        return leave(CUDA_ERROR_NO_BINARY_FOR_GPU);
    fake_module* module = fake_make(sizeof *module, FAKE_MODULE);
    if (!target.is_binary && !fake_read_ptx(module, image, fake.newest_ptx)) {
        fake_unmake(module);
        const bool is_text = strstr(image, ".version ") != NULL;
        say_jit_error(count, options, values,
                      is_text ? "ptxas application ptx input, line 9;\nUnsupported .version" : "ptxas: no PTX");
        return leave(is_text ? CUDA_ERROR_UNSUPPORTED_PTX_VERSION : CUDA_ERROR_INVALID_IMAGE);
    }
    if (target.capability >= 0 && target.capability < FAKE_MOST_TARGETS)
        fake.images[target.is_binary][target.capability]++;
    *out = (CUmodule)module;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuLinkCreate(unsigned count, CUjit_option* options, void** values, CUlinkState* out)
{
    (void)count, (void)options, (void)values;
    ENTER("cuLinkCreate", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    *out = (CUlinkState)fake_make(sizeof(fake_link), FAKE_LINK);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuLinkAddData(CUlinkState handle, CUjitInputType type, void* data, size_t bytes, const char* name,
                               unsigned count, CUjit_option* options, void** values)
{
    (void)name, (void)count, (void)options, (void)values;
    ENTER("cuLinkAddData", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    NEED_ALIVE(handle, FAKE_LINK, "cuLinkAddData");
    NEED(type == CU_JIT_INPUT_PTX && bytes > 0 && ((const char*)data)[bytes - 1] == 0,
         "cuLinkAddData: no PTX that ends with a zero");
    fake_link* link = (fake_link*)handle;
    free(link->data);
    link->data = malloc(bytes);
    if (link->data == NULL) abort();
    memcpy(link->data, data, bytes);
    link->bytes = bytes;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuLinkComplete(CUlinkState handle, void** out, size_t* out_bytes)
{
    ENTER("cuLinkComplete", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    NEED_ALIVE(handle, FAKE_LINK, "cuLinkComplete");
    while (fake.links_allowed == 0) { // as long as a real one compiles, other threads may call
        fake_unlock();
        fake_system_sleep_ns(50000);
        fake_lock();
    }
    if (fake.links_allowed > 0) fake.links_allowed--;
    *out = ((fake_link*)handle)->data;
    *out_bytes = ((fake_link*)handle)->bytes;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuLinkDestroy(CUlinkState handle)
{
    ENTER("cuLinkDestroy", IN_CONTEXT | WORKS_WHEN_LOST);
    NEED_ALIVE(handle, FAKE_LINK, "cuLinkDestroy");
    free(((fake_link*)handle)->data);
    fake_unmake(handle);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuModuleUnload(CUmodule handle)
{
    ENTER("cuModuleUnload", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS | WORKS_WHEN_LOST);
    NEED_ALIVE(handle, FAKE_MODULE, "cuModuleUnload");
    fake_module* module = (fake_module*)handle;
    fake_drain_all();
    for (int i = 0; i < module->function_count; i++) free(module->functions[i]);
    free(module->functions);
    fake_unmake(module);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction* out, CUmodule handle, const char* name)
{
    ENTER("cuModuleGetFunction", IN_CONTEXT | FORBIDDEN_IN_CAPTURE);
    fake_log_add(" %s", name);
    NEED_ALIVE(handle, FAKE_MODULE, "cuModuleGetFunction");
    fake_module* module = (fake_module*)handle;
    for (int i = 0; i < module->function_count; i++) {
        if (strcmp(module->functions[i]->name, name) == 0) {
            *out = (CUfunction)module->functions[i];
            return leave(CUDA_SUCCESS);
        }
    }
    if (module->has_text) return leave(CUDA_ERROR_NOT_FOUND);
    if (module->function_count == module->capacity) { // machine code: any name will do
        module->capacity = module->capacity == 0 ? 64 : 2 * module->capacity;
        module->functions = realloc(module->functions, (size_t)module->capacity * sizeof(fake_function*));
        if (module->functions == NULL) abort();
    }
    fake_function* function = calloc(1, sizeof *function);
    if (function == NULL) abort();
    snprintf(function->name, sizeof function->name, "%s", name);
    function->module = module;
    function->parameter_count = -1;
    module->functions[module->function_count++] = function;
    *out = (CUfunction)function;
    return leave(CUDA_SUCCESS);
}

static fake_function* find_function(CUfunction handle)
{
    for (fake_object* object = fake.alive; object != NULL; object = object->next) {
        if (object->kind != FAKE_MODULE) continue;
        fake_module* module = (fake_module*)object;
        for (int i = 0; i < module->function_count; i++) {
            if ((CUfunction)module->functions[i] == handle) return module->functions[i];
        }
    }
    return NULL;
}

CUresult CUDAAPI cuFuncSetAttribute(CUfunction handle, CUfunction_attribute attribute, int value)
{
    ENTER("cuFuncSetAttribute", IN_CONTEXT);
    fake_function* function = find_function(handle);
    NEED(function != NULL, "cuFuncSetAttribute: no such function");
    fake_log_add(" %s %d %d", function->name, (int)attribute, value);
    if (attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES) {
        if (value < 0 || (unsigned)value + function->static_shared > max_shared())
            return leave(CUDA_ERROR_INVALID_VALUE);
        function->opted_in = (unsigned)value;
    }
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction handle)
{
    ENTER("cuFuncGetAttribute", IN_CONTEXT);
    fake_function* function = find_function(handle);
    NEED(function != NULL, "cuFuncGetAttribute: no such function");
    switch ((int)attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = function->max_threads > 0 ? (int)function->max_threads : 1024;
        break;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES: *value = (int)function->static_shared; break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = 64; break;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: *value = (int)function->opted_in; break;
    default: *value = 0; break;
    }
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle, int threads,
                                                             size_t shared_bytes)
{
    ENTER("cuOccupancyMaxActiveBlocksPerMultiprocessor", IN_CONTEXT);
    NEED(find_function(handle) != NULL && threads > 0,
         "cuOccupancyMaxActiveBlocksPerMultiprocessor: no such function, or no threads");
    *blocks = shared_bytes > 100000 ? 1 : 2;
    return leave(CUDA_SUCCESS);
}

static CUresult launch(CUfunction handle, const unsigned grid[3], const unsigned block[3], unsigned shared_bytes,
                       CUstream stream, void** parameters, const char* entry)
{
    NEED_STREAM(stream, entry);
    fake_function* function = find_function(handle);
    NEED(function != NULL, "%s: no such function", entry);
    const char* name = function->name;
    const uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    NEED(threads >= 1 && threads <= 1024 && block[2] <= 64, "%s: a block of %u x %u x %u", name, block[0], block[1],
         block[2]);
    NEED(grid[0] >= 1 && grid[1] >= 1 && grid[2] >= 1 && grid[0] <= 2147483647u && grid[1] <= 65535 && grid[2] <= 65535,
         "%s: a grid of %u x %u x %u", name, grid[0], grid[1], grid[2]);
    NEED(function->max_threads == 0 || threads <= function->max_threads, "%s: %u threads, it is compiled for %u", name,
         (unsigned)threads, function->max_threads);
    for (int i = 0; i < 3 && function->module->has_text; i++)
        NEED(grid[i] % function->cluster[i] == 0, "%s: a grid of %u x %u x %u, not whole clusters", name, grid[0],
             grid[1], grid[2]);
    fake_log_add(" shared %u", shared_bytes);
    const unsigned allowed = function->opted_in > 0 ? function->opted_in : 49152 - function->static_shared;
    NEED(shared_bytes <= allowed, "%s: %u bytes of dynamic shared memory, %u are allowed", name, shared_bytes, allowed);
    NEED(parameters != NULL || function->parameter_count == 0, "%s: no parameters", name);

    fake_node* node = fake_new_node(FAKE_KERNEL);
    memcpy(node->name, name, sizeof node->name);
    memcpy(node->grid, grid, sizeof node->grid);
    memcpy(node->block, block, sizeof node->block);
    for (int i = 0; i < function->parameter_count; i++)
        node->data_bytes += ((size_t)function->parameter_bytes[i] + 7) / 8 * 8;
    node->data = calloc(1, node->data_bytes + 1);
    if (node->data == NULL) abort();
    size_t at = 0;
    for (int i = 0; i < function->parameter_count; i++) { // as the driver does: at once, and all of it
        memcpy(node->data + at, parameters[i], (size_t)function->parameter_bytes[i]);
        at += ((size_t)function->parameter_bytes[i] + 7) / 8 * 8;
    }
    fake_submit((fake_stream*)stream, node);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                CUstream stream, void** parameters, void** extra)
{
    ENTER("cuLaunchKernel", IN_CONTEXT);
    NEED(extra == NULL, "cuLaunchKernel: extra");
    return launch(function, (unsigned[3]){grid_x, grid_y, grid_z}, (unsigned[3]){block_x, block_y, block_z},
                  shared_bytes, stream, parameters, "cuLaunchKernel");
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra)
{
    ENTER("cuLaunchKernelEx", IN_CONTEXT);
    NEED(extra == NULL, "cuLaunchKernelEx: extra");
    return launch(function, (unsigned[3]){config->gridDimX, config->gridDimY, config->gridDimZ},
                  (unsigned[3]){config->blockDimX, config->blockDimY, config->blockDimZ}, config->sharedMemBytes,
                  config->hStream, parameters, "cuLaunchKernelEx");
}

CUresult CUDAAPI cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* address,
                                        const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
                                        const cuuint32_t* element_strides, CUtensorMapInterleave interleave,
                                        CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion,
                                        CUtensorMapFloatOOBfill fill)
{
    (void)promotion, (void)fill, (void)interleave;
    ENTER("cuTensorMapEncodeTiled", ANYWHERE);
    const uint64_t element_bytes = type == CU_TENSOR_MAP_DATA_TYPE_UINT8                                            ? 1
                                 : type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 || type == CU_TENSOR_MAP_DATA_TYPE_INT32 ? 4
                                                                                                                    : 2;
    fake_log_address(address);
    for (cuuint32_t i = 0; i < rank && i < 5; i++)
        fake_log_add(" %llux%u", (unsigned long long)dims[i], (unsigned)box[i]);
    NEED((uintptr_t)map % 64 == 0, "cuTensorMapEncodeTiled: the map is not aligned to 64 bytes");
    NEED(rank >= 1 && rank <= 5, "cuTensorMapEncodeTiled: rank %u", rank);
    NEED((uintptr_t)address % 16 == 0, "cuTensorMapEncodeTiled: the address is not aligned to 16 bytes");
    uint64_t last = 0;
    for (cuuint32_t i = 0; i < rank; i++) {
        NEED(dims[i] >= 1 && dims[i] <= ((uint64_t)1 << 32), "cuTensorMapEncodeTiled: dimension %u has %llu elements",
             i, (unsigned long long)dims[i]);
        NEED(box[i] >= 1 && box[i] <= 256, "cuTensorMapEncodeTiled: box %u has %u elements", i, box[i]);
        NEED(element_strides[i] >= 1 && element_strides[i] <= 8, "cuTensorMapEncodeTiled: element stride %u",
             element_strides[i]);
        if (i + 1 < rank)
            NEED(strides[i] % 16 == 0 && strides[i] >= 1 && strides[i] < ((uint64_t)1 << 40),
                 "cuTensorMapEncodeTiled: a stride of %llu bytes", (unsigned long long)strides[i]);
        last += (dims[i] - 1) * (i == 0 ? element_bytes : strides[i - 1]);
    }
    const uint64_t span = swizzle == CU_TENSOR_MAP_SWIZZLE_32B  ? 32
                        : swizzle == CU_TENSOR_MAP_SWIZZLE_64B  ? 64
                        : swizzle == CU_TENSOR_MAP_SWIZZLE_128B ? 128
                                                                : ~(uint64_t)0;
    NEED(box[0] * element_bytes <= span && box[0] * element_bytes % 16 == 0,
         "cuTensorMapEncodeTiled: the box is %u elements wide", box[0]);
    NEED(fake_find_block(address, last + element_bytes) != NULL,
         "cuTensorMapEncodeTiled: %llu bytes from %p: not all of it is live memory",
         (unsigned long long)(last + element_bytes), address);
    memset(map, 0, sizeof *map);
    memcpy(map, &address, sizeof address); // so that a stale one is seen at the launch
    return leave(CUDA_SUCCESS);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

// What pinning, or unpinning, so much takes.
static void take_time(size_t bytes)
{
    const uint64_t us = (uint64_t)fake.pin_us * bytes >> 20;
    fake_pass_ns(us * 1000);
    fake.pinning_us += us;
}

// What blocks may take.
static uint64_t byte_limit(void)
{
    const uint64_t limit = fake.byte_limit > 0 ? fake.byte_limit : DEVICE_BYTES;
    const uint64_t kept = (uint64_t)fake.alive_count[FAKE_CONTEXT] * fake.context_keeps
                        + (uint64_t)fake.alive_count[FAKE_MODULE] * fake.module_keeps
                        + (uint64_t)fake.alive_count[FAKE_EXEC] * fake.graph_keeps;
    return limit > kept ? limit - kept : 0;
}

static CUresult allocate(void** out, size_t bytes, fake_kind kind)
{
    *out = NULL;
    NEED(bytes > 0, "an allocation of nothing");
    fake.allocation_count++;
    if (fake.fail_allocation > 0 && --fake.fail_allocation == 0) {
        fake.has_failed_allocation = true;
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    const uint64_t limit = byte_limit();
    if (kind == FAKE_DEVICE_BLOCK && (bytes > limit || fake.device_block_bytes > limit - bytes))
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    unsigned char* memory = fake_system_allocate(kind == FAKE_DEVICE_BLOCK ? 512 : 4096, bytes, fake.fill_byte);
    if (memory == NULL) return leave(CUDA_ERROR_OUT_OF_MEMORY);
    fake_make_block(kind, memory, bytes);
    fake.block_bytes += bytes;
    if (kind == FAKE_DEVICE_BLOCK) fake.device_block_bytes += bytes;
    else take_time(bytes);
    *out = memory;
    return leave(CUDA_SUCCESS);
}

static CUresult release(void* memory, fake_kind kind, const char* entry)
{
    fake_block* block = fake_find_block(memory, 1);
    NEED(block != NULL && block->memory == memory && block->object.kind == kind && !block->is_registered,
         "%s: there is no such block", entry);
    fake_drain_all(); // a free waits for the device
    if (kind != FAKE_DEVICE_BLOCK) take_time(block->bytes);
    fake_free_block(block);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr* address, size_t bytes)
{
    ENTER("cuMemAlloc", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    void* memory;
    CUresult result = allocate(&memory, bytes, FAKE_DEVICE_BLOCK);
    *address = (CUdeviceptr)(uintptr_t)memory;
    return result;
}

CUresult CUDAAPI cuMemFree(CUdeviceptr address)
{
    ENTER("cuMemFree", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS | WORKS_WHEN_LOST);
    fake_block* mapped = fake_find_block((void*)(uintptr_t)address, 1);
    if (mapped != NULL && mapped->object.kind == FAKE_MAPPED_BLOCK && mapped->memory == (void*)(uintptr_t)address) {
        fake_unmake(mapped);
        return leave(CUDA_SUCCESS);
    }
    return release((void*)(uintptr_t)address, FAKE_DEVICE_BLOCK, "cuMemFree");
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream stream_handle)
{
    ENTER("cuMemFreeAsync", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    NEED_STREAM(stream_handle, "cuMemFreeAsync");
    void* memory = (void*)(uintptr_t)address;
    const fake_block* block = fake_find_block(memory, 1);
    NEED(block != NULL && block->memory == memory && block->object.kind == FAKE_DEVICE_BLOCK,
         "cuMemFreeAsync: there is no such block");
    fake_node* node = fake_new_node(FAKE_FREE);
    node->to = memory;
    fake_submit((fake_stream*)stream_handle, node);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemHostAlloc(void** memory, size_t bytes, unsigned flags)
{
    (void)flags;
    ENTER("cuMemHostAlloc", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    return allocate(memory, bytes, FAKE_PINNED_BLOCK);
}

CUresult CUDAAPI cuMemFreeHost(void* memory)
{
    ENTER("cuMemFreeHost", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS | WORKS_WHEN_LOST);
    return release(memory, FAKE_PINNED_BLOCK, "cuMemFreeHost");
}

static bool is_free_page(uintptr_t address) { return fake_find_block((void*)(address / 4096 * 4096), 1) == NULL; }

CUresult CUDAAPI cuMemHostRegister(void* memory, size_t bytes, unsigned flags)
{
    ENTER("cuMemHostRegister", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    const bool is_read_only = (flags & CU_MEMHOSTREGISTER_READ_ONLY) != 0;
    const uintptr_t begin = (uintptr_t)memory;
    NEED(bytes > 0 && is_free_page(begin) && is_free_page(begin + bytes - 1),
         "cuMemHostRegister: a page of it is locked already");
    NEED(!is_read_only || fake.locks_read_only, "cuMemHostRegister: this device does not lock read-only memory");
    fake.allocation_count++;
    if (fake.fail_allocation > 0 && --fake.fail_allocation == 0) {
        fake.has_failed_allocation = true;
        return leave(CUDA_ERROR_OUT_OF_MEMORY);
    }
    fake_make_block(is_read_only ? FAKE_LOCKED_BLOCK : FAKE_PINNED_BLOCK, memory, bytes)->is_registered = true;
    if (!is_read_only) {
        memset(memory, fake.fill_byte, bytes); // as new as any
        fake.block_bytes += bytes;
        take_time(bytes);
    }
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemHostUnregister(void* memory)
{
    ENTER("cuMemHostUnregister", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS | WORKS_WHEN_LOST);
    fake_block* block = fake_find_block(memory, 1);
    NEED(block != NULL && block->memory == memory && block->is_registered,
         "cuMemHostUnregister: there is no such block");
    if (block->object.kind == FAKE_PINNED_BLOCK) {
        fake.block_bytes -= block->bytes;
        take_time(block->bytes);
    }
    fake_unmake(block); // a copy that is still in flight from there finds no live memory
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemGetInfo(size_t* free_bytes, size_t* total_bytes)
{
    ENTER("cuMemGetInfo", IN_CONTEXT);
    *total_bytes = DEVICE_BYTES;
    *free_bytes = byte_limit() > fake.device_block_bytes ? byte_limit() - fake.device_block_bytes : 0;
    return leave(CUDA_SUCCESS);
}

static fake_node* copy_node(void* to, const void* from, size_t bytes)
{
    fake_node* node = fake_new_node(FAKE_COPY);
    node->to = to;
    node->from = (unsigned char*)(uintptr_t)from;
    node->bytes = bytes;
    return node;
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void* from, size_t bytes, CUstream stream)
{
    ENTER("cuMemcpyHtoDAsync", IN_CONTEXT);
    NEED_STREAM(stream, "cuMemcpyHtoDAsync");
    fake_node* node = copy_node((void*)(uintptr_t)to, from, bytes);
    if (fake_find_block(from, bytes) == NULL) { // pageable: the driver copies it before it returns
        fake_violation("a copy of %zu bytes of pageable memory", bytes);
        node->data = malloc(bytes + 1);
        if (node->data == NULL) abort();
        node->data_bytes = bytes;
        memcpy(node->data, from, bytes);
    }
    fake_submit((fake_stream*)stream, node);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void* to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER("cuMemcpyDtoHAsync", IN_CONTEXT);
    NEED_STREAM(stream, "cuMemcpyDtoHAsync");
    fake_node* node = copy_node(to, (const void*)(uintptr_t)from, bytes);
    const bool is_pageable = fake_find_block(to, bytes) == NULL;
    node->value = is_pageable;
    if (is_pageable) fake_violation("a copy of %zu bytes to pageable memory", bytes);
    fake_submit((fake_stream*)stream, node);
    if (is_pageable) fake_drain((fake_stream*)stream); // the driver waits
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)
{
    ENTER("cuMemcpyDtoDAsync", IN_CONTEXT);
    NEED_STREAM(stream, "cuMemcpyDtoDAsync");
    fake_submit((fake_stream*)stream, copy_node((void*)(uintptr_t)to, (const void*)(uintptr_t)from, bytes));
    return leave(CUDA_SUCCESS);
}

static void submit_fill(fake_node_kind kind, CUdeviceptr to, unsigned value, size_t bytes, CUstream stream)
{
    fake_node* node = fake_new_node(kind);
    node->to = (unsigned char*)(uintptr_t)to;
    node->bytes = bytes;
    node->value = value;
    fake_submit((fake_stream*)stream, node);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream)
{
    ENTER("cuMemsetD8Async", IN_CONTEXT);
    NEED_STREAM(stream, "cuMemsetD8Async");
    submit_fill(FAKE_SET8, to, value, count, stream);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream)
{
    ENTER("cuMemsetD32Async", IN_CONTEXT);
    NEED_STREAM(stream, "cuMemsetD32Async");
    NEED(to % 4 == 0, "cuMemsetD32Async: the address is no multiple of 4");
    submit_fill(FAKE_SET32, to, value, 4 * count, stream);
    return leave(CUDA_SUCCESS);
}

// ---- Streams --------------------------------------------------------------------------------------------------------

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority)
{
    ENTER("cuStreamCreateWithPriority", IN_CONTEXT);
    NEED(flags == CU_STREAM_NON_BLOCKING, "cuStreamCreateWithPriority: a stream that waits for the NULL stream");
    NEED(priority == 0, "cuStreamCreateWithPriority: not the lowest priority");
    fake_stream* stream = fake_make(sizeof *stream, FAKE_STREAM);
    stream->context = current();
    *out = (CUstream)stream;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamDestroy(CUstream handle)
{
    ENTER("cuStreamDestroy", IN_CONTEXT | WORKS_WHEN_LOST);
    NEED_STREAM(handle, "cuStreamDestroy");
    fake_stream* stream = (fake_stream*)handle;
    NEED(stream->capture == NULL, "cuStreamDestroy: it is being captured");
    fake_drain(stream);
    fake_unmake(stream);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamQuery(CUstream handle)
{
    ENTER("cuStreamQuery", IN_CONTEXT | FORBIDDEN_IN_CAPTURE);
    NEED_STREAM(handle, "cuStreamQuery");
    fake_stream* stream = (fake_stream*)handle;
    if (stream->queue.first != NULL && stream->queries_left > 0) {
        stream->queries_left--;
        return leave(CUDA_ERROR_NOT_READY);
    }
    fake_drain(stream);
    return leave(stream->queue.first != NULL ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle)
{
    ENTER("cuStreamSynchronize", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    NEED_STREAM(handle, "cuStreamSynchronize");
    fake_drain((fake_stream*)handle);
    NEED(((fake_stream*)handle)->queue.first == NULL, "cuStreamSynchronize: waits for a semaphore that nobody signals");
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream handle, CUevent event_handle, unsigned flags)
{
    ENTER("cuStreamWaitEvent", IN_CONTEXT);
    NEED_STREAM(handle, "cuStreamWaitEvent");
    NEED_ALIVE(event_handle, FAKE_EVENT, "cuStreamWaitEvent");
    fake_event* event = (fake_event*)event_handle;
    fake_stream* stream = (fake_stream*)handle;
    NEED(flags == 0, "cuStreamWaitEvent: flags");
    NEED(stream->capture == NULL && !event->is_captured, "cuStreamWaitEvent: between streams of a capture");
    if (event->ticket == 0 || event->is_done) return leave(CUDA_SUCCESS);
    fake_node* node = fake_new_node(FAKE_WAIT);
    node->event = event;
    node->ticket = event->ticket;
    fake_submit(stream, node);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status)
{
    ENTER("cuStreamIsCapturing", IN_CONTEXT);
    NEED_STREAM(handle, "cuStreamIsCapturing");
    *status = ((fake_stream*)handle)->capture != NULL ? CU_STREAM_CAPTURE_STATUS_ACTIVE : CU_STREAM_CAPTURE_STATUS_NONE;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode)
{
    ENTER("cuThreadExchangeStreamCaptureMode", HARMLESS);
    const CUstreamCaptureMode before = s_mode;
    s_mode = *mode;
    *mode = before;
    return leave(CUDA_SUCCESS);
}

// ---- Graphs ---------------------------------------------------------------------------------------------------------

#define FAKE_GRAPHS_PER_PIECE 42 // measured on an H100 and an H200 with driver 580

CUresult CUDAAPI cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode)
{
    ENTER("cuStreamBeginCapture", IN_CONTEXT);
    if (fake.refuses_graphs) return leave(CUDA_ERROR_NOT_SUPPORTED);
    NEED_STREAM(handle, "cuStreamBeginCapture");
    fake_stream* stream = (fake_stream*)handle;
    NEED(stream->capture == NULL, "cuStreamBeginCapture: it is being captured");
    NEED(mode != CU_STREAM_CAPTURE_MODE_GLOBAL, "cuStreamBeginCapture: global mode restricts the host's threads");
    stream->capture = fake_make(sizeof *stream->capture, FAKE_GRAPH);
    s_captures++;
    s_capture_mode = mode;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph* out)
{
    ENTER("cuStreamEndCapture", IN_CONTEXT | WORKS_WHEN_LOST);
    NEED_STREAM(handle, "cuStreamEndCapture");
    fake_stream* stream = (fake_stream*)handle;
    NEED(stream->capture != NULL && !stream->is_hosts_capture && s_captures > 0,
         "cuStreamEndCapture: this thread has begun none");
    *out = (CUgraph)stream->capture;
    stream->capture = NULL;
    s_captures--;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph handle, unsigned long long flags)
{
    (void)flags;
    ENTER("cuGraphInstantiateWithFlags", IN_CONTEXT);
    NEED_ALIVE(handle, FAKE_GRAPH, "cuGraphInstantiateWithFlags");
    fake_graph* exec = fake_make(sizeof *exec, FAKE_EXEC);
    fake_copy_nodes(&exec->nodes, &((fake_graph*)handle)->nodes);
    if (fake.alive_count[FAKE_EXEC] > FAKE_GRAPHS_PER_PIECE * fake.graph_pieces) fake.graph_pieces++;
    *out = (CUgraphExec)exec;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphUpload(CUgraphExec handle, CUstream stream)
{
    ENTER("cuGraphUpload", IN_CONTEXT);
    NEED_ALIVE(handle, FAKE_EXEC, "cuGraphUpload");
    NEED_STREAM(stream, "cuGraphUpload");
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream stream_handle)
{
    ENTER("cuGraphLaunch", IN_CONTEXT);
    NEED_ALIVE(handle, FAKE_EXEC, "cuGraphLaunch");
    NEED_STREAM(stream_handle, "cuGraphLaunch");
    fake.graph_launch_count++;
    fake_list nodes = {NULL, NULL};
    fake_copy_nodes(&nodes, &((fake_graph*)handle)->nodes);
    for (fake_node *node = nodes.first, *next; node != NULL; node = next) {
        next = node->next;
        fake_submit_again((fake_stream*)stream_handle, node);
    }
    return leave(CUDA_SUCCESS);
}

static CUresult destroy_graph(void* handle, fake_kind kind, const char* entry)
{
    NEED_ALIVE(handle, kind, entry);
    fake_free_nodes(&((fake_graph*)handle)->nodes);
    fake_unmake(handle);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle)
{
    ENTER("cuGraphExecDestroy", IN_CONTEXT | WORKS_WHEN_LOST);
    return destroy_graph(handle, FAKE_EXEC, "cuGraphExecDestroy");
}

CUresult CUDAAPI cuGraphDestroy(CUgraph handle)
{
    ENTER("cuGraphDestroy", IN_CONTEXT | WORKS_WHEN_LOST);
    return destroy_graph(handle, FAKE_GRAPH, "cuGraphDestroy");
}

// ---- Events ---------------------------------------------------------------------------------------------------------

CUresult CUDAAPI cuEventCreate(CUevent* out, unsigned flags)
{
    ENTER("cuEventCreate", IN_CONTEXT);
    fake_event* event = fake_make(sizeof *event, FAKE_EVENT);
    event->has_time = !(flags & CU_EVENT_DISABLE_TIMING);
    event->wakes = (flags & CU_EVENT_BLOCKING_SYNC) != 0;
    *out = (CUevent)event;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventDestroy(CUevent handle)
{
    ENTER("cuEventDestroy", IN_CONTEXT | WORKS_WHEN_LOST);
    NEED_ALIVE(handle, FAKE_EVENT, "cuEventDestroy");
    fake_unmake(handle);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventRecord(CUevent handle, CUstream stream_handle)
{
    ENTER("cuEventRecord", IN_CONTEXT);
    NEED_ALIVE(handle, FAKE_EVENT, "cuEventRecord");
    NEED_STREAM(stream_handle, "cuEventRecord");
    fake_event* event = (fake_event*)handle;
    fake_stream* stream = (fake_stream*)stream_handle;
    event->is_captured = stream->capture != NULL;
    if (event->is_captured) return leave(CUDA_SUCCESS); // it marks a place in the capture, no more
    event->is_done = false;
    event->stream = stream;
    event->ticket = ++fake.last_ticket;
    fake.wake_count += event->wakes;
    event->queries_left = fake.complete_after;
    fake_node* node = fake_new_node(FAKE_RECORD);
    node->event = event;
    node->ticket = event->ticket;
    fake_submit(stream, node);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventQuery(CUevent handle)
{
    ENTER("cuEventQuery", IN_CONTEXT | FORBIDDEN_IN_CAPTURE);
    NEED_ALIVE(handle, FAKE_EVENT, "cuEventQuery");
    fake_event* event = (fake_event*)handle;
    NEED(!event->is_captured, "cuEventQuery: it was last recorded in a capture");
    if (event->ticket != 0 && !event->is_done && event->queries_left > 0) {
        event->queries_left--;
        return leave(CUDA_ERROR_NOT_READY);
    }
    fake_drain_event(event);
    if (event->ticket != 0 && !event->is_done && fake_is_alive(event->stream, FAKE_STREAM))
        return leave(CUDA_ERROR_NOT_READY); // behind a semaphore
    return leave(event->ticket != 0 && event->ready_ns > fake_now_ns() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle)
{
    ENTER("cuEventSynchronize", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    NEED_ALIVE(handle, FAKE_EVENT, "cuEventSynchronize");
    NEED(!((fake_event*)handle)->is_captured, "cuEventSynchronize: it was last recorded in a capture");
    fake_drain_event((fake_event*)handle);
    const uint64_t now = fake_now_ns(), ready = ((fake_event*)handle)->ready_ns, left = ready > now ? ready - now : 0;
    (void)leave(CUDA_SUCCESS);
    fake_pass_ns(left);
    return CUDA_SUCCESS;
}

static CUresult elapsed_time(float* ms, CUevent begin_handle, CUevent end_handle)
{
    ENTER("cuEventElapsedTime", IN_CONTEXT);
    NEED_ALIVE(begin_handle, FAKE_EVENT, "cuEventElapsedTime");
    NEED_ALIVE(end_handle, FAKE_EVENT, "cuEventElapsedTime");
    fake_event *begin = (fake_event*)begin_handle, *end = (fake_event*)end_handle;
    NEED(begin->has_time && end->has_time && begin->ticket != 0 && end->ticket != 0,
         "cuEventElapsedTime: events without time, or never recorded");
    if (!end->is_done && end->queries_left > 0) { // it counts as a query of its end
        end->queries_left--;
        return leave(CUDA_ERROR_NOT_READY);
    }
    fake_drain_event(end);
    if (!begin->is_done || !end->is_done || end->ready_ns > fake_now_ns()) return leave(CUDA_ERROR_NOT_READY);
    *ms = (float)(end->ms - begin->ms);
    return leave(CUDA_SUCCESS);
}

#if defined(cuEventElapsedTime) // newer headers mean another ABI by this name; its signature is the same
CUresult CUDAAPI cuEventElapsedTime(float* ms, CUevent begin, CUevent end) { return elapsed_time(ms, begin, end); }
#undef cuEventElapsedTime
CUresult CUDAAPI cuEventElapsedTime(float* ms, CUevent begin, CUevent end);
#endif
CUresult CUDAAPI cuEventElapsedTime(float* ms, CUevent begin, CUevent end) { return elapsed_time(ms, begin, end); }

// ---- OpenGL's textures ----------------------------------------------------------------------------------------------

static _Thread_local bool s_has_gl;
static _Thread_local CUdevice s_gl_device;
static const fake_gl* s_gl; // a real one

void fake_use_gl(const fake_gl* gl) { s_gl = gl; }

static fake_texture* find_texture(unsigned name)
{
    if (s_gl == NULL)
        return name < 1 || name > FAKE_MOST_TEXTURES || fake.textures[name - 1].pixels == NULL
                 ? NULL
                 : &fake.textures[name - 1];
    int width, height;
    if (!s_gl->get_size(name, &width, &height)) return NULL;
    for (unsigned i = 0; i < FAKE_MOST_TEXTURES; i++) {
        if (fake.textures[i].pixels != NULL) continue;
        fake.textures[i] =
            (fake_texture){calloc((size_t)width * (size_t)height, 4), width, height, 0, name, 4, false, false};
        return &fake.textures[i];
    }
    return NULL;
}

#define NEED_GL(name)                                                                                                  \
    do {                                                                                                               \
        if (s_gl != NULL ? !s_gl->is_current() : !s_has_gl) return leave(CUDA_ERROR_INVALID_GRAPHICS_CONTEXT);         \
    } while (0)

// of cudaGL.h, which wants OpenGL's headers, as the next one
CUresult CUDAAPI cuGLGetDevices(unsigned* count, CUdevice* devices, unsigned capacity, int list);
CUresult CUDAAPI cuGLGetDevices(unsigned* count, CUdevice* devices, unsigned capacity, int list)
{
    ENTER("cuGLGetDevices", 0);
    NEED_GL("cuGLGetDevices");
    NEED(capacity >= 1 && list == 1, "cuGLGetDevices: not all devices");
    *count = 1;
    devices[0] = s_gl_device;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphicsGLRegisterImage(CUgraphicsResource* out, unsigned texture, unsigned target, unsigned flags);
CUresult CUDAAPI cuGraphicsGLRegisterImage(CUgraphicsResource* out, unsigned texture, unsigned target, unsigned flags)
{
    ENTER("cuGraphicsGLRegisterImage", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    NEED_GL("cuGraphicsGLRegisterImage");
    NEED(flags == 0, "cuGraphicsGLRegisterImage: what is in the texture would be lost before a picture comes");
    fake_texture* found = target == 0x0DE1 ? find_texture(texture) : NULL;
    if (found == NULL || found->is_buffer) return leave(CUDA_ERROR_INVALID_VALUE);
    fake_resource* resource = fake_make(sizeof *resource, FAKE_RESOURCE);
    resource->texture = found;
    resource->texture->registered++;
    *out = (CUgraphicsResource)resource;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphicsUnregisterResource(CUgraphicsResource handle)
{
    ENTER("cuGraphicsUnregisterResource", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS | WORKS_WHEN_LOST);
    NEED_ALIVE(handle, FAKE_RESOURCE, "cuGraphicsUnregisterResource");
    if (!((fake_resource*)handle)->is_direct3d) NEED_GL("cuGraphicsUnregisterResource");
    NEED(!((fake_resource*)handle)->is_mapped, "cuGraphicsUnregisterResource: it is mapped");
    fake_drain_all();
    fake_texture* texture = ((fake_resource*)handle)->texture;
    texture->registered--;
    fake_block* mapped = fake_find_block(texture->pixels, 1);
    if (mapped != NULL) fake_unmake(mapped);
    if (texture->name != 0) {
        free(texture->pixels);
        *texture = (fake_texture){0};
    }
    fake_unmake(handle);
    return leave(CUDA_SUCCESS);
}

static CUresult map(unsigned count, CUgraphicsResource* handles, CUstream stream, bool maps, const char* name)
{
    NEED_STREAM(stream, name);
    NEED(count == 1, "%s: %u resources", name, count);
    NEED_ALIVE(handles[0], FAKE_RESOURCE, name);
    if (!((fake_resource*)handles[0])->is_direct3d) NEED_GL(name);
    NEED(((fake_resource*)handles[0])->is_mapped != maps, "%s: it is %smapped", name, maps ? "" : "not ");
    ((fake_resource*)handles[0])->is_mapped = maps;
    const fake_texture* texture = ((fake_resource*)handles[0])->texture;
    if (!maps && texture->name != 0) {
        fake_drain((fake_stream*)stream);
        s_gl->write(texture->name, texture->width, texture->height, texture->pixels);
    }
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphicsMapResources(unsigned count, CUgraphicsResource* handles, CUstream stream)
{
    ENTER("cuGraphicsMapResources", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    return map(count, handles, stream, true, "cuGraphicsMapResources");
}

CUresult CUDAAPI cuGraphicsUnmapResources(unsigned count, CUgraphicsResource* handles, CUstream stream)
{
    ENTER("cuGraphicsUnmapResources", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    return map(count, handles, stream, false, "cuGraphicsUnmapResources");
}

CUresult CUDAAPI cuGraphicsSubResourceGetMappedArray(CUarray* out, CUgraphicsResource handle, unsigned index,
                                                     unsigned level)
{
    ENTER("cuGraphicsSubResourceGetMappedArray", IN_CONTEXT);
    NEED_ALIVE(handle, FAKE_RESOURCE, "cuGraphicsSubResourceGetMappedArray");
    NEED(index == 0 && level == 0 && ((fake_resource*)handle)->is_mapped,
         "cuGraphicsSubResourceGetMappedArray: it is not mapped, or has no such level");
    NEED(!((fake_resource*)handle)->texture->is_buffer, "cuGraphicsSubResourceGetMappedArray: it is a buffer");
    *out = (CUarray)handle;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphicsGLRegisterBuffer(CUgraphicsResource* out, unsigned buffer, unsigned flags);
CUresult CUDAAPI cuGraphicsGLRegisterBuffer(CUgraphicsResource* out, unsigned buffer, unsigned flags)
{
    ENTER("cuGraphicsGLRegisterBuffer", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    NEED_GL("cuGraphicsGLRegisterBuffer");
    NEED(flags == 0, "cuGraphicsGLRegisterBuffer: flags");
    fake_texture* found = find_texture(buffer);
    if (found == NULL || !found->is_buffer) return leave(CUDA_ERROR_INVALID_VALUE);
    fake_resource* resource = fake_make(sizeof *resource, FAKE_RESOURCE);
    resource->texture = found;
    resource->texture->registered++;
    *out = (CUgraphicsResource)resource;
    return leave(CUDA_SUCCESS);
}

// A texture of this driver's is an ID3D11Texture2D if its number is the pointer.
CUresult CUDAAPI cuGraphicsD3D11RegisterResource(CUgraphicsResource* out, void* texture, unsigned flags);
CUresult CUDAAPI cuGraphicsD3D11RegisterResource(CUgraphicsResource* out, void* texture, unsigned flags)
{
    ENTER("cuGraphicsD3D11RegisterResource", IN_CONTEXT | FORBIDDEN_IN_CAPTURE | NEVER_IN_OURS);
    NEED(flags == 0, "cuGraphicsD3D11RegisterResource: flags");
    fake_texture* found = find_texture((unsigned)(uintptr_t)texture);
    if (found == NULL || found->is_buffer) return leave(CUDA_ERROR_INVALID_HANDLE);
    fake_resource* resource = fake_make(sizeof *resource, FAKE_RESOURCE);
    resource->texture = found;
    resource->is_direct3d = true;
    resource->texture->registered++;
    *out = (CUgraphicsResource)resource;
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuGraphicsResourceGetMappedPointer(CUdeviceptr* address, size_t* bytes, CUgraphicsResource handle)
{
    ENTER("cuGraphicsResourceGetMappedPointer", IN_CONTEXT);
    NEED_ALIVE(handle, FAKE_RESOURCE, "cuGraphicsResourceGetMappedPointer");
    const fake_resource* resource = (fake_resource*)handle;
    NEED(resource->is_mapped && resource->texture->is_buffer,
         "cuGraphicsResourceGetMappedPointer: it is not mapped, or no buffer");
    *address = (CUdeviceptr)(uintptr_t)resource->texture->pixels;
    *bytes = (size_t)resource->texture->width;
    if (fake_find_block(resource->texture->pixels, 1) == NULL)
        fake_make_block(FAKE_MAPPED_BLOCK, resource->texture->pixels, *bytes);
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuArray3DGetDescriptor(CUDA_ARRAY3D_DESCRIPTOR* out, CUarray array)
{
    ENTER("cuArray3DGetDescriptor", IN_CONTEXT);
    NEED_ALIVE(array, FAKE_RESOURCE, "cuArray3DGetDescriptor");
    const fake_resource* resource = (fake_resource*)array;
    NEED(resource->is_mapped, "cuArray3DGetDescriptor: the texture is not mapped");
    *out = (CUDA_ARRAY3D_DESCRIPTOR){.Width = (size_t)resource->texture->width,
                                     .Height = (size_t)resource->texture->height,
                                     .Format = resource->texture->is_depth         ? CU_AD_FORMAT_FLOAT
                                             : resource->texture->pixel_bytes == 8 ? CU_AD_FORMAT_HALF
                                                                                   : CU_AD_FORMAT_UNSIGNED_INT8,
                                     .NumChannels = resource->texture->is_depth ? 1 : 4};
    return leave(CUDA_SUCCESS);
}

CUresult CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D* c, CUstream stream)
{
    ENTER("cuMemcpy2DAsync", IN_CONTEXT);
    NEED_STREAM(stream, "cuMemcpy2DAsync");
    if (c->srcMemoryType == CU_MEMORYTYPE_HOST && c->dstMemoryType == CU_MEMORYTYPE_DEVICE) {
        NEED(c->WidthInBytes <= c->srcPitch && c->WidthInBytes <= c->dstPitch && c->Height > 0,
             "cuMemcpy2DAsync: rows overlap");
        for (size_t y = 0; y < c->Height; y++) {
            const unsigned char* from = (const unsigned char*)c->srcHost + y * c->srcPitch;
            NEED(fake_find_block(from, c->WidthInBytes) != NULL, "cuMemcpy2DAsync: a copy of pageable memory");
            fake_submit((fake_stream*)stream,
                        copy_node((void*)(uintptr_t)(c->dstDevice + y * c->dstPitch), from, c->WidthInBytes));
        }
        return leave(CUDA_SUCCESS);
    }
    const unsigned char* source =
        c->srcMemoryType == CU_MEMORYTYPE_HOST ? c->srcHost : (const unsigned char*)(uintptr_t)c->srcDevice;
    if (c->srcMemoryType == CU_MEMORYTYPE_HOST)
        NEED(fake_find_block(source, c->WidthInBytes * c->Height) != NULL,
             "cuMemcpy2DAsync: a copy of pageable memory");
    if (c->srcMemoryType == CU_MEMORYTYPE_DEVICE && c->dstMemoryType == CU_MEMORYTYPE_DEVICE) {
        NEED(c->WidthInBytes <= c->srcPitch && c->WidthInBytes <= c->dstPitch && c->Height > 0,
             "cuMemcpy2DAsync: rows overlap");
        for (size_t y = 0; y < c->Height; y++)
            fake_submit((fake_stream*)stream, copy_node((void*)(uintptr_t)(c->dstDevice + y * c->dstPitch),
                                                        source + y * c->srcPitch, c->WidthInBytes));
        return leave(CUDA_SUCCESS);
    }
    if (c->srcMemoryType == CU_MEMORYTYPE_ARRAY) {
        NEED(c->dstMemoryType == CU_MEMORYTYPE_DEVICE && c->dstPitch == c->WidthInBytes,
             "cuMemcpy2DAsync: not from a texture to memory without gaps");
        const bool is_import = fake_is_alive(c->srcArray, FAKE_ARRAY);
        if (!is_import) NEED_ALIVE(c->srcArray, FAKE_RESOURCE, "cuMemcpy2DAsync");
        const fake_import* array = (fake_import*)c->srcArray;
        const fake_resource* mapped = (fake_resource*)c->srcArray;
        NEED(is_import || mapped->is_mapped, "cuMemcpy2DAsync: the texture is not mapped");
        const int width = is_import ? array->width : mapped->texture->width,
                  height = is_import ? array->height : mapped->texture->height;
        NEED(c->WidthInBytes == (size_t)width * 4 && c->Height == (size_t)height,
             "cuMemcpy2DAsync: not the whole texture");
        fake_node* read = copy_node((void*)(uintptr_t)c->dstDevice,
                                    is_import ? array->shared->memory + array->offset : mapped->texture->pixels,
                                    c->WidthInBytes * c->Height);
        read->value = FAKE_FROM_TEXTURE;
        fake_submit((fake_stream*)stream, read);
        return leave(CUDA_SUCCESS);
    }
    NEED(c->dstMemoryType == CU_MEMORYTYPE_ARRAY && c->srcPitch == c->WidthInBytes,
         "cuMemcpy2DAsync: not from memory without gaps to a texture");
    if (fake_is_alive(c->dstArray, FAKE_ARRAY)) {
        const fake_import* array = (fake_import*)c->dstArray;
        NEED(c->WidthInBytes == (size_t)array->width * (size_t)array->pixel_bytes && c->Height == (size_t)array->height,
             "cuMemcpy2DAsync: not the whole image");
        fake_node* whole = copy_node(array->shared->memory + array->offset, source, c->WidthInBytes * c->Height);
        whole->value = 1; // no memory of CUDA's
        fake_submit((fake_stream*)stream, whole);
        return leave(CUDA_SUCCESS);
    }
    NEED_ALIVE(c->dstArray, FAKE_RESOURCE, "cuMemcpy2DAsync");
    const fake_resource* resource = (fake_resource*)c->dstArray;
    NEED(resource->is_mapped, "cuMemcpy2DAsync: the texture is not mapped");
    NEED(c->WidthInBytes == (size_t)resource->texture->width * (size_t)resource->texture->pixel_bytes
             && c->Height == (size_t)resource->texture->height,
         "cuMemcpy2DAsync: not the whole texture");
    fake_node* node = copy_node(resource->texture->pixels, source, c->WidthInBytes * c->Height);
    node->value = 1; // no memory of CUDA's
    fake_submit((fake_stream*)stream, node);
    return leave(CUDA_SUCCESS);
}

// ---- The table ------------------------------------------------------------------------------------------------------

typedef void anything(void);
#define ENTRY(name, version)                                                                                           \
    {                                                                                                                  \
#name, version, (anything*)name, 0                                                                             \
    }
fake_entry fake_entries[] = {
    ENTRY(cuInit, 2000),
    ENTRY(cuDriverGetVersion, 2020),
    ENTRY(cuGetErrorName, 6000),
    ENTRY(cuGetErrorString, 6000),
    ENTRY(cuDeviceGetCount, 2000),
    ENTRY(cuDeviceGet, 2000),
    ENTRY(cuDeviceGetName, 2000),
    ENTRY(cuDeviceGetAttribute, 2000),
    {"cuDeviceGetUuid", 11040, (anything*)cuDeviceGetUuid_v2, 0},
    ENTRY(cuDeviceGetLuid, 10000),
    ENTRY(cuDeviceTotalMem, 3020),
    ENTRY(cuDevicePrimaryCtxRetain, 7000),
    ENTRY(cuDevicePrimaryCtxRelease, 11000),
    ENTRY(cuCtxPushCurrent, 4000),
    ENTRY(cuCtxPopCurrent, 4000),
    ENTRY(cuCtxGetDevice, 2000),
    ENTRY(cuCtxGetStreamPriorityRange, 5050),
    ENTRY(cuModuleLoadDataEx, 2010),
    ENTRY(cuModuleUnload, 2000),
    ENTRY(cuLinkCreate, 6050),
    ENTRY(cuLinkAddData, 6050),
    ENTRY(cuLinkComplete, 5050),
    ENTRY(cuLinkDestroy, 5050),
    ENTRY(cuModuleGetFunction, 2000),
    ENTRY(cuFuncSetAttribute, 9000),
    ENTRY(cuFuncGetAttribute, 2020),
    ENTRY(cuLaunchKernel, 4000),
    ENTRY(cuLaunchKernelEx, 11060),
    ENTRY(cuOccupancyMaxActiveBlocksPerMultiprocessor, 6050),
    ENTRY(cuMemAlloc, 3020),
    ENTRY(cuMemFree, 3020),
    ENTRY(cuMemFreeAsync, 11020),
    ENTRY(cuMemGetInfo, 3020),
    ENTRY(cuMemHostAlloc, 2020),
    ENTRY(cuMemFreeHost, 2000),
    ENTRY(cuMemHostRegister, 6050),
    ENTRY(cuMemHostUnregister, 4000),
    ENTRY(cuMemcpyHtoDAsync, 3020),
    ENTRY(cuMemcpyDtoHAsync, 3020),
    ENTRY(cuMemcpyDtoDAsync, 3020),
    ENTRY(cuMemsetD8Async, 3020),
    ENTRY(cuMemsetD32Async, 3020),
    ENTRY(cuStreamCreateWithPriority, 5050),
    ENTRY(cuStreamDestroy, 4000),
    ENTRY(cuStreamQuery, 2000),
    ENTRY(cuStreamSynchronize, 2000),
    ENTRY(cuStreamWaitEvent, 3020),
    ENTRY(cuStreamIsCapturing, 10000),
    ENTRY(cuStreamBeginCapture, 10010),
    ENTRY(cuStreamEndCapture, 10000),
    ENTRY(cuThreadExchangeStreamCaptureMode, 10010),
    ENTRY(cuGraphInstantiateWithFlags, 11040),
    ENTRY(cuGraphUpload, 11010),
    ENTRY(cuGraphLaunch, 10000),
    ENTRY(cuGraphExecDestroy, 10000),
    ENTRY(cuGraphDestroy, 10000),
    ENTRY(cuEventCreate, 2000),
    ENTRY(cuEventDestroy, 4000),
    ENTRY(cuEventRecord, 2000),
    ENTRY(cuEventQuery, 2000),
    ENTRY(cuEventSynchronize, 2000),
    ENTRY(cuEventElapsedTime, 2000),
    ENTRY(cuTensorMapEncodeTiled, 12000),
    ENTRY(cuMemcpy2DAsync, 3020),
    ENTRY(cuGLGetDevices, 6050),
    ENTRY(cuGraphicsGLRegisterImage, 3000),
    ENTRY(cuGraphicsUnregisterResource, 3000),
    ENTRY(cuGraphicsMapResources, 3000),
    ENTRY(cuGraphicsUnmapResources, 3000),
    ENTRY(cuGraphicsSubResourceGetMappedArray, 3000),
    ENTRY(cuArray3DGetDescriptor, 3020),
    ENTRY(cuGraphicsGLRegisterBuffer, 3000),
    ENTRY(cuGraphicsD3D11RegisterResource, 3000),
    ENTRY(cuGraphicsResourceGetMappedPointer, 3020),
    ENTRY(cuImportExternalMemory, 10000),
    ENTRY(cuDestroyExternalMemory, 10000),
    ENTRY(cuExternalMemoryGetMappedBuffer, 10000),
    ENTRY(cuExternalMemoryGetMappedMipmappedArray, 10000),
    ENTRY(cuMipmappedArrayGetLevel, 5000),
    ENTRY(cuMipmappedArrayDestroy, 5000),
    ENTRY(cuImportExternalSemaphore, 10000),
    ENTRY(cuDestroyExternalSemaphore, 10000),
    ENTRY(cuSignalExternalSemaphoresAsync, 10000),
    ENTRY(cuWaitExternalSemaphoresAsync, 10000),
};
const int fake_entry_count = (int)(sizeof fake_entries / sizeof fake_entries[0]);

CUresult CUDAAPI cuGetProcAddress_v2(const char* name, void** out, int version, cuuint64_t flags,
                                     CUdriverProcAddressQueryResult* status)
{
    fake_lock();
    fake_log_call("cuGetProcAddress");
    fake_log_add(" %s %d", name, version);
    *out = NULL;
    *status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (fake.old_lookup) return leave(CUDA_ERROR_NOT_SUPPORTED);
    if (flags != CU_GET_PROC_ADDRESS_LEGACY_STREAM)
        fake_violation("cuGetProcAddress: which default stream is meant is left to the build");
    if (version > fake.driver_version) return leave(CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < fake_entry_count; i++) {
        if (strncmp(name, "cuLink", 6) == 0 && !fake.has_linker) break;
        if (strcmp(fake_entries[i].name, name) != 0 || (fake.lacking != NULL && strcmp(fake.lacking, name) == 0))
            continue;
        if (version < fake_entries[i].version) {
            *status = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
            break;
        }
        memcpy(out, &fake_entries[i].function, sizeof *out);
        *status = CU_GET_PROC_ADDRESS_SUCCESS;
    }
    return leave(CUDA_SUCCESS);
}

// ---- The host beside us ---------------------------------------------------------------------------------------------

struct CUctx_st* fake_host_context(int device)
{
    fake_lock();
    fake_context* context = fake_make(sizeof *context, FAKE_CONTEXT);
    context->device = device;
    fake_unlock();
    return (CUcontext)context;
}

struct CUstream_st* fake_host_stream(struct CUctx_st* context)
{
    fake_lock();
    fake_stream* stream = fake_make(sizeof *stream, FAKE_STREAM);
    stream->context = (fake_context*)context;
    fake_unlock();
    return (CUstream)stream;
}

void fake_gl_current(bool on) { s_has_gl = on; }
void fake_gl_device(int ordinal) { s_gl_device = ordinal; }

static unsigned make_texture(int width, int height, int pixel_bytes, bool is_buffer)
{
    for (unsigned i = 0; i < FAKE_MOST_TEXTURES; i++) {
        if (fake.textures[i].pixels != NULL) continue;
        fake.textures[i] = (fake_texture){calloc((size_t)width * (size_t)height, (size_t)pixel_bytes),
                                          width,
                                          height,
                                          0,
                                          0,
                                          pixel_bytes,
                                          is_buffer,
                                          false};
        return i + 1;
    }
    return 0;
}

unsigned fake_gl_texture(int width, int height) { return make_texture(width, height, 4, false); }
unsigned fake_gl_half_texture(int width, int height) { return make_texture(width, height, 8, false); }
unsigned fake_gl_depth_texture(int width, int height)
{
    const unsigned name = make_texture(width, height, 4, false);
    if (name != 0) fake.textures[name - 1].is_depth = true;
    return name;
}
unsigned fake_gl_buffer(int bytes) { return make_texture(bytes, 1, 1, true); }

const unsigned char* fake_gl_pixels(unsigned texture) { return fake.textures[texture - 1].pixels; }

void fake_gl_release(unsigned texture)
{
    fake_lock();
    if (fake.textures[texture - 1].registered > 0) fake_violation("a texture goes that CUDA knows");
    free(fake.textures[texture - 1].pixels);
    fake.textures[texture - 1] = (fake_texture){0};
    fake_unlock();
}

struct CUevent_st* fake_host_event(void)
{
    fake_lock();
    fake_event* event = fake_make(sizeof *event, FAKE_EVENT);
    fake_unlock();
    return (CUevent)event;
}

bool fake_event_is_done(struct CUevent_st* handle)
{
    fake_lock();
    bool is_done =
        fake_is_alive(handle, FAKE_EVENT) && ((fake_event*)handle)->ticket != 0 && ((fake_event*)handle)->is_done;
    fake_unlock();
    return is_done;
}

uint64_t fake_host_memory(uint64_t bytes)
{
    void* memory = NULL;
    fake_lock();
    (void)allocate(&memory, (size_t)bytes, FAKE_DEVICE_BLOCK); // it unlocks
    return (uint64_t)(uintptr_t)memory;
}

// Of the host program's own: nothing waits for what is in flight to it, so that whoever is too late is seen.
void fake_host_release(void* object)
{
    fake_lock();
    fake_block* block = fake_find_block(object, 1);
    if (block != NULL && block->memory == object) {
        const int slot = fake.freed_count++ % 256;
        fake.freed[slot].memory = block->memory;
        fake.freed[slot].bytes = block->bytes;
        fake.block_bytes -= block->bytes;
        fake.device_block_bytes -= block->bytes;
        fake_system_release(block->memory, block->bytes);
        fake_unmake(block);
        fake_unlock();
        return;
    }
    if (fake_is_alive(object, FAKE_STREAM)) fake_drain(object);
    if (fake_is_alive(object, FAKE_STREAM) || fake_is_alive(object, FAKE_CONTEXT) || fake_is_alive(object, FAKE_EVENT))
        fake_unmake(object);
    else fake_violation("fake_host_release: it is dead: somebody else destroyed it");
    fake_unlock();
}

void fake_host_begin_capture(struct CUstream_st* handle)
{
    fake_lock();
    fake_stream* stream = (fake_stream*)handle;
    stream->capture = fake_make(sizeof *stream->capture, FAKE_GRAPH);
    stream->is_hosts_capture = true;
    stream->is_spoilt = false;
    fake.host_captures++;
    fake_unlock();
}

bool fake_host_end_capture(struct CUstream_st* handle)
{
    fake_lock();
    fake_stream* stream = (fake_stream*)handle;
    fake_free_nodes(&stream->capture->nodes);
    fake_unmake(stream->capture);
    stream->capture = NULL;
    stream->is_hosts_capture = false;
    fake.host_captures--;
    const bool is_whole = !stream->is_spoilt;
    fake_unlock();
    return is_whole;
}

int fake_capture_mode(void) { return (int)s_mode; }

void fake_make_current(struct CUctx_st* context)
{
    s_context_count = s_context_base = 0;
    if (context != NULL) s_contexts[s_context_count++] = (fake_context*)context, s_context_base = 1;
}

struct CUctx_st* fake_current(void) { return s_context_count > 0 ? (CUcontext)s_contexts[s_context_count - 1] : NULL; }
int fake_context_depth(void) { return s_context_count - s_context_base; }
