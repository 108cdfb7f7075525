// What the desktop offers beside windows: the user's folder for pictures, the clipboard for pictures, the file manager.
// Everything but pictures_folder() may take its time, and is for the thread for files.
#ifndef DESKTOP_H
#define DESKTOP_H
#include <cstddef>
#include <string>

std::string pictures_folder(); // XDG_PICTURES_DIR, else ~/Pictures
// Puts the bytes of a PNG file into the clipboard by wl-copy or xclip; false: neither is installed, or it failed.
bool copy_png(const void* data, size_t bytes);
bool open_in_file_manager(const std::string& folder); // false: there is no xdg-open
#endif
