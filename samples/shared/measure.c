// How the limit of time is kept: once it is loaded, each format gets an equal share of what is left. In it a
// measurement is repeated for some seconds at most, and not where the next repetition would not end in time. A size
// that would not end in time, by what a smaller one took, is left out. Whatever else lasts too long is cancelled at the
// end of the share.
#include "measure.h"
#include "system.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RUNS 64
#define LEAST_RUNS 3        // if there is time
#define RUN_SECONDS 5.0     // of repetitions of one measurement
#define WAIT_MS 50          // between two looks at a job
#define WATCHED_WAIT_MS 2   // where a short picture has to be met
#define RESERVE_SECONDS 1.0 // of the limit, for the end of the last job and of the engine

measure_desc measure_defaults(const synthetic_config* network, sumi_backend backend)
{
    return (measure_desc){.network = network,
                          .backend = backend,
                          .sides = {512, 1024},
                          .step_count = 8,
                          .token_count = 128,
                          .seconds = 120.0,
                          .clock_ns = system_clock_ns};
}

static double now(const measure_desc* desc) { return 1e-9 * (double)desc->clock_ns(); }

static void keep_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result;
    if (level == SUMI_LOG_ERROR) snprintf(user_data, MEASURE_TEXT_BYTES, "%s", text);
}

static sumi_engine_desc engine_desc(const measure_desc* desc, char detail[MEASURE_TEXT_BYTES])
{
    sumi_engine_desc ed = sumi_engine_defaults();
    ed.backend = desc->backend;
    ed.cpu_thread_count = desc->thread_count;
    ed.log = (sumi_log){keep_log, detail};
    return ed;
}

sumi_result measure_look(const measure_desc* desc, measure_device* out, char why[MEASURE_TEXT_BYTES])
{
    const sumi_engine_desc ed = engine_desc(desc, why);
    sumi_engine* engine;
    why[0] = 0;
    *out = (measure_device){0};
    const double began = now(desc);
    const sumi_result result = sumi_engine_create(&ed, &engine);
    if (result != SUMI_OK) {
        if (!why[0]) snprintf(why, MEASURE_TEXT_BYTES, "%s", sumi_result_text(result));
        return result;
    }
    out->start_seconds = now(desc) - began;
    const sumi_engine_info info = sumi_engine_get_info(engine);
    snprintf(out->name, sizeof out->name, "%s", info.device);
    snprintf(out->backend, sizeof out->backend, "%s", info.backend);
    out->compute_capability = info.compute_capability;
    out->driver_version = info.driver_version;
    out->device_bytes = info.device_bytes;
    out->free_bytes = info.device_bytes > info.uncounted_bytes ? info.device_bytes - info.uncounted_bytes : 0;
    memcpy(out->uuid, info.device_uuid, sizeof out->uuid);
    sumi_engine_destroy(engine);
    return SUMI_OK;
}

// ---- Which formats --------------------------------------------------------------------------------------------------

// Weights, the decoder's values at its end, of which two are alive at once, and what the driver takes for code and
// graphs. The token embeddings are left out: where they do not fit they are read in host memory, a row for each token.
uint64_t measure_need(const measure_desc* desc, sumi_weight_format weights)
{
    uint64_t matrices, others;
    synthetic_count(desc->network, &matrices, &others);
    const double bits = weights == SUMI_WEIGHTS_INT4                                ? 4.5
                      : weights == SUMI_WEIGHTS_INT8 || weights == SUMI_WEIGHTS_FP8 ? 8.0
                                                                                    : 16.0;
    const double side = desc->sides[MEASURE_SIDES - 1];
    return (uint64_t)((double)matrices * bits / 8.0 + (double)others * 2.0
                      + 2.6 * side * side * (double)desc->network->vae_widths[1] + 200e6);
}

int32_t measure_choose(const measure_desc* desc, const measure_device* device, sumi_weight_format into[MEASURE_FORMATS])
{
    static const sumi_weight_format s_formats[] = {SUMI_WEIGHTS_BF16, SUMI_WEIGHTS_FP8, SUMI_WEIGHTS_INT8,
                                                   SUMI_WEIGHTS_INT4};
    int32_t count = 0;
    if (device->compute_capability == 0) return into[0] = SUMI_WEIGHTS_AUTO, 1;
    for (size_t i = 0; i < sizeof s_formats / sizeof *s_formats; i++) {
        if (s_formats[i] == SUMI_WEIGHTS_FP8 && device->compute_capability < 89) continue;
        if (measure_need(desc, s_formats[i]) <= device->free_bytes) into[count++] = s_formats[i];
    }
    if (count == 0) into[count++] = SUMI_WEIGHTS_INT4;
    return count;
}

// ---- One format -----------------------------------------------------------------------------------------------------

typedef struct measuring {
    const measure_desc* desc;
    sumi_engine* engine;
    sumi_model* model;
    sumi_prompt* prompt;
    measure_row* row;
    int32_t row_index;
    double until;                    // the end of this format's share; while it is loaded, of everything
    bool is_late, is_cancelled;      // why the newest job was cancelled
    bool is_watched;                 // under_load has still to be called
    char detail[MEASURE_TEXT_BYTES]; // the newest error
    char doing[64];                  // what say_why() names
    char text[1024];
} measuring;

typedef struct sample {
    double all;          // from the submission to the end
    double step, decode; // of an image; step alone is there, too, of one that was cancelled after some steps
} sample;

static double seconds_left(const measuring* m) { return m->until - now(m->desc); }

static void begin(measuring* m, const char* doing)
{
    snprintf(m->doing, sizeof m->doing, "%s", doing);
    if (m->desc->tell) m->desc->tell(m->row_index, doing, m->desc->user_data);
}

static void note_memory(measuring* m, const uint64_t held[SUMI_MEMORY_KIND_COUNT])
{
    const sumi_engine_info info = sumi_engine_get_info(m->engine);
    const uint64_t bytes = info.compute_capability > 0
                             ? held[SUMI_MEMORY_WEIGHTS] + held[SUMI_MEMORY_ARENA] + held[SUMI_MEMORY_IMAGE]
                             : info.host_peak_bytes;
    if (bytes > m->row->memory_bytes) m->row->memory_bytes = bytes;
}

// Works until the job has ended, or cancels it. out_steps: seconds of denoising a step, up to the last step that ended.
static sumi_job_status finish(measuring* m, sumi_job job, double* out_steps)
{
    int32_t step = 0;
    sumi_job_status status = sumi_job_poll(m->engine, job);
    m->is_late = false;
    while (status.state == SUMI_JOB_QUEUED || status.state == SUMI_JOB_RUNNING) {
        m->is_cancelled = m->is_cancelled || (m->desc->is_cancelled && m->desc->is_cancelled(m->desc->user_data));
        m->is_late = m->is_late || seconds_left(m) <= 0.0;
        if (m->is_late || m->is_cancelled) sumi_job_cancel(m->engine, job);
        sumi_job_wait(m->engine, job, m->is_watched ? WATCHED_WAIT_MS : WAIT_MS);
        status = sumi_job_poll(m->engine, job);
        note_memory(m, status.held_bytes);
        if (status.step > step && out_steps)
            *out_steps = (double)status.stage_seconds[SUMI_STAGE_DENOISE] / (step = status.step);
        if (m->is_watched && status.step > 0 && status.state == SUMI_JOB_RUNNING) {
            m->is_watched = false;
            m->desc->under_load(m->row_index, m->desc->user_data);
        }
    }
    m->row->compile_seconds += (double)status.stage_seconds[SUMI_STAGE_COMPILE];
    if (status.message && status.message[0]) snprintf(m->detail, sizeof m->detail, "%s", status.message);
    return status;
}

static sumi_result result_of(const measuring* m, const sumi_job_status* status)
{
    if (status->result == SUMI_CANCELLED && m->is_late && !m->is_cancelled) return SUMI_TIMEOUT;
    return status->result == SUMI_NOT_FINITE ? SUMI_OK : status->result; // of random weights; the time is the same
}

static sumi_result load(measuring* m)
{
    sumi_model_desc desc = sumi_model_defaults();
    sumi_job job;
    desc.path = SYNTHETIC_PATH;
    desc.weights = desc.text_weights = m->row->weights;
    desc.without_vae_encoder = true;
    sumi_result result = sumi_submit_model(m->engine, &desc, &job);
    if (result != SUMI_OK) return result;
    const sumi_job_status status = finish(m, job, NULL);
    result = result_of(m, &status);
    if (status.state != SUMI_JOB_DONE) return sumi_job_discard(m->engine, job), result;
    return sumi_fetch_model(m->engine, job, &m->model);
}

static sumi_result encode_text(measuring* m, int32_t side, sample* out)
{
    sumi_prompt_desc desc = sumi_prompt_defaults(m->model);
    sumi_job job;
    sumi_prompt* prompt;
    (void)side;
    desc.text = m->text;
    const double began = now(m->desc);
    sumi_result result = sumi_submit_prompt(m->engine, &desc, &job);
    if (result != SUMI_OK) return result;
    const sumi_job_status status = finish(m, job, NULL);
    result = result_of(m, &status);
    out->all = now(m->desc) - began;
    if (status.state != SUMI_JOB_DONE) return sumi_job_discard(m->engine, job), result;
    result = sumi_fetch_prompt(m->engine, job, &prompt);
    if (result != SUMI_OK) return result;
    sumi_prompt_release(m->prompt);
    m->prompt = prompt;
    return SUMI_OK;
}

static sumi_image_desc image_desc(const measuring* m, int32_t side, sumi_image_item* item)
{
    sumi_image_desc desc = sumi_image_defaults(m->model, SUMI_PRESET_MODEL);
    *item = (sumi_image_item){.prompt = m->prompt, .seed = 7};
    desc.items = item;
    desc.item_count = 1;
    desc.width = desc.height = side;
    desc.step_count = m->desc->step_count;
    desc.guidance.scale = sumi_model_get_info(m->model).guidance_off;
    return desc;
}

static sumi_result draw(measuring* m, int32_t side, sample* out)
{
    sumi_image_item item;
    const sumi_image_desc desc = image_desc(m, side, &item);
    sumi_job job;
    const double began = now(m->desc);
    *out = (sample){0};
    const sumi_result result = sumi_submit_images(m->engine, &desc, &job);
    if (result != SUMI_OK) return result;
    const sumi_job_status status = finish(m, job, &out->step);
    out->all = now(m->desc) - began;
    out->decode = (double)status.stage_seconds[SUMI_STAGE_DECODE] + (double)status.stage_seconds[SUMI_STAGE_TRANSFER];
    if (result_of(m, &status) == SUMI_OK)
        out->step = (double)status.stage_seconds[SUMI_STAGE_DENOISE] / m->desc->step_count;
    sumi_job_discard(m->engine, job);
    return result_of(m, &status);
}

typedef sumi_result measure_once(measuring* m, int32_t side, sample* out);

// Repeats a measurement, within `share` seconds in all, after one that is not counted unless there was time for that
// one alone. Out of time is no failure once there is a sample.
static sumi_result repeat(measuring* m, measure_once* once, int32_t side, double share, sample samples[MOST_RUNS],
                          int32_t* out_count)
{
    const double end = now(m->desc) + share;
    sample first = {0};
    int32_t count = 0;
    sumi_result result = once(m, side, &first);
    samples[0] = first;
    *out_count = 0;
    if (result != SUMI_OK) return result;
    const double began = now(m->desc);
    while (count < MOST_RUNS && (count < LEAST_RUNS || now(m->desc) - began < RUN_SECONDS)
           && now(m->desc) + 1.2 * first.all < end) {
        result = once(m, side, &samples[count]);
        if (result != SUMI_OK) break;
        count++;
    }
    if (count == 0) samples[count++] = first;
    *out_count = count;
    return result == SUMI_TIMEOUT ? SUMI_OK : result;
}

static int compare_doubles(const void* a, const void* b)
{
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static measure_values summed_up(const sample* samples, int32_t count, double (*member)(const sample*))
{
    double values[MOST_RUNS];
    if (count == 0) return (measure_values){0};
    for (int32_t i = 0; i < count; i++) values[i] = member(&samples[i]);
    qsort(values, (size_t)count, sizeof *values, compare_doubles);
    const double median = count % 2 ? values[count / 2] : 0.5 * (values[count / 2 - 1] + values[count / 2]);
    return (measure_values){median, values[count / 10], values[count - 1 - count / 10], count};
}
static double all_of(const sample* s) { return s->all; }
static double step_of(const sample* s) { return s->step; }
static double decode_of(const sample* s) { return s->decode; }

static void measure_text(measuring* m)
{
    sample samples[MOST_RUNS];
    int32_t count;
    begin(m, "encoding a text");
    m->row->result = repeat(m, encode_text, 0, 0.1 * seconds_left(m), samples, &count);
    m->row->text = summed_up(samples, count, all_of);
}

// Whether there is time for an image of this size, by what the one before took.
static bool has_time(measuring* m, int32_t index)
{
    const int32_t side = m->desc->sides[index];
    if (index == 0) return true;
    const double ratio = (double)side / m->desc->sides[index - 1];
    const double predicted = m->row->sides[index - 1].picture.median * ratio * ratio * 1.2; // attention takes more
    if (predicted < seconds_left(m)) return true;
    snprintf(m->row->note, sizeof m->row->note,
             "%dx%d is left out: a picture would take about %.0f s, and %.0f s are left (--seconds)", side, side,
             predicted, seconds_left(m) > 0.0 ? seconds_left(m) : 0.0);
    return false;
}

static void measure_side(measuring* m, int32_t index)
{
    sample samples[MOST_RUNS];
    int32_t count;
    char doing[64];
    const int32_t side = m->desc->sides[index];
    snprintf(doing, sizeof doing, "drawing %dx%d", side, side);
    begin(m, doing);
    const double share = seconds_left(m) * (index == MEASURE_SIDES - 1 ? 0.8 : 1.0 / 3.0);
    m->row->result = repeat(m, draw, side, share, samples, &count);
    m->row->sides[index].picture = summed_up(samples, count, all_of);
    m->row->sides[index].decode = summed_up(samples, count, decode_of);
    // A picture that was cancelled has steps, too.
    m->row->sides[index].step = summed_up(samples, count == 0 && samples[0].step > 0.0 ? 1 : count, step_of);
    if (m->row->result != SUMI_OK || index != MEASURE_SIDES - 1 || !m->desc->under_load) return;
    sample ignored;
    m->is_watched = seconds_left(m) > 1.2 * m->row->sides[index].picture.median;
    if (m->is_watched) draw(m, side, &ignored);
    m->is_watched = false;
}

// Behind the pictures, for a device that turned out to have less memory than it seemed is known to the engine by then.
static void ask_memory(measuring* m)
{
    sumi_image_item item;
    const sumi_image_desc desc = image_desc(m, m->desc->sides[MEASURE_SIDES - 1], &item);
    sumi_memory memory;
    if (sumi_image_memory(m->engine, &desc, &memory) != SUMI_OK) return; // pictures have said why
    m->row->weight_bytes = memory.weights;
    m->row->streamed_bytes = memory.streamed;
}

// A text of so many tokens, for a tokenizer with a token for each letter.
static void make_text(measuring* m)
{
    static const char s_words[] = SYNTHETIC_WORDS;
    const int begun = snprintf(m->text, sizeof m->text, "%s", synthetic_opening(m->desc->network));
    int32_t count = m->desc->token_count - synthetic_template_rows(m->desc->network);
    const int32_t most = (int32_t)sizeof m->text - 1 - begun;
    count = count < 1 ? 1 : count > most ? most : count;
    for (int32_t i = 0; i < count; i++) m->text[begun + i] = s_words[(size_t)i % (sizeof s_words - 1)];
    m->text[begun + count] = 0;
}

static void say_why(measuring* m)
{
    measure_row* row = m->row;
    const char* doing = m->doing;
    if (row->result == SUMI_OK) return;
    if (row->result == SUMI_TIMEOUT) {
        snprintf(row->note, sizeof row->note, "%s was not done in the time that there is (--seconds)", doing);
        return;
    }
    if (row->result == SUMI_CANCELLED) {
        snprintf(row->note, sizeof row->note, "%s was cancelled", doing);
        return;
    }
    const int used = snprintf(row->note, sizeof row->note, "%s failed: %s", doing, sumi_result_text(row->result));
    if (m->detail[0] && used > 0 && used < MEASURE_TEXT_BYTES - 8)
        snprintf(row->note + used, sizeof row->note - (size_t)used, " (%s)", m->detail);
}

// From the beginning to the end of the first text, which waits for kernels that are still being loaded.
static sumi_result start(measuring* m, synthetic_files* files)
{
    sumi_engine_desc ed = engine_desc(m->desc, m->detail);
    sample first;
    const sumi_files services = synthetic_services(files);
    ed.files = &services;
    begin(m, "loading");
    const double began = now(m->desc);
    make_text(m);
    sumi_result result = sumi_engine_create(&ed, &m->engine);
    if (result == SUMI_OK) result = load(m);
    if (result == SUMI_OK) result = encode_text(m, 0, &first);
    if (result == SUMI_OK) m->row->load_seconds = now(m->desc) - began;
    return result;
}

// formats_left: this one included.
static void measure_stages(measuring* m, synthetic_files* files, int32_t formats_left)
{
    m->row->result = start(m, files);
    if (m->row->result != SUMI_OK) return;
    m->until = now(m->desc) + seconds_left(m) / formats_left;
    measure_text(m);
    for (int32_t i = 0; i < MEASURE_SIDES && m->row->result == SUMI_OK && has_time(m, i); i++) measure_side(m, i);
}

static void measure_format(measuring* m, synthetic_files* files, int32_t formats_left)
{
    measure_stages(m, files, formats_left);
    say_why(m);
    if (m->model) ask_memory(m);
    sumi_engine_destroy(m->engine); // the prompt and the model, too
}

int32_t measure_all(const measure_desc* desc, const sumi_weight_format* formats, int32_t format_count,
                    measure_row* rows)
{
    const double reserve = RESERVE_SECONDS < 0.1 * desc->seconds ? RESERVE_SECONDS : 0.1 * desc->seconds,
                 end = now(desc) + desc->seconds - reserve;
    synthetic_files* files = synthetic_open(desc->network);
    int32_t count = 0;
    for (bool goes_on = true; goes_on && count < format_count; count++) {
        measuring m = {.desc = desc, .row = &rows[count], .row_index = count, .until = end};
        rows[count] = (measure_row){.weights = formats[count]};
        if (files) measure_format(&m, files, format_count - count);
        else begin(&m, "making the weights"), m.row->result = SUMI_OUT_OF_HOST_MEMORY, say_why(&m);
        goes_on = !m.is_cancelled;
    }
    synthetic_close(files);
    return count;
}
