// What is to be painted anew of the picture to start from, and the steps back.
#ifndef MASK_H
#define MASK_H
#include "area.h"
#include "generator.h"
#include "texture.h"
#include <vector>

struct Viewer;

struct Mask {
    Pixels pixels; // one channel; empty: nothing was ever painted
    Texture texture;
    std::vector<Pixels> undos, redos; // what it was before each stroke, the last one behind; empty: no paint
    bool has_changed = false, has_paint = false, is_painting = false;
    float brush = 0.08f;                // radius, as part of the picture's shorter side
    float last_x = 0.0f, last_y = 0.0f; // of the stroke
};

void clear_mask(Viewer& viewer);                   // can be undone
void forget_mask(Viewer& viewer);                  // cannot: the picture is another one
void set_mask(Viewer& viewer, const Pixels& from); // of any size; can be undone
bool undo_mask(Viewer& viewer);                    // false: there is nothing to undo
bool redo_mask(Viewer& viewer);
void use_brush(Viewer& viewer, const Area& area, const Area& room); // on the picture to start from
#endif
