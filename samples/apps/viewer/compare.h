// Two pictures in one place, with a divider between them.
#ifndef COMPARE_H
#define COMPARE_H
#include "area.h"
#include "texture.h"
#include <memory>

struct Product;
struct Viewer;

struct Compare {
    std::shared_ptr<Product> with; // at the right of the divider; nullptr: nothing is compared
    Texture texture;
    float divider = 0.5f; // of the picture's width
    bool is_dragged = false;
};

void begin_compare(Viewer& viewer, std::shared_ptr<Product> with); // the picture that is shown
void end_compare(Viewer& viewer);
void toggle_compare(Viewer& viewer); // with the next older picture
// Over the picture that is shown. True: the mouse is for the divider.
bool draw_compare(Viewer& viewer, const Area& area, const Area& room);
#endif
