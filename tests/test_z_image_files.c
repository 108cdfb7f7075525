// The quantised files that Z-Image comes in, made of the tiny checkpoint's tensors: each draws what a file with its
// values in float32 draws, to the bit. test_network_names has the layouts and names.
#include "files_fixture.h"

#define MODEL "tests/golden/z-image/model/"

static host s_files_host;
static sumi_dtype s_matrix_dtype;

enum { TRANSFORMER, TEXT_ENCODER, PART_COUNT };
static const char* const s_folders[PART_COUNT] = {"transformer", "text_encoder"};
static const char* const s_stems[PART_COUNT] = {"diffusion_pytorch_model", "model"};
static const char* const s_prefixes[PART_COUNT] = {"model.diffusion_model.", ""};

static bool is_linear(const sumi_tensor* t)
{
    return t->rank == 2 && strstr(t->name, "embed") == NULL && strstr(t->name, "pad_token") == NULL;
}

// Some tensors have values that e4m3 has no places for.
static sumi_dtype every_e5m2(const sumi_tensor* t, float* scale)
{
    (void)t;
    *scale = 1.0f;
    return SUMI_DTYPE_F8_E5M2;
}

// As converters do: matrices in the type where its blocks fit a row, else in float16; vectors in float32.
static sumi_dtype gguf_choice(const sumi_tensor* t, float* scale)
{
    *scale = 1.0f;
    if (t->rank < 2) return SUMI_DTYPE_F32;
    return t->shape[t->rank - 1] % sumi_dtype_get(s_matrix_dtype)->block == 0 ? s_matrix_dtype : SUMI_DTYPE_F16;
}

// A component's tensors in an empty bag.
static bag* take_part(int part)
{
    char folder[128];
    bag* b = empty_bag(0);
    snprintf(folder, sizeof folder, MODEL "%s", s_folders[part]);
    take(b, folder, s_stems[part], s_prefixes[part], NULL);
    return b;
}

static bool draw_files(const sumi_model_desc* desc, drawing* out)
{
    memset(out, 0, sizeof *out);
    sumi_model* model = open_model(desc);
    if (model == NULL) printf("  %s\n", s_message);
    CHECK(model != NULL);
    if (model == NULL) return false;
    const sumi_image_item item = {.text = "A red fox reads, 超清", .seed = 7};
    sumi_image_desc image = small_image(model, &item);
    image.width = WIDTH;
    image.height = HEIGHT;
    const bool good = draw_desc(&image, out);
    sumi_model_close(model);
    return good;
}

static const drawing* plain_drawing(void)
{
    static drawing s_plain;
    static bool s_is_drawn;
    if (!s_is_drawn) {
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = MODEL;
        s_is_drawn = draw_files(&desc, &s_plain);
    }
    return &s_plain;
}

// The file in the folder "stored" in place of the component: against its values in twin.safetensors, which are off from
// the checkpoint's by less than `limit` of the latents.
static void check_stored(int part, const char* file, const char* what, double limit)
{
    char config[128];
    drawing want, got;
    sumi_model_desc desc = sumi_model_defaults();
    const char** path = part == TRANSFORMER ? &desc.transformer_path : &desc.text_encoder_path;
    desc.path = MODEL;
    snprintf(config, sizeof config, MODEL "%s/config.json", s_folders[part]);
    copy_file(config, scratch("stored", "config.json"));
    *path = scratch("stored", "twin.safetensors");
    CHECK(draw_files(&desc, &want));
    const double off = distance(&want, plain_drawing());
    *path = scratch("stored", file);
    CHECK(draw_files(&desc, &got));
    if (is_same(&got, &want) && (limit == 0.0 ? off == 0.0 : off < limit)) return;
    printf("  %s as %s: latents are off by %.2g, their values by %.2g\n", s_folders[part], what, distance(&got, &want),
           off);
    t_errors++;
}

TEST(gguf_files_draw_what_their_values_do)
{
    static const sumi_dtype s_types[] = {SUMI_DTYPE_F32, SUMI_DTYPE_Q8_0, SUMI_DTYPE_IQ4_NL};
    for (size_t i = 0; i < sizeof s_types / sizeof *s_types; i++) {
        bag *b = take_part(TRANSFORMER), *twin = empty_bag(1);
        s_matrix_dtype = s_types[i];
        convert(b, gguf_choice, twin, "");
        write_gguf(b, scratch("stored", "model.gguf"), "lumina2");
        write_tensors(twin, scratch("stored", "twin.safetensors"), NULL);
        check_stored(TRANSFORMER, "model.gguf", sumi_dtype_get(s_types[i])->name,
                     s_types[i] == SUMI_DTYPE_F32    ? 0.0
                     : s_types[i] == SUMI_DTYPE_Q8_0 ? 0.1
                                                     : 1.0);
    }
}

TEST(fp8_without_scales_holds_norms_and_biases_too)
{
    for (int part = 0; part < PART_COUNT; part++) {
        bag *b = take_part(part), *twin = empty_bag(1);
        convert(b, every_e5m2, twin, "");
        write_tensors(b, scratch("stored", "model.safetensors"), NULL);
        write_tensors(twin, scratch("stored", "twin.safetensors"), NULL);
        check_stored(part, "model.safetensors", "plain fp8", 0.5);
    }
}

TEST(scaled_fp8_is_understood_in_every_form)
{
    for (int part = 0; part < PART_COUNT; part++) {
        for (int form = 0; form < FP8_FORMS; form++) {
            write_scaled_fp8(take_part(part), empty_bag(1), form, s_prefixes[part],
                             scratch("stored", "model.safetensors"), scratch("stored", "twin.safetensors"));
            check_stored(part, "model.safetensors", "fp8", form == 3 ? 1.0 : 0.5);
        }
    }
}

TEST(int8_is_understood_rotated_and_not)
{
    for (int part = 0; part < PART_COUNT; part++) {
        for (int is_rotated = 0; is_rotated < 2; is_rotated++) {
            write_int8(take_part(part), empty_bag(1), is_rotated != 0, scratch("stored", "model.safetensors"),
                       scratch("stored", "twin.safetensors"));
            check_stored(part, "model.safetensors", is_rotated != 0 ? "rotated int8" : "int8", 0.1);
        }
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    s_is_linear = is_linear;
    sumi_engine_desc desc = host_desc(&s_files_host);
    if (sumi_engine_create(&desc, &s_engine) != SUMI_OK) return 1;
    RUN(gguf_files_draw_what_their_values_do);
    RUN(fp8_without_scales_holds_norms_and_biases_too);
    RUN(scaled_fp8_is_understood_in_every_form);
    RUN(int8_is_understood_rotated_and_not);
    sumi_engine_destroy(s_engine);
    for (int i = 0; i < 2; i++) empty_bag(i);
    if (s_folder[0] != 0) remove_folder(s_folder);
    TEST_END();
}
