// sumi inspect: prints the content of a path, recognised by its tensors: components, layers, types, files and missing
// tensors; or the ranks of an adapter. It reads only headers and the small tensors that binding needs (biases), and
// computes nothing, so it is quick for tens of gigabytes.
#include "commands.h"
#include "expected.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct inspection {
    const char* path;
    bool lists_tensors;
    sumi_heap heap;
    sumi_checkpoint checkpoint;
    const sumi_recipe* recipe; // of the family; NULL: this library does not run the family
    const sumi_variant* variant;
    sumi_sigma_rule sigmas;
    bool has_faults;
    char file[4096]; // the adapter's file, if the path is a folder
} inspection;

static void print_bytes(uint64_t bytes)
{
    if (bytes >= 1000000000u) printf("%.2f GB", 1e-9 * (double)bytes);
    else if (bytes >= 1000000u) printf("%.1f MB", 1e-6 * (double)bytes);
    else printf("%.1f kB", 1e-3 * (double)bytes);
}

// ---- Types and files of a range of tensors --------------------------------------------------------------------------

typedef struct totals {
    size_t count;
    uint64_t values, bytes;
    size_t type_counts[SUMI_DTYPE_COUNT];
    uint64_t type_bytes[SUMI_DTYPE_COUNT];
} totals;

static void add_tensor(totals* sum, const sumi_tensor* tensor)
{
    uint64_t values = 1;
    for (int32_t i = 0; i < tensor->rank; i++) values *= (uint64_t)tensor->shape[i];
    sum->count++;
    sum->values += values;
    sum->bytes += tensor->bytes;
    sum->type_counts[tensor->dtype]++;
    sum->type_bytes[tensor->dtype] += tensor->bytes;
}

static void print_totals(const totals* sum)
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
    printf("      %-60s %-8s [", name, sumi_dtype_get(tensor->dtype)->name);
    for (int32_t i = 0; i < tensor->rank; i++) printf("%s%lld", i ? ", " : "", (long long)tensor->shape[i]);
    printf("]\n");
}

static void print_files(const sumi_tensor_set* set)
{
    for (size_t i = 0; i < set->opened_count; i++) {
        printf("    file         %s, ", set->opened[i].path);
        print_bytes(set->opened[i].bytes);
        printf("\n");
    }
}

// ---- Components -----------------------------------------------------------------------------------------------------

// Returns the network of the transformer, or without a transformer the family of the pipeline's class name.
static const char* family_of(const sumi_checkpoint* checkpoint)
{
    const sumi_component* transformer = &checkpoint->components[SUMI_COMPONENT_TRANSFORMER];
    return transformer->present ? sumi_component_network(transformer) : sumi_family_of_class(checkpoint->class_name);
}

static long long dimension(const sumi_component* part, const char* name, int32_t axis)
{
    const sumi_tensor* tensor = sumi_component_find(part, name);
    return tensor && axis < tensor->rank ? (long long)tensor->shape[axis] : 0;
}

static long long either(long long a, long long b) { return a ? a : b; }

// Finds the recipe as opening a model does: the first recipe for the transformer's network that claims the checkpoint.
// The recipe gives the variant and the sigma schedule of the files.
static void find_recipe(inspection* in)
{
    const sumi_checkpoint* checkpoint = &in->checkpoint;
    const char* network = sumi_component_network(&checkpoint->components[SUMI_COMPONENT_TRANSFORMER]);
    const sumi_recipe* recipe;
    in->sigmas = sumi_scheduler_defaults();
    for (int32_t i = 0; (recipe = sumi_recipe_get(i)) != NULL && !in->recipe; i++) {
        if (strcmp(recipe->network, network) == 0 && (!recipe->is_this_family || recipe->is_this_family(checkpoint)))
            in->recipe = recipe;
    }
}

static void print_text_encoder(const sumi_component* part)
{
    // prefixes that other programs put in front of the tensor names
    static const char* const prefixes[] = {"model.", "", "model.language_model.", "language_model.model.",
                                           "language_model."};
    long long vocabulary = dimension(part, "token_embd.weight", 0), width = dimension(part, "token_embd.weight", 1);
    int32_t layers = expected_count(part, "blk.");
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        char name[64];
        snprintf(name, sizeof name, "%sembed_tokens.weight", prefixes[i]);
        vocabulary = either(vocabulary, dimension(part, name, 0));
        width = either(width, dimension(part, name, 1));
        snprintf(name, sizeof name, "%slayers.", prefixes[i]);
        if (!layers) layers = expected_count(part, name);
    }
    if (width && layers) printf("    network      %d layers, width %lld, %lld tokens\n", layers, width, vocabulary);
}

// The text tower of Jina CLIP, whose heads have width 64.
static void print_text_encoder_2(const sumi_component* part)
{
    static const char* const prefixes[] = {"text_model.transformer.roberta.", "model."};
    static const char* const words[] = {"embeddings.word_embeddings.weight",
                                        "embeddings.word_embeddings.parametrizations.weight.original"};
    long long vocabulary = 0, width = 0, rank = 0;
    int32_t layers = 0;
    for (size_t i = 0; i < 2; i++) {
        char name[160];
        for (size_t k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s%s", prefixes[i], words[k]);
            vocabulary = either(vocabulary, dimension(part, name, 0));
            width = either(width, dimension(part, name, 1));
        }
        snprintf(name, sizeof name, "%sembeddings.word_embeddings.parametrizations.weight.0.lora_A", prefixes[i]);
        rank = either(rank, dimension(part, name, 2));
        snprintf(name, sizeof name, "%sencoder.layers.", prefixes[i]);
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

static void print_transformer(const inspection* in, const sumi_component* part)
{
    const char* family = family_of(&in->checkpoint);
    if (strcmp(family, "z-image") == 0 || strcmp(family, "newbie-image") == 0) print_next_dit(part);
    int32_t blocks = expected_count(part, "transformer_blocks.");
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

static void print_network(const inspection* in, sumi_component_kind kind)
{
    const sumi_component* part = &in->checkpoint.components[kind];
    if (kind == SUMI_COMPONENT_TRANSFORMER) print_transformer(in, part);
    if (kind == SUMI_COMPONENT_TEXT_ENCODER) print_text_encoder(part);
    if (kind == SUMI_COMPONENT_TEXT_ENCODER_2) print_text_encoder_2(part);
    if (kind == SUMI_COMPONENT_VISION && expected_count(part, "blocks."))
        printf("    network      %d blocks, width %lld, rows %lld wide\n", expected_count(part, "blocks."),
               dimension(part, "merger.ln_q.weight", 0), dimension(part, "merger.mlp.2.weight", 0));
    long long channels = either(dimension(part, "decoder.conv_in.weight", 1), // the second name is that of Wan
                                dimension(part, "decoder.conv1.weight", 1));
    if (kind == SUMI_COMPONENT_VAE && channels) {
        bool encodes = sumi_component_find(part, "encoder.conv_in.weight") != NULL
                    || sumi_component_find(part, "encoder.conv1.weight") != NULL;
        printf("    network      %lld latent channels, decoder%s\n", channels,
               encodes ? " and encoder" : " only: no image to image");
    }
}

// Binds the tensors of a component with the code of its network module, which checks names, shapes and types as opening
// the model would.
static sumi_result bind_part(inspection* in, sumi_component_kind kind, sumi_error* error)
{
    const sumi_recipe* recipe = in->recipe;
    const sumi_component* part = &in->checkpoint.components[kind];
    const int32_t encoder = kind == SUMI_COMPONENT_TEXT_ENCODER_2;
    size_t bytes = kind == SUMI_COMPONENT_TRANSFORMER ? recipe->denoiser->model_bytes
                 : kind == SUMI_COMPONENT_VAE         ? recipe->autoencoder->model_bytes
                 : kind == SUMI_COMPONENT_VISION      ? (recipe->vision ? recipe->vision->model_bytes : 0)
                 : encoder < recipe->encoder_count    ? recipe->encoders[encoder].module->model_bytes
                                                      : 0;
    if (!bytes) return SUMI_OK; // the family does not use this component
    sumi_weight_list list;
    sumi_weight_list_init(&list, &in->heap);
    sumi_binder binder = {.list = &list, .component = part, .what = "it", .error = error};
    const sumi_module_config config = {part->config.data, (size_t)part->config.bytes,
                                       part->config.path ? part->config.path : part->path};
    const sumi_file* file = &in->checkpoint.processor;
    const sumi_module_config processor = {file->data, (size_t)file->bytes, file->path};
    const void* settings =
        in->variant && in->variant->denoiser_settings ? in->variant->denoiser_settings : recipe->denoiser_settings;
    void* model = sumi_alloc_zero(&in->heap, bytes);
    sumi_result result;
    if (!model) result = sumi_out_of_memory(error, bytes, "a model");
    else if (kind == SUMI_COMPONENT_TRANSFORMER) result = recipe->denoiser->bind(model, settings, &binder, &config);
    else if (kind == SUMI_COMPONENT_VAE)
        result = recipe->autoencoder->bind(model, recipe->autoencoder_settings, &binder, &config, false);
    else if (kind == SUMI_COMPONENT_VISION)
        result = recipe->vision->bind(model, recipe->vision_settings, &binder, &config, &processor);
    else result = recipe->encoders[encoder].module->bind(model, recipe->encoders[encoder].settings, &binder, &config);
    sumi_free(&in->heap, model);
    sumi_weight_list_close(&list);
    return result;
}

static void print_missing(inspection* in, sumi_component_kind kind)
{
    const sumi_component* part = &in->checkpoint.components[kind];
    sumi_error error = {0};
    if (part->signature && part->signature->refusal) {
        printf("    not usable   %s\n", part->signature->refusal);
        in->has_faults = true;
        return;
    }
    missing_list missing;
    bool is_listed = expected_check(family_of(&in->checkpoint), part, kind, &missing);
    if (is_listed && missing.count > 0) {
        in->has_faults = true;
        printf("    missing      %d tensors\n", missing.count);
        for (int32_t i = 0; i < missing.count && i < 64; i++) printf("      %s\n", missing.names[i]);
        if (missing.count > 64) printf("      and %d more\n", missing.count - 64);
        return;
    }
    if (!is_listed && !in->recipe) return;
    if (in->recipe && bind_part(in, kind, &error) != SUMI_OK) {
        printf("    not usable   %s\n", error.text);
        in->has_faults = true;
    } else {
        printf("    missing      nothing\n");
    }
}

static void print_part(inspection* in, sumi_component_kind kind)
{
    const sumi_component* part = &in->checkpoint.components[kind];
    // most families have neither a second text encoder nor a vision tower
    const bool is_used = kind == SUMI_COMPONENT_TEXT_ENCODER_2 ? in->recipe && in->recipe->encoder_count > 1
                                                               : kind != SUMI_COMPONENT_VISION;
    if (!part->present && !is_used) return;
    if (!part->present) {
        printf("  %-14s missing", sumi_component_kind_name(kind));
        if (part->path) printf(": nothing in %s", part->path);
        printf("\n");
        return;
    }
    const char* network = sumi_component_network(part);
    printf("  %-14s %s%s%s", sumi_component_kind_name(kind), part->path, network[0] ? ", " : "", network);
    if (part->prefix[0]) printf(", names begin with %s", part->prefix);
    printf("%s\n", part->config.data ? "" : ", no config.json: shapes tell");
    print_network(in, kind);
    totals sum = {0};
    for (size_t i = 0; i < part->set->count; i++) {
        if (sumi_component_tensor_name(part, &part->set->tensors[i])) add_tensor(&sum, &part->set->tensors[i]);
    }
    print_totals(&sum);
    print_files(part->set);
    print_missing(in, kind);
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
    sumi_tokenizer* tokenizer = NULL;
    float progress;
    bool done = false;
    sumi_result result = sumi_tokenizer_open_begin(&in->heap, files, &error, &tokenizer);
    while (result == SUMI_OK && !done) result = sumi_tokenizer_step(tokenizer, SIZE_MAX, &done, &progress, &error);
    printf("  %-14s %s, ", label, files->path);
    print_bytes(files->bytes);
    printf(", %s", files->form == SUMI_TOKENIZER_JSON         ? "all in one file"
                   : files->form == SUMI_TOKENIZER_VOCABULARY ? "with merges.txt"
                                                              : "SentencePiece");
    if (result == SUMI_OK) printf(", ids 0 to %zu\n", sumi_tokenizer_size(tokenizer) - 1);
    else printf("\n    broken       %s\n", error.text);
    in->has_faults |= result != SUMI_OK;
    sumi_tokenizer_destroy(tokenizer);
}

// Prints the image processor, which prepares reference images for the vision tower.
static void print_processor(const inspection* in)
{
    const sumi_file* file = &in->checkpoint.processor;
    if (file->data) printf("  %-14s %s\n", "processor", file->path);
    else if (in->recipe && in->recipe->vision)
        printf("  %-14s missing: the released model's settings are taken\n", "processor");
}

static void print_scheduler(inspection* in)
{
    const sumi_file* file = &in->checkpoint.scheduler;
    const sumi_sigma_rule* rule = &in->sigmas;
    sumi_error error = {0};
    sumi_result result = in->recipe
                           ? in->recipe->describe(&in->checkpoint, &in->sigmas, &in->variant, &error)
                           : sumi_scheduler_read(file->data, (size_t)file->bytes, file->path, &in->sigmas, &error);
    printf("  %-14s ", "scheduler");
    if (result != SUMI_OK) {
        printf("broken: %s\n", error.text);
        in->has_faults = true;
        return;
    }
    if (!file->data) printf("missing: %s", in->recipe ? "the released model's is taken: " : "the model's usual one\n");
    if (!file->data && !in->recipe) return;
    if (rule->kind == SUMI_SHIFT_DYNAMIC)
        printf("dynamic shift, %s %g at %d tokens to %g at %d",
               rule->dynamic.curve == SUMI_CURVE_EXPONENTIAL ? "exponential from" : "linear from",
               rule->dynamic.base_shift, rule->dynamic.base_tokens, rule->dynamic.max_shift, rule->dynamic.max_tokens);
    else printf("shift %g", (double)rule->shift);
    if (rule->terminal > 0.0f) printf(", last noise level %g", (double)rule->terminal);
    if (file->data) printf(", %g training steps", expected_config(file, "num_train_timesteps"));
    printf("\n");
}

static void print_family(inspection* in)
{
    const sumi_checkpoint* checkpoint = &in->checkpoint;
    const char* family = family_of(checkpoint);
    sumi_error ignored = {0}; // a broken schedule is reported below
    if (in->recipe) (void)in->recipe->describe(checkpoint, &in->sigmas, &in->variant, &ignored);
    printf("%s\n  %-14s ", in->path, "family");
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

static void print_checkpoint(inspection* in)
{
    const sumi_checkpoint* checkpoint = &in->checkpoint;
    find_recipe(in);
    print_family(in);
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

static bool ends_with(const char* text, const char* ending, size_t* out_stem_bytes)
{
    size_t bytes = strlen(text), ending_bytes = strlen(ending);
    if (bytes < ending_bytes || strcmp(text + bytes - ending_bytes, ending) != 0) return false;
    *out_stem_bytes = bytes - ending_bytes;
    return true;
}

// Whether the name is that of the "down" matrix [rank, in] of an adapter's layer.
static bool is_down(const char* name, size_t* out_stem_bytes)
{
    return ends_with(name, ".lora_A.weight", out_stem_bytes)
        || ends_with(name, ".lora_A.default.weight", out_stem_bytes)
        || ends_with(name, ".lora_down.weight", out_stem_bytes);
}

static const char* naming_of(const char* name)
{
    if (strncmp(name, "lora_unet_", 10) == 0 || strncmp(name, "lora_te", 7) == 0) return "kohya";
    if (strstr(name, ".lora_down.")) return "kohya with dots";
    return strncmp(name, "diffusion_model.", 16) == 0 ? "ComfyUI" : "PEFT";
}

// LoKr: the first factor of a layer is stored as one matrix, or as the product of two.
static bool print_kronecker(const inspection* in, const sumi_tensor_set* set)
{
    size_t whole = 0, products = 0, norms = 0, stem_bytes;
    const char* first = NULL;
    for (size_t i = 0; i < set->count; i++) {
        const char* name = set->tensors[i].name;
        const bool is_whole = ends_with(name, ".lokr_w1", &stem_bytes),
                   is_product = ends_with(name, ".lokr_w1_a", &stem_bytes);
        if (!first && (is_whole || is_product)) first = name;
        whole += is_whole;
        products += is_product;
        norms += ends_with(name, ".w_norm", &stem_bytes);
    }
    if (!first && norms == 0) return false;
    printf("%s\n  adapter        LoKr of %zu layers, %zu norms%s%s%s\n", in->path, whole + products, norms,
           first ? " (" : "", first ? first : "", first ? ")" : "");
    if (first) printf("  first factor   whole: %zu layers, as a product: %zu layers\n", whole, products);
    return true;
}

static bool print_adapter(const inspection* in, const sumi_tensor_set* set)
{
    size_t modules = 0, alphas = 0, rank_counts[8] = {0}, stem_bytes;
    long long ranks[8] = {0};
    const char* first = NULL;
    for (size_t i = 0; i < set->count; i++) {
        const sumi_tensor* tensor = &set->tensors[i];
        if (ends_with(tensor->name, ".alpha", &stem_bytes)) alphas++;
        if (!is_down(tensor->name, &stem_bytes) || tensor->rank < 1) continue;
        if (!first) first = tensor->name;
        modules++;
        size_t at = 0;
        // the last entry counts all further ranks
        while (at < 7 && rank_counts[at] && ranks[at] != (long long)tensor->shape[0]) at++;
        ranks[at] = (long long)tensor->shape[0];
        rank_counts[at]++;
    }
    if (modules == 0) return print_kronecker(in, set);
    const char* metadata = sumi_metadata_find(set, "lora_adapter_metadata");
    printf("%s\n  adapter        LoRA of %zu layers, %s names (%s)\n  rank           ", in->path, modules,
           naming_of(first), first);
    for (size_t i = 0; i < 8 && rank_counts[i]; i++)
        printf("%s%lld: %zu layers", i ? ", " : "", ranks[i], rank_counts[i]);
    printf("\n  alpha          %s\n", alphas ? "a tensor per layer"
                                      : metadata
                                          ? "in the file's metadata"
                                          : "none here: adapter_config.json beside it says, else the scale is 1");
    return true;
}

static void print_unknown(const inspection* in, const sumi_tensor_set* set)
{
    totals sum = {0};
    for (size_t i = 0; i < set->count; i++) add_tensor(&sum, &set->tensors[i]);
    printf("%s\n  %-14s neither a known model's nor an adapter's\n", in->path, "tensors");
    print_totals(&sum);
}

// Prints an adapter or an unknown file. Returns false when the file is a component of a model or cannot be read; the
// checkpoint reader then says which.
static bool inspect_loose_file(inspection* in)
{
    sumi_error error = {0};
    sumi_tensor_set set;
    sumi_tensor_set_init(&set, &in->heap, NULL);
    bool done = sumi_tensor_set_open(&set, in->path, &error) == SUMI_OK && print_adapter(in, &set);
    if (done) {
        totals sum = {0};
        for (size_t i = 0; i < set.count; i++) add_tensor(&sum, &set.tensors[i]);
        print_totals(&sum);
        for (size_t i = 0; i < set.count && in->lists_tensors; i++) print_tensor(set.tensors[i].name, &set.tensors[i]);
    }
    sumi_tensor_set_close(&set);
    return done;
}

static bool inspect_unknown_file(inspection* in)
{
    sumi_error error = {0};
    sumi_tensor_set set;
    sumi_tensor_set_init(&set, &in->heap, NULL);
    bool read = sumi_tensor_set_open(&set, in->path, &error) == SUMI_OK;
    if (read) print_unknown(in, &set);
    for (size_t i = 0; read && i < set.count && in->lists_tensors; i++)
        print_tensor(set.tensors[i].name, &set.tensors[i]);
    sumi_tensor_set_close(&set);
    return read;
}

// If the path is a folder in which PEFT or diffusers saved an adapter, replaces it by the file of the adapter.
static void enter_adapter_folder(inspection* in)
{
    static const char* const names[] = {"adapter_model.safetensors", "pytorch_lora_weights.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof *names && !sumi_path_is_file(in->path); i++) {
        snprintf(in->file, sizeof in->file, "%s/%s", in->path, names[i]);
        if (sumi_path_is_file(in->file)) in->path = in->file;
    }
}

static int inspect(inspection* in)
{
    enter_adapter_folder(in);
    if (sumi_path_is_file(in->path) && inspect_loose_file(in)) return EXIT_OK;
    sumi_error error = {0};
    sumi_checkpoint_desc desc = {.path = in->path};
    desc.signatures = sumi_signatures(&desc.signature_count);
    desc.class_words = sumi_class_words();
    sumi_result result = sumi_checkpoint_open(&in->checkpoint, &in->heap, NULL, &desc, &error);
    if (result == SUMI_MODEL_UNKNOWN && sumi_path_is_file(in->path) && inspect_unknown_file(in)) return EXIT_FAILED;
    if (result != SUMI_OK) {
        fprintf(stderr, "sumi: %s\n  %s\n", sumi_result_text(result), error.text);
        return EXIT_FAILED;
    }
    print_checkpoint(in);
    return in->has_faults ? EXIT_FAILED : EXIT_OK;
}

int inspect_main(int argc, char** argv)
{
    inspection in = {0};
    const cli_option options[] = {
        {"--tensors", OPTION_FLAG, &in.lists_tensors, NULL, "also list every tensor with its type and shape", 0, 0},
    };
    const cli_command command = {
        .name = "inspect",
        .about = "Prints what PATH holds: a diffusers folder, the folder or file of one part, a single-file "
                 "checkpoint, or an adapter. Missing tensors are "
                 "named; the exit code is then 1.",
        .operand = "PATH",
        .operand_value = &in.path,
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .examples = "  sumi inspect models/Z-Image-Turbo\n  sumi inspect style.safetensors\n",
    };
    args_result parsed = args_parse(&command, argc, argv);
    if (parsed != ARGS_RUN) return parsed == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
    sumi_heap_init(&in.heap, NULL);
    int code = inspect(&in);
    sumi_checkpoint_close(&in.checkpoint);
    return code;
}
