// Sets of tensors: found by name, written and read back, mapped or served by the host, in folders.
#include "at_once.h"
#include "files/checkpoint.h"
#include "files/tensors.h"
#include "memory_files.h"

// ---- The golden files -----------------------------------------------------------------------------------------------

TEST(many_tensors_are_found_by_name)
{
    sumi_tensor_set set = {0};
    sumi_tensor_set_init(&set, &s_heap, NULL);
    char name[64];
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "layers.%d.attention.weight", i);
        CHECK_NUMBER(sumi_tensor_set_add(&set, name, strlen(name),
                                         &(sumi_tensor){.rank = 1, .shape = {i}, .file_index = -1}, "memory", NULL),
                     SUMI_OK);
    }
    for (int i = 0; i < 20000; i++) {
        snprintf(name, sizeof name, "%d.attention.weight", i);
        const sumi_tensor* tensor = sumi_tensor_find_prefixed(&set, "layers.", name);
        CHECK(tensor != NULL && tensor->shape[0] == i);
    }
    CHECK(sumi_tensor_find(&set, "layers.20000.attention.weight") == NULL && sumi_tensor_find(&set, "") == NULL);
    sumi_error error = {0};
    CHECK_NUMBER(
        sumi_tensor_set_add(&set, "layers.7.attention.weight", 25, &(sumi_tensor){.file_index = -1}, "memory", &error),
        SUMI_FILE_MALFORMED);
    CHECK_TEXT(error.text, "memory: tensor layers.7.attention.weight occurs twice");
    CHECK(sumi_tensor_set_add(&set, "a\0b", 3, &(sumi_tensor){.file_index = -1}, "memory", NULL)
          == SUMI_FILE_MALFORMED);
    char* large = malloc(100000); // names longer than a block of text
    memset(large, 'n', 100000);
    for (size_t bytes = 16000; bytes <= 100000; bytes += 12000) {
        CHECK_NUMBER(sumi_tensor_set_add(&set, large, bytes, &(sumi_tensor){.file_index = -1}, "memory", NULL),
                     SUMI_OK);
        CHECK_NUMBER(sumi_tensor_set_add(&set, large, bytes / 1000, &(sumi_tensor){.file_index = -1}, "memory", NULL),
                     SUMI_OK);
    }
    for (size_t i = 20000; i < set.count; i++)
        CHECK(set.tensors[i].name[0] == 'n' && sumi_tensor_find(&set, set.tensors[i].name) == &set.tensors[i]);
    sumi_tensor_set_close(&set);
    // names that are beginnings of each other, the longest first
    sumi_tensor_set_init(&set, &s_heap, NULL);
    for (size_t bytes = 400; bytes > 0; bytes -= 2) {
        sumi_tensor_set_add(&set, large, bytes, &(sumi_tensor){.file_index = -1}, "memory", NULL);
    }
    for (size_t bytes = 400; bytes > 0; bytes--) {
        large[bytes] = '\0';
        const sumi_tensor* tensor = sumi_tensor_find(&set, large);
        CHECK((tensor != NULL) == (bytes % 2 == 0) && (tensor == NULL || strlen(tensor->name) == bytes));
    }
    sumi_tensor_set_close(&set);
    free(large);
    CHECK_NUMBER(s_heap.allocated_bytes, 0);
}

// ---- A file system in memory ----------------------------------------------------------------------------------------

TEST(safetensors_written_are_read_back)
{
    const float values[6] = {1, 2, 3, 4, 5, 6};
    const sumi_tensor tensors[] = {
        {.name = "latents", .dtype = SUMI_DTYPE_F32, .rank = 2, .shape = {2, 3}, .data = values, .bytes = 24},
        {.name = "\"quoted\\ \x01\n\xe5\xb1\x82",
         .dtype = SUMI_DTYPE_U8,
         .rank = 1,
         .shape = {3},
         .data = "abc",
         .bytes = 3},
        {.name = "nothing", .dtype = SUMI_DTYPE_BF16, .rank = 2, .shape = {0, 5}, .data = NULL, .bytes = 0},
        {.name = "scalar", .dtype = SUMI_DTYPE_I64, .rank = 0, .data = &(int64_t){-3}, .bytes = 8},
    };
    const sumi_metadata metadata[] = {{"prompt", "a \"lighthouse\"\n\t\\ at dusk"}, {"", ""}};
    for (size_t count = 0; count <= 4; count++) {
        const uint64_t bytes = sumi_safetensors_write(tensors, count, metadata, count % 3, NULL, 0);
        unsigned char* image = malloc((size_t)bytes);
        memset(image, 0xaa, (size_t)bytes);
        CHECK(sumi_safetensors_write(tensors, count, metadata, count % 3, image, bytes - 1) == bytes
              && image[0] == 0xaa);
        CHECK(sumi_safetensors_write(tensors, count, metadata, count % 3, image, bytes) == bytes);
        CHECK_NUMBER(image[0] % 8, 0); // the data is aligned
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, NULL);
        CHECK_NUMBER(sumi_safetensors_read(&set, image, bytes, "written", &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        CHECK_NUMBER(set.count, count);
        CHECK_NUMBER(set.metadata_count, count % 3);
        for (size_t i = 0; i < count; i++) {
            const sumi_tensor* found = sumi_tensor_find(&set, tensors[i].name);
            CHECK(found != NULL && found->dtype == tensors[i].dtype && found->rank == tensors[i].rank
                  && found->bytes == tensors[i].bytes);
            CHECK(found != NULL
                  && (found->bytes == 0 || memcmp(found->data, tensors[i].data, (size_t)found->bytes) == 0));
        }
        for (size_t i = 0; i < count % 3; i++) CHECK_TEXT(sumi_metadata_find(&set, metadata[i].key), metadata[i].value);
        sumi_tensor_set_close(&set);
        free(image);
    }
}

// So that a device can page-lock the file's pages.
TEST(tensors_know_the_mapping_that_they_lie_in)
{
    sumi_tensor_set set = {0};
    sumi_error error = {0};
    sumi_tensor_set_init(&set, &s_heap, NULL);
    const char* path = "tests/golden/z-image/model/vae/diffusion_pytorch_model.safetensors";
    CHECK_NUMBER(sumi_tensor_set_open(&set, path, &error), SUMI_OK);
    CHECK_TEXT(error.text, "");
    CHECK(set.count > 0);
    for (size_t i = 0; i < set.count; i++) {
        const sumi_tensor* tensor = &set.tensors[i];
        const uintptr_t data = (uintptr_t)tensor->data, map = (uintptr_t)tensor->mapping;
#if defined(__linux__)
        CHECK(map != 0 && map % 4096 == 0 && data > map && data + tensor->bytes <= map + tensor->mapping_bytes);
#else
        CHECK(map == 0 || (data > map && data + tensor->bytes <= map + tensor->mapping_bytes));
#endif
    }
    sumi_tensor_set_close(&set);
    CHECK_NUMBER(s_heap.allocated_bytes, 0);
}

TEST(host_files_serve_with_and_without_map)
{
    for (int with_map = 0; with_map < 2; with_map++) {
        memory_files files = {.with_map = with_map != 0};
        put_model(&files);
        const sumi_files host = callbacks(&files);
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, &host);
        CHECK_NUMBER(open_tensor_folder(&set, "m/transformer", "diffusion_pytorch_model", &error), SUMI_OK);
        CHECK_TEXT(error.text, "");
        CHECK_NUMBER(set.count, 3);
        CHECK_NUMBER(files.open_count, 2); // the index is closed again
        const sumi_tensor* extra = sumi_tensor_find(&set, "extra");
        float value = 0;
        if (extra != NULL) sumi_dtype_to_float(extra->dtype, extra->data, &value, 1);
        CHECK(value == 2.0f && extra->file_index == 1);
        CHECK(extra != NULL
              && extra->mapping == NULL); // memory of the host program's, which nobody but the host may lock
        sumi_tensor_set_close(&set);
        CHECK_NUMBER(s_heap.allocated_bytes, 0);

        files.fail_read = true;
        sumi_tensor_set_init(&set, &s_heap, &host);
        CHECK_NUMBER(sumi_tensor_set_open(&set, "m/vae/diffusion_pytorch_model.safetensors", &error),
                     with_map ? SUMI_OK : SUMI_FILE_READ_FAILED);
        sumi_tensor_set_close(&set);
        error = (sumi_error){0};
        sumi_tensor_set_init(&set, &s_heap, &host);
        CHECK_NUMBER(sumi_tensor_set_open(&set, "m/absent", &error), SUMI_FILE_NOT_FOUND);
        CHECK(strstr(error.text, "m/absent") != NULL);
        sumi_tensor_set_close(&set);
        release(&files);
    }
}

TEST(index_refuses_names_that_are_paths_before_it_opens_anything)
{
    static const char* const s_names[] = {"../m/s1.safetensors",
                                          "/s1.safetensors",
                                          "a/s1.safetensors",
                                          "..\\\\s1.safetensors",
                                          "C:s1.safetensors",
                                          "",
                                          ".",
                                          "..",
                                          "s1\\u0000",
                                          "s1\\n",
                                          "./s1.safetensors"};
    for (size_t i = 0; i < sizeof s_names / sizeof *s_names; i++) {
        memory_files files = {.with_map = true};
        put_model(&files);
        const sumi_files host = callbacks(&files);
        char text[256];
        snprintf(text, sizeof text, "{\"weight_map\":{\"a\":\"s1.safetensors\",\"b\":\"%s\"}}", s_names[i]);
        sumi_tensor_set set = {0};
        sumi_error error = {0};
        sumi_tensor_set_init(&set, &s_heap, &host);
        CHECK_NUMBER(read_index(&set,
                                &(sumi_index_text){text, strlen(text), "m/transformer", "m/transformer/the index"},
                                &error),
                     SUMI_FILE_MALFORMED);
        CHECK(strstr(error.text, "the shard name") != NULL && strstr(error.text, "m/transformer/the index") != NULL);
        CHECK_NUMBER(files.opened_ever, 0);
        sumi_tensor_set_close(&set);
        release(&files);
    }
}

TEST(folders_are_searched_by_stem)
{
    static const char* const s_paths[] = {"f/model.safetensors", "f/model.bf16.safetensors",
                                          "f/model.fp16.safetensors"};
    for (size_t i = 0; i < 3; i++) {
        memory_files files = {.with_map = true};
        put_tensors(&files, s_paths[i], NAMES("a"));
        const sumi_files host = callbacks(&files);
        sumi_tensor_set set = {0};
        sumi_tensor_set_init(&set, &s_heap, &host);
        CHECK_NUMBER(open_tensor_folder(&set, "f", "model", NULL), SUMI_OK);
        CHECK_NUMBER(set.count, 1);
        CHECK(open_tensor_folder(&set, "f", "other", NULL) == SUMI_FILE_NOT_FOUND);
        sumi_tensor_set_close(&set);
        release(&files);
    }
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    sumi_heap_init(&s_heap, NULL);
    RUN(many_tensors_are_found_by_name);
    RUN(safetensors_written_are_read_back);
    RUN(tensors_know_the_mapping_that_they_lie_in);
    RUN(host_files_serve_with_and_without_map);
    RUN(index_refuses_names_that_are_paths_before_it_opens_anything);
    RUN(folders_are_searched_by_stem);
    TEST_END();
}
