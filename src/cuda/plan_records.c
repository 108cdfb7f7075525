#include "base/assert.h"
#include "cuda/device.h"
#include "cuda/graphs.h"
#include "cuda/launch.h"
#include "cuda/state.h"
#include "device/choose_forms.h"
#include "device/device_memory.h"
#include "device/residency.h"
#include "device/streaming.h"
#include "device/upload.h"

// Whether both are products of one shape, in the same forms. Stored tensors may differ in more ways, so they are not
// compared.
static bool is_same_product(const sumi_plan* plan, const sumi_op* a, const sumi_op* b)
{
    const sumi_value_info *x = sumi_plan_info(plan, a->in[0]), *y = sumi_plan_info(plan, b->in[0]);
    return a->section == b->section && a->marks == b->marks && a->rows == b->rows && a->weight->rows == b->weight->rows
        && a->weight->cols == b->weight->cols && x->cols == y->cols && x->element == y->element
        && (a->marks & SUMI_DEVICE_OP_STORED) == 0;
}

// A product's scratch is the largest of a dozen choices among all kernels. Finding it took most of the time in which a
// plan was written. Layers repeat, so each shape is queried once.
uint64_t sumi_cuda_runner_scratch_bytes(const sumi_runner* runner, const sumi_plan* plan)
{
    enum { PRODUCTS = 16 };
    const sumi_cuda* cuda = (const sumi_cuda*)runner;
    const sumi_op* products[PRODUCTS]; // the latest shapes
    size_t product_count = 0;
    uint64_t largest_bytes = 0;
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_op* op = &plan->ops[i];
        sumi_cuda_op_scratch* scratch = sumi_cuda_ops[op->kind].scratch;
        if (scratch == NULL) continue;
        if (op->kind == SUMI_OP_LINEAR) {
            const size_t known = product_count < PRODUCTS ? product_count : PRODUCTS;
            size_t k = 0;
            while (k < known && !is_same_product(plan, products[k], op)) k++;
            if (k < known) continue;
            products[product_count++ % PRODUCTS] = op;
        }
        const uint64_t bytes = scratch(&cuda->device, plan, op);
        largest_bytes = bytes > largest_bytes ? bytes : largest_bytes;
    }
    return sumi_device_block_bytes(largest_bytes);
}

sumi_cuda_plan* sumi_cuda_find_plan(sumi_cuda* cuda, const sumi_plan* plan)
{
    if (cuda->current != NULL && cuda->current->held.plan == plan) return cuda->current;
    for (size_t i = 0; i < cuda->stock.plan_count; i++) {
        if (cuda->stock.plans[i]->plan == plan) return sumi_cuda_plan_at(cuda, i);
    }
    return NULL;
}

void sumi_cuda_free_record(sumi_cuda* cuda, sumi_cuda_plan* record)
{
    SUMI_ASSERT(record->held.plan != NULL);
    sumi_device_weights_settle(&cuda->stock.weights);
    sumi_device_drop_division(&cuda->stock, &record->held);
    for (int32_t i = 0; i < record->mirror_count; i++) {
        if (record->mirrors[i].event != NULL) cuda->device.driver.cuEventDestroy(record->mirrors[i].event);
    }
    for (int32_t i = 0; i < SUMI_CUDA_FLIGHTS; i++) {
        if (cuda->flights[i].plan == record) cuda->flights[i].last_fetch = -1;
    }
    sumi_device_release(&cuda->stock.memory, &record->constants);
    sumi_free(cuda->heap, record->graphs.list);
    sumi_free(cuda->heap, record->group_graphs.list);
    sumi_free(cuda->heap, record->mirrors);
    if (cuda->current == record) cuda->current = NULL;
    for (size_t i = 0; i < cuda->stock.plan_count; i++) {
        if (cuda->stock.plans[i] == &record->held) cuda->stock.plans[i] = cuda->stock.plans[--cuda->stock.plan_count];
    }
    sumi_free(cuda->heap, record);
}

sumi_result sumi_cuda_take_plan(sumi_cuda* cuda, const sumi_plan* plan, sumi_cuda_plan** out_record, sumi_error* error)
{
    SUMI_ASSERT(plan->op_count > 0);
    SUMI_ASSERT(plan->runner == &cuda->runner); // so it was arranged for this runner (sumi_runner_begin_plan)
    sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    // A new plan at the address of one that was freed without release_plan().
    if (record != NULL && (record->ops != plan->ops || record->op_count != plan->op_count)) {
        sumi_cuda_free_record(cuda, record);
        record = NULL;
    }
    *out_record = record;
    if (record != NULL) return SUMI_OK;
    SUMI_TRY(sumi_grow(cuda->heap, (void**)&cuda->stock.plans, &cuda->stock.plan_capacity, cuda->stock.plan_count + 1,
                       sizeof *cuda->stock.plans, error));
    record = sumi_alloc_zero(cuda->heap, sizeof *record);
    if (record == NULL) return sumi_out_of_memory(error, sizeof *record, "a plan on the device");
    record->held.plan = plan;
    record->ops = plan->ops;
    record->op_count = plan->op_count;
    record->held.scratch_bytes = sumi_cuda_runner_scratch_bytes(&cuda->runner, plan);
    cuda->stock.plans[cuda->stock.plan_count++] = &record->held;
    *out_record = record;
    return SUMI_OK;
}

// Whether slices of a plan were submitted and not reported yet.
SUMI_ONLY_ASSERTED static bool has_slices_in_flight(const sumi_cuda* cuda, const sumi_cuda_plan* record)
{
    bool is_any = false;
    for (uint32_t i = 0; i < cuda->flight_count; i++)
        is_any = is_any || cuda->flights[(cuda->flight_first + i) % SUMI_CUDA_FLIGHTS].plan == record;
    return is_any;
}

void sumi_cuda_runner_release_plan(sumi_runner* runner, const sumi_plan* plan)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    if (record == NULL || !sumi_cuda_enter_quietly(cuda, &scope)) return;
    SUMI_ASSERT(!has_slices_in_flight(cuda, record));
    sumi_cuda_settle(cuda); // copies of constants and graphs may be in flight
    sumi_cuda_free_record(cuda, record);
    sumi_cuda_leave(&cuda->device, &scope);
}

void sumi_cuda_runner_release_weights(sumi_runner* runner, const sumi_weight* const* weights, size_t count)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (cuda->stock.weights.used_count == 0 || !sumi_cuda_enter_quietly(cuda, &scope)) return;
    sumi_device_release_weights(&cuda->stock, weights, count);
    sumi_cuda_leave(&cuda->device, &scope);
}
