// How long an update takes on the CPU, and what a job says of the time that is left, when nobody knows how long ops take
// before they have run: an op costs what the rates say of it times a factor that the test draws.
#include "fake_clock.h"
#include "simulated_cpu.h"

#define TICK_NS UINT64_C(1000)

static struct {
    uint32_t seed;    // of the factors
    double low, high; // between which they are drawn
    bool is_of_kind;  // drawn for a kind of op, not for every op
    double decoder;   // one more, for all ops of the decoder
} s_costs;

static double factor_of(const sumi_plan* plan, const sumi_op* op)
{
    const uint64_t place[2] = {s_costs.seed, s_costs.is_of_kind ? (uint64_t)op->kind : (uint64_t)(op - plan->ops)};
    const double share = (double)(hash_bytes(place, sizeof place) >> 40) / (double)(1u << 24);
    const bool decodes = plan->sections[op->section].kind == SUMI_SECTION_DECODE;
    return s_costs.low * pow(s_costs.high / s_costs.low, share) * (decodes ? s_costs.decoder : 1.0);
}

static struct {
    const sumi_op* op;
    int32_t range_end;
} s_latest; // what ran last

// What prepares an op reads and writes its weights, or its keys and values, beside the rest.
static sumi_result costly_run(sumi_runner* runner, const sumi_plan* plan, const sumi_slice* slice, int32_t counter,
                              sumi_error* error)
{
    (void)counter, (void)error;
    const sumi_rates rates = simulated_rates(runner);
    double us = 0.0;
    // The sums of an attention lie in scratch memory from piece to piece, and any other op overwrites them.
    const sumi_op* last_op = &plan->ops[slice->op_end - 1];
    CHECK(slice->op_end > slice->op_begin + 1 || slice->range_begin == 0
          || (s_latest.op == last_op && s_latest.range_end == slice->range_begin));
    s_latest.op = last_op, s_latest.range_end = slice->range_end;
    for (int32_t i = slice->op_begin; i < slice->op_end; i++) {
        const sumi_op* op = &plan->ops[i];
        const bool is_part = slice->op_end == slice->op_begin + 1;
        const int32_t begin = is_part ? slice->range_begin : 0, end = is_part ? slice->range_end : op->range_count,
                      preparing = op->preparing_count;
        const double own = (rows_before(op, end) - rows_before(op, begin)) / op->rows,
                     bytes = op->weight != NULL ? 8.0 * op->weight->rows * op->weight->cols : op->bytes,
                     prepared_us = preparing == 0
                                     ? 0.0
                                     : ((end < preparing ? end : preparing) - (begin < preparing ? begin : preparing))
                                           * bytes / rates.bytes_per_us / preparing;
        us += (own * (double)sumi_plan_predict_us(plan, op, &rates) + prepared_us) * factor_of(plan, op);
    }
    fake_clock_pass_ns((uint64_t)(us * 1e3));
    return SUMI_OK;
}

static sumi_image_desc image_of(sumi_model* model, int32_t size, int32_t steps)
{
    static const sumi_image_item s_barn = {.text = "a red barn on a hill", .seed = 3};
    sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
    desc.items = &s_barn;
    desc.item_count = 1;
    desc.width = desc.height = size;
    desc.step_count = steps;
    return desc;
}

// The longest time, in microseconds, by which an update exceeds its budget while an image is made. *out_mean: what an
// update takes on average.
static double longest_excess_us(sumi_engine* engine, const sumi_image_desc* desc, uint32_t budget_us, double* out_mean)
{
    sumi_job job;
    double excess_us = -1e9, sum_us = 0.0;
    int32_t updates = 0;
    CHECK_NUMBER(sumi_submit_images(engine, desc, &job), SUMI_OK);
    while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE && count_frame(&updates)) {
        const uint64_t begin_ns = fake_clock_now_ns();
        sumi_engine_update(engine, budget_us);
        const double us = 1e-3 * (double)(fake_clock_now_ns() - begin_ns);
        sum_us += us;
        if (us - budget_us > excess_us) excess_us = us - budget_us;
    }
    CHECK_NUMBER(sumi_job_poll(engine, job).result, SUMI_OK);
    sumi_job_discard(engine, job);
    *out_mean = sum_us / updates;
    return excess_us;
}

// The first image of a size and what is prepared for it are no exception.
TEST(no_update_exceeds_its_budget_by_more_than_one_and_a_half_slices)
{
    static const uint32_t s_slices_us[] = {2000, 1000}, s_budgets_us[] = {1000, 2000, 4000, 16000};
    static const int32_t s_sizes[] = {64, 256, 512};
    for (uint32_t seed = 1; seed <= 6 && t_errors == 0; seed++) {
        s_costs.seed = seed, s_costs.is_of_kind = false;
        s_costs.low = 0.3, s_costs.high = 5.0, s_costs.decoder = 1.0;
        const uint32_t slice_us = s_slices_us[seed % 2];
        sumi_model* model = NULL;
        sumi_engine* engine = open_simulated(costly_run, slice_us, &model);
        for (size_t s = 0; s < sizeof s_sizes / sizeof *s_sizes; s++) {
            for (size_t b = 0; b < sizeof s_budgets_us / sizeof *s_budgets_us; b++) {
                const sumi_image_desc desc = image_of(model, s_sizes[s], 3);
                double mean_us = 0.0;
                const double excess_us = longest_excess_us(engine, &desc, s_budgets_us[b], &mean_us);
                if (excess_us > 1.5 * slice_us || mean_us < 0.7 * s_budgets_us[b])
                    printf(
                        "  seed %u, %d pixels, updates of %u us, slices of %u us: %.0f us over, %.0f us on average\n",
                        (unsigned)seed, (int)s_sizes[s], (unsigned)s_budgets_us[b], (unsigned)slice_us, excess_us,
                        mean_us);
                CHECK(excess_us <= 1.5 * slice_us);
                CHECK(s_sizes[s] < 256 || mean_us >= 0.7 * s_budgets_us[b]); // budgets are used, too
            }
        }
        close_engine(engine);
    }
}

static bool is_in_probed_op(sumi_op_kind kind, int32_t range)
{
    return s_latest.op != NULL && s_latest.op->kind == kind && s_latest.range_end >= range
        && s_latest.range_end < s_latest.op->range_count;
}

// A job that is paused while the decoder's ops are probed, and one that is cancelled then, leave an op half done. It
// begins anew, because another job has used the memory.
TEST(an_op_that_was_left_half_done_begins_anew)
{
    static const sumi_op_kind s_kinds[] = {SUMI_OP_CONV, SUMI_OP_ATTENTION};
    for (int32_t c = 0; c < 4; c++) {
        const bool is_cancelled = c >= 2;
        s_costs.seed = 1, s_costs.low = s_costs.high = s_costs.decoder = 1.0;
        sumi_model* model = NULL;
        sumi_engine* engine = open_simulated(costly_run, 2000, &model);
        const sumi_image_desc desc = image_of(model, 1024, 1), other_desc = image_of(model, 256, 1);
        sumi_job job, other;
        int32_t frames = 0;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        s_latest.op = NULL;
        while (!is_in_probed_op(s_kinds[c % 2], 1) && count_frame(&frames)) sumi_engine_update(engine, 100);
        CHECK_NUMBER(sumi_job_poll(engine, job).stage, SUMI_STAGE_PREPARE);
        if (is_cancelled) {
            sumi_job_discard(engine, job);
        } else {
            CHECK_NUMBER(sumi_job_pause(engine, job, true), SUMI_OK);
        }
        CHECK_NUMBER(sumi_submit_images(engine, &other_desc, &other), SUMI_OK);
        while (sumi_job_poll(engine, other).state < SUMI_JOB_DONE && count_frame(&frames))
            sumi_engine_update(engine, 4000);
        sumi_job_discard(engine, other);
        if (is_cancelled) {
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        } else {
            CHECK_NUMBER(sumi_job_pause(engine, job, false), SUMI_OK);
        }
        while (sumi_job_poll(engine, job).state < SUMI_JOB_DONE && count_frame(&frames))
            sumi_engine_update(engine, 4000);
        CHECK_NUMBER(sumi_job_poll(engine, job).result, SUMI_OK);
        sumi_job_discard(engine, job);
        close_engine(engine);
    }
}

// Slices of whole ops when the host program wants no limit.
TEST(without_a_longest_slice_ops_are_whole)
{
    s_costs.seed = 1, s_costs.low = s_costs.high = s_costs.decoder = 1.0;
    sumi_model* model = NULL;
    sumi_engine* engine = open_simulated(costly_run, 0, &model);
    const sumi_image_desc desc = image_of(model, 256, 1);
    double mean_us;
    CHECK(longest_excess_us(engine, &desc, 500, &mean_us) > 500.0);
    close_engine(engine);
}

// Within a factor of 1.5 from a tenth of the progress on, whatever the decoder costs: no step tells anything about it.
TEST(the_time_left_is_right_before_anything_is_decoded)
{
    static const double s_decoders[] = {0.3, 1.0, 3.0, 10.0};
    static const int32_t s_sizes[] = {64, 256, 512}, s_steps[] = {1, 4, 20};
    for (size_t c = 0; c < sizeof s_decoders / sizeof *s_decoders; c++) {
        for (size_t k = 0; k < sizeof s_sizes / sizeof *s_sizes; k++) {
            s_costs.seed = (uint32_t)c, s_costs.is_of_kind = true;
            s_costs.low = 0.5, s_costs.high = 2.0, s_costs.decoder = s_decoders[c];
            sumi_model* model = NULL;
            sumi_engine* engine = open_simulated(costly_run, 2000, &model); // every first image knows nothing
            const sumi_image_desc desc = image_of(model, s_sizes[k], s_steps[k]);
            sumi_job job;
            int32_t frames = 0, count = 0;
            static struct {
                double now, left;
            } s_polls[MAX_FRAMES];
            CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
            while (count_frame(&frames)) {
                sumi_engine_update(engine, 4000);
                const sumi_job_status status = sumi_job_poll(engine, job);
                if (status.state >= SUMI_JOB_DONE) break;
                if (status.progress < 0.1f) continue;
                s_polls[count].now = 1e-9 * (double)fake_clock_now_ns();
                s_polls[count++].left = (double)status.seconds_left;
            }
            const double end = 1e-9 * (double)fake_clock_now_ns();
            double worst = 1.0;
            for (int32_t i = 0; i < count; i++) {
                // two updates, which a factor says nothing about
                const double left = end - s_polls[i].now, slack = 0.008,
                             ratio = fmax((s_polls[i].left - slack) / left, (left - slack) / s_polls[i].left);
                worst = ratio > worst ? ratio : worst;
            }
            if (worst > 1.5)
                printf("  a decoder that costs %.1f times the guess, %d pixels, %d steps: wrong by a factor of %.2f\n",
                       s_decoders[c], (int)s_sizes[k], (int)s_steps[k], worst);
            CHECK(count > 0 && worst <= 1.5);
            sumi_job_discard(engine, job);
            close_engine(engine);
        }
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    fake_clock_begin(TICK_NS);
    RUN(no_update_exceeds_its_budget_by_more_than_one_and_a_half_slices);
    RUN(an_op_that_was_left_half_done_begins_anew);
    RUN(without_a_longest_slice_ops_are_whole);
    RUN(the_time_left_is_right_before_anything_is_decoded);
    TEST_END();
}
