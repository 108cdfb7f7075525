// Any bytes as an index of shards, in a folder that has two good shards and one that is the input itself. Nothing
// outside of the folder may be opened.
// Seeds: tests/golden/common/files/index
#include "at_once.h"
#include "files/tensors.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);

typedef struct shard {
    const char* name;
    const char* header;
} shard;
static const shard s_shards[] = {
    {"model-00001-of-00002.safetensors", "{\"a.weight\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},\"b."
                                         "weight\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[1,2]}}"},
    {"model-00002-of-00002.safetensors", "{\"c.weight\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}"},
};

typedef struct folder {
    unsigned char images[2][256];
    size_t image_bytes[2];
    const uint8_t* data;
    size_t bytes;
    int32_t open_count;
} folder;
typedef struct handle {
    const void* data;
} handle;

static void* open_shard(const char* path, uint64_t* out_bytes, void* user_data)
{
    folder* f = user_data;
    if (strncmp(path, "the folder/", 11) != 0 || strpbrk(path + 11, "/\\:") != NULL || strcmp(path + 11, ".") == 0
        || strcmp(path + 11, "..") == 0 || path[11] == '\0') {
        abort(); // an index led us out of its folder
    }
    handle* h = NULL;
    for (size_t i = 0; i < 2; i++) {
        if (strcmp(path + 11, s_shards[i].name) == 0) {
            h = malloc(sizeof *h);
            h->data = f->images[i];
            *out_bytes = f->image_bytes[i];
        }
    }
    if (h == NULL && strcmp(path + 11, "i") == 0) {
        h = malloc(sizeof *h);
        h->data = f->data;
        *out_bytes = f->bytes;
    }
    f->open_count += h != NULL;
    return h;
}

static bool read_shard(void* file, uint64_t offset, void* into, size_t bytes, void* user_data)
{
    (void)user_data;
    memcpy(into, (const unsigned char*)((handle*)file)->data + offset, bytes);
    return true;
}

static const void* map_shard(void* file, void* user_data)
{
    (void)user_data;
    return ((handle*)file)->data;
}

static void close_shard(void* file, void* user_data)
{
    ((folder*)user_data)->open_count--;
    free(file);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes)
{
    folder f = {.data = data, .bytes = bytes};
    for (size_t i = 0; i < 2; i++) {
        const size_t header_bytes = strlen(s_shards[i].header);
        f.images[i][0] = (unsigned char)header_bytes;
        memcpy(f.images[i] + 8, s_shards[i].header, header_bytes);
        f.image_bytes[i] = 8 + header_bytes + 2;
    }
    const sumi_files files = {open_shard, read_shard, bytes % 2 ? map_shard : NULL, close_shard, &f};
    sumi_heap heap;
    sumi_heap_init(&heap, NULL);
    sumi_tensor_set set;
    sumi_error error = {0};
    sumi_tensor_set_init(&set, &heap, &files);
    const sumi_result result =
        read_index(&set, &(sumi_index_text){data, bytes, "the folder", "the folder/index"}, &error);
    if ((result == SUMI_OK) != (error.text[0] == '\0')) abort();
    sumi_tensor_set_close(&set);
    if (f.open_count != 0 || heap.allocated_bytes != 0) abort();
    return 0;
}
