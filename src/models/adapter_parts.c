#include "models/adapter_parts.h"
#include "base/assert.h"
#include <string.h>

static sumi_result fail_blocks(const sumi_adapter_place* place, const char* name, sumi_error* error)
{
    return sumi_fail(error, SUMI_NOT_SUPPORTED,
                     "%s: the layer %s of the model is stored in blocks that two of its parts share, so this kind of "
                     "adapter cannot change it; use a model in bfloat16",
                     place->path, name);
}

sumi_result sumi_adapter_join_parts(const sumi_weight_list* list, const sumi_adapter_target* parts,
                                    const sumi_adapter_place* place, sumi_adapter_whole* out, sumi_error* error)
{
    const int32_t count = parts->more_parts + 1;
    SUMI_ASSERT(count >= 2 && count <= SUMI_MODULE_MAX_PARTS);
    *out = (sumi_adapter_whole){.target = *parts, .weight = {.name = parts->path, .cols = parts->cols, .index = -1}};
    out->target.row_begin = out->target.rows = out->target.more_parts = 0;
    for (int32_t i = 0; i < count; i++) {
        const sumi_weight* weight = list->weights[parts[i].weight_index];
        sumi_weight part;
        sumi_decoding* decodings =
            sumi_adapter_memory_reserve(place->memory, SUMI_WEIGHT_MAX_TENSORS, sizeof *decodings, error);
        if (decodings == NULL) return SUMI_OUT_OF_HOST_MEMORY;
        if (weight->change != NULL || !sumi_weight_is_dense(weight)
            || !sumi_weight_take_rows(weight, parts[i].row_begin, parts[i].rows, &part, decodings)
            || part.tensor_count > SUMI_WEIGHT_MAX_TENSORS - out->weight.tensor_count)
            return fail_blocks(place, parts->path, error);
        for (int32_t p = 0; p < part.tensor_count; p++)
            out->weight.tensors[out->weight.tensor_count++] = part.tensors[p];
        out->weight.rows += part.rows;
    }
    out->target.rows = out->weight.rows;
    return SUMI_OK;
}

static void add_part(sumi_change_list* out, const sumi_delta* delta)
{
    SUMI_ASSERT(out->count < SUMI_CHANGES_OF_LAYER);
    out->deltas[out->count++] = *delta;
}

// Rows [begin, begin + count) of a factor.
static sumi_result take_rows(const sumi_adapter_place* place, const sumi_weight* factor, int32_t begin, int32_t count,
                             sumi_weight* out, sumi_error* error)
{
    sumi_decoding* decodings =
        sumi_adapter_memory_reserve(place->memory, SUMI_WEIGHT_MAX_TENSORS, sizeof *decodings, error);
    if (decodings == NULL) return SUMI_OUT_OF_HOST_MEMORY;
    return sumi_weight_take_rows(factor, begin, count, out, decodings) ? SUMI_OK
                                                                       : fail_blocks(place, factor->name, error);
}

// Rows [begin, end) of up (x) down: whole rows of `up`, and before and after them rows of `down` of one row of `up`.
static sumi_result take_kronecker(const sumi_adapter_place* place, const sumi_delta* delta, sumi_span rows,
                                  sumi_change_list* out, sumi_error* error)
{
    const int32_t b = delta->down.rows, end = rows.begin + rows.count;
    for (int32_t row = rows.begin; row < end;) {
        const int32_t left = row / b, skipped = row % b;
        sumi_delta part = *delta;
        part.weight_index = place->target->weight_index;
        part.row_begin = place->target->row_begin + row - rows.begin;
        const bool is_whole = skipped == 0 && end - row >= b;
        const int32_t whole_rows = is_whole ? (end - row) / b : 1,
                      right_rows = is_whole ? b : (end - row < b - skipped ? end - row : b - skipped);
        SUMI_TRY(take_rows(place, &delta->up, left, whole_rows, &part.up, error));
        if (!is_whole) SUMI_TRY(take_rows(place, &delta->down, skipped, right_rows, &part.down, error));
        add_part(out, &part);
        row += whole_rows * right_rows;
    }
    return SUMI_OK;
}

sumi_result sumi_adapter_take_part(const sumi_adapter_place* place, const sumi_change_list* whole, int32_t begin,
                                   sumi_change_list* out, sumi_error* error)
{
    const sumi_adapter_target* target = place->target;
    out->count = 0;
    for (int32_t i = 0; i < whole->count; i++) {
        const sumi_delta* delta = &whole->deltas[i];
        SUMI_ASSERT(delta->row_begin == 0 && begin + target->rows <= sumi_delta_rows(delta));
        if (delta->kind == SUMI_DELTA_KRONECKER) {
            SUMI_TRY(take_kronecker(place, delta, (sumi_span){begin, target->rows}, out, error));
            continue;
        }
        sumi_delta part = *delta;
        part.weight_index = target->weight_index;
        part.row_begin = target->row_begin;
        SUMI_TRY(take_rows(place, &delta->up, begin, target->rows, &part.up, error));
        add_part(out, &part);
    }
    return SUMI_OK;
}
