// Solvers follow recorded trajectories and converge with their order.
#include "files/tensors.h"
#include "recorded_values.h"
#include "sampling/schedule.h"
#include "sampling/solver.h"

enum { MAX_ROWS = 4 * 256 };
typedef double velocity(double x, double sigma); // d x / d sigma
typedef void after_step(int32_t step, const double* x, size_t count, void* context);

// The engine's update in double, coefficients as they stand.
static void solve(sumi_solver solver, const float* sigmas, int32_t steps, velocity* v, double* x, size_t count,
                  after_step* after, void* context)
{
    static sumi_solver_row s_rows[MAX_ROWS];
    int32_t n = sumi_solver_rows(solver, sigmas, steps, s_rows);
    double y[64], h[64] = {0};
    memcpy(y, x, count * sizeof *y);
    for (int32_t r = 0; r < n; r++) {
        const sumi_solver_row* row = &s_rows[r];
        for (size_t i = 0; i < count; i++) {
            double slope = v(x[i], (double)row->sigma);
            double next =
                (double)row->cx * x[i] + (double)row->cy * y[i] + (double)row->cv * slope + (double)row->ch * h[i];
            h[i] = (double)row->hx * x[i] + (double)row->hv * slope + (double)row->hh * h[i];
            if (row->keeps == 0.0f) y[i] = next;
            x[i] = next;
        }
        if (row->keeps == 0.0f && after) after(row->step, x, count, context);
    }
}

static double newbie_field(double x, double sigma) // the recorded field is d x / d t with t = 1 - sigma
{
    double t = 1.0 - sigma;
    return -(-0.5 * x + sin(3 * t) + 0.25 * cos(x));
}

typedef struct comparison {
    const float* want;
    double off[8], norm[8];
} comparison;

static void compare_step(int32_t step, const double* x, size_t count, void* context)
{
    comparison* c = context;
    for (size_t i = 0; step < 8 && i < count; i++) {
        double want = (double)c->want[(size_t)step * count + i];
        c->off[step] += (x[i] - want) * (x[i] - want);
        c->norm[step] += want * want;
    }
}

TEST(solvers_follow_recorded_trajectories)
{
    static const struct {
        sumi_solver solver;
        const char *grid, *expect;
        int steps;
    } s_cases[] = {
        {SUMI_SOLVER_EULER, "engine", "euler.on_engine", 8},
        {SUMI_SOLVER_MIDPOINT, "authors", "midpoint.on_authors", 8},
        {SUMI_SOLVER_HEUN, "authors", "heun.on_authors", 7}, // ours ends with an Euler step where sigma is 0
        {SUMI_SOLVER_HEUN_FULL, "authors", "heun.on_authors", 8},
        {SUMI_SOLVER_RK4, "authors", "rk4.on_authors", 8},
        {SUMI_SOLVER_DPMPP_2M, "dpm", "dpmpp2m.on_dpm", 8},
        {SUMI_SOLVER_DPMPP_2M, "engine", "dpmpp2m.on_engine", 8},
        {SUMI_SOLVER_RES_MULTISTEP, "engine", "res_multistep.on_engine", 8},
    };
    sumi_tensor_set set;
    if (!open_set(&set, "tests/golden/newbie/cases/solvers.safetensors")) {
        CHECK(!"solvers.safetensors opens");
        return;
    }
    for (size_t k = 0; k < sizeof s_cases / sizeof *s_cases; k++) {
        char name[96];
        size_t count, grid_count, want_count;
        float* start = values_of(&set, "input.x0", &count);
        snprintf(name, sizeof name, "input.grid.%s", s_cases[k].grid);
        float* sigmas = values_of(&set, name, &grid_count);
        snprintf(name, sizeof name, "expect.%s", s_cases[k].expect);
        float* want = values_of(&set, name, &want_count);
        CHECK_NUMBER(grid_count, 9);
        CHECK_NUMBER(want_count, 8 * count);
        double x[64];
        for (size_t i = 0; i < count; i++) x[i] = (double)start[i];
        comparison c = {.want = want};
        solve(s_cases[k].solver, sigmas, 8, newbie_field, x, count, compare_step, &c);
        for (int s = 0; s < s_cases[k].steps; s++) {
            double error = sqrt(c.off[s] / c.norm[s]);
            if (!(error < 1e-6)) printf("  %s step %d: relative error %g\n", s_cases[k].expect, s, error);
            CHECK(error < 1e-6);
        }
        // so the exception above is real
        if (s_cases[k].solver == SUMI_SOLVER_HEUN) CHECK(sqrt(c.off[7] / c.norm[7]) > 1e-5);
        free(start);
        free(sigmas);
        free(want);
    }
    sumi_tensor_set_close(&set);
}

// Gaussian data of mean M and deviation C: x(sigma) = (1 - sigma) M + z sqrt((1 - sigma)^2 C^2 + sigma^2) solves the
// flow exactly.
static const double s_m = 0.7, s_c = 0.4;

static double gaussian_variance(double sigma) { return (1 - sigma) * (1 - sigma) * s_c * s_c + sigma * sigma; }

static double gaussian_field(double x, double sigma)
{
    return -s_m + (sigma - (1 - sigma) * s_c * s_c) / gaussian_variance(sigma) * (x - (1 - sigma) * s_m);
}

// Worst error at sigma = 0 over three trajectories, all `steps` from sigma = 1.
static double gaussian_error(sumi_solver solver, int32_t steps)
{
    static const double s_z[3] = {-1.1, 0.6, 1.9};
    float sigmas[SUMI_SCHEDULE_MAX_STEPS + 1];
    shifted(1.0f, steps, sigmas);
    double x[3], error = 0;
    for (int i = 0; i < 3; i++) x[i] = s_z[i] * sqrt(gaussian_variance(1.0));
    solve(solver, sigmas, steps, gaussian_field, x, 3, NULL, NULL);
    for (int i = 0; i < 3; i++) error = fmax(error, fabs(x[i] - (s_m + s_z[i] * s_c)));
    return error;
}

// The same on the recorded field between two inner noise levels, against many small steps of the classic Runge-Kutta
// method.
static double inner_error(sumi_solver solver, int32_t steps)
{
    static const double s_from = 0.9375, s_to = 0.0625;
    float sigmas[SUMI_SCHEDULE_MAX_STEPS + 1];
    for (int32_t i = 0; i <= steps; i++) sigmas[i] = (float)(s_from + (s_to - s_from) * i / steps);
    double x[3] = {-1.3, 0.3, 1.9}, want[3], error = 0, d = (s_to - s_from) / 2000;
    for (int i = 0; i < 3; i++) {
        double w = x[i];
        for (int k = 0; k < 2000; k++) {
            double s = s_from + d * k, k1 = newbie_field(w, s), k2 = newbie_field(w + d / 2 * k1, s + d / 2),
                   k3 = newbie_field(w + d / 2 * k2, s + d / 2);
            w += d / 6 * (k1 + 2 * k2 + 2 * k3 + newbie_field(w + d * k3, s + d));
        }
        want[i] = w;
    }
    solve(solver, sigmas, steps, newbie_field, x, 3, NULL, NULL);
    for (int i = 0; i < 3; i++) error += (x[i] - want[i]) * (x[i] - want[i]);
    return sqrt(error);
}

TEST(solvers_converge_with_their_order)
{
    static const struct {
        sumi_solver solver;
        int32_t steps;
    } s_cases[] = {
        {SUMI_SOLVER_EULER, 128},    {SUMI_SOLVER_HEUN, 64},      {SUMI_SOLVER_MIDPOINT, 64},
        {SUMI_SOLVER_DPMPP_2M, 128}, {SUMI_SOLVER_HEUN_FULL, 64}, {SUMI_SOLVER_RES_MULTISTEP, 128},
        {SUMI_SOLVER_RK4, 8},
    };
    for (size_t k = 0; k < sizeof s_cases / sizeof *s_cases; k++) {
        double coarse = inner_error(s_cases[k].solver, s_cases[k].steps),
               fine = inner_error(s_cases[k].solver, 2 * s_cases[k].steps);
        if (fabs(log2(coarse / fine) - sumi_solver_order(s_cases[k].solver)) > 0.2)
            printf("  solver %d: error %.3g, then %.3g with twice the steps\n", (int)s_cases[k].solver, coarse, fine);
        CHECK_NEAR(log2(coarse / fine), sumi_solver_order(s_cases[k].solver), 0.2, 0);
    }
}

// Down to sigma = 0 the multistep solvers' error is N^-2 log N (every step near the end halves sigma, however many
// there are), so the order seen at these lengths is below 2; the one-step solvers have their own.
TEST(solvers_reach_the_exact_solution_over_a_whole_schedule)
{
    static const struct {
        sumi_solver solver;
        double error, order;
    } s_cases[] = {
        {SUMI_SOLVER_EULER, 0.006, 0.95},   {SUMI_SOLVER_HEUN, 4e-5, 1.9},     {SUMI_SOLVER_MIDPOINT, 1e-6, 1.9},
        {SUMI_SOLVER_HEUN_FULL, 2e-5, 1.9}, {SUMI_SOLVER_DPMPP_2M, 3e-4, 1.6}, {SUMI_SOLVER_RES_MULTISTEP, 4e-4, 1.6},
    };
    for (size_t k = 0; k < sizeof s_cases / sizeof *s_cases; k++) {
        double coarse = gaussian_error(s_cases[k].solver, 128), fine = gaussian_error(s_cases[k].solver, 256);
        if (!(fine < s_cases[k].error && log2(coarse / fine) > s_cases[k].order))
            printf("  solver %d: error %.3g, then %.3g\n", (int)s_cases[k].solver, coarse, fine);
        CHECK(fine < s_cases[k].error);
        CHECK(log2(coarse / fine) > s_cases[k].order);
    }
    CHECK(gaussian_error(SUMI_SOLVER_RK4, 64) < 1e-6);
}

static double constant_field(double x, double sigma) { return (void)x, (void)sigma, -1.5; }

TEST(solvers_are_exact_on_a_constant_velocity)
{
    static const sumi_solver s_solvers[] = {SUMI_SOLVER_EULER,        SUMI_SOLVER_HEUN, SUMI_SOLVER_MIDPOINT,
                                            SUMI_SOLVER_HEUN_FULL,    SUMI_SOLVER_RK4,  SUMI_SOLVER_DPMPP_2M,
                                            SUMI_SOLVER_RES_MULTISTEP};
    for (size_t k = 0; k < 7; k++)
        for (int32_t steps = 1; steps <= 9; steps++) {
            float sigmas[10];
            shifted(3.0f, steps, sigmas);
            // data estimates x - sigma v differ from step to step only in rounding, so multistep solvers must not move
            // either
            double x = 2.0;
            solve(s_solvers[k], sigmas, steps, constant_field, &x, 1, NULL, NULL);
            CHECK_NEAR(x, 3.5, 2e-6, 0);
        }
}

TEST(solver_rows_keep_their_promises)
{
    static const sumi_solver s_solvers[] = {SUMI_SOLVER_EULER,        SUMI_SOLVER_HEUN,      SUMI_SOLVER_MIDPOINT,
                                            SUMI_SOLVER_DPMPP_2M,     SUMI_SOLVER_HEUN_FULL, SUMI_SOLVER_RK4,
                                            SUMI_SOLVER_RES_MULTISTEP};
    static const int32_t s_counts[] = {8, 15, 16, 8, 16, 32, 8};
    static sumi_solver_row s_rows[MAX_ROWS];
    for (size_t k = 0; k < 7; k++)
        for (int end = 0; end < 2; end++) {
            float sigmas[9];
            shifted(6.0f, 8, sigmas);
            if (end == 1) sigmas[8] = 0.05f; // a caller's table may stop early
            int32_t n = sumi_solver_rows(s_solvers[k], sigmas, 8, s_rows);
            if (end == 0) CHECK_NUMBER(n, s_counts[k]);
            CHECK(sumi_solver_known(s_solvers[k]));
            CHECK(n <= 8 * sumi_solver_max_rows(s_solvers[k]) && n > 8 * (sumi_solver_max_rows(s_solvers[k]) - 1));
            int32_t step = 0;
            for (int32_t r = 0; r < n; r++) {
                const float* f = &s_rows[r].cx;
                for (int i = 0; i < 7; i++) CHECK(isfinite(f[i]));
                CHECK_NUMBER(s_rows[r].step, step);
                CHECK(s_rows[r].guidance == 0.0f);
                CHECK(s_rows[r].sigma <= sigmas[step] && s_rows[r].sigma >= sigmas[step + 1]);
                if (s_rows[r].keeps == 0.0f) { // ends a step
                    CHECK(s_rows[r].blend_sigma == sigmas[step + 1]);
                    step++;
                } else {
                    CHECK(s_rows[r].keeps == 1.0f && s_rows[r].blend_sigma < 0.0f);
                }
            }
            CHECK_NUMBER(step, 8);
        }
    float sigmas[3] = {1.0f, 0.5f, 0.0f};
    CHECK_NUMBER(sumi_solver_rows((sumi_solver)17, sigmas, 2, s_rows), 0);
    CHECK(!sumi_solver_known((sumi_solver)17) && !sumi_solver_known((sumi_solver)-1)
          && !sumi_solver_known((sumi_solver)7));
    CHECK_NUMBER(sumi_solver_max_rows((sumi_solver)17), 0);
    CHECK(SUMI_SOLVER_HEUN_FULL == 4 && SUMI_SOLVER_RK4 == 5 && SUMI_SOLVER_RES_MULTISTEP == 6); // stable
    CHECK_NUMBER(sumi_solver_rows(SUMI_SOLVER_EULER, sigmas, 0, s_rows), 0);
}

TEST(euler_uses_the_float_step_of_the_reference)
{
    float sigmas[9];
    sumi_solver_row rows[8];
    shifted(3.0f, 8, sigmas);
    sumi_solver_rows(SUMI_SOLVER_EULER, sigmas, 8, rows);
    for (int i = 0; i < 8; i++) {
        float d = sigmas[i + 1] - sigmas[i];
        CHECK(same_float(rows[i].cv, d) && rows[i].cx == 1.0f && rows[i].cy == 0.0f && rows[i].ch == 0.0f);
    }
    CHECK_NEAR((double)rows[3].cv, -0.08333331, 1e-8, 0);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(solvers_follow_recorded_trajectories);
    RUN(solvers_converge_with_their_order);
    RUN(solvers_reach_the_exact_solution_over_a_whole_schedule);
    RUN(solvers_are_exact_on_a_constant_velocity);
    RUN(solver_rows_keep_their_promises);
    RUN(euler_uses_the_float_step_of_the_reference);
    TEST_END();
}
