// What the left panel says, and where its numbers come from.
#include "viewer.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
extern "C" {
#include "parameters.h"
}

static void put_text(char* into, size_t capacity, const std::string& text)
{
    snprintf(into, capacity, "%s", text.c_str());
}

void form_changed(Viewer& viewer)
{
    viewer.settings_changed = viewer.now;
    viewer.wants_memory = viewer.wants_size = true;
}

void apply_preset(Viewer& viewer, sumi_preset preset)
{
    const Settings defaults = viewer.generator.defaults(preset);
    const Settings before = viewer.form;
    viewer.form = defaults;
    if (viewer.start) {
        viewer.form.width = before.width;
        viewer.form.height = before.height;
    }
    form_changed(viewer);
}

void apply_steps(Viewer& viewer, sumi_preset preset)
{
    const Settings before = viewer.form;
    apply_preset(viewer, preset);
    viewer.form.width = before.width;
    viewer.form.height = before.height;
    viewer.form.follows_references = before.follows_references;
}

void choose_preset(Viewer& viewer, sumi_preset preset)
{
    apply_preset(viewer, preset);
    switch_few_steps(viewer, preset == SUMI_PRESET_FAST);
}

// A box that is being typed into has a copy of its text, which would come back: it is left, and entered again.
static void put_prompt(Viewer& viewer, const std::string& text)
{
    put_text(viewer.prompt, sizeof viewer.prompt, text);
    if (viewer.has_focus) viewer.leaves_text = viewer.wants_focus = true;
}

// What was typed while the model was opening is for that model.
void exchange_prompt(Viewer& viewer)
{
    const bool was_typed = unwrapped(viewer.prompt) != viewer.prompt_before;
    const std::string kept = viewer.kept_prompt;
    viewer.kept_prompt = viewer.prompt_before;
    if (!was_typed) put_prompt(viewer, kept);
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

bool can_reuse_steps(const Viewer& viewer)
{
    const bool skips_steps = viewer.start && !viewer.mask.has_paint; // those before the start picture's noise
    return (float)viewer.form.step_count * (skips_steps ? viewer.form.strength : 1.0f) >= 16.0f;
}

Reuse reuse_of(const Settings& settings)
{
    if (settings.step_cache_every > 0) return Reuse::FIXED;
    if (settings.step_cache_db > 0.0f) return Reuse::KEEP;
    return settings.step_cache > 0.0f ? Reuse::CHANGE : Reuse::OFF;
}

void set_reuse(Settings& settings, Reuse kind, float number)
{
    settings.step_cache = kind == Reuse::CHANGE ? std::min(number, MAX_STEP_CACHE) : 0.0f;
    settings.step_cache_db = kind == Reuse::KEEP ? number : 0.0f;
    settings.step_cache_every = kind == Reuse::FIXED ? (int)number : 0;
}

// Complete for a job.
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
    settings.adapters = adapters_in_use(viewer);
    settings.control = control_in_use(viewer);
    settings.start = viewer.start;
    for (size_t i = 0; i < used_references(viewer); i++) settings.references.push_back(viewer.references[i]->pixels);
    if (viewer.start && viewer.mask.has_paint) settings.mask = std::make_shared<Pixels>(viewer.mask.pixels);
    if (settings.mask) settings.strength = 1.0f; // what is painted over is to be forgotten
    if (!can_reuse_steps(viewer)) set_reuse(settings, Reuse::OFF, 0.0f);
    if (viewer.generator.model_info().ignores_guidance)
        settings.guidance = settings.guidance_off; // what is saved tells it
    return settings;
}

// ---- Sizes ----------------------------------------------------------------------------------------------------------

static int fitting(const Viewer& viewer, double side)
{
    const sumi_model_info& info = viewer.generator.model_info();
    const int multiple = std::max(1, info.size_multiple), most = info.max_size > 0 ? info.max_size : 2048;
    return std::clamp((int)std::lround(side / multiple) * multiple, multiple, most / multiple * multiple);
}

void fit_size(Viewer& viewer, int width, int height)
{
    const sumi_model_info& info = viewer.generator.model_info();
    double factor = 1.0;
    if (info.native_size > 0) {
        const double area = (double)width * height, liked = (double)info.native_size * info.native_size;
        if (area > 2.0 * liked || area < 0.5 * liked) factor = std::sqrt(liked / area);
    }
    viewer.form.width = fitting(viewer, factor * width);
    viewer.form.height = fitting(viewer, factor * height);
}

void apply_aspect(Viewer& viewer, int across, int up)
{
    const double area = (double)viewer.form.width * viewer.form.height;
    viewer.form.width = fitting(viewer, std::sqrt(area * across / up));
    viewer.form.height = fitting(viewer, std::sqrt(area * up / across));
    form_changed(viewer);
}

// ---- From pictures --------------------------------------------------------------------------------------------------

void apply_settings(Viewer& viewer, const Product& product)
{
    const Settings& s = product.settings;
    viewer.prompt_kind = s.xml ? PromptKind::FORM : PromptKind::TEXT;
    if (s.xml) viewer.xml = *s.xml;
    else put_prompt(viewer, s.prompt);
    put_text(viewer.negative, sizeof viewer.negative, s.negative);
    viewer.seed = s.seed;
    viewer.form = s;
    viewer.form.start.reset(); // the one that is there stays, and what was painted over it
    viewer.form.mask.reset();
    viewer.form.references.clear();
    if (takes_references(viewer)) restore_references(viewer, s.references); // the prompt speaks of them
    viewer.form.adapters.clear();
    restore_adapters(viewer, s.adapters);
    viewer.form.control = ControlUse();
    restore_control(viewer, s.control);
    form_changed(viewer);
    viewer.report.event(viewer.now, "restored %llu", (unsigned long long)s.seed);
}

void apply_parameters(Viewer& viewer, const std::string& text)
{
    const sumi_model_info& info = viewer.generator.model_info();
    Settings& form = viewer.form;
    parameters read;
    char* strings = parameters_read(text.c_str(), &read);
    if (!strings) return;
    viewer.prompt_kind = PromptKind::TEXT;
    put_prompt(viewer, unwrapped(read.prompt ? read.prompt : ""));
    put_text(viewer.negative, sizeof viewer.negative, unwrapped(read.negative ? read.negative : ""));
    if (read.has_seed) viewer.seed = read.seed;
    if (read.step_count > 0) form.step_count = std::min(read.step_count, 1000);
    if (read.width > 0 && read.height > 0) {
        form.width = fitting(viewer, read.width);
        form.height = fitting(viewer, read.height);
        form.follows_references = false;
    }
    if (read.cfg_scale >= 0.0f) form.guidance = std::max(form.guidance_off, parameters_guidance(&info, read.cfg_scale));
    if (read.solver >= 0) form.solver = (sumi_solver)read.solver;
    form.shift = read.shift;
    if (read.step_cache_every > 0) set_reuse(form, Reuse::FIXED, (float)read.step_cache_every);
    else if (read.step_cache_db > 0.0f) set_reuse(form, Reuse::KEEP, read.step_cache_db);
    else set_reuse(form, read.step_cache > 0.0f ? Reuse::CHANGE : Reuse::OFF, read.step_cache);
    if (read.strength > 0.0f) form.strength = std::min(read.strength, 1.0f);
    viewer.status = "Took the settings";
    if (read.loras) viewer.status += std::string("; it was made with the LoRA ") + read.loras;
    if (read.controls) viewer.status += std::string("; it followed a picture by the control net ") + read.controls;
    if (read.reference_count == 1) viewer.status += "; it was edited, and the file does not hold the picture before";
    if (read.reference_count > 1)
        viewer.status +=
            "; it was made of " + std::to_string(read.reference_count) + " pictures, which the file does not hold";
    // Made from a text alone: it is not what the next picture starts from.
    if (read.strength < 0.0f && viewer.start && viewer.start == viewer.offered) drop_start(viewer);
    if (read.strength < 0.0f && read.reference_count == 0 && viewer.generator.draws())
        drop_reference(viewer, viewer.offered);
    form_changed(viewer);
    viewer.report.event(viewer.now, "restored %llu", (unsigned long long)viewer.seed);
    free(strings);
}
