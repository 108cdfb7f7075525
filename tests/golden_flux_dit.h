// The cases of the transformer with double and single blocks (models/flux_dit.h).
#ifndef GOLDEN_FLUX_DIT_H
#define GOLDEN_FLUX_DIT_H
#include "golden_support.h"

// Kinds "dit" and "adapter". False: another kind.
bool run_flux_dit_case(golden_case* c);
#endif
