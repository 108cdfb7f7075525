#include "gl.h"
#include "system.h"
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <stdio.h>
#include <string.h>

gl_functions gl;

static bool refuse(char why[256], const char* text)
{
    snprintf(why, 256, "%s", text);
    return false;
}

static bool find(void* library, const char* name, void* into)
{
    void* entry = system_library_find(library, name);
    memcpy(into, &entry, sizeof entry);
    return entry != NULL;
}

typedef void (*gl_entry)(void);
typedef gl_entry (*gl_getter)(const char* name);

static bool find_functions(gl_getter get, char why[256])
{
#define FIND(type, name)                                                                                               \
    gl.name = (type)get(#name);                                                                                        \
    if (!gl.name) return refuse(why, "this OpenGL lacks " #name ": update the driver of the graphics card");
    GL_ENTRIES(FIND)
#undef FIND
    return true;
}

// ---- A window -------------------------------------------------------------------------------------------------------
// What this program uses of GLFW/glfw3.h, which need not be installed.

enum { VERSION_MAJOR = 0x22002, VERSION_MINOR = 0x22003, PROFILE = 0x22008, PROFILE_CORE = 0x32001 };

#define WINDOW_ENTRIES(X)                                                                                              \
    X(int, glfwInit, (void))                                                                                           \
    X(void, glfwTerminate, (void))                                                                                     \
    X(void, glfwWindowHint, (int hint, int value))                                                                     \
    X(void*, glfwCreateWindow, (int width, int height, const char* title, void* monitor, void* share))                 \
    X(void, glfwDestroyWindow, (void* window))                                                                         \
    X(void, glfwMakeContextCurrent, (void* window))                                                                    \
    X(gl_entry, glfwGetProcAddress, (const char* name))                                                                \
    X(void, glfwSwapInterval, (int interval))                                                                          \
    X(void, glfwSwapBuffers, (void* window))                                                                           \
    X(void, glfwPollEvents, (void))                                                                                    \
    X(int, glfwGetKey, (void* window, int key))                                                                        \
    X(int, glfwWindowShouldClose, (void* window))                                                                      \
    X(double, glfwGetTime, (void))                                                                                     \
    X(void, glfwSetWindowTitle, (void* window, const char* title))                                                     \
    X(void, glfwGetFramebufferSize, (void* window, int* width, int* height))

static struct {
#define MEMBER(result, name, parameters) result(*name) parameters;
    WINDOW_ENTRIES(MEMBER)
#undef MEMBER
    void *library, *window;
} s_glfw;

bool gl_open_window(int32_t width, int32_t height, char why[256])
{
    s_glfw.library = system_library_open("libglfw.so.3");
    if (!s_glfw.library) return refuse(why, "there is no libglfw.so.3 (Debian: libglfw3), or take --headless");
#define FIND(result, name, parameters)                                                                                 \
    if (!find(s_glfw.library, #name, &s_glfw.name))                                                                    \
        return refuse(why, "this GLFW lacks " #name ": install 3.2 or later");
    WINDOW_ENTRIES(FIND)
#undef FIND
    if (!s_glfw.glfwInit()) return refuse(why, "there is no display for a window; --headless needs none");
    s_glfw.glfwWindowHint(VERSION_MAJOR, 4);
    s_glfw.glfwWindowHint(VERSION_MINOR, 3);
    s_glfw.glfwWindowHint(PROFILE, PROFILE_CORE);
    s_glfw.window = s_glfw.glfwCreateWindow(width, height, "depth_scene", NULL, NULL);
    if (!s_glfw.window) {
        s_glfw.glfwTerminate();
        return refuse(why, "the display gives no window with OpenGL 4.3");
    }
    s_glfw.glfwMakeContextCurrent(s_glfw.window);
    s_glfw.glfwSwapInterval(1);
    return find_functions(s_glfw.glfwGetProcAddress, why);
}

bool gl_is_pressed(gl_key key) { return s_glfw.glfwGetKey(s_glfw.window, (int)key) != 0; }
bool gl_was_closed(void) { return s_glfw.glfwWindowShouldClose(s_glfw.window) != 0; }
double gl_seconds(void) { return s_glfw.glfwGetTime(); }
void gl_title(const char* text) { s_glfw.glfwSetWindowTitle(s_glfw.window, text); }

void gl_size(int32_t* width, int32_t* height)
{
    int w = 0, h = 0;
    s_glfw.glfwGetFramebufferSize(s_glfw.window, &w, &h);
    *width = w, *height = h;
}

void gl_show(void)
{
    s_glfw.glfwSwapBuffers(s_glfw.window);
    s_glfw.glfwPollEvents();
}

// ---- No window: a device of EGL -------------------------------------------------------------------------------------

#define EGL_ENTRIES(X)                                                                                                 \
    X(PFNEGLINITIALIZEPROC, eglInitialize)                                                                             \
    X(PFNEGLTERMINATEPROC, eglTerminate)                                                                               \
    X(PFNEGLBINDAPIPROC, eglBindAPI)                                                                                   \
    X(PFNEGLCHOOSECONFIGPROC, eglChooseConfig)                                                                         \
    X(PFNEGLCREATECONTEXTPROC, eglCreateContext)                                                                       \
    X(PFNEGLDESTROYCONTEXTPROC, eglDestroyContext)                                                                     \
    X(PFNEGLMAKECURRENTPROC, eglMakeCurrent)                                                                           \
    X(PFNEGLQUERYDEVICESEXTPROC, eglQueryDevicesEXT)                                                                   \
    X(PFNEGLQUERYDEVICESTRINGEXTPROC, eglQueryDeviceStringEXT)                                                         \
    X(PFNEGLGETPLATFORMDISPLAYEXTPROC, eglGetPlatformDisplayEXT)

static struct {
    PFNEGLGETPROCADDRESSPROC eglGetProcAddress;
#define MEMBER(type, name) type name;
    EGL_ENTRIES(MEMBER)
#undef MEMBER
    void* library;
    EGLDisplay display;
    EGLContext context;
} s_egl;

static bool make_context(EGLDeviceEXT device)
{
    static const EGLint s_config_wishes[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT,
                                             EGL_NONE};
    static const EGLint s_context_wishes[] = {EGL_CONTEXT_MAJOR_VERSION, 4, EGL_CONTEXT_MINOR_VERSION, 3, EGL_NONE};
    EGLConfig config;
    EGLint count = 0;
    s_egl.display = s_egl.eglGetPlatformDisplayEXT(EGL_PLATFORM_DEVICE_EXT, device, NULL);
    if (s_egl.display == EGL_NO_DISPLAY || !s_egl.eglInitialize(s_egl.display, NULL, NULL)) return false;
    if (s_egl.eglBindAPI(EGL_OPENGL_API) && s_egl.eglChooseConfig(s_egl.display, s_config_wishes, &config, 1, &count)
        && count == 1) {
        s_egl.context = s_egl.eglCreateContext(s_egl.display, config, EGL_NO_CONTEXT, s_context_wishes);
        if (s_egl.context != EGL_NO_CONTEXT
            && s_egl.eglMakeCurrent(s_egl.display, EGL_NO_SURFACE, EGL_NO_SURFACE, s_egl.context))
            return true;
        if (s_egl.context != EGL_NO_CONTEXT) s_egl.eglDestroyContext(s_egl.display, s_egl.context);
    }
    s_egl.context = EGL_NO_CONTEXT;
    s_egl.eglTerminate(s_egl.display);
    return false;
}

bool gl_open_headless(char why[256])
{
    EGLDeviceEXT devices[16];
    EGLint count = 0;
    s_egl.library = system_library_open("libEGL.so.1");
    if (!s_egl.library) return refuse(why, "there is no libEGL.so.1 (Debian: libegl1)");
    if (!find(s_egl.library, "eglGetProcAddress", &s_egl.eglGetProcAddress))
        return refuse(why, "libEGL.so.1 lacks eglGetProcAddress");
#define FIND(type, name)                                                                                               \
    s_egl.name = (type)s_egl.eglGetProcAddress(#name);                                                                 \
    if (!s_egl.name) return refuse(why, "this EGL lacks " #name);
    EGL_ENTRIES(FIND)
#undef FIND
    if (!s_egl.eglQueryDevicesEXT(16, devices, &count)) count = 0;
    for (int pass = 0; pass < 2; pass++) { // GPUs first, then what draws on the CPU
        for (EGLint i = 0; i < count; i++) {
            const char* extensions = s_egl.eglQueryDeviceStringEXT(devices[i], EGL_EXTENSIONS);
            const bool is_software = extensions && strstr(extensions, "EGL_MESA_device_software");
            if (is_software == (pass == 1) && make_context(devices[i]))
                return find_functions(s_egl.eglGetProcAddress, why);
        }
    }
    return refuse(why, "no device of EGL gives an OpenGL 4.3 context without a window");
}

void gl_close(void)
{
    if (s_glfw.window) {
        s_glfw.glfwDestroyWindow(s_glfw.window);
        s_glfw.glfwTerminate();
    }
    if (s_egl.context) {
        s_egl.eglMakeCurrent(s_egl.display, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
        s_egl.eglDestroyContext(s_egl.display, s_egl.context);
        s_egl.eglTerminate(s_egl.display);
    }
    s_glfw.window = NULL, s_egl.context = NULL; // the libraries stay open: drivers do not like to be unloaded
}

// ---- Objects --------------------------------------------------------------------------------------------------------

GLuint gl_program(const char* vertex, const char* fragment)
{
    const GLuint program = gl.glCreateProgram();
    const char* const sources[2] = {vertex, fragment};
    for (int i = 0; i < 2; i++) {
        const GLuint shader = gl.glCreateShader(i == 0 ? GL_VERTEX_SHADER : GL_FRAGMENT_SHADER);
        gl.glShaderSource(shader, 1, &sources[i], NULL);
        gl.glCompileShader(shader);
        gl.glAttachShader(program, shader);
        gl.glDeleteShader(shader); // when the program ends
    }
    GLint is_linked = 0;
    gl.glLinkProgram(program);
    gl.glGetProgramiv(program, GL_LINK_STATUS, &is_linked);
    if (is_linked) return program;
    char text[500] = "";
    gl.glGetProgramInfoLog(program, sizeof text, NULL, text);
    fprintf(stderr, "depth_scene: the driver refuses a shader: %s\n", text);
    gl.glDeleteProgram(program);
    return 0;
}

GLuint gl_texture(GLenum format, int32_t width, int32_t height)
{
    GLuint name = 0;
    gl.glGenTextures(1, &name);
    gl.glBindTexture(GL_TEXTURE_2D, name);
    gl.glTexStorage2D(GL_TEXTURE_2D, 1, format, width, height);
    return name;
}
