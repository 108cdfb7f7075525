// sumi xml: prints a prompt in XML, for models that were trained on such captions. With the same options sumi generate
// makes an image from the same text.
#include "xml.h"
#include "commands.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sumi_xml.h>

// ---- "key=value; key=value" -----------------------------------------------------------------------------------------

typedef struct key {
    const char* name;
    size_t offset; // of a const char* member of the struct that the key is for
} key;
#define CHARACTER_KEY(name)                                                                                            \
    {                                                                                                                  \
#name, offsetof(sumi_xml_character, name)                                                                      \
    }
#define TAGS_KEY(name)                                                                                                 \
    {                                                                                                                  \
#name, offsetof(sumi_xml_tags, name)                                                                           \
    }
static const key s_character_keys[] = {CHARACTER_KEY(name),       CHARACTER_KEY(gender),
                                       CHARACTER_KEY(appearance), CHARACTER_KEY(clothing),
                                       CHARACTER_KEY(body_type),  CHARACTER_KEY(expression),
                                       CHARACTER_KEY(action),     CHARACTER_KEY(interaction),
                                       CHARACTER_KEY(position),   {NULL, 0}};
static const key s_tags_keys[] = {TAGS_KEY(count),       TAGS_KEY(artists),
                                  TAGS_KEY(style),       TAGS_KEY(background),
                                  TAGS_KEY(environment), TAGS_KEY(perspective),
                                  TAGS_KEY(atmosphere),  TAGS_KEY(lighting),
                                  TAGS_KEY(resolution),  TAGS_KEY(quality),
                                  TAGS_KEY(objects),     TAGS_KEY(other),
                                  TAGS_KEY(extra_tags),  {NULL, 0}};

// Terminates the field that begins at `text`, and replaces \; by a semicolon. Returns the beginning of the next field,
// or NULL after the last one.
static char* cut_field(char* text)
{
    char* to = text;
    for (char* from = text;; from++) {
        if (from[0] == '\\' && from[1] == ';') from++;
        else if (*from == ';' || *from == '\0') {
            char* next = *from == ';' ? from + 1 : NULL;
            *to = '\0';
            return next;
        }
        *to++ = *from;
    }
}

static char* trim(char* text)
{
    text += strspn(text, " \t\r\n");
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r\n", text[length - 1])) text[--length] = '\0';
    return text;
}

static int wrong_key(const cli_command* command, const char* option, const char* name, const key* keys)
{
    char names[256] = "";
    for (size_t used = 0; keys->name; keys++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", keys->name);
    return args_wrong(command, "%s knows no \"%s\": there are %s", option, name, names);
}

// Splits `text` in place; the values point into `text`.
static int read_fields(const cli_command* command, const char* option, char* text, const key* keys, void* into)
{
    for (char *field = text, *next; field; field = next) {
        next = cut_field(field);
        field = trim(field);
        if (*field == '\0') continue; // nothing follows the last semicolon
        char* equals = strchr(field, '=');
        if (!equals)
            return args_wrong(command, "%s \"%s\": write %s=..., with semicolons between; \\; is one inside a value",
                              option, field, keys->name);
        *equals = '\0';
        const char *name = trim(field), *before;
        const key* found = keys;
        while (found->name && strcmp(found->name, name) != 0) found++;
        if (!found->name) return wrong_key(command, option, name, keys);
        char* place = (char*)into + found->offset;
        memcpy(&before, place, sizeof before);
        if (before) return args_wrong(command, "%s says %s twice: commas separate tags", option, name);
        const char* value = equals + 1;
        memcpy(place, &value, sizeof value);
    }
    return EXIT_OK;
}

// ---- The text -------------------------------------------------------------------------------------------------------

bool xml_is_given(const xml_args* args) { return args->characters.count > 0 || args->tags || args->caption; }

static void keep_message(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)level, (void)result;
    const char* colon = strchr(text, ':'); // the log text begins with the name of the function and a colon
    snprintf(user_data, 600, "%s", colon ? colon + 2 : text);
}

static char* copy_of(const char* text)
{
    char* copy = malloc(strlen(text) + 1);
    if (copy) strcpy(copy, text);
    return copy;
}

static int no_memory(void)
{
    fprintf(stderr, "sumi: %s\n", sumi_result_text(SUMI_OUT_OF_HOST_MEMORY));
    return EXIT_FAILED;
}

static int write_text(const cli_command* command, const sumi_xml_prompt_desc* desc, const char* message,
                      char** out_text)
{
    size_t bytes;
    sumi_result result = sumi_xml_prompt_write(desc, NULL, 0, &bytes);
    if (result != SUMI_OK) return args_wrong(command, "%s", message[0] ? message : sumi_result_text(result));
    *out_text = malloc(bytes);
    if (!*out_text) return no_memory();
    sumi_xml_prompt_write(desc, *out_text, bytes, NULL);
    return EXIT_OK;
}

int xml_make(const cli_command* command, const xml_args* args, char** out_text)
{
    sumi_xml_character characters[TEXT_LIST_MAX] = {{0}};
    char *copies[TEXT_LIST_MAX] = {0}, *tags = NULL, message[600] = "";
    sumi_xml_prompt_desc desc = sumi_xml_prompt_defaults();
    desc.log = (sumi_log){keep_message, message};
    desc.indent = args->indent;
    desc.caption = args->caption;
    desc.characters = characters;
    desc.character_count = args->characters.count;
    *out_text = NULL;
    int code = EXIT_OK;
    for (int32_t i = 0; i < args->characters.count && code == EXIT_OK; i++) {
        copies[i] = copy_of(args->characters.texts[i]);
        code =
            copies[i] ? read_fields(command, "--character", copies[i], s_character_keys, &characters[i]) : no_memory();
    }
    if (args->tags && code == EXIT_OK) {
        tags = copy_of(args->tags);
        code = tags ? read_fields(command, "--tags", tags, s_tags_keys, &desc.tags) : no_memory();
    }
    if (code == EXIT_OK) code = write_text(command, &desc, message, out_text);
    for (int32_t i = 0; i < args->characters.count; i++) free(copies[i]);
    free(tags);
    return code;
}

int xml_main(int argc, char** argv)
{
    xml_args args = {0};
    const cli_option options[] = {XML_OPTIONS(&args)};
    const cli_command command = {
        .name = "xml",
        .about = "Prints a prompt in XML, for models that were trained on such captions. sumi generate takes the same "
                 "options. No value can open or close a tag: & < > are escaped. Characters without a name are called "
                 "$character_1$, $character_2$ and so on.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .examples = "  sumi xml --character \"gender=1girl; appearance=silver_hair, green_eyes; position=center_left\" "
                    "--tags \"style=anime_style; background=city_street, rain\"\n"
                    "  sumi encode --model models/NewBie-image-Exp0.1 -o girl.safetensors --prompt \"$(sumi xml "
                    "--character gender=1girl --caption 'A girl in the rain.')\"\n",
    };
    args_result parsed = args_parse(&command, argc, argv);
    if (parsed != ARGS_RUN) return parsed == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
    if (!xml_is_given(&args)) return args_wrong(&command, "say what is in it: --character, --tags or --caption");
    char* text;
    int code = xml_make(&command, &args, &text);
    if (code == EXIT_OK) printf("%s\n", text);
    free(text);
    return code;
}
