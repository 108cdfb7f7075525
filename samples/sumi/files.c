#include "files.h"
#include "inside.h"
#include "system.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SYSTEM_PRINTF(2, 3)
static bool fail(char* message, const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, FILES_MESSAGE_BYTES, format, arguments);
    va_end(arguments);
    return false;
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

bool file_read(const char* path, void** out_data, size_t* out_bytes, char* message)
{
    *out_data = NULL;
    *out_bytes = 0;
    // The size is needed first, and a pipe has none; opening one might wait for ever.
    if (system_look_at(path) == SYSTEM_OTHER)
        return fail(message, "cannot read %s: it is a pipe or a device; name a file", path);
    FILE* file = system_open(path, "rb");
    if (!file) return fail(message, "cannot open %s: %s", path, strerror(errno));
    long bytes = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    bool read = false;
    if (bytes < 0 || fseek(file, 0, SEEK_SET) != 0) {
        fail(message, "cannot read %s: %s", path, strerror(errno));
    } else if (!(*out_data = malloc(bytes ? (size_t)bytes : 1))) {
        fail(message, "cannot read %s: no memory for %ld bytes", path, bytes);
    } else {
        read = fread(*out_data, 1, (size_t)bytes, file) == (size_t)bytes
            || fail(message, "cannot read %s: %s", path, strerror(errno));
        *out_bytes = (size_t)bytes;
    }
    fclose(file);
    if (!read) {
        free(*out_data);
        *out_data = NULL;
    }
    return read;
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

bool is_standard_output(const char* path) { return strcmp(path, "-") == 0; }

bool output_is_possible(const char* path, char* message)
{
    if (path[0] == 0) return fail(message, "the path of an output is empty: name a file");
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
    if (system_look_at(folder) == SYSTEM_NOTHING)
        return fail(message, "cannot write %s: there is no folder %s", path, folder);
    const system_kind kind = system_look_at(target);
    if (kind == SYSTEM_OTHER ? !system_can_write(target) : !system_can_write(folder))
        return fail(message, "cannot write %s: no permission in %s", path, folder);
    if (kind == SYSTEM_FILE && !system_can_write(target))
        return fail(message, "cannot write %s: the file is write-protected", path);
    return true;
}

void numbered_path(const char* path, int32_t number, char* into, size_t capacity)
{
    const char* dot = strrchr(system_file_name(path), '.');
    if (!dot) dot = path + strlen(path);
    snprintf(into, capacity, "%.*s-%d%s", (int)(dot - path), path, number, dot);
}
