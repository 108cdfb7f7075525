// Texts of a megabyte are tokenised in turns of a bounded amount of work: updates keep their budget, and cancels, pauses
// and closed models take effect in the middle of a text.
#include "at_once.h"
#include "engine_fixture.h"
#include "fake_clock.h"
#include "jobs/engine_state.h"
#include "jobs/objects.h"
#include "models/prompt_reader.h"

enum { TEXT_BYTES = 1000 * 1000 };

#define TICK_NS UINT64_C(1000)
#define MAX_TURN_WORK UINT64_C(90000) // TEXT_WORK of job_phases.c, and what a step exceeds it by
#define WORK_NS UINT64_C(3)           // of one unit, on the fake clock

static const char* const s_models[] = {MODEL_PATH, "tests/golden/newbie/model", "samples/demo_model"};

// Texts without a place where they can be cut, so that all of them is read; and one of which the begin suffices.
static const char* const s_patterns[] = {"the", " ", "\xCC\x81\xCC\xA3", "\xF0\x9F", "a red fox in the snow. "};

static char* text_of(const char* pattern, size_t bytes)
{
    char* text = malloc(bytes + 1);
    const size_t length = strlen(pattern);
    for (size_t i = 0; i < bytes; i++) text[i] = pattern[i % length];
    text[bytes] = '\0';
    return text;
}

static struct {
    sumi_engine* engine;
    uint64_t seen, longest; // work of the text so far; of a turn
    int32_t turns;
} s_trace;

static uint64_t work_of(const sumi_engine* engine)
{
    return engine->workspace.reader != NULL ? sumi_prompt_reader_work(engine->workspace.reader) : 0;
}

// Lets the time pass that a turn of tokenising takes.
static void pass_turn(const sumi_trace_span* span, void* user_data)
{
    (void)user_data;
    if (strcmp(span->name, "tokens") != 0) return;
    const uint64_t now = work_of(s_trace.engine), work = now >= s_trace.seen ? now - s_trace.seen : now;
    s_trace.seen = now;
    s_trace.longest = work > s_trace.longest ? work : s_trace.longest;
    s_trace.turns++;
    fake_clock_pass_ns(work * WORK_NS);
}

static sumi_engine* open_traced(host* h, const char* path, sumi_model** out_model)
{
    memset(h, 0, sizeof *h);
    sumi_engine_desc desc = host_desc(h);
    desc.tracer = &(sumi_tracer){pass_turn, NULL};
    memset(&s_trace, 0, sizeof s_trace);
    s_trace.engine = open_engine(&desc, NULL);
    *out_model = load_model_at(s_trace.engine, path);
    CHECK(*out_model != NULL);
    return s_trace.engine;
}

static sumi_job submit_text(sumi_engine* engine, sumi_model* model, const char* text)
{
    sumi_prompt_desc desc = sumi_prompt_defaults(model);
    desc.text = text;
    sumi_job job = {0};
    CHECK_NUMBER(sumi_submit_prompt(engine, &desc, &job), SUMI_OK);
    return job;
}

static bool is_reading(const sumi_engine* engine)
{
    return engine->jobs.running != NULL && engine->jobs.running->u.plan_job.progress.is_reading;
}

// Updates until the job is in the middle of its text.
static void update_into_text(sumi_engine* engine)
{
    int32_t frames = 0;
    do sumi_engine_update(engine, 100);
    while (!(is_reading(engine) && work_of(engine) > 100000) && count_frame(&frames));
    CHECK(is_reading(engine));
}

static uint64_t hash_of_text(sumi_engine* engine, sumi_model* model, const char* text)
{
    sumi_prompt* prompt = encode_prompt(engine, model, text);
    const sumi_prompt_encoder features = sumi_prompt_get_info(prompt).encoders[0];
    const uint64_t hash =
        hash_bytes(features.features, (size_t)features.token_count * (size_t)features.width * sizeof(float));
    sumi_prompt_release(prompt);
    return hash;
}

// ---- Budgets --------------------------------------------------------------------------------------------------------

TEST(no_update_reads_much_more_of_a_text_than_its_budget_allows)
{
    for (size_t m = 0; m < sizeof s_models / sizeof *s_models; m++) {
        host h;
        sumi_model* model = NULL;
        sumi_engine* engine = open_traced(&h, s_models[m], &model);
        int32_t turns = 0;
        for (size_t k = 0; k < sizeof s_patterns / sizeof *s_patterns; k++) {
            char* text = text_of(s_patterns[k], TEXT_BYTES);
            const sumi_job job = submit_text(engine, model, text);
            int32_t frames = 0;
            free(text); // the job has a copy
            while (sumi_job_poll(engine, job).stage < SUMI_STAGE_TEXT && count_frame(&frames)) {
                const uint64_t begin_ns = fake_clock_now_ns(), longest_ns = MAX_TURN_WORK * WORK_NS;
                const bool reads = is_reading(engine);
                sumi_engine_update(engine, 1000);
                // what remains is a turn that was predicted by the ones before it
                if (reads && is_reading(engine)) CHECK(fake_clock_now_ns() - begin_ns <= 1000000 + longest_ns);
            }
            turns += s_trace.turns;
            s_trace.turns = 0;
            CHECK(s_trace.longest <= MAX_TURN_WORK);
            sumi_job_discard(engine, job);
            while (engine->jobs.running != NULL && count_frame(&frames)) sumi_engine_update(engine, 1000);
        }
        printf("  %s: the longest of %d turns did %llu of work\n", s_models[m], (int)turns,
               (unsigned long long)s_trace.longest);
        CHECK(turns > 40);
        close_engine(engine);
        CHECK_NUMBER(atomic_load(&h.live), 0);
    }
}

static void listen(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result;
    if (level == SUMI_LOG_WARNING) snprintf(user_data, 256, "%s", text);
}

// A text of a megabyte is read as far as the model reads, and no further.
TEST(tokens_beyond_what_the_model_reads_are_counted_to_1024)
{
    static char s_heard[256];
    host h = {0};
    sumi_engine_desc desc = host_desc(&h);
    desc.log = (sumi_log){listen, s_heard};
    sumi_model* model = NULL;
    sumi_engine* engine = open_engine(&desc, &model);
    char* text = text_of("a red fox in the snow. ", TEXT_BYTES);
    const sumi_job job = submit_text(engine, model, text);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    CHECK_NUMBER(sumi_job_poll(engine, job).cut_tokens, SUMI_MAX_CUT_TOKENS);
    CHECK(strstr(s_heard, "1024 or more tokens") != NULL);
    CHECK(work_of(engine) < 200000); // of which a megabyte takes 30 million
    sumi_job_discard(engine, job);
    text[6000] = '\0'; // the same begin has the same features
    const uint64_t shorter = hash_of_text(engine, model, text);
    text[6000] = 'a';
    CHECK_NUMBER(hash_of_text(engine, model, text), shorter);
    free(text);
    close_engine(engine);
    CHECK_NUMBER(atomic_load(&h.live), 0);
}

// The opening words of NewBie, which the second encoder skips, end at a mark that may be anywhere in a text.
TEST(the_mark_of_opening_words_is_found_anywhere_in_a_text)
{
    static const char s_mark[] = "<Prompt Start>";
    host h = {0};
    sumi_engine_desc desc = host_desc(&h);
    sumi_engine* engine = open_engine(&desc, NULL);
    sumi_model* model = load_model_at(engine, "tests/golden/newbie/model");
    static int32_t s_want[512], s_got[512];
    int32_t want_count = 0, count = 0;
    CHECK_NUMBER(read_prompt(model->network, 1, &(sumi_prompt_text){.text = "a fox", .bytes = 5},
                             &(sumi_prompt_ids){s_want, 512, NULL}, &want_count, NULL),
                 SUMI_OK);
    char* text = text_of("<<Prompt ", 20000); // the mark's begin, many times
    for (size_t at = 1; at<17000; at += at> 8150 && at < 8200 ? 1 : 811) {
        char saved[64];
        const size_t bytes = sizeof s_mark - 1 + 5;
        memcpy(saved, text + at, bytes);
        memcpy(text + at, s_mark, sizeof s_mark - 1);
        memcpy(text + at + sizeof s_mark - 1, "a fox", 5);
        CHECK_NUMBER(read_prompt(model->network, 1, &(sumi_prompt_text){.text = text, .bytes = at + bytes},
                                 &(sumi_prompt_ids){s_got, 512, NULL}, &count, NULL),
                     SUMI_OK);
        CHECK(count == want_count && memcmp(s_got, s_want, (size_t)count * sizeof *s_got) == 0);
        memcpy(text + at, saved, bytes);
    }
    free(text);
    close_engine(engine);
    CHECK_NUMBER(atomic_load(&h.live), 0);
}

// ---- In the middle of a text ----------------------------------------------------------------------------------------

TEST(a_cancel_in_the_middle_of_a_text_works_in_the_next_update)
{
    for (size_t m = 0; m < sizeof s_models / sizeof *s_models; m++) {
        host h;
        sumi_model* model = NULL;
        sumi_engine* engine = open_traced(&h, s_models[m], &model);
        char* text = text_of(m == 2 ? "\xCC\x81\xCC\xA3" : "the", TEXT_BYTES);
        const uint64_t hash = hash_of_text(engine, model, "a fox");
        for (uint32_t budget_us = 0; budget_us <= 100; budget_us += 100) {
            const sumi_job job = submit_text(engine, model, text);
            update_into_text(engine);
            CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_RUNNING);
            CHECK_NUMBER(sumi_job_poll(engine, job).stage, SUMI_STAGE_PREPARE);
            sumi_job_cancel(engine, job);
            sumi_engine_update(engine, budget_us);
            CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_CANCELLED);
            sumi_job_discard(engine, job);
            CHECK_NUMBER(hash_of_text(engine, model, "a fox"), hash);
        }
        free(text);
        close_engine(engine);
        CHECK_NUMBER(atomic_load(&h.live), 0);
    }
}

TEST(a_paused_text_begins_anew_and_gives_the_same_ids)
{
    host h;
    sumi_model* model = NULL;
    sumi_engine* engine = open_traced(&h, MODEL_PATH, &model);
    char* text = text_of("the", TEXT_BYTES / 4);
    const uint64_t hash = hash_of_text(engine, model, text), other = hash_of_text(engine, model, "a fox");
    const sumi_job job = submit_text(engine, model, text);
    update_into_text(engine);
    CHECK_NUMBER(sumi_job_pause(engine, job, true), SUMI_OK);
    sumi_engine_update(engine, 100);
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_QUEUED);
    CHECK_NUMBER(hash_of_text(engine, model, "a fox"), other); // uses the reader, and the memory for ids
    CHECK_NUMBER(sumi_job_pause(engine, job, false), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    sumi_prompt* prompt = NULL;
    CHECK_NUMBER(sumi_fetch_prompt(engine, job, &prompt), SUMI_OK);
    const sumi_prompt_encoder features = sumi_prompt_get_info(prompt).encoders[0];
    CHECK_NUMBER(hash_bytes(features.features, (size_t)features.token_count * (size_t)features.width * sizeof(float)),
                 hash);
    sumi_prompt_release(prompt);
    free(text);
    close_engine(engine);
    CHECK_NUMBER(atomic_load(&h.live), 0);
}

TEST(a_model_can_be_closed_in_the_middle_of_a_text)
{
    host h;
    sumi_model* model = NULL;
    sumi_engine* engine = open_traced(&h, MODEL_PATH, &model);
    char* text = text_of("the", TEXT_BYTES);
    const sumi_job job = submit_text(engine, model, text);
    update_into_text(engine);
    sumi_model_close(model);
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_CANCELLED);
    sumi_job_discard(engine, job);
    model = load_model(engine);
    (void)hash_of_text(engine, model, "a fox");
    const sumi_job left = submit_text(engine, model, text); // and an engine can be destroyed
    update_into_text(engine);
    (void)left;
    free(text);
    close_engine(engine);
    CHECK_NUMBER(atomic_load(&h.live), 0);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

TEST(memory_may_run_out_in_the_middle_of_a_text)
{
    host h;
    sumi_model* model = NULL;
    sumi_engine* engine = open_traced(&h, MODEL_PATH, &model);
    char* text = text_of("the", TEXT_BYTES / 10);
    const uint64_t hash = hash_of_text(engine, model, text), other = hash_of_text(engine, model, "a fox");
    int32_t failed = 0;
    for (long long n = 1; n < 400; n += n < 20 ? 1 : 17) {
        const sumi_job job = submit_text(engine, model, text);
        atomic_store(&h.fail_at, atomic_load(&h.count) + n);
        CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
        atomic_store(&h.fail_at, 0);
        const sumi_job_status status = sumi_job_poll(engine, job);
        CHECK(status.result == SUMI_OK || status.result == SUMI_OUT_OF_HOST_MEMORY);
        CHECK(status.result == SUMI_OK || status.message[0] != '\0');
        failed += status.result != SUMI_OK;
        sumi_job_discard(engine, job);
        CHECK_NUMBER(hash_of_text(engine, model, "a fox"), other);
    }
    CHECK(failed > 10);
    CHECK_NUMBER(hash_of_text(engine, model, text), hash);
    free(text);
    close_engine(engine);
    CHECK_NUMBER(atomic_load(&h.live), 0);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    fake_clock_begin(TICK_NS);
    RUN(no_update_reads_much_more_of_a_text_than_its_budget_allows);
    RUN(tokens_beyond_what_the_model_reads_are_counted_to_1024);
    RUN(the_mark_of_opening_words_is_found_anywhere_in_a_text);
    RUN(a_cancel_in_the_middle_of_a_text_works_in_the_next_update);
    RUN(a_paused_text_begins_anew_and_gives_the_same_ids);
    RUN(a_model_can_be_closed_in_the_middle_of_a_text);
    RUN(memory_may_run_out_in_the_middle_of_a_text);
    TEST_END();
}
