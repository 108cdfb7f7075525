// What the tests of damaged weights share (test_not_finite.c, test_cuda_not_finite.c). Of each kind of tensor of a tiny
// checkpoint, or of an adapter, one value is damaged in memory; then the model is loaded and a picture is drawn. The job
// must fail with SUMI_NOT_FINITE, or the files must be refused with the tensor's name. A picture may come only where the
// value cannot reach it, which a finite value in its place shows: the picture keeps its bits.
#ifndef SUMI_DAMAGE_FIXTURE_H
#define SUMI_DAMAGE_FIXTURE_H
#include "at_once.h"
#include "engine_fixture.h"
#include "families.h"
#include "files/tensors.h"
#include "number_formats.h"

// ---- Files that lie in memory and can be damaged there ----------------------------------------------------------------

typedef struct stored_file {
    char path[192];
    unsigned char* data;
    size_t bytes;
} stored_file;

static stored_file s_files[96];
static int s_file_count;

static inline void* stored_open(const char* path, uint64_t* out_bytes, void* user_data)
{
    (void)user_data;
    stored_file* f = s_files;
    while (f < s_files + s_file_count && strcmp(f->path, path) != 0) f++;
    if (f == s_files + s_file_count) {
        FILE* file = system_look_at(path) == SYSTEM_FILE ? system_open(path, "rb") : NULL;
        if (file == NULL) return NULL;
        CHECK(s_file_count < 96 && strlen(path) < sizeof f->path);
        s_file_count++;
        snprintf(f->path, sizeof f->path, "%s", path);
        f->data = malloc(4 << 20);
        f->bytes = fread(f->data, 1, 4 << 20, file);
        CHECK(f->bytes < 4 << 20);
        fclose(file);
    }
    *out_bytes = f->bytes;
    return f;
}

static inline bool stored_read(void* file, uint64_t offset, void* into, size_t bytes, void* user_data)
{
    (void)user_data;
    memcpy(into, ((const stored_file*)file)->data + offset, bytes);
    return true;
}

static inline const void* stored_map(void* file, void* user_data)
{
    (void)user_data;
    return ((const stored_file*)file)->data;
}

static inline void stored_close(void* file, void* user_data) { (void)file, (void)user_data; }

static const sumi_files s_service = {stored_open, stored_read, stored_map, stored_close, NULL};

static inline void release_files(void)
{
    while (s_file_count > 0) free(s_files[--s_file_count].data);
}

// ---- What is drawn ----------------------------------------------------------------------------------------------------

typedef struct family {
    const char *model, *adapter; // adapter: NULL, or of the picture
    sumi_weight_format weights;
    sumi_engine* engine; // which reads files through s_service
    uint64_t whole;      // hash of the picture with all weights as they are
} family;

typedef struct outcome {
    sumi_result result;
    char message[512];
    uint64_t hash; // of the picture
} outcome;

static inline void note(outcome* o, sumi_engine* engine, sumi_job job)
{
    sumi_job_wait(engine, job, SUMI_FOREVER);
    const sumi_job_status status = sumi_job_poll(engine, job);
    o->result = status.result;
    snprintf(o->message, sizeof o->message, "%s", status.message);
}

static inline void draw_picture(const family* f, sumi_model* model, sumi_lora* lora, outcome* o)
{
    const sumi_lora_use use = {.lora = lora, .scale = 1.0f};
    const sumi_image_item item = {.text = "cat", .seed = 3};
    sumi_image_desc desc = small_image(model, &item);
    desc.guidance.scale = sumi_model_get_info(model).guidance_off;
    desc.loras = &use;
    desc.lora_count = lora != NULL;
    sumi_job job;
    sumi_image image = {0};
    o->result = sumi_submit_images(f->engine, &desc, &job);
    if (o->result != SUMI_OK) return;
    note(o, f->engine, job);
    CHECK_NUMBER(sumi_fetch_images(f->engine, job, &image, 1), o->result);
    o->hash = hash_image(&image);
    CHECK((image.pixels != NULL) == (o->result == SUMI_OK));
    if (o->result == SUMI_OK) sumi_images_release(f->engine, &image, 1);
}

// Loads the model and the adapter and draws; ends at the first failure.
static inline outcome try_to_draw(const family* f)
{
    outcome o = {0};
    sumi_model_desc md = sumi_model_defaults();
    sumi_model* model = NULL;
    sumi_lora* lora = NULL;
    sumi_job job;
    md.path = f->model;
    md.weights = f->weights;
    o.result = sumi_submit_model(f->engine, &md, &job);
    if (o.result != SUMI_OK) return o;
    note(&o, f->engine, job);
    CHECK_NUMBER(sumi_fetch_model(f->engine, job, &model), o.result);
    if (o.result == SUMI_OK && f->adapter != NULL) {
        sumi_lora_desc ld = sumi_lora_defaults(model);
        ld.path = f->adapter;
        o.result = sumi_submit_lora(f->engine, &ld, &job);
        if (o.result == SUMI_OK) note(&o, f->engine, job);
        CHECK_NUMBER(sumi_fetch_lora(f->engine, job, &lora), o.result);
    }
    if (o.result == SUMI_OK) draw_picture(f, model, lora, &o);
    sumi_lora_release(lora);
    sumi_model_close(model);
    return o;
}

// ---- What is damaged --------------------------------------------------------------------------------------------------

static inline size_t value_count(const sumi_tensor* t)
{
    size_t count = 1;
    for (int32_t i = 0; i < t->rank; i++) count *= (size_t)t->shape[i];
    return count;
}

// Writes a value in the tensor's type: the first one of the tensor or its last; of a table of tokens a whole column, so
// that the rows that are read have it.
static inline void put_value(const sumi_tensor* t, bool is_last, float value)
{
    const bool is_table = t->rank == 2 && t->shape[0] > 400;
    const size_t count = value_count(t), step = is_table ? (size_t)t->shape[1] : count, size = (size_t)t->bytes / count;
    const uint16_t half = sumi_float_to_bf16(value);
    CHECK(t->dtype == SUMI_DTYPE_F32 || t->dtype == SUMI_DTYPE_BF16 || t->dtype == SUMI_DTYPE_F8_E4M3);
    for (size_t at = is_last ? step - 1 : 0; at < count; at += step) {
        unsigned char* to = (unsigned char*)(uintptr_t)t->data + at * size;
        if (size == 4) memcpy(to, &value, 4);
        else if (size == 2) memcpy(to, &half, 2);
        else *to = isnan(value) ? 0x7f : float_to_e4m3(value);
    }
}

// The kind of a tensor: its name with N in the place of numbers, and its rank.
static inline void kind_of(const sumi_tensor* t, char* out, size_t bytes)
{
    size_t used = 0;
    for (const char* at = t->name; *at != 0 && used + 8 < bytes;) {
        const size_t digits = at == t->name || at[-1] == '.' || at[-1] == '_' ? strspn(at, "0123456789") : 0;
        out[used++] = digits > 0 ? 'N' : *at;
        at += digits > 0 ? digits : 1;
    }
    snprintf(out + used, bytes - used, " %d", (int)t->rank);
}

// An infinity of which the network makes a finite number by its own mathematics: Z-Image, NewBie-image and
// Qwen-Image-2.1 multiply by tanh of the last rows of a modulation, and tanh(infinity) is 1.
static inline bool vanishes(const sumi_tensor* t, bool is_last)
{
    return is_last && (strstr(t->name, "adaLN_modulation") != NULL || strcmp(t->name, "modulation.1.weight") == 0);
}

typedef struct counts {
    int kinds, drawn, refused, unread;
} counts;

// Whether the file was refused with a sentence that names the tensor, or its module.
static inline bool is_named(const outcome* o, const sumi_tensor* t)
{
    char module[192];
    const char* dot = strrchr(t->name, '.');
    snprintf(module, sizeof module, "%.*s", dot != NULL ? (int)(dot - t->name) : 128, t->name);
    return o->result == SUMI_FILE_MALFORMED && strstr(o->message, module) != NULL
        && strstr(o->message, "tests/golden/") != NULL;
}

// Puts a value that is not finite into the tensor and draws. *unread: the last value at this place cannot reach the
// picture.
static inline void check_value(const family* f, const sumi_tensor* t, bool is_last, float value, bool* unread,
                               counts* c)
{
    put_value(t, is_last, value);
    const outcome o = try_to_draw(f);
    bool is_good = o.result == SUMI_OK ? *unread : is_named(&o, t);
    if (o.result == SUMI_NOT_FINITE && o.message[0] != 0) is_good = true, c->drawn++;
    else if (o.result != SUMI_OK) c->refused++;
    else if (!*unread) {
        put_value(t, is_last, 3.0f);
        const outcome finite = try_to_draw(f);
        *unread = finite.result == SUMI_OK && finite.hash == f->whole;
        is_good = *unread || (isinf(value) && vanishes(t, is_last));
    }
    if (*unread) c->unread++, is_good = is_good && o.hash == f->whole;
    if (!is_good)
        printf("  %s, the %s value is %f: %s\n", t->name, is_last ? "last" : "first", (double)value,
               o.result == SUMI_OK ? "a picture" : o.message);
    CHECK(is_good);
}

static inline void damage(const family* f, const sumi_tensor* t, counts* c)
{
    const size_t bytes = (size_t)t->bytes;
    void* kept = malloc(bytes);
    memcpy(kept, t->data, bytes);
    // NaN as the first value, or as the last one of a tensor whose first value is not read; then infinity as the last one.
    bool unread = false, last_unread = false;
    check_value(f, t, false, NAN, &unread, c);
    memcpy((void*)(uintptr_t)t->data, kept, bytes);
    if (unread) check_value(f, t, true, NAN, &last_unread, c);
    // e4m3 has no infinity
    if (!last_unread && t->dtype != SUMI_DTYPE_F8_E4M3) check_value(f, t, true, INFINITY, &last_unread, c);
    memcpy((void*)(uintptr_t)t->data, kept, bytes);
    free(kept);
}

// One tensor of each kind.
static inline void damage_set(const family* f, const sumi_tensor_set* set, counts* c)
{
    static char s_kinds[128][192];
    int count = 0;
    for (size_t i = 0; i < set->count; i++) {
        int k = 0;
        kind_of(&set->tensors[i], s_kinds[count], sizeof s_kinds[count]);
        while (strcmp(s_kinds[k], s_kinds[count]) != 0) k++;
        const sumi_dtype dtype = set->tensors[i].dtype; // counters of training steps (num_batches_tracked) have no NaN
        if (k < count || dtype == SUMI_DTYPE_I64) continue;
        CHECK(++count < 128);
        damage(f, &set->tensors[i], c);
    }
    c->kinds += count;
}

static inline void begin_family(family* f)
{
    const outcome whole = try_to_draw(f);
    CHECK_NUMBER(whole.result, SUMI_OK);
    if (whole.result != SUMI_OK) printf("  %s: %s\n", f->model, whole.message);
    f->whole = whole.hash;
}

static inline void end_family(const family* f, const char* part, counts c)
{
    CHECK(try_to_draw(f).hash == f->whole); // every value is in its place again, and nothing of the damage is kept
    printf("  %s, %s: of %d kinds of tensors %d pictures failed, %d files were refused, %d values are not read\n",
           f->model, part, c.kinds, c.drawn, c.refused, c.unread);
    CHECK(c.drawn + c.refused > 0);
    release_files();
}

// Rewrites a file in memory with its matrices in e4m3.
static inline void store_as_e4m3(const char* path)
{
    sumi_heap heap;
    sumi_error error = {0};
    sumi_tensor_set set;
    uint64_t bytes;
    stored_file* file = stored_open(path, &bytes, NULL);
    sumi_heap_init(&heap, NULL);
    sumi_tensor_set_init(&set, &heap, &s_service);
    CHECK_NUMBER(sumi_tensor_set_open(&set, path, &error), SUMI_OK);
    for (size_t i = 0; i < set.count; i++) {
        sumi_tensor* t = &set.tensors[i];
        const size_t count = value_count(t);
        if (t->rank != 2) continue;
        float* values = malloc(count * sizeof *values);
        uint8_t* converted = (uint8_t*)(uintptr_t)t->data; // has more bytes than it needs
        sumi_dtype_to_float(t->dtype, t->data, values, count);
        for (size_t k = 0; k < count; k++) converted[k] = float_to_e4m3(values[k]);
        t->dtype = SUMI_DTYPE_F8_E4M3;
        t->bytes = count;
        free(values);
    }
    bytes = sumi_safetensors_write(set.tensors, set.count, NULL, 0, NULL, 0);
    unsigned char* image = malloc((size_t)bytes);
    sumi_safetensors_write(set.tensors, set.count, NULL, 0, image, bytes);
    sumi_tensor_set_close(&set);
    free(file->data);
    file->data = image;
    file->bytes = (size_t)bytes;
}

// part: a folder of the model.
static inline void damage_model(family f, const char* part)
{
    counts c = {0};
    char folder[128];
    sumi_error error = {0};
    sumi_heap heap;
    sumi_tensor_set set;
    sumi_heap_init(&heap, NULL);
    begin_family(&f);
    sumi_tensor_set_init(&set, &heap, &s_service);
    snprintf(folder, sizeof folder, "%s/%s", f.model, part);
    const bool is_network = strcmp(part, "transformer") == 0 || strcmp(part, "vae") == 0;
    CHECK_NUMBER(open_tensor_folder(&set, folder, is_network ? "diffusion_pytorch_model" : "model", &error), SUMI_OK);
    if (f.whole != 0) damage_set(&f, &set, &c);
    sumi_tensor_set_close(&set);
    end_family(&f, part, c);
}

static inline void damage_adapter(family f)
{
    counts c = {0};
    sumi_heap heap;
    sumi_error error = {0};
    sumi_tensor_set set;
    sumi_heap_init(&heap, NULL);
    begin_family(&f);
    sumi_tensor_set_init(&set, &heap, &s_service);
    CHECK_NUMBER(sumi_tensor_set_open(&set, f.adapter, &error), SUMI_OK);
    if (f.whole != 0) damage_set(&f, &set, &c);
    CHECK_NUMBER(c.unread, 0);
    sumi_tensor_set_close(&set);
    end_family(&f, "adapter", c);
}

#define Z_IMAGE "tests/golden/z-image/"
#define QWEN "tests/golden/qwen-image/"
#define NEWBIE "tests/golden/newbie/"

// Runs a test for every component of every network. Its name ends in both: "in.newbie.clip_model".
#define RUN_FOR_COMPONENTS(test)                                                                                       \
    for (const family_row* row = next_network(NULL); row != NULL; row = next_network(row)) {                           \
        static const char* const s_parts[] = {"transformer", "text_encoder", "vae", "clip_model"};                     \
        for (int part = 0; part < (row->text_encoder_count > 1 ? 4 : 3); part++) {                                     \
            char name[128];                                                                                            \
            snprintf(name, sizeof name, "%s.%s.%s", #test, row->name, s_parts[part]);                                  \
            RUN_AS(name, test(row->tiny.path, s_parts[part]));                                                         \
        }                                                                                                              \
    }
#endif
