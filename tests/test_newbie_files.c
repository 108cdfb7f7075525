// The files that NewBie-image comes in: every layout in circulation is made of the tiny checkpoint's tensors, opened, and
// draws what the released folder draws. Where values are the same, so are the pictures' bits. Quantised files are held
// against files that have the quantised values in float32. What is missing or does not fit is told in a sentence that
// says what to do.
#include "files/json.h"
#include "files_fixture.h"

#define NEWBIE "tests/golden/newbie/"
#define MODEL NEWBIE "model/"
#define GEMMA_PIECES "tests/golden/common/tokenizers/newbie-gemma/tokenizer.model"
#define JINA_TOKENIZER MODEL "clip_model/tokenizer.json"
#define ROBERTA "text_model.transformer.roberta."

static host t_host;

static void take_transformer(bag* b, const char* prefix, rename_function* rename)
{
    take(b, MODEL "transformer", "diffusion_pytorch_model", prefix, rename);
}
static void take_gemma(bag* b, const char* prefix, rename_function* rename)
{
    take(b, MODEL "text_encoder", "model", prefix, rename);
}
static void take_jina(bag* b, const char* prefix, rename_function* rename)
{
    take(b, MODEL "clip_model", "model", prefix, rename);
}
static void take_vae(bag* b, const char* prefix, rename_function* rename)
{
    take(b, MODEL "vae", "diffusion_pytorch_model", prefix, rename);
}

// ---- Names ----------------------------------------------------------------------------------------------------------

static bool keep(const char* name, char* out, size_t out_bytes) { return snprintf(out, out_bytes, "%s", name) > 0; }

#define OLD_GEMMA "language_model.model."
static bool rename_gemma(const char* name, const char* prefix, char* out, size_t out_bytes)
{
    if (begins(name, OLD_GEMMA)) snprintf(out, out_bytes, "%s%s", prefix, name + strlen(OLD_GEMMA));
    else snprintf(out, out_bytes, "%s", name); // the vision tower and what is behind it
    return true;
}
static bool new_gemma(const char* name, char* out, size_t out_bytes)
{
    return rename_gemma(name, "model.language_model.", out, out_bytes);
}
static bool raw_gemma(const char* name, char* out, size_t out_bytes)
{
    return rename_gemma(name, "language_model.", out, out_bytes);
}
static bool short_gemma(const char* name, char* out, size_t out_bytes)
{
    return rename_gemma(name, "model.", out, out_bytes);
}
static bool bare_gemma(const char* name, char* out, size_t out_bytes) { return rename_gemma(name, "", out, out_bytes); }

// Without what is never read: vision tower, projector, last layer, final norm.
static bool needed_gemma(const char* name, char* out, size_t out_bytes)
{
    return begins(name, OLD_GEMMA) && !begins(name, OLD_GEMMA "layers.7.") && !begins(name, OLD_GEMMA "norm.")
        && keep(name, out, out_bytes);
}
static bool needed_jina(const char* name, char* out, size_t out_bytes)
{
    return begins(name, ROBERTA) && keep(name, out, out_bytes);
}
static bool needed_transformer(const char* name, char* out, size_t out_bytes)
{
    return !begins(name, "norm_final.") && keep(name, out, out_bytes);
}

// llama.cpp has the language model alone.
static bool llama_gemma(const char* name, char* out, size_t out_bytes)
{
    static const char* const modules[][2] = {{"input_layernorm", "attn_norm"},
                                             {"self_attn.q_proj", "attn_q"},
                                             {"self_attn.k_proj", "attn_k"},
                                             {"self_attn.v_proj", "attn_v"},
                                             {"self_attn.q_norm", "attn_q_norm"},
                                             {"self_attn.k_norm", "attn_k_norm"},
                                             {"self_attn.o_proj", "attn_output"},
                                             {"post_attention_layernorm", "post_attention_norm"},
                                             {"pre_feedforward_layernorm", "ffn_norm"},
                                             {"post_feedforward_layernorm", "post_ffw_norm"},
                                             {"mlp.gate_proj", "ffn_gate"},
                                             {"mlp.up_proj", "ffn_up"},
                                             {"mlp.down_proj", "ffn_down"}};
    int layer, used = 0;
    if (strcmp(name, OLD_GEMMA "embed_tokens.weight") == 0) return snprintf(out, out_bytes, "token_embd.weight") > 0;
    if (strcmp(name, OLD_GEMMA "norm.weight") == 0) return snprintf(out, out_bytes, "output_norm.weight") > 0;
    if (sscanf(name, OLD_GEMMA "layers.%d.%n", &layer, &used) != 1 || used == 0) return false;
    for (size_t i = 0; i < sizeof modules / sizeof *modules; i++) {
        const size_t length = strlen(modules[i][0]);
        if (strncmp(name + used, modules[i][0], length) == 0 && name[used + (int)length] == '.')
            return snprintf(out, out_bytes, "blk.%d.%s%s", layer, modules[i][1], name + used + length) > 0;
    }
    CHECK(!"a tensor with a name in llama.cpp");
    return false;
}

// ComfyUI's, with the adapter beside the weights.
static bool comfy_jina(const char* name, char* out, size_t out_bytes)
{
    return begins(name, ROBERTA) && snprintf(out, out_bytes, "model.%s", name + strlen(ROBERTA)) > 0;
}

// Replaces the first `from`; false: there is none.
static bool replace(char* text, size_t text_bytes, const char* from, const char* to)
{
    char rest[192];
    char* at = strstr(text, from);
    if (at == NULL) return false;
    snprintf(rest, sizeof rest, "%s", at + strlen(from));
    snprintf(at, text_bytes - (size_t)(at - text), "%s%s", to, rest);
    return true;
}

// Those of diffusers' Lumina 2; the layers of the pooled vector have no other names. qkv is cut up by its taker.
static bool lumina_transformer(const char* name, char* out, size_t out_bytes)
{
    static const char* const parts[][2] = {{"cap_embedder.", "time_caption_embed.caption_embedder."},
                                           {"t_embedder.mlp.0.", "time_caption_embed.timestep_embedder.linear_1."},
                                           {"t_embedder.mlp.2.", "time_caption_embed.timestep_embedder.linear_2."},
                                           {"final_layer.adaLN_modulation.1.", "norm_out.linear_1."},
                                           {"final_layer.linear.", "norm_out.linear_2."},
                                           {".attention.out.", ".attn.to_out.0."},
                                           {".attention.q_norm.", ".attn.norm_q."},
                                           {".attention.k_norm.", ".attn.norm_k."},
                                           {".feed_forward.w", ".feed_forward.linear_"},
                                           {".adaLN_modulation.1.", ".norm1.linear."},
                                           {".attention_norm2.", ".norm2."}};
    snprintf(out, out_bytes, "%s", name);
    replace(out, out_bytes, ".attention_norm1.", begins(name, "context_refiner.") ? ".norm1." : ".norm1.norm.");
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (replace(out, out_bytes, parts[i][0], parts[i][1])) break;
    }
    return !begins(name, "norm_final.");
}

// q, k and v of every block as three tensors.
static void cut_up_qkv(bag* b)
{
    static const struct {
        const char* name;
        int64_t begin, rows;
    } thirds[] = {{"to_q", 0, 128}, {"to_k", 128, 64}, {"to_v", 192, 64}};
    const size_t count = b->count;
    for (size_t i = 0; i < count; i++) {
        char name[192];
        for (int k = 0; k < 3; k++) {
            const sumi_tensor* t = &b->tensors[i];
            snprintf(name, sizeof name, "%s", t->name);
            if (strstr(name, ".attention.qkv.") == NULL) break;
            replace(name, sizeof name, ".attention.qkv.", ".attn.QKV.");
            replace(name, sizeof name, "QKV", thirds[k].name);
            const uint64_t row_bytes = t->bytes / (uint64_t)t->shape[0];
            const sumi_tensor shape = {.rank = 2, .shape = {thirds[k].rows, t->shape[1]}};
            put(b, name, t->dtype, &shape, (const char*)t->data + (uint64_t)thirds[k].begin * row_bytes,
                (uint64_t)thirds[k].rows * row_bytes);
        }
    }
    size_t kept = 0;
    for (size_t i = 0; i < b->count; i++) {
        if (strstr(b->tensors[i].name, ".attention.qkv.") == NULL) {
            b->tensors[kept++] = b->tensors[i];
            continue;
        }
        free((void*)(uintptr_t)b->tensors[i].name);
        free((void*)(uintptr_t)b->tensors[i].data);
    }
    CHECK(kept < b->count);
    b->count = kept;
}

// The autoencoder's own names, which ae.safetensors has.
static bool ldm_vae(const char* name, char* out, size_t out_bytes)
{
    static const char* const parts[][2] = {{"mid_block.resnets.0.", "mid.block_1."},
                                           {"mid_block.resnets.1.", "mid.block_2."},
                                           {"mid_block.attentions.0.group_norm.", "mid.attn_1.norm."},
                                           {"mid_block.attentions.0.to_q.", "mid.attn_1.q."},
                                           {"mid_block.attentions.0.to_k.", "mid.attn_1.k."},
                                           {"mid_block.attentions.0.to_v.", "mid.attn_1.v."},
                                           {"mid_block.attentions.0.to_out.0.", "mid.attn_1.proj_out."},
                                           {"conv_norm_out.", "norm_out."},
                                           {"upsamplers.0.", "upsample."},
                                           {"downsamplers.0.", "downsample."},
                                           {"conv_shortcut.", "nin_shortcut."}};
    int block, used = 0;
    snprintf(out, out_bytes, "%s", name);
    if (sscanf(name, "decoder.up_blocks.%d.%n", &block, &used) == 1 && used > 0)
        snprintf(out, out_bytes, "decoder.up.%d.%s", 3 - block, name + used);
    else if (sscanf(name, "encoder.down_blocks.%d.%n", &block, &used) == 1 && used > 0)
        snprintf(out, out_bytes, "encoder.down.%d.%s", block, name + used);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) replace(out, out_bytes, parts[i][0], parts[i][1]);
    if (strstr(out, "mid.") == NULL) replace(out, out_bytes, ".resnets.", ".block.");
    return true;
}

// ---- Tokenizers as bytes --------------------------------------------------------------------------------------------

static void* read_file(const char* path, size_t* out_bytes)
{
    static char data[1 << 19];
    FILE* file = system_open(path, "rb");
    CHECK(file != NULL);
    *out_bytes = file != NULL ? fread(data, 1, sizeof data, file) : 0;
    if (file != NULL) fclose(file);
    CHECK(*out_bytes > 0 && *out_bytes < sizeof data);
    void* copy = malloc(*out_bytes + 1);
    memcpy(copy, data, *out_bytes);
    return copy;
}

static size_t put_varint(unsigned char* out, size_t at, uint64_t value)
{
    for (; value >= 128; value >>= 7) out[at++] = (unsigned char)(value | 128);
    out[at++] = (unsigned char)value;
    return at;
}
static size_t put_field(unsigned char* out, size_t at, uint64_t number, const void* data, size_t bytes)
{
    at = put_varint(out, put_varint(out, at, number << 3 | 2), bytes);
    memcpy(out + at, data, bytes);
    return at + bytes;
}

static size_t decode_base64(const sumi_json_text* text, unsigned char* out)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t bytes = 0;
    uint32_t bits = 0;
    int count = 0;
    for (size_t i = 0; i < text->bytes; i++) {
        const char* digit = text->data[i] != '=' ? strchr(digits, text->data[i]) : NULL;
        if (digit == NULL) continue;
        bits = bits << 6 | (uint32_t)(digit - digits);
        count += 6;
        if (count < 8) continue;
        count -= 8;
        out[bytes++] = (unsigned char)(bits >> count);
    }
    return bytes;
}

// Of the model: a list of [piece, score], whose first four are tokens that a SentencePiece model has in another order.
static size_t put_pieces(unsigned char* out, size_t at, sumi_json* json)
{
    static const char* const first[] = {"<unk>", "<s>", "</s>"};
    for (int i = 0; i < 3; i++) {
        unsigned char piece[32];
        size_t used = put_field(piece, 0, 1, first[i], strlen(first[i]));
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
static unsigned char* jina_pieces(size_t* out_bytes)
{
    size_t bytes, at = 0, map_bytes = 0;
    char* text = read_file(JINA_TOKENIZER, &bytes);
    unsigned char *out = calloc(1, bytes + 4096), *map = calloc(1, bytes);
    sumi_error error = {SUMI_OK, {0}};
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
static void put_spiece(bag* b, const char* name, const void* data, size_t bytes)
{
    put(b, name, SUMI_DTYPE_U8, &(sumi_tensor){.rank = 1, .shape = {(int64_t)bytes}}, data, bytes);
}
static void put_gemma_pieces(bag* b, const char* name)
{
    size_t bytes;
    void* data = read_file(GEMMA_PIECES, &bytes);
    put_spiece(b, name, data, bytes);
    free(data);
}
static void put_jina_pieces(bag* b, const char* name)
{
    size_t bytes;
    unsigned char* data = jina_pieces(&bytes);
    put_spiece(b, name, data, bytes);
    free(data);
}

// ---- Pictures -------------------------------------------------------------------------------------------------------

static bool draw_model(sumi_model* model, drawing* out)
{
    const sumi_image_item item = {
        .text = "<n>a red fox</n> 一只橘猫, reads a newspaper", .negative_text = "blurry", .seed = 7};
    sumi_image_desc desc = small_image(model, &item);
    desc.width = WIDTH;
    desc.height = HEIGHT;
    desc.guidance = 4.0f;
    return draw_desc(&desc, out);
}

static bool draw_files(const sumi_model_desc* desc, drawing* out)
{
    memset(out, 0, sizeof *out);
    sumi_model* model = open_model(desc);
    if (model == NULL) printf("  %s\n", t_message[0] != 0 ? t_message : t_host.log);
    CHECK(model != NULL);
    const bool good = model != NULL && draw_model(model, out);
    sumi_model_close(model);
    return good;
}

// The released folder, part by part, so that a case replaces those that it is about.
static sumi_model_desc parts(void)
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

static const drawing* plain_drawing(void)
{
    static drawing plain;
    static bool is_drawn;
    if (!is_drawn) {
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = NEWBIE "model";
        is_drawn = draw_files(&desc, &plain);
    }
    return &plain;
}

static void check_same(const sumi_model_desc* desc, const char* what)
{
    drawing got;
    if (!draw_files(desc, &got) || is_same(&got, plain_drawing())) return;
    printf("  %s: latents are off by %.2g\n", what, distance(&got, plain_drawing()));
    t_errors++;
}

// Tiny networks have windows, groups and splits of heads that shapes do not tell: their configs lie beside the files.
static const char* with_config(const char* folder, const char* component, const char* file)
{
    char from[128];
    snprintf(from, sizeof from, MODEL "%s/config.json", component);
    copy_file(from, scratch(folder, "config.json"));
    return scratch(folder, file);
}

static void copy_component(const char* from, const char* to, const char* const* names)
{
    for (; *names != NULL; names++) {
        char path[192];
        snprintf(path, sizeof path, MODEL "%s/%s", from, *names);
        copy_file(path, scratch(to, *names));
    }
}

// ---- Folders --------------------------------------------------------------------------------------------------------

static const char* const s_model_files[] = {"config.json", "diffusion_pytorch_model.safetensors", NULL};
static const char* const s_gemma_files[] = {"config.json", "model-00001-of-00002.safetensors",
                                            "model-00002-of-00002.safetensors", "model.safetensors.index.json", NULL};
static const char* const s_jina_files[] = {"config.json", "model.safetensors", NULL};
static const char* const s_tokenizer_files[] = {"tokenizer.json", "tokenizer_config.json", NULL};

static void copy_released(const char* folder, bool is_diffusers)
{
    static const char* const places[2][4] = {{"text_encoder", "clip_model", "text_encoder", "clip_model"},
                                             {"text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2"}};
    char to[128];
    scratch(folder, "");
    const char* const* place = places[is_diffusers];
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

// Neither form has a scheduler: the shift is then the authors' own.
TEST(folders_of_either_form_draw_the_same_without_a_scheduler)
{
    static const char* const folders[] = {"released", "diffusers"};
    for (int k = 0; k < 2; k++) {
        copy_released(folders[k], k == 1);
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = scratch(folders[k], "");
        check_same(&desc, folders[k]);
    }
    sumi_model_desc desc = parts();
    check_same(&desc, "parts");
    // a scheduler of its own counts
    drawing other;
    write_file(scratch("released/scheduler", "scheduler_config.json"), "{\"shift\": 3.0}", 14);
    desc = sumi_model_defaults();
    desc.path = scratch("released", "");
    CHECK(draw_files(&desc, &other) && !is_same(&other, plain_drawing()));
    write_file(scratch("released/scheduler", "scheduler_config.json"), "{\"use_dynamic_shifting\": true}", 30);
    CHECK(open_model(&desc) == NULL && t_result == SUMI_NOT_SUPPORTED);
    CHECK(strstr(t_message, "static shift") != NULL);
    remove_folder(scratch("released/scheduler", ""));
}

// ---- Same values under other names ----------------------------------------------------------------------------------

TEST(a_transformer_file_draws_the_same_behind_every_prefix)
{
    static const char* const prefixes[] = {"", "model.diffusion_model.", "inner_model.", "diffusion_model.",
                                           "transformer."};
    for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++) {
        bag* b = empty_bag(0);
        take_transformer(b, prefixes[i], NULL);
        write_tensors(b, scratch("dit", "newbie_dit.safetensors"), NULL);
        sumi_model_desc desc = parts();
        desc.transformer_path = with_config("dit", "transformer", "newbie_dit.safetensors");
        check_same(&desc, prefixes[i]);
    }
}

TEST(a_transformer_with_the_names_of_lumina_2_draws_the_same)
{
    static const char config[] = "{\"_class_name\": \"Lumina2Transformer2DModel\", \"hidden_size\": 128, "
                                 "\"num_layers\": 2, \"num_refiner_layers\": 2, \"num_attention_heads\": 4, "
                                 "\"num_kv_heads\": 2, \"in_channels\": 16, \"cap_feat_dim\": 32, "
                                 "\"axes_dim_rope\": [8, 12, 12], \"pooled_projection_dim\": 128}";
    bag* b = empty_bag(0);
    take_transformer(b, "", lumina_transformer);
    cut_up_qkv(b);
    write_tensors(b, scratch("lumina", "diffusion_pytorch_model.safetensors"), NULL);
    write_file(scratch("lumina", "config.json"), config, strlen(config));
    sumi_model_desc desc = parts();
    desc.transformer_path = scratch("lumina", "");
    check_same(&desc, "diffusers' names");
    // what it says must be true
    static const char wrong[] = "{\"hidden_size\": 256, \"axes_dim_rope\": [8, 12, 12]}";
    write_file(scratch("lumina", "config.json"), wrong, strlen(wrong));
    CHECK(open_model(&desc) == NULL && t_result == SUMI_TENSOR_MISMATCH && strstr(t_message, "256") != NULL);
}

TEST(gemma_draws_the_same_behind_every_prefix)
{
    static rename_function* const names[] = {NULL, new_gemma, raw_gemma, short_gemma, bare_gemma, needed_gemma};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        bag* b = empty_bag(0);
        take_gemma(b, "", names[i]);
        write_tensors(b, scratch("te", "gemma_3_4b_it_bf16.safetensors"), NULL);
        sumi_model_desc desc = parts();
        desc.text_encoder_path = with_config("te", "text_encoder", "gemma_3_4b_it_bf16.safetensors");
        char what[32];
        snprintf(what, sizeof what, "names number %d", (int)i);
        check_same(&desc, what);
    }
}

TEST(what_is_never_read_may_be_missing)
{
    bag* b = empty_bag(0);
    take_transformer(b, "", needed_transformer);
    write_tensors(b, scratch("dit", "needed.safetensors"), NULL);
    b = empty_bag(0);
    take_jina(b, "", needed_jina);
    write_tensors(b, scratch("clip", "needed.safetensors"), NULL);
    sumi_model_desc desc = parts();
    desc.transformer_path = with_config("dit", "transformer", "needed.safetensors");
    desc.text_encoder_2_path = with_config("clip", "clip_model", "needed.safetensors");
    check_same(&desc, "without norm_final, vision model and logit_scale");
}

// left [rows, rank] times right [rank, cols] onto the weight.
static void add_product(float* weight, const float* left, const float* right, int64_t rows, int64_t cols, int64_t rank)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            for (int64_t k = 0; k < rank; k++) weight[r * cols + c] += left[r * rank + k] * right[k * cols + c];
}

static float* values_of(const bag* b, const char* name, const sumi_tensor** out)
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
static void take_merged_jina(bag* b, bag* from)
{
    static const char original[] = ".parametrizations.weight.original";
    take_jina(from, "", comfy_jina);
    const size_t count = from->count;
    for (size_t i = 0; i < count; i++) {
        const sumi_tensor* t = &from->tensors[i];
        char name[256], stem[192];
        const sumi_tensor *a_shape, *b_shape, *own;
        snprintf(stem, sizeof stem, "%s", t->name);
        if (strstr(stem, ".lora_") != NULL) continue;
        if (!replace(stem, sizeof stem, original, "")) {
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

TEST(jina_clip_draws_the_same_under_short_names_and_merged)
{
    bag* b = empty_bag(0);
    take_jina(b, "", comfy_jina);
    write_tensors(b, scratch("clip", "jina_clip_v2.safetensors"), NULL);
    sumi_model_desc desc = parts();
    desc.text_encoder_2_path = with_config("clip", "clip_model", "jina_clip_v2.safetensors");
    check_same(&desc, "model. and the adapter");
    b = empty_bag(0);
    take_merged_jina(b, empty_bag(1));
    write_tensors(b, scratch("clip", "jina_clip_v2.safetensors"), NULL);
    check_same(&desc, "the adapter merged"); // as what reads the weights adds it: in float32, in the order of the rank
}

// ---- ComfyUI's split files and single files -------------------------------------------------------------------------

TEST(split_files_with_their_tokenizers_inside_draw_the_same)
{
    bag* b = empty_bag(0);
    take_transformer(b, "", NULL);
    write_tensors(b, scratch("diffusion_models", "NewBie-Image-Exp0.1-bf16.safetensors"), NULL);
    b = empty_bag(0);
    take_gemma(b, "", short_gemma);
    put_gemma_pieces(b, "spiece_model");
    write_tensors(b, scratch("text_encoders", "gemma_3_4b_it_bf16.safetensors"), NULL);
    b = empty_bag(0);
    take_jina(b, "", comfy_jina);
    put_jina_pieces(b, "spiece_model");
    write_tensors(b, scratch("text_encoders", "jina_clip_v2_bf16.safetensors"), NULL);
    b = empty_bag(0);
    take_vae(b, "", ldm_vae);
    write_tensors(b, scratch("ae", "ae.safetensors"), NULL);
    sumi_model_desc desc = sumi_model_defaults();
    desc.transformer_path = with_config("diffusion_models", "transformer", "NewBie-Image-Exp0.1-bf16.safetensors");
    desc.text_encoder_path = with_config("text_encoders", "text_encoder", "gemma_3_4b_it_bf16.safetensors");
    desc.text_encoder_2_path = scratch("text_encoders", "jina_clip_v2_bf16.safetensors");
    desc.vae_path = with_config("ae", "vae", "ae.safetensors");
    check_same(&desc, "split files");
    desc.path = desc.transformer_path; // the same, said in another way
    desc.transformer_path = NULL;
    check_same(&desc, "split files, the first as path");
}

// Where the tokenizers are called in a file of several parts: behind the encoder's prefix, or behind what is before it.
static void write_whole(const char* path, rename_function* gemma, rename_function* jina, const char* first_pieces,
                        const char* second_pieces, bool has_vae)
{
    bag* b = empty_bag(0);
    take_transformer(b, "model.diffusion_model.", NULL);
    take_gemma(b, "text_encoders.gemma3.transformer.", gemma);
    take_jina(b, "text_encoders.jina_clip.", jina);
    if (has_vae) take_vae(b, "vae.", ldm_vae);
    if (first_pieces != NULL) put_gemma_pieces(b, first_pieces);
    if (second_pieces != NULL) put_jina_pieces(b, second_pieces);
    write_tensors(b, path, NULL);
}

TEST(all_in_one_file_draws_the_same)
{
    static const struct {
        rename_function *gemma, *jina;
        const char *first, *second;
    } cases[] = {{NULL, NULL, "text_encoders.gemma3.transformer.spiece_model", "text_encoders.jina_clip.spiece_model"},
                 {short_gemma, comfy_jina, "text_encoders.gemma3.spiece_model", "text_encoders.jina_clip.spiece_model"},
                 {new_gemma, NULL, "text_encoders.spiece_model", "text_encoders.jina_clip.spiece_model"}};
    static const char* const components[] = {"transformer", "text_encoder", "vae"};
    // configs alone: a tiny network's shapes do not tell all
    scratch("configs", "");
    for (int i = 0; i < 3; i++) {
        char folder[64];
        snprintf(folder, sizeof folder, "configs/%s", components[i]);
        with_config(folder, components[i], "");
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s", scratch("whole", "newbie.safetensors"));
        write_whole(path, cases[i].gemma, cases[i].jina, cases[i].first, cases[i].second, true);
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = scratch("configs", "");
        desc.transformer_path = path;
        check_same(&desc, cases[i].first);
    }
    // as one path, with what it holds no more than once
    write_whole(scratch("one", "newbie.safetensors"), NULL, NULL, NULL, NULL, false);
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = scratch("one", "newbie.safetensors");
    static const char config[] = "{\"_class_name\": \"NextDiT\", \"model_type\": \"gemma3\", \"axes_dims\": [8, 12, "
                                 "12], \"text_config\": {\"sliding_window\": 24}}";
    write_file(scratch("one", "config.json"), config, strlen(config));
    desc.vae_path = MODEL "vae";
    desc.tokenizer_path = MODEL "text_encoder/tokenizer.json";
    desc.tokenizer_2_path = MODEL "clip_model/tokenizer.json";
    check_same(&desc, "one path");
}

// ---- Tokenizers -----------------------------------------------------------------------------------------------------

TEST(tokenizers_of_every_form_draw_the_same)
{
    size_t bytes;
    unsigned char* pieces = jina_pieces(&bytes);
    write_file(scratch("pieces", "sentencepiece.bpe.model"), pieces, bytes);
    free(pieces);
    copy_file(GEMMA_PIECES, scratch("words", "tokenizer.model"));
    sumi_model_desc desc = parts();
    desc.tokenizer_path = scratch("words", "");
    desc.tokenizer_2_path = scratch("pieces", "");
    check_same(&desc, "folders of SentencePiece models");
    desc.tokenizer_path = scratch("words", "tokenizer.model");
    desc.tokenizer_2_path = scratch("pieces", "sentencepiece.bpe.model");
    check_same(&desc, "SentencePiece models");
    // found where the weights are
    desc = parts();
    desc.path = NULL;
    desc.tokenizer_path = desc.tokenizer_2_path = NULL;
    check_same(&desc, "beside the weights");
}

// ---- What is missing or does not fit --------------------------------------------------------------------------------

static void refused(const sumi_model_desc* desc, sumi_result result, const char* first, const char* second,
                    const char* third)
{
    t_host.log[0] = 0;
    sumi_model* model = open_model(desc);
    const char* text = t_message[0] != 0 ? t_message : t_host.log;
    const char* const said[] = {first, second, third};
    CHECK(model == NULL);
    CHECK_NUMBER(t_result, result);
    for (int i = 0; i < 3; i++) {
        if (said[i] == NULL || strstr(text, said[i]) != NULL) continue;
        printf("  no \"%s\": %s\n", said[i], text);
        t_errors++;
    }
    if (getenv("SUMI_SENTENCES") != NULL) printf("  %s\n", text);
    sumi_model_close(model);
}

TEST(a_missing_tokenizer_is_told_by_the_encoder_that_lacks_it)
{
    bag* b = empty_bag(0);
    take_gemma(b, "", NULL);
    write_tensors(b, scratch("lone", "gemma.safetensors"), NULL);
    b = empty_bag(0);
    take_jina(b, "", NULL);
    write_tensors(b, scratch("lone", "jina.safetensors"), NULL);
    sumi_model_desc desc = parts();
    desc.text_encoder_path = with_config("lone", "text_encoder", "gemma.safetensors");
    desc.tokenizer_path = NULL;
    refused(&desc, SUMI_FILE_NOT_FOUND, "gemma.safetensors", "tokenizer.model", "give tokenizer_path");
    desc = parts();
    desc.text_encoder_2_path = scratch("lone", "jina.safetensors");
    desc.tokenizer_2_path = NULL;
    refused(&desc, SUMI_FILE_NOT_FOUND, "jina.safetensors", "sentencepiece.bpe.model", "give tokenizer_2_path");
    desc.tokenizer_2_path = scratch("nothing", "");
    refused(&desc, SUMI_FILE_NOT_FOUND, "nothing", "sentencepiece.bpe.model", "tokenizer.json");
    // inside the encoder's file, and no tokenizer or one that was cut off
    size_t bytes;
    unsigned char* pieces = jina_pieces(&bytes);
    const struct {
        const void* data;
        size_t bytes;
    } broken[] = {{"no pieces at all", 16}, {pieces, bytes - 100}};
    for (int i = 0; i < 2; i++) {
        b = empty_bag(0);
        take_jina(b, "", NULL);
        put_spiece(b, "spiece_model", broken[i].data, broken[i].bytes);
        write_tensors(b, scratch("lone", "jina.safetensors"), NULL);
        desc.text_encoder_2_path = scratch("lone", "jina.safetensors");
        desc.tokenizer_2_path = NULL;
        refused(&desc, SUMI_FILE_MALFORMED, "jina.safetensors", "SentencePiece", NULL);
    }
    free(pieces);
}

TEST(a_missing_encoder_is_told)
{
    sumi_model_desc desc = parts();
    desc.text_encoder_2_path = desc.tokenizer_2_path = NULL;
    refused(&desc, SUMI_FILE_NOT_FOUND, "second text encoder", "text_encoder_2_path", "without");
    char folder[256];
    copy_released("released", false);
    snprintf(folder, sizeof folder, "%s", scratch("released", ""));
    remove_folder(scratch("released/clip_model", ""));
    desc = parts();
    desc.path = folder;
    desc.transformer_path = desc.text_encoder_path = desc.text_encoder_2_path = desc.vae_path = NULL;
    desc.tokenizer_path = desc.tokenizer_2_path = NULL;
    refused(&desc, SUMI_FILE_NOT_FOUND, "second text encoder", "text_encoder_2_path", "released/text_encoder_2");
    copy_released("released", false);
    remove_folder(scratch("released/text_encoder", ""));
    refused(&desc, SUMI_FILE_NOT_FOUND, "first text encoder", "text_encoder_path", "released/text_encoder");
    // with neither, pictures are drawn of prompts that were encoded elsewhere
    remove_folder(scratch("released/clip_model", ""));
    sumi_model* model = open_model(&desc);
    CHECK(model != NULL && !sumi_model_get_info(model).has_text_encoder);
    sumi_prompt_desc prompt = sumi_prompt_defaults(model);
    sumi_job job;
    prompt.text = "a fox";
    CHECK_NUMBER(sumi_submit_prompt(t_engine, &prompt, &job), SUMI_NOT_SUPPORTED);
    sumi_model_close(model);
    desc.without_text_encoder = true;
    copy_released("released", false);
    remove_folder(scratch("released/clip_model", ""));
    model = open_model(&desc);
    CHECK(model != NULL && !sumi_model_get_info(model).has_text_encoder);
    sumi_model_close(model);
}

TEST(swapped_files_are_told_from_each_other)
{
    sumi_model_desc desc = parts();
    desc.text_encoder_path = MODEL "clip_model";
    refused(&desc, SUMI_MODEL_UNKNOWN, "clip_model", "known text_encoder", "jina-clip");
    desc = parts();
    desc.text_encoder_2_path = MODEL "text_encoder";
    refused(&desc, SUMI_MODEL_UNKNOWN, "text_encoder", "known text_encoder_2", "gemma3");
    desc = parts();
    desc.tokenizer_2_path = MODEL "text_encoder";
    refused(&desc, SUMI_TENSOR_MISMATCH, "text_encoder/tokenizer.json", "do not belong together", NULL);
    desc = parts();
    desc.tokenizer_path = MODEL "clip_model"; // fewer ids than embeddings
    refused(&desc, SUMI_TENSOR_MISMATCH, "clip_model/tokenizer.json", "do not belong together", "<bos>");
    desc = parts();
    desc.vae_path = MODEL "transformer";
    refused(&desc, SUMI_MODEL_UNKNOWN, "known vae", "newbie-image", "check which component");
    desc = parts();
    desc.text_encoder_path = "tests/golden/z-image/model/text_encoder"; // of another family
    refused(&desc, SUMI_TENSOR_MISMATCH, "text_encoder", "needs gemma3", "qwen3");
}

// Halves a tensor's axis.
static void cut_tensor(bag* b, const char* name, int32_t axis)
{
    for (size_t i = 0; i < b->count; i++) {
        sumi_tensor* t = &b->tensors[i];
        if (strcmp(t->name, name) != 0) continue;
        t->bytes /= 2;
        t->shape[axis] /= 2;
        return;
    }
    CHECK(!"a tensor of the file");
}

TEST(an_encoder_of_another_width_is_told)
{
    bag* b = empty_bag(0);
    take_transformer(b, "", NULL);
    cut_tensor(b, "cap_embedder.0.weight", 0);
    cut_tensor(b, "cap_embedder.1.weight", 1);
    write_tensors(b, scratch("dit", "narrow.safetensors"), NULL);
    sumi_model_desc desc = parts();
    desc.transformer_path = with_config("dit", "transformer", "narrow.safetensors");
    refused(&desc, SUMI_TENSOR_MISMATCH, "features of 32 values", "reads 16", "do not belong together");
    b = empty_bag(0);
    take_transformer(b, "", NULL);
    cut_tensor(b, "clip_text_pooled_proj.0.weight", 0);
    cut_tensor(b, "clip_text_pooled_proj.1.weight", 1);
    write_tensors(b, scratch("dit", "narrow.safetensors"), NULL);
    static const char config[] =
        "{\"_class_name\": \"NextDiT_CLIP\", \"dim\": 128, \"n_layers\": 2, \"axes_dims\": [8, "
        "12, 12]}"; // without the pooled vector's width, which would be told
    write_file(scratch("dit", "config.json"), config, strlen(config));
    refused(&desc, SUMI_TENSOR_MISMATCH, "second text encoder", "128 values", "reads 64");
}

static bool lumina_only(const char* name, char* out, size_t out_bytes)
{
    return !begins(name, "clip_text_pooled_proj.") && !begins(name, "time_text_embed.") && keep(name, out, out_bytes);
}

TEST(lumina_2_is_refused_by_name)
{
    bag* b = empty_bag(0);
    take_transformer(b, "", lumina_only);
    write_tensors(b, scratch("dit", "lumina.safetensors"), NULL);
    sumi_model_desc desc = parts();
    desc.transformer_path = with_config("dit", "transformer", "lumina.safetensors");
    refused(&desc, SUMI_MODEL_UNKNOWN, "lumina.safetensors", "Lumina-Image 2", "NewBie-image");
}

TEST(files_that_end_too_early_are_told)
{
    static const char* const components[] = {"transformer", "clip_model"};
    static const char* const files[] = {"diffusion_pytorch_model.safetensors", "model.safetensors"};
    for (int i = 0; i < 2; i++) {
        char from[192];
        size_t bytes;
        snprintf(from, sizeof from, MODEL "%s/%s", components[i], files[i]);
        FILE* file = system_open(from, "rb");
        CHECK(file != NULL);
        if (file == NULL) return;
        static char data[2 << 20];
        bytes = fread(data, 1, sizeof data, file);
        fclose(file);
        const size_t ends[] = {4, 2000, bytes - 100};
        for (int k = 0; k < 3; k++) {
            write_file(scratch("short", "short.safetensors"), data, ends[k]);
            sumi_model_desc desc = parts();
            *(i == 0 ? &desc.transformer_path : &desc.text_encoder_2_path) = scratch("short", "short.safetensors");
            refused(&desc, SUMI_FILE_TRUNCATED, "short.safetensors", NULL, NULL);
        }
    }
}

static bool is_never_read(const char* name)
{
    return begins(name, "norm_final.") || begins(name, "vision_tower.") || begins(name, "multi_modal_projector.")
        || begins(name, OLD_GEMMA "layers.7.") || begins(name, OLD_GEMMA "norm.");
}

// Left out, or with half its rows; the second encoder's are test_xlm_roberta's business.
TEST(every_missing_or_misshapen_tensor_is_told_but_for_those_that_nothing_reads)
{
    for (int part = 0; part < 2; part++) {
        const char* component = part == 0 ? "transformer" : "text_encoder";
        bag* b = empty_bag(0);
        if (part == 0) take_transformer(b, "", NULL);
        else take_gemma(b, "", NULL);
        char path[256];
        snprintf(path, sizeof path, "%s", with_config("broken", component, "broken.safetensors"));
        sumi_model_desc desc = parts();
        *(part == 0 ? &desc.transformer_path : &desc.text_encoder_path) = path;
        const size_t count = b->count;
        for (size_t i = 0; i < count; i++) {
            const sumi_tensor whole = b->tensors[i];
            for (int how = 0; how < 2; how++) {
                if (how == 0) {
                    b->tensors[i] = b->tensors[--b->count];
                } else {
                    b->tensors[i].bytes = whole.bytes / (uint64_t)whole.shape[0] * (uint64_t)(whole.shape[0] / 2);
                    b->tensors[i].shape[0] /= 2;
                }
                write_tensors(b, path, NULL);
                sumi_model* model = open_model(&desc);
                const bool is_told = t_result == SUMI_TENSOR_MISSING || t_result == SUMI_TENSOR_MISMATCH
                                  || t_result == SUMI_MODEL_UNKNOWN; // without its marks it is no model at all
                if (is_never_read(whole.name) ? model == NULL : !is_told || strstr(t_message, "broken") == NULL) {
                    printf("  %s %s: result %d, %s\n", how == 0 ? "without" : "half of", whole.name, (int)t_result,
                           t_message);
                    t_errors++;
                }
                sumi_model_close(model);
                if (how == 0) b->tensors[b->count++] = b->tensors[i];
                b->tensors[i] = whole;
            }
        }
        CHECK_NUMBER(b->count, count);
        CHECK(count > 90);
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

// llama.cpp's converter stores the factor of a norm itself, where the released file has what is added to one.
static void add_one_to_norms(bag* b)
{
    for (size_t i = 0; i < b->count; i++) {
        sumi_tensor* t = &b->tensors[i];
        const size_t bytes = strlen(t->name), ending = strlen("norm.weight");
        if (bytes < ending || strcmp(t->name + bytes - ending, "norm.weight") != 0) continue;
        CHECK_NUMBER(t->dtype, SUMI_DTYPE_F32);
        float* values = (float*)(uintptr_t)t->data;
        for (size_t k = 0; k < value_count(t); k++) values[k] += 1.0f;
    }
}

TEST(gguf_files_of_every_type_draw_what_their_values_do)
{
    static const sumi_dtype types[] = {SUMI_DTYPE_F32, SUMI_DTYPE_BF16, SUMI_DTYPE_F16, SUMI_DTYPE_Q8_0};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        t_matrix_dtype = types[i];
        const bool is_exact = types[i] == SUMI_DTYPE_F32 || types[i] == SUMI_DTYPE_BF16;
        for (int part = 0; part < 2; part++) {
            const char* component = part == 0 ? "transformer" : "text_encoder";
            bag *b = empty_bag(0), *twin = empty_bag(1);
            if (part == 0) take_transformer(b, "", NULL);
            else take_gemma(b, "", llama_gemma);
            convert(b, gguf_choice, twin, "");
            if (part == 1) add_one_to_norms(b);
            write_gguf(b, scratch(component, "model.gguf"), part == 0 ? "lumina2" : "gemma3");
            // the twin has the released names: llama.cpp's mean what llama.cpp means
            if (part == 1) {
                b = empty_bag(0);
                take_gemma(b, "", needed_gemma);
                t_matrix_dtype = types[i];
                twin = empty_bag(1);
                convert(b, gguf_choice, twin, "");
            }
            write_tensors(twin, scratch(component, "twin.safetensors"), NULL);
            sumi_model_desc desc = parts();
            const char** path = part == 0 ? &desc.transformer_path : &desc.text_encoder_path;
            drawing want, got;
            *path = with_config(component, component, "twin.safetensors");
            CHECK(draw_files(&desc, &want));
            CHECK(is_exact ? is_same(&want, plain_drawing()) : distance(&want, plain_drawing()) < 0.25);
            *path = scratch(component, "model.gguf");
            CHECK(draw_files(&desc, &got));
            const double off = distance(&got, &want);
            // 1 + w is rounded when it is stored
            if (part == 0 ? !is_same(&got, &want) : !(off < 1e-5))
                printf("  %s as %s: latents are off by %.2g\n", component, sumi_dtype_get(types[i])->name, off);
            CHECK(part == 0 ? is_same(&got, &want) : off < 1e-5);
        }
    }
}

// ---- fp8 ------------------------------------------------------------------------------------------------------------

static bool is_linear(const sumi_tensor* t)
{
    return t->rank == 2 && strstr(t->name, "embed") == NULL && strstr(t->name, "lora_") == NULL;
}

static const char* take_part(int part, bag* b, bool for_fp8)
{
    if (part == 0) take_transformer(b, "model.diffusion_model.", NULL);
    else if (part == 1) take_gemma(b, "", short_gemma);
    else if (for_fp8) take_merged_jina(b, empty_bag(1));
    else take_jina(b, "", comfy_jina);
    return part == 0 ? "transformer" : part == 1 ? "text_encoder" : "clip_model";
}

static const char** path_of(int part, sumi_model_desc* desc)
{
    return part == 0 ? &desc->transformer_path : part == 1 ? &desc->text_encoder_path : &desc->text_encoder_2_path;
}

TEST(fp8_without_scales_holds_norms_and_biases_too)
{
    for (int part = 0; part < 3; part++) {
        bag* b = empty_bag(0);
        const char* component = take_part(part, b, true);
        bag* twin = empty_bag(1);
        convert(b, every_e4m3, twin, "");
        write_tensors(b, scratch("fp8", "model_fp8_e4m3fn.safetensors"), NULL);
        write_tensors(twin, scratch("fp8", "twin.safetensors"), NULL);
        sumi_model_desc desc = parts();
        drawing want, got;
        *path_of(part, &desc) = with_config("fp8", component, "twin.safetensors");
        CHECK(draw_files(&desc, &want));
        const double off = distance(&want, plain_drawing());
        CHECK(off > 0.0 && off < 0.5);
        *path_of(part, &desc) = scratch("fp8", "model_fp8_e4m3fn.safetensors");
        CHECK(draw_files(&desc, &got) && is_same(&got, &want));
    }
}

// A component as another program quantises it, beside its values.
static void check_quantised(int part, const char* component, const char* what, double limit)
{
    sumi_model_desc desc = parts();
    drawing want, got;
    *path_of(part, &desc) = with_config("scaled", component, "twin.safetensors");
    CHECK(draw_files(&desc, &want) && distance(&want, plain_drawing()) < limit);
    *path_of(part, &desc) = scratch("scaled", "model.safetensors");
    CHECK(draw_files(&desc, &got));
    if (!is_same(&got, &want)) {
        printf("  %s, %s: latents are off by %.2g\n", component, what, distance(&got, &want));
        t_errors++;
    }
}

TEST(scaled_fp8_is_understood_in_every_form)
{
    for (int part = 0; part < 3; part++) {
        for (int form = 0; form < FP8_FORMS; form++) {
            bag* b = empty_bag(0);
            const char* component = take_part(part, b, true);
            write_scaled_fp8(b, empty_bag(1), form, part == 0 ? "model.diffusion_model." : "",
                             scratch("scaled", "model.safetensors"), scratch("scaled", "twin.safetensors"));
            check_quantised(part, component, "fp8", form == 3 ? 1.0 : 0.5);
        }
    }
}

TEST(int8_is_understood_rotated_and_not)
{
    for (int part = 0; part < 3; part++) {
        for (int is_rotated = 0; is_rotated < 2; is_rotated++) {
            bag* b = empty_bag(0);
            const char* component = take_part(part, b, true);
            write_int8(b, empty_bag(1), is_rotated != 0, scratch("scaled", "model.safetensors"),
                       scratch("scaled", "twin.safetensors"));
            check_quantised(part, component, is_rotated != 0 ? "rotated int8" : "int8", 0.2);
        }
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&t_heap, NULL);
    t_is_linear = is_linear;
    sumi_engine_desc desc = host_desc(&t_host);
    if (sumi_engine_create(&desc, &t_engine) != SUMI_OK) return 1;
    RUN(folders_of_either_form_draw_the_same_without_a_scheduler);
    RUN(a_transformer_file_draws_the_same_behind_every_prefix);
    RUN(a_transformer_with_the_names_of_lumina_2_draws_the_same);
    RUN(gemma_draws_the_same_behind_every_prefix);
    RUN(what_is_never_read_may_be_missing);
    RUN(jina_clip_draws_the_same_under_short_names_and_merged);
    RUN(split_files_with_their_tokenizers_inside_draw_the_same);
    RUN(all_in_one_file_draws_the_same);
    RUN(tokenizers_of_every_form_draw_the_same);
    RUN(a_missing_tokenizer_is_told_by_the_encoder_that_lacks_it);
    RUN(a_missing_encoder_is_told);
    RUN(swapped_files_are_told_from_each_other);
    RUN(an_encoder_of_another_width_is_told);
    RUN(lumina_2_is_refused_by_name);
    RUN(files_that_end_too_early_are_told);
    RUN(every_missing_or_misshapen_tensor_is_told_but_for_those_that_nothing_reads);
    RUN(gguf_files_of_every_type_draw_what_their_values_do);
    RUN(fp8_without_scales_holds_norms_and_biases_too);
    RUN(scaled_fp8_is_understood_in_every_form);
    RUN(int8_is_understood_rotated_and_not);
    sumi_engine_destroy(t_engine);
    CHECK_NUMBER(t_host.live, 0);
    for (int i = 0; i < 2; i++) empty_bag(i);
    if (t_folder[0] != 0) remove_folder(t_folder);
    TEST_END();
}
