// What the desktop offers beside windows: the user's folder for pictures, the clipboard for pictures, the file manager.
// Everything but the two folders may take its time, and is for the thread for files.
#ifndef DESKTOP_H
#define DESKTOP_H
#include <cstddef>
#include <string>

std::string pictures_folder(); // XDG_PICTURES_DIR, else ~/Pictures
// For what programs keep between runs: XDG_STATE_HOME, else ~/.local/state; "": there is none.
std::string state_folder();
// Puts the bytes of a PNG file into the clipboard by wl-copy or xclip; false: neither is installed, or it failed.
bool copy_png(const void* data, size_t bytes);
bool open_in_file_manager(const std::string& folder); // false: there is no xdg-open
#endif
