// Numbers that are collected now and looked at later: all are kept, so percentiles are exact.
#ifndef SERIES_H
#define SERIES_H
#include <stdbool.h>
#include <stdint.h>

typedef struct series {
    float* values;
    int32_t count, capacity;
    bool is_sorted;
} series;

bool series_reserve(series* s, int32_t capacity); // so that adding does not allocate; false: no memory
void series_add(series* s, double value);         // without memory the value is lost
// the smallest value that `percent` of them do not exceed; 0 of none. Sorts
double series_percentile(series* s, double percent);
double series_mean(const series* s);
void series_clear(series* s); // keeps the memory
void series_free(series* s);
#endif
