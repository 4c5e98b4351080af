/* A program to be checkpointed: threads that allocate, fill, check and free blocks, also each other's, round after round, until
 * the file "stop" appears. It leaves its process id in "pid", the number of rounds in "progress", and at the end "intact" or what
 * was wrong in "result", all in the working folder. Every block is held against what was written into it, so memory that comes
 * back from a checkpoint changed, or lost, is seen. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS     3
#define SLOTS       512
#define LARGE_EVERY 97
#define LARGE_BYTES (3 << 20)

struct block {
    size_t bytes;
    uint64_t seed;
    unsigned char *at;
};

static struct block
    slots[SLOTS]; /* under its lock; a slot is filled by one thread and emptied by any */
static pthread_mutex_t locks[SLOTS];
static atomic_bool stop;
static atomic_ulong rounds;
static atomic_ulong wrong;

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void fill(const struct block *block)
{
    uint64_t state = block->seed;
    for (size_t i = 0; i < block->bytes; i += 1 + block->bytes / 256)
        block->at[i] = (unsigned char)next(&state);
}

static bool intact(const struct block *block)
{
    uint64_t state = block->seed;
    for (size_t i = 0; i < block->bytes; i += 1 + block->bytes / 256)
        if (block->at[i] != (unsigned char)next(&state))
            return false;
    return true;
}

static void empty(struct block *block)
{
    if (block->at == NULL)
        return;
    if (!intact(block))
        atomic_fetch_add(&wrong, 1);
    free(block->at);
    block->at = NULL;
}

static void *work(void *argument)
{
    uint64_t state = 0x9e3779b97f4a7c15u * (1 + (uintptr_t)argument);
    while (!atomic_load(&stop)) {
        for (int i = 0; i < 200; i++) {
            size_t which = next(&state) % SLOTS;
            pthread_mutex_lock(&locks[which]);
            struct block *block = &slots[which];
            empty(block);
            block->bytes =
                1 + next(&state) % (next(&state) % LARGE_EVERY == 0 ? LARGE_BYTES : 4000);
            block->seed = next(&state) | 1;
            block->at = malloc(block->bytes);
            if (block->at == NULL)
                atomic_fetch_add(&wrong, 1);
            else
                fill(block);
            pthread_mutex_unlock(&locks[which]);
        }
        atomic_fetch_add(&rounds, 1);
    }
    return NULL;
}

static void write_file(const char *name, const char *text)
{
    char temporary[64];
    snprintf(temporary, sizeof temporary, "%s.new", name);
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, text, strlen(text)) != (ssize_t)strlen(text) || close(fd) != 0 ||
        rename(temporary, name) != 0)
        _exit(3);
}

/* A child must be able to allocate too, also when its parent is one that was brought back. */
static bool child_allocates(void)
{
    pid_t child = fork();
    if (child == 0) {
        void *blocks[64];
        for (size_t i = 0; i < 64; i++)
            blocks[i] = memset(malloc(i * 100 + 1), 7, i * 100 + 1);
        for (size_t i = 0; i < 64; i++)
            free(blocks[i]);
        _exit(0);
    }
    int status = -1;
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
    char text[64];
    pthread_t threads[THREADS];
    for (size_t i = 0; i < SLOTS; i++)
        pthread_mutex_init(&locks[i], NULL);
    for (uintptr_t i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            return 2;
    snprintf(text, sizeof text, "%d\n", (int)getpid());
    write_file("pid", text);
    while (access("stop", F_OK) != 0) {
        snprintf(text, sizeof text, "%lu\n", atomic_load(&rounds));
        write_file("progress", text);
        usleep(50 * 1000);
    }
    atomic_store(&stop, true);
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < SLOTS; i++)
        empty(&slots[i]);
    bool child = child_allocates();
    unsigned long lost = atomic_load(&wrong);
    snprintf(text, sizeof text, "%s, %lu blocks wrong%s\n",
             lost == 0 && child ? "intact" : "damaged", lost, child ? "" : ", no child");
    write_file("result", text);
    return lost == 0 && child ? 0 : 1;
}
