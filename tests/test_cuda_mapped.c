// Weights in mapped files, page-locked chunk by chunk and copied from there, on the fake driver (fake_cuda):
// copies are real there.
#include "test.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/port_cuda.h"
#include "device/device_memory.h"
#include "device/mapped.h"
#include "fake_cuda.h"
#include "system.h"
#include <stdlib.h>

#define CHUNK 8192
#define COLS 24 // rows of 48 bytes: chunks begin in the middle of rows and of groups

typedef struct place {
    sumi_heap heap;
    sumi_cuda_device device;
    sumi_cuda_port port;
    sumi_device_memory memory;
    sumi_device_mapped mapped;
    sumi_cuda_scope scope;
    sumi_error error;
    unsigned char* file;
    size_t file_bytes;
} place;

static void open_place(place* p)
{
    memset(p, 0, sizeof *p);
    const sumi_engine_desc desc = {.cuda = {.ordinal = -1}};
    fake_reset();
    sumi_heap_init(&p->heap, NULL);
    CHECK(sumi_cuda_device_open(&p->device, &desc, &p->error) == SUMI_OK);
    CHECK(sumi_cuda_enter(&p->device, &p->scope, &p->error) == SUMI_OK);
    sumi_cuda_port_init(&p->port, &p->device, NULL);
    sumi_device_memory_init(&p->memory, &p->port.port, NULL);
    sumi_device_mapped_init(&p->mapped, &p->heap, &p->port.port);
    p->mapped.chunk_bytes = CHUNK;
    p->file_bytes = 16 * CHUNK - 1000; // no multiple of a page
    p->file = system_allocate(16 * CHUNK, CHUNK);
    uint32_t seed = 7;
    for (size_t i = 0; i < p->file_bytes; i++)
        p->file[i] = (unsigned char)((seed = seed * 1664525u + 1013904223u) >> 24);
}

static void close_place(place* p)
{
    CHECK_NUMBER(fake_held_kind("locked"), 0);
    sumi_device_mapped_close(&p->mapped);
    sumi_cuda_leave(&p->device, &p->scope);
    sumi_cuda_device_close(&p->device);
    CHECK_NUMBER(atomic_load(&p->heap.allocated_bytes), 0);
    CHECK_NUMBER(fake_held(), 0);
    CHECK_NUMBER(fake_violations(), 0);
    system_release(p->file);
}

static sumi_stacked_tensor part_at(const place* p, size_t offset, int32_t rows)
{
    return (sumi_stacked_tensor){.data = p->file + offset,
                                 .dtype = SUMI_DTYPE_BF16,
                                 .rows = rows,
                                 .scale = 1.0f,
                                 .mapping = p->file,
                                 .mapping_bytes = p->file_bytes};
}

// Where kernels/upload.cuh puts a row.
static size_t row_on_device(const sumi_weight* weight, bool is_gated, int32_t row)
{
    const int32_t half = weight->rows / 2, in = row < half ? row : row - half;
    return (size_t)(is_gated ? in / 8 * 16 + (row < half ? 0 : 8) + in % 8 : row);
}

static void check_copy(place* p, const sumi_weight* weight, bool is_gated)
{
    const size_t row_bytes = (size_t)weight->cols * 2, bytes = (size_t)weight->rows * row_bytes;
    sumi_device_block block;
    int32_t chunks = 0;
    bool is_done = false;
    CHECK(sumi_device_mapped_holds(&p->mapped, weight));
    CHECK(sumi_device_mapped_lock(&p->mapped, weight, &chunks, UINT64_MAX, &is_done, &p->error) == SUMI_OK && is_done);
    fake_fill_new_memory(0xee);
    CHECK(sumi_device_allocate(&p->memory, bytes, SUMI_MEMORY_WEIGHTS, "a weight", &block, &p->error) == SUMI_OK);
    CHECK(sumi_device_mapped_copy(&p->mapped, weight, is_gated, block.address, &p->error) == SUMI_OK);
    CHECK(p->device.driver.cuStreamSynchronize(p->device.copy) == CUDA_SUCCESS);
    const unsigned char* there = (const unsigned char*)(uintptr_t)block.address;
    int32_t row = 0, wrong = 0;
    for (int32_t part = 0; part < weight->tensor_count; part++) {
        const unsigned char* from = weight->tensors[part].data;
        for (int32_t r = 0; r < weight->tensors[part].rows; r++, row++)
            wrong += memcmp(there + row_on_device(weight, is_gated, row) * row_bytes, from + (size_t)r * row_bytes,
                            row_bytes)
                  != 0;
    }
    CHECK_NUMBER(wrong, 0);
    sumi_device_mapped_unlock(&p->mapped, weight, &chunks, INT32_MAX);
    CHECK_NUMBER(chunks, 0);
    sumi_device_release(&p->memory, &block);
}

TEST(rows_arrive_as_the_device_wants_them)
{
    place p;
    open_place(&p);
    static const size_t s_offsets[] = {0, 8, 48, 1001, CHUNK - 1, CHUNK, 3 * CHUNK + 4095};
    for (size_t i = 0; i < sizeof s_offsets / sizeof s_offsets[0]; i++) {
        for (int32_t rows = 16; rows <= 512; rows *= 2) {
            sumi_weight one = {.name = "one", .rows = rows, .cols = COLS, .tensor_count = 1};
            one.tensors[0] = part_at(&p, s_offsets[i], rows);
            // the second part belongs to both halves
            sumi_weight three = {.name = "three", .rows = rows, .cols = COLS, .tensor_count = 3};
            three.tensors[0] = part_at(&p, s_offsets[i], rows / 4);
            three.tensors[1] = part_at(&p, 8 * CHUNK - s_offsets[i], rows / 2);
            three.tensors[2] = part_at(&p, p.file_bytes - (size_t)(rows / 4) * COLS * 2, rows / 4);
            for (int is_gated = 0; is_gated < 2; is_gated++)
                check_copy(&p, &one, is_gated), check_copy(&p, &three, is_gated);
        }
    }
    close_place(&p);
}

TEST(neighbours_share_chunks)
{
    place p;
    open_place(&p);
    // 4800 bytes each, in chunks 0 and 1
    sumi_weight a = {.name = "a", .rows = 100, .cols = COLS, .tensor_count = 1}, b = a;
    a.tensors[0] = part_at(&p, 0, 100);
    b.tensors[0] = part_at(&p, 4800, 100);
    int32_t chunks_a = 0, chunks_b = 0;
    bool is_done = false;
    CHECK(sumi_device_mapped_lock(&p.mapped, &a, &chunks_a, 0, &is_done, &p.error) == SUMI_OK && is_done
          && chunks_a == 1);
    // no time: one chunk a call
    CHECK(sumi_device_mapped_lock(&p.mapped, &b, &chunks_b, 0, &is_done, &p.error) == SUMI_OK && !is_done
          && chunks_b == 1);
    CHECK_NUMBER(fake_held_kind("locked"), 1);
    CHECK(sumi_device_mapped_lock(&p.mapped, &b, &chunks_b, 0, &is_done, &p.error) == SUMI_OK && is_done
          && chunks_b == 2);
    CHECK_NUMBER(fake_held_kind("locked"), 2);
    sumi_device_mapped_unlock(&p.mapped, &a, &chunks_a, 1);
    CHECK_NUMBER(fake_held_kind("locked"), 2); // b is in both
    sumi_device_mapped_unlock(&p.mapped, &b, &chunks_b, 2);
    close_place(&p);
}

TEST(a_refusal_is_no_failure_and_a_lost_device_is)
{
    place p;
    open_place(&p);
    sumi_weight w = {.name = "w", .rows = 512, .cols = COLS, .tensor_count = 1};
    int32_t chunks = 0;
    bool is_done = true;
    w.tensors[0] = part_at(&p, 100, 512);
    fake_fail_call("cuMemHostRegister", 2, CUDA_ERROR_OUT_OF_MEMORY);
    CHECK(sumi_device_mapped_lock(&p.mapped, &w, &chunks, UINT64_MAX, &is_done, &p.error) == SUMI_OK);
    CHECK(!is_done && chunks == 1 && !p.mapped.is_supported && !sumi_device_mapped_holds(&p.mapped, &w));
    sumi_device_mapped_unlock(&p.mapped, &w, &chunks, INT32_MAX);
    CHECK_NUMBER(fake_held_kind("locked"), 0);

    p.mapped.is_supported = true;
    w.tensors[0].mapping = NULL; // memory of the host program's
    CHECK(!sumi_device_mapped_holds(&p.mapped, &w));
    w.tensors[0].mapping = p.file;
    fake_fail_call("cuMemHostRegister", 1, CUDA_ERROR_ILLEGAL_ADDRESS);
    CHECK_NUMBER(sumi_device_mapped_lock(&p.mapped, &w, &chunks, UINT64_MAX, &is_done, &p.error), SUMI_DEVICE_LOST);
    CHECK(!is_done && chunks == 0 && p.error.text[0] != 0);
    close_place(&p);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(rows_arrive_as_the_device_wants_them);
    RUN(neighbours_share_chunks);
    RUN(a_refusal_is_no_failure_and_a_lost_device_is);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
