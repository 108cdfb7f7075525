// Inputs that the arena still holds from the run before. A bound value keeps its place for a whole plan, so while runs
// of one plan follow each other, an input that is the same again need not be copied to the device again. This is for
// what encoded prompts keep, their features and references: up to some dozen megabytes, which this thread would copy
// into pinned memory for every job.
//
// The caller protects the struct. None of the functions blocks or fails.
#ifndef SUMI_JOBS_HELD_INPUTS_H
#define SUMI_JOBS_HELD_INPUTS_H
#include "models/limits.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct sumi_held_inputs {
    uint64_t plan_serial, arena_serial; // of the run; arena_serial 0: the backend does not say what its arena keeps
    // Serials of the prompts that the run's features and references are of; 0: they may be anything.
    uint64_t features[SUMI_MAX_PROMPTS][SUMI_MAX_TEXT_ENCODERS], references[SUMI_MAX_REFERENCES];
} sumi_held_inputs;

// A run begins. Nothing is held if it is of another plan than the run before, or if the arena is another.
void sumi_held_inputs_begin(sumi_held_inputs* held, uint64_t plan_serial, uint64_t arena_serial);
// Nothing is held any more: a run has failed, and what it wrote may not have arrived.
void sumi_held_inputs_forget(sumi_held_inputs* held);
// Called before an input is written, with its member of the struct. Whether the input is already what this prompt has, so
// that nothing need be written. prompt_serial 0: it is of no prompt.
bool sumi_held_inputs_has(uint64_t* member, uint64_t prompt_serial);
// The input was written to its end.
void sumi_held_inputs_note(const sumi_held_inputs* held, uint64_t* member, uint64_t prompt_serial);
#endif
