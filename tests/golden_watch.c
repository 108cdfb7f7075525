#include "golden_watch.h"
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

watch* add_watch(watcher* w, const char* expected, watch_kind kind, const char* format, ...)
{
    if (w->count == MAX_WATCHES) return NULL;
    watch* one = &w->list[w->count++];
    memset(one, 0, sizeof *one);
    snprintf(one->expected, sizeof one->expected, "%s", expected);
    one->kind = kind;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(one->label, sizeof one->label, format, arguments);
    va_end(arguments);
    return one;
}

static bool matches(const watch* one, const char* label)
{
    size_t length = strlen(one->label);
    return length > 0 && one->label[length - 1] == '*' ? strncmp(label, one->label, length - 1) == 0
                                                       : strcmp(label, one->label) == 0;
}

// Rows of heads [first, first + count) of a qkv matrix with the rotary positions taken back.
static array take_heads(plan_run* run, const watcher* w, const sumi_op* op, int32_t first, int32_t count)
{
    array qkv = read_array(run, op->out), rope = read_array(run, op->in[1]);
    int32_t dim = w->head_dim;
    int64_t rows = qkv.shape[0];
    array heads = array_make(NULL, 3, (const int64_t[]){rows, count, dim});
    for (int64_t r = 0; r < rows; r++) {
        for (int32_t h = 0; h < count; h++) {
            const float* x = qkv.values + r * qkv.shape[1] + (first + h) * dim;
            float* y = heads.values + (r * count + h) * dim;
            for (int32_t k = 0; k < dim / 2; k++) {
                int32_t a = w->halves ? k : 2 * k, b = w->halves ? k + dim / 2 : 2 * k + 1;
                float cosine = rope.values[r * dim + 2 * k], sine = rope.values[r * dim + 2 * k + 1];
                y[a] = x[a] * cosine + x[b] * sine;
                y[b] = x[b] * cosine - x[a] * sine;
            }
        }
    }
    array_free(&qkv);
    array_free(&rope);
    return heads;
}

// The group norm without activation, in double; the op is the norm's first, which sums: the second one may work in
// place.
static array plain_norm(plan_run* run, const watcher* w, const sumi_op* sums)
{
    const sumi_op* op = sums + 1;
    array x = read_array(run, sums->in[0]);
    int64_t rows = x.shape[0], channels = x.shape[1], width = channels / w->groups;
    float* weight = calloc((size_t)channels, sizeof *weight);
    float* bias = calloc((size_t)channels, sizeof *bias);
    sumi_weight_to_float(op->weight, 0, 1, weight, (int32_t)channels);
    sumi_weight_to_float(op->bias, 0, 1, bias, (int32_t)channels);
    for (int32_t g = 0; g < w->groups; g++) {
        double mean = 0, variance = 0;
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = g * width; k < (g + 1) * width; k++) mean += x.values[r * channels + k];
        mean /= (double)(rows * width);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = g * width; k < (g + 1) * width; k++) variance += pow(x.values[r * channels + k] - mean, 2);
        double scale = 1.0 / sqrt(variance / (double)(rows * width) + op->u.group.eps);
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = g * width; k < (g + 1) * width; k++)
                x.values[r * channels + k] = (float)((x.values[r * channels + k] - mean) * scale * weight[k] + bias[k]);
    }
    free(weight);
    free(bias);
    return x;
}

static void to_planes(array* rows)
{
    array planes = array_make(NULL, 2, (const int64_t[]){rows->shape[1], rows->shape[0]});
    for (int64_t p = 0; p < rows->shape[0]; p++)
        for (int64_t k = 0; k < rows->shape[1]; k++)
            planes.values[k * rows->shape[0] + p] = rows->values[p * rows->shape[1] + k];
    array_free(rows);
    *rows = planes;
}

// A picture may be made strip by strip, from its beginning or from its end: what lies beside the strips so far, in the
// same value, is joined to them.
static void join_strips(watch* one, const sumi_value_info* info, array fresh)
{
    array* all = &one->strips;
    const bool joins = all->values != NULL && info->base.id != 0 && info->base.id == one->strips_base.id
                    && info->base_element != one->strips_element && all->shape[1] == fresh.shape[1];
    if (joins) {
        const bool is_first = info->base_element < one->strips_element;
        const array *top = is_first ? &fresh : all, *bottom = is_first ? all : &fresh;
        array both = array_make(NULL, 2, (const int64_t[]){top->shape[0] + bottom->shape[0], top->shape[1]});
        memcpy(both.values, top->values, (size_t)top->count * sizeof *both.values);
        memcpy(both.values + top->count, bottom->values, (size_t)bottom->count * sizeof *both.values);
        array_free(&fresh);
        fresh = both;
    }
    if (!joins || info->base_element < one->strips_element) one->strips_element = info->base_element;
    array_free(all);
    *all = fresh;
    one->strips_base = info->base;
}

// x W^T + bias in double.
static array plain_product(plan_run* run, const sumi_op* op)
{
    array x = read_array(run, op->in[0]);
    const int64_t rows = op->rows, cols = op->weight->rows, depth = op->weight->cols;
    array y = array_make(NULL, 2, (const int64_t[]){rows, cols});
    float* weight = calloc((size_t)depth, sizeof *weight);
    float* bias = calloc((size_t)cols, sizeof *bias);
    if (op->bias != NULL) sumi_weight_to_float(op->bias, 0, 1, bias, (int32_t)cols);
    for (int64_t k = 0; k < cols; k++) {
        sumi_weight_to_float(op->weight, (int32_t)k, 1, weight, (int32_t)depth);
        for (int64_t r = 0; r < rows; r++) {
            double sum = bias[k];
            const float* from = x.values + (op->u.linear.x_row + r) * depth;
            for (int64_t i = 0; i < depth; i++) sum += (double)weight[i] * from[i];
            y.values[r * cols + k] = (float)sum;
        }
    }
    free(weight);
    free(bias);
    array_free(&x);
    return y;
}

static void take(plan_run* run, const watcher* w, watch* one, const sumi_op* op)
{
    if ((one->kind == WATCH_COS || one->kind == WATCH_SIN) && op->kind != SUMI_OP_ROPE_TABLE) return;
    if (one->kind == WATCH_PRODUCT && op->kind != SUMI_OP_LINEAR) return;
    array_free(&one->got);
    switch (one->kind) {
    case WATCH_Q: one->got = take_heads(run, w, op, 0, w->q_heads); return;
    case WATCH_K: one->got = take_heads(run, w, op, w->q_heads, w->kv_heads); return;
    case WATCH_PLAIN_NORM:
        one->got = plain_norm(run, w, op);
        to_planes(&one->got);
        return;
    case WATCH_PRODUCT: one->got = plain_product(run, op); return;
    default: one->got = read_array(run, op->out); break;
    }
    array* got = &one->got;
    int64_t rows = got->shape[0], cols = got->shape[1];
    if (one->kind == WATCH_NEGATED)
        for (int64_t i = 0; i < got->count; i++) got->values[i] = -got->values[i];
    if (one->kind == WATCH_BRANCH && one->before != NULL)
        for (int64_t i = 0; i < got->count; i++) got->values[i] -= one->before[i];
    if (one->kind == WATCH_PLANES) {
        join_strips(one, sumi_plan_info(run->plan, op->out), *got);
        *got = array_make(one->strips.values, 2, one->strips.shape);
        to_planes(got);
    }
    if (one->kind == WATCH_COS || one->kind == WATCH_SIN || one->kind == WATCH_V) {
        int64_t first = one->kind == WATCH_V   ? (int64_t)(w->q_heads + w->kv_heads) * w->head_dim
                      : one->kind == WATCH_SIN ? 1
                                               : 0,
                step = one->kind == WATCH_V ? 1 : 2;
        int64_t count = (cols - first + step - 1) / step;
        array part = array_make(NULL, 2, (const int64_t[]){rows, count});
        for (int64_t r = 0; r < rows; r++)
            for (int64_t k = 0; k < count; k++) part.values[r * count + k] = got->values[r * cols + first + k * step];
        array_free(got);
        *got = part;
    }
}

void watch_op(plan_run* run, watcher* w, const sumi_op* op, int32_t counter, bool before)
{
    for (int i = 0; i < w->count && run->c->by_op; i++) {
        watch* one = &w->list[i];
        if (!matches(one, op->label) || (op->kind == SUMI_OP_GROUP_SUMS) != (one->kind == WATCH_PLAIN_NORM)
            || counter != w->counter)
            continue;
        if (!before) take(run, w, one, op);
        else if (one->kind == WATCH_BRANCH && op->in[1].id != 0) {
            free(one->before);
            one->before = read_floats(run, op->in[1]);
        }
    }
}

// The rows and columns that are compared, in the reference's order.
static void cut_out(watch* one)
{
    array* got = &one->got;
    if (one->first == 0 && one->rows == 0 && one->first_col == 0 && one->cols == 0 && one->turned == 0) return;
    const int64_t all = got->shape[0], width = got->count / all, left = all - one->first, wide = width - one->first_col,
                  rows = one->rows != 0 && one->rows < left ? one->rows : left,
                  cols = one->cols != 0 && one->cols < wide ? one->cols : wide;
    array part = array_make(NULL, 2, (const int64_t[]){rows, cols});
    for (int64_t r = 0; r < rows; r++)
        memcpy(part.values + r * cols, got->values + (one->first + (r + one->turned) % rows) * width + one->first_col,
               (size_t)cols * sizeof(float));
    array_free(got);
    *got = part;
}

void compare_watches(golden_case* c, watcher* w)
{
    for (int i = 0; i < w->count && c->by_op; i++) {
        watch* one = &w->list[i];
        if (one->got.values == NULL) not_checked(c, one->expected, "no op of the plan made it");
        else {
            cut_out(one);
            compare(c, one->expected, &one->got);
        }
        array_free(&one->got);
        array_free(&one->strips);
        free(one->before);
        one->before = NULL;
    }
}

const char* expected_name(const golden_case* c, size_t i)
{
    const char* name = c->set.tensors[i].name;
    return strncmp(name, "expect.", 7) == 0 ? name + 7 : NULL;
}
