// The kinds of cases of FLUX.2 [klein], by the part that they are about.
#include "golden_flux_dit.h"
#include "golden_flux_pipeline.h"
#include "golden_flux_references.h"
#include "golden_flux_vae.h"
#include "golden_klein_prompts.h"

bool run_flux2_klein_case(golden_case* c)
{
    bool is_known = run_flux_dit_case(c);
    is_known = run_flux_vae_alone(c) || is_known;
    is_known = run_flux_reference_case(c) || is_known;
    is_known = run_flux_pipeline_case(c) || is_known;
    is_known = run_klein_prompt_case(c) || is_known;
    return is_known;
}
