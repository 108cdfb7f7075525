#include "styler.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define USUAL_SIDE 512
#define MOST_LOST 0.25f // the share of a picture that may be lost to a newer view

static bool check(sumi_result result, const char* doing)
{
    if (result != SUMI_OK) fprintf(stderr, "depth_scene: %s failed: %s\n", doing, sumi_result_text(result));
    return result == SUMI_OK;
}

static void write_log(sumi_log_level level, sumi_result result, const char* text, void* user_data)
{
    (void)result, (void)user_data;
    if (level <= SUMI_LOG_WARNING) fprintf(stderr, "depth_scene: %s\n", text);
}

// ---- Opening --------------------------------------------------------------------------------------------------------

static bool encode(const styler* s, const char* text, sumi_prompt** out_prompt)
{
    sumi_prompt_desc desc = sumi_prompt_defaults(s->model);
    desc.text = text;
    sumi_job job;
    if (!check(sumi_submit_prompt(s->engine, &desc, &job), "encoding the prompt")) return false;
    sumi_job_wait(s->engine, job, SUMI_FOREVER);
    return check(sumi_fetch_prompt(s->engine, job, out_prompt), "encoding the prompt");
}

static bool open_model(styler* s, const styler_desc* desc)
{
    sumi_engine_desc ed = sumi_engine_defaults();
    ed.backend = desc->backend;
    ed.pump = SUMI_PUMP_THREAD; // pictures are drawn beside the frames of the scene
    ed.log.write = write_log;
    if (!check(sumi_engine_create(&ed, &s->engine), "creating the engine")) return false;
    sumi_model_desc md = sumi_model_defaults();
    md.path = desc->model;
    sumi_job job;
    if (!check(sumi_submit_model(s->engine, &md, &job), "loading the model")) return false;
    sumi_job_wait(s->engine, job, SUMI_FOREVER);
    return check(sumi_fetch_model(s->engine, job, &s->model), "loading the model");
}

static bool open_control(styler* s, const styler_desc* desc)
{
    sumi_control_desc cd = sumi_control_defaults(s->model);
    cd.path = desc->control;
    sumi_job job;
    if (!check(sumi_submit_control(s->engine, &cd, &job), "loading the control net")) return false;
    sumi_job_wait(s->engine, job, SUMI_FOREVER);
    if (!check(sumi_fetch_control(s->engine, job, &s->control), "loading the control net")) return false;
    if (sumi_control_get_info(s->control).takes_picture) return true;
    fprintf(stderr, "depth_scene: this net only inpaints: give one that follows depth, such as a Union\n");
    return false;
}

static bool suits(const sumi_model_info* info, const sumi_image_desc* image)
{
    const int32_t step = info->size_multiple;
    if (!info->has_text_encoder)
        fprintf(stderr, "depth_scene: the model has no text encoder for the prompt: give a whole checkpoint\n");
    else if (info->min_references > 0)
        fprintf(stderr, "depth_scene: the model only edits reference images: give one that also draws from text\n");
    else if (image->width < step || image->height < step || image->width % step != 0 || image->height % step != 0
             || image->width > info->max_size || image->height > info->max_size)
        fprintf(stderr, "depth_scene: --size %dx%d: this model takes multiples of %d up to %d\n", (int)image->width,
                (int)image->height, (int)step, (int)info->max_size);
    else return true;
    return false;
}

bool styler_open(styler* s, const styler_desc* desc)
{
    if (!open_model(s, desc)) return false;
    const sumi_model_info info = sumi_model_get_info(s->model);
    s->desc = sumi_image_defaults(s->model, SUMI_PRESET_MODEL);
    s->desc.item_count = 1;
    s->desc.width = s->desc.height = info.native_size < USUAL_SIDE ? info.native_size : USUAL_SIDE;
    if (desc->width > 0) s->desc.width = desc->width, s->desc.height = desc->height;
    if (desc->steps > 0) s->desc.step_count = desc->steps;
    if (!suits(&info, &s->desc) || !open_control(s, desc)) return false;
    if (!encode(s, desc->prompt, &s->prompt)) return false; // once: no picture reads a text again
    const bool is_guided = s->desc.guidance.scale != info.guidance_off;
    if (is_guided && !encode(s, info.negative_text, &s->negative)) return false;
    s->item = (sumi_image_item){.prompt = s->prompt, .negative_prompt = s->negative, .seed = desc->seed};
    s->use = sumi_control_use_defaults(s->control);
    if (!isnan(desc->strength)) s->use.strength = desc->strength;
    return true;
}

// ---- Textures -------------------------------------------------------------------------------------------------------

static sumi_external* import_texture(const styler* s, GLuint name, bool is_depth)
{
    sumi_import_desc desc = sumi_import_defaults();
    desc.kind = SUMI_EXTERNAL_GL_TEXTURE;
    desc.gl_name = name;
    desc.gl_target = GL_TEXTURE_2D;
    desc.width = s->desc.width, desc.height = s->desc.height;
    desc.is_depth = is_depth;
    sumi_external* external = NULL;
    sumi_import(s->engine, &desc, &external); // the log says why not
    return external;
}

// The GPU that draws the scene may be another than the one that computes pictures; then all goes through host memory.
static void share_textures(styler* s)
{
    s->depth_copy = gl_texture(GL_R32F, s->desc.width, s->desc.height);
    s->target.external = import_texture(s, s->picture, false);
    if (s->target.external) s->depth.external = import_texture(s, s->depth_copy, true);
    if (s->depth.external) return;
    sumi_external_release(s->target.external);
    s->target.external = NULL;
}

bool styler_begin(styler* s, const styler_desc* desc, const scene* view)
{
    const int32_t width = s->desc.width, height = s->desc.height;
    const size_t count = (size_t)width * (size_t)height;
    s->host_depth = malloc(count * sizeof(float));
    s->seen = calloc(count, 3);
    uint8_t* black = calloc(count, 4);
    const bool has_memory = s->host_depth && s->seen && black;
    if (has_memory) {
        s->picture = gl_texture(GL_RGBA8, width, height);
        gl.glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, width, height, GL_RGBA, GL_UNSIGNED_BYTE, black);
        gl.glGenFramebuffers(1, &s->picture_target);
        gl.glBindFramebuffer(GL_FRAMEBUFFER, s->picture_target);
        gl.glFramebufferTexture2D(GL_FRAMEBUFFER, GL_COLOR_ATTACHMENT0, GL_TEXTURE_2D, s->picture, 0);
    } else fprintf(stderr, "depth_scene: no memory for a picture of %dx%d\n", (int)width, (int)height);
    free(black);
    if (!has_memory) return false;

    // [excerpt depth_shot]
    s->depth = sumi_depth_defaults();
    s->depth.kind = SUMI_DEPTH_STANDARD; // of OpenGL's perspective: 0 is near
    s->depth.near_plane = SCENE_NEAR;
    s->depth.far_plane = SCENE_FAR;
    s->depth.bottom_up = true;  // OpenGL's first row is the lowest
    s->depth.low = desc->low;   // the same distance has the same grey in the whole shot, or pictures would flicker
    s->depth.high = desc->high; // when something near comes into the view
    // [end]
    const bool has_gpu = sumi_engine_get_info(s->engine).compute_capability > 0;
    if (has_gpu && !desc->copies) share_textures(s);
    if (!s->depth.external) {
        s->depth.data = s->host_depth;
        s->depth.width = view->width, s->depth.height = view->height;
    }
    printf("depth_scene: depth and pictures %s\n",
           s->depth.external ? "stay on the GPU" : "go through the memory of the host");
    return true;
}

void styler_close(styler* s)
{
    sumi_external_release(s->target.external);
    sumi_external_release(s->depth.external);
    sumi_engine_destroy(s->engine); // cancels what is not finished, and frees net, model and prompts
    if (s->picture_target) gl.glDeleteFramebuffers(1, &s->picture_target);
    if (s->picture) gl.glDeleteTextures(1, &s->picture);
    if (s->depth_copy) gl.glDeleteTextures(1, &s->depth_copy);
    free(s->host_depth);
    free(s->seen);
}

// ---- Pictures -------------------------------------------------------------------------------------------------------

// A job that waits costs nothing and always gives way to a newer view. One that runs gives way while little of it is
// done, once between two pictures: if it always did, a camera that moves would never get a picture.
static void let_it_give_way(styler* s)
{
    const sumi_job_status status = sumi_job_poll(s->engine, s->job);
    const bool has_begun = status.state == SUMI_JOB_RUNNING;
    if (s->is_cancelled || status.state >= SUMI_JOB_DONE) return;
    if (has_begun && (status.progress >= MOST_LOST || s->another_gave_way)) return;
    s->is_cancelled = true;
    s->another_gave_way = s->another_gave_way || has_begun;
    sumi_job_cancel(s->engine, s->job);
}

bool styler_take(styler* s, const scene* view, bool* out_is_taken)
{
    *out_is_taken = !s->has_job;
    if (s->has_job) return let_it_give_way(s), true;
    // [excerpt depth_take]
    if (s->depth.external) scene_copy_depth(view, s->depth_copy); // into R32F: CUDA does not share formats of depth
    else scene_read_depth(view, s->host_depth);

    const sumi_control_picture picture = {.depth = &s->depth};
    s->use.pictures = &picture;
    s->use.picture_count = 1;
    s->desc.controls = &s->use;
    s->desc.control_count = 1;
    s->desc.items = &s->item;
    s->desc.targets = s->target.external ? &s->target : NULL;
    const sumi_result result = sumi_submit_images(s->engine, &s->desc, &s->job); // copies the depth: draw on
    // [end]
    s->has_job = result == SUMI_OK;
    s->is_cancelled = false;
    s->submitted += s->has_job;
    return check(result, "submitting a picture");
}

bool styler_turn(styler* s)
{
    if (!s->has_job || sumi_job_poll(s->engine, s->job).state < SUMI_JOB_DONE) return true;
    const size_t bytes = 3 * (size_t)s->desc.width * (size_t)s->desc.height;
    if (s->use.strength != 0.0f) // else the net sees nothing
        sumi_job_control_picture(s->engine, s->job, &(sumi_control_view){.into = s->seen, .capacity = bytes});
    // [excerpt depth_fetch]
    sumi_image image;
    const sumi_result result = sumi_fetch_images(s->engine, s->job, &image, 1); // into the texture that is shared
    s->has_job = false;
    if (result == SUMI_CANCELLED) return s->cancelled++, true; // a newer view has come
    if (!check(result, "drawing a picture")) return false;
    if (!s->target.external) { // or from host memory
        gl.glBindTexture(GL_TEXTURE_2D, s->picture);
        gl.glTexSubImage2D(GL_TEXTURE_2D, 0, 0, 0, image.width, image.height, GL_RGBA, GL_UNSIGNED_BYTE, image.pixels);
    }
    sumi_images_release(s->engine, &image, 1);
    // [end]
    s->another_gave_way = false;
    s->finished++;
    return true;
}

void styler_read(const styler* s, uint8_t* into)
{
    gl.glBindFramebuffer(GL_FRAMEBUFFER, s->picture_target);
    gl.glPixelStorei(GL_PACK_ALIGNMENT, 4);
    gl.glReadPixels(0, 0, s->desc.width, s->desc.height, GL_RGBA, GL_UNSIGNED_BYTE, into);
}
