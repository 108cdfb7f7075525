#include "device/mapped_upload.h"
#include "base/assert.h"
#include "base/platform.h"
#include "device/pinned_copies.h"
#include "device/residency.h"
#include "device/weight_forms.h"

#define LEAST_BYTES (1u << 20)  // a smaller weight is copied with its neighbours
#define MOST_BYTES (1ull << 30) // of copies under way, whose pages are locked

bool sumi_device_mapped_upload_takes(const sumi_device_weights* weights, int32_t index)
{
    const sumi_device_resident* resident = &weights->residents[index];
    if (weights->mapped_upload.locking == index + 1) return true;
    return !weights->is_paced && sumi_workers_count(weights->workers) == 1 && resident->rows_sent == 0
        && resident->bytes >= LEAST_BYTES && !resident->has_pinned_copy && resident->chunks == 0
        && (sumi_device_traits(resident->form)->keeps_bytes || resident->on_device.data == 0
            || resident->on_device.pitch == resident->weight->cols)
        && sumi_device_streams_mapped(weights, resident->weight, resident->form);
}

static void unlock(sumi_device_weights* weights, int32_t index)
{
    sumi_device_resident* resident = &weights->residents[index];
    sumi_device_mapped_unlock(&weights->mapped, resident->weight, &resident->chunks, INT32_MAX);
}

// Waits for the oldest copy, and unlocks its pages.
static sumi_result end_oldest(sumi_device_weights* weights, sumi_error* error)
{
    sumi_device_mapped_upload* upload = &weights->mapped_upload;
    SUMI_ASSERT(upload->count > 0);
    const sumi_device_mapped_upload_copy* copy = &upload->copies[upload->first];
    sumi_device_port* port = weights->port;
    SUMI_TRY(port->functions->wait(port, copy->event, "copying weights to the device", error));
    unlock(weights, copy->resident);
    upload->bytes -= copy->bytes;
    upload->first = (upload->first + 1) % SUMI_DEVICE_MAPPED_COPIES;
    upload->count--;
    return SUMI_OK;
}

static sumi_result submit_copy(sumi_device_weights* weights, int32_t index, sumi_error* error)
{
    sumi_device_port* port = weights->port;
    sumi_device_mapped_upload* upload = &weights->mapped_upload;
    sumi_device_resident* resident = &weights->residents[index];
    while (upload->count == SUMI_DEVICE_MAPPED_COPIES
           || (upload->count > 0 && upload->bytes + resident->bytes > MOST_BYTES))
        SUMI_TRY(end_oldest(weights, error));
    sumi_device_mapped_upload_copy* copy = &upload->copies[(upload->first + upload->count) % SUMI_DEVICE_MAPPED_COPIES];
    if (copy->event == NULL) SUMI_TRY(port->functions->make_event(port, true, &copy->event, error));
    SUMI_TRY(sumi_device_mapped_copy(&weights->mapped, resident->weight, sumi_device_traits(resident->form)->is_gated,
                                     resident->on_device.data, error));
    SUMI_TRY(
        port->functions->record(port, copy->event, SUMI_DEVICE_STREAM_COPIES, "copying weights to the device", error));
    copy->resident = index;
    copy->bytes = resident->bytes;
    upload->bytes += resident->bytes;
    upload->count++;
    resident->rows_sent = resident->weight->rows;
    return SUMI_OK;
}

sumi_result sumi_device_mapped_upload_step(sumi_device_weights* weights, int32_t index, uint64_t until_ns,
                                           bool* out_sent, sumi_error* error)
{
    sumi_device_resident* resident = &weights->residents[index];
    bool is_locked = false;
    *out_sent = false;
    weights->mapped_upload.locking = index + 1;
    SUMI_TRY(
        sumi_device_mapped_lock(&weights->mapped, resident->weight, &resident->chunks, until_ns, &is_locked, error));
    if (!weights->mapped.is_supported) { // the weight is uploaded the other way
        unlock(weights, index);
        weights->mapped_upload.locking = 0;
        return SUMI_OK;
    }
    if (!is_locked) return SUMI_OK;
    SUMI_TRY(submit_copy(weights, index, error));
    weights->mapped_upload.locking = 0;
    *out_sent = true;
    return SUMI_OK;
}

sumi_result sumi_device_mapped_upload_finish(sumi_device_weights* weights, uint64_t until_ns, bool* out_done,
                                             sumi_error* error)
{
    sumi_device_mapped_upload* upload = &weights->mapped_upload;
    sumi_device_port* port = weights->port;
    *out_done = false;
    while (upload->count > 0) {
        if (sumi_clock_ns() >= until_ns) {
            bool has_passed = false;
            SUMI_TRY(port->functions->query(port, upload->copies[upload->first].event, &has_passed,
                                            "copying weights to the device", error));
            if (!has_passed) return SUMI_OK;
        }
        SUMI_TRY(end_oldest(weights, error));
    }
    *out_done = true;
    return SUMI_OK;
}

void sumi_device_mapped_upload_close(sumi_device_weights* weights)
{
    sumi_device_mapped_upload* upload = &weights->mapped_upload;
    for (; upload->count > 0; upload->count--) {
        unlock(weights, upload->copies[upload->first].resident);
        upload->first = (upload->first + 1) % SUMI_DEVICE_MAPPED_COPIES;
    }
    if (upload->locking > 0) unlock(weights, upload->locking - 1);
    for (int32_t i = 0; i < SUMI_DEVICE_MAPPED_COPIES; i++) {
        if (upload->copies[i].event != NULL)
            weights->port->functions->destroy_event(weights->port, upload->copies[i].event);
    }
    *upload = (sumi_device_mapped_upload){.count = 0};
}
