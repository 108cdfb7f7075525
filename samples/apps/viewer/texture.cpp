#include "texture.h"
#define GLFW_INCLUDE_GLEXT
#include <GLFW/glfw3.h>
#include <algorithm>
#include <cstring>

// Function pointers of one context; set once by texture_begin, before any texture.
static struct {
    PFNGLGENBUFFERSPROC GenBuffers;
    PFNGLDELETEBUFFERSPROC DeleteBuffers;
    PFNGLBINDBUFFERPROC BindBuffer;
    PFNGLBUFFERDATAPROC BufferData;
    PFNGLMAPBUFFERRANGEPROC MapBufferRange;
    PFNGLUNMAPBUFFERPROC UnmapBuffer;
    PFNGLGENERATEMIPMAPPROC GenerateMipmap;
    PFNGLFENCESYNCPROC FenceSync;
    PFNGLCLIENTWAITSYNCPROC ClientWaitSync;
    PFNGLDELETESYNCPROC DeleteSync;
    PFNGLTEXSTORAGE2DPROC TexStorage2D; // of OpenGL 4.2, or an extension: nullptr without it
} s_gl;

template <typename Function> static bool resolve(Function& function, const char* name)
{
    function = reinterpret_cast<Function>(glfwGetProcAddress(name));
    return function != nullptr;
}

bool texture_begin()
{
    resolve(s_gl.TexStorage2D, "glTexStorage2D");
    return resolve(s_gl.GenBuffers, "glGenBuffers") && resolve(s_gl.DeleteBuffers, "glDeleteBuffers")
        && resolve(s_gl.BindBuffer, "glBindBuffer") && resolve(s_gl.BufferData, "glBufferData")
        && resolve(s_gl.MapBufferRange, "glMapBufferRange") && resolve(s_gl.UnmapBuffer, "glUnmapBuffer")
        && resolve(s_gl.GenerateMipmap, "glGenerateMipmap") && resolve(s_gl.FenceSync, "glFenceSync")
        && resolve(s_gl.ClientWaitSync, "glClientWaitSync") && resolve(s_gl.DeleteSync, "glDeleteSync");
}

Texture::~Texture() { clear(); }

void Texture::clear()
{
    if (texture_) glDeleteTextures(1, &texture_);
    if (buffer_) s_gl.DeleteBuffers(1, &buffer_);
    texture_ = buffer_ = 0;
    width_ = height_ = channel_count_ = 0;
    has_alpha_ = false;
}

// Small pictures are never shown smaller, and without levels they cost a processor that draws half as much.
static bool has_levels(int width, int height) { return width >= 512 || height >= 512; }

static void set_filters(int width, int height)
{
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER,
                    has_levels(width, height) ? GL_LINEAR_MIPMAP_LINEAR : GL_LINEAR);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_LINEAR);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_S, GL_CLAMP_TO_EDGE);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_T, GL_CLAMP_TO_EDGE);
}

// A mask's single channel is alpha over white, so that the same drawing code tints it.
static void make_storage(int width, int height, int channel_count)
{
    set_filters(width, height);
    if (channel_count == 1) {
        const GLint swizzle[4] = {GL_ONE, GL_ONE, GL_ONE, GL_RED};
        glTexParameteriv(GL_TEXTURE_2D, GL_TEXTURE_SWIZZLE_RGBA, swizzle);
        glTexImage2D(GL_TEXTURE_2D, 0, GL_R8, width, height, 0, GL_RED, GL_UNSIGNED_BYTE, nullptr);
    } else {
        glTexImage2D(GL_TEXTURE_2D, 0, GL_RGBA8, width, height, 0, GL_RGBA, GL_UNSIGNED_BYTE, nullptr);
    }
}

void Texture::make_squares()
{
    static const uint8_t greys[16] = {96, 96, 96, 255, 128, 128, 128, 255, 128, 128, 128, 255, 96, 96, 96, 255};
    upload(greys, 2, 2, 4);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MIN_FILTER, GL_NEAREST);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAG_FILTER, GL_NEAREST);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_S, GL_REPEAT);
    glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_WRAP_T, GL_REPEAT);
}

void Texture::upload(const void* pixels, int width, int height, int channel_count, bool has_alpha)
{
    if (width <= 0 || height <= 0) return;
    if (texture_ && (width != width_ || height != height_ || channel_count != channel_count_)) clear();
    const bool is_new = texture_ == 0;
    if (is_new) {
        glGenTextures(1, &texture_);
        s_gl.GenBuffers(1, &buffer_);
    }
    const size_t bytes = (size_t)width * (size_t)height * (size_t)channel_count;
    glBindTexture(GL_TEXTURE_2D, texture_);
    s_gl.BindBuffer(GL_PIXEL_UNPACK_BUFFER, buffer_);
    // new storage: the driver may still be reading the old one
    s_gl.BufferData(GL_PIXEL_UNPACK_BUFFER, (GLsizeiptr)bytes, nullptr, GL_STREAM_DRAW);
    void* into = s_gl.MapBufferRange(GL_PIXEL_UNPACK_BUFFER, 0, (GLsizeiptr)bytes,
                                     GL_MAP_WRITE_BIT | GL_MAP_INVALIDATE_BUFFER_BIT);
    if (into) memcpy(into, pixels, bytes);
    const bool from_buffer = into && s_gl.UnmapBuffer(GL_PIXEL_UNPACK_BUFFER);
    if (!from_buffer) s_gl.BindBuffer(GL_PIXEL_UNPACK_BUFFER, 0);
    glPixelStorei(GL_UNPACK_ALIGNMENT, 1);
    if (is_new) {
        // Storage without data: with a buffer bound, a null pointer would be an offset into it.
        s_gl.BindBuffer(GL_PIXEL_UNPACK_BUFFER, 0);
        make_storage(width, height, channel_count);
        if (from_buffer) s_gl.BindBuffer(GL_PIXEL_UNPACK_BUFFER, buffer_);
    }
    glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, width, height, channel_count == 1 ? GL_RED : GL_RGBA, GL_UNSIGNED_BYTE,
                    from_buffer ? nullptr : pixels);
    s_gl.BindBuffer(GL_PIXEL_UNPACK_BUFFER, 0);
    if (has_levels(width, height)) s_gl.GenerateMipmap(GL_TEXTURE_2D);
    glPixelStorei(GL_UNPACK_ALIGNMENT, 4);
    width_ = width;
    height_ = height;
    channel_count_ = channel_count;
    has_alpha_ = has_alpha;
}

bool Texture::reserve(int width, int height)
{
    clear();
    if (!s_gl.TexStorage2D) return false;
    int level_count = 1;
    if (has_levels(width, height))
        while (std::max(width, height) >> level_count) level_count++;
    glGenTextures(1, &texture_);
    glBindTexture(GL_TEXTURE_2D, texture_);
    s_gl.TexStorage2D(GL_TEXTURE_2D, level_count, GL_RGBA8, width, height);
    set_filters(width, height);
    width_ = width;
    height_ = height;
    channel_count_ = 4;
    return true;
}

void Texture::was_written(bool has_alpha)
{
    has_alpha_ = has_alpha;
    glBindTexture(GL_TEXTURE_2D, texture_);
    if (has_levels(width_, height_)) s_gl.GenerateMipmap(GL_TEXTURE_2D);
}

// ---- Back to host memory --------------------------------------------------------------------------------------------

Readback::Readback(const Texture& from) : width_(from.width()), height_(from.height())
{
    s_gl.GenBuffers(1, &buffer_);
    s_gl.BindBuffer(GL_PIXEL_PACK_BUFFER, buffer_);
    s_gl.BufferData(GL_PIXEL_PACK_BUFFER, (GLsizeiptr)width_ * height_ * 4, nullptr, GL_STREAM_READ);
    glBindTexture(GL_TEXTURE_2D, from.name());
    glGetTexImage(GL_TEXTURE_2D, 0, GL_RGBA, GL_UNSIGNED_BYTE, nullptr); // into the buffer
    s_gl.BindBuffer(GL_PIXEL_PACK_BUFFER, 0);
    fence_ = s_gl.FenceSync(GL_SYNC_GPU_COMMANDS_COMPLETE, 0);
}

Readback::~Readback()
{
    s_gl.DeleteSync((GLsync)fence_); // accepts nullptr
    s_gl.DeleteBuffers(1, &buffer_); // unmaps it
}

bool Readback::is_done() const
{
    return !fence_ || s_gl.ClientWaitSync((GLsync)fence_, GL_SYNC_FLUSH_COMMANDS_BIT, 0) != GL_TIMEOUT_EXPIRED;
}

const void* Readback::pixels()
{
    s_gl.BindBuffer(GL_PIXEL_PACK_BUFFER, buffer_);
    const void* mapped =
        s_gl.MapBufferRange(GL_PIXEL_PACK_BUFFER, 0, (GLsizeiptr)width_ * height_ * 4, GL_MAP_READ_BIT);
    s_gl.BindBuffer(GL_PIXEL_PACK_BUFFER, 0);
    return mapped;
}
