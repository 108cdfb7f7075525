// Checks a plan against every invariant of plan.h: for tests and for checked builds, where every plan that is made goes
// through here. The release library never calls it.
//
//   sections   lie behind one another and hold every op once; two of them never solve with one row of a table
//   slices     hold every part of every op once, in order
//   parts      of an op cover its work, and write different rows
//   shapes     rows, columns and elements of values and weights are those of the op's kind
//   in place   an op writes over what it reads only where ops.h says so
//   rows       an op reads rows that were written before, by way of the view that it reads or of the whole value
//   views      lie in their base and live as long
//   pairs      ops that are done together follow one another, and the second one's result lies apart from what the
//              first one reads; a value that is not stored is a pair's own
//   arena      values that live at the same time share no byte, but for a guest in its host
#ifndef SUMI_PLAN_VALIDATE_H
#define SUMI_PLAN_VALIDATE_H
#include "plan/plan.h"

// Of a finished plan, sliced or not. SUMI_OK, or SUMI_INTERNAL and a sentence that names the op, its label, the value
// and the rule that is broken. The time grows with the square of the number of values: about 11 ms for a decoder
// in 64 tiles, optimised. Its memory comes from the C library rather than from the plan's heap, so that a checked build
// counts the same bytes and allocations of the host's as a release.
sumi_result sumi_plan_validate(const sumi_plan* plan, sumi_error* error);
// The slices alone; takes no memory.
sumi_result sumi_plan_validate_slices(const sumi_plan* plan, sumi_error* error);
#endif
