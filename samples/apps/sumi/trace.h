// Writes a trace in Chrome's format (chrome://tracing, ui.perfetto.dev): the calls of this program, the engine's work
// in these calls, and the slices on a GPU.
#ifndef TRACE_H
#define TRACE_H
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sumi.h>

typedef struct trace_writer {
    const char* path; // NULL: nothing is written
    char part[1200];  // path of the file while it is being written
    FILE* file;
    uint64_t begin_ns;
    bool has_events;
} trace_writer;

// Returns false when the file cannot be created; message as in files.h. path NULL: no trace is written.
bool trace_open(trace_writer* trace, const char* path, char* message);
sumi_tracer trace_tracer(trace_writer* trace); // for sumi_engine_desc
// Adds a call of this program; times as system_clock_ns returns them.
void trace_call(trace_writer* trace, const char* name, uint64_t begin_ns, uint64_t end_ns);
bool trace_close(trace_writer* trace, char* message);
#endif
