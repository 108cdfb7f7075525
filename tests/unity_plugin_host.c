// What tests/test_unity.sh needs of Unity and of a GPU to run the rendering plug-in of samples/unity: Unity's tables with a
// renderer that the test chooses, and the fake driver, whose kernel that writes images fills them with the number of its
// call.
#include "fake_cuda.h"
#include "kernels/pictures.h"
#include <string.h>

void host_begin(int renderer);
int host_texture(int width, int height);
int host_pixel(int texture, int byte);
void host_release(int texture);
void host_context(int is_current);
int host_held(void);

// Of the plug-in.
void UnityPluginLoad(void* interfaces);

static int s_renderer, s_images;
static int get_renderer(void) { return s_renderer; }

static void* get_interface(unsigned long long high, unsigned long long low)
{
    static struct {
        int (*get_renderer)(void);
        void* others[3];
    } graphics = {get_renderer, {0}};
    return high == 0x7CBA0A9CA4DDB544ull && low == 0x8C5AD4926EB17B11ull ? &graphics : NULL;
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
    } interfaces = {0};
    interfaces.get_split = get_interface;
    fake_reset();
    fake_on_launch(write_image, NULL);
    s_renderer = renderer;
    s_images = 0;
    UnityPluginLoad(&interfaces);
}

int host_texture(int width, int height) { return (int)fake_gl_texture(width, height); }
int host_pixel(int texture, int byte) { return fake_gl_pixels((unsigned)texture)[byte]; }
void host_release(int texture) { fake_gl_release((unsigned)texture); }
void host_context(int is_current) { fake_gl_current(is_current != 0); }
int host_held(void) { return fake_violations() > 0 ? -1 : (int)fake_held(); }
