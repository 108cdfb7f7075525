// What the tests of autoencoders share: made-up checkpoints under two schemes of names, and running a decoder or an
// encoder.
#ifndef VAE_FIXTURE_H
#define VAE_FIXTURE_H
#include "cpu_runner.h"
#include "models/autoencoders.h"
#include <math.h>

// ---- Made-up checkpoints --------------------------------------------------------------------------------------------

// Tensors in the layout of the released files, all random and from one block of memory.
typedef struct maker {
    sumi_tensor_set set;
    bool has_other_names;           // the second scheme of names
    bool skips_data;                // shapes are wanted: all tensors are the same bytes
    const char *left_out, *doubled; // a tensor that is missing, and one whose first dimension is doubled; or NULL
    const char* leaves_out;         // the beginning of names that are missing; or NULL
    const char* norm;               // what names of the weights of norms hold: these are about 1
    float gain;                     // of layers, so that their results are about as large as what they read
    int32_t layer_rank;             // tensors of lower rank are small: biases
    float* data;
    size_t used, capacity;
    uint32_t random;
} maker;

static inline float next_random(maker* m)
{
    m->random = m->random * 1664525u + 1013904223u;
    return (float)(m->random >> 8) / 16777216.0f - 0.5f;
}

// Returns the values, left out or not.
static inline float* add(maker* m, const char* diffusers, const char* other, const int64_t* shape, int32_t rank)
{
    const char* name = m->has_other_names ? other : diffusers;
    sumi_tensor tensor = {.dtype = SUMI_DTYPE_F32, .rank = rank, .file_index = -1};
    size_t count = 1;
    for (int32_t i = 0; i < rank; i++) {
        tensor.shape[i] = shape[i];
        count *= (size_t)shape[i];
    }
    if (m->skips_data) m->used = 0;
    if (m->used + count > m->capacity) {
        printf("  the test has no room for %s\n", name);
        exit(1);
    }
    float* data = m->data + m->used;
    const float scale = rank < m->layer_rank ? 0.2f : m->gain / sqrtf((float)count / (float)shape[0]);
    const float middle = strstr(diffusers, m->norm) != NULL ? 1.0f : 0.0f;
    for (size_t i = 0; i < count && !m->skips_data; i++) data[i] = scale * next_random(m) + middle;
    tensor.data = data;
    tensor.bytes = count * sizeof(float);
    m->used += count;
    if (m->doubled != NULL && strcmp(name, m->doubled) == 0) tensor.shape[0] *= 2;
    sumi_error error = {0};
    if ((m->left_out != NULL && strcmp(name, m->left_out) == 0)
        || (m->leaves_out != NULL && strncmp(name, m->leaves_out, strlen(m->leaves_out)) == 0))
        return data;
    CHECK(sumi_tensor_set_add(&m->set, name, strlen(name), &tensor, "made up", &error) == SUMI_OK);
    return data;
}

typedef struct naming {
    char diffusers[96], other[96];
} naming;

static inline naming name_at(const char* side, const char* diffusers, const char* other)
{
    naming n;
    snprintf(n.diffusers, sizeof n.diffusers, "%s.%s", side, diffusers);
    snprintf(n.other, sizeof n.other, "%s.%s", side, other);
    return n;
}

static inline void open_maker(maker* m, size_t capacity)
{
    m->capacity = capacity;
    m->random = 5;
    m->data = calloc(m->capacity, sizeof *m->data);
    sumi_tensor_set_init(&m->set, &s_heap, NULL);
}

static inline void end_maker(maker* m)
{
    sumi_tensor_set_close(&m->set);
    free(m->data);
}

// ---- Autoencoders ---------------------------------------------------------------------------------------------------

typedef struct bound {
    const sumi_autoencoder_module* module;
    sumi_weight_list list;
    void* vae;
} bound;

// `b` has its module. Unbind it in any case.
static inline sumi_result bind_on(bound* b, sumi_heap* heap, const maker* m, const char* config, sumi_error* error)
{
    static char s_no_prefix[] = "";
    const sumi_component component = {.present = true, .set = &m->set, .prefix = s_no_prefix, .path = "made-up"};
    const sumi_module_config text = {.data = config,
                                     .bytes = config != NULL ? strlen(config) : 0,
                                     .path = config != NULL ? "config.json" : "made-up"};
    sumi_weight_list_init(&b->list, heap);
    sumi_binder binder = {.list = &b->list, .component = &component, .what = "the VAE", .error = error};
    b->vae = calloc(1, b->module->model_bytes);
    return b->module->bind(b->vae, NULL, &binder, &text, false);
}

static inline void unbind(bound* b)
{
    sumi_weight_list_close(&b->list);
    free(b->vae);
}

static inline void check_refused_by(const sumi_autoencoder_module* module, const maker* m, const char* config,
                                    sumi_result wanted, const char* holds)
{
    bound b = {.module = module};
    sumi_error error = {0};
    const sumi_result result = bind_on(&b, &s_heap, m, config, &error);
    if (result != wanted || strstr(error.text, holds) == NULL)
        printf("  %d: \"%s\" does not say %s\n", (int)result, error.text, holds);
    CHECK(result == wanted && strstr(error.text, holds) != NULL);
    unbind(&b);
}

// A file that lacks a tensor (left_out) is refused with its name, and one with a tensor of another shape (doubled) is
// refused, too.
static inline void check_damage(const sumi_autoencoder_module* module, const maker* m, const char* config)
{
    bound b = {.module = module};
    sumi_error error = {0};
    const bool is_missing = m->left_out != NULL;
    const sumi_result result = bind_on(&b, &s_heap, m, config, &error);
    CHECK(result == (is_missing ? SUMI_TENSOR_MISSING : SUMI_TENSOR_MISMATCH));
    // a wider layer may first show in the shape of one that reads it or is read by it
    const bool is_named = !is_missing || strstr(error.text, m->left_out) != NULL;
    if (!is_named) printf("  without %s: %s\n", m->left_out, error.text);
    CHECK(is_named);
    unbind(&b);
}

// ---- Runs -----------------------------------------------------------------------------------------------------------

// What is decoded (or encoded). Sizes are of the latents that the denoiser has.
typedef struct vae_run {
    const sumi_autoencoder_module* module;
    const void* vae;
    bool decodes;
    int32_t height, width, tile;
    // Element i of the values that are read, and of those that are made, in an order that all autoencoders of a test
    // share. NULL: as they are.
    size_t (*place)(const struct vae_run* run, size_t i);
} vae_run;

static inline size_t place_of(const vae_run* run, bool is_latents, size_t i)
{
    return is_latents && run->place != NULL ? run->place(run, i) : i;
}

// Decodes made-up latents (or encodes a made-up picture); returns what was made as floats.
static inline float* run_vae(const vae_run* run, size_t* out_count)
{
    sumi_plan plan;
    sumi_error error = {0};
    const sumi_rates rates = {1e3, 1e3, 1.0};
    const sumi_vae_tiling tiling = run->module->tiling(run->vae);
    const sumi_autoencoder_properties is = run->module->properties(run->vae);
    sumi_tile_source latents = {.height = run->height, .width = run->width},
                     picture = {.height = run->height * is.factor, .width = run->width * is.factor};
    const int32_t latent_count = latents.height * latents.width, pixels = picture.height * picture.width;
    sumi_runner_begin_plan(s_runner, &plan, &s_heap);
    sumi_plan_section(&plan, run->decodes ? SUMI_SECTION_DECODE : SUMI_SECTION_IMAGE, 1, 0);
    sumi_value from, to;
    if (run->decodes) {
        from = latents.value = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, is.channels, latent_count);
        to = sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_ACTIVATION, pixels, is.picture_channels);
        sumi_vae_tiles_decode(&tiling, &plan, &latents, run->tile, to);
    } else {
        from = picture.value = sumi_plan_bound(&plan, "pixels", SUMI_ELEMENT_BYTE, pixels, is.picture_channels);
        to = latents.value = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, is.channels, latent_count);
        const sumi_value moments = sumi_vae_tiles_encode(&tiling, &plan, &picture, run->tile);
        sumi_vae_posterior(&tiling, &plan, moments, SUMI_NO_VALUE, &latents);
    }
    sumi_result result = sumi_plan_finish(&plan, &error);
    if (result == SUMI_OK) result = sumi_plan_validate(&plan, &error);
    if (result == SUMI_OK) result = plan_slice(&plan, &rates, 2000, &error);
    if (result == SUMI_OK) result = plan_ready(s_runner, &plan, &error);
    const size_t in_bytes = (size_t)sumi_plan_info(&plan, from)->bytes,
                 out_bytes = (size_t)sumi_plan_info(&plan, to)->bytes, count = out_bytes / sizeof(float);
    float *made = calloc(1, out_bytes + 1), *placed = calloc(1, out_bytes + 1);
    if (result == SUMI_OK) {
        s_runner->functions->start(s_runner, &plan);
        void* data = calloc(1, in_bytes + 1);
        for (size_t i = 0; i < in_bytes / (run->decodes ? 4 : 1); i++) {
            maker random = {.random = (uint32_t)place_of(run, run->decodes, i) * 2654435761u};
            next_random(&random);
            if (run->decodes) ((float*)data)[i] = 2.0f * next_random(&random);
            else ((uint8_t*)data)[i] = (uint8_t)(255.0f * (next_random(&random) + 0.5f));
        }
        s_runner->functions->write(s_runner, &plan, from, 0, data, in_bytes);
        free(data);
        result = plan_run_all(s_runner, &plan, NULL, &error);
    }
    if (result == SUMI_OK) result = plan_read(s_runner, &plan, to, made, &error);
    CHECK_TEXT(error.text, "");
    plan_release(s_runner, &plan);
    sumi_plan_end(&plan);
    for (size_t i = 0; i < count; i++) placed[place_of(run, !run->decodes, i)] = made[i];
    free(made);
    *out_count = count;
    return placed;
}

// Both give the same bits, which are no zeros.
static inline void check_same_bits(const vae_run* a, const vae_run* b)
{
    size_t count = 0, other_count = 0;
    float *one = run_vae(a, &count), *two = run_vae(b, &other_count);
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)one[i] * (double)one[i];
    CHECK(sum > 1e-4 * (double)count && sum < 1e8 * (double)count); // false for NaN
    CHECK_NUMBER(other_count, count);
    CHECK(count == other_count && memcmp(one, two, count * sizeof *one) == 0);
    free(one), free(two);
}
#endif
