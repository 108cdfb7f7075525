// Pictures into OpenGL textures, with a GPU's own drivers: an EGL context without a surface, textures that can be
// shared and textures that cannot, every order in which things go.
// Skipped where there is no such GPU. (test_cuda_targets holds the rules of the calls, on the fake driver.)
#include "engine_fixture.h"
#if defined SUMI_HAS_CUDA && defined SUMI_TEST_HAS_EGL
#include <EGL/egl.h>
#include <EGL/eglext.h>
#include <GL/glcorearb.h>
#include <dlfcn.h>

// ---- The host's OpenGL ----------------------------------------------------------------------------------------------

// X(type, name in EGL or OpenGL)
#define ENTRIES(X)                                                                                                     \
    X(PFNEGLINITIALIZEPROC, eglInitialize)                                                                             \
    X(PFNEGLTERMINATEPROC, eglTerminate)                                                                               \
    X(PFNEGLBINDAPIPROC, eglBindAPI)                                                                                   \
    X(PFNEGLCHOOSECONFIGPROC, eglChooseConfig)                                                                         \
    X(PFNEGLCREATECONTEXTPROC, eglCreateContext)                                                                       \
    X(PFNEGLDESTROYCONTEXTPROC, eglDestroyContext)                                                                     \
    X(PFNEGLMAKECURRENTPROC, eglMakeCurrent)                                                                           \
    X(PFNEGLQUERYDEVICESEXTPROC, eglQueryDevicesEXT)                                                                   \
    X(PFNEGLGETPLATFORMDISPLAYEXTPROC, eglGetPlatformDisplayEXT)                                                       \
    X(PFNGLGETSTRINGPROC, glGetString)                                                                                 \
    X(PFNGLGETERRORPROC, glGetError)                                                                                   \
    X(PFNGLGENTEXTURESPROC, glGenTextures)                                                                             \
    X(PFNGLDELETETEXTURESPROC, glDeleteTextures)                                                                       \
    X(PFNGLBINDTEXTUREPROC, glBindTexture)                                                                             \
    X(PFNGLTEXSTORAGE2DPROC, glTexStorage2D)                                                                           \
    X(PFNGLTEXSTORAGE3DPROC, glTexStorage3D)                                                                           \
    X(PFNGLTEXIMAGE2DPROC, glTexImage2D)                                                                               \
    X(PFNGLTEXSUBIMAGE2DPROC, glTexSubImage2D)                                                                         \
    X(PFNGLTEXPARAMETERIPROC, glTexParameteri)                                                                         \
    X(PFNGLGETTEXIMAGEPROC, glGetTexImage)                                                                             \
    X(PFNGLGENBUFFERSPROC, glGenBuffers)                                                                               \
    X(PFNGLDELETEBUFFERSPROC, glDeleteBuffers)                                                                         \
    X(PFNGLBINDBUFFERPROC, glBindBuffer)                                                                               \
    X(PFNGLBUFFERDATAPROC, glBufferData)                                                                               \
    X(PFNGLGETBUFFERSUBDATAPROC, glGetBufferSubData)                                                                   \
    X(PFNGLCOPYIMAGESUBDATAPROC, glCopyImageSubData)

static struct {
#define MEMBER(type, name) type name;
    ENTRIES(MEMBER)
#undef MEMBER
    int (*init)(unsigned flags);
    int (*devices)(unsigned* count, int* devices, unsigned capacity, int list); // CUDA's of the context that is current
    int (*memory)(size_t* free_bytes, size_t* total_bytes);
    int (*retain)(struct CUctx_st** context, int device);
    int (*set_current)(struct CUctx_st* context);
} s_gl;

typedef struct context {
    EGLDisplay display;
    EGLContext context;
} context;
static context s_context, s_foreign; // on a GPU that CUDA sees, the engine's; on another device, if there is one
static EGLDeviceEXT s_device;
static int s_ordinal;
static const char* s_why_not;

static bool find_entries(void)
{
    void* egl = dlopen("libEGL.so.1", RTLD_NOW);
    void* cuda = dlopen("libcuda.so.1", RTLD_NOW);
    s_why_not = egl == NULL ? "there is no libEGL.so.1" : cuda == NULL ? "there is no NVIDIA driver here" : NULL;
    if (s_why_not != NULL) return false;
    PFNEGLGETPROCADDRESSPROC get;
    const struct {
        const char* name;
        void* into;
        void* library;
    } entries[] = {
        {"eglGetProcAddress", &get, egl},
        {"cuInit", &s_gl.init, cuda},
        {"cuGLGetDevices_v2", &s_gl.devices, cuda},
        {"cuMemGetInfo_v2", &s_gl.memory, cuda},
        {"cuDevicePrimaryCtxRetain", &s_gl.retain, cuda},
        {"cuCtxSetCurrent", &s_gl.set_current, cuda},
    };
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void* entry = dlsym(entries[i].library, entries[i].name);
        s_why_not = entries[i].name;
        if (entry == NULL) return false;
        memcpy(entries[i].into, &entry, sizeof entry);
    }
#define FIND(type, name)                                                                                               \
    s_why_not = #name;                                                                                                 \
    s_gl.name = (type)get(#name);                                                                                      \
    if (s_gl.name == NULL) return false;
    ENTRIES(FIND)
#undef FIND
    s_why_not = "the NVIDIA driver has no device";
    return s_gl.init(0) == 0;
}

static bool make_current(const context* c)
{
    return s_gl.eglMakeCurrent(c->display, EGL_NO_SURFACE, EGL_NO_SURFACE, c->context);
}

// Current, or false with nothing left behind.
static bool make_context(EGLDeviceEXT device, context* out)
{
    static const EGLint s_config_wishes[] = {EGL_SURFACE_TYPE, EGL_PBUFFER_BIT, EGL_RENDERABLE_TYPE, EGL_OPENGL_BIT,
                                             EGL_NONE};
    static const EGLint s_context_wishes[] = {EGL_CONTEXT_MAJOR_VERSION, 4, EGL_CONTEXT_MINOR_VERSION, 3, EGL_NONE};
    EGLConfig config;
    EGLint count = 0;
    out->context = EGL_NO_CONTEXT;
    out->display = s_gl.eglGetPlatformDisplayEXT(EGL_PLATFORM_DEVICE_EXT, device, NULL);
    if (out->display == EGL_NO_DISPLAY || !s_gl.eglInitialize(out->display, NULL, NULL)
        || !s_gl.eglBindAPI(EGL_OPENGL_API))
        return false;
    if (!s_gl.eglChooseConfig(out->display, s_config_wishes, &config, 1, &count) || count != 1) return false;
    out->context = s_gl.eglCreateContext(out->display, config, EGL_NO_CONTEXT, s_context_wishes);
    if (out->context != EGL_NO_CONTEXT && make_current(out)) return true;
    if (out->context != EGL_NO_CONTEXT) s_gl.eglDestroyContext(out->display, out->context);
    return false;
}

static bool open_gl(void)
{
    EGLDeviceEXT devices[16];
    EGLint count = 0;
    if (!find_entries()) return false;
    s_why_not = "no EGL device gives an OpenGL 4.3 context, without a surface, on a GPU that CUDA sees";
    if (!s_gl.eglQueryDevicesEXT(16, devices, &count)) return false;
    for (EGLint i = 0; i < count; i++) {
        context c;
        unsigned found = 0;
        int ordinals[8];
        if (!make_context(devices[i], &c)) continue;
        const bool is_cudas = s_gl.devices(&found, ordinals, 8, 1 /* CU_GL_DEVICE_LIST_ALL */) == 0 && found > 0;
        printf("EGL device %d: %s, ", (int)i, (const char*)s_gl.glGetString(GL_RENDERER));
        if (is_cudas) printf("CUDA's device %d\n", ordinals[0]);
        else printf("not CUDA's\n");
        const bool is_foreign = !is_cudas || (s_context.context != NULL && ordinals[0] != s_ordinal);
        context* keep = is_foreign ? &s_foreign : &s_context;
        if (!is_foreign && s_context.context == NULL) s_device = devices[i], s_ordinal = ordinals[0];
        if (keep->context == NULL) *keep = c;
        else s_gl.eglDestroyContext(c.display, c.context);
    }
    return s_context.context != NULL && make_current(&s_context);
}

// ---- Textures -------------------------------------------------------------------------------------------------------

// incomplete: its filter, the one that textures begin with, wants levels that it has not
typedef enum storage { IMMUTABLE, WITH_LEVELS, MUTABLE, STORAGES, INCOMPLETE } storage;

static GLuint make_texture(GLenum format, storage how, int32_t width, int32_t height)
{
    GLuint name = 0;
    s_gl.glGenTextures(1, &name);
    s_gl.glBindTexture(GL_TEXTURE_2D, name);
    if (how == MUTABLE) s_gl.glTexParameteri(GL_TEXTURE_2D, GL_TEXTURE_MAX_LEVEL, 0);
    if (how == MUTABLE || how == INCOMPLETE)
        s_gl.glTexImage2D(GL_TEXTURE_2D, 0, (GLint)format, width, height, 0, GL_RGBA, GL_UNSIGNED_BYTE, NULL);
    else s_gl.glTexStorage2D(GL_TEXTURE_2D, how == WITH_LEVELS ? 3 : 1, format, width, height);
    return name;
}

static void fill_texture(GLuint name, int32_t width, int32_t height, int value)
{
    unsigned char* pixels = malloc((size_t)width * (size_t)height * 4);
    memset(pixels, value, (size_t)width * (size_t)height * 4);
    s_gl.glBindTexture(GL_TEXTURE_2D, name);
    s_gl.glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, width, height, GL_RGBA, GL_UNSIGNED_BYTE, pixels);
    free(pixels);
}

static uint64_t hash_texture(GLuint name, int32_t width, int32_t height)
{
    const size_t bytes = (size_t)width * (size_t)height * 4;
    unsigned char* pixels = calloc(bytes, 1);
    s_gl.glBindTexture(GL_TEXTURE_2D, name);
    s_gl.glGetTexImage(GL_TEXTURE_2D, 0, GL_RGBA, GL_UNSIGNED_BYTE, pixels);
    const uint64_t hash = hash_bytes(pixels, bytes);
    free(pixels);
    return hash;
}

static sumi_engine* gl_engine(sumi_pump pump, sumi_model** out_model)
{
    memset(&s_host, 0, sizeof s_host);
    sumi_engine_desc desc = host_desc(&s_host);
    desc.backend = SUMI_BACKEND_CUDA;
    desc.cuda.ordinal = s_ordinal;
    desc.pump = pump;
    desc.max_slice_us = 100;
    sumi_engine* engine = open_engine(&desc, out_model);
    CHECK(engine != NULL);
    return engine;
}

// The picture's bytes as host memory gets them.
static uint64_t draw_to_host(sumi_engine* engine, sumi_image_desc desc)
{
    sumi_image image;
    desc.targets = NULL;
    CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
    CHECK_NUMBER(image.row_bytes, desc.width * 4);
    const uint64_t hash = hash_image(&image);
    sumi_images_release(engine, &image, 1);
    return hash;
}

static sumi_result draw_to_texture(sumi_engine* engine, sumi_image_desc desc, sumi_external* external)
{
    const sumi_target target = {.external = external};
    sumi_image image;
    desc.targets = &target;
    return draw(engine, &desc, &image);
}

// ---- Tests ----------------------------------------------------------------------------------------------------------

TEST(textures_on_a_gpu)
{
    if (!open_gl()) SKIP(s_why_not);
}

TEST(a_texture_has_the_bytes_that_host_memory_has)
{
    static const int32_t s_sizes[][2] = {{16, 16}, {48, 32}, {80, 112}, {144, 16}};
    CHECK(make_current(&s_context));
    for (int pump = 0; pump < 2; pump++) {
        sumi_model* model;
        sumi_engine* engine = gl_engine(pump == 1 ? SUMI_PUMP_THREAD : SUMI_PUMP_UPDATE, &model);
        if (engine == NULL) return;
        for (size_t i = 0; i < sizeof s_sizes / sizeof *s_sizes; i++) {
            const int32_t width = s_sizes[i][0], height = s_sizes[i][1];
            sumi_image_desc desc = small_image(model, &s_item);
            desc.width = width;
            desc.height = height;
            const uint64_t picture = draw_to_host(engine, desc);
            for (int how = 0; how < STORAGES; how++) {
                const GLuint name = make_texture(GL_RGBA8, (storage)how, width, height);
                fill_texture(name, width, height, 0x55);
                const uint64_t before = hash_texture(name, width, height);
                sumi_external* external = NULL;
                CHECK_NUMBER(import_gl_texture(engine, name, GL_TEXTURE_2D, width, height, &external), SUMI_OK);
                CHECK(hash_texture(name, width, height) == before);
                const sumi_target target = {.external = external};
                desc.targets = &target;
                desc.preview_every = how == WITH_LEVELS ? 1 : 0;
                sumi_job job;
                sumi_image image;
                CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
                CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
                CHECK(hash_texture(name, width, height) == before); // the fetch brings it, nothing before
                CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
                CHECK(image.pixels == NULL && image.row_bytes == width * 4 && image.width == width
                      && image.height == height);
                CHECK(hash_texture(name, width, height) == picture);
                if (t_errors > 0)
                    printf("  %d x %d, storage %d, pump %d: %s\n", (int)width, (int)height, how, pump, s_host.log);
                sumi_external_release(external);
                CHECK(hash_texture(name, width, height) == picture);
                s_gl.glDeleteTextures(1, &name);
            }
        }
        CHECK_NUMBER(s_gl.glGetError(), GL_NO_ERROR);
        close_engine(engine);
    }
}

// Buffers in every format, with a pitch and an offset; a texture of half floats; previews.
static void draw_every_format(const char* model_path, bool has_alpha)
{
    enum { WIDTH = 96, HEIGHT = 64, OFFSET = 256, SPARE = 32 };
    static const size_t s_pixel_bytes[] = {4, 3, 12, 4, 8}; // by sumi_format
    static const char* const s_names[] = {"RGBA8", "RGB8", "RGB32F", "BGRA8", "RGBA16F"};
    CHECK(make_current(&s_context));
    sumi_engine* engine = gl_engine(SUMI_PUMP_UPDATE, NULL);
    if (engine == NULL) return;
    sumi_model* model = load_model_at(engine, model_path);
    CHECK(model != NULL);
    if (model == NULL) {
        sumi_engine_destroy(engine);
        return;
    }
    sumi_image_desc desc = small_image(model, &s_item);
    desc.width = WIDTH, desc.height = HEIGHT;
    for (int format = 0; format < 6; format++) { // 5: the texture
        const sumi_format its = format == 5 ? SUMI_FORMAT_RGBA16F : (sumi_format)format;
        const size_t row = WIDTH * s_pixel_bytes[its], pitch = row + SPARE, bytes = OFFSET + pitch * HEIGHT;
        unsigned char *wanted = malloc(row * HEIGHT), *got = malloc(bytes);
        const int errors = t_errors;
        sumi_target target = {.format = its, .host_memory = wanted};
        sumi_image image;
        desc.targets = &target;
        CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
        CHECK(image.has_alpha == (has_alpha && its != SUMI_FORMAT_RGB8 && its != SUMI_FORMAT_RGB32F));
        if (its == SUMI_FORMAT_RGBA8) {
            int seen = 0;
            for (int i = 0; i < WIDTH * HEIGHT; i++) seen += wanted[4 * i + 3] < 255;
            CHECK((seen > 0) == has_alpha);
        }
        GLuint name = 0;
        sumi_import_desc import = sumi_import_defaults();
        import.width = WIDTH, import.height = HEIGHT;
        import.format = its;
        if (format == 5) {
            name = make_texture(GL_RGBA16F, IMMUTABLE, WIDTH, HEIGHT);
            import.kind = SUMI_EXTERNAL_GL_TEXTURE;
            import.gl_target = GL_TEXTURE_2D;
        } else {
            memset(got, 0x55, bytes);
            s_gl.glGenBuffers(1, &name);
            s_gl.glBindBuffer(GL_PIXEL_UNPACK_BUFFER, name);
            s_gl.glBufferData(GL_PIXEL_UNPACK_BUFFER, (GLsizeiptr)bytes, got, GL_STREAM_DRAW);
            s_gl.glBindBuffer(GL_PIXEL_UNPACK_BUFFER, 0);
            import.kind = SUMI_EXTERNAL_GL_BUFFER;
            import.row_bytes = (int32_t)pitch;
            import.offset = OFFSET;
        }
        import.gl_name = name;
        sumi_external* external = NULL;
        CHECK_NUMBER(sumi_import(engine, &import, &external), SUMI_OK);
        target = (sumi_target){.format = its, .external = external};
        CHECK_NUMBER(draw(engine, &desc, &image), SUMI_OK);
        size_t wrong = 0;
        if (format == 5) {
            s_gl.glBindTexture(GL_TEXTURE_2D, name);
            s_gl.glGetTexImage(GL_TEXTURE_2D, 0, GL_RGBA, GL_HALF_FLOAT, got);
            wrong = memcmp(got, wanted, row * HEIGHT) != 0;
        } else {
            s_gl.glBindBuffer(GL_PIXEL_UNPACK_BUFFER, name);
            s_gl.glGetBufferSubData(GL_PIXEL_UNPACK_BUFFER, 0, (GLsizeiptr)bytes, got);
            s_gl.glBindBuffer(GL_PIXEL_UNPACK_BUFFER, 0);
            for (size_t i = 0; i < OFFSET; i++) wrong += got[i] != 0x55;
            for (size_t y = 0; y < HEIGHT; y++) {
                wrong += memcmp(got + OFFSET + y * pitch, wanted + y * row, row) != 0;
                for (size_t x = row; x < pitch; x++) wrong += got[OFFSET + y * pitch + x] != 0x55;
            }
        }
        CHECK_NUMBER((int)wrong, 0);
        if (t_errors > errors)
            printf("  %s %s, %zu of its rows and bytes around them are wrong: %s\n", s_names[its],
                   format == 5 ? "texture" : "buffer", wrong, s_host.log);
        sumi_external_release(external);
        if (format == 5) s_gl.glDeleteTextures(1, &name);
        else s_gl.glDeleteBuffers(1, &name);
        free(wanted), free(got);
    }
    // A preview in a texture.
    const GLuint small = make_texture(GL_RGBA8, IMMUTABLE, WIDTH / 8, HEIGHT / 8);
    sumi_import_desc import = sumi_import_defaults();
    import.kind = SUMI_EXTERNAL_GL_TEXTURE;
    import.gl_name = small;
    import.gl_target = GL_TEXTURE_2D;
    import.width = WIDTH / 8, import.height = HEIGHT / 8;
    import.takes_previews = true;
    sumi_external* external = NULL;
    CHECK_NUMBER(sumi_import(engine, &import, &external), SUMI_OK);
    desc.targets = NULL;
    desc.preview_every = 1;
    sumi_job job;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    unsigned char preview[WIDTH / 8 * (HEIGHT / 8) * 4];
    sumi_image image;
    const sumi_target shown = {.external = external};
    CHECK_NUMBER(sumi_job_preview(engine, job, 0, preview, sizeof preview, &image), SUMI_OK);
    CHECK_NUMBER(sumi_job_show_preview(engine, job, 0, &shown), SUMI_OK);
    CHECK(hash_texture(small, WIDTH / 8, HEIGHT / 8) == hash_bytes(preview, sizeof preview));
    if (t_errors > 0) printf("  after the preview: %s\n", s_host.log);
    sumi_job_discard(engine, job);
    CHECK_NUMBER(s_gl.glGetError(), GL_NO_ERROR);
    close_engine(engine);
    s_gl.glDeleteTextures(1, &small);
}

TEST(buffers_and_half_floats_have_the_bytes_that_host_memory_has) { draw_every_format(MODEL_PATH, false); }

TEST(so_have_pictures_with_alpha)
{
    static const char s_model[] = "tests/golden/qwen-image-21/model";
    if (!sumi_file_exists(NULL, "tests/golden/qwen-image-21/model/model_index.json"))
        SKIP("the checkpoint of Qwen-Image-2.1 is not in this work tree");
    draw_every_format(s_model, true);
}

TEST(a_batch_goes_to_textures_and_to_memory)
{
    static const sumi_image_item s_items[3] = {
        {.text = "a red fox", .seed = 7}, {.text = "a lighthouse", .seed = 8}, {.text = "a red fox", .seed = 9}};
    CHECK(make_current(&s_context));
    sumi_model* model;
    sumi_engine* engine = gl_engine(SUMI_PUMP_UPDATE, &model);
    if (engine == NULL) return;
    sumi_image_desc desc = small_image(model, s_items);
    desc.item_count = 3;
    desc.width = 48;
    sumi_image images[3];
    uint64_t pictures[3];
    CHECK_NUMBER(draw(engine, &desc, images), SUMI_OK);
    for (int i = 0; i < 3; i++) pictures[i] = hash_image(&images[i]);
    sumi_images_release(engine, images, 3);
    CHECK(pictures[0] != pictures[1] && pictures[0] != pictures[2]);
    GLuint names[2];
    sumi_external* externals[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        names[i] = make_texture(GL_RGBA8, i == 0 ? IMMUTABLE : MUTABLE, 48, 32);
        CHECK_NUMBER(import_gl_texture(engine, names[i], GL_TEXTURE_2D, 48, 32, &externals[i]), SUMI_OK);
    }
    const sumi_target targets[3] = {
        {.external = externals[0]}, {.format = SUMI_FORMAT_RGBA8}, {.external = externals[1]}};
    desc.targets = targets;
    for (int round = 0; round < 3; round++) {
        CHECK_NUMBER(draw(engine, &desc, images), SUMI_OK);
        CHECK(images[0].pixels == NULL && images[2].pixels == NULL);
        CHECK(hash_texture(names[0], 48, 32) == pictures[0] && hash_image(&images[1]) == pictures[1]
              && hash_texture(names[1], 48, 32) == pictures[2]);
        sumi_images_release(engine, images, 3);
    }
    close_engine(engine); // with both
    s_gl.glDeleteTextures(2, names);
}

// The copy lies between what OpenGL was told before the fetch and what it is told after it: nothing here waits in
// between.
TEST(opengls_own_work_keeps_its_order)
{
    enum { SIZE = 256, ROUNDS = 40 };
    CHECK(make_current(&s_context));
    sumi_model* model;
    sumi_engine* engine = gl_engine(SUMI_PUMP_UPDATE, &model);
    if (engine == NULL) return;
    sumi_image_item items[2] = {s_item, s_item};
    items[1].seed = 99;
    sumi_image_desc desc[2];
    uint64_t pictures[2];
    for (int i = 0; i < 2; i++) {
        desc[i] = small_image(model, &items[i]);
        desc[i].width = desc[i].height = SIZE;
        desc[i].step_count = 1;
        pictures[i] = draw_to_host(engine, desc[i]);
    }
    CHECK(pictures[0] != pictures[1]);
    const GLuint shown = make_texture(GL_RGBA8, IMMUTABLE, SIZE, SIZE),
                 copy = make_texture(GL_RGBA8, IMMUTABLE, SIZE, SIZE),
                 large = make_texture(GL_RGBA8, IMMUTABLE, 4096, 4096);
    const GLuint other = make_texture(GL_RGBA8, IMMUTABLE, 4096, 4096);
    sumi_external* external = NULL;
    CHECK_NUMBER(import_gl_texture(engine, shown, GL_TEXTURE_2D, SIZE, SIZE, &external), SUMI_OK);
    int wrong_copies = 0, overwritten = 0;
    for (int round = 0; round < ROUNDS; round++) {
        const int which = round % 2;
        const sumi_target target = {.external = external};
        sumi_job job;
        sumi_image image;
        desc[which].targets = &target;
        CHECK_NUMBER(sumi_submit_images(engine, &desc[which], &job), SUMI_OK);
        CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
        // keeps the GPU at it for a while
        for (int i = 0; i < 8; i++)
            s_gl.glCopyImageSubData(large, GL_TEXTURE_2D, 0, 0, 0, 0, other, GL_TEXTURE_2D, 0, 0, 0, 0, 4096, 4096, 1);
        s_gl.glCopyImageSubData(large, GL_TEXTURE_2D, 0, 0, 0, 0, shown, GL_TEXTURE_2D, 0, 0, 0, 0, SIZE, SIZE, 1);
        CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
        s_gl.glCopyImageSubData(shown, GL_TEXTURE_2D, 0, 0, 0, 0, copy, GL_TEXTURE_2D, 0, 0, 0, 0, SIZE, SIZE, 1);
        overwritten += hash_texture(shown, SIZE, SIZE) != pictures[which];
        wrong_copies += hash_texture(copy, SIZE, SIZE) != pictures[which];
    }
    CHECK_NUMBER(overwritten, 0);
    CHECK_NUMBER(wrong_copies, 0);
    CHECK_NUMBER(s_gl.glGetError(), GL_NO_ERROR);
    sumi_external_release(external);
    const GLuint names[4] = {shown, copy, large, other};
    s_gl.glDeleteTextures(4, names);
    close_engine(engine);
}

TEST(textures_that_cannot_be_are_refused)
{
    CHECK(make_current(&s_context));
    sumi_model* model;
    sumi_engine* engine = gl_engine(SUMI_PUMP_UPDATE, &model);
    if (engine == NULL) return;
    GLuint empty = 0, layers = 0;
    s_gl.glGenTextures(1, &empty);
    s_gl.glBindTexture(GL_TEXTURE_2D, empty);
    s_gl.glGenTextures(1, &layers);
    s_gl.glBindTexture(GL_TEXTURE_2D_ARRAY, layers);
    s_gl.glTexStorage3D(GL_TEXTURE_2D_ARRAY, 1, GL_RGBA8, 32, 32, 2);
    const GLuint good = make_texture(GL_RGBA8, IMMUTABLE, 32, 32), odd = make_texture(GL_RGBA8, IMMUTABLE, 33, 17);
    const struct {
        const char* what;
        GLuint name;
        GLenum target;
    } wrong[] = {
        {"no texture", 0, GL_TEXTURE_2D},
        {"a name that was never given", 4711, GL_TEXTURE_2D},
        {"no storage", empty, GL_TEXTURE_2D},
        {"no target of textures", good, GL_TEXTURE_BUFFER},
        {"GL_R8", make_texture(GL_R8, IMMUTABLE, 32, 32), GL_TEXTURE_2D},
        {"GL_RGB10_A2", make_texture(GL_RGB10_A2, IMMUTABLE, 32, 32), GL_TEXTURE_2D},
        {"GL_R32F", make_texture(GL_R32F, IMMUTABLE, 32, 32), GL_TEXTURE_2D}, // four bytes, too
        {"GL_RGBA16F", make_texture(GL_RGBA16F, IMMUTABLE, 32, 32), GL_TEXTURE_2D},
        {"GL_DEPTH24_STENCIL8", make_texture(GL_DEPTH24_STENCIL8, IMMUTABLE, 32, 32), GL_TEXTURE_2D},
        {"too large", make_texture(GL_RGBA8, IMMUTABLE, 64, 32), GL_TEXTURE_2D},
        {"too small", make_texture(GL_RGBA8, IMMUTABLE, 32, 16), GL_TEXTURE_2D},
    };
    CHECK_NUMBER(s_gl.glGetError(), GL_NO_ERROR);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        sumi_external* external = (sumi_external*)engine;
        s_host.log[0] = '\0';
        const sumi_result result = import_gl_texture(engine, wrong[i].name, wrong[i].target, 32, 32, &external);
        CHECK_NUMBER(result, SUMI_INVALID_ARGUMENT);
        CHECK(external == NULL && strstr(s_host.log, "texture") != NULL);
        printf("  %s: %d, %s\n", wrong[i].what, (int)result, s_host.log);
        if (result == SUMI_OK) sumi_external_release(external);
        if (wrong[i].name != good) s_gl.glDeleteTextures(1, &wrong[i].name);
    }
    // The driver's to say; where they can be shared, the bytes are the same.
    sumi_image_desc desc = small_image(model, &s_item);
    const uint64_t picture = draw_to_host(engine, desc);
    const struct {
        const char* what;
        GLuint name;
    } maybe[] = {{"GL_RGB8", make_texture(GL_RGB8, IMMUTABLE, 32, 32)},
                 {"GL_SRGB8_ALPHA8", make_texture(GL_SRGB8_ALPHA8, IMMUTABLE, 32, 32)},
                 {"incomplete", make_texture(GL_RGBA8, INCOMPLETE, 32, 32)}};
    sumi_external* external = NULL;
    for (size_t i = 0; i < sizeof maybe / sizeof *maybe; i++) {
        const sumi_result result = import_gl_texture(engine, maybe[i].name, GL_TEXTURE_2D, 32, 32, &external);
        printf("  %s: %d\n", maybe[i].what, (int)result);
        CHECK(result == SUMI_OK || result == SUMI_INVALID_ARGUMENT);
        if (result == SUMI_OK) CHECK_NUMBER(draw_to_texture(engine, desc, external), SUMI_OK);
        if (result == SUMI_OK) CHECK(hash_texture(maybe[i].name, 32, 32) == picture);
        sumi_external_release(external);
        s_gl.glDeleteTextures(1, &maybe[i].name);
    }
    // Of an array its first layer.
    static unsigned char s_pixels[2 * 32 * 32 * 4];
    CHECK_NUMBER(import_gl_texture(engine, layers, GL_TEXTURE_2D_ARRAY, 32, 32, &external), SUMI_OK);
    CHECK_NUMBER(draw_to_texture(engine, desc, external), SUMI_OK);
    s_gl.glBindTexture(GL_TEXTURE_2D_ARRAY, layers);
    s_gl.glGetTexImage(GL_TEXTURE_2D_ARRAY, 0, GL_RGBA, GL_UNSIGNED_BYTE, s_pixels);
    CHECK(hash_bytes(s_pixels, sizeof s_pixels / 2) == picture);
    sumi_external_release(external);
    s_gl.glDeleteTextures(1, &layers);
    // One that no picture has the size of can be shared all the same.
    CHECK_NUMBER(import_gl_texture(engine, odd, GL_TEXTURE_2D, 33, 17, &external), SUMI_OK);
    CHECK_NUMBER(draw_to_texture(engine, desc, external), SUMI_INVALID_ARGUMENT);
    CHECK(strstr(s_host.log, "33 x 17") != NULL);
    sumi_external_release(external);
    // And nothing has harmed the engine.
    CHECK_NUMBER(import_gl_texture(engine, good, GL_TEXTURE_2D, 32, 32, &external), SUMI_OK);
    CHECK_NUMBER(draw_to_texture(engine, desc, external), SUMI_OK);
    CHECK(hash_texture(good, 32, 32) == picture);
    close_engine(engine);
    s_gl.glDeleteTextures(1, &good);
    s_gl.glDeleteTextures(1, &odd);
}

static sumi_import_desc depth_desc(GLuint name, int32_t width, int32_t height)
{
    sumi_import_desc desc = sumi_import_defaults();
    desc.kind = SUMI_EXTERNAL_GL_TEXTURE;
    desc.gl_name = name;
    desc.gl_target = GL_TEXTURE_2D;
    desc.width = width;
    desc.height = height;
    desc.is_depth = true;
    return desc;
}

// Draws, and copies what the net saw.
static void draw_by_depth(sumi_engine* engine, sumi_image_desc desc, const sumi_depth* depth, uint8_t* rgb)
{
    const sumi_control_picture picture = {.depth = depth};
    sumi_control_use use = *desc.controls;
    sumi_job job;
    sumi_image image = {0};
    use.pictures = &picture;
    use.picture_count = 1;
    desc.controls = &use;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
    const sumi_control_view view = {0, 0, rgb, 3 * 32 * 32};
    CHECK_NUMBER(sumi_job_control_picture(engine, job, &view), SUMI_OK);
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
    sumi_images_release(engine, &image, 1);
}

// Depth that a GPU reads from a texture, and the formats of depth that CUDA does not share.
TEST(depth_textures_give_the_pictures_of_host_memory)
{
    enum { WIDTH = 80, HEIGHT = 48 };
    static float s_depth[WIDTH * HEIGHT];
    static uint8_t s_seen[2][3 * 32 * 32];
    CHECK(make_current(&s_context));
    sumi_model* model;
    sumi_engine* engine = gl_engine(SUMI_PUMP_UPDATE, &model);
    if (engine == NULL) return;
    sumi_control_desc net = sumi_control_defaults(model);
    sumi_control* control = NULL;
    sumi_job job;
    net.path = "tests/golden/controlnet/Z-Image-Turbo-Fun-Controlnet-Union";
    CHECK_NUMBER(sumi_submit_control(engine, &net, &job), SUMI_OK);
    sumi_job_wait(engine, job, SUMI_FOREVER);
    CHECK_NUMBER(sumi_fetch_control(engine, job, &control), SUMI_OK);
    sumi_control_use use = sumi_control_use_defaults(control);
    sumi_image_desc desc = small_image(model, &s_item);
    desc.controls = &use;
    desc.control_count = 1;
    CHECK(desc.width == 32 && desc.height == 32);
    for (int i = 0; i < WIDTH * HEIGHT; i++)
        s_depth[i] = i / WIDTH > 40 ? 0.0f : 0.5f / (3.0f + (float)(i % WIDTH) + (float)(i / WIDTH % 7));
    const GLuint name = make_texture(GL_R32F, IMMUTABLE, WIDTH, HEIGHT);
    sumi_depth depth = sumi_depth_defaults();
    sumi_external* external = NULL;
    const sumi_import_desc good = depth_desc(name, WIDTH, HEIGHT);
    CHECK_NUMBER(sumi_import(engine, &good, &external), SUMI_OK);
    depth.kind = SUMI_DEPTH_REVERSED;
    depth.near_plane = 0.5f;
    depth.far_plane = INFINITY;
    depth.bottom_up = true; // as OpenGL has its textures
    for (int round = 0; round < 2; round++) {
        s_depth[0] += 0.01f; // the next frame
        s_gl.glBindTexture(GL_TEXTURE_2D, name);
        s_gl.glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, WIDTH, HEIGHT, GL_RED, GL_FLOAT, s_depth);
        depth.external = external;
        depth.data = NULL;
        depth.width = depth.height = 0;
        draw_by_depth(engine, desc, &depth, s_seen[0]);
        depth.external = NULL;
        depth.data = s_depth;
        depth.width = WIDTH, depth.height = HEIGHT;
        draw_by_depth(engine, desc, &depth, s_seen[1]);
        int most = 0;
        for (size_t i = 0; i < sizeof s_seen[0]; i++) {
            const int difference = abs(s_seen[0][i] - s_seen[1][i]);
            most = difference > most ? difference : most;
        }
        CHECK(most <= 1 && s_seen[1][0] == 0 && s_seen[1][3 * 32 * 31] > 200);
    }
    const struct {
        const char* what;
        GLenum format;
    } wrong[] = {{"GL_DEPTH_COMPONENT16", GL_DEPTH_COMPONENT16},
                 {"GL_DEPTH_COMPONENT24", GL_DEPTH_COMPONENT24},
                 {"GL_DEPTH_COMPONENT32F", GL_DEPTH_COMPONENT32F},
                 {"GL_DEPTH24_STENCIL8", GL_DEPTH24_STENCIL8},
                 {"GL_DEPTH32F_STENCIL8", GL_DEPTH32F_STENCIL8},
                 {"GL_RGBA8", GL_RGBA8},
                 {"GL_R16F", GL_R16F},
                 {"GL_R32UI", GL_R32UI}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const GLuint other = make_texture(wrong[i].format, IMMUTABLE, WIDTH, HEIGHT);
        const sumi_import_desc bad = depth_desc(other, WIDTH, HEIGHT);
        sumi_external* none = NULL;
        const sumi_result result = sumi_import(engine, &bad, &none);
        printf("  %s: %d, %s\n", wrong[i].what, (int)result, s_host.log);
        CHECK_NUMBER(result, SUMI_INVALID_ARGUMENT);
        CHECK(none == NULL && strstr(s_host.log, "R32F texture in one full-screen pass") != NULL);
        sumi_external_release(none);
        s_gl.glDeleteTextures(1, &other);
    }
    sumi_external_release(external);
    close_engine(engine);
    s_gl.glDeleteTextures(1, &name);
}

TEST(without_a_context_there_is_a_result)
{
    CHECK(make_current(&s_context));
    sumi_model* model;
    sumi_engine* engine = gl_engine(SUMI_PUMP_UPDATE, &model);
    if (engine == NULL) return;
    const GLuint name = make_texture(GL_RGBA8, IMMUTABLE, 32, 32);
    const context none = {s_context.display, EGL_NO_CONTEXT};
    sumi_image_desc desc = small_image(model, &s_item);
    const uint64_t picture = draw_to_host(engine, desc);
    sumi_external* external = NULL;
    CHECK(make_current(&none));
    CHECK_NUMBER(import_gl_texture(engine, name, GL_TEXTURE_2D, 32, 32, &external), SUMI_WRONG_STATE);
    printf("  import without a context: %s\n", s_host.log);
    CHECK(external == NULL && strstr(s_host.log, "OpenGL context current") != NULL);
    CHECK(draw_to_host(engine, desc) == picture);
    CHECK(make_current(&s_context));
    CHECK_NUMBER(import_gl_texture(engine, name, GL_TEXTURE_2D, 32, 32, &external), SUMI_OK);
    const sumi_target target = {.external = external};
    desc.targets = &target;
    sumi_job job;
    sumi_image image;
    CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
    CHECK(make_current(&none));
    CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK); // only the fetch needs it
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_WRONG_STATE);
    printf("  fetch without a context: %s\n", s_host.log);
    CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_DONE);
    CHECK(make_current(&s_context));
    CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
    CHECK(hash_texture(name, 32, 32) == picture);
    CHECK(make_current(&none));
    sumi_external_release(external); // a mistake of the host program's, which costs it no more than this texture
    CHECK(draw_to_host(engine, desc) == picture);
    close_engine(engine);
    CHECK(make_current(&s_context));
    s_gl.glDeleteTextures(1, &name);
}

TEST(a_context_of_another_device_is_refused)
{
    CHECK(make_current(&s_context));
    if (s_foreign.context == NULL) SKIP("there is one EGL device only");
    sumi_model* model;
    sumi_engine* engine = gl_engine(SUMI_PUMP_UPDATE, &model);
    if (engine == NULL) return;
    CHECK(make_current(&s_foreign));
    const GLuint name = make_texture(GL_RGBA8, IMMUTABLE, 32, 32);
    sumi_external* external = NULL;
    const sumi_result result = import_gl_texture(engine, name, GL_TEXTURE_2D, 32, 32, &external);
    printf("  import from another device: %d, %s\n", (int)result, s_host.log);
    CHECK_NUMBER(result, SUMI_WRONG_STATE);
    CHECK(external == NULL && strstr(s_host.log, "must be of this GPU") != NULL);
    if (external != NULL) sumi_external_release(external);
    const sumi_image_desc desc = small_image(model, &s_item);
    CHECK(draw_to_host(engine, desc) != 0); // the engine is well
    s_gl.glDeleteTextures(1, &name);
    CHECK(make_current(&s_context));
    close_engine(engine);
}

TEST(they_may_go_in_any_order)
{
    CHECK(make_current(&s_context));
    uint64_t picture = 0;
    for (int order = 0; order < 7; order++) {
        sumi_model* model;
        sumi_engine* engine = gl_engine(SUMI_PUMP_UPDATE, &model);
        if (engine == NULL) return;
        sumi_image_desc desc = small_image(model, &s_item);
        desc.width = desc.height = 64;
        if (order == 0) picture = draw_to_host(engine, desc);
        context c = s_context;
        if (order == 6) CHECK(make_context(s_device, &c));
        const GLuint name = make_texture(GL_RGBA8, IMMUTABLE, 64, 64);
        sumi_external *external = NULL, *twice = NULL;
        CHECK_NUMBER(import_gl_texture(engine, name, GL_TEXTURE_2D, 64, 64, &external), SUMI_OK);
        if (external == NULL) return;
        const sumi_target target = {.external = external};
        desc.targets = &target;
        sumi_job job;
        sumi_image image;
        CHECK_NUMBER(sumi_submit_images(engine, &desc, &job), SUMI_OK);
        run_until_denoise(engine, job);
        bool is_there = true;
        switch (order) {
        case 0: // the texture in the middle of its job: the job ends with it
            sumi_external_release(external);
            CHECK_NUMBER(sumi_job_poll(engine, job).state, SUMI_JOB_CANCELLED);
            CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_CANCELLED);
            break;
        case 1: // the texture of a job that is done
            CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
            sumi_external_release(external);
            CHECK_NUMBER(sumi_fetch_images(engine, job, &image, 1), SUMI_OK);
            break;
        case 2: // the job first, and the same texture once more for the next one
            sumi_job_discard(engine, job);
            CHECK_NUMBER(import_gl_texture(engine, name, GL_TEXTURE_2D, 64, 64, &twice), SUMI_OK);
            CHECK_NUMBER(draw_to_texture(engine, desc, twice), SUMI_OK);
            CHECK(hash_texture(name, 64, 64) == picture);
            sumi_external_release(external);
            sumi_external_release(twice);
            break;
        case 3: // the engine, a job in flight
            break;
        case 4: // the engine, a job done
            CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
            break;
        case 5: // OpenGL's own first: the fetch has nowhere to go, the release gives our part back
            CHECK_NUMBER(sumi_job_wait(engine, job, SUMI_FOREVER), SUMI_OK);
            s_gl.glDeleteTextures(1, &name);
            is_there = false;
            printf("  the fetch into a texture that is gone: %d\n", (int)sumi_fetch_images(engine, job, &image, 1));
            sumi_external_release(external);
            break;
        case 6: // the context
            s_gl.eglDestroyContext(c.display, c.context);
            CHECK(make_current(&s_context));
            is_there = false;
            break;
        }
        desc.targets = NULL;
        if (order < 3 || order > 4) CHECK(draw_to_host(engine, desc) == picture);
        close_engine(engine);
        if (is_there) s_gl.glDeleteTextures(1, &name);
        if (t_errors > 0) printf("  in order %d\n", order);
    }
    CHECK_NUMBER(s_gl.glGetError(), GL_NO_ERROR);
}

TEST(imports_give_their_memory_back)
{
    CHECK(make_current(&s_context));
    struct CUctx_st* primary = NULL;
    CHECK(s_gl.retain(&primary, s_ordinal) == 0 && s_gl.set_current(primary) == 0);
    sumi_model* model;
    sumi_engine* engine = gl_engine(SUMI_PUMP_UPDATE, &model);
    if (engine == NULL) return;
    const GLuint name = make_texture(GL_RGBA8, IMMUTABLE, 2048, 2048);
    const uint64_t held = sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_IMAGE];
    // Other programs take and return memory of the device as they please. What imports kept would be missing more
    // behind every ten of them, so the least that is missing tells.
    enum { ROUNDS = 4, IMPORTS = 10 };
    size_t before = 0, after = 0, total = 0;
    int64_t least = INT64_MAX;
    for (int i = 0; i <= ROUNDS * IMPORTS; i++) {
        sumi_external* external = NULL;
        CHECK_NUMBER(import_gl_texture(engine, name, GL_TEXTURE_2D, 2048, 2048, &external), SUMI_OK);
        CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_IMAGE], held + ((uint64_t)16 << 20));
        sumi_external_release(external);
        CHECK_NUMBER(sumi_engine_get_info(engine).held_bytes[SUMI_MEMORY_IMAGE], held);
        if (i % IMPORTS != 0) continue;
        CHECK(s_gl.memory(&after, &total) == 0);
        const int64_t missing = (int64_t)before - (int64_t)after;
        if (i > 0 && missing < least) least = missing; // the first import makes what stays
        before = after;
    }
    printf("  missing behind %d imports: %lld MiB at least\n", (int)IMPORTS, (long long)least / 1048576);
    CHECK(least < 8 << 20);
    close_engine(engine);
    s_gl.glDeleteTextures(1, &name);
    CHECK(s_gl.set_current(NULL) == 0);
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    setvbuf(stdout, NULL, _IOLBF, 0); // a driver that crashes takes nothing along that was said
    const char* filter = t_filter;
    t_filter = NULL;
    RUN(textures_on_a_gpu);
    if (t_skipped > 0) TEST_END();
    t_filter = filter;
    RUN(a_texture_has_the_bytes_that_host_memory_has);
    RUN(buffers_and_half_floats_have_the_bytes_that_host_memory_has);
    RUN(so_have_pictures_with_alpha);
    RUN(a_batch_goes_to_textures_and_to_memory);
    RUN(opengls_own_work_keeps_its_order);
    RUN(textures_that_cannot_be_are_refused);
    RUN(depth_textures_give_the_pictures_of_host_memory);
    RUN(without_a_context_there_is_a_result);
    RUN(a_context_of_another_device_is_refused);
    RUN(imports_give_their_memory_back);
    RUN(they_may_go_in_any_order);
    TEST_END();
}
#else
TEST(textures_on_a_gpu)
{
    SKIP("built without the CUDA backend, or without EGL's and OpenGL's headers (Debian: libegl-dev, libgl-dev)");
}

int main(int argc, char** argv)
{
    TEST_BEGIN(argc, argv);
    RUN(textures_on_a_gpu);
    TEST_END();
}
#endif
