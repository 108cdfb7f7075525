// Tables of noise levels. They must match the references to the last bit: the model's timestep is 1000 sigma, and one
// unit in the last place of sigma changes the finished latents by up to 4e-5.
#include "sampling/schedule.h"
#include "base/assert.h"
#include "base/numbers.h"
#include <math.h>
#include <string.h>

// torch.linspace(1, 1/n, n) in float32: each half is counted from its own end, and the multiply-add is rounded once.
static float linspace_down(int32_t i, int32_t n)
{
    SUMI_ASSERT(n >= 1 && i >= 0 && i < n);
    float end = (float)(1.0 / n);
    if (n == 1) return 1.0f;
    float step = (end - 1.0f) / (float)(n - 1);
    return i < n / 2 ? sumi_fmaf(step, (float)i, 1.0f) : sumi_fmaf(-step, (float)(n - 1 - i), end);
}

static float shifted(float shift, float u)
{
    // volatile: rounded on its own, even if the compiler would contract product and sum
    volatile float product = (shift - 1.0f) * u;
    return (shift * u) / (1.0f + product);
}

// Element i of a grid of n elements. Only SUMI_GRID_EVEN is exact to the last bit: for the other grids the references
// themselves differ in it.
static float grid_value(const sumi_sigma_rule* rule, int32_t i, int32_t n)
{
    const double even = 1.0 - (double)i / n;
    switch (rule->grid) {
    case SUMI_GRID_BELOW_ONE: return (float)(0.999 * even);
    case SUMI_GRID_TABLE: return (float)((1000 - (int32_t)((int64_t)i * 1000 / n)) / 1000.0);
    case SUMI_GRID_TWICE: {
        const double end = (double)shifted(rule->shift, 0.001f);
        return n == 1 ? 1.0f : (float)(1.0 + (end - 1.0) * i / (n - 1));
    }
    default: return linspace_down(i, n);
    }
}

#define MAX_SHIFT 1e6 // above this, consecutive levels are the same float

static sumi_shift_curve curve_of(const sumi_sigma_rule* rule)
{
    return rule->kind == SUMI_SHIFT_EMPIRICAL ? rule->empirical.curve : rule->dynamic.curve;
}

static bool is_line(sumi_shift_line line) { return fabs(line.slope) <= MAX_SHIFT && fabs(line.offset) <= MAX_SHIFT; }

static sumi_result check_empirical(const sumi_sigma_rule* rule, sumi_error* error)
{
    const int32_t few = rule->empirical.few_steps, many = rule->empirical.many_steps;
    if (few < 1 || many <= few)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "the shift goes from %d to %d steps: give rising numbers above 0", (int)few, (int)many);
    if (rule->empirical.max_tokens < 0)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "the shift depends on the steps up to %d image tokens: give a number that is not negative",
                         (int)rule->empirical.max_tokens);
    if (is_line(rule->empirical.few) && is_line(rule->empirical.many)) return SUMI_OK;
    return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                     "the lines of the shift are %g tokens + %g and %g tokens + %g: give numbers up to %g",
                     rule->empirical.few.slope, rule->empirical.few.offset, rule->empirical.many.slope,
                     rule->empirical.many.offset, MAX_SHIFT);
}

static sumi_result check_listed(const sumi_sigma_rule* rule, sumi_error* error)
{
    const int32_t count = rule->listed.count;
    if (count < 1 || count > SUMI_SCHEDULE_MAX_LISTED)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "%d sigmas are listed: give 1 to %d", (int)count,
                         SUMI_SCHEDULE_MAX_LISTED);
    for (int32_t i = 0; i < count; i++) {
        const float level = rule->listed.levels[i], before = i > 0 ? rule->listed.levels[i - 1] : 2.0f;
        if (level > 0.0f && level <= 1.0f && level < before) continue;
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "sigma %d of the list is %g: give falling numbers from at most 1 to above 0", (int)i,
                         (double)level);
    }
    return SUMI_OK;
}

sumi_result sumi_sigma_rule_check(const sumi_sigma_rule* rule, sumi_error* error)
{
    if ((int)rule->kind < 0 || (int)rule->kind > SUMI_SHIFT_LISTED)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "the kind of shift is %d: give a static, a dynamic or an empirical one, or listed sigmas",
                         (int)rule->kind);
    if (rule->kind == SUMI_SHIFT_LISTED) return check_listed(rule, error);
    if ((int)rule->grid < 0 || (int)rule->grid > SUMI_GRID_TWICE)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "the grid of sigmas is %d: no such grid", (int)rule->grid);
    if (!(rule->terminal >= 0.0f && rule->terminal < 1.0f))
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "the terminal sigma is %g: give 0 (none) to below 1",
                         (double)rule->terminal);
    if (rule->kind == SUMI_SHIFT_STATIC) {
        if (rule->shift > 0.0f && (double)rule->shift <= MAX_SHIFT) return SUMI_OK;
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "the shift is %g: give a positive number up to %g",
                         (double)rule->shift, MAX_SHIFT);
    }
    if (rule->grid == SUMI_GRID_TWICE)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "a grid that is shifted twice needs a static shift");
    const sumi_shift_curve curve = curve_of(rule);
    if ((int)curve < 0 || (int)curve > SUMI_CURVE_LINEAR)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "the curve of the shift is %d: give exponential or linear",
                         (int)curve);
    if (rule->kind == SUMI_SHIFT_EMPIRICAL) return check_empirical(rule, error);
    if (rule->dynamic.base_tokens < 0 || rule->dynamic.max_tokens < rule->dynamic.base_tokens)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "the shift goes from %d to %d image tokens: give rising numbers that are not negative",
                         (int)rule->dynamic.base_tokens, (int)rule->dynamic.max_tokens);
    if (!(fabs(rule->dynamic.base_shift) <= MAX_SHIFT) || !(fabs(rule->dynamic.max_shift) <= MAX_SHIFT))
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "the shift goes from %g to %g: give numbers up to %g",
                         rule->dynamic.base_shift, rule->dynamic.max_shift, MAX_SHIFT);
    return SUMI_OK;
}

static double empirical_mu(const sumi_sigma_rule* rule, int32_t image_tokens, int32_t step_count)
{
    const sumi_shift_line few = rule->empirical.few, many = rule->empirical.many;
    const double at_many = many.slope * image_tokens + many.offset, at_few = few.slope * image_tokens + few.offset;
    if (image_tokens > rule->empirical.max_tokens) return at_many;
    const double slope = (at_many - at_few) / (rule->empirical.many_steps - rule->empirical.few_steps);
    return slope * step_count + (at_many - rule->empirical.many_steps * slope);
}

int32_t sumi_sigma_rule_steps(const sumi_sigma_rule* rule)
{
    return rule->kind == SUMI_SHIFT_LISTED ? rule->listed.count : 0;
}

double sumi_sigma_rule_mu(const sumi_sigma_rule* rule, int32_t image_tokens, int32_t step_count)
{
    SUMI_ASSERT(rule->kind == SUMI_SHIFT_DYNAMIC || rule->kind == SUMI_SHIFT_EMPIRICAL);
    SUMI_ASSERT(image_tokens >= 0 && step_count >= 1);
    if (rule->kind == SUMI_SHIFT_EMPIRICAL) return empirical_mu(rule, image_tokens, step_count);
    SUMI_ASSERT(rule->dynamic.max_tokens >= rule->dynamic.base_tokens);
    const double low = rule->dynamic.base_shift, tokens = rule->dynamic.base_tokens;
    if (rule->dynamic.max_tokens == rule->dynamic.base_tokens) return low;
    const double slope = (rule->dynamic.max_shift - low) / ((double)rule->dynamic.max_tokens - tokens);
    return image_tokens * slope + (low - slope * tokens);
}

sumi_result sumi_schedule_write(const sumi_sigma_rule* rule, int32_t image_tokens, int32_t step_count, float* sigmas,
                                sumi_error* error)
{
    SUMI_ASSERT(sumi_sigma_rule_check(rule, NULL) == SUMI_OK);
    if (step_count < 1) return SUMI_OK;
    if (rule->kind == SUMI_SHIFT_LISTED) {
        if (step_count != rule->listed.count) {
            return sumi_fail(error, SUMI_NOT_SUPPORTED,
                             "the model has a schedule for %d steps, and none for %d: give that many, or shift or "
                             "sigmas",
                             (int)rule->listed.count, (int)step_count);
        }
        memcpy(sigmas, rule->listed.levels, (size_t)step_count * sizeof *sigmas);
        sigmas[step_count] = 0.0f;
        return SUMI_OK;
    }
    double shift = 0.0;
    if (rule->kind != SUMI_SHIFT_STATIC) {
        const double mu = sumi_sigma_rule_mu(rule, image_tokens, step_count);
        shift = curve_of(rule) == SUMI_CURVE_EXPONENTIAL ? exp(mu) : mu;
        if (!(shift > 1.0 / MAX_SHIFT && shift <= MAX_SHIFT)) {
            return sumi_fail(error, SUMI_NOT_SUPPORTED,
                             "the model's schedule has a shift of %g for %d image tokens: use another image size, or "
                             "give shift or sigmas",
                             shift, (int)image_tokens);
        }
    }
    for (int32_t i = 0; i < step_count; i++) {
        if (rule->kind == SUMI_SHIFT_STATIC) {
            sigmas[i] = shifted(rule->shift, grid_value(rule, i, step_count));
            continue;
        }
        // the grid in double, then rounded to float32
        float u = grid_value(rule, i, step_count);
        if (rule->grid == SUMI_GRID_EVEN && step_count > 1)
            u = (float)(1.0 + (1.0 / step_count - 1.0) * i / (step_count - 1));
        sigmas[i] = (float)(shift / (shift + (1.0 / (double)u - 1.0)));
    }
    const float terminal = rule->terminal, last = sigmas[step_count - 1];
    if (terminal > 0.0f && last < 1.0f) { // with one step `last` is 1, and there is nothing to stretch
        const double scale = (1.0 - (double)terminal) / (1.0 - (double)last);
        for (int32_t i = 0; i < step_count; i++) sigmas[i] = (float)(1.0 - (1.0 - (double)sigmas[i]) * scale);
    }
    sigmas[step_count] = 0.0f;
    return SUMI_OK;
}

sumi_result sumi_schedule_check(const float* sigmas, int32_t step_count, sumi_error* error)
{
    if (sigmas == NULL)
        return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                         "sigmas is NULL: give step_count + 1 values, or leave the schedule to the model");
    if (step_count < 1 || step_count > SUMI_SCHEDULE_MAX_STEPS) {
        return sumi_fail(error, SUMI_INVALID_ARGUMENT, "step_count is %d: give 1 to %d", (int)step_count,
                         SUMI_SCHEDULE_MAX_STEPS);
    }
    for (int32_t i = 0; i <= step_count; i++) {
        if (!(sigmas[i] >= 0.0f && sigmas[i] <= 1.0f)) { // false for NaN too
            return sumi_fail(error, SUMI_INVALID_ARGUMENT, "sigmas[%d] is %g: every noise level lies between 0 and 1",
                             (int)i, (double)sigmas[i]);
        }
        if (i > 0 && !(sigmas[i] < sigmas[i - 1])) {
            return sumi_fail(error, SUMI_INVALID_ARGUMENT,
                             "sigmas[%d] is %g after %g: noise levels must fall from step to step", (int)i,
                             (double)sigmas[i], (double)sigmas[i - 1]);
        }
    }
    return SUMI_OK;
}

int32_t sumi_schedule_first_index(int32_t step_count, float strength)
{
    if (step_count < 1 || !(strength < 1.0f)) return 0; // NaN counts as 1: all steps
    if (strength <= 0.0f) return step_count;
    double decimal = floor((double)strength * 1e6 + 0.5) / 1e6; // 0.6f is 0.60000002384; 0.6 was meant
    double used = step_count * decimal;
    SUMI_ASSERT(used >= 0.0); // 0 for a strength below a millionth
    return (int32_t)(step_count - (used < step_count ? used : step_count));
}
