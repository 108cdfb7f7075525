// The families of this library, one line per recipe. A build may leave some out (premake5.lua, --families) by defining
// SUMI_WITHOUT_NAME for recipe_name.c. Nothing else refers to a recipe, so the linker then leaves out its modules too.
#include "models/recipe.h"
#include <string.h>

static const sumi_recipe* const s_recipes[] = {
#ifndef SUMI_WITHOUT_Z_IMAGE
    &sumi_recipe_z_image,
#endif
#ifndef SUMI_WITHOUT_QWEN_IMAGE
    &sumi_recipe_qwen_image_edit_plus,
    &sumi_recipe_qwen_image_edit,
    &sumi_recipe_qwen_image,
#endif
#ifndef SUMI_WITHOUT_QWEN_IMAGE_21
    &sumi_recipe_qwen_image_21,
#endif
#ifndef SUMI_WITHOUT_NEWBIE
    &sumi_recipe_newbie,
#endif
#ifndef SUMI_WITHOUT_FLUX2_KLEIN
    &sumi_recipe_flux2_klein,
#endif
};

// Their transformers, by the names in signatures.c.
static const char* const s_left_out[] = {
#ifdef SUMI_WITHOUT_Z_IMAGE
    "z-image",
#endif
#ifdef SUMI_WITHOUT_QWEN_IMAGE
    "qwen-image",
#endif
#ifdef SUMI_WITHOUT_QWEN_IMAGE_21
    "qwen-image-2.1",
#endif
#ifdef SUMI_WITHOUT_NEWBIE
    "newbie-image",
#endif
#ifdef SUMI_WITHOUT_FLUX2_KLEIN
    "flux2",
#endif
    NULL};

const sumi_recipe* sumi_recipe_get(int32_t index)
{
    return index >= 0 && index < (int32_t)(sizeof s_recipes / sizeof *s_recipes) ? s_recipes[index] : NULL;
}

bool sumi_recipe_is_left_out(const char* network)
{
    int32_t i = 0;
    while (s_left_out[i] != NULL && strcmp(s_left_out[i], network) != 0) i++;
    return s_left_out[i] != NULL;
}
