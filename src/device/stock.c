#include "device/stock.h"
#include "device/upload.h"
#include <string.h>

void sumi_device_stock_init(sumi_device_stock* stock, sumi_heap* heap, sumi_device_port* port,
                            const sumi_device_allocator* allocator)
{
    memset(stock, 0, sizeof *stock);
    stock->heap = heap;
    stock->port = port;
    sumi_device_memory_init(&stock->memory, port, allocator);
}

void sumi_device_settle(sumi_device_stock* stock)
{
    stock->port->functions->wait_for_all(stock->port); // copies of streamed weights are ahead of their use
    stock->has_late_frees = false;
    sumi_device_weights_settle(&stock->weights);
}

void sumi_device_drop_all_recordings(sumi_device_stock* stock)
{
    stock->arena_serial++;
    for (size_t i = 0; i < stock->plan_count; i++) {
        stock->port->functions->drop_recordings(stock->port, stock->plans[i]);
        stock->plans[i]->is_reserved = false;
    }
}

void sumi_device_drop_division(sumi_device_stock* stock, sumi_device_plan* record)
{
    stock->port->functions->drop_recordings(stock->port, record);
    sumi_device_streaming_destroy(stock, record);
    sumi_free(stock->heap, record->list.indices);
    record->list = (sumi_device_list){.indices = NULL};
    record->unpinned_count = 0;
    record->has_weights = record->fits_limit = false;
}

void sumi_device_release_weights(sumi_device_stock* stock, const sumi_weight* const* weights, size_t count)
{
    sumi_device_settle(stock);
    for (size_t i = 0; i < count; i++) sumi_device_weights_release(&stock->weights, weights[i]);
    for (size_t p = 0; p < stock->plan_count; p++) {
        sumi_device_plan* record = stock->plans[p];
        const sumi_device_weight_streaming* streaming = record->streaming;
        bool uses_weights = record->has_weights && stock->weights.residents == NULL;
        for (int32_t i = 0; i < record->list.count && !uses_weights; i++)
            uses_weights = stock->weights.residents[record->list.indices[i]].weight == NULL;
        for (int32_t i = 0; streaming != NULL && i < streaming->list.count && !uses_weights; i++)
            uses_weights = stock->weights.residents[streaming->list.indices[i]].weight == NULL;
        if (uses_weights) sumi_device_drop_division(stock, record);
    }
}
