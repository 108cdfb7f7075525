// The second text encoder of NewBie-image, by itself.
#ifndef GOLDEN_XLM_ROBERTA_H
#define GOLDEN_XLM_ROBERTA_H
#include "golden_support.h"

bool run_xlm_roberta_case(golden_case* c); // false: the case is not of this encoder
#endif
