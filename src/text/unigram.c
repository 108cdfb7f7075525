// Unigram: of all segmentations of a piece into vocabulary pieces, the one with the highest sum of scores, found
// from left to right by the Viterbi algorithm (Kudo 2018).
//
//     position   0   1   2   3   4           node[e]: the best segmentation up to e, by its last piece [start, e)
//     "▁cat"     |---▁c--|-a-|-t-|           starts are visited in rising order and only a strictly better score
//                |-▁-|-cat-------|           replaces a node: among equals the longer last piece stays
//
// A character that is not itself a piece gets an unknown edge, whose score is 10 below that of the worst piece.
// Adjacent unknown characters become one id.
#include "base/assert.h"
#include "text/tokenizer_parts.h"

#define NONE SUMI_VOCABULARY_NONE
#define UNKNOWN_PENALTY 10.0

typedef struct node {
    double score;
    uint32_t start, id; // start NONE: not reached
} node;

static void offer(node* end, double score, uint32_t start, uint32_t id)
{
    if (end->start == NONE || score > end->score) { *end = (node){score, start, id}; }
}

// Writes the ids of a run of unknown characters: one id, or several with byte fallback. As in the reference, the run as
// a whole may still be a token.
static sumi_result put_unknown(const sumi_unigram* unigram, const char* text, size_t bytes, sumi_ids* out,
                               sumi_error* error)
{
    SUMI_ASSERT(bytes > 0);
    uint32_t entry = sumi_vocabulary_find(&unigram->vocabulary, text, bytes);
    if (entry != NONE) {
        sumi_ids_put(out, sumi_vocabulary_id(&unigram->vocabulary, entry));
        return SUMI_OK;
    }
    if (unigram->byte_fallback) {
        static const char s_digits[] = "0123456789ABCDEF";
        char name[6] = {'<', '0', 'x', '0', '0', '>'};
        size_t known_count = 0;
        // byte fallback is used only if every byte has a token
        for (int32_t pass = 0; pass < 2 && (pass == 0 || known_count == bytes); pass++) {
            for (size_t i = 0; i < bytes; i++) {
                name[3] = s_digits[(unsigned char)text[i] >> 4];
                name[4] = s_digits[(unsigned char)text[i] & 15];
                entry = sumi_vocabulary_find(&unigram->vocabulary, name, sizeof name);
                if (pass == 1) {
                    sumi_ids_put(out, sumi_vocabulary_id(&unigram->vocabulary, entry));
                } else {
                    known_count += entry != NONE;
                }
            }
        }
        if (known_count == bytes) { return SUMI_OK; }
    }
    if (unigram->unknown_id == NONE) {
        return sumi_fail(error, SUMI_FILE_MALFORMED, "the tokenizer has no piece for the text %.*s and no unk_id",
                         (int)(bytes < 64 ? bytes : 64), text);
    }
    sumi_ids_put(out, unigram->unknown_id);
    return SUMI_OK;
}

sumi_result sumi_unigram_encode(sumi_heap* heap, const sumi_unigram* unigram, sumi_model_scratch* scratch,
                                const char* piece, size_t bytes, sumi_ids* out, sumi_error* error)
{
    SUMI_ASSERT(bytes > 0 && bytes < NONE);
    const double* scores = unigram->scores;
    const double unknown_score = unigram->min_score - UNKNOWN_PENALTY;
    SUMI_TRY(sumi_grow(heap, &scratch->nodes, &scratch->node_capacity, bytes + 1, sizeof(node), error));
    node* nodes = scratch->nodes;
    nodes[0] = (node){0.0, 0, 0};
    for (size_t i = 1; i <= bytes; i++) { nodes[i].start = NONE; }
    // every character boundary is reached, by a piece or by an unknown edge
    for (size_t start = 0, length; start < bytes; start += length) {
        length = sumi_utf8_length(piece + start);
        SUMI_ASSERT(start + length <= bytes && nodes[start].start != NONE); // the start is reached
        bool covered = false;
        sumi_vocabulary_walk walk = {0};
        while (sumi_vocabulary_next(&unigram->vocabulary, &walk, piece + start, bytes - start)) {
            SUMI_ASSERT(walk.bytes <= bytes - start && walk.entry < unigram->piece_count);
            offer(&nodes[start + walk.bytes], nodes[start].score + scores[walk.entry], (uint32_t)start,
                  sumi_vocabulary_id(&unigram->vocabulary, walk.entry));
            covered = covered || walk.bytes == length;
        }
        if (!covered) {
            offer(&nodes[start + length], nodes[start].score + unknown_score, (uint32_t)start, unigram->unknown_id);
        }
    }
    // Following the starts gives the pieces in reverse: reverse the links, then follow them forwards.
    uint32_t end = (uint32_t)bytes, next = NONE;
    while (end != 0) {
        uint32_t start = nodes[end].start;
        SUMI_ASSERT(start < end);
        nodes[end].start = next; // from now on: the end of the next piece
        next = end;
        end = start;
    }
    for (uint32_t begin = 0; next != NONE;) {
        uint32_t id = nodes[next].id, stop = next;
        SUMI_ASSERT(stop > begin);
        next = nodes[stop].start;
        if (id != unigram->unknown_id) {
            sumi_ids_put(out, id);
        } else {
            while (next != NONE && nodes[next].id == unigram->unknown_id) {
                stop = next;
                next = nodes[stop].start;
            }
            SUMI_TRY(put_unknown(unigram, piece + begin, stop - begin, out, error));
        }
        begin = stop;
    }
    return SUMI_OK;
}
