// The quantised files that Z-Image comes in, made of the tiny checkpoint's tensors: each draws what a file with its
// values in float32 draws, to the bit. test_network_names has the layouts and names.
#include "files_fixture.h"

#define MODEL "tests/golden/z-image/model/"

static host s_files_host;

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

// Only tensors that the model uses must be of a type that is read.
TEST(gguf_types_that_are_not_read_are_refused_where_they_are_used)
{
    static const char s_used[] = "layers.1.attention.to_out.0.weight";
    static const unsigned char s_block[110];
    const sumi_tensor shape = {.rank = 1, .shape = {256}};
    bag *b = take_part(TRANSFORMER), *twin = empty_bag(1);
    s_matrix_dtype = SUMI_DTYPE_F32;
    convert(b, gguf_choice, twin, "");
    put(b, "mtp.layers.0.weight", SUMI_DTYPE_IQ3_S, &shape, s_block, sizeof s_block);
    write_gguf(b, scratch("stored", "model.gguf"), "lumina2");
    write_tensors(twin, scratch("stored", "twin.safetensors"), NULL);
    check_stored(TRANSFORMER, "model.gguf", "a file with an unused tensor", 0.0);
    sumi_tensor* used = NULL;
    for (size_t i = 0; i < b->count && used == NULL; i++)
        used = strstr(b->tensors[i].name, s_used) != NULL ? &b->tensors[i] : NULL;
    CHECK(used != NULL && used->bytes >= sizeof s_block);
    if (used == NULL) return;
    *used = (sumi_tensor){.name = used->name,
                          .dtype = SUMI_DTYPE_IQ3_S,
                          .rank = 2,
                          .shape = {1, 256},
                          .data = used->data,
                          .bytes = sizeof s_block};
    write_gguf(b, scratch("stored", "model.gguf"), "lumina2");
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = MODEL;
    desc.transformer_path = scratch("stored", "model.gguf");
    CHECK(open_model(&desc) == NULL);
    CHECK_NUMBER(s_result, SUMI_NOT_SUPPORTED);
    if (strstr(s_message, "IQ3_S") == NULL) printf("  %s\n", s_message);
    CHECK(strstr(s_message, s_used) != NULL && strstr(s_message, "IQ3_S") != NULL && strstr(s_message, "Q4_K") != NULL);
}

// ---- Formats that are decoded ---------------------------------------------------------------------------------------

TEST(formats_of_four_bits_draw_what_their_values_do)
{
    for (int part = 0; part < PART_COUNT; part++) {
        bag* b = take_part(part);
        write_nvfp4(b, empty_bag(1), scratch("stored", "model.safetensors"), scratch("stored", "twin.safetensors"));
        check_stored(part, "model.safetensors", "nvfp4", 2.0);
    }
}

// Of a layer that is used, in a file that is opened as a whole model is.
TEST(what_is_not_known_beside_a_quantised_weight_is_refused)
{
    static const char* const s_names[] = {"layers.1.feed_forward.w2.smooth_factor",
                                          "layers.0.attention.to_out.0.weight.absmax"};
    for (size_t i = 0; i < 2; i++) {
        bag *b = take_part(TRANSFORMER), *twin = empty_bag(1);
        char name[128];
        convert(b, every_e5m2, twin, "");
        snprintf(name, sizeof name, "%s%s", s_prefixes[TRANSFORMER], s_names[i]);
        put(b, name, SUMI_DTYPE_F32, NULL, &(float){2.0f}, 4);
        write_tensors(b, scratch("stored", "model.safetensors"), NULL);
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = MODEL;
        desc.transformer_path = scratch("stored", "model.safetensors");
        CHECK(open_model(&desc) == NULL);
        CHECK_NUMBER(s_result, SUMI_NOT_SUPPORTED);
        const char* own = strstr(s_names[i], i == 0 ? "smooth_factor" : "weight.absmax");
        if (strstr(s_message, own) == NULL) printf("  %s\n", s_message);
        CHECK(strstr(s_message, own) != NULL && strstr(s_message, "take the bf16") != NULL);
    }
}

// ---- What a file says about the text encoder besides its tensors ----------------------------------------------------

// The checkpoint's config.json with one member put in front, for a text encoder in the folder "other".
static void write_config(const char* member)
{
    char text[4096], path[128];
    snprintf(path, sizeof path, MODEL "text_encoder/config.json");
    FILE* file = system_open(path, "rb");
    CHECK(file != NULL);
    if (file == NULL) return;
    char rest[2048];
    const size_t bytes = fread(rest, 1, sizeof rest - 1, file);
    fclose(file);
    rest[bytes] = 0;
    const char* inside = strchr(rest, '{');
    CHECK(inside != NULL && bytes < sizeof rest - 1);
    // a member that is there twice counts the second time
    char* last = strrchr(rest, '}');
    if (inside == NULL || last == NULL) return;
    *last = 0;
    snprintf(text, sizeof text, "%s%s%s}", rest, member[0] != 0 ? ", " : "", member);
    write_file(scratch("other", "config.json"), text, strlen(text));
}

// A GGUF file has the base of the rotary positions and the epsilon of its norms in its metadata, which count before the
// config.json of the model's folder.
TEST(gguf_text_encoders_bring_their_numbers)
{
    static const gguf_key s_keys[][4] = {
        {{"general.architecture", "qwen3", 0}, {"qwen3.rope.freq_base", NULL, 10000.0f}, {"a", "b", 0}, {"c", "d", 0}},
        {{"general.architecture", "qwen3", 0},
         {"qwen3.attention.layer_norm_rms_epsilon", NULL, 0.5f},
         {"qwen3.rope.scaling.type", "none", 0},
         {"c", "d", 0}},
        {{"general.architecture", "qwen3", 0},
         {"qwen3.rope.scaling.type", "linear", 0},
         {"qwen3.rope.scaling.factor", NULL, 4.0f},
         {"c", "d", 0}}};
    static const char* const s_members[] = {"\"rope_theta\": 10000", "\"rms_norm_eps\": 0.5",
                                            "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 4.0}"};
    for (size_t i = 0; i < sizeof s_members / sizeof *s_members; i++) {
        drawing want, got;
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = MODEL;
        bag* b = take_part(TEXT_ENCODER);
        write_config(s_members[i]);
        write_tensors(b, scratch("other", "model.safetensors"), NULL);
        desc.text_encoder_path = scratch("other", "");
        CHECK(draw_files(&desc, &want));
        CHECK(distance(&want, plain_drawing()) > 1e-3); // the number counts
        write_gguf_keys(b, scratch("stored", "te.gguf"), s_keys[i], 4);
        remove_folder(scratch("other", ""));
        system_remove(scratch("stored", "config.json"));
        desc.text_encoder_path = scratch("stored", "te.gguf");
        CHECK(draw_files(&desc, &got));
        if (!is_same(&got, &want)) printf("  %s: off by %.2g\n", s_members[i], distance(&got, &want));
        CHECK(is_same(&got, &want));
    }
}

TEST(other_scalings_of_positions_are_refused_by_name)
{
    static const char* const s_members[] = {
        "\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4.0, \"original_max_position_embeddings\": 32768}",
        "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2.0}",
        "\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8.0}"};
    static const char* const s_names[] = {"yarn", "dynamic", "llama3"};
    static const gguf_key s_keys[] = {{"general.architecture", "qwen3", 0},
                                      {"qwen3.rope.scaling.type", "yarn", 0},
                                      {"qwen3.rope.scaling.factor", NULL, 4.0f},
                                      {"qwen3.rope.freq_base", NULL, 1e6f}};
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = MODEL;
    bag* b = take_part(TEXT_ENCODER);
    for (size_t i = 0; i < 4; i++) {
        const char* file = i < 3 ? "config.json" : "te.gguf";
        if (i < 3) write_config(s_members[i]);
        if (i < 3) write_tensors(b, scratch("other", "model.safetensors"), NULL);
        else write_gguf_keys(b, scratch("other", "te.gguf"), s_keys, 4);
        desc.text_encoder_path = i < 3 ? scratch("other", "") : scratch("other", "te.gguf");
        CHECK(open_model(&desc) == NULL);
        CHECK_NUMBER(s_result, SUMI_NOT_SUPPORTED);
        const char* name = s_names[i < 3 ? i : 0];
        if (strstr(s_message, name) == NULL || strstr(s_message, file) == NULL) printf("  %s\n", s_message);
        CHECK(strstr(s_message, name) != NULL && strstr(s_message, file) != NULL);
        CHECK(strstr(s_message, "rope_scaling") != NULL);
    }
}

// vocab.json and merges.txt alone would cut the tokens of the template into letters.
TEST(tokenizers_without_the_templates_tokens_are_refused)
{
    static const char* const s_beside[] = {NULL, "tokenizer_config.json", "added_tokens.json"};
    static const char s_added[] = "{\"<|im_start|>\": 865, \"<|im_end|>\": 866, \"<|endoftext|>\": 864}";
    static const char s_wrong[] = "{\"<|im_end|>\": 866}";
    for (size_t i = 0; i < 4; i++) {
        remove_folder(scratch("words", ""));
        copy_file(MODEL "tokenizer/vocab.json", scratch("words", "vocab.json"));
        copy_file(MODEL "tokenizer/merges.txt", scratch("words", "merges.txt"));
        if (i == 1) copy_file(MODEL "tokenizer/tokenizer_config.json", scratch("words", s_beside[i]));
        if (i == 2) write_file(scratch("words", s_beside[i]), s_added, sizeof s_added - 1);
        if (i == 3) write_file(scratch("words", "added_tokens.json"), s_wrong, sizeof s_wrong - 1);
        drawing got;
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = MODEL;
        desc.tokenizer_path = scratch("words", "");
        if (i == 1 || i == 2) {
            CHECK(draw_files(&desc, &got) && is_same(&got, plain_drawing()));
            continue;
        }
        CHECK(open_model(&desc) == NULL);
        CHECK_NUMBER(s_result, SUMI_FILE_MALFORMED);
        CHECK(strstr(s_message, "<|im_start|>") != NULL && strstr(s_message, "vocab.json") != NULL);
        CHECK(strstr(s_message, "tokenizer_config.json") != NULL && strstr(s_message, "added_tokens.json") != NULL);
    }
}

// ---- Parts ----------------------------------------------------------------------------------------------------------

// Writes the tensors of a bag as two files.
static void write_halves(bag* b, bool is_gguf, const char* first_path, const char* second_path)
{
    static const gguf_key s_keys[] = {
        {"general.architecture", "qwen3", 0}, {"split.count", NULL, 2.0f}, {"split.no", NULL, 0.0f}};
    static bag s_half;
    const size_t count = b->count / 2;
    for (int i = 0; i < 2; i++) {
        s_half.count = i == 0 ? count : b->count - count;
        memcpy(s_half.tensors, b->tensors + (i == 0 ? 0 : count), s_half.count * sizeof *s_half.tensors);
        const char* path = i == 0 ? first_path : second_path;
        // the second file has no architecture
        if (is_gguf) write_gguf_keys(&s_half, path, s_keys + i, i == 0 ? 3 : 2);
        else write_tensors(&s_half, path, NULL);
    }
    s_half.count = 0;
}

TEST(parts_without_an_index_are_read_whole_or_named)
{
    for (int is_gguf = 0; is_gguf < 2; is_gguf++) {
        const char* extension = is_gguf != 0 ? "gguf" : "safetensors";
        char name[2][64];
        for (int i = 0; i < 2; i++) snprintf(name[i], sizeof name[i], "model-%05d-of-00002.%s", i + 1, extension);
        remove_folder(scratch("parts", ""));
        write_halves(take_part(TEXT_ENCODER), is_gguf != 0, scratch("parts", name[0]), scratch("parts", name[1]));
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = MODEL;
        drawing got;
        for (int i = 0; i < 3; i++) { // the folder, the first, the second
            desc.text_encoder_path = scratch("parts", i == 0 ? "" : name[i - 1]);
            CHECK(draw_files(&desc, &got) && is_same(&got, plain_drawing()));
        }
        for (int i = 0; i < 2; i++) { // one of them is gone
            system_move(scratch("parts", name[i]), scratch("parts", "away"));
            desc.text_encoder_path = scratch("parts", i == 0 ? "" : name[0]);
            CHECK(open_model(&desc) == NULL);
            CHECK_NUMBER(s_result, SUMI_FILE_NOT_FOUND);
            char says[48];
            snprintf(says, sizeof says, "one of 2 parts, and 1 of them (%d)", i + 1);
            if (strstr(s_message, says) == NULL) printf("  %s\n", s_message);
            CHECK(strstr(s_message, says) != NULL);
            system_move(scratch("parts", "away"), scratch("parts", name[i]));
        }
        if (is_gguf == 0) continue;
        system_move(scratch("parts", name[0]), scratch("parts", "renamed.gguf"));
        desc.text_encoder_path = scratch("parts", "renamed.gguf");
        CHECK(open_model(&desc) == NULL);
        CHECK_NUMBER(s_result, SUMI_NOT_SUPPORTED);
        CHECK(strstr(s_message, "llama-gguf-split --merge") != NULL && strstr(s_message, "renamed.gguf") != NULL);
    }
}

TEST(pickled_weights_are_named)
{
    remove_folder(scratch("pickled", ""));
    write_file(scratch("pickled", "diffusion_pytorch_model.bin"), "PK\3\4", 4);
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = MODEL;
    desc.transformer_path = scratch("pickled", "");
    CHECK(open_model(&desc) == NULL);
    CHECK_NUMBER(s_result, SUMI_NOT_SUPPORTED);
    CHECK(strstr(s_message, "diffusion_pytorch_model.bin") != NULL && strstr(s_message, "PyTorch") != NULL);
}

TEST(a_byte_order_mark_before_json_is_passed_over)
{
    static char s_text[8192] = "\xEF\xBB\xBF";
    FILE* file = system_open(MODEL "text_encoder/config.json", "rb");
    CHECK(file != NULL);
    if (file == NULL) return;
    const size_t bytes = 3 + fread(s_text + 3, 1, sizeof s_text - 3, file);
    fclose(file);
    remove_folder(scratch("marked", ""));
    write_tensors(take_part(TEXT_ENCODER), scratch("marked", "model.safetensors"), NULL);
    write_file(scratch("marked", "config.json"), s_text, bytes);
    drawing got;
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = MODEL;
    desc.text_encoder_path = scratch("marked", "");
    CHECK(draw_files(&desc, &got) && is_same(&got, plain_drawing()));
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

// ---- Control nets ---------------------------------------------------------------------------------------------------

#define NETS "tests/golden/controlnet"
#define NET_STEM "Z-Image-Turbo-Fun-Controlnet-Union-2.1-lite-2602-8steps"

// Draws with a transformer, an adapter and a net; what is NULL is the checkpoint's, or left out.
static bool draw_controlled(const char* transformer, const char* adapter, const char* net, drawing* out)
{
    static const uint8_t s_pixels[4] = {0, 255, 90, 30};
    const sumi_pixels pixels = {s_pixels, 2, 2, 0, 1};
    const sumi_control_picture picture = {.picture = &pixels};
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = MODEL;
    desc.transformer_path = transformer;
    memset(out, 0, sizeof *out);
    sumi_model* model = open_model(&desc);
    CHECK(model != NULL);
    if (model == NULL) return false;
    sumi_control_desc cd = sumi_control_defaults(model);
    cd.path = net;
    sumi_job job;
    sumi_control* control = NULL;
    CHECK_NUMBER(sumi_submit_control(s_engine, &cd, &job), SUMI_OK);
    sumi_job_wait(s_engine, job, SUMI_FOREVER);
    if (sumi_job_poll(s_engine, job).result != SUMI_OK) printf("  %s\n", sumi_job_poll(s_engine, job).message);
    CHECK_NUMBER(sumi_fetch_control(s_engine, job, &control), SUMI_OK);
    const sumi_lora_use lora = {.lora = adapter != NULL ? read_lora_at(s_engine, model, adapter) : NULL, .scale = 1.0f};
    sumi_control_use use = sumi_control_use_defaults(control);
    use.pictures = &picture;
    use.picture_count = 1;
    const sumi_image_item item = {.text = "A red fox reads, 超清", .seed = 7};
    sumi_image_desc image = small_image(model, &item);
    image.width = WIDTH;
    image.height = HEIGHT;
    image.controls = &use;
    image.control_count = 1;
    image.loras = &lora;
    image.lora_count = adapter != NULL;
    const bool good = control != NULL && draw_desc(&image, out);
    sumi_control_release(control);
    sumi_model_close(model);
    return good;
}

TEST(control_nets_as_stored_draw_what_their_values_do)
{
    drawing plain, want, got;
    CHECK(draw_controlled(NULL, NULL, NETS "/" NET_STEM ".safetensors", &plain));
    const char *file = scratch("nets", "net.safetensors"), *twin = scratch("nets", "twin.safetensors");
    for (int form = 0; form < 3; form++) {
        bag* b = empty_bag(0);
        take(b, NETS, NET_STEM, "", NULL);
        if (form < 2) write_int8(b, empty_bag(1), form > 0, file, twin);
        else write_scaled_fp8(b, empty_bag(1), 1, "", file, twin);
        CHECK(draw_controlled(NULL, NULL, twin, &want) && draw_controlled(NULL, NULL, file, &got));
        const double off = distance(&want, &plain);
        CHECK(is_same(&got, &want) && off > 0.0 && off < 0.1);
    }
}

// The same as a transformer with the change in its weights: a layer of the net with nearly the same name stays.
TEST(an_adapter_does_not_change_a_control_net)
{
    static const char s_name[] = "layers.0.feed_forward.w2";
    bag *b = empty_bag(0), *adapter = empty_bag(1);
    take(b, MODEL "transformer", s_stems[TRANSFORMER], "", NULL);
    for (size_t i = 0; i < b->count; i++) {
        sumi_tensor* t = &b->tensors[i];
        if (strncmp(t->name, s_name, strlen(s_name)) != 0) continue;
        const int64_t rows = t->shape[0], cols = t->shape[1];
        CHECK(t->dtype == SUMI_DTYPE_F32);
        float *values = (float*)(uintptr_t)t->data, *up = calloc((size_t)rows, 4), *down = calloc((size_t)cols, 4);
        up[3] = 1.0f;
        for (int64_t c = 0; c < cols; c++) {
            down[c] = (float)(c % 5) * 0.125f;
            values[3 * cols + c] += down[c];
        }
        put(adapter, "diffusion_model.layers.0.feed_forward.w2.lora_A.weight", SUMI_DTYPE_F32,
            &(sumi_tensor){.rank = 2, .shape = {1, cols}}, down, (uint64_t)cols * 4);
        put(adapter, "diffusion_model.layers.0.feed_forward.w2.lora_B.weight", SUMI_DTYPE_F32,
            &(sumi_tensor){.rank = 2, .shape = {rows, 1}}, up, (uint64_t)rows * 4);
        free(up), free(down);
    }
    CHECK(adapter->count == 2);
    copy_file(MODEL "transformer/config.json", scratch("merged", "config.json"));
    write_tensors(b, scratch("merged", "merged.safetensors"), NULL);
    write_tensors(adapter, scratch("nets", "adapter.safetensors"), NULL);
    drawing plain, merged, adapted;
    CHECK(draw_controlled(NULL, NULL, NETS "/" NET_STEM ".safetensors", &plain));
    CHECK(draw_controlled(scratch("merged", "merged.safetensors"), NULL, NETS "/" NET_STEM ".safetensors", &merged));
    CHECK(draw_controlled(NULL, scratch("nets", "adapter.safetensors"), NETS "/" NET_STEM ".safetensors", &adapted));
    CHECK(distance(&merged, &plain) > 1e-3);
    CHECK(distance(&adapted, &merged) < 1e-5);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_files(&s_files_host, is_linear)) return 1;
    RUN(gguf_files_draw_what_their_values_do);
    RUN(gguf_types_that_are_not_read_are_refused_where_they_are_used);
    RUN(formats_of_four_bits_draw_what_their_values_do);
    RUN(what_is_not_known_beside_a_quantised_weight_is_refused);
    RUN(gguf_text_encoders_bring_their_numbers);
    RUN(other_scalings_of_positions_are_refused_by_name);
    RUN(tokenizers_without_the_templates_tokens_are_refused);
    RUN(parts_without_an_index_are_read_whole_or_named);
    RUN(pickled_weights_are_named);
    RUN(a_byte_order_mark_before_json_is_passed_over);
    RUN(fp8_without_scales_holds_norms_and_biases_too);
    RUN(scaled_fp8_is_understood_in_every_form);
    RUN(int8_is_understood_rotated_and_not);
    RUN(control_nets_as_stored_draw_what_their_values_do);
    RUN(an_adapter_does_not_change_a_control_net);
    end_files(&s_files_host);
    TEST_END();
}
