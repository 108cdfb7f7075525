// What tests of files share: files in memory that are served through the host program's callbacks, small models made of
// them, checkpoints opened in one call.
#ifndef MEMORY_FILES_H
#define MEMORY_FILES_H
#include "files/checkpoint.h"
#include "files/json.h"
#include "files/tensors.h"
#include "models/signatures.h"
#include "test.h"

#define GOLDEN "tests/golden/common/files/"
static sumi_heap s_heap;

// ---- Helpers --------------------------------------------------------------------------------------------------------

static inline unsigned char* read_whole(const char* path, size_t* out_bytes)
{
    FILE* file = fopen(path, "rb");
    *out_bytes = 0;
    if (file == NULL) return NULL;
    fseek(file, 0, SEEK_END);
    *out_bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char* data = malloc(*out_bytes + 1);
    *out_bytes = fread(data, 1, *out_bytes, file);
    data[*out_bytes] = 0;
    fclose(file);
    return data;
}

// A decoded, terminated string of a JSON text, in one of a few rotating buffers.
static inline const char* text_of(const sumi_json_text* text)
{
    static char s_buffers[4][16384];
    static int s_next;
    char* buffer = s_buffers[s_next++ % 4];
    const size_t bytes = sumi_json_decode(text, buffer, sizeof s_buffers[0] - 1);
    buffer[bytes] = 0;
    return buffer;
}

// ---- A file system in memory ----------------------------------------------------------------------------------------

typedef struct memory_file {
    const char* path;
    const void* data;
    size_t bytes;
    bool owned;
} memory_file;

typedef struct memory_files {
    memory_file list[48];
    int count, open_count, opened_ever;
    bool with_map, fail_read;
} memory_files;

static inline void* memory_open(const char* path, uint64_t* out_bytes, void* user_data)
{
    memory_files* files = user_data;
    for (int i = 0; i < files->count; i++) {
        if (strcmp(files->list[i].path, path) == 0) {
            *out_bytes = files->list[i].bytes;
            files->open_count++;
            files->opened_ever++;
            return &files->list[i];
        }
    }
    return NULL;
}

static inline bool memory_read(void* file, uint64_t offset, void* into, size_t bytes, void* user_data)
{
    const memory_file* f = file;
    if (((memory_files*)user_data)->fail_read || offset > f->bytes || bytes > f->bytes - offset) return false;
    memcpy(into, (const unsigned char*)f->data + offset, bytes);
    return true;
}

static inline const void* memory_map(void* file, void* user_data)
{
    return ((memory_files*)user_data)->with_map ? ((const memory_file*)file)->data : NULL;
}

static inline void memory_close(void* file, void* user_data)
{
    (void)file;
    ((memory_files*)user_data)->open_count--;
}

static inline sumi_files callbacks(memory_files* files)
{
    return (sumi_files){memory_open, memory_read, memory_map, memory_close, files};
}

static inline void put_bytes(memory_files* files, const char* path, const void* data, size_t bytes)
{
    files->list[files->count++] = (memory_file){path, data, bytes, false};
}

static inline void put_text(memory_files* files, const char* path, const char* text)
{
    put_bytes(files, path, text, strlen(text));
}

// A safetensors file of one-element F32 tensors whose values count up from 1. names end with NULL.
static inline void put_tensors(memory_files* files, const char* path, const char* const* names)
{
    static float s_values[64];
    sumi_tensor tensors[64];
    size_t count = 0;
    for (; names[count] != NULL; count++) {
        s_values[count] = (float)count + 1;
        tensors[count] = (sumi_tensor){.name = names[count],
                                       .dtype = SUMI_DTYPE_F32,
                                       .rank = 1,
                                       .shape = {1},
                                       .data = &s_values[count],
                                       .bytes = 4};
    }
    const uint64_t bytes = sumi_safetensors_write(tensors, count, NULL, 0, NULL, 0);
    void* image = malloc((size_t)bytes);
    sumi_safetensors_write(tensors, count, NULL, 0, image, bytes);
    put_bytes(files, path, image, (size_t)bytes);
    files->list[files->count - 1].owned = true;
}

static inline void release(memory_files* files)
{
    for (int i = 0; i < files->count; i++) {
        if (files->list[i].owned) free((void*)(uintptr_t)files->list[i].data);
    }
    CHECK_NUMBER(files->open_count, 0);
}

#define NAMES(...) ((const char* const[]){__VA_ARGS__, NULL})

// A model folder: Z-Image's transformer in two shards, one-file text encoder and VAE.
static inline void put_model(memory_files* files)
{
    put_text(files, "m/model_index.json", "{\"_class_name\":\"ZImagePipeline\",\"transformer\":[\"diffusers\",\"x\"]}");
    put_text(files, "m/transformer/config.json", "{\"_class_name\":\"ZImageTransformer2DModel\",\"dim\":64}");
    put_text(files, "m/transformer/diffusion_pytorch_model.safetensors.index.json",
             "{\"weight_map\":{\"cap_embedder.1.weight\":\"s1.safetensors\",\"layers.0.adaLN_modulation.0.weight\":"
             "\"s2.safetensors\"}}");
    put_tensors(files, "m/transformer/s1.safetensors", NAMES("cap_embedder.1.weight"));
    put_tensors(files, "m/transformer/s2.safetensors", NAMES("layers.0.adaLN_modulation.0.weight", "extra"));
    put_text(files, "m/text_encoder/config.json", "{\"model_type\":\"qwen3\"}");
    put_tensors(files, "m/text_encoder/model.safetensors",
                NAMES("model.embed_tokens.weight", "model.layers.0.mlp.weight"));
    put_text(files, "m/vae/config.json", "{\"_class_name\":\"AutoencoderKL\"}");
    put_tensors(files, "m/vae/diffusion_pytorch_model.safetensors",
                NAMES("decoder.conv_in.weight", "encoder.conv_in.weight"));
    put_text(files, "m/tokenizer/tokenizer.json", "{}");
    put_text(files, "m/scheduler/scheduler_config.json", "{\"shift\":3.0}");
}

// ---- Checkpoints ----------------------------------------------------------------------------------------------------

// The table that models are opened with, unless the desc brings its own.
static inline sumi_checkpoint_desc with_signatures(sumi_checkpoint_desc desc)
{
    if (desc.signatures == NULL) desc.signatures = sumi_signatures(&desc.signature_count);
    desc.methods = sumi_foreign_methods(&desc.method_count);
    desc.class_words = sumi_class_words();
    return desc;
}

static inline const char* network_of(const sumi_checkpoint* checkpoint)
{
    return sumi_component_network(&checkpoint->components[SUMI_COMPONENT_TRANSFORMER]);
}

static inline sumi_result open_checkpoint(sumi_checkpoint* checkpoint, memory_files* files, sumi_files* host,
                                          const sumi_checkpoint_desc* desc, sumi_error* error)
{
    *host = callbacks(files);
    *error = (sumi_error){0};
    const sumi_checkpoint_desc whole = with_signatures(*desc);
    return sumi_checkpoint_open(checkpoint, &s_heap, host, &whole, error);
}

static inline bool holds(const sumi_component* part, const char* name)
{
    return sumi_component_find(part, name) != NULL;
}

// ---- Components and signatures --------------------------------------------------------------------------------------

// Two text encoders with their tokenizers in their folders, a vision tower inside the first.
static inline void put_pair(memory_files* files)
{
    put_tensors(files, "p/transformer/diffusion_pytorch_model.safetensors",
                NAMES("cap_embedder.1.weight", "clip_text_pooled_proj.0.weight"));
    put_tensors(files, "p/text_encoder/model.safetensors",
                NAMES("model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.bias",
                      "visual.patch_embed.proj.weight", "visual.merger.ln_q.weight", "visual.blocks.0.norm1.weight"));
    put_text(files, "p/text_encoder/config.json", "{\"model_type\":\"x\"}");
    put_text(files, "p/text_encoder/vocab.json", "{\"a\":0}");
    put_text(files, "p/text_encoder/merges.txt", "#version: 0.2\n");
    put_text(files, "p/text_encoder/added_tokens.json", "{\"<e>\":1}");
    put_text(files, "p/text_encoder/tokenizer_config.json", "{}");
    put_text(files, "p/text_encoder/special_tokens_map.json", "{}");
    put_tensors(files, "p/clip_model/model.safetensors", NAMES("text_model.transformer.roberta.emb_ln.weight"));
    put_text(files, "p/clip_model/config.json", "{\"architectures\":[\"y\"]}");
    put_text(files, "p/clip_model/sentencepiece.bpe.model", "\x0A\x03\x0A\x01x");
    put_text(files, "p/processor/preprocessor_config.json", "{\"min_pixels\":3136}");
}
#endif
