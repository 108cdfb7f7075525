// Schedules with a shift by tokens and steps, references as they are cropped, and what inpainting begins with, against
// the reference pipeline's. The rules are those of the network.
#include "golden_flux_references.h"
#include "models/network_state.h"
#include "pictures/pixels.h"
#include "sampling/schedule.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

// ---- Schedules ------------------------------------------------------------------------------------------------------

// Of 1e-15 relative rounding in each of some ten operations.
#define MU_TOLERANCE 1e-13

static void run_schedule(golden_case* c, const sumi_network* network)
{
    const sumi_sigma_rule* rule = &network->info.sigmas;
    const node *tables = json_get(c->json, "tables"), *starts = json_get(c->json, "inpaint");
    int32_t rows = 0, wrong = 0;
    double worst = 0;
    if (rule->kind != SUMI_SHIFT_EMPIRICAL) case_fails(c, "the network's shift does not depend on tokens and steps");
    for (const node* n = tables != NULL ? tables->first : NULL; n != NULL; n = n->next) {
        const int32_t tokens = (int32_t)json_number(n, "tokens", 0), steps = (int32_t)json_number(n, "steps", 0);
        char name[64];
        if (tokens < 1 || steps < 1 || steps > SUMI_SCHEDULE_MAX_STEPS || rule->kind != SUMI_SHIFT_EMPIRICAL) {
            case_fails(c, "a table of %d tokens and %d steps is not possible", (int)tokens, (int)steps);
            return;
        }
        worst = fmax(worst, fabs(sumi_sigma_rule_mu(rule, tokens, steps) - json_number(n, "mu", HUGE_VAL)));
        array got = array_make(NULL, 1, (const int64_t[]){steps + 1});
        sumi_error error = {0};
        if (sumi_schedule_write(rule, tokens, steps, got.values, &error) != SUMI_OK) case_fails(c, "%s", error.text);
        snprintf(name, sizeof name, "sigmas.L%d.n%d", (int)tokens, (int)steps);
        compare(c, name, &got);
        array_free(&got);
        rows++;
    }
    if (rows > 0) report(c, "mu", worst, MU_TOLERANCE, worst <= MU_TOLERANCE);
    rows = 0;
    for (const node* n = starts != NULL ? starts->first : NULL; n != NULL; n = n->next, rows++) {
        const int32_t steps = (int32_t)json_number(n, "steps", 0),
                      first = sumi_schedule_first_index(steps, (float)json_number(n, "strength", 0));
        wrong += first != (int32_t)json_number(n, "first_index", -1)
              || steps - first != (int32_t)json_number(n, "steps_run", -1);
    }
    if (rows > 0) report(c, "first index of inpainting", wrong, 0, wrong == 0);
}

// ---- References -----------------------------------------------------------------------------------------------------

// A tensor of bytes as a picture; `bytes` is to be freed.
static sumi_pixels pixels_of(const array* a, uint8_t** bytes)
{
    const int32_t channels = a->rank == 3 ? (int32_t)a->shape[2] : 1, width = (int32_t)a->shape[1];
    *bytes = calloc((size_t)a->count + 1, 1);
    for (int64_t i = 0; i < a->count; i++) (*bytes)[i] = (uint8_t)a->values[i];
    return (sumi_pixels){*bytes, width, (int32_t)a->shape[0], width * channels, channels};
}

static bool is_pair(const node* list, int32_t first, int32_t second)
{
    return list != NULL && list->count == 2 && (int32_t)list->first->number == first
        && (int32_t)list->first->next->number == second;
}

static void run_sizes(golden_case* c, const sumi_network* network, const node* list)
{
    int32_t rows = 0, wrong = 0;
    for (const node* n = list->first; n != NULL; n = n->next, rows++) {
        const sumi_picture_size picture = {(int32_t)json_number(n, "width", 0), (int32_t)json_number(n, "height", 0)};
        const int32_t token = network->info.size_multiple;
        sumi_reference_sizes sizes = {.tokens = 0};
        sumi_error error = {0};
        if (sumi_network_reference_sizes(network, picture, &sizes, &error) != SUMI_OK) case_fails(c, "%s", error.text);
        const sumi_picture_size read = sizes.autoencoder;
        wrong += !is_pair(json_get(n, "resized"), sizes.resized.width, sizes.resized.height)
              || !is_pair(json_get(n, "cropped"), read.width, read.height)
              || sizes.left != (int32_t)json_number(n, "left", -1) || sizes.top != (int32_t)json_number(n, "top", -1)
              || read.width / token * (read.height / token) != (int32_t)json_number(n, "tokens", -1);
    }
    report(c, "sizes of references", wrong, 0, wrong == 0 && rows > 0);
}

static void run_crop(golden_case* c, const sumi_network* network)
{
    array image = input(c, "image");
    sumi_reference_sizes sizes = {.tokens = 0};
    sumi_error error = {0};
    const bool is_image = image.rank == 3 && image.shape[2] == 3;
    const int32_t width = is_image ? (int32_t)image.shape[1] : 0, height = is_image ? (int32_t)image.shape[0] : 0;
    if (!is_image) case_fails(c, "the case has no image [height, width, 3]");
    else if (sumi_network_reference_sizes(network, (sumi_picture_size){width, height}, &sizes, &error) != SUMI_OK)
        case_fails(c, "%s", error.text);
    if (sizes.autoencoder.width > 0) {
        const sumi_picture_size resized = sizes.resized, read = sizes.autoencoder;
        uint8_t *bytes, *whole = calloc((size_t)resized.width * (size_t)resized.height * 3 + 1, 1);
        const sumi_pixels source = pixels_of(&image, &bytes);
        if (sumi_pixels_resize(&c->g->heap, &source,
                               &(sumi_resized_pixels){whole, resized.width, resized.height, SUMI_FILTER_LANCZOS},
                               &error)
            != SUMI_OK)
            case_fails(c, "%s", error.text);
        const sumi_pixels all = {whole, resized.width, resized.height, 3 * resized.width, 3},
                          window = sumi_pixels_window(&all, sizes.left, sizes.top, read.width, read.height);
        array got = array_make(NULL, 3, (const int64_t[]){read.height, read.width, 3});
        for (int64_t i = 0; i < got.count; i++) {
            const uint8_t* row = (const uint8_t*)window.data + i / (3 * read.width) * window.row_bytes;
            got.values[i] = row[i % (3 * read.width)];
        }
        compare(c, "image_u8", &got);
        array_free(&got);
        free(bytes);
        free(whole);
    }
    array_free(&image);
}

// ---- Inpainting -----------------------------------------------------------------------------------------------------

bool make_inpaint_inputs(golden_case* c, const sumi_network* network, inpaint_inputs* out)
{
    array image = input(c, "image"), mask = input(c, "mask_image");
    const int32_t width = (int32_t)json_number(c->json, "width", 0),
                  height = (int32_t)json_number(c->json, "height", 0), factor = network->info.vae_factor;
    const bool is_good = image.rank == 3 && mask.rank == 2 && width >= factor && height >= factor;
    *out = (inpaint_inputs){.rgb = NULL};
    if (!is_good) {
        case_fails(c, "the case has no image, mask_image or size");
    } else {
        const size_t count = (size_t)width * (size_t)height;
        uint8_t *image_bytes, *mask_bytes, *binary = calloc(count, 1);
        const sumi_pixels image_pixels = pixels_of(&image, &image_bytes), mask_pixels = pixels_of(&mask, &mask_bytes);
        sumi_picture_size size = {0};
        sumi_error error = {0};
        out->rgb = calloc(count, 3);
        out->mask = array_make(NULL, 2, (const int64_t[]){height / factor, width / factor});
        const sumi_latent_mask latent = {out->mask.values, width / factor, height / factor,
                                         network->info.start.mask_filter};
        if (sumi_pixels_to_rgb(&c->g->heap, &image_pixels, width, height, out->rgb, &error) != SUMI_OK
            || sumi_pixels_to_mask(&c->g->heap, &mask_pixels, width, height, binary, &error) != SUMI_OK
            || sumi_network_start_size(network, (sumi_picture_size){image_pixels.width, image_pixels.height}, &size,
                                       &error)
                   != SUMI_OK)
            case_fails(c, "%s", error.text);
        else sumi_mask_to_latents(binary, width, height, &latent);
        if (!c->by_op) {
            const bool has_size = size.width == width && size.height == height;
            report(c, "size of the image", !has_size, 0, has_size);
            compare(c, "mask", &out->mask);
            array prepared = array_make(NULL, 3, (const int64_t[]){height, width, 3});
            for (int64_t i = 0; i < prepared.count; i++) prepared.values[i] = out->rgb[i];
            compare(c, "prepared_u8", &prepared);
            array_free(&prepared);
        }
        free(image_bytes);
        free(mask_bytes);
        free(binary);
    }
    array_free(&image);
    array_free(&mask);
    return is_good;
}

void free_inpaint_inputs(inpaint_inputs* inputs)
{
    free(inputs->rgb);
    array_free(&inputs->mask);
}

bool run_flux_reference_case(golden_case* c)
{
    const bool is_schedule = strcmp(c->kind, "schedule") == 0;
    if (!is_schedule && strcmp(c->kind, "preprocess") != 0) return false;
    const sumi_network* network = case_network(c, c->json);
    const node* sizes = json_get(c->json, "sizes");
    if (network == NULL) return true;
    if (is_schedule) run_schedule(c, network);
    else if (sizes != NULL) run_sizes(c, network, sizes);
    else run_crop(c, network);
    return true;
}
