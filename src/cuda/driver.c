// Looks up the driver's entries.
//
//   libcuda.so.1 --dlsym--> cuGetProcAddress_v2 --(name, ABI version)--> every entry        drivers of CUDA 12.0 and newer
//                \--dlsym--> name or name_v2 -------------------------> every entry        older ones, which have no other ABI of these than the one used here
#include "cuda/driver.h"
#include "base/platform.h"
#include <string.h>

#if defined(_WIN32)
#define LIBRARY "nvcuda.dll"
#else
#define LIBRARY "libcuda.so.1" // not libcuda.so: the toolkit's stub has that name
#endif
#define OLDEST_VERSION 11040 // the oldest driver that accepts PTX 7.4

typedef struct entry {
    const char* name;
    int version;
    bool is_needed;
    size_t offset; // in sumi_cuda_driver
} entry;

// cuda.h renames some functions by macros (cuMemAlloc is cuMemAlloc_v2). # and ## keep the plain name, which the driver
// is asked for; offsetof and every call through the table see the renamed member, whatever name the toolkit gives it.
#define ENTRY(name, version, needed) {#name, version, needed, offsetof(sumi_cuda_driver, name)},
static const entry s_entries[] = {SUMI_CUDA_ENTRIES(ENTRY)};
#undef ENTRY

// Entries whose ABI of the version in driver.h is exported with a suffix.
static const char* const s_with_suffix[] = {
    "cuArray3DGetDescriptor",
    "cuCtxPopCurrent",
    "cuCtxPushCurrent",
    "cuDeviceGetUuid",
    "cuDevicePrimaryCtxRelease",
    "cuGraphicsResourceGetMappedPointer",
    "cuLinkAddData",
    "cuLinkCreate",
    "cuDeviceTotalMem",
    "cuEventDestroy",
    "cuMemAlloc",
    "cuMemFree",
    "cuMemGetInfo",
    "cuMemHostRegister",
    "cuMemcpy2DAsync",
    "cuMemcpyDtoDAsync",
    "cuMemcpyDtoHAsync",
    "cuMemcpyHtoDAsync",
    "cuStreamBeginCapture",
    "cuStreamDestroy",
};

static sumi_library_function* find_exported(void* library, const char* name)
{
    char suffixed[64];
    for (size_t i = 0; i < sizeof s_with_suffix / sizeof s_with_suffix[0]; i++) {
        size_t length = strlen(name);
        if (strcmp(name, s_with_suffix[i]) == 0 && length + 4 <= sizeof suffixed) {
            memcpy(suffixed, name, length);
            memcpy(suffixed + length, "_v2", 4);
            return sumi_library_symbol(library, suffixed);
        }
    }
    return sumi_library_symbol(library, name);
}

// NULL: this driver does not have the entry.
static sumi_library_function* find_entry(void* library, PFN_cuGetProcAddress_v12000 get_address, const char* name,
                                         int version)
{
    if (get_address == NULL) return find_exported(library, name);
    // The flag makes the answer independent of how the host program was compiled. For a version above the driver's the
    // result is CUDA_ERROR_INVALID_VALUE, which also means that the entry is missing.
    void* address = NULL;
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    if (get_address(name, &address, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status) != CUDA_SUCCESS) return NULL;
    sumi_library_function* function = NULL;
    memcpy(&function, &address, sizeof function);
    return function;
}

// Fills the table. Returns the first needed entry that is missing, or NULL.
static const char* fill(sumi_cuda_driver* driver, void* library)
{
    PFN_cuGetProcAddress_v12000 get_address =
        (PFN_cuGetProcAddress_v12000)sumi_library_symbol(library, "cuGetProcAddress_v2");
    if (get_address != NULL && find_entry(library, get_address, "cuInit", 2000) == NULL) get_address = NULL;
    const char* missing = NULL;
    for (size_t i = 0; i < sizeof s_entries / sizeof s_entries[0]; i++) {
        sumi_library_function* function = find_entry(library, get_address, s_entries[i].name, s_entries[i].version);
        memcpy((char*)driver + s_entries[i].offset, &function, sizeof function);
        if (function == NULL && s_entries[i].is_needed && missing == NULL) missing = s_entries[i].name;
    }
    return missing;
}

// The driver's own name and description of a code. Both are available before the driver was initialised.
static void describe_failure(const sumi_cuda_driver* driver, CUresult result, const char** out_name,
                             const char** out_text)
{
    *out_name = *out_text = NULL;
    if (driver->cuGetErrorName != NULL) driver->cuGetErrorName(result, out_name);
    if (driver->cuGetErrorString != NULL) driver->cuGetErrorString(result, out_text);
    if (*out_name == NULL) *out_name = "an unknown error";
    if (*out_text == NULL) *out_text = "no description";
}

sumi_result sumi_cuda_driver_open(sumi_cuda_driver* out_driver, sumi_error* error)
{
    memset(out_driver, 0, sizeof *out_driver);
    void* library = sumi_library_open(LIBRARY);
    if (library == NULL)
        return sumi_fail(error, SUMI_NO_DEVICE,
                         "there is no NVIDIA driver (%s) on this machine: install one, or choose the CPU backend",
                         LIBRARY);

    sumi_cuda_driver driver = {0};
    const char* missing = fill(&driver, library);
    if (driver.cuInit == NULL || driver.cuDriverGetVersion == NULL)
        return sumi_fail(error, SUMI_NO_DEVICE,
                         "%s is not a CUDA driver: reinstall the NVIDIA driver, or choose the CPU backend", LIBRARY);
    CUresult result = driver.cuInit(0);
    // no device, a stub library, a driver that does not fit its kernel module and so on: nothing can run here
    if (result != CUDA_SUCCESS) {
        const char *name, *text;
        describe_failure(&driver, result, &name, &text);
        return sumi_fail(error, SUMI_NO_DEVICE,
                         "the NVIDIA driver has no device to offer: %s (%d: %s); choose the CPU backend", name,
                         (int)result, text);
    }
    int version = 0;
    if (driver.cuDriverGetVersion(&version) != CUDA_SUCCESS) version = 0;
    if (missing != NULL || version < OLDEST_VERSION) {
        return sumi_fail(error, SUMI_DRIVER_TOO_OLD,
                         "the NVIDIA driver is for CUDA %d.%d%s%s; update it to one for CUDA %d.%d or newer, or choose "
                         "the CPU backend",
                         version / 1000, version % 1000 / 10, missing != NULL ? " and has no " : "",
                         missing != NULL ? missing : "", OLDEST_VERSION / 1000, OLDEST_VERSION % 1000 / 10);
    }
    driver.version = version;
    *out_driver = driver;
    return SUMI_OK;
}

// After these errors the context answers every call with the same error. Only a new context or a new process can
// continue.
bool sumi_cuda_loses_context(CUresult result)
{
    switch ((int)result) { // as numbers where older headers lack the newer names
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_INVALID_CONTEXT: // the host program has destroyed it
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case 226: // CUDA_ERROR_CONTAINED
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_HARDWARE_STACK_ERROR:
    case CUDA_ERROR_ILLEGAL_INSTRUCTION:
    case CUDA_ERROR_MISALIGNED_ADDRESS:
    case CUDA_ERROR_INVALID_ADDRESS_SPACE:
    case CUDA_ERROR_INVALID_PC:
    case CUDA_ERROR_LAUNCH_FAILED:
    case 721: // CUDA_ERROR_TENSOR_MEMORY_LEAK
    case CUDA_ERROR_MPS_RPC_FAILURE:
    case 810: // CUDA_ERROR_MPS_CLIENT_TERMINATED
    case CUDA_ERROR_UNKNOWN: return true;
    default: return false;
    }
}

// The driver has refused one call because of its arguments, and the context continues.
static bool is_refusal(CUresult result)
{
    switch ((int)result) {
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_IMAGE:
    case CUDA_ERROR_MAP_FAILED:
    case CUDA_ERROR_UNMAP_FAILED:
    case CUDA_ERROR_ARRAY_IS_MAPPED:
    case CUDA_ERROR_ALREADY_MAPPED:
    case CUDA_ERROR_ALREADY_ACQUIRED:
    case CUDA_ERROR_NOT_MAPPED:
    case CUDA_ERROR_NOT_MAPPED_AS_ARRAY:
    case CUDA_ERROR_NOT_MAPPED_AS_POINTER:
    case CUDA_ERROR_INVALID_PTX:
    case CUDA_ERROR_INVALID_SOURCE:
    case CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND:
    case CUDA_ERROR_SHARED_OBJECT_INIT_FAILED:
    case CUDA_ERROR_OPERATING_SYSTEM:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_ILLEGAL_STATE:
    case CUDA_ERROR_NOT_FOUND:
    case CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES:
    case CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED:
    case CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED:
    case CUDA_ERROR_NOT_PERMITTED:
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED:
    case CUDA_ERROR_STREAM_CAPTURE_INVALIDATED:
    case CUDA_ERROR_STREAM_CAPTURE_MERGE:
    case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED:
    case CUDA_ERROR_STREAM_CAPTURE_UNJOINED:
    case CUDA_ERROR_STREAM_CAPTURE_ISOLATION:
    case CUDA_ERROR_STREAM_CAPTURE_IMPLICIT:
    case CUDA_ERROR_CAPTURED_EVENT:
    case CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD:
    case 912: // CUDA_ERROR_INVALID_CLUSTER_SIZE
        return true;
    default: return false;
    }
}

static sumi_result result_of(CUresult result)
{
    switch ((int)result) {
    case CUDA_ERROR_OUT_OF_MEMORY: return SUMI_OUT_OF_DEVICE_MEMORY;
    case CUDA_ERROR_STUB_LIBRARY:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    case CUDA_ERROR_NO_DEVICE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_DEVICE_NOT_LICENSED:
    case CUDA_ERROR_SYSTEM_NOT_READY:
    case CUDA_ERROR_SYSTEM_DRIVER_MISMATCH:
    case CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE:
    case CUDA_ERROR_MPS_CONNECTION_FAILED:
    case CUDA_ERROR_MPS_SERVER_NOT_READY:
    case CUDA_ERROR_MPS_MAX_CLIENTS_REACHED:
    case CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED: return SUMI_NO_DEVICE;
    case 36: // CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER
    case CUDA_ERROR_UNSUPPORTED_PTX_VERSION: return SUMI_DRIVER_TOO_OLD;
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_JIT_COMPILER_NOT_FOUND:
    case CUDA_ERROR_JIT_COMPILATION_DISABLED: return SUMI_DEVICE_UNSUPPORTED;
    case CUDA_ERROR_INVALID_GRAPHICS_CONTEXT: return SUMI_WRONG_STATE;
    // A code that no call of this backend should get leaves the context in an unknown state.
    default: return is_refusal(result) ? SUMI_INTERNAL : SUMI_DEVICE_LOST;
    }
}

bool sumi_cuda_may_be_refusal(CUresult result)
{
    const sumi_result ours = result_of(result);
    return ours == SUMI_INTERNAL || (ours == SUMI_DEVICE_LOST && !sumi_cuda_loses_context(result));
}

static const char* advice_for(sumi_result result, bool is_unexpected)
{
    if (is_unexpected)
        return "the driver gave an unexpected answer, so the CUDA context counts as lost: destroy the engine and make "
               "a "
               "new one in a new context";
    switch (result) {
    case SUMI_OUT_OF_DEVICE_MEMORY: return "free device memory, use smaller sizes or a smaller batch";
    case SUMI_WRONG_STATE: return "make the OpenGL context current on the calling thread; it must be of this GPU";
    case SUMI_NO_DEVICE: return "choose another device, or the CPU backend";
    case SUMI_DRIVER_TOO_OLD: return "update the NVIDIA driver, or choose the CPU backend";
    case SUMI_DEVICE_UNSUPPORTED:
        return "the driver cannot compile kernels for this device: choose another, or the CPU backend";
    case SUMI_DEVICE_LOST:
        return "the CUDA context is lost for everything in this process that used it: destroy the engine and make a "
               "new one in a new context";
    default: return "please report this message";
    }
}

sumi_result sumi_cuda_failure(const sumi_cuda_driver* driver, CUresult result, const char* what, sumi_error* error)
{
    const char *name, *text;
    describe_failure(driver, result, &name, &text);
    sumi_result ours = result_of(result);
    const bool is_unexpected = ours == SUMI_DEVICE_LOST && !sumi_cuda_loses_context(result);
    return sumi_fail(error, ours, "%s: %s (%d: %s); %s", what, name, (int)result, text,
                     advice_for(ours, is_unexpected));
}

CUstreamCaptureMode sumi_cuda_relax(const sumi_cuda_driver* driver)
{
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    // GLOBAL is the mode of every thread at first
    return driver->cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS ? mode : CU_STREAM_CAPTURE_MODE_GLOBAL;
}

void sumi_cuda_unrelax(const sumi_cuda_driver* driver, CUstreamCaptureMode mode)
{
    driver->cuThreadExchangeStreamCaptureMode(&mode);
}
