// Sigma schedules of flow matching: x_sigma = sigma * noise + (1 - sigma) * clean, sigma from 1 (noise) to 0.
// Reference: diffusers FlowMatchEulerDiscreteScheduler, static shift (spec z-image.md section 6) and dynamic shift
// (qwen-image.md section 6).
#ifndef SUMI_SAMPLING_SCHEDULE_H
#define SUMI_SAMPLING_SCHEDULE_H
#include "base/result.h"

// the noise levels these models were trained on; more steps would be asked twice for the same one
#define SUMI_SCHEDULE_MAX_STEPS 1000

// sigmas[0 .. step_count], the last is 0. u_i = 1 - i/N (as torch.linspace(1, 1/N, N) in float32), sigma = shift u / (1
// + (shift - 1) u), float32.
void sumi_schedule_shifted(float shift, int32_t step_count, float* sigmas);

// Dynamic shift: how far the schedule leans to noise depends on the picture's size. mu is linear in the number of
// target image tokens, through (base_tokens, base_shift) and (max_tokens, max_shift), and goes on beyond both.
typedef enum sumi_shift_kind {
    SUMI_SHIFT_EXPONENTIAL /* shift = e^mu */,
    SUMI_SHIFT_LINEAR /* shift = mu */
} sumi_shift_kind;
typedef struct sumi_shift_rule {
    double base_shift, max_shift;
    int32_t base_tokens, max_tokens;
} sumi_shift_rule;
double sumi_schedule_mu(const sumi_shift_rule* rule, int32_t image_tokens);
// u as above (double, then float32), sigma = shift / (shift + (1/u - 1)); terminal > 0 stretches the table so that its
// last sigma before the 0 is `terminal` (one step alone stays 1, 0). mu must be positive for SUMI_SHIFT_LINEAR.
void sumi_schedule_dynamic(double mu, sumi_shift_kind kind, float terminal, int32_t step_count, float* sigmas);

// Checks a caller's table of step_count + 1 values: 1 .. SUMI_SCHEDULE_MAX_STEPS steps, finite, in [0, 1], strictly
// falling (the last may be 0 or more).
sumi_result sumi_schedule_check(const float* sigmas, int32_t step_count, sumi_error* error);
// Index of the first sigma used for image-to-image, as int(max(N - min(N * strength, N), 0)) in double; strength given
// as float is rounded to 1e-6 first so that 20 * 0.6f gives 8 (see the trap in the spec). Result may equal step_count:
// no step remains.
int32_t sumi_schedule_first_index(int32_t step_count, float strength);
#endif
