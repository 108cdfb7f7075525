// GGUF, versions 2 and 3, little endian:
//
//     "GGUF" u32 version | u64 tensor count | u64 key count
//     keys     string key, u32 type, value        string: u64 bytes + text;  array: u32 type, u64 count, elements
//     tensors  string name, u32 rank, u64 extents (innermost first), u32 type, u64 offset
//     padding up to a multiple of general.alignment (32 unless a key says otherwise); tensor offsets count from here
//     data     each tensor at a multiple of the alignment
//
// Every read goes through a cursor that never passes the end of the file. Counts from the file never decide how much
// memory is allocated: the list of tensors grows as tensors are read.
#include "base/assert.h"
#include "base/utf8.h"
#include "files/tensors.h"
#include <stdio.h>
#include <string.h>

enum { // types of metadata values
    KEY_U8,
    KEY_I8,
    KEY_U16,
    KEY_I16,
    KEY_U32,
    KEY_I32,
    KEY_F32,
    KEY_BOOL,
    KEY_STRING,
    KEY_ARRAY,
    KEY_U64,
    KEY_I64,
    KEY_F64,
    KEY_COUNT
};
static const unsigned char s_key_bytes[KEY_COUNT] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8}; // 0: variable length

#define MAX_ARRAY_DEPTH 4
#define MAX_ALIGNMENT 65536u // files use 32; more than a memory page makes no sense

typedef struct reader {
    sumi_tensor_set* set;
    const char* path;
    const unsigned char *begin, *at, *end;
    uint32_t alignment;
    sumi_error* error;
} reader;

typedef struct text {
    const char* data;
    size_t bytes;
} text;

static sumi_result truncated(reader* r, const char* where)
{
    return sumi_fail(r->error, SUMI_FILE_TRUNCATED, "%s: the file ends inside %s; download it again", r->path, where);
}

static sumi_result malformed(reader* r, const char* reason)
{
    SUMI_ASSERT(r->at >= r->begin && r->at <= r->end);
    return sumi_fail(r->error, SUMI_FILE_MALFORMED, "%s: %s at byte %llu", r->path, reason,
                     (unsigned long long)(r->at - r->begin));
}

static uint64_t remaining_bytes(const reader* r) { return (uint64_t)(r->end - r->at); }

static uint64_t little_endian(const unsigned char* data, uint32_t bytes)
{
    SUMI_ASSERT(bytes >= 1 && bytes <= 8);
    uint64_t value = 0;
    for (uint32_t i = bytes; i > 0; i--) value = value << 8 | data[i - 1];
    return value;
}

static sumi_result read_gguf_number(reader* r, uint32_t bytes, const char* where, uint64_t* out_value)
{
    SUMI_ASSERT(bytes >= 1 && bytes <= 8 && r->at <= r->end);
    *out_value = 0;
    if (remaining_bytes(r) < bytes) return truncated(r, where);
    *out_value = little_endian(r->at, bytes);
    r->at += bytes;
    return SUMI_OK;
}

static sumi_result read_text(reader* r, const char* where, text* out_text)
{
    uint64_t bytes;
    SUMI_TRY(read_gguf_number(r, 8, where, &bytes));
    if (bytes > remaining_bytes(r)) return truncated(r, where);
    *out_text = (text){(const char*)r->at, (size_t)bytes};
    r->at += bytes;
    return SUMI_OK;
}

static bool text_equals(const text* key, const char* literal)
{
    return key->bytes == strlen(literal) && memcmp(key->data, literal, key->bytes) == 0;
}

// ---- Keys -----------------------------------------------------------------------------------------------------------

static sumi_result skip_array(reader* r, int32_t depth)
{
    SUMI_ASSERT(depth >= 0 && depth <= MAX_ARRAY_DEPTH);
    uint64_t type, count;
    SUMI_TRY(read_gguf_number(r, 4, "an array of the metadata", &type));
    SUMI_TRY(read_gguf_number(r, 8, "an array of the metadata", &count));
    if (type >= KEY_COUNT) return malformed(r, "an array of an unknown type");
    if (s_key_bytes[type] > 0) {
        if (count > remaining_bytes(r) / s_key_bytes[type]) return truncated(r, "an array of the metadata");
        r->at += count * s_key_bytes[type];
        return SUMI_OK;
    }
    if (type == KEY_ARRAY && depth == MAX_ARRAY_DEPTH) return malformed(r, "arrays nested too deep");
    for (uint64_t i = 0; i < count; i++) { // each element takes at least 8 bytes, so the file's length bounds this loop
        text element;
        SUMI_TRY(type == KEY_STRING ? read_text(r, "an array of the metadata", &element) : skip_array(r, depth + 1));
    }
    return SUMI_OK;
}

// ComfyUI's converter flattens tensors that do not suit a block type and keeps their original shape as an array of
// 32-bit integers under "comfy.gguf.orig_shape." + name. The tensor keeps its stored shape here. The original shape
// becomes metadata such as "2,3,1", for networks that need it.
static sumi_result keep_original_shape(reader* r, const text* key, const unsigned char* array)
{
    static const char s_prefix[] = "comfy.gguf.orig_shape.";
    const uint64_t type = little_endian(array, 4), rank = little_endian(array + 4, 8);
    if (key->bytes < sizeof s_prefix || memcmp(key->data, s_prefix, sizeof s_prefix - 1) != 0
        || (type != KEY_I32 && type != KEY_U32) || rank == 0 || rank > SUMI_TENSOR_MAX_RANK)
        return SUMI_OK;
    char value[SUMI_TENSOR_MAX_RANK * 11 + 1];
    size_t bytes = 0;
    for (uint64_t i = 0; i < rank; i++) {
        bytes += (size_t)snprintf(value + bytes, sizeof value - bytes, "%s%llu", i > 0 ? "," : "",
                                  (unsigned long long)little_endian(array + 12 + 4 * i, 4));
    }
    return sumi_metadata_add(r->set, key->data, key->bytes, value, bytes, r->error);
}

// Keeps where an array of the tokenizer lies: the 12 bytes of its type and count, then its elements up to r->at.
static void keep_token_array(const reader* r, const text* key, const unsigned char* array)
{
    static const struct {
        const char* name;
        unsigned char type, other_type;
    } s_arrays[SUMI_TOKEN_ARRAY_COUNT] = {[SUMI_TOKEN_ARRAY_TEXTS] = {"tokens", KEY_STRING, KEY_STRING},
                                          [SUMI_TOKEN_ARRAY_TYPES] = {"token_type", KEY_I32, KEY_U32},
                                          [SUMI_TOKEN_ARRAY_SCORES] = {"scores", KEY_F32, KEY_F32},
                                          [SUMI_TOKEN_ARRAY_MERGES] = {"merges", KEY_STRING, KEY_STRING}};
    static const char s_prefix[] = "tokenizer.ggml.";
    const size_t prefix_bytes = sizeof s_prefix - 1;
    const uint64_t type = little_endian(array, 4), count = little_endian(array + 4, 8);
    if (key->bytes < prefix_bytes || memcmp(key->data, s_prefix, prefix_bytes) != 0) return;
    const text name = {key->data + prefix_bytes, key->bytes - prefix_bytes};
    for (int32_t i = 0; i < SUMI_TOKEN_ARRAY_COUNT; i++) {
        if (text_equals(&name, s_arrays[i].name) && (type == s_arrays[i].type || type == s_arrays[i].other_type)) {
            r->set->token_arrays[i] =
                (sumi_metadata_array){.data = array + 12, .bytes = (uint64_t)(r->at - array) - 12, .count = count};
        }
    }
}

static sumi_result add_scalar(reader* r, const text* key, uint64_t type, uint64_t bits)
{
    SUMI_ASSERT(type < KEY_COUNT && type != KEY_STRING && type != KEY_ARRAY);
    char value[40];
    int64_t integer = 0;
    float single;
    double number = 0;
    const uint32_t low = (uint32_t)bits;
    switch (type) {
    case KEY_I8: integer = (int8_t)bits; break;
    case KEY_I16: integer = (int16_t)bits; break;
    case KEY_I32: integer = (int32_t)bits; break;
    case KEY_I64: integer = (int64_t)bits; break;
    case KEY_F32:
        memcpy(&single, &low, sizeof single);
        number = (double)single;
        break;
    case KEY_F64: memcpy(&number, &bits, sizeof number); break;
    default: break;
    }
    switch (type) {
    case KEY_BOOL:
        if (bits > 1) return malformed(r, "a metadata boolean that is neither 0 nor 1");
        strcpy(value, bits ? "true" : "false");
        break;
    case KEY_F32: snprintf(value, sizeof value, "%.9g", number); break;
    case KEY_F64: snprintf(value, sizeof value, "%.17g", number); break;
    case KEY_I8:
    case KEY_I16:
    case KEY_I32:
    case KEY_I64: snprintf(value, sizeof value, "%lld", (long long)integer); break;
    default: snprintf(value, sizeof value, "%llu", (unsigned long long)bits); break;
    }
    char* comma = strchr(value, ','); // the host program's locale may print a decimal comma
    if (comma != NULL) *comma = '.';
    return sumi_metadata_add(r->set, key->data, key->bytes, value, strlen(value), r->error);
}

static sumi_result read_key(reader* r)
{
    text key, value;
    uint64_t type, bits;
    SUMI_TRY(read_text(r, "a metadata key", &key));
    if (!sumi_utf8_is_valid(key.data, key.bytes)) return malformed(r, "a metadata key that is not UTF-8");
    SUMI_TRY(read_gguf_number(r, 4, "a metadata value", &type));
    if (type >= KEY_COUNT) return malformed(r, "a metadata value of an unknown type");
    if (text_equals(&key, "general.alignment")) {
        if (type != KEY_U32) return malformed(r, "general.alignment is not a 32-bit number");
        SUMI_TRY(read_gguf_number(r, 4, "a metadata value", &bits));
        if (bits == 0 || (bits & (bits - 1)) != 0 || bits > MAX_ALIGNMENT) {
            return sumi_fail(r->error, SUMI_FILE_MALFORMED,
                             "%s: general.alignment is %llu; it must be a power of two up to %u", r->path,
                             (unsigned long long)bits, MAX_ALIGNMENT);
        }
        r->alignment = (uint32_t)bits;
        return add_scalar(r, &key, type, bits);
    }
    if (type == KEY_ARRAY) {
        const unsigned char* array = r->at;
        SUMI_TRY(skip_array(r, 0));
        keep_token_array(r, &key, array);
        return keep_original_shape(r, &key, array);
    }
    if (type == KEY_STRING) {
        SUMI_TRY(read_text(r, "a metadata value", &value));
        return sumi_utf8_is_valid(value.data, value.bytes)
                 ? sumi_metadata_add(r->set, key.data, key.bytes, value.data, value.bytes, r->error)
                 : SUMI_OK;
    }
    SUMI_TRY(read_gguf_number(r, s_key_bytes[type], "a metadata value", &bits));
    return add_scalar(r, &key, type, bits);
}

// ---- Tensors --------------------------------------------------------------------------------------------------------

static sumi_dtype dtype_of(uint64_t type)
{
    switch (type) {
    case 0: return SUMI_DTYPE_F32;
    case 1: return SUMI_DTYPE_F16;
    case 2: return SUMI_DTYPE_Q4_0;
    case 3: return SUMI_DTYPE_Q4_1;
    case 6: return SUMI_DTYPE_Q5_0;
    case 7: return SUMI_DTYPE_Q5_1;
    case 8: return SUMI_DTYPE_Q8_0;
    case 9: return SUMI_DTYPE_Q8_1;
    case 10: return SUMI_DTYPE_Q2_K;
    case 11: return SUMI_DTYPE_Q3_K;
    case 12: return SUMI_DTYPE_Q4_K;
    case 13: return SUMI_DTYPE_Q5_K;
    case 14: return SUMI_DTYPE_Q6_K;
    case 15: return SUMI_DTYPE_Q8_K;
    case 16: return SUMI_DTYPE_IQ2_XXS;
    case 17: return SUMI_DTYPE_IQ2_XS;
    case 18: return SUMI_DTYPE_IQ3_XXS;
    case 19: return SUMI_DTYPE_IQ1_S;
    case 20: return SUMI_DTYPE_IQ4_NL;
    case 21: return SUMI_DTYPE_IQ3_S;
    case 22: return SUMI_DTYPE_IQ2_S;
    case 23: return SUMI_DTYPE_IQ4_XS;
    case 24: return SUMI_DTYPE_I8;
    case 25: return SUMI_DTYPE_I16;
    case 26: return SUMI_DTYPE_I32;
    case 27: return SUMI_DTYPE_I64;
    case 28: return SUMI_DTYPE_F64;
    case 29: return SUMI_DTYPE_IQ1_M;
    case 30: return SUMI_DTYPE_BF16;
    case 34: return SUMI_DTYPE_TQ1_0;
    case 35: return SUMI_DTYPE_TQ2_0;
    case 39: return SUMI_DTYPE_MXFP4;
    case 40: return SUMI_DTYPE_NVFP4;
    default: return SUMI_DTYPE_NONE;
    }
}

// Until set_tensor_data, tensor->data is the start of the file plus the tensor's offset: the end of the table is not
// known yet.
static sumi_result read_gguf_tensor(reader* r)
{
    text name;
    uint64_t rank, type, offset;
    sumi_tensor tensor = {.file_index = (int32_t)r->set->opened_count - 1};
    SUMI_TRY(read_text(r, "a tensor's name", &name));
    if (!sumi_utf8_is_valid(name.data, name.bytes)) return malformed(r, "a tensor name that is not UTF-8");
    SUMI_TRY(read_gguf_number(r, 4, "the table of tensors", &rank));
    if (rank > SUMI_TENSOR_MAX_RANK) {
        return sumi_fail(r->error, SUMI_FILE_MALFORMED, "%s: tensor %.*s has %llu dimensions", r->path,
                         sumi_name_shown(name.bytes), name.data, (unsigned long long)rank);
    }
    tensor.rank = (int32_t)rank;
    uint64_t count = 1;
    for (int32_t i = tensor.rank; i > 0; i--) {
        uint64_t extent;
        SUMI_TRY(read_gguf_number(r, 8, "the table of tensors", &extent));
        if (extent > INT64_MAX || (extent != 0 && count > INT64_MAX / extent)) {
            return sumi_fail(r->error, SUMI_FILE_MALFORMED, "%s: the shape of tensor %.*s overflows 63 bits", r->path,
                             sumi_name_shown(name.bytes), name.data);
        }
        count *= extent;
        tensor.shape[i - 1] = (int64_t)extent;
    }
    SUMI_TRY(read_gguf_number(r, 4, "the table of tensors", &type));
    SUMI_TRY(read_gguf_number(r, 8, "the table of tensors", &offset));
    tensor.dtype = dtype_of(type);
    if (tensor.dtype == SUMI_DTYPE_NONE) {
        return sumi_fail(r->error, SUMI_FILE_MALFORMED, "%s: tensor %.*s is of the unknown type %llu", r->path,
                         sumi_name_shown(name.bytes), name.data, (unsigned long long)type);
    }
    const sumi_dtype_info* info = sumi_dtype_get(tensor.dtype);
    const int64_t row = tensor.rank > 0 ? tensor.shape[tensor.rank - 1] : 1;
    if (row % info->block != 0) {
        return sumi_fail(r->error, SUMI_FILE_MALFORMED,
                         "%s: tensor %.*s has rows of %lld values, not a multiple of the %d that make a block of %s",
                         r->path, sumi_name_shown(name.bytes), name.data, (long long)row, (int)info->block, info->name);
    }
    if (count / (uint64_t)info->block > UINT64_MAX / (uint64_t)info->block_bytes) {
        return sumi_fail(r->error, SUMI_FILE_MALFORMED, "%s: the bytes of tensor %.*s overflow 64 bits", r->path,
                         sumi_name_shown(name.bytes), name.data);
    }
    tensor.bytes = sumi_dtype_bytes(tensor.dtype, count);
    const uint64_t file_bytes = (uint64_t)(r->end - r->begin);
    if (offset % r->alignment != 0) {
        return sumi_fail(r->error, SUMI_FILE_MALFORMED,
                         "%s: tensor %.*s is at offset %llu, not a multiple of the alignment %u", r->path,
                         sumi_name_shown(name.bytes), name.data, (unsigned long long)offset, r->alignment);
    }
    if (offset > file_bytes || tensor.bytes > file_bytes - offset) {
        return sumi_fail(r->error, SUMI_FILE_TRUNCATED,
                         "%s: tensor %.*s needs %llu bytes at offset %llu, the whole file has %llu", r->path,
                         sumi_name_shown(name.bytes), name.data, (unsigned long long)tensor.bytes,
                         (unsigned long long)offset, (unsigned long long)file_bytes);
    }
    tensor.data = r->begin + offset;
    return sumi_tensor_set_add(r->set, name.data, name.bytes, &tensor, r->path, r->error);
}

// Moves the tensors' data pointers from their offsets to their positions after the table.
static sumi_result set_tensor_data(reader* r, size_t first)
{
    SUMI_ASSERT(first <= r->set->count && (r->alignment & (r->alignment - 1)) == 0);
    const uint64_t table = (uint64_t)(r->at - r->begin), file_bytes = (uint64_t)(r->end - r->begin);
    const uint64_t start = (table + r->alignment - 1) / r->alignment * r->alignment;
    for (size_t i = first; i < r->set->count; i++) {
        sumi_tensor* tensor = &r->set->tensors[i];
        const uint64_t offset = (uint64_t)((const unsigned char*)tensor->data - r->begin);
        if (start > file_bytes || offset > file_bytes - start || tensor->bytes > file_bytes - start - offset) {
            return sumi_fail(r->error, SUMI_FILE_TRUNCATED,
                             "%s: tensor %.120s ends at byte %llu, the file has %llu; download it again", r->path,
                             tensor->name, (unsigned long long)(start + offset + tensor->bytes),
                             (unsigned long long)file_bytes);
        }
        tensor->data = r->begin + start + offset;
    }
    return SUMI_OK;
}

sumi_result sumi_gguf_read(sumi_tensor_set* set, const void* data, uint64_t bytes, const char* path, sumi_error* error)
{
    reader r = {.set = set,
                .path = path,
                .begin = data,
                .at = data,
                .end = (const unsigned char*)data + bytes,
                .alignment = 32,
                .error = error};
    uint64_t version, tensor_count, key_count;
    if (bytes < 4 || memcmp(data, "GGUF", 4) != 0)
        return sumi_fail(error, SUMI_FILE_MALFORMED, "%s: does not begin with GGUF", path);
    r.at += 4;
    SUMI_TRY(read_gguf_number(&r, 4, "the header", &version));
    if (version != 2 && version != 3) {
        return sumi_fail(
            error, SUMI_NOT_SUPPORTED, "%s: GGUF version %llu%s; only little-endian versions 2 and 3 are read", path,
            (unsigned long long)version, version == 0x02000000 || version == 0x03000000 ? " (a big-endian file)" : "");
    }
    SUMI_TRY(read_gguf_number(&r, 8, "the header", &tensor_count));
    SUMI_TRY(read_gguf_number(&r, 8, "the header", &key_count));
    const size_t first = set->count;
    if (key_count == 0 && tensor_count == 0)
        return sumi_fail(error, SUMI_FILE_MALFORMED, "%s: a GGUF file with nothing in it", path);
    // smallest sizes of a key and of a tensor entry
    if (key_count > remaining_bytes(&r) / 13 || tensor_count > remaining_bytes(&r) / 24) {
        return sumi_fail(error, SUMI_FILE_TRUNCATED,
                         "%s: announces %llu keys and %llu tensors, more than its %llu bytes can hold", path,
                         (unsigned long long)key_count, (unsigned long long)tensor_count, (unsigned long long)bytes);
    }
    for (uint64_t i = 0; i < key_count; i++) SUMI_TRY(read_key(&r));
    for (uint64_t i = 0; i < tensor_count; i++) SUMI_TRY(read_gguf_tensor(&r));
    SUMI_TRY(set_tensor_data(&r, first));
    return SUMI_OK;
}
