// sumi inspect: prints the content of a path, recognised by its tensors: components, layers, types, files and missing
// tensors; or the ranks of an adapter; or a control net; or what an encoded prompt is of; or the settings in a picture. Of
// checkpoints it reads only headers and the small tensors that binding needs (biases), and computes nothing, so it is
// quick for tens of gigabytes.
#include "commands.h"
#include "control_inspection.h"
#include "files.h"
#include "inspection.h"
#include "licence.h"
#include "prompt_inspection.h"
#include "session.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_bytes(uint64_t bytes)
{
    if (bytes >= 1000000000u) printf("%.2f GB", 1e-9 * (double)bytes);
    else if (bytes >= 1000000u) printf("%.1f MB", 1e-6 * (double)bytes);
    else printf("%.1f kB", 1e-3 * (double)bytes);
}

static void print_totals(const tensor_totals* sum)
{
    double values = (double)sum->values;
    printf("    tensors      %zu, %.2f %s values, ", sum->count,
           values >= 1e9   ? 1e-9 * values
           : values >= 1e6 ? 1e-6 * values
                           : 1e-3 * values,
           values >= 1e9   ? "billion"
           : values >= 1e6 ? "million"
                           : "thousand");
    print_bytes(sum->bytes);
    printf("\n    types        ");
    bool first = true;
    for (int type = 0; type < SUMI_DTYPE_COUNT; type++) {
        if (!sum->type_counts[type]) continue;
        printf("%s%s: %zu tensors, ", first ? "" : "; ", sumi_dtype_get((sumi_dtype)type)->name,
               sum->type_counts[type]);
        print_bytes(sum->type_bytes[type]);
        first = false;
    }
    printf("%s\n", first ? "none" : "");
}

static void print_tensor(const char* name, const sumi_tensor* tensor)
{
    printf("      %-60s %-8s [", shown(name), sumi_dtype_get(tensor->dtype)->name);
    for (int32_t i = 0; i < tensor->rank; i++) printf("%s%lld", i ? ", " : "", (long long)tensor->shape[i]);
    printf("]\n");
}

static void print_files(const sumi_tensor_set* set)
{
    for (size_t i = 0; i < set->opened_count; i++) {
        printf("    file         %s, ", shown(set->opened[i].path));
        print_bytes(set->opened[i].bytes);
        printf("\n");
    }
}

// ---- Components -----------------------------------------------------------------------------------------------------

static long long dimension(const sumi_component* part, const char* name, int32_t axis)
{
    return (long long)sumi_tensor_find_size(part, name, axis);
}

static long long either(long long a, long long b) { return a ? a : b; }

static void print_text_encoder(const sumi_component* part)
{
    // prefixes that other programs put in front of the tensor names
    static const char* const s_prefixes[] = {"model.", "", "model.language_model.", "language_model.model.",
                                             "language_model."};
    long long vocabulary = dimension(part, "token_embd.weight", 0), width = dimension(part, "token_embd.weight", 1);
    int32_t layers = expected_count(part, "blk.");
    for (size_t i = 0; i < sizeof s_prefixes / sizeof *s_prefixes; i++) {
        char name[64];
        snprintf(name, sizeof name, "%sembed_tokens.weight", s_prefixes[i]);
        vocabulary = either(vocabulary, dimension(part, name, 0));
        width = either(width, dimension(part, name, 1));
        snprintf(name, sizeof name, "%slayers.", s_prefixes[i]);
        if (!layers) layers = expected_count(part, name);
    }
    if (width && layers) printf("    network      %d layers, width %lld, %lld tokens\n", layers, width, vocabulary);
}

// The text tower of Jina CLIP, whose heads have width 64.
static void print_text_encoder_2(const sumi_component* part)
{
    static const char* const s_prefixes[] = {"text_model.transformer.roberta.", "model."};
    static const char* const s_words[] = {"embeddings.word_embeddings.weight",
                                          "embeddings.word_embeddings.parametrizations.weight.original"};
    long long vocabulary = 0, width = 0, rank = 0;
    int32_t layers = 0;
    for (size_t i = 0; i < 2; i++) {
        char name[160];
        for (size_t k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s%s", s_prefixes[i], s_words[k]);
            vocabulary = either(vocabulary, dimension(part, name, 0));
            width = either(width, dimension(part, name, 1));
        }
        snprintf(name, sizeof name, "%sembeddings.word_embeddings.parametrizations.weight.0.lora_A", s_prefixes[i]);
        rank = either(rank, dimension(part, name, 2));
        snprintf(name, sizeof name, "%sencoder.layers.", s_prefixes[i]);
        if (!layers) layers = expected_count(part, name);
    }
    if (!width || !layers) return;
    printf("    network      %d layers, width %lld, %lld tokens, one pooled row", layers, width, vocabulary);
    if (rank) printf(", an adapter of rank %lld beside the weights", rank);
    printf("\n");
}

// The transformer of Z-Image and related families, also with the tensor names of Lumina 2 in diffusers.
static void print_next_dit(const sumi_component* part)
{
    const long long width = either(dimension(part, "layers.0.attention_norm1.weight", 0),
                                   dimension(part, "layers.0.norm1.norm.weight", 0)),
                    head = either(either(dimension(part, "layers.0.attention.norm_q.weight", 0),
                                         dimension(part, "layers.0.attention.q_norm.weight", 0)),
                                  dimension(part, "layers.0.attn.norm_q.weight", 0)),
                    pooled = dimension(part, "clip_text_pooled_proj.1.weight", 1);
    printf("    network      %d layers and 2 x %d refiners, width %lld, %lld heads of %lld, feed-forward %lld, "
           "captions %lld wide",
           expected_count(part, "layers."), expected_count(part, "noise_refiner."), width, head ? width / head : 0,
           head,
           either(dimension(part, "layers.0.feed_forward.w1.weight", 0),
                  dimension(part, "layers.0.feed_forward.linear_1.weight", 0)),
           either(dimension(part, "cap_embedder.1.weight", 1),
                  dimension(part, "time_caption_embed.caption_embedder.1.weight", 1)));
    if (pooled) printf(", a pooled row of %lld", pooled);
    printf("\n");
}

static void print_flux(const sumi_component* part)
{
    const long long width = either(dimension(part, "x_embedder.weight", 0), dimension(part, "img_in.weight", 0)),
                    head = either(dimension(part, "transformer_blocks.0.attn.norm_q.weight", 0),
                                  dimension(part, "double_blocks.0.img_attn.norm.query_norm.scale", 0));
    printf("    network      %lld blocks of two streams and %lld of one, width %lld, %lld heads of %lld, feed-forward "
           "%lld, captions %lld wide\n",
           either(expected_count(part, "transformer_blocks."), expected_count(part, "double_blocks.")),
           either(expected_count(part, "single_transformer_blocks."), expected_count(part, "single_blocks.")), width,
           head ? width / head : 0, head,
           either(dimension(part, "transformer_blocks.0.ff.linear_out.weight", 1),
                  dimension(part, "double_blocks.0.img_mlp.2.weight", 1)),
           either(dimension(part, "context_embedder.weight", 1), dimension(part, "txt_in.weight", 1)));
}

// The transformer of Qwen-Image-2.1. Gate and projection of the feed-forward are two tensors or one.
static void print_prefix_dit(const sumi_component* part)
{
    const long long width = dimension(part, "img_in.weight", 0),
                    head = dimension(part, "transformer_blocks.0.attn.norm_q.weight", 0);
    printf("    network      %d blocks of one stream, width %lld, %lld heads of %lld, feed-forward %lld, captions %lld "
           "wide, gate and projection in %s\n",
           expected_count(part, "transformer_blocks."), width, head ? width / head : 0, head,
           dimension(part, "transformer_blocks.0.img_mlp.out.weight", 1), dimension(part, "txt_in.text_norm.weight", 0),
           sumi_component_find(part, "transformer_blocks.0.img_mlp.gate_up.weight") ? "one tensor" : "two tensors");
}

static void print_transformer(const inspection* in, const sumi_component* part)
{
    const char* family = inspection_family(&in->checkpoint);
    if (strcmp(family, "z-image") == 0 || strcmp(family, "newbie-image") == 0) print_next_dit(part);
    const bool is_flux = strcmp(sumi_component_network(part), "flux2") == 0,
               is_prefix = strcmp(sumi_component_network(part), "qwen-image-2.1") == 0;
    if (is_flux) print_flux(part);
    if (is_prefix) print_prefix_dit(part);
    int32_t blocks = is_flux || is_prefix ? 0 : expected_count(part, "transformer_blocks.");
    if (blocks) {
        long long width = dimension(part, "img_in.weight", 0),
                  head = dimension(part, "transformer_blocks.0.attn.norm_q.weight", 0);
        printf("    network      %d blocks of two streams, width %lld, %lld heads of %lld, feed-forward %lld, captions "
               "%lld wide\n",
               blocks, width, head ? width / head : 0, head,
               dimension(part, "transformer_blocks.0.img_mlp.net.0.proj.weight", 0),
               dimension(part, "txt_norm.weight", 0));
    }
    // single files have this tensor instead of the member zero_cond_t of config.json
    bool is_marked = sumi_component_find(part, "__index_timestep_zero__") != NULL;
    if (is_marked || expected_flag(&part->config, "zero_cond_t"))
        printf("    references   are modulated by time 0 (%s)\n",
               is_marked ? "the tensor __index_timestep_zero__" : "zero_cond_t of config.json");
}

// The vision towers of Qwen2.5-VL and Qwen3-VL, by their own names and by llama.cpp's.
static void print_vision(const sumi_component* part)
{
    const int32_t blocks = (int32_t)either(expected_count(part, "blocks."), expected_count(part, "v.blk."));
    if (!blocks) return;
    printf("    network      %d blocks, width %lld, rows %lld wide\n", blocks,
           either(either(dimension(part, "merger.ln_q.weight", 0), dimension(part, "merger.norm.weight", 0)),
                  dimension(part, "v.post_ln.weight", 0)),
           either(either(dimension(part, "merger.mlp.2.weight", 0), dimension(part, "merger.linear_fc2.weight", 0)),
                  dimension(part, "mm.2.weight", 0)));
}

static void print_network(const inspection* in, sumi_component_kind kind)
{
    const sumi_component* part = &in->checkpoint.components[kind];
    if (kind == SUMI_COMPONENT_TRANSFORMER) print_transformer(in, part);
    if (kind == SUMI_COMPONENT_TEXT_ENCODER) print_text_encoder(part);
    if (kind == SUMI_COMPONENT_TEXT_ENCODER_2) print_text_encoder_2(part);
    if (kind == SUMI_COMPONENT_VISION) print_vision(part);
    long long channels = either(dimension(part, "decoder.conv_in.weight", 1), // the second name is that of Wan
                                dimension(part, "decoder.conv1.weight", 1));
    if (kind == SUMI_COMPONENT_VAE && channels) {
        bool encodes = sumi_component_find(part, "encoder.conv_in.weight") != NULL
                    || sumi_component_find(part, "encoder.conv1.weight") != NULL;
        printf("    network      %lld latent channels, decoder%s\n", channels,
               encodes ? " and encoder" : " only: no image to image");
    }
}

static void print_check(inspection* in, sumi_component_kind kind)
{
    part_check check;
    inspection_check(in, kind, &check);
    if (check.state == PART_NOT_USABLE) printf("    not usable   %s\n", shown(check.reason));
    if (check.state == PART_COMPLETE) printf("    missing      nothing\n");
    if (check.state != PART_INCOMPLETE) return;
    printf("    missing      %d tensors\n", check.missing.count);
    for (int32_t i = 0; i < check.missing.count && i < 64; i++) printf("      %s\n", shown(check.missing.names[i]));
    if (check.missing.count > 64) printf("      and %d more\n", check.missing.count - 64);
}

static void print_part(inspection* in, sumi_component_kind kind)
{
    const sumi_component* part = &in->checkpoint.components[kind];
    if (!part->present && !inspection_uses(in, kind)) return;
    if (!part->present) {
        sumi_error error = {0};
        const bool is_known = sumi_checkpoint_check_absent(&in->checkpoint, kind, &error) != SUMI_OK;
        printf("  %-14s missing", sumi_component_kind_name(kind));
        if (is_known) printf(": %s", shown(error.text));
        else if (part->path) printf(": nothing in %s", shown(part->path));
        printf("\n");
        return;
    }
    const char* network = sumi_component_network(part);
    printf("  %-14s %s%s%s", sumi_component_kind_name(kind), shown(part->path), network[0] ? ", " : "", network);
    if (part->prefix[0]) printf(", names begin with %s", shown(part->prefix));
    printf("%s\n", part->config.data ? "" : ", no config.json: shapes tell");
    print_network(in, kind);
    const tensor_totals sum = inspection_part_totals(part);
    print_totals(&sum);
    print_files(part->set);
    print_check(in, kind);
    for (size_t i = 0; i < part->set->count && in->lists_tensors; i++) {
        const char* name = sumi_component_tensor_name(part, &part->set->tensors[i]);
        if (name) print_tensor(name, &part->set->tensors[i]);
    }
}

static void print_tokenizer(inspection* in, int32_t encoder)
{
    const sumi_checkpoint* checkpoint = &in->checkpoint;
    const sumi_checkpoint_tokenizer* files = &checkpoint->tokenizers[encoder];
    const char* label = encoder == 0 ? "tokenizer" : "tokenizer_2";
    if (files->form == SUMI_TOKENIZER_ABSENT) {
        printf("  %-14s missing\n", label);
        return;
    }
    sumi_error error = {0};
    size_t ids;
    const bool is_read = inspection_count_ids(in, encoder, &ids, &error);
    printf("  %-14s %s, ", label, shown(files->path));
    print_bytes(files->bytes);
    printf(", %s", inspection_tokenizer_form(files));
    if (is_read) printf(", ids 0 to %zu\n", ids - 1);
    else printf("\n    broken       %s\n", error.text);
}

// Prints the image processor, which prepares reference images for the vision tower.
static void print_processor(const inspection* in)
{
    const sumi_file* file = &in->checkpoint.processor;
    if (file->data) printf("  %-14s %s\n", "processor", shown(file->path));
    else if (in->recipe && in->recipe->vision)
        printf("  %-14s missing: the released model's settings are taken\n", "processor");
}

static void print_scheduler(inspection* in)
{
    const sumi_file* file = &in->checkpoint.scheduler;
    const sumi_sigma_rule* rule = &in->sigmas;
    sumi_error error = {0};
    const bool is_read = inspection_read_schedule(in, &error);
    printf("  %-14s ", "scheduler");
    if (!is_read) {
        printf("broken: %s\n", error.text);
        return;
    }
    if (!file->data) printf("missing: %s", in->recipe ? "the released model's is taken: " : "the model's usual one\n");
    if (!file->data && !in->recipe) return;
    if (rule->kind == SUMI_SHIFT_EMPIRICAL)
        printf("%s shift of %g tokens + %g at %d steps to %g tokens + %g at %d, and above %d tokens the last for any "
               "number of steps",
               rule->empirical.curve == SUMI_CURVE_EXPONENTIAL ? "exponential" : "linear", rule->empirical.few.slope,
               rule->empirical.few.offset, rule->empirical.few_steps, rule->empirical.many.slope,
               rule->empirical.many.offset, rule->empirical.many_steps, rule->empirical.max_tokens);
    else if (rule->kind == SUMI_SHIFT_DYNAMIC)
        printf("dynamic shift, %s %g at %d tokens to %g at %d",
               rule->dynamic.curve == SUMI_CURVE_EXPONENTIAL ? "exponential from" : "linear from",
               rule->dynamic.base_shift, rule->dynamic.base_tokens, rule->dynamic.max_shift, rule->dynamic.max_tokens);
    else if (rule->kind == SUMI_SHIFT_LISTED) {
        printf("%d steps, no other number, at the levels", rule->listed.count);
        for (int32_t i = 0; i < rule->listed.count; i++) printf(" %g", (double)rule->listed.levels[i]);
    } else printf("shift %g", (double)rule->shift);
    if (rule->terminal > 0.0f) printf(", last noise level %g", (double)rule->terminal);
    if (file->data) printf(", %g training steps", expected_config(file, "num_train_timesteps"));
    printf("\n");
}

static void print_family(inspection* in)
{
    const sumi_checkpoint* checkpoint = &in->checkpoint;
    const char* family = inspection_family(checkpoint);
    printf("%s\n  %-14s ", shown(in->path), "family");
    if (!in->recipe) {
        printf("%s%s\n",
               family[0]                                                    ? family
               : checkpoint->components[SUMI_COMPONENT_TRANSFORMER].present ? "unknown"
                                                                            : "cannot be told without a transformer",
               family[0] && checkpoint->components[SUMI_COMPONENT_TRANSFORMER].present
                   ? " (this version of sumi does not run it)"
                   : "");
        return;
    }
    printf("%s%s%s", in->recipe->family, in->variant ? " " : "", in->variant ? in->variant->name : "");
    const sumi_reference_rule* references = &in->recipe->references;
    if (references->max_count > 0)
        printf(", %s %d reference picture%s", references->min_count == references->max_count ? "with" : "with up to",
               references->max_count, references->max_count == 1 ? "" : "s");
    printf("\n");
    // model_index.json distinguishes the families that share a transformer, but not always the variants of a family
    const sumi_recipe* recipe;
    const char* between = "    variants     ";
    if (!in->recipe->is_this_family && in->recipe->variant_count == 1)
        return; // there is only one family and one variant
    for (int32_t i = 0; (recipe = sumi_recipe_get(i)) != NULL; i++) {
        if (strcmp(recipe->network, in->recipe->network) != 0) continue;
        if (checkpoint->class_name[0] && recipe != in->recipe) continue;
        for (int32_t k = 0; k < recipe->variant_count; k++) {
            printf("%s%s", between, recipe->variants[k]->name);
            between = ", ";
        }
    }
    printf(": who opens the model may say which, where the files do not\n");
}

// What the author of the checkpoint says; nothing if that is nothing.
static void print_licence(const inspection* in)
{
    licence found;
    licence_find(in->path, &in->checkpoint, in->recipe, &found);
    if (!found.source[0]) return;
    printf("  %-14s %s", "licence", shown(found.id[0] ? found.id : found.name));
    if (found.id[0] && found.name[0]) printf(", %s", shown(found.name));
    if (found.link[0]) printf(", %s", shown(found.link));
    printf(" (%s)\n", shown(found.source));
}

static void print_checkpoint(inspection* in)
{
    const sumi_checkpoint* checkpoint = &in->checkpoint;
    print_family(in);
    print_licence(in);
    for (int32_t kind = 0; kind < SUMI_COMPONENT_COUNT; kind++) print_part(in, (sumi_component_kind)kind);
    // a folder with only a second text encoder has only the second tokenizer
    if (checkpoint->components[SUMI_COMPONENT_TEXT_ENCODER].present
        || !checkpoint->components[SUMI_COMPONENT_TEXT_ENCODER_2].present || in->recipe)
        print_tokenizer(in, 0);
    if (checkpoint->components[SUMI_COMPONENT_TEXT_ENCODER_2].present || (in->recipe && in->recipe->encoder_count > 1))
        print_tokenizer(in, 1);
    print_processor(in);
    print_scheduler(in);
}

// ---- Files that are not a checkpoint --------------------------------------------------------------------------------

static void print_adapter(const inspection* in, const adapter_summary* adapter)
{
    const char* between = "";
    printf("%s\n  adapter        ", shown(in->path));
    for (sumi_adapter_kind kind = SUMI_ADAPTER_LORA; kind <= SUMI_ADAPTER_DIFF; kind++) {
        if (!adapter->kinds[kind]) continue;
        printf("%s%s of %zu layers", between, inspection_kind_name(kind), adapter->kinds[kind]);
        between = ", ";
    }
    if (adapter->norms) printf("%s%zu norms", between, adapter->norms), between = ", ";
    if (adapter->biases) printf("%s%zu biases", between, adapter->biases), between = ", ";
    printf("%s%s names (%s)\n", between, adapter->naming, shown(adapter->first));
    if (adapter->doras) printf("  magnitude      DoRA: %zu of the layers\n", adapter->doras);
    if (adapter->rank_counts[0]) {
        printf("  rank           ");
        for (size_t i = 0; i < ADAPTER_MAX_RANKS && adapter->rank_counts[i]; i++)
            printf("%s%lld: %zu layers", i ? ", " : "", adapter->ranks[i], adapter->rank_counts[i]);
        printf("\n");
    }
    if (adapter->kinds[SUMI_ADAPTER_LOKR])
        printf("  first factor   whole: %zu layers, as a product: %zu layers\n", adapter->whole_factors,
               adapter->product_factors);
    if (adapter->kinds[SUMI_ADAPTER_DIFF] != adapter->layers) printf("  alpha          %s\n", adapter->alpha);
    if (adapter->text_layers)
        printf("  text encoder   %zu of the layers (%s)\n", adapter->text_layers, shown(adapter->text_name));
    if (adapter->fault[0]) printf("  not usable     %s\n", shown(adapter->fault));
}

// Reads the adapter for a model as generate does. Prints why it does not fit, and returns an exit code.
static int try_adapter(const inspection* in)
{
    const session_args args = {.model = in->model, .backend = SUMI_BACKEND_CPU, .quiet = true};
    cli_session session = {0};
    char doing[1100];
    snprintf(doing, sizeof doing, "loading the adapter %s", in->path);
    int code = session_open(&session, &args);
    if (code == EXIT_OK) code = session_load_model(&session, !in->has_text_layers, true);
    if (code == EXIT_OK) {
        sumi_lora_desc desc = sumi_lora_defaults(session.model);
        desc.path = in->path;
        sumi_job job;
        const sumi_result result = sumi_submit_lora(session.engine, &desc, &job);
        code =
            result == SUMI_OK ? session_run(&session, job, doing, NULL, NULL) : session_fail(&session, result, doing);
        sumi_lora* lora = NULL;
        if (code == EXIT_OK && sumi_fetch_lora(session.engine, job, &lora) == SUMI_OK) sumi_lora_release(lora);
    }
    session_close(&session);
    return code == EXIT_OK ? EXIT_OK : EXIT_FAILED;
}

// Prints an adapter or an encoded prompt, or with `takes_unknown` any file of tensors. Returns false when it is none of
// them, or cannot be read; the checkpoint reader then says why.
static bool inspect_loose_file(inspection* in, bool takes_unknown)
{
    sumi_error error = {0};
    sumi_tensor_set set;
    adapter_summary adapter;
    sumi_tensor_set_init(&set, &in->heap, NULL);
    const bool is_read = sumi_tensor_set_open(&set, in->path, &error) == SUMI_OK;
    in->is_prompt = is_read && prompt_is_one(&set);
    const bool is_adapter = is_read && !in->is_prompt && inspection_read_adapter(in, &set, &adapter),
               is_shown = is_adapter || in->is_prompt || (is_read && takes_unknown);
    if (is_shown && in->is_json) {
        inspect_loose_file_json(in, &set, is_adapter ? &adapter : NULL);
    } else if (is_shown) {
        const tensor_totals sum = inspection_set_totals(&set);
        if (in->is_prompt) prompt_print(in, &set);
        else if (is_adapter) print_adapter(in, &adapter);
        else printf("%s\n  %-14s neither a known model's nor an adapter's\n", shown(in->path), "tensors");
        print_totals(&sum);
        for (size_t i = 0; i < set.count && in->lists_tensors; i++) print_tensor(set.tensors[i].name, &set.tensors[i]);
    }
    sumi_tensor_set_close(&set);
    return is_shown;
}

// ---- Pictures -------------------------------------------------------------------------------------------------------

static void print_picture(const inspection* in, const picture_file* image, const parameters* settings)
{
    static const char* const s_formats[] = {"", "PNG", "JPEG", "WebP"};
    static const char* const s_rules[] = {"", "plain", "norm-limit", "norm-rescale"};
    printf("%s\n  %-14s %s, %dx%d, %s\n", shown(in->path), "picture", s_formats[image->format], image->width,
           image->height,
           image->channel_count == 1   ? "grey"
           : image->channel_count == 3 ? "RGB"
                                       : "RGB and alpha");
    if (!image->parameters) {
        printf("  %-14s none in this file\n", "parameters");
        return;
    }
    if (settings->prompt) printf("  %-14s %s\n", "prompt", shown(settings->prompt));
    if (settings->negative) printf("  %-14s %s\n", "negative", shown(settings->negative));
    if (settings->model_name) printf("  %-14s %s\n", "model", shown(settings->model_name));
    if (settings->loras) printf("  %-14s %s\n", "adapters", shown(settings->loras));
    if (settings->controls) printf("  %-14s %s\n", "control nets", shown(settings->controls));
    if (settings->has_seed) printf("  %-14s %llu\n", "seed", (unsigned long long)settings->seed);
    if (settings->step_count) printf("  %-14s %d\n", "steps", settings->step_count);
    if (settings->width) printf("  %-14s %dx%d\n", "size", settings->width, settings->height);
    if (settings->solver >= 0) printf("  %-14s %s\n", "solver", parameters_solver_name((sumi_solver)settings->solver));
    if (settings->guidance >= 0.0f)
        printf("  %-14s %g%s%s\n", "guidance", (double)settings->guidance, settings->guidance_rule > 0 ? ", " : "",
               s_rules[settings->guidance_rule]);
    if (settings->cfg_scale >= 0.0f)
        printf("  %-14s %g, the scale in which 1 is no guidance\n", "CFG scale", (double)settings->cfg_scale);
    if (settings->shift > 0.0f) printf("  %-14s %g\n", "shift", (double)settings->shift);
    char step_cache[24];
    parameters_write_step_cache(settings, step_cache);
    if (strcmp(step_cache, "0") != 0) printf("  %-14s %s\n", "step cache", step_cache);
    if (settings->strength >= 0.0f) printf("  %-14s %g\n", "strength", (double)settings->strength);
    if (settings->reference_count) printf("  %-14s %d\n", "references", settings->reference_count);
}

static int inspect_picture(const inspection* in)
{
    picture_file image;
    char message[PICTURE_MESSAGE_BYTES];
    if (!picture_read(in->path, 0, &image, message)) {
        fprintf(stderr, "sumi: %s\n", message);
        return EXIT_FAILED;
    }
    parameters settings = parameters_none();
    char* strings = image.parameters ? parameters_read(image.parameters, &settings) : NULL;
    if (in->is_json) inspect_picture_json(in, &image, &settings);
    else print_picture(in, &image, &settings);
    free(strings);
    picture_free(&image);
    return EXIT_OK;
}

// ---- The command ----------------------------------------------------------------------------------------------------

static int inspect(inspection* in)
{
    inspection_enter_adapter_folder(in);
    if (sumi_path_is_file(in->path) && picture_is_one(in->path)) return inspect_picture(in);
    if (sumi_path_is_file(in->path) && inspect_loose_file(in, false)) {
        const int code = !in->model ? EXIT_OK : in->is_prompt ? prompt_try(in) : try_adapter(in);
        if (in->model && code == EXIT_OK && !in->is_json)
            printf("  %-14s %s %s\n", "model", in->is_prompt ? "it fits" : "its layers are in", shown(in->model));
        return in->has_faults ? EXIT_FAILED : code;
    }
    const int control = inspect_control(in);
    if (control >= 0) return control;
    if (in->model) {
        fprintf(stderr, "sumi: %s: --model is for adapters, control nets and encoded prompts, and this is none\n",
                shown(in->path));
        return EXIT_FAILED;
    }
    sumi_error error = {0};
    sumi_checkpoint_desc desc = {.path = in->path};
    desc.signatures = sumi_signatures(&desc.signature_count);
    desc.methods = sumi_foreign_methods(&desc.method_count);
    desc.class_words = sumi_class_words();
    sumi_result result = sumi_checkpoint_open(&in->checkpoint, &in->heap, NULL, &desc, &error);
    if (result == SUMI_MODEL_UNKNOWN && sumi_path_is_file(in->path) && inspect_loose_file(in, true)) return EXIT_FAILED;
    if (result != SUMI_OK) {
        fprintf(stderr, "sumi: %s\n  %s\n", sumi_result_text(result), error.text);
        return EXIT_FAILED;
    }
    inspection_find_recipe(in);
    if (in->is_json) inspect_checkpoint_json(in);
    else print_checkpoint(in);
    return in->has_faults ? EXIT_FAILED : EXIT_OK;
}

int inspect_main(int argc, char** argv)
{
    inspection in = {0};
    const cli_option options[] = {
        {"--json", OPTION_FLAG, &in.is_json, NULL, "print JSON, for other programs", 0, 0},
        {"--model", OPTION_TEXT, &in.model, "PATH",
         "of an adapter, a control net or an encoded prompt: also try whether it fits this model", 0, 0},
        {"--tensors", OPTION_FLAG, &in.lists_tensors, NULL, "also list every tensor with its type and shape", 0, 0},
    };
    const cli_command command = {
        .name = "inspect",
        .about =
            "Prints what PATH holds: a diffusers folder, the folder or file of one part, a single-file "
            "checkpoint, an adapter, a control net, an encoded prompt, or a picture with the settings that made "
            "it. Missing tensors, and what generate would refuse of an adapter, are named; the exit code is then 1.",
        .operand = "PATH",
        .operand_value = &in.path,
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .examples =
            "  sumi inspect models/Z-Image-Turbo\n  sumi inspect style.safetensors --model models/Z-Image-Turbo\n"
            "  sumi inspect lighthouse.png\n",
    };
    args_result parsed = args_parse(&command, argc, argv);
    if (parsed != ARGS_RUN) return parsed == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
    sumi_heap_init(&in.heap, NULL);
    int code = inspect(&in);
    sumi_checkpoint_close(&in.checkpoint);
    return code;
}
