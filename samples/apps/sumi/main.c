// sumi: the library on the command line. Each command has its own file; main finds the command by name.
#include "commands.h"
#include "system.h"
#include <stdio.h>
#include <string.h>
#include <sumi.h>

static const struct {
    const char* name;
    int (*run)(int argc, char** argv);
    const char* about;
} s_commands[] = {
    {"generate", generate_main, "pictures from a prompt"},
    {"encode", encode_main, "a prompt or a picture, encoded once for many generations"},
    {"inspect", inspect_main, "what a checkpoint or adapter holds, and what is missing"},
    {"tokenize", tokenize_main, "texts to token ids"},
    {"xml", xml_main, "a prompt in XML from characters and tags"},
    {"info", info_main, "devices, processor, build; or what a model takes and what its authors say"},
    {"bench", bench_main, "how fast this machine is, measured without a model"},
    {"version", version_main, "the version of this program"},
};
#define COMMAND_COUNT (sizeof s_commands / sizeof *s_commands)

int version_main(int argc, char** argv)
{
    const cli_command command = {
        .name = "version",
        .about = "Prints the version of this program, which is that of the library in it.",
        .examples = "  sumi version\n",
    };
    args_result parsed = args_parse(&command, argc, argv);
    if (parsed != ARGS_RUN) return parsed == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
    printf("sumi %s\n", sumi_version());
    return EXIT_OK;
}

static int wrong_command(const char* name)
{
    const char* names[COMMAND_COUNT];
    for (size_t i = 0; i < COMMAND_COUNT; i++) names[i] = s_commands[i].name;
    const char* nearest = args_nearest(name, names, COMMAND_COUNT);
    fprintf(stderr, "sumi: there is no command \"%s\"", name);
    if (nearest) fprintf(stderr, "; is %s meant?", nearest);
    fprintf(stderr, "\n  sumi help lists the commands\n");
    return EXIT_USAGE;
}

static int print_help(FILE* to)
{
    fprintf(to, "sumi %s: images from diffusion transformers\n\nusage: sumi COMMAND [options]\n\n", sumi_version());
    for (size_t i = 0; i < COMMAND_COUNT; i++) fprintf(to, "  %-10s %s\n", s_commands[i].name, s_commands[i].about);
    fprintf(to,
            "\nsumi COMMAND --help lists a command's options; sumi help --man prints a manual page. An example:\n"
            "  sumi generate --model models/Z-Image-Turbo --prompt \"a lighthouse at dusk, ink wash\" -o "
            "lighthouse.png\n\n%s",
            exit_code_help);
    return to == stdout ? EXIT_OK : EXIT_USAGE;
}

// The text of sumi.1.
static int print_manual(void)
{
    static const char s_about[] = "makes images with diffusion transformers (Z-Image, Qwen-Image, NewBie-image) on the "
                                  "CPU or an NVIDIA GPU. It is "
                                  "the library of the same name on the command line.\n";
    char* arguments[] = {ARGS_MANUAL};
    int code = EXIT_OK;
    printf(".TH SUMI 1 \"\" \"sumi %s\"\n.SH NAME\nsumi \\- images from diffusion transformers\n", sumi_version());
    printf(".SH SYNOPSIS\n.B sumi\n.I command\n.RI [ options ]\n.SH DESCRIPTION\n.B sumi\n");
    args_print_manual_text(s_about);
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        printf(".TP\n.B %s\n", s_commands[i].name);
        args_print_manual_text(s_commands[i].about);
        printf("\n");
    }
    for (size_t i = 0; i < COMMAND_COUNT && code == EXIT_OK; i++) code = s_commands[i].run(1, arguments);
    printf(".SH EXIT STATUS\n");
    args_print_manual_text(exit_code_help + strlen("exit codes: "));
    return code;
}

int main(int argc, char** argv)
{
    argv = system_begin(argc, argv);
    if (argc < 2) return print_help(stderr);
    const char* name = argv[1];
    if (strcmp(name, "--version") == 0) name = "version";
    char* help_arguments[] = {"--help"};
    bool wants_help = strcmp(name, "help") == 0;
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || (wants_help && argc < 3)) return print_help(stdout);
    if (wants_help && strcmp(argv[2], "--man") == 0) return print_manual();
    if (wants_help) name = argv[2];
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(name, s_commands[i].name) == 0)
            return wants_help ? s_commands[i].run(1, help_arguments) : s_commands[i].run(argc - 2, argv + 2);
    }
    return wrong_command(name);
}
