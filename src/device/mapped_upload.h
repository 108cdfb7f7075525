// Uploads weights straight from the mapping of their file, without a copy in pinned memory:
//
//   this thread   | lock a | lock b | unlock a, lock c | ..
//   the device             | copy a | copy b           | copy c
//
// With one worker thread 20 GB take 2.4 s this way, and 5.7 s through pinned memory; with four threads 2.3 and 2.1,
// with 16 2.4 and 1.0 (H100). So this is for engines with one thread, which is the default. Locking reads pages that
// are not in the page cache, tens of megabytes at a time, so it is for calls without a budget, and for large weights
// whose bytes are those of the file.
#ifndef SUMI_DEVICE_MAPPED_UPLOAD_H
#define SUMI_DEVICE_MAPPED_UPLOAD_H
#include "device/port.h"
#include <stdbool.h>
#include <stdint.h>

struct sumi_device_weights;
struct sumi_device_resident;

enum { SUMI_DEVICE_MAPPED_COPIES = 16 };

// A copy under way.
typedef struct sumi_device_mapped_upload_copy {
    int32_t resident;
    uint64_t bytes;
    sumi_device_event* event; // made when it is needed first, and kept until the upload is closed
} sumi_device_mapped_upload_copy;

typedef struct sumi_device_mapped_upload {
    sumi_device_mapped_upload_copy copies[SUMI_DEVICE_MAPPED_COPIES];
    int32_t first, count;
    uint64_t bytes;  // of the copies under way
    int32_t locking; // index + 1 of the resident whose pages are being locked; 0: none
} sumi_device_mapped_upload;

// Whether a weight is uploaded this way, if none of it was sent yet. Ask again once it has memory on the device.
bool sumi_device_mapped_upload_takes(const struct sumi_device_weights* weights, int32_t resident);
// Locks the next pages of the weight, and submits its copy once all are locked. Waits for older copies if many are
// under way. *out_sent: the copy was submitted. If the device refuses to lock, no further weight is uploaded this way.
sumi_result sumi_device_mapped_upload_step(struct sumi_device_weights* weights, int32_t resident, uint64_t until_ns,
                                           bool* out_sent, sumi_error* error);
// Unlocks the pages of copies that have ended, and waits for the others until the time is over.
sumi_result sumi_device_mapped_upload_finish(struct sumi_device_weights* weights, uint64_t until_ns, bool* out_done,
                                             sumi_error* error);
// Unlocks everything. The copies must have ended, or the device is lost.
void sumi_device_mapped_upload_close(struct sumi_device_weights* weights);
#endif
