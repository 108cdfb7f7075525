// sumi bench: measures this machine with random weights, and prints a table for a report.
#include "commands.h"
#include "files.h"
#include "json_out.h"
#include "measure.h"
#include "nvml.h"
#include "session.h"
#include <stdio.h>
#include <string.h>

typedef struct bench_args {
    const char* formats;
    int32_t backend; // sumi_backend
    int32_t network; // in s_networks, or -1: by the backend
    int32_t thread_count, step_count, seconds;
    int32_t sides[2];
    bool is_json, quiet;
} bench_args;

static const char* const s_networks[] = {"z-image", "mid", "tiny"};

typedef struct bench {
    const bench_args* args;
    measure_desc desc;
    measure_device device;
    const char* network;
    sumi_weight_format formats[MEASURE_FORMATS];
    int32_t format_count;
    measure_row rows[MEASURE_FORMATS];
    int32_t row_count;
    nvml_card* card;
    const char* why_no_card;
    nvml_facts facts, loaded[MEASURE_FORMATS]; // at the beginning; while a picture of each row was drawn
    double taken_seconds;
    bool is_terminal, has_line;
} bench;

static bool is_gpu(const bench* b) { return b->device.compute_capability > 0; }

// ---- While it runs --------------------------------------------------------------------------------------------------

static void clear_line(bench* b)
{
    if (b->has_line) fprintf(stderr, "\r\033[K");
    b->has_line = false;
}

static void show(int32_t row, const char* doing, void* user_data)
{
    bench* b = user_data;
    if (b->args->quiet) return;
    clear_line(b);
    fprintf(stderr, "%d/%d %s: %s%s", row + 1, b->format_count, synthetic_weights_name(b->formats[row]), doing,
            b->is_terminal ? " ..." : "\n");
    b->has_line = b->is_terminal;
}

static void read_loaded_card(int32_t row, void* user_data)
{
    bench* b = user_data;
    b->loaded[row] = nvml_read(b->card);
}

static bool is_cancelled(void* user_data)
{
    (void)user_data;
    return session_is_cancelled();
}

// ---- The table ------------------------------------------------------------------------------------------------------

static void print_cell(const measure_values* values, double factor, int digits)
{
    if (values->count > 0) printf(" %.*f |", digits, factor * values->median);
    else printf(" - |");
}

static void print_row(const bench* b, int32_t index)
{
    const measure_row* row = &b->rows[index];
    printf("| %s |", synthetic_weights_name(row->weights));
    for (int32_t i = 0; i < MEASURE_SIDES; i++) print_cell(&row->sides[i].step, 1e3, 1);
    for (int32_t i = 0; i < MEASURE_SIDES; i++) print_cell(&row->sides[i].picture, 1.0, 3);
    print_cell(&row->text, 1e3, 1);
    for (int32_t i = 0; i < MEASURE_SIDES; i++) print_cell(&row->sides[i].decode, 1e3, 1);
    if (row->load_seconds > 0.0) printf(" %.2f | %.2f |", row->load_seconds, 1e-9 * (double)row->memory_bytes);
    else printf(" - | - |");
    if (b->loaded[index].sm_mhz) printf(" %u |", b->loaded[index].sm_mhz);
    else if (b->card) printf(" - |");
    printf("\n");
}

#define LARGE_SPREAD 0.1 // of the median, from the low value to the high one

// Continues the sentence that *io_any says has begun.
static void print_spread(const char* name, const char* what, int32_t side, const measure_values* values, bool* io_any)
{
    if (values->count < 2 || values->high - values->low <= LARGE_SPREAD * values->median) return;
    if (*io_any) printf(", ");
    else printf("- %s varied, from the lowest tenth to the highest: ", name);
    *io_any = true;
    printf("%s", what);
    if (side) printf(" %d", side);
    printf(" %.1f to %.1f ms (%d runs)", 1e3 * values->low, 1e3 * values->high, values->count);
}

static void print_notes(const bench* b, const measure_row* row)
{
    const char* name = synthetic_weights_name(row->weights);
    bool any = false;
    if (row->note[0]) printf("- %s: %s.\n", name, shown(row->note));
    if (row->streamed_bytes > 0)
        printf("- %s: %.2f GB of the weights do not fit and are copied to the card for each use.\n", name,
               1e-9 * (double)row->streamed_bytes);
    if (row->compile_seconds >= 0.05)
        printf("- %s: %.1f s of the loading were spent by the driver, which compiled kernels; it does so once.\n", name,
               row->compile_seconds);
    for (int32_t i = 0; i < MEASURE_SIDES; i++) {
        if (row->sides[i].picture.count == 1)
            printf("- %s: there was time for one picture of %dx%d, the first, in which the work is also planned.\n",
                   name, b->desc.sides[i], b->desc.sides[i]);
    }
    print_spread(name, "text", 0, &row->text, &any);
    for (int32_t i = 0; i < MEASURE_SIDES; i++) {
        print_spread(name, "step", b->desc.sides[i], &row->sides[i].step, &any);
        print_spread(name, "decode", b->desc.sides[i], &row->sides[i].decode, &any);
        print_spread(name, "picture", b->desc.sides[i], &row->sides[i].picture, &any);
    }
    if (any) printf("\n");
}

// For want of memory.
static bool is_left_out(const bench* b, sumi_weight_format weights)
{
    if (!is_gpu(b) || b->args->formats) return false;
    for (int32_t i = 0; i < b->format_count; i++) {
        if (b->formats[i] == weights) return false;
    }
    return weights != SUMI_WEIGHTS_FP8 || b->device.compute_capability >= 89;
}

static const sumi_weight_format s_large[] = {SUMI_WEIGHTS_BF16, SUMI_WEIGHTS_FP8, SUMI_WEIGHTS_INT8};
#define LARGE_COUNT (sizeof s_large / sizeof *s_large)

static void print_left_out(const bench* b)
{
    for (size_t i = 0; i < LARGE_COUNT; i++) {
        const char* name = synthetic_weights_name(s_large[i]);
        if (is_left_out(b, s_large[i]))
            printf("- %s is left out: it takes about %.1f GB, and %.1f GB are free; --weights %s measures it all the "
                   "same.\n",
                   name, 1e-9 * (double)measure_need(&b->desc, s_large[i]), 1e-9 * (double)b->device.free_bytes, name);
    }
    for (int32_t i = b->row_count; i < b->format_count; i++)
        printf("- %s was not begun.\n", synthetic_weights_name(b->formats[i]));
}

static void print_card(const bench* b)
{
    if (!is_gpu(b)) {
        printf("A processor computes in float32. Its times depend on what else the machine does: compare ratios, at "
               "best.\n");
        return;
    }
    printf("compute capability %d.%d, %.1f GB, of them %.1f free; ", b->device.compute_capability / 10,
           b->device.compute_capability % 10, 1e-9 * (double)b->device.device_bytes,
           1e-9 * (double)b->device.free_bytes);
    if (!b->card) {
        printf("driver's number, clocks, power limit: not known (%s)\n", b->why_no_card);
        return;
    }
    const nvml_facts *f = &b->facts, *last = b->row_count > 0 ? &b->loaded[b->row_count - 1] : f;
    printf("driver %s, power limit ", f->driver[0] ? shown(f->driver) : "not known");
    if (f->power_limit_mw) printf("%.0f W, ", 1e-3 * f->power_limit_mw);
    else printf("not known, ");
    if (f->most_sm_mhz) printf("clocks of at most %u MHz, memory %u MHz\n", f->most_sm_mhz, f->most_memory_mhz);
    else printf("clocks not known\n");
    if (last->power_mw)
        printf("while the last picture was drawn: %.0f W, %u C\n", 1e-3 * last->power_mw, last->celsius);
}

static void print_table(const bench* b)
{
    const int32_t* sides = b->desc.sides;
    printf("sumi %s bench: %s\n", sumi_version(), shown(b->device.name));
    print_card(b);
    printf("network %s with random weights, text encoder in the same format; pictures of %d steps without their text, "
           "a text of %d tokens; medians; sumi started in %.2f s\n\n",
           b->network, b->desc.step_count, b->desc.token_count, b->device.start_seconds);
    printf(
        "| weights | step %d ms | step %d ms | picture %d s | picture %d s | text ms | decode %d ms | decode %d ms | "
        "load s | memory GB |%s\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|%s\n",
        sides[0], sides[1], sides[0], sides[1], sides[0], sides[1], b->card ? " clock MHz |" : "",
        b->card ? "---:|" : "");
    for (int32_t i = 0; i < b->row_count; i++) print_row(b, i);
    printf("\n");
    for (int32_t i = 0; i < b->row_count; i++) print_notes(b, &b->rows[i]);
    print_left_out(b);
    printf("%.0f s in all\n", b->taken_seconds);
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

static void put_values(json_out* out, const char* key, const measure_values* values)
{
    if (values->count == 0) {
        json_text(out, key, NULL);
        return;
    }
    json_begin_object(out, key);
    json_number(out, "median", values->median);
    json_number(out, "low", values->low);
    json_number(out, "high", values->high);
    json_integer(out, "count", values->count);
    json_end_object(out);
}

static void put_known(json_out* out, const char* key, unsigned value, double factor)
{
    if (value) json_number(out, key, factor * value);
    else json_text(out, key, NULL);
}

static void put_row(json_out* out, const bench* b, int32_t index)
{
    const measure_row* row = &b->rows[index];
    json_begin_object(out, NULL);
    json_text(out, "weights", synthetic_weights_name(row->weights));
    json_bool(out, "is_whole", row->result == SUMI_OK && row->sides[MEASURE_SIDES - 1].picture.count > 0);
    json_text(out, "note", row->note[0] ? row->note : NULL);
    json_number(out, "load_seconds", row->load_seconds);
    json_number(out, "compile_seconds", row->compile_seconds);
    put_values(out, "text_seconds", &row->text);
    json_begin_array(out, "sizes");
    for (int32_t i = 0; i < MEASURE_SIDES; i++) {
        json_begin_object(out, NULL);
        json_integer(out, "width", b->desc.sides[i]);
        json_integer(out, "height", b->desc.sides[i]);
        put_values(out, "step_seconds", &row->sides[i].step);
        put_values(out, "decode_seconds", &row->sides[i].decode);
        put_values(out, "picture_seconds", &row->sides[i].picture);
        json_end_object(out);
    }
    json_end_array(out);
    json_unsigned(out, "memory_bytes", row->memory_bytes);
    json_unsigned(out, "weight_bytes", row->weight_bytes);
    json_unsigned(out, "streamed_bytes", row->streamed_bytes);
    put_known(out, "clock_mhz", b->loaded[index].sm_mhz, 1.0);
    put_known(out, "memory_clock_mhz", b->loaded[index].memory_mhz, 1.0);
    put_known(out, "power_watts", b->loaded[index].power_mw, 1e-3);
    put_known(out, "celsius", b->loaded[index].celsius, 1.0);
    json_end_object(out);
}

static void print_json(const bench* b)
{
    json_out out = {.file = stdout};
    json_begin_object(&out, NULL);
    json_text(&out, "version", sumi_version());
    json_text(&out, "backend", b->device.backend);
    json_text(&out, "device", b->device.name);
    json_integer(&out, "compute_capability", b->device.compute_capability);
    json_integer(&out, "driver_version", b->device.driver_version);
    json_text(&out, "driver", b->facts.driver[0] ? b->facts.driver : NULL);
    json_unsigned(&out, "device_bytes", b->device.device_bytes);
    json_unsigned(&out, "free_bytes", b->device.free_bytes);
    put_known(&out, "power_limit_watts", b->facts.power_limit_mw, 1e-3);
    put_known(&out, "max_clock_mhz", b->facts.most_sm_mhz, 1.0);
    put_known(&out, "max_memory_clock_mhz", b->facts.most_memory_mhz, 1.0);
    json_text(&out, "network", b->network);
    json_integer(&out, "steps", b->desc.step_count);
    json_integer(&out, "tokens", b->desc.token_count);
    json_number(&out, "start_seconds", b->device.start_seconds);
    json_begin_array(&out, "rows");
    for (int32_t i = 0; i < b->row_count; i++) put_row(&out, b, i);
    json_end_array(&out);
    json_begin_array(&out, "left_out"); // what does not fit
    for (size_t i = 0; i < LARGE_COUNT; i++) {
        if (!is_left_out(b, s_large[i])) continue;
        json_begin_object(&out, NULL);
        json_text(&out, "weights", synthetic_weights_name(s_large[i]));
        json_unsigned(&out, "need_bytes", measure_need(&b->desc, s_large[i]));
        json_end_object(&out);
    }
    json_end_array(&out);
    json_number(&out, "limit_seconds", b->args->seconds);
    json_number(&out, "taken_seconds", b->taken_seconds);
    json_end_object(&out);
}

// ---- The command ----------------------------------------------------------------------------------------------------

// "bf16,int8"
static int read_formats(const cli_command* command, bench* b)
{
    for (const char* text = b->args->formats; *text;) {
        const size_t length = strcspn(text, ",");
        char name[16];
        sumi_weight_format weights;
        snprintf(name, sizeof name, "%.*s", (int)length, text);
        if (length >= sizeof name || !synthetic_weights(name, &weights) || weights == SUMI_WEIGHTS_AS_STORED)
            return args_wrong(command, "--weights %s: give some of bf16, fp8, int8 and int4, as in bf16,int8",
                              b->args->formats);
        for (int32_t i = 0; i < b->format_count; i++) {
            if (b->formats[i] == weights)
                return args_wrong(command, "--weights %s: %s is there twice", b->args->formats, name);
        }
        b->formats[b->format_count++] = weights;
        text += length + (text[length] == ',');
    }
    return b->format_count > 0 ? EXIT_OK : args_wrong(command, "--weights: give some of bf16, fp8, int8 and int4");
}

static int check_args(const cli_command* command, const bench_args* args)
{
    if (args->sides[0] >= args->sides[1])
        return args_wrong(command, "--sizes %dx%d: the first side is the smaller one", args->sides[0], args->sides[1]);
    for (int32_t i = 0; i < MEASURE_SIDES; i++) {
        if (args->sides[i] % 16 || args->sides[i] > 2048)
            return args_wrong(command, "--sizes %dx%d: give multiples of 16 up to 2048", args->sides[0],
                              args->sides[1]);
    }
    return EXIT_OK;
}

// Looks at the device, and asks for what there is measured on it.
static int begin(const cli_command* command, bench* b)
{
    char why[MEASURE_TEXT_BYTES];
    const bench_args* args = b->args;
    b->desc = measure_defaults(NULL, (sumi_backend)args->backend);
    b->desc.thread_count = args->thread_count;
    if (measure_look(&b->desc, &b->device, why) != SUMI_OK) {
        fprintf(stderr, "sumi: starting failed: %s\n", shown(why));
        if (args->backend == SUMI_BACKEND_CUDA) fprintf(stderr, "  --backend cpu works on every machine\n");
        return EXIT_FAILED;
    }
    if (args->backend == SUMI_BACKEND_AUTO && !is_gpu(b) && !args->quiet) { // a user with a card wants to know
        measure_device none;
        b->desc.backend = SUMI_BACKEND_CUDA;
        measure_look(&b->desc, &none, why);
        fprintf(stderr, "sumi: the processor is measured, for there is no GPU that can be used: %s\n", shown(why));
    }
    b->desc.backend = is_gpu(b) ? SUMI_BACKEND_CUDA : SUMI_BACKEND_CPU;
    if (args->formats && !is_gpu(b))
        return args_wrong(command, "--weights is for a GPU: on a processor all weights are used as their files have "
                                   "them");
    b->network = s_networks[args->network >= 0 ? args->network : is_gpu(b) ? 0 : 1];
    b->desc.network = synthetic_find(b->network);
    memcpy(b->desc.sides, args->sides, sizeof b->desc.sides);
    b->desc.step_count = args->step_count;
    b->desc.seconds = args->seconds > b->device.start_seconds ? args->seconds - b->device.start_seconds : 0.0;
    b->desc.tell = show;
    b->desc.is_cancelled = is_cancelled;
    b->desc.user_data = b;
    if (!args->formats) b->format_count = measure_choose(&b->desc, &b->device, b->formats);
    b->why_no_card = "";
    if (is_gpu(b)) b->card = nvml_open(b->device.uuid, &b->why_no_card);
    if (b->card) b->desc.under_load = read_loaded_card;
    b->facts = nvml_read(b->card);
    return EXIT_OK;
}

static int measure(bench* b)
{
    const double began = progress_clock();
    bool has_any = false;
    session_catch_signals();
    b->row_count = measure_all(&b->desc, b->formats, b->format_count, b->rows);
    b->taken_seconds = progress_clock() - began + b->device.start_seconds;
    clear_line(b);
    for (int32_t i = 0; i < b->row_count; i++) has_any = has_any || b->rows[i].load_seconds > 0.0;
    if (b->args->is_json) print_json(b);
    else print_table(b);
    return session_is_cancelled() ? EXIT_CANCELLED : has_any ? EXIT_OK : EXIT_FAILED;
}

int bench_main(int argc, char** argv)
{
    bench_args args = {.network = -1, .step_count = 8, .seconds = 120, .sides = {512, 1024}};
    const cli_option options[] = {
        {"--backend", OPTION_CHOICE, &args.backend, "auto|cpu|cuda", "what computes", 0, 0},
        {"--weights", OPTION_TEXT, &args.formats, "LIST",
         "the formats to measure, some of bf16, fp8, int8 and int4 with commas between them; those that fit in the "
         "free memory of the GPU where this is not given",
         0, 0},
        {"--network", OPTION_CHOICE, &args.network, "z-image|mid|tiny",
         "the sizes of the network: Z-Image's, the default on a GPU; two smaller ones, of which mid is the default on "
         "a processor",
         0, 0},
        {"--sizes", OPTION_SIZE, args.sides, "AxB", "sides of the two square pictures; 512x1024 is the default", 0, 0},
        {"--steps", OPTION_COUNT, &args.step_count, "N", "of each picture; 8 is the default", 1, 100},
        {"--seconds", OPTION_COUNT, &args.seconds, "N",
         "the most that all of it may take; 120 is the default. Where that is short there are fewer repetitions, then "
         "fewer sizes, and it is told",
         1, 3600},
        {"--threads", OPTION_COUNT, &args.thread_count, "N", "threads of the CPU backend; 0, the default: every core",
         0, 1024},
        {"--json", OPTION_FLAG, &args.is_json, NULL, "print JSON, for other programs", 0, 0},
        {"--quiet", OPTION_FLAG, &args.quiet, NULL, "no progress", 0, 0},
    };
    const cli_command command = {
        .name = "bench",
        .about = "Measures this machine: loading, a text, steps, decoding, pictures, memory. It takes no model: the "
                 "weights are random numbers in memory, and nothing is written to a disk. It prints a table for a "
                 "report, with the card, its driver, clocks and power limit.",
        .options = options,
        .option_count = sizeof options / sizeof *options,
        .examples = "  sumi bench\n  sumi bench --weights int8,int4 --json\n",
    };
    const args_result parsed = args_parse(&command, argc, argv);
    if (parsed != ARGS_RUN) return parsed == ARGS_HELP ? EXIT_OK : EXIT_USAGE;
    bench b = {.args = &args, .is_terminal = system_is_terminal(stderr)};
    int code = check_args(&command, &args);
    if (code == EXIT_OK && args.formats) code = read_formats(&command, &b);
    if (code == EXIT_OK) code = begin(&command, &b);
    if (code == EXIT_OK) code = measure(&b);
    nvml_close(b.card);
    return code;
}
