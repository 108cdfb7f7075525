// From named tensors to the weights of a network. A network requests each weight by its canonical name (that of
// diffusers) and the shape that it must have. The binder knows the aliases of a tensor, which are its
// names in other files, the prefix in the file and the scales of fp8 files. It keeps the first failure, so that binding
// reads like the table of tensors in a paper, without a check in each line.
//
//     sumi_binder b = {.list = list, .component = c, .alias = dit_alias, .what = "the transformer", .error = error};
//     sumi_bind_matrix(&b, &block->out, "layers.0.attention.to_out.0", dim, dim);
//     return b.result;
#ifndef SUMI_MODELS_WEIGHTS_H
#define SUMI_MODELS_WEIGHTS_H
#include "files/checkpoint.h"
#include "plan/weight.h"

#define SUMI_NAME_BYTES 192

// What an adapter may change: rows of a weight under a module path. Paths are folded: '.', '-' and '_' all become '_',
// because adapter files use each of them.
typedef struct sumi_adapter_target {
    const char* path;
    int32_t weight_index, row_begin, rows, cols;
    int32_t encoder; // 0: of the denoiser; otherwise of this text encoder, counted from 1
    bool is_vector;  // the weight of a norm; otherwise rows of a matrix
    // The rows of the module continue in this many of the following targets, which have no paths.
    int32_t more_parts;
} sumi_adapter_target;

typedef struct sumi_weight_list {
    sumi_heap* heap;
    const sumi_weight** weights;
    size_t count, capacity;
    int32_t first_index; // weights[i]->index == first_index + i
    sumi_adapter_target* targets;
    size_t target_count, target_capacity;
    void** blocks;
    size_t block_count, block_capacity; // memory of names and stacked biases
    size_t block_used, block_bytes;
    uint64_t weight_bytes;
} sumi_weight_list;

void sumi_weight_list_init(sumi_weight_list* list, sumi_heap* heap);
void sumi_weight_list_close(sumi_weight_list* list); // accepts a zeroed list
// Zeroed memory that lives as long as the list. NULL: memory ran out.
void* sumi_weight_list_reserve(sumi_weight_list* list, size_t bytes);

// Writes alias number `which` (0, 1, ...) of a canonical tensor name. False after the last one.
typedef bool sumi_alias_function(const void* context, const char* canonical, int32_t which, char* out,
                                 size_t out_bytes);

typedef struct sumi_binder {
    sumi_weight_list* list;
    const sumi_component* component; // the tensors, their prefix and their source
    const char* what;                // "the transformer", for messages
    sumi_alias_function* alias;      // NULL: canonical names only
    const void* alias_context;
    bool adaptable;  // matrices and the weights of norms become targets of adapters
    int32_t encoder; // of these targets
    sumi_error* error;
    sumi_result result; // the first failure; after it calls do nothing
} sumi_binder;

// The tensor with this canonical name under any of its names. NULL if the file has none of them, which does not count
// as a failure.
const sumi_tensor* sumi_bind_find(const sumi_binder* binder, const char* canonical);
// The same for a tensor that must be there.
const sumi_tensor* sumi_bind_need(sumi_binder* binder, const char* canonical);
// One more than the largest N of all tensors named prefix + "N." + anything; 0 if there is none. All tensors are
// counted, so that a missing one does not make the network shorter.
int32_t sumi_bind_count(const sumi_binder* binder, const char* prefix);
bool sumi_bind_has_prefix(const sumi_binder* binder, const char* prefix);
// Dimension `axis` of a tensor that must be there; 0 after a failure.
int32_t sumi_bind_size(sumi_binder* binder, const char* canonical, int32_t axis);

// `module`.weight as [rows, cols]. A convolution's kernel dimensions belong to the columns; a 1x1 kernel is a matrix.
void sumi_bind_matrix(sumi_binder* binder, sumi_weight* weight, const char* module, int32_t rows, int32_t cols);
// The same with its bias, `module`.bias.
void sumi_bind_linear(sumi_binder* binder, sumi_weight* weight, sumi_weight* bias, const char* module, int32_t rows,
                      int32_t cols);
typedef struct sumi_conv_size {
    int32_t out, in, kernel; // channels; the side of the kernel
} sumi_conv_size;
void sumi_bind_conv(sumi_binder* binder, sumi_weight* weight, const char* module, sumi_conv_size size);
// Binds a convolution over time and picture, [out, in, time, kernel, kernel], for which the frames before the first are
// zeros. For a single frame it is the convolution of the picture with the last slice in time. Only that slice is bound,
// in place.
void sumi_bind_causal_conv(sumi_binder* binder, sumi_weight* weight, const char* module, sumi_conv_size size);
// Binds a kernel [rows, channels, time, height, width] whose slices in time are tensors [rows, channels, height, width]
// of their own, in a type without blocks, all of the same type. Copies them in the order of the kernel.
typedef struct sumi_kernel_slices {
    const char* label;
    const char* const* names;            // canonical tensor names, one per slice
    int32_t count, rows, channels, area; // area: height times width
} sumi_kernel_slices;
void sumi_bind_kernel_slices(sumi_binder* binder, sumi_weight* weight, const sumi_kernel_slices* slices);
// Binds a tensor of `cols` elements as one row: biases, norms, pad tokens. All dimensions but one are 1: [n], [1, n]
// and [n, 1, 1] are accepted. `name` is the whole tensor name.
void sumi_bind_vector(sumi_binder* binder, sumi_weight* weight, const char* name, int32_t cols);
// Copies a tensor of `count` elements as floats, for numbers that no op reads as a weight. NaN and infinity are refused.
// False after a failure.
bool sumi_bind_floats(sumi_binder* binder, const char* name, float* into, int32_t count);
// sumi_bind_vector for the weight of a norm, whose name ends in ".weight": adapters may change it.
void sumi_bind_norm(sumi_binder* binder, sumi_weight* weight, const char* name, int32_t cols);
// Like sumi_bind_norm, with `offset` added, copied as floats: for norms whose weights are stored without the 1 that is
// added to them. NaN and infinity are refused, here and in stacked biases.
void sumi_bind_offset_norm(sumi_binder* binder, sumi_weight* weight, const char* name, int32_t cols, float offset);
// Several modules whose weights lie in one matrix named `label`, one below the other. NULL in place of a module: rows
// of zeros.
typedef struct sumi_module_stack {
    const char* label;
    const char* const* modules;
    const int32_t* rows; // of each module
    int32_t count;
} sumi_module_stack;
void sumi_bind_stack(sumi_binder* binder, sumi_weight* weight, const sumi_module_stack* stack, int32_t cols);
// Their biases, copied into one row of floats.
void sumi_bind_stacked_bias(sumi_binder* binder, sumi_weight* weight, const sumi_module_stack* stack);
// Binds the change that a file has beside an already bound weight: W + scale * up @ down (plan/weight.h). `up`
// and `down` are whole tensor names of [rows, rank] and [rank, cols], or [1, rows, rank] and so on, as one of several
// adapters.
typedef struct sumi_change_names {
    const char *up, *down;
    int32_t rank;
    float scale;
} sumi_change_names;
void sumi_bind_change(sumi_binder* binder, sumi_weight* weight, const sumi_change_names* names);
// One module whose rows are several weights, which follow each other.
typedef struct sumi_module_parts {
    const char* module;
    const char* const* labels; // of each weight
    sumi_weight* const* weights;
    const int32_t* rows;
    int32_t count; // up to SUMI_MODULE_MAX_PARTS
} sumi_module_parts;
#define SUMI_MODULE_MAX_PARTS 3
void sumi_bind_parts(sumi_binder* binder, const sumi_module_parts* parts, int32_t cols);
// q, k and v, or other modules, as one matrix, from separate tensors or from a fused one. Adapters may name the modules
// and the fused one.
void sumi_bind_fused(sumi_binder* binder, sumi_weight* weight, const char* fused, const sumi_module_stack* stack,
                     int32_t cols);
// Registers one more name for rows of a weight that adapters may use.
void sumi_bind_target(sumi_binder* binder, const sumi_weight* weight, const char* module, int32_t row_begin,
                      int32_t rows);
// The same for a module whose rows are several ranges of rows, in this order.
typedef struct sumi_target_part {
    const sumi_weight* weight;
    int32_t row_begin, rows;
} sumi_target_part;
void sumi_bind_target_parts(sumi_binder* binder, const char* module, const sumi_target_part* parts, int32_t count);
// Checks that a number of config.json (0: not given) is the one that the tensors' shapes give.
void sumi_bind_check(sumi_binder* binder, const char* config_path, const char* key, int32_t config_value,
                     int32_t tensor_value);
// The heads of a transformer of width `dim`, whose times have `time_width` sinusoids. 0 after a failure.
int32_t sumi_bind_heads(sumi_binder* binder, int32_t dim, int32_t head_dim, int32_t time_width);
// How heads are split over the axes of a position.
typedef struct sumi_axis_split {
    const char *config_path, *key; // of the config's list
    const int32_t* dims;           // the list; dim_count 0: it is not given
    int32_t dim_count;
    const int32_t* shares; // of the axes in proportion, if the list is not given
    int32_t axis_count, head_dim;
} sumi_axis_split;
// The pairs of a head that each axis rotates. A split that is not of even numbers whose sum is the head size is refused.
void sumi_bind_axes(sumi_binder* binder, const sumi_axis_split* split, int32_t* pairs);
void sumi_bind_fail(sumi_binder* binder, sumi_result result, const char* format, ...) SUMI_PRINTF(3, 4);

// Writes "module.suffix" to out, which has SUMI_NAME_BYTES; "" if it is too long for a tensor's name. Returns out.
const char* sumi_bind_join(char* out, const char* module, const char* suffix);

// Folds a module path for comparison. False if the result does not fit.
bool sumi_fold_path(const char* path, size_t bytes, char* out, size_t out_bytes);
// Copies the text with the first `from` replaced by `to`. False if `from` does not occur or the result does not fit.
bool sumi_replace_text(const char* text, const char* from, const char* to, char* out, size_t out_bytes);
#endif
