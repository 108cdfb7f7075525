// Pictures that stay on the device, with the CUDA backend on the fake driver (fake_cuda): when memory of the
// host's is written, and that it never is after a job's end.
#include "engine_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "cuda_fixture.h"
#include "fake_cuda.h"
#include "jobs/engine_state.h"
#include "kernels/pictures.h"
#include "plan/async.h"
#include "plan/runner.h"

// What the kernel that writes was told, and the writing done for it: every byte of every row gets the number of the
// call.
typedef struct written {
    int count;
    sumi_pixels_to_args args[16];
    int32_t height;
} written;

static void write_picture(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data)
{
    written* w = user_data;
    if (strcmp(kernel, "sumi_pixels_to") != 0) return;
    CHECK(bytes >= sizeof(sumi_pixels_to_args));
    sumi_pixels_to_args args;
    memcpy(&args, parameters, sizeof args);
    const size_t row = (size_t)args.width
                     * (args.format == SUMI_PIXELS_RGB32F    ? 12
                        : args.format == SUMI_PIXELS_RGBA16F ? 8
                        : args.format == SUMI_PIXELS_RGB8    ? 3
                                                             : 4);
    w->args[w->count++ % 16] = args;
    for (int32_t y = 0; y < w->height; y++)
        memset((unsigned char*)(uintptr_t)args.to + (size_t)y * args.pitch, w->count, row);
}

static const sumi_image_item s_three[3] = {
    {.text = "a red fox", .seed = 7}, {.text = "a lighthouse", .seed = 8}, {.text = "a red fox", .seed = 9}};

TEST(every_format_is_written_where_it_should_be)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, s_three);
    desc.item_count = 3;
    desc.width = 48;
    float latents[3][16 * 4 * 6], plain[3][16 * 4 * 6];
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK); // to host memory
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    for (int i = 0; i < 3; i++) CHECK_NUMBER(sumi_job_latents(engine, job, i, plain[i], 16 * 4 * 6), SUMI_OK);
    sumi_job_discard(engine, job);

    static const int32_t s_rows[3] = {48 * 4 + 64, 48 * 3, 48 * 12 + 4};
    struct CUevent_st* event = fake_host_event();
    uint64_t memory[3];
    sumi_target targets[3];
    for (int i = 0; i < 3; i++) {
        memory[i] = fake_host_memory((uint64_t)s_rows[i] * 32);
        targets[i] = (sumi_target){.format = (sumi_format)i,
                                   .device_address = memory[i],
                                   .row_bytes = i == 1 ? 0 : s_rows[i],
                                   .event = i == 2 ? event : NULL};
    }
    desc.targets = targets;
    sumi_memory need;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &need), SUMI_OK);
    CHECK(need.images < sizeof latents + 3 * 64); // latents, no pictures
    written w = {.height = 32};
    fake_on_launch(write_picture, &w);
    fake_complete_after(3);
    const uint64_t copies = fake_calls("cuMemcpyDtoHAsync");
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    CHECK(fake_event_is_done(event));
    CHECK(fake_calls("cuMemcpyDtoHAsync") - copies < 3); // no picture comes to the host
    CHECK_NUMBER(w.count, 3);
    for (int i = 0; i < 3; i++) {
        const sumi_pixels_to_args* args = &w.args[i];
        CHECK(args->to == memory[i] && args->pitch == (uint64_t)s_rows[i] && args->width == 48);
        CHECK_NUMBER(args->format, i == 0 ? SUMI_PIXELS_RGBA8 : i == 1 ? SUMI_PIXELS_RGB8 : SUMI_PIXELS_RGB32F);
        CHECK_NUMBER(sumi_job_latents(engine, job, i, latents[i], 16 * 4 * 6), SUMI_OK);
    }
    CHECK(w.args[1].from == w.args[0].from + 48 * 32 * 3); // the second item of the same values
    CHECK(memcmp(latents, plain, sizeof latents) == 0);
    const unsigned char* first = (const unsigned char*)(uintptr_t)memory[0];
    CHECK(first[0] == 1 && first[48 * 4 - 1] == 1 && first[48 * 4] == 0 && first[s_rows[0]] == 1
          && first[31 * s_rows[0] + 48 * 4 - 1] == 1);
    sumi_image images[3];
    CHECK_NUMBER(sumi_fetch_images(engine, job, images, 3), SUMI_OK);
    for (int i = 0; i < 3; i++)
        CHECK(images[i].pixels == NULL && images[i].handle == 0 && images[i].row_bytes == s_rows[i]
              && images[i].width == 48 && images[i].height == 32);
    sumi_images_release(engine, images, 3);

    // From below: the last row is where the memory begins.
    targets[0] = (sumi_target){
        .format = SUMI_FORMAT_BGRA8, .device_address = memory[0], .row_bytes = s_rows[0], .bottom_up = true};
    w.count = 0;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    CHECK(w.args[0].to == memory[0] + 31 * (uint64_t)s_rows[0] && w.args[0].pitch == 0 - (uint64_t)s_rows[0]);
    CHECK_NUMBER(w.args[0].format, SUMI_PIXELS_BGRA8);
    CHECK_NUMBER(sumi_fetch_images(engine, job, images, 3), SUMI_OK);
    sumi_images_release(engine, images, 3);

    // Beside pictures of ours and of the host's memory: those of four channels are made on the device, too, and copied.
    static unsigned char s_picture[48 * 32 * 4];
    targets[0] = (sumi_target){.format = SUMI_FORMAT_RGBA8};
    targets[1] = (sumi_target){.format = SUMI_FORMAT_RGBA8, .host_memory = s_picture};
    w.count = 0;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    CHECK(w.count == 3 && w.args[2].to == memory[2]);
    for (int i = 0; i < 2; i++) CHECK(w.args[i].format == SUMI_PIXELS_RGBA8 && w.args[i].pitch == 48 * 4);
    CHECK(w.args[1].from == w.args[0].from + 48 * 32 * 3 && w.args[1].to >= w.args[0].to + sizeof s_picture);
    CHECK_NUMBER(sumi_fetch_images(engine, job, images, 3), SUMI_OK);
    CHECK(images[0].pixels != NULL && images[1].pixels == s_picture && images[2].pixels == NULL);
    for (size_t i = 0; i < sizeof s_picture; i++)
        CHECK(((unsigned char*)images[0].pixels)[i] == 1 && s_picture[i] == 2);
    sumi_images_release(engine, images, 3);
    fake_on_launch(NULL, NULL);
    for (int i = 0; i < 3; i++) fake_host_release((void*)(uintptr_t)memory[i]);
    fake_host_release(event);
    close_cuda(engine);
}

// The kernel is told of four channels, and the device converts what the host program does not get as it lies there.
TEST(a_picture_with_alpha_has_four_channels)
{
    fake_reset();
    sumi_engine_desc ed = cuda_desc();
    sumi_engine* engine = open_engine(&ed, NULL);
    sumi_model* model = engine != NULL ? load_model_at(engine, "tests/golden/qwen-image-21/model") : NULL;
    CHECK(model != NULL);
    if (model == NULL) return;
    enum { SIDE = 64, PIXELS = SIDE * SIDE };
    static const sumi_format s_formats[3] = {SUMI_FORMAT_RGBA8, SUMI_FORMAT_RGBA16F, SUMI_FORMAT_BGRA8};
    const uint64_t memory[2] = {fake_host_memory(PIXELS * 4), fake_host_memory(PIXELS * 8)};
    sumi_target targets[3] = {{.device_address = memory[0]}, {.device_address = memory[1]}, {.host_memory = NULL}};
    for (int i = 0; i < 3; i++) targets[i].format = s_formats[i];
    sumi_image_desc desc = small_image(model, s_three);
    desc.item_count = 3;
    desc.width = desc.height = SIDE;
    desc.targets = targets;
    written w = {.height = SIDE};
    fake_on_launch(write_picture, &w);
    sumi_image images[3];
    CHECK_NUMBER(draw(engine, &desc, images), SUMI_OK);
    CHECK_NUMBER(w.count, 3);
    for (int i = 0; i < 3; i++) CHECK(w.args[i].channels == 4 && images[i].has_alpha);
    CHECK(w.args[2].from == w.args[0].from + 2 * PIXELS * 4); // bytes, of the third item
    CHECK(w.args[1].to == memory[1] && w.args[1].pitch == SIDE * 8 && w.args[2].format == SUMI_PIXELS_BGRA8);
    CHECK(images[2].pixels != NULL && ((const unsigned char*)images[2].pixels)[0] == 3);
    sumi_images_release(engine, images, 3);
    // RGBA8 for the host is copied as it is; formats without alpha are told so
    targets[0].device_address = targets[1].device_address = 0;
    targets[1].format = SUMI_FORMAT_RGB8;
    targets[2].format = SUMI_FORMAT_RGB32F;
    w.count = 0;
    CHECK_NUMBER(draw(engine, &desc, images), SUMI_OK);
    CHECK_NUMBER(w.count, 0);
    CHECK(images[0].has_alpha && !images[1].has_alpha && !images[2].has_alpha);
    sumi_images_release(engine, images, 3);
    fake_on_launch(NULL, NULL);
    for (int i = 0; i < 2; i++) fake_host_release((void*)(uintptr_t)memory[i]);
    close_cuda(engine);
}

TEST(targets_that_cannot_be_are_refused)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    const uint64_t memory = fake_host_memory(32 * 32 * 16);
    struct CUevent_st* event = fake_host_event();
    unsigned char picture[4];
    const struct {
        sumi_target target;
        const char* says;
    } wrong[] = {
        {{.device_address = memory, .host_memory = picture}, "both"},
        {{.device_address = memory + 2}, "multiples of 4"},
        {{.device_address = memory, .row_bytes = 130}, "multiples of 4"},
        {{.format = SUMI_FORMAT_RGB32F, .device_address = memory + 1}, "multiples of 4"},
        {{.device_address = memory, .row_bytes = 124}, "a row takes"},
        {{.device_address = memory, .row_bytes = -4}, "a row takes"},
        {{.event = event}, "event"},
        {{.host_memory = picture, .event = event}, "event"},
        {{.row_bytes = 128}, "neither"},
    };
    sumi_image_desc desc = small_image(model, &s_item);
    sumi_job job;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        desc.targets = &wrong[i].target;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
        if (strstr(s_host.log, wrong[i].says) == NULL) printf("  %zu: %s\n", i, s_host.log);
        CHECK(strstr(s_host.log, wrong[i].says) != NULL);
    }
    const sumi_target odd = {.format = SUMI_FORMAT_RGB8, .device_address = memory + 1, .row_bytes = 97};
    desc.targets = &odd;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
    sumi_job_discard(engine, job);
    fake_host_release((void*)(uintptr_t)memory);
    fake_host_release(event);
    close_cuda(engine);
}

// The host takes its memory away the moment the job is over, however that came about: the fake driver notices a kernel
// that would still write there.
TEST(nothing_is_written_after_the_end)
{
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = desc.height = 16;
    const uint64_t whole = draw_hash(engine, &desc);
    int ends = 0;
    for (int steps = 0; ends < 3 && steps < 3000 && t_errors == 0; steps++) {
        fake_complete_after(1000000);
        sumi_target target = {.device_address = fake_host_memory(16 * 16 * 4), .event = fake_host_event()};
        desc.targets = &target;
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        for (int i = 0; i < steps; i++) {
            sumi_engine_update(engine, 2000);
            if (i % 3 == 2) fake_finish();
        }
        ends += sumi_job_poll(engine, job).state >= SUMI_JOB_DONE;
        if (steps % 2 == 0) {
            sumi_job_cancel(engine, job);
            sumi_engine_update(engine, 1);
            CHECK(sumi_job_poll(engine, job).state >= SUMI_JOB_DONE);
        } else {
            sumi_job_discard(engine, job);
        }
        fake_host_release((void*)(uintptr_t)target.device_address);
        fake_host_release(target.event);
        sumi_job_discard(engine, job);
        fake_finish();
        CHECK_NUMBER(fake_violations(), 0);
        fake_complete_after(0);
        desc.targets = NULL;
        if (steps % 10 == 0) CHECK(draw_hash(engine, &desc) == whole);
    }
    CHECK_NUMBER(ends, 3);
    close_cuda(engine);
}

TEST(the_nth_call_may_fail)
{
    static const char* const s_entries[] = {"cuLaunchKernel",    "cuEventRecord",       "cuStreamSynchronize",
                                            "cuMemcpyDtoHAsync", "cuModuleGetFunction", "cuCtxPushCurrent"};
    fake_reset();
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = desc.height = 16;
    const uint64_t whole = draw_hash(engine, &desc);
    const uint64_t memory = fake_host_memory(16 * 16 * 4);
    struct CUevent_st* event = fake_host_event();
    const sumi_target target = {.device_address = memory, .event = event};
    int failed = 0;
    for (size_t e = 0; e < sizeof s_entries / sizeof *s_entries; e++) {
        bool fails = true;
        for (int nth = 1; fails && nth < 400 && t_errors == 0; nth++) {
            fake_complete_after(nth % 3);
            fake_fail_call(s_entries[e], nth, 1); // CUDA_ERROR_INVALID_VALUE
            desc.targets = &target;
            sumi_job job;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            const sumi_result result = run_to_end(engine, job);
            CHECK(result == SUMI_OK || result == SUMI_INTERNAL);
            if (result != SUMI_OK) CHECK(sumi_job_poll(engine, job).message[0] != '\0');
            failed += result != SUMI_OK;
            sumi_job_discard(engine, job);
            fails = fake_fail_call(NULL, 0, 0);
            desc.targets = NULL;
            CHECK(draw_hash(engine, &desc) == whole);
            if (t_errors > 0) printf("  after call %d of %s\n", nth, s_entries[e]);
        }
    }
    CHECK(failed > 20);
    fake_host_release((void*)(uintptr_t)memory);
    fake_host_release(event);
    close_cuda(engine);
}

#define TEXTURE_2D 0x0DE1

TEST(a_texture_gets_its_image_with_the_fetch)
{
    for (int pump = 0; pump < 2; pump++) {
        fake_reset();
        memset(&s_host, 0, sizeof s_host);
        sumi_engine_desc ed = host_desc(&s_host);
        ed.backend = SUMI_BACKEND_CUDA;
        ed.pump = pump == 1 ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE;
        sumi_model* model;
        sumi_engine* engine = open_engine(&ed, &model);
        CHECK(engine != NULL);
        if (engine == NULL) return;
        const unsigned names[2] = {fake_gl_texture(48, 32), fake_gl_texture(48, 32)};
        sumi_external* externals[2] = {NULL, NULL};
        CHECK_NUMBER(import_gl_texture(engine, names[0], TEXTURE_2D, 48, 32, &externals[0]), SUMI_WRONG_STATE);
        CHECK(externals[0] == NULL && strstr(s_host.log, "OpenGL context current") != NULL);
        // The context of another GPU. The driver would accept the texture.
        fake_gl_current(true);
        fake_gl_device(1);
        const uint64_t registered = fake_calls("cuGraphicsGLRegisterImage");
        CHECK_NUMBER(import_gl_texture(engine, names[0], TEXTURE_2D, 48, 32, &externals[0]), SUMI_WRONG_STATE);
        CHECK(externals[0] == NULL && strstr(s_host.log, "must be of this GPU") != NULL);
        CHECK_NUMBER(fake_calls("cuGraphicsGLRegisterImage"), registered);
        fake_gl_device(0);
        CHECK_NUMBER(import_gl_texture(engine, 77, TEXTURE_2D, 48, 32, &externals[0]), SUMI_INVALID_ARGUMENT);
        CHECK_NUMBER(import_gl_texture(engine, names[0], TEXTURE_2D, 0, 32, &externals[0]), SUMI_INVALID_ARGUMENT);
        CHECK_NUMBER(import_gl_texture(engine, names[0], TEXTURE_2D, 48, 32, NULL), SUMI_INVALID_ARGUMENT);
        // another size than it has
        CHECK_NUMBER(import_gl_texture(engine, names[0], TEXTURE_2D, 32, 32, &externals[0]), SUMI_INVALID_ARGUMENT);
        CHECK(externals[0] == NULL && strstr(s_host.log, "48 x 32") != NULL);
        for (int i = 0; i < 2; i++)
            CHECK_NUMBER(import_gl_texture(engine, names[i], TEXTURE_2D, 48, 32, &externals[i]), SUMI_OK);
        CHECK(externals[0] != NULL && externals[1] != NULL);
        CHECK(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_IMAGE] >= 2 * 48 * 32 * 4);
        sumi_image_desc desc = small_image(model, s_three);
        desc.item_count = 3;
        desc.width = 48;
        sumi_target targets[3] = {{.external = externals[0]}, {.format = SUMI_FORMAT_RGB8}, {.external = externals[1]}};
        desc.targets = targets;
        written w = {.height = 32};
        fake_on_launch(write_picture, &w);
        for (int round = 0; round < 3; round++) {
            fake_complete_after(round * 2);
            sumi_job job, second;
            w.count = 2 * round;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &second), SUMI_INVALID_ARGUMENT); // one job at a time
            CHECK(strstr(s_host.log, "neither fetched nor discarded") != NULL);
            CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
            CHECK(fake_gl_pixels(names[0])[0] == (round == 0 ? 0 : 2 * round - 1)); // as it was before
            sumi_image images[3];
            fake_gl_current(false);
            CHECK_NUMBER(sumi_fetch_images(engine, job, images, 3), SUMI_WRONG_STATE);
            CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_DONE); // still
            fake_gl_current(true);
            const uint64_t waits = fake_calls("cuEventSynchronize") + fake_calls("cuStreamSynchronize");
            CHECK_NUMBER(sumi_fetch_images(engine, job, images, 3), SUMI_OK);
            if (pump == 0) CHECK_NUMBER(fake_calls("cuEventSynchronize") + fake_calls("cuStreamSynchronize"), waits);
            CHECK(images[0].pixels == NULL && images[1].pixels != NULL && images[2].pixels == NULL
                  && images[0].row_bytes == 48 * 4);
            sumi_images_release(engine, images, 3);
            fake_finish();
            for (int i = 0; i < 2; i++)
                CHECK(fake_gl_pixels(names[i])[0] == 2 * round + 1 + i
                      && fake_gl_pixels(names[i])[48 * 32 * 4 - 1] == 2 * round + 1 + i);
        }
        // Wrong ones.
        const sumi_target wrong[] = {{.external = externals[0], .host_memory = &w},
                                     {.external = externals[0], .format = SUMI_FORMAT_RGB8},
                                     {.external = externals[0], .row_bytes = 192}};
        desc.item_count = 1;
        sumi_job job;
        for (int i = 0; i < 3; i++) {
            desc.targets = &wrong[i];
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
        }
        targets[1] = targets[0];
        desc.targets = targets;
        desc.item_count = 2;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT); // twice the same
        desc.item_count = 1;
        desc.width = 64;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT); // another size
        desc.width = 48;
        // Discards free it; a release takes its jobs along, and done ones lose their texture only.
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        sumi_job_discard(engine, job);
        // our thread ends the one before
        if (pump == 1)
            while (sumi_submit_images(engine, &desc, &job) != SUMI_OK) continue;
        else CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        if (pump == 1) CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
        sumi_external_release(externals[0]);
        CHECK_NUMBER(sumi_job_poll(engine, job).state, pump == 1 ? SUMI_JOB_DONE : SUMI_JOB_CANCELLED);
        sumi_image image;
        CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), pump == 1 ? SUMI_OK : SUMI_CANCELLED);
        fake_on_launch(NULL, NULL);
        sumi_external_release(NULL);
        fake_gl_release(names[0]);
        close_cuda(engine); // with the other one
        fake_gl_release(names[1]);
        CHECK_NUMBER(fake_violations(), 0);
        fake_gl_current(false);
    }
}

TEST(textures_survive_what_fails)
{
    static const struct {
        const char* name;
        int nth;
        bool at_import;
    } s_entries[] = {
        {"cuGraphicsGLRegisterImage", 1, true},
        {"cuGraphicsMapResources", 1, true},
        {"cuGraphicsSubResourceGetMappedArray", 1, true},
        {"cuArray3DGetDescriptor", 1, true},
        {"cuMemAlloc", 1, true},
        {"cuStreamCreateWithPriority", 1, true},
        {"cuGraphicsMapResources", 2, false},
        {"cuGraphicsSubResourceGetMappedArray", 2, false},
        {"cuMemcpy2DAsync", 1, false},
    };
    for (size_t e = 0; e < sizeof s_entries / sizeof *s_entries; e++) {
        const bool fails_first = s_entries[e].at_import;
        const bool is_memory = strcmp(s_entries[e].name, "cuMemAlloc") == 0;
        const sumi_result expected = is_memory ? SUMI_OUT_OF_DEVICE_MEMORY : SUMI_INTERNAL;
        fake_reset();
        sumi_model* model;
        sumi_engine* engine = cuda_engine(20, &model);
        if (engine == NULL) return;
        fake_gl_current(true);
        const unsigned name = fake_gl_texture(32, 32);
        sumi_external* external = NULL;
        fake_fail_call(s_entries[e].name, s_entries[e].nth, is_memory ? 2 : 304 /* CUDA_ERROR_OPERATING_SYSTEM */);
        const sumi_result imported = import_gl_texture(engine, name, TEXTURE_2D, 32, 32, &external);
        CHECK_NUMBER(imported, fails_first ? expected : SUMI_OK);
        CHECK((external == NULL) == fails_first);
        if (fails_first) CHECK_NUMBER(import_gl_texture(engine, name, TEXTURE_2D, 32, 32, &external), SUMI_OK);
        sumi_image_desc desc = small_image(model, &s_item);
        const sumi_target target = {.external = external};
        desc.targets = &target;
        sumi_job job;
        sumi_image image;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
        if (!fails_first) CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), expected);
        CHECK(fake_fail_call(NULL, 0, 0));
        CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
        sumi_external_release(external);
        close_cuda(engine);
        fake_gl_release(name);
        fake_gl_current(false);
    }
    // A driver that cannot: said, and everything else works.
    fake_reset();
    fake_lack_entry("cuGraphicsMapResources");
    sumi_model* model;
    sumi_engine* engine = cuda_engine(20, &model);
    sumi_external* external;
    if (engine == NULL) return;
    CHECK_NUMBER(import_gl_texture(engine, 1, TEXTURE_2D, 32, 32, &external), SUMI_NOT_SUPPORTED);
    sumi_image_desc desc = small_image(model, &s_item);
    CHECK(draw_hash(engine, &desc) != 0);
    close_cuda(engine);
}

// Calls of prepare for a plan without graphs, which are made when nothing runs, while something ran.
static int s_early;
static const sumi_runner_functions* s_functions;
static sumi_result prepare(sumi_runner* runner, const sumi_plan* plan, uint32_t budget_us, bool* out_done,
                           float* out_progress, sumi_error* error)
{
    const bool runs = runner->async->pending(runner) > 0;
    const sumi_result result = s_functions->prepare(runner, plan, budget_us, out_done, out_progress, error);
    s_early += runs && !*out_done;
    return result;
}

// A host program in frames waits for a picture now and then, and its texture, or what the texture belongs to, may go
// before, in the middle or behind. Slices end late: `late` queries after they were submitted.
TEST(a_wait_after_frames_ends_whatever_has_gone)
{
    enum { TEXTURE_RELEASED, RELEASED_WHEN_DONE, JOB_DISCARDED, FETCHED, CONTEXT_GONE, ORDERS };
    for (int late = 0; late < 4; late++) {
        for (int order = 0; order < ORDERS; order++) {
            fake_reset();
            fake_gl_current(true);
            sumi_model* model;
            sumi_engine* engine = cuda_engine(100, &model);
            if (engine == NULL) return;
            fake_complete_after(late == 3 ? 40 : late);
            sumi_image_desc desc = small_image(model, &s_item);
            const unsigned name = fake_gl_texture(32, 32);
            sumi_external* external = NULL;
            CHECK_NUMBER(import_gl_texture(engine, name, TEXTURE_2D, 32, 32, &external), SUMI_OK);
            const sumi_target target = {.external = external};
            desc.targets = &target;
            sumi_job job;
            sumi_image image;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            run_until_denoise(engine, job);
            if (order == RELEASED_WHEN_DONE || order == FETCHED) CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
            if (order == FETCHED) CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
            if (order == JOB_DISCARDED) sumi_job_discard(engine, job);
            if (order == CONTEXT_GONE) fake_gl_current(false);
            else sumi_external_release(external);
            if (order == TEXTURE_RELEASED) CHECK_NUMBER(run_to_end(engine, job), SUMI_CANCELLED);
            if (order == TEXTURE_RELEASED || order == RELEASED_WHEN_DONE) sumi_job_discard(engine, job);
            desc.targets = NULL;
            static sumi_runner_functions s_counting;
            s_functions = engine->runner->functions;
            s_counting = *s_functions;
            s_counting.prepare = prepare;
            engine->runner->functions = &s_counting;
            s_early = 0;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            CHECK_NUMBER(run_to_end(engine, job), SUMI_OK);
            CHECK_NUMBER(s_early, 0); // it does not turn in circles meanwhile
            engine->runner->functions = s_functions;
            sumi_job_discard(engine, job);
            fake_gl_current(true);
            close_cuda(engine);
            fake_gl_release(name);
        }
    }
    fake_gl_current(false);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(every_format_is_written_where_it_should_be);
    RUN(a_picture_with_alpha_has_four_channels);
    RUN(targets_that_cannot_be_are_refused);
    RUN(nothing_is_written_after_the_end);
    RUN(the_nth_call_may_fail);
    RUN(a_texture_gets_its_image_with_the_fetch);
    RUN(textures_survive_what_fails);
    RUN(a_wait_after_frames_ends_whatever_has_gone);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
