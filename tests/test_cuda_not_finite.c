// NaN and infinity in weights of a model or an adapter: no picture comes of them on a GPU, in every format of weights, by
// the kernels for this GPU and by the portable ones. Without a GPU everything is skipped.
#include "test.h"
#ifdef SUMI_HAS_CUDA
#include "cuda/state.h"
#include "damage_fixture.h"
#include "jobs/engine_state.h"

// NULL: there is no GPU.
static sumi_engine* open_gpu(bool is_portable)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc desc = host_desc(&s_host);
    desc.backend = SUMI_BACKEND_CUDA;
    desc.files = &s_service;
    sumi_engine* engine = NULL;
    if (sumi_engine_create(&desc, &engine) != SUMI_OK) return NULL;
    sumi_cuda* cuda = (sumi_cuda*)engine->runner;
    cuda->options.without_hopper = cuda->options.without_hopper || is_portable;
    cuda->options.without_graphs = true; // each model draws one picture
    return engine;
}

TEST(a_gpu)
{
    sumi_engine* engine = open_gpu(false);
    if (engine == NULL) SKIP(s_host.log);
    close_engine(engine);
}

static void check_model(const char* path, sumi_weight_format weights, const char* part)
{
    for (int is_portable = 0; is_portable < 2; is_portable++) {
        sumi_engine* engine = open_gpu(is_portable == 1);
        damage_model((family){.model = path, .weights = weights, .engine = engine}, part);
        close_engine(engine);
    }
}

static void check_adapter(const char* model, const char* path)
{
    for (int is_portable = 0; is_portable < 2; is_portable++) {
        sumi_engine* engine = open_gpu(is_portable == 1);
        damage_adapter((family){.model = model, .adapter = path, .engine = engine});
        close_engine(engine);
    }
}

static void no_picture_comes_of_nan_in(const char* model, const char* part)
{
    check_model(model, SUMI_WEIGHTS_AUTO, part);
}
TEST(no_picture_comes_of_nan_in_fp8) { check_model(Z_IMAGE "model", SUMI_WEIGHTS_FP8, "transformer"); }
TEST(no_picture_comes_of_nan_in_int8) { check_model(Z_IMAGE "model", SUMI_WEIGHTS_INT8, "transformer"); }
TEST(no_picture_comes_of_nan_in_int4) { check_model(Z_IMAGE "model", SUMI_WEIGHTS_INT4, "transformer"); }
TEST(no_picture_comes_of_nan_in_an_adapter)
{
    check_adapter(Z_IMAGE "model", Z_IMAGE "lora/lora_kohya.safetensors");
    check_adapter(NEWBIE "model", NEWBIE "adapters/lokr_low/adapter_model.safetensors");
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    const char* filter = t_filter;
    t_filter = NULL;
    RUN(a_gpu); // whatever is asked for
    if (t_skipped > 0) TEST_END();
    t_filter = filter;
    RUN_FOR_COMPONENTS(no_picture_comes_of_nan_in);
    RUN(no_picture_comes_of_nan_in_fp8);
    RUN(no_picture_comes_of_nan_in_int8);
    RUN(no_picture_comes_of_nan_in_int4);
    RUN(no_picture_comes_of_nan_in_an_adapter);
    TEST_END();
}
#else
#include "without_cuda.h"
#endif
