// Text out of files on its way into messages, logs and terminals: no control character comes out, other UTF-8 stays,
// and what is too long ends neither inside of a character nor of an escape.
#include "base/result.h"
#include "base/utf8.h"
#include "files_fixture.h"
#include "utf8.h"

// Whether a terminal may print the text: UTF-8 without control characters.
static bool is_harmless(const char* text)
{
    const size_t bytes = strlen(text);
    if (!sumi_utf8_is_valid(text, bytes)) return false;
    for (const unsigned char* c = (const unsigned char*)text; *c != 0; c++) {
        if (*c < 0x20 || *c == 0x7F || (*c == 0xC2 && c[1] < 0xA0)) return false;
    }
    return true;
}

static void check_shown(const char* text, const char* wanted)
{
    char library[256], sample[256];
    CHECK_NUMBER(sumi_utf8_show(library, sizeof library, text, strlen(text)), strlen(wanted));
    CHECK_NUMBER(utf8_show(sample, sizeof sample, text), strlen(wanted));
    CHECK_TEXT(library, wanted);
    CHECK_TEXT(sample, wanted);
    CHECK(is_harmless(library));
    // every length: a beginning, without half a character or half an escape
    for (size_t capacity = 0; capacity <= strlen(wanted) + 1; capacity++) {
        memset(library, 'x', sizeof library);
        memset(sample, 'x', sizeof sample);
        CHECK_NUMBER(sumi_utf8_show(library, capacity, text, strlen(text)), strlen(wanted));
        CHECK_NUMBER(utf8_show(sample, capacity, text), strlen(wanted));
        CHECK(library[capacity] == 'x' && sample[capacity] == 'x');
        if (capacity == 0) continue;
        const size_t length = strlen(library), next = wanted[length] != '\\' ? 3 : 4; // characters here have 3 at most
        CHECK_TEXT(library, sample);
        CHECK(strncmp(library, wanted, length) == 0 && is_harmless(library) && length + next >= capacity - 1);
        const char* escape = strrchr(library, '\\');
        CHECK(escape == NULL || escape[1] != 'x' || strlen(escape) >= 4);
    }
}

TEST(control_characters_are_escaped_and_utf8_stays)
{
    check_shown("", "");
    check_shown("a plain name", "a plain name");
    check_shown("\xE6\xBC\xA2\xC3\xA9 \xC2\xA0", "\xE6\xBC\xA2\xC3\xA9 \xC2\xA0");
    check_shown("\x1B]0;title\x07", "\\x1b]0;title\\x07");
    check_shown("a\tb\nc\rd\x7F", "a\\x09b\\x0ac\\x0dd\\x7f");
    check_shown("\xC2\x80\xC2\x9B\xC2\x9F", "\\xc2\\x80\\xc2\\x9b\\xc2\\x9f");
    check_shown("\x9B\xFF\xE6\xBC", "\\x9b\\xff\\xe6\\xbc");
    check_shown("\xC0\x9B\xED\xA0\x80", "\\xc0\\x9b\\xed\\xa0\\x80");
    check_shown("shown \\x1b again, \\ x1", "shown \\x1b again, \\ x1");
}

TEST(random_bytes_are_harmless_and_both_functions_agree)
{
    uint64_t state = 7;
    for (int i = 0; i < 20000; i++) {
        char text[24] = "", library[128], sample[128];
        for (size_t k = 0; k < (size_t)(i % 23); k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const unsigned char byte = (unsigned char)(state >> 40), lead = (unsigned char)(state >> 56);
            text[k] = (char)(k % 3 == 0 && lead < 64 ? 0xC2 : byte == 0 ? 1 : byte);
        }
        const size_t bytes = sumi_utf8_show(library, sizeof library, text, strlen(text));
        CHECK(bytes == utf8_show(sample, sizeof sample, text) && is_harmless(library));
        CHECK_TEXT(library, sample);
        CHECK_NUMBER(utf8_show(sample, sizeof sample, library), bytes); // and shown again it stays
        CHECK_TEXT(library, sample);
    }
}

TEST(messages_are_shown_and_cut_between_characters)
{
    for (int before = 0; before < 8; before++) {
        char name[1200] = "";
        for (int i = 0; i < 300; i++) strcat(name, i % 7 == 3 ? "\x1B" : "\xE6\xBC\xA2");
        sumi_error error = {0};
        sumi_fail(&error, SUMI_FILE_MALFORMED, "%.*s%s", before, "12345678", name);
        const size_t bytes = strlen(error.text);
        CHECK(is_harmless(error.text) && bytes > sizeof error.text - 6);
        CHECK(strcmp(error.text + bytes - 3, "\xE6\xBC\xA2") == 0 || strcmp(error.text + bytes - 4, "\\x1b") == 0);
    }
    sumi_error error = {0};
    sumi_fail(&error, SUMI_FILE_MALFORMED, "%s", "\xE6\xBC"); // not cut here: the file has it so
    CHECK_TEXT(error.text, "\\xe6\\xbc");
}

static int s_harmful, s_lines;
static void strict_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)level, (void)result, (void)user_data;
    s_lines++;
    if (!is_harmless(text)) s_harmful++;
}

#define EVIL "\x1B]0;x\x07\xC2\x9B\x7F\t\n\xFF"

// Names that a file sets, where they are quoted: in job messages, the log, and the engine's last error.
TEST(names_out_of_files_are_shown_in_messages_and_the_log)
{
    static const char* const s_models[][2] = {
        // one tensor, whose name no network has; a type that does not exist; a broken header
        {"name.safetensors",
         "{\"a\\u001b]0;x\\u0007\\u009b\\u007f\\n\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}"},
        {"dtype.safetensors",
         "{\"b\\u001b\\u009b\":{\"dtype\":\"F\\u001b\\u009b\",\"shape\":[1],\"data_offsets\":[0,4]}}"},
        {"range.safetensors", "{\"c\\u001b\\u009b\":{\"dtype\":\"F32\",\"shape\":[9],\"data_offsets\":[0,36]}}"},
        {"member.safetensors",
         "{\"d\\u001b\":{\"\\u001b\\u009b\":1,\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,5]}}"},
        {"raw.safetensors", "{\"" EVIL "\":{}}"},
    };
    for (size_t i = 0; i < sizeof s_models / sizeof *s_models; i++) {
        char file[1024];
        const uint64_t bytes = strlen(s_models[i][1]);
        memcpy(file, &bytes, 8);
        memcpy(file + 8, s_models[i][1], (size_t)bytes);
        memset(file + 8 + bytes, 0, 4);
        write_file(scratch("evil", s_models[i][0]), file, (size_t)bytes + 12);
        sumi_model_desc desc = sumi_model_defaults();
        desc.path = scratch("evil", s_models[i][0]);
        CHECK(open_model(&desc) == NULL && s_message[0] != 0);
        CHECK(is_harmless(s_message));
        char error[512];
        for (size_t capacity = 1; capacity <= sizeof error; capacity += capacity < 64 ? 1 : 64) {
            sumi_engine_last_error(s_engine, error, capacity);
            CHECK(is_harmless(error) && strlen(error) < capacity);
        }
    }
    static const char s_index[] = "{\"weight_map\":{\"t\\u001b\":\"s\\u007f\\u009b\\u0085.safetensors\"}}";
    write_file(scratch("shards", "diffusion_pytorch_model.safetensors.index.json"), s_index, sizeof s_index - 1);
    sumi_model_desc desc = sumi_model_defaults();
    desc.path = scratch("shards", "");
    CHECK(open_model(&desc) == NULL && is_harmless(s_message));
    CHECK(strstr(s_message, "s\\x7f\\xc2\\x9b\\xc2\\x85.safetensors") != NULL);
    desc.path = "a" EVIL "b"; // and a path of the host program
    CHECK(open_model(&desc) == NULL && is_harmless(s_message));
    CHECK(strstr(s_message, "a\\x1b]0;x\\x07\\xc2\\x9b\\x7f\\x09\\x0a\\xffb") != NULL);
    CHECK(s_lines > 7);
    CHECK_NUMBER(s_harmful, 0);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    static host s_h;
    sumi_engine_desc desc = host_desc(&s_h);
    desc.log = (sumi_log){strict_log, NULL};
    sumi_heap_init(&s_heap, NULL);
    s_engine = open_engine(&desc, NULL);
    scratch("", "");
    RUN(control_characters_are_escaped_and_utf8_stays);
    RUN(random_bytes_are_harmless_and_both_functions_agree);
    RUN(messages_are_shown_and_cut_between_characters);
    RUN(names_out_of_files_are_shown_in_messages_and_the_log);
    sumi_engine_destroy(s_engine);
    remove_folder(s_folder);
    TEST_END();
}
