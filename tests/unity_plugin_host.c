// What tests/test_unity.sh needs of Unity and of a GPU to run the rendering plug-in of samples/engines/unity: Unity's tables with a
// renderer that the test chooses, the thread that renders, and the fake driver, whose kernel that writes images fills them
// with the number of its call.
//
// The thread that renders works as Unity's does: what the scripts' thread gives it goes into a queue, and is done in order,
// a frame later. OpenGL's context is current on this thread only. It is native, so it outlives the scripts' domains.
#include "fake_cuda.h"
#include "kernels/pictures.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void event_function(int event, void* data);

void host_begin(int renderer);
void host_execute(event_function* function, void* data);
void host_flush(void);
void host_hold(int is_held);
int host_texture(int width, int height);
int host_pixel(int texture, int byte);
void host_release(int texture);
void host_context(int is_current);
void host_device_event(int type);
int host_held(void);

// Of the plug-in.
void UnityPluginLoad(void* interfaces);
void UnityPluginUnload(void);

// ---- The thread that renders ----------------------------------------------------------------------------------------

enum { FRAME_MS = 16 };

typedef struct command {
    struct command* next;
    event_function* function;
    int event;
    void* data;
    struct timespec due;
} command;

static pthread_mutex_t s_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t s_changed;
static command *s_first, **s_last = &s_first;
static bool s_runs;        // a command, now
static bool s_is_held;     // the next frame does not begin
static int s_flushing;     // threads that wait for the queue's end: frames are no longer waited for
static pthread_t s_thread; // is never ended: as in Unity it lives as long as the process

static bool is_due(const command* first)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > first->due.tv_sec || (now.tv_sec == first->due.tv_sec && now.tv_nsec >= first->due.tv_nsec);
}

static void* render(void* unused)
{
    (void)unused;
    fake_gl_current(true);
    pthread_mutex_lock(&s_mutex);
    for (;;) {
        command* first = s_first;
        if (first == NULL || (s_is_held && s_flushing == 0)) pthread_cond_wait(&s_changed, &s_mutex);
        else if (s_flushing == 0 && !is_due(first)) pthread_cond_timedwait(&s_changed, &s_mutex, &first->due);
        else {
            s_first = first->next;
            if (s_first == NULL) s_last = &s_first;
            s_runs = true;
            pthread_mutex_unlock(&s_mutex);
            first->function(first->event, first->data);
            free(first);
            pthread_mutex_lock(&s_mutex);
            s_runs = false;
            pthread_cond_broadcast(&s_changed);
        }
    }
    return NULL;
}

static void begin_thread(void)
{
    static bool s_begun;
    if (s_begun) return;
    s_begun = true;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&s_changed, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_create(&s_thread, NULL, render, NULL);
}

static void queue(event_function* function, int event, void* data)
{
    command* added = calloc(1, sizeof *added);
    if (added == NULL) abort();
    *added = (command){.function = function, .event = event, .data = data};
    clock_gettime(CLOCK_MONOTONIC, &added->due);
    added->due.tv_nsec += FRAME_MS * 1000000;
    if (added->due.tv_nsec >= 1000000000) added->due.tv_sec++, added->due.tv_nsec -= 1000000000;
    pthread_mutex_lock(&s_mutex);
    *s_last = added;
    s_last = &added->next;
    pthread_cond_broadcast(&s_changed);
    pthread_mutex_unlock(&s_mutex);
}

// Graphics.ExecuteCommandBuffer, with one plug-in event.
void host_execute(event_function* function, void* data) { queue(function, 0, data); }

// What Texture.GetNativeTexturePtr() does first: waits until everything that was queued is done.
void host_flush(void)
{
    pthread_mutex_lock(&s_mutex);
    s_flushing++;
    pthread_cond_broadcast(&s_changed);
    while (s_first != NULL || s_runs) pthread_cond_wait(&s_changed, &s_mutex);
    s_flushing--;
    pthread_mutex_unlock(&s_mutex);
}

// While it is held no frame begins, unless somebody waits for the queue's end.
void host_hold(int is_held)
{
    pthread_mutex_lock(&s_mutex);
    s_is_held = is_held != 0;
    pthread_cond_broadcast(&s_changed);
    pthread_mutex_unlock(&s_mutex);
}

static void set_context(int is_current, void* unused)
{
    (void)unused;
    fake_gl_current(is_current != 0);
}

static void release_texture(int texture, void* unused)
{
    (void)unused;
    fake_gl_release((unsigned)texture);
}

// ---- Unity's tables -------------------------------------------------------------------------------------------------

static int s_renderer, s_images;
static int get_renderer(void) { return s_renderer; }

typedef void device_function(int type);
static device_function* s_device_function;
static void register_device_event(device_function* function) { s_device_function = function; }
static void unregister_device_event(device_function* function)
{
    if (s_device_function == function) s_device_function = NULL;
}

static void tell_device_event(int type, void* unused)
{
    (void)unused;
    if (s_device_function != NULL) s_device_function(type);
}
void host_device_event(int type) { queue(tell_device_event, type, NULL); }

static void* get_interface(unsigned long long high, unsigned long long low)
{
    static struct {
        int (*get_renderer)(void);
        void (*register_device_event)(device_function* function);
        void (*unregister_device_event)(device_function* function);
        void* reserve_event_ids;
    } s_graphics = {get_renderer, register_device_event, unregister_device_event, NULL};
    return high == 0x7CBA0A9CA4DDB544ull && low == 0x8C5AD4926EB17B11ull ? &s_graphics : NULL;
}

static void write_image(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data)
{
    (void)user_data;
    sumi_pixels_to_args args;
    if (strcmp(kernel, "sumi_pixels_to") != 0 || bytes < sizeof args) return;
    memcpy(&args, parameters, sizeof args);
    s_images++;
    for (int y = 0; y < args.width; y++) // the images of this test are squares
        memset((unsigned char*)(uintptr_t)(args.to + (uint64_t)y * args.pitch), s_images, (size_t)args.width * 4);
}

void host_begin(int renderer)
{
    static struct {
        void *get, *add;
        void* (*get_split)(unsigned long long high, unsigned long long low);
        void* add_split;
    } s_interfaces = {0};
    s_interfaces.get_split = get_interface;
    begin_thread();
    host_flush();
    if (s_device_function != NULL) UnityPluginUnload();
    fake_reset();
    fake_on_launch(write_image, NULL);
    s_renderer = renderer;
    s_images = 0;
    UnityPluginLoad(&s_interfaces);
}

int host_texture(int width, int height) { return (int)fake_gl_texture(width, height); }
int host_pixel(int texture, int byte)
{
    host_flush();
    return fake_gl_pixels((unsigned)texture)[byte];
}
void host_release(int texture) { queue(release_texture, texture, NULL); }
void host_context(int is_current) { queue(set_context, is_current, NULL); }
int host_held(void)
{
    host_flush();
    return fake_violations() > 0 ? -1 : (int)fake_held();
}
