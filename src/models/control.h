// An opened control net: a file with its weights, for one denoiser. control_module.h says what nets are and do.
#ifndef SUMI_MODELS_CONTROL_H
#define SUMI_MODELS_CONTROL_H
#include "models/limits.h"
#include "models/network.h"
#include "pictures/depth.h"

#define SUMI_CONTROL_MAX_PLACES 128

// The planes of a control picture, in the size of the latents, in the order in which a net reads them. A mask is 1
// where the picture is kept and 0 where it is repainted.
typedef enum sumi_control_planes {
    SUMI_PLANES_PICTURE,             // the latents of the control picture
    SUMI_PLANES_PICTURE_MASK_MASKED, // these, the mask, the latents of the masked picture; all 0: none
    SUMI_PLANES_MASKED_MASK          // the latents of the masked picture, the mask
} sumi_control_planes;

typedef struct sumi_control_net_info {
    const char* kind; // "z-fun-2.1"
    sumi_control_planes planes;
    // A mask is taken as black and white, after it was resized like pictures; otherwise its greys are kept.
    bool has_binary_mask;
    bool masks_with_black;            // a masked picture is black where it is masked; otherwise of the middle grey
    sumi_depth_stretch depth_stretch; // how a depth buffer becomes a control picture
    float usual_strength;
    // After which blocks of the denoiser a hint is added, in this order, and the number of the hint.
    int32_t place_count;
    int16_t places[SUMI_CONTROL_MAX_PLACES], hints[SUMI_CONTROL_MAX_PLACES];
    uint64_t weight_bytes;
} sumi_control_net_info;

typedef struct sumi_control_net sumi_control_net;

// Opening in steps, as of a network (network.h). path: a diffusers folder or a file. The network must be open and
// outlive the net. SUMI_NOT_SUPPORTED: a net of another family, or one that this library does not know;
// SUMI_TENSOR_MISMATCH: of another size.
sumi_result sumi_control_net_open_begin(const sumi_network* network, const sumi_files* files, const char* path,
                                        sumi_error* error, sumi_control_net** out_net);
sumi_result sumi_control_net_open_step(sumi_control_net* net, uint32_t budget_us, bool* out_done, float* out_progress,
                                       sumi_error* error);
void sumi_control_net_close(sumi_control_net* net); // accepts NULL and half-opened nets; no plan of it may be in use

const sumi_control_net_info* sumi_control_net_get_info(const sumi_control_net* net); // valid once opening is done
// All weights that plans with this net use beside the weights of the network.
const sumi_weight* const* sumi_control_net_weights(const sumi_control_net* net, int32_t* out_count);
// The channels of the planes, for latents of so many channels.
int32_t sumi_control_channels(sumi_control_planes planes, int32_t latent_channels);
#endif
