// The memory on a device for the plans of a runner (the weights, the ring buffer of streamed weights, the arena and
// scratch memory, all within one memory limit), and a record of each plan. A runner has one stock; memory_share.h has the
// functions that work on it.
#ifndef SUMI_DEVICE_STOCK_H
#define SUMI_DEVICE_STOCK_H
#include "device/streaming.h"

// The record of a plan. A runner's own record of the plan begins with it.
typedef struct sumi_device_plan {
    const sumi_plan* plan;
    sumi_device_list list;  // resident weights, in the order of their first use
    int32_t unpinned_count; // if nothing is streamed: how many of these weights have no pinned copy any more
    bool has_weights;       // the list is complete; it was made for the memory limit `division_limit`
    uint64_t division_limit;
    sumi_device_division division;           // without its entries, which were freed
    sumi_device_weight_streaming* streaming; // NULL: all weights are resident
    bool fits_limit;                         // the limit holds what this plan needs beside everything else that is held
    bool is_reserved;                        // the arena and scratch memory hold the plan
    uint64_t scratch_bytes;                  // of the runner's kernels
} sumi_device_plan;

typedef struct sumi_device_stock {
    sumi_heap* heap;
    sumi_device_port* port;
    sumi_device_memory memory;
    sumi_device_weights weights;
    sumi_device_block arena, scratch;
    uint64_t arena_serial;         // changes when the arena or the scratch memory does
    bool has_late_frees;           // a block was released after COMPUTE's work since that stream was last waited for
    sumi_device_block weight_ring; // ring buffer of streamed weights
    uint64_t fixed_bytes;          // device memory that the runner holds for itself, whatever the plans
    uint64_t memory_limit;         // of device memory, in bytes; 0: none
    sumi_device_plan** plans;      // each is the beginning of a record of the runner, which adds and removes it
    size_t plan_count, plan_capacity;
} sumi_device_stock;

void sumi_device_stock_init(sumi_device_stock* stock, sumi_heap* heap, sumi_device_port* port,
                            const sumi_device_allocator* allocator);
// Waits until the device has finished. Called before memory is freed: no slice may be running then, but copies may
// still be in flight.
void sumi_device_settle(sumi_device_stock* stock);
// Drops the recordings of all plans, because addresses in them are about to change. No plan is reserved any more.
void sumi_device_drop_all_recordings(sumi_device_stock* stock);
// Drops the decisions about the plan's weights: their list, and which of them are resident.
void sumi_device_drop_division(sumi_device_stock* stock, sumi_device_plan* record);
// Removes weights that are about to be freed. Plans that use them determine their needs again.
void sumi_device_release_weights(sumi_device_stock* stock, const sumi_weight* const* weights, size_t count);
#endif
