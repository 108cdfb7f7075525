// Which of a plan's weights stay on the device when there is no room for all of them, and how the others get there just
// in time.
//
//   kept      stays while the plan is used: vectors first, then what is used most often (the denoising section, run
//             once per step), then, beside the ring, the rest
//   streamed  lies in page-locked host memory as the device wants it, in its file's mapping (mapped.h) or else in an
//             image of ours, and is copied into a ring on the device whenever an op is about to use it
//   hosted    tables of which an op reads a few rows (the text encoder's embedding) are read where they lie, in pinned
//             memory, and never copied
//
//   copy stream      [wait freed a] copy c, filled c | [wait freed b] copy d, filled d | ..      as far ahead as the ring has room
//   compute stream   [wait filled a, b] a segment of ops, freed a | [wait filled b] ..            a segment has one load, or none
//
// Each use of a streamed weight in the plan is a *load* with an address of its own in the ring, so graphs hold: loads
// follow each other round the ring in the order of the plan, and a repeated section begins again at its first. A load
// may start when all loads before it whose places it takes have been submitted for the last time: the copy stream then
// waits for the newest of them, and no thread waits for anything.
//
// Where no pinned memory can be had for a weight, it comes from the mapped file each time, through the buffers of
// upload.c and by the caller's threads: slower, and not ahead of time.
#ifndef SUMI_CUDA_STREAMING_H
#define SUMI_CUDA_STREAMING_H
#include "cuda/residency.h"

typedef enum sumi_cuda_stay { SUMI_CUDA_KEPT, SUMI_CUDA_STREAMED, SUMI_CUDA_HOSTED } sumi_cuda_stay;

typedef struct sumi_cuda_weight_share {
    const sumi_weight* weight;
    sumi_cuda_form form;
    sumi_cuda_stay stay;
    bool is_adapter, is_table; // table: only rows of it are read
    bool in_steps;             // some of its uses are in a denoising section
    uint64_t bytes;
    double uses;      // of a run; those of steps count more
    int32_t resident; // once it is known to the runner's weights, else -1
} sumi_cuda_weight_share;

typedef struct sumi_cuda_division {
    sumi_cuda_weight_share* shares;
    int32_t count; // in the order of first use
    bool streams, fits;
    uint64_t resident_bytes, streamed_bytes, pinned_bytes; // bytes
    // of `streamed`: bytes that come from a file's mapping and need no pinned memory
    uint64_t mapped_bytes;
    uint64_t ring_bytes, staging_bytes; // device memory: for streamed weights; for conversions while they are uploaded
} sumi_cuda_division;

// Divides `room` bytes of device memory (UINT64_MAX: no limit) among a plan's weights. Always the same for the same
// plan and room. Free the shares with sumi_free.
// fits false: even streaming needs kept + ring + staging bytes, more than there are.
sumi_result sumi_cuda_divide(const sumi_cuda_weights* weights, const sumi_plan* plan, uint64_t room,
                             sumi_cuda_division* out_division, sumi_error* error);

typedef struct sumi_cuda_load {
    int32_t resident, op_last; // the last op that uses it before it may go
    int32_t listed_at;         // in the stream's list
    uint64_t offset, bytes;    // in the ring
    CUevent filled, freed;     // on the copy stream, on the compute stream
    int32_t freed_with;        // the load whose `freed` was recorded behind the last op that uses this one
} sumi_cuda_load;

// section: section_count at the end
typedef struct sumi_cuda_place_in_run {
    int32_t section, iteration, load;
} sumi_cuda_place_in_run;

// What a plan that streams keeps.
typedef struct sumi_cuda_stream {
    uint64_t ring_bytes;
    int32_t* op_loads;      // per op: its load, -1: none
    int32_t* section_loads; // per section and one more: where its loads begin
    sumi_cuda_load* loads;
    int32_t load_count;
    int32_t* list;
    int32_t list_count; // residents that are streamed or hosted, each once
    // of the list: those before it have their image, or there is no pinned memory for one
    int32_t image_cursor, image_row;
    CUevent begun; // behind what the compute stream had to do before
    // since `begun`: loads in the order of the run. [used, issued) lie in the ring or are in flight and are still
    // needed
    uint64_t issued, used;
    sumi_cuda_place_in_run next_issued, next_used;
    int32_t* history;
    int32_t history_size; // of load indices, by their number modulo the size
} sumi_cuda_stream;

struct sumi_cuda;
struct sumi_cuda_plan;

// Makes loads and events for a divided plan; frees what there was. The division's residents are known.
sumi_result sumi_cuda_stream_make(struct sumi_cuda* cuda, struct sumi_cuda_plan* record, sumi_error* error);
void sumi_cuda_stream_free(struct sumi_cuda* cuda, struct sumi_cuda_plan* record); // nothing of it runs
// The next piece of making pinned images. Nothing runs.
sumi_result sumi_cuda_make_pinned_copies(struct sumi_cuda* cuda, struct sumi_cuda_plan* record, uint64_t until_ns,
                                         uint32_t budget_us, bool* out_done, sumi_error* error);
// Where an op finds a weight that is not kept; false: it is.
bool sumi_cuda_stream_place(const struct sumi_cuda* cuda, const struct sumi_cuda_plan* record, int32_t op_index,
                            const sumi_cuda_resident* resident, sumi_cuda_weight* out_place);

// The next segment of a slice: the whole slice for plans that do not stream. False at its end. `segment` zeroed at
// first.
bool sumi_cuda_next_segment(const struct sumi_cuda_plan* record, const sumi_slice* slice, sumi_slice* segment);
// of a run: the first loads start
sumi_result sumi_cuda_stream_begin(struct sumi_cuda* cuda, struct sumi_cuda_plan* record, sumi_error* error);
sumi_result sumi_cuda_stream_before(struct sumi_cuda* cuda, struct sumi_cuda_plan* record, const sumi_slice* segment,
                                    int32_t counter, bool* out_waits, sumi_error* error);
sumi_result sumi_cuda_stream_after(struct sumi_cuda* cuda, struct sumi_cuda_plan* record, const sumi_slice* segment,
                                   sumi_error* error);
// starts as many loads as there is room for
sumi_result sumi_cuda_stream_ahead(struct sumi_cuda* cuda, struct sumi_cuda_plan* record, sumi_error* error);
#endif
