// Writes synthetic checkpoints. From the list of a file's tensors (synthetic_tensors.c) its header is written, then the
// values. The random generator is seeded anew for every tensor, so several threads can write.
//
// A checkpoint can also be held in memory without a file. Then the sumi_files of the host program return memory in
// which the norms have values of their own, and all other tensors are views of one block of random numbers that is
// mapped many times. Sixty gigabytes then take 64 MB of memory and no time to write. All random numbers have one
// standard deviation, 0.02, which suits matrices of a few thousand inputs. The layout of such a file, in whole pages:
//
//     header | norms     | the block | the block | ... | first pages of the block | block of another type | ...
//     private memory     | views of one memory file per element type
//
// A file with matrices in GGUF's block types is a GGUF file with the same tensor names; all others are safetensors.
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "synthetic.h"
#include "synthetic_blocks.h"
#include "synthetic_tensors.h"
#include "synthetic_texts.h"
#include "system.h"
#include "views.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if !defined(_WIN32)
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>
#endif

// The sizes of one network after the other.
// clang-format off
const synthetic_config synthetic_tiny = {
    .dim = 128, .layers = 2, .refiners = 1, .heads = 4,
    .text_width = 128, .text_layers = 3, .text_hidden = 384, .vocabulary = 512,
    .text_heads = 4, .text_kv_heads = 2, .text_head = 32,
    .vae_widths = {32, 32, 64, 64}, .vae_resnets = 1, .vae_groups = 8};
const synthetic_config synthetic_mid = {
    .dim = 1024, .layers = 8, .refiners = 2, .heads = 16,
    .text_width = 1024, .text_layers = 12, .text_hidden = 3072, .vocabulary = 512,
    .text_heads = 16, .text_kv_heads = 8, .text_head = 128,
    .vae_widths = {64, 128, 256, 256}, .vae_resnets = 2, .vae_groups = 32};
const synthetic_config synthetic_z_image = {
    .dim = 3840, .layers = 30, .refiners = 2, .heads = 30,
    .text_width = 2560, .text_layers = 36, .text_hidden = 9728, .vocabulary = 151936,
    .text_heads = 32, .text_kv_heads = 8, .text_head = 128,
    .vae_widths = {128, 256, 512, 512}, .vae_resnets = 2, .vae_groups = 32};

const synthetic_config synthetic_qwen_image_tiny = {
    .family = SYNTHETIC_QWEN_IMAGE, .dim = 128, .layers = 2, .heads = 2,
    .text_width = 128, .text_layers = 2, .text_hidden = 256, .vocabulary = 512,
    .text_heads = 4, .text_kv_heads = 2, .text_head = 32,
    .vision_width = 64, .vision_layers = 8, .vision_heads = 2, .vision_hidden = 76,
    .vae_widths = {16, 32, 64, 64}, .vae_resnets = 2};
const synthetic_config synthetic_qwen_image_mid = {
    .family = SYNTHETIC_QWEN_IMAGE, .dim = 1024, .layers = 8, .heads = 8,
    .text_width = 1024, .text_layers = 12, .text_hidden = 4096, .vocabulary = 512,
    .text_heads = 8, .text_kv_heads = 2, .text_head = 128,
    .vision_width = 320, .vision_layers = 8, .vision_heads = 4, .vision_hidden = 856,
    .vae_widths = {48, 96, 192, 192}, .vae_resnets = 2};
const synthetic_config synthetic_qwen_image = {
    .family = SYNTHETIC_QWEN_IMAGE, .dim = 3072, .layers = 60, .heads = 24,
    .text_width = 3584, .text_layers = 28, .text_hidden = 18944, .vocabulary = 152064,
    .text_heads = 28, .text_kv_heads = 4, .text_head = 128,
    .vision_width = 1280, .vision_layers = 32, .vision_heads = 16, .vision_hidden = 3420,
    .vae_widths = {96, 192, 384, 384}, .vae_resnets = 2};

const synthetic_config synthetic_newbie_tiny = {
    .family = SYNTHETIC_NEWBIE, .dim = 288, .layers = 2, .refiners = 1, .heads = 3, .kv_heads = 1,
    .text_width = 128, .text_layers = 7, .text_hidden = 256, .text_window = 24, .vocabulary = 512,
    .text_heads = 4, .text_kv_heads = 2, .text_head = 32,
    .pooled_width = 128, .pooled_layers = 2, .pooled_hidden = 256, .pooled_vocabulary = 512,
    .vae_widths = {32, 32, 64, 64}, .vae_resnets = 1, .vae_groups = 8};
const synthetic_config synthetic_newbie_mid = {
    .family = SYNTHETIC_NEWBIE, .dim = 1152, .layers = 8, .refiners = 2, .heads = 12, .kv_heads = 4,
    .text_width = 1024, .text_layers = 13, .text_hidden = 4096, .text_window = 64, .vocabulary = 512,
    .text_heads = 4, .text_kv_heads = 2, .text_head = 256,
    .pooled_width = 512, .pooled_layers = 6, .pooled_hidden = 2048, .pooled_vocabulary = 512,
    .vae_widths = {64, 128, 256, 256}, .vae_resnets = 2, .vae_groups = 32};
const synthetic_config synthetic_newbie = {
    .family = SYNTHETIC_NEWBIE, .dim = 2304, .layers = 36, .refiners = 2, .heads = 24, .kv_heads = 8,
    .text_width = 2560, .text_layers = 34, .text_hidden = 10240, .text_window = 1024, .vocabulary = 262208,
    .text_heads = 8, .text_kv_heads = 4, .text_head = 256,
    .pooled_width = 1024, .pooled_layers = 24, .pooled_hidden = 4096, .pooled_vocabulary = 250002,
    .vae_widths = {128, 256, 512, 512}, .vae_resnets = 2, .vae_groups = 32};

#define KLEIN_TINY                                                                                                     \
    .family = SYNTHETIC_KLEIN, .dim = 128, .layers = 1, .singles = 2, .heads = 2,                                      \
    .text_width = 64, .text_layers = 28, .text_hidden = 96, .vocabulary = 512,                                         \
    .text_heads = 2, .text_kv_heads = 1, .text_head = 32,                                                              \
    .vae_widths = {32, 32, 64, 64}, .vae_resnets = 1, .vae_groups = 8
const synthetic_config synthetic_klein_tiny = {KLEIN_TINY};
const synthetic_config synthetic_klein_9b_kv_tiny = {KLEIN_TINY, .keeps_references = true};
const synthetic_config synthetic_klein_mid = {
    .family = SYNTHETIC_KLEIN, .dim = 1024, .layers = 2, .singles = 8, .heads = 8,
    .text_width = 512, .text_layers = 28, .text_hidden = 1536, .vocabulary = 512,
    .text_heads = 8, .text_kv_heads = 4, .text_head = 64,
    .vae_widths = {64, 128, 256, 256}, .vae_resnets = 2, .vae_groups = 32};
const synthetic_config synthetic_klein = {
    .family = SYNTHETIC_KLEIN, .dim = 3072, .layers = 5, .singles = 20, .heads = 24,
    .text_width = 2560, .text_layers = 36, .text_hidden = 9728, .vocabulary = 151936,
    .text_heads = 32, .text_kv_heads = 8, .text_head = 128,
    .vae_widths = {128, 256, 512, 512}, .vae_resnets = 2, .vae_groups = 32};
#define KLEIN_9B                                                                                                       \
    .family = SYNTHETIC_KLEIN, .dim = 4096, .layers = 8, .singles = 24, .heads = 32,                                   \
    .text_width = 4096, .text_layers = 36, .text_hidden = 12288, .vocabulary = 151936,                                 \
    .text_heads = 32, .text_kv_heads = 8, .text_head = 128,                                                            \
    .vae_widths = {128, 256, 512, 512}, .vae_resnets = 2, .vae_groups = 32
const synthetic_config synthetic_klein_9b = {KLEIN_9B};
const synthetic_config synthetic_klein_9b_kv = {KLEIN_9B, .keeps_references = true};

const synthetic_config synthetic_qwen_image_21_tiny = {
    .family = SYNTHETIC_QWEN_IMAGE_21, .dim = 128, .layers = 2, .heads = 2,
    .text_width = 128, .text_layers = 3, .text_hidden = 384, .vocabulary = 512,
    .text_heads = 4, .text_kv_heads = 2, .text_head = 32,
    .vision_width = 48, .vision_layers = 6, .vision_heads = 2, .vision_hidden = 80,
    .vae_widths = {4, 8, 16, 32, 32}, .vae_decoder_width = 4, .vae_resnets = 1};
const synthetic_config synthetic_qwen_image_21_mid = {
    .family = SYNTHETIC_QWEN_IMAGE_21, .dim = 1024, .layers = 8, .heads = 8,
    .text_width = 1024, .text_layers = 12, .text_hidden = 3072, .vocabulary = 512,
    .text_heads = 8, .text_kv_heads = 2, .text_head = 128,
    .vision_width = 288, .vision_layers = 9, .vision_heads = 4, .vision_hidden = 1080,
    .vae_widths = {24, 48, 96, 192, 192}, .vae_decoder_width = 32, .vae_resnets = 2};
const synthetic_config synthetic_qwen_image_21 = {
    .family = SYNTHETIC_QWEN_IMAGE_21, .dim = 4096, .layers = 32, .heads = 32,
    .text_width = 4096, .text_layers = 36, .text_hidden = 12288, .vocabulary = 151936,
    .text_heads = 32, .text_kv_heads = 8, .text_head = 128,
    .vision_width = 1152, .vision_layers = 27, .vision_heads = 16, .vision_hidden = 4304,
    .vae_widths = {96, 192, 384, 768, 768}, .vae_decoder_width = 144, .vae_resnets = 2};
// clang-format on

static const struct {
    const char* name;
    sumi_weight_format weights;
} s_formats[] = {{"bf16", SUMI_WEIGHTS_BF16},
                 {"fp8", SUMI_WEIGHTS_FP8},
                 {"int8", SUMI_WEIGHTS_INT8},
                 {"int4", SUMI_WEIGHTS_INT4},
                 {"as-stored", SUMI_WEIGHTS_AS_STORED}};
#define FORMAT_COUNT (sizeof s_formats / sizeof *s_formats)

bool synthetic_weights(const char* name, sumi_weight_format* out_weights)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        if (strcmp(name, s_formats[i].name) != 0) continue;
        *out_weights = s_formats[i].weights;
        return true;
    }
    return false;
}

const char* synthetic_weights_name(sumi_weight_format weights)
{
    for (size_t i = 0; i < FORMAT_COUNT; i++) {
        if (weights == s_formats[i].weights) return s_formats[i].name;
    }
    return s_formats[0].name;
}

const synthetic_config* synthetic_find(const char* name)
{
    static const struct {
        const char* name;
        const synthetic_config* config;
    } s_list[] = {{"tiny", &synthetic_tiny},
                  {"mid", &synthetic_mid},
                  {"z-image", &synthetic_z_image},
                  {"qwen-image-tiny", &synthetic_qwen_image_tiny},
                  {"qwen-image-mid", &synthetic_qwen_image_mid},
                  {"qwen-image", &synthetic_qwen_image},
                  {"newbie-tiny", &synthetic_newbie_tiny},
                  {"newbie-mid", &synthetic_newbie_mid},
                  {"newbie", &synthetic_newbie},
                  {"klein-tiny", &synthetic_klein_tiny},
                  {"klein-mid", &synthetic_klein_mid},
                  {"klein", &synthetic_klein},
                  {"klein-9b", &synthetic_klein_9b},
                  {"klein-9b-kv-tiny", &synthetic_klein_9b_kv_tiny},
                  {"klein-9b-kv", &synthetic_klein_9b_kv},
                  {"qwen-image-21-tiny", &synthetic_qwen_image_21_tiny},
                  {"qwen-image-21-mid", &synthetic_qwen_image_21_mid},
                  {"qwen-image-21", &synthetic_qwen_image_21}};
    for (size_t i = 0; i < sizeof s_list / sizeof *s_list; i++) {
        if (strcmp(name, s_list[i].name) == 0) return s_list[i].config;
    }
    return NULL;
}

// For Z-Image these are the rows of the template's beginning and end; for Qwen-Image those of its end, because the
// features of its beginning are dropped; for Qwen-Image-2.1 all but those of the system turn; for NewBie-image only <bos>, because texts begin with "<Prompt Start>"; for
// FLUX.2 [klein], where every prompt has 512 rows, the tokens of the template.
int32_t synthetic_template_rows(const synthetic_config* config)
{
    static const int32_t s_rows[] = {[SYNTHETIC_Z_IMAGE] = 19,
                                     [SYNTHETIC_QWEN_IMAGE] = 5,
                                     [SYNTHETIC_NEWBIE] = 1,
                                     [SYNTHETIC_KLEIN] = 38,
                                     [SYNTHETIC_QWEN_IMAGE_21] = 8};
    return s_rows[config->family];
}

const char* synthetic_opening(const synthetic_config* config)
{
    return config->family == SYNTHETIC_NEWBIE ? "<Prompt Start>" : "";
}

// ---- Writing --------------------------------------------------------------------------------------------------------

static bool fail(const char* path)
{
    fprintf(stderr, "synthetic checkpoint: cannot write %s: %s\n", path, strerror(errno));
    return false;
}

static const synthetic_type* base_type(const synthetic_config* c)
{
    return synthetic_type_find(c->float32 ? "f32" : "bf16");
}

static bool ends_with(const char* text, const char* end)
{
    const size_t length = strlen(text), bytes = strlen(end);
    return length >= bytes && strcmp(text + length - bytes, end) == 0;
}

// ---- Outliers -------------------------------------------------------------------------------------------------------

#define OUTLIER_CHANNELS 20

static bool is_norm_of_products(const listed_tensor* t)
{
    return ends_with(t->name, "attention_norm1.weight") || ends_with(t->name, "ffn_norm1.weight");
}

// The bias of the modulation: shift, scale and gate for attention, then shift, scale and gate for the feed-forward.
static bool is_modulation_bias(const listed_tensor* t)
{
    return ends_with(t->name, "img_mod.1.bias") || ends_with(t->name, "txt_mod.1.bias");
}

static bool has_outliers(const synthetic_config* c, const listed_tensor* t)
{
    return c->outliers && (is_norm_of_products(t) || is_modulation_bias(t));
}

typedef struct outlier {
    int64_t index; // of the element in the tensor
    float value;
} outlier;

// Writes the outliers of a tensor into `into`. Returns their number.
static int32_t list_outliers(const listed_tensor* t, uint64_t seed, outlier into[2 * OUTLIER_CHANNELS])
{
    const bool is_bias = is_modulation_bias(t); // the network adds 1 to the scales
    const int64_t width = is_bias ? t->shape[0] / 6 : t->shape[0];
    int32_t count = 0;
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 3;
    for (int32_t i = 0; i < OUTLIER_CHANNELS; i++) {
        state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
        const uint64_t draw = state * 0x2545F4914F6CDD1Du;
        const int64_t channel = (int64_t)(draw >> 32) % width;
        const float factor = 15.0f + 25.0f * (float)(draw & 0xFFFF) / 65536.0f;
        if (!is_bias) into[count++] = (outlier){channel, factor};
        else
            into[count++] = (outlier){width + channel, factor - 1.0f},
            into[count++] = (outlier){4 * width + channel, factor - 1.0f};
    }
    return count;
}

// ---- Files ----------------------------------------------------------------------------------------------------------

// Writes the length field of a safetensors header of `bytes` bytes, which is padded with blanks to a multiple of 8.
// Returns the padded length.
static size_t put_length(unsigned char length[8], size_t bytes)
{
    size_t total = (bytes + 7) / 8 * 8;
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)((uint64_t)total >> 8 * i);
    return total;
}

static bool write_header(FILE* file, const char* json, size_t bytes)
{
    static const char s_blanks[8] = "        ";
    unsigned char length[8];
    size_t padding = put_length(length, bytes) - bytes;
    return fwrite(length, 1, 8, file) == 8 && fwrite(json, 1, bytes, file) == bytes
        && fwrite(s_blanks, 1, padding, file) == padding;
}

static size_t put_entry(char* into, const char* name, const char* type, const int64_t* shape, int32_t rank,
                        uint64_t begin, uint64_t end, bool first)
{
    size_t used = (size_t)sprintf(into, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[", first ? "{" : ",", name, type);
    for (int32_t i = 0; i < rank; i++)
        used += (size_t)sprintf(into + used, "%s%lld", i ? "," : "", (long long)shape[i]);
    return used
         + (size_t)sprintf(into + used, "],\"data_offsets\":[%llu,%llu]}", (unsigned long long)begin,
                           (unsigned long long)end);
}

#if !defined(_WIN32) // the threads that write
// Writes all values of a tensor at byte `offset` of a file.
static bool write_values(int file, uint64_t offset, const listed_tensor* t, uint64_t seed,
                         const synthetic_config* config)
{
    enum { BLOCK = 16384 };
    float values[BLOCK];
    unsigned char elements[4 * BLOCK];
    const synthetic_type* type = base_type(config);
    const size_t size = (size_t)type->block_bytes;
    const uint64_t begin = offset;
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    int64_t left = tensor_elements(t);
    while (left > 0) {
        size_t count = left < BLOCK ? (size_t)left : BLOCK, bytes = count * size;
        for (size_t i = 0; i < BLOCK; i += 4) { // xorshift64*: four numbers of 16 bits per draw
            state ^= state >> 12, state ^= state << 25, state ^= state >> 27;
            uint64_t draw = state * 0x2545F4914F6CDD1Du;
            for (size_t k = 0; k < 4; k++)
                values[i + k] =
                    t->center + t->spread * ((float)(int32_t)(draw >> 16 * k & 0xFFFF) - 32767.5f) / 32768.0f;
        }
        for (size_t i = 0; i < count; i++) synthetic_put(type, elements + i * size, values[i]);
        if (pwrite(file, elements, bytes, (off_t)offset) != (ssize_t)bytes) return false;
        offset += bytes;
        left -= (int64_t)count;
    }
    outlier outliers[2 * OUTLIER_CHANNELS];
    const int32_t count = has_outliers(config, t) ? list_outliers(t, seed, outliers) : 0;
    for (int32_t i = 0; i < count; i++) {
        synthetic_put(type, elements, outliers[i].value);
        if (pwrite(file, elements, size, (off_t)(begin + size * (uint64_t)outliers[i].index)) != (ssize_t)size)
            return false;
    }
    return true;
}

// Shared by the threads that write; each thread takes one tensor after the other.
typedef struct writing {
    const tensor_list* l;
    const uint64_t* offsets; // of the tensors in the file, in bytes
    int file;
    uint64_t seed;
    const synthetic_config* config;
    atomic_size_t next;
    atomic_bool failed;
} writing;

static void* write_tensors(void* argument)
{
    writing* w = argument;
    for (size_t i; (i = atomic_fetch_add(&w->next, 1)) < w->l->count;) {
        if (!write_values(w->file, w->offsets[i], &w->l->tensors[i], w->seed + i, w->config))
            atomic_store(&w->failed, true);
    }
    return NULL;
}

static bool write_all_tensors(writing* w)
{
    enum { MOST = 64 };
    pthread_t threads[MOST];
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    int32_t count = 0;
    while (count < MOST && count < cores - 1 && pthread_create(&threads[count], NULL, write_tensors, w) == 0) count++;
    write_tensors(w);
    for (int32_t i = 0; i < count; i++) pthread_join(threads[i], NULL);
    return !atomic_load(&w->failed);
}

static bool write_list(const char* path, const tensor_list* l, uint64_t seed, const synthetic_config* config)
{
    const synthetic_type* type = base_type(config);
    char* json = malloc(l->count * 256 + 16);
    uint64_t* offsets = malloc((l->count + 1) * sizeof *offsets);
    FILE* file = json && offsets ? fopen(path, "wb") : NULL;
    size_t used = 0;
    uint64_t offset = 0;
    for (size_t i = 0; file && i < l->count; i++) {
        uint64_t bytes = (uint64_t)tensor_elements(&l->tensors[i]) * (uint64_t)type->block_bytes;
        used += put_entry(json + used, l->tensors[i].name, type->safetensors_name, l->tensors[i].shape,
                          l->tensors[i].rank, offset, offset + bytes, i == 0);
        offsets[i] = offset;
        offset += bytes;
    }
    if (file) json[used++] = '}';
    bool written = file && write_header(file, json, used) && fflush(file) == 0;
    if (written) {
        unsigned char ignored[8];
        for (size_t i = 0; i < l->count; i++) offsets[i] += 8 + put_length(ignored, used);
        writing w = {.l = l, .offsets = offsets, .file = fileno(file), .seed = seed, .config = config};
        written = write_all_tensors(&w);
    }
    if (file && fclose(file) != 0) written = false;
    free(json);
    free(offsets);
    return written || fail(path);
}
#endif

bool synthetic_save(const char* path, const synthetic_tensor* tensors, int32_t count)
{
    char json[4096];
    size_t used = 0;
    uint64_t offset = 0;
    FILE* file = fopen(path, "wb");
    if (!file) return fail(path);
    for (int32_t i = 0; i < count; i++) {
        uint64_t bytes = 4;
        for (int32_t k = 0; k < tensors[i].rank; k++) bytes *= (uint64_t)tensors[i].shape[k];
        used += put_entry(json + used, tensors[i].name, "F32", tensors[i].shape, tensors[i].rank, offset,
                          offset + bytes, i == 0);
        offset += bytes;
    }
    json[used++] = '}';
    bool written = write_header(file, json, used);
    for (int32_t i = 0; i < count && written; i++) {
        size_t values = 1;
        for (int32_t k = 0; k < tensors[i].rank; k++) values *= (size_t)tensors[i].shape[k];
        written = fwrite(tensors[i].values, 4, values, file) == values;
    }
    if (fclose(file) != 0) written = false;
    return written || fail(path);
}

// ---- In memory ------------------------------------------------------------------------------------------------------

#define MAX_BLOCK_BYTES ((uint64_t)64 << 20)
#define SPREAD 0.02f

typedef struct stored {
    char path[128];
    unsigned char* data;
    uint64_t bytes;
    uint64_t reserved_bytes, mapped_bytes; // as in views.h; 0: the memory is from malloc
} stored;
struct synthetic_files {
    stored files[16];
    int32_t count;
};

static stored* add_stored(synthetic_files* files, const char* name)
{
    if (files->count == (int32_t)(sizeof files->files / sizeof *files->files)) return NULL;
    stored* file = &files->files[files->count++];
    memset(file, 0, sizeof *file);
    snprintf(file->path, sizeof file->path, "%s/%s", SYNTHETIC_PATH, name);
    return file;
}

// A block of random elements. Its size is a multiple of the unit of views and of the type's block, so that it can be
// mapped one time after the other.
typedef struct source {
    const synthetic_type* type;
    view_block block;
} source;

// The sources of a checkpoint's elements: for tensors that are not quantised, for those that are in Q8_0 instead of the
// requested type, and for those in the requested type.
enum { SOURCE_BASE, SOURCE_INSTEAD, SOURCE_STORED, SOURCE_COUNT };
typedef struct sources {
    source of[SOURCE_COUNT];
    int32_t count;
} sources;

static uint64_t up_to(uint64_t bytes, uint64_t multiple) { return (bytes + multiple - 1) / multiple * multiple; }

static bool add_source(sources* all, const synthetic_type* type)
{
    const uint64_t unit = views_unit() * (uint64_t)type->block_bytes, bytes = MAX_BLOCK_BYTES / unit * unit;
    view_block block;
    void* memory;
    if (!views_make(bytes, &block, &memory)) return fail("a block of memory");
    uint64_t state = 0x9E3779B97F4A7C15u;
    synthetic_fill(type, memory, (size_t)bytes, SPREAD, &state);
    views_filled(&block, memory);
    all->of[all->count++] = (source){type, block};
    return true;
}

static void close_sources(sources* all)
{
    for (int32_t i = 0; i < all->count; i++) views_close(&all->of[i].block);
}

static int32_t source_of(const sources* all, const listed_tensor* t)
{
    if (all->count == 1 || !tensor_is_quantised(t)) return SOURCE_BASE;
    const int64_t cols = t->shape[1];
    return cols % all->of[SOURCE_STORED].type->block == 0  ? SOURCE_STORED
         : cols % all->of[SOURCE_INSTEAD].type->block == 0 ? SOURCE_INSTEAD
                                                           : SOURCE_BASE;
}

typedef struct placed {
    const synthetic_type* type;
    uint64_t begin, end; // bytes from the beginning of the data
    int32_t region;      // 0: private memory; 1 + i: views of source i
} placed;

// Places the tensors, one region after the other. The data and each region begin at a page; ends[] receives the end of
// each region.
static void lay_out(const tensor_list* l, const synthetic_config* c, const sources* all, bool is_gguf, placed* places,
                    uint64_t ends[1 + SOURCE_COUNT])
{
    uint64_t at = 0;
    for (int32_t region = 0; region <= SOURCE_COUNT; region++) {
        const uint64_t begin = at;
        for (size_t i = 0; i < l->count; i++) {
            const listed_tensor* t = &l->tensors[i];
            const int32_t from = source_of(all, t);
            if ((t->center != 0.0f || has_outliers(c, t) ? 0 : 1 + from) != region) continue;
            const synthetic_type* type = all->of[from].type;
            // GGUF requires offsets that are multiples of 32 bytes, and views of a source begin at a whole block
            const uint64_t multiple = is_gguf ? 32 * (uint64_t)type->block_bytes : 1;
            at = begin + up_to(at - begin, multiple);
            const uint64_t bytes = (uint64_t)tensor_elements(t) / (uint64_t)type->block * (uint64_t)type->block_bytes;
            places[i] = (placed){type, at, at + bytes, region};
            at += bytes;
        }
        ends[region] = at;
        at = up_to(at, views_unit());
    }
}

#define ENTRY_BYTES 256 // the most bytes of one tensor's entry in a header

// put_safetensors and put_gguf return the length of the header, a multiple of the page size. safetensors allows no
// holes, so the rest of a region's last page is declared as a tensor.
static size_t put_safetensors(unsigned char* into, const tensor_list* l, const placed* places, const uint64_t* ends)
{
    char* json = (char*)into + 8;
    size_t used = 0;
    for (int32_t region = 0; region <= SOURCE_COUNT; region++) {
        for (size_t i = 0; i < l->count; i++) {
            const listed_tensor* t = &l->tensors[i];
            if (places[i].region == region)
                used += put_entry(json + used, t->name, places[i].type->safetensors_name, t->shape, t->rank,
                                  places[i].begin, places[i].end, used == 0);
        }
        const uint64_t end = up_to(ends[region], views_unit());
        const int64_t padding = (int64_t)(end - ends[region]);
        char name[32];
        snprintf(name, sizeof name, "synthetic.padding.%d", region);
        if (padding > 0 && region < SOURCE_COUNT)
            used += put_entry(json + used, name, "U8", &padding, 1, ends[region], end, used == 0);
    }
    json[used++] = '}';
    const size_t header = (size_t)up_to(8 + used, views_unit());
    memset(json + used, ' ', header - 8 - used);
    put_length(into, header - 8);
    return header;
}

static size_t put_number(unsigned char* into, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) into[i] = (unsigned char)(value >> 8 * i);
    return bytes;
}

static size_t put_name(unsigned char* into, const char* name)
{
    const size_t bytes = strlen(name), used = put_number(into, bytes, 8);
    memcpy(into + used, name, bytes);
    return used + bytes;
}

// Writes a GGUF 3 header with one key, a text of blanks that fills the last page of the header. GGUF itself allows at
// most four dimensions; the first matrix of Qwen-Image's vision tower is written with five nevertheless.
static size_t put_gguf(unsigned char* into, const tensor_list* l, const placed* places)
{
    enum { STRING = 8 };
    size_t used = 0, padding = 0;
    for (int32_t pass = 0; pass < 2; pass++) { // the first pass finds the number of blanks
        memcpy(into, "GGUF", 4);
        used = 4 + put_number(into + 4, 3, 4);
        used += put_number(into + used, l->count, 8);
        used += put_number(into + used, 1, 8);
        used += put_name(into + used, "synthetic.padding");
        used += put_number(into + used, STRING, 4);
        used += put_number(into + used, padding, 8);
        memset(into + used, ' ', padding);
        used += padding;
        for (size_t i = 0; i < l->count; i++) {
            const listed_tensor* t = &l->tensors[i];
            used += put_name(into + used, t->name);
            used += put_number(into + used, (uint64_t)t->rank, 4);
            for (int32_t k = t->rank; k-- > 0;) used += put_number(into + used, (uint64_t)t->shape[k], 8);
            used += put_number(into + used, places[i].type->gguf, 4);
            used += put_number(into + used, places[i].begin, 8);
        }
        padding = pass == 0 ? (size_t)up_to(used, views_unit()) - used : padding;
    }
    return used;
}

// Fills the tensors of region 0, which have values of their own.
static void fill_own(unsigned char* data, const tensor_list* l, const placed* places, const synthetic_config* c)
{
    uint64_t state = l->count * 0x9E3779B97F4A7C15u + 1;
    for (size_t i = 0; i < l->count; i++) {
        const listed_tensor* t = &l->tensors[i];
        if (places[i].region != 0) continue;
        const float spread = t->spread == 0.0f ? 0.0f : t->center != 0.0f ? 0.1f : SPREAD;
        const uint64_t size = (uint64_t)places[i].type->block_bytes;
        unsigned char* into = data + places[i].begin;
        for (uint64_t k = 0; k < (uint64_t)tensor_elements(t); k++)
            synthetic_put(places[i].type, into + size * k, t->center + spread * synthetic_normal(&state));
        outlier outliers[2 * OUTLIER_CHANNELS];
        const int32_t count = has_outliers(c, t) ? list_outliers(t, i + 1, outliers) : 0;
        for (int32_t k = 0; k < count; k++)
            synthetic_put(places[i].type, into + size * (uint64_t)outliers[k].index, outliers[k].value);
    }
}

// Maps views of a source one after the other, from where the file is mapped to, to the end of the page that contains
// byte `end`.
static bool map_source(stored* file, uint64_t end, const source* from)
{
    while (file->mapped_bytes < end) {
        const uint64_t left = end - file->mapped_bytes, bytes = left < from->block.bytes ? left : from->block.bytes;
        if (!views_map(file->data + file->mapped_bytes, bytes, &from->block)) return false;
        file->mapped_bytes += up_to(bytes, views_unit());
    }
    return true;
}

static bool store_placed(synthetic_files* files, const char* name, const tensor_list* l, const synthetic_config* c,
                         const sources* all, placed* places, unsigned char* header)
{
    char path[112];
    bool is_gguf = false;
    for (size_t i = 0; i < l->count; i++) {
        const int32_t from = source_of(all, &l->tensors[i]);
        is_gguf = is_gguf || all->of[from].type->block > 1;
    }
    snprintf(path, sizeof path, "%.*s%s", (int)(strlen(name) - strlen(".safetensors")), name,
             is_gguf ? ".gguf" : ".safetensors");
    uint64_t ends[1 + SOURCE_COUNT];
    lay_out(l, c, all, is_gguf, places, ends);
    const size_t header_bytes = is_gguf ? put_gguf(header, l, places) : put_safetensors(header, l, places, ends);
    stored* file = add_stored(files, path);
    if (!file) return false;
    file->bytes = header_bytes + ends[SOURCE_COUNT];
    file->reserved_bytes = up_to(file->bytes, views_unit());
    file->mapped_bytes = header_bytes + up_to(ends[0], views_unit());
    file->data = views_reserve(file->reserved_bytes, file->mapped_bytes);
    if (!file->data) return files->count--, false;
    memcpy(file->data, header, header_bytes);
    fill_own(file->data + header_bytes, l, places, c);
    for (int32_t i = 0; i < all->count; i++) {
        if (!map_source(file, header_bytes + ends[1 + i], &all->of[i])) return false;
    }
    return true;
}

static bool store_list(synthetic_files* files, const char* name, const tensor_list* l, const synthetic_config* c,
                       const sources* all)
{
    placed* places = malloc(l->count * sizeof *places);
    unsigned char* header = malloc(l->count * ENTRY_BYTES + 2 * (size_t)views_unit());
    const bool is_stored = places && header && store_placed(files, name, l, c, all, places, header);
    free(places);
    free(header);
    return is_stored || fail(name);
}

static void* open_stored(const char* path, uint64_t* out_bytes, void* user_data)
{
    synthetic_files* files = user_data;
    for (int32_t i = 0; i < files->count; i++) {
        if (strcmp(files->files[i].path, path) != 0) continue;
        *out_bytes = files->files[i].bytes;
        return &files->files[i];
    }
    return NULL;
}
static bool read_stored(void* file, uint64_t offset, void* into, size_t bytes, void* user_data)
{
    (void)user_data;
    const stored* s = file;
    if (offset > s->bytes || bytes > s->bytes - offset) return false;
    memcpy(into, s->data + offset, bytes);
    return true;
}
static const void* map_stored(void* file, void* user_data)
{
    (void)user_data;
    return ((const stored*)file)->data;
}
static void close_stored(void* file, void* user_data)
{
    (void)file;
    (void)user_data;
}

sumi_files synthetic_services(synthetic_files* files)
{
    return (sumi_files){open_stored, read_stored, map_stored, close_stored, files};
}

void synthetic_close(synthetic_files* files)
{
    for (int32_t i = 0; files && i < files->count; i++) {
        stored* file = &files->files[i];
        if (file->reserved_bytes) views_release(file->data, file->reserved_bytes, file->mapped_bytes);
        else free(file->data);
    }
    free(files);
}

// ---- Checkpoints ----------------------------------------------------------------------------------------------------

// The modulation keeps 16 bits in every format.
void synthetic_count(const synthetic_config* config, uint64_t* out_matrices, uint64_t* out_others)
{
    *out_matrices = *out_others = 0;
    for (int32_t part = 0; tensor_list_path(config, part); part++) {
        tensor_list l = tensor_list_make(config, part);
        for (size_t k = 0; k < l.count; k++) {
            const listed_tensor* t = &l.tensors[k];
            const bool keeps = strstr(t->name, "_mod.") || strstr(t->name, "adaLN");
            if (strstr(t->name, "embed_tokens")) continue;
            *(tensor_is_quantised(t) && !keeps ? out_matrices : out_others) += (uint64_t)tensor_elements(t);
        }
        tensor_list_free(&l);
    }
}

void synthetic_count_transformer(const synthetic_config* config, uint64_t* out_values, uint64_t* out_bytes)
{
    const sources all = {
        .of = {{.type = base_type(config)}, {.type = synthetic_type_find("q8_0")}, {.type = config->stored}},
        .count = config->stored ? SOURCE_COUNT : 1};
    *out_values = *out_bytes = 0;
    for (int32_t part = 0; tensor_list_path(config, part); part++) {
        if (strncmp(tensor_list_path(config, part), "transformer/", strlen("transformer/")) != 0) continue;
        tensor_list l = tensor_list_make(config, part);
        for (size_t k = 0; k < l.count; k++) {
            const synthetic_type* type = all.of[source_of(&all, &l.tensors[k])].type;
            const uint64_t values = (uint64_t)tensor_elements(&l.tensors[k]);
            *out_values += values;
            *out_bytes += values / (uint64_t)type->block * (uint64_t)type->block_bytes;
        }
        tensor_list_free(&l);
    }
}

void synthetic_control_path(const synthetic_config* config, int32_t index, char* into, size_t capacity)
{
    const char* path = config->controls[index]->path;
    const bool is_gguf = config->stored && config->stored->block > 1;
    snprintf(into, capacity, "%s/%.*s%s", SYNTHETIC_PATH, (int)(strlen(path) - strlen(".safetensors")), path,
             is_gguf ? ".gguf" : ".safetensors");
}

static bool store_texts(synthetic_files* files, const synthetic_config* config)
{
    synthetic_texts texts;
    bool made = synthetic_texts_make(config, &texts);
    for (int32_t i = 0; i < texts.count && made; i++) {
        stored* file = add_stored(files, texts.of[i].path);
        if (!file) {
            made = false;
            break;
        }
        file->data = (unsigned char*)texts.of[i].text;
        file->bytes = texts.of[i].bytes;
        texts.of[i].text = NULL; // it is the file's now
    }
    synthetic_texts_free(&texts);
    return made || fail(SYNTHETIC_PATH);
}

synthetic_files* synthetic_open(const synthetic_config* config)
{
    sources all = {.count = 0};
    synthetic_files* files = calloc(1, sizeof *files);
    bool made = files && add_source(&all, base_type(config))
             && (!config->stored || (add_source(&all, synthetic_type_find("q8_0")) && add_source(&all, config->stored)))
             && store_texts(files, config);
    for (int32_t part = 0; tensor_list_path(config, part) && made; part++) {
        tensor_list l = tensor_list_make(config, part);
        if (config->stored && config->stored->block == 1) tensor_list_add_scales(&l);
        made = !l.out_of_memory && store_list(files, tensor_list_path(config, part), &l, config, &all);
        tensor_list_free(&l);
    }
    close_sources(&all);
    if (made) return files;
    synthetic_close(files);
    return NULL;
}

#if !defined(_WIN32)
// Makes the path of a file of the checkpoint, and its folder.
static bool make_path(char path[1024], const char* folder, const char* name)
{
    snprintf(path, 1024, "%s/%s", folder, name);
    char* end = strrchr(path, '/');
    *end = 0;
    if (!system_make_folder(path)) return fail(path);
    *end = '/';
    return true;
}

static bool write_file(const char* folder, const char* name, const void* data, size_t bytes)
{
    char path[1024];
    if (!make_path(path, folder, name)) return false;
    FILE* file = fopen(path, "wb");
    bool written = file && fwrite(data, 1, bytes, file) == bytes;
    if (file && fclose(file) != 0) written = false;
    return written || fail(path);
}

// Writes to files what synthetic_open holds in memory.
static bool write_stored(const char* folder, const synthetic_config* config)
{
    synthetic_files* files = synthetic_open(config);
    bool written = files != NULL;
    for (int32_t i = 0; written && i < files->count; i++) {
        const stored* s = &files->files[i];
        written = write_file(folder, s->path + strlen(SYNTHETIC_PATH "/"), s->data, (size_t)s->bytes);
    }
    synthetic_close(files);
    return written;
}

bool synthetic_write(const char* folder, const synthetic_config* config)
{
    if (!system_make_folder(folder)) return fail(folder);
    if (config->stored) return write_stored(folder, config);
    synthetic_texts texts;
    bool written = synthetic_texts_make(config, &texts) || fail(folder);
    for (int32_t i = 0; i < texts.count && written; i++)
        written = write_file(folder, texts.of[i].path, texts.of[i].text, texts.of[i].bytes);
    synthetic_texts_free(&texts);
    for (int32_t part = 0; tensor_list_path(config, part) && written; part++) {
        char path[1024];
        tensor_list l = tensor_list_make(config, part);
        written = make_path(path, folder, tensor_list_path(config, part));
        if (l.out_of_memory) errno = ENOMEM;
        written = written && (l.out_of_memory ? fail(path) : write_list(path, &l, 1000 * ((uint64_t)part + 1), config));
        tensor_list_free(&l);
    }
    return written;
}
#endif
