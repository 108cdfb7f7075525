// sumi inspect --json.
#include "inspection.h"
#include "json_out.h"
#include "licence.h"
#include "prompt_inspection.h"

static void put_totals(json_out* out, const tensor_totals* sum)
{
    json_unsigned(out, "tensor_count", sum->count);
    json_unsigned(out, "value_count", sum->values);
    json_unsigned(out, "bytes", sum->bytes);
    json_begin_object(out, "types");
    for (int type = 0; type < SUMI_DTYPE_COUNT; type++) {
        if (!sum->type_counts[type]) continue;
        json_begin_object(out, sumi_dtype_get((sumi_dtype)type)->name);
        json_unsigned(out, "tensor_count", sum->type_counts[type]);
        json_unsigned(out, "bytes", sum->type_bytes[type]);
        json_end_object(out);
    }
    json_end_object(out);
}

static void put_tensor(json_out* out, const char* name, const sumi_tensor* tensor)
{
    json_begin_object(out, NULL);
    json_text(out, "name", name);
    json_text(out, "type", sumi_dtype_get(tensor->dtype)->name);
    json_begin_array(out, "shape");
    for (int32_t i = 0; i < tensor->rank; i++) json_integer(out, NULL, tensor->shape[i]);
    json_end_array(out);
    json_end_object(out);
}

static void put_files(json_out* out, const sumi_tensor_set* set)
{
    json_begin_array(out, "files");
    for (size_t i = 0; i < set->opened_count; i++) {
        json_begin_object(out, NULL);
        json_text(out, "path", set->opened[i].path);
        json_unsigned(out, "bytes", set->opened[i].bytes);
        json_end_object(out);
    }
    json_end_array(out);
}

// ---- Checkpoints ----------------------------------------------------------------------------------------------------

static void put_check(json_out* out, inspection* in, sumi_component_kind kind)
{
    static const char* const s_states[] = {"unknown", "complete", "incomplete", "not usable"};
    part_check check;
    inspection_check(in, kind, &check);
    json_text(out, "state", s_states[check.state]);
    if (check.state == PART_NOT_USABLE) json_text(out, "reason", check.reason);
    if (check.state != PART_INCOMPLETE) return;
    json_integer(out, "missing_count", check.missing.count);
    json_begin_array(out, "missing"); // the first 64
    for (int32_t i = 0; i < check.missing.count && i < 64; i++) json_text(out, NULL, check.missing.names[i]);
    json_end_array(out);
}

static void put_part(json_out* out, inspection* in, sumi_component_kind kind)
{
    const sumi_component* part = &in->checkpoint.components[kind];
    if (!part->present && !inspection_uses(in, kind)) return;
    json_begin_object(out, sumi_component_kind_name(kind));
    json_bool(out, "is_present", part->present);
    json_text(out, "path", part->path);
    sumi_error error = {0};
    if (!part->present && sumi_checkpoint_check_absent(&in->checkpoint, kind, &error) != SUMI_OK)
        json_text(out, "reason", error.text);
    if (part->present) {
        json_text(out, "network", sumi_component_network(part));
        json_text(out, "prefix", part->prefix);
        json_bool(out, "has_config", part->config.data != NULL);
        const tensor_totals sum = inspection_part_totals(part);
        put_totals(out, &sum);
        put_files(out, part->set);
        put_check(out, in, kind);
        if (in->lists_tensors) json_begin_array(out, "tensors");
        for (size_t i = 0; i < part->set->count && in->lists_tensors; i++) {
            const char* name = sumi_component_tensor_name(part, &part->set->tensors[i]);
            if (name) put_tensor(out, name, &part->set->tensors[i]);
        }
        if (in->lists_tensors) json_end_array(out);
    }
    json_end_object(out);
}

static void put_tokenizer(json_out* out, inspection* in, int32_t encoder)
{
    const sumi_checkpoint_tokenizer* files = &in->checkpoint.tokenizers[encoder];
    sumi_error error = {0};
    size_t ids;
    if (files->form == SUMI_TOKENIZER_ABSENT) return;
    json_begin_object(out, encoder == 0 ? "tokenizer" : "tokenizer_2");
    json_text(out, "path", files->path);
    json_unsigned(out, "bytes", files->bytes);
    json_text(out, "form", inspection_tokenizer_form(files));
    if (inspection_count_ids(in, encoder, &ids, &error)) json_unsigned(out, "id_count", ids);
    else json_text(out, "reason", error.text);
    json_end_object(out);
}

static void put_schedule(json_out* out, inspection* in)
{
    const sumi_sigma_rule* rule = &in->sigmas;
    sumi_error error = {0};
    json_begin_object(out, "scheduler");
    json_text(out, "path", in->checkpoint.scheduler.path);
    if (!inspection_read_schedule(in, &error)) {
        json_text(out, "reason", error.text);
    } else if (rule->kind == SUMI_SHIFT_EMPIRICAL) {
        json_text(out, "shift_curve", rule->empirical.curve == SUMI_CURVE_EXPONENTIAL ? "exponential" : "linear");
        json_integer(out, "few_steps", rule->empirical.few_steps);
        json_number(out, "few_slope", rule->empirical.few.slope);
        json_number(out, "few_offset", rule->empirical.few.offset);
        json_integer(out, "many_steps", rule->empirical.many_steps);
        json_number(out, "many_slope", rule->empirical.many.slope);
        json_number(out, "many_offset", rule->empirical.many.offset);
        json_integer(out, "max_tokens", rule->empirical.max_tokens);
        json_number(out, "last_sigma", (double)rule->terminal);
    } else if (rule->kind == SUMI_SHIFT_DYNAMIC) {
        json_text(out, "shift_curve", rule->dynamic.curve == SUMI_CURVE_EXPONENTIAL ? "exponential" : "linear");
        json_number(out, "base_shift", rule->dynamic.base_shift);
        json_integer(out, "base_tokens", rule->dynamic.base_tokens);
        json_number(out, "max_shift", rule->dynamic.max_shift);
        json_integer(out, "max_tokens", rule->dynamic.max_tokens);
        json_number(out, "last_sigma", (double)rule->terminal);
    } else if (rule->kind == SUMI_SHIFT_LISTED) {
        json_begin_array(out, "sigmas");
        for (int32_t i = 0; i < rule->listed.count; i++) json_number(out, NULL, (double)rule->listed.levels[i]);
        json_end_array(out);
    } else {
        json_number(out, "shift", (double)rule->shift);
        json_number(out, "last_sigma", (double)rule->terminal);
    }
    json_end_object(out);
}

void inspect_checkpoint_json(inspection* in)
{
    json_out out = {.file = stdout};
    const char* family = in->recipe ? in->recipe->family : inspection_family(&in->checkpoint);
    json_begin_object(&out, NULL);
    json_text(&out, "path", in->path);
    json_text(&out, "kind", "checkpoint");
    json_text(&out, "family", family[0] ? family : NULL);
    json_text(&out, "variant", in->variant ? in->variant->name : NULL);
    json_bool(&out, "is_supported", in->recipe != NULL);
    licence found;
    licence_find(in->path, &in->checkpoint, in->recipe, &found);
    if (found.source[0]) {
        json_begin_object(&out, "licence");
        json_text(&out, "id", found.id);
        json_text(&out, "name", found.name);
        json_text(&out, "link", found.link);
        json_text(&out, "source", found.source);
        json_end_object(&out);
    }
    if (in->recipe) json_integer(&out, "max_references", in->recipe->references.max_count);
    for (int32_t kind = 0; kind < SUMI_COMPONENT_COUNT; kind++) put_part(&out, in, (sumi_component_kind)kind);
    put_tokenizer(&out, in, 0);
    put_tokenizer(&out, in, 1);
    put_schedule(&out, in);
    json_bool(&out, "has_faults", in->has_faults);
    json_end_object(&out);
}

// ---- Other files ----------------------------------------------------------------------------------------------------

static void put_adapter(json_out* out, const adapter_summary* adapter)
{
    sumi_adapter_kind method = SUMI_ADAPTER_LORA; // that most layers have
    for (sumi_adapter_kind kind = SUMI_ADAPTER_LOHA; kind <= SUMI_ADAPTER_DIFF; kind++) {
        if (adapter->kinds[kind] > adapter->kinds[method]) method = kind;
    }
    json_text(out, "method", inspection_kind_name(method));
    json_unsigned(out, "layer_count", adapter->layers);
    json_text(out, "first_tensor", adapter->first);
    json_unsigned(out, "lora_count", adapter->kinds[SUMI_ADAPTER_LORA]);
    json_unsigned(out, "loha_count", adapter->kinds[SUMI_ADAPTER_LOHA]);
    json_unsigned(out, "lokr_count", adapter->kinds[SUMI_ADAPTER_LOKR]);
    json_unsigned(out, "difference_count", adapter->kinds[SUMI_ADAPTER_DIFF]);
    json_unsigned(out, "dora_count", adapter->doras);
    json_unsigned(out, "whole_factor_count", adapter->whole_factors);
    json_unsigned(out, "product_factor_count", adapter->product_factors);
    json_unsigned(out, "norm_count", adapter->norms);
    json_unsigned(out, "bias_count", adapter->biases);
    json_unsigned(out, "text_layer_count", adapter->text_layers);
    json_unsigned(out, "unknown_count", adapter->unknown);
    json_text(out, "fault", adapter->fault[0] ? adapter->fault : NULL);
    json_text(out, "names", adapter->naming);
    json_text(out, "alpha", adapter->alpha);
    json_begin_array(out, "ranks");
    for (size_t i = 0; i < ADAPTER_MAX_RANKS && adapter->rank_counts[i]; i++) {
        json_begin_object(out, NULL);
        json_integer(out, "rank", adapter->ranks[i]);
        json_unsigned(out, "layer_count", adapter->rank_counts[i]);
        json_end_object(out);
    }
    json_end_array(out);
}

void inspect_loose_file_json(const inspection* in, const sumi_tensor_set* set, const adapter_summary* adapter)
{
    json_out out = {.file = stdout};
    const tensor_totals sum = inspection_set_totals(set);
    json_begin_object(&out, NULL);
    json_text(&out, "path", in->path);
    json_text(&out, "kind", in->is_prompt ? "prompt" : adapter ? "adapter" : "tensors");
    if (in->is_prompt) prompt_put(&out, set);
    if (adapter) put_adapter(&out, adapter);
    put_totals(&out, &sum);
    if (in->lists_tensors) {
        json_begin_array(&out, "tensors");
        for (size_t i = 0; i < set->count; i++) put_tensor(&out, set->tensors[i].name, &set->tensors[i]);
        json_end_array(&out);
    }
    json_end_object(&out);
}

void inspect_picture_json(const inspection* in, const picture_file* image, const parameters* settings)
{
    static const char* const s_formats[] = {NULL, "PNG", "JPEG", "WebP"};
    json_out out = {.file = stdout};
    json_begin_object(&out, NULL);
    json_text(&out, "path", in->path);
    json_text(&out, "kind", "picture");
    json_text(&out, "format", s_formats[image->format]);
    json_integer(&out, "width", image->width);
    json_integer(&out, "height", image->height);
    json_integer(&out, "channel_count", image->channel_count);
    json_text(&out, "parameters", image->parameters);
    if (image->parameters) {
        json_begin_object(&out, "settings"); // what the text does not say has no member
        if (settings->prompt) json_text(&out, "prompt", settings->prompt);
        if (settings->negative) json_text(&out, "negative", settings->negative);
        if (settings->model_name) json_text(&out, "model", settings->model_name);
        if (settings->loras) json_text(&out, "loras", settings->loras);
        if (settings->controls) json_text(&out, "controls", settings->controls);
        if (settings->has_seed) json_unsigned(&out, "seed", settings->seed);
        if (settings->step_count) json_integer(&out, "steps", settings->step_count);
        if (settings->width) json_integer(&out, "width", settings->width);
        if (settings->width) json_integer(&out, "height", settings->height);
        if (settings->solver >= 0) json_text(&out, "solver", parameters_solver_name((sumi_solver)settings->solver));
        if (settings->guidance >= 0.0f) json_number(&out, "guidance", (double)settings->guidance);
        if (settings->cfg_scale >= 0.0f) json_number(&out, "cfg_scale", (double)settings->cfg_scale);
        if (settings->shift > 0.0f) json_number(&out, "shift", (double)settings->shift);
        if (settings->step_cache > 0.0f) json_number(&out, "step_cache", (double)settings->step_cache);
        if (settings->step_cache_db > 0.0f) json_number(&out, "step_cache_db", (double)settings->step_cache_db);
        if (settings->step_cache_every > 0) json_integer(&out, "step_cache_every", settings->step_cache_every);
        if (settings->strength >= 0.0f) json_number(&out, "strength", (double)settings->strength);
        if (settings->reference_count) json_integer(&out, "references", settings->reference_count);
        json_end_object(&out);
    }
    json_end_object(&out);
}
