// A small 3D scene whose depth makes pictures: a control net follows the depth buffer of each view, and the picture comes
// back as a texture beside the scene.
//     depth_scene MODEL --control NET --prompt "a village of stone in the mountains, oil painting"
//     depth_scene MODEL --control NET --prompt TEXT --headless --out picture.png --frames 30
//
//   scene.c    hills, boxes and a camera, drawn with OpenGL: stands for the renderer of a game
//   styler.c   the depth into sumi, the picture out of it: what a game would take from here
//   gl.c       a window of GLFW, or a context of EGL without one
//
// With CUDA on the GPU that draws the scene neither depth nor picture leaves it; otherwise both go through host memory.
// Seed, prompt, strength and the distances for white and black stay the same for the whole shot, so that pictures change
// only where the view does.
#include "picture.h"
#include "styler.h"
#include "system.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLEEP_US 200 // between two looks at a job, without a window

typedef struct options {
    styler_desc styler;
    const char *out, *seen;
    bool is_headless, wants_help;
    int32_t frames;
} options;

// ---- Frames ---------------------------------------------------------------------------------------------------------

static const char s_keys[] = "keys: W A S D walk, arrows look around, space asks for a picture, F switches whether the "
                             "camera's movements do, Esc ends";

static camera_step read_keys(double seconds)
{
    const float walk = 6.0f * (float)seconds, turn = 1.2f * (float)seconds; // 6 metres a second
    camera_step step = {0};
    step.forward = walk * (float)(gl_is_pressed(KEY_W) - gl_is_pressed(KEY_S));
    step.right = walk * (float)(gl_is_pressed(KEY_D) - gl_is_pressed(KEY_A));
    step.turn = turn * (float)(gl_is_pressed(KEY_RIGHT) - gl_is_pressed(KEY_LEFT));
    step.look_up = turn * (float)(gl_is_pressed(KEY_UP) - gl_is_pressed(KEY_DOWN));
    return step;
}

// Scene left, picture right, each as large as its half of the window allows without another shape.
static void show_both(const scene* view, const styler* s)
{
    int32_t width, height;
    gl_size(&width, &height);
    gl.glBindFramebuffer(GL_FRAMEBUFFER, 0);
    gl.glClearColor(0.08f, 0.08f, 0.08f, 1.0f);
    gl.glClear(GL_COLOR_BUFFER_BIT);
    const float scale = fminf(0.5f * (float)width / (float)view->width, (float)height / (float)view->height);
    const int32_t w = (int32_t)(scale * (float)view->width), h = (int32_t)(scale * (float)view->height);
    for (int side = 0; side < 2; side++) {
        const int32_t left = side * width / 2 + (width / 2 - w) / 2, low = (height - h) / 2;
        const bool is_top_first = side == 1; // images of sumi
        gl.glBindFramebuffer(GL_READ_FRAMEBUFFER, side == 0 ? view->target : s->picture_target);
        gl.glBlitFramebuffer(0, 0, view->width, view->height, left, is_top_first ? low + h : low, left + w,
                             is_top_first ? low : low + h, GL_COLOR_BUFFER_BIT, GL_LINEAR);
    }
}

static bool run_window(const scene* view, styler* s)
{
    camera c = camera_begin();
    bool is_fine = true, is_wanted = true, follows = true, had_f = false;
    double before = gl_seconds();
    printf("%s\n", s_keys);
    while (is_fine && !gl_was_closed() && !gl_is_pressed(KEY_ESCAPE)) {
        const double now = gl_seconds();
        const camera_step step = read_keys(fmin(now - before, 0.1));
        before = now;
        const bool has_f = gl_is_pressed(KEY_F);
        if (has_f && !had_f) follows = !follows;
        had_f = has_f;
        if (camera_move(&c, &step) && follows) is_wanted = true;
        if (gl_is_pressed(KEY_SPACE)) is_wanted = true;
        scene_draw(view, &c);
        const int32_t shown = s->finished;
        is_fine = styler_turn(s);
        bool is_taken = false;
        if (is_fine && is_wanted) is_fine = styler_take(s, view, &is_taken);
        if (is_taken) is_wanted = false;
        if (s->finished != shown) {
            char title[80];
            snprintf(title, sizeof title, "depth_scene: %d pictures", (int)s->finished);
            gl_title(title);
        }
        show_both(view, s);
        gl_show();
    }
    return is_fine;
}

// Every frame is another view and asks for a picture. The last view always gets one.
static bool run_frames(const scene* view, styler* s, int32_t frames)
{
    camera c = camera_begin();
    bool is_fine = true;
    int32_t taken = 0;
    for (int32_t i = 0; is_fine && i < frames; i++) {
        if (i > 0) camera_move(&c, &(camera_step){.forward = 0.2f, .turn = 0.02f});
        scene_draw(view, &c);
        bool is_taken = false;
        is_fine = styler_turn(s) && styler_take(s, view, &is_taken);
        while (is_fine && !is_taken && i + 1 == frames) {
            system_sleep_us(SLEEP_US);
            is_fine = styler_turn(s) && styler_take(s, view, &is_taken);
        }
        if (is_taken) taken = i + 1;
    }
    while (is_fine && s->has_job) {
        system_sleep_us(SLEEP_US);
        is_fine = styler_turn(s);
    }
    if (is_fine)
        printf("%d views: %d submitted, %d finished, %d cancelled; the picture is of view %d\n", (int)frames,
               (int)s->submitted, (int)s->finished, (int)s->cancelled, (int)taken);
    return is_fine;
}

static bool write_pixels(const char* path, const void* pixels, const sumi_image_desc* size, int32_t channels)
{
    char message[PICTURE_MESSAGE_BYTES];
    const picture_source source = {
        pixels, size->width, size->height, (size_t)size->width * (size_t)channels, channels, NULL, 0};
    const bool is_written = picture_write(path, &source, message);
    if (!is_written) fprintf(stderr, "depth_scene: %s\n", message);
    return is_written;
}

static bool write_files(const styler* s, const options* o)
{
    if (o->seen && !write_pixels(o->seen, s->seen, &s->desc, 3)) return false;
    if (!o->out) return true;
    uint8_t* pixels = malloc(4 * (size_t)s->desc.width * (size_t)s->desc.height);
    if (!pixels) return fprintf(stderr, "depth_scene: no memory to write the picture\n"), false;
    styler_read(s, pixels);
    const bool is_written = write_pixels(o->out, pixels, &s->desc, 4);
    free(pixels);
    return is_written;
}

// ---- Arguments ------------------------------------------------------------------------------------------------------

static const char s_usage[] =
    "usage: depth_scene MODEL --control NET --prompt TEXT [options]\n"
    "  MODEL: Z-Image or Qwen-Image with its VAE's encoder; NET: a control net for it that follows depth (Union)\n"
    "  [--strength S] (the net's usual one) [--steps N] [--size 512x512] of the scene and the pictures [--seed 7]\n"
    "  [--low 2] [--high 60]: metres that become white and black, the same in all pictures of the shot\n"
    "  [--backend cpu|cuda] [--copy]: through host memory, also where the GPU could share its textures\n"
    "  [--out FILE] [--seen FILE]: the last picture, and the depth that the net saw, as PNG, JPEG or WebP\n"
    "  [--headless] without a window: [--frames 1] views of a camera that walks, each asking for a picture\n";

static bool refuse(const char* name, const char* value, const char* wanted)
{
    fprintf(stderr, "depth_scene: %s %s: give %s\n", name, value, wanted);
    return false;
}

static bool read_text(options* o, const char* name, const char* value, bool* out_is_known)
{
    const char** into = strcmp(name, "--control") == 0 ? &o->styler.control
                      : strcmp(name, "--prompt") == 0  ? &o->styler.prompt
                      : strcmp(name, "--out") == 0     ? &o->out
                      : strcmp(name, "--seen") == 0    ? &o->seen
                                                       : NULL;
    *out_is_known = into != NULL;
    if (into) *into = value;
    return true;
}

static bool read_number(options* o, const char* name, const char* value, bool* out_is_known)
{
    double steps = 0.0, seed = 0.0, frames = 0.0, strength = NAN, low = 0.0, high = 0.0;
    const struct {
        const char* name;
        double least, most;
        double* into;
        bool is_whole;
    } numbers[] = {
        {"--strength", -100.0, 100.0, &strength, false}, {"--low", 0.01, 10000.0, &low, false},
        {"--high", 0.01, 10000.0, &high, false},         {"--steps", 1.0, 1000.0, &steps, true},
        {"--frames", 1.0, 100000.0, &frames, true},      {"--seed", 0.0, 9007199254740991.0, &seed, true}}; // 2^53 - 1
    const size_t count = sizeof numbers / sizeof *numbers;
    size_t i = 0;
    while (i < count && strcmp(name, numbers[i].name) != 0) i++;
    *out_is_known = i < count;
    if (i == count) return true;
    char *end, wanted[100];
    const double number = strtod(value, &end);
    snprintf(wanted, sizeof wanted, "a %snumber from %.16g to %.16g", numbers[i].is_whole ? "whole " : "",
             numbers[i].least, numbers[i].most);
    if (end == value || *end != '\0' || !(number >= numbers[i].least && number <= numbers[i].most)
        || (numbers[i].is_whole && number != floor(number)))
        return refuse(name, value, wanted);
    *numbers[i].into = number;
    if (steps > 0.0) o->styler.steps = (int32_t)steps;
    if (frames > 0.0) o->frames = (int32_t)frames;
    if (low > 0.0) o->styler.low = (float)low;
    if (high > 0.0) o->styler.high = (float)high;
    if (!isnan(strength)) o->styler.strength = (float)strength;
    if (strcmp(name, "--seed") == 0) o->styler.seed = (uint64_t)seed;
    return true;
}

static bool read_choice(options* o, const char* name, const char* value)
{
    char rest;
    styler_desc* s = &o->styler;
    if (strcmp(name, "--size") == 0) {
        const bool is_size = sscanf(value, "%dx%d%c", &s->width, &s->height, &rest) == 2;
        return (is_size && s->width > 0 && s->height > 0) || refuse(name, value, "pixels, such as 512x512");
    }
    if (strcmp(name, "--backend") == 0) {
        s->backend = strcmp(value, "cpu") == 0  ? SUMI_BACKEND_CPU
                   : strcmp(value, "cuda") == 0 ? SUMI_BACKEND_CUDA
                                                : SUMI_BACKEND_AUTO;
        return s->backend != SUMI_BACKEND_AUTO || refuse(name, value, "cpu or cuda; without it a GPU is taken, if any");
    }
    fprintf(stderr, "depth_scene: there is no option %s: depth_scene --help lists them\n", name);
    return false;
}

static bool read_options(options* o, int argc, char** argv)
{
    for (int at = 1; at < argc; at++) {
        const char* name = argv[at];
        bool is_known;
        if (strcmp(name, "--help") == 0) return o->wants_help = true;
        if (strcmp(name, "--headless") == 0) {
            o->is_headless = true;
        } else if (strcmp(name, "--copy") == 0) {
            o->styler.copies = true;
        } else if (name[0] != '-') {
            if (o->styler.model) return refuse("a second model", name, "one only");
            o->styler.model = name;
        } else if (at + 1 == argc) {
            fprintf(stderr, "depth_scene: %s lacks its value, or is no option: --help lists them\n", name);
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

// What is missing or contradicts itself, before a model is loaded.
static bool check_options(const options* o)
{
    char message[PICTURE_MESSAGE_BYTES];
    const char* said = NULL;
    if (!o->styler.model) said = "give a MODEL, a folder or file with Z-Image or Qwen-Image; --help says more";
    else if (!o->styler.control) said = "--control NET is missing: the control net that follows the depth";
    else if (!o->styler.prompt) said = "--prompt TEXT is missing: what the picture shows, in words";
    else if (o->styler.low >= o->styler.high) said = "--low has to be less than --high: near is white, far is black";
    else if (o->frames > 0 && !o->is_headless)
        said = "--frames is for --headless; a window has the frames of its screen";
    else if (o->is_headless && !o->out) said = "--headless needs --out FILE, where the picture goes";
    else if (o->out && !picture_path_is_possible(o->out, message)) said = message;
    else if (o->seen && !picture_path_is_possible(o->seen, message)) said = message;
    if (said) fprintf(stderr, "depth_scene: %s\n", said);
    return said == NULL;
}

static bool show(const options* o, scene* view, styler* s)
{
    if (!styler_open(s, &o->styler)) return false;
    if (!scene_open(view, s->desc.width, s->desc.height) || !styler_begin(s, &o->styler, view)) return false;
    const bool is_fine = o->is_headless ? run_frames(view, s, o->frames > 0 ? o->frames : 1) : run_window(view, s);
    return is_fine && (s->finished == 0 || write_files(s, o));
}

int main(int argc, char** argv)
{
    argv = system_begin(argc, argv);
    options o = {.styler = {.strength = NAN, .low = 2.0f, .high = 60.0f, .seed = 7}};
    if (!read_options(&o, argc, argv)) return 2;
    if (o.wants_help) return printf("%s%s\n", s_usage, s_keys), 0;
    if (!check_options(&o)) return 2;

    char why[256];
    if (!(o.is_headless ? gl_open_headless(why) : gl_open_window(1024, 512, why))) {
        gl_close();
        if (!o.is_headless) return fprintf(stderr, "depth_scene: %s\n", why), 1;
        printf("skipped: %s\n", why); // for tests: a machine without OpenGL is no failure
        return 0;
    }
    printf("depth_scene: OpenGL on %s\n", (const char*)gl.glGetString(GL_RENDERER));
    scene view = {0};
    styler s = {0};
    const bool is_fine = show(&o, &view, &s);
    styler_close(&s);
    scene_close(&view);
    gl_close();
    return is_fine ? 0 : 1;
}
