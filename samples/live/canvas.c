#include "canvas.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_SECONDS 0.01 // between two looks into the folder

// ---- A script -------------------------------------------------------------------------------------------------------

// Frame `number` of a brush stroke: one more dab of paint on the frames before, at first on white paper. The brush stays
// within the canvas.
static void draw_stroke(canvas* c, int32_t number)
{
    const int32_t width = c->pixels.width, height = c->pixels.height;
    const double x = width * (0.5 + 0.4 * sin(0.11 * number)), y = height * (0.5 + 0.4 * sin(0.07 * number + 1.0)),
                 radius = 0.06 * (width < height ? width : height);
    if (number == 0) memset(c->drawn, 255, (size_t)width * (size_t)height * 3);
    for (int32_t row = (int32_t)(y - radius); row <= y + radius; row++) {
        for (int32_t column = (int32_t)(x - radius); column <= x + radius; column++) {
            if ((column - x) * (column - x) + (row - y) * (row - y) > radius * radius) continue;
            uint8_t* pixel = c->drawn + 3 * ((size_t)row * (size_t)width + (size_t)column);
            for (int i = 0; i < 3; i++) pixel[i] = (uint8_t)(128.0 + 127.0 * sin(0.02 * number + 2.1 * i));
        }
    }
}

static bool read_frames(canvas* c, const char* folder, char* message)
{
    char path[1200];
    int count = 0;
    char** names = system_list(folder, &count);
    c->frames = calloc((size_t)count + 1, sizeof *c->frames);
    bool is_read = c->frames != NULL || picture_fail(message, "no memory for %d frames", count);
    for (int i = 0; i < count && is_read; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (!picture_is_one(path)) continue;
        is_read = picture_read(path, 3, &c->frames[c->frame_count], message);
        c->frame_count += is_read;
    }
    system_free_list(names, count);
    return is_read && (c->frame_count > 0 || picture_fail(message, "%s has no PNG, JPEG or WebP file in it", folder));
}

bool canvas_open_script(canvas* c, const char* frames, sumi_size size, char* message)
{
    if (system_look_at(frames) == SYSTEM_FOLDER) return read_frames(c, frames, message);
    char* end;
    const long count = strtol(frames, &end, 10);
    if (end == frames || *end != '\0' || count < 1 || count > 1000000)
        return picture_fail(message, "%s is neither a folder nor a number of frames", frames);
    c->frame_count = (int32_t)count;
    c->drawn = malloc((size_t)size.width * (size_t)size.height * 3);
    c->pixels = (sumi_pixels){c->drawn, size.width, size.height, 0, 3};
    return c->drawn != NULL || picture_fail(message, "no memory for a canvas of %dx%d", size.width, size.height);
}

static int32_t take_script(canvas* c, double now, double* out_came)
{
    const double due = floor((now - c->begin) * c->rate) + 1.0;
    const int32_t before = c->taken, until = due < c->total ? (int32_t)due : c->total;
    if (until <= before) return 0;
    // A stroke is drawn to its end, for each frame adds to those before.
    for (; c->taken < until; c->taken++)
        if (c->drawn) draw_stroke(c, c->taken % c->frame_count);
    if (c->frames) {
        const picture_file* frame = &c->frames[(until - 1) % c->frame_count];
        c->pixels = (sumi_pixels){frame->pixels, frame->width, frame->height, 0, frame->channel_count};
    }
    *out_came = c->begin + (until - 1) / c->rate; // and not when somebody looked
    return until - before;
}

// ---- A folder -------------------------------------------------------------------------------------------------------

bool canvas_open_folder(canvas* c, const char* folder, char* message)
{
    c->folder = folder;
    return system_look_at(folder) == SYSTEM_FOLDER || picture_fail(message, "%s is no folder", folder);
}

// The newest file, by the time when it was written; of several the last name. Returns false if it was taken before.
static bool find_newest(const canvas* c, char path[1200], uint64_t* out_changed_ns)
{
    int count = 0;
    char** names = system_list(c->folder, &count);
    char at[1200];
    *out_changed_ns = 0;
    for (int i = 0; i < count; i++) {
        if (c->left_out && strncmp(names[i], c->left_out, strlen(c->left_out)) == 0) continue;
        if ((size_t)snprintf(at, sizeof at, "%s/%s", c->folder, names[i]) >= sizeof at) continue;
        const uint64_t changed_ns = system_look_at(at) == SYSTEM_FILE ? system_changed_ns(at) : 0;
        if (changed_ns == 0 || changed_ns < *out_changed_ns) continue;
        *out_changed_ns = changed_ns;
        strcpy(path, at);
    }
    system_free_list(names, count);
    return *out_changed_ns > c->changed_ns || (*out_changed_ns == c->changed_ns && strcmp(path, c->path) != 0);
}

static int32_t take_newest_file(canvas* c, double now, double* out_came)
{
    char path[1200] = "", message[PICTURE_MESSAGE_BYTES];
    uint64_t changed_ns;
    if (now < c->next_look) return 0;
    c->next_look = now + LOOK_SECONDS;
    if (!find_newest(c, path, &changed_ns)) return 0;
    picture_file file;
    const bool is_read = picture_read(path, 3, &file, message);
    // It may be half written. So it is tried again, and left alone if it has not changed since.
    const bool is_same = changed_ns == c->tried_ns && strcmp(path, c->tried) == 0;
    if (!is_read && is_same) fprintf(stderr, "live: %s\n", message);
    c->tried_ns = changed_ns;
    strcpy(c->tried, path);
    if (!is_read && !is_same) return 0;
    c->changed_ns = changed_ns;
    strcpy(c->path, path);
    if (!is_read) return 0;
    picture_free(&c->file);
    c->file = file;
    c->pixels = (sumi_pixels){file.pixels, file.width, file.height, 0, file.channel_count};
    c->taken++;
    *out_came = now;
    return 1;
}

// ---- Both -----------------------------------------------------------------------------------------------------------

int32_t canvas_take(canvas* c, double now, double* out_came)
{
    return c->folder ? take_newest_file(c, now, out_came) : take_script(c, now, out_came);
}

bool canvas_has_ended(const canvas* c) { return !c->folder && c->taken == c->total; }

void canvas_close(canvas* c)
{
    for (int32_t i = 0; c->frames && i < c->frame_count; i++) picture_free(&c->frames[i]);
    free(c->frames);
    free(c->drawn);
    picture_free(&c->file);
    *c = (canvas){0};
}
