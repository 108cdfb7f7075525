// The objects that the host program has pointers to, as jobs read them: models, adapters, externals, and the lists that
// they are in (prompts: prompt.h). engine/models.h, loras.h and externals.h create and free them. The engine frees what
// is left in the lists when it is destroyed.
#ifndef SUMI_JOBS_OBJECTS_H
#define SUMI_JOBS_OBJECTS_H
#include "base/assert.h"
#include "base/file.h"
#include "base/platform.h"
#include "interop/interop.h"
#include "models/control.h"
#include "models/network.h"
#include "sampling/reuse.h"
#include <stdatomic.h>
#include <sumi.h>

// ---- Models ---------------------------------------------------------------------------------------------------------

struct sumi_model {
    sumi_engine* engine;
    sumi_model *next, **link; // link: the pointer that points to this object
    uint64_t serial;          // unique for the life of the engine; part of the keys of cached plans
    sumi_network* network;
    sumi_network_info info;                   // zero until the model is open
    sumi_weight_format weights, text_weights; // the formats on a device
    sumi_attention_format attention;          // likewise
    // On average over the newest job with a step cache (step_cache.h); 0: none has ended. Touched by the thread that
    // holds the pump lock.
    sumi_reuse_speed reuse_speed;
};

// ---- Adapters -------------------------------------------------------------------------------------------------------

#define SUMI_LORA_NAME_BYTES 96
struct sumi_lora {
    sumi_engine* engine;
    sumi_lora *next, **link;
    uint64_t serial;
    sumi_model* model; // NULL: its model was closed, and the adapter can only be released
    // the last part of its path, for encoded prompts; the end of a longer one
    char name[SUMI_LORA_NAME_BYTES];
    sumi_file_cache cache; // files of the host program; `file` borrows from it
    sumi_adapter_file* file;
};

// ---- Externals ------------------------------------------------------------------------------------------------------

// Imported memory of the host program, with the linear device memory in which a picture waits for the copy into it; or
// an imported semaphore. The host program owns the object and releases it with sumi_external_release; the engine frees
// objects that are left when it is destroyed. Everything but next, link, is_used and of the import has_copied, has_used and the staging of a depth buffer is
// constant after the import.
struct sumi_external {
    sumi_engine* engine;
    sumi_external *next, **link; // the engine's list; protected by `state_lock`
    sumi_imported import;
    atomic_bool is_used; // by a job that was neither fetched nor discarded: its target, or its depth buffer
};

// ---- Control nets ---------------------------------------------------------------------------------------------------

struct sumi_control {
    sumi_engine* engine;
    sumi_control *next, **link;
    uint64_t serial;
    sumi_model* model; // NULL: its model was closed, and the net can only be released
    sumi_control_net* net;
    bool is_open;
};

// ---- Lists ----------------------------------------------------------------------------------------------------------

// Inserts an object at the head of a list, and removes it. The caller holds `state_lock`.
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
// Gives a new object its serial and inserts it into a list of its engine (`loras`), and removes it. Both lock
// `state_lock` for a moment.
#define SUMI_OBJECT_ADD(list, object)                                                                                  \
    do {                                                                                                               \
        sumi_mutex_lock(&(object)->engine->state_lock);                                                                \
        (object)->serial = ++(object)->engine->next_serial;                                                            \
        SUMI_LIST_INSERT((object)->engine->list, object);                                                              \
        sumi_mutex_unlock(&(object)->engine->state_lock);                                                              \
    } while (0)
#define SUMI_OBJECT_REMOVE(object)                                                                                     \
    do {                                                                                                               \
        sumi_mutex_lock(&(object)->engine->state_lock);                                                                \
        SUMI_LIST_REMOVE(object);                                                                                      \
        sumi_mutex_unlock(&(object)->engine->state_lock);                                                              \
    } while (0)
#endif
