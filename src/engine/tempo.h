// How fast a device works just now, from what its slices take. A slice's time is its own work and whatever others did
// between its begin and its end: another context's turn, kernels of the host's in the same context, which may be
// between any two of ours. Nobody else's work belongs into what a budget allows, so the lowest times are the ones to
// believe.
//
// But a device that slows down (it gets warm, its power is limited) must be noticed within some frames. Then all slices
// take longer, and all by about as much; what others do makes some of them longer than the rest. So the ratios of the
// latest times to the known ones are looked at together: as long as their middle is near their low end, the low end is
// the device's own; when they lie far apart it is not, and what was known holds.
#ifndef SUMI_ENGINE_TEMPO_H
#define SUMI_ENGINE_TEMPO_H
#include <stdbool.h>
#include <stdint.h>

#define SUMI_TEMPO_TIMES 32 // some frames of slices

typedef struct sumi_tempo {
    float ratios[SUMI_TEMPO_TIMES]; // a ring: of slices that ended lately, their time by what was known of it
    int32_t count, next;
    float slowness; // times of slices are so much longer just now than the known ones; at least 1, 0: not known yet
    bool is_shared; // others' work lies between ours: times say nothing but what they are at most
} sumi_tempo;

void sumi_tempo_note(sumi_tempo* tempo, double known_us, double measured_us);
// What to believe of a slice after another measurement.
double sumi_tempo_learn(const sumi_tempo* tempo, double known_us, double measured_us);
// How long something known will take just now.
double sumi_tempo_now_us(const sumi_tempo* tempo, double known_us);
#endif
