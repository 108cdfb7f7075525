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
#include "options.h"
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

static bool read_options(options* o, int argc, char** argv)
{
    styler_desc* s = &o->styler;
    const option table[] = {{"--headless", .flag = &o->is_headless},
                            {"--copy", .flag = &s->copies},
                            {"--control", .text = &s->control},
                            {"--prompt", .text = &s->prompt},
                            {"--out", .text = &o->out},
                            {"--seen", .text = &o->seen},
                            {"--strength", .real = &s->strength, .least = -100.0, .most = 100.0},
                            {"--low", .real = &s->low, .least = 0.01, .most = 10000.0},
                            {"--high", .real = &s->high, .least = 0.01, .most = 10000.0},
                            {"--steps", .whole = &s->steps, .least = 1.0, .most = 1000.0},
                            {"--frames", .whole = &o->frames, .least = 1.0, .most = 100000.0},
                            {"--seed", .seed = &s->seed, .most = OPTION_MOST_SEED},
                            {"--size", .width = &s->width, .height = &s->height},
                            {"--backend", .backend = &s->backend}};
    return options_read("depth_scene", table, sizeof table / sizeof *table, argc, argv, &s->model, &o->wants_help);
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
