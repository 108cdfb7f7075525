// The log of calls: one line for each call, with what it was given, what it made and its result, and a line for each
// piece of work that it submitted. Objects have numbers instead of addresses, so that the same calls give the same lines
// in every process and on every system.
#include "fake_state.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_BYTES = 1 << 17 };
static char s_text[MOST_BYTES]; // of the call that runs; "" between calls
static size_t s_bytes;

static const char* const s_kinds[FAKE_KIND_COUNT] = {"context", "stream", "event",     "module",   "graph",  "exec",
                                                     "device",  "pinned", "locked",    "resource", "mapped", "external",
                                                     "levels",  "array",  "semaphore", "link"};

static bool is_logging(void) { return fake.on_call != NULL && s_bytes > 0; }

void fake_log_add(const char* format, ...)
{
    if (!is_logging()) return;
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(s_text + s_bytes, MOST_BYTES - s_bytes, format, arguments);
    va_end(arguments);
    if (written > 0) s_bytes += (size_t)written;
    if (s_bytes >= MOST_BYTES) s_bytes = MOST_BYTES - 1; // a line that is cut is the same everywhere, too
}

void fake_log_call(const char* name)
{
    if (fake.on_call == NULL) return;
    s_bytes = 1; // it is logging
    s_bytes = (size_t)snprintf(s_text, MOST_BYTES, "%s", name);
}

static void log_line(char* line)
{
    if (line[0] != '\0') fake.on_call(line, fake.call_user);
}

// The first line with the result, and the lines behind it.
void fake_log_result(CUresult result)
{
    if (!is_logging()) return;
    char* next = strchr(s_text, '\n');
    if (next != NULL) *next++ = '\0';
    char first[2048];
    snprintf(first, sizeof first, "%.2000s -> %d", s_text, (int)result);
    log_line(first);
    while (next != NULL) {
        char* line = next;
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        log_line(line);
    }
    s_bytes = 0;
    s_text[0] = '\0';
}

void fake_log_object(const char* before, const void* handle)
{
    if (!is_logging()) return;
    const fake_object* object = handle;
    fake_log_add("%s%s %d", before, s_kinds[object->kind], object->number);
}

void fake_log_handle(const void* handle, fake_kind kind)
{
    if (is_logging() && fake_is_alive(handle, kind)) fake_log_object(" ", handle);
}

// An address in live memory by its block; else the number, which is none.
static void add_value(uint64_t value)
{
    const fake_block* block = value < 65536 ? NULL : fake_find_block((const void*)(uintptr_t)value, 1);
    if (block == NULL) fake_log_add(" %llx", (unsigned long long)value);
    else
        fake_log_add(" %s %d+%llx", s_kinds[block->object.kind], block->object.number,
                     (unsigned long long)(value - (uint64_t)(uintptr_t)block->memory));
}

void fake_log_address(const void* memory) { add_value((uint64_t)(uintptr_t)memory); }

static uint64_t hash_of(const unsigned char* bytes, size_t count)
{
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * 1099511628211u;
    return hash;
}

static void add_place(const char* before, const unsigned char* memory)
{
    fake_log_add("%s", before);
    if (fake_find_block(memory, 1) != NULL) fake_log_address(memory);
    else fake_log_add(" memory of the host program");
}

static void add_copy(const fake_node* node, bool is_captured)
{
    fake_log_add("copy %llu bytes", (unsigned long long)node->bytes);
    add_place(" to", node->to);
    const unsigned char* from = node->data != NULL ? node->data : node->from;
    add_place(" from", from);
    const fake_block* block = fake_find_block(from, node->bytes);
    const bool is_host = node->data != NULL || (block != NULL && block->object.kind != FAKE_DEVICE_BLOCK);
    if (is_host && !is_captured) fake_log_add(" %016llx", (unsigned long long)hash_of(from, node->bytes));
}

void fake_log_node(const fake_node* node, bool is_captured)
{
    if (!is_logging()) return;
    fake_log_add("\n    ");
    switch (node->kind) {
    case FAKE_KERNEL:
        fake_log_add("%s %ux%ux%u %ux%ux%u:", node->name, node->grid[0], node->grid[1], node->grid[2], node->block[0],
                     node->block[1], node->block[2]);
        for (size_t at = 0; at + 8 <= node->data_bytes; at += 8) {
            uint64_t value;
            memcpy(&value, node->data + at, sizeof value);
            add_value(value);
        }
        break;
    case FAKE_COPY: add_copy(node, is_captured); break;
    case FAKE_SET8:
    case FAKE_SET32:
        fake_log_add("fill %llu bytes with %x", (unsigned long long)node->bytes, node->value);
        add_place(" at", node->to);
        break;
    case FAKE_RECORD: fake_log_object("record ", node->event); break;
    case FAKE_WAIT: fake_log_object("wait for ", node->event); break;
    case FAKE_WAIT_SHARED:
    case FAKE_SIGNAL_SHARED:
        fake_log_add("%s shared %d with %llu", node->kind == FAKE_WAIT_SHARED ? "wait for" : "signal",
                     (int)(node->shared - fake.shared) + 1, (unsigned long long)node->ticket);
        break;
    case FAKE_FREE: add_place("free", node->to); break;
    }
}

void fake_on_call(void (*hook)(const char* line, void* user_data), void* user_data)
{
    fake_lock();
    fake.on_call = hook;
    fake.call_user = user_data;
    memset(fake.made_count, 0, sizeof fake.made_count);
    s_bytes = 0;
    fake_unlock();
}
