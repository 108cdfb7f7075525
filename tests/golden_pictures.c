#include "golden_pictures.h"
#include "models/network_state.h"
#include "pictures/pixels.h"
#include "plan_runner.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { AREA_MULTIPLE = 32 }; // the pipelines' own

bool read_case_picture(golden_case* c, const char* name, int32_t channels, picture_file* out)
{
    char path[2400], message[PICTURE_MESSAGE_BYTES];
    memset(out, 0, sizeof *out);
    if (name == NULL) {
        case_fails(c, "the json names no picture");
        return false;
    }
    join_path(path, sizeof path, c->folder, name);
    if (picture_read(path, channels, out, message)) return true;
    case_fails(c, "%s", message);
    return false;
}

bool read_case_png(golden_case* c, const char* name, picture_file* out) { return read_case_picture(c, name, 3, out); }

void compare_png(golden_case* c, const char* name, const array* bytes, double bf16)
{
    picture_file want;
    const int32_t channels = bytes->rank == 2 && bytes->shape[1] == 4 ? 4 : 3;
    if (bytes->values == NULL || !read_case_picture(c, name, channels, &want)) return;
    const int64_t count = channels * (int64_t)want.width * want.height;
    double largest = 0, difference = 0, size = 0;
    for (int64_t i = 0; i < count && i < bytes->count; i++) {
        const double d = fabs((double)bytes->values[i] - want.pixels[i]);
        largest = fmax(largest, d);
        difference += d * d;
        size += (double)want.pixels[i] * want.pixels[i];
    }
    if (count != bytes->count) {
        case_fails(c, "%s: made %lld bytes where %lld are stored", name, (long long)bytes->count, (long long)count);
    } else if (!c->g->is_gpu) report(c, name, largest, 1, largest <= 1);
    else if (bf16 > 0) {
        const double error = sqrt(difference / (double)count),
                     allowed = fmax(1.5 * bf16, error_of_format(c)) * sqrt(size / (double)count) + 0.6;
        report(c, name, error, allowed, error <= allowed);
    } else not_checked(c, name, "no error in bfloat16 is stored for it");
    picture_free(&want);
}

static uint8_t* resize(golden_case* c, const uint8_t* rgb, sumi_picture_size from, sumi_picture_size to,
                       sumi_filter filter)
{
    uint8_t* out = calloc(3 * (size_t)to.width * (size_t)to.height + 1, 1);
    sumi_error error = {0};
    if (sumi_pixels_resize(&c->g->heap, &(sumi_pixels){rgb, from.width, from.height, 3 * from.width, 3},
                           &(sumi_resized_pixels){out, to.width, to.height, filter}, &error)
        != SUMI_OK)
        case_fails(c, "%s", error.text);
    return out;
}

static sumi_picture_size sized(golden_case* c, sumi_picture_size picture, int64_t area)
{
    sumi_error error = {0};
    sumi_picture_size size = picture;
    if (area > 0 && sumi_picture_size_of_area(picture, area, AREA_MULTIPLE, &size, &error) != SUMI_OK)
        case_fails(c, "%s", error.text);
    return size;
}

// One picture for the vision tower and for the autoencoder, each by way of its own area.
static void make_picture(golden_case* c, const sumi_network* network, const picture_file* file, picture_areas areas,
                         case_pictures* out)
{
    const sumi_vision_properties properties = network->recipe->vision->properties(network->vision);
    const sumi_size_limits limits = {properties.cell, properties.min_pixels, properties.max_pixels,
                                     LONGEST_PICTURE_RATIO};
    const sumi_picture_size own = {file->width, file->height}, looked_at = sized(c, own, areas.seen),
                            encoded = sized(c, own, areas.encoded);
    sumi_picture_size seen = looked_at;
    sumi_error error = {0};
    if (sumi_picture_size_within(looked_at, &limits, &seen, &error) != SUMI_OK) case_fails(c, "%s", error.text);
    const int32_t i = out->count++;
    uint8_t* between = resize(c, file->pixels, own, looked_at, SUMI_FILTER_LANCZOS);
    out->seen[i] = resize(c, between, looked_at, seen, SUMI_FILTER_BICUBIC);
    free(between);
    out->references[i] = (sumi_pipeline_reference){.vision_width = seen.width, .vision_height = seen.height};
    out->tokens[i] = seen.width / properties.cell * (seen.height / properties.cell);
    out->last = own;
    if (areas.encoded >= 0) {
        out->pixels[i] = resize(c, file->pixels, own, encoded, SUMI_FILTER_LANCZOS);
        out->references[i].width = encoded.width;
        out->references[i].height = encoded.height;
    }
}

bool make_pictures(golden_case* c, const sumi_network* network, const node* names, picture_areas areas,
                   case_pictures* out)
{
    memset(out, 0, sizeof *out);
    const int failed = c->g->case_failed;
    for (const node* n = names != NULL ? names->first : NULL; n != NULL; n = n->next) {
        picture_file file = {0};
        if (network->vision == NULL || out->count == SUMI_MAX_REFERENCES) {
            case_fails(c, "the checkpoint has no vision tower, or there are too many pictures");
        } else if (read_case_png(c, n->text, &file)) make_picture(c, network, &file, areas, out);
        picture_free(&file);
    }
    return c->g->case_failed == failed;
}

void free_pictures(case_pictures* pictures)
{
    for (int32_t i = 0; i < pictures->count; i++) {
        free(pictures->seen[i]);
        free(pictures->pixels[i]);
    }
    pictures->count = 0;
}

void write_pictures(plan_run* run, const case_pictures* pictures)
{
    sumi_runner* runner = run->c->g->runner;
    for (int32_t i = 0; i < pictures->count; i++) {
        const sumi_pipeline_reference* one = &pictures->references[i];
        if (run->pipeline->vision_pixels[i].id != 0)
            runner->functions->write(runner, run->plan, run->pipeline->vision_pixels[i], 0, pictures->seen[i],
                                     3 * (uint64_t)one->vision_width * (uint64_t)one->vision_height);
        if (run->pipeline->reference_pixels[i].id != 0)
            runner->functions->write(runner, run->plan, run->pipeline->reference_pixels[i], 0, pictures->pixels[i],
                                     (uint64_t)sumi_plan_info(run->plan, run->pipeline->reference_pixels[i])->cols
                                         * (uint64_t)one->width * (uint64_t)one->height);
    }
}
