// Which format of weights a program asks for that was given a memory budget and no format. The library's AUTO looks at
// the memory of the GPU alone, so that a job gives the same image under every budget. Under a budget that the
// transformer exceeds in bfloat16, its weights would then be copied to the GPU for every step. The user of a program
// wants the picture sooner, and can be told.
#ifndef BUDGET_WEIGHTS_H
#define BUDGET_WEIGHTS_H
#include <sumi.h>

#define BUDGET_WEIGHTS_TEXT_BYTES 256

typedef struct budget_weights_desc {
    uint64_t budget_bytes;  // 0: none
    uint64_t values, bytes; // of the transformer: its numbers, and what they take in its file. 0: not known
} budget_weights_desc;

// For a GPU: the CPU backend reads weights where they lie. Returns AUTO if the transformer fits the budget in bfloat16.
// Otherwise AS_STORED if its file has 10 bits per weight or less, else INT8, as AUTO does on a small GPU, and `text` is
// a sentence about it for the user: a clause without a full stop.
sumi_weight_format budget_weights(const budget_weights_desc* desc, char text[BUDGET_WEIGHTS_TEXT_BYTES]);
#endif
