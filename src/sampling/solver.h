// ODE solvers as tables. Every evaluation of the denoiser is followed by one linear update of three states, each of the
// size of a latent: the point x, where the denoiser is evaluated next; the base y of the current step; and one history
// h. v is the velocity dx / dsigma that the evaluation returns.
//
//     x' = cx x + cy y + cv v + ch h        y' = keeps ? y : x'        h' = hx x + hv v + hh h
//
// All right-hand sides have the values before the update. So a solver is a table of rows, the device code is one
// kernel, and a captured graph fits every step of every solver. Before the first row y = x and h = 0 (its first use is
// multiplied by 0, so any finite value will do). If blend_sigma >= 0, the region that is not repainted is replaced in
// x' before y' is set; h' is computed without the replacement. d is the difference of sigma over the step, sigma' the
// sigma at its end.
//
//                   rows of a step                                               evaluations of a step
//   Euler           x' = x + d v                                                 1
//   Heun            x' = x + d v, h' = v | x' = y + d/2 v + d/2 h                2; if sigma' = 0: Euler, as diffusers
//                                                                                and k-diffusion
//   midpoint        x' = x + d/2 v       | x' = y + d v                          2
//   Heun full       as Heun, with the second evaluation at sigma = 0 too         2
//   RK4             Kutta's 3/8 rule                                             4
//   res_multistep   exponential 2-step method on the data estimate, in ln sigma  1; first step, sigma' = 0: Euler
//   DPM-Solver++2M  x' = a x + b x0 + c h, x0 = x - sigma v, h' = x0             1; first step, sigma' = 0: 1st order
//
// res_multistep and DPM-Solver++2M keep the previous data estimate in h. DPM-Solver++2M: Lu et al. 2022, in the half
// log-SNR of flow matching.
#ifndef SUMI_SAMPLING_SOLVER_H
#define SUMI_SAMPLING_SOLVER_H
#include "base/result.h"

typedef struct sumi_solver_row {
    float cx, cy, cv, ch, hx, hv, hh;
    float keeps; // 1: y stays (the step continues); 0: y becomes x'
    float sigma; // where the denoiser is evaluated before this row is applied
    // For inpainting: the noise level at which the region that is not repainted is replaced after this row. Negative:
    // it is not replaced, because the step continues.
    float blend_sigma;
    float guidance; // guidance scale of this evaluation, filled in by the engine; 0: no unconditional pass
    int32_t step;   // the step this evaluation belongs to
} sumi_solver_row;

bool sumi_solver_known(sumi_solver solver);
int32_t sumi_solver_order(sumi_solver solver);    // order of convergence; 0 for an unknown solver
int32_t sumi_solver_max_rows(sumi_solver solver); // the most rows of one step; 0 for an unknown solver
// Writes the rows for sigmas[0 .. step_count], a table that passes sumi_schedule_check. Returns the number
// of rows: 0 for an unknown solver, and for no step.
int32_t sumi_solver_rows(sumi_solver solver, const float* sigmas, int32_t step_count, sumi_solver_row* rows);
#endif
