#include "models/weights.h"
#include "base/assert.h"
#include "files/tensor_scaling.h"
#include "models/signatures.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define BLOCK_BYTES 16384u

// ---- The list -------------------------------------------------------------------------------------------------------

void sumi_weight_list_init(sumi_weight_list* list, sumi_heap* heap)
{
    memset(list, 0, sizeof *list);
    list->heap = heap;
}

void sumi_weight_list_close(sumi_weight_list* list)
{
    if (list->heap == NULL) return;
    for (size_t i = 0; i < list->block_count; i++) sumi_free(list->heap, list->blocks[i]);
    sumi_free(list->heap, list->blocks);
    sumi_free(list->heap, list->weights);
    sumi_free(list->heap, list->targets);
    memset(list, 0, sizeof *list);
}

void* sumi_weight_list_reserve(sumi_weight_list* list, size_t bytes)
{
    SUMI_ASSERT(list->heap != NULL); // the list was begun
    SUMI_ASSERT(bytes > 0 && list->block_used <= list->block_bytes);
    bytes = (bytes + 15) & ~(size_t)15;
    if (list->block_count == 0 || list->block_bytes - list->block_used < bytes) {
        size_t block_bytes = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        if (sumi_grow(list->heap, (void**)&list->blocks, &list->block_capacity, list->block_count + 1,
                      sizeof *list->blocks, NULL)
            != SUMI_OK)
            return NULL;
        void* block = sumi_alloc_zero(list->heap, block_bytes);
        if (block == NULL) return NULL;
        list->blocks[list->block_count++] = block;
        list->block_used = 0;
        list->block_bytes = block_bytes;
    }
    void* memory = (unsigned char*)list->blocks[list->block_count - 1] + list->block_used;
    list->block_used += bytes;
    return memory;
}

static const char* copy_name(sumi_binder* binder, const char* text)
{
    size_t bytes = strlen(text) + 1;
    char* copy = sumi_weight_list_reserve(binder->list, bytes);
    if (copy == NULL) {
        binder->result = sumi_out_of_memory(binder->error, bytes, "the names of the weights");
        return "";
    }
    memcpy(copy, text, bytes);
    return copy;
}

// ---- Names ----------------------------------------------------------------------------------------------------------

bool sumi_fold_path(const char* path, size_t bytes, char* out, size_t out_bytes)
{
    SUMI_ASSERT(out_bytes > 0);
    if (bytes >= out_bytes) return false;
    for (size_t i = 0; i < bytes; i++) out[i] = path[i] == '.' || path[i] == '-' ? '_' : path[i];
    out[bytes] = 0;
    return true;
}

bool sumi_replace_text(const char* text, const char* from, const char* to, char* out, size_t out_bytes)
{
    SUMI_ASSERT(from[0] != 0 && out != text); // an empty text would match everywhere
    const char* match = strstr(text, from);
    if (match == NULL) return false;
    int length = snprintf(out, out_bytes, "%.*s%s%s", (int)(match - text), text, to, match + strlen(from));
    return length >= 0 && (size_t)length < out_bytes;
}

const char* sumi_bind_join(char* out, const char* module, const char* suffix)
{
    if (snprintf(out, SUMI_NAME_BYTES, "%s.%s", module, suffix) >= SUMI_NAME_BYTES) out[0] = 0;
    return out;
}

int32_t sumi_bind_heads(sumi_binder* b, int32_t dim, int32_t head_dim, int32_t time_width)
{
    if (b->result != SUMI_OK) return 0;
    const int32_t heads = dim / head_dim;
    if (heads * (int64_t)head_dim == dim && time_width % 2 == 0) return heads;
    sumi_bind_fail(b, SUMI_TENSOR_MISMATCH, "%s: a transformer of width %d cannot have heads of %d and %d sinusoids",
                   b->component->path, (int)dim, (int)head_dim, (int)time_width);
    return 0;
}

void sumi_bind_axes(sumi_binder* b, const sumi_axis_split* split, int32_t* pairs)
{
    int64_t shares = 0, sum = 0;
    bool is_good = split->dim_count == 0 || split->dim_count == split->axis_count;
    for (int32_t a = 0; a < split->axis_count; a++) shares += split->shares[a];
    for (int32_t a = 0; a < split->axis_count; a++) {
        const int64_t dim =
            split->dim_count != 0 ? split->dims[a] : (int64_t)split->head_dim * split->shares[a] / shares;
        is_good = is_good && dim >= 2 && dim <= split->head_dim && dim % 2 == 0;
        sum += dim;
        pairs[a] = (int32_t)(dim / 2);
    }
    if (is_good && sum == split->head_dim) return;
    sumi_bind_fail(b, SUMI_TENSOR_MISMATCH, "%s: %s must be %d even numbers whose sum is the head size %d",
                   split->config_path, split->key, (int)split->axis_count, (int)split->head_dim);
}

void sumi_bind_check(sumi_binder* binder, const char* config_path, const char* key, int32_t config_value,
                     int32_t tensor_value)
{
    if (config_value != 0 && config_value != tensor_value) {
        sumi_bind_fail(binder, SUMI_TENSOR_MISMATCH,
                       "%s: %s is %d, but the tensors of %s say %d; config and weights do not belong together",
                       config_path, key, (int)config_value, binder->component->path, (int)tensor_value);
    }
}

void sumi_bind_fail(sumi_binder* binder, sumi_result result, const char* format, ...)
{
    SUMI_ASSERT(result != SUMI_OK);
    if (binder->result != SUMI_OK) return;
    char text[SUMI_ERROR_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    binder->result = sumi_fail(binder->error, result, "%s", text);
}

const sumi_tensor* sumi_bind_find(const sumi_binder* binder, const char* canonical)
{
    SUMI_ASSERT(binder->component != NULL && binder->list != NULL);
    SUMI_ASSERT(canonical[0] != 0);
    const sumi_tensor* tensor = sumi_component_find(binder->component, canonical);
    char alias[SUMI_NAME_BYTES];
    for (int32_t which = 0; tensor == NULL && binder->alias != NULL
                            && binder->alias(binder->alias_context, canonical, which, alias, sizeof alias);
         which++)
        tensor = sumi_component_find(binder->component, alias);
    return tensor;
}

bool sumi_bind_has_prefix(const sumi_binder* binder, const char* prefix)
{
    size_t length = strlen(prefix);
    for (size_t i = 0; i < binder->component->set->count; i++) {
        const char* name = sumi_component_tensor_name(binder->component, &binder->component->set->tensors[i]);
        if (name != NULL && strncmp(name, prefix, length) == 0) return true;
    }
    return false;
}

int32_t sumi_bind_count(const sumi_binder* binder, const char* prefix)
{
    size_t length = strlen(prefix);
    int32_t count = 0;
    for (size_t i = 0; i < binder->component->set->count; i++) {
        const char* name = sumi_component_tensor_name(binder->component, &binder->component->set->tensors[i]);
        if (name == NULL || strncmp(name, prefix, length) != 0) continue;
        int32_t index = 0;
        const char* at = name + length;
        for (; *at >= '0' && *at <= '9' && index < 100000; at++) index = 10 * index + (*at - '0');
        if (at > name + length && *at == '.' && index + 1 > count) count = index + 1;
    }
    return count;
}

const sumi_tensor* sumi_bind_need(sumi_binder* binder, const char* canonical)
{
    if (binder->result != SUMI_OK) return NULL;
    const sumi_tensor* tensor = sumi_bind_find(binder, canonical);
    if (tensor != NULL) return tensor;
    const sumi_component* component = binder->component;
    size_t count;
    const sumi_foreign_method* methods = sumi_foreign_methods(&count);
    const sumi_tensor* packed;
    const sumi_foreign_method* method =
        sumi_foreign_method_find(methods, count, component->set, component->prefix, &packed);
    if (method != NULL) {
        sumi_bind_fail(binder, SUMI_NOT_SUPPORTED,
                       "%s: %s lacks the tensor %s%s, but has %s: it is quantised with %s, which is not "
                       "supported; " SUMI_QUANTISATION_ADVICE,
                       component->path, binder->what, component->prefix, canonical, packed->name, method->name);
    } else {
        char alias[SUMI_NAME_BYTES];
        bool has_alias =
            binder->alias != NULL && binder->alias(binder->alias_context, canonical, 0, alias, sizeof alias);
        sumi_bind_fail(binder, SUMI_TENSOR_MISSING,
                       "%s: %s lacks the tensor %s%s%s%s%s; the file is incomplete or of another model",
                       binder->component->path, binder->what, binder->component->prefix, canonical,
                       has_alias ? " (or " : "", has_alias ? alias : "", has_alias ? ")" : "");
    }
    return NULL;
}

// Finds the scaling of a stored tensor. False: the quantisation is not supported. This is checked before everything
// else, because such files store other types and shapes, which would look like files of another model.
static bool find_scaling(sumi_binder* binder, const sumi_tensor* tensor, sumi_tensor_scaling* out)
{
    const char* name = sumi_component_tensor_name(binder->component, tensor);
    *out = (sumi_tensor_scaling){.scale = 1.0f, .packed = 1};
    if (name != NULL) binder->result = sumi_tensor_find_scaling(binder->component, name, out, binder->error);
    return binder->result == SUMI_OK;
}

int32_t sumi_bind_size(sumi_binder* binder, const char* canonical, int32_t axis)
{
    SUMI_ASSERT(axis >= 0 && axis < SUMI_TENSOR_MAX_RANK);
    const sumi_tensor* tensor = sumi_bind_need(binder, canonical);
    sumi_tensor_scaling scaling;
    if (tensor == NULL || !find_scaling(binder, tensor, &scaling)) return 0;
    const int64_t elements = axis + 1 == tensor->rank ? scaling.packed : 1; // in one of the file
    if (axis >= tensor->rank || tensor->shape[axis] < 1 || tensor->shape[axis] > INT32_MAX / 8) {
        sumi_bind_fail(binder, SUMI_TENSOR_MISMATCH,
                       "%s: tensor %s has %d dimensions, or one of an impossible size; the file is of another model",
                       binder->component->path, tensor->name, (int)tensor->rank);
        return 0;
    }
    return (int32_t)(tensor->shape[axis] * elements);
}

// Writes a shape as "[64, 96]".
static void shape_text(const sumi_tensor* tensor, char* out, size_t out_bytes)
{
    size_t used = 0;
    out[0] = 0;
    for (int32_t i = 0; i < tensor->rank && used < out_bytes; i++) {
        used +=
            (size_t)snprintf(out + used, out_bytes - used, "%s%lld", i == 0 ? "[" : ", ", (long long)tensor->shape[i]);
    }
    if (used < out_bytes) snprintf(out + used, out_bytes - used, tensor->rank == 0 ? "[]" : "]");
}

static void refuse_shape(sumi_binder* binder, const sumi_tensor* tensor, const char* required_shape)
{
    char stored_shape[128];
    shape_text(tensor, stored_shape, sizeof stored_shape);
    sumi_bind_fail(binder, SUMI_TENSOR_MISMATCH,
                   "%s: tensor %s has the shape %s, %s needs %s; the file is of another model or its config.json does "
                   "not belong to it",
                   binder->component->path, tensor->name, stored_shape, binder->what, required_shape);
}

// ---- Binding --------------------------------------------------------------------------------------------------------

// Floating-point and GGUF block types. Integers without a scale are quantised by unknown rules.
static bool is_weight_type(sumi_dtype dtype, const sumi_tensor_scaling* scaling)
{
    return sumi_dtype_is_number(dtype)
        && (dtype <= SUMI_DTYPE_F8_E5M2 || dtype >= SUMI_DTYPE_Q4_0 || scaling->is_scaled);
}

// 4-bit codes are for matrices, which then have twice as many columns as the file's tensor.
static bool set_matrix_tensor(sumi_binder* binder, sumi_stacked_tensor* stacked, const sumi_tensor* tensor,
                              int32_t rows)
{
    SUMI_ASSERT(binder->result == SUMI_OK && rows >= 1);
    sumi_tensor_scaling scaling;
    if (!find_scaling(binder, tensor, &scaling)) return false;
    if (!is_weight_type(tensor->dtype, &scaling)) {
        sumi_bind_fail(binder, SUMI_NOT_SUPPORTED,
                       "%s: tensor %s has the type %s, which is not a supported way to store weights%s",
                       binder->component->path, tensor->name, sumi_dtype_get(tensor->dtype)->name,
                       sumi_dtype_is_foreign_block(tensor->dtype) ? "; use a file of Q3_K, Q4_K, Q5_K, Q6_K or Q8_0"
                                                                  : "");
        return false;
    }
    if ((scaling.row_scales != NULL || scaling.has_decoding) && tensor->shape[0] != rows) {
        sumi_bind_fail(binder, SUMI_NOT_SUPPORTED,
                       "%s: tensor %s has scales for each of its %lld rows, and %s reads it as %d rows",
                       binder->component->path, tensor->name, (long long)tensor->shape[0], binder->what, (int)rows);
        return false;
    }
    sumi_decoding* decoding = NULL;
    if (scaling.has_decoding) {
        decoding = sumi_weight_list_reserve(binder->list, sizeof *decoding);
        if (decoding == NULL) {
            binder->result = sumi_out_of_memory(binder->error, sizeof *decoding, "the scales of a weight");
            return false;
        }
        *decoding = scaling.decoding;
    }
    *stacked = (sumi_stacked_tensor){.data = tensor->data,
                                     .dtype = scaling.packed > 1 ? SUMI_DTYPE_CODES4 : tensor->dtype,
                                     .rows = rows,
                                     .scale = scaling.scale,
                                     .row_scales = scaling.row_scales,
                                     .rotation = scaling.rotation,
                                     .decoding = decoding,
                                     .mapping = tensor->mapping,
                                     .mapping_bytes = tensor->mapping_bytes};
    return true;
}

static bool set_stacked_tensor(sumi_binder* binder, sumi_stacked_tensor* stacked, const sumi_tensor* tensor,
                               int32_t rows)
{
    if (!set_matrix_tensor(binder, stacked, tensor, rows)) return false;
    if (stacked->dtype != SUMI_DTYPE_CODES4) return true;
    sumi_bind_fail(binder, SUMI_NOT_SUPPORTED,
                   "%s: tensor %s has codes of 4 bits, which is supported for matrices only", binder->component->path,
                   tensor->name);
    return false;
}

// Adds a finished weight to the list.
static void add_weight(sumi_binder* binder, sumi_weight* weight, const char* name)
{
    sumi_weight_list* list = binder->list;
    SUMI_ASSERT(weight->rows >= 1 && weight->cols >= 1);
    SUMI_ASSERT(weight->tensor_count >= 1 && weight->tensor_count <= SUMI_WEIGHT_MAX_TENSORS);
    weight->name = copy_name(binder, name);
    if (binder->result != SUMI_OK) return;
    binder->result = sumi_grow(list->heap, (void**)&list->weights, &list->capacity, list->count + 1,
                               sizeof *list->weights, binder->error);
    if (binder->result == SUMI_OK) {
        weight->index = list->first_index + (int32_t)list->count;
        weight->owner = list;
        list->weights[list->count++] = weight;
        list->weight_bytes += sumi_weight_bytes(weight);
    }
}

// parts[0] gets the path.
static void add_target(sumi_binder* binder, const char* module, const sumi_adapter_target* parts)
{
    char folded[SUMI_NAME_BYTES];
    if (binder->result != SUMI_OK || !sumi_fold_path(module, strlen(module), folded, sizeof folded)) return;
    sumi_weight_list* list = binder->list;
    const size_t count = (size_t)parts[0].more_parts + 1;
    const char* path = copy_name(binder, folded);
    if (binder->result != SUMI_OK) return;
    binder->result = sumi_grow(list->heap, (void**)&list->targets, &list->target_capacity, list->target_count + count,
                               sizeof *list->targets, binder->error);
    for (size_t i = 0; i < count && binder->result == SUMI_OK; i++) {
        list->targets[list->target_count] = parts[i];
        list->targets[list->target_count].encoder = binder->encoder;
        list->targets[list->target_count++].path = i == 0 ? path : "";
    }
}

// Registers a target under the module's own name and all its aliases.
static void add_targets(sumi_binder* binder, const char* module, const sumi_adapter_target* parts)
{
    if (!binder->adaptable || binder->result != SUMI_OK) return;
    add_target(binder, module, parts);
    char name[SUMI_NAME_BYTES], alias[SUMI_NAME_BYTES];
    snprintf(name, sizeof name, "%s.weight", module);
    for (int32_t which = 0;
         binder->alias != NULL && binder->alias(binder->alias_context, name, which, alias, sizeof alias); which++) {
        size_t length = strlen(alias);
        if (length > 7 && strcmp(alias + length - 7, ".weight") == 0) {
            alias[length - 7] = 0;
            add_target(binder, alias, parts);
        }
    }
}

void sumi_bind_target(sumi_binder* binder, const sumi_weight* weight, const char* module, int32_t row_begin,
                      int32_t rows)
{
    SUMI_ASSERT(binder->result != SUMI_OK || (row_begin >= 0 && rows >= 0 && row_begin <= weight->rows - rows));
    add_targets(binder, module,
                &(sumi_adapter_target){
                    .weight_index = weight->index, .row_begin = row_begin, .rows = rows, .cols = weight->cols});
}

void sumi_bind_target_parts(sumi_binder* binder, const char* module, const sumi_target_part* parts, int32_t count)
{
    SUMI_ASSERT(count >= 1 && count <= SUMI_MODULE_MAX_PARTS);
    sumi_adapter_target targets[SUMI_MODULE_MAX_PARTS];
    for (int32_t i = 0; i < count; i++) {
        targets[i] = (sumi_adapter_target){.weight_index = parts[i].weight->index,
                                           .row_begin = parts[i].row_begin,
                                           .rows = parts[i].rows,
                                           .cols = parts[i].weight->cols,
                                           .more_parts = count - 1 - i};
    }
    add_targets(binder, module, targets);
}

// Rows and columns of a tensor as a matrix: the first dimension, and all others together.
static bool matrix_shape(const sumi_tensor* tensor, int64_t* rows, int64_t* cols)
{
    *rows = tensor->rank > 0 ? tensor->shape[0] : 1;
    *cols = 1;
    for (int32_t i = 1; i < tensor->rank; i++) {
        if (tensor->shape[i] < 0 || (tensor->shape[i] > 0 && *cols > INT32_MAX / tensor->shape[i])) return false;
        *cols *= tensor->shape[i];
    }
    return tensor->rank >= 1;
}

// Rows of zeros as a tensor of a stacked weight.
static bool set_zeros(sumi_binder* binder, sumi_stacked_tensor* stacked, int32_t rows, int32_t cols)
{
    size_t bytes = (size_t)rows * (size_t)cols * 2;
    *stacked = (sumi_stacked_tensor){
        .data = sumi_weight_list_reserve(binder->list, bytes), .dtype = SUMI_DTYPE_BF16, .rows = rows, .scale = 1.0f};
    if (stacked->data == NULL) binder->result = sumi_out_of_memory(binder->error, bytes, "rows of zeros");
    return stacked->data != NULL;
}

// The tensors of a stack as a weight that is not in the list yet. False after a failure.
static bool set_stack(sumi_binder* binder, sumi_weight* weight, const sumi_module_stack* stack, int32_t cols)
{
    const char* const* modules = stack->modules;
    const int32_t *rows = stack->rows, count = stack->count;
    SUMI_ASSERT(count >= 1 && count <= SUMI_WEIGHT_MAX_TENSORS);
    memset(weight, 0, sizeof *weight);
    for (int32_t i = 0; i < count && binder->result == SUMI_OK; i++) {
        char name[SUMI_NAME_BYTES], required_shape[64];
        if (modules[i] == NULL) {
            if (!set_zeros(binder, &weight->tensors[i], rows[i], cols)) return false;
            weight->rows += rows[i];
            continue;
        }
        snprintf(name, sizeof name, "%s.weight", modules[i]);
        const sumi_tensor* tensor = sumi_bind_need(binder, name);
        if (tensor == NULL || !set_matrix_tensor(binder, &weight->tensors[i], tensor, rows[i])) return false;
        int64_t have_rows, have_cols;
        const int64_t elements = weight->tensors[i].dtype == SUMI_DTYPE_CODES4 ? 2 : 1; // in one of the file
        if (!matrix_shape(tensor, &have_rows, &have_cols) || have_rows != rows[i] || have_cols * elements != cols) {
            snprintf(required_shape, sizeof required_shape, "[%d, %d]", (int)rows[i], (int)cols);
            refuse_shape(binder, tensor, required_shape);
            return false;
        }
        weight->rows += rows[i];
    }
    weight->cols = cols;
    weight->tensor_count = count;
    return binder->result == SUMI_OK;
}

void sumi_bind_stack(sumi_binder* binder, sumi_weight* weight, const sumi_module_stack* stack, int32_t cols)
{
    if (set_stack(binder, weight, stack, cols)) add_weight(binder, weight, stack->label);
    for (int32_t i = 0, row = 0; i < stack->count && binder->result == SUMI_OK; row += stack->rows[i++]) {
        if (stack->modules[i] != NULL) sumi_bind_target(binder, weight, stack->modules[i], row, stack->rows[i]);
    }
}

void sumi_bind_matrix(sumi_binder* binder, sumi_weight* weight, const char* module, int32_t rows, int32_t cols)
{
    sumi_bind_stack(binder, weight, &(sumi_module_stack){module, &module, &rows, 1}, cols);
}

// Copies the decodings of a part to memory that lives as long as the weights.
static void keep_decodings(sumi_binder* binder, sumi_weight* weight)
{
    for (int32_t p = 0; p < weight->tensor_count && binder->result == SUMI_OK; p++) {
        if (weight->tensors[p].decoding == NULL) continue;
        sumi_decoding* copy = sumi_weight_list_reserve(binder->list, sizeof *copy);
        if (copy == NULL) {
            binder->result = sumi_out_of_memory(binder->error, sizeof *copy, "the scales of a weight");
            return;
        }
        *copy = *weight->tensors[p].decoding;
        weight->tensors[p].decoding = copy;
    }
}

// Of a matrix that is read in parts, which would have to be cut inside of a block.
static void refuse_cut(sumi_binder* binder, const char* module, const sumi_stacked_tensor* whole, int32_t row)
{
    char name[SUMI_NAME_BYTES], reason[96];
    const sumi_tensor* tensor = sumi_bind_find(binder, sumi_bind_join(name, module, "weight"));
    if (whole->decoding != NULL && whole->decoding->block_rows > 1)
        snprintf(reason, sizeof reason, "%d rows share a factor", (int)whole->decoding->block_rows);
    else
        snprintf(reason, sizeof reason, "blocks of the type %s hold more than a row",
                 sumi_dtype_get(whole->dtype)->name);
    sumi_bind_fail(binder, SUMI_NOT_SUPPORTED,
                   "%s: the first %d and the other %d rows of tensor %s are read apart, and %s there; use a file that "
                   "has it in a floating point type, or with one factor for the tensor or for each row",
                   binder->component->path, (int)row, (int)(whole->rows - row), tensor != NULL ? tensor->name : name,
                   reason);
}

void sumi_bind_parts(sumi_binder* binder, const sumi_module_parts* parts, int32_t cols)
{
    SUMI_ASSERT(parts->count >= 1 && parts->count <= SUMI_MODULE_MAX_PARTS);
    int32_t rows = 0;
    for (int32_t i = 0; i < parts->count; i++) rows += parts->rows[i];
    sumi_weight whole;
    if (!set_stack(binder, &whole, &(sumi_module_stack){parts->module, &parts->module, &rows, 1}, cols)) return;
    sumi_target_part targets[SUMI_MODULE_MAX_PARTS];
    for (int32_t i = 0, row = 0; i < parts->count && binder->result == SUMI_OK; row += parts->rows[i++]) {
        sumi_decoding decodings[SUMI_WEIGHT_MAX_TENSORS];
        if (!sumi_weight_take_rows(&whole, row, parts->rows[i], parts->weights[i], decodings)) {
            refuse_cut(binder, parts->module, &whole.tensors[0], row);
            return;
        }
        keep_decodings(binder, parts->weights[i]);
        if (binder->result == SUMI_OK) add_weight(binder, parts->weights[i], parts->labels[i]);
        targets[i] = (sumi_target_part){parts->weights[i], 0, parts->rows[i]};
    }
    if (binder->result == SUMI_OK) sumi_bind_target_parts(binder, parts->module, targets, parts->count);
}

void sumi_bind_fused(sumi_binder* binder, sumi_weight* weight, const char* fused, const sumi_module_stack* stack,
                     int32_t cols)
{
    char name[SUMI_NAME_BYTES];
    int32_t rows = 0;
    for (int32_t i = 0; i < stack->count; i++) rows += stack->rows[i];
    if (sumi_bind_find(binder, sumi_bind_join(name, fused, "weight")) == NULL) {
        sumi_bind_stack(binder, weight, stack, cols);
        sumi_bind_target(binder, weight, fused, 0, rows);
        return;
    }
    const bool is_adaptable = binder->adaptable;
    binder->adaptable = false; // registered below, under the names of the parts too
    sumi_bind_stack(binder, weight, &(sumi_module_stack){stack->label, &fused, &rows, 1}, cols);
    binder->adaptable = is_adaptable;
    sumi_bind_target(binder, weight, fused, 0, rows);
    for (int32_t i = 0, row = 0; i < stack->count; row += stack->rows[i++])
        sumi_bind_target(binder, weight, stack->modules[i], row, stack->rows[i]);
}

void sumi_bind_linear(sumi_binder* binder, sumi_weight* weight, sumi_weight* bias, const char* module, int32_t rows,
                      int32_t cols)
{
    char name[SUMI_NAME_BYTES];
    sumi_bind_matrix(binder, weight, module, rows, cols);
    sumi_bind_vector(binder, bias, sumi_bind_join(name, module, "bias"), rows);
}

void sumi_bind_conv(sumi_binder* binder, sumi_weight* weight, const char* module, sumi_conv_size size)
{
    const int32_t kernel = size.kernel;
    SUMI_ASSERT(kernel == 1 || kernel == 3);
    char name[SUMI_NAME_BYTES], required_shape[64];
    snprintf(name, sizeof name, "%s.weight", module);
    const sumi_tensor* tensor = sumi_bind_need(binder, name);
    if (tensor == NULL) return;
    if (tensor->rank != 4 || tensor->shape[0] != size.out || tensor->shape[1] != size.in || tensor->shape[2] != kernel
        || tensor->shape[3] != kernel) {
        snprintf(required_shape, sizeof required_shape, "[%d, %d, %d, %d]", (int)size.out, (int)size.in, (int)kernel,
                 (int)kernel);
        refuse_shape(binder, tensor, required_shape);
        return;
    }
    sumi_bind_matrix(binder, weight, module, size.out, size.in * kernel * kernel);
}

void sumi_bind_causal_conv(sumi_binder* binder, sumi_weight* weight, const char* module, sumi_conv_size size)
{
    const int32_t kernel = size.kernel;
    memset(weight, 0, sizeof *weight);
    char name[SUMI_NAME_BYTES], required_shape[96];
    snprintf(name, sizeof name, "%s.weight", module);
    const sumi_tensor* tensor = sumi_bind_need(binder, name);
    if (tensor == NULL) return;
    const int64_t* shape = tensor->shape;
    int32_t taps = kernel * kernel;
    if (tensor->rank != 5 || shape[0] != size.out || shape[1] != size.in || shape[3] != kernel || shape[4] != kernel
        || shape[2] < 1 || shape[2] > 16) {
        snprintf(required_shape, sizeof required_shape, "[%d, %d, %d, %d, %d]", (int)size.out, (int)size.in,
                 (int)kernel, (int)kernel, (int)kernel);
        refuse_shape(binder, tensor, required_shape);
        return;
    }
    sumi_stacked_tensor* stacked = &weight->tensors[0];
    if (!set_stacked_tensor(binder, stacked, tensor, size.out)) return;
    if (shape[2] > 1) {
        const sumi_dtype_info* type = sumi_dtype_get(stacked->dtype);
        if (type->block != 1) {
            sumi_bind_fail(
                binder, SUMI_NOT_SUPPORTED,
                "%s: tensor %s is a kernel with a time dimension in the type %s, whose blocks hold more than "
                "one slice; use a file with it in a floating point type",
                binder->component->path, tensor->name, type->name);
            return;
        }
        stacked->chunk = taps;
        stacked->chunk_stride = (int32_t)shape[2] * taps;
        stacked->data = (const unsigned char*)stacked->data
                      + sumi_dtype_bytes(stacked->dtype, (uint64_t)(stacked->chunk_stride - stacked->chunk));
    }
    weight->rows = size.out;
    weight->cols = size.in * taps;
    weight->tensor_count = 1;
    add_weight(binder, weight, module);
}

void sumi_bind_kernel_slices(sumi_binder* binder, sumi_weight* weight, const sumi_kernel_slices* slices)
{
    const int32_t count = slices->count, channels = slices->channels, area = slices->area;
    const int64_t cols = (int64_t)channels * count * area;
    memset(weight, 0, sizeof *weight);
    unsigned char* kernel = NULL;
    size_t slice_bytes = 0; // of one channel
    for (int32_t t = 0; t < count && binder->result == SUMI_OK; t++) {
        sumi_stacked_tensor slice;
        const sumi_tensor* tensor = sumi_bind_need(binder, slices->names[t]);
        if (tensor == NULL || !set_stacked_tensor(binder, &slice, tensor, slices->rows)) return;
        int64_t have_rows, have_cols;
        if (!matrix_shape(tensor, &have_rows, &have_cols) || have_rows != slices->rows
            || have_cols != (int64_t)channels * area) {
            char required_shape[64];
            snprintf(required_shape, sizeof required_shape, "[%d, %d]", (int)slices->rows, (int)(channels * area));
            refuse_shape(binder, tensor, required_shape);
            return;
        }
        if (!sumi_stacked_tensor_is_plain(&slice) || slice.scale != 1.0f || sumi_dtype_get(slice.dtype)->block != 1
            || (t > 0 && slice.dtype != weight->tensors[0].dtype)) {
            sumi_bind_fail(binder, SUMI_NOT_SUPPORTED,
                           "%s: tensor %s is a slice of a kernel in the type %s; use a file with all slices in one "
                           "floating point type",
                           binder->component->path, tensor->name, sumi_dtype_get(slice.dtype)->name);
            return;
        }
        if (t == 0) {
            slice_bytes = (size_t)sumi_dtype_bytes(slice.dtype, (uint64_t)area);
            const size_t bytes = (size_t)slices->rows * (size_t)channels * (size_t)count * slice_bytes;
            kernel = sumi_weight_list_reserve(binder->list, bytes);
            if (kernel == NULL) {
                binder->result = sumi_out_of_memory(binder->error, bytes, "a kernel's slices");
                return;
            }
            weight->tensors[0] =
                (sumi_stacked_tensor){.data = kernel, .dtype = slice.dtype, .rows = slices->rows, .scale = 1.0f};
        }
        for (size_t i = 0; i < (size_t)slices->rows * (size_t)channels; i++) {
            memcpy(kernel + (i * (size_t)count + (size_t)t) * slice_bytes,
                   (const unsigned char*)slice.data + i * slice_bytes, slice_bytes);
        }
    }
    weight->rows = slices->rows;
    weight->cols = (int32_t)cols;
    weight->tensor_count = 1;
    if (binder->result == SUMI_OK) add_weight(binder, weight, slices->label);
}

// The tensor `name` of `cols` elements, all of whose dimensions but one are 1; NULL after a failure.
static const sumi_tensor* need_vector(sumi_binder* binder, const char* name, int32_t cols)
{
    const sumi_tensor* tensor = sumi_bind_need(binder, name);
    if (tensor == NULL) return NULL;
    int64_t count = 1;
    bool is_good = tensor->rank >= 1;
    for (int32_t i = 0; i < tensor->rank; i++) {
        is_good = is_good && (count == 1 || tensor->shape[i] == 1);
        count = count == 1 ? tensor->shape[i] : count;
    }
    if (!is_good || count != cols) {
        char required_shape[32];
        snprintf(required_shape, sizeof required_shape, "[%d]", (int)cols);
        refuse_shape(binder, tensor, required_shape);
        return NULL;
    }
    return tensor;
}

void sumi_bind_vector(sumi_binder* binder, sumi_weight* weight, const char* name, int32_t cols)
{
    memset(weight, 0, sizeof *weight);
    const sumi_tensor* tensor = need_vector(binder, name, cols);
    if (tensor == NULL) return;
    weight->rows = 1;
    weight->cols = cols;
    weight->tensor_count = 1;
    if (set_stacked_tensor(binder, &weight->tensors[0], tensor, 1)) add_weight(binder, weight, name);
}

static void add_norm_target(sumi_binder* binder, const sumi_weight* weight, const char* name)
{
    char module[SUMI_NAME_BYTES];
    const size_t length = strlen(name);
    SUMI_ASSERT(binder->result != SUMI_OK || (length > 7 && strcmp(name + length - 7, ".weight") == 0));
    if (binder->result != SUMI_OK || length < 7 || length - 7 >= sizeof module) return;
    snprintf(module, sizeof module, "%.*s", (int)(length - 7), name);
    add_targets(
        binder, module,
        &(sumi_adapter_target){.weight_index = weight->index, .rows = 1, .cols = weight->cols, .is_vector = true});
}

void sumi_bind_norm(sumi_binder* binder, sumi_weight* weight, const char* name, int32_t cols)
{
    sumi_bind_vector(binder, weight, name, cols);
    add_norm_target(binder, weight, name);
}

// Memory of the list for one row of floats as a weight; NULL after a failure.
static float* new_float_row(sumi_binder* binder, sumi_weight* weight, int32_t cols, const char* what)
{
    memset(weight, 0, sizeof *weight);
    if (binder->result != SUMI_OK) return NULL;
    float* data = sumi_weight_list_reserve(binder->list, (size_t)cols * sizeof *data);
    if (data == NULL) {
        binder->result = sumi_out_of_memory(binder->error, (size_t)cols * sizeof *data, what);
        return NULL;
    }
    weight->rows = 1;
    weight->cols = cols;
    weight->tensor_count = 1;
    weight->tensors[0] = (sumi_stacked_tensor){.data = data, .dtype = SUMI_DTYPE_F32, .rows = 1, .scale = 1.0f};
    return data;
}

// What is converted when a model is opened is checked then, because the tensor's name is known here. Tensors that are
// read in their files are not: that would read all of the files.
static bool check_finite(sumi_binder* binder, const sumi_tensor* tensor, const float* values, int32_t count)
{
    int32_t bad = 0;
    for (int32_t i = 0; i < count; i++) bad += !isfinite(values[i]);
    if (bad > 0) {
        sumi_bind_fail(
            binder, SUMI_FILE_MALFORMED,
            "%s: %d of the %d values of tensor %s are NaN or infinite; the file is damaged: download it again",
            binder->component->path, (int)bad, (int)count, tensor->name);
    }
    return bad == 0;
}

bool sumi_bind_floats(sumi_binder* binder, const char* name, float* into, int32_t count)
{
    const sumi_tensor* tensor = need_vector(binder, name, count);
    sumi_weight stored = {.rows = 1, .cols = count, .tensor_count = 1};
    if (tensor == NULL || !set_stacked_tensor(binder, &stored.tensors[0], tensor, 1)) return false;
    sumi_weight_to_float(&stored, 0, 1, into, count);
    return check_finite(binder, tensor, into, count);
}

void sumi_bind_offset_norm(sumi_binder* binder, sumi_weight* weight, const char* name, int32_t cols, float offset)
{
    float* data = new_float_row(binder, weight, cols, "a norm's weight");
    if (data == NULL || !sumi_bind_floats(binder, name, data, cols)) return;
    for (int32_t i = 0; i < cols; i++) data[i] += offset;
    add_weight(binder, weight, name);
    add_norm_target(binder, weight, name);
}

void sumi_bind_stacked_bias(sumi_binder* binder, sumi_weight* weight, const sumi_module_stack* stack)
{
    const char* const* modules = stack->modules;
    const int32_t *rows = stack->rows, count = stack->count;
    int32_t total = 0;
    for (int32_t i = 0; i < count; i++) total += rows[i];
    float* data = new_float_row(binder, weight, total, "a stacked bias");
    if (data == NULL) return;
    int32_t row = 0;
    for (int32_t i = 0; i < count; row += rows[i++]) {
        if (modules[i] == NULL) { continue; } // the list's memory is zeroed
        char name[SUMI_NAME_BYTES];
        snprintf(name, sizeof name, "%s.bias", modules[i]);
        const sumi_tensor* tensor = sumi_bind_need(binder, name);
        if (tensor == NULL) return;
        if (tensor->rank != 1 || tensor->shape[0] != rows[i]) {
            char required_shape[32];
            snprintf(required_shape, sizeof required_shape, "[%d]", (int)rows[i]);
            refuse_shape(binder, tensor, required_shape);
            return;
        }
        sumi_stacked_tensor stacked;
        if (!set_stacked_tensor(binder, &stacked, tensor, 1)) return;
        sumi_dtype_to_float(stacked.dtype, stacked.data, data + row, (size_t)rows[i]);
        if (!check_finite(binder, tensor, data + row, rows[i])) return;
    }
    add_weight(binder, weight, stack->label);
}

// Binds one factor of a change. False after a failure.
static bool set_factor(sumi_binder* binder, sumi_stacked_tensor* stacked, const char* name, int32_t rows, int32_t cols)
{
    SUMI_ASSERT(rows >= 1 && cols >= 1);
    const sumi_tensor* tensor = sumi_bind_need(binder, name);
    if (tensor == NULL) return false;
    const int64_t* shape = tensor->shape + (tensor->rank == 3 ? 1 : 0);
    const bool is_single = tensor->rank == 2 || (tensor->rank == 3 && tensor->shape[0] == 1);
    if (!is_single || shape[0] != rows || shape[1] != cols) {
        char required_shape[64];
        snprintf(required_shape, sizeof required_shape, "[1, %d, %d]", (int)rows, (int)cols);
        refuse_shape(binder, tensor, required_shape);
        return false;
    }
    return set_stacked_tensor(binder, stacked, tensor, rows);
}

void sumi_bind_change(sumi_binder* binder, sumi_weight* weight, const sumi_change_names* names)
{
    sumi_weight_list* list = binder->list;
    SUMI_ASSERT(binder->result != SUMI_OK || list->weights[weight->index - list->first_index] == weight);
    SUMI_ASSERT(weight->change == NULL && names->rank >= 1);
    sumi_weight_change change;
    if (!set_factor(binder, &change.up, names->up, weight->rows, names->rank)
        || !set_factor(binder, &change.down, names->down, names->rank, weight->cols))
        return;
    const sumi_dtype_info* type = sumi_dtype_get(change.up.dtype);
    if (type->block != 1 || !sumi_stacked_tensor_is_plain(&change.up) || !sumi_stacked_tensor_is_plain(&change.down)) {
        sumi_bind_fail(
            binder, SUMI_NOT_SUPPORTED, // see sumi_weight_change
            "%s: tensor %s has the type %s, or it or the other factor has row scales; use a file with both in "
            "a floating point type, or with the change merged into the weights",
            binder->component->path, names->up, type->name);
        return;
    }
    change.up.scale *= names->scale;
    sumi_weight_change* copy = sumi_weight_list_reserve(list, sizeof *copy);
    if (copy == NULL) {
        binder->result = sumi_out_of_memory(binder->error, sizeof *copy, "the change of a weight");
        return;
    }
    *copy = change;
    list->weight_bytes -= sumi_weight_bytes(weight);
    weight->change = copy;
    list->weight_bytes += sumi_weight_bytes(weight);
}
