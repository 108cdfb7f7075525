// The cases of the transformer whose prefix is computed once (models/prefix_dit.h).
#ifndef GOLDEN_PREFIX_DIT_H
#define GOLDEN_PREFIX_DIT_H
#include "golden_support.h"

// Kinds "dit" and "adapter". False: another kind.
bool run_prefix_dit_case(golden_case* c);
#endif
