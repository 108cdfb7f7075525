#include "files.h"
#include "inside.h"
#include "system.h"
#include "utf8.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SYSTEM_PRINTF(2, 3)
static bool fail(char* message, const char* format, ...)
{
    char raw[FILES_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(raw, sizeof raw, format, arguments);
    va_end(arguments);
    utf8_show(message, FILES_MESSAGE_BYTES, raw);
    return false;
}

typedef struct shown_text {
    struct shown_text* next;
    char text[];
} shown_text;

const char* shown(const char* text)
{
    static shown_text* s_copies; // which leak checkers find through this
    const size_t bytes = utf8_show(NULL, 0, text);
    if (bytes == strlen(text)) return text;
    shown_text* copy = malloc(sizeof *copy + bytes + 1);
    if (!copy) return "(no memory)";
    utf8_show(copy->text, bytes + 1, text);
    copy->next = s_copies;
    s_copies = copy;
    return copy->text;
}

// ---- Tensors --------------------------------------------------------------------------------------------------------

// Splits "FILE:NAME" at the last colon, unless the whole text is the path of a file.
static const char* split_source(const char* source, char* path, size_t capacity)
{
    const char* colon = strrchr(source, ':');
    if (!colon || sumi_path_is_file(source)) {
        snprintf(path, capacity, "%s", source);
        return NULL;
    }
    snprintf(path, capacity, "%.*s", (int)(colon - source), source);
    return colon + 1;
}

static bool convert(const sumi_tensor* from, file_tensor* tensor, const char* path, char* message)
{
    if (!sumi_dtype_is_number(from->dtype))
        return fail(message, "%s: %s is of type %s, which is no number", path, from->name,
                    sumi_dtype_get(from->dtype)->name);
    if (from->rank > 8)
        return fail(message, "%s: %s has %d dimensions, at most 8 are read", path, from->name, from->rank);
    tensor->rank = from->rank;
    tensor->count = 1;
    for (int32_t i = 0; i < from->rank; i++) {
        tensor->shape[i] = from->shape[i];
        tensor->count *= (size_t)from->shape[i];
    }
    tensor->values = malloc((tensor->count ? tensor->count : 1) * sizeof(float));
    if (!tensor->values)
        return fail(message, "%s: no memory for the %zu values of %s", path, tensor->count, from->name);
    sumi_dtype_to_float(from->dtype, from->data, tensor->values, tensor->count);
    return true;
}

bool tensor_read(const char* source, file_tensor* tensor, char* message)
{
    *tensor = (struct file_tensor){0};
    char path[1024];
    const char* name = split_source(source, path, sizeof path);
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_tensor_set set;
    sumi_tensor_set_init(&set, &heap, NULL);
    sumi_error error = {0};
    bool read = false;
    if (sumi_tensor_set_open(&set, path, &error) != SUMI_OK) {
        fail(message, "%s", error.text);
    } else if (!name && set.count != 1) {
        fail(message, "%s holds %zu tensors: say which one, %s:NAME", path, set.count, path);
    } else {
        const sumi_tensor* found = name ? sumi_tensor_find(&set, name) : &set.tensors[0];
        if (found) read = convert(found, tensor, path, message);
        else
            fail(message, "%s has no tensor \"%s\"; its first one is \"%s\"", path, name,
                 set.count ? set.tensors[0].name : "");
    }
    sumi_tensor_set_close(&set);
    return read;
}

bool tensor_write(const char* path, const char* name, const float* values, const int64_t* shape, int32_t rank,
                  char* message)
{
    sumi_tensor tensor = {.name = name, .dtype = SUMI_DTYPE_F32, .rank = rank, .data = values, .bytes = sizeof(float)};
    for (int32_t i = 0; i < rank; i++) {
        tensor.shape[i] = shape[i];
        tensor.bytes *= (uint64_t)shape[i];
    }
    uint64_t bytes = sumi_safetensors_write(&tensor, 1, NULL, 0, NULL, 0);
    void* image = malloc((size_t)bytes);
    if (!image) return fail(message, "cannot write %s: no memory", path);
    sumi_safetensors_write(&tensor, 1, NULL, 0, image, bytes);
    bool written = file_write(path, image, (size_t)bytes, message);
    free(image);
    return written;
}

// ---- Whole files ----------------------------------------------------------------------------------------------------

// The length of a pipe is not known before its end.
static bool read_stream(FILE* file, const char* name, size_t most_bytes, void** out_data, size_t* out_bytes,
                        char* message)
{
    char* data = NULL;
    size_t used = 0, capacity = 0;
    for (;;) {
        if (used == capacity) {
            capacity = capacity ? 2 * capacity : 1 << 16;
            char* more = realloc(data, capacity);
            if (!more) {
                fail(message, "cannot read %s: no memory for %zu bytes", name, capacity);
                break;
            }
            data = more;
        }
        const size_t count = fread(data + used, 1, capacity - used, file);
        used += count;
        if (used > most_bytes) {
            fail(message, "%s has more than the %zu bytes that are read", name, most_bytes);
            break;
        }
        if (count > 0) continue;
        if (ferror(file)) {
            fail(message, "cannot read %s: %s", name, strerror(errno));
            break;
        }
        *out_data = data;
        *out_bytes = used;
        return true;
    }
    free(data);
    return false;
}

bool file_read(const char* path, size_t most_bytes, void** out_data, size_t* out_bytes, char* message)
{
    *out_data = NULL;
    *out_bytes = 0;
    if (strcmp(path, "-") == 0) return read_stream(stdin, "standard input", most_bytes, out_data, out_bytes, message);
    FILE* file = system_open(path, "rb");
    if (!file) return fail(message, "cannot open %s: %s", path, strerror(errno));
    const bool is_read = read_stream(file, path, most_bytes, out_data, out_bytes, message);
    fclose(file);
    return is_read;
}

bool file_is_text(const void* data, size_t bytes)
{
    const unsigned char* text = data;
    for (size_t i = 0; i < bytes; i++) {
        if ((text[i] < ' ' && !strchr("\t\n\f\r", text[i])) || text[i] == 0 || text[i] == 0x7F) return false;
    }
    return bytes > 0;
}

// A device or a pipe cannot be replaced by moving a file to its path, so it is written in place.
void output_path(const char* path, char* into, size_t capacity)
{
    const system_kind kind = system_look_at(path);
    char target[1100];
    system_resolve_link(path, target, sizeof target);
    snprintf(into, capacity, "%s%s", target, kind == SYSTEM_NOTHING || kind == SYSTEM_FILE ? ".part" : "");
}

bool output_finish(const char* path, const char* written_path, bool written, char* message)
{
    char target[1100];
    system_resolve_link(path, target, sizeof target);
    if (strcmp(target, written_path) == 0) return written;
    if (written && system_move(written_path, target)) return true;
    if (written) fail(message, "cannot move %s to %s: %s", written_path, target, strerror(errno));
    system_remove(written_path);
    return false;
}

static bool write_bytes(FILE* file, const char* path, const void* data, size_t bytes, char* message)
{
    const bool written = fwrite(data, 1, bytes, file) == bytes && fflush(file) == 0;
    return written || fail(message, "cannot write %s: %s", path, strerror(errno));
}

bool file_write(const char* path, const void* data, size_t bytes, char* message)
{
    if (is_standard_output(path)) return write_bytes(stdout, "standard output", data, bytes, message);
    char part[1200];
    output_path(path, part, sizeof part);
    FILE* file = system_open(part, "wb");
    if (!file) return fail(message, "cannot write %s: %s", path, strerror(errno));
    bool written = write_bytes(file, path, data, bytes, message);
    if (fclose(file) != 0 && written) written = fail(message, "cannot write %s: %s", path, strerror(errno));
    return output_finish(path, part, written, message);
}

// ---- Output paths ---------------------------------------------------------------------------------------------------

bool path_cut_number(char* path, float* out, bool* out_has)
{
    char* colon = strrchr(path, ':');
    *out_has = colon && !strpbrk(colon, "/\\") && system_look_at(path) == SYSTEM_NOTHING;
    if (!*out_has) return true;
    char* end;
    *out = strtof(colon + 1, &end);
    const bool is_number = end != colon + 1 && *end == 0 && isfinite(*out);
    *out_has = is_number || colon != path + 1; // "C:depth.png" has a drive
    if (*out_has) *colon = 0;
    return is_number || !*out_has;
}

bool is_standard_output(const char* path) { return strcmp(path, "-") == 0; }

bool output_is_possible(const char* path, char* message)
{
    if (is_standard_output(path))
        return !system_is_terminal(stdout)
            || fail(message, "standard output is a terminal: send it to a file or a program, or name a file");
    if (system_look_at(path) == SYSTEM_FOLDER)
        return fail(message, "cannot write %s: it is a folder; name a file in it", path);
    char target[1100], folder[1100];
    if (!system_resolve_link(path, target, sizeof target))
        return fail(message, "cannot write %s: it is a link that leads to no file, or the path is too long", path);
    // Bytes of the folder with its separator, which is removed below, except for "/".
    const int length = (int)(system_file_name(target) - target);
    if (length == 0) snprintf(folder, sizeof folder, ".");
    else snprintf(folder, sizeof folder, "%.*s", length > 1 ? length - 1 : length, target);
    if (system_look_at(folder) != SYSTEM_FOLDER)
        return fail(message, "cannot write %s: there is no folder %s", path, folder);
    const system_kind kind = system_look_at(target);
    if (kind == SYSTEM_OTHER ? !system_can_write(target) : !system_can_write(folder))
        return fail(message, "cannot write %s: no permission in %s", path, folder);
    if (kind == SYSTEM_FILE && !system_can_write(target))
        return fail(message, "cannot write %s: the file is write-protected", path);
    return true;
}

// The place of the number in a file's name, "%d" or "%03d": where it begins, its bytes, its width. NULL: the name has
// no such place, or something else behind a %.
static const char* find_number(const char* path, size_t* out_bytes, int* out_width)
{
    const char* begin = strchr(system_file_name(path), '%');
    if (!begin) return NULL;
    const char* at = begin + 1;
    *out_width = 0;
    if (*at == '0') { // without the zero printf would fill the width with blanks
        while (*at >= '0' && *at <= '9' && *out_width < 10) *out_width = 10 * *out_width + *at++ - '0';
        if (*out_width < 1 || *out_width > 9) return NULL;
    }
    *out_bytes = (size_t)(at + 1 - begin);
    return *at == 'd' && !strchr(at, '%') ? begin : NULL;
}

bool numbered_path_is_possible(const char* path, char* message)
{
    size_t bytes;
    int width;
    return !strchr(system_file_name(path), '%') || find_number(path, &bytes, &width)
        || fail(message, "%s: a %% in an output's name is the place of its number, once, as %%d or as %%03d", path);
}

bool numbered_path(const char* path, int32_t number, int32_t count, char* into, size_t capacity)
{
    size_t place_bytes = 0;
    int width = 1, written;
    const char* place = find_number(path, &place_bytes, &width);
    if (!place && count == 1) {
        written = snprintf(into, capacity, "%s", path);
    } else if (place) {
        written = snprintf(into, capacity, "%.*s%0*d%s", (int)(place - path), path, width, number, place + place_bytes);
    } else {
        for (int32_t last = count - 1; last >= 10; last /= 10) width++;
        const char* dot = strrchr(system_file_name(path), '.');
        if (!dot) dot = path + strlen(path);
        written = snprintf(into, capacity, "%.*s-%0*d%s", (int)(dot - path), path, width, number, dot);
    }
    return written >= 0 && (size_t)written < capacity;
}
