#ifndef SUMI_ENGINE_LORAS_H
#define SUMI_ENGINE_LORAS_H
#include <sumi.h>

// Removes the adapter's weights from the device and closes its file. The caller holds the pump lock.
void sumi_lora_close(sumi_lora* lora);
void sumi_lora_free(sumi_lora* lora); // the caller holds the pump lock
#endif
