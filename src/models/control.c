// Opening control nets, and calling the nets of a plan.
#include "models/control.h"
#include "base/assert.h"
#include "base/file.h"
#include "base/platform.h"
#include "models/control_module.h"
#include "models/network_state.h"
#include "models/signatures.h"
#include <stdio.h>
#include <string.h>

// Weights of control nets have indices that no weight of a network has, by which adapters find weights.
#define FIRST_INDEX (1 << 24)

struct sumi_control_net {
    sumi_heap* heap;
    const sumi_network* network;
    sumi_file_cache cache; // files of the host program that were requested
    sumi_checkpoint checkpoint;
    sumi_weight_list weights;
    const sumi_control_module* module; // NULL until the files have been opened
    void* model;
    sumi_control_net_info info;
    bool is_open;
};

int32_t sumi_control_channels(sumi_control_planes planes, int32_t latent_channels)
{
    return planes == SUMI_PLANES_PICTURE     ? latent_channels
         : planes == SUMI_PLANES_MASKED_MASK ? latent_channels + 1
                                             : 2 * latent_channels + 1;
}

// ---- Opening --------------------------------------------------------------------------------------------------------

sumi_result sumi_control_net_open_begin(const sumi_network* network, const sumi_files* files, const char* path,
                                        sumi_error* error, sumi_control_net** out_net)
{
    SUMI_ASSERT(network->is_open);
    sumi_heap* heap = network->heap;
    *out_net = NULL;
    sumi_control_net* net = sumi_alloc_zero(heap, sizeof *net);
    if (net == NULL) return sumi_out_of_memory(error, sizeof *net, "a control net");
    net->heap = heap;
    net->network = network;
    sumi_file_cache_init(&net->cache, heap, files);
    sumi_weight_list_init(&net->weights, heap);
    net->weights.first_index = FIRST_INDEX;
    sumi_checkpoint_desc desc = {.component_paths = {[SUMI_COMPONENT_TRANSFORMER] = path},
                                 .without_text_encoder = true,
                                 .transformer_name = "control net"};
    desc.signatures = sumi_control_signatures(&desc.signature_count);
    desc.methods = sumi_foreign_methods(&desc.method_count);
    static const char* const s_words[] = {"ControlNet", NULL};
    static const char* const* const s_class_words[SUMI_COMPONENT_COUNT] = {[SUMI_COMPONENT_TRANSFORMER] = s_words};
    desc.class_words = s_class_words;
    const sumi_result result =
        sumi_checkpoint_begin(&net->checkpoint, heap, sumi_file_cache_files(&net->cache), &desc, error);
    if (result != SUMI_OK) {
        sumi_control_net_close(net);
        return result;
    }
    *out_net = net;
    return SUMI_OK;
}

// Finds the module by the tensors, once all files are open.
static sumi_result recognise_control(sumi_control_net* net, sumi_error* error)
{
    const sumi_component* component = &net->checkpoint.components[SUMI_COMPONENT_TRANSFORMER];
    SUMI_TRY(sumi_checkpoint_check_absent(&net->checkpoint, SUMI_COMPONENT_TRANSFORMER, error));
    SUMI_TRY(sumi_signatures_check(&net->checkpoint, error));
    if (!component->present) {
        return sumi_fail(error, SUMI_MODEL_UNKNOWN, "%s holds no control net that this library knows",
                         component->path != NULL ? component->path : "the given path");
    }
    const char *name = sumi_component_network(component), *family = net->network->recipe->family;
    const sumi_control_module* const* modules = net->network->recipe->controls;
    for (int32_t i = 0; modules != NULL && modules[i] != NULL && net->module == NULL; i++)
        net->module = strcmp(modules[i]->network, name) == 0 ? modules[i] : NULL;
    if (net->module == NULL) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s is a control net for %s, and the model is %s: take one for it",
                         component->path, sumi_control_family(name), family);
    }
    return SUMI_OK;
}

static sumi_result bind_control(sumi_control_net* net, sumi_error* error)
{
    const sumi_component* component = &net->checkpoint.components[SUMI_COMPONENT_TRANSFORMER];
    net->model = sumi_alloc_zero(net->heap, net->module->model_bytes);
    if (net->model == NULL) return sumi_out_of_memory(error, net->module->model_bytes, "a control net");
    sumi_binder binder = {.list = &net->weights, .component = component, .what = "the control net", .error = error};
    const sumi_module_config config = {.data = component->config.data,
                                       .bytes = (size_t)component->config.bytes,
                                       .path =
                                           component->config.path != NULL ? component->config.path : component->path};
    SUMI_TRY(net->module->bind(net->model, net->network->denoiser, &binder, &config));
    net->info = net->module->info(net->model);
    net->info.weight_bytes = net->weights.weight_bytes;
    SUMI_ASSERT(net->info.place_count >= 1 && net->info.place_count <= SUMI_CONTROL_MAX_PLACES);
    sumi_file_cache_trim(&net->cache);
    net->is_open = true;
    return SUMI_OK;
}

// Does a step of opening the files, or reads a piece of the file that it waits for.
static sumi_result open_files(sumi_control_net* net, uint32_t budget_us, sumi_error* error)
{
    bool is_done = false;
    if (sumi_file_cache_is_reading(&net->cache)) return sumi_file_cache_read(&net->cache, budget_us, error);
    const sumi_result result = sumi_checkpoint_step(&net->checkpoint, &is_done, error);
    if (result != SUMI_TIMEOUT) SUMI_TRY(result);
    return is_done ? recognise_control(net, error) : SUMI_OK;
}

#define PIECES_PER_STEP 4 // of a budget: the last one may exceed it

sumi_result sumi_control_net_open_step(sumi_control_net* net, uint32_t budget_us, bool* out_done, float* out_progress,
                                       sumi_error* error)
{
    const uint64_t begin = sumi_clock_ns();
    do {
        if (net->module == NULL) SUMI_TRY(open_files(net, budget_us / PIECES_PER_STEP, error));
        else if (!net->is_open) SUMI_TRY(bind_control(net, error));
    } while (!net->is_open && (sumi_clock_ns() - begin) / 1000 < budget_us);
    *out_done = net->is_open;
    *out_progress =
        net->is_open ? 1.0f : sumi_checkpoint_progress(&net->checkpoint, sumi_file_cache_progress(&net->cache));
    return SUMI_OK;
}

void sumi_control_net_close(sumi_control_net* net)
{
    if (net == NULL) return;
    sumi_free(net->heap, net->model);
    sumi_weight_list_close(&net->weights);
    sumi_checkpoint_close(&net->checkpoint);
    sumi_file_cache_close(&net->cache);
    sumi_free(net->heap, net);
}

const sumi_control_net_info* sumi_control_net_get_info(const sumi_control_net* net) { return &net->info; }

const sumi_weight* const* sumi_control_net_weights(const sumi_control_net* net, int32_t* out_count)
{
    *out_count = (int32_t)net->weights.count;
    return net->weights.weights;
}

sumi_planned_control sumi_control_of(const sumi_control_net* net)
{
    SUMI_ASSERT(net->is_open);
    return (sumi_planned_control){.module = net->module, .model = net->model};
}

// ---- In plans -------------------------------------------------------------------------------------------------------

void sumi_controls_write_prepare(sumi_plan* plan, sumi_denoising* job, const void* base)
{
    for (int32_t i = 0; i < job->control_count; i++)
        job->controls[i].module->write_prepare(&job->controls[i], plan, job, base);
}

void sumi_controls_write_layout(sumi_plan* plan, sumi_denoising* job, const void* base,
                                const sumi_evaluation_list* list)
{
    for (int32_t i = 0; i < job->control_count; i++)
        job->controls[i].module->write_layout(&job->controls[i], plan, job, base, list);
}

void sumi_controls_write_place(sumi_plan* plan, const sumi_denoising* job, const sumi_control_place* place)
{
    for (int32_t i = 0; i < job->control_count; i++) {
        if ((job->active_controls >> i & 1u) == 0) continue;
        job->controls[i].module->write_place(&job->controls[i], plan, job, place);
    }
    for (int32_t i = 0; i < job->control_count; i++) {
        if ((job->active_controls >> i & 1u) == 0) continue;
        job->controls[i].module->write_hint(&job->controls[i], plan, place);
    }
}
