// What holds for the jobs of every family of models (families.h): their memory is known, they may be cancelled and
// paused at any moment, and every allocation may fail. That pictures have the same bits is in test_families.c.
#include "family_fixture.h"
#include "pause_fixture.h"

static const sumi_image_item s_pair[2] = {{.text = "a red fox", .negative_text = "blurry", .seed = 1},
                                          {.text = "", .negative_text = "grey", .seed = 2}};

// Two pictures with a start image, with references where there may be some, and with previews: most of what a job can
// have.
static sumi_image_desc rich_family_image(sumi_model* model)
{
    sumi_image_desc desc = family_image(model, s_pair);
    desc.item_count = 2;
    desc.width = 32;
    desc.preview_every = 1;
    use_references(&desc, most_pictures());
    desc.start.image = &family_pictures()[1];
    desc.start.strength = 1.0f;
    return desc;
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

TEST(memory_is_known_beforehand_and_a_warm_job_takes_none)
{
    OPEN_FAMILY(engine, model);
    sumi_image_desc desc = rich_family_image(model);
    sumi_memory memory, bare;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &memory), SUMI_OK);
    CHECK_NUMBER(memory.weights, sumi_model_get_info(model).weight_bytes);
    CHECK(memory.arena > 0 && memory.staging > 0 && memory.images > 0);
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    const sumi_engine_info after = sumi_engine_get_info(engine);
    CHECK_NUMBER(after.held_bytes[SUMI_MEMORY_ARENA], memory.arena);
    CHECK_NUMBER(after.held_bytes[SUMI_MEMORY_STAGING], memory.staging);
    CHECK_NUMBER(after.held_bytes[SUMI_MEMORY_IMAGE], memory.images);
    CHECK_NUMBER(after.host_bytes, s_host.live_bytes);
    const uint64_t first = fetch_hash(engine, job, &desc);
    const long long count = s_host.count;
    CHECK(first != 0 && draw_hash(engine, &desc) == first);
    CHECK_NUMBER(s_host.count, count);
    // a budget of exactly this suffices, and changes no bits
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, memory.arena + memory.staging), SUMI_OK);
    CHECK(draw_hash(engine, &desc) == first);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 1000), SUMI_OK);
    sumi_image images[2];
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &bare), SUMI_BUDGET_TOO_SMALL);
    CHECK_NUMBER(draw(engine, &desc, images), SUMI_BUDGET_TOO_SMALL);
    CHECK_NUMBER(sumi_engine_set_memory_budget(engine, 0), SUMI_OK);
    CHECK(draw_hash(engine, &desc) == first);
    // what there is less of takes less
    use_references(&desc, s_family->min_references);
    desc.item_count = 1;
    CHECK_NUMBER(sumi_image_memory(engine, &desc, &bare), SUMI_OK);
    CHECK(bare.arena < memory.arena && bare.images < memory.images);
    close_engine(engine);
}

// ---- Moments of a job -----------------------------------------------------------------------------------------------

// When each stage of a job begins, and how long it takes, in the smallest updates.
typedef struct stage_updates {
    int begin, count;
} stage_updates;

// Runs a job to its end, and discards it. Returns all its updates.
static int measure_stages(sumi_engine* engine, sumi_job job, stage_updates stages[SUMI_STAGE_COUNT])
{
    int updates = 0;
    sumi_job_status status;
    memset(stages, 0, SUMI_STAGE_COUNT * sizeof *stages);
    for (; (status = sumi_job_poll(engine, job)).state < SUMI_JOB_DONE && updates < MAX_FRAMES; updates++) {
        if (stages[status.stage].count++ == 0) stages[status.stage].begin = updates;
        sumi_engine_update(engine, 1);
    }
    CHECK_NUMBER(status.state, SUMI_JOB_DONE);
    sumi_job_discard(engine, job);
    return updates;
}

// Of the updates of a job: the begin and the middle of every stage, and some evenly apart. Of one network,
// test_engine_faults.c and test_engine_pause.c take nearly every one.
enum { EVEN_MOMENTS = 6, MOST_MOMENTS = EVEN_MOMENTS + 2 * SUMI_STAGE_COUNT };
static int choose_moments(const stage_updates stages[SUMI_STAGE_COUNT], int updates, int out_moments[MOST_MOMENTS])
{
    int count = 0;
    for (int i = 0; i < EVEN_MOMENTS; i++) out_moments[count++] = updates * i / (EVEN_MOMENTS - 1);
    for (int stage = 0; stage < SUMI_STAGE_COUNT; stage++) {
        if (stages[stage].count == 0) continue;
        out_moments[count++] = stages[stage].begin;
        out_moments[count++] = stages[stage].begin + stages[stage].count / 2;
    }
    return count;
}

TEST(a_job_can_be_cancelled_at_any_moment)
{
    OPEN_FAMILY_WITH(100, engine, model);
    sumi_image_desc desc = rich_family_image(model);
    const uint64_t whole = draw_hash(engine, &desc);
    const sumi_prompt_desc pd = prompt_of(&desc, "a red fox");
    CHECK(whole != 0);
    for (int kind = 0; kind < 2; kind++) {
        bool seen[SUMI_STAGE_COUNT] = {false};
        stage_updates stages[SUMI_STAGE_COUNT];
        int moments[MOST_MOMENTS], count = 0;
        for (int i = -1; i < count && t_errors == 0; i++) {
            sumi_job job;
            CHECK_NUMBER(kind == 0 ? sumi_submit_images(engine, &desc, &job) : sumi_submit_prompt(engine, &pd, &job),
                         SUMI_OK);
            if (i < 0) {
                const int updates = measure_stages(engine, job, stages);
                count = choose_moments(stages, updates, moments);
                continue;
            }
            for (int k = 0; k < moments[i]; k++) sumi_engine_update(engine, 1);
            seen[sumi_job_poll(engine, job).stage] = true;
            give_up(engine, job, i % 4 != 3);
            CHECK_NUMBER(sumi_engine_get_info(engine).job_count, 0);
        }
        CHECK(seen[SUMI_STAGE_WAIT] && seen[SUMI_STAGE_PREPARE] && seen[SUMI_STAGE_TEXT]);
        if (kind == 0) CHECK(seen[SUMI_STAGE_IMAGE] && seen[SUMI_STAGE_DENOISE] && seen[SUMI_STAGE_DECODE]);
    }
    CHECK(draw_hash(engine, &desc) == whole); // the model is as before
    close_engine(engine);
}

// In the middle of every stage, while another picture is drawn.
TEST(a_job_paused_at_any_moment_keeps_its_bits)
{
    OPEN_FAMILY_WITH(100, engine, model);
    sumi_image_desc desc = rich_family_image(model), other = family_image(model, s_pair);
    desc.step_count = 4;
    other.step_count = 1;
    other.width = other.height = sumi_model_get_info(model).size_multiple;
    encoded_item fox = encode_item(engine, &other);
    other.items = &fox.item;
    const uint64_t want = draw_hash(engine, &desc), want_other = draw_hash(engine, &other);
    CHECK(want != 0 && want_other != 0);
    stage_updates stages[SUMI_STAGE_COUNT];
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    measure_stages(engine, job, stages);
    const paused_drawing drawing = {engine, &desc, &other, want, want_other};
    int kept = 0;
    for (int stage = SUMI_STAGE_TEXT; stage < SUMI_STAGE_COUNT && t_errors == 0; stage++) {
        if (stages[stage].count > 0) draw_with_pause(&drawing, stages[stage].begin + stages[stage].count / 2, &kept);
    }
    CHECK(kept > 0);
    release_item(&fox);
    close_engine(engine);
}

// ---- Every allocation -----------------------------------------------------------------------------------------------

static bool is_expected(sumi_result result) { return result == SUMI_OK || result == SUMI_OUT_OF_HOST_MEMORY; }

// Waits for a job. False: no memory for it, or for what it makes.
static bool has_ended(sumi_engine* engine, sumi_result submitted, sumi_job job)
{
    CHECK(is_expected(submitted));
    if (submitted != SUMI_OK) return false;
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    return true;
}

static bool has_loaded(sumi_engine* engine, sumi_model** out_model)
{
    const sumi_model_desc desc = family_desc(s_family);
    sumi_job job;
    if (has_ended(engine, sumi_submit_model(engine, &desc, &job), job))
        CHECK(is_expected(sumi_fetch_model(engine, job, out_model)));
    return adapt_family(s_family, *out_model) != NULL;
}

// A prompt that is saved and loaded, an adapter, a batch of a text and a handle, with references where they may be.
// Ends at the first failure.
static void use_model(sumi_engine* engine, sumi_model* model)
{
    sumi_prompt *prompt = NULL, *loaded = NULL;
    sumi_lora* lora = NULL;
    sumi_image_desc desc = rich_family_image(model);
    desc.width = desc.height = sumi_model_get_info(model).size_multiple;
    desc.step_count = 1;
    const sumi_prompt_desc pd = prompt_of(&desc, "a red fox");
    sumi_job job;
    if (has_ended(engine, sumi_submit_prompt(engine, &pd, &job), job))
        CHECK(is_expected(sumi_fetch_prompt(engine, job, &prompt)));
    if (prompt != NULL) {
        size_t bytes;
        void* saved = save_prompt(prompt, &bytes);
        CHECK(is_expected(sumi_prompt_load(model, saved, bytes, &loaded)));
        free(saved);
    }
    sumi_lora_desc ld = sumi_lora_defaults(model);
    ld.path = s_family->adapters[0];
    if (loaded != NULL && has_ended(engine, sumi_submit_lora(engine, &ld, &job), job))
        CHECK(is_expected(sumi_fetch_lora(engine, job, &lora)));
    if (lora != NULL) {
        const sumi_lora_use use = {.lora = lora, .scale = 0.5f};
        const sumi_image_item items[2] = {{.text = "a red fox", .seed = 1}, {.prompt = loaded}};
        sumi_memory memory;
        sumi_image images[2];
        desc.items = items;
        desc.loras = &use;
        desc.lora_count = 1;
        sumi_result result = sumi_image_memory(engine, &desc, &memory);
        CHECK(is_expected(result));
        if (result == SUMI_OK) result = draw(engine, &desc, images);
        CHECK(is_expected(result));
        if (result == SUMI_OK) sumi_images_release(engine, images, 2);
    }
    sumi_lora_release(lora);
    sumi_prompt_release(prompt);
    sumi_prompt_release(loaded);
}

// Of those of a job every fifth one, beginning elsewhere in each family, and of the hundreds of opening its files two
// dozen. test_engine_faults.c lets every single one fail.
TEST(the_nth_allocation_may_fail)
{
    long long n = 0, files = 0;
    int failures = -1; // the first time none does
    for (bool has_failed = true; has_failed && t_errors == 0; failures++) {
        sumi_engine* engine = fresh_engine_with(2000, NULL);
        const long long before = atomic_load(&s_host.count);
        sumi_model* model = NULL;
        CHECK(engine != NULL);
        if (engine == NULL) return;
        if (n > 0) atomic_store(&s_host.fail_at, before + n);
        if (!has_loaded(engine, &model)) CHECK(n > 0 && has_loaded(engine, &model)); // the second attempt works
        if (n == 0) files = atomic_load(&s_host.count) - before;
        if (n > files && model != NULL) use_model(engine, model);
        has_failed = n <= files || atomic_load(&s_host.count) >= before + n;
        close_engine(engine);
        if (n > files) n += 5;
        else if (n + 1 + files / 24 <= files) n += 1 + files / 24;
        else n = files + 1 + (s_family - s_families) % 5;
    }
    printf("  %s: %d allocations failed, one after the other\n", s_family->name, failures);
    CHECK(failures > 50);
}

// An edit model that needs a reference runs less code than the one that takes several. Of networks with a variant that
// keeps references, the variant: its jobs have what those of the others have, and what is kept.
static bool has_most(void)
{
    if (s_family->keeps_references) return true;
    for (const family_row* row = s_families; row < s_families + FAMILY_COUNT; row++)
        if (row->keeps_references && strcmp(row->tiny.path, s_family->tiny.path) == 0) return false;
    return !s_family->is_variant && s_family->min_references == 0;
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN_FOR_NETWORKS(memory_is_known_beforehand_and_a_warm_job_takes_none);
    RUN_FOR_NETWORKS(a_job_can_be_cancelled_at_any_moment);
    RUN_FOR_ROWS(a_job_paused_at_any_moment_keeps_its_bits, has_most());
    RUN_FOR_ROWS(the_nth_allocation_may_fail, has_most());
    TEST_END();
}
