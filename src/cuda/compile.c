#include "base/assert.h"
#include "base/platform.h"
#include "cuda/image.h"
#include <stdatomic.h>

#define MAX_THREADS 4 // the largest image takes about a quarter of all together

struct sumi_cuda_compiler {
    sumi_heap* heap;
    const sumi_cuda_device* device;
    sumi_cuda_compiled* items;
    int32_t count;
    atomic_int next, done;
    sumi_thread threads[MAX_THREADS];
    sumi_thread_start start;
    int32_t thread_count;
};

static void compile_one(const sumi_cuda_compiler* compiler, sumi_cuda_compiled* item)
{
    sumi_cuda_scope scope;
    item->result = sumi_cuda_enter(compiler->device, &scope, &item->error);
    if (item->result != SUMI_OK) return;
    item->result = sumi_cuda_load_image(compiler->heap, compiler->device, item->image, &item->module, &item->refusal,
                                        item->log, &item->error);
    sumi_cuda_leave(compiler->device, &scope);
}

static void compile_main(void* context)
{
    sumi_cuda_compiler* compiler = context;
    for (int i = atomic_fetch_add(&compiler->next, 1); i < compiler->count; i = atomic_fetch_add(&compiler->next, 1)) {
        compile_one(compiler, &compiler->items[i]);
        atomic_fetch_add(&compiler->done, 1);
    }
}

sumi_result sumi_cuda_compile_begin(sumi_heap* heap, const sumi_cuda_device* device, sumi_cuda_compiled* items,
                                    int32_t count, sumi_error* error, sumi_cuda_compiler** out_compiler)
{
    SUMI_ASSERT(count >= 1);
    *out_compiler = NULL;
    sumi_cuda_compiler* compiler = sumi_alloc_zero(heap, sizeof *compiler);
    if (compiler == NULL) return sumi_out_of_memory(error, sizeof *compiler, "compiling GPU kernels");
    compiler->heap = heap;
    compiler->device = device;
    compiler->items = items;
    compiler->count = count;
    compiler->start = (sumi_thread_start){compile_main, compiler, true, "sumi kernels"};
    const int32_t cpu_count = sumi_cpu_count();
    int32_t threads = count < MAX_THREADS ? count : MAX_THREADS;
    if (threads > cpu_count && cpu_count >= 1) threads = cpu_count;
    while (compiler->thread_count < threads
           && sumi_thread_begin(&compiler->threads[compiler->thread_count], &compiler->start))
        compiler->thread_count++;
    if (compiler->thread_count == 0) {
        sumi_free(heap, compiler);
        return sumi_fail(error, SUMI_OUT_OF_HOST_MEMORY, "the system has no thread to compile the kernels with");
    }
    *out_compiler = compiler;
    return SUMI_OK;
}

int32_t sumi_cuda_compile_done(const sumi_cuda_compiler* compiler) { return atomic_load(&compiler->done); }

void sumi_cuda_compile_end(sumi_cuda_compiler* compiler)
{
    for (int32_t i = 0; i < compiler->thread_count; i++) sumi_thread_join(&compiler->threads[i]);
    sumi_free(compiler->heap, compiler);
}
