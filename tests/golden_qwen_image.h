// What the cases of the Qwen-Image family share: its checkpoints, which lie over one another, and one component of them
// as a part is bound to it.
#ifndef GOLDEN_QWEN_IMAGE_H
#define GOLDEN_QWEN_IMAGE_H
#include "golden_support.h"
#include "models/parts.h"

// A component's tensors, ready for a part's bind.
typedef struct case_component {
    sumi_checkpoint checkpoint;
    sumi_weight_list list;
    sumi_binder binder;
    sumi_part_config config;
} case_component;

// Opens the checkpoint that the case's "model" names: t2i, edit, edit-2509 or edit-2511, each laid over the one before
// it, in the folder beside the cases. False after reporting. close_component in any case.
bool open_component(golden_case* c, sumi_part_kind kind, const char* what, case_component* out);
void close_component(case_component* component);
// A file of the same checkpoint, "processor/preprocessor_config.json". False after reporting; sumi_file_close in any
// case.
bool open_checkpoint_file(golden_case* c, const char* name, sumi_file* out);

// ---- Cases by part: false where the kind is not theirs --------------------------------------------------------------
bool run_qwen_vision_case(golden_case* c);
#endif
