#include "base/assert.h"
#include "cuda/device.h"
#include "cuda/driver.h"
#include "cuda/state.h"

void sumi_cuda_note_failure(sumi_cuda* cuda, CUresult result, const char* what)
{
    if (result == CUDA_SUCCESS) return;
    if (cuda->failure.result == SUMI_OK) (void)sumi_cuda_failure(&cuda->device.driver, result, what, &cuda->failure);
    if (cuda->failure.result == SUMI_DEVICE_LOST) cuda->flight_count = cuda->write_count = 0;
}

void sumi_cuda_lose_device(sumi_cuda* cuda, CUresult result)
{
    if (result == CUDA_SUCCESS || cuda->failure.result == SUMI_DEVICE_LOST) return;
    sumi_error error = {0};
    (void)sumi_cuda_failure(&cuda->device.driver, result, "waiting for the device", &error);
    cuda->failure = (sumi_error){0};
    (void)sumi_fail(&cuda->failure, SUMI_DEVICE_LOST, "%s", error.text);
    cuda->flight_count = cuda->write_count = 0;
}

sumi_result sumi_cuda_report_failure(const sumi_cuda* cuda, sumi_error* error)
{
    return cuda->failure.result == SUMI_OK ? SUMI_OK : sumi_fail_with(error, &cuda->failure);
}

sumi_result sumi_cuda_note_result(sumi_cuda* cuda, sumi_result result, const sumi_error* error)
{
    if (result == SUMI_DEVICE_LOST && cuda->failure.result != SUMI_DEVICE_LOST) {
        cuda->failure = (sumi_error){0};
        (void)sumi_fail(&cuda->failure, result, "%s",
                        error != NULL && error->result != SUMI_OK ? error->text : "the GPU is lost");
        cuda->flight_count = cuda->write_count = 0;
    }
    return result;
}

bool sumi_cuda_enter_quietly(sumi_cuda* cuda, sumi_cuda_scope* out_scope)
{
    sumi_error error = {0};
    if (sumi_cuda_enter(&cuda->device, out_scope, &error) == SUMI_OK) return true;
    if (cuda->failure.result == SUMI_OK) cuda->failure = error;
    if (error.result == SUMI_DEVICE_LOST) (void)sumi_cuda_note_result(cuda, error.result, &error);
    return false;
}

void sumi_cuda_wait_for_event(sumi_cuda* cuda, CUevent event, const char* what)
{
    const sumi_cuda_driver* driver = &cuda->device.driver;
    CUresult result = cuda->wait_event != NULL ? driver->cuEventQuery(event) : driver->cuEventSynchronize(event);
    if (result == CUDA_ERROR_NOT_READY) {
        result = driver->cuEventRecord(cuda->wait_event, cuda->device.compute);
        result = driver->cuEventSynchronize(result == CUDA_SUCCESS ? cuda->wait_event : event);
    }
    sumi_cuda_note_failure(cuda, result, what);
}

void sumi_cuda_wait_for_streams(sumi_cuda* cuda)
{
    sumi_cuda_note_failure(cuda, cuda->device.driver.cuStreamSynchronize(cuda->device.compute),
                           "waiting for the device");
    for (uint32_t i = 0; i < cuda->write_count; i++) cuda->writes[(cuda->write_first + i) % SUMI_CUDA_WRITES].end = 0;
    cuda->write_count = 0;
    // copies of streamed weights that are ahead of their use
    sumi_cuda_note_failure(cuda, cuda->device.driver.cuStreamSynchronize(cuda->device.copy), "waiting for the device");
}

void sumi_cuda_settle(sumi_cuda* cuda) { sumi_device_settle(&cuda->stock); }
