// What tests of networks share: opening one, files written anew under other names or shapes, and a job's plan run by
// the CPU.
#ifndef NETWORK_FIXTURE_H
#define NETWORK_FIXTURE_H
#include "cpu_runner.h"
#include "files/tensors.h"
#include "models/network_state.h"
#include "models/pipeline.h"
#include "models/prompt_reader.h"
#include "plan/validate.h"
#include "sampling/schedule.h"
#include "system.h"

#define GOLDEN "tests/golden/z-image/"
// ---- Helpers --------------------------------------------------------------------------------------------------------

static inline sumi_result open_all(sumi_heap* heap, const sumi_network_desc* desc, sumi_error* error,
                                   sumi_network** out)
{
    sumi_result result = sumi_network_open_begin(heap, NULL, desc, error, out);
    float progress;
    for (bool done = false; result == SUMI_OK && !done;)
        result = sumi_network_open_step(*out, 1000, &done, &progress, error);
    if (result != SUMI_OK) {
        sumi_network_close(*out);
        *out = NULL;
    }
    return result;
}

static inline sumi_network* open_path(const char* path)
{
    sumi_error error = {0};
    sumi_network* network = NULL;
    if (open_all(&s_heap, &(sumi_network_desc){.path = path}, &error, &network) != SUMI_OK)
        printf("  %s\n", error.text);
    return network;
}

static char s_folder[192]; // scratch files of this run

static inline const char* scratch(const char* name)
{
    static char s_path[8][256];
    static int s_next;
    s_next = (s_next + 1) % 8;
    if (s_folder[0] == 0) {
        if (!system_make_scratch(s_folder, sizeof s_folder, "sumi-models")) s_folder[0] = 0;
    }
    snprintf(s_path[s_next], sizeof s_path[s_next], "%s/%s", s_folder, name);
    return s_path[s_next];
}

static inline void write_file(const char* path, const void* data, size_t bytes)
{
    FILE* file = fopen(path, "wb");
    if (file != NULL) {
        fwrite(data, 1, bytes, file);
        fclose(file);
    }
}

static inline void write_tensors(const char* path, const sumi_tensor* tensors, size_t count,
                                 const sumi_metadata* metadata, size_t metadata_count)
{
    uint64_t bytes = sumi_safetensors_write(tensors, count, metadata, metadata_count, NULL, 0);
    void* image = malloc(bytes);
    sumi_safetensors_write(tensors, count, metadata, metadata_count, image, bytes);
    write_file(path, image, bytes);
    free(image);
}

// All tensors of a folder or file, to be written again under other names or shapes.
static inline bool read_tensors(sumi_tensor_set* set, const char* path, const char* stem)
{
    sumi_error error = {0};
    sumi_tensor_set_init(set, &s_heap, NULL);
    sumi_result result =
        stem != NULL ? open_tensor_folder(set, path, stem, &error) : sumi_tensor_set_open(set, path, &error);
    if (result != SUMI_OK) printf("  %s\n", error.text);
    return result == SUMI_OK;
}

typedef struct job {
    sumi_pipeline_request r;
    sumi_solver_row rows[64];
    float times[64];
    bool guided[64];
    const int32_t (*ids)[512], (*second_ids)[512]; // second_ids: for the second text encoder
    const float* noise;
    const uint8_t* pixels;
    const float* mask;
    const float* eps;
    bool stops_at_latents; // the plan has no VAE decoder
    const bool* reused;    // which evaluations run the alternative of their section; NULL: none
} job;

// Runs a plan in slices of at most max_us; returns the latents (and the picture's bytes), to be freed.
static inline float* run_job(const sumi_network* network, const job* j, uint32_t max_us, uint8_t** out_bytes,
                             sumi_error* error)
{
    sumi_plan plan;
    sumi_pipeline p;
    float* x = NULL;
    sumi_plan_begin(&plan, &s_heap, 4);
    const sumi_runner_functions* f = s_runner->functions;
    sumi_rates rates = {1e3, 1e3, 1.0};
    sumi_result result = j->stops_at_latents ? sumi_pipeline_write_latents(network, &j->r, false, &plan, &p, error)
                                             : sumi_pipeline_write(network, &j->r, &plan, &p, error);
    if (result == SUMI_OK) result = plan_slice(&plan, &rates, max_us, error);
    if (result == SUMI_OK) result = sumi_plan_validate(&plan, error);
    if (result == SUMI_OK) result = f->reserve(s_runner, &plan, error);
    if (result == SUMI_OK) {
        f->start(s_runner, &plan);
        for (int32_t i = 0; i < j->r.prompt_count; i++) {
            for (int32_t e = 0; e < 2; e++) {
                const sumi_pipeline_rows ids = p.ids[i][e];
                if (ids.value.id != 0)
                    f->write(s_runner, &plan, ids.value, (uint64_t)ids.row * 4, e == 0 ? j->ids[i] : j->second_ids[i],
                             (uint64_t)ids.count * 4);
            }
        }
        uint64_t bytes = (uint64_t)sumi_plan_info(&plan, p.x)->rows * (uint64_t)sumi_plan_info(&plan, p.x)->cols * 4;
        f->write(s_runner, &plan, p.times, 0, j->times, (uint64_t)j->r.evaluation_count * 4);
        f->write(s_runner, &plan, p.solver, 0, j->rows, (uint64_t)j->r.evaluation_count * sizeof *j->rows);
        f->write(s_runner, &plan, p.noise.id != 0 ? p.noise : p.x, 0, j->noise, bytes);
        if (p.eps.id != 0) f->write(s_runner, &plan, p.eps, 0, j->eps, bytes);
        if (p.pixels.id != 0)
            f->write(s_runner, &plan, p.pixels, 0, j->pixels, (uint64_t)j->r.width * (uint64_t)j->r.height * 3);
        if (p.mask.id != 0)
            f->write(s_runner, &plan, p.mask, 0, j->mask, (uint64_t)sumi_plan_info(&plan, p.mask)->cols * 4);
    }
    for (size_t s = 0; s < plan.section_count && result == SUMI_OK; s++)
        for (int32_t k = 0; k < plan.sections[s].repeat && !plan.sections[s].is_alternative; k++) {
            const int32_t counter = plan.sections[s].first_counter + k;
            const bool reuses = j->reused != NULL && sumi_plan_has_alternative(&plan, s) && j->reused[counter];
            const sumi_section* section = &plan.sections[reuses ? s + 1 : s];
            for (int32_t i = section->slice_begin; i < section->slice_end && result == SUMI_OK; i++)
                result = f->run(s_runner, &plan, &plan.slices[i], counter, error);
        }
    if (result == SUMI_OK) {
        const sumi_value_info* info = sumi_plan_info(&plan, p.x);
        x = malloc((size_t)info->rows * (size_t)info->cols * 4);
        f->read(s_runner, &plan, p.x, 0, x, (uint64_t)info->rows * (uint64_t)info->cols * 4);
        if (out_bytes != NULL && p.bytes.id != 0) {
            uint64_t bytes = (uint64_t)sumi_plan_info(&plan, p.bytes)->rows * 3;
            *out_bytes = malloc(bytes);
            f->read(s_runner, &plan, p.bytes, 0, *out_bytes, bytes);
        }
    }
    sumi_plan_end(&plan);
    return x;
}

static inline void fill(float* values, size_t count, uint32_t seed)
{
    for (size_t i = 0; i < count; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (float)((double)(seed >> 8) / (1 << 24) * 4.0 - 2.0);
    }
}

static inline void set_schedule(job* j, const sumi_network* network, sumi_solver solver, int32_t steps, float guidance)
{
    float sigmas[33];
    CHECK_NUMBER(sumi_schedule_write(&sumi_network_get_info(network)->sigmas, 0, steps, sigmas, NULL), SUMI_OK);
    j->r.evaluation_count = sumi_solver_rows(solver, sigmas, steps, j->rows);
    for (int32_t e = 0; e < j->r.evaluation_count; e++) {
        j->times[e] = sumi_network_time(network, j->rows[e].sigma);
        j->rows[e].guidance = guidance;
        j->guided[e] = guidance > 0;
    }
    j->r.guided = guidance > 0 ? j->guided : NULL;
    sumi_pipeline_needs(j->rows, j->r.evaluation_count, &j->r.has_base, &j->r.has_history);
}

static inline double distance(const float* a, const float* b, size_t count)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        size += (double)b[i] * b[i];
    }
    return sqrt(difference / (size > 0 ? size : 1));
}

// In place of end_cpu.
static inline void end_networks(void)
{
    if (s_folder[0] != 0) {
        static const char* const s_files[] = {"vae/ae.safetensors",
                                              "vae/config.json",
                                              "vae",
                                              "bare/ae.safetensors",
                                              "bare",
                                              "bare_te/model.safetensors",
                                              "bare_te/config.json",
                                              "bare_te",
                                              "llama_te/model.safetensors",
                                              "llama_te/config.json",
                                              "llama_te",
                                              "broken.safetensors",
                                              "all.safetensors",
                                              "adapter.safetensors",
                                              "peft.safetensors",
                                              "peft/adapter_model.safetensors",
                                              "peft/adapter_config.json",
                                              "peft",
                                              "twice.safetensors",
                                              "lokr.safetensors",
                                              "lokr/adapter_model.safetensors",
                                              "lokr/adapter_config.json",
                                              "lokr",
                                              "all_changed.safetensors",
                                              "norms.safetensors",
                                              "wrong.safetensors",
                                              "alone/text.safetensors",
                                              "alone",
                                              "broken/config.json",
                                              "broken"};
        for (size_t i = 0; i < sizeof s_files / sizeof *s_files; i++) system_remove(scratch(s_files[i]));
        system_remove(s_folder);
    }
    end_cpu();
}

// ---- Plans ----------------------------------------------------------------------------------------------------------

typedef struct scene {
    sumi_network* network;
    int32_t ids[3][512];
    int32_t counts[3];
    float noise[4 * 16 * 6 * 8];
} scene;

static inline scene* open_scene(void)
{
    static const char* const s_texts[] = {
        "a lighthouse at dusk, ink wash, with a long shadow over the rocks and the sea behind it", "a cat", "blurry"};
    scene* s = calloc(1, sizeof *s);
    s->network = open_path(GOLDEN "model");
    sumi_error error = {0};
    for (int i = 0; i < 3 && s->network != NULL; i++)
        CHECK_NUMBER(read_prompt(s->network, 0, &(sumi_prompt_text){.text = s_texts[i], .bytes = strlen(s_texts[i])},
                                 &(sumi_prompt_ids){s->ids[i], 512, NULL}, &s->counts[i], &error),
                     SUMI_OK);
    fill(s->noise, sizeof s->noise / sizeof *s->noise, 9);
    return s;
}

static inline void close_scene(scene* s)
{
    sumi_network_close(s->network);
    free(s);
}
#endif
