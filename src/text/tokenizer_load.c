// Reads a tokenizer into its tables, a bounded number of entries per step. The JSON reader's cursor is a plain value,
// so a pause is nothing but keeping it:
//
//     TOP ──"added_tokens"──> ADDED ──┐          TOP: one member of the file per item; small members are read at once
//      │ ^────────────────────────────┘
//      └──"model"──> MODEL ──"vocab"──> VOCABULARY ──> MODEL ──"merges"──> MERGES ──> MODEL ──> TOP ──> FINISH
//
// Merges name tokens, so the vocabulary must be known first. A file that has them the other way round keeps a copy of
// the cursor and comes back to it. The other forms (tokenizer_files.c, sentencepiece.c) end with the files beside them:
//
//     vocab.json      VOCABULARY ──> MERGES_TEXT ──┐
//     SentencePiece   SCAN ────────> PIECES ───────┴──> ADDED_FILE ──> CONFIG <──> CONFIG_TOKENS ──> SPECIAL ──> FINISH
#include "text/tokenizer_loading.h"

// ---- Small steps ----------------------------------------------------------------------------------------------------

sumi_result sumi_load_refuse(sumi_loader* load, const char* reason)
{
    sumi_json_refuse(load->j, reason);
    return sumi_load_result(load->j);
}

int sumi_load_shown(const char* text, size_t bytes)
{
    size_t length = bytes < 64 ? bytes : 64;
    while (length < bytes && length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80) { length--; }
    return (int)length;
}

sumi_result sumi_load_unsupported(sumi_loader* load, const char* what, const sumi_json_text* name)
{
    return sumi_fail(load->error, SUMI_NOT_SUPPORTED,
                     "%s: %s \"%.*s\" is not one this library has; use the tokenizer that was released with the model",
                     load->t->path, what, sumi_load_shown(name->data, name->bytes), name->data);
}

// A string without its escapes: in place when it has none, else appended to the sumi_loader's buffer, which the caller
// empties.
sumi_result sumi_load_text(sumi_loader* load, const sumi_json_text* text, const char** out_text, size_t* out_bytes)
{
    if (!text->escaped) {
        *out_text = text->data;
        *out_bytes = text->bytes;
        return SUMI_OK;
    }
    sumi_text_buffer* buffer = &load->l->text;
    SUMI_TRY(sumi_text_reserve(load->t->heap, buffer, text->bytes, load->error));
    *out_text = sumi_text_data(buffer) + buffer->bytes;
    *out_bytes = sumi_json_decode(text, sumi_text_data(buffer) + buffer->bytes, text->bytes);
    buffer->bytes += *out_bytes;
    return SUMI_OK;
}

sumi_result sumi_load_short_text(sumi_loader* load, const sumi_json_text* text, const char* what, sumi_short_text* out)
{
    out->bytes = sumi_json_decode(text, out->data, sizeof out->data);
    if (out->bytes > sizeof out->data) {
        return sumi_fail(load->error, SUMI_NOT_SUPPORTED,
                         "%s: %s is longer than %zu bytes; use the tokenizer that was released with the model",
                         load->t->path, what, sizeof out->data);
    }
    return SUMI_OK;
}

// ---- Ids ------------------------------------------------------------------------------------------------------------

sumi_result sumi_load_take_id(sumi_loader* load, uint64_t id, bool* out_taken)
{
    sumi_tokenizer_loading* l = load->l;
    size_t byte = (size_t)id / 8;
    if (byte >= l->id_bit_bytes) {
        SUMI_TRY(sumi_grow(load->t->heap, &l->id_bits, &l->id_bit_capacity, byte + 1, 1, load->error));
        memset((uint8_t*)l->id_bits + l->id_bit_bytes, 0, l->id_bit_capacity - l->id_bit_bytes);
        l->id_bit_bytes = l->id_bit_capacity;
    }
    uint8_t* bits = (uint8_t*)l->id_bits + byte;
    *out_taken = (*bits >> id % 8 & 1) != 0;
    *bits |= (uint8_t)(1u << id % 8);
    load->t->size = load->t->size > (size_t)id + 1 ? load->t->size : (size_t)id + 1;
    return SUMI_OK;
}

sumi_result sumi_load_check_id(sumi_loader* load, uint64_t id, const char* token, size_t bytes)
{
    if (id > SUMI_VOCABULARY_MAX_COUNT) {
        return sumi_fail(load->error, SUMI_FILE_MALFORMED,
                         "%s: token \"%.*s\" has the id %llu, ids go to %u; download the file again", load->t->path,
                         sumi_load_shown(token, bytes), token, (unsigned long long)id, SUMI_VOCABULARY_MAX_COUNT);
    }
    return SUMI_OK;
}

// ---- Added tokens ---------------------------------------------------------------------------------------------------

sumi_result sumi_load_add_token(sumi_loader* load, const char* text, size_t bytes, uint64_t id,
                                const sumi_added_token* flags)
{
    sumi_tokenizer* t = load->t;
    if (bytes == 0) {
        return SUMI_OK; // the reference ignores it as well
    }
    if (bytes > SUMI_TOKENIZER_MAX_WALKED_TOKEN) {
        return sumi_fail(load->error, SUMI_NOT_SUPPORTED,
                         "%s: an added token has %zu bytes, at most %d are supported; use the tokenizer that was "
                         "released with the model",
                         t->path, bytes, SUMI_TOKENIZER_MAX_WALKED_TOKEN);
    }
    SUMI_TRY(sumi_load_check_id(load, id, text, bytes));
    if (t->added.slots == NULL) { SUMI_TRY(sumi_vocabulary_begin(&t->added, t->heap, 64, true, load->error)); }
    uint32_t entry;
    bool existed;
    SUMI_TRY(sumi_grow(t->heap, &t->added_tokens, &t->added_capacity, t->added.count + 1, sizeof(sumi_added_token),
                       load->error));
    SUMI_TRY(sumi_vocabulary_add(&t->added, text, bytes, (uint32_t)id, &entry, &existed, load->error));
    if (existed && sumi_vocabulary_id(&t->added, entry) != id) {
        return sumi_fail(load->error, SUMI_FILE_MALFORMED,
                         "%s: the added token \"%.*s\" has two ids, %u and %u; download the file again", t->path,
                         sumi_load_shown(text, bytes), text, sumi_vocabulary_id(&t->added, entry), (uint32_t)id);
    }
    ((sumi_added_token*)t->added_tokens)[entry] = *flags;
    ((sumi_added_token*)t->added_tokens)[entry].id = (uint32_t)id;
    return SUMI_OK;
}

// One object of added_tokens, or of added_tokens_decoder, where the id is the key.
sumi_result sumi_load_added_token(sumi_loader* load, const uint64_t* id_of_key)
{
    sumi_json* j = load->j;
    sumi_json_text key, content = {0};
    sumi_added_token flags = {0};
    uint64_t id = id_of_key != NULL ? *id_of_key : 0;
    bool has_id = id_of_key != NULL;
    flags.normalized = true; // the reference's default: special tokens are not normalised, others are
    bool special = false, has_normalized = false;
    if (sumi_json_object(j)) {
        while (sumi_json_key(j, &key)) {
            if (sumi_json_is(&key, "id") && id_of_key == NULL) {
                id = sumi_json_unsigned(j);
                has_id = true;
            } else if (sumi_json_is(&key, "content")) {
                sumi_json_string(j, &content);
            } else if (sumi_json_is(&key, "single_word")) {
                flags.single_word = sumi_load_bool(load, false);
            } else if (sumi_json_is(&key, "lstrip")) {
                flags.lstrip = sumi_load_bool(load, false);
            } else if (sumi_json_is(&key, "rstrip")) {
                flags.rstrip = sumi_load_bool(load, false);
            } else if (sumi_json_is(&key, "normalized")) {
                flags.normalized = sumi_load_bool(load, true);
                has_normalized = true;
            } else if (sumi_json_is(&key, "special")) {
                special = sumi_load_bool(load, false);
            } else {
                sumi_json_skip(j);
            }
        }
    }
    SUMI_TRY(sumi_load_result(j));
    if (!has_id || !sumi_load_has(&content)) { return sumi_load_refuse(load, "an added token without id or content"); }
    flags.normalized = has_normalized ? flags.normalized : !special;
    const char* text;
    size_t bytes;
    load->l->text.bytes = 0;
    SUMI_TRY(sumi_load_text(load, &content, &text, &bytes));
    return sumi_load_add_token(load, text, bytes, id, &flags);
}

// ---- Model ----------------------------------------------------------------------------------------------------------

sumi_result sumi_load_begin_vocabulary(sumi_loader* load)
{
    sumi_tokenizer* t = load->t;
    sumi_tokenizer_loading* l = load->l;
    sumi_json_type type = sumi_json_peek(load->j);
    if (l->has_vocabulary) { return sumi_load_refuse(load, "a second vocab"); }
    sumi_token_model model = type == SUMI_JSON_ARRAY ? SUMI_TOKEN_MODEL_UNIGRAM : SUMI_TOKEN_MODEL_BPE;
    if (l->has_type && model != t->model) {
        return sumi_load_refuse(load, t->model == SUMI_TOKEN_MODEL_BPE
                                          ? "the vocab of a BPE model must be an object"
                                          : "the vocab of a Unigram model must be an array");
    }
    if (!(model == SUMI_TOKEN_MODEL_BPE ? sumi_json_object(load->j) : sumi_json_array(load->j))) {
        return sumi_load_result(load->j);
    }
    t->model = model;
    l->has_vocabulary = true;
    l->phase = SUMI_LOAD_VOCABULARY;
    if (model == SUMI_TOKEN_MODEL_BPE) {
        return sumi_vocabulary_begin(&t->bpe.vocabulary, t->heap, l->expected_count, false, load->error);
    }
    return sumi_vocabulary_begin(&t->unigram.vocabulary, t->heap, l->expected_count, true, load->error);
}

static sumi_result read_bpe_entry(sumi_loader* load, const sumi_json_text* key)
{
    sumi_tokenizer* t = load->t;
    const char* text;
    size_t bytes;
    load->l->text.bytes = 0;
    SUMI_TRY(sumi_load_text(load, key, &text, &bytes));
    uint64_t id = sumi_json_unsigned(load->j);
    SUMI_TRY(sumi_load_result(load->j));
    SUMI_TRY(sumi_load_check_id(load, id, text, bytes));
    uint32_t entry;
    bool existed, taken;
    SUMI_TRY(sumi_vocabulary_add(&t->bpe.vocabulary, text, bytes, (uint32_t)id, &entry, &existed, load->error));
    SUMI_TRY(sumi_load_take_id(load, id, &taken));
    if (existed || taken) {
        return sumi_fail(load->error, SUMI_FILE_MALFORMED,
                         "%s: token \"%.*s\" with id %llu: %s; download the file again", t->path,
                         sumi_load_shown(text, bytes), text, (unsigned long long)id,
                         existed ? "the token is there twice" : "another token has that id");
    }
    return SUMI_OK;
}

sumi_result sumi_load_unigram_piece(sumi_loader* load, const char* text, size_t bytes, double score)
{
    sumi_unigram* unigram = &load->t->unigram;
    if (bytes > SUMI_TOKENIZER_MAX_WALKED_TOKEN) {
        return sumi_fail(
            load->error, SUMI_NOT_SUPPORTED,
            "%s: a piece has %zu bytes, at most %d are supported; use the tokenizer that was released with the model",
            load->t->path, bytes, SUMI_TOKENIZER_MAX_WALKED_TOKEN);
    }
    uint32_t entry;
    bool existed;
    SUMI_TRY(sumi_load_check_id(load, unigram->piece_count, text, bytes));
    SUMI_TRY(sumi_grow(load->t->heap, &unigram->scores, &unigram->score_capacity, unigram->vocabulary.count + 1,
                       sizeof(double), load->error));
    SUMI_TRY(sumi_vocabulary_add(&unigram->vocabulary, text, bytes, (uint32_t)unigram->piece_count, &entry, &existed,
                                 load->error));
    // ids are places in the list, so a piece that is there twice is the later one, as for the reference
    ((sumi_vocabulary_entry*)unigram->vocabulary.entries)[entry].id = (uint32_t)unigram->piece_count;
    ((double*)unigram->scores)[entry] = score;
    unigram->min_score = unigram->piece_count == 0 || score < unigram->min_score ? score : unigram->min_score;
    unigram->piece_count++;
    load->t->size = load->t->size > unigram->piece_count ? load->t->size : unigram->piece_count;
    return SUMI_OK;
}

static sumi_result read_unigram_entry(sumi_loader* load)
{
    sumi_json* j = load->j;
    sumi_json_text piece = {0};
    double score = 0.0;
    bool whole = false;
    if (sumi_json_array(j) && sumi_json_item(j) && sumi_json_string(j, &piece) && sumi_json_item(j)) {
        score = sumi_json_number(j);
        whole = !sumi_json_item(j);
    }
    SUMI_TRY(sumi_load_result(j));
    if (!whole) { return sumi_load_refuse(load, "a piece and its score are due"); }
    const char* text;
    size_t bytes;
    load->l->text.bytes = 0;
    SUMI_TRY(sumi_load_text(load, &piece, &text, &bytes));
    return sumi_load_unigram_piece(load, text, bytes, score);
}

static sumi_result read_vocabulary_entry(sumi_loader* load)
{
    sumi_json_text key;
    bool more = load->t->model == SUMI_TOKEN_MODEL_BPE ? sumi_json_key(load->j, &key) : sumi_json_item(load->j);
    if (more) { return load->t->model == SUMI_TOKEN_MODEL_BPE ? read_bpe_entry(load, &key) : read_unigram_entry(load); }
    SUMI_TRY(sumi_load_result(load->j));
    if (load->l->form == SUMI_TOKENIZER_VOCABULARY) {
        SUMI_TRY(sumi_json_end(load->j));
        load->l->passed_bytes += load->l->files.main.bytes;
        load->l->phase = SUMI_LOAD_MERGES_TEXT;
        return sumi_merges_begin(&load->t->bpe.merges, load->t->heap, load->t->bpe.vocabulary.count, load->error);
    }
    load->l->phase = SUMI_LOAD_MODEL;
    return SUMI_OK;
}

static sumi_result begin_merges(sumi_loader* load)
{
    if (load->t->model != SUMI_TOKEN_MODEL_BPE) { return sumi_load_refuse(load, "merges in a model that has none"); }
    load->l->phase = SUMI_LOAD_MERGES;
    sumi_json_array(load->j);
    SUMI_TRY(sumi_load_result(load->j));
    return sumi_merges_begin(&load->t->bpe.merges, load->t->heap, load->t->bpe.vocabulary.count, load->error);
}

static const char* merges_path(const sumi_loader* load)
{
    return load->l->files.merges.path != NULL ? load->l->files.merges.path : load->t->path;
}

static sumi_result add_merge(sumi_loader* load, const sumi_waiting_merge* merge)
{
    sumi_tokenizer* t = load->t;
    sumi_tokenizer_loading* l = load->l;
    const sumi_vocabulary* vocabulary = &t->bpe.vocabulary;
    uint32_t left = sumi_vocabulary_find_prefetched(vocabulary, merge->left, merge->left_bytes, merge->left_hash);
    uint32_t right = sumi_vocabulary_find_prefetched(vocabulary, merge->right, merge->right_bytes, merge->right_hash);
    // nearly every file lists merges in the order of the tokens they make: try the one after the last one, and the last
    // one, before hashing
    uint32_t result = l->last_result + 1;
    if (!sumi_vocabulary_is_joined(vocabulary, result, merge->left, merge->left_bytes, merge->right, merge->right_bytes)
        && !sumi_vocabulary_is_joined(vocabulary, --result, merge->left, merge->left_bytes, merge->right,
                                      merge->right_bytes)) {
        sumi_text_buffer* joined = &l->joined;
        joined->bytes = 0;
        // + 1: never NULL
        SUMI_TRY(sumi_text_reserve(t->heap, joined, merge->left_bytes + merge->right_bytes + 1, load->error));
        SUMI_TRY(sumi_text_append(t->heap, joined, merge->left, merge->left_bytes, load->error));
        SUMI_TRY(sumi_text_append(t->heap, joined, merge->right, merge->right_bytes, load->error));
        result = sumi_vocabulary_find(vocabulary, sumi_text_data(joined), joined->bytes);
    }
    if (left == SUMI_VOCABULARY_NONE || right == SUMI_VOCABULARY_NONE || result == SUMI_VOCABULARY_NONE) {
        return sumi_fail(load->error, SUMI_FILE_MALFORMED,
                         "%s: merge %zu, \"%.*s\" + \"%.*s\": %s is not in the vocabulary; download the file again",
                         merges_path(load), t->bpe.merges.count, sumi_load_shown(merge->left, merge->left_bytes),
                         merge->left, sumi_load_shown(merge->right, merge->right_bytes), merge->right,
                         left == SUMI_VOCABULARY_NONE    ? "the left part"
                         : right == SUMI_VOCABULARY_NONE ? "the right part"
                                                         : "what they make");
    }
    l->last_result = result;
    return sumi_merges_add(&t->bpe.merges, sumi_vocabulary_id(vocabulary, left), sumi_vocabulary_id(vocabulary, right),
                           sumi_vocabulary_id(vocabulary, result), load->error);
}

sumi_result sumi_load_waiting_merges(sumi_loader* load)
{
    sumi_tokenizer_loading* l = load->l;
    for (; l->waiting_count > 0; l->waiting_count--) {
        SUMI_TRY(add_merge(load, &l->waiting[(l->waiting_first++) % SUMI_WAITING_MERGES]));
    }
    return SUMI_OK;
}

// Takes a merge whose texts stay where they are until the end of the loading, and adds the one that has waited longest.
static sumi_result queue_merge(sumi_loader* load, const char* left, size_t left_bytes, const char* right,
                               size_t right_bytes)
{
    sumi_tokenizer_loading* l = load->l;
    const sumi_vocabulary* vocabulary = &load->t->bpe.vocabulary;
    if (l->waiting_count == SUMI_WAITING_MERGES) {
        SUMI_TRY(add_merge(load, &l->waiting[(l->waiting_first++) % SUMI_WAITING_MERGES]));
        l->waiting_count--;
    }
    sumi_waiting_merge* merge = &l->waiting[(l->waiting_first + l->waiting_count++) % SUMI_WAITING_MERGES];
    *merge = (sumi_waiting_merge){left, right, left_bytes, right_bytes, 0, 0};
    merge->left_hash = sumi_vocabulary_prefetch(vocabulary, left, left_bytes);
    merge->right_hash = sumi_vocabulary_prefetch(vocabulary, right, right_bytes);
    if (l->waiting_count > SUMI_WAITING_MERGES / 2) { // the slots of this one have come
        merge = &l->waiting[(l->waiting_first + l->waiting_count - SUMI_WAITING_MERGES / 2) % SUMI_WAITING_MERGES];
        sumi_vocabulary_prefetch_entry(vocabulary, merge->left_hash);
        sumi_vocabulary_prefetch_entry(vocabulary, merge->right_hash);
    }
    return SUMI_OK;
}

// "left right", with exactly one blank
sumi_result sumi_load_merge_line(sumi_loader* load, const char* line, size_t bytes)
{
    const char* blank = bytes != 0 ? memchr(line, ' ', bytes) : NULL;
    size_t left_bytes = blank != NULL ? (size_t)(blank - line) : 0,
           right_bytes = blank != NULL ? bytes - left_bytes - 1 : 0;
    if (blank == NULL || memchr(blank + 1, ' ', right_bytes) != NULL) {
        return sumi_fail(
            load->error, SUMI_FILE_MALFORMED,
            "%s: merge %zu, \"%.*s\", is not two tokens with a blank between them; download the file again",
            merges_path(load), load->t->bpe.merges.count + load->l->waiting_count, sumi_load_shown(line, bytes), line);
    }
    return queue_merge(load, line, left_bytes, blank + 1, right_bytes);
}

// ["left", "right"] or "left right"
static sumi_result read_merge_value(sumi_loader* load)
{
    sumi_json* j = load->j;
    sumi_json_text left = {0}, right = {0};
    const char *left_text, *right_text;
    size_t left_bytes, right_bytes;
    bool is_pair = sumi_json_peek(j) == SUMI_JSON_ARRAY;
    bool whole = is_pair ? sumi_json_array(j) && sumi_json_item(j) && sumi_json_string(j, &left) && sumi_json_item(j)
                               && sumi_json_string(j, &right) && !sumi_json_item(j)
                         : sumi_json_string(j, &left);
    SUMI_TRY(sumi_load_result(j));
    if (!whole) { return sumi_load_refuse(load, "a merge of two tokens is due"); }
    bool escaped = left.escaped || right.escaped;
    if (escaped) { // its texts come to lie in the buffer, so it may not wait
        SUMI_TRY(sumi_load_waiting_merges(load));
        load->l->text.bytes = 0;
        SUMI_TRY(sumi_text_reserve(load->t->heap, &load->l->text, left.bytes + right.bytes, load->error));
    }
    SUMI_TRY(sumi_load_text(load, &left, &left_text, &left_bytes));
    if (is_pair) {
        SUMI_TRY(sumi_load_text(load, &right, &right_text, &right_bytes));
        SUMI_TRY(queue_merge(load, left_text, left_bytes, right_text, right_bytes));
    } else {
        SUMI_TRY(sumi_load_merge_line(load, left_text, left_bytes));
    }
    return escaped ? sumi_load_waiting_merges(load) : SUMI_OK;
}

static sumi_result read_merge(sumi_loader* load)
{
    sumi_tokenizer_loading* l = load->l;
    load->j = l->merges_wait ? &l->merges_json : &l->json;
    if (sumi_json_item(load->j)) { return read_merge_value(load); }
    SUMI_TRY(sumi_load_result(load->j));
    SUMI_TRY(sumi_load_waiting_merges(load));
    l->phase = l->merges_wait ? SUMI_LOAD_TOP : SUMI_LOAD_MODEL;
    l->merges_wait = false;
    return SUMI_OK;
}

static sumi_result finish_model_object(sumi_loader* load)
{
    sumi_tokenizer_loading* l = load->l;
    if (!l->has_vocabulary) { return sumi_load_refuse(load, "a model without vocab"); }
    if (load->t->model == SUMI_TOKEN_MODEL_BPE && !l->has_merges) {
        return sumi_load_refuse(load, "a BPE model without merges");
    }
    if (l->merges_wait) {
        load->j = &l->merges_json;
        return begin_merges(load);
    }
    l->phase = SUMI_LOAD_TOP;
    return SUMI_OK;
}

static sumi_result read_model_type(sumi_loader* load)
{
    sumi_tokenizer* t = load->t;
    sumi_json_text type = {0};
    sumi_json_string(load->j, &type);
    SUMI_TRY(sumi_load_result(load->j));
    sumi_token_model model = sumi_json_is(&type, "BPE")     ? SUMI_TOKEN_MODEL_BPE
                           : sumi_json_is(&type, "Unigram") ? SUMI_TOKEN_MODEL_UNIGRAM
                                                            : SUMI_TOKEN_MODEL_NONE;
    if (model == SUMI_TOKEN_MODEL_NONE) { return sumi_load_unsupported(load, "the model type", &type); }
    if (load->l->has_vocabulary && model != t->model) {
        return sumi_load_refuse(load, "a model type that does not fit its vocab");
    }
    t->model = model;
    load->l->has_type = true;
    return SUMI_OK;
}

static sumi_result read_affix(sumi_loader* load, const char* name)
{
    sumi_json_text affix = {0};
    sumi_load_string_or_null(load, &affix);
    SUMI_TRY(sumi_load_result(load->j));
    return affix.bytes == 0 ? SUMI_OK : sumi_load_unsupported(load, name, &affix);
}

static sumi_result read_model_member(sumi_loader* load)
{
    sumi_tokenizer* t = load->t;
    sumi_tokenizer_loading* l = load->l;
    sumi_json* j = load->j;
    sumi_json_text key;
    if (!sumi_json_key(j, &key)) {
        SUMI_TRY(sumi_load_result(j));
        return finish_model_object(load);
    }
    if (sumi_json_is(&key, "type")) {
        return read_model_type(load);
    } else if (sumi_json_is(&key, "vocab")) {
        return sumi_load_begin_vocabulary(load);
    } else if (sumi_json_is(&key, "merges")) {
        if (l->has_merges) { return sumi_load_refuse(load, "second merges"); }
        l->has_merges = true;
        if (l->has_vocabulary) { return begin_merges(load); }
        l->merges_wait = true;
        l->merges_json = *j;
        sumi_json_skip(j);
    } else if (sumi_json_is(&key, "continuing_subword_prefix")) {
        return read_affix(load, "the model's continuing_subword_prefix");
    } else if (sumi_json_is(&key, "end_of_word_suffix")) {
        return read_affix(load, "the model's end_of_word_suffix");
    } else if (sumi_json_is(&key, "dropout")) {
        if (!sumi_json_null(j) && sumi_json_number(j) != 0.0) {
            return sumi_fail(load->error, SUMI_NOT_SUPPORTED,
                             "%s: model.dropout is not 0, which makes ids random; set it to null", t->path);
        }
    } else if (sumi_json_is(&key, "unk_token")) {
        sumi_json_text unknown = {0};
        const char* text;
        size_t bytes;
        sumi_load_string_or_null(load, &unknown);
        SUMI_TRY(sumi_load_result(j));
        t->bpe.has_unknown = sumi_load_has(&unknown);
        l->text.bytes = l->unknown.bytes = 0;
        SUMI_TRY(sumi_load_text(load, &unknown, &text, &bytes));
        return sumi_text_append(t->heap, &l->unknown, text, bytes, load->error);
    } else if (sumi_json_is(&key, "unk_id")) {
        l->unknown_id = -1;
        if (!sumi_json_null(j)) {
            uint64_t id = sumi_json_unsigned(j);
            // too large either way
            l->unknown_id = id <= SUMI_VOCABULARY_MAX_COUNT ? (int64_t)id : SUMI_VOCABULARY_MAX_COUNT;
        }
    } else if (sumi_json_is(&key, "fuse_unk")) {
        t->bpe.fuse_unknown = sumi_load_bool(load, false);
    } else if (sumi_json_is(&key, "byte_fallback")) {
        t->bpe.byte_fallback = t->unigram.byte_fallback = sumi_load_bool(load, false);
    } else if (sumi_json_is(&key, "ignore_merges")) {
        t->bpe.ignore_merges = sumi_load_bool(load, false);
    } else {
        sumi_json_skip(j);
    }
    return sumi_load_result(j);
}

// ---- The whole file -------------------------------------------------------------------------------------------------

static bool first_time(sumi_loader* load, bool* seen)
{
    if (*seen) {
        sumi_json_refuse(load->j, "a member of the tokenizer that was there already");
        return false;
    }
    return *seen = true;
}

static sumi_result read_top_member(sumi_loader* load)
{
    sumi_tokenizer_loading* l = load->l;
    sumi_json* j = load->j;
    sumi_json_text key;
    if (!l->started) {
        l->started = true;
        sumi_json_object(j);
        return sumi_load_result(j);
    }
    if (!sumi_json_key(j, &key)) {
        SUMI_TRY(sumi_json_end(j));
        l->phase = SUMI_LOAD_FINISH;
        return SUMI_OK;
    }
    if (sumi_json_is(&key, "added_tokens")) {
        if (first_time(load, &l->has_added) && !sumi_json_null(j) && sumi_json_array(j)) { l->phase = SUMI_LOAD_ADDED; }
    } else if (sumi_json_is(&key, "normalizer")) {
        return first_time(load, &l->has_normalizer) ? sumi_load_normalizer(load, 0) : sumi_load_result(j);
    } else if (sumi_json_is(&key, "pre_tokenizer")) {
        return first_time(load, &l->has_pre_tokenizer) ? sumi_load_pre_tokenizer(load, 0) : sumi_load_result(j);
    } else if (sumi_json_is(&key, "post_processor")) {
        return first_time(load, &l->has_post_processor) ? sumi_load_post_processor(load, 0) : sumi_load_result(j);
    } else if (sumi_json_is(&key, "model")) {
        if (first_time(load, &l->has_model) && sumi_json_object(j)) { l->phase = SUMI_LOAD_MODEL; }
    } else {
        sumi_json_skip(j); // version, decoder; truncation and padding are the caller's to decide
    }
    return sumi_load_result(j);
}

static sumi_result read_added_item(sumi_loader* load)
{
    if (sumi_json_item(load->j)) { return sumi_load_added_token(load, NULL); }
    load->l->phase = SUMI_LOAD_TOP;
    return sumi_load_result(load->j);
}

// ---- The end --------------------------------------------------------------------------------------------------------

static void find_byte_tokens(sumi_bpe* bpe)
{
    static const char s_digits[] = "0123456789ABCDEF";
    for (int32_t byte = 0; byte < 256; byte++) {
        char name[6] = {'<', '0', 'x', s_digits[byte >> 4], s_digits[byte & 15], '>'};
        size_t bytes = bpe->byte_level ? sumi_byte_level_character((unsigned char)byte, name) : sizeof name;
        uint32_t entry = sumi_vocabulary_find(&bpe->vocabulary, name, bytes);
        bpe->byte_ids[byte] =
            entry != SUMI_VOCABULARY_NONE ? sumi_vocabulary_id(&bpe->vocabulary, entry) : SUMI_VOCABULARY_NONE;
    }
}

static sumi_result finish_model(sumi_loader* load)
{
    sumi_tokenizer* t = load->t;
    sumi_tokenizer_loading* l = load->l;
    if (t->model == SUMI_TOKEN_MODEL_BPE) {
        t->bpe.byte_level = t->byte_level;
        if (t->byte_level && t->bpe.byte_fallback) {
            return sumi_fail(load->error, SUMI_NOT_SUPPORTED,
                             "%s: ByteLevel and byte_fallback together are not supported; use the tokenizer that was "
                             "released with the model",
                             t->path);
        }
        find_byte_tokens(&t->bpe);
        uint32_t entry = sumi_vocabulary_find(
            &t->bpe.vocabulary, l->unknown.bytes != 0 ? sumi_text_data(&l->unknown) : "", l->unknown.bytes);
        t->bpe.unknown_id =
            entry != SUMI_VOCABULARY_NONE ? sumi_vocabulary_id(&t->bpe.vocabulary, entry) : SUMI_VOCABULARY_NONE;
        return SUMI_OK;
    }
    if (t->byte_level) {
        return sumi_fail(
            load->error, SUMI_NOT_SUPPORTED,
            "%s: ByteLevel with a Unigram model is not supported; use the tokenizer that was released with the model",
            t->path);
    }
    t->unigram.unknown_id = l->unknown_id >= 0 ? (uint32_t)l->unknown_id : SUMI_VOCABULARY_NONE;
    if (l->unknown_id >= 0 && (uint64_t)l->unknown_id >= t->unigram.piece_count) {
        return sumi_fail(load->error, SUMI_FILE_MALFORMED,
                         "%s: unk_id is %lld, the vocabulary has %zu pieces; download the file again", t->path,
                         (long long)l->unknown_id, t->unigram.piece_count);
    }
    return SUMI_OK;
}

static sumi_result finish_added(sumi_loader* load)
{
    sumi_tokenizer* t = load->t;
    const sumi_vocabulary* vocabulary = t->model == SUMI_TOKEN_MODEL_BPE ? &t->bpe.vocabulary : &t->unigram.vocabulary;
    for (uint32_t entry = 0; entry < t->added.count; entry++) {
        size_t bytes;
        const char* text = sumi_vocabulary_text(&t->added, entry, &bytes);
        uint32_t id = sumi_vocabulary_id(&t->added, entry), known = sumi_vocabulary_find(vocabulary, text, bytes);
        bool clash;
        if (known != SUMI_VOCABULARY_NONE) {
            clash = sumi_vocabulary_id(vocabulary, known) != id;
        } else {
            SUMI_TRY(sumi_load_take_id(load, id, &clash));
            clash = clash || id < t->unigram.piece_count;
        }
        if (clash) {
            return sumi_fail(
                load->error, SUMI_FILE_MALFORMED,
                "%s: the added token \"%.*s\" has the id %u, the vocabulary says otherwise; download the file again",
                t->path, sumi_load_shown(text, bytes), text, id);
        }
        if (((const sumi_added_token*)t->added_tokens)[entry].normalized) {
            if (t->added_normalized.slots == NULL) {
                SUMI_TRY(sumi_vocabulary_begin(&t->added_normalized, t->heap, 64, true, load->error));
            }
            uint32_t normalized_entry;
            bool existed;
            SUMI_TRY(sumi_tokenizer_normalize(t, &text, &bytes, load->error));
            if (bytes > SUMI_TOKENIZER_MAX_WALKED_TOKEN) {
                return sumi_fail(load->error, SUMI_NOT_SUPPORTED,
                                 "%s: an added token has %zu bytes when normalised, at most %d are supported; use the "
                                 "tokenizer that was released with the model",
                                 t->path, bytes, SUMI_TOKENIZER_MAX_WALKED_TOKEN);
            }
            if (bytes != 0) {
                SUMI_TRY(sumi_vocabulary_add(&t->added_normalized, text, bytes, entry, &normalized_entry, &existed,
                                             load->error));
            }
        }
    }
    for (size_t i = 0; i < t->before_count + t->after_count; i++) {
        uint32_t id = i < t->before_count ? t->before[i] : t->after[i - t->before_count];
        if (id >= t->size) {
            return sumi_fail(load->error, SUMI_FILE_MALFORMED,
                             "%s: the post_processor adds the id %u, the largest is %zu; download the file again",
                             t->path, id, t->size - 1);
        }
    }
    return SUMI_OK;
}

static sumi_result finish(sumi_loader* load)
{
    sumi_tokenizer_loading* l = load->l;
    if (l->form == SUMI_TOKENIZER_JSON && !l->has_model) {
        return sumi_fail(load->error, SUMI_FILE_MALFORMED, "%s: it has no model; is it a tokenizer.json?",
                         load->t->path);
    }
    if (l->form == SUMI_TOKENIZER_SENTENCEPIECE) { SUMI_TRY(sumi_load_finish_pieces(load)); }
    SUMI_TRY(finish_model(load));
    SUMI_TRY(finish_added(load));
    l->phase = SUMI_LOAD_DONE;
    return SUMI_OK;
}

static void free_loading(sumi_tokenizer* t)
{
    if (t->loading != NULL) {
        sumi_free(t->heap, t->loading->id_bits);
        sumi_text_release(t->heap, &t->loading->text);
        sumi_text_release(t->heap, &t->loading->joined);
        sumi_text_release(t->heap, &t->loading->unknown);
        sumi_free(t->heap, t->loading);
        t->loading = NULL;
    }
}

sumi_result sumi_load_begin(sumi_heap* heap, sumi_tokenizer_form form, const sumi_tokenizer_files* files,
                            size_t bytes_per_token, sumi_error* error, sumi_tokenizer** out_tokenizer)
{
    enum { MAX_EXPECTED = 1 << 20 };
    *out_tokenizer = NULL;
    sumi_tokenizer* t = sumi_alloc_zero(heap, sizeof *t);
    if (t == NULL) { return sumi_out_of_memory(error, sizeof *t, "a tokenizer"); }
    t->heap = heap;
    t->path = sumi_copy_text(heap, files->main.path != NULL ? files->main.path : "tokenizer.json");
    t->loading = sumi_alloc_zero(heap, sizeof *t->loading);
    if (t->path == NULL || t->loading == NULL) {
        sumi_tokenizer_destroy(t);
        return sumi_out_of_memory(error, sizeof *t->loading, "a tokenizer");
    }
    const size_t expected = files->main.bytes / bytes_per_token;
    t->loading->form = form;
    t->loading->files = *files;
    t->loading->expected_count = expected < MAX_EXPECTED ? expected : MAX_EXPECTED;
    t->loading->total_bytes =
        files->main.bytes + files->merges.bytes + files->added.bytes + files->config.bytes + files->special.bytes;
    t->loading->unknown_id = -1;
    *out_tokenizer = t;
    return SUMI_OK;
}

sumi_result sumi_tokenizer_begin(sumi_heap* heap, const void* json, size_t bytes, const char* path, sumi_error* error,
                                 sumi_tokenizer** out_tokenizer)
{
    // the released files have 64 to 128 bytes per token, merges included
    SUMI_TRY(sumi_load_begin(heap, SUMI_TOKENIZER_JSON, &(sumi_tokenizer_files){.main = {json, bytes, path}}, 64, error,
                             out_tokenizer));
    sumi_json_begin(&(*out_tokenizer)->loading->json, json, bytes, error);
    (*out_tokenizer)->loading->json.name = (*out_tokenizer)->path;
    return SUMI_OK;
}

static sumi_tokenizer_bytes file_bytes(const sumi_file* file)
{
    return (sumi_tokenizer_bytes){file->data, (size_t)file->bytes, file->path};
}

sumi_result sumi_tokenizer_open_begin(sumi_heap* heap, const sumi_checkpoint_tokenizer* found, sumi_error* error,
                                      sumi_tokenizer** out_tokenizer)
{
    *out_tokenizer = NULL;
    const sumi_tokenizer_files files = {.main = {found->data, found->bytes, found->path},
                                        .merges = file_bytes(&found->merges),
                                        .config = file_bytes(&found->config),
                                        .added = file_bytes(&found->added),
                                        .special = file_bytes(&found->special)};
    switch (found->form) {
    case SUMI_TOKENIZER_JSON:
        return sumi_tokenizer_begin(heap, found->data, found->bytes, found->path, error, out_tokenizer);
    case SUMI_TOKENIZER_VOCABULARY: return sumi_tokenizer_begin_files(heap, &files, error, out_tokenizer);
    case SUMI_TOKENIZER_SENTENCEPIECE: return sumi_tokenizer_begin_sentencepiece(heap, &files, error, out_tokenizer);
    case SUMI_TOKENIZER_ABSENT: break;
    }
    return sumi_checkpoint_tokenizer_missing(found, 0, "the model", error);
}

static sumi_result load_item(sumi_loader* load)
{
    switch (load->l->phase) {
    case SUMI_LOAD_TOP: return read_top_member(load);
    case SUMI_LOAD_ADDED: return read_added_item(load);
    case SUMI_LOAD_MODEL: return read_model_member(load);
    case SUMI_LOAD_VOCABULARY: return read_vocabulary_entry(load);
    case SUMI_LOAD_MERGES: return read_merge(load);
    case SUMI_LOAD_MERGES_TEXT: return sumi_load_merges_text(load);
    case SUMI_LOAD_SCAN: return sumi_load_scan_pieces(load);
    case SUMI_LOAD_PIECES: return sumi_load_piece(load);
    case SUMI_LOAD_ADDED_FILE: return sumi_load_added_file(load);
    case SUMI_LOAD_CONFIG: return sumi_load_config(load);
    case SUMI_LOAD_CONFIG_TOKENS: return sumi_load_config_token(load);
    case SUMI_LOAD_SPECIAL: return sumi_load_special(load);
    case SUMI_LOAD_FINISH: return finish(load);
    case SUMI_LOAD_DONE: break;
    }
    return SUMI_OK;
}

static float progress(const sumi_tokenizer_loading* l)
{
    size_t at = 0; // in the file that is being read
    if (l->phase == SUMI_LOAD_MERGES_TEXT || l->phase == SUMI_LOAD_SCAN || l->phase == SUMI_LOAD_PIECES) {
        at = l->position;
    } else if (l->phase < SUMI_LOAD_FINISH) {
        at = (size_t)(l->json.at - l->json.begin);
    }
    at = l->phase >= SUMI_LOAD_FINISH ? l->total_bytes : at + l->passed_bytes;
    return l->total_bytes == 0 ? 0.0f
                               : (float)((double)(at < l->total_bytes ? at : l->total_bytes) / (double)l->total_bytes);
}

sumi_result sumi_tokenizer_step(sumi_tokenizer* tokenizer, size_t item_budget, bool* out_done, float* out_progress,
                                sumi_error* error)
{
    sumi_tokenizer_loading* l = tokenizer->loading;
    bool done = l == NULL;
    if (!done) {
        if (l->failure != SUMI_OK) {
            return sumi_fail(error, l->failure, "%s: loading it has failed before", tokenizer->path);
        }
        l->json.error = l->merges_json.error = error;
        for (size_t left = item_budget != 0 ? item_budget : 1; left > 0 && l->phase != SUMI_LOAD_DONE; left--) {
            sumi_loader load = {tokenizer, l, &l->json, error};
            l->failure = load_item(&load);
            if (l->failure != SUMI_OK) { return l->failure; }
        }
        done = l->phase == SUMI_LOAD_DONE;
    }
    if (out_progress != NULL) { *out_progress = done ? 1.0f : progress(l); }
    if (out_done != NULL) { *out_done = done; }
    if (done) { free_loading(tokenizer); }
    return SUMI_OK;
}

void sumi_tokenizer_destroy(sumi_tokenizer* tokenizer)
{
    if (tokenizer == NULL) { return; }
    sumi_heap* heap = tokenizer->heap;
    free_loading(tokenizer);
    sumi_vocabulary_destroy(&tokenizer->bpe.vocabulary);
    sumi_merges_destroy(&tokenizer->bpe.merges);
    sumi_free(heap, tokenizer->bpe.ranks);
    sumi_vocabulary_destroy(&tokenizer->unigram.vocabulary);
    sumi_free(heap, tokenizer->unigram.scores);
    sumi_charsmap_destroy(&tokenizer->charsmap);
    sumi_vocabulary_destroy(&tokenizer->added);
    sumi_vocabulary_destroy(&tokenizer->added_normalized);
    sumi_free(heap, tokenizer->added_tokens);
    sumi_text_release(heap, &tokenizer->repaired);
    sumi_text_release(heap, &tokenizer->normal[0]);
    sumi_text_release(heap, &tokenizer->normal[1]);
    sumi_text_release(heap, &tokenizer->metaspace);
    sumi_free(heap, tokenizer->nfc.points);
    sumi_free(heap, tokenizer->scratch.symbols);
    sumi_free(heap, tokenizer->scratch.queue);
    sumi_free(heap, tokenizer->scratch.nodes);
    sumi_text_release(heap, &tokenizer->scratch.text);
    sumi_free(heap, tokenizer->path);
    sumi_free(heap, tokenizer);
}
