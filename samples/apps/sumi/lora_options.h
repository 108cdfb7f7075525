// The option --lora FILE[:SCALE[:TEXT_SCALE]] of generate and encode.
#ifndef LORA_OPTIONS_H
#define LORA_OPTIONS_H
#include "session.h"

#define MAX_LORAS 16
#define LORA_FORM "FILE[:SCALE[:TEXT]]"
#define LORA_HELP                                                                                                      \
    "an adapter; may be given several times. SCALE is 1 when left out, TEXT is the scale of its layers of text "       \
    "encoders: as SCALE when left out, 0 leaves them out"

typedef struct lora_list {
    sumi_lora* loras[MAX_LORAS];
    sumi_lora_use uses[MAX_LORAS];
    char names[MAX_LORAS][128];
    int32_t count;
} lora_list;

// Before anything slow. Returns an exit code.
int loras_check(const cli_command* command, const text_list* list);
// Reads the adapters for the session's model. Returns an exit code; the session's engine frees them.
int loras_load(cli_session* session, const text_list* list, lora_list* out);
#endif
