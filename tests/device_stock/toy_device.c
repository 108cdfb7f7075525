#include "toy_device.h"
#include <stdlib.h>
#include <string.h>

struct sumi_device_event {
    sumi_device_stream stream; // of the newest record
    uint64_t recorded, passed; // numbers of records
};

typedef enum toy_kind { COPY, CONVERT, RECORD, ORDER, WORK } toy_kind;

typedef struct toy_command {
    struct toy_command* next;
    toy_kind kind;
    bool from_host, to_host;
    sumi_device_rows rows;       // COPY
    sumi_upload_args args;       // CONVERT
    const char* kernel;          // CONVERT
    sumi_device_event* event;    // RECORD, ORDER
    uint64_t number;             // of the record
    void (*work)(void* context); // WORK
    void* context;
} toy_command;

static toy_device* toy_of(sumi_device_port* port) { return (toy_device*)port; }

// Whether the next call that may fail does.
static bool fails(toy_device* toy) { return ++toy->calls == toy->fail_at; }

// ---- Memory ---------------------------------------------------------------------------------------------------------

static sumi_result toy_allocate(sumi_device_port* port, sumi_device_block* block, const char* what, sumi_error* error)
{
    toy_device* toy = toy_of(port);
    const bool is_host = block->kind == SUMI_MEMORY_STAGING;
    uint64_t* held = is_host ? &toy->pinned : &toy->held;
    (void)error;
    block->address = 0;
    if (fails(toy)) return SUMI_OK;
    const bool is_over = !is_host && toy->limit_bytes != 0 && toy->held + block->bytes > toy->limit_bytes;
    if (is_over) toy_violate(toy, "more memory than the limit");
    const bool is_piece = is_host && strcmp(what, "weights that are streamed") == 0;
    if (is_piece && toy->pieces_left == 0) return SUMI_OK;
    toy->pieces_left -= is_piece;
    unsigned char* memory = malloc((size_t)block->bytes + 512);
    memset(memory, 0xa5, (size_t)block->bytes + 512);
    block->address = (sumi_device_address(memory) + 511) / 512 * 512;
    *held += block->bytes;
    toy_add_block(toy, block->address, block->bytes, is_host, memory);
    return SUMI_OK;
}

static void toy_release(sumi_device_port* port, const sumi_device_block* block)
{
    toy_device* toy = toy_of(port);
    toy_finish(toy);
    *(block->kind == SUMI_MEMORY_STAGING ? &toy->pinned : &toy->held) -= block->bytes;
    toy_remove_block(toy, block->address);
}

static bool toy_release_behind(sumi_device_port* port, const sumi_device_block* block) { return port == NULL && block; }

static bool toy_count_free(sumi_device_port* port, uint64_t* out_free_bytes, uint64_t* out_total_bytes)
{
    *out_total_bytes = toy_of(port)->limit_bytes;
    *out_free_bytes = *out_total_bytes - toy_of(port)->held;
    return *out_total_bytes != 0;
}

// ---- Commands -------------------------------------------------------------------------------------------------------

static void convert(toy_device* toy, const toy_command* c)
{
    const bool is_live_from = toy_is_live(toy, c->args.from, toy_upload_bytes(&c->args), false);
    if (is_live_from && toy_is_live(toy, c->args.to, 8, false)) toy_upload(c->kernel, &c->args);
    else toy_violate(toy, "a kernel gets memory that is not live");
}

static void copy(toy_device* toy, const toy_command* c)
{
    const sumi_device_rows* r = &c->rows;
    for (uint64_t i = 0; i < r->row_count; i++) {
        const uint64_t to = r->to + i * r->to_pitch, from = r->from + i * r->from_pitch;
        if (toy_is_live(toy, to, r->row_bytes, c->to_host) && toy_is_live(toy, from, r->row_bytes, c->from_host))
            memcpy((void*)(uintptr_t)to, (const void*)(uintptr_t)from, (size_t)r->row_bytes);
        else toy_violate(toy, "a copy of memory that is not live");
    }
}

static void run_until(toy_device* toy, const sumi_device_event* event, uint64_t number);

// Runs the oldest command of a stream. False: there is none.
static bool run_one(toy_device* toy, sumi_device_stream stream)
{
    toy_command* c = toy->first[stream];
    if (c == NULL) return false;
    toy->first[stream] = c->next;
    if (c->next == NULL) toy->last[stream] = NULL;
    if (c->kind == COPY) copy(toy, c);
    if (c->kind == CONVERT) convert(toy, c);
    if (c->kind == RECORD) c->event->passed = c->number;
    if (c->kind == ORDER) run_until(toy, c->event, c->number);
    if (c->kind == WORK) c->work(c->context);
    free(c);
    return true;
}

static void run_until(toy_device* toy, const sumi_device_event* event, uint64_t number)
{
    while (event->passed < number && run_one(toy, event->stream)) continue;
    if (event->passed < number) toy_violate(toy, "an event is waited for that no command records");
}

void toy_finish(toy_device* toy)
{
    while (run_one(toy, SUMI_DEVICE_STREAM_COMPUTE) || run_one(toy, SUMI_DEVICE_STREAM_COPIES)) continue;
}

static void submit(toy_device* toy, sumi_device_stream stream, toy_command command)
{
    toy_command* c = malloc(sizeof *c);
    *c = command;
    c->next = NULL;
    if (toy->last[stream] != NULL) toy->last[stream]->next = c;
    else toy->first[stream] = c;
    toy->last[stream] = c;
    const bool is_late = (stream == SUMI_DEVICE_STREAM_COPIES) == (toy->lateness == TOY_COPIES_LATE);
    while (!is_late && run_one(toy, stream)) continue;
}

void toy_submit(toy_device* toy, void (*work)(void* context), void* context)
{
    submit(toy, SUMI_DEVICE_STREAM_COMPUTE, (toy_command){.kind = WORK, .work = work, .context = context});
}

// ---- Copies and kernels ---------------------------------------------------------------------------------------------

static sumi_result refuse(toy_device* toy, const char* what, sumi_error* error)
{
    return fails(toy) ? sumi_fail(error, SUMI_INTERNAL, "%s: the toy fails", what) : SUMI_OK;
}

static sumi_result enqueue(sumi_device_port* port, sumi_device_stream stream, toy_command command, const char* what,
                           sumi_error* error)
{
    SUMI_TRY(refuse(toy_of(port), what, error));
    submit(toy_of(port), stream, command);
    return SUMI_OK;
}

static toy_command copy_of(const sumi_device_copy* copy, bool from_host, bool to_host)
{
    const sumi_device_rows rows = {.to = copy->to, .from = copy->from, .row_bytes = copy->bytes, .row_count = 1};
    return (toy_command){.kind = COPY, .from_host = from_host, .to_host = to_host, .rows = rows};
}

static sumi_result toy_copy_in(sumi_device_port* port, const sumi_device_copy* copy, sumi_error* error)
{
    return enqueue(port, SUMI_DEVICE_STREAM_COPIES, copy_of(copy, true, false), copy->what, error);
}

static sumi_result toy_copy_rows_in(sumi_device_port* port, const sumi_device_rows* rows, sumi_error* error)
{
    const toy_command command = {.kind = COPY, .from_host = true, .rows = *rows};
    return enqueue(port, SUMI_DEVICE_STREAM_COPIES, command, rows->what, error);
}

static sumi_result toy_copy_within(sumi_device_port* port, const sumi_device_copy* copy, sumi_error* error)
{
    return enqueue(port, SUMI_DEVICE_STREAM_COPIES, copy_of(copy, false, false), copy->what, error);
}

static sumi_result toy_copy_out(sumi_device_port* port, const sumi_device_copy* copy, sumi_error* error)
{
    return enqueue(port, SUMI_DEVICE_STREAM_COPIES, copy_of(copy, false, true), copy->what, error);
}

static sumi_result toy_launch(sumi_device_port* port, const sumi_device_launch* launch, sumi_error* error)
{
    const sumi_upload_args* args = launch->args;
    const toy_command command = {.kind = CONVERT, .args = *args, .kernel = launch->kernel};
    return enqueue(port, SUMI_DEVICE_STREAM_COPIES, command, launch->kernel, error);
}

// ---- Events ---------------------------------------------------------------------------------------------------------

static sumi_result toy_make_event(sumi_device_port* port, bool sleeps, sumi_device_event** out_event, sumi_error* error)
{
    (void)sleeps;
    *out_event = NULL;
    SUMI_TRY(refuse(toy_of(port), "making an event", error));
    *out_event = calloc(1, sizeof **out_event);
    toy_of(port)->events++;
    return SUMI_OK;
}

static void toy_destroy_event(sumi_device_port* port, sumi_device_event* event)
{
    toy_finish(toy_of(port));
    free(event);
    toy_of(port)->events--;
}

static sumi_result toy_record(sumi_device_port* port, sumi_device_event* event, sumi_device_stream stream,
                              const char* what, sumi_error* error)
{
    SUMI_TRY(refuse(toy_of(port), what, error));
    event->stream = stream;
    submit(toy_of(port), stream, (toy_command){.kind = RECORD, .event = event, .number = ++event->recorded});
    return SUMI_OK;
}

static sumi_result toy_query(sumi_device_port* port, sumi_device_event* event, bool* out_passed, const char* what,
                             sumi_error* error)
{
    SUMI_TRY(refuse(toy_of(port), what, error));
    *out_passed = event->passed == event->recorded;
    (void)run_one(toy_of(port), event->stream); // it passes at some later query
    return SUMI_OK;
}

static sumi_result toy_wait(sumi_device_port* port, sumi_device_event* event, const char* what, sumi_error* error)
{
    SUMI_TRY(refuse(toy_of(port), what, error));
    run_until(toy_of(port), event, event->recorded);
    return SUMI_OK;
}

static sumi_result toy_order(sumi_device_port* port, sumi_device_stream stream, sumi_device_event* event,
                             const char* what, sumi_error* error)
{
    const toy_command command = {.kind = ORDER, .event = event, .number = event->recorded};
    return enqueue(port, stream, command, what, error);
}

static sumi_result toy_wait_for_copies(sumi_device_port* port, const char* what, sumi_error* error)
{
    while (run_one(toy_of(port), SUMI_DEVICE_STREAM_COPIES)) continue;
    return refuse(toy_of(port), what, error);
}

static void toy_wait_for_all(sumi_device_port* port) { toy_finish(toy_of(port)); }

// ---- Page locks and plans -------------------------------------------------------------------------------------------

static bool toy_can_lock_pages(sumi_device_port* port) { return toy_of(port)->locks_pages; }

static sumi_result toy_lock_pages(sumi_device_port* port, void* begin, uint64_t bytes, bool* out_locked,
                                  sumi_error* error)
{
    *out_locked = false;
    (void)error;
    if (fails(toy_of(port))) return SUMI_OK; // as a file system whose pages cannot be locked
    if (toy_is_live(toy_of(port), sumi_device_address(begin), bytes, true))
        toy_violate(toy_of(port), "pages are locked twice");
    toy_add_block(toy_of(port), sumi_device_address(begin), bytes, true, NULL);
    *out_locked = true;
    return SUMI_OK;
}

static void toy_unlock_pages(sumi_device_port* port, void* begin)
{
    toy_remove_block(toy_of(port), sumi_device_address(begin));
}

static void toy_drop_recordings(sumi_device_port* port, struct sumi_device_plan* plan) { (void)port, (void)plan; }

static const sumi_device_port_functions s_functions = {
    toy_allocate,    toy_release,      toy_release_behind, toy_count_free,      toy_copy_in,       toy_copy_rows_in,
    toy_copy_within, toy_copy_out,     toy_launch,         toy_make_event,      toy_destroy_event, toy_record,
    toy_query,       toy_wait,         toy_order,          toy_wait_for_copies, toy_wait_for_all,  toy_can_lock_pages,
    toy_lock_pages,  toy_unlock_pages, toy_drop_recordings};

void toy_open(toy_device* toy, toy_lateness lateness)
{
    *toy = (toy_device){.port = {&s_functions}, .lateness = lateness, .locks_pages = true, .pieces_left = -1};
}

void toy_close(toy_device* toy)
{
    toy_finish(toy);
    if (toy->blocks != 0 || toy->events != 0) toy_violate(toy, "something is still alive");
}
