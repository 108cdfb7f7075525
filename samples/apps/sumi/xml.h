// Prompts in XML from the command line: --character, --tags, --caption.
#ifndef XML_H
#define XML_H
#include "args.h"

typedef struct xml_args {
    text_list characters; // "name=hatsune_miku; gender=1girl; appearance=..."
    const char *tags, *caption;
    int32_t indent;
} xml_args;

#define XML_OPTIONS(args)                                                                                              \
    {"--character",                                                                                                    \
     OPTION_TEXTS,                                                                                                     \
     &(args)->characters,                                                                                              \
     "\"KEY=TAGS; ...\"",                                                                                              \
     "a prompt in XML: one character, of name, gender, appearance, clothing, body_type, expression, action, "          \
     "interaction, position; may be given several times. \\; is a semicolon inside a value",                           \
     0,                                                                                                                \
     0},                                                                                                               \
        {"--tags",                                                                                                     \
         OPTION_TEXT,                                                                                                  \
         &(args)->tags,                                                                                                \
         "\"KEY=TAGS; ...\"",                                                                                          \
         "of the whole picture in XML: count, artists, style, background, environment, perspective, atmosphere, "      \
         "lighting, resolution, quality, objects, other, extra_tags",                                                  \
         0,                                                                                                            \
         0},                                                                                                           \
        {"--caption", OPTION_TEXT, &(args)->caption, "TEXT", "prose behind the tags in XML", 0, 0},                    \
    {                                                                                                                  \
        "--xml-indent", OPTION_COUNT, &(args)->indent, "N",                                                            \
            "spaces before every line of the XML, 0 by default; white space is seen by the model", 0, 16               \
    }

bool xml_is_given(const xml_args* args);
// Writes the XML text into new memory, which the caller frees. Returns EXIT_OK, or another exit code after printing a
// sentence.
int xml_make(const cli_command* command, const xml_args* args, char** out_text);
#endif
