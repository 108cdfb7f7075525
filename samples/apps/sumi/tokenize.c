// sumi tokenize: prints the tokens into which a checkpoint's tokenizer splits a text. Input and output are JSON, so
// that any text can be given and other programs can read the answer.
#include "commands.h"
#include "inside.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE_LIMIT ((size_t)64 << 20)

typedef struct tokenize {
    sumi_heap heap;
    sumi_checkpoint checkpoint; // holds the tokenizer alone, or the file of a model that contains it
    sumi_tokenizer* tokenizer;
    bool without_special;
    char* line;
    size_t line_capacity;
    char* text;
    size_t text_capacity;
    int32_t* ids;
    size_t id_capacity;
} tokenize;

static bool ends_with(const char* text, const char* end)
{
    size_t bytes = strlen(text), end_bytes = strlen(end);
    return bytes >= end_bytes && strcmp(text + bytes - end_bytes, end) == 0;
}

// Opens the file or folder of a tokenizer; else a model whose tokenizer is beside its text encoder or in a tensor.
static sumi_result open_files(tokenize* t, const char* path, sumi_error* error)
{
    bool is_weights = ends_with(path, ".safetensors") || ends_with(path, ".gguf");
    sumi_result result = SUMI_FILE_NOT_FOUND;
    if (!is_weights) result = sumi_checkpoint_open_tokenizer(&t->checkpoint, &t->heap, NULL, path, error);
    if (result != SUMI_FILE_NOT_FOUND) return result;
    sumi_checkpoint_close(&t->checkpoint);
    sumi_error other = {0}; // reported only if the path is a file of weights
    sumi_checkpoint_desc desc = {.path = path};
    desc.signatures = sumi_signatures(&desc.signature_count);
    desc.class_words = sumi_class_words();
    result = sumi_checkpoint_open(&t->checkpoint, &t->heap, NULL, &desc, is_weights ? error : &other);
    bool is_there = result == SUMI_OK && t->checkpoint.tokenizers[0].form != SUMI_TOKENIZER_ABSENT;
    return is_there || is_weights ? result : SUMI_FILE_NOT_FOUND;
}

static bool open_tokenizer(tokenize* t, const char* path)
{
    sumi_error error = {0};
    sumi_result result = open_files(t, path, &error);
    if (result == SUMI_OK)
        result = sumi_tokenizer_open_begin(&t->heap, &t->checkpoint.tokenizers[0], &error, &t->tokenizer);
    for (bool done = false; result == SUMI_OK && !done;) {
        float progress;
        result = sumi_tokenizer_step(t->tokenizer, SIZE_MAX, &done, &progress, &error);
    }
    if (result == SUMI_OK) return true;
    fprintf(stderr, "sumi: opening the tokenizer failed: %s\n  %s\n", sumi_result_text(result), error.text);
    return false;
}

// Reads a line of any length without its newline. Returns false at the end of the input.
static bool read_line(tokenize* t, size_t* out_bytes)
{
    size_t used = 0;
    for (int c = getchar(); c != EOF; c = getchar()) {
        if (c == '\n') {
            *out_bytes = used;
            return true;
        }
        if (used == t->line_capacity) {
            size_t capacity = used ? 2 * used : 4096;
            char* more = capacity <= LINE_LIMIT ? realloc(t->line, capacity) : NULL;
            if (!more) break;
            t->line = more;
            t->line_capacity = capacity;
        }
        t->line[used++] = (char)c;
    }
    *out_bytes = used;
    return used > 0;
}

static bool make_room(void** memory, size_t* capacity, size_t needed, size_t element_bytes)
{
    if (needed <= *capacity) return true;
    void* more = realloc(*memory, needed * element_bytes);
    if (!more) return false;
    *memory = more;
    *capacity = needed;
    return true;
}

static sumi_result encode_line(tokenize* t, size_t line_bytes, size_t* out_count, sumi_error* error)
{
    sumi_json json;
    sumi_json_text string = {0};
    sumi_json_begin(&json, t->line, line_bytes, error);
    json.name = "the line";
    sumi_json_string(&json, &string);
    SUMI_TRY(sumi_json_end(&json));
    if (!make_room((void**)&t->text, &t->text_capacity, string.bytes + 1, 1))
        return sumi_out_of_memory(error, string.bytes, "the text");
    size_t bytes = sumi_json_decode(&string, t->text, string.bytes);
    SUMI_TRY(sumi_tokenizer_encode(t->tokenizer, t->text, bytes, !t->without_special, t->ids, t->id_capacity, out_count,
                                   error));
    if (*out_count <= t->id_capacity) return SUMI_OK;
    if (!make_room((void**)&t->ids, &t->id_capacity, 2 * *out_count, sizeof(int32_t)))
        return sumi_out_of_memory(error, *out_count * sizeof(int32_t), "the ids");
    return sumi_tokenizer_encode(t->tokenizer, t->text, bytes, !t->without_special, t->ids, t->id_capacity, out_count,
                                 error);
}

static int run(tokenize* t, const char* path)
{
    if (!open_tokenizer(t, path)) return EXIT_FAILED;
    size_t bytes, count = 0;
    for (long number = 1; read_line(t, &bytes); number++) {
        sumi_error error = {0};
        sumi_result result = encode_line(t, bytes, &count, &error);
        if (result != SUMI_OK) {
            fflush(stdout);
            fprintf(stderr, "sumi: line %ld: %s\n  every line must be one JSON string, as in \"a red fox\"\n", number,
                    error.text);
            return EXIT_FAILED;
        }
        putchar('[');
        for (size_t i = 0; i < count; i++) printf("%s%d", i ? ", " : "", t->ids[i]);
        printf("]\n");
        fflush(stdout); // the program at the other end of a pipe may wait for this line before it sends the next one
    }
    return ferror(stdout) ? EXIT_FAILED : EXIT_OK;
}

int tokenize_main(int argc, char** argv)
{
    const char* path = NULL;
    tokenize t = {0};
    const cli_option options[] = {
        {"--no-special", OPTION_FLAG, &t.without_special, NULL,
         "leave out the tokens that the file's post processor puts around a text (BOS, EOS)", 0, 0},
    };
    const cli_command command = {
        .name = "tokenize",
        .about =
            "Reads JSON strings from standard input, one per line, and writes a JSON array of token ids per line. "
            "PATH is a tokenizer.json, a vocab.json with its merges.txt beside it, a SentencePiece model, the folder "
            "of one of them, a diffusers folder, or a text encoder's file that holds its tokenizer. "
            "The text is taken as it is: no chat template around it.",
        .operand = "PATH",
        .operand_value = &path,
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .examples = "  echo '\"a red fox\"' | sumi tokenize models/Z-Image-Turbo\n",
    };
    args_result parsed = args_parse(&command, argc, argv);
    if (parsed != ARGS_RUN) return parsed == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
    sumi_heap_init(&t.heap, NULL);
    int code = run(&t, path);
    sumi_tokenizer_destroy(t.tokenizer);
    sumi_checkpoint_close(&t.checkpoint);
    free(t.line);
    free(t.text);
    free(t.ids);
    return code;
}
