// Cases of the autoencoder of Flux.
#ifndef GOLDEN_FLUX_VAE_H
#define GOLDEN_FLUX_VAE_H
#include "golden_support.h"

// Kinds vae_decode, vae_encode and vae_tiled of any family that has it.
// network: NULL after reporting.
void run_flux_vae_case(golden_case* c, sumi_network* network, bool decodes, bool encodes);
// The same kinds with the autoencoder by itself, without a recipe. False: the case is of another kind.
bool run_flux_vae_alone(golden_case* c);
#endif
