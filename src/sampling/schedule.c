// Tables of noise levels. Values to the last bit matter here: the model's time is 1000 sigma, and one unit in the last
// place of sigma moves the finished latents by up to 4e-5.
#include "sampling/schedule.h"
#include "base/assert.h"
#include "base/fused.h"
#include <math.h>

// torch.linspace(1, 1/n, n) in float32: both halves are counted from their own end, and its multiply-add has one
// rounding.
static float linspace_down(int32_t i, int32_t n)
{
    SUMI_ASSERT(n >= 1 && i >= 0 && i < n);
    float end = (float)(1.0 / n);
    if (n == 1) return 1.0f;
    float step = (end - 1.0f) / (float)(n - 1);
    return i < n / 2 ? sumi_fmaf(step, (float)i, 1.0f) : sumi_fmaf(-step, (float)(n - 1 - i), end);
}

void sumi_schedule_shifted(float shift, int32_t step_count, float* sigmas)
{
    SUMI_ASSERT(shift > 0.0f);
    if (step_count < 1) return;
    for (int32_t i = 0; i < step_count; i++) {
        float u = linspace_down(i, step_count);
        // volatile: rounded by itself, even where the compiler would merge it with the sum
        volatile float product = (shift - 1.0f) * u;
        sigmas[i] = (shift * u) / (1.0f + product);
    }
    sigmas[step_count] = 0.0f;
}

double sumi_schedule_mu(const sumi_shift_rule* rule, int32_t image_tokens)
{
    SUMI_ASSERT(rule->max_tokens >= rule->base_tokens && image_tokens >= 0);
    if (rule->max_tokens == rule->base_tokens) return rule->base_shift;
    double slope = (rule->max_shift - rule->base_shift) / ((double)rule->max_tokens - rule->base_tokens);
    return image_tokens * slope + (rule->base_shift - slope * rule->base_tokens);
}

void sumi_schedule_dynamic(double mu, sumi_shift_kind kind, float terminal, int32_t step_count, float* sigmas)
{
    SUMI_ASSERT(kind != SUMI_SHIFT_LINEAR || mu > 0.0);
    SUMI_ASSERT(terminal < 1.0f);
    if (step_count < 1) return;
    double shift = kind == SUMI_SHIFT_EXPONENTIAL ? exp(mu) : mu;
    for (int32_t i = 0; i < step_count; i++) {
        double u = step_count == 1 ? 1.0 : 1.0 + (1.0 / step_count - 1.0) * i / (step_count - 1);
        sigmas[i] = (float)(shift / (shift + (1.0 / (float)u - 1.0)));
    }
    float last = sigmas[step_count - 1];
    if (terminal > 0.0f && last < 1.0f) { // with one step last is 1 and there is nothing to stretch
        double scale = (1.0 - terminal) / (1.0 - last);
        for (int32_t i = 0; i < step_count; i++) sigmas[i] = (float)(1.0 - (1.0 - sigmas[i]) * scale);
    }
    sigmas[step_count] = 0.0f;
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
        if (!(sigmas[i] >= 0.0f && sigmas[i] <= 1.0f)) { // refuses NaN too
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
    if (step_count < 1 || !(strength < 1.0f)) return 0; // NaN as 1: all steps
    if (strength <= 0.0f) return step_count;
    double decimal = floor((double)strength * 1e6 + 0.5) / 1e6; // 0.6f is 0.60000002384; the caller meant 0.6
    double used = step_count * decimal;
    SUMI_ASSERT(used > 0.0);
    return (int32_t)(step_count - (used < step_count ? used : step_count));
}
