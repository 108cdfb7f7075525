// A prompt in XML, for models that were trained on such captions. The prompt of the command line is the caption.
#include "cookbook.h"
#include <sumi_xml.h>

sumi_result recipe_xml_prompt(const recipe_host* host)
{
    // [excerpt xml_prompt]
    const sumi_xml_character characters[] = {
        {.gender = "1girl", .appearance = "silver_hair, green_eyes", .position = "center_left"},
        {.name = "hatsune_miku", .action = "waving"},
    };
    sumi_xml_prompt_desc xml = sumi_xml_prompt_defaults();
    xml.characters = characters;
    xml.character_count = 2;
    xml.tags.count = "2girls";
    xml.tags.background = "city_street, rain";
    xml.caption = host->prompt;
    char text[4096];
    sumi_result result = sumi_xml_prompt_write(&xml, text, sizeof text, NULL); // needs no engine
    sumi_image_item item = {.text = text, .seed = 7};                          // from here on a text as any other
    // [end]
    if (result != SUMI_OK) return result;
    printf("%s\n", text);
    sumi_image_desc desc = sumi_image_defaults(host->model, SUMI_PRESET_MODEL);
    desc.items = &item;
    desc.item_count = 1;
    sumi_job job;
    result = sumi_submit_images(host->engine, &desc, &job);
    return result == SUMI_OK ? recipe_finish(host, host->engine, job) : result;
}
