// How the CUDA backend brings weights to the device, on the fake driver: in which form (device/form.h), in pieces and
// over several calls, with adapters' factors and balances, again after a failure, and how they are released. Kernels do
// nothing here, so forms that a kernel makes are checked by the parameters of its launches.
#include "at_once.h"
#include "test.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/state.h"
#include "device/choose_forms.h"
#include "device/stored.h"
#include "device/weight_forms.h"
#include "fake_cuda.h"
#include "kernels/upload.h"
#include "runner_fixture.h"

// ---- Upload and release ---------------------------------------------------------------------------------------------

TEST(weights_are_uploaded_and_released)
{
    runner_setup setup;
    static small_model s_model;
    small_plan small;
    sumi_error error = {0};
    open_small_plan(&setup, &s_model, &small, 100, &error);
    const sumi_cuda* cuda = (const sumi_cuda*)setup.runner;
    const sumi_runner_functions* f = setup.runner->functions;
    sumi_device_properties properties;
    sumi_device_need need;
    CHECK(f->need(setup.runner, &small.plan, 0, &need, &error) == SUMI_OK && need.fits && need.streamed_bytes == 0);
    const uint64_t needed = need.weight_bytes;
    CHECK(plan_prepare(setup.runner, &small.plan, &error) == SUMI_OK);
    f->properties(setup.runner, &properties);
    CHECK_NUMBER(properties.held_bytes[SUMI_MEMORY_WEIGHTS], needed);
    CHECK_NUMBER(properties.held_bytes[SUMI_MEMORY_STAGING], 0); // freed after the upload

    const sumi_device_resident* table =
        sumi_device_weights_find(&cuda->stock.weights, &s_model.embedding, SUMI_DEVICE_FORM_MATRIX);
    // the device memory of the fake driver is host memory
    CHECK(table != NULL
          && memcmp((const void*)(uintptr_t)table->on_device.data, s_model.table, sizeof s_model.table) == 0);
    const sumi_device_resident* gated =
        sumi_device_weights_find(&cuda->stock.weights, &s_model.gate_up, SUMI_DEVICE_FORM_GATED);
    CHECK(gated != NULL && gated->on_device.data % 512 == 0 && gated->on_device.pitch == WIDTH);
    CHECK(sumi_device_weights_find(&cuda->stock.weights, &s_model.gate_up, SUMI_DEVICE_FORM_MATRIX) == NULL);
    CHECK(sumi_device_weights_find(&cuda->stock.weights, &s_model.bias_weight, SUMI_DEVICE_FORM_VECTOR) != NULL);
    CHECK(sumi_device_weights_find(&cuda->stock.weights, &s_model.narrow, SUMI_DEVICE_FORM_MATRIX)
          == NULL); // no op of the plan reads it

    f->release_weights(setup.runner, s_model.list, 3);
    CHECK(sumi_device_weights_find(&cuda->stock.weights, &s_model.embedding, SUMI_DEVICE_FORM_MATRIX) == NULL);
    CHECK(sumi_device_weights_find(&cuda->stock.weights, &s_model.down, SUMI_DEVICE_FORM_MATRIX) != NULL);
    CHECK(run_small_plan(setup.runner, &small, &error) == SUMI_OK); // uploads them again
    f->release_weights(setup.runner, s_model.list, 6);
    f->properties(setup.runner, &properties);
    CHECK_NUMBER(properties.held_bytes[SUMI_MEMORY_WEIGHTS], 0);
    CHECK_NUMBER(properties.capability, 90);
    close_small_plan(&setup, &small);
}

TEST(large_weights_come_in_pieces_from_any_address)
{
    fake_reset();
    runner_setup setup;
    sumi_error error = {0};
    enum { ROWS = 6000, COLS = 1504 }; // 18 MB: more than one staging slot
    unsigned char* file = malloc((size_t)ROWS * COLS * 2 + 1);
    for (size_t i = 0; i < (size_t)ROWS * COLS * 2 + 1; i++) file[i] = (unsigned char)(i * 2654435761u >> 13);
    sumi_weight weight = make_weight("large", ROWS, COLS, file + 1, SUMI_DTYPE_BF16);
    weight.tensors[0].rows = ROWS / 3;
    weight.tensor_count = 2;
    weight.tensors[1] = (sumi_stacked_tensor){.data = file + 1 + (size_t)(ROWS / 3) * COLS * 2,
                                              .dtype = SUMI_DTYPE_BF16,
                                              .rows = ROWS - ROWS / 3,
                                              .scale = 1.0f};
    open_setup(&setup);
    CHECK(create_runner(&setup, NULL, &error) == SUMI_OK);
    sumi_plan plan;
    sumi_runner_begin_plan(setup.runner, &plan, &setup.heap);
    sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 4, COLS);
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "large", .x = x, .weight = &weight});
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    bool is_done = false;
    int32_t calls = 0;
    for (float progress = 0.0f, last = 0.0f; !is_done && calls < 1000; calls++, last = progress) {
        CHECK(setup.runner->functions->prepare(setup.runner, &plan, 0, &is_done, &progress, &error) == SUMI_OK);
        CHECK(progress >= last);
    }
    CHECK(calls > 8 && is_done); // each call uploads at least a megabyte
    const sumi_device_resident* resident =
        sumi_device_weights_find(&((const sumi_cuda*)setup.runner)->stock.weights, &weight, SUMI_DEVICE_FORM_MATRIX);
    CHECK(resident != NULL
          && memcmp((const void*)(uintptr_t)resident->on_device.data, file + 1, (size_t)ROWS * COLS * 2) == 0);
    plan_release(setup.runner, &plan);
    sumi_plan_end(&plan);
    close_setup(&setup);
    free(file);
}

enum { MAPPED_ROWS = 1024, MAPPED_COLS = 1024, MAPPED_BYTES = MAPPED_ROWS * MAPPED_COLS * 2, MAPPED_WEIGHTS = 4 };

// Weights in a file's mapping: one too small to be copied from there, between three of 2 MiB.
typedef struct mapped_place {
    runner_setup setup;
    sumi_plan plan;
    sumi_weight weights[MAPPED_WEIGHTS];
    unsigned char* file;
} mapped_place;

static void open_mapped(mapped_place* p, bool can_lock)
{
    static const char* const s_names[] = {"first", "small", "second", "third"};
    const size_t bytes = (size_t)MAPPED_WEIGHTS * MAPPED_BYTES;
    sumi_error error = {0};
    fake_reset();
    fake_lock_read_only(can_lock);
    memset(p, 0, sizeof *p);
    p->file = system_allocate(bytes, 4096);
    for (size_t i = 0; i < bytes; i++) p->file[i] = (unsigned char)(i * 2654435761u >> 13);
    open_setup(&p->setup);
    sumi_workers_destroy(p->setup.workers);
    CHECK(sumi_workers_create(&p->setup.heap, NULL, 1, &error, &p->setup.workers) == SUMI_OK);
    CHECK(create_runner(&p->setup, NULL, &error) == SUMI_OK);
    sumi_runner_begin_plan(p->setup.runner, &p->plan, &p->setup.heap);
    sumi_plan_section(&p->plan, SUMI_SECTION_DENOISE, 1, 0);
    const sumi_value x = sumi_plan_bound(&p->plan, "x", SUMI_ELEMENT_ACTIVATION, 4, MAPPED_COLS);
    for (int i = 0; i < MAPPED_WEIGHTS; i++) {
        sumi_weight* weight = &p->weights[i];
        *weight = make_weight(s_names[i], i == 1 ? 16 : MAPPED_ROWS, MAPPED_COLS, p->file + (size_t)i * MAPPED_BYTES,
                              SUMI_DTYPE_BF16);
        weight->index = i;
        weight->tensors[0].mapping = p->file;
        weight->tensors[0].mapping_bytes = bytes;
        (void)sumi_plan_linear(&p->plan, &(sumi_plan_linear_args){.label = s_names[i], .x = x, .weight = weight});
    }
    CHECK(sumi_plan_finish(&p->plan, &error) == SUMI_OK);
}

static bool has_bytes_of_file(const mapped_place* p)
{
    bool are_same = true;
    for (int i = 0; i < MAPPED_WEIGHTS; i++) {
        const sumi_weight* weight = &p->weights[i];
        const sumi_device_resident* resident = sumi_device_weights_find(
            &((const sumi_cuda*)p->setup.runner)->stock.weights, weight, SUMI_DEVICE_FORM_MATRIX);
        are_same = are_same && resident != NULL
                && memcmp((const void*)(uintptr_t)resident->on_device.data, weight->tensors[0].data,
                          (size_t)weight->rows * MAPPED_COLS * 2)
                       == 0;
    }
    return are_same;
}

static void close_mapped(mapped_place* p)
{
    const sumi_weight* list[MAPPED_WEIGHTS];
    for (int i = 0; i < MAPPED_WEIGHTS; i++) list[i] = &p->weights[i];
    CHECK_NUMBER(fake_held_kind("locked"), 0);
    p->setup.runner->functions->release_weights(p->setup.runner, list, MAPPED_WEIGHTS);
    plan_release(p->setup.runner, &p->plan);
    sumi_plan_end(&p->plan);
    close_setup(&p->setup);
    system_release(p->file);
}

// By one worker, only in calls without a budget, and only where the driver locks read-only memory.
TEST(large_weights_are_copied_from_their_mapping)
{
    for (int k = 0; k < 3; k++) {
        mapped_place p;
        sumi_error error = {0};
        const bool is_paced = k == 1, can_lock = k != 2;
        open_mapped(&p, can_lock);
        p.setup.runner->functions->pace(p.setup.runner, is_paced);
        CHECK(plan_prepare(p.setup.runner, &p.plan, &error) == SUMI_OK);
        CHECK_TEXT(error.text, "");
        CHECK(has_bytes_of_file(&p));
        CHECK((fake_calls("cuMemHostUnregister") > 0) == (!is_paced && can_lock));
        close_mapped(&p);
    }
}

// The n-th call of each entry fails while weights are copied from their mapping; another call sends what was not sent.
TEST(a_failure_while_weights_are_copied_from_their_mapping_is_survived)
{
    static const char* const s_entries[] = {"cuMemHostRegister", "cuMemcpyHtoDAsync",  "cuEventCreate",
                                            "cuEventRecord",     "cuEventSynchronize", "cuEventQuery"};
    for (size_t e = 0; e < sizeof s_entries / sizeof *s_entries; e++) {
        bool has_failed = true;
        for (int nth = 1; has_failed && nth < 50; nth++) {
            mapped_place p;
            sumi_error error = {0};
            open_mapped(&p, true);
            (void)fake_fail_call(s_entries[e], nth, CUDA_ERROR_OUT_OF_MEMORY);
            const sumi_result result = plan_prepare(p.setup.runner, &p.plan, &error);
            has_failed = fake_fail_call(s_entries[e], 0, 0);
            CHECK(result == SUMI_OK || has_failed);
            error = (sumi_error){0};
            if (result != SUMI_OK) CHECK(plan_prepare(p.setup.runner, &p.plan, &error) == SUMI_OK);
            CHECK(has_bytes_of_file(&p));
            close_mapped(&p);
        }
    }
}

// A weight stacked of tensors of two block types is stored on the device as in the file, byte for byte.
TEST(weights_of_block_types_stay_as_their_file_has_them)
{
    fake_reset();
    runner_setup setup;
    sumi_error error = {0};
    enum { ROWS = 1000, COLS = 2304, FIRST = 333, BYTES_Q6 = COLS / 256 * 210, BYTES_Q4 = COLS / 256 * 144 };
    enum { ALL = FIRST * BYTES_Q6 + (ROWS - FIRST) * BYTES_Q4 };
    unsigned char* file = malloc(ALL + 2);
    for (size_t i = 0; i < ALL + 2; i++) file[i] = (unsigned char)(i * 2654435761u >> 13);
    sumi_weight weight = make_weight("stack", ROWS, COLS, file + 2, SUMI_DTYPE_Q6_K);
    weight.tensors[0].rows = FIRST;
    weight.tensor_count = 2;
    weight.tensors[1] = (sumi_stacked_tensor){
        .data = file + 2 + FIRST * BYTES_Q6, .dtype = SUMI_DTYPE_Q4_K, .rows = ROWS - FIRST, .scale = 1.0f};
    open_setup(&setup);
    CHECK(create_runner(&setup, NULL, &error) == SUMI_OK);
    sumi_plan plan;
    sumi_runner_begin_plan(setup.runner, &plan, &setup.heap);
    plan.weight_options.weights = SUMI_WEIGHTS_AS_STORED;
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0); // not only when denoising
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 4, COLS);
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "stack", .x = x, .weight = &weight});
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    CHECK(plan.ops[0].marks == SUMI_DEVICE_OP_STORED);
    CHECK(plan_prepare(setup.runner, &plan, &error) == SUMI_OK);
    const sumi_device_resident* resident =
        sumi_device_weights_find(&((const sumi_cuda*)setup.runner)->stock.weights, &weight, SUMI_DEVICE_FORM_STORED);
    sumi_device_stored_tensor parts[SUMI_WEIGHT_MAX_TENSORS];
    CHECK_NUMBER(sumi_device_stored_tensors(&weight, SUMI_DEVICE_FORM_STORED, parts), 2);
    CHECK(parts[1].offset % 16 == 0 && parts[1].offset >= (uint64_t)FIRST * BYTES_Q6);
    CHECK(resident != NULL && resident->bytes <= ALL + 1024);
    for (int p = 0; p < 2 && resident != NULL; p++) {
        const unsigned char* its = (const unsigned char*)(uintptr_t)resident->on_device.data + parts[p].offset;
        CHECK(memcmp(its, weight.tensors[p].data, (size_t)(parts[p].row_bytes * (uint64_t)parts[p].rows)) == 0);
    }
    plan_release(setup.runner, &plan);
    sumi_plan_end(&plan);
    close_setup(&setup);
    free(file);
}

// ---- Factors that lie elsewhere in the file ------------------------------------------------------------------------

enum { PACKED_ROWS = 140, PACKED_COLS = 512 };

static float e4m3(unsigned char bits)
{
    float value;
    sumi_dtype_to_float(SUMI_DTYPE_F8_E4M3, &bits, &value, 1);
    return value;
}

// Element `column` of a row that lies on the device, as kernels/stored.h says.
static float packed_nvfp4(const unsigned char* row, int column)
{
    static const float s_e2m1[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    const unsigned char* block = row + column / 32 * 18;
    const int code = block[2 + column % 16] >> (column % 32 < 16 ? 0 : 4) & 15;
    return (code >= 8 ? -s_e2m1[code - 8] : s_e2m1[code]) * e4m3(block[column % 32 / 16]);
}
static float packed_e4m3b(const unsigned char* row, int column)
{
    const unsigned char* chunk = row + column / 256 * 272;
    float factor;
    memcpy(&factor, chunk + column % 256 / 64 * 4, 4);
    return e4m3(chunk[16 + column % 256]) * factor;
}

// Uploads the weight in several pieces and compares what lies on the device with the CPU's expansion.
static void check_packed(sumi_weight* weight, float (*read)(const unsigned char* row, int column))
{
    fake_reset();
    runner_setup setup;
    sumi_error error = {0};
    open_setup(&setup);
    CHECK(create_runner(&setup, NULL, &error) == SUMI_OK);
    sumi_plan plan;
    sumi_runner_begin_plan(setup.runner, &plan, &setup.heap);
    plan.weight_options.weights = SUMI_WEIGHTS_AS_STORED;
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 4, PACKED_COLS);
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "packed", .x = x, .weight = weight});
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    CHECK(plan.ops[0].marks == SUMI_DEVICE_OP_STORED);
    CHECK(plan_prepare(setup.runner, &plan, &error) == SUMI_OK);
    const sumi_device_resident* resident =
        sumi_device_weights_find(&((const sumi_cuda*)setup.runner)->stock.weights, weight, SUMI_DEVICE_FORM_STORED);
    sumi_device_stored_tensor parts[SUMI_WEIGHT_MAX_TENSORS];
    CHECK_NUMBER(sumi_device_stored_tensors(weight, SUMI_DEVICE_FORM_STORED, parts), 1);
    float want[PACKED_COLS];
    int wrong = 0;
    for (int r = 0; r < PACKED_ROWS && resident != NULL; r++) {
        const unsigned char* row = (const unsigned char*)(uintptr_t)resident->on_device.data + parts[0].offset
                                 + parts[0].row_bytes * (uint64_t)r;
        sumi_weight_to_float(weight, r, 1, want, PACKED_COLS);
        for (int c = 0; c < PACKED_COLS; c++) {
            const float value = read(row, c) * parts[0].scale;
            wrong += memcmp(&value, &want[c], sizeof value) != 0;
        }
    }
    CHECK(resident != NULL);
    CHECK_NUMBER(wrong, 0);
    plan_release(setup.runner, &plan);
    sumi_plan_end(&plan);
    close_setup(&setup);
}

TEST(factors_of_blocks_are_packed_beside_their_elements)
{
    static unsigned char s_data[PACKED_ROWS * PACKED_COLS], s_factors[256 * 32 * 4];
    static float s_rows[PACKED_ROWS];
    for (size_t i = 0; i < sizeof s_data; i++) // without NaN
        s_data[i] = (unsigned char)((i * 2654435761u >> 13 & 127) % 127 | (i * 40503u >> 5 & 128));
    for (size_t i = 0; i < sizeof s_factors; i++) s_factors[i] = (unsigned char)(20 + i * 2654435761u % 71);
    for (int i = 0; i < PACKED_ROWS; i++) s_rows[i] = 0.01f * (float)(i + 1);
    sumi_decoding nvfp4 = {.scales = s_factors,
                           .scale_dtype = SUMI_DTYPE_F8_E4M3,
                           .block_rows = 1,
                           .block_cols = 16,
                           .pitch = 32,
                           .has_codes = true,
                           .codes = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f, -2.0f,
                                     -3.0f, -4.0f, -6.0f}},
                  blocks = {.scales = s_factors,
                            .scale_dtype = SUMI_DTYPE_BF16,
                            .block_rows = 128,
                            .block_cols = 128,
                            .pitch = 4};
    sumi_weight codes = make_weight("codes", PACKED_ROWS, PACKED_COLS, s_data, SUMI_DTYPE_CODES4),
                fp8 = make_weight("fp8", PACKED_ROWS, PACKED_COLS, s_data, SUMI_DTYPE_F8_E4M3), rows = fp8;
    codes.tensors[0].decoding = &nvfp4;
    codes.tensors[0].scale = 0.37f;
    for (int i = 0; i < 4; i++) {
        nvfp4.is_tiled = i % 2 != 0;
        nvfp4.high_first = i / 2 != 0;
        check_packed(&codes, packed_nvfp4);
    }
    fp8.tensors[0].decoding = &blocks;
    fp8.tensors[0].scale = 0.37f;
    check_packed(&fp8, packed_e4m3b);
    blocks = (sumi_decoding){
        .scales = s_factors, .scale_dtype = SUMI_DTYPE_F32, .block_rows = 1, .block_cols = INT32_MAX, .pitch = 1};
    check_packed(&fp8, packed_e4m3b);
    rows.tensors[0].row_scales = s_rows;
    check_packed(&rows, packed_e4m3b);
    nvfp4.column_scales = s_rows;
    blocks.block_cols = 32;
    CHECK(!sumi_device_is_storable(&codes) && !sumi_device_is_storable(&fp8));
}

TEST(what_is_kept_as_stored_follows_from_the_weight)
{
    static const sumi_weight_change s_change = {.down = {.rows = 4}, .up = {.rows = 512}};
    static const float s_scales[512];
    sumi_weight q4 = make_weight("q4", 512, 256, NULL, SUMI_DTYPE_Q4_0), odd = make_weight("odd", 512, 48, NULL, 0),
                changed = q4, scaled = make_weight("scaled", 512, 256, NULL, SUMI_DTYPE_F8_E4M3), rows = scaled,
                half = make_weight("half", 512, 256, NULL, SUMI_DTYPE_F16);
    odd.tensors[0].dtype = SUMI_DTYPE_F8_E5M2;
    changed.change = &s_change;
    scaled.tensors[0].scale = 0.25f;
    rows.tensors[0].row_scales = s_scales;
    sumi_weight short_rows = rows, rotated = rows;
    short_rows.cols = 128;
    rotated.tensors[0].rotation = 64;
    CHECK(sumi_device_is_storable(&q4) && sumi_device_is_storable(&scaled) && sumi_device_is_storable(&rows));
    CHECK(!sumi_device_is_storable(&odd) && !sumi_device_is_storable(&changed) && !sumi_device_is_storable(&half)
          && !sumi_device_is_storable(&short_rows) && !sumi_device_is_storable(&rotated));
    CHECK(sumi_device_form_bytes(&rows, SUMI_DEVICE_FORM_STORED) <= 512 * 272 + 1024);
    CHECK(!sumi_device_form_is_made_on_cpu(&rows, SUMI_DEVICE_FORM_STORED));
    CHECK(sumi_device_form_bytes(&q4, SUMI_DEVICE_FORM_STORED) <= 512 * 256 / 32 * 18 + 1024);
    CHECK(sumi_device_form_bytes(&half, SUMI_DEVICE_FORM_INT4) <= 512 * 256 / 32 * 18 + 1024);
    CHECK(sumi_device_form_is_made_on_cpu(&q4, SUMI_DEVICE_FORM_STORED)
          && !sumi_device_form_is_made_on_cpu(&half, SUMI_DEVICE_FORM_INT4));
}

// ---- What the kernels that convert rows are given -------------------------------------------------------------------
// A function of the test is called at each launch and reads its arguments.

// Each row must come once, in order, as floats of what sumi_weight_to_float() computes.
typedef struct uploaded_sums {
    const sumi_weight* weight;
    int32_t rows, wrong;
} uploaded_sums;

static void check_uploaded_sums(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data)
{
    uploaded_sums* seen = user_data;
    sumi_upload_args args;
    if (strncmp(kernel, "sumi_upload_", 12) != 0) return;
    CHECK(bytes >= sizeof args);
    memcpy(&args, parameters, sizeof args);
    const int32_t cols = seen->weight->cols;
    if (args.cols != cols) return;
    float* want = malloc((size_t)cols * sizeof *want);
    for (int32_t r = 0; r < args.row_count; r++) {
        sumi_weight_to_float(seen->weight, args.row_begin + r, 1, want, cols);
        seen->wrong +=
            memcmp((const float*)(uintptr_t)args.from + (size_t)r * (size_t)cols, want, (size_t)cols * sizeof *want)
            != 0;
    }
    seen->wrong += args.type != SUMI_UPLOAD_F32 || args.scale != 1.0f || args.row_begin != seen->rows;
    seen->rows += args.row_count;
    free(want);
}

static void check_upload_as_floats(const sumi_weight* weight)
{
    fake_reset();
    runner_setup setup;
    sumi_error error = {0};
    open_setup(&setup);
    CHECK(create_runner(&setup, NULL, &error) == SUMI_OK);
    sumi_plan plan;
    sumi_runner_begin_plan(setup.runner, &plan, &setup.heap);
    sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 4, weight->cols);
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = weight->name, .x = x, .weight = weight});
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    uploaded_sums seen = {.weight = weight};
    fake_on_launch(check_uploaded_sums, &seen);
    CHECK(plan_prepare(setup.runner, &plan, &error) == SUMI_OK);
    fake_on_launch(NULL, NULL);
    CHECK_NUMBER(seen.rows, weight->rows);
    CHECK_NUMBER(seen.wrong, 0);
    plan_release(setup.runner, &plan);
    sumi_plan_end(&plan);
    close_setup(&setup);
}

// 9 MB of floats: more than one staging slot.
enum { FLOAT_ROWS = 1500, FLOAT_COLS = 1504 };

TEST(weights_with_a_change_come_as_floats_of_the_sums)
{
    enum { RANK = 4 };
    static uint16_t s_data[FLOAT_ROWS * FLOAT_COLS], s_down[RANK * FLOAT_COLS], s_up[FLOAT_ROWS * RANK];
    fill_bf16(s_data, FLOAT_ROWS * FLOAT_COLS, 6);
    fill_bf16(s_down, RANK * FLOAT_COLS, 7);
    fill_bf16(s_up, FLOAT_ROWS * RANK, 8);
    const sumi_weight_change change = {
        .down = {.data = s_down, .dtype = SUMI_DTYPE_BF16, .rows = RANK, .scale = 1.0f},
        .up = {.data = s_up, .dtype = SUMI_DTYPE_BF16, .rows = FLOAT_ROWS, .scale = 0.5f}};
    sumi_weight weight = make_weight("changed", FLOAT_ROWS, FLOAT_COLS, s_data, SUMI_DTYPE_BF16);
    weight.change = &change;
    check_upload_as_floats(&weight);
}

TEST(weights_with_scales_of_rows_or_rotated_come_as_floats)
{
    static unsigned char s_data[FLOAT_ROWS * FLOAT_COLS];
    static float s_scales[FLOAT_ROWS];
    for (int i = 0; i < FLOAT_ROWS * FLOAT_COLS; i++)
        s_data[i] = (unsigned char)(i * 37 % 127); // none of them is NaN in e4m3
    for (int i = 0; i < FLOAT_ROWS; i++) s_scales[i] = 0.25f + (float)(i % 9) / 8.0f;
    sumi_weight weight = make_weight("fp8 rows", FLOAT_ROWS, FLOAT_COLS, s_data, SUMI_DTYPE_F8_E4M3);
    weight.tensors[0].row_scales = s_scales;
    check_upload_as_floats(&weight);
    weight = make_weight("rotated", FLOAT_ROWS, FLOAT_COLS, s_data, SUMI_DTYPE_I8);
    weight.tensors[0].row_scales = s_scales;
    weight.tensors[0].rotation = 16;
    check_upload_as_floats(&weight);
}

// Blocks that share a scale, and pairs of 4-bit codes: never kept as stored, and uploaded as their values.
TEST(weights_that_are_decoded_come_as_floats)
{
    static unsigned char s_data[FLOAT_ROWS * FLOAT_COLS], blocks[FLOAT_ROWS * (FLOAT_COLS / 16)];
    for (int i = 0; i < FLOAT_ROWS * FLOAT_COLS; i++) s_data[i] = (unsigned char)(i * 37 % 127);
    for (size_t i = 0; i < sizeof blocks; i++) blocks[i] = (unsigned char)(40 + i % 20);
    sumi_decoding decoding = {.scales = blocks,
                              .scale_dtype = SUMI_DTYPE_F8_E4M3,
                              .block_rows = 1,
                              .block_cols = 16,
                              .pitch = FLOAT_COLS / 16};
    sumi_weight weight = make_weight("fp8 blocks", FLOAT_ROWS, FLOAT_COLS, s_data, SUMI_DTYPE_F8_E4M3);
    weight.tensors[0].decoding = &decoding;
    CHECK(!sumi_device_is_storable(&weight));
    check_upload_as_floats(&weight);
    decoding.has_codes = true;
    for (int i = 0; i < SUMI_CODE_COUNT; i++) decoding.codes[i] = (float)(i - 8);
    weight = make_weight("codes", FLOAT_ROWS, FLOAT_COLS, s_data, SUMI_DTYPE_CODES4);
    weight.tensors[0].decoding = &decoding;
    CHECK(!sumi_device_is_storable(&weight));
    check_upload_as_floats(&weight);
}

TEST(a_balance_is_the_root_of_what_a_norm_multiplies_by)
{
    static const float s_values[8] = {4.0f, -4.0f, 16.0f, 0.0f, 1e-3f, 4.0f, -100.0f, 0.25f};
    const float mean = 128.251f / 8.0f, least = mean / 16.0f;
    const sumi_weight norm = make_weight("norm", 1, 8, s_values, SUMI_DTYPE_F32);
    float got[8];
    sumi_device_balance(&norm, got);
    for (int32_t c = 0; c < 8; c++) {
        const float size = fabsf(s_values[c]) < least ? least : fabsf(s_values[c]);
        CHECK_NEAR(got[c] * sqrtf(size), 1.0, 1e-5, 0);
    }
    static const float s_zeros[8] = {0};
    const sumi_weight none = make_weight("zeros", 1, 8, s_zeros, SUMI_DTYPE_F32);
    sumi_device_balance(&none, got);
    for (int32_t c = 0; c < 8; c++) CHECK(isfinite(got[c]) && got[c] > 0.0f);
}

// The balance must be complete on the device before the first row that is divided by it is converted. Each row begins
// with its index.
typedef struct uploaded_balances {
    const float* want;
    int32_t cols, rows, vectors, wrong;
} uploaded_balances;

static void check_uploaded_balances(const char* kernel, const unsigned char* parameters, uint64_t bytes,
                                    void* user_data)
{
    uploaded_balances* seen = user_data;
    sumi_upload_args args;
    if (strncmp(kernel, "sumi_upload_", 12) != 0) return;
    CHECK(bytes >= sizeof args);
    memcpy(&args, parameters, sizeof args);
    const float *balance = (const float*)(uintptr_t)args.balance, *from = (const float*)(uintptr_t)args.from;
    seen->wrong += balance == NULL || args.balance % 16 != 0
                || memcmp(balance, seen->want, (size_t)seen->cols * sizeof *balance) != 0;
    if (args.stack_rows == 1) seen->vectors++;
    for (int32_t r = 0; r < args.row_count && args.stack_rows > 1; r++)
        seen->wrong += from[(size_t)r * (size_t)args.cols] != (float)(args.row_begin + r);
    seen->rows += args.stack_rows > 1 ? args.row_count : 0;
}

TEST(a_balance_is_uploaded_before_its_rows)
{
    enum { ROWS = 1504, COLS = 1520 }; // 9 MB: more than one staging slot
    fake_reset();
    runner_setup setup;
    sumi_error error = {0};
    static float s_values[COLS], s_want[COLS];
    float* file = calloc((size_t)ROWS * COLS, sizeof *file);
    for (int32_t c = 0; c < COLS; c++) s_values[c] = c % 30 == 7 ? 40.0f : 1.0f + (float)c / COLS;
    for (int32_t r = 0; r < ROWS; r++) file[(size_t)r * COLS] = (float)r;
    sumi_weight norm = make_weight("norm", 1, COLS, s_values, SUMI_DTYPE_F32),
                product = make_weight("product", ROWS, COLS, file, SUMI_DTYPE_F32);
    product.balance = &norm;
    sumi_device_balance(&norm, s_want);
    open_setup(&setup);
    CHECK(create_runner(&setup, NULL, &error) == SUMI_OK);
    sumi_plan plan;
    sumi_runner_begin_plan(setup.runner, &plan, &setup.heap);
    plan.weight_options.weights = SUMI_WEIGHTS_INT8;
    sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
    sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 4, COLS);
    sumi_value n = sumi_plan_norm(&plan, &(sumi_plan_norm_args){.label = "n", .x = x, .weight = &norm, .eps = 1e-5f});
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "product", .x = n, .weight = &product});
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK);
    uploaded_balances seen = {.want = s_want, .cols = COLS};
    fake_on_launch(check_uploaded_balances, &seen);
    CHECK(plan_prepare(setup.runner, &plan, &error) == SUMI_OK);
    fake_on_launch(NULL, NULL);
    CHECK_TEXT(error.text, "");
    CHECK_NUMBER(seen.rows, ROWS);
    CHECK_NUMBER(seen.vectors, 1);
    CHECK_NUMBER(seen.wrong, 0);
    const sumi_device_form forms[] = {SUMI_DEVICE_FORM_VECTOR_BALANCED, SUMI_DEVICE_FORM_MATRIX_INT8};
    for (int32_t i = 0; i < 2; i++) { // the balance is the last part of the form
        const sumi_device_resident* resident = sumi_device_weights_find(
            &((const sumi_cuda*)setup.runner)->stock.weights, i == 0 ? &norm : &product, forms[i]);
        CHECK(resident != NULL && resident->on_device.balance >= resident->on_device.data + (i == 0 ? COLS * 4 : 0)
              && resident->on_device.balance >= resident->on_device.scales + (i == 0 ? 0 : ROWS * 4)
              && resident->on_device.balance + COLS * 4 <= resident->on_device.data + resident->bytes);
    }
    plan_release(setup.runner, &plan);
    sumi_plan_end(&plan);
    close_setup(&setup);
    free(file);
}

// ---- Limits and failures --------------------------------------------------------------------------------------------

// Without a budget what a plan lacks is pinned at once, up to four megabytes, because that takes less time. The ring
// buffer is as large as twice the inputs, up to four megabytes too.
TEST(a_plan_pins_what_its_inputs_and_results_take)
{
    enum { COLS = 1024, RESULT_ROWS = 1280 }; // 2.5 MiB of activations
    static const struct {
        int32_t input_rows, ring_pages;
        bool is_paced;
    } s_cases[] = {{1, 1, false}, {600, 3, false}, {4000, 4, false}, {600, 3, true}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        fake_reset();
        runner_setup setup;
        sumi_error error = {0};
        open_setup(&setup);
        CHECK(create_runner(&setup, NULL, &error) == SUMI_OK);
        const sumi_runner_functions* f = setup.runner->functions;
        const int32_t pages = s_cases[i].ring_pages + 3;
        f->pace(setup.runner, s_cases[i].is_paced);
        sumi_plan plan;
        sumi_runner_begin_plan(setup.runner, &plan, &setup.heap);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
        const sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, s_cases[i].input_rows, COLS),
                         y = sumi_plan_bound(&plan, "y", SUMI_ELEMENT_ACTIVATION, RESULT_ROWS, COLS);
        sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = x, .y = y, .rows = 1});
        CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK
              && plan_slice(&plan, &(sumi_rates){1e6, 1e6, 3.0}, 0, &error) == SUMI_OK);
        CHECK(f->reserve(setup.runner, &plan, &error) == SUMI_OK);
        bool is_done = false;
        float progress;
        const uint64_t before = fake_calls("cuMemHostAlloc") + fake_calls("cuMemHostRegister");
        for (int32_t calls = 0; !is_done && calls < 1000; calls++)
            CHECK(f->prepare(setup.runner, &plan, 1000000, &is_done, &progress, &error) == SUMI_OK);
        CHECK(is_done);
        CHECK_NUMBER(fake_calls("cuMemHostAlloc") + fake_calls("cuMemHostRegister") - before,
                     s_cases[i].is_paced ? pages : (pages + 3) / 4);
        sumi_device_properties properties;
        sumi_device_need need;
        f->properties(setup.runner, &properties);
        CHECK(f->need(setup.runner, &plan, 0, &need, &error) == SUMI_OK);
        CHECK_NUMBER(properties.held_bytes[SUMI_MEMORY_STAGING], (uint64_t)pages << 20);
        CHECK_NUMBER(need.pinned_bytes, (uint64_t)pages << 20);
        plan_release(setup.runner, &plan);
        sumi_plan_end(&plan);
        close_setup(&setup);
    }
}

// A host program calls the runner once per frame. Pinning memory is slow, so one call pins at most one megabyte,
// however much is needed for the staging slots of weights and for inputs and results.
TEST(no_call_pins_long)
{
    // 36 MiB of floats; x: 3 MiB of activations
    enum { PIN_US = 2000, BUDGET_US = 500, ROWS = 4096, COLS = 2304, TOKENS_OF_X = 700 };
    fake_reset();
    fake_pinning_takes(PIN_US);
    runner_setup setup;
    sumi_error error = {0};
    float* file = malloc((size_t)ROWS * COLS * sizeof *file);
    for (size_t i = 0; i < (size_t)ROWS * COLS; i++) file[i] = (float)i;
    const sumi_weight weight = make_weight("large", ROWS, COLS, file, SUMI_DTYPE_F32);
    open_setup(&setup);
    CHECK(create_runner(&setup, NULL, &error) == SUMI_OK);
    const sumi_runner_functions* f = setup.runner->functions;
    f->pace(setup.runner, true);
    sumi_plan plan;
    sumi_runner_begin_plan(setup.runner, &plan, &setup.heap);
    sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
    const sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, TOKENS_OF_X, COLS);
    (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "large", .x = x, .weight = &weight});
    // an op writes x, so that x can be read back
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = x, .y = x, .y_row = 1, .rows = 1});
    CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK
          && plan_slice(&plan, &(sumi_rates){1e6, 1e6, 3.0}, 0, &error) == SUMI_OK);
    uint64_t longest = 0;
    for (int32_t round = 0; round < 2; round++) { // as loading a model (weights), then as an image job (all the rest)
        bool is_done = false;
        float progress;
        for (int32_t calls = 0; !is_done && calls < 1000; calls++) {
            const uint64_t before = fake_pinning_us();
            CHECK(f->prepare(setup.runner, &plan, BUDGET_US, &is_done, &progress, &error) == SUMI_OK);
            const uint64_t spent = fake_pinning_us() - before;
            longest = spent > longest ? spent : longest;
        }
        CHECK(is_done);
        const uint64_t before = fake_pinning_us();
        if (round == 0) CHECK(f->reserve(setup.runner, &plan, &error) == SUMI_OK);
        CHECK_NUMBER(fake_pinning_us() - before, 0);
    }
    CHECK_NUMBER(longest, PIN_US); // of one megabyte
    // staging slots pinned and unpinned, a ring buffer for no inputs, x
    CHECK_NUMBER(fake_pinning_us(), (4 + 4 + 1 + 4) * PIN_US);

    const uint64_t bytes = sumi_plan_info(&plan, x)->bytes;
    CHECK(bytes > 3 << 20);
    f->start(setup.runner, &plan);
    for (uint64_t at = 0; at < bytes;
         at += 1000001) { // the pieces cross ends of pages and go around the ring buffer twice
        const uint64_t piece = bytes - at < 1000001 ? bytes - at : 1000001;
        f->write(setup.runner, &plan, x, at, (const unsigned char*)file + (3 << 20), piece);
        f->write(setup.runner, &plan, x, at, (const unsigned char*)file + at, piece);
    }
    CHECK(setup.runner->async->start_read(setup.runner, &plan, x, &error) == SUMI_OK);
    unsigned char* back = malloc((size_t)bytes);
    f->read(setup.runner, &plan, x, 0, back, 77);
    f->read(setup.runner, &plan, x, 77, back + 77, bytes - 77);
    CHECK(memcmp(back, file, (size_t)bytes) == 0);
    free(back);
    plan_release(setup.runner, &plan);
    sumi_plan_end(&plan);
    close_setup(&setup);
    free(file);
}

// An upload that begins without a budget has large buffers. A frame that goes on with it pins no more of them, and what
// it uploads is the same.
TEST(a_frame_goes_on_with_the_buffers_of_a_wait)
{
    enum { ROWS = 4096, COLS = 6000, UNPACED_CALLS = 2 }; // 98 MB of floats
    float* file = calloc((size_t)ROWS * COLS, sizeof *file);
    const sumi_weight weight = make_weight("large", ROWS, COLS, file, SUMI_DTYPE_F32);
    for (int is_paced = 0; is_paced < 2; is_paced++) {
        fake_reset();
        runner_setup setup;
        sumi_error error = {0};
        open_setup(&setup);
        CHECK(create_runner(&setup, NULL, &error) == SUMI_OK);
        const sumi_runner_functions* f = setup.runner->functions;
        sumi_plan plan;
        sumi_runner_begin_plan(setup.runner, &plan, &setup.heap);
        sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 1, 0);
        const sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_ACTIVATION, 1, COLS);
        (void)sumi_plan_linear(&plan, &(sumi_plan_linear_args){.label = "large", .x = x, .weight = &weight});
        CHECK(sumi_plan_finish(&plan, &error) == SUMI_OK
              && plan_slice(&plan, &(sumi_rates){1e6, 1e6, 3.0}, 0, &error) == SUMI_OK);
        bool is_done = false;
        float progress;
        uint64_t pinned_before = 0;
        for (int32_t calls = 0; !is_done && calls < 1000; calls++) {
            if (calls == UNPACED_CALLS) {
                f->pace(setup.runner, is_paced != 0);
                pinned_before = fake_calls("cuMemHostAlloc");
                CHECK(pinned_before > 0);
            }
            CHECK(f->prepare(setup.runner, &plan, 100, &is_done, &progress, &error) == SUMI_OK);
            if (calls < UNPACED_CALLS) CHECK(!is_done);
        }
        CHECK(is_done);
        CHECK((fake_calls("cuMemHostAlloc") > pinned_before) == (is_paced == 0));
        CHECK_NUMBER(fake_held_kind("pinned"), 0);
        CHECK_NUMBER(fake_violations(), 0);
        plan_release(setup.runner, &plan);
        sumi_plan_end(&plan);
        close_setup(&setup);
    }
    free(file);
}

TEST(what_was_not_uploaded_is_uploaded_again)
{
    static small_model s_model;
    make_small_model(&s_model);
    const char* const calls[] = {"cuMemcpyHtoDAsync", "cuLaunchKernel", "cuEventRecord"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        fake_reset();
        runner_setup setup;
        small_plan small;
        sumi_error error = {0};
        open_setup(&setup);
        CHECK(create_runner(&setup, NULL, &error) == SUMI_OK);
        CHECK(write_small_plan(&small, &setup, &s_model, TOKENS, 100, &error) == SUMI_OK);
        fake_fail_call(calls[i], 1, 1); // fails with CUDA_ERROR_INVALID_VALUE
        CHECK(plan_prepare(setup.runner, &small.plan, &error) == SUMI_INTERNAL);
        CHECK(fake_fail_call(NULL, 0, 0));
        error = (sumi_error){0};
        CHECK(plan_prepare(setup.runner, &small.plan, &error) == SUMI_OK);
        const sumi_device_resident* table = sumi_device_weights_find(&((const sumi_cuda*)setup.runner)->stock.weights,
                                                                     &s_model.embedding, SUMI_DEVICE_FORM_MATRIX);
        CHECK(table != NULL
              && memcmp((const void*)(uintptr_t)table->on_device.data, s_model.table, sizeof s_model.table) == 0);
        plan_release(setup.runner, &small.plan);
        sumi_plan_end(&small.plan);
        close_setup(&setup);
    }
}

TEST(factors_and_changed_norms_run_and_are_released)
{
    runner_setup setup;
    static small_model s_model;
    uint64_t launches[2] = {0, 0};
    make_small_model(&s_model);
    s_model.use_count = 1;
    for (int graphs = 0; graphs < 2; graphs++) {
        for (uint32_t slice_us = 0; slice_us < 8; slice_us += 7) {
            fake_reset();
            small_plan small;
            sumi_error error = {0};
            open_setup(&setup);
            CHECK(create_runner(&setup, &(sumi_cuda_options){.without_graphs = graphs == 0}, &error) == SUMI_OK);
            CHECK(write_small_plan(&small, &setup, &s_model, TOKENS, slice_us, &error) == SUMI_OK);
            fake_count_launches(true);
            CHECK(run_small_plan(setup.runner, &small, &error) == SUMI_OK);
            CHECK_TEXT(error.text, "");
            if (slice_us == 0) launches[graphs] = fake_launch_hash();
            const sumi_cuda* cuda = (const sumi_cuda*)setup.runner;
            for (int32_t d = 0; d < 3; d++) {
                const sumi_device_form up = d == 0 ? SUMI_DEVICE_FORM_MATRIX : SUMI_DEVICE_FORM_VECTOR;
                const sumi_device_resident* resident =
                    sumi_device_weights_find(&cuda->stock.weights, &s_model.deltas[d].up, up);
                CHECK(resident != NULL && resident->is_adapter && resident->on_device.data != 0);
                resident =
                    sumi_device_weights_find(&cuda->stock.weights, &s_model.deltas[d].down, SUMI_DEVICE_FORM_MATRIX);
                CHECK(d == 0 ? resident == NULL : resident != NULL && resident->is_adapter);
            }
            plan_release(setup.runner, &small.plan);
            sumi_plan_end(&small.plan);
            for (int32_t d = 0; d < 3; d++) { // as when an adapter is released
                const sumi_weight* pair[] = {&s_model.deltas[d].down, &s_model.deltas[d].up};
                setup.runner->functions->release_weights(setup.runner, pair, 2);
                CHECK(sumi_device_weights_find(&cuda->stock.weights, &s_model.deltas[d].up, SUMI_DEVICE_FORM_VECTOR)
                      == NULL);
            }
            close_setup(&setup);
        }
    }
    CHECK(launches[0] == launches[1] && launches[0] != 0);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(weights_are_uploaded_and_released);
    RUN(large_weights_come_in_pieces_from_any_address);
    RUN(large_weights_are_copied_from_their_mapping);
    RUN(a_failure_while_weights_are_copied_from_their_mapping_is_survived);
    RUN(weights_of_block_types_stay_as_their_file_has_them);
    RUN(factors_of_blocks_are_packed_beside_their_elements);
    RUN(what_is_kept_as_stored_follows_from_the_weight);
    RUN(weights_with_a_change_come_as_floats_of_the_sums);
    RUN(weights_with_scales_of_rows_or_rotated_come_as_floats);
    RUN(weights_that_are_decoded_come_as_floats);
    RUN(a_balance_is_the_root_of_what_a_norm_multiplies_by);
    RUN(a_balance_is_uploaded_before_its_rows);
    RUN(a_plan_pins_what_its_inputs_and_results_take);
    RUN(no_call_pins_long);
    RUN(a_frame_goes_on_with_the_buffers_of_a_wait);
    RUN(what_was_not_uploaded_is_uploaded_again);
    RUN(factors_and_changed_norms_run_and_are_released);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
