// The forms of a tokenizer other than tokenizer.json: vocab.json with merges.txt, and the files that vocab.json and
// SentencePiece models may have beside them. These are read in this order, each if it exists:
//
//     added_tokens.json         {"<|endoftext|>": 151643, ...}                    texts and ids, no flags
//     tokenizer_config.json     the class, "added_tokens_decoder": {"151643": {"content": "<|endoftext|>", ...}, ...}
//     special_tokens_map.json   {"eos_token": "<|im_end|>", ...}                  no ids: each must have one by now
//
// One item of a step's budget is one line, one member or one token.
#include "base/assert.h"
#include "text/tokenizer_loading.h"
#include "text/word_split.h"

static const sumi_tokenizer_bytes* file_of(const sumi_tokenizer_loading* l, sumi_load_phase phase)
{
    return phase == SUMI_LOAD_ADDED_FILE ? &l->files.added
         : phase == SUMI_LOAD_CONFIG     ? &l->files.config
                                         : &l->files.special;
}

// An empty file exists although it has no data.
static bool has_file(const sumi_tokenizer_bytes* file) { return file->data != NULL || file->path != NULL; }

sumi_result sumi_load_beside(sumi_loader* load, sumi_load_phase phase)
{
    static const sumi_load_phase s_phases[] = {SUMI_LOAD_ADDED_FILE, SUMI_LOAD_CONFIG, SUMI_LOAD_SPECIAL};
    sumi_tokenizer_loading* l = load->l;
    SUMI_ASSERT(phase >= SUMI_LOAD_ADDED_FILE && phase <= SUMI_LOAD_FINISH && phase != SUMI_LOAD_CONFIG_TOKENS);
    for (size_t i = 0; i < sizeof s_phases / sizeof *s_phases; i++) {
        const sumi_tokenizer_bytes* file = file_of(l, s_phases[i]);
        if (s_phases[i] >= phase && has_file(file)) {
            sumi_json_begin(load->j, file->data, file->bytes, load->error);
            load->j->name = file->path != NULL ? file->path : load->t->path;
            l->phase = s_phases[i];
            sumi_json_object(load->j);
            return sumi_load_result(load->j);
        }
    }
    l->phase = SUMI_LOAD_FINISH;
    return SUMI_OK;
}

static sumi_result end_file(sumi_loader* load)
{
    SUMI_TRY(sumi_json_end(load->j));
    load->l->passed_bytes += file_of(load->l, load->l->phase)->bytes;
    return sumi_load_beside(load, load->l->phase == SUMI_LOAD_ADDED_FILE ? SUMI_LOAD_CONFIG
                                  : load->l->phase == SUMI_LOAD_CONFIG   ? SUMI_LOAD_SPECIAL
                                                                         : SUMI_LOAD_FINISH);
}

// ---- merges.txt -----------------------------------------------------------------------------------------------------

sumi_result sumi_load_merges_text(sumi_loader* load)
{
    sumi_tokenizer_loading* l = load->l;
    const sumi_tokenizer_bytes* merges = &l->files.merges;
    if (l->position == merges->bytes) {
        SUMI_TRY(sumi_load_waiting_merges(load));
        l->passed_bytes += merges->bytes;
        return sumi_load_beside(load, SUMI_LOAD_ADDED_FILE);
    }
    const char* line = (const char*)merges->data + l->position;
    const size_t remaining_bytes = merges->bytes - l->position;
    const char* end = memchr(line, '\n', remaining_bytes);
    size_t bytes = end != NULL ? (size_t)(end - line) : remaining_bytes;
    l->position += bytes + (end != NULL);
    l->merge_line++;
    bytes -= bytes != 0 && line[bytes - 1] == '\r';
    if (bytes == 0 || (l->merge_line == 1 && bytes >= 8 && memcmp(line, "#version", 8) == 0)) return SUMI_OK;
    return sumi_load_merge_line(load, line, bytes);
}

// ---- added_tokens.json ----------------------------------------------------------------------------------------------

sumi_result sumi_load_added_file(sumi_loader* load)
{
    const sumi_added_token plain = {0};
    sumi_json_text key;
    const char* text;
    size_t bytes;
    if (!sumi_json_key(load->j, &key)) {
        SUMI_TRY(sumi_load_result(load->j));
        return end_file(load);
    }
    load->l->text.bytes = 0;
    SUMI_TRY(sumi_load_text(load, &key, &text, &bytes));
    const uint64_t id = sumi_json_unsigned(load->j);
    SUMI_TRY(sumi_load_result(load->j));
    return sumi_load_add_token(load, text, bytes, id, &plain);
}

// ---- tokenizer_config.json ------------------------------------------------------------------------------------------

// Another tokenizer class splits texts differently, and these files do not say how. Refuses it.
static sumi_result check_class(sumi_loader* load)
{
    static const char* const s_vocabulary[] = {"Qwen2Tokenizer", "Qwen2TokenizerFast", NULL};
    static const char* const s_bpe[] = {"GemmaTokenizer", "GemmaTokenizerFast", NULL};
    static const char* const s_unigram[] = {"XLMRobertaTokenizer", "XLMRobertaTokenizerFast", NULL};
    const char* const* classes = load->l->form == SUMI_TOKENIZER_VOCABULARY ? s_vocabulary
                               : load->t->model == SUMI_TOKEN_MODEL_BPE     ? s_bpe
                                                                            : s_unigram;
    sumi_json_text name = {0};
    sumi_load_string_or_null(load, &name);
    SUMI_TRY(sumi_load_result(load->j));
    for (size_t i = 0; sumi_load_has(&name) && classes[i] != NULL; i++) {
        if (sumi_json_is(&name, classes[i])) return SUMI_OK;
    }
    return sumi_load_has(&name) ? sumi_load_unsupported(load, "the tokenizer_class", &name) : SUMI_OK;
}

sumi_result sumi_load_config(sumi_loader* load)
{
    sumi_tokenizer_loading* l = load->l;
    sumi_json* j = load->j;
    sumi_json_text key;
    if (!sumi_json_key(j, &key)) {
        SUMI_TRY(sumi_load_result(j));
        return end_file(load);
    }
    if (sumi_json_is(&key, "added_tokens_decoder")) {
        l->has_decoder = !sumi_json_null(j);
        if (l->has_decoder && sumi_json_object(j)) l->phase = SUMI_LOAD_CONFIG_TOKENS;
    } else if (sumi_json_is(&key, "tokenizer_class")) {
        return check_class(load);
    } else if (sumi_json_is(&key, "add_bos_token")) {
        l->has_bos_setting = !sumi_json_null(j);
        l->wants_bos = l->has_bos_setting && sumi_json_bool(j);
    } else if (sumi_json_is(&key, "add_eos_token")) {
        l->wants_eos = sumi_load_bool(load, false);
    } else if (sumi_json_is(&key, "add_prefix_space")) {
        if (sumi_load_bool(load, false) && l->form == SUMI_TOKENIZER_VOCABULARY) {
            return sumi_fail(load->error, SUMI_NOT_SUPPORTED,
                             "%s: add_prefix_space is true, which is not supported for this form of a tokenizer; use "
                             "the tokenizer that was released with the model",
                             j->name);
        }
    } else {
        sumi_json_skip(j);
    }
    return sumi_load_result(j);
}

sumi_result sumi_load_config_token(sumi_loader* load)
{
    sumi_json_text key;
    if (!sumi_json_key(load->j, &key)) {
        load->l->phase = SUMI_LOAD_CONFIG;
        return sumi_load_result(load->j);
    }
    uint64_t id = 0;
    bool digits = key.bytes > 0 && key.bytes <= 9 && !key.escaped;
    for (size_t i = 0; digits && i < key.bytes; i++) {
        digits = key.data[i] >= '0' && key.data[i] <= '9';
        id = id * 10 + (uint64_t)(key.data[i] - '0');
    }
    return digits ? sumi_load_added_token(load, &id)
                  : sumi_load_refuse(load, "an added token whose id is not a number");
}

// ---- special_tokens_map.json ----------------------------------------------------------------------------------------

// Reads a token: its text, or {"content": ..., "lstrip": ...}.
static sumi_result read_special(sumi_loader* load)
{
    sumi_tokenizer* t = load->t;
    sumi_json* j = load->j;
    sumi_json_text key, content = {0};
    sumi_added_token flags = {0};
    const bool is_object = sumi_json_peek(j) == SUMI_JSON_OBJECT;
    if (!is_object) {
        sumi_load_string_or_null(load, &content);
    } else if (sumi_json_object(j)) {
        while (sumi_json_key(j, &key)) {
            if (sumi_json_is(&key, "content")) {
                sumi_json_string(j, &content);
            } else if (sumi_load_flag(load, &key, &flags)) {
                continue;
            } else if (sumi_json_is(&key, "normalized")) {
                flags.normalized = sumi_load_bool(load, false);
            } else {
                sumi_json_skip(j);
            }
        }
    }
    SUMI_TRY(sumi_load_result(j));
    if (content.bytes == 0) return SUMI_OK;
    const char* text;
    size_t bytes;
    load->l->text.bytes = 0;
    SUMI_TRY(sumi_load_text(load, &content, &text, &bytes));
    uint32_t entry = t->added.slots != NULL ? sumi_vocabulary_find(&t->added, text, bytes) : SUMI_VOCABULARY_NONE;
    if (entry != SUMI_VOCABULARY_NONE) {
        // flags from tokenizer_config.json or from the SentencePiece model take precedence over this file's
        if (!is_object || load->l->has_decoder || load->l->form == SUMI_TOKENIZER_SENTENCEPIECE) return SUMI_OK;
        return sumi_load_add_token(load, text, bytes, sumi_vocabulary_id(&t->added, entry), &flags);
    }
    const sumi_vocabulary* vocabulary = t->model == SUMI_TOKEN_MODEL_BPE ? &t->bpe.vocabulary : &t->unigram.vocabulary;
    entry = sumi_vocabulary_find(vocabulary, text, bytes);
    if (entry == SUMI_VOCABULARY_NONE) {
        return sumi_fail(
            load->error, SUMI_FILE_MALFORMED,
            "%s: it names the token \"%.*s\", to which no other file of the tokenizer gives an id; download "
            "the tokenizer's folder again",
            j->name, sumi_load_shown(text, bytes), text);
    }
    return sumi_load_add_token(load, text, bytes, sumi_vocabulary_id(vocabulary, entry), &flags);
}

sumi_result sumi_load_special(sumi_loader* load)
{
    sumi_json_text key;
    if (!sumi_json_key(load->j, &key)) {
        SUMI_TRY(sumi_load_result(load->j));
        return end_file(load);
    }
    if (sumi_json_peek(load->j) != SUMI_JSON_ARRAY) return read_special(load);
    sumi_json_array(load->j); // additional_special_tokens
    while (sumi_json_item(load->j)) SUMI_TRY(read_special(load));
    return sumi_load_result(load->j);
}

// ---- Begin ----------------------------------------------------------------------------------------------------------

sumi_result sumi_tokenizer_begin_files(sumi_heap* heap, const sumi_tokenizer_files* files, sumi_error* error,
                                       sumi_tokenizer** out_tokenizer)
{
    *out_tokenizer = NULL;
    if (!has_file(&files->merges)) {
        return sumi_fail(error, SUMI_FILE_NOT_FOUND,
                         "%s: a vocab.json needs a merges.txt beside it, which is missing; download it, or the "
                         "model's tokenizer.json",
                         files->main.path != NULL ? files->main.path : "vocab.json");
    }
    // in the released files a token takes 16 to 24 bytes of vocab.json
    SUMI_TRY(sumi_load_begin(heap, SUMI_TOKENIZER_VOCABULARY, files, 16, error, out_tokenizer));
    sumi_tokenizer* t = *out_tokenizer;
    sumi_tokenizer_loading* l = t->loading;
    sumi_json_begin(&l->json, files->main.data, files->main.bytes, error);
    l->json.name = t->path;
    sumi_loader load = {t, l, &l->json, error};
    // these files do not describe the pipeline: it is the one of the class Qwen2Tokenizer
    t->byte_level = true;
    t->normalize[t->normalize_count++] = (sumi_normalize_step){.kind = SUMI_NORMALIZE_NFC};
    t->split[t->split_count++] = (sumi_split_step){.kind = SUMI_SPLIT_QWEN};
    sumi_result result = sumi_load_begin_vocabulary(&load);
    if (result == SUMI_OK && t->model != SUMI_TOKEN_MODEL_BPE)
        result = sumi_load_refuse(&load, "a vocab.json must be an object");
    if (result != SUMI_OK) {
        sumi_tokenizer_destroy(t);
        *out_tokenizer = NULL;
    }
    return result;
}
