#include "models/next_dit_blocks.h"
#include "base/assert.h"
#include <math.h>
#include <stdio.h>

// ---- Weights --------------------------------------------------------------------------------------------------------

bool sumi_dit_alias(const void* context, const char* canonical, int32_t which, char* out, size_t out_bytes)
{
    (void)context;
    static const char* const s_original[][2] = {
        {"all_x_embedder.2-1.", "x_embedder."},       {"all_final_layer.2-1.", "final_layer."},
        {".attention.to_out.0.", ".attention.out."},  {".attention.norm_q.", ".attention.q_norm."},
        {".attention.norm_k.", ".attention.k_norm."}, {NULL, NULL}};
    static const char* const s_lumina2[][2] = {{"cap_embedder.", "time_caption_embed.caption_embedder."},
                                               {"t_embedder.mlp.0.", "time_caption_embed.timestep_embedder.linear_1."},
                                               {"t_embedder.mlp.2.", "time_caption_embed.timestep_embedder.linear_2."},
                                               {"final_layer.adaLN_modulation.1.", "norm_out.linear_1."},
                                               {"final_layer.linear.", "norm_out.linear_2."},
                                               {".attention.", ".attn."},
                                               {".feed_forward.w1.", ".feed_forward.linear_1."},
                                               {".feed_forward.w2.", ".feed_forward.linear_2."},
                                               {".feed_forward.w3.", ".feed_forward.linear_3."},
                                               {".adaLN_modulation.1.", ".norm1.linear."},
                                               {".attention_norm1.", ".norm1.norm."}, // in blocks with modulation
                                               {".attention_norm2.", ".norm2."},
                                               {NULL, NULL}};
    static const char* const s_unmodulated[][2] = {{".attention_norm1.", ".norm1."}, {NULL, NULL}};
    static const char* const(*const s_tables[])[2] = {s_original, s_lumina2, s_unmodulated};
    const int32_t count = sizeof s_tables / sizeof *s_tables;
    // `which` counts only the tables that change this name.
    for (int32_t t = 0, match_count = 0; t < count; t++) {
        for (int32_t i = 0; s_tables[t][i][0] != NULL; i++) {
            if (!sumi_replace_text(canonical, s_tables[t][i][0], s_tables[t][i][1], out, out_bytes)) continue;
            if (match_count++ == which) return true;
            break;
        }
    }
    return false;
}

static void bind_qkv(const sumi_next_dit* model, sumi_binder* binder, sumi_next_dit_block* block, const char* prefix)
{
    int32_t q = model->heads * model->head_dim, kv = model->kv_heads * model->head_dim;
    const int32_t rows[] = {q, kv, kv};
    char names[4][SUMI_NAME_BYTES];
    const char* split[] = {sumi_bind_join(names[0], prefix, "attention.to_q"),
                           sumi_bind_join(names[1], prefix, "attention.to_k"),
                           sumi_bind_join(names[2], prefix, "attention.to_v")};
    const char* fused = sumi_bind_join(names[3], prefix, "attention.qkv");
    sumi_bind_fused(binder, &block->qkv, fused, &(sumi_module_stack){fused, split, rows, 3}, model->dim);
}

void sumi_dit_bind_block(const sumi_next_dit* model, sumi_binder* binder, sumi_next_dit_block* block,
                         const char* prefix, int32_t table_index)
{
    char names[3][SUMI_NAME_BYTES];
    block->is_modulated = table_index >= 0;
    block->table_index = table_index;
    int32_t dim = model->dim;
    sumi_bind_norm(binder, &block->attention_norm1, sumi_bind_join(names[0], prefix, "attention_norm1.weight"), dim);
    sumi_bind_norm(binder, &block->attention_norm2, sumi_bind_join(names[0], prefix, "attention_norm2.weight"), dim);
    sumi_bind_norm(binder, &block->ffn_norm1, sumi_bind_join(names[0], prefix, "ffn_norm1.weight"), dim);
    sumi_bind_norm(binder, &block->ffn_norm2, sumi_bind_join(names[0], prefix, "ffn_norm2.weight"), dim);
    bind_qkv(model, binder, block, prefix);
    block->qkv.balance = &block->attention_norm1; // in 8 bits columns are balanced with this norm (plan/weight.h)
    sumi_bind_norm(binder, &block->q_norm, sumi_bind_join(names[0], prefix, "attention.norm_q.weight"),
                   model->head_dim);
    sumi_bind_norm(binder, &block->k_norm, sumi_bind_join(names[0], prefix, "attention.norm_k.weight"),
                   model->head_dim);
    sumi_bind_matrix(binder, &block->out, sumi_bind_join(names[0], prefix, "attention.to_out.0"), dim,
                     model->heads * model->head_dim);
    const char* gate_up[] = {sumi_bind_join(names[0], prefix, "feed_forward.w1"),
                             sumi_bind_join(names[1], prefix, "feed_forward.w3")};
    const int32_t rows[] = {model->hidden, model->hidden};
    const sumi_module_stack stack = {sumi_bind_join(names[2], prefix, "feed_forward.w1w3"), gate_up, rows, 2};
    sumi_bind_stack(binder, &block->gate_up, &stack, dim);
    block->gate_up.balance = &block->ffn_norm1;
    sumi_bind_matrix(binder, &block->down, sumi_bind_join(names[0], prefix, "feed_forward.w2"), dim, model->hidden);
    if (block->is_modulated) {
        sumi_bind_linear(binder, &block->modulation, &block->modulation_bias,
                         sumi_bind_join(names[0], prefix, model->settings->modulation), 4 * dim,
                         model->condition_width);
    }
}

// ---- Blocks ---------------------------------------------------------------------------------------------------------

int32_t sumi_dit_padded(const sumi_next_dit* model, int32_t tokens)
{
    const int32_t multiple = model->settings->pad_multiple;
    SUMI_ASSERT(multiple >= 1 && tokens >= 1);
    return (tokens + multiple - 1) / multiple * multiple;
}

sumi_attention sumi_dit_attention(const sumi_next_dit* model, const sumi_sequence* sequences, int32_t count)
{
    return (sumi_attention){.q_heads = model->heads,
                            .kv_heads = model->kv_heads,
                            .dim = model->head_dim,
                            .scale = (float)(1.0 / sqrt((double)model->head_dim)),
                            .sequences = sequences,
                            .sequence_count = count};
}

// A row of a block's table holds, for one evaluation (and prompt): 1 + scale and tanh(gate) of attention, then 1 +
// scale and tanh(gate) of the feed-forward layer, each as wide as the model. Returns one of these quarters; no row for
// a block without modulation.
static sumi_step_row modulation_of(const sumi_next_dit* model, sumi_value table, int32_t quarter)
{
    SUMI_ASSERT(quarter >= 0 && quarter < 4);
    return table.id == 0 ? SUMI_NO_ROW : (sumi_step_row){table, quarter * model->dim, true};
}

sumi_value sumi_dit_write_first_norm(const sumi_next_dit* model, sumi_plan* plan, const sumi_next_dit_block* block,
                                     const sumi_dit_block_rows* rows)
{
    SUMI_ASSERT(block->is_modulated == (rows->modulation.id != 0) || plan->error.result != SUMI_OK);
    return sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "attention_norm1",
                                                       .x = rows->x,
                                                       .rows = rows->in.count,
                                                       .weight = &block->attention_norm1,
                                                       .eps = model->eps,
                                                       .scale = modulation_of(model, rows->modulation, 0),
                                                       .bands = rows->in.bands,
                                                       .band_count = rows->in.band_count});
}

sumi_value sumi_dit_write_branches(const sumi_next_dit* model, sumi_plan* plan, const sumi_next_dit_block* block,
                                   const sumi_dit_block_rows* rows, sumi_value normed)
{
    const sumi_value x = rows->x, modulation = rows->modulation;
    const sumi_dit_rows out = rows->out;
    SUMI_ASSERT(out.count >= 1 && out.count <= rows->in.count);
    sumi_value qkv =
        sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "attention.qkv", .x = normed, .weight = &block->qkv});
    sumi_plan_qk_norm_rope(plan, &(sumi_plan_qk_args){.label = "attention.qk_norm_rope",
                                                      .qkv = qkv,
                                                      .rows = rows->in.count,
                                                      .q_heads = model->heads,
                                                      .kv_heads = model->kv_heads,
                                                      .dim = model->head_dim,
                                                      .q_norm = &block->q_norm,
                                                      .k_norm = &block->k_norm,
                                                      .eps = model->qk_eps,
                                                      .rope = rows->rope,
                                                      .rotary = SUMI_ROTARY_INTERLEAVED});
    sumi_value attended = sumi_plan_attention(plan, "attention", qkv, rows->attention);
    sumi_value branch = sumi_plan_value(plan, "attention_branch", SUMI_ELEMENT_ACTIVATION, out.count, model->dim);
    sumi_plan_linear(
        plan, &(sumi_plan_linear_args){
                  .label = "attention.out", .x = attended, .rows = out.count, .weight = &block->out, .y = branch});
    sumi_plan_norm_gate_add(plan, &(sumi_plan_norm_gate_add_args){.label = "attention_norm2",
                                                                  .x = x,
                                                                  .branch = branch,
                                                                  .weight = &block->attention_norm2,
                                                                  .eps = model->eps,
                                                                  .gate = modulation_of(model, modulation, 1),
                                                                  .bands = out.bands,
                                                                  .band_count = out.band_count});

    sumi_value feed_forward_input =
        sumi_plan_norm(plan, &(sumi_plan_norm_args){.label = "ffn_norm1",
                                                    .x = x,
                                                    .rows = out.count,
                                                    .weight = &block->ffn_norm1,
                                                    .eps = model->eps,
                                                    .scale = modulation_of(model, modulation, 2),
                                                    .bands = out.bands,
                                                    .band_count = out.band_count});
    sumi_value gated =
        sumi_plan_linear_gated(plan, "feed_forward.w1w3", feed_forward_input, &block->gate_up, SUMI_ACT_SILU);
    return sumi_plan_linear(plan,
                            &(sumi_plan_linear_args){.label = "feed_forward.w2", .x = gated, .weight = &block->down});
}

void sumi_dit_write_last_sum(const sumi_next_dit* model, sumi_plan* plan, const sumi_next_dit_block* block,
                             const sumi_dit_block_rows* rows, sumi_value branch)
{
    sumi_plan_norm_gate_add(plan, &(sumi_plan_norm_gate_add_args){.label = "ffn_norm2",
                                                                  .x = rows->x,
                                                                  .branch = branch,
                                                                  .weight = &block->ffn_norm2,
                                                                  .eps = model->eps,
                                                                  .gate = modulation_of(model, rows->modulation, 3),
                                                                  .bands = rows->out.bands,
                                                                  .band_count = rows->out.band_count});
}

void sumi_dit_write_block(const sumi_next_dit* model, sumi_plan* plan, const sumi_next_dit_block* block,
                          const sumi_dit_block_rows* rows)
{
    const sumi_value normed = sumi_dit_write_first_norm(model, plan, block, rows),
                     branch = sumi_dit_write_branches(model, plan, block, rows, normed);
    sumi_dit_write_last_sum(model, plan, block, rows, branch);
}

sumi_dit_layout sumi_dit_lay_out(const sumi_next_dit* model, const sumi_denoising* job,
                                 const sumi_evaluation_list* list)
{
    const int32_t count = list->count;
    const sumi_next_dit_state* state = job->state;
    sumi_dit_layout layout = {.list = list, .height = job->height / 2, .width = job->width / 2};
    layout.tokens = layout.height * layout.width;
    layout.image_rows = sumi_dit_padded(model, layout.tokens);
    layout.rows = count * layout.image_rows;
    for (int32_t i = 0; i < count; i++) {
        const int32_t entry = model->settings->reads_pooled ? count - 1 - i : i;
        layout.caption_begin[entry] = layout.rows;
        layout.rows += state->caption_rows[list->evaluations[entry].prompt];
    }
    return layout;
}

// The rows up to `end`, in bands of one prompt each. No bands if the modulation is the same for all rows.
static sumi_dit_rows rows_of_prompts(const sumi_next_dit* model, const sumi_denoising* job,
                                     const sumi_dit_layout* layout, int32_t end,
                                     sumi_row_band bands[2 * SUMI_DIT_MAX_ENTRIES])
{
    const int32_t count = layout->list->count;
    sumi_dit_rows rows = {.count = end, .bands = bands};
    int32_t row = 0; // the end of band i
    for (int32_t i = 0; i < 2 * count && row < end && model->settings->reads_pooled; i++) {
        const sumi_next_dit_state* state = job->state;
        const int32_t prompt = layout->list->evaluations[i < count ? i : 2 * count - 1 - i].prompt,
                      table_row = prompt * job->evaluation_count;
        row += i < count ? layout->image_rows : state->caption_rows[prompt];
        const bool continues_band = rows.band_count > 0 && bands[rows.band_count - 1].table_row == table_row;
        bands[continues_band ? rows.band_count - 1 : rows.band_count++] =
            (sumi_row_band){.end = row, .table_row = table_row};
    }
    SUMI_ASSERT(rows.band_count == 0 || row == end);
    return rows;
}

void sumi_dit_begin_evaluation(const sumi_next_dit* model, const sumi_denoising* job, const sumi_evaluation_list* list,
                               sumi_dit_evaluation* out)
{
    const int32_t count = list->count;
    const sumi_next_dit_state* state = job->state;
    SUMI_ASSERT(list->slot >= 0 && list->slot < 2 && count >= 1 && count <= SUMI_DIT_MAX_ENTRIES);
    out->layout = sumi_dit_lay_out(model, job, list);
    const sumi_dit_layout* layout = &out->layout;
    out->image_rows = count * layout->image_rows;
    for (int32_t entry = 0; entry < count; entry++) {
        const sumi_span image = {entry * layout->image_rows, layout->image_rows},
                        caption = {layout->caption_begin[entry], state->caption_rows[list->evaluations[entry].prompt]};
        out->sequences[0][entry] = (sumi_sequence){.span = {image}, .span_count = 1, .query_spans = 1};
        out->sequences[1][entry] = (sumi_sequence){.span = {image, caption}, .span_count = 2, .query_spans = 2};
        out->sequences[2][entry] = (sumi_sequence){.span = {image, caption}, .span_count = 2, .query_spans = 1};
    }
    out->images = sumi_dit_attention(model, out->sequences[0], count);
    out->joint = sumi_dit_attention(model, out->sequences[1], count);
    out->last = sumi_dit_attention(model, out->sequences[2], count);
    out->modulated_images = rows_of_prompts(model, job, layout, out->image_rows, out->bands[0]);
    out->modulated_all = rows_of_prompts(model, job, layout, layout->rows, out->bands[1]);
    out->rope = state->rope[list->slot];
}

void sumi_dit_embed(const sumi_next_dit* model, sumi_plan* plan, const sumi_dit_layout* layout,
                    const sumi_dit_embedding* embedding, sumi_value x)
{
    const int32_t count = embedding->count, channels = embedding->channels;
    int32_t row_begin[SUMI_DIT_MAX_ENTRIES];
    sumi_span pads[SUMI_DIT_MAX_ENTRIES];
    SUMI_ASSERT(count >= 1 && count <= SUMI_DIT_MAX_ENTRIES);
    for (int32_t i = 0; i < count; i++) {
        row_begin[i] = i * layout->tokens;
        pads[i] = (sumi_span){i * layout->image_rows + layout->tokens, layout->image_rows - layout->tokens};
    }
    const sumi_patch_layout patches = {2 * layout->height,  2 * layout->width, channels, 2, count,
                                       embedding->pictures, row_begin,         false};
    sumi_value rows = sumi_plan_value(plan, "patches", SUMI_ELEMENT_ACTIVATION, count * layout->tokens, 4 * channels);
    sumi_plan_patchify(plan, embedding->latents, &patches, rows);
    const bool is_padded = layout->image_rows > layout->tokens;
    for (int32_t i = 0; i < (is_padded ? count : 1); i++) {
        sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = embedding->label,
                                                        .x = rows,
                                                        .x_row = i * layout->tokens,
                                                        .rows = is_padded ? layout->tokens : count * layout->tokens,
                                                        .weight = embedding->weight,
                                                        .bias = embedding->bias,
                                                        .y = x,
                                                        .y_row = i * layout->image_rows});
    }
    sumi_plan_prefix(plan, "image_pad.");
    sumi_plan_fill_rows(plan, x, &model->x_pad, pads, is_padded ? count : 0);
}

sumi_value sumi_dit_write_table(const sumi_next_dit* model, sumi_plan* plan, const sumi_next_dit_block* block,
                                sumi_value condition)
{
    const sumi_value table =
        sumi_plan_value(plan, "modulation", SUMI_ELEMENT_FLOAT, sumi_plan_rows(plan, condition), 4 * model->dim);
    sumi_plan_linear(plan, &(sumi_plan_linear_args){.label = "adaLN_modulation",
                                                    .x = condition,
                                                    .weight = &block->modulation,
                                                    .bias = &block->modulation_bias,
                                                    .y = table});
    sumi_plan_finish_modulation(plan, table, true);
    return table;
}
