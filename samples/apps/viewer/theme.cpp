#include "theme.h"
#include "viewer.h"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <imgui_impl_opengl3.h>
extern "C" {
#include "utf8.h"
}

// ---- Fonts and colours ----------------------------------------------------------------------------------------------

static const char* first_file(const char* const* paths, size_t count)
{
    std::error_code ignored;
    for (size_t i = 0; i < count; i++)
        if (std::filesystem::is_regular_file(paths[i], ignored)) return paths[i];
    return nullptr;
}

static const char* find_font()
{
    static const char* const paths[] = {"/usr/share/fonts/opentype/inter/Inter-Regular.otf",
                                        "/usr/share/fonts/truetype/inter/Inter-Regular.ttf",
                                        "/usr/share/fonts/truetype/noto/NotoSans-Regular.ttf",
                                        "/usr/share/fonts/truetype/open-sans/OpenSans-Regular.ttf",
                                        "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
                                        "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf",
                                        "/usr/share/fonts/TTF/DejaVuSans.ttf",
                                        "/System/Library/Fonts/Helvetica.ttc",
                                        "C:/Windows/Fonts/segoeui.ttf"};
    return first_file(paths, sizeof paths / sizeof *paths);
}

static void set_style(float scale)
{
    ImGuiStyle& style = ImGui::GetStyle();
    style = ImGuiStyle();
    style.WindowPadding = ImVec2(20, 16);
    style.FramePadding = ImVec2(10, 6);
    style.ItemSpacing = ImVec2(8, 8);
    style.ItemInnerSpacing = ImVec2(8, 6);
    style.WindowRounding = style.ChildRounding = 0.0f;
    style.PopupRounding = 8.0f;
    style.FrameRounding = style.GrabRounding = 5.0f;
    style.ScrollbarRounding = 5.0f;
    style.ScrollbarSize = 10.0f;
    style.GrabMinSize = 10.0f;
    style.WindowBorderSize = style.ChildBorderSize = 0.0f;
    style.PopupBorderSize = 1.0f;
    style.FrameBorderSize = 0.0f;
    style.DisabledAlpha = 0.45f;
    style.WindowTitleAlign = ImVec2(0.0f, 0.5f);
    auto set = [&style](ImGuiCol index, ImU32 value) { style.Colors[index] = ImGui::ColorConvertU32ToFloat4(value); };
    ImGui::StyleColorsDark();
    set(ImGuiCol_Text, colour::TEXT);
    set(ImGuiCol_TextDisabled, colour::FAINT);
    set(ImGuiCol_WindowBg, colour::GROUND);
    set(ImGuiCol_ChildBg, IM_COL32(0, 0, 0, 0));
    set(ImGuiCol_PopupBg, IM_COL32(30, 32, 38, 252));
    set(ImGuiCol_Border, colour::LINE);
    set(ImGuiCol_FrameBg, colour::FIELD);
    set(ImGuiCol_FrameBgHovered, colour::FIELD_HOT);
    set(ImGuiCol_FrameBgActive, colour::FIELD_HOT);
    set(ImGuiCol_TitleBg, colour::PANEL);
    set(ImGuiCol_TitleBgActive, colour::PANEL);
    set(ImGuiCol_Button, colour::FIELD);
    set(ImGuiCol_ButtonHovered, colour::FIELD_HOT);
    set(ImGuiCol_ButtonActive, colour::LINE);
    set(ImGuiCol_Header, IM_COL32(214, 84, 58, 70));
    set(ImGuiCol_HeaderHovered, colour::FIELD_HOT);
    set(ImGuiCol_HeaderActive, colour::LINE);
    set(ImGuiCol_SliderGrab, IM_COL32(150, 154, 164, 255));
    set(ImGuiCol_SliderGrabActive, colour::SEAL);
    set(ImGuiCol_CheckMark, colour::SEAL);
    set(ImGuiCol_Separator, colour::LINE);
    set(ImGuiCol_ScrollbarBg, IM_COL32(0, 0, 0, 0));
    set(ImGuiCol_ScrollbarGrab, colour::LINE);
    set(ImGuiCol_TextSelectedBg, IM_COL32(214, 84, 58, 110));
    set(ImGuiCol_NavHighlight, colour::SEAL);
    set(ImGuiCol_ModalWindowDimBg, IM_COL32(8, 9, 11, 170));
    style.ScaleAllSizes(scale);
    style.PopupBorderSize = 1.0f;
}

std::string theme_load(Theme& theme, float scale)
{
    // Latin, Greek, Cyrillic and the signs used here. Other scripts show as '?', but reach the model as they were
    // typed.
    static const ImWchar ranges[] = {0x20,   0x24F,  0x370,  0x52F,  0x1E00, 0x1EFF, 0x2010, 0x2027, 0x2190,
                                     0x2193, 0x2022, 0x2022, 0x2026, 0x2026, 0x20AC, 0x20AC, 0};
    ImGuiIO& io = ImGui::GetIO();
    io.Fonts->Clear();
    theme.scale = scale;
    const char* path = find_font();
    auto add = [&](float size) {
        ImFont* font = nullptr;
        ImFontConfig config;
        config.OversampleH = 2;
        if (path) font = io.Fonts->AddFontFromFileTTF(path, std::round(size * scale), &config, ranges);
        if (font) return font;
        config.SizePixels = std::round(size * scale);
        return io.Fonts->AddFontDefault(&config);
    };
    theme.text = add(14.0f);
    theme.small = add(12.0f);
    theme.title = add(22.0f);
    set_style(scale);
    return path ? path : "";
}

// ---- Widgets --------------------------------------------------------------------------------------------------------

void heading(const Viewer& viewer, const char* text)
{
    ImGui::Dummy(ImVec2(0, viewer.theme(2)));
    ImGui::PushFont(viewer.theme.small);
    ImGui::PushStyleColor(ImGuiCol_Text, colour::DIM);
    ImGui::TextUnformatted(text);
    ImGui::PopStyleColor();
    ImGui::PopFont();
}

void label(const Viewer& viewer, const char* text)
{
    ImGui::AlignTextToFramePadding();
    ImGui::PushStyleColor(ImGuiCol_Text, colour::DIM);
    ImGui::TextUnformatted(text);
    ImGui::PopStyleColor();
    ImGui::SameLine(viewer.theme(84));
    ImGui::SetNextItemWidth(-1.0f);
}

bool primary_button(const Viewer&, const char* text, ImVec2 size)
{
    ImGui::PushStyleColor(ImGuiCol_Button, colour::SEAL);
    ImGui::PushStyleColor(ImGuiCol_ButtonHovered, colour::SEAL_HOT);
    ImGui::PushStyleColor(ImGuiCol_ButtonActive, colour::SEAL_DOWN);
    ImGui::PushStyleColor(ImGuiCol_Text, IM_COL32(255, 250, 245, 255));
    const bool pressed = ImGui::Button(text, size);
    ImGui::PopStyleColor(4);
    return pressed;
}

bool segments(Viewer& viewer, const char* name, const char* const* texts, int count, int* chosen,
              const char* const* hints)
{
    const float width = ImGui::CalcItemWidth(), height = ImGui::GetFrameHeight();
    float texts_width = 0.0f;
    for (int i = 0; i < count; i++) texts_width += ImGui::CalcTextSize(texts[i]).x;
    const float space = (width - texts_width) / (float)count; // around each text, which are not equally long
    const ImVec2 corner = ImGui::GetCursorScreenPos();
    ImDrawList* list = ImGui::GetWindowDrawList();
    const float rounding = ImGui::GetStyle().FrameRounding, inset = viewer.theme(2);
    list->AddRectFilled(corner, ImVec2(corner.x + width, corner.y + height), ImGui::GetColorU32(ImGuiCol_FrameBg),
                        rounding);
    bool changed = false;
    ImGui::PushID(name);
    float part_begin = corner.x;
    for (int i = 0; i < count; i++) {
        const ImVec2 size = ImGui::CalcTextSize(texts[i]);
        const float part = 2.0f * std::floor(0.5f * (size.x + space)); // even, so that its middle is a pixel
        const ImVec2 from(part_begin, corner.y), to(from.x + part, corner.y + height);
        part_begin = to.x;
        ImGui::SetCursorScreenPos(from);
        ImGui::PushID(i);
        if (ImGui::InvisibleButton("part", ImVec2(part, height)) && *chosen != i) *chosen = i, changed = true;
        const bool is_hot = ImGui::IsItemHovered(), is_chosen = *chosen == i;
        if (is_chosen)
            list->AddRectFilled(ImVec2(from.x + inset, from.y + inset), ImVec2(to.x - inset, to.y - inset),
                                ImGui::GetColorU32(IM_COL32(72, 77, 89, 255)), rounding - 1.0f);
        if (ImGui::GetIO().NavVisible && ImGui::IsItemFocused()) // keys have moved there
            list->AddRect(from, to, colour::SEAL, rounding, 0, viewer.theme(1.5f));
        list->AddText(
            ImVec2(std::floor(from.x + 0.5f * (part - size.x)), std::floor(from.y + 0.5f * (height - size.y))),
            ImGui::GetColorU32(is_chosen ? colour::TEXT
                               : is_hot  ? colour::TEXT
                                         : colour::DIM),
            texts[i]);
        char part_name[64];
        snprintf(part_name, sizeof part_name, "%s-%d", name, i);
        mark(viewer, part_name);
        if (hints) hint(hints[i]);
        ImGui::PopID();
    }
    ImGui::PopID();
    ImGui::SetCursorScreenPos(corner);
    ImGui::Dummy(ImVec2(width, height));
    return changed;
}

static void begin_slider(double value, double low, double high, bool logarithmic)
{
    const double part = logarithmic ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
    const ImVec2 corner = ImGui::GetCursorScreenPos(),
                 end(corner.x + ImGui::CalcItemWidth(), corner.y + ImGui::GetFrameHeight());
    const float rounding = ImGui::GetStyle().FrameRounding,
                x = corner.x + (end.x - corner.x) * (float)std::clamp(part, 0.0, 1.0);
    const bool is_hot = ImGui::IsMouseHoveringRect(corner, end);
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddRectFilled(corner, end, ImGui::GetColorU32(is_hot ? colour::FIELD_HOT : colour::FIELD), rounding);
    if (x - corner.x > rounding)
        list->AddRectFilled(corner, ImVec2(x, end.y), ImGui::GetColorU32(is_hot ? colour::FILLED_HOT : colour::FILLED),
                            rounding);
    for (ImGuiCol index : {ImGuiCol_FrameBg, ImGuiCol_FrameBgHovered, ImGuiCol_FrameBgActive, ImGuiCol_SliderGrab,
                           ImGuiCol_SliderGrabActive})
        ImGui::PushStyleColor(index, IM_COL32(0, 0, 0, 0));
}

static ImGuiSliderFlags slider_flags(bool logarithmic)
{
    return ImGuiSliderFlags_AlwaysClamp | (logarithmic ? ImGuiSliderFlags_Logarithmic : 0);
}

bool slider(const char* name, int* value, int low, int high, const char* format, bool logarithmic)
{
    begin_slider(*value, low, high, logarithmic);
    const bool changed = ImGui::SliderInt(name, value, low, high, format, slider_flags(logarithmic));
    ImGui::PopStyleColor(5);
    return changed;
}

bool slider(const char* name, float* value, float low, float high, const char* format, bool logarithmic)
{
    begin_slider((double)*value, (double)low, (double)high, logarithmic);
    const bool changed = ImGui::SliderFloat(name, value, low, high, format, slider_flags(logarithmic));
    ImGui::PopStyleColor(5);
    return changed;
}

bool lock_button(const Viewer& viewer, const char* name, float side, bool is_locked)
{
    if (is_locked) ImGui::PushStyleColor(ImGuiCol_Button, colour::SEAL_DOWN);
    const bool pressed = ImGui::Button(name, ImVec2(side, side));
    if (is_locked) ImGui::PopStyleColor();
    const ImVec2 low = ImGui::GetItemRectMin(), high = ImGui::GetItemRectMax();
    const float x = std::floor(0.5f * (low.x + high.x)), y = std::floor(0.5f * (low.y + high.y)),
                unit = viewer.theme(1);
    const ImU32 ink = ImGui::GetColorU32(is_locked ? colour::TEXT : colour::DIM);
    ImDrawList* list = ImGui::GetWindowDrawList();
    list->AddRectFilled(ImVec2(x - 5.0f * unit, y - 1.0f * unit), ImVec2(x + 5.0f * unit, y + 6.0f * unit), ink,
                        1.5f * unit);
    // The shackle, lifted when it is open
    const float top = y - (is_locked ? 2.0f : 4.0f) * unit, radius = 3.2f * unit;
    list->PathArcTo(ImVec2(x, top), radius, 3.14159f, 2.0f * 3.14159f, 12);
    if (is_locked) list->PathLineTo(ImVec2(x + radius, y));
    list->PathStroke(ink, 0, 1.6f * unit);
    list->AddLine(ImVec2(x - radius, top), ImVec2(x - radius, y), ink, 1.6f * unit);
    return pressed;
}

bool dice_button(const Viewer& viewer, const char* name, float side, int pips)
{
    static const float places[7][7][2] = {{},
                                          {{0, 0}},
                                          {{-1, -1}, {1, 1}},
                                          {{-1, -1}, {0, 0}, {1, 1}},
                                          {{-1, -1}, {1, -1}, {-1, 1}, {1, 1}},
                                          {{-1, -1}, {1, -1}, {0, 0}, {-1, 1}, {1, 1}},
                                          {{-1, -1}, {1, -1}, {-1, 0}, {1, 0}, {-1, 1}, {1, 1}}};
    const bool pressed = ImGui::Button(name, ImVec2(side, side));
    const ImVec2 low = ImGui::GetItemRectMin(), high = ImGui::GetItemRectMax(),
                 middle(0.5f * (low.x + high.x), 0.5f * (low.y + high.y));
    const float half = side * 0.27f;
    ImDrawList* list = ImGui::GetWindowDrawList();
    const ImU32 ink = ImGui::GetColorU32(colour::TEXT);
    list->AddRect(ImVec2(middle.x - half, middle.y - half), ImVec2(middle.x + half, middle.y + half), ink,
                  viewer.theme(3), 0, viewer.theme(1.3f));
    for (int i = 0; i < pips; i++)
        list->AddCircleFilled(
            ImVec2(middle.x + places[pips][i][0] * half * 0.5f, middle.y + places[pips][i][1] * half * 0.5f),
            viewer.theme(1.5f), ink, 12);
    return pressed;
}

// Dear ImGui leaves Enter to text boxes.
bool is_entered(Viewer& viewer)
{
    if (!viewer.presses_line || !ImGui::IsItemFocused()) return false;
    viewer.presses_line = false;
    ImGui::CloseCurrentPopup();
    return true;
}

void placeholder(const char* text)
{
    const ImVec2 low = ImGui::GetItemRectMin(), pad = ImGui::GetStyle().FramePadding;
    ImGui::GetWindowDrawList()->AddText(ImVec2(low.x + pad.x, low.y + pad.y), colour::FAINT,
                                        elided(text, ImGui::GetItemRectMax().x - low.x - 2.0f * pad.x).c_str());
}

// Whether the mouse has rested on the last item for a moment, so that a way across the panel raises no tooltip.
static bool is_rested_on()
{
    static constexpr double DELAY = 0.4;
    static ImVec2 s_corner;
    static double s_since;
    if (!ImGui::IsItemHovered(ImGuiHoveredFlags_AllowWhenDisabled)) return false;
    const ImVec2 corner = ImGui::GetItemRectMin();
    if (corner.x != s_corner.x || corner.y != s_corner.y) s_since = ImGui::GetTime();
    s_corner = corner;
    return ImGui::GetTime() - s_since >= DELAY;
}

static ImVec2 tooltip_padding()
{
    const ImVec2 padding = ImGui::GetStyle().FramePadding;
    return ImVec2(1.2f * padding.x, 1.2f * padding.y);
}

static float tooltip_text_width() { return ImGui::GetFontSize() * 24.0f; }

static void draw_tooltip(const char* text)
{
    ImGui::PushStyleVar(ImGuiStyleVar_WindowPadding, tooltip_padding());
    ImGui::BeginTooltip();
    ImGui::PushTextWrapPos(tooltip_padding().x + tooltip_text_width());
    ImGui::TextUnformatted(shown(text).c_str());
    ImGui::PopTextWrapPos();
    ImGui::EndTooltip();
    ImGui::PopStyleVar();
}

void hint(const char* text)
{
    if (is_rested_on()) draw_tooltip(text);
}

void hint_beside(const char* text)
{
    if (!is_rested_on()) return;
    const ImVec2 low = ImGui::GetWindowPos(), size = ImGui::GetWindowSize(), screen = ImGui::GetIO().DisplaySize;
    const ImVec2 high(low.x + size.x, low.y + size.y),
        padding = tooltip_padding(),
        inside = ImGui::CalcTextSize(shown(text).c_str(), nullptr, false, tooltip_text_width());
    const float width = inside.x + 2.0f * padding.x, height = inside.y + 2.0f * padding.y, gap = padding.x;
    ImVec2 corner(high.x + gap, ImGui::GetItemRectMin().y);
    if (corner.x + width > screen.x) corner.x = low.x - gap - width;
    if (corner.x < 0.0f) corner = ImVec2(low.x, high.y + gap); // there is no room at its sides
    corner.x = std::max(0.0f, std::min(corner.x, screen.x - width));
    corner.y = std::max(0.0f, std::min(corner.y, screen.y - height));
    ImGui::SetNextWindowPos(corner);
    draw_tooltip(text);
}

void mark(Viewer& viewer, const char* name)
{
    if (!viewer.report.is_on()) return;
    const ImVec2 low = ImGui::GetItemRectMin(), high = ImGui::GetItemRectMax();
    const ImVec2 middle(0.5f * (low.x + high.x), 0.5f * (low.y + high.y));
    const ImVec2 first = ImGui::GetWindowDrawList()->GetClipRectMin(),
                 last = ImGui::GetWindowDrawList()->GetClipRectMax();
    const char* where = middle.y < first.y ? "above"
                      : middle.y >= last.y ? "below"
                      : middle.x < first.x ? "left"
                      : middle.x >= last.x ? "right"
                                           : "";
    viewer.report.widget(name, {low.x, low.y, high.x, high.y}, where);
}

void mark_area(Viewer& viewer, const char* name, const Area& area)
{
    viewer.report.widget(name, {area.low.x, area.low.y, area.high.x, area.high.y}, "");
}

std::string bytes_text(double bytes)
{
    static const char* const units[] = {"B", "kB", "MB", "GB", "TB"};
    size_t unit = 0;
    while (bytes >= 1000.0 && unit < 4) bytes /= 1000.0, unit++;
    char text[32];
    snprintf(text, sizeof text, unit == 0 || bytes >= 99.95 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return text;
}

static size_t next_letter(const char* text, size_t at) // of UTF-8
{
    do at++;
    while ((text[at] & 0xC0) == 0x80);
    return at;
}

std::string shown(const std::string& text)
{
    std::string all;
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        const std::string line = text.substr(begin, end - begin);
        std::string copy(utf8_show(nullptr, 0, line.c_str()) + 1, '\0');
        utf8_show(&copy[0], copy.size(), line.c_str());
        copy.pop_back();
        all += copy + (end < text.size() ? "\n" : "");
        begin = end + 1;
    }
    return all;
}

std::string elided(const std::string& raw, float width)
{
    const std::string text = shown(raw);
    if (ImGui::CalcTextSize(text.c_str()).x <= width) return text;
    size_t head = 0;
    std::string best = "...";
    while (head < text.size()) {
        head = next_letter(text.c_str(), head);
        std::string shorter = text.substr(0, head) + "...";
        if (ImGui::CalcTextSize(shorter.c_str()).x > width) break;
        best = shorter;
    }
    return best;
}

// ---- Text that wraps ------------------------------------------------------------------------------------------------

static bool wrap(char* text, float width)
{
    bool changed = false;
    size_t line = 0, last_space = 0; // last_space: where this line can end; 0: nowhere yet
    std::string before = text;
    for (char* at = text; *at; at++)
        if (*at == '\n') *at = ' ';
    for (size_t at = 0; text[at]; at = next_letter(text, at)) {
        if (text[at] == ' ') {
            if (at > line) last_space = at;
            continue; // a space may hang over the edge
        }
        const size_t end = next_letter(text, at);
        if (last_space > line && ImGui::CalcTextSize(text + line, text + end).x > width) {
            text[last_space] = '\n';
            line = last_space + 1;
            last_space = 0;
        }
    }
    changed = before != text;
    return changed;
}

static int rewrap(ImGuiInputTextCallbackData* data)
{
    if (wrap(data->Buf, *static_cast<float*>(data->UserData))) data->BufDirty = true;
    return 0;
}

bool wrapped_text(const char* name, char* text, size_t capacity, ImVec2 size, bool* changed)
{
    const ImGuiStyle& style = ImGui::GetStyle();
    float width =
        (size.x > 0.0f ? size.x : ImGui::GetContentRegionAvail().x) - 2.0f * style.FramePadding.x - style.ScrollbarSize;
    wrap(text, width);
    const ImGuiInputTextFlags flags = ImGuiInputTextFlags_EnterReturnsTrue | ImGuiInputTextFlags_CtrlEnterForNewLine
                                    | ImGuiInputTextFlags_CallbackAlways | ImGuiInputTextFlags_NoHorizontalScroll;
    const bool entered = ImGui::InputTextMultiline(name, text, capacity, size, flags, rewrap, &width);
    if (ImGui::IsItemEdited() && changed) *changed = true;
    return entered;
}

std::string unwrapped(const char* text)
{
    std::string result = text;
    for (char& letter : result)
        if (letter == '\n' || letter == '\t' || letter == '\r') letter = ' ';
    return result;
}
