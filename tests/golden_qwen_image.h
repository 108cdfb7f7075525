// The cases of the Qwen-Image family, by the part that they are about. Each function returns false when the case's kind
// is not its own. Cases of kind "op" are of several parts.
#ifndef GOLDEN_QWEN_IMAGE_H
#define GOLDEN_QWEN_IMAGE_H
#include "golden_component.h"
#include "golden_pictures.h"
#include "golden_watch.h"

bool run_language_model_case(golden_case* c);
bool run_qwen_vision_case(golden_case* c);
bool run_two_stream_case(golden_case* c);
bool run_qwen_vae_case(golden_case* c);
bool run_qwen_prompt_case(golden_case* c);
bool run_qwen_pipeline_case(golden_case* c);

// Watches what a case of the language model expects under WHOSE.NAME ("text", "image"), from the row that it says on.
void watch_language_model(const golden_case* c, watcher* w, const char* whose, int32_t layer_count);

// A prompt inside its template.
typedef struct case_prompt {
    int32_t* ids;
    int32_t count;
    int32_t picture_rows[SUMI_MAX_REFERENCES];
} case_prompt;
// pictures: those that the prompt refers to, or NULL. False after reporting; free the ids in any case.
bool tokenise_prompt(golden_case* c, sumi_network* network, const node* text, const case_pictures* pictures,
                     case_prompt* out);

// Encodes all prompts in one plan, with the pictures that they refer to.
typedef struct encode_job {
    const case_prompt* prompts;
    int32_t prompt_count; // at most 4
    const case_pictures* pictures;
    watcher* w;
    array positions;   // [tokens, 3], op by op
    array features[4]; // as they are handed on; free with free_encoded
} encode_job;
void encode_prompts(golden_case* c, const sumi_network* network, encode_job* job);
void free_encoded(encode_job* job);
// Compares the last rows of what the prompts become with "prompt_embeds_tail" and "negative_embeds_tail", if the case has
// these. Encodes the job and frees what it gets.
void compare_embed_tails(golden_case* c, const sumi_network* network, encode_job* job);
// Reads a scheduler's file, whose path begins at the case, over the rule. False after reporting.
bool read_case_rule(golden_case* c, const char* path, sumi_sigma_rule* rule);
// Puts the rows of `more` behind those of `list`, and frees them.
void append_rows(array* list, array more);
// A prompt's last ids, where the plan takes the first ones from another prompt.
void write_prompt_ids(plan_run* run, const case_prompt* prompts, int32_t prompt_count);
#endif
