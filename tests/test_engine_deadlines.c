// Deadlines on a CPU that is simulated (simulated_cpu.h).
//
// What the simulated CPU has of real ones: kinds of ops run at rates of their own, which nobody knows before they
// ran; the first work ranges of an op pack weights for the others, and the last one may be short; what runs for the
// first time is slower; times waver, some pieces of slices are interrupted, and others' work comes and goes.
#include "fake_clock.h"
#include "simulated_cpu.h"

#define TICK_NS UINT64_C(1000)
#define JOBS 100
#define JOBS_PER_ENGINE 10 // every engine begins knowing nothing
#define STEPS 20
#define PACKING 0.1 // of an op's time, once for all of its parts

// ---- The CPU --------------------------------------------------------------------------------------------------

typedef struct cpu {
    double conv, attention, others; // how much longer than the rates say
    double waver;                   // of a slice's time, to both sides
    double spike_share, spike_us;   // of milliseconds of work that are interrupted, and for how long
    double max_load;                // times that work takes while others are busy; 1: never
} cpu;

// What is asked for beside a size.
typedef struct wish {
    sumi_solver solver;
    float guidance, guidance_begin, guidance_end; // guidance 0: none
    float step_cache;
} wish;

static const cpu* s_cpu;
static uint64_t s_seen[4096]; // parts of ops that ran before
static double s_load;
static uint64_t s_load_ends_ns;

static double load_now(void)
{
    const uint64_t now = fake_clock_now_ns();
    if (now >= s_load_ends_ns) { // another one for 0.1 to 0.5 s
        s_load = next_random() < 0.5 ? 1.0 : 1.0 + next_random() * (s_cpu->max_load - 1.0);
        s_load_ends_ns = now + (uint64_t)(1e8 + 4e8 * next_random());
    }
    return s_load;
}

static double op_us(const sumi_plan* plan, const sumi_op* op)
{
    const sumi_rates rates = simulated_rates(NULL);
    const double us = (double)sumi_plan_predict_us(plan, op, &rates);
    return us
         * (op->kind == SUMI_OP_CONV        ? s_cpu->conv
            : op->kind == SUMI_OP_ATTENTION ? s_cpu->attention
                                            : s_cpu->others);
}

// What a slice takes alone; with `cold`, the memory that is touched for the first time too.
static double slice_us(const sumi_plan* plan, const sumi_slice* slice, bool cold)
{
    double us = 0.0;
    for (int32_t i = slice->op_begin; i < slice->op_end; i++) {
        const sumi_op* op = &plan->ops[i];
        const bool is_part = slice->op_end == slice->op_begin + 1;
        const int32_t begin = is_part ? slice->range_begin : 0, end = is_part ? slice->range_end : op->range_count;
        const double whole = op_us(plan, op), own = whole * (rows_before(op, end) - rows_before(op, begin)) / op->rows;
        const int32_t packing = op->preparing_count > 0 ? op->preparing_count : 1; // ranges
        us += own + PACKING * whole * ((end < packing ? end : packing) - (begin < packing ? begin : packing)) / packing;
        if (!cold) continue;
        const uint64_t place[4] = {(uint64_t)i, (uint64_t)begin, plan->arena_bytes, plan->op_count};
        const uint64_t key = hash_bytes(place, sizeof place);
        uint64_t* seen = &s_seen[key % (sizeof s_seen / sizeof *s_seen)];
        if (*seen != key) us += 0.1 * own;
        *seen = key;
    }
    return us;
}

static sumi_result simulated_run(sumi_runner* runner, const sumi_plan* plan, const sumi_slice* slice, int32_t counter,
                                 sumi_error* error)
{
    (void)runner, (void)counter, (void)error;
    double us = slice_us(plan, slice, true) * load_now() * (1.0 + s_cpu->waver * (2.0 * next_random() - 1.0));
    if (next_random() < 1e-3 * us * s_cpu->spike_share) us += s_cpu->spike_us;
    fake_clock_pass_ns((uint64_t)(us * 1e3));
    return SUMI_OK;
}

static sumi_engine* open_deadlines(sumi_model** out_model)
{
    memset(s_seen, 0, sizeof s_seen);
    return open_simulated(simulated_run, 2000, out_model);
}

// ---- The host -------------------------------------------------------------------------------------------------------

typedef struct host_rhythm {
    uint32_t budget_us; // of every update; 0: the host waits for the job
    double frame;       // seconds
} host_rhythm;

static void pass_frame(sumi_engine* engine, const host_rhythm* rhythm)
{
    const uint64_t at = fake_clock_now_ns();
    sumi_engine_update(engine, rhythm->budget_us);
    const double rest = rhythm->frame - 1e-9 * (double)(fake_clock_now_ns() - at);
    if (rest > 0.0) fake_clock_pass_ns((uint64_t)(rest * 1e9));
}

// Seconds from submission to the end.
static double run_job(sumi_engine* engine, const sumi_image_desc* desc, const host_rhythm* rhythm, int32_t* out_steps)
{
    sumi_job job;
    sumi_image image;
    for (int f = 0; f < 4 && rhythm->budget_us > 0; f++) pass_frame(engine, rhythm); // there is one without a job too
    const uint64_t begin = fake_clock_now_ns();
    if (sumi_submit_images(engine, desc, &job) != SUMI_OK) return -1.0;
    if (rhythm->budget_us == 0) sumi_job_wait(engine, job, SUMI_FOREVER);
    int32_t frames = 0;
    while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE && count_frame(&frames)) {
        const uint64_t at = fake_clock_now_ns();
        sumi_engine_update(engine, rhythm->budget_us);
        if (sumi_job_poll(engine, job).state >= SUMI_JOB_DONE) break;
        const double rest = rhythm->frame - 1e-9 * (double)(fake_clock_now_ns() - at);
        if (rest > 0.0) fake_clock_pass_ns((uint64_t)(rest * 1e9));
    }
    const double seconds = 1e-9 * (double)(fake_clock_now_ns() - begin);
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
    *out_steps = image.step_count;
    sumi_images_release(engine, &image, 1);
    return seconds;
}

static sumi_image_desc sized_image(sumi_model* model, const int32_t size[2], const wish* w)
{
    static const sumi_image_item s_barn = {.text = "a red barn on a hill", .seed = 3};
    sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    desc.items = &s_barn;
    desc.item_count = 1;
    desc.width = size[0];
    desc.height = size[1];
    desc.step_count = STEPS;
    desc.solver = w->solver;
    desc.guidance.scale = w->guidance;
    desc.step_cache = w->step_cache;
    if (w->guidance > 0.0f) desc.guidance.begin = w->guidance_begin, desc.guidance.end = w->guidance_end;
    return desc;
}

// ---- A hundred jobs -------------------------------------------------------------------------------------------------

#define SIZES 4
static const int32_t s_sizes[SIZES][2] = {{64, 64}, {128, 64}, {64, 96}, {128, 128}};

typedef struct tally {
    int late, over, first_over;           // over: by more than a tenth
    int first_lost, later_lost, max_lost; // jobs of twice the time that lost steps, and the most steps of one
    double worst, used;                   // used: of deadlines that left steps out, the mean share
    int cut;
} tally;

// What jobs of each size take, when the speed is known and nobody else works: all steps, and the fewest.
static void measure_sizes(const wish* w, const host_rhythm* rhythm, double whole[SIZES], double least[SIZES])
{
    sumi_model* model = NULL;
    sumi_engine* engine = open_deadlines(&model);
    for (int s = 0; s < SIZES && t_errors == 0; s++) {
        sumi_image_desc desc = sized_image(model, s_sizes[s], w);
        int32_t steps;
        run_job(engine, &desc, rhythm, &steps);
        whole[s] = run_job(engine, &desc, rhythm, &steps);
        desc.step_count = 4;
        run_job(engine, &desc, rhythm, &steps);
        least[s] = run_job(engine, &desc, rhythm, &steps);
    }
    close_engine(engine);
}

static tally run_hundred(const cpu* p, const wish* w, const host_rhythm* rhythm)
{
    static const double s_shares[] = {0.4, 0.55, 0.7, 0.85, 1.0, 1.3, 2.0}; // of what all steps take
    tally t = {.late = 0};
    double whole[SIZES], least[SIZES];
    cpu quiet = *p;
    quiet.max_load = 1.0;
    quiet.spike_share = 0.0;
    s_cpu = &quiet;
    s_random = 7;
    s_load_ends_ns = 0;
    measure_sizes(w, rhythm, whole, least);
    s_cpu = p;
    s_load_ends_ns = 0;
    sumi_engine* engine = NULL;
    sumi_model* model = NULL;
    bool has_run[SIZES];
    for (int j = 0; j < JOBS && t_errors == 0; j++) {
        if (j % JOBS_PER_ENGINE == 0) {
            if (engine != NULL) close_engine(engine);
            engine = open_deadlines(&model);
            memset(has_run, 0, sizeof has_run);
        }
        const int s = (int)(next_random() * SIZES);
        const double share = s_shares[(int)(next_random() * (double)(sizeof s_shares / sizeof *s_shares))];
        // A deadline that the fewest steps can keep whatever the load: what is hopeless is hopeless.
        const double fewest = 1.25 * p->max_load * least[s] + rhythm->frame,
                     seconds = share * whole[s] * p->max_load > fewest ? share * whole[s] * p->max_load : fewest;
        sumi_image_desc desc = sized_image(model, s_sizes[s], w);
        desc.deadline_ms = (uint32_t)(1e3 * seconds);
        int32_t steps = 0;
        const double ratio = 1e3 * run_job(engine, &desc, rhythm, &steps) / desc.deadline_ms;
        CHECK(steps >= 4 && steps <= STEPS);
        t.late += ratio > 1.0;
        t.over += ratio > 1.1;
        t.first_over += ratio > 1.1 && !has_run[s];
        t.worst = ratio > t.worst ? ratio : t.worst;
        if (seconds >= 2.0 * p->max_load * whole[s] && steps < STEPS) {
            t.first_lost += !has_run[s];
            t.later_lost += has_run[s];
            if (STEPS - steps > t.max_lost) t.max_lost = STEPS - steps;
        }
        if (steps > 4 && steps < STEPS) t.used += ratio, t.cut++;
        has_run[s] = true;
    }
    if (engine != NULL) close_engine(engine);
    return t;
}

static const wish s_plain = {.solver = SUMI_SOLVER_EULER};
static const host_rhythm s_rhythms[] = {{0, 0.0}, {8000, 0.016}, {2000, 0.006}};
static const cpu s_usual = {.conv = 1.0, .attention = 1.4, .others = 1.1, .waver = 0.05, .max_load = 1.0};

// What is left unused of deadlines that leave steps out is the margin, and less than `max_unused`.
static void check_hundred(const char* what, const cpu* p, const wish* w, double max_unused)
{
    for (size_t r = 0; r < sizeof s_rhythms / sizeof *s_rhythms && t_errors == 0; r++) {
        const tally t = run_hundred(p, w, &s_rhythms[r]);
        printf(
            "  %s, %u us of %.0f ms: %d late, %d by more than a tenth (%d of a size's first), worst %.2f; %.2f of the "
            "time used; of twice the time %d + %d lost up to %d steps\n",
            what, (unsigned)s_rhythms[r].budget_us, 1e3 * s_rhythms[r].frame, t.late, t.over, t.first_over, t.worst,
            t.cut > 0 ? t.used / t.cut : 0.0, t.first_lost, t.later_lost, t.max_lost);
        CHECK(t.over <= 1);
        // Solvers that decide once know nothing of what can be reused before the first job has ended.
        const bool knows = w->step_cache == 0.0f || w->solver != SUMI_SOLVER_MIDPOINT;
        // What they decide cannot be corrected, so their margin is for the whole job, and the share of the time that the
        // work gets is the lower one of two estimates, of which one may be of a job of another size. So one job of a
        // hundred may lose one step at twice the time that it needs.
        const bool decides_once = w->solver == SUMI_SOLVER_MIDPOINT;
        CHECK(t.later_lost + (knows ? t.first_lost : 0) <= (decides_once ? 1 : 0) && (!knows || t.max_lost <= 1));
        CHECK(t.cut > 0 && t.used >= (1.0 - max_unused) * t.cut);
    }
}

// The time of a slice is that of all its pieces, of which the first ones pack for the others.
TEST(slices_take_what_was_measured_of_them)
{
    cpu p = s_usual;
    p.waver = 0.0;
    s_cpu = &p;
    s_load_ends_ns = 0;
    sumi_model* model = NULL;
    sumi_engine* engine = open_deadlines(&model);
    const host_rhythm rhythm = {0, 0.0};
    sumi_image_desc desc = sized_image(model, s_sizes[SIZES - 1], &s_plain);
    int32_t steps = 0, count = 0;
    for (int i = 0; i < 3; i++) run_job(engine, &desc, &rhythm, &steps);
    for (int e = 0; e < SUMI_PLAN_CACHE_SIZE; e++) {
        const sumi_plan_entry* entry = &engine->cache.entries[e];
        if (entry->model == NULL) continue;
        for (size_t i = 0; i < entry->plan.slice_count; i++) {
            const sumi_slice* slice = &entry->plan.slices[i];
            const double known = (double)entry->slice_us[entry->kind_first[i]],
                         takes = slice_us(&entry->plan, slice, false);
            CHECK(known >= 0.9 * takes - 5.0 && known <= 1.1 * takes + 5.0); // with the clock's own ticks
            count++;
        }
    }
    CHECK(count > 40);
    close_engine(engine);
}

TEST(deadlines_are_kept_on_a_steady_cpu) { check_hundred("steady", &s_usual, &s_plain, 0.25); }

TEST(deadlines_are_kept_beside_work_that_starts_and_stops)
{
    cpu p = s_usual;
    p.max_load = 2.0;
    check_hundred("changing load", &p, &s_plain, 0.25);
}

TEST(deadlines_are_kept_when_slices_are_interrupted)
{
    cpu p = s_usual;
    p.spike_share = 0.02;
    p.spike_us = 4000.0;
    check_hundred("interrupted", &p, &s_plain, 0.25);
}

// The decoder is made of convolutions, which no step has any of: nothing says how long they take before the first one.
TEST(deadlines_are_kept_where_guesses_are_wrong)
{
    cpu p = s_usual;
    p.conv = 1.5;
    check_hundred("slow convolutions", &p, &s_plain, 0.25);
    p.conv = 0.6;
    check_hundred("fast convolutions", &p, &s_plain, 0.25);
}

// Parts of the plan with two evaluations of the network at a time, and with one.
TEST(deadlines_are_kept_where_guidance_begins_and_ends)
{
    const wish w = {SUMI_SOLVER_DPMPP_2M, 3.0f, 0.2f, 0.7f, 0.0f};
    check_hundred("guided in between", &s_usual, &w, 0.25);
}

// Their steps are counted before the first one, and never again.
TEST(deadlines_are_kept_by_solvers_that_decide_once)
{
    const wish w = {.solver = SUMI_SOLVER_MIDPOINT};
    check_hundred("two evaluations a step", &s_usual, &w, 0.4);
}

// Evaluations that are reused take a small part of the time of whole ones. Jobs are measured as they are with the step
// cache, so twice that time can be less than what the same job takes without one.
TEST(deadlines_are_kept_by_jobs_that_reuse)
{
    wish w = {.solver = SUMI_SOLVER_EULER, .step_cache = 0.11f}; // one or two in a row
    check_hundred("some reused", &s_usual, &w, 0.25);
    w.step_cache = 1.0f; // three in a row
    check_hundred("most reused", &s_usual, &w, 0.25);
    cpu p = s_usual;
    p.max_load = 2.0;
    check_hundred("most reused, changing load", &p, &w, 0.45);
    w = (wish){SUMI_SOLVER_DPMPP_2M, 3.0f, 0.2f, 0.7f, 1.0f};
    check_hundred("most reused, guided in between", &s_usual, &w, 0.25);
    w = (wish){.solver = SUMI_SOLVER_MIDPOINT, .step_cache = 1.0f};
    check_hundred("most reused, two evaluations a step", &s_usual, &w, 0.4);
}

// What a job says of the time that is left, when such a job ran before.
TEST(the_time_left_counts_reused_evaluations)
{
    enum { MAX_POLLS = 4096 };
    static struct {
        double now, left;
    } s_polls[MAX_POLLS];
    cpu p = s_usual;
    p.waver = 0.0;
    s_cpu = &p;
    s_load_ends_ns = 0;
    s_random = 7;
    sumi_model* model = NULL;
    sumi_engine* engine = open_deadlines(&model);
    const host_rhythm rhythm = {0, 0.0};
    for (int i = 0; i < 3; i++) {
        const wish w = {.solver = i == 2 ? SUMI_SOLVER_MIDPOINT : SUMI_SOLVER_EULER,
                        .step_cache = i == 0 ? 0.11f : 1.0f};
        sumi_image_desc desc = sized_image(model, s_sizes[SIZES - 1], &w);
        int32_t steps = 0, count = 0, frames = 0;
        for (int j = 0; j < 2; j++) run_job(engine, &desc, &rhythm, &steps);
        sumi_job job;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        const double begin = 1e-9 * (double)fake_clock_now_ns();
        while (count_frame(&frames)) {
            sumi_engine_update(engine, 1);
            const sumi_job_status status = sumi_job_poll(engine, job);
            if (status.state >= SUMI_JOB_DONE) break;
            if (status.step < 1 || count == MAX_POLLS) continue;
            s_polls[count].now = 1e-9 * (double)fake_clock_now_ns();
            s_polls[count++].left = (double)status.seconds_left;
        }
        const double end = 1e-9 * (double)fake_clock_now_ns();
        double worst = 0.0;
        for (int k = 0; k < count; k++) {
            const double error = fabs(s_polls[k].left - (end - s_polls[k].now)) / (end - begin);
            worst = error > worst ? error : worst;
        }
        printf("  %d times; the worst is wrong by %.3f of the job's time\n", (int)count, worst);
        CHECK(count > 20 && worst < 0.1);
        sumi_job_discard(engine, job);
    }
    close_engine(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    fake_clock_begin(TICK_NS);
    RUN(slices_take_what_was_measured_of_them);
    RUN(deadlines_are_kept_on_a_steady_cpu);
    RUN(deadlines_are_kept_beside_work_that_starts_and_stops);
    RUN(deadlines_are_kept_when_slices_are_interrupted);
    RUN(deadlines_are_kept_where_guesses_are_wrong);
    RUN(deadlines_are_kept_where_guidance_begins_and_ends);
    RUN(deadlines_are_kept_by_solvers_that_decide_once);
    RUN(deadlines_are_kept_by_jobs_that_reuse);
    RUN(the_time_left_counts_reused_evaluations);
    TEST_END();
}
