#include "device/upload.h"
#include "base/assert.h"
#include "base/platform.h"
#include "device/device_memory.h"
#include "device/form.h"
#include "device/pinned.h"
#include "device/residency.h"
#include "device/stored.h"
#include "device/weight_forms.h"
#include "kernels/upload.h"
#include <string.h>

#define BUFFER_BYTES (1u << 20) // pinning a megabyte takes about half a millisecond of the caller's frame
// Without a frame: an eighth of the calls of the driver, during which no worker copies. 20 GB took 0.5 s instead of 0.8
// (H100, 16 threads).
#define UNPACED_BUFFER_BYTES (8u << 20)
#define BUFFER_COUNT 64 // of BUFFER_BYTES; of larger ones, as many as have the same bytes
#define FEWEST_BUFFERS 4
#define SMALLEST_BUFFER (64ull << 10)
#define BATCH_BYTES (32u << 20) // with 8 MiB, 20 GB took 1.35 s instead of 1.03 (H100, 16 threads)
#define MAX_PIECES 256
// the last item of a piece may be short
#define MAX_ITEMS (MAX_PIECES + BATCH_BYTES / SUMI_DEVICE_ITEM_BYTES + MAX_PIECES)

// Rows of one stacked tensor in a buffer.
typedef struct piece {
    int32_t resident, tensor_index, row_begin, row_count; // rows are counted in the stacked weight
    uint64_t begin; // offset of the form's balance, if it comes before the first rows; otherwise equal to `offset`
    uint64_t offset, bytes;
    bool is_direct; // the bytes are the form's
    int32_t type;   // SUMI_UPLOAD_*
} piece;

// What one worker does at a time: copy bytes, gather rows that lie in chunks, pack rows, convert rows to float, or
// compute a balance.
typedef struct item {
    const sumi_weight* weight; // NULL: copy bytes
    bool as_is;                // rows keep the type of the file
    bool is_packed;            // rows are packed (stored.h)
    bool is_balance;           // of `weight`, a norm's weight
    const unsigned char* from;
    unsigned char* to;
    uint64_t bytes;
    int32_t row_begin, row_count;
} item;

// A pinned buffer. pieces: of the newest batch.
typedef struct buffer {
    sumi_device_block pinned, raw;
    sumi_device_event* event;
    bool is_busy;
    int32_t piece_begin, piece_end;
} buffer;

// Buffers [0, made) exist. If there are too few, each call makes one more, because pinning one takes as long as a call
// may.
typedef struct sumi_device_upload {
    buffer buffers[BUFFER_COUNT];
    int32_t buffer_count, made, next; // buffer_count: the most
    uint64_t buffer_bytes;            // of every buffer
    uint64_t fill_bytes;              // of a buffer that are filled in this call
    bool converts;
    bool may_pin; // in this call
    uint64_t largest_row;
    const int32_t* list; // the list for which the buffer size was chosen
    piece pieces[MAX_PIECES];
    int32_t piece_count;
    item items[MAX_ITEMS];
    int32_t item_count;
    uint64_t used; // bytes used in the buffer that is being filled
} sumi_device_upload;

// Whether a tensor is uploaded in the type of its file, which the form keeps or the device converts. Otherwise the CPU
// converts it to float.
static bool keeps_type(const sumi_weight* weight, sumi_device_form form, const sumi_stacked_tensor* tensor,
                       int32_t* out_type)
{
    *out_type = SUMI_UPLOAD_F32;
    if (sumi_device_traits(form)->keeps_bytes) return true;
    switch (weight->change == NULL && sumi_stacked_tensor_is_plain(tensor) ? tensor->dtype : SUMI_DTYPE_NONE) {
    case SUMI_DTYPE_F32: return true;
    case SUMI_DTYPE_F16: *out_type = SUMI_UPLOAD_F16; return true;
    case SUMI_DTYPE_BF16: *out_type = SUMI_UPLOAD_BF16; return true;
    case SUMI_DTYPE_F8_E4M3: *out_type = SUMI_UPLOAD_E4M3; return true;
    case SUMI_DTYPE_F8_E5M2: *out_type = SUMI_UPLOAD_E5M2; return true;
    default: return false; // block types, int8, rare types, and sums with a change
    }
}

static bool is_packed(const sumi_weight* weight, sumi_device_form form, const sumi_stacked_tensor* tensor)
{
    return sumi_device_traits(form)->keeps_bytes && sumi_device_stored_is_packed(weight, tensor);
}

static uint64_t row_bytes_of(const sumi_weight* weight, sumi_device_form form, const sumi_stacked_tensor* tensor)
{
    int32_t type;
    if (is_packed(weight, form, tensor)) return sumi_device_stored_row_bytes(weight, tensor);
    return keeps_type(weight, form, tensor, &type) ? sumi_dtype_bytes(tensor->dtype, (uint64_t)weight->cols)
                                                   : (uint64_t)weight->cols * 4;
}

static bool is_direct(const sumi_device_resident* resident, const sumi_stacked_tensor* tensor)
{
    return !sumi_device_traits(resident->form)->is_gated
        && (sumi_device_keeps_bytes(resident->weight, resident->form, tensor)
            || is_packed(resident->weight, resident->form, tensor))
        && resident->on_device.pitch == resident->weight->cols;
}

static void free_buffer(sumi_device_weights* weights, buffer* s)
{
    SUMI_ASSERT(!s->is_busy || s->event != NULL);
    if (s->event != NULL) weights->port->functions->destroy_event(weights->port, s->event);
    sumi_device_release(weights->memory, &s->pinned);
    sumi_device_release(weights->memory, &s->raw);
    *s = (buffer){.event = NULL};
}

static void close_upload(sumi_device_weights* weights)
{
    sumi_device_upload* upload = weights->upload;
    if (upload == NULL) return;
    // after a failure, buffers may be in use that no event marks
    if (upload->made > 0 || weights->mapped_upload.count > 0)
        (void)weights->port->functions->wait_for_copies(weights->port, "copying weights to the device", NULL);
    sumi_device_mapped_upload_close(weights);
    while (upload->made > 0) free_buffer(weights, &upload->buffers[--upload->made]);
    sumi_free(weights->heap, upload);
    weights->upload = NULL;
}

void sumi_device_weights_settle(sumi_device_weights* weights) { close_upload(weights); }

void sumi_device_staging_add(sumi_device_staging* staging, const sumi_weight* weight, sumi_device_form form)
{
    for (int32_t p = 0; p < weight->tensor_count; p++) {
        const sumi_stacked_tensor* tensor = &weight->tensors[p];
        const uint64_t row = row_bytes_of(weight, form, tensor),
                       first_row = row + sumi_device_balance_bytes(weight, form);
        staging->largest_row = first_row > staging->largest_row ? first_row : staging->largest_row;
        staging->total += row * (uint64_t)tensor->rows + 256 + sumi_device_balance_bytes(weight, form);
        staging->converts = staging->converts || sumi_device_traits(form)->is_gated
                         || !(sumi_device_keeps_bytes(weight, form, tensor) || is_packed(weight, form, tensor))
                         || weight->cols % 8 != 0;
    }
}

// The buffers' size and number follow from the missing bytes, an eighth of them: an adapter of a few megabytes does not
// pin 32 MB, and the buffers do not take memory that a small model needs.
static uint64_t buffer_bytes_of(const sumi_device_staging* staging, bool is_paced)
{
    SUMI_ASSERT(staging->total > 0);
    const uint64_t most = is_paced ? BUFFER_BYTES : UNPACED_BUFFER_BYTES;
    uint64_t bytes = staging->total > 32 * SMALLEST_BUFFER ? staging->total / 32
                   : staging->total > SMALLEST_BUFFER      ? SMALLEST_BUFFER
                                                           : staging->total;
    bytes = bytes < most ? (bytes + 4095) / 4096 * 4096 : most;
    return bytes < staging->largest_row ? (staging->largest_row + 4095) / 4096 * 4096 : bytes;
}
static int32_t buffer_count_of(const sumi_device_staging* staging, uint64_t buffer_bytes)
{
    SUMI_ASSERT(buffer_bytes > 0);
    const uint64_t count = staging->total / 8 / buffer_bytes,
                   most = buffer_bytes > BUFFER_BYTES ? (uint64_t)BUFFER_BYTES * BUFFER_COUNT / buffer_bytes
                                                      : BUFFER_COUNT;
    return staging->total <= buffer_bytes                  ? 1
         : count < FEWEST_BUFFERS || most < FEWEST_BUFFERS ? FEWEST_BUFFERS
         : count < most                                    ? (int32_t)count
                                                           : (int32_t)most;
}
static uint64_t buffers_bytes_of(const sumi_device_staging* staging, bool is_paced)
{
    const uint64_t bytes = buffer_bytes_of(staging, is_paced);
    return bytes * (uint64_t)buffer_count_of(staging, bytes);
}
uint64_t sumi_device_staging_bytes(const sumi_device_staging* staging)
{
    if (!staging->converts) return 0; // a plan without weights has 0 bytes, from which a buffer size does not follow
    const uint64_t paced = buffers_bytes_of(staging, true), unpaced = buffers_bytes_of(staging, false);
    return paced > unpaced ? paced : unpaced;
}

static sumi_result make_buffer(sumi_device_weights* weights, sumi_error* error)
{
    sumi_device_upload* upload = weights->upload;
    buffer* s = &upload->buffers[upload->made++]; // counted now, so that a half-made buffer is freed too
    SUMI_TRY(weights->port->functions->make_event(weights->port, true, &s->event, error));
    SUMI_TRY(sumi_device_allocate(weights->memory, upload->buffer_bytes, SUMI_MEMORY_STAGING,
                                  "weights that are uploaded", &s->pinned, error));
    return upload->converts ? sumi_device_allocate(weights->memory, upload->buffer_bytes, SUMI_MEMORY_WEIGHTS,
                                                   "the conversion of weights", &s->raw, error)
                            : SUMI_OK;
}

// For the weights of the list from `from` on.
static sumi_result open_upload(sumi_device_weights* weights, const sumi_device_list* list, int32_t from,
                               sumi_error* error)
{
    SUMI_ASSERT(weights->upload == NULL && from >= 0 && from < list->count);
    sumi_device_staging staging = {0, 0, false};
    for (int32_t i = from; i < list->count; i++) {
        const sumi_device_resident* resident = &weights->residents[list->indices[i]];
        if (resident->rows_sent < resident->weight->rows)
            sumi_device_staging_add(&staging, resident->weight, resident->form);
    }
    sumi_device_upload* upload = sumi_alloc_zero(weights->heap, sizeof *upload);
    if (upload == NULL) return sumi_out_of_memory(error, sizeof *upload, "weights that are uploaded");
    weights->upload = upload;
    upload->list = list->indices;
    upload->buffer_bytes = buffer_bytes_of(&staging, weights->is_paced);
    upload->largest_row = staging.largest_row;
    upload->buffer_count = buffer_count_of(&staging, upload->buffer_bytes);
    upload->converts = staging.converts;
    SUMI_ASSERT(upload->buffer_count >= 1 && upload->buffer_count <= BUFFER_COUNT
                && upload->buffer_bytes >= staging.largest_row);
    return SUMI_OK;
}

// ---- Filling a buffer -----------------------------------------------------------------------------------------------

static void run_items(int32_t begin, int32_t end, int32_t worker_index, void* context)
{
    SUMI_ASSERT(begin >= 0 && begin <= end);
    (void)worker_index;
    const item* items = context;
    for (int32_t i = begin; i < end; i++) {
        const item* it = &items[i];
        if (it->weight == NULL) memcpy(it->to, it->from, (size_t)it->bytes);
        else if (it->is_balance) sumi_device_balance(it->weight, (float*)(void*)it->to);
        else if (it->is_packed) sumi_device_stored_pack(it->weight, it->row_begin, it->row_count, it->to);
        else if (it->as_is) sumi_weight_copy_rows(it->weight, it->row_begin, it->row_count, it->to);
        else sumi_weight_to_float(it->weight, it->row_begin, it->row_count, (float*)(void*)it->to, it->weight->cols);
    }
}

static void add_items(sumi_device_upload* upload, const sumi_device_resident* resident, const piece* p,
                      int32_t range_begin, unsigned char* buffer_memory)
{
    const sumi_weight* weight = resident->weight;
    const sumi_device_form form = resident->form;
    SUMI_ASSERT(upload->item_count >= 0 && p->row_count > 0 && p->row_begin >= range_begin);
    const sumi_stacked_tensor* tensor = &weight->tensors[p->tensor_index];
    unsigned char* to = buffer_memory + p->offset;
    int32_t type;
    const bool as_is = keeps_type(weight, form, tensor, &type), packs = is_packed(weight, form, tensor);
    const uint64_t row_bytes = row_bytes_of(weight, form, tensor);
    if (as_is && !packs && tensor->chunk == 0) {
        const unsigned char* from =
            (const unsigned char*)tensor->data + row_bytes * (uint64_t)(p->row_begin - range_begin);
        for (uint64_t done = 0; done < p->bytes; done += SUMI_DEVICE_ITEM_BYTES) {
            upload->items[upload->item_count++] =
                (item){.from = from + done,
                       .to = to + done,
                       .bytes = p->bytes - done < SUMI_DEVICE_ITEM_BYTES ? p->bytes - done : SUMI_DEVICE_ITEM_BYTES};
            SUMI_ASSERT(upload->item_count <= (int32_t)MAX_ITEMS);
        }
        return;
    }
    const int32_t step = row_bytes >= SUMI_DEVICE_ITEM_BYTES ? 1 : (int32_t)(SUMI_DEVICE_ITEM_BYTES / row_bytes);
    for (int32_t r = 0; r < p->row_count; r += step) {
        const int32_t rows = p->row_count - r < step ? p->row_count - r : step;
        upload->items[upload->item_count++] = (item){.weight = weight,
                                                     .as_is = as_is,
                                                     .is_packed = packs,
                                                     .to = to + row_bytes * (uint64_t)r,
                                                     .row_begin = p->row_begin + r,
                                                     .row_count = rows};
        SUMI_ASSERT(upload->item_count <= (int32_t)MAX_ITEMS);
    }
}

// The most items that the rows of a piece need (add_items).
static int32_t item_bound(uint64_t bytes, uint64_t row_bytes)
{
    // whole rows of floats; bytes need fewer items
    const uint64_t per_item =
        row_bytes >= SUMI_DEVICE_ITEM_BYTES ? SUMI_DEVICE_ITEM_BYTES : SUMI_DEVICE_ITEM_BYTES / row_bytes * row_bytes;
    return (int32_t)((bytes + per_item - 1) / per_item);
}

// Adds the next rows of a weight to the buffer as a piece. False: no more rows fit.
static bool add_piece(sumi_device_weights* weights, int32_t index, unsigned char* buffer_memory)
{
    SUMI_ASSERT(weights->upload->piece_count >= 0 && weights->upload->piece_count <= MAX_PIECES);
    SUMI_ASSERT(weights->residents[index].rows_sent < weights->residents[index].weight->rows);
    sumi_device_upload* upload = weights->upload;
    sumi_device_resident* resident = &weights->residents[index];
    const sumi_weight* weight = resident->weight;
    int32_t p = 0, range_begin = 0;
    while (p + 1 < weight->tensor_count && resident->rows_sent >= range_begin + weight->tensors[p].rows)
        range_begin += weight->tensors[p++].rows;
    const sumi_stacked_tensor* tensor = &weight->tensors[p];
    const uint64_t row_bytes = row_bytes_of(weight, resident->form, tensor), begin = (upload->used + 255) / 256 * 256,
                   offset = begin + (resident->rows_sent == 0 ? sumi_device_balance_bytes(weight, resident->form) : 0);
    const int32_t remaining_rows = range_begin + tensor->rows - resident->rows_sent;
    uint64_t rows = offset < upload->fill_bytes ? (upload->fill_bytes - offset) / row_bytes : 0;
    if (rows > (uint64_t)remaining_rows) rows = (uint64_t)remaining_rows;
    if (rows == 0 || upload->piece_count == MAX_PIECES
        || upload->item_count + item_bound(rows * row_bytes, row_bytes) + 1 > (int32_t)MAX_ITEMS)
        return false;
    piece* it = &upload->pieces[upload->piece_count++];
    *it = (piece){.resident = index,
                  .tensor_index = p,
                  .row_begin = resident->rows_sent,
                  .row_count = (int32_t)rows,
                  .begin = begin,
                  .offset = offset,
                  .bytes = rows * row_bytes};
    it->is_direct = is_direct(resident, tensor);
    (void)keeps_type(weight, resident->form, tensor, &it->type);
    if (begin < offset)
        upload->items[upload->item_count++] = (item){.weight = sumi_device_form_balance(weight, resident->form),
                                                     .is_balance = true,
                                                     .to = buffer_memory + begin};
    add_items(upload, resident, it, range_begin, buffer_memory);
    upload->used = offset + it->bytes;
    SUMI_ASSERT(upload->used <= upload->buffer_bytes);
    resident->rows_sent += (int32_t)rows;
    SUMI_ASSERT(resident->rows_sent <= weight->rows);
    return true;
}

// ---- Copying it -----------------------------------------------------------------------------------------------------

static sumi_result convert_piece(sumi_device_weights* weights, const piece* p, uint64_t raw, sumi_error* error)
{
    SUMI_ASSERT(raw != 0 && p->row_count > 0 && p->row_begin >= 0);
    const sumi_device_resident* resident = &weights->residents[p->resident];
    const sumi_device_form_traits* traits = sumi_device_traits(resident->form);
    const sumi_stacked_tensor* tensor = &resident->weight->tensors[p->tensor_index];
    int32_t type;
    sumi_upload_args args = {.from = raw + p->offset,
                             .to = resident->on_device.data,
                             .scales = resident->on_device.scales,
                             .balance = resident->on_device.balance,
                             .type = p->type,
                             .row_begin = p->row_begin,
                             .row_count = p->row_count,
                             .stack_rows = resident->weight->rows,
                             .cols = resident->weight->cols,
                             .pitch = resident->on_device.pitch,
                             .is_gated = traits->is_gated,
                             // the CPU's floats are scaled already
                             .scale =
                                 keeps_type(resident->weight, resident->form, tensor, &type) ? tensor->scale : 1.0f};
    const uint32_t blocks = traits->is_vector
                              ? (uint32_t)((resident->on_device.pitch + SUMI_UPLOAD_THREADS - 1) / SUMI_UPLOAD_THREADS)
                              : (uint32_t)p->row_count;
    const sumi_device_launch launch = {
        .kernel = traits->upload_kernel, .blocks = blocks, .threads = SUMI_UPLOAD_THREADS, .args = &args};
    SUMI_ASSERT(traits->upload_kernel != NULL); // otherwise the piece is copied as it is
    sumi_device_port* port = weights->port;
    const sumi_device_copy balance = {resident->on_device.balance, raw + p->begin,
                                      (uint64_t)resident->weight->cols * sizeof(float),
                                      "copying weights on the device"};
    if (p->begin < p->offset) // read by the kernel that converts the rows
        SUMI_TRY(port->functions->copy_within(port, &balance, error));
    return port->functions->launch(port, &launch, error);
}

// Where the bytes of a piece that needs no conversion are copied to.
static uint64_t direct_address(const sumi_device_resident* resident, const piece* p)
{
    const sumi_device_weight* destination = &resident->on_device;
    if (!sumi_device_traits(resident->form)->keeps_bytes)
        return destination->data + (uint64_t)p->row_begin * (uint64_t)destination->pitch * 2;
    sumi_device_stored_tensor tensors[SUMI_WEIGHT_MAX_TENSORS];
    uint64_t row = (uint64_t)p->row_begin;
    (void)sumi_device_stored_tensors(resident->weight, resident->form, tensors);
    for (int32_t i = 0; i < p->tensor_index; i++) row -= (uint64_t)tensors[i].rows;
    return destination->data + tensors[p->tensor_index].offset + row * tensors[p->tensor_index].row_bytes;
}

static sumi_result upload_buffer(sumi_device_weights* weights, buffer* s, sumi_error* error)
{
    SUMI_ASSERT(!s->is_busy && s->piece_begin <= s->piece_end && s->piece_end <= weights->upload->piece_count);
    const sumi_device_upload* upload = weights->upload;
    sumi_device_port* port = weights->port;
    const uint64_t pinned = s->pinned.address;
    for (int32_t i = s->piece_begin; i < s->piece_end;) {
        const piece* p = &upload->pieces[i];
        if (p->is_direct) {
            const sumi_device_copy copy = {direct_address(&weights->residents[p->resident], p), pinned + p->offset,
                                           p->bytes, "copying weights to the device"};
            SUMI_TRY(port->functions->copy_in(port, &copy, error));
            i++;
            continue;
        }
        uint64_t end = p->offset; // neighbouring pieces that are converted are copied together
        int32_t next = i;
        for (; next < s->piece_end && !upload->pieces[next].is_direct; next++)
            end = upload->pieces[next].offset + upload->pieces[next].bytes;
        const sumi_device_copy copy = {s->raw.address + p->begin, pinned + p->begin, end - p->begin,
                                       "copying weights to the device"};
        SUMI_TRY(port->functions->copy_in(port, &copy, error));
        for (; i < next; i++) SUMI_TRY(convert_piece(weights, &upload->pieces[i], s->raw.address, error));
    }
    SUMI_TRY(
        port->functions->record(port, s->event, SUMI_DEVICE_STREAM_COPIES, "copying weights to the device", error));
    s->is_busy = true;
    return SUMI_OK;
}

static sumi_result wait_for_buffer(const sumi_device_weights* weights, buffer* s, sumi_error* error)
{
    const bool was_busy = s->is_busy;
    s->is_busy = false;
    return was_busy ? weights->port->functions->wait(weights->port, s->event, "copying weights to the device", error)
                    : SUMI_OK;
}

static bool may_make_buffer(const sumi_device_weights* weights)
{
    const sumi_device_upload* upload = weights->upload;
    // An upload that began without a budget has large buffers. In a frame it continues with those that it has.
    const bool has_time = !weights->is_paced || upload->made == 0 || upload->buffer_bytes <= BUFFER_BYTES;
    return upload->may_pin && has_time && upload->next == upload->made && upload->made < upload->buffer_count;
}

// Takes the next buffer and waits until it is free.
static sumi_result take_buffer(sumi_device_weights* weights, uint64_t until_ns, buffer** out_buffer, sumi_error* error)
{
    sumi_device_upload* upload = weights->upload;
    if (may_make_buffer(weights)) {
        SUMI_TRY(make_buffer(weights, error));
        upload->may_pin = sumi_clock_ns() < until_ns;
    }
    if (upload->next == upload->made) upload->next = 0;
    *out_buffer = &upload->buffers[upload->next++];
    SUMI_ASSERT(upload->next <= upload->made && upload->made <= upload->buffer_count);
    return wait_for_buffer(weights, *out_buffer, error);
}

// Adds rows from the cursor on until the buffer is full or, if takes_mapped, the next weight is uploaded the other way.
static sumi_result fill_buffer(sumi_device_weights* weights, buffer* s, sumi_device_list* list, bool takes_mapped,
                               sumi_error* error)
{
    SUMI_ASSERT(!s->is_busy && list->cursor >= 0 && list->cursor <= list->count);
    sumi_device_upload* upload = weights->upload;
    s->piece_begin = s->piece_end = upload->piece_count;
    upload->used = 0;
    for (; list->cursor < list->count; list->cursor++) {
        const int32_t index = list->indices[list->cursor];
        const sumi_device_resident* resident = &weights->residents[index];
        if (resident->on_device.data == 0) SUMI_TRY(sumi_device_weights_allocate(weights, list, error));
        if (takes_mapped && sumi_device_mapped_upload_takes(weights, index)) break;
        while (resident->rows_sent < resident->weight->rows && add_piece(weights, index, sumi_device_host(&s->pinned)))
            continue;
        if (resident->rows_sent < resident->weight->rows) break;
    }
    s->piece_end = upload->piece_count;
    return SUMI_OK;
}

// Uploads the next weight from the mapping of its file. *out_taken: it is uploaded that way.
static sumi_result upload_mapped(sumi_device_weights* weights, sumi_device_list* list, uint64_t until_ns,
                                 bool* out_taken, sumi_error* error)
{
    const int32_t index = list->indices[list->cursor];
    *out_taken = sumi_device_mapped_upload_takes(weights, index);
    if (*out_taken && weights->residents[index].on_device.data == 0) {
        SUMI_TRY(sumi_device_weights_allocate(weights, list, error));
        *out_taken = sumi_device_mapped_upload_takes(weights, index); // its rows may be padded on the device
    }
    if (!*out_taken) return SUMI_OK;
    bool is_sent = false;
    SUMI_TRY(sumi_device_mapped_upload_step(weights, index, until_ns, &is_sent, error));
    if (is_sent) list->cursor++;
    return SUMI_OK;
}

// Uploads one batch: buffers that the workers fill together, from the cursor on. A batch is at most half of all
// buffers, so that the device copies the other half meanwhile.
static sumi_result upload_batch(sumi_device_weights* weights, sumi_device_list* list, sumi_device_budget budget,
                                bool takes_mapped, sumi_error* error)
{
    SUMI_ASSERT(weights->upload != NULL && list->cursor >= 0 && list->cursor < list->count);
    sumi_device_upload* upload = weights->upload;
    buffer* batch[BUFFER_COUNT];
    const uint64_t max_bytes =
        (uint64_t)budget.us * SUMI_DEVICE_SLOWEST_BYTES_PER_US * (uint64_t)sumi_workers_count(weights->workers);
    const uint64_t max_buffers = (max_bytes < BATCH_BYTES ? max_bytes : BATCH_BYTES) / upload->buffer_bytes;
    const uint64_t frame_bytes = upload->largest_row > BUFFER_BYTES ? upload->largest_row : BUFFER_BYTES;
    upload->fill_bytes = weights->is_paced && frame_bytes < upload->buffer_bytes ? frame_bytes : upload->buffer_bytes;
    upload->piece_count = upload->item_count = 0;
    sumi_result result = SUMI_OK;
    const bool could_pin = upload->may_pin;
    sumi_device_list next = *list; // the cursor moves when all was submitted
    int32_t batch_count = 0;
    for (bool is_more = true; is_more && result == SUMI_OK;) {
        SUMI_ASSERT(batch_count < BUFFER_COUNT);
        result = take_buffer(weights, budget.until_ns, &batch[batch_count], error);
        if (result == SUMI_OK) result = fill_buffer(weights, batch[batch_count], &next, takes_mapped, error);
        // no rows are left, or no more pieces fit
        if (result != SUMI_OK || batch[batch_count]->piece_begin == batch[batch_count]->piece_end) break;
        batch_count++;
        const bool can_take_buffer = 2 * (batch_count + 1) <= upload->made
                                  || (2 * (batch_count + 1) <= upload->buffer_count && may_make_buffer(weights));
        // pinning a buffer has used up the time
        is_more = can_take_buffer && (uint64_t)batch_count < max_buffers && upload->may_pin == could_pin;
    }
    // impossible; without this check a caller would loop forever
    if (result == SUMI_OK && batch_count == 0 && next.cursor == list->cursor)
        result = sumi_fail(error, SUMI_INTERNAL, "a row of a weight does not fit a staging buffer");
    if (result == SUMI_OK && batch_count > 0)
        sumi_parallel(weights->workers, upload->item_count, 1, run_items, upload->items);
    for (int32_t i = 0; i < batch_count && result == SUMI_OK; i++) result = upload_buffer(weights, batch[i], error);
    if (result != SUMI_OK) { // rows that were not sent must be sent again
        for (int32_t i = upload->piece_count - 1; i >= 0; i--)
            weights->residents[upload->pieces[i].resident].rows_sent = upload->pieces[i].row_begin;
        return result;
    }
    list->cursor = next.cursor;
    return SUMI_OK;
}

// Frees buffer by buffer while there is time, at least one, because unpinning takes the caller's time too.
static sumi_result finish_upload(sumi_device_weights* weights, uint64_t until_ns, bool* out_done, sumi_error* error)
{
    sumi_device_upload* upload = weights->upload;
    *out_done = false;
    bool is_unlocked = true;
    if (upload != NULL) SUMI_TRY(sumi_device_mapped_upload_finish(weights, until_ns, &is_unlocked, error));
    if (!is_unlocked) return SUMI_OK;
    for (bool is_first = true; upload != NULL && upload->made > 0; is_first = false) {
        buffer* s = &upload->buffers[upload->made - 1];
        if (sumi_clock_ns() >= until_ns) {
            bool has_passed = true;
            if (is_first && s->is_busy)
                SUMI_TRY(weights->port->functions->query(weights->port, s->event, &has_passed,
                                                         "copying weights to the device", error));
            if (!is_first || !has_passed) return SUMI_OK;
        }
        SUMI_TRY(wait_for_buffer(weights, s, error));
        free_buffer(weights, s);
        upload->made--;
        upload->next = 0;
    }
    close_upload(weights);
    *out_done = true;
    return SUMI_OK;
}

static bool was_sent(const sumi_device_weights* weights, int32_t index)
{
    return weights->residents[index].rows_sent >= weights->residents[index].weight->rows;
}

sumi_result sumi_device_weights_upload(sumi_device_weights* weights, sumi_device_list* list, sumi_device_budget budget,
                                       bool* out_done, sumi_error* error)
{
    SUMI_ASSERT(list->cursor >= 0 && list->cursor <= list->count);
    *out_done = false;
    while (list->cursor < list->count && was_sent(weights, list->indices[list->cursor])) list->cursor++;
    // the unfinished list of another plan
    if (list->cursor < list->count && weights->upload != NULL && weights->upload->list != list->indices) {
        bool is_over = false;
        SUMI_TRY(finish_upload(weights, budget.until_ns, &is_over, error));
        if (!is_over) return SUMI_OK;
    }
    sumi_result result = list->cursor < list->count && weights->upload == NULL
                           ? open_upload(weights, list, list->cursor, error)
                           : SUMI_OK;
    if (weights->upload != NULL) weights->upload->may_pin = true;
    while (result == SUMI_OK && list->cursor < list->count) {
        bool is_mapped = false;
        result = upload_mapped(weights, list, budget.until_ns, &is_mapped, error);
        if (result == SUMI_OK && !is_mapped) result = upload_batch(weights, list, budget, true, error);
        if (result == SUMI_OK && sumi_clock_ns() >= budget.until_ns) return SUMI_OK;
    }
    if (result != SUMI_OK) {
        close_upload(weights);
        return result;
    }
    return finish_upload(weights, budget.until_ns, out_done, error);
}

sumi_result sumi_device_weights_upload_to(sumi_device_weights* weights, const sumi_device_list* list, uint64_t address,
                                          sumi_error* error)
{
    SUMI_ASSERT(list->cursor >= 0 && list->cursor < list->count && address != 0);
    sumi_device_resident* resident = &weights->residents[list->indices[list->cursor]];
    // a plan under a larger memory limit has left it on the device
    if (resident->on_device.data != 0 && was_sent(weights, list->indices[list->cursor])) {
        const sumi_device_copy copy = {address, resident->on_device.data, resident->bytes,
                                       "copying weights on the device"};
        return weights->port->functions->copy_within(weights->port, &copy, error);
    }
    if (weights->upload != NULL && weights->upload->list != list->indices) close_upload(weights);
    sumi_result result = weights->upload == NULL ? open_upload(weights, list, 0, error) : SUMI_OK;
    const sumi_device_weight previous_weight = resident->on_device;
    const int32_t previous_rows_sent = resident->rows_sent;
    resident->on_device = sumi_device_weight_at(address, resident->weight, resident->form);
    resident->rows_sent = 0;
    if (weights->upload != NULL) weights->upload->may_pin = true;
    sumi_device_list one = {list->indices, list->cursor + 1, list->cursor};
    while (result == SUMI_OK && one.cursor < one.count)
        result = upload_batch(weights, &one, (sumi_device_budget){0, UINT32_MAX}, false, error);
    resident->on_device = previous_weight;
    resident->rows_sent = previous_rows_sent;
    if (result != SUMI_OK) close_upload(weights);
    return result;
}
