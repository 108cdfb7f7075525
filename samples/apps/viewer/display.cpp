#include "display.h"

sumi_external* Display::find_texture(Generator& generator, int width, int height)
{
    if (is_refused_) return nullptr;
    why_not_ = generator.is_on_gpu() ? "" : "the processor makes the pictures";
    if (!why_not_.empty()) return nullptr;
    Imported& next = imported_[shown_ == &imported_[0].texture ? 1 : 0];
    found_ = &next;
    if (next.external && next.texture.width() == width && next.texture.height() == height) return next.external;
    sumi_external_release(next.external);
    next.external = nullptr;
    if (!next.texture.reserve(width, height)) {
        is_refused_ = true;
        why_not_ = "this OpenGL has no glTexStorage2D";
        return nullptr;
    }
    const sumi_result result = generator.import_texture(next.texture.name(), width, height, &next.external, why_not_);
    if (result != SUMI_OK) next.texture.clear();
    is_refused_ = result != SUMI_OK && result != SUMI_OUT_OF_DEVICE_MEMORY;
    return next.external;
}

const Texture& Display::take_found(bool shows, bool has_alpha)
{
    found_->texture.was_written(has_alpha);
    if (shows) shown_ = &found_->texture;
    return found_->texture;
}

void Display::show(const Pixels& pixels)
{
    uploaded_.upload(pixels.bytes.data(), pixels.width, pixels.height, pixels.channel_count, pixels.has_alpha);
    shown_ = &uploaded_;
}
