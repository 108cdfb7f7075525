// The runner's state.
#ifndef SUMI_CUDA_STATE_H
#define SUMI_CUDA_STATE_H
#include "cuda/cuda_options.h"
#include "cuda/streaming.h"

#define SUMI_CUDA_ARRIVALS 65536 // counters of split-k kernels, see launch.h

// Where a bound value that the engine reads is copied to: an offset in `pages`.
typedef struct sumi_cuda_mirror {
    sumi_value value;
    uint64_t offset;
    CUevent event;
    bool is_pending;
} sumi_cuda_mirror;

// of pinned memory: pinning a megabyte takes about a millisecond of the caller's frame
#define SUMI_CUDA_PAGE (1u << 20)

// A segment of a slice (the whole slice, but for plans that stream their weights); slice: as it was captured.
typedef struct sumi_cuda_graph {
    CUgraphExec exec;
    sumi_slice slice, segment;
    int32_t slice_index;
} sumi_cuda_graph;

// What the runner keeps of a plan, from its first `prepare` to `forget_plan`.
typedef struct sumi_cuda_plan {
    const sumi_plan* plan;
    const sumi_op* ops;
    size_t op_count; // to notice another plan at the same address
    int32_t* weights;
    int32_t weight_count; // residents that stay on the device, in the order of their first use
    int32_t weight_cursor;
    int32_t unpinned_count; // of them have no image in pinned memory left, where nothing is streamed
    bool has_weights;       // the list is complete: it was made for the budget `divided_for`
    uint64_t divided_for;
    sumi_cuda_division division; // its shares are freed
    sumi_cuda_stream* stream;    // NULL: all weights stay
    bool is_fit;                 // the budget holds what this plan needs with all else that is held
    bool is_reserved;
    uint64_t scratch_bytes, mirror_end; // mirror_end: of its mirrors, in `pages`
    sumi_cuda_block constants;          // pinned: all constants, each at a multiple of 64
    sumi_cuda_mirror* mirrors;
    int32_t mirror_count;
    sumi_cuda_graph* graphs;
    int32_t graph_count, graph_capacity; // in the order of the slices
    int32_t graphed_slices;              // slices 0 .. graphed_slices have theirs
    bool without_graphs;                 // the driver did not make them
} sumi_cuda_plan;

typedef struct sumi_cuda_flight {
    CUevent begin, end; // begin: behind the wait for its first op's weights
    bool has_waits;     // for the weights of a later op
    int32_t last_fetch; // mirror of the last copy behind this slice, -1: none
    const sumi_cuda_plan* plan;
} sumi_cuda_flight;

#define SUMI_CUDA_WRITES 32 // copies of bound inputs that may be in flight

typedef struct sumi_cuda_write {
    CUevent event;
    uint64_t begin, end;
} sumi_cuda_write;

typedef struct sumi_cuda {
    sumi_runner runner; // first: the engine holds this
    sumi_heap* heap;
    sumi_cuda_options options;
    sumi_cuda_device device;
    sumi_cuda_memory memory;
    sumi_cuda_modules* modules;
    bool is_loaded;
    sumi_rates rates;
    sumi_cuda_weights weights;
    sumi_cuda_block fixed; // arrivals, then the counter
    sumi_cuda_block arena, scratch;
    // pinned: the ring of inputs, then the mirrors of one plan at a time
    sumi_cuda_block* pages;
    size_t page_count, page_capacity;
    sumi_cuda_block stream_ring;          // of streamed weights
    uint64_t budget;                      // of device bytes; 0: no limit
    atomic_uint_fast64_t uncounted_bytes; // of the device's bytes, see sumi_device_facts
    CUstream graphics;                    // of copies into textures; NULL: none was ever imported
    // graphs are captured here; nothing runs in it but what a launcher does while kernels are looked up
    CUstream capture;
    // sumi_cuda_launch finds the kernel and launches nothing: what is first touched in a capture may break it
    bool only_looks_up;
    sumi_cuda_plan** plans;
    size_t plan_count, plan_capacity;
    sumi_cuda_plan* current; // of the launchers, and the one found last

    bool has_counter;
    int32_t counter; // what is in device memory
    sumi_cuda_flight flights[SUMI_RUNNER_DEPTH];
    uint32_t flight_first, flight_count; // not reported yet
    // recorded where somebody waits; NULL: the ends of slices can be waited for
    CUevent all_submitted;
    sumi_cuda_write writes[SUMI_CUDA_WRITES];
    uint32_t write_first, write_count;
    uint64_t ring_offset;
    sumi_error failure; // the first one of a call that could not say so; a lost device stays
} sumi_cuda;

// Of the slices in flight, the oldest first.
static inline sumi_cuda_flight* sumi_cuda_flight_at(sumi_cuda* cuda, uint32_t index)
{
    return &cuda->flights[(cuda->flight_first + index) % SUMI_RUNNER_DEPTH];
}
#endif
