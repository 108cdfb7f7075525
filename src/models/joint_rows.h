// The order of rows in the joint matrix of a transformer in which pictures and texts meet in attention, for all
// evaluations of a list.
//
// The matrix has the targets of all evaluations, then for each evaluation its text and its references (pictures that the
// network reads). A sequence of attention is two ranges of its rows: the target, and the references together with the
// text. The two evaluations of a guided item lie side by side, the text of the second one before its references, so that
// rows of the same stream of two neighbours are adjacent and go through a product together. Of two guided items (t:
// targets, r: references, c: text, +: with the prompt, -: without):
//
//   | t0+ | t1+ | t0- | t1- | r0+ c0+ | c0- r0- | r1+ c1+ | c1- r1- |
//
// Without guidance every evaluation has its references first. Texts before them in every second item would make fewer
// ranges of rows, n + 2 instead of 2 n + 1 for n items with three streams, but attention would sum the keys of such an
// item in another order than for the item alone: its bits would depend on its place in the batch.
//
// If the keys and values of the references were computed before (kept), the references have no rows here. Attention then
// reads one range beside the kept rows, so that the target and the text of an evaluation are neighbours:
//
//   | t0 c0 | t1 c1 | t2 c2 |
//
// Attention sums the kept keys first, then the target's and the text's. A reference implementation with another
// order differs by rounding only.
#ifndef SUMI_MODELS_JOINT_ROWS_H
#define SUMI_MODELS_JOINT_ROWS_H
#include "models/network_modules.h"

#define SUMI_MAX_JOINT_EVALUATIONS (2 * SUMI_MAX_ITEMS)

typedef struct sumi_joint_rows {
    int32_t count;                            // evaluations
    int32_t height, width;                    // of a target, in tokens
    int32_t patch;                            // latents along the side of a token
    int32_t tokens;                           // tokens of a target
    int32_t reference_rows;                   // rows of all references together; 0 if they are kept
    int32_t kept_rows;                        // of all references together, if their keys and values are kept
    int32_t text_rows;                        // rows of the texts of all evaluations
    int32_t rows;                             // rows of the joint matrix
    int32_t item[SUMI_MAX_JOINT_EVALUATIONS]; // whose latents each evaluation reads
    int32_t text[SUMI_MAX_JOINT_EVALUATIONS]; // text rows of each evaluation
    // First rows in the joint matrix. The target of evaluation s begins at s * tokens, unless references are kept.
    int32_t target_begin[SUMI_MAX_JOINT_EVALUATIONS], reference_begin[SUMI_MAX_JOINT_EVALUATIONS],
        text_begin[SUMI_MAX_JOINT_EVALUATIONS];
    // The evaluations in the order of their references and texts in the joint matrix.
    int32_t order[SUMI_MAX_JOINT_EVALUATIONS];
} sumi_joint_rows;

void sumi_joint_rows_lay_out(const sumi_denoising* job, const sumi_evaluation_list* list, int32_t patch,
                             sumi_joint_rows* out);
// The same, if the keys and values of the job's references are kept. Without references the two layouts are the same.
void sumi_joint_rows_lay_out_kept(const sumi_denoising* job, const sumi_evaluation_list* list, int32_t patch,
                                  sumi_joint_rows* out);
// Writes the patches of all references to rows of `patches`, [.., patch * patch * channels], from row `row` on.
void sumi_joint_rows_put_references(sumi_plan* plan, const sumi_denoising* job, int32_t patch, sumi_value patches,
                                    int32_t row);
// The patches of all targets, in the order of the evaluations, then of all references that are not kept, which are the
// same for every evaluation: [count * tokens + reference_rows, patch * patch * channels].
sumi_value sumi_joint_rows_patches(const sumi_joint_rows* rows, sumi_plan* plan, const sumi_denoising* job,
                                   sumi_value latents, int32_t channels);
// The inverse, of targets only: rows of patches -> [count * channels, height * width] of the latents.
sumi_value sumi_joint_rows_latents(const sumi_joint_rows* rows, sumi_plan* plan, const sumi_denoising* job,
                                   sumi_value patches, int32_t channels);
// All rows of evaluation s, with its target first. With kept references: their rows, then the evaluation's, all of
// which are queries (sumi_sequence_has_kept).
sumi_sequence sumi_joint_rows_sequence(const sumi_joint_rows* rows, int32_t s);
#endif
