// What NVIDIA's management library tells of a card: driver, clocks, power. The library (libnvidia-ml.so.1, nvml.dll) comes
// with the driver and is opened by name.
#ifndef NVML_H
#define NVML_H
#include <stdbool.h>
#include <stdint.h>

typedef struct nvml_card nvml_card;

// Opens the library and finds a card by its uuid (sumi_engine_info.device_uuid). NULL: there is no library, or it does not
// know the card; *out_why is then a static sentence.
nvml_card* nvml_open(const uint8_t uuid[16], const char** out_why);
void nvml_close(nvml_card* card); // accepts NULL

// 0, or "", where the library does not tell.
typedef struct nvml_facts {
    char driver[96];                       // "580.159.04"
    unsigned power_limit_mw;               // that is in force
    unsigned most_sm_mhz, most_memory_mhz; // that the card allows
    unsigned sm_mhz, memory_mhz, power_mw; // now
    unsigned celsius;                      // of the chip, now
} nvml_facts;
nvml_facts nvml_read(const nvml_card* card); // all zero for NULL
#endif
