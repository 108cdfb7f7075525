// Chat templates: the exact text around a prompt that each model family was trained with.
#ifndef SUMI_TEXT_TEMPLATE_H
#define SUMI_TEXT_TEMPLATE_H
#include <stddef.h>

typedef enum sumi_template {
    SUMI_TEMPLATE_NONE,
    SUMI_TEMPLATE_Z_IMAGE /* Qwen3, one user turn, generation prompt */
} sumi_template;
typedef struct sumi_template_parts {
    const char *before, *after;
} sumi_template_parts;
sumi_template_parts sumi_template_get(sumi_template kind);
#endif
