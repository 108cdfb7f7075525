// What plans of jobs promise: the same bits for a batch, slices and previews; inpainting, tiles, prompts. The numbers
// of every stage are golden_run's business; here is what golden data does not show.
#include "at_once.h"
#include "models/network_state.h"
#include "models/pipeline.h"
#include "network_fixture.h"
#include "plan/validate.h"

// Two prompts with guidance in one job are the two jobs one by one, and slices do not change a bit.
TEST(batch_equals_single_jobs_and_slices_change_nothing)
{
    scene* s = open_scene();
    if (s->network == NULL) {
        close_scene(s);
        return;
    }
    const size_t size = 16 * 6 * 8;
    sumi_error error = {0};
    sumi_pipeline_prompt prompts[3] = {
        {.token_count = {s->counts[0]}}, {.token_count = {s->counts[1]}}, {.token_count = {s->counts[2]}}};
    sumi_pipeline_item items[3] = {{0, 2}, {1, 2}, {0, 2}};
    job j = {.r = {.prompts = prompts, .prompt_count = 3, .items = items, .item_count = 3, .width = 64, .height = 48},
             .ids = (const int32_t(*)[512])s->ids,
             .noise = s->noise};
    set_schedule(&j, s->network, SUMI_SOLVER_EULER, 4, 3.0f);
    j.guided[1] = j.guided[3] = false; // sections with and without take turns
    j.rows[1].guidance = j.rows[3].guidance = 0;
    uint8_t *bytes = NULL, *sliced_bytes = NULL;
    float *all = run_job(s->network, &j, 0, &bytes, &error),
          *sliced = run_job(s->network, &j, 3, &sliced_bytes, &error);
    CHECK(all != NULL && sliced != NULL && memcmp(all, sliced, 3 * size * sizeof *all) == 0);
    CHECK(bytes != NULL && sliced_bytes != NULL && memcmp(bytes, sliced_bytes, 3 * 64 * 48 * 3) == 0);
    for (int32_t i = 0; i < 3 && all != NULL; i++) {
        job one = j;
        int32_t single_ids[2][512];
        sumi_pipeline_prompt pair[2] = {prompts[items[i].positive], prompts[items[i].negative]};
        sumi_pipeline_item item = {0, 1};
        memcpy(single_ids[0], s->ids[items[i].positive], sizeof single_ids[0]);
        memcpy(single_ids[1], s->ids[items[i].negative], sizeof single_ids[1]);
        one.r.prompts = pair;
        one.r.prompt_count = 2;
        one.r.items = &item;
        one.r.item_count = 1;
        one.r.guided = one.guided;
        one.ids = (const int32_t(*)[512])single_ids;
        one.noise = s->noise + (size_t)i * size;
        float* x = run_job(s->network, &one, 0, NULL, &error);
        CHECK(x != NULL);
        if (x != NULL) CHECK(distance(all + (size_t)i * size, x, size) < 1e-5);
        free(x);
    }
    if (error.result != SUMI_OK) printf("  %s\n", error.text);
    free(all);
    free(sliced);
    free(bytes);
    free(sliced_bytes);
    close_scene(s);
}

// With alternatives that never run nothing changes. Reused evaluations come near to the whole ones, slices change no
// bit of them, and guided evaluations keep residuals of their own.
TEST(evaluations_reuse_the_residual_of_earlier_ones)
{
    static const bool s_none[12] = {false}, s_some[12] = {[2] = true, [4] = true, [5] = true, [10] = true};
    static const sumi_solver s_solvers[] = {SUMI_SOLVER_EULER, SUMI_SOLVER_DPMPP_2M};
    scene* s = open_scene();
    const size_t size = 16 * 6 * 8;
    sumi_error error = {0};
    sumi_pipeline_prompt prompts[2] = {{.token_count = {s->counts[0]}}, {.token_count = {s->counts[1]}}};
    sumi_pipeline_item item = {0, 1};
    for (int i = 0; i < 4 && s->network != NULL; i++) {
        job j = {
            .r = {.prompts = prompts, .prompt_count = 2, .items = &item, .item_count = 1, .width = 64, .height = 48},
            .ids = (const int32_t(*)[512])s->ids,
            .noise = s->noise};
        set_schedule(&j, s->network, s_solvers[i / 2], 12, 3.0f);
        // With such short steps an evaluation is nearly the one before it.
        float sigmas[13];
        for (int32_t e = 0; e <= 12; e++) sigmas[e] = 0.7f - 2e-5f * (float)e;
        CHECK_NUMBER(sumi_solver_rows(s_solvers[i / 2], sigmas, 12, j.rows), 12);
        for (int32_t e = 0; e < 12; e++) {
            j.rows[e].guidance = 3.0f;
            j.times[e] = sumi_network_time(s->network, j.rows[e].sigma);
        }
        // guided 0..7, not guided 8..11: two sections with alternatives
        for (int32_t e = 8; e < 12 && i % 2 == 1; e++) {
            j.guided[e] = false;
            j.rows[e].guidance = 0.0f;
        }
        float* plain = run_job(s->network, &j, 0, NULL, &error);
        j.r.caches_steps = true;
        j.reused = s_none;
        float* whole = run_job(s->network, &j, 0, NULL, &error);
        j.reused = s_some;
        float *reused = run_job(s->network, &j, 0, NULL, &error), *sliced = run_job(s->network, &j, 3, NULL, &error);
        CHECK(plain != NULL && whole != NULL && reused != NULL && sliced != NULL);
        if (plain != NULL && whole != NULL && reused != NULL && sliced != NULL) {
            CHECK(memcmp(plain, whole, size * sizeof *plain) == 0);
            CHECK(memcmp(reused, sliced, size * sizeof *plain) == 0);
            double steps = 0.0, difference = 0.0;
            for (size_t k = 0; k < size; k++) {
                steps += fabs((double)plain[k] - (double)s->noise[k]);
                difference += fabs((double)plain[k] - (double)reused[k]);
            }
            printf("  solver %d, %s: reused evaluations change the steps by %.2g\n", i / 2,
                   i % 2 == 1 ? "guided in part" : "guided", difference / steps);
            CHECK(difference > 0.0 && difference < 0.004 * steps);
        }
        free(plain), free(whole), free(reused), free(sliced);
    }
    if (error.result != SUMI_OK) printf("  %s\n", error.text);
    close_scene(s);
}

// Every solver runs, and previews do not touch the result.
TEST(solvers_run_and_previews_change_nothing)
{
    static const sumi_solver s_solvers[] = {SUMI_SOLVER_EULER,        SUMI_SOLVER_HEUN,      SUMI_SOLVER_MIDPOINT,
                                            SUMI_SOLVER_DPMPP_2M,     SUMI_SOLVER_HEUN_FULL, SUMI_SOLVER_RK4,
                                            SUMI_SOLVER_RES_MULTISTEP};
    scene* s = open_scene();
    sumi_error error = {0};
    sumi_pipeline_prompt prompt = {.token_count = {s->counts[1]}};
    sumi_pipeline_item item = {0, -1};
    for (size_t i = 0; i < sizeof s_solvers / sizeof *s_solvers && s->network != NULL; i++) {
        job j = {
            .r = {.prompts = &prompt, .prompt_count = 1, .items = &item, .item_count = 1, .width = 64, .height = 48},
            .ids = (const int32_t(*)[512])(s->ids + 1),
            .noise = s->noise};
        set_schedule(&j, s->network, s_solvers[i], 5, 0);
        float* plain = run_job(s->network, &j, 0, NULL, &error);
        j.r.previews = true;
        float* shown = run_job(s->network, &j, 0, NULL, &error);
        CHECK(plain != NULL && shown != NULL);
        if (plain != NULL && shown != NULL) {
            CHECK(memcmp(plain, shown, 16 * 6 * 8 * sizeof *plain) == 0);
            for (size_t k = 0; k < 16 * 6 * 8; k++) CHECK(isfinite(plain[k]));
        }
        free(plain);
        free(shown);
    }
    if (error.result != SUMI_OK) printf("  %s\n", error.text);
    close_scene(s);
}

// Outside the mask an inpainted latent ends as the encoded start image; two items with the mode share one encoding.
TEST(inpainting_keeps_what_is_not_masked)
{
    scene* s = open_scene();
    static uint8_t s_pixels[48 * 64 * 3];
    static float s_mask[6 * 8];
    for (size_t i = 0; i < sizeof s_pixels; i++) s_pixels[i] = (uint8_t)(i * 13 % 251);
    for (size_t i = 0; i < 48; i++) s_mask[i] = i % 8 < 4 ? 1.0f : 0.0f;
    sumi_error error = {0};
    sumi_pipeline_prompt prompt = {.token_count = {s->counts[1]}};
    sumi_pipeline_item items[2] = {{0, -1}, {0, -1}};
    job j = {.r = {.prompts = &prompt,
                   .prompt_count = 1,
                   .items = items,
                   .item_count = 2,
                   .width = 64,
                   .height = 48,
                   .starts_from_image = true,
                   .inpaints = true},
             .ids = (const int32_t(*)[512])(s->ids + 1),
             .noise = s->noise,
             .pixels = s_pixels,
             .mask = s_mask};
    if (s->network != NULL) {
        set_schedule(&j, s->network, SUMI_SOLVER_EULER, 3, 0);
        float* x = run_job(s->network, &j, 0, NULL, &error);
        CHECK(x != NULL);
        for (size_t k = 0; k < 16 * 48 && x != NULL; k++) {
            if (s_mask[k % 48] == 0.0f) CHECK(x[k] == x[16 * 48 + k]); // other noise, same kept region
            else CHECK(x[k] != x[16 * 48 + k]);
        }
        free(x);
    }
    if (error.result != SUMI_OK) printf("  %s\n", error.text);
    close_scene(s);
}

// Tiled decoding needs less memory, and away from the seams of a large picture it is close to the whole one.
TEST(tiles_bound_the_memory_of_decoding)
{
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    uint64_t arena[2] = {0, 0};
    for (int tiled = 0; tiled < 2; tiled++) {
        sumi_plan plan;
        sumi_error error = {0};
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
        sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, 16, 96 * 96),
                   picture = sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_ACTIVATION, 768 * 768, 3);
        const sumi_vae_tiling tiling = network->recipe->autoencoder->tiling(network->autoencoder);
        sumi_vae_tiles_decode(&tiling, &plan, &(sumi_tile_source){x, 96, 96}, tiled ? 16 : 0, picture);
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_OK);
        CHECK_NUMBER(sumi_plan_validate(&plan, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        arena[tiled] = plan.arena_bytes - (uint64_t)768 * 768 * 3 * 4;
        sumi_plan_end(&plan);
    }
    CHECK(arena[1] * 8 < arena[0]);
    sumi_network_close(network);
}

TEST(requests_that_make_no_sense_are_refused)
{
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    sumi_pipeline_prompt prompt = {.token_count = {9}};
    sumi_pipeline_item item = {0, -1};
    bool guided[2] = {true, true};
    const sumi_pipeline_request good = {.prompts = &prompt,
                                        .prompt_count = 1,
                                        .items = &item,
                                        .item_count = 1,
                                        .width = 64,
                                        .height = 48,
                                        .evaluation_count = 2};
    for (int i = 0; i < 16; i++) {
        sumi_pipeline_request r = good;
        sumi_pipeline_prompt p = prompt;
        sumi_pipeline_item one = item;
        r.prompts = &p;
        r.items = &one;
        switch (i) {
        case 0: r.width = 0; break;
        case 1: r.width = 40; break;
        case 2: r.height = 1 << 20; break;
        case 3: r.evaluation_count = 0; break;
        case 4: r.item_count = 0; break;
        case 5: r.item_count = 1 << 30; break;
        case 6: one.positive = 1; break;
        case 7: r.guided = guided; break; // and no negative prompt
        case 8: p.token_count[0] = 0; break;
        case 9: p.token_count[0] = INT32_MAX; break;
        case 10: r.prompt_count = 0; break;
        case 11: r.prompt_count = 1 << 20; break;
        case 12: r.inpaints = true; break;
        case 13: r.tile_latent = 6; break;
        case 14: one.positive = -1; break;
        default: r.evaluation_count = INT32_MAX; break;
        }
        sumi_plan plan;
        sumi_pipeline pipeline;
        sumi_error error = {0};
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_result result = sumi_pipeline_write(network, &r, &plan, &pipeline, &error);
        if (result != SUMI_INVALID_ARGUMENT) printf("  request %d: result %d, \"%s\"\n", i, (int)result, error.text);
        CHECK(result == SUMI_INVALID_ARGUMENT && error.text[0] != 0);
        sumi_plan_end(&plan);
    }
    sumi_network_close(network);
}

TEST(prompts_are_templated_and_cut_at_512_tokens)
{
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    static char s_text[8000];
    int32_t ids[600], count = 0, first[512], short_count = 0;
    sumi_error error = {0};
    memset(s_text, 'x', sizeof s_text);
    for (size_t i = 0; i < sizeof s_text; i += 2) s_text[i] = ' ';
    CHECK_NUMBER(read_prompt(network, 0, &(sumi_prompt_text){.text = s_text, .bytes = sizeof s_text},
                             &(sumi_prompt_ids){ids, 600, NULL}, &count, &error),
                 SUMI_OK);
    CHECK_NUMBER(count, 512);
    CHECK_NUMBER(read_prompt(network, 0, &(sumi_prompt_text){.text = s_text, .bytes = sizeof s_text},
                             &(sumi_prompt_ids){first, 3, NULL}, &short_count, &error),
                 SUMI_OK);
    CHECK_NUMBER(short_count, 3);
    CHECK(memcmp(ids, first, 3 * sizeof *ids) == 0);
    CHECK_NUMBER(read_prompt(network, 0, &(sumi_prompt_text){.text = NULL, .bytes = 0},
                             &(sumi_prompt_ids){ids, 600, NULL}, &count, &error),
                 SUMI_OK);
    CHECK(count >= 8);
    CHECK_NUMBER(read_prompt(network, 1, &(sumi_prompt_text){.text = "a", .bytes = 1},
                             &(sumi_prompt_ids){ids, 600, NULL}, &count, &error),
                 SUMI_INVALID_ARGUMENT);
    sumi_network_close(network);
}

// An autoencoder whose latents are packed, of as many channels as the denoiser of z-image has. Its networks make zeros.
static sumi_value make_zeros(sumi_plan* plan, int32_t rows, int32_t cols)
{
    const sumi_value zeros = sumi_plan_value(plan, "zeros", SUMI_ELEMENT_ACTIVATION, rows, cols);
    sumi_plan_fill_rows(plan, zeros, NULL, &(sumi_span){0, rows}, 1);
    return zeros;
}
static sumi_value decode_zeros(const sumi_vae_tiling* tiling, sumi_plan* plan, sumi_value x, int32_t height,
                               int32_t width)
{
    (void)tiling, (void)x;
    return make_zeros(plan, 64 * height * width, 3);
}
static sumi_value encode_zeros(const sumi_vae_tiling* tiling, sumi_plan* plan, sumi_value x, int32_t height,
                               int32_t width)
{
    (void)tiling, (void)x;
    return make_zeros(plan, height / 8 * (width / 8), 8);
}
static sumi_vae_tiling tiling_of_packs(const void* model)
{
    static const float s_scale = 2.0f, s_shift = 0.5f;
    return (sumi_vae_tiling){.rule = {3, 4},
                             .channels = 4,
                             .factor = 8,
                             .packing = 2,
                             .picture_channels = 3,
                             .statistics = {&s_scale, &s_shift, 1},
                             .model = model,
                             .decode = decode_zeros,
                             .encode = encode_zeros};
}

static const sumi_op* op_of(const sumi_plan* plan, sumi_op_kind kind)
{
    for (size_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i].kind == kind) return &plan->ops[i];
    return NULL;
}

// The latents of a job are half as large on either side, its preview and the tiles of the autoencoder are not.
TEST(packed_latents_go_through_a_job)
{
    static const float s_factors[4][3] = {{1.0f}};
    static const sumi_preview_factors s_preview = {4, s_factors, {0.0f}};
    static const sumi_autoencoder_module s_module = {.tiling = tiling_of_packs};
    sumi_network* network = open_path(GOLDEN "model");
    if (network == NULL) return;
    sumi_recipe recipe = *network->recipe;
    const sumi_recipe* own_recipe = network->recipe;
    recipe.autoencoder = &s_module;
    network->recipe = &recipe;
    network->info.packing = 2;
    network->info.vae_factor = 16;
    network->info.size_multiple = 32;
    network->info.preview = &s_preview;
    sumi_pipeline_prompt prompt = {.token_count = {9}};
    sumi_pipeline_item items[2] = {{0, -1}, {0, -1}};
    for (int32_t tile = 0; tile <= 3; tile++) {
        const sumi_pipeline_request r = {.prompts = &prompt,
                                         .prompt_count = 1,
                                         .items = items,
                                         .item_count = 2,
                                         .width = 64,
                                         .height = 96,
                                         .evaluation_count = 2,
                                         .tile_latent = tile,
                                         .starts_from_image = true,
                                         .samples_posterior = true,
                                         .previews = true};
        sumi_plan plan;
        sumi_pipeline pipeline;
        sumi_error error = {0};
        sumi_plan_begin(&plan, &s_heap, 4);
        const sumi_result result = sumi_pipeline_write(network, &r, &plan, &pipeline, &error);
        if (tile % 2 != 0) {
            CHECK(result == SUMI_INVALID_ARGUMENT && strstr(error.text, "not a multiple of 2") != NULL);
        } else if (result == SUMI_OK) {
            CHECK_NUMBER(sumi_plan_validate(&plan, &error), SUMI_OK);
            CHECK(pipeline.latent_height == 6 && pipeline.latent_width == 4);
            CHECK(sumi_plan_info(&plan, pipeline.x)->rows == 32 && sumi_plan_info(&plan, pipeline.x)->cols == 24);
            CHECK(sumi_plan_info(&plan, pipeline.eps)->cols == 24);
            CHECK(sumi_plan_info(&plan, pipeline.preview)->rows == 6);
            CHECK(sumi_plan_info(&plan, pipeline.preview)->cols == 96);
            const sumi_op *preview = op_of(&plan, SUMI_OP_PREVIEW), *posterior = op_of(&plan, SUMI_OP_POSTERIOR),
                          *in = op_of(&plan, SUMI_OP_LATENT_IN);
            CHECK(preview->u.preview.packing == 2 && preview->u.preview.width == 8);
            CHECK(posterior->u.posterior.packing == 2 && posterior->u.posterior.width == 8);
            CHECK(in->u.latent_in.packing == 2 && in->u.latent_in.height == 12 && in->u.latent_in.width == 8);
            CHECK_NUMBER(in->u.latent_in.tile_height, tile == 0 ? 12 : 4);
        }
        CHECK(tile % 2 != 0 || result == SUMI_OK);
        if (tile % 2 == 0) CHECK_TEXT(error.text, "");
        sumi_plan_end(&plan);
    }
    network->recipe = own_recipe;
    sumi_network_close(network);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_cpu(1)) return 1;
    RUN(batch_equals_single_jobs_and_slices_change_nothing);
    RUN(evaluations_reuse_the_residual_of_earlier_ones);
    RUN(solvers_run_and_previews_change_nothing);
    RUN(inpainting_keeps_what_is_not_masked);
    RUN(tiles_bound_the_memory_of_decoding);
    RUN(requests_that_make_no_sense_are_refused);
    RUN(prompts_are_templated_and_cut_at_512_tokens);
    RUN(packed_latents_go_through_a_job);
    end_networks();
    TEST_END();
}
