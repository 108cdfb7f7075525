// The numbers of the form: size, steps, guidance, solver, seed.
#include "viewer.h"
#include <algorithm>
#include <cmath>
extern "C" {
#include "parameters.h"
}

struct Aspect {
    const char* text;
    int across, up;
};
static const Aspect s_aspects[] = {{"1:1", 1, 1}, {"4:3", 4, 3}, {"3:2", 3, 2},  {"16:9", 16, 9},
                                   {"3:4", 3, 4}, {"2:3", 2, 3}, {"9:16", 9, 16}};
static constexpr int ASPECT_COUNT = sizeof s_aspects / sizeof *s_aspects;
static const char* const s_preset_hints[PRESET_COUNT] = {
    "The settings of the model's authors",
    "Smaller and with fewer steps, for a quick look",
    "The model's own size and steps",
    "The same size, more evaluations",
    "The fewest steps and no guidance: for a model or a LoRA that was distilled to a few steps. Such a LoRA beside the "
    "model is switched on",
    "Guidance only while half of the picture is still noise: a tenth to a quarter less time. Step caching saves more"};

static bool slide_size(const char* name, int* side, const sumi_model_info& info, float width)
{
    const int multiple = std::max(1, info.size_multiple), low = std::max(multiple, 64 / multiple * multiple),
              high = std::max(low, std::min(info.max_size, 2 * info.native_size) / multiple * multiple);
    int pixels = *side;
    ImGui::SetNextItemWidth(width);
    if (!slider(name, &pixels, low, high, "%d")) return false;
    pixels = (pixels + multiple / 2) / multiple * multiple;
    if (pixels == *side) return false;
    *side = pixels;
    return true;
}

// Sizes are multiples of some pixels: an aspect is the one whose size, made so, this is.
static int aspect_of(const Settings& form)
{
    int nearest = -1;
    double least = 0.03;
    for (int i = 0; i < ASPECT_COUNT; i++) {
        const double off =
            std::fabs(std::log((double)form.width * s_aspects[i].up / std::max(1, form.height * s_aspects[i].across)));
        if (off < least) least = off, nearest = i;
    }
    return nearest;
}

static bool draw_aspects(Viewer& viewer, float width)
{
    const sumi_model_info& info = viewer.generator.model_info();
    Settings& form = viewer.form;
    const int chosen = aspect_of(form);
    bool changed = false;
    ImGui::SetNextItemWidth(width);
    const bool is_open =
        ImGui::BeginCombo("##aspect", chosen < 0 ? "free" : s_aspects[chosen].text, ImGuiComboFlags_HeightLargest);
    mark(viewer, "aspect");
    if (!is_open) {
        hint("The shape: the number of pixels stays about the same. Below the shapes are the sizes that the model's "
             "authors name.");
        return false;
    }
    for (int i = 0; i < ASPECT_COUNT; i++) {
        if (ImGui::Selectable(s_aspects[i].text, i == chosen) || is_entered(viewer)) {
            apply_aspect(viewer, s_aspects[i].across, s_aspects[i].up);
            changed = true;
        }
        char name[32];
        snprintf(name, sizeof name, "aspect-%d", i);
        mark(viewer, name);
    }
    if (info.size_count > 0) ImGui::Separator();
    for (int i = 0; i < info.size_count; i++) {
        char text[48];
        snprintf(text, sizeof text, "%d \u00d7 %d", info.sizes[i].width, info.sizes[i].height);
        if (!ImGui::Selectable(text, form.width == info.sizes[i].width && form.height == info.sizes[i].height)
            && !is_entered(viewer))
            continue;
        form.width = info.sizes[i].width;
        form.height = info.sizes[i].height;
        changed = true;
    }
    ImGui::EndCombo();
    return changed;
}

static bool draw_size(Viewer& viewer)
{
    const sumi_model_info& info = viewer.generator.model_info();
    Settings& form = viewer.form;
    bool changed = false;
    const bool can_follow = used_references(viewer) > 0 && !viewer.start;
    if (takes_references(viewer)) {
        label(viewer, "");
        ImGui::PushStyleVar(ImGuiStyleVar_FramePadding, ImVec2(viewer.theme(3), viewer.theme(3)));
        ImGui::BeginDisabled(!can_follow);
        changed |= ImGui::Checkbox("by the pictures to edit", &form.follows_references);
        ImGui::EndDisabled();
        ImGui::PopStyleVar();
        mark(viewer, "follows");
        hint(viewer.start ? "Where there is a picture to start from, the size does not follow from those to edit"
                          : "The size follows from the pictures to edit, where there are some, by the rule of the "
                            "model's authors");
    }
    const int width = form.width, height = form.height;
    const bool follows = form.follows_references && can_follow;
    const bool shows_followed = follows && viewer.followed_size.width > 0;
    if (shows_followed) form.width = viewer.followed_size.width, form.height = viewer.followed_size.height;
    label(viewer, "Size");
    ImGui::BeginDisabled(follows);
    const float cross = ImGui::CalcTextSize("\u00d7").x, gap = ImGui::GetStyle().ItemInnerSpacing.x;
    const float aspect = viewer.theme(70);
    const float half = 0.5f * (ImGui::GetContentRegionAvail().x - aspect - cross - 3.0f * gap);
    static const char* const size_hint = "Pixels. Ctrl+click or Tab to type a number";
    changed |= slide_size("##width", &form.width, info, half);
    mark(viewer, "width");
    hint(size_hint);
    ImGui::SameLine(0.0f, gap);
    ImGui::TextDisabled("\u00d7");
    ImGui::SameLine(0.0f, gap);
    changed |= slide_size("##height", &form.height, info, half);
    mark(viewer, "height");
    hint(size_hint);
    ImGui::SameLine(0.0f, gap);
    changed |= draw_aspects(viewer, aspect);
    ImGui::EndDisabled();
    if (shows_followed) form.width = width, form.height = height;
    if (form.width != width || form.height != height)
        viewer.report.event(viewer.now, "size %dx%d", form.width, form.height);
    return changed;
}

// A list of which one is chosen.
struct Choices {
    const char *name, *hint;  // name: for reports; hint: while the list is closed
    int first, last, current; // numbers of entries
};

// Returns the entry that was chosen now; -1: none was. text_of(entry): what it says.
template <class TextOf> static int choose(Viewer& viewer, const Choices& choices, const TextOf& text_of)
{
    char name[32];
    snprintf(name, sizeof name, "##%s", choices.name);
    const bool is_open = ImGui::BeginCombo(name, text_of(choices.current));
    mark(viewer, choices.name);
    if (!is_open) {
        hint(choices.hint);
        return -1;
    }
    int chosen = -1;
    for (int i = choices.first; i <= choices.last; i++) {
        if (ImGui::Selectable(text_of(i), i == choices.current) || is_entered(viewer)) chosen = i;
        snprintf(name, sizeof name, "%s-%d", choices.name, i);
        mark(viewer, name);
    }
    ImGui::EndCombo();
    return chosen;
}

static bool draw_reuse(Viewer& viewer)
{
    static const struct {
        const char* name;
        float number; // at first
    } kinds[] = {{"no steps", 0.0f},
                 {"as the picture allows", PARAMETERS_STEP_CACHE_DB},
                 {"a fixed schedule", 3.0f},
                 {"over small changes", 0.08f}};
    Settings& form = viewer.form;
    label(viewer, "Reuse");
    const int chosen = choose(
        viewer,
        {"reuse",
         "Saves time: a step reuses most of an earlier one. As the picture allows: as long as it is predicted to "
         "keep so many dB; 45 can hardly be seen, 35 also changes small things.",
         0, 3, (int)reuse_of(form)},
        [](int i) { return kinds[i].name; });
    bool changed = chosen >= 0;
    if (changed) set_reuse(form, (Reuse)chosen, kinds[chosen].number);
    if (!form.reuses_steps()) return changed;
    label(viewer, "");
    if (reuse_of(form) == Reuse::KEEP)
        changed |= slider("##reuse-number", &form.step_cache_db, 25.0f, 60.0f, "keeps %.0f dB");
    if (reuse_of(form) == Reuse::FIXED)
        changed |= slider("##reuse-number", &form.step_cache_every, 2, 10, "one of %d is computed");
    if (reuse_of(form) == Reuse::CHANGE)
        changed |= slider("##reuse-number", &form.step_cache, 0.01f, MAX_STEP_CACHE, "change %.2f");
    mark(viewer, "reuse-number");
    hint("More dB keep more of the picture. A larger change or schedule is faster and changes the picture more.");
    return changed;
}

static bool draw_solver(Viewer& viewer)
{
    Settings& form = viewer.form;
    label(viewer, "Solver");
    const int chosen =
        choose(viewer,
               {"solver",
                "The sampler. Heun and Midpoint run the network twice in each step, RK4 four times; DPM++ "
                "2M and Res Multistep once, as Euler.",
                SUMI_SOLVER_EULER, SUMI_SOLVER_RES_MULTISTEP, (int)form.solver},
               [](int i) { return parameters_solver_name((sumi_solver)i); });
    bool changed = chosen >= 0;
    if (changed) form.solver = (sumi_solver)chosen;
    label(viewer, "Shift");
    changed |= slider("##shift", &form.shift, 0.0f, 12.0f, form.shift > 0.0f ? "%.2f" : "the model's own");
    mark(viewer, "shift");
    hint("How much of the way is spent at high noise. At 0 the model's own schedule, which may depend on the size.");
    if (!can_reuse_steps(viewer)) return changed;
    return draw_reuse(viewer) || changed;
}

static void draw_seed(Viewer& viewer)
{
    const float side = ImGui::GetFrameHeight(), gap = ImGui::GetStyle().ItemInnerSpacing.x;
    label(viewer, "Seed");
    ImGui::SetNextItemWidth(ImGui::GetContentRegionAvail().x - 2.0f * (side + gap));
    ImGui::InputScalar("##seed", ImGuiDataType_U64, &viewer.seed);
    mark(viewer, "seed");
    hint("Of the next picture. The same seed and settings make the same picture.");
    ImGui::SameLine(0.0f, gap);
    if (lock_button(viewer, "##lock", side, viewer.keeps_seed)) viewer.keeps_seed = !viewer.keeps_seed;
    mark(viewer, "lock");
    hint(viewer.keeps_seed ? "The seed is kept. Click for another one after each picture (Ctrl+L)"
                           : "Every picture has another seed. Click to keep this one (Ctrl+L)");
    ImGui::SameLine(0.0f, gap);
    if (dice_button(viewer, "##roll", side, 1 + (int)(viewer.seed % 6u))) roll_seed(viewer);
    mark(viewer, "dice");
    hint("Another seed (Ctrl+R)");
}

static bool draw_guidance(Viewer& viewer)
{
    Settings& form = viewer.form;
    if (viewer.generator.model_info().ignores_guidance) return false;
    label(viewer, "Guidance");
    const bool changed = slider("##guidance", &form.guidance, form.guidance_off, 10.0f,
                                form.guidance > form.guidance_off ? "%.1f" : "off");
    mark(viewer, "guidance");
    hint("How strongly the prompt is followed, and the negative prompt avoided. Needs two runs of the network in each "
         "step; models like Turbo are made to run without.");
    return changed;
}

void draw_numbers(Viewer& viewer)
{
    static const char* const presets[] = {"Default", "Preview", "Standard", "Quality", "Fast", "Lean"};
    Settings& form = viewer.form;
    heading(viewer, "PICTURE");
    int preset = form.preset;
    ImGui::SetNextItemWidth(ImGui::GetContentRegionAvail().x);
    if (segments(viewer, "preset", presets, PRESET_COUNT, &preset, s_preset_hints))
        choose_preset(viewer, (sumi_preset)preset);
    bool changed = draw_size(viewer);
    label(viewer, "Steps");
    changed |= slider("##steps", &form.step_count, 1, 100, "%d", true);
    mark(viewer, "steps");
    hint("Denoising steps: more take longer. The presets set what the model was made for.");
    changed |= draw_guidance(viewer);
    draw_seed(viewer);
    label(viewer, "Pictures");
    slider("##count", &viewer.picture_count, 1, 64, "%d", true);
    mark(viewer, "count");
    hint("How many are made at once, each with the next seed");
    changed |= draw_solver(viewer);
    if (changed) form_changed(viewer);
}
