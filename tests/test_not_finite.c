// NaN and infinity in weights of a model or an adapter: no picture comes of them on the CPU.
#include "damage_fixture.h"

static family open_family(const char* model, const char* adapter)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc desc = host_desc(&s_host);
    desc.files = &s_service;
    family f = {.model = model, .adapter = adapter};
    CHECK_NUMBER(sumi_engine_create(&desc, &f.engine), SUMI_OK);
    return f;
}

static void no_picture_comes_of_nan_in(const char* path, const char* part)
{
    const family f = open_family(path, NULL);
    damage_model(f, part);
    close_engine(f.engine);
}

static void check_adapter(const char* model, const char* path)
{
    const family f = open_family(model, path);
    damage_adapter(f);
    close_engine(f.engine);
}

TEST(no_picture_comes_of_nan_in_one_byte)
{
    store_as_e4m3(NEWBIE "model/transformer/diffusion_pytorch_model.safetensors");
    no_picture_comes_of_nan_in(NEWBIE "model", "transformer");
}
TEST(no_picture_comes_of_nan_in_an_adapter)
{
    check_adapter(Z_IMAGE "model", Z_IMAGE "lora/lora_kohya.safetensors");
    check_adapter(QWEN "model", QWEN "lora/peft.safetensors");
    check_adapter(NEWBIE "model", NEWBIE "adapters/lora_peft/adapter_model.safetensors");
    check_adapter(NEWBIE "model", NEWBIE "adapters/lokr_low/adapter_model.safetensors");
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN_FOR_COMPONENTS(no_picture_comes_of_nan_in);
    RUN(no_picture_comes_of_nan_in_one_byte);
    RUN(no_picture_comes_of_nan_in_an_adapter);
    TEST_END();
}
