// How deadlines are kept on a GPU: 8 steps at 1024 x 1024 with random weights of the released sizes (smaller ones where
// the device has less memory): alone, with a part of each frame, and while another process works on the same GPU. That
// is told and not judged, for other programs on the machine have a part in it; test_engine_time judges it, on a clock
// of its own. Skipped without a GPU.
#include "synthetic.h"
#include "test.h"
#include <poll.h>
#include <sumi.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

// ---- One process's engine -------------------------------------------------------------------------------------------

typedef struct painter {
    synthetic_files* files;
    sumi_engine* engine;
    sumi_model* model;
} painter;

static void keep_text(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result;
    if (level == SUMI_LOG_ERROR) snprintf(user_data, 500, "%s", text);
}

static bool open_painter(painter* p, const synthetic_config* config, char why[500])
{
    sumi_job job;
    *p = (painter){.files = synthetic_open(config)};
    if (p->files == NULL) return false;
    sumi_engine_desc ed = sumi_engine_defaults();
    ed.backend = SUMI_BACKEND_CUDA;
    const sumi_files files = synthetic_services(p->files);
    ed.files = &files;
    ed.log = (sumi_log){keep_text, why};
    if (sumi_engine_create(&ed, &p->engine) != SUMI_OK) return false;
    sumi_model_desc md = sumi_model_defaults();
    md.path = SYNTHETIC_PATH;
    if (sumi_submit_model(p->engine, &md, &job) != SUMI_OK) return false;
    sumi_job_wait(p->engine, job, SUMI_FOREVER);
    return sumi_fetch_model(p->engine, job, &p->model) == SUMI_OK;
}

static void close_painter(painter* p)
{
    sumi_engine_destroy(p->engine);
    synthetic_close(p->files);
}

static sumi_image_desc large_image(const painter* p)
{
    static const sumi_image_item s_item = {.text = "a lighthouse at dusk, ink wash", .seed = 7};
    sumi_image_desc desc = sumi_image_defaults(p->model, SUMI_PRESET_MODEL);
    desc.items = &s_item;
    desc.item_count = 1;
    desc.width = desc.height = 1024;
    desc.step_count = 8;
    return desc;
}

// ---- The other process ----------------------------------------------------------------------------------------------
// A byte makes it draw, another one makes it stop; it answers each when it does. The end of the pipe ends it.

static int s_to_other = -1, s_from_other = -1;

static void be_the_other(int from, int to)
{
    char byte, why[500] = "";
    painter p = {NULL, NULL, NULL};
    while (read(from, &byte, 1) == 1) {
        if (p.engine == NULL && !open_painter(&p, &synthetic_mid, why)) _exit(1);
        const sumi_image_desc desc = large_image(&p);
        sumi_job job = {0};
        struct pollfd next = {.fd = from, .events = POLLIN};
        bool has_said = false;
        while (poll(&next, 1, 0) == 0) {
            if (sumi_job_poll(p.engine, job).state != SUMI_JOB_RUNNING
                && sumi_job_poll(p.engine, job).state != SUMI_JOB_QUEUED) {
                sumi_job_discard(p.engine, job);
                if (sumi_submit_images(p.engine, &desc, &job) != SUMI_OK) _exit(1);
            }
            sumi_engine_update(p.engine, 20000);
            if (!has_said && sumi_job_poll(p.engine, job).stage == SUMI_STAGE_DENOISE)
                has_said = write(to, "d", 1) == 1;
        }
        sumi_job_discard(p.engine, job);
        if (read(from, &byte, 1) != 1 || write(to, "s", 1) != 1) break;
    }
    if (p.engine != NULL) close_painter(&p);
    _exit(0);
}

static bool s_other_draws;

static void start_the_other(void) { s_other_draws = write(s_to_other, "x", 1) == 1; }
static void wait_for_the_other(void)
{
    char byte;
    CHECK(read(s_from_other, &byte, 1) == 1);
}
static void stop_the_other(void)
{
    if (!s_other_draws) return;
    CHECK(write(s_to_other, "x", 1) == 1);
    wait_for_the_other();
    s_other_draws = false;
}

// ---- The test -------------------------------------------------------------------------------------------------------

// In frames; the other process begins after so many seconds (negative: it does not). Seconds from submission to the
// end.
static double run_frames(const painter* p, const sumi_image_desc* desc, uint32_t budget_us, double frame,
                         double other_at, int32_t* out_steps)
{
    sumi_job job;
    sumi_image image;
    const bool draws_before = s_other_draws;
    const double begin = seconds_now();
    if (sumi_submit_images(p->engine, desc, &job) != SUMI_OK) return -1.0;
    while (sumi_job_poll(p->engine, job).state < SUMI_JOB_DONE) {
        const double at = seconds_now();
        if (other_at >= 0.0 && !s_other_draws && at - begin >= other_at) start_the_other();
        sumi_engine_update(p->engine, budget_us);
        const double rest = frame - (seconds_now() - at);
        if (rest > 0.0) nanosleep(&(struct timespec){.tv_nsec = (long)(rest * 1e9)}, NULL);
    }
    const double seconds = seconds_now() - begin;
    const sumi_result result = sumi_fetch_images(p->engine, job, &image, 1);
    CHECK(result == SUMI_OK || result == SUMI_NOT_FINITE); // random weights
    *out_steps = result == SUMI_OK ? image.step_count : 0;
    if (result == SUMI_OK) sumi_images_release(p->engine, &image, 1);
    if (s_other_draws && !draws_before) wait_for_the_other();
    return seconds;
}

TEST(a_deadline_decides_the_steps_on_a_gpu)
{
    // Deadlines by the time that all steps take alone. The other one's work takes about half of the GPU's time.
    static const struct {
        const char* what;
        double deadline;
        uint32_t budget_us;
        double frame;
        double other_at;
    } s_cases[] = {
        {"alone", 0.8, 8000, 0.004, -1.0},
        {"4 ms of frames of 16", 3.2, 4000, 0.016, -1.0},
        {"beside another process", 1.4, 8000, 0.004, 0.0},
        {"the other from a quarter on", 1.2, 8000, 0.004, 0.25},
    };
    char why[500] = "";
    painter p;
    if (!open_painter(&p, &synthetic_mid, why)) {
        close_painter(&p);
        SKIP(why);
    }
    if (sumi_engine_get_info(p.engine).device_bytes > (uint64_t)40 << 30) {
        close_painter(&p);
        CHECK(open_painter(&p, &synthetic_z_image, why));
    }
    if (t_errors > 0) return;
    sumi_image_desc desc = large_image(&p);
    int32_t steps = 0;
    run_frames(&p, &desc, 20000, 0.004, -1.0, &steps);
    const double whole = run_frames(&p, &desc, 20000, 0.004, -1.0, &steps);
    printf("  %s: %.0f ms without a deadline, %d steps\n", sumi_engine_get_info(p.engine).device, 1e3 * whole,
           (int)steps);
    for (size_t c = 0; c < sizeof s_cases / sizeof *s_cases; c++) {
        desc.deadline_ms = (uint32_t)(1e3 * whole * s_cases[c].deadline);
        const double deadline = 1e-3 * desc.deadline_ms;
        const bool is_beside = s_cases[c].other_at == 0.0;
        if (is_beside) {
            start_the_other();
            wait_for_the_other();
        }
        const double seconds = run_frames(&p, &desc, s_cases[c].budget_us, s_cases[c].frame,
                                          is_beside ? -1.0 : s_cases[c].other_at * deadline, &steps);
        stop_the_other();
        printf("  %s: %.0f ms of %.0f, %d of 8 steps\n", s_cases[c].what, 1e3 * seconds, 1e3 * deadline, (int)steps);
        CHECK(steps >= 4 && steps <= 8);
    }
    desc.deadline_ms = 1; // hopeless: the fewest steps, and the picture all the same
    run_frames(&p, &desc, 20000, 0.004, -1.0, &steps);
    CHECK_NUMBER(steps, 4);
    desc.deadline_ms = 3600000; // plenty of time
    run_frames(&p, &desc, 20000, 0.004, -1.0, &steps);
    CHECK_NUMBER(steps, 8);
    // With a step cache: what is left is predicted with the evaluations that will be reused.
    desc.deadline_ms = 0;
    desc.step_count = 24;
    const double uncached = run_frames(&p, &desc, 20000, 0.004, -1.0, &steps);
    desc.step_cache = 10.0f; // reuses as many as the rule allows
    run_frames(&p, &desc, 20000, 0.004, -1.0, &steps);
    const double cached = run_frames(&p, &desc, 20000, 0.004, -1.0, &steps);
    static const double s_shares[] = {0.6, 0.8, 1.2, 2.0}; // of what all steps take with the cache
    for (size_t i = 0; i < sizeof s_shares / sizeof *s_shares; i++) {
        desc.deadline_ms = (uint32_t)(1e3 * cached * s_shares[i]);
        const double seconds = run_frames(&p, &desc, 20000, 0.004, -1.0, &steps);
        printf("  with a step cache: %.0f ms of %u, %d of 24 steps, which take %.0f ms, and %.0f without a cache\n",
               1e3 * seconds, (unsigned)desc.deadline_ms, (int)steps, 1e3 * cached, 1e3 * uncached);
        CHECK(steps >= 4 && steps <= 24);
    }
    CHECK_NUMBER(steps, 24);
    close_painter(&p);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0);
    // Before this process has a CUDA driver: one that was forked has none that works.
    int to[2], from[2];
    if (pipe(to) != 0 || pipe(from) != 0) return 1;
    const pid_t other = fork();
    if (other == 0) {
        close(to[1]);
        close(from[0]);
        be_the_other(to[0], from[1]);
    }
    close(to[0]);
    close(from[1]);
    s_to_other = to[1];
    s_from_other = from[0];
    RUN(a_deadline_decides_the_steps_on_a_gpu);
    close(s_to_other);
    waitpid(other, NULL, 0);
    TEST_END();
}
