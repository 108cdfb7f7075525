// A scratch file with an adapter for the tiny Z-Image: a layer of its text encoder, and one of its denoiser if asked.
#ifndef SUMI_TEXT_ADAPTER_H
#define SUMI_TEXT_ADAPTER_H
#include "files/tensors.h"
#include "system.h"
#include "test.h"
#include <stdlib.h>

typedef struct text_adapter {
    char folder[192], path[256];
} text_adapter;

// `size` is that of the change: two sizes make two adapters.
static inline text_adapter make_text_adapter(const char* name, float size, bool has_denoiser)
{
    enum { RANK = 4, WIDTH = 96, QUERY = 128, MODEL = 64 };
    static const struct {
        const char* name;
        int32_t rows, cols;
    } s_parts[] = {{"text_encoder.model.layers.0.self_attn.q_proj.lora_A.weight", RANK, WIDTH},
                   {"text_encoder.model.layers.0.self_attn.q_proj.lora_B.weight", QUERY, RANK},
                   {"transformer.layers.0.attention.to_q.lora_A.weight", RANK, MODEL},
                   {"transformer.layers.0.attention.to_q.lora_B.weight", MODEL, RANK}};
    static float s_values[QUERY * RANK];
    sumi_tensor tensors[4];
    for (int32_t i = 0; i < QUERY * RANK; i++) s_values[i] = size * (float)(i * 37 % 101 - 50) / 50.0f;
    for (size_t i = 0; i < 4; i++) {
        tensors[i] = (sumi_tensor){.name = s_parts[i].name,
                                   .dtype = SUMI_DTYPE_F32,
                                   .rank = 2,
                                   .shape = {s_parts[i].rows, s_parts[i].cols},
                                   .data = s_values,
                                   .bytes = (uint64_t)(s_parts[i].rows * s_parts[i].cols) * sizeof(float)};
    }
    text_adapter made = {.folder = ""};
    const size_t count = has_denoiser ? 4 : 2;
    const uint64_t bytes = sumi_safetensors_write(tensors, count, NULL, 0, NULL, 0);
    void* image = malloc((size_t)bytes);
    sumi_safetensors_write(tensors, count, NULL, 0, image, bytes);
    CHECK(system_make_scratch(made.folder, sizeof made.folder, "sumi-text-adapter"));
    snprintf(made.path, sizeof made.path, "%s/%s", made.folder, name);
    FILE* file = fopen(made.path, "wb");
    CHECK(file != NULL && fwrite(image, 1, (size_t)bytes, file) == bytes);
    if (file != NULL) fclose(file);
    free(image);
    return made;
}

static inline void remove_text_adapter(const text_adapter* made)
{
    system_remove(made->path);
    system_remove(made->folder);
}
#endif
