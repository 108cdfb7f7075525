// Which weights of a plan are resident if the device memory does not hold all of them, and how the others are copied to
// the device just before their use.
//
//   resident  stays while the plan is used: vectors first, then the weights used most often (the denoising section runs
//             once per step), then, beside the ring buffer, the rest
//   streamed  is page-locked in host memory in its device form, in its file's mapping (mapped.h) or else in a pinned
//             copy, and is copied into a ring buffer on the device before each use
//   pinned    tables from which an op reads a few rows (the embedding of a text encoder) are read by kernels from
//   pinned
//             memory and never copied
//
// Two streams of the device work side by side. Loads a, b, c, d of a ring buffer that holds two:
//
//   copy stream      copy a, filled a | copy b, filled b | wait freed a, copy c, filled c | wait freed b, copy d, ..
//   compute stream                    wait filled a, ops of a, freed a | wait filled b, ops of b, freed b | ..
//
// A *load* is a streamed weight and the consecutive ops of a section that use it. It has a fixed offset in the ring
// buffer, so graphs stay valid; loads that do not overlap in time share memory. Loads follow each other around the ring
// buffer in the order of the plan, and a repeated section begins again at its first load. A *segment* of a slice is the
// ops of one load, or ops without one. A load may start when every earlier load whose memory it takes was used for the
// last time by submitted work. The copy stream then waits for the newest of these uses; no thread waits.
//
// If no pinned memory is available for a weight, it is copied from the mapped file for each use, through the buffers of
// upload.c, by the thread that runs slices and the workers. That is slower, and it is not done ahead of time.
#ifndef SUMI_DEVICE_STREAMING_H
#define SUMI_DEVICE_STREAMING_H
#include "device/residency.h"
#include "plan/plan.h"

typedef enum sumi_device_residence {
    SUMI_DEVICE_WEIGHT_RESIDENT,
    SUMI_DEVICE_WEIGHT_STREAMED,
    SUMI_DEVICE_WEIGHT_PINNED
} sumi_device_residence;

// A weight in one of the forms in which ops read it (form.h).
typedef struct sumi_device_division_entry {
    const sumi_weight* weight;
    sumi_device_form form;
    sumi_device_residence residence;
    bool is_adapter;
    bool is_table; // a table from which ops read only some rows
    bool in_steps; // a denoising section uses it
    uint64_t bytes;
    double use_weight;    // uses per run; those in steps count 64 times
    int32_t weight_index; // in sumi_device_weights.residents; -1: not known there yet
} sumi_device_division_entry;

typedef struct sumi_device_division {
    sumi_device_division_entry* entries; // in the order of first use
    int32_t count;
    bool streams; // not all weights are resident
    bool fits;    // resident_bytes + ring_bytes + staging_bytes are at most the memory that was divided
    uint64_t resident_bytes, streamed_bytes, pinned_bytes; // of the entries of each residence
    // Of the streamed bytes: how many are copied from a file's mapping and need no allocated pinned memory.
    uint64_t mapped_bytes;
    uint64_t ring_bytes;    // device memory of the ring buffer
    uint64_t staging_bytes; // device memory for conversions during uploads
} sumi_device_division;

// Divides device_bytes of device memory (UINT64_MAX: no limit; then everything is resident, whatever the plan's options
// say) among the weights of a plan. The result depends only on the plan and device_bytes. When even streaming needs
// more, `fits` is false, and the other members say how much. The caller frees the entries with sumi_free.
sumi_result sumi_device_divide(const sumi_device_weights* weights, const sumi_plan* plan, uint64_t device_bytes,
                               sumi_device_division* out_division, sumi_error* error);

typedef struct sumi_device_load {
    int32_t weight_index;              // in sumi_device_weights.residents
    int32_t op_last;                   // the last op that uses this load
    int32_t list_index;                // in sumi_device_weight_streaming.list
    uint64_t offset, bytes;            // in the ring buffer
    sumi_device_event *filled, *freed; // filled: recorded on the copy stream; freed: on the compute stream
    int32_t freed_with;                // the load whose `freed` is recorded after the last op that uses this load
} sumi_device_load;

// A position in a run, before a load. section: section_count at the end.
typedef struct sumi_device_load_position {
    int32_t section, iteration, load;
} sumi_device_load_position;

// The state of a plan that streams weights, or that reads tables from pinned memory.
typedef struct sumi_device_weight_streaming {
    uint64_t ring_bytes;
    int32_t* op_loads;      // for each op its load; -1: none
    int32_t* section_loads; // for each section, and one more, the index of its first load
    sumi_device_load* loads;
    int32_t load_count;
    // Weights that are streamed or pinned, each once. Those before the cursor have their pinned copy, or pinned memory
    // has run out for it. Of the next weight the rows before pinned_row were made.
    sumi_device_list list;
    int32_t pinned_row;
    sumi_device_event* begun; // recorded after the earlier work of the compute stream
    // Loads are numbered from 0 since `begun`, in the order of the run; a repeated section has its loads several times.
    // Loads [0, used) are not needed any more, loads [used, issued) are in the ring buffer or in flight.
    uint64_t issued, used;
    sumi_device_load_position next_issued, next_used;
    int32_t* history; // load number n of the run is loads[history[n % history_size]]
    int32_t history_size;
} sumi_device_weight_streaming;

struct sumi_device_stock;
struct sumi_device_plan;

// Makes loads and events for a divided plan, and frees earlier ones. Every entry of the division must have its
// weight_index.
sumi_result sumi_device_streaming_create(struct sumi_device_stock* stock, struct sumi_device_plan* record,
                                         sumi_error* error);
// Nothing of the plan may be running.
void sumi_device_streaming_destroy(struct sumi_device_stock* stock, struct sumi_device_plan* record);
// Makes the next piece of pinned copies. Nothing may be running.
sumi_result sumi_device_make_pinned_copies(struct sumi_device_stock* stock, struct sumi_device_plan* record,
                                           sumi_device_budget budget, bool* out_done, sumi_error* error);
// Where an op finds a weight that is streamed or pinned. False: the weight is resident.
bool sumi_device_streaming_find_weight(const struct sumi_device_stock* stock, const struct sumi_device_plan* record,
                                       int32_t op_index, const sumi_device_resident* resident,
                                       sumi_device_weight* out_weight);

// Advances `segment`, zeroed at first, to the next segment of a slice; for plans that do not stream, a segment is the
// whole slice. False at the end of the slice.
bool sumi_device_next_segment(const struct sumi_device_plan* record, const sumi_slice* slice, sumi_slice* segment);
// Begins a run: starts the first loads. Each segment is then submitted between begin_segment, after which the compute
// stream waits for the segment's load (*out_waits: there is one), and end_segment, which records that it was used.
sumi_result sumi_device_streaming_begin_run(struct sumi_device_stock* stock, struct sumi_device_plan* record,
                                            sumi_error* error);
// Submits waits so that the ops of a segment find its load, and starts that load if it has not been started; `counter`
// is the evaluation that the slice computes. *out_waits: the compute stream waits for a copy. After the ops of the
// segment are submitted call sumi_device_streaming_end_segment, which lets later loads take the memory. After a failure
// the run ends.
sumi_result sumi_device_streaming_begin_segment(struct sumi_device_stock* stock, struct sumi_device_plan* record,
                                                const sumi_slice* segment, int32_t counter, bool* out_waits,
                                                sumi_error* error);
sumi_result sumi_device_streaming_end_segment(struct sumi_device_stock* stock, struct sumi_device_plan* record,
                                              const sumi_slice* segment, sumi_error* error);
// Starts as many loads as the ring buffer has memory for.
sumi_result sumi_device_streaming_start_loads(struct sumi_device_stock* stock, struct sumi_device_plan* record,
                                              sumi_error* error);
#endif
