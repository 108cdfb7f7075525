// A text is tokenised in steps: no text makes a step long, the ids are those of the whole text, and no more of the text
// is read than the ids need.
#include "failing.h"
#include "text/tokenizer.h"
#include "tokenizer_fixture.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LONG_BYTES = 100 * 1000 };
#else
enum { LONG_BYTES = 1000 * 1000 };
#endif
enum { TEXT_BYTES = 100 * 1000 };

enum { TOKENIZER_COUNT = 5, STEP = 16384, FIRST_IDS = 512, COUNTED_IDS = 1536 };

static const char* const s_names[TOKENIZER_COUNT] = {"common/tokenizers/qwen/tokenizer.json",
                                                     "common/tokenizers/gemma3/tokenizer.json", XLMR_TOKENIZER,
                                                     XLMR_SPACES_TOKENIZER, GEMMA_MODEL};

static sumi_tokenizer* load_number(size_t number)
{
    if (strcmp(s_names[number], GEMMA_MODEL) != 0) return load_golden(s_names[number]);
    blob model = read_golden(GEMMA_MODEL);
    sumi_error error = {0};
    sumi_tokenizer* tokenizer = load_pieces(&s_heap, model.data, model.bytes, GEMMA_CONFIG, &error);
    CHECK_TEXT(error.text, "");
    free(model.data);
    return tokenizer;
}

// ---- Texts ----------------------------------------------------------------------------------------------------------

static const struct {
    const char* name;
    const char* pattern; // repeated; NULL: random bytes
    // Text of which a few thousand bytes have to be read for a few hundred ids; for the tokenizers of s_names, in order.
    const char* is_short;
} s_texts[] = {
    {"English", "a red fox sits in the snow at dawn, soft light, 35mm photo. ", "yyyyy"},
    {"an ideograph", "\xE7\x8B\x90", "yyyyy"},
    {"a letter", "a", "yyyyy"},
    {"a word", "the", "----y"},
    {"spaces", " ", "-----"},
    {"line ends", "\r\n", "yy--y"},
    {"marks", "\xCC\x81\xCC\xA3", "-y--y"},
    {"a letter with marks", "e\xCC\xA3\xCC\x81", "yy--y"},
    {"an added token", "<|im_start|>", "yyyyy"},
    {"an added token that strips", " <mask>", "yyyyy"},
    {"the begin of an added token", "<|im_start", "yyyyy"},
    {"Hangul in letters", "\xE1\x84\x80\xE1\x85\xA1\xE1\x86\xA8", "yy--y"},
    {"bytes that are no UTF-8", "\xF0\x9F", "yy--y"},
    {"a long replacement", "\xEF\xB7\xBA", "yyyyy"},
    {"random bytes", NULL, "yyyyy"},
};
enum { TEXT_COUNT = sizeof s_texts / sizeof *s_texts };

static void fill(char* text, size_t bytes, const char* pattern)
{
    s_random = 5;
    const size_t length = pattern != NULL ? strlen(pattern) : 1;
    for (size_t i = 0; i < bytes; i++) text[i] = pattern != NULL ? pattern[i % length] : (char)next_random();
}

// Adds pieces of many kinds, up to `bytes`.
static void fill_mixed(char* text, size_t bytes)
{
    static const char* const s_pieces[] = {" ",
                                           "  ",
                                           "\n",
                                           "\r\n",
                                           "a",
                                           "b",
                                           "aa",
                                           "the",
                                           " the",
                                           "fox ",
                                           "'s",
                                           "'\xC5\xBF",
                                           "1",
                                           "23",
                                           ".",
                                           "..",
                                           "<",
                                           "<|im_start|>",
                                           "<|im_end|>",
                                           "<|im_",
                                           "<mask>",
                                           " <mask>",
                                           "<s>",
                                           "<unk>",
                                           "<image_soft_token>",
                                           "\xCC\x81",
                                           "\xCC\xA3",
                                           "e\xCC\x81",
                                           "\xE2\x96\x81",
                                           "\xE1\x84\x80",
                                           "\xE1\x85\xA1",
                                           "\xE1\x86\xA8",
                                           "\xEA\xB0\x80",
                                           "\xE4\xB8\x80",
                                           "\xE7\x8B\x90",
                                           "\xF0\x9F\x91\xA8",
                                           "\xE2\x80\x8D",
                                           "\x80",
                                           "\xF0\x9F",
                                           "\xEF\xB7\xBA",
                                           "\xE0\xA4\x95",
                                           "\xE0\xA5\x8D",
                                           "\xE0\xB8\x81",
                                           "\xF0\x9D\x85\xA0",
                                           "\xC3\xA9",
                                           "\xE2\x84\xAB",
                                           "\xE3\x80\x80",
                                           "\xEF\xBC\xA1",
                                           "\xEF\xBD\xB6\xEF\xBE\x9E",
                                           "\xE0\xA6\xBE",
                                           "\xE0\xA7\x87",
                                           "\xC2\xA0",
                                           "\xC2\x85"};
    for (size_t at = 0; at < bytes;) {
        const char* piece = s_pieces[next_random() % (sizeof s_pieces / sizeof *s_pieces)];
        const size_t length = strlen(piece);
        for (uint32_t i = next_random() % 8 == 0 ? next_random() % 400 : 1; i > 0 && at < bytes; i--) {
            const size_t count = bytes - at < length ? bytes - at : length;
            memcpy(text + at, piece, count);
            at += count;
        }
    }
}

// ---- Runs -----------------------------------------------------------------------------------------------------------

static sumi_tokenizer_request request_of(const char* text, size_t bytes, int32_t* ids, size_t capacity,
                                         size_t max_count)
{
    return (sumi_tokenizer_request){.parts = {{text, bytes}},
                                    .part_count = 1,
                                    .special = true,
                                    .ids = ids,
                                    .capacity = capacity,
                                    .max_count = max_count};
}

// Runs to the end in steps, each of which is checked against its work. step 0: of random work. Returns the ids' number.
static size_t run_steps(sumi_tokenizer_run* run, const sumi_tokenizer* tokenizer, const sumi_tokenizer_request* request,
                        uint64_t step)
{
    sumi_error error = {0};
    CHECK_NUMBER(sumi_tokenizer_run_begin(run, tokenizer, request, &error), SUMI_OK);
    uint64_t done_work = 0, longest = 0;
    for (bool is_done = false; !is_done;) {
        const uint64_t work = step != 0 ? step : 1 + next_random() % 3000;
        const sumi_result result = sumi_tokenizer_run_step(run, work, &is_done, &error);
        if (result != SUMI_OK) {
            CHECK_TEXT(error.text, "");
            return 0;
        }
        CHECK(sumi_tokenizer_run_work(run) >= done_work);
        const uint64_t more = sumi_tokenizer_run_work(run) - done_work;
        done_work += more;
        longest = more > work && more - work > longest ? more - work : longest;
        if (more == 0 && !is_done) {
            CHECK(!"a step does something");
            return 0;
        }
    }
    CHECK(longest <= SUMI_TOKENIZER_STEP_WORK);
    return sumi_tokenizer_run_count(run);
}

static int32_t s_stepped[MAX_IDS];

TEST(no_text_makes_a_step_long)
{
    char* text = malloc(LONG_BYTES);
    sumi_tokenizer_run* run = NULL;
    CHECK_NUMBER(sumi_tokenizer_run_create(&s_heap, NULL, &run), SUMI_OK);
    for (size_t i = 0; i < TOKENIZER_COUNT; i++) {
        sumi_tokenizer* tokenizer = load_number(i);
        const size_t bytes = i < 3 ? LONG_BYTES : TEXT_BYTES; // one of each kind, and two variants
        for (size_t k = 0; k < TEXT_COUNT; k++) {
            fill(text, bytes, s_texts[k].pattern);
            sumi_tokenizer_request request = request_of(text, bytes, s_ids, MAX_IDS, SIZE_MAX);
            const size_t count = run_steps(run, tokenizer, &request, STEP);
            const uint64_t work = sumi_tokenizer_run_work(run);
            CHECK(count > 0 && work > bytes / 8 && work < (uint64_t)bytes * 400);
            // the first ids are the same ones, and known early where the text has cuts
            memset(s_stepped, 0xFF, sizeof s_stepped);
            request = request_of(text, bytes, s_stepped, FIRST_IDS, COUNTED_IDS);
            const size_t first = run_steps(run, tokenizer, &request, STEP),
                         want = count < FIRST_IDS ? count : FIRST_IDS;
            CHECK(count < COUNTED_IDS ? first == count : first >= COUNTED_IDS);
            CHECK(memcmp(s_ids, s_stepped, want * sizeof *s_ids) == 0);
            CHECK_NUMBER(s_stepped[FIRST_IDS], -1);
            const bool is_early = sumi_tokenizer_run_work(run) * 5 < work,
                       must_be = s_texts[k].is_short[i] == 'y' && count > 8 * COUNTED_IDS;
            if (must_be && !is_early) printf("  %s: all of %s was read\n", s_names[i], s_texts[k].name);
            CHECK(is_early || !must_be);
        }
        sumi_tokenizer_destroy(tokenizer);
    }
    sumi_tokenizer_run_destroy(run);
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
    free(text);
}

// The same texts inside of a template, whose line end and tokens decide about what is beside them.
TEST(no_text_in_a_template_makes_a_step_long)
{
    static const char s_before[] = "<|im_start|>user\n", s_after[] = "<|im_end|>\n";
    char* text = malloc(TEXT_BYTES);
    sumi_tokenizer_run* run = NULL;
    CHECK_NUMBER(sumi_tokenizer_run_create(&s_heap, NULL, &run), SUMI_OK);
    for (size_t i = 0; i < TOKENIZER_COUNT; i++) {
        sumi_tokenizer* tokenizer = load_number(i);
        for (size_t k = 0; k < TEXT_COUNT; k++) {
            fill(text, TEXT_BYTES, s_texts[k].pattern);
            memcpy(text, s_before, sizeof s_before - 1);
            memcpy(text + TEXT_BYTES - sizeof s_after + 1, s_after, sizeof s_after - 1);
            const sumi_tokenizer_request request = request_of(text, TEXT_BYTES, s_ids, MAX_IDS, SIZE_MAX);
            CHECK(run_steps(run, tokenizer, &request, STEP) > 0);
        }
        sumi_tokenizer_destroy(tokenizer);
    }
    sumi_tokenizer_run_destroy(run);
    free(text);
}

// Random texts, in random parts and steps, with random capacities: the ids are those of one step.
TEST(steps_and_parts_do_not_change_ids)
{
    enum { LONGEST = 12000, TEXTS = 60 };
    char* text = malloc(LONGEST);
    sumi_tokenizer_run* run = NULL;
    CHECK_NUMBER(sumi_tokenizer_run_create(&s_heap, NULL, &run), SUMI_OK);
    for (size_t i = 0; i < TOKENIZER_COUNT; i++) {
        sumi_tokenizer* tokenizer = load_number(i);
        s_random = (uint32_t)i + 11;
        for (size_t k = 0; k < TEXTS; k++) {
            const size_t bytes = next_random() % (k % 3 == 0 ? LONGEST : 300);
            fill_mixed(text, bytes);
            const size_t count = encode(tokenizer, text, bytes, true);
            const size_t capacity = k % 2 == 0 ? count : next_random() % (count + 1), beyond = next_random() % 100;
            sumi_tokenizer_request request =
                request_of(text, 0, s_stepped, capacity, k % 4 == 0 ? SIZE_MAX : capacity + beyond);
            request.part_count = (int32_t)(1 + next_random() % 4);
            size_t at = 0;
            for (int32_t p = 0; p < request.part_count; p++) {
                size_t end = p + 1 == request.part_count ? bytes : at + next_random() % (bytes - at + 1);
                while (end > at && end < bytes && (unsigned char)text[end] >= 0x80) end--;
                request.parts[p] = (sumi_text_part){text + at, end - at};
                at = end;
            }
            const size_t stepped = run_steps(run, tokenizer, &request, 0);
            CHECK(count < request.max_count ? stepped == count : stepped >= request.max_count);
            const size_t want = stepped < capacity ? stepped : capacity;
            CHECK(memcmp(s_ids, s_stepped, want * sizeof *s_ids) == 0);
        }
        sumi_tokenizer_destroy(tokenizer);
    }
    sumi_tokenizer_run_destroy(run);
    free(text);
}

// A text that is given up in the middle leaves nothing behind for the next one, whose tokenizer may be another.
TEST(a_text_can_be_given_up_at_any_step)
{
    sumi_tokenizer* tokenizers[TOKENIZER_COUNT];
    char* text = malloc(20000);
    fill_mixed(text, 20000);
    sumi_tokenizer_run* run = NULL;
    CHECK_NUMBER(sumi_tokenizer_run_create(&s_heap, NULL, &run), SUMI_OK);
    for (size_t i = 0; i < TOKENIZER_COUNT; i++) tokenizers[i] = load_number(i);
    for (uint32_t steps = 0; steps < 60; steps++) {
        const sumi_tokenizer *first = tokenizers[steps % TOKENIZER_COUNT],
                             *second = tokenizers[(steps / TOKENIZER_COUNT) % TOKENIZER_COUNT];
        sumi_tokenizer_request request = request_of(text, 20000, s_stepped, MAX_IDS, SIZE_MAX);
        bool is_done = false;
        CHECK_NUMBER(sumi_tokenizer_run_begin(run, first, &request, NULL), SUMI_OK);
        for (uint32_t i = 0; i < steps && !is_done; i++)
            CHECK_NUMBER(sumi_tokenizer_run_step(run, 700, &is_done, NULL), SUMI_OK);
        if (steps % 2 == 0) sumi_tokenizer_run_end(run);
        request = request_of(text, 500, s_stepped, MAX_IDS, SIZE_MAX);
        const size_t count = run_steps(run, second, &request, 200);
        CHECK_NUMBER(encode((sumi_tokenizer*)second, text, 500, true), count);
        CHECK(memcmp(s_ids, s_stepped, count * sizeof *s_ids) == 0);
    }
    for (size_t i = 0; i < TOKENIZER_COUNT; i++) sumi_tokenizer_destroy(tokenizers[i]);
    sumi_tokenizer_run_destroy(run);
    sumi_tokenizer_run_destroy(NULL);
    sumi_tokenizer_run_end(NULL);
    free(text);
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

TEST(a_second_text_of_the_same_size_allocates_nothing)
{
    static const char s_text[] = "a cafe\xCC\x81  with 3 chairs \xEF\xBC\xA1 \xFF and a very long word: "
                                 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    for (size_t i = 0; i < TOKENIZER_COUNT; i++) {
        sumi_tokenizer* tokenizer = load_number(i);
        sumi_tokenizer_run* run = NULL;
        CHECK_NUMBER(sumi_tokenizer_run_create(&s_heap, NULL, &run), SUMI_OK);
        const sumi_tokenizer_request request = request_of(s_text, sizeof s_text - 1, s_stepped, MAX_IDS, SIZE_MAX);
        run_steps(run, tokenizer, &request, STEP);
        sumi_tokenizer_run_end(run);
        const uint64_t count = atomic_load(&s_heap.count);
        run_steps(run, tokenizer, &request, STEP);
        sumi_tokenizer_run_end(run);
        CHECK_NUMBER(atomic_load(&s_heap.count), count);
        sumi_tokenizer_run_destroy(run);
        sumi_tokenizer_destroy(tokenizer);
    }
    CHECK_NUMBER(atomic_load(&s_heap.allocated_bytes), 0);
}

// Memory is that of the longest part which has to be looked at as a whole, and what is kept is small.
TEST(memory_is_bounded_by_what_is_read)
{
    char* text = malloc(TEXT_BYTES);
    for (size_t i = 0; i < TOKENIZER_COUNT; i++) {
        sumi_tokenizer* tokenizer = load_number(i);
        for (size_t k = 0; k < TEXT_COUNT; k++) {
            sumi_heap heap;
            sumi_heap_init(&heap, NULL);
            sumi_tokenizer_run* run = NULL;
            CHECK_NUMBER(sumi_tokenizer_run_create(&heap, NULL, &run), SUMI_OK);
            fill(text, TEXT_BYTES, s_texts[k].pattern);
            const sumi_tokenizer_request request = request_of(text, TEXT_BYTES, s_stepped, FIRST_IDS, COUNTED_IDS);
            run_steps(run, tokenizer, &request, STEP);
            const uint64_t most = s_texts[k].is_short[i] == 'y' ? 300 * 1000 : (uint64_t)TEXT_BYTES * 64;
            CHECK(atomic_load(&heap.peak) < most);
            sumi_tokenizer_run_end(run);
            CHECK(atomic_load(&heap.allocated_bytes) < 700 * 1000);
            sumi_tokenizer_run_destroy(run);
            CHECK_NUMBER(atomic_load(&heap.allocated_bytes), 0);
        }
        sumi_tokenizer_destroy(tokenizer);
    }
    free(text);
}

TEST(any_allocation_of_a_run_may_fail)
{
    enum { BYTES = 30000 };
    char* text = malloc(BYTES);
    for (size_t k = 0; k < 3; k++) {
        fill(text, BYTES, k == 0 ? "a" : k == 1 ? "\xCC\x81\xCC\xA3" : NULL);
        for (size_t i = 0; i < TOKENIZER_COUNT; i++) {
            sumi_tokenizer* tokenizer = load_number(i);
            bool worked = false;
            for (int64_t n = 0; n < 500 && !worked; n++) {
                failing f = {.left = n};
                const sumi_allocator allocator = failing_allocator(&f);
                sumi_heap heap;
                sumi_heap_init(&heap, &allocator);
                sumi_tokenizer_run* run = NULL;
                sumi_error error = {0};
                const sumi_tokenizer_request request = request_of(text, BYTES, s_stepped, MAX_IDS, SIZE_MAX);
                sumi_result result = sumi_tokenizer_run_create(&heap, &error, &run);
                if (result == SUMI_OK) result = sumi_tokenizer_run_begin(run, tokenizer, &request, &error);
                for (bool is_done = false; result == SUMI_OK && !is_done;)
                    result = sumi_tokenizer_run_step(run, STEP, &is_done, &error);
                CHECK(result == SUMI_OK || (result == SUMI_OUT_OF_HOST_MEMORY && error.text[0] != '\0'));
                worked = result == SUMI_OK;
                if (run != NULL && !worked) { // memory has come back: the same run works
                    f.left = INT64_MAX;
                    const size_t count = run_steps(run, tokenizer, &request, STEP);
                    CHECK_NUMBER(encode(tokenizer, text, BYTES, true), count);
                    CHECK(memcmp(s_ids, s_stepped, count * sizeof *s_ids) == 0);
                }
                sumi_tokenizer_run_destroy(run);
                CHECK_NUMBER(f.held, 0);
            }
            CHECK(worked);
            sumi_tokenizer_destroy(tokenizer);
        }
    }
    free(text);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(no_text_makes_a_step_long);
    RUN(no_text_in_a_template_makes_a_step_long);
    RUN(steps_and_parts_do_not_change_ids);
    RUN(a_text_can_be_given_up_at_any_step);
    RUN(a_second_text_of_the_same_size_allocates_nothing);
    RUN(memory_is_bounded_by_what_is_read);
    RUN(any_allocation_of_a_run_may_fail);
    TEST_END();
}
