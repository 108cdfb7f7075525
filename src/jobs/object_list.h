// The lists of objects that the host program has pointers to: models, prompts, adapters, textures. The engine frees
// what is left in them when it is destroyed.
#ifndef SUMI_JOBS_OBJECT_LIST_H
#define SUMI_JOBS_OBJECT_LIST_H
#include "base/assert.h"

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
#endif
