// Writing a plan: memory, sections and values. The verbs, which append ops, are in verbs_*.c. The work ranges and costs
// of ops are in op_kinds.c. layout.c finishes the plan.
#include "base/assert.h"
#include "plan/verb.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES 65536u

// ---- Memory and errors of the plan itself ---------------------------------------------------------------------------

bool sumi_plan_has_failed(const sumi_plan* plan) { return plan->error.result != SUMI_OK; }

void sumi_plan_mismatch(sumi_plan* plan, const char* label, const char* what)
{
    sumi_fail(&plan->error, SUMI_INTERNAL, "the plan cannot be written: %s%s: %s", plan->label_prefix, label, what);
}

void* sumi_plan_reserve(sumi_plan* plan, size_t bytes)
{
    if (sumi_plan_has_failed(plan)) return NULL;
    SUMI_ASSERT(plan->block_used <= plan->block_bytes);
    bytes = (bytes + 15) & ~(size_t)15;
    if (plan->block_count == 0 || plan->block_bytes - plan->block_used < bytes) {
        size_t block_bytes = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        if (sumi_grow(plan->heap, (void**)&plan->blocks, &plan->block_capacity, plan->block_count + 1,
                      sizeof *plan->blocks, &plan->error)
            != SUMI_OK)
            return NULL;
        void* block = sumi_alloc(plan->heap, block_bytes);
        if (block == NULL) {
            sumi_out_of_memory(&plan->error, block_bytes, "a plan");
            return NULL;
        }
        plan->blocks[plan->block_count++] = block;
        plan->block_used = 0;
        plan->block_bytes = block_bytes;
    }
    void* memory = (unsigned char*)plan->blocks[plan->block_count - 1] + plan->block_used;
    plan->block_used += bytes;
    return memory;
}

void* sumi_plan_copy(sumi_plan* plan, const void* data, size_t bytes)
{
    void* memory = sumi_plan_reserve(plan, bytes);
    if (memory != NULL && bytes > 0) memcpy(memory, data, bytes);
    return memory;
}

void sumi_plan_begin(sumi_plan* plan, sumi_heap* heap, int32_t activation_bytes)
{
    SUMI_ASSERT(heap != NULL && (activation_bytes == 2 || activation_bytes == 4));
    memset(plan, 0, sizeof *plan);
    plan->heap = heap;
    plan->activation_bytes = activation_bytes;
}

void sumi_plan_end(sumi_plan* plan)
{
    if (plan->heap == NULL) return;
    for (size_t i = 0; i < plan->block_count; i++) sumi_free(plan->heap, plan->blocks[i]);
    sumi_free(plan->heap, plan->blocks);
    sumi_free(plan->heap, plan->ops);
    sumi_free(plan->heap, plan->values);
    sumi_free(plan->heap, plan->sections);
    sumi_free(plan->heap, plan->slices);
    sumi_free(plan->heap, plan->constants);
    sumi_free(plan->heap, plan->adapted_vectors);
    memset(plan, 0, sizeof *plan);
}

void sumi_plan_section(sumi_plan* plan, sumi_section_kind kind, int32_t repeat, int32_t first_counter)
{
    if (sumi_grow(plan->heap, (void**)&plan->sections, &plan->section_capacity, plan->section_count + 1,
                  sizeof *plan->sections, &plan->error)
        != SUMI_OK)
        return;
    if (repeat < 1) {
        sumi_plan_mismatch(plan, "section", "it must run at least once");
        return;
    }
    int32_t begin = (int32_t)plan->op_count;
    plan->sections[plan->section_count++] = (sumi_section){kind, begin, begin, repeat, first_counter, 0, 0, false};
}

void sumi_plan_alternative(sumi_plan* plan)
{
    const sumi_section* other = plan->section_count > 0 ? &plan->sections[plan->section_count - 1] : NULL;
    if (other == NULL || other->is_alternative || other->op_begin == other->op_end) {
        sumi_plan_mismatch(plan, "section", "an alternative follows a section of its own with ops");
        return;
    }
    sumi_plan_section(plan, other->kind, other->repeat, other->first_counter);
    if (!sumi_plan_has_failed(plan)) plan->sections[plan->section_count - 1].is_alternative = true;
}

void sumi_plan_adapters(sumi_plan* plan, const sumi_adapter_use* uses, int32_t count)
{
    SUMI_ASSERT(count >= 0 && (count == 0 || uses != NULL));
    plan->adapters = uses;
    plan->adapter_count = count;
    plan->adapted_vector_count = 0;
}

void sumi_plan_prefix(sumi_plan* plan, const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(plan->label_prefix, sizeof plan->label_prefix, format, arguments);
    va_end(arguments);
}

// ---- Values ---------------------------------------------------------------------------------------------------------

static sumi_value add_value(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols,
                            bool bound)
{
    SUMI_ASSERT(name != NULL && element >= SUMI_ELEMENT_ACTIVATION && element <= SUMI_ELEMENT_BYTE);
    if (sumi_plan_has_failed(plan)) return SUMI_NO_VALUE;
    if (rows < 1 || cols < 1) {
        sumi_plan_mismatch(plan, name, "a value needs at least one row and one column");
        return SUMI_NO_VALUE;
    }
    if (sumi_grow(plan->heap, (void**)&plan->values, &plan->value_capacity, plan->value_count + 1, sizeof *plan->values,
                  &plan->error)
        != SUMI_OK)
        return SUMI_NO_VALUE;
    sumi_value_info* info = &plan->values[plan->value_count++];
    *info = (sumi_value_info){.name = name,
                              .element = element,
                              .rows = rows,
                              .cols = cols,
                              .pitch = cols,
                              .bound = bound,
                              .first_use = -1,
                              .last_use = -1};
    return (sumi_value){(int32_t)plan->value_count};
}

sumi_value sumi_plan_value(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols)
{
    return add_value(plan, name, element, rows, cols, false);
}

sumi_value sumi_plan_bound(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols)
{
    return add_value(plan, name, element, rows, cols, true);
}

uint64_t sumi_plan_element_bytes(const sumi_plan* plan, sumi_element element)
{
    return element == SUMI_ELEMENT_ACTIVATION ? (uint64_t)plan->activation_bytes : element == SUMI_ELEMENT_BYTE ? 1 : 4;
}

sumi_value sumi_plan_constant(sumi_plan* plan, const char* name, sumi_element element, int32_t rows, int32_t cols,
                              const void* data)
{
    sumi_value value = add_value(plan, name, element, rows, cols, true);
    uint64_t bytes = (uint64_t)rows * (uint64_t)cols * sumi_plan_element_bytes(plan, element);
    if (element == SUMI_ELEMENT_ACTIVATION)
        sumi_plan_mismatch(plan, name, "a constant is float, int or byte: activations differ between backends");
    const void* copy = sumi_plan_has_failed(plan) ? NULL : sumi_plan_copy(plan, data, (size_t)bytes);
    if (copy == NULL
        || sumi_grow(plan->heap, (void**)&plan->constants, &plan->constant_capacity, plan->constant_count + 1,
                     sizeof *plan->constants, &plan->error)
               != SUMI_OK)
        return SUMI_NO_VALUE;
    plan->constants[plan->constant_count++] = (sumi_constant){value, copy, bytes};
    return value;
}

const sumi_value_info* sumi_plan_info(const sumi_plan* plan, sumi_value value)
{
    static const sumi_value_info s_none = {.name = "none"};
    return value.id > 0 && (size_t)value.id <= plan->value_count ? &plan->values[value.id - 1] : &s_none;
}

bool sumi_plan_writes(const sumi_plan* plan, sumi_value value)
{
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_value out = plan->ops[i].out;
        if (out.id == value.id || sumi_plan_info(plan, out)->base.id == value.id
            || (plan->ops[i].kind == SUMI_OP_PIXELS_OUT && plan->ops[i].in[1].id == value.id))
            return true;
    }
    return false;
}

double sumi_plan_value_bytes(const sumi_plan* plan, sumi_value value)
{
    const sumi_value_info* info = sumi_plan_info(plan, value);
    return (double)info->rows * info->cols * (double)sumi_plan_element_bytes(plan, info->element);
}

static sumi_value add_view(sumi_plan* plan, const char* name, sumi_value of, sumi_span rows, sumi_span cols)
{
    const sumi_value_info cut_from = *sumi_plan_info(plan, of);
    if (rows.begin < 0 || rows.begin + rows.count > cut_from.rows || cols.begin < 0
        || cols.begin + cols.count > cut_from.cols) {
        sumi_plan_mismatch(plan, name, "a view lies outside its value");
        return SUMI_NO_VALUE;
    }
    sumi_value view = add_value(plan, name, cut_from.element, rows.count, cols.count, false);
    if (view.id != 0) {
        sumi_value_info* info = &plan->values[view.id - 1];
        SUMI_ASSERT(cut_from.pitch >= cut_from.cols);
        info->pitch = cut_from.pitch;
        info->base = cut_from.base.id != 0 ? cut_from.base : of;
        info->cut_from = of;
        info->cut_from_row = rows.begin;
        info->base_element =
            cut_from.base_element + (uint64_t)rows.begin * (uint64_t)cut_from.pitch + (uint64_t)cols.begin;
    }
    return view;
}

sumi_value sumi_plan_view(sumi_plan* plan, const char* name, sumi_value of, sumi_span rows, sumi_span cols)
{
    if (sumi_plan_info(plan, of)->bound) {
        sumi_plan_mismatch(plan, name, "a bound value has no views of some of its rows and columns");
        return SUMI_NO_VALUE;
    }
    return add_view(plan, name, of, rows, cols);
}

sumi_value sumi_plan_reshape(sumi_plan* plan, const char* name, sumi_value of, int32_t rows, int32_t cols)
{
    const sumi_value_info cut_from = *sumi_plan_info(plan, of);
    if (cut_from.pitch != cut_from.cols || (int64_t)rows * cols != (int64_t)cut_from.rows * cut_from.cols) {
        sumi_plan_mismatch(plan, name,
                           "rows of another length must hold the same elements, and those of some columns cannot");
        return SUMI_NO_VALUE;
    }
    sumi_value view = add_view(plan, name, of, (sumi_span){0, cut_from.rows}, (sumi_span){0, cut_from.cols});
    if (view.id != 0) {
        sumi_value_info* info = &plan->values[view.id - 1];
        info->rows = rows;
        info->cols = info->pitch = cols;
    }
    return view;
}

void sumi_plan_share(sumi_plan* plan, sumi_value guest, sumi_value host)
{
    if (sumi_plan_has_failed(plan)) return;
    const sumi_value_info *a = sumi_plan_info(plan, guest), *b = sumi_plan_info(plan, host);
    bool is_possible = !a->bound && a->base.id == 0 && !b->bound && b->base.id == 0 && guest.id != host.id;
    if (!is_possible || sumi_plan_value_bytes(plan, guest) > sumi_plan_value_bytes(plan, host)) {
        sumi_plan_mismatch(plan, a->name, "this value cannot lie inside the other");
        return;
    }
    plan->values[guest.id - 1].container = host;
}
