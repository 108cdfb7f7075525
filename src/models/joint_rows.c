#include "models/joint_rows.h"
#include "base/assert.h"

// Appends the references and the text of an evaluation to the joint matrix.
static void append_evaluation(sumi_joint_rows* l, int32_t index, int32_t evaluation, bool has_text_first)
{
    const int32_t text = l->text[evaluation];
    l->order[index] = evaluation;
    l->reference_begin[evaluation] = l->rows + (has_text_first ? text : 0);
    l->text_begin[evaluation] = l->rows + (has_text_first ? 0 : l->reference_rows);
    l->rows += l->reference_rows + text;
    l->text_rows += text;
}

static bool is_first_of_item(const sumi_evaluation* list, int32_t evaluation)
{
    for (int32_t s = 0; s < evaluation; s++) {
        if (list[s].item == list[evaluation].item) return false;
    }
    return true;
}

// What both layouts have in common.
static void count_rows(const sumi_denoising* job, const sumi_evaluation_list* evaluations, int32_t patch,
                       sumi_joint_rows* l)
{
    const sumi_evaluation* list = evaluations->evaluations;
    const int32_t count = evaluations->count;
    SUMI_ASSERT(count >= 1 && count <= SUMI_MAX_JOINT_EVALUATIONS && job->height % patch == 0
                && job->width % patch == 0);
    *l = (sumi_joint_rows){.count = count, .height = job->height / patch, .width = job->width / patch, .patch = patch};
    l->tokens = l->height * l->width;
    for (int32_t i = 0; i < job->reference_count; i++)
        l->reference_rows += job->references[i].height / patch * (job->references[i].width / patch);
    for (int32_t s = 0; s < count; s++) {
        SUMI_ASSERT(list[s].prompt >= 0 && list[s].prompt < job->prompt_count);
        l->item[s] = list[s].item;
        l->text[s] = job->prompts[list[s].prompt].count[0];
    }
}

// The evaluations of an item follow each other, and every second one of them has its text first. So the values that
// attention sums for an evaluation, and their order, depend only on its item, and not on the other items of the batch.
void sumi_joint_rows_lay_out(const sumi_denoising* job, const sumi_evaluation_list* evaluations, int32_t patch,
                             sumi_joint_rows* l)
{
    const sumi_evaluation* list = evaluations->evaluations;
    const int32_t count = evaluations->count;
    count_rows(job, evaluations, patch, l);
    l->rows = count * l->tokens;
    for (int32_t s = 0; s < count; s++) l->target_begin[s] = s * l->tokens;
    int32_t appended = 0;
    for (int32_t first = 0; first < count; first++) {
        if (!is_first_of_item(list, first)) continue;
        bool has_text_first = false;
        for (int32_t s = first; s < count; s++) {
            if (list[s].item != list[first].item) continue;
            append_evaluation(l, appended++, s, has_text_first);
            has_text_first = !has_text_first;
        }
    }
    SUMI_ASSERT(appended == count);
}

void sumi_joint_rows_lay_out_kept(const sumi_denoising* job, const sumi_evaluation_list* list, int32_t patch,
                                  sumi_joint_rows* l)
{
    if (job->reference_count == 0) {
        sumi_joint_rows_lay_out(job, list, patch, l);
        return;
    }
    count_rows(job, list, patch, l);
    l->kept_rows = l->reference_rows;
    l->reference_rows = 0;
    for (int32_t s = 0; s < l->count; s++) {
        l->order[s] = s;
        l->target_begin[s] = l->rows;
        l->reference_begin[s] = l->text_begin[s] = l->rows + l->tokens;
        l->rows += l->tokens + l->text[s];
        l->text_rows += l->text[s];
    }
}

// The latents of the job's size: number items[s] of them for evaluation s.
static sumi_patch_layout target_layout(const sumi_joint_rows* l, const sumi_denoising* job, int32_t channels,
                                       const int32_t* items, int32_t row_begin[SUMI_MAX_JOINT_EVALUATIONS])
{
    for (int32_t s = 0; s < l->count; s++) row_begin[s] = s * l->tokens;
    return (sumi_patch_layout){job->height, job->width, channels, l->patch, l->count, items, row_begin, true};
}

void sumi_joint_rows_put_references(sumi_plan* plan, const sumi_denoising* job, int32_t patch, sumi_value patches,
                                    int32_t row)
{
    const int32_t channels = sumi_plan_cols(plan, patches) / (patch * patch), first = 0;
    for (int32_t i = 0; i < job->reference_count; i++) {
        const sumi_reference_latents* r = &job->references[i];
        const sumi_patch_layout reference = {r->height, r->width, channels, patch, 1, &first, &row, true};
        sumi_plan_patchify(plan, r->latents, &reference, patches);
        row += r->height / patch * (r->width / patch);
    }
}

sumi_value sumi_joint_rows_patches(const sumi_joint_rows* l, sumi_plan* plan, const sumi_denoising* job,
                                   sumi_value latents, int32_t channels)
{
    const int32_t targets = l->count * l->tokens;
    int32_t row_begin[SUMI_MAX_JOINT_EVALUATIONS];
    const sumi_patch_layout layout = target_layout(l, job, channels, l->item, row_begin);
    sumi_value patches = sumi_plan_value(plan, "patches", SUMI_ELEMENT_ACTIVATION, targets + l->reference_rows,
                                         l->patch * l->patch * channels);
    sumi_plan_patchify(plan, latents, &layout, patches);
    if (l->kept_rows == 0) sumi_joint_rows_put_references(plan, job, l->patch, patches, targets);
    return patches;
}

sumi_value sumi_joint_rows_latents(const sumi_joint_rows* l, sumi_plan* plan, const sumi_denoising* job,
                                   sumi_value patches, int32_t channels)
{
    int32_t items[SUMI_MAX_JOINT_EVALUATIONS], row_begin[SUMI_MAX_JOINT_EVALUATIONS];
    for (int32_t s = 0; s < l->count; s++) items[s] = s;
    const sumi_patch_layout layout = target_layout(l, job, channels, items, row_begin);
    return sumi_plan_unpatchify(plan, patches, &layout, 1.0f);
}

sumi_sequence sumi_joint_rows_sequence(const sumi_joint_rows* l, int32_t s)
{
    SUMI_ASSERT(s >= 0 && s < l->count);
    if (l->kept_rows > 0) {
        return (sumi_sequence){.span = {{0, l->kept_rows}, {l->target_begin[s], l->tokens + l->text[s]}},
                               .span_count = 2,
                               .query_spans = 1,
                               .query_first = 1};
    }
    const int32_t beside =
        l->reference_rows > 0 && l->reference_begin[s] < l->text_begin[s] ? l->reference_begin[s] : l->text_begin[s];
    return (sumi_sequence){.span = {{s * l->tokens, l->tokens}, {beside, l->reference_rows + l->text[s]}},
                           .span_count = 2,
                           .query_spans = 2};
}
