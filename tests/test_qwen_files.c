// The files that Qwen-Image comes in: every layout in circulation is made of the tiny checkpoint's tensors, opened, and
// draws what the diffusers folder draws. Where values are the same, so are the pictures' bits. Quantised files are held
// against files that have the quantised values in float32.
#include "files_fixture.h"
#include "jobs/engine_state.h"
#include "jobs/objects.h"
#include "models/network_state.h"

#define QWEN "tests/golden/qwen-image/"
#define MODEL QWEN "model/"

static host s_files_host;

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

// ---- Names ----------------------------------------------------------------------------------------------------------

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
    return llama_name(name, "model.", out, out_bytes);
}

static bool only_vision(const char* name, char* out, size_t out_bytes)
{
    snprintf(out, out_bytes, "%s", name);
    return begins(name, "visual.");
}

static bool wan_vae(const char* name, char* out, size_t out_bytes)
{
    char module[128];
    int a, b, used = 0;
    if (wan_outer_name(name, out, out_bytes)) return true;
    const char *side = begins(name, "encoder.") ? "encoder" : "decoder", *rest = name + 8;
    if (sscanf(rest, "down_blocks.%d.%n", &a, &used) == 1 && used > 0)
        snprintf(out, out_bytes, "%s.downsamples.%d.%s", side, a, wan_module(rest + used, module, sizeof module));
    else if (sscanf(rest, "up_blocks.%d.resnets.%d.%n", &a, &b, &used) == 2 && used > 0)
        snprintf(out, out_bytes, "%s.upsamples.%d.%s", side, 4 * a + b, wan_module(rest + used, module, sizeof module));
    else if (sscanf(rest, "up_blocks.%d.upsamplers.0.%n", &a, &used) == 1 && used > 0)
        snprintf(out, out_bytes, "%s.upsamples.%d.%s", side, 4 * a + 3, rest + used);
    else return false;
    return true;
}

// ---- Pictures -------------------------------------------------------------------------------------------------------

// References as large as the tests can afford: the released rule asks for a million pixels.
static void shrink_references(sumi_model* model)
{
    static sumi_recipe s_recipe;
    s_recipe = *model->network->recipe;
    s_recipe.references.autoencoder_area = 4096;
    s_recipe.references.vision_area = 12544;
    model->network->recipe = &s_recipe;
}

static bool draw_model(sumi_model* model, bool refers, drawing* out)
{
    const sumi_pixels picture = small_photo(3);
    const sumi_image_item item = {.text = "A red fox reads, 超清", .negative_text = " ", .seed = 7};
    sumi_image_desc desc = small_image(model, &item);
    desc.width = WIDTH;
    desc.height = HEIGHT;
    desc.guidance.scale = 4.0f;
    if (refers) {
        shrink_references(model);
        desc.references = &picture;
        desc.reference_count = 1;
    }
    return draw_desc(&desc, out);
}

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
    static drawing s_plain;
    static bool s_is_drawn;
    if (!s_is_drawn) {
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = QWEN "model";
        s_is_drawn = draw_files(&desc, false, &s_plain);
    }
    return &s_plain;
}

static const drawing* edit_drawing(void)
{
    static drawing s_edit;
    static bool s_is_drawn;
    if (!s_is_drawn) {
        const sumi_model_desc desc = edit_parts(QWEN "model-edit-2509");
        s_is_drawn = draw_files(&desc, true, &s_edit);
    }
    return &s_edit;
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
    static const char* const s_prefixes[] = {"", "model.diffusion_model.", "diffusion_model.", "transformer."};
    for (size_t i = 0; i < sizeof s_prefixes / sizeof *s_prefixes; i++) {
        bag* b = empty_bag(0);
        take_transformer(b, s_prefixes[i]);
        write_tensors(b, scratch("dit", "qwen_image_bf16.safetensors"), NULL);
        check_transformer(with_config("dit", "transformer", "qwen_image_bf16.safetensors"), plain_drawing(), 0.0,
                          s_prefixes[i]);
    }
}

TEST(split_files_draw_the_same_under_old_and_new_names)
{
    static rename_function* const s_texts[] = {NULL, without_head, new_text};
    for (int k = 0; k < 3; k++) {
        bag* b = empty_bag(0);
        take_text(b, "", s_texts[k]);
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

// The vision tower as llama.cpp's converter writes it: q, k and v apart, and the two slices in time of the first kernel.
static void take_mmproj(bag* b, bag* from)
{
    static const char* const s_names[][2] = {{"visual.patch_embed.proj.", "v.patch_embd."},
                                             {"visual.merger.ln_q.", "v.post_ln."},
                                             {"visual.merger.mlp.", "mm."},
                                             {"norm1.", "ln1."},
                                             {"norm2.", "ln2."},
                                             {"attn.proj.", "attn_out."},
                                             {"mlp.gate_proj.", "ffn_gate."},
                                             {"mlp.up_proj.", "ffn_up."},
                                             {"mlp.down_proj.", "ffn_down."},
                                             {"attn.qkv.", "attn_?."}};
    take_text(from, "", only_vision);
    for (size_t i = 0; i < from->count; i++) {
        sumi_tensor t = from->tensors[i];
        char name[192], block[192];
        snprintf(block, sizeof block, "%s", t.name);
        (void)sumi_replace_text(t.name, "visual.blocks.", "v.blk.", block, sizeof block);
        bool is_named = false;
        for (size_t k = 0; k < sizeof s_names / sizeof *s_names && !is_named; k++)
            is_named = sumi_replace_text(block, s_names[k][0], s_names[k][1], name, sizeof name);
        CHECK(is_named);
        char* letter = strchr(name, '?');
        if (letter != NULL) {
            t.shape[0] /= 3;
            for (size_t k = 0; k < 3; k++) {
                *letter = "qkv"[k];
                put(b, name, t.dtype, &t, (const char*)t.data + t.bytes / 3 * k, t.bytes / 3);
            }
        } else if (t.rank == 5) {
            put_slices(b, name, &t);
        } else {
            put(b, name, t.dtype, &t, t.data, t.bytes);
        }
    }
}

#define MMPROJ_KEYS                                                                                                    \
    {"general.architecture", "clip", 0}, {"clip.projector_type", "qwen2.5vl_merger", 0},                               \
        {"clip.vision.attention.head_count", NULL, 2}, {"clip.vision.n_wa_pattern", NULL, 2},                          \
        {"clip.vision.block_count", NULL, 3},                                                                          \
    {                                                                                                                  \
        "clip.vision.feed_forward_length", NULL, 76                                                                    \
    }

// Its numbers count before a config.json, and there is none here.
TEST(a_vision_tower_of_llama_cpp_draws_the_same)
{
    static const gguf_key s_keys[] = {MMPROJ_KEYS};
    const size_t key_count = sizeof s_keys / sizeof *s_keys;
    bag* b = empty_bag(0);
    take_text(b, "", llama_text);
    write_gguf(b, scratch("te", "qwen2.5-vl-7b-bf16.gguf"), "qwen2vl");
    sumi_model_desc desc = edit_parts(QWEN "model-edit-2509");
    desc.text_encoder_path = with_config("te", "text_encoder", "qwen2.5-vl-7b-bf16.gguf");
    b = empty_bag(0);
    take_mmproj(b, empty_bag(1));
    write_gguf_keys(b, scratch("mmproj", "mmproj.gguf"), s_keys, key_count);
    desc.vision_path = scratch("mmproj", "mmproj.gguf");
    drawing got;
    CHECK(draw_files(&desc, true, &got) && is_same(&got, edit_drawing()));
    static const struct {
        gguf_key key; // in place of the one with its name
        const char* gone;
        const char* says;
    } s_cases[] = {{{"clip.projector_type", "qwen2vl_merger", 0}, NULL, "clip.projector_type is \"qwen2vl_merger\""},
                   {{"clip.vision.attention.head_count", NULL, 3}, NULL, "3 heads for a width of 64"},
                   {{"clip.vision.n_wa_pattern", NULL, 0}, NULL, "clip.vision.n_wa_pattern"},
                   {{"clip.vision.n_wa_pattern", "x", 0}, NULL, "clip.vision.n_wa_pattern"},
                   {{"clip.vision.block_count", NULL, 4}, NULL, "blocks.3."},
                   {{"clip.vision.feed_forward_length", NULL, 80}, NULL, "intermediate_size is 80"},
                   {{"clip.vision.block_count", NULL, 3}, "v.blk.1.attn_k.weight", "attn_k"},
                   {{"clip.vision.block_count", NULL, 3}, "v.blk.0.ffn_gate.weight", "mmproj"},
                   {{"clip.vision.block_count", NULL, 3}, "v.patch_embd.weight.1", "mmproj"}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        gguf_key keys[sizeof s_keys / sizeof *s_keys];
        memcpy(keys, s_keys, sizeof keys);
        for (size_t k = 0; k < key_count; k++) {
            if (strcmp(keys[k].key, s_cases[i].key.key) == 0) keys[k] = s_cases[i].key;
        }
        static bag s_some;
        s_some.count = 0;
        for (size_t k = 0; k < b->count; k++) {
            if (s_cases[i].gone == NULL || strcmp(b->tensors[k].name, s_cases[i].gone) != 0)
                s_some.tensors[s_some.count++] = b->tensors[k];
        }
        write_gguf_keys(&s_some, scratch("mmproj", "mmproj.gguf"), keys, key_count);
        CHECK(open_model(&desc) == NULL);
        const bool is_named = strstr(s_message, s_cases[i].says) != NULL && strstr(s_message, "mmproj.gguf") != NULL;
        if (!is_named) printf("  case %zu: %s\n", i, s_message);
        CHECK(is_named);
        s_some.count = 0;
    }
}

TEST(all_in_one_file_draws_the_same_as_its_parts)
{
    static rename_function* const s_texts[] = {NULL, new_text};
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
        take_text(b, "text_encoders.qwen25_7b.transformer.", s_texts[k]);
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
    CHECK_NUMBER(s_result, SUMI_FILE_NOT_FOUND);
    CHECK(strstr(s_message, "vocab.json with merges.txt") != NULL && strstr(s_message, "tokenizer_path") != NULL);
    // a folder that is none, and a vocabulary whose other half is missing
    desc.tokenizer_path = scratch("nothing", "");
    CHECK(open_model(&desc) == NULL && s_result == SUMI_FILE_NOT_FOUND);
    CHECK(strstr(s_message, "vocab.json with merges.txt") != NULL);
    copy_file(MODEL "tokenizer/vocab.json", scratch("half", "vocab.json"));
    desc.tokenizer_path = scratch("half", "");
    CHECK(open_model(&desc) == NULL && s_result == SUMI_FILE_NOT_FOUND);
    CHECK(strstr(s_message, "merges.txt") != NULL);
    // the files themselves, all of them side by side
    static const char* const s_names[] = {"vocab.json", "merges.txt", "tokenizer_config.json"};
    for (int i = 0; i < 3; i++) {
        char from[128];
        snprintf(from, sizeof from, MODEL "tokenizer/%s", s_names[i]);
        copy_file(from, scratch("lone", s_names[i]));
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
    static const char* const s_prefixes[] = {"", "model.diffusion_model."};
    for (int k = 0; k < 2; k++) {
        b = empty_bag(0);
        take_transformer(b, s_prefixes[k]);
        write_tensors(b, scratch("lost", "2511.safetensors"), NULL);
        char mark[64];
        snprintf(mark, sizeof mark, "%s__index_timestep_zero__", s_prefixes[k]);
        put(b, mark, SUMI_DTYPE_BF16, &(sumi_tensor){.rank = 1}, "", 0);
        write_tensors(b, scratch("marked", "2511.safetensors"), NULL);
        write_gguf(b, scratch("marked", "2511.gguf"), "qwen_image");
        static const char* const s_files[] = {"2511.safetensors", "2511.gguf"};
        for (int i = 0; i < 2; i++) {
            desc.transformer_path = with_config("marked", "transformer", s_files[i]);
            sumi_model* model = open_model(&desc);
            CHECK(model != NULL);
            if (model == NULL) printf("  %s\n", s_message);
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

TEST(gguf_files_of_every_type_draw_what_their_values_do)
{
    static const sumi_dtype s_types[] = {SUMI_DTYPE_F32,  SUMI_DTYPE_BF16, SUMI_DTYPE_F16,
                                         SUMI_DTYPE_Q8_0, SUMI_DTYPE_Q4_K, SUMI_DTYPE_IQ4_NL};
    for (size_t i = 0; i < sizeof s_types / sizeof *s_types; i++) {
        s_matrix_dtype = s_types[i];
        const bool is_exact = s_types[i] == SUMI_DTYPE_F32 || s_types[i] == SUMI_DTYPE_BF16;
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
                // four bits without minima are the coarsest
                const double limit = s_types[i] == SUMI_DTYPE_IQ4_NL ? 0.35 : 0.25;
                check_transformer(twin_file, plain_drawing(), is_exact ? 0.0 : limit, "the values themselves");
                desc.transformer_path = twin_file;
                CHECK(draw_files(&desc, false, &want));
                check_transformer(file, &want, 0.0, sumi_dtype_get(s_types[i])->name);
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

static bool is_linear(const sumi_tensor* t)
{
    return t->rank == 2 && strstr(t->name, "embed_tokens") == NULL && strstr(t->name, "lm_head") == NULL
        && strstr(t->name, "img_in") == NULL && strstr(t->name, "txt_in") == NULL
        && strstr(t->name, "time_text_embed") == NULL;
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

// A component as another program quantises it, beside its values.
static void check_quantised(int part, const char* what, double limit)
{
    drawing want, got;
    sumi_model_desc desc = parts();
    const char** path = part == 0 ? &desc.transformer_path : &desc.text_encoder_path;
    *path = with_config("scaled", part == 0 ? "transformer" : "text_encoder", "twin.safetensors");
    CHECK(draw_files(&desc, false, &want));
    CHECK(distance(&want, plain_drawing()) < limit);
    *path = scratch("scaled", "model.safetensors");
    CHECK(draw_files(&desc, false, &got));
    if (!is_same(&got, &want)) {
        printf("  %s, part %d: latents are off by %.2g\n", what, part, distance(&got, &want));
        t_errors++;
    }
}

static const char* take_part(int part, bag* b)
{
    const char* prefix = part == 0 ? "model.diffusion_model." : "";
    if (part == 0) take_transformer(b, prefix);
    else take_text(b, prefix, new_text);
    return prefix;
}

TEST(scaled_fp8_is_understood_in_every_form)
{
    for (int part = 0; part < 2; part++) {
        for (int form = 0; form < FP8_FORMS; form++) {
            bag* b = empty_bag(0);
            const char* prefix = take_part(part, b);
            write_scaled_fp8(b, empty_bag(1), form, prefix, scratch("scaled", "model.safetensors"),
                             scratch("scaled", "twin.safetensors"));
            check_quantised(part, "fp8", form == 3 ? 0.5 : 0.25);
        }
    }
}

TEST(int8_is_understood_rotated_and_not)
{
    for (int part = 0; part < 2; part++) {
        for (int is_rotated = 0; is_rotated < 2; is_rotated++) {
            bag* b = empty_bag(0);
            take_part(part, b);
            write_int8(b, empty_bag(1), is_rotated != 0, scratch("scaled", "model.safetensors"),
                       scratch("scaled", "twin.safetensors"));
            check_quantised(part, is_rotated != 0 ? "rotated int8" : "int8", 0.1);
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
        static const float s_zeros[1024];
        snprintf(name, sizeof name, "%s.weight_scale", layer);
        if (is_nvfp4) {
            put(b, name, SUMI_DTYPE_F8_E4M3, &(sumi_tensor){.rank = 2, .shape = {was.shape[0], was.shape[1] / 16}},
                s_zeros, (uint64_t)(was.shape[0] * was.shape[1] / 16));
            snprintf(name, sizeof name, "%s.weight_scale_2", layer);
            put(b, name, SUMI_DTYPE_F32, NULL, s_zeros, 4);
        } else {
            put(b, name, SUMI_DTYPE_F32, &(sumi_tensor){.rank = 2, .shape = {was.shape[0], 1}}, s_zeros,
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
    } s_cases[] = {
        {"transformer_blocks.1.attn.to_k", "{\"format\": \"nvfp4\"}", "nvfp4", true, false},
        {"transformer_blocks.0.img_mlp.net.2", NULL, "nvfp4", true, false},
        {"txt_in", "{\"format\": \"nvfp4\"}", "nvfp4", true, false},
        {"transformer_blocks.0.attn.to_out.0",
         "{\"format\": \"int8_tensorwise\", \"convrot\": true, \"convrot_groupsize\": 32}",
         "int8_tensorwise, convrot in groups of 32", false, false},
        {"transformer_blocks.1.img_mod.1", "{\"format\": \"awq_w4a16\"}", "awq_w4a16", false, false},
        {"transformer_blocks.1.txt_mlp.net.0.proj", "{\"format\": \"svdquant_w4a4\"}", "svdquant_w4a4", false, false},
        {"model.layers.1.mlp.up_proj", "{\"format\": \"nvfp4\"}", "nvfp4", true, true},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        bag* b = empty_bag(0);
        if (s_cases[i].is_text) take_text(b, "", NULL);
        else take_transformer(b, "");
        store_otherwise(b, s_cases[i].layer, s_cases[i].format, s_cases[i].is_nvfp4);
        write_tensors(b, scratch("other", "model.safetensors"), NULL);
        sumi_model_desc desc = parts();
        const char* file =
            with_config("other", s_cases[i].is_text ? "text_encoder" : "transformer", "model.safetensors");
        if (s_cases[i].is_text) desc.text_encoder_path = file;
        else desc.transformer_path = file;
        CHECK(open_model(&desc) == NULL);
        CHECK_NUMBER(s_result, SUMI_NOT_SUPPORTED);
        if (strstr(s_message, s_cases[i].says) == NULL || strstr(s_message, s_cases[i].layer) == NULL)
            printf("  %s\n", s_message);
        CHECK(strstr(s_message, s_cases[i].says) != NULL && strstr(s_message, s_cases[i].layer) != NULL);
        CHECK(strstr(s_message, "bf16") != NULL); // what to take instead
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_files(&s_files_host, is_linear)) return 1;
    RUN(a_transformer_file_draws_the_same_behind_every_prefix);
    RUN(split_files_draw_the_same_under_old_and_new_names);
    RUN(a_vision_tower_may_lie_in_a_file_of_its_own);
    RUN(a_vision_tower_of_llama_cpp_draws_the_same);
    RUN(all_in_one_file_draws_the_same_as_its_parts);
    RUN(a_single_file_without_a_tokenizer_says_so);
    RUN(a_mark_or_the_variant_says_that_references_have_time_zero);
    RUN(gguf_files_of_every_type_draw_what_their_values_do);
    RUN(fp8_without_scales_holds_norms_and_biases_too);
    RUN(scaled_fp8_is_understood_in_every_form);
    RUN(int8_is_understood_rotated_and_not);
    RUN(other_quantisations_are_refused_by_name);
    end_files(&s_files_host);
    TEST_END();
}
