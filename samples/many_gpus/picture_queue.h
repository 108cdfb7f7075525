// A queue of pictures, which are numbers from 0 on, for several threads. The lowest number that waits is taken first, and
// a picture that was taken may come back.
#ifndef PICTURE_QUEUE_H
#define PICTURE_QUEUE_H
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum progress { WAITS, IS_TAKEN, IS_WRITTEN, IS_GIVEN_UP } progress;

typedef struct picture_queue {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    progress* pictures;
    int32_t count, unfinished; // pictures; those that wait or are taken
    int32_t first;             // no picture before this one waits
} picture_queue;

bool queue_open(picture_queue* q, int32_t count); // false: no memory. Call queue_close either way
void queue_close(picture_queue* q);
int32_t queue_take(picture_queue* q); // -1: none waits
// Ends what queue_take began. WAITS: the picture is the next one that is taken.
void queue_put(picture_queue* q, int32_t picture, progress state);
// Blocks while all unfinished pictures are taken: who has them may fail and put them back. Returns false when none is
// unfinished.
bool queue_wait(picture_queue* q);
#endif
