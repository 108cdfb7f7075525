// Pictures to files and from files, and what a path is.
#include "desktop.h"
#include "scale.h"
#include "viewer.h"
#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
extern "C" {
#include "parameters.h"
#include "picture.h"
#include "system.h"
}

// of a picture that comes in; a larger one would take longer than a frame to copy and is made smaller anyway
static constexpr int MAX_SIDE = 2048;

// ---- Saving ---------------------------------------------------------------------------------------------------------

static std::string parameters_of(const Product& product)
{
    const Settings& s = product.settings;
    std::string loras;
    char number[32];
    for (const AdapterUse& each : s.adapters) {
        snprintf(number, sizeof number, ":%g", (double)each.strength);
        loras += (loras.empty() ? "" : ", ") + each.name + number;
    }
    const ControlUse& c = s.control;
    char range[64] = "";
    snprintf(range, sizeof range, ":%g:%g:%g", (double)c.strength, (double)c.start, (double)c.end);
    const std::string controls = c.path.empty() ? "" : c.name + range;
    parameters from = parameters_none();
    from.prompt = s.prompt.c_str();
    from.negative = product.negative.empty() ? nullptr : product.negative.c_str();
    from.model_name = product.model_name.c_str();
    from.loras = loras.c_str();
    from.controls = controls.c_str();
    from.step_count = s.step_count;
    from.width = s.width;
    from.height = s.height;
    from.solver = (int32_t)s.solver;
    from.guidance_rule = product.guidance_rule;
    from.noise = product.noise;
    from.reference_count = (int32_t)s.references.size();
    from.seed = s.seed;
    from.has_seed = true;
    from.guidance = s.guidance;
    from.cfg_scale = product.cfg_scale;
    if (s.start) from.strength = s.strength;
    from.shift = s.shift;
    from.step_cache = s.step_cache;
    from.step_cache_db = s.step_cache_db;
    from.step_cache_every = s.step_cache_every;
    std::string text(parameters_write(&from, nullptr, 0) + 1, '\0');
    parameters_write(&from, &text[0], text.size());
    text.pop_back();
    return text;
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

static picture_source source_of(const Product& product, const std::string& text)
{
    picture_source source = {};
    source.pixels = product.pixels->bytes.data();
    source.width = product.pixels->width;
    source.height = product.pixels->height;
    source.row_bytes = (size_t)product.pixels->width * 4;
    source.channel_count = 4;
    source.parameters = text.c_str();
    return source;
}

static std::string write_png(const Product& product, const std::string& path)
{
    const std::string text = parameters_of(product);
    const picture_source source = source_of(product, text);
    char message[PICTURE_MESSAGE_BYTES] = "";
    return picture_write(path.c_str(), &source, message) ? "" : message;
}

// Under a name of its own first: a file of the final name is whole, and none is replaced.
static std::string write_file(const Product& product, const std::string& folder, std::string& path)
{
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    const std::string stem = (std::filesystem::path(folder) / file_name(product.settings)).string();
    path = stem + ".png";
    for (int i = 2; std::filesystem::exists(path, error); i++) path = stem + "-" + std::to_string(i) + ".png";
    const std::string part = path + ".part.png", message = write_png(product, part);
    if (!message.empty()) {
        std::filesystem::remove(part, error);
        return message;
    }
    std::filesystem::rename(part, path, error);
    return error ? "cannot move " + part + " to " + path + ": " + error.message() : "";
}

void save(Viewer& viewer, std::shared_ptr<Product> product, std::function<void()> then)
{
    struct Answer {
        std::string path, message;
    };
    auto answer = std::make_shared<Answer>();
    viewer.files.post([product, folder = std::string(viewer.output_folder),
                       answer] { answer->message = write_file(*product, folder, answer->path); },
                      [&viewer, product, answer, then] {
                          if (!answer->message.empty())
                              return complain(viewer, "The picture was not saved.\n" + answer->message);
                          product->saved_path = answer->path;
                          viewer.status = "Saved " + answer->path;
                          viewer.report.event(viewer.now, "saved %s", answer->path.c_str());
                          if (then) then();
                      });
}

void save_picture(Viewer& viewer)
{
    if (!viewer.shown) return;
    if (viewer.shown->pixels) return save(viewer, viewer.shown);
    for (Arrival& arrival : viewer.arrivals)
        if (arrival.product == viewer.shown) arrival.wants_save = true;
}

// ---- To other programs ----------------------------------------------------------------------------------------------

static void copy_path(Viewer& viewer, const std::string& path)
{
    ImGui::SetClipboardText(path.c_str());
    viewer.status = "Copied the file's path; xclip or wl-copy would copy the picture";
    viewer.report.event(viewer.now, "copied path %s", path.c_str());
}

void copy_picture(Viewer& viewer)
{
    if (!viewer.shown || !viewer.shown->pixels) return;
    auto is_copied = std::make_shared<bool>(false);
    viewer.files.post(
        [product = viewer.shown, is_copied] {
            const std::string text = parameters_of(*product);
            const picture_source source = source_of(*product, text);
            char message[PICTURE_MESSAGE_BYTES];
            void* data = nullptr;
            size_t bytes = 0;
            if (!picture_encode(PICTURE_PNG, &source, &data, &bytes, message)) return;
            *is_copied = copy_png(data, bytes);
            free(data);
        },
        [&viewer, product = viewer.shown, is_copied] {
            if (*is_copied) {
                viewer.status = "Copied the picture";
                viewer.report.event(viewer.now, "copied picture");
            } else if (!product->saved_path.empty()) {
                copy_path(viewer, product->saved_path);
            } else {
                save(viewer, product, [&viewer, product] { copy_path(viewer, product->saved_path); });
            }
        });
}

void show_in_folder(Viewer& viewer)
{
    std::string folder = viewer.output_folder;
    if (viewer.shown && !viewer.shown->saved_path.empty())
        folder = std::filesystem::path(viewer.shown->saved_path).parent_path().string();
    auto is_opened = std::make_shared<bool>(false);
    viewer.files.post(
        [folder, is_opened] {
            std::error_code ignored;
            std::filesystem::create_directories(folder, ignored);
            *is_opened = open_in_file_manager(folder);
        },
        [&viewer, folder, is_opened] {
            viewer.status = *is_opened ? "Opened " + folder : "There is no xdg-open; the folder is " + folder;
            viewer.report.event(viewer.now, "folder is opened");
        });
}

// ---- Files that come in ---------------------------------------------------------------------------------------------

static bool is_opaque(const picture_file& image)
{
    picture_source source = {};
    source.pixels = image.pixels;
    source.width = image.width;
    source.height = image.height;
    source.row_bytes = (size_t)image.width * (size_t)image.channel_count;
    source.channel_count = image.channel_count;
    return picture_is_opaque(&source);
}

void read_picture(Viewer& viewer, const std::string& path, Purpose purpose)
{
    struct Answer {
        ArrivedPicture picture;
        char message[PICTURE_MESSAGE_BYTES] = "";
    };
    auto answer = std::make_shared<Answer>();
    answer->picture.name = std::filesystem::path(path).filename().string();
    answer->picture.purpose = purpose;
    viewer.files.post(
        [path, answer] {
            picture_file image;
            const int channel_count = answer->picture.purpose == Purpose::MASK ? 1 : 4;
            if (system_look_at(path.c_str()) == SYSTEM_OTHER) { // opening a pipe might wait for ever
                snprintf(answer->message, sizeof answer->message, "%s is a pipe or a device: choose a file",
                         path.c_str());
                return;
            }
            if (picture_read(path.c_str(), channel_count, &image, answer->message)) {
                auto pixels = std::make_shared<Pixels>();
                pixels->width = image.width;
                pixels->height = image.height;
                pixels->channel_count = channel_count;
                pixels->has_alpha = channel_count == 4 && !is_opaque(image);
                pixels->bytes.assign(image.pixels,
                                     image.pixels + (size_t)image.width * (size_t)image.height * (size_t)channel_count);
                const bool is_large = std::max(image.width, image.height) > MAX_SIDE && channel_count == 4;
                answer->picture.pixels = is_large ? reduced(*pixels, MAX_SIDE) : pixels;
                if (image.parameters) answer->picture.parameters = image.parameters;
            }
            picture_free(&image);
        },
        [&viewer, path, answer] {
            if (!answer->picture.pixels) return complain(viewer, answer->message);
            viewer.report.event(viewer.now, "read %s", path.c_str());
            viewer.arrived.push_back(answer->picture);
        });
}

// Of a safetensors file: the names of its tensors among else. "": it is none.
static std::string header_of(const std::string& path)
{
    std::ifstream file(path, std::ios::binary);
    unsigned char length[8] = {};
    if (!file.read(reinterpret_cast<char*>(length), 8)) return "";
    uint64_t bytes = 0;
    for (int i = 7; i >= 0; i--) bytes = bytes << 8 | length[i];
    std::string header(std::min<uint64_t>(bytes, 4u << 20), '\0');
    file.read(&header[0], (std::streamsize)header.size());
    return header;
}

// Whether the header of a safetensors file names the matrices of a LoRA or LoKr.
static bool is_adapter_file(const std::string& path)
{
    const std::string header = header_of(path);
    for (const char* part : {".lora_A.", ".lora_B.", ".lora_down.", ".lora_up.", ".lora.down.", ".lora.up.", ".lokr_w"})
        if (header.find(part) != std::string::npos) return true;
    return false;
}

static bool is_adapter(const std::filesystem::path& path)
{
    std::error_code ignored;
    if (path.extension() == ".safetensors")
        return std::filesystem::is_regular_file(path, ignored) && is_adapter_file(path.string());
    for (const char* name : {"adapter_model.safetensors", "pytorch_lora_weights.safetensors"})
        if (std::filesystem::exists(path / name, ignored)) return true;
    return false;
}

bool is_control_folder(const std::string& path)
{
    std::error_code ignored;
    const std::filesystem::path folder = path;
    if (std::filesystem::exists(folder / "model_index.json", ignored)) return false;
    std::ifstream file(folder / "config.json", std::ios::binary);
    std::string text(64u << 10, '\0');
    file.read(&text[0], (std::streamsize)text.size());
    return text.find("ControlNet") != std::string::npos;
}

// Whether the library is asked if it is a control net: what it does not know as one is opened as a model.
static bool may_be_control(const std::filesystem::path& path)
{
    std::error_code ignored;
    if (std::filesystem::is_directory(path, ignored)) return is_control_folder(path.string());
    return path.extension() == ".safetensors" && std::filesystem::is_regular_file(path, ignored)
        && header_of(path.string()).find("control") != std::string::npos;
}

static constexpr size_t MAX_BESIDE = 8; // adapters in a model's folder that are offered

void find_adapters_beside(Viewer& viewer, const std::string& model)
{
    auto paths = std::make_shared<std::vector<std::string>>();
    viewer.files.post(
        [model, paths] {
            std::error_code error;
            const std::filesystem::path folder = std::filesystem::absolute(model, error).lexically_normal() / "lora";
            std::filesystem::directory_iterator at(folder, error), end;
            for (; !error && at != end; at.increment(error))
                if (at->path().extension() == ".safetensors" && is_adapter_file(at->path().string()))
                    paths->push_back(at->path().string());
            std::sort(paths->begin(), paths->end());
            paths->resize(std::min(paths->size(), MAX_BESIDE));
        },
        [&viewer, model, paths] {
            if (model == viewer.form_model) offer_adapters(viewer, *paths);
        });
}

// What a path is, only the file system knows, and it may take its time.
void open_path(Viewer& viewer, const std::string& path)
{
    enum class Kind { MODEL, ADAPTER, CONTROL, PICTURE, NOTHING };
    auto kind = std::make_shared<Kind>(Kind::PICTURE);
    viewer.files.post(
        [path, kind] {
            std::error_code error;
            const std::filesystem::path from = path;
            const bool is_folder = std::filesystem::is_directory(from, error);
            if (!std::filesystem::exists(from, error) && !error) *kind = Kind::NOTHING;
            else if (is_folder || from.extension() == ".safetensors" || from.extension() == ".gguf")
                *kind = is_adapter(from) ? Kind::ADAPTER : may_be_control(from) ? Kind::CONTROL : Kind::MODEL;
        },
        [&viewer, path, kind] {
            if (*kind == Kind::NOTHING)
                complain(viewer, "There is no file or folder " + path + ".\nOpen it from where it is now.");
            else if (*kind == Kind::MODEL) open_model(viewer, path);
            else if (*kind == Kind::CONTROL) open_control(viewer, path, true);
            else if (*kind == Kind::ADAPTER) add_adapter(viewer, path);
            else read_picture(viewer, path, Purpose::MODEL);
        });
}
