// A CUDA driver that needs no GPU, so that the host side of the backend is tested everywhere. Device memory is host
// memory, copies and fills are done, and kernels do nothing except that their launch is checked against their PTX
// (parameters, block size, shared memory). A test that includes this header is linked with the fake driver
// (premake5.lua). Its soname is libcuda.so.1, so the backend finds it instead of a real driver.
//
// It checks the rules of sumi and of CUDA. A violation is printed and counted by fake_violations():
//   no current context, or one popped twice; handles that are dead or of another kind; the NULL stream; blocking streams
//   allocating, loading or waiting while this thread captures; capturing in global mode
//   a call while the thread's capture mode is not relaxed. Such a call may break a capture of the host program; CUDA has no
//     list of the calls that do, so all count except cuInit and those for the driver's version and names
//   copies and fills outside of live memory; kernels that are given an address of freed memory; launches that their PTX
//     does not allow; copies of pageable host memory
// And it is a management library (libnvidia-ml.so.1), which knows the first device: driver 580.1, a limit of 450 W, clocks of
// 1980 MHz at most and 1410 now; the power in use is not told.
#ifndef SUMI_FAKE_CUDA_H
#define SUMI_FAKE_CUDA_H
#include <stdbool.h>
#include <stdint.h>

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;

// Resets the driver: one device of 9.0 with 1 GiB, driver 13.0, every call succeeds, everything is done at once, all
// counts are zero. Live objects stay alive and counted.
void fake_reset(void);

// ---- The device and the driver --------------------------------------------------------------------------------------
// Up to 4 devices, all alike. Byte i of the uuid of device d is 16 * d + i, byte i of its luid 8 * d + i + 1.
void fake_devices(int count, int capability);
void fake_multiprocessors(int count);   // of each; 0: 132 of 9.0, 84 of others
void fake_driver_version(int version);  // 13000 for 13.0; entries of newer ABIs are missing
void fake_lack_nvml(bool on);           // the management library does not start; fake_reset() leaves this alone
void fake_lack_entry(const char* name); // this entry is missing; NULL: none is. The name must stay valid
// cuGetProcAddress_v2 fails, so that only exported names can be found, as before CUDA 12.
void fake_old_lookup(bool on);
// false: modules of machine code are refused, as by an older driver. False at first, because only PTX shows the
// parameters of a kernel.
void fake_take_binaries(bool on);
// Whether read-only memory, such as a mapped file, can be page-locked. True at first.
void fake_lock_read_only(bool on);
// Whether the driver has cuLinkCreate and its like, by which several threads compile PTX at once. False at first: PTX is
// then compiled while a model is loaded, one image after the other.
void fake_has_linker(bool on);
// So many images are linked from now on; others wait in cuLinkComplete until more are allowed. Negative: all, as at
// first.
void fake_allow_links(int count);
void fake_newest_ptx(int version);            // 90 for PTX 9.0; newer PTX is refused
void fake_limit_device_bytes(uint64_t bytes); // 0: as much as the device has
void fake_device_bytes(uint64_t bytes);       // memory of the device; 0: a gigabyte

// ---- Failures and times ---------------------------------------------------------------------------------------------
// The n-th call of this entry from now on returns `code`, once; 1: the next call. 0 cancels the request. Returns whether
// the failure requested before has happened.
bool fake_fail_call(const char* name, int nth, int code);
bool fake_fail_allocation(int nth); // the same for any allocation, of device or pinned memory: out of memory
// From now on everything that needs the context fails with CUDA_ERROR_ILLEGAL_ADDRESS.
void fake_lose_device(void);
void fake_refuse_graphs(bool on); // captures cannot be begun
// 0: all work is done when it is submitted. n: it is done when somebody waits for it, or when an event after it, or its
// stream, was queried n times.
void fake_complete_after(int queries);
// The clock for the times below. It must stay valid. NULL: the system's clock, as after fake_reset.
typedef struct fake_clock {
    uint64_t (*now_ns)(void);
    void (*pass_ns)(uint64_t ns);
} fake_clock;
void fake_use_clock(const fake_clock* clock);
// The time of each kernel by that clock; events after it have then passed. 0 at first. Only with
// fake_complete_after(0).
void fake_kernels_take(int us);
// The time of each call of the driver, which passes inside the call. 0 at first.
void fake_calls_take(int ns);
// The time of pinning and of unpinning a MiB, which passes inside the call. 0 at first.
void fake_pinning_takes(int us);
void fake_finish(void); // everything that was submitted is done now
// The times of kernels by the device's clock, over and over. The list must stay valid. NULL: 0.01 each.
void fake_kernel_times(const double* ms, int count);
// The host program submits a kernel of a higher priority that keeps the device busy for this time, by the device's
// clock. Kernels begin after it; what is no kernel, such as records of events in an idle stream, does not wait.
void fake_host_computes(double ms);
// Kernels of the host program keep the device busy beside ours: every empty kernel (kernels/empty.cu) waits so long for
// a place. It takes 0.003 ms itself, and is in no count of launches. 0 at first.
void fake_crowd(double ms);
// Bytes of device memory that the driver keeps for itself, for each object that is alive. 0 at first.
void fake_keeps(uint64_t context_bytes, uint64_t module_bytes, uint64_t graph_bytes);
void fake_fill_new_memory(int byte); // the content of new memory; 0 at first

// ---- Objects of the host program ------------------------------------------------------------------------------------
// A context of the host program on this device, to be released with fake_host_release.
struct CUctx_st* fake_host_context(int device);
struct CUstream_st* fake_host_stream(struct CUctx_st* context);
struct CUevent_st* fake_host_event(void);          // never recorded
uint64_t fake_host_memory(uint64_t bytes);         // device memory; the test may read its bytes
bool fake_event_is_done(struct CUevent_st* event); // recorded and reached; the query does not complete any work
void fake_gl_current(bool on);                   // whether the host program's OpenGL context is current on this thread
void fake_gl_device(int ordinal);                // the GPU of this thread's contexts; 0 at first
unsigned fake_gl_texture(int width, int height); // returns the texture's name; 0: there are no more
unsigned fake_gl_half_texture(int width, int height);  // GL_RGBA16F
unsigned fake_gl_depth_texture(int width, int height); // GL_R32F
unsigned fake_gl_buffer(int bytes);
const unsigned char* fake_gl_pixels(unsigned texture);
void fake_gl_release(unsigned texture); // a violation while CUDA has the texture registered
// A real OpenGL instead of these textures. It is called on the thread that makes the CUDA call, and
// cuGraphicsUnmapResources writes its textures. It must stay valid; fake_reset keeps it. NULL: none.
typedef struct fake_gl {
    bool (*is_current)(void);
    bool (*get_size)(unsigned texture, int* width, int* height); // false: there is no such texture with RGBA8 storage
    void (*write)(unsigned texture, int width, int height, const unsigned char* rgba);
} fake_gl;
void fake_use_gl(const fake_gl* gl);
// Memory and semaphores of Vulkan and Direct3D. `type` is CUDA's of the handle. Each import of a file descriptor takes
// it; handles stay. Returns a number from 1 on. What CUDA is told must agree: type, size, whether it is dedicated.
int fake_shared_memory(int type, uint64_t bytes, bool is_dedicated);
int fake_shared_semaphore(int type);    // with the value 0
int fake_shared_descriptor(int shared); // a new one
void* fake_shared_handle(int shared);
const unsigned char* fake_shared_bytes(int shared);
uint64_t fake_shared_value(int shared);
void fake_shared_signal(int shared, uint64_t value); // by the host program
// Sets a function that is called when CUDA signals a semaphore, at its turn. NULL: none. It must not call the driver.
void fake_on_signal(void (*hook)(int shared, void* user_data), void* user_data);
int fake_shared_imports(int shared);        // how many CUDA has now
bool fake_shared_is_attachment(int shared); // it was mapped as an image with that flag
void fake_shared_release(int shared);       // by the host program; a violation while CUDA has it
void fake_host_release(void* object);       // any of these objects; memory by its address
// begins a capture of that stream by another thread, in global mode
void fake_host_begin_capture(struct CUstream_st* stream);
bool fake_host_end_capture(struct CUstream_st* stream); // false: a call has broken the capture
int fake_capture_mode(void);                            // of this thread
void fake_make_current(struct CUctx_st* context); // on this thread, below everything that is pushed later; NULL: none
struct CUctx_st* fake_current(void);              // of this thread
// Contexts that were pushed and not popped on this thread, without those of fake_make_current.
int fake_context_depth(void);

// ---- What was done --------------------------------------------------------------------------------------------------
int fake_violations(void);
// Everything that is alive: blocks, contexts retained, streams, events, modules, graphs.
long fake_held(void);
// "device", "pinned", "locked" (read-only memory of the caller's), "context", "stream", "event", "module", "graph",
// "graph exec"
long fake_held_kind(const char* kind);
uint64_t fake_held_bytes(void); // of device memory and pinned memory
uint64_t fake_allocation_count(void);
uint64_t fake_pinning_us(void);        // the time spent in pinning and unpinning so far
uint64_t fake_calls(const char* name); // calls of this entry
// Modules that were loaded, of machine code or of PTX for this capability. 0: for any
int fake_images(int capability, bool is_binary);
void fake_count_launches(bool from_zero); // true: forgets the launches so far
int fake_launch_count(void);              // kernels that were run, in graphs or not
uint64_t fake_launch_hash(void);          // of their names, grids and blocks, in order
int fake_graph_launches(void);
// How often the driver has taken memory for more graphs, in pieces for 42 graphs that are alive together. It keeps these
// pieces. A real driver waits for everything that runs in the context before it takes one.
int fake_graph_pieces(void);
// Records of events with CU_EVENT_BLOCKING_SYNC, each of which wakes a thread of a real driver.
int fake_wakes(void);
const char* fake_last_kernel(void); // "" at first
// Sets a function that is told every call from now on: a line with its entry, what it was given and made and its result,
// then an indented line for each piece of work that it submitted. Objects are named by their kind and a number, which
// begins at 1 again. Not in it: what was given to cuGetErrorName and cuGetErrorString, and what calls return besides
// their result. It must not call the driver. NULL: none, as after fake_reset().
void fake_on_call(void (*hook)(const char* line, void* user_data), void* user_data);
// Sets a function that is called when a kernel runs (not when it is submitted), with its parameters as in its parameter
// space. NULL: none. It must not call the driver. fake_reset removes it.
void fake_on_launch(void (*hook)(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data),
                    void* user_data);
#endif
