// Measures a network of random weights on this machine, through the public header alone: how long loading, a text, a
// step, a decoding and a picture take, and the memory, for one format of weights after the other and within a limit of
// time. Prints nothing.
#ifndef MEASURE_H
#define MEASURE_H
#include "synthetic.h"

#define MEASURE_SIDES 2
#define MEASURE_FORMATS 5 // the most rows
#define MEASURE_TEXT_BYTES 512

typedef struct measure_desc {
    const synthetic_config* network;
    sumi_backend backend;
    int32_t thread_count;         // of the CPU backend; 0: every core
    int32_t sides[MEASURE_SIDES]; // of the square images, in pixels, ascending
    int32_t step_count;
    int32_t token_count; // of the text
    // The limit for everything. What cannot be cut short may exceed it: a driver that compiles kernels, once.
    double seconds;
    uint64_t (*clock_ns)(void);
    // All may be NULL. `tell` is told what begins, for a display of progress. `under_load` is called once for each
    // format, while a picture of the largest size is drawn that is not counted.
    void (*tell)(int32_t row, const char* doing, void* user_data);
    void (*under_load)(int32_t row, void* user_data);
    bool (*is_cancelled)(void* user_data);
    void* user_data;
} measure_desc;

// Z-Image's steps, 512 and 1024 pixels, 128 tokens, two minutes, the system's clock.
measure_desc measure_defaults(const synthetic_config* network, sumi_backend backend);

// What an engine says of its device before anything is loaded.
typedef struct measure_device {
    char name[256], backend[16];
    int32_t compute_capability, driver_version; // as in sumi_engine_info
    uint64_t device_bytes, free_bytes;          // 0 on the CPU
    uint8_t uuid[16];
    double start_seconds; // of creating the engine, the first one of the process
} measure_device;
// On failure `why` has a sentence.
sumi_result measure_look(const measure_desc* desc, measure_device* out, char why[MEASURE_TEXT_BYTES]);

// About how many bytes of device memory a format takes for the largest image, the text encoder in the same format.
uint64_t measure_need(const measure_desc* desc, sumi_weight_format weights);
// Writes the formats that the device computes and whose need is free, or the smallest one where none is. On the CPU it
// is AUTO alone. Returns their number.
int32_t measure_choose(const measure_desc* desc, const measure_device* device,
                       sumi_weight_format into[MEASURE_FORMATS]);

typedef struct measure_values {
    double median, low, high; // seconds; one run in ten is below `low`, one in ten above `high`
    int32_t count;            // of runs; 0: not measured
} measure_values;

typedef struct measure_row {
    sumi_weight_format weights; // of the transformer and of the text encoder
    // SUMI_OK, or why the row is not whole; SUMI_TIMEOUT: the limit of time. `note` then has a sentence, and where
    // something was left out that would have taken too long.
    sumi_result result;
    char note[2 * MEASURE_TEXT_BYTES];
    double load_seconds;    // from creating the engine to the end of the first text; 0: it did not come so far
    double compile_seconds; // of the driver, which compiled kernels
    measure_values text;    // from the submission to the end
    struct {
        measure_values step, decode; // seconds of work; on a GPU by the device's clock
        measure_values picture;      // from the submission to the end, its text encoded before
    } sides[MEASURE_SIDES];
    uint64_t weight_bytes, streamed_bytes; // for the largest image, as in sumi_memory
    uint64_t memory_bytes;                 // the most that sumi had allocated: device memory, or host memory on the CPU
} measure_row;

// Measures each format, into a row of its own; a failure of one is told in its row, and the next one is measured. Rows
// whose turn did not come are not written. Returns the number of rows written. SUMI_CANCELLED in the last one:
// is_cancelled() said so.
int32_t measure_all(const measure_desc* desc, const sumi_weight_format* formats, int32_t format_count,
                    measure_row* rows);
#endif
