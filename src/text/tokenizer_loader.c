// Functions that the readers of all forms of tokenizer files share: failures, texts, ids, tokens, merges.
#include "text/tokenizer_loading.h"

sumi_result sumi_load_refuse(sumi_loader* load, const char* reason)
{
    sumi_json_refuse(load->j, reason);
    return sumi_load_result(load->j);
}

int sumi_load_shown(const char* text, size_t bytes)
{
    size_t length = bytes < 64 ? bytes : 64;
    while (length < bytes && length > 0 && ((unsigned char)text[length] & 0xC0) == 0x80) length--;
    return (int)length;
}

sumi_result sumi_load_unsupported(sumi_loader* load, const char* what, const sumi_json_text* name)
{
    return sumi_fail(
        load->error, SUMI_NOT_SUPPORTED,
        "%s: %s \"%.*s\" is not supported by this library; use the tokenizer that was released with the model",
        load->t->path, what, sumi_load_shown(name->data, name->bytes), name->data);
}

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

sumi_result sumi_load_mark_id(sumi_loader* load, uint64_t id, bool* out_was_marked)
{
    sumi_tokenizer_loading* l = load->l;
    size_t byte = (size_t)id / 8;
    if (byte >= l->id_bit_bytes) {
        SUMI_TRY(sumi_grow(load->t->heap, &l->id_bits, &l->id_bit_capacity, byte + 1, 1, load->error));
        memset((uint8_t*)l->id_bits + l->id_bit_bytes, 0, l->id_bit_capacity - l->id_bit_bytes);
        l->id_bit_bytes = l->id_bit_capacity;
    }
    uint8_t* bits = (uint8_t*)l->id_bits + byte;
    *out_was_marked = (*bits >> id % 8 & 1) != 0;
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

sumi_result sumi_load_add_token(sumi_loader* load, const char* text, size_t bytes, uint64_t id,
                                const sumi_added_token* flags)
{
    sumi_tokenizer* t = load->t;
    if (bytes == 0) {
        return SUMI_OK; // the reference ignores an empty token too
    }
    if (bytes > SUMI_TOKENIZER_MAX_WALKED_TOKEN) {
        return sumi_fail(load->error, SUMI_NOT_SUPPORTED,
                         "%s: an added token has %zu bytes, at most %d are supported; use the tokenizer that was "
                         "released with the model",
                         t->path, bytes, SUMI_TOKENIZER_MAX_WALKED_TOKEN);
    }
    SUMI_TRY(sumi_load_check_id(load, id, text, bytes));
    if (t->added.slots == NULL) SUMI_TRY(sumi_vocabulary_begin(&t->added, t->heap, 64, true, load->error));
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

bool sumi_load_flag(sumi_loader* load, const sumi_json_text* key, sumi_added_token* flags)
{
    bool* flag = sumi_json_is(key, "single_word") ? &flags->single_word
               : sumi_json_is(key, "lstrip")      ? &flags->lstrip
               : sumi_json_is(key, "rstrip")      ? &flags->rstrip
                                                  : NULL;
    if (flag != NULL) *flag = sumi_load_bool(load, false);
    return flag != NULL;
}

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
            } else if (sumi_load_flag(load, &key, &flags)) {
                continue;
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
    if (!has_id || !sumi_load_has(&content)) return sumi_load_refuse(load, "an added token without id or content");
    flags.normalized = has_normalized ? flags.normalized : !special;
    const char* text;
    size_t bytes;
    load->l->text.bytes = 0;
    SUMI_TRY(sumi_load_text(load, &content, &text, &bytes));
    return sumi_load_add_token(load, text, bytes, id, &flags);
}

sumi_result sumi_load_begin_vocabulary(sumi_loader* load)
{
    sumi_tokenizer* t = load->t;
    sumi_tokenizer_loading* l = load->l;
    sumi_json_type type = sumi_json_peek(load->j);
    if (l->has_vocabulary) return sumi_load_refuse(load, "a second vocab");
    sumi_token_model model = type == SUMI_JSON_ARRAY ? SUMI_TOKEN_MODEL_UNIGRAM : SUMI_TOKEN_MODEL_BPE;
    if (l->has_type && model != t->model) {
        return sumi_load_refuse(load, t->model == SUMI_TOKEN_MODEL_BPE
                                          ? "the vocab of a BPE model must be an object"
                                          : "the vocab of a Unigram model must be an array");
    }
    if (!(model == SUMI_TOKEN_MODEL_BPE ? sumi_json_object(load->j) : sumi_json_array(load->j)))
        return sumi_load_result(load->j);
    t->model = model;
    l->has_vocabulary = true;
    l->phase = SUMI_LOAD_VOCABULARY;
    if (model == SUMI_TOKEN_MODEL_BPE)
        return sumi_vocabulary_begin(&t->bpe.vocabulary, t->heap, l->expected_count, true, load->error);
    return sumi_vocabulary_begin(&t->unigram.vocabulary, t->heap, l->expected_count, true, load->error);
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
    // ids are positions in the list, so the later of two equal pieces gives the id, as in the reference
    ((sumi_vocabulary_entry*)unigram->vocabulary.entries)[entry].id = (uint32_t)unigram->piece_count;
    ((double*)unigram->scores)[entry] = score;
    unigram->min_score = unigram->piece_count == 0 || score < unigram->min_score ? score : unigram->min_score;
    unigram->piece_count++;
    load->t->size = load->t->size > unigram->piece_count ? load->t->size : unigram->piece_count;
    return SUMI_OK;
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
    // nearly every file lists merges in the order of the tokens that they make: try the token after the last merge's
    // and the last merge's own before hashing
    uint32_t result = l->last_result + 1;
    if (!sumi_vocabulary_is_joined(vocabulary, result, merge->left, merge->left_bytes, merge->right, merge->right_bytes)
        && !sumi_vocabulary_is_joined(vocabulary, --result, merge->left, merge->left_bytes, merge->right,
                                      merge->right_bytes)) {
        sumi_text_buffer* joined = &l->joined;
        joined->bytes = 0;
        // + 1, so that the buffer is never NULL
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
                                                         : "the merged token");
    }
    l->last_result = result;
    return sumi_merges_add(&t->bpe.merges, sumi_vocabulary_id(vocabulary, left), sumi_vocabulary_id(vocabulary, right),
                           sumi_vocabulary_id(vocabulary, result), load->error);
}

sumi_result sumi_load_queue_merge(sumi_loader* load, const char* left, size_t left_bytes, const char* right,
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
    if (l->waiting_count > SUMI_WAITING_MERGES / 2) { // the prefetched hash slots of this merge have arrived
        merge = &l->waiting[(l->waiting_first + l->waiting_count - SUMI_WAITING_MERGES / 2) % SUMI_WAITING_MERGES];
        sumi_vocabulary_prefetch_entry(vocabulary, merge->left_hash);
        sumi_vocabulary_prefetch_entry(vocabulary, merge->right_hash);
    }
    return SUMI_OK;
}

sumi_result sumi_load_waiting_merges(sumi_loader* load)
{
    sumi_tokenizer_loading* l = load->l;
    for (; l->waiting_count > 0; l->waiting_count--)
        SUMI_TRY(add_merge(load, &l->waiting[(l->waiting_first++) % SUMI_WAITING_MERGES]));
    return SUMI_OK;
}

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
    return sumi_load_queue_merge(load, line, left_bytes, blank + 1, right_bytes);
}

void sumi_load_free(sumi_tokenizer* t)
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
    if (t == NULL) return sumi_out_of_memory(error, sizeof *t, "a tokenizer");
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

void sumi_tokenizer_destroy(sumi_tokenizer* tokenizer)
{
    if (tokenizer == NULL) return;
    sumi_heap* heap = tokenizer->heap;
    sumi_load_free(tokenizer);
    sumi_vocabulary_destroy(&tokenizer->bpe.vocabulary);
    sumi_merges_destroy(&tokenizer->bpe.merges);
    sumi_free(heap, tokenizer->bpe.ranks);
    sumi_vocabulary_destroy(&tokenizer->unigram.vocabulary);
    sumi_free(heap, tokenizer->unigram.scores);
    sumi_charsmap_destroy(&tokenizer->charsmap);
    sumi_vocabulary_destroy(&tokenizer->added);
    sumi_vocabulary_destroy(&tokenizer->added_normalized);
    sumi_free(heap, tokenizer->added_tokens);
    sumi_free(heap, tokenizer->path);
    sumi_free(heap, tokenizer);
}

int32_t sumi_tokenizer_id(const sumi_tokenizer* tokenizer, const char* token)
{
    const sumi_vocabulary* vocabularies[] = {&tokenizer->added, &tokenizer->bpe.vocabulary,
                                             &tokenizer->unigram.vocabulary};
    for (size_t i = 0; i < 3; i++) {
        uint32_t entry = sumi_vocabulary_find(vocabularies[i], token, strlen(token));
        if (entry != SUMI_VOCABULARY_NONE) return (int32_t)sumi_vocabulary_id(vocabularies[i], entry);
    }
    return -1;
}

size_t sumi_tokenizer_size(const sumi_tokenizer* tokenizer) { return tokenizer->size; }
