#include "device/pinned_copies.h"
#include "base/assert.h"
#include "device/form.h"
#include "device/mapped.h"
#include "device/pinned.h"
#include "device/residency.h"
#include "device/upload.h"
#include "device/weight_forms.h"
#include <string.h>

typedef struct row_copies {
    const sumi_weight* weight;
    bool is_gated;
    int32_t begin;
    uint64_t row_bytes;
    const sumi_device_pinned* to;
} row_copies;

// Computes one row of a weight with its change, rounded once.
static void sum_row(const sumi_weight* weight, int32_t row, uint16_t* to)
{
    enum { PIECE = 256 };
    float values[PIECE];
    for (int32_t c = 0; c < weight->cols; c += PIECE) {
        const int32_t count = weight->cols - c < PIECE ? weight->cols - c : PIECE;
        sumi_weight_block_to_float(weight, (sumi_weight_block){row, 1, c, count}, values, PIECE);
        sumi_floats_to_bf16(values, to + c, (size_t)count);
    }
}

static void copy_rows(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    (void)worker_index;
    const row_copies* rows = context;
    const sumi_weight* weight = rows->weight;
    int32_t tensor_index = 0, range_begin = 0;
    for (int32_t r = rows->begin + begin; r < rows->begin + end; r++) {
        while (r >= range_begin + weight->tensors[tensor_index].rows)
            range_begin += weight->tensors[tensor_index++].rows;
        const int32_t half = weight->rows / 2, row_in_half = r < half ? r : r - half;
        // as upload_row in kernels/upload.cuh
        const int64_t row = rows->is_gated ? (int64_t)(row_in_half / 8) * 16 + (r < half ? 0 : 8) + row_in_half % 8 : r;
        uint64_t bytes = rows->row_bytes; // a piece holds whole rows
        unsigned char* to = sumi_device_pinned_at(rows->to, (uint64_t)row * rows->row_bytes, &bytes);
        if (weight->change != NULL) sum_row(weight, r, (uint16_t*)(void*)to);
        else
            memcpy(to,
                   (const unsigned char*)weight->tensors[tensor_index].data
                       + (uint64_t)(r - range_begin) * rows->row_bytes,
                   (size_t)rows->row_bytes);
    }
}

void sumi_device_weights_fill_pinned_copy(sumi_device_weights* weights, int32_t index, int32_t* row, uint32_t budget_us)
{
    SUMI_ASSERT(sumi_device_form_is_made_on_cpu(weights->residents[index].weight, weights->residents[index].form));
    SUMI_ASSERT(*row >= 0 && *row < weights->residents[index].weight->rows
                && !weights->residents[index].has_pinned_copy);
    sumi_device_resident* resident = &weights->residents[index];
    const sumi_weight* weight = resident->weight;
    row_copies rows = {weight, sumi_device_traits(resident->form)->is_gated, *row,
                       sumi_device_made_row_bytes(weight, resident->form), &resident->pinned_copy};
    uint64_t limit = (uint64_t)budget_us * SUMI_DEVICE_SLOWEST_BYTES_PER_US
                   * (uint64_t)sumi_workers_count(weights->workers) / rows.row_bytes;
    limit = limit < (1u << 20) / rows.row_bytes + 1 ? (1u << 20) / rows.row_bytes + 1 : limit;
    const int32_t count = (uint64_t)(weight->rows - *row) < limit ? weight->rows - *row : (int32_t)limit;
    sumi_parallel(weights->workers, count, (int32_t)(SUMI_DEVICE_ITEM_BYTES / rows.row_bytes) + 1, copy_rows, &rows);
    *row += count;
    if (*row >= weight->rows) resident->has_pinned_copy = true;
}

bool sumi_device_streams_mapped(const sumi_device_weights* weights, const sumi_weight* weight, sumi_device_form form)
{
    return sumi_device_form_is_made_on_cpu(weight, form) && sumi_device_mapped_holds(&weights->mapped, weight);
}

sumi_result sumi_device_weights_copy_out(const sumi_device_weights* weights, const sumi_device_resident* resident,
                                         uint64_t to, sumi_error* error)
{
    SUMI_ASSERT(resident->has_pinned_copy && to != 0);
    if (resident->chunks > 0)
        return sumi_device_mapped_copy(&weights->mapped, resident->weight, sumi_device_traits(resident->form)->is_gated,
                                       to, error);
    for (uint64_t done = 0, bytes; done < resident->bytes; done += bytes) {
        bytes = resident->bytes - done;
        const unsigned char* from = sumi_device_pinned_at(&resident->pinned_copy, done, &bytes);
        const sumi_device_copy copy = {to + done, sumi_device_address(from), bytes, "streaming weights"};
        SUMI_TRY(weights->port->functions->copy_in(weights->port, &copy, error));
    }
    return SUMI_OK;
}
