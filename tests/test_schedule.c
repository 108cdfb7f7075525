// Schedules against recorded ones, those that are refused, where image-to-image starts, and presets.
#include "base/file.h"
#include "files/json.h"
#include "files/tensors.h"
#include "recorded_values.h"
#include "sampling/presets.h"
#include "sampling/schedule.h"

// ---- Schedules ------------------------------------------------------------------------------------------------------

static sumi_sigma_rule dynamic_rule(double base_shift, double max_shift, int32_t max_tokens, float terminal)
{
    return (sumi_sigma_rule){.kind = SUMI_SHIFT_DYNAMIC,
                             .dynamic = {base_shift, max_shift, 256, max_tokens, SUMI_CURVE_EXPONENTIAL},
                             .terminal = terminal};
}

TEST(shifted_schedule_equals_reference_bit_for_bit)
{
    sumi_tensor_set set;
    if (!open_set(&set, "tests/golden/z-image/cases/scheduler.safetensors")) {
        CHECK(!"scheduler.safetensors opens");
        return;
    }
    int tables = 0;
    for (size_t t = 0; t < set.count; t++) {
        int shift, steps;
        if (sscanf(set.tensors[t].name, "expect.sigmas.shift%d.n%d", &shift, &steps) != 2) continue;
        size_t count;
        float* want = values_of(&set, set.tensors[t].name, &count);
        float got[SUMI_SCHEDULE_MAX_STEPS + 1];
        shifted((float)shift, steps, got);
        CHECK_NUMBER(count, steps + 1);
        for (size_t i = 0; i < count; i++) CHECK(same_float(got[i], want[i]));
        sumi_error error = {0};
        CHECK_NUMBER(sumi_schedule_check(got, steps, &error), SUMI_OK);
        free(want);
        tables++;
    }
    CHECK(tables >= 18);
    sumi_tensor_set_close(&set);
}

// Every grid of the recorded ones is a rule. The authors' own has N points for N - 1 steps, in rising model time.
TEST(grids_equal_those_of_newbie_references)
{
    static const struct {
        const char* name;
        sumi_sigma_grid grid;
        int points_less;
    } s_kinds[] = {{"engine", SUMI_GRID_EVEN, 0},
                   {"authors_t", SUMI_GRID_EVEN, 1},
                   {"authors_dpm", SUMI_GRID_BELOW_ONE, 0},
                   {"comfy_simple", SUMI_GRID_TABLE, 0},
                   {"diffusers_default", SUMI_GRID_TWICE, 0}};
    sumi_tensor_set set;
    if (!open_set(&set, "tests/golden/newbie/cases/grids.safetensors")) {
        CHECK(!"grids.safetensors opens");
        return;
    }
    int tables[5] = {0};
    for (size_t t = 0; t < set.count; t++) {
        for (size_t k = 0; k < 5; k++) {
            char form[64];
            int shift, points;
            snprintf(form, sizeof form, "expect.%s.s%%d.n%%d", s_kinds[k].name);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            if (sscanf(set.tensors[t].name, form, &shift, &points) != 2) continue;
#pragma GCC diagnostic pop
            size_t count;
            float *want = values_of(&set, set.tensors[t].name, &count), got[SUMI_SCHEDULE_MAX_STEPS + 1];
            const int steps = points - s_kinds[k].points_less;
            write_rule(&(sumi_sigma_rule){.shift = (float)shift, .grid = s_kinds[k].grid}, 0, steps, got);
            CHECK_NUMBER(count, steps + 1);
            for (size_t i = 0; i < count; i++) {
                const double sigma = s_kinds[k].points_less ? 1.0 - (double)want[i] : (double)want[i];
                CHECK_NEAR((double)got[i], sigma, 2e-7, 0);
            }
            free(want);
            tables[k]++;
        }
    }
    for (size_t k = 0; k < 5; k++) CHECK(tables[k] >= 12);
    sumi_tensor_set_close(&set);
}

TEST(dynamic_schedule_equals_qwen_image_reference)
{
    const sumi_sigma_rule stock = dynamic_rule(0.5, 0.9, 8192, 0.02f),
                          lightning = dynamic_rule(1.0986122886681098, 1.0986122886681098, 8192, 0.0f);
    sumi_tensor_set set;
    if (!open_set(&set, "tests/golden/qwen-image/cases/scheduler.safetensors")) {
        CHECK(!"scheduler.safetensors opens");
        return;
    }
    int tables = 0;
    for (size_t t = 0; t < set.count; t++) {
        const char* name = set.tensors[t].name;
        int tokens, steps, used = 0;
        bool is_stock = sscanf(name, "expect.stock.L%d.N%d.sigmas%n", &tokens, &steps, &used) == 2 && used > 0;
        if (!is_stock && !(sscanf(name, "expect.lightning.L%d.N%d.sigmas%n", &tokens, &steps, &used) == 2 && used > 0))
            continue;
        size_t count;
        float* want = values_of(&set, name, &count);
        float got[SUMI_SCHEDULE_MAX_STEPS + 1];
        write_rule(is_stock ? &stock : &lightning, tokens, steps, got);
        CHECK_NUMBER(count, steps + 1);
        for (size_t i = 0; i < count; i++) CHECK_NEAR((double)got[i], (double)want[i], 2e-7, 0);
        free(want);
        tables++;
    }
    CHECK(tables >= 20);
    sumi_tensor_set_close(&set);
}

TEST(schedules_handle_one_step_linear_shift_and_terminals)
{
    float a[9], b[9];
    sumi_sigma_rule rule = dynamic_rule(1.2, 1.2, 4096, 0.02f);
    write_rule(&rule, 4096, 1, a);
    CHECK(a[0] == 1.0f && a[1] == 0.0f);
    rule = dynamic_rule(3.0, 3.0, 4096, 0.0f);
    rule.dynamic.curve = SUMI_CURVE_LINEAR;
    write_rule(&rule, 4096, 8, a);
    shifted(3.0f, 8, b);
    for (int i = 0; i <= 8; i++) CHECK_NEAR((double)a[i], (double)b[i], 2e-7, 0);
    // a terminal stretches a static shift, too
    write_rule(&(sumi_sigma_rule){.shift = 3.0f, .terminal = 0.1f}, 0, 8, a);
    CHECK(a[0] == 1.0f && a[8] == 0.0f);
    CHECK_NEAR((double)a[7], 0.1, 1e-7, 0);
    for (int i = 0; i < 8; i++) CHECK_NEAR(1.0 - (double)a[i], (1.0 - (double)b[i]) * 0.9 / 0.7, 2e-7, 0);
    rule = dynamic_rule(0.5, 0.9, 8192, 0.0f);
    CHECK_NEAR(sumi_sigma_rule_mu(&rule, 6889, 8), 0.834325, 1e-6, 0);
    CHECK_NEAR(sumi_sigma_rule_mu(&rule, 16384, 8), 1.312903, 1e-6, 0); // goes on beyond
    CHECK_NEAR(sumi_sigma_rule_mu(&rule, 16384, 1), sumi_sigma_rule_mu(&rule, 16384, 50), 0, 0);
    rule = dynamic_rule(0.5, 1.15, 4096, 0.0f);
    CHECK_NEAR(sumi_sigma_rule_mu(&rule, 4096, 8), 1.15, 1e-12, 0);
    rule = dynamic_rule(0.5, 0.9, 256, 0.0f);
    CHECK_NEAR(sumi_sigma_rule_mu(&rule, 4096, 8), 0.5, 0, 0);
}

static sumi_sigma_rule empirical_rule(void)
{
    return (sumi_sigma_rule){.kind = SUMI_SHIFT_EMPIRICAL,
                             .empirical = {.few = {8.73809524e-05, 1.89833333},
                                           .many = {0.00016927, 0.45666666},
                                           .few_steps = 10,
                                           .many_steps = 200,
                                           .max_tokens = 4300,
                                           .curve = SUMI_CURVE_EXPONENTIAL}};
}

// The values are those that the published schedule of FLUX.2 has: its first sigmas, rounded to 7 digits.
TEST(empirical_schedule_depends_on_tokens_and_steps)
{
    static const struct {
        int32_t tokens, steps, count;
        double mu, sigmas[8];
    } s_rows[] = {
        {1024, 4, 4, 2.030689708, {1, 0.9580854, 0.8839818, 0.7174966}},
        {4096, 4, 4, 2.291179894, {1, 0.9673840, 0.9081439, 0.7672000}},
        {4096, 8, 8, 2.267890439, {1, 0.9854255, 0.9666411, 0.9415148, 0.9061826, 0.8528417, 0.7630145, 0.5798068}},
        {4096, 20, 4, 2.198022073, {1, 0.9941907, 0.9878145, 0.9807843}},
        {4096, 50, 4, 2.023351157, {1, 0.9973091, 0.9945214, 0.9916316}},
        {4300, 4, 4, 2.308478071, {1, 0.9679254, 0.9095768, 0.7702752}},
        {4301, 4, 4, 1.184696930, {1, 0.9074852, 0.7657913, 0.5215079}},
        {9216, 4, 4, 2.016658980, {1, 0.9575183, 0.8825351, 0.7146439}},
        {16384, 50, 3, 3.229986340, {1, 0.9991933, 0.9983545}},
    };
    const sumi_sigma_rule rule = empirical_rule();
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        float sigmas[SUMI_SCHEDULE_MAX_STEPS + 1];
        CHECK_NEAR(sumi_sigma_rule_mu(&rule, s_rows[i].tokens, s_rows[i].steps), s_rows[i].mu, 6e-10, 0);
        write_rule(&rule, s_rows[i].tokens, s_rows[i].steps, sigmas);
        CHECK(sigmas[0] == 1.0f && sigmas[s_rows[i].steps] == 0.0f);
        for (int32_t k = 0; k < s_rows[i].count; k++) CHECK_NEAR((double)sigmas[k], s_rows[i].sigmas[k], 1e-7, 0);
        sumi_error error = {0};
        CHECK_NUMBER(sumi_schedule_check(sigmas, s_rows[i].steps, &error), SUMI_OK);
    }
    float one[2], straight[9], still[9];
    write_rule(&rule, 4096, 1, one);
    CHECK(one[0] == 1.0f && one[1] == 0.0f);
    sumi_sigma_rule linear = rule; // mu itself is the shift
    linear.empirical.curve = SUMI_CURVE_LINEAR;
    write_rule(&linear, 4096, 8, straight);
    shifted((float)sumi_sigma_rule_mu(&rule, 4096, 8), 8, still);
    for (int i = 0; i <= 8; i++) CHECK_NEAR((double)straight[i], (double)still[i], 2e-7, 0);
}

TEST(empirical_rules_that_make_no_schedule_are_refused)
{
    for (int wrong = 0; wrong < 8; wrong++) {
        sumi_sigma_rule rule = empirical_rule();
        const char* says = "";
        switch (wrong) {
        case 1: rule.empirical.few_steps = 0, says = "from 0 to 200 steps"; break;
        case 2: rule.empirical.many_steps = 10, says = "from 10 to 10 steps"; break;
        case 3: rule.empirical.max_tokens = -1, says = "up to -1 image tokens"; break;
        case 4: rule.empirical.few.offset = (double)NAN, says = "lines of the shift"; break;
        case 5: rule.empirical.many.slope = (double)INFINITY, says = "lines of the shift"; break;
        case 6: rule.empirical.curve = (sumi_shift_curve)-1, says = "curve of the shift is -1"; break;
        case 7: rule.grid = SUMI_GRID_TWICE, says = "needs a static shift"; break;
        default: break;
        }
        sumi_error error = {0};
        const bool is_good = says[0] == '\0';
        CHECK_NUMBER(sumi_sigma_rule_check(&rule, &error), is_good ? SUMI_OK : SUMI_INVALID_ARGUMENT);
        CHECK(is_good == (error.text[0] == '\0') && strstr(error.text, says) != NULL);
    }
    sumi_sigma_rule rule = empirical_rule(); // e^42 above a million tokens
    float sigmas[9];
    sumi_error error = {0};
    rule.empirical.many.slope = 4.2e-5;
    CHECK_NUMBER(sumi_schedule_write(&rule, 1000000, 8, sigmas, &error), SUMI_NOT_SUPPORTED);
    CHECK(strstr(error.text, "1000000 image tokens") != NULL);
}

TEST(schedules_of_no_steps_write_nothing)
{
    float x = 7.0f;
    const sumi_sigma_rule rule = dynamic_rule(0.5, 0.9, 8192, 0.02f);
    shifted(3.0f, 0, &x);
    shifted(3.0f, -4, &x);
    write_rule(&rule, 4096, 0, &x);
    CHECK(x == 7.0f);
}

TEST(sigma_rules_that_make_no_schedule_are_refused)
{
    const sumi_sigma_rule still = {.shift = 3.0f}, moving = dynamic_rule(0.5, 0.9, 8192, 0.02f);
    for (int wrong = 0; wrong < 15; wrong++) {
        sumi_sigma_rule rule = wrong < 9 ? still : moving;
        const char* says = "";
        switch (wrong) {
        case 1: rule.kind = (sumi_shift_kind)4, says = "kind of shift is 4"; break;
        case 2: rule.grid = (sumi_sigma_grid)-1, says = "grid of sigmas is -1"; break;
        case 3: rule.grid = (sumi_sigma_grid)4, says = "grid of sigmas is 4"; break;
        case 4: rule.terminal = 1.0f, says = "terminal sigma is 1"; break;
        case 5: rule.terminal = NAN, says = "terminal sigma is"; break;
        case 6: rule.shift = 0.0f, says = "shift is 0"; break;
        case 7: rule.shift = NAN, says = "shift is"; break;
        case 8: rule.shift = INFINITY, says = "shift is inf"; break;
        case 10: rule.grid = SUMI_GRID_TWICE, says = "needs a static shift"; break;
        case 11: rule.dynamic.curve = (sumi_shift_curve)2, says = "curve of the shift is 2"; break;
        case 12: rule.dynamic.base_tokens = -1, says = "from -1 to 8192"; break;
        case 13: rule.dynamic.max_tokens = 255, says = "from 256 to 255"; break;
        case 14: rule.dynamic.max_shift = (double)NAN, says = "goes from 0.5 to"; break;
        default: break;
        }
        sumi_error error = {0};
        const bool is_good = says[0] == '\0';
        CHECK_NUMBER(sumi_sigma_rule_check(&rule, &error), is_good ? SUMI_OK : SUMI_INVALID_ARGUMENT);
        CHECK(is_good == (error.text[0] == '\0') && strstr(error.text, says) != NULL);
    }
    // rules that only some pictures have a schedule by
    float sigmas[9];
    sumi_error error = {0};
    sumi_sigma_rule rule = dynamic_rule(0.5, 2.0, 512, 0.0f);
    rule.dynamic.curve = SUMI_CURVE_LINEAR;
    CHECK_NUMBER(sumi_schedule_write(&rule, 256, 8, sigmas, &error), SUMI_OK);
    CHECK_NUMBER(sumi_schedule_write(&rule, 64, 8, sigmas, &error), SUMI_NOT_SUPPORTED);
    CHECK(strstr(error.text, "64 image tokens") != NULL);
    rule = dynamic_rule(0.5, 100.0, 512, 0.0f);
    CHECK_NUMBER(sumi_schedule_write(&rule, 512, 8, sigmas, NULL), SUMI_NOT_SUPPORTED);
}

TEST(listed_sigmas_fix_the_number_of_steps)
{
    const sumi_sigma_rule rule = {.kind = SUMI_SHIFT_LISTED, .listed = {{1.0f, 0.75f, 0.25f}, 3}};
    float few[4], many[4], other[5] = {7.0f};
    sumi_error error = {0};
    CHECK_NUMBER(sumi_sigma_rule_steps(&rule), 3);
    write_rule(&rule, 16, 3, few);
    write_rule(&rule, 16384, 3, many);
    CHECK(few[0] == 1.0f && few[1] == 0.75f && few[2] == 0.25f && few[3] == 0.0f);
    CHECK(memcmp(few, many, sizeof few) == 0); // the same for every size
    CHECK_NUMBER(sumi_schedule_write(&rule, 16, 4, other, &error), SUMI_NOT_SUPPORTED);
    CHECK(strstr(error.text, "for 3 steps, and none for 4") != NULL && other[0] == 7.0f);
    CHECK_NUMBER(sumi_sigma_rule_steps(&(sumi_sigma_rule){.shift = 3.0f}), 0);
    for (int wrong = 0; wrong < 8; wrong++) {
        sumi_sigma_rule bad = rule;
        const char* says = "";
        switch (wrong) {
        case 1: bad.listed.count = 0, says = "0 sigmas are listed"; break;
        case 2: bad.listed.count = SUMI_SCHEDULE_MAX_LISTED + 1, says = "65 sigmas are listed"; break;
        case 3: bad.listed.levels[0] = 1.5f, says = "sigma 0 of the list is 1.5"; break;
        case 4: bad.listed.levels[1] = 1.0f, says = "sigma 1 of the list is 1:"; break;
        case 5: bad.listed.levels[2] = 0.0f, says = "sigma 2 of the list is 0"; break;
        case 6: bad.listed.levels[2] = NAN, says = "sigma 2 of the list is"; break;
        case 7: bad.listed.count = 4, says = "sigma 3 of the list is 0"; break;
        default: break;
        }
        error = (sumi_error){0};
        CHECK_NUMBER(sumi_sigma_rule_check(&bad, &error), says[0] == 0 ? SUMI_OK : SUMI_INVALID_ARGUMENT);
        CHECK(strstr(error.text, says) != NULL);
    }
}

TEST(schedule_check_refuses_bad_tables_and_says_why)
{
    static const struct {
        float values[4];
        int32_t steps;
        const char* says;
    } s_bad[] = {
        {{1.0f, 0.5f, 0.5f, 0.0f}, 3, "must fall"},       {{0.2f, 0.5f, 0.1f, 0.0f}, 3, "sigmas[1]"},
        {{1.5f, 0.5f, 0.2f, 0.0f}, 3, "between 0 and 1"}, {{1.0f, 0.5f, 0.2f, -0.1f}, 3, "sigmas[3]"},
        {{1.0f, NAN, 0.2f, 0.0f}, 3, "sigmas[1]"},        {{INFINITY, 0.5f, 0.2f, 0.0f}, 3, "sigmas[0]"},
        {{1.0f, 0.0f, 0.0f, 0.0f}, 0, "step_count"},      {{1.0f, 0.0f, 0.0f, 0.0f}, -1, "step_count"},
        {{1.0f, 0.0f, 0.0f, 0.0f}, 1001, "step_count"},
    };
    for (size_t i = 0; i < sizeof s_bad / sizeof *s_bad; i++) {
        sumi_error error = {0};
        CHECK_NUMBER(sumi_schedule_check(s_bad[i].values, s_bad[i].steps, &error), SUMI_INVALID_ARGUMENT);
        CHECK(strstr(error.text, s_bad[i].says) != NULL);
    }
    sumi_error error = {0};
    CHECK_NUMBER(sumi_schedule_check(NULL, 3, &error), SUMI_INVALID_ARGUMENT);
    CHECK(error.text[0] != 0);
    CHECK_NUMBER(sumi_schedule_check((float[]){0.9f, 0.3f, 0.1f}, 2, NULL), SUMI_OK);
    CHECK_NUMBER(sumi_schedule_check((float[]){1.0f, 0.0f}, 1, NULL), SUMI_OK);
}

TEST(image_to_image_starts_where_the_reference_starts)
{
    sumi_file file;
    sumi_json j;
    sumi_error error = {0};
    sumi_json_text key;
    if (!read_json("tests/golden/z-image/cases/scheduler.json", &file, &j, &error)) {
        CHECK(!"scheduler.json opens");
        return;
    }
    int rows = 0;
    if (sumi_json_object(&j))
        while (sumi_json_key(&j, &key)) {
            if (!sumi_json_is(&key, "img2img")) {
                sumi_json_skip(&j);
                continue;
            }
            if (sumi_json_array(&j))
                while (sumi_json_item(&j)) {
                    int32_t steps = 0, first = -1;
                    float strength = 0;
                    if (sumi_json_object(&j))
                        while (sumi_json_key(&j, &key)) {
                            if (sumi_json_is(&key, "steps")) steps = (int32_t)sumi_json_integer(&j);
                            else if (sumi_json_is(&key, "strength")) strength = (float)sumi_json_number(&j);
                            else if (sumi_json_is(&key, "first_index")) first = (int32_t)sumi_json_integer(&j);
                            else sumi_json_skip(&j);
                        }
                    CHECK_NUMBER(sumi_schedule_first_index(steps, strength), first);
                    rows++;
                }
        }
    CHECK_NUMBER(sumi_json_end(&j), SUMI_OK);
    CHECK(rows >= 72);
    sumi_file_close(&file);
}

TEST(image_to_image_start_is_safe_at_the_ends)
{
    CHECK_NUMBER(sumi_schedule_first_index(20, 0.6f), 8); // not 7: 0.6f is a little more than 0.6
    CHECK_NUMBER(sumi_schedule_first_index(20, 0.1f), 18);
    CHECK_NUMBER(sumi_schedule_first_index(8, 0.0f), 8);
    CHECK_NUMBER(sumi_schedule_first_index(8, -1.0f), 8);
    CHECK_NUMBER(sumi_schedule_first_index(8, 0.01f), 7);
    CHECK_NUMBER(sumi_schedule_first_index(8, 1.0f), 0);
    CHECK_NUMBER(sumi_schedule_first_index(8, 1e30f), 0);
    CHECK_NUMBER(sumi_schedule_first_index(8, NAN), 0);
    CHECK_NUMBER(sumi_schedule_first_index(0, 0.5f), 0);
}

// ---- Presets --------------------------------------------------------------------------------------------------------

TEST(presets_get_their_share_of_a_checkpoints_size)
{
    const sumi_preset_values from[SUMI_PRESET_COUNT] = {{1024, 1024, 8, .guidance = 4.0f},
                                                        {768, 512, 4, .guidance = 1.0f},
                                                        {1664, 928, 20, .shift = 2.0f},
                                                        {16, 4000, 50, .strength = 0.5f}};
    sumi_preset_values to[SUMI_PRESET_COUNT];
    sumi_presets_scaled(from, &(sumi_size_scale){1024, 1024, 16, 4096}, to);
    CHECK(memcmp(from, to, sizeof to) == 0);
    sumi_presets_scaled(from, &(sumi_size_scale){1024, 64, 16, 128}, to);
    CHECK(to[0].width == 64 && to[0].height == 64 && to[0].step_count == 8 && to[0].guidance == 4.0f);
    CHECK(to[1].width == 48 && to[1].height == 32);
    CHECK(to[2].width == 96 && to[2].height == 48);                            // down to a multiple
    CHECK(to[3].width == 16 && to[3].height == 128 && to[3].strength == 0.5f); // not below one, not above the most
    sumi_size size = sumi_size_scaled((sumi_size){1328, 1328}, &(sumi_size_scale){1328, 1328, 16, 4096});
    CHECK(size.width == 1328 && size.height == 1328);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(shifted_schedule_equals_reference_bit_for_bit);
    RUN(grids_equal_those_of_newbie_references);
    RUN(dynamic_schedule_equals_qwen_image_reference);
    RUN(schedules_handle_one_step_linear_shift_and_terminals);
    RUN(empirical_schedule_depends_on_tokens_and_steps);
    RUN(empirical_rules_that_make_no_schedule_are_refused);
    RUN(schedules_of_no_steps_write_nothing);
    RUN(sigma_rules_that_make_no_schedule_are_refused);
    RUN(listed_sigmas_fix_the_number_of_steps);
    RUN(schedule_check_refuses_bad_tables_and_says_why);
    RUN(image_to_image_starts_where_the_reference_starts);
    RUN(image_to_image_start_is_safe_at_the_ends);
    RUN(presets_get_their_share_of_a_checkpoints_size);
    TEST_END();
}
