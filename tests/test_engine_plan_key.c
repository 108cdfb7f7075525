// The key of a plan: by the tables that the key is made of, every member of a request is changed, and every byte that
// is in no member.
#include "jobs/engine_state.h"
#include "jobs/objects.h"
#include "jobs/plan_key.h"
#include "test.h"

// ---- A request ------------------------------------------------------------------------------------------------------

enum { MOST = 4, KEY_BYTES = 4096 }; // elements of a list: one more than it has

typedef struct fixture {
    sumi_plan_request request;
    sumi_pipeline_prompt prompts[MOST];
    sumi_pipeline_item items[MOST];
    sumi_pipeline_reference references[MOST];
    bool guided[MOST];
    sumi_pipeline_control pipeline_controls[MOST];
    uint8_t active_controls[MOST];
    const sumi_control* controls[MOST];
    const sumi_lora* loras[MOST];
    float scales[MOST], text_scales[MOST];
} fixture;

static sumi_model s_models[2] = {{.serial = 11}, {.serial = 12}};
static const sumi_lora s_loras[MOST] = {{.serial = 21}, {.serial = 22}, {.serial = 23}, {.serial = 24}};
static const sumi_lora s_other_lora = {.serial = 25};
static const sumi_control s_controls[MOST] = {{.serial = 31}, {.serial = 32}, {.serial = 33}, {.serial = 34}};
static const sumi_control s_other_control = {.serial = 35};

// The bytes of no member are `rest`.
static void make_request(fixture* f, int rest)
{
    memset(f, rest, sizeof *f);
    sumi_plan_request* r = &f->request;
    sumi_pipeline_request* p = &r->pipeline;
    for (int32_t i = 0; i < MOST; i++) {
        for (int32_t e = 0; e < SUMI_MAX_TEXT_ENCODERS; e++) f->prompts[i].token_count[e] = 20 + 7 * i + e;
        for (int32_t k = 0; k < SUMI_MAX_REFERENCES; k++) {
            f->prompts[i].reference_row[k] = 5 * k + i;
            f->prompts[i].reference_rows[k] = 4;
        }
        f->prompts[i].has_features = i == 1;
        f->references[i] = (sumi_pipeline_reference){28 + 28 * i, 56, 64, 80};
        f->items[i].positive = i % 2;
        f->items[i].negative = 2;
        f->guided[i] = i != 1;
        f->pipeline_controls[i].net = NULL;
        f->pipeline_controls[i].picture_count = 1 + i;
        f->pipeline_controls[i].has_picture = true;
        f->pipeline_controls[i].has_mask = f->pipeline_controls[i].samples_posterior = false;
        f->active_controls[i] = (uint8_t)i;
        f->controls[i] = &s_controls[i];
        f->loras[i] = &s_loras[i];
        f->scales[i] = 0.5f * (float)i;
        f->text_scales[i] = 0.25f * (float)i;
    }
    p->prompts = f->prompts, p->items = f->items, p->references = f->references, p->guided = f->guided,
    p->controls = f->pipeline_controls, p->active_controls = f->active_controls, p->adapters = p->text_adapters = NULL;
    p->goal = SUMI_GOAL_IMAGES;
    p->prompt_count = p->item_count = p->reference_count = p->evaluation_count = p->control_count = MOST - 1;
    p->adapter_count = p->tile_latent = 0;
    for (int32_t e = 0; e < SUMI_MAX_TEXT_ENCODERS; e++) p->shared_tokens[e] = 0;
    p->shared_feature_rows = 0;
    p->width = 512, p->height = 768;
    p->guidance_rule = SUMI_GUIDANCE_NORM_LIMIT, p->norm_limit = 1.5f;
    p->has_base = p->starts_from_image = p->inpaints = p->composites = true;
    p->has_history = p->starts_from_latents = p->samples_posterior = p->previews = p->caches_steps = false;
    p->start_is_reference = p->long_strips = false;
    r->model = &s_models[0];
    r->loras = f->loras, r->lora_scales = f->scales, r->lora_text_scales = f->text_scales, r->lora_count = MOST - 1;
    r->controls = f->controls, r->control_count = MOST - 1;
    r->memory_limit = 1u << 30, r->slice_us = 2000, r->whole_ops = false;
    r->weight_options.weights = r->weight_options.text_weights = SUMI_WEIGHTS_FP8,
    r->weight_options.attention = SUMI_ATTENTION_8BIT, r->weight_options.streams_weights = false;
}

typedef struct key {
    unsigned char bytes[KEY_BYTES];
    uint64_t size;
} key;

static void make_key(key* into, const fixture* f)
{
    sumi_packer packer = {NULL, 0};
    sumi_plan_key_write(&packer, &f->request);
    into->size = packer.used;
    CHECK(packer.used > 0 && packer.used <= KEY_BYTES);
    packer = (sumi_packer){into->bytes, 0};
    sumi_plan_key_write(&packer, &f->request);
    CHECK_NUMBER(packer.used, into->size);
}

static bool is_same(const key* a, const key* b)
{
    return a->size == b->size && memcmp(a->bytes, b->bytes, (size_t)a->size) == 0;
}

// ---- Every member ---------------------------------------------------------------------------------------------------

typedef struct walk {
    fixture* f;
    key first;
    int32_t changes, lists;
} walk;

static void expect(walk* w, const char* name, const char* what, bool differs)
{
    key now;
    make_key(&now, w->f);
    if (is_same(&now, &w->first) == differs)
        printf("  %s (%s): the key is %s\n", name, what, differs ? "the same" : "another");
    CHECK(is_same(&now, &w->first) != differs);
    w->changes++;
}

static bool is_count(const sumi_key_table* table, size_t offset)
{
    bool found = false;
    for (int32_t i = 0; table != NULL && i < table->count; i++)
        found = found || (table->members[i].kind == SUMI_KEY_LIST && table->members[i].count_offset == offset);
    return found;
}

static void change_struct(walk* w, const sumi_key_table* table, unsigned char* data);

// A member, or an element of a list.
static void change_one(walk* w, const sumi_key_member* of, sumi_key_kind kind, unsigned char* data, size_t bytes)
{
    static const sumi_model* const s_model = &s_models[1];
    static const sumi_lora* const s_lora = &s_other_lora;
    static const sumi_control* const s_control = &s_other_control;
    unsigned char kept[64];
    if (kind == SUMI_KEY_STRUCT) {
        change_struct(w, of->table, data);
        return;
    }
    CHECK(bytes <= sizeof kept);
    memcpy(kept, data, bytes);
    if (kind == SUMI_KEY_MODEL || kind == SUMI_KEY_LORA || kind == SUMI_KEY_CONTROL) {
        CHECK_NUMBER(bytes, sizeof(void*));
        memcpy(data,
               kind == SUMI_KEY_MODEL  ? (const void*)&s_model
               : kind == SUMI_KEY_LORA ? (const void*)&s_lora
                                       : (const void*)&s_control,
               bytes);
        expect(w, of->name, "another object", true);
        memcpy(data, kept, bytes);
        return;
    }
    for (size_t i = 0; i < bytes; i++) { // of a bool the lowest bit: it stays one
        data[i] ^= 1;
        expect(w, of->name, "a bit", kind == SUMI_KEY_NUMBER);
        memcpy(data, kept, bytes);
    }
}

static void change_count(walk* w, const char* name, int32_t* count)
{
    CHECK_NUMBER(*count, MOST - 1);
    ++*count;
    expect(w, name, "one more", true);
    *count -= 2;
    expect(w, name, "one fewer", true);
    *count = 0;
    expect(w, name, "none", true);
    *count = MOST - 1;
}

static void change_list(walk* w, const sumi_key_member* list, unsigned char* owner)
{
    unsigned char *elements, *const none = NULL;
    memcpy(&elements, owner + list->offset, sizeof elements);
    CHECK(elements != NULL && list->element_size > 0);
    for (int32_t i = 0; i < MOST - 1 && elements != NULL; i++)
        change_one(w, list, list->element, elements + (size_t)i * list->element_size, list->element_size);
    memcpy(owner + list->offset, &none, sizeof none);
    expect(w, list->name, "no list", true);
    memcpy(owner + list->offset, &elements, sizeof elements);
    w->lists++;
}

static void change_struct(walk* w, const sumi_key_table* table, unsigned char* data)
{
    for (int32_t i = 0; i < table->count; i++) {
        const sumi_key_member* member = &table->members[i];
        if (member->kind == SUMI_KEY_LIST) change_list(w, member, data);
        else if (is_count(table, member->offset))
            change_count(w, member->name, (int32_t*)(void*)(data + member->offset));
        else change_one(w, member, member->kind, data + member->offset, member->size);
    }
}

TEST(every_change_of_a_request_changes_its_key)
{
    fixture f;
    walk w = {.f = &f};
    make_request(&f, 0);
    make_key(&w.first, &f);
    change_struct(&w, &sumi_plan_request_table, (unsigned char*)&f.request);
    expect(&w, "request", "as at first", false);
    CHECK_NUMBER(w.lists, 10); // prompts, items, references, guided evaluations, loras, scales, scales of text
    CHECK(w.changes > 150);
}

// ---- Every byte -----------------------------------------------------------------------------------------------------

// Every byte of a struct is in one member: what the struct's size says at compile time, but for a member that is listed
// twice.
static void check_bytes(const sumi_key_table* table, size_t size)
{
    unsigned char seen[512] = {0};
    CHECK(size <= sizeof seen);
    for (int32_t i = 0; i < table->count; i++) {
        const sumi_key_member* member = &table->members[i];
        CHECK(member->offset + member->size <= size);
        CHECK((member->kind == SUMI_KEY_UNUSED) == (strcmp(member->name, "unused") == 0));
        for (size_t k = 0; k < member->size && member->offset + k < sizeof seen; k++) seen[member->offset + k]++;
        if (member->table != NULL)
            check_bytes(member->table, member->kind == SUMI_KEY_LIST ? member->element_size : member->size);
    }
    for (size_t k = 0; k < size && k < sizeof seen; k++) CHECK_NUMBER(seen[k], 1);
}

TEST(every_byte_of_a_request_is_in_one_member) { check_bytes(&sumi_plan_request_table, sizeof(sumi_plan_request)); }

TEST(bytes_of_no_member_are_not_in_the_key)
{
    fixture a, b;
    key of_a, of_b;
    make_request(&a, 0);
    make_request(&b, 0xA5);
    CHECK(memcmp(&a.prompts, &b.prompts, sizeof a.prompts) != 0); // they differ
    make_key(&of_a, &a);
    make_key(&of_b, &b);
    CHECK(is_same(&of_a, &of_b));
}

// ---- The engine's part ----------------------------------------------------------------------------------------------

TEST(a_complete_request_says_what_the_engine_wants)
{
    sumi_engine_desc desc = sumi_engine_defaults();
    sumi_engine* engine = NULL;
    desc.backend = SUMI_BACKEND_CPU;
    CHECK(sumi_engine_create(&desc, &engine) == SUMI_OK);
    if (engine == NULL) return;
    fixture f;
    key keys[6];
    sumi_model model = s_models[0];
    model.info.weight_bytes = 1000;
    make_request(&f, 0);
    const sumi_plan_request asked = {.model = &model, .pipeline = f.request.pipeline};
    sumi_pump_lock(engine);
    for (int32_t i = 0; i < 6; i++) {
        if (i == 1) engine->memory.host_limit = 1000;
        if (i == 2) engine->frame.slice_us++;
        if (i == 3) model.weights = SUMI_WEIGHTS_BF16;
        if (i == 4) model.text_weights = SUMI_WEIGHTS_INT8;
        f.request = sumi_plan_complete(engine, &asked);
        make_key(&keys[i], &f);
        for (int32_t k = 0; k < i && i < 5; k++) CHECK(!is_same(&keys[i], &keys[k]));
    }
    CHECK(is_same(&keys[4], &keys[5]));
    CHECK(f.request.memory_limit == 1000 && f.request.slice_us == engine->frame.slice_us
          && f.request.weight_options.weights == SUMI_WEIGHTS_BF16
          && f.request.weight_options.text_weights == SUMI_WEIGHTS_INT8 && !f.request.weight_options.streams_weights);
    sumi_plan_request other = asked;
    other.pipeline.goal = SUMI_GOAL_PROMPTS; // of a model that has no room as a whole
    CHECK(sumi_plan_complete(engine, &other).weight_options.streams_weights);
    other.whole_ops = true;
    CHECK_NUMBER(sumi_plan_complete(engine, &other).slice_us, 0);
    sumi_pump_unlock(engine);
    sumi_engine_destroy(engine);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(every_change_of_a_request_changes_its_key);
    RUN(every_byte_of_a_request_is_in_one_member);
    RUN(bytes_of_no_member_are_not_in_the_key);
    RUN(a_complete_request_says_what_the_engine_wants);
    TEST_END();
}
