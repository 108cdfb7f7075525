// Weights as the binder makes them of a file's tensors: quantised matrices have the values of an independent
// implementation however they are read, and what cannot be bound is refused.
#include "base/rotation.h"
#include "models/weights.h"
#include "number_formats.h"
#include "test.h"

#define FOLDER "tests/golden/common/files/int8/"
#define QUANTISED "tests/golden/common/files/quantised/"

static sumi_heap s_heap;

// A file's tensors as a component, and the binder over them.
typedef struct bound {
    sumi_tensor_set set;
    sumi_component part;
    sumi_weight_list list;
    sumi_error error;
    sumi_binder binder;
} bound;

static void bound_begin(bound* b, const char* path)
{
    memset(b, 0, sizeof *b);
    sumi_tensor_set_init(&b->set, &s_heap, NULL);
    sumi_weight_list_init(&b->list, &s_heap);
    b->part = (sumi_component){.present = true, .set = &b->set, .prefix = "", .path = path};
    b->binder = (sumi_binder){.list = &b->list, .component = &b->part, .what = "the test", .error = &b->error};
    CHECK_NUMBER(path[0] == 0 ? SUMI_OK : sumi_tensor_set_open(&b->set, path, &b->error), SUMI_OK);
}

static void bound_end(bound* b)
{
    sumi_weight_list_close(&b->list);
    sumi_tensor_set_close(&b->set);
}

static void add(bound* b, const char* name, sumi_dtype dtype, int64_t rows, int64_t cols, const void* data)
{
    const sumi_tensor tensor = {.dtype = dtype,
                                .rank = 2,
                                .shape = {rows, cols},
                                .data = data,
                                .bytes = sumi_dtype_bytes(dtype, (uint64_t)(rows * cols)),
                                .file_index = -1};
    CHECK_NUMBER(sumi_tensor_set_add(&b->set, name, strlen(name), &tensor, "memory", NULL), SUMI_OK);
}

// ---- int8 -----------------------------------------------------------------------------------------------------------

// Rows in one go, rows alone and blocks of columns have the expected bits.
static void check_values(const sumi_weight* weight, const float* want, const char* layer)
{
    const int32_t rows = weight->rows, cols = weight->cols;
    float *all = malloc((size_t)rows * (size_t)(cols + 3) * sizeof *all), *one = malloc((size_t)cols * sizeof *one);
    const int before = t_errors;
    sumi_weight_to_float(weight, 0, rows, all, cols + 3);
    for (int32_t r = 0; r < rows; r++) {
        const float* row = want + (size_t)r * (size_t)cols;
        CHECK(memcmp(all + (size_t)r * (size_t)(cols + 3), row, (size_t)cols * sizeof *row) == 0);
        sumi_weight_to_float(weight, r, 1, one, cols);
        CHECK(memcmp(one, row, (size_t)cols * sizeof *row) == 0);
        for (int32_t c = 0; c < cols; c += 256) {
            const int32_t count = cols - c < 256 ? cols - c : 256;
            sumi_weight_block_to_float(weight, (sumi_weight_block){r, 1, c, count}, one, count);
            CHECK(memcmp(one, row + c, (size_t)count * sizeof *row) == 0);
        }
    }
    if (t_errors != before) printf("  in %s\n", layer);
    free(all), free(one);
}

TEST(int8_matrices_have_the_values_of_another_implementation)
{
    bound b, expected;
    bound_begin(&b, FOLDER "layers.safetensors");
    bound_begin(&expected, FOLDER "expected.safetensors");
    CHECK_NUMBER(expected.set.count, 6);
    for (size_t i = 0; i < expected.set.count; i++) {
        const sumi_tensor* want = &expected.set.tensors[i];
        sumi_weight* weight = sumi_weight_list_reserve(&b.list, sizeof *weight);
        sumi_bind_matrix(&b.binder, weight, want->name, (int32_t)want->shape[0], (int32_t)want->shape[1]);
        CHECK_NUMBER(b.binder.result, SUMI_OK);
        CHECK_TEXT(b.error.text, "");
        if (b.binder.result != SUMI_OK) break;
        CHECK_NUMBER(weight->tensors[0].dtype, SUMI_DTYPE_I8);
        check_values(weight, want->data, want->name);
    }
    bound_end(&expected);
    bound_end(&b);
}

TEST(int8_matrices_are_stacked_with_their_own_scales_and_rotations)
{
    bound b, expected;
    bound_begin(&b, FOLDER "layers.safetensors");
    bound_begin(&expected, FOLDER "expected.safetensors");
    static const char* const s_modules[] = {"to_q", "to_k", "to_v"};
    static const int32_t s_rows[] = {6, 5, 3};
    static float s_want[14 * 512];
    for (int i = 0, row = 0; i < 3; row += s_rows[i++]) {
        const sumi_tensor* one = sumi_tensor_find(&expected.set, s_modules[i]);
        memcpy(s_want + row * 512, one->data, (size_t)s_rows[i] * 512 * sizeof *s_want);
    }
    sumi_weight stack;
    sumi_bind_stack(&b.binder, &stack, &(sumi_module_stack){"qkv", s_modules, s_rows, 3}, 512);
    CHECK_NUMBER(b.binder.result, SUMI_OK);
    check_values(&stack, s_want, "the stack");
    CHECK_NUMBER(sumi_weight_bytes(&stack), 14 * 512 + 14 * 4); // to_v's three scales are its rows', too
    bound_end(&expected);
    bound_end(&b);
}

// ---- Formats of other programs --------------------------------------------------------------------------------------

// Rows `numbers` of a weight differ from the expected ones by roundings of float only, in one go and in blocks.
static void check_rows(const sumi_weight* weight, const sumi_tensor* want, const sumi_tensor* numbers)
{
    const int32_t rows = weight->rows, cols = weight->cols;
    const int before = t_errors;
    float *all = malloc((size_t)rows * (size_t)cols * sizeof *all), *part = malloc((size_t)cols * sizeof *part);
    sumi_weight_to_float(weight, 0, rows, all, cols);
    for (int32_t i = 0; i < want->shape[0]; i++) {
        const float* values = (const float*)want->data + (size_t)i * (size_t)cols;
        const int32_t r = ((const int32_t*)numbers->data)[i];
        const float* row = all + (size_t)r * (size_t)cols;
        float largest = 0.0f, error = 0.0f;
        for (int32_t c = 0; c < cols; c++) {
            largest = fmaxf(largest, fabsf(values[c]));
            error = fmaxf(error, fabsf(values[c] - row[c]));
        }
        CHECK(largest > 0.0f && error <= 4e-7f * largest);
        for (int32_t c = 0; c < cols; c += 256) {
            const int32_t count = cols - c < 256 ? cols - c : 256;
            sumi_weight_block_to_float(weight, (sumi_weight_block){r, 1, c, count}, part, count);
            CHECK(memcmp(part, row + c, (size_t)count * sizeof *part) == 0);
        }
    }
    if (t_errors != before) printf("  in %s\n", want->name);
    free(all), free(part);
}

TEST(formats_of_other_programs_have_the_values_of_another_implementation)
{
    bound b, expected;
    bound_begin(&b, QUANTISED "layers.safetensors");
    bound_begin(&expected, QUANTISED "expected.safetensors");
    CHECK_NUMBER(expected.set.count, 2 * 28);
    for (size_t i = 0; i + 1 < expected.set.count; i += 2) {
        const sumi_tensor *want = &expected.set.tensors[i], *numbers = want + 1;
        char name[64], module[64];
        snprintf(name, sizeof name, "%s.weight", want->name);
        snprintf(module, sizeof module, "%s", want->name);
        // what config.json says of a file by ModelOpt
        b.part.quantisation = (sumi_quantisation){.is_said = true};
        if (strncmp(want->name, "modelopt", 8) == 0) strcpy(b.part.quantisation.method, "modelopt");
        const int32_t rows = sumi_bind_size(&b.binder, name, 0), cols = sumi_bind_size(&b.binder, name, 1);
        CHECK_NUMBER(cols, want->shape[1]);
        sumi_weight* weight = sumi_weight_list_reserve(&b.list, sizeof *weight);
        sumi_bind_matrix(&b.binder, weight, module, rows, cols);
        CHECK_NUMBER(b.binder.result, SUMI_OK);
        CHECK_TEXT(b.error.text, "");
        if (b.binder.result != SUMI_OK) break;
        CHECK(!sumi_stacked_tensor_is_plain(&weight->tensors[0]) || strstr(module, "_one") != NULL);
        check_rows(weight, want, numbers);
    }
    bound_end(&expected);
    bound_end(&b);
}

// As one stack, of rows that are stored in different ways.
TEST(formats_are_stacked_with_their_own_scales)
{
    bound b, expected;
    bound_begin(&b, QUANTISED "layers.safetensors");
    bound_begin(&expected, QUANTISED "expected.safetensors");
    static const char* const s_modules[] = {"nvfp4_one_level", "w4a8_integers", "nvfp4_awq"};
    static const int32_t s_rows[] = {3, 3, 3};
    sumi_weight stack;
    sumi_bind_stack(&b.binder, &stack, &(sumi_module_stack){"qkv", s_modules, s_rows, 3}, 64);
    CHECK_NUMBER(b.binder.result, SUMI_OK);
    float all[9 * 64];
    sumi_weight_to_float(&stack, 0, 9, all, 64);
    for (int i = 0; i < 3; i++) {
        const float* want = sumi_tensor_find(&expected.set, s_modules[i])->data;
        for (int k = 0; k < 3 * 64; k++) CHECK(fabsf(all[i * 3 * 64 + k] - want[k]) < 1e-6f);
    }
    // codes, a scale for each 16 columns in tiles of 128 x 4; the same in rows, and a scale for each row; the first and
    // factors of columns
    CHECK_NUMBER(sumi_weight_bytes(&stack), 3 * 3 * 32 + 128 * 4 + (3 * 4 * 4 + 3 * 4) + 128 * 4 + 64 * 2);
    bound_end(&expected);
    bound_end(&b);
}

// ---- fp8 ------------------------------------------------------------------------------------------------------------

TEST(fp8_rows_have_their_own_scales)
{
    bound b;
    bound_begin(&b, "");
    static unsigned char s_bytes[3 * 40], s_stored_scales[1 + 3 * 4];
    static const float s_scales[3] = {0.5f, 1.0f, -3.0f};
    static float s_want[3 * 40];
    memcpy(s_stored_scales + 1, s_scales, sizeof s_scales); // at an odd address
    for (int i = 0; i < 3 * 40; i++) {
        s_bytes[i] = (unsigned char)(i * 7 % 120);
        s_want[i] = e4m3_to_float(s_bytes[i]) * s_scales[i / 40];
    }
    add(&b, "l.weight", SUMI_DTYPE_F8_E4M3, 3, 40, s_bytes);
    add(&b, "l.weight_scale", SUMI_DTYPE_F32, 3, 1, s_stored_scales + 1);
    sumi_weight weight;
    sumi_bind_matrix(&b.binder, &weight, "l", 3, 40);
    CHECK_NUMBER(b.binder.result, SUMI_OK);
    check_values(&weight, s_want, "l");
    bound_end(&b);
}

// ---- Refused --------------------------------------------------------------------------------------------------------

TEST(row_scales_are_for_matrices)
{
    static const signed char s_bytes[512] = {1};
    static const float s_scales[256] = {1.0f, 0.5f};
    static const uint16_t s_halves[256] = {0x3f80};
    static const char s_int8[] = "{\"format\":\"int8_tensorwise\"}";
    for (int i = 0; i < 4; i++) {
        bound b;
        bound_begin(&b, "");
        sumi_weight weight, vector;
        if (i == 3) add(&b, "l.weight_scale", SUMI_DTYPE_BF16, 256, 1, s_halves);
        else if (i != 1) add(&b, "l.weight_scale", SUMI_DTYPE_F32, 256, 1, s_scales);
        add(&b, "l.weight", SUMI_DTYPE_I8, 256, 1, s_bytes);
        if (i != 1) add(&b, "l.comfy_quant", SUMI_DTYPE_U8, 1, sizeof s_int8 - 1, s_int8);
        if (i == 0 || i == 3) sumi_bind_vector(&b.binder, &weight, "l.weight", 256); // a column as a vector
        else if (i == 1) sumi_bind_matrix(&b.binder, &weight, "l", 256, 1);          // no scale
        else {                                                                       // as a factor of a change
            static const float s_plain[256];
            add(&b, "m.weight", SUMI_DTYPE_F32, 256, 1, s_plain);
            add(&b, "down", SUMI_DTYPE_F32, 1, 1, s_plain);
            sumi_bind_matrix(&b.binder, &vector, "m", 256, 1);
            sumi_bind_change(&b.binder, &vector, &(sumi_change_names){"l.weight", "down", 1, 1.0f});
        }
        CHECK_NUMBER(b.binder.result, SUMI_NOT_SUPPORTED);
        CHECK(strstr(b.error.text, "l.weight") != NULL);
        bound_end(&b);
    }
}

// Weights that a quantiser renamed are missing under their own names.
TEST(renamed_weights_are_refused_by_the_name_of_the_program)
{
    static const struct {
        const char *name, *says;
    } s_cases[] = {{"l.qweight", "GPTQ"},
                   {"other.wscales", "SVDQuant"},
                   {"l.weight_packed", "compressed-tensors"},
                   {"l.weight._data", "quanto"}};
    static const signed char s_bytes[256];
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        bound b;
        bound_begin(&b, "");
        sumi_weight weight;
        add(&b, s_cases[i].name, SUMI_DTYPE_I8, 16, 16, s_bytes);
        sumi_bind_matrix(&b.binder, &weight, "l", 16, 16);
        CHECK_NUMBER(b.binder.result, SUMI_NOT_SUPPORTED);
        CHECK(strstr(b.error.text, s_cases[i].says) != NULL && strstr(b.error.text, s_cases[i].name) != NULL);
        CHECK(strstr(b.error.text, "take the bf16") != NULL);
        bound_end(&b);
    }
}

// As a vector, a matrix of codes would be read with half its columns.
TEST(codes_of_four_bits_are_for_matrices)
{
    static const unsigned char s_codes[64], s_scales[128 * 8];
    static const char s_nvfp4[] = "{\"format\":\"nvfp4\"}";
    bound b;
    bound_begin(&b, "");
    add(&b, "l.weight", SUMI_DTYPE_U8, 1, 64, s_codes);
    add(&b, "l.weight_scale", SUMI_DTYPE_F8_E4M3, 128, 8, s_scales);
    add(&b, "l.comfy_quant", SUMI_DTYPE_U8, 1, sizeof s_nvfp4 - 1, s_nvfp4);
    sumi_weight weight;
    sumi_bind_vector(&b.binder, &weight, "l.weight", 64);
    CHECK_NUMBER(b.binder.result, SUMI_NOT_SUPPORTED);
    CHECK(strstr(b.error.text, "l.weight") != NULL);
    bound_end(&b);
}

TEST(rotations_are_of_few_sizes)
{
    for (int64_t group = -4; group <= 2048; group++)
        CHECK(sumi_rotation_is_known(group) == (group == 4 || group == 16 || group == 64 || group == 256));
}

// Two rows of two channels, three slices of two elements: channel by channel, and in each the slices one after another.
TEST(slices_of_a_kernel_are_put_together)
{
    static const float s_slices[3][8] = {
        {0, 1, 6, 7, 12, 13, 18, 19}, {2, 3, 8, 9, 14, 15, 20, 21}, {4, 5, 10, 11, 16, 17, 22, 23}};
    static const unsigned char s_blocks[128];
    static const char* const s_names[] = {"k.0", "k.1", "k.2"};
    const sumi_kernel_slices slices = {"k", s_names, 3, 2, 2, 2};
    static const struct {
        sumi_dtype dtype; // of the last slice
        int64_t cols;
        sumi_result result;
        const char* says;
    } s_cases[] = {{SUMI_DTYPE_F32, 4, SUMI_OK, ""},
                   {SUMI_DTYPE_F16, 4, SUMI_NOT_SUPPORTED, "k.2 is a slice of a kernel in the type F16"},
                   {SUMI_DTYPE_F32, 2, SUMI_TENSOR_MISMATCH, "[2, 4]"},
                   {SUMI_DTYPE_NONE, 4, SUMI_TENSOR_MISSING, "k.2"}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        bound b;
        bound_begin(&b, "");
        for (size_t t = 0; t < 2; t++) add(&b, s_names[t], SUMI_DTYPE_F32, 2, 4, s_slices[t]);
        if (s_cases[i].dtype != SUMI_DTYPE_NONE) add(&b, "k.2", s_cases[i].dtype, 2, s_cases[i].cols, s_slices[2]);
        sumi_weight weight;
        sumi_bind_kernel_slices(&b.binder, &weight, &slices);
        CHECK_NUMBER(b.binder.result, s_cases[i].result);
        CHECK(strstr(b.error.text, s_cases[i].says) != NULL);
        if (b.binder.result == SUMI_OK) {
            float values[24];
            CHECK(weight.rows == 2 && weight.cols == 12 && b.list.count == 1);
            sumi_weight_to_float(&weight, 0, 2, values, 12);
            for (int32_t k = 0; k < 24; k++) CHECK(values[k] == (float)k);
        }
        bound_end(&b);
    }
    bound b; // a block of a quantised type crosses slices
    bound_begin(&b, "");
    add(&b, "k.0", SUMI_DTYPE_Q8_0, 2, 32, s_blocks);
    sumi_weight weight;
    sumi_bind_kernel_slices(&b.binder, &weight, &(sumi_kernel_slices){"k", s_names, 1, 2, 2, 16});
    CHECK_NUMBER(b.binder.result, SUMI_NOT_SUPPORTED);
    CHECK(strstr(b.error.text, "Q8_0") != NULL);
    bound_end(&b);
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(int8_matrices_have_the_values_of_another_implementation);
    RUN(int8_matrices_are_stacked_with_their_own_scales_and_rotations);
    RUN(formats_of_other_programs_have_the_values_of_another_implementation);
    RUN(formats_are_stacked_with_their_own_scales);
    RUN(fp8_rows_have_their_own_scales);
    RUN(row_scales_are_for_matrices);
    RUN(renamed_weights_are_refused_by_the_name_of_the_program);
    RUN(codes_of_four_bits_are_for_matrices);
    RUN(rotations_are_of_few_sizes);
    RUN(slices_of_a_kernel_are_put_together);
    CHECK_NUMBER(s_heap.allocated_bytes, 0);
    TEST_END();
}
