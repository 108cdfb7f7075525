// What the parts of the window share.
#ifndef VIEWER_H
#define VIEWER_H
#include "display.h"
#include "frames.h"
#include "generator.h"
#include "texture.h"
#include "theme.h"
#include <deque>
#include <memory>
#include <string>
#include <vector>

constexpr float MIN_WIDTH = 640.0f, MIN_HEIGHT = 420.0f; // of the window, in units of the layout

struct Entry { // of the history
    std::shared_ptr<Product> product;
    Texture thumbnail;
};

struct Arrival { // a picture whose pixels come from its texture
    Arrival(std::shared_ptr<Product> of, const Texture& from) : product(std::move(of)), readback(from) {}
    std::shared_ptr<Product> product;
    Readback readback;
    bool is_copied = false, wants_save = false; // by the thread for files; as soon as the product has them
};

enum class Canvas { PICTURE, START };

enum class PromptKind { TEXT, FORM }; // as it is typed; in XML, from the fields of a form

enum class Use { EDIT, START }; // of a picture that comes in

struct Reference { // a picture that an edit model's prompt speaks of
    SharedPixels pixels;
    Texture texture;
};

struct Area { // of the window
    ImVec2 low, high;
    float width() const { return high.x - low.x; }
    float height() const { return high.y - low.y; }
};

struct Ground { // a part of the window that is filled before Dear ImGui draws on it
    ImVec2 corner, size;
    ImU32 shade;
};

struct PathChoice { // the window that picks a model
    bool wants_open = false, wants_close = false, is_shown = false, is_listing = false, has_model = false;
    char path[1024] = "";
    std::string folder, selected, message; // `selected`: a file in the folder; ""
    struct Item {
        std::string name;
        bool is_folder, is_model;
    };
    std::vector<Item> items;
};

struct Viewer {
    Viewer(const GeneratorOptions& options, void (*wake)())
        : generator(
            options, [this](int width, int height) { return display.find_texture(generator, width, height); }, wake),
          files(wake)
    {
    }

    Theme theme;
    FrameLog frames;
    Report report;
    Display display; // before the generator, whose engine writes into its textures to the end
    Generator generator;

    // The form. A line break in `prompt` or `negative` is a space: see wrapped_text in widgets.h.
    char prompt[4096] = "a yellow moon above a purple cat at night, watercolour", negative[4096] = "";
    PromptKind prompt_kind = PromptKind::TEXT;
    XmlForm xml;
    Settings form;
    std::string form_model; // the path of the model that the form's numbers are for
    uint64_t seed = 7;
    bool rolls_seed = false; // a new seed for every picture
    float budget_ms = 8.0f;
    bool wants_focus = true, has_focus = false; // of the prompts
    bool wants_picture = false;                 // Enter was pressed in them: taken when their last letters are in

    // The middle
    Canvas canvas = Canvas::PICTURE;
    std::shared_ptr<Product> shown; // on the display
    Texture preview;
    bool has_preview = false; // of the job at hand
    double fade_begin = -10.0;
    Use use = Use::START; // EDIT is for models that take references
    std::vector<std::unique_ptr<Reference>> references;
    std::deque<SharedPixels> dropped; // wait for the model that is being opened: it may be one for editing
    SharedPixels start;
    Texture start_texture, mask_texture;
    Pixels mask; // of the form's size; empty: none was drawn
    bool mask_changed = false, mask_has_paint = false, paints = false;
    float brush = 0.08f;                // radius, as part of the picture's shorter side
    float last_x = 0.0f, last_y = 0.0f; // of the stroke

    std::deque<std::unique_ptr<Entry>> history; // newest first
    std::deque<Arrival> arrivals;               // oldest first
    PathChoice choice;
    std::vector<Ground> grounds; // of this frame

    std::string banner, status;
    std::string output_folder = ".";
    double now = 0.0, settings_changed = 0.0;
    bool wants_memory = false, ends = false;
    uint64_t random_state;

    Worker files; // last, so that it ends first: its tasks use the members above
};

// ---- actions.cpp: what keys and buttons do --------------------------------------------------------------------------
Settings current_settings(const Viewer& viewer);
void generate(Viewer& viewer);
void cancel(Viewer& viewer);
void roll_seed(Viewer& viewer);
void save_picture(Viewer& viewer);
void open_path(Viewer& viewer, const std::string& path);                 // a model, or a PNG to edit or to start from
void use_as_start(Viewer& viewer, SharedPixels pixels, bool keeps_size); // its size, or one that the model likes
void drop_start(Viewer& viewer);
bool takes_references(const Viewer& viewer);                // the model that is open
void use_as_reference(Viewer& viewer, SharedPixels pixels); // takes the place of the last one where only one is taken
void drop_reference(Viewer& viewer, size_t index);
void show_entry(Viewer& viewer, const Entry& entry); // with its prompt, seed and numbers
void apply_preset(Viewer& viewer, sumi_preset preset);
void form_changed(Viewer& viewer);
void choose_prompt(Viewer& viewer, PromptKind kind);
void take_news(Viewer& viewer); // from the generator and the thread for files; once per frame

// ---- One file each --------------------------------------------------------------------------------------------------
void draw_window(Viewer& viewer);                  // layout.cpp: all of it
void draw_controls(Viewer& viewer);                // controls.cpp: the left panel
void draw_xml_form(Viewer& viewer);                // xml_form.cpp: the panel beside it, for prompts in XML
void draw_canvas(Viewer& viewer);                  // canvas.cpp: the picture, the brush
void draw_tools(Viewer& viewer, const Area& room); // tools.cpp: the row above the picture
void draw_strip(Viewer& viewer);                   // strip.cpp: the history
void draw_monitor(Viewer& viewer);                 // monitor.cpp: frame times, memory
void draw_chooser(Viewer& viewer);                 // chooser.cpp: the window that picks a model
void open_chooser(Viewer& viewer);
#endif
