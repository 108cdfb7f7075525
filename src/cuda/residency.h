// Which weights are on the device, in which form, and where.
//
// Weights live in slabs of one model (adapters have their own, and so have weights that steps read), so that forgetting a
// model gives its memory back, and what a job reads once can go before what each of its steps reads; under a budget that
// has no room for all of them, matrices have blocks of their own and can go one by one. How they get there: upload.h.
// Which of them stay is decided in streaming.c.
#ifndef SUMI_CUDA_RESIDENCY_H
#define SUMI_CUDA_RESIDENCY_H
#include "base/workers.h"
#include "cuda/device_memory.h"
#include "cuda/form.h"
#include "cuda/mapped.h"
#include "cuda/modules.h"
#include "cuda/pinned.h"

// One form of one weight.
typedef struct sumi_cuda_resident {
    const sumi_weight* weight; // NULL: the entry is free
    sumi_cuda_form form;
    bool is_adapter;
    sumi_cuda_weight on_device; // data 0: not placed yet
    int32_t slab;
    uint64_t bytes;
    int32_t rows_sent; // rows of the stack that are in flight or there
    // For streaming: its bytes as the device wants them, complete when has_image. Either page-locked chunks of its
    // file's mapping, or an image in pinned memory.
    int32_t chunks; // of the mapping, that it uses; see mapped.h
    sumi_cuda_pinned pinned_copy;
    bool has_pinned_copy;
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

struct sumi_cuda_upload; // upload.c; NULL: nothing is in flight

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
// Accepts a zeroed one. The context is current, and nothing is in flight.
void sumi_cuda_weights_close(sumi_cuda_weights* weights);

// Where a hash table of `size` entries, a power of two, is first looked into for a form of a weight.
size_t sumi_cuda_form_hash(const sumi_weight* weight, sumi_cuda_form form, size_t size);
// The index of a form of a weight, made (but not placed) when it is new.
sumi_result sumi_cuda_weights_want(sumi_cuda_weights* weights, const sumi_weight* weight, sumi_cuda_form form,
                                   bool is_adapter, int32_t* out_index, sumi_error* error);
// Where it lies; NULL when it is not known.
const sumi_cuda_resident* sumi_cuda_weights_find(const sumi_cuda_weights* weights, const sumi_weight* weight,
                                                 sumi_cuda_form form);
// Takes residents that are not listed with `serial` off the device, and at least one of them. Slabs without listed ones
// go first, of these slabs those that no step reads, and of these the ones that were listed longest ago. False when there
// are none; without `takes_all`, also when what steps read, or what is listed, would have to go. Nothing uses them,
// nothing is in flight.
bool sumi_cuda_weights_evict(sumi_cuda_weights* weights, uint64_t serial, bool takes_all);
// Places for list[from], which has none yet, and for those after it that fit beside it.
sumi_result sumi_cuda_weights_place(sumi_cuda_weights* weights, const int32_t* list, int32_t from, int32_t count,
                                    sumi_error* error);
// Gives its image back, or unlocks its chunks; nothing reads them.
void sumi_cuda_weights_drop_pinned_copy(sumi_cuda_weights* weights, sumi_cuda_resident* resident);
// Frees all forms of a weight, and slabs that nobody uses any more. Nothing is in flight.
void sumi_cuda_weights_forget(sumi_cuda_weights* weights, const sumi_weight* weight);
#endif
