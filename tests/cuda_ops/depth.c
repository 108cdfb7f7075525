// Control pictures that the GPU makes of depth buffers (sumi_async_functions.write_depth): within 1 of 255 of the CPU's,
// and how long one takes. The depth lies where an import would have put it.
#include "at_once.h"
#include "cuda_ops/run.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/state.h"
#include "cuda/transfers.h"
#include "device/device_memory.h"
#include "pictures/depth.h"

// A depth buffer, and the control picture that is made of it.
typedef struct depth_case {
    sumi_depth_kind kind;
    sumi_depth_stretch stretch;
    int32_t from_width, from_height, width, height;
    bool is_infinite, has_range, is_constant, bottom_up;
} depth_case;

static float* make_depth(const depth_case* c, sumi_depth* depth)
{
    float* values = malloc((size_t)c->from_width * (size_t)c->from_height * sizeof *values);
    case_data store = {.random = 0x9E3779B97F4A7C15u};
    const double n = 0.2, f = c->is_infinite ? INFINITY : 300.0;
    *depth = (sumi_depth){.data = values,
                          .kind = c->kind,
                          .width = c->from_width,
                          .height = c->from_height,
                          .bottom_up = c->bottom_up,
                          .near_plane = (float)n,
                          .far_plane = (float)f};
    if (c->has_range) depth->low = 2.0f, depth->high = 35.0f;
    for (int32_t y = 0; y < c->from_height; y++) {
        for (int32_t x = 0; x < c->from_width; x++) {
            // a floor with noise, boxes, and sky above
            const double z = c->is_constant ? 5.0
                           : (x / 24 + y / 24) % 5 == 0
                               ? 3.0 + 0.01 * x
                               : 60.0 * (1.0 - 0.9 * y / c->from_height) + fabs((double)random_normal(&store));
            double d = c->is_infinite ? 1.0 - n / z : f * (z - n) / (z * (f - n));
            if (y < c->from_height / 6 && !c->is_constant) d = 1.0;
            if (c->kind == SUMI_DEPTH_REVERSED) d = 1.0 - d;
            else if (c->kind == SUMI_DEPTH_OPENGL) d = 2.0 * d - 1.0;
            else if (c->kind == SUMI_DEPTH_DISTANCE) d = d == 1.0 ? (double)NAN : z;
            values[(size_t)y * (size_t)c->from_width + (size_t)x] = (float)d;
        }
    }
    return values;
}

// The memory of an import, with the depth in it.
static sumi_result make_import(sumi_cuda* cuda, const sumi_depth* depth, sumi_imported* import, sumi_error* error)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    const uint64_t bytes = (uint64_t)depth->width * (uint64_t)depth->height * sizeof(float);
    sumi_device_block block, pinned;
    CUevent event;
    *import = (sumi_imported){.width = depth->width, .height = depth->height, .is_depth = true};
    SUMI_TRY(sumi_device_allocate(&cuda->stock.memory, sumi_cuda_depth_all_bytes(depth->width, depth->height),
                                  SUMI_MEMORY_IMAGE, "depth", &block, error));
    import->address = block.address, import->bytes = block.bytes;
    SUMI_CU(driver, cuEventCreate(&event, CU_EVENT_DISABLE_TIMING), "making an event");
    import->used = event;
    SUMI_TRY(sumi_device_allocate(&cuda->stock.memory, bytes, SUMI_MEMORY_STAGING, "depth", &pinned, error));
    memcpy(sumi_device_host(&pinned), depth->data, (size_t)bytes);
    SUMI_CU(driver, cuMemcpyHtoDAsync(import->address, sumi_device_host(&pinned), (size_t)bytes, cuda->device.compute),
            "copying the depth");
    SUMI_CU(driver, cuStreamSynchronize(cuda->device.compute), "copying the depth");
    sumi_device_release(&cuda->stock.memory, &pinned);
    return SUMI_OK;
}

static void compare_pictures(const depth_case* c, const uint8_t* got, const uint8_t* want)
{
    const size_t bytes = 3 * (size_t)c->width * (size_t)c->height;
    int wrong = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (abs(got[i] - want[i]) <= 1 || wrong++ >= 3) continue;
        printf("  kind %d, stretch %d, %d x %d to %d x %d: byte %zu is %d, not %d\n", (int)c->kind, (int)c->stretch,
               (int)c->from_width, (int)c->from_height, (int)c->width, (int)c->height, i, got[i], want[i]);
    }
    CHECK_NUMBER(wrong, 0);
    // Without a resize distances and percentiles are the same bits.
    if (c->from_width == c->width && c->from_height == c->height) CHECK(memcmp(got, want, bytes) == 0);
}

// The milliseconds on the GPU of the quickest of some runs.
static double time_depth(sumi_cuda* cuda, const sumi_plan* plan, const sumi_depth_input* input)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    sumi_runner* runner = &cuda->runner;
    CUevent begin, end;
    float best = INFINITY, ms = 0.0f;
    sumi_error error = {0};
    driver->cuEventCreate(&begin, CU_EVENT_DEFAULT);
    driver->cuEventCreate(&end, CU_EVENT_DEFAULT);
    for (int i = 0; i < 30; i++) {
        driver->cuEventRecord(begin, cuda->device.compute);
        CHECK(runner->async->write_depth(runner, plan, input, &error) == SUMI_OK);
        driver->cuEventRecord(end, cuda->device.compute);
        driver->cuEventSynchronize(end);
        CHECK(driver->cuEventElapsedTime(&ms, begin, end) == CUDA_SUCCESS);
        best = ms < best ? ms : best;
    }
    driver->cuEventDestroy(begin);
    driver->cuEventDestroy(end);
    return (double)best;
}

// out_ms NULL: compares; otherwise measures.
static void check_depth(const machine* m, const depth_case* c, double* out_ms)
{
    sumi_cuda* cuda = (sumi_cuda*)m->runner;
    const size_t bytes = 3 * (size_t)c->width * (size_t)c->height;
    const sumi_rates rates = m->runner->functions->rates(m->runner);
    sumi_depth depth;
    float* values = make_depth(c, &depth);
    uint8_t *want = malloc(bytes), *got = malloc(bytes);
    const sumi_depth_args args = {&depth, c->stretch, c->width, c->height};
    void* work = sumi_alloc(&g_run.heap, (size_t)sumi_depth_bytes(&args));
    sumi_depth_begin(&args, work);
    while (!sumi_depth_advance(work, want)) continue;
    sumi_free(&g_run.heap, work);

    sumi_plan plan;
    sumi_error error = {0};
    sumi_cuda_scope scope;
    sumi_imported import = {.kind = SUMI_EXTERNAL_NONE};
    sumi_runner_begin_plan(m->runner, &plan, &g_run.heap);
    sumi_plan_section(&plan, SUMI_SECTION_TRANSFER, 1, 0);
    const sumi_value picture = sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_BYTE, c->width * c->height, 3),
                     out = sumi_plan_bound(&plan, "out", SUMI_ELEMENT_BYTE, c->width * c->height, 3);
    sumi_plan_copy_rows(&plan, &(sumi_plan_copy_args){.x = picture, .y = out, .rows = c->width * c->height});
    sumi_result result = sumi_plan_finish(&plan, &error);
    if (result == SUMI_OK) result = plan_slice(&plan, &rates, 0, &error);
    if (result == SUMI_OK) result = plan_ready(m->runner, &plan, &error);
    if (result == SUMI_OK) {
        m->runner->functions->start(m->runner, &plan);
        result = sumi_cuda_enter(&cuda->device, &scope, &error);
    }
    if (result == SUMI_OK) {
        result = make_import(cuda, &depth, &import, &error);
        const sumi_depth_input input = {.value = picture,
                                        .width = c->width,
                                        .height = c->height,
                                        .import = &import,
                                        .depth = &depth,
                                        .is_inverse = c->stretch == SUMI_STRETCH_INVERSE};
        if (result == SUMI_OK && out_ms != NULL) *out_ms = time_depth(cuda, &plan, &input);
        if (result == SUMI_OK) result = m->runner->async->write_depth(m->runner, &plan, &input, &error);
        sumi_cuda_leave(&cuda->device, &scope);
    }
    if (result == SUMI_OK) result = plan_run_all(m->runner, &plan, NULL, &error);
    if (result == SUMI_OK) result = plan_read(m->runner, &plan, out, got, &error);
    CHECK_TEXT(error.text, "");
    if (result == SUMI_OK) {
        compare_pictures(c, got, want);
        CHECK(memcmp((const void*)(uintptr_t)import.staging, got, bytes) == 0);
    }
    m->runner->interop->release_import(m->runner, &import);
    plan_release(m->runner, &plan);
    sumi_plan_end(&plan);
    free(values);
    free(want);
    free(got);
}

void check_depths(void)
{
    static const depth_case s_cases[] = {
        {SUMI_DEPTH_STANDARD, SUMI_STRETCH_DISTANCE, 131, 77, 131, 77, .bottom_up = true},
        {SUMI_DEPTH_REVERSED, SUMI_STRETCH_DISTANCE, 640, 360, 512, 512, .is_infinite = true},
        {SUMI_DEPTH_REVERSED, SUMI_STRETCH_INVERSE, 333, 211, 333, 211, .is_infinite = true},
        {SUMI_DEPTH_OPENGL, SUMI_STRETCH_INVERSE, 97, 211, 48, 320, .bottom_up = true},
        {SUMI_DEPTH_DISTANCE, SUMI_STRETCH_DISTANCE, 1031, 517, 96, 64, .bottom_up = true},
        {SUMI_DEPTH_STANDARD, SUMI_STRETCH_INVERSE, 131, 77, 131, 77, .has_range = true},
        {SUMI_DEPTH_REVERSED, SUMI_STRETCH_DISTANCE, 131, 77, 64, 64, .is_infinite = true, .has_range = true},
        {SUMI_DEPTH_STANDARD, SUMI_STRETCH_DISTANCE, 64, 64, 64, 64, .is_constant = true},
        {SUMI_DEPTH_STANDARD, SUMI_STRETCH_INVERSE, 1, 1, 16, 16, .is_constant = true},
    };
    for (int i = 0; i < g_run.machine_count; i++) {
        for (size_t k = 0; k < sizeof s_cases / sizeof *s_cases; k++)
            check_depth(&g_run.machines[i], &s_cases[k], NULL);
    }
}

#define MOST_MS 0.5

void time_depths(void)
{
    static const depth_case s_cases[] = {
        {SUMI_DEPTH_REVERSED, SUMI_STRETCH_DISTANCE, 1024, 1024, 1024, 1024, .is_infinite = true},
        {SUMI_DEPTH_REVERSED, SUMI_STRETCH_INVERSE, 1920, 1080, 1024, 1024, .is_infinite = true},
        {SUMI_DEPTH_REVERSED, SUMI_STRETCH_DISTANCE, 1024, 1024, 1024, 1024, .is_infinite = true, .has_range = true},
        {SUMI_DEPTH_STANDARD, SUMI_STRETCH_DISTANCE, 1024, 1024, 1024, 1024, .is_constant = true}, // all in one bin
    };
    for (size_t k = 0; k < sizeof s_cases / sizeof *s_cases; k++) {
        const depth_case* c = &s_cases[k];
        double ms = INFINITY;
        check_depth(&g_run.machines[0], c, &ms);
        printf("  %d x %d to %d x %d, %s: %.3f ms\n", (int)c->from_width, (int)c->from_height, (int)c->width,
               (int)c->height,
               c->has_range     ? "a range"
               : c->is_constant ? "one distance"
                                : "percentiles",
               ms);
        CHECK(ms < MOST_MS);
    }
}
#endif
