// The prompts of FLUX.2 [klein], whose features are those of three layers and of padding.
#ifndef GOLDEN_KLEIN_PROMPTS_H
#define GOLDEN_KLEIN_PROMPTS_H
#include "golden_support.h"

// Cases of the kinds "tokenize", "text" and "encoder". False: the case's kind is another.
bool run_klein_prompt_case(golden_case* c);
#endif
