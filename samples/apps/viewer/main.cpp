// A window on sumi: prompts in, pictures growing on the screen, while the window keeps its frames.
//     viewer [MODEL] [PICTURE ...] [LORA ...] [NET] [--output FOLDER] ...        without a model: the demo model beside the sources or in the folder one is in
#include "desktop.h"
#include "viewer.h"
#define GLFW_INCLUDE_GLEXT
#include <GLFW/glfw3.h>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <imgui_impl_glfw.h>
#include <imgui_impl_opengl3.h>
#include <random>
extern "C" {
#include "picture.h"
}

static const char* const s_usage =
    "usage: viewer [MODEL] [PICTURE ...] [LORA ...] [NET]\n"
    "  MODEL            a diffusers folder, a .safetensors or .gguf file; without it the demo model\n"
    "  PICTURE          a PNG, JPEG or WebP file to start from, with edit models one to edit, as if it were dropped on "
    "the window\n"
    "  LORA             a .safetensors file with an adapter, behind the model\n"
    "  NET              a control net for the model, behind it: a .safetensors file or a diffusers folder\n"
    "  --output FOLDER  where pictures are saved (the folder sumi in the user's folder for pictures)\n"
    "  --seed N         of the first picture and all others, until it is unlocked (another one for each picture)\n"
    "  --backend NAME   cpu or cuda; by default a GPU when there is one\n"
    "  --threads N      of the processor's cores for the pictures (all but one)\n"
    "  --size WxH       of the window (1440x900)\n"
    "  --scale FACTOR   of text and panels; by default what the screen asks for\n"
    "  --report FILE    writes what happened and how long frames took\n";

struct Arguments {
    std::string model, output, report;
    std::vector<std::string> others; // pictures and adapters
    uint64_t seed = 0;
    bool has_seed = false;
    GeneratorOptions options;
    int width = 1440, height = 900;
    float scale = 0.0f;
};

static bool read_arguments(int argc, char** argv, Arguments& out)
{
    for (int i = 1; i < argc; i++) {
        const std::string name = argv[i];
        if (name.empty() || name[0] != '-') {
            if (out.model.empty() && picture_format_of_path(name.c_str()) == PICTURE_UNKNOWN) out.model = name;
            else out.others.push_back(name);
            continue;
        }
        if (i + 1 == argc) return false;
        const char* value = argv[++i];
        if (name == "--output") out.output = value;
        else if (name == "--seed") out.seed = strtoull(value, nullptr, 10), out.has_seed = true;
        else if (name == "--report") out.report = value;
        else if (name == "--backend" && strcmp(value, "cpu") == 0) out.options.backend = SUMI_BACKEND_CPU;
        else if (name == "--backend" && strcmp(value, "cuda") == 0) out.options.backend = SUMI_BACKEND_CUDA;
        else if (name == "--threads" && atoi(value) > 0) out.options.thread_count = atoi(value);
        else if (name == "--scale" && atof(value) >= 0.5 && atof(value) <= 4.0) out.scale = (float)atof(value);
        else if (name == "--size" && sscanf(value, "%dx%d", &out.width, &out.height) == 2 && out.width >= 320
                 && out.height >= 240)
            continue;
        else return false;
    }
    return true;
}

// ---- Events of the window -------------------------------------------------------------------------------------------

static Viewer& viewer_of(GLFWwindow* window) { return *static_cast<Viewer*>(glfwGetWindowUserPointer(window)); }

static void on_key(GLFWwindow* window, int key, int code, int action, int modifiers)
{
    if (action == GLFW_PRESS) {
        if ((modifiers & (GLFW_MOD_CONTROL | GLFW_MOD_SUPER)) != 0 && key == GLFW_KEY_Q)
            return glfwSetWindowShouldClose(window, GLFW_TRUE);
        if (press_key(viewer_of(window), key, modifiers)) return;
    }
    ImGui_ImplGlfw_KeyCallback(window, key, code, action, modifiers);
}

static void on_drop(GLFWwindow* window, int count, const char** paths)
{
    for (int i = 0; i < count; i++) open_path(viewer_of(window), paths[i]);
}

static void on_error(int, const char* text) { fprintf(stderr, "viewer: %s\n", text); }

static void wake() { glfwPostEmptyEvent(); }

// ---- Frames ---------------------------------------------------------------------------------------------------------

static void fill_grounds(const Viewer& viewer, int height)
{
    const ImVec2 unit = ImGui::GetIO().DisplayFramebufferScale;
    glEnable(GL_SCISSOR_TEST);
    for (const Ground& ground : viewer.grounds) {
        const int top = (int)(ground.corner.y * unit.y), bottom = (int)((ground.corner.y + ground.size.y) * unit.y);
        const int left = (int)(ground.corner.x * unit.x), right = (int)((ground.corner.x + ground.size.x) * unit.x);
        const ImVec4 shade = ImGui::ColorConvertU32ToFloat4(ground.shade);
        glScissor(left, height - bottom, right - left, bottom - top);
        glClearColor(shade.x, shade.y, shade.z, 1.0f);
        glClear(GL_COLOR_BUFFER_BIT);
    }
    glDisable(GL_SCISSOR_TEST);
}

static void draw_frame(GLFWwindow* window, Viewer& viewer)
{
    viewer.now = glfwGetTime();
    viewer.files.deliver();
    viewer.generator.frame((uint32_t)(1e3f * viewer.budget_ms), viewer.now);
    take_news(viewer);
    ImGui_ImplOpenGL3_NewFrame();
    ImGui_ImplGlfw_NewFrame();
    ImGui::NewFrame();
    draw_window(viewer);
    if (viewer.wants_picture) generate(viewer);
    viewer.wants_picture = false;
    ImGui::Render();
    int width, height;
    glfwGetFramebufferSize(window, &width, &height);
    glViewport(0, 0, width, height);
    fill_grounds(viewer, height);
    ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData());
    glfwSwapBuffers(window);
}

// Frames follow each other while something moves, at the screen's rate; otherwise the window sleeps until something
// happens.
static void run(GLFWwindow* window, Viewer& viewer)
{
    const GLFWmonitor* monitor = glfwGetPrimaryMonitor();
    const GLFWvidmode* mode = monitor ? glfwGetVideoMode(const_cast<GLFWmonitor*>(monitor)) : nullptr;
    const double interval = 1.0 / (mode && mode->refreshRate > 0 ? mode->refreshRate : 60);
    double awake_until = glfwGetTime() + 0.5, next = 0.0;
    while (!glfwWindowShouldClose(window)) {
        const bool moves = viewer.generator.is_generating() || viewer.generator.is_opening()
                        || viewer.generator.is_reading() || !viewer.arrivals.empty() || !viewer.queue.jobs.empty()
                        || glfwGetTime() < awake_until;
        const double until = moves ? next : glfwGetTime() + 0.1; // a cursor in a text blinks
        const double wait = until - glfwGetTime();
        if (wait > 0.0005) {
            glfwWaitEventsTimeout(wait);
            // something has happened: what follows from it takes some frames
            if (!moves && glfwGetTime() < until) awake_until = glfwGetTime() + 0.5;
        } else {
            glfwPollEvents();
        }
        const double begin = glfwGetTime();
        next = begin + interval;
        draw_frame(window, viewer);
        viewer.frames.add(glfwGetTime() - begin, viewer.generator.update_seconds());
        viewer.report.frame();
    }
}

static float wanted_scale(GLFWwindow* window, const Arguments& arguments)
{
    float x = 1.0f, y = 1.0f;
    glfwGetWindowContentScale(window, &x, &y);
    int window_width, window_height, width, height;
    glfwGetWindowSize(window, &window_width, &window_height);
    glfwGetFramebufferSize(window, &width, &height);
    // macOS, Wayland: a window's units are scaled already
    if (width > window_width) return arguments.scale > 0.0f ? arguments.scale : 1.0f;
    return arguments.scale > 0.0f ? arguments.scale : std::clamp(x, 0.75f, 4.0f);
}

static GLFWwindow* open_window(const Arguments& arguments)
{
    glfwSetErrorCallback(on_error);
    if (!glfwInit()) return nullptr;
    glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
    glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
    glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
    glfwWindowHint(GLFW_OPENGL_FORWARD_COMPAT, GLFW_TRUE);
    glfwWindowHint(GLFW_SCALE_TO_MONITOR, GLFW_TRUE);
    glfwWindowHint(GLFW_DEPTH_BITS, 0); // panels and pictures are flat
    glfwWindowHint(GLFW_STENCIL_BITS, 0);
    GLFWwindow* window = glfwCreateWindow(arguments.width, arguments.height, "sumi", nullptr, nullptr);
    if (!window) return nullptr;
    glfwMakeContextCurrent(window);
    glfwSwapInterval(1);
    if (texture_begin()) return window;
    fprintf(stderr, "viewer: OpenGL 3.3 is needed\n");
    return nullptr;
}

// Where the screen's units are not pixels the scale is 1.
static void limit_size(GLFWwindow* window, Viewer& viewer)
{
    const int least_width = (int)viewer.theme(MIN_WIDTH), least_height = (int)viewer.theme(MIN_HEIGHT);
    glfwSetWindowSizeLimits(window, least_width, least_height, GLFW_DONT_CARE, GLFW_DONT_CARE);
    int width, height;
    glfwGetWindowSize(window, &width, &height);
    width = std::max(width, least_width);
    height = std::max(height, least_height);
    glfwSetWindowSize(window, width, height);
    viewer.report.event(glfwGetTime(), "window %dx%d", width, height);
}

static int show(GLFWwindow* window, const Arguments& arguments, const char* program)
{
    IMGUI_CHECKVERSION();
    ImGui::CreateContext();
    ImGui::GetIO().IniFilename = nullptr; // the window's layout is fixed
    ImGui::GetIO().ConfigFlags |= ImGuiConfigFlags_NavEnableKeyboard;
    int code = EXIT_SUCCESS;
    {
        Viewer viewer(arguments.options, wake);
        viewer.random_state = std::random_device{}();
        roll_seed(viewer);
        if (arguments.has_seed) viewer.seed = arguments.seed, viewer.keeps_seed = true;
        const std::string output =
            arguments.output.empty() ? (std::filesystem::path(pictures_folder()) / "sumi").string() : arguments.output;
        snprintf(viewer.output_folder, sizeof viewer.output_folder, "%s", output.c_str());
        if (!arguments.report.empty()) {
            viewer.frames.keep_all();
            ImGui::GetIO().KeyRepeatDelay = 1e6f; // a test holds keys for some frames, which may take long
            if (!viewer.report.open(arguments.report.c_str()))
                fprintf(stderr, "viewer: cannot write %s\n", arguments.report.c_str()), code = EXIT_FAILURE;
        }
        glfwSetWindowUserPointer(window, &viewer);
        glfwSetDropCallback(window, on_drop);
        ImGui_ImplGlfw_InitForOpenGL(window, true);
        glfwSetKeyCallback(window, on_key); // which passes on what Dear ImGui is to see
        ImGui_ImplOpenGL3_Init("#version 330 core");
        theme_load(viewer.theme, wanted_scale(window, arguments));
        limit_size(window, viewer);
        find_demo_models(viewer, program);
        read_recent_models(viewer);
        const std::vector<ModelEntry>& demos = viewer.models.demos;
        if (!arguments.model.empty()) open_path(viewer, arguments.model);
        else if (!demos.empty()) open_path(viewer, demos.front().path);
        for (const std::string& path : arguments.others) open_path(viewer, path);
        run(window, viewer);
        glfwHideWindow(window); // the running slice may take a moment
        viewer.report.sum(viewer.frames);
        glfwSetKeyCallback(window, nullptr);
        ImGui_ImplOpenGL3_Shutdown();
        ImGui_ImplGlfw_Shutdown();
    }
    ImGui::DestroyContext();
    return code;
}

int main(int argc, char** argv)
{
    Arguments arguments;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) return fputs(s_usage, stdout), 0;
    if (!read_arguments(argc, argv, arguments)) return fputs(s_usage, stderr), 2;
    GLFWwindow* window = open_window(arguments);
    const int code = window ? show(window, arguments, argv[0]) : EXIT_FAILURE;
    if (window) glfwDestroyWindow(window);
    glfwTerminate();
    return code;
}
