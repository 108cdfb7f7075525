// Conversions between number formats: the bits of the reference, there and back, any length and alignment.
#include "files/checkpoint.h"
#include "memory_files.h"
#include "number_formats.h"

static const sumi_tensor* conversion(const sumi_tensor_set* set, const char* name)
{
    const sumi_tensor* tensor = sumi_tensor_find_prefixed(set, "convert.", name);
    if (tensor == NULL) {
        printf("  no convert.%s\n", name);
        t_errors++;
    }
    return tensor;
}

static uint32_t word(const sumi_tensor* tensor, size_t index)
{
    uint32_t value = 0;
    const size_t bytes = (size_t)sumi_dtype_get(tensor->dtype)->block_bytes;
    memcpy(&value, (const unsigned char*)tensor->data + index * bytes, bytes);
    return value;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

// Equal bits; for NaN any NaN of the same kind is right.
static void check_bits(const char* what, size_t index, uint32_t got, uint32_t want, bool both_nan)
{
    if (got != want && !both_nan && t_errors++ < 8) printf("  %s %zu: got %08x, want %08x\n", what, index, got, want);
}

TEST(conversions_equal_the_golden_bits)
{
    sumi_tensor_set set = {0};
    sumi_error error = {0};
    sumi_tensor_set_init(&set, &s_heap, NULL);
    CHECK_NUMBER(sumi_tensor_set_open(&set, "tests/golden/common/numerics/ops.safetensors", &error), SUMI_OK);
    const sumi_tensor *half = conversion(&set, "f16.input.bits"), *from_half = conversion(&set, "f16_to_f32.bits"),
                      *from_bf16 = conversion(&set, "bf16_to_f32.bits");
    const sumi_tensor *e4m3 = conversion(&set, "f8_e4m3fn_to_f32.bits"),
                      *e5m2 = conversion(&set, "f8_e5m2_to_f32.bits"), *input = conversion(&set, "from_f32.bits");
    const sumi_tensor *to_bf16 = conversion(&set, "f32_to_bf16.bits"), *to_half = conversion(&set, "f32_to_f16.bits"),
                      *to_e4m3 = conversion(&set, "f32_to_f8_e4m3fn.bits");
    const sumi_tensor* to_e5m2 = conversion(&set, "f32_to_f8_e5m2.bits");
    if (t_errors > 0) {
        sumi_tensor_set_close(&set);
        return;
    }
    for (size_t i = 0; i < (size_t)half->shape[0]; i++) {
        const uint16_t bits = (uint16_t)word(half, i);
        const float a = sumi_f16_to_float(bits), b = sumi_bf16_to_float(bits);
        check_bits("f16 to float", i, bits_of(a), word(from_half, i), isnan(a) && isnan(float_of(word(from_half, i))));
        check_bits("bf16 to float", i, bits_of(b), word(from_bf16, i), isnan(b) && isnan(float_of(word(from_bf16, i))));
    }
    for (size_t i = 0; i < 256; i++) {
        const float a = e4m3_to_float((uint8_t)i), b = e5m2_to_float((uint8_t)i);
        check_bits("e4m3 to float", i, bits_of(a), word(e4m3, i), isnan(a) && isnan(float_of(word(e4m3, i))));
        check_bits("e5m2 to float", i, bits_of(b), word(e5m2, i), isnan(b) && isnan(float_of(word(e5m2, i))));
    }
    for (size_t i = 0; i < (size_t)input->shape[0]; i++) {
        const float value = float_of(word(input, i));
        const uint16_t bf16 = sumi_float_to_bf16(value), f16 = sumi_float_to_f16(value);
        const uint8_t a = float_to_e4m3(value), b = float_to_e5m2(value);
        check_bits("float to bf16", i, bf16, word(to_bf16, i), isnan(value) && (bf16 & 0x7fff) > 0x7f80);
        check_bits("float to f16", i, f16, word(to_half, i), isnan(value) && (f16 & 0x7fff) > 0x7c00);
        check_bits("float to e4m3", i, a, word(to_e4m3, i), isnan(value) && (a & 0x7f) == 0x7f);
        check_bits("float to e5m2", i, b, word(to_e5m2, i), isnan(value) && (b & 0x7f) > 0x7c);
    }
    sumi_tensor_set_close(&set);
}

TEST(conversions_round_trip_every_pattern)
{
    for (uint32_t i = 0; i < 65536; i++) {
        const float half = sumi_f16_to_float((uint16_t)i), bf16 = sumi_bf16_to_float((uint16_t)i);
        CHECK(isnan(half) ? (float_to_f16(half) & 0x7fff) > 0x7c00 : float_to_f16(half) == i);
        CHECK(isnan(bf16) ? (sumi_float_to_bf16(bf16) & 0x7fff) > 0x7f80 : sumi_float_to_bf16(bf16) == i);
        CHECK((i & 0x7c00) != 0 || half == ldexpf((float)(i & 0x3ff) * (i & 0x8000 ? -1.0f : 1.0f), -24));
    }
    // Many at once: around every boundary between two, infinities and NaN with them; the rest of a vector, too.
    static const uint16_t s_below[] = {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff, 0x4000};
    static float s_many[65536 * 7];
    static uint16_t s_halves[65536 * 7 + 1];
    for (uint32_t i = 0; i < 65536 * 7; i++) s_many[i] = float_of(i / 7 << 16 | s_below[i % 7]);
    for (size_t count = 65536 * 7 - 5; count <= 65536 * 7; count++) {
        memset(s_halves, 0xAB, sizeof s_halves);
        sumi_floats_to_bf16(s_many, s_halves, count);
        int wrong = 0;
        for (size_t i = 0; i < count; i++) wrong += s_halves[i] != sumi_float_to_bf16(s_many[i]);
        CHECK_NUMBER(wrong, 0);
        CHECK_NUMBER(s_halves[count], 0xABAB);
    }
    for (uint32_t i = 0; i < 256; i++) {
        const float a = e4m3_to_float((uint8_t)i), b = e5m2_to_float((uint8_t)i);
        CHECK(isnan(a) || float_to_e4m3(a) == i);
        CHECK(isnan(b) || float_to_e5m2(b) == i);
    }
}

TEST(rows_equal_single_values_at_any_length_and_alignment)
{
    unsigned char* source = malloc(70 * 8);
    for (size_t i = 0; i < 70 * 8; i++) source[i] = (unsigned char)(i * 37 + (i >> 3) * 101 + 11);
    for (size_t offset = 0; offset < 3; offset++) {
        for (size_t count = 0; count <= 67; count++) {
            float into[68];
            into[count] = 77.0f;
            unsigned char* row = exact_copy(source + offset, count * 2);
            sumi_dtype_to_float(SUMI_DTYPE_F16, row, into, count);
            for (size_t i = 0; i < count; i++) {
                uint16_t bits;
                memcpy(&bits, row + 2 * i, 2);
                CHECK(bits_of(into[i]) == bits_of(sumi_f16_to_float(bits)));
            }
            sumi_dtype_to_float(SUMI_DTYPE_BF16, row, into, count);
            for (size_t i = 0; i < count; i++) {
                uint16_t bits;
                memcpy(&bits, row + 2 * i, 2);
                CHECK(bits_of(into[i]) == (uint32_t)bits << 16);
            }
            sumi_dtype_to_float(SUMI_DTYPE_F8_E4M3, row, into, count);
            for (size_t i = 0; i < count; i++) CHECK(bits_of(into[i]) == bits_of(e4m3_to_float(row[i])));
            sumi_dtype_to_float(SUMI_DTYPE_F8_E5M2, row, into, count);
            for (size_t i = 0; i < count; i++) CHECK(bits_of(into[i]) == bits_of(e5m2_to_float(row[i])));
            CHECK(into[count] == 77.0f);
            free(row);
        }
    }
    free(source);
    float into[2];
    sumi_dtype_to_float(SUMI_DTYPE_I64, &(int64_t[]){-5, INT64_MIN}, into, 2);
    CHECK(into[0] == -5.0f && into[1] == -0x1p63f);
    sumi_dtype_to_float(SUMI_DTYPE_U64, &(uint64_t[]){5, UINT64_MAX}, into, 2);
    CHECK(into[0] == 5.0f && into[1] == 0x1p64f);
    sumi_dtype_to_float(SUMI_DTYPE_F64, &(double[]){0.1, 1e300}, into, 2);
    CHECK(into[0] == 0.1f && isinf(into[1]));
    sumi_dtype_to_float(SUMI_DTYPE_BOOL, "\0\1", into, 2);
    CHECK(into[0] == 0 && into[1] == 1);
    sumi_dtype_to_float(SUMI_DTYPE_I8, "\x80\x7f", into, 2);
    CHECK(into[0] == -128 && into[1] == 127);
    sumi_dtype_to_float(SUMI_DTYPE_F8_E8M0, "\x7f\xfe", into, 2);
    CHECK(into[0] == 1.0f && into[1] == 0x1p127f);
    sumi_dtype_to_float(SUMI_DTYPE_F8_E8M0, "\0\xff", into, 2);
    CHECK(into[0] == 0x1p-126f && isnan(into[1])); // 2^-127 would be subnormal
    sumi_dtype_to_float(SUMI_DTYPE_CODES4, "\xa3", into, 2);
    CHECK(into[0] == 3.0f && into[1] == 10.0f);
    CHECK(!sumi_dtype_is_number(SUMI_DTYPE_F4) && !sumi_dtype_is_number(SUMI_DTYPE_UNKNOWN)
          && !sumi_dtype_is_number(SUMI_DTYPE_F8_E4M3FNUZ) && sumi_dtype_is_number(SUMI_DTYPE_F8_E8M0));
    CHECK(sumi_dtype_is_number(SUMI_DTYPE_Q6_K) && sumi_dtype_is_number(SUMI_DTYPE_I8)
          && !sumi_dtype_is_number(SUMI_DTYPE_NONE) && !sumi_dtype_is_number(SUMI_DTYPE_COUNT));
    CHECK(sumi_dtype_get((sumi_dtype)1000) == sumi_dtype_get(SUMI_DTYPE_NONE));
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(conversions_equal_the_golden_bits);
    RUN(conversions_round_trip_every_pattern);
    RUN(rows_equal_single_values_at_any_length_and_alignment);
    TEST_END();
}
