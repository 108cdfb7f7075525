// What llama.cpp calls tensors.
#ifndef LLAMA_NAMES_H
#define LLAMA_NAMES_H
#include "models/weights.h"
#include <stdio.h>
#include <string.h>

// What llama.cpp calls a tensor of a language model whose names begin with `prefix`, "model." or so. False: it has no
// name there.
static inline bool llama_name(const char* name, const char* prefix, char* out, size_t out_bytes)
{
    static const char* const s_modules[][2] = {
        {"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
        {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
        {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
        {"self_attn.k_norm", "attn_k_norm"}, {"mlp.gate_proj", "ffn_gate"},
        {"mlp.up_proj", "ffn_up"},           {"post_attention_layernorm", "ffn_norm"},
        {"mlp.down_proj", "ffn_down"}};
    int layer, used = 0;
    if (strcmp(name, "lm_head.weight") == 0) return snprintf(out, out_bytes, "output.weight") > 0;
    if (strncmp(name, prefix, strlen(prefix)) != 0) return false;
    const char* own = name + strlen(prefix);
    if (strcmp(own, "embed_tokens.weight") == 0) return snprintf(out, out_bytes, "token_embd.weight") > 0;
    if (strcmp(own, "norm.weight") == 0) return snprintf(out, out_bytes, "output_norm.weight") > 0;
    if (sscanf(own, "layers.%d.%n", &layer, &used) != 1 || used == 0) return false;
    for (size_t i = 0; i < sizeof s_modules / sizeof *s_modules; i++) {
        const size_t length = strlen(s_modules[i][0]);
        if (strncmp(own + used, s_modules[i][0], length) == 0 && own[used + (int)length] == '.')
            return snprintf(out, out_bytes, "blk.%d.%s%s", layer, s_modules[i][1], own + used + length) > 0;
    }
    return false;
}

// What llama.cpp calls a tensor of Qwen3-VL's vision tower. Its mergers of DeepStack have the numbers of the blocks that
// they read.
static inline void llama_tower_name(const char* name, const int32_t* deep_blocks, char* out, size_t bytes)
{
    static const char* const s_names[][2] = {{"patch_embed.proj.", "v.patch_embd."},
                                             {"pos_embed.", "v.position_embd."},
                                             {"merger.norm.", "v.post_ln."},
                                             {"merger.linear_fc1.", "mm.0."},
                                             {"merger.linear_fc2.", "mm.2."},
                                             {"norm1.", "ln1."},
                                             {"norm2.", "ln2."},
                                             {"attn.qkv.", "attn_qkv."},
                                             {"attn.proj.", "attn_out."},
                                             {"mlp.linear_fc1.", "ffn_up."},
                                             {"mlp.linear_fc2.", "ffn_down."}};
    int number, used = 0;
    if (sscanf(name, "deepstack_merger_list.%d.%n", &number, &used) == 1 && used > 0) {
        const char* rest = name + used;
        snprintf(out, bytes, "v.deepstack.%d.%s", (int)deep_blocks[number],
                 strncmp(rest, "linear_", 7) == 0 ? rest + 7 : rest);
        return;
    }
    char block[160];
    snprintf(block, sizeof block, "%s", name);
    (void)sumi_replace_text(name, "blocks.", "v.blk.", block, sizeof block);
    snprintf(out, bytes, "%s", block);
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++)
        if (sumi_replace_text(block, s_names[i][0], s_names[i][1], out, bytes)) return;
}
#endif
