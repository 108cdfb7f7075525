// Depth buffers of textures of the host program, on the fake driver: what is copied when, what kernels are given, which
// picture is kept, what is refused, and what is left when something fails. What the kernels compute: test_cuda_ops.
#include "engine_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "cuda_fixture.h"
#include "fake_cuda.h"
#include "kernels/depth.h"
#include <cuda.h>

#define NET "tests/golden/controlnet/Z-Image-Turbo-Fun-Controlnet-Union"
enum { WIDTH = 40, HEIGHT = 24, SIZE = 32, DEPTH_BYTES = WIDTH * HEIGHT * 4, PICTURE_BYTES = SIZE * SIZE * 3 };

static const uint8_t s_uuid[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// ---- The scene ------------------------------------------------------------------------------------------------------

// An engine with a net, a texture of Direct3D 12 that may lie in rows, and two fences: these run on every system.
typedef struct scene {
    sumi_engine* engine;
    sumi_model* model;
    sumi_control* control;
    int memory, waits, signals;
    sumi_external *texture, *wait, *signal;
    sumi_depth depth;
    sumi_control_picture picture;
    sumi_control_use use;
    sumi_image_desc desc;
} scene;

static sumi_external* import(sumi_engine* engine, const sumi_import_desc* desc)
{
    sumi_external* external = NULL;
    CHECK_NUMBER(sumi_import(engine, desc, &external), SUMI_OK);
    if (external == NULL) printf("  %s\n", s_host.log);
    return external;
}

static sumi_import_desc fence_desc(int shared)
{
    sumi_import_desc desc = sumi_import_defaults();
    desc.kind = SUMI_EXTERNAL_D3D12_FENCE;
    desc.handle = fake_shared_handle(shared);
    desc.device_uuid = s_uuid;
    return desc;
}

static sumi_import_desc depth_desc(int shared, bool is_image)
{
    sumi_import_desc desc = fence_desc(shared);
    desc.kind = SUMI_EXTERNAL_D3D12_RESOURCE;
    desc.width = WIDTH;
    desc.height = HEIGHT;
    desc.memory_bytes = DEPTH_BYTES;
    desc.is_image = is_image;
    desc.is_depth = true;
    return desc;
}

static void read_net(scene* s)
{
    sumi_control_desc net = sumi_control_defaults(s->model);
    sumi_job job;
    net.path = NET;
    CHECK_NUMBER(sumi_submit_control(s->engine, &net, &job), SUMI_OK);
    sumi_job_wait(s->engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_fetch_control(s->engine, job, &s->control), SUMI_OK);
}

static bool open_scene(scene* s, bool is_image)
{
    fake_reset();
    *s = (scene){0};
    s->engine = cuda_engine(2000, &s->model);
    if (s->engine == NULL) return false;
    read_net(s);
    s->memory = fake_shared_memory(CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE, DEPTH_BYTES, true);
    s->waits = fake_shared_semaphore(CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE);
    s->signals = fake_shared_semaphore(CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE);
    const sumi_import_desc texture = depth_desc(s->memory, is_image), wait = fence_desc(s->waits),
                           signal = fence_desc(s->signals);
    s->texture = import(s->engine, &texture);
    s->wait = import(s->engine, &wait);
    s->signal = import(s->engine, &signal);
    s->depth = sumi_depth_defaults();
    s->depth.kind = SUMI_DEPTH_REVERSED;
    s->depth.near_plane = 0.5f;
    s->depth.far_plane = INFINITY;
    s->depth.external = s->texture;
    s->depth.wait = (sumi_sync){s->wait, 1};
    s->depth.signal = (sumi_sync){s->signal, 1};
    s->picture.depth = &s->depth;
    s->use = sumi_control_use_defaults(s->control);
    s->use.pictures = &s->picture;
    s->use.picture_count = 1;
    s->desc = small_image(s->model, &s_item);
    s->desc.step_count = 1;
    s->desc.controls = &s->use;
    s->desc.control_count = 1;
    return s->control != NULL && s->texture != NULL && s->wait != NULL && s->signal != NULL;
}

static void close_scene(scene* s)
{
    fake_on_launch(NULL, NULL);
    close_cuda(s->engine);
    fake_shared_release(s->memory);
    fake_shared_release(s->waits);
    fake_shared_release(s->signals);
}

// The kernels that were launched, and what the depth was then; the picture gets the depth's first byte.
typedef struct watch {
    int counts, ranks, pictures;
    uint8_t first_byte, byte_before; // of the newest picture, and of the one before it
    sumi_depth_kernel_args args;
} watch;

static void watch_kernels(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data)
{
    watch* w = user_data;
    if (strncmp(kernel, "sumi_depth_", 11) != 0) return;
    CHECK(bytes >= sizeof w->args);
    memcpy(&w->args, parameters, sizeof w->args);
    w->counts += strcmp(kernel, "sumi_depth_count") == 0;
    w->ranks += strcmp(kernel, "sumi_depth_rank") == 0;
    if (strcmp(kernel, "sumi_depth_picture") != 0) return;
    w->pictures++;
    w->byte_before = w->first_byte;
    w->first_byte = *(const uint8_t*)(uintptr_t)w->args.depth;
    memset((void*)(uintptr_t)w->args.picture, w->first_byte, PICTURE_BYTES);
}

static void fill_texture(const scene* s, int byte)
{
    memset((void*)(uintptr_t)fake_shared_bytes(s->memory), byte, DEPTH_BYTES);
}

static bool sees(const scene* s, sumi_job job, int byte)
{
    static uint8_t s_rgb[PICTURE_BYTES];
    const sumi_control_view view = {0, 0, s_rgb, sizeof s_rgb};
    CHECK_NUMBER(sumi_job_control_picture(s->engine, job, &view), SUMI_OK);
    for (size_t i = 0; i < sizeof s_rgb; i++)
        if (s_rgb[i] != byte) return false;
    return true;
}

static void drop(scene* s, sumi_job job)
{
    sumi_image image = {0};
    CHECK_NUMBER(sumi_fetch_images(s->engine, job, &image, 1), SUMI_OK);
    sumi_images_release(s->engine, &image, 1);
}

// ---- Tests ----------------------------------------------------------------------------------------------------------

TEST(depth_is_copied_between_wait_and_signal_and_kept_until_the_fetch)
{
    for (int is_image = 0; is_image < 2; is_image++) {
        scene s;
        watch w = {0};
        sumi_job job;
        if (!open_scene(&s, is_image)) return;
        fake_on_launch(watch_kernels, &w);
        fill_texture(&s, 11);
        CHECK_NUMBER(sumi_submit_images(s.engine, &s.desc, &job), SUMI_OK);
        CHECK(run_updates(s.engine, job, 200));
        CHECK(w.pictures == 0 && fake_shared_value(s.signals) == 0); // the host program draws still
        fill_texture(&s, 22);
        fake_shared_signal(s.waits, 1);
        CHECK_NUMBER((int)fake_shared_value(s.signals), 1);
        fill_texture(&s, 33); // the next frame, while the job waits
        CHECK_NUMBER(run_to_end(s.engine, job), SUMI_OK);
        CHECK(w.counts == 3 && w.ranks == 3 && w.pictures == 1);
        CHECK_NUMBER(w.first_byte, 22);
        CHECK(w.args.kind == SUMI_DEPTH_REVERSED && w.args.from_width == WIDTH && w.args.height == SIZE);
        CHECK(w.args.inverse == 0 && isinf(w.args.sky) && w.args.inverse_near == 2.0f && w.args.inverse_far == 0.0f);
        CHECK(sees(&s, job, 22));
        drop(&s, job);
        // The next frame: a range needs no percentiles.
        s.depth.low = 1.0f, s.depth.high = 20.0f, s.depth.bottom_up = true;
        s.depth.wait.value = s.depth.signal.value = 2;
        w = (watch){0};
        CHECK_NUMBER(sumi_submit_images(s.engine, &s.desc, &job), SUMI_OK);
        fake_shared_signal(s.waits, 2);
        CHECK_NUMBER(run_to_end(s.engine, job), SUMI_OK);
        CHECK(w.counts == 0 && w.ranks == 0 && w.pictures == 1 && w.args.has_range && w.args.bottom_up);
        CHECK(w.args.white == 1.0f && w.args.black == 20.0f && w.args.scale == 1.0f / (1.0f - 20.0f));
        CHECK(sees(&s, job, 33));
        drop(&s, job);
        close_scene(&s);
    }
}

// OpenGL orders the copy by mapping the texture while the call runs.
TEST(textures_of_opengl_are_read_by_the_submit)
{
    scene s;
    watch w = {0};
    sumi_job job;
    if (!open_scene(&s, true)) return;
    fake_on_launch(watch_kernels, &w);
    fake_gl_current(true);
    const unsigned name = fake_gl_depth_texture(WIDTH, HEIGHT), colours = fake_gl_texture(WIDTH, HEIGHT);
    sumi_import_desc desc = sumi_import_defaults();
    desc.kind = SUMI_EXTERNAL_GL_TEXTURE;
    desc.gl_target = 0x0DE1;
    desc.width = WIDTH, desc.height = HEIGHT;
    desc.is_depth = true;
    sumi_external* none = NULL;
    // A texture of another format, and one that CUDA does not take at all, as those of depth formats.
    desc.gl_name = colours;
    CHECK_NUMBER(sumi_import(s.engine, &desc, &none), SUMI_INVALID_ARGUMENT);
    CHECK(none == NULL && strstr(s_host.log, "depth is read from GL_R32F; copy a depth buffer to an R32F") != NULL);
    desc.gl_name = 77;
    CHECK_NUMBER(sumi_import(s.engine, &desc, &none), SUMI_INVALID_ARGUMENT);
    CHECK(none == NULL && strstr(s_host.log, "CUDA shares no depth formats; copy a depth buffer to an R32F") != NULL);
    desc.gl_name = name;
    sumi_external* external = import(s.engine, &desc);
    s.depth.external = external;
    CHECK_NUMBER(sumi_submit_images(s.engine, &s.desc, &job), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "ordered by its API") != NULL);
    s.depth.wait = s.depth.signal = (sumi_sync){0};
    memset((void*)(uintptr_t)fake_gl_pixels(name), 44, DEPTH_BYTES);
    fake_gl_current(false);
    CHECK_NUMBER(sumi_submit_images(s.engine, &s.desc, &job), SUMI_WRONG_STATE);
    CHECK(job.id == 0);
    fake_gl_current(true);
    CHECK_NUMBER(sumi_submit_images(s.engine, &s.desc, &job), SUMI_OK);
    memset((void*)(uintptr_t)fake_gl_pixels(name), 55, DEPTH_BYTES);
    CHECK_NUMBER(run_to_end(s.engine, job), SUMI_OK);
    CHECK_NUMBER(w.first_byte, 44);
    CHECK(sees(&s, job, 44));
    drop(&s, job);
    sumi_external_release(external);
    fake_gl_release(name);
    fake_gl_release(colours);
    fake_gl_current(false);
    close_scene(&s);
}

static void draw_next_frame(int shared, void* user_data)
{
    (void)shared;
    fill_texture(user_data, 66);
}

// One job at a time; after a discard the next copy waits for kernels that read the depth before.
TEST(an_external_is_read_by_one_job_at_a_time)
{
    scene s;
    watch w = {0};
    sumi_job job, second;
    if (!open_scene(&s, true)) return;
    fake_on_launch(watch_kernels, &w);
    fake_on_signal(draw_next_frame, &s);
    fill_texture(&s, 11);
    CHECK_NUMBER(sumi_submit_images(s.engine, &s.desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_submit_images(s.engine, &s.desc, &second), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "neither fetched nor discarded") != NULL);
    CHECK(run_updates(s.engine, job, 200)); // its kernels wait in the stream
    sumi_job_discard(s.engine, job);
    s.depth.wait = s.depth.signal = (sumi_sync){0}; // the host program orders by itself
    CHECK_NUMBER(sumi_submit_images(s.engine, &s.desc, &second), SUMI_OK);
    fake_shared_signal(s.waits, 1);
    fake_on_signal(NULL, NULL);
    CHECK_NUMBER(run_to_end(s.engine, second), SUMI_OK);
    CHECK_NUMBER(w.pictures, 2);
    CHECK_NUMBER(w.byte_before, 11);
    CHECK(sees(&s, second, 66));
    drop(&s, second);
    // A larger picture, for which the kept one grows.
    s.desc.width = s.desc.height = 64;
    CHECK_NUMBER(sumi_submit_images(s.engine, &s.desc, &job), SUMI_OK);
    CHECK_NUMBER(run_to_end(s.engine, job), SUMI_OK);
    CHECK(w.args.width == 64 && w.args.height == 64);
    drop(&s, job);
    // Strength 0: nothing is computed, but the host program gets its signal.
    s.desc.width = s.desc.height = SIZE;
    s.use.strength = 0.0f;
    s.depth.signal = (sumi_sync){s.signal, 5};
    CHECK_NUMBER(sumi_submit_images(s.engine, &s.desc, &job), SUMI_OK);
    CHECK_NUMBER((int)fake_shared_value(s.signals), 5);
    CHECK_NUMBER(run_to_end(s.engine, job), SUMI_OK);
    drop(&s, job);
    close_scene(&s);
}

TEST(a_release_ends_the_job_that_reads_it)
{
    for (int is_done = 0; is_done < 2; is_done++) {
        scene s;
        sumi_job job;
        if (!open_scene(&s, true)) return;
        fake_shared_signal(s.waits, 1);
        CHECK_NUMBER(sumi_submit_images(s.engine, &s.desc, &job), SUMI_OK);
        if (is_done) CHECK_NUMBER(run_to_end(s.engine, job), SUMI_OK);
        sumi_external_release(s.wait);
        sumi_external_release(s.signal);
        CHECK_NUMBER(sumi_job_poll(s.engine, job).state, is_done ? SUMI_JOB_DONE : SUMI_JOB_QUEUED);
        sumi_external_release(s.texture);
        CHECK_NUMBER(sumi_job_poll(s.engine, job).state, is_done ? SUMI_JOB_DONE : SUMI_JOB_CANCELLED);
        static uint8_t s_rgb[PICTURE_BYTES];
        const sumi_control_view view = {0, 0, s_rgb, sizeof s_rgb};
        CHECK_NUMBER(sumi_job_control_picture(s.engine, job, &view), is_done ? SUMI_WRONG_STATE : SUMI_CANCELLED);
        if (is_done) drop(&s, job);
        else sumi_job_discard(s.engine, job);
        close_scene(&s);
    }
}

TEST(depth_that_cannot_be_is_refused_by_name)
{
    scene s;
    sumi_job job;
    if (!open_scene(&s, true)) return;
    static float s_values[WIDTH * HEIGHT];
    const int images = fake_shared_memory(CU_EXTERNAL_MEMORY_HANDLE_TYPE_D3D12_RESOURCE, DEPTH_BYTES, true);
    sumi_import_desc desc = depth_desc(images, true);
    sumi_external* none = NULL;
    desc.takes_previews = true;
    CHECK_NUMBER(sumi_import(s.engine, &desc, &none), SUMI_INVALID_ARGUMENT);
    CHECK(none == NULL && strstr(s_host.log, "leave format and takes_previews alone") != NULL);
    desc = depth_desc(images, true);
    desc.is_depth = false;
    sumi_external* image = import(s.engine, &desc);
    const sumi_depth good = s.depth;
#define BAD(change, text)                                                                                              \
    do {                                                                                                               \
        s.depth = good;                                                                                                \
        change;                                                                                                        \
        CHECK_NUMBER(sumi_submit_images(s.engine, &s.desc, &job), SUMI_INVALID_ARGUMENT);                              \
        if (strstr(s_host.log, text) == NULL) printf("  " #change ": %s\n", s_host.log);                               \
        CHECK(strstr(s_host.log, text) != NULL);                                                                       \
    } while (0)
    BAD(s.depth.external = image, "with is_depth");
    BAD(s.depth.external = s.wait, "is a semaphore");
    BAD(s.depth.wait.semaphore = image, "wait.semaphore is no semaphore");
    BAD(s.depth.signal.semaphore = image, "signal.semaphore is no semaphore");
    BAD(s.depth.data = s_values, "has data and external");
    BAD(s.depth.format = SUMI_DEPTH_U16, "format is SUMI_DEPTH_F32");
    BAD(s.depth.row_bytes = WIDTH * 4, "row_bytes 0");
    BAD(s.depth.width = WIDTH, "its external 40 x 24");
    BAD(s.depth.near_plane = 0.0f, "near_plane is 0");
#undef BAD
    s.depth = good;
    const sumi_control_use twice[2] = {s.use, s.use};
    s.desc.controls = twice, s.desc.control_count = 2;
    CHECK_NUMBER(sumi_submit_images(s.engine, &s.desc, &job), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "the depth of two pictures") != NULL);
    const sumi_target target = {.external = s.texture, .signal = {s.signal, 9}};
    sumi_image_desc written = small_image(s.model, &s_item);
    written.targets = &target;
    CHECK_NUMBER(sumi_submit_images(s.engine, &written, &job), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "nothing is written to it") != NULL);
    CHECK(fake_shared_value(s.signals) == 0); // none of it was read
    close_scene(&s);
    fake_shared_release(images);
}

// The engine works after each failure, and the job can be submitted again.
TEST(the_nth_call_may_fail)
{
    static const struct {
        const char* name;
        bool at_submit;
        sumi_result result;
    } s_entries[] = {
        {"cuWaitExternalSemaphoresAsync", true, SUMI_INTERNAL},
        {"cuMemcpy2DAsync", true, SUMI_INTERNAL},
        {"cuSignalExternalSemaphoresAsync", true, SUMI_INTERNAL},
        {"cuMemHostAlloc", false, SUMI_OUT_OF_HOST_MEMORY},
    };
    scene s;
    watch w = {0};
    if (!open_scene(&s, true)) return;
    fake_on_launch(watch_kernels, &w);
    for (size_t e = 0; e < sizeof s_entries / sizeof *s_entries; e++) {
        sumi_job job;
        // Larger pictures, so that the one that is kept grows; the other pinned memory is there after the first one.
        s.desc.width = s.desc.height = SIZE;
        s.depth.wait.value = s.depth.signal.value = 10 * e + 1;
        fake_shared_signal(s.waits, 10 * e + 9);
        if (!s_entries[e].at_submit) s.depth.wait = s.depth.signal = (sumi_sync){0};
        fake_fail_call(s_entries[e].name, 1, s_entries[e].result == SUMI_INTERNAL ? 304 : 2);
        const sumi_result result = sumi_submit_images(s.engine, &s.desc, &job);
        CHECK_NUMBER(result, s_entries[e].at_submit ? s_entries[e].result : SUMI_OK);
        if (result == SUMI_OK) {
            CHECK_NUMBER(run_to_end(s.engine, job), s_entries[e].result);
            sumi_job_discard(s.engine, job);
        }
        CHECK(fake_fail_call(NULL, 0, 0));
        s.depth.wait.value = s.depth.signal.value = 10 * e + 2;
        CHECK_NUMBER(sumi_submit_images(s.engine, &s.desc, &job), SUMI_OK);
        if (!s_entries[e].at_submit) {
            CHECK_NUMBER(run_to_end(s.engine, job), SUMI_OK);
            CHECK(w.pictures >= 1);
        }
        sumi_job_discard(s.engine, job);
    }
    close_scene(&s);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(depth_is_copied_between_wait_and_signal_and_kept_until_the_fetch);
    RUN(textures_of_opengl_are_read_by_the_submit);
    RUN(an_external_is_read_by_one_job_at_a_time);
    RUN(a_release_ends_the_job_that_reads_it);
    RUN(depth_that_cannot_be_is_refused_by_name);
    RUN(the_nth_call_may_fail);
    TEST_END();
}
#else
TEST(depth_of_textures) { SKIP("built without the CUDA backend"); }
int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(depth_of_textures);
    TEST_END();
}
#endif
