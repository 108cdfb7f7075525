#include "series.h"
#include <math.h>
#include <stdlib.h>

bool series_reserve(series* s, int32_t capacity)
{
    if (capacity <= s->capacity) return true;
    float* values = realloc(s->values, (size_t)capacity * sizeof *values);
    if (values == NULL) return false;
    s->values = values;
    s->capacity = capacity;
    return true;
}

void series_add(series* s, double value)
{
    if (s->count == s->capacity && !series_reserve(s, s->capacity > 0 ? 2 * s->capacity : 1024)) return;
    s->values[s->count++] = (float)value;
    s->is_sorted = false;
}

static int compare_floats(const void* a, const void* b)
{
    float x = *(const float*)a, y = *(const float*)b;
    return (x > y) - (x < y);
}

double series_percentile(series* s, double percent)
{
    if (s->count == 0) return 0.0;
    if (!s->is_sorted) qsort(s->values, (size_t)s->count, sizeof *s->values, compare_floats);
    s->is_sorted = true;
    int32_t rank = (int32_t)ceil(percent / 100.0 * s->count) - 1;
    return (double)s->values[rank < 0 ? 0 : rank];
}

double series_mean(const series* s)
{
    double sum = 0.0;
    for (int32_t i = 0; i < s->count; i++) sum += (double)s->values[i];
    return s->count > 0 ? sum / s->count : 0.0;
}

void series_clear(series* s)
{
    s->count = 0;
    s->is_sorted = false;
}

void series_free(series* s)
{
    free(s->values);
    *s = (series){0};
}
