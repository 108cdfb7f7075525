// The families that this library runs: one line for each recipe.
#include "models/recipe.h"

static const sumi_recipe* const s_recipes[] = {
    &sumi_recipe_z_image, &sumi_recipe_qwen_image_edit_plus, &sumi_recipe_qwen_image_edit, &sumi_recipe_qwen_image,
    &sumi_recipe_newbie,
};

const sumi_recipe* sumi_recipe_get(int32_t index)
{
    return index >= 0 && index < (int32_t)(sizeof s_recipes / sizeof *s_recipes) ? s_recipes[index] : NULL;
}
