#ifndef SUMI_ENGINE_ACCURACY_H
#define SUMI_ENGINE_ACCURACY_H
#include <stdint.h>

// How far predictions of a kind were from what came: what came, by what was predicted.
typedef struct sumi_accuracy {
    float mean, deviation; // its mean and its mean deviation from that, lately
    int32_t count;         // of predictions that were noted; 0: the two are not set yet
} sumi_accuracy;

// Notes what came of a prediction; without a prediction nothing. first_deviation: what to think before anything was
// noted.
void sumi_accuracy_note(sumi_accuracy* accuracy, float first_deviation, double came, double predicted);
double sumi_accuracy_deviation(const sumi_accuracy* accuracy, float first_deviation);
// Times what was predicted: longer than that it hardly takes.
double sumi_accuracy_most_times(const sumi_accuracy* accuracy, float first_deviation);

// Mean deviations between what is predicted and what is counted on: of a bell curve, 99 in 100 are below.
#define SUMI_ACCURACY_MARGIN 2.5
#endif
