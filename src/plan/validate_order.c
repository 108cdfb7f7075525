// Order of reads and writes. An interval map stores, for each byte of the arena, the value and the view that have
// written it last. The ops are run through this map in the order of the runner, and a read must find all its bytes
// written by its own value. One check thus finds rows that were never written, rows whose bytes another value has
// overwritten, and rows that another view of the same value has overwritten. A repeated section is run twice.
// In the first iteration an op may read only rows that ops before it have written, and in the second also rows that the
// first iteration has left. The second iteration represents all further ones: it has the table rows of all their
// counters.
// A section with an alternative is run again after the alternative was run twice, because their iterations mix.
// The map works with whole rows of the base: a write through a view of some columns counts for the whole row.
#include "plan/validator.h"
#include <string.h>

// The index of the first entry whose end is after `at`.
static size_t find_owned(const sumi_validator* v, uint64_t at)
{
    size_t low = 0, high = v->map_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (v->map[middle].end > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static bool is_same_owner(const sumi_owned_bytes* a, const sumi_owned_bytes* b)
{
    return a->value == b->value && a->view == b->view;
}

// Makes `fresh` the owner of its bytes in the map. Adjacent entries of the same owner are merged.
static sumi_result set_owner(sumi_validator* v, sumi_owned_bytes fresh)
{
    SUMI_TRY(sumi_grow(&v->heap, (void**)&v->map, &v->map_capacity, v->map_count + 2, sizeof *v->map, v->error));
    size_t first = find_owned(v, fresh.begin), last = first, count = 0;
    if (first > 0 && v->map[first - 1].end == fresh.begin && is_same_owner(&v->map[first - 1], &fresh)) first--;
    while (last < v->map_count
           && (v->map[last].begin < fresh.end
               || (v->map[last].begin == fresh.end && is_same_owner(&v->map[last], &fresh))))
        last++;
    sumi_owned_bytes pieces[3], before = fresh, behind = fresh;
    if (first < last) {
        before = v->map[first];
        behind = v->map[last - 1];
    }
    if (before.begin < fresh.begin && is_same_owner(&before, &fresh)) {
        fresh.begin = before.begin;
    } else if (before.begin < fresh.begin) {
        pieces[count++] = (sumi_owned_bytes){before.begin, fresh.begin, before.value, before.view};
    }
    const size_t fresh_index = count++;
    if (behind.end > fresh.end && is_same_owner(&behind, &fresh)) {
        fresh.end = behind.end;
    } else if (behind.end > fresh.end) {
        pieces[count++] = (sumi_owned_bytes){fresh.end, behind.end, behind.value, behind.view};
    }
    pieces[fresh_index] = fresh;
    memmove(v->map + first + count, v->map + last, (v->map_count - last) * sizeof *v->map);
    memcpy(v->map + first, pieces, count * sizeof *pieces);
    v->map_count = v->map_count - (last - first) + count;
    return SUMI_OK;
}

// The bytes of an access, extended to whole rows of the base.
static sumi_owned_bytes owned_bytes(const sumi_plan* plan, const sumi_op_access* a)
{
    const sumi_value base = sumi_validate_owner(plan, a->value);
    const sumi_value_info* info = sumi_plan_info(plan, base);
    const uint64_t row_bytes = (uint64_t)info->pitch * sumi_plan_element_bytes(plan, info->element);
    const sumi_rectangle r = sumi_validate_rectangle(plan, a);
    sumi_value view = a->value; // the outermost view
    while (view.id != base.id && sumi_plan_info(plan, view)->cut_from.id != base.id)
        view = sumi_plan_info(plan, view)->cut_from;
    return (sumi_owned_bytes){info->offset + r.row * row_bytes, info->offset + (r.row + r.rows) * row_bytes, base.id,
                              view.id};
}

static sumi_result check_written(const sumi_validator* v, const sumi_op* op, const sumi_op_access* a)
{
    const sumi_owned_bytes needed = owned_bytes(v->plan, a);
    uint64_t at = needed.begin;
    for (size_t i = find_owned(v, at); at < needed.end; i++) {
        const sumi_owned_bytes* owned = i < v->map_count && v->map[i].begin <= at ? &v->map[i] : NULL;
        const bool is_same_value = owned != NULL && owned->value == needed.value;
        if (!is_same_value
            || (owned->view != needed.view && owned->view != needed.value && needed.view != needed.value)) {
            const sumi_value_info* base = sumi_plan_info(v->plan, (sumi_value){needed.value});
            const uint64_t row_bytes = (uint64_t)base->pitch * sumi_plan_element_bytes(v->plan, base->element);
            return sumi_fail(
                v->error, SUMI_INTERNAL, "op %d (%s, %s): value %s: row %llu is read, but %s%s",
                (int)(op - v->plan->ops), sumi_op_name(op->kind), op->label, sumi_validate_name(v->plan, a->value),
                (unsigned long long)((at - needed.begin) / row_bytes + (uint64_t)a->row),
                owned == NULL   ? "no op before this one has written it"
                : is_same_value ? "another view of its memory was written since: "
                                : "its memory was overwritten by the value ",
                owned == NULL ? ""
                              : sumi_validate_name(v->plan, (sumi_value){is_same_value ? owned->view : owned->value}));
        }
        at = owned->end;
    }
    return SUMI_OK;
}

static sumi_result run_op(sumi_validator* v, const sumi_op* op, int32_t first, int32_t count)
{
    SUMI_TRY(sumi_op_list_accesses(&v->accesses, op, first, count));
    for (size_t i = 0; i < v->accesses.count; i++) {
        const sumi_op_access* a = &v->accesses.list[i];
        const sumi_value_info* base = sumi_plan_info(v->plan, sumi_validate_owner(v->plan, a->value));
        if (base->is_unstored) continue;
        SUMI_TRY(a->writes ? set_owner(v, owned_bytes(v->plan, a)) : check_written(v, op, a));
    }
    return SUMI_OK;
}

static sumi_result run_section(sumi_validator* v, const sumi_section* section, int32_t round)
{
    for (int32_t i = section->op_begin; i < section->op_end; i++)
        SUMI_TRY(run_op(v, &v->plan->ops[i], round, round == 0 ? 1 : section->repeat - 1));
    return SUMI_OK;
}

// plan.h: the rows of a value are written before they are read. Bound values are written by the engine or are
// constants.
sumi_result sumi_validate_order(sumi_validator* v)
{
    const sumi_plan* plan = v->plan;
    v->accesses.by_line = true;
    for (size_t i = 0; i < plan->value_count; i++) {
        const sumi_value_info* info = &plan->values[i];
        if (info->bound && info->base.id == 0) {
            SUMI_TRY(set_owner(
                v, (sumi_owned_bytes){info->offset, info->offset + info->bytes, (int32_t)i + 1, (int32_t)i + 1}));
        }
    }
    for (size_t s = 0; s < plan->section_count; s++) {
        const sumi_section* section = &plan->sections[s];
        for (int32_t round = 0; round < 2 && round < section->repeat; round++) SUMI_TRY(run_section(v, section, round));
        if (section->is_alternative && section->repeat > 1) SUMI_TRY(run_section(v, section - 1, 1));
    }
    return SUMI_OK;
}
