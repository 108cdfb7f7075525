// What sumi inspect tells of an encoded prompt in a file, with or without a model that it is tried with. What such a
// file holds: src/engine/prompts.c.
#ifndef PROMPT_INSPECTION_H
#define PROMPT_INSPECTION_H
#include "inspection.h"
#include "json_out.h"

// Whether sumi_prompt_save has written the tensors.
bool prompt_is_one(const sumi_tensor_set* set);
void prompt_print(const inspection* in, const sumi_tensor_set* set);
void prompt_put(json_out* out, const sumi_tensor_set* set);
// Loads the prompt for in->model as generate does. Prints why it does not fit, and returns an exit code.
int prompt_try(const inspection* in);
#endif
