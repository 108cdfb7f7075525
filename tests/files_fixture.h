// What tests of checkpoint layouts share: tensors that are taken out of a tiny checkpoint, renamed, stored in other
// types and written as new files in a scratch folder, and pictures that are drawn from these.
#ifndef FILES_FIXTURE_H
#define FILES_FIXTURE_H
#include "at_once.h"
#include "engine_fixture.h"
#include "files/tensors.h"
#include "llama_names.h"
#include "number_formats.h"
#include "system.h"

#ifndef WIDTH // a family whose sizes are multiples of more than 16 defines it first
#define WIDTH 48
#endif
#define HEIGHT 32
#ifndef LATENTS // a family with other latents than 16 at an eighth of the size defines it first
#define LATENTS ((size_t)16 * (WIDTH / 8) * (HEIGHT / 8))
#endif

static sumi_heap s_heap;
static sumi_engine* s_engine;

// ---- Scratch files --------------------------------------------------------------------------------------------------

static char s_folder[192];

// folder/name in scratch memory that is used again after 16 calls.
static inline const char* scratch(const char* folder, const char* name)
{
    static char s_path[16][384];
    static int s_next;
    s_next = (s_next + 1) % 16;
    if (s_folder[0] == 0 && !system_make_scratch(s_folder, sizeof s_folder, "sumi-files")) s_folder[0] = 0;
    snprintf(s_path[s_next], sizeof s_path[s_next], "%s/%s", s_folder, folder);
    system_make_folder(s_path[s_next]);
    if (name[0] != 0) snprintf(s_path[s_next], sizeof s_path[s_next], "%s/%s/%s", s_folder, folder, name);
    return s_path[s_next];
}

static inline void remove_folder(const char* folder)
{
    int count;
    char** names = system_list(folder, &count);
    for (int i = 0; i < count; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (system_look_at(path) == SYSTEM_FOLDER) remove_folder(path);
        else system_remove(path);
    }
    system_free_list(names, count);
    system_remove(folder);
}

static inline void write_file(const char* path, const void* data, size_t bytes)
{
    FILE* file = system_open(path, "wb");
    CHECK(file != NULL);
    if (file == NULL) return;
    CHECK(fwrite(data, 1, bytes, file) == bytes);
    fclose(file);
}

static inline void copy_file(const char* from, const char* to)
{
    static char s_data[2 << 20];
    FILE* file = system_open(from, "rb");
    CHECK(file != NULL);
    if (file == NULL) return;
    const size_t bytes = fread(s_data, 1, sizeof s_data, file);
    CHECK(bytes < sizeof s_data);
    fclose(file);
    write_file(to, s_data, bytes);
}

// ---- Tensors copied from file to file --------------------------------------------------------------------------------

#define MAX_TENSORS 1024

// Owns names and data.
typedef struct bag {
    sumi_tensor tensors[MAX_TENSORS];
    size_t count;
} bag;

#define BAGS 3
static bag s_bags[BAGS]; // 0: a file's tensors, 1: their values in a twin, 2: what a writer makes of them on its way

static inline bag* empty_bag(int which)
{
    bag* b = &s_bags[which];
    for (size_t i = 0; i < b->count; i++) {
        free((void*)(uintptr_t)b->tensors[i].name);
        free((void*)(uintptr_t)b->tensors[i].data);
    }
    b->count = 0;
    return b;
}

static inline void empty_bags(void)
{
    for (int i = 0; i < BAGS; i++) empty_bag(i);
}

static inline void put(bag* b, const char* name, sumi_dtype dtype, const sumi_tensor* shape, const void* data,
                       uint64_t bytes)
{
    CHECK(b->count < MAX_TENSORS);
    if (b->count == MAX_TENSORS) return;
    sumi_tensor* t = &b->tensors[b->count++];
    *t = (sumi_tensor){.dtype = dtype, .bytes = bytes};
    if (shape != NULL) {
        t->rank = shape->rank;
        memcpy(t->shape, shape->shape, sizeof t->shape);
    }
    char* copy = malloc(strlen(name) + 1);
    void* values = malloc((size_t)bytes + 1);
    memcpy(copy, name, strlen(name) + 1);
    memcpy(values, data, (size_t)bytes);
    t->name = copy;
    t->data = values;
}

// A kernel [rows, channels, 2, height, width] as llama.cpp stores it: its slices in time are tensors of their own, `name`
// and `name`.1.
static inline void put_slices(bag* b, const char* name, const sumi_tensor* kernel)
{
    const size_t slice =
                     (size_t)(kernel->shape[3] * kernel->shape[4]) * (size_t)sumi_dtype_get(kernel->dtype)->block_bytes,
                 count = (size_t)(kernel->shape[0] * kernel->shape[1]);
    const sumi_tensor flat = {.rank = 4,
                              .shape = {kernel->shape[0], kernel->shape[1], kernel->shape[3], kernel->shape[4]}};
    CHECK_NUMBER(kernel->shape[2], 2);
    char* data = malloc(slice * count);
    for (size_t k = 0; k < 2; k++) {
        char full[192];
        snprintf(full, sizeof full, "%s%s", name, k == 0 ? "" : ".1");
        for (size_t row = 0; row < count; row++)
            memcpy(data + row * slice, (const char*)kernel->data + (2 * row + k) * slice, slice);
        put(b, full, kernel->dtype, &flat, data, slice * count);
    }
    free(data);
}

// What a tensor is called in the other layout; false: it is not in there.
typedef bool rename_function(const char* name, char* out, size_t out_bytes);

// Adds the tensors of a component's folder, prefix in front of what `rename` makes of their names.
static inline void take(bag* b, const char* folder, const char* stem, const char* prefix, rename_function* rename)
{
    sumi_error error = {0};
    sumi_tensor_set set;
    sumi_tensor_set_init(&set, &s_heap, NULL);
    CHECK_NUMBER(open_tensor_folder(&set, folder, stem, &error), SUMI_OK);
    for (size_t i = 0; i < set.count; i++) {
        const sumi_tensor* t = &set.tensors[i];
        char name[192], full[256];
        snprintf(name, sizeof name, "%s", t->name);
        if (rename != NULL && !rename(t->name, name, sizeof name)) continue;
        snprintf(full, sizeof full, "%s%s", prefix, name);
        put(b, full, t->dtype, t, t->data, t->bytes);
    }
    sumi_tensor_set_close(&set);
}

static inline void write_tensors(const bag* b, const char* path, const sumi_metadata* metadata)
{
    const uint64_t bytes = sumi_safetensors_write(b->tensors, b->count, metadata, metadata != NULL, NULL, 0);
    void* image = malloc((size_t)bytes);
    sumi_safetensors_write(b->tensors, b->count, metadata, metadata != NULL, image, bytes);
    write_file(path, image, (size_t)bytes);
    free(image);
}

static inline size_t append(unsigned char* into, size_t at, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++) into[at++] = (unsigned char)(number >> (8 * i));
    return at;
}

static inline size_t append_text(unsigned char* into, size_t at, const char* text)
{
    at = append(into, at, strlen(text), 8);
    memcpy(into + at, text, strlen(text));
    return at + strlen(text);
}

static inline uint32_t gguf_type(sumi_dtype dtype)
{
    switch (dtype) {
    case SUMI_DTYPE_F32: return 0;
    case SUMI_DTYPE_F16: return 1;
    case SUMI_DTYPE_Q4_0: return 2;
    case SUMI_DTYPE_Q8_0: return 8;
    case SUMI_DTYPE_Q4_K: return 12;
    case SUMI_DTYPE_Q6_K: return 14;
    case SUMI_DTYPE_IQ4_NL: return 20;
    case SUMI_DTYPE_IQ3_S: return 21;
    case SUMI_DTYPE_BF16: return 30;
    default: CHECK(!"a type that these files have"); return 0;
    }
}

// A key of a GGUF file: a text, or a number in float32.
typedef struct gguf_key {
    const char *key, *text; // text NULL: the number
    float number;
} gguf_key;

static inline void write_gguf_keys(const bag* b, const char* path, const gguf_key* keys, size_t key_count)
{
    size_t room = 4096;
    for (size_t i = 0; i < b->count; i++) room += 512 + (size_t)b->tensors[i].bytes;
    unsigned char* file = calloc(room, 1);
    memcpy(file, "GGUF", 4);
    size_t at = append(file, append(file, append(file, 4, 3, 4), b->count, 8), key_count, 8);
    for (size_t i = 0; i < key_count; i++) {
        uint32_t bits;
        memcpy(&bits, &keys[i].number, sizeof bits);
        at = append(file, append_text(file, at, keys[i].key), keys[i].text != NULL ? 8 : 6, 4);
        at = keys[i].text != NULL ? append_text(file, at, keys[i].text) : append(file, at, bits, 4);
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < b->count; i++) {
        const sumi_tensor* t = &b->tensors[i];
        at = append(file, append_text(file, at, t->name), (uint64_t)t->rank, 4);
        for (int32_t k = t->rank; k > 0; k--) at = append(file, at, (uint64_t)t->shape[k - 1], 8);
        at = append(file, append(file, at, gguf_type(t->dtype), 4), offset, 8);
        offset += (t->bytes + 31) / 32 * 32;
    }
    at = (at + 31) / 32 * 32;
    for (size_t i = 0; i < b->count; i++) {
        memcpy(file + at, b->tensors[i].data, (size_t)b->tensors[i].bytes);
        at += ((size_t)b->tensors[i].bytes + 31) / 32 * 32;
    }
    write_file(path, file, at);
    free(file);
}

static inline void write_gguf(const bag* b, const char* path, const char* architecture)
{
    write_gguf_keys(b, path, &(gguf_key){.key = "general.architecture", .text = architecture}, 1);
}

// ---- Names ----------------------------------------------------------------------------------------------------------

// What Wan's files call a module behind its block in the VAE.
static inline const char* wan_module(const char* rest, char* out, size_t out_bytes)
{
    static const char* const s_modules[][2] = {{"norm1.", "residual.0."},
                                               {"conv1.", "residual.2."},
                                               {"norm2.", "residual.3."},
                                               {"conv2.", "residual.6."},
                                               {"conv_shortcut.", "shortcut."}};
    snprintf(out, out_bytes, "%s", rest);
    for (size_t i = 0; i < sizeof s_modules / sizeof *s_modules; i++) {
        const size_t length = strlen(s_modules[i][0]);
        if (strncmp(rest, s_modules[i][0], length) == 0)
            snprintf(out, out_bytes, "%s%s", s_modules[i][1], rest + length);
    }
    return out;
}

// What Wan's files call a tensor of the VAE outside the blocks of its levels. False: it is inside of one.
static inline bool wan_outer_name(const char* name, char* out, size_t out_bytes)
{
    char module[128];
    int block, used = 0;
    if (strncmp(name, "quant_conv.", 11) == 0) return snprintf(out, out_bytes, "conv1.%s", name + 11) > 0;
    if (strncmp(name, "post_quant_conv.", 16) == 0) return snprintf(out, out_bytes, "conv2.%s", name + 16) > 0;
    static const char* const s_names[][2] = {{"conv_in.", "conv1."},
                                             {"norm_out.", "head.0."},
                                             {"conv_out.", "head.2."},
                                             {"mid_block.attentions.0.", "middle.1."}};
    const char* rest = name + 8; // "encoder." or "decoder."
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        const size_t length = strlen(s_names[i][0]);
        if (strncmp(rest, s_names[i][0], length) == 0)
            return snprintf(out, out_bytes, "%.8s%s%s", name, s_names[i][1], rest + length) > 0;
    }
    if (sscanf(rest, "mid_block.resnets.%d.%n", &block, &used) != 1 || used == 0) return false;
    return snprintf(out, out_bytes, "%.8smiddle.%d.%s", name, 2 * block, wan_module(rest + used, module, sizeof module))
         > 0;
}

// ---- Other types ----------------------------------------------------------------------------------------------------

static inline size_t value_count(const sumi_tensor* t)
{
    size_t count = 1;
    for (int32_t i = 0; i < t->rank; i++) count *= (size_t)t->shape[i];
    return count;
}

static inline void quantise_q8_0(const float* x, unsigned char* block)
{
    float most = 0.0f;
    for (int i = 0; i < 32; i++) most = fmaxf(most, fabsf(x[i]));
    const uint16_t bits = float_to_f16(most / 127.0f);
    const float d = sumi_f16_to_float(bits);
    append(block, 0, bits, 2);
    for (int i = 0; i < 32; i++) {
        const float q = d > 0.0f ? rintf(x[i] / d) : 0.0f;
        block[2 + i] = (unsigned char)(int8_t)(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
    }
}

// The value of the largest magnitude is -8 d.
static inline void quantise_q4_0(const float* x, unsigned char* block)
{
    float most = 0.0f;
    for (int i = 0; i < 32; i++) most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    const uint16_t bits = float_to_f16(most / -8.0f);
    const float d = sumi_f16_to_float(bits);
    memset(block, 0, 18);
    append(block, 0, bits, 2);
    for (int i = 0; i < 32; i++) {
        const float q = d != 0.0f ? fminf(fmaxf(rintf(x[i] / d), -8.0f), 7.0f) + 8.0f : 8.0f;
        block[2 + i % 16] |= (unsigned char)((int)q << (i / 16 * 4));
    }
}

// 256 values: sixteen runs of 16, each with a scale of eight bits. The largest magnitude of a run is -32 of its steps.
static inline void quantise_q6_k(const float* x, unsigned char* block)
{
    float steps[16], most = 0.0f;
    for (int j = 0; j < 16; j++) {
        float peak = 0.0f;
        for (int i = 0; i < 16; i++) peak = fabsf(x[16 * j + i]) > fabsf(peak) ? x[16 * j + i] : peak;
        steps[j] = peak / -32.0f;
        most = fmaxf(most, fabsf(steps[j]));
    }
    const uint16_t bits = float_to_f16(most / 127.0f);
    const float d = sumi_f16_to_float(bits);
    memset(block, 0, 210);
    append(block, 208, bits, 2);
    for (int j = 0; j < 16; j++) {
        const float scale = d > 0.0f ? rintf(steps[j] / d) : 0.0f;
        block[192 + j] = (unsigned char)(int8_t)scale;
        for (int i = 0; i < 16; i++) {
            const int at = 16 * j + i, half = at / 128, run = at / 32 % 4, place = at % 32;
            const float step = d * scale;
            const int q = step != 0.0f ? (int)fminf(fmaxf(rintf(x[at] / step), -32.0f), 31.0f) + 32 : 32;
            block[64 * half + run % 2 * 32 + place] |= (unsigned char)((q & 15) << (run / 2 * 4));
            block[128 + 32 * half + place] |= (unsigned char)(q >> 4 << (2 * run));
        }
    }
}

// The nearest of sixteen values, which lie closer around zero. The largest is the first of them, so d may be negative.
static inline void quantise_iq4_nl(const float* x, unsigned char* block)
{
    static const int s_values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    float most = 0.0f;
    for (int i = 0; i < 32; i++) most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    const uint16_t bits = float_to_f16(most / -127.0f);
    const float d = sumi_f16_to_float(bits);
    memset(block, 0, 18);
    append(block, 0, bits, 2);
    for (int i = 0; i < 32; i++) {
        int best = 0;
        for (int k = 1; k < 16; k++) {
            if (fabsf(x[i] - d * (float)s_values[k]) < fabsf(x[i] - d * (float)s_values[best])) best = k;
        }
        block[2 + i % 16] |= (unsigned char)(best << (i / 16 * 4));
    }
}

static inline int to_level(float x, float step, int most)
{
    const float level = step > 0.0f ? rintf(x / step) : 0.0f;
    return level < 0.0f ? 0 : level > (float)most ? most : (int)level;
}

// 256 values: eight runs of 32, each with a scale and a minimum of six bits.
static inline void quantise_q4_k(const float* x, unsigned char* block)
{
    float steps[8], lows[8], step_most = 0.0f, low_most = 0.0f;
    for (int j = 0; j < 8; j++) {
        float low = 0.0f, high = 0.0f;
        for (int i = 0; i < 32; i++) {
            low = fminf(low, x[32 * j + i]);
            high = fmaxf(high, x[32 * j + i]);
        }
        steps[j] = (high - low) / 15.0f;
        lows[j] = -low;
        step_most = fmaxf(step_most, steps[j]);
        low_most = fmaxf(low_most, lows[j]);
    }
    const uint16_t d_bits = float_to_f16(step_most / 63.0f), low_bits = float_to_f16(low_most / 63.0f);
    const float d = sumi_f16_to_float(d_bits), low_d = sumi_f16_to_float(low_bits);
    memset(block, 0, 144);
    append(block, 0, d_bits, 2);
    append(block, 2, low_bits, 2);
    unsigned char *packed = block + 4, *quants = block + 16;
    for (int j = 0; j < 8; j++) {
        const int scale = to_level(steps[j], d, 63), low = to_level(lows[j], low_d, 63);
        if (j < 4) {
            packed[j] |= (unsigned char)scale;
            packed[j + 4] |= (unsigned char)low;
        } else {
            packed[j + 4] |= (unsigned char)((scale & 15) | (low & 15) << 4);
            packed[j - 4] |= (unsigned char)(scale >> 4 << 6);
            packed[j] |= (unsigned char)(low >> 4 << 6);
        }
        for (int i = 0; i < 32; i++) {
            const int q = to_level(x[32 * j + i] + low_d * (float)low, d * (float)scale, 15);
            quants[j / 2 * 32 + i] |= (unsigned char)(q << (j % 2 * 4));
        }
    }
}

// The values as the type holds them.
static inline void* stored_as(sumi_dtype dtype, const float* x, size_t count, uint64_t* out_bytes)
{
    *out_bytes = sumi_dtype_bytes(dtype, count);
    unsigned char* out = malloc((size_t)*out_bytes + 1);
    const sumi_dtype_info* info = sumi_dtype_get(dtype);
    for (size_t i = 0; i < count; i += (size_t)info->block) {
        unsigned char* at = out + i / (size_t)info->block * (size_t)info->block_bytes;
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        switch (dtype) {
        case SUMI_DTYPE_F32: append(at, 0, bits, 4); break;
        case SUMI_DTYPE_F16: append(at, 0, float_to_f16(x[i]), 2); break;
        case SUMI_DTYPE_BF16: append(at, 0, sumi_float_to_bf16(x[i]), 2); break;
        case SUMI_DTYPE_F8_E4M3: at[0] = float_to_e4m3(x[i]); break;
        case SUMI_DTYPE_F8_E5M2: at[0] = float_to_e5m2(x[i]); break;
        case SUMI_DTYPE_Q8_0: quantise_q8_0(x + i, at); break;
        case SUMI_DTYPE_Q4_0: quantise_q4_0(x + i, at); break;
        case SUMI_DTYPE_Q6_K: quantise_q6_k(x + i, at); break;
        case SUMI_DTYPE_Q4_K: quantise_q4_k(x + i, at); break;
        case SUMI_DTYPE_IQ4_NL: quantise_iq4_nl(x + i, at); break;
        default: CHECK(!"a type that these files have");
        }
    }
    return out;
}

// How a converted file stores a tensor. scale: values are divided by it first; 1: not.
typedef sumi_dtype choose_function(const sumi_tensor* tensor, float* scale);

// Replaces each tensor's values; `twin` takes them as float32, as the file has them now.
static inline void convert(bag* b, choose_function* choose, bag* twin, const char* scale_name)
{
    const size_t count = b->count;
    for (size_t i = 0; i < count; i++) {
        sumi_tensor* t = &b->tensors[i];
        const size_t values = value_count(t);
        float *x = malloc(values * 4 + 4), *back = malloc(values * 4 + 4), scale = 1.0f;
        const sumi_dtype dtype = choose(t, &scale);
        sumi_dtype_to_float(t->dtype, t->data, x, values);
        for (size_t k = 0; k < values; k++) x[k] /= scale;
        uint64_t bytes;
        void* data = stored_as(dtype, x, values, &bytes);
        sumi_dtype_to_float(dtype, data, back, values);
        double off = 0.0, size = 0.0;
        for (size_t k = 0; k < values; k++) {
            off += ((double)back[k] - (double)x[k]) * ((double)back[k] - (double)x[k]);
            size += (double)x[k] * (double)x[k];
            back[k] *= scale;
        }
        CHECK(off <= 0.02 * size); // the conversion itself
        put(twin, t->name, SUMI_DTYPE_F32, t, back, values * 4);
        free((void*)(uintptr_t)t->data);
        t->data = data;
        t->dtype = dtype;
        t->bytes = bytes;
        if (scale != 1.0f) {
            char name[256];
            snprintf(name, sizeof name, "%.*s%s", (int)(strlen(t->name) - strlen(".weight")), t->name, scale_name);
            put(b, name, SUMI_DTYPE_F32, NULL, &scale, 4);
        }
        free(x), free(back);
    }
}

static inline bool begins(const char* text, const char* begin) { return strncmp(text, begin, strlen(begin)) == 0; }
static inline sumi_dtype every_e4m3(const sumi_tensor* t, float* scale)
{
    (void)t;
    *scale = 1.0f;
    return SUMI_DTYPE_F8_E4M3;
}

static sumi_dtype s_matrix_dtype; // of a GGUF file

// As converters do: matrices in the type where its blocks fit a row, else in float16; vectors in float32.
static inline sumi_dtype gguf_choice(const sumi_tensor* t, float* scale)
{
    *scale = 1.0f;
    if (t->rank < 2) return SUMI_DTYPE_F32;
    return t->shape[t->rank - 1] % sumi_dtype_get(s_matrix_dtype)->block == 0 ? s_matrix_dtype : SUMI_DTYPE_F16;
}

// A made-up matrix in bfloat16, or the weight of a norm (cols 0), whose values are about 1. gain: of a matrix.
static inline void put_random(bag* b, const char* prefix, const char* name, int64_t rows, int64_t cols, float gain)
{
    static uint64_t s_state;
    char full[192];
    const sumi_tensor shape = {.rank = cols > 0 ? 2 : 1, .shape = {rows, cols}};
    const size_t count = (size_t)(cols > 0 ? rows * cols : rows);
    uint16_t* x = malloc(count * sizeof *x);
    const float spread = cols > 0 ? gain * sqrtf(3.0f / (float)cols) : 0.2f;
    if (b->count == 0) s_state = 1;
    for (size_t i = 0; i < count; i++) {
        s_state = s_state * 6364136223846793005u + 1442695040888963407u;
        const float u = (float)(s_state >> 40) / (float)(1 << 23) - 1.0f;
        x[i] = sumi_float_to_bf16(spread * u + (cols > 0 ? 0.0f : 1.0f));
    }
    snprintf(full, sizeof full, "%s%s", prefix, name);
    put(b, full, SUMI_DTYPE_BF16, &shape, x, count * sizeof *x);
    free(x);
}

// ---- Quantised as ComfyUI does it -----------------------------------------------------------------------------------

// The matrices that converters quantise; embeddings, norms and biases stay as they are.
static bool (*s_is_linear)(const sumi_tensor* tensor);
static sumi_dtype s_fp8;

// One scale for the matrix.
static inline sumi_dtype scaled_fp8(const sumi_tensor* t, float* scale)
{
    const size_t count = value_count(t);
    *scale = 1.0f;
    if (!s_is_linear(t)) return t->dtype;
    float *x = malloc(count * 4), most = 0.0f;
    sumi_dtype_to_float(t->dtype, t->data, x, count);
    for (size_t i = 0; i < count; i++) most = fmaxf(most, fabsf(x[i]));
    *scale = most / (s_fp8 == SUMI_DTYPE_F8_E4M3 ? 448.0f : 57344.0f);
    free(x);
    return s_fp8;
}

// Puts a text as bytes beside a matrix: "layer.comfy_quant".
static inline void put_format(bag* b, const sumi_tensor* t, const char* format)
{
    char name[256];
    snprintf(name, sizeof name, "%.*s.comfy_quant", (int)(strlen(t->name) - strlen(".weight")), t->name);
    put(b, name, SUMI_DTYPE_U8, &(sumi_tensor){.rank = 1, .shape = {(int64_t)strlen(format)}}, format, strlen(format));
}

// {"format_version": "1.0", "layers": {"transformer_blocks.0.attn.to_q": {"format": "float8_e4m3fn"}, ...}}
static inline char* list_formats(const bag* b, const char* format)
{
    char* text = calloc(1, 64 + b->count * 320);
    size_t at = (size_t)sprintf(text, "{\"format_version\": \"1.0\", \"layers\": {");
    for (size_t i = 0, listed = 0; i < b->count; i++) {
        const sumi_tensor* t = &b->tensors[i];
        if (t->dtype != s_fp8) continue;
        at += (size_t)sprintf(text + at, "%s\"%.*s\": %s", listed++ > 0 ? ", " : "",
                              (int)(strlen(t->name) - strlen(".weight")), t->name, format);
    }
    sprintf(text + at, "}}");
    return text;
}

// Factors that nothing here needs: those of the activations.
static inline void put_input_scales(bag* b, const char* suffix)
{
    const size_t count = b->count;
    const float factor = 0.125f;
    for (size_t i = 0; i < count; i++) {
        const sumi_tensor* t = &b->tensors[i];
        if (t->dtype != s_fp8) continue;
        char name[256];
        snprintf(name, sizeof name, "%.*s%s", (int)(strlen(t->name) - strlen(".weight")), t->name, suffix);
        put(b, name, SUMI_DTYPE_F32, NULL, &factor, 4);
    }
}

enum { FP8_FORMS = 4 };

// Writes a file with a scale for each matrix, in one of the forms that there are: 0 the older files, which have a mark
// of the type and factors of activations; 1 and 3 a text beside each matrix, as e4m3 and as e5m2; 2 a list in the
// header. And `twin_path`, with the values in float32.
static inline void write_scaled_fp8(bag* b, bag* twin, int form, const char* prefix, const char* path,
                                    const char* twin_path)
{
    s_fp8 = form == 3 ? SUMI_DTYPE_F8_E5M2 : SUMI_DTYPE_F8_E4M3;
    convert(b, scaled_fp8, twin, form == 0 ? ".scale_weight" : ".weight_scale");
    const char* format = form == 3 ? "{\"format\": \"float8_e5m2\"}"
                                   : "{\"format\": \"float8_e4m3fn\", \"full_precision_matrix_mult\": true}";
    char *text = NULL, mark[64];
    const size_t count = b->count;
    if (form == 0) {
        snprintf(mark, sizeof mark, "%sscaled_fp8", prefix);
        put_input_scales(b, ".scale_input");
        put(b, mark, s_fp8, &(sumi_tensor){.rank = 1, .shape = {2}}, "\0\0", 2);
    } else if (form == 2) {
        text = list_formats(b, format);
    } else {
        put_input_scales(b, ".input_scale");
        for (size_t i = 0; i < count; i++) {
            if (b->tensors[i].dtype == s_fp8) put_format(b, &b->tensors[i], format);
        }
    }
    const sumi_metadata metadata = {"_quantization_metadata", text};
    write_tensors(b, path, text != NULL ? &metadata : NULL);
    write_tensors(twin, twin_path, NULL);
    free(text);
}

// x = x R in groups of columns, by the definition of R: element (i, j) of a regular Hadamard matrix of 4^n is 2^-n,
// negative where an odd number of i's and j's digits to the base of 4 add up to 3.
static inline void rotate_groups(double* x, size_t count, size_t group)
{
    double out[256];
    for (double* at = x; group > 0 && at < x + count; at += group) {
        for (size_t i = 0; i < group; i++) {
            out[i] = 0.0;
            for (size_t j = 0; j < group; j++) {
                size_t odd = 0;
                for (size_t digits = i ^ j; digits > 0; digits /= 4) odd ^= digits % 4 == 3;
                out[i] += odd != 0 ? -at[j] : at[j];
            }
        }
        for (size_t i = 0; i < group; i++) at[i] = out[i] / sqrt((double)group);
    }
}

// Stores one matrix with a scale for each row. group: columns that are rotated together; 0: none. Adds its values to
// the twin.
static inline void store_int8(bag* b, size_t index, size_t group, bag* twin)
{
    sumi_tensor* t = &b->tensors[index];
    const size_t rows = (size_t)t->shape[0], cols = (size_t)t->shape[1];
    float *x = malloc(rows * cols * 4), *scales = malloc(rows * 4);
    signed char* q = malloc(rows * cols);
    double* row = malloc(cols * sizeof *row);
    sumi_dtype_to_float(t->dtype, t->data, x, rows * cols);
    for (size_t r = 0; r < rows; r++) {
        double most = 0.0;
        for (size_t c = 0; c < cols; c++) row[c] = (double)x[r * cols + c];
        rotate_groups(row, cols, group);
        for (size_t c = 0; c < cols; c++) most = fmax(most, fabs(row[c]));
        scales[r] = most > 0.0 ? (float)(most / 127.0) : 1.0f;
        for (size_t c = 0; c < cols; c++) {
            row[c] = fmin(127.0, fmax(-127.0, rint(row[c] / (double)scales[r])));
            q[r * cols + c] = (signed char)row[c];
        }
        rotate_groups(row, cols, group);
        for (size_t c = 0; c < cols; c++) x[r * cols + c] = (float)(row[c] * (double)scales[r]);
    }
    put(twin, t->name, SUMI_DTYPE_F32, t, x, rows * cols * 4);
    free((void*)(uintptr_t)t->data);
    t->data = q;
    t->dtype = SUMI_DTYPE_I8;
    t->bytes = rows * cols;
    char name[256], format[128] = "{\"format\": \"int8_tensorwise\"}";
    snprintf(name, sizeof name, "%s_scale", t->name);
    if (group > 0)
        snprintf(format, sizeof format,
                 "{\"format\": \"int8_tensorwise\", \"convrot\": true, \"convrot_groupsize\": %d}", (int)group);
    put(b, name, SUMI_DTYPE_F32, &(sumi_tensor){.rank = 2, .shape = {t->shape[0], 1}}, scales, rows * 4);
    put_format(b, t, format);
    free(x), free(scales), free(row);
}

// Writes a file whose matrices have 8 bits, and its twin. Converters rotate groups of 256 columns; rows of tiny
// networks are cut into as large groups as fit.
static inline void write_int8(bag* b, bag* twin, bool is_rotated, const char* path, const char* twin_path)
{
    const size_t count = b->count;
    for (size_t i = 0; i < count; i++) {
        const sumi_tensor* t = &b->tensors[i];
        size_t group = is_rotated ? 256 : 0;
        while (group > 1 && t->rank == 2 && (size_t)t->shape[1] % group != 0) group /= 4;
        if (s_is_linear(t)) store_int8(b, i, group > 1 ? group : 0, twin);
        else put(twin, t->name, t->dtype, t, t->data, t->bytes);
    }
    write_tensors(b, path, NULL);
    write_tensors(twin, twin_path, NULL);
}

// Where cuBLAS has the factor of a block: tiles of 128 rows x 4 blocks, 512 bytes each.
static inline size_t tiled_at(size_t row, size_t block, size_t pitch)
{
    return (row / 128 * (pitch / 4) + block / 4) * 512 + row % 32 * 16 + row % 128 / 32 * 4 + block % 4;
}

// Every linear layer whose rows have whole blocks as ComfyUI's nvfp4: a factor in e4m3 for each 16 of a row, in tiles,
// and one in float32 for all; and its values in a twin.
static inline void write_nvfp4(const bag* b, bag* twin, const char* path, const char* twin_path)
{
    static const float s_values[16] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, 0, -0.5f, -1, -1.5f, -2, -3, -4, -6};
    static const char s_said[] = "{\"format\": \"nvfp4\"}";
    bag* packed = empty_bag(2);
    for (size_t i = 0; i < b->count; i++) {
        const sumi_tensor* t = &b->tensors[i];
        char name[256];
        if (!s_is_linear(t) || t->shape[1] % 16 != 0) {
            put(packed, t->name, t->dtype, t, t->data, t->bytes);
            put(twin, t->name, t->dtype, t, t->data, t->bytes);
            continue;
        }
        const size_t count = value_count(t), cols = (size_t)t->shape[1];
        const size_t rows = (size_t)(t->shape[0] + 127) / 128 * 128, pitch = (cols / 16 + 3) / 4 * 4;
        float *x = malloc(count * sizeof *x), most = 0.0f;
        unsigned char *codes = calloc(count / 2, 1), *scales = calloc(rows * pitch, 1);
        sumi_dtype_to_float(t->dtype, t->data, x, count);
        for (size_t k = 0; k < count; k++) most = fmaxf(most, fabsf(x[k]));
        const float second = most / (6.0f * 448.0f);
        for (size_t block = 0; block < count / 16; block++) {
            float* at = x + 16 * block;
            float peak = 0.0f;
            for (int k = 0; k < 16; k++) peak = fmaxf(peak, fabsf(at[k]));
            const uint8_t bits = float_to_e4m3(second > 0.0f ? peak / 6.0f / second : 0.0f);
            const float scale = e4m3_to_float(bits);
            scales[tiled_at(block / (cols / 16), block % (cols / 16), pitch)] = bits;
            for (size_t k = 0; k < 16; k++) {
                int best = 0;
                for (int c = 1; c < 16; c++) {
                    if (fabsf(at[k] - second * scale * s_values[c]) < fabsf(at[k] - second * scale * s_values[best]))
                        best = c;
                }
                codes[(16 * block + k) / 2] |= (unsigned char)(best << (k % 2 == 0 ? 4 : 0));
                at[k] = s_values[best] * scale * second;
            }
        }
        put(packed, t->name, SUMI_DTYPE_U8, &(sumi_tensor){.rank = 2, .shape = {t->shape[0], t->shape[1] / 2}}, codes,
            count / 2);
        put(twin, t->name, SUMI_DTYPE_F32, t, x, count * sizeof *x);
        const int layer = (int)strlen(t->name) - 7;
        snprintf(name, sizeof name, "%.*s.weight_scale", layer, t->name);
        put(packed, name, SUMI_DTYPE_F8_E4M3, &(sumi_tensor){.rank = 2, .shape = {(int64_t)rows, (int64_t)pitch}},
            scales, rows * pitch);
        snprintf(name, sizeof name, "%.*s.weight_scale_2", layer, t->name);
        put(packed, name, SUMI_DTYPE_F32, NULL, &second, sizeof second);
        snprintf(name, sizeof name, "%.*s.comfy_quant", layer, t->name);
        put(packed, name, SUMI_DTYPE_U8, &(sumi_tensor){.rank = 1, .shape = {sizeof s_said - 1}}, s_said,
            sizeof s_said - 1);
        free(x), free(codes), free(scales);
    }
    write_tensors(packed, path, NULL);
    write_tensors(twin, twin_path, NULL);
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

// One of the tensors of a layer's change: "PREFIXmodule.factor". is_flat: with _ in place of the module's dots.
typedef struct factor_name {
    const char *prefix, *module, *factor;
    bool is_flat;
} factor_name;

static inline void put_factor(bag* b, const factor_name* n, int64_t rows, int64_t cols, const float* x)
{
    char name[256], flat[192];
    snprintf(flat, sizeof flat, "%s", n->module);
    for (char* at = flat; n->is_flat && *at != 0; at++) *at = *at == '.' ? '_' : *at;
    snprintf(name, sizeof name, "%s%s.%s", n->prefix, flat, n->factor);
    put(b, name, SUMI_DTYPE_F32, &(sumi_tensor){.rank = 2, .shape = {rows, cols}}, x,
        (uint64_t)(rows * cols) * sizeof *x);
}

// ---- Pictures -------------------------------------------------------------------------------------------------------

typedef struct drawing {
    float latents[LATENTS];
    uint8_t pixels[WIDTH * HEIGHT * 4];
} drawing;

// NULL after a failure, whose message is in s_message.
static char s_message[512];
static sumi_result s_result;
static inline sumi_model* open_model(const sumi_model_desc* desc)
{
    sumi_job job;
    sumi_model* model = NULL;
    s_message[0] = 0;
    s_result = sumi_submit_model(s_engine, desc, &job);
    if (s_result != SUMI_OK) return NULL;
    sumi_job_wait(s_engine, job, SUMI_FOREVER);
    snprintf(s_message, sizeof s_message, "%s", sumi_job_poll(s_engine, job).message);
    s_result = sumi_fetch_model(s_engine, job, &model);
    return model;
}

// Ends with the latents and the pixels of its only item in *out; false after a failure.
static inline bool draw_desc(const sumi_image_desc* desc, drawing* out)
{
    sumi_job job;
    sumi_image image;
    const sumi_result result = sumi_submit_images(s_engine, desc, &job);
    CHECK_NUMBER(result, SUMI_OK);
    if (result != SUMI_OK) return false;
    sumi_job_wait(s_engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_job_latents(s_engine, job, 0, out->latents, LATENTS), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_images(s_engine, job, &image, 1), SUMI_OK);
    if (image.pixels == NULL) return false;
    for (int y = 0; y < HEIGHT; y++)
        memcpy(out->pixels + (size_t)y * WIDTH * 4, (const uint8_t*)image.pixels + (size_t)y * (size_t)image.row_bytes,
               WIDTH * 4);
    sumi_images_release(s_engine, &image, 1);
    return true;
}

// What a family draws from an opened model. refers: an edit of a photo.
typedef bool draw_function(sumi_model* model, bool refers, drawing* out);

static inline bool draw_opened(const sumi_model_desc* desc, bool refers, draw_function* draw_model, drawing* out)
{
    memset(out, 0, sizeof *out);
    sumi_model* model = open_model(desc);
    if (model == NULL) printf("  %s\n", s_message);
    CHECK(model != NULL);
    const bool good = model != NULL && draw_model(model, refers, out);
    sumi_model_close(model);
    return good;
}

// A made-up photo of 40 x 56 pixels.
static inline sumi_pixels small_photo(int32_t channels)
{
    static uint8_t s_photo[40 * 56 * 4];
    for (size_t i = 0; i < sizeof s_photo; i++) s_photo[i] = (uint8_t)((i * 31 + i / 97 + i / 7) & 255);
    return (sumi_pixels){s_photo, 40, 56, 0, channels};
}

// The sentence of the refusal holds all texts of the list, which ends with NULL.
static inline void check_refused(const sumi_model_desc* desc, const char* const* says)
{
    sumi_model* model = open_model(desc);
    CHECK(model == NULL && s_result != SUMI_OK);
    sumi_model_close(model);
    for (; *says != NULL; says++) {
        if (strstr(s_message, *says) == NULL) printf("  \"%s\" is not in: %s\n", *says, s_message);
        CHECK(strstr(s_message, *says) != NULL);
    }
}

static inline double distance(const drawing* got, const drawing* want)
{
    double off = 0.0, size = 0.0;
    for (size_t i = 0; i < LATENTS; i++) {
        const double d = (double)got->latents[i] - (double)want->latents[i];
        off += d * d;
        size += (double)want->latents[i] * (double)want->latents[i];
    }
    return sqrt(off / size);
}

static inline bool is_same(const drawing* a, const drawing* b)
{
    return memcmp(a->latents, b->latents, sizeof a->latents) == 0
        && memcmp(a->pixels, b->pixels, sizeof a->pixels) == 0;
}

// ---- The program ----------------------------------------------------------------------------------------------------

// The engine of the tests, on the CPU.
static inline bool begin_files(host* h, bool (*is_linear)(const sumi_tensor* tensor))
{
    sumi_heap_init(&s_heap, NULL);
    s_is_linear = is_linear;
    sumi_engine_desc desc = host_desc(h);
    return sumi_engine_create(&desc, &s_engine) == SUMI_OK;
}

static inline void end_files(const host* h)
{
    sumi_engine_destroy(s_engine);
    CHECK_NUMBER(h->live, 0);
    empty_bags();
    if (s_folder[0] != 0) remove_folder(s_folder);
}

#endif
