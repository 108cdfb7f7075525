// The things the host holds pointers to. Each is in a list of its engine (under `table`), which frees what is left when
// it is destroyed.
#ifndef SUMI_ENGINE_OBJECTS_H
#define SUMI_ENGINE_OBJECTS_H
#include "base/assert.h"
#include "engine/buffers.h"
#include "models/network.h"
#include "plan/runner.h"
#include <stdatomic.h>

struct sumi_model {
    sumi_engine* engine;
    sumi_model *next, **link; // link: what points to this one
    uint64_t serial;          // never repeats: in the keys of cached plans
    sumi_network* network;
    sumi_network_info info;                   // zero until it is open
    sumi_weight_format weights, text_weights; // on a device
};

#define SUMI_FAMILY_BYTES 32

struct sumi_prompt {
    sumi_engine* engine;
    sumi_prompt *next, **link;
    char family[SUMI_FAMILY_BYTES];
    int32_t encoder_count;
    int32_t token_count[SUMI_MAX_TEXT_ENCODERS], width[SUMI_MAX_TEXT_ENCODERS];
    float* features[SUMI_MAX_TEXT_ENCODERS]; // [token_count][width], inside this object's block
    // The pictures that it was encoded with, as the autoencoder reads them: RGB [height][width][3], inside this
    // object's block.
    int32_t reference_count;
    sumi_picture_size reference_sizes[SUMI_MAX_REFERENCES];
    unsigned char* references[SUMI_MAX_REFERENCES];
};

struct sumi_lora {
    sumi_engine* engine;
    sumi_lora *next, **link;
    uint64_t serial;
    sumi_model* model;     // NULL: its model was closed, it can only be released
    sumi_file_cache cache; // what the host's files were asked for; the file borrows from it
    sumi_adapter_file* file;
};

struct sumi_external {
    sumi_engine* engine;
    sumi_external *next, **link;
    sumi_import import;
    int32_t width, height;
    atomic_bool is_used; // by a job that was neither fetched nor discarded
};

// A picture of ours: in the host's hands, or free for the next job.
typedef struct sumi_picture {
    struct sumi_picture* next;
    void* pixels;
    size_t bytes;
    uint64_t handle; // 0: free
} sumi_picture;

// The negative prompt of the model's authors, "" where they name none: of items that name none. Lives with the model.
const char* sumi_model_negative_text(const sumi_model* model);
void sumi_model_free(sumi_model* model); // closes the network; no job uses it. Holds the work
void sumi_prompt_free(sumi_prompt* prompt);
void sumi_lora_close(sumi_lora* lora);            // takes its weights off a device and closes its file. Holds the work
void sumi_lora_free(sumi_lora* lora);             // holds the work
void sumi_external_free(sumi_external* external); // no job uses it. Holds the work

typedef struct sumi_prompt_shape {
    const char* family;
    int32_t encoder_count;
    const int32_t *token_count, *width; // [encoder_count]
    int32_t reference_count;
    sumi_picture_size references[SUMI_MAX_REFERENCES];
} sumi_prompt_shape;
// An empty prompt object with room for features and pictures of these sizes.
sumi_result sumi_prompt_create(sumi_engine* engine, const sumi_prompt_shape* shape, sumi_prompt** out_prompt,
                               sumi_error* error);

// A picture of at least `bytes` from the pool. Marked as used; sumi_picture_release gives it back.
sumi_result sumi_picture_take(sumi_engine* engine, size_t bytes, sumi_picture** out_picture, sumi_error* error);
void sumi_picture_release(sumi_engine* engine, uint64_t handle);
void sumi_pictures_close(sumi_engine* engine);

// Puts an object at the head of a list, and takes it out again. Hold `table`.
#define SUMI_LIST_INSERT(head, object)                                                                                 \
    do {                                                                                                               \
        SUMI_ASSERT((object)->link == NULL);                                                                           \
        (object)->next = (head);                                                                                       \
        (object)->link = &(head);                                                                                      \
        if ((head) != NULL) (head)->link = &(object)->next;                                                            \
        (head) = (object);                                                                                             \
    } while (0)
#define SUMI_LIST_REMOVE(object)                                                                                       \
    do {                                                                                                               \
        if ((object)->link != NULL) {                                                                                  \
            SUMI_ASSERT(*(object)->link == (object));                                                                  \
            *(object)->link = (object)->next;                                                                          \
            if ((object)->next != NULL) (object)->next->link = (object)->link;                                         \
            (object)->link = NULL;                                                                                     \
        }                                                                                                              \
    } while (0)
#endif
