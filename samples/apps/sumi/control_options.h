// The options --control, --control-picture, --control-inpaint and --control-mask of generate.
#ifndef CONTROL_OPTIONS_H
#define CONTROL_OPTIONS_H
#include "files.h"
#include "json_out.h"
#include "picture.h"
#include "session.h"

#define MAX_CONTROLS 4

typedef struct control_args {
    text_list nets, pictures; // the k-th picture belongs to the k-th net
    const char *inpaint, *mask;
} control_args;

// The rows of an option table that fill a control_args.
// clang-format off
#define CONTROL_OPTIONS(args)                                                                                                                \
    {"--control", OPTION_TEXTS, &(args)->nets, "NET",                                                                                        \
     "a control net, a file or a diffusers folder, that makes the image follow a control picture; may be given several times", 0, 0},        \
    {"--control-picture", OPTION_TEXTS, &(args)->pictures, "FILE[:STRENGTH[:START:END]]",                                                    \
     "what it follows, as white edges on black or a depth picture with white near; the first belongs to the first --control, and so on. "    \
     "STRENGTH is the net's usual one when left out, START and END are the part of the steps in which it is on: 0 to 1. Without FILE "       \
     "(:0.8) for a net that only inpaints", 0, 0},                                                                                           \
    {"--control-inpaint", OPTION_TEXT, &(args)->inpaint, "FILE", "a picture of which a net for inpainting paints a part anew", 0, 0},        \
    {"--control-mask", OPTION_TEXT, &(args)->mask, "FILE", "that part of it is white", 0, 0}
// clang-format on

typedef struct control_list {
    sumi_control* nets[MAX_CONTROLS];
    sumi_control_use uses[MAX_CONTROLS];
    char names[MAX_CONTROLS][128];
    picture_file pictures[MAX_CONTROLS], inpaint, mask;
    sumi_pixels picture_pixels[MAX_CONTROLS], inpaint_pixels, mask_pixels;
    sumi_control_picture members[MAX_CONTROLS];
    int32_t count;
} control_list;

// Before anything slow. Returns an exit code.
int controls_check(const cli_command* command, const control_args* args);
// Reads the pictures. Returns false, and why in `message`.
bool controls_read(const control_args* args, control_list* out, char* message);
// Reads the nets for the session's model. Returns an exit code; the session's engine frees them.
int controls_load(cli_session* session, const control_args* args, control_list* out);
// Tells of a net that was made for another variant of the model, and of pictures whose shape the image does not have.
void controls_note(const cli_session* session, const control_args* args, const control_list* list, sumi_size size);
// The nets of a job, for --json; nothing without nets.
void controls_put(json_out* out, const control_list* list);
void controls_free(control_list* list);
#endif
