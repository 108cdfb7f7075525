// A host that computes with the CUDA runtime and cuBLAS while sumi draws in the same process and primary context:
// neither may notice the other. Built and run by tests/run_gpu.sh (part neighbour) on a machine with a GPU and nvcc; no
// part of the build.
//
//     nvcc -std=c++17 -Iinclude -Itests tests/cuda_neighbour.cu libsumi.a -lcublas -lutf8proc -lz -lpthread -ldl -o cuda_neighbour
//
// One thread multiplies matrices and captures graphs in global mode, which is the strictest: until the capture has
// ended, what any thread does that is "potentially unsafe" is refused and spoils it, unless that thread has said that
// it may. That is why the host's own calls are all on this one thread, and sumi's are on others.
#include "test.h"
#include <atomic>
#include <chrono>
#include <cublas_v2.h>
#include <cuda_runtime.h>
#include <sumi.h>
#include <thread>
#include <vector>

#define MODEL "tests/golden/z-image/model"
#define SIDE 512
#define RUNTIME(call) CHECK_NUMBER(call, cudaSuccess)
#define BLAS(call) CHECK_NUMBER(call, CUBLAS_STATUS_SUCCESS)

static uint64_t hash_bytes(uint64_t hash, const void* data, size_t bytes)
{
    const unsigned char* at = (const unsigned char*)data;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 1099511628211u;
    return hash;
}

// ---- The host's work ------------------------------------------------------------------------------------------------

__global__ void add_scaled(float* y, const float* x, float scale, int count)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[i] = y[i] * 0.5f + x[i] * scale;
}

struct neighbour {
    cublasHandle_t blas;
    cudaStream_t stream, captured;
    float *a, *b, *c, *x, *y;
    std::vector<float> host_a, host_b, host_c;
    std::atomic<int> rounds{0}, captures{0};
    std::atomic<bool> stops{false};
    std::atomic<uint64_t> hash{0}; // of every round's results: all alike
    std::atomic<int> others{0};    // rounds with another hash
};

static void open_neighbour(neighbour* n)
{
    const size_t count = (size_t)SIDE * SIDE, bytes = count * sizeof(float);
    RUNTIME(cudaStreamCreateWithFlags(&n->stream, cudaStreamNonBlocking));
    RUNTIME(cudaStreamCreate(&n->captured));
    BLAS(cublasCreate(&n->blas));
    BLAS(cublasSetStream(n->blas, n->stream));
    float** all[] = {&n->a, &n->b, &n->c, &n->x, &n->y};
    for (float** p : all) RUNTIME(cudaMalloc((void**)p, bytes));
    n->host_a.resize(count), n->host_b.resize(count), n->host_c.resize(count);
    uint32_t state = 1;
    for (size_t i = 0; i < count; i++) { // small whole numbers: sums are exact in any order
        state = state * 1664525u + 1013904223u;
        n->host_a[i] = (float)((state >> 24) % 7) - 3.0f;
        n->host_b[i] = (float)((state >> 16) % 5) - 2.0f;
    }
    RUNTIME(cudaMemcpy(n->a, n->host_a.data(), bytes, cudaMemcpyHostToDevice));
    RUNTIME(cudaMemcpy(n->b, n->host_b.data(), bytes, cudaMemcpyHostToDevice));
    RUNTIME(cudaMemcpy(n->x, n->host_b.data(), bytes, cudaMemcpyHostToDevice));
}

static void close_neighbour(neighbour* n)
{
    float* all[] = {n->a, n->b, n->c, n->x, n->y};
    for (float* p : all) RUNTIME(cudaFree(p));
    BLAS(cublasDestroy(n->blas));
    RUNTIME(cudaStreamDestroy(n->captured));
    RUNTIME(cudaStreamDestroy(n->stream));
}

static void play_round(neighbour* n)
{
    const size_t count = (size_t)SIDE * SIDE, bytes = count * sizeof(float);
    const float one = 1.0f, zero = 0.0f;
    BLAS(cublasSgemm(n->blas, CUBLAS_OP_N, CUBLAS_OP_N, SIDE, SIDE, SIDE, &one, n->a, SIDE, n->b, SIDE, &zero, n->c,
                     SIDE));
    RUNTIME(cudaMemcpyAsync(n->host_c.data(), n->c, bytes, cudaMemcpyDeviceToHost, n->stream));
    RUNTIME(cudaStreamSynchronize(n->stream));
    for (int i = 0; i < 64; i++) { // columns first
        const int row = i * 37 % SIDE, col = i * 101 % SIDE;
        float sum = 0.0f;
        for (int k = 0; k < SIDE; k++) sum += n->host_a[(size_t)k * SIDE + row] * n->host_b[(size_t)col * SIDE + k];
        CHECK(n->host_c[(size_t)col * SIDE + row] == sum);
    }
    uint64_t hash = hash_bytes(1469598103934665603u, n->host_c.data(), bytes);

    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    RUNTIME(cudaMemsetAsync(n->y, 0, bytes, n->captured));
    RUNTIME(cudaStreamSynchronize(n->captured));
    RUNTIME(cudaStreamBeginCapture(n->captured, cudaStreamCaptureModeGlobal));
    for (int i = 0; i < 8; i++) {
        add_scaled<<<(unsigned)((count + 255) / 256), 256, 0, n->captured>>>(n->y, n->x, 1.0f + (float)i, (int)count);
        // long enough for sumi to do anything that it ever does
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    RUNTIME(cudaStreamEndCapture(n->captured, &graph)); // fails when anybody has spoilt it
    if (graph != NULL) {
        RUNTIME(cudaGraphInstantiate(&exec, graph, 0));
        RUNTIME(cudaGraphLaunch(exec, n->captured));
        RUNTIME(cudaMemcpyAsync(n->host_c.data(), n->y, bytes, cudaMemcpyDeviceToHost, n->captured));
        RUNTIME(cudaStreamSynchronize(n->captured));
        RUNTIME(cudaGraphExecDestroy(exec));
        RUNTIME(cudaGraphDestroy(graph));
        hash = hash_bytes(hash, n->host_c.data(), bytes);
        n->captures++;
    }
    RUNTIME(cudaGetLastError());
    if (n->hash == 0) n->hash = hash;
    if (n->hash != hash) n->others++;
    n->rounds++;
}

static void play(neighbour* n)
{
    RUNTIME(cudaSetDevice(0));
    while (!n->stops && t_errors < 8) play_round(n);
}

// ---- Sumi beside it -------------------------------------------------------------------------------------------------

static char s_text[512];
static void host_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result, (void)user_data;
    if (level == SUMI_LOG_ERROR) snprintf(s_text, sizeof s_text, "%s", text);
}

static sumi_result finish(sumi_engine* engine, sumi_job job, sumi_pump pump)
{
    while (pump == SUMI_PUMP_UPDATE && sumi_job_poll(engine, job).state < SUMI_JOB_DONE)
        sumi_engine_update(engine, 500);
    CHECK_NUMBER(sumi_job_wait(engine, job, 60000), SUMI_OK);
    return sumi_job_poll(engine, job).result;
}

// A whole life of an engine: load, pictures, cancels, close. The pictures' bits; 0 after a failure.
static uint64_t live(sumi_pump pump, int pictures)
{
    sumi_engine_desc ed = sumi_engine_defaults();
    ed.backend = SUMI_BACKEND_CUDA;
    ed.pump = pump;
    ed.max_slice_us = 200;
    ed.log.write = host_log;
    sumi_engine* engine = NULL;
    CHECK_NUMBER(sumi_engine_create(&ed, &engine), SUMI_OK);
    if (engine == NULL) return 0;
    sumi_model_desc md = sumi_model_defaults();
    md.path = MODEL;
    sumi_job job;
    sumi_model* model = NULL;
    CHECK_NUMBER(sumi_submit_model(engine, &md, &job), SUMI_OK);
    CHECK_NUMBER(finish(engine, job, pump), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_model(engine, job, &model), SUMI_OK);
    uint64_t first = 0;
    for (int i = 0; model != NULL && i < pictures; i++) {
        sumi_image_item item = {};
        item.text = "a red fox";
        item.seed = 7;
        sumi_image_desc desc = sumi_image_defaults(model, SUMI_PRESET_MODEL);
        desc.items = &item;
        desc.item_count = 1;
        // now and then a new plan: graphs are made and memory is taken beside the host's captures
        desc.width = 64 + 16 * (i % 3);
        desc.height = 64;
        desc.preview_every = 1;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        if (i % 4 == 3) {
            for (int u = 0; u < 20; u++) sumi_engine_update(engine, 500);
            sumi_job_discard(engine, job);
            continue;
        }
        CHECK_NUMBER(finish(engine, job, pump), SUMI_OK);
        sumi_image image;
        const sumi_result result = sumi_fetch_images(engine, job, &image, 1);
        if (result != SUMI_OK) printf("  %s\n", s_text);
        CHECK_NUMBER(result, SUMI_OK);
        if (result != SUMI_OK) break;
        const uint64_t hash =
            hash_bytes(1469598103934665603u, image.pixels, (size_t)image.row_bytes * (size_t)image.height);
        if (first == 0) first = hash;
        if (i % 3 == 0) CHECK(hash == first);
        sumi_images_release(engine, &image, 1);
    }
    sumi_engine_destroy(engine);
    return first;
}

static uint64_t s_alone, s_host_alone; // sumi's and the host's bits when the other is not there

TEST(each_alone)
{
    s_alone = live(SUMI_PUMP_UPDATE, 4);
    CHECK(s_alone != 0);
    RUNTIME(cudaGetLastError()); // of this thread, which has called nothing but sumi
    neighbour n;
    open_neighbour(&n);
    for (int i = 0; i < 10; i++) play_round(&n);
    CHECK_NUMBER(n.others, 0);
    CHECK_NUMBER(n.captures, 10);
    s_host_alone = n.hash;
    close_neighbour(&n);
}

static void beside(sumi_pump pump)
{
    size_t before = 0, after = 0, total = 0;
    neighbour n;
    RUNTIME(cudaMemGetInfo(&before, &total));
    open_neighbour(&n);
    std::thread thread(play, &n);
    while (n.rounds == 0 && t_errors == 0) std::this_thread::yield();
    for (int i = 0; i < 3; i++) CHECK(live(pump, 24) == s_alone);
    n.stops = true;
    thread.join();
    RUNTIME(cudaPeekAtLastError());
    CHECK(n.hash == s_host_alone);
    CHECK_NUMBER(n.others, 0);
    CHECK(n.rounds > 3);
    CHECK_NUMBER(n.captures, n.rounds);
    printf("  %d rounds of the host's beside 3 engines\n", (int)n.rounds);
    close_neighbour(&n);
    RUNTIME(cudaMemGetInfo(&after, &total));
    CHECK(after + (64u << 20) >= before);
}

TEST(beside_an_engine_in_our_frames) { beside(SUMI_PUMP_UPDATE); }
TEST(beside_an_engine_with_a_thread) { beside(SUMI_PUMP_THREAD); }

// The primary context is shared: what the host has in it outlives the engines.
TEST(the_hosts_memory_outlives_the_engine)
{
    uint32_t* memory = NULL;
    uint32_t values[4] = {1, 2, 3, 4}, back[4] = {};
    RUNTIME(cudaMalloc((void**)&memory, sizeof values));
    RUNTIME(cudaMemcpy(memory, values, sizeof values, cudaMemcpyHostToDevice));
    CHECK(live(SUMI_PUMP_UPDATE, 2) == s_alone);
    RUNTIME(cudaMemcpy(back, memory, sizeof back, cudaMemcpyDeviceToHost));
    CHECK(memcmp(values, back, sizeof values) == 0);
    RUNTIME(cudaFree(memory));
    RUNTIME(cudaGetLastError());
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
        printf("skip: cuda_neighbour: there is no CUDA device\n%s: 0 passed, 0 failed, 1 skipped\n", t_program);
        return 0;
    }
    RUNTIME(cudaSetDevice(0));
    RUNTIME(cudaFree(NULL)); // the primary context is there before sumi comes
    RUN(each_alone);
    RUN(beside_an_engine_in_our_frames);
    RUN(beside_an_engine_with_a_thread);
    RUN(the_hosts_memory_outlives_the_engine);
    TEST_END();
}
