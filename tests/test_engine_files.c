// Models and adapters out of the host program's own archive, whose reader takes time on a clock that the test turns.
#include "engine_fixture.h"
#include "fake_clock.h"

#define TICK_NS UINT64_C(1000)
#define MAX_PATHS 128
#define LORA_FILE LORA_PATH "lora_peft.safetensors"
#define NET_FILE "tests/golden/controlnet/Z-Image-Turbo-Fun-Controlnet-Union-2.1-2602-8steps.safetensors"

// What the host saw of one path.
typedef struct asked {
    char path[160];
    int opens, closes, maps;
    uint64_t bytes, read_bytes; // reads come in the order of the file, without gaps
    bool is_there;
} asked;

typedef struct slow_archive {
    archive inner;
    double bytes_per_us;
    uint64_t fails_at; // of all bytes; 0: never
    uint64_t bytes;
    int reads, out_of_order;
    asked paths[MAX_PATHS];
    int path_count;
} slow_archive;

typedef struct slow_file {
    archive_file* file;
    asked* of;
    void* content; // mapped
} slow_file;

static void* slow_open(const char* path, uint64_t* out_bytes, void* user_data)
{
    slow_archive* a = user_data;
    asked* of = NULL;
    for (int i = 0; i < a->path_count && of == NULL; i++)
        of = strcmp(a->paths[i].path, path) == 0 ? &a->paths[i] : NULL;
    if (of == NULL) {
        if (a->path_count == MAX_PATHS) return NULL;
        of = &a->paths[a->path_count++];
        snprintf(of->path, sizeof of->path, "%s", path);
    }
    of->opens++;
    void* file = archive_open(path, out_bytes, &a->inner);
    if (file == NULL) return NULL;
    of->is_there = true;
    of->bytes = *out_bytes;
    slow_file* f = malloc(sizeof *f);
    *f = (slow_file){file, of, NULL};
    return f;
}

static bool slow_read(void* file, uint64_t offset, void* into, size_t bytes, void* user_data)
{
    slow_archive* a = user_data;
    slow_file* f = file;
    fake_clock_pass_ns((uint64_t)((double)bytes / a->bytes_per_us * 1e3));
    a->reads++;
    a->bytes += bytes;
    a->out_of_order += offset != f->of->read_bytes;
    f->of->read_bytes += bytes;
    if (a->fails_at != 0 && a->bytes >= a->fails_at) return false;
    return archive_read(f->file, offset, into, bytes, &a->inner);
}

static const void* slow_map(void* file, void* user_data)
{
    slow_archive* a = user_data;
    slow_file* f = file;
    f->of->maps++;
    f->content = malloc((size_t)f->file->bytes);
    return archive_read(f->file, 0, f->content, (size_t)f->file->bytes, &a->inner) ? f->content : NULL;
}

static void slow_close(void* file, void* user_data)
{
    slow_archive* a = user_data;
    slow_file* f = file;
    f->of->closes++;
    archive_close(f->file, &a->inner);
    free(f->content);
    free(f);
}

static sumi_engine* slow_engine(slow_archive* a, double bytes_per_us, bool maps)
{
    memset(&s_host, 0, sizeof s_host);
    memset(a, 0, sizeof *a);
    a->bytes_per_us = bytes_per_us;
    sumi_engine_desc desc = host_desc(&s_host);
    sumi_files files = {slow_open, slow_read, maps ? slow_map : NULL, slow_close, a};
    desc.files = &files;
    sumi_engine* engine = NULL;
    CHECK_NUMBER(sumi_engine_create(&desc, &engine), SUMI_OK);
    memset(&files, 0xff, sizeof files); // the engine has its own copy
    return engine;
}

static sumi_job submit_model(sumi_engine* engine)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = MODEL_PATH;
    sumi_job job = {0};
    CHECK_NUMBER(sumi_submit_model(engine, &desc, &job), SUMI_OK);
    return job;
}

// Frames until the job is over. The longest update, in milliseconds.
static double run_to_the_end(sumi_engine* engine, sumi_job job, uint32_t budget_us, int* out_frames)
{
    double most = 0.0;
    float progress = 0.0f;
    int frames = 0;
    for (; sumi_job_poll(engine, job).state < SUMI_JOB_DONE && frames < 100000; frames++) {
        const uint64_t begin = fake_clock_now_ns();
        sumi_engine_update(engine, budget_us);
        const double ms = 1e-6 * (double)(fake_clock_now_ns() - begin);
        most = ms > most ? ms : most;
        const float now = sumi_job_poll(engine, job).progress;
        CHECK(now >= progress);
        progress = now;
    }
    *out_frames = frames;
    return most;
}

static void check_asked(const slow_archive* a)
{
    uint64_t bytes = 0;
    for (int i = 0; i < a->path_count; i++) {
        const asked* of = &a->paths[i];
        if (of->opens != 1) printf("  %s was opened %d times\n", of->path, of->opens);
        CHECK_NUMBER(of->opens, 1);
        CHECK(of->read_bytes == 0 || of->read_bytes == of->bytes);
        bytes += of->read_bytes;
    }
    CHECK(bytes == a->bytes && a->out_of_order == 0);
}

TEST(a_file_is_read_in_pieces_that_fit_into_a_frame)
{
    fake_clock_begin(TICK_NS);
    static const struct {
        double bytes_per_us; // 100: 100 MB/s
        uint32_t budget_us;
    } s_cases[] = {{100.0, 4000}, {100.0, 1000}, {1000.0, 4000}, {20.0, 8000}};
    static slow_archive s_a;
    for (size_t c = 0; c < sizeof s_cases / sizeof *s_cases; c++) {
        sumi_engine* engine = slow_engine(&s_a, s_cases[c].bytes_per_us, false);
        if (engine == NULL) return;
        int frames = 0;
        const sumi_job job = submit_model(engine);
        const double most = run_to_the_end(engine, job, s_cases[c].budget_us, &frames);
        const double budget = 1e-3 * s_cases[c].budget_us, least = 1e-3 * 65536.0 / s_cases[c].bytes_per_us;
        printf("  %.0f MB/s, %.0f ms: %d frames, %d reads, %.1f MB; the longest took %.2f ms\n",
               s_cases[c].bytes_per_us, budget, frames, s_a.reads, 1e-6 * (double)s_a.bytes, most);
        CHECK(most <= budget + least + 0.3); // a piece is 64 KB at least
        sumi_model* model = NULL;
        CHECK_NUMBER(sumi_fetch_model(engine, job, &model), SUMI_OK);
        check_asked(&s_a);
        sumi_lora_desc ld = sumi_lora_defaults(model); // an adapter too
        ld.path = LORA_FILE;
        sumi_job lora_job;
        sumi_lora* lora = NULL;
        CHECK_NUMBER(sumi_submit_lora(engine, &ld, &lora_job), SUMI_OK);
        CHECK(run_to_the_end(engine, lora_job, s_cases[c].budget_us, &frames) <= budget + least + 0.3);
        CHECK_NUMBER(sumi_fetch_lora(engine, lora_job, &lora), SUMI_OK);
        check_asked(&s_a);
        sumi_control_desc cd = sumi_control_defaults(model); // and a control net
        cd.path = NET_FILE;
        sumi_job net_job;
        sumi_control* net = NULL;
        CHECK_NUMBER(sumi_submit_control(engine, &cd, &net_job), SUMI_OK);
        CHECK(run_to_the_end(engine, net_job, s_cases[c].budget_us, &frames) <= budget + least + 0.3);
        CHECK(frames > 1 || s_cases[c].bytes_per_us > 100.0);
        CHECK_NUMBER(sumi_fetch_control(engine, net_job, &net), SUMI_OK);
        check_asked(&s_a);
        close_engine(engine);
        CHECK_NUMBER(s_a.inner.open_count, 0);
    }
    fake_clock_end();
}

// The engine's pictures do not depend on how the files came.
TEST(what_is_read_in_pieces_is_what_is_mapped)
{
    fake_clock_begin(TICK_NS);
    static slow_archive s_a;
    OPEN(mapped, mapped_model);
    sumi_image_desc desc = small_image(mapped_model, &s_item);
    const uint64_t hash = draw_hash(mapped, &desc);
    close_engine(mapped);
    sumi_engine* engine = slow_engine(&s_a, 100.0, false);
    sumi_model* model = NULL;
    int frames = 0;
    const sumi_job job = submit_model(engine);
    run_to_the_end(engine, job, 500, &frames);
    CHECK_NUMBER(sumi_fetch_model(engine, job, &model), SUMI_OK);
    desc = small_image(model, &s_item);
    CHECK(hash != 0 && draw_hash(engine, &desc) == hash);
    // What is not used any more was closed when the model was there; the rest is when it goes.
    const int opened = s_a.inner.open_count;
    int indexes = 0;
    for (int i = 0; i < s_a.path_count; i++)
        indexes += strstr(s_a.paths[i].path, "model_index.json") != NULL && s_a.paths[i].closes == 1;
    CHECK(opened > 0 && indexes == 1);
    sumi_model_close(model);
    CHECK_NUMBER(s_a.inner.open_count, 0);
    close_engine(engine);
    fake_clock_end();
}

TEST(a_load_is_cancelled_between_two_pieces)
{
    fake_clock_begin(TICK_NS);
    static slow_archive s_a;
    bool is_done = false;
    for (int frames = 0; !is_done && frames < 2000; frames += frames < 40 ? 1 : 37) {
        sumi_engine* engine = slow_engine(&s_a, 20.0, false);
        const sumi_job job = submit_model(engine);
        for (int i = 0; i < frames; i++) sumi_engine_update(engine, 500);
        is_done = sumi_job_poll(engine, job).state == SUMI_JOB_DONE;
        const int reads = s_a.reads;
        sumi_job_cancel(engine, job);
        sumi_engine_update(engine, 500);
        CHECK_NUMBER(sumi_job_poll(engine, job).state, is_done ? SUMI_JOB_DONE : SUMI_JOB_CANCELLED);
        CHECK_NUMBER(s_a.reads, reads);
        if (!is_done) CHECK_NUMBER(s_a.inner.open_count, 0);
        sumi_job_discard(engine, job);
        close_engine(engine);
        CHECK_NUMBER(s_a.inner.open_count, 0);
    }
    CHECK(is_done);
    fake_clock_end();
}

TEST(a_read_that_fails_says_where)
{
    fake_clock_begin(TICK_NS);
    static slow_archive s_a;
    sumi_engine* engine = slow_engine(&s_a, 100.0, false);
    for (uint64_t bytes = 1; bytes < 400000; bytes = bytes * 3 + 1000) {
        s_a.bytes = 0;
        for (int i = 0; i < s_a.path_count; i++) s_a.paths[i].read_bytes = 0;
        s_a.fails_at = bytes;
        const sumi_job job = submit_model(engine);
        sumi_job_wait(engine, job, SUMI_FOREVER);
        const sumi_job_status status = sumi_job_poll(engine, job);
        CHECK_NUMBER(status.result, SUMI_FILE_READ_FAILED);
        CHECK(strstr(status.message, "files.read failed") != NULL && strstr(status.message, "from byte") != NULL);
        CHECK_NUMBER(s_a.inner.open_count, 0);
        sumi_job_discard(engine, job);
    }
    close_engine(engine);
    fake_clock_end();
}

// Those that are there. What is not is asked for once, too.
TEST(paths_are_asked_for_in_the_order_that_the_header_says)
{
    static const char* const s_order[] = {
        "/transformer/diffusion_pytorch_model.safetensors.index.json",
        "/text_encoder/model.safetensors.index.json",
        "/vae/diffusion_pytorch_model.safetensors",
        "/transformer/diffusion_pytorch_model-00001-of-00003.safetensors",
        "/transformer/diffusion_pytorch_model-00002-of-00003.safetensors",
        "/transformer/diffusion_pytorch_model-00003-of-00003.safetensors",
        "/text_encoder/model-00001-of-00003.safetensors",
        "/text_encoder/model-00002-of-00003.safetensors",
        "/text_encoder/model-00003-of-00003.safetensors",
        "/model_index.json",
        "/transformer/config.json",
        "/text_encoder/config.json",
        "/vae/config.json",
        "/tokenizer/tokenizer.json",
        "/scheduler/scheduler_config.json",
    };
    fake_clock_begin(TICK_NS);
    static slow_archive s_a;
    for (int mapped = 0; mapped < 2; mapped++) {
        sumi_engine* engine = slow_engine(&s_a, 100.0, mapped == 1);
        const sumi_job job = submit_model(engine);
        CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
        CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_DONE);
        size_t next = 0;
        CHECK(strcmp(s_a.paths[0].path, MODEL_PATH) == 0);
        for (int i = 0; i < s_a.path_count; i++) {
            const asked* of = &s_a.paths[i];
            if (!of->is_there) continue;
            CHECK(next < sizeof s_order / sizeof *s_order && strcmp(of->path + strlen(MODEL_PATH), s_order[next]) == 0);
            CHECK_NUMBER(of->maps, mapped);
            CHECK((of->read_bytes > 0) == (mapped == 0));
            next++;
        }
        CHECK_NUMBER(next, sizeof s_order / sizeof *s_order);
        check_asked(&s_a);
        close_engine(engine);
        CHECK_NUMBER(s_a.inner.open_count, 0);
    }
    fake_clock_end();
}

// ---- Configs that contradict the tensors ----------------------------------------------------------------------------

// Serves one file with another value behind a key, wherever that stands in it.
typedef struct editor {
    const char *file, *key, *value;
    int edits;
} editor;
typedef struct edited_file {
    char* text;
    size_t bytes;
} edited_file;

static void* edited_open(const char* path, uint64_t* out_bytes, void* user_data)
{
    editor* e = user_data;
    archive plain = {0};
    archive_file* from = archive_open(path, out_bytes, &plain);
    const char* layer = strstr(path, "/model-edit-2511/"); // what it lacks is the model's that it was made from
    if (from == NULL && layer != NULL) {
        char below[256];
        snprintf(below, sizeof below, "%.*s/model/%s", (int)(layer - path), path, layer + 17);
        from = archive_open(below, out_bytes, &plain);
    }
    if (from == NULL) return NULL;
    edited_file* f = malloc(sizeof *f);
    f->bytes = (size_t)*out_bytes;
    f->text = calloc(f->bytes + 4096, 1);
    CHECK(archive_read(from, 0, f->text, f->bytes, &plain));
    archive_close(from, &plain);
    const size_t end = strlen(path) - strlen(e->file);
    if (strlen(path) < strlen(e->file) || strcmp(path + end, e->file) != 0) return f;
    char key[64];
    snprintf(key, sizeof key, "\"%s\":", e->key);
    for (char* at = strstr(f->text, key); at != NULL; at = strstr(at, key)) {
        at += strlen(key);
        const size_t old = at[strspn(at, " \n")] == '[' ? strcspn(at, "]") + 1 : strcspn(at, ",\n}");
        memmove(at + strlen(e->value), at + old, strlen(at + old) + 1);
        memcpy(at, e->value, strlen(e->value));
        e->edits++;
    }
    *out_bytes = f->bytes = strlen(f->text);
    return f;
}
static bool edited_read(void* file, uint64_t offset, void* into, size_t bytes, void* user_data)
{
    (void)user_data;
    memcpy(into, ((edited_file*)file)->text + offset, bytes);
    return true;
}
static void edited_close(void* file, void* user_data)
{
    (void)user_data;
    free(((edited_file*)file)->text);
    free(file);
}

TEST(a_config_that_contradicts_the_tensors_is_refused)
{
    static const char s_z[] = MODEL_PATH, s_q[] = "tests/golden/qwen-image/model",
                      s_edit[] = "tests/golden/qwen-image/model-edit-2511", s_n[] = "tests/golden/newbie/model";
    static const char s_text[] = "text_encoder/config.json", s_vae[] = "vae/config.json",
                      s_clip[] = "clip_model/config.json";
    static const struct {
        const char *model, *file, *key, *value;
        bool adds; // the file has no such key: it stands before another one
    } s_cases[] = {
        {s_z, "transformer/config.json", "dim", "32", false},
        {s_z, "transformer/config.json", "n_layers", "1", false},
        {s_n, "transformer/config.json", "clip_text_dim", "64", false},
        {s_z, s_text, "hidden_size", "128", false},
        {s_z, s_text, "intermediate_size", "129", false},
        {s_z, s_text, "head_dim", "16", false},
        {s_z, s_text, "num_hidden_layers", "2", false},
        {s_z, s_text, "num_attention_heads", "8", false},
        {s_z, s_vae, "latent_channels", "4", false},
        {s_z, s_vae, "in_channels", "4", false},
        {s_z, s_vae, "out_channels", "4", false},
        {s_z, s_vae, "layers_per_block", "2", false},
        {s_z, s_vae, "block_out_channels", "[16, 16, 32, 32]", false},
        {s_z, s_vae, "block_out_channels", "[16, 16, 32]", false},
        {s_q, "transformer/config.json", "num_layers", "1", false},
        {s_q, s_text, "hidden_size", "64", false},
        {s_q, s_text, "num_hidden_layers", "1", false},
        {s_q, s_vae, "z_dim", "8", false},
        {s_q, s_vae, "base_dim", "16", false},
        {s_q, s_vae, "num_res_blocks", "1", false},
        {s_q, s_vae, "dim_mult", "[1, 2, 2]", false},
        {s_q, s_vae, "dim_mult", "[1, 2, 2, 4]", false},
        {s_edit, "text_encoder/config.json", "depth", "1", false},
        {s_edit, "text_encoder/config.json", "out_hidden_size", "7", false},
        {s_edit, "text_encoder/config.json", "in_chans", "4", false},
        {s_n, s_text, "num_hidden_layers", "6", false},
        {s_n, s_clip, "embed_dim", "64", false},
        {s_n, s_clip, "projection_dim", "128, \"num_hidden_layers\": 99", true},
        {s_n, s_clip, "projection_dim", "128, \"hidden_size\": 99", true},
        {s_n, s_clip, "projection_dim", "128, \"intermediate_size\": 99", true},
        {s_n, s_clip, "projection_dim", "128, \"num_attention_heads\": 99", true},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        editor e = {s_cases[i].file, s_cases[i].key, s_cases[i].value, 0};
        memset(&s_host, 0, sizeof s_host);
        sumi_engine_desc ed = host_desc(&s_host);
        ed.files = &(sumi_files){edited_open, edited_read, NULL, edited_close, &e};
        sumi_engine* engine = NULL;
        CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
        if (engine == NULL) return;
        sumi_model* model = NULL;
        const sumi_result result = sumi_open_model(engine, s_cases[i].model, &model);
        if (result != SUMI_TENSOR_MISMATCH || e.edits == 0)
            printf("  %s %s: %s, %d edits: %s %s\n", s_cases[i].file, s_cases[i].key, s_cases[i].value, e.edits,
                   sumi_result_text(result), s_host.log);
        CHECK(e.edits > 0);
        CHECK_NUMBER(result, SUMI_TENSOR_MISMATCH);
        CHECK(strstr(s_host.log, s_cases[i].file) != NULL || strstr(s_host.log, "config.json") != NULL);
        close_engine(engine);
    }
}

// ---- Numbers of the checkpoint's author -----------------------------------------------------------------------------

static char s_warning[512];
static int s_warnings;
static void keep_warning(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result, (void)user_data;
    if (level != SUMI_LOG_WARNING) return;
    s_warnings++;
    snprintf(s_warning, sizeof s_warning, "%s", text);
}

// model_index.json with "sumi" as given; steps and guidance 0: the family's own. word: of the warning; NULL: none.
static void check_author(const char* model, const char* class_name, const char* sumi, int steps, float guidance,
                         const char* word)
{
    char value[256];
    snprintf(value, sizeof value, "\"%s\"%s%s", class_name, sumi[0] != 0 ? ", \"sumi\": " : "", sumi);
    editor e = {"model_index.json", "_class_name", value, 0};
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc ed = host_desc(&s_host);
    ed.files = &(sumi_files){edited_open, edited_read, NULL, edited_close, &e};
    ed.log = (sumi_log){keep_warning, NULL};
    s_warnings = 0;
    sumi_engine* engine = NULL;
    CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
    sumi_model* opened = NULL;
    CHECK_NUMBER(sumi_open_model(engine, model, &opened), SUMI_OK);
    if (opened == NULL) return;
    const bool is_edit = strcmp(class_name, "ZImagePipeline") != 0;
    const int usual_steps = is_edit ? 40 : 8;
    const sumi_model_info info = sumi_model_get_info(opened);
    const float usual = is_edit ? 4.0f : info.guidance_off, want = guidance != 0.0f ? guidance : usual;
    for (int preset = 0; preset <= SUMI_PRESET_LEAN; preset++) {
        const sumi_image_desc desc = sumi_image_defaults(opened, (sumi_preset)preset);
        CHECK(desc.guidance.end == (preset == SUMI_PRESET_LEAN ? 0.5f : 1.0f));
        if (preset == SUMI_PRESET_LEAN) CHECK_NUMBER(desc.step_count, steps != 0 ? steps : usual_steps);
        if (preset == SUMI_PRESET_MODEL) CHECK_NUMBER(desc.step_count, steps != 0 ? steps : usual_steps);
        if (preset == SUMI_PRESET_FAST) CHECK(desc.guidance.scale == info.guidance_off && desc.step_count < 20);
        else CHECK(desc.guidance.scale == want);
    }
    CHECK(info.guidance == want && info.uses_guidance == (want != info.guidance_off));
    CHECK_NUMBER(s_warnings, word != NULL);
    if (word != NULL) CHECK(strstr(s_warning, "model_index.json") != NULL && strstr(s_warning, word) != NULL);
    close_engine(engine);
}

TEST(the_author_of_a_checkpoint_chooses_steps_and_guidance)
{
    static const char s_z[] = MODEL_PATH, s_class_name[] = "ZImagePipeline";
    static const char s_q[] = "tests/golden/qwen-image/model", s_edit[] = "QwenImageEditPlusPipeline";
    check_author(s_z, s_class_name, "", 0, 0.0f, NULL);
    check_author(s_z, s_class_name, "{}", 0, 0.0f, NULL);
    check_author(s_z, s_class_name, "{\"steps\": 20, \"guidance\": 2}", 20, 2.0f, NULL);
    check_author(s_z, s_class_name, "{\"note\": [1, {}], \"steps\": 1, \"later\": null}", 1, 0.0f, NULL);
    check_author(s_z, s_class_name, "{\"guidance\": 1.5, \"steps\": 1000}", 1000, 1.5f, NULL);
    check_author(s_q, s_edit, "{\"steps\": 20, \"guidance\": 2}", 20, 2.0f, NULL);
    check_author(s_q, s_edit, "{\"guidance\": 1}", 0, 1.0f, NULL); // 1 is off there
    check_author(s_q, s_edit, "{\"guidance\": 0.5}", 0, 0.0f, "guidance");
    check_author(s_z, s_class_name, "3", 0, 0.0f, "is not an object");
    check_author(s_z, s_class_name, "{\"steps\": 0, \"guidance\": 3}", 0, 3.0f, "steps");
    check_author(s_z, s_class_name, "{\"steps\": 1001}", 0, 0.0f, "steps");
    check_author(s_z, s_class_name, "{\"steps\": 2.5}", 0, 0.0f, "steps");
    check_author(s_z, s_class_name, "{\"steps\": 1e300}", 0, 0.0f, "steps");
    check_author(s_z, s_class_name, "{\"steps\": \"20\"}", 0, 0.0f, "steps");
    check_author(s_z, s_class_name, "{\"steps\": null, \"guidance\": 3}", 0, 3.0f, "steps");
    check_author(s_z, s_class_name, "{\"guidance\": -1, \"steps\": 7}", 7, 0.0f, "guidance");
    check_author(s_z, s_class_name, "{\"guidance\": 1e30}", 0, 0.0f, "guidance");
    check_author(s_z, s_class_name, "{\"guidance\": {}}", 0, 0.0f, "guidance");
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(a_file_is_read_in_pieces_that_fit_into_a_frame);
    RUN(what_is_read_in_pieces_is_what_is_mapped);
    RUN(a_load_is_cancelled_between_two_pieces);
    RUN(a_read_that_fails_says_where);
    RUN(paths_are_asked_for_in_the_order_that_the_header_says);
    RUN(a_config_that_contradicts_the_tensors_is_refused);
    RUN(the_author_of_a_checkpoint_chooses_steps_and_guidance);
    TEST_END();
}
