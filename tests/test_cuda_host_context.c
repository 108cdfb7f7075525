// The CUDA backend beside a host's own CUDA, on a GPU: its context and stream are used and left as they are, pictures
// stay on the device, two engines share one.
#include "base/dtype.h"
#include "cuda_host_fixture.h"
#include <math.h>
#include <stdatomic.h>
#include <sumi.h>
#include <time.h>

// ---- The host's CUDA ------------------------------------------------------------------------------------------------

enum { NOT_READY = 600, THREAD_LOCAL_CAPTURE = 1, NON_BLOCKING = 1 };

// ---- The host's own context and stream ------------------------------------------------------------------------------

static context_handle s_current;

#define KEEPS(call)                                                                                                    \
    do {                                                                                                               \
        context_handle now_ = NULL;                                                                                    \
        call;                                                                                                          \
        CHECK(s_cu.context_get(&now_) == 0 && now_ == s_current);                                                      \
    } while (0)

static atomic_bool s_gate_opens, s_gate_reached, s_gate_gave_up;

static void gate(void* user_data) // on a thread of the driver: the stream waits as long as this does
{
    (void)user_data;
    atomic_store(&s_gate_reached, true);
    for (int i = 0; i < 120000 && !atomic_load(&s_gate_opens); i++) system_sleep_us(1000);
    atomic_store(&s_gate_gave_up, !atomic_load(&s_gate_opens)); // somebody who should have opened it waits for it
}

TEST(the_hosts_context_and_stream_are_used_and_left_alone)
{
    context_handle theirs, given;
    stream_handle stream;
    CHECK_NUMBER(s_cu.context_create(&given, 0, 0), 0);
    CHECK_NUMBER(s_cu.stream_create(&stream, NON_BLOCKING), 0);
    CHECK_NUMBER(s_cu.context_create(&theirs, 0, 0), 0); // what the calling thread works with meanwhile
    s_current = theirs;
    sumi_engine_desc ed = gpu_desc();
    ed.cuda.context = given;
    ed.cuda.stream = stream;
    ed.max_slice_us = 50;
    sumi_engine* engine = NULL;
    KEEPS(CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK));
    if (engine != NULL) {
        sumi_model* model = NULL;
        KEEPS(model = load(engine, TINY, SUMI_WEIGHTS_AUTO, NULL));
        CHECK(model != NULL);
        sumi_image_desc desc = picture(model);
        sumi_memory memory;
        KEEPS(CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK));
        uint64_t hash = 0;
        KEEPS(hash = draw_hash(engine, &desc, 500));
        CHECK(hash == s_whole);

        // Their stream is busy with something of theirs: nothing of ours may overtake it, and nobody waits for it but
        // the job.
        void* event;
        CHECK_NUMBER(s_cu.context_set(given), 0);
        CHECK_NUMBER(s_cu.event_create(&event, 0), 0);
        atomic_store(&s_gate_opens, false);
        CHECK_NUMBER(s_cu.stream_call(stream, gate, NULL), 0);
        CHECK_NUMBER(s_cu.context_set(theirs), 0);
        sumi_job job;
        KEEPS(CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK));
        double longest = 0.0;
        for (int frame = 0; frame < 300; frame++) {
            const double begin = now_ms();
            KEEPS(timed_update(engine, job, 1000));
            const double ms = now_ms() - begin;
            longest = ms > longest ? ms : longest;
            KEEPS((void)timed_poll(engine, job));
            KEEPS((void)sumi_engine_get_info(engine));
        }
        printf("  the longest update while the stream was busy took %.3f ms\n", longest);
        CHECK_NUMBER(timed_poll(engine, job).state, SUMI_JOB_RUNNING);
        CHECK_NUMBER(timed_poll(engine, job).step, 0);
        CHECK_NUMBER(sumi_job_wait(engine, job, 0), SUMI_TIMEOUT);
        CHECK_NUMBER(s_cu.context_set(given), 0);
        CHECK_NUMBER(s_cu.event_record(event, stream), 0); // behind what we have submitted
        CHECK_NUMBER(s_cu.event_query(event), NOT_READY);
        atomic_store(&s_gate_opens, true);
        CHECK_NUMBER(s_cu.context_set(theirs), 0);
        KEEPS(CHECK_NUMBER(finish(engine, job, 1000), SUMI_OK));
        KEEPS(hash = take_hash(engine, job, &desc));
        CHECK(hash == s_whole);
        // none of these calls has waited for the device
        CHECK(atomic_load(&s_gate_reached) && !atomic_load(&s_gate_gave_up));
        CHECK_NUMBER(s_cu.context_set(given), 0);
        CHECK_NUMBER(s_cu.event_query(event), 0);
        CHECK_NUMBER(s_cu.event_destroy(event), 0);
        CHECK_NUMBER(s_cu.context_set(theirs), 0);

        KEEPS(CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK));
        for (int u = 0; u < 30; u++) KEEPS(sumi_engine_update(engine, 100));
        KEEPS(sumi_job_cancel(engine, job));
        KEEPS(CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK));
        KEEPS(sumi_job_discard(engine, job));
        KEEPS((void)sumi_engine_set_memory_budget(engine, 1));
        KEEPS(sumi_model_close(model));
        KEEPS(sumi_engine_destroy(engine));
        check_all_is_back();
    }
    CHECK_NUMBER(s_cu.context_set(given), 0);
    CHECK_NUMBER(s_cu.stream_synchronize(stream), 0); // it is still theirs, and alive

    // A stream that is being captured would get our work into their graph.
    CHECK_NUMBER(s_cu.begin_capture(stream, THREAD_LOCAL_CAPTURE), 0);
    s_current = given;
    ed = gpu_desc();
    ed.cuda.context = given;
    ed.cuda.stream = stream;
    KEEPS(CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_INVALID_ARGUMENT));
    CHECK(engine == NULL && strstr(s_host.text, "captured") != NULL);
    check_all_is_back();
    void* graph = NULL;
    CHECK_NUMBER(s_cu.end_capture(stream, &graph), 0);
    if (graph != NULL) CHECK_NUMBER(s_cu.graph_destroy(graph), 0);
    ed.cuda.stream = (stream_handle)(uintptr_t)1; // CUDA's own default stream
    KEEPS(CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_INVALID_ARGUMENT));
    CHECK_NUMBER(s_cu.stream_destroy(stream), 0);
    CHECK_NUMBER(s_cu.context_destroy(theirs), 0);
    CHECK_NUMBER(s_cu.context_destroy(given), 0);
    CHECK_NUMBER(s_cu.context_set(NULL), 0);
}

// Read back by a stream of the host program's that was ordered by the event alone.
// Every format, from a model without alpha and from one that makes it.
static void check_stays_on_device(const char* path)
{
    enum { W = 64, H = 64, MOST = (W * 12 + 64) * H };
    static unsigned char s_from_device[3][MOST], s_from_host[3][MOST], s_rgba[W * H * 4], s_rgb[W * H * 3],
        s_halves[W * H * 8];
    static const int32_t s_pixel_bytes[] = {[SUMI_FORMAT_RGBA8] = 4,
                                            [SUMI_FORMAT_RGB8] = 3,
                                            [SUMI_FORMAT_RGB32F] = 12,
                                            [SUMI_FORMAT_BGRA8] = 4,
                                            [SUMI_FORMAT_RGBA16F] = 8};
    context_handle context;
    stream_handle stream;
    uint64_t memory[3];
    void* events[3];
    CHECK_NUMBER(s_cu.context_create(&context, 0, 0), 0);
    CHECK_NUMBER(s_cu.stream_create(&stream, NON_BLOCKING), 0);
    for (int i = 0; i < 3; i++)
        CHECK(s_cu.allocate(&memory[i], MOST) == 0 && s_cu.event_create(&events[i], 2 /* without timing */) == 0);
    sumi_engine_desc ed = gpu_desc();
    ed.cuda.context = context;
    sumi_model* model;
    sumi_engine* engine = open_engine(&ed, path, &model);
    if (engine == NULL) return;
    const bool has_alpha = sumi_model_get_info(model).has_alpha;
    for (int format = 0; format < 5; format++) { // those with longer rows also from below
        const int32_t row = W * s_pixel_bytes[format];
        for (int padded = 0; padded < 2; padded++) {
            const int32_t pitch = row + (padded != 0 ? format == SUMI_FORMAT_RGB8 ? 5 : 64 : 0);
            sumi_image_desc desc = picture(model);
            desc.width = W;
            desc.height = H;
            sumi_target targets[2];
            for (int on_device = 0; on_device < 2; on_device++) {
                for (int i = 0; i < 2; i++) {
                    memset(s_from_device[i], 0xa5, MOST);
                    // our stream does not wait for that one
                    CHECK(s_cu.fill(memory[i], 0xa5, MOST) == 0 && s_cu.stream_synchronize(NULL) == 0);
                    targets[i] =
                        (sumi_target){.format = (sumi_format)format, .row_bytes = pitch, .bottom_up = padded != 0};
                    if (on_device != 0) targets[i].device_address = memory[i], targets[i].event = events[i];
                    else targets[i].host_memory = s_from_host[i];
                    if (on_device == 0) memset(s_from_host[i], 0xa5, MOST);
                }
                desc.targets = targets;
                sumi_job job;
                sumi_image images[2];
                CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
                CHECK_NUMBER(finish(engine, job, on_device != 0 ? 1000 : 0), SUMI_OK);
                for (int i = 0; i < 2 && on_device != 0; i++) {
                    CHECK_NUMBER(s_cu.stream_wait(stream, events[i], 0), 0);
                    CHECK_NUMBER(s_cu.copy_to_host(s_from_device[i], memory[i], MOST, stream), 0);
                }
                CHECK_NUMBER(s_cu.stream_synchronize(stream), 0);
                CHECK_NUMBER(sumi_fetch_images(engine, job, images, 2), SUMI_OK);
                for (int i = 0; i < 2; i++) {
                    CHECK(images[i].row_bytes == pitch && (images[i].pixels == NULL) == (on_device != 0));
                    CHECK_NUMBER(images[i].has_alpha,
                                 has_alpha && format != SUMI_FORMAT_RGB8 && format != SUMI_FORMAT_RGB32F);
                }
                sumi_images_release(engine, images, 2);
            }
            // what lies between the rows too
            for (int i = 0; i < 2; i++) CHECK(memcmp(s_from_device[i], s_from_host[i], MOST) == 0);
            if (padded == 0 && format == SUMI_FORMAT_RGBA8) memcpy(s_rgba, s_from_host[1], sizeof s_rgba);
            if (padded == 0 && format == SUMI_FORMAT_RGB8) memcpy(s_rgb, s_from_host[1], sizeof s_rgb);
            if (padded == 0 && format == SUMI_FORMAT_RGBA16F) memcpy(s_halves, s_from_host[1], sizeof s_halves);
            for (int i = 0; i < W * H && padded == 0 && format == SUMI_FORMAT_BGRA8; i++) {
                const unsigned char *bgra = s_from_host[1] + 4 * i, *rgba = s_rgba + 4 * i;
                CHECK(bgra[0] == rgba[2] && bgra[1] == rgba[1] && bgra[2] == rgba[0] && bgra[3] == rgba[3]);
            }
        }
    }
    int32_t different = 0, transparent = 0; // the device makes one of the other
    for (int i = 0; i < W * H; i++) {
        uint16_t half;
        memcpy(&half, s_halves + 8 * i + 6, sizeof half);
        const float alpha = sumi_f16_to_float(half);
        different += memcmp(&s_rgba[4 * i], &s_rgb[3 * i], 3) != 0;
        different += !(alpha >= 0.0f && alpha <= 1.0f) || fabsf(255.0f * alpha - (float)s_rgba[4 * i + 3]) > 0.6f;
        transparent += s_rgba[4 * i + 3] != 255;
    }
    CHECK_NUMBER(different, 0);
    CHECK(has_alpha ? transparent > 0 : transparent == 0);
    sumi_engine_destroy(engine);
    check_all_is_back();
    for (int i = 0; i < 3; i++) CHECK(s_cu.release(memory[i]) == 0 && s_cu.event_destroy(events[i]) == 0);
    CHECK_NUMBER(s_cu.stream_destroy(stream), 0);
    CHECK_NUMBER(s_cu.context_destroy(context), 0);
}

TEST(images_that_stay_on_the_device_have_the_same_bits) { check_stays_on_device(TINY); }
TEST(so_have_those_with_alpha) { check_stays_on_device("tests/golden/qwen-image-21/model"); }

TEST(two_engines_in_one_process)
{
    sumi_engine_desc ed = gpu_desc();
    sumi_model *first_model, *second_model;
    sumi_engine* first = open_engine(&ed, TINY, &first_model);
    if (first == NULL) return;
    ed.pump = SUMI_PUMP_THREAD;
    sumi_engine* second = open_engine(&ed, TINY, &second_model);
    if (second != NULL) {
        for (int i = 0; i < 3; i++) {
            sumi_image_desc a = picture(first_model), b = picture(second_model);
            sumi_job first_job, second_job;
            CHECK_NUMBER(sumi_submit_images(second, &b, &second_job), SUMI_OK);
            CHECK_NUMBER(sumi_submit_images(first, &a, &first_job), SUMI_OK);
            CHECK_NUMBER(finish(first, first_job, 500), SUMI_OK);
            CHECK_NUMBER(finish(second, second_job, 0), SUMI_OK);
            CHECK(take_hash(first, first_job, &a) == s_whole);
            CHECK(take_hash(second, second_job, &b) == s_whole);
        }
        sumi_engine_destroy(second);
    }
    sumi_image_desc desc = picture(first_model);
    CHECK(draw_hash(first, &desc, 0) == s_whole);
    close_engine(first);
}

int main(int argc, char** argv)
{
    HOST_TEST_BEGIN(argc, argv);
    RUN(the_hosts_context_and_stream_are_used_and_left_alone);
    RUN(images_that_stay_on_the_device_have_the_same_bits);
    RUN(so_have_those_with_alpha);
    RUN(two_engines_in_one_process);
    tell_times();
    TEST_END();
}
