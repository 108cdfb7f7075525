// One component of a case's checkpoint, to which a part is bound by itself, without a recipe.
#ifndef GOLDEN_COMPONENT_H
#define GOLDEN_COMPONENT_H
#include "golden_support.h"
#include "models/network_modules.h"

// A component's tensors, ready for a part's bind.
typedef struct case_component {
    sumi_checkpoint checkpoint;
    sumi_weight_list list;
    sumi_binder binder;
    sumi_module_config config;
} case_component;

// Opens the checkpoint that the case's "model" names. For the Qwen-Image family that is t2i, edit, edit-2509 or
// edit-2511, each laid over the one before it, in the folder beside the cases; without a name it is "model" there. A
// name that begins with "../" is a path from the cases on.
// False after reporting. close_component in any case: the runner forgets its weights, for another component's may get
// their addresses, by which the runner knows weights.
bool open_component(golden_case* c, sumi_component_kind kind, const char* what, case_component* out);
void close_component(golden_case* c, case_component* component);
// The whole checkpoint with a recipe: t2i, edit, edit-2509, edit-2511 or turbo. NULL after reporting.
sumi_network* layered_network(golden_case* c, const char* model);
// A file of the same checkpoint, "processor/preprocessor_config.json". False after reporting; sumi_file_close in any
// case.
bool open_checkpoint_file(golden_case* c, const char* name, sumi_file* out);
#endif
