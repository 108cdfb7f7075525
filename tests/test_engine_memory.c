// Memory: known beforehand, nothing allocated by a warm job, budgets, pictures that are reused, the host program's
// files.
#include "base/workers.h"
#include "engine_fixture.h"
#include "jobs/engine_state.h"
#include "pictures/pixels.h"

// ---- Pictures in flight in ---------------------------------------------------------------------------------------

TEST(an_image_resized_in_pieces_has_the_same_bits)
{
    const struct {
        int32_t from_width, from_height, channels, width, height;
        sumi_filter filter;
        bool keeps_alpha;
    } cases[] = {{3000, 2000, 3, 512, 384, SUMI_FILTER_LANCZOS, false},
                 {3000, 700, 4, 512, 384, SUMI_FILTER_LANCZOS, false},
                 {50, 40, 1, 2048, 1024, SUMI_FILTER_LANCZOS, false},
                 {512, 3001, 3, 512, 128, SUMI_FILTER_LANCZOS, false},
                 {2999, 128, 1, 64, 128, SUMI_FILTER_LANCZOS, false},
                 {64, 64, 3, 64, 64, SUMI_FILTER_LANCZOS, false},
                 {64, 64, 4, 64, 64, SUMI_FILTER_LANCZOS, false},
                 {1376, 768, 3, 1372, 756, SUMI_FILTER_BICUBIC, false},
                 {1200, 1700, 3, 1200, 300, SUMI_FILTER_BICUBIC, false},
                 {3000, 700, 4, 512, 384, SUMI_FILTER_LANCZOS, true},
                 {40, 50, 4, 1024, 1024, SUMI_FILTER_LANCZOS, true},
                 {512, 3001, 4, 512, 300, SUMI_FILTER_LANCZOS, true}, // one axis each
                 {2999, 512, 4, 200, 512, SUMI_FILTER_LANCZOS, true},
                 {64, 64, 4, 64, 64, SUMI_FILTER_LANCZOS, true},
                 {700, 500, 3, 640, 480, SUMI_FILTER_LANCZOS, true}, // opaque
                 {700, 500, 1, 640, 480, SUMI_FILTER_LANCZOS, true}};
    sumi_heap heap;
    sumi_workers* workers;
    sumi_heap_init(&heap, NULL);
    CHECK_NUMBER(sumi_workers_create(&heap, NULL, 3, NULL, &workers), SUMI_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int32_t row = cases[i].from_width * cases[i].channels + 5;
        const size_t bytes = (size_t)row * (size_t)cases[i].from_height,
                     pixels = (size_t)cases[i].width * (size_t)cases[i].height;
        const int32_t channels = cases[i].keeps_alpha ? 4 : 3;
        const size_t packed_bytes = pixels * (size_t)channels;
        uint8_t *source = malloc(bytes), *whole = malloc(packed_bytes), *pieces = malloc(packed_bytes);
        for (size_t b = 0; b < bytes; b++) source[b] = (uint8_t)(b * 2654435761u >> 13);
        sumi_pixels picture = {source, cases[i].from_width, cases[i].from_height, row, cases[i].channels}, resized;
        sumi_error error = {0};
        const sumi_resized_pixels to = {whole, cases[i].width, cases[i].height, cases[i].filter};
        if (cases[i].keeps_alpha) CHECK_NUMBER(sumi_pixels_to_rgba(&heap, &picture, &to, &error), SUMI_OK);
        else if (cases[i].filter == SUMI_FILTER_LANCZOS)
            CHECK_NUMBER(sumi_pixels_to_rgb(&heap, &picture, cases[i].width, cases[i].height, whole, &error), SUMI_OK);
        else
            CHECK_NUMBER(
                sumi_pixels_resize(&heap, &(sumi_pixels){source, picture.width, picture.height, row, 3}, &to, &error),
                SUMI_OK);
        const sumi_resize_args args = {&picture, cases[i].width, cases[i].height, cases[i].filter,
                                       cases[i].keeps_alpha};
        sumi_workspace workspace = {.heap = &heap, .workers = workers};
        sumi_resize resize = {0};
        int steps = 1;
        while (sumi_resize_advance(&workspace, &args, &resize, &resized, &error) == SUMI_OK && resized.data == NULL)
            steps++;
        CHECK(workspace.intermediate.bytes + workspace.picture.bytes + workspace.axis.bytes
              <= sumi_resize_bytes(&args));
        // a photograph takes several pieces
        CHECK(resized.data != NULL && (pixels < 100000 || steps > 1));
        const long long held = (long long)heap.allocated_bytes;
        CHECK_NUMBER(sumi_picture_pack(&heap, &resized, channels, pieces, &error), SUMI_OK);
        CHECK_NUMBER(heap.allocated_bytes, held);
        CHECK(memcmp(whole, pieces, packed_bytes) == 0);
        sumi_workspace_close(&workspace);
        free(source), free(whole), free(pieces);
    }
    sumi_workers_destroy(workers);
    CHECK_NUMBER(heap.allocated_bytes, 0);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

TEST(memory_is_known_exactly_beforehand)
{
    OPEN(engine, model);
    const sumi_image_item items[2] = {{.text = "a red fox", .seed = 1}, {.text = "a dog", .seed = 2}};
    unsigned char pixels[64 * 48 * 12];
    sumi_target targets[2] = {{.format = SUMI_FORMAT_RGB32F, .host_memory = pixels}, {.format = SUMI_FORMAT_RGB8}};
    sumi_image_desc desc = small_image(model, items);
    desc.item_count = 2;
    desc.width = 64;
    desc.height = 48;
    desc.guidance.scale = 2.0f;
    desc.preview_every = 1;
    desc.targets = targets;
    sumi_memory memory;
    // the tokenizer's scratch has its size from here on
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
    long long blocks = s_host.live, bytes = s_host.live_bytes;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
    CHECK_NUMBER(s_host.live, blocks); // nothing of it is left
    CHECK_NUMBER(s_host.live_bytes, bytes);
    CHECK(memory.arena > 0 && memory.staging > 0 && memory.host > 0 && !memory.tiles_vae);
    CHECK_NUMBER(memory.weights, sumi_model_get_info(model).weight_bytes);
    sumi_engine_info before = sumi_engine_get_info(engine);
    CHECK_NUMBER(before.held_bytes[SUMI_MEMORY_ARENA], 0);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    sumi_engine_info after = sumi_engine_get_info(engine);
    CHECK_NUMBER(after.held_bytes[SUMI_MEMORY_ARENA], memory.arena);
    CHECK_NUMBER(after.held_bytes[SUMI_MEMORY_STAGING], memory.staging);
    CHECK_NUMBER(after.held_bytes[SUMI_MEMORY_IMAGE], memory.images);
    CHECK_NUMBER(after.host_bytes, s_host.live_bytes);
    CHECK_NUMBER(after.allocation_count, s_host.count);
    // everything that the job took is the sum of the parts, but for block headers
    CHECK((uint64_t)(s_host.live_bytes - bytes) >= memory.arena + memory.staging + memory.images);
    CHECK((uint64_t)(s_host.live_bytes - bytes) <= memory.arena + memory.staging + memory.images + memory.host + 65536);
    sumi_image images[2];
    CHECK_NUMBER(sumi_fetch_images(engine, job, images, 2), SUMI_OK);
    sumi_images_release(engine, images, 2);
    // what was idle is given back when the budget falls below it
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, memory.arena), SUMI_OK);
    CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_ARENA], 0);
    CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_STAGING], 0);
    CHECK_NUMBER(sumi_engine_set_memory_budget(NULL, 0), SUMI_INVALID_ARGUMENT);
    close_engine(engine);
}

#define REST 65536 // headers of blocks, and the weights of filters

// The most that the allocator has given out at any time of a job on the CPU is what it held before, beside arena
// and packing buffers, and what sumi_image_memory says. An arena or buffers of an earlier job stay where they are large
// enough; a budget, which may be 0 for none, is never exceeded by the two together.
static void check_peak(sumi_engine* engine, const sumi_image_desc* desc, uint64_t budget, const char* what)
{
    sumi_memory memory;
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, budget), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(engine, desc, &memory), SUMI_OK);
    const sumi_engine_info info = sumi_engine_get_info(engine);
    const uint64_t arena = info.held_bytes[SUMI_MEMORY_ARENA], buffers = info.held_bytes[SUMI_MEMORY_STAGING];
    const uint64_t other = (uint64_t)s_host.live_bytes - arena - buffers;
    uint64_t room =
        (arena > memory.arena ? arena : memory.arena) + (buffers > memory.staging ? buffers : memory.staging);
    if (budget != 0 && room > budget) room = budget;
    s_host.peak_bytes = s_host.live_bytes;
    CHECK(draw_hash(engine, desc) != 0);
    const uint64_t least = other + memory.needed, most = other + room + memory.images + memory.host + REST,
                   peak = (uint64_t)s_host.peak_bytes;
    CHECK(peak >= least && peak <= most);
    if (peak < least || peak > most) {
        printf("  %s: %llu bytes at most, not %llu to %llu\n", what, (unsigned long long)peak,
               (unsigned long long)least, (unsigned long long)most);
    }
}

TEST(no_job_takes_more_at_any_time_than_was_known)
{
    const int32_t source_width = 1500, source_height = 1100;
    unsigned char* pixels = malloc((size_t)source_width * (size_t)source_height * 4);
    for (size_t i = 0; i < (size_t)source_width * (size_t)source_height * 4; i++)
        pixels[i] = (unsigned char)(i * 37 >> 3);
    for (int has_budget = 0; has_budget < 2; has_budget++) {
        OPEN(engine, model);
        sumi_image_desc desc = small_image(model, &s_item);
        check_peak(engine, &desc, 0, "the first picture");
        uint64_t budget = 0;
        for (int32_t side = 64; side <= 256; side += 96) {
            desc.width = desc.height = side;
            sumi_memory memory;
            CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
            CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
            if (has_budget) budget = memory.needed;
            check_peak(engine, &desc, budget, "a larger picture");
        }
        desc.width = desc.height = 32;
        check_peak(engine, &desc, budget, "a small picture again");
        rich_image(&desc, model);
        desc.width = 256, desc.height = 192;
        for (int32_t channels = 1; channels <= 4; channels += channels == 1 ? 2 : 1) {
            const sumi_pixels picture = {pixels, source_width, source_height, source_width * channels, channels};
            desc.start.image = &picture;
            desc.start.mask = NULL;
            check_peak(engine, &desc, budget, "a large start picture");
            desc.start.mask = &picture;
            desc.start.mask_feather = 9;
            check_peak(engine, &desc, budget, "a large mask");
        }
        close_engine(engine);
    }
    free(pixels);
}

// The second job of any shape must not go to the allocator at all.
static void check_no_allocation(sumi_engine* engine, const sumi_image_desc* desc, const char* what)
{
    uint64_t first = draw_hash(engine, desc);
    long long count = s_host.count;
    uint64_t second = draw_hash(engine, desc);
    if (s_host.count != count) printf("  %s: %lld allocations\n", what, (long long)s_host.count - count);
    CHECK(s_host.count == count);
    CHECK(first != 0 && first == second);
}

TEST(a_warm_job_allocates_nothing)
{
    OPEN(engine, model);
    sumi_image_desc desc = small_image(model, &s_item);
    check_no_allocation(engine, &desc, "text to image");
    for (int solver = 1; solver <= SUMI_SOLVER_RES_MULTISTEP; solver++) {
        desc.solver = (sumi_solver)solver;
        check_no_allocation(engine, &desc, "a solver");
    }
    rich_image(&desc, model);
    check_no_allocation(engine, &desc, "image to image with guidance");
    uint8_t painted[20 * 20 * 4];
    memset(painted, 200, sizeof painted);
    sumi_pixels mask = {painted, 20, 20, 0, 4};
    desc.start.mask = &mask;
    check_no_allocation(engine, &desc, "inpainting");
    desc.preview_every = 1;
    check_no_allocation(engine, &desc, "previews");
    desc.profile = true;
    check_no_allocation(engine, &desc, "a profile");
    sumi_lora* lora = read_lora(engine, model, "lora_comfy_fused.safetensors");
    sumi_lora_use use = {.lora = lora, .scale = 1.0f};
    desc = small_image(model, &s_item);
    desc.loras = &use;
    desc.lora_count = 1;
    check_no_allocation(engine, &desc, "an adapter");
    desc.deadline_ms = 100000;
    check_no_allocation(engine, &desc, "a deadline");
    float noise[256];
    for (int i = 0; i < 256; i++) noise[i] = (float)(i % 7) - 3.0f;
    desc.noise.source = SUMI_NOISE_GIVEN;
    desc.noise.values = noise;
    check_no_allocation(engine, &desc, "given noise");
    // other seeds, schedules and texts of as many tokens are the same shape
    sumi_image_item item = {.text = "a red fox", .seed = 1234567};
    for (char letter = 'a'; letter <= 'z'; letter++) {
        static char s_text[] = "a red fo?";
        s_text[8] = letter;
        sumi_prompt* other = encode_prompt(engine, model, s_text);
        sumi_prompt* same = encode_prompt(engine, model, s_item.text);
        bool fits = letter != 'x'
                 && sumi_prompt_get_info(other).encoders[0].token_count
                        == sumi_prompt_get_info(same).encoders[0].token_count;
        sumi_prompt_release(other);
        sumi_prompt_release(same);
        item.text = s_text;
        if (fits) break;
    }
    CHECK(draw_hash(engine, &desc) != 0);
    long long count = s_host.count;
    desc.items = &item;
    desc.shift = 5.0f;
    CHECK(draw_hash(engine, &desc) != 0);
    CHECK_NUMBER(s_host.count, count);
    // budgets and waiting make no difference
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE) sumi_engine_update(engine, 1);
    sumi_image image;
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
    sumi_images_release(engine, &image, 1);
    CHECK_NUMBER(s_host.count, count);
    close_engine(engine);
}

TEST(a_short_budget_tiles_the_vae_and_a_tiny_one_is_refused)
{
    OPEN(engine, model);
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = desc.height = 256;
    desc.step_count = 1;
    sumi_memory whole, tiled, none;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &whole), SUMI_OK);
    sumi_image first, second;
    CHECK_NUMBER(draw(engine, &desc, &first), SUMI_OK);
    uint64_t budget = whole.arena + whole.staging - 1;
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, budget), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &tiled), SUMI_OK);
    CHECK(tiled.tiles_vae && !whole.tiles_vae && tiled.arena + tiled.staging <= budget);
    CHECK_NUMBER(whole.needed, whole.arena + whole.staging);
    CHECK_NUMBER(tiled.needed, tiled.arena + tiled.staging);
    CHECK_NUMBER(draw(engine, &desc, &second), SUMI_OK);
    sumi_engine_info info = sumi_engine_get_info(engine);
    CHECK_NUMBER(info.held_bytes[SUMI_MEMORY_ARENA], tiled.arena);
    CHECK_NUMBER(info.held_bytes[SUMI_MEMORY_STAGING], tiled.staging);
    // the same picture, but for what group norms see of it
    double sum = 0.0;
    for (size_t i = 0; i < (size_t)256 * 256 * 4; i++)
        sum += abs((int)((const uint8_t*)first.pixels)[i] - (int)((const uint8_t*)second.pixels)[i]);
    CHECK(sum > 0.0 && sum / (256 * 256 * 3) < 16.0);
    printf("  whole %llu bytes, tiled %llu, mean difference %.2f of 255\n",
           (unsigned long long)(whole.arena + whole.staging), (unsigned long long)(tiled.arena + tiled.staging),
           sum / (256 * 256 * 3));

    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 100000), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &none), SUMI_BUDGET_TOO_SMALL);
    CHECK(strstr(s_host.log, "100000") != NULL);
    CHECK_NUMBER(none.arena, 0);
    // exactly so much is enough
    CHECK(none.needed > 100000);
    sumi_memory least;
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, none.needed), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &least), SUMI_OK);
    CHECK_NUMBER(least.needed, none.needed);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, none.needed - 1), SUMI_OK);
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &least), SUMI_BUDGET_TOO_SMALL);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 100000), SUMI_OK);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_job_poll(engine, job).result, SUMI_BUDGET_TOO_SMALL);
    CHECK(strstr(sumi_job_poll(engine, job).message, "100000") != NULL);
    sumi_image image;
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_BUDGET_TOO_SMALL);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
    CHECK(hash_image(&image) == hash_image(&first));
    close_engine(engine);
}

TEST(images_are_reused_after_their_release)
{
    OPEN(engine, model);
    sumi_image_desc desc = small_image(model, &s_item);
    sumi_image first, second, third;
    CHECK_NUMBER(draw(engine, &desc, &first), SUMI_OK);
    CHECK_NUMBER(draw(engine, &desc, &second), SUMI_OK);
    CHECK(first.pixels != second.pixels && first.handle != second.handle && first.handle != 0);
    CHECK(hash_image(&first) == hash_image(&second));
    const void* pixels = first.pixels;
    sumi_image twice = first;
    sumi_images_release(engine, &first, 1);
    CHECK(first.pixels == NULL && first.handle == 0);
    sumi_images_release(engine, &twice, 1); // a second release does nothing
    CHECK_NUMBER(draw(engine, &desc, &third), SUMI_OK);
    CHECK(third.pixels == pixels);
    CHECK(hash_image(&second) == hash_image(&third)); // the one still held was not touched
    sumi_images_release(engine, NULL, 3);
    close_engine(engine);
}

// ---- Broken weights, the host program's files -------------------------------------------------------------------------------

TEST(the_hosts_files_are_read_and_closed)
{
    OPEN(mapped, mapped_model);
    sumi_image_desc desc = small_image(mapped_model, &s_item);
    uint64_t expected = draw_hash(mapped, &desc);
    close_engine(mapped);
    memset(&s_host, 0, sizeof s_host);
    archive a = {0};
    sumi_engine_desc ed = host_desc(&s_host);
    ed.files = &(sumi_files){archive_open, archive_read, NULL, archive_close, &a};
    sumi_model* model = NULL;
    sumi_engine* engine = open_engine(&ed, &model);
    CHECK(engine != NULL && a.opened > 0);
    if (engine == NULL) return;
    desc = small_image(model, &s_item);
    CHECK(expected != 0 && draw_hash(engine, &desc) == expected);
    a.refuses = true;
    sumi_model_desc md = sumi_model_defaults();
    md.path = MODEL_PATH;
    sumi_job job;
    sumi_model* none;
    CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_fetch_model(engine, job, &none), SUMI_FILE_READ_FAILED);
    close_engine(engine);
    CHECK_NUMBER(a.open_count, 0);
}

TEST(weights_that_are_not_finite_give_a_result_and_no_image)
{
    static const char* const s_damaged[] = {"vae/", "transformer/", "text_encoder/"};
    int refused = 0;
    for (size_t i = 0; i < sizeof s_damaged / sizeof *s_damaged; i++) {
        memset(&s_host, 0, sizeof s_host);
        archive a = {.damages = s_damaged[i]};
        sumi_engine_desc ed = host_desc(&s_host);
        ed.files = &(sumi_files){archive_open, archive_read, NULL, archive_close, &a};
        sumi_model* model = NULL;
        sumi_engine* engine = NULL;
        CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
        model = load_model(engine);
        if (model != NULL) { // config files of that folder are cut too; those that fail to open show nothing here
            sumi_image_desc desc = small_image(model, &s_item);
            sumi_job job;
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            sumi_job_wait(engine, job, SUMI_FOREVER);
            sumi_job_status status = sumi_job_poll(engine, job);
            if (status.result == SUMI_NOT_FINITE) {
                refused++;
                CHECK(strstr(status.message, " of ") != NULL);
                CHECK_NUMBER(status.state, SUMI_JOB_FAILED);
            }
            sumi_image image = {.handle = 5};
            CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), status.result);
            if (status.result != SUMI_OK) CHECK(image.handle == 0 && image.pixels == NULL);
        }
        close_engine(engine);
    }
    printf("  %d of 3 damaged checkpoints drew NaN\n", refused);
    CHECK(refused >= 1);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(an_image_resized_in_pieces_has_the_same_bits);
    RUN(memory_is_known_exactly_beforehand);
    RUN(no_job_takes_more_at_any_time_than_was_known);
    RUN(a_warm_job_allocates_nothing);
    RUN(a_short_budget_tiles_the_vae_and_a_tiny_one_is_refused);
    RUN(images_are_reused_after_their_release);
    RUN(the_hosts_files_are_read_and_closed);
    RUN(weights_that_are_not_finite_give_a_result_and_no_image);
    TEST_END();
}
