// The cases of the two-stream transformer (models/two_stream.h): one evaluation with everything inside it, the same
// evaluation inside a batch and behind others, and the tables of positions and times at the released sizes.
#include "golden_denoiser.h"
#include "golden_qwen_image.h"
#include "models/two_stream.h"
#include "plan_runner.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- One case's inputs ----------------------------------------------------------------------------------------------

typedef struct grid {
    int32_t height, width; // in tokens
} grid;

// A forward pass as the reference takes it: packed rows of all pictures, target first.
typedef struct dit_inputs {
    array x, text;
    float time;
    int32_t text_rows; // that are not masked
    grid grids[1 + SUMI_MAX_REFERENCES];
    int32_t picture_count;
    int32_t target_rows, image_rows;
    float* latents[1 + SUMI_MAX_REFERENCES]; // [channels, 2 height * 2 width]
    int32_t channels;
} dit_inputs;

static void free_inputs(dit_inputs* in)
{
    for (int32_t i = 0; i < in->picture_count; i++) free(in->latents[i]);
    array_free(&in->x);
    array_free(&in->text);
}

static int32_t latent_size(grid g) { return 4 * g.height * g.width; }

// Element `feature` of token (y, x): channel slowest, then row and column of the patch.
static size_t latent_index(grid g, int32_t token, int32_t feature)
{
    int32_t y = token / g.width * 2 + feature / 2 % 2, x = token % g.width * 2 + feature % 2;
    return (size_t)(feature / 4) * (size_t)latent_size(g) + (size_t)(y * 2 * g.width + x);
}

static bool take_inputs(golden_case* c, int32_t channels, dit_inputs* in)
{
    *in = (dit_inputs){.x = input(c, "x"), .text = input(c, "txt"), .channels = channels};
    array t = input(c, "t"), shapes = input(c, "img_shapes"), mask = input(c, "mask");
    bool good = in->x.rank == 2 && in->x.shape[1] == 4 * channels && in->text.rank == 2 && t.count == 1
             && shapes.rank == 2 && shapes.shape[1] == 3 && shapes.shape[0] >= 1
             && shapes.shape[0] <= 1 + SUMI_MAX_REFERENCES;
    in->time = good ? t.values[0] : 0;
    in->text_rows = good ? (int32_t)in->text.shape[0] : 0;
    for (int64_t i = 0; good && i < mask.count; i++) in->text_rows -= mask.values[i] == 0;
    for (int64_t i = 0; good && i < shapes.shape[0]; i++) {
        grid g = {(int32_t)shapes.values[3 * i + 1], (int32_t)shapes.values[3 * i + 2]};
        int32_t rows = g.height * g.width;
        good = rows > 0 && in->image_rows + rows <= in->x.shape[0];
        if (!good) break;
        in->grids[i] = g;
        in->latents[i] = calloc((size_t)(channels * latent_size(g)), sizeof(float));
        in->picture_count++;
        for (int32_t r = 0; r < rows; r++)
            for (int32_t k = 0; k < 4 * channels; k++)
                in->latents[i][latent_index(g, r, k)] = in->x.values[(in->image_rows + r) * 4 * channels + k];
        in->image_rows += rows;
        if (i == 0) in->target_rows = rows;
    }
    good = good && in->image_rows == in->x.shape[0];
    if (!good) case_fails(c, "the case lacks x, txt, t or img_shapes, or they do not fit the model");
    array_free(&t);
    array_free(&shapes);
    array_free(&mask);
    return good;
}

// ---- Running the part -----------------------------------------------------------------------------------------------

static void write_values(plan_run* run)
{
    denoiser_run* r = run->context;
    const dit_inputs* in = r->in;
    write_items(run, r, in->latents[0], in->channels, latent_size(in->grids[0]));
    write_floats(run, r->text, 0, in->text.values, (int64_t)in->text_rows * in->text.shape[1]);
    write_floats(run, r->times_value, 0, r->times, r->time_count);
    for (int32_t i = 1; i < in->picture_count; i++)
        write_floats(run, r->references[i - 1], 0, in->latents[i], (int64_t)in->channels * latent_size(in->grids[i]));
}

static bool run_dit(golden_case* c, denoiser_run* r)
{
    const dit_inputs* in = r->in;
    sumi_plan plan;
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    int32_t size = latent_size(in->grids[0]);
    r->x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, r->item_count * in->channels, size);
    r->text = sumi_plan_bound(&plan, "features", SUMI_ELEMENT_ACTIVATION, in->text_rows, (int32_t)in->text.shape[1]);
    r->times_value = sumi_plan_bound(&plan, "times", SUMI_ELEMENT_FLOAT, r->time_count, 1);
    sumi_prompt_features prompts[8];
    sumi_reference_latents references[SUMI_MAX_REFERENCES];
    for (int32_t p = 0; p < r->prompt_count; p++)
        prompts[p] = (sumi_prompt_features){.value = {r->text}, .count = {r->prompt_rows[p]}};
    for (int32_t i = 1; i < in->picture_count; i++) {
        r->references[i - 1] =
            sumi_plan_bound(&plan, "reference", SUMI_ELEMENT_FLOAT, in->channels, latent_size(in->grids[i]));
        references[i - 1] =
            (sumi_reference_latents){r->references[i - 1], 2 * in->grids[i].height, 2 * in->grids[i].width};
    }
    sumi_denoising job = {.height = 2 * in->grids[0].height,
                          .width = 2 * in->grids[0].width,
                          .prompts = prompts,
                          .prompt_count = r->prompt_count,
                          .references = references,
                          .reference_count = in->picture_count - 1,
                          .evaluation_count = r->time_count,
                          .times = r->times_value,
                          .computes_unused_rows = r->whole};
    plan_run run = {.c = c, .write = write_values, .probe = probe_denoiser, .context = r};
    const sumi_evaluation_list list = {r->list, r->list_count, 1};
    return run_denoiser(&run, &sumi_two_stream_module, r->model, &plan, &job, &list, r->x, &r->velocities);
}

// Evaluation `index` of the list as packed rows, against the target's rows of expect.out.
static void compare_velocity(golden_case* c, const denoiser_run* r, int32_t index)
{
    const dit_inputs* in = r->in;
    int64_t size = (int64_t)in->channels * latent_size(in->grids[0]);
    array rows = array_make(NULL, 2, (const int64_t[]){in->image_rows, 4 * in->channels});
    for (int32_t t = 0; t < in->target_rows; t++)
        for (int32_t k = 0; k < 4 * in->channels; k++)
            rows.values[t * 4 * in->channels + k] =
                r->velocities.values[index * size + (int64_t)latent_index(in->grids[0], t, k)];
    compare_partly(c, "out", &rows, in->target_rows);
    array_free(&rows);
}

// ---- What is inside -------------------------------------------------------------------------------------------------

// An expected tensor and the op that makes it. The references of a model that modulates them by time 0 are a stream of
// their own, whose rows come from another op and lie behind the target's.
typedef struct inside {
    const char *name, *label, *references;
    watch_kind kind;
    char rows; // which of the op's: 'i' the images', 't' the text's, 'j' the text's in the joint matrix, 'a' all
} inside;

static const inside s_inside[] = {
    {"time_proj", "time_text_embed.time_embed", NULL, WATCH_ROWS, 'a'},
    {"temb", "time_text_embed.timestep_embedder.linear_2", NULL, WATCH_ROWS, 'a'},
    {"img_in", "img_in", "ref_in", WATCH_ROWS, 'i'},
    {"txt_in", "txt_in", NULL, WATCH_ROWS, 't'},
    {"img_mod0", "transformer_blocks.0.img_mod.1", NULL, WATCH_ROWS, 'a'},
    {"txt_mod0", "transformer_blocks.0.txt_mod.1", NULL, WATCH_ROWS, 'a'},
    {"q0", "transformer_blocks.0.attn.qk_norm_rope", NULL, WATCH_Q, 'i'},
    {"k0", "transformer_blocks.0.attn.qk_norm_rope", NULL, WATCH_K, 'i'},
    {"qt0", "transformer_blocks.0.attn.added_qk_norm_rope", NULL, WATCH_Q, 'j'},
    {"kt0", "transformer_blocks.0.attn.added_qk_norm_rope", NULL, WATCH_K, 'j'},
    {"attn0.img", "transformer_blocks.0.attn.to_out.0", "transformer_blocks.0.attn.ref_to_out.0", WATCH_PRODUCT, 'i'},
    {"attn0.txt", "transformer_blocks.0.attn.to_add_out", NULL, WATCH_PRODUCT, 't'},
    {"mlp0", "transformer_blocks.0.img_mlp.net.2", "transformer_blocks.0.ref_mlp.net.2", WATCH_PRODUCT, 'i'},
    {"block0.img", "transformer_blocks.0.img_mlp.net.2", "transformer_blocks.0.ref_mlp.net.2", WATCH_ROWS, 'i'},
    {"block0.txt", "transformer_blocks.0.txt_mlp.net.2", NULL, WATCH_ROWS, 't'},
    {"last.img", "transformer_blocks.%d.img_mlp.net.2", "transformer_blocks.%d.ref_mlp.net.2", WATCH_ROWS, 'i'},
    {"norm_out", "norm_out", "ref_norm_out", WATCH_ROWS, 'i'},
    {"out", "proj_out", "ref_proj_out", WATCH_ROWS, 'i'},
    {"rope_img_cos", "rope", NULL, WATCH_COS, 'i'},
    {"rope_img_sin", "rope", NULL, WATCH_SIN, 'i'},
    {"rope_txt_cos", "rope", NULL, WATCH_COS, 'j'},
    {"rope_txt_sin", "rope", NULL, WATCH_SIN, 'j'}};
#define INSIDE_COUNT (sizeof s_inside / sizeof *s_inside)

static watch* add_inside(watcher* w, const inside* one, const char* label, int32_t last_block)
{
    char text[96];
    const char* number = strstr(label, "%d");
    if (number == NULL) return add_watch(w, one->name, one->kind, "%s", label);
    snprintf(text, sizeof text, "%.*s%d%s", (int)(number - label), label, (int)last_block, number + 2);
    return add_watch(w, one->name, one->kind, "%s", text);
}

// What the watches took, put together as the reference has it.
static void compare_inside(golden_case* c, const dit_inputs* in, const inside* one, const watch* main,
                           const watch* references)
{
    const array* got = &main->got;
    int64_t rows = got->shape[0], width = rows > 0 ? got->count / rows : 0, first = 0, known = rows, wanted = rows;
    if (one->rows == 'i') known = wanted = in->image_rows;
    if (one->rows == 'j') first = in->image_rows;
    if (one->rows == 'j' || one->rows == 't') known = in->text_rows, wanted = in->text.shape[0];
    int64_t own = known, more = references != NULL && references->got.values != NULL ? known - in->target_rows : 0;
    own -= more;
    if (got->values == NULL || first + own > rows || (more > 0 && references->got.shape[0] != more)) {
        case_fails(c, "%s: its ops made %lld rows", one->name, (long long)rows);
        return;
    }
    array all = array_make(NULL, 2, (const int64_t[]){wanted, width});
    memcpy(all.values, got->values + first * width, (size_t)(own * width) * sizeof(float));
    if (more > 0) memcpy(all.values + own * width, references->got.values, (size_t)(more * width) * sizeof(float));
    compare_partly(c, one->name, &all, known < wanted ? known : -1);
    array_free(&all);
}

// The whole evaluation with the rows that nothing reads, for its intermediates.
static void run_inside(golden_case* c, const sumi_two_stream* model, denoiser_run* r)
{
    const dit_inputs* in = r->in;
    watcher* w = calloc(1, sizeof *w);
    watch *main[INSIDE_COUNT] = {NULL}, *references[INSIDE_COUNT] = {NULL};
    bool is_split = model->zero_cond && in->picture_count > 1;
    w->q_heads = w->kv_heads = model->heads;
    w->head_dim = model->head_dim;
    for (size_t i = 0; i < INSIDE_COUNT; i++) {
        const inside* one = &s_inside[i];
        if (!has_expected(c, one->name)) continue;
        const char* label = one->label;
        // with a row of time 0 behind
        if (strcmp(one->name, "time_proj") == 0 && model->zero_cond) label = "time_text_embed.copy";
        main[i] = add_inside(w, one, label, model->block_count - 1);
        if (one->references != NULL && is_split)
            references[i] = add_inside(w, one, one->references, model->block_count - 1);
    }
    r->w = w;
    r->whole = true;
    if (run_dit(c, r)) compare_velocity(c, r, 0);
    for (size_t i = 0; i < INSIDE_COUNT && c->by_op; i++)
        if (main[i] != NULL) compare_inside(c, in, &s_inside[i], main[i], references[i]);
    for (int i = 0; i < w->count; i++) {
        array_free(&w->list[i].got);
        free(w->list[i].before);
    }
    r->w = NULL;
    r->whole = false;
    free(w);
}

// ---- Kinds ----------------------------------------------------------------------------------------------------------

// The case's evaluation as the last of three, with modulation from tables and made by each evaluation.
static void run_steps(golden_case* c, const sumi_two_stream* model, denoiser_run* r)
{
    const float times[] = {0.9f, 0.25f, ((const dit_inputs*)r->in)->time};
    sumi_two_stream without_tables = *model;
    without_tables.table_bytes = 0;
    r->times = times;
    r->time_count = 3;
    if (run_dit(c, r)) compare_velocity(c, r, 0);
    r->model = &without_tables;
    if (run_dit(c, r)) compare_velocity(c, r, 0);
    r->model = model;
}

static void run_dit_case(golden_case* c)
{
    case_component component = {0};
    sumi_two_stream model = {0};
    dit_inputs in = {.picture_count = 0};
    sumi_error error = {0};
    bool good = open_component(c, SUMI_COMPONENT_TRANSFORMER, "the transformer", &component);
    component.binder.error = &error;
    if (good && sumi_two_stream_module.bind(&model, NULL, &component.binder, &component.config) != SUMI_OK) {
        case_fails(c, "%s", error.text);
        good = false;
    }
    if (good && model.zero_cond != (json_number(c->json, "zero_cond_t", 0) != 0)) {
        case_fails(c, "zero_cond_t is not what the model's files say");
        good = false;
    }
    if (good && take_inputs(c, model.channels, &in)) {
        const sumi_evaluation list = {0, 0};
        denoiser_run r = {.model = &model,
                          .in = &in,
                          .run = run_dit,
                          .compare = compare_velocity,
                          .list = &list,
                          .list_count = 1,
                          .item_count = 1,
                          .prompt_rows = &in.text_rows,
                          .prompt_count = 1,
                          .times = &in.time,
                          .time_count = 1};
        run_inside(c, &model, &r);
        if (run_dit(c, &r)) compare_velocity(c, &r, 0);
        run_in_batch(c, &r, in.text_rows);
        run_steps(c, &model, &r);
        array_free(&r.velocities);
    }
    free_inputs(&in);
    close_component(c, &component);
}

// ---- Tables at the released sizes -----------------------------------------------------------------------------------

typedef struct table_run {
    const array* times;
    sumi_value value;
    array out;
} table_run;

static void write_times(plan_run* run)
{
    table_run* t = run->context;
    if (t->times != NULL) write_floats(run, t->value, 0, t->times->values, t->times->count);
}

static void run_table(golden_case* c, sumi_plan* plan, sumi_value made, table_run* t)
{
    sumi_error error = {0};
    plan_run run = {.c = c, .write = write_times, .context = t};
    if (made.id != 0) plan->values[made.id - 1].bound = true;
    if (sumi_plan_finish(plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, plan)) t->out = read_array(&run, made);
}

// Rows of a rotary table, its cosines or its sines, against expect.NAME.
static void compare_angles(golden_case* c, const char* name, const array* table, const array* rows, int64_t first,
                           int64_t column)
{
    const int64_t pairs = table->shape[1] / 2;
    array got = array_make(NULL, 2, (const int64_t[]){rows->count, pairs});
    for (int64_t r = 0; r < rows->count; r++) {
        const int64_t row = first + (int64_t)rows->values[r];
        for (int64_t k = 0; k < pairs && row < table->shape[0]; k++)
            got.values[r * pairs + k] = table->values[row * 2 * pairs + 2 * k + column];
    }
    compare(c, name, &got);
    array_free(&got);
}

// rope_WHAT: positions as the part lays them out, for pictures of img_shapes and as much text as is asked for.
static void run_positions(golden_case* c, const char* what)
{
    char name[64];
    snprintf(name, sizeof name, "%.32s.img_shapes", what);
    array shapes = input(c, name);
    snprintf(name, sizeof name, "%.32s.img_rows", what);
    array image_rows = input(c, name);
    snprintf(name, sizeof name, "%.32s.txt_rows", what);
    array text_rows = input(c, name);
    int32_t text_count = 0, picture_rows = 0;
    for (int64_t i = 0; i < text_rows.count; i++)
        text_count = text_rows.values[i] >= (float)text_count ? (int32_t)text_rows.values[i] + 1 : text_count;
    if (shapes.rank == 2 && shapes.shape[0] >= 1 && shapes.shape[0] <= 1 + SUMI_MAX_REFERENCES) {
        snprintf(name, sizeof name, "expect.%.32s.img_cos", what);
        const int32_t pairs = (int32_t)sumi_tensor_find(&c->set, name)->shape[1]; // of a head, in the released split
        const sumi_two_stream model = {.axis_pairs = {pairs / 8, pairs / 16 * 7, pairs / 16 * 7}};
        const sumi_prompt_features prompt = {.count = {text_count}};
        const sumi_evaluation list = {0, 0};
        sumi_reference_latents references[SUMI_MAX_REFERENCES];
        for (int64_t i = 0; i < shapes.shape[0]; i++) {
            const int32_t height = 2 * (int32_t)shapes.values[3 * i + 1], width = 2 * (int32_t)shapes.values[3 * i + 2];
            if (i > 0) references[i - 1] = (sumi_reference_latents){.height = height, .width = width};
            picture_rows += height * width / 4;
        }
        sumi_denoising job = {.height = 2 * (int32_t)shapes.values[1],
                              .width = 2 * (int32_t)shapes.values[2],
                              .prompts = &prompt,
                              .prompt_count = 1,
                              .references = references,
                              .reference_count = (int32_t)shapes.shape[0] - 1,
                              .state = calloc(1, sumi_two_stream_module.state_bytes)};
        sumi_plan plan;
        table_run t = {.times = NULL};
        begin_plan(c, &plan);
        sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
        sumi_two_stream_module.write_layout(&model, &plan, &job, &(sumi_evaluation_list){&list, 1, 0});
        run_table(c, &plan, plan.op_count > 0 ? plan.ops[plan.op_count - 1].out : SUMI_NO_VALUE, &t);
        end_plan(c, &plan);
        for (int k = 0; k < 4 && t.out.values != NULL; k++) {
            snprintf(name, sizeof name, "%.32s.%s_%s", what, k < 2 ? "img" : "txt", k % 2 == 0 ? "cos" : "sin");
            compare_angles(c, name, &t.out, k < 2 ? &image_rows : &text_rows, k < 2 ? 0 : picture_rows, k % 2);
        }
        array_free(&t.out);
        free(job.state);
    }
    array_free(&shapes);
    array_free(&image_rows);
    array_free(&text_rows);
}

static void run_sinusoids(golden_case* c)
{
    const sumi_tensor* want = sumi_tensor_find(&c->set, "expect.time.sinusoid");
    array times = input(c, "time.t");
    sumi_plan plan;
    table_run t = {.times = &times};
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
    t.value = sumi_plan_bound(&plan, "times", SUMI_ELEMENT_FLOAT, (int32_t)times.count, 1);
    sumi_value made = sumi_plan_time_embed(&plan, &(sumi_plan_time_args){.times = t.value,
                                                                         .width = (int32_t)want->shape[1],
                                                                         .scale = 1000.0f,
                                                                         .max_period = 10000.0f,
                                                                         .cos_first = true});
    run_table(c, &plan, made, &t);
    end_plan(c, &plan);
    compare(c, "time.sinusoid", &t.out);
    array_free(&t.out);
    array_free(&times);
}

bool run_two_stream_case(golden_case* c)
{
    if (strcmp(c->kind, "dit") == 0) {
        run_dit_case(c);
        return true;
    }
    if (strcmp(c->kind, "op") != 0) return false;
    if (has_expected(c, "rope_t2i.img_cos")) run_positions(c, "rope_t2i");
    if (has_expected(c, "rope_edit.img_cos")) run_positions(c, "rope_edit");
    if (has_expected(c, "time.sinusoid")) run_sinusoids(c);
    return true;
}
