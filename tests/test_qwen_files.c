// The files that Qwen-Image comes in: every layout in circulation is made of the tiny checkpoint's tensors, opened, and
// draws what the diffusers folder draws. Where values are the same, so are the pictures' bits. Quantised files are held
// against files that have the quantised values in float32.
#include "engine/engine.h"
#include "engine_fixture.h"
#include "files/safetensors_write.h"
#include "models/network_state.h"
#include "system.h"

#define QWEN "tests/golden/qwen-image/"
#define MODEL QWEN "model/"
#define WIDTH 48
#define HEIGHT 32
#define LATENTS ((size_t)16 * (WIDTH / 8) * (HEIGHT / 8))

static sumi_heap t_heap;
static sumi_engine* t_engine;
static host t_host;

// ---- Scratch files --------------------------------------------------------------------------------------------------

static char t_folder[192];

// folder/name in scratch memory that is used again after 16 calls.
static const char* scratch(const char* folder, const char* name)
{
    static char path[16][384];
    static int next;
    next = (next + 1) % 16;
    if (t_folder[0] == 0 && !system_make_scratch(t_folder, sizeof t_folder, "sumi-qwen-files")) t_folder[0] = 0;
    snprintf(path[next], sizeof path[next], "%s/%s", t_folder, folder);
    system_make_folder(path[next]);
    if (name[0] != 0) snprintf(path[next], sizeof path[next], "%s/%s/%s", t_folder, folder, name);
    return path[next];
}

static void remove_folder(const char* folder)
{
    int count;
    char** names = system_list(folder, &count);
    for (int i = 0; i < count; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (system_look_at(path) == SYSTEM_FOLDER) remove_folder(path);
        else system_remove(path);
    }
    system_free_list(names, count);
    system_remove(folder);
}

static void write_file(const char* path, const void* data, size_t bytes)
{
    FILE* file = system_open(path, "wb");
    CHECK(file != NULL);
    if (file == NULL) return;
    CHECK(fwrite(data, 1, bytes, file) == bytes);
    fclose(file);
}

static void copy_file(const char* from, const char* to)
{
    static char data[1 << 16];
    FILE* file = system_open(from, "rb");
    CHECK(file != NULL);
    if (file == NULL) return;
    const size_t bytes = fread(data, 1, sizeof data, file);
    CHECK(bytes < sizeof data);
    fclose(file);
    write_file(to, data, bytes);
}

// ---- Tensors on their way from file to file -------------------------------------------------------------------------

#define MAX_TENSORS 512

// Owns names and data.
typedef struct bag {
    sumi_tensor tensors[MAX_TENSORS];
    size_t count;
} bag;

static bag t_bags[2];

static bag* empty_bag(int which)
{
    bag* b = &t_bags[which];
    for (size_t i = 0; i < b->count; i++) {
        free((void*)(uintptr_t)b->tensors[i].name);
        free((void*)(uintptr_t)b->tensors[i].data);
    }
    b->count = 0;
    return b;
}

static void put(bag* b, const char* name, sumi_dtype dtype, const sumi_tensor* shape, const void* data, uint64_t bytes)
{
    CHECK(b->count < MAX_TENSORS);
    if (b->count == MAX_TENSORS) return;
    sumi_tensor* t = &b->tensors[b->count++];
    *t = (sumi_tensor){.dtype = dtype, .bytes = bytes};
    if (shape != NULL) {
        t->rank = shape->rank;
        memcpy(t->shape, shape->shape, sizeof t->shape);
    }
    char* copy = malloc(strlen(name) + 1);
    void* values = malloc((size_t)bytes + 1);
    memcpy(copy, name, strlen(name) + 1);
    memcpy(values, data, (size_t)bytes);
    t->name = copy;
    t->data = values;
}

// What a tensor is called in the other layout; false: it is not in there.
typedef bool rename_function(const char* name, char* out, size_t out_bytes);

// Adds the tensors of a component's folder, prefix in front of what `rename` makes of their names.
static void take(bag* b, const char* folder, const char* stem, const char* prefix, rename_function* rename)
{
    sumi_error error = {SUMI_OK, {0}};
    sumi_tensor_set set;
    sumi_tensor_set_init(&set, &t_heap, NULL);
    CHECK_NUMBER(sumi_tensor_set_open_folder(&set, folder, stem, &error), SUMI_OK);
    for (size_t i = 0; i < set.count; i++) {
        const sumi_tensor* t = &set.tensors[i];
        char name[192], full[256];
        snprintf(name, sizeof name, "%s", t->name);
        if (rename != NULL && !rename(t->name, name, sizeof name)) continue;
        snprintf(full, sizeof full, "%s%s", prefix, name);
        put(b, full, t->dtype, t, t->data, t->bytes);
    }
    sumi_tensor_set_close(&set);
}

static void take_transformer(bag* b, const char* prefix)
{
    take(b, MODEL "transformer", "diffusion_pytorch_model", prefix, NULL);
}
static void take_text(bag* b, const char* prefix, rename_function* rename)
{
    take(b, MODEL "text_encoder", "model", prefix, rename);
}
static void take_vae(bag* b, const char* prefix, rename_function* rename)
{
    take(b, MODEL "vae", "diffusion_pytorch_model", prefix, rename);
}

static void write_tensors(const bag* b, const char* path, const sumi_metadata* metadata)
{
    const uint64_t bytes = sumi_safetensors_write(b->tensors, b->count, metadata, metadata != NULL, NULL, 0);
    void* image = malloc((size_t)bytes);
    sumi_safetensors_write(b->tensors, b->count, metadata, metadata != NULL, image, bytes);
    write_file(path, image, (size_t)bytes);
    free(image);
}

static size_t append(unsigned char* into, size_t at, uint64_t number, int bytes)
{
    for (int i = 0; i < bytes; i++) into[at++] = (unsigned char)(number >> (8 * i));
    return at;
}

static size_t append_text(unsigned char* into, size_t at, const char* text)
{
    at = append(into, at, strlen(text), 8);
    memcpy(into + at, text, strlen(text));
    return at + strlen(text);
}

static uint32_t gguf_type(sumi_dtype dtype)
{
    switch (dtype) {
    case SUMI_DTYPE_F32: return 0;
    case SUMI_DTYPE_F16: return 1;
    case SUMI_DTYPE_Q8_0: return 8;
    case SUMI_DTYPE_Q4_K: return 12;
    case SUMI_DTYPE_BF16: return 30;
    default: CHECK(!"a type that these files have"); return 0;
    }
}

static void write_gguf(const bag* b, const char* path, const char* architecture)
{
    size_t room = 4096;
    for (size_t i = 0; i < b->count; i++) room += 512 + (size_t)b->tensors[i].bytes;
    unsigned char* file = calloc(room, 1);
    memcpy(file, "GGUF", 4);
    size_t at = append(file, append(file, append(file, 4, 3, 4), b->count, 8), 1, 8);
    at = append_text(file, append(file, append_text(file, at, "general.architecture"), 8, 4), architecture);
    uint64_t offset = 0;
    for (size_t i = 0; i < b->count; i++) {
        const sumi_tensor* t = &b->tensors[i];
        at = append(file, append_text(file, at, t->name), (uint64_t)t->rank, 4);
        for (int32_t k = t->rank; k > 0; k--) at = append(file, at, (uint64_t)t->shape[k - 1], 8);
        at = append(file, append(file, at, gguf_type(t->dtype), 4), offset, 8);
        offset += (t->bytes + 31) / 32 * 32;
    }
    at = (at + 31) / 32 * 32;
    for (size_t i = 0; i < b->count; i++) {
        memcpy(file + at, b->tensors[i].data, (size_t)b->tensors[i].bytes);
        at += ((size_t)b->tensors[i].bytes + 31) / 32 * 32;
    }
    write_file(path, file, at);
    free(file);
}

// ---- Other types ----------------------------------------------------------------------------------------------------

static size_t value_count(const sumi_tensor* t)
{
    size_t count = 1;
    for (int32_t i = 0; i < t->rank; i++) count *= (size_t)t->shape[i];
    return count;
}

static void quantise_q8_0(const float* x, unsigned char* block)
{
    float most = 0.0f;
    for (int i = 0; i < 32; i++) most = fmaxf(most, fabsf(x[i]));
    const uint16_t bits = sumi_float_to_f16(most / 127.0f);
    const float d = sumi_f16_to_float(bits);
    append(block, 0, bits, 2);
    for (int i = 0; i < 32; i++) {
        const float q = d > 0.0f ? rintf(x[i] / d) : 0.0f;
        block[2 + i] = (unsigned char)(int8_t)(q > 127.0f ? 127.0f : q < -127.0f ? -127.0f : q);
    }
}

static int to_level(float x, float step, int most)
{
    const float level = step > 0.0f ? rintf(x / step) : 0.0f;
    return level < 0.0f ? 0 : level > (float)most ? most : (int)level;
}

// 256 values: eight runs of 32, each with a scale and a minimum of six bits.
static void quantise_q4_k(const float* x, unsigned char* block)
{
    float steps[8], lows[8], step_most = 0.0f, low_most = 0.0f;
    for (int j = 0; j < 8; j++) {
        float low = 0.0f, high = 0.0f;
        for (int i = 0; i < 32; i++) {
            low = fminf(low, x[32 * j + i]);
            high = fmaxf(high, x[32 * j + i]);
        }
        steps[j] = (high - low) / 15.0f;
        lows[j] = -low;
        step_most = fmaxf(step_most, steps[j]);
        low_most = fmaxf(low_most, lows[j]);
    }
    const uint16_t d_bits = sumi_float_to_f16(step_most / 63.0f), low_bits = sumi_float_to_f16(low_most / 63.0f);
    const float d = sumi_f16_to_float(d_bits), low_d = sumi_f16_to_float(low_bits);
    memset(block, 0, 144);
    append(block, 0, d_bits, 2);
    append(block, 2, low_bits, 2);
    unsigned char *packed = block + 4, *quants = block + 16;
    for (int j = 0; j < 8; j++) {
        const int scale = to_level(steps[j], d, 63), low = to_level(lows[j], low_d, 63);
        if (j < 4) {
            packed[j] |= (unsigned char)scale;
            packed[j + 4] |= (unsigned char)low;
        } else {
            packed[j + 4] |= (unsigned char)((scale & 15) | (low & 15) << 4);
            packed[j - 4] |= (unsigned char)(scale >> 4 << 6);
            packed[j] |= (unsigned char)(low >> 4 << 6);
        }
        for (int i = 0; i < 32; i++) {
            const int q = to_level(x[32 * j + i] + low_d * (float)low, d * (float)scale, 15);
            quants[j / 2 * 32 + i] |= (unsigned char)(q << (j % 2 * 4));
        }
    }
}

// The values as the type holds them.
static void* stored_as(sumi_dtype dtype, const float* x, size_t count, uint64_t* out_bytes)
{
    *out_bytes = sumi_dtype_bytes(dtype, count);
    unsigned char* out = malloc((size_t)*out_bytes + 1);
    const sumi_dtype_info* info = sumi_dtype_get(dtype);
    for (size_t i = 0; i < count; i += (size_t)info->block) {
        unsigned char* at = out + i / (size_t)info->block * (size_t)info->block_bytes;
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        switch (dtype) {
        case SUMI_DTYPE_F32: append(at, 0, bits, 4); break;
        case SUMI_DTYPE_F16: append(at, 0, sumi_float_to_f16(x[i]), 2); break;
        case SUMI_DTYPE_BF16: append(at, 0, sumi_float_to_bf16(x[i]), 2); break;
        case SUMI_DTYPE_F8_E4M3: at[0] = sumi_float_to_e4m3(x[i]); break;
        case SUMI_DTYPE_F8_E5M2: at[0] = sumi_float_to_e5m2(x[i]); break;
        case SUMI_DTYPE_Q8_0: quantise_q8_0(x + i, at); break;
        case SUMI_DTYPE_Q4_K: quantise_q4_k(x + i, at); break;
        default: CHECK(!"a type that these files have");
        }
    }
    return out;
}

// How a converted file stores a tensor. scale: values are divided by it first; 1: not.
typedef sumi_dtype choose_function(const sumi_tensor* tensor, float* scale);

// Replaces each tensor's values; `twin` takes them as float32, as the file has them now.
static void convert(bag* b, choose_function* choose, bag* twin, const char* scale_name)
{
    const size_t count = b->count;
    for (size_t i = 0; i < count; i++) {
        sumi_tensor* t = &b->tensors[i];
        const size_t values = value_count(t);
        float *x = malloc(values * 4 + 4), *back = malloc(values * 4 + 4), scale = 1.0f;
        const sumi_dtype dtype = choose(t, &scale);
        sumi_dtype_to_float(t->dtype, t->data, x, values);
        for (size_t k = 0; k < values; k++) x[k] /= scale;
        uint64_t bytes;
        void* data = stored_as(dtype, x, values, &bytes);
        sumi_dtype_to_float(dtype, data, back, values);
        double off = 0.0, size = 0.0;
        for (size_t k = 0; k < values; k++) {
            off += ((double)back[k] - (double)x[k]) * ((double)back[k] - (double)x[k]);
            size += (double)x[k] * (double)x[k];
            back[k] *= scale;
        }
        CHECK(off <= 0.02 * size); // the conversion itself
        put(twin, t->name, SUMI_DTYPE_F32, t, back, values * 4);
        free((void*)(uintptr_t)t->data);
        t->data = data;
        t->dtype = dtype;
        t->bytes = bytes;
        if (scale != 1.0f) {
            char name[256];
            snprintf(name, sizeof name, "%.*s%s", (int)(strlen(t->name) - strlen(".weight")), t->name, scale_name);
            put(b, name, SUMI_DTYPE_F32, NULL, &scale, 4);
        }
        free(x), free(back);
    }
}

// ---- Names ----------------------------------------------------------------------------------------------------------

static bool begins(const char* text, const char* begin) { return strncmp(text, begin, strlen(begin)) == 0; }

static bool without_head(const char* name, char* out, size_t out_bytes)
{
    snprintf(out, out_bytes, "%s", name);
    return !begins(name, "lm_head.");
}

static bool new_text(const char* name, char* out, size_t out_bytes)
{
    if (begins(name, "model.")) snprintf(out, out_bytes, "model.language_model.%s", name + 6);
    else snprintf(out, out_bytes, "%s%s", begins(name, "visual.") ? "model." : "", name);
    return true;
}

// The language model alone.
static bool llama_text(const char* name, char* out, size_t out_bytes)
{
    static const char* const modules[][2] = {
        {"input_layernorm", "attn_norm"},         {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"},
        {"self_attn.v_proj", "attn_v"},           {"self_attn.o_proj", "attn_output"}, {"mlp.gate_proj", "ffn_gate"},
        {"post_attention_layernorm", "ffn_norm"}, {"mlp.up_proj", "ffn_up"},           {"mlp.down_proj", "ffn_down"}};
    int layer, used = 0;
    if (strcmp(name, "model.embed_tokens.weight") == 0) snprintf(out, out_bytes, "token_embd.weight");
    else if (strcmp(name, "model.norm.weight") == 0) snprintf(out, out_bytes, "output_norm.weight");
    else if (strcmp(name, "lm_head.weight") == 0) snprintf(out, out_bytes, "output.weight");
    else if (sscanf(name, "model.layers.%d.%n", &layer, &used) == 1 && used > 0) {
        for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
            const size_t length = strlen(modules[i][0]);
            if (strncmp(name + used, modules[i][0], length) == 0 && name[used + (int)length] == '.')
                return snprintf(out, out_bytes, "blk.%d.%s%s", layer, modules[i][1], name + used + length) > 0;
        }
        CHECK(!"a tensor with a name in llama.cpp");
    } else {
        return false;
    }
    return true;
}

static bool only_vision(const char* name, char* out, size_t out_bytes)
{
    snprintf(out, out_bytes, "%s", name);
    return begins(name, "visual.");
}

// Of a module behind its block in the VAE, as Wan's files call it.
static const char* wan_module(const char* rest, char* out, size_t out_bytes)
{
    static const char* const modules[][2] = {{"norm1.", "residual.0."},
                                             {"conv1.", "residual.2."},
                                             {"norm2.", "residual.3."},
                                             {"conv2.", "residual.6."},
                                             {"conv_shortcut.", "shortcut."}};
    snprintf(out, out_bytes, "%s", rest);
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        if (begins(rest, modules[i][0])) snprintf(out, out_bytes, "%s%s", modules[i][1], rest + strlen(modules[i][0]));
    }
    return out;
}

static bool wan_vae(const char* name, char* out, size_t out_bytes)
{
    char module[128];
    int a, b, used = 0;
    if (begins(name, "quant_conv.")) return snprintf(out, out_bytes, "conv1.%s", name + 11) > 0;
    if (begins(name, "post_quant_conv.")) return snprintf(out, out_bytes, "conv2.%s", name + 16) > 0;
    const char *side = begins(name, "encoder.") ? "encoder" : "decoder", *rest = name + 8;
    if (begins(rest, "conv_in.")) snprintf(out, out_bytes, "%s.conv1.%s", side, rest + 8);
    else if (begins(rest, "norm_out.")) snprintf(out, out_bytes, "%s.head.0.%s", side, rest + 9);
    else if (begins(rest, "conv_out.")) snprintf(out, out_bytes, "%s.head.2.%s", side, rest + 9);
    else if (begins(rest, "mid_block.attentions.0.")) snprintf(out, out_bytes, "%s.middle.1.%s", side, rest + 23);
    else if (sscanf(rest, "mid_block.resnets.%d.%n", &a, &used) == 1 && used > 0)
        snprintf(out, out_bytes, "%s.middle.%d.%s", side, 2 * a, wan_module(rest + used, module, sizeof module));
    else if (sscanf(rest, "down_blocks.%d.%n", &a, &used) == 1 && used > 0)
        snprintf(out, out_bytes, "%s.downsamples.%d.%s", side, a, wan_module(rest + used, module, sizeof module));
    else if (sscanf(rest, "up_blocks.%d.resnets.%d.%n", &a, &b, &used) == 2 && used > 0)
        snprintf(out, out_bytes, "%s.upsamples.%d.%s", side, 4 * a + b, wan_module(rest + used, module, sizeof module));
    else if (sscanf(rest, "up_blocks.%d.upsamplers.0.%n", &a, &used) == 1 && used > 0)
        snprintf(out, out_bytes, "%s.upsamples.%d.%s", side, 4 * a + 3, rest + used);
    else return false;
    return true;
}

// ---- Pictures -------------------------------------------------------------------------------------------------------

typedef struct drawing {
    float latents[LATENTS];
    uint8_t pixels[WIDTH * HEIGHT * 4];
} drawing;

// NULL after a failure, whose message is in t_message.
static char t_message[512];
static sumi_result t_result;
static sumi_model* open_model(const sumi_model_desc* desc)
{
    sumi_job job;
    sumi_model* model = NULL;
    t_message[0] = 0;
    t_result = sumi_submit_model(t_engine, desc, &job);
    if (t_result != SUMI_OK) return NULL;
    sumi_job_wait(t_engine, job, SUMI_FOREVER);
    snprintf(t_message, sizeof t_message, "%s", sumi_job_poll(t_engine, job).message);
    t_result = sumi_fetch_model(t_engine, job, &model);
    return model;
}

// References as large as the tests can afford: the released rule asks for a million pixels.
static void shrink_references(sumi_model* model)
{
    static sumi_recipe recipe;
    recipe = *model->network->recipe;
    recipe.references.autoencoder_area = 4096;
    recipe.references.first_area = 12544;
    model->network->recipe = &recipe;
}

static bool draw_model(sumi_model* model, bool refers, drawing* out)
{
    static uint8_t photo[40 * 56 * 3];
    for (size_t i = 0; i < sizeof photo; i++) photo[i] = (uint8_t)((i * 31 + i / 97 + i / 7) & 255);
    const sumi_pixels picture = {photo, 40, 56, 0, 3};
    const sumi_image_item item = {.text = "A red fox reads, 超清", .negative_text = " ", .seed = 7};
    sumi_image_desc desc = small_image(model, &item);
    desc.width = WIDTH;
    desc.height = HEIGHT;
    desc.guidance = 4.0f;
    if (refers) {
        shrink_references(model);
        desc.references = &picture;
        desc.reference_count = 1;
    }
    sumi_job job;
    sumi_image image;
    const sumi_result result = sumi_submit_images(t_engine, &desc, &job);
    CHECK_NUMBER(result, SUMI_OK);
    if (result != SUMI_OK) return false;
    sumi_job_wait(t_engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_job_latents(t_engine, job, 0, out->latents, LATENTS), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_images(t_engine, job, &image, 1), SUMI_OK);
    if (image.pixels == NULL) return false;
    for (int y = 0; y < HEIGHT; y++)
        memcpy(out->pixels + (size_t)y * WIDTH * 4, (const uint8_t*)image.pixels + (size_t)y * (size_t)image.row_bytes,
               WIDTH * 4);
    sumi_images_release(t_engine, &image, 1);
    return true;
}

static bool draw_files(const sumi_model_desc* desc, bool refers, drawing* out)
{
    memset(out, 0, sizeof *out);
    sumi_model* model = open_model(desc);
    if (model == NULL) printf("  %s\n", t_message);
    CHECK(model != NULL);
    const bool good = model != NULL && draw_model(model, refers, out);
    sumi_model_close(model);
    return good;
}

static double distance(const drawing* got, const drawing* want)
{
    double off = 0.0, size = 0.0;
    for (size_t i = 0; i < LATENTS; i++) {
        const double d = (double)got->latents[i] - (double)want->latents[i];
        off += d * d;
        size += (double)want->latents[i] * (double)want->latents[i];
    }
    return sqrt(off / size);
}

static bool is_same(const drawing* a, const drawing* b)
{
    return memcmp(a->latents, b->latents, sizeof a->latents) == 0
        && memcmp(a->pixels, b->pixels, sizeof a->pixels) == 0;
}

// The diffusers folder, part by part, so that a case replaces those that it is about.
static sumi_model_desc parts(void)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.transformer_path = MODEL "transformer";
    desc.text_encoder_path = MODEL "text_encoder";
    desc.tokenizer_path = MODEL "tokenizer";
    desc.vae_path = MODEL "vae";
    return desc;
}

// An edit model of the same parts; `folder` says which.
static sumi_model_desc edit_parts(const char* folder)
{
    sumi_model_desc desc = parts();
    desc.path = folder;
    desc.processor_path = QWEN "model-edit/processor";
    return desc;
}

static const drawing* plain_drawing(void)
{
    static drawing plain;
    static bool is_drawn;
    if (!is_drawn) {
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = QWEN "model";
        is_drawn = draw_files(&desc, false, &plain);
    }
    return &plain;
}

static const drawing* edit_drawing(void)
{
    static drawing edit;
    static bool is_drawn;
    if (!is_drawn) {
        const sumi_model_desc desc = edit_parts(QWEN "model-edit-2509");
        is_drawn = draw_files(&desc, true, &edit);
    }
    return &edit;
}

// Tiny networks have heads and splits of heads that shapes do not tell: their configs lie beside the files.
static const char* with_config(const char* folder, const char* component, const char* file)
{
    char from[128];
    snprintf(from, sizeof from, MODEL "%s/config.json", component);
    copy_file(from, scratch(folder, "config.json"));
    return scratch(folder, file);
}

static void check_transformer(const char* path, const drawing* want, double limit, const char* what)
{
    drawing got;
    sumi_model_desc desc = parts();
    desc.transformer_path = path;
    if (!draw_files(&desc, false, &got)) return;
    const double off = distance(&got, want);
    if (limit == 0.0 ? !is_same(&got, want) : !(off <= limit)) {
        printf("  %s: latents are off by %.2g\n", what, off);
        t_errors++;
    }
}

// ---- Same values under other names ----------------------------------------------------------------------------------

TEST(a_transformer_file_draws_the_same_behind_every_prefix)
{
    static const char* const prefixes[] = {"", "model.diffusion_model.", "diffusion_model.", "transformer."};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        bag* b = empty_bag(0);
        take_transformer(b, prefixes[i]);
        write_tensors(b, scratch("dit", "qwen_image_bf16.safetensors"), NULL);
        check_transformer(with_config("dit", "transformer", "qwen_image_bf16.safetensors"), plain_drawing(), 0.0,
                          prefixes[i]);
    }
}

TEST(split_files_draw_the_same_under_old_and_new_names)
{
    static rename_function* const texts[] = {NULL, without_head, new_text};
    for (int k = 0; k < 3; k++) {
        bag* b = empty_bag(0);
        take_text(b, "", texts[k]);
        write_tensors(b, scratch("te", "qwen_2.5_vl_7b.safetensors"), NULL);
        b = empty_bag(0);
        take_vae(b, "", k == 1 ? NULL : wan_vae);
        write_tensors(b, scratch("vae", "qwen_image_vae.safetensors"), NULL);
        drawing got;
        sumi_model_desc desc = parts();
        desc.text_encoder_path = with_config("te", "text_encoder", "qwen_2.5_vl_7b.safetensors");
        desc.vae_path = with_config("vae", "vae", "qwen_image_vae.safetensors");
        CHECK(draw_files(&desc, false, &got) && is_same(&got, plain_drawing()));
        // the vision tower and the encoder of the VAE too
        desc.path = QWEN "model-edit-2509";
        desc.processor_path = QWEN "model-edit/processor";
        CHECK(draw_files(&desc, true, &got) && is_same(&got, edit_drawing()));
    }
}

TEST(a_vision_tower_may_lie_in_a_file_of_its_own)
{
    bag* b = empty_bag(0);
    take_text(b, "", llama_text);
    write_gguf(b, scratch("te", "qwen2.5-vl-7b-bf16.gguf"), "qwen2vl");
    b = empty_bag(0);
    take_text(b, "", only_vision);
    write_tensors(b, scratch("vision", "tower.safetensors"), NULL);
    sumi_model_desc desc = edit_parts(QWEN "model-edit-2509");
    desc.text_encoder_path = with_config("te", "text_encoder", "qwen2.5-vl-7b-bf16.gguf");
    desc.vision_path = with_config("vision", "text_encoder", "tower.safetensors");
    drawing got;
    CHECK(draw_files(&desc, true, &got) && is_same(&got, edit_drawing()));
}

TEST(all_in_one_file_draws_the_same_as_its_parts)
{
    static rename_function* const texts[] = {NULL, new_text};
    // without configs of transformer and VAE, so that both sides go by shapes
    bag* b = empty_bag(0);
    take_transformer(b, "");
    write_tensors(b, scratch("bare", "dit.safetensors"), NULL);
    b = empty_bag(0);
    take_vae(b, "", NULL);
    write_tensors(b, scratch("bare", "vae.safetensors"), NULL);
    sumi_model_desc desc = parts();
    desc.transformer_path = scratch("bare", "dit.safetensors");
    desc.vae_path = scratch("bare", "vae.safetensors");
    drawing want, got;
    CHECK(draw_files(&desc, false, &want));
    CHECK(!is_same(&want, plain_drawing())); // the configs say what the shapes of a tiny model do not
    for (int k = 0; k < 2; k++) {
        b = empty_bag(0);
        take_transformer(b, "model.diffusion_model.");
        take_text(b, "text_encoders.qwen25_7b.transformer.", texts[k]);
        take_vae(b, k == 0 ? "vae." : "first_stage_model.", wan_vae);
        write_tensors(b, scratch("all", "qwen_image.safetensors"), NULL);
        desc = sumi_model_defaults();
        desc.path = with_config("all", "text_encoder", "qwen_image.safetensors");
        desc.tokenizer_path = MODEL "tokenizer";
        CHECK(draw_files(&desc, false, &got) && is_same(&got, &want));
    }
}

TEST(a_single_file_without_a_tokenizer_says_so)
{
    bag* b = empty_bag(0);
    take_transformer(b, "model.diffusion_model.");
    take_text(b, "text_encoders.qwen25_7b.transformer.", NULL);
    take_vae(b, "vae.", wan_vae);
    write_tensors(b, scratch("lone", "qwen_image.safetensors"), NULL);
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = with_config("lone", "text_encoder", "qwen_image.safetensors");
    CHECK(open_model(&desc) == NULL);
    CHECK_NUMBER(t_result, SUMI_FILE_NOT_FOUND);
    CHECK(strstr(t_message, "vocab.json with merges.txt") != NULL && strstr(t_message, "tokenizer_path") != NULL);
    // a folder that is none, and a vocabulary whose other half is missing
    desc.tokenizer_path = scratch("nothing", "");
    CHECK(open_model(&desc) == NULL && t_result == SUMI_FILE_NOT_FOUND);
    CHECK(strstr(t_message, "vocab.json with merges.txt") != NULL);
    copy_file(MODEL "tokenizer/vocab.json", scratch("half", "vocab.json"));
    desc.tokenizer_path = scratch("half", "");
    CHECK(open_model(&desc) == NULL && t_result == SUMI_FILE_NOT_FOUND);
    CHECK(strstr(t_message, "merges.txt") != NULL);
    // the files themselves, all of them side by side
    static const char* const names[] = {"vocab.json", "merges.txt", "tokenizer_config.json"};
    for (int i = 0; i < 3; i++) {
        char from[128];
        snprintf(from, sizeof from, MODEL "tokenizer/%s", names[i]);
        copy_file(from, scratch("lone", names[i]));
    }
    desc.tokenizer_path = scratch("lone", "vocab.json");
    sumi_model* model = open_model(&desc);
    CHECK(model != NULL);
    sumi_model_close(model);
    desc.tokenizer_path = NULL; // found beside the file
    model = open_model(&desc);
    CHECK(model != NULL);
    sumi_model_close(model);
}

// ---- The mark of Edit-2511 ------------------------------------------------------------------------------------------

TEST(a_mark_or_the_variant_says_that_references_have_time_zero)
{
    drawing want, other, got;
    sumi_model_desc desc = edit_parts(QWEN "model-edit-2511");
    desc.transformer_path = scratch("2511", "");
    copy_file(QWEN "model-edit-2511/transformer/config.json", scratch("2511", "config.json"));
    bag* b = empty_bag(0);
    take_transformer(b, "");
    write_tensors(b, scratch("2511", "diffusion_pytorch_model.safetensors"), NULL);
    CHECK(draw_files(&desc, true, &want));
    CHECK(!is_same(&want, edit_drawing()));

    // a single file: no pipeline says which model it is
    desc.path = NULL;
    static const char* const prefixes[] = {"", "model.diffusion_model."};
    for (int k = 0; k < 2; k++) {
        b = empty_bag(0);
        take_transformer(b, prefixes[k]);
        write_tensors(b, scratch("lost", "2511.safetensors"), NULL);
        char mark[64];
        snprintf(mark, sizeof mark, "%s__index_timestep_zero__", prefixes[k]);
        put(b, mark, SUMI_DTYPE_BF16, &(sumi_tensor){.rank = 1}, "", 0);
        write_tensors(b, scratch("marked", "2511.safetensors"), NULL);
        write_gguf(b, scratch("marked", "2511.gguf"), "qwen_image");
        static const char* const files[] = {"2511.safetensors", "2511.gguf"};
        for (int i = 0; i < 2; i++) {
            desc.transformer_path = with_config("marked", "transformer", files[i]);
            sumi_model* model = open_model(&desc);
            CHECK(model != NULL);
            if (model == NULL) printf("  %s\n", t_message);
            CHECK_TEXT(sumi_model_get_info(model).family, "qwen-image-edit-plus");
            CHECK_TEXT(sumi_model_get_info(model).variant, "edit-2511");
            CHECK(model != NULL && draw_model(model, true, &got) && is_same(&got, &want));
            sumi_model_close(model);
        }
        // without the mark the caller says so
        desc.transformer_path = with_config("lost", "transformer", "2511.safetensors");
        desc.variant = "edit-2511";
        CHECK(draw_files(&desc, true, &got) && is_same(&got, &want));
        desc.variant = "edit-2509";
        CHECK(draw_files(&desc, true, &other) && is_same(&other, edit_drawing()));
        desc.variant = NULL;
        desc.processor_path = NULL; // text to image has no use for it
        sumi_model* model = open_model(&desc);
        CHECK_TEXT(sumi_model_get_info(model).variant, "first"); // nothing tells it from the first model
        CHECK(!sumi_model_get_info(model).takes_references);
        sumi_model_close(model);
        desc.processor_path = QWEN "model-edit/processor";
    }
}

// ---- GGUF -----------------------------------------------------------------------------------------------------------

static sumi_dtype t_matrix_dtype;

// As converters do: matrices in the type where its blocks fit a row, else in float16; vectors in float32.
static sumi_dtype gguf_choice(const sumi_tensor* t, float* scale)
{
    *scale = 1.0f;
    if (t->rank < 2) return SUMI_DTYPE_F32;
    return t->shape[t->rank - 1] % sumi_dtype_get(t_matrix_dtype)->block == 0 ? t_matrix_dtype : SUMI_DTYPE_F16;
}

TEST(gguf_files_of_every_type_draw_what_their_values_do)
{
    static const sumi_dtype types[] = {SUMI_DTYPE_F32, SUMI_DTYPE_BF16, SUMI_DTYPE_F16, SUMI_DTYPE_Q8_0,
                                       SUMI_DTYPE_Q4_K};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        t_matrix_dtype = types[i];
        const bool is_exact = types[i] == SUMI_DTYPE_F32 || types[i] == SUMI_DTYPE_BF16;
        drawing want = *plain_drawing(), got;
        sumi_model_desc desc = parts();
        for (int part = 0; part < 2; part++) {
            bag *b = empty_bag(0), *twin = empty_bag(1);
            if (part == 0) take_transformer(b, "");
            else take_text(b, "", llama_text);
            convert(b, gguf_choice, twin, "");
            const char* component = part == 0 ? "transformer" : "text_encoder";
            write_gguf(b, scratch(component, "model.gguf"), part == 0 ? "qwen_image" : "qwen2vl");
            write_tensors(twin, scratch(component, "twin.safetensors"), NULL);
            const char *file = with_config(component, component, "model.gguf"),
                       *twin_file = scratch(component, "twin.safetensors");
            if (part == 0) {
                check_transformer(twin_file, plain_drawing(), is_exact ? 0.0 : 0.25, "the values themselves");
                desc.transformer_path = twin_file;
                CHECK(draw_files(&desc, false, &want));
                check_transformer(file, &want, 0.0, sumi_dtype_get(types[i])->name);
                desc.transformer_path = MODEL "transformer";
            } else {
                desc.text_encoder_path = twin_file;
                CHECK(draw_files(&desc, false, &want));
                desc.text_encoder_path = file;
                CHECK(draw_files(&desc, false, &got) && is_same(&got, &want));
                CHECK(!is_exact || is_same(&got, plain_drawing()));
            }
        }
    }
}

// ---- fp8 ------------------------------------------------------------------------------------------------------------

static sumi_dtype every_e4m3(const sumi_tensor* t, float* scale)
{
    (void)t;
    *scale = 1.0f;
    return SUMI_DTYPE_F8_E4M3;
}

// The large matrices with a scale each; embeddings, norms and biases as they are.
static sumi_dtype scaled_e4m3(const sumi_tensor* t, float* scale)
{
    const size_t count = value_count(t);
    const bool is_linear = t->rank == 2 && strstr(t->name, "embed_tokens") == NULL && strstr(t->name, "lm_head") == NULL
                        && strstr(t->name, "img_in") == NULL && strstr(t->name, "txt_in") == NULL
                        && strstr(t->name, "time_text_embed") == NULL;
    *scale = 1.0f;
    if (!is_linear) return t->dtype;
    float *x = malloc(count * 4), most = 0.0f;
    sumi_dtype_to_float(t->dtype, t->data, x, count);
    for (size_t i = 0; i < count; i++) most = fmaxf(most, fabsf(x[i]));
    *scale = most / 448.0f;
    free(x);
    return SUMI_DTYPE_F8_E4M3;
}

TEST(fp8_without_scales_holds_norms_and_biases_too)
{
    bag *b = empty_bag(0), *twin = empty_bag(1);
    take_transformer(b, "model.diffusion_model.");
    convert(b, every_e4m3, twin, "");
    write_tensors(b, scratch("fp8", "qwen_image_fp8_e4m3fn.safetensors"), NULL);
    write_tensors(twin, scratch("fp8", "twin.safetensors"), NULL);
    sumi_model_desc desc = parts();
    drawing want;
    desc.transformer_path = with_config("fp8", "transformer", "twin.safetensors");
    CHECK(draw_files(&desc, false, &want));
    check_transformer(scratch("fp8", "twin.safetensors"), plain_drawing(), 0.25, "the values themselves");
    check_transformer(scratch("fp8", "qwen_image_fp8_e4m3fn.safetensors"), &want, 0.0, "plain fp8");
}

// Puts a text as bytes, beside each tensor of fp8: "layer.comfy_quant".
static void put_formats(bag* b, const char* format)
{
    const size_t count = b->count;
    for (size_t i = 0; i < count; i++) {
        const sumi_tensor* t = &b->tensors[i];
        if (t->dtype != SUMI_DTYPE_F8_E4M3) continue;
        char name[256];
        snprintf(name, sizeof name, "%.*s.comfy_quant", (int)(strlen(t->name) - strlen(".weight")), t->name);
        put(b, name, SUMI_DTYPE_U8, &(sumi_tensor){.rank = 1, .shape = {(int64_t)strlen(format)}}, format,
            strlen(format));
    }
}

// {"format_version": "1.0", "layers": {"transformer_blocks.0.attn.to_q": {"format": "float8_e4m3fn"}, ...}}
static char* list_formats(const bag* b, const char* format)
{
    char* text = calloc(1, 64 + b->count * 320);
    size_t at = (size_t)sprintf(text, "{\"format_version\": \"1.0\", \"layers\": {");
    for (size_t i = 0, listed = 0; i < b->count; i++) {
        const sumi_tensor* t = &b->tensors[i];
        if (t->dtype != SUMI_DTYPE_F8_E4M3) continue;
        at += (size_t)sprintf(text + at, "%s\"%.*s\": %s", listed++ > 0 ? ", " : "",
                              (int)(strlen(t->name) - strlen(".weight")), t->name, format);
    }
    sprintf(text + at, "}}");
    return text;
}

// Factors that nothing here needs: those of the activations.
static void put_input_scales(bag* b, const char* suffix)
{
    const size_t count = b->count;
    const float factor = 0.125f;
    for (size_t i = 0; i < count; i++) {
        const sumi_tensor* t = &b->tensors[i];
        if (t->dtype != SUMI_DTYPE_F8_E4M3) continue;
        char name[256];
        snprintf(name, sizeof name, "%.*s%s", (int)(strlen(t->name) - strlen(".weight")), t->name, suffix);
        put(b, name, SUMI_DTYPE_F32, NULL, &factor, 4);
    }
}

TEST(scaled_fp8_is_understood_in_its_three_forms)
{
    for (int part = 0; part < 2; part++) {
        const char *component = part == 0 ? "transformer" : "text_encoder",
                   *prefix = part == 0 ? "model.diffusion_model." : "";
        drawing want, got;
        for (int form = 0; form < 3; form++) {
            bag *b = empty_bag(0), *twin = empty_bag(1);
            if (part == 0) take_transformer(b, prefix);
            else take_text(b, prefix, new_text);
            convert(b, scaled_e4m3, twin, form == 0 ? ".scale_weight" : ".weight_scale");
            sumi_metadata metadata = {"_quantization_metadata", NULL};
            char *text = NULL, mark[64];
            if (form == 0) { // the older files: a mark of the type, and factors of activations
                snprintf(mark, sizeof mark, "%sscaled_fp8", prefix);
                put_input_scales(b, ".scale_input");
                put(b, mark, SUMI_DTYPE_F8_E4M3, &(sumi_tensor){.rank = 1, .shape = {2}}, "\0\0", 2);
            } else if (form == 1) {
                put_input_scales(b, ".input_scale");
                put_formats(b, "{\"format\": \"float8_e4m3fn\", \"full_precision_matrix_mult\": true}");
            } else {
                metadata.value = text = list_formats(b, "{\"format\": \"float8_e4m3fn\"}");
            }
            write_tensors(b, scratch("scaled", "model.safetensors"), form == 2 ? &metadata : NULL);
            write_tensors(twin, scratch("scaled", "twin.safetensors"), NULL);
            free(text);
            sumi_model_desc desc = parts();
            const char** path = part == 0 ? &desc.transformer_path : &desc.text_encoder_path;
            *path = with_config("scaled", component, "twin.safetensors");
            CHECK(draw_files(&desc, false, &want));
            CHECK(distance(&want, plain_drawing()) < 0.25);
            *path = scratch("scaled", "model.safetensors");
            CHECK(draw_files(&desc, false, &got));
            const double off = distance(&got, &want);
            if (!(off < 1e-5)) printf("  %s, form %d: latents are off by %.2g\n", component, form, off);
            CHECK(off < 1e-5); // the factor stands behind the sum, not inside
        }
    }
}

// Stores one matrix as another program's quantisation; the values do not matter.
static void store_otherwise(bag* b, const char* layer, const char* format, bool is_nvfp4)
{
    for (size_t i = 0; i < b->count; i++) {
        sumi_tensor* t = &b->tensors[i];
        char name[256];
        snprintf(name, sizeof name, "%s.weight", layer);
        if (strcmp(t->name, name) != 0) continue;
        const sumi_tensor was = *t;
        t->dtype = is_nvfp4 ? SUMI_DTYPE_U8 : SUMI_DTYPE_I8;
        t->shape[1] = is_nvfp4 ? was.shape[1] / 2 : was.shape[1];
        t->bytes = (uint64_t)(t->shape[0] * t->shape[1]);
        static const float zeros[1024];
        snprintf(name, sizeof name, "%s.weight_scale", layer);
        if (is_nvfp4) {
            put(b, name, SUMI_DTYPE_F8_E4M3, &(sumi_tensor){.rank = 2, .shape = {was.shape[0], was.shape[1] / 16}},
                zeros, (uint64_t)(was.shape[0] * was.shape[1] / 16));
            snprintf(name, sizeof name, "%s.weight_scale_2", layer);
            put(b, name, SUMI_DTYPE_F32, NULL, zeros, 4);
        } else {
            put(b, name, SUMI_DTYPE_F32, &(sumi_tensor){.rank = 2, .shape = {was.shape[0], 1}}, zeros,
                (uint64_t)was.shape[0] * 4);
        }
        snprintf(name, sizeof name, "%s.comfy_quant", layer);
        if (format != NULL)
            put(b, name, SUMI_DTYPE_U8, &(sumi_tensor){.rank = 1, .shape = {(int64_t)strlen(format)}}, format,
                strlen(format));
        return;
    }
    CHECK(!"a layer of the model");
}

TEST(other_quantisations_are_refused_by_name)
{
    static const struct {
        const char *layer, *format, *says;
        bool is_nvfp4, is_text;
    } cases[] = {
        {"transformer_blocks.1.attn.to_k", "{\"format\": \"nvfp4\"}", "nvfp4", true, false},
        {"transformer_blocks.0.img_mlp.net.2", NULL, "nvfp4", true, false},
        {"txt_in", "{\"format\": \"nvfp4\"}", "nvfp4", true, false},
        {"transformer_blocks.0.attn.to_out.0",
         "{\"format\": \"int8_tensorwise\", \"convrot\": true, \"convrot_groupsize\": 256}", "int8_tensorwise, convrot",
         false, false},
        {"transformer_blocks.1.img_mod.1", "{\"format\": \"int8_tensorwise\"}", "int8_tensorwise", false, false},
        {"transformer_blocks.1.txt_mlp.net.0.proj", NULL, "int8", false, false},
        {"model.layers.1.mlp.up_proj", "{\"format\": \"nvfp4\"}", "nvfp4", true, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bag* b = empty_bag(0);
        if (cases[i].is_text) take_text(b, "", NULL);
        else take_transformer(b, "");
        store_otherwise(b, cases[i].layer, cases[i].format, cases[i].is_nvfp4);
        write_tensors(b, scratch("other", "model.safetensors"), NULL);
        sumi_model_desc desc = parts();
        const char* file = with_config("other", cases[i].is_text ? "text_encoder" : "transformer", "model.safetensors");
        if (cases[i].is_text) desc.text_encoder_path = file;
        else desc.transformer_path = file;
        CHECK(open_model(&desc) == NULL);
        CHECK_NUMBER(t_result, SUMI_NOT_SUPPORTED);
        if (strstr(t_message, cases[i].says) == NULL || strstr(t_message, cases[i].layer) == NULL)
            printf("  %s\n", t_message);
        CHECK(strstr(t_message, cases[i].says) != NULL && strstr(t_message, cases[i].layer) != NULL);
        CHECK(strstr(t_message, "bf16") != NULL); // what to take instead
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&t_heap, NULL);
    sumi_engine_desc desc = host_desc(&t_host);
    if (sumi_engine_create(&desc, &t_engine) != SUMI_OK) return 1;
    RUN(a_transformer_file_draws_the_same_behind_every_prefix);
    RUN(split_files_draw_the_same_under_old_and_new_names);
    RUN(a_vision_tower_may_lie_in_a_file_of_its_own);
    RUN(all_in_one_file_draws_the_same_as_its_parts);
    RUN(a_single_file_without_a_tokenizer_says_so);
    RUN(a_mark_or_the_variant_says_that_references_have_time_zero);
    RUN(gguf_files_of_every_type_draw_what_their_values_do);
    RUN(fp8_without_scales_holds_norms_and_biases_too);
    RUN(scaled_fp8_is_understood_in_its_three_forms);
    RUN(other_quantisations_are_refused_by_name);
    sumi_engine_destroy(t_engine);
    for (int i = 0; i < 2; i++) empty_bag(i);
    if (t_folder[0] != 0) remove_folder(t_folder);
    TEST_END();
}
