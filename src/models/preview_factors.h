// Linear factors from the latents of an autoencoder to colours, for previews without decoding: fitted by others to
// pictures and their latents, and in common use.
#ifndef SUMI_MODELS_PREVIEW_FACTORS_H
#define SUMI_MODELS_PREVIEW_FACTORS_H
#include "pictures/pixels.h"

const sumi_preview_factors* sumi_preview_flux(void); // of flux_vae.h
const sumi_preview_factors* sumi_preview_wan(void);  // of the Wan 2.1 autoencoder, which qwen_vae.h is
#endif
