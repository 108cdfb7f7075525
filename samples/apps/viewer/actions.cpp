#include "scale.h"
#include "viewer.h"
#include <algorithm>

void complain(Viewer& viewer, const std::string& text)
{
    viewer.banner = shown(text);
    viewer.status.clear();
    std::string line = text;
    std::replace(line.begin(), line.end(), '\n', ' ');
    viewer.report.event(viewer.now, "failure %s", line.c_str());
}

void generate(Viewer& viewer)
{
    if (!viewer.generator.is_ready()) return;
    viewer.canvas = Canvas::PICTURE;
    viewer.watches = true;
    end_compare(viewer);
    add_to_queue(viewer, current_settings(viewer), viewer.picture_count);
    if (!viewer.keeps_seed) roll_seed(viewer);
}

void cancel(Viewer& viewer)
{
    if (!viewer.generator.is_generating()) return;
    skip_running(viewer);
    viewer.generator.cancel();
    viewer.report.event(viewer.now, "cancel");
}

void open_model(Viewer& viewer, const std::string& path)
{
    viewer.banner.clear();
    skip_running(viewer);
    viewer.queue.jobs.clear(); // its adapters and numbers are for the model that is closed now
    viewer.prompt_before = unwrapped(viewer.prompt);
    if (viewer.generator.is_ready()) viewer.was_instruction = prompt_instructs(viewer);
    viewer.generator.open(path);
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

static void take_model(Viewer& viewer)
{
    const Generator& generator = viewer.generator;
    viewer.report.event(viewer.now, "ready %s", generator.model_name().c_str());
    // The model of the form comes back when another one could not be opened: the form stays as it is.
    const bool is_other = generator.model_path() != viewer.form_model;
    if (is_other) drop_offered_adapters(viewer);
    reread_adapters(viewer);
    reread_control(viewer);
    if (!is_other) return;
    viewer.form_model = generator.model_path();
    viewer.status.clear();
    remember_model(viewer, viewer.form_model);
    find_adapters_beside(viewer, viewer.form_model);
    apply_preset(viewer, SUMI_PRESET_MODEL);
    if (viewer.start) fit_size(viewer, viewer.start->width, viewer.start->height);
    const bool instructs = prompt_instructs(viewer), edits = takes_references(viewer);
    if (instructs != viewer.was_instruction) exchange_prompt(viewer);
    viewer.was_instruction = instructs;
    if (!has_control(viewer) || viewer.use != Use::FOLLOW) viewer.use = edits ? Use::EDIT : Use::START;
    if (edits && !generator.draws()) edit_screen(viewer);
    const size_t used = used_references(viewer);
    if (edits && viewer.references.size() > used)
        viewer.status =
            "This model edits at most " + std::to_string(used) + " pictures at once: the others are not used";
}

void take_news(Viewer& viewer)
{
    Generator& generator = viewer.generator;
    if (SharedPixels preview = generator.take_preview()) take_preview(viewer, preview);
    if (std::shared_ptr<Product> product = generator.take_product()) take_product(viewer, product);
    take_arrival(viewer);
    if (std::string failure = generator.take_failure(); !failure.empty()) {
        if (!generator.is_generating()) skip_running(viewer); // the rest of a batch would fail like its first picture
        complain(viewer, failure);
    }
    if (generator.take_cancelled()) {
        viewer.has_preview = false;
        viewer.status = "Cancelled";
        viewer.report.event(viewer.now, "cancelled");
    }
    if (generator.take_opened()) take_model(viewer);
    take_adapters(viewer);
    take_control(viewer);
    take_arrived(viewer);
    advance_queue(viewer);
    if (viewer.wants_size && generator.is_ready() && generator.can_tell_size()) {
        viewer.wants_size = false;
        const Settings settings = current_settings(viewer);
        viewer.followed_size = settings.has_size_of_references() ? generator.size_of(settings) : sumi_size{};
    }
    // A plan is written for the answer: not for every step of a slider's way.
    if (viewer.wants_memory && generator.is_ready() && !generator.is_generating()
        && viewer.now - viewer.settings_changed > 0.25) {
        viewer.wants_memory = false;
        Settings settings = current_settings(viewer);
        find_adapters(viewer, settings);
        find_control(viewer, settings);
        generator.ask_memory(settings);
    }
}
