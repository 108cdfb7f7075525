// Which weights are on the device, in which form, and how they get there.
//
//   file, mapped --workers copy--> pinned slot --copy stream--> its place                      bf16 matrices without padding
//                                              \-> raw device slot --kernels/upload.cu--> place  everything else: other types, interleaved, permuted, folded, quantised
//
// A weight with a change (plan/weight.h) goes the second way, as the floats that the workers make of its rows: the sum is
// rounded once, to the form's type.
//
// Weights live in slabs of one model (adapters have their own, and so have weights that steps read), so that forgetting a
// model gives its memory back, and what a job reads once can go before what each of its steps reads; under a budget that
// has no room for all of them, matrices have blocks of their own and can go one by one. A slot is a
// megabyte, the unit of all waiting and pinning; a batch of slots is filled by the workers together. Which weights are
// resident is decided in streaming.c.
#ifndef SUMI_CUDA_RESIDENCY_H
#define SUMI_CUDA_RESIDENCY_H
#include "base/workers.h"
#include "cuda/launch.h"
#include "cuda/mapped.h"
#include "cuda/pinned.h"

// One form of one weight.
typedef struct sumi_cuda_resident {
    const sumi_weight* weight; // NULL: the entry is free
    sumi_cuda_form form;
    bool is_adapter;
    sumi_cuda_weight place; // data 0: not placed yet
    int32_t slab;
    uint64_t bytes;
    int32_t rows_sent; // rows of the stack that are on their way or there
    // For streaming: its bytes as the device wants them, complete when has_image. Either page-locked chunks of its
    // file's mapping, or an image in pinned memory.
    int32_t chunks; // of the mapping, that it uses; see mapped.h
    sumi_cuda_pinned image;
    bool has_image;
    uint64_t listed; // serial of the last list it was put into
    bool in_steps;   // some plan reads it in every step
} sumi_cuda_resident;

// in_steps: of all its residents.
typedef struct sumi_cuda_slab {
    sumi_cuda_block block;
    int32_t resident_count;
    bool in_steps;
    // While one that goes is chosen: it has residents that are listed, and others; the newest list of those.
    bool has_listed, has_others;
    uint64_t newest;
} sumi_cuda_slab;

struct sumi_cuda_upload; // slots, while anything is on its way

typedef struct sumi_cuda_weights {
    sumi_heap* heap;
    sumi_workers* workers;
    const sumi_cuda_device* device;
    sumi_cuda_memory* memory;
    sumi_cuda_modules* modules;
    sumi_cuda_resident* residents;
    size_t resident_count, resident_capacity;
    int32_t* table;
    size_t table_size; // hash of (weight, form) -> index + 1
    size_t used_count; // residents that are not free
    uint64_t list_serial;
    sumi_cuda_slab* slabs;
    size_t slab_count, slab_capacity;
    bool places_alone; // from here on matrices have blocks of their own
    sumi_cuda_mapped mapped;
    struct sumi_cuda_upload* upload;
} sumi_cuda_weights;

void sumi_cuda_weights_init(sumi_cuda_weights* weights, sumi_heap* heap, sumi_workers* workers,
                            const sumi_cuda_device* device, sumi_cuda_memory* memory, sumi_cuda_modules* modules);
void sumi_cuda_weights_close(sumi_cuda_weights* weights); // accepts a zeroed one; the context is current

// Where a hash table of `size` entries, a power of two, is first looked into for a form of a weight.
size_t sumi_cuda_form_slot(const sumi_weight* weight, sumi_cuda_form form, size_t size);
// The which-th weight that an op uses (0, 1, 2; the bias is one) and its form; false when there is no which-th.
bool sumi_cuda_op_weight(const sumi_plan* plan, int32_t op_index, int32_t which, const sumi_weight** out_weight,
                         sumi_cuda_form* out_form);
uint64_t sumi_cuda_form_bytes(const sumi_weight* weight, sumi_cuda_form form);      // on the device, rounded up to 512
uint64_t sumi_cuda_image_row_bytes(const sumi_weight* weight, sumi_cuda_form form); // see pinned.h
sumi_cuda_weight sumi_cuda_place_at(CUdeviceptr address, const sumi_weight* weight, sumi_cuda_form form);
// Whether the host can make the device's bytes: they are the file's, but for the order of rows, or sums with a change,
// rounded.
bool sumi_cuda_host_makes(const sumi_weight* weight, sumi_cuda_form form);

// Device memory that bringing weights takes at most beside their places, for any list of those that were added.
typedef struct sumi_cuda_way {
    uint64_t total, largest_row;
    bool converts;
} sumi_cuda_way;
void sumi_cuda_way_add(sumi_cuda_way* way, const sumi_weight* weight, sumi_cuda_form form);
uint64_t sumi_cuda_way_bytes(const sumi_cuda_way* way);

// The index of a form of a weight, made (but not placed) when it is new.
sumi_result sumi_cuda_weights_want(sumi_cuda_weights* weights, const sumi_weight* weight, sumi_cuda_form form,
                                   bool is_adapter, int32_t* out_index, sumi_error* error);
// Where it lies; NULL when it is not known.
const sumi_cuda_resident* sumi_cuda_weights_find(const sumi_cuda_weights* weights, const sumi_weight* weight,
                                                 sumi_cuda_form form);
// Brings residents list[*cursor .. count) to the device until the time is over, *out_done when all of them are there.
// Waits at most for a slot's copy, and pins or unpins at most one slot beyond its time. A list that is freed or
// shortened before it is done: settle first.
sumi_result sumi_cuda_weights_send(sumi_cuda_weights* weights, const int32_t* list, int32_t count, int32_t* cursor,
                                   uint64_t until_ns, uint32_t budget_us, bool* out_done, sumi_error* error);
// Brings list[at] to `place`, where it does not stay: on the copy stream, in its order. Blocks while slots are busy;
// keeps them for the next ones of the list.
sumi_result sumi_cuda_weights_pass(sumi_cuda_weights* weights, const int32_t* list, int32_t count, int32_t at,
                                   CUdeviceptr place, sumi_error* error);
// Whether a weight that is streamed is copied from its file's mapping, so that it needs no pinned memory.
bool sumi_cuda_streams_mapped(const sumi_cuda_weights* weights, const sumi_weight* weight, sumi_cuda_form form);
// The next rows of a resident (sumi_cuda_host_makes) into its image, about budget_us of this thread's time. *row: the
// next one, 0 at first.
void sumi_cuda_weights_copy_image(sumi_cuda_weights* weights, int32_t index, int32_t* row, uint32_t budget_us);
// and unlocks its chunks; nothing reads them
void sumi_cuda_weights_drop_image(sumi_cuda_weights* weights, sumi_cuda_resident* resident);
// From its image, which is complete, into the ring, on the copy stream.
sumi_result sumi_cuda_weights_copy_out(const sumi_cuda_weights* weights, const sumi_cuda_resident* resident,
                                       CUdeviceptr to, sumi_error* error);
// Takes residents that are not listed with `serial` off the device, and at least one of them. Slabs without listed ones
// go first, of these slabs those that no step reads, and of these the ones that were listed longest ago. False when there
// are none; without `takes_all`, also when what steps read, or what is listed, would have to go. Nothing uses them,
// nothing is on its way.
bool sumi_cuda_weights_evict(sumi_cuda_weights* weights, uint64_t serial, bool takes_all);
// Gives the memory of everything on its way back to the host (pinned) and the device; waits for it first.
void sumi_cuda_weights_settle(sumi_cuda_weights* weights);
// Frees all forms of a weight, and slabs that nobody uses any more. Nothing is on its way.
void sumi_cuda_weights_forget(sumi_cuda_weights* weights, const sumi_weight* weight);
#endif
