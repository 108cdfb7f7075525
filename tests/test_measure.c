// What sumi bench measures with (samples/shared/measure.h), on a fake driver, with a clock that the test turns:
// which formats are chosen for a card, that the limit of time holds on devices of any speed, and what failures leave
// behind.
#include "engine_fixture.h"
#ifdef SUMI_HAS_CUDA
#include "fake_clock.h"
#include "fake_cuda.h"
#include "measure.h"
#include "nvml.h"

static const sumi_weight_format s_all[] = {SUMI_WEIGHTS_BF16, SUMI_WEIGHTS_FP8, SUMI_WEIGHTS_INT8, SUMI_WEIGHTS_INT4};

// While a format is loaded, a thread of the engine loads kernels, and how far the fake clock turns meanwhile depends on the
// machine: the time that is measured then is a microsecond for each look. From the second text on it is the fake clock's.
static uint64_t s_passed_ns, s_began_ns;
static bool s_turns; // what is measured is the fake clock's

static uint64_t look_ns(void)
{
    if (s_turns) return s_passed_ns + (fake_clock_now_ns() - s_began_ns);
    return s_passed_ns += 1000;
}

static void stop_turning(void)
{
    s_passed_ns = look_ns();
    s_turns = false;
}

static void turn(int32_t row, const char* doing, void* user_data)
{
    (void)row;
    (void)user_data;
    if (strcmp(doing, "loading") == 0) {
        stop_turning();
    } else if (!s_turns) {
        s_began_ns = fake_clock_now_ns();
        s_turns = true;
    }
}

// Between two waits the thread that loads kernels gets the processor.
static bool yield(void* user_data)
{
    (void)user_data;
    if (!s_turns) __real_sumi_sleep_us(2000);
    return false;
}

// A tiny network on the fake device, whose kernels take so long.
static measure_desc tiny(int kernel_us, double seconds)
{
    static const fake_clock s_clock = {fake_clock_now_ns, fake_clock_pass_ns};
    fake_reset();
    fake_use_clock(&s_clock);
    fake_kernels_take(kernel_us);
    fake_clock_begin(1000);
    measure_desc desc = measure_defaults(&synthetic_tiny, SUMI_BACKEND_CUDA);
    desc.sides[0] = 64, desc.sides[1] = 128;
    desc.step_count = 2;
    desc.token_count = 40;
    desc.seconds = seconds;
    desc.clock_ns = look_ns;
    desc.tell = turn;
    desc.is_cancelled = yield;
    return desc;
}

static void end(void)
{
    stop_turning();
    fake_clock_end();
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
    fake_reset();
}

static bool has_values(const measure_values* v)
{
    return v->count > 0 && v->low > 0.0 && v->low <= v->median && v->median <= v->high;
}
static bool is_whole(const measure_row* row)
{
    bool whole = row->result == SUMI_OK && row->note[0] == 0 && row->load_seconds > 0.0 && has_values(&row->text);
    for (int32_t i = 0; i < MEASURE_SIDES; i++)
        whole = whole && has_values(&row->sides[i].step) && has_values(&row->sides[i].decode)
             && has_values(&row->sides[i].picture);
    return whole;
}

static void count_load(int32_t row, void* user_data) { ((int*)user_data)[row]++; }

TEST(every_format_has_a_whole_row)
{
    measure_row rows[MEASURE_FORMATS];
    measure_device device;
    char why[MEASURE_TEXT_BYTES];
    sumi_weight_format formats[MEASURE_FORMATS];
    int loads[MEASURE_FORMATS] = {0};
    measure_desc desc = tiny(1000, 120.0);
    desc.under_load = count_load;
    desc.user_data = loads;
    CHECK_NUMBER(measure_look(&desc, &device, why), SUMI_OK);
    CHECK_NUMBER(device.compute_capability, 90);
    CHECK(device.free_bytes > 0 && device.free_bytes <= device.device_bytes);
    CHECK_NUMBER(measure_choose(&desc, &device, formats), 4);
    CHECK_NUMBER(measure_all(&desc, formats, 4, rows), 4);
    for (int32_t i = 0; i < 4; i++) {
        CHECK_NUMBER(rows[i].weights, s_all[i]);
        CHECK(is_whole(&rows[i]));
        CHECK(rows[i].sides[1].picture.count >= 3);
        CHECK_NUMBER(loads[i], 1);
        CHECK(rows[i].weight_bytes > 0 && rows[i].memory_bytes > rows[i].weight_bytes && rows[i].streamed_bytes == 0);
    }
    CHECK(rows[0].weight_bytes > rows[1].weight_bytes && rows[1].weight_bytes > rows[3].weight_bytes);
    end();
}

// ---- Which formats --------------------------------------------------------------------------------------------------

TEST(formats_are_those_that_fit_the_card)
{
    static const struct {
        int32_t capability;
        double free_gb;
        const char* names;
    } s_cards[] = {{90, 84.0, "bf16 fp8 int8 int4"},
                   {89, 23.0, "bf16 fp8 int8 int4"},
                   {86, 23.0, "bf16 int8 int4"},
                   {120, 15.0, "fp8 int8 int4"},
                   {86, 11.4, "int8 int4"},
                   {89, 7.4, "int4"},
                   {89, 3.0, "int4"},
                   {0, 0.0, "bf16"}};
    const measure_desc desc = measure_defaults(&synthetic_z_image, SUMI_BACKEND_AUTO);
    for (size_t i = 0; i < sizeof s_cards / sizeof *s_cards; i++) {
        const measure_device device = {.compute_capability = s_cards[i].capability,
                                       .free_bytes = (uint64_t)(1e9 * s_cards[i].free_gb)};
        sumi_weight_format formats[MEASURE_FORMATS];
        char names[64] = "";
        const int32_t count = measure_choose(&desc, &device, formats);
        for (int32_t k = 0; k < count; k++) {
            if (k > 0) strcat(names, " ");
            strcat(names, synthetic_weights_name(formats[k]));
        }
        CHECK_TEXT(names, s_cards[i].names);
    }
}

// ---- The limit of time ----------------------------------------------------------------------------------------------

TEST(the_limit_of_time_holds_at_any_speed)
{
    static const struct {
        int kernel_us;
        double seconds;
        bool is_whole;
    } s_devices[] = {{20, 120.0, true}, {1000, 30.0, true}, {1000, 2.0, false}, {20000, 15.0, false}};
    for (size_t i = 0; i < sizeof s_devices / sizeof *s_devices; i++) {
        measure_row rows[MEASURE_FORMATS];
        const measure_desc desc = tiny(s_devices[i].kernel_us, s_devices[i].seconds);
        const uint64_t began = look_ns();
        CHECK_NUMBER(measure_all(&desc, s_all, 2, rows), 2);
        const double taken = 1e-9 * (double)(look_ns() - began);
        CHECK(taken <= desc.seconds);
        printf("  kernels of %d us: %.1f of %.0f s; text %d, pictures %d and %d times\n", s_devices[i].kernel_us, taken,
               desc.seconds, rows[0].text.count, rows[0].sides[0].picture.count, rows[0].sides[1].picture.count);
        CHECK(is_whole(&rows[0]) == s_devices[i].is_whole);
        for (int32_t k = 0; k < 2; k++) {
            CHECK(is_whole(&rows[k]) || (rows[k].note[0] != 0 && !s_devices[i].is_whole));
            CHECK(rows[k].result == SUMI_OK || rows[k].result == SUMI_TIMEOUT);
        }
        end();
    }
}

// A picture of so many steps is cancelled at the end of its share, and what a step takes is known all the same.
TEST(a_picture_that_takes_too_long_is_cut_short)
{
    measure_row rows[MEASURE_FORMATS];
    measure_desc desc = tiny(20, 1.0); // as predicted, so that no slice lasts much longer than it should
    desc.step_count = 1000;
    const uint64_t began = look_ns();
    CHECK_NUMBER(measure_all(&desc, s_all, 2, rows), 2);
    const double taken = 1e-9 * (double)(look_ns() - began);
    printf("  %.2f s of 1; a step %.1f ms\n", taken, 1e3 * rows[0].sides[0].step.median);
    CHECK(taken <= desc.seconds);
    for (int32_t i = 0; i < 2; i++) {
        CHECK_NUMBER(rows[i].result, SUMI_TIMEOUT);
        CHECK_TEXT(rows[i].note, "drawing 64x64 was not done in the time that there is (--seconds)");
        CHECK(rows[i].sides[0].step.count == 1 && rows[i].sides[0].step.median > 0.0);
        CHECK(rows[i].sides[0].picture.count == 0 && rows[i].sides[1].step.count == 0);
    }
    end();
}

static bool is_cancelled_later(void* user_data) { return ++*(int*)user_data > 5; }

TEST(a_cancelled_run_ends_with_the_row_at_hand)
{
    measure_row rows[MEASURE_FORMATS];
    int looks = 0;
    measure_desc desc = tiny(1000, 120.0);
    desc.is_cancelled = is_cancelled_later;
    desc.user_data = &looks;
    const int32_t count = measure_all(&desc, s_all, 4, rows);
    CHECK(count >= 1 && count < 4);
    CHECK_NUMBER(rows[count - 1].result, SUMI_CANCELLED);
    CHECK(strstr(rows[count - 1].note, "was cancelled") != NULL);
    end();
}

// ---- Failures -------------------------------------------------------------------------------------------------------

// Whichever call fails, its format says so or does without, and the other one is measured.
static void fail_calls(const char* name, const int* nths, int count)
{
    for (int n = 0; n < count; n++) {
        measure_row rows[MEASURE_FORMATS];
        const sumi_weight_format two[] = {SUMI_WEIGHTS_INT8, SUMI_WEIGHTS_INT4};
        const measure_desc desc = tiny(500, 8.0);
        if (name != NULL) fake_fail_call(name, nths[n], 2);
        else fake_fail_allocation(nths[n]);
        CHECK_NUMBER(measure_all(&desc, two, 2, rows), 2);
        for (int32_t i = 0; i < 2; i++) CHECK(is_whole(&rows[i]) || rows[i].note[0] != 0);
        CHECK(is_whole(&rows[0]) || is_whole(&rows[1]));
        if (name != NULL) CHECK(fake_fail_call(NULL, 0, 0));
        else CHECK(fake_fail_allocation(0));
        end();
    }
}

TEST(a_failed_format_is_a_row_with_a_sentence)
{
    fail_calls(NULL, (int[]){1, 3, 19, 40}, 4);
    fail_calls("cuStreamCreateWithPriority", (int[]){1}, 1);
    fail_calls("cuLaunchKernel", (int[]){1, 40}, 2);
    measure_row rows[MEASURE_FORMATS];
    const measure_desc desc = tiny(500, 8.0);
    fake_devices(1, 80); // which has no fp8
    CHECK_NUMBER(measure_all(&desc, s_all, 3, rows), 3);
    CHECK_NUMBER(rows[1].result, SUMI_NOT_SUPPORTED);
    CHECK(strstr(rows[1].note, "loading failed: ") == rows[1].note);
    CHECK(is_whole(&rows[0]) && is_whole(&rows[2]));
    end();
}

TEST(weights_that_do_not_fit_are_told)
{
    measure_row row;
    const sumi_weight_format format = SUMI_WEIGHTS_INT8;
    measure_desc desc = tiny(10, 4.0);
    CHECK_NUMBER(measure_all(&desc, &format, 1, &row), 1);
    CHECK(is_whole(&row));
    const uint64_t too_few = (row.weight_bytes + row.memory_bytes) / 2;
    desc = tiny(10, 4.0);
    fake_limit_device_bytes(too_few);
    CHECK_NUMBER(measure_all(&desc, &format, 1, &row), 1);
    CHECK(row.streamed_bytes > 0 || row.result != SUMI_OK);
    end();
}

TEST(no_device_is_told)
{
    measure_device device;
    char why[MEASURE_TEXT_BYTES];
    const measure_desc desc = tiny(500, 8.0);
    fake_devices(0, 90);
    CHECK_NUMBER(measure_look(&desc, &device, why), SUMI_NO_DEVICE);
    CHECK(strlen(why) > 10);
    end();
}

// ---- The card -------------------------------------------------------------------------------------------------------

TEST(the_management_library_tells_clocks_and_power)
{
    const char* why;
    uint8_t uuid[16];
    for (int i = 0; i < 16; i++) uuid[i] = (uint8_t)i;
    nvml_card* card = nvml_open(uuid, &why);
    CHECK(card != NULL);
    const nvml_facts facts = nvml_read(card);
    nvml_close(card);
    CHECK_TEXT(facts.driver, "580.1");
    CHECK_NUMBER(facts.power_limit_mw, 450000);
    CHECK_NUMBER(facts.most_sm_mhz, 1980);
    CHECK_NUMBER(facts.sm_mhz, 1410);
    CHECK_NUMBER(facts.memory_mhz, 2600);
    CHECK_NUMBER(facts.celsius, 61);
    CHECK_NUMBER(facts.power_mw, 0); // not told
    uuid[3] = 0;
    CHECK(nvml_open(uuid, &why) == NULL);
    CHECK(strstr(why, "does not know this card") != NULL);
    fake_lack_nvml(true);
    CHECK(nvml_open(uuid, &why) == NULL);
    CHECK(strstr(why, "does not start") != NULL);
    fake_lack_nvml(false);
    const nvml_facts none = nvml_read(NULL);
    CHECK(none.driver[0] == 0 && none.power_limit_mw == 0);
    nvml_close(NULL);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(every_format_has_a_whole_row);
    RUN(formats_are_those_that_fit_the_card);
    RUN(the_limit_of_time_holds_at_any_speed);
    RUN(a_picture_that_takes_too_long_is_cut_short);
    RUN(a_cancelled_run_ends_with_the_row_at_hand);
    RUN(a_failed_format_is_a_row_with_a_sentence);
    RUN(weights_that_do_not_fit_are_told);
    RUN(no_device_is_told);
    RUN(the_management_library_tells_clocks_and_power);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
