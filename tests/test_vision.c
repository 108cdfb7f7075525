// Pictures in flight into a prompt: the rules of sizes, the ops that cut a picture into patches and put rows in
// order, the vision tower's files and its plan at the released size. The tower's numbers are golden_run's business.
#include "pictures/picture_sizes.h"
#include "tower_fixture.h"

// ---- Sizes ----------------------------------------------------------------------------------------------------------

static const sumi_size_limits s_limits = {28, 3136, 12845056, 200};

// What the pipelines feed, from the specification: the picture, its size at an area, the size for the tower, its rows.
TEST(sizes_are_those_of_the_pipelines)
{
    static const struct {
        sumi_picture_size picture, size, seen;
        int64_t area;
        int32_t rows;
    } s_rows[] = {
        {{500, 500}, {1024, 1024}, {1036, 1036}, 1048576, 1369}, {{500, 500}, {384, 384}, {392, 392}, 147456, 196},
        {{1920, 1080}, {1376, 768}, {1372, 756}, 1048576, 1323}, {{1664, 928}, {1376, 768}, {1372, 756}, 1048576, 1323},
        {{1920, 1080}, {512, 288}, {504, 280}, 147456, 180},     {{1664, 928}, {512, 288}, {504, 280}, 147456, 180},
        {{1080, 1920}, {768, 1376}, {756, 1372}, 1048576, 1323}, {{1080, 1920}, {288, 512}, {280, 504}, 147456, 180},
        {{800, 600}, {1184, 896}, {1176, 896}, 1048576, 1344},   {{4032, 3024}, {448, 320}, {448, 308}, 147456, 176},
        {{600, 800}, {896, 1184}, {896, 1176}, 1048576, 1344},   {{600, 800}, {320, 448}, {308, 448}, 147456, 176},
        {{832, 1216}, {832, 1248}, {840, 1260}, 1048576, 1350},  {{832, 1216}, {320, 480}, {308, 476}, 147456, 187},
        {{2000, 500}, {2048, 512}, {2044, 504}, 1048576, 1314},  {{2000, 500}, {768, 192}, {756, 196}, 147456, 189}};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        sumi_picture_size size = {0}, seen = {0};
        sumi_error error = {0};
        CHECK_NUMBER(sumi_picture_size_of_area(s_rows[i].picture, s_rows[i].area, 32, &size, &error), SUMI_OK);
        CHECK_NUMBER(size.width, s_rows[i].size.width);
        CHECK_NUMBER(size.height, s_rows[i].size.height);
        CHECK_NUMBER(sumi_picture_size_within(size, &s_limits, &seen, &error), SUMI_OK);
        CHECK_NUMBER(seen.width, s_rows[i].seen.width);
        CHECK_NUMBER(seen.height, s_rows[i].seen.height);
        CHECK_NUMBER(seen.width / 28 * (seen.height / 28), s_rows[i].rows);
    }
}

static void check_within(int32_t width, int32_t height, int32_t want_width, int32_t want_height)
{
    sumi_picture_size size = {0};
    sumi_error error = {0};
    CHECK_NUMBER(sumi_picture_size_within((sumi_picture_size){width, height}, &s_limits, &size, &error), SUMI_OK);
    CHECK_NUMBER(size.width, want_width);
    CHECK_NUMBER(size.height, want_height);
}

TEST(sizes_round_halves_to_even_and_stay_within_their_areas)
{
    check_within(42, 70, 56, 56);         // 1.5 and 2.5 cells: two each
    check_within(1, 1, 56, 56);           // up to the least area
    check_within(13, 400, 28, 392);       // no side below a cell
    check_within(8000, 8000, 3584, 3584); // down to the largest area, which is that of 3584 x 3584
    check_within(32768, 8192, 7168, 1792);
    for (int32_t width = 1; width < 6000; width += 37) {
        for (int32_t height = 1; height < 6000; height += 41) {
            sumi_picture_size size = {0};
            sumi_error error = {0};
            const bool is_narrow = width > 200 * height || height > 200 * width;
            const sumi_result result =
                sumi_picture_size_within((sumi_picture_size){width, height}, &s_limits, &size, &error);
            CHECK_NUMBER(result, is_narrow ? SUMI_INVALID_ARGUMENT : SUMI_OK);
            const int64_t area = (int64_t)size.width * size.height;
            CHECK(is_narrow || (size.width % 28 == 0 && size.height % 28 == 0 && area >= 3136 && area <= 12845056));
        }
    }
}

TEST(sizes_refuse_what_is_no_image_and_say_why)
{
    static const sumi_picture_size s_wrong[] = {{0, 10}, {10, 0}, {-5, 10}, {10, -2147483647 - 1}, {32769, 10}};
    sumi_picture_size size = {7, 7};
    for (size_t i = 0; i < sizeof s_wrong / sizeof *s_wrong; i++) {
        sumi_error error = {0};
        CHECK_NUMBER(sumi_picture_size_within(s_wrong[i], &s_limits, &size, &error), SUMI_INVALID_ARGUMENT);
        CHECK_NUMBER(sumi_picture_size_of_area(s_wrong[i], 1048576, 32, &size, &error), SUMI_INVALID_ARGUMENT);
        CHECK(strstr(error.text, "give it sides of 1 to 32768") != NULL);
    }
    sumi_error error = {0};
    CHECK_NUMBER(sumi_picture_size_within((sumi_picture_size){4020, 20}, &s_limits, &size, &error),
                 SUMI_INVALID_ARGUMENT);
    CHECK(strstr(error.text, "more than 200 times") != NULL);
    error = (sumi_error){0};
    CHECK_NUMBER(sumi_picture_size_of_area((sumi_picture_size){20000, 1}, 1048576, 32, &size, &error),
                 SUMI_INVALID_ARGUMENT);
    CHECK(strstr(error.text, "too long and narrow") != NULL);
    CHECK_NUMBER(size.width, 7); // nothing is written
}

// What the published pipeline of a model that crops its references makes of them: FLUX.2's, for pictures of many sizes.
TEST(crops_are_those_of_the_pipelines)
{
    static const struct {
        sumi_picture_size picture, resized, size;
        int32_t left, top;
    } s_rows[] = {{{70, 93}, {70, 93}, {64, 80}, 3, 6},
                  {{1024, 1024}, {1024, 1024}, {1024, 1024}, 0, 0},
                  {{1025, 1024}, {1024, 1023}, {1024, 1008}, 0, 7},
                  {{1920, 1080}, {1365, 768}, {1360, 768}, 2, 0},
                  {{3000, 2000}, {1254, 836}, {1248, 832}, 3, 2},
                  {{64, 512}, {64, 512}, {64, 512}, 0, 0},
                  {{512, 64}, {512, 64}, {512, 64}, 0, 0},
                  {{4032, 3024}, {1182, 886}, {1168, 880}, 7, 3},
                  {{777, 1333}, {777, 1333}, {768, 1328}, 4, 2},
                  {{1500, 700}, {1498, 699}, {1488, 688}, 5, 5},
                  {{100, 100}, {100, 100}, {96, 96}, 2, 2}};
    const sumi_crop_rule rule = {.max_area = 1024 * 1024, .multiple = 16, .min_side = 64, .max_ratio = 8};
    for (size_t i = 0; i < sizeof s_rows / sizeof *s_rows; i++) {
        sumi_picture_crop crop = {.left = -1};
        sumi_error error = {0};
        CHECK_NUMBER(sumi_picture_crop_within(s_rows[i].picture, &rule, &crop, &error), SUMI_OK);
        CHECK_NUMBER(crop.resized.width, s_rows[i].resized.width);
        CHECK_NUMBER(crop.resized.height, s_rows[i].resized.height);
        CHECK_NUMBER(crop.size.width, s_rows[i].size.width);
        CHECK_NUMBER(crop.size.height, s_rows[i].size.height);
        CHECK_NUMBER(crop.left, s_rows[i].left);
        CHECK_NUMBER(crop.top, s_rows[i].top);
    }
}

TEST(crops_refuse_what_a_model_cannot_read)
{
    static const struct {
        sumi_picture_size picture;
        const char* says;
    } s_wrong[] = {{{63, 64}, "too small: give one with at least 64 pixels along each side"},
                   {{64, 63}, "too small"},
                   {{64, 513}, "more than 8 times as long"},
                   {{32000, 3000}, "more than 8 times as long"},
                   {{0, 64}, "give it sides of 1 to 32768"},
                   {{32769, 8000}, "give it sides of 1 to 32768"}};
    const sumi_crop_rule strict = {.max_area = 1024 * 1024, .multiple = 16, .min_side = 64, .max_ratio = 8},
                         free_rule = {.max_area = 1024 * 1024, .multiple = 16};
    sumi_picture_crop crop = {.left = 7};
    for (size_t i = 0; i < sizeof s_wrong / sizeof *s_wrong; i++) {
        sumi_error error = {0};
        CHECK_NUMBER(sumi_picture_crop_within(s_wrong[i].picture, &strict, &crop, &error), SUMI_INVALID_ARGUMENT);
        CHECK(strstr(error.text, s_wrong[i].says) != NULL);
    }
    sumi_error error = {0};
    CHECK_NUMBER(sumi_picture_crop_within((sumi_picture_size){15, 40}, &free_rule, &crop, &error),
                 SUMI_INVALID_ARGUMENT);
    CHECK(strstr(error.text, "of 15 x 40 pixels has less than 16") != NULL);
    error = (sumi_error){0};
    CHECK_NUMBER(sumi_picture_crop_within((sumi_picture_size){32768, 100}, &free_rule, &crop, &error), SUMI_OK);
    CHECK(crop.size.height == 48 && crop.size.width == 18528);
    CHECK_NUMBER(sumi_picture_crop_within((sumi_picture_size){32768, 1}, &free_rule, &crop, &error),
                 SUMI_INVALID_ARGUMENT);
    CHECK(strstr(error.text, "has less than 16") != NULL);
    CHECK_NUMBER(sumi_picture_crop_within((sumi_picture_size){32768, 8}, &free_rule, &crop, &error),
                 SUMI_INVALID_ARGUMENT);
}

// ---- Ops ------------------------------------------------------------------------------------------------------------

typedef struct bench {
    sumi_plan plan;
    sumi_error error;
} bench;

static void begin(bench* b)
{
    memset(b, 0, sizeof *b);
    sumi_plan_begin(&b->plan, &s_heap, 4);
    sumi_plan_section(&b->plan, SUMI_SECTION_TEXT, 1, 0);
}

static sumi_result ready(bench* b)
{
    const sumi_rates rates = s_runner->functions->rates(s_runner);
    sumi_result result = sumi_plan_finish(&b->plan, &b->error);
    if (result == SUMI_OK) result = plan_slice(&b->plan, &rates, 1, &b->error); // parts one by one
    if (result == SUMI_OK) result = plan_ready(s_runner, &b->plan, &b->error);
    if (result == SUMI_OK) s_runner->functions->start(s_runner, &b->plan);
    return result;
}

// Writes a value, runs, and reads another one.
static sumi_result run(bench* b, sumi_value in, const void* data, sumi_value out, void* into)
{
    sumi_result result = ready(b);
    if (result != SUMI_OK) return result;
    s_runner->functions->write(s_runner, &b->plan, in, 0, data, sumi_plan_info(&b->plan, in)->bytes);
    result = plan_run_all(s_runner, &b->plan, NULL, &b->error);
    return result == SUMI_OK ? plan_read(s_runner, &b->plan, out, into, &b->error) : result;
}

static void end(bench* b)
{
    plan_release(s_runner, &b->plan);
    sumi_plan_end(&b->plan);
}

static sumi_value result_of(bench* b, sumi_value value)
{
    if (value.id != 0) b->plan.values[value.id - 1].bound = true;
    return value;
}

enum { HIGH = 3, WIDE = 5, CELL = 2, PATCH = 3, FRAMES = 2, CELLS = HIGH * WIDE };
enum { HEIGHT = HIGH * CELL * PATCH, WIDTH = WIDE * CELL * PATCH, COLS = 3 * FRAMES * PATCH * PATCH };

static const sumi_op_patches_in s_layout = {.height = HEIGHT,
                                            .width = WIDTH,
                                            .patch = PATCH,
                                            .cell = CELL,
                                            .frames = FRAMES,
                                            .mean = {0.5f, 0.25f, 0.0f},
                                            .deviation = {0.5f, 0.25f, 2.0f}};

TEST(patches_are_cut_in_the_order_that_is_asked_for)
{
    static uint8_t s_bytes[HEIGHT * WIDTH * 3];
    static float s_got[CELLS * CELL * CELL * COLS];
    int32_t cells[CELLS];
    for (int i = 0; i < CELLS; i++) cells[i] = (7 * i + 2) % CELLS;
    for (int i = 0; i < HEIGHT * WIDTH * 3; i++) s_bytes[i] = (uint8_t)(i * 37 + i / 251);
    bench b;
    begin(&b);
    sumi_value in = sumi_plan_bound(&b.plan, "bytes", SUMI_ELEMENT_BYTE, HEIGHT * WIDTH, 3);
    sumi_value order = sumi_plan_constant(&b.plan, "cells", SUMI_ELEMENT_INT, CELLS, 1, cells);
    sumi_value out = result_of(&b, sumi_plan_patches_in(&b.plan, in, order, &s_layout));
    CHECK_NUMBER(run(&b, in, s_bytes, out, s_got), SUMI_OK);
    CHECK_TEXT(b.error.text, "");
    for (int i = 0; i < CELLS * CELL * CELL; i++) {
        const int cell = cells[i / (CELL * CELL)], dy = i % (CELL * CELL) / CELL, dx = i % CELL;
        for (int k = 0; k < COLS; k++) {
            const int channel = k / (FRAMES * PATCH * PATCH), y = k / PATCH % PATCH, x = k % PATCH;
            const int row = (cell / WIDE * CELL + dy) * PATCH + y, column = (cell % WIDE * CELL + dx) * PATCH + x;
            const double want = (s_bytes[(row * WIDTH + column) * 3 + channel] / 255.0 - (double)s_layout.mean[channel])
                              / (double)s_layout.deviation[channel];
            CHECK_NEAR(s_got[i * COLS + k], want, 1e-6, 0);
        }
    }
    end(&b);
}

TEST(patches_of_a_cell_that_is_not_there_are_refused)
{
    for (int wrong = -1; wrong <= CELLS; wrong += CELLS + 1) {
        static uint8_t s_bytes[HEIGHT * WIDTH * 3];
        static float s_got[CELLS * CELL * CELL * COLS];
        int32_t cells[CELLS] = {0};
        cells[CELLS - 1] = wrong;
        bench b;
        begin(&b);
        sumi_value in = sumi_plan_bound(&b.plan, "bytes", SUMI_ELEMENT_BYTE, HEIGHT * WIDTH, 3);
        sumi_value order = sumi_plan_constant(&b.plan, "cells", SUMI_ELEMENT_INT, CELLS, 1, cells);
        sumi_value out = result_of(&b, sumi_plan_patches_in(&b.plan, in, order, &s_layout));
        CHECK_NUMBER(run(&b, in, s_bytes, out, s_got), SUMI_INTERNAL);
        CHECK(strstr(b.error.text, "15 cells") != NULL);
        end(&b);
    }
}

TEST(rows_are_gathered_by_number_and_read_as_rows_of_another_length)
{
    enum { ROWS = 6, WIDTH_OF_ROW = 5, PICKED = 4 };
    float x[ROWS * WIDTH_OF_ROW], got[PICKED * WIDTH_OF_ROW];
    for (int i = 0; i < ROWS * WIDTH_OF_ROW; i++) x[i] = (float)i;
    static const int32_t s_numbers[PICKED] = {5, 0, 0, 3};
    bench b;
    begin(&b);
    sumi_value in = sumi_plan_bound(&b.plan, "x", SUMI_ELEMENT_ACTIVATION, ROWS, WIDTH_OF_ROW);
    sumi_value ids = sumi_plan_constant(&b.plan, "ids", SUMI_ELEMENT_INT, PICKED, 1, s_numbers);
    sumi_value y = sumi_plan_gather_rows(&b.plan, "gather", ids, in);
    // twice the negative of it, in rows of ten
    float minus_one[10 * 10] = {0};
    for (int i = 0; i < 10; i++) minus_one[i * 11] = -2.0f;
    const sumi_weight w = {.name = "w",
                           .rows = 10,
                           .cols = 10,
                           .tensor_count = 1,
                           .tensors = {{.data = minus_one, .dtype = SUMI_DTYPE_F32, .rows = 10, .scale = 1.0f}}};
    sumi_value z = sumi_plan_linear(
        &b.plan,
        &(sumi_plan_linear_args){.label = "linear", .x = sumi_plan_reshape(&b.plan, "wide", y, 2, 10), .weight = &w});
    CHECK_NUMBER(run(&b, in, x, result_of(&b, z), got), SUMI_OK);
    CHECK_TEXT(b.error.text, "");
    for (int r = 0; r < PICKED; r++)
        for (int k = 0; k < WIDTH_OF_ROW; k++)
            CHECK_NEAR(got[r * WIDTH_OF_ROW + k], -2.0 * x[s_numbers[r] * WIDTH_OF_ROW + k], 0, 0);
    end(&b);
}

// What a verb keeps as the plan's error.
static void check_refused(bench* b, const char* why)
{
    CHECK_NUMBER(sumi_plan_finish(&b->plan, &b->error), SUMI_INTERNAL);
    if (strstr(b->error.text, why) == NULL) printf("  \"%s\" does not say \"%s\"\n", b->error.text, why);
    CHECK(strstr(b->error.text, why) != NULL);
    sumi_plan_end(&b->plan);
}

TEST(verbs_refuse_what_does_not_fit)
{
    bench b;
    for (int which = 0; which < 8; which++) {
        static const int32_t s_cells[CELLS + 1];
        sumi_op_patches_in layout = s_layout;
        const int32_t pixels = which == 0 ? HEIGHT * WIDTH - 1 : HEIGHT * WIDTH, count = which == 1 ? CELLS + 1 : CELLS;
        layout.height -= which == 2;
        layout.patch = which == 3 ? 0 : which == 4 ? 100000 : layout.patch;
        layout.frames = which == 5 ? -1 : layout.frames;
        layout.deviation[2] = which == 6 ? 0.0f : which == 7 ? NAN : layout.deviation[2];
        begin(&b);
        sumi_value in = sumi_plan_bound(&b.plan, "bytes", SUMI_ELEMENT_BYTE, pixels, 3);
        sumi_plan_patches_in(&b.plan, in, sumi_plan_constant(&b.plan, "cells", SUMI_ELEMENT_INT, count, 1, s_cells),
                             &layout);
        check_refused(&b, which < 6 ? "not the cells that are listed" : "deviation is not above 0");
    }
    begin(&b);
    sumi_value x = sumi_plan_value(&b.plan, "x", SUMI_ELEMENT_ACTIVATION, 6, 10);
    sumi_plan_reshape(&b.plan, "wrong", x, 7, 10);
    check_refused(&b, "must hold the same elements");
    begin(&b);
    x = sumi_plan_value(&b.plan, "x", SUMI_ELEMENT_ACTIVATION, 6, 10);
    sumi_plan_reshape(&b.plan, "wrong", sumi_plan_view(&b.plan, "columns", x, (sumi_span){0, 6}, (sumi_span){0, 5}), 3,
                      10);
    check_refused(&b, "those of some columns cannot");
    begin(&b);
    x = sumi_plan_bound(&b.plan, "x", SUMI_ELEMENT_FLOAT, 6, 10);
    static const int32_t s_numbers[2];
    sumi_plan_gather_rows(&b.plan, "gather", sumi_plan_constant(&b.plan, "ids", SUMI_ELEMENT_INT, 2, 1, s_numbers), x);
    check_refused(&b, "gathered by one number each");
    for (int which = 0; which < 3; which++) {
        static const int32_t s_pairs[4];
        static float s_data[12];
        const sumi_weight table = {.name = "table",
                                   .rows = 2,
                                   .cols = 6,
                                   .tensor_count = 1,
                                   .tensors = {{.data = s_data, .dtype = SUMI_DTYPE_F32, .rows = 2, .scale = 1.0f}}};
        begin(&b);
        x = sumi_plan_bound(&b.plan, "x", which == 0 ? SUMI_ELEMENT_ACTIVATION : SUMI_ELEMENT_FLOAT, which == 1 ? 3 : 2,
                            which == 2 ? 3 : 2);
        sumi_plan_mix_rows(&b.plan, "mix", sumi_plan_constant(&b.plan, "ids", SUMI_ELEMENT_INT, 2, 2, s_pairs), x,
                           &table);
        check_refused(&b, "has a number and a factor");
    }
    for (int which = 0; which < 4; which++) {
        begin(&b);
        x = sumi_plan_bound(&b.plan, "x", SUMI_ELEMENT_ACTIVATION, 6, 9);
        sumi_value y = sumi_plan_bound(&b.plan, "y", SUMI_ELEMENT_ACTIVATION, 7, 9);
        sumi_plan_add_rows(&b.plan, &(sumi_plan_add_rows_args){.label = "add",
                                                               .x = x,
                                                               .x_row = which == 0 ? -1
                                                                      : which == 1 ? 3
                                                                                   : 0,
                                                               .y = y,
                                                               .y_row = which == 2 ? -1
                                                                      : which == 3 ? 4
                                                                                   : 0,
                                                               .rows = 4,
                                                               .scale = 1.0f});
        check_refused(&b, "the rows do not fit");
    }
    begin(&b);
    x = sumi_plan_bound(&b.plan, "x", SUMI_ELEMENT_ACTIVATION, 6, 9);
    sumi_plan_gated(&b.plan, "gated", x, SUMI_ACT_SILU);
    check_refused(&b, "an even number of columns");
    for (int32_t cols = 9; cols <= 17; cols++) { // of a product's input: those of the weight, or 16
        float data[12] = {0};
        const sumi_weight w = {.name = "w",
                               .rows = 1,
                               .cols = 12,
                               .tensor_count = 1,
                               .tensors = {{.data = data, .dtype = SUMI_DTYPE_F32, .rows = 1, .scale = 1.0f}}};
        begin(&b);
        x = sumi_plan_bound(&b.plan, "x", SUMI_ELEMENT_ACTIVATION, 6, cols);
        sumi_plan_linear(&b.plan, &(sumi_plan_linear_args){.label = "linear", .x = x, .weight = &w});
        CHECK_NUMBER(b.plan.error.result, cols == 12 || cols == 16 ? SUMI_OK : SUMI_INTERNAL);
        sumi_plan_end(&b.plan);
    }
}

// A plan whose product reads `x` as rows of another length, behind or before the copy of `rows` rows into it.
static sumi_value write_reshaped(bench* b, const sumi_weight* w, int32_t rows, bool early)
{
    begin(b);
    sumi_value in = sumi_plan_bound(&b->plan, "in", SUMI_ELEMENT_ACTIVATION, 6, 10);
    sumi_value x = sumi_plan_value(&b->plan, "x", SUMI_ELEMENT_ACTIVATION, 6, 10);
    sumi_value wide = sumi_plan_reshape(&b->plan, "wide", x, 3, 20);
    const sumi_plan_copy_args copy = {.x = in, .y = x, .rows = rows};
    if (!early) sumi_plan_copy_rows(&b->plan, &copy);
    sumi_plan_linear(&b->plan, &(sumi_plan_linear_args){.label = "linear", .x = wide, .weight = w});
    if (early) sumi_plan_copy_rows(&b->plan, &copy);
    // checked builds validate every plan there
    CHECK(sumi_plan_finish(&b->plan, &b->error) == SUMI_OK || early || rows < 6);
    return wide;
}

TEST(the_validator_sees_through_rows_of_another_length)
{
    static float s_data[20];
    const sumi_weight w = {.name = "w",
                           .rows = 1,
                           .cols = 20,
                           .tensor_count = 1,
                           .tensors = {{.data = s_data, .dtype = SUMI_DTYPE_F32, .rows = 1, .scale = 1.0f}}};
    bench b;
    for (int how = 0; how < 5; how++) {
        sumi_value wide = write_reshaped(&b, &w, how == 4 ? 3 : 6, how == 3);
        sumi_value_info* info = &b.plan.values[wide.id - 1];
        info->rows += how == 1;
        info->cut_from_row += how == 2;
        b.error = (sumi_error){0};
        const sumi_result result = sumi_plan_validate(&b.plan, &b.error);
        static const char* const s_says[] = {"", "all of its elements", "within the rows", "row 0 is read, but no op",
                                             "row 3 is read, but no op"};
        CHECK_NUMBER(result, how == 0 ? SUMI_OK : SUMI_INTERNAL);
        CHECK(strstr(b.error.text, s_says[how]) != NULL);
        end(&b);
    }
}

// ---- Files ----------------------------------------------------------------------------------------------------------

static const tower_kind s_kind = {.module = &sumi_qwen_vision_module,
                                  .text_encoder = "tests/golden/qwen-image/model/text_encoder",
                                  .processor = "tests/golden/qwen-image/model-edit/processor/preprocessor_config.json",
                                  .network = "qwen2.5-vl-vision",
                                  .prefix = "visual."};

TEST(every_missing_or_misshapen_tensor_of_the_tower_is_named) { CHECK(check_damaged_towers(&s_kind) > 60); }

TEST(names_of_both_styles_bind_the_same_tower)
{
    tower t;
    if (open_tower(&t, &s_kind)) {
        // a set with the newer names
        static char s_names[2000][160];
        const sumi_tensor_set* old = t.checkpoint.components[SUMI_COMPONENT_VISION].set;
        sumi_tensor_set set;
        sumi_tensor_set_init(&set, &s_heap, NULL);
        for (size_t i = 0; i < old->count && i < 2000; i++) {
            snprintf(s_names[i], sizeof s_names[i], "%s%s",
                     strncmp(old->tensors[i].name, "visual.", 7) == 0 ? "model." : "", old->tensors[i].name);
            sumi_tensor tensor = old->tensors[i];
            tensor.file_index = -1;
            CHECK_NUMBER(sumi_tensor_set_add(&set, s_names[i], strlen(s_names[i]), &tensor, "set", &t.error), SUMI_OK);
        }
        sumi_component part = t.checkpoint.components[SUMI_COMPONENT_VISION];
        part.set = &set;
        static char s_prefix[] = "model.visual.";
        part.prefix = s_prefix;
        t.binder.component = &part;
        CHECK_NUMBER(bind_tower(&t, NULL), SUMI_OK);
        CHECK_TEXT(t.error.text, "");
        CHECK_NUMBER(t.model.qwen.tower.block_count, 3);
        CHECK_NUMBER(t.list.count, 6 + 3 * 10);
        sumi_tensor_set_close(&set);
    }
    close_tower(&t);
}

static const sumi_qwen_vision_settings s_settings = {.tower = {.heads = 2,
                                                               .min_pixels = 3136,
                                                               .max_pixels = 12845056,
                                                               .mean = {0.48145466, 0.4578275, 0.40821073},
                                                               .deviation = {0.26862954, 0.26130258, 0.27577711}},
                                                     .window = 112,
                                                     .full_blocks = {1},
                                                     .full_block_count = 1};

TEST(a_file_without_configs_takes_the_settings)
{
    for (int given = 0; given < 2; given++) {
        tower t;
        if (open_tower(&t, &s_kind)) {
            t.config = (sumi_module_config){.path = "model.safetensors"};
            t.processor = (sumi_module_config){.path = "model.safetensors"};
            const sumi_result result = bind_tower(&t, given ? &s_settings : NULL);
            CHECK_NUMBER(result, given ? SUMI_OK : SUMI_NOT_SUPPORTED);
            CHECK(given || strstr(t.error.text, "0 heads") != NULL);
            if (given) {
                const sumi_vision_properties properties = sumi_qwen_vision_module.properties(&t.model);
                CHECK_NUMBER(t.model.qwen.tower.block_count, 3);
                CHECK_NUMBER(t.model.qwen.window, 4);
                CHECK_NUMBER(t.model.qwen.tower.patch, 14);
                CHECK_NUMBER(t.model.qwen.tower.frames, 2);
                CHECK_NUMBER(t.model.qwen.tower.merge, 2);
                CHECK(!t.model.qwen.blocks[0].attends_to_all && t.model.qwen.blocks[1].attends_to_all);
                CHECK_NUMBER(properties.width, 128);
                CHECK_NUMBER(properties.cell, 28);
                CHECK_NUMBER(properties.max_pixels, 12845056);
            }
        }
        close_tower(&t);
    }
}

TEST(configs_that_the_tower_cannot_follow_are_refused)
{
    static const tower_config_case s_cases[] = {
        {"{}", "{}", SUMI_OK, ""},
        {"{\"vision_config\":{\"depth\":3}}", "{}", SUMI_OK, ""},
        {"{\"vision_config\":{\"depth\":2}}", "{}", SUMI_TENSOR_MISMATCH, "depth is 2"},
        {"{\"vision_config\":{\"depth\":null}}", "{\"min_pixels\":null}", SUMI_OK, ""},
        {"{\"vision_config\":{\"depth\":4}}", "{}", SUMI_TENSOR_MISSING, "visual.blocks.3."},
        {"{\"vision_config\":{\"intermediate_size\":80}}", "{}", SUMI_TENSOR_MISMATCH, "intermediate_size"},
        {"{\"vision_config\":{\"depth\":129}}", "{}", SUMI_NOT_SUPPORTED, "has 129 blocks"},
        {"{\"vision_config\":{\"depth\":-1}}", "{}", SUMI_NOT_SUPPORTED, "blocks"},
        {"{\"vision_config\":{\"num_heads\":3}}", "{}", SUMI_NOT_SUPPORTED, "3 heads for a width of 64"},
        {"{\"vision_config\":{\"num_heads\":-2}}", "{}", SUMI_NOT_SUPPORTED, "heads"},
        {"{\"vision_config\":{\"num_heads\":32}}", "{}", SUMI_NOT_SUPPORTED, "heads"},
        {"{\"vision_config\":{\"window_size\":27}}", "{}", SUMI_NOT_SUPPORTED, "windows of 27"},
        {"{\"vision_config\":{\"patch_size\":16}}", "{}", SUMI_TENSOR_MISMATCH, "14 x 14"},
        {"{\"vision_config\":{\"hidden_size\":80}}", "{}", SUMI_TENSOR_MISMATCH, "another model"},
        {"{\"vision_config\":{\"spatial_merge_size\":4}}", "{}", SUMI_TENSOR_MISMATCH, "merger"},
        {"{\"vision_config\":{\"fullatt_block_indexes\":[0,3]}}", "{}", SUMI_NOT_SUPPORTED, "names block 3"},
        {"{\"vision_config\":{\"fullatt_block_indexes\":7}}", "{}", SUMI_FILE_MALFORMED, "config.json"},
        {"{", "{}", SUMI_FILE_MALFORMED, "config.json"},
        {"{}", "{\"size\":{\"shortest_edge\":784,\"longest_edge\":78400}}", SUMI_OK, ""},
        {"{}", "{\"image_mean\":[0.5,0.5]}", SUMI_NOT_SUPPORTED, "three channels"},
        {"{}", "{\"image_mean\":[0.5,0.5,0.5,0.5]}", SUMI_FILE_MALFORMED, "preprocessor_config.json"},
        {"{}", "{\"image_std\":[0.5,0.5,0]}", SUMI_NOT_SUPPORTED, "three channels"},
        {"{}", "{\"image_std\":\"a\"}", SUMI_FILE_MALFORMED, "preprocessor_config.json"},
        {"{}", "{\"rescale_factor\":1}", SUMI_NOT_SUPPORTED, "1/255"},
        {"{}", "{\"do_rescale\":false}", SUMI_NOT_SUPPORTED, "1/255"},
        {"{}", "{\"do_normalize\":false}", SUMI_NOT_SUPPORTED, "1/255"},
        {"{}", "{\"patch_size\":16}", SUMI_NOT_SUPPORTED, "patches of 14"},
        {"{}", "{\"merge_size\":4}", SUMI_NOT_SUPPORTED, "cells of 2"},
        {"{}", "{\"min_pixels\":-4}", SUMI_NOT_SUPPORTED, "area"},
        {"{}", "{\"max_pixels\":783}", SUMI_NOT_SUPPORTED, "area"},
        {"{}", "{\"max_pixels\":3000}", SUMI_NOT_SUPPORTED, "area"}};
    check_tower_configs(&s_kind, &s_settings, s_cases, sizeof s_cases / sizeof *s_cases);
}

TEST(areas_come_from_the_older_form_where_both_are_there)
{
    static const struct {
        const char* processor;
        int64_t least, most;
    } s_cases[] = {{"{}", 3136, 12845056},
                   {"{\"size\":{\"shortest_edge\":784,\"longest_edge\":78400}}", 784, 78400},
                   {"{\"size\":{\"shortest_edge\":784,\"longest_edge\":78400},\"max_pixels\":5000}", 784, 5000},
                   {"{\"min_pixels\":1000,\"max_pixels\":5000,\"size\":{\"shortest_edge\":784}}", 1000, 5000}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        tower t;
        if (open_tower(&t, &s_kind)) {
            t.processor =
                (sumi_module_config){s_cases[i].processor, strlen(s_cases[i].processor), "preprocessor_config.json"};
            CHECK_NUMBER(bind_tower(&t, &s_settings), SUMI_OK);
            const sumi_vision_properties properties = sumi_qwen_vision_module.properties(&t.model);
            CHECK_NUMBER(properties.min_pixels, s_cases[i].least);
            CHECK_NUMBER(properties.max_pixels, s_cases[i].most);
        }
        close_tower(&t);
    }
}

TEST(an_image_of_broken_cells_is_refused) { check_broken_cells(&s_kind, 28); }

// ---- The released size ----------------------------------------------------------------------------------------------

TEST(windows_hold_every_cell_once)
{
    for (int32_t high = 1; high < 20; high++) {
        for (int32_t wide = 1; wide < 20; wide++) {
            int32_t order[400], ends[25], seen[400] = {0};
            const int32_t count = sumi_qwen_vision_windows(high, wide, 4, order, ends);
            CHECK_NUMBER(count, (high + 3) / 4 * ((wide + 3) / 4));
            CHECK_NUMBER(ends[count - 1], high * wide);
            for (int32_t w = 0, i = 0; w < count; w++) {
                for (; i < ends[w]; i++) { // one square of four by four cells
                    seen[order[i]]++;
                    CHECK_NUMBER(order[i] / wide / 4 * ((wide + 3) / 4) + order[i] % wide / 4, w);
                }
            }
            for (int32_t i = 0; i < high * wide; i++) CHECK_NUMBER(seen[i], 1);
        }
    }
    int32_t order[1369], ends[100]; // 14 x 14 cells as the specification prints them, 37 x 37 for their number
    static const int32_t s_first[] = {0, 1, 2, 3, 14, 15, 16, 17, 28, 29, 30, 31, 42, 43, 44, 45, 4, 5};
    CHECK_NUMBER(sumi_qwen_vision_windows(14, 14, 4, order, ends), 16);
    CHECK(memcmp(order, s_first, sizeof s_first) == 0);
    CHECK_NUMBER(ends[15] - ends[14], 4);
    CHECK_NUMBER(sumi_qwen_vision_windows(37, 37, 4, order, ends), 100);
}

TEST(every_failing_allocation_is_survived) { check_failing_allocations(&s_kind, 84, 140); }

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_cpu(2)) return 1;
    RUN(sizes_are_those_of_the_pipelines);
    RUN(sizes_round_halves_to_even_and_stay_within_their_areas);
    RUN(sizes_refuse_what_is_no_image_and_say_why);
    RUN(crops_are_those_of_the_pipelines);
    RUN(crops_refuse_what_a_model_cannot_read);
    RUN(patches_are_cut_in_the_order_that_is_asked_for);
    RUN(patches_of_a_cell_that_is_not_there_are_refused);
    RUN(rows_are_gathered_by_number_and_read_as_rows_of_another_length);
    RUN(verbs_refuse_what_does_not_fit);
    RUN(the_validator_sees_through_rows_of_another_length);
    RUN(every_missing_or_misshapen_tensor_of_the_tower_is_named);
    RUN(names_of_both_styles_bind_the_same_tower);
    RUN(a_file_without_configs_takes_the_settings);
    RUN(configs_that_the_tower_cannot_follow_are_refused);
    RUN(areas_come_from_the_older_form_where_both_are_there);
    RUN(an_image_of_broken_cells_is_refused);
    RUN(windows_hold_every_cell_once);
    RUN(every_failing_allocation_is_survived);
    end_cpu();
    TEST_END();
}
