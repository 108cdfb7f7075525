// The pump: runs slices of jobs, inside updates and waits of the host program or on a thread of sumi.
#ifndef SUMI_ENGINE_PUMP_H
#define SUMI_ENGINE_PUMP_H
#include "base/platform.h"
#include <sumi.h>

typedef struct sumi_pump_state {
    sumi_thread thread; // of SUMI_PUMP_THREAD
    sumi_thread_start start;
    bool has_thread;
    bool is_closing; // protected by `state_lock`
} sumi_pump_state;

bool sumi_pump_start_thread(sumi_engine* engine);
void sumi_pump_stop_thread(sumi_engine* engine);
#endif
