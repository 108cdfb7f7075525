// Quantised files of NewBie-image draw what files with the quantised values in float32 draw.
#include "files_fixture.h"
#include "newbie_fixture.h"

// ---- Names ----------------------------------------------------------------------------------------------------------

// llama.cpp has the language model alone.
static bool llama_gemma(const char* name, char* out, size_t out_bytes)
{
    static const char* const s_modules[][2] = {{"input_layernorm", "attn_norm"},
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
    for (size_t i = 0; i < sizeof s_modules / sizeof *s_modules; i++) {
        const size_t length = strlen(s_modules[i][0]);
        if (strncmp(name + used, s_modules[i][0], length) == 0 && name[used + (int)length] == '.')
            return snprintf(out, out_bytes, "blk.%d.%s%s", layer, s_modules[i][1], name + used + length) > 0;
    }
    CHECK(!"a tensor with a name in llama.cpp");
    return false;
}

// ---- GGUF -----------------------------------------------------------------------------------------------------------

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
    static const sumi_dtype s_types[] = {SUMI_DTYPE_F32, SUMI_DTYPE_BF16, SUMI_DTYPE_F16, SUMI_DTYPE_Q8_0};
    for (size_t i = 0; i < sizeof s_types / sizeof *s_types; i++) {
        s_matrix_dtype = s_types[i];
        const bool is_exact = s_types[i] == SUMI_DTYPE_F32 || s_types[i] == SUMI_DTYPE_BF16;
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
                s_matrix_dtype = s_types[i];
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
                printf("  %s as %s: latents are off by %.2g\n", component, sumi_dtype_get(s_types[i])->name, off);
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
    if (!begin_newbie()) return 1;
    s_is_linear = is_linear;
    RUN(gguf_files_of_every_type_draw_what_their_values_do);
    RUN(fp8_without_scales_holds_norms_and_biases_too);
    RUN(scaled_fp8_is_understood_in_every_form);
    RUN(int8_is_understood_rotated_and_not);
    end_newbie();
    TEST_END();
}
