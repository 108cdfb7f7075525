// ODE solvers as tables. Every network evaluation e is followed by one linear update of three latent-sized states: the
// point x where the network is evaluated next, the base y of the running step, and one history h. v is the velocity d x
// / d sigma at the evaluation.
//
//     x' = cx x + cy y + cv v + ch h        y' = keeps ? y : x'        h' = hx x + hv v + hh h      (all right-hand sides: values before the update)
//
// So a solver is a table of rows, the device code is one kernel, and a captured graph is right for every step of every
// solver. Before the first row y = x and h = 0 (its first use is multiplied by 0: any finite value will do). Where
// blend_sigma >= 0 the kept region is put into x' before y' takes it; h' never sees the blend.
//   Euler           x' = x + d v                                                   1 evaluation a step
//   Heun            x' = x + d v, h' = v | x' = y + d/2 v + d/2 h                  2 (1 in the last step, when sigma' = 0 is Euler, as diffusers / k-diffusion do)
//   midpoint        x' = x + d/2 v       | x' = y + d v                            2
//   Heun full       as Heun, with the second evaluation at sigma = 0 too           2
//   RK4             Kutta's 3/8 rule                                               4
//   res_multistep   exponential 2-step method on the data estimate, in ln sigma    1 (first step and sigma' = 0: Euler)
//   DPM-Solver++2M  x' = a x + b x0 + c h, x0 = x - sigma v, h' = x0               1 (first step and sigma' = 0: first order). Lu et al. 2022, in the flow's half-log-SNR
#ifndef SUMI_SAMPLING_SOLVER_H
#define SUMI_SAMPLING_SOLVER_H
#include "base/result.h"

typedef struct sumi_solver_row {
    float cx, cy, cv, ch, hx, hv, hh;
    float keeps; // 1: y stays (inside a step), 0: y becomes x'
    float sigma; // where the network is evaluated
    // inpainting: after this row the kept region is put back at this noise level; negative: not inside a step
    float blend_sigma;
    float guidance; // filled by the engine: guidance scale of this evaluation, 0 = no unconditional pass
    int32_t step;   // the step this evaluation belongs to
} sumi_solver_row;

bool sumi_solver_known(sumi_solver solver);
int32_t sumi_solver_order(sumi_solver solver);     // of convergence; 0 for an unknown one
int32_t sumi_solver_most_rows(sumi_solver solver); // of a step; 0 for an unknown one
// Rows needed for sigmas[0 .. step_count]. 0 for an unknown solver or no step.
int32_t sumi_solver_evaluations(sumi_solver solver, const float* sigmas, int32_t step_count);
// Fills the rows for sigmas[0 .. step_count], a table that passes sumi_schedule_check; returns their number.
int32_t sumi_solver_rows(sumi_solver solver, const float* sigmas, int32_t step_count, sumi_solver_row* rows);
#endif
