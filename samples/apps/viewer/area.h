// A rectangle of the window.
#ifndef AREA_H
#define AREA_H
#include <imgui.h>

struct Area {
    ImVec2 low, high;
    float width() const { return high.x - low.x; }
    float height() const { return high.y - low.y; }
    ImVec2 middle() const { return ImVec2(0.5f * (low.x + high.x), 0.5f * (low.y + high.y)); }
};
#endif
