// What calls of the driver cost the thread that makes them, and when instantiating a graph waits for the kernels of a
// host program. Not a test: tables for bench.md, and to decide how slices are launched. Needs a GPU to itself.
//
//     tune_cuda_calls
#include "base/platform.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// `spin` runs for so many nanoseconds, `nothing` not at all.
static const char s_kernels[] = ".version 7.0\n"
                                ".target sm_80\n"
                                ".address_size 64\n"
                                ".visible .entry spin(.param .u64 ns) {\n"
                                "    .reg .pred %p;\n"
                                "    .reg .u64 %begin, %now, %ns;\n"
                                "    ld.param.u64 %ns, [ns];\n"
                                "    mov.u64 %begin, %globaltimer;\n"
                                "again:\n"
                                "    mov.u64 %now, %globaltimer;\n"
                                "    sub.u64 %now, %now, %begin;\n"
                                "    setp.lt.u64 %p, %now, %ns;\n"
                                "    @%p bra again;\n"
                                "    ret;\n"
                                "}\n"
                                ".visible .entry nothing(.param .u64 a, .param .u64 b, .param .u64 c) { ret; }\n";

enum { MAX_GRAPHS = 4000, ROUNDS = 20, CALLS = 50 };
#define HOST_NS 10000000ull // of a kernel of the host program

static sumi_cuda_device s_device;
static CUfunction s_spin, s_nothing;
static CUstream s_host, s_capture;
static CUgraphExec s_graphs[MAX_GRAPHS];
static int32_t s_graph_count;

static void need(CUresult result, const char* what)
{
    if (result == CUDA_SUCCESS) return;
    printf("%s failed: CUDA's error %d\n", what, (int)result);
    exit(1);
}
#define CU(call) need(s_device.driver.call, #call)

static double us_now(void) { return 1e-3 * (double)sumi_clock_ns(); }

static void launch(CUstream stream)
{
    uint64_t values[3] = {1, 2, 3};
    void* params[] = {&values[0], &values[1], &values[2]};
    CU(cuLaunchKernel(s_nothing, 100, 1, 1, 256, 1, 1, 0, stream, params, NULL));
}

static CUgraph capture(int32_t kernels)
{
    CUgraph graph;
    CU(cuStreamBeginCapture(s_capture, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (int32_t i = 0; i < kernels; i++) launch(s_capture);
    CU(cuStreamEndCapture(s_capture, &graph));
    return graph;
}

static void drop_graphs(void)
{
    while (s_graph_count > 0) CU(cuGraphExecDestroy(s_graphs[--s_graph_count]));
}

// ---- What calls cost ------------------------------------------------------------------------------------------------

// The least mean of some rounds; the queue is empty before each.
#define TIME(what, call)                                                                                               \
    do {                                                                                                               \
        double least = 1e9;                                                                                            \
        for (int32_t round = 0; round < ROUNDS; round++) {                                                             \
            CU(cuStreamSynchronize(s_device.compute));                                                                 \
            const double begin = us_now();                                                                             \
            for (int32_t k = 0; k < CALLS; k++) { call; }                                                              \
            const double us = (us_now() - begin) / CALLS;                                                              \
            least = us < least ? us : least;                                                                           \
        }                                                                                                              \
        printf("| %-42s | %6.2f |\n", what, least);                                                                    \
    } while (0)

static void time_calls(void)
{
    const CUstream stream = s_device.compute;
    CUevent first, last;
    CU(cuEventCreate(&first, 0));
    CU(cuEventCreate(&last, 0));
    printf("| the thread's time, us                      |        |\n|---|---:|\n");
    for (int32_t kernels = 1; kernels <= 16; kernels *= 2) {
        char name[64];
        snprintf(name, sizeof name, "%d kernels, launched one by one", (int)kernels);
        TIME(name, for (int32_t i = 0; i < kernels; i++) launch(stream));
        CUgraph graph = capture(kernels);
        CUgraphExec exec;
        CU(cuGraphInstantiateWithFlags(&exec, graph, 0));
        CU(cuGraphUpload(exec, stream));
        snprintf(name, sizeof name, "a graph of %d", (int)kernels);
        TIME(name, CU(cuGraphLaunch(exec, stream)));
        CU(cuGraphExecDestroy(exec));
        CU(cuGraphDestroy(graph));
    }
    float ms;
    CU(cuEventRecord(first, stream));
    TIME("cuEventRecord", CU(cuEventRecord(last, stream)));
    CU(cuStreamSynchronize(stream));
    TIME("cuEventQuery, passed", CU(cuEventQuery(last)));
    TIME("cuEventElapsedTime", CU(cuEventElapsedTime(&ms, first, last)));
    CUcontext popped;
    TIME("cuCtxPushCurrent and cuCtxPopCurrent", CU(cuCtxPushCurrent(s_device.context)); CU(cuCtxPopCurrent(&popped)));
    CU(cuEventDestroy(first));
    CU(cuEventDestroy(last));
}

// ---- What waits -----------------------------------------------------------------------------------------------------

static void make_graphs(const char* what, int32_t count, int32_t kernels, bool is_busy)
{
    int32_t waits = 0;
    double longest = 0.0;
    size_t before, after, all;
    CU(cuMemGetInfo(&before, &all));
    for (int32_t i = 0; i < count && s_graph_count < MAX_GRAPHS; i++) {
        CUgraph graph = capture(kernels);
        uint64_t ns = HOST_NS;
        void* params[] = {&ns};
        if (is_busy && s_device.driver.cuStreamQuery(s_host) == CUDA_SUCCESS)
            CU(cuLaunchKernel(s_spin, 1, 1, 1, 32, 1, 1, 0, s_host, params, NULL));
        const double begin = us_now();
        CU(cuGraphInstantiateWithFlags(&s_graphs[s_graph_count++], graph, 0));
        const double us = us_now() - begin;
        waits += us > 1000.0;
        longest = us > longest ? us : longest;
        CU(cuGraphDestroy(graph));
    }
    CU(cuMemGetInfo(&after, &all));
    printf("| %-58s | %5d | %3d | %7.2f | %6.1f |\n", what, (int)count, (int)waits, 1e-3 * longest,
           ((double)before - (double)after) / 1048576.0);
    CU(cuStreamSynchronize(s_host));
}

static void time_graphs(void)
{
    printf("\n| instantiating graphs of 8 kernels | graphs | above 1 ms | longest, ms | MiB more "
           "|\n|---|---:|---:|---:|---:|\n");
    make_graphs("on the idle device", 400, 8, false);
    drop_graphs();
    make_graphs("beside the host's kernels, after those were freed", 400, 8, true);
    make_graphs("beside the host's kernels, more of them", 400, 8, true);
    drop_graphs();
}

int main(void)
{
    sumi_engine_desc desc = sumi_engine_defaults();
    sumi_error error = {0};
    if (sumi_cuda_device_open(&s_device, &desc, &error) != SUMI_OK) {
        printf("skipped: %s\n", error.text);
        return 0;
    }
    sumi_cuda_scope scope;
    if (sumi_cuda_enter(&s_device, &scope, &error) != SUMI_OK) return printf("%s\n", error.text), 1;
    int least, greatest;
    CUmodule module;
    CU(cuModuleLoadDataEx(&module, s_kernels, 0, NULL, NULL));
    CU(cuModuleGetFunction(&s_spin, module, "spin"));
    CU(cuModuleGetFunction(&s_nothing, module, "nothing"));
    CU(cuCtxGetStreamPriorityRange(&least, &greatest));
    CU(cuStreamCreateWithPriority(&s_host, CU_STREAM_NON_BLOCKING, greatest));
    CU(cuStreamCreateWithPriority(&s_capture, CU_STREAM_NON_BLOCKING, 0));
    printf("%s\n\n", s_device.name);
    time_calls();
    time_graphs();
    CU(cuStreamDestroy(s_host));
    CU(cuStreamDestroy(s_capture));
    CU(cuModuleUnload(module));
    sumi_cuda_leave(&s_device, &scope);
    sumi_cuda_device_close(&s_device);
    return 0;
}
