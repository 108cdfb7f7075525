// The CPU backend: float32 arithmetic on weights in the type of their file. The reference against which every other
// backend is tested.
#ifndef SUMI_CPU_CPU_H
#define SUMI_CPU_CPU_H
#include "base/workers.h"
#include "plan/runner.h"

typedef enum sumi_cpu_level { SUMI_CPU_AUTO, SUMI_CPU_PORTABLE, SUMI_CPU_AVX2, SUMI_CPU_AVX512 } sumi_cpu_level;
// Whether the compiler optimised this room. If not, the runner's device text says so.
extern const bool sumi_cpu_is_optimized;
// workers must outlive the runner. SUMI_CPU_AUTO picks the best level that this CPU has; tests force the others.
sumi_result sumi_cpu_create(sumi_heap* heap, sumi_workers* workers, sumi_cpu_level level, sumi_error* error,
                            sumi_runner** out_runner);
#endif
