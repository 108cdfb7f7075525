// Which weights of a plan are resident if the device memory does not hold all of them, and how the others are copied to
// the device just before their use.
//
//   resident  stays while the plan is used: vectors first, then what is used most often (the denoising section runs
//             once per step), then, beside the ring buffer, the rest
//   streamed  is page-locked in host memory in its device form, in its file's mapping (mapped.h) or else in a pinned
//             copy, and is copied into a ring buffer on the device before each use
//   pinned    tables of which an op reads a few rows (the embedding of a text encoder) are read by kernels from pinned
//             memory and never copied
//
//   copy stream      [wait freed a] copy c, filled c | [wait freed b] copy d, filled d | ..      as far ahead as the ring has space
//   compute stream   [wait filled a, b] a segment of ops, freed a | [wait filled b] ..            a segment has one load, or none
//
// Each use of a streamed weight in the plan is a *load* with an address of its own in the ring buffer, so graphs stay
// valid. Loads follow each other around the ring buffer in the order of the plan, and a repeated section begins again
// at its first load. A load may start when every earlier load whose memory it takes was used for the last time by
// submitted work. The copy stream then waits for the newest of these uses; no thread waits.
//
// If no pinned memory can be had for a weight, it is copied from the mapped file for each use, through the buffers of
// upload.c and by the caller's threads. That is slower, and it is not done ahead of time.
#ifndef SUMI_CUDA_STREAMING_H
#define SUMI_CUDA_STREAMING_H
#include "cuda/residency.h"

typedef enum sumi_cuda_residence {
    SUMI_CUDA_WEIGHT_RESIDENT,
    SUMI_CUDA_WEIGHT_STREAMED,
    SUMI_CUDA_WEIGHT_PINNED
} sumi_cuda_residence;

typedef struct sumi_cuda_weight_share {
    const sumi_weight* weight;
    sumi_cuda_form form;
    sumi_cuda_residence residence;
    bool is_adapter, is_table; // table: ops read only some of its rows
    bool in_steps;             // a denoising section uses it
    uint64_t bytes;
    double uses;      // uses per run; those in steps count more
    int32_t resident; // index in the runner's weights; -1: not known there yet
} sumi_cuda_weight_share;

typedef struct sumi_cuda_division {
    sumi_cuda_weight_share* shares;
    int32_t count; // in the order of first use
    bool streams, fits;
    uint64_t resident_bytes, streamed_bytes, pinned_bytes; // of all shares
    // Of the streamed bytes: how many are copied from a file's mapping and need no pinned memory.
    uint64_t mapped_bytes;
    // device memory: the ring buffer of streamed weights; for conversions during uploads
    uint64_t ring_bytes, staging_bytes;
} sumi_cuda_division;

// Divides `budget` bytes of device memory (UINT64_MAX: no limit) among the weights of a plan. The result depends only
// on the plan and the budget. fits false: even streaming needs resident + ring + staging bytes, which is more. The
// caller frees the shares with sumi_free.
sumi_result sumi_cuda_divide(const sumi_cuda_weights* weights, const sumi_plan* plan, uint64_t budget,
                             sumi_cuda_division* out_division, sumi_error* error);

typedef struct sumi_cuda_load {
    int32_t resident, op_last; // op_last: the last op that uses the weight before the next load may take its memory
    int32_t list_index;        // index in `list` of the weights that are streamed
    uint64_t offset, bytes;    // in the ring buffer
    CUevent filled, freed;     // filled: recorded on the copy stream; freed: on the compute stream
    int32_t freed_with;        // the load whose `freed` is recorded after the last op that uses this load
} sumi_cuda_load;

// A position in a run, before a load. section: section_count at the end.
typedef struct sumi_cuda_load_position {
    int32_t section, iteration, load;
} sumi_cuda_load_position;

// The state of a plan that streams weights.
typedef struct sumi_cuda_weight_streaming {
    uint64_t ring_bytes;
    int32_t* op_loads;      // for each op its load; -1: none
    int32_t* section_loads; // for each section, and one more, the index of its first load
    sumi_cuda_load* loads;
    int32_t load_count;
    int32_t* list;
    int32_t list_count; // weights that are streamed or pinned, each once
    // Position in the list: weights before it have their pinned copy, or there is no pinned memory for one.
    int32_t pinned_cursor, pinned_row;
    CUevent begun; // recorded after the earlier work of the compute stream
    // Numbers of loads since `begun`, in the order of the run. Loads [used, issued) are in the ring buffer or in flight
    // and are still needed.
    uint64_t issued, used;
    sumi_cuda_load_position next_issued, next_used;
    int32_t* history;
    int32_t history_size; // of load indices, by their number modulo history_size
} sumi_cuda_weight_streaming;

struct sumi_cuda;
struct sumi_cuda_plan;

// Makes loads and events for a divided plan, and frees earlier ones. The weights of the division are known to the
// runner.
sumi_result sumi_cuda_streaming_create(struct sumi_cuda* cuda, struct sumi_cuda_plan* record, sumi_error* error);
// Nothing of the plan may be running.
void sumi_cuda_streaming_destroy(struct sumi_cuda* cuda, struct sumi_cuda_plan* record);
// Makes the next piece of pinned copies. Nothing may be running.
sumi_result sumi_cuda_make_pinned_copies(struct sumi_cuda* cuda, struct sumi_cuda_plan* record, uint64_t until_ns,
                                         uint32_t budget_us, bool* out_done, sumi_error* error);
// Finds the address at which an op reads a weight that is not resident: in the ring buffer or in pinned memory. False:
// the weight is resident.
bool sumi_cuda_streaming_find_weight(const struct sumi_cuda* cuda, const struct sumi_cuda_plan* record,
                                     int32_t op_index, const sumi_cuda_resident* resident,
                                     sumi_cuda_weight* out_weight);

// Advances `segment`, zeroed at first, to the next segment of a slice; for plans that do not stream, a segment is the
// whole slice. False at the end of the slice.
bool sumi_cuda_next_segment(const struct sumi_cuda_plan* record, const sumi_slice* slice, sumi_slice* segment);
// Begins a run: starts the first loads. Each segment is then submitted between begin_segment, after which the compute
// stream waits for the segment's load (*out_waits: there is one), and end_segment, which records that it was used.
sumi_result sumi_cuda_streaming_begin_run(struct sumi_cuda* cuda, struct sumi_cuda_plan* record, sumi_error* error);
sumi_result sumi_cuda_streaming_begin_segment(struct sumi_cuda* cuda, struct sumi_cuda_plan* record,
                                              const sumi_slice* segment, int32_t counter, bool* out_waits,
                                              sumi_error* error);
sumi_result sumi_cuda_streaming_end_segment(struct sumi_cuda* cuda, struct sumi_cuda_plan* record,
                                            const sumi_slice* segment, sumi_error* error);
// Starts as many loads as the ring buffer has memory for.
sumi_result sumi_cuda_streaming_start_loads(struct sumi_cuda* cuda, struct sumi_cuda_plan* record, sumi_error* error);
#endif
