// Finishing a plan: lifetimes, the arena, slices.
//
//  first and last use of each value --the backend's arrange--> pairs of ops --> lifetimes --> offsets
//
// The arena. A value lives from the first to the last op that uses it. Exceptions: a value from before a repeated
// section that is last used in it lives until the section ends, because the next iteration reads the value again. A
// section and its alternative count as one section here, and a value that one of them leaves to the other lives until
// both end. A bound value lives through the whole plan. The output of the second op of a pair lives from the first op
// of the pair on, because both are executed together. A value that is not stored has no bytes. A use of a view is a use
// of its base.
//
// Values are placed largest first, at the lowest offset where no value lies that is alive at the same time. This greedy
// order by size comes within a few percent of the lower bound for these graphs, and it is deterministic. A guest
// (sumi_plan_share) is placed directly after its host, at the host's offset if no other value prevents that.
//
// Slices. Whole ops are gathered into a slice until the predicted time reaches the bound. An op above the bound is cut
// into several slices, each with some of its work ranges.
#include "base/assert.h"
#include "base/memory.h"
#include "plan/op_kinds.h"
#include "plan/validate.h"
#include <string.h>

// ---- Lifetimes and the arena ----------------------------------------------------------------------------------------

static void note_use(sumi_plan* plan, sumi_value value, int32_t op_index)
{
    if (value.id == 0) return;
    SUMI_ASSERT(value.id > 0 && (size_t)value.id <= plan->value_count);
    sumi_value_info* info = &plan->values[value.id - 1];
    SUMI_ASSERT(info->base.id == 0 || (size_t)info->base.id <= plan->value_count);
    if (info->base.id != 0) info = &plan->values[info->base.id - 1];
    if (info->first_use < 0) info->first_use = op_index;
    info->last_use = op_index;
}

// Finds the first and the last op that uses each value. A plan may be finished again, so marks and uses are reset
// first.
static void find_uses(sumi_plan* plan)
{
    for (size_t v = 0; v < plan->value_count; v++) {
        sumi_value_info* info = &plan->values[v];
        info->first_use = info->last_use = -1;
        info->is_unstored = false;
        info->marks = 0;
    }
    for (size_t i = 0; i < plan->op_count; i++) {
        sumi_op* op = &plan->ops[i];
        op->is_first_of_pair = op->is_beside_next = false;
        op->marks = 0;
        SUMI_ASSERT(!op->is_cut || plan->arrange != NULL); // which cuts it again
        for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) note_use(plan, op->in[k], (int32_t)i);
        note_use(plan, op->out, (int32_t)i);
        note_use(plan, op->mask, (int32_t)i);
        // the step table of a solver is not one of the six inputs
        note_use(plan, op->kind == SUMI_OP_SOLVE ? op->u.solve.row.table : SUMI_NO_VALUE, (int32_t)i);
    }
}

// Computes lifetimes from uses and pairs of ops.
static void find_lifetimes(sumi_plan* plan)
{
    for (size_t i = 0; i + 1 < plan->op_count; i++) {
        const sumi_value written = plan->ops[i + 1].out;
        if ((!plan->ops[i].is_first_of_pair && !plan->ops[i].is_beside_next) || written.id == 0) continue;
        sumi_value_info* info = &plan->values[written.id - 1];
        if (info->base.id != 0) info = &plan->values[info->base.id - 1];
        if (info->first_use > (int32_t)i) info->first_use = (int32_t)i;
    }
    for (size_t v = 0; v < plan->value_count; v++) {
        sumi_value_info* info = &plan->values[v];
        if (info->bound) {
            info->first_use = 0;
            info->last_use = (int32_t)plan->op_count - 1;
            continue;
        }
        for (size_t s = 0; s < plan->section_count; s++) {
            const sumi_section* section = &plan->sections[s];
            const bool has_alternative = sumi_plan_has_alternative(plan, s);
            const int32_t end = has_alternative ? section[1].op_end : section->op_end;
            if (section->is_alternative || info->first_use < 0 || info->last_use < section->op_begin
                || info->last_use >= end)
                continue;
            const bool enters = info->first_use < section->op_begin, crosses = has_alternative
                                                                            && info->first_use < section->op_end
                                                                            && info->last_use >= section->op_end;
            if ((section->repeat > 1 && enters) || crosses) info->last_use = end - 1;
        }
    }
}

typedef struct placed {
    uint64_t offset, end;
    int32_t first, last, value;
} placed;
typedef struct candidate {
    uint64_t bytes;
    int32_t value;
    bool is_guest;
} candidate; // bytes: of a guest, those of its host

// Larger values are placed first; among equals, the value that was created first.
static int compare_candidates(const void* a, const void* b)
{
    const candidate *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    if (x->is_guest != y->is_guest) return x->is_guest ? 1 : -1;
    return (x->value > y->value) - (x->value < y->value);
}

static bool lives_overlap(const placed* entry, const sumi_value_info* info)
{
    SUMI_ASSERT(entry->first <= entry->last && info->first_use >= 0 && info->first_use <= info->last_use);
    return entry->first <= info->last_use && info->first_use <= entry->last;
}

// Whether a guest of this many bytes can lie at the offset of its host.
static bool can_share(const sumi_plan* plan, const placed* entries, size_t count, const sumi_value_info* guest,
                      uint64_t bytes)
{
    const sumi_value_info* container = sumi_plan_info(plan, guest->container);
    SUMI_ASSERT(guest->container.id != 0 && container->container.id == 0
                && container->base.id == 0); // a host is not itself a guest
    if (container->first_use < 0 || container->bound || guest->bound || container->is_unstored) return false;
    for (size_t k = 0; k < count; k++) {
        bool is_host = entries[k].value == guest->container.id - 1;
        if (!is_host && lives_overlap(&entries[k], guest) && entries[k].offset < container->offset + bytes
            && container->offset < entries[k].end)
            return false;
    }
    return true;
}

static void place_views(sumi_plan* plan)
{
    for (size_t v = 0; v < plan->value_count; v++) {
        sumi_value_info* info = &plan->values[v];
        if (info->base.id != 0) {
            const sumi_value_info* base = &plan->values[info->base.id - 1];
            SUMI_ASSERT(base->base.id == 0 && base->element == info->element);
            uint64_t element = sumi_plan_element_bytes(plan, info->element);
            info->first_use = base->first_use;
            info->last_use = base->last_use;
            info->offset = base->offset + info->base_element * element;
            info->bytes = ((uint64_t)(info->rows - 1) * (uint64_t)info->pitch + (uint64_t)info->cols) * element;
        }
    }
}

#define STRETCH 64 // a stretch is this many consecutive ops

// Placed values, sorted by offset. There is one list for each stretch of ops, with the values that live in the stretch.
// Most values live within one stretch, and for them only its list is searched: decoding in small tiles has thousands of
// values, and few of them live in the same stretch. One more list has all values, and is searched for values that live
// in several stretches.
typedef struct sorted_list {
    placed* entries;
    size_t count;
} sorted_list;

// Inserts after the values with the same offset.
static void insert_by_offset(sorted_list* sorted, placed value)
{
    SUMI_ASSERT(value.offset <= value.end && value.offset % SUMI_ALIGNMENT == 0);
    size_t low = 0, high = sorted->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (sorted->entries[middle].offset > value.offset) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    memmove(sorted->entries + low + 1, sorted->entries + low, (sorted->count - low) * sizeof *sorted->entries);
    sorted->entries[low] = value;
    sorted->count++;
}

// The lowest offset, not below `offset`, at which `bytes` bytes overlap no value of the list that is alive at the same
// time.
static uint64_t lowest_gap(const sorted_list* sorted, const sumi_value_info* info, uint64_t bytes, uint64_t offset)
{
    for (size_t k = 0; k < sorted->count; k++) {
        if (!lives_overlap(&sorted->entries[k], info)) continue;
        if (offset + bytes <= sorted->entries[k].offset) {
            break; // the gap before this value is large enough
        }
        if (sorted->entries[k].end > offset) offset = sorted->entries[k].end;
    }
    return offset;
}

// Allocates the lists: one per stretch, with capacity for the values that live in it, and a last one for all values.
// Returns NULL if memory is short. One allocation holds the structs and then their entries.
static sorted_list* make_lists(const sumi_plan* plan, const candidate* order, size_t used, size_t* out_count)
{
    const size_t stretch_count = plan->op_count / STRETCH + 1;
    size_t capacity = used;
    for (size_t i = 0; i < used; i++) {
        const sumi_value_info* info = &plan->values[order[i].value];
        capacity += (size_t)(info->last_use / STRETCH - info->first_use / STRETCH) + 1;
    }
    const size_t header_bytes = (stretch_count + 1) * sizeof(sorted_list);
    sorted_list* lists = sumi_alloc_zero(plan->heap, header_bytes + capacity * sizeof(placed));
    *out_count = stretch_count + 1;
    if (lists == NULL) return NULL;
    for (size_t i = 0; i < used; i++) {
        const sumi_value_info* info = &plan->values[order[i].value];
        SUMI_ASSERT((size_t)(info->last_use / STRETCH) < stretch_count);
        for (int32_t s = info->first_use / STRETCH; s <= info->last_use / STRETCH; s++) lists[s].count++;
    }
    placed* next_entries = (placed*)(void*)((unsigned char*)lists + header_bytes);
    for (size_t s = 0; s <= stretch_count; s++) {
        lists[s].entries = next_entries;
        next_entries += lists[s].count;
        lists[s].count = 0;
    }
    return lists;
}

static sumi_result place_values(sumi_plan* plan, sumi_error* error)
{
    size_t count = plan->value_count;
    candidate* order = sumi_alloc_array(plan->heap, count + 1, sizeof *order);
    if (order == NULL) return sumi_out_of_memory(error, count * sizeof *order, "the arena's layout");
    size_t used = 0;
    for (size_t v = 0; v < count; v++) {
        sumi_value_info* info = &plan->values[v];
        info->bytes = info->is_unstored
                        ? 0
                        : (uint64_t)info->rows * (uint64_t)info->cols * sumi_plan_element_bytes(plan, info->element);
        if (info->first_use >= 0 && info->base.id == 0 && !info->is_unstored) {
            const sumi_value_info* largest = info->container.id != 0 ? sumi_plan_info(plan, info->container) : info;
            uint64_t bytes =
                (uint64_t)largest->rows * (uint64_t)largest->cols * sumi_plan_element_bytes(plan, largest->element);
            order[used++] = (candidate){bytes, (int32_t)v, largest != info};
        }
    }
    sumi_sort(order, used, sizeof *order, compare_candidates);
    size_t list_count = 0;
    sorted_list* lists = make_lists(plan, order, used, &list_count);
    if (lists == NULL) {
        sumi_free(plan->heap, order);
        return sumi_out_of_memory(error, used * sizeof(placed), "the arena's layout");
    }
    plan->arena_bytes = 0;
    for (size_t i = 0; i < used; i++) {
        sumi_value_info* info = &plan->values[order[i].value];
        uint64_t bytes = (info->bytes + SUMI_ALIGNMENT - 1) / SUMI_ALIGNMENT * SUMI_ALIGNMENT;
        const int32_t first = info->first_use / STRETCH, last = info->last_use / STRETCH;
        const sorted_list* searched_list = first == last ? &lists[first] : &lists[list_count - 1];
        bool shares = order[i].is_guest && can_share(plan, searched_list->entries, searched_list->count, info, bytes);
        uint64_t offset =
            shares ? sumi_plan_info(plan, info->container)->offset : lowest_gap(searched_list, info, bytes, 0);
        SUMI_ASSERT(!shares
                    || offset + bytes
                           <= sumi_plan_info(plan, info->container)->offset + order[i].bytes + SUMI_ALIGNMENT);
        const placed value = {offset, offset + bytes, info->first_use, info->last_use, order[i].value};
        for (int32_t s = first; s <= last; s++) insert_by_offset(&lists[s], value);
        insert_by_offset(&lists[list_count - 1], value);
        info->offset = offset;
        if (offset + bytes > plan->arena_bytes) plan->arena_bytes = offset + bytes;
    }
    sumi_free(plan->heap, order);
    sumi_free(plan->heap, lists);
    place_views(plan);
    return SUMI_OK;
}

// Whether all values of the op have dense rows, or the op accepts a pitch larger than the row.
static bool takes_pitch(const sumi_plan* plan, const sumi_op* op)
{
    if (sumi_op_kind_get(op->kind)->takes_pitch) return true;
    for (int32_t k = sumi_op_kind_get(op->kind)->reads_any_pitch ? 1 : 0; k <= SUMI_OP_MAX_INPUTS; k++) {
        const sumi_value_info* info = sumi_plan_info(plan, k < SUMI_OP_MAX_INPUTS ? op->in[k] : op->out);
        if (info->pitch != info->cols) return false;
    }
    return true;
}

sumi_result sumi_plan_finish(sumi_plan* plan, sumi_error* error)
{
    if (plan->error.result != SUMI_OK) return sumi_fail_with(error, &plan->error);
    if (plan->op_count == 0) return sumi_fail(error, SUMI_INTERNAL, "the plan has no ops");
    for (size_t i = 0; i < plan->op_count; i++) {
        if (!takes_pitch(plan, &plan->ops[i])) {
            return sumi_fail(error, SUMI_INTERNAL,
                             "the plan cannot be written: %s: this op takes no view of some columns",
                             plan->ops[i].label);
        }
    }
    find_uses(plan);
    if (plan->arrange != NULL) plan->arrange(plan->runner, plan);
    find_lifetimes(plan);
    plan->total_flops = 0;
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_section* section = &plan->sections[plan->ops[i].section];
        plan->total_flops += section->is_alternative ? 0.0 : plan->ops[i].flops * section->repeat;
    }
    SUMI_TRY(place_values(plan, error));
#ifdef SUMI_CHECKED
    SUMI_TRY(sumi_plan_validate(plan, error));
#endif
    return SUMI_OK;
}

// ---- Slices ---------------------------------------------------------------------------------------------------------

float sumi_plan_predict_us(const sumi_plan* plan, const sumi_op* op, const sumi_rates* rates)
{
    (void)plan;
    SUMI_ASSERT(rates->flops_per_us > 0.0 && rates->bytes_per_us > 0.0 && rates->op_us >= 0.0);
    SUMI_ASSERT(op->flops >= 0.0 && op->bytes >= 0.0);
    double compute = op->flops / rates->flops_per_us, memory = op->bytes / rates->bytes_per_us;
    if (op->kind == SUMI_OP_CONV) compute *= (double)sumi_plan_conv_effort(op->weight) / op->weight->rows;
    return (float)((compute > memory ? compute : memory) + rates->op_us);
}

static sumi_result add_slice(sumi_plan* plan, sumi_slice slice, sumi_error* error)
{
    SUMI_ASSERT(slice.op_begin >= 0 && slice.op_begin < slice.op_end && (size_t)slice.op_end <= plan->op_count);
    SUMI_ASSERT(slice.op_end > slice.op_begin + 1 || (slice.range_begin >= 0 && slice.range_begin < slice.range_end));
    SUMI_TRY(sumi_grow(plan->heap, (void**)&plan->slices, &plan->slice_capacity, plan->slice_count + 1,
                       sizeof *plan->slices, error));
    plan->slices[plan->slice_count++] = slice;
    return SUMI_OK;
}

// The share of work ranges [begin, end) in an op's time, in proportion to their rows. The last work range
// may have far fewer rows than the others.
static float range_share(const sumi_op* op, int32_t begin, int32_t end)
{
    SUMI_ASSERT(begin >= 0 && begin < end && end <= op->range_count && op->range_rows >= 1);
    const int64_t first = (int64_t)begin * op->range_rows, last = (int64_t)end * op->range_rows,
                  rows = (last < op->rows ? last : op->rows) - first;
    return op->rows > 0 && rows > 0 ? (float)rows / (float)op->rows : 0.0f;
}

static sumi_result slice_section(sumi_plan* plan, sumi_section* section, const sumi_slicing* slicing, sumi_error* error)
{
    const float *op_ratio = slicing->op_ratio, bound = (float)slicing->max_us, gathered = (float)slicing->gathered_us;
    sumi_slice gathered_ops = {.op_begin = section->op_begin, .op_end = section->op_begin}; // whole ops gathered so far
    for (int32_t i = section->op_begin; i < section->op_end; i++) {
        const sumi_op* op = &plan->ops[i];
        float time = sumi_plan_predict_us(plan, op, slicing->rates) * (op_ratio != NULL ? op_ratio[op->kind] : 1.0f);
        bool has_own_slices = gathered <= 0.0f || time > gathered;
        if (gathered_ops.op_end > gathered_ops.op_begin
            && (has_own_slices || gathered_ops.predicted_us + time > gathered)) {
            SUMI_TRY(add_slice(plan, gathered_ops, error));
            gathered_ops = (sumi_slice){.op_begin = i, .op_end = i};
        }
        if (!has_own_slices) {
            gathered_ops.op_end = i + 1;
            gathered_ops.range_end = op->range_count; // read only if the slice has a single op
            gathered_ops.predicted_us += time;
            continue;
        }
        // how many work ranges fit the bound
        int32_t ranges_per_slice =
            bound <= 0.0f ? op->range_count : (int32_t)((double)op->rows / op->range_rows * bound / time);
        if (ranges_per_slice < 1) ranges_per_slice = 1;
        for (int32_t begin = 0; begin < op->range_count; begin += ranges_per_slice) {
            int32_t end = op->range_count - begin < ranges_per_slice ? op->range_count : begin + ranges_per_slice;
            const sumi_slice slice = {.op_begin = i,
                                      .op_end = i + 1,
                                      .range_begin = begin,
                                      .range_end = end,
                                      .predicted_us = time * range_share(op, begin, end)};
            SUMI_TRY(add_slice(plan, slice, error));
        }
        gathered_ops = (sumi_slice){.op_begin = i + 1, .op_end = i + 1};
    }
    if (gathered_ops.op_end > gathered_ops.op_begin) SUMI_TRY(add_slice(plan, gathered_ops, error));
    return SUMI_OK;
}

// The end of the group that begins with this slice of the section.
static int32_t end_of_group(const sumi_plan* plan, const sumi_section* section, int32_t first,
                            const sumi_grouping* grouping)
{
    float group_us = 0.0f;
    for (int32_t i = first; i < section->slice_end; i++) {
        group_us += grouping->times_us != NULL ? grouping->times_us[i] : plan->slices[i].predicted_us;
        if (i > first && group_us > (float)grouping->grouped_us) return i;
    }
    return section->slice_end;
}

int32_t sumi_plan_count_groups(const sumi_plan* plan, const sumi_grouping* grouping)
{
    int32_t count = 0;
    for (size_t s = 0; s < plan->section_count; s++) {
        const sumi_section* section = &plan->sections[s];
        for (int32_t i = section->slice_begin; i < section->slice_end; count++)
            i = end_of_group(plan, section, i, grouping);
    }
    return count;
}

void sumi_plan_group_slices(sumi_plan* plan, const sumi_grouping* grouping)
{
    for (size_t i = 0; i < plan->slice_count; i++) plan->slices[i].group_count = 1;
    for (size_t s = 0; s < plan->section_count; s++) {
        const sumi_section* section = &plan->sections[s];
        for (int32_t i = section->slice_begin, end; i < section->slice_end; i = end) {
            end = end_of_group(plan, section, i, grouping);
            plan->slices[i].group_count = end - i;
        }
    }
}

sumi_result sumi_plan_slice(sumi_plan* plan, const sumi_slicing* slicing, sumi_error* error)
{
    SUMI_ASSERT(plan->error.result == SUMI_OK && plan->op_count > 0); // the plan is finished
    SUMI_ASSERT(slicing->max_us == 0 || slicing->gathered_us <= slicing->max_us);
    plan->slice_count = 0;
    for (size_t s = 0; s < plan->section_count; s++) {
        sumi_section* section = &plan->sections[s];
        SUMI_ASSERT(section->op_begin <= section->op_end && section->repeat >= 1);
        section->slice_begin = (int32_t)plan->slice_count;
        SUMI_TRY(slice_section(plan, section, slicing, error));
        section->slice_end = (int32_t)plan->slice_count;
    }
    sumi_plan_group_slices(plan, &(sumi_grouping){.grouped_us = slicing->grouped_us});
#ifdef SUMI_CHECKED
    SUMI_TRY(sumi_plan_validate_slices(plan, error));
#endif
    return SUMI_OK;
}
