// What tests of tokenizers share: loading one of bytes or files, golden strings with their ids, and models of
// SentencePiece written by hand. SUMI_GOLDEN names another folder of the layout of tests/golden.
#ifndef TOKENIZER_FIXTURE_H
#define TOKENIZER_FIXTURE_H
#include "test.h"
#include "text/tokenizer.h"
#include "xlmr_spaces.h"

// ---- Helpers --------------------------------------------------------------------------------------------------------

typedef struct blob {
    char* data;
    size_t bytes;
} blob;

static inline blob read_golden(const char* name)
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

static sumi_heap s_heap;

static inline sumi_tokenizer* load_bytes(sumi_heap* heap, const char* json, size_t bytes, sumi_error* error)
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

#define XLMR_TOKENIZER "common/tokenizers/xlmr/tokenizer.json"
#define XLMR_SPACES_TOKENIZER "common/tokenizers/xlmr-spaces/tokenizer.json" // made of the other's text

// The text of a tokenizer.json.
static inline blob read_golden_tokenizer(const char* name)
{
    if (strcmp(name, XLMR_SPACES_TOKENIZER) != 0) return read_golden(name);
    blob xlmr = read_golden(XLMR_TOKENIZER), made = {NULL, 0};
    if (xlmr.data != NULL) made.data = xlmr_spaces_json(xlmr.data);
    if (made.data != NULL) made.bytes = strlen(made.data);
    free(xlmr.data);
    return made;
}

static inline sumi_tokenizer* load_golden(const char* name)
{
    blob json = read_golden_tokenizer(name);
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
static int32_t s_ids[MAX_IDS];

static inline size_t encode(sumi_tokenizer* tokenizer, const char* text, size_t bytes, bool special)
{
    size_t count = 0;
    sumi_error error = {0};
    if (sumi_tokenizer_encode(tokenizer, text, bytes, special, s_ids, MAX_IDS, &count, &error) != SUMI_OK)
        CHECK_TEXT(error.text, "");
    return count;
}

static inline bool gives(sumi_tokenizer* tokenizer, const char* text, bool special, const int32_t* want,
                         size_t want_count)
{
    size_t count = encode(tokenizer, text, strlen(text), special);
    bool same = count == want_count && memcmp(s_ids, want, count * sizeof *want) == 0;
    if (!same) {
        printf("  \"%s\" gives", text);
        for (size_t i = 0; i < count; i++) printf(" %d", s_ids[i]);
        printf("\n");
    }
    return same;
}

#define GIVES(tokenizer, text, special, ...)                                                                           \
    CHECK(gives(tokenizer, text, special, (const int32_t[]){__VA_ARGS__},                                              \
                sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

static inline char* edited(const char* base, const char* from, const char* to)
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

// ---- Golden strings -------------------------------------------------------------------------------------------------

static inline sumi_tokenizer* load_files(sumi_heap* heap, const char* folder, const char* added_name, sumi_error* error)
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

// In small steps, none of which may fall behind in progress.
static inline sumi_tokenizer* load_pieces(sumi_heap* heap, const void* data, size_t bytes, const char* config,
                                          sumi_error* error)
{
    const sumi_tokenizer_files files = {.main = {data, bytes, "t.model"},
                                        .config = {config, config != NULL ? strlen(config) : 0, NULL}};
    sumi_tokenizer* tokenizer = NULL;
    float progress, last = 0.0f;
    bool done = false;
    if (sumi_tokenizer_begin_sentencepiece(heap, &files, error, &tokenizer) != SUMI_OK) return NULL;
    while (!done && sumi_tokenizer_step(tokenizer, 20, &done, &progress, error) == SUMI_OK) {
        CHECK(progress >= last && progress <= 1.0f);
        last = progress;
    }
    if (done) return tokenizer;
    sumi_tokenizer_destroy(tokenizer);
    return NULL;
}

// The tokenizer in the metadata of a GGUF file, in small steps.
static inline sumi_tokenizer* load_metadata(sumi_heap* heap, const void* data, size_t bytes, sumi_error* error)
{
    sumi_tokenizer* tokenizer = NULL;
    float progress, last = 0.0f;
    bool done = false;
    sumi_tensor_set set;
    sumi_tensor_set_init(&set, heap, NULL);
    sumi_result result = sumi_gguf_read(&set, data, bytes, "t.gguf", error);
    if (result == SUMI_OK) result = sumi_tokenizer_begin_gguf(heap, &set, "t.gguf", error, &tokenizer);
    while (result == SUMI_OK && !done) {
        result = sumi_tokenizer_step(tokenizer, 20, &done, &progress, error);
        CHECK(result != SUMI_OK || (progress >= last && progress <= 1.0f));
        last = progress;
    }
    sumi_tensor_set_close(&set);
    if (done) return tokenizer;
    sumi_tokenizer_destroy(tokenizer);
    return NULL;
}

#define XLMR_MODEL "common/tokenizers/xlmr/sentencepiece.bpe.model"
#define GEMMA_MODEL "common/tokenizers/newbie-gemma/tokenizer.model"

// as beside it: what the model lacks of the tokenizer.json
#define GEMMA_CONFIG                                                                                                   \
    "{\"tokenizer_class\":\"GemmaTokenizer\",\"add_bos_token\":true,\"added_tokens_decoder\":{\"1032\":{\"content\":"  \
    "\"<image_soft_token>\",\"special\":true}}}"

// ---- Small pieces ---------------------------------------------------------------------------------------------------

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

// ---- Loading --------------------------------------------------------------------------------------------------------

static inline sumi_tokenizer_bytes bytes_of(const char* text, const char* path)
{
    return (sumi_tokenizer_bytes){text, text != NULL ? strlen(text) : 0, text != NULL ? path : NULL};
}

static uint32_t s_random;

static inline uint32_t next_random(void)
{
    s_random = s_random * 1664525u + 1013904223u;
    return s_random >> 8;
}

// ---- SentencePiece --------------------------------------------------------------------------------------------------

// A model written by hand. type 0: the field is left out, so that it is a normal piece.
typedef struct model_writer {
    unsigned char* data;
    size_t bytes, capacity;
} model_writer;

static inline void put_raw(model_writer* w, const void* data, size_t bytes)
{
    if (w->bytes + bytes > w->capacity) {
        w->capacity = 2 * (w->bytes + bytes);
        w->data = realloc(w->data, w->capacity);
    }
    memcpy(w->data + w->bytes, data, bytes);
    w->bytes += bytes;
}

static inline void put_byte(model_writer* w, int byte)
{
    const unsigned char c = (unsigned char)byte;
    put_raw(w, &c, 1);
}

static inline void put_piece(model_writer* w, const char* text, float score, int type)
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
#endif
