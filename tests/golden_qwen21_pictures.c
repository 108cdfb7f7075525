// Pictures of the Qwen-Image-2.1 family before a network reads them: resizes with alpha, what the vision tower sees
// behind alpha, and the sizes of references.
#include "golden_pictures.h"
#include "golden_qwen_image_21.h"
#include "pictures/pixels.h"
#include <stdlib.h>
#include <string.h>

enum { SIZE_MULTIPLE = 32, LEAST_SEEN = 65536, MOST_SEEN = 16777216 }; // the pipeline's and its processor's own

// {width, height} of a list of two numbers; zeros when there is none.
static sumi_picture_size size_of(const node* list)
{
    if (list == NULL || list->type != NODE_LIST || list->count != 2) return (sumi_picture_size){0, 0};
    return (sumi_picture_size){(int32_t)list->first->number, (int32_t)list->first->next->number};
}

static void compare_bytes(golden_case* c, const char* label, const uint8_t* got, const picture_file* want)
{
    const size_t count = (size_t)want->width * (size_t)want->height * (size_t)want->channel_count;
    int largest = 0;
    for (size_t i = 0; i < count; i++)
        largest = abs(got[i] - want->pixels[i]) > largest ? abs(got[i] - want->pixels[i]) : largest;
    report(c, label, largest, 0, largest == 0);
}

static void run_resize(golden_case* c, const node* about, int index)
{
    picture_file given = {0}, resized = {0}, white = {0};
    const sumi_picture_size size = size_of(json_get(about, "size"));
    if (read_case_picture(c, json_text(about, "input"), 4, &given)
        && read_case_picture(c, json_text(about, "lanczos"), 4, &resized)
        && read_case_picture(c, json_text(about, "white"), 3, &white)) {
        if (size.width != resized.width || size.height != resized.height || size.width != white.width
            || size.height != white.height) {
            case_fails(c, "%d: its pictures are not %d x %d", index, (int)size.width, (int)size.height);
        } else {
            char label[64];
            sumi_error error = {0};
            const size_t count = (size_t)size.width * (size_t)size.height;
            uint8_t *rgba = calloc(count, 4), *rgb = calloc(count, 3);
            if (sumi_pixels_to_rgba(&c->g->heap,
                                    &(sumi_pixels){given.pixels, given.width, given.height, 4 * given.width, 4},
                                    &(sumi_resized_pixels){rgba, size.width, size.height, SUMI_FILTER_LANCZOS}, &error)
                != SUMI_OK)
                case_fails(c, "%s", error.text);
            sumi_pixels_over_white(rgba, count, rgb);
            snprintf(label, sizeof label, "%d.lanczos", index);
            compare_bytes(c, label, rgba, &resized);
            snprintf(label, sizeof label, "%d.white", index);
            compare_bytes(c, label, rgb, &white);
            free(rgba), free(rgb);
        }
    }
    picture_free(&given);
    picture_free(&resized);
    picture_free(&white);
}

static bool is_size(sumi_result result, sumi_picture_size got, sumi_picture_size want)
{
    if (want.width == 0) return result == SUMI_INVALID_ARGUMENT; // the reference refuses it
    return result == SUMI_OK && got.width == want.width && got.height == want.height;
}

// The sizes of a reference for each output resolution that the row names, and what the processor alone would make of it.
static bool are_sizes_good(const node* row, int* compared)
{
    const sumi_picture_size picture = size_of(json_get(row, "image"));
    const node* seen = json_get(row, "smart_resize");
    bool is_good = true;
    for (const node* n = row->first; n != NULL; n = n->next) {
        const int64_t resolution = n->key != NULL ? atoi(n->key) : 0;
        if (resolution <= 0) continue;
        sumi_picture_size size = {0, 0};
        const sumi_result result =
            sumi_picture_size_of_area(picture, resolution * resolution, SIZE_MULTIPLE, &size, NULL);
        is_good = is_good && is_size(result, size, size_of(json_get(n, "size")))
               && (result != SUMI_OK || size.width / 16 * (size.height / 16) == (int32_t)json_number(n, "tokens", -1));
        (*compared)++;
    }
    if (seen != NULL) {
        const sumi_size_limits limits = {SIZE_MULTIPLE, LEAST_SEEN, MOST_SEEN, LONGEST_PICTURE_RATIO};
        sumi_picture_size size = {0, 0};
        const sumi_result result = sumi_picture_size_within(picture, &limits, &size, NULL);
        is_good = is_good && is_size(result, size, size_of(seen));
    }
    if (!is_good) printf("  other sizes for %d x %d\n", (int)picture.width, (int)picture.height);
    return is_good;
}

bool run_qwen21_pictures_case(golden_case* c)
{
    const node *vectors = json_get(c->json, "vectors"), *rows = json_get(c->json, "rows");
    if (strcmp(c->kind, "preprocess") == 0 && vectors != NULL) {
        int index = 0;
        for (const node* n = vectors->first; n != NULL; n = n->next) run_resize(c, n, index++);
        return true;
    }
    if (strcmp(c->kind, "schedule") == 0 && rows != NULL && rows->first != NULL
        && json_get(rows->first, "image") != NULL) {
        int wrong = 0, compared = 0;
        for (const node* n = rows->first; n != NULL; n = n->next) wrong += !are_sizes_good(n, &compared);
        report(c, "sizes", wrong, 0, wrong == 0 && compared > 0);
        return true;
    }
    return false;
}
