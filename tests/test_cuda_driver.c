// Opening driver and device, device memory, loading kernels: on a driver that needs no GPU (fake_cuda).
#if !defined(SUMI_HAS_CUDA)
#include "test.h"
TEST(driver) { SKIP("built without CUDA"); }
int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(driver);
    TEST_END();
}
#else
#include "base/platform.h"
#include "cards.h"
#include "cuda/cuda.h"
#include "cuda/modules.h"
#include "cuda/port_cuda.h"
#include "device/device_memory.h"
#include "fake_cuda.h"
#include "system.h"
#include "test.h"
#include <zlib.h>
#if defined(__linux__)
#include <errno.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

static sumi_engine_desc defaults(void) { return (sumi_engine_desc){.cuda = {.ordinal = -1}}; }

// Nothing of ours is left, no rule was broken, and this thread's context is what it was.
static void check_clean(struct CUctx_st* current)
{
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
    CHECK_NUMBER(fake_context_depth(), 0);
    CHECK(fake_current() == current);
}

// ---- Driver ---------------------------------------------------------------------------------------------------------

TEST(opens_the_driver)
{
    fake_reset();
    fake_has_linker(true);
    sumi_cuda_driver driver;
    sumi_error error = {0};
    CHECK(sumi_cuda_driver_open(&driver, &error) == SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK_NUMBER(driver.version, 13000);
#define IS_THERE(name, version, needed) CHECK(driver.name != NULL);
    SUMI_CUDA_ENTRIES(IS_THERE)
#undef IS_THERE
    check_clean(NULL);
}

TEST(finds_exported_names_when_the_lookup_is_old)
{
    fake_reset();
    fake_has_linker(true);
    sumi_cuda_driver asked, exported;
    CHECK(sumi_cuda_driver_open(&asked, NULL) == SUMI_OK);
    fake_old_lookup(true);
    CHECK(sumi_cuda_driver_open(&exported, NULL) == SUMI_OK);
    CHECK(memcmp(&asked, &exported, sizeof asked) == 0); // the same functions
}

TEST(a_driver_without_a_device_is_no_device)
{
    const int codes[] = {100, 34, 803, 804, 999, 3};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        fake_reset();
        sumi_cuda_driver driver;
        sumi_error error = {0};
        fake_fail_call("cuInit", 1, codes[i]);
        CHECK_NUMBER(sumi_cuda_driver_open(&driver, &error), SUMI_NO_DEVICE);
        CHECK(strstr(error.text, "CPU backend") != NULL);
        CHECK(driver.cuInit == NULL);
    }
    fake_reset();
    fake_devices(0, 90);
    sumi_cuda_driver driver;
    sumi_error error = {0};
    CHECK_NUMBER(sumi_cuda_driver_open(&driver, &error), SUMI_NO_DEVICE);
    CHECK(strstr(error.text, "CUDA_ERROR_NO_DEVICE") != NULL);
}

TEST(an_old_driver_is_reported)
{
    fake_reset();
    sumi_cuda_driver driver;
    sumi_error error = {0};
    fake_driver_version(11030);
    CHECK_NUMBER(sumi_cuda_driver_open(&driver, &error), SUMI_DRIVER_TOO_OLD);
    CHECK(strstr(error.text, "11.3") != NULL && strstr(error.text, "11.4") != NULL);
    fake_driver_version(11040); // the oldest: without the entries of newer ones that can be done without
    error = (sumi_error){0};
    CHECK_NUMBER(sumi_cuda_driver_open(&driver, &error), SUMI_OK);
    CHECK_NUMBER(driver.version, 11040);
    CHECK(driver.cuTensorMapEncodeTiled == NULL && driver.cuLaunchKernelEx == NULL);
}

TEST(each_needed_entry_is_missed)
{
#define MISS(entry, abi, needed)                                                                                       \
    {                                                                                                                  \
        fake_reset();                                                                                                  \
        fake_lack_entry(#entry);                                                                                       \
        sumi_cuda_driver driver;                                                                                       \
        sumi_error error = {0};                                                                                        \
        sumi_result result = sumi_cuda_driver_open(&driver, &error);                                                   \
        if (strcmp(#entry, "cuInit") == 0)                                                                             \
            CHECK_NUMBER(result, SUMI_OK); /* then the lookup is not believed, and names are looked for */             \
        else if (strcmp(#entry, "cuDriverGetVersion") == 0) CHECK_NUMBER(result, SUMI_NO_DEVICE);                      \
        else if (needed) CHECK(result == SUMI_DRIVER_TOO_OLD && strstr(error.text, #entry) != NULL);                   \
        else CHECK(result == SUMI_OK && driver.entry == NULL);                                                         \
    }
    SUMI_CUDA_ENTRIES(MISS)
#undef MISS
    fake_reset();
}

TEST(failures_become_results)
{
    fake_reset();
    sumi_cuda_driver driver;
    CHECK(sumi_cuda_driver_open(&driver, NULL) == SUMI_OK);
    const struct {
        int code;
        sumi_result result;
    } cases[] = {
        {1, SUMI_INTERNAL},
        {2, SUMI_OUT_OF_DEVICE_MEMORY},
        {4, SUMI_DEVICE_LOST},
        {34, SUMI_NO_DEVICE},
        {36, SUMI_DRIVER_TOO_OLD},
        {100, SUMI_NO_DEVICE},
        {209, SUMI_DEVICE_UNSUPPORTED},
        {214, SUMI_DEVICE_LOST},
        {222, SUMI_DRIVER_TOO_OLD},
        {304, SUMI_INTERNAL},
        {600, SUMI_DEVICE_LOST}, // not from a call that asks whether something is ready
        {700, SUMI_DEVICE_LOST},
        {702, SUMI_DEVICE_LOST},
        {709, SUMI_DEVICE_LOST},
        {715, SUMI_DEVICE_LOST},
        {716, SUMI_DEVICE_LOST},
        {719, SUMI_DEVICE_LOST},
        {801, SUMI_INTERNAL},
        {803, SUMI_NO_DEVICE},
        {804, SUMI_NO_DEVICE},
        {999, SUMI_DEVICE_LOST},
        {12345, SUMI_DEVICE_LOST},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        sumi_error error = {0};
        CHECK_NUMBER(sumi_cuda_failure(&driver, (CUresult)cases[i].code, "folding paper", &error), cases[i].result);
        CHECK(strncmp(error.text, "folding paper: ", 15) == 0);
    }
    sumi_error error = {0};
    sumi_cuda_failure(&driver, CUDA_ERROR_LAUNCH_FAILED, "folding paper", &error);
    CHECK_TEXT(error.text, "folding paper: CUDA_ERROR_LAUNCH_FAILED (719: unspecified launch failure); the CUDA "
                           "context is lost for everything in this process that used it: destroy the engine "
                           "and make a new one in a new context");
    error = (sumi_error){0};
    sumi_cuda_failure(&driver, (CUresult)600, "folding paper", &error);
    CHECK_TEXT(error.text, "folding paper: CUDA_ERROR_NOT_READY (600: device not ready); the driver gave an unexpected "
                           "answer, so the CUDA context counts as lost: destroy the engine and make a new one in a new "
                           "context");
    error = (sumi_error){0};
    sumi_cuda_failure(&driver, (CUresult)12345, "folding paper", &error);
    CHECK(strncmp(error.text, "folding paper: an unknown error (12345: no description); the driver gave", 72) == 0);
}

// ---- Device ---------------------------------------------------------------------------------------------------------

TEST(opens_and_closes_the_first_device)
{
    fake_reset();
    struct CUctx_st* host = fake_host_context(0);
    fake_make_current(host); // of the host, and to stay
    sumi_engine_desc desc = defaults();
    sumi_cuda_device device;
    sumi_error error = {0};
    CHECK(sumi_cuda_device_open(&device, &desc, &error) == SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK_TEXT(device.name, "Fake 0, driver 13.0");
    CHECK_NUMBER(device.capability, 90);
    CHECK_NUMBER(device.multiprocessors, 132);
    CHECK_NUMBER(device.shared_per_block, 232448);
    CHECK_NUMBER(device.shared_per_multiprocessor, 233472);
    CHECK_NUMBER(device.l2_bytes, 52428800);
    CHECK_NUMBER(device.bytes, 1 << 30);
    CHECK(device.has_primary && device.owns_compute && device.compute != device.copy);
    CHECK_NUMBER(fake_held_kind("stream"), 2);
    CHECK(fake_current() == host);
    sumi_cuda_scope scope;
    CHECK(sumi_cuda_enter(&device, &scope, &error) == SUMI_OK);
    CHECK(fake_current() == device.context && fake_context_depth() == 1);
    sumi_cuda_leave(&device, &scope);
    CHECK(fake_current() == host);
    sumi_cuda_device_close(&device);
    sumi_cuda_device_close(&device); // a closed one
    CHECK(device.context == NULL);
    fake_make_current(NULL);
    fake_host_release(host);
    check_clean(NULL);
}

TEST(chooses_by_ordinal_uuid_and_luid)
{
    fake_reset();
    fake_devices(3, 86);
    uint8_t uuid[16], luid[8];
    for (int i = 0; i < 16; i++) uuid[i] = (uint8_t)(16 + i);
    for (int i = 0; i < 8; i++) luid[i] = (uint8_t)(8 + i + 1); // all of device 1
    sumi_cuda_device device;
    for (int kind = 0; kind < 4; kind++) {
        sumi_engine_desc desc = defaults();
        if (kind == 0 || kind == 3) desc.cuda.ordinal = 1;
        if (kind == 1 || kind == 3) desc.cuda.uuid = uuid;
        if (kind == 2 || kind == 3) desc.cuda.luid = luid;
        CHECK(sumi_cuda_device_open(&device, &desc, NULL) == SUMI_OK);
        CHECK_NUMBER(device.device, 1);
        sumi_cuda_device_close(&device);
    }
    for (int kind = 0; kind < 4; kind++) {
        sumi_engine_desc desc = defaults();
        uint8_t other[16] = {9};
        sumi_error error = {0};
        if (kind == 0) desc.cuda.ordinal = 3;
        if (kind == 1) desc.cuda.uuid = other;
        if (kind == 2) desc.cuda.luid = other;
        if (kind == 3) desc.cuda.ordinal = 0, desc.cuda.uuid = uuid; // of two devices
        CHECK_NUMBER(sumi_cuda_device_open(&device, &desc, &error), SUMI_NO_DEVICE);
        CHECK(error.text[0] != 0);
        check_clean(NULL);
    }
}

TEST(refuses_a_device_before_8_0)
{
    fake_reset();
    fake_devices(1, 75);
    sumi_engine_desc desc = defaults();
    sumi_cuda_device device;
    sumi_error error = {0};
    CHECK_NUMBER(sumi_cuda_device_open(&device, &desc, &error), SUMI_DEVICE_UNSUPPORTED);
    CHECK(strstr(error.text, "7.5") != NULL && strstr(error.text, "8.0") != NULL);
    check_clean(NULL);
}

TEST(honours_the_hosts_context_and_stream)
{
    fake_reset();
    fake_devices(2, 90);
    struct CUctx_st* context = fake_host_context(1);
    struct CUstream_st* stream = fake_host_stream(context);
    sumi_engine_desc desc = defaults();
    desc.cuda.context = context;
    desc.cuda.stream = stream;
    sumi_cuda_device device;
    sumi_error error = {0};
    CHECK(sumi_cuda_device_open(&device, &desc, &error) == SUMI_OK);
    CHECK(device.context == context && device.compute == stream && !device.has_primary && !device.owns_compute);
    CHECK_NUMBER(device.device, 1);
    CHECK_NUMBER(fake_held_kind("context"), 1); // the host program's alone
    sumi_cuda_device_close(&device);
    CHECK_NUMBER(fake_held(), 2); // the host program's, still alive
    desc.cuda.ordinal = 1;
    CHECK(sumi_cuda_device_open(&device, &desc, NULL) == SUMI_OK); // says the same
    sumi_cuda_device_close(&device);

    uint8_t uuid[16] = {0};
    for (int kind = 0; kind < 4; kind++) {
        desc = defaults();
        desc.cuda.context = context;
        if (kind == 0) desc.cuda.ordinal = 0;
        if (kind == 1) desc.cuda.ordinal = 17;
        if (kind == 2) desc.cuda.uuid = uuid;
        if (kind == 3) desc.cuda.luid = uuid;
        error = (sumi_error){0};
        CHECK_NUMBER(sumi_cuda_device_open(&device, &desc, &error), SUMI_INVALID_ARGUMENT);
        CHECK(strstr(error.text, "cuda.") != NULL);
    }
    fake_host_release(stream);
    fake_host_release(context);
    check_clean(NULL);
}

TEST(refuses_streams_it_may_not_use)
{
    fake_reset();
    struct CUctx_st* context = fake_host_context(0);
    struct CUstream_st* stream = fake_host_stream(context);
    sumi_engine_desc desc = defaults();
    sumi_cuda_device device;
    sumi_error error = {0};
    desc.cuda.context = context;
    desc.cuda.stream = stream;
    fake_host_begin_capture(stream);
    CHECK_NUMBER(sumi_cuda_device_open(&device, &desc, &error), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(error.text, "captured") != NULL);
    CHECK(fake_host_end_capture(stream));
    CUstream defaults_of_cuda[2] = {CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    for (int i = 0; i < 2; i++) {
        desc.cuda.stream = defaults_of_cuda[i];
        error = (sumi_error){0};
        CHECK_NUMBER(sumi_cuda_device_open(&device, &desc, &error), SUMI_INVALID_ARGUMENT);
        CHECK(strstr(error.text, "default streams") != NULL);
    }
    fake_host_release(stream);
    fake_host_release(context);
    check_clean(NULL);
}

TEST(any_call_may_fail_while_opening)
{
    const char* const names[] = {"cuInit",
                                 "cuDeviceGetCount",
                                 "cuDeviceGet",
                                 "cuDeviceGetAttribute",
                                 "cuDeviceGetName",
                                 "cuDeviceTotalMem",
                                 "cuDevicePrimaryCtxRetain",
                                 "cuCtxPushCurrent",
                                 "cuCtxGetStreamPriorityRange",
                                 "cuStreamCreateWithPriority"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool has_failed = true;
        for (int nth = 1; has_failed && nth < 20; nth++) {
            fake_reset();
            fake_fail_call(names[i], nth, 719);
            sumi_engine_desc desc = defaults();
            sumi_cuda_device device;
            sumi_error error = {0};
            sumi_result result = sumi_cuda_device_open(&device, &desc, &error);
            has_failed = fake_fail_call(NULL, 0, 0);
            CHECK(nth > 1 || has_failed); // each is called at all
            CHECK_NUMBER(result, !has_failed ? SUMI_OK : i == 0 ? SUMI_NO_DEVICE : SUMI_DEVICE_LOST);
            CHECK((error.text[0] != 0) == has_failed);
            if (has_failed) check_clean(NULL);
            sumi_cuda_device_close(&device); // of a failed one too
            check_clean(NULL);
        }
    }
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

typedef struct fixture {
    sumi_cuda_device device;
    sumi_cuda_scope scope;
    sumi_cuda_port port;
    sumi_device_memory memory;
    sumi_heap heap;
    sumi_error error;
} fixture;

static void begin(fixture* f, const sumi_device_allocator* allocator)
{
    memset(f, 0, sizeof *f);
    sumi_engine_desc desc = defaults();
    CHECK(sumi_cuda_device_open(&f->device, &desc, NULL) == SUMI_OK);
    CHECK(sumi_cuda_enter(&f->device, &f->scope, NULL) == SUMI_OK);
    sumi_cuda_port_init(&f->port, &f->device, NULL);
    sumi_device_memory_init(&f->memory, &f->port.port, allocator);
    sumi_heap_init(&f->heap, NULL);
}

static void end(fixture* f)
{
    for (int kind = 0; kind < 4; kind++) CHECK_NUMBER(atomic_load(&f->memory.held_bytes[kind]), 0);
    CHECK_NUMBER(atomic_load(&f->heap.allocated_bytes), 0);
    sumi_cuda_leave(&f->device, &f->scope);
    sumi_cuda_device_close(&f->device);
    check_clean(NULL);
}

TEST(memory_is_counted_by_kind)
{
    fake_reset();
    fixture f;
    begin(&f, NULL);
    sumi_device_block blocks[4];
    for (int kind = 0; kind < 4; kind++) {
        CHECK(sumi_device_allocate(&f.memory, 1000 + (uint64_t)kind, (sumi_memory_kind)kind, "a test", &blocks[kind],
                                   &f.error)
              == SUMI_OK);
        CHECK(blocks[kind].address != 0 && blocks[kind].address % 512 == 0
              && blocks[kind].bytes >= 1000 + (uint64_t)kind);
        CHECK_NUMBER(atomic_load(&f.memory.held_bytes[kind]), blocks[kind].bytes);
    }
    CHECK_NUMBER(fake_held_kind("device"), 3);
    CHECK_NUMBER(fake_held_kind("pinned"), 1);
    memset(sumi_device_host(&blocks[SUMI_MEMORY_STAGING]), 1, 1003);
    sumi_device_block none;
    CHECK(sumi_device_allocate(&f.memory, 0, SUMI_MEMORY_ARENA, "nothing", &none, &f.error)
          == SUMI_OK); // a valid block
    CHECK(none.address != 0);
    sumi_device_release(&f.memory, &none);
    for (int kind = 0; kind < 4; kind++) sumi_device_release(&f.memory, &blocks[kind]);
    for (int kind = 0; kind < 4; kind++) CHECK_NUMBER(blocks[kind].address, 0);
    sumi_device_release(&f.memory, &blocks[0]); // a released one
    end(&f);
}

// Large pages that the driver only locks; where it does not, or not these, or the system has none, its own.
TEST(large_pinned_memory_is_locked_and_given_back)
{
    void* pages = sumi_large_pages_take(SUMI_LARGE_PAGE);
    const bool has_large_pages = pages != NULL;
    sumi_large_pages_give(pages, SUMI_LARGE_PAGE);
#if defined(__linux__)
    CHECK(has_large_pages);
#endif
    for (int way = 0; way < 3; way++) {
        fake_reset();
        fixture f;
        begin(&f, NULL);
        const uint64_t bytes = way == 2 ? (4u << 20) + 512 : 4u << 20; // no whole number of large pages
        if (way == 1) fake_fail_call("cuMemHostRegister", 1, CUDA_ERROR_NOT_PERMITTED);
        sumi_device_block block;
        CHECK(sumi_device_allocate(&f.memory, bytes, SUMI_MEMORY_STAGING, "a test", &block, &f.error) == SUMI_OK);
        CHECK(block.is_registered == (way == 0 && has_large_pages) && block.bytes == bytes);
        if (t_errors != 0) return;
        memset(sumi_device_host(&block), 1, (size_t)bytes);
        CHECK_NUMBER(fake_held_kind("pinned"), 1);
        sumi_device_release(&f.memory, &block);
        CHECK_NUMBER(fake_held_kind("pinned"), 0);
        CHECK_NUMBER(atomic_load(&f.memory.held_bytes[SUMI_MEMORY_STAGING]), 0);
        end(&f);
    }
}

#if defined(__linux__)
// If a child had them, a write of this process could move it away from the pages that the driver has locked.
TEST(a_child_process_does_not_have_the_large_pages)
{
    char* pages = sumi_large_pages_take(SUMI_LARGE_PAGE);
    int ends[2];
    CHECK(pages != NULL && pipe(ends) == 0);
    if (pages == NULL) return;
    pages[0] = 7;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) _exit(write(ends[1], pages, 1) == -1 && errno == EFAULT ? 0 : 1);
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(write(ends[1], pages, 1) == 1);
    close(ends[0]), close(ends[1]);
    sumi_large_pages_give(pages, SUMI_LARGE_PAGE);
}
#endif

TEST(memory_may_run_out)
{
    fake_reset();
    fixture f;
    begin(&f, NULL);
    for (int kind = 0; kind < 4; kind++) {
        f.error = (sumi_error){0};
        sumi_device_block block = {.address = 1, .bytes = 1, .kind = SUMI_MEMORY_ARENA};
        fake_fail_allocation(1);
        CHECK_NUMBER(sumi_device_allocate(&f.memory, 3 << 20, (sumi_memory_kind)kind, "the sails", &block, &f.error),
                     kind == SUMI_MEMORY_STAGING ? SUMI_OUT_OF_HOST_MEMORY : SUMI_OUT_OF_DEVICE_MEMORY);
        CHECK(strstr(f.error.text, "3.0 MiB") != NULL && strstr(f.error.text, "the sails") != NULL);
        CHECK(block.address == 0 && block.bytes == 0);
        CHECK_NUMBER(atomic_load(&f.memory.held_bytes[kind]), 0);
        CHECK(sumi_device_allocate(&f.memory, 3 << 20, (sumi_memory_kind)kind, "the sails", &block, NULL) == SUMI_OK);
        sumi_device_release(&f.memory, &block);
    }
    sumi_device_block block;
    CHECK_NUMBER(
        sumi_device_allocate(&f.memory, (uint64_t)2 << 30, SUMI_MEMORY_WEIGHTS, "more than there is", &block, NULL),
        SUMI_OUT_OF_DEVICE_MEMORY);
    CHECK_NUMBER(
        sumi_device_allocate(&f.memory, UINT64_MAX - 5, SUMI_MEMORY_WEIGHTS, "more than there is", &block, NULL),
        SUMI_OUT_OF_DEVICE_MEMORY);
    f.error = (sumi_error){0};
    fake_fail_call("cuMemAlloc", 1, 700);
    CHECK_NUMBER(sumi_device_allocate(&f.memory, 100, SUMI_MEMORY_WEIGHTS, "the sails", &block, &f.error),
                 SUMI_DEVICE_LOST);
    end(&f);
}

typedef struct host_memory {
    const fixture* fixture;
    int64_t held[4], calls;
    bool is_empty, is_crooked;
} host_memory;

static uint64_t host_allocate(size_t bytes, size_t alignment, sumi_memory_kind kind, void* user_data)
{
    host_memory* host = user_data;
    host->calls++;
    CHECK(bytes % alignment == 0 && alignment == 512);
    CHECK(fake_current() == host->fixture->device.context);
    if (host->is_empty) return 0;
    host->held[kind] += (int64_t)bytes;
    return 0x700000000000u + (uint64_t)kind * 0x10000u + (host->is_crooked ? 64 : 0);
}

static void host_release(uint64_t address, size_t bytes, sumi_memory_kind kind, void* user_data)
{
    host_memory* host = user_data;
    CHECK(address == 0x700000000000u + (uint64_t)kind * 0x10000u + (host->is_crooked ? 64 : 0));
    host->held[kind] -= (int64_t)bytes;
}

TEST(memory_comes_from_the_hosts_allocator)
{
    fake_reset();
    fixture f;
    host_memory host = {.fixture = &f};
    const sumi_device_allocator allocator = {host_allocate, host_release, &host};
    begin(&f, &allocator);
    for (int kind = 0; kind < 4; kind++) {
        sumi_device_block block;
        CHECK(sumi_device_allocate(&f.memory, 700, (sumi_memory_kind)kind, "a test", &block, &f.error) == SUMI_OK);
        CHECK_NUMBER(host.held[kind], 1024);
        CHECK_NUMBER(atomic_load(&f.memory.held_bytes[kind]), 1024);
        sumi_device_release(&f.memory, &block);
        CHECK_NUMBER(host.held[kind], 0);
    }
    CHECK_NUMBER(host.calls, 4);
    CHECK_NUMBER(fake_allocation_count(), 0); // nothing behind its back
    sumi_device_block block;
    host.is_crooked = true;
    CHECK_NUMBER(sumi_device_allocate(&f.memory, 700, SUMI_MEMORY_ARENA, "a test", &block, &f.error),
                 SUMI_OUT_OF_DEVICE_MEMORY);
    CHECK(strstr(f.error.text, "512") != NULL);
    CHECK_NUMBER(host.held[SUMI_MEMORY_ARENA], 0);
    host.is_empty = true;
    CHECK_NUMBER(sumi_device_allocate(&f.memory, 700, SUMI_MEMORY_WEIGHTS, "a test", &block, NULL),
                 SUMI_OUT_OF_DEVICE_MEMORY);
    CHECK_NUMBER(sumi_device_allocate(&f.memory, 700, SUMI_MEMORY_STAGING, "a test", &block, NULL),
                 SUMI_OUT_OF_HOST_MEMORY);
    end(&f);
}

// ---- Kernels --------------------------------------------------------------------------------------------------------

static sumi_result load_all(fixture* f, const sumi_cuda_image* images, int32_t count, sumi_cuda_modules** out_modules)
{
    SUMI_TRY(sumi_cuda_modules_create(&f->heap, &f->device, images, count, &f->error, out_modules));
    bool is_done = false;
    float progress = 0.0f, last = 0.0f;
    for (int steps = 0; !is_done && steps < 1000; steps++, last = progress) {
        SUMI_TRY(sumi_cuda_modules_step(*out_modules, &is_done, &progress, &f->error));
        CHECK(progress >= last && progress <= 1.0f);
    }
    CHECK(is_done && progress == 1.0f);
    return SUMI_OK;
}

// Of which of the built-in PTX images a device of this capability must be able to run something.
static bool has_source(int32_t image, int32_t capability)
{
    const int32_t target = sumi_cuda_images[image].target;
    return target == 90 ? target == capability : target <= capability;
}

TEST(every_device_finds_its_kernels)
{
    if (sumi_cuda_image_count == 0) SKIP("there are no kernels in this build");
    const int32_t capabilities[] = {80, 86, 87, 89, 90, 100, 103, 120, 121, 130};
    for (size_t c = 0; c < sizeof capabilities / sizeof capabilities[0]; c++) {
        for (int takes_binaries = 0; takes_binaries < 2; takes_binaries++) {
            fake_reset();
            fake_devices(1, capabilities[c]);
            fake_take_binaries(takes_binaries);
            fixture f;
            begin(&f, NULL);
            sumi_cuda_modules* modules = NULL;
            CHECK(load_all(&f, sumi_cuda_images, sumi_cuda_image_count, &modules) == SUMI_OK);
            CHECK_TEXT(f.error.text, "");
            int64_t expected = 0;
            for (int32_t i = 0; i < sumi_cuda_image_count; i++) {
                const sumi_cuda_image* image = &sumi_cuda_images[i];
                if (image->is_binary) continue;
                const bool runs = has_source(i, capabilities[c]);
                if (runs) expected++;
                for (int32_t k = 0; k < image->kernel_count; k++) {
                    CHECK(sumi_cuda_has_kernel(modules, image->kernels[k]) == runs);
                    CUfunction function = NULL, again = NULL;
                    sumi_result result = sumi_cuda_kernel(modules, image->kernels[k], 1024, &function, NULL);
                    CHECK_NUMBER(result, runs ? SUMI_OK : SUMI_INTERNAL);
                    CHECK((function != NULL) == runs);
                    if (runs)
                        CHECK(sumi_cuda_kernel(modules, image->kernels[k], 0, &again, NULL) == SUMI_OK
                              && again == function);
                }
            }
            CHECK_NUMBER(fake_held_kind("module"), expected);
            CHECK(fake_calls("cuModuleLoadDataEx") <= (uint64_t)sumi_cuda_image_count); // none is tried twice
            sumi_cuda_modules_destroy(modules);
            end(&f);
        }
    }
}

// ---- Machine code -----------------------------------------------------------------------------------------------------

// What a device of each capability loads of four sources: numbers of images of these targets.
static const struct {
    int32_t capability, targets[4];
    bool is_text;
} s_loads[] = {{80, {80, 80}, false},         {86, {80, 86}, false},         {87, {80, 86}, false},
               {89, {80, 86, 89}, false},     {90, {90, 90, 90, 90}, false}, {100, {100, 100, 100}, false},
               {103, {100, 100, 100}, false}, {120, {120, 120, 120}, false}, {121, {120, 120, 120}, false},
               {110, {80, 80, 89}, true},     {130, {80, 80, 89}, true}};

static int32_t count_of(const int32_t targets[4], int32_t target)
{
    int32_t count = 0;
    for (int i = 0; i < 4; i++) count += targets[i] == target;
    return count;
}

// As kernels/build.sh makes them for all GPUs: of any kernels, of those that 8.6 computes better, of e4m3, of Hopper.
TEST(a_device_loads_the_newest_machine_code_that_it_runs)
{
    static const struct {
        const char* source;
        int32_t text, codes[6];
    } s_sources[] = {{"any", 80, {80, 90, 100, 120}},
                     {"int8", 80, {80, 86, 90, 100, 120}},
                     {"fp8", 89, {89, 90, 100, 120}},
                     {"hopper", 90, {90}}};
    static const char* const s_kernels[4][1] = {{"sumi_a"}, {"sumi_b"}, {"sumi_c"}, {"sumi_d"}};
    static unsigned char s_packed[24][256];
    sumi_cuda_image images[24];
    int32_t count = 0;
    for (int s = 0; s < 4; s++)
        for (int i = -1; i < 6 && (i < 0 || s_sources[s].codes[i] > 0); i++) {
            const int32_t target = i < 0 ? s_sources[s].text : s_sources[s].codes[i];
            unsigned char data[200] = "\177ELF\2\1\1\101\10";
            uLong bytes = 64;
            data[49] = (unsigned char)target; // the second byte of the flags
            if (i < 0)
                bytes = (uLong)snprintf((char*)data, sizeof data,
                                        ".version 7.4\n.target sm_%d%s\n.visible .entry %s(\n\t.param .u64 p\n)\n{\n"
                                        "\tret;\n}\n",
                                        (int)target, target == 90 ? "a" : "", s_kernels[s][0])
                      + 1;
            uLongf packed_bytes = sizeof s_packed[count];
            CHECK(compress2(s_packed[count], &packed_bytes, data, bytes, 9) == Z_OK);
            images[count] = (sumi_cuda_image){s_sources[s].source,    target,          i >= 0,       s_packed[count],
                                              (uint32_t)packed_bytes, (uint32_t)bytes, s_kernels[s], 1};
            count++;
        }
    for (size_t c = 0; c < sizeof s_loads / sizeof *s_loads; c++) {
        fake_reset();
        fake_devices(1, s_loads[c].capability);
        fake_take_binaries(true);
        fixture f;
        begin(&f, NULL);
        sumi_cuda_modules* modules = NULL;
        CHECK(load_all(&f, images, count, &modules) == SUMI_OK);
        CHECK_TEXT(f.error.text, "");
        for (int32_t target = 70; target < 140; target++) {
            const int32_t expected = count_of(s_loads[c].targets, target);
            if (fake_images(target, !s_loads[c].is_text) != expected)
                printf("  on %d: %d images of %d\n", (int)s_loads[c].capability,
                       fake_images(target, !s_loads[c].is_text), (int)target);
            CHECK_NUMBER(fake_images(target, !s_loads[c].is_text), expected);
        }
        CHECK_NUMBER(fake_images(0, s_loads[c].is_text), 0);
        CHECK_NUMBER(fake_calls("cuModuleLoadDataEx"), fake_images(0, !s_loads[c].is_text)); // none was refused
        sumi_cuda_modules_destroy(modules);
        end(&f);
    }
}

// The list of machine code in the library: every image is what the table says, and none is twice.
TEST(machine_code_is_for_the_target_that_is_named)
{
    if (sumi_cuda_image_count == 0) SKIP("there are no kernels in this build");
    char listed[128], found[128] = "";
    bool has[256] = {false};
    for (int32_t i = 0; i < sumi_cuda_image_count; i++) {
        const sumi_cuda_image* image = &sumi_cuda_images[i];
        for (int32_t k = 0; k < i; k++)
            CHECK(sumi_cuda_images[k].target != image->target || sumi_cuda_images[k].is_binary != image->is_binary
                  || strcmp(sumi_cuda_images[k].source, image->source) != 0);
        unsigned char* data = malloc(image->bytes);
        uLongf bytes = image->bytes;
        CHECK(data != NULL && uncompress(data, &bytes, image->data, image->packed_bytes) == Z_OK);
        const image_target target = read_image_target(data);
        free(data);
        if (target.capability != image->target) printf("  %s: %d\n", image->source, target.capability);
        CHECK(target.is_binary == image->is_binary && target.capability == image->target);
        CHECK(image->is_binary || target.is_exact == (image->target == 90));
        if (image->is_binary) has[image->target] = true;
    }
    for (int target = 0; target < 256; target++) {
        const size_t used = strlen(found);
        if (has[target])
            snprintf(found + used, sizeof found - used, "%s%d.%d%s", used > 0 ? " " : "", target / 10, target % 10,
                     target == 90 ? "a" : "");
    }
    sumi_cuda_machine_code(listed, sizeof listed);
    CHECK_TEXT(listed, found);
    char cut[6];
    sumi_cuda_machine_code(cut, sizeof cut);
    CHECK(strncmp(cut, found, 5) == 0 && strlen(cut) <= 5);
}

// Of the library's own kernels, where it has machine code for all.
TEST(only_a_card_that_is_newer_than_the_library_compiles)
{
    char listed[128];
    sumi_cuda_machine_code(listed, sizeof listed);
    if (strcmp(listed, "8.0 8.6 8.9 9.0a 10.0 12.0") != 0)
        SKIP("this build has machine code for some GPUs alone (--gpus)");
    for (size_t c = 0; c < sizeof s_loads / sizeof *s_loads; c++) {
        fake_reset();
        fake_devices(1, s_loads[c].capability);
        fake_take_binaries(true);
        fixture f;
        begin(&f, NULL);
        sumi_cuda_modules* modules = NULL;
        CHECK(load_all(&f, sumi_cuda_images, sumi_cuda_image_count, &modules) == SUMI_OK);
        CHECK_TEXT(f.error.text, "");
        CHECK((fake_images(0, false) > 0) == s_loads[c].is_text);
        for (int32_t target = 70; target < 140; target++) {
            const bool is_expected = count_of(s_loads[c].targets, target) > 0;
            if ((fake_images(target, !s_loads[c].is_text) > 0) != is_expected)
                printf("  on %d: %d images of %d\n", (int)s_loads[c].capability,
                       fake_images(target, !s_loads[c].is_text), (int)target);
            CHECK((fake_images(target, !s_loads[c].is_text) > 0) == is_expected);
        }
        sumi_cuda_modules_destroy(modules);
        end(&f);
    }
}

TEST(kernels_load_where_their_ptx_version_is_known)
{
    if (sumi_cuda_image_count == 0) SKIP("there are no kernels in this build");
    // CUDA 11.4 for everything of 8.0, 12.0 for Hopper's, 12.4 for e4m3; what is newer is left out
    const struct {
        int32_t capability, newest_ptx;
        bool has_89, has_90, has_fp8_90;
    } cases[] = {
        {80, 74, false, false, false}, {89, 83, false, false, false}, {89, 84, true, false, false},
        {90, 80, false, true, false},  {90, 84, true, true, true},
    };
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        fake_reset();
        fake_devices(1, cases[c].capability);
        fake_newest_ptx(cases[c].newest_ptx);
        fixture f;
        begin(&f, NULL);
        sumi_cuda_modules* modules = NULL;
        CHECK(load_all(&f, sumi_cuda_images, sumi_cuda_image_count, &modules) == SUMI_OK);
        for (int32_t i = 0; i < sumi_cuda_image_count; i++) {
            const sumi_cuda_image* image = &sumi_cuda_images[i];
            if (image->is_binary || image->kernel_count == 0) continue;
            const bool is_fp8 = strstr(image->source, "_fp8") != NULL;
            const bool expected = image->target == 80 || (image->target == 89 && cases[c].has_89)
                               || (image->target == 90 && (is_fp8 ? cases[c].has_fp8_90 : cases[c].has_90));
            if (sumi_cuda_has_kernel(modules, image->kernels[0]) != expected)
                printf("  %s on %d with PTX %d\n", image->source, (int)cases[c].capability, (int)cases[c].newest_ptx);
            CHECK(sumi_cuda_has_kernel(modules, image->kernels[0]) == expected);
        }
        sumi_cuda_modules_destroy(modules);
        end(&f);
    }
    fake_reset();
    fake_newest_ptx(73);
    fixture f;
    begin(&f, NULL);
    sumi_cuda_modules* modules = NULL;
    CHECK_NUMBER(load_all(&f, sumi_cuda_images, sumi_cuda_image_count, &modules), SUMI_DRIVER_TOO_OLD);
    CHECK(strstr(f.error.text, "Unsupported .version") != NULL); // the driver's own words
    CHECK(strchr(f.error.text, '\n') == NULL);
    sumi_cuda_modules_destroy(modules);
    end(&f);
}

// A source of our own, packed as the build packs.
#define PTX(body)                                                                                                      \
    ".version 7.4\n.target sm_80\n.address_size 64\n.visible .entry sumi_one(\n\t.param .u64 p\n)\n.maxntid 128, 1, "  \
    "1\n{\n" body "\tret;\n}\n"

static sumi_cuda_image pack(const char* text, unsigned char* into, uLongf capacity)
{
    static const char* const s_kernels[] = {"sumi_one"};
    const size_t bytes = strlen(text) + 1;
    CHECK(compress2(into, &capacity, (const unsigned char*)text, (uLong)bytes, 9) == Z_OK);
    return (sumi_cuda_image){"one", 80, false, into, (uint32_t)capacity, (uint32_t)bytes, s_kernels, 1};
}

TEST(allocating_and_loading_leave_a_hosts_capture_alone)
{
    fake_reset();
    struct CUctx_st* context = fake_host_context(0);
    struct CUstream_st* stream = fake_host_stream(context);
    fake_host_begin_capture(stream); // in global mode, by some other thread
    fixture f;
    begin(&f, NULL);
    sumi_device_block block;
    CHECK(sumi_device_allocate(&f.memory, 700, SUMI_MEMORY_ARENA, "a test", &block, &f.error) == SUMI_OK);
    sumi_device_release(&f.memory, &block);
    CHECK(sumi_device_allocate(&f.memory, 700, SUMI_MEMORY_STAGING, "a test", &block, &f.error) == SUMI_OK);
    sumi_device_release(&f.memory, &block);
    unsigned char packed[1024];
    const sumi_cuda_image image = pack(PTX(""), packed, sizeof packed);
    sumi_cuda_modules* modules = NULL;
    CUfunction function;
    CHECK(load_all(&f, &image, 1, &modules) == SUMI_OK);
    CHECK(sumi_cuda_kernel(modules, "sumi_one", 0, &function, &f.error) == SUMI_OK);
    sumi_cuda_modules_destroy(modules);
    CHECK_TEXT(f.error.text, "");
    sumi_cuda_leave(&f.device, &f.scope);
    CHECK_NUMBER(fake_capture_mode(), CU_STREAM_CAPTURE_MODE_GLOBAL); // as it was
    sumi_cuda_device_close(&f.device);
    CHECK_NUMBER(fake_capture_mode(), CU_STREAM_CAPTURE_MODE_GLOBAL);
    CHECK_NUMBER(fake_violations(), 0);
    CHECK(fake_host_end_capture(stream));
    fake_host_release(stream);
    fake_host_release(context);
    check_clean(NULL);
}

TEST(damaged_images_are_refused)
{
    unsigned char packed[1024], changed[1024], open_ended[1024];
    const sumi_cuda_image good = pack(PTX(""), packed, sizeof packed);
    uLongf capacity = sizeof open_ended;
    CHECK(compress2(open_ended, &capacity, (const unsigned char*)PTX(""), (uLong)strlen(PTX("")), 9) == Z_OK);
    for (uint32_t at = 0; at <= good.packed_bytes + 4; at++) {
        fake_reset();
        fixture f;
        begin(&f, NULL);
        sumi_cuda_image image = good;
        image.data = changed;
        memcpy(changed, packed, sizeof changed);
        if (at < good.packed_bytes) changed[at] ^= 1; // the lowest bit: the highest of the last byte may be padding
        else if (at == good.packed_bytes) image.packed_bytes--;
        else if (at == good.packed_bytes + 1) image.bytes--;
        else if (at == good.packed_bytes + 2) image.bytes++;
        else if (at == good.packed_bytes + 3) image.packed_bytes++;                           // more behind it
        else image.data = open_ended, image.packed_bytes = (uint32_t)capacity, image.bytes--; // text without its zero
        sumi_cuda_modules* modules = NULL;
        CHECK_NUMBER(load_all(&f, &image, 1, &modules), SUMI_INTERNAL);
        CHECK(strstr(f.error.text, "damaged") != NULL);
        CHECK_NUMBER(fake_calls("cuModuleLoadDataEx"), 0);
        sumi_cuda_modules_destroy(modules);
        end(&f);
    }
}

// The fake driver knows what it has read before by its text: both are read, and both are known the second time.
TEST(an_image_is_told_from_another_one_of_its_size)
{
    static const char* const s_names[] = {"sumi_one", "sumi_two"};
    static const char s_text[] = PTX("");
    char other[sizeof s_text];
    memcpy(other, s_text, sizeof other);
    memcpy(strstr(other, s_names[0]), s_names[1], strlen(s_names[1]));
    unsigned char packed[2][1024];
    sumi_cuda_image images[2] = {pack(s_text, packed[0], sizeof packed[0]), pack(other, packed[1], sizeof packed[1])};
    images[1].kernels = &s_names[1];
    for (int i = 0; i < 4; i++) {
        fake_reset();
        fixture f;
        begin(&f, NULL);
        sumi_cuda_modules* modules = NULL;
        CUfunction function = NULL;
        CHECK_NUMBER(load_all(&f, &images[i % 2], 1, &modules), SUMI_OK);
        CHECK_NUMBER(sumi_cuda_kernel(modules, s_names[i % 2], 0, &function, &f.error), SUMI_OK);
        sumi_cuda_modules_destroy(modules);
        end(&f);
    }
}

TEST(text_is_the_fallback_for_machine_code)
{
    unsigned char packed[1024], packed_code[256], code[64] = {127, 'E', 'L', 'F'};
    uLongf capacity = sizeof packed_code;
    CHECK(compress2(packed_code, &capacity, code, sizeof code, 9) == Z_OK);
    sumi_cuda_image images[2] = {pack(PTX(""), packed, sizeof packed),
                                 {"one", 90, true, packed_code, (uint32_t)capacity, sizeof code, NULL, 1}};
    images[1].kernels = images[0].kernels;
    const struct {
        int code;
        sumi_result result;
    } cases[] = {
        {0, SUMI_OK},
        {209, SUMI_OK},
        {801, SUMI_OK},
        {1, SUMI_OK},
        {2, SUMI_OUT_OF_DEVICE_MEMORY},
        {719, SUMI_DEVICE_LOST},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fake_reset();
        fake_take_binaries(true);
        fixture f;
        begin(&f, NULL);
        if (cases[i].code != 0) fake_fail_call("cuModuleLoadDataEx", 1, cases[i].code);
        else fake_newest_ptx(10); // the machine code is enough: the text is too new for this driver
        sumi_cuda_modules* modules = NULL;
        CHECK_NUMBER(load_all(&f, images, 2, &modules), cases[i].result);
        CHECK_NUMBER(fake_held_kind("module"), cases[i].result == SUMI_OK); // one of the two, never both
        CHECK(sumi_cuda_has_kernel(modules, "sumi_one") == (cases[i].result == SUMI_OK));
        sumi_cuda_modules_destroy(modules);
        end(&f);
    }
}

TEST(a_failed_step_can_be_tried_again)
{
    unsigned char packed[1024];
    const sumi_cuda_image image = pack(PTX(""), packed, sizeof packed);
    fake_reset();
    fixture f;
    begin(&f, NULL);
    sumi_cuda_modules* modules = NULL;
    bool is_done;
    float progress;
    CUfunction function;
    CHECK(sumi_cuda_modules_create(&f.heap, &f.device, &image, 1, &f.error, &modules) == SUMI_OK);
    CHECK(!sumi_cuda_has_kernel(modules, "sumi_one"));
    CHECK_NUMBER(sumi_cuda_kernel(modules, "sumi_one", 0, &function, NULL), SUMI_INTERNAL); // not yet
    fake_fail_call("cuModuleLoadDataEx", 1, 2);
    CHECK_NUMBER(sumi_cuda_modules_step(modules, &is_done, &progress, &f.error), SUMI_OUT_OF_DEVICE_MEMORY);
    CHECK(strstr(f.error.text, "one") != NULL);
    CHECK(sumi_cuda_modules_step(modules, &is_done, &progress, NULL) == SUMI_OK);
    CHECK(is_done && sumi_cuda_has_kernel(modules, "sumi_one") && !sumi_cuda_has_kernel(modules, "sumi_two"));
    CHECK(sumi_cuda_modules_step(modules, &is_done, &progress, NULL) == SUMI_OK && is_done); // nothing left
    fake_fail_call("cuModuleGetFunction", 1, 500);
    CHECK_NUMBER(sumi_cuda_kernel(modules, "sumi_one", 0, &function, NULL), SUMI_INTERNAL);
    CHECK(sumi_cuda_kernel(modules, "sumi_one", 0, &function, NULL) == SUMI_OK);
    sumi_cuda_modules_destroy(modules);
    end(&f);
}

TEST(kernels_get_the_shared_memory_they_ask_for)
{
    unsigned char packed[1024];
    const sumi_cuda_image image =
        pack(PTX("\t.shared .align 4 .b8 a[1000];\n\t.shared .align 4 .f32 b[2];\n"), packed, sizeof packed);
    fake_reset();
    fixture f;
    begin(&f, NULL);
    sumi_cuda_modules* modules = NULL;
    CUfunction function = NULL;
    uint64_t address = 0;
    void* parameters[] = {&address};
    CHECK(load_all(&f, &image, 1, &modules) == SUMI_OK);
    const sumi_cuda_driver* driver = &f.device.driver;
    for (uint32_t bytes = 0; bytes <= 200000; bytes += 50000) {
        CHECK(sumi_cuda_kernel(modules, "sumi_one", bytes, &function, &f.error) == SUMI_OK);
        CHECK(driver->cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, bytes, f.device.compute, parameters, NULL)
              == CUDA_SUCCESS);
    }
    // less than it had: it keeps that
    CHECK(sumi_cuda_kernel(modules, "sumi_one", 50000, &function, &f.error) == SUMI_OK);
    CHECK(driver->cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 200000, f.device.compute, parameters, NULL)
          == CUDA_SUCCESS);
    CHECK_NUMBER(sumi_cuda_kernel(modules, "sumi_one", 232449, &function, &f.error), SUMI_INTERNAL);
    CHECK_NUMBER(fake_launch_count(), 6);
    CHECK_TEXT(fake_last_kernel(), "sumi_one");

    // What the fake driver sees, so that other tests can rely on it.
    CHECK(sumi_cuda_kernel(modules, "sumi_one", 0, &function, NULL) == SUMI_OK);
    CHECK(driver->cuLaunchKernel(function, 1, 1, 1, 129, 1, 1, 0, f.device.compute, parameters, NULL) != CUDA_SUCCESS);
    CHECK(driver->cuLaunchKernel(function, 0, 1, 1, 128, 1, 1, 0, f.device.compute, parameters, NULL) != CUDA_SUCCESS);
    CHECK(driver->cuLaunchKernel(function, 1, 65536, 1, 128, 1, 1, 0, f.device.compute, parameters, NULL)
          != CUDA_SUCCESS);
    CHECK(driver->cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 200001, f.device.compute, parameters, NULL)
          != CUDA_SUCCESS);
    CHECK(driver->cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, NULL, parameters, NULL) != CUDA_SUCCESS);
    CHECK_NUMBER(fake_violations(), 5);
    sumi_device_block block;
    CHECK(sumi_device_allocate(&f.memory, 4096, SUMI_MEMORY_ARENA, "a test", &block, NULL) == SUMI_OK);
    address = block.address + 100;
    CHECK(driver->cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, f.device.compute, parameters, NULL) == CUDA_SUCCESS);
    CHECK_NUMBER(fake_violations(), 5);
    sumi_device_release(&f.memory, &block);
    CHECK(driver->cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, f.device.compute, parameters, NULL) == CUDA_SUCCESS);
    CHECK_NUMBER(fake_violations(), 6); // freed
    sumi_cuda_modules_destroy(modules);
    fake_reset();
    end(&f);
}

static int s_allocations_left;
static void* counting_allocate(size_t bytes, size_t alignment, void* user_data)
{
    (void)user_data;
    return s_allocations_left-- > 0 ? system_allocate(bytes, alignment) : NULL;
}
static void counting_release(void* memory, size_t bytes, void* user_data)
{
    (void)bytes, (void)user_data;
    system_release(memory);
}

TEST(every_host_allocation_may_fail_while_loading)
{
    unsigned char packed[1024];
    const sumi_cuda_image image = pack(PTX(""), packed, sizeof packed);
    sumi_result result = SUMI_INTERNAL;
    int allowed = 0;
    for (; result != SUMI_OK && allowed < 50; allowed++) {
        fake_reset();
        fixture f;
        begin(&f, NULL);
        sumi_heap_init(&f.heap, &(sumi_allocator){counting_allocate, counting_release, NULL});
        s_allocations_left = allowed;
        sumi_cuda_modules* modules = NULL;
        result = load_all(&f, &image, 1, &modules);
        CHECK(result == SUMI_OK || (result == SUMI_OUT_OF_HOST_MEMORY && f.error.text[0] != 0));
        sumi_cuda_modules_destroy(modules);
        end(&f);
    }
    CHECK(allowed > 5); // the table's three, the image, and what zlib takes
    CHECK_NUMBER(result, SUMI_OK);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(opens_the_driver);
    RUN(finds_exported_names_when_the_lookup_is_old);
    RUN(a_driver_without_a_device_is_no_device);
    RUN(an_old_driver_is_reported);
    RUN(each_needed_entry_is_missed);
    RUN(failures_become_results);
    RUN(opens_and_closes_the_first_device);
    RUN(chooses_by_ordinal_uuid_and_luid);
    RUN(refuses_a_device_before_8_0);
    RUN(honours_the_hosts_context_and_stream);
    RUN(refuses_streams_it_may_not_use);
    RUN(any_call_may_fail_while_opening);
    RUN(memory_is_counted_by_kind);
    RUN(large_pinned_memory_is_locked_and_given_back);
#if defined(__linux__)
    RUN(a_child_process_does_not_have_the_large_pages);
#endif
    RUN(memory_may_run_out);
    RUN(memory_comes_from_the_hosts_allocator);
    RUN(every_device_finds_its_kernels);
    RUN(a_device_loads_the_newest_machine_code_that_it_runs);
    RUN(machine_code_is_for_the_target_that_is_named);
    RUN(only_a_card_that_is_newer_than_the_library_compiles);
    RUN(kernels_load_where_their_ptx_version_is_known);
    RUN(allocating_and_loading_leave_a_hosts_capture_alone);
    RUN(damaged_images_are_refused);
    RUN(an_image_is_told_from_another_one_of_its_size);
    RUN(text_is_the_fallback_for_machine_code);
    RUN(a_failed_step_can_be_tried_again);
    RUN(kernels_get_the_shared_memory_they_ask_for);
    RUN(every_host_allocation_may_fail_while_loading);
    TEST_END();
}
#endif
