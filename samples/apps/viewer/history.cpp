// Pictures that were made: from the generator to the display and into the strip.
#include "scale.h"
#include "viewer.h"
#include <algorithm>

static constexpr size_t MAX_ENTRIES = 60; // each keeps its picture in memory
static constexpr size_t MAX_DELETED = 10; // that can come back
static constexpr int THUMBNAIL_SIDE = 192;

static void add_to_history(Viewer& viewer, std::shared_ptr<Product> product)
{
    auto small = std::make_shared<SharedPixels>();
    viewer.files.post([product, small] { *small = reduced(*product->pixels, THUMBNAIL_SIDE); },
                      [&viewer, product, small] {
                          auto entry = std::make_unique<Entry>();
                          entry->product = product;
                          entry->thumbnail.upload((*small)->bytes.data(), (*small)->width, (*small)->height, 4,
                                                  (*small)->has_alpha);
                          viewer.history.push_front(std::move(entry));
                          if (viewer.history.size() > MAX_ENTRIES) viewer.history.pop_back();
                      });
    if (viewer.saves_all) save(viewer, product);
}

void take_product(Viewer& viewer, std::shared_ptr<Product> product)
{
    const bool has_pixels = product->pixels != nullptr;
    const Texture* found = has_pixels ? nullptr : &viewer.display.take_found(viewer.watches, product->has_alpha);
    if (viewer.watches) {
        viewer.shown = product;
        if (viewer.canvas == Canvas::SEEN) viewer.canvas = Canvas::PICTURE;
        if (has_pixels) viewer.display.show(*product->pixels);
        viewer.report.event(viewer.now, "shown by %s",
                            viewer.display.is_direct() ? "GPU texture"
                                                       : ("pixel buffer: " + viewer.display.why_not()).c_str());
        if (product->has_alpha) viewer.report.event(viewer.now, "shown over squares");
        viewer.fade_begin = viewer.now;
    }
    // on the clock
    viewer.report.event(viewer.now, "done %llu %.3f", (unsigned long long)product->settings.seed, product->seconds);
    char text[64];
    snprintf(text, sizeof text, "Done in %.2f s", product->seconds);
    viewer.status = text;
    if (has_pixels) add_to_history(viewer, product);
    else viewer.arrivals.emplace_back(product, *found);
}

// The oldest one, when it is there. It is copied out of the driver's memory by the thread for files, not in a frame.
void take_arrival(Viewer& viewer)
{
    if (viewer.arrivals.empty()) return;
    Arrival& arrival = viewer.arrivals.front();
    if (arrival.is_copied || !arrival.readback.is_done()) return;
    const uint8_t* from = static_cast<const uint8_t*>(arrival.readback.pixels());
    if (!from) {
        viewer.arrivals.pop_front();
        return complain(
            viewer, "The picture can be seen, but not be saved: the graphics driver had no memory to read it back.");
    }
    arrival.is_copied = true;
    auto pixels = std::make_shared<Pixels>();
    pixels->width = arrival.readback.width();
    pixels->height = arrival.readback.height();
    pixels->channel_count = 4;
    pixels->has_alpha = arrival.product->has_alpha;
    viewer.files.post(
        [from, pixels] { pixels->bytes.assign(from, from + (size_t)pixels->width * (size_t)pixels->height * 4); },
        [&viewer, pixels] {
            const std::shared_ptr<Product> product = viewer.arrivals.front().product;
            const bool wants_save = viewer.arrivals.front().wants_save && !viewer.saves_all;
            viewer.arrivals.pop_front();
            product->pixels = pixels;
            add_to_history(viewer, product);
            if (wants_save) save(viewer, product);
        });
}

void show_entry(Viewer& viewer, const Entry& entry)
{
    viewer.shown = entry.product;
    viewer.display.show(*entry.product->pixels);
    viewer.fade_begin = -10.0;
    viewer.canvas = Canvas::PICTURE;
    viewer.watches = false;
    if (viewer.compare.with == entry.product) end_compare(viewer);
    viewer.report.event(viewer.now, "shows %llu", (unsigned long long)entry.product->settings.seed);
}

static size_t index_of_shown(const Viewer& viewer)
{
    size_t index = 0;
    while (index < viewer.history.size() && viewer.history[index]->product != viewer.shown) index++;
    return index;
}

void show_neighbour(Viewer& viewer, int step)
{
    if (viewer.history.empty()) return;
    const size_t index = index_of_shown(viewer), last = viewer.history.size() - 1;
    if (index > last) return show_entry(viewer, *viewer.history[0]);
    const size_t next = step > 0 ? std::min(index + (size_t)step, last) : index - std::min(index, (size_t)-step);
    if (next != index) show_entry(viewer, *viewer.history[next]);
    viewer.scrolls_strip = true;
}

void delete_entry(Viewer& viewer, size_t index)
{
    if (index >= viewer.history.size()) return;
    std::unique_ptr<Entry> entry = std::move(viewer.history[index]);
    viewer.history.erase(viewer.history.begin() + (std::ptrdiff_t)index);
    if (viewer.compare.with == entry->product) end_compare(viewer);
    if (viewer.shown == entry->product) {
        end_compare(viewer);
        viewer.shown.reset();
        if (!viewer.history.empty()) show_entry(viewer, *viewer.history[std::min(index, viewer.history.size() - 1)]);
    }
    viewer.status = entry->product->saved_path.empty() ? "Deleted; Ctrl+Z brings it back"
                                                       : "Taken out; Ctrl+Z brings it back. The saved file stays";
    viewer.report.event(viewer.now, "deleted %llu", (unsigned long long)entry->product->settings.seed);
    viewer.deleted.push_back({std::move(entry), index});
    if (viewer.deleted.size() > MAX_DELETED) viewer.deleted.erase(viewer.deleted.begin());
}

void delete_shown(Viewer& viewer) { delete_entry(viewer, index_of_shown(viewer)); }

bool undelete(Viewer& viewer)
{
    if (viewer.deleted.empty()) return false;
    DeletedEntry last = std::move(viewer.deleted.back());
    viewer.deleted.pop_back();
    const size_t index = std::min(last.index, viewer.history.size());
    viewer.report.event(viewer.now, "undeleted %llu", (unsigned long long)last.entry->product->settings.seed);
    show_entry(viewer, *last.entry);
    viewer.history.insert(viewer.history.begin() + (std::ptrdiff_t)index, std::move(last.entry));
    viewer.status.clear();
    return true;
}
