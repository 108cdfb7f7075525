// The management library of the fake driver (libnvidia-ml.so.1, nvml.dll): it knows the devices by their uuids, and one clock.
#include "fake_state.h"
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static atomic_bool s_is_absent;

void fake_lack_nvml(bool on) { atomic_store(&s_is_absent, on); }

enum { NOT_FOUND = 6, NOT_SUPPORTED = 3 };
int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlSystemGetDriverVersion(char* into, unsigned bytes);
int nvmlDeviceGetHandleByUUID(const char* uuid, void** out_device);
int nvmlDeviceGetClockInfo(void* device, int kind, unsigned* out_mhz);
int nvmlDeviceGetMaxClockInfo(void* device, int kind, unsigned* out_mhz);
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* out_mw);
int nvmlDeviceGetPowerUsage(void* device, unsigned* out_mw);
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* out_celsius);

int nvmlInit_v2(void) { return atomic_load(&s_is_absent) ? NOT_FOUND : 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char* into, unsigned bytes)
{
    snprintf(into, bytes, "580.1");
    return 0;
}
int nvmlDeviceGetHandleByUUID(const char* uuid, void** out_device)
{
    static int s_first_device;
    *out_device = &s_first_device;
    return strcmp(uuid, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f") == 0 ? 0 : NOT_FOUND;
}
int nvmlDeviceGetClockInfo(void* device, int kind, unsigned* out_mhz)
{
    (void)device;
    *out_mhz = kind == 1 ? 1410 : 2600;
    return 0;
}
int nvmlDeviceGetMaxClockInfo(void* device, int kind, unsigned* out_mhz)
{
    (void)device;
    *out_mhz = kind == 1 ? 1980 : 2619;
    return 0;
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* out_mw)
{
    (void)device;
    *out_mw = 450000;
    return 0;
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* out_mw)
{
    (void)device;
    *out_mw = 0;
    return NOT_SUPPORTED;
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* out_celsius)
{
    (void)device;
    *out_celsius = sensor == 0 ? 61 : 0;
    return 0;
}
