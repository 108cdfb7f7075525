// The formats of saved prompts: their sizes and errors, what they change in images, and what is refused.
//
// build/gcc/release/bin/test_engine_prompt_formats nearly_the_same_images prints the table of samples/README.md.
#include "base/rows_int8.h"
#include "engine_fixture.h"
#include "families.h"
#include "jobs/engine_state.h"
#include "jobs/objects.h"
#include "jobs/prompt.h"

enum { ROWS = 70, WIDTH = 96, POOLED_WIDTH = 40, LARGE_COLUMN = 5, FORMATS = 3 }; // WIDTH is that of the model

// ---- Prompts that no text gives -------------------------------------------------------------------------------------

static float next_normal(uint32_t* state) // nearly normal, with a variance of 1
{
    float sum = 0.0f;
    for (int i = 0; i < 12; i++) {
        *state = *state * 1664525u + 1013904223u;
        sum += (float)(*state >> 8) * 0x1p-24f;
    }
    return sum - 6.0f;
}

// A prompt of two text encoders, rows of tokens and one pooled row, and a reference. As in the hidden states of
// language models, one column is a thousand times larger than the others, and the first row has a single large value.
static sumi_prompt* make_pair_of(sumi_engine* engine, int32_t picture_channels)
{
    const int32_t rows[SUMI_MAX_TEXT_ENCODERS] = {ROWS, 1}, widths[SUMI_MAX_TEXT_ENCODERS] = {WIDTH, POOLED_WIDTH};
    const sumi_prompt_shape shape = {.family = "z-image",
                                     .encoder_count = 2,
                                     .token_count = rows,
                                     .width = widths,
                                     .reference_count = 1,
                                     .picture_channels = picture_channels,
                                     .references = {{32, 16}}};
    sumi_error error = {0};
    sumi_prompt* prompt = NULL;
    uint32_t state = 7;
    CHECK_NUMBER(sumi_prompt_create(engine, &shape, &prompt, &error), SUMI_OK);
    for (int e = 0; e < 2; e++) {
        for (int i = 0; i < rows[e] * widths[e]; i++) prompt->features[e][i] = next_normal(&state);
    }
    for (int row = 0; row < ROWS; row++) prompt->features[0][row * WIDTH + LARGE_COLUMN] *= 1000.0f;
    prompt->features[0][WIDTH - 1] = -5000.0f;
    for (int i = 0; i < 32 * 16 * picture_channels; i++) prompt->references[0][i] = (unsigned char)(i * 37);
    return prompt;
}

static sumi_prompt* make_pair(sumi_engine* engine) { return make_pair_of(engine, 3); }

// Makes the model one that has two text encoders and takes references.
static void pretend_pair(sumi_model* model)
{
    model->info.text_encoder_count = 2;
    model->info.feature_width[1] = POOLED_WIDTH;
    model->info.is_pooled[1] = true;
    model->info.max_references = 1;
    CHECK_NUMBER(model->info.feature_width[0], WIDTH);
}

// The caller frees it.
static unsigned char* save_as(const sumi_prompt* prompt, sumi_prompt_format format, size_t* out_bytes)
{
    *out_bytes = sumi_prompt_save_as(prompt, format, NULL, 0);
    unsigned char* saved = malloc(*out_bytes + 1);
    CHECK_NUMBER(sumi_prompt_save_as(prompt, format, saved, *out_bytes), *out_bytes);
    return saved;
}

static size_t data_bytes(const unsigned char* saved, size_t bytes)
{
    size_t header = 0;
    for (int i = 7; i >= 0; i--) header = header << 8 | saved[i];
    CHECK(header % 8 == 0 && header < bytes);
    return bytes - 8 - header;
}

TEST(sizes_are_exact)
{
    OPEN(engine, model);
    sumi_prompt* pair = make_pair(engine);
    enum { COUNT = ROWS * WIDTH + POOLED_WIDTH, PIXELS = 32 * 16 * 3 };
    static const size_t s_data_bytes[FORMATS] = {COUNT * 4 + PIXELS, COUNT * 2 + PIXELS,
                                                 COUNT + 2 * (ROWS * 3 + WIDTH) + 2 * (2 + POOLED_WIDTH)
                                                     + PIXELS}; // scales: 3 groups and 2 groups in a row
    for (int f = 0; f < FORMATS; f++) {
        size_t bytes;
        unsigned char* saved = save_as(pair, (sumi_prompt_format)f, &bytes);
        CHECK_NUMBER(data_bytes(saved, bytes), s_data_bytes[f]);
        // versions that read float32 alone refuse the others by this number
        const char* version = f == SUMI_PROMPT_F32 ? "{\"__metadata__\":{\"sumi_prompt\":\"1\""
                                                   : "{\"__metadata__\":{\"sumi_prompt\":\"2\"";
        CHECK(memcmp(saved + 8, version, strlen(version)) == 0);
        unsigned char* untouched = malloc(bytes);
        memset(untouched, 0xa5, bytes);
        CHECK_NUMBER(sumi_prompt_save_as(pair, (sumi_prompt_format)f, untouched, bytes - 1), bytes);
        for (size_t i = 0; i < bytes; i++) {
            if (untouched[i] == 0xa5) continue;
            CHECK_NUMBER(untouched[i], 0xa5);
            break;
        }
        // an address without alignment, and not a byte more than the size
        unsigned char* shifted = malloc(bytes + 3);
        shifted[bytes + 1] = 0x5a;
        CHECK_NUMBER(sumi_prompt_save_as(pair, (sumi_prompt_format)f, shifted + 1, bytes), bytes);
        CHECK(memcmp(shifted + 1, saved, bytes) == 0 && shifted[bytes + 1] == 0x5a);
        CHECK_NUMBER(sumi_prompt_save_as(NULL, (sumi_prompt_format)f, saved, bytes), 0);
        free(saved), free(untouched), free(shifted);
    }
    CHECK_NUMBER(sumi_prompt_save(pair, NULL, 0), sumi_prompt_save_as(pair, SUMI_PROMPT_F32, NULL, 0));
    for (int f = -1; f <= FORMATS; f += FORMATS + 1) {
        CHECK_NUMBER(sumi_prompt_save_as(pair, (sumi_prompt_format)f, NULL, 0), 0);
        CHECK(s_host.log_result == SUMI_INVALID_ARGUMENT && strstr(s_host.log, "no such format") != NULL);
        s_host.log[0] = '\0';
    }
    sumi_prompt_release(pair);
    // the sizes in sumi.h, in steps of 0.1 MB
    static const double s_megabytes[FORMATS] = {15.7, 7.9, 4.2};
    const int32_t rows = 512, width = 7680;
    const sumi_prompt_shape klein = {
        .family = "flux2-klein", .encoder_count = 1, .token_count = &rows, .width = &width};
    sumi_error error = {0};
    CHECK_NUMBER(sumi_prompt_create(engine, &klein, &pair, &error), SUMI_OK);
    for (int f = 0; f < FORMATS; f++) {
        const double bytes = (double)sumi_prompt_save_as(pair, (sumi_prompt_format)f, NULL, 0);
        CHECK(fabs(bytes * 1e-6 - s_megabytes[f]) < 0.05);
    }
    sumi_prompt_release(pair);
    close_engine(engine);
}

#define SAVED_PATH                                                                                                     \
    "tests/golden/z-image/prompts/red_fox_0_" // "a red fox": 1 by version 0.1.0, the others of its features

// The caller frees it.
static unsigned char* read_saved(const char* name, size_t* out_bytes)
{
    enum { MOST = 1 << 16 };
    char path[128];
    snprintf(path, sizeof path, SAVED_PATH "%s.safetensors", name);
    unsigned char* data = calloc(1, MOST);
    FILE* file = fopen(path, "rb");
    *out_bytes = file != NULL ? fread(data, 1, MOST, file) : 0;
    CHECK(*out_bytes > 0);
    if (file != NULL) fclose(file);
    return data;
}

// Games ship these files, so every later version has to read them, and every machine writes the same bytes.
TEST(stored_files_of_each_format_are_read_and_written_again)
{
    static const char* const s_names[FORMATS] = {"1", "2_bf16", "2_int8"};
    OPEN(engine, model);
    size_t bytes[2];
    unsigned char *stored = read_saved(s_names[0], &bytes[0]), *saved;
    sumi_prompt *whole = NULL, *loaded = NULL;
    CHECK_NUMBER(sumi_prompt_load(model, stored, bytes[0], &whole), SUMI_OK);
    free(stored);
    const sumi_prompt_encoder want = sumi_prompt_get_info(whole).encoders[0];
    for (int f = 0; f < FORMATS; f++) {
        stored = read_saved(s_names[f], &bytes[0]);
        saved = save_as(whole, (sumi_prompt_format)f, &bytes[1]);
        CHECK(bytes[0] == bytes[1] && memcmp(stored, saved, bytes[0]) == 0);
        CHECK_NUMBER(sumi_prompt_load(model, stored, bytes[0], &loaded), SUMI_OK);
        const sumi_prompt_encoder got = sumi_prompt_get_info(loaded).encoders[0];
        CHECK(got.token_count == want.token_count && got.width == want.width);
        CHECK(relative_error(got.features, want.features, (size_t)want.token_count * (size_t)want.width) < 0.008);
        sumi_prompt_release(loaded);
        free(stored), free(saved);
    }
    sumi_prompt_release(whole);
    close_engine(engine);
}

// The largest error that a value of `row` may have. A step is a 127th of the largest of 32 values divided by their
// columns' mean magnitudes, rounded to bfloat16 (by up to 2^-8, as the means are); a value is half a step off at most.
static double int8_bound(const float* features, const sumi_prompt_encoder* shape, int row, int col)
{
    double most = 0.0, mean = 0.0;
    const int begin = col / SUMI_INT8_GROUP * SUMI_INT8_GROUP;
    for (int c = begin; c < shape->width && c < begin + SUMI_INT8_GROUP; c++) {
        double sum = 0.0;
        for (int r = 0; r < shape->token_count; r++) sum += fabs((double)features[r * shape->width + c]);
        if (c == col) mean = sum / shape->token_count;
        most = fmax(most, fabs((double)features[row * shape->width + c]) / (sum / shape->token_count));
    }
    return mean * most / 254.0 * (1.0 + 3 * 0x1p-8);
}

// A model whose pictures have alpha keeps it in the references of prompts, and reads no others.
TEST(a_prompt_keeps_the_alpha_of_its_references)
{
    OPEN(engine, model);
    pretend_pair(model);
    for (int32_t channels = 3; channels <= 4; channels++) {
        sumi_prompt *pair = make_pair_of(engine, channels), *loaded = NULL;
        size_t bytes;
        unsigned char* saved = save_as(pair, SUMI_PROMPT_F32, &bytes);
        model->info.picture_channels = channels;
        CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_OK);
        CHECK(loaded != NULL && memcmp(loaded->references[0], pair->references[0], 32 * 16 * (size_t)channels) == 0);
        sumi_prompt_release(loaded);
        model->info.picture_channels = 7 - channels;
        s_host.log[0] = '\0';
        CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_FILE_MALFORMED);
        CHECK(loaded == NULL && strstr(s_host.log, channels == 3 ? "width, 4]" : "width, 3]") != NULL);
        free(saved);
        sumi_prompt_release(pair);
    }
    model->info.picture_channels = 3;
    close_engine(engine);
}

TEST(every_format_keeps_the_features)
{
    OPEN(engine, model);
    pretend_pair(model);
    sumi_prompt* pair = make_pair(engine);
    const sumi_prompt_info made = sumi_prompt_get_info(pair);
    for (int f = 0; f < FORMATS; f++) {
        size_t bytes;
        unsigned char* saved = save_as(pair, (sumi_prompt_format)f, &bytes);
        sumi_prompt* loaded = NULL;
        CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_OK);
        free(saved);
        if (loaded == NULL) continue;
        const sumi_prompt_info info = sumi_prompt_get_info(loaded);
        CHECK_NUMBER(info.reference_count, 1);
        CHECK(memcmp(loaded->references[0], pair->references[0], 32 * 16 * 3) == 0);
        for (int e = 0; e < 2; e++) {
            const sumi_prompt_encoder *want = &made.encoders[e], *got = &info.encoders[e];
            CHECK_NUMBER(got->token_count, want->token_count);
            CHECK_NUMBER(got->width, want->width);
            int wrong = 0;
            for (int i = 0; i < want->token_count * want->width; i++) {
                const float x = want->features[i], y = got->features[i];
                if (f == SUMI_PROMPT_F32) wrong += x != y;
                if (f == SUMI_PROMPT_BF16) wrong += y != sumi_bf16_to_float(sumi_float_to_bf16(x));
                if (f == SUMI_PROMPT_INT8)
                    wrong += !(fabs((double)x - (double)y)
                               <= int8_bound(want->features, want, i / want->width, i % want->width));
            }
            CHECK_NUMBER(wrong, 0);
        }
        // Large columns do not coarsen their neighbours: 0.6 % is the error of 32 normal values with a common scale,
        // (a largest value of 2.6) / 127 / sqrt(12), and the first row, a 70th of all, has a group that is much worse.
        double error = 0.0, norm = 0.0;
        for (int row = 1; row < ROWS; row++) {
            for (int col = 0; col < SUMI_INT8_GROUP; col++) {
                if (col == LARGE_COLUMN) continue;
                const double x = (double)made.encoders[0].features[row * WIDTH + col],
                             d = (double)info.encoders[0].features[row * WIDTH + col] - x;
                error += d * d;
                norm += x * x;
            }
        }
        CHECK(sqrt(error / norm) < (f == SUMI_PROMPT_INT8 ? 0.008 : 0x1p-8));
        sumi_prompt_release(loaded);
    }
    // values at the ends of the range of float32
    static const float s_extremes[] = {3.4028235e38f, -3.4028235e38f, 1e38f, 0x1p-149f, -1e-40f, 0.0f, -0.0f, 1e-30f};
    for (int i = 0; i < ROWS * WIDTH; i++) pair->features[0][i] = s_extremes[(i + i / WIDTH) % 8];
    for (int i = 0; i < POOLED_WIDTH; i++) pair->features[1][i] = s_extremes[i < 32 ? 3 + i % 3 : 0];
    for (int f = 0; f < FORMATS; f++) {
        size_t bytes;
        unsigned char* saved = save_as(pair, (sumi_prompt_format)f, &bytes);
        sumi_prompt* loaded = NULL;
        CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_OK);
        sumi_prompt_release(loaded);
        free(saved);
    }
    sumi_prompt_release(pair);
    close_engine(engine);
}

// ---- Refused --------------------------------------------------------------------------------------------------------

enum { MADE_ROWS = 3, GROUPS = 3 };
static uint16_t s_row_scales[MADE_ROWS * GROUPS + 1], s_column_scales[WIDTH + 1];
static float s_values[MADE_ROWS * WIDTH]; // enough bytes for any type

// A file as sumi_prompt_save_as writes it, for a test to damage.
typedef struct made_file {
    sumi_tensor tensors[3];
    size_t count;
    const char* version;
} made_file;

static sumi_tensor made_tensor(const char* name, sumi_dtype dtype, const void* data, int64_t rows, int64_t cols)
{
    sumi_tensor tensor = {.name = name, .dtype = dtype, .rank = 2, .shape = {rows, cols}, .data = data};
    tensor.bytes = sumi_dtype_bytes(dtype, (uint64_t)(rows * cols));
    return tensor;
}

static made_file make_file(sumi_dtype dtype)
{
    made_file file = {.count = dtype == SUMI_DTYPE_I8 ? 3 : 1, .version = dtype == SUMI_DTYPE_F32 ? "1" : "2"};
    file.tensors[0] = made_tensor("features", dtype, s_values, MADE_ROWS, WIDTH);
    file.tensors[1] = made_tensor("features.row_scale", SUMI_DTYPE_BF16, s_row_scales, MADE_ROWS, GROUPS);
    file.tensors[2] = made_tensor("features.column_scale", SUMI_DTYPE_BF16, s_column_scales, 1, WIDTH);
    memset(s_values, 0, sizeof s_values);
    for (size_t i = 0; i < sizeof s_row_scales / sizeof *s_row_scales; i++) s_row_scales[i] = 0x3c00;
    for (size_t i = 0; i < sizeof s_column_scales / sizeof *s_column_scales; i++) s_column_scales[i] = 0x3f80;
    return file;
}

// text: what the log says; NULL: the file is read.
static void expect(sumi_model* model, const made_file* file, const char* text)
{
    static unsigned char s_bytes[8192];
    const sumi_metadata metadata[] = {{"sumi_prompt", file->version}, {"family", "z-image"}, {"token_count", "3"}};
    const uint64_t bytes = sumi_safetensors_write(file->tensors, file->count, metadata, 3, s_bytes, sizeof s_bytes);
    CHECK(bytes <= sizeof s_bytes);
    sumi_prompt* loaded = NULL;
    s_host.log[0] = '\0';
    const sumi_result result = sumi_prompt_load(model, s_bytes, (size_t)bytes, &loaded);
    CHECK_NUMBER(result, text == NULL ? SUMI_OK : SUMI_FILE_MALFORMED);
    CHECK((loaded != NULL) == (text == NULL));
    if (text != NULL && strstr(s_host.log, text) == NULL) CHECK_TEXT(s_host.log, text);
    sumi_prompt_release(loaded);
}

TEST(malformed_formats_are_refused)
{
    OPEN(engine, model);
    static const sumi_dtype s_read[] = {SUMI_DTYPE_F32, SUMI_DTYPE_BF16, SUMI_DTYPE_F16, SUMI_DTYPE_I8},
                            s_refused[] = {SUMI_DTYPE_U8,      SUMI_DTYPE_I32, SUMI_DTYPE_F64,
                                           SUMI_DTYPE_F8_E4M3, SUMI_DTYPE_F4,  SUMI_DTYPE_BOOL};
    made_file file;
    for (size_t i = 0; i < sizeof s_read / sizeof *s_read; i++) {
        file = make_file(s_read[i]);
        expect(model, &file, NULL);
        file.version = "3";
        expect(model, &file, "has format 3, this version reads 1 and 2");
    }
    for (size_t i = 0; i < sizeof s_refused / sizeof *s_refused; i++) {
        file = make_file(SUMI_DTYPE_BF16);
        file.tensors[0].dtype = s_refused[i];
        file.tensors[0].bytes = MADE_ROWS * WIDTH * (uint64_t)sumi_dtype_get(s_refused[i])->block_bytes
                              / (uint64_t)sumi_dtype_get(s_refused[i])->block;
        static unsigned char s_eights[MADE_ROWS * WIDTH * 8];
        file.tensors[0].data = s_eights;
        // the writer has no types of parts of a byte, and those are refused in the same place
        if (sumi_dtype_get(s_refused[i])->block != 1) continue;
        expect(model, &file, "is not a matrix of 1 to 65536 rows in float32, bfloat16, float16 or int8");
    }
    // values and scales that are not finite; with codes of zero, too
    static const uint16_t s_bad[] = {0x7f80, 0xff80, 0x7fc0};
    for (size_t i = 0; i < 3; i++) {
        file = make_file(SUMI_DTYPE_BF16);
        memcpy((unsigned char*)s_values + 2 * 100, &s_bad[i], 2);
        expect(model, &file, "NaN or infinity at value 100");
        file = make_file(SUMI_DTYPE_I8);
        s_row_scales[GROUPS + 1] = s_bad[i];
        expect(model, &file, "NaN or infinity at value 128"); // row 1, column 32
        file = make_file(SUMI_DTYPE_I8);
        s_column_scales[7] = s_bad[i];
        expect(model, &file, "NaN or infinity at value 7");
    }
    file = make_file(SUMI_DTYPE_F16);
    memcpy((unsigned char*)s_values + 2 * 5, "\0\x7c", 2);
    expect(model, &file, "NaN or infinity at value 5");
    file = make_file(SUMI_DTYPE_I8); // a product that is too large
    s_row_scales[0] = s_column_scales[0] = 0x7f00;
    *(signed char*)s_values = -128;
    expect(model, &file, "NaN or infinity at value 0");
    // scales that are missing, of another shape or type, or there without reason
    static const char* const s_names[] = {"features.row_scale", "features.column_scale"};
    char text[128];
    for (int t = 1; t < 3; t++) {
        file = make_file(SUMI_DTYPE_I8);
        file.tensors[t].name = "other";
        snprintf(text, sizeof text, "are int8, but it has no tensor \"%s\"", s_names[t - 1]);
        expect(model, &file, text);
        snprintf(text, sizeof text, "\"%s\" is not a bfloat16 matrix of %d x %d", s_names[t - 1],
                 t == 1 ? MADE_ROWS : 1, t == 1 ? GROUPS : WIDTH);
        for (int change = 0; change < 4; change++) {
            file = make_file(SUMI_DTYPE_I8);
            sumi_tensor* tensor = &file.tensors[t];
            if (change == 0) tensor->dtype = SUMI_DTYPE_F16;
            if (change == 1) tensor->rank = 1, tensor->shape[0] *= tensor->shape[1];
            if (change == 2) tensor->shape[0] = tensor->shape[1], tensor->shape[1] = t == 1 ? GROUPS : 1;
            if (change == 2 && t == 1) tensor->shape[0] = 1, tensor->shape[1] = MADE_ROWS * GROUPS;
            if (change == 3) tensor->shape[1]++, tensor->bytes += 2 * (uint64_t)tensor->shape[0];
            static uint16_t s_more[2 * WIDTH];
            if (change == 3) tensor->data = s_more;
            expect(model, &file, text);
        }
        file = make_file(SUMI_DTYPE_BF16);
        file.tensors[1] = file.tensors[t];
        file.tensors[1].name = s_names[t - 1];
        file.count = 2;
        snprintf(text, sizeof text, "a tensor \"%s\", but its features are not int8", s_names[t - 1]);
        expect(model, &file, text);
    }
    close_engine(engine);
}

TEST(cut_files_and_failing_allocations)
{
    OPEN(engine, model);
    sumi_prompt *prompt = encode_prompt(engine, model, "x"), *loaded = NULL;
    for (int f = SUMI_PROMPT_BF16; f < FORMATS; f++) {
        size_t bytes;
        unsigned char* saved = save_as(prompt, (sumi_prompt_format)f, &bytes);
        for (size_t cut = 0; cut < bytes; cut += cut < 700 ? 1 : 97) {
            unsigned char* exact = malloc(cut + 1); // the sanitizers see a read beyond it
            memcpy(exact + 1, saved, cut);
            const sumi_result result = sumi_prompt_load(model, exact + 1, cut, &loaded);
            CHECK((result == SUMI_FILE_MALFORMED || result == SUMI_FILE_TRUNCATED) && loaded == NULL);
            free(exact);
        }
        for (size_t i = 0; i < bytes && i < 800; i++) { // any byte changed: refused or still a prompt
            saved[i] ^= 0x15;
            if (sumi_prompt_load(model, saved, bytes, &loaded) == SUMI_OK) sumi_prompt_release(loaded);
            saved[i] ^= 0x15;
        }
        int failures = 0;
        sumi_prompt* kept = NULL; // takes the block that the engine keeps, so that each load allocates
        CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &kept), SUMI_OK);
        for (long long n = 1; n < 100; n++) {
            s_host.fail_at = s_host.count + n;
            const sumi_result result = sumi_prompt_load(model, saved, bytes, &loaded);
            s_host.fail_at = 0;
            if (result == SUMI_OK) break;
            CHECK(result == SUMI_OUT_OF_HOST_MEMORY && loaded == NULL);
            failures++;
        }
        CHECK(failures >= 2 && loaded != NULL); // the list of tensors, the prompt
        const long long count = s_host.count;
        size_t again_bytes;
        unsigned char* again = save_as(loaded, (sumi_prompt_format)f, &again_bytes);
        CHECK_NUMBER(s_host.count, count); // saving allocates nothing
        CHECK_NUMBER(again_bytes, bytes);
        sumi_prompt_release(loaded), sumi_prompt_release(kept);
        free(saved), free(again);
    }
    sumi_prompt_release(prompt);
    close_engine(engine);
}

// ---- Images ---------------------------------------------------------------------------------------------------------

// Draws from the prompt; floats of 0 to 1, which the caller releases.
static sumi_image draw_floats(sumi_engine* engine, sumi_model* model, const sumi_prompt* prompt)
{
    const sumi_image_item item = {.prompt = prompt, .seed = 3};
    const sumi_target target = {.format = SUMI_FORMAT_RGB32F};
    sumi_image_desc desc = small_image(model, &item);
    desc.width = desc.height = 64;
    desc.step_count = 4;
    desc.targets = &target;
    desc.guidance.scale = sumi_model_get_info(model).guidance_off;
    sumi_image image = {0};
    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
    return image;
}

// Decibels of the noise, for values of 0 to 1.
static double decibels(const sumi_image* a, const sumi_image* b)
{
    double sum = 0.0;
    const size_t row = (size_t)a->width * 3;
    for (int32_t y = 0; y < a->height; y++) {
        const float *p = (const void*)((const char*)a->pixels + (size_t)y * (size_t)a->row_bytes),
                    *q = (const void*)((const char*)b->pixels + (size_t)y * (size_t)b->row_bytes);
        for (size_t i = 0; i < row; i++) sum += ((double)p[i] - (double)q[i]) * ((double)p[i] - (double)q[i]);
    }
    return -10.0 * log10(sum / (double)(row * (size_t)a->height));
}

// The bounds of features: bfloat16 rounds a value by 2^-8 at most. For int8 see every_format_keeps_the_features: some
// groups of these rows have a larger largest value. The bound of images is not derived: 59 dB is the noise of rounding an
// image to 8 bits (1 / 255 / sqrt(12)), and the noise of a smaller prompt is to stay below it.
TEST(smaller_formats_draw_nearly_the_same_images)
{
    printf("  family        features          F32 bytes   BF16 bytes  error    image     INT8 bytes  error    image\n");
    for (const family_row* row = next_network(NULL); row != NULL; row = next_network(row)) {
        char shape[64] = "";
        sumi_engine* engine = fresh_engine_with(2000, NULL);
        sumi_model* model = load_model_at(engine, row->tiny.path);
        if (model == NULL) continue;
        sumi_prompt* prompt = encode_prompt(engine, model, "a red fox in the snow");
        sumi_image whole = draw_floats(engine, model, prompt);
        const sumi_prompt_info want = sumi_prompt_get_info(prompt);
        for (int e = 0; e < want.encoder_count; e++)
            snprintf(shape + strlen(shape), sizeof shape - strlen(shape), "%s%d x %d", e > 0 ? ", " : "",
                     (int)want.encoders[e].token_count, (int)want.encoders[e].width);
        printf("  %-13s %-17s %-10zu", row->name, shape, sumi_prompt_save(prompt, NULL, 0));
        for (int f = SUMI_PROMPT_BF16; f < FORMATS; f++) {
            size_t bytes;
            unsigned char* saved = save_as(prompt, (sumi_prompt_format)f, &bytes);
            sumi_prompt* loaded = NULL;
            CHECK_NUMBER(sumi_prompt_load(model, saved, bytes, &loaded), SUMI_OK);
            const sumi_prompt_info got = sumi_prompt_get_info(loaded);
            double worst = 0.0;
            for (int e = 0; e < want.encoder_count; e++) {
                const size_t count = (size_t)want.encoders[e].token_count * (size_t)want.encoders[e].width;
                worst = fmax(worst, relative_error(got.encoders[e].features, want.encoders[e].features, count));
            }
            sumi_image image = draw_floats(engine, model, loaded);
            const double noise = decibels(&image, &whole);
            printf("  %-10zu  %.2f %%  %4.1f dB", bytes, 100.0 * worst, noise);
            CHECK(worst > 0.0 && worst < (f == SUMI_PROMPT_BF16 ? 0x1p-8 : 0.01));
            CHECK(noise > 59.0);
            sumi_images_release(engine, &image, 1);
            sumi_prompt_release(loaded);
            free(saved);
        }
        printf("\n");
        sumi_images_release(engine, &whole, 1);
        sumi_prompt_release(prompt);
        close_engine(engine);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(sizes_are_exact);
    RUN(stored_files_of_each_format_are_read_and_written_again);
    RUN(every_format_keeps_the_features);
    RUN(a_prompt_keeps_the_alpha_of_its_references);
    RUN(malformed_formats_are_refused);
    RUN(cut_files_and_failing_allocations);
    RUN(smaller_formats_draw_nearly_the_same_images);
    TEST_END();
}
