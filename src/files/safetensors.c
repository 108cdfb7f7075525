// safetensors:
//
//     u64 little endian n | n bytes of JSON | data
//     {"name": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [begin, end]}, ..., "__metadata__": {"key": "text"}}
//
// Every number comes from the file, so the reader checks in this order: n fits into the file (before anything is added
// to it); the JSON is strict; each shape's product, taken in order, and its byte count do not overflow; the byte count
// equals end - begin; names are unique; and the ranges, sorted, cover the data from its first to its last byte without
// hole or overlap. Offsets need neither be aligned nor be in the order of the header.
#include "base/assert.h"
#include "base/memory.h"
#include "files/json.h"
#include "files/tensors.h"
#include <string.h>

#define MAX_HEADER_BYTES 100000000u // the format's own limit

typedef struct reader {
    sumi_tensor_set* set;
    const char* path;
    const unsigned char* data; // first byte after the header
    uint64_t data_bytes;
    sumi_json json;
    char* scratch; // buffer for decoded strings
    size_t scratch_bytes;
    sumi_error* error;
} reader;

static sumi_result decode_text(reader* r, const sumi_json_text* text, const char** out_text, size_t* out_bytes)
{
    if (!text->escaped) {
        *out_text = text->data;
        *out_bytes = text->bytes;
        return SUMI_OK;
    }
    SUMI_TRY(sumi_grow(r->set->heap, (void**)&r->scratch, &r->scratch_bytes, text->bytes + 1, 1, r->error));
    *out_bytes = sumi_json_decode(text, r->scratch, r->scratch_bytes);
    *out_text = r->scratch;
    return SUMI_OK;
}

static sumi_result read_metadata(reader* r)
{
    sumi_json_text key, value;
    // null means no metadata, as in the reference reader
    if (sumi_json_null(&r->json) || !sumi_json_object(&r->json)) return SUMI_OK;
    while (sumi_json_key(&r->json, &key)) {
        if (!sumi_json_string(&r->json, &value)) break;
        // key and value are decoded one after the other into scratch; + 1, so that scratch is not NULL for two empty
        // texts
        SUMI_TRY(
            sumi_grow(r->set->heap, (void**)&r->scratch, &r->scratch_bytes, key.bytes + value.bytes + 1, 1, r->error));
        const size_t key_bytes = sumi_json_decode(&key, r->scratch, key.bytes);
        const size_t value_bytes = sumi_json_decode(&value, r->scratch + key.bytes, value.bytes);
        SUMI_TRY(sumi_metadata_add(r->set, r->scratch, key_bytes, r->scratch + key.bytes, value_bytes, r->error));
    }
    return SUMI_OK;
}

// Types that come later: their names look like those of today, "F8_E8M0".
static bool is_type_name(const sumi_json_text* text)
{
    bool is_name =
        !text->escaped && text->bytes >= 2 && text->bytes <= 16 && text->data[0] >= 'A' && text->data[0] <= 'Z';
    for (size_t i = 0; is_name && i < text->bytes; i++) {
        const char c = text->data[i];
        is_name = (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    }
    return is_name;
}

// A type that is not known matters only when its tensor is used.
static sumi_dtype read_dtype(reader* r, const sumi_json_text* text)
{
    for (int32_t dtype = SUMI_DTYPE_F64; dtype <= SUMI_DTYPE_C64; dtype++) {
        if (sumi_json_is(text, sumi_dtype_get((sumi_dtype)dtype)->name)) return (sumi_dtype)dtype;
    }
    if (is_type_name(text)) return SUMI_DTYPE_UNKNOWN;
    sumi_json_refuse(&r->json, "an unknown dtype");
    return SUMI_DTYPE_NONE;
}

static sumi_result read_shape(reader* r, const char* name, size_t name_bytes, sumi_tensor* tensor)
{
    SUMI_ASSERT(tensor->rank == 0);
    sumi_json_array(&r->json);
    while (sumi_json_item(&r->json)) {
        const uint64_t extent = sumi_json_unsigned(&r->json);
        if (r->json.failed) break;
        if (tensor->rank == SUMI_TENSOR_MAX_RANK) {
            return sumi_fail(r->error, SUMI_NOT_SUPPORTED, "%s: tensor %.*s has more than %d dimensions", r->path,
                             sumi_name_shown(name_bytes), name, SUMI_TENSOR_MAX_RANK);
        }
        if (extent > INT64_MAX) {
            return sumi_fail(r->error, SUMI_FILE_MALFORMED, "%s: tensor %.*s has an extent of 2^63 or more", r->path,
                             sumi_name_shown(name_bytes), name);
        }
        tensor->shape[tensor->rank++] = (int64_t)extent;
    }
    return SUMI_OK;
}

// Sets the tensor's data and bytes from its shape and offsets, after checking them.
static sumi_result set_tensor_range(reader* r, const char* name, size_t name_bytes, sumi_tensor* tensor, uint64_t begin,
                                    uint64_t end)
{
    SUMI_ASSERT(tensor->rank >= 0 && tensor->rank <= SUMI_TENSOR_MAX_RANK);
    SUMI_ASSERT(tensor->dtype != SUMI_DTYPE_NONE);
    uint64_t count = 1;
    const sumi_dtype_info* type = sumi_dtype_get(tensor->dtype); // elements of less than 8 bits are in blocks
    const uint64_t block = (uint64_t)type->block, block_bytes = (uint64_t)type->block_bytes;
    for (int32_t i = 0; i < tensor->rank; i++) {
        const uint64_t extent = (uint64_t)tensor->shape[i];
        if (extent != 0 && count > UINT64_MAX / extent) {
            return sumi_fail(r->error, SUMI_FILE_MALFORMED, "%s: the shape of tensor %.*s overflows 64 bits", r->path,
                             sumi_name_shown(name_bytes), name);
        }
        count *= extent;
    }
    if (count % block != 0) {
        return sumi_fail(r->error, SUMI_FILE_MALFORMED, "%s: tensor %.*s of the type %s ends inside a byte", r->path,
                         sumi_name_shown(name_bytes), name, type->name);
    }
    if (count / block > UINT64_MAX / block_bytes) {
        return sumi_fail(r->error, SUMI_FILE_MALFORMED, "%s: the bytes of tensor %.*s overflow 64 bits", r->path,
                         sumi_name_shown(name_bytes), name);
    }
    tensor->bytes = count / block * block_bytes;
    if (tensor->dtype == SUMI_DTYPE_UNKNOWN && begin <= end) tensor->bytes = end - begin;
    if (begin > end || end - begin != tensor->bytes) {
        return sumi_fail(r->error, SUMI_FILE_MALFORMED,
                         "%s: tensor %.*s has offsets %llu to %llu, but its shape needs %llu bytes", r->path,
                         sumi_name_shown(name_bytes), name, (unsigned long long)begin, (unsigned long long)end,
                         (unsigned long long)tensor->bytes);
    }
    if (end > r->data_bytes) {
        return sumi_fail(r->error, SUMI_FILE_TRUNCATED,
                         "%s: tensor %.*s ends at byte %llu of the data, the file has %llu; download it again", r->path,
                         sumi_name_shown(name_bytes), name, (unsigned long long)end, (unsigned long long)r->data_bytes);
    }
    tensor->data = r->data + begin;
    return SUMI_OK;
}

static sumi_result read_header_tensor(reader* r, const sumi_json_text* key)
{
    const char* name;
    size_t name_bytes;
    SUMI_TRY(decode_text(r, key, &name, &name_bytes));
    sumi_tensor tensor = {.file_index = (int32_t)r->set->opened_count - 1};
    uint64_t offsets[2] = {0, 0};
    bool has_dtype = false, has_shape = false, has_offsets = false;
    sumi_json_text field, text;
    sumi_json_object(&r->json);
    while (sumi_json_key(&r->json, &field)) {
        bool* seen = sumi_json_is(&field, "dtype")        ? &has_dtype
                   : sumi_json_is(&field, "shape")        ? &has_shape
                   : sumi_json_is(&field, "data_offsets") ? &has_offsets
                                                          : NULL;
        if (seen == NULL) {
            sumi_json_skip(&r->json);
            continue;
        }
        if (*seen) {
            sumi_json_refuse(&r->json, "a field of a tensor that occurs twice");
            break;
        }
        *seen = true;
        if (seen == &has_dtype) {
            if (sumi_json_string(&r->json, &text)) tensor.dtype = read_dtype(r, &text);
        } else if (seen == &has_shape) {
            SUMI_TRY(read_shape(r, name, name_bytes, &tensor));
        } else {
            int32_t count = 0;
            sumi_json_array(&r->json);
            while (sumi_json_item(&r->json)) {
                if (count == 2) {
                    sumi_json_refuse(&r->json, "more than two data_offsets");
                    break;
                }
                offsets[count++] = sumi_json_unsigned(&r->json);
            }
            if (count != 2) sumi_json_refuse(&r->json, "fewer than two data_offsets");
        }
    }
    if (r->json.failed) return r->json.failure;
    if (!has_dtype || !has_shape || !has_offsets) {
        return sumi_fail(r->error, SUMI_FILE_MALFORMED, "%s: tensor %.*s has no %s", r->path,
                         sumi_name_shown(name_bytes), name,
                         !has_dtype   ? "dtype"
                         : !has_shape ? "shape"
                                      : "data_offsets");
    }
    SUMI_TRY(set_tensor_range(r, name, name_bytes, &tensor, offsets[0], offsets[1]));
    return sumi_tensor_set_add(r->set, name, name_bytes, &tensor, r->path, r->error);
}

// ---- The ranges tile the data ---------------------------------------------------------------------------------------

typedef struct range {
    uint64_t begin, end;
    uint32_t index;
} range;

static int compare_ranges(const void* a, const void* b)
{
    const range *x = a, *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static sumi_result check_tiling(reader* r, size_t first)
{
    SUMI_ASSERT(first <= r->set->count);
    sumi_tensor_set* set = r->set;
    const size_t count = set->count - first;
    uint64_t covered = 0;
    size_t in_order = 0; // most writers list tensors in the order of their data, so most files need no sorting
    while (in_order < count
           && (uint64_t)((const unsigned char*)set->tensors[first + in_order].data - r->data) == covered)
        covered += set->tensors[first + in_order++].bytes;
    if (in_order < count) {
        range* list = sumi_alloc_array(set->heap, count, sizeof *list);
        if (list == NULL) return sumi_out_of_memory(r->error, count * sizeof *list, "the order of tensors");
        for (size_t i = 0; i < count; i++) {
            const uint64_t begin = (uint64_t)((const unsigned char*)set->tensors[first + i].data - r->data);
            list[i] = (range){begin, begin + set->tensors[first + i].bytes, (uint32_t)(first + i)};
        }
        sumi_sort(list, count, sizeof *list, compare_ranges);
        covered = 0;
        for (size_t i = 0; i < count; i++) {
            if (list[i].begin != covered) {
                const sumi_result result =
                    sumi_fail(r->error, SUMI_FILE_MALFORMED,
                              "%s: tensor %.120s begins at byte %llu of the data, but byte %llu is next: ranges %s",
                              r->path, set->tensors[list[i].index].name, (unsigned long long)list[i].begin,
                              (unsigned long long)covered, list[i].begin > covered ? "leave a hole" : "overlap");
                sumi_free(set->heap, list);
                return result;
            }
            covered = list[i].end;
        }
        sumi_free(set->heap, list);
    }
    if (covered != r->data_bytes) {
        return sumi_fail(r->error, SUMI_FILE_MALFORMED, "%s: %llu bytes follow the last tensor", r->path,
                         (unsigned long long)(r->data_bytes - covered));
    }
    return SUMI_OK;
}

// ---- The file -------------------------------------------------------------------------------------------------------

// Recognises files of other kinds, so that the message tells the user what to do.
static sumi_result refuse_start(const unsigned char* data, uint64_t bytes, const char* path, sumi_error* error)
{
    // a ZIP archive, or what PyTorch wrote before 1.6: a pickle of protocol 2 that begins with a number of 10 bytes
    if (bytes >= 4 && (memcmp(data, "PK\3\4", 4) == 0 || memcmp(data, "\x80\2\x8a\n", 4) == 0)) {
        return sumi_fail(error, SUMI_NOT_SUPPORTED,
                         "%s: is a PyTorch archive (.bin, .pt, .ckpt), which is not read because it may run code; take "
                         "the safetensors (bf16, fp8) or GGUF file of the model",
                         path);
    }
    if (bytes >= 23 && memcmp(data, "version https://git-lfs", 23) == 0) {
        return sumi_fail(error, SUMI_FILE_MALFORMED, "%s: is a Git LFS pointer, not the file itself; run git lfs pull",
                         path);
    }
    if (bytes >= 5 && (memcmp(data, "<html", 5) == 0 || memcmp(data, "<!doc", 5) == 0 || memcmp(data, "<!DOC", 5) == 0))
        return sumi_fail(error, SUMI_FILE_MALFORMED, "%s: is a web page, not safetensors; the download failed", path);
    if (bytes >= 4 && (memcmp(data, "GGUF", 4) == 0 || memcmp(data, "FUGG", 4) == 0))
        return sumi_fail(error, SUMI_FILE_MALFORMED, "%s: is GGUF, not safetensors", path);
    return SUMI_OK;
}

static sumi_result read_header(reader* r, size_t first)
{
    sumi_json_text key;
    bool has_metadata = false;
    sumi_json_object(&r->json);
    while (sumi_json_key(&r->json, &key)) {
        if (!sumi_json_is(&key, "__metadata__")) {
            SUMI_TRY(read_header_tensor(r, &key));
            continue;
        }
        if (has_metadata) {
            sumi_json_refuse(&r->json, "a second __metadata__");
            break;
        }
        has_metadata = true;
        SUMI_TRY(read_metadata(r));
    }
    SUMI_TRY(sumi_json_end(&r->json));
    return check_tiling(r, first);
}

sumi_result sumi_safetensors_read(sumi_tensor_set* set, const void* data, uint64_t bytes, const char* path,
                                  sumi_error* error)
{
    const unsigned char* begin = data;
    SUMI_TRY(refuse_start(begin, bytes, path, error));
    if (bytes < 8) {
        return sumi_fail(error, SUMI_FILE_TRUNCATED,
                         "%s: %llu bytes are too few for a safetensors file; download it again", path,
                         (unsigned long long)bytes);
    }
    uint64_t header_bytes = 0;
    for (int32_t i = 7; i >= 0; i--) header_bytes = header_bytes << 8 | begin[i];
    if (header_bytes > MAX_HEADER_BYTES) {
        return sumi_fail(
            error, SUMI_FILE_MALFORMED,
            "%s: a header of %llu bytes is over the format's limit of 100,000,000; this is not a safetensors file",
            path, (unsigned long long)header_bytes);
    }
    if (header_bytes > bytes - 8) {
        return sumi_fail(error, SUMI_FILE_TRUNCATED,
                         "%s: the header needs %llu bytes, the file has %llu; download it again", path,
                         (unsigned long long)header_bytes, (unsigned long long)(bytes - 8));
    }
    reader r = {.set = set,
                .path = path,
                .data = begin + 8 + header_bytes,
                .data_bytes = bytes - 8 - header_bytes,
                .error = error};
    sumi_json_begin(&r.json, begin + 8, (size_t)header_bytes, error);
    r.json.name = path;
    if (r.json.at != r.json.begin) sumi_json_refuse(&r.json, "a byte order mark, which the format does not have");
    const sumi_result result = read_header(&r, set->count);
    sumi_free(set->heap, r.scratch);
    return result;
}
