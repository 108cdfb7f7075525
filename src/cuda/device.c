#include "cuda/device.h"
#include "cuda/driver.h"
#include <stdio.h>
#include <string.h>

#define LOWEST_CAPABILITY 80 // bfloat16 tensor instructions and cp.async need it

sumi_result sumi_cuda_enter(const sumi_cuda_device* device, sumi_cuda_scope* out_scope, sumi_error* error)
{
    const sumi_cuda_driver* driver = &device->driver;
    out_scope->mode = sumi_cuda_relax(driver);
    const CUresult result = driver->cuCtxPushCurrent(device->context);
    if (result == CUDA_SUCCESS) return SUMI_OK;
    sumi_cuda_unrelax(driver, out_scope->mode);
    return sumi_cuda_failure(driver, result, "making the CUDA context current", error);
}

void sumi_cuda_leave(const sumi_cuda_device* device, const sumi_cuda_scope* scope)
{
    CUcontext ours;
    device->driver.cuCtxPopCurrent(&ours);
    sumi_cuda_unrelax(&device->driver, scope->mode);
}

// ---- Choosing -------------------------------------------------------------------------------------------------------

static bool has_uuid(const sumi_cuda_driver* driver, CUdevice device, const uint8_t* uuid)
{
    CUuuid device_uuid;
    return driver->cuDeviceGetUuid(&device_uuid, device) == CUDA_SUCCESS
        && memcmp(device_uuid.bytes, uuid, sizeof device_uuid.bytes) == 0;
}

static bool has_luid(const sumi_cuda_driver* driver, CUdevice device, const uint8_t* luid)
{
    char device_luid[8] = {0};
    unsigned node_mask = 0;
    // this operating system has no LUIDs
    if (driver->cuDeviceGetLuid == NULL || driver->cuDeviceGetLuid(device_luid, &node_mask, device) != CUDA_SUCCESS)
        return false;
    return node_mask != 0 && memcmp(device_luid, luid, sizeof device_luid) == 0;
}

static void write_hex(char* out, const uint8_t* bytes, int32_t count)
{
    for (int32_t i = 0; i < count; i++) snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

// Chooses the device of the host program's context. Everything else that the desc says about the device must agree with
// it.
static sumi_result choose_by_context(sumi_cuda_device* device, const sumi_engine_desc* desc, sumi_error* error)
{
    const sumi_cuda_driver* driver = &device->driver;
    device->context = desc->cuda.context;
    sumi_cuda_scope scope;
    SUMI_TRY(sumi_cuda_enter(device, &scope, error));
    CUresult result = driver->cuCtxGetDevice(&device->device);
    sumi_cuda_leave(device, &scope);
    if (result != CUDA_SUCCESS)
        return sumi_cuda_failure(driver, result, "asking the host program's CUDA context for its device", error);
    CUdevice by_ordinal = device->device;
    if (desc->cuda.ordinal >= 0
        && (driver->cuDeviceGet(&by_ordinal, desc->cuda.ordinal) != CUDA_SUCCESS || by_ordinal != device->device)) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "cuda.ordinal is %d, but cuda.context belongs to another device; leave -1",
                         (int)desc->cuda.ordinal);
    }
    if (desc->cuda.uuid != NULL && !has_uuid(driver, device->device, desc->cuda.uuid))
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "cuda.uuid is not that of cuda.context's device; leave NULL");
    if (desc->cuda.luid != NULL && !has_luid(driver, device->device, desc->cuda.luid))
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "cuda.luid is not that of cuda.context's device; leave NULL");
    return SUMI_OK;
}

// Chooses the first device that fits everything in the desc.
static sumi_result choose_device(sumi_cuda_device* device, const sumi_engine_desc* desc, sumi_error* error)
{
    const sumi_cuda_driver* driver = &device->driver;
    int count = 0;
    SUMI_CU(driver, cuDeviceGetCount(&count), "counting the CUDA devices");
    if (count <= 0)
        return sumi_fail(
            error, SUMI_NO_DEVICE,
            "the NVIDIA driver reports no device (CUDA_VISIBLE_DEVICES may hide them): choose the CPU backend");
    for (int i = 0; i < count; i++) {
        if (desc->cuda.ordinal >= 0 && i != desc->cuda.ordinal) continue;
        SUMI_CU(driver, cuDeviceGet(&device->device, i), "opening a CUDA device");
        if (desc->cuda.uuid != NULL && !has_uuid(driver, device->device, desc->cuda.uuid)) continue;
        if (desc->cuda.luid != NULL && !has_luid(driver, device->device, desc->cuda.luid)) continue;
        return SUMI_OK;
    }
    char uuid[33] = "any", luid[17] = "any", ordinal[16] = "any";
    if (desc->cuda.uuid != NULL) write_hex(uuid, desc->cuda.uuid, 16);
    if (desc->cuda.luid != NULL) write_hex(luid, desc->cuda.luid, 8);
    if (desc->cuda.ordinal >= 0) snprintf(ordinal, sizeof ordinal, "%d", (int)desc->cuda.ordinal);
    return sumi_fail(
        error, SUMI_NO_DEVICE,
        "none of the %d CUDA devices has ordinal %s, uuid %s and luid %s: choose another, or the CPU backend", count,
        ordinal, uuid, luid);
}

// ---- Facts ----------------------------------------------------------------------------------------------------------

static sumi_result read_attributes(sumi_cuda_device* device, sumi_error* error)
{
    const sumi_cuda_driver* driver = &device->driver;
    int major = 0, minor = 0;
    const struct {
        CUdevice_attribute attribute;
        int32_t* into;
    } attributes[] = {
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, &major},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, &minor},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, &device->multiprocessors},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, &device->shared_per_block},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, &device->shared_per_multiprocessor},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, &device->l2_bytes},
    };
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        SUMI_CU(driver, cuDeviceGetAttribute(attributes[i].into, attributes[i].attribute, device->device),
                "reading the device's attributes");
    }
    char name[64] = "";
    SUMI_CU(driver, cuDeviceGetName(name, (int)sizeof name, device->device), "reading the device's name");
    name[sizeof name - 1] = 0;
    snprintf(device->name, sizeof device->name, "%s, driver %d.%d", name, (int)(driver->version / 1000),
             (int)(driver->version % 1000 / 10));
    size_t bytes = 0;
    SUMI_CU(driver, cuDeviceTotalMem(&bytes, device->device), "reading the device's memory size");
    device->bytes = bytes;
    CUuuid uuid;
    char luid[8];
    unsigned node_mask = 0;
    if (driver->cuDeviceGetUuid(&uuid, device->device) == CUDA_SUCCESS) memcpy(device->uuid, uuid.bytes, 16);
    if (driver->cuDeviceGetLuid != NULL && driver->cuDeviceGetLuid(luid, &node_mask, device->device) == CUDA_SUCCESS)
        memcpy(device->luid, luid, sizeof luid);
    device->capability = major * 10 + minor;
    if (device->capability < LOWEST_CAPABILITY) {
        return sumi_fail(
            error, SUMI_DEVICE_UNSUPPORTED,
            "%s has compute capability %d.%d; %d.%d or newer is needed: choose another device, or the CPU backend",
            name, major, minor, LOWEST_CAPABILITY / 10, LOWEST_CAPABILITY % 10);
    }
    return SUMI_OK;
}

// ---- Streams --------------------------------------------------------------------------------------------------------

// The context must be current.
static sumi_result open_streams(sumi_cuda_device* device, CUstream stream, sumi_error* error)
{
    const sumi_cuda_driver* driver = &device->driver;
    if (stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "cuda.stream is one of CUDA's two default streams, which other code waits for: give your "
                         "own stream, or NULL");
    }
    int least = 0, greatest = 0; // least: the numerically largest
    SUMI_CU(driver, cuCtxGetStreamPriorityRange(&least, &greatest), "asking for stream priorities");
    if (stream != NULL) {
        CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
        SUMI_CU(driver, cuStreamIsCapturing(stream, &status), "querying cuda.stream");
        if (status != CU_STREAM_CAPTURE_STATUS_NONE)
            return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                             "cuda.stream is being captured into a graph: end that first, or give another stream");
        device->compute = stream;
    } else {
        SUMI_CU(driver, cuStreamCreateWithPriority(&device->compute, CU_STREAM_NON_BLOCKING, least), "making a stream");
        device->owns_compute = true;
    }
    SUMI_CU(driver, cuStreamCreateWithPriority(&device->copy, CU_STREAM_NON_BLOCKING, least),
            "making a stream for copies");
    return SUMI_OK;
}

static sumi_result open_device(sumi_cuda_device* device, const sumi_engine_desc* desc, sumi_error* error)
{
    if (desc->cuda.context != NULL) SUMI_TRY(choose_by_context(device, desc, error));
    else SUMI_TRY(choose_device(device, desc, error));
    SUMI_TRY(read_attributes(device, error));
    // The primary context: everything else in this process that uses the CUDA runtime uses it, and a separate context
    // would cost sumi hundreds of megabytes.
    if (device->context == NULL) {
        SUMI_CU(&device->driver, cuDevicePrimaryCtxRetain(&device->context, device->device),
                "opening the device's primary context");
        device->has_primary = true;
    }
    sumi_cuda_scope scope;
    SUMI_TRY(sumi_cuda_enter(device, &scope, error));
    sumi_result result = open_streams(device, desc->cuda.stream, error);
    sumi_cuda_leave(device, &scope);
    return result;
}

bool sumi_cuda_has_hopper(const sumi_cuda_device* device, bool allows_hopper)
{
    enum { MAX_SHARED_BYTES = 232448 }; // of the kernels for Hopper
    return allows_hopper && device->capability == 90 && device->driver.cuTensorMapEncodeTiled != NULL
        && device->shared_per_block >= MAX_SHARED_BYTES;
}

sumi_result sumi_cuda_device_open(sumi_cuda_device* device, const sumi_engine_desc* desc, sumi_error* error)
{
    memset(device, 0, sizeof *device);
    SUMI_TRY(sumi_cuda_driver_open(&device->driver, error));
    const CUstreamCaptureMode mode = sumi_cuda_relax(&device->driver); // also for the calls that need no context
    sumi_result result = open_device(device, desc, error);
    sumi_cuda_unrelax(&device->driver, mode);
    if (result != SUMI_OK) sumi_cuda_device_close(device);
    return result;
}

void sumi_cuda_device_close(sumi_cuda_device* device)
{
    const sumi_cuda_driver* driver = &device->driver;
    sumi_cuda_scope scope;
    if ((device->copy != NULL || device->owns_compute) && sumi_cuda_enter(device, &scope, NULL) == SUMI_OK) {
        CUstream ours[2] = {device->copy, device->owns_compute ? device->compute : NULL};
        for (int i = 0; i < 2; i++) {
            if (ours[i] == NULL) continue;
            driver->cuStreamSynchronize(ours[i]);
            driver->cuStreamDestroy(ours[i]);
        }
        sumi_cuda_leave(device, &scope);
    }
    if (device->has_primary) {
        const CUstreamCaptureMode mode = sumi_cuda_relax(driver);
        driver->cuDevicePrimaryCtxRelease(device->device);
        sumi_cuda_unrelax(driver, mode);
    }
    memset(device, 0, sizeof *device);
}
