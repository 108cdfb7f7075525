// Live painting: while somebody paints, pictures of the newest canvas follow, each drawn image to image from the canvas
// with one prompt and one seed, so that they change only where the canvas does. The canvas is a folder into which another
// program writes, or a script without a window, for measurements:
//     live MODEL --frames FOLDER --watch --out newest.png     until Ctrl-C; newest.png is never half written
//     live MODEL --script 600 --seconds 10                    a brush that the program moves; or a folder of frames
//     live --synthetic klein --weights int8 --script 600 --rate 60 --seconds 10
//
// newest_wins.c decides which jobs are cancelled for a newer input, painter.c submits and fetches, canvas.c has the
// inputs. A paint tool has its own canvas and its own loop, and takes the other two as they are.
//
// What is measured: "from submit to pixels" begins right before sumi_submit_images and ends when sumi_fetch_images has
// returned the picture in host memory. "From input to pixels" begins when the input came: input i of a script comes
// i / rate seconds after the beginning, whenever this program looked. Both include the time for which a job waited
// behind the one before, and only pictures count that were done. The prompt is encoded before, and two pictures that
// are not counted come first: the first one makes plans and loads kernels, the second one is the "picture alone".
#include "canvas.h"
#include "painter.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct options {
    painter_desc painter;
    const synthetic_config* synthetic;
    const char *frames, *script, *out;
    bool watches, wants_help;
    double rate, seconds;
} options;

typedef struct live {
    painter painter;
    canvas canvas;
    bool writes_all;          // each new picture to canvas.result
    int32_t inputs, replaced; // inputs = submitted + replaced
    int32_t written;          // finished pictures when one was written last
} live;

static volatile sig_atomic_t s_is_stopped;
static void stop(int number)
{
    signal(number, SIG_DFL); // a second Ctrl-C ends at once
    s_is_stopped = 1;
}

// ---- The loop -------------------------------------------------------------------------------------------------------

// A program that reads the file while it is replaced sees the old picture or the new one. The part has a name that
// programs which list the folder leave out.
static bool write_shown(const painter* p, const char* path)
{
    char part[1200], message[PICTURE_MESSAGE_BYTES];
    const char* name = system_file_name(path);
    const sumi_image* i = &p->shown;
    const picture_source source = {i->pixels, i->width, i->height, (size_t)i->row_bytes, 4, NULL, 0};
    const int written = snprintf(part, sizeof part, "%.*s.part-%s", (int)(name - path), path, name);
    if (written < 0 || (size_t)written >= sizeof part)
        return fprintf(stderr, "live: the path of --out is too long\n"), false;
    if (!picture_write(part, &source, message)) return fprintf(stderr, "live: %s\n", message), false;
    if (system_move(part, path)) return true;
    perror("live: the file of --out cannot be replaced");
    system_remove(part);
    return false;
}

static bool turn(live* l, double now)
{
    double came = 0.0;
    const int32_t count = painter_can_submit(&l->painter) ? canvas_take(&l->canvas, now, &came) : 0;
    if (count > 0) { // of several that came since the last turn the newest counts
        l->inputs += count;
        l->replaced += count - 1;
        if (!painter_submit(&l->painter, &l->canvas.pixels, came)) return false;
    }
    if (!painter_turn(&l->painter)) return false;
    if (!l->writes_all || l->painter.finished == l->written) return true;
    l->written = l->painter.finished;
    const bool is_fine = write_shown(&l->painter, l->canvas.result);
    l->canvas.result_changed_ns = system_changed_ns(l->canvas.result);
    return is_fine;
}

static bool run(live* l)
{
    const sumi_size size = {l->painter.desc.width, l->painter.desc.height};
    bool is_fine = canvas_begin(&l->canvas, size, painter_now());
    if (!is_fine) fprintf(stderr, "live: no memory for a canvas of %dx%d\n", size.width, size.height);
    while (is_fine && !s_is_stopped && !(canvas_has_ended(&l->canvas) && l->painter.drawing_count == 0))
        is_fine = turn(l, painter_now());
    return painter_stop(&l->painter) && is_fine;
}

// ---- The report -----------------------------------------------------------------------------------------------------

static void print_row(const char* name, series* ms)
{
    printf("| %-25s |", name);
    for (int i = 0; i < 5; i++) printf(" %7.1f |", series_percentile(ms, (double[]){0.0, 50.0, 90.0, 99.0, 100.0}[i]));
    printf("\n");
}

static void report(live* l, double strength, double alone_ms)
{
    painter* p = &l->painter;
    const double seconds = p->shown_at - l->canvas.begin;
    printf("%s, %s: %dx%d, strength %.2f of %d steps; a picture alone takes %.1f ms\n",
           sumi_model_get_info(p->model).family, sumi_engine_get_info(p->engine).device, p->desc.width, p->desc.height,
           strength, p->desc.step_count, alone_ms);
    printf("%d inputs: %d submitted, %d replaced before\n", l->inputs, p->submitted, l->replaced);
    printf("%d jobs: %d finished, %d cancelled (%d of them had begun), %d failed\n", p->submitted, p->finished,
           p->cancelled, p->cancelled_begun, p->failed);
    if (p->finished == 0) return;
    printf("%d pictures in %.2f s, %.1f a second\n\n", p->finished, seconds, p->finished / seconds);
    printf("| ms                        |     min |  median |     p90 |     p99 |     max |\n"
           "|---------------------------|--------:|--------:|--------:|--------:|--------:|\n");
    print_row("from submit to pixels", &p->from_submit);
    print_row("from input to pixels", &p->from_input);
    if (p->finished > 1) print_row("from picture to picture", &p->between);
}

// ---- Arguments ------------------------------------------------------------------------------------------------------

static const char s_usage[] =
    "usage: live [MODEL] --frames FOLDER --watch [--out live.png]\n"
    "       live [MODEL] --script FOLDER|NUMBER [--rate 60] [--seconds 10] [--out FILE]\n"
    "  MODEL: a folder or file, samples/demo_model by default; or --synthetic klein|z-image|.. (random weights)\n"
    "  --watch: each new or changed picture in FOLDER is an input, until Ctrl-C; --out: where the newest picture is\n"
    "  --script: inputs are FOLDER's pictures by name, or NUMBER frames of a stroke; --rate: inputs a second\n"
    "  [--prompt TEXT] [--strength 0.6] [--size 512x512] [--steps N] [--seed 7] [--backend cpu|cuda]\n"
    "  [--weights " SYNTHETIC_WEIGHTS "] [--attention bf16|8bit]\n"
    "  Weights that do not fit a GPU are streamed, which is slow: int8 takes half of what bf16 takes.\n";

static bool refuse(const char* name, const char* value, const char* wanted)
{
    fprintf(stderr, "live: %s %s: give %s\n", name, value, wanted);
    return false;
}

static bool read_text(options* o, const char* name, const char* value, bool* out_is_known)
{
    const char** into = strcmp(name, "--prompt") == 0 ? &o->painter.prompt
                      : strcmp(name, "--frames") == 0 ? &o->frames
                      : strcmp(name, "--script") == 0 ? &o->script
                      : strcmp(name, "--out") == 0    ? &o->out
                                                      : NULL;
    *out_is_known = into != NULL;
    if (into) *into = value;
    return true;
}

static bool read_number(options* o, const char* name, const char* value, bool* out_is_known)
{
    double steps = 0.0, seed = 0.0;
    const struct {
        const char* name;
        double least, most;
        double* into;
        bool is_whole;
    } numbers[] = {{"--strength", 0.01, 1.0, &o->painter.strength, false},
                   {"--rate", 0.01, 10000.0, &o->rate, false},
                   {"--seconds", 0.01, 36000.0, &o->seconds, false},
                   {"--steps", 1.0, 1000.0, &steps, true},
                   {"--seed", 0.0, 9007199254740991.0, &seed, true}}; // 2^53 - 1
    size_t i = 0;
    while (i < 5 && strcmp(name, numbers[i].name) != 0) i++;
    *out_is_known = i < 5;
    if (i == 5) return true;
    char* end;
    const double number = strtod(value, &end);
    char wanted[100];
    snprintf(wanted, sizeof wanted, "a %snumber from %.16g to %.16g", numbers[i].is_whole ? "whole " : "",
             numbers[i].least, numbers[i].most);
    if (end == value || *end != '\0' || !(number >= numbers[i].least && number <= numbers[i].most)
        || (numbers[i].is_whole && number != floor(number)))
        return refuse(name, value, wanted);
    *numbers[i].into = number;
    if (steps > 0.0) o->painter.steps = (int32_t)steps;
    if (strcmp(name, "--seed") == 0) o->painter.seed = (uint64_t)seed;
    return true;
}

static bool read_choice(options* o, const char* name, const char* value)
{
    char rest;
    painter_desc* p = &o->painter;
    if (strcmp(name, "--synthetic") == 0) {
        o->synthetic = synthetic_find(value);
        return o->synthetic || refuse(name, value, "klein, klein-tiny, z-image, tiny, qwen-image, newbie");
    }
    if (strcmp(name, "--weights") == 0)
        return synthetic_weights(value, &p->weights) || refuse(name, value, SYNTHETIC_WEIGHTS);
    if (strcmp(name, "--size") == 0) {
        const bool is_size = sscanf(value, "%dx%d%c", &p->size.width, &p->size.height, &rest) == 2;
        return (is_size && p->size.width > 0 && p->size.height > 0) || refuse(name, value, "pixels, such as 512x512");
    }
    if (strcmp(name, "--backend") == 0) {
        p->backend = strcmp(value, "cpu") == 0  ? SUMI_BACKEND_CPU
                   : strcmp(value, "cuda") == 0 ? SUMI_BACKEND_CUDA
                                                : SUMI_BACKEND_AUTO;
        return p->backend != SUMI_BACKEND_AUTO || refuse(name, value, "cpu or cuda; without it a GPU is taken, if any");
    }
    if (strcmp(name, "--attention") == 0) {
        p->attention = strcmp(value, "bf16") == 0 ? SUMI_ATTENTION_BF16
                     : strcmp(value, "8bit") == 0 ? SUMI_ATTENTION_8BIT
                                                  : SUMI_ATTENTION_AUTO;
        return p->attention != SUMI_ATTENTION_AUTO || refuse(name, value, "bf16 or 8bit");
    }
    fprintf(stderr, "live: there is no option %s: live --help lists them\n", name);
    return false;
}

static bool read_options(options* o, int argc, char** argv)
{
    for (int at = 1; at < argc; at++) {
        const char* name = argv[at];
        bool is_known;
        if (strcmp(name, "--help") == 0) return o->wants_help = true;
        if (strcmp(name, "--watch") == 0) {
            o->watches = true;
        } else if (name[0] != '-') {
            if (o->painter.model) return refuse("a second model", name, "one only");
            o->painter.model = name;
        } else if (at + 1 == argc) {
            fprintf(stderr, "live: %s lacks its value: live --help lists the options\n", name);
            return false;
        } else {
            const char* value = argv[++at];
            if (!read_text(o, name, value, &is_known)) return false;
            if (!is_known && !read_number(o, name, value, &is_known)) return false;
            if (!is_known && !read_choice(o, name, value)) return false;
        }
    }
    return true;
}

// What contradicts itself, and folders that are not there, before minutes are spent on a model.
static bool check_options(const options* o)
{
    char message[PICTURE_MESSAGE_BYTES];
    const char* said = NULL;
    if (o->watches && !o->frames) said = "--watch needs --frames FOLDER: the folder that is watched";
    else if (!o->frames && !o->script) said = "the canvas is --frames FOLDER --watch, or --script FOLDER|NUMBER";
    else if (o->frames && o->script) said = "--frames and --script exclude each other: give one";
    else if (o->frames && !o->watches) said = "--frames needs --watch; --script FOLDER plays the pictures of a folder";
    else if (o->synthetic && o->painter.model) said = "a MODEL and --synthetic exclude each other: give one";
    else if (o->out && !picture_path_is_possible(o->out, message)) said = message;
    if (said) fprintf(stderr, "live: %s\n", said);
    return said == NULL;
}

static bool open_canvas(canvas* c, const options* o)
{
    char message[PICTURE_MESSAGE_BYTES] = "";
    *c = (canvas){.rate = o->rate, .total = (int32_t)fmax(o->rate * o->seconds + 0.5, 1.0), .result = o->out};
    if (o->out) c->result_changed_ns = system_changed_ns(o->out); // of an earlier run
    const bool is_open =
        o->watches ? canvas_open_folder(c, o->frames, message) : canvas_open_script(c, o->script, message);
    if (!is_open) fprintf(stderr, "live: %s\n", message);
    return is_open;
}

static bool paint(live* l, const options* o)
{
    if (!painter_open(&l->painter, &o->painter)) return false;
    const double alone_ms = painter_warm_up(&l->painter);
    if (alone_ms == 0.0) return false;
    if (o->watches)
        fprintf(stderr, "live: watches %s%s; pictures go to %s; Ctrl-C ends\n", o->frames,
                canvas_has_picture(o->frames) ? "" : ", which has no PNG, JPEG or WebP file yet", o->out);
    bool is_fine = run(l);
    if (o->script && o->out && l->painter.finished > 0) is_fine = write_shown(&l->painter, o->out) && is_fine;
    report(l, o->painter.strength, alone_ms);
    return is_fine;
}

int main(int argc, char** argv)
{
    argv = system_begin(argc, argv);
    options o = {.painter = {.prompt = "a boat on the sea at sunset", .strength = 0.6, .seed = 7},
                 .rate = 60.0,
                 .seconds = 10.0};
    if (!read_options(&o, argc, argv)) return 2;
    if (o.wants_help) return fputs(s_usage, stdout), 0;
    if (!check_options(&o)) return 2;
    if (o.watches && !o.out) o.out = "live.png";
    if (!o.painter.model) o.painter.model = o.synthetic ? SYNTHETIC_PATH : "samples/demo_model";
    o.painter.has_thread = true; // the loop here looks at inputs and pictures, and never waits for a slice
    signal(SIGINT, stop);
    signal(SIGTERM, stop);

    live l = {.writes_all = o.watches}; // a script writes its last picture only, for files take time
    const bool has_canvas = open_canvas(&l.canvas, &o);
    if (has_canvas && o.synthetic) o.painter.synthetic = synthetic_open(o.synthetic);
    const bool is_fine = has_canvas && (!o.synthetic || o.painter.synthetic) && paint(&l, &o);
    painter_close(&l.painter);
    synthetic_close(o.painter.synthetic);
    canvas_close(&l.canvas);
    if (s_is_stopped && !o.watches) return 130;
    return is_fine ? 0 : has_canvas ? 1 : 2;
}
