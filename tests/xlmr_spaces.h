// The tokenizer.json of tests/golden/common/tokenizers/xlmr-spaces. Its vocabulary and its map of characters, which are
// nearly all of the file, are those of xlmr; so it is made of the text of that file. It differs in three members: runs
// of blanks become one blank, words are not split before the metaspace, and the metaspace has the keys of older files.
#ifndef XLMR_SPACES_H
#define XLMR_SPACES_H
#include <stdlib.h>
#include <string.h>

#define XLMR_SPACES_METASPACE                                                                                          \
    "{\"type\": \"Metaspace\", \"replacement\": \"\xE2\x96\x81\", \"str_rep\": \"\xE2\x96\x81\", "                     \
    "\"add_prefix_space\": true},\n  "

// `xlmr` is the text of xlmr/tokenizer.json. NULL: it is not that text. The caller frees the result.
static inline char* xlmr_spaces_json(const char* xlmr)
{
    static const struct {
        const char *begin, *end, *instead; // of what lies between the begins of the two
    } s_edits[] = {
        {"\"normalizer\": {", "\"type\": \"Precompiled\"",
         "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\n    "},
        {"},\n  \"pre_tokenizer\": {", "\"post_processor\": {",
         "}, {\"type\": \"Replace\", \"pattern\": {\"Regex\": \" {2,}\"}, \"content\": \" \"}]},\n"
         "  \"pre_tokenizer\": " XLMR_SPACES_METASPACE},
        {"\"decoder\": {", "\"model\": {", "\"decoder\": " XLMR_SPACES_METASPACE},
    };
    size_t room = strlen(xlmr) + 1;
    for (size_t i = 0; i < sizeof s_edits / sizeof *s_edits; i++) room += strlen(s_edits[i].instead);
    char* json = malloc(room);
    json[0] = '\0';
    char* to = json;
    for (size_t i = 0; i < sizeof s_edits / sizeof *s_edits; i++) {
        const char* begin = strstr(xlmr, s_edits[i].begin);
        const char* end = begin != NULL ? strstr(begin, s_edits[i].end) : NULL;
        if (end == NULL) {
            free(json);
            return NULL;
        }
        memcpy(to, xlmr, (size_t)(begin - xlmr));
        to += begin - xlmr;
        strcpy(to, s_edits[i].instead);
        to += strlen(to);
        xlmr = end;
    }
    strcpy(to, xlmr);
    return json;
}
#endif
