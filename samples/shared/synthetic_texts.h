// The texts of synthetic checkpoints: configurations and tokenizers in the formats of the released files.
#ifndef SYNTHETIC_TEXTS_H
#define SYNTHETIC_TEXTS_H
#include "synthetic.h"
#include <stddef.h>

typedef struct synthetic_text {
    const char* path; // in the folder of the checkpoint
    char* text;       // free with free()
    size_t bytes;
} synthetic_text;

#define SYNTHETIC_MAX_TEXTS 8
typedef struct synthetic_texts {
    synthetic_text of[SYNTHETIC_MAX_TEXTS];
    int32_t count;
} synthetic_texts;

// Returns false when memory runs out. Call synthetic_texts_free either way.
bool synthetic_texts_make(const synthetic_config* config, synthetic_texts* out);
void synthetic_texts_free(synthetic_texts* texts);
#endif
