#include "cuda/port_cuda.h"
#include "base/assert.h"
#include "base/platform.h"
#include "cuda/graphs.h"
#include "cuda/state.h"

static sumi_cuda_port* port_of(sumi_device_port* port) { return (sumi_cuda_port*)port; }
static const sumi_cuda_driver* driver_of(sumi_device_port* port) { return &port_of(port)->device->driver; }
static CUstream copies_of(sumi_device_port* port) { return port_of(port)->device->copy; }
static CUstream stream_of(sumi_device_port* port, sumi_device_stream stream)
{
    const sumi_cuda_device* device = port_of(port)->device;
    return stream == SUMI_DEVICE_STREAM_COMPUTE ? device->compute : device->copy;
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

// Allocates pinned memory in large pages. The driver zeroes and locks small pages one by one: 4 MB take 1.4 ms (H200).
// Memory in large pages, which the driver only has to lock, takes a third of that.
static uint64_t register_large_pages(const sumi_cuda_driver* driver, size_t bytes)
{
    SUMI_ASSERT(bytes > 0);
    if (bytes % SUMI_LARGE_PAGE != 0 || driver->cuMemHostRegister == NULL || driver->cuMemHostUnregister == NULL)
        return 0;
    void* memory = sumi_large_pages_take(bytes);
    if (memory == NULL || driver->cuMemHostRegister(memory, bytes, CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS)
        return (uint64_t)(uintptr_t)memory;
    sumi_large_pages_give(memory, bytes);
    return 0;
}

static CUresult allocate_from_driver(const sumi_cuda_driver* driver, size_t bytes, sumi_memory_kind kind,
                                     uint64_t* out_address)
{
    CUresult result;
    if (kind == SUMI_MEMORY_STAGING) {
        void* host = NULL;
        // page-aligned, which is more than needed
        result = driver->cuMemHostAlloc(&host, bytes, CU_MEMHOSTALLOC_PORTABLE);
        *out_address = result == CUDA_SUCCESS ? (uint64_t)(uintptr_t)host : 0;
    } else {
        CUdeviceptr address = 0;
        result = driver->cuMemAlloc(&address, bytes);
        *out_address = address;
    }
    return result;
}

static sumi_result port_allocate(sumi_device_port* port, sumi_device_block* block, const char* what, sumi_error* error)
{
    const sumi_cuda_driver* driver = driver_of(port);
    block->address = block->kind == SUMI_MEMORY_STAGING ? register_large_pages(driver, (size_t)block->bytes) : 0;
    block->is_registered = block->address != 0;
    const CUresult result = block->is_registered
                              ? CUDA_SUCCESS
                              : allocate_from_driver(driver, (size_t)block->bytes, block->kind, &block->address);
    if (result == CUDA_SUCCESS) return SUMI_OK;
    block->address = 0;
    return result == CUDA_ERROR_OUT_OF_MEMORY ? SUMI_OK : sumi_cuda_failure(driver, result, what, error);
}

static void port_release(sumi_device_port* port, const sumi_device_block* block)
{
    SUMI_ASSERT(block->address != 0);
    const sumi_cuda_driver* driver = driver_of(port);
    void* host = (void*)(uintptr_t)block->address;
    if (block->is_registered) {
        driver->cuMemHostUnregister(host);
        sumi_large_pages_give(host, (size_t)block->bytes);
    } else if (block->kind == SUMI_MEMORY_STAGING) {
        driver->cuMemFreeHost(host);
    } else {
        driver->cuMemFree(block->address);
    }
}

// The driver frees the memory at the latest when the stream is next waited for.
static bool port_release_behind(sumi_device_port* port, const sumi_device_block* block)
{
    const sumi_cuda_driver* driver = driver_of(port);
    return driver->cuMemFreeAsync != NULL
        && driver->cuMemFreeAsync(block->address, port_of(port)->device->compute) == CUDA_SUCCESS;
}

static bool port_count_free(sumi_device_port* port, uint64_t* out_free_bytes, uint64_t* out_total_bytes)
{
    size_t free_bytes = 0, total_bytes = 0;
    const bool is_known = driver_of(port)->cuMemGetInfo(&free_bytes, &total_bytes) == CUDA_SUCCESS;
    *out_free_bytes = is_known ? free_bytes : 0;
    *out_total_bytes = is_known ? total_bytes : 0;
    return is_known;
}

// ---- Copies and kernels ---------------------------------------------------------------------------------------------

static sumi_result port_copy_in(sumi_device_port* port, const sumi_device_copy* copy, sumi_error* error)
{
    SUMI_CU(driver_of(port),
            cuMemcpyHtoDAsync(copy->to, (const void*)(uintptr_t)copy->from, (size_t)copy->bytes, copies_of(port)),
            copy->what);
    return SUMI_OK;
}

static sumi_result port_copy_rows_in(sumi_device_port* port, const sumi_device_rows* rows, sumi_error* error)
{
    const CUDA_MEMCPY2D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST,
                                .srcHost = (const void*)(uintptr_t)rows->from,
                                .srcPitch = (size_t)rows->from_pitch,
                                .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                                .dstDevice = rows->to,
                                .dstPitch = (size_t)rows->to_pitch,
                                .WidthInBytes = (size_t)rows->row_bytes,
                                .Height = (size_t)rows->row_count};
    SUMI_CU(driver_of(port), cuMemcpy2DAsync(&copy, copies_of(port)), rows->what);
    return SUMI_OK;
}

static sumi_result port_copy_within(sumi_device_port* port, const sumi_device_copy* copy, sumi_error* error)
{
    SUMI_CU(driver_of(port), cuMemcpyDtoDAsync(copy->to, copy->from, (size_t)copy->bytes, copies_of(port)), copy->what);
    return SUMI_OK;
}

static sumi_result port_copy_out(sumi_device_port* port, const sumi_device_copy* copy, sumi_error* error)
{
    SUMI_CU(driver_of(port),
            cuMemcpyDtoHAsync((void*)(uintptr_t)copy->to, copy->from, (size_t)copy->bytes, copies_of(port)),
            copy->what);
    return SUMI_OK;
}

static sumi_result port_launch(sumi_device_port* port, const sumi_device_launch* launch, sumi_error* error)
{
    CUfunction function;
    SUMI_TRY(sumi_cuda_kernel(port_of(port)->modules, launch->kernel, 0, &function, error));
    void* params[] = {launch->args};
    SUMI_CU(driver_of(port),
            cuLaunchKernel(function, launch->blocks, 1, 1, launch->threads, 1, 1, 0, copies_of(port), params, NULL),
            launch->kernel);
    return SUMI_OK;
}

// ---- Events ---------------------------------------------------------------------------------------------------------

static sumi_result port_make_event(sumi_device_port* port, bool sleeps, sumi_device_event** out_event,
                                   sumi_error* error)
{
    CUevent event = NULL;
    *out_event = NULL;
    SUMI_CU(driver_of(port),
            cuEventCreate(&event, (sleeps ? CU_EVENT_BLOCKING_SYNC : CU_EVENT_DEFAULT) | CU_EVENT_DISABLE_TIMING),
            "making an event");
    *out_event = (sumi_device_event*)event;
    return SUMI_OK;
}

static void port_destroy_event(sumi_device_port* port, sumi_device_event* event)
{
    driver_of(port)->cuEventDestroy((CUevent)event);
}

static sumi_result port_record(sumi_device_port* port, sumi_device_event* event, sumi_device_stream stream,
                               const char* what, sumi_error* error)
{
    SUMI_CU(driver_of(port), cuEventRecord((CUevent)event, stream_of(port, stream)), what);
    return SUMI_OK;
}

static sumi_result port_query(sumi_device_port* port, sumi_device_event* event, bool* out_passed, const char* what,
                              sumi_error* error)
{
    const CUresult state = driver_of(port)->cuEventQuery((CUevent)event);
    *out_passed = state == CUDA_SUCCESS;
    return state == CUDA_SUCCESS || state == CUDA_ERROR_NOT_READY
             ? SUMI_OK
             : sumi_cuda_failure(driver_of(port), state, what, error);
}

static sumi_result port_wait(sumi_device_port* port, sumi_device_event* event, const char* what, sumi_error* error)
{
    SUMI_CU(driver_of(port), cuEventSynchronize((CUevent)event), what);
    return SUMI_OK;
}

static sumi_result port_order(sumi_device_port* port, sumi_device_stream stream, sumi_device_event* event,
                              const char* what, sumi_error* error)
{
    SUMI_CU(driver_of(port), cuStreamWaitEvent(stream_of(port, stream), (CUevent)event, 0), what);
    return SUMI_OK;
}

static sumi_result port_wait_for_copies(sumi_device_port* port, const char* what, sumi_error* error)
{
    const CUresult result = driver_of(port)->cuStreamSynchronize(copies_of(port));
    if (result == CUDA_SUCCESS) return SUMI_OK;
    return error == NULL ? SUMI_INTERNAL : sumi_cuda_failure(driver_of(port), result, what, error);
}

static void port_wait_for_all(sumi_device_port* port) { sumi_cuda_wait_for_streams(port_of(port)->cuda); }

// ---- Page locks -----------------------------------------------------------------------------------------------------

// Without the attribute a mapping could be locked only as memory that the device may write, but mappings of files are
// read-only.
static bool port_can_lock_pages(sumi_device_port* port)
{
    const sumi_cuda_device* device = port_of(port)->device;
    const sumi_cuda_driver* driver = &device->driver;
    int reads_only = 0;
    if (driver->cuDeviceGetAttribute(&reads_only, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, device->device)
        != CUDA_SUCCESS)
        reads_only = 0;
    return reads_only != 0 && driver->cuMemHostRegister != NULL && driver->cuMemHostUnregister != NULL
        && driver->cuMemcpy2DAsync != NULL;
}

// No permission, no more lockable memory, or a file system whose pages cannot be locked: only a lost device is a
// failure.
static sumi_result port_lock_pages(sumi_device_port* port, void* begin, uint64_t bytes, bool* out_locked,
                                   sumi_error* error)
{
    const sumi_cuda_driver* driver = driver_of(port);
    const CUresult result =
        driver->cuMemHostRegister(begin, (size_t)bytes, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_READ_ONLY);
    *out_locked = result == CUDA_SUCCESS;
    return sumi_cuda_loses_context(result) ? sumi_cuda_failure(driver, result, "page-locking a mapped file", error)
                                           : SUMI_OK;
}

static void port_unlock_pages(sumi_device_port* port, void* begin) { driver_of(port)->cuMemHostUnregister(begin); }

// ---- The port -------------------------------------------------------------------------------------------------------

// The room `device` knows only the first member of the runner's record of a plan.
static void port_drop_recordings(sumi_device_port* port, sumi_device_plan* plan)
{
    sumi_cuda_drop_graphs(port_of(port)->cuda, (sumi_cuda_plan*)plan);
}

static const sumi_device_port_functions s_functions = {.allocate = port_allocate,
                                                       .release = port_release,
                                                       .release_behind = port_release_behind,
                                                       .count_free = port_count_free,
                                                       .copy_in = port_copy_in,
                                                       .copy_rows_in = port_copy_rows_in,
                                                       .copy_within = port_copy_within,
                                                       .copy_out = port_copy_out,
                                                       .launch = port_launch,
                                                       .make_event = port_make_event,
                                                       .destroy_event = port_destroy_event,
                                                       .record = port_record,
                                                       .query = port_query,
                                                       .wait = port_wait,
                                                       .order = port_order,
                                                       .wait_for_copies = port_wait_for_copies,
                                                       .wait_for_all = port_wait_for_all,
                                                       .can_lock_pages = port_can_lock_pages,
                                                       .lock_pages = port_lock_pages,
                                                       .unlock_pages = port_unlock_pages,
                                                       .drop_recordings = port_drop_recordings};

void sumi_cuda_port_init(sumi_cuda_port* port, const sumi_cuda_device* device, sumi_cuda* cuda)
{
    *port = (sumi_cuda_port){.port = {&s_functions}, .device = device, .cuda = cuda};
}
