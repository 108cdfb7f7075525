// The tokenizer in the metadata of a GGUF file, as llama.cpp's converter writes it:
//
//     tokenizer.ggml.model        gpt2: byte-level BPE with merges; llama: SentencePiece's BPE, which merges by score
//     tokenizer.ggml.pre          names the normalizer and the regex of a gpt2 model
//     tokenizer.ggml.tokens       text of each id
//     tokenizer.ggml.token_type   what each token is: SUMI_PIECE_*
//     tokenizer.ggml.scores       of a llama model
//     tokenizer.ggml.merges       of a gpt2 model, "left right"
//     tokenizer.ggml.add_bos_token, bos_token_id, add_eos_token, eos_token_id, unknown_token_id, add_space_prefix
//
// What the converter changes: ids without a token are called "[PAD7]" and of type UNUSED, so these are left out. Tokens
// that were added to a SentencePiece model have the score -1000, also user-defined ones, whose score in the model is 0;
// and the U+2581 of user-defined tokens are blanks here. Control and user-defined tokens are added tokens without flags.
#include "base/assert.h"
#include "text/tokenizer_loading.h"
#include <stdio.h>

#define SPACE_MARK "\xE2\x96\x81" // U+2581
#define ADVICE "give the tokenizer that was released with the model (tokenizer_path, --tokenizer)"

static const char* const s_array_names[SUMI_TOKEN_ARRAY_COUNT] = {"tokens", "token_type", "scores", "merges"};

static const char* metadata_of(const sumi_tensor_set* set, const char* key, const char* missing)
{
    const char* value = sumi_metadata_find(set, key);
    return value != NULL ? value : missing;
}

static bool is_true(const sumi_tensor_set* set, const char* key, bool missing)
{
    return strcmp(metadata_of(set, key, missing ? "true" : "false"), "true") == 0;
}

static sumi_result refuse_token(const sumi_loader* load, uint64_t id, const char* text, size_t bytes, const char* what)
{
    return sumi_fail(load->error, SUMI_FILE_MALFORMED, "%s: token %llu of its tokenizer, \"%.*s\", %s; " ADVICE,
                     load->t->path, (unsigned long long)id, sumi_load_shown(text, bytes), text, what);
}

// Reads the next text of an array, whose bounds the reader of the file has checked.
static const char* next_text(sumi_tokenizer_loading* l, const sumi_metadata_array* array, size_t* out_bytes)
{
    const unsigned char* at = array->data + l->position;
    uint64_t bytes = 0;
    for (int32_t i = 7; i >= 0; i--) bytes = bytes << 8 | at[i];
    SUMI_ASSERT(array->bytes - l->position >= 8 && bytes <= array->bytes - l->position - 8);
    l->position += 8 + (size_t)bytes;
    *out_bytes = (size_t)bytes;
    return (const char*)at + 8;
}

static uint32_t number_at(const sumi_metadata_array* array, uint64_t index)
{
    const unsigned char* at = array->data + 4 * index;
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

// ---- Tokens ---------------------------------------------------------------------------------------------------------

// A token of a byte-level model. Control and user-defined tokens are written as they are, the others in the stand-in
// characters of bytes, so only the latter belong to the vocabulary that merges make.
static sumi_result add_byte_level_token(sumi_loader* load, const sumi_piece* p, uint32_t id)
{
    sumi_tokenizer* t = load->t;
    uint32_t entry;
    bool existed, was_marked;
    if (p->type == SUMI_PIECE_CONTROL || p->type == SUMI_PIECE_USER_DEFINED)
        return sumi_load_add_token(load, p->text, p->bytes, id, &(sumi_added_token){0});
    SUMI_TRY(sumi_load_check_id(load, id, p->text, p->bytes));
    SUMI_TRY(sumi_vocabulary_add(&t->bpe.vocabulary, p->text, p->bytes, id, &entry, &existed, load->error));
    if (existed) return refuse_token(load, id, p->text, p->bytes, "occurs twice");
    return sumi_load_mark_id(load, id, &was_marked);
}

static sumi_result add_scored_token(sumi_loader* load, const sumi_piece* p, uint32_t id)
{
    const char* unknown = metadata_of(load->l->set, "tokenizer.ggml.unknown_token_id", "");
    char number[16];
    snprintf(number, sizeof number, "%u", id);
    sumi_piece piece = *p;
    bool existed;
    if (p->bytes == 0) return refuse_token(load, id, p->text, p->bytes, "is empty");
    if (!(p->score - p->score == 0.0f))
        return refuse_token(load, id, p->text, p->bytes, "has a score that is not finite");
    if (p->type == SUMI_PIECE_CONTROL && strcmp(unknown, number) == 0) piece.type = SUMI_PIECE_UNKNOWN;
    if (p->type == SUMI_PIECE_USER_DEFINED) {
        sumi_text_buffer* marked = &load->l->text;
        marked->bytes = 0;
        for (size_t i = 0; i < p->bytes; i++) {
            const bool is_blank = p->text[i] == ' ';
            SUMI_TRY(sumi_text_append(load->t->heap, marked, is_blank ? SPACE_MARK : p->text + i, is_blank ? 3 : 1,
                                      load->error));
        }
        piece.text = sumi_text_data(marked);
        piece.bytes = marked->bytes;
        piece.score = 0.0f;
    }
    load->t->bpe.byte_fallback = load->t->bpe.byte_fallback || piece.type == SUMI_PIECE_BYTE;
    load->t->bpe.has_unknown = load->t->bpe.has_unknown || piece.type == SUMI_PIECE_UNKNOWN;
    SUMI_TRY(sumi_load_scored_piece(load, &piece, id, &existed));
    return existed ? refuse_token(load, id, p->text, p->bytes, "occurs twice") : SUMI_OK;
}

static sumi_result end_tokens(sumi_loader* load)
{
    sumi_tokenizer_loading* l = load->l;
    l->passed_bytes += l->position;
    l->position = l->piece_count = 0;
    l->phase = load->t->bpe.by_score ? SUMI_LOAD_FINISH : SUMI_LOAD_GGUF_MERGES;
    if (load->t->bpe.by_score) return SUMI_OK;
    return sumi_merges_begin(&load->t->bpe.merges, load->t->heap, load->t->bpe.vocabulary.count, load->error);
}

sumi_result sumi_load_gguf_token(sumi_loader* load)
{
    sumi_tokenizer_loading* l = load->l;
    const sumi_metadata_array *arrays = l->set->token_arrays, *texts = &arrays[SUMI_TOKEN_ARRAY_TEXTS];
    if (l->piece_count == texts->count) return end_tokens(load);
    const uint64_t id = l->piece_count++;
    sumi_piece p = {.type = SUMI_PIECE_NORMAL};
    p.text = next_text(l, texts, &p.bytes);
    if (arrays[SUMI_TOKEN_ARRAY_TYPES].data != NULL) p.type = number_at(&arrays[SUMI_TOKEN_ARRAY_TYPES], id);
    if (load->t->bpe.by_score) {
        const uint32_t bits = number_at(&arrays[SUMI_TOKEN_ARRAY_SCORES], id);
        memcpy(&p.score, &bits, sizeof p.score);
    }
    if (!sumi_utf8_is_valid(p.text, p.bytes)) return refuse_token(load, id, "", 0, "is not UTF-8");
    if (p.type < SUMI_PIECE_NORMAL || p.type > SUMI_PIECE_BYTE)
        return refuse_token(load, id, p.text, p.bytes, "has an unknown type");
    if (p.type == SUMI_PIECE_UNUSED) return SUMI_OK;
    SUMI_TRY(sumi_load_check_id(load, id, p.text, p.bytes));
    return load->t->bpe.by_score ? add_scored_token(load, &p, (uint32_t)id)
                                 : add_byte_level_token(load, &p, (uint32_t)id);
}

sumi_result sumi_load_gguf_merge(sumi_loader* load)
{
    sumi_tokenizer_loading* l = load->l;
    const sumi_metadata_array* merges = &l->set->token_arrays[SUMI_TOKEN_ARRAY_MERGES];
    if (l->piece_count == merges->count) {
        SUMI_TRY(sumi_load_waiting_merges(load));
        l->passed_bytes += l->position;
        l->phase = SUMI_LOAD_FINISH;
        return SUMI_OK;
    }
    size_t bytes;
    const char* text = next_text(l, merges, &bytes);
    l->piece_count++;
    return sumi_load_merge_line(load, text, bytes);
}

// ---- Ends -----------------------------------------------------------------------------------------------------------

// Adds the token that `key` names to one end of every text, if `wish` says so.
static sumi_result add_end(sumi_loader* load, const char* wish, bool missing, const char* key, uint32_t* ids,
                           size_t* count)
{
    const sumi_tensor_set* set = load->l->set;
    if (!is_true(set, wish, missing)) return SUMI_OK;
    const char* text = metadata_of(set, key, "");
    uint64_t id = 0;
    bool is_number = text[0] != '\0' && strlen(text) <= 9;
    for (size_t i = 0; is_number && text[i] != '\0'; i++) {
        is_number = text[i] >= '0' && text[i] <= '9';
        id = id * 10 + (uint64_t)(text[i] - '0');
    }
    if (!is_number || id >= load->l->set->token_arrays[SUMI_TOKEN_ARRAY_TEXTS].count) {
        return sumi_fail(load->error, SUMI_FILE_MALFORMED,
                         "%s: its tokenizer adds a token to every text (%s), but %s is not the id of one; " ADVICE,
                         load->t->path, wish, key);
    }
    ids[(*count)++] = (uint32_t)id;
    return SUMI_OK;
}

// SentencePiece models begin texts with a BOS unless they say otherwise, as in llama.cpp.
sumi_result sumi_load_finish_gguf(sumi_loader* load)
{
    sumi_tokenizer* t = load->t;
    if (t->bpe.by_score && !t->bpe.has_unknown) { // without it characters would be dropped, and those around them merge
        return sumi_fail(load->error, SUMI_FILE_MALFORMED,
                         "%s: its tokenizer has no token for unknown text (tokenizer.ggml.unknown_token_id); " ADVICE,
                         t->path);
    }
    SUMI_TRY(add_end(load, "tokenizer.ggml.add_bos_token", t->bpe.by_score, "tokenizer.ggml.bos_token_id", t->before,
                     &t->before_count));
    return add_end(load, "tokenizer.ggml.add_eos_token", false, "tokenizer.ggml.eos_token_id", t->after,
                   &t->after_count);
}

// ---- Begin ----------------------------------------------------------------------------------------------------------

static bool is_one_of(const char* text, const char* const* list)
{
    while (*list != NULL && strcmp(*list, text) != 0) list++;
    return *list != NULL;
}

// Files from before "tokenizer.ggml.pre" have none or "default". llama.cpp then splits as GPT-2 does, which is wrong for
// every later model; the architecture says which pipeline is right.
static sumi_result check_pipeline(const sumi_tensor_set* set, bool by_score, const char* path, sumi_error* error)
{
    static const char* const s_qwen[] = {"qwen2", "qwen2vl", "qwen3", "qwen3vl", NULL};
    const char* architecture = metadata_of(set, "general.architecture", "");
    const char* pre = metadata_of(set, "tokenizer.ggml.pre", "default");
    if (by_score) {
        const bool is_gemma = strncmp(architecture, "gemma", 5) == 0;
        if (is_true(set, "tokenizer.ggml.add_space_prefix", !is_gemma)) {
            return sumi_fail(error, SUMI_NOT_SUPPORTED,
                             "%s: its tokenizer puts a blank in front of every text (tokenizer.ggml.add_space_prefix), "
                             "which is not supported; " ADVICE,
                             path);
        }
        return SUMI_OK;
    }
    if (strcmp(pre, "qwen2") == 0 || (strcmp(pre, "default") == 0 && is_one_of(architecture, s_qwen))) return SUMI_OK;
    return sumi_fail(error, SUMI_NOT_SUPPORTED,
                     "%s: tokenizer.ggml.pre is \"%.*s\", a way to split texts that this library does not read from "
                     "GGUF files; " ADVICE,
                     path, sumi_load_shown(pre, strlen(pre)), pre);
}

static sumi_result check_arrays(const sumi_tensor_set* set, bool by_score, const char* path, sumi_error* error)
{
    const sumi_metadata_array *arrays = set->token_arrays, *texts = &arrays[SUMI_TOKEN_ARRAY_TEXTS];
    const sumi_token_array list = by_score ? SUMI_TOKEN_ARRAY_SCORES : SUMI_TOKEN_ARRAY_MERGES;
    const sumi_token_array absent = texts->data == NULL || texts->count == 0 ? SUMI_TOKEN_ARRAY_TEXTS : list;
    if (absent == SUMI_TOKEN_ARRAY_TEXTS || arrays[list].data == NULL) {
        return sumi_fail(
            error, SUMI_FILE_MALFORMED,
            "%s: the tokenizer in it has no tokenizer.ggml.%s, or not in the type that belongs there; " ADVICE, path,
            s_array_names[absent]);
    }
    for (int32_t i = SUMI_TOKEN_ARRAY_TYPES; i <= SUMI_TOKEN_ARRAY_SCORES; i++) {
        if (arrays[i].data == NULL || arrays[i].count == texts->count) continue;
        return sumi_fail(error, SUMI_FILE_MALFORMED,
                         "%s: its tokenizer has %llu tokens, but tokenizer.ggml.%s is of %llu; " ADVICE, path,
                         (unsigned long long)texts->count, s_array_names[i], (unsigned long long)arrays[i].count);
    }
    return SUMI_OK;
}

sumi_result sumi_tokenizer_begin_gguf(sumi_heap* heap, const sumi_tensor_set* set, const char* path, sumi_error* error,
                                      sumi_tokenizer** out_tokenizer)
{
    *out_tokenizer = NULL;
    const char* model = metadata_of(set, "tokenizer.ggml.model", "");
    const bool by_score = strcmp(model, "llama") == 0;
    if (!by_score && strcmp(model, "gpt2") != 0) {
        return sumi_fail(
            error, SUMI_NOT_SUPPORTED,
            "%s: tokenizer.ggml.model is \"%.*s\"; of GGUF files the tokenizers \"gpt2\" and \"llama\" are "
            "read: " ADVICE,
            path, sumi_load_shown(model, strlen(model)), model);
    }
    SUMI_TRY(check_arrays(set, by_score, path, error));
    SUMI_TRY(check_pipeline(set, by_score, path, error));
    const sumi_metadata_array *texts = &set->token_arrays[SUMI_TOKEN_ARRAY_TEXTS],
                              *merges = &set->token_arrays[SUMI_TOKEN_ARRAY_MERGES];
    const sumi_tokenizer_files files = {
        .main = {texts->data, (size_t)texts->bytes, path},
        .merges = {by_score ? NULL : merges->data, by_score ? 0 : (size_t)merges->bytes, path}};
    // in the released files a token takes 14 bytes, 8 of them for its length
    SUMI_TRY(sumi_load_begin(heap, SUMI_TOKENIZER_GGUF, &files, 14, error, out_tokenizer));
    sumi_tokenizer* t = *out_tokenizer;
    sumi_loader load = {t, t->loading, &t->loading->json, error};
    t->loading->set = set;
    t->loading->phase = SUMI_LOAD_GGUF_TOKENS;
    sumi_result result;
    if (by_score) {
        result = sumi_load_begin_scored_bpe(&load);
    } else {
        t->model = SUMI_TOKEN_MODEL_BPE;
        t->byte_level = true;
        t->normalize[t->normalize_count++] = (sumi_normalize_step){.kind = SUMI_NORMALIZE_NFC};
        t->split[t->split_count++] = (sumi_split_step){.kind = SUMI_SPLIT_QWEN};
        result = sumi_vocabulary_begin(&t->bpe.vocabulary, heap, t->loading->expected_count, true, error);
    }
    if (result != SUMI_OK) {
        sumi_tokenizer_destroy(t);
        *out_tokenizer = NULL;
    }
    return result;
}
