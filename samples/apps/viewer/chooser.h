// The window that picks a file or a folder.
#ifndef CHOOSER_H
#define CHOOSER_H
#include <string>
#include <vector>

struct Viewer;

enum class Purpose { MODEL, ADAPTER, CONTROL, START, MASK, REFERENCE, FOLLOWED, OUTPUT };

struct Chooser {
    Purpose purpose = Purpose::MODEL;
    bool wants_open = false, wants_close = false, is_shown = false, is_listing = false, has_model = false;
    char path[1024] = "";
    std::string folder, selected, message; // `selected`: a file in the folder; ""
    std::string folders[8];                // where it was for each purpose; "": nowhere yet
    struct Item {
        std::string name;
        bool is_folder, is_wanted;
    };
    std::vector<Item> items;
};

void open_chooser(Viewer& viewer, Purpose purpose);
void draw_chooser(Viewer& viewer);
#endif
