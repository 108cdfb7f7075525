#include "canvas.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_SECONDS 0.01 // between two looks into the folder

static bool join(char path[1200], const char* folder, const char* name)
{
    return (size_t)snprintf(path, 1200, "%s/%s", folder, name) < 1200;
}

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
        if (!join(path, folder, names[i]) || !picture_is_one(path)) continue;
        is_read = picture_read(path, 0, &c->frames[c->frame_count], message);
        c->frame_count += is_read;
    }
    system_free_list(names, count);
    return is_read
        && (c->frame_count > 0
            || picture_fail(message, "%s has no PNG, JPEG or WebP file in it: put the frames there", folder));
}

bool canvas_open_script(canvas* c, const char* frames, char* message)
{
    if (system_look_at(frames) == SYSTEM_FOLDER) return read_frames(c, frames, message);
    char* end;
    const long count = strtol(frames, &end, 10);
    if (end == frames || *end != '\0' || count < 1 || count > 1000000)
        return picture_fail(message, "--script %s is neither a folder nor a number of frames from 1 to 1000000",
                            frames);
    c->frame_count = (int32_t)count;
    return true;
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

bool canvas_has_picture(const char* folder)
{
    char path[1200];
    int count = 0;
    char** names = system_list(folder, &count);
    bool is_found = false;
    for (int i = 0; i < count && !is_found; i++) is_found = join(path, folder, names[i]) && picture_is_one(path);
    system_free_list(names, count);
    return is_found;
}

bool canvas_open_folder(canvas* c, const char* folder, char* message)
{
    c->folder = folder;
    return system_look_at(folder) == SYSTEM_FOLDER
        || picture_fail(message, "there is no folder %s: create it, or name another one", folder);
}

static void forget_files(canvas* c)
{
    system_free_list(c->names, c->file_count);
    free(c->files);
    c->names = NULL, c->files = NULL, c->file_count = 0;
}

// Compares the folder with the last look. Both lists are sorted by name.
static void look(canvas* c)
{
    int count = 0, before = 0;
    char** names = system_list(c->folder, &count);
    canvas_file* files = calloc((size_t)count + 1, sizeof *files);
    if (!files) {
        system_free_list(names, count);
        return; // until the next look
    }
    for (int i = 0; i < count; i++) {
        char path[1200];
        const bool is_file = join(path, c->folder, names[i]) && system_look_at(path) == SYSTEM_FILE;
        const uint64_t changed_ns = is_file ? system_changed_ns(path) : 0;
        while (before < c->file_count && strcmp(c->files[before].name, names[i]) < 0) before++;
        const bool is_known = before < c->file_count && strcmp(c->files[before].name, names[i]) == 0
                           && c->files[before].changed_ns == changed_ns;
        files[i] = is_known ? c->files[before] : (canvas_file){.changed_ns = changed_ns, .is_taken = changed_ns == 0};
        files[i].name = names[i];
        // By name and time, for a folder may have several paths.
        if (c->result && changed_ns == c->result_changed_ns && strcmp(names[i], system_file_name(c->result)) == 0)
            files[i].is_taken = true;
    }
    forget_files(c);
    c->names = names, c->files = files, c->file_count = count;
}

static canvas_file* find_newest(const canvas* c)
{
    canvas_file* newest = NULL;
    for (int i = 0; i < c->file_count; i++) {
        canvas_file* file = &c->files[i];
        if (!file->is_taken && (!newest || file->changed_ns >= newest->changed_ns)) newest = file;
    }
    return newest;
}

static int32_t take_newest_file(canvas* c, double now, double* out_came)
{
    if (now < c->next_look) return 0;
    c->next_look = now + LOOK_SECONDS;
    look(c);
    canvas_file* newest = find_newest(c);
    char path[1200], message[PICTURE_MESSAGE_BYTES];
    picture_file file;
    if (!newest || !join(path, c->folder, newest->name)) return 0;
    if (!picture_read(path, 0, &file, message)) {
        // Another program may be writing it. If so, it changes, or can be read at the next look.
        newest->is_taken = ++newest->tries > 1;
        if (newest->is_taken) fprintf(stderr, "live: %s\n", message);
        return 0;
    }
    int32_t count = 0;
    const uint64_t changed_ns = newest->changed_ns;
    for (int i = 0; i < c->file_count; i++) { // those that are older have lost
        if (c->files[i].is_taken || c->files[i].changed_ns > changed_ns) continue;
        c->files[i].is_taken = true;
        count++;
    }
    if (c->taken == 0) count = 1; // what was there before is no change
    picture_free(&c->newest);
    c->newest = file;
    c->pixels = (sumi_pixels){file.pixels, file.width, file.height, 0, file.channel_count};
    c->taken += count;
    *out_came = now;
    return count;
}

// ---- Both -----------------------------------------------------------------------------------------------------------

bool canvas_begin(canvas* c, sumi_size size, double now)
{
    c->begin = now;
    if (c->folder || c->frames) return true;
    c->drawn = malloc((size_t)size.width * (size_t)size.height * 3);
    c->pixels = (sumi_pixels){c->drawn, size.width, size.height, 0, 3};
    return c->drawn != NULL;
}

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
    forget_files(c);
    picture_free(&c->newest);
    *c = (canvas){0};
}
