#include "sampling/presets.h"

// One row per model and preset, in the order of sumi_preset. Shift stays the checkpoint's own: Turbo ships 3, Base 6,
// and a finetune may ship another.
//
// Turbo is distilled for 8 evaluations without guidance; 4 still give a readable picture, and above 8 only the last
// jump gets finer: sigma ends
// 0.30 -> 0 with 8 steps, 0.21 -> 0 with 12, for 1.5 times the work. It was never trained to gain from more, so quality
// stops there. It stays with Euler, the solver of its distillation: a step is not a small one, and a second-order
// correction of it is not what it learnt.
//
// Base is an ordinary flow: its authors say 28 to 50 steps, guidance 3 to 5, normalisation on for realistic and off for
// stylised pictures. 16 steps are few enough that a second-order solver pays, and DPM-Solver++ 2M costs no further
// evaluation.
sumi_preset_values sumi_preset_get(sumi_preset_model model, sumi_preset preset)
{
    static const sumi_preset_values values[SUMI_PRESET_MODEL_COUNT][4] =
        {
            [SUMI_PRESET_Z_IMAGE_TURBO] =
                {
                    [SUMI_PRESET_MODEL] = {1024, 1024, 8, 0.0f, false, 0.0f, 1.0f, 0.0f, SUMI_SOLVER_EULER},
                    [SUMI_PRESET_PREVIEW] = {768, 768, 4, 0.0f, false, 0.0f, 1.0f, 0.0f, SUMI_SOLVER_EULER},
                    [SUMI_PRESET_STANDARD] = {1024, 1024, 8, 0.0f, false, 0.0f, 1.0f, 0.0f, SUMI_SOLVER_EULER},
                    [SUMI_PRESET_QUALITY] = {1024, 1024, 12, 0.0f, false, 0.0f, 1.0f, 0.0f, SUMI_SOLVER_EULER},
                },
            [SUMI_PRESET_Z_IMAGE_BASE] =
                {
                    [SUMI_PRESET_MODEL] = {1024, 1024, 50, 4.0f, true, 0.0f, 1.0f, 0.0f, SUMI_SOLVER_EULER},
                    [SUMI_PRESET_PREVIEW] = {768, 768, 16, 4.0f, true, 0.0f, 1.0f, 0.0f, SUMI_SOLVER_DPMPP_2M},
                    [SUMI_PRESET_STANDARD] = {1024, 1024, 28, 4.0f, true, 0.0f, 1.0f, 0.0f, SUMI_SOLVER_EULER},
                    [SUMI_PRESET_QUALITY] = {1024, 1024, 50, 4.0f, true, 1.0f, 1.0f, 0.0f, SUMI_SOLVER_EULER},
                },
        };
    int row = (int)model, column = (int)preset; // either may come from a host's cast
    if (row < 0 || row >= SUMI_PRESET_MODEL_COUNT) row = SUMI_PRESET_Z_IMAGE_TURBO;
    if (column < 0 || column > SUMI_PRESET_QUALITY) column = SUMI_PRESET_MODEL;
    return values[row][column];
}

int32_t sumi_deadline_steps(double seconds_per_evaluation, double fixed_seconds, double deadline_seconds,
                            int32_t min_steps, int32_t max_steps, double evaluations_per_step)
{
    if (max_steps < min_steps) max_steps = min_steps;
    const double per_step = seconds_per_evaluation * evaluations_per_step;
    if (!(deadline_seconds > 0.0) || !(per_step > 0.0 && per_step < 1e18)) return max_steps;
    double left = deadline_seconds - (fixed_seconds > 0.0 ? fixed_seconds : 0.0);
    double steps = left / per_step * (1.0 + 1e-9); // a quotient that should be whole may fall just below
    if (!(steps > min_steps)) return min_steps;
    if (steps >= max_steps) return max_steps;
    return (int32_t)steps;
}
