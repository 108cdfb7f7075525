// sumi_xml: writes prompts in XML.
//
// Optional; it needs only sumi.h. Some models, NewBie-image for example, were trained on captions in XML: one group of
// tags for each character, one group for the image, and a caption in prose. The functions here write such a text. The
// result is an ordinary text for sumi_image_item.text or sumi_prompt_desc.text of any model. The same models also read
// plain prose and lists of tags.
//
//     sumi_xml_character girl = {0};
//     girl.gender = "1girl";
//     girl.appearance = "silver_hair, short_hair, green_eyes";
//     sumi_xml_prompt_desc desc = sumi_xml_prompt_defaults();
//     desc.characters = &girl;
//     desc.character_count = 1;
//     desc.tags.style = "anime_style, watercolor";
//     char text[4096];
//     if (sumi_xml_prompt_write(&desc, text, sizeof text, NULL) == SUMI_OK) item.text = text;
//
// writes
//
//     <character_1>
//     <n>$character_1$</n>
//     <gender>1girl</gender>
//     <appearance>silver_hair, short_hair, green_eyes</appearance>
//     </character_1>
//
//     <general_tags>
//     <style>anime_style, watercolor</style>
//     </general_tags>
//
// Layout      The model reads white space too, so there is only one layout: each tag on its own line, an empty line
//             between groups, no line end after the last line. The order is that of the members below. This is the
//             layout of the prompts in the model's published workflow; the captions that it was trained on are not
//             published. The example on its model card also begins every line with two spaces: see `indent`.
// Values      Lists of tags separated by commas, as booru sites write them (long_hair, blue_eyes); prose in the
//             caption. White space at both ends is removed, white space inside stays. A value that is NULL, empty or
//             only white space is left out together with its tag. general_tags is left out if it has no tags.
// Escapes     & < > are written as &amp; &lt; &gt;, as in the prompt builders of the model's authors, so no value can
//             open or close a tag. All other characters stay as they are, even quotes, parentheses and backslashes:
//             prompts have no syntax for weights. A value that you have already escaped is escaped a second time.
// Length      The model cuts texts that are longer than sumi_model_info.max_prompt_tokens. The caption comes last, so
//             it is cut first.
#ifndef SUMI_XML_H
#define SUMI_XML_H
#include "sumi.h"
#ifdef __cplusplus
extern "C" {
#endif

// One character. Characters are numbered from 1, in the order of the array. A character without any value is written
// as a group that contains only a name.
typedef struct sumi_xml_character {
    // "hatsune_miku". NULL or empty: $character_1$, $character_2$ and so on. A caption refers to a character by its
    // name.
    const char* name;
    const char* gender; // "1girl", "1boy"
    const char* appearance;
    const char* clothing;
    const char* body_type;
    const char* expression;
    const char* action;
    const char* interaction;
    const char* position; // "center_left"
} sumi_xml_character;

// The tags of the whole image.
typedef struct sumi_xml_tags {
    const char* count; // "2girls, multiple_girls"
    const char* artists;
    const char* style;
    const char* background;
    const char* environment;
    const char* perspective;
    const char* atmosphere;
    const char* lighting;
    const char* resolution;
    const char* quality;
    const char* objects;
    const char* other;
    const char* extra_tags;
} sumi_xml_tags;

typedef struct sumi_xml_prompt_desc {
    uint32_t cookie; // set by sumi_xml_prompt_defaults(); leave it alone
    int32_t indent;  // spaces before every line that is not empty, 0..16
    const sumi_xml_character* characters;
    int32_t character_count; // 0..64
    sumi_xml_tags tags;
    const char* caption; // prose, written after all tags
    sumi_log log;        // is told which member is wrong; all zero: no log
} sumi_xml_prompt_desc;

// Returns a desc without characters, tags, caption and indent. Any thread, at any time.
SUMI_API sumi_xml_prompt_desc sumi_xml_prompt_defaults(void);
// Writes the text, zero-terminated, into the `capacity` bytes at `into`, and to *out_bytes the number of bytes that it
// takes, including the terminating zero. out_bytes may be NULL. To ask only for the number of bytes, pass NULL for
// `into` and 0 for `capacity`. An empty desc gives the empty text. Needs no engine and allocates nothing. Any thread,
// at any time.
//
// Failures: SUMI_INVALID_ARGUMENT if `capacity` is too small; *out_bytes is then written and greater than `capacity`.
// With *out_bytes 0: SUMI_INVALID_ARGUMENT, SUMI_DESC_NOT_INITIALIZED; SUMI_TEXT_INVALID if a value is not valid UTF-8.
// After any failure `into` holds the empty text, provided that capacity is at least 1.
SUMI_API sumi_result sumi_xml_prompt_write(const sumi_xml_prompt_desc* desc, char* into, size_t capacity,
                                           size_t* out_bytes);

#ifdef __cplusplus
}
#endif
#endif
