/*
 * load.c: runs one synthetic load.
 *
 * Usage: bench_malloc_load --list
 *        bench_malloc_load NAME [THREADS [PERCENT]]
 *
 * PERCENT of the usual work is done. The list has a line for each load: its name, its threads, what it is.
 */
#include "load.h"

#include <string.h>

static const struct load *const tables[] = {loads_single, loads_shared, loads_stress, loads_large,
                                            loads_change};
enum { TABLES = sizeof(tables) / sizeof(tables[0]) };

void threads_run(int threads, void *(*body)(void *), void *arguments, size_t size_bytes)
{
    pthread_t ids[THREADS_MAX];
    for (int i = 0; i < threads; i++)
        if (pthread_create(&ids[i], NULL, body, (char *)arguments + (size_t)i * size_bytes) != 0)
            abort();
    for (int i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
}

void queue_init(struct queue *queue)
{
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->changed, NULL);
    queue->used = queue->first = 0;
}

void queue_put(struct queue *queue, void *pointer)
{
    enum { SLOTS = sizeof(queue->slots) / sizeof(queue->slots[0]) };
    pthread_mutex_lock(&queue->mutex);
    while (queue->used == SLOTS)
        pthread_cond_wait(&queue->changed, &queue->mutex);
    queue->slots[(queue->first + queue->used++) % SLOTS] = pointer;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
}

void *queue_take(struct queue *queue)
{
    enum { SLOTS = sizeof(queue->slots) / sizeof(queue->slots[0]) };
    pthread_mutex_lock(&queue->mutex);
    while (queue->used == 0)
        pthread_cond_wait(&queue->changed, &queue->mutex);
    void *pointer = queue->slots[queue->first];
    queue->first = (queue->first + 1) % SLOTS;
    queue->used--;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    return pointer;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    for (int t = 0; t < TABLES; t++)
        for (const struct load *load = tables[t]; load->name; load++) {
            if (strcmp(name, "--list") == 0)
                printf("%s\t%d\t%s\n", load->name, load->threads, load->help);
            if (strcmp(name, load->name) != 0)
                continue;
            int threads = argc > 2 ? atoi(argv[2]) : load->threads;
            uint64_t percent = argc > 3 ? strtoull(argv[3], NULL, 10) : 100;
            if (threads < 1 || threads > THREADS_MAX || percent < 1)
                break;
            uint64_t work = load->work * percent / 100;
            load->run(work ? work : 1, threads);
            return 0;
        }
    if (strcmp(name, "--list") == 0)
        return 0;
    fprintf(stderr, "usage: bench_malloc_load NAME [THREADS [PERCENT]]; --list names them\n");
    return 2;
}
