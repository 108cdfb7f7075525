// Estimates the current speed of a device from the times of slices. The time of a slice is its own work plus whatever
// other work ran between its beginning and its end: the time slice of another context, or kernels of the host program
// in the same context. The work of others must not count against a budget, so the lowest times are the ones to use.
//
// A device that becomes slower (heat, power limit) must be noticed within a few frames. Then all slices take longer by
// about the same factor, while the work of others makes only some slices longer. So the ratios of recent times to known
// times are judged together: if their median is near their low end, the low end is the device's own speed; if they are
// far apart, the known times are kept.
#ifndef SUMI_PACING_TEMPO_H
#define SUMI_PACING_TEMPO_H
#include <stdbool.h>
#include <stdint.h>

#define SUMI_TEMPO_TIMES 32 // the slices of some frames

typedef struct sumi_tempo {
    float ratios[SUMI_TEMPO_TIMES]; // of recent slices: time / known time. A ring buffer
    int32_t count, next;
    float slowness; // the current time of slices / their known times, at least 1; 0: not known yet
    bool is_shared; // other work runs between the slices, so their times are only upper bounds
} sumi_tempo;

// The first measurement of a slice has no known time to be compared with, only a prediction. Beside a host program
// whose kernels keep the device busy while ours run, every slice may look several times as long as it is. If that were
// believed, fewer slices would fit into a frame, all of them would run beside these kernels, and no better time would
// ever be measured. So a first time far above its prediction is doubted: less is believed, until several times in a row
// are alike, as on a device that nobody else uses. Kernels of the host program that are as long as ours make our times
// alike too, because each of ours waits for the end of one of theirs (H100: 640 to 651 us instead of 431, 1025 to 1036
// instead of 458). So an empty kernel is launched before each slice whose time is not known, and the time counts only
// if that kernel began at once.
typedef struct sumi_tempo_doubt {
    float us;              // the newest measurement
    int32_t alike_count;   // how many in a row were alike; 0: no doubt
    int32_t suspect_count; // how many in a row may contain a wait for commands of the host program
} sumi_tempo_doubt;

// If a job measures a slice less often than this, its time is believed at once: nothing would end the doubt.
#define SUMI_TEMPO_FEWEST_REPEATS 8

// How much of a first measurement is believed.
double sumi_tempo_first(sumi_tempo_doubt* doubt, double predicted_us, double measured_us);
// Called instead of the functions below while there is a doubt. Returns the time to believe after another measurement:
// known_us, or the measured time, which is then no longer doubted. is_crowded: kernels of others kept the device busy
// when the slice began.
double sumi_tempo_again(sumi_tempo_doubt* doubt, bool is_crowded, double known_us, double measured_us);
// The same where no call has a budget: the least of two measurements in a row is believed, however far they are apart.
// Times of short slices vary by more than alike ones may, and a doubt that never ends would keep all slices of that
// kind from being submitted in groups.
double sumi_tempo_again_unpaced(sumi_tempo_doubt* doubt, bool is_crowded, double known_us, double measured_us);

void sumi_tempo_note(sumi_tempo* tempo, double known_us, double measured_us);
// The new estimate for a slice after another measurement.
double sumi_tempo_learn(const sumi_tempo* tempo, double known_us, double measured_us);
// The predicted current time of work whose known time is known_us.
double sumi_tempo_now_us(const sumi_tempo* tempo, double known_us);
#endif
