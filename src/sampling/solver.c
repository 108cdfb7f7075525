// The rows of the solvers (solver.h). Coefficients are computed in double and rounded once. All formulas are written in
// sigma: with alpha = 1 - sigma and lambda = ln(alpha / sigma), the exponentials of the papers become quotients, and
// the ends of the schedule, where lambda is infinite, need no special cases:
//
//     e^-(lambda' - lambda) = alpha sigma' / (sigma alpha')
//     -alpha' (e^-(lambda' - lambda) - 1) = alpha' - alpha sigma' / sigma
//
// At sigma = 1 (alpha = 0) the second right-hand side is alpha', and at sigma' = 0 it is 1. In the functions s is
// sigma, n is sigma', and d is n - s.
#include "sampling/solver.h"
#include <math.h>

static sumi_solver_row row_at(double sigma, int32_t step)
{
    return (sumi_solver_row){.sigma = (float)sigma, .blend_sigma = -1.0f, .step = step};
}

// Rounded to float32, as the reference's dt.
static double velocity_step(double from, double to) { return (float)(to - from); }

// x' = x + d v. Other solvers use it for a step that they cannot compute at their own order.
static int32_t euler(double s, double n, int32_t step, sumi_solver_row* rows)
{
    rows[0] = row_at(s, step);
    rows[0].cx = 1.0f;
    rows[0].cv = (float)velocity_step(s, n);
    rows[0].blend_sigma = (float)n;
    return 1;
}

static int32_t heun(double s, double n, int32_t step, sumi_solver_row* rows)
{
    double d = velocity_step(s, n);
    euler(s, n, step, rows);
    rows[0].blend_sigma = -1.0f;
    rows[0].keeps = 1.0f;
    rows[0].hv = 1.0f;
    rows[1] = row_at(n, step);
    rows[1].cy = 1.0f;
    rows[1].cv = rows[1].ch = (float)(d / 2);
    rows[1].blend_sigma = (float)n;
    return 2;
}

static int32_t midpoint(double s, double n, int32_t step, sumi_solver_row* rows)
{
    double d = velocity_step(s, n);
    rows[0] = row_at(s, step);
    rows[0].cx = 1.0f;
    rows[0].cv = (float)(d / 2);
    rows[0].keeps = 1.0f;
    rows[1] = row_at((s + n) / 2, step);
    rows[1].cy = 1.0f;
    rows[1].cv = (float)d;
    rows[1].blend_sigma = (float)n;
    return 2;
}

// Kutta's 3/8 rule, with k1 to k4 the velocities of the four evaluations. One history is enough: after two evaluations
// the point x = y + d (k2 - k1/3) and the history h = k1 + 3 k2 determine both k1 and k2, and k1 - k2 = h/3 - 2 (x -
// y)/d gives the fourth point y + d (k1 - k2 + k3) although neither is stored.
static int32_t rk4(double s, double n, int32_t step, sumi_solver_row* rows)
{
    double d = velocity_step(s, n);
    for (int i = 0; i < 4; i++) {
        rows[i] = row_at(s + d * i / 3, step);
        rows[i].keeps = i < 3 ? 1.0f : 0.0f;
    }
    rows[3].sigma = (float)n;
    rows[0].cx = 1.0f, rows[0].cv = (float)(d / 3);
    rows[0].hv = 1.0f;
    rows[1].cy = 1.0f, rows[1].cv = (float)d, rows[1].ch = (float)(-d / 3);
    rows[1].hh = 1.0f, rows[1].hv = 3.0f;
    rows[2].cy = 3.0f, rows[2].cx = -2.0f, rows[2].cv = (float)d, rows[2].ch = (float)(d / 3);
    rows[2].hh = 1.0f, rows[2].hv = 3.0f;
    rows[3].cy = 1.0f, rows[3].cv = rows[3].ch = (float)(d / 8);
    rows[3].blend_sigma = (float)n;
    return 4;
}

// Sets x' = x_weight x + x0_weight x0 + h_weight h, with the data estimate x0 = x - s v, and h' = x0.
static int32_t data_row(double s, double n, int32_t step, double x_weight, double x0_weight, double h_weight,
                        sumi_solver_row* rows)
{
    rows[0] = row_at(s, step);
    rows[0].cx = (float)(x_weight + x0_weight);
    rows[0].cv = (float)(-x0_weight * s);
    rows[0].ch = (float)h_weight;
    rows[0].hx = 1.0f;
    rows[0].hv = (float)-s;
    rows[0].blend_sigma = (float)n;
    return 1;
}

static double half_log_snr(double sigma) { return log((1.0 - sigma) / sigma); }

// previous: the sigma of the previous step, 0 if there is none. If the previous step began at sigma = 1, its length in
// lambda was infinite; the difference of data estimates divided by this length is 0, so this step is of first order
// too.
static int32_t dpmpp_2m(double previous, double s, double n, int32_t step, sumi_solver_row* rows)
{
    if (n <= 0.0) return data_row(s, n, step, 0.0, 1.0, 0.0, rows);
    double keep = n / s;
    double gain = (1.0 - n) - (1.0 - s) * keep;
    double half_slope = 0.0; // h / (2 h_previous), with h the length of a step in lambda
    if (previous > 0.0 && previous < 1.0)
        half_slope = 0.5 * (half_log_snr(n) - half_log_snr(s)) / (half_log_snr(s) - half_log_snr(previous));
    return data_row(s, n, step, keep, gain * (1.0 + half_slope), -gain * half_slope, rows);
}

static int32_t res_multistep(double previous, double s, double n, int32_t step, sumi_solver_row* rows)
{
    // Euler on the data estimate.
    if (previous <= 0.0 || n <= 0.0) return data_row(s, n, step, n / s, 1.0 - n / s, 0.0, rows);
    double h = log(s / n);
    double c = -log(previous / s) / h;
    double phi1 = -expm1(-h) / h;
    double phi2 = (1.0 - phi1) / h;
    return data_row(s, n, step, n / s, h * (phi1 - phi2 / c), h * (phi2 / c), rows);
}

int32_t sumi_solver_order(sumi_solver solver)
{
    switch ((int)solver) {
    case SUMI_SOLVER_EULER: return 1;
    case SUMI_SOLVER_HEUN:
    case SUMI_SOLVER_MIDPOINT:
    case SUMI_SOLVER_DPMPP_2M:
    case SUMI_SOLVER_HEUN_FULL:
    case SUMI_SOLVER_RES_MULTISTEP: return 2;
    case SUMI_SOLVER_RK4: return 4;
    default: return 0;
    }
}

bool sumi_solver_known(sumi_solver solver) { return sumi_solver_order(solver) > 0; }

static int32_t evaluations_of_step(sumi_solver solver, float next_sigma)
{
    switch ((int)solver) {
    case SUMI_SOLVER_EULER:
    case SUMI_SOLVER_DPMPP_2M:
    case SUMI_SOLVER_RES_MULTISTEP: return 1;
    case SUMI_SOLVER_HEUN: return next_sigma > 0.0f ? 2 : 1;
    case SUMI_SOLVER_MIDPOINT:
    case SUMI_SOLVER_HEUN_FULL: return 2;
    case SUMI_SOLVER_RK4: return 4;
    default: return 0;
    }
}

int32_t sumi_solver_max_rows(sumi_solver solver) { return evaluations_of_step(solver, 1.0f); }

int32_t sumi_solver_rows(sumi_solver solver, const float* sigmas, int32_t step_count, sumi_solver_row* rows)
{
    int32_t count = 0;
    for (int32_t i = 0; i < step_count; i++) {
        double previous = i > 0 ? sigmas[i - 1] : 0.0, s = sigmas[i], n = sigmas[i + 1];
        sumi_solver_row* next = rows + count;
        switch ((int)solver) {
        case SUMI_SOLVER_EULER: count += euler(s, n, i, next); break;
        case SUMI_SOLVER_HEUN: count += n > 0.0 ? heun(s, n, i, next) : euler(s, n, i, next); break;
        case SUMI_SOLVER_HEUN_FULL: count += heun(s, n, i, next); break;
        case SUMI_SOLVER_MIDPOINT: count += midpoint(s, n, i, next); break;
        case SUMI_SOLVER_RK4: count += rk4(s, n, i, next); break;
        case SUMI_SOLVER_DPMPP_2M: count += dpmpp_2m(previous, s, n, i, next); break;
        case SUMI_SOLVER_RES_MULTISTEP: count += res_multistep(previous, s, n, i, next); break;
        default: break;
        }
    }
    return count;
}
