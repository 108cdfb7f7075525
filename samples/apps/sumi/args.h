// Command line arguments as tables: each command lists its options once. Parsing, checking, --help and the messages for
// all mistakes use that list.
#ifndef ARGS_H
#define ARGS_H
#include "system.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Exit codes of the process.
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_CANCELLED = 130 };

typedef enum option_kind {
    OPTION_FLAG,   // bool; takes no value
    OPTION_TEXT,   // const char*
    OPTION_TEXTS,  // text_list: may be given several times
    OPTION_COUNT,  // int32_t in [least, most]
    OPTION_SEED,   // uint64_t
    OPTION_NUMBER, // float in [least, most]
    OPTION_SIZE,   // int32_t[2] from "1024x768"
    OPTION_BYTES,  // uint64_t from "500M", "2G", "1073741824"
    OPTION_CHOICE, // int32_t: the index of the choice
    OPTION_RENAMED // an old name, which is refused with the new one, `argument`; not in help
} option_kind;

#define OPTIONS_MAX 96 // the most options of a command
#define TEXT_LIST_MAX 64
typedef struct text_list {
    const char* texts[TEXT_LIST_MAX];
    int32_t count;
} text_list;

typedef struct cli_option {
    const char* name; // "--steps"
    option_kind kind;
    void* value;          // unchanged when the option is not given
    const char* argument; // name of the value in help: "N"; for CHOICE the choices: "auto|cpu|cuda"
    const char* help;
    double least, most; // of COUNT and NUMBER
} cli_option;

typedef struct cli_command {
    const char* name;
    const char* about;   // a sentence or more
    const char* operand; // name of the one argument without dashes, or NULL
    const char** operand_value;
    const cli_option* options;
    size_t option_count;
    const char* examples; // whole lines
} cli_command;

typedef enum args_result { ARGS_RUN, ARGS_HELP, ARGS_WRONG } args_result;

// Parses argv[0, argc), the words after the command's name. ARGS_HELP: --help was given, and help was printed.
// ARGS_WRONG: a sentence was printed to stderr.
args_result args_parse(const cli_command* command, int argc, char** argv);
// Prints "sumi COMMAND: sentence" and how to get help. Returns EXIT_USAGE, so that a command can
// `return args_wrong(...)`.
int args_wrong(const cli_command* command, const char* format, ...) SYSTEM_PRINTF(2, 3);

// Values of SIZE and SEED in other places than options. They return false, and may have written to `out`, when the text
// is anything else.
bool args_read_size(const char* text, int32_t out[2]);
bool args_read_seed(const char* text, uint64_t* out);
// Which of the names is probably meant by a word; NULL: none. Dashes in front do not count.
const char* args_nearest(const char* word, const char* const* names, size_t name_count);

extern const char exit_code_help[]; // the last paragraph of every help text
// As the only word of a command it makes args_parse print the command's section of the manual page instead of help.
#define ARGS_MANUAL "--help-as-manual"
void args_print_manual_text(const char* text); // in the language of manual pages (roff, man(7)); lines stay lines
#endif
