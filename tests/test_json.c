// JSON: what is accepted, what is refused, and numbers to the last bit.
#include "files/json.h"
#include "memory_files.h"

// ---- Helpers --------------------------------------------------------------------------------------------------------

static bool walks(const char* text, size_t bytes)
{
    unsigned char* copy = exact_copy(text, bytes);
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
        "\xef\xbb\xbf{}",
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
        "\xef\xbb\xbf",
        "\xef\xbb{}",
        "{\xef\xbb\xbf}",
        "\xef\xbb\xbf\xef\xbb\xbf{}",
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
    for (size_t i = 0; i < sizeof s_text - 1; i++) CHECK(!walks(s_text, i));
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
    static const char s_text[] = " {\"n\" : -12, \"u\":18446744073709551615,\"d\": 0.3611 "
                                 ",\"b\":true,\"z\":null,\"s\":\"a\\n\\u5c42\\u00e9\\ud83d\\ude42\",\"l\":[1,[2],3],"
                                 "\"o\":{\"deep\":{\"x\":[{}]}}} ";
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
            static const char s_want[] = "a\n\xe5\xb1\x82\xc3\xa9\xf0\x9f\x99\x82";
            CHECK_TEXT(text_of(&text), s_want);
            CHECK(sumi_json_is(&text, s_want) && !sumi_json_is(&text, "a\n") && !sumi_json_is(&text, "a\n\xe5\xb1\x82x")
                  && !sumi_json_is(&text, ""));
            char small[3] = "??";
            CHECK_NUMBER(sumi_json_decode(&text, small, 2), 11);
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
    CHECK_TEXT(error.text, "some.json: expected an object at byte 0 of its JSON");
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
        if ((!good || got != want) && t_errors++ < 8) printf("  %s: got %.17g, want %.17g\n", text, got, want);
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

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(json_accepts_what_rfc_8259_allows);
    RUN(json_refuses_everything_else);
    RUN(json_every_cut_of_a_valid_text_is_refused);
    RUN(json_depth_is_bounded);
    RUN(json_pull_reader_reads_values_and_stops_at_the_first_error);
    RUN(json_numbers_are_correctly_rounded);
    RUN(json_integers_are_exact_or_refused);
    TEST_END();
}
