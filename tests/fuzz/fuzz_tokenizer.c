// The first byte says what the rest is. '{': a whole tokenizer.json, to be loaded in small steps and tried on a few
// texts. 'V': vocab.json, merges.txt, tokenizer_config.json, added_tokens.json and special_tokens_map.json, with a zero
// byte between them. Anything else: a text for one of the golden tokenizers (run from the repository's root). Whatever
// loads must give the same ids twice and in steps, fewer than its size, and the same for the text as repaired.
// Seeds: tests/fuzz/seeds/tokenizer
#include "tokenizer_rules.h"
#include "xlmr_spaces.h"
#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

static sumi_tokenizer* s_golden[4];

static sumi_tokenizer* load(const char* json, size_t bytes)
{
    sumi_tokenizer* tokenizer = NULL;
    return sumi_tokenizer_begin(&s_heap, json, bytes, "fuzz.json", NULL, &tokenizer) == SUMI_OK ? finish(tokenizer)
                                                                                                : NULL;
}

static sumi_tokenizer* load_older(const char* text, size_t bytes)
{
    sumi_tokenizer_bytes part[5] = {{text, bytes, "0"}};
    static const char* const s_names[5] = {"0", "1", "2", "3", "4"};
    for (size_t i = 0; i < 4; i++) {
        const char* begin = part[i].data;
        const char* zero = part[i].bytes > 0 ? memchr(begin, '\0', part[i].bytes) : NULL;
        if (zero == NULL) break;
        part[i + 1] = (sumi_tokenizer_bytes){zero + 1, part[i].bytes - (size_t)(zero + 1 - begin), s_names[i + 1]};
        part[i].bytes = (size_t)(zero - begin);
    }
    const sumi_tokenizer_files files = {part[0], part[1], part[2], part[3], part[4]};
    sumi_tokenizer* tokenizer = NULL;
    return sumi_tokenizer_begin_files(&s_heap, &files, NULL, &tokenizer) == SUMI_OK ? finish(tokenizer) : NULL;
}

static void open_golden(void)
{
    static const char* const s_names[3] = {"qwen", "gemma3", "xlmr"};
    sumi_heap_init(&s_heap, NULL);
    for (size_t i = 0; i < 3; i++) {
        char path[256];
        snprintf(path, sizeof path, "tests/golden/common/tokenizers/%s/tokenizer.json", s_names[i]);
        FILE* file = fopen(path, "rb");
        if (file == NULL) {
            abort(); // not in the repository's root
        }
        char* json = calloc(1, 1 << 20);
        size_t bytes = fread(json, 1, (1 << 20) - 1, file);
        fclose(file);
        s_golden[i] = load(json, bytes);
        if (i == 2) {
            char* spaces = xlmr_spaces_json(json);
            if (spaces == NULL) abort();
            s_golden[3] = load(spaces, strlen(spaces));
            free(spaces);
        }
        free(json);
        if (s_golden[i] == NULL) abort();
    }
    if (s_golden[3] == NULL) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes)
{
    static const char s_text[] = "ab  abc\tcafe\xCC\x81 \xEF\xBC\xA1 <e>\xE2\x96\x81 \n\xFF 12 A\r\nthe "
                                 "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9 '\xC5\xBF   <s>";
    if (s_golden[0] == NULL) open_golden();
    if (bytes == 0) return 0;
    const char* text = (const char*)data;
    if (text[0] != '{' && text[0] != 'V') {
        char* tight = malloc(bytes); // the input's own buffer may have room behind it
        memcpy(tight, text + 1, bytes - 1);
        encode(s_golden[data[0] % 4], tight, bytes - 1, true);
        free(tight);
        return 0;
    }
    sumi_tokenizer* tokenizer = text[0] == 'V' ? load_older(text + 1, bytes - 1) : load(text, bytes);
    if (tokenizer != NULL) {
        encode(tokenizer, s_text, sizeof s_text - 1, true);
        encode(tokenizer, text + (bytes < 64 ? 0 : bytes - 64), bytes < 64 ? bytes : 64, true);
        sumi_tokenizer_destroy(tokenizer);
    }
    return 0;
}
