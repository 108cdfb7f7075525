// Control nets: small networks beside a denoiser that add hints to rows of its stream between two blocks, so that an
// image follows a control picture (ControlNet, Zhang et al. 2023). What each kind computes: docs/architectures/control.md.
//
//     for every block b of the denoiser:   x = block(x);   x[rows] += strength * hint(b)
//
// A denoiser offers places (sumi_control_place) and knows no net; a net is a table of functions that writes its part of
// the plan at these places. Hints are computed where they are added, so one at a time is in memory.
#ifndef SUMI_MODELS_CONTROL_MODULE_H
#define SUMI_MODELS_CONTROL_MODULE_H
#include "models/control.h"
#include "models/network_modules.h"

// A net in a plan.
typedef struct sumi_planned_control {
    const struct sumi_control_module* module;
    const void* model;
    // The control pictures as the net reads them: float [picture_count * channels, h * w] in the size of the latents.
    // picture_count is the number of items, or 1 if all have the same.
    sumi_value planes;
    int32_t picture_count;
    sumi_step_row strength; // the factor of the hint, [1, width of the stream]
    void* state;            // of the module, zeroed at first
} sumi_planned_control;

typedef enum sumi_control_stage {
    SUMI_CONTROL_REFINER, // rows of images alone, before they meet the text; only some denoisers have it
    SUMI_CONTROL_BLOCKS
} sumi_control_stage;

// A place between two blocks.
typedef struct sumi_control_place {
    sumi_control_stage stage;
    int32_t block; // after this one of the stage, or before its last sum; -1: before the first one
    bool is_last;  // of the blocks of this evaluation
    sumi_value x;  // the stream
    const sumi_evaluation_list* list;
    const void* base;       // the denoiser's model
    const void* evaluation; // what the denoiser and its nets share while an evaluation is written; of the denoiser
} sumi_control_place;

typedef struct sumi_control_module {
    const char* network; // name of its tensors, in the table of control.c
    size_t model_bytes, state_bytes;
    // base: the denoiser's model, whose sizes the net must have. Keeps its first failure in the binder.
    sumi_result (*bind)(void* model, const void* base, sumi_binder* binder, const sumi_module_config* config);
    sumi_control_net_info (*info)(const void* model);
    // The functions of the denoiser's module with the same names call these (network_modules.h).
    void (*write_prepare)(const sumi_planned_control* control, sumi_plan* plan, sumi_denoising* job, const void* base);
    void (*write_layout)(const sumi_planned_control* control, sumi_plan* plan, sumi_denoising* job, const void* base,
                         const sumi_evaluation_list* list);
    // Writes what the net computes at this place. Then write_hint adds the hint, if there is one: all nets of a job
    // compute before any of them adds.
    void (*write_place)(const sumi_planned_control* control, sumi_plan* plan, const sumi_denoising* job,
                        const sumi_control_place* place);
    void (*write_hint)(const sumi_planned_control* control, sumi_plan* plan, const sumi_control_place* place);
} sumi_control_module;

// What of an opened net does not depend on a plan; the other members are 0.
sumi_planned_control sumi_control_of(const sumi_control_net* net);

// Where a denoiser calls the nets that are active in the evaluation that is written.
void sumi_controls_write_place(sumi_plan* plan, const sumi_denoising* job, const sumi_control_place* place);
// All nets of the job.
void sumi_controls_write_prepare(sumi_plan* plan, sumi_denoising* job, const void* base);
void sumi_controls_write_layout(sumi_plan* plan, sumi_denoising* job, const void* base,
                                const sumi_evaluation_list* list);

extern const sumi_control_module sumi_next_dit_fun_module, sumi_two_stream_fun_module, sumi_instantx_module,
    sumi_blockwise_module;
#endif
