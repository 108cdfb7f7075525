// In the formats of this file ' stands for ", which JSON has many of.
#include "synthetic_texts.h"
#include "synthetic_tensors.h"
#include "system.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATENTS SYNTHETIC_LATENTS
#define MAX_BYTES 16384 // of a text

static void begin(synthetic_texts* t, const char* path)
{
    t->of[t->count++] = (synthetic_text){.path = path, .text = malloc(MAX_BYTES)};
}

// Adds to the text that was begun last. A text that does not fit counts as one without memory.
SYSTEM_PRINTF(2, 3)
static void add(synthetic_texts* t, const char* format, ...)
{
    synthetic_text* to = &t->of[t->count - 1];
    char quoted[2048];
    const size_t bytes = strlen(format) + 1, room = MAX_BYTES - to->bytes;
    for (size_t i = 0; i < bytes && bytes <= sizeof quoted; i++) quoted[i] = format[i] == '\'' ? '"' : format[i];
    va_list arguments;
    va_start(arguments, format);
    const int length =
        to->text && bytes <= sizeof quoted ? vsnprintf(to->text + to->bytes, room, quoted, arguments) : -1;
    va_end(arguments);
    if (length >= 0 && (size_t)length < room) {
        to->bytes += (size_t)length;
    } else {
        free(to->text);
        to->text = NULL;
    }
}

// ---- Configurations -------------------------------------------------------------------------------------------------

static void add_qwen3(synthetic_texts* t, const synthetic_config* c)
{
    begin(t, "text_encoder/config.json");
    add(t,
        "{'architectures': ['Qwen3ForCausalLM'], 'model_type': 'qwen3', 'hidden_size': %d, 'num_hidden_layers': "
        "%d, 'num_attention_heads': %d, 'num_key_value_heads': %d, 'head_dim': %d, 'intermediate_size': %d, "
        "'rms_norm_eps': 1e-06, 'rope_theta': 1000000, 'rope_scaling': null, 'hidden_act': 'silu', "
        "'attention_bias': false, 'tie_word_embeddings': true, 'use_sliding_window': false, "
        "'max_position_embeddings': 40960, 'vocab_size': %d}\n",
        c->text_width, c->text_layers, c->text_heads, c->text_kv_heads, c->text_head, c->text_hidden, c->vocabulary);
}

static void add_flux_vae(synthetic_texts* t, const synthetic_config* c)
{
    begin(t, "vae/config.json");
    add(t,
        "{'_class_name': 'AutoencoderKL', 'act_fn': 'silu', 'block_out_channels': [%d, %d, %d, %d], 'in_channels': "
        "3, 'out_channels': 3, 'latent_channels': %d, 'layers_per_block': %d, 'norm_num_groups': %d, "
        "'mid_block_add_attention': true, 'sample_size': 1024, 'scaling_factor': 0.3611, 'shift_factor': 0.1159, "
        "'latents_mean': null, 'latents_std': null, 'use_quant_conv': false, 'use_post_quant_conv': false, "
        "'force_upcast': true}\n",
        c->vae_widths[0], c->vae_widths[1], c->vae_widths[2], c->vae_widths[3], LATENTS, c->vae_resnets, c->vae_groups);
}

static void add_z_image(synthetic_texts* t, const synthetic_config* c)
{
    const int32_t head = c->dim / c->heads;
    begin(t, "model_index.json");
    add(t, "{'_class_name': 'ZImagePipeline'}\n");
    begin(t, "scheduler/scheduler_config.json");
    add(t, "{'_class_name': 'FlowMatchEulerDiscreteScheduler', 'num_train_timesteps': 1000, 'use_dynamic_shifting': "
           "false, 'shift': 3.0}\n");
    begin(t, "transformer/config.json");
    add(t,
        "{'_class_name': 'ZImageTransformer2DModel', 'all_f_patch_size': [1], 'all_patch_size': [2], 'axes_dims': "
        "[%d, %d, %d], 'axes_lens': [1536, 512, 512], 'cap_feat_dim': %d, 'dim': %d, 'in_channels': %d, 'n_heads': "
        "%d, 'n_kv_heads': %d, 'n_layers': %d, 'n_refiner_layers': %d, 'norm_eps': 1e-05, 'qk_norm': true, "
        "'rope_theta': 256.0, 't_scale': 1000.0}\n",
        head / 4, head * 3 / 8, head * 3 / 8, c->text_width, c->dim, LATENTS, c->heads, c->heads, c->layers,
        c->refiners);
    add_qwen3(t, c);
    add_flux_vae(t, c);
}

static void add_klein(synthetic_texts* t, const synthetic_config* c)
{
    const int32_t head = c->dim / c->heads, latents = synthetic_vae_channels(c);
    const int32_t* w = c->vae_widths;
    begin(t, "model_index.json");
    add(t, "{'_class_name': '%s', 'is_distilled': true}\n",
        c->keeps_references ? "Flux2KleinKVPipeline" : "Flux2KleinPipeline");
    begin(t, "scheduler/scheduler_config.json");
    add(t, "{'_class_name': 'FlowMatchEulerDiscreteScheduler', 'base_image_seq_len': 256, 'base_shift': 0.5, "
           "'max_image_seq_len': 4096, 'max_shift': 1.15, 'num_train_timesteps': 1000, 'shift': 3.0, "
           "'shift_terminal': null, 'time_shift_type': 'exponential', 'use_dynamic_shifting': true}\n");
    begin(t, "transformer/config.json");
    add(t,
        "{'_class_name': 'Flux2Transformer2DModel', 'attention_head_dim': %d, 'axes_dims_rope': [%d, %d, %d, %d], "
        "'eps': 1e-06, 'guidance_embeds': false, 'in_channels': %d, 'joint_attention_dim': %d, 'mlp_ratio': 3.0, "
        "'num_attention_heads': %d, 'num_layers': %d, 'num_single_layers': %d, 'out_channels': null, 'patch_size': 1, "
        "'rope_theta': 2000, 'timestep_guidance_channels': 256}\n",
        head, head / 4, head / 4, head / 4, head / 4, 4 * latents, 3 * c->text_width, c->heads, c->layers, c->singles);
    add_qwen3(t, c);
    begin(t, "vae/config.json");
    add(t,
        "{'_class_name': 'AutoencoderKLFlux2', 'act_fn': 'silu', 'batch_norm_eps': 0.0001, 'batch_norm_momentum': 0.1, "
        "'block_out_channels': [%d, %d, %d, %d], 'in_channels': 3, 'out_channels': 3, 'latent_channels': %d, "
        "'layers_per_block': %d, 'norm_num_groups': %d, 'mid_block_add_attention': true, 'patch_size': [2, 2], "
        "'sample_size': 1024, 'use_quant_conv': true, 'use_post_quant_conv': true, 'force_upcast': true}\n",
        w[0], w[1], w[2], w[3], latents, c->vae_resnets, c->vae_groups);
}

#define QWEN_SCHEDULER                                                                                                 \
    "{'_class_name': 'FlowMatchEulerDiscreteScheduler', 'base_image_seq_len': 256, 'base_shift': 0.5, "                \
    "'max_image_seq_len': 8192, 'max_shift': 0.9, 'num_train_timesteps': 1000, 'shift': 1.0, 'shift_terminal': "       \
    "0.02, 'time_shift_type': 'exponential', 'use_dynamic_shifting': true}\n"

// The sigma schedule and the statistics of the latents are those of the released files.
static void add_qwen_image(synthetic_texts* t, const synthetic_config* c)
{
    const int32_t head = c->dim / c->heads, text = c->text_head, quarter = c->vision_layers / 4;
    const int32_t* w = c->vae_widths;
    const char* pipeline = c->references == 0 ? "QwenImagePipeline"
                         : c->references == 1 ? "QwenImageEditPipeline"
                                              : "QwenImageEditPlusPipeline";
    begin(t, "model_index.json");
    add(t, "{'_class_name': '%s'}\n", pipeline);
    begin(t, "scheduler/scheduler_config.json");
    add(t, QWEN_SCHEDULER);
    begin(t, "processor/preprocessor_config.json");
    add(t, "{'min_pixels': 3136, 'max_pixels': 12845056, 'patch_size': 14, 'temporal_patch_size': 2, 'merge_size': 2, "
           "'image_mean': [0.48145466, 0.4578275, 0.40821073], 'image_std': [0.26862954, 0.26130258, 0.27577711], "
           "'image_processor_type': 'Qwen2VLImageProcessor'}\n");
    begin(t, "transformer/config.json");
    add(t,
        "{'_class_name': 'QwenImageTransformer2DModel', 'attention_head_dim': %d, 'axes_dims_rope': [%d, %d, %d], "
        "'guidance_embeds': false, 'in_channels': %d, 'joint_attention_dim': %d, 'num_attention_heads': %d, "
        "'num_layers': %d, 'out_channels': %d, 'patch_size': 2}\n",
        head, head / 8, head / 16 * 7, head / 16 * 7, 4 * LATENTS, c->text_width, c->heads, c->layers, LATENTS);
    begin(t, "text_encoder/config.json");
    add(t,
        "{'architectures': ['Qwen2_5_VLForConditionalGeneration'], 'model_type': 'qwen2_5_vl', 'hidden_size': %d, "
        "'num_hidden_layers': %d, 'num_attention_heads': %d, 'num_key_value_heads': %d, 'intermediate_size': %d, "
        "'rms_norm_eps': 1e-06, 'rope_theta': 1000000.0, 'rope_scaling': {'mrope_section': [%d, %d, %d], "
        "'rope_type': 'default', 'type': 'default'}, 'hidden_act': 'silu', 'tie_word_embeddings': false, "
        "'use_sliding_window': false, 'vocab_size': %d, 'vision_config': {'depth': %d, 'hidden_size': %d, "
        "'num_heads': %d, 'intermediate_size': %d, 'out_hidden_size': %d, 'patch_size': 14, 'temporal_patch_size': "
        "2, 'spatial_merge_size': 2, 'window_size': 112, 'fullatt_block_indexes': [%d, %d, %d, %d], 'hidden_act': "
        "'silu', 'in_chans': 3}}\n",
        c->text_width, c->text_layers, c->text_heads, c->text_kv_heads, c->text_hidden, text / 8, text / 16 * 3,
        text / 16 * 3, c->vocabulary, c->vision_layers, c->vision_width, c->vision_heads, c->vision_hidden,
        c->text_width, quarter - 1, 2 * quarter - 1, 3 * quarter - 1, 4 * quarter - 1);
    begin(t, "vae/config.json");
    add(t,
        "{'_class_name': 'AutoencoderKLQwenImage', 'attn_scales': [], 'base_dim': %d, 'dim_mult': [1, %d, %d, %d], "
        "'num_res_blocks': %d, 'temperal_downsample': [false, true, true], 'z_dim': %d, 'latents_mean': [-0.7571, "
        "-0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134, -0.0715, 0.5517, -0.3632, -0.1922, "
        "-0.9497, 0.2503, -0.2921], 'latents_std': [2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, "
        "2.0743, 3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.916]}\n",
        w[0], w[1] / w[0], w[2] / w[0], w[3] / w[0], c->vae_resnets, LATENTS);
}

// The sigma schedule is that of the released files; the statistics of the latents are the library's own for files without
// them. There is no folder "tokenizer": the tokenizer lies in "processor".
static void add_qwen_image_21(synthetic_texts* t, const synthetic_config* c)
{
    const int32_t head = c->dim / c->heads, pairs = c->text_head / 2, third = (c->vision_layers - 3) / 3;
    const int32_t* w = c->vae_widths;
    begin(t, "model_index.json");
    add(t, "{'_class_name': 'QwenImage21Pipeline'}\n");
    begin(t, "scheduler/scheduler_config.json");
    add(t, QWEN_SCHEDULER);
    begin(t, "processor/preprocessor_config.json");
    add(t, "{'size': {'shortest_edge': 65536, 'longest_edge': 16777216}, 'patch_size': 16, 'temporal_patch_size': 2, "
           "'merge_size': 2, 'image_mean': [0.5, 0.5, 0.5], 'image_std': [0.5, 0.5, 0.5], 'image_processor_type': "
           "'Qwen2VLImageProcessorFast'}\n");
    begin(t, "transformer/config.json");
    add(t,
        "{'_class_name': 'QwenImage21Transformer2DModel', 'attention_head_dim': %d, 'axes_dims_rope': [%d, %d, %d], "
        "'causal_condition': true, 'context_in_dim': %d, 'eps': 1e-06, 'in_channels': %d, 'mlp_ratio': 3, "
        "'num_attention_heads': %d, 'num_layers': %d, 'out_channels': %d, 'patch_size': 1}\n",
        head, head / 8, head / 16 * 7, head / 16 * 7, c->text_width, synthetic_vae_channels(c), c->heads, c->layers,
        synthetic_vae_channels(c));
    begin(t, "text_encoder/config.json");
    add(t,
        "{'architectures': ['Qwen3VLForConditionalGeneration'], 'model_type': 'qwen3_vl', 'tie_word_embeddings': "
        "false, "
        "'text_config': {'model_type': 'qwen3_vl_text', 'hidden_size': %d, 'num_hidden_layers': %d, "
        "'num_attention_heads': %d, 'num_key_value_heads': %d, 'head_dim': %d, 'intermediate_size': %d, "
        "'rms_norm_eps': 1e-06, 'rope_theta': 5000000, 'rope_scaling': {'mrope_interleaved': true, 'mrope_section': "
        "[%d, %d, %d], 'rope_type': 'default'}, 'hidden_act': 'silu', 'attention_bias': false, 'vocab_size': %d}, ",
        c->text_width, c->text_layers, c->text_heads, c->text_kv_heads, c->text_head, c->text_hidden,
        pairs - 2 * (pairs * 5 / 16), pairs * 5 / 16, pairs * 5 / 16, c->vocabulary);
    add(t,
        "'vision_config': {'depth': %d, 'hidden_size': %d, 'num_heads': %d, 'intermediate_size': %d, "
        "'out_hidden_size': %d, 'patch_size': 16, 'temporal_patch_size': 2, 'spatial_merge_size': 2, "
        "'num_position_embeddings': 2304, 'deepstack_visual_indexes': [%d, %d, %d], 'hidden_act': "
        "'gelu_pytorch_tanh', 'in_channels': 3}}\n",
        c->vision_layers, c->vision_width, c->vision_heads, c->vision_hidden, c->text_width, third, 2 * third,
        3 * third);
    begin(t, "vae/config.json");
    add(t,
        "{'_class_name': 'AutoencoderKLQwenImage21', 'attn_scales': [], 'base_dim': %d, 'decoder_base_dim': %d, "
        "'dim_mult': [1, %d, %d, %d, %d], 'in_channels': 4, 'is_residual': true, 'num_res_blocks': %d, 'out_channels': "
        "4, 'patch_size': null, 'temperal_downsample': [false, true, true, true], 'z_dim': %d}\n",
        w[0], c->vae_decoder_width, w[1] / w[0], w[2] / w[0], w[3] / w[0], w[4] / w[0], c->vae_resnets,
        synthetic_vae_channels(c));
}

// The files are as the authors' converter writes them: there is no scheduler, and the transformer's config.json leaves
// out the values that are defaults in the authors' code.
static void add_newbie(synthetic_texts* t, const synthetic_config* c)
{
    const int32_t head = c->dim / c->heads;
    begin(t, "model_index.json");
    add(t, "{'_class_name': 'NewbiePipeline'}\n");
    begin(t, "transformer/config.json");
    add(t,
        "{'_class_name': 'NextDiT_3B_GQA_patch2_Adaln_Refiner_WHIT_CLIP', 'model_type': 'nextdit_clip', "
        "'patch_size': 2, 'dim': %d, 'n_layers': %d, 'n_heads': %d, 'n_kv_heads': %d, 'in_channels': %d, "
        "'axes_dims': [%d, %d, %d], 'axes_lens': [1024, 512, 512], 'clip_text_dim': %d, 'clip_img_dim': %d}\n",
        c->dim, c->layers, c->heads, c->kv_heads, LATENTS, head / 3, head / 3, head / 3, c->pooled_width,
        c->pooled_width);
    begin(t, "text_encoder/config.json");
    add(t,
        "{'architectures': ['Gemma3ForConditionalGeneration'], 'model_type': 'gemma3', 'text_config': "
        "{'model_type': 'gemma3_text', 'hidden_size': %d, 'num_hidden_layers': %d, 'num_attention_heads': %d, "
        "'num_key_value_heads': %d, 'head_dim': %d, 'query_pre_attn_scalar': %d, 'intermediate_size': %d, "
        "'sliding_window': %d, 'rms_norm_eps': 1e-06, 'rope_theta': 1000000.0, 'rope_local_base_freq': 10000.0, "
        "'rope_scaling': {'factor': 8.0, 'rope_type': 'linear'}, 'hidden_activation': 'gelu_pytorch_tanh', "
        "'attention_bias': false, 'vocab_size': %d}}\n",
        c->text_width, c->text_layers, c->text_heads, c->text_kv_heads, c->text_head, c->text_head, c->text_hidden,
        c->text_window, c->vocabulary);
    begin(t, "clip_model/config.json");
    add(t,
        "{'architectures': ['JinaCLIPModel'], 'model_type': 'jina_clip', 'projection_dim': %d, 'text_config': "
        "{'embed_dim': %d, 'hf_model_config_kwargs': {'lora_adaptations': ['retrieval.query'], 'lora_alpha': %d, "
        "'lora_rank': %d}, 'pooler_type': 'mean_pooler'}}\n",
        c->pooled_width, c->pooled_width, SYNTHETIC_ADAPTER_RANK, SYNTHETIC_ADAPTER_RANK);
    add_flux_vae(t, c);
}

// ---- Tokenizers -----------------------------------------------------------------------------------------------------

// Begins a tokenizer, whose special tokens have the ids from first_id on.
static void begin_tokenizer(synthetic_texts* t, const char* path, const char* const* specials, int32_t count,
                            int32_t first_id)
{
    begin(t, path);
    add(t, "{'version': '1.0', 'truncation': null, 'padding': null, 'added_tokens': [");
    for (int32_t i = 0; i < count; i++)
        add(t,
            "%s{'id': %d, 'content': '%s', 'single_word': false, 'lstrip': false, 'rstrip': false, "
            "'normalized': false, 'special': true}",
            i ? ", " : "", first_id + i, specials[i]);
    add(t, "], ");
}

// The words of the templates of Qwen-Image and Qwen-Image-2.1. Each is a token, both with and without a space in front, so that the templates
// have as many tokens as with the released vocabulary, that of Qwen-Image-2.1's system turn one less: "Comprehend" is two
// there.
static const char* const s_words[] = {
    "system",     "user",        "assistant", "Describe",      "Generate", "Picture",     "the",
    "image",      "by",          "detailing", "color",         "shape",    "size",        "texture",
    "quantity",   "text",        "spatial",   "relationships", "of",       "objects",     "and",
    "background", "key",         "features",  "input",         "then",     "explain",     "how",
    "'s",         "instruction", "should",    "alter",         "or",       "modify",      "a",
    "new",        "that",        "meets",     "requirements",  "while",    "maintaining", "consistency",
    "with",       "original",    "where",     "appropriate",   "(",        "),",          "Comprehend",
    "analyze",    "provided",    "prompt"};
#define WORD_COUNT ((int32_t)(sizeof s_words / sizeof *s_words))

static void add_words(synthetic_texts* t, int32_t first_id)
{
    for (int32_t i = 0; i < 2 * WORD_COUNT; i++) {
        const char *word = s_words[i / 2], *space = i % 2 ? "\\u0120" : "";
        if (i % 2 == 0 && word[1] == 0) continue; // a word of one byte has its token already
        add(t, ", '%s%s': %d", space, word, first_id + i);
    }
}

// A byte-level BPE tokenizer without merges, with one token per byte, in the format of the released file.
static void add_byte_tokenizer(synthetic_texts* t, const synthetic_config* c)
{
    static const char* const s_specials[] = {"<|endoftext|>",    "<|im_start|>",   "<|im_end|>",
                                             "<|vision_start|>", "<|vision_end|>", "<|image_pad|>"};
    static const char s_pattern[] =
        "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}|"
        " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+";
    const bool is_21 = c->family == SYNTHETIC_QWEN_IMAGE_21, has_words = c->family == SYNTHETIC_QWEN_IMAGE || is_21;
    const int32_t special_count = has_words ? 6 : 3;
    begin_tokenizer(t, is_21 ? "processor/tokenizer.json" : "tokenizer/tokenizer.json", s_specials, special_count, 256);
    add(t,
        "'normalizer': {'type': 'NFC'}, 'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': 'Split', "
        "'pattern': {'Regex': '%s'}, 'behavior': 'Isolated', 'invert': false}, {'type': 'ByteLevel', "
        "'add_prefix_space': false, 'trim_offsets': false, 'use_regex': false}]}, 'post_processor': {'type': "
        "'ByteLevel', 'add_prefix_space': false, 'trim_offsets': false, 'use_regex': false}, 'decoder': {'type': "
        "'ByteLevel', 'add_prefix_space': true, 'trim_offsets': true, 'use_regex': true}, 'model': {'type': 'BPE', "
        "'dropout': null, 'unk_token': null, 'continuing_subword_prefix': '', 'end_of_word_suffix': '', "
        "'fuse_unk': false, 'byte_fallback': false, 'ignore_merges': %s, 'vocab': {",
        s_pattern, has_words ? "true" : "false");
    for (int32_t byte = 0, moved = 0; byte < 256; byte++) {
        const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        const int32_t code = printable ? byte : 256 + moved++; // GPT-2's table: other bytes become 256 and up, in order
        add(t, "%s'\\u%04x': %d", byte ? ", " : "", code, byte);
    }
    if (has_words) add_words(t, 256 + special_count);
    add(t, "}, 'merges': []}}\n");
}

// NewBie-image's tokenizers have one token for each character from '!' to '~' and for U+2581, which stands for a blank.
// Gemma's is a BPE without merges, with tokens for the bytes of all other characters; XLM-RoBERTa's is a Unigram. A
// text of ASCII letters and single blanks has as many tokens in both, except for the special tokens around it.
#define LETTER_COUNT 95
static int32_t letter(int32_t i) { return i == 0 ? 0x2581 : 32 + i; }

static void add_letter_tokenizers(synthetic_texts* t)
{
    static const char* const s_gemma[] = {"<pad>", "<eos>", "<bos>", "<unk>"};
    begin_tokenizer(t, "text_encoder/tokenizer.json", s_gemma, 4, 0);
    add(t, "'normalizer': {'type': 'Replace', 'pattern': {'String': ' '}, 'content': '\\u2581'}, 'pre_tokenizer': "
           "{'type': 'Split', 'pattern': {'String': ' '}, 'behavior': 'MergedWithPrevious', 'invert': false}, "
           "'post_processor': {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': '<bos>', 'type_id': "
           "0}}, {'Sequence': {'id': 'A', 'type_id': 0}}], 'pair': [], 'special_tokens': {'<bos>': {'id': '<bos>', "
           "'ids': [2], 'tokens': ['<bos>']}}}, 'model': {'type': 'BPE', 'dropout': null, 'unk_token': '<unk>', "
           "'fuse_unk': true, 'byte_fallback': true, 'ignore_merges': false, 'vocab': {");
    for (int32_t i = 0; i < 4; i++) add(t, "'%s': %d, ", s_gemma[i], i);
    for (int32_t i = 0; i < 256; i++) add(t, "'<0x%02X>': %d, ", (unsigned)i, 4 + i);
    for (int32_t i = 0; i < LETTER_COUNT; i++) add(t, "%s'\\u%04x': %d", i ? ", " : "", (unsigned)letter(i), 260 + i);
    add(t, "}, 'merges': []}}\n");

    static const char* const s_roberta[] = {"<s>", "<pad>", "</s>", "<unk>"};
    begin_tokenizer(t, "clip_model/tokenizer.json", s_roberta, 4, 0);
    add(t, "'normalizer': null, 'pre_tokenizer': {'type': 'Sequence', 'pretokenizers': [{'type': 'WhitespaceSplit'}, "
           "{'type': 'Metaspace', 'replacement': '\\u2581', 'prepend_scheme': 'always', 'split': true}]}, "
           "'post_processor': {'type': 'TemplateProcessing', 'single': [{'SpecialToken': {'id': '<s>', 'type_id': "
           "0}}, {'Sequence': {'id': 'A', 'type_id': 0}}, {'SpecialToken': {'id': '</s>', 'type_id': 0}}], 'pair': "
           "[], 'special_tokens': {'<s>': {'id': '<s>', 'ids': [0], 'tokens': ['<s>']}, '</s>': {'id': '</s>', 'ids': "
           "[2], 'tokens': ['</s>']}}}, 'model': {'type': 'Unigram', 'unk_id': 3, 'byte_fallback': false, 'vocab': [");
    for (int32_t i = 0; i < 4; i++) add(t, "['%s', 0.0], ", s_roberta[i]);
    for (int32_t i = 0; i < LETTER_COUNT; i++) add(t, "%s['\\u%04x', -4.0]", i ? ", " : "", (unsigned)letter(i));
    add(t, "]}}\n");
}

// ---- Texts ----------------------------------------------------------------------------------------------------------

bool synthetic_texts_make(const synthetic_config* config, synthetic_texts* out)
{
    *out = (synthetic_texts){.count = 0};
    switch (config->family) {
    case SYNTHETIC_Z_IMAGE: add_z_image(out, config), add_byte_tokenizer(out, config); break;
    case SYNTHETIC_QWEN_IMAGE: add_qwen_image(out, config), add_byte_tokenizer(out, config); break;
    case SYNTHETIC_NEWBIE: add_newbie(out, config), add_letter_tokenizers(out); break;
    case SYNTHETIC_KLEIN: add_klein(out, config), add_byte_tokenizer(out, config); break;
    case SYNTHETIC_QWEN_IMAGE_21: add_qwen_image_21(out, config), add_byte_tokenizer(out, config); break;
    }
    bool made = true;
    for (int32_t i = 0; i < out->count; i++) made = made && out->of[i].text;
    return made;
}

void synthetic_texts_free(synthetic_texts* texts)
{
    for (int32_t i = 0; i < texts->count; i++) free(texts->of[i].text);
}
