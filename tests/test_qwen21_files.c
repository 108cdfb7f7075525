// The files that Qwen-Image-2.1 comes in, made of the tiny checkpoint and of a transformer of random numbers that is wide
// enough for all formats. Each draws and edits, to the bit, what the diffusers folder does, or a file with its values in
// float32. Adapters in every dialect change a picture alike.
#define WIDTH 64
#define LATENTS ((size_t)64 * (WIDTH / 16) * (HEIGHT / 16))
#include "files_fixture.h"
#include "jobs/engine_state.h"
#include "jobs/objects.h"
#include "models/network_state.h"
#include "models/weights.h"

#define QWEN21 "tests/golden/qwen-image-21/"
#define MODEL QWEN21 "model/"

static host s_files_host;

// ---- Layouts --------------------------------------------------------------------------------------------------------

static void take_transformer(bag* b, const char* prefix)
{
    take(b, MODEL "transformer", "diffusion_pytorch_model", prefix, NULL);
}

// One block of the least width at which rows have whole blocks of 256 and products are done in 8 bits.
static void take_wide(bag* b, const char* prefix)
{
    enum { DIM = 256, MLP = 3 * DIM, HEAD = 128, FEATURES = 48, CHANNELS = 64, TIME = 256 };
    put_random(b, prefix, "img_in.weight", DIM, CHANNELS, 1.0f);
    put_random(b, prefix, "txt_in.text_norm.weight", FEATURES, 0, 1.0f);
    put_random(b, prefix, "txt_in.in_layer.weight", DIM, FEATURES, 1.0f);
    put_random(b, prefix, "txt_in.out_layer.weight", DIM, DIM, 1.0f);
    put_random(b, prefix, "time_text_embed.timestep_embedder.linear_1.weight", DIM, TIME, 1.0f);
    put_random(b, prefix, "time_text_embed.timestep_embedder.linear_2.weight", DIM, DIM, 1.0f);
    put_random(b, prefix, "modulation.1.weight", 4 * DIM, DIM, 1.0f);
    put_random(b, prefix, "norm_out.linear.weight", DIM, DIM, 0.5f);
    put_random(b, prefix, "proj_out.weight", CHANNELS, DIM, 1.0f);
    put_random(b, prefix, "transformer_blocks.0.attn.to_q.weight", DIM, DIM, 1.0f);
    put_random(b, prefix, "transformer_blocks.0.attn.to_k.weight", DIM, DIM, 1.0f);
    put_random(b, prefix, "transformer_blocks.0.attn.to_v.weight", DIM, DIM, 1.0f);
    put_random(b, prefix, "transformer_blocks.0.attn.to_out.0.weight", DIM, DIM, 1.0f);
    put_random(b, prefix, "transformer_blocks.0.attn.norm_q.weight", HEAD, 0, 1.0f);
    put_random(b, prefix, "transformer_blocks.0.attn.norm_k.weight", HEAD, 0, 1.0f);
    put_random(b, prefix, "transformer_blocks.0.img_mlp.gate_layer.weight", MLP, DIM, 1.0f);
    put_random(b, prefix, "transformer_blocks.0.img_mlp.proj.weight", MLP, DIM, 1.0f);
    put_random(b, prefix, "transformer_blocks.0.img_mlp.out.weight", DIM, MLP, 1.0f);
}

enum { TINY, WIDE };   // which transformer
enum { SPLIT, FUSED }; // gate and projection of the MLP: two tensors, or one below the other in one
#define GATE ".img_mlp.gate_layer.weight"

// Replaces gate_layer and proj by gate_up, as ComfyUI's files have them. A bag that has both has the gate's rows first.
static void fuse(bag* b)
{
    const size_t count = b->count;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        const sumi_tensor gate = b->tensors[i];
        char name[192], other[192];
        if (!sumi_replace_text(gate.name, GATE, ".img_mlp.gate_up.weight", name, sizeof name)) continue;
        CHECK(sumi_replace_text(gate.name, GATE, ".img_mlp.proj.weight", other, sizeof other));
        for (size_t k = 0; k < count; k++) {
            const sumi_tensor* up = &b->tensors[k];
            if (strcmp(up->name, other) != 0) continue;
            char* both = malloc((size_t)(gate.bytes + up->bytes));
            memcpy(both, gate.data, (size_t)gate.bytes);
            memcpy(both + gate.bytes, up->data, (size_t)up->bytes);
            sumi_tensor shape = gate;
            shape.shape[0] *= 2;
            put(b, name, gate.dtype, &shape, both, gate.bytes + up->bytes);
            free(both);
        }
    }
    for (size_t i = 0; i < b->count; i++) {
        const sumi_tensor t = b->tensors[i];
        const bool is_half = strstr(t.name, GATE) != NULL || strstr(t.name, ".img_mlp.proj.weight") != NULL;
        if (!is_half) b->tensors[kept++] = t;
        if (is_half) free((void*)(uintptr_t)t.name), free((void*)(uintptr_t)t.data);
    }
    CHECK(kept < b->count);
    b->count = kept;
}

// In an empty bag.
static bag* take_layout(int which, int layout, const char* prefix)
{
    bag* b = empty_bag(0);
    if (which == WIDE) take_wide(b, prefix);
    else take_transformer(b, prefix);
    if (layout == FUSED) fuse(b);
    return b;
}

#define LANGUAGE "model.language_model."

static bool without_head(const char* name, char* out, size_t out_bytes)
{
    snprintf(out, out_bytes, "%s", name);
    return !begins(name, "lm_head.");
}

// ComfyUI's names: "model.layers." and, for the vision tower, "visual." or "model.visual.".
static bool comfy_text(const char* name, char* out, size_t out_bytes)
{
    snprintf(out, out_bytes, "%s%s", begins(name, LANGUAGE) ? "model." : "",
             begins(name, LANGUAGE) ? name + strlen(LANGUAGE) : name);
    return true;
}

static bool comfy_text_visual(const char* name, char* out, size_t out_bytes)
{
    if (begins(name, "model.visual.")) return snprintf(out, out_bytes, "%s", name + strlen("model.")) > 0;
    return comfy_text(name, out, out_bytes);
}

static bool llama_text(const char* name, char* out, size_t out_bytes)
{
    return llama_name(name, LANGUAGE, out, out_bytes);
}

static bool only_vision(const char* name, char* out, size_t out_bytes)
{
    snprintf(out, out_bytes, "%s", begins(name, "model.visual.") ? name + strlen("model.visual.") : "");
    return out[0] != 0;
}

// The tower's tensors with llama.cpp's names, the two slices in time of the first kernel apart.
static void take_mmproj(bag* b, bag* from)
{
    static const int32_t s_deep_blocks[] = {0, 1, 3}; // the config's
    take(from, MODEL "text_encoder", "model", "", only_vision);
    for (size_t i = 0; i < from->count; i++) {
        const sumi_tensor* t = &from->tensors[i];
        char name[192];
        llama_tower_name(t->name, s_deep_blocks, name, sizeof name);
        if (t->rank == 5) put_slices(b, name, t);
        else put(b, name, t->dtype, t, t->data, t->bytes);
    }
}

static bool wan_vae(const char* name, char* out, size_t out_bytes)
{
    char module[128];
    int level, block, used = 0;
    if (wan_outer_name(name, out, out_bytes)) return true;
    const bool decodes = begins(name, "decoder.");
    const char *way = decodes ? "up" : "down", *rest = name + strlen("decoder.") + strlen(way);
    if (sscanf(rest, "_blocks.%d.resnets.%d.%n", &level, &block, &used) == 2 && used > 0) {
        snprintf(out, out_bytes, "%.8s%ssamples.%d.%ssamples.%d.%s", name, way, level, way, block,
                 wan_module(rest + used, module, sizeof module));
        return true;
    }
    const char* sampler = decodes ? "_blocks.%d.upsampler.%n" : "_blocks.%d.downsampler.%n";
    if (sscanf(rest, sampler, &level, &used) != 1 || used == 0) return false;
    // behind the blocks of its level: one in the encoder, two in the decoder
    return snprintf(out, out_bytes, "%.8s%ssamples.%d.%ssamples.%d.%s", name, way, level, way, decodes ? 2 : 1,
                    rest + used)
         > 0;
}

// ---- Pictures -------------------------------------------------------------------------------------------------------

// Edits with references as large as a test can afford: the released rule asks for a million pixels.
static bool draw_adapted(sumi_model* model, bool refers, const sumi_lora_use* use, drawing* out)
{
    static sumi_recipe s_recipe;
    const sumi_pixels picture = small_photo(4);
    const sumi_image_item item = {.text = "a red fox", .negative_text = "grey", .seed = 7};
    sumi_image_desc desc = small_image(model, &item);
    desc.width = WIDTH;
    desc.height = HEIGHT;
    desc.guidance.scale = 4.0f;
    desc.loras = use;
    desc.lora_count = use != NULL;
    if (refers) {
        s_recipe = *model->network->recipe;
        s_recipe.references.autoencoder_area = 4096;
        model->network->recipe = &s_recipe;
        desc.references = &picture;
        desc.reference_count = 1;
    }
    return draw_desc(&desc, out);
}

static bool draw_model(sumi_model* model, bool refers, drawing* out) { return draw_adapted(model, refers, NULL, out); }

static bool draw_files(const sumi_model_desc* desc, bool refers, drawing* out)
{
    return draw_opened(desc, refers, draw_model, out);
}

// The diffusers folder, part by part, so that a case replaces those that it is about.
static sumi_model_desc parts(void)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.transformer_path = MODEL "transformer";
    desc.text_encoder_path = MODEL "text_encoder";
    desc.tokenizer_path = MODEL "processor";
    desc.processor_path = MODEL "processor";
    desc.vae_path = MODEL "vae";
    return desc;
}

static const drawing* folder_drawing(bool refers)
{
    static drawing s_drawn[2];
    static bool s_is_drawn[2];
    if (!s_is_drawn[refers]) {
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = QWEN21 "model";
        s_is_drawn[refers] = draw_files(&desc, refers, &s_drawn[refers]);
    }
    return &s_drawn[refers];
}

// Both a picture and an edit are those of the folder.
static void check_files(const sumi_model_desc* desc, const char* what)
{
    for (int refers = 0; refers < 2; refers++) {
        drawing got;
        const bool is_good = draw_files(desc, refers != 0, &got) && is_same(&got, folder_drawing(refers != 0));
        if (!is_good) printf("  %s, %s: not what the folder draws\n", what, refers != 0 ? "an edit" : "a picture");
        CHECK(is_good);
    }
}

// The tiny transformer's heads are split in another way than the released ones, which its config.json says.
static const char* with_config(const char* folder, const char* component, const char* file)
{
    char from[128];
    snprintf(from, sizeof from, MODEL "%s/config.json", component);
    copy_file(from, scratch(folder, "config.json"));
    return scratch(folder, file);
}

// ---- Same values under other names ----------------------------------------------------------------------------------

TEST(a_folder_is_its_parts_and_an_edit_sees_its_reference)
{
    const sumi_model_desc desc = parts();
    check_files(&desc, "parts");
    CHECK(distance(folder_drawing(true), folder_drawing(false)) > 0.01);
}

TEST(a_transformer_file_draws_the_same_in_every_layout)
{
    static const char* const s_prefixes[] = {"", "model.diffusion_model.", "diffusion_model.", "transformer."};
    for (int layout = SPLIT; layout <= FUSED; layout++) {
        for (size_t i = 0; i < sizeof s_prefixes / sizeof *s_prefixes; i++) {
            write_tensors(take_layout(TINY, layout, s_prefixes[i]), scratch("dit", "qwen_image_2.1_bf16.safetensors"),
                          NULL);
            sumi_model_desc desc = parts();
            desc.transformer_path = with_config("dit", "transformer", "qwen_image_2.1_bf16.safetensors");
            check_files(&desc, s_prefixes[i]);
        }
    }
}

TEST(a_text_encoder_file_draws_the_same_under_every_name)
{
    static rename_function* const s_texts[] = {NULL, without_head, comfy_text, comfy_text_visual};
    for (size_t k = 0; k < sizeof s_texts / sizeof *s_texts; k++) {
        bag* b = empty_bag(0);
        take(b, MODEL "text_encoder", "model", "", s_texts[k]);
        write_tensors(b, scratch("te", "qwen3vl_8b_bf16.safetensors"), NULL);
        sumi_model_desc desc = parts();
        desc.text_encoder_path = with_config("te", "text_encoder", "qwen3vl_8b_bf16.safetensors");
        check_files(&desc, "a text encoder");
    }
}

#define MMPROJ_KEYS                                                                                                    \
    {"general.architecture", "clip", 0}, {"clip.projector_type", "qwen3vl_merger", 0},                                 \
        {"clip.vision.attention.head_count", NULL, 2},                                                                 \
    {                                                                                                                  \
        "clip.vision.block_count", NULL, 4                                                                             \
    }

// No config.json lies beside them: sizes and DeepStack are in names and metadata. The tiny rotation has the released
// one's shares, and its base is in the metadata too.
TEST(files_of_llama_cpp_draw_the_same)
{
    static const gguf_key s_text_keys[] = {{"general.architecture", "qwen3vl", 0},
                                           {"qwen3vl.rope.freq_base", NULL, 5e6f}},
                          s_keys[] = {MMPROJ_KEYS};
    bag* b = empty_bag(0);
    take(b, MODEL "text_encoder", "model", "", llama_text);
    write_gguf_keys(b, scratch("te", "Qwen3VL-8B-Instruct-BF16.gguf"), s_text_keys, 2);
    b = empty_bag(0);
    take_mmproj(b, empty_bag(1));
    write_gguf_keys(b, scratch("mmproj", "mmproj.gguf"), s_keys, sizeof s_keys / sizeof *s_keys);
    sumi_model_desc desc = parts();
    desc.text_encoder_path = scratch("te", "Qwen3VL-8B-Instruct-BF16.gguf");
    desc.vision_path = scratch("mmproj", "mmproj.gguf");
    check_files(&desc, "llama.cpp");
    static const struct {
        gguf_key key; // in place of the one with its name
        const char *gone, *says;
    } s_cases[] = {
        {{"clip.projector_type", "qwen2.5vl_merger", 0}, NULL, "clip.projector_type is \"qwen2.5vl_merger\""},
        {{"clip.vision.block_count", NULL, 5}, NULL, "blocks.4."},
        {{"clip.vision.attention.head_count", NULL, 5}, NULL, "5 heads for a width of 24"},
        {{"clip.vision.block_count", NULL, 4}, "v.deepstack.3.fc1.weight", "linear_fc1"},
        {{"clip.vision.block_count", NULL, 4}, "v.position_embd.weight", "mmproj"}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        gguf_key keys[] = {MMPROJ_KEYS};
        for (size_t k = 0; k < sizeof keys / sizeof *keys; k++)
            if (strcmp(keys[k].key, s_cases[i].key.key) == 0) keys[k] = s_cases[i].key;
        static bag s_some;
        s_some.count = 0;
        for (size_t k = 0; k < b->count; k++)
            if (s_cases[i].gone == NULL || strcmp(b->tensors[k].name, s_cases[i].gone) != 0)
                s_some.tensors[s_some.count++] = b->tensors[k];
        write_gguf_keys(&s_some, scratch("mmproj", "mmproj.gguf"), keys, sizeof keys / sizeof *keys);
        CHECK(open_model(&desc) == NULL);
        const bool is_named = strstr(s_message, s_cases[i].says) != NULL && strstr(s_message, "mmproj.gguf") != NULL;
        if (!is_named) printf("  case %zu: %s\n", i, s_message);
        CHECK(is_named);
        s_some.count = 0;
    }
}

// Kernels of pictures as [out, in, 3, 3], or with a single slice in time.
static void add_time(bag* b)
{
    for (size_t i = 0; i < b->count; i++) {
        sumi_tensor* t = &b->tensors[i];
        if (t->rank != 4 || strstr(t->name, "gamma") != NULL) continue;
        t->rank = 5;
        memmove(t->shape + 3, t->shape + 2, 2 * sizeof *t->shape);
        t->shape[2] = 1;
    }
}

static sumi_dtype every_bf16(const sumi_tensor* t, float* scale)
{
    (void)t;
    *scale = 1.0f;
    return SUMI_DTYPE_BF16;
}

TEST(an_autoencoder_file_draws_the_same_in_every_layout)
{
    for (int has_time = 0; has_time < 2; has_time++) {
        for (int is_wan = 0; is_wan < 2; is_wan++) {
            bag* b = empty_bag(0);
            take(b, MODEL "vae", "diffusion_pytorch_model", "", is_wan ? wan_vae : NULL);
            if (has_time) add_time(b);
            write_tensors(b, scratch("vae", "qwen_image_2.1_vae.safetensors"), NULL);
            sumi_model_desc desc = parts();
            desc.vae_path = with_config("vae", "vae", "qwen_image_2.1_vae.safetensors");
            check_files(&desc, is_wan ? "Wan's names" : "diffusers' names");
            if (!is_wan) continue;
            // as ComfyUI stores it
            bag* twin = empty_bag(1);
            drawing want, got;
            convert(b, every_bf16, twin, "");
            write_tensors(b, scratch("vae", "qwen_image_2.1_vae_bf16.safetensors"), NULL);
            write_tensors(twin, scratch("vae", "twin.safetensors"), NULL);
            desc.vae_path = scratch("vae", "twin.safetensors");
            CHECK(draw_files(&desc, true, &want));
            desc.vae_path = scratch("vae", "qwen_image_2.1_vae_bf16.safetensors");
            CHECK(draw_files(&desc, true, &got) && is_same(&got, &want));
        }
    }
}

TEST(all_in_one_file_draws_the_same)
{
    static const char* const s_prefixes[][2] = {{"vae.", "text_encoders.qwen3vl_8b.transformer."},
                                                {"first_stage_model.", "text_encoders.qwen3vl_8b.transformer."}};
    // without configs of transformer and VAE, so that both sides go by shapes and by the released numbers
    sumi_model_desc desc = parts();
    drawing want[2], got;
    write_tensors(take_layout(TINY, SPLIT, ""), scratch("bare", "dit.safetensors"), NULL);
    bag* b = empty_bag(0);
    take(b, MODEL "vae", "diffusion_pytorch_model", "", wan_vae);
    write_tensors(b, scratch("bare", "vae.safetensors"), NULL);
    desc.transformer_path = scratch("bare", "dit.safetensors");
    desc.vae_path = scratch("bare", "vae.safetensors");
    for (int refers = 0; refers < 2; refers++) CHECK(draw_files(&desc, refers != 0, &want[refers]));
    for (int k = 0; k < 2; k++) {
        b = take_layout(TINY, k, "model.diffusion_model.");
        take(b, MODEL "text_encoder", "model", s_prefixes[k][1], comfy_text);
        take(b, MODEL "vae", "diffusion_pytorch_model", s_prefixes[k][0], wan_vae);
        write_tensors(b, scratch("all", "qwen_image_2.1.safetensors"), NULL);
        desc = sumi_model_defaults();
        desc.path = with_config("all", "text_encoder", "qwen_image_2.1.safetensors");
        desc.tokenizer_path = desc.processor_path = MODEL "processor";
        for (int refers = 0; refers < 2; refers++)
            CHECK(draw_files(&desc, refers != 0, &got) && is_same(&got, &want[refers]));
    }
}

// ---- Quantised transformers -----------------------------------------------------------------------------------------

static sumi_model_desc desc_of(const char* transformer)
{
    sumi_model_desc desc = parts();
    desc.transformer_path = transformer;
    return desc;
}

// What the transformer draws in bfloat16, as it comes.
static const drawing* plain_drawing(int which)
{
    static drawing s_plain[2];
    static bool s_is_drawn[2];
    if (!s_is_drawn[which]) {
        write_tensors(take_layout(which, SPLIT, ""), scratch("plain", "model.safetensors"), NULL);
        const sumi_model_desc desc = desc_of(scratch("plain", "model.safetensors"));
        s_is_drawn[which] = draw_files(&desc, true, &s_plain[which]);
    }
    return &s_plain[which];
}

// A converted file draws what its values in float32 draw; that is not the same as bfloat16, and at most `most` from it.
static void check_stored(int which, const char* what, const char* file, double most)
{
    drawing got, want;
    const sumi_model_desc stored = desc_of(scratch("stored", file)),
                          twin = desc_of(scratch("stored", "twin.safetensors"));
    if (!draw_files(&twin, true, &want) || !draw_files(&stored, true, &got)) return;
    const double off = distance(&got, plain_drawing(which));
    if (is_same(&got, &want) && (most > 0 ? off > 0 && off <= most : off == 0)) return;
    printf("  %s: latents are off by %.4f from bfloat16's, at most %.4f, and by %.4f from those of the same values\n",
           what, off, most, distance(&got, &want));
    t_errors++;
}

// How far latents of two steps with guidance 4 may be from those of bfloat16, relatively: twice what was measured here,
// which is 0.016 (q8_0), 0.24 (q4_0), 0.22 (iq4_nl), 0.052 (q4_k), 0.012 (q6_k), 0.060 (e4m3 with factors), 0.086
// (without), 0.13 (e5m2), 0.014 and 0.019 (int8, rotated), 0.039 (nvfp4). The twin shows whether the values are right;
// this, whether the twin is.
TEST(gguf_files_draw_what_their_values_do)
{
    static const struct {
        sumi_dtype dtype;
        int which, layout;
        bool has_metadata;
        double most;
    } s_cases[] = {{SUMI_DTYPE_BF16, TINY, SPLIT, true, 0.0},   {SUMI_DTYPE_Q8_0, TINY, FUSED, false, 0.032},
                   {SUMI_DTYPE_Q4_0, TINY, SPLIT, false, 0.48}, {SUMI_DTYPE_IQ4_NL, TINY, FUSED, true, 0.44},
                   {SUMI_DTYPE_Q4_K, WIDE, FUSED, true, 0.104}, {SUMI_DTYPE_Q6_K, WIDE, SPLIT, true, 0.024}};
    static const gguf_key s_key = {"general.architecture", "qwen_image21", 0};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        bag *b = take_layout(s_cases[i].which, s_cases[i].layout, ""), *twin = empty_bag(1);
        s_matrix_dtype = s_cases[i].dtype;
        convert(b, gguf_choice, twin, "");
        write_gguf_keys(b, scratch("stored", "model.gguf"), &s_key, s_cases[i].has_metadata);
        write_tensors(twin, scratch("stored", "twin.safetensors"), NULL);
        check_stored(s_cases[i].which, sumi_dtype_get(s_cases[i].dtype)->name, "model.gguf", s_cases[i].most);
    }
}

// ComfyUI's converters leave the first and the last layer as they are.
static bool is_linear(const sumi_tensor* t)
{
    return t->rank == 2 && strstr(t->name, "img_in") == NULL && strstr(t->name, "proj_out") == NULL
        && strstr(t->name, "embed_tokens") == NULL && strstr(t->name, "lm_head") == NULL
        && strstr(t->name, "pos_embed") == NULL;
}

TEST(fp8_int8_and_nvfp4_files_draw_what_their_values_do)
{
    for (int layout = SPLIT; layout <= FUSED; layout++) {
        for (int form = 0; form < FP8_FORMS; form++) {
            const char* prefix = form == 2 ? "" : "model.diffusion_model.";
            write_scaled_fp8(take_layout(TINY, layout, prefix), empty_bag(1), form, prefix,
                             scratch("stored", "model.safetensors"), scratch("stored", "twin.safetensors"));
            check_stored(TINY, "fp8", "model.safetensors", form == 3 ? 0.26 : 0.12);
        }
        bag *b = take_layout(TINY, layout, ""), *twin = empty_bag(1);
        convert(b, every_e4m3, twin, "");
        write_tensors(b, scratch("stored", "model.safetensors"), NULL);
        write_tensors(twin, scratch("stored", "twin.safetensors"), NULL);
        check_stored(TINY, "fp8 without factors", "model.safetensors", 0.172);
        for (int is_rotated = 0; is_rotated < 2; is_rotated++) {
            write_int8(take_layout(TINY, layout, ""), empty_bag(1), is_rotated != 0,
                       scratch("stored", "model.safetensors"), scratch("stored", "twin.safetensors"));
            check_stored(TINY, is_rotated != 0 ? "int8, rotated" : "int8", "model.safetensors", 0.038);
        }
        write_nvfp4(take_layout(WIDE, layout, ""), empty_bag(1), scratch("stored", "model.safetensors"),
                    scratch("stored", "twin.safetensors"));
        check_stored(WIDE, "nvfp4", "model.safetensors", 0.078);
    }
}

// ---- Quantised text encoders ----------------------------------------------------------------------------------------

TEST(text_encoders_in_8_bits_draw_what_their_values_do)
{
    (void)with_config("text", "text_encoder", "");
    // rotated int8, fp8 with factors, q8_0: as above, measured 0.0081, 0.036, 0.0052
    static const double s_most[] = {0.0162, 0.072, 0.0104};
    for (int form = 0; form < 3; form++) {
        bag *b = empty_bag(0), *twin = empty_bag(1);
        drawing got, want;
        const char *file = form == 2 ? scratch("text", "model.gguf") : scratch("text", "model.safetensors"),
                   *twin_file = scratch("text", "twin.safetensors");
        take(b, MODEL "text_encoder", "model", "", form == 2 ? llama_text : comfy_text);
        if (form == 0) write_int8(b, twin, true, file, twin_file);
        if (form == 1) write_scaled_fp8(b, twin, 1, "", file, twin_file);
        if (form == 2) {
            s_matrix_dtype = SUMI_DTYPE_Q8_0;
            convert(b, gguf_choice, twin, "");
            write_gguf(b, file, "qwen3vl");
            write_tensors(twin, twin_file, NULL);
        }
        sumi_model_desc desc = parts();
        const bool refers = form != 2; // llama.cpp's has no tower
        desc.text_encoder_path = twin_file;
        if (!refers) {
            b = empty_bag(0);
            take(b, MODEL "text_encoder", "model", "model.visual.", only_vision);
            write_tensors(b, scratch("tower", "tower.safetensors"), NULL);
            desc.vision_path = with_config("tower", "text_encoder", "tower.safetensors");
        }
        CHECK(draw_files(&desc, refers, &want));
        desc.text_encoder_path = file;
        CHECK(draw_files(&desc, refers, &got) && is_same(&got, &want));
        const double off = distance(&got, folder_drawing(refers));
        if (!(off > 0 && off <= s_most[form])) printf("  form %d: latents are off by %.3f\n", form, off);
        CHECK(off > 0 && off <= s_most[form]);
    }
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

// Layers of every kind of the tiny transformer, those of the prefix too. The change of gate and projection has one down
// matrix, as trainers that see a fused layer make it.
static const struct {
    const char* module;
    int64_t rows, cols;
} s_layers[] = {{"transformer_blocks.0.attn.to_q", 64, 64},
                {"transformer_blocks.0.attn.to_k", 64, 64},
                {"transformer_blocks.1.attn.to_v", 64, 64},
                {"transformer_blocks.1.attn.to_out.0", 64, 64},
                {"transformer_blocks.0.img_mlp.gate_up", 384, 64},
                {"transformer_blocks.0.img_mlp.out", 64, 192},
                {"img_in", 64, 64},
                {"txt_in.in_layer", 64, 48},
                {"txt_in.out_layer", 64, 64},
                {"time_text_embed.timestep_embedder.linear_1", 64, 256},
                {"modulation.1", 256, 64},
                {"norm_out.linear", 64, 64},
                {"proj_out", 64, 64}};
enum { LAYERS = sizeof s_layers / sizeof *s_layers, RANK = 2 };

typedef struct dialect {
    const char* prefix;
    const char *up, *down;
    bool is_flat; // with _ in place of dots
    bool is_fused;
    bool has_alpha; // which is the rank, so that the scale is 1
} dialect;

static const dialect s_dialects[] = {
    {"transformer.", "lora_B.weight", "lora_A.weight", false, false, false}, // diffusers
    {"", "lora_B.default.weight", "lora_A.default.weight", false, false, false},
    {"base_model.model.", "lora_B.weight", "lora_A.weight", false, true, false},
    {"diffusion_model.", "lora_B.weight", "lora_A.weight", false, true, false}, // ComfyUI, ai-toolkit
    {"diffusion_model.", "lora_up.weight", "lora_down.weight", false, false, true},
    {"model.diffusion_model.", "lora_up.weight", "lora_down.weight", false, true, true},
    {"model.diffusion_model.", "lora.up.weight", "lora.down.weight", false, false, true},
    {"lora_unet_", "lora_up.weight", "lora_down.weight", true, false, true}, // kohya, musubi
    {"lora_unet_", "lora_up.weight", "lora_down.weight", true, true, true}};

static void put_change(bag* b, const dialect* d, const char* module, int64_t rows, int64_t cols, const float* up,
                       const float* down)
{
    put_factor(b, &(factor_name){d->prefix, module, d->up, d->is_flat}, rows, RANK, up);
    put_factor(b, &(factor_name){d->prefix, module, d->down, d->is_flat}, RANK, cols, down);
    if (d->has_alpha) put_factor(b, &(factor_name){d->prefix, module, "alpha", d->is_flat}, 1, 1, &(float){RANK});
}

// Of the layers whose bits are set.
static void write_adapter(const dialect* d, uint32_t layers, const char* path)
{
    static float s_up[384 * RANK], s_down[256 * RANK];
    uint64_t state = 1;
    bag* b = empty_bag(2);
    for (size_t i = 0; i < LAYERS; i++) {
        const int64_t rows = s_layers[i].rows, cols = s_layers[i].cols;
        for (int64_t k = 0; k < RANK * (rows + cols); k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const float x = 0.25f * ((float)(state >> 40) / (float)(1 << 23) - 1.0f);
            if (k < RANK * rows) s_up[k] = x;
            else s_down[k - RANK * rows] = x;
        }
        if ((layers >> i & 1) == 0) continue;
        char gate[192], proj[192];
        if (d->is_fused || !sumi_replace_text(s_layers[i].module, "gate_up", "gate_layer", gate, sizeof gate)
            || !sumi_replace_text(s_layers[i].module, "gate_up", "proj", proj, sizeof proj)) {
            put_change(b, d, s_layers[i].module, rows, cols, s_up, s_down);
        } else {
            put_change(b, d, gate, rows / 2, cols, s_up, s_down);
            put_change(b, d, proj, rows / 2, cols, s_up + rows / 2 * RANK, s_down);
        }
    }
    write_tensors(b, path, NULL);
}

static sumi_lora* read_adapter(sumi_model* model, const dialect* d, uint32_t layers)
{
    write_adapter(d, layers, scratch("adapters", "adapter.safetensors"));
    sumi_lora* lora = model != NULL ? read_lora_at(s_engine, model, scratch("adapters", "adapter.safetensors")) : NULL;
    if (lora == NULL) printf("  %s..%s: %s\n", d->prefix, d->up, s_files_host.log);
    CHECK(lora != NULL);
    return lora;
}

TEST(adapters_of_every_dialect_change_either_layout_alike)
{
    drawing want = {0}, got;
    for (int layout = SPLIT; layout <= FUSED; layout++) {
        write_tensors(take_layout(TINY, layout, ""), scratch("adapters", "model.safetensors"), NULL);
        const sumi_model_desc desc = desc_of(scratch("adapters", "model.safetensors"));
        sumi_model* model = open_model(&desc);
        CHECK(model != NULL);
        for (size_t i = 0; i < sizeof s_dialects / sizeof *s_dialects && model != NULL; i++) {
            sumi_lora* lora = read_adapter(model, &s_dialects[i], UINT32_MAX);
            const sumi_lora_use use = {.lora = lora, .scale = 1.0f};
            const bool is_first = layout == SPLIT && i == 0;
            CHECK(lora != NULL && draw_adapted(model, true, &use, is_first ? &want : &got));
            const double off = is_first ? 0.0 : distance(&got, &want);
            if (!(off <= 1e-5))
                printf("  layout %d, %s..%s: %g\n", layout, s_dialects[i].prefix, s_dialects[i].up, off);
            CHECK(off <= 1e-5);
            sumi_lora_release(lora);
        }
        sumi_model_close(model);
    }
    CHECK(distance(&want, plain_drawing(TINY)) > 0.1);
}

// Keys and values of the prefix are kept within a job. The next job with the same prompt and references has those of its
// own adapters: each layer shows in a picture, and is gone from the next one.
TEST(no_job_sees_the_adapters_of_another)
{
    write_tensors(take_layout(TINY, FUSED, ""), scratch("adapters", "model.safetensors"), NULL);
    const sumi_model_desc desc = desc_of(scratch("adapters", "model.safetensors"));
    sumi_model* model = open_model(&desc);
    drawing plain, changed, alone;
    CHECK(model != NULL && draw_model(model, true, &plain));
    CHECK(is_same(&plain, plain_drawing(TINY)));
    for (size_t i = 0; i < LAYERS && model != NULL; i++) {
        sumi_lora* lora = read_adapter(model, &s_dialects[3], 1u << i);
        const sumi_lora_use use = {.lora = lora, .scale = 1.0f};
        CHECK(lora != NULL && draw_adapted(model, true, &use, &changed));
        CHECK(draw_model(model, true, &alone));
        if (!is_same(&alone, &plain)) printf("  after %s: %g\n", s_layers[i].module, distance(&alone, &plain));
        CHECK(is_same(&alone, &plain));
        const double off = distance(&changed, &plain);
        if (!(off > 1e-4)) printf("  %s: %g\n", s_layers[i].module, off);
        CHECK(off > 1e-4);
        sumi_lora_release(lora);
    }
    sumi_model_close(model);
}

// ---- What is refused ------------------------------------------------------------------------------------------------

// Changes a member of a tiny config.json, whose text is short.
static void write_config(const char* from, const char* old, const char* member, const char* to)
{
    static char s_text[1 << 16], s_changed[1 << 16];
    FILE* file = system_open(from, "rb");
    CHECK(file != NULL);
    const size_t bytes = file != NULL ? fread(s_text, 1, sizeof s_text - 1, file) : 0;
    if (file != NULL) fclose(file);
    s_text[bytes] = 0;
    CHECK(sumi_replace_text(s_text, old, member, s_changed, sizeof s_changed));
    write_file(to, s_changed, strlen(s_changed));
}

TEST(what_is_not_read_is_refused_with_what_to_do)
{
    // transformers of other settings
    write_tensors(take_layout(TINY, SPLIT, ""), scratch("refused", "model.safetensors"), NULL);
    const sumi_model_desc changed = desc_of(scratch("refused", "model.safetensors"));
    write_config(MODEL "transformer/config.json", "\"causal_condition\": true", "\"causal_condition\": false",
                 scratch("refused", "config.json"));
    check_refused(&changed, (const char* const[]){"causal_condition is false", "texts would see the image", NULL});
    write_config(MODEL "transformer/config.json", "\"patch_size\": 1", "\"patch_size\": 2",
                 scratch("refused", "config.json"));
    check_refused(&changed, (const char* const[]){"patch_size is 2", NULL});
    // the models that write prompts, in the names of transformers, of ComfyUI and of llama.cpp
    static const char* const s_rewriters[] = {"model.language_model.layers.0.linear_attn.A_log",
                                              "model.layers.0.linear_attn.A_log", "blk.0.ssm_a"};
    for (size_t i = 0; i < 3; i++) {
        bag* b = empty_bag(0);
        take(b, MODEL "text_encoder", "model", "", i == 0 ? NULL : i == 1 ? comfy_text : llama_text);
        put(b, s_rewriters[i], SUMI_DTYPE_F32, &(sumi_tensor){.rank = 1, .shape = {1}}, &(float){1.0f}, sizeof(float));
        sumi_model_desc desc = parts();
        desc.text_encoder_path = scratch("rewriter", i == 2 ? "pe_t2i.gguf" : "pe_t2i.safetensors");
        if (i == 2) write_gguf(b, desc.text_encoder_path, "qwen35");
        else write_tensors(b, desc.text_encoder_path, NULL);
        check_refused(&desc, (const char* const[]){"Qwen-Image-2.1-PE-T2I", "Qwen3-VL-8B-Instruct", NULL});
    }
    // Wan 2.2's own autoencoder, which has the same names
    for (int is_wan = 0; is_wan < 2; is_wan++) {
        bag* b = empty_bag(0);
        take(b, MODEL "vae", "diffusion_pytorch_model", "", is_wan ? wan_vae : NULL);
        for (size_t i = 0; i < b->count; i++) {
            sumi_tensor* t = &b->tensors[i];
            if (strcmp(t->name, is_wan ? "decoder.conv1.weight" : "decoder.conv_in.weight") != 0) continue;
            t->shape[1] = 48;
            t->bytes = t->bytes * 48 / 64;
        }
        sumi_model_desc desc = parts();
        write_tensors(b, scratch("wan", "wan2.2_vae.safetensors"), NULL);
        desc.vae_path = scratch("wan", "wan2.2_vae.safetensors");
        check_refused(&desc, (const char* const[]){"the VAE of Wan 2.2", "use the VAE of Qwen-Image-2.1", NULL});
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_files(&s_files_host, is_linear)) return 1;
    RUN(a_folder_is_its_parts_and_an_edit_sees_its_reference);
    RUN(a_transformer_file_draws_the_same_in_every_layout);
    RUN(a_text_encoder_file_draws_the_same_under_every_name);
    RUN(files_of_llama_cpp_draw_the_same);
    RUN(an_autoencoder_file_draws_the_same_in_every_layout);
    RUN(all_in_one_file_draws_the_same);
    RUN(gguf_files_draw_what_their_values_do);
    RUN(fp8_int8_and_nvfp4_files_draw_what_their_values_do);
    RUN(text_encoders_in_8_bits_draw_what_their_values_do);
    RUN(adapters_of_every_dialect_change_either_layout_alike);
    RUN(no_job_sees_the_adapters_of_another);
    RUN(what_is_not_read_is_refused_with_what_to_do);
    end_files(&s_files_host);
    TEST_END();
}
