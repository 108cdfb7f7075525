// Which evaluations of the denoiser may reuse most of an earlier one (step caching, models/block_residuals.h).
//
// Every whole evaluation measures how much the residual of its first block differs, relative to its size, from the
// residual of the whole evaluation before it: the indicator of First-Block Cache. This gives a speed, the change per
// unit of sigma. An evaluation is reused while the change since the last whole one, predicted with this speed, is below
// the threshold. First-Block Cache measures instead of predicting, and so has to wait for the first block of every
// evaluation; here the number is known long before it is needed.
//
// The rule depends only on numbers of the job, never on time, so the same job always reuses the same evaluations.
#ifndef SUMI_SAMPLING_REUSE_H
#define SUMI_SAMPLING_REUSE_H
#include <stdbool.h>
#include <stdint.h>

#define SUMI_REUSE_MOST 3 // evaluations in a row that are reused

typedef struct sumi_reuse {
    float threshold;      // 0: nothing is reused
    float whole_sigma;    // of the last whole evaluation
    float sigma_change;   // from the whole evaluation before it; 0: there is none
    double speed;         // relative change per unit of sigma; negative: not known
    int32_t reused_count; // evaluations reused since the last whole one
    bool has_whole;       // there was a whole evaluation since sumi_reuse_begin
} sumi_reuse;

// Forgets earlier evaluations. The next one has nothing to reuse.
void sumi_reuse_begin(sumi_reuse* reuse, float threshold);
// Whether an evaluation at this sigma may reuse the last whole one, whose change was measured.
bool sumi_reuse_allows(const sumi_reuse* reuse, float sigma);
// Notes that an evaluation was reused.
void sumi_reuse_note_reused(sumi_reuse* reuse);
// Notes a whole evaluation, and then its measurement: the sums of RESIDUAL_CHANGE. The first measurement has no
// meaning. A measurement at the sigma of the last whole evaluation changes nothing.
void sumi_reuse_note_whole(sumi_reuse* reuse, float sigma);
void sumi_reuse_note_change(sumi_reuse* reuse, double change, double size);
#endif
