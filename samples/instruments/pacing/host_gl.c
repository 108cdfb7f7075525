// Off screen and without a window system: an EGL device, a context without a surface. The frame is a row of compute
// passes into one picture, each behind the one before, as a renderer's passes are; compute, because some GPUs for data
// centres can shade pixels on a few of their processors only.
//
// EGL is opened while the program runs, so that the program starts where there is none.
#include "host.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef PACING_HAS_EGL
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GL/glcorearb.h>
#include <dlfcn.h>

#define WIDTH 1920
#define HEIGHT 1080
#define GROUP 8
#define PASSES 16

typedef struct gl_host {
    host base;
    void* library;
    EGLDisplay display;
    EGLContext context;
    GLuint program, picture;
    GLint count_location;
    GLsync fences[FRAMES_IN_FLIGHT];

    PFNEGLGETPROCADDRESSPROC get;
    PFNEGLINITIALIZEPROC initialize;
    PFNEGLTERMINATEPROC terminate;
    PFNEGLBINDAPIPROC bind_api;
    PFNEGLCHOOSECONFIGPROC choose_config;
    PFNEGLCREATECONTEXTPROC create_context;
    PFNEGLDESTROYCONTEXTPROC destroy_context;
    PFNEGLMAKECURRENTPROC make_current;
    PFNEGLQUERYDEVICESEXTPROC query_devices;
    PFNEGLQUERYDEVICESTRINGEXTPROC query_device_string;
    PFNEGLGETPLATFORMDISPLAYEXTPROC get_display;

    PFNGLGETSTRINGPROC get_string;
    PFNGLCREATESHADERPROC create_shader;
    PFNGLSHADERSOURCEPROC shader_source;
    PFNGLCOMPILESHADERPROC compile_shader;
    PFNGLCREATEPROGRAMPROC create_program;
    PFNGLATTACHSHADERPROC attach_shader;
    PFNGLLINKPROGRAMPROC link_program;
    PFNGLGETPROGRAMIVPROC get_program;
    PFNGLGETPROGRAMINFOLOGPROC get_program_log;
    PFNGLUSEPROGRAMPROC use_program;
    PFNGLGETUNIFORMLOCATIONPROC get_uniform_location;
    PFNGLUNIFORM1IPROC uniform;
    PFNGLGENTEXTURESPROC gen_textures;
    PFNGLBINDTEXTUREPROC bind_texture;
    PFNGLTEXSTORAGE2DPROC texture_storage;
    PFNGLBINDIMAGETEXTUREPROC bind_image;
    PFNGLDISPATCHCOMPUTEPROC dispatch;
    PFNGLMEMORYBARRIERPROC barrier;
    PFNGLFENCESYNCPROC fence;
    PFNGLCLIENTWAITSYNCPROC client_wait;
    PFNGLDELETESYNCPROC delete_sync;
    PFNGLFLUSHPROC flush;
} gl_host;

static const char s_shader[] =
    "#version 430\n"
    "layout(local_size_x = 8, local_size_y = 8) in;\n"
    "layout(rgba8, binding = 0) uniform writeonly image2D picture;\n"
    "uniform int count;\n"
    "void main()\n"
    "{\n"
    "    vec4 v = vec4(vec2(gl_GlobalInvocationID.xy) / 2048.0, 0.5, 1.0);\n"
    "    for (int i = 0; i < count; i++) v = v * vec4(0.9991, 0.9992, 0.9993, 0.9994) + vec4(0.0003);\n"
    "    imageStore(picture, ivec2(gl_GlobalInvocationID.xy), v);\n"
    "}\n";

static bool find_entries(gl_host* g)
{
    void* found = dlsym(g->library, "eglGetProcAddress");
    if (found == NULL) return false;
    memcpy(&g->get, &found, sizeof found);
    const struct {
        const char* name;
        void* into;
    } entries[] = {
        {"eglInitialize", &g->initialize},
        {"eglTerminate", &g->terminate},
        {"eglBindAPI", &g->bind_api},
        {"eglChooseConfig", &g->choose_config},
        {"eglCreateContext", &g->create_context},
        {"eglDestroyContext", &g->destroy_context},
        {"eglMakeCurrent", &g->make_current},
        {"eglQueryDevicesEXT", &g->query_devices},
        {"eglQueryDeviceStringEXT", &g->query_device_string},
        {"eglGetPlatformDisplayEXT", &g->get_display},
        {"glGetString", &g->get_string},
        {"glCreateShader", &g->create_shader},
        {"glShaderSource", &g->shader_source},
        {"glCompileShader", &g->compile_shader},
        {"glCreateProgram", &g->create_program},
        {"glAttachShader", &g->attach_shader},
        {"glLinkProgram", &g->link_program},
        {"glGetProgramiv", &g->get_program},
        {"glGetProgramInfoLog", &g->get_program_log},
        {"glUseProgram", &g->use_program},
        {"glGetUniformLocation", &g->get_uniform_location},
        {"glUniform1i", &g->uniform},
        {"glGenTextures", &g->gen_textures},
        {"glBindTexture", &g->bind_texture},
        {"glTexStorage2D", &g->texture_storage},
        {"glBindImageTexture", &g->bind_image},
        {"glDispatchCompute", &g->dispatch},
        {"glMemoryBarrier", &g->barrier},
        {"glFenceSync", &g->fence},
        {"glClientWaitSync", &g->client_wait},
        {"glDeleteSync", &g->delete_sync},
        {"glFlush", &g->flush},
    };
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        __eglMustCastToProperFunctionPointerType entry = g->get(entries[i].name);
        if (entry == NULL) return false;
        memcpy(entries[i].into, &entry, sizeof entry);
    }
    return true;
}

// A current context of this device, or false with nothing left behind.
static bool make_context(gl_host* g, EGLDeviceEXT device)
{
    static const EGLint s_config_wishes[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT,
                                             EGL_NONE};
    static const EGLint s_context_wishes[] = {EGL_CONTEXT_MAJOR_VERSION, 4, EGL_CONTEXT_MINOR_VERSION, 3, EGL_NONE};
    EGLConfig config;
    EGLint count = 0;
    g->display = g->get_display(EGL_PLATFORM_DEVICE_EXT, device, NULL);
    if (g->display == EGL_NO_DISPLAY || !g->initialize(g->display, NULL, NULL)) return false;
    if (g->bind_api(EGL_OPENGL_API) && g->choose_config(g->display, s_config_wishes, &config, 1, &count)
        && count == 1) {
        g->context = g->create_context(g->display, config, EGL_NO_CONTEXT, s_context_wishes);
        if (g->context != EGL_NO_CONTEXT && g->make_current(g->display, EGL_NO_SURFACE, EGL_NO_SURFACE, g->context))
            return true;
        if (g->context != EGL_NO_CONTEXT) g->destroy_context(g->display, g->context);
    }
    g->context = EGL_NO_CONTEXT;
    g->terminate(g->display);
    g->display = EGL_NO_DISPLAY;
    return false;
}

// Whether the current context is on the GPU that CUDA counts as its first, where sumi works; without CUDA none is.
static bool is_where_cuda_works(void* cuda)
{
    int (*init)(unsigned flags);
    int (*gl_devices)(unsigned* count, int* devices, unsigned room, int list);
    void *init_entry = dlsym(cuda, "cuInit"), *devices_entry = dlsym(cuda, "cuGLGetDevices_v2");
    if (init_entry == NULL || devices_entry == NULL) return false;
    memcpy(&init, &init_entry, sizeof init);
    memcpy(&gl_devices, &devices_entry, sizeof gl_devices);
    unsigned count = 0;
    int device = -1;
    return init(0) == 0 && gl_devices(&count, &device, 1, 1 /* all of them */) == 0 && count > 0 && device == 0;
}

static void leave_context(gl_host* g)
{
    g->make_current(g->display, EGL_NO_SURFACE, EGL_NO_SURFACE, EGL_NO_CONTEXT);
    g->destroy_context(g->display, g->context); // takes its objects along
    g->terminate(g->display);
    g->context = EGL_NO_CONTEXT;
    g->display = EGL_NO_DISPLAY;
}

// CUDA's first GPU, else any GPU, else what draws on the processor.
static bool choose_device(gl_host* g)
{
    EGLDeviceEXT devices[16];
    EGLint count = 0;
    if (!g->query_devices(16, devices, &count)) return false;
    void* cuda = dlopen("libcuda.so.1", RTLD_NOW);
    bool has_one = false;
    for (int32_t pass = cuda != NULL ? 0 : 1; pass < 3 && !has_one; pass++) {
        for (EGLint i = 0; i < count && !has_one; i++) {
            const char* extensions = g->query_device_string(devices[i], EGL_EXTENSIONS);
            const bool is_software = extensions != NULL && strstr(extensions, "EGL_MESA_device_software") != NULL;
            if (is_software != (pass == 2) || !make_context(g, devices[i])) continue;
            has_one = pass != 0 || is_where_cuda_works(cuda);
            if (!has_one) leave_context(g);
        }
    }
    if (cuda != NULL) dlclose(cuda);
    return has_one;
}

static bool make_pass(gl_host* g, char why[256])
{
    const char* source = s_shader;
    GLuint shader = g->create_shader(GL_COMPUTE_SHADER);
    GLint linked = 0;
    g->shader_source(shader, 1, &source, NULL);
    g->compile_shader(shader);
    g->program = g->create_program();
    g->attach_shader(g->program, shader);
    g->link_program(g->program);
    g->get_program(g->program, GL_LINK_STATUS, &linked);
    if (!linked) {
        g->get_program_log(g->program, 256, NULL, why);
        return false;
    }
    g->use_program(g->program);
    g->count_location = g->get_uniform_location(g->program, "count");
    g->gen_textures(1, &g->picture);
    g->bind_texture(GL_TEXTURE_2D, g->picture);
    g->texture_storage(GL_TEXTURE_2D, 1, GL_RGBA8, WIDTH, HEIGHT);
    g->bind_image(0, g->picture, 0, GL_FALSE, 0, GL_WRITE_ONLY, GL_RGBA8);
    return true;
}

// Work is the loop's count; below 1 (drawing on the processor) a part of the rows.
static void gl_submit(host* h, int32_t slot)
{
    gl_host* g = (gl_host*)h;
    const double rows = HEIGHT / GROUP * (h->work < 1.0 ? h->work : 1.0);
    g->uniform(g->count_location, h->work < 1.0 ? 1 : (GLint)h->work);
    for (int32_t i = 0; i < PASSES; i++) {
        g->dispatch(WIDTH / GROUP, rows < 1.0 ? 1 : (GLuint)rows, 1);
        g->barrier(GL_SHADER_IMAGE_ACCESS_BARRIER_BIT);
    }
    g->delete_sync(g->fences[slot]); // NULL is ignored
    g->fences[slot] = g->fence(GL_SYNC_GPU_COMMANDS_COMPLETE, 0);
    g->flush();
}

static bool gl_finished(host* h, int32_t slot)
{
    gl_host* g = (gl_host*)h;
    return g->client_wait(g->fences[slot], 0, 0) != GL_TIMEOUT_EXPIRED;
}

static void gl_destroy(host* h)
{
    gl_host* g = (gl_host*)h;
    if (g->context != EGL_NO_CONTEXT) leave_context(g);
    if (g->library != NULL) dlclose(g->library);
    free(g);
}

host* host_open_gl(char why[256])
{
    gl_host* g = calloc(1, sizeof *g);
    const char* reason = NULL;
    if (g == NULL) reason = "no memory";
    else if ((g->library = dlopen("libEGL.so.1", RTLD_NOW)) == NULL)
        reason = "there is no libEGL.so.1 (Debian: libegl1)";
    else if (!find_entries(g)) reason = "this EGL lacks EGL_EXT_platform_device or OpenGL 4.3";
    else if (!choose_device(g)) reason = "no EGL device gives an OpenGL 4.3 context without a surface";
    if (reason != NULL) snprintf(why, 256, "%s", reason);
    if (reason != NULL || !make_pass(g, why)) {
        if (g != NULL) gl_destroy(&g->base);
        return NULL;
    }
    g->base.work = 1.0;
    g->base.submit = gl_submit;
    g->base.finished = gl_finished;
    g->base.destroy = gl_destroy;
    snprintf(g->base.device, sizeof g->base.device, "%s, OpenGL %s", (const char*)g->get_string(GL_RENDERER),
             (const char*)g->get_string(GL_VERSION));
    return &g->base;
}
#else
host* host_open_gl(char why[256])
{
    snprintf(why, 256, "built without EGL's and OpenGL's headers (Debian: libegl-dev, libgl-dev)");
    return NULL;
}
#endif
