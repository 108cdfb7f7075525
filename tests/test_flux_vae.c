// The autoencoders of Flux.1 and Flux.2: both naming schemes, packed latents, what is refused and how, every allocation
// failing. The numbers are golden_run's business.
#include "failing.h"
#include "vae_fixture.h"

// ---- Made-up checkpoints --------------------------------------------------------------------------------------------

enum { STAGES = 3, LATENTS = 3, GROUPS = 4 };
static const int32_t s_wide[STAGES] = {8, 8, 16}, s_narrow[STAGES] = {4, 4, 8}; // from fine to coarse

typedef struct flux_maker {
    maker m;         // the other names are those of LDM
    bool is_plain;   // Flux.1: neither 1x1 convolutions nor statistics
    bool is_neutral; // the 1x1 convolutions and the statistics change nothing
} flux_maker;

// A weight and its bias. rank 1: of a norm, `out` long.
static void add_layer(maker* m, const naming* at, const char* diffusers, const char* ldm, const int64_t* shape,
                      int32_t rank)
{
    static const char* const s_ends[] = {"weight", "bias"};
    for (int i = 0; i < 2; i++) {
        char a[192], b[192];
        snprintf(a, sizeof a, "%s%s.%s", at->diffusers, diffusers, s_ends[i]);
        snprintf(b, sizeof b, "%s%s.%s", at->other, ldm, s_ends[i]);
        add(m, a, b, shape, i == 0 ? rank : 1);
    }
}

static void add_conv(maker* m, const naming* at, const char* diffusers, const char* ldm, int64_t out, int64_t in,
                     int64_t side)
{
    add_layer(m, at, diffusers, ldm, (const int64_t[]){out, in, side, side}, 4);
}

static void add_norm(maker* m, const naming* at, const char* diffusers, const char* ldm, int64_t channels)
{
    add_layer(m, at, diffusers, ldm, &channels, 1);
}

static void add_block(maker* m, const naming* at, int64_t in, int64_t out)
{
    add_norm(m, at, "norm1", "norm1", in);
    add_conv(m, at, "conv1", "conv1", out, in, 3);
    add_norm(m, at, "norm2", "norm2", out);
    add_conv(m, at, "conv2", "conv2", out, out, 3);
    if (in != out) add_conv(m, at, "conv_shortcut", "nin_shortcut", out, in, 1);
}

static void add_middle(maker* m, const char* side, int64_t channels)
{
    static const char* const s_parts[][2] = {{"to_q", "q"}, {"to_k", "k"}, {"to_v", "v"}, {"to_out.0", "proj_out"}};
    const naming first = name_at(side, "mid_block.resnets.0.", "mid.block_1."),
                 attention = name_at(side, "mid_block.attentions.0.", "mid.attn_1."),
                 second = name_at(side, "mid_block.resnets.1.", "mid.block_2.");
    add_block(m, &first, channels, channels);
    add_norm(m, &attention, "group_norm", "norm", channels);
    for (int i = 0; i < 4; i++) { // LDM has 1x1 convolutions
        add_layer(m, &attention, s_parts[i][0], s_parts[i][1], (const int64_t[]){channels, channels, 1, 1},
                  m->has_other_names ? 4 : 2);
    }
    add_block(m, &second, channels, channels);
}

// One of the two layers of each stage's blocks; the stages run from fine to coarse in the encoder.
static void add_stages(maker* m, bool decodes, const int32_t* widths, int64_t channels)
{
    for (int s = 0; s < STAGES; s++) {
        const int level = decodes ? STAGES - 1 - s : s;
        char a[64], b[64];
        for (int i = 0; i < (decodes ? 2 : 1); i++) {
            snprintf(a, sizeof a, decodes ? "up_blocks.%d.resnets.%d." : "down_blocks.%d.resnets.%d.", s, i);
            snprintf(b, sizeof b, decodes ? "up.%d.block.%d." : "down.%d.block.%d.", level, i);
            const naming at = name_at(decodes ? "decoder" : "encoder", a, b);
            add_block(m, &at, i == 0 ? channels : widths[level], widths[level]);
        }
        channels = widths[level];
        if (s == STAGES - 1) continue;
        snprintf(a, sizeof a, decodes ? "up_blocks.%d.upsamplers.0." : "down_blocks.%d.downsamplers.0.", s);
        snprintf(b, sizeof b, decodes ? "up.%d.upsample." : "down.%d.downsample.", level);
        const naming at = name_at(decodes ? "decoder" : "encoder", a, b);
        add_conv(m, &at, "conv", "conv", channels, channels, 3);
    }
}

// A 1x1 convolution around the latents: random, or one that changes nothing.
static void add_quant(flux_maker* f, const char* diffusers, const char* ldm, int64_t channels)
{
    maker* m = &f->m;
    char a[64], b[64];
    for (int i = 0; i < 2; i++) {
        snprintf(a, sizeof a, "%s.%s", diffusers, i == 0 ? "weight" : "bias");
        snprintf(b, sizeof b, "%s.%s", ldm, i == 0 ? "weight" : "bias");
        float* data = add(m, a, b, (const int64_t[]){channels, channels, 1, 1}, i == 0 ? 4 : 1);
        for (int64_t k = 0; f->is_neutral && k < (i == 0 ? channels * channels : channels); k++)
            data[k] = i == 0 && k / channels == k % channels ? 1.0f : 0.0f;
    }
}

static void add_all(flux_maker* f, const int32_t* decoder_widths)
{
    static const int64_t s_count = 4 * LATENTS;
    maker* m = &f->m;
    const naming encoder = name_at("encoder", "", ""), decoder = name_at("decoder", "", "");
    add_conv(m, &encoder, "conv_in", "conv_in", s_wide[0], 3, 3);
    add_stages(m, false, s_wide, s_wide[0]);
    add_middle(m, "encoder", s_wide[STAGES - 1]);
    add_norm(m, &encoder, "conv_norm_out", "norm_out", s_wide[STAGES - 1]);
    add_conv(m, &encoder, "conv_out", "conv_out", 2 * LATENTS, s_wide[STAGES - 1], 3);
    const int64_t widest = decoder_widths[STAGES - 1];
    add_conv(m, &decoder, "conv_in", "conv_in", widest, LATENTS, 3);
    add_middle(m, "decoder", widest);
    add_stages(m, true, decoder_widths, widest);
    add_norm(m, &decoder, "conv_norm_out", "norm_out", decoder_widths[0]);
    add_conv(m, &decoder, "conv_out", "conv_out", 3, decoder_widths[0], 3);
    if (f->is_plain) return;
    add_quant(f, "quant_conv", "encoder.quant_conv", 2 * LATENTS);
    add_quant(f, "post_quant_conv", "decoder.post_quant_conv", LATENTS);
    float *mean = add(m, "bn.running_mean", "bn.running_mean", &s_count, 1),
          *variance = add(m, "bn.running_var", "bn.running_var", &s_count, 1);
    for (int64_t i = 0; i < s_count; i++) {
        mean[i] = f->is_neutral ? 0.0f : mean[i];
        variance[i] = f->is_neutral ? 0.9999f : 0.25f + 0.125f * (float)i;
    }
    static const int64_t s_batches = 5;
    const sumi_tensor tracked = {
        .dtype = SUMI_DTYPE_I64, .rank = 0, .file_index = -1, .data = &s_batches, .bytes = sizeof s_batches};
    sumi_error error = {0};
    CHECK(sumi_tensor_set_add(&m->set, "bn.num_batches_tracked", 22, &tracked, "made up", &error) == SUMI_OK);
}

static void begin_maker(flux_maker* f)
{
    *f = (flux_maker){.m = {.norm = "norm", .gain = 2.0f, .layer_rank = 2}};
    open_maker(&f->m, 1u << 17);
}

#define SAME_WIDTHS "\"norm_num_groups\": 4, \"block_out_channels\": [8, 8, 16]"
static const char s_config[] =
    "{" SAME_WIDTHS ", \"latent_channels\": 3, \"use_quant_conv\": true, \"patch_size\": [2, 2],"
    " \"use_post_quant_conv\": true, \"batch_norm_eps\": 0.0001, \"layers_per_block\": 1,"
    " \"decoder_block_out_channels\": null}",
                  s_plain[] =
                      "{" SAME_WIDTHS ", \"scaling_factor\": 1.0, \"shift_factor\": 0.0, \"use_quant_conv\": false}";

static sumi_result bind(bound* b, const flux_maker* f, const char* config, sumi_error* error)
{
    b->module = &sumi_flux_vae_module;
    return bind_on(b, &s_heap, &f->m, config, error);
}

static void check_refused(const flux_maker* f, const char* config, sumi_result wanted, const char* holds)
{
    check_refused_by(&sumi_flux_vae_module, &f->m, config, wanted, holds);
}

// ---- Runs -----------------------------------------------------------------------------------------------------------

// The index in packed latents of element i of the same latents, unpacked.
static size_t packed_index(const vae_run* run, size_t i)
{
    const size_t height = (size_t)run->height / 2, width = (size_t)run->width / 2, plane = height * width * 4,
                 c = i / plane, y = i % plane / (2 * width), x = i % plane % (2 * width);
    return (c * 4 + y % 2 * 2 + x % 2) * height * width + y / 2 * width + x / 2;
}

// An autoencoder without packs gets, and gives, the same latents unpacked.
static vae_run run_of(const void* vae, bool decodes, const int32_t size[3])
{
    const bool is_packed = sumi_flux_vae_module.properties(vae).packing == 2;
    const int32_t times = is_packed ? 1 : 2;
    return (vae_run){.module = &sumi_flux_vae_module,
                     .vae = vae,
                     .decodes = decodes,
                     .height = size[0] * times,
                     .width = size[1] * times,
                     .tile = size[2] * times,
                     .place = is_packed ? NULL : packed_index};
}

static void check_same(const void* a, const void* b)
{
    static const int32_t s_sizes[][3] = {{1, 1, 0}, {3, 2, 0}, {3, 5, 2}}; // packed; the last in tiles
    for (size_t s = 0; s < 2 * sizeof s_sizes / sizeof *s_sizes; s++) {
        const vae_run one = run_of(a, s % 2 == 0, s_sizes[s / 2]), two = run_of(b, s % 2 == 0, s_sizes[s / 2]);
        check_same_bits(&one, &two);
    }
}

TEST(ldm_names_are_the_same_model)
{
    for (int is_plain = 0; is_plain < 2; is_plain++) {
        flux_maker m[2];
        bound b[2];
        sumi_error error = {0};
        for (int i = 0; i < 2; i++) {
            begin_maker(&m[i]);
            m[i].m.has_other_names = i == 1;
            m[i].is_plain = is_plain != 0;
            add_all(&m[i], s_wide);
            CHECK_NUMBER(bind(&b[i], &m[i], is_plain ? s_plain : s_config, &error), SUMI_OK);
            CHECK_TEXT(error.text, "");
            const sumi_autoencoder_properties is = sumi_flux_vae_module.properties(b[i].vae);
            CHECK(is.packing == (is_plain ? 1 : 2) && is.channels == (is_plain ? 3 : 12));
            CHECK(is.factor == (is_plain ? 4 : 8) && is.sample_size == 1024 && is.has_decoder && is.has_encoder);
        }
        check_same(b[0].vae, b[1].vae);
        for (int i = 0; i < 2; i++) {
            unbind(&b[i]);
            end_maker(&m[i].m);
        }
    }
}

// With 1x1 convolutions and statistics that change nothing, Flux.2's is Flux.1's: of the same latents in packs.
TEST(packed_latents_are_those_of_the_network_in_packs)
{
    flux_maker m[2];
    bound b[2];
    sumi_error error = {0};
    for (int i = 0; i < 2; i++) {
        begin_maker(&m[i]);
        m[i].is_plain = i == 1;
        m[i].is_neutral = true;
        add_all(&m[i], s_wide);
        CHECK_NUMBER(bind(&b[i], &m[i], i == 1 ? s_plain : s_config, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
    }
    check_same(b[0].vae, b[1].vae);
    for (int i = 0; i < 2; i++) {
        unbind(&b[i]);
        end_maker(&m[i].m);
    }
}

TEST(statistics_are_of_each_packed_channel)
{
    flux_maker m;
    bound b;
    sumi_error error = {0};
    begin_maker(&m);
    add_all(&m, s_wide);
    CHECK_NUMBER(
        bind(&b, &m, "{" SAME_WIDTHS ", \"batch_norm_eps\": 0.5, \"decoder_block_out_channels\": [8, 8, 16]}", &error),
        SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK_NUMBER(((const sumi_flux_vae*)b.vae)->statistics_count, 12);
    for (int i = 0; i < 12; i++)
        CHECK_NEAR((double)((const sumi_flux_vae*)b.vae)->scale[i], 1.0 / sqrt(0.75 + 0.125 * (double)i), 0.0, 1e-6);
    unbind(&b);
    CHECK_NUMBER(bind(&b, &m, "{\"norm_num_groups\": 4}", &error), SUMI_OK);
    CHECK_NEAR((double)((const sumi_flux_vae*)b.vae)->scale[0], 1.0 / sqrt(0.2501), 0.0,
               1e-6); // the default of batch_norm_eps
    unbind(&b);
    end_maker(&m.m);
}

// ---- Refusals -------------------------------------------------------------------------------------------------------

TEST(a_file_with_half_of_what_flux_2_has_is_refused)
{
    static const struct {
        const char *leaves_out, *holds;
        sumi_result result;
    } s_cases[] = {{"bn.", "lacks the statistics of its latents (bn.running_mean", SUMI_NOT_SUPPORTED},
                   {"bn.running_mean", "bn.running_mean", SUMI_TENSOR_MISSING},
                   {"bn.running_var", "bn.running_var", SUMI_TENSOR_MISSING},
                   {"quant_conv.", "quant_conv.weight", SUMI_TENSOR_MISSING},
                   {"post_quant_conv.", "post_quant_conv.weight", SUMI_TENSOR_MISSING}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        flux_maker m;
        begin_maker(&m);
        m.m.leaves_out = s_cases[i].leaves_out;
        add_all(&m, s_wide);
        if (i == 0) { // added by itself
            sumi_tensor_set_close(&m.m.set);
            m.m.used = 0;
            sumi_tensor_set_init(&m.m.set, &s_heap, NULL);
            m.is_plain = true;
            add_all(&m, s_wide);
            add_quant(&m, "quant_conv", "encoder.quant_conv", 2 * LATENTS);
            check_refused(&m, NULL, s_cases[i].result, s_cases[i].holds);
        }
        check_refused(&m, "{\"norm_num_groups\": 4}", s_cases[i].result, s_cases[i].holds);
        end_maker(&m.m);
    }
    flux_maker m;
    begin_maker(&m);
    m.is_plain = true;
    add_all(&m, s_wide);
    check_refused(&m, "{\"norm_num_groups\": 4, \"use_quant_conv\": true}", SUMI_NOT_SUPPORTED, "lacks the statistics");
    const int64_t count = 12;
    add(&m.m, "bn.running_mean", "bn.running_mean", &count, 1);
    check_refused(&m, s_plain, SUMI_NOT_SUPPORTED, "lacks the quantisation convolutions (quant_conv");
    end_maker(&m.m);
}

TEST(every_missing_or_misshapen_tensor_is_named)
{
    for (int is_ldm = 0; is_ldm < 2; is_ldm++) {
        flux_maker all;
        begin_maker(&all);
        all.m.has_other_names = is_ldm != 0;
        add_all(&all, s_wide);
        for (size_t i = 0; i < all.m.set.count; i++) {
            const char* name = all.m.set.tensors[i].name;
            if (strcmp(name, "bn.num_batches_tracked") == 0) continue;
            for (int is_missing = 0; is_missing < 2; is_missing++) {
                flux_maker m;
                begin_maker(&m);
                m.m.has_other_names = all.m.has_other_names;
                if (is_missing) m.m.left_out = name;
                else m.m.doubled = name;
                add_all(&m, s_wide);
                check_damage(&sumi_flux_vae_module, &m.m, s_config);
                end_maker(&m.m);
            }
        }
        end_maker(&all.m);
    }
}

TEST(numbers_that_do_not_belong_together_are_refused)
{
    flux_maker m;
    begin_maker(&m);
    add_all(&m, s_wide);
    check_refused(&m, "{" SAME_WIDTHS ", \"patch_size\": [1, 1]}", SUMI_TENSOR_MISMATCH, "patch_size is 1");
    check_refused(&m, "{" SAME_WIDTHS ", \"patch_size\": [2, 4]}", SUMI_TENSOR_MISMATCH, "patch_size is 4");
    check_refused(&m, "{" SAME_WIDTHS ", \"latent_channels\": 4}", SUMI_TENSOR_MISMATCH, "latent_channels is 4");
    check_refused(&m, "{" SAME_WIDTHS ", \"batch_norm_eps\": -1}", SUMI_NOT_SUPPORTED, "batch_norm_eps not negative");
    check_refused(&m, "{" SAME_WIDTHS ", \"mid_block_add_attention\": false}", SUMI_NOT_SUPPORTED, "not a Flux VAE");
    check_refused(&m, "{" SAME_WIDTHS ", \"decoder_block_out_channels\": [8, 4, 16]}", SUMI_TENSOR_MISMATCH,
                  "decoder_block_out_channels[1] is 4");
    check_refused(&m, "{\"norm_num_groups\": 3}", SUMI_TENSOR_MISMATCH, "norm groups");
    float* variance = (float*)(uintptr_t)sumi_tensor_find(&m.m.set, "bn.running_var")->data;
    variance[7] = -0.5f;
    check_refused(&m, s_config, SUMI_FILE_MALFORMED, "value 7 of bn.running_var is -0.5");
    variance[7] = NAN;
    check_refused(&m, s_config, SUMI_FILE_MALFORMED, "bn.running_var are NaN or infinite");
    end_maker(&m.m);
}

// Flux.2's small decoder: its widths come from the tensors, and the config has a list of its own.
TEST(a_decoder_may_have_widths_of_its_own)
{
    flux_maker m;
    bound b;
    sumi_error error = {0};
    begin_maker(&m);
    add_all(&m, s_narrow);
    CHECK_NUMBER(bind(&b, &m, "{" SAME_WIDTHS ", \"decoder_block_out_channels\": [4, 4, 8]}", &error), SUMI_OK);
    CHECK_TEXT(error.text, "");
    check_same(b.vae, b.vae);
    unbind(&b);
    check_refused(&m, s_config, SUMI_TENSOR_MISMATCH, "block_out_channels[2] is 16");
    check_refused(&m, "{" SAME_WIDTHS ", \"decoder_block_out_channels\": [4, 8]}", SUMI_TENSOR_MISMATCH,
                  "the length of decoder_block_out_channels is 2");
    end_maker(&m.m);
}

TEST(an_encoder_may_be_missing)
{
    for (int is_ldm = 0; is_ldm < 2; is_ldm++) {
        flux_maker m;
        bound b;
        sumi_error error = {0};
        begin_maker(&m);
        m.m.has_other_names = is_ldm != 0;
        m.m.leaves_out = "encoder.";
        add_all(&m, s_wide);
        CHECK_NUMBER(bind(&b, &m, s_config, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        const sumi_autoencoder_properties is = sumi_flux_vae_module.properties(b.vae);
        CHECK(is.has_decoder && !is.has_encoder && is.channels == 12);
        unbind(&b);
        end_maker(&m.m);
    }
}

TEST(tiles_are_whole_quarters_of_what_the_network_reads)
{
    flux_maker m;
    bound b;
    sumi_error error = {0};
    begin_maker(&m);
    add_all(&m, s_wide);
    CHECK_NUMBER(bind(&b, &m, s_config, &error), SUMI_OK);
    for (int32_t tile = -2; tile <= 3; tile++) { // 2 packed latents are 4 of the network
        sumi_plan plan;
        sumi_plan_begin(&plan, &s_heap, 4);
        sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
        const sumi_value from = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, 12, 80),
                         to = sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_ACTIVATION, 80 * 64, 3);
        const sumi_vae_tiling tiling = sumi_flux_vae_module.tiling(b.vae);
        sumi_vae_tiles_decode(&tiling, &plan, &(sumi_tile_source){from, 8, 10}, tile, to);
        error = (sumi_error){0};
        const bool is_good = tile == 0 || tile == 2;
        CHECK_NUMBER(sumi_plan_finish(&plan, &error), is_good ? SUMI_OK : SUMI_INVALID_ARGUMENT);
        CHECK(is_good || strstr(error.text, "multiple of 4") != NULL);
        sumi_plan_end(&plan);
    }
    unbind(&b);
    end_maker(&m.m);
}

TEST(every_failing_allocation_is_survived)
{
    flux_maker m;
    begin_maker(&m);
    add_all(&m, s_wide);
    bool finished = false;
    int64_t n = 0;
    for (; n < 10000 && !finished; n++) {
        failing f = {.left = n};
        const sumi_allocator allocator = failing_allocator(&f);
        sumi_heap heap;
        sumi_heap_init(&heap, &allocator);
        bound b = {.module = &sumi_flux_vae_module};
        sumi_plan plan = {0};
        sumi_error error = {0};
        sumi_result result = bind_on(&b, &heap, &m.m, s_config, &error);
        if (result == SUMI_OK) {
            const sumi_vae_tiling tiling = sumi_flux_vae_module.tiling(b.vae);
            sumi_plan_begin(&plan, &heap, 4);
            sumi_plan_section(&plan, SUMI_SECTION_IMAGE, 1, 0);
            const sumi_value pixels = sumi_plan_bound(&plan, "pixels", SUMI_ELEMENT_BYTE, 16 * 24, 3),
                             latents = sumi_plan_bound(&plan, "latents", SUMI_ELEMENT_FLOAT, 12, 6),
                             picture = sumi_plan_bound(&plan, "picture", SUMI_ELEMENT_ACTIVATION, 16 * 24, 3);
            const sumi_tile_source small = {latents, 2, 3};
            const sumi_value moments = sumi_vae_tiles_encode(&tiling, &plan, &(sumi_tile_source){pixels, 16, 24}, 0);
            sumi_vae_posterior(&tiling, &plan, moments, SUMI_NO_VALUE, &small);
            sumi_plan_section(&plan, SUMI_SECTION_DECODE, 1, 0);
            sumi_vae_tiles_decode(&tiling, &plan, &small, 0, picture);
            result = sumi_plan_finish(&plan, &error);
        }
        finished = f.refused == 0;
        if (result != (finished ? SUMI_OK : SUMI_OUT_OF_HOST_MEMORY)) {
            printf("  allocation %lld: result %d, \"%s\"\n", (long long)n, (int)result, error.text);
            CHECK(!"a failed allocation is reported as one");
            finished = true;
        }
        sumi_plan_end(&plan);
        unbind(&b);
        CHECK_NUMBER(f.held, 0);
    }
    CHECK(n > 10);
    end_maker(&m.m);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    if (!begin_cpu(2)) return 1;
    RUN(ldm_names_are_the_same_model);
    RUN(packed_latents_are_those_of_the_network_in_packs);
    RUN(statistics_are_of_each_packed_channel);
    RUN(a_file_with_half_of_what_flux_2_has_is_refused);
    RUN(every_missing_or_misshapen_tensor_is_named);
    RUN(numbers_that_do_not_belong_together_are_refused);
    RUN(a_decoder_may_have_widths_of_its_own);
    RUN(an_encoder_may_be_missing);
    RUN(tiles_are_whole_quarters_of_what_the_network_reads);
    RUN(every_failing_allocation_is_survived);
    end_cpu();
    TEST_END();
}
