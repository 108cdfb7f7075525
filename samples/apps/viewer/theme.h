// Colours, fonts and the few widgets that Dear ImGui has not.
#ifndef THEME_H
#define THEME_H
#include "area.h"
#include <string>

struct Viewer;

struct Theme {
    float scale = 1.0f; // pixels per unit of the layout: 1, or 2 on a dense screen
    ImFont *text = nullptr, *small = nullptr, *title = nullptr;
    float operator()(float units) const { return units * scale; }
};

namespace colour {
constexpr ImU32 GROUND = IM_COL32(17, 18, 22, 255), PANEL = IM_COL32(24, 26, 31, 255),
                FIELD = IM_COL32(36, 39, 46, 255), FIELD_HOT = IM_COL32(47, 51, 60, 255);
constexpr ImU32 FILLED = IM_COL32(74, 80, 93, 255), FILLED_HOT = IM_COL32(86, 93, 107, 255);
constexpr ImU32 LINE = IM_COL32(48, 52, 61, 255), TEXT = IM_COL32(231, 229, 223, 255),
                DIM = IM_COL32(146, 150, 160, 255), FAINT = IM_COL32(94, 99, 110, 255);
constexpr ImU32 SEAL = IM_COL32(214, 84, 58, 255), SEAL_HOT = IM_COL32(230, 103, 76, 255),
                SEAL_DOWN = IM_COL32(184, 68, 45, 255); // vermilion, as under an ink drawing
constexpr ImU32 WASH = IM_COL32(101, 143, 176, 255), LEAF = IM_COL32(126, 163, 119, 255),
                SAND = IM_COL32(200, 165, 98, 255), ALARM = IM_COL32(94, 34, 30, 245);
} // namespace colour

// Reads a font of the system, or takes Dear ImGui's own. Again after the scale has changed. Returns the file's name, ""
// for the built-in one.
std::string theme_load(Theme& theme, float scale);

// ---- Widgets --------------------------------------------------------------------------------------------------------
void heading(const Viewer& viewer, const char* text); // of a section
// to the left of the widget that comes next, which fills the row
void label(const Viewer& viewer, const char* text);
bool primary_button(const Viewer& viewer, const char* text, ImVec2 size); // the one that matters
// one of a few, side by side
bool segments(Viewer& viewer, const char* name, const char* const* texts, int count, int* chosen,
              const char* const* hints = nullptr);
// Filled as far as their value is.
bool slider(const char* name, int* value, int low, int high, const char* format, bool logarithmic = false);
bool slider(const char* name, float* value, float low, float high, const char* format, bool logarithmic = false);
bool lock_button(const Viewer& viewer, const char* name, float side, bool is_locked);
bool dice_button(const Viewer& viewer, const char* name, float side, int pips);
bool is_entered(Viewer& viewer);    // Enter was pressed on the last item, a line of a menu, which is closed then
void placeholder(const char* text); // in the last item, a text box that is empty
void hint(const char* text);        // a tooltip for the last item
void hint_beside(const char* text); // likewise, of a line of a menu: beside the menu, so that it covers no other line
void mark(Viewer& viewer, const char* name);                        // tells the report where the last item is
void mark_area(Viewer& viewer, const char* name, const Area& area); // likewise of what is no item
std::string bytes_text(double bytes);
// A text that may come from a file: all but line ends as utf8_show writes it.
std::string shown(const std::string& text);
std::string elided(const std::string& text, float width); // its end gives way to "..."

// A text box whose lines break at words. ImGui's does not wrap, so spaces at which a line ends become '\n' and back:
// the text keeps its length, and Enter is free to mean "go".
// True when Enter was pressed. `unwrapped` is the text as it is meant.
bool wrapped_text(const char* name, char* text, size_t capacity, ImVec2 size, bool* changed);
std::string unwrapped(const char* text);
#endif
