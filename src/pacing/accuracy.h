// Learns how accurate one kind of time prediction is, so that deadlines can add a margin that fits.
//
// A sumi_accuracy belongs to the struct that contains it, and is protected like it. None of the functions blocks or
// fails.
#ifndef SUMI_PACING_ACCURACY_H
#define SUMI_PACING_ACCURACY_H
#include <stdint.h>

// Statistics of the ratio actual time / predicted time.
typedef struct sumi_accuracy {
    float mean, deviation; // the ratio's moving mean, and its moving mean absolute deviation from that mean
    int32_t count;         // predictions noted so far; while this is 0, mean and deviation are not set
} sumi_accuracy;

// Notes how long something took (`actual`) and how long it had been predicted to take, both in the same unit. Does
// nothing if `predicted` is not positive. first_deviation is the deviation to assume before the first prediction was
// noted.
void sumi_accuracy_note(sumi_accuracy* accuracy, float first_deviation, double actual, double predicted);
double sumi_accuracy_deviation(const sumi_accuracy* accuracy, float first_deviation);
// Returns the factor by which a prediction must be multiplied to get a time that is hardly ever exceeded.
double sumi_accuracy_largest_factor(const sumi_accuracy* accuracy, float first_deviation);

// How many mean deviations the deadline code adds to the mean. Of a normal distribution 98 in 100 values lie below
// that: 2.5 mean absolute deviations are 2 standard deviations.
#define SUMI_ACCURACY_MARGIN 2.5
#endif
