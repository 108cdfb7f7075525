// Preloaded with samples/apps/viewer where there is no GPU: joins the CUDA driver of tests/fake_cuda to the OpenGL that the
// viewer draws with. Its kernels do nothing but one: what writes a picture for its target writes a pattern there, which
// tests/cli_support.c knows and which tells the first picture from the second. With NO_TEXTURES in the environment
// OpenGL runs on another GPU than CUDA.
#include "fake_cuda.h"
#include "kernels/pictures.h"
#include <GL/gl.h>
#include <GL/glext.h>
#include <GL/glx.h>
#include <stdlib.h>
#include <string.h>

static int s_height; // of the texture that was imported last, as that is no parameter of the kernel
static unsigned char s_picture_count;

static bool is_current(void) { return glXGetCurrentContext() != NULL && getenv("NO_TEXTURES") == NULL; }

static bool get_size(unsigned texture, int* width, int* height)
{
    GLint format = 0, is_fixed = 0;
    if (!glIsTexture(texture)) return false;
    glBindTexture(GL_TEXTURE_2D, texture);
    glGetTexLevelParameteriv(GL_TEXTURE_2D, 0, GL_TEXTURE_WIDTH, width);
    glGetTexLevelParameteriv(GL_TEXTURE_2D, 0, GL_TEXTURE_HEIGHT, height);
    glGetTexLevelParameteriv(GL_TEXTURE_2D, 0, GL_TEXTURE_INTERNAL_FORMAT, &format);
    glGetTexParameteriv(GL_TEXTURE_2D, GL_TEXTURE_IMMUTABLE_FORMAT, &is_fixed);
    s_height = *height;
    return format == GL_RGBA8 && is_fixed;
}

static void write_texture(unsigned texture, int width, int height, const unsigned char* rgba)
{
    glBindTexture(GL_TEXTURE_2D, texture);
    glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, width, height, GL_RGBA, GL_UNSIGNED_BYTE, rgba);
}

static void draw_pattern(const char* kernel, const unsigned char* parameters, uint64_t bytes, void* user_data)
{
    (void)user_data;
    sumi_pixels_to_args args;
    if (strcmp(kernel, "sumi_pixels_to") != 0 || bytes < sizeof args) return;
    memcpy(&args, parameters, sizeof args);
    unsigned char* to = (unsigned char*)(uintptr_t)args.to;
    s_picture_count++;
    for (int y = 0; y < s_height; y++) {
        for (int x = 0; x < args.width; x++)
            memcpy(to + (uint64_t)y * args.pitch + 4 * (uint64_t)x,
                   (const unsigned char[4]){(unsigned char)x, (unsigned char)y, s_picture_count, 255}, 4);
    }
}

__attribute__((constructor)) static void begin(void)
{
    static const fake_gl s_gl = {is_current, get_size, write_texture};
    fake_use_gl(&s_gl);
    fake_on_launch(draw_pattern, NULL);
}
