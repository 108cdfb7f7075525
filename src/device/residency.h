// Which weights are on the device, in which form, and where.
//
// Weights are allocated in slabs. A slab holds weights of one model or of one control net, so that closing it frees its
// memory; adapters have separate slabs. Weights that steps read are in other slabs than weights that a job reads once, so that
// the latter can be evicted first. Under a memory limit that does not hold all weights, matrices get separate blocks
// and can be evicted one by one. upload.h copies weights to the device; streaming.c decides which of them are resident.
#ifndef SUMI_DEVICE_RESIDENCY_H
#define SUMI_DEVICE_RESIDENCY_H
#include "base/workers.h"
#include "device/device_memory.h"
#include "device/form.h"
#include "device/mapped.h"
#include "device/mapped_upload.h"
#include "device/pinned.h"

// One form of one weight.
typedef struct sumi_device_resident {
    const sumi_weight* weight; // NULL: the entry is free
    sumi_device_form form;
    bool is_adapter;
    sumi_device_weight on_device; // data 0: no memory yet
    int32_t slab;
    uint64_t bytes;
    int32_t rows_sent; // rows of the stacked weight that were sent to the device
    // For streaming: the weight's bytes in its device form, complete if has_pinned_copy. Either chunks of its file's
    // mapping are page-locked, or there is a copy in pinned memory.
    int32_t chunks; // chunks of the mapping that the weight uses (mapped.h)
    sumi_device_pinned pinned_copy;
    bool has_pinned_copy;
    uint64_t list_serial; // serial of the newest list that contains the weight
    bool in_steps;        // a plan reads it in every step
} sumi_device_resident;

// in_steps: of all weights in the slab.
typedef struct sumi_device_slab {
    sumi_device_block block;
    int32_t resident_count;
    bool in_steps;
    // While weights to evict are chosen: whether the slab has weights in the current list, and others; `newest` is the
    // newest list of the others.
    bool has_listed, has_others;
    uint64_t newest;
} sumi_device_slab;

// Indices of residents, each once. Those before the cursor are done.
typedef struct sumi_device_list {
    int32_t* indices;
    int32_t count, cursor;
} sumi_device_list;

// The time of one call: `us` long, which ends at until_ns of the steady clock.
typedef struct sumi_device_budget {
    uint64_t until_ns;
    uint32_t us;
} sumi_device_budget;

struct sumi_device_upload; // upload.c; NULL: no upload is in progress

typedef struct sumi_device_weights {
    sumi_heap* heap;
    sumi_workers* workers;
    sumi_device_port* port;
    sumi_device_memory* memory;
    sumi_device_resident* residents;
    size_t resident_count, resident_capacity;
    int32_t* table;
    size_t table_size; // hash table: (weight, form) -> index + 1
    size_t used_count; // entries of `residents` that are not free
    uint64_t list_serial;
    sumi_device_slab* slabs;
    size_t slab_count, slab_capacity;
    bool uses_single_slabs; // from now on matrices get separate blocks
    bool is_paced;          // whether calls of sumi_device_weights_upload are in updates with a budget
    sumi_device_mapped mapped;
    struct sumi_device_upload* upload;
    sumi_device_mapped_upload mapped_upload; // while there is an upload
} sumi_device_weights;

void sumi_device_weights_init(sumi_device_weights* weights, sumi_heap* heap, sumi_workers* workers,
                              sumi_device_port* port, sumi_device_memory* memory);
// Accepts a zeroed struct. Nothing may be in flight.
void sumi_device_weights_close(sumi_device_weights* weights);

// The first index at which a hash table of `size` entries, a power of two, is searched for a form of a weight.
size_t sumi_device_form_hash(const sumi_weight* weight, sumi_device_form form, size_t size);
// Returns the index of a form of a weight. A new entry has no memory yet.
sumi_result sumi_device_weights_add(sumi_device_weights* weights, const sumi_weight* weight, sumi_device_form form,
                                    bool is_adapter, int32_t* out_index, sumi_error* error);
// NULL if the form is not known.
const sumi_device_resident* sumi_device_weights_find(const sumi_device_weights* weights, const sumi_weight* weight,
                                                     sumi_device_form form);
// Evicts weights that are not in the list `serial`, at least one. Slabs without listed weights go first; among these,
// slabs that no step reads; among these, those listed longest ago. Returns false if there are none; without
// `takes_all`, also if only weights are left that steps read or that are listed. Nothing may be using the weights, and
// nothing may be in flight.
bool sumi_device_weights_evict(sumi_device_weights* weights, uint64_t serial, bool takes_all);
// Allocates memory for the weight at the cursor, which has none yet, and for weights after it in the list that fit into
// the same slab.
sumi_result sumi_device_weights_allocate(sumi_device_weights* weights, const sumi_device_list* list, sumi_error* error);
// Frees the weight's pinned copy, or unlocks its chunks. Nothing may be reading them.
void sumi_device_weights_drop_pinned_copy(sumi_device_weights* weights, sumi_device_resident* resident);
// Removes all forms of a weight, and slabs that become empty. Nothing may be in flight.
void sumi_device_weights_release(sumi_device_weights* weights, const sumi_weight* weight);
#endif
