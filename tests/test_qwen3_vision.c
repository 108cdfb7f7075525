// The vision tower of Qwen3-VL: its files in every form, what is refused and how, the places of its learned positions.
// Its numbers are golden_run's business.
#include "at_once.h"
#include "llama_names.h"
#include "models/qwen21_parts.h"
#include "tower_fixture.h"

static const tower_kind s_kind = {.module = &sumi_qwen3_vision_module,
                                  .text_encoder = "tests/golden/qwen-image-21/model/text_encoder",
                                  .processor = "tests/golden/qwen-image-21/model/processor/preprocessor_config.json",
                                  .network = "qwen3-vl-vision",
                                  .prefix = "model.visual."};

// The released settings for the tiny tower, whose blocks and heads are fewer.
static sumi_qwen3_vision_settings tiny_settings(void)
{
    sumi_qwen3_vision_settings settings = sumi_qwen21_vision;
    settings.tower.heads = 2;
    for (int32_t i = 0; i < 3; i++) settings.deep_blocks[i] = i;
    return settings;
}

TEST(every_missing_or_misshapen_tensor_is_named) { CHECK(check_damaged_towers(&s_kind) > 100); }

TEST(a_file_without_configs_takes_the_settings)
{
    const sumi_qwen3_vision_settings settings = tiny_settings();
    for (int given = 0; given < 2; given++) {
        tower t;
        if (open_tower(&t, &s_kind)) {
            t.config = (sumi_module_config){.path = "model.safetensors"};
            t.processor = (sumi_module_config){.path = "model.safetensors"};
            const sumi_result result = bind_tower(&t, given ? &settings : NULL);
            CHECK_NUMBER(result, given ? SUMI_OK : SUMI_NOT_SUPPORTED);
            CHECK(given || strstr(t.error.text, "0 heads") != NULL);
            if (given) {
                const sumi_vision_properties properties = sumi_qwen3_vision_module.properties(&t.model);
                CHECK_NUMBER(t.model.qwen3.tower.block_count, 4);
                CHECK_NUMBER(t.model.qwen3.grid, 5);
                CHECK_NUMBER(t.model.qwen3.tower.patch, 16);
                CHECK_NUMBER(properties.width, 48);
                CHECK_NUMBER(properties.cell, 32);
                CHECK_NUMBER(properties.deep_count, 3);
                CHECK_NUMBER(properties.max_pixels, 16777216);
                CHECK_NUMBER(t.model.qwen3.blocks[1].deep_level, 1);
                CHECK_NUMBER(t.model.qwen3.blocks[3].deep_level, -1);
            }
        }
        close_tower(&t);
    }
}

#define VISION(members) "{\"vision_config\":{" members "}}"

TEST(configs_that_the_tower_cannot_follow_are_refused)
{
    static const tower_config_case s_cases[] = {
        {"{}", "{}", SUMI_OK, ""},
        {VISION("\"deepstack_visual_indexes\":[]"), "{}", SUMI_OK, ""},
        {VISION("\"deepstack_visual_indexes\":[0,4]"), "{}", SUMI_NOT_SUPPORTED, "deepstack_visual_indexes"},
        {VISION("\"deepstack_visual_indexes\":[1,0]"), "{}", SUMI_NOT_SUPPORTED, "in their order"},
        {VISION("\"deepstack_visual_indexes\":[-1]"), "{}", SUMI_NOT_SUPPORTED, "up to 4 blocks"},
        {VISION("\"deepstack_visual_indexes\":[0,1,2,3]"), "{}", SUMI_TENSOR_MISSING, "merger_list.3."},
        {VISION("\"deepstack_visual_indexes\":[0,1,2,3,4]"), "{}", SUMI_FILE_MALFORMED, "config.json"},
        {VISION("\"num_position_embeddings\":2304"), "{}", SUMI_TENSOR_MISMATCH, "25 positions"},
        {VISION("\"depth\":3"), "{}", SUMI_TENSOR_MISMATCH, "depth is 3"},
        {VISION("\"depth\":5"), "{}", SUMI_TENSOR_MISSING, "blocks.4."},
        {VISION("\"depth\":129"), "{}", SUMI_NOT_SUPPORTED, "has 129 blocks"},
        {VISION("\"num_heads\":5"), "{}", SUMI_NOT_SUPPORTED, "5 heads for a width of 24"},
        {VISION("\"num_heads\":-2"), "{}", SUMI_NOT_SUPPORTED, "heads"},
        {VISION("\"patch_size\":14"), "{}", SUMI_TENSOR_MISMATCH, "16 x 16"},
        {VISION("\"spatial_merge_size\":4"), "{}", SUMI_TENSOR_MISMATCH, "merger"},
        {VISION("\"intermediate_size\":48"), "{}", SUMI_TENSOR_MISMATCH, "intermediate_size"},
        {VISION("\"out_hidden_size\":64"), "{}", SUMI_TENSOR_MISMATCH, "out_hidden_size"},
        {"{", "{}", SUMI_FILE_MALFORMED, "config.json"},
        {"{}", "{\"image_mean\":[0.5,0.5]}", SUMI_NOT_SUPPORTED, "three channels"},
        {"{}", "{\"image_std\":[0.5,0.5,0]}", SUMI_NOT_SUPPORTED, "three channels"},
        {"{}", "{\"do_rescale\":false}", SUMI_NOT_SUPPORTED, "1/255"},
        {"{}", "{\"patch_size\":14}", SUMI_NOT_SUPPORTED, "patches of 16"},
        {"{}", "{\"size\":{\"longest_edge\":1000}}", SUMI_NOT_SUPPORTED, "area"}};
    const sumi_qwen3_vision_settings settings = tiny_settings();
    check_tower_configs(&s_kind, &settings, s_cases, sizeof s_cases / sizeof *s_cases);
}

TEST(an_image_of_broken_cells_is_refused) { check_broken_cells(&s_kind, 32); }

// ---- llama.cpp's files ----------------------------------------------------------------------------------------------

// A set with llama.cpp's names, the slices in time of the first kernel apart. They lie in `slices`.
static void take_llama_set(const tower* t, sumi_tensor_set* set, float* slices)
{
    const sumi_tensor_set* old = t->checkpoint.components[SUMI_COMPONENT_VISION].set;
    static char s_names[400][160];
    static const int32_t s_deep_blocks[] = {0, 1, 3}; // the config's
    sumi_error error = {0};
    sumi_tensor_set_init(set, &s_heap, NULL);
    for (size_t i = 0, used = 0; i < old->count && used + 2 < 400; i++) {
        sumi_tensor tensor = old->tensors[i];
        if (strncmp(tensor.name, "model.visual.", 13) != 0) continue;
        tensor.file_index = -1;
        char* name = s_names[used++];
        llama_tower_name(tensor.name + 13, s_deep_blocks, name, sizeof s_names[0]);
        const bool is_kernel = strcmp(name, "v.patch_embd.weight") == 0;
        for (int slice = 0; slice < (is_kernel ? 2 : 1); slice++) {
            if (is_kernel) { // [width, 3, 2, 16, 16] -> [width, 3, 16, 16]
                const int64_t area = 16 * 16, kernels = tensor.shape[0] * 3;
                const uint16_t* from = old->tensors[i].data;
                float* to = slices + slice * kernels * area;
                for (int64_t k = 0; k < kernels * area; k++)
                    to[k] = sumi_bf16_to_float(from[(k / area * 2 + slice) * area + k % area]);
                tensor = (sumi_tensor){.data = to,
                                       .bytes = (uint64_t)(kernels * area) * sizeof(float),
                                       .dtype = SUMI_DTYPE_F32,
                                       .rank = 4,
                                       .shape = {tensor.shape[0], 3, 16, 16},
                                       .file_index = -1};
                if (slice == 1) {
                    name = s_names[used++];
                    snprintf(name, sizeof s_names[0], "v.patch_embd.weight.1");
                }
            }
            CHECK_NUMBER(sumi_tensor_set_add(set, name, strlen(name), &tensor, "set", &error), SUMI_OK);
        }
    }
    CHECK_TEXT(error.text, "");
}

// All rows that a tower makes of a picture.
static void draw(const tower* t, const uint8_t* pixels, int32_t height, int32_t width, float* into)
{
    sumi_plan plan;
    sumi_error error = {0};
    sumi_plan_begin(&plan, &s_heap, 4);
    sumi_plan_section(&plan, SUMI_SECTION_VISION, 1, 0);
    sumi_value in = sumi_plan_bound(&plan, "bytes", SUMI_ELEMENT_BYTE, height * width, 3);
    const sumi_vision_rows rows = sumi_qwen3_vision_module.write(&t->model, &plan, in, height, width);
    const sumi_value values[] = {rows.value, rows.deep[0], rows.deep[1], rows.deep[2]};
    for (int i = 0; i < 4; i++) plan.values[values[i].id - 1].bound = true;
    const sumi_rates rates = s_runner->functions->rates(s_runner);
    sumi_result result = sumi_plan_finish(&plan, &error);
    if (result == SUMI_OK) result = plan_slice(&plan, &rates, 1000, &error);
    if (result == SUMI_OK) result = plan_ready(s_runner, &plan, &error);
    if (result == SUMI_OK) {
        s_runner->functions->start(s_runner, &plan);
        s_runner->functions->write(s_runner, &plan, in, 0, pixels, 3 * (uint64_t)height * (uint64_t)width);
        result = plan_run_all(s_runner, &plan, NULL, &error);
    }
    for (int i = 0; i < 4 && result == SUMI_OK; i++) {
        const sumi_value_info* info = sumi_plan_info(&plan, values[i]);
        result = plan_read(s_runner, &plan, values[i], into, &error);
        into += (int64_t)info->rows * info->cols;
    }
    CHECK_NUMBER(result, SUMI_OK);
    CHECK_TEXT(error.text, "");
    plan_release(s_runner, &plan);
    sumi_plan_end(&plan);
}

TEST(names_of_llama_cpp_bind_the_same_tower)
{
    enum { HEIGHT = 64, WIDTH = 96, ROWS = HEIGHT / 32 * (WIDTH / 32), FLOATS = 4 * ROWS * 48 };
    static float s_slices[2 * 24 * 3 * 16 * 16], s_got[2][FLOATS];
    static uint8_t s_pixels[HEIGHT * WIDTH * 3];
    for (int i = 0; i < HEIGHT * WIDTH * 3; i++) s_pixels[i] = (uint8_t)(i * 37 + i / 251);
    sumi_qwen3_vision_settings settings = sumi_qwen21_vision;
    settings.tower.heads = 2; // the blocks of DeepStack, which are not those of the settings, are read from the names
    for (int is_llama = 0; is_llama < 2; is_llama++) {
        tower t;
        sumi_tensor_set set;
        if (!open_tower(&t, &s_kind)) return;
        take_llama_set(&t, &set, s_slices);
        sumi_component part = t.checkpoint.components[SUMI_COMPONENT_VISION];
        static char s_prefix[] = "";
        if (is_llama) {
            part.set = &set;
            part.prefix = s_prefix;
            t.binder.component = &part;
            t.config = t.processor = (sumi_module_config){.path = "mmproj.gguf"};
        }
        CHECK_NUMBER(bind_tower(&t, &settings), SUMI_OK);
        CHECK_TEXT(t.error.text, "");
        if (t.error.text[0] == '\0') draw(&t, s_pixels, HEIGHT, WIDTH, s_got[is_llama]);
        sumi_tensor_set_close(&set);
        close_tower(&t);
    }
    double size = 0;
    for (int i = 0; i < FLOATS; i++) size += (double)s_got[0][i] * (double)s_got[0][i];
    CHECK(size > 1.0);
    CHECK(memcmp(s_got[0], s_got[1], sizeof s_got[0]) == 0);
}

// ---- Positions ------------------------------------------------------------------------------------------------------

TEST(positions_are_those_of_the_grid_that_is_stretched_over_the_picture)
{
    enum { NEIGHBOURS = SUMI_QWEN3_VISION_NEIGHBOURS, MOST = 64 * 40 };
    static int32_t s_neighbours[MOST * NEIGHBOURS];
    static float s_factors[MOST * NEIGHBOURS];
    static const sumi_qwen3_vision_grid s_sizes[] = {{6, 6, 2, 6}, {2, 2, 2, 48}, {64, 40, 2, 48},
                                                     {4, 8, 2, 5}, {3, 1, 1, 7},  {2, 4, 2, 1}};
    for (size_t s = 0; s < sizeof s_sizes / sizeof *s_sizes; s++) {
        const sumi_qwen3_vision_grid size = s_sizes[s];
        sumi_qwen3_vision_neighbours(&size, s_neighbours, s_factors);
        for (int32_t row = 0; row < size.high * size.wide; row++) {
            // the place that the neighbours stand for, which is the patch's on a straight line between the corners
            double sum = 0, y = 0, x = 0;
            for (int t = 0; t < NEIGHBOURS; t++) {
                const int32_t neighbour = s_neighbours[row * NEIGHBOURS + t];
                const double factor = (double)s_factors[row * NEIGHBOURS + t];
                CHECK(neighbour >= 0 && neighbour < size.grid * size.grid && factor >= 0);
                sum += factor;
                y += factor * (neighbour / size.grid);
                x += factor * (neighbour % size.grid);
            }
            const int32_t area = size.merge * size.merge, cell = row / area, wide = size.wide / size.merge;
            const int32_t patch_y = cell / wide * size.merge + row % area / size.merge,
                          patch_x = cell % wide * size.merge + row % size.merge;
            CHECK_NEAR(sum, 1.0, 1e-6, 0);
            CHECK_NEAR(y, size.high > 1 ? (double)patch_y * (size.grid - 1) / (size.high - 1) : 0, 1e-5, 0);
            CHECK_NEAR(x, size.wide > 1 ? (double)patch_x * (size.grid - 1) / (size.wide - 1) : 0, 1e-5, 0);
            // a patch at a place of the grid reads this place alone
            if (size.high == size.grid && size.wide == size.grid)
                CHECK(s_factors[row * NEIGHBOURS] == 1.0f
                      && s_neighbours[row * NEIGHBOURS] == patch_y * size.grid + patch_x);
        }
    }
}

TEST(every_failing_allocation_is_survived) { check_failing_allocations(&s_kind, 64, 96); }

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_cpu(2)) return 1;
    RUN(every_missing_or_misshapen_tensor_is_named);
    RUN(a_file_without_configs_takes_the_settings);
    RUN(configs_that_the_tower_cannot_follow_are_refused);
    RUN(an_image_of_broken_cells_is_refused);
    RUN(names_of_llama_cpp_bind_the_same_tower);
    RUN(positions_are_those_of_the_grid_that_is_stretched_over_the_picture);
    RUN(every_failing_allocation_is_survived);
    end_cpu();
    TEST_END();
}
