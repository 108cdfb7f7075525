// SentencePiece models: protocol buffers, read field by field without generated code.
//
//     ModelProto       1 piece { 1 text, 2 score (float), 3 type }   repeated; a piece's id is its index
//                      2 trainer_spec { 3 model type, 24 spaces as suffix, 35 byte fallback, 46 text of the BOS }
//                      3 normalizer_spec { 2 character map, 3 adds a space in front, 4 drops extra spaces,
//                                          5 writes spaces as U+2581 }
//
// A field is a varint (number << 3 | kind) and its content: kind 0 is a varint, 1 eight bytes, 2 a length and that many
// bytes, 5 four bytes. The specs follow the pieces but say how to read them, so the file is read twice.
//
// The resulting pipeline is the one in the tokenizer.json of the same tokenizer:
//     BPE       spaces become U+2581; adjacent symbols merge to the piece of highest score; a character without a
//               piece becomes bytes; BOS in front
//     Unigram   character map, words split at white space, U+2581 in front of each; ids of XLM-RoBERTa, <s> and </s>
//               around
#include "base/assert.h"
#include "text/tokenizer_loading.h"

#define SPACE_MARK "\xE2\x96\x81" // U+2581

enum { TYPE_UNIGRAM = 1, TYPE_BPE = 2 };

// ---- Fields ---------------------------------------------------------------------------------------------------------

typedef struct message {
    const unsigned char* data;
    size_t bytes, at;
} message;

typedef struct field {
    uint64_t number, value; // value of a varint, or the bits of four or eight bytes
    const unsigned char* data;
    size_t bytes; // content of kind 2
    uint32_t kind;
} field;

static bool read_varint(message* m, uint64_t* out)
{
    *out = 0;
    for (uint32_t shift = 0; shift < 64 && m->at < m->bytes; shift += 7) {
        const unsigned char byte = m->data[m->at++];
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

// Reads the next field. False if it is malformed or extends past the message.
static bool read_message_field(message* m, field* out)
{
    uint64_t key, length;
    *out = (field){0};
    if (!read_varint(m, &key)) return false;
    out->number = key >> 3;
    out->kind = (uint32_t)(key & 7);
    if (out->number == 0) return false;
    if (out->kind == 0) return read_varint(m, &out->value);
    if (out->kind == 2) {
        if (!read_varint(m, &length) || length > m->bytes - m->at) return false;
        out->data = m->data + m->at;
        out->bytes = (size_t)length;
        m->at += out->bytes;
        return true;
    }
    const size_t width = out->kind == 1 ? 8 : out->kind == 5 ? 4 : 0; // other kinds are groups, which are obsolete
    if (width == 0 || width > m->bytes - m->at) return false;
    for (size_t i = 0; i < width; i++) out->value |= (uint64_t)m->data[m->at++] << (8 * i);
    return true;
}

static sumi_result refuse_model(const sumi_loader* load, size_t at, const char* what)
{
    return sumi_fail(load->error, SUMI_FILE_MALFORMED,
                     "%s: at byte %zu of the SentencePiece model, %s; download the file again", load->t->path, at,
                     what);
}

// ---- The specs ------------------------------------------------------------------------------------------------------

static bool read_trainer_spec(sumi_piece_spec* spec, const field* outer)
{
    message m = {outer->data, outer->bytes, 0};
    for (field f; m.at < m.bytes;) {
        if (!read_message_field(&m, &f)) return false;
        if (f.number == 3 && f.kind == 0) spec->model_type = f.value;
        if (f.number == 24 && f.kind == 0) spec->whitespace_suffix = f.value != 0;
        if (f.number == 35 && f.kind == 0) spec->byte_fallback = f.value != 0;
        if (f.number == 46 && f.kind == 2) {
            spec->bos = (const char*)f.data;
            spec->bos_bytes = f.bytes;
        }
    }
    return true;
}

static bool read_normalizer_spec(sumi_piece_spec* spec, const field* outer)
{
    message m = {outer->data, outer->bytes, 0};
    for (field f; m.at < m.bytes;) {
        if (!read_message_field(&m, &f)) return false;
        if (f.number == 2 && f.kind == 2) {
            spec->charsmap = (const char*)f.data;
            spec->charsmap_bytes = f.bytes;
        }
        if (f.number == 3 && f.kind == 0) spec->dummy_prefix = f.value != 0;
        if (f.number == 4 && f.kind == 0) spec->removes_whitespace = f.value != 0;
        if (f.number == 5 && f.kind == 0) spec->escapes_whitespace = f.value != 0;
    }
    return true;
}

static sumi_result refuse_kind(const sumi_loader* load, const char* what)
{
    return sumi_fail(
        load->error, SUMI_NOT_SUPPORTED,
        "%s: a SentencePiece model %s is not supported; use the tokenizer that was released with the model",
        load->t->path, what);
}

static sumi_short_text short_text(const char* text)
{
    sumi_short_text out = {.bytes = strlen(text)};
    SUMI_ASSERT(out.bytes <= sizeof out.data);
    memcpy(out.data, text, out.bytes);
    return out;
}

sumi_result sumi_load_begin_scored_bpe(sumi_loader* load)
{
    sumi_tokenizer* t = load->t;
    t->model = SUMI_TOKEN_MODEL_BPE;
    t->bpe.by_score = t->bpe.fuse_unknown = true;
    t->normalize[t->normalize_count++] = (sumi_normalize_step){
        .kind = SUMI_NORMALIZE_REPLACE, .pattern = short_text(" "), .content = short_text(SPACE_MARK)};
    return sumi_vocabulary_begin(&t->bpe.vocabulary, t->heap, load->l->expected_count, true, load->error);
}

// Sets the pipeline around the model from the specs.
static sumi_result set_pipeline(sumi_loader* load)
{
    sumi_tokenizer* t = load->t;
    const sumi_piece_spec* spec = &load->l->spec;
    if (spec->model_type != TYPE_UNIGRAM && spec->model_type != TYPE_BPE)
        return refuse_kind(load, "of whole words or characters");
    if (spec->whitespace_suffix || !spec->escapes_whitespace)
        return refuse_kind(load, "that does not write blanks as U+2581 in front of words");
    if (spec->model_type == TYPE_BPE) {
        if (spec->dummy_prefix || spec->removes_whitespace || spec->charsmap_bytes != 0)
            return refuse_kind(load, "of BPE that changes more of a text than its blanks");
        t->bpe.has_unknown = true;
        t->bpe.byte_fallback = spec->byte_fallback;
        return sumi_load_begin_scored_bpe(load);
    }
    if (!spec->dummy_prefix || !spec->removes_whitespace)
        return refuse_kind(load, "of Unigram that keeps runs of blanks");
    t->model = SUMI_TOKEN_MODEL_UNIGRAM;
    t->unigram.byte_fallback = spec->byte_fallback;
    t->split[t->split_count++] = (sumi_split_step){.kind = SUMI_SPLIT_WHITESPACE};
    t->split[t->split_count++] = (sumi_split_step){
        .kind = SUMI_SPLIT_METASPACE, .pattern = short_text(SPACE_MARK), .prepend = SUMI_PREPEND_ALWAYS, .split = true};
    if (spec->charsmap_bytes != 0) {
        t->normalize[t->normalize_count++] = (sumi_normalize_step){.kind = SUMI_NORMALIZE_CHARSMAP};
        SUMI_TRY(sumi_charsmap_begin_bytes(&t->charsmap, t->heap, spec->charsmap, spec->charsmap_bytes, t->path,
                                           load->error));
    }
    return sumi_vocabulary_begin(&t->unigram.vocabulary, t->heap, load->l->expected_count, true, load->error);
}

// First pass over the file: counts the pieces and reads the specs.
sumi_result sumi_load_scan_pieces(sumi_loader* load)
{
    enum { FIELDS_PER_ITEM = 64 };
    sumi_tokenizer_loading* l = load->l;
    message m = {l->files.main.data, l->files.main.bytes, l->position};
    field f;
    for (int32_t i = 0; i < FIELDS_PER_ITEM && m.at < m.bytes; i++) {
        const size_t begin = m.at;
        if (!read_message_field(&m, &f)) return refuse_model(load, begin, "a field is malformed or cut off");
        if ((f.number == 2 && f.kind == 2 && !read_trainer_spec(&l->spec, &f))
            || (f.number == 3 && f.kind == 2 && !read_normalizer_spec(&l->spec, &f)))
            return refuse_model(load, begin, "the trainer's or the normalizer's settings are malformed");
        l->piece_count += f.number == 1 && f.kind == 2;
    }
    l->position = m.at;
    if (m.at < m.bytes) return SUMI_OK;
    if (l->piece_count == 0) return refuse_model(load, m.at, "there is no piece; is it a SentencePiece model?");
    l->expected_count = l->piece_count + 8; // a piece takes at least two bytes of the file, which bounds this
    SUMI_TRY(set_pipeline(load));
    l->passed_bytes += m.bytes;
    l->position = l->piece_count = 0;
    l->phase = SUMI_LOAD_PIECES;
    return SUMI_OK;
}

// ---- Pieces ---------------------------------------------------------------------------------------------------------

// Maps scores to ranks: a higher score gives a lower rank, equal scores give equal ranks. With the sign bit of positive
// floats and all bits of negative floats flipped, the bits order as the floats do.
static uint32_t rank_of(float score)
{
    uint32_t bits;
    score += 0.0f; // turns -0 into 0
    memcpy(&bits, &score, sizeof bits);
    return ~(bits & 0x80000000u ? ~bits : bits | 0x80000000u);
}

static sumi_result parse_piece(sumi_loader* load, const field* outer, size_t at, sumi_piece* out)
{
    message m = {outer->data, outer->bytes, 0};
    *out = (sumi_piece){.type = SUMI_PIECE_NORMAL};
    for (field f; m.at < m.bytes;) {
        if (!read_message_field(&m, &f)) return refuse_model(load, at, "a piece is malformed");
        if (f.number == 1 && f.kind == 2) {
            out->text = (const char*)f.data;
            out->bytes = f.bytes;
        } else if (f.number == 2 && f.kind == 5) {
            const uint32_t bits = (uint32_t)f.value;
            memcpy(&out->score, &bits, sizeof out->score);
        } else if (f.number == 3 && f.kind == 0) {
            out->type = f.value;
        }
    }
    if (out->bytes == 0 || !sumi_utf8_is_valid(out->text, out->bytes))
        return refuse_model(load, at, "a piece is empty or not UTF-8");
    if (!(out->score - out->score == 0.0f)) return refuse_model(load, at, "the score of a piece is not finite");
    if (out->type == SUMI_PIECE_UNUSED) return refuse_kind(load, "with unused pieces");
    return out->type >= SUMI_PIECE_NORMAL && out->type <= SUMI_PIECE_BYTE
             ? SUMI_OK
             : refuse_model(load, at, "a piece has an unknown type");
}

static sumi_result add_special(sumi_loader* load, const sumi_piece* p, uint32_t id)
{
    // Special pieces are matched in the unchanged text, as the tokenizer.json says: two U+2581 in the text are not two
    // spaces. The SentencePiece library matches them after spaces have become U+2581. The ids of runs of spaces are the
    // same, because merges produce the same tokens.
    const sumi_added_token flags = {0};
    return sumi_load_add_token(load, p->text, p->bytes, id, &flags);
}

sumi_result sumi_load_scored_piece(sumi_loader* load, const sumi_piece* p, uint32_t id, bool* out_existed)
{
    sumi_bpe* bpe = &load->t->bpe;
    uint32_t entry;
    bool was_marked;
    SUMI_TRY(sumi_load_check_id(load, id, p->text, p->bytes));
    SUMI_TRY(sumi_grow(load->t->heap, &bpe->ranks, &bpe->rank_capacity, bpe->vocabulary.count + 1, sizeof(uint32_t),
                       load->error));
    SUMI_TRY(sumi_vocabulary_add(&bpe->vocabulary, p->text, p->bytes, id, &entry, out_existed, load->error));
    if (*out_existed) return SUMI_OK;
    SUMI_TRY(sumi_load_mark_id(load, id, &was_marked));
    const bool merges = p->type == SUMI_PIECE_NORMAL || p->type == SUMI_PIECE_USER_DEFINED;
    ((uint32_t*)bpe->ranks)[entry] = merges ? rank_of(p->score) : SUMI_VOCABULARY_NONE;
    if (p->type == SUMI_PIECE_UNKNOWN) { // finish_model looks the id up by this text
        load->l->unknown.bytes = 0;
        SUMI_TRY(sumi_text_append(load->t->heap, &load->l->unknown, p->text, p->bytes, load->error));
    }
    return p->type == SUMI_PIECE_NORMAL || p->type == SUMI_PIECE_BYTE ? SUMI_OK : add_special(load, p, id);
}

static sumi_result add_bpe_piece(sumi_loader* load, const sumi_piece* p, uint32_t id, size_t at)
{
    bool existed;
    SUMI_TRY(sumi_load_scored_piece(load, p, id, &existed));
    return existed ? refuse_model(load, at, "a piece occurs twice") : SUMI_OK;
}

// XLM-RoBERTa's ids: its own four tokens, then the model's pieces without the first three.
static sumi_result add_unigram_piece(sumi_loader* load, const sumi_piece* p, size_t index)
{
    static const char* const s_first[] = {"<unk>", "<s>", "</s>"};
    static const char* const s_tokens[] = {"<s>", "<pad>", "</s>", "<unk>"};
    if (index < 3) {
        if (p->bytes != strlen(s_first[index]) || memcmp(p->text, s_first[index], p->bytes) != 0)
            return refuse_kind(load, "of Unigram whose first pieces are not <unk>, <s> and </s>");
        for (size_t i = 0; index == 0 && i < 4; i++) {
            const sumi_piece token = {.text = s_tokens[i], .bytes = strlen(s_tokens[i]), .type = SUMI_PIECE_CONTROL};
            SUMI_TRY(sumi_load_unigram_piece(load, token.text, token.bytes, 0.0));
            SUMI_TRY(add_special(load, &token, (uint32_t)i));
        }
        return SUMI_OK;
    }
    SUMI_TRY(sumi_load_unigram_piece(load, p->text, p->bytes, (double)p->score));
    return p->type == SUMI_PIECE_NORMAL || p->type == SUMI_PIECE_BYTE ? SUMI_OK
                                                                      : add_special(load, p, (uint32_t)index + 1);
}

static sumi_result end_unigram(sumi_loader* load)
{
    if (load->l->piece_count < 3) return refuse_model(load, load->l->position, "there are fewer than three pieces");
    const uint32_t id = (uint32_t)load->t->unigram.piece_count;
    const sumi_added_token flags = {.lstrip = true}; // <mask> includes the white space before it
    SUMI_TRY(sumi_load_unigram_piece(load, "<mask>", 6, 0.0));
    SUMI_TRY(sumi_load_add_token(load, "<mask>", 6, id, &flags));
    load->l->unknown_id = 3;
    load->t->before[load->t->before_count++] = 0;
    load->t->after[load->t->after_count++] = 2;
    return SUMI_OK;
}

sumi_result sumi_load_piece(sumi_loader* load)
{
    sumi_tokenizer_loading* l = load->l;
    message m = {l->files.main.data, l->files.main.bytes, l->position};
    const bool is_bpe = load->t->model == SUMI_TOKEN_MODEL_BPE;
    if (m.at == m.bytes) {
        if (l->unknown_count != 1) return refuse_model(load, m.at, "there is not exactly one piece for unknown text");
        if (!is_bpe) SUMI_TRY(end_unigram(load));
        l->passed_bytes += m.bytes;
        return sumi_load_beside(load, SUMI_LOAD_ADDED_FILE);
    }
    field f;
    sumi_piece p;
    if (!read_message_field(&m, &f)) return refuse_model(load, l->position, "a field is malformed");
    const size_t at = l->position;
    l->position = m.at;
    if (f.number != 1 || f.kind != 2) return SUMI_OK;
    SUMI_TRY(parse_piece(load, &f, at, &p));
    l->unknown_count += p.type == SUMI_PIECE_UNKNOWN;
    const size_t index = l->piece_count++;
    return is_bpe ? add_bpe_piece(load, &p, (uint32_t)index, at) : add_unigram_piece(load, &p, index);
}

// Adds the BOS in front of texts unless tokenizer_config.json has add_bos_token false.
sumi_result sumi_load_finish_pieces(sumi_loader* load)
{
    sumi_tokenizer* t = load->t;
    sumi_tokenizer_loading* l = load->l;
    if (t->model != SUMI_TOKEN_MODEL_BPE) return SUMI_OK;
    if (l->wants_eos) return refuse_kind(load, "with add_eos_token in its tokenizer_config.json");
    if (l->has_bos_setting && !l->wants_bos) return SUMI_OK;
    const char* bos = l->spec.bos != NULL ? l->spec.bos : "<s>";
    const size_t bytes = l->spec.bos != NULL ? l->spec.bos_bytes : 3;
    const uint32_t entry = t->added.slots != NULL ? sumi_vocabulary_find(&t->added, bos, bytes) : SUMI_VOCABULARY_NONE;
    if (entry == SUMI_VOCABULARY_NONE) {
        return sumi_fail(load->error, SUMI_FILE_MALFORMED,
                         "%s: the token \"%.*s\", which begins a text, is not among the control pieces; download the "
                         "file again",
                         t->path, sumi_load_shown(bos, bytes), bos);
    }
    t->before[t->before_count++] = sumi_vocabulary_id(&t->added, entry);
    return SUMI_OK;
}

// ---- Begin ----------------------------------------------------------------------------------------------------------

sumi_result sumi_tokenizer_begin_sentencepiece(sumi_heap* heap, const sumi_tokenizer_files* files, sumi_error* error,
                                               sumi_tokenizer** out_tokenizer)
{
    SUMI_TRY(sumi_load_begin(heap, SUMI_TOKENIZER_SENTENCEPIECE, files, 16, error, out_tokenizer));
    sumi_tokenizer_loading* l = (*out_tokenizer)->loading;
    l->phase = SUMI_LOAD_SCAN;
    l->total_bytes += files->main.bytes; // the file is read twice
    // defaults of the format for fields that a model omits
    l->spec = (sumi_piece_spec){
        .model_type = TYPE_UNIGRAM, .dummy_prefix = true, .removes_whitespace = true, .escapes_whitespace = true};
    return SUMI_OK;
}
