// The control nets of a case.
#ifndef GOLDEN_CONTROL_H
#define GOLDEN_CONTROL_H
#include "golden_support.h"
#include "models/control.h"

// False: the kind is not known.
bool run_control_case(golden_case* c);

// A file beside the case. NULL after reporting. close_control accepts NULL.
sumi_control_net* open_control(golden_case* c, const sumi_network* network, const char* file);
void close_control(golden_case* c, sumi_control_net* net);

// The nets that a case names, in order. Cases that only prepare pictures may have more than a job.
#define MAX_CASE_CONTROLS 8
typedef struct case_controls {
    sumi_control_net* nets[MAX_CASE_CONTROLS];
    const node* nodes[MAX_CASE_CONTROLS];
    float strengths[MAX_CASE_CONTROLS];
    int32_t count;
} case_controls;
// False after reporting; close_controls in any case.
bool open_controls(golden_case* c, const sumi_network* network, case_controls* out);
void close_controls(golden_case* c, case_controls* controls);
// The table of strengths of a plan (sumi_planned_control.strength) for a stream of this width.
void write_strengths(plan_run* run, const case_controls* controls, sumi_value strengths, int32_t width);

// Qwen-Image's cases have latents as rows of packed patches, channel slowest; Z-Image's as planes.
bool is_packed(const golden_case* c);
array pack_planes(const float* planes, int64_t channels, int64_t height, int64_t width);
// Names a tensor that is not compared, with the reason.
void leave_out(golden_case* c, const char* tensor, const char* why);

// Of golden_control_pipeline.c: pictures and masks that become what a net reads, and whole pipelines.
void run_control_input(golden_case* c);
void run_control_pipeline(golden_case* c);
#endif
