// Prompts from files: --prompts FILE has one in each line, --prompt @FILE is one.
#ifndef PROMPT_LINES_H
#define PROMPT_LINES_H
#include "args.h"

#define PROMPT_MAX_BYTES 65536 // many times what any model reads; a line beyond it is some other file's

typedef struct prompt_line {
    const char* text; // NULL: the prompt was encoded before
    int32_t number;   // of the line in the file, from 1; 0: from the command line
    int32_t size[2];  // of size=WxH; 0: not said
    uint64_t seed;    // of seed=N
    bool has_seed;
} prompt_line;

typedef struct prompt_lines {
    prompt_line* lines;
    int32_t count;
    char* file; // the bytes that the texts are in; NULL: they are elsewhere
} prompt_lines;

// The functions below return EXIT_OK, or print why not and return another exit code: EXIT_USAGE when the content is
// wrong, which is then named by file and line.

// Reads a prompt from each line of a file; "-" is standard input. Blank lines are left out, and lines that begin with
// #. The last words of a line may be seed=N and size=WxH.
int prompt_lines_read(const cli_command* command, const char* path, prompt_lines* out);
void prompt_lines_free(prompt_lines* lines); // accepts empty lines

// Replaces the value of an option, "@FILE", by the text in that file, without its last line end, and "@@..." by "@...".
// Other values stay. *out_memory receives what the caller frees after the last use of the text, or NULL.
int prompt_text_read(const cli_command* command, const char* option, const char** text, char** out_memory);

// "prompts.txt:7", or "the prompt" for one of the command line.
void prompt_line_name(const prompt_line* line, const char* path, char* into, size_t capacity);
#endif
