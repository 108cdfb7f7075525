// Step caching in denoisers: an evaluation may take the sum that most of its blocks would add from an earlier
// evaluation (First-Block Cache: ParaAttention, diffusers' first_block_cache.py).
//
//   whole    x -> first block -> x + F  -> other blocks -> x + F + R -> final layer   leaves F, R, D and the change of F
//   reused   x'-> first block -> x'+ F' ------ + R + f D --------------> final layer   R, D of the last whole evaluation
//
// D is the difference of R from the previous whole evaluation's R, so R + f D extrapolates R along sigma (TaylorSeer,
// arXiv 2503.06923, order 1, on one residual instead of every layer's).
//
// After its first block a whole evaluation also computes the prediction that a reused one would have made in its place,
// which costs a final layer. Once its own prediction is known, the difference of the two is the error of reusing.
//
// The rows are the ones that the final layer reads. Evaluations of one batch share the matrices: those of a guided step
// have their own rows in them. The change of F says how quickly the evaluations change; sampling/reuse.h bases its
// decision on it.
#ifndef SUMI_MODELS_BLOCK_RESIDUALS_H
#define SUMI_MODELS_BLOCK_RESIDUALS_H
#include "plan/plan.h"

// All activations [rows, cols].
typedef struct sumi_block_residuals {
    sumi_value rest;   // R; after the first block of a whole evaluation the rows before the other blocks
    sumi_value first;  // F
    sumi_value slope;  // D; after the first block of a whole evaluation the R of the one before
    sumi_value before; // the rows before the first block, during it
    sumi_value change; // bound, floats: the result of RESIDUAL_CHANGE; none until the first whole evaluation is written
    int32_t rows;
} sumi_block_residuals;

// Makes the values, in a section before the evaluations. All are 0 at first.
sumi_block_residuals sumi_block_residuals_make(sumi_plan* plan, int32_t rows, int32_t cols);

// How far a residual is extrapolated: f = (distance to the last whole evaluation) / (distance of the last two), at most
// most_ahead.
typedef struct sumi_extrapolation {
    sumi_step_row sigma; // of the current evaluation
    // [2, any] floats: column `sigma.column` has the sigmas of the last two whole evaluations, older first. In a whole
    // evaluation: of the two before it.
    sumi_value whole_sigmas;
    float most_ahead;
} sumi_extrapolation;

// In a whole evaluation. x is the matrix whose first rows the blocks change in place. after_first returns the rows that
// a reused evaluation would have after its residual.
void sumi_block_residuals_before_first(sumi_plan* plan, sumi_block_residuals* residuals, sumi_value x);
sumi_value sumi_block_residuals_after_first(sumi_plan* plan, sumi_block_residuals* residuals, sumi_value x,
                                            const sumi_extrapolation* extrapolation);
void sumi_block_residuals_after_last(sumi_plan* plan, const sumi_block_residuals* residuals, sumi_value x);

// In a reused evaluation, after the first block.
void sumi_block_residuals_reuse(sumi_plan* plan, const sumi_block_residuals* residuals, sumi_value x,
                                const sumi_extrapolation* extrapolation);
#endif
