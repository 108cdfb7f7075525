// Imports of Vulkan and Direct3D on the fake driver: what CUDA is told of each kind of handle, what is copied where and
// when, what is refused, and what is left when something fails.
#include "engine_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "cuda_fixture.h"
#include "fake_cuda.h"
#include "kernels/pictures.h"
#include <cuda.h>
#if defined(_WIN32)
#define WIN32_LEAN_AND_MEAN
#include <windows.h>
#else
#include <fcntl.h>
#include <unistd.h>
#endif

enum { WIDTH = 48, HEIGHT = 32 };

static const uint8_t s_uuid[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static const uint8_t s_luid[8] = {1, 2, 3, 4, 5, 6, 7, 8};

static const int s_pixel_bytes[] = {4, 3, 12, 4, 8}; // by sumi_format

// The kernel that writes an image, done: every byte of every row gets the number of the call.
typedef struct written {
    int count;
    sumi_pixels_to_args args;
} written;

static void write_picture(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data)
{
    written* w = user_data;
    if (strcmp(kernel, "sumi_pixels_to") != 0) return;
    CHECK(bytes >= sizeof w->args);
    memcpy(&w->args, parameters, sizeof w->args);
    static const int s_written_bytes[] = {[SUMI_PIXELS_RGBA8] = 4,
                                          [SUMI_PIXELS_RGB8] = 3,
                                          [SUMI_PIXELS_RGB32F] = 12,
                                          [SUMI_PIXELS_BGRA8] = 4,
                                          [SUMI_PIXELS_RGBA16F] = 8};
    w->count++;
    for (size_t y = 0; y < HEIGHT; y++)
        memset((unsigned char*)(uintptr_t)(w->args.to + y * w->args.pitch), w->count,
               (size_t)w->args.width * (size_t)s_written_bytes[w->args.format]);
}

// The first byte of an image at the moment when a semaphore is signalled.
typedef struct pixel_watch {
    const unsigned char* pixels;
    int byte;
} pixel_watch;

static void look_at_pixels(int shared, void* user_data)
{
    pixel_watch* s = user_data;
    (void)shared;
    s->byte = *s->pixels;
}

// How Vulkan's objects are shared. A handle stays the host program's, whatever becomes of the import:
// fake_shared_release() checks that nobody has closed it.
#if defined(_WIN32)
enum {
    HAS_DESCRIPTORS = 0,
    MEMORY_TYPE = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_WIN32,
    TIMELINE_TYPE = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_WIN32
};
static bool is_open(int descriptor) { return descriptor < 0; }
static void close_descriptor(int descriptor) { (void)descriptor; }
static int count_open(void)
{
    DWORD count = 0;
    CHECK(GetProcessHandleCount(GetCurrentProcess(), &count));
    return (int)count;
}
#else
enum {
    HAS_DESCRIPTORS = 1,
    MEMORY_TYPE = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
    TIMELINE_TYPE = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD
};
static bool is_open(int descriptor) { return fcntl(descriptor, F_GETFD) != -1; }
static void close_descriptor(int descriptor) { close(descriptor); }
static int count_open(void) // if those that are open have no gaps; a new one takes the first gap
{
    const int lowest = open("/dev/null", O_RDONLY);
    close(lowest);
    return lowest;
}
#endif

static sumi_import_desc semaphore_desc(sumi_external_kind kind, int shared, bool uses_descriptor)
{
    sumi_import_desc desc = sumi_import_defaults();
    desc.kind = kind;
    desc.device_uuid = s_uuid;
    if (uses_descriptor && HAS_DESCRIPTORS) desc.fd = fake_shared_descriptor(shared);
    else desc.handle = fake_shared_handle(shared);
    return desc;
}

static sumi_import_desc memory_desc(sumi_external_kind kind, int shared, bool uses_descriptor, uint64_t bytes)
{
    sumi_import_desc desc = semaphore_desc(kind, shared, uses_descriptor);
    desc.width = WIDTH;
    desc.height = HEIGHT;
    desc.memory_bytes = bytes;
    return desc;
}

static sumi_external* import(sumi_engine* engine, const sumi_import_desc* desc)
{
    sumi_external* external = NULL;
    s_host.log[0] = '\0';
    CHECK_NUMBER(sumi_import(engine, desc, &external), SUMI_OK);
    if (external == NULL) printf("  kind %d: %s\n", (int)desc->kind, s_host.log);
    return external;
}

// A timeline semaphore of Vulkan.
static int make_timeline(sumi_engine* engine, sumi_external** out_external)
{
    const int shared = fake_shared_semaphore(TIMELINE_TYPE);
    const sumi_import_desc desc = semaphore_desc(SUMI_EXTERNAL_VULKAN_TIMELINE, shared, true);
    *out_external = import(engine, &desc);
    return shared;
}

// Vulkan memory with an RGBA8 image of `width` x `height`.
static int make_image(sumi_engine* engine, int width, int height, bool takes_previews, sumi_external** out_external)
{
    const uint64_t bytes = (uint64_t)width * (uint64_t)height * 4 + 1024;
    const int shared = fake_shared_memory(MEMORY_TYPE, bytes, false);
    sumi_import_desc desc = memory_desc(SUMI_EXTERNAL_VULKAN_MEMORY, shared, true, bytes);
    desc.is_image = true;
    desc.width = width;
    desc.height = height;
    desc.takes_previews = takes_previews;
    *out_external = import(engine, &desc);
    return shared;
}

static bool all_are(const unsigned char* bytes, size_t count, int value)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != value) return false;
    }
    return true;
}

static sumi_result submit_and_wait(sumi_engine* engine, const sumi_image_desc* desc, sumi_job* out_job)
{
    CHECK_NUMBER(sumi_submit_images(engine, desc, out_job), SUMI_OK);
    return run_to_end(engine, *out_job);
}

static sumi_result fetch(sumi_engine* engine, sumi_job job)
{
    sumi_image image;
    const sumi_result result = sumi_fetch_images(engine, job, &image, 1);
    if (result == SUMI_OK) CHECK(image.pixels == NULL && image.handle == 0);
    return result;
}

// ---- Tests ----------------------------------------------------------------------------------------------------------

TEST(an_engine_tells_its_device)
{
    fake_reset();
    fake_devices(2, 90);
    sumi_engine_desc desc = cuda_desc();
    desc.cuda.ordinal = 1;
    sumi_engine* engine;
    CHECK_NUMBER(sumi_engine_create(&desc, &engine), SUMI_OK);
    const sumi_engine_info info = sumi_engine_get_info(engine);
    for (int i = 0; i < 16; i++) CHECK_NUMBER(info.device_uuid[i], 16 + i);
    for (int i = 0; i < 8; i++) CHECK_NUMBER(info.device_luid[i], 8 + i + 1);
    sumi_engine_destroy(engine);
    engine = NULL;
    desc = cuda_desc();
    desc.cuda.uuid = info.device_uuid; // and is found by it
    CHECK_NUMBER(sumi_engine_create(&desc, &engine), SUMI_OK);
    CHECK(memcmp(sumi_engine_get_info(engine).device_uuid, info.device_uuid, 16) == 0);
    sumi_engine_destroy(engine);
    CHECK_NUMBER(fake_violations(), 0);
}

// Every kind of memory with every kind of semaphore of the same API; rows and images; every format.
TEST(every_kind_gets_its_image_between_wait_and_signal)
{
    static const struct {
        sumi_external_kind kind;
        int type;
        bool is_dedicated;
        sumi_external_kind semaphore;
        int semaphore_type;
    } s_kinds[] = {
        {SUMI_EXTERNAL_VULKAN_MEMORY, 1, false, SUMI_EXTERNAL_VULKAN_TIMELINE, 9},
        {SUMI_EXTERNAL_VULKAN_MEMORY, 1, true, SUMI_EXTERNAL_VULKAN_SEMAPHORE, 1},
        {SUMI_EXTERNAL_VULKAN_MEMORY, 2, false, SUMI_EXTERNAL_VULKAN_TIMELINE, 10},
        {SUMI_EXTERNAL_VULKAN_MEMORY, 2, true, SUMI_EXTERNAL_VULKAN_SEMAPHORE, 2},
        {SUMI_EXTERNAL_D3D12_RESOURCE, 5, true, SUMI_EXTERNAL_D3D12_FENCE, 4},
        {SUMI_EXTERNAL_D3D12_HEAP, 4, false, SUMI_EXTERNAL_D3D12_FENCE, 4},
        {SUMI_EXTERNAL_D3D11_RESOURCE, 6, true, SUMI_EXTERNAL_D3D11_FENCE, 5},
        {SUMI_EXTERNAL_D3D11_RESOURCE, 6, true, SUMI_EXTERNAL_D3D11_KEYED_MUTEX, 7},
    };
    enum { OFFSET = 512, SPARE = 4096 };
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    written w = {0};
    fake_on_launch(write_picture, &w);
    for (size_t k = 0; k < sizeof s_kinds / sizeof *s_kinds; k++) {
        if (s_kinds[k].type == 1 && !HAS_DESCRIPTORS) continue;
        for (int format = 0; format < 5; format++) {
            for (int is_image = 0; is_image < 2; is_image++) {
                const bool is_three = format == SUMI_FORMAT_RGB8 || format == SUMI_FORMAT_RGB32F;
                const size_t row = (size_t)WIDTH * (size_t)s_pixel_bytes[format], pitch = is_image ? row : row + 64,
                             bytes = OFFSET + pitch * HEIGHT + SPARE;
                const int memory = fake_shared_memory(s_kinds[k].type, bytes, s_kinds[k].is_dedicated);
                sumi_import_desc desc = memory_desc(s_kinds[k].kind, memory, s_kinds[k].type == 1, bytes);
                desc.format = (sumi_format)format;
                desc.is_image = is_image;
                desc.is_color_attachment = is_image && format == SUMI_FORMAT_BGRA8;
                desc.is_dedicated = s_kinds[k].is_dedicated;
                desc.row_bytes = is_image ? 0 : (int32_t)pitch;
                desc.offset = OFFSET;
                if (is_image && is_three) { // no graphics API has them
                    sumi_external* none = (sumi_external*)engine;
                    CHECK_NUMBER(sumi_import(engine, &desc, &none), SUMI_NOT_SUPPORTED);
                    CHECK(none == NULL && (desc.fd < 0 || is_open(desc.fd)));
                    if (desc.fd >= 0) close_descriptor(desc.fd);
                    fake_shared_release(memory);
                    continue;
                }
                sumi_external* external = import(engine, &desc);
                CHECK(desc.fd < 0 || !is_open(desc.fd)); // it is sumi's
                CHECK(fake_shared_is_attachment(memory) == desc.is_color_attachment);
                // a mutex is for both sides, by different keys
                const bool is_mutex = s_kinds[k].semaphore == SUMI_EXTERNAL_D3D11_KEYED_MUTEX;
                int semaphores[2];
                sumi_external* imported[2];
                for (int i = 0; i < 2; i++) {
                    semaphores[i] =
                        i == 1 && is_mutex ? semaphores[0] : fake_shared_semaphore(s_kinds[k].semaphore_type);
                    const sumi_import_desc semaphore =
                        semaphore_desc(s_kinds[k].semaphore, semaphores[i], s_kinds[k].type == 1);
                    imported[i] = i == 1 && is_mutex ? imported[0] : import(engine, &semaphore);
                }
                const bool is_binary = s_kinds[k].semaphore == SUMI_EXTERNAL_VULKAN_SEMAPHORE;
                const sumi_target target = {.format = (sumi_format)format,
                                            .external = external,
                                            .wait = {imported[0], is_binary ? 77 : 5},
                                            .signal = {imported[1], is_binary ? 77 : 9}};
                sumi_image_desc image = small_image(model, &s_item);
                image.width = WIDTH;
                image.targets = &target;
                w.count = 20;
                sumi_job job;
                CHECK_NUMBER(submit_and_wait(engine, &image, &job), SUMI_OK);
                CHECK_NUMBER(w.count, 21);
                CHECK_NUMBER(fetch(engine, job), SUMI_OK);
                // The host program has not signalled yet.
                const unsigned char* pixels = fake_shared_bytes(memory);
                pixel_watch at_signal = {pixels + OFFSET, -1};
                fake_on_signal(look_at_pixels, &at_signal);
                CHECK(all_are(pixels, bytes, 0));
                CHECK(fake_shared_value(semaphores[1]) == 0);
                fake_shared_signal(semaphores[0], is_binary ? 1 : 5);
                fake_on_signal(NULL, NULL);
                CHECK_NUMBER(at_signal.byte, 21);
                CHECK_NUMBER((int)fake_shared_value(semaphores[1]), is_binary ? 1 : 9);
                CHECK(all_are(pixels, OFFSET, 0) && all_are(pixels + OFFSET + pitch * HEIGHT, SPARE, 0));
                for (size_t y = 0; y < HEIGHT; y++) {
                    CHECK(all_are(pixels + OFFSET + y * pitch, row, 21));
                    CHECK(all_are(pixels + OFFSET + y * pitch + row, pitch - row, 0));
                }
                if (is_binary) CHECK(fake_shared_value(semaphores[0]) == 0); // the wait has taken it
                CHECK_NUMBER(fake_shared_imports(memory), 1);
                if (format % 2 == 0) sumi_external_release(external); // in either order
                sumi_external_release(imported[0]);
                if (!is_mutex) sumi_external_release(imported[1]);
                if (format % 2 != 0) sumi_external_release(external);
                CHECK_NUMBER(fake_shared_imports(memory), 0);
                fake_shared_release(memory);
                fake_shared_release(semaphores[0]);
                if (!is_mutex) fake_shared_release(semaphores[1]);
                if (t_errors > 0) printf("  case %zu, format %d, image %d: %s\n", k, format, is_image, s_host.log);
                if (t_errors > 0) return;
            }
        }
    }
    fake_on_launch(NULL, NULL);
    close_cuda(engine);
}

// Two buffers of one heap, of which each is an import.
TEST(imports_may_lie_in_the_same_memory)
{
    enum { BYTES = WIDTH * HEIGHT * 4, SPARE = 64, HEAP = 2 * BYTES + 3 * SPARE };
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    const int heap = fake_shared_memory(CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP, HEAP, false),
              fence = fake_shared_semaphore(CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE);
    const sumi_import_desc fence_desc = semaphore_desc(SUMI_EXTERNAL_D3D12_FENCE, fence, false);
    sumi_external *signal = import(engine, &fence_desc), *externals[2];
    const size_t offsets[2] = {SPARE, BYTES + 2 * SPARE};
    for (int i = 0; i < 2; i++) {
        sumi_import_desc desc = memory_desc(SUMI_EXTERNAL_D3D12_HEAP, heap, false, HEAP);
        desc.offset = offsets[i];
        externals[i] = import(engine, &desc);
    }
    written w = {0};
    fake_on_launch(write_picture, &w);
    const unsigned char* pixels = fake_shared_bytes(heap);
    for (int i = 0; i < 2; i++) {
        const sumi_target target = {.external = externals[i], .signal = {signal, (uint64_t)i + 1}};
        sumi_image_desc image = small_image(model, &s_item);
        image.width = WIDTH;
        image.targets = &target;
        sumi_job job;
        w.count = i;
        CHECK_NUMBER(submit_and_wait(engine, &image, &job), SUMI_OK);
        CHECK_NUMBER(fetch(engine, job), SUMI_OK);
        CHECK(fake_shared_value(fence) == (uint64_t)i + 1);
        CHECK(all_are(pixels + offsets[0], BYTES, 1) && all_are(pixels + offsets[1], BYTES, i == 0 ? 0 : 2));
        CHECK(all_are(pixels, SPARE, 0) && all_are(pixels + offsets[0] + BYTES, SPARE, 0)
              && all_are(pixels + offsets[1] + BYTES, SPARE, 0));
        sumi_external_release(externals[i]); // the other one stays
        CHECK_NUMBER(fake_shared_imports(heap), 1 - i);
    }
    sumi_external_release(signal);
    fake_on_launch(NULL, NULL);
    fake_shared_release(heap);
    fake_shared_release(fence);
    close_cuda(engine);
}

TEST(an_image_on_its_way_is_not_overwritten_and_delays_nothing_else)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_external *slow, *quick, *wait, *signal, *other;
    const int slow_memory = make_image(engine, WIDTH, HEIGHT, false, &slow),
              quick_memory = make_image(engine, WIDTH, HEIGHT, false, &quick), waits = make_timeline(engine, &wait),
              signals = make_timeline(engine, &signal), others = make_timeline(engine, &other);
    written w = {0};
    fake_on_launch(write_picture, &w);
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = WIDTH;
    sumi_target target = {.external = slow, .wait = {wait, 1}, .signal = {signal, 1}};
    desc.targets = &target;
    sumi_job job;
    CHECK_NUMBER(submit_and_wait(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(fetch(engine, job), SUMI_OK); // it waits for the host program from here on
    // Another external, and images in host memory, are not delayed.
    target = (sumi_target){.external = quick, .signal = {other, 1}};
    CHECK_NUMBER(submit_and_wait(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(fetch(engine, job), SUMI_OK);
    CHECK(fake_shared_value(others) == 1 && all_are(fake_shared_bytes(quick_memory), WIDTH * HEIGHT * 4, 2));
    desc.targets = NULL;
    CHECK(draw_hash(engine, &desc) != 0);
    // The next image for the same external waits on the GPU until the first one was copied.
    desc.targets = &target;
    target = (sumi_target){.external = slow, .wait = {wait, 2}, .signal = {signal, 2}};
    const int before = w.count;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    for (int i = 0; i < 3000; i++) sumi_engine_update(engine, 4000);
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_RUNNING);
    CHECK_NUMBER(w.count, before);
    fake_shared_signal(waits, 1);
    CHECK(fake_shared_value(signals) == 1 && all_are(fake_shared_bytes(slow_memory), WIDTH * HEIGHT * 4, 1));
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    CHECK_NUMBER(fetch(engine, job), SUMI_OK);
    CHECK(all_are(fake_shared_bytes(slow_memory), WIDTH * HEIGHT * 4, 1)); // the second wait
    fake_shared_signal(waits, 2);
    CHECK(fake_shared_value(signals) == 2);
    CHECK(all_are(fake_shared_bytes(slow_memory), WIDTH * HEIGHT * 4, before + 1));
    fake_on_launch(NULL, NULL);
    close_cuda(engine); // with all of them
    const int all[] = {slow_memory, quick_memory, waits, signals, others};
    for (int i = 0; i < 5; i++) {
        CHECK_NUMBER(fake_shared_imports(all[i]), 0);
        fake_shared_release(all[i]);
    }
}

TEST(previews_are_shown_or_dropped)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    const int width = WIDTH / 8, height = HEIGHT / 8;
    sumi_external *external, *wait, *signal, *plain;
    const int memory = make_image(engine, width, height, true, &external), waits = make_timeline(engine, &wait),
              signals = make_timeline(engine, &signal), without = make_image(engine, width, height, false, &plain);
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = WIDTH;
    desc.preview_every = 1;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    sumi_target target = {.external = external, .wait = {wait, 1}, .signal = {signal, 1}};
    CHECK_NUMBER(sumi_job_show_preview(engine, job, 0, &target), SUMI_WRONG_STATE);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    unsigned char rgba[WIDTH / 8 * (HEIGHT / 8) * 4];
    sumi_image preview;
    CHECK_NUMBER(sumi_job_preview(engine, job, 0, rgba, sizeof rgba, &preview), SUMI_OK);
    const uint64_t allocations = sumi_engine_get_info(engine).allocation_count, driver = fake_allocation_count();
    CHECK_NUMBER(sumi_job_show_preview(engine, job, 0, &target), SUMI_OK);
    CHECK(all_are(fake_shared_bytes(memory), sizeof rgba, 0));
    s_host.log[0] = '\0';
    target.wait.value = target.signal.value = 2;
    CHECK_NUMBER(sumi_job_show_preview(engine, job, 0, &target), SUMI_BUSY); // dropped, and no failure for the log
    CHECK(s_host.log[0] == '\0');
    fake_shared_signal(waits, 2);
    CHECK(fake_shared_value(signals) == 1 && memcmp(fake_shared_bytes(memory), rgba, sizeof rgba) == 0);
    target.bottom_up = true;
    CHECK_NUMBER(sumi_job_show_preview(engine, job, 0, &target), SUMI_OK);
    CHECK(fake_shared_value(signals) == 2);
    for (int y = 0; y < height; y++)
        CHECK(memcmp(fake_shared_bytes(memory) + y * width * 4, rgba + (height - 1 - y) * width * 4, (size_t)width * 4)
              == 0);
    CHECK(sumi_engine_get_info(engine).allocation_count == allocations && fake_allocation_count() == driver);
    // Wrong ones.
    const struct {
        sumi_target target;
        int32_t item;
        const char* says;
    } wrong[] = {
        {{.external = external}, 0, "signal"},
        {{.external = signal, .signal = {signal, 3}}, 0, "is a semaphore"},
        {{.external = external, .signal = {external, 3}}, 0, "no semaphore"},
        {{.external = external, .wait = {plain, 3}, .signal = {signal, 3}}, 0, "no semaphore"},
        {{.external = external, .format = SUMI_FORMAT_BGRA8, .signal = {signal, 3}}, 0, "format"},
        {{.external = external, .row_bytes = 24, .signal = {signal, 3}}, 0, "row_bytes"},
        {{.external = external, .host_memory = rgba, .signal = {signal, 3}}, 0, "another place"},
        {{.external = plain, .signal = {signal, 3}}, 0, "takes_previews"},
        {{.external = external, .signal = {signal, 3}}, 1, "no item 1"},
        {{.external = NULL, .signal = {signal, 3}}, 0, "NULL"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        CHECK_NUMBER(sumi_job_show_preview(engine, job, wrong[i].item, &wrong[i].target), SUMI_INVALID_ARGUMENT);
        if (strstr(s_host.log, wrong[i].says) == NULL) printf("  %zu: %s\n", i, s_host.log);
        CHECK(strstr(s_host.log, wrong[i].says) != NULL);
    }
    CHECK_NUMBER(sumi_job_show_preview(engine, job, 0, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_job_show_preview(NULL, job, 0, &target), SUMI_INVALID_ARGUMENT);
    sumi_external* large;
    const int large_memory = make_image(engine, WIDTH, HEIGHT, true, &large);
    target = (sumi_target){.external = large, .signal = {signal, 3}};
    CHECK_NUMBER(sumi_job_show_preview(engine, job, 0, &target), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "48 x 32, the preview 6 x 4") != NULL);
    CHECK(fake_shared_value(signals) == 2);
    sumi_job_discard(engine, job);
    CHECK_NUMBER(sumi_job_show_preview(engine, job, 0, &target), SUMI_STALE_HANDLE);
    close_cuda(engine);
    const int all[] = {memory, waits, signals, without, large_memory};
    for (int i = 0; i < 5; i++) fake_shared_release(all[i]);
}

TEST(previews_have_the_format_of_the_external)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    enum { PIXELS = WIDTH / 8 * (HEIGHT / 8) };
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = WIDTH;
    desc.preview_every = 1;
    sumi_job job;
    CHECK_NUMBER(submit_and_wait(engine, &desc, &job), SUMI_OK);
    unsigned char rgba[PIXELS * 4];
    sumi_image preview;
    CHECK_NUMBER(sumi_job_preview(engine, job, 0, rgba, sizeof rgba, &preview), SUMI_OK);
    sumi_external* signal;
    const int signals = make_timeline(engine, &signal);
    for (int format = 0; format < 5; format++) {
        const uint64_t bytes = (uint64_t)PIXELS * (uint64_t)s_pixel_bytes[format];
        const int memory = fake_shared_memory(MEMORY_TYPE, bytes, false);
        sumi_import_desc import_desc = memory_desc(SUMI_EXTERNAL_VULKAN_MEMORY, memory, true, bytes);
        import_desc.width = WIDTH / 8, import_desc.height = HEIGHT / 8;
        import_desc.format = (sumi_format)format;
        import_desc.takes_previews = true;
        sumi_external* external = import(engine, &import_desc);
        const sumi_target target = {
            .format = (sumi_format)format, .external = external, .signal = {signal, (uint64_t)format + 1}};
        CHECK_NUMBER(sumi_job_show_preview(engine, job, 0, &target), SUMI_OK);
        const unsigned char* pixels = fake_shared_bytes(memory);
        for (int i = 0; i < PIXELS; i++) {
            const unsigned char *from = rgba + 4 * i, *to = pixels + i * s_pixel_bytes[format];
            float value;
            uint16_t half;
            for (int c = 0; c < 3; c++) {
                switch (format) {
                case SUMI_FORMAT_RGBA8:
                case SUMI_FORMAT_RGB8: CHECK(to[c] == from[c]); break;
                case SUMI_FORMAT_BGRA8: CHECK(to[2 - c] == from[c]); break;
                case SUMI_FORMAT_RGB32F:
                    memcpy(&value, to + 4 * c, 4);
                    CHECK(value == (float)from[c] / 255.0f);
                    break;
                default:
                    memcpy(&half, to + 2 * c, 2);
                    CHECK(half == sumi_float_to_f16((float)from[c] / 255.0f));
                    break;
                }
            }
            if (format == SUMI_FORMAT_RGBA8 || format == SUMI_FORMAT_BGRA8) CHECK(to[3] == 255);
            if (format == SUMI_FORMAT_RGBA16F) CHECK(to[6] == 0x00 && to[7] == 0x3c); // 1
        }
        sumi_external_release(external);
        fake_shared_release(memory);
    }
    sumi_job_discard(engine, job);
    close_cuda(engine);
    fake_shared_release(signals);
}

TEST(imports_that_cannot_be_are_refused)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    static const uint8_t s_other_uuid[16] = {9}, s_other_luid[8] = {9};
    static char s_not_a_handle[8];
    const uint64_t bytes = WIDTH * HEIGHT * 4;
    const int memory = fake_shared_memory(MEMORY_TYPE, bytes, false),
              heap = fake_shared_memory(CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_HEAP, bytes, false),
              timeline = fake_shared_semaphore(TIMELINE_TYPE);
    // Each begins as memory that can be imported.
#define BAD(change, expected, text)                                                                                    \
    do {                                                                                                               \
        sumi_import_desc d = memory_desc(SUMI_EXTERNAL_VULKAN_MEMORY, memory, true, bytes);                            \
        const int descriptor = d.fd;                                                                                   \
        sumi_external* none = (sumi_external*)engine;                                                                  \
        change;                                                                                                        \
        s_host.log[0] = '\0';                                                                                          \
        CHECK_NUMBER(sumi_import(engine, &d, &none), expected);                                                        \
        if (strstr(s_host.log, text) == NULL) printf("  " #change ": %s\n", s_host.log);                               \
        CHECK(none == NULL && strstr(s_host.log, text) != NULL);                                                       \
        CHECK(is_open(descriptor)); /* it stays the host program's */                                                  \
        close_descriptor(descriptor);                                                                                  \
    } while (0)
    BAD(d.cookie = 1, SUMI_DESC_NOT_INITIALIZED, "sumi_import_defaults");
    BAD(d.kind = SUMI_EXTERNAL_NONE, SUMI_INVALID_ARGUMENT, "kind is 0");
    BAD(d.kind = (sumi_external_kind)8, SUMI_INVALID_ARGUMENT, "kind is 8");
    BAD(d.kind = (sumi_external_kind)25, SUMI_INVALID_ARGUMENT, "kind is 25");
    BAD((d.fd = -1, d.handle = NULL), SUMI_INVALID_ARGUMENT, "give fd");
    BAD((d.handle = s_not_a_handle, d.fd = d.fd < 0 ? 3 : d.fd), SUMI_INVALID_ARGUMENT, "one of the two");
    BAD((d.kind = SUMI_EXTERNAL_D3D12_HEAP, d.handle = NULL), SUMI_INVALID_ARGUMENT, "Direct3D has handle");
    BAD((d.kind = SUMI_EXTERNAL_GL_TEXTURE), SUMI_INVALID_ARGUMENT, "OpenGL has gl_name");
    BAD((d.kind = SUMI_EXTERNAL_GL_BUFFER, d.fd = -1, d.handle = NULL), SUMI_INVALID_ARGUMENT, "gl_name is 0");
    BAD(d.device_uuid = NULL, SUMI_INVALID_ARGUMENT, "give one of the two");
    BAD(d.device_uuid = s_other_uuid, SUMI_INVALID_ARGUMENT,
        "device_uuid is 09000000000000000000000000000000, but the engine's GPU is 000102030405060708090a0b0c0d0e0f");
    BAD(d.device_luid = s_other_luid, SUMI_INVALID_ARGUMENT, "device_luid");
    BAD(d.width = 0, SUMI_INVALID_ARGUMENT, "0 x 32");
    BAD(d.height = 40000, SUMI_INVALID_ARGUMENT, "40000");
    BAD(d.format = (sumi_format)7, SUMI_INVALID_ARGUMENT, "format is 7");
    BAD((d.is_image = true, d.format = SUMI_FORMAT_RGB8), SUMI_NOT_SUPPORTED, "three channels");
    BAD((d.is_image = true, d.row_bytes = 192), SUMI_INVALID_ARGUMENT, "images have no rows");
    BAD(d.row_bytes = 191, SUMI_INVALID_ARGUMENT, "a row takes 192");
    BAD(d.row_bytes = -192, SUMI_INVALID_ARGUMENT, "a row takes 192");
    BAD(d.level_count = 0, SUMI_INVALID_ARGUMENT, "level_count is 0");
    BAD(d.memory_bytes = 0, SUMI_INVALID_ARGUMENT, "memory_bytes is 0");
    BAD(d.memory_bytes = bytes - 1, SUMI_INVALID_ARGUMENT, "take 6144 bytes");
    BAD(d.offset = 1, SUMI_INVALID_ARGUMENT, "from byte 1 on");
    BAD(d.offset = INT64_MAX, SUMI_INVALID_ARGUMENT, "memory_bytes");
    BAD(d.offset = UINT64_MAX, SUMI_INVALID_ARGUMENT, "more than any memory has");
    BAD((d.kind = SUMI_EXTERNAL_GL_BUFFER, d.fd = -1, d.handle = NULL, d.gl_name = 1, d.offset = UINT64_MAX - 64),
        SUMI_INVALID_ARGUMENT, "more than any memory has");
    BAD((d.kind = SUMI_EXTERNAL_GL_TEXTURE, d.fd = -1, d.handle = NULL, d.gl_name = 1, d.offset = 64),
        SUMI_INVALID_ARGUMENT, "begins at 0");
    BAD(d.row_bytes = 193, SUMI_INVALID_ARGUMENT, "take 6175 bytes");
    BAD(d.memory_bytes = bytes + 1, SUMI_INVALID_ARGUMENT, "as the memory was allocated"); // the driver's word
    BAD(d.is_dedicated = true, SUMI_INVALID_ARGUMENT, "is_dedicated");
    BAD((d.kind = SUMI_EXTERNAL_D3D12_HEAP, d.fd = -1, d.handle = s_not_a_handle), SUMI_INVALID_ARGUMENT,
        "must be open");
    BAD((d.kind = SUMI_EXTERNAL_D3D12_RESOURCE, d.fd = -1, d.handle = fake_shared_handle(heap)), SUMI_INVALID_ARGUMENT,
        "of this kind");
    BAD(d.kind = SUMI_EXTERNAL_VULKAN_TIMELINE, SUMI_INVALID_ARGUMENT, "is a semaphore");
    BAD((d.kind = SUMI_EXTERNAL_VULKAN_TIMELINE, d.width = d.height = 0, d.memory_bytes = 0), SUMI_INVALID_ARGUMENT,
        "importing a Vulkan timeline semaphore failed"); // it is memory
    // what the driver says where the system has no such handles
    BAD(fake_fail_call("cuImportExternalMemory", 1, 801 /* CUDA_ERROR_NOT_SUPPORTED */), SUMI_NOT_SUPPORTED,
        "does not share");
#undef BAD
    sumi_import_desc desc = memory_desc(SUMI_EXTERNAL_VULKAN_MEMORY, memory, true, bytes);
    if (HAS_DESCRIPTORS) close_descriptor(desc.fd);
    else desc.fd = 3, desc.handle = NULL;
    sumi_external* external = (sumi_external*)engine;
    CHECK_NUMBER(sumi_import(engine, &desc, &external), SUMI_INVALID_ARGUMENT); // a closed descriptor
    CHECK(external == NULL && strstr(s_host.log, HAS_DESCRIPTORS ? "not open" : "give handle") != NULL);
    CHECK_NUMBER(sumi_import(engine, NULL, &external), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_import(engine, &desc, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_import(NULL, &desc, &external), SUMI_INVALID_ARGUMENT);
    // A system without LUIDs, where a host program might give the zeros that Vulkan tells.
    fake_lack_entry("cuDeviceGetLuid");
    sumi_engine_desc plain = host_desc(&s_host);
    plain.backend = SUMI_BACKEND_CUDA;
    sumi_engine* second;
    CHECK_NUMBER(sumi_engine_create(&plain, &second), SUMI_OK);
    static const uint8_t s_zeros[8] = {0};
    desc = memory_desc(SUMI_EXTERNAL_VULKAN_MEMORY, memory, true, bytes);
    desc.device_luid = s_zeros;
    desc.device_uuid = NULL;
    CHECK_NUMBER(sumi_import(second, &desc, &external), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "give device_uuid") != NULL);
    desc.device_uuid = s_uuid;
    CHECK_NUMBER(sumi_import(second, &desc, &external), SUMI_OK);
    sumi_engine_destroy(second);
    fake_lack_entry(NULL);
    // None of it has kept anything, and the engine works.
    CHECK_NUMBER(fake_shared_imports(memory), 0);
    CHECK_NUMBER((int)fake_held_kind("stream"), 3); // the engine's own
    const sumi_image_desc image = small_image(model, &s_item);
    CHECK(draw_hash(engine, &image) != 0);
    close_cuda(engine);
    fake_shared_release(memory);
    fake_shared_release(heap);
    fake_shared_release(timeline);
    // The CPU backend.
    sumi_engine_desc cpu = host_desc(&s_host);
    cpu.backend = SUMI_BACKEND_CPU;
    CHECK_NUMBER(sumi_engine_create(&cpu, &engine), SUMI_OK);
    CHECK_NUMBER(sumi_import(engine, &desc, &external), SUMI_NOT_SUPPORTED);
    const sumi_target target = {.format = SUMI_FORMAT_RGBA8};
    CHECK_NUMBER(sumi_job_show_preview(engine, (sumi_job){1}, 0, &target), SUMI_NOT_SUPPORTED);
    const sumi_engine_info info = sumi_engine_get_info(engine);
    CHECK(all_are(info.device_uuid, 16, 0) && all_are(info.device_luid, 8, 0));
    sumi_engine_destroy(engine);
}

TEST(targets_need_semaphores_of_their_own_engine)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_engine_desc second_desc = host_desc(&s_host);
    second_desc.backend = SUMI_BACKEND_CUDA;
    sumi_engine* second;
    CHECK_NUMBER(sumi_engine_create(&second_desc, &second), SUMI_OK);
    sumi_external *external, *signal, *foreign;
    const int memory = make_image(engine, WIDTH, HEIGHT, false, &external), signals = make_timeline(engine, &signal),
              foreigns = make_timeline(second, &foreign);
    fake_gl_current(true);
    const unsigned name = fake_gl_texture(WIDTH, HEIGHT);
    sumi_external* texture;
    CHECK_NUMBER(import_gl_texture(engine, name, 0x0DE1, WIDTH, HEIGHT, &texture), SUMI_OK);
    const struct {
        sumi_target target;
        const char* says;
    } wrong[] = {
        {{.external = external}, "signal"},
        {{.external = external, .wait = {signal, 1}}, "signal"},
        {{.external = external, .signal = {foreign, 1}}, "another engine"},
        {{.external = external, .wait = {foreign, 1}, .signal = {signal, 1}}, "another engine"},
        {{.external = foreign, .signal = {signal, 1}}, "another engine"},
        {{.external = texture, .signal = {signal, 1}}, "ordered by its API"},
        {{.external = texture, .wait = {signal, 1}}, "ordered by its API"},
    };
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = WIDTH;
    sumi_job job;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        desc.targets = &wrong[i].target;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
        if (strstr(s_host.log, wrong[i].says) == NULL) printf("  %zu: %s\n", i, s_host.log);
        CHECK(strstr(s_host.log, wrong[i].says) != NULL);
    }
    sumi_engine_destroy(second);
    sumi_external_release(texture);
    close_cuda(engine);
    fake_gl_current(false);
    fake_gl_release(name);
    fake_shared_release(memory);
    fake_shared_release(signals);
    fake_shared_release(foreigns);
}

TEST(a_release_ends_the_jobs_that_use_it)
{
    for (int which = 0; which < 3; which++) { // the memory, the semaphore to wait for, the one to signal
        for (int is_done = 0; is_done < 2; is_done++) {
            fake_reset();
            sumi_model* model;
            sumi_engine* engine = cuda_engine(20, &model);
            if (engine == NULL) return;
            sumi_external *external, *wait, *signal;
            const int shared[3] = {make_image(engine, WIDTH, HEIGHT, false, &external), make_timeline(engine, &wait),
                                   make_timeline(engine, &signal)};
            sumi_external* const all[3] = {external, wait, signal};
            sumi_image_desc desc = small_image(model, &s_item);
            desc.width = WIDTH;
            sumi_target target = {.external = external, .wait = {wait, 1}, .signal = {signal, 1}};
            desc.targets = &target;
            sumi_job job;
            sumi_image image;
            fake_complete_after(3);
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            if (is_done) CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
            else run_until_denoise(engine, job);
            sumi_external_release(all[which]);
            CHECK_NUMBER(sumi_job_poll(engine, job).state, is_done ? SUMI_JOB_DONE : SUMI_JOB_CANCELLED);
            if (!is_done) CHECK(strstr(sumi_job_poll(engine, job).message, "external was released") != NULL);
            CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), is_done ? SUMI_OK : SUMI_CANCELLED);
            CHECK_NUMBER((int)fake_shared_value(shared[2]), 0);
            CHECK_NUMBER(fake_shared_imports(shared[which]), 0);
            // The others are free for another job.
            sumi_external* anew[3] = {external, wait, signal};
            fake_complete_after(0);
            if (which == 0) {
                fake_shared_release(shared[0]);
                CHECK_NUMBER(make_image(engine, WIDTH, HEIGHT, false, &anew[0]), shared[0]);
            } else {
                const sumi_import_desc again = semaphore_desc(SUMI_EXTERNAL_VULKAN_TIMELINE, shared[which], true);
                anew[which] = import(engine, &again);
            }
            target = (sumi_target){.external = anew[0], .wait = {anew[1], 0}, .signal = {anew[2], 4}};
            CHECK_NUMBER(submit_and_wait(engine, &desc, &job), SUMI_OK);
            CHECK_NUMBER(fetch(engine, job), SUMI_OK);
            CHECK_NUMBER((int)fake_shared_value(shared[2]), 4);
            close_cuda(engine);
            for (int i = 0; i < 3; i++) fake_shared_release(shared[i]);
            if (t_errors > 0) printf("  external %d, done %d\n", which, is_done);
        }
    }
}

TEST(an_engine_may_go_with_copies_in_flight)
{
    for (int order = 0; order < 4; order++) {
        fake_reset();
        sumi_model* model;
        sumi_engine* engine = cuda_engine_with(order % 2 == 0 ? SUMI_PUMP_UPDATE : SUMI_PUMP_THREAD, 20, &model);
        if (engine == NULL) return;
        sumi_external *external, *signal, *previews;
        // in an order in which the semaphore is the older one, and in the other
        int shared[3];
        if (order < 2) shared[1] = make_timeline(engine, &signal);
        shared[0] = make_image(engine, WIDTH, HEIGHT, false, &external);
        shared[2] = make_image(engine, WIDTH / 8, HEIGHT / 8, true, &previews);
        if (order >= 2) shared[1] = make_timeline(engine, &signal);
        sumi_image_desc desc = small_image(model, &s_item);
        desc.width = WIDTH;
        desc.preview_every = 1;
        const sumi_target target = {.external = external, .signal = {signal, 2}},
                          preview = {.external = previews, .signal = {signal, 1}};
        desc.targets = &target;
        sumi_job job;
        CHECK_NUMBER(submit_and_wait(engine, &desc, &job), SUMI_OK);
        fake_complete_after(1000000);
        CHECK_NUMBER(sumi_job_show_preview(engine, job, 0, &preview), SUMI_OK);
        CHECK_NUMBER(sumi_job_show_preview(engine, job, 0, &preview), SUMI_BUSY);
        fake_finish();
        CHECK_NUMBER(fetch(engine, job), SUMI_OK);
        CHECK_NUMBER((int)fake_shared_value(shared[1]), 1);
        if (order == 3) sumi_external_release(signal); // waits for the copy that signals it
        close_cuda(engine);
        CHECK_NUMBER((int)fake_shared_value(shared[1]), 2);
        for (int i = 0; i < 3; i++) fake_shared_release(shared[i]);
    }
}

// Every call that importing, copying and releasing makes fails once.
TEST(the_nth_call_may_fail)
{
    static const struct {
        const char* name;
        int nth;
        bool at_import, is_image;
        sumi_result result;
    } s_entries[] = {
        {"cuImportExternalMemory", 1, true, false, SUMI_INVALID_ARGUMENT},
        {"cuExternalMemoryGetMappedBuffer", 1, true, false, SUMI_INVALID_ARGUMENT},
        {"cuExternalMemoryGetMappedMipmappedArray", 1, true, true, SUMI_INVALID_ARGUMENT},
        {"cuMipmappedArrayGetLevel", 1, true, true, SUMI_INVALID_ARGUMENT},
        {"cuMemAlloc", 1, true, false, SUMI_OUT_OF_DEVICE_MEMORY},
        {"cuMemHostAlloc", 1, true, false, SUMI_OUT_OF_HOST_MEMORY},
        {"cuStreamCreateWithPriority", 1, true, false, SUMI_INTERNAL},
        {"cuEventCreate", 1, true, false, SUMI_INTERNAL},
        {"cuMemcpy2DAsync", 1, false, false, SUMI_INTERNAL},
        {"cuMemcpy2DAsync", 1, false, true, SUMI_INTERNAL},
        {"cuWaitExternalSemaphoresAsync", 1, false, true, SUMI_INTERNAL},
        {"cuSignalExternalSemaphoresAsync", 1, false, true, SUMI_INTERNAL},
        {"cuSignalExternalSemaphoresAsync", 2, false, true, SUMI_INTERNAL}, // of the second image of the batch
    };
    static const sumi_image_item s_items[2] = {{.text = "a red fox", .seed = 7}, {.text = "a lighthouse", .seed = 8}};
    for (size_t e = 0; e < sizeof s_entries / sizeof *s_entries; e++) {
        fake_reset();
        sumi_model* model;
        sumi_engine* engine = cuda_engine(20, &model);
        if (engine == NULL) return;
        const uint64_t bytes = WIDTH * HEIGHT * 4;
        sumi_external *externals[2] = {NULL, NULL}, *wait, *signals[2];
        int memory[2];
        const int waits = make_timeline(engine, &wait);
        const int signalled[2] = {make_timeline(engine, &signals[0]), make_timeline(engine, &signals[1])};
        for (int i = 0; i < 2; i++) {
            memory[i] = fake_shared_memory(MEMORY_TYPE, bytes, false);
            sumi_import_desc desc = memory_desc(SUMI_EXTERNAL_VULKAN_MEMORY, memory[i], true, bytes);
            desc.is_image = s_entries[e].is_image;
            desc.takes_previews = true;
            const long held = fake_held();
            const bool fails = i == 1 && s_entries[e].at_import;
            const bool is_memory = s_entries[e].result / 10 == 1;
            if (fails) fake_fail_call(s_entries[e].name, s_entries[e].nth, is_memory ? 2 : 304 /* OPERATING_SYSTEM */);
            CHECK_NUMBER(sumi_import(engine, &desc, &externals[i]), fails ? s_entries[e].result : SUMI_OK);
            if (!fails) continue;
            CHECK(fake_fail_call(NULL, 0, 0) && externals[i] == NULL && is_open(desc.fd));
            CHECK_NUMBER(fake_held(), held);
            CHECK_NUMBER(fake_shared_imports(memory[i]), 0);
            CHECK_NUMBER(sumi_import(engine, &desc, &externals[i]), SUMI_OK); // the same descriptor
        }
        written w = {0};
        fake_on_launch(write_picture, &w);
        sumi_image_desc desc = small_image(model, s_items);
        desc.item_count = 2;
        desc.width = WIDTH;
        const sumi_target targets[2] = {{.external = externals[0], .wait = {wait, 1}, .signal = {signals[0], 1}},
                                        {.external = externals[1], .wait = {wait, 1}, .signal = {signals[1], 1}}};
        desc.targets = targets;
        sumi_job job;
        sumi_image images[2];
        fake_shared_signal(waits, 1);
        CHECK_NUMBER(submit_and_wait(engine, &desc, &job), SUMI_OK);
        if (!s_entries[e].at_import) {
            fake_fail_call(s_entries[e].name, s_entries[e].nth, 304);
            CHECK_NUMBER(sumi_fetch_images(engine, job, images, 2), s_entries[e].result);
            CHECK(fake_fail_call(NULL, 0, 0));
            CHECK_NUMBER((int)fake_shared_value(signalled[0]), s_entries[e].nth == 2); // and is not signalled again
            CHECK_NUMBER((int)fake_shared_value(signalled[1]), 0);
        }
        CHECK_NUMBER(sumi_fetch_images(engine, job, images, 2), SUMI_OK);
        for (int i = 0; i < 2; i++) {
            CHECK_NUMBER((int)fake_shared_value(signalled[i]), 1);
            CHECK(all_are(fake_shared_bytes(memory[i]), bytes, i + 1));
        }
        fake_on_launch(NULL, NULL);
        close_cuda(engine);
        for (int i = 0; i < 2; i++) fake_shared_release(memory[i]), fake_shared_release(signalled[i]);
        fake_shared_release(waits);
        if (t_errors > 0) printf("  %s: %s\n", s_entries[e].name, s_host.log);
    }
    // A keyed mutex that was acquired, and a binary semaphore's signal that was taken, are given back when the copy fails.
    static const struct {
        sumi_external_kind memory, semaphore;
        int memory_type, semaphore_type, signalled, released;
    } s_taken[] = {
        {SUMI_EXTERNAL_D3D11_RESOURCE, SUMI_EXTERNAL_D3D11_KEYED_MUTEX, 6, 7, 3, 4},
        {SUMI_EXTERNAL_VULKAN_MEMORY, SUMI_EXTERNAL_VULKAN_SEMAPHORE, 2, 2, 1, 0},
    };
    for (size_t k = 0; k < sizeof s_taken / sizeof *s_taken; k++) {
        fake_reset();
        sumi_model* model;
        sumi_engine* engine = cuda_engine(20, &model);
        if (engine == NULL) return;
        const uint64_t bytes = WIDTH * HEIGHT * 4;
        const int memory = fake_shared_memory(s_taken[k].memory_type, bytes, true),
                  waits = fake_shared_semaphore(s_taken[k].semaphore_type),
                  signals = k == 0 ? waits : fake_shared_semaphore(s_taken[k].semaphore_type);
        sumi_import_desc desc = memory_desc(s_taken[k].memory, memory, false, bytes);
        desc.device_uuid = NULL, desc.device_luid = s_luid;
        desc.is_image = desc.is_dedicated = true;
        sumi_external *external = import(engine, &desc), *imported[2];
        desc = semaphore_desc(s_taken[k].semaphore, waits, false);
        imported[0] = imported[1] = import(engine, &desc);
        desc = semaphore_desc(s_taken[k].semaphore, signals, false);
        if (k == 1) imported[1] = import(engine, &desc);
        sumi_image_desc image = small_image(model, &s_item);
        image.width = WIDTH;
        const sumi_target target = {.external = external, .wait = {imported[0], 3}, .signal = {imported[1], 4}};
        image.targets = &target;
        sumi_job job;
        fake_shared_signal(waits, (uint64_t)s_taken[k].signalled);
        CHECK_NUMBER(submit_and_wait(engine, &image, &job), SUMI_OK);
        fake_fail_call("cuMemcpy2DAsync", 1, 304);
        CHECK_NUMBER(fetch(engine, job), SUMI_INTERNAL);
        CHECK_NUMBER((int)fake_shared_value(waits), s_taken[k].signalled);
        CHECK_NUMBER(fetch(engine, job), SUMI_OK);
        CHECK_NUMBER((int)fake_shared_value(waits), s_taken[k].released);
        if (k == 1) CHECK_NUMBER((int)fake_shared_value(signals), 1);
        close_cuda(engine);
        fake_shared_release(memory);
        fake_shared_release(waits);
        if (k == 1) fake_shared_release(signals);
    }
}

TEST(drivers_without_these_entries_say_so)
{
    static const struct {
        const char* entry;
        sumi_external_kind kind;
    } s_lacking[] = {
        {"cuImportExternalMemory", SUMI_EXTERNAL_VULKAN_MEMORY},
        {"cuExternalMemoryGetMappedMipmappedArray", SUMI_EXTERNAL_D3D12_RESOURCE},
        {"cuImportExternalSemaphore", SUMI_EXTERNAL_D3D12_FENCE},
        {"cuWaitExternalSemaphoresAsync", SUMI_EXTERNAL_VULKAN_SEMAPHORE},
        {"cuGraphicsD3D11RegisterResource", SUMI_EXTERNAL_D3D11_TEXTURE},
        {"cuGraphicsGLRegisterBuffer", SUMI_EXTERNAL_GL_BUFFER},
    };
    for (size_t i = 0; i < sizeof s_lacking / sizeof *s_lacking; i++) {
        fake_reset();
        fake_lack_entry(s_lacking[i].entry);
        sumi_model* model;
        sumi_engine* engine = cuda_engine(20, &model);
        if (engine == NULL) return;
        sumi_import_desc desc = sumi_import_defaults();
        desc.kind = s_lacking[i].kind;
        desc.device_uuid = s_uuid;
        if (desc.kind == SUMI_EXTERNAL_GL_BUFFER) desc.gl_name = 1;
        else desc.handle = &desc;
        if (desc.kind < SUMI_EXTERNAL_VULKAN_TIMELINE) desc.width = desc.height = 16, desc.memory_bytes = 1024;
        sumi_external* external;
        CHECK_NUMBER(sumi_import(engine, &desc, &external), SUMI_NOT_SUPPORTED);
        CHECK(strstr(s_host.log, "give host_memory") != NULL);
        const sumi_image_desc image = small_image(model, &s_item);
        CHECK(draw_hash(engine, &image) != 0);
        close_cuda(engine);
    }
}

// The kinds that their API orders: OpenGL's buffers and half floats, and the texture of an immediate context.
TEST(registered_kinds_are_mapped_for_each_copy)
{
    static const struct {
        sumi_external_kind kind;
        sumi_format format;
        size_t offset, pitch;
    } s_cases[] = {
        {SUMI_EXTERNAL_GL_BUFFER, SUMI_FORMAT_RGBA8, 64, WIDTH * 4 + 16},
        {SUMI_EXTERNAL_GL_BUFFER, SUMI_FORMAT_RGB8, 0, WIDTH * 3},
        {SUMI_EXTERNAL_GL_TEXTURE, SUMI_FORMAT_RGBA16F, 0, WIDTH * 8},
        {SUMI_EXTERNAL_D3D11_TEXTURE, SUMI_FORMAT_BGRA8, 0, WIDTH * 4},
        {SUMI_EXTERNAL_D3D11_TEXTURE, SUMI_FORMAT_RGBA16F, 0, WIDTH * 8},
    };
    for (size_t c = 0; c < sizeof s_cases / sizeof *s_cases; c++) {
        fake_reset();
        sumi_model* model;
        sumi_engine* engine = cuda_engine(20, &model);
        if (engine == NULL) return;
        const bool is_buffer = s_cases[c].kind == SUMI_EXTERNAL_GL_BUFFER,
                   is_gl = s_cases[c].kind != SUMI_EXTERNAL_D3D11_TEXTURE;
        const size_t bytes = s_cases[c].offset + s_cases[c].pitch * HEIGHT,
                     row = (size_t)WIDTH * (size_t)s_pixel_bytes[s_cases[c].format];
        const unsigned name = is_buffer                                ? fake_gl_buffer((int)bytes)
                            : s_cases[c].format == SUMI_FORMAT_RGBA16F ? fake_gl_half_texture(WIDTH, HEIGHT)
                                                                       : fake_gl_texture(WIDTH, HEIGHT);
        sumi_import_desc desc = sumi_import_defaults();
        desc.kind = s_cases[c].kind;
        desc.width = WIDTH, desc.height = HEIGHT;
        desc.format = s_cases[c].format;
        desc.offset = s_cases[c].offset;
        if (is_gl) desc.gl_name = name, desc.gl_target = is_buffer ? 0 : 0x0DE1;
        else desc.handle = (void*)(uintptr_t)name;
        if (is_buffer) desc.row_bytes = (int32_t)s_cases[c].pitch;
        sumi_external* external = NULL;
        if (is_gl) CHECK_NUMBER(sumi_import(engine, &desc, &external), SUMI_WRONG_STATE); // no context
        fake_gl_current(is_gl);
        if (is_buffer) { // one row more than it has
            desc.height++;
            CHECK_NUMBER(sumi_import(engine, &desc, &external), SUMI_INVALID_ARGUMENT);
            CHECK(strstr(s_host.log, "need") != NULL);
            desc.height--;
        } else { // another format than it has
            desc.format = desc.format == SUMI_FORMAT_RGBA16F ? SUMI_FORMAT_RGBA8 : SUMI_FORMAT_RGBA16F;
            CHECK_NUMBER(sumi_import(engine, &desc, &external), SUMI_INVALID_ARGUMENT);
            CHECK(strstr(s_host.log, "it must be") != NULL);
            desc.format = s_cases[c].format;
        }
        external = import(engine, &desc);
        written w = {0};
        fake_on_launch(write_picture, &w);
        sumi_image_desc image = small_image(model, &s_item);
        image.width = WIDTH;
        const sumi_target target = {.format = s_cases[c].format, .external = external};
        image.targets = &target;
        for (int round = 1; round <= 2; round++) {
            sumi_job job;
            CHECK_NUMBER(submit_and_wait(engine, &image, &job), SUMI_OK);
            CHECK(all_are(fake_gl_pixels(name) + s_cases[c].offset, row, round - 1));
            CHECK_NUMBER(fetch(engine, job), SUMI_OK);
            for (size_t y = 0; y < HEIGHT; y++)
                CHECK(all_are(fake_gl_pixels(name) + s_cases[c].offset + y * s_cases[c].pitch, row, round));
        }
        fake_on_launch(NULL, NULL);
        close_cuda(engine);
        fake_gl_release(name);
        fake_gl_current(false);
        if (t_errors > 0) printf("  case %zu: %s\n", c, s_host.log);
    }
}

TEST(many_imports_leave_nothing)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    const uint64_t bytes = WIDTH * HEIGHT * 4;
    const int memory = fake_shared_memory(MEMORY_TYPE, bytes, false), timeline = fake_shared_semaphore(TIMELINE_TYPE);
    const sumi_engine_info before = sumi_engine_get_info(engine);
    const long held = fake_held();
    if (HAS_DESCRIPTORS) { // their first ones stay open
        close_descriptor(fake_shared_descriptor(memory));
        close_descriptor(fake_shared_descriptor(timeline));
    } else {
        (void)fake_shared_handle(memory);
        (void)fake_shared_handle(timeline);
    }
    const int open_before = count_open();
    for (int i = 0; i < 200; i++) {
        sumi_import_desc desc = memory_desc(SUMI_EXTERNAL_VULKAN_MEMORY, memory, true, bytes);
        desc.is_image = i % 2 == 0;
        desc.takes_previews = i % 3 == 0;
        sumi_external* external = import(engine, &desc);
        desc = semaphore_desc(SUMI_EXTERNAL_VULKAN_TIMELINE, timeline, true);
        sumi_external* semaphore = import(engine, &desc);
        const sumi_engine_info now = sumi_engine_get_info(engine);
        CHECK(now.held_bytes[SUMI_MEMORY_IMAGE] == before.held_bytes[SUMI_MEMORY_IMAGE] + bytes);
        sumi_external_release(semaphore);
        sumi_external_release(external);
        CHECK_NUMBER(fake_held(), held);
    }
    const sumi_engine_info after = sumi_engine_get_info(engine);
    CHECK(memcmp(after.held_bytes, before.held_bytes, sizeof after.held_bytes) == 0
          && after.host_bytes == before.host_bytes);
    CHECK_NUMBER(count_open(), open_before); // every descriptor was closed
    close_cuda(engine);
    fake_shared_release(memory);
    fake_shared_release(timeline);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(an_engine_tells_its_device);
    RUN(every_kind_gets_its_image_between_wait_and_signal);
    RUN(imports_may_lie_in_the_same_memory);
    RUN(an_image_on_its_way_is_not_overwritten_and_delays_nothing_else);
    RUN(previews_are_shown_or_dropped);
    RUN(previews_have_the_format_of_the_external);
    RUN(imports_that_cannot_be_are_refused);
    RUN(targets_need_semaphores_of_their_own_engine);
    RUN(a_release_ends_the_jobs_that_use_it);
    RUN(an_engine_may_go_with_copies_in_flight);
    RUN(the_nth_call_may_fail);
    RUN(drivers_without_these_entries_say_so);
    RUN(registered_kinds_are_mapped_for_each_copy);
    RUN(many_imports_leave_nothing);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
