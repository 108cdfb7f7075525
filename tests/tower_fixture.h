// What the tests of vision towers share: opening one of a golden checkpoint, damaging it, and checks that hold for each.
#ifndef TOWER_FIXTURE_H
#define TOWER_FIXTURE_H
#include "cpu_runner.h"
#include "failing.h"
#include "models/qwen3_vision.h"
#include "models/qwen_vision.h"
#include "models/signatures.h"
#include "system.h"

typedef struct tower_kind {
    const sumi_vision_module* module;
    const char *text_encoder, *processor, *network; // of the golden checkpoint
    const char* prefix;                             // of the tower's tensors there
} tower_kind;

typedef struct tower {
    const tower_kind* kind;
    sumi_checkpoint checkpoint;
    sumi_weight_list list;
    sumi_binder binder;
    sumi_module_config config, processor;
    sumi_file processor_file;
    union {
        sumi_qwen_vision qwen;
        sumi_qwen3_vision qwen3;
    } model;
    sumi_error error;
} tower;

static inline bool open_tower(tower* t, const tower_kind* kind)
{
    memset(t, 0, sizeof *t);
    t->kind = kind;
    sumi_checkpoint_desc desc = {.component_paths = {[SUMI_COMPONENT_TEXT_ENCODER] = kind->text_encoder}};
    desc.signatures = sumi_signatures(&desc.signature_count);
    desc.class_words = sumi_class_words();
    sumi_weight_list_init(&t->list, &s_heap);
    bool good = sumi_checkpoint_open(&t->checkpoint, &s_heap, NULL, &desc, &t->error) == SUMI_OK
             && sumi_file_open(&t->processor_file, &s_heap, NULL, kind->processor, &t->error) == SUMI_OK;
    const sumi_component* part = &t->checkpoint.components[SUMI_COMPONENT_VISION];
    CHECK_TEXT(t->error.text, "");
    CHECK(good && part->present);
    CHECK_TEXT(sumi_component_network(part), kind->network);
    t->binder = (sumi_binder){.list = &t->list, .component = part, .what = "the vision tower", .error = &t->error};
    t->config = (sumi_module_config){part->config.data, (size_t)part->config.bytes, "config.json"};
    t->processor =
        (sumi_module_config){t->processor_file.data, (size_t)t->processor_file.bytes, "preprocessor_config.json"};
    return good && part->present;
}

static inline void close_tower(tower* t)
{
    sumi_weight_list_close(&t->list);
    sumi_file_close(&t->processor_file);
    sumi_checkpoint_close(&t->checkpoint);
}

static inline sumi_result bind_tower(tower* t, const void* settings)
{
    return t->kind->module->bind(&t->model, settings, &t->binder, &t->config, &t->processor);
}

// Every tensor is missing once, and has half as many rows once. Returns how often one of the tower's did.
static inline size_t check_damaged_towers(const tower_kind* kind)
{
    tower t;
    size_t count = open_tower(&t, kind) ? t.checkpoint.components[SUMI_COMPONENT_VISION].set->count : 0, tried = 0;
    close_tower(&t);
    for (size_t i = 0; i < count; i++) {
        for (int how = 0; how < 2; how++) {
            if (!open_tower(&t, kind)) return tried;
            sumi_tensor* tensor = (sumi_tensor*)&t.checkpoint.components[SUMI_COMPONENT_VISION].set->tensors[i];
            const char* name = tensor->name;
            const bool is_of_tower = strncmp(name, kind->prefix, strlen(kind->prefix)) == 0;
            if (how == 0) tensor->name = "gone";
            else tensor->shape[0] /= 2;
            const sumi_result result = bind_tower(&t, NULL);
            const bool expected = is_of_tower ? result == SUMI_TENSOR_MISSING || result == SUMI_TENSOR_MISMATCH
                                                    || result == SUMI_NOT_SUPPORTED
                                              : result == SUMI_OK;
            if (!expected) printf("  %s: result %d, \"%s\"\n", name, (int)result, t.error.text);
            CHECK(expected);
            CHECK(result == SUMI_OK || strstr(t.error.text, "text_encoder") != NULL);
            tried += is_of_tower;
            close_tower(&t);
            CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
        }
    }
    return tried;
}

typedef struct tower_config_case {
    const char *config, *processor;
    sumi_result result;
    const char* says;
} tower_config_case;

static inline void check_tower_configs(const tower_kind* kind, const void* settings, const tower_config_case* cases,
                                       size_t count)
{
    for (size_t i = 0; i < count; i++) {
        tower t;
        if (open_tower(&t, kind)) {
            t.config = (sumi_module_config){cases[i].config, strlen(cases[i].config), "config.json"};
            t.processor =
                (sumi_module_config){cases[i].processor, strlen(cases[i].processor), "preprocessor_config.json"};
            const sumi_result result = bind_tower(&t, settings);
            if (result != cases[i].result || strstr(t.error.text, cases[i].says) == NULL)
                printf("  %s %s: result %d, \"%s\"\n", cases[i].config, cases[i].processor, (int)result, t.error.text);
            CHECK_NUMBER(result, cases[i].result);
            CHECK(strstr(t.error.text, cases[i].says) != NULL);
        }
        close_tower(&t);
    }
}

// Sizes beside a picture of one cell, which do not consist of cells, or are not the picture's.
static inline void check_broken_cells(const tower_kind* kind, int32_t cell)
{
    const int32_t sizes[][2] = {{cell - 1, cell}, {cell, cell + 1}, {0, cell}, {cell, -cell}, {2 * cell, cell}};
    char says[80];
    tower t;
    snprintf(says, sizeof says, "does not consist of whole cells of %d", (int)cell);
    if (open_tower(&t, kind) && bind_tower(&t, NULL) == SUMI_OK) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            sumi_plan plan;
            sumi_error error = {0};
            sumi_plan_begin(&plan, &s_heap, 4);
            sumi_plan_section(&plan, SUMI_SECTION_VISION, 1, 0);
            sumi_value in = sumi_plan_bound(&plan, "bytes", SUMI_ELEMENT_BYTE, cell * cell, 3);
            kind->module->write(&t.model, &plan, in, sizes[i][0], sizes[i][1]);
            CHECK_NUMBER(sumi_plan_finish(&plan, &error), SUMI_INTERNAL);
            CHECK(strstr(error.text, says) != NULL);
            sumi_plan_end(&plan);
        }
    }
    close_tower(&t);
}

// Every allocation of a bind and a plan fails once.
static inline void check_failing_allocations(const tower_kind* kind, int32_t height, int32_t width)
{
    tower t;
    if (open_tower(&t, kind)) {
        bool finished = false;
        for (long n = 0; n < 5000 && !finished; n++) {
            failing f = {.left = n};
            const sumi_allocator allocator = failing_allocator(&f);
            sumi_heap heap;
            sumi_heap_init(&heap, &allocator);
            sumi_weight_list list;
            sumi_weight_list_init(&list, &heap);
            sumi_error error = {0};
            memset(&t.model, 0, sizeof t.model);
            sumi_binder binder = {
                .list = &list, .component = t.binder.component, .what = "the vision tower", .error = &error};
            sumi_result result = kind->module->bind(&t.model, NULL, &binder, &t.config, &t.processor);
            if (result == SUMI_OK) {
                sumi_plan plan;
                sumi_plan_begin(&plan, &heap, 4);
                sumi_plan_section(&plan, SUMI_SECTION_VISION, 1, 0);
                sumi_value in = sumi_plan_bound(&plan, "bytes", SUMI_ELEMENT_BYTE, height * width, 3);
                kind->module->write(&t.model, &plan, in, height, width);
                result = sumi_plan_finish(&plan, &error);
                sumi_plan_end(&plan);
            }
            CHECK(result == SUMI_OK || result == SUMI_OUT_OF_HOST_MEMORY);
            finished = result == SUMI_OK;
            sumi_weight_list_close(&list);
            CHECK_NUMBER(atomic_load(&heap.allocated_bytes), 0);
        }
        CHECK(finished);
    }
    close_tower(&t);
}
#endif
