// Any bytes as the file of an adapter, with the config in its header: names, patterns, parts and shapes. What is read
// is applied to a layer of the shape that the file asks for. What is accepted must stay finite in size, lie in memory
// that is freed, and make changes of the layer's shape.
// Seeds: tests/fuzz/seeds/adapter tests/golden/common/files/safetensors/valid
#include "files/tensors.h"
#include "models/adapter_change.h"
#include "models/adapter_pattern.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

enum { MOST_VALUES = 1 << 16 };

static void check(bool good)
{
    if (!good) abort();
}

// A layer of this many rows and columns, in bfloat16 zeros but the first element of each row.
static void apply(sumi_heap* heap, const sumi_adapter_layer* layer, int32_t rows, int32_t cols)
{
    if (rows < 1 || cols < 1 || rows > MOST_VALUES / cols) return;
    uint16_t* values = calloc((size_t)rows * (size_t)cols, sizeof *values);
    for (int32_t r = 0; r < rows; r++) values[(size_t)r * (size_t)cols] = 0x3f80;
    const sumi_weight weight = {.name = "layer",
                                .rows = rows,
                                .cols = cols,
                                .tensor_count = 1,
                                .tensors = {{.data = values, .dtype = SUMI_DTYPE_BF16, .rows = rows, .scale = 1.0f}}};
    const sumi_adapter_target target = {.path = "layer", .rows = rows, .cols = cols};
    sumi_adapter_memory memory = {.heap = heap};
    const sumi_adapter_place place = {&memory, "fuzz", &target, &weight};
    sumi_change_list list = {.count = 0}, bias = {.count = 0};
    sumi_error error = {0};
    bool differ;
    sumi_result result = sumi_adapter_change_matrix(&place, layer, &list, &error);
    if (result == SUMI_OK) result = sumi_adapter_change_bias(&place, layer, &bias, &error);
    check((result == SUMI_OK) == (error.text[0] == '\0'));
    for (int32_t i = 0; i < list.count && result == SUMI_OK; i++) check(sumi_delta_rows(&list.deltas[i]) == rows);
    for (int32_t i = 0; i < bias.count && result == SUMI_OK; i++) check(sumi_delta_rows(&bias.deltas[i]) == rows);
    if (result == SUMI_OK) {
        const sumi_change_range range = {list.deltas, list.count};
        check(sumi_adapter_changes_differ(heap, range, range, &differ, &error) == SUMI_OK);
    }
    sumi_adapter_memory_close(&memory);
    free(values);
}

static int32_t rows_of(const sumi_tensor* tensor)
{
    return tensor != NULL && tensor->rank > 0 && tensor->shape[0] < MOST_VALUES ? (int32_t)tensor->shape[0] : 1;
}

static int32_t cols_of(const sumi_tensor* tensor)
{
    return tensor != NULL && tensor->rank > 1 && tensor->shape[1] < MOST_VALUES ? (int32_t)tensor->shape[1] : 1;
}

static void apply_layer(sumi_heap* heap, const sumi_adapter_layer* layer)
{
    const sumi_tensor* const* parts = layer->parts;
    const int32_t a = rows_of(parts[parts[SUMI_PART_LOKR_1] != NULL ? SUMI_PART_LOKR_1 : SUMI_PART_LOKR_1_UP]),
                  b = rows_of(parts[parts[SUMI_PART_LOKR_2] != NULL ? SUMI_PART_LOKR_2 : SUMI_PART_LOKR_2_UP]),
                  c = cols_of(parts[parts[SUMI_PART_LOKR_1] != NULL ? SUMI_PART_LOKR_1 : SUMI_PART_LOKR_1_DOWN]),
                  d = cols_of(parts[parts[SUMI_PART_LOKR_2] != NULL ? SUMI_PART_LOKR_2 : SUMI_PART_LOKR_2_DOWN]);
    switch (layer->kind) {
    case SUMI_ADAPTER_LORA: apply(heap, layer, rows_of(parts[SUMI_PART_UP]), cols_of(parts[SUMI_PART_DOWN])); break;
    case SUMI_ADAPTER_LOHA:
        apply(heap, layer, rows_of(parts[SUMI_PART_LOHA_1_UP]), cols_of(parts[SUMI_PART_LOHA_1_DOWN]));
        break;
    case SUMI_ADAPTER_LOKR:
        if (a <= MOST_VALUES / b && c <= MOST_VALUES / d) apply(heap, layer, a * b, c * d);
        break;
    case SUMI_ADAPTER_DIFF: apply(heap, layer, rows_of(parts[SUMI_PART_DIFF]), cols_of(parts[SUMI_PART_DIFF])); break;
    case SUMI_ADAPTER_NONE: apply(heap, layer, rows_of(parts[SUMI_PART_BIAS_DIFF]), 4); break;
    }
    apply(heap, layer, 4, 3); // a layer of another shape
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes)
{
    static sumi_pattern s_pattern;
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    if (sumi_pattern_read(&s_pattern, (const char*)data, bytes))
        sumi_pattern_matches(&s_pattern, (const char*)data, bytes < 256 ? bytes : 256);
    sumi_tensor_set set;
    sumi_error error = {0};
    sumi_adapter_config configs[SUMI_ADAPTER_CONFIGS] = {0};
    sumi_adapter_layers layers = {.heap = &heap};
    sumi_tensor_set_init(&set, &heap, NULL);
    sumi_result result = sumi_safetensors_read(&set, data, bytes, "fuzz", &error);
    if (result == SUMI_OK) result = sumi_adapter_configs_read(configs, &heap, NULL, &set, "fuzz", &error);
    if (result == SUMI_OK) result = sumi_adapter_layers_read(&layers, "fuzz", &set, configs, &error);
    check((result == SUMI_OK) == (error.text[0] == '\0'));
    for (size_t i = 0; i < layers.count && result == SUMI_OK; i++) {
        result = sumi_adapter_layer_check(&layers.layers[i], "fuzz", &error);
        if (result == SUMI_OK) apply_layer(&heap, &layers.layers[i]);
    }
    sumi_adapter_layers_close(&layers);
    sumi_adapter_configs_close(configs);
    sumi_tensor_set_close(&set);
    check(heap.allocated_bytes == 0);
    return 0;
}
