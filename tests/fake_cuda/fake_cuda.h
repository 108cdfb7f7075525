// A CUDA driver without a GPU, so that the host side of the backend is tested everywhere: memory is the host's, copies
// and fills are done, kernels do nothing but have their launch checked against their PTX (parameters, block size,
// shared memory). A test that includes this header is linked with it (premake5.lua), and as its soname is libcuda.so.1
// the backend finds it instead of a real one.
//
// It is also a cuBLASLt (libcublasLt.so.13, not .12), whose products are computed.
//
// It watches over the rules of the house and of CUDA. What breaks one is a violation, is printed, and is counted by
// fake_violations():
//   no current context, or one popped twice; handles that are dead or of another kind; the NULL stream; blocking streams
//   allocating, loading or waiting while this thread captures; capturing in global mode
//   a call while the thread's capture mode is not relaxed: it may spoil a capture of the host's. Which calls do is not written anywhere, so all count but cuInit, the driver's version and names
//   products outside of live memory, without workspace, with another size's algorithm, or first used inside a capture
//   copies and fills outside of live memory; kernels that are given an address of memory already freed; launches that their PTX does not allow; copies of pageable host memory
#ifndef SUMI_FAKE_CUDA_H
#define SUMI_FAKE_CUDA_H
#include <stdbool.h>
#include <stdint.h>

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;

// Back to: one device of 9.0 with 1 GiB, driver 13.0, every call succeeds, everything is done at once; all counts zero.
// Live objects stay and stay counted.
void fake_reset(void);

// ---- What it is -----------------------------------------------------------------------------------------------------
// up to 4, all alike; uuid byte i of device d is 16 * d + i, luid byte i 8 * d + i + 1
void fake_devices(int count, int capability);
void fake_driver_version(int version);  // 13000; entries of newer ABIs are not there
void fake_lack_entry(const char* name); // this one is not there; NULL: all are. The name must live on
// cuGetProcAddress_v2 refuses: only exported names can be found, as before CUDA 12
void fake_old_lookup(bool on);
// off: modules of machine code are refused, as by an older driver. Off at first: PTX says what parameters a kernel has
void fake_take_binaries(bool on);
// page-locking of read-only memory, mapped files for one. On at first
void fake_lock_read_only(bool on);
void fake_newest_ptx(int version);            // 90: PTX 9.0; newer is refused
void fake_limit_device_bytes(uint64_t bytes); // 0: as much as the device has
void fake_device_bytes(uint64_t bytes);       // what the device has; 0: a gigabyte

// ---- How it fails and when it finishes ------------------------------------------------------------------------------
// The n-th call of this entry (the driver's or cuBLASLt's) from now on (1: the next) returns `code`, once; 0 takes it
// back. True: the one asked for before has happened.
bool fake_fail_call(const char* name, int nth, int code);
bool fake_fail_allocation(int nth); // the same of any allocation, device or pinned: out of memory
// from now on everything that needs the context fails with CUDA_ERROR_ILLEGAL_ADDRESS
void fake_lose_device(void);
void fake_refuse_graphs(bool on); // captures cannot be begun
// 0: all work is done as it is submitted. n: it is done when somebody waits for it, or when an event behind it, or its
// stream, was queried n times in vain.
void fake_complete_after(int queries);
// The clock of what takes time, below, instead of the system's; it lives on. NULL: the system's again, as after
// fake_reset.
typedef struct fake_clock {
    uint64_t (*now_ns)(void);
    void (*pass_ns)(uint64_t ns);
} fake_clock;
void fake_use_clock(const fake_clock* clock);
// each, of that clock's time: events behind them are done then. 0 at first. With fake_complete_after(0) only
void fake_kernels_take(int us);
// pinning a MiB, and unpinning it; 0 at first. That time passes in the call
void fake_pinning_takes(int us);
void fake_finish(void); // time passes: everything submitted is done now
// of kernels on the device's clock, over and over; the list must live on. NULL: 0.01 each
void fake_kernel_times(const double* ms, int count);
// Of the device's bytes, for itself, for each that is alive: less is free. 0 at first.
void fake_keeps(uint64_t context_bytes, uint64_t module_bytes, uint64_t graph_bytes);
void fake_fill_new_memory(int byte); // what new memory holds; 0 at first

// ---- The host beside us ---------------------------------------------------------------------------------------------
// a context of the host's own, of this device: to be released with fake_host_release
struct CUctx_st* fake_host_context(int device);
struct CUstream_st* fake_host_stream(struct CUctx_st* context);
struct CUevent_st* fake_host_event(void);          // never recorded
uint64_t fake_host_memory(uint64_t bytes);         // on the device; its bytes are the test's to read
bool fake_event_is_done(struct CUevent_st* event); // recorded, and reached; asks nothing that could make it so
void fake_gl_current(bool on);                     // the host's OpenGL context, on this thread
unsigned fake_gl_texture(int width, int height);   // its name; 0: none more
const unsigned char* fake_gl_pixels(unsigned texture);
void fake_gl_release(unsigned texture); // a violation while CUDA knows it
// A real OpenGL instead of these textures: asked on the thread that calls, and written by cuGraphicsUnmapResources. It
// lives on; fake_reset keeps it. NULL: none.
typedef struct fake_gl {
    bool (*is_current)(void);
    bool (*get_size)(unsigned texture, int* width, int* height); // false: no such texture with RGBA8 storage
    void (*write)(unsigned texture, int width, int height, const unsigned char* rgba);
} fake_gl;
void fake_use_gl(const fake_gl* gl);
void fake_host_release(void* object);                     // any of them, memory by its address
void fake_host_begin_capture(struct CUstream_st* stream); // of that stream, by another thread, in global mode
bool fake_host_end_capture(struct CUstream_st* stream);   // false: somebody has spoilt it
int fake_capture_mode(void);                              // of this thread
void fake_make_current(struct CUctx_st* context);         // on this thread, under whatever is pushed later; NULL: none
struct CUctx_st* fake_current(void);                      // of this thread
// pushed and not popped on this thread, those of fake_make_current not counted
int fake_context_depth(void);

// ---- What was done --------------------------------------------------------------------------------------------------
int fake_violations(void);
// everything alive: blocks, contexts retained, streams, events, modules, graphs
long fake_held(void);
// "device", "pinned", "locked" (read-only memory of the caller's), "context", "stream", "event", "module", "graph",
// "graph exec", "cublaslt"
long fake_held_kind(const char* kind);
uint64_t fake_held_bytes(void); // device and pinned
uint64_t fake_allocation_count(void);
uint64_t fake_pinning_us(void);           // all of that time so far
uint64_t fake_calls(const char* name);    // of this entry
void fake_count_launches(bool from_zero); // true: forgets the launches so far
int fake_launch_count(void);              // kernels run, in graphs or not
uint64_t fake_launch_hash(void);          // of their names, grids and blocks, in order
int fake_graph_launches(void);
// records of events with CU_EVENT_BLOCKING_SYNC: each wakes a thread of a driver's
int fake_wakes(void);
const char* fake_last_kernel(void); // "" at first
// Called when a kernel runs (not when it is submitted), with its parameters as they lie in its parameter space; NULL:
// nobody. It must not call the driver. fake_reset takes it back.
void fake_on_launch(void (*hook)(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data),
                    void* user_data);
#endif
