// What autoencoders of Wan's kind share: the names of their parts in files, how residual blocks and halves are bound,
// and how a tile is decoded and encoded. qwen_vae.c and qwen_vae_21.c have what differs: how stages are numbered in
// files, what their config.json says, and the statistics of the released weights.
#ifndef SUMI_MODELS_WAN_VAE_H
#define SUMI_MODELS_WAN_VAE_H
#include "models/autoencoders.h"

// ---- Names ----------------------------------------------------------------------------------------------------------

// Writes Wan's name of the module of a stage up to the part inside a block, of SUMI_WAN_PREFIX_BYTES. side: "encoder" or
// "decoder"; inner: the canonical name after it. Returns the rest of `inner`; NULL: it is not in a stage.
#define SUMI_WAN_PREFIX_BYTES 64
typedef const char* sumi_wan_stage_name(const sumi_qwen_vae* vae, const char* side, const char* inner, char* prefix);

// Wan's name of a tensor with this name in diffusers. False if it has none.
bool sumi_wan_alias(const sumi_qwen_vae* vae, sumi_wan_stage_name* stage_name, const char* canonical, char* out,
                    size_t out_bytes);

// ---- Weights --------------------------------------------------------------------------------------------------------

// Values of config.json. 0: not given.
typedef struct sumi_wan_config {
    int32_t channels, blocks, factors[SUMI_VAE_MAX_STAGES], factor_count;
    int32_t encoder_base, decoder_base; // widths
    int32_t patch, attention_count;
    bool is_residual;
    double mean[SUMI_QWEN_VAE_MAX_CHANNELS], deviation[SUMI_QWEN_VAE_MAX_CHANNELS];
    int32_t mean_count, deviation_count;
    // the statistics of the released weights, for files without a config.json
    const double *released_mean, *released_deviation;
    int32_t released_count;
} sumi_wan_config;

// Binds the residual blocks of the half's stages and the convolutions that resample. Returns the channels that leave.
typedef int32_t sumi_wan_bind_stages(const sumi_qwen_vae* vae, sumi_binder* b, sumi_vae_half* half, int32_t channels);
typedef struct sumi_wan_stages {
    sumi_wan_bind_stages *encoder, *decoder;
} sumi_wan_stages;

// Reads the members of config.json that all of them have.
void sumi_wan_read_config(sumi_qwen_vae* vae, sumi_binder* b, const sumi_module_config* config,
                          sumi_wan_config* values);
// The channels of the latents, and their statistics.
void sumi_wan_bind_statistics(sumi_qwen_vae* vae, sumi_binder* b, const sumi_module_config* config,
                              const sumi_wan_config* values);
// Binds both halves, and checks them against config.json and each other.
void sumi_wan_bind_halves(sumi_qwen_vae* vae, sumi_binder* b, const sumi_wan_stages* stages, bool without_encoder);
void sumi_wan_check_halves(const sumi_qwen_vae* vae, sumi_binder* b, const sumi_wan_config* values, const char* path);

int32_t sumi_wan_bind_block(sumi_binder* b, sumi_vae_block* w, const char* module, int32_t in_channels);
int32_t sumi_wan_bind_resample(sumi_binder* b, sumi_vae_stage* stage, const char* module, int32_t in_channels);
void sumi_wan_refuse_count(sumi_binder* b, const char* what, int32_t count, int32_t max_count);

// ---- The network module ---------------------------------------------------------------------------------------------

sumi_autoencoder_properties sumi_wan_properties(const void* model);
sumi_vae_tiling sumi_wan_tiling(const void* model);
#endif
