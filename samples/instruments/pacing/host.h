// What renders beside sumi: a fixed load per frame, on the same GPU. Frames are numbered by a slot of a small ring, as
// a game has resources per frame in flight.
#ifndef HOST_H
#define HOST_H
#include <stdbool.h>
#include <stdint.h>

#define FRAMES_IN_FLIGHT 2

struct CUctx_st;
typedef struct host host;
struct host {
    char device[256];         // what renders
    struct CUctx_st* context; // where sumi shall work; NULL: where it likes
    // per frame, in units of the host's own; changed by calibrating
    double work;
    bool counts_ms; // the unit is a millisecond: nothing to calibrate
    // a frame's commands and what tells their end; does not wait
    void (*submit)(host* h, int32_t slot);
    bool (*finished)(host* h, int32_t slot); // without waiting
    void (*destroy)(host* h);
};

// Each opens a host, or returns NULL and writes why.
host* host_open_none(char why[256]); // an imaginary GPU of its own: frames end after their time, whatever else happens
host* host_open_gl(char why[256]);   // off-screen OpenGL through EGL
host* host_open_cuda(char why[256]); // kernels in the context that sumi works in, in a stream of the highest priority

// Sets `work` so that a frame takes load_ms where nothing else runs: frames back to back, by the clock, which is GPU
// time when the GPU is what they wait for.
// Returns the time that a frame takes then.
double host_calibrate(host* h, double load_ms);
double seconds_now(void);
void sleep_until(double seconds);
#endif
