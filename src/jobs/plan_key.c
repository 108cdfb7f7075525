#include "jobs/plan_key.h"
#include "base/assert.h"
#include "jobs/buffers.h"
#include "jobs/objects.h"
#include "models/pipeline.h"
#include "plan/plan.h"
#include <stddef.h>
#include <string.h>

// ---- The tables -----------------------------------------------------------------------------------------------------
//
// A struct T is described by a list of its members, in three ways:
//
//   ONE(kind, member)   NESTED(member, table)   LIST(member, count member, element kind, element table or NULL)
//
// TABLE defines the table from the list, and checks that no member is missing.

#define MEMBER_SIZE(member) sizeof(((T*)0)->member)
#define ADD_ONE(kind, member) +MEMBER_SIZE(member)
#define ADD_NESTED(member, member_table) +MEMBER_SIZE(member)
#define ADD_LIST(member, count_member, kind, element_table) +MEMBER_SIZE(member)
#define SHOW_ONE(kind_, member)                                                                                        \
    {.name = #member, .kind = SUMI_KEY_##kind_, .offset = offsetof(T, member), .size = MEMBER_SIZE(member)},
#define SHOW_NESTED(member, member_table)                                                                              \
    {.name = #member,                                                                                                  \
     .kind = SUMI_KEY_STRUCT,                                                                                          \
     .offset = offsetof(T, member),                                                                                    \
     .size = MEMBER_SIZE(member),                                                                                      \
     .table = member_table},
#define SHOW_LIST(member, count_member, kind_, element_table)                                                          \
    {.name = #member,                                                                                                  \
     .kind = SUMI_KEY_LIST,                                                                                            \
     .offset = offsetof(T, member),                                                                                    \
     .size = MEMBER_SIZE(member),                                                                                      \
     .table = element_table,                                                                                           \
     .element = SUMI_KEY_##kind_,                                                                                      \
     .element_size = sizeof *((T*)0)->member,                                                                          \
     .count_offset = offsetof(T, count_member)},
#define TABLE(storage, name, list)                                                                                     \
    _Static_assert(sizeof(T) == 0 list(ADD_ONE, ADD_NESTED, ADD_LIST),                                                 \
                   "a member of this struct is not in its list, or there are bytes between or behind its members: "    \
                   "list the member, and give such bytes a member `unused`");                                          \
    static const sumi_key_member name##_members[] = {list(SHOW_ONE, SHOW_NESTED, SHOW_LIST)};                          \
    storage const sumi_key_table name##_table = {name##_members,                                                       \
                                                 (int32_t)(sizeof name##_members / sizeof *name##_members)}

#define T sumi_pipeline_prompt
#define PROMPT(ONE, NESTED, LIST)                                                                                      \
    ONE(NUMBER, token_count)                                                                                           \
    ONE(NUMBER, reference_row) ONE(NUMBER, reference_rows) ONE(NUMBER, has_features) ONE(UNUSED, unused)
TABLE(static, prompt, PROMPT);
#undef T

#define T sumi_pipeline_item
#define ITEM(ONE, NESTED, LIST) ONE(NUMBER, positive) ONE(NUMBER, negative)
TABLE(static, item, ITEM);
#undef T

#define T sumi_pipeline_reference
#define REFERENCE(ONE, NESTED, LIST)                                                                                   \
    ONE(NUMBER, vision_width) ONE(NUMBER, vision_height) ONE(NUMBER, width) ONE(NUMBER, height)
TABLE(static, reference, REFERENCE);
#undef T

// A net may lie where an earlier one was: the serials of the request's controls differ then.
#define T sumi_pipeline_control
#define CONTROL(ONE, NESTED, LIST)                                                                                     \
    ONE(NUMBER, net)                                                                                                   \
    ONE(NUMBER, picture_count)                                                                                         \
    ONE(NUMBER, has_picture) ONE(NUMBER, has_mask) ONE(NUMBER, samples_posterior) ONE(UNUSED, unused)
TABLE(static, control, CONTROL);
#undef T

// Adapters are empty in a request. They are made from the job's loras when the plan is written (plan_cache.c).
#define T sumi_pipeline_request
#define PIPELINE(ONE, NESTED, LIST)                                                                                    \
    ONE(NUMBER, goal)                                                                                                  \
    LIST(prompts, prompt_count, STRUCT, &prompt_table)                                                                 \
    ONE(NUMBER, prompt_count)                                                                                          \
    LIST(items, item_count, STRUCT, &item_table)                                                                       \
    ONE(NUMBER, item_count)                                                                                            \
    LIST(references, reference_count, STRUCT, &reference_table)                                                        \
    ONE(NUMBER, reference_count)                                                                                       \
    ONE(NUMBER, width)                                                                                                 \
    ONE(NUMBER, height)                                                                                                \
    LIST(guided, evaluation_count, NUMBER, NULL)                                                                       \
    LIST(active_controls, evaluation_count, NUMBER, NULL)                                                              \
    ONE(NUMBER, evaluation_count)                                                                                      \
    LIST(controls, control_count, STRUCT, &control_table)                                                              \
    ONE(NUMBER, control_count)                                                                                         \
    ONE(NUMBER, guidance_rule)                                                                                         \
    ONE(NUMBER, norm_limit)                                                                                            \
    ONE(NUMBER, has_base)                                                                                              \
    ONE(NUMBER, has_history)                                                                                           \
    ONE(NUMBER, starts_from_image)                                                                                     \
    ONE(NUMBER, starts_from_latents)                                                                                   \
    ONE(NUMBER, samples_posterior)                                                                                     \
    ONE(NUMBER, composites)                                                                                            \
    ONE(NUMBER, inpaints)                                                                                              \
    ONE(NUMBER, start_is_reference)                                                                                    \
    ONE(NUMBER, previews)                                                                                              \
    ONE(NUMBER, caches_steps)                                                                                          \
    ONE(NUMBER, long_strips)                                                                                           \
    ONE(NUMBER, tile_latent)                                                                                           \
    ONE(NUMBER, adapters)                                                                                              \
    ONE(NUMBER, text_adapters)                                                                                         \
    ONE(NUMBER, adapter_count)                                                                                         \
    ONE(NUMBER, shared_tokens)                                                                                         \
    ONE(NUMBER, shared_feature_rows)                                                                                   \
    ONE(UNUSED, unused)
TABLE(static, pipeline, PIPELINE);
#undef T

#define T sumi_weight_options
#define WEIGHT_OPTIONS(ONE, NESTED, LIST)                                                                              \
    ONE(NUMBER, weights)                                                                                               \
    ONE(NUMBER, text_weights) ONE(NUMBER, attention) ONE(NUMBER, streams_weights) ONE(UNUSED, unused)
TABLE(static, weight_options, WEIGHT_OPTIONS);
#undef T

#define T sumi_plan_request
#define REQUEST(ONE, NESTED, LIST)                                                                                     \
    NESTED(pipeline, &pipeline_table)                                                                                  \
    ONE(MODEL, model)                                                                                                  \
    LIST(loras, lora_count, LORA, NULL)                                                                                \
    LIST(lora_scales, lora_count, NUMBER, NULL)                                                                        \
    LIST(lora_text_scales, lora_count, NUMBER, NULL)                                                                   \
    ONE(NUMBER, lora_count)                                                                                            \
    LIST(controls, control_count, CONTROL, NULL)                                                                       \
    ONE(NUMBER, control_count)                                                                                         \
    ONE(NUMBER, memory_limit)                                                                                          \
    ONE(NUMBER, slice_us)                                                                                              \
    ONE(NUMBER, whole_ops)                                                                                             \
    NESTED(weight_options, &weight_options_table)                                                                      \
    ONE(UNUSED, unused)
TABLE(, sumi_plan_request, REQUEST);
#undef T

// ---- The key --------------------------------------------------------------------------------------------------------

static void add_bytes(sumi_packer* key, const void* data, size_t bytes)
{
    SUMI_ASSERT(data != NULL);
    if (key->base != NULL) memcpy(key->base + key->used, data, bytes);
    key->used += bytes;
}

static void add_struct(sumi_packer* key, const sumi_key_table* table, const unsigned char* data);

static void add_one(sumi_packer* key, const sumi_key_member* of, sumi_key_kind kind, const unsigned char* data,
                    size_t bytes)
{
    const sumi_model* model;
    const sumi_lora* lora;
    const sumi_control* control;
    switch (kind) {
    case SUMI_KEY_NUMBER: add_bytes(key, data, bytes); break;
    case SUMI_KEY_MODEL:
        memcpy(&model, data, sizeof model);
        add_bytes(key, &model->serial, sizeof model->serial);
        break;
    case SUMI_KEY_LORA:
        memcpy(&lora, data, sizeof lora);
        add_bytes(key, &lora->serial, sizeof lora->serial);
        break;
    case SUMI_KEY_CONTROL:
        memcpy(&control, data, sizeof control);
        add_bytes(key, &control->serial, sizeof control->serial);
        break;
    case SUMI_KEY_STRUCT: add_struct(key, of->table, data); break;
    case SUMI_KEY_LIST:
    case SUMI_KEY_UNUSED: break;
    }
}

// The number of elements comes first, so that no two requests have the same bytes.
static void add_list(sumi_packer* key, const sumi_key_member* list, const unsigned char* owner)
{
    const unsigned char* elements;
    int32_t count;
    memcpy(&elements, owner + list->offset, sizeof elements);
    memcpy(&count, owner + list->count_offset, sizeof count);
    SUMI_ASSERT(count >= 0);
    if (elements == NULL) count = -1;
    add_bytes(key, &count, sizeof count);
    for (int32_t i = 0; i < count; i++)
        add_one(key, list, list->element, elements + (size_t)i * list->element_size, list->element_size);
}

static void add_struct(sumi_packer* key, const sumi_key_table* table, const unsigned char* data)
{
    for (int32_t i = 0; i < table->count; i++) {
        const sumi_key_member* member = &table->members[i];
        if (member->kind == SUMI_KEY_LIST) add_list(key, member, data);
        else add_one(key, member, member->kind, data + member->offset, member->size);
    }
}

void sumi_plan_key_write(sumi_packer* key, const sumi_plan_request* request)
{
    SUMI_ASSERT(request->model != NULL && request->lora_count >= 0 && request->lora_count <= SUMI_MAX_LORAS);
    add_struct(key, &sumi_plan_request_table, (const unsigned char*)request);
}
