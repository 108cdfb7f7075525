// Layers of adapters whose rows are several weights of the model, or several ranges of rows of one: a product that the
// model computes as two, or halves that a file has in another order. The changes are made for the layer as a whole,
// with the parts of the weight side by side, and then cut by rows.
#ifndef SUMI_MODELS_ADAPTER_PARTS_H
#define SUMI_MODELS_ADAPTER_PARTS_H
#include "models/adapter_change.h"
#include "plan/ops.h"

// A layer as a whole.
typedef struct sumi_adapter_whole {
    sumi_adapter_target target; // with the rows of all parts
    sumi_weight weight;         // the rows of all parts, one below the other
} sumi_adapter_whole;

// parts: the first target of the layer, which the others follow in the list. SUMI_NOT_SUPPORTED: the parts lie in too
// many tensors, or begin within a block of elements.
sumi_result sumi_adapter_join_parts(const sumi_weight_list* list, const sumi_adapter_target* parts,
                                    const sumi_adapter_place* place, sumi_adapter_whole* out, sumi_error* error);
// The changes of the whole layer's rows from `begin` on, as changes of the target. Factors are views of those of the
// whole layer.
sumi_result sumi_adapter_take_part(const sumi_adapter_place* place, const sumi_change_list* whole, int32_t begin,
                                   sumi_change_list* out, sumi_error* error);
#endif
