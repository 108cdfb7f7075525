// How much of a picture is shown: all of it, or a part that wheel and mouse have chosen.
#ifndef ZOOM_H
#define ZOOM_H
#include "area.h"

struct Viewer;

struct Zoom {
    float factor = 1.0f;      // 1: the whole picture fits
    float x = 0.5f, y = 0.5f; // which part of the picture is in the middle
    bool is_fit() const { return factor <= 1.0f; }
};

Area zoomed(const Zoom& zoom, const Area& fit);
// Keeps what is under `at` where it is.
void zoom_by(Viewer& viewer, const Area& fit, ImVec2 at, float factor);
void zoom_fit(Viewer& viewer);
// Wheel, drag and double click over the picture. `wheel` is 0 where the wheel is for something else.
void use_zoom(Viewer& viewer, const Area& fit, const Area& room, float wheel, int drag_button);
#endif
