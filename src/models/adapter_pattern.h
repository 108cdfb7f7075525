// The regular expressions of alpha_pattern and rank_pattern, as PEFT matches them: the pattern has to match a module's
// whole name, or its end after a dot, as re.match(rf"(.*\.)?({pattern})$", module) does.
//
// Read are: characters, `.`, `\` before a character other than letters and digits, `\d`, `\w`, `\s`, sets ([abc], [0-9],
// [^x]), groups, `|`, `*`, `+`, `?` (and their lazy forms, which match the same names), `^` and `$`. A pattern is made
// into a list of at most SUMI_PATTERN_MAX_STEPS steps, and all ways through the list are followed at once: the time is
// at most steps times characters, whatever the pattern is.
#ifndef SUMI_MODELS_ADAPTER_PATTERN_H
#define SUMI_MODELS_ADAPTER_PATTERN_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SUMI_PATTERN_MAX_STEPS 256

typedef enum sumi_pattern_step_kind {
    SUMI_PATTERN_SET,   // one character of the set
    SUMI_PATTERN_SPLIT, // continues at `to` and at `other`
    SUMI_PATTERN_BEGIN, // only at the first character
    SUMI_PATTERN_END,   // only after the last character
    SUMI_PATTERN_MATCH
} sumi_pattern_step_kind;

typedef struct sumi_pattern_step {
    sumi_pattern_step_kind kind;
    int32_t to, other; // the next steps
    uint32_t set[8];   // a bit for each value of a byte
} sumi_pattern_step;

typedef struct sumi_pattern {
    int32_t begin, count;
    sumi_pattern_step steps[SUMI_PATTERN_MAX_STEPS];
} sumi_pattern;

// False if the pattern has something else, or is longer than the list.
bool sumi_pattern_read(sumi_pattern* pattern, const char* text, size_t bytes);
bool sumi_pattern_matches(const sumi_pattern* pattern, const char* name, size_t bytes);
#endif
