// The runner: arena and scratch memory, the table from op kind to function, and the state that a run's slices share.
#include "cpu/cpu.h"
#include "base/assert.h"
#include "base/platform.h"
#include "cpu/ops_cpu.h"
#include <stdio.h>
#include <string.h>

typedef struct sumi_cpu {
    sumi_runner runner; // must be first: the engine holds its address
    sumi_heap* heap;
    sumi_workers* workers;
    const sumi_cpu_kernels* kernels;
    sumi_rates rates;
    char device[64];
    unsigned char* arena;
    unsigned char* scratch; // the shared region, then one region per worker
    uint64_t arena_bytes, scratch_bytes;
    // the plan whose scratch layout is in `layout`: every op needs the layout, so reserve and start compute it once
    const sumi_plan* layout_plan;
    sumi_cpu_scratch layout;
    // the op of the slice that ran last: its data in the shared region is valid for its next slice
    const sumi_op* shared_owner;
    int32_t packed_count; // of that op, see sumi_cpu_run
} sumi_cpu;

typedef struct op_entry {
    sumi_cpu_op* run;
    // NULL: needs no scratch
    sumi_cpu_scratch (*scratch)(const sumi_cpu_kernels* kernels, const sumi_plan* plan, const sumi_op* op);
    // NULL: the work ranges that the plan has chosen are short enough
    void (*cut)(const sumi_cpu_kernels* kernels, sumi_op* op);
} op_entry;

static const op_entry s_ops[SUMI_OP_KIND_COUNT] = {
    [SUMI_OP_EMBED_ROWS] = {sumi_cpu_embed_rows, sumi_cpu_rows_scratch, NULL},
    [SUMI_OP_FILL_ROWS] = {sumi_cpu_fill_rows, sumi_cpu_rows_scratch, NULL},
    [SUMI_OP_COPY_ROWS] = {sumi_cpu_copy_rows, NULL, NULL},
    [SUMI_OP_MEAN_ROWS] = {sumi_cpu_mean_rows, NULL, NULL},
    [SUMI_OP_ADD_ROWS] = {sumi_cpu_add_rows, NULL, NULL},
    [SUMI_OP_RESIDUAL_CHANGE] = {sumi_cpu_residual_change, NULL, NULL},
    [SUMI_OP_ADD_RESIDUAL] = {sumi_cpu_add_residual, NULL, NULL},
    [SUMI_OP_LINEAR] = {sumi_cpu_linear, sumi_cpu_linear_scratch, sumi_cpu_linear_cut},
    [SUMI_OP_KRONECKER_ADD] = {sumi_cpu_kronecker_add, sumi_cpu_kronecker_scratch, NULL},
    [SUMI_OP_ACTIVATE] = {sumi_cpu_activate, NULL, NULL},
    [SUMI_OP_GATED] = {sumi_cpu_gated, NULL, NULL},
    [SUMI_OP_NORM_MODULATE] = {sumi_cpu_norm_modulate, sumi_cpu_rows_scratch, NULL},
    [SUMI_OP_NORM_GATE_ADD] = {sumi_cpu_norm_gate_add, sumi_cpu_rows_scratch, NULL},
    [SUMI_OP_QK_NORM_ROPE] = {sumi_cpu_qk_norm_rope, sumi_cpu_rows_scratch, NULL},
    [SUMI_OP_ATTENTION] = {sumi_cpu_attention, sumi_cpu_attention_scratch, sumi_cpu_attention_cut},
    [SUMI_OP_ROPE_TABLE] = {sumi_cpu_rope_table, NULL, NULL},
    [SUMI_OP_TIME_EMBED] = {sumi_cpu_time_embed, NULL, NULL},
    [SUMI_OP_FINISH_MODULATION] = {sumi_cpu_finish_modulation, NULL, NULL},
    [SUMI_OP_PATCHIFY] = {sumi_cpu_patchify, NULL, NULL},
    [SUMI_OP_UNPATCHIFY] = {sumi_cpu_unpatchify, NULL, NULL},
    [SUMI_OP_ADD_NOISE] = {sumi_cpu_add_noise, NULL, NULL},
    [SUMI_OP_GUIDE] = {sumi_cpu_guide, NULL, NULL},
    [SUMI_OP_SOLVE] = {sumi_cpu_solve, NULL, NULL},
    [SUMI_OP_PREVIEW] = {sumi_cpu_preview, NULL, NULL},
    [SUMI_OP_PIXELS_IN] = {sumi_cpu_pixels_in, NULL, NULL},
    [SUMI_OP_PATCHES_IN] = {sumi_cpu_patches_in, NULL, NULL},
    [SUMI_OP_POSTERIOR] = {sumi_cpu_posterior, NULL, NULL},
    [SUMI_OP_LATENT_IN] = {sumi_cpu_latent_in, NULL, NULL},
    [SUMI_OP_CONV] = {sumi_cpu_conv, sumi_cpu_conv_scratch, sumi_cpu_conv_cut},
    [SUMI_OP_SHORTCUT] = {sumi_cpu_shortcut, NULL, NULL},
    [SUMI_OP_GROUP_SUMS] = {sumi_cpu_group_sums, sumi_cpu_group_scratch, sumi_cpu_group_sums_cut},
    [SUMI_OP_GROUP_NORM] = {sumi_cpu_group_norm, sumi_cpu_group_scratch, sumi_cpu_group_norm_cut},
    [SUMI_OP_TILE_BLEND] = {sumi_cpu_tile_blend, NULL, NULL},
    [SUMI_OP_TILE_PLACE] = {sumi_cpu_tile_place, NULL, NULL},
    [SUMI_OP_COMPOSITE] = {sumi_cpu_composite, NULL, NULL},
    [SUMI_OP_PIXELS_OUT] = {sumi_cpu_pixels_out, NULL, sumi_cpu_pixels_out_cut},
};

// ---- Memory ---------------------------------------------------------------------------------------------------------
static uint64_t round_to_line(uint64_t bytes) { return (bytes + SUMI_ALIGNMENT - 1) / SUMI_ALIGNMENT * SUMI_ALIGNMENT; }

static sumi_cpu_scratch plan_scratch(const sumi_cpu* cpu, const sumi_plan* plan)
{
    sumi_cpu_scratch largest = {0, 0};
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_op* op = &plan->ops[i];
        if (s_ops[op->kind].scratch != NULL) {
            sumi_cpu_scratch scratch = s_ops[op->kind].scratch(cpu->kernels, plan, op);
            largest.shared_bytes =
                scratch.shared_bytes > largest.shared_bytes ? scratch.shared_bytes : largest.shared_bytes;
            largest.worker_bytes =
                scratch.worker_bytes > largest.worker_bytes ? scratch.worker_bytes : largest.worker_bytes;
        }
    }
    return (sumi_cpu_scratch){round_to_line(largest.shared_bytes), round_to_line(largest.worker_bytes)};
}

static void remember_layout(sumi_cpu* cpu, const sumi_plan* plan)
{
    SUMI_ASSERT(plan->op_count > 0);
    cpu->layout_plan = plan;
    cpu->layout = plan_scratch(cpu, plan);
    cpu->shared_owner = NULL;
}

static uint64_t cpu_scratch_bytes(const sumi_runner* runner, const sumi_plan* plan)
{
    const sumi_cpu* cpu = (const sumi_cpu*)runner;
    sumi_cpu_scratch scratch = plan_scratch(cpu, plan);
    return scratch.shared_bytes + scratch.worker_bytes * (uint64_t)sumi_workers_count(cpu->workers);
}

// Frees the old block first, so that the peak does not include both.
static sumi_result grow_memory(sumi_cpu* cpu, unsigned char** memory, uint64_t* allocated_bytes, uint64_t bytes,
                               const char* what, sumi_error* error)
{
    if (*memory != NULL && *allocated_bytes >= bytes) return SUMI_OK;
    sumi_free(cpu->heap, *memory);
    *memory = bytes > SIZE_MAX ? NULL : sumi_alloc(cpu->heap, (size_t)bytes);
    *allocated_bytes = *memory != NULL ? bytes : 0;
    if (*memory == NULL) return sumi_out_of_memory(error, (size_t)bytes, what);
    return SUMI_OK;
}

static sumi_result cpu_reserve(sumi_runner* runner, const sumi_plan* plan, sumi_error* error)
{
    sumi_cpu* cpu = (sumi_cpu*)runner;
    remember_layout(cpu, plan);
    SUMI_TRY(grow_memory(cpu, &cpu->scratch, &cpu->scratch_bytes, cpu_scratch_bytes(runner, plan),
                         "the packing buffers", error));
    return grow_memory(cpu, &cpu->arena, &cpu->arena_bytes, plan->arena_bytes, "the arena", error);
}

static void cpu_release(sumi_runner* runner)
{
    sumi_cpu* cpu = (sumi_cpu*)runner;
    sumi_free(cpu->heap, cpu->scratch);
    sumi_free(cpu->heap, cpu->arena);
    cpu->scratch = cpu->arena = NULL;
    cpu->scratch_bytes = cpu->arena_bytes = 0;
    cpu->shared_owner = NULL;
}

// ---- Running --------------------------------------------------------------------------------------------------------
static void cpu_start(sumi_runner* runner, const sumi_plan* plan)
{
    sumi_cpu* cpu = (sumi_cpu*)runner;
    SUMI_ASSERT(cpu->arena != NULL && cpu->arena_bytes >= plan->arena_bytes); // reserved
    remember_layout(cpu, plan);
    for (size_t i = 0; i < plan->constant_count; i++) {
        memcpy(cpu->arena + sumi_plan_info(plan, plan->constants[i].value)->offset, plan->constants[i].data,
               (size_t)plan->constants[i].bytes);
    }
}

static void cpu_write(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, const void* data,
                      uint64_t bytes)
{
    SUMI_ASSERT(((const sumi_cpu*)runner)->arena != NULL && offset + bytes <= sumi_plan_info(plan, value)->bytes);
    memcpy(((sumi_cpu*)runner)->arena + sumi_plan_info(plan, value)->offset + offset, data, (size_t)bytes);
}

static void cpu_read(sumi_runner* runner, const sumi_plan* plan, sumi_value value, uint64_t offset, void* into,
                     uint64_t bytes)
{
    SUMI_ASSERT(((const sumi_cpu*)runner)->arena != NULL && offset + bytes <= sumi_plan_info(plan, value)->bytes);
    memcpy(into, ((sumi_cpu*)runner)->arena + sumi_plan_info(plan, value)->offset + offset, (size_t)bytes);
}

static int32_t first_row(const sumi_op* op, int32_t range)
{
    const int64_t row = (int64_t)(range - op->preparing_count) * op->range_rows;
    return row < 0 ? 0 : row < op->rows ? (int32_t)row : op->rows;
}

static sumi_result run_ranges(sumi_cpu* cpu, const sumi_plan* plan, const sumi_op* op, int32_t range_begin,
                              int32_t range_end, int32_t counter, sumi_error* error)
{
    SUMI_ASSERT(range_begin >= 0 && counter >= 0 && op->range_rows >= 1);
    SUMI_ASSERT(cpu->arena_bytes >= plan->arena_bytes);
    if (cpu->layout_plan != plan) {
        remember_layout(cpu, plan); // two plans run alternately
    }
    sumi_cpu_run run = {.kernels = cpu->kernels,
                        .workers = cpu->workers,
                        .plan = plan,
                        .op = op,
                        .arena = cpu->arena,
                        .shared = (float*)(void*)cpu->scratch,
                        .packed_count = &cpu->packed_count,
                        .counter = counter,
                        .error = error};
    run.worker_memory = cpu->scratch + cpu->layout.shared_bytes;
    run.worker_bytes = cpu->layout.worker_bytes;
    if (cpu->shared_owner != op || range_begin == 0) { cpu->packed_count = 0; } // the op's inputs may be others now
    cpu->shared_owner = op;
    run.range_begin = range_begin;
    run.range_end = range_end < op->range_count ? range_end : op->range_count;
    run.row_begin = first_row(op, range_begin);
    run.row_end = first_row(op, run.range_end);
    SUMI_ASSERT(s_ops[op->kind].run != NULL);
    if (run.range_begin >= run.range_end) return SUMI_OK;
    SUMI_ASSERT(run.row_begin < run.row_end || s_ops[op->kind].cut != NULL);
    return s_ops[op->kind].run(&run);
}

static sumi_result cpu_run(sumi_runner* runner, const sumi_plan* plan, const sumi_slice* slice, int32_t counter,
                           sumi_error* error)
{
    SUMI_ASSERT(slice->op_begin >= 0 && slice->op_begin < slice->op_end && (size_t)slice->op_end <= plan->op_count);
    sumi_cpu* cpu = (sumi_cpu*)runner;
    if (slice->op_end == slice->op_begin + 1)
        return run_ranges(cpu, plan, &plan->ops[slice->op_begin], slice->range_begin, slice->range_end, counter, error);
    for (int32_t i = slice->op_begin; i < slice->op_end; i++)
        SUMI_TRY(run_ranges(cpu, plan, &plan->ops[i], 0, plan->ops[i].range_count, counter, error));
    return SUMI_OK;
}

// ---- After a slice --------------------------------------------------------------------------------------------------
// `run` has returned at the slice's end, so nothing is ever in flight (plan/async.h).

static void cpu_measure_delay(sumi_runner* runner, bool enabled) { (void)runner, (void)enabled; }

static int32_t cpu_collect(sumi_runner* runner, sumi_slice_time* out_times, int32_t capacity)
{
    (void)runner, (void)out_times, (void)capacity;
    return 0;
}

static int32_t cpu_pending(const sumi_runner* runner)
{
    (void)runner;
    return 0;
}

static void cpu_wait(sumi_runner* runner, int32_t slices) { (void)runner, (void)slices; }

static void cpu_wait_all(sumi_runner* runner) { (void)runner; }

static bool cpu_idle(sumi_runner* runner)
{
    (void)runner;
    return true;
}

static sumi_result cpu_health(sumi_runner* runner, sumi_error* error)
{
    (void)runner, (void)error;
    return SUMI_OK;
}

static sumi_result cpu_start_read(sumi_runner* runner, const sumi_plan* plan, sumi_value value, sumi_error* error)
{
    (void)runner, (void)plan, (void)value, (void)error;
    return SUMI_OK;
}

static sumi_result cpu_publish(sumi_runner* runner, const sumi_plan* plan, const sumi_publication* picture,
                               sumi_error* error)
{
    (void)runner, (void)plan, (void)picture;
    return sumi_fail(error, SUMI_NOT_SUPPORTED, "the CPU backend has no device memory: read the picture");
}

static sumi_result cpu_write_depth(sumi_runner* runner, const sumi_plan* plan, const sumi_depth_input* input,
                                   sumi_error* error)
{
    (void)runner, (void)plan, (void)input;
    return sumi_fail(error, SUMI_NOT_SUPPORTED, "the CPU backend has no device memory: write the picture");
}

// ---- Preparing ------------------------------------------------------------------------------------------------------
// Kernels are part of the program, and weights are read where they lie.

static sumi_result cpu_load(sumi_runner* runner, bool* out_done, float* out_progress, sumi_error* error)
{
    (void)runner, (void)error;
    *out_done = true;
    *out_progress = 1.0f;
    return SUMI_OK;
}

static void cpu_pace(sumi_runner* runner, bool is_paced) { (void)runner, (void)is_paced; }

static int32_t cpu_compiling(const sumi_runner* runner, int32_t* out_done)
{
    (void)runner;
    *out_done = 0;
    return 0;
}

static sumi_result cpu_prepare(sumi_runner* runner, const sumi_plan* plan, uint32_t budget_us, bool* out_done,
                               float* out_progress, sumi_error* error)
{
    (void)plan, (void)budget_us;
    return cpu_load(runner, out_done, out_progress, error);
}

static bool cpu_is_ready(const sumi_runner* runner, const sumi_plan* plan)
{
    const sumi_cpu* cpu = (const sumi_cpu*)runner;
    return cpu->arena != NULL && cpu->arena_bytes >= plan->arena_bytes
        && cpu->scratch_bytes >= cpu_scratch_bytes(runner, plan);
}

// ---- Memory of a device, which there is none of ---------------------------------------------------------------------

static void cpu_set_memory_limit(sumi_runner* runner, uint64_t bytes) { (void)runner, (void)bytes; }

static void cpu_trim(sumi_runner* runner) { (void)runner; }

static bool cpu_evict(sumi_runner* runner, const sumi_plan* plan)
{
    (void)runner, (void)plan;
    return false;
}

static uint64_t cpu_arena_serial(const sumi_runner* runner)
{
    (void)runner;
    return 0;
}

static void cpu_capacity(sumi_runner* runner, sumi_device_capacity* out_capacity)
{
    (void)runner;
    *out_capacity = (sumi_device_capacity){.is_known = false};
}

static void cpu_release_weights(sumi_runner* runner, const sumi_weight* const* weights, size_t count)
{
    (void)runner, (void)weights, (void)count;
}

static void cpu_properties(const sumi_runner* runner, sumi_device_properties* out_properties)
{
    (void)runner;
    *out_properties = (sumi_device_properties){.device_bytes = 0};
}

static void cpu_held_bytes(const sumi_runner* runner, uint64_t out_bytes[4])
{
    (void)runner;
    memset(out_bytes, 0, 4 * sizeof *out_bytes);
}

// ---- Plans ----------------------------------------------------------------------------------------------------------

static sumi_result cpu_need(const sumi_runner* runner, const sumi_plan* plan, uint64_t memory_limit,
                            sumi_device_need* out_need, sumi_error* error)
{
    (void)error;
    const uint64_t bytes = plan->arena_bytes + cpu_scratch_bytes(runner, plan);
    *out_need = (sumi_device_need){.device_bytes = bytes, .fits = memory_limit == 0 || bytes <= memory_limit};
    return SUMI_OK;
}

static void cpu_release_plan(sumi_runner* runner, const sumi_plan* plan) { (void)runner, (void)plan; }

// Makes work ranges short enough for the engine, which runs as many of them as fit into the rest of an update's budget.
static void cpu_arrange(const sumi_runner* runner, sumi_plan* plan)
{
    const sumi_cpu* cpu = (const sumi_cpu*)runner;
    for (size_t i = 0; i < plan->op_count; i++) {
        sumi_op* op = &plan->ops[i];
        if (s_ops[op->kind].cut != NULL) s_ops[op->kind].cut(cpu->kernels, op);
    }
}

// ---- The object -----------------------------------------------------------------------------------------------------
static void cpu_destroy(sumi_runner* runner)
{
    sumi_cpu* cpu = (sumi_cpu*)runner;
    if (cpu != NULL) {
        cpu_release(runner);
        sumi_free(cpu->heap, cpu);
    }
}
static const char* cpu_name(const sumi_runner* runner)
{
    (void)runner;
    return "cpu";
}
static const char* cpu_device(const sumi_runner* runner) { return ((const sumi_cpu*)runner)->device; }
static sumi_rates cpu_rates(const sumi_runner* runner) { return ((const sumi_cpu*)runner)->rates; }
static uint64_t cpu_element_bytes(const sumi_runner* runner, sumi_element element)
{
    (void)runner;
    return element == SUMI_ELEMENT_BYTE ? 1 : 4;
}

static void cpu_list_kernels(const sumi_runner* runner, sumi_kernel_callback* seen, void* user_data)
{
    (void)runner, (void)seen, (void)user_data;
}

static sumi_result cpu_run_groups(sumi_runner* runner, const sumi_plan* plan, const sumi_slice_groups* groups,
                                  int32_t counter, sumi_error* error)
{
    for (int32_t i = 0; i < groups->count; i++) SUMI_TRY(cpu_run(runner, plan, &groups->slices[i], counter, error));
    return SUMI_OK;
}

static const sumi_runner_functions s_functions = {.destroy = cpu_destroy,
                                                  .name = cpu_name,
                                                  .device = cpu_device,
                                                  .rates = cpu_rates,
                                                  .properties = cpu_properties,
                                                  .held_bytes = cpu_held_bytes,
                                                  .list_kernels = cpu_list_kernels,
                                                  .element_bytes = cpu_element_bytes,
                                                  .arrange = cpu_arrange,
                                                  .scratch_bytes = cpu_scratch_bytes,
                                                  .need = cpu_need,
                                                  .release_plan = cpu_release_plan,
                                                  .load = cpu_load,
                                                  .pace = cpu_pace,
                                                  .compiling = cpu_compiling,
                                                  .prepare = cpu_prepare,
                                                  .is_ready = cpu_is_ready,
                                                  .set_memory_limit = cpu_set_memory_limit,
                                                  .trim = cpu_trim,
                                                  .evict = cpu_evict,
                                                  .capacity = cpu_capacity,
                                                  .arena_serial = cpu_arena_serial,
                                                  .reserve = cpu_reserve,
                                                  .release = cpu_release,
                                                  .release_weights = cpu_release_weights,
                                                  .start = cpu_start,
                                                  .write = cpu_write,
                                                  .read = cpu_read,
                                                  .run = cpu_run};

static const sumi_async_functions s_async = {.run_groups = cpu_run_groups,
                                             .measure_delay = cpu_measure_delay,
                                             .collect = cpu_collect,
                                             .pending = cpu_pending,
                                             .wait = cpu_wait,
                                             .wait_all = cpu_wait_all,
                                             .idle = cpu_idle,
                                             .health = cpu_health,
                                             .start_read = cpu_start_read,
                                             .publish = cpu_publish,
                                             .write_depth = cpu_write_depth};

#if defined(__OPTIMIZE__) // by gcc and clang, clang-cl included, at every level but -O0
const bool sumi_cpu_is_optimized = true;
#else
const bool sumi_cpu_is_optimized = false;
#endif

// Measures this core's speed of multiplication on a tile for half a millisecond. The engine refines the rate while
// running.
static sumi_rates measure_rates(const sumi_cpu* cpu, float* memory)
{
    const sumi_cpu_kernels* kernels = cpu->kernels;
    float *a = memory, *b = a + SUMI_CPU_MAX_TILE_ROWS * SUMI_CPU_A_STRIDE,
          *c = b + SUMI_CPU_DEPTH * SUMI_CPU_MAX_TILE_COLS;
    double work = 0.0;
    uint64_t begin = 0, now = 0;
    for (int32_t i = 0; i < 4096 && now - begin < 500000; i++) {
        kernels->tile(kernels->tile_rows, SUMI_CPU_DEPTH, a, b, c, SUMI_CPU_MAX_TILE_COLS, true);
        now = sumi_clock_ns();
        if (i == 0) {
            begin = now; // the first tile warms up
        } else {
            work += 2.0 * kernels->tile_rows * kernels->tile_cols * SUMI_CPU_DEPTH;
        }
    }
    double us = (double)(now - begin) / 1000.0, per_worker = us > 0.0 ? work / us : 1e4;
    int32_t workers = sumi_workers_count(cpu->workers);
    // 0.8 accounts for packing, finishing rows and the last item of a loop. Workers share the memory bandwidth, so it
    // is taken to grow with up to four workers only.
    return (sumi_rates){0.8 * per_worker * workers, 8000.0 * (workers < 4 ? workers : 4), workers > 1 ? 6.0 : 1.0};
}

sumi_result sumi_cpu_create(sumi_heap* heap, sumi_workers* workers, sumi_cpu_level level, sumi_error* error,
                            sumi_runner** out_runner)
{
    *out_runner = NULL;
    const sumi_cpu_kernels* kernels = &sumi_cpu_kernels_portable;
#ifdef SUMI_CPU_HAS_X86
    sumi_cpu_features features = sumi_cpu_detect();
    bool has_avx2 = features.avx2_fma_f16c, has_avx512 = features.avx512 && has_avx2;
    if ((level == SUMI_CPU_AVX2 && !has_avx2) || (level == SUMI_CPU_AVX512 && !has_avx512))
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "this CPU has no %s", level == SUMI_CPU_AVX2 ? "AVX2" : "AVX-512");
    if (level == SUMI_CPU_AVX512 || (level == SUMI_CPU_AUTO && has_avx512)) {
        kernels = &sumi_cpu_kernels_avx512;
    } else if (level == SUMI_CPU_AVX2 || (level == SUMI_CPU_AUTO && has_avx2)) {
        kernels = &sumi_cpu_kernels_avx2;
    }
#else
    if (level == SUMI_CPU_AVX2 || level == SUMI_CPU_AVX512)
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "this CPU is not x86-64");
#endif
    size_t floats = SUMI_CPU_MAX_TILE_ROWS * SUMI_CPU_A_STRIDE + SUMI_CPU_DEPTH * SUMI_CPU_MAX_TILE_COLS
                  + SUMI_CPU_MAX_TILE_ROWS * SUMI_CPU_MAX_TILE_COLS;
    sumi_cpu* cpu = sumi_alloc_zero(heap, sizeof *cpu);
    float* memory = sumi_alloc_zero(heap, floats * sizeof(float)); // for the measurement
    if (cpu == NULL || memory == NULL) {
        sumi_free(heap, cpu);
        sumi_free(heap, memory);
        return sumi_out_of_memory(error, sizeof *cpu + floats * sizeof(float), "the CPU backend");
    }
    // no interop, and none of the traits
    cpu->runner.functions = &s_functions;
    cpu->runner.async = &s_async;
    cpu->heap = heap;
    cpu->workers = workers;
    cpu->kernels = kernels;
    int32_t count = sumi_workers_count(workers);
    snprintf(cpu->device, sizeof cpu->device, "CPU, %s, %d thread%s%s", kernels->name, count, count == 1 ? "" : "s",
             sumi_cpu_is_optimized ? "" : ", built without optimisation");
    cpu->rates = measure_rates(cpu, memory);
    sumi_free(heap, memory);
    *out_runner = &cpu->runner;
    return SUMI_OK;
}
