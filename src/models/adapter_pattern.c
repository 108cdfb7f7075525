// Thompson's construction: every part of the pattern becomes a fragment with one first step and one way out. See
// https://swtch.com/~rsc/regexp/regexp1.html.
#include "models/adapter_pattern.h"
#include "base/assert.h"
#include <string.h>

#define MAX_DEPTH 16 // of groups

typedef struct reader {
    sumi_pattern* pattern;
    const unsigned char* text;
    size_t bytes, at;
    int32_t depth;
    bool has_failed;
} reader;

// The steps of a part of the pattern. `last` is a SPLIT without a second way, whose `to` is the way out.
typedef struct fragment {
    int32_t first, last;
} fragment;

// ---- Steps ----------------------------------------------------------------------------------------------------------

static int32_t add_step(reader* r, sumi_pattern_step_kind kind, int32_t to, int32_t other)
{
    if (r->pattern->count == SUMI_PATTERN_MAX_STEPS) r->has_failed = true;
    if (r->has_failed) return 0;
    r->pattern->steps[r->pattern->count] = (sumi_pattern_step){.kind = kind, .to = to, .other = other};
    return r->pattern->count++;
}

static fragment empty_fragment(reader* r)
{
    const int32_t step = add_step(r, SUMI_PATTERN_SPLIT, -1, -1);
    return (fragment){step, step};
}

static fragment single_fragment(reader* r, sumi_pattern_step_kind kind)
{
    const int32_t last = add_step(r, SUMI_PATTERN_SPLIT, -1, -1);
    return (fragment){add_step(r, kind, last, -1), last};
}

static void add_to_set(uint32_t* set, unsigned begin, unsigned end)
{
    for (unsigned c = begin; c <= end; c++) set[c / 32] |= 1u << (c % 32);
}

static fragment set_fragment(reader* r, const uint32_t* set)
{
    const fragment f = single_fragment(r, SUMI_PATTERN_SET);
    if (!r->has_failed) memcpy(r->pattern->steps[f.first].set, set, sizeof r->pattern->steps[0].set);
    return f;
}

static fragment join(reader* r, fragment a, fragment b)
{
    if (r->has_failed) return a;
    r->pattern->steps[a.last].to = b.first;
    return (fragment){a.first, b.last};
}

static fragment either(reader* r, fragment a, fragment b)
{
    const int32_t last = add_step(r, SUMI_PATTERN_SPLIT, -1, -1),
                  first = add_step(r, SUMI_PATTERN_SPLIT, a.first, b.first);
    if (!r->has_failed) r->pattern->steps[a.last].to = r->pattern->steps[b.last].to = last;
    return (fragment){first, last};
}

// The part any number of times: at least once with `has_one`, at most once without `repeats`.
static fragment repeat(reader* r, fragment a, bool has_one, bool repeats)
{
    const int32_t last = add_step(r, SUMI_PATTERN_SPLIT, -1, -1),
                  choice = add_step(r, SUMI_PATTERN_SPLIT, a.first, last);
    if (r->has_failed) return a;
    r->pattern->steps[a.last].to = repeats ? choice : last;
    return (fragment){has_one ? a.first : choice, last};
}

// ---- Reading --------------------------------------------------------------------------------------------------------

static bool is_letter_or_digit(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Adds the character or class after a backslash. False: the escape is not supported.
static bool read_escape(reader* r, uint32_t* set)
{
    if (r->at == r->bytes) return false;
    const unsigned char c = r->text[r->at++];
    if (c == 'w') {
        add_to_set(set, 'a', 'z');
        add_to_set(set, 'A', 'Z');
        add_to_set(set, '_', '_');
    }
    if (c == 's') {
        add_to_set(set, '\t', '\r');
        add_to_set(set, ' ', ' ');
    } else if (c == 'w' || c == 'd') {
        add_to_set(set, '0', '9');
    } else if (is_letter_or_digit(c) || c >= 0x80) {
        return false;
    } else {
        add_to_set(set, c, c);
    }
    return true;
}

// Reads a set after its '['.
static fragment read_set(reader* r)
{
    uint32_t set[8] = {0};
    const bool is_inverted = r->at < r->bytes && r->text[r->at] == '^';
    r->at += is_inverted;
    for (bool is_first = true; r->at < r->bytes && (r->text[r->at] != ']' || is_first); is_first = false) {
        const unsigned char c = r->text[r->at++];
        const bool is_range = r->at + 1 < r->bytes && r->text[r->at] == '-' && r->text[r->at + 1] != ']';
        if (c == '\\') {
            r->has_failed |= !read_escape(r, set);
        } else if (is_range) {
            const unsigned char end = r->text[r->at + 1];
            r->has_failed |= end < c || end == '\\' || end >= 0x80;
            if (!r->has_failed) add_to_set(set, c, end);
            r->at += 2;
        } else {
            r->has_failed |= c >= 0x80;
            add_to_set(set, c, c);
        }
    }
    r->has_failed |= r->at >= r->bytes;
    r->at++;
    for (int32_t i = 0; i < 8 && is_inverted; i++) set[i] = ~set[i];
    return set_fragment(r, set);
}

static fragment read_alternatives(reader* r);

static fragment read_group(reader* r)
{
    if (r->bytes - r->at >= 2 && r->text[r->at] == '?' && r->text[r->at + 1] == ':') r->at += 2;
    if (++r->depth > MAX_DEPTH || r->at == r->bytes || r->text[r->at] == '?') {
        r->has_failed = true;
        return (fragment){0, 0};
    }
    const fragment f = read_alternatives(r);
    r->depth--;
    r->has_failed |= r->at >= r->bytes || r->text[r->at] != ')';
    r->at++;
    return f;
}

static fragment read_one(reader* r)
{
    uint32_t set[8] = {0};
    const unsigned char c = r->text[r->at++];
    switch (c) {
    case '(': return read_group(r);
    case '[': return read_set(r);
    case '^': return single_fragment(r, SUMI_PATTERN_BEGIN);
    case '$': return single_fragment(r, SUMI_PATTERN_END);
    case '.':
        add_to_set(set, 0, 255);
        set['\n' / 32] &= ~(1u << '\n');
        break;
    case '\\': r->has_failed |= !read_escape(r, set); break;
    case '*':
    case '+':
    case '?':
    case '{': r->has_failed = true; break; // nothing before it, or a number of repetitions
    default: add_to_set(set, c, c); break;
    }
    return set_fragment(r, set);
}

static fragment read_sequence(reader* r)
{
    fragment all = empty_fragment(r);
    while (!r->has_failed && r->at < r->bytes && r->text[r->at] != '|' && r->text[r->at] != ')') {
        fragment one = read_one(r);
        const unsigned char c = r->at < r->bytes ? r->text[r->at] : 0;
        if (c == '*' || c == '+' || c == '?') {
            one = repeat(r, one, c == '+', c != '?');
            r->at++;
            if (r->at < r->bytes && r->text[r->at] == '?') r->at++; // lazy
        }
        all = join(r, all, one);
    }
    return all;
}

static fragment read_alternatives(reader* r)
{
    fragment all = read_sequence(r);
    while (!r->has_failed && r->at < r->bytes && r->text[r->at] == '|') {
        r->at++;
        all = either(r, all, read_sequence(r));
    }
    return all;
}

bool sumi_pattern_read(sumi_pattern* pattern, const char* text, size_t bytes)
{
    reader r = {.pattern = pattern, .text = (const unsigned char*)text, .bytes = bytes};
    pattern->count = 0;
    // (.*\.)?
    uint32_t any[8], dot[8] = {0};
    memset(any, 0xff, sizeof any);
    add_to_set(dot, '.', '.');
    const fragment head = join(&r, repeat(&r, set_fragment(&r, any), false, true), set_fragment(&r, dot));
    fragment all = join(&r, repeat(&r, head, false, false), read_alternatives(&r));
    all = join(&r, all, single_fragment(&r, SUMI_PATTERN_END));
    const int32_t match = add_step(&r, SUMI_PATTERN_MATCH, -1, -1);
    if (r.has_failed || r.at != bytes) return false; // `at` is before a ')' without a '('
    pattern->steps[all.last].to = match;
    pattern->begin = all.first;
    return true;
}

// ---- Matching -------------------------------------------------------------------------------------------------------

// The steps that can be next. A step is in the list at most once.
typedef struct step_list {
    int32_t steps[SUMI_PATTERN_MAX_STEPS], count;
    bool is_listed[SUMI_PATTERN_MAX_STEPS];
} step_list;

static void add_to_list(step_list* list, int32_t step)
{
    if (step < 0 || list->is_listed[step]) return;
    list->is_listed[step] = true;
    list->steps[list->count++] = step;
}

// Follows the ways that read no character. Returns whether one of them ends.
static bool follow(const sumi_pattern* pattern, step_list* list, bool is_begin, bool is_end)
{
    bool matches = false;
    for (int32_t i = 0; i < list->count; i++) { // the list grows meanwhile
        const sumi_pattern_step* step = &pattern->steps[list->steps[i]];
        matches = matches || step->kind == SUMI_PATTERN_MATCH;
        if (step->kind == SUMI_PATTERN_SPLIT) {
            add_to_list(list, step->to);
            add_to_list(list, step->other);
        }
        if ((step->kind == SUMI_PATTERN_BEGIN && is_begin) || (step->kind == SUMI_PATTERN_END && is_end))
            add_to_list(list, step->to);
    }
    return matches;
}

bool sumi_pattern_matches(const sumi_pattern* pattern, const char* name, size_t bytes)
{
    SUMI_ASSERT(pattern->count > 0 && pattern->count <= SUMI_PATTERN_MAX_STEPS);
    step_list lists[2];
    memset(lists, 0, sizeof lists);
    step_list *now = &lists[0], *next = &lists[1];
    add_to_list(now, pattern->begin);
    bool matches = follow(pattern, now, true, bytes == 0);
    for (size_t at = 0; at < bytes && now->count > 0; at++) {
        const unsigned char c = (unsigned char)name[at];
        memset(next, 0, sizeof *next);
        for (int32_t i = 0; i < now->count; i++) {
            const sumi_pattern_step* step = &pattern->steps[now->steps[i]];
            if (step->kind == SUMI_PATTERN_SET && (step->set[c / 32] >> (c % 32) & 1u) != 0)
                add_to_list(next, step->to);
        }
        matches = follow(pattern, next, false, at + 1 == bytes);
        step_list* used = now;
        now = next;
        next = used;
    }
    return matches && now->count > 0;
}
