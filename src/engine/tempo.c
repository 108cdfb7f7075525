#include "engine/tempo.h"
#include "base/assert.h"
#include <string.h>

#define FEWEST 8 // ratios that say something together
// the low end: all but a sixteenth are above. The lowest may be a freak; but where a host computes in the same context,
// no more than an eighth was seen to be undisturbed
#define LOW 16
#define MAX_APART 1.15f // of the middle to the low end on a device that nobody else computes on
// per measurement: a step of a large model has dozens of each kind of slice, and the slowness follows sooner
#define MAX_RISE 1.01

static void look(sumi_tempo* tempo)
{
    SUMI_ASSERT(tempo->count >= FEWEST && tempo->count <= SUMI_TEMPO_TIMES);
    float sorted[SUMI_TEMPO_TIMES];
    const int32_t count = tempo->count;
    for (int32_t i = 0; i < count; i++) { // by insertion: a few dozen
        int32_t at = i;
        for (; at > 0 && sorted[at - 1] > tempo->ratios[i]; at--) sorted[at] = sorted[at - 1];
        sorted[at] = tempo->ratios[i];
    }
    const float low = sorted[count / LOW], middle = sorted[count / 2],
                known = tempo->slowness > 1.0f ? tempo->slowness : 1.0f;
    SUMI_ASSERT(low <= middle);
    tempo->is_shared = middle > MAX_APART * low;
    // what others take away is never negative
    tempo->slowness = tempo->is_shared && low > known ? known : low > 1.0f ? low : 1.0f;
}

void sumi_tempo_note(sumi_tempo* tempo, double known_us, double measured_us)
{
    SUMI_ASSERT(known_us > 0.0 && measured_us > 0.0);
    SUMI_ASSERT(tempo->next >= 0 && tempo->next < SUMI_TEMPO_TIMES && tempo->next <= tempo->count);
    tempo->ratios[tempo->next] = (float)(measured_us / known_us);
    tempo->next = (tempo->next + 1) % SUMI_TEMPO_TIMES;
    if (tempo->count < SUMI_TEMPO_TIMES) tempo->count++;
    if (tempo->count >= FEWEST) look(tempo);
}

double sumi_tempo_learn(const sumi_tempo* tempo, double known_us, double measured_us)
{
    SUMI_ASSERT(known_us > 0.0 && measured_us > 0.0);
    if (measured_us < known_us) return 0.25 * known_us + 0.75 * measured_us;
    const double most = tempo->is_shared ? known_us : known_us * MAX_RISE;
    return measured_us < most ? measured_us : most;
}

double sumi_tempo_now_us(const sumi_tempo* tempo, double known_us)
{
    return tempo->slowness > 1.0f ? known_us * (double)tempo->slowness : known_us;
}
