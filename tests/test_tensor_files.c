// The formats of tensors: safetensors, its index and GGUF. The golden files get their verdicts; every truncation, a
// file that is something else and one that is not there are results. Golden files lie in tests/golden/common/files.
#include "at_once.h"
#include "files/checkpoint.h"
#include "files/json.h"
#include "memory_files.h"

static unsigned char from_hex(char c) { return (unsigned char)(c <= '9' ? c - '0' : c - 'a' + 10); }

static void check_entry(const sumi_tensor_set* set, const char* name, sumi_json* json)
{
    sumi_json_text key, text;
    const sumi_tensor* tensor = sumi_tensor_find(set, name);
    if (tensor == NULL) {
        printf("  no tensor %.80s\n", name);
        t_errors++;
        sumi_json_skip(json);
        return;
    }
    CHECK_TEXT(tensor->name, name);
    sumi_json_object(json);
    while (sumi_json_key(json, &key)) {
        if (sumi_json_is(&key, "dtype") || sumi_json_is(&key, "type")) {
            sumi_json_string(json, &text);
            CHECK_TEXT(sumi_dtype_get(tensor->dtype)->name, text_of(&text));
        } else if (sumi_json_is(&key, "shape")) {
            int32_t rank = 0;
            sumi_json_array(json);
            while (sumi_json_item(json)) {
                const int64_t extent = sumi_json_integer(json);
                CHECK(rank < tensor->rank && tensor->shape[rank] == extent);
                rank++;
            }
            CHECK_NUMBER(tensor->rank, rank);
        } else if (sumi_json_is(&key, "bytes") && sumi_json_peek(json) == SUMI_JSON_STRING) {
            sumi_json_string(json, &text);
            CHECK_NUMBER(tensor->bytes, text.bytes / 2);
            bool same = true;
            for (size_t i = 0; i < text.bytes / 2 && i < tensor->bytes; i++) {
                same = same
                    && ((const unsigned char*)tensor->data)[i]
                           == (unsigned char)(from_hex(text.data[2 * i]) << 4 | from_hex(text.data[2 * i + 1]));
            }
            CHECK(same);
        } else {
            sumi_json_skip(json);
        }
    }
}

typedef struct golden_case {
    char file[256], verdict[16];
    const char *metadata, *tensors, *end;
    int64_t tensor_count;
} golden_case;

// The next entry of a manifest: the objects for metadata and tensors are kept as text, to be read once the file is
// open.
static void read_case(sumi_json* json, golden_case* c)
{
    sumi_json_text key, text;
    memset(c, 0, sizeof *c);
    c->tensor_count = -1;
    c->end = json->end;
    sumi_json_object(json);
    while (sumi_json_key(json, &key)) {
        if (sumi_json_is(&key, "file") || sumi_json_is(&key, "folder")) {
            sumi_json_string(json, &text);
            snprintf(c->file, sizeof c->file, "%s", text_of(&text));
        } else if (sumi_json_is(&key, "sumi") || sumi_json_is(&key, "expect")) {
            sumi_json_string(json, &text);
            snprintf(c->verdict, sizeof c->verdict, "%s", text_of(&text));
        } else if (sumi_json_is(&key, "metadata") && sumi_json_peek(json) == SUMI_JSON_OBJECT) {
            c->metadata = json->at;
            sumi_json_skip(json);
        } else if (sumi_json_is(&key, "tensors")) {
            sumi_json_peek(json);
            c->tensors = json->at;
            sumi_json_skip(json);
        } else if (sumi_json_is(&key, "tensor_count")) {
            c->tensor_count = sumi_json_integer(json);
        } else {
            sumi_json_skip(json);
        }
    }
}

// True when the verdict is met. A rejection must name the file and give a reason.
static bool check_verdict(const golden_case* c, sumi_result result, const sumi_error* error, const char* named)
{
    const bool accepted = result == SUMI_OK;
    bool good = strcmp(c->verdict, "accept") == 0 ? accepted : strcmp(c->verdict, "reject") == 0 ? !accepted : true;
    if (!good) {
        printf("  %s: want %s, got result %d %s\n", c->file, c->verdict, (int)result, error->text);
    } else if (!accepted
               && (error->result != result || strstr(error->text, named) == NULL
                   || strlen(error->text) < strlen(named) + 8 || result == SUMI_INTERNAL)) {
        printf("  %s: result %d, poor message \"%s\"\n", c->file, (int)result, error->text);
        good = false;
    }
    t_errors += !good;
    return good;
}

static void check_contents(const golden_case* c, const sumi_tensor_set* set)
{
    sumi_json json;
    sumi_json_text key, text;
    if (c->tensor_count >= 0) CHECK_NUMBER(set->count, c->tensor_count);
    if (c->tensors != NULL) {
        size_t count = 0;
        sumi_json_begin(&json, c->tensors, (size_t)(c->end - c->tensors), NULL);
        sumi_json_object(&json);
        while (sumi_json_key(&json, &key)) {
            count++;
            check_entry(set, text_of(&key), &json);
        }
        CHECK_NUMBER(set->count, count);
    }
    if (c->metadata != NULL) {
        sumi_json_begin(&json, c->metadata, (size_t)(c->end - c->metadata), NULL);
        sumi_json_object(&json);
        while (sumi_json_key(&json, &key)) {
            const char* found = sumi_metadata_find(set, text_of(&key));
            if (sumi_json_peek(&json) == SUMI_JSON_STRING) {
                sumi_json_string(&json, &text);
                CHECK_TEXT(found != NULL ? found : "(none)", text_of(&text));
                continue;
            }
            sumi_json_text inner; // GGUF: {"type": ..., "value": ...}
            char type[32] = "";
            sumi_json_object(&json);
            while (sumi_json_key(&json, &inner)) {
                if (sumi_json_is(&inner, "type")) {
                    sumi_json_string(&json, &text);
                    snprintf(type, sizeof type, "%s", text_of(&text));
                } else if (strncmp(type, "ARRAY", 5) == 0) {
                    CHECK((found != NULL) == sumi_json_is(&key, "comfy.gguf.orig_shape.x"));
                    sumi_json_skip(&json);
                } else if (strcmp(type, "STRING") == 0) {
                    sumi_json_string(&json, &text);
                    CHECK_TEXT(found != NULL ? found : "(none)", text_of(&text));
                } else if (strcmp(type, "BOOL") == 0) {
                    CHECK_TEXT(found != NULL ? found : "(none)", sumi_json_bool(&json) ? "true" : "false");
                } else if (strncmp(type, "FLOAT", 5) == 0) {
                    const double want = sumi_json_number(&json), got = found != NULL ? strtod(found, NULL) : -1;
                    CHECK(strcmp(type, "FLOAT32") == 0 ? (float)got == (float)want : got == want);
                } else {
                    sumi_json_peek(&json);
                    const char* begin = json.at;
                    sumi_json_skip(&json);
                    CHECK(found != NULL && strlen(found) == (size_t)(json.at - begin)
                          && memcmp(found, begin, strlen(found)) == 0);
                }
            }
        }
    }
}

// Runs a manifest; entry_files: where its list is. Files are read through sumi_tensor_set_open and from a tight copy.
static void run_manifest(const char* folder, bool wrapped, int want_count)
{
    char path[512];
    size_t bytes;
    snprintf(path, sizeof path, GOLDEN "%s/manifest.json", folder);
    unsigned char* manifest = read_whole(path, &bytes);
    CHECK(manifest != NULL);
    if (manifest == NULL) return;
    sumi_json json;
    sumi_json_text key;
    sumi_error manifest_error = {0};
    sumi_json_begin(&json, manifest, bytes, &manifest_error);
    if (wrapped) {
        sumi_json_object(&json);
        while (sumi_json_key(&json, &key) && !sumi_json_is(&key, "files")) sumi_json_skip(&json);
    }
    int count = 0;
    sumi_json_array(&json);
    while (sumi_json_item(&json)) {
        golden_case c;
        read_case(&json, &c);
        count++;
        snprintf(path, sizeof path, GOLDEN "%s/%s", folder, c.file);
        const int before = t_errors;
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        const sumi_result result = sumi_tensor_set_open(&set, path, &error);
        if (check_verdict(&c, result, &error, path) && result == SUMI_OK) check_contents(&c, &set);
        sumi_tensor_set_close(&set);
        // the same bytes without anything behind them
        size_t file_bytes;
        unsigned char* file = read_whole(path, &file_bytes);
        CHECK(file != NULL);
        unsigned char* copy = exact_copy(file, file_bytes);
        error = (sumi_error){0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        const sumi_result again = file_bytes >= 4 && memcmp(copy, "GGUF", 4) == 0
                                    ? sumi_gguf_read(&set, copy, file_bytes, "from memory", &error)
                                    : sumi_safetensors_read(&set, copy, file_bytes, "from memory", &error);
        CHECK_NUMBER(again, result);
        sumi_tensor_set_close(&set);
        free(copy);
        free(file);
        if (t_errors != before) printf("  in %s\n", path);
    }
    CHECK_NUMBER(json.failed, 0);
    CHECK(count >= want_count);
    free(manifest);
}

TEST(safetensors_golden_files_get_their_verdicts) { run_manifest("safetensors", true, 160); }
TEST(gguf_golden_files_get_their_verdicts) { run_manifest("gguf", false, 75); }

TEST(index_golden_folders_get_their_verdicts)
{
    size_t bytes;
    unsigned char* manifest = read_whole(GOLDEN "index/manifest.json", &bytes);
    CHECK(manifest != NULL);
    if (manifest == NULL) return;
    sumi_json json;
    int count = 0;
    sumi_json_begin(&json, manifest, bytes, NULL);
    sumi_json_array(&json);
    while (sumi_json_item(&json)) {
        golden_case c;
        char path[512];
        read_case(&json, &c);
        count++;
        snprintf(path, sizeof path, GOLDEN "index/%s", c.file);
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        const sumi_result result = open_tensor_folder(&set, path, "model", &error);
        if (check_verdict(&c, result, &error, path) && result == SUMI_OK) {
            CHECK(sumi_tensor_find(&set, "a.weight") != NULL || set.count == 0);
            CHECK(sumi_tensor_find(&set, "a") == NULL && sumi_tensor_find(&set, "a.weight.") == NULL);
        }
        sumi_tensor_set_close(&set);
    }
    CHECK_NUMBER(json.failed, 0);
    CHECK(count >= 31);
    free(manifest);
}

TEST(gguf_values_equal_the_reference_exactly)
{
    static const char* const s_files[] = {"every_type", "block_types", "dims", "metadata", "alignment_64"};
    sumi_tensor_set expected = {0};
    sumi_error error = {0};
    sumi_tensor_set_init(&expected, &s_heap, NULL);
    CHECK_NUMBER(sumi_tensor_set_open(&expected, GOLDEN "gguf/expected.safetensors", &error), SUMI_OK);
    size_t compared = 0;
    for (size_t f = 0; f < sizeof s_files / sizeof *s_files; f++) {
        char path[256];
        snprintf(path, sizeof path, GOLDEN "gguf/%s.gguf", s_files[f]);
        sumi_tensor_set set = {0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        CHECK_NUMBER(sumi_tensor_set_open(&set, path, &error), SUMI_OK);
        for (size_t i = 0; i < set.count; i++) {
            char prefix[64];
            snprintf(prefix, sizeof prefix, "%s.", s_files[f]);
            const sumi_tensor* want = sumi_tensor_find_prefixed(&expected, prefix, set.tensors[i].name);
            CHECK(want != NULL);
            if (want == NULL) continue;
            const size_t count = (size_t)want->bytes / 4;
            float *got = malloc(count * 4 + 1), *expect = malloc(count * 4);
            memcpy(expect, want->data, count * 4);
            CHECK_NUMBER(sumi_dtype_bytes(set.tensors[i].dtype, count), set.tensors[i].bytes);
            sumi_dtype_to_float(set.tensors[i].dtype, set.tensors[i].data, got, count);
            size_t wrong = 0;
            for (size_t k = 0; k < count; k++) wrong += memcmp(&got[k], &expect[k], sizeof *got) != 0;
            if (wrong > 0) {
                printf("  %s: %zu of %zu values differ, first %.9g, want %.9g\n", set.tensors[i].name, wrong, count,
                       (double)got[0], (double)expect[0]);
                t_errors++;
            }
            free(got);
            free(expect);
            compared++;
        }
        sumi_tensor_set_close(&set);
    }
    CHECK_NUMBER(compared, expected.count);
    sumi_tensor_set_close(&expected);
}

TEST(gguf_original_shapes_become_metadata)
{
    sumi_tensor_set set = {0};
    sumi_tensor_set_init(&set, &s_heap, NULL);
    CHECK_NUMBER(sumi_tensor_set_open(&set, GOLDEN "gguf/metadata.gguf", NULL), SUMI_OK);
    const char* shape = sumi_metadata_find(&set, "comfy.gguf.orig_shape.x");
    CHECK_TEXT(shape != NULL ? shape : "(none)", "2,2,2");
    sumi_tensor_set_close(&set);
}

// A GGUF file of 128 bytes: 4 floats "t" at `offset` behind byte 96.
static void make_gguf(unsigned char file[128], uint64_t offset)
{
    memset(file, 0, 128);
    memcpy(file, "GGUF\3\0\0\0\1", 9);
    file[24] = 1, file[32] = 't'; // name
    file[33] = 1, file[37] = 4;   // rank, extent
    for (int i = 0; i < 8; i++) {
        file[49 + i] = (unsigned char)(offset >> (8 * i)); // behind the type, F32
    }
}

TEST(gguf_offsets_are_held_against_the_place_of_the_data)
{
    static const struct {
        uint64_t offset, bytes;
        sumi_result result;
    } s_cases[] = {
        {0, 128, SUMI_OK},
        {32, 128, SUMI_OK},
        {64, 128, SUMI_FILE_TRUNCATED},
        {96, 128, SUMI_FILE_TRUNCATED},
        {128, 128, SUMI_FILE_TRUNCATED},
        {160, 128, SUMI_FILE_TRUNCATED},
        {UINT64_MAX - 31, 128, SUMI_FILE_TRUNCATED},
        {UINT64_MAX - 63, 128, SUMI_FILE_TRUNCATED},
        {(uint64_t)1 << 63, 128, SUMI_FILE_TRUNCATED},
        {32, 112, SUMI_OK},
        {32, 111, SUMI_FILE_TRUNCATED},
        {0, 63, SUMI_FILE_TRUNCATED},
        {1, 128, SUMI_FILE_MALFORMED},
    };
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        unsigned char file[128];
        make_gguf(file, s_cases[i].offset);
        unsigned char* copy = exact_copy(file, (size_t)s_cases[i].bytes);
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        const sumi_result result = sumi_gguf_read(&set, copy, s_cases[i].bytes, "made", &error);
        if (result != s_cases[i].result) {
            printf("  case %zu: result %d %s\n", i, (int)result, error.text);
            t_errors++;
        } else if (result == SUMI_OK) {
            CHECK((const unsigned char*)sumi_tensor_find(&set, "t")->data == copy + 64 + s_cases[i].offset);
        }
        sumi_tensor_set_close(&set);
        free(copy);
    }
}

TEST(every_truncation_of_a_file_is_survived)
{
    static const char* const s_files[] = {"safetensors/valid/every_dtype.safetensors",
                                          "safetensors/valid/metadata.safetensors", "gguf/every_type.gguf",
                                          "gguf/block_types.gguf", "gguf/metadata.gguf"};
    for (size_t f = 0; f < sizeof s_files / sizeof *s_files; f++) {
        char path[256];
        size_t bytes;
        snprintf(path, sizeof path, GOLDEN "%s", s_files[f]);
        unsigned char* file = read_whole(path, &bytes);
        CHECK(file != NULL);
        for (size_t n = 0; file != NULL && n < bytes; n++) {
            unsigned char* copy = exact_copy(file, n);
            sumi_tensor_set set = {0};
            sumi_error error = {0};
            sumi_tensor_set_init(&set, &s_heap, NULL);
            const sumi_result result = f < 2 ? sumi_safetensors_read(&set, copy, n, "cut", &error)
                                             : sumi_gguf_read(&set, copy, n, "cut", &error);
            if (f < 2) {
                CHECK(result == SUMI_FILE_TRUNCATED);
            } else if (result == SUMI_OK) { // only the padding behind the last tensor is missing
                for (size_t i = 0; i < set.count; i++)
                    CHECK((const unsigned char*)set.tensors[i].data + set.tensors[i].bytes <= copy + n);
                CHECK(n + 32 > bytes);
            } else {
                CHECK(error.result == result && strncmp(error.text, "cut: ", 5) == 0);
            }
            sumi_tensor_set_close(&set);
            free(copy);
        }
        free(file);
    }
    CHECK_NUMBER(s_heap.allocated_bytes, 0);
}

TEST(files_that_are_something_else_are_named)
{
    static const struct {
        const char *file, *word;
    } s_cases[] = {{"lfs_pointer", "Git LFS"}, {"pickle_zip", "PyTorch"}, {"html_page", "web page"}};
    for (size_t i = 0; i < 3; i++) {
        char path[256];
        snprintf(path, sizeof path, GOLDEN "safetensors/malformed/%s.safetensors", s_cases[i].file);
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        CHECK(sumi_tensor_set_open(&set, path, &error) != SUMI_OK);
        if (strstr(error.text, s_cases[i].word) == NULL) {
            printf("  %s\n", error.text);
            t_errors++;
        }
        sumi_tensor_set_close(&set);
    }
}

// Types of fewer than 8 bits are whole bytes, and a type that comes later refuses nothing until it is used.
TEST(safetensors_of_every_type_have_their_sizes)
{
    static const struct {
        const char *dtype, *shape;
        int bytes;
        sumi_dtype want; // NONE: refused
    } s_cases[] = {{"F4", "[3,4]", 6, SUMI_DTYPE_F4},           {"F4", "[3,3]", 4, SUMI_DTYPE_NONE},
                   {"F6_E2M3", "[4]", 3, SUMI_DTYPE_F6_E2M3},   {"F6_E3M2", "[5]", 3, SUMI_DTYPE_NONE},
                   {"F8_E8M0", "[2,2]", 4, SUMI_DTYPE_F8_E8M0}, {"F8_E8M0", "[2,2]", 8, SUMI_DTYPE_NONE},
                   {"C64", "[2]", 16, SUMI_DTYPE_C64},          {"F8_E4M3FNUZ", "[3]", 3, SUMI_DTYPE_F8_E4M3FNUZ},
                   {"F2_E1M0", "[5]", 9, SUMI_DTYPE_UNKNOWN},   {"CODES4", "[4]", 2, SUMI_DTYPE_UNKNOWN},
                   {"f32", "[1]", 4, SUMI_DTYPE_NONE}};
    for (size_t i = 0; i < sizeof s_cases / sizeof *s_cases; i++) {
        unsigned char file[256] = {0};
        const int header = snprintf((char*)file + 8, sizeof file - 8,
                                    "{\"a\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[0,%d]}}", s_cases[i].dtype,
                                    s_cases[i].shape, s_cases[i].bytes);
        file[0] = (unsigned char)header;
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        const sumi_result result =
            sumi_safetensors_read(&set, file, (uint64_t)(8 + header + s_cases[i].bytes), "memory", &error);
        CHECK_NUMBER(result, s_cases[i].want == SUMI_DTYPE_NONE ? SUMI_FILE_MALFORMED : SUMI_OK);
        if (result == SUMI_OK) {
            CHECK_NUMBER(set.tensors[0].dtype, s_cases[i].want);
            CHECK_NUMBER(set.tensors[0].bytes, s_cases[i].bytes);
        }
        sumi_tensor_set_close(&set);
    }
}

TEST(missing_files_and_folders_are_results)
{
    sumi_tensor_set set = {0};
    sumi_error error = {0};
    sumi_tensor_set_init(&set, &s_heap, NULL);
    CHECK_NUMBER(sumi_tensor_set_open(&set, "tests/golden/nothing here.safetensors", &error), SUMI_FILE_NOT_FOUND);
    error = (sumi_error){0};
    CHECK_NUMBER(open_tensor_folder(&set, "tests/golden/nothing", "model", &error), SUMI_FILE_NOT_FOUND);
    error = (sumi_error){0};
    CHECK(sumi_tensor_set_open(&set, "tests/golden", &error) != SUMI_OK);
    CHECK(sumi_tensor_find(&set, "x") == NULL && sumi_metadata_find(&set, "x") == NULL);
    sumi_tensor_set_close(&set);
    sumi_tensor_set_close(&set);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(safetensors_golden_files_get_their_verdicts);
    RUN(gguf_golden_files_get_their_verdicts);
    RUN(index_golden_folders_get_their_verdicts);
    RUN(gguf_values_equal_the_reference_exactly);
    RUN(gguf_original_shapes_become_metadata);
    RUN(gguf_offsets_are_held_against_the_place_of_the_data);
    RUN(every_truncation_of_a_file_is_survived);
    RUN(files_that_are_something_else_are_named);
    RUN(safetensors_of_every_type_have_their_sizes);
    RUN(missing_files_and_folders_are_results);
    TEST_END();
}
