// The models to choose from: the demo models that are found, and those that were opened before, whose paths are kept in
// a file of the user's.
#ifndef MODELS_H
#define MODELS_H
#include <string>
#include <vector>

struct Settings;
struct Viewer;

struct ModelEntry {
    std::string path; // absolute, without a slash at its end
    std::string name;
    std::string remark; // at the right of the menu
};

struct ModelMenu {
    std::vector<ModelEntry> demos;                              // that are found
    std::vector<std::string> recent;                            // paths as above, the last one first
    std::string current;                                        // likewise; of the model that the form is for
    bool wants_open = false, is_shown = false, by_keys = false; // by_keys: it was opened so
};

void find_demo_models(Viewer& viewer, const char* program); // beside the sources, or in the folder the program is in
void read_recent_models(Viewer& viewer);
void remember_model(Viewer& viewer, const std::string& path); // that was opened
void draw_model(Viewer& viewer);                              // the field with the menu
#endif
