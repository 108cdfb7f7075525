// What a job would take, before anything of it is allocated, and a limit that holds.
#include "cookbook.h"

static void print_memory(const char* when, const sumi_memory* memory)
{
    printf("%s: weights %.1f MB, arena %.1f MB, host %.1f MB%s%s\n", when, 1e-6 * (double)memory->weights,
           1e-6 * (double)memory->arena, 1e-6 * (double)(memory->host + memory->staging + memory->images),
           memory->tiles_vae ? ", the VAE works in tiles" : "", memory->streamed > 0 ? ", weights are streamed" : "");
}

sumi_result recipe_memory_budget(const recipe_host* host)
{
    sumi_image_item item = {.text = host->prompt, .seed = 7};
    sumi_image_desc desc = sumi_image_defaults(host->model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    // [excerpt memory_budget]
    sumi_memory memory;
    sumi_result result = sumi_image_memory(host->engine, &desc, &memory); // plans the job and throws the plan away
    if (result != SUMI_OK) return result;
    print_memory("without a limit", &memory);

    // On the processor the budget is for arena and staging, on a GPU for weights and arena.
    const bool is_gpu = sumi_engine_get_info(host->engine).compute_capability > 0;
    uint64_t budget = (is_gpu ? memory.weights : 0) + memory.arena / 2;
    result = sumi_engine_set_memory_budget(host->engine, budget); // also at creation: desc.memory_budget_bytes
    if (result == SUMI_OK) result = sumi_image_memory(host->engine, &desc, &memory);
    if (result != SUMI_OK) return result; // SUMI_BUDGET_TOO_SMALL: not even in tiles; a smaller picture needs less
    print_memory("half of the arena", &memory);
    // [end]
    sumi_job job;
    result = sumi_submit_images(host->engine, &desc, &job);
    return result == SUMI_OK ? recipe_finish(host, host->engine, job) : result;
}
