// What tests/test_cli.sh, tests/test_viewer.sh and others ask about files that programs wrote. It knows safetensors by
// itself, without the library under test, and pictures as the samples read them.
//
//     cli_support tensors A.safetensors NAME B.safetensors NAME LIMIT     relative L2 of A against the last values of B (B may hold a step more); a minus before B's name turns its signs
//     cli_support shape A.safetensors NAME                                "[1, 16, 6, 8]"
//     cli_support pictures A.png B.png LIMIT                              largest difference of two pictures of one size
//     cli_support size A.png                                              "64x48"
//     cli_support parameters A.png                                        the text about how it was made
//     cli_support format A                                                "PNG", "JPEG" or "WebP", by the file's content
//     cli_support json FILE                                               whether it is one JSON value
//     cli_support pattern A.png N                                         whether it is the N-th picture of tests/viewer_gl.c
//     cli_support paint WIDTH HEIGHT OUT.png                              makes a picture without two equal regions
//     cli_support part IN.png X Y WIDTH HEIGHT OUT.png                    a part of a picture
//     cli_support edges IN.png OUT.png                                    the edges of a picture (samples/shared/edges.h)
//     cli_support merge OUT.safetensors [PREFIX=IN.safetensors | NAME=@FILE]...  all tensors behind their prefixes, files' bytes as tensors
//     cli_support screen Xvfb_screen0 OUT.png                             a virtual screen's memory as a picture; prints "1440x900, 5311 colours"
#include "edges.h"
#include "files/json.h"
#include "picture.h"
#include "system.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct floats {
    char* file;
    const char* shape; // of the header: "[1,16,6,8]..."
    const char* data;  // unaligned
    size_t count;
} floats;

static int complain(const char* path, const char* what)
{
    fprintf(stderr, "%s: %s\n", path, what);
    return 1;
}

static int read_floats(const char* path, const char* name, floats* out)
{
    *out = (floats){0};
    FILE* file = fopen(path, "rb");
    if (!file) return complain(path, "cannot open");
    fseek(file, 0, SEEK_END);
    long bytes = ftell(file);
    rewind(file);
    out->file = calloc((size_t)bytes + 1, 1);
    if (bytes < 16 || fread(out->file, 1, (size_t)bytes, file) != (size_t)bytes) bytes = 0;
    fclose(file);
    if (!bytes) return complain(path, "cannot read");
    unsigned long header = 0, begin, end;
    for (int i = 7; i >= 0; i--) header = header << 8 | (unsigned char)out->file[i];
    char key[256];
    snprintf(key, sizeof key, "\"%s\":", name);
    const char* at = strstr(out->file + 8, key);
    const char* offsets = at ? strstr(at, "\"data_offsets\":") : NULL;
    out->shape = at ? strstr(at, "\"shape\":") : NULL;
    if (!offsets || !out->shape || sscanf(offsets + 15, " [ %lu , %lu ]", &begin, &end) != 2
        || 8 + header + end > (unsigned long)bytes)
        return complain(path, "no such tensor");
    out->shape += 8;
    out->data = out->file + 8 + header + begin;
    out->count = (end - begin) / 4;
    return 0;
}

static float value_at(const floats* from, size_t index)
{
    float value;
    memcpy(&value, from->data + 4 * index, 4);
    return value;
}

static int compare_tensors(char** argv)
{
    floats a, b;
    const double sign = argv[3][0] == '-' ? -1.0 : 1.0;
    if (read_floats(argv[0], argv[1], &a) || read_floats(argv[2], argv[3] + (sign < 0.0), &b)) return 1;
    if (a.count == 0 || b.count < a.count) return complain(argv[0], "other number of values");
    double difference = 0.0, norm = 0.0;
    for (size_t i = 0; i < a.count; i++) {
        double want = sign * (double)value_at(&b, b.count - a.count + i), got = (double)value_at(&a, i);
        difference += (got - want) * (got - want);
        norm += want * want;
    }
    double relative = sqrt(difference / norm), limit = atof(argv[4]);
    printf("relative L2 %.3g, limit %g\n", relative, limit);
    free(a.file);
    free(b.file);
    return relative <= limit ? 0 : 1; // NaN is over every limit
}

static int print_shape(char** argv)
{
    floats a;
    if (read_floats(argv[0], argv[1], &a)) return 1;
    printf("%.*s\n", (int)(strcspn(a.shape, "]") + 1), a.shape);
    free(a.file);
    return 0;
}

static int compare_pictures(char** argv)
{
    picture_file a, b;
    char message[PICTURE_MESSAGE_BYTES];
    if (!picture_read(argv[0], 3, &a, message)) return complain(argv[0], message);
    if (!picture_read(argv[1], 3, &b, message)) return complain(argv[1], message);
    if (a.width != b.width || a.height != b.height) return complain(argv[0], "another size");
    int most = 0;
    for (size_t i = 0; i < (size_t)a.width * (size_t)a.height * 3; i++) {
        int difference = abs(a.pixels[i] - b.pixels[i]);
        if (difference > most) most = difference;
    }
    printf("largest difference %d, limit %s\n", most, argv[2]);
    picture_free(&a);
    picture_free(&b);
    return most <= atoi(argv[2]) ? 0 : 1;
}

static int check_json(const char* path)
{
    FILE* file = fopen(path, "rb");
    if (!file) return complain(path, "cannot open");
    char* text = malloc(1 << 22);
    const size_t bytes = fread(text, 1, 1 << 22, file);
    fclose(file);
    sumi_json json;
    sumi_error error = {0};
    sumi_json_begin(&json, text, bytes, &error);
    sumi_json_skip(&json);
    const bool is_json = sumi_json_end(&json) == SUMI_OK;
    free(text);
    return is_json ? 0 : complain(path, error.text);
}

static int print_picture(const char* what, const char* path)
{
    picture_file a;
    char message[PICTURE_MESSAGE_BYTES];
    static const char* const s_formats[] = {"unknown", "PNG", "JPEG", "WebP"};
    const bool is_raw = strcmp(what, "pixels") == 0; // RGBA8
    if (!picture_read(path, is_raw ? 4 : 0, &a, message)) return complain(path, message);
    if (is_raw) fwrite(a.pixels, 4, (size_t)a.width * (size_t)a.height, stdout);
    else if (strcmp(what, "format") == 0) puts(s_formats[a.format]);
    else if (strcmp(what, "size") == 0) printf("%dx%d\n", a.width, a.height);
    else printf("%s\n", a.parameters ? a.parameters : "(none)");
    picture_free(&a);
    return 0;
}

static unsigned long big_endian(const unsigned char* at)
{
    return (unsigned long)at[0] << 24 | (unsigned long)at[1] << 16 | (unsigned long)at[2] << 8 | at[3];
}

// X's window dump, of 24 bits per pixel in four bytes, blue first, as Xvfb keeps it on a little-endian machine.
static int convert_screen(const char* from, const char* to)
{
    FILE* file = fopen(from, "rb");
    if (!file) return complain(from, "cannot open");
    unsigned char header[100];
    if (fread(header, 1, sizeof header, file) != sizeof header) return complain(from, "cannot read");
    unsigned long width = big_endian(header + 16), height = big_endian(header + 20),
                  row_bytes = big_endian(header + 48);
    unsigned long begin = big_endian(header) + 12 * big_endian(header + 76);
    if (width > 8192 || height > 8192 || row_bytes < 4 * width) return complain(from, "is no window dump");
    unsigned char *row = malloc(row_bytes), *pixels = malloc(3 * width * height + 1), *seen = calloc(1 << 21, 1);
    fseek(file, (long)begin, SEEK_SET);
    unsigned long colours = 0;
    for (unsigned long y = 0; y < height && fread(row, 1, row_bytes, file) == row_bytes; y++) {
        for (unsigned long x = 0; x < width; x++) {
            const unsigned char* pixel = row + 4 * x;
            unsigned long value = (unsigned long)pixel[2] << 16 | (unsigned long)pixel[1] << 8 | pixel[0];
            if (!(seen[value >> 3] >> (value & 7) & 1)) colours++;
            seen[value >> 3] |= (unsigned char)(1u << (value & 7));
            for (int c = 0; c < 3; c++) pixels[3 * (y * width + x) + (unsigned long)c] = pixel[2 - c];
        }
    }
    fclose(file);
    char message[PICTURE_MESSAGE_BYTES];
    bool written =
        picture_write(to, &(picture_source){pixels, (int32_t)width, (int32_t)height, 3 * width, 3, NULL, 0}, message);
    free(row);
    free(pixels);
    free(seen);
    if (!written) return complain(to, message);
    printf("%lux%lu, %lu colours\n", width, height, colours);
    return 0;
}

static int check_pattern(const char* path, int number)
{
    picture_file a;
    char message[PICTURE_MESSAGE_BYTES];
    if (!picture_read(path, 3, &a, message)) return complain(path, message);
    size_t wrong = 0;
    for (int i = 0; i < a.width * a.height; i++) {
        const unsigned char* pixel = a.pixels + (size_t)i * 3;
        wrong += pixel[0] != (i % a.width & 255) || pixel[1] != (i / a.width & 255) || pixel[2] != number;
    }
    printf("%dx%d, %zu pixels are not those of picture %d\n", a.width, a.height, wrong, number);
    picture_free(&a);
    return wrong == 0 ? 0 : 1;
}

static int paint(char** argv)
{
    const int width = atoi(argv[0]), height = atoi(argv[1]);
    unsigned char* pixels = malloc((size_t)width * (size_t)height * 3);
    char message[PICTURE_MESSAGE_BYTES];
    for (int i = 0; i < width * height; i++) {
        const int x = i % width, y = i / width;
        pixels[3 * i] = (unsigned char)(255 * x / width);
        pixels[3 * i + 1] = (unsigned char)(255 * y / height);
        pixels[3 * i + 2] = (unsigned char)((x / 5 + y / 3) % 2 * 255);
    }
    const bool is_written =
        picture_write(argv[2], &(picture_source){pixels, width, height, 3 * (size_t)width, 3, NULL, 0}, message);
    free(pixels);
    return is_written ? 0 : complain(argv[2], message);
}

static int write_part(char** argv)
{
    picture_file a;
    char message[PICTURE_MESSAGE_BYTES];
    const int x = atoi(argv[1]), y = atoi(argv[2]), width = atoi(argv[3]), height = atoi(argv[4]);
    if (!picture_read(argv[0], 3, &a, message)) return complain(argv[0], message);
    if (x + width > a.width || y + height > a.height) return complain(argv[0], "is smaller");
    const unsigned char* pixels = a.pixels + 3 * ((size_t)y * (size_t)a.width + (size_t)x);
    const bool is_written =
        picture_write(argv[5], &(picture_source){pixels, width, height, 3 * (size_t)a.width, 3, NULL, 0}, message);
    picture_free(&a);
    return is_written ? 0 : complain(argv[5], message);
}

static int write_edges(char** argv)
{
    picture_file a;
    char message[PICTURE_MESSAGE_BYTES];
    if (!picture_read(argv[0], 3, &a, message)) return complain(argv[0], message);
    const size_t count = (size_t)a.width * (size_t)a.height;
    unsigned char *edges = malloc(count), *grey = malloc(3 * count);
    bool is_written = edges_find(a.pixels, a.width, a.height, 3, edges);
    for (size_t i = 0; i < 3 * count; i++) grey[i] = edges[i / 3];
    is_written &=
        picture_write(argv[1], &(picture_source){grey, a.width, a.height, 3 * (size_t)a.width, 3, NULL, 0}, message);
    free(edges);
    free(grey);
    picture_free(&a);
    return is_written ? 0 : complain(argv[1], message);
}

// ---- Files of several parts -----------------------------------------------------------------------------------------

typedef struct merged {
    char* header;
    size_t header_bytes;
    char* data;
    size_t data_bytes;
} merged;

static void add_text(merged* out, const char* text, size_t bytes)
{
    out->header = realloc(out->header, out->header_bytes + bytes + 1);
    memcpy(out->header + out->header_bytes, text, bytes);
    out->header[out->header_bytes += bytes] = 0;
}

static void add_data(merged* out, const char* data, size_t bytes)
{
    out->data = realloc(out->data, out->data_bytes + bytes + 1);
    memcpy(out->data + out->data_bytes, data, bytes);
    out->data_bytes += bytes;
}

// {"name":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},...} with the prefix, and offsets behind what is there
static int add_tensors(merged* out, const char* path, const char* file, const char* prefix)
{
    const size_t base = out->data_bytes;
    unsigned long header = 0, begin, end, last = 0;
    for (int i = 7; i >= 0; i--) header = header << 8 | (unsigned char)file[i];
    const char *at = file + 8, *stop = file + 8 + header;
    while ((at = memchr(at, '"', (size_t)(stop - at))) != NULL) {
        const char *name = at + 1, *quote = strchr(name, '"'), *close = strchr(quote, '}');
        const char* offsets = strstr(quote, "\"data_offsets\":[");
        const int is_metadata = strncmp(name, "__metadata__", 12) == 0;
        at = close + 1;
        if (is_metadata) continue;
        if (offsets == NULL || offsets > close || sscanf(offsets + 16, "%lu,%lu", &begin, &end) != 2)
            return complain(path, "a header that this program does not understand");
        char text[512];
        snprintf(text, sizeof text, "%s\"%s%.*s\"%.*s\"data_offsets\":[%zu,%zu]}", out->header_bytes > 1 ? "," : "",
                 prefix, (int)(quote - name), name, (int)(offsets - quote - 1), quote + 1, base + begin, base + end);
        add_text(out, text, strlen(text));
        last = end > last ? end : last;
    }
    add_data(out, stop, last);
    return 0;
}

static int merge(const char* to, char** parts, int count)
{
    merged out = {0};
    add_text(&out, "{", 1);
    for (int i = 0; i < count; i++) {
        char* path = strchr(parts[i], '=');
        if (!path) return complain(parts[i], "no =");
        *path++ = 0;
        const int is_bytes = *path == '@';
        FILE* from = fopen(path + is_bytes, "rb");
        if (!from) return complain(path, "cannot open");
        char* file = calloc(1, 4 << 20);
        const size_t bytes = fread(file, 1, (4 << 20) - 1, from);
        fclose(from);
        if (is_bytes) {
            char text[256];
            snprintf(text, sizeof text, "%s\"%s\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]}",
                     out.header_bytes > 1 ? "," : "", parts[i], bytes, out.data_bytes, out.data_bytes + bytes);
            add_text(&out, text, strlen(text));
            add_data(&out, file, bytes);
        } else if (add_tensors(&out, path, file, parts[i])) {
            return 1;
        }
        free(file);
    }
    add_text(&out, "}", 1);
    FILE* file = fopen(to, "wb");
    if (!file) return complain(to, "cannot open");
    for (int i = 0; i < 8; i++) fputc((int)(out.header_bytes >> (8 * i) & 255), file);
    const size_t written = fwrite(out.header, 1, out.header_bytes, file) + fwrite(out.data, 1, out.data_bytes, file);
    free(out.header);
    free(out.data);
    return fclose(file) != 0 || written != out.header_bytes + out.data_bytes ? complain(to, "cannot write") : 0;
}

int main(int argc, char** argv)
{
    argv = system_begin(argc, argv);
    if (argc > 3 && strcmp(argv[1], "merge") == 0) return merge(argv[2], argv + 3, argc - 3);
    if (argc == 8 && strcmp(argv[1], "part") == 0) return write_part(argv + 2);
    if (argc == 4 && strcmp(argv[1], "edges") == 0) return write_edges(argv + 2);
    if (argc == 5 && strcmp(argv[1], "paint") == 0) return paint(argv + 2);
    if (argc == 4 && strcmp(argv[1], "screen") == 0) return convert_screen(argv[2], argv[3]);
    if (argc == 7 && strcmp(argv[1], "tensors") == 0) return compare_tensors(argv + 2);
    if (argc == 4 && strcmp(argv[1], "shape") == 0) return print_shape(argv + 2);
    if (argc == 5 && strcmp(argv[1], "pictures") == 0) return compare_pictures(argv + 2);
    if (argc == 4 && strcmp(argv[1], "pattern") == 0) return check_pattern(argv[2], atoi(argv[3]));
    if (argc == 3 && strcmp(argv[1], "json") == 0) return check_json(argv[2]);
    if (argc == 3) return print_picture(argv[1], argv[2]);
    return complain("cli_support", "wrong arguments");
}
