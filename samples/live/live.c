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
#include "options.h"
#include "painter.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
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
    bool has_told;            // what the format of --out cannot keep
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
static bool write_shown(live* l, const char* path)
{
    char part[1200], message[PICTURE_MESSAGE_BYTES];
    const char* name = system_file_name(path);
    const sumi_image* i = &l->painter.shown;
    const picture_source source = {i->pixels, i->width, i->height, (size_t)i->row_bytes, 4, NULL, 0};
    const int written = snprintf(part, sizeof part, "%.*s.part-%s", (int)(name - path), path, name);
    if (written < 0 || (size_t)written >= sizeof part)
        return fprintf(stderr, "live: the path of --out is too long\n"), false;
    if (!picture_write(part, &source, message)) return fprintf(stderr, "live: %s\n", message), false;
    if (message[0] && !l->has_told) l->has_told = fprintf(stderr, "live: %s\n", message) > 0; // once, not for each
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
    const bool is_fine = write_shown(l, l->canvas.result);
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

static bool read_options(options* o, int argc, char** argv)
{
    painter_desc* p = &o->painter;
    const option table[] = {
        {"--watch", .flag = &o->watches},
        {"--prompt", .text = &p->prompt},
        {"--frames", .text = &o->frames},
        {"--script", .text = &o->script},
        {"--out", .text = &o->out},
        {"--strength", .number = &p->strength, .least = 0.01, .most = 1.0},
        {"--rate", .number = &o->rate, .least = 0.01, .most = 10000.0},
        {"--seconds", .number = &o->seconds, .least = 0.01, .most = 36000.0},
        {"--steps", .whole = &p->steps, .least = 1.0, .most = 1000.0},
        {"--seed", .seed = &p->seed, .most = OPTION_MOST_SEED},
        {"--size", .width = &p->size.width, .height = &p->size.height},
        {"--backend", .backend = &p->backend},
        {"--synthetic", .read = options_read_synthetic, .into = &o->synthetic, .wanted = OPTIONS_SYNTHETIC},
        {"--weights", .read = options_read_weights, .into = &p->weights, .wanted = SYNTHETIC_WEIGHTS},
        {"--attention", .read = options_read_attention, .into = &p->attention, .wanted = "bf16 or 8bit"}};
    return options_read("live", table, sizeof table / sizeof *table, argc, argv, &p->model, &o->wants_help);
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
    if (o->script && o->out && l->painter.finished > 0) is_fine = write_shown(l, o->out) && is_fine;
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
