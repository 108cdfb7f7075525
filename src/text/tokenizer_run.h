// A text on its way through a tokenizer. A run is a chain of stages. Each stage takes pieces of text from the stage
// before it and passes pieces on; the model, at the end, writes ids. The model pulls: a stage that needs more text
// pulls the stage before it, which does a bounded amount of work and shows more of its text.
//
//     source -> added tokens -> normalizer steps -> added tokens -> pre-tokenizer steps -> model -> ids
//       |           |                 |                 |                  |
//     repairs     cuts at       may change text       cuts at        cut into words
//     UTF-8       tokens                            normalised tokens
//
// A piece is a text between two cuts. Its end need not be known when its beginning is passed on: a stage shows the text
// that it knows to belong to the piece. How much this is depends only on a bounded number of bytes after it.
// Exceptions, in which a stage must hold the text that it has read: white space before an added token that strips it; a
// run of combining marks; a run of a pattern that is replaced only if it is long enough; text in which any two
// neighbours may be part of one token (bpe.c, unigram.c).
//
// So the first ids are known when a little more than their text has been read, and they equal those of the whole text.
#ifndef SUMI_TEXT_TOKENIZER_RUN_H
#define SUMI_TEXT_TOKENIZER_RUN_H
#include "text/token_models.h"
#include "text/tokenizer_parts.h"
#include "text/word_split.h"

enum {
    // About the most bytes that a stage examines in one pull.
    SUMI_STAGE_BYTES = 1024,
    // source, added tokens twice, the model, and two stages for each step of the pre-tokenizer
    SUMI_MAX_STAGES = 3 + SUMI_TOKENIZER_MAX_STEPS + 2 * SUMI_TOKENIZER_MAX_STEPS,
    // Kept for the next text: buffers of up to this size, and pages.
    SUMI_KEPT_BYTES = 64 * 1024,
    SUMI_KEPT_PAGES = 3,
};

// The text that a stage shows to the next one: the part of the current piece that was not taken yet.
typedef struct sumi_window {
    const char* text; // moves when the stage is pulled
    size_t bytes;
    bool is_last;  // nothing of the piece follows
    bool at_begin; // the piece begins where the text begins
} sumi_window;

// MORE: the stage shows more of its piece, or the next piece, or has found that the piece ends here. END: there is no
// further piece. PAUSE: the step's work is done.
typedef enum sumi_pull { SUMI_PULL_MORE, SUMI_PULL_END, SUMI_PULL_PAUSE } sumi_pull;

// Does one pull of stage `index`; called by sumi_run_pull.
typedef sumi_result sumi_stage_pull(sumi_tokenizer_run* run, size_t index, sumi_pull* out_pull);

typedef enum sumi_stage_kind {
    SUMI_STAGE_SOURCE,
    SUMI_STAGE_ADDED,
    SUMI_STAGE_NFC,
    SUMI_STAGE_CHARSMAP,
    SUMI_STAGE_REPLACE,
    SUMI_STAGE_STRIP,
    SUMI_STAGE_LITERAL,
    SUMI_STAGE_WHITESPACE,
    SUMI_STAGE_METASPACE, // replaces spaces by marks
    SUMI_STAGE_MARKS,     // splits at these marks
    SUMI_STAGE_WORDS
} sumi_stage_kind;

// Positions are counted from the beginning of the stage's input piece. The input window begins at `base`.
typedef struct sumi_stage_added {
    size_t at;                     // where the search continues
    size_t from;                   // end of the last token: where the text continues
    size_t solid;                  // after the last character before `at` that is not white space; not below `from`
    bool before_is_word;           // of the character before the window
    size_t token_begin, token_end; // of the token that was found, white space that it strips included
    const sumi_added_token* token;
    bool is_normalized;
} sumi_stage_added;

typedef struct sumi_stage_replace {
    size_t run;       // bytes at the window's beginning that are repetitions of the pattern
    bool is_replaced; // the run that continues at the window's beginning has been replaced
} sumi_stage_replace;

typedef struct sumi_stage_cut {
    size_t at;            // where the search continues
    size_t from;          // where the output piece begins
    size_t solid;         // STRIP: after the last character before `at` that is not white space
    sumi_word_split word; // WORDS
    // LITERAL. is_in_text: `at` is inside text between patterns; otherwise at a boundary. has_pattern: the text
    // just before `at` is a pattern. is_cut: the cut at `at` has been made.
    bool is_in_text, has_pattern, is_cut;
} sumi_stage_cut;

typedef struct sumi_text_stage {
    sumi_stage_kind kind;
    sumi_stage_pull* pull;
    const void* step; // sumi_normalize_step or sumi_split_step
    sumi_window out;
    // Of stages that change text: their output; `out` is its end. Kept from text to text.
    sumi_text_buffer buffer;
    bool has_input;     // an input piece was begun and has not ended
    bool has_output;    // an output piece was begun and has not ended
    bool is_ending;     // the output piece that has been shown whole is the last one of the input piece
    bool waits;         // the available input has been examined: more is needed
    bool makes_text;    // it changes text: `out` is the end of `buffer`, not a part of the input
    size_t base;        // position of the input window in the input piece
    size_t shown_bytes; // of `buffer`
    union {
        sumi_stage_added added;
        sumi_charsmap_state charsmap;
        sumi_stage_replace replace;
        sumi_stage_cut cut; // STRIP, LITERAL, WHITESPACE, MARKS, WORDS
        bool is_open;       // METASPACE: the beginning of the piece has been written
        sumi_nfc* nfc;
    } s;
} sumi_text_stage;

typedef enum sumi_run_phase {
    SUMI_RUN_IDLE, // no text
    SUMI_RUN_TEXT,
    SUMI_RUN_ENDS, // the ids after the text
    SUMI_RUN_DONE
} sumi_run_phase;

struct sumi_tokenizer_run {
    sumi_heap* heap;
    const sumi_tokenizer* tokenizer;
    sumi_text_part parts[SUMI_TOKENIZER_MAX_PARTS];
    int32_t part_count, part_index;
    size_t part_at; // bytes of the current part that were read
    bool special;
    size_t max_count;
    sumi_ids ids;
    sumi_run_phase phase;
    uint64_t work, work_limit; // done since begin; the limit of the current step
    sumi_text_stage stages[SUMI_MAX_STAGES];
    size_t stage_count;
    sumi_nfc* nfc[SUMI_TOKENIZER_MAX_STEPS]; // of the normalizer's NFC steps, by the step's index; made when needed
    sumi_bpe_state bpe;
    sumi_unigram_state unigram;
    sumi_error* error; // of the current step
};

static inline bool sumi_run_must_pause(const sumi_tokenizer_run* run) { return run->work >= run->work_limit; }

static inline void sumi_window_take(sumi_window* window, size_t bytes)
{
    SUMI_ASSERT(bytes <= window->bytes);
    window->text += bytes;
    window->bytes -= bytes;
}

// The largest position up to `at` that is not inside a character.
static inline size_t sumi_window_whole(const sumi_window* window, size_t at)
{
    SUMI_ASSERT(at <= window->bytes);
    while (at > 0 && at < window->bytes && ((unsigned char)window->text[at] & 0xC0) == 0x80) at--;
    return at;
}

// ---- What stages share (text_stage.c)

// Pulls stage `index`. Its window must show a piece whose end is not known; or the end of one that was taken completely.
sumi_result sumi_run_pull(sumi_tokenizer_run* run, size_t index, sumi_pull* out_pull);
// The first occurrence of pattern at or after `at`; `bytes` if there is none.
size_t sumi_pattern_find(const char* text, size_t bytes, size_t at, const sumi_short_text* pattern);
// Gets more input: more of the input piece, or, without one, the next piece.
sumi_result sumi_stage_refill(sumi_tokenizer_run* run, size_t index, sumi_pull* out_pull);
// Of stages that show parts of their input: drops the text that the next stage has taken.
void sumi_stage_follow(sumi_tokenizer_run* run, size_t index);
// Of any stage: if a piece has been shown whole and taken, forgets it.
void sumi_stage_end_piece(sumi_tokenizer_run* run, size_t index);
// Of stages that show parts of their input: shows it from `begin` on, where the piece begins, up to `end`; positions in
// the input piece. Returns whether this shows more than before.
bool sumi_stage_show(sumi_tokenizer_run* run, size_t index, size_t begin, size_t end, bool is_last);
// Of stages that change text: makes room in the buffer for more bytes, moving the text that was not taken to its
// beginning.
sumi_result sumi_stage_room(sumi_tokenizer_run* run, size_t index, size_t bytes);
// Of the same stages: shows the text that was appended to the buffer.
bool sumi_stage_show_buffer(sumi_tokenizer_run* run, size_t index, bool is_last);

// ---- The kinds of stages, for tokenizer_run.c alone; each does one pull

sumi_result sumi_stage_added_pull(sumi_tokenizer_run* run, size_t index, sumi_pull* out_pull);
sumi_result sumi_stage_change_pull(sumi_tokenizer_run* run, size_t index, sumi_pull* out_pull); // stages that make text
sumi_result sumi_stage_split_pull(sumi_tokenizer_run* run, size_t index, sumi_pull* out_pull);

// ---- The models: take the text of the last stage, a bounded part of it, and write ids. *out_pull as above.

void sumi_bpe_reset(sumi_bpe_state* state); // keeps memory
void sumi_unigram_reset(sumi_unigram_state* state);
sumi_result sumi_bpe_run(sumi_tokenizer_run* run, sumi_pull* out_pull);
sumi_result sumi_unigram_run(sumi_tokenizer_run* run, sumi_pull* out_pull);
#endif
