#include "models/two_stream_nets.h"
#include "base/assert.h"

sumi_control_planes sumi_picture_input_bind(sumi_picture_input* input, sumi_binder* binder, const sumi_two_stream* base,
                                            const char* name, sumi_control_planes larger)
{
    char weight[SUMI_NAME_BYTES];
    const int32_t width = sumi_bind_size(binder, sumi_bind_join(weight, name, "weight"), 1),
                  fewest = 4 * sumi_control_channels(SUMI_PLANES_PICTURE, base->channels),
                  most = 4 * sumi_control_channels(larger, base->channels);
    if (binder->result != SUMI_OK) return SUMI_PLANES_PICTURE;
    if (width != fewest && width != most) {
        sumi_bind_fail(binder, SUMI_TENSOR_MISMATCH,
                       "%s: %s reads %d columns of a control picture; nets for this model read %d or %d",
                       binder->component->path, name, (int)width, (int)fewest, (int)most);
        return SUMI_PLANES_PICTURE;
    }
    input->channels = width / 4;
    sumi_bind_linear(binder, &input->weight, &input->bias, name, base->dim, width);
    input->weight.keeps_precision = true;
    return width == fewest ? SUMI_PLANES_PICTURE : larger;
}

sumi_value sumi_picture_input_write(const sumi_picture_input* input, sumi_plan* plan,
                                    const sumi_planned_control* control, const sumi_denoising* job, int32_t dim)
{
    const int32_t tokens = job->height / 2 * (job->width / 2), rows = control->picture_count * tokens;
    int32_t pictures[SUMI_MAX_ITEMS], row_begin[SUMI_MAX_ITEMS];
    for (int32_t p = 0; p < control->picture_count; p++) {
        pictures[p] = p;
        row_begin[p] = p * tokens;
    }
    const sumi_patch_layout layout = {job->height, job->width, input->channels, 2, control->picture_count, pictures,
                                      row_begin,   true};
    sumi_plan_prefix(plan, "control.");
    const sumi_value patches = sumi_plan_value(plan, "patches", SUMI_ELEMENT_ACTIVATION, rows, 4 * input->channels),
                     embedded = sumi_plan_value(plan, "pictures", SUMI_ELEMENT_ACTIVATION, rows, dim);
    sumi_plan_patchify(plan, control->planes, &layout, patches);
    return sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = "img_in", .x = patches, .weight = &input->weight, .bias = &input->bias, .y = embedded});
}

int32_t sumi_picture_runs(const sumi_planned_control* control, const sumi_joint_rows* layout, sumi_picture_run* runs)
{
    int32_t count = 0;
    for (int32_t s = 0; s < layout->count; s++) {
        const int32_t picture = control->picture_count > 1 ? layout->item[s] : 0;
        sumi_picture_run* last = count > 0 ? &runs[count - 1] : NULL;
        if (last != NULL && last->picture_row + last->rows == picture * layout->tokens) last->rows += layout->tokens;
        else runs[count++] = (sumi_picture_run){s * layout->tokens, picture * layout->tokens, layout->tokens};
    }
    return count;
}

sumi_denoising sumi_without_references(const sumi_denoising* job)
{
    sumi_denoising without = *job;
    without.references = NULL;
    without.reference_count = 0;
    return without;
}

sumi_two_stream sumi_two_stream_sizes_of(const sumi_two_stream* base)
{
    sumi_two_stream sizes = {.channels = base->channels,
                             .dim = base->dim,
                             .heads = base->heads,
                             .head_dim = base->head_dim,
                             .hidden = base->hidden,
                             .feature_width = base->feature_width,
                             .time_width = base->time_width,
                             .time_hidden = base->time_hidden,
                             .table_bytes = base->table_bytes};
    for (int32_t a = 0; a < 3; a++) sizes.axis_pairs[a] = base->axis_pairs[a];
    return sizes;
}
