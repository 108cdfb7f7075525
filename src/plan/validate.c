// The invariants of a plan, a function each. What an op reads and writes is said once, in list_accesses: a list of
// rectangles of values. Shapes, in-place rules, lifetimes and the order of reads and writes are checked against that
// list.
//
// Order. The arena is an interval map from bytes to (value, view) that wrote them last. Ops run through it in the order
// of the runner; a read finds its bytes owned by its own value. So rows that were never written, rows whose bytes
// another value took, and rows that another view of the same value overwrote are all one check. A section that repeats
// runs twice: its first iteration may only read what precedes it, the second one finds what the first left. The second
// stands for all further ones: it has the rows of all their counters. Granularity is whole rows of the base: of a view
// of some columns, a write counts for the row.
#include "plan/validate.h"
#include "base/rotation.h"
#include "base/sort.h"
#include <string.h>

enum {
    IS_INT = 1 << SUMI_ELEMENT_INT,
    IS_BYTE = 1 << SUMI_ELEMENT_BYTE,
    IS_FLOAT = 1 << SUMI_ELEMENT_FLOAT,
    IS_NUMBER = IS_FLOAT | (1 << SUMI_ELEMENT_ACTIVATION)
};

// Rows [row, row + rows), columns [column, column + cols) of a value.
typedef struct access {
    sumi_value value;
    int64_t row, rows;
    int32_t column, cols;
    int32_t width;    // columns that the value must have; 0: any that hold those above
    int32_t elements; // that it may have: IS_*
    bool writes;
    bool in_place; // a read: its op may write the same rectangle of the same memory
} access;

// Bytes [begin, end) of the arena, last written as rows of `value` by way of `view`: the outermost view that the op's
// value was cut from, the value itself when it is no view.
typedef struct owned {
    uint64_t begin, end;
    int32_t value, view;
} owned;

typedef struct validator {
    const sumi_plan* plan;
    sumi_error* error;
    sumi_heap heap;
    access* accesses;
    size_t access_count, access_capacity;
    owned* map; // sorted, disjoint
    size_t map_count, map_capacity;
    int32_t first_counter, counter_count; // of the iterations that are looked at
    // A rectangle of a picture is a range of rows for each of its lines, not one from its first pixel to its last.
    bool by_line;
    sumi_result result; // of list_accesses
} validator;

static const char* name_of(const sumi_plan* plan, sumi_value value) { return sumi_plan_info(plan, value)->name; }

static bool is_value(const sumi_plan* plan, sumi_value value)
{
    return value.id > 0 && (size_t)value.id <= plan->value_count;
}

// "op 12 (linear, layers.0.attention.out): value stream: <rule>"
static sumi_result op_breaks(const validator* v, const sumi_op* op, sumi_value value, const char* rule)
{
    return sumi_fail(v->error, SUMI_INTERNAL, "op %d (%s, %s): value %s: %s", (int)(op - v->plan->ops),
                     sumi_op_name(op->kind), op->label,
                     value.id == 0              ? "none"
                     : is_value(v->plan, value) ? name_of(v->plan, value)
                                                : "(not in the plan)",
                     rule);
}

static sumi_result value_breaks(const validator* v, size_t index, const char* rule)
{
    return sumi_fail(v->error, SUMI_INTERNAL, "value %d (%s): %s", (int)index + 1, v->plan->values[index].name, rule);
}

static sumi_value base_of(const sumi_plan* plan, sumi_value value)
{
    const sumi_value_info* info = sumi_plan_info(plan, value);
    return info->base.id != 0 ? info->base : value;
}

// The seventh value that a solver reads: its inputs are six.
static sumi_value table_of(const sumi_op* op)
{
    return op->kind == SUMI_OP_SOLVE ? op->u.solve.row.table : SUMI_NO_VALUE;
}

// ---- What an op reads and writes ------------------------------------------------------------------------------------

static void add_access(validator* v, access a)
{
    if (a.value.id == 0 || v->result != SUMI_OK) { return; }
    v->result = sumi_grow(&v->heap, (void**)&v->accesses, &v->access_capacity, v->access_count + 1, sizeof *v->accesses,
                          v->error);
    if (v->result == SUMI_OK) { v->accesses[v->access_count++] = a; }
}

// Whole rows of a value that is `width` columns wide.
static void reads(validator* v, sumi_value value, int64_t row, int64_t rows, int32_t width, int32_t elements)
{
    add_access(v,
               (access){.value = value, .row = row, .rows = rows, .cols = width, .width = width, .elements = elements});
}

// The same, and the op may write its result there.
static void reads_in_place(validator* v, sumi_value value, int64_t row, int64_t rows, int32_t width, int32_t elements)
{
    add_access(v, (access){.value = value,
                           .row = row,
                           .rows = rows,
                           .cols = width,
                           .width = width,
                           .elements = elements,
                           .in_place = true});
}

static void writes(validator* v, sumi_value value, int64_t row, int64_t rows, int32_t width, int32_t elements)
{
    add_access(v, (access){.value = value,
                           .row = row,
                           .rows = rows,
                           .cols = width,
                           .width = width,
                           .elements = elements,
                           .writes = true});
}

static void reads_step_from(validator* v, sumi_step_row step, int64_t row, int32_t cols, int32_t elements)
{
    add_access(v, (access){.value = step.table,
                           .row = row + (step.per_step ? v->first_counter : 0),
                           .rows = step.per_step ? v->counter_count : 1,
                           .column = step.column,
                           .cols = cols,
                           .elements = elements});
}

static void reads_step(validator* v, sumi_step_row step, int32_t cols, int32_t elements)
{
    reads_step_from(v, step, 0, cols, elements);
}

static void reads_bands(validator* v, sumi_step_row step, const sumi_row_band* bands, int32_t band_count, int32_t cols)
{
    if (band_count == 0) { reads_step(v, step, cols, IS_NUMBER); }
    for (int32_t i = 0; i < band_count; i++) { reads_step_from(v, step, bands[i].table_row, cols, IS_NUMBER); }
}

static void list_rows(validator* v, const sumi_op* op, int32_t out_cols)
{
    switch (op->kind) {
    case SUMI_OP_EMBED_ROWS:
        reads(v, op->in[0], 0, op->rows, 1, IS_INT);
        reads(v, op->in[1], 0, sumi_plan_info(v->plan, op->in[1])->rows, out_cols, 1 << SUMI_ELEMENT_ACTIVATION);
        writes(v, op->out, 0, op->rows, out_cols, IS_NUMBER);
        break;
    case SUMI_OP_FILL_ROWS:
        for (int32_t i = 0; i < op->u.fill.span_count; i++) {
            if (op->u.fill.spans[i].count > 0) {
                writes(v, op->out, op->u.fill.spans[i].begin, op->u.fill.spans[i].count, op->weight->cols, IS_NUMBER);
            }
        }
        break;
    case SUMI_OP_COPY_ROWS: { // of any element, as they are
        const int32_t element = 1 << sumi_plan_info(v->plan, op->in[0])->element;
        reads(v, op->in[0], op->u.copy.from, op->rows, out_cols, element);
        writes(v, op->out, op->u.copy.to, op->rows, out_cols, element);
        break;
    }
    case SUMI_OP_MEAN_ROWS:
        for (int32_t i = 0; i < op->u.mean.span_count; i++) {
            reads(v, op->in[0], op->u.mean.spans[i].begin, op->u.mean.spans[i].count, out_cols, IS_NUMBER);
        }
        writes(v, op->out, 0, op->rows, out_cols, IS_NUMBER);
        break;
    case SUMI_OP_ACTIVATE:
        reads_in_place(v, op->in[0], op->u.activate.row, op->rows, out_cols, IS_NUMBER);
        writes(v, op->out, op->u.activate.row, op->rows, out_cols, IS_NUMBER);
        break;
    case SUMI_OP_GATED:
        reads(v, op->in[0], 0, op->rows, 2 * out_cols, IS_NUMBER);
        writes(v, op->out, 0, op->rows, out_cols, IS_NUMBER);
        break;
    case SUMI_OP_NORM_MODULATE:
        reads_in_place(v, op->in[0], op->u.norm.x_row, op->rows, out_cols, IS_NUMBER);
        reads_bands(v, op->u.norm.scale, op->u.norm.bands, op->u.norm.band_count, out_cols);
        reads_bands(v, op->u.norm.shift, op->u.norm.bands, op->u.norm.band_count, out_cols);
        reads(v, op->in[3], 0, 1, out_cols, IS_FLOAT);
        writes(v, op->out, op->u.norm.y_row, op->rows, out_cols, IS_NUMBER);
        break;
    case SUMI_OP_NORM_GATE_ADD:
        reads_in_place(v, op->in[0], op->u.gate_add.x_row, op->rows, out_cols, IS_NUMBER);
        reads(v, op->in[1], op->u.gate_add.b_row, op->rows, out_cols, IS_NUMBER);
        reads_bands(v, op->u.gate_add.gate, op->u.gate_add.bands, op->u.gate_add.band_count, out_cols);
        reads(v, op->in[3], 0, 1, out_cols, IS_FLOAT);
        writes(v, op->out, op->u.gate_add.x_row, op->rows, out_cols, IS_NUMBER);
        break;
    case SUMI_OP_ROPE_TABLE: {
        int32_t pairs = 0;
        for (int32_t a = 0; a < op->u.rope.axes; a++) { pairs += op->u.rope.pairs[a]; }
        reads(v, op->in[0], 0, op->rows, op->u.rope.axes, IS_INT);
        writes(v, op->out, 0, op->rows, 2 * pairs, IS_FLOAT);
        break;
    }
    case SUMI_OP_TIME_EMBED:
        reads(v, op->in[0], 0, op->rows, 1, IS_FLOAT);
        writes(v, op->out, 0, op->rows, out_cols, IS_NUMBER);
        break;
    default: // FINISH_MODULATION
        reads_in_place(v, op->in[0], op->u.finish.x_row + (op->u.finish.per_step ? v->first_counter : 0),
                       op->rows + (op->u.finish.per_step ? v->counter_count - 1 : 0), out_cols, IS_NUMBER);
        writes(v, op->out, 0, op->rows, out_cols, IS_NUMBER);
        break;
    }
}

static void list_linear(validator* v, const sumi_op* op)
{
    const int32_t n = op->weight->rows, width = sumi_plan_info(v->plan, op->out)->cols;
    access y = {.value = op->out,
                .row = op->u.linear.y_row,
                .rows = op->rows,
                .column = op->u.linear.y_column,
                .cols = n,
                .width = width,
                .elements = IS_NUMBER,
                .in_place = true};
    reads(v, op->in[0], op->u.linear.x_row, op->rows, sumi_plan_info(v->plan, op->in[0])->cols, IS_NUMBER);
    access residual = y; // or what an adapter's product adds to
    residual.value = op->in[1];
    add_access(v, residual);
    reads_step(v, op->u.linear.gate, n, IS_NUMBER);
    y.writes = true;
    add_access(v, y);
}

static void list_kronecker(validator* v, const sumi_op* op)
{
    const sumi_op_kronecker_add* k = &op->u.kronecker;
    const int32_t folds = op->weight->cols, b = sumi_plan_info(v->plan, op->in[0])->cols, n = op->weight->rows * b;
    access y = {.value = op->out,
                .row = k->y_row,
                .rows = op->rows,
                .column = k->y_column,
                .cols = n,
                .elements = IS_NUMBER,
                .in_place = true};
    reads(v, op->in[0], 0, (int64_t)op->rows * folds, b, IS_NUMBER);
    add_access(v, y);
    reads_step(v, k->gate, n, IS_NUMBER);
    y.writes = true;
    add_access(v, y);
}

static void list_attention(validator* v, const sumi_op* op)
{
    const int32_t dim = op->u.attention.dim, q = op->u.attention.q_heads * dim, kv = op->u.attention.kv_heads * dim;
    const int32_t columns[3] = {op->u.attention.q_column, op->u.attention.k_column, op->u.attention.v_column};
    for (int32_t s = 0; s < op->u.attention.sequence_count; s++) {
        const sumi_sequence* sequence = &op->u.attention.sequences[s];
        for (int32_t i = 0; i < sequence->span_count; i++) {
            const bool has_queries = i >= sequence->query_first && i < sequence->query_first + sequence->query_spans;
            for (int32_t k = has_queries ? 0 : 1; k < 3; k++) {
                add_access(v, (access){.value = op->in[0],
                                       .row = sequence->span[i].begin,
                                       .rows = sequence->span[i].count,
                                       .column = columns[k],
                                       .cols = k == 0 ? q : kv,
                                       .elements = IS_NUMBER});
            }
        }
    }
    for (int32_t s = 0; s < op->u.attention.sequence_count; s++) {
        const sumi_sequence* sequence = &op->u.attention.sequences[s];
        for (int32_t i = sequence->query_first; i < sequence->query_first + sequence->query_spans; i++) {
            writes(v, op->out, sequence->span[i].begin, sequence->span[i].count, q, IS_NUMBER);
        }
    }
}

static void list_qk(validator* v, const sumi_op* op)
{
    const int32_t dim = op->u.qk.dim, cols = (op->u.qk.q_heads + op->u.qk.kv_heads) * dim,
                  width = cols + op->u.qk.kv_heads * dim;
    access heads = {.value = op->in[0],
                    .row = op->u.qk.row,
                    .rows = op->rows,
                    .cols = cols,
                    .width = width,
                    .elements = IS_NUMBER,
                    .in_place = true};
    add_access(v, heads);
    if (op->u.qk.rotary != SUMI_ROTARY_NONE) { reads(v, op->in[1], op->u.qk.rope_row, op->rows, dim, IS_FLOAT); }
    reads(v, op->in[2], 0, 1, dim, IS_FLOAT);
    reads(v, op->in[3], 0, 1, dim, IS_FLOAT);
    heads.value = op->out;
    heads.writes = true;
    add_access(v, heads);
}

static void list_patches(validator* v, const sumi_op* op)
{
    const int32_t channels = op->u.patch.channels, plane = op->u.patch.height * op->u.patch.width, tokens = plane / 4;
    for (int32_t s = 0; s < op->u.patch.sequence_count; s++) {
        if (op->kind == SUMI_OP_PATCHIFY) {
            reads(v, op->in[0], (int64_t)op->u.patch.items[s] * channels, channels, plane, IS_FLOAT);
        } else {
            reads(v, op->in[0], op->u.patch.row_begin[s], tokens, 4 * channels, IS_NUMBER);
        }
    }
    for (int32_t s = 0; s < op->u.patch.sequence_count; s++) {
        if (op->kind == SUMI_OP_PATCHIFY) {
            writes(v, op->out, op->u.patch.row_begin[s], tokens, 4 * channels, IS_NUMBER);
        } else {
            writes(v, op->out, (int64_t)s * channels, channels, plane, IS_FLOAT);
        }
    }
}

static void list_solve(validator* v, const sumi_op* op, int32_t plane)
{
    for (int32_t k = 0; k < 3; k++) { reads_in_place(v, op->in[k], 0, op->rows, plane, IS_FLOAT); }
    reads(v, op->in[3], 0, op->rows, plane, IS_FLOAT);
    if (op->mask.id != 0) {
        reads(v, op->in[4], 0, op->rows, plane, IS_FLOAT);
        reads(v, op->in[5], 0, op->rows, plane, IS_FLOAT);
        reads(v, op->mask, 0, op->u.solve.channels > 0 ? op->rows / op->u.solve.channels : 0, plane, IS_FLOAT);
    }
    reads_step(v, op->u.solve.row, 12, IS_FLOAT);
    writes(v, op->out, 0, op->rows, plane, IS_FLOAT);
    writes(v, op->in[1], 0, op->rows, plane, IS_FLOAT);
    writes(v, op->in[2], 0, op->rows, plane, IS_FLOAT);
}

static void list_latents(validator* v, const sumi_op* op)
{
    const int32_t plane = sumi_plan_info(v->plan, op->out)->cols;
    switch (op->kind) {
    case SUMI_OP_ADD_NOISE:
        reads(v, op->in[0], 0, op->rows, plane, IS_FLOAT);
        reads(v, op->in[1], 0, op->rows, plane, IS_FLOAT);
        reads_step(v, op->u.add_noise.sigma, 1, IS_FLOAT);
        writes(v, op->out, 0, op->rows, plane, IS_FLOAT);
        break;
    case SUMI_OP_GUIDE: {
        const int32_t channels = op->u.guide.channels;
        for (int32_t i = 0; i < op->u.guide.item_count; i++) {
            reads(v, op->in[0], (int64_t)op->u.guide.positive[i] * channels, channels, plane, IS_FLOAT);
            if (op->u.guide.negative[i] >= 0) {
                reads(v, op->in[0], (int64_t)op->u.guide.negative[i] * channels, channels, plane, IS_FLOAT);
            }
        }
        reads_step(v, op->u.guide.scale, 1, IS_FLOAT);
        for (int32_t i = 0; i < op->u.guide.item_count; i++) {
            writes(v, op->out, (int64_t)i * channels, channels, plane, IS_FLOAT);
        }
        break;
    }
    case SUMI_OP_SOLVE: list_solve(v, op, plane); break;
    case SUMI_OP_PREVIEW:
        reads(v, op->in[0], 0, (int64_t)op->rows * op->u.preview.channels, plane, IS_FLOAT);
        reads(v, op->in[1], 0, (int64_t)op->rows * op->u.preview.channels, plane, IS_FLOAT);
        reads_step(v, op->u.preview.sigma, 1, IS_FLOAT);
        writes(v, op->out, 0, (int64_t)op->rows * 3, plane, IS_FLOAT);
        break;
    case SUMI_OP_POSTERIOR:
        reads(v, op->in[0], 0, plane, 2 * op->u.posterior.channels, IS_NUMBER);
        reads(v, op->in[1], 0, op->u.posterior.channels, plane, IS_FLOAT);
        writes(v, op->out, 0, op->u.posterior.channels, plane, IS_FLOAT);
        break;
    default: { // LATENT_IN
        const int64_t channels = op->u.latent_in.channels, item = op->u.latent_in.per_item ? v->first_counter : 0,
                      items = op->u.latent_in.per_item ? v->counter_count : 1;
        reads(v, op->in[0], item * channels, items * channels, op->u.latent_in.height * op->u.latent_in.width,
              IS_FLOAT);
        writes(v, op->out, 0, op->rows, op->u.latent_in.channels, IS_NUMBER);
        break;
    }
    }
}

// Lines of a rectangle of a picture, `pitch` pixels from line to line: one range when they touch or nobody asks for
// each.
static void list_lines(validator* v, access pixels, int32_t lines, int32_t width, int32_t pitch)
{
    if (width == pitch || !v->by_line) {
        pixels.rows = (int64_t)(lines - 1) * pitch + width;
        add_access(v, pixels);
        return;
    }
    pixels.rows = width;
    for (int32_t line = 0; line < lines; line++) {
        add_access(v, pixels);
        pixels.row += pitch;
    }
}

static void list_tiles(validator* v, const sumi_op* op, int32_t cols)
{
    access pixels = {.cols = cols, .width = cols, .elements = IS_NUMBER};
    if (op->kind == SUMI_OP_TILE_BLEND) {
        const int32_t height = op->u.blend.height, width = op->u.blend.width, above = op->u.blend.above_height;
        int32_t lines = op->u.blend.extent < above ? op->u.blend.extent : above;
        lines = lines < height ? lines : height;
        reads_in_place(v, op->in[0], 0, (int64_t)height * width, cols, IS_NUMBER);
        if (lines > 0) {
            reads(v, op->in[1], (int64_t)(above - lines) * width, (int64_t)lines * width, cols, IS_NUMBER);
        }
        reads(v, op->in[2], 0, (int64_t)height * op->u.blend.left_width, cols, IS_NUMBER);
        writes(v, op->out, 0, (int64_t)height * width, cols, IS_NUMBER);
        return;
    }
    pixels.value = op->in[0];
    list_lines(v, pixels, op->u.place.height, op->u.place.width, op->u.place.tile_width);
    const int32_t first = op->u.place.per_item ? v->first_counter : 0,
                  items = op->u.place.per_item ? v->counter_count : 1;
    pixels.value = op->out;
    pixels.writes = true;
    for (int32_t i = first; i < first + items; i++) {
        pixels.row =
            (int64_t)i * op->u.place.item_rows + (int64_t)op->u.place.y * op->u.place.picture_width + op->u.place.x;
        list_lines(v, pixels, op->u.place.height, op->u.place.width, op->u.place.picture_width);
    }
}

static void list_pictures(validator* v, const sumi_op* op)
{
    const int32_t cols = sumi_plan_info(v->plan, op->out)->cols;
    switch (op->kind) {
    case SUMI_OP_PIXELS_IN: {
        const int32_t first = op->u.pixels.per_item ? v->first_counter : 0,
                      items = op->u.pixels.per_item ? v->counter_count : 1, width = op->u.pixels.width;
        for (int32_t i = first; i < first + items; i++) {
            const int64_t row = (int64_t)i * op->u.pixels.item_rows
                              + (int64_t)op->u.pixels.y * op->u.pixels.picture_width + op->u.pixels.x;
            list_lines(v, (access){.value = op->in[0], .row = row, .cols = 3, .width = 3, .elements = IS_BYTE},
                       width > 0 ? op->rows / width : 0, width, op->u.pixels.picture_width);
        }
        writes(v, op->out, 0, op->rows, 3, IS_NUMBER);
        break;
    }
    case SUMI_OP_PATCHES_IN: {
        const int32_t patches = op->u.patches.cell * op->u.patches.cell;
        reads(v, op->in[0], 0, (int64_t)op->u.patches.height * op->u.patches.width, 3, IS_BYTE);
        reads(v, op->in[1], 0, patches > 0 ? op->rows / patches : 0, 1, IS_INT);
        writes(v, op->out, 0, op->rows, 3 * op->u.patches.frames * op->u.patches.patch * op->u.patches.patch,
               IS_NUMBER);
        break;
    }
    case SUMI_OP_CONV:
        reads(v, op->in[0], 0, (int64_t)op->u.conv.height * op->u.conv.width,
              op->weight->cols / (op->u.conv.kernel * op->u.conv.kernel), IS_NUMBER);
        reads_in_place(v, op->in[1], 0, op->rows, op->weight->rows, IS_NUMBER);
        writes(v, op->out, 0, op->rows, op->weight->rows, IS_NUMBER);
        break;
    case SUMI_OP_GROUP_SUMS:
        reads(v, op->in[0], 0, op->rows, sumi_plan_info(v->plan, op->in[0])->cols, IS_NUMBER);
        writes(v, op->out, 0, op->u.group.block_count, 2 * op->u.group.groups, IS_FLOAT);
        break;
    case SUMI_OP_GROUP_NORM:
        reads_in_place(v, op->in[0], 0, op->rows, cols, IS_NUMBER);
        reads(v, op->in[1], 0, op->u.group.block_count, 2 * op->u.group.groups, IS_FLOAT);
        writes(v, op->out, 0, op->rows, cols, IS_NUMBER);
        break;
    case SUMI_OP_COMPOSITE: {
        const int32_t rows = sumi_plan_info(v->plan, op->in[1])->rows; // of one picture
        reads_in_place(v, op->in[0], 0, op->rows, 3, IS_NUMBER);
        reads(v, op->in[1], 0, rows, 3, IS_BYTE);
        reads(v, op->in[2], 0, rows, 1, IS_BYTE);
        writes(v, op->out, 0, op->rows, 3, IS_NUMBER);
        break;
    }
    case SUMI_OP_PIXELS_OUT:
        reads(v, op->in[0], 0, op->rows, 3, IS_NUMBER);
        reads_in_place(v, op->in[1], 0, 1, 1, IS_INT);
        writes(v, op->in[1], 0, 1, 1, IS_INT);
        writes(v, op->out, 0, op->rows, 3, IS_BYTE);
        break;
    default: list_tiles(v, op, cols); break;
    }
}

// Everything that `op` touches in iterations [first, first + count) of its section, reads before writes. As the
// comments of ops.h and of sumi_op say it.
static sumi_result list_accesses(validator* v, const sumi_op* op, int32_t first, int32_t count)
{
    v->access_count = 0;
    v->first_counter = v->plan->sections[op->section].first_counter + first;
    v->counter_count = count;
    v->result = SUMI_OK;
    if (op->kind == SUMI_OP_LINEAR) {
        list_linear(v, op);
    } else if (op->kind == SUMI_OP_KRONECKER_ADD) {
        list_kronecker(v, op);
    } else if (op->kind == SUMI_OP_ATTENTION) {
        list_attention(v, op);
    } else if (op->kind == SUMI_OP_QK_NORM_ROPE) {
        list_qk(v, op);
    } else if (op->kind == SUMI_OP_PATCHIFY || op->kind == SUMI_OP_UNPATCHIFY) {
        list_patches(v, op);
    } else if (op->kind <= SUMI_OP_FINISH_MODULATION) {
        list_rows(v, op, sumi_plan_info(v->plan, op->out)->cols);
    } else if (op->kind <= SUMI_OP_PREVIEW || op->kind == SUMI_OP_POSTERIOR || op->kind == SUMI_OP_LATENT_IN) {
        list_latents(v, op);
    } else {
        list_pictures(v, op);
    }
    return v->result;
}

// ---- Sections, slices, constants ------------------------------------------------------------------------------------

// plan.h: ops written behind sumi_plan_section belong to it, and sections run one behind another.
static sumi_result check_sections(const validator* v)
{
    const sumi_plan* plan = v->plan;
    int32_t op = 0;
    for (size_t s = 0; s < plan->section_count; s++) {
        const sumi_section* section = &plan->sections[s];
        if (section->op_begin != op || section->op_end < op || (size_t)section->op_end > plan->op_count) {
            return sumi_fail(
                v->error, SUMI_INTERNAL,
                "section %d has ops %d to %d: sections hold every op once, in order, and this one begins at op %d",
                (int)s, (int)section->op_begin, (int)section->op_end, (int)op);
        }
        if (section->repeat < 1 || section->first_counter < 0) {
            return sumi_fail(
                v->error, SUMI_INTERNAL,
                "section %d repeats %d times from counter %d: it runs at least once and counts from 0 or above", (int)s,
                (int)section->repeat, (int)section->first_counter);
        }
        for (; op < section->op_end; op++) {
            if (plan->ops[op].section != (int32_t)s) {
                return op_breaks(v, &plan->ops[op], plan->ops[op].out, "the op lies in one section and names another");
            }
        }
    }
    if ((size_t)op != plan->op_count) {
        return op_breaks(v, &plan->ops[op], plan->ops[op].out, "the op lies in no section");
    }
    return SUMI_OK;
}

// plan.h: the counter of the running iteration selects the row of every per-step table. A solver's row is one
// evaluation, so no two sections solve with the same.
static sumi_result check_counters(const validator* v)
{
    const sumi_plan* plan = v->plan;
    for (size_t i = 0; i < plan->op_count; i++) {
        const sumi_op* op = &plan->ops[i];
        if (op->kind != SUMI_OP_SOLVE || !op->u.solve.row.per_step) { continue; }
        const sumi_section* own = &plan->sections[op->section];
        for (size_t s = (size_t)op->section + 1; s < plan->section_count; s++) {
            const sumi_section* other = &plan->sections[s];
            const bool meets = other->first_counter < own->first_counter + own->repeat
                            && own->first_counter < other->first_counter + other->repeat;
            for (int32_t k = other->op_begin; meets && k < other->op_end; k++) {
                const sumi_step_row row = plan->ops[k].kind == SUMI_OP_SOLVE ? plan->ops[k].u.solve.row : SUMI_NO_ROW;
                if (row.per_step && row.table.id == op->u.solve.row.table.id) {
                    return op_breaks(v, &plan->ops[k], row.table,
                                     "two sections solve with the same rows of a step table: their counters overlap");
                }
            }
        }
    }
    return SUMI_OK;
}

// plan.h: slices are whole ops or runs of parts of one op; a section's slices hold each part of its ops once, in order.
static sumi_result check_slices(const validator* v)
{
    const sumi_plan* plan = v->plan;
    int32_t slice = 0;
    for (size_t s = 0; s < plan->section_count && plan->slice_count > 0; s++) {
        const sumi_section* section = &plan->sections[s];
        int32_t op = section->op_begin, part = 0;
        if (section->slice_begin != slice || section->slice_end < slice
            || (size_t)section->slice_end > plan->slice_count) {
            return sumi_fail(v->error, SUMI_INTERNAL,
                             "section %d has slices %d to %d: sections hold every slice once, in order, and this one "
                             "begins at slice %d",
                             (int)s, (int)section->slice_begin, (int)section->slice_end, (int)slice);
        }
        for (; slice < section->slice_end; slice++) {
            const sumi_slice* piece = &plan->slices[slice];
            const bool is_one = piece->op_end == piece->op_begin + 1;
            const bool has_parts = !is_one
                                || (piece->part_begin == part && piece->part_end > part && op < section->op_end
                                    && piece->part_end <= plan->ops[op].part_count);
            if (piece->op_begin != op || piece->op_end <= op || piece->op_end > section->op_end
                || (!is_one && part != 0) || !has_parts) {
                return sumi_fail(v->error, SUMI_INTERNAL,
                                 "slice %d has ops %d to %d, parts %d to %d: slices hold every part of every op once, "
                                 "in order, and op %d, part %d comes next",
                                 (int)slice, (int)piece->op_begin, (int)piece->op_end, (int)piece->part_begin,
                                 (int)piece->part_end, (int)op, (int)part);
            }
            part = is_one && piece->part_end < plan->ops[op].part_count ? piece->part_end : 0;
            op = part > 0 ? op : piece->op_end;
        }
        if (op != section->op_end || part != 0) {
            return sumi_fail(v->error, SUMI_INTERNAL,
                             "section %d: its slices end before op %d, part %d: slices hold every part of every op",
                             (int)s, (int)op, (int)part);
        }
    }
    if (plan->slice_count > 0 && (size_t)slice != plan->slice_count) {
        return sumi_fail(v->error, SUMI_INTERNAL, "slice %d belongs to no section", (int)slice);
    }
    return SUMI_OK;
}

// plan.h: a constant is copied into a bound value before each run. Activations differ between backends, so it is none
// of those.
static sumi_result check_constants(const validator* v)
{
    const sumi_plan* plan = v->plan;
    for (size_t i = 0; i < plan->constant_count; i++) {
        const sumi_constant* constant = &plan->constants[i];
        if (!is_value(plan, constant->value)) {
            return sumi_fail(v->error, SUMI_INTERNAL, "constant %d is of a value that the plan does not have", (int)i);
        }
        const size_t index = (size_t)constant->value.id - 1;
        const sumi_value_info* info = &plan->values[index];
        if (!info->bound || info->element == SUMI_ELEMENT_ACTIVATION) {
            return value_breaks(v, index, "a constant needs a bound value that is no activation");
        }
        if (constant->data == NULL || constant->bytes != info->bytes) {
            return value_breaks(v, index, "a constant's data is as large as its value");
        }
        for (size_t k = 0; k < i; k++) {
            if (plan->constants[k].value.id == constant->value.id) {
                return value_breaks(v, index, "two constants are written into one value");
            }
        }
    }
    return SUMI_OK;
}

// ---- Values and the arena -------------------------------------------------------------------------------------------

// plan.h: a view is rows and columns of what it was cut from, in its base's memory, for as long as its base lives.
// Views of views share the base.
static sumi_result check_view(const validator* v, size_t index)
{
    const sumi_plan* plan = v->plan;
    const sumi_value_info* view = &plan->values[index];
    if (!is_value(plan, view->base) || !is_value(plan, view->whole) || (size_t)view->whole.id > index
        || (size_t)view->base.id > index) {
        return value_breaks(v, index, "a view is written after its base and after what it was cut from");
    }
    const sumi_value_info *base = sumi_plan_info(plan, view->base), *whole = sumi_plan_info(plan, view->whole);
    if (view->is_unstored || base->is_unstored) { return value_breaks(v, index, "a view and its base are stored"); }
    if (base->base.id != 0 || (whole->base.id != 0 ? whole->base.id : view->whole.id) != view->base.id) {
        return value_breaks(v, index, "a view and what it was cut from have one base, which is no view");
    }
    if ((view->bound && !base->bound) || view->host.id != 0) {
        return value_breaks(v, index, "a view is not bound unless its base is, and is no guest");
    }
    const bool is_reshaped = view->pitch != whole->pitch && view->pitch == view->cols && whole->pitch == whole->cols
                          && (int64_t)view->rows * view->cols == (int64_t)whole->rows * whole->cols;
    if (view->element != base->element || (view->pitch != whole->pitch && !is_reshaped)) {
        return value_breaks(v, index, "a view has the element and the pitch of its base, or all of its elements");
    }
    const uint64_t pitch = (uint64_t)view->pitch, first = view->base_element - whole->base_element;
    if (view->base_element < whole->base_element || view->whole_row < 0
        || (is_reshaped ? first != 0 || view->whole_row != 0
                        : view->whole_row + view->rows > whole->rows || first / pitch != (uint64_t)view->whole_row
                              || first % pitch + (uint64_t)view->cols > (uint64_t)whole->cols)) {
        return value_breaks(v, index, "a view lies within the rows and columns of what it was cut from");
    }
    if (view->first_use != base->first_use || view->last_use != base->last_use) {
        return value_breaks(v, index, "a view lives as long as its base");
    }
    const uint64_t element = sumi_plan_element_bytes(plan, view->element);
    if (base->first_use >= 0
        && (view->offset != base->offset + view->base_element * element
            || view->bytes != ((uint64_t)(view->rows - 1) * pitch + (uint64_t)view->cols) * element)) {
        return value_breaks(v, index, "a view's place in the arena is its place in its base");
    }
    return SUMI_OK;
}

// sumi_plan_arrange: the result of a pair's first op, read by the second one and by nothing else, takes no memory.
static sumi_result check_unstored(const validator* v, size_t index)
{
    const sumi_plan* plan = v->plan;
    const sumi_value_info* info = &plan->values[index];
    const sumi_op* op = &plan->ops[info->first_use];
    bool is_input = false, is_read = false;
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) {
        is_input = is_input || op->in[k].id == (int32_t)index + 1;
        is_read = is_read || (info->last_use > info->first_use && op[1].in[k].id == (int32_t)index + 1);
    }
    if (info->bytes != 0 || info->bound || info->host.id != 0) {
        return value_breaks(v, index, "a value that is not stored takes no memory: it is neither bound nor a guest");
    }
    if (!op->joins_next || op->out.id != (int32_t)index + 1 || is_input || !is_read
        || info->last_use != info->first_use + 1) {
        return value_breaks(v, index, "a value that is not stored is made and read by a pair of ops, and by no others");
    }
    return SUMI_OK;
}

// plan.h: offsets and sizes of values that are no views; bound values live through the whole plan.
static sumi_result check_place(const validator* v, size_t index)
{
    const sumi_plan* plan = v->plan;
    const sumi_value_info* info = &plan->values[index];
    const uint64_t bytes = (uint64_t)info->rows * (uint64_t)info->cols * sumi_plan_element_bytes(plan, info->element);
    if (info->pitch != info->cols || info->base_element != 0) {
        return value_breaks(v, index, "the rows of a value that is no view lie directly behind one another");
    }
    if (info->bound && (info->first_use != 0 || info->last_use != (int32_t)plan->op_count - 1)) {
        return value_breaks(v, index, "a bound value lives through the whole plan");
    }
    if (info->first_use < 0) { return SUMI_OK; } // no op uses it
    if (info->last_use < info->first_use || (size_t)info->last_use >= plan->op_count) {
        return value_breaks(v, index, "a value's life ends at an op of the plan, not before it begins");
    }
    if (info->is_unstored) { return check_unstored(v, index); }
    if (info->bytes != bytes) {
        return value_breaks(v, index, "a value's size is that of its rows, columns and elements");
    }
    if (info->offset % SUMI_ALIGNMENT != 0 || info->offset > plan->arena_bytes
        || info->bytes > plan->arena_bytes - info->offset) {
        return value_breaks(v, index, "a value lies in the arena, aligned");
    }
    return SUMI_OK;
}

static bool is_guest_of(const sumi_plan* plan, size_t guest, size_t host)
{
    return plan->values[guest].host.id == (int32_t)host + 1 && plan->values[guest].offset == plan->values[host].offset
        && plan->values[guest].bytes <= plan->values[host].bytes;
}

// plan.h: the arena offsets of two values overlap only if their lifetimes do not, or one is a guest at the beginning of
// its host.
static sumi_result check_arena(const validator* v)
{
    const sumi_plan* plan = v->plan;
    for (size_t a = 0; a < plan->value_count; a++) {
        const sumi_value_info* x = &plan->values[a];
        if (x->rows < 1 || x->cols < 1) { return value_breaks(v, a, "a value has at least one row and one column"); }
        SUMI_TRY(x->base.id != 0 ? check_view(v, a) : check_place(v, a));
        for (size_t b = 0; b < a && x->base.id == 0 && x->first_use >= 0; b++) {
            const sumi_value_info* y = &plan->values[b];
            const bool meets =
                y->base.id == 0 && y->first_use >= 0 && x->first_use <= y->last_use && y->first_use <= x->last_use;
            if (meets && x->offset < y->offset + y->bytes && y->offset < x->offset + x->bytes
                && !is_guest_of(plan, a, b) && !is_guest_of(plan, b, a)) {
                return sumi_fail(v->error, SUMI_INTERNAL,
                                 "values %d (%s) and %d (%s) share bytes of the arena, and both live at op %d",
                                 (int)b + 1, y->name, (int)a + 1, x->name,
                                 (int)(x->first_use > y->first_use ? x->first_use : y->first_use));
            }
        }
    }
    return SUMI_OK;
}

// plan.h: a value lives at every op that names it; one that crosses into a repeated section from before lives until
// that section ends.
static sumi_result check_life(const validator* v, const sumi_op* op, sumi_value value)
{
    const sumi_plan* plan = v->plan;
    if (value.id == 0) { return SUMI_OK; }
    if (!is_value(plan, value)) { return op_breaks(v, op, value, "the plan has no such value"); }
    const sumi_value_info* info = sumi_plan_info(plan, base_of(plan, value));
    const sumi_section* section = &plan->sections[op->section];
    const int32_t index = (int32_t)(op - plan->ops);
    if (info->first_use < 0 || info->first_use > index || info->last_use < index) {
        return op_breaks(v, op, value, "the value does not live at an op that uses it");
    }
    if (section->repeat > 1 && info->first_use < section->op_begin && info->last_use < section->op_end - 1) {
        return op_breaks(v, op, value, "a value that enters a repeated section lives until the section ends");
    }
    return SUMI_OK;
}

static sumi_result check_lives(const validator* v, const sumi_op* op)
{
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) { SUMI_TRY(check_life(v, op, op->in[k])); }
    SUMI_TRY(check_life(v, op, op->out));
    SUMI_TRY(check_life(v, op, op->mask));
    SUMI_TRY(check_life(v, op, table_of(op)));
    return SUMI_OK;
}

// ---- One op ---------------------------------------------------------------------------------------------------------

static bool is_vector(const sumi_weight* weight, int32_t cols)
{
    return weight == NULL || (weight->rows == 1 && weight->cols == cols);
}

// A norm has a weight or a value in its place, not both.
static bool is_one(const sumi_weight* weight, sumi_value value) { return weight == NULL || value.id == 0; }

// weight.h: the factors of a change, of which one has the weight's rows and the other its columns.
static bool is_change(const sumi_weight* weight, const sumi_weight_change* change)
{
    const sumi_weight_part *down = &change->down, *up = &change->up;
    return down->rows >= 1 && down->chunk == 0 && weight->cols % sumi_dtype_get(down->dtype)->block == 0
        && up->rows == weight->rows && up->chunk == 0 && sumi_dtype_get(up->dtype)->block == 1
        && sumi_weight_part_is_straight(down) && sumi_weight_part_is_straight(up);
}

// weight.h: a stack's parts are its rows, and a change has them too; a vector has one row. ops.h and sumi_op: which
// weights an op has.
static sumi_result check_weights(const validator* v, const sumi_op* op)
{
    const sumi_weight* const all[] = {op->weight, op->bias,
                                      op->kind == SUMI_OP_QK_NORM_ROPE ? op->u.qk.k_weight : NULL};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        int64_t rows = 0;
        bool is_whole = true;
        for (int32_t p = 0; all[i] != NULL && p < all[i]->part_count && p < SUMI_WEIGHT_MAX_PARTS; p++) {
            const sumi_weight_part* part = &all[i]->parts[p];
            rows += part->rows;
            is_whole = is_whole
                    && (part->rotation == 0
                        || (sumi_rotation_is_known(part->rotation) && all[i]->cols % part->rotation == 0));
        }
        if (!is_whole) { return op_breaks(v, op, op->out, "a weight's rows are whole groups of its rotation"); }
        if (all[i] != NULL && !sumi_weight_is_dense(all[i]) && (i > 0 || op->kind != SUMI_OP_CONV)) {
            return op_breaks(v, op, op->out, "a weight that lies in chunks is a convolution's");
        }
        if (all[i] != NULL && (all[i]->part_count > SUMI_WEIGHT_MAX_PARTS || rows != all[i]->rows)) {
            return op_breaks(v, op, op->out, "a weight's parts are its rows");
        }
        if (all[i] != NULL && all[i]->change != NULL && !is_change(all[i], all[i]->change)) {
            return op_breaks(v, op, op->out, "a weight's change has the weight's rows and a rank");
        }
    }
    const int32_t cols = sumi_plan_info(v->plan, op->out)->cols;
    bool fits;
    switch (op->kind) {
    case SUMI_OP_EMBED_ROWS:
        fits = op->weight != NULL ? op->weight->cols == cols && op->in[1].id == 0 && is_vector(op->bias, cols)
                                  : op->in[1].id != 0 && op->bias == NULL;
        break;
    case SUMI_OP_FILL_ROWS: fits = op->weight != NULL && is_vector(op->weight, cols) && op->bias == NULL; break;
    case SUMI_OP_LINEAR: {
        const int32_t x_cols = sumi_plan_info(v->plan, op->in[0])->cols;
        fits = op->weight != NULL && (op->weight->cols == x_cols || (op->weight->cols + 7) / 8 * 8 == x_cols)
            && is_vector(op->bias, op->weight->rows) && (!op->u.linear.accumulates || op->bias == NULL);
        break;
    }
    case SUMI_OP_KRONECKER_ADD: fits = op->weight != NULL && op->bias == NULL; break;
    case SUMI_OP_CONV: {
        const int32_t taps = op->u.conv.kernel * op->u.conv.kernel;
        fits = op->weight != NULL && (taps == 1 || taps == 9) && op->weight->rows == cols
            && op->weight->cols == taps * sumi_plan_info(v->plan, op->in[0])->cols && is_vector(op->bias, cols);
        break;
    }
    case SUMI_OP_NORM_GATE_ADD:
        fits = is_vector(op->weight, cols) && op->bias == NULL && is_one(op->weight, op->in[3]);
        break;
    case SUMI_OP_NORM_MODULATE:
        fits = is_vector(op->weight, cols) && is_vector(op->bias, cols) && is_one(op->weight, op->in[3]);
        break;
    case SUMI_OP_GROUP_NORM: fits = is_vector(op->weight, cols) && is_vector(op->bias, cols); break;
    case SUMI_OP_QK_NORM_ROPE:
        fits = is_vector(op->weight, op->u.qk.dim) && is_vector(op->u.qk.k_weight, op->u.qk.dim) && op->bias == NULL
            && is_one(op->weight, op->in[2]) && is_one(op->u.qk.k_weight, op->in[3]);
        break;
    default: fits = op->weight == NULL && op->bias == NULL; break;
    }
    return fits ? SUMI_OK : op_breaks(v, op, op->out, "the weight or the bias has another shape than the op");
}

static bool are_bands(const sumi_row_band* bands, int32_t count, int32_t rows)
{
    int32_t begin = 0;
    bool are_good = count >= 0 && (count == 0 || bands != NULL);
    for (int32_t i = 0; i < count && are_good; begin = bands[i++].end) {
        are_good = bands[i].end > begin && bands[i].table_row >= 0;
    }
    return are_good && (count == 0 || begin == rows);
}

static sumi_result check_bands(const validator* v, const sumi_op* op)
{
    const bool are_good =
        op->kind == SUMI_OP_NORM_MODULATE   ? are_bands(op->u.norm.bands, op->u.norm.band_count, op->rows)
        : op->kind == SUMI_OP_NORM_GATE_ADD ? are_bands(op->u.gate_add.bands, op->u.gate_add.band_count, op->rows)
                                            : true;
    return are_good ? SUMI_OK : op_breaks(v, op, op->out, "bands cover the rows of their op");
}

static bool are_statistics(const float* scale, const float* shift, int32_t channels)
{
    bool are_good = scale != NULL && shift != NULL;
    for (int32_t c = 0; are_good && c < channels; c++) { are_good = scale[c] != 0.0f; }
    return are_good;
}

// ops.h: what the numbers of an op on latents must be, beside what its accesses say.
static sumi_result check_latent_numbers(const validator* v, const sumi_op* op)
{
    const sumi_op_guide* g = &op->u.guide;
    if (op->kind == SUMI_OP_GUIDE) {
        if (g->rule <= SUMI_GUIDANCE_MODEL || g->rule > SUMI_GUIDANCE_NORM_RESCALE || !(g->norm_limit >= 0.0f)) {
            return op_breaks(v, op, op->out, "guidance has a rule, and no limit below 0");
        }
        const int64_t plane = sumi_plan_info(v->plan, op->out)->cols;
        if (g->rule == SUMI_GUIDANCE_NORM_RESCALE
            && (g->patch_size < 1 || g->width < 1 || g->width % g->patch_size != 0
                || plane % ((int64_t)g->width * g->patch_size) != 0)) {
            return op_breaks(v, op, op->out, "tokens tile the planes that guidance rescales");
        }
    }
    if ((op->kind == SUMI_OP_POSTERIOR
         && !are_statistics(op->u.posterior.scale, op->u.posterior.shift, op->u.posterior.channels))
        || (op->kind == SUMI_OP_LATENT_IN
            && !are_statistics(op->u.latent_in.scale, op->u.latent_in.shift, op->u.latent_in.channels))) {
        return op_breaks(v, op, op->out, "every channel of a latent has a scale, which is not 0, and a shift");
    }
    return SUMI_OK;
}

// Rows of the work where the op's own numbers say how many there are (sumi_op, "What one row of the work is"); -1: the
// accesses bound them.
static int64_t work_rows(const sumi_op* op)
{
    int64_t rows = 0;
    switch (op->kind) {
    case SUMI_OP_FILL_ROWS: return op->u.fill.span_count;
    case SUMI_OP_MEAN_ROWS: return op->u.mean.span_count;
    case SUMI_OP_ATTENTION:
        for (int32_t s = 0; s < op->u.attention.sequence_count && op->u.attention.query_block > 0; s++) {
            const int64_t queries = sumi_sequence_queries(&op->u.attention.sequences[s]);
            rows +=
                op->u.attention.q_heads * ((queries + op->u.attention.query_block - 1) / op->u.attention.query_block);
        }
        return rows;
    case SUMI_OP_PATCHIFY:
    case SUMI_OP_UNPATCHIFY: return op->u.patch.sequence_count;
    case SUMI_OP_GUIDE: return op->u.guide.item_count;
    case SUMI_OP_POSTERIOR:
    case SUMI_OP_TILE_BLEND: return 1;
    case SUMI_OP_LATENT_IN: return (int64_t)op->u.latent_in.tile_height * op->u.latent_in.tile_width;
    case SUMI_OP_TILE_PLACE: return (int64_t)op->u.place.height * op->u.place.width;
    case SUMI_OP_PATCHES_IN:
        return op->u.patches.patch > 0
                 ? (int64_t)(op->u.patches.height / op->u.patches.patch) * (op->u.patches.width / op->u.patches.patch)
                 : 0;
    case SUMI_OP_CONV: {
        const int32_t scale = op->u.conv.upsamples ? 2 : 1, stride = op->u.conv.stride > 0 ? op->u.conv.stride : 1;
        return (int64_t)((op->u.conv.height - op->u.conv.above - op->u.conv.below) * scale / stride)
             * (op->u.conv.width * scale / stride);
    }
    default: return -1;
    }
}

// sumi_op: part p covers rows [p * part_rows, min(rows, (p + 1) * part_rows)): all parts cover all rows once.
static sumi_result check_parts(const validator* v, const sumi_op* op)
{
    const int64_t rows = work_rows(op);
    if (op->rows < 1 || (rows >= 0 && rows != op->rows)) {
        return op_breaks(v, op, op->out, "the op's rows are not the work that its numbers describe");
    }
    if (op->part_rows < 1 || op->part_count < 1
        || ((int64_t)op->rows + op->part_rows - 1) / op->part_rows != op->part_count) {
        return op_breaks(v, op, op->out, "the op's parts do not cover its rows once");
    }
    const bool is_sum = op->kind == SUMI_OP_GROUP_SUMS, is_group = is_sum || op->kind == SUMI_OP_GROUP_NORM;
    const int32_t blocks =
        is_group && op->u.group.block_rows > 0
            ? (int32_t)(((int64_t)op->u.group.all_rows + op->u.group.block_rows - 1) / op->u.group.block_rows)
            : 0;
    if (is_group
        && (op->u.group.block_count != blocks
            || (is_sum
                && (op->part_count != blocks || op->part_rows != op->u.group.block_rows
                    || op->rows != op->u.group.all_rows)))) {
        return op_breaks(v, op, op->out, "the blocks of group sums are the parts of the op that makes them");
    }
    if ((op->kind == SUMI_OP_PIXELS_OUT || op->kind == SUMI_OP_ATTENTION)
        && op->part_rows != (op->kind == SUMI_OP_PIXELS_OUT ? op->rows : 1)) {
        return op_breaks(v, op, op->out, "pixels_out has one part, attention one per head and block of queries");
    }
    return SUMI_OK;
}

static bool names(const sumi_op* op, sumi_value value)
{
    bool found = op->out.id == value.id || op->mask.id == value.id || table_of(op).id == value.id;
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) { found = found || op->in[k].id == value.id; }
    return found;
}

// ops.h: rows, columns and elements of what an op reads and writes. What it touches is among its inputs and outputs:
// lifetimes are made from them.
static sumi_result check_shapes(const validator* v, const sumi_op* op)
{
    for (size_t i = 0; i < v->access_count; i++) {
        const access* a = &v->accesses[i];
        if (!names(op, a->value)) {
            return op_breaks(v, op, a->value, "the op touches a value that is not among its inputs and outputs");
        }
        const sumi_value_info* info = sumi_plan_info(v->plan, a->value);
        if (a->row < 0 || a->rows < 1 || a->row + a->rows > info->rows) {
            return sumi_fail(
                v->error, SUMI_INTERNAL, "op %d (%s, %s): value %s: the op %s rows %lld to %lld, the value has %d",
                (int)(op - v->plan->ops), sumi_op_name(op->kind), op->label, info->name, a->writes ? "writes" : "reads",
                (long long)a->row, (long long)(a->row + a->rows), (int)info->rows);
        }
        if (a->column < 0 || a->cols < 1 || a->column + a->cols > info->cols
            || (a->width > 0 && a->width != info->cols)) {
            return op_breaks(v, op, a->value, "the value has other columns than the op needs");
        }
        if ((a->elements & (1 << info->element)) == 0) {
            return op_breaks(v, op, a->value, "the op does not take elements of this type");
        }
        if (info->pitch != info->cols && op->kind != SUMI_OP_CONV && op->kind != SUMI_OP_GROUP_SUMS
            && op->kind != SUMI_OP_GROUP_NORM) {
            return op_breaks(v, op, a->value, "the op takes no view of some columns");
        }
    }
    return op->out.id != 0 ? SUMI_OK : op_breaks(v, op, op->out, "the op has no output");
}

// plan.h: an op's in-place output is also its input. ops.h says which kinds work in place; a product that leaves rows
// or columns of its output as they are does, too.
static sumi_result check_in_place_output(const validator* v, const sumi_op* op)
{
    static const int8_t slot[SUMI_OP_KIND_COUNT] = {
        [SUMI_OP_FILL_ROWS] = 1,    [SUMI_OP_COPY_ROWS] = 2, [SUMI_OP_KRONECKER_ADD] = 2, [SUMI_OP_NORM_GATE_ADD] = 1,
        [SUMI_OP_QK_NORM_ROPE] = 1, [SUMI_OP_PATCHIFY] = 2,  [SUMI_OP_SOLVE] = 1,         [SUMI_OP_PREVIEW] = 4,
        [SUMI_OP_TILE_BLEND] = 1,   [SUMI_OP_TILE_PLACE] = 2}; // of the inputs, from 1
    const sumi_value_info* out = sumi_plan_info(v->plan, op->out);
    bool is_input = slot[op->kind] == 0 || op->in[slot[op->kind] - 1].id == op->out.id;
    if (op->kind == SUMI_OP_LINEAR && op->u.linear.accumulates) {
        is_input = op->in[1].id == op->out.id;
    } else if (op->kind == SUMI_OP_LINEAR && (op->rows < out->rows || op->weight->rows < out->cols)) {
        is_input = op->in[1].id == op->out.id || op->in[2].id == op->out.id;
    } else if (op->kind == SUMI_OP_ACTIVATE && op->rows < out->rows) {
        is_input = op->in[0].id == op->out.id;
    }
    return is_input ? SUMI_OK : op_breaks(v, op, op->out, "an op that works in place has its output among its inputs");
}

// ops.h: what a product does with its sums beside the activation, and what a norm with a bias has not.
static sumi_result check_sums(const validator* v, const sumi_op* op)
{
    if (op->kind == SUMI_OP_NORM_MODULATE && op->bias != NULL
        && (op->u.norm.silu || op->u.norm.scale.table.id != 0 || op->u.norm.shift.table.id != 0)) {
        return op_breaks(v, op, op->out, "a norm with a bias has no scale, no shift and no activation");
    }
    if (op->kind != SUMI_OP_LINEAR) { return SUMI_OK; }
    const sumi_op_linear* linear = &op->u.linear;
    if (linear->gate.table.id != 0 && op->in[1].id == 0) {
        return op_breaks(v, op, linear->gate.table, "a gate needs what its product is added to");
    }
    if (linear->activation != SUMI_ACT_NONE && op->in[1].id != 0) {
        return op_breaks(v, op, op->in[1], "a product with an activation is not added to anything");
    }
    return SUMI_OK;
}

// Where an access begins in its base.
static uint64_t first_element(const sumi_plan* plan, const access* a)
{
    const sumi_value_info* info = sumi_plan_info(plan, a->value);
    return info->base_element + (uint64_t)a->row * (uint64_t)info->pitch + (uint64_t)a->column;
}

// Behind the last element of an access, in its base.
static uint64_t last_element(const sumi_plan* plan, const access* a)
{
    return first_element(plan, a) + (uint64_t)(a->rows - 1) * (uint64_t)sumi_plan_info(plan, a->value)->pitch
         + (uint64_t)a->cols;
}

// An access as rows and columns of its base: whole rows, where the value's own are of another length.
typedef struct rectangle {
    uint64_t row, rows, column, cols;
} rectangle;

static rectangle rectangle_of(const sumi_plan* plan, const access* a)
{
    const uint64_t pitch = (uint64_t)sumi_plan_info(plan, base_of(plan, a->value))->pitch,
                   begin = first_element(plan, a);
    if (sumi_plan_info(plan, a->value)->pitch == (int32_t)pitch) {
        return (rectangle){begin / pitch, (uint64_t)a->rows, begin % pitch, (uint64_t)a->cols};
    }
    return (rectangle){begin / pitch, (last_element(plan, a) + pitch - 1) / pitch - begin / pitch, 0, pitch};
}

static bool shares_memory(const sumi_plan* plan, const access* a, const access* b)
{
    const sumi_value base_a = base_of(plan, a->value), base_b = base_of(plan, b->value);
    const sumi_value_info *x = sumi_plan_info(plan, base_a), *y = sumi_plan_info(plan, base_b);
    if (base_a.id == base_b.id) { // rectangles of one matrix
        const rectangle p = rectangle_of(plan, a), q = rectangle_of(plan, b);
        return p.row < q.row + q.rows && q.row < p.row + p.rows && p.column < q.column + q.cols
            && q.column < p.column + p.cols;
    }
    if (x->bytes == 0 || y->bytes == 0) { return false; }
    const uint64_t element_a = sumi_plan_element_bytes(plan, x->element),
                   element_b = sumi_plan_element_bytes(plan, y->element);
    const uint64_t begin_a = first_element(plan, a), begin_b = first_element(plan, b), end_a = last_element(plan, a),
                   end_b = last_element(plan, b);
    return x->offset + begin_a * element_a < y->offset + end_b * element_b
        && y->offset + begin_b * element_b < x->offset + end_a * element_a;
}

// plan.h: an op must not write what another part of it still reads. In place it writes exactly the rectangle that it
// reads, where ops.h allows that.
static sumi_result check_in_place_reads(const validator* v, const sumi_op* op)
{
    const sumi_plan* plan = v->plan;
    for (size_t r = 0; r < v->access_count; r++) {
        const access* from = &v->accesses[r];
        for (size_t w = 0; w < v->access_count && !from->writes; w++) {
            const access* to = &v->accesses[w];
            if (!to->writes || !shares_memory(plan, from, to)) { continue; }
            const bool is_same = base_of(plan, from->value).id == base_of(plan, to->value).id
                              && first_element(plan, from) == first_element(plan, to) && from->rows == to->rows
                              && from->cols == to->cols;
            if (!from->in_place || !is_same) {
                return op_breaks(v, op, from->value, "the op writes over what it reads, and is none that may do that");
            }
        }
    }
    return SUMI_OK;
}

static int compare_accesses(const void* a, const void* b)
{
    const access *x = a, *y = b;
    if (x->writes != y->writes) { return x->writes ? -1 : 1; }
    if (x->value.id != y->value.id) { return x->value.id < y->value.id ? -1 : 1; }
    return (x->row > y->row) - (x->row < y->row);
}

// ops.h: running the parts in any order gives the same bits, so no two of them write the same rows. Leaves the accesses
// sorted.
static sumi_result check_writes(const validator* v, const sumi_op* op)
{
    sumi_sort(v->accesses, v->access_count, sizeof *v->accesses, compare_accesses);
    for (size_t i = 1; i < v->access_count && v->accesses[i].writes; i++) {
        const access *a = &v->accesses[i - 1], *b = &v->accesses[i];
        if (a->value.id == b->value.id && a->row + a->rows > b->row) {
            return op_breaks(v, op, b->value, "two parts of the op write the same rows");
        }
    }
    return SUMI_OK;
}

// sumi_plan_arrange: the second op of a pair reads what the first one makes, and writes where nothing lies that the
// first one reads.
static sumi_result check_pair(const validator* v, const sumi_op* op)
{
    const sumi_plan* plan = v->plan;
    const sumi_op* next = op + 1;
    if (!op->joins_next) { return SUMI_OK; }
    if (next >= plan->ops + plan->op_count || next->section != op->section) {
        return op_breaks(v, op, op->out, "the op joins the next one, and there is none in its section");
    }
    if (next->joins_next) { return op_breaks(v, op, op->out, "an op is in one pair at most"); }
    bool is_read = false;
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) { is_read = is_read || next->in[k].id == op->out.id; }
    if (!is_read || !is_value(plan, next->out)) {
        return op_breaks(v, op, op->out, "the second op of a pair reads what the first one makes");
    }
    const sumi_value_info* written = sumi_plan_info(plan, base_of(plan, next->out));
    if (written->first_use > (int32_t)(op - plan->ops)) {
        return op_breaks(v, op, next->out, "what the second op of a pair writes lives from the first one on");
    }
    for (int32_t k = 0; k < SUMI_OP_MAX_INPUTS; k++) {
        if (op->in[k].id == 0) { continue; }
        const sumi_value_info* read = sumi_plan_info(plan, base_of(plan, op->in[k]));
        if (read->offset < written->offset + written->bytes && written->offset < read->offset + read->bytes) {
            return op_breaks(v, op, op->in[k], "the second op of a pair writes over what the first one still reads");
        }
    }
    return SUMI_OK;
}

static sumi_result check_op(validator* v, const sumi_op* op)
{
    if (op->kind < 0 || op->kind >= SUMI_OP_KIND_COUNT) {
        return op_breaks(v, op, op->out, "there is no op of this kind");
    }
    SUMI_TRY(check_lives(v, op));
    SUMI_TRY(check_pair(v, op));
    SUMI_TRY(check_weights(v, op));
    SUMI_TRY(check_latent_numbers(v, op));
    SUMI_TRY(check_bands(v, op));
    SUMI_TRY(check_parts(v, op));
    SUMI_TRY(list_accesses(v, op, 0, v->plan->sections[op->section].repeat));
    SUMI_TRY(check_shapes(v, op));
    SUMI_TRY(check_in_place_output(v, op));
    SUMI_TRY(check_sums(v, op));
    SUMI_TRY(check_in_place_reads(v, op));
    return check_writes(v, op);
}

// ---- Rows are written before they are read --------------------------------------------------------------------------

// The first entry that ends behind `at`.
static size_t find_owned(const validator* v, uint64_t at)
{
    size_t low = 0, high = v->map_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (v->map[middle].end > at) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

static bool is_same_owner(const owned* a, const owned* b) { return a->value == b->value && a->view == b->view; }

// `fresh` takes its bytes from whom they belonged to. Neighbours of the same owner become one entry.
static sumi_result take(validator* v, owned fresh)
{
    SUMI_TRY(sumi_grow(&v->heap, (void**)&v->map, &v->map_capacity, v->map_count + 2, sizeof *v->map, v->error));
    size_t first = find_owned(v, fresh.begin), last = first, count = 0;
    if (first > 0 && v->map[first - 1].end == fresh.begin && is_same_owner(&v->map[first - 1], &fresh)) { first--; }
    while (last < v->map_count
           && (v->map[last].begin < fresh.end
               || (v->map[last].begin == fresh.end && is_same_owner(&v->map[last], &fresh)))) {
        last++;
    }
    owned pieces[3], before = fresh, behind = fresh;
    if (first < last) {
        before = v->map[first];
        behind = v->map[last - 1];
    }
    if (before.begin < fresh.begin && is_same_owner(&before, &fresh)) {
        fresh.begin = before.begin;
    } else if (before.begin < fresh.begin) {
        pieces[count++] = (owned){before.begin, fresh.begin, before.value, before.view};
    }
    const size_t own = count++;
    if (behind.end > fresh.end && is_same_owner(&behind, &fresh)) {
        fresh.end = behind.end;
    } else if (behind.end > fresh.end) {
        pieces[count++] = (owned){fresh.end, behind.end, behind.value, behind.view};
    }
    pieces[own] = fresh;
    memmove(v->map + first + count, v->map + last, (v->map_count - last) * sizeof *v->map);
    memcpy(v->map + first, pieces, count * sizeof *pieces);
    v->map_count = v->map_count - (last - first) + count;
    return SUMI_OK;
}

// The bytes of an access, in whole rows of the base.
static owned bytes_of(const sumi_plan* plan, const access* a)
{
    const sumi_value base = base_of(plan, a->value);
    const sumi_value_info* info = sumi_plan_info(plan, base);
    const uint64_t row_bytes = (uint64_t)info->pitch * sumi_plan_element_bytes(plan, info->element);
    const rectangle r = rectangle_of(plan, a);
    sumi_value view = a->value; // outermost
    while (view.id != base.id && sumi_plan_info(plan, view)->whole.id != base.id) {
        view = sumi_plan_info(plan, view)->whole;
    }
    return (owned){info->offset + r.row * row_bytes, info->offset + (r.row + r.rows) * row_bytes, base.id, view.id};
}

static sumi_result check_written(const validator* v, const sumi_op* op, const access* a)
{
    const owned wanted = bytes_of(v->plan, a);
    uint64_t at = wanted.begin;
    for (size_t i = find_owned(v, at); at < wanted.end; i++) {
        const owned* found = i < v->map_count && v->map[i].begin <= at ? &v->map[i] : NULL;
        const bool is_own = found != NULL && found->value == wanted.value;
        if (!is_own || (found->view != wanted.view && found->view != wanted.value && wanted.view != wanted.value)) {
            const sumi_value_info* base = sumi_plan_info(v->plan, (sumi_value){wanted.value});
            const uint64_t row_bytes = (uint64_t)base->pitch * sumi_plan_element_bytes(v->plan, base->element);
            return sumi_fail(v->error, SUMI_INTERNAL, "op %d (%s, %s): value %s: row %llu is read, but %s%s",
                             (int)(op - v->plan->ops), sumi_op_name(op->kind), op->label, name_of(v->plan, a->value),
                             (unsigned long long)((at - wanted.begin) / row_bytes + (uint64_t)a->row),
                             found == NULL ? "no op before this one has written it"
                             : is_own      ? "another view of its memory was written since: "
                                           : "its memory was taken by the value ",
                             found == NULL ? "" : name_of(v->plan, (sumi_value){is_own ? found->view : found->value}));
        }
        at = found->end;
    }
    return SUMI_OK;
}

static sumi_result run_op(validator* v, const sumi_op* op, int32_t first, int32_t count)
{
    SUMI_TRY(list_accesses(v, op, first, count));
    for (size_t i = 0; i < v->access_count; i++) {
        const access* a = &v->accesses[i];
        const sumi_value_info* base = sumi_plan_info(v->plan, base_of(v->plan, a->value));
        if (base->is_unstored) { continue; }
        SUMI_TRY(a->writes ? take(v, bytes_of(v->plan, a)) : check_written(v, op, a));
    }
    return SUMI_OK;
}

// plan.h: a value's rows are written before they are read. Bound values are: by the engine, by a constant.
static sumi_result check_order(validator* v)
{
    const sumi_plan* plan = v->plan;
    v->by_line = true;
    for (size_t i = 0; i < plan->value_count; i++) {
        const sumi_value_info* info = &plan->values[i];
        if (info->bound && info->base.id == 0) {
            SUMI_TRY(take(v, (owned){info->offset, info->offset + info->bytes, (int32_t)i + 1, (int32_t)i + 1}));
        }
    }
    for (size_t s = 0; s < plan->section_count; s++) {
        const sumi_section* section = &plan->sections[s];
        for (int32_t round = 0; round < 2 && round < section->repeat; round++) {
            for (int32_t i = section->op_begin; i < section->op_end; i++) {
                SUMI_TRY(run_op(v, &plan->ops[i], round, round == 0 ? 1 : section->repeat - 1));
            }
        }
    }
    return SUMI_OK;
}

// ---- The plan -------------------------------------------------------------------------------------------------------

static sumi_result check_plan(validator* v)
{
    SUMI_TRY(check_sections(v));
    SUMI_TRY(check_arena(v));
    SUMI_TRY(check_constants(v));
    for (size_t i = 0; i < v->plan->op_count; i++) { SUMI_TRY(check_op(v, &v->plan->ops[i])); }
    SUMI_TRY(check_counters(v));
    SUMI_TRY(check_order(v));
    return check_slices(v);
}

sumi_result sumi_plan_validate(const sumi_plan* plan, sumi_error* error)
{
    validator v = {.plan = plan, .error = error};
    sumi_heap_init(&v.heap, NULL);
    const sumi_result result = check_plan(&v);
    sumi_free(&v.heap, v.accesses);
    sumi_free(&v.heap, v.map);
    return result;
}

sumi_result sumi_plan_validate_slices(const sumi_plan* plan, sumi_error* error)
{
    return check_slices(&(validator){.plan = plan, .error = error});
}
