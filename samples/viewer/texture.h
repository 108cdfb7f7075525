// Pictures on their way to the screen, and the only file that speaks OpenGL beside the frame loop: what puts pixels into a texture by another way (a picture that the
// GPU's backend writes there itself) belongs here.
#ifndef TEXTURE_H
#define TEXTURE_H
#include <cstdint>
#include <imgui.h>

// Resolves the few functions beyond OpenGL 1.1 that are used here. False: the context has them not. Once, with the context current.
bool texture_begin();

class Texture {
  public:
    Texture() = default;
    ~Texture(); // the context must be there still
    Texture(const Texture&) = delete;
    Texture& operator=(const Texture&) = delete;

    // Rows from the top without gaps; 4 channels are RGBA, 1 is white with that alpha. Goes through a pixel buffer, so that the call returns when the pixels are copied and not when
    // the GPU has them.
    void upload(const void* pixels, int width, int height, int channel_count);
    void clear(); // back to empty

    bool is_empty() const { return width_ == 0; }
    int width() const { return width_; }
    int height() const { return height_; }
    ImTextureID id() const { return (ImTextureID)(intptr_t)texture_; }

  private:
    unsigned texture_ = 0, buffer_ = 0;
    int width_ = 0, height_ = 0, channel_count_ = 0;
};
#endif
