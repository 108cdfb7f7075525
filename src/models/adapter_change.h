// What plans add to a weight, made from a layer of an adapter's file and the model's weight.
//
//   LoRA      up down                            low-rank, from the factors where they lie in the file
//   LoKr      w1 (x) w2                          a Kronecker product, or low-rank where that is small
//   LoHa      (up1 down1) * (up2 down2)          low-rank of rank r1 r2; a whole matrix where that is smaller
//   .diff     D                                  a whole matrix, where it lies in the file
//   DoRA      m (W + C) / |W + C| - W            C is one of the changes above; see below
//
// DoRA with a magnitude for each output, g = m / |W + C| by rows: (g - 1) W + g C. The first part is the model's own
// weight with other factors of its rows, which takes no memory on the host but those factors; the second is C with
// other rows of `up`. Both are changes that plans know. They take one more product with W, and on a GPU one more copy
// of it, in bfloat16. A magnitude for each input scales the columns, which no weight can say of itself: the difference
// is computed and kept as a whole matrix in bfloat16, on the host too. The strength of a job scales the difference from
// the model's weight, as it does for all kinds.
//
// Norms are of the changed weight, in float: if the model's file is quantised, of the dequantised rows.
#ifndef SUMI_MODELS_ADAPTER_CHANGE_H
#define SUMI_MODELS_ADAPTER_CHANGE_H
#include "models/adapter_layers.h"
#include "models/weights.h"

// Memory of computed factors.
typedef struct sumi_adapter_memory {
    sumi_heap* heap;
    void** blocks;
    size_t count, capacity;
} sumi_adapter_memory;
// Memory that lives as long as the adapter; NULL after a failure.
void* sumi_adapter_memory_reserve(sumi_adapter_memory* memory, size_t count, size_t element_bytes, sumi_error* error);
void sumi_adapter_memory_close(sumi_adapter_memory* memory); // accepts zeroed memory

// The rows of a weight that a layer changes, as the model has them.
typedef struct sumi_adapter_place {
    sumi_adapter_memory* memory;
    const char* path; // of the adapter's file, for messages
    const sumi_adapter_target* target;
    const sumi_weight* weight;
} sumi_adapter_place;

// The changes of one layer. None, if all differences are zero.
#define SUMI_CHANGES_OF_LAYER 6 // two, each of them in up to three parts
typedef struct sumi_change_list {
    sumi_delta deltas[SUMI_CHANGES_OF_LAYER];
    int32_t count;
} sumi_change_list;

// Of the matrix, of the bias, and of the weight of a norm.
sumi_result sumi_adapter_change_matrix(const sumi_adapter_place* place, const sumi_adapter_layer* layer,
                                       sumi_change_list* out, sumi_error* error);
sumi_result sumi_adapter_change_bias(const sumi_adapter_place* place, const sumi_adapter_layer* layer,
                                     sumi_change_list* out, sumi_error* error);
sumi_result sumi_adapter_change_norm(const sumi_adapter_place* place, const sumi_adapter_layer* layer,
                                     sumi_change_list* out, sumi_error* error);

// All changes of one layer, or none.
typedef struct sumi_change_range {
    const sumi_delta* deltas;
    int32_t count;
} sumi_change_range;
// Whether two changes of the same rows are the same, up to rounding: their products with a vector
// are compared.
sumi_result sumi_adapter_changes_differ(sumi_heap* heap, sumi_change_range a, sumi_change_range b, bool* out_differ,
                                        sumi_error* error);
#endif
