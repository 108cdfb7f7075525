// Files of tokenizers: SentencePiece merges as its scores say; what is malformed, damaged or cut off is refused with a
// sentence.
#include "failing.h"
#include "text/tokenizer.h"
#include "tokenizer_fixture.h"

// ---- Loading --------------------------------------------------------------------------------------------------------

typedef struct bad_file {
    const char* base;
    const char *from, *to;
    sumi_result result;
    const char* says;
} bad_file;

TEST(malformed_files_are_refused_with_a_sentence)
{
    const sumi_result malformed = SUMI_FILE_MALFORMED, unsupported = SUMI_NOT_SUPPORTED;
    const bad_file files[] = {
        // missing and repeated members
        {SMALL_BPE, "\"model\":", "\"modul\":", malformed, "no model"},
        {SMALL_BPE, "\"vocab\":", "\"vokab\":", malformed, "vocab"},
        {SMALL_BPE, "\"merges\":", "\"murges\":", malformed, "merges"},
        {SMALL_BPE, "\"id\":6,", "", malformed, "without id"},
        {SMALL_BPE, "\"content\":\"<e>\",", "", malformed, "content"},
        {SMALL_BPE, "\"normalizer\":null", "\"model\":{\"vocab\":{},\"merges\":[]}", malformed, "occurs twice"},
        {SMALL_BPE, "\"merges\":", "\"merges\":[],\"merges\":", malformed, "second merges"},
        {SMALL_BPE, "\"merges\":", "\"vocab\":{},\"merges\":", malformed, "second vocab"},
        // wrong types
        {SMALL_BPE, "\"vocab\":{", "\"vocab\":[{", malformed, "object"},
        {SMALL_BPE, "\"type\":\"BPE\"", "\"type\":\"Unigram\"", malformed, "vocab"},
        {SMALL_BPE, "\"type\":\"BPE\"", "\"type\":3", malformed, "string"},
        {SMALL_BPE, "\"a\":0", "\"a\":\"0\"", malformed, "JSON"},
        {SMALL_BPE, "\"a\":0", "\"a\":null", malformed, "JSON"},
        {SMALL_BPE, "\"added_tokens\":[", "\"added_tokens\":[7,", malformed, "object"},
        {SMALL_BPE, "\"lstrip\":false", "\"lstrip\":0", malformed, "JSON"},
        {SMALL_BPE, "[[\"a\",\"b\"]", "[[\"a\",1]", malformed, "string"},
        {SMALL_BPE, "[[\"a\",\"b\"]", "[7", malformed, "JSON"},
        {SMALL_BPE, "\"normalizer\":null", "\"normalizer\":[]", malformed, "object"},
        {SMALL_UNIGRAM, "-2.5", "\"-2.5\"", malformed, "JSON"},
        {SMALL_UNIGRAM, "-2.5", "-2.5,1", malformed, "score"},
        {SMALL_UNIGRAM, ",-2.5", "", malformed, "score"},
        // numbers
        {SMALL_BPE, "\"a\":0", "\"a\":-1", malformed, "JSON"},
        {SMALL_BPE, "\"a\":0", "\"a\":0.5", malformed, "JSON"},
        {SMALL_BPE, "\"a\":0", "\"a\":99999999999999999999999", malformed, "JSON"},
        {SMALL_BPE, "\"a\":0", "\"a\":16777215", malformed, "16777215"},
        {SMALL_BPE, "\"a\":0", "\"a\":18446744073709551615", malformed, "id"},
        {SMALL_BPE, "\"id\":6", "\"id\":-6", malformed, "JSON"},
        {SMALL_BPE, "\"id\":6", "\"id\":4294967302", malformed, "4294967302"},
        {SMALL_UNIGRAM, "-2.5", "-1e999", malformed, "JSON"},
        {SMALL_UNIGRAM, "\"unk_id\":1", "\"unk_id\":7", malformed, "unk_id"},
        {SMALL_UNIGRAM, "\"unk_id\":1", "\"unk_id\":-1", malformed, "JSON"},
        {SMALL_UNIGRAM, "\"unk_id\":1", "\"unk_id\":18446744073709551615", malformed, "unk_id"},
        {SMALL_UNIGRAM, "\"ids\":[0]", "\"ids\":[7]", malformed, "post_processor"},
        {SMALL_UNIGRAM, "\"ids\":[0]", "\"ids\":[77777777777]", malformed, "too large"},
        // ids and tokens that clash
        {SMALL_BPE, "\"b\":1", "\"b\":0", malformed, "another token has that id"},
        {SMALL_BPE, "\"b\":1", "\"a\":1", malformed, "twice"},
        {SMALL_BPE, "\"id\":6", "\"id\":5", malformed, "<e>"},
        {SMALL_BPE, "\"content\":\"<e>\"", "\"content\":\"ab\"", malformed, "ab"},
        {SMALL_BPE, "\"added_tokens\":[", "\"added_tokens\":[{\"id\":9,\"content\":\"<e>\"},", malformed, "two ids"},
        {SMALL_BPE, "\"added_tokens\":[", "\"added_tokens\":[{\"id\":6,\"content\":\"<f>\"},", malformed,
         "another one"},
        {SMALL_UNIGRAM, "\"id\":0,", "\"id\":2,", malformed, "<s>"},
        // merges
        {SMALL_BPE, "[\"a\",\"b\"]", "[\"a\",\"x\"]", malformed, "right part"},
        {SMALL_BPE, "[\"a\",\"b\"]", "[\"x\",\"b\"]", malformed, "left part"},
        {SMALL_BPE, "[\"a\",\"b\"]", "[\"a\",\"c\"]", malformed, "the merged token"},
        {SMALL_BPE, "[\"a\",\"b\"]", "[\"a\"]", malformed, "JSON"},
        {SMALL_BPE, "[\"a\",\"b\"]", "[\"a\",\"b\",\"c\"]", malformed, "two tokens"},
        {SMALL_BPE, "[\"a\",\"b\"]", "\"ab\"", malformed, "blank"},
        {SMALL_BPE, "[\"a\",\"b\"]", "\"a b c\"", malformed, "blank"},
        {SMALL_BPE, "[\"a\",\"b\"]", "\"\"", malformed, "blank"},
        {SMALL_BPE, "[\"a\",\"b\"]", "\" \"", malformed, "left part"},
        // what this library does not do, by name
        {SMALL_BPE, "\"type\":\"BPE\"", "\"type\":\"WordPiece\"", unsupported, "WordPiece"},
        {SMALL_BPE, "\"normalizer\":null", "\"normalizer\":{\"type\":\"BertNormalizer\"}", unsupported,
         "BertNormalizer"},
        {SMALL_BPE, "\"normalizer\":null",
         "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"Lowercase\"}]}",
         unsupported, "Lowercase"},
        {SMALL_BPE, "\"normalizer\":null",
         "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"[a-z]\"},\"content\":\"\"}", unsupported,
         "[a-z]"},
        {SMALL_BPE, "\"pre_tokenizer\":null", "\"pre_tokenizer\":{\"type\":\"Digits\",\"individual_digits\":true}",
         unsupported, "Digits"},
        {SMALL_BPE, "\"pre_tokenizer\":null", "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
         unsupported, "use_regex"},
        {SMALL_BPE, "\"pre_tokenizer\":null",
         "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w+\"},\"behavior\":\"Isolated\","
         "\"invert\":false}",
         unsupported, "w+"},
        {SMALL_BPE, "\"pre_tokenizer\":null",
         "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" "
         "\"},\"behavior\":\"Sideways\",\"invert\":false}",
         unsupported, "Sideways"},
        {SMALL_BPE, "\"post_processor\":null", "\"post_processor\":{\"type\":\"Stamp\"}", unsupported, "Stamp"},
        {SMALL_BPE, "\"dropout\":null", "\"dropout\":0.1", unsupported, "dropout"},
        {SMALL_BPE, "\"continuing_subword_prefix\":null", "\"continuing_subword_prefix\":\"##\"", unsupported, "##"},
        // parts of the pipeline that lack something
        {SMALL_BPE, "\"normalizer\":null", "\"normalizer\":{}", malformed, "type"},
        {SMALL_BPE, "\"normalizer\":null", "\"normalizer\":{\"type\":\"Sequence\"}", malformed, "Sequence"},
        {SMALL_BPE, "\"normalizer\":null", "\"normalizer\":{\"type\":\"Precompiled\"}", malformed,
         "precompiled_charsmap"},
        {SMALL_BPE, "\"normalizer\":null", "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAA\"}",
         malformed, "base64"},
        {SMALL_BPE, "\"normalizer\":null",
         "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AA*A\"}", malformed, "base64"},
        {SMALL_BPE, "\"normalizer\":null",
         "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}", malformed, "trie"},
        {SMALL_BPE, "\"normalizer\":null",
         "\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"////////\"}", malformed, "trie"},
        {SMALL_BPE, "\"normalizer\":null",
         "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"a\"}", malformed,
         "empty pattern"},
        {SMALL_BPE, "\"pre_tokenizer\":null", "\"pre_tokenizer\":{\"type\":\"Split\"}", malformed, "pattern"},
        {SMALL_UNIGRAM, "\"replacement\":\"\\u2581\"", "\"replacement\":\"ab\"", malformed, "one character"},
        {SMALL_UNIGRAM, "\"SpecialToken\":{\"id\":\"<s>\"", "\"SpecialToken\":{\"id\":\"<t>\"", malformed,
         "does not define"},
        {SMALL_UNIGRAM, ",{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", "", malformed, "once"},
    };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char* text = edited(files[i].base, files[i].from, files[i].to);
        sumi_error error = {0};
        sumi_tokenizer* tokenizer = load_bytes(&s_heap, text, strlen(text), &error);
        bool good = tokenizer == NULL && error.result == files[i].result && strstr(error.text, files[i].says) != NULL
                 && strstr(error.text, "t.json") != NULL;
        if (!good) {
            printf("  file %zu (%s -> %s): result %d, \"%s\"\n", i, files[i].from, files[i].to, error.result,
                   error.text);
        }
        CHECK(good);
        sumi_tokenizer_destroy(tokenizer);
        free(text);
    }
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
}

TEST(every_truncated_file_is_refused)
{
    static const char* const s_files[] = {SMALL_BPE, SMALL_UNIGRAM};
    for (size_t i = 0; i < 2; i++) {
        size_t whole = strlen(s_files[i]);
        for (size_t bytes = 0; bytes < whole; bytes++) {
            char* copy = exact_copy(s_files[i], bytes);
            sumi_error error = {0};
            CHECK(load_bytes(&s_heap, copy, bytes, &error) == NULL);
            CHECK_NUMBER(error.result, SUMI_FILE_MALFORMED);
            free(copy);
        }
    }
}

TEST(a_failed_load_fails_again)
{
    sumi_tokenizer* tokenizer = NULL;
    sumi_error error = {0};
    CHECK(sumi_tokenizer_begin(&s_heap, "[]", 2, "x.json", &error, &tokenizer) == SUMI_OK);
    CHECK_NUMBER(sumi_tokenizer_step(tokenizer, 9, NULL, NULL, &error), SUMI_FILE_MALFORMED);
    error = (sumi_error){0};
    CHECK_NUMBER(sumi_tokenizer_step(tokenizer, 9, NULL, NULL, &error), SUMI_FILE_MALFORMED);
    CHECK(strstr(error.text, "x.json") != NULL);
    sumi_tokenizer_destroy(tokenizer);
}

TEST(malformed_older_files_are_refused)
{
    static const struct {
        const char *vocab, *merges, *added, *config, *special;
        sumi_result result;
        const char* says;
    } s_files[] = {
        {"{\"a\":0,\"b\":1,\"ab\":2}", "#version: 0.2\na b\n", "{\"<e>\":3}", NULL, NULL, SUMI_OK, ""},
        {"{\"a\":0,\"b\":1,\"ab\":2}", "a b\r\n\r\n", NULL, NULL, NULL, SUMI_OK, ""},
        {"{\"\":0}", "", NULL, NULL, NULL, SUMI_OK,
         ""}, // an empty token is never met, and is not the missing unknown token
        {"[]", "", NULL, NULL, NULL, SUMI_FILE_MALFORMED, "object"},
        {"{\"a\":0", "", NULL, NULL, NULL, SUMI_FILE_MALFORMED, "JSON"},
        {"{\"a\":0}{", "", NULL, NULL, NULL, SUMI_FILE_MALFORMED, "follows"},
        {"{\"a\":0}", "a", NULL, NULL, NULL, SUMI_FILE_MALFORMED, "blank"},
        {"{\"a\":0}", "a a", NULL, NULL, NULL, SUMI_FILE_MALFORMED, "the merged token"},
        {"{\"a\":0}", "", "{\"<e>\":\"x\"}", NULL, NULL, SUMI_FILE_MALFORMED, "JSON"},
        {"{\"a\":0}", "", "{\"<e>\":0}", NULL, NULL, SUMI_FILE_MALFORMED, "another one"},
        {"{\"a\":0}", "", NULL, "{\"added_tokens_decoder\":{\"x\":{\"content\":\"<e>\"}}}", NULL, SUMI_FILE_MALFORMED,
         "number"},
        {"{\"a\":0}", "", NULL, "{\"added_tokens_decoder\":{\"1\":{}}}", NULL, SUMI_FILE_MALFORMED, "content"},
        {"{\"a\":0}", "", NULL, "{\"tokenizer_class\":\"Qwen2Tokenizer\",\"model_max_length\":5}", NULL, SUMI_OK, ""},
        {"{\"a\":0}", "", "{", NULL, NULL, SUMI_FILE_MALFORMED, "JSON"},
        {"{\"a\":0}", "", NULL, "{", NULL, SUMI_FILE_MALFORMED, "config"},
        {"{\"a\":0}", "", NULL, NULL, "{\"eos_token\":", SUMI_FILE_MALFORMED, "special"},
        {"{\"a\":0}", "", "[]", NULL, NULL, SUMI_FILE_MALFORMED, "JSON"},
        {"{\"a\":0}", NULL, NULL, NULL, NULL, SUMI_FILE_NOT_FOUND, "merges.txt"},
        {"{\"a\":0}", "", NULL, "{\"tokenizer_class\":\"CLIPTokenizer\"}", NULL, SUMI_NOT_SUPPORTED, "CLIPTokenizer"},
        {"{\"a\":0}", "", NULL, "{\"add_prefix_space\":true}", NULL, SUMI_NOT_SUPPORTED, "add_prefix_space"},
        {"{\"a\":0}", "", "{\"<e>\":1}", "{\"added_tokens_decoder\":{\"2\":{\"content\":\"<e>\"}}}", NULL,
         SUMI_FILE_MALFORMED, "two ids"},
        {"{\"a\":0}", "", NULL, NULL, "{\"eos_token\":\"<e>\"}", SUMI_FILE_MALFORMED, "<e>"},
        {"{\"a\":0}", "", NULL, NULL, "{\"x\":[{\"content\":\"<e>\"}]}", SUMI_FILE_MALFORMED, "<e>"},
        {"{\"a\":0}", "", NULL, "{}", "{\"eos_token\":\"<e>\"}", SUMI_FILE_MALFORMED, "special_tokens_map.json"},
        {"{\"a\":0}", "", NULL, NULL, "{\"x\":[3]}", SUMI_FILE_MALFORMED, "JSON"},
        {"{\"a\":0}", "", NULL, NULL, "{\"pad_token\":null,\"eos_token\":\"a\",\"x\":[]}", SUMI_OK, ""},
        {"{\"a\":0}", "", "{\"<e>\":1}", "{\"added_tokens_decoder\":null}",
         "{\"eos_token\":{\"content\":\"<e>\",\"lstrip\":true},\"x\":[\"<e>\"]}", SUMI_OK, ""},
    };
    for (size_t i = 0; i < sizeof s_files / sizeof *s_files; i++) {
        const sumi_tokenizer_files files = {.main = bytes_of(s_files[i].vocab, "vocab.json"),
                                            .merges = bytes_of(s_files[i].merges, "merges.txt"),
                                            .added = bytes_of(s_files[i].added, "added_tokens.json"),
                                            .config = bytes_of(s_files[i].config, "tokenizer_config.json"),
                                            .special = bytes_of(s_files[i].special, "special_tokens_map.json")};
        sumi_error error = {0};
        sumi_tokenizer* tokenizer = NULL;
        sumi_result result = sumi_tokenizer_begin_files(&s_heap, &files, &error, &tokenizer);
        if (result == SUMI_OK) result = sumi_tokenizer_step(tokenizer, SIZE_MAX, NULL, NULL, &error);
        CHECK_NUMBER(result, s_files[i].result);
        CHECK(strstr(error.text, s_files[i].says) != NULL);
        sumi_tokenizer_destroy(tokenizer);
    }
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
}

// ---- SentencePiece --------------------------------------------------------------------------------------------------

static void put_small_bpe(model_writer* w)
{
    put_piece(w, "<unk>", 0.0f, 2);
    put_piece(w, "<s>", 0.0f, 3);
    put_piece(w, "a", -3.0f, 1);
    put_piece(w, "b", -4.0f, 0);
    put_piece(w, "ab", -1.0f, 1);
    put_piece(w, "ba", -2.0f, 1);
    put_piece(w, "aba", -1.0f, 1);
    put_piece(w, "[x]", 0.0f, 4);
}

static sumi_result load_model(const void* data, size_t bytes, sumi_tokenizer** out, sumi_error* error)
{
    *error = (sumi_error){0};
    char* copy = exact_copy(data, bytes);
    *out = load_pieces(&s_heap, copy, bytes, NULL, error);
    free(copy);
    return error->result;
}

TEST(sentencepiece_merges_by_score_from_the_left)
{
    model_writer w = {0};
    sumi_error error;
    sumi_tokenizer* tokenizer;
    put_small_bpe(&w);
    put_raw(&w, BPE_SPECS, sizeof BPE_SPECS - 1);
    CHECK_NUMBER(load_model(w.data, w.bytes, &tokenizer, &error), SUMI_OK);
    CHECK_TEXT(error.text, "");
    if (tokenizer != NULL) {
        GIVES(tokenizer, "", true, 1);
        GIVES(tokenizer, "ab", true, 1, 4);
        GIVES(tokenizer, "ba", false, 5);
        // "ab" and "aba" have one score: the leftmost pair goes first
        GIVES(tokenizer, "abab", false, 6, 3);
        GIVES(tokenizer, "aab", false, 2, 4);
        GIVES(tokenizer, "bab", false, 3, 4);
        GIVES(tokenizer, "a[x]b<s>", false, 2, 7, 3, 1);
        // what is unknown becomes one id, and merges do not go across it
        GIVES(tokenizer,
              "a??\xE2\x82\xAC"
              "b",
              false, 2, 0, 3);
        // no piece for a blank
        GIVES(tokenizer, "a b", false, 2, 0, 3);
    }
    sumi_tokenizer_destroy(tokenizer);
    free(w.data);
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
}

TEST(malformed_sentencepiece_models_are_refused)
{
    static const struct {
        const char* tail; // behind the pieces of put_small_bpe
        size_t bytes;
        sumi_result result;
        const char* says;
    } s_tails[] = {
#define TAIL(text, result, says) {text, sizeof text - 1, result, says}
        TAIL(BPE_SPECS, SUMI_OK, ""),
        TAIL(BPE_SPECS "\x20\x01\x29"
                       "12345678"
                       "\x35"
                       "1234"
                       "\x3A\x00",
             SUMI_OK, ""), // fields that nobody asks for
        TAIL("\x12\x03\x18\x02\x18\x1A\x04\x18\x00\x20\x00", SUMI_FILE_MALFORMED, "settings"),
        TAIL(BPE_SPECS "\x12\x02\x18\x03", SUMI_NOT_SUPPORTED, "whole words"),
        TAIL(BPE_SPECS "\x12\x03\xC0\x01\x01", SUMI_NOT_SUPPORTED, "blanks"),
        TAIL(BPE_SPECS "\x1A\x02\x28\x00", SUMI_NOT_SUPPORTED, "blanks"),
        TAIL(BPE_SPECS "\x1A\x02\x18\x01", SUMI_NOT_SUPPORTED, "BPE that changes"),
        TAIL(BPE_SPECS "\x1A\x03\x12\x01"
                       "x",
             SUMI_NOT_SUPPORTED, "BPE that changes"),
        TAIL("", SUMI_NOT_SUPPORTED, "first pieces"), // says nothing: Unigram
        TAIL("\x1A\x02\x20\x00", SUMI_NOT_SUPPORTED, "runs of blanks"),
        TAIL("\x1A\x03\x12\x01"
             "x",
             SUMI_FILE_MALFORMED, "charsmap"),
        TAIL(BPE_SPECS "\x12\x06\xF2\x02\x03"
                       "<e>",
             SUMI_FILE_MALFORMED, "<e>"), // the BOS is no piece
        TAIL(BPE_SPECS "\x0A\x02\x18\x01", SUMI_FILE_MALFORMED, "empty"),
        TAIL(BPE_SPECS "\x0A\x03\x0A\x01\xFF", SUMI_FILE_MALFORMED, "UTF-8"),
        TAIL(BPE_SPECS "\x0A\x03\x0A\x01"
                       "a",
             SUMI_FILE_MALFORMED, "twice"),
        TAIL(BPE_SPECS "\x0A\x03\x0A\x02"
                       "a",
             SUMI_FILE_MALFORMED, "piece is malformed"),
        TAIL(BPE_SPECS "\x0A\x08\x0A\x01"
                       "q\x15\x00\x00\xC0\x7F",
             SUMI_FILE_MALFORMED, "finite"),
        TAIL(BPE_SPECS "\x0A\x05\x0A\x01"
                       "q\x18\x05",
             SUMI_NOT_SUPPORTED, "unused"),
        TAIL(BPE_SPECS "\x0A\x05\x0A\x01"
                       "q\x18\x07",
             SUMI_FILE_MALFORMED, "unknown type"),
        TAIL(BPE_SPECS "\x0A\x05\x0A\x01"
                       "q\x18\x02",
             SUMI_FILE_MALFORMED, "exactly one"),
        TAIL(BPE_SPECS "\x0A", SUMI_FILE_MALFORMED, "cut off"),
        TAIL(BPE_SPECS "\x0A\x05"
                       "x",
             SUMI_FILE_MALFORMED, "cut off"),
        TAIL(BPE_SPECS "\x0B", SUMI_FILE_MALFORMED, "cut off"),
        TAIL(BPE_SPECS "\x00\x00", SUMI_FILE_MALFORMED, "cut off"),
        TAIL(BPE_SPECS "\x20\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", SUMI_FILE_MALFORMED, "cut off"),
        TAIL(BPE_SPECS "\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", SUMI_FILE_MALFORMED, "cut off"),
#undef TAIL
    };
    for (size_t i = 0; i < sizeof s_tails / sizeof *s_tails; i++) {
        model_writer w = {0};
        sumi_error error;
        sumi_tokenizer* tokenizer;
        put_small_bpe(&w);
        put_raw(&w, s_tails[i].tail, s_tails[i].bytes);
        CHECK_NUMBER(load_model(w.data, w.bytes, &tokenizer, &error), s_tails[i].result);
        if (strstr(error.text, s_tails[i].says) == NULL
            || (s_tails[i].result != SUMI_OK && strstr(error.text, "t.model") == NULL)) {
            printf("  tail %zu: no \"%s\" in \"%s\"\n", i, s_tails[i].says, error.text);
            CHECK(false);
        }
        sumi_tokenizer_destroy(tokenizer);
        free(w.data);
    }
    sumi_error error;
    sumi_tokenizer* tokenizer;
    CHECK_NUMBER(load_model("", 0, &tokenizer, &error), SUMI_FILE_MALFORMED);
    CHECK_NUMBER(load_model("{\"model\":{}}", 12, &tokenizer, &error), SUMI_FILE_MALFORMED);
    // and a class that its pipeline is not
    blob model = read_golden(XLMR_MODEL);
    error = (sumi_error){0};
    CHECK(load_pieces(&s_heap, model.data, model.bytes, "{\"tokenizer_class\":\"T5Tokenizer\"}", &error) == NULL);
    CHECK(error.result == SUMI_NOT_SUPPORTED && strstr(error.text, "T5Tokenizer") != NULL);
    free(model.data);
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
}

TEST(damaged_sentencepiece_models_are_survived)
{
    blob model = read_golden(GEMMA_MODEL);
    sumi_error error;
    sumi_tokenizer* tokenizer;
    size_t loaded = 0;
    for (size_t cut = 0; cut < model.bytes; cut += cut < 200 || cut + 200 > model.bytes ? 1 : 97) {
        const sumi_result result = load_model(model.data, cut, &tokenizer, &error);
        CHECK(result == SUMI_FILE_MALFORMED || result == SUMI_NOT_SUPPORTED || result == SUMI_OK);
        loaded += tokenizer != NULL;
        sumi_tokenizer_destroy(tokenizer);
    }
    CHECK(loaded < 20); // only a cut inside the last fields leaves something whole
    for (size_t i = 0; i < 400; i++) {
        s_random = (uint32_t)i * 2654435761u;
        char* damaged = malloc(model.bytes);
        memcpy(damaged, model.data, model.bytes);
        for (int32_t k = 0; k < 3; k++) damaged[next_random() % model.bytes] = (char)next_random();
        const sumi_result result = load_model(damaged, model.bytes, &tokenizer, &error);
        CHECK(result == SUMI_FILE_MALFORMED || result == SUMI_NOT_SUPPORTED || result == SUMI_OK);
        if (tokenizer != NULL) {
            size_t count;
            sumi_tokenizer_encode(tokenizer, "a  fox\n\xF0\x9F\xA6\x8A <b>", 15, true, s_ids, MAX_IDS, &count, &error);
        }
        sumi_tokenizer_destroy(tokenizer);
        free(damaged);
    }
    free(model.data);
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
}

// ---- Metadata of GGUF files -----------------------------------------------------------------------------------------

// A tokenizer in a GGUF file. NULL and 0: the file lacks the key.
typedef struct metadata {
    const char *architecture, *model, *pre;
    const char *tokens, *merges; // "a;b;ab"
    const char* types;           // a digit per token
    int32_t scores;              // as many, each the negative index
    const char *flag, *refused;  // keys of booleans: true, false
    const char* number_key;
    uint32_t number;
} metadata;

static void put_number(model_writer* w, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) put_byte(w, (int)(value >> 8 * i & 255));
}

static void put_string(model_writer* w, const char* text, size_t bytes)
{
    put_number(w, bytes, 8);
    put_raw(w, text, bytes);
}

// A key and the type of its value. Returns 1, for counting keys.
static uint64_t put_key(model_writer* w, const char* prefix, const char* name, int type)
{
    char key[64];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    put_string(w, key, strlen(key));
    put_number(w, (uint64_t)type, 4);
    return 1;
}

static uint64_t put_string_key(model_writer* w, const char* name, const char* value)
{
    if (value == NULL) return 0;
    put_key(w, "", name, 8);
    put_string(w, value, strlen(value));
    return 1;
}

static uint64_t put_string_array(model_writer* w, const char* name, const char* list)
{
    if (list == NULL) return 0;
    uint64_t count = 1;
    for (const char* at = list; *at != '\0'; at++) count += *at == ';';
    put_key(w, "tokenizer.ggml.", name, 9);
    put_number(w, 8, 4);
    put_number(w, list[0] != '\0' ? count : 0, 8);
    for (const char *at = list, *end; *at != '\0'; at = *end != '\0' ? end + 1 : end) {
        end = at + strcspn(at, ";");
        put_string(w, at, (size_t)(end - at));
    }
    return 1;
}

static model_writer write_metadata(const metadata* m)
{
    model_writer w = {0}, keys = {0};
    uint64_t count = put_string_key(&keys, "general.architecture", m->architecture)
                   + put_string_key(&keys, "tokenizer.ggml.model", m->model)
                   + put_string_key(&keys, "tokenizer.ggml.pre", m->pre) + put_string_array(&keys, "tokens", m->tokens)
                   + put_string_array(&keys, "merges", m->merges);
    if (m->types != NULL) {
        count += put_key(&keys, "tokenizer.ggml.", "token_type", 9);
        put_number(&keys, 5, 4);
        put_number(&keys, strlen(m->types), 8);
        for (const char* at = m->types; *at != '\0'; at++) put_number(&keys, (uint64_t)(*at - '0'), 4);
    }
    if (m->scores != 0) {
        count += put_key(&keys, "tokenizer.ggml.", "scores", 9);
        put_number(&keys, 6, 4);
        put_number(&keys, (uint64_t)m->scores, 8);
        for (int32_t i = 0; i < m->scores; i++) put_raw(&keys, &(float){-(float)i}, 4);
    }
    for (int32_t value = 0; value < 2; value++) {
        const char* key = value == 1 ? m->flag : m->refused;
        if (key != NULL) count += put_key(&keys, "tokenizer.ggml.", key, 7);
        if (key != NULL) put_byte(&keys, value);
    }
    if (m->number_key != NULL) {
        count += put_key(&keys, "tokenizer.ggml.", m->number_key, 4);
        put_number(&keys, m->number, 4);
    }
    put_raw(&w, "GGUF\3\0\0\0", 8);
    put_number(&w, 0, 8);
    put_number(&w, count, 8);
    put_raw(&w, keys.data, keys.bytes);
    free(keys.data);
    return w;
}

static sumi_tokenizer* load_small(const metadata* m, sumi_error* error)
{
    model_writer w = write_metadata(m);
    char* copy = exact_copy(w.data, w.bytes);
    *error = (sumi_error){0};
    sumi_tokenizer* tokenizer = load_metadata(&s_heap, copy, w.bytes, error);
    free(copy);
    free(w.data);
    return tokenizer;
}

#define GPT2 .architecture = "qwen3", .model = "gpt2", .pre = "qwen2"
#define GPT2_TOKENS .tokens = "a;b;ab;c;<e>;[PAD5]", .types = "111145", .merges = "a b"
#define LLAMA .architecture = "gemma3", .model = "llama", .pre = "default"
#define LLAMA_TOKENS .tokens = "<unk>;<s>;a;b;ab;\xE2\x96\x81;  ;<0x0A>", .types = "23111146", .scores = 8

TEST(tokenizers_of_gguf_files_follow_their_metadata)
{
    sumi_error error;
    // older files have no name of a pipeline, or "default"
    const metadata byte_level[] = {
        {GPT2, GPT2_TOKENS},
        {.architecture = "qwen2vl", .model = "gpt2", .pre = "default", GPT2_TOKENS},
        {.architecture = "qwen3", .model = "gpt2", GPT2_TOKENS},
        {GPT2, GPT2_TOKENS, .refused = "add_bos_token", .number_key = "bos_token_id", .number = 3}};
    for (size_t i = 0; i < sizeof byte_level / sizeof *byte_level; i++) {
        sumi_tokenizer* t = load_small(&byte_level[i], &error);
        CHECK_TEXT(error.text, "");
        if (t == NULL) continue;
        GIVES(t, "abc<e>ba", true, 2, 3, 4, 1, 0);
        CHECK_NUMBER(sumi_tokenizer_size(t), 5);
        CHECK_NUMBER(sumi_tokenizer_id(t, "[PAD5]"), -1);
        sumi_tokenizer_destroy(t);
    }
    const metadata ended = {GPT2, GPT2_TOKENS, .flag = "add_eos_token", .number_key = "eos_token_id", .number = 4};
    sumi_tokenizer* t = load_small(&ended, &error);
    CHECK_TEXT(error.text, "");
    if (t != NULL) GIVES(t, "a", true, 0, 4);
    if (t != NULL) GIVES(t, "a", false, 0);
    sumi_tokenizer_destroy(t);
    const metadata without_types = {GPT2, .tokens = "a;b;ab", .merges = "a b"};
    t = load_small(&without_types, &error);
    CHECK_TEXT(error.text, "");
    if (t != NULL) GIVES(t, "aab", true, 0, 2);
    sumi_tokenizer_destroy(t);
    // blanks of user-defined tokens stand for U+2581; they merge before all others
    const metadata scored = {LLAMA, LLAMA_TOKENS, .number_key = "bos_token_id", .number = 1};
    t = load_small(&scored, &error);
    CHECK_TEXT(error.text, "");
    if (t != NULL) GIVES(t, "ab   \nz", true, 1, 4, 6, 5, 7, 0);
    sumi_tokenizer_destroy(t);
    // the converter writes <unk> as a control token
    const metadata without_bos = {LLAMA,       .tokens = "<unk>;a;b;ab",   .types = "3111",
                                  .scores = 4, .refused = "add_bos_token", .number_key = "unknown_token_id"};
    t = load_small(&without_bos, &error);
    CHECK_TEXT(error.text, "");
    if (t != NULL) GIVES(t, "bayz<unk>", true, 2, 1, 0, 0);
    sumi_tokenizer_destroy(t);
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
}

TEST(malformed_tokenizers_of_gguf_files_are_refused)
{
    const struct {
        metadata m;
        sumi_result result;
        const char* says;
    } cases[] = {
        {{GPT2, .tokens = "a;b;ab", .types = "111"}, SUMI_FILE_MALFORMED, "no tokenizer.ggml.merges"},
        {{GPT2, .merges = "a b"}, SUMI_FILE_MALFORMED, "no tokenizer.ggml.tokens"},
        {{GPT2, .tokens = "", .merges = ""}, SUMI_FILE_MALFORMED, "no tokenizer.ggml.tokens"},
        {{GPT2, .tokens = "a;b;ab", .types = "11", .merges = "a b"}, SUMI_FILE_MALFORMED, "3 tokens, but"},
        {{GPT2, .tokens = "a;b;ab", .types = "1111", .merges = "a b"}, SUMI_FILE_MALFORMED, "token_type is of 4"},
        {{GPT2, .tokens = "a;b;ab", .types = "117", .merges = "a b"}, SUMI_FILE_MALFORMED, "token 2 of"},
        {{GPT2, .tokens = "a;b;ab", .types = "011", .merges = "a b"}, SUMI_FILE_MALFORMED, "unknown type"},
        {{GPT2, .tokens = "a;b;a", .merges = "a b"},
         SUMI_FILE_MALFORMED,
         "token 2 of its tokenizer, \"a\", occurs twice"},
        {{GPT2, .tokens = "a;b;\xFF", .merges = "a b"}, SUMI_FILE_MALFORMED, "not UTF-8"},
        {{GPT2, .tokens = "a;b;ab", .merges = "a c"}, SUMI_FILE_MALFORMED, "the right part"},
        {{GPT2, .tokens = "a;b;ab", .merges = "ab"}, SUMI_FILE_MALFORMED, "two tokens with a blank"},
        {{GPT2, .tokens = "a;b;a b;ab", .types = "1141", .merges = "a b a"}, SUMI_FILE_MALFORMED, "blank"},
        {{GPT2, GPT2_TOKENS, .flag = "add_bos_token"}, SUMI_FILE_MALFORMED, "bos_token_id is not the id"},
        {{GPT2, GPT2_TOKENS, .flag = "add_eos_token", .number_key = "eos_token_id", .number = 6},
         SUMI_FILE_MALFORMED,
         "eos_token_id is not the id"},
        {{.architecture = "llama", .model = "gpt2", .pre = "llama-bpe", GPT2_TOKENS},
         SUMI_NOT_SUPPORTED,
         "tokenizer.ggml.pre is \"llama-bpe\""},
        {{.architecture = "llama", .model = "gpt2", .pre = "default", GPT2_TOKENS}, SUMI_NOT_SUPPORTED, "\"default\""},
        {{.architecture = "qwen35", .model = "gpt2", GPT2_TOKENS}, SUMI_NOT_SUPPORTED, "\"default\""},
        {{.architecture = "t5", .model = "t5", LLAMA_TOKENS}, SUMI_NOT_SUPPORTED, "tokenizer.ggml.model is \"t5\""},
        {{.architecture = "qwen3", GPT2_TOKENS}, SUMI_NOT_SUPPORTED, "tokenizer.ggml.model is \"\""},
        {{LLAMA, .tokens = "a;b"}, SUMI_FILE_MALFORMED, "no tokenizer.ggml.scores"},
        {{LLAMA, .tokens = "a;b", .scores = 3}, SUMI_FILE_MALFORMED, "scores is of 3"},
        {{LLAMA, .tokens = "a;;b", .scores = 3}, SUMI_FILE_MALFORMED, "is empty"},
        {{LLAMA, .tokens = "\xE2\x96\x81; ", .types = "14", .scores = 2}, SUMI_FILE_MALFORMED, "occurs twice"},
        {{LLAMA, .tokens = "<unk>;a", .types = "31", .scores = 2}, SUMI_FILE_MALFORMED, "no token for unknown text"},
        {{LLAMA, LLAMA_TOKENS}, SUMI_FILE_MALFORMED, "bos_token_id is not the id"},
        {{LLAMA, LLAMA_TOKENS, .flag = "add_space_prefix"}, SUMI_NOT_SUPPORTED, "blank in front of every text"},
        {{.architecture = "llama", .model = "llama", LLAMA_TOKENS}, SUMI_NOT_SUPPORTED, "add_space_prefix"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sumi_error error;
        sumi_tokenizer* tokenizer = load_small(&cases[i].m, &error);
        const bool is_good = tokenizer == NULL && error.result == cases[i].result
                          && strstr(error.text, cases[i].says) != NULL && strstr(error.text, "t.gguf") == error.text;
        if (!is_good) printf("  case %zu: result %d, \"%s\"\n", i, (int)error.result, error.text);
        CHECK(is_good);
        sumi_tokenizer_destroy(tokenizer);
    }
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
}

TEST(damaged_tokenizers_of_gguf_files_are_survived)
{
    const metadata files[] = {{GPT2, GPT2_TOKENS}, {LLAMA, LLAMA_TOKENS, .number_key = "bos_token_id", .number = 1}};
    for (size_t f = 0; f < 2; f++) {
        model_writer w = write_metadata(&files[f]);
        for (size_t i = 0; i < 3000; i++) {
            s_random = (uint32_t)i * 2654435761u + 1;
            const size_t bytes = i < w.bytes ? i : w.bytes; // first every truncation
            char* damaged = exact_copy(w.data, bytes);
            for (int32_t k = 0; k < 2 && i >= w.bytes; k++) damaged[next_random() % bytes] = (char)next_random();
            sumi_error error = {0};
            sumi_tokenizer* tokenizer = load_metadata(&s_heap, damaged, bytes, &error);
            CHECK((tokenizer != NULL) == (error.result == SUMI_OK));
            CHECK(i >= w.bytes || tokenizer == NULL);
            size_t count;
            if (tokenizer != NULL)
                sumi_tokenizer_encode(tokenizer, "ab  c<e>\n", 9, true, s_ids, MAX_IDS, &count, &error);
            sumi_tokenizer_destroy(tokenizer);
            free(damaged);
        }
        long failures = 0; // every allocation fails once
        for (bool is_done = false; !is_done && failures < 1000; failures++) {
            failing f_left = {.left = failures};
            const sumi_allocator allocator = failing_allocator(&f_left);
            sumi_heap heap;
            sumi_heap_init(&heap, &allocator);
            sumi_error error = {0};
            sumi_tokenizer* tokenizer = load_metadata(&heap, w.data, w.bytes, &error);
            is_done = tokenizer != NULL;
            CHECK(is_done || error.result == SUMI_OUT_OF_HOST_MEMORY);
            sumi_tokenizer_destroy(tokenizer);
            CHECK_NUMBER(atomic_load(&heap.allocated_bytes), 0);
        }
        CHECK(failures > 10 && failures < 1000);
        free(w.data);
    }
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(malformed_files_are_refused_with_a_sentence);
    RUN(every_truncated_file_is_refused);
    RUN(a_failed_load_fails_again);
    RUN(malformed_older_files_are_refused);
    RUN(sentencepiece_merges_by_score_from_the_left);
    RUN(malformed_sentencepiece_models_are_refused);
    RUN(damaged_sentencepiece_models_are_survived);
    RUN(tokenizers_of_gguf_files_follow_their_metadata);
    RUN(malformed_tokenizers_of_gguf_files_are_refused);
    RUN(damaged_tokenizers_of_gguf_files_are_survived);
    TEST_END();
}
