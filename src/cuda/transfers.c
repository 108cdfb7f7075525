#include "cuda/transfers.h"
#include "base/assert.h"
#include "base/numbers.h"
#include "base/platform.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/state.h"
#include "device/device_memory.h"
#include "device/pinned.h"
#include <string.h>

#define ALIGN 64u // bytes; of constants and mirrors

static size_t pages_of(uint64_t end) { return (size_t)((end + SUMI_CUDA_PAGE - 1) / SUMI_CUDA_PAGE); }

// Pages that a plan needs in the ring buffer: its inputs twice, because the next job writes its inputs while slices of
// this one are in flight, but at most SUMI_CUDA_RING_PAGES. Activations and bytes that an op writes do not count: the
// engine only reads them.
static size_t ring_pages_of(const sumi_plan* plan)
{
    uint64_t bytes = 0;
    for (size_t v = 0; v < plan->value_count; v++) {
        const sumi_value_info* info = &plan->values[v];
        const bool may_be_result = info->element == SUMI_ELEMENT_ACTIVATION || info->element == SUMI_ELEMENT_BYTE;
        if (info->bound && !(may_be_result && sumi_plan_writes(plan, (sumi_value){(int32_t)v + 1})))
            bytes += info->bytes;
    }
    const size_t pages = pages_of(2 * bytes + 1);
    return pages < SUMI_CUDA_RING_PAGES ? pages : SUMI_CUDA_RING_PAGES;
}

sumi_result sumi_cuda_make_mirrors(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error)
{
    if (record->mirrors != NULL) return SUMI_OK;
    const sumi_plan* plan = record->held.plan;
    int32_t count = 0;
    for (size_t v = 0; v < plan->value_count; v++)
        count += plan->values[v].bound && sumi_plan_writes(plan, (sumi_value){(int32_t)v + 1});
    record->mirrors = sumi_alloc_zero(cuda->heap, (size_t)(count + 1) * sizeof *record->mirrors);
    if (record->mirrors == NULL)
        return sumi_out_of_memory(error, (size_t)(count + 1) * sizeof *record->mirrors, "a plan on the device");
    record->mirror_count = 0;
    record->mirror_end = 0;
    record->ring_pages = ring_pages_of(plan);
    for (size_t v = 0; v < plan->value_count; v++) {
        const sumi_value value = {(int32_t)v + 1};
        if (!plan->values[v].bound || !sumi_plan_writes(plan, value)) continue;
        sumi_cuda_mirror* mirror = &record->mirrors[record->mirror_count++];
        *mirror = (sumi_cuda_mirror){.value = value, .offset = record->mirror_end};
        record->mirror_end += sumi_align(plan->values[v].bytes, ALIGN);
    }
    for (int32_t i = 0; i < record->mirror_count; i++) {
        SUMI_CU(&cuda->device.driver, cuEventCreate(&record->mirrors[i].event, sumi_cuda_copy_event_flags(cuda)),
                "making an event");
    }
    return SUMI_OK;
}

void sumi_cuda_drop_mirrors(sumi_cuda* cuda, sumi_cuda_plan* record)
{
    for (int32_t i = 0; i < record->mirror_count; i++) {
        if (record->mirrors[i].event != NULL) cuda->device.driver.cuEventDestroy(record->mirrors[i].event);
    }
    sumi_free(cuda->heap, record->mirrors);
    record->mirrors = NULL;
    record->mirror_count = 0;
}

sumi_result sumi_cuda_make_constants(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_error* error)
{
    const sumi_plan* plan = record->held.plan;
    uint64_t bytes = 0;
    for (size_t i = 0; i < plan->constant_count; i++) bytes += sumi_align(plan->constants[i].bytes, ALIGN);
    if (bytes == 0 || record->constants.address != 0) return SUMI_OK;
    SUMI_TRY(sumi_device_allocate(&cuda->stock.memory, bytes, SUMI_MEMORY_STAGING, "a plan's constants",
                                  &record->constants, error));
    unsigned char* destination = sumi_device_host(&record->constants);
    for (size_t i = 0; i < plan->constant_count; i++) {
        memcpy(destination, plan->constants[i].data, (size_t)plan->constants[i].bytes);
        destination += sumi_align(plan->constants[i].bytes, ALIGN);
    }
    return SUMI_OK;
}

bool sumi_cuda_has_pages(const sumi_cuda* cuda, const sumi_cuda_plan* record)
{
    return cuda->ring_count >= record->ring_pages && cuda->page_count >= pages_of(record->mirror_end);
}

uint64_t sumi_cuda_pinned_bytes(const sumi_plan* plan)
{
    uint64_t constants = 0, mirrors = 0;
    for (size_t i = 0; i < plan->constant_count; i++) constants += sumi_align(plan->constants[i].bytes, ALIGN);
    for (size_t v = 0; v < plan->value_count; v++) {
        if (plan->values[v].bound && sumi_plan_writes(plan, (sumi_value){(int32_t)v + 1}))
            mirrors += sumi_align(plan->values[v].bytes, ALIGN);
    }
    return (ring_pages_of(plan) + pages_of(mirrors)) * (uint64_t)SUMI_CUDA_PAGE + sumi_device_block_bytes(constants);
}

// Allocates a block of `count` pages, for the ring buffer first.
static sumi_result make_page_block(sumi_cuda* cuda, const sumi_cuda_plan* record, size_t count, sumi_error* error)
{
    SUMI_TRY(sumi_grow(cuda->heap, (void**)&cuda->page_blocks, &cuda->page_block_capacity, cuda->page_block_count + 1,
                       sizeof *cuda->page_blocks, error));
    sumi_device_block* block = &cuda->page_blocks[cuda->page_block_count];
    SUMI_TRY(sumi_device_allocate(&cuda->stock.memory, count * SUMI_CUDA_PAGE, SUMI_MEMORY_STAGING,
                                  "staging memory for inputs and results", block, error));
    cuda->page_block_count++;
    unsigned char* page = sumi_device_host(block);
    for (size_t i = 0; i < count; i++, page += SUMI_CUDA_PAGE) {
        if (cuda->ring_count < record->ring_pages) cuda->ring[cuda->ring_count++] = page;
        else cuda->pages[cuda->page_count++] = page;
    }
    return SUMI_OK;
}

sumi_result sumi_cuda_make_pages(sumi_cuda* cuda, const sumi_cuda_plan* record, uint64_t until_ns, sumi_error* error)
{
    SUMI_ASSERT(!sumi_cuda_has_pages(cuda, record));
    const size_t required_pages = pages_of(record->mirror_end),
                 most = cuda->stock.weights.is_paced ? 1 : SUMI_CUDA_MOST_PAGES;
    SUMI_TRY(
        sumi_grow(cuda->heap, (void**)&cuda->pages, &cuda->page_capacity, required_pages, sizeof *cuda->pages, error));
    do {
        const size_t missing = (record->ring_pages > cuda->ring_count ? record->ring_pages - cuda->ring_count : 0)
                             + (required_pages > cuda->page_count ? required_pages - cuda->page_count : 0);
        SUMI_TRY(make_page_block(cuda, record, missing < most ? missing : most, error));
    } while (!sumi_cuda_has_pages(cuda, record) && sumi_clock_ns() < until_ns);
    return SUMI_OK;
}

// The address of an offset in `count` pages. Reduces *io_bytes to the bytes in the same page.
static unsigned char* page_at(unsigned char* const* pages, size_t count, uint64_t offset, uint64_t* io_bytes)
{
    SUMI_ASSERT(*io_bytes > 0 && offset / SUMI_CUDA_PAGE < count);
    (void)count;
    const uint64_t in_page = offset % SUMI_CUDA_PAGE, remaining_bytes = SUMI_CUDA_PAGE - in_page;
    *io_bytes = *io_bytes < remaining_bytes ? *io_bytes : remaining_bytes;
    return pages[offset / SUMI_CUDA_PAGE] + in_page;
}

// ---- Inputs ---------------------------------------------------------------------------------------------------------

static CUdeviceptr value_address(const sumi_cuda* cuda, const sumi_plan* plan, sumi_value value)
{
    return cuda->stock.arena.address + sumi_plan_info(plan, value)->offset;
}

void sumi_cuda_copy_constants(sumi_cuda* cuda, const sumi_cuda_plan* record)
{
    const sumi_plan* plan = record->held.plan;
    const unsigned char* source = sumi_device_host(&record->constants);
    for (size_t i = 0; i < plan->constant_count; i++) {
        const sumi_constant* constant = &plan->constants[i];
        sumi_cuda_note_failure(cuda,
                               cuda->device.driver.cuMemcpyHtoDAsync(value_address(cuda, plan, constant->value), source,
                                                                     (size_t)constant->bytes, cuda->device.compute),
                               "copying a plan's constants");
        source += sumi_align(constant->bytes, ALIGN);
    }
}

// Waits for the oldest copy out of the ring buffer.
static void wait_for_oldest_write(sumi_cuda* cuda)
{
    SUMI_ASSERT(cuda->write_count > 0);
    sumi_cuda_write* oldest = &cuda->writes[cuda->write_first];
    sumi_cuda_wait_for_event(cuda, oldest->event, "waiting for a copy to the device");
    if (cuda->write_count == 0) return; // the device is lost
    cuda->write_first = (cuda->write_first + 1) % SUMI_CUDA_WRITES;
    cuda->write_count--;
}

// Frees memory for the next piece of an input: [ring_offset, ring_offset + *io_bytes) in one page, without copies in
// flight. The CPU copies one piece of a large input while the bus transfers another.
static unsigned char* reserve_in_ring(sumi_cuda* cuda, uint64_t* io_bytes)
{
    if (cuda->ring_offset >= cuda->ring_count * SUMI_CUDA_PAGE) cuda->ring_offset = 0;
    SUMI_ASSERT(cuda->ring_offset % ALIGN == 0 && cuda->ring_count > 0);
    unsigned char* destination = page_at(cuda->ring, cuda->ring_count, cuda->ring_offset, io_bytes);
    const uint64_t bytes = *io_bytes;
    while (cuda->write_count == SUMI_CUDA_WRITES) wait_for_oldest_write(cuda);
    // Copies end in order, so it waits for all up to the newest one that overlaps.
    for (bool meets = true; meets && cuda->write_count > 0;) {
        meets = false;
        for (uint32_t i = 0; i < cuda->write_count && !meets; i++) {
            const sumi_cuda_write* w = &cuda->writes[(cuda->write_first + i) % SUMI_CUDA_WRITES];
            meets = w->begin < cuda->ring_offset + bytes && cuda->ring_offset < w->end;
        }
        if (meets) wait_for_oldest_write(cuda);
    }
    return destination;
}

void sumi_cuda_runner_write(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset,
                            const void* data, uint64_t bytes)
{
    SUMI_ASSERT(value.id > 0 && offset + bytes <= sumi_plan_info(plan, value)->bytes);
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    if (cuda->failure.result != SUMI_OK || cuda->ring_count == 0 || !sumi_cuda_enter_quietly(cuda, &scope)) return;
    cuda->is_end_newest = false;
    const unsigned char* from = data;
    const CUdeviceptr to = value_address(cuda, plan, value) + offset;
    for (uint64_t done = 0; done < bytes && cuda->failure.result == SUMI_OK;) {
        uint64_t piece = bytes - done;
        unsigned char* pinned = reserve_in_ring(cuda, &piece);
        if (cuda->failure.result != SUMI_OK) break;
        memcpy(pinned, from + done, (size_t)piece);
        SUMI_ASSERT(cuda->write_count < SUMI_CUDA_WRITES
                    && cuda->ring_offset + piece <= cuda->ring_count * SUMI_CUDA_PAGE);
        sumi_cuda_write* w = &cuda->writes[(cuda->write_first + cuda->write_count) % SUMI_CUDA_WRITES];
        sumi_cuda_note_failure(
            cuda, cuda->device.driver.cuMemcpyHtoDAsync(to + done, pinned, (size_t)piece, cuda->device.compute),
            "copying an input to the device");
        sumi_cuda_note_failure(cuda, cuda->device.driver.cuEventRecord(w->event, cuda->device.compute),
                               "copying an input to the device");
        w->begin = cuda->ring_offset;
        w->end = cuda->ring_offset += sumi_align(piece, ALIGN);
        cuda->write_count++;
        done += piece;
    }
    sumi_cuda_leave(&cuda->device, &scope);
}

// ---- Results --------------------------------------------------------------------------------------------------------

static sumi_cuda_mirror* mirror_of(sumi_cuda_plan* record, sumi_value value)
{
    for (int32_t i = 0; record != NULL && i < record->mirror_count; i++) {
        if (record->mirrors[i].value.id == value.id) return &record->mirrors[i];
    }
    return NULL;
}

static sumi_result fetch_mirror(sumi_cuda* cuda, sumi_cuda_plan* record, sumi_cuda_mirror* mirror, sumi_error* error)
{
    SUMI_ASSERT(!mirror->is_pending); // at most one copy is pending
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const sumi_value_info* info = sumi_plan_info(record->held.plan, mirror->value);
    cuda->is_end_newest = false;
    for (uint64_t done = 0, piece; done < info->bytes; done += piece) {
        piece = info->bytes - done;
        unsigned char* to = page_at(cuda->pages, cuda->page_count, mirror->offset + done, &piece);
        SUMI_CU(
            driver,
            cuMemcpyDtoHAsync(to, cuda->stock.arena.address + info->offset + done, (size_t)piece, cuda->device.compute),
            "copying a result from the device");
    }
    SUMI_CU(driver, cuEventRecord(mirror->event, cuda->device.compute), "copying a result from the device");
    mirror->is_pending = true;
    if (cuda->flight_count > 0)
        sumi_cuda_flight_at(cuda, cuda->flight_count - 1)->last_fetch = (int32_t)(mirror - record->mirrors);
    return SUMI_OK;
}

sumi_result sumi_cuda_runner_fetch(sumi_runner* runner, const sumi_plan* plan, sumi_value value, sumi_error* error)
{
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    sumi_cuda_mirror* mirror = mirror_of(record, value);
    SUMI_TRY(sumi_cuda_report_failure(cuda, error));
    if (mirror == NULL || !record->held.is_reserved || !sumi_cuda_has_pages(cuda, record))
        return sumi_fail(error, SUMI_INTERNAL, "%s cannot be read: it is not bound, or no op writes it",
                         sumi_plan_info(plan, value)->name);
    SUMI_TRY(sumi_cuda_enter(&cuda->device, &scope, error));
    sumi_result result = fetch_mirror(cuda, record, mirror, error);
    sumi_cuda_leave(&cuda->device, &scope);
    return sumi_cuda_note_result(cuda, result, error);
}

void sumi_cuda_runner_read(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, void* into,
                           uint64_t bytes)
{
    SUMI_ASSERT(value.id > 0 && offset + bytes <= sumi_plan_info(plan, value)->bytes);
    sumi_cuda* cuda = (sumi_cuda*)runner;
    sumi_cuda_scope scope;
    sumi_cuda_plan* record = sumi_cuda_find_plan(cuda, plan);
    sumi_cuda_mirror* mirror = mirror_of(record, value);
    const bool has_mirror = mirror != NULL && sumi_cuda_has_pages(cuda, record);
    if (mirror != NULL && mirror->is_pending && cuda->failure.result != SUMI_DEVICE_LOST
        && sumi_cuda_enter_quietly(cuda, &scope)) {
        // Usually the event has passed. A copy without a slice before it has no other event.
        sumi_cuda_wait_for_event(cuda, mirror->event, "waiting for a copy from the device");
        mirror->is_pending = false;
        sumi_cuda_leave(&cuda->device, &scope);
    }
    if (!has_mirror) memset(into, 0, (size_t)bytes);
    for (uint64_t done = 0, piece; has_mirror && done < bytes; done += piece) {
        piece = bytes - done;
        const unsigned char* from = page_at(cuda->pages, cuda->page_count, mirror->offset + offset + done, &piece);
        memcpy((unsigned char*)into + done, from, (size_t)piece);
    }
}
