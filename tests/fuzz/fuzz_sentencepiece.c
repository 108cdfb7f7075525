// A SentencePiece model, loaded in small steps and tried on a few texts: the same ids twice, fewer than its size, and
// the same for the text as repaired. A first byte 'C' puts a tokenizer_config.json in front, ended by a zero byte.
// Seeds: tests/fuzz/seeds/sentencepiece
#include "text/tokenizer.h"
#include "text/unicode.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

static sumi_heap s_heap;

static sumi_tokenizer* load(const sumi_tokenizer_files* files)
{
    sumi_tokenizer* tokenizer = NULL;
    bool done = false;
    sumi_error error = {0};
    if (sumi_tokenizer_begin_sentencepiece(&s_heap, files, &error, &tokenizer) != SUMI_OK) { abort(); }
    while (!done) {
        const sumi_result result = sumi_tokenizer_step(tokenizer, 3, &done, NULL, &error);
        if (result != SUMI_OK) {
            if (result != error.result || error.text[0] == '\0'
                || (result != SUMI_FILE_MALFORMED && result != SUMI_NOT_SUPPORTED)) {
                abort();
            }
            sumi_tokenizer_destroy(tokenizer);
            return NULL;
        }
    }
    return tokenizer;
}

static void encode(sumi_tokenizer* tokenizer, const char* text, size_t bytes)
{
    size_t count, again;
    sumi_error error = {0};
    if (sumi_tokenizer_encode(tokenizer, text, bytes, true, NULL, 0, &count, &error) != SUMI_OK) { abort(); }
    int32_t* ids = malloc((2 * count + 1) * sizeof *ids);
    if (sumi_tokenizer_encode(tokenizer, text, bytes, true, ids, count, &again, NULL) != SUMI_OK || again != count) {
        abort();
    }
    for (size_t i = 0; i < count; i++) {
        if (ids[i] < 0 || (size_t)ids[i] >= sumi_tokenizer_size(tokenizer)) { abort(); }
    }
    sumi_text_buffer repaired = {0};
    if (sumi_utf8_repair(&s_heap, &repaired, text, bytes, NULL) != SUMI_OK
        || sumi_tokenizer_encode(tokenizer, sumi_text_data(&repaired), repaired.bytes, true, ids + count, count, &again,
                                 NULL)
               != SUMI_OK
        || again != count || memcmp(ids, ids + count, count * sizeof *ids) != 0) {
        abort();
    }
    sumi_text_release(&s_heap, &repaired);
    free(ids);
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
        encode(tokenizer, s_text, sizeof s_text - 1);
        encode(tokenizer, (const char*)data, bytes < 64 ? bytes : 64);
        sumi_tokenizer_destroy(tokenizer);
    }
    return 0;
}
