#include "picture_queue.h"
#include <stdlib.h>

bool queue_open(picture_queue* q, int32_t count)
{
    *q = (picture_queue){.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    q->pictures = calloc((size_t)count, sizeof *q->pictures); // all wait
    q->count = q->unfinished = count;
    return q->pictures != NULL;
}

void queue_close(picture_queue* q) { free(q->pictures); }

int32_t queue_take(picture_queue* q)
{
    pthread_mutex_lock(&q->mutex);
    while (q->first < q->count && q->pictures[q->first] != WAITS) q->first++;
    const int32_t taken = q->first < q->count ? q->first : -1;
    if (taken >= 0) q->pictures[taken] = IS_TAKEN;
    pthread_mutex_unlock(&q->mutex);
    return taken;
}

void queue_put(picture_queue* q, int32_t picture, progress state)
{
    pthread_mutex_lock(&q->mutex);
    q->pictures[picture] = state;
    if (state != WAITS) q->unfinished--;
    else if (picture < q->first) q->first = picture;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->mutex);
}

bool queue_wait(picture_queue* q)
{
    pthread_mutex_lock(&q->mutex);
    while (q->first == q->count && q->unfinished > 0) pthread_cond_wait(&q->changed, &q->mutex);
    const bool is_unfinished = q->unfinished > 0;
    pthread_mutex_unlock(&q->mutex);
    return is_unfinished;
}
