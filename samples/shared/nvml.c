#include "nvml.h"
#include "system.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#define LIBRARY "nvml.dll"
#else
#define LIBRARY "libnvidia-ml.so.1"
#endif

// As in nvml.h; every function returns 0 when it succeeds.
enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_CHIP = 0 };
struct nvml_card {
    void *library, *device;
    int (*init)(void);
    int (*shutdown)(void);
    int (*driver_version)(char* into, unsigned bytes);
    int (*by_uuid)(const char* uuid, void** out_device);
    int (*clock)(void* device, int kind, unsigned* out_mhz);
    int (*most_clock)(void* device, int kind, unsigned* out_mhz);
    int (*power_limit)(void* device, unsigned* out_mw);
    int (*power)(void* device, unsigned* out_mw);
    int (*temperature)(void* device, int sensor, unsigned* out_celsius);
};

static bool find_entries(nvml_card* card)
{
    const struct {
        const char* name;
        void* entry;
    } entries[] = {
        {"nvmlInit_v2", &card->init},
        {"nvmlShutdown", &card->shutdown},
        {"nvmlSystemGetDriverVersion", &card->driver_version},
        {"nvmlDeviceGetHandleByUUID", &card->by_uuid},
        {"nvmlDeviceGetClockInfo", &card->clock},
        {"nvmlDeviceGetMaxClockInfo", &card->most_clock},
        {"nvmlDeviceGetEnforcedPowerLimit", &card->power_limit},
        {"nvmlDeviceGetPowerUsage", &card->power},
        {"nvmlDeviceGetTemperature", &card->temperature},
    };
    bool has_all = true;
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void* found = system_library_find(card->library, entries[i].name);
        memcpy(entries[i].entry, &found, sizeof found);
        has_all = has_all && found;
    }
    return has_all;
}

// "GPU-01234567-89ab-cdef-0123-456789abcdef"
static void write_uuid(const uint8_t uuid[16], char into[48])
{
    int used = snprintf(into, 48, "GPU-");
    for (int i = 0; i < 16; i++)
        used += snprintf(into + used, 48 - (size_t)used, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
                         uuid[i]);
}

nvml_card* nvml_open(const uint8_t uuid[16], const char** out_why)
{
    char name[48];
    nvml_card* card = calloc(1, sizeof *card);
    *out_why = "there is no memory";
    if (!card) return NULL;
    card->library = system_library_open(LIBRARY);
    *out_why = "there is no " LIBRARY;
    if (!card->library) return free(card), NULL;
    *out_why = "this " LIBRARY " lacks a function or does not start";
    if (!find_entries(card) || card->init() != 0) return system_library_close(card->library), free(card), NULL;
    write_uuid(uuid, name);
    *out_why = LIBRARY " does not know this card";
    if (card->by_uuid(name, &card->device) == 0) return card;
    nvml_close(card);
    return NULL;
}

void nvml_close(nvml_card* card)
{
    if (!card) return;
    card->shutdown();
    system_library_close(card->library);
    free(card);
}

static unsigned ask(int (*entry)(void* device, unsigned* out), void* device)
{
    unsigned value = 0;
    return entry(device, &value) == 0 ? value : 0;
}
static unsigned ask_kind(int (*entry)(void* device, int kind, unsigned* out), void* device, int kind)
{
    unsigned value = 0;
    return entry(device, kind, &value) == 0 ? value : 0;
}

nvml_facts nvml_read(const nvml_card* card)
{
    nvml_facts facts = {.driver = ""};
    if (!card) return facts;
    if (card->driver_version(facts.driver, sizeof facts.driver) != 0) facts.driver[0] = 0;
    facts.power_limit_mw = ask(card->power_limit, card->device);
    facts.most_sm_mhz = ask_kind(card->most_clock, card->device, CLOCK_SM);
    facts.most_memory_mhz = ask_kind(card->most_clock, card->device, CLOCK_MEMORY);
    facts.sm_mhz = ask_kind(card->clock, card->device, CLOCK_SM);
    facts.memory_mhz = ask_kind(card->clock, card->device, CLOCK_MEMORY);
    facts.power_mw = ask(card->power, card->device);
    facts.celsius = ask_kind(card->temperature, card->device, SENSOR_CHIP);
    return facts;
}
