// The runner of one GPU: the table from op kind to launcher, memory, and the way of a run.
//
//   compute stream   [write ..] [counter] e slice e  e slice e  [fetch] f  [counter] e slice e ..        e: two timed events per slice, f: one event per value that is fetched
//
// Everything of a run goes into the compute stream, in order, so nothing else has to be ordered. What the host reads
// comes through pinned memory, behind an event; what it writes goes through a pinned ring. Between `start` and the last
// `read` nothing is allocated and only a full ring, `wait` and a `read` of a value that is still coming wait.
//
// A call that cannot report a failure (write, read, finished) keeps it in `failure` for the next one that can. A lost
// device stays lost: nothing is on its way then.
#include "cuda/cuda.h"
#include "base/assert.h"
#include "base/platform.h"
#include "cuda/cublaslt.h"
#include "cuda/state.h"
#include "cuda/targets.h"
#include "kernels/upload.h"
#include <stdio.h>
#include <string.h>

#define RING_PAGES 4
#define RING_BYTES (RING_PAGES * (uint64_t)SUMI_CUDA_PAGE)
#define ALIGN 64u // of constants and mirrors

const sumi_cuda_op_entry sumi_cuda_ops[SUMI_OP_KIND_COUNT] = {
    [SUMI_OP_EMBED_ROWS] = {sumi_cuda_embed_rows, NULL},
    [SUMI_OP_FILL_ROWS] = {sumi_cuda_fill_rows, NULL},
    [SUMI_OP_COPY_ROWS] = {sumi_cuda_copy_rows, NULL},
    [SUMI_OP_MEAN_ROWS] = {sumi_cuda_mean_rows, NULL},
    [SUMI_OP_LINEAR] = {sumi_cuda_linear, sumi_cuda_linear_scratch},
    [SUMI_OP_KRONECKER_ADD] = {sumi_cuda_kronecker_add, NULL},
    [SUMI_OP_ACTIVATE] = {sumi_cuda_activate, NULL},
    [SUMI_OP_GATED] = {sumi_cuda_gated, NULL},
    [SUMI_OP_NORM_MODULATE] = {sumi_cuda_norm_modulate, NULL},
    [SUMI_OP_NORM_GATE_ADD] = {sumi_cuda_norm_gate_add, NULL},
    [SUMI_OP_QK_NORM_ROPE] = {sumi_cuda_qk_norm_rope, NULL},
    [SUMI_OP_ATTENTION] = {sumi_cuda_attention, sumi_cuda_attention_scratch},
    [SUMI_OP_ROPE_TABLE] = {sumi_cuda_rope_table, NULL},
    [SUMI_OP_TIME_EMBED] = {sumi_cuda_time_embed, NULL},
    [SUMI_OP_FINISH_MODULATION] = {sumi_cuda_finish_modulation, NULL},
    [SUMI_OP_PATCHIFY] = {sumi_cuda_patchify, NULL},
    [SUMI_OP_UNPATCHIFY] = {sumi_cuda_unpatchify, NULL},
    [SUMI_OP_ADD_NOISE] = {sumi_cuda_add_noise, NULL},
    [SUMI_OP_GUIDE] = {sumi_cuda_guide, sumi_cuda_guide_scratch},
    [SUMI_OP_SOLVE] = {sumi_cuda_solve, NULL},
    [SUMI_OP_PREVIEW] = {sumi_cuda_preview, NULL},
    [SUMI_OP_PIXELS_IN] = {sumi_cuda_pixels_in, NULL},
    [SUMI_OP_PATCHES_IN] = {sumi_cuda_patches_in, NULL},
    [SUMI_OP_POSTERIOR] = {sumi_cuda_posterior, NULL},
    [SUMI_OP_LATENT_IN] = {sumi_cuda_latent_in, NULL},
    [SUMI_OP_CONV] = {sumi_cuda_conv, sumi_cuda_conv_scratch},
    [SUMI_OP_GROUP_SUMS] = {sumi_cuda_group_sums, sumi_cuda_group_scratch},
    [SUMI_OP_GROUP_NORM] = {sumi_cuda_group_norm, sumi_cuda_group_scratch},
    [SUMI_OP_TILE_BLEND] = {sumi_cuda_tile_blend, NULL},
    [SUMI_OP_TILE_PLACE] = {sumi_cuda_tile_place, NULL},
    [SUMI_OP_COMPOSITE] = {sumi_cuda_composite, NULL},
    [SUMI_OP_PIXELS_OUT] = {sumi_cuda_pixels_out, NULL},
};

// ---- Failures -------------------------------------------------------------------------------------------------------

// Keeps the failure of a driver call for later. After a lost device nothing is on its way any more.
static void keep_failure(sumi_cuda* cuda, CUresult result, const char* what)
{
    if (result == CUDA_SUCCESS) return;
    if (cuda->failure.result == SUMI_OK) (void)sumi_cuda_failure(&cuda->device.driver, result, what, &cuda->failure);
    if (cuda->failure.result == SUMI_DEVICE_LOST) cuda->flight_count = cuda->write_count = 0;
}

// A failed question to an event means that nothing that was sent will ever be reported.
static void lose_device(sumi_cuda* cuda, CUresult result)
{
    if (result == CUDA_SUCCESS || cuda->failure.result == SUMI_DEVICE_LOST) return;
    sumi_error error = {SUMI_OK, {0}};
    (void)sumi_cuda_failure(&cuda->device.driver, result, "waiting for the device", &error);
    cuda->failure = (sumi_error){SUMI_OK, {0}};
    (void)sumi_fail(&cuda->failure, SUMI_DEVICE_LOST, "%s", error.text);
    cuda->flight_count = cuda->write_count = 0;
}

static sumi_result kept_failure(const sumi_cuda* cuda, sumi_error* error)
{
    return cuda->failure.result == SUMI_OK ? SUMI_OK : sumi_fail(error, cuda->failure.result, "%s", cuda->failure.text);
}

// What a call returns: a lost device is remembered.
static sumi_result note(sumi_cuda* cuda, sumi_result result, const sumi_error* error)
{
    if (result == SUMI_DEVICE_LOST && cuda->failure.result != SUMI_DEVICE_LOST) {
        cuda->failure = (sumi_error){SUMI_OK, {0}};
        (void)sumi_fail(&cuda->failure, result, "%s",
                        error != NULL && error->result != SUMI_OK ? error->text : "the GPU is lost");
        cuda->flight_count = cuda->write_count = 0;
    }
    return result;
}

// The context, for calls that cannot fail aloud.
static bool enter_quietly(sumi_cuda* cuda, sumi_cuda_scope* out_scope)
{
    sumi_error error = {SUMI_OK, {0}};
    if (sumi_cuda_enter(&cuda->device, out_scope, &error) == SUMI_OK) return true;
    if (cuda->failure.result == SUMI_OK) cuda->failure = error;
    if (error.result == SUMI_DEVICE_LOST) (void)note(cuda, error.result, &error);
    return false;
}

// Memory must not go while the device may still touch it. Nothing runs when memory goes, but the last copies may be on
// their way.
static void settle(sumi_cuda* cuda)
{
    keep_failure(cuda, cuda->device.driver.cuStreamSynchronize(cuda->device.compute), "waiting for the device");
    for (uint32_t i = 0; i < cuda->write_count; i++) cuda->writes[(cuda->write_first + i) % SUMI_CUDA_WRITES].end = 0;
    cuda->write_count = 0;
    // streamed weights, ahead of their time
    keep_failure(cuda, cuda->device.driver.cuStreamSynchronize(cuda->device.copy), "waiting for the device");
    sumi_cuda_weights_settle(&cuda->weights);
}

// ---- Plans ----------------------------------------------------------------------------------------------------------

sumi_cuda_plan* sumi_cuda_find_plan(sumi_cuda* cuda, const sumi_plan* plan)
{
    if (cuda->current != NULL && cuda->current->plan == plan) return cuda->current;
    for (size_t i = 0; i < cuda->plan_count; i++) {
        if (cuda->plans[i]->plan == plan) return cuda->plans[i];
    }
    return NULL;
}

// What it knows of its weights: which they are, where they stay.
static void forget_division(sumi_cuda* cuda, sumi_cuda_plan* record)
{
    sumi_cuda_drop_graphs(cuda, record);
    sumi_cuda_stream_free(cuda, record);
    sumi_free(cuda->heap, record->weights);
    record->weights = NULL;
    record->weight_count = record->weight_cursor = record->unpinned_count = 0;
    record->has_weights = record->is_fit = false;
}

static void free_record(sumi_cuda* cuda, sumi_cuda_plan* record)
{
    SUMI_ASSERT(record->plan != NULL);
    sumi_cuda_weights_settle(&cuda->weights);
    forget_division(cuda, record);
    for (int32_t i = 0; i < record->mirror_count; i++) {
        if (record->mirrors[i].event != NULL) cuda->device.driver.cuEventDestroy(record->mirrors[i].event);
    }
    for (int32_t i = 0; i < SUMI_RUNNER_DEPTH; i++) {
        if (cuda->flights[i].plan == record) cuda->flights[i].last_fetch = -1;
    }
    sumi_cuda_release(&cuda->memory, &record->constants);
    sumi_free(cuda->heap, record->graphs);
    sumi_free(cuda->heap, record->mirrors);
    if (cuda->current == record) cuda->current = NULL;
    for (size_t i = 0; i < cuda->plan_count; i++) {
        if (cuda->plans[i] == record) cuda->plans[i] = cuda->plans[--cuda->plan_count];
    }
    sumi_free(cuda->heap, record);
}

static uint64_t cuda_scratch_bytes(const sumi_runner* runner, const sumi_plan* plan);

// The record of a plan, made when it is new.
static sumi_result take_plan(sumi_cuda* cuda, const sumi_plan* plan, sumi_cuda_plan** out_record, sumi_error* error)
{
    SUMI_ASSERT(plan->op_count > 0);
    SUMI_ASSERT(plan->runner == &cuda->runner); // and so arranged: see sumi_runner_begin_plan
    sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    // another plan where one was that nobody said goodbye to
    if (record != NULL && (record->ops != plan->ops || record->op_count != plan->op_count)) {
        free_record(cuda, record);
        record = NULL;
    }
    *out_record = record;
    if (record != NULL) return SUMI_OK;
    SUMI_TRY(sumi_grow(cuda->heap, (void**)&cuda->plans, &cuda->plan_capacity, cuda->plan_count + 1,
                       sizeof *cuda->plans, error));
    record = sumi_alloc_zero(cuda->heap, sizeof *record);
    if (record == NULL) return sumi_out_of_memory(error, sizeof *record, "a plan on the device");
    record->plan = plan;
    record->ops = plan->ops;
    record->op_count = plan->op_count;
    record->scratch_bytes = cuda_scratch_bytes(&cuda->runner, plan);
    cuda->plans[cuda->plan_count++] = record;
    *out_record = record;
    return SUMI_OK;
}

// Slices of a plan that were submitted and not yet reported.
SUMI_ONLY_ASSERTED static bool is_on_its_way(const sumi_cuda* cuda, const sumi_cuda_plan* record)
{
    bool is_any = false;
    for (uint32_t i = 0; i < cuda->flight_count; i++) {
        is_any = is_any || cuda->flights[(cuda->flight_first + i) % SUMI_RUNNER_DEPTH].plan == record;
    }
    return is_any;
}

static void cuda_forget_plan(sumi_runner* runner, const sumi_plan* plan)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    if (record == NULL || !enter_quietly(cuda, &scope)) return;
    SUMI_ASSERT(!is_on_its_way(cuda, record));
    settle(cuda); // constants and graphs may be on their way
    free_record(cuda, record);
    sumi_cuda_leave(&cuda->device, &scope);
}

static void cuda_forget_weights(sumi_runner* runner, const sumi_weight* const* weights, size_t count)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (cuda->weights.used_count == 0 || !enter_quietly(cuda, &scope)) return;
    settle(cuda);
    for (size_t i = 0; i < count; i++) sumi_cuda_weights_forget(&cuda->weights, weights[i]);
    for (size_t p = 0; p < cuda->plan_count; p++) { // plans that used them find out what they need again
        sumi_cuda_plan* record = cuda->plans[p];
        const sumi_cuda_stream* stream = record->stream;
        bool is_hit = record->has_weights && cuda->weights.residents == NULL;
        for (int32_t i = 0; i < record->weight_count && !is_hit; i++)
            is_hit = cuda->weights.residents[record->weights[i]].weight == NULL;
        for (int32_t i = 0; stream != NULL && i < stream->list_count && !is_hit; i++)
            is_hit = cuda->weights.residents[stream->list[i]].weight == NULL;
        if (is_hit) forget_division(cuda, record);
    }
    sumi_cuda_leave(&cuda->device, &scope);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

static uint64_t cuda_scratch_bytes(const sumi_runner* runner, const sumi_plan* plan)
{
    const sumi_cuda* cuda = (const sumi_cuda*)runner;
    uint64_t most = 0;
    for (size_t i = 0; i < plan->op_count; i++) {
        sumi_cuda_op_scratch* scratch = sumi_cuda_ops[plan->ops[i].kind].scratch;
        const uint64_t bytes = scratch != NULL ? scratch(&cuda->device, plan, &plan->ops[i]) : 0;
        most = bytes > most ? bytes : most;
    }
    return (most + 511) / 512 * 512;
}

// Graphs hold addresses.
static void drop_all_graphs(sumi_cuda* cuda)
{
    for (size_t i = 0; i < cuda->plan_count; i++) {
        sumi_cuda_drop_graphs(cuda, cuda->plans[i]);
        cuda->plans[i]->is_reserved = false;
    }
}

// The new block first: when it cannot be had beside the old one, the old one goes before the second try. When that
// fails too there is none, and the next one may have more luck.
static sumi_result make_room(sumi_cuda* cuda, sumi_cuda_block* block, uint64_t bytes, const char* what,
                             sumi_error* error)
{
    if (bytes == 0 || block->bytes >= bytes) return SUMI_OK;
    SUMI_ASSERT(cuda->flight_count == 0); // the device may be using the old one
    sumi_cuda_block larger;
    if (cuda->budget != 0 && block->address != 0) { // both at once may be more than it allows
        sumi_cuda_release(&cuda->memory, block);
        drop_all_graphs(cuda);
    }
    sumi_error first = {SUMI_OK, {0}};
    if (sumi_cuda_allocate(&cuda->memory, bytes, SUMI_MEMORY_ARENA, what, &larger, &first) == SUMI_OK) {
        sumi_cuda_release(&cuda->memory, block);
    } else {
        if (block->address == 0 || first.result != SUMI_OUT_OF_DEVICE_MEMORY)
            return sumi_fail(error, first.result, "%s", first.text);
        sumi_cuda_release(&cuda->memory, block);
        drop_all_graphs(cuda);
        SUMI_TRY(sumi_cuda_allocate(&cuda->memory, bytes, SUMI_MEMORY_ARENA, what, &larger, error));
    }
    *block = larger;
    drop_all_graphs(cuda);
    return SUMI_OK;
}

static uint64_t round_up(uint64_t bytes) { return (bytes + ALIGN - 1) / ALIGN * ALIGN; }

static bool is_written(const sumi_plan* plan, sumi_value value)
{
    for (size_t i = 0; i < plan->op_count; i++) {
        if (plan->ops[i].out.id == value.id
            || (plan->ops[i].kind == SUMI_OP_PIXELS_OUT && plan->ops[i].in[1].id == value.id))
            return true;
    }
    return false;
}

// Where each bound value that some op writes is copied to when it is fetched, and the event behind the copy.
static sumi_result make_mirrors(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error)
{
    if (record->mirrors != NULL) return SUMI_OK;
    const sumi_plan* plan = record->plan;
    int32_t count = 0;
    for (size_t v = 0; v < plan->value_count; v++)
        count += plan->values[v].bound && is_written(plan, (sumi_value){(int32_t)v + 1});
    record->mirrors = sumi_alloc_zero(cuda->heap, (size_t)(count + 1) * sizeof *record->mirrors);
    if (record->mirrors == NULL)
        return sumi_out_of_memory(error, (size_t)(count + 1) * sizeof *record->mirrors, "a plan on the device");
    record->mirror_count = 0;
    record->mirror_end = RING_BYTES;
    for (size_t v = 0; v < plan->value_count; v++) {
        const sumi_value value = {(int32_t)v + 1};
        if (!plan->values[v].bound || !is_written(plan, value)) continue;
        sumi_cuda_mirror* mirror = &record->mirrors[record->mirror_count++];
        *mirror = (sumi_cuda_mirror){.value = value, .offset = record->mirror_end};
        record->mirror_end += round_up(plan->values[v].bytes);
    }
    for (int32_t i = 0; i < record->mirror_count; i++) {
        SUMI_CU(&cuda->device.driver,
                cuEventCreate(&record->mirrors[i].event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING),
                "making an event");
    }
    return SUMI_OK;
}

static void drop_mirrors(sumi_cuda* cuda, sumi_cuda_plan* record)
{
    for (int32_t i = 0; i < record->mirror_count; i++) {
        if (record->mirrors[i].event != NULL) cuda->device.driver.cuEventDestroy(record->mirrors[i].event);
    }
    sumi_free(cuda->heap, record->mirrors);
    record->mirrors = NULL;
    record->mirror_count = 0;
}

// A pinned copy of the constants: they never change, so `start` only has to say "copy".
static sumi_result make_constants(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error)
{
    const sumi_plan* plan = record->plan;
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan->constant_count; i++) bytes += round_up(plan->constants[i].bytes);
    if (bytes == 0 || record->constants.address != 0) return SUMI_OK;
    SUMI_TRY(
        sumi_cuda_allocate(&cuda->memory, bytes, SUMI_MEMORY_STAGING, "a plan's constants", &record->constants, error));
    unsigned char* at = sumi_cuda_host(&record->constants);
    for (size_t i = 0; i < plan->constant_count; i++) {
        memcpy(at, plan->constants[i].data, (size_t)plan->constants[i].bytes);
        at += round_up(plan->constants[i].bytes);
    }
    return SUMI_OK;
}

static size_t pages_of(uint64_t end) { return (size_t)((end + SUMI_CUDA_PAGE - 1) / SUMI_CUDA_PAGE); }
static bool has_pages(const sumi_cuda* cuda, const sumi_cuda_plan* record)
{
    return cuda->page_count >= pages_of(record->mirror_end);
}

// One page, and more while there is time.
static sumi_result make_pages(sumi_cuda* cuda, const sumi_cuda_plan* record, uint64_t until_ns, sumi_error* error)
{
    SUMI_ASSERT(cuda->page_count < pages_of(record->mirror_end));
    const size_t wanted = pages_of(record->mirror_end);
    SUMI_TRY(sumi_grow(cuda->heap, (void**)&cuda->pages, &cuda->page_capacity, wanted, sizeof *cuda->pages, error));
    do {
        SUMI_TRY(sumi_cuda_allocate(&cuda->memory, SUMI_CUDA_PAGE, SUMI_MEMORY_STAGING,
                                    "inputs and results on their way", &cuda->pages[cuda->page_count], error));
        cuda->page_count++;
    } while (cuda->page_count < wanted && sumi_clock_ns() < until_ns);
    return SUMI_OK;
}

// What lies at an offset in the pages, and how much of it in one.
static unsigned char* page_at(const sumi_cuda* cuda, uint64_t offset, uint64_t* io_bytes)
{
    SUMI_ASSERT(offset / SUMI_CUDA_PAGE<cuda->page_count&& * io_bytes> 0);
    const uint64_t in_page = offset % SUMI_CUDA_PAGE, left = SUMI_CUDA_PAGE - in_page;
    *io_bytes = *io_bytes < left ? *io_bytes : left;
    return (unsigned char*)sumi_cuda_host(&cuda->pages[offset / SUMI_CUDA_PAGE]) + in_page;
}

// ---- The budget -----------------------------------------------------------------------------------------------------

static uint64_t block_bytes(uint64_t bytes) { return (bytes + 511) / 512 * 512; } // as sumi_cuda_allocate counts
static uint64_t own_bytes(const sumi_cuda* cuda, const sumi_plan* plan, uint64_t scratch)
{
    return cuda->fixed.bytes + block_bytes(plan->arena_bytes) + block_bytes(scratch);
}
static uint64_t room_for_weights(uint64_t budget, uint64_t own)
{
    return budget == 0 ? UINT64_MAX : budget > own ? budget - own : 0;
}

static sumi_result cuda_need(const sumi_runner* runner, const sumi_plan* plan, uint64_t budget,
                             sumi_device_need* out_need, sumi_error* error)
{
    const sumi_cuda* cuda = (const sumi_cuda*)runner;
    const uint64_t own = own_bytes(cuda, plan, cuda_scratch_bytes(runner, plan));
    sumi_cuda_division division;
    SUMI_TRY(sumi_cuda_divide(&cuda->weights, plan, room_for_weights(budget, own), &division, error));
    sumi_free(cuda->heap, division.shares);
    *out_need =
        (sumi_device_need){.weights = division.kept + division.ring + division.way, .streamed = division.streamed};
    out_need->device = own + out_need->weights;
    SUMI_ASSERT(out_need->device >= own);
    out_need->fits = budget == 0 || (division.fits && out_need->device <= budget);
    uint64_t constants = 0, mirrors = 0;
    for (size_t i = 0; i < plan->constant_count; i++) constants += round_up(plan->constants[i].bytes);
    for (size_t v = 0; v < plan->value_count; v++) {
        if (plan->values[v].bound && is_written(plan, (sumi_value){(int32_t)v + 1}))
            mirrors += round_up(plan->values[v].bytes);
    }
    out_need->pinned = pages_of(RING_BYTES + mirrors) * (uint64_t)SUMI_CUDA_PAGE + block_bytes(constants)
                     + division.streamed - division.mapped + division.hosted;
    return SUMI_OK;
}

// Which of its weights stay, for the budget as it is.
static sumi_result divide_plan(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error)
{
    if (record->has_weights && record->divided_for == cuda->budget) return SUMI_OK;
    sumi_cuda_weights* weights = &cuda->weights;
    sumi_cuda_division* division = &record->division;
    if (record->has_weights) settle(cuda);
    forget_division(cuda, record);
    SUMI_TRY(sumi_cuda_divide(weights, record->plan,
                              room_for_weights(cuda->budget, own_bytes(cuda, record->plan, record->scratch_bytes)),
                              division, error));
    record->weights = sumi_alloc_array(cuda->heap, (size_t)division->count + 1, sizeof *record->weights);
    sumi_result result = record->weights == NULL ? sumi_out_of_memory(
                             error, (size_t)division->count * sizeof *record->weights, "the list of a plan's weights")
                                                 : SUMI_OK;
    for (int32_t i = 0; i < division->count && result == SUMI_OK; i++) {
        sumi_cuda_share_of* share = &division->shares[i];
        result =
            sumi_cuda_weights_want(weights, share->weight, share->form, share->is_adapter, &share->resident, error);
        if (result != SUMI_OK) break;
        if (share->in_steps) weights->residents[share->resident].in_steps = true;
        if (share->stay == SUMI_CUDA_KEPT) record->weights[record->weight_count++] = share->resident;
    }
    if (result == SUMI_OK && !division->fits)
        result = sumi_fail(error, SUMI_BUDGET_TOO_SMALL,
                           "%.1f MB on the device do not hold this job, even with its weights streamed",
                           1e-6 * (double)cuda->budget);
    if (result == SUMI_OK && division->streams) result = sumi_cuda_stream_make(cuda, record, error);
    sumi_free(cuda->heap, division->shares);
    division->shares = NULL;
    if (result != SUMI_OK) {
        forget_division(cuda, record);
        return result;
    }
    record->has_weights = true;
    record->divided_for = cuda->budget;
    return SUMI_OK;
}

static bool needs_images(const sumi_cuda_plan* record) { return record->division.streams; }

// There is room for all weights: their images are no longer needed. Piece by piece, one at least, for unpinning takes
// the caller's time as pinning does. Plans that stream make theirs again.
static void drop_images(sumi_cuda* cuda, sumi_cuda_plan* record, uint64_t until_ns)
{
    bool is_first = true;
    for (; !needs_images(record) && record->unpinned_count < record->weight_count; record->unpinned_count++) {
        sumi_cuda_resident* resident = &cuda->weights.residents[record->weights[record->unpinned_count]];
        if (resident->image.pieces == NULL && resident->chunks == 0) continue;
        if (is_first) settle(cuda);
        for (size_t p = 0; p < cuda->plan_count && resident->has_image; p++) {
            sumi_cuda_stream* stream = cuda->plans[p]->stream;
            if (stream != NULL) stream->image_cursor = stream->image_row = 0;
        }
        resident->has_image = false;
        for (; resident->chunks > 0 || resident->image.made > 0; is_first = false) {
            if (!is_first && sumi_clock_ns() >= until_ns) return;
            if (resident->chunks > 0)
                sumi_cuda_mapped_unlock(&cuda->weights.mapped, resident->weight, &resident->chunks, 1);
            else sumi_cuda_release(&cuda->memory, &resident->image.pieces[--resident->image.made]);
        }
        sumi_cuda_weights_drop_image(&cuda->weights, resident);
    }
}

// After weights went: plans bring them again before they run.
static void miss_weights(sumi_cuda* cuda)
{
    for (size_t p = 0; p < cuda->plan_count; p++) {
        sumi_cuda_plan* record = cuda->plans[p];
        bool is_hit = false;
        for (int32_t i = 0; i < record->weight_count && !is_hit; i++)
            is_hit = cuda->weights.residents[record->weights[i]].place.data == 0;
        if (is_hit) sumi_cuda_drop_graphs(cuda, record);
        record->weight_cursor = 0;
        record->is_fit = false;
    }
}

static uint64_t beyond(uint64_t wanted, const sumi_cuda_block* block)
{
    return wanted > block->bytes ? wanted - block->bytes : 0;
}

static void give_up(sumi_cuda* cuda, sumi_cuda_block* block, uint64_t wanted, bool* io_is_any)
{
    SUMI_ASSERT(cuda->flight_count == 0);
    if (block->address == 0 || block->bytes <= wanted) return;
    sumi_cuda_release(&cuda->memory, block);
    *io_is_any = true;
}

// Takes from others until what the plan lacks fits the budget beside what is held. Nothing runs.
static sumi_result make_fit(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error)
{
    SUMI_ASSERT(record->has_weights);
    if (cuda->budget == 0 || record->is_fit) return SUMI_OK;
    const uint64_t arena = block_bytes(record->plan->arena_bytes), scratch = block_bytes(record->scratch_bytes),
                   ring = record->division.ring;
    sumi_cuda_weights* weights = &cuda->weights;
    const uint64_t serial = ++weights->list_serial;
    bool has_settled = false, has_evicted = false;
    sumi_result result = SUMI_OK;
    sumi_cuda_weights_settle(weights); // conversions are counted once
    for (int32_t i = 0; i < record->weight_count; i++) weights->residents[record->weights[i]].listed = serial;
    for (size_t tries = weights->slab_count + 2;; tries--) { // a slab goes each time; in the end large blocks
        uint64_t missing = record->division.way + beyond(arena, &cuda->arena) + beyond(scratch, &cuda->scratch)
                         + beyond(ring, &cuda->passage);
        for (int32_t i = 0; i < record->weight_count; i++) {
            const sumi_cuda_resident* resident = &weights->residents[record->weights[i]];
            missing += resident->place.data == 0 ? resident->bytes : 0;
        }
        if (sumi_cuda_held(&cuda->memory) + missing <= cuda->budget) break;
        if (!has_settled) settle(cuda);
        has_settled = true;
        if (tries > 0 && sumi_cuda_weights_evict(weights, serial, true)) {
            has_evicted = true;
            continue;
        }
        bool is_any = false;
        give_up(cuda, &cuda->passage, ring, &is_any);
        give_up(cuda, &cuda->arena, arena, &is_any);
        give_up(cuda, &cuda->scratch, scratch, &is_any);
        if (is_any) drop_all_graphs(cuda);
        if (is_any && tries > 0) continue;
        result = sumi_fail(error, SUMI_BUDGET_TOO_SMALL,
                           "%.1f MB on the device do not hold this job: %.1f MB are held, %.1f MB are missing",
                           1e-6 * (double)cuda->budget, 1e-6 * (double)sumi_cuda_held(&cuda->memory),
                           1e-6 * (double)missing);
        break;
    }
    if (has_evicted) miss_weights(cuda);
    SUMI_TRY(result);
    for (size_t p = 0; p < cuda->plan_count; p++) cuda->plans[p]->is_fit = false; // this one takes the room
    record->is_fit = true;
    return SUMI_OK;
}

static void drop_passage(sumi_cuda* cuda)
{
    if (cuda->passage.address == 0) return;
    SUMI_ASSERT(cuda->flight_count == 0);
    settle(cuda);
    for (size_t p = 0; p < cuda->plan_count; p++) {
        if (cuda->plans[p]->stream != NULL) sumi_cuda_drop_graphs(cuda, cuda->plans[p]);
    }
    sumi_cuda_release(&cuda->memory, &cuda->passage);
}

static sumi_result make_passage(sumi_cuda* cuda, const sumi_cuda_plan* record, sumi_error* error)
{
    if (record->division.ring <= cuda->passage.bytes) return SUMI_OK;
    drop_passage(cuda);
    return sumi_cuda_allocate(&cuda->memory, record->division.ring, SUMI_MEMORY_WEIGHTS, "streamed weights",
                              &cuda->passage, error);
}

static void cuda_set_budget(sumi_runner* runner, uint64_t bytes)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    for (size_t p = 0; p < cuda->plan_count && cuda->budget != bytes; p++) cuda->plans[p]->is_fit = false;
    cuda->budget = bytes;
}

static sumi_result reserve(sumi_cuda* cuda, const sumi_plan* plan, sumi_error* error)
{
    sumi_cuda_plan* record;
    SUMI_TRY(take_plan(cuda, plan, &record, error));
    SUMI_TRY(divide_plan(cuda, record, error));
    sumi_result result = make_mirrors(cuda, record, error);
    if (result != SUMI_OK) {
        drop_mirrors(cuda, record);
        return result;
    }
    SUMI_TRY(make_constants(cuda, record, error));
    SUMI_TRY(make_fit(cuda, record, error));
    if (cuda->scratch.bytes < record->scratch_bytes || cuda->arena.bytes < plan->arena_bytes) settle(cuda);
    SUMI_TRY(make_room(cuda, &cuda->scratch, record->scratch_bytes, "the kernels' scratch memory", error));
    SUMI_TRY(make_room(cuda, &cuda->arena, plan->arena_bytes, "the arena", error));
    record->is_reserved = true;
    return SUMI_OK;
}

static sumi_result cuda_reserve(sumi_runner* runner, const sumi_plan* plan, sumi_error* error)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    sumi_result result = reserve(cuda, plan, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return note(cuda, result, error);
}

static void release_room(sumi_cuda* cuda)
{
    SUMI_ASSERT(cuda->flight_count == 0);
    settle(cuda);
    drop_all_graphs(cuda);
    sumi_cuda_release(&cuda->memory, &cuda->arena);
    sumi_cuda_release(&cuda->memory, &cuda->scratch);
    while (cuda->page_count > 0) sumi_cuda_release(&cuda->memory, &cuda->pages[--cuda->page_count]);
    cuda->ring_at = 0;
}

static void cuda_release(sumi_runner* runner)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (!enter_quietly(cuda, &scope)) return;
    release_room(cuda);
    sumi_cuda_leave(&cuda->device, &scope);
}

static void cuda_trim(sumi_runner* runner)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (cuda->budget == 0 || sumi_cuda_held(&cuda->memory) <= cuda->budget || !enter_quietly(cuda, &scope)) return;
    release_room(cuda);
    while (sumi_cuda_held(&cuda->memory) > cuda->budget && sumi_cuda_weights_evict(&cuda->weights, UINT64_MAX, true))
        continue;
    if (sumi_cuda_held(&cuda->memory) > cuda->budget) drop_passage(cuda);
    miss_weights(cuda);
    sumi_cuda_leave(&cuda->device, &scope);
}

static bool cuda_shed(sumi_runner* runner, const sumi_plan* plan)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    const sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    sumi_cuda_weights* weights = &cuda->weights;
    sumi_cuda_scope scope;
    if (!enter_quietly(cuda, &scope)) return false;
    settle(cuda);
    const uint64_t serial = ++weights->list_serial;
    for (int32_t i = 0; record != NULL && i < record->weight_count; i++)
        weights->residents[record->weights[i]].listed = serial;
    const bool takes_all = !sumi_cuda_weights_evict(weights, serial, false);
    const bool is_any = !takes_all || sumi_cuda_weights_evict(weights, serial, true);
    while (is_any && sumi_cuda_weights_evict(weights, serial, takes_all)) continue;
    if (is_any) miss_weights(cuda);
    sumi_cuda_leave(&cuda->device, &scope);
    return is_any;
}

// Asks the driver what is free; the context is current. What is neither that nor ours is noted: it changes with what
// the driver keeps for itself, so this is called when that has grown.
static bool ask_driver(sumi_cuda* cuda, uint64_t* out_free)
{
    size_t free_bytes = 0, total_bytes = 0;
    if (cuda->device.driver.cuMemGetInfo(&free_bytes, &total_bytes) != CUDA_SUCCESS) return false;
    const uint64_t known = free_bytes + sumi_cuda_held(&cuda->memory);
    atomic_store(&cuda->uncounted, known < total_bytes ? total_bytes - known : 0);
    *out_free = free_bytes;
    return true;
}

static void cuda_room(sumi_runner* runner, sumi_device_room* out_room)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_memory* memory = &cuda->memory;
    sumi_cuda_scope scope;
    *out_room = (sumi_device_room){.held = sumi_cuda_held(memory)};
    out_room->short_held = memory->short_held;
    out_room->short_wanted = memory->short_wanted;
    memory->short_held = memory->short_wanted = 0;
    if (memory->allocator.allocate != NULL || !enter_quietly(cuda, &scope)) return;
    out_room->is_known = ask_driver(cuda, &out_room->free);
    sumi_cuda_leave(&cuda->device, &scope);
}

static void cuda_facts(const sumi_runner* runner, sumi_device_facts* out_facts)
{
    const sumi_cuda* cuda = (const sumi_cuda*)runner;
    *out_facts = (sumi_device_facts){.bytes = cuda->device.bytes,
                                     .uncounted = atomic_load(&cuda->uncounted),
                                     .capability = cuda->device.capability,
                                     .driver = cuda->device.driver.version};
    for (int kind = 0; kind < 4; kind++) out_facts->held[kind] = atomic_load(&cuda->memory.held[kind]);
}

// ---- Before a run ---------------------------------------------------------------------------------------------------

// A first launch: whatever the driver puts off until then happens here.
static sumi_result launch_first(sumi_cuda* cuda, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUfunction function;
    SUMI_TRY(sumi_cuda_kernel(cuda->modules, "sumi_upload_vector", 0, &function, error));
    // no rows, no padding
    sumi_upload_args args = {.from = cuda->fixed.address, .to = cuda->fixed.address, .stack_rows = 1};
    void* params[] = {&args};
    SUMI_CU(driver, cuLaunchKernel(function, 1, 1, 1, SUMI_UPLOAD_THREADS, 1, 1, 0, cuda->device.copy, params, NULL),
            "a first launch");
    const CUresult ended = driver->cuStreamSynchronize(cuda->device.copy);
    return ended == CUDA_SUCCESS ? SUMI_OK : sumi_cuda_failure(driver, ended, "a first launch", error);
}

static sumi_result load(sumi_cuda* cuda, float* out_progress, sumi_error* error)
{
    bool is_last = false;
    SUMI_TRY(sumi_cuda_modules_step(cuda->modules, &is_last, out_progress, error));
    if (!is_last) return SUMI_OK;
    SUMI_TRY(launch_first(cuda, error));
    uint64_t free_bytes;
    (void)ask_driver(cuda, &free_bytes);
    cuda->is_loaded = true;
    return SUMI_OK;
}

static sumi_result cuda_load(sumi_runner* runner, bool* out_done, float* out_progress, sumi_error* error)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    sumi_result result = SUMI_OK;
    if (!cuda->is_loaded) {
        SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
        result = load(cuda, out_progress, error);
        sumi_cuda_leave(&cuda->device, &scope);
    }
    if (cuda->is_loaded) *out_progress = 1.0f;
    *out_done = cuda->is_loaded;
    return result; // not noted: this runs beside other calls
}

static bool is_ready(const sumi_cuda* cuda, const sumi_cuda_plan* record)
{
    if (record == NULL || !record->is_reserved || !record->has_weights || record->divided_for != cuda->budget)
        return false;
    if (cuda->budget == 0 ? cuda->passage.address != 0 : !record->is_fit) return false;
    if (record->weight_cursor < record->weight_count || record->division.ring > cuda->passage.bytes) return false;
    if (record->stream != NULL && record->stream->image_cursor < record->stream->list_count) return false;
    if (!needs_images(record) && record->unpinned_count < record->weight_count) return false;
    if (cuda->scratch.bytes < record->scratch_bytes || cuda->arena.bytes < record->plan->arena_bytes
        || !has_pages(cuda, record) || cuda->weights.upload != NULL)
        return false;
    return cuda->options.without_graphs || record->without_graphs
        || record->graphed_slices == (int32_t)record->plan->slice_count;
}

static sumi_result prepare(sumi_cuda* cuda, const sumi_plan* plan, uint32_t budget_us, bool* out_done,
                           float* out_progress, sumi_error* error)
{
    const uint64_t until = sumi_clock_ns() + (uint64_t)budget_us * 1000;
    *out_done = false;
    if (!cuda->is_loaded) return sumi_fail(error, SUMI_INTERNAL, "a plan is prepared before the kernels are loaded");
    sumi_cuda_plan* record;
    SUMI_TRY(take_plan(cuda, plan, &record, error));
    SUMI_TRY(divide_plan(cuda, record, error));
    SUMI_TRY(make_fit(cuda, record, error));
    SUMI_TRY(make_passage(cuda, record, error));
    if (cuda->budget == 0) drop_passage(cuda); // nobody streams any more
    cuda->weights.places_alone = record->division.streams;
    bool has_all = false;
    const bool sends = record->weight_cursor < record->weight_count || cuda->weights.upload != NULL;
    SUMI_TRY(sumi_cuda_weights_send(&cuda->weights, record->weights, record->weight_count, &record->weight_cursor,
                                    until, budget_us, &has_all, error));
    const int32_t others = record->stream != NULL ? record->stream->list_count : 0,
                  made = others > 0 ? record->stream->image_cursor : 0;
    const float sent = record->weight_count + others > 0
                         ? (float)(record->weight_cursor + made) / (float)(record->weight_count + others)
                         : 1.0f;
    *out_progress = 0.95f * sent;
    // what comes next does a piece, however little time there is
    if (!has_all || (sends && sumi_clock_ns() >= until)) return SUMI_OK;
    if (record->stream != NULL && record->stream->image_cursor < record->stream->list_count) {
        if (cuda->flight_count > 0) return SUMI_OK; // the ring may be in use
        SUMI_TRY(sumi_cuda_stream_images(cuda, record, until, budget_us, &has_all, error));
        if (!has_all || sumi_clock_ns() >= until) return SUMI_OK;
    }
    if (!needs_images(record) && record->unpinned_count < record->weight_count) {
        if (cuda->flight_count > 0) return SUMI_OK; // they may be on their way
        drop_images(cuda, record, until);
        if (record->unpinned_count < record->weight_count || sumi_clock_ns() >= until) return SUMI_OK;
    }
    if (!record->is_reserved) {
        *out_done = true;
        *out_progress = 1.0f;
        return SUMI_OK;
    }
    if (is_ready(cuda, record)) {
        *out_done = true;
        *out_progress = 1.0f;
        return SUMI_OK;
    }
    if (!has_pages(cuda, record)) {
        SUMI_TRY(make_pages(cuda, record, until, error));
        return SUMI_OK;
    }
    if (cuda->flight_count > 0) return SUMI_OK; // graphs wait until nothing runs
    SUMI_TRY(sumi_cuda_make_graphs(cuda, record, until, out_done, error));
    uint64_t free_bytes;
    if (*out_done) (void)ask_driver(cuda, &free_bytes);
    *out_progress = *out_done ? 1.0f : 0.95f + 0.05f * (float)record->graphed_slices / (float)plan->slice_count;
    return SUMI_OK;
}

static bool cuda_is_ready(const sumi_runner* runner, const sumi_plan* plan)
{
    const sumi_cuda* cuda = (const sumi_cuda*)runner;
    const sumi_cuda_plan* record = NULL;
    for (size_t i = 0; i < cuda->plan_count && record == NULL; i++)
        record = cuda->plans[i]->plan == plan ? cuda->plans[i] : NULL;
    return is_ready(cuda, record) && record->ops == plan->ops && record->op_count == plan->op_count;
}

static sumi_result cuda_prepare(sumi_runner* runner, const sumi_plan* plan, uint32_t budget_us, bool* out_done,
                                float* out_progress, sumi_error* error)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    *out_done = false;
    // anything else was an earlier run's: `start` forgets it
    if (cuda->failure.result == SUMI_DEVICE_LOST) return kept_failure(cuda, error);
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    sumi_result result = prepare(cuda, plan, budget_us, out_done, out_progress, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return note(cuda, result, error);
}

// ---- Inputs ---------------------------------------------------------------------------------------------------------

static CUdeviceptr address_of(const sumi_cuda* cuda, const sumi_plan* plan, sumi_value value)
{
    return cuda->arena.address + sumi_plan_info(plan, value)->offset;
}

static void cuda_start(sumi_runner* runner, const sumi_plan* plan)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    if (cuda->failure.result != SUMI_DEVICE_LOST) cuda->failure = (sumi_error){SUMI_OK, {0}};
    if (record == NULL || !record->is_reserved || !has_pages(cuda, record)) {
        (void)sumi_fail(&cuda->failure, SUMI_INTERNAL, "a plan is started that was not prepared and reserved");
        return;
    }
    if (!enter_quietly(cuda, &scope)) return;
    cuda->current = record;
    cuda->has_counter = false;
    for (int32_t i = 0; i < record->mirror_count; i++) record->mirrors[i].is_coming = false;
    const unsigned char* at = sumi_cuda_host(&record->constants);
    for (size_t i = 0; i < plan->constant_count; i++) {
        const sumi_constant* constant = &plan->constants[i];
        keep_failure(cuda,
                     cuda->device.driver.cuMemcpyHtoDAsync(address_of(cuda, plan, constant->value), at,
                                                           (size_t)constant->bytes, cuda->device.compute),
                     "copying a plan's constants");
        at += round_up(constant->bytes);
    }
    sumi_error error = {SUMI_OK, {0}};
    if (note(cuda, sumi_cuda_stream_begin(cuda, record, &error), &error) != SUMI_OK && cuda->failure.result == SUMI_OK)
        cuda->failure = error;
    sumi_cuda_leave(&cuda->device, &scope);
}

// Waits for the oldest copy out of the ring.
static void take_write(sumi_cuda* cuda)
{
    SUMI_ASSERT(cuda->write_count > 0);
    sumi_cuda_write* oldest = &cuda->writes[cuda->write_first];
    keep_failure(cuda, cuda->device.driver.cuEventSynchronize(oldest->event), "waiting for a copy to the device");
    if (cuda->write_count == 0) return; // the device is lost
    cuda->write_first = (cuda->write_first + 1) % SUMI_CUDA_WRITES;
    cuda->write_count--;
}

// Room for the next piece: [ring_at, ring_at + *io_bytes) in one page, free of copies on their way. A large input keeps
// the host copying while the bus works.
static unsigned char* make_ring_room(sumi_cuda* cuda, uint64_t* io_bytes)
{
    if (cuda->ring_at >= RING_BYTES) cuda->ring_at = 0;
    SUMI_ASSERT(cuda->ring_at % ALIGN == 0 && cuda->page_count >= RING_PAGES);
    unsigned char* room = page_at(cuda, cuda->ring_at, io_bytes);
    const uint64_t bytes = *io_bytes;
    while (cuda->write_count == SUMI_CUDA_WRITES) take_write(cuda);
    // copies end in order: all up to the newest that is in the way have to
    for (bool meets = true; meets && cuda->write_count > 0;) {
        meets = false;
        for (uint32_t i = 0; i < cuda->write_count && !meets; i++) {
            const sumi_cuda_write* w = &cuda->writes[(cuda->write_first + i) % SUMI_CUDA_WRITES];
            meets = w->begin < cuda->ring_at + bytes && cuda->ring_at < w->end;
        }
        if (meets) take_write(cuda);
    }
    return room;
}

static void cuda_write(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, const void* data,
                       uint64_t bytes)
{
    SUMI_ASSERT(value.id > 0 && offset + bytes <= sumi_plan_info(plan, value)->bytes);
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (cuda->failure.result != SUMI_OK || cuda->page_count < RING_PAGES || !enter_quietly(cuda, &scope)) return;
    const unsigned char* from = data;
    const CUdeviceptr to = address_of(cuda, plan, value) + offset;
    for (uint64_t done = 0; done < bytes && cuda->failure.result == SUMI_OK;) {
        uint64_t piece = bytes - done;
        unsigned char* pinned = make_ring_room(cuda, &piece);
        if (cuda->failure.result != SUMI_OK) break;
        memcpy(pinned, from + done, (size_t)piece);
        SUMI_ASSERT(cuda->write_count < SUMI_CUDA_WRITES && cuda->ring_at + piece <= RING_BYTES);
        sumi_cuda_write* w = &cuda->writes[(cuda->write_first + cuda->write_count) % SUMI_CUDA_WRITES];
        keep_failure(cuda,
                     cuda->device.driver.cuMemcpyHtoDAsync(to + done, pinned, (size_t)piece, cuda->device.compute),
                     "copying an input to the device");
        keep_failure(cuda, cuda->device.driver.cuEventRecord(w->event, cuda->device.compute),
                     "copying an input to the device");
        w->begin = cuda->ring_at;
        w->end = cuda->ring_at += round_up(piece);
        cuda->write_count++;
        done += piece;
    }
    sumi_cuda_leave(&cuda->device, &scope);
}

// ---- Running --------------------------------------------------------------------------------------------------------

static sumi_cuda_flight* flight_at(sumi_cuda* cuda, uint32_t index)
{
    return &cuda->flights[(cuda->flight_first + index) % SUMI_RUNNER_DEPTH];
}

static sumi_result run_slice(sumi_cuda* cuda, sumi_cuda_plan* record, const sumi_slice* slice, int32_t counter,
                             sumi_error* error)
{
    SUMI_ASSERT(counter >= 0 && cuda->flight_count < SUMI_RUNNER_DEPTH);
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const CUstream stream = cuda->device.compute;
    cuda->current = record;
    if (!cuda->has_counter || cuda->counter != counter) {
        SUMI_CU(
            driver,
            cuMemsetD32Async(cuda->fixed.address + SUMI_CUDA_ARRIVALS * sizeof(uint32_t), (unsigned)counter, 1, stream),
            "setting the step");
        cuda->has_counter = true;
        cuda->counter = counter;
    }
    sumi_cuda_flight* flight = flight_at(cuda, cuda->flight_count);
    flight->has_waits = false;
    bool is_first = true;
    for (sumi_slice segment = {0}; sumi_cuda_next_segment(record, slice, &segment); is_first = false) {
        bool waits = false;
        SUMI_TRY(sumi_cuda_stream_before(cuda, record, &segment, counter, &waits, error));
        if (is_first) SUMI_CU(driver, cuEventRecord(flight->begin, stream), "timing a slice");
        else flight->has_waits = flight->has_waits || waits;
        const CUgraphExec graph = sumi_cuda_graph_of(record, slice, &segment);
        if (graph != NULL) SUMI_CU(driver, cuGraphLaunch(graph, stream), "launching a slice");
        else SUMI_TRY(sumi_cuda_launch_slice(cuda, record, &segment, stream, error));
        SUMI_TRY(sumi_cuda_stream_after(cuda, record, &segment, error));
    }
    SUMI_CU(driver, cuEventRecord(flight->end, stream), "timing a slice");
    flight->last_fetch = -1;
    flight->plan = record;
    cuda->flight_count++;
    return sumi_cuda_stream_ahead(cuda, record, error);
}

static sumi_result cuda_run(sumi_runner* runner, const sumi_plan* plan, const sumi_slice* slice, int32_t counter,
                            sumi_error* error)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    SUMI_TRY(kept_failure(cuda, error));
    if (record == NULL || !record->is_reserved || !record->has_weights)
        return sumi_fail(error, SUMI_INTERNAL, "a plan runs that was not prepared and reserved");
    if (cuda->flight_count == SUMI_RUNNER_DEPTH)
        return sumi_fail(error, SUMI_INTERNAL, "%d slices are on their way: no more fit", SUMI_RUNNER_DEPTH);
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    sumi_result result = run_slice(cuda, record, slice, counter, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return note(cuda, result, error);
}

// Whether an event has passed; a failure counts as no, and is kept.
static bool has_passed(sumi_cuda* cuda, CUevent event)
{
    const CUresult state = cuda->device.driver.cuEventQuery(event);
    if (state != CUDA_ERROR_NOT_READY) lose_device(cuda, state);
    return state == CUDA_SUCCESS;
}

// The copies behind a slice count as part of it: once it is reported, they can be read.
static bool is_over(sumi_cuda* cuda, const sumi_cuda_flight* flight)
{
    SUMI_ASSERT(flight->plan != NULL && flight->last_fetch < flight->plan->mirror_count);
    return has_passed(cuda, flight->end)
        && (flight->last_fetch < 0 || has_passed(cuda, flight->plan->mirrors[flight->last_fetch].event));
}

static bool cuda_finished(sumi_runner* runner, sumi_slice_time* out_time)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (cuda->flight_count == 0 || !enter_quietly(cuda, &scope)) return false;
    const sumi_cuda_flight* flight = flight_at(cuda, 0);
    const bool ends = is_over(cuda, flight);
    if (ends) {
        float ms = 0.0f;
        keep_failure(cuda, cuda->device.driver.cuEventElapsedTime(&ms, flight->begin, flight->end), "timing a slice");
        *out_time = (sumi_slice_time){1000.0 * (double)ms, flight->has_waits};
        if (cuda->flight_count > 0) {
            cuda->flight_first = (cuda->flight_first + 1) % SUMI_RUNNER_DEPTH;
            cuda->flight_count--;
        }
    }
    sumi_cuda_leave(&cuda->device, &scope);
    return ends;
}

static int32_t cuda_pending(const sumi_runner* runner) { return (int32_t)((const sumi_cuda*)runner)->flight_count; }

static void cuda_wait(sumi_runner* runner, int32_t slices)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    const sumi_cuda_driver* driver = &cuda->device.driver;
    sumi_cuda_scope scope;
    if (cuda->flight_count == 0 || !enter_quietly(cuda, &scope)) return;
    if (cuda->all != NULL) {
        // if not, the other way to wait for all says whether the device is lost
        const bool is_recorded = driver->cuEventRecord(cuda->all, cuda->device.compute) == CUDA_SUCCESS;
        lose_device(cuda, is_recorded ? driver->cuEventSynchronize(cuda->all)
                                      : driver->cuStreamSynchronize(cuda->device.compute));
    } else {
        const uint32_t wanted = slices < 1 ? 1 : (uint32_t)slices;
        const sumi_cuda_flight* flight =
            flight_at(cuda, (wanted < cuda->flight_count ? wanted : cuda->flight_count) - 1);
        lose_device(cuda, driver->cuEventSynchronize(flight->end));
        if (cuda->flight_count > 0 && flight->last_fetch >= 0)
            lose_device(cuda, driver->cuEventSynchronize(flight->plan->mirrors[flight->last_fetch].event));
    }
    sumi_cuda_leave(&cuda->device, &scope);
}

static bool cuda_idle(sumi_runner* runner)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (cuda->failure.result == SUMI_DEVICE_LOST) return true;
    if (!enter_quietly(cuda, &scope)) return true;
    bool is_idle = true;
    for (uint32_t i = 0; i < cuda->flight_count && is_idle; i++) is_idle = has_passed(cuda, flight_at(cuda, i)->end);
    for (int32_t i = 0; cuda->current != NULL && i < cuda->current->mirror_count && is_idle; i++) {
        if (cuda->current->mirrors[i].is_coming) is_idle = has_passed(cuda, cuda->current->mirrors[i].event);
    }
    sumi_cuda_leave(&cuda->device, &scope);
    return is_idle || cuda->failure.result == SUMI_DEVICE_LOST;
}

static sumi_result cuda_health(sumi_runner* runner, sumi_error* error)
{
    return kept_failure((const sumi_cuda*)runner, error);
}

// ---- Results --------------------------------------------------------------------------------------------------------

static sumi_cuda_mirror* mirror_of(sumi_cuda_plan* record, sumi_value value)
{
    for (int32_t i = 0; record != NULL && i < record->mirror_count; i++) {
        if (record->mirrors[i].value.id == value.id) return &record->mirrors[i];
    }
    return NULL;
}

static sumi_result fetch(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_cuda_mirror* mirror, sumi_error* error)
{
    SUMI_ASSERT(!mirror->is_coming); // at most one that nobody has read
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const sumi_value_info* info = sumi_plan_info(record->plan, mirror->value);
    for (uint64_t done = 0, piece; done < info->bytes; done += piece) {
        piece = info->bytes - done;
        unsigned char* to = page_at(cuda, mirror->offset + done, &piece);
        SUMI_CU(driver,
                cuMemcpyDtoHAsync(to, cuda->arena.address + info->offset + done, (size_t)piece, cuda->device.compute),
                "copying a result from the device");
    }
    SUMI_CU(driver, cuEventRecord(mirror->event, cuda->device.compute), "copying a result from the device");
    mirror->is_coming = true;
    if (cuda->flight_count > 0)
        flight_at(cuda, cuda->flight_count - 1)->last_fetch = (int32_t)(mirror - record->mirrors);
    return SUMI_OK;
}

static sumi_result cuda_fetch(sumi_runner* runner, const sumi_plan* plan, sumi_value value, sumi_error* error)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    sumi_cuda_mirror* mirror = mirror_of(record, value);
    SUMI_TRY(kept_failure(cuda, error));
    if (mirror == NULL || !record->is_reserved || !has_pages(cuda, record))
        return sumi_fail(error, SUMI_INTERNAL, "%s is fetched: it is not bound, or nothing writes it",
                         sumi_plan_info(plan, value)->name);
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    sumi_result result = fetch(cuda, record, mirror, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return note(cuda, result, error);
}

static sumi_result cuda_publish(sumi_runner* runner, const sumi_plan* plan, const sumi_publication* picture,
                                sumi_error* error)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    SUMI_TRY(kept_failure(cuda, error));
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    sumi_result result = sumi_cuda_publish(cuda, plan, picture, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return note(cuda, result, error);
}

static sumi_result cuda_import_gl(sumi_runner* runner, uint32_t texture, uint32_t target, int32_t width, int32_t height,
                                  sumi_import* out_import, sumi_error* error)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    sumi_result result = sumi_cuda_import_gl(cuda, texture, target, width, height, out_import, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return note(cuda, result, error);
}

static void cuda_release_import(sumi_runner* runner, sumi_import* import)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    // outside, a lost device refuses every call, and the host's memory is given back all the same
    const bool is_inside = enter_quietly(cuda, &scope);
    sumi_cuda_release_import(cuda, import);
    if (is_inside) sumi_cuda_leave(&cuda->device, &scope);
}

// Beside the thread that works: it touches nothing that changes, and keeps no failure.
static sumi_result cuda_show(sumi_runner* runner, const sumi_import* import, int32_t width, int32_t height,
                             sumi_error* error)
{
    const sumi_cuda* cuda = (const sumi_cuda*)runner;
    sumi_cuda_scope scope;
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    sumi_result result = sumi_cuda_show(cuda, import, width, height, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return result;
}

static void cuda_settle(sumi_runner* runner)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (cuda->failure.result == SUMI_DEVICE_LOST || !enter_quietly(cuda, &scope)) return;
    settle(cuda);
    sumi_cuda_leave(&cuda->device, &scope);
}

static void cuda_read(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, void* into,
                      uint64_t bytes)
{
    SUMI_ASSERT(value.id > 0 && offset + bytes <= sumi_plan_info(plan, value)->bytes);
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    sumi_cuda_mirror* mirror = mirror_of(record, value);
    const bool is_there = mirror != NULL && has_pages(cuda, record);
    if (mirror != NULL && mirror->is_coming && cuda->failure.result != SUMI_DEVICE_LOST
        && enter_quietly(cuda, &scope)) {
        // Usually over. A fetch with no slice before it has nothing else that it is waited for by.
        keep_failure(cuda, cuda->device.driver.cuEventSynchronize(mirror->event), "waiting for a copy from the device");
        mirror->is_coming = false;
        sumi_cuda_leave(&cuda->device, &scope);
    }
    if (!is_there) memset(into, 0, (size_t)bytes);
    for (uint64_t done = 0, piece; is_there && done < bytes; done += piece) {
        piece = bytes - done;
        const unsigned char* from = page_at(cuda, mirror->offset + offset + done, &piece);
        memcpy((unsigned char*)into + done, from, (size_t)piece);
    }
}

// ---- The object -----------------------------------------------------------------------------------------------------

static const char* cuda_name(const sumi_runner* runner)
{
    (void)runner;
    return "cuda";
}
static bool cuda_has_cublaslt(const sumi_runner* runner) { return ((const sumi_cuda*)runner)->device.cublaslt != NULL; }
static void cuda_list_kernels(const sumi_runner* runner, sumi_kernel_seen* seen, void* user_data)
{
    sumi_cuda_list_kernels(((const sumi_cuda*)runner)->modules, seen, user_data);
}
static const char* cuda_device(const sumi_runner* runner) { return ((const sumi_cuda*)runner)->device.name; }
static sumi_rates cuda_rates(const sumi_runner* runner) { return ((const sumi_cuda*)runner)->rates; }
static void cuda_arrange(const sumi_runner* runner, sumi_plan* plan)
{
    sumi_cuda_arrange(&((const sumi_cuda*)runner)->device, plan);
}
static uint64_t cuda_element_bytes(const sumi_runner* runner, sumi_element element)
{
    (void)runner;
    return element == SUMI_ELEMENT_ACTIVATION ? 2 : element == SUMI_ELEMENT_BYTE ? 1 : 4;
}

static void destroy_inside(sumi_cuda* cuda)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    settle(cuda);
    while (cuda->plan_count > 0) free_record(cuda, cuda->plans[cuda->plan_count - 1]);
    release_room(cuda);
    sumi_cuda_release(&cuda->memory, &cuda->passage);
    sumi_cuda_weights_close(&cuda->weights);
    sumi_cuda_release(&cuda->memory, &cuda->fixed);
    for (int32_t i = 0; i < SUMI_RUNNER_DEPTH; i++) {
        if (cuda->flights[i].begin != NULL) driver->cuEventDestroy(cuda->flights[i].begin);
        if (cuda->flights[i].end != NULL) driver->cuEventDestroy(cuda->flights[i].end);
    }
    if (cuda->all != NULL) driver->cuEventDestroy(cuda->all);
    for (int32_t i = 0; i < SUMI_CUDA_WRITES; i++) {
        if (cuda->writes[i].event != NULL) driver->cuEventDestroy(cuda->writes[i].event);
    }
    if (cuda->capture != NULL) driver->cuStreamDestroy(cuda->capture);
    sumi_cuda_cublaslt_close(cuda->device.cublaslt);
    cuda->device.cublaslt = NULL;
    if (cuda->graphics != NULL) driver->cuStreamDestroy(cuda->graphics);
}

static void cuda_destroy(sumi_runner* runner)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    if (cuda == NULL) return;
    sumi_cuda_scope scope;
    // outside, a lost device refuses every call, and what is the host's is given back all the same
    const bool is_inside = enter_quietly(cuda, &scope);
    destroy_inside(cuda);
    sumi_cuda_modules_destroy(cuda->modules);
    if (is_inside) sumi_cuda_leave(&cuda->device, &scope);
    sumi_free(cuda->heap, cuda->plans);
    sumi_free(cuda->heap, cuda->pages);
    sumi_cuda_device_close(&cuda->device);
    sumi_free(cuda->heap, cuda);
}

static const sumi_runner_functions functions = {.destroy = cuda_destroy,
                                                .name = cuda_name,
                                                .device = cuda_device,
                                                .rates = cuda_rates,
                                                .element_bytes = cuda_element_bytes,
                                                .scratch_bytes = cuda_scratch_bytes,
                                                .reserve = cuda_reserve,
                                                .release = cuda_release,
                                                .start = cuda_start,
                                                .write = cuda_write,
                                                .read = cuda_read,
                                                .run = cuda_run,
                                                .idle = cuda_idle,
                                                .arrange = cuda_arrange,
                                                .load = cuda_load,
                                                .prepare = cuda_prepare,
                                                .is_ready = cuda_is_ready,
                                                .need = cuda_need,
                                                .set_budget = cuda_set_budget,
                                                .trim = cuda_trim,
                                                .shed = cuda_shed,
                                                .room = cuda_room,
                                                .forget_plan = cuda_forget_plan,
                                                .forget_weights = cuda_forget_weights,
                                                .finished = cuda_finished,
                                                .health = cuda_health,
                                                .pending = cuda_pending,
                                                .wait = cuda_wait,
                                                .fetch = cuda_fetch,
                                                .publish = cuda_publish,
                                                .import_gl = cuda_import_gl,
                                                .release_import = cuda_release_import,
                                                .show = cuda_show,
                                                .settle = cuda_settle,
                                                .facts = cuda_facts,
                                                .has_cublaslt = cuda_has_cublaslt,
                                                .list_kernels = cuda_list_kernels};

// A first guess, from what the tensor cores and the memory could do at their best: the engine measures and corrects,
// kind by kind.
static sumi_rates guess_rates(const sumi_cuda_device* device)
{
    int core_khz = 0, memory_khz = 0, bus_bits = 0;
    const sumi_cuda_driver* driver = &device->driver;
    if (driver->cuDeviceGetAttribute(&core_khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, device->device) != CUDA_SUCCESS
        || core_khz <= 0)
        core_khz = 1500000;
    if (driver->cuDeviceGetAttribute(&memory_khz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, device->device) != CUDA_SUCCESS
        || memory_khz <= 0)
        memory_khz = 5000000;
    if (driver->cuDeviceGetAttribute(&bus_bits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, device->device)
            != CUDA_SUCCESS
        || bus_bits <= 0)
        bus_bits = 256;
    return (sumi_rates){.flops_per_us =
                            0.70 * device->multiprocessors * sumi_cuda_flops_per_clock(device) * core_khz * 1e-3,
                        .bytes_per_us = 0.75 * 2.0 * memory_khz * 1e-3 * bus_bits / 8.0, // two transfers a clock
                        .op_us = 3.0};
}

// An event that a thread can sleep for wakes one of the driver's whenever it passes, waited for or not: some 45 us of
// processor time (H200), for every slice. The engine sleeps by predictions and seldom waits, so slices have none, and
// who waits waits for all that was sent, behind which there is one then. Not where sleeps are coarse, and not in a
// stream of the host's: what it has sent behind a slice may wait for the host itself.
static sumi_result make_events(sumi_cuda* cuda, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const bool sleeps_for_all = cuda->device.owns_compute && SUMI_SLEEP_SLACK_US < 1000;
    for (int32_t i = 0; i < SUMI_RUNNER_DEPTH; i++) {
        SUMI_CU(driver, cuEventCreate(&cuda->flights[i].begin, CU_EVENT_DEFAULT), "making an event");
        SUMI_CU(driver,
                cuEventCreate(&cuda->flights[i].end, sleeps_for_all ? CU_EVENT_DEFAULT : CU_EVENT_BLOCKING_SYNC),
                "making an event");
    }
    if (sleeps_for_all)
        SUMI_CU(driver, cuEventCreate(&cuda->all, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING), "making an event");
    for (int32_t i = 0; i < SUMI_CUDA_WRITES; i++) {
        SUMI_CU(driver, cuEventCreate(&cuda->writes[i].event, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING),
                "making an event");
    }
    return SUMI_OK;
}

static sumi_result create_inside(sumi_cuda* cuda, sumi_workers* workers, sumi_cublaslt cublaslt, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    SUMI_TRY(sumi_cuda_modules_create(cuda->heap, &cuda->device, sumi_cuda_images, sumi_cuda_image_count, error,
                                      &cuda->modules));
    sumi_cuda_weights_init(&cuda->weights, cuda->heap, workers, &cuda->device, &cuda->memory, cuda->modules);
    SUMI_TRY(make_events(cuda, error));
    SUMI_CU(driver, cuStreamCreateWithPriority(&cuda->capture, CU_STREAM_NON_BLOCKING, 0),
            "making a stream for graphs");
    SUMI_TRY(sumi_cuda_allocate(&cuda->memory, SUMI_CUDA_ARRIVALS * sizeof(uint32_t) + 64, SUMI_MEMORY_ARENA,
                                "counters", &cuda->fixed, error));
    SUMI_CU(driver, cuMemsetD32Async(cuda->fixed.address, 0, SUMI_CUDA_ARRIVALS + 16, cuda->device.compute),
            "clearing counters");
    SUMI_TRY(sumi_cuda_cublaslt_open(cuda->heap, &cuda->device, cublaslt, &cuda->device.cublaslt, error));
    uint64_t free_bytes;
    (void)ask_driver(cuda, &free_bytes);
    return SUMI_OK;
}

sumi_result sumi_cuda_create(sumi_heap* heap, sumi_workers* workers, const sumi_engine_desc* desc,
                             const sumi_cuda_options* options, sumi_error* error, sumi_runner** out_runner)
{
    *out_runner = NULL;
    sumi_cuda* cuda = sumi_alloc_zero(heap, sizeof *cuda);
    if (cuda == NULL) return sumi_out_of_memory(error, sizeof *cuda, "the CUDA backend");
    cuda->runner.functions = &functions;
    cuda->heap = heap;
    if (options != NULL) cuda->options = *options;
#if defined(SUMI_WITHOUT_HOPPER)
    cuda->options.without_hopper = true; // kernel_images.c has no kernels of its own for it
#endif
    sumi_result result = sumi_cuda_device_open(&cuda->device, desc, error);
    if (result != SUMI_OK) {
        sumi_free(heap, cuda);
        return result;
    }
    sumi_cuda_memory_init(&cuda->memory, &cuda->device, &desc->device_allocator);
    sumi_cuda_scope scope;
    result = sumi_cuda_enter(&cuda->device, &scope, error);
    if (result == SUMI_OK) {
        cuda->rates = guess_rates(&cuda->device);
        result = create_inside(cuda, workers, desc->cuda.cublaslt, error);
        sumi_cuda_leave(&cuda->device, &scope);
    }
    if (result != SUMI_OK) {
        cuda_destroy(&cuda->runner);
        return result;
    }
    *out_runner = &cuda->runner;
    return SUMI_OK;
}
