// The picture in the middle of the window. Where the engine's GPU draws the window too it writes the picture into one
// of two textures, of which the other one is shown meanwhile; elsewhere, and for pictures of the history, pixels of
// host memory are uploaded into a third.
#ifndef DISPLAY_H
#define DISPLAY_H
#include "generator.h"
#include "texture.h"
#include <string>

class Display {
  public:
    // For Generator: where the next picture goes. nullptr: to host memory; why_not() says why.
    sumi_external* find_texture(Generator& generator, int width, int height);
    // The picture is in the texture that was found last, which is shown or, unless `shows`, only returned.
    const Texture& take_found(bool shows, bool has_alpha);
    void show(const Pixels& pixels); // RGBA

    const Texture& texture() const { return *shown_; }
    bool is_direct() const { return shown_ != &uploaded_; } // the GPU wrote what is shown
    const std::string& why_not() const { return why_not_; } // "": the next one may be

  private:
    struct Imported {
        Texture texture;
        sumi_external* external = nullptr; // the engine's, which ends before the texture
    };
    Imported imported_[2];
    Texture uploaded_;
    Imported* found_ = nullptr;
    const Texture* shown_ = &uploaded_;
    bool is_refused_ = false; // asked for once: another context or GPU it will not be
    std::string why_not_;
};
#endif
