// Noise, schedules, solvers, pixels and presets against recorded reference values.
#include "base/file.h"
#include "failing.h"
#include "files/json.h"
#include "files/tensors.h"
#include "models/preview_factors.h"
#include "pictures/masks.h"
#include "pictures/pixels.h"
#include "sampling/noise.h"
#include "sampling/presets.h"
#include "sampling/schedule.h"
#include "sampling/solver.h"
#include "system.h"
#include "test.h"
#include <spng.h>

// ---- Helpers --------------------------------------------------------------------------------------------------------

static sumi_heap t_heap;

static bool open_set(sumi_tensor_set* set, const char* path)
{
    sumi_error error = {0};
    sumi_tensor_set_init(set, &t_heap, NULL);
    if (sumi_tensor_set_open(set, path, &error) == SUMI_OK) return true;
    printf("  %s: %s\n", path, error.text);
    sumi_tensor_set_close(set);
    return false;
}

// A copy of a tensor's values as float (bytes and indices stay exact in it up to 2^24); NULL when there is none. The
// caller frees it.
static float* values_of(const sumi_tensor_set* set, const char* name, size_t* out_count)
{
    const sumi_tensor* tensor = sumi_tensor_find(set, name);
    *out_count = 0;
    if (tensor == NULL) return NULL;
    size_t count = 1;
    for (int32_t i = 0; i < tensor->rank; i++) count *= (size_t)tensor->shape[i];
    float* values = malloc((count + 1) * sizeof *values);
    sumi_dtype_to_float(tensor->dtype, tensor->data, values, count);
    *out_count = count;
    return values;
}

static bool read_json(const char* path, sumi_file* file, sumi_json* json, sumi_error* error)
{
    memset(file, 0, sizeof *file);
    if (sumi_file_open(file, &t_heap, NULL, path, error) != SUMI_OK) {
        printf("  %s\n", error->text);
        return false;
    }
    sumi_json_begin(json, file->data, (size_t)file->bytes, error);
    return true;
}

static void json_copy(sumi_json* json, char* into, size_t bytes)
{
    sumi_json_text text = {0};
    into[0] = 0;
    if (!sumi_json_string(json, &text)) return;
    size_t n = sumi_json_decode(&text, into, bytes - 1);
    into[n < bytes ? n : 0] = 0;
}

static bool same_float(float a, float b) { return memcmp(&a, &b, sizeof a) == 0; }

// ---- Noise: CPU generator -------------------------------------------------------------------------------------------

#define RNG "tests/golden/common/rng/"

// One recorded call. 16-bit draws of 16 and more values are whole groups, then one more group over the last 16 places:
// two float32 calls.
static void draw_as(sumi_torch_cpu_generator* g, const char* dtype, size_t count, float* into)
{
    if (strcmp(dtype, "bfloat16") == 0) {
        uint16_t* bits = malloc((count + 1) * sizeof *bits);
        sumi_torch_cpu_randn_bf16(g, bits, count);
        for (size_t i = 0; i < count; i++) into[i] = sumi_bf16_to_float(bits[i]);
        free(bits);
    } else if (strcmp(dtype, "float16") == 0) {
        size_t whole = count < 16 ? count : count / 16 * 16;
        sumi_torch_cpu_randn(g, into, whole);
        if (whole != count) sumi_torch_cpu_randn(g, into + count - 16, 16);
        for (size_t i = 0; i < count; i++) into[i] = sumi_f16_to_float(sumi_float_to_f16(into[i]));
    } else {
        sumi_torch_cpu_randn(g, into, count);
    }
}

static void check_cpu_rows(bool portable)
{
    sumi_tensor_set set;
    sumi_file file;
    sumi_json j;
    sumi_error error = {0};
    if (!open_set(&set, RNG "cpu.safetensors")) {
        CHECK(!"cpu.safetensors opens");
        return;
    }
    CHECK(read_json(RNG "cpu.json", &file, &j, &error));
    int calls = 0;
    sumi_json_text key;
    if (sumi_json_object(&j))
        while (sumi_json_key(&j, &key)) {
            if (!sumi_json_is(&key, "rows")) {
                sumi_json_skip(&j);
                continue;
            }
            if (sumi_json_array(&j))
                while (sumi_json_item(&j)) {
                    sumi_torch_cpu_generator g;
                    sumi_torch_cpu_seed(&g, 0);
                    if (sumi_json_object(&j))
                        while (sumi_json_key(&j, &key)) {
                            if (sumi_json_is(&key, "seed")) { // written before the calls
                                sumi_torch_cpu_seed(&g, sumi_json_unsigned(&j));
                                g.portable = portable;
                            } else if (sumi_json_is(&key, "calls")) {
                                if (sumi_json_array(&j))
                                    while (sumi_json_item(&j)) {
                                        char dtype[32] = "", name[256] = "";
                                        size_t count = 0, have;
                                        if (sumi_json_object(&j))
                                            while (sumi_json_key(&j, &key)) {
                                                if (sumi_json_is(&key, "dtype")) json_copy(&j, dtype, sizeof dtype);
                                                else if (sumi_json_is(&key, "tensor")) json_copy(&j, name, sizeof name);
                                                else if (sumi_json_is(&key, "count"))
                                                    count = (size_t)sumi_json_unsigned(&j);
                                                else sumi_json_skip(&j);
                                            }
                                        float* want = values_of(&set, name, &have);
                                        float* got = malloc((count + 1) * sizeof *got);
                                        CHECK_NUMBER(have, count);
                                        draw_as(&g, dtype, count, got);
                                        int wrong = 0;
                                        for (size_t i = 0; i < have && i < count; i++) {
                                            if (!same_float(got[i], want[i]) && wrong++ == 0)
                                                printf("  %s[%zu] is %.9g, want %.9g\n", name, i, (double)got[i],
                                                       (double)want[i]);
                                        }
                                        CHECK_NUMBER(wrong, 0);
                                        calls++;
                                        free(want);
                                        free(got);
                                    }
                            } else sumi_json_skip(&j);
                        }
                }
        }
    CHECK_NUMBER(sumi_json_end(&j), SUMI_OK);
    CHECK(calls >= 88);
    sumi_file_close(&file);
    sumi_tensor_set_close(&set);
}

TEST(cpu_noise_equals_torch_bit_for_bit) { check_cpu_rows(false); }
TEST(cpu_noise_equals_torch_bit_for_bit_without_avx2) { check_cpu_rows(true); }

TEST(cpu_noise_lanes_give_the_bits_of_portable_code)
{
    enum { N = 4 * 65536 + 5 };
    float *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
    sumi_torch_cpu_generator g, h;
    sumi_torch_cpu_seed(&g, 987654321);
    sumi_torch_cpu_seed(&h, 987654321);
    h.portable = true;
    sumi_torch_cpu_randn(&g, a, N);
    sumi_torch_cpu_randn(&h, b, N);
    CHECK(memcmp(a, b, N * sizeof *a) == 0);
    CHECK(g.next == h.next && memcmp(g.state, h.state, sizeof g.state) == 0);
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) sum += (double)a[i], squares += (double)a[i] * (double)a[i];
    CHECK_NEAR(sum / N, 0.0, 0.01, 0);
    CHECK_NEAR(squares / N, 1.0, 0.01, 0);
    free(a);
    free(b);
}

TEST(cpu_noise_ignores_the_high_half_of_the_seed)
{
    float a[40], b[40];
    sumi_torch_cpu_generator g;
    sumi_torch_cpu_seed(&g, 5);
    sumi_torch_cpu_randn(&g, a, 40);
    sumi_torch_cpu_seed(&g, (7ull << 32) + 5);
    sumi_torch_cpu_randn(&g, b, 40);
    CHECK(memcmp(a, b, sizeof a) == 0);
    CHECK_NEAR((sumi_torch_cpu_seed(&g, 42), sumi_torch_cpu_randn(&g, a, 16), (double)a[0]), 1.9269, 5e-5, 0);
}

TEST(cpu_noise_of_nothing_draws_nothing)
{
    sumi_torch_cpu_generator g, h;
    sumi_torch_cpu_seed(&g, 1);
    h = g;
    sumi_torch_cpu_randn(&g, NULL, 0);
    sumi_torch_cpu_randn_bf16(&g, NULL, 0);
    CHECK(memcmp(&g.state, &h.state, sizeof g.state) == 0 && g.next == h.next && g.has_cached == h.has_cached);
}

TEST(bf16_noise_is_rounded_float32_noise_for_whole_groups)
{
    enum { N = 4096 };
    float a[N];
    uint16_t b[N];
    sumi_torch_cpu_generator g;
    sumi_torch_cpu_seed(&g, 3);
    sumi_torch_cpu_randn(&g, a, N);
    sumi_torch_cpu_seed(&g, 3);
    sumi_torch_cpu_randn_bf16(&g, b, N);
    int wrong = 0;
    for (int i = 0; i < N; i++) wrong += sumi_float_to_bf16(a[i]) != b[i];
    CHECK_NUMBER(wrong, 0);
}

// ---- Noise: CUDA generator ------------------------------------------------------------------------------------------

TEST(cuda_noise_is_within_tolerance_of_recorded_draws)
{
    sumi_tensor_set set;
    sumi_error error = {0};
    if (!open_set(&set, RNG "cuda_h200.safetensors")) {
        CHECK(!"cuda_h200.safetensors opens");
        return;
    }
    const char* rows = sumi_metadata_find(&set, "rows");
    CHECK(rows != NULL);
    sumi_json j;
    sumi_json_begin(&j, rows ? rows : "", rows ? strlen(rows) : 0, &error);
    int draws = 0;
    size_t checked = 0, exact = 0;
    double worst = 0;
    if (sumi_json_array(&j))
        while (sumi_json_item(&j)) {
            char name[128] = "", dtype[32] = "", text[160];
            uint64_t seed = 0, count = 0, before = 0, after = 0;
            sumi_json_text key;
            if (sumi_json_object(&j))
                while (sumi_json_key(&j, &key)) {
                    if (sumi_json_is(&key, "name")) json_copy(&j, name, sizeof name);
                    else if (sumi_json_is(&key, "dtype")) json_copy(&j, dtype, sizeof dtype);
                    else if (sumi_json_is(&key, "seed")) seed = sumi_json_unsigned(&j);
                    else if (sumi_json_is(&key, "count")) count = sumi_json_unsigned(&j);
                    else if (sumi_json_is(&key, "offset_before")) before = sumi_json_unsigned(&j);
                    else if (sumi_json_is(&key, "offset_after")) after = sumi_json_unsigned(&j);
                    else sumi_json_skip(&j);
                }
            size_t n, m;
            snprintf(text, sizeof text, "%s.index", name);
            float* index = values_of(&set, text, &n);
            snprintf(text, sizeof text, "%s.value", name);
            float* value = values_of(&set, text, &m);
            CHECK_NUMBER(n, m);
            sumi_torch_cuda_generator g;
            sumi_torch_cuda_seed(&g, seed, 132, 2048);
            g.offset = before;
            float* got = malloc(((size_t)count + 1) * sizeof *got);
            sumi_torch_cuda_randn(&g, got, (size_t)count);
            CHECK_NUMBER(g.offset, after);
            for (size_t i = 0; i < n; i++) {
                float x = got[(size_t)index[i]], want = value[i];
                // A 16-bit draw is the rounded float32 draw, and values this close may round to neighbours.
                double step = strcmp(dtype, "bfloat16") == 0 ? 1.0 / 128
                            : strcmp(dtype, "float16") == 0  ? 1.0 / 1024
                                                             : 0.0;
                double off = fabs((double)x - (double)want);
                if (step > 0.0) CHECK(off <= 1.2e-6 + 0.51 * step * fabs((double)want) * 1.01);
                else {
                    CHECK_NEAR((double)x, (double)want, 1.2e-6, 0);
                    worst = off > worst ? off : worst;
                    exact += same_float(x, want);
                    checked++;
                }
            }
            draws++;
            free(index);
            free(value);
            free(got);
        }
    CHECK_NUMBER(sumi_json_end(&j), SUMI_OK);
    CHECK(draws >= 60 && checked >= 2000);
    printf("  cuda noise: %zu float32 values of %d draws, worst difference %.3g, %zu equal\n", checked, draws, worst,
           exact);
    sumi_tensor_set_close(&set);
}

TEST(cuda_noise_depends_on_the_card_only_beyond_its_threads)
{
    enum { N = 262144 };
    float *a = malloc(N * sizeof *a), *b = malloc(N * sizeof *b);
    sumi_torch_cuda_generator g;
    sumi_torch_cuda_seed(&g, 42, 132, 2048);
    sumi_torch_cuda_randn(&g, a, N);
    sumi_torch_cuda_seed(&g, 42, 128, 1536); // 196,608 threads
    sumi_torch_cuda_randn(&g, b, N);
    CHECK(memcmp(a, b, 196608 * sizeof *a) == 0);
    CHECK(memcmp(a + 196608, b + 196608, (N - 196608) * sizeof *a) != 0);
    static const double first[] = {0.1940, 2.1614, -0.1721, 0.8491, -1.9244, 0.6530, -0.6494, -0.8175};
    for (int i = 0; i < 8; i++) CHECK_NEAR((double)a[i], first[i], 5e-5, 0);
    free(a);
    free(b);
}

TEST(cuda_noise_survives_impossible_cards)
{
    float x[3000], y[3000];
    sumi_torch_cuda_generator g;
    sumi_torch_cuda_seed(&g, 1, 0, -5);
    sumi_torch_cuda_randn(&g, x, 3000);
    CHECK_NUMBER(g.offset, 12); // one block of 256 threads: 1024 values a round
    sumi_torch_cuda_seed(&g, 1, 1, 256);
    sumi_torch_cuda_randn(&g, y, 3000);
    CHECK(memcmp(x, y, sizeof x) == 0);
    sumi_torch_cuda_seed(&g, 1, INT32_MAX, INT32_MAX);
    sumi_torch_cuda_randn(&g, x, 3000);
    CHECK_NUMBER(g.offset, 4);
    sumi_torch_cuda_randn(&g, NULL, 0);
    CHECK_NUMBER(g.offset, 4);
}

// ---- Schedules ------------------------------------------------------------------------------------------------------

static void write_rule(const sumi_sigma_rule* rule, int32_t image_tokens, int32_t steps, float* sigmas)
{
    sumi_error error = {0};
    CHECK_NUMBER(sumi_sigma_rule_check(rule, &error), SUMI_OK);
    CHECK_NUMBER(sumi_schedule_write(rule, image_tokens, steps, sigmas, &error), SUMI_OK);
}

static void shifted(float shift, int32_t steps, float* sigmas)
{
    write_rule(&(sumi_sigma_rule){.shift = shift}, 0, steps, sigmas);
}

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
    } kinds[] = {{"engine", SUMI_GRID_EVEN, 0},
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
            snprintf(form, sizeof form, "expect.%s.s%%d.n%%d", kinds[k].name);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            if (sscanf(set.tensors[t].name, form, &shift, &points) != 2) continue;
#pragma GCC diagnostic pop
            size_t count;
            float *want = values_of(&set, set.tensors[t].name, &count), got[SUMI_SCHEDULE_MAX_STEPS + 1];
            const int steps = points - kinds[k].points_less;
            write_rule(&(sumi_sigma_rule){.shift = (float)shift, .grid = kinds[k].grid}, 0, steps, got);
            CHECK_NUMBER(count, steps + 1);
            for (size_t i = 0; i < count; i++) {
                const double sigma = kinds[k].points_less ? 1.0 - (double)want[i] : (double)want[i];
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
    CHECK_NEAR(sumi_sigma_rule_mu(&rule, 6889), 0.834325, 1e-6, 0);
    CHECK_NEAR(sumi_sigma_rule_mu(&rule, 16384), 1.312903, 1e-6, 0); // goes on beyond
    rule = dynamic_rule(0.5, 1.15, 4096, 0.0f);
    CHECK_NEAR(sumi_sigma_rule_mu(&rule, 4096), 1.15, 1e-12, 0);
    rule = dynamic_rule(0.5, 0.9, 256, 0.0f);
    CHECK_NEAR(sumi_sigma_rule_mu(&rule, 4096), 0.5, 0, 0);
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
        case 1: rule.kind = (sumi_shift_kind)2, says = "kind of shift is 2"; break;
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

TEST(schedule_check_refuses_bad_tables_and_says_why)
{
    static const struct {
        float values[4];
        int32_t steps;
        const char* says;
    } bad[] = {
        {{1.0f, 0.5f, 0.5f, 0.0f}, 3, "must fall"},       {{0.2f, 0.5f, 0.1f, 0.0f}, 3, "sigmas[1]"},
        {{1.5f, 0.5f, 0.2f, 0.0f}, 3, "between 0 and 1"}, {{1.0f, 0.5f, 0.2f, -0.1f}, 3, "sigmas[3]"},
        {{1.0f, NAN, 0.2f, 0.0f}, 3, "sigmas[1]"},        {{INFINITY, 0.5f, 0.2f, 0.0f}, 3, "sigmas[0]"},
        {{1.0f, 0.0f, 0.0f, 0.0f}, 0, "step_count"},      {{1.0f, 0.0f, 0.0f, 0.0f}, -1, "step_count"},
        {{1.0f, 0.0f, 0.0f, 0.0f}, 1001, "step_count"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sumi_error error = {0};
        CHECK_NUMBER(sumi_schedule_check(bad[i].values, bad[i].steps, &error), SUMI_INVALID_ARGUMENT);
        CHECK(strstr(error.text, bad[i].says) != NULL);
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

// ---- Solvers --------------------------------------------------------------------------------------------------------

enum { MOST_ROWS = 4 * 256 };
typedef double velocity(double x, double sigma); // d x / d sigma
typedef void after_step(int32_t step, const double* x, size_t count, void* context);

// The engine's update in double, coefficients as they stand.
static void solve(sumi_solver solver, const float* sigmas, int32_t steps, velocity* v, double* x, size_t count,
                  after_step* after, void* context)
{
    static sumi_solver_row rows[MOST_ROWS];
    int32_t n = sumi_solver_rows(solver, sigmas, steps, rows);
    double y[64], h[64] = {0};
    memcpy(y, x, count * sizeof *y);
    for (int32_t r = 0; r < n; r++) {
        const sumi_solver_row* row = &rows[r];
        for (size_t i = 0; i < count; i++) {
            double slope = v(x[i], (double)row->sigma);
            double next =
                (double)row->cx * x[i] + (double)row->cy * y[i] + (double)row->cv * slope + (double)row->ch * h[i];
            h[i] = (double)row->hx * x[i] + (double)row->hv * slope + (double)row->hh * h[i];
            if (row->keeps == 0.0f) y[i] = next;
            x[i] = next;
        }
        if (row->keeps == 0.0f && after) after(row->step, x, count, context);
    }
}

static double newbie_field(double x, double sigma) // the recorded field is d x / d t with t = 1 - sigma
{
    double t = 1.0 - sigma;
    return -(-0.5 * x + sin(3 * t) + 0.25 * cos(x));
}

typedef struct comparison {
    const float* want;
    double off[8], norm[8];
} comparison;
static void compare_step(int32_t step, const double* x, size_t count, void* context)
{
    comparison* c = context;
    for (size_t i = 0; step < 8 && i < count; i++) {
        double want = (double)c->want[(size_t)step * count + i];
        c->off[step] += (x[i] - want) * (x[i] - want);
        c->norm[step] += want * want;
    }
}

TEST(solvers_follow_recorded_trajectories)
{
    static const struct {
        sumi_solver solver;
        const char *grid, *expect;
        int steps;
    } cases[] = {
        {SUMI_SOLVER_EULER, "engine", "euler.on_engine", 8},
        {SUMI_SOLVER_MIDPOINT, "authors", "midpoint.on_authors", 8},
        {SUMI_SOLVER_HEUN, "authors", "heun.on_authors", 7}, // ours ends with an Euler step where sigma is 0
        {SUMI_SOLVER_HEUN_FULL, "authors", "heun.on_authors", 8},
        {SUMI_SOLVER_RK4, "authors", "rk4.on_authors", 8},
        {SUMI_SOLVER_DPMPP_2M, "dpm", "dpmpp2m.on_dpm", 8},
        {SUMI_SOLVER_DPMPP_2M, "engine", "dpmpp2m.on_engine", 8},
        {SUMI_SOLVER_RES_MULTISTEP, "engine", "res_multistep.on_engine", 8},
    };
    sumi_tensor_set set;
    if (!open_set(&set, "tests/golden/newbie/cases/solvers.safetensors")) {
        CHECK(!"solvers.safetensors opens");
        return;
    }
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        char name[96];
        size_t count, grid_count, want_count;
        float* start = values_of(&set, "input.x0", &count);
        snprintf(name, sizeof name, "input.grid.%s", cases[k].grid);
        float* sigmas = values_of(&set, name, &grid_count);
        snprintf(name, sizeof name, "expect.%s", cases[k].expect);
        float* want = values_of(&set, name, &want_count);
        CHECK_NUMBER(grid_count, 9);
        CHECK_NUMBER(want_count, 8 * count);
        double x[64];
        for (size_t i = 0; i < count; i++) x[i] = (double)start[i];
        comparison c = {.want = want};
        solve(cases[k].solver, sigmas, 8, newbie_field, x, count, compare_step, &c);
        for (int s = 0; s < cases[k].steps; s++) {
            double error = sqrt(c.off[s] / c.norm[s]);
            if (!(error < 1e-6)) printf("  %s step %d: relative error %g\n", cases[k].expect, s, error);
            CHECK(error < 1e-6);
        }
        // so the exception above is real
        if (cases[k].solver == SUMI_SOLVER_HEUN) CHECK(sqrt(c.off[7] / c.norm[7]) > 1e-5);
        free(start);
        free(sigmas);
        free(want);
    }
    sumi_tensor_set_close(&set);
}

// Gaussian data of mean M and deviation C: x(sigma) = (1 - sigma) M + z sqrt((1 - sigma)^2 C^2 + sigma^2) solves the
// flow exactly.
static const double M = 0.7, C = 0.4;
static double gaussian_variance(double sigma) { return (1 - sigma) * (1 - sigma) * C * C + sigma * sigma; }
static double gaussian_field(double x, double sigma)
{
    return -M + (sigma - (1 - sigma) * C * C) / gaussian_variance(sigma) * (x - (1 - sigma) * M);
}

// Worst error at sigma = 0 over three trajectories, all `steps` from sigma = 1.
static double gaussian_error(sumi_solver solver, int32_t steps)
{
    static const double z[3] = {-1.1, 0.6, 1.9};
    float sigmas[SUMI_SCHEDULE_MAX_STEPS + 1];
    shifted(1.0f, steps, sigmas);
    double x[3], error = 0;
    for (int i = 0; i < 3; i++) x[i] = z[i] * sqrt(gaussian_variance(1.0));
    solve(solver, sigmas, steps, gaussian_field, x, 3, NULL, NULL);
    for (int i = 0; i < 3; i++) error = fmax(error, fabs(x[i] - (M + z[i] * C)));
    return error;
}

// The same on the recorded field between two inner noise levels, against many small steps of the classic Runge-Kutta
// method.
static double inner_error(sumi_solver solver, int32_t steps)
{
    static const double from = 0.9375, to = 0.0625;
    float sigmas[SUMI_SCHEDULE_MAX_STEPS + 1];
    for (int32_t i = 0; i <= steps; i++) sigmas[i] = (float)(from + (to - from) * i / steps);
    double x[3] = {-1.3, 0.3, 1.9}, want[3], error = 0, d = (to - from) / 2000;
    for (int i = 0; i < 3; i++) {
        double w = x[i];
        for (int k = 0; k < 2000; k++) {
            double s = from + d * k, k1 = newbie_field(w, s), k2 = newbie_field(w + d / 2 * k1, s + d / 2),
                   k3 = newbie_field(w + d / 2 * k2, s + d / 2);
            w += d / 6 * (k1 + 2 * k2 + 2 * k3 + newbie_field(w + d * k3, s + d));
        }
        want[i] = w;
    }
    solve(solver, sigmas, steps, newbie_field, x, 3, NULL, NULL);
    for (int i = 0; i < 3; i++) error += (x[i] - want[i]) * (x[i] - want[i]);
    return sqrt(error);
}

TEST(solvers_converge_with_their_order)
{
    static const struct {
        sumi_solver solver;
        int32_t steps;
    } cases[] = {
        {SUMI_SOLVER_EULER, 128},    {SUMI_SOLVER_HEUN, 64},      {SUMI_SOLVER_MIDPOINT, 64},
        {SUMI_SOLVER_DPMPP_2M, 128}, {SUMI_SOLVER_HEUN_FULL, 64}, {SUMI_SOLVER_RES_MULTISTEP, 128},
        {SUMI_SOLVER_RK4, 8},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        double coarse = inner_error(cases[k].solver, cases[k].steps),
               fine = inner_error(cases[k].solver, 2 * cases[k].steps);
        if (fabs(log2(coarse / fine) - sumi_solver_order(cases[k].solver)) > 0.2)
            printf("  solver %d: error %.3g, then %.3g with twice the steps\n", (int)cases[k].solver, coarse, fine);
        CHECK_NEAR(log2(coarse / fine), sumi_solver_order(cases[k].solver), 0.2, 0);
    }
}

// Down to sigma = 0 the multistep solvers' error is N^-2 log N (every step near the end halves sigma, however many
// there are), so the order seen at these lengths is below 2; the one-step solvers have their own.
TEST(solvers_reach_the_exact_solution_over_a_whole_schedule)
{
    static const struct {
        sumi_solver solver;
        double error, order;
    } cases[] = {
        {SUMI_SOLVER_EULER, 0.006, 0.95},   {SUMI_SOLVER_HEUN, 4e-5, 1.9},     {SUMI_SOLVER_MIDPOINT, 1e-6, 1.9},
        {SUMI_SOLVER_HEUN_FULL, 2e-5, 1.9}, {SUMI_SOLVER_DPMPP_2M, 3e-4, 1.6}, {SUMI_SOLVER_RES_MULTISTEP, 4e-4, 1.6},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        double coarse = gaussian_error(cases[k].solver, 128), fine = gaussian_error(cases[k].solver, 256);
        if (!(fine < cases[k].error && log2(coarse / fine) > cases[k].order))
            printf("  solver %d: error %.3g, then %.3g\n", (int)cases[k].solver, coarse, fine);
        CHECK(fine < cases[k].error);
        CHECK(log2(coarse / fine) > cases[k].order);
    }
    CHECK(gaussian_error(SUMI_SOLVER_RK4, 64) < 1e-6);
}

static double constant_field(double x, double sigma) { return (void)x, (void)sigma, -1.5; }

TEST(solvers_are_exact_on_a_constant_velocity)
{
    static const sumi_solver solvers[] = {SUMI_SOLVER_EULER,        SUMI_SOLVER_HEUN, SUMI_SOLVER_MIDPOINT,
                                          SUMI_SOLVER_HEUN_FULL,    SUMI_SOLVER_RK4,  SUMI_SOLVER_DPMPP_2M,
                                          SUMI_SOLVER_RES_MULTISTEP};
    for (size_t k = 0; k < 7; k++)
        for (int32_t steps = 1; steps <= 9; steps++) {
            float sigmas[10];
            shifted(3.0f, steps, sigmas);
            // data estimates x - sigma v differ from step to step only in rounding, so multistep solvers must not move
            // either
            double x = 2.0;
            solve(solvers[k], sigmas, steps, constant_field, &x, 1, NULL, NULL);
            CHECK_NEAR(x, 3.5, 2e-6, 0);
        }
}

TEST(solver_rows_keep_their_promises)
{
    static const sumi_solver solvers[] = {SUMI_SOLVER_EULER,        SUMI_SOLVER_HEUN,      SUMI_SOLVER_MIDPOINT,
                                          SUMI_SOLVER_DPMPP_2M,     SUMI_SOLVER_HEUN_FULL, SUMI_SOLVER_RK4,
                                          SUMI_SOLVER_RES_MULTISTEP};
    static const int32_t counts[] = {8, 15, 16, 8, 16, 32, 8};
    static sumi_solver_row rows[MOST_ROWS];
    for (size_t k = 0; k < 7; k++)
        for (int end = 0; end < 2; end++) {
            float sigmas[9];
            shifted(6.0f, 8, sigmas);
            if (end == 1) sigmas[8] = 0.05f; // a caller's table may stop early
            int32_t n = sumi_solver_rows(solvers[k], sigmas, 8, rows);
            CHECK_NUMBER(n, sumi_solver_evaluations(solvers[k], sigmas, 8));
            if (end == 0) CHECK_NUMBER(n, counts[k]);
            CHECK(sumi_solver_known(solvers[k]));
            CHECK(n <= 8 * sumi_solver_most_rows(solvers[k]) && n > 8 * (sumi_solver_most_rows(solvers[k]) - 1));
            int32_t step = 0;
            for (int32_t r = 0; r < n; r++) {
                const float* f = &rows[r].cx;
                for (int i = 0; i < 7; i++) CHECK(isfinite(f[i]));
                CHECK_NUMBER(rows[r].step, step);
                CHECK(rows[r].guidance == 0.0f);
                CHECK(rows[r].sigma <= sigmas[step] && rows[r].sigma >= sigmas[step + 1]);
                if (rows[r].keeps == 0.0f) { // ends a step
                    CHECK(rows[r].blend_sigma == sigmas[step + 1]);
                    step++;
                } else {
                    CHECK(rows[r].keeps == 1.0f && rows[r].blend_sigma < 0.0f);
                }
            }
            CHECK_NUMBER(step, 8);
        }
    float sigmas[3] = {1.0f, 0.5f, 0.0f};
    CHECK_NUMBER(sumi_solver_rows((sumi_solver)17, sigmas, 2, rows), 0);
    CHECK_NUMBER(sumi_solver_evaluations((sumi_solver)17, sigmas, 2), 0);
    CHECK(!sumi_solver_known((sumi_solver)17) && !sumi_solver_known((sumi_solver)-1)
          && !sumi_solver_known((sumi_solver)7));
    CHECK_NUMBER(sumi_solver_most_rows((sumi_solver)17), 0);
    CHECK(SUMI_SOLVER_HEUN_FULL == 4 && SUMI_SOLVER_RK4 == 5 && SUMI_SOLVER_RES_MULTISTEP == 6); // stable
    CHECK_NUMBER(sumi_solver_rows(SUMI_SOLVER_EULER, sigmas, 0, rows), 0);
}

TEST(euler_uses_the_float_step_of_the_reference)
{
    float sigmas[9];
    sumi_solver_row rows[8];
    shifted(3.0f, 8, sigmas);
    sumi_solver_rows(SUMI_SOLVER_EULER, sigmas, 8, rows);
    for (int i = 0; i < 8; i++) {
        float d = sigmas[i + 1] - sigmas[i];
        CHECK(same_float(rows[i].cv, d) && rows[i].cx == 1.0f && rows[i].cy == 0.0f && rows[i].ch == 0.0f);
    }
    CHECK_NEAR((double)rows[3].cv, -0.08333331, 1e-8, 0);
}

// ---- Pixels ---------------------------------------------------------------------------------------------------------

typedef struct picture {
    uint8_t* data;
    int32_t width, height;
} picture;

static picture read_png(const char* path) // RGB
{
    picture p = {0};
    FILE* file = fopen(path, "rb");
    if (file == NULL) return p;
    spng_ctx* png = spng_ctx_new(0);
    struct spng_ihdr header;
    size_t bytes;
    spng_set_png_file(png, file);
    if (spng_get_ihdr(png, &header) == 0 && spng_decoded_image_size(png, SPNG_FMT_RGB8, &bytes) == 0) {
        p.data = malloc(bytes);
        p.width = (int32_t)header.width;
        p.height = (int32_t)header.height;
        if (spng_decode_image(png, p.data, bytes, SPNG_FMT_RGB8, 0) != 0) {
            free(p.data);
            p.data = NULL;
        }
    }
    spng_ctx_free(png);
    fclose(file);
    return p;
}

TEST(resize_equals_pillow_bit_for_bit)
{
    int compared = 0;
    for (int k = 0; k < 32; k++)
        for (int filter = 0; filter < 2; filter++) {
            char path[128];
            snprintf(path, sizeof path, "tests/golden/qwen-image/cases/resize.%d.in.png", k);
            picture in = read_png(path);
            if (in.data == NULL) continue; // past the last one: the count below notices
            snprintf(path, sizeof path, "tests/golden/qwen-image/cases/resize.%d.%s.png", k,
                     filter ? "lanczos" : "bicubic");
            picture want = read_png(path);
            CHECK(want.data != NULL);
            if (want.data != NULL) {
                size_t bytes = 3 * (size_t)want.width * (size_t)want.height;
                uint8_t* got = malloc(bytes);
                sumi_error error = {0};
                CHECK_NUMBER(sumi_pixels_resize(&t_heap, in.data, in.width, in.height, 3 * in.width, 3, got, want.width,
                                                want.height, filter ? SUMI_FILTER_LANCZOS : SUMI_FILTER_BICUBIC,
                                                &error),
                             SUMI_OK);
                CHECK(memcmp(got, want.data, bytes) == 0);
                compared++;
                free(got);
            }
            free(in.data);
            free(want.data);
        }
    CHECK(compared >= 14);
}

// Rows far apart, and each channel as if alone: 1, 2 and 4 channels agree with what 3 give.
TEST(resize_treats_channels_alone_and_minds_row_bytes)
{
    enum { W = 23, H = 17, NW = 9, NH = 31 };
    uint8_t source[H * (4 * W + 13)], one[H * W], expected[NW * NH], got[4 * NW * NH];
    uint32_t x = 1;
    for (size_t i = 0; i < sizeof source; i++) source[i] = (uint8_t)((x = x * 1664525u + 1013904223u) >> 24);
    for (int32_t channels = 1; channels <= 4; channels++)
        for (int32_t c = 0; c < channels; c++) {
            for (int y = 0; y < H; y++)
                for (int i = 0; i < W; i++) one[y * W + i] = source[y * (4 * W + 13) + i * channels + c];
            CHECK_NUMBER(sumi_pixels_resize(&t_heap, one, W, H, W, 1, expected, NW, NH, SUMI_FILTER_LANCZOS, NULL),
                         SUMI_OK);
            CHECK_NUMBER(
                sumi_pixels_resize(&t_heap, source, W, H, 4 * W + 13, channels, got, NW, NH, SUMI_FILTER_LANCZOS, NULL),
                SUMI_OK);
            int wrong = 0;
            for (int i = 0; i < NW * NH; i++) wrong += got[i * channels + c] != expected[i];
            CHECK_NUMBER(wrong, 0);
        }
    uint8_t copy[4 * W * H];
    CHECK_NUMBER(sumi_pixels_resize(&t_heap, source, W, H, 4 * W + 13, 4, copy, W, H, SUMI_FILTER_LANCZOS, NULL),
                 SUMI_OK);
    for (int y = 0; y < H; y++) CHECK(memcmp(copy + y * 4 * W, source + y * (4 * W + 13), 4 * W) == 0);
}

TEST(resize_keeps_flat_pictures_flat)
{
    static const int32_t sizes[] = {1, 2, 3, 7, 64, 200};
    for (int a = 0; a < 6; a++)
        for (int b = 0; b < 6; b++)
            for (int f = 0; f < 2; f++) {
                uint8_t* in = malloc((size_t)sizes[a] * 3);
                uint8_t* out = malloc((size_t)sizes[b] * 5);
                memset(in, f ? 255 : 93, (size_t)sizes[a] * 3);
                CHECK_NUMBER(sumi_pixels_resize(&t_heap, in, sizes[a], 3, sizes[a], 1, out, sizes[b], 5,
                                                f ? SUMI_FILTER_LANCZOS : SUMI_FILTER_BICUBIC, NULL),
                             SUMI_OK);
                int wrong = 0;
                for (int i = 0; i < sizes[b] * 5; i++) wrong += out[i] != (f ? 255 : 93);
                CHECK_NUMBER(wrong, 0);
                free(in);
                free(out);
            }
}

// Chamfer distances in pieces of any height; opacity grows from the edge inwards.
TEST(distances_to_what_a_mask_keeps)
{
    enum { WIDTH = 23, HEIGHT = 17, COUNT = WIDTH * HEIGHT };
    uint8_t mask[COUNT], opacity[COUNT];
    uint16_t whole[COUNT], pieces[COUNT];
    for (int i = 0; i < COUNT; i++) mask[i] = (i * 7 % 31 != 0) && i % WIDTH != 4;
    sumi_mask_distances(mask, WIDTH, HEIGHT, 0, HEIGHT, false, whole);
    sumi_mask_distances(mask, WIDTH, HEIGHT, 0, HEIGHT, true, whole);
    for (int rows = 1; rows <= HEIGHT; rows++) {
        for (int y = 0; y < HEIGHT; y += rows)
            sumi_mask_distances(mask, WIDTH, HEIGHT, y, y + rows < HEIGHT ? y + rows : HEIGHT, false, pieces);
        for (int y = HEIGHT; y > 0; y -= rows)
            sumi_mask_distances(mask, WIDTH, HEIGHT, y > rows ? y - rows : 0, y, true, pieces);
        CHECK(memcmp(whole, pieces, sizeof whole) == 0);
    }
    for (int i = 0; i < COUNT; i++) { // by its definition
        int least = SUMI_FAR;
        for (int k = 0; k < COUNT; k++) {
            const int across = abs(i % WIDTH - k % WIDTH), down = abs(i / WIDTH - k / WIDTH),
                      far = 3 * (across > down ? across : down) + (across < down ? across : down);
            if (mask[k] == 0 && far < least) least = far;
        }
        CHECK_NUMBER(whole[i], least);
    }
    for (int feather = 0; feather < 5; feather++) {
        sumi_mask_opacity(mask, feather > 0 ? whole : NULL, COUNT, feather, opacity);
        for (int i = 0; i < COUNT; i++) {
            CHECK_NUMBER(opacity[i], mask[i] == 0                              ? 0
                                     : feather == 0 || whole[i] >= 3 * feather ? 255
                                                                               : 255 * whole[i] / (3 * feather));
        }
    }
    memset(mask, 1, sizeof mask); // nothing is kept
    sumi_mask_distances(mask, WIDTH, HEIGHT, 0, HEIGHT, false, whole);
    sumi_mask_distances(mask, WIDTH, HEIGHT, 0, HEIGHT, true, whole);
    sumi_mask_opacity(mask, whole, COUNT, 4, opacity);
    for (int i = 0; i < COUNT; i++) CHECK(whole[i] == SUMI_FAR && opacity[i] == 255);
}

TEST(picture_and_mask_are_prepared_as_the_reference_does)
{
    sumi_tensor_set set;
    if (!open_set(&set, "tests/golden/z-image/cases/image_preprocess.safetensors")) {
        CHECK(!"image_preprocess.safetensors opens");
        return;
    }
    const sumi_tensor *image = sumi_tensor_find(&set, "input.image"), *mask = sumi_tensor_find(&set, "input.mask");
    const sumi_tensor *want = sumi_tensor_find(&set, "expect.image_u8"),
                      *want_mask = sumi_tensor_find(&set, "expect.mask"),
                      *want_latent = sumi_tensor_find(&set, "expect.mask_latent");
    CHECK(image && mask && want && want_mask && want_latent);
    if (image && mask && want && want_mask && want_latent) {
        int32_t w = (int32_t)image->shape[1], h = (int32_t)image->shape[0], nw = (int32_t)want->shape[1],
                nh = (int32_t)want->shape[0];
        size_t count = (size_t)nw * (size_t)nh;
        uint8_t *rgb = malloc(3 * count), *binary = malloc(count);
        float* latent = malloc(count / 64 * sizeof *latent);
        CHECK_NUMBER(sumi_pixels_to_rgb(&t_heap, &(sumi_pixels){image->data, w, h, 3 * w, 3}, nw, nh, rgb, NULL),
                     SUMI_OK);
        CHECK(memcmp(rgb, want->data, 3 * count) == 0);
        CHECK_NUMBER(sumi_pixels_to_mask(&t_heap, &(sumi_pixels){mask->data, w, h, w, 1}, nw, nh, binary, latent, NULL),
                     SUMI_OK);
        CHECK(memcmp(binary, want_mask->data, count) == 0);
        int wrong = 0;
        for (size_t i = 0; i < count / 64; i++) wrong += latent[i] != (float)((const uint8_t*)want_latent->data)[i];
        CHECK_NUMBER(wrong, 0);

        // RGBA with any alpha is the same picture; an RGB mask of equal channels and an opaque RGBA one are the grey
        // mask.
        uint8_t *four = malloc(4 * (size_t)w * (size_t)h), *grey_rgb = malloc(3 * (size_t)w * (size_t)h),
                *again = malloc(3 * count);
        const uint8_t *from = image->data, *grey = mask->data;
        for (size_t i = 0; i < (size_t)w * (size_t)h; i++)
            memcpy(four + 4 * i, from + 3 * i, 3), four[4 * i + 3] = (uint8_t)(i * 7);
        CHECK_NUMBER(sumi_pixels_to_rgb(&t_heap, &(sumi_pixels){four, w, h, 4 * w, 4}, nw, nh, again, NULL), SUMI_OK);
        CHECK(memcmp(rgb, again, 3 * count) == 0);
        for (size_t i = 0; i < (size_t)w * (size_t)h; i++) {
            memset(grey_rgb + 3 * i, grey[i], 3);
            memset(four + 4 * i, grey[i], 3);
            four[4 * i + 3] = 255;
        }
        CHECK_NUMBER(sumi_pixels_to_mask(&t_heap, &(sumi_pixels){grey_rgb, w, h, 3 * w, 3}, nw, nh, again, NULL, NULL),
                     SUMI_OK);
        CHECK(memcmp(binary, again, count) == 0);
        CHECK_NUMBER(sumi_pixels_to_mask(&t_heap, &(sumi_pixels){four, w, h, 4 * w, 4}, nw, nh, again, NULL, NULL),
                     SUMI_OK);
        CHECK(memcmp(binary, again, count) == 0);
        // A grey picture equals the RGB picture of equal channels.
        uint8_t* repeated = malloc(3 * count);
        CHECK_NUMBER(sumi_pixels_to_rgb(&t_heap, &(sumi_pixels){mask->data, w, h, w, 1}, nw, nh, again, NULL), SUMI_OK);
        CHECK_NUMBER(sumi_pixels_to_rgb(&t_heap, &(sumi_pixels){grey_rgb, w, h, 3 * w, 3}, nw, nh, repeated, NULL),
                     SUMI_OK);
        CHECK(memcmp(repeated, again, 3 * count) == 0);
        free(four), free(grey_rgb), free(again), free(repeated), free(rgb), free(binary), free(latent);
    }
    sumi_tensor_set_close(&set);
}

TEST(mask_threshold_and_luma_are_pillows)
{
    // 127 keeps, 128 repaints; luma of pure colours 76, 150, 29; green 219 gives 129, 216 gives 127.
    static const uint8_t grey[] = {127, 128, 0, 255};
    static const uint8_t rgb[] = {255, 0, 0, 0, 255, 0, 0, 219, 0, 0, 216, 0};
    static const uint8_t rgba[] = {255, 255, 255, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 255, 0, 3};
    uint8_t mask[4];
    CHECK_NUMBER(sumi_pixels_to_mask(&t_heap, &(sumi_pixels){grey, 4, 1, 4, 1}, 4, 1, mask, NULL, NULL), SUMI_OK);
    CHECK(memcmp(mask, (uint8_t[]){0, 1, 0, 1}, 4) == 0);
    CHECK_NUMBER(sumi_pixels_to_mask(&t_heap, &(sumi_pixels){rgb, 4, 1, 12, 3}, 4, 1, mask, NULL, NULL), SUMI_OK);
    CHECK(memcmp(mask, (uint8_t[]){0, 1, 1, 0}, 4) == 0);
    CHECK_NUMBER(sumi_pixels_to_mask(&t_heap, &(sumi_pixels){rgba, 4, 1, 16, 4}, 4, 1, mask, NULL, NULL), SUMI_OK);
    CHECK(memcmp(mask, (uint8_t[]){1, 1, 0, 1}, 4) == 0);
}

TEST(pixels_refuse_hostile_sizes_and_say_why)
{
    static const uint8_t data[64] = {0};
    static const sumi_pixels bad[] = {
        {NULL, 4, 4, 4, 1},
        {data, 0, 4, 4, 1},
        {data, 4, 0, 4, 1},
        {data, -4, 4, 4, 1},
        {data, 4, INT32_MIN, 4, 1},
        {data, 32769, 1, INT32_MAX, 1},
        {data, INT32_MAX, 1, INT32_MAX, 4},
        {data, 4, 4, 3, 1},
        {data, 4, 4, 11, 3},
        {data, 4, 4, 0, 1},
        {data, 4, 4, -16, 4},
        {data, 4, 4, 16, 2},
        {data, 4, 4, 16, 0},
        {data, 4, 4, 16, -1},
        {data, 4, 4, 64, 5},
    };
    uint8_t out[64 * 3];
    float latent[4];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        sumi_error error = {0};
        CHECK_NUMBER(sumi_pixels_check(&bad[i], "the start image", &error), SUMI_INVALID_ARGUMENT);
        CHECK(strstr(error.text, "the start image") != NULL);
        error = (sumi_error){0};
        CHECK_NUMBER(sumi_pixels_to_rgb(&t_heap, &bad[i], 8, 8, out, &error), SUMI_INVALID_ARGUMENT);
        CHECK(strlen(error.text) > 20);
        error = (sumi_error){0};
        CHECK_NUMBER(sumi_pixels_to_mask(&t_heap, &bad[i], 8, 8, out, latent, &error), SUMI_INVALID_ARGUMENT);
        CHECK(strlen(error.text) > 20);
    }
    const sumi_pixels good = {data, 4, 4, 4, 1};
    static const int32_t sizes[][2] = {{0, 8}, {8, 0}, {-1, 8}, {8, INT32_MIN}, {32769, 8}, {8, INT32_MAX}};
    for (size_t i = 0; i < 6; i++) {
        sumi_error error = {0};
        CHECK_NUMBER(sumi_pixels_to_rgb(&t_heap, &good, sizes[i][0], sizes[i][1], out, &error), SUMI_INVALID_ARGUMENT);
        CHECK(error.text[0] != 0);
        CHECK_NUMBER(sumi_pixels_to_mask(&t_heap, &good, sizes[i][0], sizes[i][1], out, latent, NULL),
                     SUMI_INVALID_ARGUMENT);
        CHECK_NUMBER(
            sumi_pixels_resize(&t_heap, data, 4, 4, 4, 1, out, sizes[i][0], sizes[i][1], SUMI_FILTER_LANCZOS, NULL),
            SUMI_INVALID_ARGUMENT);
    }
    CHECK_NUMBER(sumi_pixels_to_rgb(&t_heap, NULL, 8, 8, out, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_pixels_to_rgb(&t_heap, &good, 8, 8, NULL, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_pixels_to_mask(&t_heap, &good, 8, 8, NULL, NULL, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_pixels_resize(&t_heap, data, 4, 4, 4, 1, NULL, 8, 8, SUMI_FILTER_LANCZOS, NULL),
                 SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_pixels_resize(&t_heap, data, 4, 4, 4, 1, out, 8, 8, (sumi_filter)9, NULL), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_pixels_to_mask(&t_heap, &good, 7, 7, out, latent, NULL), SUMI_OK); // no latent pixel at all
}

TEST(pixels_survive_every_failing_allocation)
{
    uint8_t data[40 * 30 * 4], out[3 * 16 * 16];
    float latent[4];
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 31);
    for (int what = 0; what < 7; what++) {
        long n = 0;
        for (sumi_result result = SUMI_OUT_OF_HOST_MEMORY; result != SUMI_OK && n < 50; n++) {
            failing f = {.left = n};
            sumi_heap heap;
            sumi_error error = {0};
            const sumi_allocator allocator = failing_allocator(&f);
            sumi_heap_init(&heap, &allocator);
            int32_t channels = what % 3 == 0 ? 1 : what % 3 == 1 ? 3 : 4;
            const sumi_pixels p = {data, 40, 30, 40 * channels, channels};
            if (what < 3) result = sumi_pixels_to_rgb(&heap, &p, 16, 16, out, &error);
            else if (what < 6) result = sumi_pixels_to_mask(&heap, &p, 16, 16, out, latent, &error);
            else result = sumi_pixels_to_rgb(&heap, &p, 40, 6, out, &error);
            CHECK_NUMBER(f.held, 0);
            CHECK(result == SUMI_OK || (result == SUMI_OUT_OF_HOST_MEMORY && error.text[0] != 0));
        }
        CHECK(n > 1 && n < 50);
    }
}

TEST(unit_values_round_half_to_even)
{
    CHECK_NUMBER(sumi_pixel_from_unit(-1.0f), 0);
    CHECK_NUMBER(sumi_pixel_from_unit(1.0f), 255);
    CHECK_NUMBER(sumi_pixel_from_unit(-7.0f), 0);
    CHECK_NUMBER(sumi_pixel_from_unit(INFINITY), 255);
    CHECK_NUMBER(sumi_pixel_from_unit(-INFINITY), 0);
    CHECK_NUMBER(sumi_pixel_from_unit(NAN), 0);
    CHECK_NUMBER(sumi_pixel_from_unit(0.0f), 128); // 127.5 to even
    int wrong = 0, ties = 0;
    for (int i = -70000; i <= 70000; i++) {
        float value = (float)i / 65536.0f, unit = value * 0.5f + 0.5f;
        unit = unit < 0.0f ? 0.0f : unit > 1.0f ? 1.0f : unit;
        float scaled = unit * 255.0f;
        ties += scaled - floorf(scaled) == 0.5f;
        wrong += sumi_pixel_from_unit(value) != (int)rintf(scaled);
    }
    CHECK_NUMBER(wrong, 0);
    CHECK(ties > 0);
    float planes[3 * 37];
    uint8_t rgba[4 * 37];
    for (int i = 0; i < 3 * 37; i++) planes[i] = (float)(i % 23) * 0.1f - 1.1f;
    planes[40] = NAN;
    sumi_planes_to_rgba(planes, 37, rgba);
    for (int i = 0; i < 37; i++) {
        for (int c = 0; c < 3; c++) CHECK_NUMBER(rgba[4 * i + c], sumi_pixel_from_unit(planes[c * 37 + i]));
        CHECK_NUMBER(rgba[4 * i + 3], 255);
    }
}

TEST(preview_factors_give_the_recorded_preview)
{
    sumi_tensor_set set;
    if (!open_set(&set, "tests/golden/z-image/cases/turbo_t2i.safetensors")) {
        CHECK(!"turbo_t2i.safetensors opens");
        return;
    }
    const sumi_preview_factors* p = sumi_preview_flux();
    size_t latent_count, rgb_count;
    float* latents = values_of(&set, "expect.latents", &latent_count); // [step][16][h][w]
    float* rgb = values_of(&set, "expect.preview_rgb_of_latents", &rgb_count);
    CHECK(latents != NULL && rgb != NULL && latent_count * 3 == rgb_count * 16);
    CHECK_NUMBER(p->channel_count, 16);
    const sumi_tensor* shape = sumi_tensor_find(&set, "expect.latents");
    size_t plane = shape ? (size_t)(shape->shape[2] * shape->shape[3]) : 0;
    for (size_t s = 0; latents != NULL && rgb != NULL && s < (size_t)shape->shape[0]; s++)
        for (size_t i = 0; i < plane; i++)
            for (size_t k = 0; k < 3; k++) {
                double sum = (double)p->bias[k];
                for (size_t c = 0; c < 16; c++)
                    sum += (double)p->factors[c][k] * (double)latents[(s * 16 + c) * plane + i];
                CHECK_NEAR(sum, (double)rgb[(s * 3 + k) * plane + i], 2e-6, 1e-5);
            }
    free(latents);
    free(rgb);
    sumi_tensor_set_close(&set);
    CHECK(sumi_preview_wan()->channel_count == 16 && sumi_preview_wan()->factors[7][1] == 0.1902f);
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

TEST(deadline_picks_the_most_steps_that_fit)
{
    CHECK_NUMBER(sumi_deadline_steps(0.5, 1.0, 5.0, 1, 50, 1), 8);
    CHECK_NUMBER(sumi_deadline_steps(0.5, 1.0, 5.0, 1, 50, 2), 4); // with guidance
    CHECK_NUMBER(sumi_deadline_steps(0.1, 0.0, 0.3, 1, 50, 1), 3); // though 0.3 / 0.1 is below 3 in binary
    CHECK_NUMBER(sumi_deadline_steps(0.5, 1.0, 500.0, 1, 8, 1), 8);
    CHECK_NUMBER(sumi_deadline_steps(0.5, 10.0, 5.0, 2, 8, 1), 2); // cannot be met
    CHECK_NUMBER(sumi_deadline_steps(0.5, 1.0, 0.0, 1, 8, 1), 8);  // none given
    CHECK_NUMBER(sumi_deadline_steps(0.0, 1.0, 5.0, 1, 8, 1), 8);  // no speed known
    CHECK_NUMBER(sumi_deadline_steps((double)NAN, 1.0, 5.0, 1, 8, 1), 8);
    CHECK_NUMBER(sumi_deadline_steps((double)INFINITY, 1.0, 5.0, 1, 8, 1), 8);
    CHECK_NUMBER(sumi_deadline_steps(0.5, (double)NAN, 5.0, 1, 8, 1), 8);
    CHECK_NUMBER(sumi_deadline_steps(1e-300, 1.0, 5.0, 1, 8, 1), 8);
    CHECK_NUMBER(sumi_deadline_steps(0.5, 1.0, 5.0, 6, 3, 1), 6);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&t_heap, NULL);
    RUN(cpu_noise_equals_torch_bit_for_bit);
    RUN(cpu_noise_equals_torch_bit_for_bit_without_avx2);
    RUN(cpu_noise_lanes_give_the_bits_of_portable_code);
    RUN(cpu_noise_ignores_the_high_half_of_the_seed);
    RUN(cpu_noise_of_nothing_draws_nothing);
    RUN(bf16_noise_is_rounded_float32_noise_for_whole_groups);
    RUN(cuda_noise_is_within_tolerance_of_recorded_draws);
    RUN(cuda_noise_depends_on_the_card_only_beyond_its_threads);
    RUN(cuda_noise_survives_impossible_cards);
    RUN(shifted_schedule_equals_reference_bit_for_bit);
    RUN(grids_equal_those_of_newbie_references);
    RUN(dynamic_schedule_equals_qwen_image_reference);
    RUN(schedules_handle_one_step_linear_shift_and_terminals);
    RUN(schedules_of_no_steps_write_nothing);
    RUN(sigma_rules_that_make_no_schedule_are_refused);
    RUN(schedule_check_refuses_bad_tables_and_says_why);
    RUN(image_to_image_starts_where_the_reference_starts);
    RUN(image_to_image_start_is_safe_at_the_ends);
    RUN(solvers_follow_recorded_trajectories);
    RUN(solvers_converge_with_their_order);
    RUN(solvers_reach_the_exact_solution_over_a_whole_schedule);
    RUN(solvers_are_exact_on_a_constant_velocity);
    RUN(solver_rows_keep_their_promises);
    RUN(euler_uses_the_float_step_of_the_reference);
    RUN(resize_equals_pillow_bit_for_bit);
    RUN(resize_treats_channels_alone_and_minds_row_bytes);
    RUN(resize_keeps_flat_pictures_flat);
    RUN(distances_to_what_a_mask_keeps);
    RUN(picture_and_mask_are_prepared_as_the_reference_does);
    RUN(mask_threshold_and_luma_are_pillows);
    RUN(pixels_refuse_hostile_sizes_and_say_why);
    RUN(pixels_survive_every_failing_allocation);
    RUN(unit_values_round_half_to_even);
    RUN(preview_factors_give_the_recorded_preview);
    RUN(presets_get_their_share_of_a_checkpoints_size);
    RUN(deadline_picks_the_most_steps_that_fit);
    TEST_END();
}
