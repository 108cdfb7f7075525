// The cases of Z-Image, by what they are about. Each function returns false when the case's kind is not its own.
#ifndef GOLDEN_Z_IMAGE_H
#define GOLDEN_Z_IMAGE_H
#include "golden_support.h"
#include "golden_watch.h"

bool run_z_image_prompt_case(golden_case* c);
bool run_z_image_pipeline_case(golden_case* c);

typedef struct token_list {
    int32_t ids[512];
    int32_t count;
} token_list;
// A prompt inside its template, cut where the library cuts it. False after reporting.
bool tokenise_text(golden_case* c, sumi_network* network, const char* text, size_t bytes, token_list* out);

// For families with the same text encoder:
// A "tokenize" case: strings to ids, and prompts in the recipe's template.
void run_tokenize(golden_case* c);
// Watches what an "encoder" case has of each layer; and compares the ids of its prompt.
void watch_encoder(const golden_case* c, watcher* w);
void compare_ids_of_prompt(golden_case* c, sumi_network* network, const int32_t* ids, int32_t count);

// Ids of a prompt's tokens to features, with padding if the family has it. w: what is looked at on the way, or NULL.
array encode_text(golden_case* c, const sumi_network* network, const int32_t* ids, int32_t count, watcher* w);
#endif
