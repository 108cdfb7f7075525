// Control nets in jobs: images of the reference, no trace of a net that does not run, batches, depth buffers, refusals,
// releases, failing allocations, files of the host program.
#include "base/memory.h"
#include "engine_fixture.h"
#include "jobs/engine_state.h"
#include "pictures/pixels.h"

#define NETS "tests/golden/controlnet/"
#define NET_21 NETS "Z-Image-Turbo-Fun-Controlnet-Union-2.1-2602-8steps.safetensors"
#define NET_20 NETS "Z-Image-Turbo-Fun-Controlnet-Union-2.0.safetensors"
#define NET_10 NETS "Z-Image-Turbo-Fun-Controlnet-Union"
#define QWEN_NETS "tests/golden/controlnet-qwen/"
#define QWEN_PATH "tests/golden/qwen-image/model"

// ---- Nets and pictures ----------------------------------------------------------------------------------------------

static sumi_result read_control(sumi_engine* engine, sumi_model* model, const char* path, sumi_control** out_control)
{
    sumi_control_desc desc = sumi_control_defaults(model);
    sumi_job job;
    desc.path = path;
    *out_control = NULL;
    const sumi_result result = sumi_submit_control(engine, &desc, &job);
    if (result != SUMI_OK) return result;
    sumi_job_wait(engine, job, SUMI_FOREVER);
    return sumi_fetch_control(engine, job, out_control);
}

static uint8_t s_pixels[48 * 32 * 3], s_other[20 * 24], s_mask[16 * 16];

static void fill_pictures(void)
{
    for (size_t i = 0; i < sizeof s_pixels; i++) s_pixels[i] = (uint8_t)(i * 7 + i / 48 * 13);
    for (size_t i = 0; i < sizeof s_other; i++) s_other[i] = (uint8_t)(i * 31);
    for (size_t i = 0; i < sizeof s_mask; i++) s_mask[i] = i % 16 < 8 ? 255 : 0;
}
static const sumi_pixels s_picture = {s_pixels, 48, 32, 0, 3}, s_grey = {s_other, 20, 24, 0, 1},
                         s_white_left = {s_mask, 16, 16, 0, 1};

static sumi_image_desc controlled_image(sumi_model* model, const sumi_control_use* use)
{
    sumi_image_desc desc = small_image(model, &s_item);
    desc.controls = use;
    desc.control_count = 1;
    return desc;
}

#define OPEN_NET_WITH(slice_us, engine, model, control, path)                                                          \
    OPEN_WITH(slice_us, engine, model);                                                                                \
    sumi_control* control;                                                                                             \
    fill_pictures();                                                                                                   \
    CHECK_NUMBER(read_control(engine, model, path, &control), SUMI_OK);                                                \
    if (control == NULL) return
#define OPEN_NET(engine, model, control, path) OPEN_NET_WITH(2000, engine, model, control, path)

// ---- Images ---------------------------------------------------------------------------------------------------------

typedef struct reference_case {
    const char *name, *net, *text, *negative;
    int32_t width, height, steps;
    float strength, start, end, guidance, shift; // 0: the model's
} reference_case;

// The error of a job's latents against packed ones of the reference's last step. Both round the time alike: "tb".
static double packed_error(sumi_engine* engine, sumi_job job, const sumi_image_desc* desc, golden* g)
{
    const size_t count = latent_count(desc), wide = (size_t)desc->width / 8, tokens = count / 64;
    float* latents = golden_copy(g, "expect_tb.latents");
    const float* want = latents + (size_t)(desc->step_count - 1) * count;
    float *planes = malloc(count * sizeof *planes), *rows = malloc(count * sizeof *rows);
    CHECK_NUMBER(sumi_job_latents(engine, job, 0, planes, count), SUMI_OK);
    for (size_t i = 0; i < count; i++) {
        const size_t token = i / 64, k = i % 64, y = token / (wide / 2) * 2 + k / 2 % 2,
                     x = token % (wide / 2) * 2 + k % 2;
        rows[i] = planes[k / 4 * tokens * 4 + y * wide + x];
    }
    const double error = relative_error(rows, want, count);
    free(latents);
    free(planes);
    free(rows);
    return error;
}

// Nets of InstantX are not among them: their reference draws the posterior of control pictures.
TEST(controlled_images_match_the_reference)
{
    static const reference_case s_cases[] = {
        {"z-pipe-21-inpaint", NET_21, "a robot", NULL, 48, 48, 3, 0.9f, 0.0f, 1.0f, 0.0f, 0.0f},
        {"z-pipe-20-range", NET_20, "watercolor flowers", NULL, 32, 48, 5, 1.0f, 0.2f, 0.7f, 0.0f, 0.0f},
        {"z-pipe-10-cfg", NET_10, "A portrait of an old man", "blurry", 48, 32, 3, 0.65f, 0.0f, 1.0f, 3.0f, 6.0f},
        {"q-pipe-fun", QWEN_NETS "Qwen-Image-2512-Fun-Controlnet-Union.safetensors", "一只橘猫", " ", 48, 48, 3, 0.8f,
         0.0f, 1.0f, 4.0f, 0.0f},
        {"q-pipe-blockwise", QWEN_NETS "qwen_image_canny_diffsynth_controlnet.safetensors", "一只橘猫", " ", 48, 32, 4,
         0.8f, 0.25f, 1.0f, 3.0f, 0.0f},
    };
    OPEN(engine, z_image);
    sumi_model* const qwen_image = load_model_at(engine, QWEN_PATH);
    CHECK(qwen_image != NULL);
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        const reference_case* c = &s_cases[i];
        const bool is_qwen = c->name[0] == 'q';
        sumi_model* const model = is_qwen ? qwen_image : z_image;
        char path[128];
        golden g;
        snprintf(path, sizeof path, "../../%s/cases/%s", is_qwen ? "controlnet-qwen" : "controlnet", c->name);
        CHECK(golden_open(&g, path));
        sumi_control* control;
        CHECK_NUMBER(read_control(engine, model, c->net, &control), SUMI_OK);
        const bool inpaints = sumi_tensor_find(&g.set, "input.mask") != NULL;
        uint8_t *picture = golden_copy(&g, "input.picture"), *image = golden_copy(&g, "input.inpaint"),
                *mask = golden_copy(&g, "input.mask"), *want = golden_copy(&g, "expect.image_u8");
        float* noise = golden_copy(&g, "input.noise");
        const sumi_tensor *p = sumi_tensor_find(&g.set, "input.picture"),
                          *q = sumi_tensor_find(&g.set, "input.inpaint"), *m = sumi_tensor_find(&g.set, "input.mask");
        const sumi_pixels pixels = {picture, (int32_t)p->shape[1], (int32_t)p->shape[0], 0, 3};
        sumi_pixels inpaint = {0}, white = {0};
        sumi_control_picture one = {.picture = &pixels};
        if (inpaints) {
            inpaint = (sumi_pixels){image, (int32_t)q->shape[1], (int32_t)q->shape[0], 0, 3};
            white = (sumi_pixels){mask, (int32_t)m->shape[1], (int32_t)m->shape[0], 0, 1};
            one.inpaint = &inpaint;
            one.mask = &white;
        }
        sumi_control_use use = sumi_control_use_defaults(control);
        use.pictures = &one;
        use.picture_count = 1;
        use.strength = c->strength;
        use.start = c->start;
        use.end = c->end;
        const sumi_image_item item = {.text = c->text, .negative_text = c->negative};
        sumi_image_desc desc = controlled_image(model, &use);
        desc.guidance.scale = c->guidance;
        desc.shift = c->shift;
        desc.items = &item;
        desc.width = c->width;
        desc.height = c->height;
        desc.step_count = c->steps;
        desc.noise = (sumi_noise){SUMI_NOISE_GIVEN, 132, 2048, noise};
        sumi_image drawn = {0};
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        sumi_job_wait(engine, job, SUMI_FOREVER);
        const double error = is_qwen ? packed_error(engine, job, &desc, &g) : 0.0;
        if (error > 3e-4) printf("  %s: latents are off by %.2g\n", c->name, error);
        CHECK(error <= 3e-4);
        CHECK_NUMBER(sumi_fetch_images(engine, job, &drawn, 1), SUMI_OK);
        const int off = drawn.pixels != NULL ? picture_difference(&drawn, want) : 256;
        if (off > 1 && !is_qwen) printf("  %s: pixels are off by %d\n", c->name, off);
        CHECK(off <= 1 || is_qwen);
        sumi_images_release(engine, &drawn, 1);
        sumi_control_release(control);
        free(picture);
        free(image);
        free(mask);
        free(want);
        free(noise);
        golden_close(&g);
    }
    close_engine(engine);
}

// A job has the bits of one without the net, and its plan: nothing is written.
TEST(a_net_that_does_not_run_leaves_no_trace)
{
    OPEN_NET(engine, model, control, NET_21);
    const sumi_control_picture picture = {.picture = &s_picture};
    sumi_control_use use = sumi_control_use_defaults(control);
    CHECK_NUMBER(use.strength * 100 + 0.5f, 90);
    use.pictures = &picture;
    use.picture_count = 1;
    sumi_image_desc desc = controlled_image(model, &use), without = small_image(model, &s_item);
    const uint64_t plain = draw_hash(engine, &without), controlled = draw_hash(engine, &desc);
    CHECK(plain != 0 && controlled != 0 && plain != controlled);
    use.strength = 0.0f;
    CHECK(draw_hash(engine, &desc) == plain);
    use.strength = 1.0f;
    use.start = 0.6f; // of two steps none lies in the range
    use.end = 0.9f;
    CHECK(draw_hash(engine, &desc) == plain);
    sumi_memory a, b;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &a), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(engine, &without, &b), SUMI_OK);
    CHECK_NUMBER(a.arena, b.arena);
    use.start = 0.5f;
    use.end = 1.0f;
    const uint64_t late = draw_hash(engine, &desc);
    CHECK(late != 0 && late != plain && late != controlled);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &a), SUMI_OK);
    CHECK(a.arena > b.arena);
    sumi_control_release(control);
    close_engine(engine);
}

// Small batches have other sums on some CPUs, so the images are larger than elsewhere.
TEST(every_image_of_a_batch_follows_its_picture)
{
    OPEN_NET(engine, model, control, NET_20);
    const sumi_image_item items[2] = {{.text = "a red fox", .seed = 1}, {.text = "a red fox", .seed = 2}};
    const sumi_control_picture pictures[2] = {{.picture = &s_picture}, {.picture = &s_grey}};
    sumi_control_use use = sumi_control_use_defaults(control);
    use.pictures = pictures;
    use.picture_count = 2;
    sumi_image_desc desc = controlled_image(model, &use);
    desc.items = items;
    desc.item_count = 2;
    desc.width = desc.height = 64;
    sumi_image both[2] = {{0}};
    CHECK_NUMBER(draw(engine, &desc, both), SUMI_OK);
    for (int i = 0; i < 2; i++) {
        sumi_image one = {0};
        use.pictures = &pictures[i];
        use.picture_count = 1;
        desc.items = &items[i];
        desc.item_count = 1;
        CHECK_NUMBER(draw(engine, &desc, &one), SUMI_OK);
        CHECK(hash_image(&one) == hash_image(&both[i]) && hash_image(&one) != 0);
        sumi_images_release(engine, &one, 1);
    }
    sumi_images_release(engine, both, 2);
    sumi_control_release(control);
    close_engine(engine);
}

// Two nets add up; a step cache, slices of one op and a pause in the middle change no bits.
TEST(jobs_with_nets_keep_their_bits)
{
    OPEN_NET_WITH(100, engine, model, control, NET_21);
    sumi_control* second;
    CHECK_NUMBER(read_control(engine, model, NET_10, &second), SUMI_OK);
    const sumi_control_picture picture = {.picture = &s_picture}, other = {.picture = &s_grey};
    sumi_control_use uses[2] = {sumi_control_use_defaults(control), sumi_control_use_defaults(second)};
    uses[0].pictures = &picture;
    uses[1].pictures = &other;
    uses[0].picture_count = uses[1].picture_count = 1;
    uses[1].end = 0.5f;
    sumi_image_desc desc = controlled_image(model, uses);
    desc.control_count = 2;
    desc.step_count = 12;
    desc.step_cache = 10.0f;
    sumi_image image = {0}, again = {0};
    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
    CHECK(image.reused_count > 0);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    while (sumi_job_poll(engine, job).step < 3 && sumi_job_poll(engine, job).state < SUMI_JOB_DONE)
        sumi_engine_update(engine, 1);
    if (sumi_job_poll(engine, job).state >= SUMI_JOB_DONE) printf("  %s\n", sumi_job_poll(engine, job).message);
    CHECK_NUMBER(sumi_job_pause(engine, job, true), SUMI_OK);
    while (sumi_job_poll(engine, job).state == SUMI_JOB_RUNNING) sumi_engine_update(engine, 1);
    CHECK(sumi_job_poll(engine, job).paused);
    CHECK_NUMBER(sumi_job_pause(engine, job, false), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_fetch_images(engine, job, &again, 1), SUMI_OK);
    CHECK(hash_image(&image) == hash_image(&again) && hash_image(&image) != 0);
    sumi_images_release(engine, &image, 1);
    sumi_images_release(engine, &again, 1);
    sumi_control_release(control);
    sumi_control_release(second);
    close_engine(engine);
}

// A deadline leaves steps out. One that is far away changes no bits.
TEST(deadlines_leave_out_steps_with_nets_too)
{
    OPEN_NET(engine, model, control, NET_21);
    const sumi_control_picture picture = {.picture = &s_picture};
    sumi_control_use use = sumi_control_use_defaults(control);
    use.pictures = &picture;
    use.picture_count = 1;
    use.end = 0.5f;
    sumi_image_desc desc = controlled_image(model, &use);
    desc.step_count = 8;
    const uint64_t whole = draw_hash(engine, &desc);
    desc.deadline_ms = 1000000;
    CHECK(whole != 0 && draw_hash(engine, &desc) == whole);
    desc.step_count = 1000;
    desc.deadline_ms = 1;
    sumi_image image = {0};
    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
    CHECK(image.step_count >= 4 && image.step_count < 1000);
    sumi_images_release(engine, &image, 1);
    sumi_control_release(control);
    close_engine(engine);
}

// ---- Depth buffers --------------------------------------------------------------------------------------------------

static float s_distances[40 * 24];

// Two objects before a floor and sky.
static sumi_depth fill_depth(float nearest)
{
    sumi_depth depth = sumi_depth_defaults();
    for (int i = 0; i < 40 * 24; i++) {
        const int x = i % 40, y = i / 40;
        s_distances[i] = y < 5 ? INFINITY : x > 25 && y > 8 ? nearest : (float)(30 - y);
    }
    depth.data = s_distances;
    depth.kind = SUMI_DEPTH_DISTANCE;
    depth.width = 40;
    depth.height = 24;
    return depth;
}

// Draws, and copies what net `control` saw for item `item`.
static sumi_result draw_and_view(sumi_engine* engine, const sumi_image_desc* desc, const sumi_control_view* view,
                                 uint64_t* out_hash)
{
    sumi_job job;
    sumi_image images[2] = {{0}};
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    const sumi_result result = sumi_job_control_picture(engine, job, view);
    CHECK_NUMBER(sumi_fetch_images(engine, job, images, 2), SUMI_OK);
    *out_hash = hash_image(&images[0]);
    sumi_images_release(engine, images, 2);
    return result;
}

TEST(a_depth_buffer_is_the_picture_that_it_becomes)
{
    OPEN_NET(engine, model, control, NET_21);
    static uint8_t s_seen[32 * 32 * 3], s_again[32 * 32 * 3];
    const sumi_depth depth = fill_depth(3.0f);
    sumi_control_picture pictures[2] = {{.depth = &depth}, {.picture = &s_picture}};
    sumi_control_use use = sumi_control_use_defaults(control);
    use.pictures = pictures;
    use.picture_count = 1;
    sumi_image_desc desc = controlled_image(model, &use);
    CHECK(desc.width == 32 && desc.height == 32);
    uint64_t of_depth, of_picture;
    const sumi_control_view view = {0, 0, s_seen, sizeof s_seen}, again = {0, 0, s_again, sizeof s_again};
    CHECK_NUMBER(draw_and_view(engine, &desc, &view, &of_depth), SUMI_OK);
    CHECK(s_seen[0] == 0
          && s_seen[3 * (32 * 20 + 28)] == 255); // sky, and the nearest object: the net reads near as white
    const sumi_pixels seen = {s_seen, 32, 32, 0, 3};
    pictures[0] = (sumi_control_picture){.picture = &seen};
    CHECK_NUMBER(draw_and_view(engine, &desc, &again, &of_picture), SUMI_OK);
    CHECK(of_depth == of_picture && of_depth != 0);
    CHECK(memcmp(s_seen, s_again, sizeof s_seen) == 0);

    // An image each: the second one is a picture, which is resized as pictures are.
    sumi_image_item items[2] = {s_item, s_item};
    pictures[0] = (sumi_control_picture){.depth = &depth};
    use.picture_count = 2;
    desc.items = items;
    desc.item_count = 2;
    const sumi_control_view second = {0, 1, s_seen, sizeof s_seen};
    uint8_t want[32 * 32 * 3];
    sumi_error error = {0};
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    const sumi_pixels given = {s_pixels, 48, 32, 3 * 48, 3};
    CHECK_NUMBER(sumi_pixels_to_rgb(&heap, &given, 32, 32, want, &error), SUMI_OK);
    CHECK_NUMBER(draw_and_view(engine, &desc, &second, &of_picture), SUMI_OK);
    CHECK(memcmp(s_seen, want, sizeof want) == 0);
    sumi_control_release(control);
    close_engine(engine);
}

// With percentiles the nearer object darkens the rest; with a range of the host it does not.
TEST(a_range_of_the_host_gives_a_distance_the_same_grey_in_every_picture)
{
    OPEN_NET(engine, model, control, NET_10);
    static uint8_t s_seen[2][32 * 32 * 3];
    for (int fixed = 0; fixed < 2; fixed++) {
        for (int i = 0; i < 2; i++) {
            sumi_depth depth = fill_depth(i == 0 ? 7.0f : 1.0f);
            if (fixed == 1) depth.low = 1.0f, depth.high = 28.0f;
            const sumi_control_picture picture = {.depth = &depth};
            sumi_control_use use = sumi_control_use_defaults(control);
            use.pictures = &picture;
            use.picture_count = 1;
            sumi_image_desc desc = controlled_image(model, &use);
            desc.step_count = 1;
            uint64_t hash;
            const sumi_control_view view = {0, 0, s_seen[i], sizeof s_seen[i]};
            CHECK_NUMBER(draw_and_view(engine, &desc, &view, &hash), SUMI_OK);
        }
        const size_t left = 3 * (32 * 20 + 4), object = 3 * (32 * 20 + 28); // floor at the same distance in both
        CHECK((s_seen[0][left] == s_seen[1][left]) == (fixed == 1));
        CHECK(fixed == 0
              || (s_seen[1][object] == 255 && s_seen[0][object] == (uint8_t)(255.0f * 21.0f / 27.0f + 0.5f)));
    }
    sumi_control_release(control);
    close_engine(engine);
}

TEST(views_of_pictures_that_no_net_saw_are_refused)
{
    OPEN_NET(engine, model, control, NET_21);
    static uint8_t s_seen[32 * 32 * 3];
    const sumi_control_picture picture = {.picture = &s_picture}, masked = {.inpaint = &s_grey, .mask = &s_white_left};
    sumi_control_use uses[4];
    for (int i = 0; i < 4; i++) {
        uses[i] = sumi_control_use_defaults(control);
        uses[i].pictures = i == 2 ? &masked : &picture;
        uses[i].picture_count = 1;
    }
    uses[0].strength = 0.0f;
    uses[1].start = 0.6f; // of two steps none lies in the range
    uses[1].end = 0.9f;
    sumi_image_desc desc = controlled_image(model, uses);
    desc.control_count = 4;
    sumi_job job;
    sumi_image image;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_control_picture(engine, job, &(sumi_control_view){3, 0, s_seen, sizeof s_seen}),
                 SUMI_WRONG_STATE);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    static const struct {
        int32_t control, item;
        size_t missing;
        sumi_result result;
        const char* words;
    } s_views[] = {
        {0, 0, 0, SUMI_WRONG_STATE, "controls[0] had strength 0"},
        {1, 0, 0, SUMI_WRONG_STATE, "controls[1] saw no picture, because no step lies in its range"},
        {2, 0, 0, SUMI_WRONG_STATE, "controls[2] had no control picture"},
        {4, 0, 0, SUMI_INVALID_ARGUMENT, "control is 4 of 4"},
        {-1, 0, 0, SUMI_INVALID_ARGUMENT, "control is -1"},
        {3, 1, 0, SUMI_INVALID_ARGUMENT, "item is 1 of 1"},
        {3, 0, 1, SUMI_INVALID_ARGUMENT, "capacity is 3071 bytes, the picture takes 3072"},
    };
    for (size_t i = 0; i < sizeof s_views / sizeof *s_views; i++) {
        const sumi_control_view view = {s_views[i].control, s_views[i].item, s_seen,
                                        sizeof s_seen - s_views[i].missing};
        CHECK_NUMBER(sumi_job_control_picture(engine, job, &view), s_views[i].result);
        if (strstr(s_host.log, s_views[i].words) == NULL) printf("  %s\n", s_host.log);
        CHECK(strstr(s_host.log, s_views[i].words) != NULL);
    }
    CHECK_NUMBER(sumi_job_control_picture(engine, job, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_job_control_picture(NULL, job, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_job_control_picture(engine, job, &(sumi_control_view){3, 0, s_seen, sizeof s_seen}), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
    CHECK_NUMBER(sumi_job_control_picture(engine, job, &(sumi_control_view){3, 0, s_seen, sizeof s_seen}),
                 SUMI_STALE_HANDLE);
    sumi_images_release(engine, &image, 1);
    sumi_control_release(control);
    close_engine(engine);
}

// ---- Refusals -------------------------------------------------------------------------------------------------------

#define REFUSED(change, wanted, words)                                                                                 \
    do {                                                                                                               \
        sumi_control_use use = good_use;                                                                               \
        sumi_control_picture one = good_picture;                                                                       \
        sumi_image_desc desc = controlled_image(model, &use);                                                          \
        sumi_job job;                                                                                                  \
        use.pictures = &one;                                                                                           \
        change;                                                                                                        \
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), wanted);                                                 \
        if (strstr(s_host.log, words) == NULL) printf("  %s\n", s_host.log);                                           \
        CHECK(strstr(s_host.log, words) != NULL);                                                                      \
    } while (0)

TEST(uses_that_cannot_be_are_refused_by_name)
{
    OPEN_NET(engine, model, control, NET_21);
    sumi_control* plain;
    CHECK_NUMBER(read_control(engine, model, NET_10, &plain), SUMI_OK);
    const sumi_control_info info = sumi_control_get_info(control), plain_info = sumi_control_get_info(plain);
    CHECK(strcmp(info.kind, "z-fun-2.1") == 0 && info.takes_picture && info.takes_inpainting);
    CHECK(strcmp(plain_info.kind, "z-fun-1.0") == 0 && plain_info.takes_picture && !plain_info.takes_inpainting);
    CHECK(info.weight_bytes > plain_info.weight_bytes && plain_info.weight_bytes > 0);
    CHECK(sumi_control_get_info(NULL).kind == NULL);
    const sumi_control_picture good_picture = {.picture = &s_picture};
    sumi_control_use good_use = sumi_control_use_defaults(control);
    good_use.picture_count = 1;
    const sumi_pixels broken = {NULL, 8, 8, 0, 3};
    REFUSED(desc.control_count = 5, SUMI_INVALID_ARGUMENT, "give 0 to 4");
    REFUSED(desc.control_count = -1, SUMI_INVALID_ARGUMENT, "control_count is -1");
    REFUSED(desc.controls = NULL, SUMI_INVALID_ARGUMENT, "controls is NULL");
    REFUSED(use.control = NULL, SUMI_INVALID_ARGUMENT, "controls[0].control is NULL");
    REFUSED(use.strength = NAN, SUMI_INVALID_ARGUMENT, "strength");
    REFUSED(use.strength = 101.0f, SUMI_INVALID_ARGUMENT, "strength is 101");
    REFUSED(use.start = -0.1f, SUMI_INVALID_ARGUMENT, "start is -0.1");
    REFUSED(use.end = NAN, SUMI_INVALID_ARGUMENT, "end");
    REFUSED((use.start = 0.5f, use.end = 0.4f), SUMI_INVALID_ARGUMENT, "from start, 0.5");
    REFUSED(use.pictures = NULL, SUMI_INVALID_ARGUMENT, "pictures is NULL");
    REFUSED(use.picture_count = 2, SUMI_INVALID_ARGUMENT, "picture_count is 2");
    REFUSED(one.picture = NULL, SUMI_INVALID_ARGUMENT, "pictures[0] is empty");
    REFUSED(one.picture = &broken, SUMI_INVALID_ARGUMENT, "controls[0].pictures[0].picture");
    REFUSED(one.mask = &s_white_left, SUMI_INVALID_ARGUMENT, "has mask but no inpaint");
    sumi_depth depth = fill_depth(3.0f);
    REFUSED(one.depth = &depth, SUMI_INVALID_ARGUMENT, "has picture and depth");
    depth.low = 4.0f;
    REFUSED((one.picture = NULL, one.depth = &depth), SUMI_INVALID_ARGUMENT, "controls[0].pictures[0].depth.low");
    REFUSED((use.control = plain, one.inpaint = &s_grey, one.mask = &s_white_left), SUMI_INVALID_ARGUMENT,
            "does not inpaint");
    sumi_control_release(plain);
    sumi_control_release(control);
    close_engine(engine);
}

TEST(a_net_that_only_inpaints_takes_no_picture)
{
    sumi_engine* engine = fresh_engine_with(2000, NULL);
    sumi_model* model = engine != NULL ? load_model_at(engine, QWEN_PATH) : NULL;
    CHECK(model != NULL);
    if (model == NULL) return;
    fill_pictures();
    sumi_control* control;
    CHECK_NUMBER(
        read_control(engine, model, QWEN_NETS "Qwen-Image-InstantX-ControlNet-Inpainting.safetensors", &control),
        SUMI_OK);
    const sumi_control_info info = sumi_control_get_info(control);
    CHECK(info.takes_inpainting && !info.takes_picture);
    CHECK_TEXT(info.kind, "qwen-instantx");
    sumi_control_picture picture = {.inpaint = &s_picture, .mask = &s_white_left};
    sumi_control_use use = sumi_control_use_defaults(control);
    use.pictures = &picture;
    use.picture_count = 1;
    sumi_image_desc desc = controlled_image(model, &use);
    desc.guidance.scale = 4.0f;
    const uint64_t first = draw_hash(engine, &desc);
    picture.inpaint = &s_grey;
    const uint64_t second = draw_hash(engine, &desc);
    use.strength = 0.0f;
    const uint64_t plain = draw_hash(engine, &desc);
    CHECK(first != 0 && second != 0 && plain != 0 && first != second && first != plain && second != plain);
    use.strength = 1.0f;
    picture.picture = &s_grey;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "reads no control picture") != NULL);
    sumi_control_release(control);
    close_engine(engine);
}

// The first bytes of a file.
static void copy_begin(const char* from, const char* to, size_t bytes)
{
    static char s_data[65536];
    FILE *in = system_open(from, "rb"), *out = system_open(to, "wb");
    CHECK(in != NULL && out != NULL && bytes <= sizeof s_data);
    if (in != NULL && out != NULL)
        CHECK(fread(s_data, 1, bytes, in) == bytes && fwrite(s_data, 1, bytes, out) == bytes);
    if (in != NULL) fclose(in);
    if (out != NULL) fclose(out);
}

static void check_unreadable(sumi_engine* engine, sumi_model* model, const char* path, sumi_result wanted,
                             const char* words)
{
    sumi_control_desc desc = sumi_control_defaults(model);
    sumi_job job;
    sumi_control* control = NULL;
    desc.path = path;
    CHECK_NUMBER(sumi_submit_control(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    const sumi_job_status status = sumi_job_poll(engine, job);
    CHECK_NUMBER(status.result, wanted);
    if (strstr(status.message, words) == NULL) printf("  %s\n", status.message);
    CHECK(strstr(status.message, words) != NULL);
    CHECK_NUMBER(sumi_fetch_control(engine, job, &control), wanted);
    CHECK(control == NULL);
}

TEST(files_that_are_no_nets_for_the_model_are_refused)
{
    OPEN(engine, model);
    char folder[192], truncated[256];
    CHECK(system_make_scratch(folder, sizeof folder, "sumi-controls"));
    snprintf(truncated, sizeof truncated, "%s/truncated.safetensors", folder);
    copy_begin(NET_21, truncated, 40000);
    check_unreadable(engine, model, "tests/golden/no/such/net", SUMI_FILE_NOT_FOUND, "no/such/net");
    check_unreadable(engine, model, truncated, SUMI_FILE_TRUNCATED, "truncated");
    check_unreadable(engine, model, "tests/golden/controlnet-qwen/Qwen-Image-ControlNet-Union", SUMI_NOT_SUPPORTED,
                     "Qwen-Image");
    check_unreadable(engine, model, LORA_PATH "lora_kohya.safetensors", SUMI_MODEL_UNKNOWN, "a known control net");
    check_unreadable(engine, model, "tests/golden/controlnet-wide/Z-Image-Turbo-Fun-Controlnet-Union-2.0",
                     SUMI_TENSOR_MISMATCH, "");
    sumi_control_desc desc = sumi_control_defaults(model);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_control(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    desc.path = NET_21;
    desc.model = NULL;
    CHECK_NUMBER(sumi_submit_control(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    desc.cookie = 0;
    CHECK_NUMBER(sumi_submit_control(engine, &desc, &job), SUMI_DESC_NOT_INITIALIZED);
    close_engine(engine);
    system_remove(truncated);
    system_remove(folder);
}

// ---- Lives ----------------------------------------------------------------------------------------------------------

static int plans_with(const sumi_engine* engine, const sumi_control* control)
{
    int count = 0;
    for (int i = 0; i < SUMI_PLAN_CACHE_SIZE; i++) {
        const sumi_plan_entry* entry = &engine->cache.entries[i];
        for (int32_t k = 0; entry->model != NULL && k < entry->control_count; k++)
            count += entry->controls[k] == control;
    }
    return count;
}

TEST(a_release_cancels_the_jobs_of_the_net)
{
    OPEN_NET_WITH(100, engine, model, control, NET_21);
    const sumi_control_picture picture = {.picture = &s_picture};
    sumi_control_use use = sumi_control_use_defaults(control);
    use.pictures = &picture;
    use.picture_count = 1;
    const sumi_image_desc desc = controlled_image(model, &use), other = small_image(model, &s_item);
    sumi_job running, queued, without;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &running), SUMI_OK);
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &queued), SUMI_OK);
    CHECK_NUMBER(sumi_submit_images(engine, &other, &without), SUMI_OK);
    while (sumi_job_poll(engine, running).stage != SUMI_STAGE_DENOISE) sumi_engine_update(engine, 1);
    CHECK(plans_with(engine, control) > 0);
    sumi_control_release(control);
    CHECK_NUMBER(plans_with(engine, control), 0);
    CHECK_NUMBER(sumi_job_poll(engine, running).state, SUMI_JOB_CANCELLED);
    CHECK_NUMBER(sumi_job_poll(engine, queued).state, SUMI_JOB_CANCELLED);
    CHECK(strstr(sumi_job_poll(engine, queued).message, "control net was released") != NULL);
    sumi_job_wait(engine, without, SUMI_FOREVER);
    CHECK_NUMBER(sumi_job_poll(engine, without).state, SUMI_JOB_DONE);
    sumi_image image;
    CHECK_NUMBER(sumi_fetch_images(engine, running, &image, 1), SUMI_CANCELLED);
    CHECK_NUMBER(sumi_fetch_images(engine, queued, &image, 1), SUMI_CANCELLED);
    CHECK_NUMBER(sumi_fetch_images(engine, without, &image, 1), SUMI_OK);
    sumi_images_release(engine, &image, 1);
    sumi_control_release(NULL);
    close_engine(engine);
}

// The net of a closed model can only be released, and the engine frees those that are left.
TEST(a_net_outlives_its_model)
{
    OPEN_NET(engine, model, control, NET_21);
    sumi_control* left;
    CHECK_NUMBER(read_control(engine, model, NET_10, &left), SUMI_OK);
    sumi_control_use use = sumi_control_use_defaults(control);
    const sumi_control_picture picture = {.picture = &s_picture};
    use.pictures = &picture;
    use.picture_count = 1;
    sumi_model_close(model);
    sumi_model* second = load_model(engine);
    CHECK(second != NULL);
    CHECK(sumi_control_get_info(control).kind == NULL);
    const sumi_image_desc desc = controlled_image(second, &use);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "its model was closed") != NULL);
    sumi_control_release(control);
    close_engine(engine);
}

TEST(every_failing_allocation_is_reported)
{
    OPEN(engine, model);
    fill_pictures();
    const sumi_depth depth = fill_depth(3.0f);
    int failures = 0;
    for (long long n = 1; n < 4000; n++) {
        sumi_control* control;
        atomic_store(&s_host.fail_at, atomic_load(&s_host.count) + n);
        sumi_result result = read_control(engine, model, NET_21, &control);
        if (result == SUMI_OK) {
            const sumi_control_picture picture = {.depth = &depth, .inpaint = &s_grey, .mask = &s_white_left};
            sumi_control_use use = sumi_control_use_defaults(control);
            use.pictures = &picture;
            use.picture_count = 1;
            sumi_image_desc desc = controlled_image(model, &use);
            desc.step_count = 1;
            sumi_image image = {0};
            result = draw(engine, &desc, &image);
            sumi_images_release(engine, &image, 1);
        }
        const bool reached = atomic_load(&s_host.count) >= atomic_load(&s_host.fail_at);
        atomic_store(&s_host.fail_at, 0);
        sumi_control_release(control);
        CHECK(result == SUMI_OK || result == SUMI_OUT_OF_HOST_MEMORY);
        failures += result != SUMI_OK;
        if (!reached) break;
        if (n > 60) n += n / 12; // the plan's allocations are many, and alike
    }
    CHECK(failures > 20);
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(controlled_images_match_the_reference);
    RUN(a_net_that_does_not_run_leaves_no_trace);
    RUN(every_image_of_a_batch_follows_its_picture);
    RUN(jobs_with_nets_keep_their_bits);
    RUN(deadlines_leave_out_steps_with_nets_too);
    RUN(a_depth_buffer_is_the_picture_that_it_becomes);
    RUN(a_range_of_the_host_gives_a_distance_the_same_grey_in_every_picture);
    RUN(views_of_pictures_that_no_net_saw_are_refused);
    RUN(uses_that_cannot_be_are_refused_by_name);
    RUN(a_net_that_only_inpaints_takes_no_picture);
    RUN(files_that_are_no_nets_for_the_model_are_refused);
    RUN(a_release_cancels_the_jobs_of_the_net);
    RUN(a_net_outlives_its_model);
    RUN(every_failing_allocation_is_reported);
    TEST_END();
}
