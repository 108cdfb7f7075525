// Prompts in XML: the layout byte for byte, escapes, what is left out, buffers of every size, and what is refused.
#include "test.h"
#include <sumi_xml.h>

// ---- Helpers --------------------------------------------------------------------------------------------------------

static char s_text[65536];

static const char* written(const sumi_xml_prompt_desc* desc)
{
    size_t bytes = 0, asked = 0;
    memset(s_text, '#', sizeof s_text);
    CHECK_NUMBER(sumi_xml_prompt_write(desc, NULL, 0, &asked), SUMI_OK);
    CHECK_NUMBER(sumi_xml_prompt_write(desc, s_text, sizeof s_text, &bytes), SUMI_OK);
    CHECK_NUMBER(bytes, strlen(s_text) + 1);
    CHECK_NUMBER(asked, bytes);
    CHECK(s_text[bytes] == '#'); // nothing behind the zero
    return s_text;
}

typedef struct logged {
    int32_t count;
    sumi_log_level level;
    sumi_result result;
    char text[1024];
} logged;

static void keep(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    logged* log = user_data;
    log->count++;
    log->level = level;
    log->result = result;
    snprintf(log->text, sizeof log->text, "%s", text);
}

// Writes a desc that must be refused, and returns what its log was told.
static const char* refused(sumi_xml_prompt_desc desc, sumi_result want)
{
    static logged s_log;
    memset(&s_log, 0, sizeof s_log);
    desc.log = (sumi_log){keep, &s_log};
    char into[32] = "before";
    size_t bytes = 99;
    CHECK_NUMBER(sumi_xml_prompt_write(&desc, into, sizeof into, &bytes), want);
    CHECK_NUMBER(bytes, 0);
    CHECK_TEXT(into, "");
    CHECK_NUMBER(s_log.count, 1);
    CHECK_NUMBER(s_log.level, SUMI_LOG_ERROR);
    CHECK_NUMBER(s_log.result, want);
    CHECK_NUMBER(sumi_xml_prompt_write(&desc, NULL, 0, NULL), want);
    return s_log.text;
}

static sumi_xml_prompt_desc with_caption(const char* caption)
{
    sumi_xml_prompt_desc desc = sumi_xml_prompt_defaults();
    desc.caption = caption;
    return desc;
}

// A caption's text without its tag.
static const char* caption_of(const char* value)
{
    const sumi_xml_prompt_desc desc = with_caption(value);
    written(&desc);
    const size_t length = strlen(s_text);
    if (length == 0) return "";
    CHECK(strncmp(s_text, "<caption>", 9) == 0 && strcmp(s_text + length - 10, "</caption>") == 0);
    s_text[length - 10] = '\0';
    return s_text + 9;
}

// ---- Layout ---------------------------------------------------------------------------------------------------------

static const sumi_xml_character s_girl = {
    .gender = "1girl",
    .appearance = "silver_hair, short_hair, green_eyes, freckles",
    .clothing = "yellow_raincoat, rubber_boots",
    .expression = "grin, open_mouth",
    .action = "jumping, holding_umbrella",
    .position = "center_left",
};

static sumi_xml_prompt_desc example(void)
{
    sumi_xml_prompt_desc desc = sumi_xml_prompt_defaults();
    desc.characters = &s_girl;
    desc.character_count = 1;
    desc.tags.count = "1girl, solo";
    desc.tags.style = "anime_style, watercolor";
    desc.tags.background = "city_street, rain, puddle";
    desc.tags.atmosphere = "cheerful";
    desc.tags.quality = "high_resolution, detailed";
    return desc;
}

TEST(defaults_give_the_empty_text)
{
    sumi_xml_prompt_desc desc = sumi_xml_prompt_defaults();
    CHECK_TEXT(written(&desc), "");
    char one = '#';
    size_t bytes = 0;
    CHECK_NUMBER(sumi_xml_prompt_write(&desc, &one, 1, &bytes), SUMI_OK);
    CHECK_NUMBER(bytes, 1);
    CHECK(one == '\0');
}

// Lines as in the prompts of the model's workflow: without indent.
TEST(example_byte_for_byte)
{
    const sumi_xml_prompt_desc desc = example();
    CHECK_TEXT(written(&desc), "<character_1>\n"
                               "<n>$character_1$</n>\n"
                               "<gender>1girl</gender>\n"
                               "<appearance>silver_hair, short_hair, green_eyes, freckles</appearance>\n"
                               "<clothing>yellow_raincoat, rubber_boots</clothing>\n"
                               "<expression>grin, open_mouth</expression>\n"
                               "<action>jumping, holding_umbrella</action>\n"
                               "<position>center_left</position>\n"
                               "</character_1>\n"
                               "\n"
                               "<general_tags>\n"
                               "<count>1girl, solo</count>\n"
                               "<style>anime_style, watercolor</style>\n"
                               "<background>city_street, rain, puddle</background>\n"
                               "<atmosphere>cheerful</atmosphere>\n"
                               "<quality>high_resolution, detailed</quality>\n"
                               "</general_tags>");
}

// As the model's card has it: two spaces before every line, none on the empty one.
TEST(indent_is_before_every_line_but_empty_ones)
{
    sumi_xml_prompt_desc desc = sumi_xml_prompt_defaults();
    const sumi_xml_character girl = {.gender = "1girl"};
    desc.characters = &girl;
    desc.character_count = 1;
    desc.tags.count = "1girl";
    desc.caption = "A girl.";
    desc.indent = 2;
    CHECK_TEXT(written(&desc), "  <character_1>\n  <n>$character_1$</n>\n  <gender>1girl</gender>\n  </character_1>\n"
                               "\n"
                               "  <general_tags>\n  <count>1girl</count>\n  </general_tags>\n"
                               "\n"
                               "  <caption>A girl.</caption>");
    desc.indent = 16;
    CHECK(strncmp(written(&desc), "                <character_1>\n                <n>", 49) == 0);
}

TEST(every_member_has_its_tag_and_place)
{
    const sumi_xml_character all = {"A", "B", "C", "D", "E", "F", "G", "H", "I"};
    sumi_xml_prompt_desc desc = sumi_xml_prompt_defaults();
    desc.characters = &all;
    desc.character_count = 1;
    desc.tags = (sumi_xml_tags){"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m"};
    desc.caption = "z";
    CHECK_TEXT(written(&desc),
               "<character_1>\n<n>A</n>\n<gender>B</gender>\n<appearance>C</appearance>\n<clothing>D</clothing>\n"
               "<body_type>E</body_type>\n<expression>F</expression>\n<action>G</action>\n"
               "<interaction>H</interaction>\n<position>I</position>\n</character_1>\n\n"
               "<general_tags>\n<count>a</count>\n<artists>b</artists>\n<style>c</style>\n<background>d</background>\n"
               "<environment>e</environment>\n<perspective>f</perspective>\n<atmosphere>g</atmosphere>\n"
               "<lighting>h</lighting>\n<resolution>i</resolution>\n<quality>j</quality>\n<objects>k</objects>\n"
               "<other>l</other>\n<extra_tags>m</extra_tags>\n</general_tags>\n\n<caption>z</caption>");
}

TEST(what_is_empty_is_left_out)
{
    sumi_xml_prompt_desc desc = sumi_xml_prompt_defaults();
    desc.tags = (sumi_xml_tags){.count = "", .style = " \t\r\n", .other = "\xE3\x80\x80"};
    CHECK_TEXT(written(&desc), ""); // not even an empty general_tags
    desc.tags.objects = "umbrella";
    CHECK_TEXT(written(&desc), "<general_tags>\n<objects>umbrella</objects>\n</general_tags>");
    desc = with_caption("");
    CHECK_TEXT(written(&desc), "");
    desc.caption = "alone";
    CHECK_TEXT(written(&desc), "<caption>alone</caption>");
    const sumi_xml_character nobody = {.name = "  ", .gender = ""};
    desc.characters = &nobody;
    desc.character_count = 1;
    desc.caption = NULL;
    CHECK_TEXT(written(&desc), "<character_1>\n<n>$character_1$</n>\n</character_1>");
    desc.character_count = 0; // what characters point to does not matter then
    CHECK_TEXT(written(&desc), "");
}

TEST(characters_are_numbered_in_their_order)
{
    sumi_xml_character many[64] = {0};
    many[1].name = "hatsune_miku";
    many[63].gender = "1boy";
    sumi_xml_prompt_desc desc = sumi_xml_prompt_defaults();
    desc.characters = many;
    desc.character_count = 64;
    written(&desc);
    char want[65536] = "";
    size_t at = 0;
    for (int i = 1; i <= 64; i++) {
        char name[32];
        snprintf(name, sizeof name, "$character_%d$", i);
        at += (size_t)snprintf(want + at, sizeof want - at, "%s<character_%d>\n<n>%s</n>\n%s</character_%d>",
                               i == 1 ? "" : "\n\n", i, i == 2 ? "hatsune_miku" : name,
                               i == 64 ? "<gender>1boy</gender>\n" : "", i);
    }
    CHECK_TEXT(s_text, want);
}

// ---- Values ---------------------------------------------------------------------------------------------------------

TEST(values_are_escaped)
{
    CHECK_TEXT(caption_of("</caption><b>"), "&lt;/caption&gt;&lt;b&gt;");
    CHECK_TEXT(caption_of(">_<"), "&gt;_&lt;");
    CHECK_TEXT(caption_of("&"), "&amp;");
    CHECK_TEXT(caption_of("salt & pepper"), "salt &amp; pepper");
    CHECK_TEXT(caption_of("&lt;"), "&amp;lt;"); // a second time
    CHECK_TEXT(caption_of("\"quoted\" 'too' (red:1.2) \\(x\\) $n$"), "\"quoted\" 'too' (red:1.2) \\(x\\) $n$");
    const sumi_xml_character girl = {.name = "<a>", .position = "x</position>\n</character_1>"};
    sumi_xml_prompt_desc desc = sumi_xml_prompt_defaults();
    desc.characters = &girl;
    desc.character_count = 1;
    desc.tags.style = "</general_tags>";
    CHECK_TEXT(written(&desc), "<character_1>\n<n>&lt;a&gt;</n>\n"
                               "<position>x&lt;/position&gt;\n&lt;/character_1&gt;</position>\n</character_1>\n\n"
                               "<general_tags>\n<style>&lt;/general_tags&gt;</style>\n</general_tags>");
}

// Whatever stands in the values, the tags of the text are those of the layout, and reading the escapes back gives the
// values: as in a text that a parser reads.
TEST(values_never_make_a_tag)
{
    static const char* s_pieces[] = {"<", ">",  "&",  "/",   "caption>", "&lt;",
                                     "x", "\n", "\"", "]]>", "<!--",     "\xC3\xA9"};
    for (uint32_t seed = 0; seed < 2000; seed++) {
        char value[256] = "x"; // no white space at the ends
        uint32_t random = seed * 2654435761u + 12345u;
        for (int i = 0; i < 12; i++) {
            random = random * 1664525u + 1013904223u;
            strcat(value, s_pieces[(random >> 16) % (sizeof s_pieces / sizeof s_pieces[0])]);
        }
        strcat(value, "x");
        char back[512];
        size_t bytes = 0;
        for (const char* c = caption_of(value); *c != '\0';) {
            CHECK(*c != '<' && *c != '>');
            const bool amp = strncmp(c, "&amp;", 5) == 0, lt = strncmp(c, "&lt;", 4) == 0,
                       gt = strncmp(c, "&gt;", 4) == 0;
            CHECK(*c != '&' || amp || lt || gt);
            back[bytes++] = (char)(lt ? '<' : gt ? '>' : *c);
            c += amp ? 5 : lt || gt ? 4 : 1;
        }
        back[bytes] = '\0';
        CHECK_TEXT(back, value);
    }
}

TEST(white_space_is_taken_off_the_ends_only)
{
    CHECK_TEXT(caption_of(" \t\n two  words,\n\n a line \r\n"), "two  words,\n\n a line");
    CHECK_TEXT(caption_of("\xC2\xA0\xE3\x80\x80\xE9\x9B\xA8\xE3\x80\x80\xE3\x81\xAE\xC2\xA0"),
               "\xE9\x9B\xA8\xE3\x80\x80\xE3\x81\xAE"); // no-break and ideographic spaces
    CHECK_TEXT(caption_of("x"), "x");
    CHECK_TEXT(caption_of("\xF0\x9F\x8C\xA7"), "\xF0\x9F\x8C\xA7");
}

// ---- Buffers --------------------------------------------------------------------------------------------------------

TEST(a_buffer_of_every_size)
{
    sumi_xml_prompt_desc desc = example();
    desc.caption = "<rain> & sun";
    char want[2048];
    strcpy(want, written(&desc));
    const size_t needed = strlen(want) + 1;
    for (size_t capacity = 0; capacity <= needed + 1; capacity++) {
        char* into = malloc(capacity + 1); // for the sanitizer to see a byte too many
        memset(into, '#', capacity + 1);
        size_t bytes = 0;
        const sumi_result result = sumi_xml_prompt_write(&desc, into, capacity, &bytes);
        CHECK_NUMBER(result, capacity < needed ? SUMI_INVALID_ARGUMENT : SUMI_OK);
        CHECK_NUMBER(bytes, needed);
        CHECK(into[capacity] == '#');
        if (capacity >= needed) CHECK_TEXT(into, want);
        else if (capacity > 0) CHECK_TEXT(into, "");
        if (capacity > 1 && capacity < needed) CHECK(into[1] == '#'); // no half a text
        free(into);
        char* exact = malloc(capacity == 0 ? 1 : capacity);
        CHECK_NUMBER(sumi_xml_prompt_write(&desc, exact, capacity, NULL), result);
        free(exact);
    }
}

TEST(a_small_buffer_is_logged_with_both_sizes)
{
    sumi_xml_prompt_desc desc = with_caption("x");
    logged log = {0};
    desc.log = (sumi_log){keep, &log};
    char into[8];
    size_t bytes = 0;
    CHECK_NUMBER(sumi_xml_prompt_write(&desc, into, sizeof into, &bytes), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(bytes, 21);
    CHECK_TEXT(log.text, "sumi_xml_prompt_write: the text takes 21 bytes, and capacity is 8");
    log.count = 0;
    CHECK_NUMBER(sumi_xml_prompt_write(&desc, NULL, 0, &bytes), SUMI_OK); // asking is no failure
    CHECK_NUMBER(log.count, 0);
}

// ---- What is refused ------------------------------------------------------------------------------------------------

TEST(text_that_is_not_utf8_is_refused)
{
    static const char* s_wrong[] = {
        "\x80",             // a continuation alone
        "ok\xC3",           // half a character at the end
        "\xE9\x9B, x",      // half a character inside
        "\xC0\xAF",         // overlong
        "\xE0\x80\xBC",     // an overlong <
        "\xED\xA0\x80",     // a surrogate
        "\xF4\x90\x80\x80", // above U+10FFFF
        "\xFF",
    };
    for (size_t i = 0; i < sizeof s_wrong / sizeof s_wrong[0]; i++) {
        refused(with_caption(s_wrong[i]), SUMI_TEXT_INVALID);
        char padded[64]; // white space around it hides nothing
        snprintf(padded, sizeof padded, "  %s ", s_wrong[i]);
        refused(with_caption(padded), SUMI_TEXT_INVALID);
    }
    CHECK_TEXT(refused(with_caption("ok\xC3"), SUMI_TEXT_INVALID),
               "sumi_xml_prompt_write: caption: not UTF-8 at byte 2: give UTF-8 of whole characters");
    sumi_xml_character two[2] = {{.gender = "1girl"}, {.action = "\xFF"}};
    sumi_xml_prompt_desc desc = sumi_xml_prompt_defaults();
    desc.characters = two;
    desc.character_count = 2;
    CHECK(strstr(refused(desc, SUMI_TEXT_INVALID), ": characters[1].action: not UTF-8 at byte 0") != NULL);
    two[1] = (sumi_xml_character){.name = "\xFF"};
    CHECK(strstr(refused(desc, SUMI_TEXT_INVALID), ": characters[1].name: ") != NULL);
    desc.character_count = 1;
    desc.tags.extra_tags = "a\xFF";
    CHECK(strstr(refused(desc, SUMI_TEXT_INVALID), ": tags.extra_tags: not UTF-8 at byte 1") != NULL);
}

TEST(wrong_arguments_are_refused)
{
    size_t bytes = 99;
    char into[8] = "before";
    CHECK_NUMBER(sumi_xml_prompt_write(NULL, into, sizeof into, &bytes), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(bytes, 0);
    CHECK_TEXT(into, "");
    CHECK_NUMBER(sumi_xml_prompt_write(NULL, NULL, 0, NULL), SUMI_INVALID_ARGUMENT);
    sumi_xml_prompt_desc desc = sumi_xml_prompt_defaults();
    CHECK_NUMBER(sumi_xml_prompt_write(&desc, NULL, 1, &bytes), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(bytes, 0);
    desc.character_count = 1;
    CHECK_TEXT(refused(desc, SUMI_INVALID_ARGUMENT),
               "sumi_xml_prompt_write: characters is NULL, and character_count is 1");
    const sumi_xml_character many[65] = {{0}};
    desc.characters = many;
    desc.character_count = 65;
    CHECK_TEXT(refused(desc, SUMI_INVALID_ARGUMENT), "sumi_xml_prompt_write: character_count 65: give 0 to 64");
    desc.character_count = -1;
    CHECK_TEXT(refused(desc, SUMI_INVALID_ARGUMENT), "sumi_xml_prompt_write: character_count -1: give 0 to 64");
    desc.character_count = 0;
    desc.indent = -1;
    CHECK_TEXT(refused(desc, SUMI_INVALID_ARGUMENT), "sumi_xml_prompt_write: indent -1: give 0 to 16 spaces");
    desc.indent = 17;
    CHECK_TEXT(refused(desc, SUMI_INVALID_ARGUMENT), "sumi_xml_prompt_write: indent 17: give 0 to 16 spaces");
}

TEST(a_desc_without_cookie_is_refused)
{
    sumi_xml_prompt_desc desc;
    memset(&desc, 0x5A, sizeof desc); // every pointer of it is wild, the log's too
    char into[8] = "before";
    size_t bytes = 99;
    CHECK_NUMBER(sumi_xml_prompt_write(&desc, into, sizeof into, &bytes), SUMI_DESC_NOT_INITIALIZED);
    CHECK_NUMBER(bytes, 0);
    CHECK_TEXT(into, "");
    desc = (sumi_xml_prompt_desc){.caption = "x"};
    CHECK_NUMBER(sumi_xml_prompt_write(&desc, NULL, 0, NULL), SUMI_DESC_NOT_INITIALIZED);
    desc = sumi_xml_prompt_defaults();
    desc.cookie = sumi_model_defaults().cookie;
    CHECK_NUMBER(sumi_xml_prompt_write(&desc, NULL, 0, NULL), SUMI_DESC_NOT_INITIALIZED);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(defaults_give_the_empty_text);
    RUN(example_byte_for_byte);
    RUN(indent_is_before_every_line_but_empty_ones);
    RUN(every_member_has_its_tag_and_place);
    RUN(what_is_empty_is_left_out);
    RUN(characters_are_numbered_in_their_order);
    RUN(values_are_escaped);
    RUN(values_never_make_a_tag);
    RUN(white_space_is_taken_off_the_ends_only);
    RUN(a_buffer_of_every_size);
    RUN(a_small_buffer_is_logged_with_both_sizes);
    RUN(text_that_is_not_utf8_is_refused);
    RUN(wrong_arguments_are_refused);
    RUN(a_desc_without_cookie_is_refused);
    TEST_END();
}
