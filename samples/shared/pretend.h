// --as CARD of bench, pacing, golden_run and test_cuda_ops: on this GPU they run as on another card, whose kernels are
// then chosen (tests/pretend_cuda, which says what a card is and what is pretended). Of Linux alone.
#ifndef PRETEND_H
#define PRETEND_H
#include <stdbool.h>

// Takes "--as CARD" out of the arguments, wherever it is, and opens the stand-in for the driver, which lies in the
// folder `pretend` beside the program or beside the program's folder. Call it before anything opens the driver. Without
// --as nothing happens. On failure it prints a sentence and returns false.
bool pretend_take_argument(int* argc, char** argv);
#endif
