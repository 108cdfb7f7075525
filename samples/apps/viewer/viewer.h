// What the parts of the window share.
#ifndef VIEWER_H
#define VIEWER_H
#include "chooser.h"
#include "compare.h"
#include "display.h"
#include "frames.h"
#include "generator.h"
#include "mask.h"
#include "models.h"
#include "queue.h"
#include "texture.h"
#include "theme.h"
#include "zoom.h"
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

constexpr float MIN_WIDTH = 640.0f, MIN_HEIGHT = 420.0f; // of the window, in units of the layout

struct Entry { // of the history
    std::shared_ptr<Product> product;
    Texture thumbnail;
};

struct DeletedEntry {
    std::unique_ptr<Entry> entry;
    size_t index; // in the history, where it was
};

struct Arrival { // a picture whose pixels come from its texture
    Arrival(std::shared_ptr<Product> of, const Texture& from) : product(std::move(of)), readback(from) {}
    std::shared_ptr<Product> product;
    Readback readback;
    bool is_copied = false, wants_save = false; // by the thread for files; as soon as the product has them
};

enum class Canvas { PICTURE, START, SEEN }; // SEEN: by the control net

enum class PromptKind { TEXT, FORM }; // as it is typed; in XML, from the fields of a form

enum class Use { EDIT, START, FOLLOW }; // of a picture that comes in

struct Following { // a picture by a control net
    ControlUse use;
    bool is_enabled = true, takes_usual_strength = false; // when it is read
    bool may_be_model = false;                            // it was dropped, and not yet recognised
    Texture texture;                                      // of the picture
};

struct Reference { // a picture that an edit model's prompt speaks of
    SharedPixels pixels;
    bool was_shown = false; // it was made here, and gives way to what is shown when the next model is opened
    Texture texture;
};

struct ArrivedPicture { // from a file
    SharedPixels pixels;
    std::string name, parameters; // "": the file tells nothing about how it was made
    Purpose purpose;              // MODEL: it was dropped on the window
};

struct AdapterEntry {
    AdapterUse use;
    bool is_enabled = true;
    bool is_beside = false; // it lies in the model's folder, and comes and goes with the model
    bool is_wanted = true;  // it was read or will be: one beside the model only when it is switched on
};

struct Ground { // a part of the window that is filled before Dear ImGui draws on it
    ImVec2 corner, size;
    ImU32 shade;
};

struct Viewer {
    Viewer(const GeneratorOptions& options, void (*wake)())
        : generator(
            options, [this](int width, int height) { return display.find_texture(generator, width, height); }, wake),
          files(wake)
    {
        squares.make_squares();
    }

    Theme theme;
    FrameLog frames;
    Report report;
    Display display; // before the generator, whose engine writes into its textures to the end
    Generator generator;

    // The form. A line break in `prompt` or `negative` is a space: see wrapped_text in theme.h.
    char prompt[4096] = "a yellow moon above a purple cat at night, watercolour", negative[4096] = "";
    std::string kept_prompt; // of the other kind: descriptions of pictures are one, instructions to edit some the other
    std::string prompt_before; // what was there when a model was chosen
    PromptKind prompt_kind = PromptKind::TEXT;
    XmlForm xml;
    Settings form;
    std::string form_model;       // the path of the model that the form's numbers are for
    bool was_instruction = false; // the prompt was, when another model was chosen: see prompt_instructs()
    uint64_t seed = 0;            // of the next picture
    bool keeps_seed = false;      // otherwise every picture has another one
    int picture_count = 1;        // that Generate makes
    std::vector<AdapterEntry> adapters;
    float budget_ms = 8.0f;
    bool wants_focus = true, has_focus = false; // of the prompts
    bool wants_picture = false;                 // Enter was pressed in them: taken when their last letters are in

    // The middle
    Canvas canvas = Canvas::PICTURE;
    bool watches = true;            // the picture that is being made is shown, and those that are done
    std::shared_ptr<Product> shown; // on the display
    Texture squares;                // where a picture is transparent
    Texture preview;
    bool has_preview = false, has_source = false; // of the job at hand; the picture that it edits was shown
    SharedPixels source;                          // of `source_texture`: a picture that no other texture has any more
    Texture source_texture;
    double fade_begin = -10.0;
    Zoom zoom;
    Compare compare;
    Use use = Use::START; // EDIT is for models that take references, FOLLOW for a control net
    Following control;
    Texture seen_texture;
    std::string seen_change; // of what was given, in words
    std::vector<std::unique_ptr<Reference>> references;
    std::deque<ArrivedPicture> arrived; // wait for the model that is being opened: it may be one for editing
    SharedPixels start;
    Texture start_texture;
    Mask mask;
    SharedPixels offered;
    std::string offer_name, offer; // a picture that came in, and what its file tells; "": nothing is offered

    Queue queue;
    std::deque<std::unique_ptr<Entry>> history; // newest first
    std::vector<DeletedEntry> deleted;          // the last one comes back first
    std::deque<Arrival> arrivals;               // oldest first
    Chooser chooser;
    ModelMenu models;
    std::vector<Ground> grounds; // of this frame

    std::string banner, status;
    char output_folder[1024] = "";
    bool saves_all = false, shows_help = false, shows_graphs = false, focuses_strip = false, scrolls_strip = false,
         leaves_text = false, focuses_tools = false, presses_line = false; // presses_line: Enter, in a menu
    double now = 0.0, settings_changed = 0.0;
    bool wants_memory = false, wants_size = false;
    sumi_size followed_size = {}; // of the next picture, where it follows from the pictures to edit; zero: not known
    uint64_t random_state;

    Worker files; // last, so that it ends first: its tasks use the members above
};

// ---- actions.cpp: what keys and buttons do --------------------------------------------------------------------------
void complain(Viewer& viewer, const std::string& text); // in the banner
void generate(Viewer& viewer);                          // adds to the queue
void cancel(Viewer& viewer);                            // the picture that is being made, and the rest of its batch
void open_model(Viewer& viewer, const std::string& path);
void take_news(Viewer& viewer); // from the generator and the thread for files; once per frame

// ---- form.cpp: what the left panel says -----------------------------------------------------------------------------
Settings current_settings(const Viewer& viewer);
constexpr float MAX_STEP_CACHE = 0.3f;
// How steps are reused: not at all, as far as the picture keeps a number of dB, by a fixed schedule, over small changes.
enum class Reuse { OFF, KEEP, FIXED, CHANGE };
Reuse reuse_of(const Settings& settings);
void set_reuse(Settings& settings, Reuse kind, float number); // number: of dB, of steps, or the change
bool can_reuse_steps(const Viewer& viewer); // whether there are so many steps that a step cache saves time
void apply_preset(Viewer& viewer, sumi_preset preset);
void apply_steps(Viewer& viewer, sumi_preset preset);        // likewise, but the size stays
void choose_preset(Viewer& viewer, sumi_preset preset);      // and the adapters beside the model that belong to it
void exchange_prompt(Viewer& viewer);                        // for the one that was typed for models of the other kind
void apply_settings(Viewer& viewer, const Product& product); // of a picture that was made here
void apply_parameters(Viewer& viewer, const std::string& text); // of a picture's file
void apply_aspect(Viewer& viewer, int across, int up);          // keeps the number of pixels, about
void fit_size(Viewer& viewer, int width, int height);           // in these proportions, as the model likes it
void form_changed(Viewer& viewer);
void choose_prompt(Viewer& viewer, PromptKind kind);
void roll_seed(Viewer& viewer);

// ---- adapters.cpp ---------------------------------------------------------------------------------------------------
AdapterEntry& add_adapter(Viewer& viewer, const std::string& path);
void reread_adapters(Viewer& viewer);                                       // after a model was opened
void offer_adapters(Viewer& viewer, const std::vector<std::string>& paths); // that lie beside the model
void drop_offered_adapters(Viewer& viewer);                                 // when another model is open
void switch_few_steps(Viewer& viewer, bool is_enabled); // those beside the model with which few steps are enough
void take_adapters(Viewer& viewer);                     // that were read; once per frame
void restore_adapters(Viewer& viewer, const std::vector<AdapterUse>& uses);
std::vector<AdapterUse> adapters_in_use(const Viewer& viewer);
bool find_adapters(Viewer& viewer, Settings& settings); // false: some are being read still

// ---- control.cpp: a picture that is followed ------------------------------------------------------------------------
void open_control(Viewer& viewer, const std::string& path, bool may_be_model); // instead of the one that is there
void reread_control(Viewer& viewer);                                           // after a model was opened
void take_control(Viewer& viewer);                                             // that was read; once per frame
bool has_control(const Viewer& viewer);
bool follows_shown(const Viewer& viewer); // what comes in is for the net
void follow_picture(Viewer& viewer, SharedPixels pixels, bool keeps_size);
void follow_edges(Viewer& viewer, const SharedPixels& of);   // found by the thread for files
ControlUse control_in_use(const Viewer& viewer);             // by the next picture; empty: none
bool find_control(const Viewer& viewer, Settings& settings); // false: it is being read still
void restore_control(Viewer& viewer, const ControlUse& use);
void toggle_seen(Viewer& viewer);   // what the net saw, in the place of the picture that is shown
void draw_control(Viewer& viewer);  // the net, in the left panel
void draw_followed(Viewer& viewer); // the picture

// ---- inputs.cpp: pictures that come in ------------------------------------------------------------------------------
void use_as_start(Viewer& viewer, SharedPixels pixels, bool keeps_size); // its size, or one that the model likes
void drop_start(Viewer& viewer);
bool can_use_shown(const Viewer& viewer);
bool edits_shown(const Viewer& viewer); // and starts from no picture
void use_shown(Viewer& viewer);         // edits the picture that is shown, or starts from it
void take_arrived(Viewer& viewer);      // once per frame
// A frame with a sentence in it, where a picture would be.
void draw_place(const Viewer& viewer, float width, float height, const char* text);
// The middle square of a picture, at a corner.
void draw_square(const Viewer& viewer, const Texture& texture, const Pixels& of, ImVec2 corner, float side);
void draw_inputs(Viewer& viewer);

// ---- references.cpp: pictures to edit -------------------------------------------------------------------------------
bool takes_references(const Viewer& viewer);  // the model that is open
size_t used_references(const Viewer& viewer); // as many as the model takes of those that are there: the first ones
bool prompt_instructs(const Viewer& viewer);  // it says how to edit pictures; otherwise it describes one
// Takes the place of the last one where only one is taken. False: there are as many as the model takes, which was told.
bool use_as_reference(Viewer& viewer, SharedPixels pixels);
void edit_picture(Viewer& viewer, SharedPixels pixels); // as picture 1, in the place of the one that is there
void edit_screen(Viewer& viewer);                       // what is there when a model that only edits has been opened
void restore_references(Viewer& viewer, const std::vector<SharedPixels>& pictures); // instead of those that are there
void drop_reference(Viewer& viewer, const SharedPixels& pixels);                    // nothing happens if it is none
bool is_reference(const Viewer& viewer, const SharedPixels& pixels);
void draw_references(Viewer& viewer);

// ---- files.cpp ------------------------------------------------------------------------------------------------------
void save(Viewer& viewer, std::shared_ptr<Product> product, std::function<void()> then = nullptr);
void save_picture(Viewer& viewer);
void copy_picture(Viewer& viewer); // to the clipboard
void show_in_folder(Viewer& viewer);
void open_path(Viewer& viewer, const std::string& path); // a model, an adapter, a control net, or a picture
bool is_control_folder(const std::string& path);         // by its config.json
void read_picture(Viewer& viewer, const std::string& path, Purpose purpose);
void find_adapters_beside(Viewer& viewer, const std::string& model); // the answer goes to offer_adapters()

// ---- history.cpp: pictures that were made ---------------------------------------------------------------------------
void take_product(Viewer& viewer, std::shared_ptr<Product> product);
void take_arrival(Viewer& viewer); // once per frame
void show_entry(Viewer& viewer, const Entry& entry);
void show_neighbour(Viewer& viewer, int step); // 1: the next older one
void delete_entry(Viewer& viewer, size_t index);
void delete_shown(Viewer& viewer);
bool undelete(Viewer& viewer); // false: there is none

// ---- One file each --------------------------------------------------------------------------------------------------
void draw_window(Viewer& viewer);   // layout.cpp: all of it
void toggle_graphs(Viewer& viewer); // likewise: the right panel
void draw_controls(Viewer& viewer); // controls.cpp: the left panel
void draw_numbers(Viewer& viewer);  // numbers.cpp: its numbers
void draw_adapters(Viewer& viewer); // adapters.cpp: its list of LoRAs
void draw_xml_form(Viewer& viewer); // xml_form.cpp: the panel beside it, for prompts in XML
void draw_canvas(Viewer& viewer);   // canvas.cpp: the picture, the brush
// canvas.cpp: squares in the place of a picture that may be transparent, before it is drawn; nothing for others.
void draw_squares(const Viewer& viewer, const Texture& picture, const Area& area, int opacity);
void draw_tools(Viewer& viewer, const Area& room);      // tools.cpp: the row above the picture
void draw_notices(Viewer& viewer, const Area& room);    // notices.cpp: failures and offers
void draw_strip(Viewer& viewer);                        // strip.cpp: the queue and the history
void draw_monitor(Viewer& viewer);                      // monitor.cpp: frame times, memory
void draw_help(Viewer& viewer);                         // help.cpp: the keys
bool press_key(Viewer& viewer, int key, int modifiers); // keys.cpp; true: Dear ImGui is not to see it
#endif
