#include "desktop.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern char** environ;

static std::string variable(const char* name)
{
    const char* value = getenv(name);
    return value ? value : "";
}

// The line of ~/.config/user-dirs.dirs (xdg-user-dirs): XDG_PICTURES_DIR="$HOME/Bilder".
static std::string configured_folder(const std::string& home)
{
    std::string config = variable("XDG_CONFIG_HOME");
    if (config.empty()) config = home + "/.config";
    std::ifstream file(config + "/user-dirs.dirs");
    const std::string key = "XDG_PICTURES_DIR=\"";
    for (std::string line; std::getline(file, line);) {
        const size_t end = line.rfind('"');
        if (line.compare(0, key.size(), key) != 0 || end < key.size()) continue;
        std::string folder = line.substr(key.size(), end - key.size());
        if (folder.compare(0, 5, "$HOME") == 0) folder = home + folder.substr(5);
        return folder;
    }
    return "";
}

std::string pictures_folder()
{
    std::string folder = variable("XDG_PICTURES_DIR");
    const std::string home = variable("HOME");
    if (folder.empty() && !home.empty()) folder = configured_folder(home);
    if (folder.empty() && !home.empty()) folder = home + "/Pictures";
    return folder.empty() ? "." : folder;
}

std::string state_folder()
{
    const std::string folder = variable("XDG_STATE_HOME"), home = variable("HOME");
    if (!folder.empty() && folder[0] == '/') return folder; // others are to be ignored, says its specification
    return home.empty() ? "" : home + "/.local/state";
}

static bool is_installed(const char* program)
{
    const std::string path = variable("PATH");
    std::error_code ignored;
    for (size_t begin = 0; begin < path.size();) {
        const size_t end = std::min(path.find(':', begin), path.size());
        if (std::filesystem::is_regular_file(path.substr(begin, end - begin) + "/" + program, ignored)) return true;
        begin = end + 1;
    }
    return false;
}

// Waits for its end. Its output goes nowhere.
static bool run(const std::vector<std::string>& words, int input)
{
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, input, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    pid_t child = 0;
    const bool begins = posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ) == 0;
    posix_spawn_file_actions_destroy(&actions);
    int status = 0;
    return begins && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Both programs go on in the background until something else is copied.
bool copy_png(const void* data, size_t bytes)
{
    std::vector<std::string> words;
    if (!variable("WAYLAND_DISPLAY").empty() && is_installed("wl-copy")) words = {"wl-copy", "--type", "image/png"};
    else if (is_installed("xclip")) words = {"xclip", "-selection", "clipboard", "-t", "image/png"};
    else return false;
    std::FILE* file = std::tmpfile(); // has no name
    bool is_copied = false;
    if (file && std::fwrite(data, 1, bytes, file) == bytes && std::fflush(file) == 0) {
        std::rewind(file);
        is_copied = run(words, fileno(file));
    }
    if (file) std::fclose(file);
    return is_copied;
}

bool open_in_file_manager(const std::string& folder)
{
    const char* program = is_installed("xdg-open") ? "xdg-open" : "open"; // macOS
    if (!is_installed(program)) return false;
    // A file manager may stay in the foreground: nobody waits for it.
    const int nothing = open("/dev/null", O_RDONLY);
    const bool is_opened = run({"sh", "-c", "\"$0\" \"$1\" &", program, folder}, nothing);
    if (nothing >= 0) close(nothing);
    return is_opened;
}
