// OpenGL 4.3 in a window or without one. GLFW and EGL are opened while the program runs, so that it builds and starts
// where they are missing.
#ifndef GL_H
#define GL_H
#include <GL/glcorearb.h>
#include <stdbool.h>
#include <stdint.h>

// X(type, name)
#define GL_ENTRIES(X)                                                                                                  \
    X(PFNGLGETSTRINGPROC, glGetString)                                                                                 \
    X(PFNGLGETERRORPROC, glGetError)                                                                                   \
    X(PFNGLENABLEPROC, glEnable)                                                                                       \
    X(PFNGLDISABLEPROC, glDisable)                                                                                     \
    X(PFNGLVIEWPORTPROC, glViewport)                                                                                   \
    X(PFNGLCLEARPROC, glClear)                                                                                         \
    X(PFNGLCLEARCOLORPROC, glClearColor)                                                                               \
    X(PFNGLDRAWARRAYSPROC, glDrawArrays)                                                                               \
    X(PFNGLPIXELSTOREIPROC, glPixelStorei)                                                                             \
    X(PFNGLREADPIXELSPROC, glReadPixels)                                                                               \
    X(PFNGLGENTEXTURESPROC, glGenTextures)                                                                             \
    X(PFNGLDELETETEXTURESPROC, glDeleteTextures)                                                                       \
    X(PFNGLBINDTEXTUREPROC, glBindTexture)                                                                             \
    X(PFNGLTEXSTORAGE2DPROC, glTexStorage2D)                                                                           \
    X(PFNGLTEXSUBIMAGE2DPROC, glTexSubImage2D)                                                                         \
    X(PFNGLGENFRAMEBUFFERSPROC, glGenFramebuffers)                                                                     \
    X(PFNGLDELETEFRAMEBUFFERSPROC, glDeleteFramebuffers)                                                               \
    X(PFNGLBINDFRAMEBUFFERPROC, glBindFramebuffer)                                                                     \
    X(PFNGLFRAMEBUFFERTEXTURE2DPROC, glFramebufferTexture2D)                                                           \
    X(PFNGLCHECKFRAMEBUFFERSTATUSPROC, glCheckFramebufferStatus)                                                       \
    X(PFNGLBLITFRAMEBUFFERPROC, glBlitFramebuffer)                                                                     \
    X(PFNGLGENBUFFERSPROC, glGenBuffers)                                                                               \
    X(PFNGLDELETEBUFFERSPROC, glDeleteBuffers)                                                                         \
    X(PFNGLBINDBUFFERPROC, glBindBuffer)                                                                               \
    X(PFNGLBUFFERDATAPROC, glBufferData)                                                                               \
    X(PFNGLGENVERTEXARRAYSPROC, glGenVertexArrays)                                                                     \
    X(PFNGLDELETEVERTEXARRAYSPROC, glDeleteVertexArrays)                                                               \
    X(PFNGLBINDVERTEXARRAYPROC, glBindVertexArray)                                                                     \
    X(PFNGLENABLEVERTEXATTRIBARRAYPROC, glEnableVertexAttribArray)                                                     \
    X(PFNGLVERTEXATTRIBPOINTERPROC, glVertexAttribPointer)                                                             \
    X(PFNGLCREATESHADERPROC, glCreateShader)                                                                           \
    X(PFNGLDELETESHADERPROC, glDeleteShader)                                                                           \
    X(PFNGLSHADERSOURCEPROC, glShaderSource)                                                                           \
    X(PFNGLCOMPILESHADERPROC, glCompileShader)                                                                         \
    X(PFNGLCREATEPROGRAMPROC, glCreateProgram)                                                                         \
    X(PFNGLDELETEPROGRAMPROC, glDeleteProgram)                                                                         \
    X(PFNGLATTACHSHADERPROC, glAttachShader)                                                                           \
    X(PFNGLLINKPROGRAMPROC, glLinkProgram)                                                                             \
    X(PFNGLGETPROGRAMIVPROC, glGetProgramiv)                                                                           \
    X(PFNGLGETPROGRAMINFOLOGPROC, glGetProgramInfoLog)                                                                 \
    X(PFNGLUSEPROGRAMPROC, glUseProgram)                                                                               \
    X(PFNGLGETUNIFORMLOCATIONPROC, glGetUniformLocation)                                                               \
    X(PFNGLUNIFORMMATRIX4FVPROC, glUniformMatrix4fv)

typedef struct gl_functions {
#define MEMBER(type, name) type name;
    GL_ENTRIES(MEMBER)
#undef MEMBER
} gl_functions;
extern gl_functions gl; // of the one context of this program

// Makes a context current. Returns false with a sentence in why.
bool gl_open_window(int32_t width, int32_t height, char why[256]);
bool gl_open_headless(char why[256]);
void gl_close(void); // accepts that nothing was opened

// Of the window.
typedef enum gl_key { // GLFW's numbers
    KEY_SPACE = 32,
    KEY_A = 65,
    KEY_D = 68,
    KEY_F = 70,
    KEY_S = 83,
    KEY_W = 87,
    KEY_ESCAPE = 256,
    KEY_RIGHT = 262,
    KEY_LEFT = 263,
    KEY_DOWN = 264,
    KEY_UP = 265
} gl_key;
bool gl_is_pressed(gl_key key);
bool gl_was_closed(void);
double gl_seconds(void);
void gl_size(int32_t* width, int32_t* height); // in pixels
void gl_show(void);                            // the frame, and reads the keys for the next one
void gl_title(const char* text);

// Compiles a program. Returns 0 after printing why.
GLuint gl_program(const char* vertex, const char* fragment);
// A texture with immutable storage, as imports want it.
GLuint gl_texture(GLenum format, int32_t width, int32_t height);
#endif
