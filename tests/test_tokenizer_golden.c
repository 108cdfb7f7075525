// The three tokenizers, of every file that they come in, against the golden strings.
#include "files/json.h"
#include "text/tokenizer.h"
#include "tokenizer_fixture.h"

// ---- Helpers --------------------------------------------------------------------------------------------------------

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
    if (!same) printf("  %s: \"%.60s\": %zu ids, want %zu\n", string->category, string->text, count, string->count);
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
    if (tokenizer != NULL) GIVES(tokenizer, "\n", true, 107);
    sumi_tokenizer_destroy(tokenizer);
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
}

static sumi_tokenizer* load_golden_metadata(const char* name)
{
    blob file = read_golden(name);
    sumi_error error = {0};
    sumi_tokenizer* tokenizer = file.data != NULL ? load_metadata(&s_heap, file.data, file.bytes, &error) : NULL;
    CHECK_TEXT(error.text, "");
    CHECK(tokenizer != NULL);
    free(file.data);
    return tokenizer;
}

TEST(qwen_and_gemma_from_gguf_give_the_same_ids)
{
    sumi_tokenizer* tokenizer = load_golden_metadata("common/tokenizers/qwen/tokenizer.gguf");
    if (tokenizer != NULL) {
        CHECK(check_cases(tokenizer, "common/tokenizers/qwen/cases.jsonl") > 100);
        CHECK_NUMBER(sumi_tokenizer_size(tokenizer), 1514); // without the two that are unused
        CHECK_NUMBER(sumi_tokenizer_id(tokenizer, "[PAD1514]"), -1);
    }
    sumi_tokenizer_destroy(tokenizer);
    tokenizer = load_golden_metadata("common/tokenizers/newbie-gemma/tokenizer.gguf");
    if (tokenizer != NULL) {
        CHECK(check_cases(tokenizer, "common/tokenizers/newbie-gemma/cases.jsonl") > 40);
        CHECK(check_cases(tokenizer, "common/tokenizers/newbie-gemma/cases_sentencepiece.jsonl") > 700);
        CHECK_NUMBER(sumi_tokenizer_size(tokenizer), 1033);
        CHECK_NUMBER(sumi_tokenizer_id(tokenizer, "<bos>"), 2);
    }
    sumi_tokenizer_destroy(tokenizer);
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
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
    for (size_t i = 0; i < 5; i++) free(files[i].data);
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
        load_golden("qwen-image/model-edit/processor/tokenizer.json"),
    };
    CHECK_TEXT(error.text, "");
    for (size_t i = 0; i < 3; i++) {
        CHECK(tokenizers[i] != NULL);
        if (tokenizers[i] != NULL) CHECK(check_cases(tokenizers[i], "common/tokenizers/qwen-image/cases.jsonl") > 10);
        sumi_tokenizer_destroy(tokenizers[i]);
    }
}

// The caller truncates: the first ids of the text, the ends kept.
static void visit_truncated(sumi_tokenizer* tokenizer, const golden_string* string)
{
    size_t with = encode(tokenizer, "", 0, true), count = encode(tokenizer, string->text, string->bytes, true);
    int32_t last = s_ids[count - 1];
    CHECK(count >= string->count && string->count == (size_t)string->max_length);
    if (with == 2) s_ids[string->count - 1] = last;
    CHECK(memcmp(s_ids, string->ids, string->count * sizeof *s_ids) == 0);
}

TEST(newbie_strings)
{
    static const char *const s_folders[] = {"newbie-gemma", "newbie-jina"},
                             *const s_tokenizers[] = {"newbie/model/text_encoder/tokenizer.json",
                                                      "newbie/model/clip_model/tokenizer.json"};
    for (size_t i = 0; i < 2; i++) {
        char name[256];
        sumi_tokenizer* tokenizer = load_golden(s_tokenizers[i]);
        CHECK(tokenizer != NULL);
        if (tokenizer == NULL) continue;
        snprintf(name, sizeof name, "common/tokenizers/%s/cases.jsonl", s_folders[i]);
        CHECK(check_cases(tokenizer, name) >= 10);
        snprintf(name, sizeof name, "common/tokenizers/%s/truncated.json", s_folders[i]);
        CHECK(visit_list(tokenizer, name, "truncated", "text", visit_truncated) > 0);
        sumi_tokenizer_destroy(tokenizer);
    }
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
    RUN(qwen_and_gemma_from_gguf_give_the_same_ids);
    RUN(z_image_strings_and_templated_prompts);
    RUN(qwen_image_strings);
    RUN(newbie_strings);
    TEST_END();
}
