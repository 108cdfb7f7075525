// The quantised files that FLUX.2 [klein] comes in, made of the golden single file and of a transformer of random numbers
// that is wide enough for all formats. Each draws, to the bit, what a file with its values in float32 draws that has the
// other layout: diffusers' names, q, k and v apart, the halves of the final modulation swapped.
#define LATENTS ((size_t)128 * (WIDTH / 16) * (HEIGHT / 16))
#include "files_fixture.h"
#include "models/weights.h"

#define KLEIN "tests/golden/flux2-klein/"
#define KLEIN_MODEL KLEIN "model"

static host s_files_host;

// ---- Layouts --------------------------------------------------------------------------------------------------------

// The authors' names and diffusers', where a tensor is the same in both. # is the number of a block.
static const char* const s_names[][2] = {
    {"img_in", "x_embedder"},
    {"txt_in", "context_embedder"},
    {"time_in.in_layer", "time_guidance_embed.timestep_embedder.linear_1"},
    {"time_in.out_layer", "time_guidance_embed.timestep_embedder.linear_2"},
    {"double_stream_modulation_img.lin", "double_stream_modulation_img.linear"},
    {"double_stream_modulation_txt.lin", "double_stream_modulation_txt.linear"},
    {"single_stream_modulation.lin", "single_stream_modulation.linear"},
    {"final_layer.linear", "proj_out"},
    {"double_blocks.#.img_attn.proj", "transformer_blocks.#.attn.to_out.0"},
    {"double_blocks.#.txt_attn.proj", "transformer_blocks.#.attn.to_add_out"},
    {"double_blocks.#.img_attn.norm.query_norm", "transformer_blocks.#.attn.norm_q"},
    {"double_blocks.#.img_attn.norm.key_norm", "transformer_blocks.#.attn.norm_k"},
    {"double_blocks.#.txt_attn.norm.query_norm", "transformer_blocks.#.attn.norm_added_q"},
    {"double_blocks.#.txt_attn.norm.key_norm", "transformer_blocks.#.attn.norm_added_k"},
    {"double_blocks.#.img_mlp.0", "transformer_blocks.#.ff.linear_in"},
    {"double_blocks.#.img_mlp.2", "transformer_blocks.#.ff.linear_out"},
    {"double_blocks.#.txt_mlp.0", "transformer_blocks.#.ff_context.linear_in"},
    {"double_blocks.#.txt_mlp.2", "transformer_blocks.#.ff_context.linear_out"},
    {"single_blocks.#.linear1", "single_transformer_blocks.#.attn.to_qkv_mlp_proj"},
    {"single_blocks.#.linear2", "single_transformer_blocks.#.attn.to_out"},
    {"single_blocks.#.norm.query_norm", "single_transformer_blocks.#.attn.norm_q"},
    {"single_blocks.#.norm.key_norm", "single_transformer_blocks.#.attn.norm_k"},
};

// `pattern` with the number of the block in `name` in place of its #.
static const char* of_block(const char* pattern, const char* name, char* out, size_t out_bytes)
{
    char number[16];
    const char* dot = strstr(name, "_blocks.");
    snprintf(number, sizeof number, "%d", dot != NULL ? atoi(dot + strlen("_blocks.")) : 0);
    if (!sumi_replace_text(pattern, "#", number, out, out_bytes)) snprintf(out, out_bytes, "%s", pattern);
    return out;
}

static bool is_module(const char* name, const char* pattern)
{
    char module[160];
    of_block(pattern, name, module, sizeof module);
    return begins(name, module) && name[strlen(module)] == '.';
}

// Rows [begin, begin + rows) of a matrix, or the whole tensor with rows 0, in float32.
static void put_rows(bag* out, const char* name, const sumi_tensor* t, int64_t begin, int64_t rows)
{
    sumi_tensor shape = *t;
    const int64_t cols = t->rank == 2 ? t->shape[1] : 1, first = begin * cols;
    if (rows > 0) shape.shape[0] = rows;
    const size_t count = value_count(&shape);
    float* x = malloc(value_count(t) * sizeof *x);
    sumi_dtype_to_float(t->dtype, t->data, x, value_count(t));
    put(out, name, SUMI_DTYPE_F32, &shape, x + first, count * sizeof *x);
    free(x);
}

// Adds a tensor of the authors' layout as diffusers has it.
static void put_as_diffusers(bag* out, const sumi_tensor* t, const char* name)
{
    static const char* const s_fused[2][4] = {
        {"double_blocks.#.img_attn.qkv", "transformer_blocks.#.attn.to_q.weight",
         "transformer_blocks.#.attn.to_k.weight", "transformer_blocks.#.attn.to_v.weight"},
        {"double_blocks.#.txt_attn.qkv", "transformer_blocks.#.attn.add_q_proj.weight",
         "transformer_blocks.#.attn.add_k_proj.weight", "transformer_blocks.#.attn.add_v_proj.weight"}};
    char to[192], pattern[160];
    for (int stream = 0; stream < 2; stream++) {
        const int64_t rows = t->shape[0] / 3;
        for (int i = 0; i < 3 && is_module(name, s_fused[stream][0]); i++)
            put_rows(out, of_block(s_fused[stream][1 + i], name, to, sizeof to), t, i * rows, rows);
        if (is_module(name, s_fused[stream][0])) return;
    }
    if (is_module(name, "final_layer.adaLN_modulation.1")) { // shift, scale -> scale, shift
        const size_t count = value_count(t), half = count / 2;
        float *x = malloc(count * sizeof *x), *swapped = malloc(count * sizeof *x);
        sumi_dtype_to_float(t->dtype, t->data, x, count);
        memcpy(swapped, x + half, half * sizeof *x);
        memcpy(swapped + half, x, half * sizeof *x);
        put(out, "norm_out.linear.weight", SUMI_DTYPE_F32, t, swapped, count * sizeof *x);
        free(x), free(swapped);
        return;
    }
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        if (!is_module(name, s_names[i][0])) continue;
        snprintf(pattern, sizeof pattern, "%s.weight", s_names[i][1]); // of norms in place of ".scale"
        put_rows(out, of_block(pattern, name, to, sizeof to), t, 0, 0);
        return;
    }
    printf("  %s\n", name);
    CHECK(!"a tensor of this layout");
}

static void write_as_diffusers(const bag* values, const char* prefix, const char* path)
{
    bag* out = empty_bag(2);
    for (size_t i = 0; i < values->count; i++)
        put_as_diffusers(out, &values->tensors[i], values->tensors[i].name + strlen(prefix));
    write_tensors(out, path, NULL);
}

// ---- Transformers ---------------------------------------------------------------------------------------------------

enum { SINGLE_FILE, WIDE }; // which transformer

static void take_single_file(bag* b, const char* prefix)
{
    sumi_error error = {0};
    sumi_tensor_set set;
    sumi_tensor_set_init(&set, &s_heap, NULL);
    CHECK_NUMBER(sumi_tensor_set_open(&set, KLEIN "single-file/flux-2-klein-4b.safetensors", &error), SUMI_OK);
    for (size_t i = 0; i < set.count; i++) {
        char name[192];
        snprintf(name, sizeof name, "%s%s", prefix, set.tensors[i].name);
        put(b, name, set.tensors[i].dtype, &set.tensors[i], set.tensors[i].data, set.tensors[i].bytes);
    }
    sumi_tensor_set_close(&set);
}

// One block of either kind, of the least width at which rows have whole blocks of 256 and products are done in 8 bits.
static void take_wide(bag* b, const char* prefix)
{
    enum { DIM = 256, MLP = 256, HEAD = 128, FEATURES = 72, CHANNELS = 128, TIME = 256 };
    static const char* const s_streams[] = {"img", "txt"};
    static const struct {
        const char* module; // # is the stream
        int64_t rows, cols;
    } s_layers[] = {{"double_stream_modulation_#.lin.weight", 6 * DIM, DIM},
                    {"double_blocks.0.#_attn.qkv.weight", 3 * DIM, DIM},
                    {"double_blocks.0.#_attn.proj.weight", DIM, DIM},
                    {"double_blocks.0.#_attn.norm.query_norm.scale", HEAD, 0},
                    {"double_blocks.0.#_attn.norm.key_norm.scale", HEAD, 0},
                    {"double_blocks.0.#_mlp.0.weight", 2 * MLP, DIM},
                    {"double_blocks.0.#_mlp.2.weight", DIM, MLP}};
    char name[96];
    put_random(b, prefix, "img_in.weight", DIM, CHANNELS, 1.0f);
    put_random(b, prefix, "txt_in.weight", DIM, FEATURES, 1.0f);
    put_random(b, prefix, "time_in.in_layer.weight", DIM, TIME, 1.0f);
    put_random(b, prefix, "time_in.out_layer.weight", DIM, DIM, 1.0f);
    put_random(b, prefix, "single_stream_modulation.lin.weight", 3 * DIM, DIM, 0.5f);
    put_random(b, prefix, "final_layer.adaLN_modulation.1.weight", 2 * DIM, DIM, 0.5f);
    put_random(b, prefix, "final_layer.linear.weight", CHANNELS, DIM, 1.0f);
    for (int i = 0; i < 2; i++) {
        for (size_t k = 0; k < sizeof s_layers / sizeof *s_layers; k++) {
            CHECK(sumi_replace_text(s_layers[k].module, "#", s_streams[i], name, sizeof name));
            put_random(b, prefix, name, s_layers[k].rows, s_layers[k].cols, k == 0 ? 0.5f : 1.0f); // of modulation
        }
    }
    put_random(b, prefix, "single_blocks.0.linear1.weight", 3 * DIM + 2 * MLP, DIM, 1.0f);
    put_random(b, prefix, "single_blocks.0.linear2.weight", DIM, DIM + MLP, 1.0f);
    put_random(b, prefix, "single_blocks.0.norm.query_norm.scale", HEAD, 0, 1.0f);
    put_random(b, prefix, "single_blocks.0.norm.key_norm.scale", HEAD, 0, 1.0f);
}

// In an empty bag.
static bag* take_klein(int which, const char* prefix)
{
    bag* b = empty_bag(0);
    if (which == WIDE) take_wide(b, prefix);
    else take_single_file(b, prefix);
    return b;
}

// ---- Pictures -------------------------------------------------------------------------------------------------------

static sumi_model_desc desc_of(const char* transformer)
{
    sumi_model_desc desc = sumi_model_defaults();
    desc.transformer_path = transformer;
    desc.text_encoder_path = KLEIN_MODEL "/text_encoder";
    desc.tokenizer_path = KLEIN_MODEL "/tokenizer";
    desc.vae_path = KLEIN_MODEL "/vae";
    return desc;
}

static bool draw_file(const sumi_model_desc* model_desc, drawing* out)
{
    memset(out, 0, sizeof *out);
    sumi_model* model = open_model(model_desc);
    if (model == NULL) printf("  %s\n", s_message[0] != 0 ? s_message : s_files_host.log);
    CHECK(model != NULL);
    if (model == NULL) return false;
    const sumi_image_item item = {.text = "a red fox", .seed = 7};
    sumi_image_desc image = small_image(model, &item);
    image.width = WIDTH;
    image.height = HEIGHT;
    const bool good = draw_desc(&image, out);
    sumi_model_close(model);
    return good;
}

// What the transformer draws in bfloat16, as it comes.
static const drawing* plain_drawing(int which)
{
    static drawing s_plain[2];
    static bool s_is_drawn[2];
    if (!s_is_drawn[which]) {
        write_tensors(take_klein(which, ""), scratch("plain", "model.safetensors"), NULL);
        const sumi_model_desc desc = desc_of(scratch("plain", "model.safetensors"));
        s_is_drawn[which] = draw_file(&desc, &s_plain[which]);
    }
    return &s_plain[which];
}

// How far pictures of quantised weights may be from bfloat16's. On the longest way through a transformer of two double
// and two single blocks a value passes 14 products, of which each is off by what its weights are off by, relatively;
// these errors are independent, so together they are the square root of 14 times as large. A picture has values from 0 to
// 1 with a contrast (the standard deviation) of a third or less, of which a relative error of the latents is a part.
// Measured: 0.8 to 2.5 times the error of the weights, and 2 to 14 dB better than these bounds.
#define PATH 3.75
#define CONTRAST 0.35
#define NO_ERROR_DB 99.0

static double decibels(const drawing* got, const drawing* want)
{
    double sum = 0.0;
    for (size_t i = 0; i < sizeof got->pixels; i++) {
        const double d = (double)got->pixels[i] - (double)want->pixels[i];
        sum += d * d;
    }
    const double mean = sum / ((double)sizeof got->pixels * 3 / 4); // alpha is equal
    return mean > 0.0 ? 10.0 * log10(255.0 * 255.0 / mean) : NO_ERROR_DB;
}

// How far the values in the bag are off from the transformer's, relative and in the quadratic mean.
static double weight_error(const bag* values, const bag* original)
{
    double off = 0.0, size = 0.0;
    CHECK_NUMBER(values->count, original->count);
    for (size_t i = 0; i < values->count && i < original->count; i++) {
        const sumi_tensor *v = &values->tensors[i], *o = &original->tensors[i];
        if (o->rank != 2) continue;
        float *x = malloc(value_count(o) * sizeof *x), *y = malloc(value_count(o) * sizeof *y);
        sumi_dtype_to_float(o->dtype, o->data, x, value_count(o));
        sumi_dtype_to_float(v->dtype, v->data, y, value_count(o));
        for (size_t k = 0; k < value_count(o); k++) {
            off += ((double)y[k] - (double)x[k]) * ((double)y[k] - (double)x[k]);
            size += (double)x[k] * (double)x[k];
        }
        free(x), free(y);
    }
    return sqrt(off / size);
}

// What the newest conversion wrote to "klein/FILE", whose values are in the second bag, against a file of these values
// in diffusers' layout.
typedef struct stored_file {
    const char *what, *file, *prefix;
    int which;
} stored_file;

static void check_stored(const stored_file* f)
{
    bag *values = &s_bags[1], *original = empty_bag(2);
    if (f->which == WIDE) take_wide(original, "");
    else take_single_file(original, "");
    const double of_weights = weight_error(values, original);
    drawing got, want;
    write_as_diffusers(values, f->prefix, scratch("klein", "twin.safetensors"));
    const sumi_model_desc stored = desc_of(scratch("klein", f->file)),
                          twin = desc_of(scratch("klein", "twin.safetensors"));
    if (!draw_file(&twin, &want) || !draw_file(&stored, &got)) return;
    const drawing* plain = plain_drawing(f->which);
    const double off = distance(&got, plain), db = decibels(&got, plain);
    const double most = PATH * of_weights, least_db = most > 0.0 ? -20.0 * log10(CONTRAST * most) : NO_ERROR_DB;
    if (is_same(&got, &want) && off <= most && db >= least_db) return;
    printf("  %s, %s: weights are off by %.4f, latents by %.4f of %.4f; the picture is %.1f dB from bfloat16's, not "
           "%.1f\n",
           f->what, f->which == WIDE ? "wide" : "single file", of_weights, off, most, db, least_db);
    t_errors++;
}

static bool is_matrix(const sumi_tensor* t) { return t->rank == 2; }

TEST(gguf_files_draw_what_their_values_do)
{
    static const struct {
        sumi_dtype dtype;
        int which;
        const char* prefix;
    } s_cases[] = {{SUMI_DTYPE_BF16, SINGLE_FILE, ""},
                   {SUMI_DTYPE_Q8_0, SINGLE_FILE, ""},
                   {SUMI_DTYPE_Q4_0, SINGLE_FILE, "model.diffusion_model."},
                   {SUMI_DTYPE_IQ4_NL, SINGLE_FILE, ""},
                   {SUMI_DTYPE_Q4_K, WIDE, ""},
                   {SUMI_DTYPE_Q6_K, WIDE, ""}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        bag *b = take_klein(s_cases[i].which, s_cases[i].prefix), *twin = empty_bag(1);
        s_matrix_dtype = s_cases[i].dtype;
        convert(b, gguf_choice, twin, "");
        write_gguf(b, scratch("klein", "model.gguf"), "flux");
        check_stored(
            &(stored_file){sumi_dtype_get(s_cases[i].dtype)->name, "model.gguf", s_cases[i].prefix, s_cases[i].which});
    }
}

// A factor for each block of 128 x 128.
static void write_fp8_blocks(bag* b, bag* twin, const char* path)
{
    enum { BLOCK = 128 };
    const size_t tensor_count = b->count;
    for (size_t i = 0; i < tensor_count; i++) {
        sumi_tensor* t = &b->tensors[i];
        if (t->rank != 2) {
            put(twin, t->name, t->dtype, t, t->data, t->bytes);
            continue;
        }
        const size_t cols = (size_t)t->shape[1], count = value_count(t), pitch = (cols + BLOCK - 1) / BLOCK,
                     blocks = ((size_t)t->shape[0] + BLOCK - 1) / BLOCK * pitch;
        float *x = malloc(count * sizeof *x), *scales = calloc(blocks, sizeof *scales);
        unsigned char* codes = malloc(count);
        sumi_dtype_to_float(t->dtype, t->data, x, count);
        for (size_t k = 0; k < count; k++) {
            float* scale = &scales[k / cols / BLOCK * pitch + k % cols / BLOCK];
            *scale = fmaxf(*scale, fabsf(x[k]) / 448.0f);
        }
        for (size_t k = 0; k < count; k++) {
            const float scale = scales[k / cols / BLOCK * pitch + k % cols / BLOCK];
            codes[k] = float_to_e4m3(x[k] / scale);
            x[k] = e4m3_to_float(codes[k]) * scale;
        }
        put(twin, t->name, SUMI_DTYPE_F32, t, x, count * sizeof *x);
        free((void*)(uintptr_t)t->data);
        t->data = codes;
        t->dtype = SUMI_DTYPE_F8_E4M3;
        t->bytes = count;
        char name[256];
        snprintf(name, sizeof name, "%s_scale", t->name);
        const sumi_tensor shape = {.rank = 2, .shape = {(int64_t)(blocks / pitch), (int64_t)pitch}};
        put(b, name, SUMI_DTYPE_F32, &shape, scales, blocks * sizeof *scales);
        free(x), free(scales);
    }
    write_tensors(b, path, NULL);
}

TEST(fp8_files_of_the_authors_and_of_comfyui_draw_what_their_values_do)
{
    static const char* const s_forms[FP8_FORMS] = {"fp8, scale_weight", "fp8, comfy_quant", "fp8, metadata",
                                                   "fp8 e5m2, comfy_quant"};
    for (int form = 0; form < FP8_FORMS; form++) {
        const char* prefix = form == 2 ? "" : "model.diffusion_model.";
        bag* b = take_klein(SINGLE_FILE, prefix);
        write_scaled_fp8(b, empty_bag(1), form, prefix, scratch("klein", "model.safetensors"),
                         scratch("klein", "twin.safetensors"));
        check_stored(&(stored_file){s_forms[form], "model.safetensors", prefix, SINGLE_FILE});
    }
    // the authors': a factor beside each matrix and one of its inputs, and no word about it
    bag *b = take_klein(SINGLE_FILE, ""), *twin = empty_bag(1);
    s_fp8 = SUMI_DTYPE_F8_E4M3;
    convert(b, scaled_fp8, twin, ".weight_scale");
    put_input_scales(b, ".input_scale");
    write_tensors(b, scratch("klein", "model.safetensors"), NULL);
    check_stored(&(stored_file){"fp8, weight_scale alone", "model.safetensors", "", SINGLE_FILE});
    // a factor for each block of 128 x 128, whose rows are cut between blocks
    b = take_klein(WIDE, "");
    write_fp8_blocks(b, empty_bag(1), scratch("klein", "model.safetensors"));
    check_stored(&(stored_file){"fp8 in blocks", "model.safetensors", "", WIDE});
    // without factors
    b = take_klein(SINGLE_FILE, "");
    convert(b, every_e4m3, empty_bag(1), "");
    write_tensors(b, scratch("klein", "model.safetensors"), NULL);
    check_stored(&(stored_file){"fp8 without factors", "model.safetensors", "", SINGLE_FILE});
}

TEST(int8_and_nvfp4_files_draw_what_their_values_do)
{
    for (int is_rotated = 0; is_rotated < 2; is_rotated++) {
        bag* b = take_klein(SINGLE_FILE, "");
        write_int8(b, empty_bag(1), is_rotated != 0, scratch("klein", "model.safetensors"),
                   scratch("klein", "twin.safetensors"));
        check_stored(&(stored_file){is_rotated != 0 ? "int8, rotated" : "int8", "model.safetensors", "", SINGLE_FILE});
    }
    for (int which = SINGLE_FILE; which <= WIDE; which++) {
        const char* prefix = which == WIDE ? "" : "model.diffusion_model.";
        write_nvfp4(take_klein(which, prefix), empty_bag(1), scratch("klein", "model.safetensors"),
                    scratch("klein", "twin.safetensors"));
        check_stored(&(stored_file){"nvfp4", "model.safetensors", prefix, which});
    }
}

// Newer exports call the factors of norms weights.
TEST(norms_may_be_called_weights)
{
    bag* b = take_klein(SINGLE_FILE, "diffusion_model.");
    for (size_t i = 0; i < b->count; i++) {
        char name[192];
        if (!sumi_replace_text(b->tensors[i].name, "_norm.scale", "_norm.weight", name, sizeof name)) continue;
        free((void*)(uintptr_t)b->tensors[i].name);
        char* copy = malloc(strlen(name) + 1);
        memcpy(copy, name, strlen(name) + 1);
        b->tensors[i].name = copy;
    }
    write_gguf(b, scratch("klein", "model.gguf"), "flux");
    drawing got;
    const sumi_model_desc desc = desc_of(scratch("klein", "model.gguf"));
    CHECK(draw_file(&desc, &got) && is_same(&got, plain_drawing(SINGLE_FILE)));
}

// ---- Adapters -------------------------------------------------------------------------------------------------------

// Two factors of a change: B A, or the Kronecker product of w1 and w2. Rows of the change are cut and swapped by rows of
// the first one.
typedef struct change {
    const char* module; // of the authors
    int64_t rows, cols; // of the first factor
    int64_t other_rows, other_cols;
} change;

typedef struct dialect {
    const char* prefix;
    bool is_authors;     // names of the authors, not of diffusers
    bool is_flat;        // with _ in place of dots
    const char* first;   // the first factor's name
    const char* second;  // the second one's
    const char* to_rank; // the name of a number that is the rank, so that the scale is 1; NULL: none
} dialect;

#define LORA_DIALECTS 4
static const dialect s_dialects[] = {
    {"diffusion_model.", true, false, "lora_B.weight", "lora_A.weight", NULL}, // ai-toolkit, ComfyUI
    {"base_model.model.", true, false, "lora_B.weight", "lora_A.weight", NULL},
    {"lora_unet_", true, true, "lora_up.weight", "lora_down.weight", "alpha"}, // kohya: with modulations, too
    {"transformer.", false, false, "lora_B.weight", "lora_A.weight", NULL},    // PEFT, which diffusers saves
    {"diffusion_model.", true, false, "lokr_w1", "lokr_w2", NULL},
    {"lycoris_", false, true, "lokr_w1", "lokr_w2", NULL},
    {"", false, false, "lokr_w1", "lokr_w2", NULL}};

static void put_change(bag* out, const dialect* d, const char* module, const change* c, const float* first,
                       const float* second)
{
    put_factor(out, &(factor_name){d->prefix, module, d->first, d->is_flat}, c->rows, c->cols, first);
    put_factor(out, &(factor_name){d->prefix, module, d->second, d->is_flat}, c->other_rows, c->other_cols, second);
    if (d->to_rank != NULL)
        put_factor(out, &(factor_name){d->prefix, module, d->to_rank, d->is_flat}, 1, 1, &(float){(float)c->cols});
}

static void put_change_as_diffusers(bag* out, const dialect* d, const change* c, const float* first,
                                    const float* second)
{
    static const char* const s_thirds[] = {"to_q", "to_k", "to_v"};
    const size_t count = (size_t)(c->rows * c->cols);
    char module[160];
    if (strstr(c->module, "qkv") != NULL) {
        for (int i = 0; i < 3; i++) {
            change third = *c;
            third.rows /= 3;
            snprintf(module, sizeof module, "transformer_blocks.0.attn.%s", s_thirds[i]);
            put_change(out, d, module, &third, first + (size_t)i * count / 3, second);
        }
    } else if (strstr(c->module, "adaLN") != NULL) { // shift, scale -> scale, shift
        float* swapped = malloc(count * sizeof *swapped);
        memcpy(swapped, first + count / 2, count / 2 * sizeof *first);
        memcpy(swapped + count / 2, first, count / 2 * sizeof *first);
        put_change(out, d, "norm_out.linear", c, swapped, second);
        free(swapped);
    } else {
        for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
            of_block(s_names[i][0], c->module, module, sizeof module);
            if (strcmp(module, c->module) != 0) continue;
            put_change(out, d, of_block(s_names[i][1], c->module, module, sizeof module), c, first, second);
        }
    }
}

// The same changes in every dialect of a kind.
static void write_adapter(const dialect* d, const char* path)
{
    static const change s_changes[2][6] = {{{"double_blocks.0.img_attn.qkv", 96, 2, 2, 32},
                                            {"single_blocks.0.linear1", 288, 2, 2, 32},
                                            {"final_layer.adaLN_modulation.1", 64, 2, 2, 32},
                                            {"double_stream_modulation_img.lin", 192, 2, 2, 32},
                                            {"single_stream_modulation.lin", 96, 2, 2, 32},
                                            {"time_in.in_layer", 32, 2, 2, 256}},
                                           {{"double_blocks.0.img_attn.qkv", 3, 2, 32, 16},
                                            {"single_blocks.0.linear1", 2, 2, 144, 16},
                                            {"final_layer.adaLN_modulation.1", 2, 2, 32, 16},
                                            {"double_stream_modulation_img.lin", 2, 2, 96, 16},
                                            {"single_stream_modulation.lin", 2, 2, 48, 16},
                                            {"time_in.in_layer", 2, 2, 16, 128}}};
    const bool is_kronecker = strncmp(d->first, "lokr", 4) == 0;
    bag* out = empty_bag(2);
    uint64_t state = 1;
    for (size_t i = 0; i < 6; i++) {
        const change* c = &s_changes[is_kronecker][i];
        const size_t counts[2] = {(size_t)(c->rows * c->cols), (size_t)(c->other_rows * c->other_cols)};
        float* x[2];
        for (int k = 0; k < 2; k++) {
            x[k] = malloc(counts[k] * sizeof **x);
            for (size_t j = 0; j < counts[k]; j++) {
                state = state * 6364136223846793005u + 1442695040888963407u;
                x[k][j] = 0.5f * ((float)(state >> 40) / (float)(1 << 23) - 1.0f);
            }
        }
        if (d->is_authors) put_change(out, d, c->module, c, x[0], x[1]);
        else put_change_as_diffusers(out, d, c, x[0], x[1]);
        free(x[0]), free(x[1]);
    }
    write_tensors(out, path, NULL);
}

static bool draw_adapted(const char* transformer, const dialect* d, drawing* out)
{
    memset(out, 0, sizeof *out);
    const char* path = scratch("adapters", "adapter.safetensors");
    write_adapter(d, path);
    const sumi_model_desc model_desc = desc_of(transformer);
    sumi_model* model = open_model(&model_desc);
    CHECK(model != NULL);
    sumi_lora* lora = model != NULL ? read_lora_at(s_engine, model, path) : NULL;
    CHECK(lora != NULL);
    if (lora == NULL) printf("  %s%s: %s\n", d->prefix, d->first, s_files_host.log);
    bool good = false;
    if (lora != NULL) {
        const sumi_image_item item = {.text = "a red fox", .seed = 7};
        const sumi_lora_use use = {.lora = lora, .scale = 1.0f};
        sumi_image_desc image = small_image(model, &item);
        image.width = WIDTH;
        image.height = HEIGHT;
        image.loras = &use;
        image.lora_count = 1;
        good = draw_desc(&image, out);
    }
    sumi_lora_release(lora);
    sumi_model_close(model);
    return good;
}

// Fused q, k and v are cut, and the halves of the final modulation swapped, where the names and the model have different
// layouts, and nowhere else. golden_run compares diffusers' layout with the reference.
TEST(adapters_of_every_dialect_change_either_layout_alike)
{
    write_tensors(take_klein(SINGLE_FILE, ""), scratch("adapters", "authors.safetensors"), NULL);
    write_as_diffusers(&s_bags[0], "", scratch("adapters", "diffusers.safetensors"));
    drawing want[2], got;
    for (int i = 0; i < (int)(sizeof s_dialects / sizeof *s_dialects); i++) {
        const dialect* d = &s_dialects[i];
        drawing* first = &want[i >= LORA_DIALECTS];
        if (i == 0 || i == LORA_DIALECTS) {
            CHECK(draw_adapted(scratch("adapters", "authors.safetensors"), d, first));
            CHECK(distance(first, plain_drawing(SINGLE_FILE)) > 0.1);
        }
        const char* layout = d->is_authors ? "diffusers.safetensors" : "authors.safetensors";
        CHECK(draw_adapted(scratch("adapters", layout), d, &got));
        const double off = distance(&got, first);
        if (off > 1e-5) printf("  %s..%s: %g from the authors' names\n", d->prefix, d->first, off);
        CHECK(off <= 1e-5);
    }
}

// ---- What is refused ------------------------------------------------------------------------------------------------

TEST(what_is_not_read_is_refused_with_what_to_do)
{
    const char* const path = scratch("refused", "model.safetensors");
    const sumi_model_desc desc = desc_of(path);
    // 128 rows of linear1 share a factor, and q, k and v end after 96
    write_fp8_blocks(take_klein(SINGLE_FILE, ""), empty_bag(1), path);
    check_refused(&desc, (const char* const[]){"single_blocks.0.linear1.weight", "the first 96 and the other 192 rows",
                                               "128 rows share a factor", "use a file", NULL});
    // nvfp4 whose order of elements no name tells
    bag* b = take_klein(WIDE, "");
    write_nvfp4(b, empty_bag(1), path, scratch("refused", "twin.safetensors"));
    for (size_t i = 0; i < s_bags[2].count; i++) {
        char* name = (char*)(uintptr_t)s_bags[2].tensors[i].name;
        if (strstr(name, ".comfy_quant") != NULL) memcpy(strstr(name, ".comfy_quant"), ".input_scale", 12);
    }
    write_tensors(&s_bags[2], path, NULL);
    check_refused(&desc,
                  (const char* const[]){"nvfp4 by a program that the file does not name", "take the bf16", NULL});
    // other models of the same names
    b = take_klein(SINGLE_FILE, "");
    put(b, "guidance_in.in_layer.weight", SUMI_DTYPE_BF16, &b->tensors[0], b->tensors[0].data, b->tensors[0].bytes);
    write_gguf(b, scratch("refused", "model.gguf"), "flux");
    const sumi_model_desc dev = desc_of(scratch("refused", "model.gguf"));
    check_refused(&dev, (const char* const[]){"guidance", "use FLUX.2-klein-4B", NULL});
}

// Every text is filled up with this token, so that a tokenizer without it is no tokenizer of this model.
TEST(a_tokenizer_without_the_token_of_padding_is_refused)
{
    static const char s_pad[] = "<|endoftext|>", s_other[] = "<|beginning|>";
    static char s_text[1 << 16];
    FILE* file = system_open(KLEIN_MODEL "/tokenizer/tokenizer.json", "rb");
    CHECK(file != NULL);
    const size_t bytes = file != NULL ? fread(s_text, 1, sizeof s_text - 1, file) : 0;
    if (file != NULL) fclose(file);
    char* at = strstr(s_text, s_pad);
    CHECK(at != NULL && bytes < sizeof s_text - 1 && sizeof s_pad == sizeof s_other);
    if (at == NULL) return;
    memcpy(at, s_other, sizeof s_other - 1);
    CHECK(strstr(s_text, s_pad) == NULL);
    write_file(scratch("words", "tokenizer.json"), s_text, bytes);
    sumi_model_desc desc = desc_of(KLEIN_MODEL "/transformer");
    desc.tokenizer_path = scratch("words", "tokenizer.json");
    check_refused(&desc, (const char* const[]){"tokenizer.json", "does not have the token <|endoftext|>",
                                               "take the tokenizer that was released with the model", NULL});
    CHECK_NUMBER(s_result, SUMI_FILE_MALFORMED);
}

// ---- A GPU ----------------------------------------------------------------------------------------------------------

// Bytes of the weights that a job keeps on the GPU.
static uint64_t weights_on_gpu(sumi_model* model)
{
    const sumi_image_item item = {.text = "a red fox", .seed = 7};
    sumi_image_desc image = small_image(model, &item);
    image.width = WIDTH;
    image.height = HEIGHT;
    sumi_memory memory = {0};
    CHECK_NUMBER(sumi_image_memory(s_engine, &image, &memory), SUMI_OK);
    return memory.weights;
}

// The golden checkpoints are too narrow for int8, and have few matrices that int4 and fp8 take: of these formats no other
// tiny transformer of this family shows anything. Against the CPU's latents of the same file; as stored, the weights are
// the same, so what is left is bfloat16.
TEST(a_gpu_draws_in_every_format_what_the_cpu_draws)
{
    // golden_run's bounds for one prediction (error_of_format), and for bfloat16 four times the largest error that the
    // reference has with it in flux2-klein-wide (t2i_distilled, 0.0129)
    static const struct {
        sumi_weight_format format;
        const char *name, *file;
        double most;
    } s_cases[] = {{SUMI_WEIGHTS_BF16, "bf16", "model.safetensors", 0.05},
                   {SUMI_WEIGHTS_FP8, "fp8", "model.safetensors", 0.15},
                   {SUMI_WEIGHTS_INT8, "int8", "model.safetensors", 0.06},
                   {SUMI_WEIGHTS_INT4, "int4", "model.safetensors", 0.45},
                   {SUMI_WEIGHTS_AS_STORED, "q4_k as stored", "q4_k.gguf", 0.05},
                   {SUMI_WEIGHTS_AS_STORED, "nvfp4 as stored", "nvfp4.safetensors", 0.05},
                   {SUMI_WEIGHTS_INT8, "int8 of nvfp4", "nvfp4.safetensors", 0.06}};
    static host s_gpu_host;
    sumi_engine_desc desc = host_desc(&s_gpu_host);
    desc.backend = SUMI_BACKEND_CUDA;
    sumi_engine *gpu = NULL, *cpu = s_engine;
    const sumi_result result = sumi_engine_create(&desc, &gpu);
    if (result == SUMI_NO_DEVICE || result == SUMI_NOT_SUPPORTED || result == SUMI_DRIVER_TOO_OLD
        || result == SUMI_DEVICE_UNSUPPORTED)
        SKIP(sumi_result_text(result));
    CHECK_NUMBER(result, SUMI_OK);
    if (gpu == NULL) return;
    write_tensors(take_klein(WIDE, ""), scratch("gpu", "model.safetensors"), NULL);
    s_matrix_dtype = SUMI_DTYPE_Q4_K;
    convert(take_klein(WIDE, ""), gguf_choice, empty_bag(1), "");
    write_gguf(&s_bags[0], scratch("gpu", "q4_k.gguf"), "flux");
    write_nvfp4(take_klein(WIDE, ""), empty_bag(1), scratch("gpu", "nvfp4.safetensors"), scratch("gpu", "twin"));
    uint64_t bf16_bytes = 0;
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        if (s_cases[i].format == SUMI_WEIGHTS_FP8 && sumi_engine_get_info(gpu).compute_capability < 89) continue;
        sumi_model_desc model_desc = desc_of(scratch("gpu", s_cases[i].file));
        drawing want, got;
        s_engine = cpu;
        CHECK(draw_file(&model_desc, &want));
        s_engine = gpu;
        model_desc.weights = s_cases[i].format;
        CHECK(draw_file(&model_desc, &got));
        sumi_model* model = open_model(&model_desc);
        const uint64_t bytes = model != NULL ? weights_on_gpu(model) : 0;
        sumi_model_close(model);
        if (i == 0) bf16_bytes = bytes;
        const double off = distance(&got, &want);
        printf("  %s: %.4f from the CPU, at most %.2f; weights of %.2f MB\n", s_cases[i].name, off, s_cases[i].most,
               1e-6 * (double)bytes);
        CHECK(off <= s_cases[i].most);
        CHECK(i == 0 || bytes < bf16_bytes); // the format is used
    }
    s_engine = cpu;
    sumi_engine_destroy(gpu);
    CHECK_NUMBER(s_gpu_host.live, 0);
    CHECK_NUMBER(s_gpu_host.wrong_releases, 0);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_files(&s_files_host, is_matrix)) return 1;
    RUN(gguf_files_draw_what_their_values_do);
    RUN(fp8_files_of_the_authors_and_of_comfyui_draw_what_their_values_do);
    RUN(int8_and_nvfp4_files_draw_what_their_values_do);
    RUN(norms_may_be_called_weights);
    RUN(adapters_of_every_dialect_change_either_layout_alike);
    RUN(what_is_not_read_is_refused_with_what_to_do);
    RUN(a_tokenizer_without_the_token_of_padding_is_refused);
    RUN(a_gpu_draws_in_every_format_what_the_cpu_draws);
    end_files(&s_files_host);
    TEST_END();
}
