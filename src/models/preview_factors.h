// Linear factors from latents to colours, for previews without decoding. Other projects fitted them to pictures and
// their latents; they are in common use.
#ifndef SUMI_MODELS_PREVIEW_FACTORS_H
#define SUMI_MODELS_PREVIEW_FACTORS_H
#include "pictures/pixels.h"

const sumi_preview_factors* sumi_preview_flux(void); // for the latents of flux_vae.h
const sumi_preview_factors* sumi_preview_wan(void);  // for the latents of qwen_vae.h (the Wan 2.1 autoencoder)
#endif
