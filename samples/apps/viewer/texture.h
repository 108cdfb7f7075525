// Pictures on their way to the screen and back, and the only file that speaks OpenGL beside the frame loop.
#ifndef TEXTURE_H
#define TEXTURE_H
#include <cstdint>
#include <imgui.h>

// Resolves the few functions beyond OpenGL 1.1 that are used here. False: the context has them not. Once, with the
// context current.
bool texture_begin();

class Texture {
  public:
    Texture() = default;
    ~Texture(); // the context must be there still
    Texture(const Texture&) = delete;
    Texture& operator=(const Texture&) = delete;

    // Rows from the top without gaps; 4 channels are RGBA, 1 is white with that alpha. Goes through a pixel buffer, so
    // that the call returns when the pixels are copied and not when the GPU has them. has_alpha: see below.
    void upload(const void* pixels, int width, int height, int channel_count, bool has_alpha = false);
    void make_squares(); // light and dark ones, 2 x 2 of them, which repeat outside of 0 to 1
    // RGBA storage that is never made anew, for another API to write level 0. False: this context has none such.
    bool reserve(int width, int height);
    void was_written(bool has_alpha); // by that API: what else there is in it follows
    void clear();                     // back to empty

    bool is_empty() const { return width_ == 0; }
    bool has_alpha() const { return has_alpha_; } // it is a picture of which something may be seen through
    int width() const { return width_; }
    int height() const { return height_; }
    unsigned name() const { return texture_; }
    ImTextureID id() const { return (ImTextureID)(intptr_t)texture_; }

  private:
    unsigned texture_ = 0, buffer_ = 0;
    int width_ = 0, height_ = 0, channel_count_ = 0;
    bool has_alpha_ = false;
};

// The pixels of a texture on their way to host memory, while frames go on.
class Readback {
  public:
    explicit Readback(const Texture& from); // which may be written again at once: OpenGL keeps the order
    ~Readback();
    Readback(const Readback&) = delete;
    Readback& operator=(const Readback&) = delete;

    bool is_done() const; // does not wait
    // Once, then: RGBA rows from the top without gaps, for any thread to read until this object goes. nullptr: they are
    // lost, as the driver had no memory.
    const void* pixels();
    int width() const { return width_; }
    int height() const { return height_; }

  private:
    unsigned buffer_ = 0;
    void* fence_ = nullptr;
    int width_, height_;
};
#endif
