// The files that NewBie-image comes in: every layout in circulation is made of the tiny checkpoint's tensors, opened,
// and draws what the released folder draws, to the bit.
#include "files_fixture.h"
#include "newbie_fixture.h"

#define GEMMA_PIECES "tests/golden/common/tokenizers/newbie-gemma/tokenizer.model"

static void take_vae(bag* b, const char* prefix, rename_function* rename)
{
    take(b, MODEL "vae", "diffusion_pytorch_model", prefix, rename);
}

// ---- Names ----------------------------------------------------------------------------------------------------------

static bool new_gemma(const char* name, char* out, size_t out_bytes)
{
    return rename_gemma(name, "model.language_model.", out, out_bytes);
}

static bool raw_gemma(const char* name, char* out, size_t out_bytes)
{
    return rename_gemma(name, "language_model.", out, out_bytes);
}

static bool bare_gemma(const char* name, char* out, size_t out_bytes) { return rename_gemma(name, "", out, out_bytes); }

static bool needed_jina(const char* name, char* out, size_t out_bytes)
{
    return begins(name, ROBERTA) && keep(name, out, out_bytes);
}

static bool needed_transformer(const char* name, char* out, size_t out_bytes)
{
    return !begins(name, "norm_final.") && keep(name, out, out_bytes);
}

// Those of diffusers' Lumina 2; the layers of the pooled vector have no other names. qkv is cut up by its taker.
static bool lumina_transformer(const char* name, char* out, size_t out_bytes)
{
    static const char* const s_parts[][2] = {{"cap_embedder.", "time_caption_embed.caption_embedder."},
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
    for (size_t i = 0; i < sizeof s_parts / sizeof *s_parts; i++) {
        if (replace(out, out_bytes, s_parts[i][0], s_parts[i][1])) break;
    }
    return !begins(name, "norm_final.");
}

// q, k and v of every block as three tensors.
static void cut_up_qkv(bag* b)
{
    static const struct {
        const char* name;
        int64_t begin, rows;
    } s_thirds[] = {{"to_q", 0, 128}, {"to_k", 128, 64}, {"to_v", 192, 64}};
    const size_t count = b->count;
    for (size_t i = 0; i < count; i++) {
        char name[192];
        for (int k = 0; k < 3; k++) {
            const sumi_tensor* t = &b->tensors[i];
            snprintf(name, sizeof name, "%s", t->name);
            if (strstr(name, ".attention.qkv.") == NULL) break;
            replace(name, sizeof name, ".attention.qkv.", ".attn.QKV.");
            replace(name, sizeof name, "QKV", s_thirds[k].name);
            const uint64_t row_bytes = t->bytes / (uint64_t)t->shape[0];
            const sumi_tensor shape = {.rank = 2, .shape = {s_thirds[k].rows, t->shape[1]}};
            put(b, name, t->dtype, &shape, (const char*)t->data + (uint64_t)s_thirds[k].begin * row_bytes,
                (uint64_t)s_thirds[k].rows * row_bytes);
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
    static const char* const s_parts[][2] = {{"mid_block.resnets.0.", "mid.block_1."},
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
    for (size_t i = 0; i < sizeof s_parts / sizeof *s_parts; i++) replace(out, out_bytes, s_parts[i][0], s_parts[i][1]);
    if (strstr(out, "mid.") == NULL) replace(out, out_bytes, ".resnets.", ".block.");
    return true;
}

// ---- Tokenizers as bytes --------------------------------------------------------------------------------------------

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

static void check_same(const sumi_model_desc* desc, const char* what)
{
    drawing got;
    if (!draw_files(desc, &got) || is_same(&got, plain_drawing())) return;
    printf("  %s: latents are off by %.2g\n", what, distance(&got, plain_drawing()));
    t_errors++;
}

// ---- Folders --------------------------------------------------------------------------------------------------------

// Neither form has a scheduler: the shift is then the authors' own.
TEST(folders_of_either_form_draw_the_same_without_a_scheduler)
{
    static const char* const s_folders[] = {"released", "diffusers"};
    for (int k = 0; k < 2; k++) {
        copy_released(s_folders[k], k == 1);
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = scratch(s_folders[k], "");
        check_same(&desc, s_folders[k]);
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
    CHECK(open_model(&desc) == NULL && s_result == SUMI_NOT_SUPPORTED);
    CHECK(strstr(s_message, "static shift") != NULL);
    remove_folder(scratch("released/scheduler", ""));
}

// ---- Same values under other names ----------------------------------------------------------------------------------

TEST(a_transformer_file_draws_the_same_behind_every_prefix)
{
    static const char* const s_prefixes[] = {"", "model.diffusion_model.", "inner_model.", "diffusion_model.",
                                             "transformer."};
    for (size_t i = 0; i < sizeof s_prefixes / sizeof *s_prefixes; i++) {
        bag* b = empty_bag(0);
        take_transformer(b, s_prefixes[i], NULL);
        write_tensors(b, scratch("dit", "newbie_dit.safetensors"), NULL);
        sumi_model_desc desc = parts();
        desc.transformer_path = with_config("dit", "transformer", "newbie_dit.safetensors");
        check_same(&desc, s_prefixes[i]);
    }
}

TEST(a_transformer_with_the_names_of_lumina_2_draws_the_same)
{
    static const char s_config[] = "{\"_class_name\": \"Lumina2Transformer2DModel\", \"hidden_size\": 128, "
                                   "\"num_layers\": 2, \"num_refiner_layers\": 2, \"num_attention_heads\": 4, "
                                   "\"num_kv_heads\": 2, \"in_channels\": 16, \"cap_feat_dim\": 32, "
                                   "\"axes_dim_rope\": [8, 12, 12], \"pooled_projection_dim\": 128}";
    bag* b = empty_bag(0);
    take_transformer(b, "", lumina_transformer);
    cut_up_qkv(b);
    write_tensors(b, scratch("lumina", "diffusion_pytorch_model.safetensors"), NULL);
    write_file(scratch("lumina", "config.json"), s_config, strlen(s_config));
    sumi_model_desc desc = parts();
    desc.transformer_path = scratch("lumina", "");
    check_same(&desc, "diffusers' names");
    // what it says must be true
    static const char s_wrong[] = "{\"hidden_size\": 256, \"axes_dim_rope\": [8, 12, 12]}";
    write_file(scratch("lumina", "config.json"), s_wrong, strlen(s_wrong));
    CHECK(open_model(&desc) == NULL && s_result == SUMI_TENSOR_MISMATCH && strstr(s_message, "256") != NULL);
}

TEST(gemma_draws_the_same_behind_every_prefix)
{
    static rename_function* const s_names[] = {NULL, new_gemma, raw_gemma, short_gemma, bare_gemma, needed_gemma};
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        bag* b = empty_bag(0);
        take_gemma(b, "", s_names[i]);
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
    } s_cases[] = {
        {NULL, NULL, "text_encoders.gemma3.transformer.spiece_model", "text_encoders.jina_clip.spiece_model"},
        {short_gemma, comfy_jina, "text_encoders.gemma3.spiece_model", "text_encoders.jina_clip.spiece_model"},
        {new_gemma, NULL, "text_encoders.spiece_model", "text_encoders.jina_clip.spiece_model"}};
    static const char* const s_components[] = {"transformer", "text_encoder", "vae"};
    // configs alone: a tiny network's shapes do not tell all
    scratch("configs", "");
    for (int i = 0; i < 3; i++) {
        char folder[64];
        snprintf(folder, sizeof folder, "configs/%s", s_components[i]);
        with_config(folder, s_components[i], "");
    }
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s", scratch("whole", "newbie.safetensors"));
        write_whole(path, s_cases[i].gemma, s_cases[i].jina, s_cases[i].first, s_cases[i].second, true);
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = scratch("configs", "");
        desc.transformer_path = path;
        check_same(&desc, s_cases[i].first);
    }
    // as one path, with what it holds no more than once
    write_whole(scratch("one", "newbie.safetensors"), NULL, NULL, NULL, NULL, false);
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = scratch("one", "newbie.safetensors");
    static const char s_config[] = "{\"_class_name\": \"NextDiT\", \"model_type\": \"gemma3\", \"axes_dims\": [8, 12, "
                                   "12], \"text_config\": {\"sliding_window\": 24}}";
    write_file(scratch("one", "config.json"), s_config, strlen(s_config));
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

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_newbie()) return 1;
    RUN(folders_of_either_form_draw_the_same_without_a_scheduler);
    RUN(a_transformer_file_draws_the_same_behind_every_prefix);
    RUN(a_transformer_with_the_names_of_lumina_2_draws_the_same);
    RUN(gemma_draws_the_same_behind_every_prefix);
    RUN(what_is_never_read_may_be_missing);
    RUN(jina_clip_draws_the_same_under_short_names_and_merged);
    RUN(split_files_with_their_tokenizers_inside_draw_the_same);
    RUN(all_in_one_file_draws_the_same);
    RUN(tokenizers_of_every_form_draw_the_same);
    end_newbie();
    TEST_END();
}
