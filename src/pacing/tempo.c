#include "pacing/tempo.h"
#include "base/assert.h"
#include <string.h>

#define FEWEST 8 // ratios that are needed for an estimate
// The low end: the value that all but a sixteenth of the ratios exceed. The lowest ratio alone may be an outlier; but
// where a host program computes in the same context, only an eighth of the slices were seen undisturbed.
#define LOW 16
#define MAX_APART 1.15f // the largest ratio of the median to the low end on a device that nobody else uses
// Per measurement. A step of a large model has dozens of slices of each kind, and `slowness` follows sooner.
#define MAX_RISE 1.01

// A first measurement is believed up to this multiple of its prediction. Predictions of kinds of ops that were measured
// before are seldom that wrong.
#define MAX_FIRST 1.5
#define ALIKE 1.04f // the largest ratio of two measurements that are alike
// This many in a row are believed; a model has dozens of layers. Between two kernels of the host program an empty
// kernel begins at once too, and the slice after it runs beside the second one.
#define ALIKE_COUNT 6

double sumi_tempo_first(sumi_tempo_doubt* doubt, double predicted_us, double measured_us)
{
    SUMI_ASSERT(predicted_us >= 0.0 && measured_us > 0.0 && doubt->alike_count == 0);
    if (predicted_us <= 0.0 || measured_us <= predicted_us * MAX_FIRST) return measured_us;
    *doubt = (sumi_tempo_doubt){.us = (float)measured_us, .alike_count = 1, .suspect_count = doubt->suspect_count};
    return predicted_us * MAX_FIRST;
}

double sumi_tempo_again(sumi_tempo_doubt* doubt, bool is_crowded, double known_us, double measured_us)
{
    SUMI_ASSERT(doubt->alike_count > 0 && known_us > 0.0 && measured_us > 0.0);
    const float us = (float)measured_us;
    const bool is_alike = !is_crowded && us <= doubt->us * ALIKE && doubt->us <= us * ALIKE;
    doubt->alike_count = is_alike ? doubt->alike_count + 1 : 1;
    doubt->us = us;
    const bool is_over = measured_us <= known_us || doubt->alike_count >= ALIKE_COUNT;
    if (is_over) doubt->alike_count = 0;
    return is_over ? measured_us : known_us;
}

double sumi_tempo_again_unpaced(sumi_tempo_doubt* doubt, bool is_crowded, double known_us, double measured_us)
{
    SUMI_ASSERT(doubt->alike_count > 0 && known_us > 0.0 && measured_us > 0.0);
    const double before_us = (double)doubt->us;
    const bool is_over = !is_crowded || measured_us <= known_us;
    doubt->us = (float)measured_us;
    doubt->alike_count = is_over ? 0 : 1;
    if (!is_over) return known_us;
    return measured_us < before_us ? measured_us : before_us;
}

static void estimate_slowness(sumi_tempo* tempo)
{
    SUMI_ASSERT(tempo->count >= FEWEST && tempo->count <= SUMI_TEMPO_TIMES);
    float sorted[SUMI_TEMPO_TIMES];
    const int32_t count = tempo->count;
    for (int32_t i = 0; i < count; i++) { // insertion sort, for a few dozen values
        int32_t position = i;
        for (; position > 0 && sorted[position - 1] > tempo->ratios[i]; position--)
            sorted[position] = sorted[position - 1];
        sorted[position] = tempo->ratios[i];
    }
    const float low = sorted[count / LOW], middle = sorted[count / 2],
                previous_slowness = tempo->slowness > 1.0f ? tempo->slowness : 1.0f;
    SUMI_ASSERT(low <= middle);
    tempo->is_shared = middle > MAX_APART * low;
    // work of others never makes slices shorter
    tempo->slowness = tempo->is_shared && low > previous_slowness ? previous_slowness : low > 1.0f ? low : 1.0f;
}

void sumi_tempo_note(sumi_tempo* tempo, double known_us, double measured_us)
{
    SUMI_ASSERT(known_us > 0.0 && measured_us > 0.0);
    SUMI_ASSERT(tempo->next >= 0 && tempo->next < SUMI_TEMPO_TIMES && tempo->next <= tempo->count);
    tempo->ratios[tempo->next] = (float)(measured_us / known_us);
    tempo->next = (tempo->next + 1) % SUMI_TEMPO_TIMES;
    if (tempo->count < SUMI_TEMPO_TIMES) tempo->count++;
    if (tempo->count >= FEWEST) estimate_slowness(tempo);
}

double sumi_tempo_learn(const sumi_tempo* tempo, double known_us, double measured_us)
{
    SUMI_ASSERT(known_us > 0.0 && measured_us > 0.0);
    if (measured_us < known_us) return 0.25 * known_us + 0.75 * measured_us;
    const double max_us = tempo->is_shared ? known_us : known_us * MAX_RISE;
    return measured_us < max_us ? measured_us : max_us;
}

double sumi_tempo_now_us(const sumi_tempo* tempo, double known_us)
{
    return tempo->slowness > 1.0f ? known_us * (double)tempo->slowness : known_us;
}
