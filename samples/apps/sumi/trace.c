#include "trace.h"
#include "files.h"
#include "progress.h"
#include "system.h"
#include <errno.h>
#include <string.h>

enum { TRACK_CALLS = 1, TRACK_WORK = 2, TRACK_DEVICE = 3 }; // thread ids; viewers order tracks by them

static void begin_event(trace_writer* trace)
{
    fputs(trace->has_events ? ",\n" : "\n", trace->file);
    trace->has_events = true;
}

static void name_track(trace_writer* trace, int track, const char* name)
{
    begin_event(trace);
    fprintf(trace->file, "{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":\"%s\"}}",
            track, name);
}

// Most names are identifiers of sumi, but names from a checkpoint may contain any character.
static void write_name(trace_writer* trace, const char* name)
{
    for (; *name; name++) fputc(*name == '"' || *name == '\\' || (unsigned char)*name < ' ' ? '_' : *name, trace->file);
}

static void write_event(trace_writer* trace, int track, const char* name, const char* category, uint64_t begin_ns,
                        uint64_t end_ns)
{
    const uint64_t begin = begin_ns > trace->begin_ns ? begin_ns - trace->begin_ns : 0,
                   length = end_ns > begin_ns ? end_ns - begin_ns : 0;
    begin_event(trace);
    fputs("{\"name\":\"", trace->file);
    write_name(trace, name);
    fprintf(trace->file, "\",\"cat\":\"%s\",\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f", category,
            track, 1e-3 * (double)begin, 1e-3 * (double)length);
}

static void write_span(const sumi_trace_span* span, void* user_data)
{
    trace_writer* trace = user_data;
    write_event(trace, span->track == SUMI_TRACK_DEVICE ? TRACK_DEVICE : TRACK_WORK, span->name,
                progress_stage_name(span->stage), span->begin_ns, span->end_ns);
    if (span->step >= 0) fprintf(trace->file, ",\"args\":{\"step\":%d}", span->step + 1);
    fputc('}', trace->file);
}

void trace_call(trace_writer* trace, const char* name, uint64_t begin_ns, uint64_t end_ns)
{
    if (!trace->file) return;
    write_event(trace, TRACK_CALLS, name, "call", begin_ns, end_ns);
    fputc('}', trace->file);
}

bool trace_open(trace_writer* trace, const char* path, char* message)
{
    *trace = (trace_writer){.path = path};
    if (!path) return true;
    output_path(path, trace->part, sizeof trace->part);
    trace->file = system_open(trace->part, "wb");
    if (!trace->file) {
        snprintf(message, FILES_MESSAGE_BYTES, "cannot write %s: %s", path, strerror(errno));
        return false;
    }
    trace->begin_ns = system_clock_ns();
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", trace->file);
    name_track(trace, TRACK_CALLS, "calls");
    name_track(trace, TRACK_WORK, "work");
    name_track(trace, TRACK_DEVICE, "GPU");
    return true;
}

sumi_tracer trace_tracer(trace_writer* trace)
{
    return trace->file ? (sumi_tracer){write_span, trace} : (sumi_tracer){NULL, NULL};
}

bool trace_close(trace_writer* trace, char* message)
{
    if (!trace->file) return true;
    fputs("\n]}\n", trace->file);
    bool written = !ferror(trace->file);
    written = fclose(trace->file) == 0 && written;
    trace->file = NULL;
    if (!written)
        snprintf(message, FILES_MESSAGE_BYTES, "%s could not be written whole: is the disk full?", trace->path);
    return output_finish(trace->path, trace->part, written, message);
}
