// A SentencePiece model, loaded in small steps and tried on a few texts: the same ids twice, fewer than its size, and
// the same for the text as repaired. A first byte 'C' puts a tokenizer_config.json in front, ended by a zero byte.
// Seeds: tests/fuzz/seeds/sentencepiece
#include "tokenizer_rules.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

static sumi_tokenizer* load(const sumi_tokenizer_files* files)
{
    sumi_tokenizer* tokenizer = NULL;
    sumi_error error = {0};
    if (sumi_tokenizer_begin_sentencepiece(&s_heap, files, &error, &tokenizer) != SUMI_OK) abort();
    return finish(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes)
{
    static const char s_text[] = "ab  abc\tcafe\xCC\x81 \xEF\xBC\xA1 <s>\xE2\x96\x81 \n\xFF 12 aba[x]\r\nthe "
                                 "\xF0\x9F\x91\xA8\xE2\x80\x8D\xF0\x9F\x91\xA9 <mask>   <unk>";
    sumi_heap_init(&s_heap, NULL); // nothing is held from one input to the next
    sumi_tokenizer_files files = {.main = {data, bytes, "fuzz.model"}};
    const uint8_t* zero = bytes > 0 && data[0] == 'C' ? memchr(data, '\0', bytes) : NULL;
    if (zero != NULL) {
        files.config = (sumi_tokenizer_bytes){data + 1, (size_t)(zero - data) - 1, "fuzz.json"};
        files.main.data = zero + 1;
        files.main.bytes = bytes - (size_t)(zero + 1 - data);
    }
    sumi_tokenizer* tokenizer = load(&files);
    if (tokenizer != NULL) {
        encode(tokenizer, s_text, sizeof s_text - 1, false);
        encode(tokenizer, (const char*)data, bytes < 64 ? bytes : 64, false);
        sumi_tokenizer_destroy(tokenizer);
    }
    return 0;
}
