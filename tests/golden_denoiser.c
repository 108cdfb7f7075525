// One evaluation of a denoiser in a golden case: what the cases of transformers share.
#include "golden_denoiser.h"
#include <math.h>
#include <stdlib.h>

void probe_denoiser(plan_run* run, const sumi_op* op, int32_t counter, bool before)
{
    denoiser_run* r = run->context;
    if (r->w != NULL) watch_op(run, r->w, op, counter, before);
}

void write_items(plan_run* run, const denoiser_run* r, const float* latents, int64_t channels, int64_t size)
{
    const int64_t count = channels * size;
    for (int32_t i = 0; i < r->item_count; i++) { // item 0 is the case's
        float* one = calloc((size_t)count, sizeof *one);
        for (int64_t k = 0; k < count; k++) one[k] = latents[i == 0 ? k : count - 1 - k] * (i > 1 ? -1 : 1);
        write_floats(run, r->x, (int64_t)i * channels, one, count);
        free(one);
    }
}

void run_in_batch(golden_case* c, const denoiser_run* r, int32_t text_rows)
{
    const int32_t least = r->least_rows > 0 ? r->least_rows : 1, half = (text_rows + 1) / 2,
                  rows[] = {text_rows, half > least ? half : least, least};
    static const sumi_evaluation s_list[] = {{0, 0}, {1, 0}, {0, 1}, {2, 2}, {0, 0}}, s_other = {0, 1};
    denoiser_run batch = *r, alone = *r;
    batch.velocities = alone.velocities = (array){0};
    batch.list = s_list;
    batch.list_count = 5;
    batch.item_count = 3;
    batch.prompt_rows = alone.prompt_rows = rows;
    batch.prompt_count = alone.prompt_count = 3;
    alone.list = &s_other;
    if (r->run(c, &batch) && r->run(c, &alone)) {
        r->compare(c, &batch, 0);
        r->compare(c, &batch, 4);
        double difference = 0, size = 0;
        const int64_t count = alone.velocities.count;
        for (int64_t i = 0; i < count; i++) {
            const double a = batch.velocities.values[2 * count + i], b = alone.velocities.values[i];
            difference += (a - b) * (a - b);
            size += b * b;
        }
        const double relative = sqrt(difference / size), tolerance = c->g->is_gpu ? 0.02 : 1e-5;
        report(c, "a shorter prompt in the batch", relative, tolerance, relative <= tolerance);
    }
    array_free(&batch.velocities);
    array_free(&alone.velocities);
}
