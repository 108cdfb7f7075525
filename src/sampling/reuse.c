#include "sampling/reuse.h"
#include "base/assert.h"
#include <math.h>

// The constants of the prediction, fitted to the demo model (bench.md, "Step caching").
//
// Where an extrapolation covers the whole distance, its gap is 0, but its error is not: at least this part of the
// distance counts.
#define LEAST_GAP 0.4
// How much more an error at this sigma counts than one at 0, because later evaluations follow it.
#define GROWTH(sigma) (1.0 + 2.0 * (double)(sigma) * (double)(sigma))
// The PSNR of an image whose latents have an error of 1.
#define DB_OF_WHOLE_ERROR 10.5

bool sumi_reuse_rule_is_on(const sumi_reuse_rule* rule)
{
    return rule->threshold > 0.0f || rule->db > 0.0f || rule->every > 0;
}

void sumi_reuse_begin(sumi_reuse* reuse, const sumi_reuse_rule* rule)
{
    SUMI_ASSERT(rule->threshold >= 0.0f && rule->db >= 0.0f && rule->every >= 0);
    *reuse = (sumi_reuse){.rule = *rule, .speed = -1.0, .ratio = -1.0, .next_ratio = -1.0};
}

static double square(double x) { return x * x; }

// Error per gap; negative: not known.
static double rate_of(const sumi_reuse* reuse, double ratio)
{
    return ratio >= 0.0 && reuse->speed >= 0.0 ? ratio * reuse->speed : -1.0;
}

// Adds the error of the interval that ended with the last whole evaluation to the variance, by this rate.
static void end_interval(sumi_reuse* reuse, double rate)
{
    if (reuse->earlier_reach <= 0.0) return;
    if (rate >= 0.0) reuse->variance += square(rate * reuse->earlier_reach);
    else reuse->lacks_variance = true;
    reuse->earlier_reach = 0.0;
}

void sumi_reuse_forget(sumi_reuse* reuse, float most_ahead)
{
    // Whether the error of the last whole evaluation was read depends on time, so it is not used.
    const double rate = rate_of(reuse, reuse->ratio);
    end_interval(reuse, rate);
    reuse->earlier_reach = reuse->reach;
    end_interval(reuse, rate);
    const sumi_reuse_rule rule = reuse->rule;
    const double variance = reuse->variance;
    const bool lacks_variance = reuse->lacks_variance;
    sumi_reuse_begin(reuse, &rule);
    reuse->variance = variance;
    reuse->lacks_variance = lacks_variance;
    reuse->most_ahead = most_ahead;
}

// The part of `distance` that is not extrapolated, if the last two whole evaluations were this far apart.
static double gap_over(const sumi_reuse* reuse, double distance, double between)
{
    const double factor = between > 0.0 ? fmin(distance / between, (double)reuse->most_ahead) : 0.0;
    return fmax(distance - factor * between, LEAST_GAP * distance);
}

static double distance_to(const sumi_reuse* reuse, float sigma)
{
    return fabs((double)reuse->whole_sigma - (double)sigma);
}

static double reach_with(const sumi_reuse* reuse, const sumi_reuse_candidate* next)
{
    const double gap = gap_over(reuse, distance_to(reuse, next->sigma), (double)reuse->sigma_change);
    return reuse->reach + gap * (double)next->weight * GROWTH(next->sigma);
}

static float db_of(double variance)
{
    const double db = DB_OF_WHOLE_ERROR - 10.0 * log10(variance);
    return db < (double)SUMI_REUSE_MOST_DB ? (float)fmax(db, 0.0) : SUMI_REUSE_MOST_DB;
}

// The variance may grow with the square of the elapsed part. In equal shares it would be used up by the first steps,
// where errors grow most and are predicted worst (bench.md). Unused shares remain for later steps.
static bool keeps_db(const sumi_reuse* reuse, const sumi_reuse_candidate* next)
{
    if (reuse->ratio < 0.0 || reuse->lacks_variance) return false;
    const double error = reuse->ratio * reuse->speed,
                 variance =
                     reuse->variance + square(error * reuse->earlier_reach) + square(error * reach_with(reuse, next)),
                 most = pow(10.0, 0.1 * (DB_OF_WHOLE_ERROR - (double)reuse->rule.db));
    return variance <= most * square((double)next->elapsed);
}

bool sumi_reuse_allows(const sumi_reuse* reuse, const sumi_reuse_candidate* next)
{
    const sumi_reuse_rule* rule = &reuse->rule;
    if (reuse->speed < 0.0) return false;
    if (rule->every > 0) return reuse->reused_count < rule->every - 1;
    if (reuse->reused_count >= SUMI_REUSE_MOST) return false;
    if (rule->db > 0.0f) return keeps_db(reuse, next);
    return reuse->speed * distance_to(reuse, next->sigma) < (double)rule->threshold;
}

void sumi_reuse_note_reused(sumi_reuse* reuse, const sumi_reuse_candidate* next)
{
    SUMI_ASSERT(reuse->has_whole);
    reuse->reach = reach_with(reuse, next);
    reuse->reused_count++;
}

void sumi_reuse_note_whole(sumi_reuse* reuse, float sigma)
{
    reuse->earlier_change = reuse->sigma_change;
    reuse->sigma_change = reuse->has_whole ? fabsf(reuse->whole_sigma - sigma) : 0.0f;
    reuse->whole_sigma = sigma;
    reuse->has_whole = true;
    reuse->reused_count = 0;
}

// The rate over an interval, from the rates at both ends: the geometric mean in which the end, where the error was
// measured over the same distance, counts three times.
static double mean_rate(double start, double end)
{
    return start > 0.0 && end >= 0.0 ? sqrt(end * sqrt(start * end)) : end;
}

// Takes over the ratio that the evaluation before this one has measured. `speed` is still from there too.
static void use_next_ratio(sumi_reuse* reuse)
{
    const bool is_known = reuse->next_ratio >= 0.0;
    if (is_known) reuse->ratio = reuse->next_ratio;
    reuse->next_ratio = -1.0;
    const double rate = rate_of(reuse, reuse->ratio);
    end_interval(reuse, is_known ? mean_rate(reuse->earlier_rate, rate) : rate);
    reuse->earlier_reach = reuse->reach;
    reuse->earlier_rate = rate;
    reuse->reach = 0.0;
}

void sumi_reuse_note_change(sumi_reuse* reuse, double change, double size)
{
    SUMI_ASSERT(reuse->has_whole);
    reuse->awaits_error = false;
    if (reuse->sigma_change <= 0.0f) return;
    use_next_ratio(reuse);
    const double speed = change / size / (double)reuse->sigma_change;
    reuse->speed = size > 0.0 && isfinite(speed) ? speed : -1.0;
    // The next evaluation may be noted before the error of this one is read.
    reuse->gap = gap_over(reuse, (double)reuse->sigma_change, (double)reuse->earlier_change);
    reuse->awaits_error = reuse->speed > 0.0;
}

void sumi_reuse_note_error(sumi_reuse* reuse, double error, double size)
{
    if (!reuse->awaits_error) return;
    reuse->awaits_error = false;
    const double ratio = error / size / (reuse->speed * reuse->gap);
    reuse->next_ratio = size > 0.0 && isfinite(ratio) ? ratio : -1.0;
}

void sumi_reuse_assume(sumi_reuse* reuse, double speed, double ratio)
{
    if (reuse->sigma_change <= 0.0f) return;
    use_next_ratio(reuse);
    reuse->speed = speed;
    reuse->next_ratio = ratio;
}

float sumi_reuse_db(const sumi_reuse* reuse)
{
    sumi_reuse end = *reuse;
    use_next_ratio(&end);
    end_interval(&end, end.earlier_rate);
    return end.lacks_variance ? 0.0f : db_of(end.variance);
}
