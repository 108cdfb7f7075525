// The device port: everything that rooms which keep weights on a device ask of the device itself. A backend implements
// it once (cuda/port_cuda.c); tests implement it again in host memory (tests/device_stock/toy_device.c).
//
//   stream COPIES     copies of weights and the kernels that convert them, in order
//   stream COMPUTE    the work of plans, which the runner submits; here only events are recorded in it and waited for
//
// Addresses are uint64_t, 0 for none. Pinned memory is page-locked host memory, which kernels read at the address that
// it has for the host. Sizes are in bytes. Every function is called inside the backend's context, by one thread at a
// time: the one that runs slices, or one that is inside a call of the engine. A function that submits returns at once.
// If the submitted work fails later, a later call reports the failure. Functions with an `error` return SUMI_OK or
// write result and text into it; SUMI_DEVICE_LOST means that no later call can succeed.
#ifndef SUMI_DEVICE_PORT_H
#define SUMI_DEVICE_PORT_H
#include "base/result.h"

typedef struct sumi_device_port sumi_device_port;
typedef struct sumi_device_event sumi_device_event; // the backend's
struct sumi_device_plan;                            // stock.h

typedef enum sumi_device_stream { SUMI_DEVICE_STREAM_COMPUTE, SUMI_DEVICE_STREAM_COPIES } sumi_device_stream;

// Memory on the device, or pinned memory.
typedef struct sumi_device_block {
    uint64_t address; // 0: no memory. STAGING: the address of pinned host memory (sumi_device_host)
    uint64_t bytes;
    sumi_memory_kind kind;
    bool is_registered; // STAGING: the port's own mark of how it has allocated the memory
} sumi_device_block;

static inline uint64_t sumi_device_address(const void* memory) { return (uint64_t)(uintptr_t)memory; }

// A copy in the stream COPIES. A host address is in pinned or page-locked memory, which must not change until the copy
// has ended.
typedef struct sumi_device_copy {
    uint64_t to, from, bytes;
    const char* what;
} sumi_device_copy;

// A copy of row_count rows that begin `to_pitch` and `from_pitch` bytes apart.
typedef struct sumi_device_rows {
    uint64_t to, from;
    uint64_t row_bytes, row_count, to_pitch, from_pitch;
    const char* what;
} sumi_device_rows;

// A kernel whose only parameter is a struct, in blocks of one dimension.
typedef struct sumi_device_launch {
    const char* kernel; // "sumi_upload_rows"; the names and structs are those of kernels/upload.h
    uint32_t blocks, threads;
    void* args; // copied before the call returns
} sumi_device_launch;

// `what` in a failure's text says what the call was for: "streaming weights".
typedef struct sumi_device_port_functions {
    // ---- Memory -----------------------------------------------------------------------------------------------------
    // Allocates block->bytes (a multiple of 512) of block->kind: pinned memory for STAGING, otherwise on the device.
    // Sets the block's address, a multiple of 512, and is_registered. If there is not enough memory the result is
    // SUMI_OK and the address 0, because only the caller can say what to do then. May block.
    sumi_result (*allocate)(sumi_device_port* port, sumi_device_block* block, const char* what, sumi_error* error);
    // Releases a block at once. May wait for everything that runs on the device.
    void (*release)(sumi_device_port* port, const sumi_device_block* block);
    // Releases a block on the device once the work submitted to COMPUTE has ended, without waiting for it. False: the
    // device cannot do that, and nothing has changed.
    bool (*release_behind)(sumi_device_port* port, const sumi_device_block* block);
    // Asks for the device's free and total memory. False: the device does not say, and both are 0.
    bool (*count_free)(sumi_device_port* port, uint64_t* out_free_bytes, uint64_t* out_total_bytes);

    // ---- Copies and kernels, in the stream COPIES -------------------------------------------------------------------
    // Submits a copy from the host to the device.
    sumi_result (*copy_in)(sumi_device_port* port, const sumi_device_copy* copy, sumi_error* error);
    // The same in rows. Only called if can_lock_pages has returned true.
    sumi_result (*copy_rows_in)(sumi_device_port* port, const sumi_device_rows* rows, sumi_error* error);
    // Submits a copy from one place on the device to another one.
    sumi_result (*copy_within)(sumi_device_port* port, const sumi_device_copy* copy, sumi_error* error);
    // Submits a copy from the device to the host.
    sumi_result (*copy_out)(sumi_device_port* port, const sumi_device_copy* copy, sumi_error* error);
    // Submits a kernel. SUMI_INTERNAL if no kernel has this name.
    sumi_result (*launch)(sumi_device_port* port, const sumi_device_launch* launch, sumi_error* error);

    // ---- Events -----------------------------------------------------------------------------------------------------
    // Makes an event. `sleeps`: `wait` for it lets the thread sleep. An event that was never recorded has passed.
    sumi_result (*make_event)(sumi_device_port* port, bool sleeps, sumi_device_event** out_event, sumi_error* error);
    void (*destroy_event)(sumi_device_port* port, sumi_device_event* event); // it may be pending
    // Records the event after everything that was submitted to the stream. A later record replaces this one.
    sumi_result (*record)(sumi_device_port* port, sumi_device_event* event, sumi_device_stream stream, const char* what,
                          sumi_error* error);
    // Whether the event has passed. Does not block.
    sumi_result (*query)(sumi_device_port* port, sumi_device_event* event, bool* out_passed, const char* what,
                         sumi_error* error);
    // Blocks until the event has passed.
    sumi_result (*wait)(sumi_device_port* port, sumi_device_event* event, const char* what, sumi_error* error);
    // Makes the stream wait for the newest record of the event. Does not block.
    sumi_result (*order)(sumi_device_port* port, sumi_device_stream stream, sumi_device_event* event, const char* what,
                         sumi_error* error);
    // Blocks until the stream COPIES has ended. error NULL: the caller has a failure to report already.
    sumi_result (*wait_for_copies)(sumi_device_port* port, const char* what, sumi_error* error);
    // Blocks until both streams have ended. The backend keeps a failure and reports it later.
    void (*wait_for_all)(sumi_device_port* port);

    // ---- Page locks -------------------------------------------------------------------------------------------------
    // Whether mappings of files, which are read-only, can be page-locked so that copy_in and copy_rows_in read them.
    // Asked once.
    bool (*can_lock_pages)(sumi_device_port* port);
    // Page-locks memory, which reads pages that are not in memory yet. *out_locked false and SUMI_OK: this memory
    // cannot be locked. SUMI_DEVICE_LOST is the only failure. Blocks.
    sumi_result (*lock_pages)(sumi_device_port* port, void* begin, uint64_t bytes, bool* out_locked, sumi_error* error);
    void (*unlock_pages)(sumi_device_port* port, void* begin); // of what lock_pages has locked as a whole. Blocks.

    // ---- Plans ------------------------------------------------------------------------------------------------------
    // Addresses that the plan's work was recorded with (in graphs) are about to change: it must be recorded again.
    // Nothing of the plan is running.
    void (*drop_recordings)(sumi_device_port* port, struct sumi_device_plan* plan);
} sumi_device_port_functions;

// A backend's object begins with it.
struct sumi_device_port {
    const sumi_device_port_functions* functions;
};
#endif
