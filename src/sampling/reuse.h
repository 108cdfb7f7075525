// Which evaluations of the denoiser may reuse most of an earlier one (step caching, models/block_residuals.h).
//
// Every whole evaluation measures two numbers, relative to the size of the things they compare:
//
//   change   how much the residual of its first block differs from the whole evaluation before: the indicator of
//            First-Block Cache. It is known early, while the other blocks run.
//   error    how far its prediction is from the one that a reused evaluation would have made in its place. It is known
//            at its end, and is used when the change of the next whole evaluation is read, so that nothing waits for it.
//
// The change gives a speed: change per unit of sigma. First-Block Cache measures instead of predicting, and so has to
// wait for the first block of every evaluation; here the number is known long before it is needed. The error gives a
// ratio: error per change. h is the distance in sigma to the last whole evaluation, H the distance between the last two,
// and f the factor of the extrapolation. Then h - f H, the gap, is not extrapolated, and the predicted error is
//
//     ratio * speed * gap                                             relative to the prediction
//
// Multiplied by the length of its step in sigma it is an error of the latents. Between two whole evaluations errors have
// one direction and are added. Over different intervals they have not: their squares are added. When the whole
// evaluation at the end of an interval has measured its error, the interval counts by the errors at both of its ends.
//
// The rules depend only on numbers of the job, never on time, so the same job always reuses the same evaluations.
#ifndef SUMI_SAMPLING_REUSE_H
#define SUMI_SAMPLING_REUSE_H
#include <stdbool.h>
#include <stdint.h>

#define SUMI_REUSE_MOST 3        // evaluations in a row that are reused, unless `every` says more
#define SUMI_REUSE_MOST_DB 99.0f // no image is predicted to keep more

// One of the three is above 0; all 0: nothing is reused.
typedef struct sumi_reuse_rule {
    float threshold; // reuses while the predicted change since the last whole evaluation is below this
    float db;        // reuses while the finished image is predicted to keep this PSNR
    int32_t every;   // computes the first two evaluations and every n-th after them
} sumi_reuse_rule;
bool sumi_reuse_rule_is_on(const sumi_reuse_rule* rule);

typedef struct sumi_reuse {
    sumi_reuse_rule rule;
    float whole_sigma;    // of the last whole evaluation
    float sigma_change;   // from the whole evaluation before it; 0: there is none
    float earlier_change; // the sigma_change before this one
    float most_ahead;     // the most of a distance that is extrapolated (sumi_extrapolation)
    int32_t reused_count; // evaluations reused since the last whole one
    double speed;         // relative change per unit of sigma; negative: not known
    double gap;           // of the evaluation whose change was read last
    double ratio;         // error per change; negative: not known
    double next_ratio;    // measured by the last whole evaluation; negative: its error was not read
    // Sums over reused evaluations of gap * weight: since the last whole evaluation, and in the interval before it,
    // whose error is not known yet.
    double reach, earlier_reach;
    double earlier_rate; // error per gap at the start of that interval; negative: not known
    double variance;     // the squared error of the latents from all earlier intervals
    bool has_whole;      // there was a whole evaluation since the last sumi_reuse_begin or sumi_reuse_forget
    bool awaits_error;   // the error of the last whole evaluation was not read, and will count
    bool lacks_variance; // an interval ended whose error is not known
} sumi_reuse;

// How fast the evaluations of a job change, for predictions of its time.
typedef struct sumi_reuse_speed {
    double change;           // sumi_reuse.speed
    double error_per_change; // sumi_reuse.ratio
} sumi_reuse_speed;

// An evaluation that may be reused.
typedef struct sumi_reuse_candidate {
    float sigma;
    float weight;  // the part of its step's length in sigma for which its prediction counts
    float elapsed; // the part of the schedule's length in sigma that is over after its step, 0 .. 1
} sumi_reuse_candidate;

void sumi_reuse_begin(sumi_reuse* reuse, const sumi_reuse_rule* rule);
// Forgets earlier evaluations, but not the error that they have added: the next evaluation has nothing to reuse.
void sumi_reuse_forget(sumi_reuse* reuse, float most_ahead);
// Whether this evaluation may reuse the last whole one, whose change was measured.
bool sumi_reuse_allows(const sumi_reuse* reuse, const sumi_reuse_candidate* next);
// Notes that it was reused.
void sumi_reuse_note_reused(sumi_reuse* reuse, const sumi_reuse_candidate* next);
// Notes a whole evaluation, then the sums of its first block's change, and later those of its error. The first
// evaluation's sums have no meaning. An evaluation at the sigma of the last whole one changes neither speed nor ratio.
void sumi_reuse_note_whole(sumi_reuse* reuse, float sigma);
void sumi_reuse_note_change(sumi_reuse* reuse, double change, double size);
void sumi_reuse_note_error(sumi_reuse* reuse, double error, double size);
// Notes a change and an error that have this speed and ratio, without having measured them; negative: not known.
void sumi_reuse_assume(sumi_reuse* reuse, double speed, double ratio);
// After the last evaluation, when everything was noted: the PSNR in dB that the image is predicted to keep, up to
// SUMI_REUSE_MOST_DB. 0: not known.
float sumi_reuse_db(const sumi_reuse* reuse);
#endif
