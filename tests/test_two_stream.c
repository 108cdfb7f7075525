// The two-stream transformer beside its golden cases: what it refuses, which tensors it can do without, what adapters
// find in it, and what its plans promise at the released sizes.
#include "at_once.h"
#include "failing.h"
#include "models/two_stream.h"
#include "plan/validate.h"
#include "system.h"
#include "test.h"

#define GOLDEN "tests/golden/qwen-image/"
#define PART (&sumi_two_stream_module)

static sumi_heap s_heap;
static sumi_tensor_set s_set; // of the golden checkpoint
static const char s_config[] =
    "{\"num_layers\": 2, \"num_attention_heads\": 2, \"attention_head_dim\": 32, \"joint_attention_dim\": 128, "
    "\"in_channels\": 64, \"out_channels\": 16, \"patch_size\": 2, \"axes_dims_rope\": [8, 12, 12], "
    "\"pooled_projection_dim\": 768";

// ---- Binding --------------------------------------------------------------------------------------------------------

typedef struct bound {
    sumi_two_stream model;
    sumi_weight_list list;
    sumi_error error;
    sumi_result result;
} bound;

// Binds the set's tensors. more: further members of the config, NULL: there is no config.
static bound* bind(sumi_heap* heap, const sumi_tensor_set* set, const char* more,
                   const sumi_two_stream_settings* settings)
{
    static char s_text[1024];
    bound* b = calloc(1, sizeof *b);
    sumi_weight_list_init(&b->list, heap);
    const sumi_component part = {.present = true, .set = set, .prefix = "", .path = "the-file"};
    sumi_binder binder = {
        .list = &b->list, .component = &part, .what = "the transformer", .adaptable = true, .error = &b->error};
    snprintf(s_text, sizeof s_text, "%s%s}", s_config, more != NULL ? more : "");
    const sumi_module_config config = {
        .data = more != NULL ? s_text : NULL, .bytes = strlen(s_text), .path = "the-config"};
    b->result = PART->bind(&b->model, settings, &binder, &config);
    return b;
}

static void end(bound* b)
{
    sumi_weight_list_close(&b->list);
    free(b);
}

static void check_refused(const sumi_tensor_set* set, const char* more, sumi_result result, const char* says)
{
    bound* b = bind(&s_heap, set, more, NULL);
    CHECK_NUMBER(b->result, result);
    if (strstr(b->error.text, says) == NULL) printf("  \"%s\" does not say \"%s\"\n", b->error.text, says);
    CHECK(strstr(b->error.text, says) != NULL);
    end(b);
}

// The golden tensors without one of them, or with half its rows, and one more.
static void copy_set(sumi_tensor_set* out, const char* without, const char* halved, const char* more)
{
    sumi_error error = {0};
    sumi_tensor_set_init(out, &s_heap, NULL);
    for (size_t i = 0; i < s_set.count; i++) {
        sumi_tensor tensor = s_set.tensors[i];
        tensor.file_index = -1; // of no file of the copy's
        if (without != NULL && strcmp(tensor.name, without) == 0) continue;
        if (halved != NULL && strcmp(tensor.name, halved) == 0) {
            tensor.bytes /= 2;
            tensor.shape[0] /= 2;
        }
        CHECK(sumi_tensor_set_add(out, tensor.name, strlen(tensor.name), &tensor, "a copy", &error) == SUMI_OK);
    }
    const sumi_tensor nothing = {.dtype = SUMI_DTYPE_F32, .rank = 1, .data = s_config, .file_index = -1};
    if (more != NULL) CHECK(sumi_tensor_set_add(out, more, strlen(more), &nothing, "a copy", &error) == SUMI_OK);
}

TEST(configs_that_are_not_supported_are_refused_by_name)
{
    bound* b = bind(&s_heap, &s_set, ", \"guidance_embeds\": false, \"zero_cond_t\": null", NULL);
    CHECK_NUMBER(b->result, SUMI_OK);
    CHECK(!b->model.zero_cond);
    const sumi_denoiser_properties properties = PART->properties(&b->model);
    CHECK(properties.channels == 16 && properties.patch == 2 && properties.feature_width[0] == 128
          && properties.feature_width[1] == 0 && properties.takes_references);
    end(b);
    check_refused(&s_set, ", \"guidance_embeds\": true", SUMI_NOT_SUPPORTED, "guidance_embeds");
    check_refused(&s_set, ", \"use_additional_t_cond\": true", SUMI_NOT_SUPPORTED, "Layered");
    check_refused(&s_set, ", \"use_layer3d_rope\": true", SUMI_NOT_SUPPORTED, "Layered");
    check_refused(&s_set, ", \"patch_size\": 4", SUMI_NOT_SUPPORTED, "patch_size");
    check_refused(&s_set, ", \"num_attention_heads\": 4", SUMI_TENSOR_MISMATCH, "num_attention_heads");
    check_refused(&s_set, ", \"attention_head_dim\": 64", SUMI_TENSOR_MISMATCH, "attention_head_dim");
    check_refused(&s_set, ", \"joint_attention_dim\": 64", SUMI_TENSOR_MISMATCH, "joint_attention_dim");
    check_refused(&s_set, ", \"in_channels\": 16", SUMI_TENSOR_MISMATCH, "in_channels");
    check_refused(&s_set, ", \"out_channels\": 4", SUMI_TENSOR_MISMATCH, "out_channels");
    check_refused(&s_set, ", \"axes_dims_rope\": [16, 56, 56]", SUMI_TENSOR_MISMATCH, "axes_dims_rope");
    check_refused(&s_set, ", \"axes_dims_rope\": [16, 16]", SUMI_TENSOR_MISMATCH, "axes_dims_rope");
    check_refused(&s_set, ", \"num_layers\": 3", SUMI_TENSOR_MISSING, "transformer_blocks.2");
    check_refused(&s_set, ", \"num_layers\": 100000", SUMI_NOT_SUPPORTED, "100000 blocks");
    check_refused(&s_set, ", \"num_layers\": -1", SUMI_NOT_SUPPORTED, "-1 blocks");
    check_refused(&s_set, ", \"zero_cond_t\": 5", SUMI_FILE_MALFORMED, "the-config");
    sumi_tensor_set layered;
    copy_set(&layered, NULL, NULL, "time_text_embed.addition_t_embedding.weight");
    check_refused(&layered, "", SUMI_NOT_SUPPORTED, "Layered");
    sumi_tensor_set_close(&layered);
}

TEST(references_at_time_zero_are_told_by_config_marker_or_settings)
{
    bound* b = bind(&s_heap, &s_set, ", \"zero_cond_t\": true", NULL);
    CHECK(b->result == SUMI_OK && b->model.zero_cond);
    end(b);
    b = bind(&s_heap, &s_set, "", &(sumi_two_stream_settings){.zero_cond = true});
    CHECK(b->result == SUMI_OK && b->model.zero_cond);
    end(b);
    sumi_tensor_set marked;
    copy_set(&marked, NULL, NULL, "__index_timestep_zero__");
    b = bind(&s_heap, &marked, "", NULL);
    CHECK(b->result == SUMI_OK && b->model.zero_cond);
    end(b);
    b = bind(&s_heap, &s_set, "", NULL);
    CHECK(b->result == SUMI_OK && !b->model.zero_cond);
    end(b);
    // without a config the shapes say everything but the split of a head, whose proportions do not fit 32
    b = bind(&s_heap, &marked, NULL, NULL);
    CHECK(b->result == SUMI_OK && b->model.zero_cond && b->model.block_count == 2 && b->model.heads == 2);
    CHECK(b->model.axis_pairs[0] == 2 && b->model.axis_pairs[1] == 7 && b->model.axis_pairs[2] == 7);
    end(b);
    sumi_tensor_set_close(&marked);
}

TEST(every_missing_or_misshapen_tensor_is_named_but_for_those_that_nothing_reads)
{
    static const char* const s_dead[] = {"transformer_blocks.1.attn.to_add_out.weight",
                                         "transformer_blocks.1.txt_mlp.net.0.proj.weight",
                                         "transformer_blocks.1.txt_mlp.net.2.weight"};
    for (size_t i = 0; i < s_set.count; i++) {
        const char* name = s_set.tensors[i].name;
        bool is_dead = false;
        for (size_t k = 0; k < sizeof s_dead / sizeof *s_dead; k++) is_dead = is_dead || strcmp(name, s_dead[k]) == 0;
        sumi_tensor_set broken;
        copy_set(&broken, name, NULL, NULL);
        bound* b = bind(&s_heap, &broken, "", NULL);
        if (b->result != (is_dead ? SUMI_OK : SUMI_TENSOR_MISSING)) printf("  %s: \"%s\"\n", name, b->error.text);
        CHECK_NUMBER(b->result, is_dead ? SUMI_OK : SUMI_TENSOR_MISSING);
        CHECK(is_dead || strstr(b->error.text, name) != NULL);
        if (is_dead) CHECK(!b->model.blocks[1].side[SUMI_TWO_STREAM_TEXT].has_output_weights);
        end(b);
        sumi_tensor_set_close(&broken);
        copy_set(&broken, NULL, name, NULL);
        b = bind(&s_heap, &broken, "", NULL);
        CHECK_NUMBER(b->result, SUMI_TENSOR_MISMATCH);
        CHECK(b->error.text[0] != 0);
        end(b);
        sumi_tensor_set_close(&broken);
    }
}

TEST(adapters_find_every_matrix_and_norm)
{
    bound* b = bind(&s_heap, &s_set, "", NULL);
    CHECK_NUMBER(b->result, SUMI_OK);
    int matrices = 0, norms = 0;
    for (size_t i = 0; i < s_set.count; i++) {
        const sumi_tensor* tensor = &s_set.tensors[i];
        const size_t length = strlen(tensor->name);
        if (tensor->rank == 1 && length > 7 && strcmp(tensor->name + length - 7, ".weight") == 0) { // a norm
            char path[SUMI_NAME_BYTES];
            CHECK(sumi_fold_path(tensor->name, length - 7, path, sizeof path));
            const sumi_adapter_target* found = NULL;
            for (size_t k = 0; k < b->list.target_count; k++)
                if (strcmp(b->list.targets[k].path, path) == 0) found = &b->list.targets[k];
            if (found == NULL) printf("  %s is no target\n", path);
            CHECK(found != NULL && found->is_vector && found->rows == 1 && found->cols == tensor->shape[0]);
            norms++;
        }
        if (tensor->rank != 2 || length < 7 || strcmp(tensor->name + length - 7, ".weight") != 0) continue;
        char path[SUMI_NAME_BYTES];
        CHECK(sumi_fold_path(tensor->name, length - 7, path, sizeof path));
        const sumi_adapter_target* found = NULL;
        for (size_t k = 0; k < b->list.target_count; k++)
            if (strcmp(b->list.targets[k].path, path) == 0) found = &b->list.targets[k];
        if (found == NULL) printf("  %s is no target\n", path);
        CHECK(found != NULL && !found->is_vector && found->rows == tensor->shape[0] && found->cols == tensor->shape[1]);
        matrices++;
    }
    CHECK_NUMBER(matrices, 6 + 2 * 14);
    CHECK_NUMBER(norms, 1 + 2 * 4);
    end(b);
}

TEST(weights_that_keep_their_precision_are_the_ends_and_the_modulation)
{
    bound* b = bind(&s_heap, &s_set, "", NULL);
    for (size_t i = 0; i < b->list.count; i++) {
        const sumi_weight* weight = b->list.weights[i];
        if (weight->rows == 1) continue;
        const bool is_in_block = strncmp(weight->name, "transformer_blocks.", 19) == 0,
                   modulates = strstr(weight->name, "_mod.1") != NULL;
        CHECK(weight->keeps_precision == (!is_in_block || modulates));
    }
    end(b);
}

// ---- Plans at the released sizes ------------------------------------------------------------------------------------

static void shape(sumi_weight* weight, int32_t rows, int32_t cols)
{
    *weight = (sumi_weight){.name = "shape only", .rows = rows, .cols = cols, .tensor_count = 1};
    weight->tensors[0] = (sumi_stacked_tensor){.dtype = SUMI_DTYPE_BF16, .rows = rows, .scale = 1.0f};
}

// A model of 60 blocks without data: enough to write plans.
static void make_model(sumi_two_stream* m, sumi_two_stream_block* blocks, bool zero_cond)
{
    enum { DIM = 3072 };
    *m = (sumi_two_stream){.channels = 16,
                           .dim = DIM,
                           .heads = 24,
                           .head_dim = 128,
                           .hidden = 4 * DIM,
                           .feature_width = 3584,
                           .time_width = 256,
                           .time_hidden = DIM,
                           .axis_pairs = {8, 28, 28},
                           .zero_cond = zero_cond,
                           .table_bytes = 256u << 20,
                           .block_count = 60,
                           .blocks = blocks};
    const struct {
        sumi_weight *weight, *bias;
        int32_t rows, cols;
    } ends[] = {{&m->image_in, &m->image_in_bias, DIM, 64},
                {&m->text_in, &m->text_in_bias, DIM, 3584},
                {&m->time_in, &m->time_in_bias, DIM, 256},
                {&m->time_out, &m->time_out_bias, DIM, DIM},
                {&m->final_modulation, &m->final_modulation_bias, 2 * DIM, DIM},
                {&m->final_linear, &m->final_linear_bias, 64, DIM}};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        shape(ends[i].weight, ends[i].rows, ends[i].cols);
        shape(ends[i].bias, 1, ends[i].rows);
    }
    shape(&m->text_norm, 1, 3584);
    for (int i = 0; i < 120; i++) {
        sumi_two_stream_weights* w = &blocks[i / 2].side[i % 2];
        const struct {
            sumi_weight *weight, *bias;
            int32_t rows, cols;
        } all[] = {{&w->modulation, &w->modulation_bias, 6 * DIM, DIM},
                   {&w->qkv, &w->qkv_bias, 3 * DIM, DIM},
                   {&w->out, &w->out_bias, DIM, DIM},
                   {&w->mlp_in, &w->mlp_in_bias, 4 * DIM, DIM},
                   {&w->mlp_out, &w->mlp_out_bias, DIM, 4 * DIM}};
        for (size_t k = 0; k < sizeof all / sizeof *all; k++) {
            shape(all[k].weight, all[k].rows, all[k].cols);
            shape(all[k].bias, 1, all[k].rows);
        }
        shape(&w->q_norm, 1, 128);
        shape(&w->k_norm, 1, 128);
        w->has_output_weights = true;
    }
}

typedef struct big_job {
    int32_t side, evaluation_count, activation_bytes, text_rows[2], item_count;
    bool guides, whole;
    int32_t reference_count, reference_side;
} big_job;

// One picture per item, with guidance a second evaluation of each.
static void write_big(const sumi_two_stream* model, const big_job* b, sumi_plan* plan)
{
    const int32_t size = b->side / 8, reference_size = b->reference_side / 8;
    sumi_plan_begin(plan, &s_heap, b->activation_bytes);
    sumi_prompt_features prompts[2];
    sumi_reference_latents references[SUMI_MAX_REFERENCES];
    sumi_evaluation list[8];
    sumi_plan_section(plan, SUMI_SECTION_PREPARE, 1, 0);
    for (int i = 0; i < 2; i++)
        prompts[i] = (sumi_prompt_features){
            .value = {sumi_plan_bound(plan, "features", SUMI_ELEMENT_ACTIVATION, b->text_rows[i], 3584)},
            .count = {b->text_rows[i]}};
    for (int32_t i = 0; i < b->reference_count; i++)
        references[i] = (sumi_reference_latents){
            sumi_plan_bound(plan, "reference", SUMI_ELEMENT_FLOAT, 16, reference_size * reference_size), reference_size,
            reference_size};
    const int32_t count = b->item_count * (b->guides ? 2 : 1);
    for (int32_t i = 0; i < count; i++) list[i] = (sumi_evaluation){i % b->item_count, i / b->item_count};
    sumi_denoising job = {.height = size,
                          .width = size,
                          .prompts = prompts,
                          .prompt_count = 2,
                          .references = references,
                          .reference_count = b->reference_count,
                          .evaluation_count = b->evaluation_count,
                          .times = sumi_plan_bound(plan, "times", SUMI_ELEMENT_FLOAT, b->evaluation_count, 1),
                          .computes_unused_rows = b->whole,
                          .state = calloc(1, PART->state_bytes)};
    PART->write_prepare(model, plan, &job);
    PART->write_layout(model, plan, &job, &(sumi_evaluation_list){list, count, 0});
    sumi_plan_section(plan, SUMI_SECTION_DENOISE, b->evaluation_count, 0);
    sumi_value x = sumi_plan_bound(plan, "x", SUMI_ELEMENT_FLOAT, 16 * b->item_count, size * size);
    sumi_value v = PART->write_evaluation(model, plan, &job, &(sumi_evaluation_list){list, count, 0}, x);
    if (v.id != 0) plan->values[v.id - 1].bound = true;
    free(job.state);
    sumi_error error = {0};
    CHECK_NUMBER(sumi_plan_finish(plan, &error), SUMI_OK);
    CHECK_NUMBER(sumi_plan_validate(plan, &error), SUMI_OK);
    if (error.result != SUMI_OK) printf("  %s\n", error.text);
}

// How many ops of the evaluation have labels that end so, and the rows of the last.
static int count_ops(const sumi_plan* plan, const char* ends, int32_t* rows)
{
    int count = 0;
    for (int32_t i = plan->sections[1].op_begin; i < plan->sections[1].op_end; i++) {
        const char* label = plan->ops[i].label;
        const size_t length = strlen(label), wanted = strlen(ends);
        if (length < wanted || strcmp(label + length - wanted, ends) != 0) continue;
        count++;
        if (rows != NULL) *rows = plan->ops[i].rows;
    }
    return count;
}

TEST(modulation_takes_bounded_memory_for_any_number_of_evaluations)
{
    sumi_two_stream model;
    sumi_two_stream_block* blocks = calloc(60, sizeof *blocks);
    make_model(&model, blocks, true);
    static const struct {
        int32_t evaluations, activation_bytes;
        bool has_tables, is_finished;
    } s_cases[] = {{1, 2, true, true},      {4, 2, true, true},   {30, 2, true, true},   {31, 2, true, false},
                   {50, 2, true, false},    {60, 2, true, false}, {61, 2, false, false}, {1000, 2, false, false},
                   {4096, 2, false, false}, {30, 4, true, true},  {50, 4, false, false}, {1000, 4, false, false}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_plan plan;
        big_job b = {.side = 1328,
                     .evaluation_count = s_cases[i].evaluations,
                     .activation_bytes = s_cases[i].activation_bytes,
                     .text_rows = {512, 40},
                     .item_count = 1,
                     .guides = true};
        write_big(&model, &b, &plan);
        double tables = 0;
        for (size_t v = 0; v < plan.value_count; v++) {
            const sumi_value_info* info = &plan.values[v];
            // what a finished table is made from lives for two ops
            const char* name = s_cases[i].is_finished ? "modulation_row" : "modulation";
            if (strcmp(info->name, name) == 0 && info->rows == s_cases[i].evaluations && info->rows > 1)
                tables += (double)info->bytes;
        }
        printf(
            "  %d evaluations of 1328 x 1328 with guidance, activations of %d bytes: tables %.0f MB, arena %.0f MB\n",
            (int)s_cases[i].evaluations, (int)s_cases[i].activation_bytes, tables / 1e6,
            (double)plan.arena_bytes / 1e6);
        CHECK(tables <= 256.0 * (1 << 20) * 1.01); // and the last norm's
        CHECK(s_cases[i].evaluations == 1 || (tables > 0) == s_cases[i].has_tables);
        // a table is finished before, or a row is taken from it, or made by a product and finished
        const int32_t ops = s_cases[i].is_finished ? 0 : s_cases[i].has_tables ? 60 : 120;
        CHECK_NUMBER(count_ops(&plan, "img_mod", NULL), ops);
        CHECK_NUMBER(count_ops(&plan, "txt_mod", NULL), ops);
        sumi_plan_end(&plan);
    }
    free(blocks);
}

TEST(products_run_once_over_all_rows_of_a_stream)
{
    sumi_two_stream model;
    sumi_two_stream_block* blocks = calloc(60, sizeof *blocks);
    make_model(&model, blocks, false);
    sumi_plan plan;
    int32_t rows;
    // two pictures with guidance: four evaluations of 4096 tokens
    big_job b = {.side = 1024,
                 .evaluation_count = 4,
                 .activation_bytes = 2,
                 .text_rows = {300, 20},
                 .item_count = 2,
                 .guides = true};
    write_big(&model, &b, &plan);
    CHECK_NUMBER(count_ops(&plan, "attn.to_qkv", &rows), 60);
    CHECK_NUMBER(rows, 4 * 4096);
    CHECK_NUMBER(count_ops(&plan, "attn.add_qkv_proj", &rows), 60);
    CHECK_NUMBER(rows, 2 * 300 + 2 * 20);
    CHECK_NUMBER(count_ops(&plan, ".attention", NULL), 60);
    CHECK_NUMBER(count_ops(&plan, "img_mlp.net.2", NULL), 60);
    // nothing reads what the last block would make of the text
    CHECK_NUMBER(count_ops(&plan, "attn.to_add_out", NULL), 59);
    CHECK_NUMBER(count_ops(&plan, "txt_mlp.net.0.proj", NULL), 59);
    sumi_plan_end(&plan);

    // editing with two references and guidance: the references of neighbours lie side by side
    b = (big_job){.side = 1024,
                  .evaluation_count = 4,
                  .activation_bytes = 2,
                  .text_rows = {700, 500},
                  .item_count = 1,
                  .guides = true,
                  .reference_count = 2,
                  .reference_side = 768};
    write_big(&model, &b, &plan);
    CHECK_NUMBER(count_ops(&plan, "attn.to_qkv", &rows), 60 * 2);
    CHECK_NUMBER(rows, 2 * 2304); // behind 2 * 4096 + 2 * 2304 of the first
    CHECK_NUMBER(count_ops(&plan, "attn.add_qkv_proj", &rows), 60);
    CHECK_NUMBER(rows, 1200);
    CHECK_NUMBER(count_ops(&plan, "img_mlp.net.2", &rows), 60);
    CHECK_NUMBER(rows, 2 * 4096); // the last block's are of the targets alone
    CHECK_NUMBER(count_ops(&plan, "proj_out", &rows), 1);
    CHECK_NUMBER(rows, 2 * 4096);
    sumi_plan_end(&plan);

    // of two such pictures each has its evaluations side by side, and the references of the first end where those of
    // the second begin
    b.item_count = 2;
    write_big(&model, &b, &plan);
    CHECK_NUMBER(count_ops(&plan, "attn.to_qkv", &rows), 60 * 3);
    CHECK_NUMBER(rows, 2 * 2304); // behind 4 * 4096 + 2 * 2304, and 2 * 2 * 2304
    CHECK_NUMBER(count_ops(&plan, "attn.add_qkv_proj", &rows), 60 * 2);
    CHECK_NUMBER(rows, 1200);
    sumi_plan_end(&plan);

    // references at time 0 are a stream of their own, which the last block does not update
    make_model(&model, blocks, true);
    b.item_count = 1;
    write_big(&model, &b, &plan);
    CHECK_NUMBER(count_ops(&plan, "attn.to_qkv", &rows), 60);
    CHECK_NUMBER(rows, 2 * 4096);
    CHECK_NUMBER(count_ops(&plan, "attn.ref_to_qkv", NULL), 60 * 2);
    CHECK_NUMBER(count_ops(&plan, "ref_mlp.net.2", &rows), 59);
    CHECK_NUMBER(rows, 4 * 2304);
    CHECK_NUMBER(count_ops(&plan, "ref_mod", NULL), 0); // made once, before
    sumi_plan_end(&plan);
    b.whole = true;
    write_big(&model, &b, &plan);
    CHECK_NUMBER(count_ops(&plan, "ref_mlp.net.2", NULL), 60);
    CHECK_NUMBER(count_ops(&plan, "txt_mlp.net.2", NULL), 60);
    sumi_plan_end(&plan);
    free(blocks);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

TEST(every_failing_allocation_is_survived)
{
    bool finished = false;
    long n = 0;
    for (; n < 10000 && !finished; n++) {
        failing f = {.left = n};
        const sumi_allocator allocator = failing_allocator(&f);
        sumi_heap heap;
        sumi_heap_init(&heap, &allocator);
        bound* b = bind(&heap, &s_set, ", \"zero_cond_t\": true", NULL);
        sumi_result result = b->result;
        if (result == SUMI_OK) {
            sumi_plan plan;
            sumi_plan_begin(&plan, &heap, 4);
            sumi_plan_section(&plan, SUMI_SECTION_PREPARE, 1, 0);
            sumi_prompt_features prompt = {
                .value = {sumi_plan_bound(&plan, "features", SUMI_ELEMENT_ACTIVATION, 5, 128)}, .count = {5}};
            sumi_reference_latents reference = {sumi_plan_bound(&plan, "reference", SUMI_ELEMENT_FLOAT, 16, 24), 4, 6};
            const sumi_evaluation list[3] = {{0, 0}, {1, 0}, {1, 0}};
            sumi_denoising job = {.height = 4,
                                  .width = 4,
                                  .prompts = &prompt,
                                  .prompt_count = 1,
                                  .references = &reference,
                                  .reference_count = 1,
                                  .evaluation_count = 2,
                                  .times = sumi_plan_bound(&plan, "times", SUMI_ELEMENT_FLOAT, 2, 1),
                                  .state = calloc(1, PART->state_bytes)};
            PART->write_prepare(&b->model, &plan, &job);
            PART->write_layout(&b->model, &plan, &job, &(sumi_evaluation_list){list, 3, 0});
            sumi_plan_section(&plan, SUMI_SECTION_DENOISE, 2, 0);
            sumi_value x = sumi_plan_bound(&plan, "x", SUMI_ELEMENT_FLOAT, 32, 16);
            PART->write_evaluation(&b->model, &plan, &job, &(sumi_evaluation_list){list, 3, 0}, x);
            free(job.state);
            result = sumi_plan_finish(&plan, &b->error);
            sumi_plan_end(&plan);
        }
        finished = f.refused == 0;
        if (result != (finished ? SUMI_OK : SUMI_OUT_OF_HOST_MEMORY)) {
            printf("  allocation %ld: result %d, \"%s\"\n", n, (int)result, b->error.text);
            CHECK(!"a failed allocation is reported as one");
            finished = true;
        }
        end(b);
        CHECK_NUMBER(f.held, 0);
    }
    CHECK(finished && n > 10);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_error error = {0};
    sumi_heap_init(&s_heap, NULL);
    sumi_tensor_set_init(&s_set, &s_heap, NULL);
    if (open_tensor_folder(&s_set, GOLDEN "model/transformer", "diffusion_pytorch_model", &error) != SUMI_OK)
        return printf("%s\n", error.text), 1;
    RUN(configs_that_are_not_supported_are_refused_by_name);
    RUN(references_at_time_zero_are_told_by_config_marker_or_settings);
    RUN(every_missing_or_misshapen_tensor_is_named_but_for_those_that_nothing_reads);
    RUN(adapters_find_every_matrix_and_norm);
    RUN(weights_that_keep_their_precision_are_the_ends_and_the_modulation);
    RUN(modulation_takes_bounded_memory_for_any_number_of_evaluations);
    RUN(products_run_once_over_all_rows_of_a_stream);
    RUN(every_failing_allocation_is_survived);
    sumi_tensor_set_close(&s_set);
    TEST_END();
}
