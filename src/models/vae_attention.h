// The attention in the middle of an autoencoder: over all pixels, with one head as wide as the channels.
#ifndef SUMI_MODELS_VAE_ATTENTION_H
#define SUMI_MODELS_VAE_ATTENTION_H
#include "plan/plan.h"

typedef struct sumi_vae_attention {
    sumi_weight qkv, qkv_bias, out, out_bias;
} sumi_vae_attention;

// normed: x [pixels, channels] after the norm, which differs between autoencoders. Returns x plus the output of
// attention.
sumi_value sumi_vae_attention_write(const sumi_vae_attention* attention, sumi_plan* plan, sumi_value normed,
                                    sumi_value x, int32_t pixels);
#endif
