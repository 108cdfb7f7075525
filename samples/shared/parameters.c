#include "parameters.h"
#include "system.h"
#include "utf8.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* const s_rules[] = {NULL, "plain", "norm-limit", "norm-rescale"}; // by sumi_guidance_rule

parameters parameters_none(void)
{
    return (parameters){.solver = -1, .noise = -1, .cfg_scale = -1.0f, .guidance = -1.0f, .strength = -1.0f};
}

const char* parameters_solver_name(sumi_solver solver)
{
    switch (solver) {
    case SUMI_SOLVER_EULER: return "Euler";
    case SUMI_SOLVER_HEUN: return "Heun";
    case SUMI_SOLVER_MIDPOINT: return "Midpoint";
    case SUMI_SOLVER_DPMPP_2M: return "DPM++ 2M";
    case SUMI_SOLVER_HEUN_FULL: return "Heun full";
    case SUMI_SOLVER_RK4: return "RK4";
    case SUMI_SOLVER_RES_MULTISTEP: return "Res Multistep";
    }
    return "Euler";
}

// Families differ in the scale that is no guidance: 0 or 1. In the classic one it is 1.
float parameters_cfg_scale(const sumi_model_info* model, float guidance)
{
    return guidance - model->guidance_off + 1.0f;
}
float parameters_guidance(const sumi_model_info* model, float cfg_scale)
{
    return cfg_scale - 1.0f + model->guidance_off;
}

// ---- Writing --------------------------------------------------------------------------------------------------------

typedef struct text_out {
    char* into;
    size_t capacity, used;
} text_out;

SYSTEM_PRINTF(2, 3)
static void put(text_out* out, const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    const size_t free_bytes = out->used < out->capacity ? out->capacity - out->used : 0;
    const int written = vsnprintf(free_bytes ? out->into + out->used : NULL, free_bytes, format, arguments);
    if (written > 0) out->used += (size_t)written;
    va_end(arguments);
}

static void put_text(text_out* out, const char* text)
{
    const size_t length = strlen(text);
    uint32_t ignored;
    for (size_t i = 0; i < length;) {
        const size_t bytes = utf8_decode(text + i, length - i, &ignored);
        if (bytes) put(out, "%.*s", (int)bytes, text + i);
        else put(out, "\xEF\xBF\xBD");
        i += bytes ? bytes : 1;
    }
}

// Programs that read the line split it at commas, so a value that contains one is written in quotes.
static void put_value(text_out* out, const char* key, const char* text)
{
    if (!strpbrk(text, ",:\"\n")) {
        put(out, ", %s: ", key);
        put_text(out, text);
        return;
    }
    put(out, ", %s: \"", key);
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') put(out, "\\");
        if (*text == '\n') put(out, "\\n");
        else put(out, "%c", *text);
    }
    put(out, "\"");
}

size_t parameters_write(const parameters* from, char* into, size_t capacity)
{
    text_out out = {into, capacity, 0};
    if (capacity) into[0] = 0;
    if (from->prompt) put_text(&out, from->prompt);
    put(&out, "\n");
    if (from->negative && from->negative[0]) {
        put(&out, "Negative prompt: ");
        put_text(&out, from->negative);
        put(&out, "\n");
    }
    put(&out, "Steps: %d", from->step_count);
    if (from->solver >= 0) put(&out, ", Sampler: %s", parameters_solver_name((sumi_solver)from->solver));
    if (from->cfg_scale >= 0.0f) put(&out, ", CFG scale: %g", (double)from->cfg_scale);
    if (from->has_seed) put(&out, ", Seed: %llu", (unsigned long long)from->seed);
    put(&out, ", Size: %dx%d", from->width, from->height);
    if (from->model_name) put_value(&out, "Model", from->model_name);
    if (from->strength >= 0.0f) put(&out, ", Denoising strength: %g", (double)from->strength);
    if (from->shift > 0.0f) put(&out, ", Shift: %g", (double)from->shift);
    char step_cache[24];
    parameters_write_step_cache(from, step_cache);
    if (strcmp(step_cache, "0") != 0) put(&out, ", Step cache: %s", step_cache);
    if (from->noise >= 0)
        put(&out, ", RNG: %s",
            from->noise == SUMI_NOISE_TORCH_CPU    ? "CPU"
            : from->noise == SUMI_NOISE_TORCH_CUDA ? "GPU"
                                                   : "given");
    if (from->guidance >= 0.0f) put(&out, ", Guidance: %g", (double)from->guidance);
    if (from->guidance_rule > SUMI_GUIDANCE_MODEL && from->guidance_rule <= SUMI_GUIDANCE_NORM_RESCALE)
        put(&out, ", Guidance rule: %s", s_rules[from->guidance_rule]);
    if (from->reference_count > 0) put(&out, ", References: %d", from->reference_count);
    if (from->loras && from->loras[0]) put_value(&out, "Lora", from->loras);
    if (from->controls && from->controls[0]) put_value(&out, "Control nets", from->controls);
    put(&out, ", Version: sumi %d.%d.%d", SUMI_VERSION_MAJOR, SUMI_VERSION_MINOR, SUMI_VERSION_PATCH);
    return out.used;
}

// ---- Reading --------------------------------------------------------------------------------------------------------

static bool same_word(const char* a, const char* b)
{
    for (; *a && tolower((unsigned char)*a) == tolower((unsigned char)*b); a++) b++;
    return *a == *b;
}

// The last line that begins with "Steps:"; NULL: there are no settings.
static const char* find_settings(const char* text)
{
    const char* found = NULL;
    for (const char* line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, "Steps:", 6) == 0) found = line;
    }
    return found;
}

static const char* find_negative(const char* text, const char* end)
{
    static const char s_label[] = "Negative prompt:";
    for (const char* line = text; line && line < end; line = memchr(line, '\n', (size_t)(end - line))) {
        if (*line == '\n') line++;
        if ((size_t)(end - line) >= sizeof s_label - 1 && memcmp(line, s_label, sizeof s_label - 1) == 0) return line;
    }
    return NULL;
}

// Copies a text without the blanks around it to *into, which moves behind its zero. NULL: nothing is left.
static const char* copy_trimmed(char** into, const char* begin, const char* end)
{
    while (begin < end && isspace((unsigned char)*begin)) begin++;
    while (end > begin && isspace((unsigned char)end[-1])) end--;
    if (begin == end) return NULL;
    char* copy = *into;
    memcpy(copy, begin, (size_t)(end - begin));
    copy[end - begin] = 0;
    *into += end - begin + 1;
    return copy;
}

// Reads a value, in quotes or up to the next comma, into `value` and returns where it ends.
static const char* read_value(const char* at, char* value)
{
    while (*at == ' ') at++;
    if (*at == '"') {
        for (at++; *at && *at != '"'; at++) {
            if (*at == '\\' && at[1]) {
                at++;
                *value++ = *at == 'n' ? '\n' : *at;
            } else {
                *value++ = *at;
            }
        }
        while (*at && *at != ',' && *at != '\n') at++;
    } else {
        while (*at && *at != ',' && *at != '\n') *value++ = *at++;
        while (value[-1] == ' ') value--; // the byte before the value is the zero of the key
    }
    *value = 0;
    return at;
}

static int32_t read_count(const char* value)
{
    const long number = strtol(value, NULL, 10);
    return number > 0 && number < INT32_MAX ? (int32_t)number : 0;
}

static float read_scale(const char* value)
{
    char* end;
    const float number = strtof(value, &end);
    return end != value && number >= 0.0f && number <= 1000.0f ? number : -1.0f;
}

static void read_seed(const char* value, parameters* out)
{
    char* end;
    if (!isdigit((unsigned char)*value)) return;
    out->seed = strtoull(value, &end, 10);
    out->has_seed = true;
}

static void read_size(const char* value, parameters* out)
{
    int width, height;
    if (sscanf(value, "%6dx%6d", &width, &height) != 2 || width < 1 || height < 1) return;
    out->width = width;
    out->height = height;
}

void parameters_write_step_cache(const parameters* from, char* into)
{
    if (from->step_cache_every > 0) snprintf(into, 24, "every:%d", from->step_cache_every);
    else if (from->step_cache_db > 0.0f) snprintf(into, 24, "auto:%g", (double)from->step_cache_db);
    else snprintf(into, 24, "%g", from->step_cache > 0.0f ? (double)from->step_cache : 0.0);
}

bool parameters_read_step_cache(const char* text, parameters* out)
{
    const bool is_auto = strncmp(text, "auto", 4) == 0, is_every = strncmp(text, "every:", 6) == 0;
    const char* number = text + (is_auto ? 4 : is_every ? 6 : 0);
    float value = PARAMETERS_STEP_CACHE_DB;
    if (!is_auto || *number != 0) {
        char* end;
        if (is_auto && *number++ != ':') return false;
        value = strtof(number, &end);
        if (end == number || *end != 0) return false;
    }
    // the limits of sumi_image_desc
    if (!(value >= (is_every ? 2.0f : 0.0f) && value <= (is_auto ? 99.0f : 10.0f))) return false;
    if (is_every && value != (float)(int32_t)value) return false;
    out->step_cache = !is_auto && !is_every ? value : 0.0f;
    out->step_cache_db = is_auto ? value : 0.0f;
    out->step_cache_every = is_every ? (int32_t)value : 0;
    return true;
}

static void read_setting(const char* key, const char* value, char** strings, parameters* out)
{
    if (same_word(key, "Steps")) out->step_count = read_count(value);
    else if (same_word(key, "CFG scale")) out->cfg_scale = read_scale(value);
    else if (same_word(key, "Guidance")) out->guidance = read_scale(value);
    else if (same_word(key, "Seed")) read_seed(value, out);
    else if (same_word(key, "Size")) read_size(value, out);
    else if (same_word(key, "Model")) out->model_name = copy_trimmed(strings, value, value + strlen(value));
    else if (same_word(key, "Lora")) out->loras = copy_trimmed(strings, value, value + strlen(value));
    else if (same_word(key, "Control nets")) out->controls = copy_trimmed(strings, value, value + strlen(value));
    else if (same_word(key, "Denoising strength")) out->strength = read_scale(value);
    else if (same_word(key, "References")) out->reference_count = read_count(value);
    else if (same_word(key, "RNG")) {
        out->noise = same_word(value, "CPU")   ? SUMI_NOISE_TORCH_CPU
                   : same_word(value, "GPU")   ? SUMI_NOISE_TORCH_CUDA
                   : same_word(value, "given") ? SUMI_NOISE_GIVEN
                                               : -1;
    } else if (same_word(key, "Shift")) {
        const float shift = read_scale(value);
        out->shift = shift > 0.0f ? shift : 0.0f;
    } else if (same_word(key, "Step cache")) {
        parameters_read_step_cache(value, out);
    } else if (same_word(key, "Sampler")) {
        for (int32_t i = SUMI_SOLVER_EULER; i <= SUMI_SOLVER_RES_MULTISTEP; i++) {
            if (same_word(value, parameters_solver_name((sumi_solver)i))) out->solver = i;
        }
    } else if (same_word(key, "Guidance rule")) {
        for (int32_t i = SUMI_GUIDANCE_MODEL + 1; i <= SUMI_GUIDANCE_NORM_RESCALE; i++) {
            if (same_word(value, s_rules[i])) out->guidance_rule = i;
        }
    }
}

// The block: the strings of `out`, which are no longer than the text, then room for one key and one value.
char* parameters_read(const char* text, parameters* out)
{
    *out = parameters_none();
    const size_t length = strlen(text);
    char* block = malloc(2 * length + 16);
    if (!block) return NULL;
    char* strings = block;
    char* const word = block + length + 8;
    const char* settings = find_settings(text);
    const char* end = settings ? settings : text + length;
    const char* negative = find_negative(text, end);
    out->prompt = copy_trimmed(&strings, text, negative ? negative : end);
    if (negative) out->negative = copy_trimmed(&strings, negative + strlen("Negative prompt:"), end);
    for (const char* at = settings; at && *at && *at != '\n';) {
        const size_t key_bytes = strcspn(at, ":,\n");
        if (at[key_bytes] == ':') {
            memcpy(word, at, key_bytes);
            word[key_bytes] = 0;
            char* value = word + key_bytes + 1;
            at = read_value(at + key_bytes + 1, value);
            read_setting(word, value, &strings, out);
        } else {
            at += key_bytes;
        }
        while (*at == ',' || *at == ' ') at++;
    }
    return block;
}
