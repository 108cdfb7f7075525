// What tests of NewBie-image's files share: tensors of the tiny checkpoint under the names of every program, tokenizers
// as bytes, and pictures that are held against the released folder's.
#ifndef NEWBIE_FIXTURE_H
#define NEWBIE_FIXTURE_H
#include "files/json.h"
#include "files_fixture.h"

#define NEWBIE "tests/golden/newbie/"
#define MODEL NEWBIE "model/"
#define JINA_TOKENIZER MODEL "clip_model/tokenizer.json"
#define ROBERTA "text_model.transformer.roberta."
static host s_files_host;

static inline void take_transformer(bag* b, const char* prefix, rename_function* rename)
{
    take(b, MODEL "transformer", "diffusion_pytorch_model", prefix, rename);
}

static inline void take_gemma(bag* b, const char* prefix, rename_function* rename)
{
    take(b, MODEL "text_encoder", "model", prefix, rename);
}

static inline void take_jina(bag* b, const char* prefix, rename_function* rename)
{
    take(b, MODEL "clip_model", "model", prefix, rename);
}

// ---- Names ----------------------------------------------------------------------------------------------------------

static inline bool keep(const char* name, char* out, size_t out_bytes)
{
    return snprintf(out, out_bytes, "%s", name) > 0;
}

#define OLD_GEMMA "language_model.model."

static inline bool rename_gemma(const char* name, const char* prefix, char* out, size_t out_bytes)
{
    if (begins(name, OLD_GEMMA)) snprintf(out, out_bytes, "%s%s", prefix, name + strlen(OLD_GEMMA));
    else snprintf(out, out_bytes, "%s", name); // the vision tower and what is behind it
    return true;
}

static inline bool short_gemma(const char* name, char* out, size_t out_bytes)
{
    return rename_gemma(name, "model.", out, out_bytes);
}

// Without what is never read: vision tower, projector, last layer, final norm.
static inline bool needed_gemma(const char* name, char* out, size_t out_bytes)
{
    return begins(name, OLD_GEMMA) && !begins(name, OLD_GEMMA "layers.7.") && !begins(name, OLD_GEMMA "norm.")
        && keep(name, out, out_bytes);
}

// ComfyUI's, with the adapter beside the weights.
static inline bool comfy_jina(const char* name, char* out, size_t out_bytes)
{
    return begins(name, ROBERTA) && snprintf(out, out_bytes, "model.%s", name + strlen(ROBERTA)) > 0;
}

// Replaces the first `from`; false: there is none.
static inline bool replace(char* text, size_t text_bytes, const char* from, const char* to)
{
    char rest[192];
    char* at = strstr(text, from);
    if (at == NULL) return false;
    snprintf(rest, sizeof rest, "%s", at + strlen(from));
    snprintf(at, text_bytes - (size_t)(at - text), "%s%s", to, rest);
    return true;
}

// ---- Tokenizers as bytes --------------------------------------------------------------------------------------------

static inline void* read_file(const char* path, size_t* out_bytes)
{
    static char s_data[1 << 19];
    FILE* file = system_open(path, "rb");
    CHECK(file != NULL);
    *out_bytes = file != NULL ? fread(s_data, 1, sizeof s_data, file) : 0;
    if (file != NULL) fclose(file);
    CHECK(*out_bytes > 0 && *out_bytes < sizeof s_data);
    void* copy = malloc(*out_bytes + 1);
    memcpy(copy, s_data, *out_bytes);
    return copy;
}

static inline size_t put_varint(unsigned char* out, size_t at, uint64_t value)
{
    for (; value >= 128; value >>= 7) out[at++] = (unsigned char)(value | 128);
    out[at++] = (unsigned char)value;
    return at;
}

static inline size_t put_field(unsigned char* out, size_t at, uint64_t number, const void* data, size_t bytes)
{
    at = put_varint(out, put_varint(out, at, number << 3 | 2), bytes);
    memcpy(out + at, data, bytes);
    return at + bytes;
}

static inline size_t decode_base64(const sumi_json_text* text, unsigned char* out)
{
    static const char s_digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t bytes = 0;
    uint32_t bits = 0;
    int count = 0;
    for (size_t i = 0; i < text->bytes; i++) {
        const char* digit = text->data[i] != '=' ? strchr(s_digits, text->data[i]) : NULL;
        if (digit == NULL) continue;
        bits = bits << 6 | (uint32_t)(digit - s_digits);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        out[bytes++] = (unsigned char)(bits >> count);
    }
    return bytes;
}

// Of the model: a list of [piece, score], whose first four are tokens that a SentencePiece model has in another order.
static inline size_t put_pieces(unsigned char* out, size_t at, sumi_json* json)
{
    static const char* const s_first[] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < 3; i++) {
        unsigned char piece[32];
        size_t used = put_field(piece, 0, 1, s_first[i], strlen(s_first[i]));
        used = put_varint(piece, put_varint(piece, used, 3 << 3), i == 0 ? 2 : 3); // unknown, control
        at = put_field(out, at, 1, piece, used);
    }
    sumi_json_array(json);
    for (int i = 0; sumi_json_item(json); i++) {
        sumi_json_text text;
        char piece[256];
        sumi_json_array(json);
        sumi_json_item(json);
        sumi_json_string(json, &text);
        const size_t piece_bytes = sumi_json_decode(&text, piece, sizeof piece);
        sumi_json_item(json);
        const float score = (float)sumi_json_number(json);
        CHECK(!sumi_json_item(json) && piece_bytes <= sizeof piece);
        if (i < 4 || (piece_bytes == 6 && memcmp(piece, "<mask>", 6) == 0)) continue;
        unsigned char message[300];
        size_t used = put_field(message, 0, 1, piece, piece_bytes);
        used = put_varint(message, used, 2 << 3 | 5);
        uint32_t bits;
        memcpy(&bits, &score, 4);
        used = append(message, used, bits, 4);
        at = put_field(out, at, 1, message, used);
    }
    return at;
}

// The SentencePiece model that the tiny Jina CLIP's tokenizer.json would have been converted from.
static inline unsigned char* jina_pieces(size_t* out_bytes)
{
    size_t bytes, at = 0, map_bytes = 0;
    char* text = read_file(JINA_TOKENIZER, &bytes);
    unsigned char *out = calloc(1, bytes + 4096), *map = calloc(1, bytes);
    sumi_error error = {0};
    sumi_json json;
    sumi_json_text key, value;
    sumi_json_begin(&json, text, bytes, &error);
    sumi_json_object(&json);
    while (sumi_json_key(&json, &key)) {
        const bool is_model = sumi_json_is(&key, "model"), is_map = sumi_json_is(&key, "normalizer");
        if (!is_model && !is_map) {
            sumi_json_skip(&json);
            continue;
        }
        sumi_json_object(&json);
        while (sumi_json_key(&json, &key)) {
            if (is_model && sumi_json_is(&key, "vocab")) at = put_pieces(out, at, &json);
            else if (is_map && sumi_json_is(&key, "precompiled_charsmap") && sumi_json_string(&json, &value))
                map_bytes = decode_base64(&value, map);
            else sumi_json_skip(&json);
        }
    }
    CHECK_NUMBER(sumi_json_end(&json), SUMI_OK);
    CHECK(map_bytes > 1000 && at > 2000);
    unsigned char* normalizer = malloc(map_bytes + 16);
    const size_t used = put_field(normalizer, 0, 2, map, map_bytes);
    at = put_field(out, at, 3, normalizer, used);
    free(text), free(map), free(normalizer);
    *out_bytes = at;
    return out;
}

// As ComfyUI's files carry it.
static inline void put_spiece(bag* b, const char* name, const void* data, size_t bytes)
{
    put(b, name, SUMI_DTYPE_U8, &(sumi_tensor){.rank = 1, .shape = {(int64_t)bytes}}, data, bytes);
}

// ---- Pictures -------------------------------------------------------------------------------------------------------

static inline bool draw_model(sumi_model* model, drawing* out)
{
    const sumi_image_item item = {
        .text = "<n>a red fox</n> 一只橘猫, reads a newspaper", .negative_text = "blurry", .seed = 7};
    sumi_image_desc desc = small_image(model, &item);
    desc.width = WIDTH;
    desc.height = HEIGHT;
    desc.guidance.scale = 4.0f;
    return draw_desc(&desc, out);
}

static inline bool draw_files(const sumi_model_desc* desc, drawing* out)
{
    memset(out, 0, sizeof *out);
    sumi_model* model = open_model(desc);
    if (model == NULL) printf("  %s\n", s_message[0] != 0 ? s_message : s_files_host.log);
    CHECK(model != NULL);
    const bool good = model != NULL && draw_model(model, out);
    sumi_model_close(model);
    return good;
}

// The released folder, part by part, so that a case replaces those that it is about.
static inline sumi_model_desc parts(void)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.transformer_path = MODEL "transformer";
    desc.text_encoder_path = MODEL "text_encoder";
    desc.tokenizer_path = MODEL "text_encoder";
    desc.text_encoder_2_path = MODEL "clip_model";
    desc.tokenizer_2_path = MODEL "clip_model";
    desc.vae_path = MODEL "vae";
    return desc;
}

static inline const drawing* plain_drawing(void)
{
    static drawing s_plain;
    static bool s_is_drawn;
    if (!s_is_drawn) {
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = NEWBIE "model";
        s_is_drawn = draw_files(&desc, &s_plain);
    }
    return &s_plain;
}

// Tiny networks have windows, groups and splits of heads that shapes do not tell: their configs lie beside the files.
static inline const char* with_config(const char* folder, const char* component, const char* file)
{
    char from[128];
    snprintf(from, sizeof from, MODEL "%s/config.json", component);
    copy_file(from, scratch(folder, "config.json"));
    return scratch(folder, file);
}

static inline void copy_component(const char* from, const char* to, const char* const* names)
{
    for (; *names != NULL; names++) {
        char path[192];
        snprintf(path, sizeof path, MODEL "%s/%s", from, *names);
        copy_file(path, scratch(to, *names));
    }
}

// One engine draws all pictures of a program.
static inline bool begin_newbie(void)
{
    sumi_heap_init(&s_heap, NULL);
    sumi_engine_desc desc = host_desc(&s_files_host);
    return sumi_engine_create(&desc, &s_engine) == SUMI_OK;
}

static inline void end_newbie(void)
{
    sumi_engine_destroy(s_engine);
    CHECK_NUMBER(s_files_host.live, 0);
    empty_bags();
    if (s_folder[0] != 0) remove_folder(s_folder);
}

// ---- Folders --------------------------------------------------------------------------------------------------------

static const char* const s_model_files[] = {"config.json", "diffusion_pytorch_model.safetensors", NULL};

static const char* const s_gemma_files[] = {"config.json", "model-00001-of-00002.safetensors",
                                            "model-00002-of-00002.safetensors", "model.safetensors.index.json", NULL};

static const char* const s_jina_files[] = {"config.json", "model.safetensors", NULL};
static const char* const s_tokenizer_files[] = {"tokenizer.json", "tokenizer_config.json", NULL};

static inline void copy_released(const char* folder, bool is_diffusers)
{
    static const char* const s_places[2][4] = {{"text_encoder", "clip_model", "text_encoder", "clip_model"},
                                               {"text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2"}};
    char to[128];
    scratch(folder, "");
    const char* const* place = s_places[is_diffusers];
    struct {
        const char *from, *to;
        const char* const* names;
    } const copies[] = {{"transformer", "transformer", s_model_files}, {"vae", "vae", s_model_files},
                        {"text_encoder", place[0], s_gemma_files},     {"clip_model", place[1], s_jina_files},
                        {"text_encoder", place[2], s_tokenizer_files}, {"clip_model", place[3], s_tokenizer_files}};
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        snprintf(to, sizeof to, "%s/%s", folder, copies[i].to);
        copy_component(copies[i].from, to, copies[i].names);
    }
    copy_file(MODEL "model_index.json", scratch(folder, "model_index.json"));
}

// ---- Same values under other names ----------------------------------------------------------------------------------

// left [rows, rank] times right [rank, cols] onto the weight.
static inline void add_product(float* weight, const float* left, const float* right, int64_t rows, int64_t cols,
                               int64_t rank)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            for (int64_t k = 0; k < rank; k++) weight[r * cols + c] += left[r * rank + k] * right[k * cols + c];
}

static inline float* values_of(const bag* b, const char* name, const sumi_tensor** out)
{
    for (size_t i = 0; i < b->count; i++) {
        if (strcmp(b->tensors[i].name, name) != 0) continue;
        float* values = malloc(value_count(&b->tensors[i]) * sizeof *values + 4);
        sumi_dtype_to_float(b->tensors[i].dtype, b->tensors[i].data, values, value_count(&b->tensors[i]));
        *out = &b->tensors[i];
        return values;
    }
    *out = NULL;
    return NULL;
}

// ComfyUI's file has plain names and the adapter merged, here in float32.
static inline void take_merged_jina(bag* b, bag* from)
{
    static const char s_original[] = ".parametrizations.weight.original";
    take_jina(from, "", comfy_jina);
    const size_t count = from->count;
    for (size_t i = 0; i < count; i++) {
        const sumi_tensor* t = &from->tensors[i];
        char name[256], stem[192];
        const sumi_tensor *a_shape, *b_shape, *own;
        snprintf(stem, sizeof stem, "%s", t->name);
        if (strstr(stem, ".lora_") != NULL) continue;
        if (!replace(stem, sizeof stem, s_original, "")) {
            put(b, t->name, t->dtype, t, t->data, t->bytes);
            continue;
        }
        float* weight = values_of(from, t->name, &own);
        snprintf(name, sizeof name, "%s.parametrizations.weight.0.lora_A", stem);
        float* lora_a = values_of(from, name, &a_shape);
        snprintf(name, sizeof name, "%s.parametrizations.weight.0.lora_B", stem);
        float* lora_b = values_of(from, name, &b_shape);
        CHECK(lora_a != NULL && lora_b != NULL);
        const bool is_embedding = strstr(stem, "embeddings") != NULL;
        add_product(weight, is_embedding ? lora_a : lora_b, is_embedding ? lora_b : lora_a, own->shape[0],
                    own->shape[1], 4);
        snprintf(name, sizeof name, "%s.weight", stem);
        put(b, name, SUMI_DTYPE_F32, own, weight, value_count(own) * 4);
        free(weight), free(lora_a), free(lora_b);
    }
}
#endif
