// Reads a tokenizer into its tables, a bounded number of entries per step. The JSON reader's state is a plain value, so
// loading pauses by keeping it. The phases of a tokenizer.json:
//
//     TOP ──"added_tokens"──> ADDED ──┐          TOP: one member of the file per item; small members are read at once
//      │ ^────────────────────────────┘
//      └──"model"──> MODEL ──"vocab"──> VOCABULARY ──> MODEL ──"merges"──> MERGES ──> MODEL ──> TOP ──> FINISH
//
// Merges name tokens, so the vocabulary must be read first. If a file has the merges first, a copy of the reader's
// state is kept and the merges are read later. The other forms (tokenizer_files.c, sentencepiece.c) end with the files
// beside them:
//
//     vocab.json      VOCABULARY ──> MERGES_TEXT ──┐
//     SentencePiece   SCAN ────────> PIECES ───────┴──> ADDED_FILE ──> CONFIG <──> CONFIG_TOKENS ──> SPECIAL ──> FINISH
//     GGUF            GGUF_TOKENS ─> GGUF_MERGES, if the model has merges ──> FINISH
#include "text/tokenizer_loading.h"

// ---- Model ----------------------------------------------------------------------------------------------------------

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
    bool existed, was_marked;
    SUMI_TRY(sumi_vocabulary_add(&t->bpe.vocabulary, text, bytes, (uint32_t)id, &entry, &existed, load->error));
    SUMI_TRY(sumi_load_mark_id(load, id, &was_marked));
    if (existed || was_marked) {
        return sumi_fail(load->error, SUMI_FILE_MALFORMED,
                         "%s: token \"%.*s\" with id %llu: %s; download the file again", t->path,
                         sumi_load_shown(text, bytes), text, (unsigned long long)id,
                         existed ? "the token occurs twice" : "another token has that id");
    }
    return SUMI_OK;
}

static sumi_result read_unigram_entry(sumi_loader* load)
{
    sumi_json* j = load->j;
    sumi_json_text piece = {0};
    double score = 0.0;
    bool is_complete = false;
    if (sumi_json_array(j) && sumi_json_item(j) && sumi_json_string(j, &piece) && sumi_json_item(j)) {
        score = sumi_json_number(j);
        is_complete = !sumi_json_item(j);
    }
    SUMI_TRY(sumi_load_result(j));
    if (!is_complete) return sumi_load_refuse(load, "expected a piece and its score");
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
    if (more) return load->t->model == SUMI_TOKEN_MODEL_BPE ? read_bpe_entry(load, &key) : read_unigram_entry(load);
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
    if (load->t->model != SUMI_TOKEN_MODEL_BPE) return sumi_load_refuse(load, "merges in a model that has none");
    load->l->phase = SUMI_LOAD_MERGES;
    sumi_json_array(load->j);
    SUMI_TRY(sumi_load_result(load->j));
    return sumi_merges_begin(&load->t->bpe.merges, load->t->heap, load->t->bpe.vocabulary.count, load->error);
}

// Reads a merge: ["left", "right"] or "left right".
static sumi_result read_merge_value(sumi_loader* load)
{
    sumi_json* j = load->j;
    sumi_json_text left = {0}, right = {0};
    const char *left_text, *right_text;
    size_t left_bytes, right_bytes;
    bool is_pair = sumi_json_peek(j) == SUMI_JSON_ARRAY;
    bool is_complete = is_pair ? sumi_json_array(j) && sumi_json_item(j) && sumi_json_string(j, &left)
                                     && sumi_json_item(j) && sumi_json_string(j, &right) && !sumi_json_item(j)
                               : sumi_json_string(j, &left);
    SUMI_TRY(sumi_load_result(j));
    if (!is_complete) return sumi_load_refuse(load, "expected a merge of two tokens");
    bool escaped = left.escaped || right.escaped;
    if (escaped) { // the decoded texts share one buffer, so this merge must not stay pending
        SUMI_TRY(sumi_load_waiting_merges(load));
        load->l->text.bytes = 0;
        SUMI_TRY(sumi_text_reserve(load->t->heap, &load->l->text, left.bytes + right.bytes, load->error));
    }
    SUMI_TRY(sumi_load_text(load, &left, &left_text, &left_bytes));
    if (is_pair) {
        SUMI_TRY(sumi_load_text(load, &right, &right_text, &right_bytes));
        SUMI_TRY(sumi_load_queue_merge(load, left_text, left_bytes, right_text, right_bytes));
    } else {
        SUMI_TRY(sumi_load_merge_line(load, left_text, left_bytes));
    }
    return escaped ? sumi_load_waiting_merges(load) : SUMI_OK;
}

static sumi_result read_merge(sumi_loader* load)
{
    sumi_tokenizer_loading* l = load->l;
    load->j = l->merges_precede_vocabulary ? &l->merges_json : &l->json;
    if (sumi_json_item(load->j)) return read_merge_value(load);
    SUMI_TRY(sumi_load_result(load->j));
    SUMI_TRY(sumi_load_waiting_merges(load));
    l->phase = l->merges_precede_vocabulary ? SUMI_LOAD_TOP : SUMI_LOAD_MODEL;
    l->merges_precede_vocabulary = false;
    return SUMI_OK;
}

static sumi_result finish_model_object(sumi_loader* load)
{
    sumi_tokenizer_loading* l = load->l;
    if (!l->has_vocabulary) return sumi_load_refuse(load, "a model without vocab");
    if (load->t->model == SUMI_TOKEN_MODEL_BPE && !l->has_merges)
        return sumi_load_refuse(load, "a BPE model without merges");
    if (l->merges_precede_vocabulary) {
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
    if (model == SUMI_TOKEN_MODEL_NONE) return sumi_load_unsupported(load, "the model type", &type);
    if (load->l->has_vocabulary && model != t->model)
        return sumi_load_refuse(load, "a model type that does not fit its vocab");
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
        if (l->has_merges) return sumi_load_refuse(load, "second merges");
        l->has_merges = true;
        if (l->has_vocabulary) return begin_merges(load);
        l->merges_precede_vocabulary = true;
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
            // a larger id stays too large after the clamp
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
        sumi_json_refuse(load->j, "a member of the tokenizer that occurs twice");
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
        if (first_time(load, &l->has_added) && !sumi_json_null(j) && sumi_json_array(j)) l->phase = SUMI_LOAD_ADDED;
    } else if (sumi_json_is(&key, "normalizer")) {
        return first_time(load, &l->has_normalizer) ? sumi_load_normalizer(load, 0) : sumi_load_result(j);
    } else if (sumi_json_is(&key, "pre_tokenizer")) {
        return first_time(load, &l->has_pre_tokenizer) ? sumi_load_pre_tokenizer(load, 0) : sumi_load_result(j);
    } else if (sumi_json_is(&key, "post_processor")) {
        return first_time(load, &l->has_post_processor) ? sumi_load_post_processor(load, 0) : sumi_load_result(j);
    } else if (sumi_json_is(&key, "model")) {
        if (first_time(load, &l->has_model) && sumi_json_object(j)) l->phase = SUMI_LOAD_MODEL;
    } else {
        sumi_json_skip(j); // version, decoder, truncation and padding are ignored; the caller truncates
    }
    return sumi_load_result(j);
}

static sumi_result read_added_item(sumi_loader* load)
{
    if (sumi_json_item(load->j)) return sumi_load_added_token(load, NULL);
    load->l->phase = SUMI_LOAD_TOP;
    return sumi_load_result(load->j);
}

// ---- Finish ---------------------------------------------------------------------------------------------------------

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

// Whether a merge takes the unknown token, or the token of a byte that stands for a part of a character. No trained
// tokenizer has such merges.
static void find_merged_stand_ins(sumi_bpe* bpe)
{
    uint32_t lowest = SUMI_VOCABULARY_NONE, highest = 0;
    bpe->has_all_bytes = true;
    for (int32_t byte = 0; byte < 256; byte++) {
        const uint32_t id = bpe->byte_ids[byte];
        bpe->has_all_bytes = bpe->has_all_bytes && id != SUMI_VOCABULARY_NONE;
        if (id == SUMI_VOCABULARY_NONE || !bpe->byte_fallback) continue;
        lowest = id < lowest ? id : lowest; // released files have these ids in a row
        highest = id > highest ? id : highest;
    }
    const sumi_merge* list = bpe->merges.list;
    for (size_t i = 0; i < bpe->merges.count; i++) {
        for (int32_t side = 0; side < 2; side++) {
            const uint32_t id = side == 0 ? list[i].left : list[i].right;
            const bool is_unknown = bpe->has_unknown && id == bpe->unknown_id;
            bpe->merges_stand_ins = bpe->merges_stand_ins || is_unknown || (id >= lowest && id <= highest);
        }
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
        find_merged_stand_ins(&t->bpe);
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
        uint32_t id = sumi_vocabulary_id(&t->added, entry), existing = sumi_vocabulary_find(vocabulary, text, bytes);
        bool clash;
        const sumi_added_token* flags = &((const sumi_added_token*)t->added_tokens)[entry];
        t->strips_before = t->strips_before || flags->lstrip;
        t->has_single_words = t->has_single_words || flags->single_word;
        if (existing != SUMI_VOCABULARY_NONE) {
            clash = sumi_vocabulary_id(vocabulary, existing) != id;
        } else {
            SUMI_TRY(sumi_load_mark_id(load, id, &clash));
            clash = clash || id < t->unigram.piece_count;
        }
        if (clash) {
            return sumi_fail(load->error, SUMI_FILE_MALFORMED,
                             "%s: the added token \"%.*s\" has the id %u, but another one in the vocabulary; download "
                             "the file again",
                             t->path, sumi_load_shown(text, bytes), text, id);
        }
        if (flags->normalized) {
            if (t->added_normalized.slots == NULL)
                SUMI_TRY(sumi_vocabulary_begin(&t->added_normalized, t->heap, 64, true, load->error));
            uint32_t normalized_entry;
            bool existed;
            sumi_text_buffer* normal = &load->l->text;
            normal->bytes = 0;
            SUMI_TRY(sumi_tokenizer_normalize(t, text, bytes, normal, load->error));
            text = normal->bytes != 0 ? sumi_text_data(normal) : "";
            bytes = normal->bytes;
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
    if (l->form == SUMI_TOKENIZER_SENTENCEPIECE) SUMI_TRY(sumi_load_finish_pieces(load));
    if (l->form == SUMI_TOKENIZER_GGUF) SUMI_TRY(sumi_load_finish_gguf(load));
    SUMI_TRY(finish_model(load));
    SUMI_TRY(finish_added(load));
    l->phase = SUMI_LOAD_DONE;
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

sumi_result sumi_tokenizer_open_begin(sumi_heap* heap, const sumi_checkpoint_tokenizer* source, sumi_error* error,
                                      sumi_tokenizer** out_tokenizer)
{
    *out_tokenizer = NULL;
    const sumi_tokenizer_files files = {.main = {source->data, source->bytes, source->path},
                                        .merges = file_bytes(&source->merges),
                                        .config = file_bytes(&source->config),
                                        .added = file_bytes(&source->added),
                                        .special = file_bytes(&source->special)};
    switch (source->form) {
    case SUMI_TOKENIZER_JSON:
        return sumi_tokenizer_begin(heap, source->data, source->bytes, source->path, error, out_tokenizer);
    case SUMI_TOKENIZER_VOCABULARY: return sumi_tokenizer_begin_files(heap, &files, error, out_tokenizer);
    case SUMI_TOKENIZER_SENTENCEPIECE: return sumi_tokenizer_begin_sentencepiece(heap, &files, error, out_tokenizer);
    case SUMI_TOKENIZER_GGUF: return sumi_tokenizer_begin_gguf(heap, source->set, source->path, error, out_tokenizer);
    case SUMI_TOKENIZER_ABSENT: break;
    }
    return sumi_checkpoint_tokenizer_missing(source, 0, "the model", error);
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
    case SUMI_LOAD_GGUF_TOKENS: return sumi_load_gguf_token(load);
    case SUMI_LOAD_GGUF_MERGES: return sumi_load_gguf_merge(load);
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
    size_t at = 0; // position in the file that is being read
    if (l->phase == SUMI_LOAD_MERGES_TEXT || l->phase == SUMI_LOAD_SCAN || l->phase == SUMI_LOAD_PIECES
        || l->phase == SUMI_LOAD_GGUF_TOKENS || l->phase == SUMI_LOAD_GGUF_MERGES) {
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
        if (l->failure != SUMI_OK)
            return sumi_fail(error, l->failure, "%s: loading it has failed before", tokenizer->path);
        l->json.error = l->merges_json.error = error;
        for (size_t remaining_items = item_budget != 0 ? item_budget : 1;
             remaining_items > 0 && l->phase != SUMI_LOAD_DONE; remaining_items--) {
            sumi_loader load = {tokenizer, l, &l->json, error};
            l->failure = load_item(&load);
            if (l->failure != SUMI_OK) return l->failure;
        }
        done = l->phase == SUMI_LOAD_DONE;
    }
    if (out_progress != NULL) *out_progress = done ? 1.0f : progress(l);
    if (out_done != NULL) *out_done = done;
    if (done) sumi_load_free(tokenizer);
    return SUMI_OK;
}
