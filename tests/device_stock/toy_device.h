// A device in host memory, behind the device port (src/device/port.h): a limit of memory, two streams that run as late
// as their order allows, and calls that fail when a test says so.
//
// Each stream is a queue of commands. TOY_COPIES_LATE: work runs when it is submitted, copies run when work, or the
// host, waits for them. TOY_WORK_LATE is the other way round. So a wait that is missing shows as wrong bytes: in the
// first case a weight is read before its copy, in the second its memory is written before the read.
//
// The kernel that uploads rows as bfloat16 does so. All others write 8 bytes for each row, a hash of the row as it
// came: enough to see that every row came once, in the type that was announced.
#ifndef TOY_DEVICE_H
#define TOY_DEVICE_H
#include "device/port.h"
#include "kernels/upload.h"

typedef enum toy_lateness { TOY_COPIES_LATE, TOY_WORK_LATE } toy_lateness;

struct toy_block;
struct toy_command;

typedef struct toy_device {
    sumi_device_port port; // first
    toy_lateness lateness;
    uint64_t limit_bytes;                   // of device memory, beyond which an allocation is a violation; 0: none
    int32_t pieces_left;                    // of pinned copies of streamed weights; negative: any number
    bool locks_pages;                       // whether lock_pages works
    int64_t calls, fail_at;                 // calls that may fail; the one that does. 0: none
    uint64_t held;                          // bytes of device memory
    uint64_t pinned;                        // bytes of pinned memory
    int32_t blocks, events;                 // alive
    int32_t violations;                     // printed, too: accesses outside of live memory, and so on
    struct toy_block* memory;               // all live blocks
    struct toy_command *first[2], *last[2]; // queues, by sumi_device_stream
} toy_device;

void toy_open(toy_device* toy, toy_lateness lateness);
void toy_close(toy_device* toy); // counts what is still alive as a violation
// Submits work to the stream COMPUTE.
void toy_submit(toy_device* toy, void (*work)(void* context), void* context);
void toy_finish(toy_device* toy); // runs everything

// ---- Between its files ----------------------------------------------------------------------------------------------

// toy_memory.c. memory: what is freed when the block is removed; NULL for page locks. is_host: pinned or page-locked.
void toy_violate(toy_device* toy, const char* what);
bool toy_is_live(const toy_device* toy, uint64_t address, uint64_t bytes, bool is_host);
void toy_add_block(toy_device* toy, uint64_t address, uint64_t bytes, bool is_host, void* memory);
void toy_remove_block(toy_device* toy, uint64_t address);
// toy_upload.c: bytes that an upload kernel reads; the kernel.
uint64_t toy_upload_bytes(const sumi_upload_args* args);
void toy_upload(const char* kernel, const sumi_upload_args* args);
#endif
