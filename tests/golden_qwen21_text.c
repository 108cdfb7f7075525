// Prompts of Qwen-Image-2.1, with its text encoder opened without a recipe: tokens and templates, the vision tower, the
// language model with what lies inside it, and their tables at the released sizes.
#include "at_once.h"
#include "golden_component.h"
#include "golden_pictures.h"
#include "golden_qwen_image.h"
#include "golden_qwen_image_21.h"
#include "models/qwen21_parts.h"
#include "plan_runner.h"
#include <stdlib.h>
#include <string.h>

// What the prompt reader and the pipeline read of a recipe.
static const sumi_recipe s_recipe = {.family = "qwen-image-21",
                                     .encoders = {SUMI_QWEN21_ENCODER},
                                     .encoder_count = 1,
                                     .vision = &sumi_qwen3_vision_module,
                                     .vision_settings = &sumi_qwen21_vision,
                                     .vision_network = "qwen3-vl-vision"};

// A case's checkpoint as far as prompts need it.
typedef struct encoder {
    case_component text, vision; // the weights of both are in the list of the text
    sumi_language_model language;
    sumi_qwen3_vision tower;
    sumi_network network; // not opened, but filled in here
} encoder;

static bool bind_tower(golden_case* c, encoder* e)
{
    sumi_file file = {0};
    sumi_error error = {0};
    bool good = open_component(c, SUMI_COMPONENT_VISION, "the vision tower", &e->vision)
             && open_checkpoint_file(c, "processor/preprocessor_config.json", &file);
    if (good) {
        const sumi_module_config processor = {
            .data = file.data, .bytes = (size_t)file.bytes, .path = "preprocessor_config.json"};
        e->vision.binder.error = &error;
        e->vision.binder.list = &e->text.list;
        good = sumi_qwen3_vision_module.bind(&e->tower, &sumi_qwen21_vision, &e->vision.binder, &e->vision.config,
                                             &processor)
            == SUMI_OK;
        if (!good) case_fails(c, "%s", error.text);
    }
    sumi_file_close(&file);
    return good;
}

// Fills in the network: the tokenizer is the one that the checkpoint has found.
static bool open_reader(golden_case* c, encoder* e)
{
    sumi_network* network = &e->network;
    sumi_network_encoder* own = &network->encoders[0];
    const char* dropped = s_recipe.encoders[0].prompt.dropped_text;
    sumi_error error = {0};
    size_t count = 0;
    network->heap = &c->g->heap;
    network->recipe = &s_recipe;
    network->checkpoint.tokenizers[0].path = e->text.checkpoint.tokenizers[0].path;
    network->info = (sumi_network_info){.has_text_encoder = true,
                                        .text_encoder_count = 1,
                                        .max_references = SUMI_MAX_REFERENCES,
                                        .max_prompt_tokens = s_recipe.encoders[0].prompt.max_tokens};
    sumi_result result =
        sumi_tokenizer_open_begin(network->heap, &e->text.checkpoint.tokenizers[0], &error, &own->tokenizer);
    for (bool done = false; result == SUMI_OK && !done;)
        result = sumi_tokenizer_step(own->tokenizer, SIZE_MAX, &done, NULL, &error);
    if (result == SUMI_OK)
        result = sumi_tokenizer_encode(own->tokenizer, dropped, strlen(dropped), false, NULL, 0, &count, &error);
    own->dropped_rows = (int32_t)count;
    if (result != SUMI_OK) case_fails(c, "%s", error.text);
    return result == SUMI_OK;
}

static bool open_encoder(golden_case* c, encoder* e)
{
    sumi_error error = {0};
    if (!open_component(c, SUMI_COMPONENT_TEXT_ENCODER, "the text encoder", &e->text)) return false;
    e->text.binder.error = &error;
    if (sumi_language_model_module.bind(&e->language, &sumi_qwen21_language_model, &e->text.binder, &e->text.config)
        != SUMI_OK) {
        case_fails(c, "%s", error.text);
        return false;
    }
    return bind_tower(c, e) && open_reader(c, e);
}

static void close_encoder(golden_case* c, encoder* e)
{
    sumi_tokenizer_destroy(e->network.encoders[0].tokenizer);
    close_component(c, &e->text);
    close_component(c, &e->vision);
    free(e);
}

// ---- Prompts --------------------------------------------------------------------------------------------------------

typedef struct prompt {
    char name[64];
    const node* about;
    int32_t *ids, count;
    picture_file pictures[SUMI_MAX_REFERENCES]; // RGB
    int32_t picture_count, rows[SUMI_MAX_REFERENCES], tokens[SUMI_MAX_REFERENCES];
} prompt;

// The tower sees white where a picture is transparent. In whole numbers, as the reference's library rounds.
static void put_over_white(picture_file* picture)
{
    const int32_t pixels = picture->width * picture->height;
    for (int32_t i = 0; i < pixels; i++) {
        const uint8_t* from = picture->pixels + 4 * (size_t)i;
        const uint32_t alpha = from[3];
        for (int k = 0; k < 3; k++) {
            const uint32_t t = from[k] * alpha + 255 * (255 - alpha) + 128;
            picture->pixels[3 * (size_t)i + (size_t)k] = (uint8_t)(((t >> 8) + t) >> 8);
        }
    }
}

static bool read_pictures(golden_case* c, const encoder* e, const node* names, prompt* p)
{
    const int32_t cell = sumi_qwen3_vision_module.properties(&e->tower).cell;
    for (const node* n = names != NULL ? names->first : NULL; n != NULL; n = n->next) {
        picture_file* picture = &p->pictures[p->picture_count];
        char path[2400], message[PICTURE_MESSAGE_BYTES];
        join_path(path, sizeof path, c->folder, n->text);
        if (p->picture_count == SUMI_MAX_REFERENCES || !picture_read(path, 4, picture, message)) {
            case_fails(c, "%s", p->picture_count == SUMI_MAX_REFERENCES ? "there are too many pictures" : message);
            return false;
        }
        put_over_white(picture);
        p->tokens[p->picture_count++] = picture->height / cell * (picture->width / cell);
    }
    return true;
}

static bool read_ids(golden_case* c, const encoder* e, const char* text, size_t bytes, prompt* p)
{
    const sumi_prompt_text given = {
        .text = text, .bytes = bytes, .picture_tokens = p->tokens, .picture_count = p->picture_count};
    int32_t capacity = s_recipe.encoders[0].prompt.max_tokens;
    sumi_error error = {0};
    for (int32_t i = 0; i < p->picture_count; i++) capacity += p->tokens[i];
    p->ids = calloc((size_t)capacity, sizeof *p->ids);
    const bool good =
        read_prompt(&e->network, 0, &given, &(sumi_prompt_ids){p->ids, capacity, p->rows}, &p->count, &error)
        == SUMI_OK;
    if (!good) case_fails(c, "%s", error.text);
    return good;
}

// A prompt of a json's list. free_prompt in any case.
static bool make_prompt(golden_case* c, const encoder* e, const node* about, prompt* p)
{
    *p = (prompt){.about = about};
    const node* text = json_get(about, "prompt");
    const char* name = json_text(about, "name");
    if (text == NULL || text->type != NODE_TEXT || name == NULL) {
        case_fails(c, "the json has a prompt without a text or a name");
        return false;
    }
    snprintf(p->name, sizeof p->name, "%.60s", name);
    const size_t repeat = (size_t)json_number(about, "repeat", 1), bytes = repeat * text->text_bytes;
    char* whole = calloc(bytes + 1, 1);
    for (size_t i = 0; i < repeat; i++) memcpy(whole + i * text->text_bytes, text->text, text->text_bytes);
    const bool good = read_pictures(c, e, json_get(about, "images"), p) && read_ids(c, e, whole, bytes, p);
    free(whole);
    return good;
}

static void free_prompt(prompt* p)
{
    for (int32_t i = 0; i < SUMI_MAX_REFERENCES; i++) picture_free(&p->pictures[i]);
    free(p->ids);
}

// ---- Encoding -------------------------------------------------------------------------------------------------------

enum { MOST_PROMPTS = 2 };

typedef struct encoding {
    const prompt* prompts[MOST_PROMPTS]; // with the same pictures, in the same rows
    int32_t prompt_count, shared;
    watcher* w; // may be NULL
    sumi_value ids, pixels[SUMI_MAX_REFERENCES];
    array features[MOST_PROMPTS]; // of all rows
    array positions;              // [tokens, 3], op by op
} encoding;

static void write_encoding(plan_run* run)
{
    const encoding* job = run->context;
    sumi_runner* runner = run->c->g->runner;
    uint64_t row = 0;
    for (int32_t p = 0; p < job->prompt_count; p++) {
        const int32_t skipped = p > 0 ? job->shared : 0, count = job->prompts[p]->count - skipped;
        runner->functions->write(runner, run->plan, job->ids, 4 * row, job->prompts[p]->ids + skipped,
                                 4 * (uint64_t)count);
        row += (uint64_t)count;
    }
    for (int32_t i = 0; i < job->prompts[0]->picture_count; i++) {
        const picture_file* picture = &job->prompts[0]->pictures[i];
        runner->functions->write(runner, run->plan, job->pixels[i], 0, picture->pixels,
                                 3 * (uint64_t)picture->height * (uint64_t)picture->width);
    }
}

static void probe_encoding(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    encoding* job = run->context;
    if (job->w != NULL) watch_op(run, job->w, op, counter, before);
    if (before || !run->c->by_op || op->kind != SUMI_OP_ROPE_TABLE || strcmp(op->label, "text.rope") != 0) return;
    array_free(&job->positions);
    job->positions = read_integers(run, op->in[0]);
}

// Lists the pictures of all prompts that compute them, after the tower's ops.
static int32_t write_towers(const encoder* e, sumi_plan* plan, encoding* job, sumi_text_picture* list)
{
    const sumi_vision_properties properties = sumi_qwen3_vision_module.properties(&e->tower);
    int32_t count = 0;
    for (int32_t i = 0; i < job->prompts[0]->picture_count; i++) {
        const int32_t height = job->prompts[0]->pictures[i].height, width = job->prompts[0]->pictures[i].width;
        job->pixels[i] = sumi_plan_bound(plan, "pixels", SUMI_ELEMENT_BYTE, height * width, 3);
        const sumi_vision_rows rows = sumi_qwen3_vision_module.write(&e->tower, plan, job->pixels[i], height, width);
        list[count] = (sumi_text_picture){.row = job->prompts[0]->rows[i],
                                          .grid_height = height / properties.cell,
                                          .grid_width = width / properties.cell,
                                          .value = rows.value,
                                          .deep_count = properties.deep_count};
        memcpy(list[count++].deep, rows.deep, sizeof rows.deep);
    }
    const int32_t alone = count;
    for (int32_t p = 1, row = job->prompts[0]->count; p < job->prompt_count && job->shared == 0;
         row += job->prompts[p++]->count) {
        for (int32_t i = 0; i < alone; i++) {
            list[count] = list[i];
            list[count++].row = row + job->prompts[p]->rows[i];
        }
    }
    return count;
}

// The features of one prompt: its rows of the result, after those that it shares with the first prompt.
static array features_of(const encoding* job, int32_t p, const array* all)
{
    const int64_t cols = all->shape[1], shared = p > 0 ? job->shared : 0;
    int64_t first = 0;
    for (int32_t i = 0; i < p; i++) first += job->prompts[i]->count - (i > 0 ? job->shared : 0);
    array out = array_make(NULL, 2, (const int64_t[]){job->prompts[p]->count, cols});
    memcpy(out.values, all->values, (size_t)(shared * cols) * sizeof(float));
    memcpy(out.values + shared * cols, all->values + first * cols,
           (size_t)((job->prompts[p]->count - shared) * cols) * sizeof(float));
    return out;
}

static void encode(golden_case* c, const encoder* e, encoding* job)
{
    sumi_plan plan;
    sumi_error error = {0};
    sumi_text_picture pictures[MOST_PROMPTS * SUMI_MAX_REFERENCES];
    int32_t counts[MOST_PROMPTS], rows = 0;
    for (int32_t p = 0; p < job->prompt_count; p++) {
        counts[p] = job->prompts[p]->count;
        rows += counts[p] - (p > 0 ? job->shared : 0);
    }
    begin_plan(c, &plan);
    plan_run run = {.c = c, .write = write_encoding, .probe = probe_encoding, .context = job};
    sumi_plan_section(&plan, SUMI_SECTION_VISION, 1, 0);
    const int32_t picture_count = write_towers(e, &plan, job, pictures);
    sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
    job->ids = sumi_plan_bound(&plan, "ids", SUMI_ELEMENT_INT, rows, 1);
    const sumi_value made = sumi_language_model_module.write(&e->language, &plan,
                                                             &(sumi_text_batch){.ids = job->ids,
                                                                                .counts = counts,
                                                                                .prompt_count = job->prompt_count,
                                                                                .shared = job->shared,
                                                                                .pictures = pictures,
                                                                                .picture_count = picture_count});
    if (made.id > 0 && (size_t)made.id <= plan.value_count) plan.values[made.id - 1].bound = true;
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        array all = read_array(&run, made);
        for (int32_t p = 0; p < job->prompt_count; p++) job->features[p] = features_of(job, p, &all);
        array_free(&all);
    }
    end_plan(c, &plan);
}

static void free_encoding(encoding* job)
{
    for (int32_t p = 0; p < job->prompt_count; p++) array_free(&job->features[p]);
    array_free(&job->positions);
}

// ---- Texts and prompts with pictures --------------------------------------------------------------------------------

static array pick_rows(const array* rows, const array* which, int64_t first)
{
    array out = array_make(NULL, 2, (const int64_t[]){which->count, rows->shape[1]});
    for (int64_t i = 0; i < which->count; i++) {
        const int64_t row = first + (int64_t)which->values[i];
        if (row >= 0 && row < rows->shape[0])
            memcpy(out.values + i * rows->shape[1], rows->values + row * rows->shape[1],
                   (size_t)rows->shape[1] * sizeof(float));
    }
    return out;
}

static bool is_picture_row(const prompt* p, int32_t row)
{
    bool is_inside = false;
    for (int32_t i = 0; i < p->picture_count; i++)
        is_inside = is_inside || (row >= p->rows[i] && row < p->rows[i] + p->tokens[i]);
    return is_inside;
}

// Rows from `first` on that a form of the features has. embeds: all, embeds_tail: the last ones, embeds_rows: those that
// are listed, embeds_text: all that are no picture's, embeds_image_row: the first one of a picture.
static array rows_of_form(const golden_case* c, const prompt* p, const char* form, const array* features, int32_t first)
{
    char name[96];
    array list = array_make(NULL, 1, (const int64_t[]){features->shape[0]});
    int64_t count = 0;
    const bool is_image = strcmp(form, "embeds_image_row") == 0, is_tail = strcmp(form, "embeds_tail") == 0;
    for (int32_t row = first; row < p->count && !(is_image && count == 1); row++) {
        const bool is_picture = is_picture_row(p, row);
        if ((is_image && !is_picture) || (strcmp(form, "embeds_text") == 0 && is_picture)) continue;
        list.values[count++] = (float)(row - first);
    }
    snprintf(name, sizeof name, "expect.%.60s.%s", p->name, form);
    const sumi_tensor* want = sumi_tensor_find(&c->set, name);
    const int64_t left_out = is_tail && want->shape[0] < count ? count - want->shape[0] : 0;
    memmove(list.values, list.values + left_out, (size_t)(count - left_out) * sizeof *list.values);
    list.count = count - left_out;
    if (strcmp(form, "embeds_rows") == 0) {
        array_free(&list);
        snprintf(name, sizeof name, "%.60s.rows", p->name);
        list = input(c, name);
    }
    array out = pick_rows(features, &list, first);
    array_free(&list);
    return out;
}

static void compare_features(golden_case* c, const encoder* e, const prompt* p, const array* features)
{
    static const char* const s_forms[] = {"embeds", "embeds_tail", "embeds_rows", "embeds_text", "embeds_image_row"};
    for (size_t i = 0; i < sizeof s_forms / sizeof *s_forms && features->values != NULL; i++) {
        char name[96];
        snprintf(name, sizeof name, "%.60s.%s", p->name, s_forms[i]);
        if (!has_expected(c, name)) continue;
        array rows = rows_of_form(c, p, s_forms[i], features, e->network.encoders[0].dropped_rows);
        compare(c, name, &rows);
        array_free(&rows);
    }
}

static void report_equal(golden_case* c, const char* label, bool is_equal) { report(c, label, !is_equal, 0, is_equal); }

// Whether a list of numbers is the case's input.NAME; true when there is none.
static bool is_input(const golden_case* c, const char* name, const int32_t* numbers, int64_t count)
{
    array want = input(c, name);
    bool is_equal = want.values == NULL || want.count == count;
    for (int64_t i = 0; i < count && is_equal && want.values != NULL; i++)
        is_equal = numbers[i] == (int32_t)want.values[i];
    array_free(&want);
    return is_equal;
}

// Ids, the number of rows, which of them are pictures', and the pictures' grids in patches.
static void compare_tokens(golden_case* c, const encoder* e, const prompt* p)
{
    const int32_t dropped = e->network.encoders[0].dropped_rows, kept = p->count - dropped;
    char name[96];
    int32_t* flags = calloc((size_t)p->count + 1, sizeof *flags);
    int32_t grids[3 * SUMI_MAX_REFERENCES];
    for (int32_t i = 0; i < kept; i++) flags[i] = is_picture_row(p, dropped + i);
    for (int32_t i = 0; i < p->picture_count; i++) {
        grids[3 * i] = 1;
        grids[3 * i + 1] = p->pictures[i].height / e->tower.tower.patch;
        grids[3 * i + 2] = p->pictures[i].width / e->tower.tower.patch;
    }
    snprintf(name, sizeof name, "%.60s.ids", p->name);
    report_equal(c, name, is_input(c, name, p->ids, p->count));
    snprintf(name, sizeof name, "%.60s: numbers of rows", p->name);
    report_equal(c, name,
                 json_number(p->about, "tokens", p->count) == p->count && json_number(p->about, "kept", kept) == kept
                     && json_number(p->about, "drop", dropped) == dropped);
    if (p->picture_count > 0) {
        snprintf(name, sizeof name, "%.60s.image_pads", p->name);
        report_equal(c, name, is_input(c, name, flags, kept));
        snprintf(name, sizeof name, "%.60s.grid_thw", p->name);
        report_equal(c, name, is_input(c, name, grids, 3 * (int64_t)p->picture_count));
    }
    free(flags);
}

static void compare_positions(golden_case* c, const prompt* p, const array* got)
{
    char name[96];
    snprintf(name, sizeof name, "%.60s.position_ids", p->name);
    array want = input(c, name);
    if (want.values != NULL && got->values != NULL) {
        const int64_t count = want.shape[1];
        bool is_equal = got->shape[0] == count && got->shape[1] == 3;
        for (int64_t i = 0; i < 3 * count && is_equal; i++)
            is_equal = got->values[i] == want.values[i % 3 * count + i / 3];
        report_equal(c, name, is_equal);
    }
    array_free(&want);
}

static bool has_same_pictures(const prompt* a, const prompt* b)
{
    bool is_same = a->picture_count == b->picture_count;
    for (int32_t i = 0; i < a->picture_count && is_same; i++) {
        const picture_file *x = &a->pictures[i], *y = &b->pictures[i];
        is_same = a->rows[i] == b->rows[i] && x->width == y->width && x->height == y->height
               && memcmp(x->pixels, y->pixels, 3 * (size_t)x->width * (size_t)x->height) == 0;
    }
    return is_same;
}

// Two prompts in one plan, each with rows of its own; then with a beginning that both share, the pictures included.
static void run_batches(golden_case* c, const encoder* e, const prompt* a, const prompt* b)
{
    int32_t shared = e->network.encoders[0].dropped_rows;
    for (int32_t i = 0; i < a->picture_count; i++) shared = a->rows[i] + a->tokens[i];
    for (int32_t shares = 0; shares < 2; shares++) {
        encoding job = {.prompts = {a, b}, .prompt_count = 2, .shared = shares ? shared : 0};
        encode(c, e, &job);
        for (int32_t p = 0; p < 2; p++) compare_features(c, e, job.prompts[p], &job.features[p]);
        free_encoding(&job);
    }
}

static void run_text(golden_case* c)
{
    encoder* e = calloc(1, sizeof *e);
    const node* list = json_get(c->json, "prompts");
    prompt prompts[2] = {{.count = 0}}; // the current one, and the one before it, or the last one with its pictures
    bool has_before = false;
    if (open_encoder(c, e)) {
        for (const node* n = list->first; n != NULL; n = n->next) {
            prompt* p = &prompts[0];
            if (!make_prompt(c, e, n, p)) break;
            if (!c->by_op) compare_tokens(c, e, p);
            encoding job = {.prompts = {p}, .prompt_count = 1};
            encode(c, e, &job);
            compare_features(c, e, p, &job.features[0]);
            compare_positions(c, p, &job.positions);
            free_encoding(&job);
            const bool may_pair = has_before && has_same_pictures(&prompts[1], p);
            if (may_pair) run_batches(c, e, &prompts[1], p);
            // of prompts with pictures the first one waits for another with the same pictures
            const bool waits = has_before && !may_pair && prompts[1].picture_count > 0 && n->next != NULL;
            if (waits) free_prompt(p);
            else {
                free_prompt(&prompts[1]);
                prompts[1] = *p;
                has_before = true;
            }
            *p = (prompt){.count = 0};
        }
    }
    free_prompt(&prompts[0]);
    free_prompt(&prompts[1]);
    close_encoder(c, e);
}

// ---- Inside the language model --------------------------------------------------------------------------------------

// Prompt number `index` of another case of the same folder.
static node* read_prompts(golden_case* c, const char* name, int index, const node** out_about)
{
    char path[2400], message[SUMI_ERROR_TEXT_BYTES];
    snprintf(path, sizeof path, "%.2000s/%s.json", c->folder, name);
    node* tree = json_read(path, message, sizeof message);
    const node* list = json_get(tree, "prompts");
    const node* about = list != NULL ? list->first : NULL;
    for (int i = 0; i < index && about != NULL; i++) about = about->next;
    if (about == NULL) case_fails(c, "%s has no prompt %d", path, index);
    *out_about = about;
    return tree;
}

// `in1` is what layer 1 reads: the output of layer 0, with what pictures add to it. The last layer's rows may have such
// a sum too.
static void watch_inside(const golden_case* c, const encoder* e, watcher* w, const char* whose, bool has_pictures)
{
    const int32_t layers = e->language.layer_count, levels = has_pictures ? e->tower.deep_count : 0;
    char name[64];
    watch_language_model(c, w, whose, layers);
    const int first = w->count > 0 ? (int)w->list[0].first : 0;
    for (int i = 0; i < w->count; i++) {
        watch* one = &w->list[i];
        if (has_pictures && strcmp(one->label, "text.embed") == 0)
            snprintf(one->label, sizeof one->label, "text.copy"); // the embeddings with the pictures' rows
        const size_t length = strlen(one->expected);
        if (levels >= layers && length > 5 && strcmp(one->expected + length - 5, ".last") == 0)
            snprintf(one->label, sizeof one->label, "text.layers.%d.deep_add", (int)layers - 1);
    }
    snprintf(name, sizeof name, "%s.in1", whose);
    if (!has_expected(c, name)) return;
    watch* in1 = add_watch(w, name, WATCH_ROWS, "text.layers.0.%s", levels > 0 ? "deep_add" : "mlp.down");
    char full[80];
    snprintf(full, sizeof full, "expect.%s", name);
    in1->first = first;
    in1->rows = sumi_tensor_find(&c->set, full)->shape[0];
}

static void run_inside(golden_case* c, const encoder* e, const char* whose, const char* of_case, int index)
{
    char name[64];
    const node* about;
    node* tree = read_prompts(c, of_case, index, &about);
    prompt p = {.count = 0};
    snprintf(name, sizeof name, "%s.first_row", whose);
    array first = input(c, name);
    if (first.values != NULL && about != NULL && make_prompt(c, e, about, &p)) {
        watcher* w = calloc(1, sizeof *w);
        w->q_heads = e->language.q_heads;
        w->kv_heads = e->language.kv_heads;
        w->head_dim = e->language.head_dim;
        w->halves = true;
        watch_inside(c, e, w, whose, p.picture_count > 0);
        encoding job = {.prompts = {&p}, .prompt_count = 1, .w = w};
        encode(c, e, &job);
        compare_watches(c, w);
        snprintf(name, sizeof name, "wrong.%s.last_normed", whose);
        const sumi_tensor* wrong = sumi_tensor_find(&c->set, name);
        if (wrong != NULL && job.features[0].values != NULL) {
            const int64_t cols = job.features[0].shape[1];
            array rows = array_make(job.features[0].values + (int64_t)first.values[0] * cols, 2,
                                    (const int64_t[]){wrong->shape[0], cols});
            compare_wrong(c, name + strlen("wrong."), &rows);
            array_free(&rows);
        }
        free_encoding(&job);
        free(w);
    }
    array_free(&first);
    free_prompt(&p);
    json_free(tree);
}

static void run_lm(golden_case* c)
{
    encoder* e = calloc(1, sizeof *e);
    if (open_encoder(c, e)) {
        run_inside(c, e, "text", "text-t2i", 0);
        run_inside(c, e, "image", "text-edit", 1);
    }
    close_encoder(c, e);
}

// ---- The vision tower -----------------------------------------------------------------------------------------------

typedef struct vision_job {
    const picture_file* picture;
    sumi_value pixels;
    watcher w;
} vision_job;

static void write_picture(plan_run* run)
{
    const vision_job* job = run->context;
    sumi_runner* runner = run->c->g->runner;
    runner->functions->write(runner, run->plan, job->pixels, 0, job->picture->pixels,
                             3 * (uint64_t)job->picture->height * (uint64_t)job->picture->width);
}

static void probe_vision(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    watch_op(run, &((vision_job*)run->context)->w, op, counter, before);
}

static void watch_vision(const golden_case* c, watcher* w, const char* mine)
{
    for (size_t i = 0; i < c->set.count; i++) {
        const char* name = expected_name(c, i);
        if (name == NULL || strncmp(name, mine, strlen(mine)) != 0) continue;
        const char* rest = name + strlen(mine);
        int block;
        // A GPU has them in bfloat16, as the reference's tower has; what is stored is from before that.
        if (strcmp(rest, "pixel_values_rows") == 0 && !c->g->is_gpu)
            add_watch(w, name, WATCH_ROWS, "vision.patches_in");
        if (strcmp(rest, "patch_embed") == 0) add_watch(w, name, WATCH_BRANCH, "vision.patch_embed");
        if (strcmp(rest, "in0") == 0 || strcmp(rest, "in0_rows") == 0)
            add_watch(w, name, WATCH_ROWS, "vision.patch_embed");
        if (strcmp(rest, "cos") == 0) add_watch(w, name, WATCH_COS, "vision.rope");
        if (strcmp(rest, "sin") == 0) add_watch(w, name, WATCH_SIN, "vision.rope");
        if (sscanf(rest, "attn%d", &block) == 1) add_watch(w, name, WATCH_BRANCH, "vision.blocks.%d.attn.proj", block);
        if (sscanf(rest, "block%d", &block) == 1)
            add_watch(w, name, WATCH_ROWS, "vision.blocks.%d.mlp.linear_fc2", block);
    }
}

// What is stored by rows is cut out of what was made.
static void pick_watched(const golden_case* c, watcher* w, const char* mine)
{
    char name[64];
    snprintf(name, sizeof name, "%spixel_rows", mine);
    array which = input(c, name);
    for (int i = 0; i < w->count && which.values != NULL; i++) {
        watch* one = &w->list[i];
        if (one->got.values == NULL || strstr(one->expected, "_rows") == NULL) continue;
        array rows = pick_rows(&one->got, &which, 0);
        array_free(&one->got);
        one->got = rows;
    }
    array_free(&which);
}

// The first rows of what a merger makes, as many as are stored.
static void compare_merger(golden_case* c, plan_run* run, const char* name, sumi_value value)
{
    char full[80];
    snprintf(full, sizeof full, "expect.%s", name);
    const sumi_tensor* want = sumi_tensor_find(&c->set, full);
    if (want == NULL) return;
    array rows = read_array(run, value);
    if (want->shape[0] < rows.shape[0]) {
        array part = array_make(rows.values, 2, (const int64_t[]){want->shape[0], rows.shape[1]});
        array_free(&rows);
        rows = part;
    }
    compare(c, name, &rows);
    array_free(&rows);
}

static void run_picture(golden_case* c, const encoder* e, int index, const picture_file* picture)
{
    vision_job job = {.picture = picture};
    sumi_plan plan;
    sumi_error error = {0};
    char mine[16], name[64];
    snprintf(mine, sizeof mine, "%d.", index);
    watch_vision(c, &job.w, mine);
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_VISION, 1, 0);
    job.pixels = sumi_plan_bound(&plan, "pixels", SUMI_ELEMENT_BYTE, picture->height * picture->width, 3);
    const sumi_vision_rows made =
        sumi_qwen3_vision_module.write(&e->tower, &plan, job.pixels, picture->height, picture->width);
    for (int32_t i = -1; i < e->tower.deep_count; i++) {
        const sumi_value value = i < 0 ? made.value : made.deep[i];
        if (value.id > 0 && (size_t)value.id <= plan.value_count) plan.values[value.id - 1].bound = true;
    }
    plan_run run = {.c = c, .write = write_picture, .probe = probe_vision, .context = &job};
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) {
        snprintf(name, sizeof name, "%smerger", mine);
        compare_merger(c, &run, name, made.value);
        for (int32_t i = 0; i < e->tower.deep_count; i++) {
            snprintf(name, sizeof name, "%sdeepstack%d", mine, (int)i);
            compare_merger(c, &run, name, made.deep[i]);
        }
        pick_watched(c, &job.w, mine);
        compare_watches(c, &job.w);
    }
    end_plan(c, &plan);
}

static void run_vision(golden_case* c)
{
    encoder* e = calloc(1, sizeof *e);
    const node* list = json_get(c->json, "images");
    if (open_encoder(c, e)) {
        int index = 0;
        for (const node* n = list->first; n != NULL; n = n->next, index++) {
            picture_file picture = {0};
            if (read_case_png(c, json_text(n, "image"), &picture)) {
                char name[64];
                snprintf(name, sizeof name, "%d.grid_thw", index);
                const int32_t grid[3] = {1, picture.height / e->tower.tower.patch,
                                         picture.width / e->tower.tower.patch};
                if (!c->by_op) report_equal(c, name, is_input(c, name, grid, 3));
                run_picture(c, e, index, &picture);
            }
            picture_free(&picture);
        }
    }
    close_encoder(c, e);
}

// ---- Tokens and templates -------------------------------------------------------------------------------------------

static bool has_ids(const encoder* e, const char* text, size_t bytes, const int32_t* want, size_t want_count)
{
    int32_t* ids = calloc(bytes + 64, sizeof *ids);
    size_t count = 0;
    const bool is_equal =
        sumi_tokenizer_encode(e->network.encoders[0].tokenizer, text, bytes, false, ids, bytes + 64, &count, NULL)
            == SUMI_OK
        && count == want_count && memcmp(ids, want, count * sizeof *ids) == 0;
    free(ids);
    return is_equal;
}

static void compare_texts(golden_case* c, const encoder* e)
{
    const node* list = json_get(c->json, "rows");
    int wrong = 0;
    for (const node* n = list->first; n != NULL; n = n->next) {
        const node *text = json_get(n, "text"), *numbers = json_get(n, "ids");
        int32_t* want = calloc((size_t)numbers->count + 1, sizeof *want);
        size_t count = 0;
        for (const node* id = numbers->first; id != NULL; id = id->next) want[count++] = (int32_t)id->number;
        const bool is_equal = has_ids(e, text->text, text->text_bytes, want, count);
        if (!is_equal) printf("  other ids for \"%s\"\n", text->text);
        wrong += !is_equal;
        free(want);
    }
    report(c, "texts by the processor's tokenizer", wrong, 0, wrong == 0 && list->count > 0);
}

// The reader's template with n pictures of one row each is the case's, whose text is "{}".
static void compare_templates(golden_case* c, const encoder* e)
{
    const node* list = json_get(c->json, "templates");
    int32_t pictures = 0;
    for (const node* n = list != NULL ? list->first : NULL; n != NULL; n = n->next, pictures++) {
        prompt p = {.picture_count = pictures};
        for (int32_t i = 0; i < pictures; i++) p.tokens[i] = 1;
        char label[64];
        snprintf(label, sizeof label, "template with %d pictures", (int)pictures);
        if (read_ids(c, e, "{}", 2, &p))
            report_equal(c, label, has_ids(e, n->text, n->text_bytes, p.ids, (size_t)p.count));
        free(p.ids);
    }
}

// A text that contains the token of a picture itself: the pictures of the template are those before it.
static void compare_literal_token(golden_case* c, const encoder* e)
{
    static const char s_text[] = "a <|image_pad|> b";
    prompt p = {.picture_count = 1, .tokens = {6}}, plain = {.picture_count = 1, .tokens = {1}};
    if (read_ids(c, e, s_text, sizeof s_text - 1, &p) && read_ids(c, e, s_text, sizeof s_text - 1, &plain))
        report_equal(c, "a text with the token of pictures",
                     p.count == plain.count + 5 && p.rows[0] == plain.rows[0]
                         && p.ids[p.rows[0] + 6] == plain.ids[plain.rows[0] + 1]
                         && p.ids[p.rows[0] - 1] == plain.ids[plain.rows[0] - 1]);
    free(p.ids);
    free(plain.ids);
}

static void run_tokenize(golden_case* c)
{
    encoder* e = calloc(1, sizeof *e);
    if (open_encoder(c, e)) {
        const double dropped = json_number(c->json, "drop", -1);
        report(c, "dropped rows", e->network.encoders[0].dropped_rows, dropped,
               e->network.encoders[0].dropped_rows == dropped);
        compare_texts(c, e);
        compare_templates(c, e);
        compare_literal_token(c, e);
    }
    close_encoder(c, e);
}

// ---- Tables at the released sizes -----------------------------------------------------------------------------------

// A rotary table of NAME at the positions of input.NAME.INPUT, which has `axes` rows, or columns.
static void run_rope(golden_case* c, const char* name, const char* input_name, sumi_plan_rope_args args)
{
    char full[64];
    snprintf(full, sizeof full, "%s.%s", name, input_name);
    array positions = input(c, full);
    if (positions.values == NULL) return;
    const bool is_turned = positions.shape[0] == args.axes && positions.shape[1] != args.axes;
    const int64_t rows = positions.shape[is_turned ? 1 : 0];
    int32_t* numbers = calloc((size_t)positions.count + 1, sizeof *numbers);
    for (int64_t i = 0; i < positions.count; i++)
        numbers[i] = (int32_t)positions.values[is_turned ? i % args.axes * rows + i / args.axes : i];
    vision_job job = {.picture = NULL};
    sumi_plan plan;
    sumi_error error = {0};
    begin_plan(c, &plan);
    sumi_plan_section(&plan, SUMI_SECTION_TEXT, 1, 0);
    args.positions = sumi_plan_constant(&plan, "positions", SUMI_ELEMENT_INT, (int32_t)rows, args.axes, numbers);
    sumi_plan_rope_table(&plan, &args);
    snprintf(full, sizeof full, "%s.cos", name);
    add_watch(&job.w, full, WATCH_COS, "rope");
    snprintf(full, sizeof full, "%s.sin", name);
    add_watch(&job.w, full, WATCH_SIN, "rope");
    plan_run run = {.c = c, .probe = probe_vision, .context = &job};
    if (sumi_plan_finish(&plan, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    else if (run_plan(&run, &plan)) compare_watches(c, &job.w);
    end_plan(c, &plan);
    free(numbers);
    array_free(&positions);
}

// Rows of the lookups of a picture of high x wide patches.
static void compare_neighbours(golden_case* c, int high, int wide)
{
    enum { NEIGHBOURS = SUMI_QWEN3_VISION_NEIGHBOURS };
    const sumi_qwen3_vision_grid size = {high, wide, 2, 48};
    char name[64];
    snprintf(name, sizeof name, "pos.%dx%d.rows", high, wide);
    array which = input(c, name);
    const size_t count = (size_t)high * (size_t)wide * NEIGHBOURS;
    int32_t* neighbours = calloc(count, sizeof *neighbours);
    float* factors = calloc(count, sizeof *factors);
    sumi_qwen3_vision_neighbours(&size, neighbours, factors);
    array numbers = array_make(NULL, 2, (const int64_t[]){high * wide, NEIGHBOURS}),
          shares = array_make(factors, 2, (const int64_t[]){high * wide, NEIGHBOURS});
    for (size_t i = 0; i < count; i++) numbers.values[i] = (float)neighbours[i];
    array got[2] = {pick_rows(&numbers, &which, 0), pick_rows(&shares, &which, 0)};
    for (int i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "pos.%dx%d.%s", high, wide, i == 0 ? "index" : "weight");
        compare(c, name, &got[i]);
        array_free(&got[i]);
    }
    array_free(&numbers);
    array_free(&shares);
    array_free(&which);
    free(neighbours);
    free(factors);
}

static void run_tables(golden_case* c)
{
    const sumi_language_model_settings* settings = &sumi_qwen21_language_model;
    sumi_plan_rope_args text = {.axes = 3, .theta = settings->theta, .order = SUMI_ROPE_IN_TURNS};
    memcpy(text.pairs, settings->sections, sizeof settings->sections);
    run_rope(c, "mrope", "position_ids", text);
    run_rope(c, "vit_rope", "yx", (sumi_plan_rope_args){.axes = 2, .pairs = {18, 18}, .theta = 10000.0});
    for (size_t i = 0; i < c->set.count && !c->by_op; i++) {
        int high, wide, used = 0;
        if (sscanf(c->set.tensors[i].name, "input.pos.%dx%d.rows%n", &high, &wide, &used) == 2 && used > 0)
            compare_neighbours(c, high, wide);
    }
}

bool run_qwen21_text_case(golden_case* c)
{
    const bool is_text = strcmp(c->kind, "text") == 0 && json_get(c->json, "prompts") != NULL,
               is_encoder = strcmp(c->kind, "encoder") == 0,
               is_vision = strcmp(c->kind, "vision") == 0 && json_get(c->json, "images") != NULL,
               is_tokenize = strcmp(c->kind, "tokenize") == 0 && json_get(c->json, "rows") != NULL,
               is_tables = strcmp(c->kind, "op") == 0 && has_expected(c, "mrope.cos");
    if (is_text) run_text(c);
    if (is_encoder) run_lm(c);
    if (is_vision) run_vision(c);
    if (is_tokenize) run_tokenize(c);
    if (is_tables) run_tables(c);
    return is_text || is_encoder || is_vision || is_tokenize || is_tables;
}
