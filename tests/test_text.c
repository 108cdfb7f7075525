// The text room: the three tokenizers against the golden strings, malformed files, memory, speed, and what hostile text
// must not do.
// SUMI_GOLDEN names another folder of the layout of tests/golden.
#include "failing.h"
#include "files/json.h"
#include "system.h"
#include "test.h"
#include "text/tokenizer.h"
#include "text/unicode.h"
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

typedef struct blob {
    char* data;
    size_t bytes;
} blob;

static blob read_golden(const char* name)
{
    char path[1024];
    const char* root = getenv("SUMI_GOLDEN");
    snprintf(path, sizeof path, "%s/%s", root != NULL ? root : "tests/golden", name);
    FILE* file = fopen(path, "rb");
    if (file == NULL) { return (blob){NULL, 0}; }
    fseek(file, 0, SEEK_END);
    blob b = {NULL, (size_t)ftell(file)};
    rewind(file);
    b.data = malloc(b.bytes + 1);
    b.bytes = fread(b.data, 1, b.bytes, file);
    b.data[b.bytes] = '\0';
    fclose(file);
    return b;
}

// Time that the processor worked for this program, not time that passed: a busy machine, or one that stood still,
// changes little of it.
static double worked_ms(void) { return 1e3 * (double)clock() / CLOCKS_PER_SEC; }

static sumi_heap s_heap;

static sumi_tokenizer* load_bytes(sumi_heap* heap, const char* json, size_t bytes, sumi_error* error)
{
    sumi_tokenizer* tokenizer = NULL;
    bool done = false;
    if (sumi_tokenizer_begin(heap, json, bytes, "t.json", error, &tokenizer) != SUMI_OK) {
        CHECK(tokenizer == NULL);
        return NULL;
    }
    if (sumi_tokenizer_step(tokenizer, SIZE_MAX, &done, NULL, error) != SUMI_OK || !done) {
        CHECK(!done);
        sumi_tokenizer_destroy(tokenizer);
        return NULL;
    }
    return tokenizer;
}

static sumi_tokenizer* load_text(const char* json)
{
    sumi_error error = {0};
    sumi_tokenizer* tokenizer = load_bytes(&s_heap, json, strlen(json), &error);
    CHECK_TEXT(error.text, "");
    return tokenizer;
}

static sumi_tokenizer* load_golden(const char* name)
{
    blob json = read_golden(name);
    sumi_error error = {0};
    sumi_tokenizer* tokenizer = NULL;
    if (json.data != NULL) {
        tokenizer = load_bytes(&s_heap, json.data, json.bytes, &error); // and it must not need the text any more
        CHECK_TEXT(error.text, "");
        memset(json.data, 'x', json.bytes);
        free(json.data);
    }
    return tokenizer;
}

#define MAX_IDS 300000
static int32_t s_ids[MAX_IDS], s_other_ids[MAX_IDS];

static size_t encode(sumi_tokenizer* tokenizer, const char* text, size_t bytes, bool special)
{
    size_t count = 0;
    sumi_error error = {0};
    if (sumi_tokenizer_encode(tokenizer, text, bytes, special, s_ids, MAX_IDS, &count, &error) != SUMI_OK) {
        CHECK_TEXT(error.text, "");
    }
    return count;
}

static bool gives(sumi_tokenizer* tokenizer, const char* text, bool special, const int32_t* want, size_t want_count)
{
    size_t count = encode(tokenizer, text, strlen(text), special);
    bool same = count == want_count && memcmp(s_ids, want, count * sizeof *want) == 0;
    if (!same) {
        printf("  \"%s\" gives", text);
        for (size_t i = 0; i < count; i++) { printf(" %d", s_ids[i]); }
        printf("\n");
    }
    return same;
}
#define GIVES(tokenizer, text, special, ...)                                                                           \
    CHECK(gives(tokenizer, text, special, (const int32_t[]){__VA_ARGS__},                                              \
                sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

static char* edited(const char* base, const char* from, const char* to)
{
    const char* at = strstr(base, from);
    char* text = malloc(strlen(base) + strlen(to) + 1);
    CHECK(at != NULL);
    if (at == NULL) {
        at = base;
        from = "";
    }
    memcpy(text, base, (size_t)(at - base));
    strcpy(text + (at - base), to);
    strcat(text, at + strlen(from));
    return text;
}

// One object with a text (under text_key) and its ids, somewhere in a golden file.
typedef struct golden_string {
    char* text;
    size_t bytes;
    int32_t* ids;
    size_t count;
    char category[64];
    int64_t max_length, full_count;
} golden_string;

static char* take_text(sumi_json* j, size_t* out_bytes)
{
    sumi_json_text text;
    sumi_json_string(j, &text);
    char* copy = malloc(text.bytes + 1);
    *out_bytes = sumi_json_decode(&text, copy, text.bytes);
    copy[*out_bytes] = '\0';
    return copy;
}

static void read_string_object(sumi_json* j, const char* text_key, golden_string* out)
{
    sumi_json_text key;
    *out = (golden_string){.full_count = -1};
    sumi_json_object(j);
    while (sumi_json_key(j, &key)) {
        if (sumi_json_is(&key, text_key)) {
            out->text = take_text(j, &out->bytes);
        } else if (sumi_json_is(&key, "category")) {
            sumi_json_text category;
            sumi_json_string(j, &category);
            snprintf(out->category, sizeof out->category, "%.*s", (int)category.bytes, category.data);
        } else if (sumi_json_is(&key, "max_length")) {
            out->max_length = sumi_json_integer(j);
        } else if (sumi_json_is(&key, "ids_before_truncation")) {
            out->full_count = sumi_json_integer(j);
        } else if (sumi_json_is(&key, "ids")) {
            size_t capacity = 0;
            sumi_json_array(j);
            while (sumi_json_item(j)) {
                if (out->count == capacity) {
                    capacity = capacity * 2 + 64;
                    out->ids = realloc(out->ids, capacity * sizeof *out->ids);
                }
                out->ids[out->count++] = (int32_t)sumi_json_integer(j);
            }
        } else {
            sumi_json_skip(j);
        }
    }
}

static void free_string(golden_string* string)
{
    free(string->text);
    free(string->ids);
}

static bool check_string(sumi_tokenizer* tokenizer, const golden_string* string)
{
    size_t count = encode(tokenizer, string->text, string->bytes, true);
    bool same = count == string->count && (count == 0 || memcmp(s_ids, string->ids, count * sizeof *s_ids) == 0);
    if (!same) { printf("  %s: \"%.60s\": %zu ids, want %zu\n", string->category, string->text, count, string->count); }
    CHECK(same);
    return same;
}

// Every line of a cases.jsonl.
static size_t check_cases(sumi_tokenizer* tokenizer, const char* name)
{
    blob lines = read_golden(name);
    size_t checked = 0;
    CHECK(lines.data != NULL);
    for (char *line = lines.data, *end; line != NULL && *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        sumi_error error = {0};
        sumi_json j;
        golden_string string;
        sumi_json_begin(&j, line, (size_t)(end - line), &error);
        read_string_object(&j, "text", &string);
        CHECK(sumi_json_end(&j) == SUMI_OK);
        check_string(tokenizer, &string);
        checked++;
        free_string(&string);
    }
    free(lines.data);
    return checked;
}

// The objects of the list under `list_key` of a golden json.
typedef void visit_string(sumi_tokenizer* tokenizer, const golden_string* string);
static size_t visit_list(sumi_tokenizer* tokenizer, const char* name, const char* list_key, const char* text_key,
                         visit_string* visit)
{
    blob json = read_golden(name);
    size_t visited = 0;
    sumi_error error = {0};
    sumi_json j;
    sumi_json_text key;
    CHECK(json.data != NULL);
    sumi_json_begin(&j, json.data, json.bytes, &error);
    sumi_json_object(&j);
    while (sumi_json_key(&j, &key)) {
        if (!sumi_json_is(&key, list_key)) {
            sumi_json_skip(&j);
            continue;
        }
        sumi_json_array(&j);
        while (sumi_json_item(&j)) {
            golden_string string;
            read_string_object(&j, text_key, &string);
            visit(tokenizer, &string);
            visited++;
            free_string(&string);
        }
    }
    CHECK(sumi_json_end(&j) == SUMI_OK);
    free(json.data);
    return visited;
}

static void visit_plain(sumi_tokenizer* tokenizer, const golden_string* string) { check_string(tokenizer, string); }

// ---- Golden strings -------------------------------------------------------------------------------------------------

static void check_folder(const char* folder, size_t want)
{
    char name[256];
    snprintf(name, sizeof name, "common/tokenizers/%s/tokenizer.json", folder);
    sumi_tokenizer* tokenizer = load_golden(name);
    CHECK(tokenizer != NULL);
    if (tokenizer != NULL) {
        snprintf(name, sizeof name, "common/tokenizers/%s/cases.jsonl", folder);
        CHECK(check_cases(tokenizer, name) >= want);
    }
    sumi_tokenizer_destroy(tokenizer);
}

TEST(qwen_agrees_with_every_golden_string) { check_folder("qwen", 100); }
TEST(gemma_agrees_with_every_golden_string) { check_folder("gemma3", 100); }
TEST(xlmr_agrees_with_every_golden_string) { check_folder("xlmr", 100); }
TEST(xlmr_with_space_runs_agrees_with_every_golden_string) { check_folder("xlmr-spaces", 100); }

static sumi_tokenizer* load_files(sumi_heap* heap, const char* folder, const char* added_name, sumi_error* error)
{
    char name[256];
    snprintf(name, sizeof name, "%s/vocab.json", folder);
    blob vocab = read_golden(name);
    snprintf(name, sizeof name, "%s/merges.txt", folder);
    blob merges = read_golden(name);
    snprintf(name, sizeof name, "%s/%s", folder, added_name);
    blob added = read_golden(name);
    sumi_tokenizer* tokenizer = NULL;
    bool done = false;
    sumi_tokenizer_files files = {.main = {vocab.data, vocab.bytes, folder},
                                  .merges = {merges.data, merges.bytes, "merges.txt"}};
    const sumi_tokenizer_bytes beside = {added.data, added.bytes, added_name};
    if (strcmp(added_name, "added_tokens.json") == 0) {
        files.added = beside;
    } else {
        files.config = beside;
    }
    if (vocab.data != NULL && merges.data != NULL
        && sumi_tokenizer_begin_files(heap, &files, error, &tokenizer) == SUMI_OK) {
        float progress, last = 0.0f;
        while (!done && sumi_tokenizer_step(tokenizer, 50, &done, &progress, error) == SUMI_OK) {
            CHECK(progress >= last && progress <= 1.0f);
            last = progress;
        }
        if (!done) {
            sumi_tokenizer_destroy(tokenizer);
            tokenizer = NULL;
        }
    }
    free(vocab.data);
    free(merges.data);
    free(added.data);
    return tokenizer;
}

TEST(qwen_from_vocab_and_merges_gives_the_same_ids)
{
    const char* added[] = {"tokenizer_config.json", "added_tokens.json"};
    for (size_t i = 0; i < 2; i++) {
        sumi_error error = {0};
        sumi_tokenizer* tokenizer = load_files(&s_heap, "common/tokenizers/qwen", added[i], &error);
        CHECK_TEXT(error.text, "");
        if (tokenizer != NULL) {
            CHECK(check_cases(tokenizer, "common/tokenizers/qwen/cases.jsonl") > 100);
            CHECK_NUMBER(sumi_tokenizer_size(tokenizer), 1514);
        }
        sumi_tokenizer_destroy(tokenizer);
    }
}

// In small steps, none of which may fall behind in progress.
static sumi_tokenizer* load_pieces(sumi_heap* heap, const void* data, size_t bytes, const char* config,
                                   sumi_error* error)
{
    const sumi_tokenizer_files files = {.main = {data, bytes, "t.model"},
                                        .config = {config, config != NULL ? strlen(config) : 0, NULL}};
    sumi_tokenizer* tokenizer = NULL;
    float progress, last = 0.0f;
    bool done = false;
    if (sumi_tokenizer_begin_sentencepiece(heap, &files, error, &tokenizer) != SUMI_OK) { return NULL; }
    while (!done && sumi_tokenizer_step(tokenizer, 20, &done, &progress, error) == SUMI_OK) {
        CHECK(progress >= last && progress <= 1.0f);
        last = progress;
    }
    if (done) { return tokenizer; }
    sumi_tokenizer_destroy(tokenizer);
    return NULL;
}

static sumi_tokenizer* load_golden_pieces(const char* name, const char* config)
{
    blob model = read_golden(name);
    sumi_error error = {0};
    sumi_tokenizer* tokenizer =
        model.data != NULL ? load_pieces(&s_heap, model.data, model.bytes, config, &error) : NULL;
    CHECK_TEXT(error.text, "");
    CHECK(tokenizer != NULL);
    free(model.data);
    return tokenizer;
}

#define XLMR_MODEL "common/tokenizers/xlmr/sentencepiece.bpe.model"
#define GEMMA_MODEL "common/tokenizers/newbie-gemma/tokenizer.model"
// as beside it: what the model lacks of the tokenizer.json
#define GEMMA_CONFIG                                                                                                   \
    "{\"tokenizer_class\":\"GemmaTokenizer\",\"add_bos_token\":true,\"added_tokens_decoder\":{\"1032\":{\"content\":"  \
    "\"<image_soft_token>\",\"special\":true}}}"

TEST(xlmr_from_sentencepiece_gives_the_same_ids)
{
    sumi_tokenizer* tokenizer = load_golden_pieces(XLMR_MODEL, "{\"tokenizer_class\":\"XLMRobertaTokenizer\"}");
    if (tokenizer != NULL) {
        CHECK(check_cases(tokenizer, "common/tokenizers/xlmr/cases.jsonl") > 100);
        CHECK_NUMBER(sumi_tokenizer_size(tokenizer), 1238);
        CHECK_NUMBER(sumi_tokenizer_id(tokenizer, "<mask>"), 1237);
    }
    sumi_tokenizer_destroy(tokenizer);
}

TEST(gemma_from_sentencepiece_gives_the_same_ids)
{
    sumi_tokenizer* tokenizer = load_golden_pieces(GEMMA_MODEL, GEMMA_CONFIG);
    if (tokenizer != NULL) {
        CHECK(check_cases(tokenizer, "common/tokenizers/newbie-gemma/cases.jsonl") > 40);
        CHECK_NUMBER(sumi_tokenizer_size(tokenizer), 1033);
        CHECK_NUMBER(sumi_tokenizer_id(tokenizer, "<0x0A>"), 238 + 10);
        CHECK_NUMBER(sumi_tokenizer_id(tokenizer, "<bos>"), 2);
    }
    sumi_tokenizer_destroy(tokenizer);
    // and those of the sentencepiece library itself
    tokenizer = load_golden_pieces(GEMMA_MODEL, NULL);
    if (tokenizer != NULL) {
        CHECK(check_cases(tokenizer, "common/tokenizers/newbie-gemma/cases_sentencepiece.jsonl") > 700);
        CHECK_NUMBER(sumi_tokenizer_size(tokenizer), 1032);
    }
    sumi_tokenizer_destroy(tokenizer);
    tokenizer = load_golden_pieces(GEMMA_MODEL, "{\"add_bos_token\":false}");
    if (tokenizer != NULL) { GIVES(tokenizer, "\n", true, 107); }
    sumi_tokenizer_destroy(tokenizer);
    CHECK_NUMBER(atomic_load(&s_heap.held), 0);
}

TEST(qwen_with_every_file_beside_it_gives_the_same_ids)
{
    static const char* const s_names[] = {"vocab.json", "merges.txt", "tokenizer_config.json", "added_tokens.json",
                                          "special_tokens_map.json"};
    blob files[5];
    sumi_tokenizer_bytes bytes[5];
    for (size_t i = 0; i < 5; i++) {
        char name[256];
        snprintf(name, sizeof name, "common/tokenizers/qwen-image/%s", s_names[i]);
        files[i] = read_golden(name);
        CHECK(files[i].data != NULL);
        bytes[i] = (sumi_tokenizer_bytes){files[i].data, files[i].bytes, s_names[i]};
    }
    for (int32_t without = 0; without < 3; without++) { // 1: no config, 2: no added_tokens.json
        sumi_tokenizer_files list = {bytes[0], bytes[1], bytes[2], bytes[3], bytes[4]};
        if (without == 1) { list.config = (sumi_tokenizer_bytes){0}; }
        if (without == 2) { list.added = (sumi_tokenizer_bytes){0}; }
        sumi_error error = {0};
        sumi_tokenizer* tokenizer = NULL;
        CHECK_NUMBER(sumi_tokenizer_begin_files(&s_heap, &list, &error, &tokenizer), SUMI_OK);
        CHECK_NUMBER(sumi_tokenizer_step(tokenizer, SIZE_MAX, NULL, NULL, &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        CHECK(check_cases(tokenizer, "common/tokenizers/qwen-image/cases.jsonl") > 20);
        CHECK_NUMBER(sumi_tokenizer_size(tokenizer), 678);
        sumi_tokenizer_destroy(tokenizer);
    }
    for (size_t i = 0; i < 5; i++) { free(files[i].data); }
}

static void visit_prompt(sumi_tokenizer* tokenizer, const golden_string* string)
{
    static const char s_before[] = "<|im_start|>user\n", s_after[] = "<|im_end|>\n<|im_start|>assistant\n";
    const size_t before = sizeof s_before - 1, after = sizeof s_after - 1;
    char* text = malloc(before + string->bytes + after);
    memcpy(text, s_before, before);
    memcpy(text + before, string->text, string->bytes);
    memcpy(text + before + string->bytes, s_after, after);
    size_t count = 0;
    CHECK(sumi_tokenizer_encode(tokenizer, text, before + string->bytes + after, true, s_ids, 512, &count, NULL)
          == SUMI_OK);
    CHECK_NUMBER(count, string->full_count);
    size_t kept = count < 512 ? count : 512;
    CHECK_NUMBER(kept, string->count);
    CHECK(kept != string->count || memcmp(s_ids, string->ids, kept * sizeof *s_ids) == 0);
    free(text);
}

TEST(z_image_strings_and_templated_prompts)
{
    sumi_tokenizer* tokenizer = load_golden("z-image/model/tokenizer/tokenizer.json");
    if (tokenizer == NULL) SKIP("no golden z-image folder");
    CHECK(visit_list(tokenizer, "z-image/cases/tokenizer.json", "strings", "text", visit_plain) > 10);
    CHECK(visit_list(tokenizer, "z-image/cases/tokenizer.json", "prompts", "prompt", visit_prompt) > 3);
    sumi_tokenizer_destroy(tokenizer);
}

TEST(qwen_image_strings)
{
    sumi_error error = {0};
    sumi_tokenizer* tokenizers[] = {
        load_files(&s_heap, "common/tokenizers/qwen-image", "tokenizer_config.json", &error), // of the text encoder
        load_files(&s_heap, "common/tokenizers/qwen-image", "added_tokens.json", &error),
        load_golden("common/tokenizers/qwen-image/tokenizer.json"), // of the edit model's processor
    };
    CHECK_TEXT(error.text, "");
    for (size_t i = 0; i < 3; i++) {
        CHECK(tokenizers[i] != NULL);
        if (tokenizers[i] != NULL) {
            CHECK(check_cases(tokenizers[i], "common/tokenizers/qwen-image/cases.jsonl") > 10);
        }
        sumi_tokenizer_destroy(tokenizers[i]);
    }
}

// The caller truncates: the first ids of the text, the ends kept.
static void visit_truncated(sumi_tokenizer* tokenizer, const golden_string* string)
{
    size_t with = encode(tokenizer, "", 0, true), count = encode(tokenizer, string->text, string->bytes, true);
    int32_t last = s_ids[count - 1];
    CHECK(count >= string->count && string->count == (size_t)string->max_length);
    if (with == 2) { s_ids[string->count - 1] = last; }
    CHECK(memcmp(s_ids, string->ids, string->count * sizeof *s_ids) == 0);
}

TEST(newbie_strings)
{
    static const char* const s_folders[] = {"newbie-gemma", "newbie-jina"};
    for (size_t i = 0; i < 2; i++) {
        char name[256];
        check_folder(s_folders[i], 10);
        snprintf(name, sizeof name, "common/tokenizers/%s/tokenizer.json", s_folders[i]);
        sumi_tokenizer* tokenizer = load_golden(name);
        snprintf(name, sizeof name, "common/tokenizers/%s/truncated.json", s_folders[i]);
        CHECK(visit_list(tokenizer, name, "truncated", "text", visit_truncated) > 0);
        sumi_tokenizer_destroy(tokenizer);
    }
}

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
        sumi_nfc_scratch scratch = {0};
        CHECK(sumi_nfc_append(&s_heap, &out, &scratch, s_cases[i].text, strlen(s_cases[i].text), NULL) == SUMI_OK);
        CHECK(out.bytes == strlen(s_cases[i].nfc) && memcmp(out.memory, s_cases[i].nfc, out.bytes) == 0);
        sumi_text_release(&s_heap, &out);
        sumi_free(&s_heap, scratch.points);
    }
}

#define SMALL_MODEL(merges)                                                                                            \
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"              \
    "\"end_of_word_suffix\":\"\",\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,"                  \
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"c\":3,\"abc\":4,\" \":5,\"\\u00e9\":7},\"merges\":" merges "}"
#define SMALL_ADDED(flags) "\"added_tokens\":[{\"id\":6,\"content\":\"<e>\"," flags ",\"special\":true}],"
#define PLAIN_FLAGS "\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false"
#define SMALL_BPE                                                                                                      \
    "{\"version\":\"1.0\"," SMALL_ADDED(PLAIN_FLAGS) "\"normalizer\":null,\"pre_tokenizer\":null,\"post_processor\":"  \
                                                     "null," SMALL_MODEL("[[\"a\",\"b\"],[\"ab\",\"c\"]]") "}"
#define SMALL_UNIGRAM                                                                                                  \
    "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true}],"                                             \
    "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\" {2,}\"},\"content\":\" \"},"                       \
    "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\\u2581\",\"prepend_scheme\":\"always\",\"split\":"   \
    "true},"                                                                                                           \
    "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}" \
    "},"                                                                                                               \
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[0]" \
    ","                                                                                                                \
    "\"tokens\":[\"<s>\"]}}},\"model\":{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"<s>\",0.0],[\"<unk>\",0.0],"   \
    "[\"\\u2581\",-2.5],[\"a\",-3.0],[\"b\",-3.5],[\"\\u2581ab\",-4e0],[\"ab\",-7]]}}"

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
        {SMALL_BPE, "\"normalizer\":null", "\"model\":{\"vocab\":{},\"merges\":[]}", malformed, "already"},
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
        {SMALL_BPE, "\"added_tokens\":[", "\"added_tokens\":[{\"id\":6,\"content\":\"<f>\"},", malformed, "otherwise"},
        {SMALL_UNIGRAM, "\"id\":0,", "\"id\":2,", malformed, "<s>"},
        // merges
        {SMALL_BPE, "[\"a\",\"b\"]", "[\"a\",\"x\"]", malformed, "right part"},
        {SMALL_BPE, "[\"a\",\"b\"]", "[\"x\",\"b\"]", malformed, "left part"},
        {SMALL_BPE, "[\"a\",\"b\"]", "[\"a\",\"c\"]", malformed, "what they make"},
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
    CHECK_NUMBER(atomic_load(&s_heap.held), 0);
}

TEST(every_truncated_file_is_refused)
{
    static const char* const s_files[] = {SMALL_BPE, SMALL_UNIGRAM};
    for (size_t i = 0; i < 2; i++) {
        size_t whole = strlen(s_files[i]);
        for (size_t bytes = 0; bytes < whole; bytes++) {
            char* tight = malloc(bytes != 0 ? bytes : 1);
            memcpy(tight, s_files[i], bytes);
            sumi_error error = {0};
            CHECK(load_bytes(&s_heap, tight, bytes, &error) == NULL);
            CHECK_NUMBER(error.result, SUMI_FILE_MALFORMED);
            free(tight);
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

static sumi_tokenizer_bytes bytes_of(const char* text, const char* path)
{
    return (sumi_tokenizer_bytes){text, text != NULL ? strlen(text) : 0, text != NULL ? path : NULL};
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
        {"{\"a\":0}", "a a", NULL, NULL, NULL, SUMI_FILE_MALFORMED, "what they make"},
        {"{\"a\":0}", "", "{\"<e>\":\"x\"}", NULL, NULL, SUMI_FILE_MALFORMED, "JSON"},
        {"{\"a\":0}", "", "{\"<e>\":0}", NULL, NULL, SUMI_FILE_MALFORMED, "otherwise"},
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
        if (result == SUMI_OK) { result = sumi_tokenizer_step(tokenizer, SIZE_MAX, NULL, NULL, &error); }
        CHECK_NUMBER(result, s_files[i].result);
        CHECK(strstr(error.text, s_files[i].says) != NULL);
        sumi_tokenizer_destroy(tokenizer);
    }
    CHECK_NUMBER(atomic_load(&s_heap.held), 0);
}

static uint32_t s_random;
static uint32_t next_random(void)
{
    s_random = s_random * 1664525u + 1013904223u;
    return s_random >> 8;
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
        if (what > 0) { files.special = bytes_of(s_map, "special_tokens_map.json"); }
        if (what > 1) { files.config = bytes_of(s_config, "tokenizer_config.json"); }
        sumi_error error = {0};
        sumi_tokenizer* tokenizer = NULL;
        CHECK_NUMBER(sumi_tokenizer_begin_files(&s_heap, &files, &error, &tokenizer), SUMI_OK);
        CHECK_NUMBER(sumi_tokenizer_step(tokenizer, SIZE_MAX, NULL, NULL, &error), SUMI_OK);
        if (what == 0) { GIVES(tokenizer, "ab <e>", true, 0, 1, 2, 4); }
        if (what == 1) { GIVES(tokenizer, "ab <e>", true, 3, 4); }
        if (what == 2) { GIVES(tokenizer, "ab <e>", true, 3, 2, 4); }
        sumi_tokenizer_destroy(tokenizer);
    }
    CHECK_NUMBER(atomic_load(&s_heap.held), 0);
}

// ---- SentencePiece --------------------------------------------------------------------------------------------------

// A model written by hand. type 0: the field is left out, so that it is a normal piece.
typedef struct model_writer {
    unsigned char* data;
    size_t bytes, capacity;
} model_writer;

static void put_raw(model_writer* w, const void* data, size_t bytes)
{
    if (w->bytes + bytes > w->capacity) {
        w->capacity = 2 * (w->bytes + bytes);
        w->data = realloc(w->data, w->capacity);
    }
    memcpy(w->data + w->bytes, data, bytes);
    w->bytes += bytes;
}

static void put_byte(model_writer* w, int byte)
{
    const unsigned char c = (unsigned char)byte;
    put_raw(w, &c, 1);
}

static void put_piece(model_writer* w, const char* text, float score, int type)
{
    const size_t bytes = strlen(text);
    put_byte(w, 0x0A);
    put_byte(w, (int)(2 + bytes + 5 + (type != 0 ? 2 : 0)));
    put_byte(w, 0x0A);
    put_byte(w, (int)bytes);
    put_raw(w, text, bytes);
    put_byte(w, 0x15);
    put_raw(w, &score, 4);
    if (type != 0) {
        put_byte(w, 0x18);
        put_byte(w, type);
    }
}

// trainer_spec: BPE with a BOS called <s>; normalizer_spec: nothing but blanks
#define BPE_SPECS "\x12\x02\x18\x02\x1A\x04\x18\x00\x20\x00"

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
    char* tight = malloc(bytes + 1); // reading behind the end shows
    memcpy(tight, data, bytes);
    *out = load_pieces(&s_heap, tight, bytes, NULL, error);
    free(tight);
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
    CHECK_NUMBER(atomic_load(&s_heap.held), 0);
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
    CHECK_NUMBER(atomic_load(&s_heap.held), 0);
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
        for (int32_t k = 0; k < 3; k++) { damaged[next_random() % model.bytes] = (char)next_random(); }
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
    CHECK_NUMBER(atomic_load(&s_heap.held), 0);
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
        for (int32_t i = 0; i < 40; i++) {
            bytes += (size_t)snprintf(text + bytes, sizeof text - bytes, "%s", i % 2 ? "\xCC\x81" : "\xCC\xA3");
        }
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
            CHECK_NUMBER(atomic_load(&heap.held), 0);
        }
        CHECK(worked);
        free(json.data);
    }
}

TEST(a_second_text_of_the_same_size_allocates_nothing)
{
    static const char* const s_names[] = {"common/tokenizers/qwen/tokenizer.json",
                                          "common/tokenizers/gemma3/tokenizer.json",
                                          "common/tokenizers/xlmr/tokenizer.json"};
    static const char s_text[] = "a cafe\xCC\x81  with 3 chairs \xEF\xBC\xA1 \xFF and a very long word: "
                                 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    for (size_t i = 0; i < 3; i++) {
        sumi_tokenizer* tokenizer = load_golden(s_names[i]);
        encode(tokenizer, s_text, sizeof s_text - 1, true);
        uint64_t count = atomic_load(&s_heap.count);
        encode(tokenizer, s_text, sizeof s_text - 1, true);
        CHECK_NUMBER(atomic_load(&s_heap.count), count);
        sumi_tokenizer_destroy(tokenizer);
    }
    CHECK_NUMBER(atomic_load(&s_heap.held), 0);
}

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
        if (token->text[i] == '"' || token->text[i] == '\\') { *(*at)++ = '\\'; }
        *(*at)++ = token->text[i];
    }
    *(*at)++ = '"';
}

static uint32_t hash_token(const token_text* token)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < token->bytes; i++) { hash = (hash ^ (unsigned char)token->text[i]) * 16777619u; }
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
        if (tokens[left].bytes + tokens[right].bytes > 14) { continue; }
        memcpy(token->text, tokens[left].text, tokens[left].bytes);
        memcpy(token->text + tokens[left].bytes, tokens[right].text, tokens[right].bytes);
        token->bytes = (uint8_t)(tokens[left].bytes + tokens[right].bytes);
        uint32_t place = hash_token(token) & seen_mask;
        while (seen[place] != 0
               && (tokens[seen[place] - 1].bytes != token->bytes
                   || memcmp(tokens[seen[place] - 1].text, token->text, token->bytes) != 0)) {
            place = (place + 1) & seen_mask;
        }
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
        while (plain < bytes && letters[plain] >= 'a' && letters[plain] <= 'z') { plain++; }
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
        for (int32_t left = i; left > 0; left /= 26) { text[bytes++] = (char)('a' + left % 26); }
        text[bytes] = '\0';
        const bool is_unit = is_bpe && i % 41 == 0;
        if (is_unit) { snprintf(text, sizeof text, "<u%d>", i); }
        // 'b' + 'a' is the number 1 again: other digits make other texts
        if (!is_unit && text[bytes - 1] == 'a') { text[bytes - 1] = 'z'; }
        put_piece(w, text, is_unit ? 0.0f : -(float)i, is_unit ? 4 : 1);
    }
    if (is_bpe) { put_raw(w, BPE_SPECS, sizeof BPE_SPECS - 1); }
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
            held = (double)atomic_load(&s_heap.held);
            sumi_tokenizer_destroy(tokenizer);
        }
        CHECK(least_worst < 0.2 * least_all && held < 30e6);
        printf("  %.1f MB of %s pieces: loaded in %.0f ms, the longest step %.2f ms, %.1f MB held\n",
               (double)w.bytes / 1e6, is_bpe ? "BPE" : "Unigram", least_all, least_worst, held / 1e6);
        free(w.data);
    }
    CHECK_NUMBER(atomic_load(&s_heap.held), 0);
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
    double held = (double)atomic_load(&heap.held), peak = (double)atomic_load(&heap.peak);
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
             begin = worked_ms()) {
            worst = worked_ms() - begin > worst ? worked_ms() - begin : worst;
        }
        CHECK(done);
        least_worst = worst < least_worst ? worst : least_worst;
    }
    CHECK(least_worst < 0.1 * best);
    printf("  the longest step of 1000 entries took %.2f ms\n", least_worst);
    sumi_tokenizer_destroy(tokenizer);
    CHECK_NUMBER(atomic_load(&heap.held), 0);
    free(json.data);
    free(prompt.data);
}

TEST(hostile_texts_of_100_kB_are_no_slower_than_others)
{
    static const char* const s_names[] = {
        "common/tokenizers/qwen/tokenizer.json", "common/tokenizers/gemma3/tokenizer.json",
        "common/tokenizers/xlmr/tokenizer.json", "common/tokenizers/xlmr-spaces/tokenizer.json"};
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
            for (size_t at = 0; at < TEXT_BYTES; at++) { text[at] = s_patterns[k][at % length]; }
            double took = limit;
            // the first one may have to fetch its tables
            for (int attempt = 0; attempt < 3 && took >= limit; attempt++) {
                double begin = worked_ms();
                encode(tokenizer, text, TEXT_BYTES, true);
                took = worked_ms() - begin;
            }
            worst = took > worst ? took : worst;
            if (took >= limit) { printf("  %s: 100 kB of \"%s\" took %.0f ms\n", s_names[i], s_patterns[k], took); }
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
    RUN(qwen_agrees_with_every_golden_string);
    RUN(gemma_agrees_with_every_golden_string);
    RUN(xlmr_agrees_with_every_golden_string);
    RUN(xlmr_with_space_runs_agrees_with_every_golden_string);
    RUN(qwen_from_vocab_and_merges_gives_the_same_ids);
    RUN(qwen_with_every_file_beside_it_gives_the_same_ids);
    RUN(xlmr_from_sentencepiece_gives_the_same_ids);
    RUN(gemma_from_sentencepiece_gives_the_same_ids);
    RUN(z_image_strings_and_templated_prompts);
    RUN(qwen_image_strings);
    RUN(newbie_strings);
    RUN(malformed_utf8_counts_as_replacement_characters);
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
    RUN(malformed_files_are_refused_with_a_sentence);
    RUN(every_truncated_file_is_refused);
    RUN(a_failed_load_fails_again);
    RUN(malformed_older_files_are_refused);
    RUN(special_tokens_are_cut_out_as_their_map_says);
    RUN(sentencepiece_merges_by_score_from_the_left);
    RUN(malformed_sentencepiece_models_are_refused);
    RUN(damaged_sentencepiece_models_are_survived);
    RUN(any_allocation_may_fail);
    RUN(a_second_text_of_the_same_size_allocates_nothing);
    RUN(a_sentencepiece_model_of_the_released_size_loads_in_small_steps);
    RUN(a_file_of_the_released_size_loads_fast_in_little_memory);
    RUN(hostile_texts_of_100_kB_are_no_slower_than_others);
    TEST_END();
}
