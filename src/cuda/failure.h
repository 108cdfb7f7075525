// Failures of calls that cannot report them, and waiting for the device.
#ifndef SUMI_CUDA_FAILURE_H
#define SUMI_CUDA_FAILURE_H
#include "cuda/state.h"

// Keeps the failure of a driver call for later. After a lost device nothing is in flight any more.
void sumi_cuda_keep_failure(sumi_cuda* cuda, CUresult result, const char* what);
// A failed question to an event means that nothing that was sent will ever be reported.
void sumi_cuda_lose_device(sumi_cuda* cuda, CUresult result);
sumi_result sumi_cuda_kept_failure(const sumi_cuda* cuda, sumi_error* error);
// What a call returns: a lost device is remembered.
sumi_result sumi_cuda_note_result(sumi_cuda* cuda, sumi_result result, const sumi_error* error);
// The context, for calls that cannot fail aloud.
bool sumi_cuda_enter_quietly(sumi_cuda* cuda, sumi_cuda_scope* out_scope);
// Memory must not go while the device may still touch it. Nothing runs when memory goes, but the last copies may be
// in flight.
void sumi_cuda_settle(sumi_cuda* cuda);
#endif
