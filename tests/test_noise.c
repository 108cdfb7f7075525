// Noise is PyTorch's: its generator for processors bit for bit, the one for GPUs within a tolerance.
#include "at_once.h"
#include "base/file.h"
#include "files/json.h"
#include "files/tensors.h"
#include "number_formats.h"
#include "recorded_values.h"
#include "sampling/noise.h"

// ---- Helpers --------------------------------------------------------------------------------------------------------

static void json_copy(sumi_json* json, char* into, size_t bytes)
{
    sumi_json_text text = {0};
    into[0] = 0;
    if (!sumi_json_string(json, &text)) return;
    size_t n = sumi_json_decode(&text, into, bytes - 1);
    into[n < bytes ? n : 0] = 0;
}

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
        for (size_t i = 0; i < count; i++) into[i] = sumi_f16_to_float(float_to_f16(into[i]));
    } else {
        sumi_torch_cpu_randn(g, into, count);
    }
}

// With at most so many lanes, as a CPU with fewer instructions has them.
static void check_cpu_rows(int32_t most_lanes)
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
                                if (g.lanes > most_lanes) g.lanes = most_lanes;
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

TEST(cpu_noise_equals_torch_bit_for_bit) { check_cpu_rows(16); }
TEST(cpu_noise_equals_torch_bit_for_bit_without_avx512) { check_cpu_rows(8); }
TEST(cpu_noise_equals_torch_bit_for_bit_without_avx2) { check_cpu_rows(1); }

// Of an even and of an odd number of groups of 16, and a rest.
TEST(cpu_noise_lanes_give_the_bits_of_portable_code)
{
    enum { N = 4 * 65536 + 5, MOST = N + 16 };
    float *a = malloc(MOST * sizeof *a), *b = malloc(MOST * sizeof *b);
    for (int32_t lanes = 16; lanes >= 8; lanes /= 2) {
        for (int n = N; n <= MOST; n += 16) {
            sumi_torch_cpu_generator g, h;
            sumi_torch_cpu_seed(&g, 987654321);
            sumi_torch_cpu_seed(&h, 987654321);
            if (g.lanes < lanes) {
                printf("  this CPU computes %d at once, not %d\n", (int)g.lanes, (int)lanes);
                break;
            }
            g.lanes = lanes;
            h.lanes = 1;
            sumi_torch_cpu_randn(&g, a, (size_t)n);
            sumi_torch_cpu_randn(&h, b, (size_t)n);
            CHECK(memcmp(a, b, (size_t)n * sizeof *a) == 0);
            CHECK(g.next == h.next && memcmp(g.state, h.state, sizeof g.state) == 0);
            double sum = 0, squares = 0;
            for (int i = 0; i < n; i++) sum += (double)a[i], squares += (double)a[i] * (double)a[i];
            CHECK_NEAR(sum / n, 0.0, 0.01, 0);
            CHECK_NEAR(squares / n, 1.0, 0.01, 0);
        }
    }
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
            torch_cuda_randn(&g, got, (size_t)count);
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
    torch_cuda_randn(&g, a, N);
    sumi_torch_cuda_seed(&g, 42, 128, 1536); // 196,608 threads
    torch_cuda_randn(&g, b, N);
    CHECK(memcmp(a, b, 196608 * sizeof *a) == 0);
    CHECK(memcmp(a + 196608, b + 196608, (N - 196608) * sizeof *a) != 0);
    static const double s_first[] = {0.1940, 2.1614, -0.1721, 0.8491, -1.9244, 0.6530, -0.6494, -0.8175};
    for (int i = 0; i < 8; i++) CHECK_NEAR((double)a[i], s_first[i], 5e-5, 0);
    free(a);
    free(b);
}

TEST(cuda_noise_survives_impossible_cards)
{
    float x[3000], y[3000];
    sumi_torch_cuda_generator g;
    sumi_torch_cuda_seed(&g, 1, 0, -5);
    torch_cuda_randn(&g, x, 3000);
    CHECK_NUMBER(g.offset, 12); // one block of 256 threads: 1024 values a round
    sumi_torch_cuda_seed(&g, 1, 1, 256);
    torch_cuda_randn(&g, y, 3000);
    CHECK(memcmp(x, y, sizeof x) == 0);
    sumi_torch_cuda_seed(&g, 1, INT32_MAX, INT32_MAX);
    torch_cuda_randn(&g, x, 3000);
    CHECK_NUMBER(g.offset, 4);
    torch_cuda_randn(&g, NULL, 0);
    CHECK_NUMBER(g.offset, 4);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(cpu_noise_equals_torch_bit_for_bit);
    RUN(cpu_noise_equals_torch_bit_for_bit_without_avx512);
    RUN(cpu_noise_equals_torch_bit_for_bit_without_avx2);
    RUN(cpu_noise_lanes_give_the_bits_of_portable_code);
    RUN(cpu_noise_ignores_the_high_half_of_the_seed);
    RUN(cpu_noise_of_nothing_draws_nothing);
    RUN(bf16_noise_is_rounded_float32_noise_for_whole_groups);
    RUN(cuda_noise_is_within_tolerance_of_recorded_draws);
    RUN(cuda_noise_depends_on_the_card_only_beyond_its_threads);
    RUN(cuda_noise_survives_impossible_cards);
    TEST_END();
}
