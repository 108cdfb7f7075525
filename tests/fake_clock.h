// A clock that the test turns instead of the machine: what a test says about time then holds on a machine of any speed,
// however busy it is. A test that includes this header is linked so that the library's sumi_clock_ns(), sumi_sleep_us()
// and sumi_sleep_slack_us() are these (premake5.lua); until fake_clock_begin() they are the real ones. One source of a
// program includes it.
#ifndef FAKE_CLOCK_H
#define FAKE_CLOCK_H
#include "base/platform.h"
#include <stdatomic.h>

static atomic_ullong s_clock_ns, s_clock_tick_ns; // a tick of 0: the real clock

uint64_t __real_sumi_clock_ns(void);
void __real_sumi_sleep_us(uint32_t microseconds);
uint32_t __real_sumi_sleep_slack_us(void);
uint64_t __wrap_sumi_clock_ns(void);
void __wrap_sumi_sleep_us(uint32_t microseconds);
uint32_t __wrap_sumi_sleep_slack_us(void);

// Time passes when somebody looks at the clock, so much each time (a piece of work, which is measured by two looks,
// takes one tick), when somebody sleeps, and when the test lets it.
static inline void fake_clock_begin(uint64_t tick_ns)
{
    if (atomic_load(&s_clock_tick_ns) == 0) atomic_store(&s_clock_ns, __real_sumi_clock_ns());
    atomic_store(&s_clock_tick_ns, tick_ns);
}
static inline void fake_clock_end(void) { atomic_store(&s_clock_tick_ns, 0); }
static inline void fake_clock_pass_ns(uint64_t ns) { atomic_fetch_add(&s_clock_ns, ns); }
static inline uint64_t fake_clock_now_ns(void) { return atomic_load(&s_clock_ns); } // looks without taking time

uint64_t __wrap_sumi_clock_ns(void)
{
    const uint64_t tick_ns = atomic_load(&s_clock_tick_ns);
    return tick_ns == 0 ? __real_sumi_clock_ns() : atomic_fetch_add(&s_clock_ns, tick_ns) + tick_ns;
}
void __wrap_sumi_sleep_us(uint32_t microseconds)
{
    if (atomic_load(&s_clock_tick_ns) == 0) __real_sumi_sleep_us(microseconds);
    else fake_clock_pass_ns((uint64_t)microseconds * 1000);
}
uint32_t __wrap_sumi_sleep_slack_us(void) // Linux', on every system
{
    return atomic_load(&s_clock_tick_ns) == 0 ? __real_sumi_sleep_slack_us() : 300;
}
#endif
