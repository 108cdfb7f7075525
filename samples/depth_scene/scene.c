#include "scene.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EYE 1.8f        // metres above the ground
#define FIELD 50        // squares of ground on each side of the middle
#define SQUARE 1.5f     // metres
#define BOX_COUNT 14    // houses and towers
#define FLOATS 6        // of a vertex: place and colour
#define VIEW_ANGLE 1.1f // radians, from top to bottom

// ---- The camera -----------------------------------------------------------------------------------------------------

static float ground(float x, float z)
{
    return 1.6f * sinf(0.13f * x) * cosf(0.11f * z) + 0.7f * sinf(0.31f * x + 0.23f * z);
}

camera camera_begin(void) { return (camera){.x = 0.0f, .z = 16.0f}; }

bool camera_move(camera* c, const camera_step* step)
{
    const float edge = (FIELD - 2) * SQUARE;
    const float s = sinf(c->yaw), k = cosf(c->yaw);
    c->x = fminf(fmaxf(c->x + s * step->forward + k * step->right, -edge), edge);
    c->z = fminf(fmaxf(c->z - k * step->forward + s * step->right, -edge), edge);
    c->yaw += step->turn;
    c->pitch = fminf(fmaxf(c->pitch + step->look_up, -1.2f), 1.2f);
    return step->forward != 0.0f || step->right != 0.0f || step->turn != 0.0f || step->look_up != 0.0f;
}

// Projection times view, column by column. The depth buffer then has 0 at the near plane and 1 at the far plane.
static void write_matrix(const camera* c, float aspect, float out[16])
{
    const float sy = sinf(c->yaw), cy = cosf(c->yaw), sp = sinf(c->pitch), cp = cosf(c->pitch);
    const float eye[3] = {c->x, ground(c->x, c->z) + EYE, c->z};
    const float axes[3][3] = {{cy, 0.0f, sy}, {-sy * sp, cp, cy * sp}, {-sy * cp, -sp, cy * cp}}; // right, up, back
    const float focal = 1.0f / tanf(0.5f * VIEW_ANGLE);
    const float a = (SCENE_FAR + SCENE_NEAR) / (SCENE_NEAR - SCENE_FAR);
    const float b = 2.0f * SCENE_FAR * SCENE_NEAR / (SCENE_NEAR - SCENE_FAR);
    for (int column = 0; column < 4; column++) {
        float view[3];
        for (int row = 0; row < 3; row++) {
            const float* axis = axes[row];
            view[row] = column < 3 ? axis[column] : -(axis[0] * eye[0] + axis[1] * eye[1] + axis[2] * eye[2]);
        }
        out[4 * column] = focal / aspect * view[0];
        out[4 * column + 1] = focal * view[1];
        out[4 * column + 2] = a * view[2] + (column == 3 ? b : 0.0f);
        out[4 * column + 3] = -view[2];
    }
}

// ---- What is in it --------------------------------------------------------------------------------------------------

static float* add_vertex(float* at, const float place[3], const float colour[3])
{
    memcpy(at, place, 3 * sizeof(float));
    memcpy(at + 3, colour, 3 * sizeof(float));
    return at + FLOATS;
}

static float* add_square(float* at, float corners[4][3], const float colour[3])
{
    static const int s_order[6] = {0, 1, 2, 0, 2, 3};
    for (int i = 0; i < 6; i++) at = add_vertex(at, corners[s_order[i]], colour);
    return at;
}

static float* add_ground(float* at)
{
    for (int row = -FIELD; row < FIELD; row++) {
        for (int column = -FIELD; column < FIELD; column++) {
            float corners[4][3];
            for (int i = 0; i < 4; i++) {
                const float x = SQUARE * (float)(column + (i == 1 || i == 2)), z = SQUARE * (float)(row + (i >= 2));
                corners[i][0] = x, corners[i][1] = ground(x, z), corners[i][2] = z;
            }
            const float shade = (row + column) % 2 == 0 ? 0.42f : 0.38f;
            at = add_square(at, corners, (const float[3]){0.6f * shade, shade, 0.5f * shade});
        }
    }
    return at;
}

static float* add_box(float* at, const float middle[2], const float size[3], const float colour[3])
{
    const float floor = ground(middle[0], middle[1]) - 1.0f; // no gap below it on a slope
    for (int axis = 0; axis < 3; axis++) {
        for (int side = 0; side < 2; side++) {
            float corners[4][3];
            for (int i = 0; i < 4; i++) {
                const int u = (axis + 1) % 3, v = (axis + 2) % 3;
                float unit[3];
                unit[axis] = (float)side;
                unit[u] = (float)(i == 1 || i == 2);
                unit[v] = (float)(i >= 2);
                corners[i][0] = middle[0] + (unit[0] - 0.5f) * size[0];
                corners[i][1] = floor + unit[1] * (size[1] + 1.0f);
                corners[i][2] = middle[1] + (unit[2] - 0.5f) * size[2];
            }
            at = add_square(at, corners, colour);
        }
    }
    return at;
}

static float* add_boxes(float* at)
{
    for (int i = 0; i < BOX_COUNT; i++) { // on a spiral around the middle
        const float angle = 2.4f * (float)i, radius = 3.0f + 2.1f * (float)i;
        const float middle[2] = {radius * sinf(angle), radius * cosf(angle) - 8.0f};
        const float size[3] = {2.0f + (float)(i % 3), i % 4 == 3 ? 9.0f : 2.5f + 0.5f * (float)(i % 5),
                               2.0f + (float)(i % 2)};
        at = add_box(at, middle, size, (const float[3]){0.75f, 0.3f + 0.1f * (float)(i % 4), 0.25f});
    }
    return at;
}

static bool make_vertices(scene* s)
{
    const size_t count = 6 * (2 * FIELD * 2 * FIELD + 6 * BOX_COUNT), bytes = count * FLOATS * sizeof(float);
    float* vertices = malloc(bytes);
    if (!vertices) return fprintf(stderr, "depth_scene: no memory for the scene\n"), false;
    add_boxes(add_ground(vertices));
    s->vertex_count = (GLsizei)count;
    gl.glGenVertexArrays(1, &s->array);
    gl.glBindVertexArray(s->array);
    gl.glGenBuffers(1, &s->buffer);
    gl.glBindBuffer(GL_ARRAY_BUFFER, s->buffer);
    gl.glBufferData(GL_ARRAY_BUFFER, (GLsizeiptr)bytes, vertices, GL_STATIC_DRAW);
    for (GLuint i = 0; i < 2; i++) {
        gl.glVertexAttribPointer(i, 3, GL_FLOAT, GL_FALSE, FLOATS * sizeof(float),
                                 (const void*)(uintptr_t)(3 * i * sizeof(float)));
        gl.glEnableVertexAttribArray(i);
    }
    free(vertices);
    return true;
}

// ---- Drawing --------------------------------------------------------------------------------------------------------

static const char s_vertex[] = "#version 330\n"
                               "layout(location = 0) in vec3 place;\n"
                               "layout(location = 1) in vec3 colour;\n"
                               "uniform mat4 camera;\n"
                               "out vec3 at;\n"
                               "flat out vec3 paint;\n"
                               "void main() { at = place; paint = colour; gl_Position = camera * vec4(place, 1.0); }\n";
static const char s_fragment[] =
    "#version 330\n"
    "in vec3 at;\n"
    "flat in vec3 paint;\n"
    "out vec4 pixel;\n"
    "void main() {\n"
    "    vec3 side = normalize(cross(dFdx(at), dFdy(at)));\n" // each triangle is flat
    "    pixel = vec4(paint * (0.55 + 0.45 * abs(dot(side, normalize(vec3(0.4, 0.8, 0.45))))), 1.0);\n"
    "}\n";

// One triangle that covers the whole texture, and the depth goes into a texture of one float.
static const char s_copy_vertex[] = "#version 330\n"
                                    "void main() {\n"
                                    "    vec2 corner = vec2((gl_VertexID & 1) * 4 - 1, (gl_VertexID & 2) * 2 - 1);\n"
                                    "    gl_Position = vec4(corner, 0.0, 1.0);\n"
                                    "}\n";
static const char s_copy_fragment[] = "#version 330\n"
                                      "uniform sampler2D depth;\n"
                                      "out float z;\n"
                                      "void main() { z = texelFetch(depth, ivec2(gl_FragCoord.xy), 0).r; }\n";

bool scene_open(scene* s, int32_t width, int32_t height)
{
    s->width = width, s->height = height;
    s->program = gl_program(s_vertex, s_fragment);
    s->copy_program = gl_program(s_copy_vertex, s_copy_fragment);
    if (!s->program || !s->copy_program || !make_vertices(s)) return false;
    gl.glGenVertexArrays(1, &s->copy_array); // of no attributes
    s->colour = gl_texture(GL_RGBA8, width, height);
    s->depth = gl_texture(GL_DEPTH_COMPONENT32F, width, height);
    gl.glGenFramebuffers(1, &s->copy_into);
    gl.glGenFramebuffers(1, &s->target);
    gl.glBindFramebuffer(GL_FRAMEBUFFER, s->target);
    gl.glFramebufferTexture2D(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_TEXTURE_2D, s->colour, 0);
    gl.glFramebufferTexture2D(GL_FRAMEBUFFER, GL_DEPTH_ATTACHMENT, GL_TEXTURE_2D, s->depth, 0);
    if (gl.glCheckFramebufferStatus(GL_FRAMEBUFFER) == GL_FRAMEBUFFER_COMPLETE) return true;
    fprintf(stderr, "depth_scene: OpenGL cannot draw into textures of %dx%d: give a smaller --size\n", (int)width,
            (int)height);
    return false;
}

void scene_close(scene* s)
{
    if (!gl.glDeleteProgram) return; // there was no context
    const GLuint textures[2] = {s->colour, s->depth}, framebuffers[2] = {s->target, s->copy_into};
    const GLuint arrays[2] = {s->array, s->copy_array};
    gl.glDeleteFramebuffers(2, framebuffers);
    gl.glDeleteTextures(2, textures);
    gl.glDeleteVertexArrays(2, arrays);
    gl.glDeleteBuffers(1, &s->buffer);
    gl.glDeleteProgram(s->program);
    gl.glDeleteProgram(s->copy_program);
}

void scene_draw(const scene* s, const camera* c)
{
    float matrix[16];
    write_matrix(c, (float)s->width / (float)s->height, matrix);
    gl.glBindFramebuffer(GL_FRAMEBUFFER, s->target);
    gl.glViewport(0, 0, s->width, s->height);
    gl.glClearColor(0.55f, 0.7f, 0.9f, 1.0f);
    gl.glClear(GL_COLOR_BUFFER_BIT | GL_DEPTH_BUFFER_BIT); // depth 1, the far plane: sumi takes it for the sky
    gl.glEnable(GL_DEPTH_TEST);
    gl.glUseProgram(s->program);
    gl.glUniformMatrix4fv(gl.glGetUniformLocation(s->program, "camera"), 1, GL_FALSE, matrix);
    gl.glBindVertexArray(s->array);
    gl.glDrawArrays(GL_TRIANGLES, 0, s->vertex_count);
    gl.glDisable(GL_DEPTH_TEST);
}

void scene_read_depth(const scene* s, float* into)
{
    gl.glBindFramebuffer(GL_FRAMEBUFFER, s->target);
    gl.glPixelStorei(GL_PACK_ALIGNMENT, 4);
    gl.glReadPixels(0, 0, s->width, s->height, GL_DEPTH_COMPONENT, GL_FLOAT, into);
}

void scene_copy_depth(const scene* s, GLuint texture)
{
    gl.glBindFramebuffer(GL_FRAMEBUFFER, s->copy_into);
    gl.glFramebufferTexture2D(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_TEXTURE_2D, texture, 0);
    gl.glViewport(0, 0, s->width, s->height);
    gl.glUseProgram(s->copy_program);
    gl.glBindTexture(GL_TEXTURE_2D, s->depth);
    gl.glBindVertexArray(s->copy_array);
    gl.glDrawArrays(GL_TRIANGLES, 0, 3);
}
