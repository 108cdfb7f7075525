// What the control nets for the transformer with two streams share.
#ifndef SUMI_MODELS_TWO_STREAM_NETS_H
#define SUMI_MODELS_TWO_STREAM_NETS_H
#include "models/control_module.h"
#include "models/two_stream_blocks.h"

// The linear layer that the planes of control pictures go through, as 2x2 patches.
typedef struct sumi_picture_input {
    int32_t channels; // of the planes
    sumi_weight weight, bias;
} sumi_picture_input;

// Binds the layer. Its columns say which planes the net reads: the latents of one picture, or the larger ones. Keeps a
// failure in the binder.
sumi_control_planes sumi_picture_input_bind(sumi_picture_input* input, sumi_binder* binder, const sumi_two_stream* base,
                                            const char* name, sumi_control_planes larger);
// The rows of all control pictures, [pictures * tokens, dim].
sumi_value sumi_picture_input_write(const sumi_picture_input* input, sumi_plan* plan,
                                    const sumi_planned_control* control, const sumi_denoising* job, int32_t dim);

// Whose rows the targets of an evaluation read: ranges of entries with adjacent pictures.
typedef struct sumi_picture_run {
    int32_t row, picture_row, rows; // in the targets; among the rows of the pictures
} sumi_picture_run;
// Returns the number of runs, at most SUMI_MAX_JOINT_EVALUATIONS.
int32_t sumi_picture_runs(const sumi_planned_control* control, const sumi_joint_rows* layout, sumi_picture_run* runs);

// The job without its references, which no net of this kind reads.
sumi_denoising sumi_without_references(const sumi_denoising* job);
// A model with the sizes of another one, and no weights.
sumi_two_stream sumi_two_stream_sizes_of(const sumi_two_stream* base);
#endif
