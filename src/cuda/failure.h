// Failures in calls that cannot report them, and waiting for the device.
#ifndef SUMI_CUDA_FAILURE_H
#define SUMI_CUDA_FAILURE_H
#include "cuda/state.h"

// Notes the failure of a driver call, to be reported later. After a lost device nothing is in flight any more.
void sumi_cuda_note_failure(sumi_cuda* cuda, CUresult result, const char* what);
// Called when the query of an event fails: the device is lost, and the ends of slices in flight will not be reported.
void sumi_cuda_lose_device(sumi_cuda* cuda, CUresult result);
// Returns the failure that was noted, if any.
sumi_result sumi_cuda_report_failure(const sumi_cuda* cuda, sumi_error* error);
// Returns `result`, and remembers a lost device.
sumi_result sumi_cuda_note_result(sumi_cuda* cuda, sumi_result result, const sumi_error* error);
// Enters the context, in functions that cannot report a failure.
bool sumi_cuda_enter_quietly(sumi_cuda* cuda, sumi_cuda_scope* out_scope);
// Waits until both streams have ended. sumi_device_settle does more, and calls it.
void sumi_cuda_wait_for_streams(sumi_cuda* cuda);
// Waits until the device has finished. Called before memory is freed: no slice may be running then, but copies may
// still be in flight.
void sumi_cuda_settle(sumi_cuda* cuda);
#endif
