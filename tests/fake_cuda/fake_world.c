// The fake device: what is alive, what streams have to do, and what a test asks about it.
#include "fake_state.h"
#include "fake_system.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fake_world fake;

uint64_t fake_now_ns(void) { return fake.clock != NULL ? fake.clock->now_ns() : fake_system_now_ns(); }

void fake_pass_ns(uint64_t ns)
{
    if (ns == 0) return;
    if (fake.clock != NULL) fake.clock->pass_ns(ns);
    else fake_system_sleep_ns(ns);
}

void fake_lock(void) { fake_system_lock(); }
void fake_unlock(void) { fake_system_unlock(); }

void fake_violation(const char* format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("  fake driver: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
    fake.violations++;
}

// ---- Objects --------------------------------------------------------------------------------------------------------

// Thousands live at times, and every call looks some up.
static fake_object** bucket_of(const void* handle)
{
    return &fake.buckets[(uint64_t)(uintptr_t)handle * 0x9E3779B97F4A7C15u >> 54];
}

void* fake_make(size_t bytes, fake_kind kind)
{
    fake_object* object = calloc(1, bytes);
    if (object == NULL) abort();
    object->kind = kind;
    object->number = ++fake.made_count[kind];
    object->next = fake.alive;
    if (fake.alive != NULL) fake.alive->previous = object;
    fake.alive = object;
    fake_object** bucket = bucket_of(object);
    object->next_in_bucket = *bucket;
    *bucket = object;
    fake.alive_count[kind]++;
    fake_log_object(" makes ", object);
    return object;
}

bool fake_is_alive(const void* handle, fake_kind kind)
{
    for (const fake_object* object = *bucket_of(handle); object != NULL; object = object->next_in_bucket) {
        if (object == handle) return object->kind == kind;
    }
    return false;
}

// The first block whose memory begins behind `memory`.
static int first_block_behind(const void* memory)
{
    int low = 0, high = fake.block_count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if ((uintptr_t)fake.blocks[middle]->memory <= (uintptr_t)memory) low = middle + 1;
        else high = middle;
    }
    return low;
}

fake_block* fake_make_block(fake_kind kind, unsigned char* memory, size_t bytes)
{
    fake_block* block = fake_make(sizeof *block, kind);
    block->memory = memory;
    block->bytes = bytes;
    fake_log_add(" of %llu bytes", (unsigned long long)bytes);
    if (fake.block_count == fake.block_capacity) {
        fake.block_capacity = fake.block_capacity == 0 ? 64 : 2 * fake.block_capacity;
        fake.blocks = realloc(fake.blocks, (size_t)fake.block_capacity * sizeof *fake.blocks);
        if (fake.blocks == NULL) abort();
    }
    const int place = first_block_behind(memory);
    memmove(fake.blocks + place + 1, fake.blocks + place, (size_t)(fake.block_count - place) * sizeof *fake.blocks);
    fake.blocks[place] = block;
    fake.block_count++;
    return block;
}

void fake_unmake(void* handle)
{
    fake_object* object = handle;
    fake_log_object(" ends ", object);
    fake_object** link = bucket_of(object);
    while (*link != object) link = &(*link)->next_in_bucket;
    *link = object->next_in_bucket;
    if (object->kind == FAKE_DEVICE_BLOCK || object->kind == FAKE_PINNED_BLOCK || object->kind == FAKE_LOCKED_BLOCK
        || object->kind == FAKE_MAPPED_BLOCK) {
        int place = 0;
        while (fake.blocks[place] != handle) place++;
        memmove(fake.blocks + place, fake.blocks + place + 1,
                (size_t)(fake.block_count - place - 1) * sizeof *fake.blocks);
        fake.block_count--;
    }
    if (object->previous != NULL) object->previous->next = object->next;
    else fake.alive = object->next;
    if (object->next != NULL) object->next->previous = object->previous;
    fake.alive_count[object->kind]--;
    free(object);
}

void fake_free_block(fake_block* block)
{
    const int slot = fake.freed_count++ % 256;
    fake.freed[slot].memory = block->memory;
    fake.freed[slot].bytes = block->bytes;
    fake.block_bytes -= block->bytes;
    if (block->object.kind == FAKE_DEVICE_BLOCK) fake.device_block_bytes -= block->bytes;
    fake_system_release(block->memory, block->bytes);
    fake_unmake(block);
}

static bool holds(const unsigned char* memory, size_t bytes, const void* from, size_t count)
{
    const uintptr_t begin = (uintptr_t)memory, at = (uintptr_t)from;
    return at >= begin && at - begin <= bytes && count <= bytes - (at - begin);
}

fake_block* fake_find_block(const void* memory, size_t bytes)
{
    const int behind = first_block_behind(memory);
    fake_block* block = behind > 0 ? fake.blocks[behind - 1] : NULL;
    return block != NULL && holds(block->memory, block->bytes, memory, bytes) ? block : NULL;
}

static bool points_to_freed(uint64_t value)
{
    const void* memory = (const void*)(uintptr_t)value;
    if (value < 4096 || fake_find_block(memory, 1) != NULL) return false;
    int known = fake.freed_count < 256 ? fake.freed_count : 256;
    for (int i = 0; i < known; i++) {
        if (holds(fake.freed[i].memory, fake.freed[i].bytes, memory, 1)) return true;
    }
    return false;
}

// ---- Work -----------------------------------------------------------------------------------------------------------

fake_node* fake_new_node(fake_node_kind kind)
{
    fake_node* node = calloc(1, sizeof *node);
    if (node == NULL) abort();
    node->kind = kind;
    return node;
}

static void free_node(fake_node* node)
{
    free(node->data);
    free(node);
}

void fake_append(fake_list* list, fake_node* node)
{
    node->next = NULL;
    if (list->last != NULL) list->last->next = node;
    else list->first = node;
    list->last = node;
}

void fake_copy_nodes(fake_list* to, const fake_list* from)
{
    for (const fake_node* node = from->first; node != NULL; node = node->next) {
        fake_node* copy = fake_new_node(node->kind);
        *copy = *node;
        if (node->data != NULL) {
            copy->data = malloc(node->data_bytes + 1);
            if (copy->data == NULL) abort();
            memcpy(copy->data, node->data, node->data_bytes);
        }
        fake_append(to, copy);
    }
}

void fake_free_nodes(fake_list* list)
{
    for (fake_node* next; list->first != NULL; list->first = next) {
        next = list->first->next;
        free_node(list->first);
    }
    list->last = NULL;
}

static void run_kernel(const fake_node* node)
{
    for (size_t at = 0; at + 8 <= node->data_bytes; at += 8) {
        uint64_t value;
        memcpy(&value, node->data + at, sizeof value);
        if (points_to_freed(value))
            fake_violation("%s is given an address of memory that was freed (byte %zu of its parameters)", node->name,
                           at);
    }
    if (strcmp(node->name, "sumi_empty") == 0) {
        if (fake.clock_ms < fake.host_ends_ms) fake.clock_ms = fake.host_ends_ms;
        fake.clock_ms += fake.delay_ms + 0.003;
        return;
    }
    if (fake.on_launch != NULL) fake.on_launch(node->name, node->data, node->data_bytes, fake.launch_user);
    uint64_t hash = fake.launch_hash;
    for (const char* c = node->name; *c != 0; c++) hash = hash * 1099511628211u + (unsigned char)*c;
    for (int i = 0; i < 3; i++) hash = (hash * 1099511628211u + node->grid[i]) * 1099511628211u + node->block[i];
    fake.launch_hash = hash;
    fake.launch_count++;
    memcpy(fake.last_kernel, node->name, sizeof fake.last_kernel);
    if (fake.clock_ms < fake.host_ends_ms) fake.clock_ms = fake.host_ends_ms;
    fake.clock_ms += fake.kernel_ms != NULL ? fake.kernel_ms[fake.kernel_ms_next++ % fake.kernel_ms_count] : 0.01;
}

static bool can_write(const fake_node* node, size_t bytes, const char* what)
{
    if (fake_find_block(node->to, bytes) != NULL) return true;
    fake_violation("%s of %zu bytes to %p: not all of it is live memory", what, bytes, (void*)node->to);
    return false;
}

static void run_first(fake_stream* stream);
static bool is_blocked(const fake_stream* stream);

static void run_node(fake_node* node)
{
    switch (node->kind) {
    case FAKE_KERNEL: run_kernel(node); break;
    case FAKE_COPY:
        // From a snapshot, or from live memory; to pinned or device memory, but for the pageable kind, which was waited
        // for.
        if (node->data != NULL) {
            if (can_write(node, node->bytes, "a copy")) memcpy(node->to, node->data, node->bytes);
        } else if (node->value != FAKE_FROM_TEXTURE && fake_find_block(node->from, node->bytes) == NULL) {
            fake_violation("a copy of %zu bytes from %p: not all of it is live memory", node->bytes, (void*)node->from);
        } else if (node->value == 1 || can_write(node, node->bytes, "a copy")) {
            memmove(node->to, node->from, node->bytes);
        }
        break;
    case FAKE_SET8:
        if (can_write(node, node->bytes, "a fill")) memset(node->to, (int)(node->value & 255u), node->bytes);
        break;
    case FAKE_SET32:
        if (can_write(node, node->bytes, "a fill")) {
            for (size_t i = 0; i < node->bytes; i += 4) memcpy(node->to + i, &node->value, 4);
        }
        break;
    case FAKE_FREE: fake_free_block(fake_find_block(node->to, 1)); break;
    case FAKE_RECORD:
        fake.clock_ms += 0.001;
        if (fake_is_alive(node->event, FAKE_EVENT)) node->event->done_ticket = node->ticket;
        if (fake_is_alive(node->event, FAKE_EVENT) && node->event->ticket == node->ticket) {
            node->event->is_done = true;
            node->event->ms = fake.kernel_us > 0 ? 1e-6 * (double)node->event->ready_ns : fake.clock_ms;
        }
        break;
    case FAKE_WAIT:
        // The record that was the newest when the wait was submitted: the event may have been recorded again since.
        while (fake_is_alive(node->event, FAKE_EVENT) && node->event->done_ticket < node->ticket
               && fake_is_alive(node->event->stream, FAKE_STREAM) && node->event->stream->queue.first != NULL)
            run_first(node->event->stream);
        break;
    case FAKE_WAIT_SHARED:
        if (node->shared->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD
            || node->shared->type == CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_WIN32)
            node->shared->value = 0;                         // binary: it is unsignalled again
        if (node->has_key) node->shared->value = UINT64_MAX; // held, until it is released with a key
        break;
    case FAKE_SIGNAL_SHARED:
        if (!node->has_key && node->shared->value >= node->ticket)
            fake_violation("a semaphore is signalled with %llu, and has %llu already", (unsigned long long)node->ticket,
                           (unsigned long long)node->shared->value);
        node->shared->value = node->ticket;
        if (fake.on_signal != NULL) fake.on_signal((int)(node->shared - fake.shared) + 1, fake.signal_user);
        break;
    }
}

static void run_first(fake_stream* stream)
{
    fake_node* node = stream->queue.first;
    stream->queue.first = node->next;
    if (node->next == NULL) stream->queue.last = NULL;
    if (fake.kernel_us > 0) {
        const uint64_t now = fake_now_ns();
        if (stream->busy_until_ns < now) stream->busy_until_ns = now;
        if (node->kind == FAKE_KERNEL) stream->busy_until_ns += (uint64_t)fake.kernel_us * 1000;
    }
    if (node->kind == FAKE_RECORD && fake_is_alive(node->event, FAKE_EVENT))
        node->event->ready_ns = stream->busy_until_ns;
    run_node(node);
    free_node(node);
}

// Whether the first node waits for a semaphore of the host program's that it has not signalled, itself or in the stream
// of an event.
static bool is_blocked(const fake_stream* stream)
{
    const fake_node* node = stream->queue.first;
    if (node == NULL) return false;
    if (node->kind == FAKE_WAIT_SHARED)
        return node->has_key ? node->shared->value != node->ticket : node->shared->value < node->ticket;
    if (node->kind != FAKE_WAIT || !fake_is_alive(node->event, FAKE_EVENT)
        || !fake_is_alive(node->event->stream, FAKE_STREAM))
        return false;
    while (node->event->done_ticket < node->ticket && node->event->stream->queue.first != NULL) {
        if (is_blocked(node->event->stream)) return true;
        run_first(node->event->stream);
    }
    return false;
}

void fake_drain(fake_stream* stream)
{
    while (stream->queue.first != NULL && !is_blocked(stream)) run_first(stream);
}

void fake_drain_event(fake_event* event)
{
    if (event->is_done || event->ticket == 0 || !fake_is_alive(event->stream, FAKE_STREAM)) return;
    while (!event->is_done && event->stream->queue.first != NULL && !is_blocked(event->stream))
        run_first(event->stream);
}

void fake_drain_all(void)
{
    for (fake_object* object = fake.alive; object != NULL; object = object->next) {
        if (object->kind == FAKE_STREAM) fake_drain((fake_stream*)object);
    }
}

void fake_submit(fake_stream* stream, fake_node* node)
{
    fake_log_node(node, stream->capture != NULL);
    fake_submit_again(stream, node);
}

void fake_submit_again(fake_stream* stream, fake_node* node)
{
    if (stream->capture != NULL) {
        fake_append(&stream->capture->nodes, node);
        return;
    }
    fake_append(&stream->queue, node);
    stream->queries_left = fake.complete_after;
    if (fake.complete_after == 0) fake_drain(stream);
}

// ---- What a test says -----------------------------------------------------------------------------------------------

static void set_defaults(void)
{
    fake.device_count = 1;
    fake.capability = 90;
    fake.driver_version = 13000;
    fake.newest_ptx = 90;
    fake.complete_after = fake.fill_byte = fake.pin_us = fake.kernel_us = fake.call_ns = 0;
    fake.multiprocessors = 0;
    fake.locks_read_only = true;
    fake.clock = NULL;
    fake.old_lookup = fake.takes_binaries = fake.is_lost = fake.refuses_graphs = fake.has_linker = false;
    fake.links_allowed = -1;
    fake.lacking = fake.fail_name = NULL;
    fake.byte_limit = fake.device_bytes = fake.context_keeps = fake.module_keeps = fake.graph_keeps = 0;
    fake.fail_nth = fake.fail_code = fake.fail_allocation = 0;
    fake.has_failed = fake.has_failed_allocation = false;
    fake.violations = fake.launch_count = fake.graph_launch_count = fake.wake_count = fake.graph_pieces = 0;
    fake.allocation_count = fake.launch_hash = fake.pinning_us = 0;
    memset(fake.images, 0, sizeof fake.images);
    fake.last_kernel[0] = 0;
    fake.on_launch = NULL;
    fake.on_signal = NULL;
    fake.on_call = NULL;
    fake.kernel_ms = NULL;
    fake.host_ends_ms = fake.delay_ms = 0.0;
    fake.freed_count = 0;
    for (int i = 0; i < fake_entry_count; i++) fake_entries[i].calls = 0;
}

__attribute__((constructor)) static void begin(void) { set_defaults(); }

#define SET(statement)                                                                                                 \
    do {                                                                                                               \
        fake_lock();                                                                                                   \
        statement;                                                                                                     \
        fake_unlock();                                                                                                 \
    } while (0)

void fake_reset(void) { SET(set_defaults()); }
void fake_devices(int count, int capability)
{
    SET(fake.device_count = count > 4 ? 4 : count; fake.capability = capability);
}
void fake_multiprocessors(int count) { SET(fake.multiprocessors = count); }
void fake_driver_version(int version) { SET(fake.driver_version = version); }
void fake_lack_entry(const char* name) { SET(fake.lacking = name); }
void fake_old_lookup(bool on) { SET(fake.old_lookup = on); }
void fake_lock_read_only(bool on) { SET(fake.locks_read_only = on); }
void fake_take_binaries(bool on) { SET(fake.takes_binaries = on); }
void fake_newest_ptx(int version) { SET(fake.newest_ptx = version); }
void fake_limit_device_bytes(uint64_t bytes) { SET(fake.byte_limit = bytes); }
void fake_device_bytes(uint64_t bytes) { SET(fake.device_bytes = bytes); }
void fake_lose_device(void) { SET(fake.is_lost = true); }
void fake_has_linker(bool on) { SET(fake.has_linker = on); }
void fake_allow_links(int count) { SET(fake.links_allowed = count); }
void fake_refuse_graphs(bool on) { SET(fake.refuses_graphs = on); }
void fake_complete_after(int queries) { SET(fake.complete_after = queries); }
void fake_use_clock(const fake_clock* clock) { SET(fake.clock = clock); }
void fake_kernels_take(int us) { SET(fake.kernel_us = us); }
void fake_calls_take(int ns) { SET(fake.call_ns = ns); }
void fake_pinning_takes(int us) { SET(fake.pin_us = us); }
void fake_finish(void) { SET(fake_drain_all()); }
void fake_kernel_times(const double* ms, int count)
{
    SET(fake.kernel_ms = ms; fake.kernel_ms_count = count; fake.kernel_ms_next = 0);
}
void fake_crowd(double ms) { SET(fake.delay_ms = ms); }
void fake_host_computes(double ms) { SET(fake.host_ends_ms = fake.clock_ms + ms); }
void fake_keeps(uint64_t context_bytes, uint64_t module_bytes, uint64_t graph_bytes)
{
    SET(fake.context_keeps = context_bytes; fake.module_keeps = module_bytes; fake.graph_keeps = graph_bytes);
}
void fake_fill_new_memory(int byte) { SET(fake.fill_byte = byte); }

bool fake_fail_call(const char* name, int nth, int code)
{
    bool before;
    SET(before = fake.has_failed; fake.has_failed = false; fake.fail_name = name; fake.fail_nth = nth;
        fake.fail_code = code);
    return before;
}

bool fake_fail_allocation(int nth)
{
    bool before;
    SET(before = fake.has_failed_allocation; fake.has_failed_allocation = false; fake.fail_allocation = nth);
    return before;
}

int fake_violations(void)
{
    int n;
    SET(n = fake.violations);
    return n;
}

long fake_held_kind(const char* kind)
{
    static const char* const s_names[FAKE_KIND_COUNT] = {
        "context", "stream",   "event",  "module",   "graph",  "graph exec", "device",    "pinned",
        "locked",  "resource", "mapped", "external", "levels", "array",      "semaphore", "link"};
    for (int i = 0; i < FAKE_KIND_COUNT; i++) {
        if (strcmp(s_names[i], kind) == 0) {
            long n;
            SET(n = fake.alive_count[i]);
            return n;
        }
    }
    fprintf(stderr, "fake_held_kind: no such kind: %s\n", kind);
    abort();
}

long fake_held(void)
{
    long sum = 0;
    SET(for (int i = 0; i < FAKE_KIND_COUNT; i++) sum += fake.alive_count[i]);
    return sum;
}

uint64_t fake_held_bytes(void)
{
    uint64_t n;
    SET(n = fake.block_bytes);
    return n;
}
uint64_t fake_allocation_count(void)
{
    uint64_t n;
    SET(n = fake.allocation_count);
    return n;
}

uint64_t fake_pinning_us(void)
{
    uint64_t n;
    SET(n = fake.pinning_us);
    return n;
}

int fake_images(int capability, bool is_binary)
{
    int count = 0;
    fake_lock();
    for (int target = 0; target < FAKE_MOST_TARGETS; target++)
        if (capability == 0 || capability == target) count += fake.images[is_binary][target];
    fake_unlock();
    return count;
}

uint64_t fake_calls(const char* name)
{
    for (int i = 0; i < fake_entry_count; i++) {
        if (strcmp(fake_entries[i].name, name) == 0) {
            uint64_t n;
            SET(n = fake_entries[i].calls);
            return n;
        }
    }
    fprintf(stderr, "fake_calls: the fake driver has no %s\n", name);
    abort();
}

void fake_count_launches(bool from_zero)
{
    SET(if (from_zero) {
        fake.launch_count = 0;
        fake.launch_hash = 0;
        fake.graph_launch_count = fake.wake_count = 0;
    });
}
int fake_launch_count(void)
{
    int n;
    SET(n = fake.launch_count);
    return n;
}
uint64_t fake_launch_hash(void)
{
    uint64_t n;
    SET(n = fake.launch_hash);
    return n;
}
int fake_graph_launches(void)
{
    int n;
    SET(n = fake.graph_launch_count);
    return n;
}
int fake_graph_pieces(void)
{
    int n;
    SET(n = fake.graph_pieces);
    return n;
}
int fake_wakes(void)
{
    int n;
    SET(n = fake.wake_count);
    return n;
}
const char* fake_last_kernel(void) { return fake.last_kernel; }

void fake_on_launch(void (*hook)(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data),
                    void* user_data)
{
    SET(fake.on_launch = hook; fake.launch_user = user_data);
}

void fake_on_signal(void (*hook)(int shared, void* user_data), void* user_data)
{
    SET(fake.on_signal = hook; fake.signal_user = user_data);
}
