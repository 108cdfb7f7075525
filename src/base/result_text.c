// The numbers of results are in the public header. A test finds a result without a sentence.
#include "base/result_text.h"

#define RESULT_LIST(X)                                                                                                 \
    X(OK, "done")                                                                                                      \
    X(INVALID_ARGUMENT, "a value is out of range or missing: the engine's log names it")                               \
    X(DESC_NOT_INITIALIZED, "the desc was not made by its defaults function: call sumi_..._defaults() and change "     \
                            "members of what it returns")                                                              \
    X(STALE_HANDLE, "this job was fetched or discarded before, or never existed")                                      \
    X(WRONG_STATE, "this call does not fit the job's kind or its present state: poll the job; the log or "             \
                   "sumi_engine_last_error says more")                                                                 \
    X(QUEUE_FULL, "every job slot is taken: fetch or discard a job, or create the engine with a larger job_capacity")  \
    X(NOT_SUPPORTED, "this build, backend or model does not do that: the engine's log names the member")               \
    X(VERSION_MISMATCH, "the library is of another version than the header that this program was compiled with: use "  \
                        "the library that came with the program, or compile it again")                                 \
    X(BUSY,                                                                                                            \
      "the copy before it into this external has not ended, because the host program has not signalled: try again "    \
      "in a later frame")                                                                                              \
    X(OUT_OF_HOST_MEMORY, "the allocator has no memory left: free some, or use smaller sizes")                         \
    X(OUT_OF_DEVICE_MEMORY, "the device has no memory left: lower memory_budget_bytes, or use smaller sizes")          \
    X(BUDGET_TOO_SMALL,                                                                                                \
      "memory_budget_bytes cannot hold this job even in its smallest form: raise it, or use smaller sizes")            \
    X(FILE_NOT_FOUND, "a file is not there: check the path that the message names")                                    \
    X(FILE_READ_FAILED, "a file could not be read: check permissions and the disk")                                    \
    X(FILE_TRUNCATED, "a file ends before its content does: download or copy it again")                                \
    X(FILE_MALFORMED, "a file is not what it says it is: the message names the place")                                 \
    X(MODEL_UNKNOWN,                                                                                                   \
      "no supported model is in these files: give the folder or the single file of a model that this version runs")    \
    X(TENSOR_MISSING, "the checkpoint lacks a tensor that the model needs: the message names it")                      \
    X(TENSOR_MISMATCH, "a tensor has another shape or type than the model needs: the message names it")                \
    X(LORA_NO_MATCH, "the adapter was made for another model: it names layers that this one does not have")            \
    X(TEXT_INVALID, "the prompt cannot be encoded: the message says why")                                              \
    X(NO_DEVICE, "no usable device was found: choose the CPU backend")                                                 \
    X(DRIVER_TOO_OLD, "the device's driver is too old: update it, or choose the CPU backend")                          \
    X(DEVICE_UNSUPPORTED, "this device is not supported: choose another, or the CPU backend")                          \
    X(DEVICE_LOST, "the device stopped working: destroy the engine and create a new one")                              \
    X(CANCELLED, "the job was cancelled, as asked")                                                                    \
    X(TIMEOUT, "the time is over and the job goes on: wait again, or cancel it")                                       \
    X(NOT_FINITE,                                                                                                      \
      "the image holds NaN or infinity: the weights or an adapter are damaged, or a scale is far too large")           \
    X(INTERNAL, "a bug in sumi: please report the message")

const char* sumi_result_sentence(sumi_result result)
{
    switch (result) {
#define TEXT(name, text)                                                                                               \
    case SUMI_##name: return text;
        RESULT_LIST(TEXT)
#undef TEXT
    }
    return "not a result of this version of sumi";
}
