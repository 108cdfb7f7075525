// Schedules of sigmas for flow matching: x_sigma = sigma * noise + (1 - sigma) * clean, with sigma from 1 (noise) to 0.
// Reference: diffusers FlowMatchEulerDiscreteScheduler, with a static shift, a dynamic one, or a given mu.
#ifndef SUMI_SAMPLING_SCHEDULE_H
#define SUMI_SAMPLING_SCHEDULE_H
#include "base/result.h"

// The number of noise levels that these models were trained on. With more steps, a level would be evaluated twice.
#define SUMI_SCHEDULE_MAX_STEPS 1000
#define SUMI_SCHEDULE_MAX_LISTED 64 // levels of a model that names them one by one

// The noise levels of a model, as a rule: first a grid of numbers u that fall from about 1, then a shift, which places
// more steps at high noise, then a stretch. The table of N steps ends with a 0 that is not part of the grid.
//
//     u_i (grid) -> sigma_i = shift u_i / (1 + (shift - 1) u_i) -> 1 - (1 - sigma_i) k if terminal > 0
//
// k is the constant for which sigma_(N-1) becomes `terminal`.
typedef enum sumi_sigma_grid {
    // linspace(1, 1/N, N): diffusers with explicit sigmas, and ODE solvers with times linspace(0, 1, N + 1)
    SUMI_GRID_EVEN = 0,
    SUMI_GRID_BELOW_ONE = 1, // SUMI_GRID_EVEN * 0.999: no evaluation at pure noise (the practice with DPM-Solver)
    SUMI_GRID_TABLE = 2,     // SUMI_GRID_EVEN rounded up to multiples of 1/1000: ComfyUI's "simple"
    // linspace(1, shift(1/1000), N), which is then shifted a second time: diffusers' set_timesteps(N); for static
    // shifts
    SUMI_GRID_TWICE = 3
} sumi_sigma_grid;
typedef enum sumi_shift_kind {
    SUMI_SHIFT_STATIC = 0, // the number `shift`; computed in float32, identical to diffusers to the last bit
    // The shift depends on the picture's size: mu is linear in the number of target image tokens, through (base_tokens,
    // base_shift) and (max_tokens, max_shift), and continues linearly beyond both.
    SUMI_SHIFT_DYNAMIC = 1,
    // The shift depends on the picture's size and on the number of steps. Two lines give mu for a number of target image
    // tokens: `few` at few_steps, `many` at many_steps. Between these numbers of steps, and beyond them, mu is linear in
    // the steps. With more tokens than max_tokens `many` holds for every number of steps: mu jumps there.
    SUMI_SHIFT_EMPIRICAL = 2,
    // No grid, shift or stretch: the levels stand in `listed`, the same for every size. They fix the number of steps.
    SUMI_SHIFT_LISTED = 3
} sumi_shift_kind;
typedef enum sumi_shift_curve {
    SUMI_CURVE_EXPONENTIAL = 0 /* shift = e^mu */,
    SUMI_CURVE_LINEAR = 1 /* shift = mu */
} sumi_shift_curve;

typedef struct sumi_shift_line {
    double slope, offset; // mu = slope * tokens + offset
} sumi_shift_line;

typedef struct sumi_sigma_rule {
    sumi_shift_kind kind;
    float shift; // for STATIC
    struct {
        double base_shift, max_shift;
        int32_t base_tokens, max_tokens;
        sumi_shift_curve curve;
    } dynamic; // for DYNAMIC
    struct {
        sumi_shift_line few, many;
        int32_t few_steps, many_steps, max_tokens;
        sumi_shift_curve curve;
    } empirical; // for EMPIRICAL
    struct {
        float levels[SUMI_SCHEDULE_MAX_LISTED]; // falling, without the final 0
        int32_t count;
    } listed;       // for LISTED
    float terminal; // the last level before the final 0; 0: no stretch. With one step the levels stay 1, 0
    sumi_sigma_grid grid;
} sumi_sigma_rule;

// Fails with SUMI_INVALID_ARGUMENT and a text that says which member of the rule is invalid.
sumi_result sumi_sigma_rule_check(const sumi_sigma_rule* rule, sumi_error* error);
// The only number of steps for which the rule has a schedule; 0: it has one for every number.
int32_t sumi_sigma_rule_steps(const sumi_sigma_rule* rule);
// For a dynamic or an empirical shift. A dynamic one does not depend on the number of steps.
double sumi_sigma_rule_mu(const sumi_sigma_rule* rule, int32_t image_tokens, int32_t step_count);
// Writes sigmas[0 .. step_count] for a rule that passes the check; the last one is 0. image_tokens: tokens of the
// target image, without references. Fails with SUMI_NOT_SUPPORTED if a shift that depends on it has no value for this
// number of tokens, and if the rule has no schedule for this number of steps. Writes nothing if step_count is 0.
sumi_result sumi_schedule_write(const sumi_sigma_rule* rule, int32_t image_tokens, int32_t step_count, float* sigmas,
                                sumi_error* error);

// Checks a host program's table of step_count + 1 values: 1 .. SUMI_SCHEDULE_MAX_STEPS steps; values finite, in [0, 1],
// strictly falling. The last value may be above 0.
sumi_result sumi_schedule_check(const float* sigmas, int32_t step_count, sumi_error* error);
// Index of the first sigma that image-to-image uses: int(max(N - min(N * strength, N), 0)) in double. `strength`, a
// float, is first rounded to 1e-6, so that 20 steps with 0.6f give 8. The result may equal step_count: no step remains.
int32_t sumi_schedule_first_index(int32_t step_count, float strength);
#endif
