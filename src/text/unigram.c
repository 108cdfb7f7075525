// Unigram: of all segmentations of a piece into vocabulary pieces, the one with the highest sum of scores, found
// from left to right by the Viterbi algorithm (Kudo 2018).
//
//     position   0   1   2   3   4           node[e]: the best segmentation up to e, by its last piece [start, e)
//     "▁cat"     |---▁c--|-a-|-t-|           starts are visited in rising order and only a strictly better score
//                |-▁-|-cat-------|           replaces a node: among equals the longer last piece stays
//
// A character that is not itself a piece gets an unknown edge, whose score is 10 below the worst piece's.
// Adjacent unknown characters become one id.
//
// The piece is encoded in parts. A part ends where no vocabulary piece crosses the text: every segmentation has a cut
// there. Scores are summed over the whole piece, so that they are rounded as without parts. A part does not end in an
// unknown character, because the next one may belong to the same id.
#include "text/tokenizer_run.h"

#define NONE SUMI_VOCABULARY_NONE
#define UNKNOWN_PENALTY 10.0

enum {
    WORD_BYTES = 48,
    PART_BYTES = 512,
    CHARACTER_BYTES = 4,
    START_WORK = 6,
    WRITE_WORK = 2
}; // a part of a longer piece has at least PART_BYTES

typedef struct node {
    double score;
    uint32_t start, id; // start NONE: not reached
} node;

static node* node_at(const sumi_unigram_state* s, size_t index)
{
    return sumi_pages_at(&s->nodes, index, sizeof(node));
}

void sumi_unigram_reset(sumi_unigram_state* state) { *state = (sumi_unigram_state){.nodes = state->nodes}; }

// ---- Segmentations --------------------------------------------------------------------------------------------------

// Makes nodes up to `index`, which are not reached.
static sumi_result add_nodes(sumi_tokenizer_run* run, size_t index)
{
    sumi_unigram_state* s = &run->unigram;
    while (s->node_count <= index) {
        SUMI_TRY(sumi_pages_reserve(run->heap, &s->nodes, s->node_count, sizeof(node), run->error));
        node* added = node_at(s, s->node_count);
        const size_t page_rest = SUMI_PAGE_ELEMENTS - s->node_count % SUMI_PAGE_ELEMENTS,
                     rest = index + 1 - s->node_count, count = rest < page_rest ? rest : page_rest;
        for (size_t i = 0; i < count; i++) added[i].start = NONE;
        s->node_count += count;
    }
    return SUMI_OK;
}

static inline node* node_of(const sumi_unigram_state* s, node* nodes, size_t index)
{
    return nodes != NULL ? nodes + index : node_at(s, index);
}

static inline void offer(node* end, double score, size_t start, uint32_t id)
{
    if (end->start == NONE || score > end->score) { *end = (node){score, (uint32_t)start, id}; }
}

// Offers every piece that begins at the start, or an unknown character. Returns the end of the longest one. `nodes`: of
// a word; NULL: the nodes of the run.
static inline size_t visit_start(sumi_tokenizer_run* run, node* nodes, const char* text, size_t bytes, size_t start,
                                 size_t* out_next)
{
    const sumi_unigram* unigram = &run->tokenizer->unigram;
    const sumi_unigram_state* s = &run->unigram;
    const double* scores = unigram->scores;
    const size_t length = sumi_utf8_length(text + start);
    SUMI_ASSERT(start + length <= bytes && node_of(s, nodes, start)->start != NONE); // the start is reached
    const double score = node_of(s, nodes, start)->score;
    size_t longest = 0;
    bool covered = false;
    sumi_vocabulary_walk walk = {0};
    while (sumi_vocabulary_next(&unigram->vocabulary, &walk, text + start, bytes - start)) {
        SUMI_ASSERT(walk.bytes <= bytes - start && walk.entry < unigram->piece_count);
        longest = walk.bytes;
        offer(node_of(s, nodes, start + longest), score + scores[walk.entry], start,
              sumi_vocabulary_id(&unigram->vocabulary, walk.entry));
        covered = covered || longest == length;
    }
    if (!covered) {
        offer(node_of(s, nodes, start + length), score + (unigram->min_score - UNKNOWN_PENALTY), start,
              unigram->unknown_id);
        longest = longest > length ? longest : length;
    }
    run->work += START_WORK + 2 * walk.bytes;
    *out_next = start + length;
    return start + longest;
}

static void begin_ids(sumi_unigram_state* s, size_t part_bytes)
{
    s->part_bytes = part_bytes;
    s->end = (uint32_t)part_bytes;
    s->next = NONE;
    s->end_score = node_at(s, part_bytes)->score;
    s->phase = SUMI_UNIGRAM_BACK;
}

// Visits starts until a part is whole, the available text does not suffice, or the step's work is done.
static sumi_result read_part(sumi_tokenizer_run* run, const sumi_window* in, sumi_pull* out_pull)
{
    const sumi_unigram* unigram = &run->tokenizer->unigram;
    sumi_unigram_state* s = &run->unigram;
    const size_t most = unigram->vocabulary.max_bytes + CHARACTER_BYTES, ahead = in->is_last ? 0 : most;
    size_t start = s->start, reach = s->reach;
    while (start + ahead < in->bytes && !sumi_run_must_pause(run)) {
        if (s->node_count <= in->bytes && s->node_count <= start + most)
            SUMI_TRY(add_nodes(run, in->bytes < start + 2 * most ? in->bytes : start + 2 * most));
        const size_t end = visit_start(run, NULL, in->text, in->bytes, start, &start);
        reach = end > reach ? end : reach;
        if (reach == start && start >= PART_BYTES && node_at(s, start)->id != unigram->unknown_id) {
            begin_ids(s, start);
            return SUMI_OK;
        }
    }
    s->start = start;
    s->reach = reach;
    if (in->is_last && start == in->bytes) {
        begin_ids(s, start);
        return SUMI_OK;
    }
    return sumi_run_must_pause(run) ? SUMI_OK : sumi_run_pull(run, run->stage_count - 1, out_pull);
}

// ---- Ids ------------------------------------------------------------------------------------------------------------

// Following the starts gives the pieces in reverse: reverses the links, so that they can be followed forwards.
static void reverse_links(sumi_tokenizer_run* run)
{
    sumi_unigram_state* s = &run->unigram;
    uint32_t end = s->end, next = s->next;
    for (; end != 0 && !sumi_run_must_pause(run); run->work += WRITE_WORK) {
        node* last = node_at(s, end);
        const uint32_t start = last->start;
        SUMI_ASSERT(start < end);
        last->start = next; // from now on: the end of the next piece
        next = end;
        end = start;
    }
    s->end = end;
    s->next = next;
    if (end != 0) return;
    s->begin = 0;
    s->phase = SUMI_UNIGRAM_WRITE;
}

// Follows the links forwards. Stops at the end of a run of unknown characters, which becomes one id or several.
static void write_pieces(sumi_tokenizer_run* run)
{
    sumi_unigram_state* s = &run->unigram;
    const uint32_t unknown_id = run->tokenizer->unigram.unknown_id;
    bool in_unknown = s->end != s->begin; // end: of the run of unknown characters that begins at `begin`
    while (s->next != NONE) {
        if (sumi_run_must_pause(run)) return;
        run->work += WRITE_WORK;
        const node* piece = node_at(s, s->next);
        if (piece->id != unknown_id) {
            if (in_unknown) break;
            sumi_ids_put(&run->ids, piece->id);
            s->begin = s->end = s->next;
        } else {
            in_unknown = true;
            s->end = s->next;
        }
        s->next = piece->start;
    }
    s->unknown_at = s->begin;
    s->unknown_is_known = true;
    s->phase = in_unknown ? SUMI_UNIGRAM_UNKNOWN : SUMI_UNIGRAM_TRIM;
}

static uint32_t byte_token(const sumi_unigram* unigram, char byte)
{
    static const char s_digits[] = "0123456789ABCDEF";
    const char name[6] = {'<', '0', 'x', s_digits[(unsigned char)byte >> 4], s_digits[(unsigned char)byte & 15], '>'};
    return sumi_vocabulary_find(&unigram->vocabulary, name, sizeof name);
}

static void end_unknown(sumi_unigram_state* s)
{
    s->begin = s->end;
    s->phase = SUMI_UNIGRAM_WRITE;
}

// Writes the ids of a run of unknown characters: one id, or several with byte fallback. As in the reference, the run as
// a whole may still be a token.
static sumi_result write_unknown(sumi_tokenizer_run* run, const char* text)
{
    const sumi_unigram* unigram = &run->tokenizer->unigram;
    sumi_unigram_state* s = &run->unigram;
    const size_t bytes = s->end - s->begin;
    if (s->unknown_at == s->begin && s->unknown_is_known && bytes <= unigram->vocabulary.max_bytes) {
        const uint32_t entry = sumi_vocabulary_find(&unigram->vocabulary, text + s->begin, bytes);
        if (entry != NONE) {
            sumi_ids_put(&run->ids, sumi_vocabulary_id(&unigram->vocabulary, entry));
            end_unknown(s);
            return SUMI_OK;
        }
    }
    // Byte fallback is used only if every byte has a token: they are looked up twice.
    const size_t twice = unigram->byte_fallback ? s->begin + 2 * bytes : s->begin;
    for (; s->unknown_at < twice && s->unknown_is_known; s->unknown_at++) {
        if (sumi_run_must_pause(run)) return SUMI_OK;
        run->work += START_WORK;
        const bool writes = s->unknown_at >= s->end;
        const uint32_t entry = byte_token(unigram, text[writes ? s->unknown_at - bytes : s->unknown_at]);
        if (writes) sumi_ids_put(&run->ids, sumi_vocabulary_id(&unigram->vocabulary, entry));
        s->unknown_is_known = entry != NONE;
    }
    if (!unigram->byte_fallback || !s->unknown_is_known) {
        if (unigram->unknown_id == NONE) {
            return sumi_fail(run->error, SUMI_FILE_MALFORMED,
                             "the tokenizer has no piece for the text %.*s and no unk_id",
                             (int)(bytes < 64 ? bytes : 64), text + s->begin);
        }
        sumi_ids_put(&run->ids, unigram->unknown_id);
    }
    end_unknown(s);
    return SUMI_OK;
}

static void end_part(sumi_tokenizer_run* run, sumi_window* in)
{
    sumi_unigram_state* s = &run->unigram;
    while (sumi_pages_trim(run->heap, &s->nodes, SUMI_KEPT_PAGES, 1)) {
        if (sumi_run_must_pause(run)) return;
        run->work += SUMI_PAGE_ELEMENTS / 2;
    }
    sumi_window_take(in, s->part_bytes);
    s->node_count = s->start = s->reach = 0;
    s->phase = SUMI_UNIGRAM_READ;
}

// ---- Words ----------------------------------------------------------------------------------------------------------

// Encodes a short piece if it has no unknown characters, like most words. Returns whether it did.
static bool encode_word(sumi_tokenizer_run* run, sumi_window* in)
{
    if (!in->is_last || in->bytes > WORD_BYTES || run->unigram.node_count > 0) return false;
    node nodes[WORD_BYTES + 1];
    uint32_t ids[WORD_BYTES];
    for (size_t i = 1; i <= in->bytes; i++) nodes[i].start = NONE;
    nodes[0] = (node){run->unigram.end_score, 0, 0};
    for (size_t start = 0; start < in->bytes;) (void)visit_start(run, nodes, in->text, in->bytes, start, &start);
    size_t count = 0;
    for (size_t end = in->bytes; end > 0; end = nodes[end].start) {
        ids[count] = nodes[end].id;
        if (ids[count++] == run->tokenizer->unigram.unknown_id) return false;
    }
    while (count > 0) sumi_ids_put(&run->ids, ids[--count]);
    sumi_window_take(in, in->bytes);
    return true;
}

// ---- Pieces ---------------------------------------------------------------------------------------------------------

// Begins a part at the beginning of the window: everything before it has this score.
static sumi_result begin_part(sumi_tokenizer_run* run, double score)
{
    SUMI_TRY(add_nodes(run, 0));
    *node_at(&run->unigram, 0) = (node){score, 0, 0};
    return SUMI_OK;
}

sumi_result sumi_unigram_run(sumi_tokenizer_run* run, sumi_pull* out_pull)
{
    sumi_unigram_state* s = &run->unigram;
    sumi_window* in = &run->stages[run->stage_count - 1].out;
    *out_pull = SUMI_PULL_MORE;
    if (s->phase == SUMI_UNIGRAM_READ) {
        if (!s->has_piece || (in->is_last && in->bytes == 0)) {
            SUMI_TRY(sumi_run_pull(run, run->stage_count - 1, out_pull));
            s->has_piece = *out_pull == SUMI_PULL_MORE;
            s->end_score = 0.0;
            if (!s->has_piece || (in->is_last && in->bytes == 0)) return SUMI_OK;
        }
        if (encode_word(run, in)) return SUMI_OK;
        if (s->node_count == 0) SUMI_TRY(begin_part(run, s->end_score));
        SUMI_TRY(read_part(run, in, out_pull));
    }
    if (s->phase == SUMI_UNIGRAM_BACK) reverse_links(run);
    while (s->phase == SUMI_UNIGRAM_WRITE || s->phase == SUMI_UNIGRAM_UNKNOWN) {
        if (s->phase == SUMI_UNIGRAM_WRITE) write_pieces(run);
        if (s->phase == SUMI_UNIGRAM_UNKNOWN) SUMI_TRY(write_unknown(run, in->text));
        if (sumi_run_must_pause(run)) break;
    }
    if (s->phase == SUMI_UNIGRAM_TRIM) end_part(run, in);
    if (sumi_run_must_pause(run)) *out_pull = SUMI_PULL_PAUSE;
    return SUMI_OK;
}
