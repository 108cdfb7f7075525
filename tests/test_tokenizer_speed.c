// Tokenizers of the released sizes load fast, in small steps and little memory, and no text makes them slow.
#include "base/utf8.h"
#include "text/tokenizer.h"
#include "text/unicode.h"
#include "tokenizer_fixture.h"
#include <time.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#ifndef SANITIZED
#define SANITIZED 0
#endif

// ---- Helpers --------------------------------------------------------------------------------------------------------

// Time that the CPU worked for this program, not time that passed: a busy machine, or one that stood still,
// changes little of it.
static double worked_ms(void) { return 1e3 * (double)clock() / CLOCKS_PER_SEC; }

// ---- Speed ----------------------------------------------------------------------------------------------------------

// A tokenizer.json of the released size and layout: 256 byte symbols and 151,387 merges, each of which makes the next
// token.
typedef struct token_text {
    char text[48];
    uint8_t bytes;
} token_text;

enum { BIG_VOCABULARY = 151643 };

static void put_json_string(char** at, const token_text* token)
{
    *(*at)++ = '"';
    for (size_t i = 0; i < token->bytes; i++) {
        if (token->text[i] == '"' || token->text[i] == '\\') *(*at)++ = '\\';
        *(*at)++ = token->text[i];
    }
    *(*at)++ = '"';
}

static uint32_t hash_token(const token_text* token)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < token->bytes; i++) hash = (hash ^ (unsigned char)token->text[i]) * 16777619u;
    return hash ^ hash >> 15;
}

// Also a prompt: tokens of letters, most with a blank before them, at least `prompt_tokens` of them.
static blob make_big_file(size_t prompt_tokens, blob* out_prompt)
{
    token_text* tokens = calloc(BIG_VOCABULARY, sizeof *tokens);
    uint32_t(*pairs)[2] = calloc(BIG_VOCABULARY, sizeof *pairs);
    const uint32_t seen_mask = (1u << 20) - 1;
    uint32_t* seen = calloc(seen_mask + 1, sizeof *seen);
    uint32_t count = 0;
    s_random = 1;
    for (int32_t pass = 0; pass < 2; pass++) { // the printable bytes first, as in the release
        for (int32_t byte = 0; byte < 256; byte++) {
            bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
            uint32_t other = byte <= 32 ? (uint32_t)byte : byte <= 160 ? (uint32_t)byte - 94 : 67;
            if (printable == (pass == 0)) {
                tokens[count].bytes =
                    (uint8_t)sumi_utf8_encode(printable ? (uint32_t)byte : 0x100 + other, tokens[count].text);
                seen[hash_token(&tokens[count]) & seen_mask] = count + 1;
                count++;
            }
        }
    }
    const uint32_t blank = 220;
    while (count < BIG_VOCABULARY) {
        uint32_t left = next_random() % 4 == 0 ? blank
                      : next_random() % 3 == 0 ? 64 + next_random() % 26
                                               : next_random() % count;
        uint32_t right = next_random() % 3 == 0 ? 64 + next_random() % 26 : next_random() % count;
        token_text* token = &tokens[count];
        if (tokens[left].bytes + tokens[right].bytes > 14) continue;
        memcpy(token->text, tokens[left].text, tokens[left].bytes);
        memcpy(token->text + tokens[left].bytes, tokens[right].text, tokens[right].bytes);
        token->bytes = (uint8_t)(tokens[left].bytes + tokens[right].bytes);
        uint32_t place = hash_token(token) & seen_mask;
        while (seen[place] != 0
               && (tokens[seen[place] - 1].bytes != token->bytes
                   || memcmp(tokens[seen[place] - 1].text, token->text, token->bytes) != 0))
            place = (place + 1) & seen_mask;
        if (seen[place] == 0) {
            seen[place] = count + 1;
            pairs[count][0] = left;
            pairs[count][1] = right;
            count++;
        }
    }
    blob json = {malloc((size_t)BIG_VOCABULARY * 160), 0};
    char* at = json.data;
    at += sprintf(
        at,
        "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n  \"added_tokens\": [\n    {\n     "
        " \"id\": %d,\n      "
        "\"content\": \"<|endoftext|>\",\n"
        "      \"single_word\": false,\n      \"lstrip\": false,\n      \"rstrip\": false,\n      \"normalized\": "
        "false,\n      \"special\": true\n  "
        "  }\n  ],\n"
        "  \"normalizer\": {\n    \"type\": \"NFC\"\n  },\n  \"pre_tokenizer\": {\n    \"type\": \"Sequence\",\n    "
        "\"pretokenizers\": [\n      {\n  "
        "      \"type\": \"Split\",\n"
        "        \"pattern\": {\n          \"Regex\": "
        "\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}| "
        "?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"\n"
        "        },\n        \"behavior\": \"Isolated\",\n        \"invert\": false\n      },\n      {\n        "
        "\"type\": \"ByteLevel\",\n        "
        "\"add_prefix_space\": false,\n"
        "        \"trim_offsets\": false,\n        \"use_regex\": false\n      }\n    ]\n  },\n  \"post_processor\": "
        "null,\n  \"decoder\": null,\n"
        "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n    \"vocab\": {\n",
        BIG_VOCABULARY);
    for (uint32_t i = 0; i < count; i++) {
        at += sprintf(at, "      ");
        put_json_string(&at, &tokens[i]);
        at += sprintf(at, ": %u%s\n", i, i + 1 < count ? "," : "");
    }
    at += sprintf(at, "    },\n    \"merges\": [\n");
    for (uint32_t i = 256; i < count; i++) {
        at += sprintf(at, "      [\n        ");
        put_json_string(&at, &tokens[pairs[i][0]]);
        at += sprintf(at, ",\n        ");
        put_json_string(&at, &tokens[pairs[i][1]]);
        at += sprintf(at, "\n      ]%s\n", i + 1 < count ? "," : "");
    }
    at += sprintf(at, "    ]\n  }\n}\n");
    json.bytes = (size_t)(at - json.data);
    *out_prompt = (blob){malloc(prompt_tokens * 16), 0};
    for (size_t written = 0; written < prompt_tokens;) {
        const token_text* token = &tokens[next_random() % count];
        const char* letters = token->text;
        size_t bytes = token->bytes, plain = 0;
        bool blank_first = bytes > 2 && memcmp(letters, tokens[blank].text, 2) == 0;
        letters += blank_first ? 2 : 0;
        bytes -= blank_first ? 2 : 0;
        while (plain < bytes && letters[plain] >= 'a' && letters[plain] <= 'z') plain++;
        if (plain == bytes && bytes >= 3) {
            out_prompt->data[out_prompt->bytes++] = written % 8 == 7 ? '.' : ' ';
            memcpy(out_prompt->data + out_prompt->bytes, letters, bytes);
            out_prompt->bytes += bytes;
            written++;
        }
    }
    free(tokens);
    free(pairs);
    free(seen);
    return json;
}

// about ten times what is taken; what grows with the square of the length takes thousands
enum { LOAD_SCANS = 50, ENCODE_SCANS = 2000, HOSTILE_SCANS = 4000 };

static volatile uint32_t s_scan_sum; // so that the loop below stays

// What looking at each byte once takes here: limits are told in it, for machines vary, and sanitizers slow everything
// down. The least of several times, as all that is held against it.
static double scan_ms(const char* bytes, size_t count)
{
    double best = 1e30;
    for (int i = 0; i < 5; i++) {
        const double begin = worked_ms();
        double took;
        int scans = 0;
        do { // until a clock of 16 ms, as Windows has one, has seen it
            uint32_t hash = 2166136261u;
            for (size_t at = 0; at < count; at++) hash = (hash ^ (unsigned char)bytes[at]) * 16777619u;
            s_scan_sum = hash;
            took = worked_ms() - begin;
            scans++;
        } while (took < 32.0);
        best = took / scans < best ? took / scans : best;
    }
    return best;
}

// 262,144 pieces of which 6,400 are units of the user's, as Gemma has; or 250,000 of Unigram, as XLM-RoBERTa has.
static void put_big_model(model_writer* w, bool is_bpe)
{
    put_piece(w, "<unk>", 0.0f, 2);
    put_piece(w, "<s>", 0.0f, 3);
    put_piece(w, "</s>", 0.0f, 3);
    const int32_t count = is_bpe ? 262144 : 250000;
    for (int32_t i = 3; i < count; i++) {
        char text[16];
        size_t bytes = 0;
        // 1 to 6 letters that count in base 26, so that shorter ones begin longer ones
        for (int32_t left = i; left > 0; left /= 26) text[bytes++] = (char)('a' + left % 26);
        text[bytes] = '\0';
        const bool is_unit = is_bpe && i % 41 == 0;
        if (is_unit) snprintf(text, sizeof text, "<u%d>", i);
        // 'b' + 'a' is the number 1 again: other digits make other texts
        if (!is_unit && text[bytes - 1] == 'a') text[bytes - 1] = 'z';
        put_piece(w, text, is_unit ? 0.0f : -(float)i, is_unit ? 4 : 1);
    }
    if (is_bpe) put_raw(w, BPE_SPECS, sizeof BPE_SPECS - 1);
}

TEST(a_sentencepiece_model_of_the_released_size_loads_in_small_steps)
{
    for (int32_t is_bpe = 0; is_bpe < 2; is_bpe++) {
        model_writer w = {0};
        put_big_model(&w, is_bpe != 0);
        const sumi_tokenizer_files files = {.main = {w.data, w.bytes, "big.model"}};
        double least_worst = 1e30, least_all = 1e30, held = 0.0;
        for (int32_t i = 0; i < 3; i++) {
            sumi_tokenizer* tokenizer = NULL;
            sumi_error error = {0};
            double worst = 0.0, all = 0.0;
            bool done = false;
            CHECK_NUMBER(sumi_tokenizer_begin_sentencepiece(&s_heap, &files, &error, &tokenizer), SUMI_OK);
            for (sumi_result result = SUMI_OK; !done && result == SUMI_OK;) {
                const double begin = worked_ms();
                result = sumi_tokenizer_step(tokenizer, 1000, &done, NULL, &error);
                const double took = worked_ms() - begin;
                worst = took > worst ? took : worst;
                all += took;
            }
            CHECK_TEXT(error.text, "");
            CHECK_NUMBER(sumi_tokenizer_size(tokenizer), is_bpe ? 262144 : 250002);
            least_worst = worst < least_worst ? worst : least_worst;
            least_all = all < least_all ? all : least_all;
            held = (double)atomic_load(&s_heap.allocated_bytes);
            sumi_tokenizer_destroy(tokenizer);
        }
        CHECK(least_worst < 0.2 * least_all && held < 30e6);
        printf("  %.1f MB of %s pieces: loaded in %.0f ms, the longest step %.2f ms, %.1f MB held\n",
               (double)w.bytes / 1e6, is_bpe ? "BPE" : "Unigram", least_all, least_worst, held / 1e6);
        free(w.data);
    }
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
}

TEST(a_file_of_the_released_size_loads_fast_in_little_memory)
{
    blob prompt, json = make_big_file(300, &prompt);
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_error error = {0};
    sumi_tokenizer* tokenizer = NULL;
    double best = 1e30;
    const double json_ms = scan_ms(json.data, json.bytes),
                 prompt_ms = json_ms * (double)prompt.bytes / (double)json.bytes;
    for (int32_t i = 0; i < 3; i++) {
        sumi_tokenizer_destroy(tokenizer);
        double begin = worked_ms();
        tokenizer = load_bytes(&heap, json.data, json.bytes, &error);
        double took = worked_ms() - begin;
        best = took < best ? took : best;
    }
    CHECK_TEXT(error.text, "");
    double held = (double)atomic_load(&heap.allocated_bytes), peak = (double)atomic_load(&heap.peak);
    CHECK(held < 30e6 && peak < 30e6);
    CHECK(best < LOAD_SCANS * json_ms);

    size_t count = encode(tokenizer, prompt.data, prompt.bytes, true);
    CHECK(count >= 500);
    double best_encode = 1e30;
    for (int32_t i = 0; i < 20; i++) {
        double begin = worked_ms();
        for (int32_t k = 0; k < 50; k++) encode(tokenizer, prompt.data, prompt.bytes, true);
        double took = (worked_ms() - begin) / 50.0;
        best_encode = took < best_encode ? took : best_encode;
    }
    CHECK(best_encode < ENCODE_SCANS * prompt_ms);
    CHECK_NUMBER(sumi_tokenizer_size(tokenizer), BIG_VOCABULARY + 1);
    printf("  in times that each byte is looked at: loaded in %.1f, encoded in %.0f\n", best / json_ms,
           best_encode / prompt_ms);
    printf("  %.1f MB of json: loaded in %.0f ms, %.1f MB held, %.1f MB at most; %zu bytes encoded to %zu tokens in "
           "%.3f ms%s\n",
           (double)json.bytes / 1e6, best, held / 1e6, peak / 1e6, prompt.bytes, count, best_encode,
           SANITIZED ? " (sanitized build)" : "");

    // stepping: no step of 1000 entries takes a large part of the whole
    double least_worst = 1e30;
    for (int32_t i = 0; i < 3; i++) {
        sumi_tokenizer_destroy(tokenizer);
        double worst = 0.0;
        bool done = false;
        CHECK(sumi_tokenizer_begin(&heap, json.data, json.bytes, "big.json", &error, &tokenizer) == SUMI_OK);
        for (double begin = worked_ms(); !done && sumi_tokenizer_step(tokenizer, 1000, &done, NULL, &error) == SUMI_OK;
             begin = worked_ms())
            worst = worked_ms() - begin > worst ? worked_ms() - begin : worst;
        CHECK(done);
        least_worst = worst < least_worst ? worst : least_worst;
    }
    CHECK(least_worst < 0.1 * best);
    printf("  the longest step of 1000 entries took %.2f ms\n", least_worst);
    sumi_tokenizer_destroy(tokenizer);
    CHECK_NUMBER(atomic_load(&heap.allocated_bytes), 0);
    free(json.data);
    free(prompt.data);
}

TEST(hostile_texts_of_100_kB_are_no_slower_than_others)
{
    static const char* const s_names[] = {"common/tokenizers/qwen/tokenizer.json",
                                          "common/tokenizers/gemma3/tokenizer.json", XLMR_TOKENIZER,
                                          XLMR_SPACES_TOKENIZER};
    static const char* const s_patterns[] = {
        "a",
        "th",
        "the",
        " ",
        "\n",
        "\r\n",
        "\t",
        "'",
        "'s",
        "1",
        ".",
        "<",
        "<|im_start|",
        "<unused",
        "<|im_start|>",
        "\xCC\x81\xCC\xA3",
        "e\xCC\x81",
        "\xE2\x96\x81",
        "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8",
        "\xE1\x86\xA8",
        "\xE4\xB8\x80",
        "\xF0\x9F\x91\xA8\xE2\x80\x8D",
        "\x80",
        "\xF0\x9F",
        "\xEF\xB7\xBA" /* 18 characters in NFKC */,
        "\xE0\xA4\x95\xE0\xA5\x8D",
        " <mask>",
        "\xF0\x9D\x85\xA0",
        "\xE0\xA2\x98\xCC\x81",
    };
    enum { TEXT_BYTES = 100000 };
    char* text = malloc(TEXT_BYTES);
    double worst = 0.0;
    memset(text, 'a', TEXT_BYTES);
    const double limit = HOSTILE_SCANS * scan_ms(text, TEXT_BYTES);
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        sumi_tokenizer* tokenizer = load_golden(s_names[i]);
        for (size_t k = 0; k < sizeof s_patterns / sizeof *s_patterns; k++) {
            size_t length = strlen(s_patterns[k]);
            for (size_t at = 0; at < TEXT_BYTES; at++) text[at] = s_patterns[k][at % length];
            double took = limit;
            // the first one may have to fetch its tables
            for (int attempt = 0; attempt < 3 && took >= limit; attempt++) {
                double begin = worked_ms();
                encode(tokenizer, text, TEXT_BYTES, true);
                took = worked_ms() - begin;
            }
            worst = took > worst ? took : worst;
            if (took >= limit) printf("  %s: 100 kB of \"%s\" took %.0f ms\n", s_names[i], s_patterns[k], took);
            CHECK(took < limit);
        }
        sumi_tokenizer_destroy(tokenizer);
    }
    printf("  the slowest of 100 kB took %.0f ms, as long as looking at each byte %.0f times%s\n", worst,
           worst / limit * HOSTILE_SCANS, SANITIZED ? " (sanitized build)" : "");
    free(text);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(a_sentencepiece_model_of_the_released_size_loads_in_small_steps);
    RUN(a_file_of_the_released_size_loads_fast_in_little_memory);
    RUN(hostile_texts_of_100_kB_are_no_slower_than_others);
    TEST_END();
}
