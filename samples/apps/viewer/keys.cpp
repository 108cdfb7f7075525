// What the keys of the window do. They are taken from the window and not from Dear ImGui, which sees the state of the
// keyboard once in a frame.
#include "viewer.h"
#define GLFW_INCLUDE_NONE
#include <GLFW/glfw3.h>

static bool undo(Viewer& viewer) { return viewer.canvas == Canvas::START ? undo_mask(viewer) : undelete(viewer); }

static void step_zoom(Viewer& viewer, float factor)
{
    // Around the middle of what is seen, for which any area does.
    const Area unit = {ImVec2(0, 0), ImVec2(1000, 1000)};
    zoom_by(viewer, unit, unit.middle(), factor);
}

static bool press_with_control(Viewer& viewer, int key, bool with_shift, bool types)
{
    switch (key) {
    case GLFW_KEY_S: save_picture(viewer); return true;
    case GLFW_KEY_R: roll_seed(viewer); return true;
    case GLFW_KEY_L: viewer.keeps_seed = !viewer.keeps_seed; return true;
    case GLFW_KEY_E: show_in_folder(viewer); return true;
    case GLFW_KEY_K: toggle_compare(viewer); return true;
    case GLFW_KEY_U:
        if (viewer.shown) apply_settings(viewer, *viewer.shown);
        return true;
    case GLFW_KEY_O:
        if (!viewer.generator.is_opening() && !viewer.chooser.is_shown) open_chooser(viewer, Purpose::MODEL);
        return true;
    case GLFW_KEY_M: viewer.models.wants_open = !viewer.models.is_shown && !viewer.chooser.is_shown; return true;
    case GLFW_KEY_I: use_shown(viewer); return true;
    case GLFW_KEY_0: zoom_fit(viewer); return true;
    case GLFW_KEY_EQUAL:
    case GLFW_KEY_KP_ADD: step_zoom(viewer, 1.25f); return true;
    case GLFW_KEY_MINUS:
    case GLFW_KEY_KP_SUBTRACT: step_zoom(viewer, 0.8f); return true;
    default: break;
    }
    if (types) return false; // these mean the text that is typed
    if (key == GLFW_KEY_C) copy_picture(viewer);
    else if (key == GLFW_KEY_Y || (key == GLFW_KEY_Z && with_shift)) redo_mask(viewer);
    else if (key == GLFW_KEY_Z) undo(viewer);
    else return false;
    return true;
}

static void press_escape(Viewer& viewer, bool with_shift)
{
    if (with_shift) {
        clear_queue(viewer);
        cancel(viewer);
    } else if (viewer.shows_help) viewer.shows_help = false;
    else if (viewer.compare.with) end_compare(viewer);
    else if (viewer.generator.is_generating()) cancel(viewer);
    else viewer.leaves_text = true;
}

bool press_key(Viewer& viewer, int key, int modifiers)
{
    const bool with_control = (modifiers & (GLFW_MOD_CONTROL | GLFW_MOD_SUPER)) != 0,
               with_shift = (modifiers & GLFW_MOD_SHIFT) != 0, with_alt = (modifiers & GLFW_MOD_ALT) != 0,
               types = ImGui::GetIO().WantTextInput;
    if (viewer.chooser.is_shown) {
        viewer.chooser.wants_close = key == GLFW_KEY_ESCAPE;
        return false;
    }
    if (with_control) return press_with_control(viewer, key, with_shift, types);
    if (ImGui::IsPopupOpen("", ImGuiPopupFlags_AnyPopup)) { // a menu has the other keys
        viewer.presses_line = key == GLFW_KEY_ENTER || key == GLFW_KEY_KP_ENTER;
        return false;
    }
    if (with_alt && (key == GLFW_KEY_LEFT || key == GLFW_KEY_RIGHT)) {
        show_neighbour(viewer, key == GLFW_KEY_LEFT ? -1 : 1);
        return true;
    }
    switch (key) {
    case GLFW_KEY_F1: viewer.shows_help = !viewer.shows_help; return true;
    case GLFW_KEY_F2: toggle_graphs(viewer); return true;
    case GLFW_KEY_F3: viewer.focuses_strip = viewer.leaves_text = true; return true;
    case GLFW_KEY_F4: viewer.focuses_tools = viewer.leaves_text = true; return true;
    case GLFW_KEY_F5: viewer.wants_focus = true; return true;
    case GLFW_KEY_ESCAPE:
        if (types && !viewer.has_focus) return false; // takes back what was typed into a number
        press_escape(viewer, with_shift);
        return types;
    case GLFW_KEY_DELETE:
        if (!types) delete_shown(viewer);
        return false;
    case GLFW_KEY_ENTER:
    case GLFW_KEY_KP_ENTER:
        if (types) {
            viewer.wants_picture = viewer.has_focus;
            return false;
        }
        viewer.wants_picture = true;
        return true; // Dear ImGui would begin to type into the number that has the focus
    default: return false;
    }
}
