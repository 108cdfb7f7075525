// Pipelines of FLUX.2 [klein], from noise to picture.
#ifndef GOLDEN_FLUX_PIPELINE_H
#define GOLDEN_FLUX_PIPELINE_H
#include "golden_support.h"

// Kind "pipeline". False: another kind.
bool run_flux_pipeline_case(golden_case* c);
#endif
