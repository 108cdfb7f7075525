// Sigma schedules of flow matching: x_sigma = sigma * noise + (1 - sigma) * clean, sigma from 1 (noise) to 0.
// Reference: diffusers FlowMatchEulerDiscreteScheduler, with static and with dynamic shift.
#ifndef SUMI_SAMPLING_SCHEDULE_H
#define SUMI_SAMPLING_SCHEDULE_H
#include "base/result.h"

// the noise levels these models were trained on; more steps would be asked twice for the same one
#define SUMI_SCHEDULE_MAX_STEPS 1000

// How a model wants its noise levels, as data. First a grid of u falling from about 1, then a shift that spends more
// steps at high noise, then a stretch; the table of N steps ends with a 0 of its own.
//
//     u_i (grid)  ->  sigma_i = shift u / (1 + (shift - 1) u)  ->  terminal > 0: 1 - (1 - sigma_i) k, so that sigma_(N-1) = terminal
typedef enum sumi_sigma_grid {
    // linspace(1, 1/N, N): diffusers with explicit sigmas, and an ODE solver's linspace(0, 1, N + 1) of time
    SUMI_GRID_EVEN = 0,
    SUMI_GRID_BELOW_ONE = 1, // 0.999 times that: it never asks for pure noise (as DPM-Solver is used)
    SUMI_GRID_TABLE = 2,     // the same rounded up to a whole 1/1000: ComfyUI's "simple"
    // linspace(1, shift(1/1000), N), which is shifted again: diffusers' set_timesteps(N). Of a static shift
    SUMI_GRID_TWICE = 3
} sumi_sigma_grid;
typedef enum sumi_shift_kind {
    SUMI_SHIFT_STATIC = 0, // `shift`; in float32 to the last bit of diffusers
    // follows the picture's size: mu is linear in the number of target image tokens, through (base_tokens, base_shift)
    // and (max_tokens, max_shift), and goes on beyond both
    SUMI_SHIFT_DYNAMIC = 1
} sumi_shift_kind;
typedef enum sumi_shift_curve {
    SUMI_CURVE_EXPONENTIAL = 0 /* shift = e^mu */,
    SUMI_CURVE_LINEAR = 1 /* shift = mu */
} sumi_shift_curve;

typedef struct sumi_sigma_rule {
    sumi_shift_kind kind;
    float shift; // STATIC
    struct {
        double base_shift, max_shift;
        int32_t base_tokens, max_tokens;
        sumi_shift_curve curve;
    } dynamic;      // DYNAMIC
    float terminal; // the last noise level before the 0; 0: no stretch. One step alone stays 1, 0
    sumi_sigma_grid grid;
} sumi_sigma_rule;

// SUMI_INVALID_ARGUMENT says which member of the rule cannot be.
sumi_result sumi_sigma_rule_check(const sumi_sigma_rule* rule, sumi_error* error);
double sumi_sigma_rule_mu(const sumi_sigma_rule* rule, int32_t image_tokens); // of a dynamic shift
// Writes sigmas[0 .. step_count] for a rule that passes the check; the last is 0. image_tokens: of the picture that is
// made, references not counted. SUMI_NOT_SUPPORTED: a dynamic shift gives nothing for so many tokens. No step: writes
// nothing.
sumi_result sumi_schedule_write(const sumi_sigma_rule* rule, int32_t image_tokens, int32_t step_count, float* sigmas,
                                sumi_error* error);

// Checks a caller's table of step_count + 1 values: 1 .. SUMI_SCHEDULE_MAX_STEPS steps, finite, in [0, 1], strictly
// falling (the last may be 0 or more).
sumi_result sumi_schedule_check(const float* sigmas, int32_t step_count, sumi_error* error);
// Index of the first sigma used for image-to-image, as int(max(N - min(N * strength, N), 0)) in double; strength given
// as float is rounded to 1e-6 first so that 20 * 0.6f gives 8 (see the trap in the spec). Result may equal step_count:
// no step remains.
int32_t sumi_schedule_first_index(int32_t step_count, float strength);
#endif
