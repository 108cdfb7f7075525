// The files room: JSON, safetensors, its index, GGUF, conversions, checkpoints. Golden files lie in
// tests/golden/common/files; everything else is made here, served from memory through the host's file callbacks.
#include "failing.h"
#include "files/checkpoint.h"
#include "files/json.h"
#include "files/safetensors_write.h"
#include "files/tensor_scaling.h"
#include "models/signatures.h"
#include "system.h"
#include "test.h"

#define GOLDEN "tests/golden/common/files/"

static sumi_heap s_heap;

// ---- Helpers --------------------------------------------------------------------------------------------------------

static unsigned char* read_whole(const char* path, size_t* out_bytes)
{
    FILE* file = fopen(path, "rb");
    *out_bytes = 0;
    if (file == NULL) { return NULL; }
    fseek(file, 0, SEEK_END);
    *out_bytes = (size_t)ftell(file);
    rewind(file);
    unsigned char* data = malloc(*out_bytes + 1);
    *out_bytes = fread(data, 1, *out_bytes, file);
    data[*out_bytes] = 0;
    fclose(file);
    return data;
}

// A tight copy, so that the address sanitizer sees a read of one byte too many.
static unsigned char* tight(const void* data, size_t bytes)
{
    unsigned char* copy = malloc(bytes > 0 ? bytes : 1);
    if (bytes > 0) { memcpy(copy, data, bytes); }
    return copy;
}

// A decoded, terminated string of a JSON text, in one of a few rotating buffers.
static const char* text_of(const sumi_json_text* text)
{
    static char s_buffers[4][16384];
    static int s_next;
    char* buffer = s_buffers[s_next++ % 4];
    const size_t bytes = sumi_json_decode(text, buffer, sizeof s_buffers[0] - 1);
    buffer[bytes] = 0;
    return buffer;
}

static bool walks(const char* text, size_t bytes)
{
    unsigned char* copy = tight(text, bytes);
    sumi_json json;
    sumi_error error = {0};
    sumi_json_begin(&json, copy, bytes, &error);
    sumi_json_skip(&json);
    const bool good = sumi_json_end(&json) == SUMI_OK;
    if (good != (error.result == SUMI_OK) || good != (error.text[0] == 0)) {
        printf("  result and error disagree for %.60s\n", text);
        t_errors++;
    }
    free(copy);
    return good;
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

TEST(json_accepts_what_rfc_8259_allows)
{
    static const char* const s_good[] = {
        "0",
        "-0",
        "1",
        "-1",
        "10",
        "1.5",
        "-1.5e10",
        "1E+2",
        "1e-2",
        "0.0",
        "0e0",
        "123456789012345678901234567890",
        "true",
        "false",
        "null",
        "\"\"",
        "[]",
        "{}",
        " [ ] ",
        "\t{\n}\r ",
        "[1,2,3]",
        "[[],[[]],{}]",
        "{\"a\":1}",
        "{\"a\":{\"b\":[true,null]},\"c\":\"d\"}",
        "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"",
        "\"\\u0000\\u00e9\\uFFFF\"",
        "\"\\ud83d\\ude42\"",
        "\"\xc3\xa9\xe5\xb1\x82\xf0\x9f\x99\x82\"",
        "\"\x7f\"",
        "{\"\":0}",
        "{\"a\":1,\"a\":2}",
        "\"0123456789abcdef\"",
        "\"01234567\\n9abcdef\"",
        "1e400",
        "\"\xf4\x8f\xbf\xbf\"",
        "\"\xee\x80\x80\xed\x9f\xbf\"",
    };
    for (size_t i = 0; i < sizeof s_good / sizeof *s_good; i++) {
        if (!walks(s_good[i], strlen(s_good[i]))) {
            printf("  refused: %s\n", s_good[i]);
            t_errors++;
        }
    }
}

TEST(json_refuses_everything_else)
{
    static const char* const s_bad[] = {
        "",
        " ",
        "\xef\xbb\xbf{}",
        "{",
        "}",
        "[",
        "]",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "[1 2]",
        "[1,,2]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "{a:1}",
        "{'a':1}",
        "{\"a\" 1}",
        "{\"a\":1 \"b\":2}",
        "{1:2}",
        "[1}",
        "{\"a\":1]",
        "01",
        "-",
        "+1",
        "-01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "1.e5",
        "0x1",
        "NaN",
        "Infinity",
        "-Infinity",
        "1a",
        "tru",
        "True",
        "truee",
        "nul",
        "nulll",
        "\"",
        "\"a",
        "\"\\",
        "\"\\\"",
        "\"\\x41\"",
        "\"\\u\"",
        "\"\\u00g0\"",
        "\"\\u123\"",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\ud800\"",
        "\"\\ud800a\"",
        "\"\\ud83d\\u0041\"",
        "\"a\nb\"",
        "\"a\tb\"",
        "\"\x01\"",
        "\"\x80\"",
        "\"\xc0\x80\"",
        "\"\xc3\"",
        "\"\xe0\x80\x80\"",
        "\"\xed\xa0\x80\"",
        "\"\xf0\x80\x80\x80\"",
        "\"\xf4\x90\x80\x80\"",
        "\"\xf8\x88\x80\x80\x80\"",
        "\"\xe5\xb1\"",
        "1 2",
        "{} {}",
        "[]x",
        "/**/1",
        "1//",
        "[1]//",
        "\v1",
        "\xc2\xa0[]",
        "[\"\x1f\"]",
        "{\"a\x02\":1}",
        "\"01234567\x01\"",
        "\"0123456\xff\"",
        "[tru]",
        "{\"a\":nul}",
    };
    for (size_t i = 0; i < sizeof s_bad / sizeof *s_bad; i++) {
        if (walks(s_bad[i], strlen(s_bad[i]))) {
            printf("  accepted: %s\n", s_bad[i]);
            t_errors++;
        }
    }
    CHECK(!walks("\"a\0b\"", 5));
    CHECK(!walks("1\0", 2));
    CHECK(!walks("\"\\\0\"", 4));
}

TEST(json_every_cut_of_a_valid_text_is_refused)
{
    static const char s_text[] =
        "{\"a\":[1.5e3,-2,\"x\\u00e9\\ud83d\\ude42\xc3\xa9\",true,false,null,{}],\"b\":{\"c\":[]}}";
    for (size_t i = 0; i < sizeof s_text - 1; i++) { CHECK(!walks(s_text, i)); }
    CHECK(walks(s_text, sizeof s_text - 1));
}

TEST(json_depth_is_bounded)
{
    char text[8192];
    for (size_t depth = 1; depth <= 4000; depth += depth < 70 ? 1 : 500) {
        memset(text, '[', depth);
        memset(text + depth, ']', depth);
        CHECK(walks(text, 2 * depth) == (depth <= SUMI_JSON_MAX_DEPTH));
        CHECK(!walks(text, depth));
    }
}

TEST(json_pull_reader_reads_values_and_stops_at_the_first_error)
{
    static const char s_text[] =
        " {\"n\" : -12, \"u\":18446744073709551615,\"d\": 0.3611 "
        ",\"b\":true,\"z\":null,\"s\":\"a\\n\\u5c42\",\"l\":[1,[2],3],\"o\":{\"deep\":{\"x\":[{}]}}} ";
    sumi_json json;
    sumi_json_text key, text;
    sumi_error error = {0};
    int seen = 0;
    sumi_json_begin(&json, s_text, sizeof s_text - 1, &error);
    CHECK(sumi_json_object(&json));
    while (sumi_json_key(&json, &key)) {
        seen++;
        if (sumi_json_is(&key, "n")) {
            CHECK_NUMBER(sumi_json_integer(&json), -12);
        } else if (sumi_json_is(&key, "u")) {
            CHECK(sumi_json_unsigned(&json) == UINT64_MAX);
        } else if (sumi_json_is(&key, "d")) {
            CHECK(sumi_json_number(&json) == 0.3611);
        } else if (sumi_json_is(&key, "b")) {
            CHECK(sumi_json_bool(&json));
        } else if (sumi_json_is(&key, "z")) {
            CHECK(sumi_json_null(&json));
        } else if (sumi_json_is(&key, "s")) {
            CHECK(sumi_json_string(&json, &text) && text.escaped);
            CHECK_TEXT(text_of(&text), "a\n\xe5\xb1\x82");
            CHECK(sumi_json_is(&text, "a\n\xe5\xb1\x82") && !sumi_json_is(&text, "a\n")
                  && !sumi_json_is(&text, "a\n\xe5\xb1\x82x") && !sumi_json_is(&text, ""));
            char small[3] = "??";
            CHECK_NUMBER(sumi_json_decode(&text, small, 2), 5);
            CHECK_TEXT(small, "??");
        } else if (sumi_json_is(&key, "l")) {
            int items = 0;
            sumi_json_array(&json);
            while (sumi_json_item(&json)) {
                items++;
                CHECK(sumi_json_peek(&json) == (items == 2 ? SUMI_JSON_ARRAY : SUMI_JSON_NUMBER));
                sumi_json_skip(&json);
            }
            CHECK_NUMBER(items, 3);
        } else {
            sumi_json_skip(&json);
        }
    }
    CHECK_NUMBER(seen, 8);
    CHECK_NUMBER(sumi_json_end(&json), SUMI_OK);

    // a value the caller forgot, a bracket of the other kind, a reader that stops early: errors, not loops
    sumi_json_begin(&json, "{\"a\":1,\"b\":2}", 13, &error);
    sumi_json_object(&json);
    CHECK(sumi_json_key(&json, &key) && !sumi_json_key(&json, &key));
    CHECK_NUMBER(sumi_json_end(&json), SUMI_FILE_MALFORMED);
    error = (sumi_error){0};
    sumi_json_begin(&json, "[1]", 3, &error);
    json.name = "some.json";
    CHECK(!sumi_json_object(&json) && !sumi_json_item(&json) && sumi_json_integer(&json) == 0);
    CHECK_NUMBER(sumi_json_end(&json), SUMI_FILE_MALFORMED);
    CHECK_TEXT(error.text, "some.json: an object is due at byte 0 of its JSON");
    error = (sumi_error){0};
    sumi_json_begin(&json, "[1, 2]", 6, &error);
    sumi_json_array(&json);
    CHECK_NUMBER(sumi_json_end(&json), SUMI_FILE_MALFORMED);
    sumi_json_begin(&json, "  7", 3, NULL);
    json.failure = SUMI_TEXT_INVALID;
    sumi_json_refuse(&json, "is too odd");
    CHECK_NUMBER(sumi_json_end(&json), SUMI_TEXT_INVALID);
}

static double number_of(const char* text, bool* out_good)
{
    sumi_json json;
    sumi_json_begin(&json, text, strlen(text), NULL);
    const double value = sumi_json_number(&json);
    *out_good = sumi_json_end(&json) == SUMI_OK;
    return value;
}

TEST(json_numbers_are_correctly_rounded)
{
    static const char* const s_texts[] = {"0",
                                          "-0",
                                          "1e-6",
                                          "1e-05",
                                          "1000000.0",
                                          "0.1159",
                                          "256.0",
                                          "-13.742130279541016",
                                          "9007199254740993",
                                          "9007199254740993.0",
                                          "18014398509481985.5",
                                          "1e22",
                                          "4503599627370496.5",
                                          "123456789.123456789",
                                          "0.000001",
                                          "3.141592653589793",
                                          "1e-22",
                                          "9999999999999999999",
                                          "1234567890123456789e-5",
                                          "5e-324",
                                          "0e999999",
                                          "0.0e-99999"};
    bool good;
    for (size_t i = 0; i < sizeof s_texts / sizeof *s_texts; i++) {
        const double got = number_of(s_texts[i], &good), want = strtod(s_texts[i], NULL);
        if (!good || got != want || signbit(got) != signbit(want)) {
            printf("  %s: got %.17g, want %.17g\n", s_texts[i], got, want);
            t_errors += strcmp(s_texts[i], "5e-324") != 0;
        }
    }
    uint64_t state = 88172645463325252u;
    for (int i = 0; i < 200000; i++) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        char text[64];
        const int point = (int)(state >> 60);
        snprintf(text, sizeof text, "%llu.%0*llue%d", (unsigned long long)(state >> 40), 1 + point % 9,
                 (unsigned long long)(state & 0x3ffffff) % 10000000, (int)(state >> 32 & 15) - 8);
        const double got = number_of(text, &good), want = strtod(text, NULL);
        if ((!good || got != want) && t_errors++ < 8) { printf("  %s: got %.17g, want %.17g\n", text, got, want); }
    }
    // far powers: near enough
    for (int power = -300; power <= 290; power += 7) {
        char text[64];
        snprintf(text, sizeof text, "1.2345678901234567e%d", power);
        CHECK_NEAR(number_of(text, &good) / strtod(text, NULL), 1.0, 0, 3e-15);
    }
    number_of("1e309", &good);
    CHECK(!good);
    number_of("1e999999999999", &good);
    CHECK(!good);
    CHECK(number_of("1e-999999999999", &good) == 0 && good);
}

TEST(json_integers_are_exact_or_refused)
{
    static const struct {
        const char* text;
        bool good;
        int64_t value;
    } s_cases[] = {
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"1.0", false, 0},
        {"1e2", false, 0},
        {"99999999999999999999", false, 0},
        {"18446744073709551616", false, 0},
        {"-0", true, 0},
        {"0", true, 0},
        {"\"1\"", false, 0},
        {"null", false, 0},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_json json;
        sumi_json_begin(&json, s_cases[i].text, strlen(s_cases[i].text), NULL);
        CHECK_NUMBER(sumi_json_integer(&json), s_cases[i].value);
        CHECK((sumi_json_end(&json) == SUMI_OK) == s_cases[i].good);
        sumi_json_begin(&json, s_cases[i].text, strlen(s_cases[i].text), NULL);
        sumi_json_unsigned(&json);
        const bool fits =
            strcmp(s_cases[i].text, "9223372036854775808") == 0 || (s_cases[i].good && s_cases[i].text[0] != '-');
        CHECK((sumi_json_end(&json) == SUMI_OK) == fits);
    }
}

// ---- The golden files -----------------------------------------------------------------------------------------------

static unsigned char from_hex(char c) { return (unsigned char)(c <= '9' ? c - '0' : c - 'a' + 10); }

static void check_entry(const sumi_tensor_set* set, const char* name, sumi_json* json)
{
    sumi_json_text key, text;
    const sumi_tensor* tensor = sumi_tensor_find(set, name);
    if (tensor == NULL) {
        printf("  no tensor %.80s\n", name);
        t_errors++;
        sumi_json_skip(json);
        return;
    }
    CHECK_TEXT(tensor->name, name);
    sumi_json_object(json);
    while (sumi_json_key(json, &key)) {
        if (sumi_json_is(&key, "dtype") || sumi_json_is(&key, "type")) {
            sumi_json_string(json, &text);
            CHECK_TEXT(sumi_dtype_get(tensor->dtype)->name, text_of(&text));
        } else if (sumi_json_is(&key, "shape")) {
            int32_t rank = 0;
            sumi_json_array(json);
            while (sumi_json_item(json)) {
                const int64_t extent = sumi_json_integer(json);
                CHECK(rank < tensor->rank && tensor->shape[rank] == extent);
                rank++;
            }
            CHECK_NUMBER(tensor->rank, rank);
        } else if (sumi_json_is(&key, "bytes") && sumi_json_peek(json) == SUMI_JSON_STRING) {
            sumi_json_string(json, &text);
            CHECK_NUMBER(tensor->bytes, text.bytes / 2);
            bool same = true;
            for (size_t i = 0; i < text.bytes / 2 && i < tensor->bytes; i++) {
                same = same
                    && ((const unsigned char*)tensor->data)[i]
                           == (unsigned char)(from_hex(text.data[2 * i]) << 4 | from_hex(text.data[2 * i + 1]));
            }
            CHECK(same);
        } else {
            sumi_json_skip(json);
        }
    }
}

typedef struct golden_case {
    char file[256], verdict[16];
    const char *metadata, *tensors, *end;
    int64_t tensor_count;
} golden_case;

// The next entry of a manifest: the objects for metadata and tensors are kept as text, to be read once the file is
// open.
static void read_case(sumi_json* json, golden_case* c)
{
    sumi_json_text key, text;
    memset(c, 0, sizeof *c);
    c->tensor_count = -1;
    c->end = json->end;
    sumi_json_object(json);
    while (sumi_json_key(json, &key)) {
        if (sumi_json_is(&key, "file") || sumi_json_is(&key, "folder")) {
            sumi_json_string(json, &text);
            snprintf(c->file, sizeof c->file, "%s", text_of(&text));
        } else if (sumi_json_is(&key, "sumi") || sumi_json_is(&key, "expect")) {
            sumi_json_string(json, &text);
            snprintf(c->verdict, sizeof c->verdict, "%s", text_of(&text));
        } else if (sumi_json_is(&key, "metadata") && sumi_json_peek(json) == SUMI_JSON_OBJECT) {
            c->metadata = json->at;
            sumi_json_skip(json);
        } else if (sumi_json_is(&key, "tensors")) {
            sumi_json_peek(json);
            c->tensors = json->at;
            sumi_json_skip(json);
        } else if (sumi_json_is(&key, "tensor_count")) {
            c->tensor_count = sumi_json_integer(json);
        } else {
            sumi_json_skip(json);
        }
    }
}

// True when the verdict is met. A rejection must name the file and give a reason.
static bool check_verdict(const golden_case* c, sumi_result result, const sumi_error* error, const char* named)
{
    const bool accepted = result == SUMI_OK;
    bool good = strcmp(c->verdict, "accept") == 0 ? accepted : strcmp(c->verdict, "reject") == 0 ? !accepted : true;
    if (!good) {
        printf("  %s: want %s, got result %d %s\n", c->file, c->verdict, (int)result, error->text);
    } else if (!accepted
               && (error->result != result || strstr(error->text, named) == NULL
                   || strlen(error->text) < strlen(named) + 8 || result == SUMI_INTERNAL)) {
        printf("  %s: result %d, poor message \"%s\"\n", c->file, (int)result, error->text);
        good = false;
    }
    t_errors += !good;
    return good;
}

static void check_contents(const golden_case* c, const sumi_tensor_set* set)
{
    sumi_json json;
    sumi_json_text key, text;
    if (c->tensor_count >= 0) { CHECK_NUMBER(set->count, c->tensor_count); }
    if (c->tensors != NULL) {
        size_t count = 0;
        sumi_json_begin(&json, c->tensors, (size_t)(c->end - c->tensors), NULL);
        sumi_json_object(&json);
        while (sumi_json_key(&json, &key)) {
            count++;
            check_entry(set, text_of(&key), &json);
        }
        CHECK_NUMBER(set->count, count);
    }
    if (c->metadata != NULL) {
        sumi_json_begin(&json, c->metadata, (size_t)(c->end - c->metadata), NULL);
        sumi_json_object(&json);
        while (sumi_json_key(&json, &key)) {
            const char* found = sumi_metadata_find(set, text_of(&key));
            if (sumi_json_peek(&json) == SUMI_JSON_STRING) {
                sumi_json_string(&json, &text);
                CHECK_TEXT(found != NULL ? found : "(none)", text_of(&text));
                continue;
            }
            sumi_json_text inner; // GGUF: {"type": ..., "value": ...}
            char type[32] = "";
            sumi_json_object(&json);
            while (sumi_json_key(&json, &inner)) {
                if (sumi_json_is(&inner, "type")) {
                    sumi_json_string(&json, &text);
                    snprintf(type, sizeof type, "%s", text_of(&text));
                } else if (strncmp(type, "ARRAY", 5) == 0) {
                    CHECK((found != NULL) == sumi_json_is(&key, "comfy.gguf.orig_shape.x"));
                    sumi_json_skip(&json);
                } else if (strcmp(type, "STRING") == 0) {
                    sumi_json_string(&json, &text);
                    CHECK_TEXT(found != NULL ? found : "(none)", text_of(&text));
                } else if (strcmp(type, "BOOL") == 0) {
                    CHECK_TEXT(found != NULL ? found : "(none)", sumi_json_bool(&json) ? "true" : "false");
                } else if (strncmp(type, "FLOAT", 5) == 0) {
                    const double want = sumi_json_number(&json), got = found != NULL ? strtod(found, NULL) : -1;
                    CHECK(strcmp(type, "FLOAT32") == 0 ? (float)got == (float)want : got == want);
                } else {
                    sumi_json_peek(&json);
                    const char* begin = json.at;
                    sumi_json_skip(&json);
                    CHECK(found != NULL && strlen(found) == (size_t)(json.at - begin)
                          && memcmp(found, begin, strlen(found)) == 0);
                }
            }
        }
    }
}

// Runs a manifest; entry_files: where its list is. Files are read through sumi_tensor_set_open and from a tight copy.
static void run_manifest(const char* folder, bool wrapped, int want_count)
{
    char path[512];
    size_t bytes;
    snprintf(path, sizeof path, GOLDEN "%s/manifest.json", folder);
    unsigned char* manifest = read_whole(path, &bytes);
    CHECK(manifest != NULL);
    if (manifest == NULL) { return; }
    sumi_json json;
    sumi_json_text key;
    sumi_error manifest_error = {0};
    sumi_json_begin(&json, manifest, bytes, &manifest_error);
    if (wrapped) {
        sumi_json_object(&json);
        while (sumi_json_key(&json, &key) && !sumi_json_is(&key, "files")) { sumi_json_skip(&json); }
    }
    int count = 0;
    sumi_json_array(&json);
    while (sumi_json_item(&json)) {
        golden_case c;
        read_case(&json, &c);
        count++;
        snprintf(path, sizeof path, GOLDEN "%s/%s", folder, c.file);
        const int before = t_errors;
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        const sumi_result result = sumi_tensor_set_open(&set, path, &error);
        if (check_verdict(&c, result, &error, path) && result == SUMI_OK) { check_contents(&c, &set); }
        sumi_tensor_set_close(&set);
        // the same bytes without anything behind them
        size_t file_bytes;
        unsigned char* file = read_whole(path, &file_bytes);
        CHECK(file != NULL);
        unsigned char* copy = tight(file, file_bytes);
        error = (sumi_error){0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        const sumi_result again = file_bytes >= 4 && memcmp(copy, "GGUF", 4) == 0
                                    ? sumi_gguf_read(&set, copy, file_bytes, "from memory", &error)
                                    : sumi_safetensors_read(&set, copy, file_bytes, "from memory", &error);
        CHECK_NUMBER(again, result);
        sumi_tensor_set_close(&set);
        free(copy);
        free(file);
        if (t_errors != before) { printf("  in %s\n", path); }
    }
    CHECK_NUMBER(json.failed, 0);
    CHECK(count >= want_count);
    free(manifest);
}

TEST(safetensors_golden_files_get_their_verdicts) { run_manifest("safetensors", true, 160); }

TEST(gguf_golden_files_get_their_verdicts) { run_manifest("gguf", false, 75); }

TEST(index_golden_folders_get_their_verdicts)
{
    size_t bytes;
    unsigned char* manifest = read_whole(GOLDEN "index/manifest.json", &bytes);
    CHECK(manifest != NULL);
    if (manifest == NULL) { return; }
    sumi_json json;
    int count = 0;
    sumi_json_begin(&json, manifest, bytes, NULL);
    sumi_json_array(&json);
    while (sumi_json_item(&json)) {
        golden_case c;
        char path[512];
        read_case(&json, &c);
        count++;
        snprintf(path, sizeof path, GOLDEN "index/%s", c.file);
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        const sumi_result result = sumi_tensor_set_open_folder(&set, path, "model", &error);
        if (check_verdict(&c, result, &error, path) && result == SUMI_OK) {
            CHECK(sumi_tensor_find(&set, "a.weight") != NULL || set.count == 0);
            CHECK(sumi_tensor_find(&set, "a") == NULL && sumi_tensor_find(&set, "a.weight.") == NULL);
        }
        sumi_tensor_set_close(&set);
    }
    CHECK_NUMBER(json.failed, 0);
    CHECK(count >= 31);
    free(manifest);
}

TEST(gguf_values_equal_the_reference_exactly)
{
    static const char* const s_files[] = {"every_type", "block_types", "dims", "metadata", "alignment_64"};
    sumi_tensor_set expected = {0};
    sumi_error error = {0};
    sumi_tensor_set_init(&expected, &s_heap, NULL);
    CHECK_NUMBER(sumi_tensor_set_open(&expected, GOLDEN "gguf/expected.safetensors", &error), SUMI_OK);
    size_t compared = 0;
    for (size_t f = 0; f < sizeof s_files / sizeof *s_files; f++) {
        char path[256];
        snprintf(path, sizeof path, GOLDEN "gguf/%s.gguf", s_files[f]);
        sumi_tensor_set set = {0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        CHECK_NUMBER(sumi_tensor_set_open(&set, path, &error), SUMI_OK);
        for (size_t i = 0; i < set.count; i++) {
            char prefix[64];
            snprintf(prefix, sizeof prefix, "%s.", s_files[f]);
            const sumi_tensor* want = sumi_tensor_find_prefixed(&expected, prefix, set.tensors[i].name);
            CHECK(want != NULL);
            if (want == NULL) { continue; }
            const size_t count = (size_t)want->bytes / 4;
            float *got = malloc(count * 4 + 1), *expect = malloc(count * 4);
            memcpy(expect, want->data, count * 4);
            CHECK_NUMBER(sumi_dtype_bytes(set.tensors[i].dtype, count), set.tensors[i].bytes);
            sumi_dtype_to_float(set.tensors[i].dtype, set.tensors[i].data, got, count);
            size_t wrong = 0;
            for (size_t k = 0; k < count; k++) { wrong += memcmp(&got[k], &expect[k], sizeof *got) != 0; }
            if (wrong > 0) {
                printf("  %s: %zu of %zu values differ, first %.9g, want %.9g\n", set.tensors[i].name, wrong, count,
                       (double)got[0], (double)expect[0]);
                t_errors++;
            }
            free(got);
            free(expect);
            compared++;
        }
        sumi_tensor_set_close(&set);
    }
    CHECK_NUMBER(compared, expected.count);
    sumi_tensor_set_close(&expected);
}

TEST(gguf_original_shapes_become_metadata)
{
    sumi_tensor_set set = {0};
    sumi_tensor_set_init(&set, &s_heap, NULL);
    CHECK_NUMBER(sumi_tensor_set_open(&set, GOLDEN "gguf/metadata.gguf", NULL), SUMI_OK);
    const char* shape = sumi_metadata_find(&set, "comfy.gguf.orig_shape.x");
    CHECK_TEXT(shape != NULL ? shape : "(none)", "2,2,2");
    sumi_tensor_set_close(&set);
}

// A GGUF file of 128 bytes: 4 floats "t" at `offset` behind byte 96.
static void make_gguf(unsigned char file[128], uint64_t offset)
{
    memset(file, 0, 128);
    memcpy(file, "GGUF\3\0\0\0\1", 9);
    file[24] = 1, file[32] = 't'; // name
    file[33] = 1, file[37] = 4;   // rank, extent
    for (int i = 0; i < 8; i++) {
        file[49 + i] = (unsigned char)(offset >> (8 * i)); // behind the type, F32
    }
}

TEST(gguf_offsets_are_held_against_the_place_of_the_data)
{
    static const struct {
        uint64_t offset, bytes;
        sumi_result result;
    } s_cases[] = {
        {0, 128, SUMI_OK},
        {32, 128, SUMI_OK},
        {64, 128, SUMI_FILE_TRUNCATED},
        {96, 128, SUMI_FILE_TRUNCATED},
        {128, 128, SUMI_FILE_TRUNCATED},
        {160, 128, SUMI_FILE_TRUNCATED},
        {UINT64_MAX - 31, 128, SUMI_FILE_TRUNCATED},
        {UINT64_MAX - 63, 128, SUMI_FILE_TRUNCATED},
        {(uint64_t)1 << 63, 128, SUMI_FILE_TRUNCATED},
        {32, 112, SUMI_OK},
        {32, 111, SUMI_FILE_TRUNCATED},
        {0, 63, SUMI_FILE_TRUNCATED},
        {1, 128, SUMI_FILE_MALFORMED},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        unsigned char file[128];
        make_gguf(file, s_cases[i].offset);
        unsigned char* copy = tight(file, (size_t)s_cases[i].bytes);
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        const sumi_result result = sumi_gguf_read(&set, copy, s_cases[i].bytes, "made", &error);
        if (result != s_cases[i].result) {
            printf("  case %zu: result %d %s\n", i, (int)result, error.text);
            t_errors++;
        } else if (result == SUMI_OK) {
            CHECK((const unsigned char*)sumi_tensor_find(&set, "t")->data == copy + 64 + s_cases[i].offset);
        }
        sumi_tensor_set_close(&set);
        free(copy);
    }
}

TEST(every_truncation_of_a_file_is_survived)
{
    static const char* const s_files[] = {"safetensors/valid/every_dtype.safetensors",
                                          "safetensors/valid/metadata.safetensors", "gguf/every_type.gguf",
                                          "gguf/block_types.gguf", "gguf/metadata.gguf"};
    for (size_t f = 0; f < sizeof s_files / sizeof *s_files; f++) {
        char path[256];
        size_t bytes;
        snprintf(path, sizeof path, GOLDEN "%s", s_files[f]);
        unsigned char* file = read_whole(path, &bytes);
        CHECK(file != NULL);
        for (size_t n = 0; file != NULL && n < bytes; n++) {
            unsigned char* copy = tight(file, n);
            sumi_tensor_set set = {0};
            sumi_error error = {0};
            sumi_tensor_set_init(&set, &s_heap, NULL);
            const sumi_result result = f < 2 ? sumi_safetensors_read(&set, copy, n, "cut", &error)
                                             : sumi_gguf_read(&set, copy, n, "cut", &error);
            if (f < 2) {
                CHECK(result == SUMI_FILE_TRUNCATED);
            } else if (result == SUMI_OK) { // only the padding behind the last tensor is missing
                for (size_t i = 0; i < set.count; i++) {
                    CHECK((const unsigned char*)set.tensors[i].data + set.tensors[i].bytes <= copy + n);
                }
                CHECK(n + 32 > bytes);
            } else {
                CHECK(error.result == result && strncmp(error.text, "cut: ", 5) == 0);
            }
            sumi_tensor_set_close(&set);
            free(copy);
        }
        free(file);
    }
    CHECK_NUMBER(s_heap.held, 0);
}

TEST(files_that_are_something_else_are_named)
{
    static const struct {
        const char *file, *word;
    } s_cases[] = {{"lfs_pointer", "Git LFS"}, {"pickle_zip", "PyTorch"}, {"html_page", "web page"}};
    for (size_t i = 0; i < 3; i++) {
        char path[256];
        snprintf(path, sizeof path, GOLDEN "safetensors/malformed/%s.safetensors", s_cases[i].file);
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        CHECK(sumi_tensor_set_open(&set, path, &error) != SUMI_OK);
        if (strstr(error.text, s_cases[i].word) == NULL) {
            printf("  %s\n", error.text);
            t_errors++;
        }
        sumi_tensor_set_close(&set);
    }
}

TEST(missing_files_and_folders_are_results)
{
    sumi_tensor_set set = {0};
    sumi_error error = {0};
    sumi_tensor_set_init(&set, &s_heap, NULL);
    CHECK_NUMBER(sumi_tensor_set_open(&set, "tests/golden/nothing here.safetensors", &error), SUMI_FILE_NOT_FOUND);
    error = (sumi_error){0};
    CHECK_NUMBER(sumi_tensor_set_open_folder(&set, "tests/golden/nothing", "model", &error), SUMI_FILE_NOT_FOUND);
    CHECK(strstr(error.text, "tests/golden/nothing") != NULL && strstr(error.text, "model.safetensors") != NULL);
    error = (sumi_error){0};
    CHECK(sumi_tensor_set_open(&set, "tests/golden", &error) != SUMI_OK);
    CHECK(sumi_tensor_find(&set, "x") == NULL && sumi_metadata_find(&set, "x") == NULL);
    sumi_tensor_set_close(&set);
    sumi_tensor_set_close(&set);
}

TEST(many_tensors_are_found_by_name)
{
    sumi_tensor_set set = {0};
    sumi_tensor_set_init(&set, &s_heap, NULL);
    char name[64];
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "layers.%d.attention.weight", i);
        CHECK_NUMBER(sumi_tensor_set_add(&set, name, strlen(name),
                                         &(sumi_tensor){.rank = 1, .shape = {i}, .file_index = -1}, "memory", NULL),
                     SUMI_OK);
    }
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "%d.attention.weight", i);
        const sumi_tensor* tensor = sumi_tensor_find_prefixed(&set, "layers.", name);
        CHECK(tensor != NULL && tensor->shape[0] == i);
    }
    CHECK(sumi_tensor_find(&set, "layers.20000.attention.weight") == NULL && sumi_tensor_find(&set, "") == NULL);
    sumi_error error = {0};
    CHECK_NUMBER(
        sumi_tensor_set_add(&set, "layers.7.attention.weight", 25, &(sumi_tensor){.file_index = -1}, "memory", &error),
        SUMI_FILE_MALFORMED);
    CHECK_TEXT(error.text, "memory: tensor layers.7.attention.weight occurs twice");
    CHECK(sumi_tensor_set_add(&set, "a\0b", 3, &(sumi_tensor){.file_index = -1}, "memory", NULL)
          == SUMI_FILE_MALFORMED);
    char* large = malloc(100000); // names longer than a block of text
    memset(large, 'n', 100000);
    for (size_t bytes = 16000; bytes <= 100000; bytes += 12000) {
        CHECK_NUMBER(sumi_tensor_set_add(&set, large, bytes, &(sumi_tensor){.file_index = -1}, "memory", NULL),
                     SUMI_OK);
        CHECK_NUMBER(sumi_tensor_set_add(&set, large, bytes / 1000, &(sumi_tensor){.file_index = -1}, "memory", NULL),
                     SUMI_OK);
    }
    for (size_t i = 20000; i < set.count; i++) {
        CHECK(set.tensors[i].name[0] == 'n' && sumi_tensor_find(&set, set.tensors[i].name) == &set.tensors[i]);
    }
    sumi_tensor_set_close(&set);
    // names that are beginnings of each other, the longest first
    sumi_tensor_set_init(&set, &s_heap, NULL);
    for (size_t bytes = 400; bytes > 0; bytes -= 2) {
        sumi_tensor_set_add(&set, large, bytes, &(sumi_tensor){.file_index = -1}, "memory", NULL);
    }
    for (size_t bytes = 400; bytes > 0; bytes--) {
        large[bytes] = '\0';
        const sumi_tensor* tensor = sumi_tensor_find(&set, large);
        CHECK((tensor != NULL) == (bytes % 2 == 0) && (tensor == NULL || strlen(tensor->name) == bytes));
    }
    sumi_tensor_set_close(&set);
    free(large);
    CHECK_NUMBER(s_heap.held, 0);
}

// ---- Conversions ----------------------------------------------------------------------------------------------------

static const sumi_tensor* conversion(const sumi_tensor_set* set, const char* name)
{
    const sumi_tensor* tensor = sumi_tensor_find_prefixed(set, "convert.", name);
    if (tensor == NULL) {
        printf("  no convert.%s\n", name);
        t_errors++;
    }
    return tensor;
}

static uint32_t word(const sumi_tensor* tensor, size_t index)
{
    uint32_t value = 0;
    const size_t bytes = (size_t)sumi_dtype_get(tensor->dtype)->block_bytes;
    memcpy(&value, (const unsigned char*)tensor->data + index * bytes, bytes);
    return value;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

// Equal bits; for NaN any NaN of the same kind is right.
static void check_bits(const char* what, size_t index, uint32_t got, uint32_t want, bool both_nan)
{
    if (got != want && !both_nan && t_errors++ < 8) {
        printf("  %s %zu: got %08x, want %08x\n", what, index, got, want);
    }
}

TEST(conversions_equal_the_golden_bits)
{
    sumi_tensor_set set = {0};
    sumi_error error = {0};
    sumi_tensor_set_init(&set, &s_heap, NULL);
    CHECK_NUMBER(sumi_tensor_set_open(&set, "tests/golden/common/numerics/ops.safetensors", &error), SUMI_OK);
    const sumi_tensor *half = conversion(&set, "f16.input.bits"), *from_half = conversion(&set, "f16_to_f32.bits"),
                      *from_bf16 = conversion(&set, "bf16_to_f32.bits");
    const sumi_tensor *e4m3 = conversion(&set, "f8_e4m3fn_to_f32.bits"),
                      *e5m2 = conversion(&set, "f8_e5m2_to_f32.bits"), *input = conversion(&set, "from_f32.bits");
    const sumi_tensor *to_bf16 = conversion(&set, "f32_to_bf16.bits"), *to_half = conversion(&set, "f32_to_f16.bits"),
                      *to_e4m3 = conversion(&set, "f32_to_f8_e4m3fn.bits");
    const sumi_tensor* to_e5m2 = conversion(&set, "f32_to_f8_e5m2.bits");
    if (t_errors > 0) {
        sumi_tensor_set_close(&set);
        return;
    }
    for (size_t i = 0; i < (size_t)half->shape[0]; i++) {
        const uint16_t bits = (uint16_t)word(half, i);
        const float a = sumi_f16_to_float(bits), b = sumi_bf16_to_float(bits);
        check_bits("f16 to float", i, bits_of(a), word(from_half, i), isnan(a) && isnan(float_of(word(from_half, i))));
        check_bits("bf16 to float", i, bits_of(b), word(from_bf16, i), isnan(b) && isnan(float_of(word(from_bf16, i))));
    }
    for (size_t i = 0; i < 256; i++) {
        const float a = sumi_e4m3_to_float((uint8_t)i), b = sumi_e5m2_to_float((uint8_t)i);
        check_bits("e4m3 to float", i, bits_of(a), word(e4m3, i), isnan(a) && isnan(float_of(word(e4m3, i))));
        check_bits("e5m2 to float", i, bits_of(b), word(e5m2, i), isnan(b) && isnan(float_of(word(e5m2, i))));
    }
    for (size_t i = 0; i < (size_t)input->shape[0]; i++) {
        const float value = float_of(word(input, i));
        const uint16_t bf16 = sumi_float_to_bf16(value), f16 = sumi_float_to_f16(value);
        const uint8_t a = sumi_float_to_e4m3(value), b = sumi_float_to_e5m2(value);
        check_bits("float to bf16", i, bf16, word(to_bf16, i), isnan(value) && (bf16 & 0x7fff) > 0x7f80);
        check_bits("float to f16", i, f16, word(to_half, i), isnan(value) && (f16 & 0x7fff) > 0x7c00);
        check_bits("float to e4m3", i, a, word(to_e4m3, i), isnan(value) && (a & 0x7f) == 0x7f);
        check_bits("float to e5m2", i, b, word(to_e5m2, i), isnan(value) && (b & 0x7f) > 0x7c);
    }
    sumi_tensor_set_close(&set);
}

TEST(conversions_round_trip_every_pattern)
{
    for (uint32_t i = 0; i < 65536; i++) {
        const float half = sumi_f16_to_float((uint16_t)i), bf16 = sumi_bf16_to_float((uint16_t)i);
        CHECK(isnan(half) ? (sumi_float_to_f16(half) & 0x7fff) > 0x7c00 : sumi_float_to_f16(half) == i);
        CHECK(isnan(bf16) ? (sumi_float_to_bf16(bf16) & 0x7fff) > 0x7f80 : sumi_float_to_bf16(bf16) == i);
        CHECK((i & 0x7c00) != 0 || half == ldexpf((float)(i & 0x3ff) * (i & 0x8000 ? -1.0f : 1.0f), -24));
    }
    // Many at once: around every boundary between two, infinities and NaN with them; the rest of a vector, too.
    static const uint16_t below[] = {0x0000, 0x0001, 0x7fff, 0x8000, 0x8001, 0xffff, 0x4000};
    static float many[65536 * 7];
    static uint16_t halves[65536 * 7 + 1];
    for (uint32_t i = 0; i < 65536 * 7; i++) many[i] = float_of(i / 7 << 16 | below[i % 7]);
    for (size_t count = 65536 * 7 - 5; count <= 65536 * 7; count++) {
        memset(halves, 0xAB, sizeof halves);
        sumi_floats_to_bf16(many, halves, count);
        int wrong = 0;
        for (size_t i = 0; i < count; i++) wrong += halves[i] != sumi_float_to_bf16(many[i]);
        CHECK_NUMBER(wrong, 0);
        CHECK_NUMBER(halves[count], 0xABAB);
    }
    for (uint32_t i = 0; i < 256; i++) {
        const float a = sumi_e4m3_to_float((uint8_t)i), b = sumi_e5m2_to_float((uint8_t)i);
        CHECK(isnan(a) || sumi_float_to_e4m3(a) == i);
        CHECK(isnan(b) || sumi_float_to_e5m2(b) == i);
    }
}

TEST(rows_equal_single_values_at_any_length_and_alignment)
{
    unsigned char* source = malloc(70 * 8);
    for (size_t i = 0; i < 70 * 8; i++) { source[i] = (unsigned char)(i * 37 + (i >> 3) * 101 + 11); }
    for (size_t offset = 0; offset < 3; offset++) {
        for (size_t count = 0; count <= 67; count++) {
            float into[68];
            into[count] = 77.0f;
            unsigned char* row = tight(source + offset, count * 2);
            sumi_dtype_to_float(SUMI_DTYPE_F16, row, into, count);
            for (size_t i = 0; i < count; i++) {
                uint16_t bits;
                memcpy(&bits, row + 2 * i, 2);
                CHECK(bits_of(into[i]) == bits_of(sumi_f16_to_float(bits)));
            }
            sumi_dtype_to_float(SUMI_DTYPE_BF16, row, into, count);
            for (size_t i = 0; i < count; i++) {
                uint16_t bits;
                memcpy(&bits, row + 2 * i, 2);
                CHECK(bits_of(into[i]) == (uint32_t)bits << 16);
            }
            sumi_dtype_to_float(SUMI_DTYPE_F8_E4M3, row, into, count);
            for (size_t i = 0; i < count; i++) { CHECK(bits_of(into[i]) == bits_of(sumi_e4m3_to_float(row[i]))); }
            sumi_dtype_to_float(SUMI_DTYPE_F8_E5M2, row, into, count);
            for (size_t i = 0; i < count; i++) { CHECK(bits_of(into[i]) == bits_of(sumi_e5m2_to_float(row[i]))); }
            CHECK(into[count] == 77.0f);
            free(row);
        }
    }
    free(source);
    float into[2];
    sumi_dtype_to_float(SUMI_DTYPE_I64, &(int64_t[]){-5, INT64_MIN}, into, 2);
    CHECK(into[0] == -5.0f && into[1] == -0x1p63f);
    sumi_dtype_to_float(SUMI_DTYPE_U64, &(uint64_t[]){5, UINT64_MAX}, into, 2);
    CHECK(into[0] == 5.0f && into[1] == 0x1p64f);
    sumi_dtype_to_float(SUMI_DTYPE_F64, &(double[]){0.1, 1e300}, into, 2);
    CHECK(into[0] == 0.1f && isinf(into[1]));
    sumi_dtype_to_float(SUMI_DTYPE_BOOL, "\0\1", into, 2);
    CHECK(into[0] == 0 && into[1] == 1);
    sumi_dtype_to_float(SUMI_DTYPE_I8, "\x80\x7f", into, 2);
    CHECK(into[0] == -128 && into[1] == 127);
    CHECK(sumi_dtype_is_number(SUMI_DTYPE_Q6_K) && sumi_dtype_is_number(SUMI_DTYPE_I8)
          && !sumi_dtype_is_number(SUMI_DTYPE_NONE) && !sumi_dtype_is_number(SUMI_DTYPE_COUNT));
    CHECK(sumi_dtype_get((sumi_dtype)1000) == sumi_dtype_get(SUMI_DTYPE_NONE));
}

// ---- A file system in memory ----------------------------------------------------------------------------------------

typedef struct memory_file {
    const char* path;
    const void* data;
    size_t bytes;
    bool owned;
} memory_file;
typedef struct memory_files {
    memory_file list[48];
    int count, open_count, opened_ever;
    bool with_map, fail_read;
} memory_files;

static void* memory_open(const char* path, uint64_t* out_bytes, void* user_data)
{
    memory_files* files = user_data;
    for (int i = 0; i < files->count; i++) {
        if (strcmp(files->list[i].path, path) == 0) {
            *out_bytes = files->list[i].bytes;
            files->open_count++;
            files->opened_ever++;
            return &files->list[i];
        }
    }
    return NULL;
}

static bool memory_read(void* file, uint64_t offset, void* into, size_t bytes, void* user_data)
{
    const memory_file* f = file;
    if (((memory_files*)user_data)->fail_read || offset > f->bytes || bytes > f->bytes - offset) { return false; }
    memcpy(into, (const unsigned char*)f->data + offset, bytes);
    return true;
}

static const void* memory_map(void* file, void* user_data)
{
    return ((memory_files*)user_data)->with_map ? ((const memory_file*)file)->data : NULL;
}

static void memory_close(void* file, void* user_data)
{
    (void)file;
    ((memory_files*)user_data)->open_count--;
}

static sumi_files callbacks(memory_files* files)
{
    return (sumi_files){memory_open, memory_read, memory_map, memory_close, files};
}

static void put_bytes(memory_files* files, const char* path, const void* data, size_t bytes)
{
    files->list[files->count++] = (memory_file){path, data, bytes, false};
}

static void put_text(memory_files* files, const char* path, const char* text)
{
    put_bytes(files, path, text, strlen(text));
}

// A safetensors file of one-element F32 tensors whose values count up from 1. names end with NULL.
static void put_tensors(memory_files* files, const char* path, const char* const* names)
{
    static float s_values[64];
    sumi_tensor tensors[64];
    size_t count = 0;
    for (; names[count] != NULL; count++) {
        s_values[count] = (float)count + 1;
        tensors[count] = (sumi_tensor){.name = names[count],
                                       .dtype = SUMI_DTYPE_F32,
                                       .rank = 1,
                                       .shape = {1},
                                       .data = &s_values[count],
                                       .bytes = 4};
    }
    const uint64_t bytes = sumi_safetensors_write(tensors, count, NULL, 0, NULL, 0);
    void* image = malloc((size_t)bytes);
    sumi_safetensors_write(tensors, count, NULL, 0, image, bytes);
    put_bytes(files, path, image, (size_t)bytes);
    files->list[files->count - 1].owned = true;
}

static void release(memory_files* files)
{
    for (int i = 0; i < files->count; i++) {
        if (files->list[i].owned) { free((void*)(uintptr_t)files->list[i].data); }
    }
    CHECK_NUMBER(files->open_count, 0);
}

#define NAMES(...) ((const char* const[]){__VA_ARGS__, NULL})

// A model folder: Z-Image's transformer in two shards, one-file text encoder and VAE.
static void put_model(memory_files* files)
{
    put_text(files, "m/model_index.json", "{\"_class_name\":\"ZImagePipeline\",\"transformer\":[\"diffusers\",\"x\"]}");
    put_text(files, "m/transformer/config.json", "{\"_class_name\":\"ZImageTransformer2DModel\",\"dim\":64}");
    put_text(files, "m/transformer/diffusion_pytorch_model.safetensors.index.json",
             "{\"weight_map\":{\"cap_embedder.1.weight\":\"s1.safetensors\",\"layers.0.adaLN_modulation.0.weight\":"
             "\"s2.safetensors\"}}");
    put_tensors(files, "m/transformer/s1.safetensors", NAMES("cap_embedder.1.weight"));
    put_tensors(files, "m/transformer/s2.safetensors", NAMES("layers.0.adaLN_modulation.0.weight", "extra"));
    put_text(files, "m/text_encoder/config.json", "{\"model_type\":\"qwen3\"}");
    put_tensors(files, "m/text_encoder/model.safetensors",
                NAMES("model.embed_tokens.weight", "model.layers.0.mlp.weight"));
    put_text(files, "m/vae/config.json", "{\"_class_name\":\"AutoencoderKL\"}");
    put_tensors(files, "m/vae/diffusion_pytorch_model.safetensors",
                NAMES("decoder.conv_in.weight", "encoder.conv_in.weight"));
    put_text(files, "m/tokenizer/tokenizer.json", "{}");
    put_text(files, "m/scheduler/scheduler_config.json", "{\"shift\":3.0}");
}

TEST(safetensors_written_are_read_back)
{
    const float values[6] = {1, 2, 3, 4, 5, 6};
    const sumi_tensor tensors[] = {
        {.name = "latents", .dtype = SUMI_DTYPE_F32, .rank = 2, .shape = {2, 3}, .data = values, .bytes = 24},
        {.name = "\"quoted\\ \x01\n\xe5\xb1\x82",
         .dtype = SUMI_DTYPE_U8,
         .rank = 1,
         .shape = {3},
         .data = "abc",
         .bytes = 3},
        {.name = "nothing", .dtype = SUMI_DTYPE_BF16, .rank = 2, .shape = {0, 5}, .data = NULL, .bytes = 0},
        {.name = "scalar", .dtype = SUMI_DTYPE_I64, .rank = 0, .data = &(int64_t){-3}, .bytes = 8},
    };
    const sumi_metadata metadata[] = {{"prompt", "a \"lighthouse\"\n\t\\ at dusk"}, {"", ""}};
    for (size_t count = 0; count <= 4; count++) {
        const uint64_t bytes = sumi_safetensors_write(tensors, count, metadata, count % 3, NULL, 0);
        unsigned char* image = malloc((size_t)bytes);
        memset(image, 0xaa, (size_t)bytes);
        CHECK(sumi_safetensors_write(tensors, count, metadata, count % 3, image, bytes - 1) == bytes
              && image[0] == 0xaa);
        CHECK(sumi_safetensors_write(tensors, count, metadata, count % 3, image, bytes) == bytes);
        CHECK_NUMBER(image[0] % 8, 0); // the data is aligned
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        CHECK_NUMBER(sumi_safetensors_read(&set, image, bytes, "written", &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        CHECK_NUMBER(set.count, count);
        CHECK_NUMBER(set.metadata_count, count % 3);
        for (size_t i = 0; i < count; i++) {
            const sumi_tensor* found = sumi_tensor_find(&set, tensors[i].name);
            CHECK(found != NULL && found->dtype == tensors[i].dtype && found->rank == tensors[i].rank
                  && found->bytes == tensors[i].bytes);
            CHECK(found != NULL
                  && (found->bytes == 0 || memcmp(found->data, tensors[i].data, (size_t)found->bytes) == 0));
        }
        for (size_t i = 0; i < count % 3; i++) {
            CHECK_TEXT(sumi_metadata_find(&set, metadata[i].key), metadata[i].value);
        }
        sumi_tensor_set_close(&set);
        free(image);
    }
}

// So that a device can page-lock the file's pages.
TEST(tensors_know_the_mapping_that_they_lie_in)
{
    sumi_tensor_set set = {0};
    sumi_error error = {0};
    sumi_tensor_set_init(&set, &s_heap, NULL);
    const char* path = "tests/golden/z-image/model/vae/diffusion_pytorch_model.safetensors";
    CHECK_NUMBER(sumi_tensor_set_open(&set, path, &error), SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK(set.count > 0);
    for (size_t i = 0; i < set.count; i++) {
        const sumi_tensor* tensor = &set.tensors[i];
        const uintptr_t data = (uintptr_t)tensor->data, map = (uintptr_t)tensor->mapping;
#if defined(__linux__)
        CHECK(map != 0 && map % 4096 == 0 && data > map && data + tensor->bytes <= map + tensor->mapping_bytes);
#else
        CHECK(map == 0 || (data > map && data + tensor->bytes <= map + tensor->mapping_bytes));
#endif
    }
    sumi_tensor_set_close(&set);
    CHECK_NUMBER(s_heap.held, 0);
}

TEST(host_files_serve_with_and_without_map)
{
    for (int with_map = 0; with_map < 2; with_map++) {
        memory_files files = {.with_map = with_map != 0};
        put_model(&files);
        const sumi_files host = callbacks(&files);
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, &host);
        CHECK_NUMBER(sumi_tensor_set_open_folder(&set, "m/transformer", "diffusion_pytorch_model", &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        CHECK_NUMBER(set.count, 3);
        CHECK_NUMBER(files.open_count, 2); // the index is closed again
        const sumi_tensor* extra = sumi_tensor_find(&set, "extra");
        float value = 0;
        if (extra != NULL) { sumi_dtype_to_float(extra->dtype, extra->data, &value, 1); }
        CHECK(value == 2.0f && extra->file_index == 1);
        CHECK(extra != NULL && extra->mapping == NULL); // memory of the host's, which nobody but the host may lock
        sumi_tensor_set_close(&set);
        CHECK_NUMBER(s_heap.held, 0);

        files.fail_read = true;
        sumi_tensor_set_init(&set, &s_heap, &host);
        CHECK_NUMBER(sumi_tensor_set_open(&set, "m/vae/diffusion_pytorch_model.safetensors", &error),
                     with_map ? SUMI_OK : SUMI_FILE_READ_FAILED);
        sumi_tensor_set_close(&set);
        error = (sumi_error){0};
        sumi_tensor_set_init(&set, &s_heap, &host);
        CHECK_NUMBER(sumi_tensor_set_open(&set, "m/absent", &error), SUMI_FILE_NOT_FOUND);
        CHECK(strstr(error.text, "m/absent") != NULL);
        sumi_tensor_set_close(&set);
        release(&files);
    }
}

TEST(index_refuses_names_that_are_paths_before_it_opens_anything)
{
    static const char* const s_names[] = {"../m/s1.safetensors",
                                          "/s1.safetensors",
                                          "a/s1.safetensors",
                                          "..\\\\s1.safetensors",
                                          "C:s1.safetensors",
                                          "",
                                          ".",
                                          "..",
                                          "s1\\u0000",
                                          "s1\\n",
                                          "./s1.safetensors"};
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        memory_files files = {.with_map = true};
        put_model(&files);
        const sumi_files host = callbacks(&files);
        char text[256];
        snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"%s\"}}", s_names[i]);
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, &host);
        CHECK_NUMBER(sumi_index_read(&set, text, strlen(text), "m/transformer", "m/transformer/the index", &error),
                     SUMI_FILE_MALFORMED);
        CHECK(strstr(error.text, "the shard name") != NULL && strstr(error.text, "m/transformer/the index") != NULL);
        CHECK_NUMBER(files.opened_ever, 0);
        sumi_tensor_set_close(&set);
        release(&files);
    }
}

TEST(folders_are_searched_by_stem)
{
    static const char* const s_paths[] = {"f/model.safetensors", "f/model.bf16.safetensors",
                                          "f/model.fp16.safetensors"};
    for (size_t i = 0; i < 3; i++) {
        memory_files files = {.with_map = true};
        put_tensors(&files, s_paths[i], NAMES("a"));
        const sumi_files host = callbacks(&files);
        sumi_tensor_set set = {0};
        sumi_tensor_set_init(&set, &s_heap, &host);
        CHECK_NUMBER(sumi_tensor_set_open_folder(&set, "f", "model", NULL), SUMI_OK);
        CHECK_NUMBER(set.count, 1);
        CHECK(sumi_tensor_set_open_folder(&set, "f", "other", NULL) == SUMI_FILE_NOT_FOUND);
        sumi_tensor_set_close(&set);
        release(&files);
    }
}

// ---- Checkpoints ----------------------------------------------------------------------------------------------------

// The table that models are opened with, unless the desc brings its own.
static sumi_checkpoint_desc with_signatures(sumi_checkpoint_desc desc)
{
    if (desc.signatures == NULL) { desc.signatures = sumi_signatures(&desc.signature_count); }
    desc.class_words = sumi_class_words();
    return desc;
}

static const char* network_of(const sumi_checkpoint* checkpoint)
{
    return sumi_component_network(&checkpoint->components[SUMI_COMPONENT_TRANSFORMER]);
}

static sumi_result open_checkpoint(sumi_checkpoint* checkpoint, memory_files* files, sumi_files* host,
                                   const sumi_checkpoint_desc* desc, sumi_error* error)
{
    *host = callbacks(files);
    *error = (sumi_error){0};
    const sumi_checkpoint_desc whole = with_signatures(*desc);
    return sumi_checkpoint_open(checkpoint, &s_heap, host, &whole, error);
}

static bool holds(const sumi_component* part, const char* name) { return sumi_component_find(part, name) != NULL; }

TEST(checkpoint_opens_a_diffusers_folder_step_by_step)
{
    memory_files files = {.with_map = true};
    put_model(&files);
    const sumi_files host = callbacks(&files);
    sumi_checkpoint c = {0};
    sumi_error error = {0};
    const sumi_checkpoint_desc desc = with_signatures((sumi_checkpoint_desc){.path = "m"});
    CHECK_NUMBER(sumi_checkpoint_begin(&c, &s_heap, &host, &desc, &error), SUMI_OK);
    float progress = sumi_checkpoint_progress(&c, 0.0f);
    CHECK(progress == 0.0f);
    int steps = 0;
    for (bool done = false; !done && steps < 100; steps++) {
        const int open_before = files.open_count;
        CHECK_NUMBER(sumi_checkpoint_step(&c, &done, &error), SUMI_OK);
        CHECK(done || files.open_count <= open_before + 1);
        CHECK(sumi_checkpoint_progress(&c, 0.0f) >= progress);
        progress = sumi_checkpoint_progress(&c, 0.0f);
    }
    CHECK(progress == 1.0f && steps > 5 && steps < 25);
    CHECK_TEXT(error.text, "");
    CHECK_TEXT(network_of(&c), "z-image");
    CHECK_TEXT(c.class_name, "ZImagePipeline");
    static const char* const s_names[] = {"cap_embedder.1.weight", "model.embed_tokens.weight",
                                          "decoder.conv_in.weight"};
    static const sumi_component_kind s_kinds[] = {SUMI_COMPONENT_TRANSFORMER, SUMI_COMPONENT_TEXT_ENCODER,
                                                  SUMI_COMPONENT_VAE};
    for (int i = 0; i < 3; i++) {
        const sumi_component* component = &c.components[s_kinds[i]];
        CHECK(component->present && holds(component, s_names[i]) && component->config.data != NULL);
        CHECK_TEXT(component->prefix, "");
        CHECK(strstr(component->path, sumi_component_kind_name(s_kinds[i])) != NULL);
    }
    CHECK(!c.components[SUMI_COMPONENT_TEXT_ENCODER_2].present && !c.components[SUMI_COMPONENT_VISION].present);
    CHECK(c.tokenizers[0].bytes == 2 && c.scheduler.data != NULL);
    CHECK_TEXT(c.tokenizers[0].folder, "m/tokenizer");
    sumi_checkpoint_close(&c);
    sumi_checkpoint_close(&c);
    CHECK_NUMBER(s_heap.held, 0);
    // cancelled after every number of steps
    for (int n = 0; n < steps; n++) {
        CHECK_NUMBER(sumi_checkpoint_begin(&c, &s_heap, &host, &desc, &error), SUMI_OK);
        for (int i = 0; i < n; i++) {
            bool done;
            CHECK_NUMBER(sumi_checkpoint_step(&c, &done, &error), SUMI_OK);
        }
        sumi_checkpoint_close(&c);
        CHECK_NUMBER(s_heap.held, 0);
        CHECK_NUMBER(files.open_count, 0);
    }
    release(&files);
}

TEST(checkpoint_without_text_encoder_does_not_open_it)
{
    memory_files files = {.with_map = true};
    sumi_files host;
    put_model(&files);
    sumi_checkpoint c = {0};
    sumi_error error;
    CHECK_NUMBER(open_checkpoint(&c, &files, &host,
                                 &(sumi_checkpoint_desc){.path = "m/",
                                                         .without_text_encoder = true,
                                                         .component_paths = {[SUMI_COMPONENT_TEXT_ENCODER] = "gone"}},
                                 &error),
                 SUMI_OK);
    CHECK(c.components[SUMI_COMPONENT_TRANSFORMER].present && c.components[SUMI_COMPONENT_VAE].present
          && !c.components[SUMI_COMPONENT_TEXT_ENCODER].present);
    CHECK(c.tokenizers[0].data == NULL && c.tokenizers[0].folder == NULL);
    sumi_checkpoint_close(&c);
    CHECK_NUMBER(
        sumi_checkpoint_begin(&c, &s_heap, &host,
                              &(sumi_checkpoint_desc){.without_text_encoder = true,
                                                      .component_paths = {[SUMI_COMPONENT_TEXT_ENCODER] = "gone"}},
                              &error),
        SUMI_INVALID_ARGUMENT);
    sumi_checkpoint_close(&c);
    release(&files);
}

TEST(checkpoint_finds_all_components_of_one_file)
{
    memory_files files = {0};
    sumi_files host;
    put_tensors(&files, "all.safetensors",
                NAMES("model.diffusion_model.cap_embedder.1.weight",
                      "model.diffusion_model.layers.0.adaLN_modulation.0.weight",
                      "text_encoders.qwen3_4b.transformer.model.embed_tokens.weight", "vae.decoder.conv_in.weight",
                      "vae.encoder.conv_in.weight", "something.else"));
    sumi_checkpoint c = {0};
    sumi_error error;
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.path = "all.safetensors"}, &error),
                 SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK_TEXT(network_of(&c), "z-image");
    CHECK_TEXT(c.components[SUMI_COMPONENT_TRANSFORMER].prefix, "model.diffusion_model.");
    CHECK_TEXT(c.components[SUMI_COMPONENT_TEXT_ENCODER].prefix, "text_encoders.qwen3_4b.transformer.");
    CHECK_TEXT(c.components[SUMI_COMPONENT_VAE].prefix, "vae.");
    CHECK(holds(&c.components[SUMI_COMPONENT_TRANSFORMER], "cap_embedder.1.weight")
          && holds(&c.components[SUMI_COMPONENT_TEXT_ENCODER], "model.embed_tokens.weight")
          && holds(&c.components[SUMI_COMPONENT_VAE], "encoder.conv_in.weight"));
    CHECK(!holds(&c.components[SUMI_COMPONENT_TRANSFORMER], "decoder.conv_in.weight")
          && !holds(&c.components[SUMI_COMPONENT_TRANSFORMER], "something.else"));
    int in_vae = 0;
    for (size_t i = 0; i < c.components[SUMI_COMPONENT_VAE].set->count; i++) {
        in_vae += sumi_component_tensor_name(&c.components[SUMI_COMPONENT_VAE],
                                             &c.components[SUMI_COMPONENT_VAE].set->tensors[i])
               != NULL;
    }
    CHECK_NUMBER(in_vae, 2);
    CHECK_NUMBER(files.open_count, 1); // one set serves all
    sumi_checkpoint_close(&c);
    release(&files);
    CHECK_NUMBER(s_heap.held, 0);
}

TEST(checkpoint_tells_single_components_by_content)
{
    static const struct {
        const char* name;
        sumi_component_kind kind;
        const char *prefix, *family;
    } s_cases[] = {
        {"diffusion_model.transformer_blocks.0.img_mod.1.weight", SUMI_COMPONENT_TRANSFORMER, "diffusion_model.",
         "qwen-image"},
        {"model.embed_tokens.weight", SUMI_COMPONENT_TEXT_ENCODER, "", ""},
        {"embed_tokens.weight", SUMI_COMPONENT_TEXT_ENCODER, "", ""},
        {"token_embd.weight", SUMI_COMPONENT_TEXT_ENCODER, "", ""},
        {"language_model.model.embed_tokens.weight", SUMI_COMPONENT_TEXT_ENCODER, "", ""},
        {"first_stage_model.decoder.conv_in.weight", SUMI_COMPONENT_VAE, "first_stage_model.", ""},
        {"decoder.conv1.weight", SUMI_COMPONENT_VAE, "", ""},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        memory_files files = {.with_map = true};
        sumi_files host;
        put_tensors(&files, "one.safetensors", NAMES(s_cases[i].name));
        sumi_checkpoint c = {0};
        sumi_error error;
        CHECK_NUMBER(open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.path = "one.safetensors"}, &error),
                     SUMI_OK);
        for (int kind = 0; kind < SUMI_COMPONENT_COUNT; kind++) {
            CHECK(c.components[kind].present == (kind == (int)s_cases[i].kind));
        }
        CHECK_TEXT(c.components[s_cases[i].kind].prefix, s_cases[i].prefix);
        CHECK_TEXT(network_of(&c), s_cases[i].family);
        sumi_checkpoint_close(&c);
        release(&files);
    }
}

TEST(checkpoint_prefers_the_usual_prefix)
{
    memory_files files = {.with_map = true};
    sumi_files host;
    put_tensors(&files, "two.safetensors",
                NAMES("vae.decoder.conv_in.weight", "first_stage_model.decoder.conv_in.weight",
                      "model_ema.transformer_blocks.0.img_mod.1.weight",
                      "model.diffusion_model.transformer_blocks.0.img_mod.1.weight",
                      "transformer.transformer_blocks.0.img_mod.1.weight",
                      "text_encoders..transformer.model.embed_tokens.weight"));
    sumi_checkpoint c = {0};
    sumi_error error;
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.path = "two.safetensors"}, &error),
                 SUMI_OK);
    CHECK_TEXT(c.components[SUMI_COMPONENT_VAE].prefix, "vae.");
    CHECK_TEXT(c.components[SUMI_COMPONENT_TRANSFORMER].prefix, "model.diffusion_model.");
    CHECK(!c.components[SUMI_COMPONENT_TEXT_ENCODER].present);
    sumi_checkpoint_close(&c);
    release(&files);
}

TEST(checkpoint_components_override_and_complete_each_other)
{
    memory_files files = {.with_map = true};
    sumi_files host;
    put_model(&files);
    put_tensors(&files, "other/t.safetensors",
                NAMES("cap_embedder.1.weight", "layers.0.adaLN_modulation.0.weight", "vae.decoder.conv_in.weight"));
    put_tensors(&files, "other/ae.safetensors", NAMES("decoder.conv_in.weight", "mine"));
    put_text(&files, "other/config.json", "{\"_class_name\":\"AutoencoderKL\",\"here\":1}");
    put_text(&files, "base/scheduler/scheduler_config.json", "{\"shift\":6.0}");
    sumi_checkpoint c = {0};
    sumi_error error;
    // a folder with one part from elsewhere; its config is the one beside it, because that speaks of a VAE
    CHECK_NUMBER(open_checkpoint(&c, &files, &host,
                                 &(sumi_checkpoint_desc){
                                     .path = "m", .component_paths = {[SUMI_COMPONENT_VAE] = "other/ae.safetensors"}},
                                 &error),
                 SUMI_OK);
    CHECK(holds(&c.components[SUMI_COMPONENT_VAE], "mine")
          && holds(&c.components[SUMI_COMPONENT_TRANSFORMER], "extra"));
    CHECK_TEXT(c.components[SUMI_COMPONENT_VAE].config.path, "other/config.json");
    sumi_checkpoint_close(&c);
    // a transformer from elsewhere keeps the folder's config; the config beside it is for something else
    CHECK_NUMBER(
        open_checkpoint(&c, &files, &host,
                        &(sumi_checkpoint_desc){
                            .path = "m", .component_paths = {[SUMI_COMPONENT_TRANSFORMER] = "other/t.safetensors"}},
                        &error),
        SUMI_OK);
    CHECK_TEXT(c.components[SUMI_COMPONENT_TRANSFORMER].config.path, "m/transformer/config.json");
    CHECK_TEXT(c.components[SUMI_COMPONENT_VAE].path, "m/vae");
    sumi_checkpoint_close(&c);
    // a VAE inside the transformer's file counts
    CHECK_NUMBER(open_checkpoint(
                     &c, &files, &host,
                     &(sumi_checkpoint_desc){.component_paths = {[SUMI_COMPONENT_TRANSFORMER] = "other/t.safetensors",
                                                                 [SUMI_COMPONENT_TEXT_ENCODER] = "m/text_encoder"}},
                     &error),
                 SUMI_OK);
    CHECK_TEXT(c.components[SUMI_COMPONENT_VAE].prefix, "vae.");
    CHECK(c.components[SUMI_COMPONENT_VAE].set == c.components[SUMI_COMPONENT_TRANSFORMER].set);
    CHECK_TEXT(c.tokenizers[0].folder, "m/tokenizer");
    sumi_checkpoint_close(&c);
    // whole model folders as parts, the scheduler of another folder, a tokenizer by file
    CHECK_NUMBER(
        open_checkpoint(&c, &files, &host,
                        &(sumi_checkpoint_desc){.path = "base",
                                                .component_paths = {[SUMI_COMPONENT_TRANSFORMER] = "m/transformer/",
                                                                    [SUMI_COMPONENT_TEXT_ENCODER] = "m",
                                                                    [SUMI_COMPONENT_VAE] = "m"},
                                                .tokenizer_paths = {"m/tokenizer/tokenizer.json"}},
                        &error),
        SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK(c.components[SUMI_COMPONENT_TRANSFORMER].present && c.components[SUMI_COMPONENT_TEXT_ENCODER].present
          && c.components[SUMI_COMPONENT_VAE].present && c.tokenizers[0].data != NULL);
    CHECK(c.scheduler.data != NULL && memcmp(c.scheduler.data, "{\"shift\":6.0}", 13) == 0);
    CHECK_TEXT(c.components[SUMI_COMPONENT_VAE].path, "m/vae");
    sumi_checkpoint_close(&c);
    // no base folder: the scheduler beside the transformer's folder
    CHECK_NUMBER(
        open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.component_paths = {"m/transformer"}}, &error),
        SUMI_OK);
    CHECK(c.scheduler.data != NULL && c.tokenizers[0].data == NULL && !c.components[SUMI_COMPONENT_TEXT_ENCODER].present
          && !c.components[SUMI_COMPONENT_VAE].present);
    sumi_checkpoint_close(&c);
    // a part's folder as the path
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.path = "m/vae"}, &error), SUMI_OK);
    CHECK(c.components[SUMI_COMPONENT_VAE].present && !c.components[SUMI_COMPONENT_TRANSFORMER].present
          && c.components[SUMI_COMPONENT_VAE].config.data != NULL);
    sumi_checkpoint_close(&c);
    release(&files);
    CHECK_NUMBER(s_heap.held, 0);
}

TEST(checkpoint_without_model_index_goes_on_by_content)
{
    memory_files files = {.with_map = true};
    sumi_files host;
    put_tensors(&files, "m/transformer/model.safetensors", NAMES("transformer_blocks.0.img_mod.1.weight"));
    put_text(&files, "m/text_encoder/tokenizer.json", "[]");
    put_text(&files, "m/text_encoder/config.json", "{}"); // a download that stopped: no weights
    sumi_checkpoint c = {0};
    sumi_error error;
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.path = "m"}, &error), SUMI_OK);
    CHECK_TEXT(network_of(&c), "qwen-image");
    CHECK(!c.components[SUMI_COMPONENT_TEXT_ENCODER].present && c.tokenizers[0].data != NULL);
    CHECK_TEXT(c.components[SUMI_COMPONENT_TEXT_ENCODER].path, "m/text_encoder");
    sumi_checkpoint_close(&c);
    release(&files);
}

TEST(checkpoint_refusals_name_what_is_wrong)
{
    memory_files files = {.with_map = true};
    sumi_files host;
    put_model(&files);
    put_tensors(&files, "lora.safetensors", NAMES("a.lora_A.weight"));
    put_text(&files, "bad/model_index.json", "{\"_class_name\":");
    put_tensors(&files, "bad/vae/model.safetensors", NAMES("decoder.conv_in.weight"));
    put_text(&files, "worse/vae/config.json", "[1]");
    put_tensors(&files, "worse/vae/model.safetensors", NAMES("decoder.conv_in.weight"));
    put_text(&files, "cut/transformer/diffusion_pytorch_model.safetensors.index.json",
             "{\"weight_map\":{\"x\":\"s9.safetensors\"}}");
    static const struct {
        sumi_checkpoint_desc desc;
        sumi_result result;
        const char* word;
    } s_cases[] = {
        {{0}, SUMI_INVALID_ARGUMENT, "no path"},
        {{.path = "nowhere"}, SUMI_FILE_NOT_FOUND, "nowhere"},
        {{.path = "lora.safetensors"}, SUMI_MODEL_UNKNOWN, "lora.safetensors"},
        {{.path = "m", .component_paths = {[SUMI_COMPONENT_VAE] = "lora.safetensors"}},
         SUMI_MODEL_UNKNOWN,
         "lora.safetensors"},
        {{.path = "m", .component_paths = {[SUMI_COMPONENT_VAE] = "m/tokenizer"}}, SUMI_FILE_NOT_FOUND, "m/tokenizer"},
        {{.path = "m", .tokenizer_paths = {"gone"}}, SUMI_FILE_NOT_FOUND, "gone"},
        {{.path = "bad"}, SUMI_FILE_MALFORMED, "bad/model_index.json"},
        {{.path = "worse"}, SUMI_FILE_MALFORMED, "worse/vae/config.json"},
        {{.path = "cut"}, SUMI_FILE_NOT_FOUND, "s9.safetensors"},
        {{.path = "m/model_index.json"}, SUMI_FILE_MALFORMED, "m/model_index.json"},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_checkpoint c = {0};
        sumi_error error;
        CHECK_NUMBER(open_checkpoint(&c, &files, &host, &s_cases[i].desc, &error), s_cases[i].result);
        if (strstr(error.text, s_cases[i].word) == NULL) {
            printf("  no \"%s\" in \"%s\"\n", s_cases[i].word, error.text);
            t_errors++;
        }
        sumi_checkpoint_close(&c);
        CHECK_NUMBER(s_heap.held, 0);
    }
    release(&files);
}

// ---- Components and signatures --------------------------------------------------------------------------------------

// One file of tensors, the first of the given rank and second size; the others have one element.
static void put_shaped(memory_files* files, const char* path, int32_t rank, int64_t second, const char* const* names)
{
    static float s_zeros[128];
    sumi_tensor tensors[8];
    size_t count = 0;
    for (; names[count] != NULL; count++) {
        tensors[count] = (sumi_tensor){
            .name = names[count], .dtype = SUMI_DTYPE_F32, .rank = 1, .shape = {1}, .data = s_zeros, .bytes = 4};
    }
    tensors[0].rank = rank;
    for (int32_t i = 0; i < rank; i++) { tensors[0].shape[i] = i == 1 ? second : 1; }
    tensors[0].bytes = 4 * (uint64_t)(rank > 1 ? second : 1);
    const uint64_t bytes = sumi_safetensors_write(tensors, count, NULL, 0, NULL, 0);
    void* image = malloc((size_t)bytes);
    sumi_safetensors_write(tensors, count, NULL, 0, image, bytes);
    put_bytes(files, path, image, (size_t)bytes);
    files->list[files->count - 1].owned = true;
}

TEST(signatures_tell_networks_and_refuse_by_name)
{
    static const struct {
        const char* names[4];
        int32_t rank;
        int64_t second;
        sumi_component_kind kind;
        const char *network, *prefix, *refusal;
    } s_cases[] = {
        {{"cap_embedder.1.weight", "layers.0.adaLN_modulation.0.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "z-image",
         "",
         NULL},
        {{"inner_model.cap_embedder.1.weight", "inner_model.clip_text_pooled_proj.0.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "newbie-image",
         "inner_model.",
         NULL},
        {{"cap_embedder.1.weight", "layers.0.adaLN_modulation.1.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "lumina-2",
         "",
         "Lumina"},
        {{"model.diffusion_model.transformer_blocks.0.img_mod.1.weight",
          "model.diffusion_model.time_text_embed.addition_t_embedding.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "qwen-image-layered",
         "model.diffusion_model.",
         "Layered"},
        {{"transformer_blocks.0.img_mod.1.weight", "controlnet_blocks.0.weight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "qwen-image-controlnet",
         "",
         "ControlNet"},
        {{"transformer_blocks.0.img_mod.1.qweight"},
         2,
         8,
         SUMI_COMPONENT_TRANSFORMER,
         "qwen-image-svdquant",
         "",
         "SVDQuant"},
        {{"model.diffusion_model.input_blocks.0.0.weight", "model.diffusion_model.time_embed.0.weight"},
         4,
         4,
         SUMI_COMPONENT_TRANSFORMER,
         "unet",
         "model.diffusion_model.",
         "SDXL"},
        {{"double_blocks.0.img_attn.qkv.weight"}, 2, 8, SUMI_COMPONENT_TRANSFORMER, "flux", "", "Flux"},
        {{"text_encoders.qwen3_4b.transformer.model.embed_tokens.weight",
          "text_encoders.qwen3_4b.transformer.model.layers.0.self_attn.q_norm.weight"},
         2,
         8,
         SUMI_COMPONENT_TEXT_ENCODER,
         "qwen3",
         "text_encoders.qwen3_4b.transformer.",
         NULL},
        {{"token_embd.weight", "blk.0.attn_q_norm.weight"}, 2, 8, SUMI_COMPONENT_TEXT_ENCODER, "qwen3", "", NULL},
        {{"token_embd.weight", "blk.0.attn_q_norm.weight", "blk.0.post_ffw_norm.weight"},
         2,
         8,
         SUMI_COMPONENT_TEXT_ENCODER,
         "gemma3",
         "",
         NULL},
        {{"token_embd.weight", "blk.0.attn_q.bias"}, 2, 8, SUMI_COMPONENT_TEXT_ENCODER, "qwen2.5-vl", "", NULL},
        {{"model.embed_tokens.weight", "model.layers.0.self_attn.q_norm.weight",
          "model.layers.0.pre_feedforward_layernorm.weight"},
         2,
         8,
         SUMI_COMPONENT_TEXT_ENCODER,
         "gemma3",
         "",
         NULL},
        {{"language_model.model.embed_tokens.weight", "language_model.model.layers.0.pre_feedforward_layernorm.weight"},
         2,
         8,
         SUMI_COMPONENT_TEXT_ENCODER,
         "gemma3",
         "",
         NULL},
        {{"model.language_model.embed_tokens.weight", "model.language_model.layers.0.self_attn.q_proj.bias"},
         2,
         8,
         SUMI_COMPONENT_TEXT_ENCODER,
         "qwen2.5-vl",
         "",
         NULL},
        {{"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.bias"},
         2,
         8,
         SUMI_COMPONENT_TEXT_ENCODER,
         "qwen2.5-vl",
         "",
         NULL},
        {{"text_encoders.jina_clip.text_model.transformer.roberta.emb_ln.weight"},
         1,
         1,
         SUMI_COMPONENT_TEXT_ENCODER_2,
         "jina-clip",
         "text_encoders.jina_clip.",
         NULL},
        {{"model.emb_ln.weight", "model.embeddings.word_embeddings.weight"},
         1,
         1,
         SUMI_COMPONENT_TEXT_ENCODER_2,
         "jina-clip",
         "",
         NULL},
        {{"model.visual.patch_embed.proj.weight", "model.visual.merger.ln_q.weight"},
         5,
         3,
         SUMI_COMPONENT_VISION,
         "qwen2.5-vl-vision",
         "model.visual.",
         NULL},
        {{"v.patch_embd.weight", "v.post_ln.weight", "mm.0.weight", "mm.2.weight"},
         4,
         3,
         SUMI_COMPONENT_VISION,
         "qwen2.5-vl-mmproj",
         "",
         "mmproj"},
        {{"vae.decoder.conv_in.weight"}, 4, 16, SUMI_COMPONENT_VAE, "flux-vae", "vae.", NULL},
        {{"first_stage_model.decoder.conv_in.weight"},
         4,
         4,
         SUMI_COMPONENT_VAE,
         "unet-vae",
         "first_stage_model.",
         "4 latent"},
        {{"decoder.conv_in.weight"}, 5, 16, SUMI_COMPONENT_VAE, "qwen-vae", "", NULL},
        {{"decoder.conv1.weight"}, 5, 16, SUMI_COMPONENT_VAE, "qwen-vae", "", NULL},
        {{"encoder.conv1.weight", "decoder.conv1.weight"}, 5, 4, SUMI_COMPONENT_VAE, "qwen-vae-layered", "", "Layered"},
        {{"encoder.conv_in.weight", "decoder.conv_in.weight"},
         5,
         4,
         SUMI_COMPONENT_VAE,
         "qwen-vae-layered",
         "",
         "Layered"},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        memory_files files = {.with_map = true};
        sumi_files host;
        const char* names[5] = {0};
        memcpy(names, s_cases[i].names, sizeof s_cases[i].names);
        put_shaped(&files, "one.safetensors", s_cases[i].rank, s_cases[i].second, names);
        sumi_checkpoint c = {0};
        sumi_error error;
        CHECK_NUMBER(open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.path = "one.safetensors"}, &error),
                     SUMI_OK);
        for (int kind = 0; kind < SUMI_COMPONENT_COUNT; kind++) {
            CHECK(c.components[kind].present == (kind == (int)s_cases[i].kind));
        }
        const sumi_component* component = &c.components[s_cases[i].kind];
        CHECK_TEXT(sumi_component_network(component), s_cases[i].network);
        CHECK_TEXT(component->prefix, s_cases[i].prefix);
        const sumi_result result = sumi_signatures_check(&c, &error);
        CHECK_NUMBER(result, s_cases[i].refusal != NULL ? SUMI_MODEL_UNKNOWN : SUMI_OK);
        CHECK(strstr(error.text, s_cases[i].refusal != NULL ? s_cases[i].refusal : "") != NULL);
        CHECK(s_cases[i].refusal == NULL || strstr(error.text, "one.safetensors: ") == error.text);
        sumi_checkpoint_close(&c);
        release(&files);
    }
    CHECK_TEXT(sumi_family_of_class("QwenImageEditPlusPipeline"), "qwen-image");
    CHECK_TEXT(sumi_family_of_class("QwenImageLayeredPipeline"), "qwen-image-layered");
    CHECK_TEXT(sumi_family_of_class("StableDiffusionXLPipeline"), "");
}

TEST(signatures_come_from_the_caller)
{
    static const char* const s_prefixes[] = {"", "*.net.", NULL};
    const sumi_signature table[] = {
        {.component = SUMI_COMPONENT_TRANSFORMER,
         .network = "small",
         .prefixes = s_prefixes,
         .tensors = {"a", "b"},
         .shape = {2, 1, 1, 8}},
        {.component = SUMI_COMPONENT_TRANSFORMER,
         .network = "large",
         .prefixes = s_prefixes,
         .tensors = {"a", "b"},
         .shape = {2, 1, 9, 64}},
        {.component = SUMI_COMPONENT_TRANSFORMER, .network = "any", .tensors = {"a"}},
        {.component = SUMI_COMPONENT_VAE, .network = "by class", .class_name = "AutoencoderX"},
        {.component = SUMI_COMPONENT_TEXT_ENCODER, .network = "by architecture", .class_name = "XModel"},
    };
    static const struct {
        const char* names[3];
        int64_t second;
        const char *network, *prefix;
    } s_cases[] = {
        {{"a", "b"}, 8, "small", ""},     {{"a", "b"}, 9, "large", ""},
        {{"a", "b"}, 65, "any", ""},      {{"x.net.a", "x.net.b"}, 9, "large", "x.net."},
        {{"a", "x.net.b"}, 9, "any", ""}, {{"x.net.a", "y.net.b"}, 9, NULL, NULL},
        {{"x.a", "x.b"}, 9, NULL, NULL},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        memory_files files = {.with_map = true};
        sumi_files host;
        put_shaped(&files, "one.safetensors", 2, s_cases[i].second,
                   (const char* const[]){s_cases[i].names[0], s_cases[i].names[1], NULL});
        sumi_checkpoint c = {0};
        sumi_error error;
        const sumi_checkpoint_desc desc = {.path = "one.safetensors", .signatures = table, .signature_count = 5};
        CHECK_NUMBER(open_checkpoint(&c, &files, &host, &desc, &error),
                     s_cases[i].network != NULL ? SUMI_OK : SUMI_MODEL_UNKNOWN);
        if (s_cases[i].network != NULL) {
            CHECK_TEXT(network_of(&c), s_cases[i].network);
            CHECK_TEXT(c.components[SUMI_COMPONENT_TRANSFORMER].prefix, s_cases[i].prefix);
        }
        sumi_checkpoint_close(&c);
        release(&files);
    }
    // by class where the tensors say nothing
    memory_files files = {.with_map = true};
    sumi_files host;
    put_tensors(&files, "m/vae/model.safetensors", NAMES("unheard.of"));
    put_text(&files, "m/vae/config.json",
             "{\"x\":[1],\"architectures\":[\"Y\",\"Z\"],\"_class_name\":\"AutoencoderX\"}");
    put_tensors(&files, "m/text_encoder/model.safetensors", NAMES("unheard.of"));
    put_text(&files, "m/text_encoder/config.json", "{\"architectures\":[\"XModel\"],\"y\":2}");
    put_tensors(&files, "m/transformer/model.safetensors", NAMES("unheard.of"));
    put_text(&files, "m/transformer/config.json", "{\"architectures\":[]}");
    sumi_checkpoint c = {0};
    sumi_error error;
    const sumi_checkpoint_desc desc = {.path = "m", .signatures = table, .signature_count = 5};
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &desc, &error), SUMI_OK);
    CHECK_TEXT(sumi_component_network(&c.components[SUMI_COMPONENT_VAE]), "by class");
    CHECK_TEXT(sumi_component_network(&c.components[SUMI_COMPONENT_TEXT_ENCODER]), "by architecture");
    CHECK(c.components[SUMI_COMPONENT_TRANSFORMER].present
          && c.components[SUMI_COMPONENT_TRANSFORMER].signature == NULL);
    sumi_checkpoint_close(&c);
    release(&files);
    CHECK_NUMBER(s_heap.held, 0);
}

// Two text encoders with their tokenizers in their folders, a vision tower inside the first.
static void put_pair(memory_files* files)
{
    put_tensors(files, "p/transformer/diffusion_pytorch_model.safetensors",
                NAMES("cap_embedder.1.weight", "clip_text_pooled_proj.0.weight"));
    put_tensors(files, "p/text_encoder/model.safetensors",
                NAMES("model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.bias",
                      "visual.patch_embed.proj.weight", "visual.merger.ln_q.weight", "visual.blocks.0.norm1.weight"));
    put_text(files, "p/text_encoder/config.json", "{\"model_type\":\"x\"}");
    put_text(files, "p/text_encoder/vocab.json", "{\"a\":0}");
    put_text(files, "p/text_encoder/merges.txt", "#version: 0.2\n");
    put_text(files, "p/text_encoder/added_tokens.json", "{\"<e>\":1}");
    put_text(files, "p/text_encoder/tokenizer_config.json", "{}");
    put_text(files, "p/text_encoder/special_tokens_map.json", "{}");
    put_tensors(files, "p/clip_model/model.safetensors", NAMES("text_model.transformer.roberta.emb_ln.weight"));
    put_text(files, "p/clip_model/config.json", "{\"architectures\":[\"y\"]}");
    put_text(files, "p/clip_model/sentencepiece.bpe.model", "\x0A\x03\x0A\x01x");
    put_text(files, "p/processor/preprocessor_config.json", "{\"min_pixels\":3136}");
}

TEST(checkpoint_finds_two_encoders_and_a_vision_tower)
{
    memory_files files = {.with_map = true};
    sumi_files host;
    put_pair(&files);
    put_text(&files, "q/preprocessor_config.json", "{\"q\":1}");
    put_text(&files, "q/broken.json", "{");
    put_tensors(&files, "tower.safetensors", NAMES("patch_embed.proj.weight", "merger.ln_q.weight"));
    put_tensors(&files, "second/text_encoder_2/model.safetensors",
                NAMES("text_model.transformer.roberta.emb_ln.weight"));
    sumi_checkpoint c = {0};
    sumi_error error;
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &(sumi_checkpoint_desc){.path = "p"}, &error), SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK_TEXT(network_of(&c), "newbie-image");
    const sumi_component* vision = &c.components[SUMI_COMPONENT_VISION];
    CHECK_TEXT(vision->prefix, "visual.");
    CHECK(vision->set == c.components[SUMI_COMPONENT_TEXT_ENCODER].set && vision->config.data != NULL);
    CHECK(holds(vision, "blocks.0.norm1.weight") && !holds(vision, "model.embed_tokens.weight"));
    CHECK_TEXT(c.components[SUMI_COMPONENT_TEXT_ENCODER_2].path, "p/clip_model");
    CHECK_TEXT(c.components[SUMI_COMPONENT_TEXT_ENCODER_2].config.path, "p/clip_model/config.json");
    const sumi_checkpoint_tokenizer* t = c.tokenizers;
    CHECK(t[0].form == SUMI_TOKENIZER_VOCABULARY && t[1].form == SUMI_TOKENIZER_SENTENCEPIECE);
    CHECK_TEXT(t[0].path, "p/text_encoder/vocab.json");
    CHECK_TEXT(t[0].folder, "p/text_encoder");
    CHECK_TEXT(t[1].path, "p/clip_model/sentencepiece.bpe.model");
    CHECK(t[0].merges.data != NULL && t[0].added.data != NULL && t[0].config.data != NULL && t[0].special.data != NULL);
    CHECK(t[1].bytes == 5 && t[1].merges.data == NULL && t[1].config.data == NULL);
    CHECK_TEXT(c.processor.path, "p/processor/preprocessor_config.json");
    sumi_checkpoint_close(&c);
    // nothing that a prompt needs
    CHECK_NUMBER(
        open_checkpoint(&c, &files, &host,
                        &(sumi_checkpoint_desc){.path = "p", .without_text_encoder = true, .processor_path = "gone"},
                        &error),
        SUMI_OK);
    CHECK(!c.components[SUMI_COMPONENT_TEXT_ENCODER].present && !c.components[SUMI_COMPONENT_TEXT_ENCODER_2].present
          && !c.components[SUMI_COMPONENT_VISION].present);
    CHECK(c.tokenizers[0].form == SUMI_TOKENIZER_ABSENT && c.tokenizers[1].form == SUMI_TOKENIZER_ABSENT
          && c.processor.data == NULL);
    sumi_checkpoint_close(&c);
    // a path each
    CHECK_NUMBER(
        open_checkpoint(
            &c, &files, &host,
            &(sumi_checkpoint_desc){
                .path = "p",
                .component_paths =
                    {[SUMI_COMPONENT_VISION] = "tower.safetensors", [SUMI_COMPONENT_TEXT_ENCODER_2] = "second"},
                .tokenizer_paths = {"p/clip_model", "p/text_encoder/vocab.json"},
                .processor_path = "q"},
            &error),
        SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK_TEXT(vision->path, "tower.safetensors");
    CHECK_TEXT(vision->prefix, "");
    CHECK_TEXT(c.components[SUMI_COMPONENT_TEXT_ENCODER_2].path, "second/text_encoder_2");
    CHECK(t[0].form == SUMI_TOKENIZER_SENTENCEPIECE && t[1].form == SUMI_TOKENIZER_VOCABULARY
          && t[1].merges.data != NULL);
    CHECK_TEXT(c.processor.path, "q/preprocessor_config.json");
    sumi_checkpoint_close(&c);
    // a tower in its text encoder's folder, given by itself
    CHECK_NUMBER(open_checkpoint(&c, &files, &host,
                                 &(sumi_checkpoint_desc){.component_paths = {[SUMI_COMPONENT_VISION] = "p"}}, &error),
                 SUMI_OK);
    CHECK_TEXT(vision->path, "p/text_encoder");
    sumi_checkpoint_close(&c);
    static const struct {
        sumi_checkpoint_desc desc;
        sumi_result result;
        const char *word, *also;
    } s_cases[] = {
        {{.path = "p", .processor_path = "p/clip_model"},
         SUMI_FILE_NOT_FOUND,
         "p/clip_model",
         "preprocessor_config.json"},
        {{.path = "p", .processor_path = "q/broken.json"}, SUMI_FILE_MALFORMED, "q/broken.json", "JSON"},
        {{.path = "p", .tokenizer_paths = {"q"}}, SUMI_FILE_NOT_FOUND, "q: ", "tokenizer.model"},
        {{.path = "p", .component_paths = {[SUMI_COMPONENT_VAE] = "tower.safetensors"}},
         SUMI_MODEL_UNKNOWN,
         "known vae",
         "vision \"qwen2.5-vl-vision\""},
        {{.path = "p", .component_paths = {[SUMI_COMPONENT_TEXT_ENCODER_2] = "p/text_encoder"}},
         SUMI_MODEL_UNKNOWN,
         "text_encoder_2",
         "text_encoder \"qwen2.5-vl\""},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        CHECK_NUMBER(open_checkpoint(&c, &files, &host, &s_cases[i].desc, &error), s_cases[i].result);
        CHECK(strstr(error.text, s_cases[i].word) != NULL && strstr(error.text, s_cases[i].also) != NULL);
        sumi_checkpoint_close(&c);
    }
    release(&files);
    CHECK_NUMBER(s_heap.held, 0);
}

TEST(tokenizers_are_found_beside_the_weights)
{
    memory_files files = {.with_map = true};
    sumi_files host;
    put_tensors(&files, "t/gemma.safetensors", NAMES("model.embed_tokens.weight"));
    put_tensors(&files, "t/jina.safetensors",
                NAMES("model.emb_ln.weight", "model.embeddings.word_embeddings.weight", "spiece_model"));
    put_tensors(&files, "u/jina.safetensors", NAMES("text_model.transformer.roberta.emb_ln.weight"));
    put_text(&files, "t/tokenizer.json", "{}");
    put_text(&files, "odd/pieces", "\x0A\x03\x0A\x01x");
    put_text(&files, "odd/text", " \n{}");
    sumi_checkpoint c = {0};
    sumi_error error;
    sumi_checkpoint_desc desc = {.component_paths = {[SUMI_COMPONENT_TEXT_ENCODER] = "t/gemma.safetensors",
                                                     [SUMI_COMPONENT_TEXT_ENCODER_2] = "t/jina.safetensors"}};
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &desc, &error), SUMI_OK);
    CHECK(c.tokenizers[0].form == SUMI_TOKENIZER_JSON);
    CHECK_TEXT(c.tokenizers[0].path, "t/tokenizer.json");
    CHECK(c.tokenizers[1].form == SUMI_TOKENIZER_SENTENCEPIECE && c.tokenizers[1].bytes == 4
          && c.tokenizers[1].folder == NULL);
    CHECK_TEXT(c.tokenizers[1].path, "t/jina.safetensors");
    sumi_checkpoint_close(&c);
    // a tokenizer.json beside two encoders is the first one's; the message names where the second one's was looked for
    desc.component_paths[SUMI_COMPONENT_TEXT_ENCODER_2] = "u/jina.safetensors";
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &desc, &error), SUMI_OK);
    CHECK(c.tokenizers[1].form == SUMI_TOKENIZER_ABSENT);
    CHECK_NUMBER(sumi_checkpoint_tokenizer_missing(&c.tokenizers[1], 1, "u/jina.safetensors", &error),
                 SUMI_FILE_NOT_FOUND);
    CHECK(strstr(error.text, "merges.txt") != NULL && strstr(error.text, "in u/tokenizer_2") != NULL);
    sumi_checkpoint_close(&c);
    // files whose names say nothing
    desc.tokenizer_paths[0] = "odd/pieces";
    desc.tokenizer_paths[1] = "odd/text";
    CHECK_NUMBER(open_checkpoint(&c, &files, &host, &desc, &error), SUMI_OK);
    CHECK(c.tokenizers[0].form == SUMI_TOKENIZER_SENTENCEPIECE && c.tokenizers[1].form == SUMI_TOKENIZER_JSON);
    sumi_checkpoint_close(&c);
    release(&files);
    CHECK_NUMBER(s_heap.held, 0);
}

// ---- Scales ---------------------------------------------------------------------------------------------------------

typedef struct scaled {
    sumi_tensor_set set;
    sumi_component component;
    char prefix[8];
} scaled;

static void scaled_begin(scaled* s, const char* prefix)
{
    memset(s, 0, sizeof *s);
    sumi_tensor_set_init(&s->set, &s_heap, NULL);
    snprintf(s->prefix, sizeof s->prefix, "%s", prefix);
    s->component = (sumi_component){.present = true, .set = &s->set, .prefix = s->prefix, .path = "file.safetensors"};
}

// A tensor of up to two dimensions: rows 0 is a single value, cols 0 a vector.
static void scaled_add(scaled* s, const char* name, sumi_dtype dtype, int64_t rows, int64_t cols, const void* data)
{
    const uint64_t count = (uint64_t)((rows > 0 ? rows : 1) * (cols > 0 ? cols : 1));
    const sumi_tensor tensor = {.dtype = dtype,
                                .rank = (rows > 0) + (cols > 0),
                                .shape = {rows, cols},
                                .data = data,
                                .bytes = sumi_dtype_bytes(dtype, count),
                                .file_index = -1};
    CHECK_NUMBER(sumi_tensor_set_add(&s->set, name, strlen(name), &tensor, "memory", NULL), SUMI_OK);
}

static void scaled_say(scaled* s, const char* layer, const char* json)
{
    char name[64];
    snprintf(name, sizeof name, "%s.comfy_quant", layer);
    scaled_add(s, name, SUMI_DTYPE_U8, (int64_t)strlen(json), 0, json);
}

TEST(scales_of_fp8_and_int8_files_are_found)
{
    static const float s_values[4] = {0.5f, 0.25f, 3.0f, 0.0f};
    static const uint16_t s_half = 0x3400; // 0.25
    static const char s_fp8[] = "{\"format\":\"float8_e4m3fn\"}";
    static const signed char s_bytes[2 * 256] = {1};
    scaled s;
    scaled_begin(&s, "p.");
    scaled_add(&s, "p.a.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_add(&s, "p.b.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_add(&s, "p.b.scale_weight", SUMI_DTYPE_F32, 0, 0, &s_values[0]);
    scaled_add(&s, "p.c.weight", SUMI_DTYPE_F8_E5M2, 2, 0, s_values);
    scaled_add(&s, "p.c.weight_scale", SUMI_DTYPE_F32, 1, 1, &s_values[1]);
    scaled_say(&s, "p.c", s_fp8);
    scaled_add(&s, "p.d.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_add(&s, "p.d.weight_scale", SUMI_DTYPE_F32, 0, 0, &s_values[2]);
    scaled_add(&s, "p.n.weight", SUMI_DTYPE_BF16, 2, 0, s_values);
    scaled_add(&s, "p.n.bias", SUMI_DTYPE_BF16, 2, 0, s_values);
    scaled_add(&s, "p.rows.weight", SUMI_DTYPE_F8_E4M3, 2, 4, s_values);
    scaled_add(&s, "p.rows.weight_scale", SUMI_DTYPE_F32, 2, 0, s_values);
    scaled_add(&s, "p.whole.weight", SUMI_DTYPE_I8, 2, 4, s_bytes);
    scaled_add(&s, "p.whole.weight_scale", SUMI_DTYPE_F16, 1, 0, &s_half);
    scaled_say(&s, "p.whole", "{\"format\":\"int8_tensorwise\",\"convrot\":false}");
    scaled_add(&s, "p.r256.weight", SUMI_DTYPE_I8, 2, 256, s_bytes);
    scaled_add(&s, "p.r256.weight_scale", SUMI_DTYPE_F32, 2, 1, &s_values[1]);
    scaled_say(&s, "p.r256", "{\"convrot\":true,\"format\":\"int8_tensorwise\"}");
    scaled_add(&s, "p.r16.weight", SUMI_DTYPE_I8, 2, 32, s_bytes);
    scaled_add(&s, "p.r16.weight_scale", SUMI_DTYPE_F32, 2, 1, s_values);
    scaled_say(&s, "p.r16", "{\"format\":\"int8_tensorwise\",\"params\":{\"convrot\":true,\"convrot_groupsize\":16}}");
    const char metadata[] = "{\"format_version\":\"1.0\",\"layers\":{\"x\":{\"format\":\"nvfp4\"},\"p.d\":{\"format\":"
                            "\"float8_e4m3fn\",\"n\":[1]}}}";
    sumi_metadata_add(&s.set, "_quantization_metadata", 22, metadata, sizeof metadata - 1, NULL);
    static const struct {
        const char* name;
        sumi_tensor_scaling want;
    } s_cases[] = {{"a.weight", {.scale = 1}},
                   {"b.weight", {.scale = 0.5f, .is_scaled = true}},
                   {"c.weight", {.scale = 0.25f, .is_scaled = true}},
                   {"d.weight", {.scale = 3, .is_scaled = true}},
                   {"rows.weight", {.scale = 1, .row_scales = &s_values[0], .is_scaled = true}},
                   {"whole.weight", {.scale = 0.25f, .is_scaled = true}},
                   {"r256.weight", {.scale = 1, .row_scales = &s_values[1], .rotation = 256, .is_scaled = true}},
                   {"r16.weight", {.scale = 1, .row_scales = &s_values[0], .rotation = 16, .is_scaled = true}},
                   {"n.weight", {.scale = 1}},
                   {"n.bias", {.scale = 1}},
                   {"gone.weight", {.scale = 1}},
                   {"w", {.scale = 1}}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        const sumi_tensor_scaling* want = &s_cases[i].want;
        sumi_tensor_scaling got = {.scale = -1};
        sumi_error error = {0};
        CHECK_NUMBER(sumi_tensor_find_scaling(&s.component, s_cases[i].name, &got, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        const bool is_same = got.scale == want->scale && got.row_scales == want->row_scales
                          && got.rotation == want->rotation && got.is_scaled == want->is_scaled;
        if (!is_same) { printf("  in %s\n", s_cases[i].name); }
        CHECK(is_same);
    }
    sumi_tensor_set_close(&s.set);
}

TEST(quantisations_that_are_not_known_are_refused)
{
    static const float s_values[64] = {0.5f, 0.25f, 3.0f, INFINITY};
    static const signed char s_bytes[4 * 1024] = {1};
    scaled s;
    scaled_begin(&s, "");
    scaled_add(&s, "blocks.weight", SUMI_DTYPE_F8_E4M3, 2, 4, s_values);
    scaled_add(&s, "blocks.weight_scale", SUMI_DTYPE_F32, 2, 2, s_values);
    scaled_add(&s, "others.weight", SUMI_DTYPE_F8_E4M3, 2, 4, s_values);
    scaled_add(&s, "others.weight_scale", SUMI_DTYPE_F32, 3, 1, s_values);
    scaled_add(&s, "vector.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_add(&s, "vector.weight_scale", SUMI_DTYPE_F32, 2, 0, s_values);
    scaled_add(&s, "none.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    const sumi_tensor none = {.dtype = SUMI_DTYPE_F32, .rank = 1, .data = s_values, .file_index = -1};
    CHECK_NUMBER(sumi_tensor_set_add(&s.set, "none.weight_scale", 17, &none, "memory", NULL), SUMI_OK);
    scaled_add(&s, "group.weight", SUMI_DTYPE_I8, 2, 1024, s_bytes);
    scaled_add(&s, "group.weight_scale", SUMI_DTYPE_F32, 2, 0, s_values);
    scaled_say(&s, "group", "{\"format\":\"int8_tensorwise\",\"convrot\":true,\"convrot_groupsize\":1024}");
    scaled_add(&s, "cut.weight", SUMI_DTYPE_I8, 2, 384, s_bytes);
    scaled_add(&s, "cut.weight_scale", SUMI_DTYPE_F32, 2, 0, s_values);
    scaled_say(&s, "cut", "{\"format\":\"int8_tensorwise\",\"convrot\":true}");
    scaled_add(&s, "line.weight", SUMI_DTYPE_I8, 256, 0, s_bytes);
    scaled_add(&s, "line.weight_scale", SUMI_DTYPE_F32, 0, 0, s_values);
    scaled_say(&s, "line", "{\"format\":\"int8_tensorwise\",\"convrot\":true}");
    scaled_add(&s, "bare.weight", SUMI_DTYPE_I8, 2, 4, s_bytes);
    scaled_say(&s, "bare", "{\"format\":\"int8_tensorwise\"}");
    scaled_add(&s, "w4a8.weight", SUMI_DTYPE_I8, 2, 4, s_bytes);
    scaled_say(&s, "w4a8", "{\"format\":\"asym_w4a8_int8\"}");
    scaled_add(&s, "wrong.weight", SUMI_DTYPE_BF16, 2, 4, s_bytes);
    scaled_add(&s, "wrong.weight_scale", SUMI_DTYPE_F32, 0, 0, s_values);
    scaled_say(&s, "wrong", "{\"format\":\"int8_tensorwise\"}");
    scaled_add(&s, "small.weight", SUMI_DTYPE_I8, 2, 4, s_bytes);
    scaled_add(&s, "small.weight_scale", SUMI_DTYPE_BF16, 2, 1, s_values);
    scaled_say(&s, "small", "{\"format\":\"int8_tensorwise\"}");
    scaled_add(&s, "packed.weight", SUMI_DTYPE_F8_E4M3, 32, 4, s_bytes);
    scaled_add(&s, "packed.weight_scale", SUMI_DTYPE_Q8_0, 32, 0, s_values);
    scaled_add(&s, "fp4.weight", SUMI_DTYPE_U8, 2, 0, s_values);
    scaled_add(&s, "fp4.weight_scale", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_add(&s, "fp4.weight_scale_2", SUMI_DTYPE_F32, 0, 0, s_values);
    scaled_add(&s, "int8.weight", SUMI_DTYPE_I8, 2, 0, s_values);
    scaled_add(&s, "int8.weight_scale", SUMI_DTYPE_F32, 0, 0, s_values);
    scaled_add(&s, "broken.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_say(&s, "broken", "{\"format\":");
    scaled_add(&s, "infinite.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    scaled_add(&s, "infinite.scale_weight", SUMI_DTYPE_F32, 0, 0, &s_values[3]);
    scaled_add(&s, "last.weight", SUMI_DTYPE_F8_E4M3, 4, 4, s_values);
    scaled_add(&s, "last.weight_scale", SUMI_DTYPE_F32, 4, 1, s_values);
    scaled_add(&s, "listed.weight", SUMI_DTYPE_F8_E4M3, 2, 0, s_values);
    const char metadata[] = "{\"layers\":{\"listed\":{\"format\":\"mxfp8\"}}}";
    sumi_metadata_add(&s.set, "_quantization_metadata", 22, metadata, sizeof metadata - 1, NULL);
    static const struct {
        const char* name;
        sumi_result result;
        const char *word, *also;
    } s_cases[] = {
        {"blocks.weight", SUMI_NOT_SUPPORTED, "fp8 with a scale per block", "blocks.weight"},
        {"others.weight", SUMI_NOT_SUPPORTED, "fp8 with a scale per block", "others.weight"},
        {"vector.weight", SUMI_NOT_SUPPORTED, "fp8 with a scale per block", "vector.weight"},
        {"none.weight", SUMI_NOT_SUPPORTED, "fp8 with a scale per block", "none.weight"},
        {"group.weight", SUMI_NOT_SUPPORTED, "int8_tensorwise, convrot in groups of 1024", "group.weight"},
        {"cut.weight", SUMI_FILE_MALFORMED, "384", "cut.weight"},
        {"line.weight", SUMI_NOT_SUPPORTED, "int8_tensorwise, convrot", "line.weight"},
        {"bare.weight", SUMI_NOT_SUPPORTED, "without a scale", "bare.weight"},
        {"w4a8.weight", SUMI_NOT_SUPPORTED, "asym_w4a8_int8", "w4a8.weight"},
        {"wrong.weight", SUMI_NOT_SUPPORTED, "int8_tensorwise", "wrong.weight"},
        {"small.weight", SUMI_NOT_SUPPORTED, "BF16", "small.weight_scale"},
        {"packed.weight", SUMI_NOT_SUPPORTED, "Q8_0", "packed.weight_scale"},
        {"fp4.weight", SUMI_NOT_SUPPORTED, "nvfp4", "fp4.weight"},
        {"int8.weight", SUMI_NOT_SUPPORTED, "int8 of an unknown format", "int8.weight"},
        {"listed.weight", SUMI_NOT_SUPPORTED, "mxfp8", "listed.weight"},
        {"broken.weight", SUMI_FILE_MALFORMED, "JSON", "file.safetensors"},
        {"infinite.weight", SUMI_FILE_MALFORMED, "finite", "infinite.scale_weight"},
        {"last.weight", SUMI_FILE_MALFORMED, "finite", "last.weight_scale"},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_error error = {0};
        sumi_tensor_scaling scaling;
        CHECK_NUMBER(sumi_tensor_find_scaling(&s.component, s_cases[i].name, &scaling, &error), s_cases[i].result);
        if (strstr(error.text, s_cases[i].word) == NULL || strstr(error.text, s_cases[i].also) == NULL) {
            printf("  poor message: %s\n", error.text);
            t_errors++;
        }
    }
    sumi_tensor_set_close(&s.set);
}

// ---- Memory that runs out -------------------------------------------------------------------------------------------

TEST(every_failed_allocation_is_survived)
{
    for (int what = 0; what < 5; what++) {
        memory_files files = {0};
        put_model(&files);
        put_tensors(&files, "all.safetensors",
                    NAMES("model.diffusion_model.transformer_blocks.0.img_mod.1.weight", "vae.decoder.conv_in.weight"));
        put_pair(&files);
        const sumi_files host = callbacks(&files);
        sumi_result result = SUMI_OUT_OF_HOST_MEMORY;
        int64_t n = 0;
        for (; result != SUMI_OK && n < 2000; n++) {
            failing f = {.left = n};
            sumi_heap heap;
            const sumi_allocator allocator = failing_allocator(&f);
            sumi_heap_init(&heap, &allocator);
            sumi_error error = {0};
            if (what == 0) {
                sumi_tensor_set set = {0};
                sumi_tensor_set_init(&set, &heap, &host);
                result = sumi_tensor_set_open_folder(&set, "m/transformer", "diffusion_pytorch_model", &error);
                sumi_tensor_set_close(&set);
            } else if (what == 1) {
                sumi_tensor_set set = {0};
                sumi_tensor_set_init(&set, &heap, NULL);
                result = sumi_tensor_set_open(&set, GOLDEN "safetensors/valid/metadata.safetensors", &error);
                result = result != SUMI_OK ? result
                       : sumi_tensor_set_open(&set, GOLDEN "safetensors/valid/header_not_in_offset_order.safetensors",
                                              NULL)
                                 == SUMI_FILE_MALFORMED
                           ? SUMI_OK
                           : SUMI_OUT_OF_HOST_MEMORY;
                sumi_tensor_set_close(&set);
            } else if (what == 2) {
                sumi_tensor_set set = {0};
                sumi_tensor_set_init(&set, &heap, NULL);
                result = sumi_tensor_set_open(&set, GOLDEN "gguf/metadata.gguf", &error);
                sumi_tensor_set_close(&set);
            } else if (what == 3) {
                sumi_checkpoint c = {0};
                const sumi_checkpoint_desc desc = with_signatures((sumi_checkpoint_desc){.path = "p"});
                result = sumi_checkpoint_open(&c, &heap, &host, &desc, &error);
                sumi_checkpoint_close(&c);
            } else {
                sumi_checkpoint c = {0};
                const sumi_checkpoint_desc desc = with_signatures(
                    (sumi_checkpoint_desc){.path = "m",
                                           .component_paths = {[SUMI_COMPONENT_VAE] = "all.safetensors"},
                                           .tokenizer_paths = {"m/tokenizer"}});
                result = sumi_checkpoint_open(&c, &heap, &host, &desc, &error);
                sumi_checkpoint_close(&c);
            }
            if (result != SUMI_OK && result != SUMI_OUT_OF_HOST_MEMORY) {
                printf("  after %lld allocations: result %d, %s\n", (long long)n, (int)result, error.text);
                t_errors++;
                break;
            }
            CHECK_NUMBER(f.held, 0);
            CHECK_NUMBER(files.open_count, 0);
        }
        CHECK(result == SUMI_OK && n > 5);
        release(&files);
    }
}

// ---- The golden checkpoints -----------------------------------------------------------------------------------------

static sumi_result open_golden(sumi_checkpoint* c, const sumi_checkpoint_desc* desc)
{
    sumi_error error = {0};
    const sumi_checkpoint_desc whole = with_signatures(*desc);
    const sumi_result result = sumi_checkpoint_open(c, &s_heap, NULL, &whole, &error);
    if (result != SUMI_OK) { printf("  %s\n", error.text); }
    return result;
}

TEST(golden_z_image_checkpoints_open)
{
#define Z "tests/golden/z-image/"
    size_t bytes;
    unsigned char* there = read_whole(Z "model/model_index.json", &bytes);
    if (there == NULL) { SKIP("tests/golden/z-image is not there"); }
    free(there);
    sumi_checkpoint c = {0};
    CHECK_NUMBER(open_golden(&c, &(sumi_checkpoint_desc){.path = Z "model"}), SUMI_OK);
    CHECK_TEXT(network_of(&c), "z-image");
    CHECK_TEXT(c.class_name, "ZImagePipeline");
    CHECK(c.tokenizers[0].bytes > 1000 && c.scheduler.bytes > 10);
    CHECK(holds(&c.components[SUMI_COMPONENT_TRANSFORMER], "layers.1.attention.to_q.weight")
          && holds(&c.components[SUMI_COMPONENT_TEXT_ENCODER], "model.layers.2.mlp.gate_proj.weight")
          && holds(&c.components[SUMI_COMPONENT_VAE], "encoder.conv_in.weight"));
    CHECK(c.components[SUMI_COMPONENT_TRANSFORMER].config.data != NULL
          && c.components[SUMI_COMPONENT_TEXT_ENCODER].config.data != NULL
          && c.components[SUMI_COMPONENT_VAE].config.data != NULL);
    CHECK_NUMBER(c.components[SUMI_COMPONENT_TRANSFORMER].set->opened_count, 3);
    const size_t transformer_count = c.components[SUMI_COMPONENT_TRANSFORMER].set->count;
    sumi_checkpoint_close(&c);

    // the base model's scheduler with the other parts from the folder beside it
    CHECK_NUMBER(open_golden(&c, &(sumi_checkpoint_desc){.path = Z "model-base",
                                                         .component_paths = {[SUMI_COMPONENT_TRANSFORMER] = Z "model",
                                                                             [SUMI_COMPONENT_TEXT_ENCODER] =
                                                                                 Z "model/text_encoder",
                                                                             [SUMI_COMPONENT_VAE] = Z "model/vae"},
                                                         .tokenizer_paths = {Z "model/tokenizer"}}),
                 SUMI_OK);
    CHECK_TEXT(network_of(&c), "z-image");
    CHECK(c.scheduler.path != NULL && strcmp(c.scheduler.path, Z "model-base/scheduler/scheduler_config.json") == 0);
    CHECK_NUMBER(c.components[SUMI_COMPONENT_TRANSFORMER].set->count, transformer_count);
    sumi_checkpoint_close(&c);

    // single files, the transformer with the original names
    CHECK_NUMBER(open_golden(&c, &(sumi_checkpoint_desc){.path = Z "single-file/z_image_turbo_bf16.safetensors",
                                                         .component_paths = {[SUMI_COMPONENT_VAE] =
                                                                                 Z "single-file/ae.safetensors"}}),
                 SUMI_OK);
    CHECK_TEXT(network_of(&c), "z-image");
    CHECK(holds(&c.components[SUMI_COMPONENT_TRANSFORMER], "layers.0.attention.qkv.weight")
          && holds(&c.components[SUMI_COMPONENT_VAE], "decoder.mid.attn_1.q.weight")
          && !c.components[SUMI_COMPONENT_TEXT_ENCODER].present);
    CHECK(c.components[SUMI_COMPONENT_TRANSFORMER].config.data == NULL
          && c.components[SUMI_COMPONENT_VAE].config.data == NULL && c.scheduler.data == NULL);
    sumi_tensor_scaling scaling;
    CHECK(sumi_tensor_find_scaling(&c.components[SUMI_COMPONENT_TRANSFORMER], "layers.0.attention.qkv.weight", &scaling,
                                   NULL)
              == SUMI_OK
          && scaling.scale == 1.0f && !scaling.is_scaled);
    sumi_checkpoint_close(&c);
    // and laid over the folder, which gives the configs
    CHECK_NUMBER(
        open_golden(&c, &(sumi_checkpoint_desc){.path = Z "model",
                                                .component_paths = {[SUMI_COMPONENT_TRANSFORMER] = Z
                                                                    "single-file/z_image_turbo_bf16.safetensors"}}),
        SUMI_OK);
    CHECK(c.components[SUMI_COMPONENT_TRANSFORMER].config.data != NULL
          && holds(&c.components[SUMI_COMPONENT_TRANSFORMER], "layers.0.attention.qkv.weight")
          && c.components[SUMI_COMPONENT_TEXT_ENCODER].present && c.components[SUMI_COMPONENT_VAE].present);
    sumi_checkpoint_close(&c);
    CHECK_NUMBER(s_heap.held, 0);
}

TEST(golden_checkpoints_of_other_families_open)
{
    static const struct {
        const char *path, *family, *folder;
    } s_cases[] = {{"tests/golden/qwen-image/model", "qwen-image", "tokenizer"},
                   {"tests/golden/newbie/model", "newbie-image", "text_encoder"}};
    for (int i = 0; i < 2; i++) {
        char index[256];
        size_t bytes;
        snprintf(index, sizeof index, "%s/model_index.json", s_cases[i].path);
        unsigned char* there = read_whole(index, &bytes);
        if (there == NULL) { SKIP("the golden folders of the other families are not there"); }
        free(there);
        sumi_checkpoint c = {0};
        CHECK_NUMBER(open_golden(&c, &(sumi_checkpoint_desc){.path = s_cases[i].path}), SUMI_OK);
        CHECK_TEXT(network_of(&c), s_cases[i].family);
        CHECK(c.components[SUMI_COMPONENT_TRANSFORMER].present && c.components[SUMI_COMPONENT_TEXT_ENCODER].present
              && c.components[SUMI_COMPONENT_VAE].present && c.scheduler.data != NULL);
        CHECK(c.tokenizers[0].folder != NULL && strstr(c.tokenizers[0].folder, s_cases[i].folder) != NULL);
        sumi_checkpoint_close(&c);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(json_accepts_what_rfc_8259_allows);
    RUN(json_refuses_everything_else);
    RUN(json_every_cut_of_a_valid_text_is_refused);
    RUN(json_depth_is_bounded);
    RUN(json_pull_reader_reads_values_and_stops_at_the_first_error);
    RUN(json_numbers_are_correctly_rounded);
    RUN(json_integers_are_exact_or_refused);
    RUN(safetensors_golden_files_get_their_verdicts);
    RUN(gguf_golden_files_get_their_verdicts);
    RUN(index_golden_folders_get_their_verdicts);
    RUN(gguf_values_equal_the_reference_exactly);
    RUN(gguf_original_shapes_become_metadata);
    RUN(gguf_offsets_are_held_against_the_place_of_the_data);
    RUN(every_truncation_of_a_file_is_survived);
    RUN(files_that_are_something_else_are_named);
    RUN(missing_files_and_folders_are_results);
    RUN(many_tensors_are_found_by_name);
    RUN(conversions_equal_the_golden_bits);
    RUN(conversions_round_trip_every_pattern);
    RUN(rows_equal_single_values_at_any_length_and_alignment);
    RUN(safetensors_written_are_read_back);
    RUN(tensors_know_the_mapping_that_they_lie_in);
    RUN(host_files_serve_with_and_without_map);
    RUN(index_refuses_names_that_are_paths_before_it_opens_anything);
    RUN(folders_are_searched_by_stem);
    RUN(checkpoint_opens_a_diffusers_folder_step_by_step);
    RUN(checkpoint_without_text_encoder_does_not_open_it);
    RUN(checkpoint_finds_all_components_of_one_file);
    RUN(checkpoint_tells_single_components_by_content);
    RUN(checkpoint_prefers_the_usual_prefix);
    RUN(checkpoint_components_override_and_complete_each_other);
    RUN(checkpoint_without_model_index_goes_on_by_content);
    RUN(checkpoint_refusals_name_what_is_wrong);
    RUN(signatures_tell_networks_and_refuse_by_name);
    RUN(signatures_come_from_the_caller);
    RUN(checkpoint_finds_two_encoders_and_a_vision_tower);
    RUN(tokenizers_are_found_beside_the_weights);
    RUN(scales_of_fp8_and_int8_files_are_found);
    RUN(quantisations_that_are_not_known_are_refused);
    RUN(every_failed_allocation_is_survived);
    RUN(golden_z_image_checkpoints_open);
    RUN(golden_checkpoints_of_other_families_open);
    TEST_END();
}
