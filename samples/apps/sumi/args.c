#include "args.h"
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char exit_code_help[] = "exit codes: 0 done, 1 failed, 2 wrong arguments (also those that only the model "
                              "refuses), 130 cancelled with Ctrl-C (a second Ctrl-C ends at once)\n";

int args_wrong(const cli_command* command, const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "sumi %s: ", command->name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n  sumi %s --help lists the options\n", command->name);
    va_end(arguments);
    return EXIT_USAGE;
}

// ---- Help -----------------------------------------------------------------------------------------------------------

// Prints text in lines of at most 100 columns, all lines but the first indented.
static void print_wrapped(const char* text, int column, int indent)
{
    for (bool first = true; *text; first = false) {
        size_t length = strcspn(text, " ");
        if (!first && column + 1 + (int)length > 100) {
            printf("\n%*s", indent, "");
            column = indent;
        } else if (!first) {
            putchar(' ');
            column++;
        }
        printf("%.*s", (int)length, text);
        column += (int)length;
        text += length;
        while (*text == ' ') text++;
    }
    putchar('\n');
}

static void print_help(const cli_command* command)
{
    printf("usage: sumi %s%s%s [options]\n\n", command->name, command->operand ? " " : "",
           command->operand ? command->operand : "");
    print_wrapped(command->about, 0, 0);
    printf("\n");
    for (size_t i = 0; i < command->option_count; i++) {
        const cli_option* option = &command->options[i];
        if (option->kind == OPTION_RENAMED) continue;
        const char* argument = option->argument ? option->argument : "";
        int column = printf("  %s %s", option->name, argument);
        if (column > 30) printf("\n"), column = 0;
        printf("%*s", 32 - column, "");
        print_wrapped(option->help, 32, 32);
    }
    printf("  %-30s%s\n", "--help", "this text");
    printf("\nexamples:\n%s\n%s", command->examples, exit_code_help);
}

// ---- The manual page ------------------------------------------------------------------------------------------------

void args_print_manual_text(const char* text)
{
    for (bool is_line_begin = true; *text; text++) {
        if (is_line_begin && (*text == '.' || *text == '\'')) printf("\\&"); // else it would be a request
        if (*text == '\\') printf("\\e");
        else if (*text == '-') printf("\\-");
        else putchar(*text);
        is_line_begin = *text == '\n';
    }
}

static void print_manual(const cli_command* command)
{
    printf(".SH SUMI ");
    for (const char* letter = command->name; *letter; letter++) putchar(toupper((unsigned char)*letter));
    printf("\n.B sumi %s\n", command->name);
    if (command->operand) printf(".I %s\n", command->operand);
    printf(".RI [ options ]\n.PP\n");
    args_print_manual_text(command->about);
    for (size_t i = 0; i < command->option_count; i++) {
        const cli_option* option = &command->options[i];
        if (option->kind == OPTION_RENAMED) continue;
        printf("\n.TP\n.B ");
        args_print_manual_text(option->name);
        if (option->argument) {
            printf(" \\fI");
            args_print_manual_text(option->argument);
            printf("\\fR");
        }
        printf("\n");
        args_print_manual_text(option->help);
    }
    printf("\n.SS Examples\n.EX\n");
    args_print_manual_text(command->examples);
    printf(".EE\n");
}

// ---- Which name was meant -------------------------------------------------------------------------------------------

static size_t edit_distance(const char* a, const char* b)
{
    size_t row[64], n = strlen(b);
    if (n >= 64) return SIZE_MAX;
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 0; a[i]; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t above = row[j + 1], best = diagonal + (a[i] != b[j]);
            if (above + 1 < best) best = above + 1;
            if (row[j] + 1 < best) best = row[j] + 1;
            diagonal = above;
            row[j + 1] = best;
        }
    }
    return row[n];
}

const char* args_nearest(const char* word, const char* const* names, size_t name_count)
{
    word += strspn(word, "-");
    const size_t length = strlen(word);
    if (length < 2 || length >= 64) return NULL; // one letter is near too many names
    const char* nearest = NULL;
    size_t least = length < 5 ? 2 : 4; // edits; a name that differs more is not suggested
    for (size_t i = 0; i < name_count; i++) {
        const char* name = names[i] + strspn(names[i], "-");
        if (strlen(name) < 2) continue;
        const size_t distance = edit_distance(word, name);
        if (distance < least) least = distance, nearest = names[i];
    }
    for (size_t i = 0; i < name_count && !nearest; i++) { // the beginning of a long name
        if (strncmp(word, names[i] + strspn(names[i], "-"), length) == 0) nearest = names[i];
    }
    return nearest;
}

static int wrong_option(const cli_command* command, const char* word, size_t name_bytes)
{
    char name[64];
    const char* names[OPTIONS_MAX];
    size_t count = 0;
    snprintf(name, sizeof name, "%.*s", (int)name_bytes, word);
    for (size_t i = 0; i < command->option_count; i++) {
        if (command->options[i].kind != OPTION_RENAMED) names[count++] = command->options[i].name;
    }
    const char* nearest = args_nearest(name, names, count);
    return nearest ? args_wrong(command, "there is no option %s; is %s meant?", word, nearest)
                   : args_wrong(command, "there is no option %s", word);
}

static const cli_option* find_option(const cli_command* command, const char* word, size_t name_bytes)
{
    for (size_t i = 0; i < command->option_count; i++) {
        const char* name = command->options[i].name;
        if (strlen(name) == name_bytes && memcmp(name, word, name_bytes) == 0) return &command->options[i];
    }
    return NULL;
}

// ---- Values ---------------------------------------------------------------------------------------------------------

static bool read_number(const char* text, double* out)
{
    char* end;
    errno = 0;
    *out = strtod(text, &end);
    return end != text && *end == 0 && isfinite(*out);
}

static bool read_unsigned(const char* text, uint64_t* out, const char** out_end)
{
    char* end;
    if (*text < '0' || *text > '9') return false; // strtoull would accept signs and blanks
    errno = 0;
    *out = strtoull(text, &end, 10);
    *out_end = end;
    return errno == 0;
}

bool args_read_seed(const char* text, uint64_t* out)
{
    const char* end;
    return read_unsigned(text, out, &end) && *end == 0;
}

static bool read_bytes(const char* text, uint64_t* out)
{
    static const char s_units[] = "KMGT";
    const char* end;
    uint64_t number;
    if (!read_unsigned(text, &number, &end)) return false;
    int shift = 0;
    const char* unit = *end ? strchr(s_units, *end >= 'a' ? *end - 'a' + 'A' : *end) : NULL;
    if (unit) {
        shift = 10 * (int)(unit - s_units + 1);
        end++;
        if (*end == 'i') end++;
    }
    if (*end == 'B' || *end == 'b') end++;
    if (*end || number > UINT64_MAX >> shift) return false;
    *out = number << shift;
    return true;
}

bool args_read_size(const char* text, int32_t out[2])
{
    const char* end;
    uint64_t width, height;
    if (!read_unsigned(text, &width, &end) || (*end != 'x' && *end != 'X') || !read_unsigned(end + 1, &height, &end)
        || *end)
        return false;
    if (width < 1 || height < 1 || width > 1 << 20 || height > 1 << 20) return false;
    out[0] = (int32_t)width;
    out[1] = (int32_t)height;
    return true;
}

static bool read_choice(const char* choices, const char* text, int32_t* out)
{
    size_t length = strlen(text);
    for (int32_t index = 0;; index++) {
        size_t here = strcspn(choices, "|");
        if (here == length && memcmp(choices, text, length) == 0) {
            *out = index;
            return true;
        }
        choices += here;
        if (!*choices++) return false;
    }
}

static bool store(const cli_command* command, const cli_option* option, const char* text)
{
    double number;
    switch (option->kind) {
    case OPTION_FLAG: *(bool*)option->value = true; return true;
    case OPTION_TEXT: *(const char**)option->value = text; return true;
    case OPTION_TEXTS: {
        text_list* list = option->value;
        if (list->count == TEXT_LIST_MAX)
            return args_wrong(command, "%s may be given at most %d times", option->name, TEXT_LIST_MAX), false;
        list->texts[list->count++] = text;
        return true;
    }
    case OPTION_COUNT:
        if (!read_number(text, &number) || number != floor(number) || number < option->least || number > option->most)
            return args_wrong(command, "%s %s: give a whole number from %.0f to %.0f", option->name, text,
                              option->least, option->most),
                   false;
        *(int32_t*)option->value = (int32_t)number;
        return true;
    case OPTION_SEED:
        if (!args_read_seed(text, option->value))
            return args_wrong(command, "%s %s: give a whole number from 0 to 18446744073709551615", option->name, text),
                   false;
        return true;
    case OPTION_NUMBER:
        if (!read_number(text, &number) || number < option->least || number > option->most)
            return args_wrong(command, "%s %s: give a number from %g to %g", option->name, text, option->least,
                              option->most),
                   false;
        *(float*)option->value = (float)number;
        return true;
    case OPTION_SIZE:
        if (!args_read_size(text, option->value))
            return args_wrong(command, "%s %s: give width and height in pixels, as in 1024x768", option->name, text),
                   false;
        return true;
    case OPTION_BYTES:
        if (!read_bytes(text, option->value))
            return args_wrong(command, "%s %s: give bytes, or a number with K, M, G or T, as in 500M or 2G",
                              option->name, text),
                   false;
        return true;
    case OPTION_CHOICE:
        if (!read_choice(option->argument, text, option->value))
            return args_wrong(command, "%s %s: give one of %s", option->name, text, option->argument), false;
        return true;
    case OPTION_RENAMED: break; // args_parse has refused it
    }
    return false;
}

// ---- Parsing --------------------------------------------------------------------------------------------------------

args_result args_parse(const cli_command* command, int argc, char** argv)
{
    bool given[OPTIONS_MAX] = {false};
    bool options_end = false;
    for (int i = 0; i < argc; i++) {
        char* word = argv[i];
        if (!options_end && strcmp(word, "--") == 0) {
            options_end = true;
            continue;
        }
        if (options_end || word[0] != '-' || word[1] == 0) {
            if (!command->operand)
                return args_wrong(command,
                                  "\"%s\" stands alone: every value needs its option before it (blanks in a value need "
                                  "quotes)",
                                  word),
                       ARGS_WRONG;
            if (*command->operand_value)
                return args_wrong(command, "one %s at a time: \"%s\" is too many", command->operand, word), ARGS_WRONG;
            *command->operand_value = word;
            continue;
        }
        if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
            print_help(command);
            return ARGS_HELP;
        }
        if (strcmp(word, ARGS_MANUAL) == 0 && argc == 1) {
            print_manual(command);
            return ARGS_HELP;
        }
        size_t name_bytes = strcspn(word, "=");
        const cli_option* option = find_option(command, word, name_bytes);
        if (!option) return wrong_option(command, word, name_bytes), ARGS_WRONG;
        if (option->kind == OPTION_RENAMED)
            return args_wrong(command, "%s is called %s now", option->name, option->argument), ARGS_WRONG;
        size_t index = (size_t)(option - command->options);
        if (given[index] && option->kind != OPTION_TEXTS)
            return args_wrong(command, "%s is given twice", option->name), ARGS_WRONG;
        given[index] = true;
        const char* value = NULL;
        if (option->kind == OPTION_FLAG) {
            if (word[name_bytes]) return args_wrong(command, "%s takes no value", option->name), ARGS_WRONG;
        } else if (word[name_bytes]) {
            value = word + name_bytes + 1;
        } else {
            // A word that begins with two dashes is probably the next option. --prompt=--such passes it as a value.
            if (i + 1 >= argc || strncmp(argv[i + 1], "--", 2) == 0)
                return args_wrong(command, "%s needs a value: %s %s", option->name, option->name, option->argument),
                       ARGS_WRONG;
            value = argv[++i];
        }
        if (!store(command, option, value)) return ARGS_WRONG;
    }
    if (command->operand && (!*command->operand_value || !**command->operand_value))
        return args_wrong(command, "give the %s: sumi %s %s", command->operand, command->name, command->operand),
               ARGS_WRONG;
    return ARGS_RUN;
}
