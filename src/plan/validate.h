// Checks a plan against every invariant of plan.h. Used by tests and by checked builds, in which every finished plan is
// checked. The release library never calls these functions.
//
//  sections   are consecutive and contain every op once; no two of them solve with the same row of a table
//  slices     contain every work range of every op once, in order
//  ranges     the work ranges of an op cover its work and write different rows
//  shapes     rows, columns and elements of values and weights are those that the kind of the op demands
//  in place   an op writes over what it reads only where ops.h allows it
//  rows       an op reads rows that were written before, through the same view or through the whole value
//  views      lie inside their base and live as long as it does
//  pairs      the ops of a pair are consecutive, and the second op's result does not overlap what the first op reads;
//             a value that is not stored is used by one pair only
//  arena      values that live at the same time share no byte, except a guest and its host (sumi_plan_share)
#ifndef SUMI_PLAN_VALIDATE_H
#define SUMI_PLAN_VALIDATE_H
#include "plan/plan.h"

// Checks a finished plan, sliced or not. Returns SUMI_OK, or SUMI_INTERNAL with a sentence that names the op, its
// label, the value and the broken rule. The time grows with the square of the number of values: about 11 ms for a
// decoder in 64 tiles in an optimised build. Memory comes from the C library, not from the plan's heap, so that a
// checked build counts the same bytes and allocations of the host program's allocator as a release build.
sumi_result sumi_plan_validate(const sumi_plan* plan, sumi_error* error);
// Checks only the slices. Allocates nothing.
sumi_result sumi_plan_validate_slices(const sumi_plan* plan, sumi_error* error);
#endif
