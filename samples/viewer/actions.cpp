#include "scale.h"
#include "viewer.h"
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
extern "C" {
#include "picture.h"
}

static constexpr size_t MAX_ENTRIES = 60; // of the history: each keeps its picture in memory
static constexpr int THUMBNAIL_SIDE = 192;
// of a picture to start from; a larger one would take longer than a frame to copy and is made smaller anyway
static constexpr int MAX_SIDE = 2048;

static void put_text(char* into, size_t capacity, const std::string& text)
{
    snprintf(into, capacity, "%s", text.c_str());
}

static std::string in_one_line(std::string text)
{
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

static void complain(Viewer& viewer, const std::string& text)
{
    viewer.banner = text;
    viewer.status.clear();
    viewer.report.event(viewer.now, "failure %s", in_one_line(text).c_str());
}

// ---- The form -------------------------------------------------------------------------------------------------------

void form_changed(Viewer& viewer)
{
    viewer.settings_changed = viewer.now;
    viewer.wants_memory = true;
}

void apply_preset(Viewer& viewer, sumi_preset preset)
{
    const Settings defaults = viewer.generator.defaults(preset);
    viewer.form.preset = preset;
    viewer.form.step_count = defaults.step_count;
    viewer.form.guidance = defaults.guidance;
    viewer.form.guidance_off = defaults.guidance_off;
    viewer.form.strength = defaults.strength;
    viewer.form.follows_references = defaults.follows_references;
    if (!viewer.start) {
        viewer.form.width = defaults.width;
        viewer.form.height = defaults.height;
    }
    form_changed(viewer);
}

void roll_seed(Viewer& viewer)
{
    // splitmix64; short numbers, for one reads them aloud
    uint64_t value = viewer.random_state += 0x9E3779B97F4A7C15u;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    viewer.seed = (value ^ (value >> 31)) % 1000000u;
}

void choose_prompt(Viewer& viewer, PromptKind kind)
{
    if (viewer.prompt_kind == kind) return;
    viewer.prompt_kind = kind;
    form_changed(viewer);
    viewer.report.event(viewer.now, "prompt is a %s", kind == PromptKind::FORM ? "form" : "text");
}

// What the form says, complete for a job.
Settings current_settings(const Viewer& viewer)
{
    Settings settings = viewer.form;
    if (viewer.prompt_kind == PromptKind::FORM) {
        std::string trouble; // the panel shows it
        viewer.xml.write(settings.prompt, trouble);
        settings.xml = std::make_shared<XmlForm>(viewer.xml);
    } else {
        settings.prompt = unwrapped(viewer.prompt);
        settings.xml.reset();
    }
    settings.negative = unwrapped(viewer.negative);
    settings.seed = viewer.seed;
    settings.start = viewer.start;
    if (takes_references(viewer))
        for (const auto& each : viewer.references) settings.references.push_back(each->pixels);
    if (viewer.start && viewer.mask_has_paint) settings.mask = std::make_shared<Pixels>(viewer.mask);
    if (settings.mask) settings.strength = 1.0f; // what is painted over is to be forgotten
    return settings;
}

void generate(Viewer& viewer)
{
    if (!viewer.generator.is_ready() || viewer.generator.is_generating()) return;
    if (viewer.rolls_seed) roll_seed(viewer);
    viewer.banner.clear();
    viewer.has_preview = false;
    viewer.canvas = Canvas::PICTURE;
    viewer.status.clear();
    const Settings settings = current_settings(viewer);
    viewer.generator.generate(settings);
    viewer.report.event(viewer.now, "generate %llu %dx%d %d %s", (unsigned long long)settings.seed, settings.width,
                        settings.height, settings.step_count, in_one_line(settings.prompt).c_str());
}

void cancel(Viewer& viewer)
{
    if (!viewer.generator.is_generating()) return;
    viewer.generator.cancel();
    viewer.report.event(viewer.now, "cancel");
}

// ---- Files ----------------------------------------------------------------------------------------------------------

// As other tools write and read it; the command line's files hold the same.
static std::string parameters_of(const Product& product)
{
    const Settings& s = product.settings;
    std::string text = s.prompt + "\n";
    if (!product.negative.empty()) text += "Negative prompt: " + product.negative + "\n";
    char line[256];
    snprintf(line, sizeof line, "Steps: %d, Sampler: Euler, CFG scale: %g, Seed: %llu, Size: %dx%d", s.step_count,
             (double)(s.guidance - s.guidance_off) + 1.0, (unsigned long long)s.seed, s.width, s.height);
    text += line;
    text += ", Model: " + product.model_name;
    if (s.start) {
        snprintf(line, sizeof line, ", Denoising strength: %g", (double)s.strength);
        text += line;
    }
    if (!s.references.empty()) text += ", References: " + std::to_string(s.references.size());
    return text + ", RNG: CPU, Version: sumi " + sumi_version();
}

static std::string file_name(const Settings& settings)
{
    std::string name;
    for (char letter : settings.prompt) {
        if (name.size() >= 40) break;
        if (isalnum((unsigned char)letter)) name += (char)tolower((unsigned char)letter);
        else if (!name.empty() && name.back() != '-') name += '-';
    }
    while (!name.empty() && name.back() == '-') name.pop_back();
    return (name.empty() ? "picture" : name) + "-" + std::to_string(settings.seed);
}

// Under a name of its own first: a file of the final name is whole, and none is replaced.
static std::string write_file(const Product& product, const std::string& folder, std::string& path)
{
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    const std::string stem = (std::filesystem::path(folder) / file_name(product.settings)).string();
    path = stem + ".png";
    for (int i = 2; std::filesystem::exists(path, error); i++) path = stem + "-" + std::to_string(i) + ".png";
    const std::string part = path + ".part.png";
    const Pixels& pixels = *product.pixels;
    const std::string parameters = parameters_of(product);
    char message[PICTURE_MESSAGE_BYTES] = "";
    picture_source source = {};
    source.pixels = pixels.bytes.data();
    source.width = pixels.width;
    source.height = pixels.height;
    source.row_bytes = (size_t)pixels.width * 4;
    source.channel_count = 4;
    source.parameters = parameters.c_str();
    if (!picture_write(part.c_str(), &source, message)) {
        std::filesystem::remove(part, error);
        return message;
    }
    std::filesystem::rename(part, path, error);
    return error ? "cannot move " + part + " to " + path + ": " + error.message() : "";
}

static void save(Viewer& viewer, std::shared_ptr<const Product> product)
{
    struct Answer {
        std::string path, message;
    };
    auto answer = std::make_shared<Answer>();
    viewer.files.post([product, folder = viewer.output_folder,
                       answer] { answer->message = write_file(*product, folder, answer->path); },
                      [&viewer, answer] {
                          if (!answer->message.empty())
                              return complain(viewer, "The picture was not saved.\n" + answer->message);
                          viewer.status = "Saved " + answer->path;
                          viewer.report.event(viewer.now, "saved %s", answer->path.c_str());
                      });
}

void save_picture(Viewer& viewer)
{
    if (!viewer.shown) return;
    if (viewer.shown->pixels) return save(viewer, viewer.shown);
    for (Arrival& arrival : viewer.arrivals)
        if (arrival.product == viewer.shown) arrival.wants_save = true;
}

static void read_picture(Viewer& viewer, const std::string& path)
{
    struct Answer {
        SharedPixels pixels;
        char message[PICTURE_MESSAGE_BYTES] = "";
    };
    auto answer = std::make_shared<Answer>();
    viewer.files.post(
        [path, answer] {
            picture_file image;
            if (picture_read(path.c_str(), 4, &image, answer->message)) {
                auto pixels = std::make_shared<Pixels>();
                pixels->width = image.width;
                pixels->height = image.height;
                pixels->channel_count = 4;
                pixels->bytes.assign(image.pixels, image.pixels + (size_t)image.width * (size_t)image.height * 4);
                const bool is_large = std::max(image.width, image.height) > MAX_SIDE;
                answer->pixels = is_large ? reduced(*pixels, MAX_SIDE) : pixels;
            }
            picture_free(&image);
        },
        [&viewer, path, answer] {
            if (!answer->pixels) return complain(viewer, answer->message);
            viewer.report.event(viewer.now, "read %s", path.c_str());
            viewer.dropped.push_back(answer->pixels);
        });
}

// What a path is, only the file system knows, and it may take its time.
void open_path(Viewer& viewer, const std::string& path)
{
    auto is_model = std::make_shared<bool>(false);
    viewer.files.post(
        [path, is_model] {
            std::error_code ignored;
            const std::string ending = std::filesystem::path(path).extension().string();
            *is_model = ending == ".safetensors" || ending == ".gguf" || std::filesystem::is_directory(path, ignored);
            if (!std::filesystem::exists(path, ignored)) *is_model = ending != ".png";
        },
        [&viewer, path, is_model] {
            if (*is_model) {
                viewer.banner.clear();
                viewer.generator.open(path);
            } else {
                read_picture(viewer, path);
            }
        });
}

// ---- The picture to start from --------------------------------------------------------------------------------------

// As large as the model likes pictures to be, in the start's proportions.
static void fit_size(Viewer& viewer, int width, int height)
{
    const sumi_model_info& info = viewer.generator.model_info();
    const int multiple = std::max(1, info.size_multiple), most = info.max_size > 0 ? info.max_size : 2048;
    double factor = 1.0;
    if (info.native_size > 0) {
        const double area = (double)width * height, liked = (double)info.native_size * info.native_size;
        if (area > 2.0 * liked || area < 0.5 * liked) factor = std::sqrt(liked / area);
    }
    auto fit = [&](int side) {
        return std::clamp((int)std::lround(factor * side / multiple) * multiple, multiple, most / multiple * multiple);
    };
    viewer.form.width = fit(width);
    viewer.form.height = fit(height);
}

void use_as_start(Viewer& viewer, SharedPixels pixels, bool keeps_size)
{
    viewer.start = std::move(pixels);
    viewer.start_texture.upload(viewer.start->bytes.data(), viewer.start->width, viewer.start->height,
                                viewer.start->channel_count);
    viewer.mask = {};
    viewer.mask_has_paint = false;
    if (keeps_size) viewer.form.width = viewer.start->width, viewer.form.height = viewer.start->height;
    else fit_size(viewer, viewer.start->width, viewer.start->height);
    if (!viewer.generator.is_generating()) viewer.canvas = Canvas::START;
    form_changed(viewer);
    viewer.report.event(viewer.now, "start %dx%d", viewer.form.width, viewer.form.height);
}

void drop_start(Viewer& viewer)
{
    viewer.start.reset();
    viewer.start_texture.clear();
    viewer.mask = {};
    viewer.mask_has_paint = false;
    viewer.canvas = Canvas::PICTURE;
    form_changed(viewer);
}

// ---- Pictures to edit -----------------------------------------------------------------------------------------------

bool takes_references(const Viewer& viewer)
{
    return viewer.generator.is_ready() && viewer.generator.model_info().takes_references;
}

void use_as_reference(Viewer& viewer, SharedPixels pixels)
{
    const size_t most = (size_t)std::max(0, viewer.generator.model_info().max_references);
    if (most == 1) viewer.references.clear();
    if (viewer.references.size() >= most)
        return complain(viewer, "This model edits at most " + std::to_string(most)
                                    + " pictures at once: a click on one removes it.");
    auto reference = std::make_unique<Reference>();
    reference->pixels = std::move(pixels);
    const Pixels& from = *reference->pixels;
    reference->texture.upload(from.bytes.data(), from.width, from.height, from.channel_count);
    viewer.references.push_back(std::move(reference));
    viewer.use = Use::EDIT;
    form_changed(viewer);
    viewer.report.event(viewer.now, "references %d", (int)viewer.references.size());
}

void drop_reference(Viewer& viewer, size_t index)
{
    viewer.references.erase(viewer.references.begin() + (std::ptrdiff_t)index);
    form_changed(viewer);
    viewer.report.event(viewer.now, "references %d", (int)viewer.references.size());
}

static void take_dropped(Viewer& viewer)
{
    while (!viewer.dropped.empty() && !viewer.generator.is_opening()) {
        SharedPixels pixels = viewer.dropped.front();
        viewer.dropped.pop_front();
        if (viewer.use == Use::EDIT && takes_references(viewer)) use_as_reference(viewer, pixels);
        else use_as_start(viewer, pixels, false);
    }
}

void show_entry(Viewer& viewer, const Entry& entry)
{
    const Settings& s = entry.product->settings;
    viewer.shown = entry.product;
    viewer.display.show(*entry.product->pixels);
    viewer.fade_begin = -10.0;
    viewer.canvas = Canvas::PICTURE;
    viewer.prompt_kind = s.xml ? PromptKind::FORM : PromptKind::TEXT;
    if (s.xml) viewer.xml = *s.xml;
    else put_text(viewer.prompt, sizeof viewer.prompt, s.prompt);
    put_text(viewer.negative, sizeof viewer.negative, s.negative);
    viewer.seed = s.seed;
    viewer.form = s;
    viewer.form.start.reset();
    viewer.form.mask.reset();
    viewer.form.references.clear(); // those of the list are taken
    form_changed(viewer);
    viewer.report.event(viewer.now, "restored %llu", (unsigned long long)s.seed);
}

// ---- News -----------------------------------------------------------------------------------------------------------

static void add_to_history(Viewer& viewer, std::shared_ptr<Product> product)
{
    auto small = std::make_shared<SharedPixels>();
    viewer.files.post([product, small] { *small = reduced(*product->pixels, THUMBNAIL_SIDE); },
                      [&viewer, product, small] {
                          auto entry = std::make_unique<Entry>();
                          entry->product = product;
                          entry->thumbnail.upload((*small)->bytes.data(), (*small)->width, (*small)->height, 4);
                          viewer.history.push_front(std::move(entry));
                          if (viewer.history.size() > MAX_ENTRIES) viewer.history.pop_back();
                      });
}

static void take_product(Viewer& viewer, std::shared_ptr<Product> product)
{
    viewer.shown = product;
    if (product->pixels) viewer.display.show(*product->pixels);
    else viewer.display.show_found();
    viewer.report.event(viewer.now, "shown by %s",
                        viewer.display.is_direct() ? "GPU texture"
                                                   : ("pixel buffer: " + viewer.display.why_not()).c_str());
    viewer.fade_begin = viewer.now;
    // on the clock
    viewer.report.event(viewer.now, "done %llu %.3f", (unsigned long long)product->settings.seed, product->seconds);
    char text[64];
    snprintf(text, sizeof text, "Done in %.2f s", product->seconds);
    viewer.status = text;
    if (product->pixels) add_to_history(viewer, product);
    else viewer.arrivals.emplace_back(product, viewer.display.texture());
}

// The oldest one, when it is there. It is copied out of the driver's memory by the thread for files, not in a frame.
static void take_arrival(Viewer& viewer)
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
    viewer.files.post(
        [from, pixels] { pixels->bytes.assign(from, from + (size_t)pixels->width * (size_t)pixels->height * 4); },
        [&viewer, pixels] {
            const std::shared_ptr<Product> product = viewer.arrivals.front().product;
            const bool wants_save = viewer.arrivals.front().wants_save;
            viewer.arrivals.pop_front();
            product->pixels = pixels;
            add_to_history(viewer, product);
            if (wants_save) save(viewer, product);
        });
}

static void take_preview(Viewer& viewer, SharedPixels preview)
{
    auto large = std::make_shared<SharedPixels>();
    viewer.files.post([preview, large] { *large = enlarged(*preview); },
                      [&viewer, large] {
                          if (!viewer.generator.is_generating()) return; // the picture was faster
                          viewer.preview.upload((*large)->bytes.data(), (*large)->width, (*large)->height, 4);
                          if (!viewer.has_preview) viewer.report.event(viewer.now, "preview");
                          viewer.has_preview = true;
                      });
}

void take_news(Viewer& viewer)
{
    Generator& generator = viewer.generator;
    if (SharedPixels preview = generator.take_preview()) take_preview(viewer, preview);
    if (std::shared_ptr<Product> product = generator.take_product()) take_product(viewer, product);
    take_arrival(viewer);
    if (std::string failure = generator.take_failure(); !failure.empty()) complain(viewer, failure);
    if (generator.take_cancelled()) {
        viewer.has_preview = false;
        viewer.status = "Cancelled";
        viewer.report.event(viewer.now, "cancelled");
    }
    if (generator.take_opened()) {
        // The model of the form comes back when another one could not be opened: the form stays as it is.
        if (generator.model_path() != viewer.form_model) {
            viewer.form_model = generator.model_path();
            viewer.status.clear();
            apply_preset(viewer, SUMI_PRESET_MODEL);
            if (viewer.start) fit_size(viewer, viewer.start->width, viewer.start->height);
            viewer.use = takes_references(viewer) ? Use::EDIT : Use::START;
        }
        viewer.report.event(viewer.now, "ready %s", generator.model_name().c_str());
    }
    take_dropped(viewer);
    // A plan is written for the answer: not for every step of a slider's way.
    if (viewer.wants_memory && generator.is_ready() && !generator.is_generating()
        && viewer.now - viewer.settings_changed > 0.25) {
        viewer.wants_memory = false;
        generator.ask_memory(current_settings(viewer));
    }
}
