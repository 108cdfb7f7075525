// model.safetensors.index.json: {"metadata": {"total_size": N}, "weight_map": {"tensor name": "shard file", ...}}.
//
// The index only decides which files are opened, and every tensor that it names must be in one of them. Tensors that a
// shard has but the index does not name are kept, as in the Python loaders. total_size is ignored. Shard names come
// from a downloaded file, so they may only name files in the folder of the index.
#include "base/assert.h"
#include "files/json.h"
#include "files/tensors.h"
#include <string.h>

#define MAX_SHARDS 4096u // the largest published models have some hundred

// NULL if the name can only mean a file in the index's own folder; otherwise its fault, as the end of a sentence.
static const char* shard_name_fault(const char* name, size_t bytes)
{
    if (bytes == 0) return "is empty";
    for (size_t i = 0; i < bytes; i++) {
        if (name[i] == '/' || name[i] == '\\' || name[i] == ':') return "is a path; shards must lie beside their index";
        if ((unsigned char)name[i] < 0x20) return "holds a control character";
    }
    if ((bytes == 1 && name[0] == '.') || (bytes == 2 && name[0] == '.' && name[1] == '.')) return "is a folder";
    return NULL;
}

typedef struct walker {
    sumi_heap* heap;
    sumi_tensor_opening* opening; // not NULL: the shards are added here
    const sumi_tensor_set* set;   // not NULL: every tensor of the index must be in this set
    sumi_tensor_set seen;         // of the shards: it serves as a set of texts
    char* scratch;
    size_t scratch_bytes;
    const sumi_index_text* index;
    sumi_error* error;
} walker;

// Adds folder/name to the shards unless it is among them. They are kept in a tensor set too, because an index may name
// a million tensors and a thousand shards.
static sumi_result add_shard(walker* w, const char* name)
{
    sumi_tensor_opening* opening = w->opening;
    const char *folder = w->index->folder, *path = w->index->path;
    sumi_error* error = w->error;
    SUMI_ASSERT(*name != '\0' && strchr(name, '/') == NULL); // shard_name_fault has checked the name
    if (sumi_tensor_find(&w->seen, name) != NULL) return SUMI_OK;
    if (opening->count == MAX_SHARDS)
        return sumi_fail(error, SUMI_NOT_SUPPORTED, "%s: names more than %u shards", path, MAX_SHARDS);
    SUMI_TRY(sumi_tensor_set_add(&w->seen, name, strlen(name), &(sumi_tensor){.file_index = -1}, path, error));
    SUMI_TRY(sumi_grow(opening->heap, (void**)&opening->paths, &opening->capacity, opening->count + 1,
                       sizeof *opening->paths, error));
    const size_t bytes = strlen(folder) + strlen(name) + 2;
    char* joined = sumi_alloc(opening->heap, bytes);
    if (joined == NULL) return sumi_out_of_memory(error, bytes, "a file name");
    sumi_path_join(joined, bytes, folder, name);
    opening->paths[opening->count++] = joined;
    return SUMI_OK;
}

// Decodes a string into scratch and terminates it.
static sumi_result decode_name(walker* w, const sumi_json_text* text, size_t* out_bytes)
{
    SUMI_TRY(sumi_grow(w->heap, (void**)&w->scratch, &w->scratch_bytes, text->bytes + 1, 1, w->error));
    *out_bytes = sumi_json_decode(text, w->scratch, w->scratch_bytes);
    SUMI_ASSERT(*out_bytes < w->scratch_bytes);
    w->scratch[*out_bytes] = '\0';
    return SUMI_OK;
}

static sumi_result walk_entry(walker* w, const sumi_json_text* name, const sumi_json_text* shard)
{
    SUMI_ASSERT((w->opening == NULL) != (w->set == NULL));
    size_t bytes;
    if (w->opening == NULL) {
        SUMI_TRY(decode_name(w, name, &bytes));
        if (strlen(w->scratch) != bytes || sumi_tensor_find(w->set, w->scratch) == NULL) {
            return sumi_fail(w->error, SUMI_TENSOR_MISSING,
                             "%s: names tensor %.120s, which is in none of the shards; download the folder again",
                             w->index->path, w->scratch);
        }
        return SUMI_OK;
    }
    SUMI_TRY(decode_name(w, shard, &bytes));
    const char* fault = shard_name_fault(w->scratch, bytes);
    if (fault != NULL)
        return sumi_fail(w->error, SUMI_FILE_MALFORMED, "%s: the shard name \"%.120s\" %s", w->index->path, w->scratch,
                         fault);
    return add_shard(w, w->scratch);
}

static sumi_result walk_text(walker* w)
{
    sumi_json json;
    sumi_json_text key, name, shard;
    bool found = false;
    sumi_json_begin(&json, w->index->data, (size_t)w->index->bytes, w->error);
    json.name = w->index->path;
    sumi_json_object(&json);
    while (sumi_json_key(&json, &key)) {
        if (!sumi_json_is(&key, "weight_map")) {
            sumi_json_skip(&json);
            continue;
        }
        if (found) sumi_json_refuse(&json, "a second weight_map");
        found = true;
        sumi_json_object(&json);
        while (sumi_json_key(&json, &name)) {
            if (!sumi_json_string(&json, &shard)) break;
            SUMI_TRY(walk_entry(w, &name, &shard));
        }
    }
    SUMI_TRY(sumi_json_end(&json));
    if (!found) {
        return sumi_fail(w->error, SUMI_FILE_MALFORMED,
                         "%s: has no weight_map, so it is not an index of safetensors shards", w->index->path);
    }
    return SUMI_OK;
}

static sumi_result walk(walker* w)
{
    sumi_tensor_set_init(&w->seen, w->heap, NULL);
    const sumi_result result = walk_text(w);
    sumi_tensor_set_close(&w->seen);
    sumi_free(w->heap, w->scratch);
    return result;
}

sumi_result sumi_index_list_shards(sumi_tensor_opening* opening, const sumi_index_text* index, sumi_error* error)
{
    return walk(&(walker){.heap = opening->heap, .opening = opening, .index = index, .error = error});
}

sumi_result sumi_index_check(const sumi_tensor_set* set, sumi_heap* heap, const sumi_index_text* index,
                             sumi_error* error)
{
    return walk(&(walker){.heap = heap, .set = set, .index = index, .error = error});
}
