// What a tokenizer makes of a text: repaired UTF-8, normalised letters, ends, unknown characters, flags of added
// tokens; the same after loading in steps. Every allocation fails.
#include "failing.h"
#include "files/json.h"
#include "text/tokenizer.h"
#include "text/unicode.h"
#include "tokenizer_fixture.h"

// ---- Helpers --------------------------------------------------------------------------------------------------------

static sumi_tokenizer* load_text(const char* json)
{
    sumi_error error = {0};
    sumi_tokenizer* tokenizer = load_bytes(&s_heap, json, strlen(json), &error);
    CHECK_TEXT(error.text, "");
    return tokenizer;
}

static int32_t s_other_ids[MAX_IDS];

// ---- Small pieces ---------------------------------------------------------------------------------------------------

static size_t from_hex(const sumi_json_text* hex, char* out)
{
    for (size_t i = 0; i < hex->bytes; i += 2) {
        unsigned value;
        sscanf(hex->data + i, "%2x", &value);
        out[i / 2] = (char)value;
    }
    return hex->bytes / 2;
}

TEST(malformed_utf8_counts_as_replacement_characters)
{
    const char* tokenizers[] = {"qwen", "gemma3", "xlmr"};
    for (size_t i = 0; i < 3; i++) {
        char name[256];
        snprintf(name, sizeof name, "common/tokenizers/%s/tokenizer.json", tokenizers[i]);
        sumi_tokenizer* tokenizer = load_golden(name);
        blob lines = read_golden("common/tokenizers/repaired_utf8.jsonl");
        size_t checked = 0;
        CHECK(tokenizer != NULL && lines.data != NULL);
        for (char *line = lines.data, *end; tokenizer != NULL && line != NULL && *line != '\0';
             line = end + 1, checked++) {
            end = strchr(line, '\n');
            sumi_json j;
            sumi_json_text key, hex;
            char text[256], repaired[512];
            size_t bytes = 0, repaired_bytes = 0;
            sumi_json_begin(&j, line, (size_t)(end - line), NULL);
            sumi_json_object(&j);
            while (sumi_json_key(&j, &key)) {
                sumi_json_string(&j, &hex);
                *(sumi_json_is(&key, "hex") ? &bytes : &repaired_bytes) =
                    from_hex(&hex, sumi_json_is(&key, "hex") ? text : repaired);
            }
            char* tight = malloc(bytes); // so that a sanitizer sees a read behind the end
            memcpy(tight, text, bytes);
            size_t want = encode(tokenizer, repaired, repaired_bytes, true);
            memcpy(s_other_ids, s_ids, want * sizeof *s_ids);
            size_t got = encode(tokenizer, tight, bytes, true);
            CHECK(got == want && memcmp(s_ids, s_other_ids, want * sizeof *s_ids) == 0);
            sumi_text_buffer buffer = {0};
            CHECK(sumi_utf8_repair(&s_heap, &buffer, tight, bytes, NULL) == SUMI_OK);
            CHECK(buffer.bytes == repaired_bytes && memcmp(buffer.memory, repaired, repaired_bytes) == 0);
            sumi_text_release(&s_heap, &buffer);
            free(tight);
        }
        CHECK(checked > 30);
        free(lines.data);
        sumi_tokenizer_destroy(tokenizer);
    }
}

// The NFC of a text that is given in pieces of `piece_bytes` (but whole characters), in little work at a time.
static void append_nfc(sumi_text_buffer* out, const char* text, size_t bytes, size_t piece_bytes, size_t work)
{
    sumi_nfc nfc = {0};
    for (size_t at = 0, shown = 0; shown < bytes || at < bytes;) {
        shown = shown + piece_bytes < bytes ? shown + piece_bytes : bytes;
        while (shown < bytes && ((unsigned char)text[shown] & 0xC0) == 0x80) shown++;
        for (bool waits = false; !waits;) {
            sumi_text_piece piece = {.text = text + at, .bytes = shown - at, .is_last = shown == bytes, .work = work};
            CHECK_NUMBER(sumi_nfc_append(&nfc, &piece, &(sumi_text_output){&s_heap, out, NULL}), SUMI_OK);
            CHECK(piece.done <= work + 16 || work < 16);
            at += piece.taken;
            waits = piece.done < work;
        }
    }
    sumi_nfc_release(&s_heap, &nfc);
}

TEST(nfc_keeps_what_follows_many_marks)
{
    for (size_t marks = 1; marks < 300; marks += marks < 40 ? 1 : 37) {
        // a, marks of two classes in turn, two letters that do not compose, e with an acute
        char text[1024] = "a", want[1024];
        size_t bytes = 1, want_bytes = 0;
        for (size_t i = 0; i < marks; i++, bytes += 2) memcpy(text + bytes, i % 2 ? "\xCC\x81" : "\xCC\xA3", 2);
        memcpy(text + bytes,
               "\xE0\xB8\x81\xE0\xB8\x82"
               "e\xCC\x81",
               9);
        bytes += 9;
        const size_t below = (marks + 1) / 2, above = marks / 2;
        want_bytes += (size_t)sprintf(want, "\xE1\xBA\xA1"); // a with a dot below; the acutes are behind other marks
        for (size_t i = 1; i < below; i++) want_bytes += (size_t)sprintf(want + want_bytes, "\xCC\xA3");
        for (size_t i = 0; i < above; i++) want_bytes += (size_t)sprintf(want + want_bytes, "\xCC\x81");
        if (below == 1 && above == 1) want_bytes = (size_t)sprintf(want, "\xE1\xBA\xA1\xCC\x81");
        want_bytes += (size_t)sprintf(want + want_bytes, "\xE0\xB8\x81\xE0\xB8\x82\xC3\xA9");
        for (size_t piece = 1; piece < 100; piece += 7) {
            sumi_text_buffer out = {0};
            append_nfc(&out, text, bytes, piece, piece);
            CHECK_NUMBER(out.bytes, want_bytes);
            CHECK(memcmp(out.memory, want, want_bytes) == 0);
            sumi_text_release(&s_heap, &out);
        }
    }
}

// Runs of marks of every length, against the NFC of Python's unicodedata (tests/generate/nfc_marks.py).
TEST(nfc_of_long_runs_of_marks_is_that_of_another_implementation)
{
    static char s_text[8192], nfc[8192];
    blob lines = read_golden("common/tokenizers/nfc_marks.jsonl");
    size_t checked = 0;
    CHECK(lines.data != NULL);
    for (char *line = lines.data, *end; line != NULL && *line != '\0'; line = end + 1, checked++) {
        end = strchr(line, '\n');
        sumi_json j;
        sumi_json_text key, hex;
        size_t bytes = 0, want = 0;
        sumi_json_begin(&j, line, (size_t)(end - line), NULL);
        sumi_json_object(&j);
        while (sumi_json_key(&j, &key)) {
            sumi_json_string(&j, &hex);
            CHECK(hex.bytes / 2 <= sizeof s_text);
            *(sumi_json_is(&key, "text") ? &bytes : &want) = from_hex(&hex, sumi_json_is(&key, "text") ? s_text : nfc);
        }
        static const size_t s_pieces[] = {1, 7, 64, 8192};
        for (size_t i = 0; i < sizeof s_pieces / sizeof *s_pieces; i++) {
            sumi_text_buffer out = {0};
            append_nfc(&out, s_text, bytes, s_pieces[i], 100);
            const bool is_same = out.bytes == want && (want == 0 || memcmp(out.memory, nfc, want) == 0);
            if (!is_same) printf("  line %zu in pieces of %zu\n", checked + 1, s_pieces[i]);
            CHECK(is_same);
            sumi_text_release(&s_heap, &out);
        }
    }
    CHECK(checked > 200);
    free(lines.data);
}

// Hangul: what utf8proc gets wrong by itself, and what it must still compose.
TEST(nfc_keeps_the_letter_before_the_first_trailing_consonant)
{
    static const struct {
        const char *text, *nfc;
    } s_cases[] = {
        {"\xEA\xB0\x80\xE1\x86\xA7", "\xEA\xB0\x80\xE1\x86\xA7"}, // U+AC00 U+11A7 stays
        {"\xEA\xB0\x80\xE1\x86\xA8", "\xEA\xB0\x81"},             // U+AC00 U+11A8 composes
        {"a\xCC\x81 e\xCC\x81\xCC\xA3", "\xC3\xA1 \xE1\xBA\xB9\xCC\x81"},
        // U+0898 is no mark for the reference: nothing is reordered
        {"\xE0\xA2\x98\xCC\x81", "\xE0\xA2\x98\xCC\x81"},
        {"\xCC\x81\xE0\xA2\x98\xCC\xA3", "\xCC\x81\xE0\xA2\x98\xCC\xA3"},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        sumi_text_buffer out = {0};
        append_nfc(&out, s_cases[i].text, strlen(s_cases[i].text), 1000, 1000);
        CHECK(out.bytes == strlen(s_cases[i].nfc) && memcmp(out.memory, s_cases[i].nfc, out.bytes) == 0);
        sumi_text_release(&s_heap, &out);
    }
}

TEST(special_false_leaves_out_the_ends)
{
    sumi_tokenizer* tokenizer = load_text(SMALL_UNIGRAM);
    GIVES(tokenizer, "ab", true, 0, 5);
    GIVES(tokenizer, "ab", false, 5);
    GIVES(tokenizer, "", true, 0);
    CHECK_NUMBER(encode(tokenizer, "", 0, false), 0);
    CHECK_NUMBER(encode(tokenizer, NULL, 0, false), 0);
    GIVES(tokenizer, "<s>ab  ba<s>", false, 0, 5, 2, 4, 3, 0); // the normalizer joins the blanks
    GIVES(tokenizer, "zz b z", false, 2, 1, 2, 4, 2, 1);       // unknown neighbours are one id
    sumi_tokenizer_destroy(tokenizer);
}

TEST(an_unknown_character_costs_ten_more_than_the_worst_piece)
{
    char* text = edited(SMALL_UNIGRAM, "[\"ab\",-7]", "[\"ab\",-0.25],[\"qa\",-20.0]");
    sumi_tokenizer* tokenizer = load_text(text);
    GIVES(tokenizer, "qab", false, 2, 7, 4); // -20 - 3.5 against -30 - 0.25
    sumi_tokenizer_destroy(tokenizer);
    free(text);
}

TEST(marks_newer_than_utf8proc_belong_to_their_cluster)
{
    sumi_tokenizer* tokenizer = load_golden("common/tokenizers/xlmr/tokenizer.json");
    size_t want = encode(tokenizer, "a", 1, true);
    memcpy(s_other_ids, s_ids, want * sizeof *s_ids);
    // U+00AA, which becomes a, and marks
    static const char* const s_texts[] = {"\xC2\xAA", "\xC2\xAA\xCC\x81", "\xC2\xAA\xE0\xA2\x97",
                                          "\xC2\xAA\xE1\xAB\x8F", "\xC2\xAA\xE1\xAB\xA5"};
    for (size_t i = 0; i < sizeof s_texts / sizeof *s_texts; i++) {
        CHECK(encode(tokenizer, s_texts[i], strlen(s_texts[i]), true) == want
              && memcmp(s_ids, s_other_ids, want * sizeof *s_ids) == 0);
    }
    sumi_tokenizer_destroy(tokenizer);
}

TEST(small_capacity_gets_the_first_ids_and_the_count_of_all)
{
    sumi_tokenizer* tokenizer = load_text(SMALL_BPE);
    int32_t ids[3] = {-1, -1, -1};
    size_t count = 0;
    CHECK(sumi_tokenizer_encode(tokenizer, "cab c", 5, true, ids, 2, &count, NULL) == SUMI_OK);
    CHECK_NUMBER(count, 4);
    CHECK(ids[0] == 3 && ids[1] == 2 && ids[2] == -1);
    CHECK(sumi_tokenizer_encode(tokenizer, "cab c", 5, true, NULL, 0, &count, NULL) == SUMI_OK);
    CHECK_NUMBER(count, 4);
    sumi_tokenizer_destroy(tokenizer);
}

TEST(tokens_are_found_by_name)
{
    sumi_tokenizer* tokenizer = load_text(SMALL_BPE);
    CHECK_NUMBER(sumi_tokenizer_id(tokenizer, "abc"), 4);
    CHECK_NUMBER(sumi_tokenizer_id(tokenizer, "<e>"), 6);
    CHECK_NUMBER(sumi_tokenizer_id(tokenizer, "\xC3\xA9"), 7);
    CHECK_NUMBER(sumi_tokenizer_id(tokenizer, "ac"), -1);
    CHECK_NUMBER(sumi_tokenizer_id(tokenizer, ""), -1);
    CHECK_NUMBER(sumi_tokenizer_size(tokenizer), 8);
    sumi_tokenizer_destroy(tokenizer);
}

TEST(merges_are_read_in_both_forms_and_before_the_vocabulary)
{
    static const char* const s_files[] = {
        SMALL_BPE,
        "{" SMALL_ADDED(PLAIN_FLAGS) SMALL_MODEL("[\"a b\",\"ab c\"]") "}",
        "{" SMALL_ADDED(PLAIN_FLAGS) SMALL_MODEL("[\"a\\u0020b\",[\"a\\u0062\",\"c\"]]") "}",
        "{\"model\":{\"merges\":[[\"a\",\"b\"],\"ab c\"],\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"c\":3,\"abc\":4,\" "
        "\":5},\"type\":\"BPE\"}," SMALL_ADDED(PLAIN_FLAGS) "\"version\":\"1.0\"}",
    };
    for (size_t i = 0; i < sizeof s_files / sizeof *s_files; i++) {
        sumi_tokenizer* tokenizer = load_text(s_files[i]);
        GIVES(tokenizer, "abc cab<e>b", false, 4, 5, 3, 2, 6, 1);
        sumi_tokenizer_destroy(tokenizer);
    }
}

TEST(flags_of_added_tokens_are_obeyed)
{
#define WITH_FLAGS(s, l, r, n, normalizer)                                                                             \
    "{" SMALL_ADDED("\"single_word\":" s ",\"lstrip\":" l ",\"rstrip\":" r                                             \
                    ",\"normalized\":" n) "\"normalizer\":" normalizer                                                 \
                                          "," SMALL_MODEL("[[\"a\",\"b\"],[\"ab\",\"c\"]]") "}"
    sumi_tokenizer* tokenizer = load_text(WITH_FLAGS("false", "false", "false", "false", "null"));
    GIVES(tokenizer, "a  <e>  b", false, 0, 5, 5, 6, 5, 5, 1);
    sumi_tokenizer_destroy(tokenizer);
    tokenizer = load_text(WITH_FLAGS("false", "true", "false", "false", "null"));
    GIVES(tokenizer, "a  <e>  b", false, 0, 6, 5, 5, 1);
    sumi_tokenizer_destroy(tokenizer);
    tokenizer = load_text(WITH_FLAGS("false", "false", "true", "false", "null"));
    GIVES(tokenizer, "a  <e> \xE3\x80\x80 b", false, 0, 5, 5, 6, 1);
    sumi_tokenizer_destroy(tokenizer);
    char* blanks = edited(WITH_FLAGS("false", "true", "true", "false", "null"), "<e>", "  ");
    tokenizer = load_text(blanks);
    GIVES(tokenizer, "a     b", false, 0, 6, 1); // the second pair of blanks has been taken by the first
    sumi_tokenizer_destroy(tokenizer);
    free(blanks);
    tokenizer = load_text(WITH_FLAGS("true", "false", "false", "false", "null"));
    GIVES(tokenizer, "a<e>b <e> c", false, 2, 5, 6, 5, 3);
    GIVES(tokenizer, "<e>", false, 6);
    GIVES(tokenizer, "\xC3\xA9<e>", false, 7);
    sumi_tokenizer_destroy(tokenizer);
    tokenizer = load_text(WITH_FLAGS("false", "false", "false", "true",
                                     "{\"type\":\"Replace\",\"pattern\":{\"String\":\"c\"},\"content\":\"e\"}"));
    GIVES(tokenizer, "a<c>b", false, 0, 6, 1); // found in what the normalizer made
    sumi_tokenizer_destroy(tokenizer);
    tokenizer = load_text(WITH_FLAGS("false", "false", "false", "false",
                                     "{\"type\":\"Replace\",\"pattern\":{\"String\":\"c\"},\"content\":\"e\"}"));
    GIVES(tokenizer, "a<c>b", false, 2);
    sumi_tokenizer_destroy(tokenizer);
}

TEST(wrong_use_is_refused)
{
    sumi_error error = {0};
    sumi_tokenizer* tokenizer = NULL;
    size_t count = 7;
    CHECK(sumi_tokenizer_begin(&s_heap, SMALL_BPE, sizeof SMALL_BPE - 1, NULL, &error, &tokenizer) == SUMI_OK);
    CHECK_NUMBER(sumi_tokenizer_encode(tokenizer, "a", 1, true, s_ids, 8, &count, &error), SUMI_WRONG_STATE);
    CHECK_NUMBER(count, 0);
    error = (sumi_error){0};
    CHECK_NUMBER(sumi_tokenizer_step(tokenizer, SIZE_MAX, NULL, NULL, &error), SUMI_OK);
    CHECK_NUMBER(sumi_tokenizer_step(tokenizer, 1, NULL, NULL, &error), SUMI_OK); // done already
    CHECK_NUMBER(sumi_tokenizer_encode(tokenizer, NULL, 1, true, s_ids, 8, &count, &error), SUMI_INVALID_ARGUMENT);
    CHECK_NUMBER(sumi_tokenizer_encode(tokenizer, "a", (size_t)1 << 40, true, s_ids, 8, &count, NULL),
                 SUMI_INVALID_ARGUMENT);
    sumi_tokenizer_destroy(tokenizer);
    sumi_tokenizer_destroy(NULL);
}

// ---- Loading --------------------------------------------------------------------------------------------------------

TEST(stepwise_loading_equals_whole_loading)
{
    static const char* const s_names[] = {"common/tokenizers/qwen/tokenizer.json",
                                          "common/tokenizers/gemma3/tokenizer.json",
                                          "common/tokenizers/xlmr/tokenizer.json"};
    static const char s_text[] = "A red fox, 35mm photo.  <mask> It's\n\n<|im_end|> "
                                 "\xE4\xB8\x80\xE5\x8F\xAA\xE7\x8C\xAB \xE2\x96\x81 cafe\xCC\x81";
    for (size_t i = 0; i < 3; i++) {
        sumi_tokenizer* whole = load_golden(s_names[i]);
        size_t want = encode(whole, s_text, sizeof s_text - 1, true);
        memcpy(s_other_ids, s_ids, want * sizeof *s_ids);
        blob json = read_golden(s_names[i]);
        sumi_tokenizer* stepped = NULL;
        sumi_error error = {0};
        CHECK(sumi_tokenizer_begin(&s_heap, json.data, json.bytes, "x", &error, &stepped) == SUMI_OK);
        bool done = false;
        float progress = 0.0f, last = 0.0f;
        size_t steps = 0;
        while (!done && sumi_tokenizer_step(stepped, 1 + steps % 7, &done, &progress, &error) == SUMI_OK) {
            CHECK(progress >= last && progress <= 1.0f);
            last = progress;
            steps++;
        }
        CHECK(done && progress == 1.0f && steps > 300);
        CHECK_TEXT(error.text, "");
        free(json.data);
        CHECK(encode(stepped, s_text, sizeof s_text - 1, true) == want
              && memcmp(s_ids, s_other_ids, want * sizeof *s_ids) == 0);
        CHECK_NUMBER(sumi_tokenizer_size(stepped), sumi_tokenizer_size(whole));
        sumi_tokenizer_destroy(stepped);
        sumi_tokenizer_destroy(whole);
    }
}

TEST(special_tokens_are_cut_out_as_their_map_says)
{
    // the blank is a token of its own; "ab" has an id but no merge
    sumi_tokenizer_files files = {.main = bytes_of("{\"a\":0,\"b\":1,\"\xC4\xA0\":2,\"ab\":3}", "vocab.json"),
                                  .merges = bytes_of("", "merges.txt"),
                                  .added = bytes_of("{\"<e>\":4}", "added_tokens.json")};
    static const char s_map[] = "{\"eos_token\":{\"content\":\"<e>\",\"lstrip\":true},\"pad_token\":\"ab\"}";
    static const char s_config[] = "{\"added_tokens_decoder\":{\"4\":{\"content\":\"<e>\",\"special\":true}}}";
    for (int32_t what = 0; what < 3; what++) { // without a map; with it; with a config, whose flags say more
        if (what > 0) files.special = bytes_of(s_map, "special_tokens_map.json");
        if (what > 1) files.config = bytes_of(s_config, "tokenizer_config.json");
        sumi_error error = {0};
        sumi_tokenizer* tokenizer = NULL;
        CHECK_NUMBER(sumi_tokenizer_begin_files(&s_heap, &files, &error, &tokenizer), SUMI_OK);
        CHECK_NUMBER(sumi_tokenizer_step(tokenizer, SIZE_MAX, NULL, NULL, &error), SUMI_OK);
        if (what == 0) GIVES(tokenizer, "ab <e>", true, 0, 1, 2, 4);
        if (what == 1) GIVES(tokenizer, "ab <e>", true, 3, 4);
        if (what == 2) GIVES(tokenizer, "ab <e>", true, 3, 2, 4);
        sumi_tokenizer_destroy(tokenizer);
    }
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

TEST(any_allocation_may_fail)
{
    static const char* const s_names[] = {"common/tokenizers/qwen",
                                          "common/tokenizers/gemma3",
                                          "common/tokenizers/xlmr",
                                          "files",
                                          XLMR_MODEL,
                                          GEMMA_MODEL};
    // long, with marks, an unpaired byte, blanks and added tokens: every scratch buffer grows
    char text[6000];
    size_t bytes = 0;
    while (bytes < 5000) {
        bytes += (size_t)snprintf(text + bytes, sizeof text - bytes,
                                  "e\xCC\xA3\xCC\x81 \xFF word  <mask> <|im_end|>\xEF\xBD\xB6\xEF\xBE\x9E %zu", bytes);
        for (int32_t i = 0; i < 40; i++)
            bytes += (size_t)snprintf(text + bytes, sizeof text - bytes, "%s", i % 2 ? "\xCC\x81" : "\xCC\xA3");
    }
    for (size_t i = 0; i < 6; i++) {
        char name[256];
        snprintf(name, sizeof name, i < 4 ? "%s/tokenizer.json" : "%s", s_names[i]);
        blob json = read_golden(name);
        bool worked = false;
        for (int64_t n = 0; n < 400 && !worked; n++) {
            failing f = {.left = n};
            const sumi_allocator allocator = failing_allocator(&f);
            sumi_heap heap;
            sumi_heap_init(&heap, &allocator);
            sumi_error error = {0};
            sumi_tokenizer* tokenizer =
                i == 3  ? load_files(&heap, "common/tokenizers/qwen", "tokenizer_config.json", &error)
                : i > 3 ? load_pieces(&heap, json.data, json.bytes, i == 5 ? GEMMA_CONFIG : NULL, &error)
                        : load_bytes(&heap, json.data, json.bytes, &error);
            size_t count = 0;
            sumi_result result =
                tokenizer == NULL ? error.result
                                  : sumi_tokenizer_encode(tokenizer, text, bytes, true, s_ids, MAX_IDS, &count, &error);
            CHECK(result == SUMI_OUT_OF_HOST_MEMORY || (result == SUMI_OK && n > 10));
            worked = result == SUMI_OK;
            if (tokenizer != NULL && !worked) { // memory has come back: the same tokenizer works
                f.left = INT64_MAX;
                CHECK(sumi_tokenizer_encode(tokenizer, text, bytes, true, s_ids, MAX_IDS, &count, NULL) == SUMI_OK);
            }
            sumi_tokenizer_destroy(tokenizer);
            CHECK_NUMBER(atomic_load(&heap.allocated_bytes), 0);
        }
        CHECK(worked);
        free(json.data);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(malformed_utf8_counts_as_replacement_characters);
    RUN(nfc_keeps_what_follows_many_marks);
    RUN(nfc_of_long_runs_of_marks_is_that_of_another_implementation);
    RUN(nfc_keeps_the_letter_before_the_first_trailing_consonant);
    RUN(special_false_leaves_out_the_ends);
    RUN(an_unknown_character_costs_ten_more_than_the_worst_piece);
    RUN(marks_newer_than_utf8proc_belong_to_their_cluster);
    RUN(small_capacity_gets_the_first_ids_and_the_count_of_all);
    RUN(tokens_are_found_by_name);
    RUN(merges_are_read_in_both_forms_and_before_the_vocabulary);
    RUN(flags_of_added_tokens_are_obeyed);
    RUN(wrong_use_is_refused);
    RUN(stepwise_loading_equals_whole_loading);
    RUN(special_tokens_are_cut_out_as_their_map_says);
    RUN(any_allocation_may_fail);
    TEST_END();
}
