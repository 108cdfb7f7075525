// Packs the compiled kernels ("images": PTX, and machine code) into a C file. kernels/build.sh runs it; it is not part of
// the library.
//
//     pack OUT.c { STEM TARGET PTX { TARGET=BINARY }... }...
//
// STEM: the source's name without .cu. TARGET: the compute capability of the PTX, 80, 89 or 90, and of machine code; 90
// is 9.0a.
//
// Images are compressed and written as arrays of uint64_t in this machine's byte order, in short lines. String literals
// and long lines exceed limits of compilers. An array of bytes takes a compiler three times as long.
//
// What is for 9.0a alone is compiled only without SUMI_WITHOUT_HOPPER, so one output serves both kinds of build.
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define MAX_KERNELS 4096

static struct {
    char* name;
    const char* stem;
} s_kernels[MAX_KERNELS];
static int s_kernel_count;

static void give_up(const char* reason, const char* name)
{
    fprintf(stderr, "pack: %s: %s\n", name, reason);
    exit(1);
}

// Reads the whole file and appends a zero byte, which *out_bytes does not count. The caller frees the result.
static unsigned char* read_file(const char* path, size_t* out_bytes)
{
    FILE* file = fopen(path, "rb");
    if (file == NULL) give_up("cannot be opened", path);
    size_t capacity = 1 << 20, bytes = 0, bytes_read;
    unsigned char* data = malloc(capacity);
    while (data != NULL && (bytes_read = fread(data + bytes, 1, capacity - bytes, file)) > 0) {
        bytes += bytes_read;
        if (bytes == capacity) {
            unsigned char* larger = realloc(data, capacity *= 2);
            if (larger == NULL) free(data);
            data = larger;
        }
    }
    if (data == NULL || ferror(file) || bytes == 0) give_up("cannot be read, or is empty", path);
    fclose(file);
    data[bytes] = 0;
    *out_bytes = bytes;
    return data;
}

// Writes the compressed data as array s_<name>_<index>. *out_packed: compressed bytes.
static void write_array(FILE* out, const char* name, int index, const unsigned char* data, size_t bytes,
                        size_t* out_packed)
{
    uLongf packed_bytes = compressBound((uLong)bytes);
    unsigned char* packed = calloc(packed_bytes / 8 + 1, 8);
    if (packed == NULL || compress2(packed, &packed_bytes, data, (uLong)bytes, 9) != Z_OK)
        give_up("cannot be compressed", name);
    fprintf(out, "static const uint64_t s_%s_%d[] = {", name, index);
    for (uLongf i = 0; i < packed_bytes; i += 8) {
        uint64_t word;
        memcpy(&word, packed + i, 8);
        fprintf(out, "%s0x%" PRIx64 ",", i % 64 == 0 ? "\n" : "", word);
    }
    fprintf(out, "\n};\n");
    free(packed);
    *out_packed = packed_bytes;
}

// Writes the names of the kernels, which follow ".entry" in PTX, as array s_kernels_<index>. Returns their number.
static int write_kernels(FILE* out, const char* stem, int index, const char* ptx)
{
    int count = 0;
    for (const char* next = ptx; (next = strstr(next, ".entry ")) != NULL;) {
        next += strlen(".entry ");
        size_t length = strcspn(next, "( \t\r\n");
        if (s_kernel_count == MAX_KERNELS) give_up("too many kernels: raise MAX_KERNELS", stem);
        char* name = strndup(next, length);
        if (name == NULL) give_up("no memory", stem);
        if (strncmp(name, "sumi_", 5) != 0)
            give_up("a kernel's name does not begin with sumi_ (is it extern \"C\"?)", name);
        for (int i = 0; i < s_kernel_count; i++) {
            if (strcmp(s_kernels[i].name, name) == 0) {
                fprintf(stderr, "pack: %s is a kernel of both %s and %s: names are for all devices' kernels together\n",
                        name, s_kernels[i].stem, stem);
                exit(1);
            }
        }
        s_kernels[s_kernel_count].name = name;
        s_kernels[s_kernel_count++].stem = stem;
        if (count++ == 0) fprintf(out, "static const char* const s_kernels_%d[] = {\n", index);
        fprintf(out, "\"%s\",\n", name);
    }
    if (count > 0) fprintf(out, "};\n");
    return count;
}

static void begin_hopper(FILE* out) { fprintf(out, "#ifndef SUMI_WITHOUT_HOPPER\n"); }
static void end_hopper(FILE* out) { fprintf(out, "#endif\n"); }

// Writes one image into both files. `name`: of its array. bytes: with the zero that ends PTX.
static void write_image(FILE* out, FILE* table, const char* stem, int target, bool is_binary, const char* name,
                        int index, const unsigned char* data, size_t bytes, int kernel_count)
{
    size_t packed;
    char kernels[32] = "NULL";
    if (kernel_count > 0) snprintf(kernels, sizeof kernels, "s_kernels_%d", index);
    write_array(out, name, index, data, bytes, &packed);
    fprintf(table, "    {\"%s\", %d, %s, (const unsigned char*)s_%s_%d, %zuu, %zuu, %s, %d},\n", stem, target,
            is_binary ? "true" : "false", name, index, packed, bytes, kernels, kernel_count);
}

// The PTX of a source and its machine code: arguments from STEM on. Returns how many of them it took.
static int write_source(FILE* out, FILE* table, int index, char** arguments, int* out_image_count)
{
    const char* stem = arguments[0];
    const int target = atoi(arguments[1]);
    size_t bytes;
    unsigned char* ptx = read_file(arguments[2], &bytes);
    if (target == 90) begin_hopper(out), begin_hopper(table);
    const int kernel_count = write_kernels(out, stem, index, (const char*)ptx);
    write_image(out, table, stem, target, false, "ptx", index, ptx, bytes + 1, kernel_count);
    free(ptx);
    int taken = 3;
    for (; arguments[taken] != NULL && strchr(arguments[taken], '=') != NULL; taken++) {
        char* path;
        char name[32];
        const int device = (int)strtol(arguments[taken], &path, 10);
        unsigned char* binary = read_file(path + 1, &bytes);
        const bool is_guarded = device == 90 && target != 90;
        snprintf(name, sizeof name, "binary_%d", device);
        if (is_guarded) begin_hopper(out), begin_hopper(table);
        write_image(out, table, stem, device, true, name, index, binary, bytes, kernel_count);
        if (is_guarded) end_hopper(out), end_hopper(table);
        free(binary);
    }
    if (target == 90) end_hopper(out), end_hopper(table);
    *out_image_count += taken - 2;
    return taken;
}

int main(int argc, char** argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: pack OUT.c { STEM TARGET PTX { TARGET=BINARY }... }...\n");
        return 2;
    }
    FILE* out = fopen(argv[1], "w");
    FILE* table = tmpfile();
    if (out == NULL || table == NULL) give_up("cannot be written", argv[1]);
    fprintf(out, "// Generated from kernels/*.cu by kernels/build.sh. Do not edit.\n#include \"cuda/modules.h\"\n");
    int image_count = 0;
    for (int index = 0, at = 2; at < argc; index++) {
        if (at + 3 > argc) give_up("STEM TARGET PTX: something is missing", argv[at]);
        at += write_source(out, table, index, &argv[at], &image_count);
    }
    fprintf(out, "const sumi_cuda_image sumi_cuda_images[] = {\n");
    if (image_count == 0) fprintf(out, "    {NULL, 0, false, NULL, 0u, 0u, NULL, 0},\n");
    rewind(table);
    for (int c; (c = fgetc(table)) != EOF;) fputc(c, out);
    fclose(table);
    // The compiler counts the rows, because SUMI_WITHOUT_HOPPER may leave some out. C allows no empty array, so an
    // empty table has one row, and its count is 0.
    fprintf(out, "};\nconst int32_t sumi_cuda_image_count = ");
    if (image_count == 0) fprintf(out, "0;\n");
    else fprintf(out, "(int32_t)(sizeof sumi_cuda_images / sizeof *sumi_cuda_images);\n");
    if (ferror(out) || fclose(out) != 0) give_up("cannot be written", argv[1]);
    for (int i = 0; i < s_kernel_count; i++) free(s_kernels[i].name);
    return 0;
}
