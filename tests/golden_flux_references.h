// Cases of a shift by tokens and steps, of references that are cropped, and of start images that are references.
#ifndef GOLDEN_FLUX_REFERENCES_H
#define GOLDEN_FLUX_REFERENCES_H
#include "golden_support.h"

// Kinds schedule (tables of sigmas; where inpainting starts) and preprocess (sizes of references, pixels of one) of any
// family that has them, with the rules of the network that the case names. False: the kind is another.
bool run_flux_reference_case(golden_case* c);

// What a pipeline of inpainting begins with.
typedef struct inpaint_inputs {
    uint8_t* rgb; // the start image in the size of the case: [height * width, 3]
    array mask;   // in the size of the latents: 1 = repaint
} inpaint_inputs;
// Makes them of input.image and input.mask_image, and compares them, the first time, with expect.prepared_u8 and
// expect.mask, and the size of the case with the one that an image without a size gets. False after reporting: nothing
// was made. The caller frees them in any case.
bool make_inpaint_inputs(golden_case* c, const sumi_network* network, inpaint_inputs* out);
void free_inpaint_inputs(inpaint_inputs* inputs);
#endif
