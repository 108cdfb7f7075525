#include "plan/op_accesses.h"
#include "base/assert.h"

static void add_access(sumi_op_accesses* accesses, sumi_op_access a)
{
    if (a.value.id == 0 || accesses->result != SUMI_OK) return;
    accesses->result = sumi_grow(accesses->heap, (void**)&accesses->list, &accesses->capacity, accesses->count + 1,
                                 sizeof *accesses->list, accesses->error);
    if (accesses->result == SUMI_OK) accesses->list[accesses->count++] = a;
}

// Whole rows of a value that has `width` columns.
static sumi_op_access rows_of_width(sumi_value value, int64_t row, int64_t rows, int32_t width, int32_t elements)
{
    return (sumi_op_access){
        .value = value, .row = row, .rows = rows, .cols = width, .width = width, .elements = elements};
}

static void reads(sumi_op_accesses* accesses, sumi_value value, int64_t row, int64_t rows, int32_t width,
                  int32_t elements)
{
    add_access(accesses, rows_of_width(value, row, rows, width, elements));
}

// As reads(), and the op may write its result to the same rows.
static void reads_in_place(sumi_op_accesses* accesses, sumi_value value, int64_t row, int64_t rows, int32_t width,
                           int32_t elements)
{
    sumi_op_access access = rows_of_width(value, row, rows, width, elements);
    access.in_place = true;
    add_access(accesses, access);
}

static void writes(sumi_op_accesses* accesses, sumi_value value, int64_t row, int64_t rows, int32_t width,
                   int32_t elements)
{
    sumi_op_access access = rows_of_width(value, row, rows, width, elements);
    access.writes = true;
    add_access(accesses, access);
}

static void reads_step_from(sumi_op_accesses* accesses, sumi_step_row step, int64_t row, int32_t cols, int32_t elements)
{
    add_access(accesses, (sumi_op_access){.value = step.table,
                                          .row = row + (step.per_step ? accesses->first_counter : 0),
                                          .rows = step.per_step ? accesses->counter_count : 1,
                                          .column = step.column,
                                          .cols = cols,
                                          .elements = elements});
}

static void reads_step(sumi_op_accesses* accesses, sumi_step_row step, int32_t cols, int32_t elements)
{
    reads_step_from(accesses, step, 0, cols, elements);
}

static void reads_bands(sumi_op_accesses* accesses, sumi_step_row step, const sumi_row_band* bands, int32_t band_count,
                        int32_t cols)
{
    if (band_count == 0) reads_step(accesses, step, cols, SUMI_ACCESS_NUMBER);
    for (int32_t i = 0; i < band_count; i++)
        reads_step_from(accesses, step, bands[i].table_row, cols, SUMI_ACCESS_NUMBER);
}

static void list_rows(sumi_op_accesses* accesses, const sumi_op* op, int32_t out_cols)
{
    switch (op->kind) {
    case SUMI_OP_EMBED_ROWS:
        reads(accesses, op->in[0], 0, op->rows, op->u.embed.terms, SUMI_ACCESS_INT);
        reads(accesses, op->in[1], 0, sumi_plan_info(accesses->plan, op->in[1])->rows, out_cols,
              1 << SUMI_ELEMENT_ACTIVATION);
        reads(accesses, op->in[2], 0, op->rows, op->u.embed.terms, SUMI_ACCESS_FLOAT);
        writes(accesses, op->out, 0, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        break;
    case SUMI_OP_FILL_ROWS:
        for (int32_t i = 0; i < op->u.fill.span_count; i++) {
            if (op->u.fill.spans[i].count > 0) {
                writes(accesses, op->out, op->u.fill.spans[i].begin, op->u.fill.spans[i].count,
                       op->weight != NULL ? op->weight->cols : out_cols, SUMI_ACCESS_NUMBER);
            }
        }
        break;
    case SUMI_OP_COPY_ROWS: { // any element type, copied unchanged
        const sumi_value_info* x = sumi_plan_info(accesses->plan, op->in[0]);
        const int32_t element = 1 << x->element;
        reads(accesses, op->in[0], op->u.copy.from, op->rows, x->cols, element);
        add_access(accesses, (sumi_op_access){.value = op->out,
                                              .row = op->u.copy.to,
                                              .rows = op->rows,
                                              .column = op->u.copy.y_column,
                                              .cols = x->cols,
                                              .elements = element,
                                              .writes = true});
        break;
    }
    case SUMI_OP_MEAN_ROWS:
        for (int32_t i = 0; i < op->u.mean.span_count; i++) {
            reads(accesses, op->in[0], op->u.mean.spans[i].begin, op->u.mean.spans[i].count, out_cols,
                  SUMI_ACCESS_NUMBER);
        }
        writes(accesses, op->out, 0, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        break;
    case SUMI_OP_ADD_ROWS:
        reads(accesses, op->in[0], op->u.add.from, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        reads_in_place(accesses, op->out, op->u.add.to, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        writes(accesses, op->out, op->u.add.to, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        break;
    case SUMI_OP_RESIDUAL_CHANGE: {
        const int32_t cols = sumi_plan_info(accesses->plan, op->in[0])->cols;
        reads(accesses, op->in[0], 0, op->rows, cols, SUMI_ACCESS_NUMBER);
        reads(accesses, op->in[1], 0, op->rows, cols, SUMI_ACCESS_NUMBER);
        reads_in_place(accesses, op->in[2], 0, op->rows, cols, SUMI_ACCESS_NUMBER);
        writes(accesses, op->in[2], 0, op->rows, cols, SUMI_ACCESS_NUMBER);
        writes(accesses, op->out, 0, op->range_count, 2, SUMI_ACCESS_FLOAT);
        break;
    }
    case SUMI_OP_ADD_RESIDUAL:
        reads_in_place(accesses, op->in[0], 0, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        reads(accesses, op->in[1], 0, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        reads(accesses, op->in[2], 0, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        reads(accesses, op->in[3], 0, 2, sumi_plan_info(accesses->plan, op->in[3])->cols, SUMI_ACCESS_FLOAT);
        reads_step(accesses, op->u.add_residual.sigma, 1, SUMI_ACCESS_FLOAT);
        writes(accesses, op->out, 0, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        break;
    case SUMI_OP_ACTIVATE:
        reads_in_place(accesses, op->in[0], op->u.activate.row, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        writes(accesses, op->out, op->u.activate.row, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        break;
    case SUMI_OP_GATED: {
        const int32_t cols = sumi_plan_info(accesses->plan, op->in[0])->cols / 2;
        reads(accesses, op->in[0], 0, op->rows, 2 * cols, SUMI_ACCESS_NUMBER);
        add_access(accesses, (sumi_op_access){.value = op->out,
                                              .rows = op->rows,
                                              .column = op->u.gated.y_column,
                                              .cols = cols,
                                              .elements = SUMI_ACCESS_NUMBER,
                                              .writes = true});
        break;
    }
    case SUMI_OP_NORM_MODULATE:
        reads_in_place(accesses, op->in[0], op->u.norm.x_row, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        reads_bands(accesses, op->u.norm.scale, op->u.norm.bands, op->u.norm.band_count, out_cols);
        reads_bands(accesses, op->u.norm.shift, op->u.norm.bands, op->u.norm.band_count, out_cols);
        reads(accesses, op->in[3], 0, 1, out_cols, SUMI_ACCESS_FLOAT);
        writes(accesses, op->out, op->u.norm.y_row, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        break;
    case SUMI_OP_NORM_GATE_ADD:
        reads_in_place(accesses, op->in[0], op->u.gate_add.x_row, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        reads(accesses, op->in[1], op->u.gate_add.b_row, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        reads_bands(accesses, op->u.gate_add.gate, op->u.gate_add.bands, op->u.gate_add.band_count, out_cols);
        reads(accesses, op->in[3], 0, 1, out_cols, SUMI_ACCESS_FLOAT);
        writes(accesses, op->out, op->u.gate_add.x_row, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        break;
    case SUMI_OP_ROPE_TABLE: {
        int32_t pairs = 0;
        for (int32_t a = 0; a < op->u.rope.axes; a++) pairs += op->u.rope.pairs[a];
        reads(accesses, op->in[0], 0, op->rows, op->u.rope.axes, SUMI_ACCESS_INT);
        writes(accesses, op->out, 0, op->rows, 2 * pairs, SUMI_ACCESS_FLOAT);
        break;
    }
    case SUMI_OP_TIME_EMBED:
        reads(accesses, op->in[0], 0, op->rows, 1, SUMI_ACCESS_FLOAT);
        writes(accesses, op->out, 0, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        break;
    default: // FINISH_MODULATION
        reads_in_place(accesses, op->in[0], op->u.finish.x_row + (op->u.finish.per_step ? accesses->first_counter : 0),
                       op->rows + (op->u.finish.per_step ? accesses->counter_count - 1 : 0), out_cols,
                       SUMI_ACCESS_NUMBER);
        writes(accesses, op->out, 0, op->rows, out_cols, SUMI_ACCESS_NUMBER);
        break;
    }
}

static void list_linear(sumi_op_accesses* accesses, const sumi_op* op)
{
    const int32_t n = op->weight->rows, width = sumi_plan_info(accesses->plan, op->out)->cols;
    sumi_op_access y = {.value = op->out,
                        .row = op->u.linear.y_row,
                        .rows = op->rows,
                        .column = op->u.linear.y_column,
                        .cols = n,
                        .width = width,
                        .elements = SUMI_ACCESS_NUMBER,
                        .in_place = true};
    reads(accesses, op->in[0], op->u.linear.x_row, op->rows, sumi_plan_info(accesses->plan, op->in[0])->cols,
          SUMI_ACCESS_NUMBER);
    sumi_op_access residual = y; // the residual, or the sum that an adapter's product adds to
    residual.value = op->in[1];
    add_access(accesses, residual);
    reads_step(accesses, op->u.linear.gate, n, SUMI_ACCESS_NUMBER);
    y.writes = true;
    add_access(accesses, y);
}

static void list_kronecker(sumi_op_accesses* accesses, const sumi_op* op)
{
    const sumi_op_kronecker_add* k = &op->u.kronecker;
    const int32_t folds = op->weight->cols, b = sumi_plan_info(accesses->plan, op->in[0])->cols,
                  n = op->weight->rows * b;
    sumi_op_access y = {.value = op->out,
                        .row = k->y_row,
                        .rows = op->rows,
                        .column = k->y_column,
                        .cols = n,
                        .elements = SUMI_ACCESS_NUMBER,
                        .in_place = true};
    reads(accesses, op->in[0], 0, (int64_t)op->rows * folds, b, SUMI_ACCESS_NUMBER);
    add_access(accesses, y);
    reads_step(accesses, k->gate, n, SUMI_ACCESS_NUMBER);
    y.writes = true;
    add_access(accesses, y);
}

static void list_attention(sumi_op_accesses* accesses, const sumi_op* op)
{
    const int32_t dim = op->u.attention.dim, q = op->u.attention.q_heads * dim, kv = op->u.attention.kv_heads * dim;
    const int32_t columns[3] = {op->u.attention.q_column, op->u.attention.k_column, op->u.attention.v_column};
    const bool has_kept = op->in[2].id != 0;
    for (int32_t s = 0; s < op->u.attention.sequence_count; s++) {
        const sumi_sequence* sequence = &op->u.attention.sequences[s];
        for (int32_t i = 0; i < sequence->span_count; i++) {
            const bool has_queries = i >= sequence->query_first && i < sequence->query_first + sequence->query_spans;
            const bool has_keys = i < sumi_sequence_key_spans(sequence);
            if (has_kept && i == 0) { // k | v
                add_access(accesses, (sumi_op_access){.value = op->in[2],
                                                      .row = sequence->span[i].begin,
                                                      .rows = sequence->span[i].count,
                                                      .cols = 2 * kv,
                                                      .width = 2 * kv,
                                                      .elements = SUMI_ACCESS_NUMBER});
                continue;
            }
            for (int32_t k = has_queries ? 0 : 1; k < (has_keys ? 3 : 1); k++) {
                add_access(accesses, (sumi_op_access){.value = op->in[0],
                                                      .row = sequence->span[i].begin,
                                                      .rows = sequence->span[i].count,
                                                      .column = columns[k],
                                                      .cols = k == 0 ? q : kv,
                                                      .elements = SUMI_ACCESS_NUMBER});
            }
        }
    }
    for (int32_t s = 0; s < op->u.attention.sequence_count; s++) {
        const sumi_sequence* sequence = &op->u.attention.sequences[s];
        for (int32_t i = sequence->query_first; i < sequence->query_first + sequence->query_spans; i++)
            add_access(accesses, (sumi_op_access){.value = op->out,
                                                  .row = sequence->span[i].begin,
                                                  .rows = sequence->span[i].count,
                                                  .column = op->u.attention.y_column,
                                                  .cols = q,
                                                  .elements = SUMI_ACCESS_NUMBER,
                                                  .writes = true});
    }
}

static void list_qk(sumi_op_accesses* accesses, const sumi_op* op)
{
    const int32_t dim = op->u.qk.dim, cols = (op->u.qk.q_heads + op->u.qk.kv_heads) * dim,
                  width = cols + op->u.qk.kv_heads * dim;
    sumi_op_access heads = {.value = op->in[0],
                            .row = op->u.qk.row,
                            .rows = op->rows,
                            .cols = cols,
                            .width = width,
                            .elements = SUMI_ACCESS_NUMBER,
                            .in_place = true};
    add_access(accesses, heads);
    if (op->u.qk.rotary != SUMI_ROTARY_NONE)
        reads(accesses, op->in[1], op->u.qk.rope_row, op->rows, dim, SUMI_ACCESS_FLOAT);
    reads(accesses, op->in[2], 0, 1, dim, SUMI_ACCESS_FLOAT);
    reads(accesses, op->in[3], 0, 1, dim, SUMI_ACCESS_FLOAT);
    heads.value = op->out;
    heads.writes = true;
    add_access(accesses, heads);
}

static void list_patches(sumi_op_accesses* accesses, const sumi_op* op)
{
    const int32_t channels = op->u.patch.channels, plane = op->u.patch.height * op->u.patch.width,
                  area = op->u.patch.patch * op->u.patch.patch, tokens = plane / area;
    for (int32_t s = 0; s < op->u.patch.sequence_count; s++) {
        if (op->kind == SUMI_OP_PATCHIFY) {
            reads(accesses, op->in[0], (int64_t)op->u.patch.items[s] * channels, channels, plane, SUMI_ACCESS_FLOAT);
        } else {
            reads(accesses, op->in[0], op->u.patch.row_begin[s], tokens, area * channels, SUMI_ACCESS_NUMBER);
        }
    }
    for (int32_t s = 0; s < op->u.patch.sequence_count; s++) {
        if (op->kind == SUMI_OP_PATCHIFY) {
            writes(accesses, op->out, op->u.patch.row_begin[s], tokens, area * channels, SUMI_ACCESS_NUMBER);
        } else {
            writes(accesses, op->out, (int64_t)s * channels, channels, plane, SUMI_ACCESS_FLOAT);
        }
    }
}

static void list_solve(sumi_op_accesses* accesses, const sumi_op* op, int32_t plane)
{
    for (int32_t k = 0; k < 3; k++) reads_in_place(accesses, op->in[k], 0, op->rows, plane, SUMI_ACCESS_FLOAT);
    reads(accesses, op->in[3], 0, op->rows, plane, SUMI_ACCESS_FLOAT);
    if (op->mask.id != 0) {
        reads(accesses, op->in[4], 0, op->rows, plane, SUMI_ACCESS_FLOAT);
        reads(accesses, op->in[5], 0, op->rows, plane, SUMI_ACCESS_FLOAT);
        reads(accesses, op->mask, 0, op->u.solve.channels > 0 ? op->rows / op->u.solve.channels : 0, plane,
              SUMI_ACCESS_FLOAT);
    }
    reads_step(accesses, op->u.solve.row, 12, SUMI_ACCESS_FLOAT);
    writes(accesses, op->out, 0, op->rows, plane, SUMI_ACCESS_FLOAT);
    writes(accesses, op->in[1], 0, op->rows, plane, SUMI_ACCESS_FLOAT);
    writes(accesses, op->in[2], 0, op->rows, plane, SUMI_ACCESS_FLOAT);
}

static void list_latents(sumi_op_accesses* accesses, const sumi_op* op)
{
    const int32_t plane = sumi_plan_info(accesses->plan, op->out)->cols;
    switch (op->kind) {
    case SUMI_OP_ADD_NOISE:
        reads(accesses, op->in[0], 0, op->rows, plane, SUMI_ACCESS_FLOAT);
        reads(accesses, op->in[1], 0, op->rows, plane, SUMI_ACCESS_FLOAT);
        reads_step(accesses, op->u.add_noise.sigma, 1, SUMI_ACCESS_FLOAT);
        writes(accesses, op->out, 0, op->rows, plane, SUMI_ACCESS_FLOAT);
        break;
    case SUMI_OP_GUIDE: {
        const int32_t channels = op->u.guide.channels;
        for (int32_t i = 0; i < op->u.guide.item_count; i++) {
            reads(accesses, op->in[0], (int64_t)op->u.guide.positive[i] * channels, channels, plane, SUMI_ACCESS_FLOAT);
            if (op->u.guide.negative[i] >= 0) {
                reads(accesses, op->in[0], (int64_t)op->u.guide.negative[i] * channels, channels, plane,
                      SUMI_ACCESS_FLOAT);
            }
        }
        reads_step(accesses, op->u.guide.scale, 1, SUMI_ACCESS_FLOAT);
        for (int32_t i = 0; i < op->u.guide.item_count; i++)
            writes(accesses, op->out, (int64_t)i * channels, channels, plane, SUMI_ACCESS_FLOAT);
        break;
    }
    case SUMI_OP_SOLVE: list_solve(accesses, op, plane); break;
    case SUMI_OP_PREVIEW: {
        const int32_t area = op->u.preview.packing * op->u.preview.packing;
        const int64_t rows = (int64_t)op->rows * op->u.preview.channels * area;
        reads(accesses, op->in[0], 0, rows, plane / area, SUMI_ACCESS_FLOAT);
        reads(accesses, op->in[1], 0, rows, plane / area, SUMI_ACCESS_FLOAT);
        reads_step(accesses, op->u.preview.sigma, 1, SUMI_ACCESS_FLOAT);
        writes(accesses, op->out, 0, (int64_t)op->rows * 3, plane, SUMI_ACCESS_FLOAT);
        break;
    }
    case SUMI_OP_POSTERIOR: {
        const int32_t area = op->u.posterior.packing * op->u.posterior.packing,
                      channels = op->u.posterior.channels * area;
        reads(accesses, op->in[0], 0, (int64_t)plane * area, 2 * op->u.posterior.channels, SUMI_ACCESS_NUMBER);
        reads(accesses, op->in[1], 0, channels, plane, SUMI_ACCESS_FLOAT);
        writes(accesses, op->out, 0, channels, plane, SUMI_ACCESS_FLOAT);
        break;
    }
    default: { // LATENT_IN
        const int32_t area = op->u.latent_in.packing * op->u.latent_in.packing;
        const int64_t channels = (int64_t)op->u.latent_in.channels * area,
                      item = op->u.latent_in.per_item ? accesses->first_counter : 0,
                      items = op->u.latent_in.per_item ? accesses->counter_count : 1;
        reads(accesses, op->in[0], item * channels, items * channels,
              op->u.latent_in.height * op->u.latent_in.width / area, SUMI_ACCESS_FLOAT);
        writes(accesses, op->out, 0, op->rows, op->u.latent_in.channels, SUMI_ACCESS_NUMBER);
        break;
    }
    }
}

// Lists `lines` lines of a rectangle of a picture, `width` pixels each; line k + 1 begins `pitch` pixels after line k.
// Listed as one range of rows if the lines are adjacent or accesses->by_line is false.
static void list_lines(sumi_op_accesses* accesses, sumi_op_access pixels, int32_t lines, int32_t width, int32_t pitch)
{
    if (width == pitch || !accesses->by_line) {
        pixels.rows = (int64_t)(lines - 1) * pitch + width;
        add_access(accesses, pixels);
        return;
    }
    pixels.rows = width;
    for (int32_t line = 0; line < lines; line++) {
        add_access(accesses, pixels);
        pixels.row += pitch;
    }
}

static void list_tiles(sumi_op_accesses* accesses, const sumi_op* op, int32_t cols)
{
    sumi_op_access pixels = {.cols = cols, .width = cols, .elements = SUMI_ACCESS_NUMBER};
    if (op->kind == SUMI_OP_TILE_BLEND) {
        const int32_t height = op->u.blend.height, width = op->u.blend.width, above = op->u.blend.above_height;
        int32_t lines = op->u.blend.extent < above ? op->u.blend.extent : above;
        lines = lines < height ? lines : height;
        reads_in_place(accesses, op->in[0], 0, (int64_t)height * width, cols, SUMI_ACCESS_NUMBER);
        if (lines > 0) {
            reads(accesses, op->in[1], (int64_t)(above - lines) * width, (int64_t)lines * width, cols,
                  SUMI_ACCESS_NUMBER);
        }
        reads(accesses, op->in[2], 0, (int64_t)height * op->u.blend.left_width, cols, SUMI_ACCESS_NUMBER);
        writes(accesses, op->out, 0, (int64_t)height * width, cols, SUMI_ACCESS_NUMBER);
        return;
    }
    pixels.value = op->in[0];
    list_lines(accesses, pixels, op->u.tile_place.height, op->u.tile_place.width, op->u.tile_place.tile_width);
    const int32_t first = op->u.tile_place.per_item ? accesses->first_counter : 0,
                  items = op->u.tile_place.per_item ? accesses->counter_count : 1;
    pixels.value = op->out;
    pixels.writes = true;
    for (int32_t i = first; i < first + items; i++) {
        pixels.row = (int64_t)i * op->u.tile_place.item_rows
                   + (int64_t)op->u.tile_place.y * op->u.tile_place.picture_width + op->u.tile_place.x;
        list_lines(accesses, pixels, op->u.tile_place.height, op->u.tile_place.width, op->u.tile_place.picture_width);
    }
}

static void list_pictures(sumi_op_accesses* accesses, const sumi_op* op)
{
    const int32_t cols = sumi_plan_info(accesses->plan, op->out)->cols;
    switch (op->kind) {
    case SUMI_OP_PIXELS_IN: {
        const int32_t first = op->u.pixels.per_item ? accesses->first_counter : 0,
                      items = op->u.pixels.per_item ? accesses->counter_count : 1, width = op->u.pixels.width;
        for (int32_t i = first; i < first + items; i++) {
            const int64_t row = (int64_t)i * op->u.pixels.item_rows
                              + (int64_t)op->u.pixels.y * op->u.pixels.picture_width + op->u.pixels.x;
            list_lines(accesses,
                       (sumi_op_access){.value = op->in[0],
                                        .row = row,
                                        .cols = op->u.pixels.cols,
                                        .width = op->u.pixels.cols,
                                        .elements = SUMI_ACCESS_BYTE},
                       width > 0 ? op->rows / width : 0, width, op->u.pixels.picture_width);
        }
        writes(accesses, op->out, 0, op->rows, cols, SUMI_ACCESS_NUMBER);
        break;
    }
    case SUMI_OP_PATCHES_IN: {
        const int32_t patches = op->u.patches.cell * op->u.patches.cell;
        reads(accesses, op->in[0], 0, (int64_t)op->u.patches.height * op->u.patches.width, 3, SUMI_ACCESS_BYTE);
        reads(accesses, op->in[1], 0, patches > 0 ? op->rows / patches : 0, 1, SUMI_ACCESS_INT);
        writes(accesses, op->out, 0, op->rows, 3 * op->u.patches.frames * op->u.patches.patch * op->u.patches.patch,
               SUMI_ACCESS_NUMBER);
        break;
    }
    case SUMI_OP_CONV:
        reads(accesses, op->in[0], 0, (int64_t)op->u.conv.height * op->u.conv.width,
              op->weight->cols / (op->u.conv.kernel * op->u.conv.kernel), SUMI_ACCESS_NUMBER);
        reads_in_place(accesses, op->in[1], 0, op->rows, op->weight->rows, SUMI_ACCESS_NUMBER);
        writes(accesses, op->out, 0, op->rows, op->weight->rows, SUMI_ACCESS_NUMBER);
        break;
    case SUMI_OP_SHORTCUT: {
        const int64_t area = (int64_t)op->u.shortcut.scale * op->u.shortcut.scale;
        reads(accesses, op->in[0], 0, op->u.shortcut.upsamples && area > 0 ? op->rows / area : op->rows * area,
              sumi_plan_info(accesses->plan, op->in[0])->cols, SUMI_ACCESS_NUMBER);
        writes(accesses, op->out, 0, op->rows, cols, SUMI_ACCESS_NUMBER);
        break;
    }
    case SUMI_OP_GROUP_SUMS:
        reads(accesses, op->in[0], 0, op->rows, sumi_plan_info(accesses->plan, op->in[0])->cols, SUMI_ACCESS_NUMBER);
        writes(accesses, op->out, 0, op->u.group.block_count, 2 * op->u.group.groups, SUMI_ACCESS_FLOAT);
        break;
    case SUMI_OP_GROUP_NORM:
        reads_in_place(accesses, op->in[0], 0, op->rows, cols, SUMI_ACCESS_NUMBER);
        reads(accesses, op->in[1], 0, op->u.group.block_count, 2 * op->u.group.groups, SUMI_ACCESS_FLOAT);
        writes(accesses, op->out, 0, op->rows, cols, SUMI_ACCESS_NUMBER);
        break;
    case SUMI_OP_COMPOSITE: {
        const int32_t rows = sumi_plan_info(accesses->plan, op->in[1])->rows; // pixels of one picture
        reads_in_place(accesses, op->in[0], 0, op->rows, cols, SUMI_ACCESS_NUMBER);
        reads(accesses, op->in[1], 0, rows, cols, SUMI_ACCESS_BYTE);
        reads(accesses, op->in[2], 0, rows, 1, SUMI_ACCESS_BYTE);
        writes(accesses, op->out, 0, op->rows, cols, SUMI_ACCESS_NUMBER);
        break;
    }
    case SUMI_OP_PIXELS_OUT:
        reads(accesses, op->in[0], 0, op->rows, cols, SUMI_ACCESS_NUMBER);
        reads_in_place(accesses, op->in[1], 0, 1, 1, SUMI_ACCESS_INT);
        writes(accesses, op->in[1], 0, 1, 1, SUMI_ACCESS_INT);
        writes(accesses, op->out, 0, op->rows, cols, SUMI_ACCESS_BYTE);
        break;
    default: list_tiles(accesses, op, cols); break;
    }
}

sumi_result sumi_op_list_accesses(sumi_op_accesses* accesses, const sumi_op* op, int32_t first, int32_t count)
{
    accesses->count = 0;
    accesses->first_counter = accesses->plan->sections[op->section].first_counter + first;
    accesses->counter_count = count;
    accesses->result = SUMI_OK;
    if (op->kind == SUMI_OP_LINEAR) {
        list_linear(accesses, op);
    } else if (op->kind == SUMI_OP_KRONECKER_ADD) {
        list_kronecker(accesses, op);
    } else if (op->kind == SUMI_OP_ATTENTION) {
        list_attention(accesses, op);
    } else if (op->kind == SUMI_OP_QK_NORM_ROPE) {
        list_qk(accesses, op);
    } else if (op->kind == SUMI_OP_PATCHIFY || op->kind == SUMI_OP_UNPATCHIFY) {
        list_patches(accesses, op);
    } else if (op->kind <= SUMI_OP_FINISH_MODULATION) {
        list_rows(accesses, op, sumi_plan_info(accesses->plan, op->out)->cols);
    } else if (op->kind <= SUMI_OP_PREVIEW || op->kind == SUMI_OP_POSTERIOR || op->kind == SUMI_OP_LATENT_IN) {
        list_latents(accesses, op);
    } else {
        list_pictures(accesses, op);
    }
    return accesses->result;
}
