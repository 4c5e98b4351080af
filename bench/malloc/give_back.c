/*
 * give_back.c: what stays resident when a program has freed its memory.
 *
 * Usage: bench_malloc_give_back MEGABYTES IDLE_MS small|mixed
 *
 * Two threads allocate so many megabytes together and write them, wait for each other, and free all: each frees half of its
 * own blocks and half of the other's. Then everything idles. Prints, in bytes: resident with all live, right after the last
 * free, after the idle time with both threads still there, after they ended, and after malloc_trim().
 */
#include "load.h"

#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct holder {
    void **blocks;
    size_t count, bytes;
    struct holder *other;
    uint64_t seed;
    int mixed;
};

static pthread_barrier_t barrier;

/* Without malloc: it must not stir what is measured. */
static size_t resident(void)
{
    char text[128] = {0};
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
        abort();
    close(fd);
    char *end;
    strtoull(text, &end, 10);
    return strtoull(end, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

static void fill(struct holder *self, size_t target)
{
    uint64_t state = self->seed;
    while (self->bytes < target) {
        size_t bytes = self->mixed ? size_realistic(&state) : size_small(&state);
        void *block = malloc(bytes);
        if (!block)
            abort();
        memset(block, 1, bytes);
        self->blocks[self->count++] = block;
        self->bytes += bytes;
    }
}

static size_t target_bytes;

static void *hold(void *argument)
{
    struct holder *self = argument;
    fill(self, target_bytes);
    pthread_barrier_wait(&barrier); /* all is live */
    pthread_barrier_wait(&barrier); /* and was measured */
    for (size_t i = 0; i < self->count; i += 2)
        free(self->blocks[i]);
    for (size_t i = 1; i < self->other->count; i += 2)
        free(self->other->blocks[i]);
    pthread_barrier_wait(&barrier); /* all is free */
    pthread_barrier_wait(&barrier); /* idle until here */
    return NULL;
}

int main(int argc, char **argv)
{
    size_t megabytes = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    long idle_ms = argc > 2 ? strtol(argv[2], NULL, 10) : 2500;
    int mixed = argc > 3 && strcmp(argv[3], "mixed") == 0;
    if (megabytes < 1) {
        fprintf(stderr, "usage: bench_malloc_give_back MEGABYTES IDLE_MS small|mixed\n");
        return 2;
    }
    target_bytes = megabytes * 500000;
    static struct holder holders[2];
    static char buffer[1024]; /* stdout's, that nothing is allocated late */
    setvbuf(stdout, buffer, _IOFBF, sizeof(buffer));
    pthread_barrier_init(&barrier, NULL, 3);
    pthread_t ids[2];
    for (int i = 0; i < 2; i++) {
        holders[i] =
            (struct holder){.other = &holders[1 - i], .seed = random_seed(i), .mixed = mixed};
        /* no block has less than 8 bytes */
        holders[i].blocks = mmap(NULL, target_bytes / 8 * sizeof(void *), PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (holders[i].blocks == MAP_FAILED ||
            pthread_create(&ids[i], NULL, hold, &holders[i]) != 0)
            return 1;
    }
    pthread_barrier_wait(&barrier);
    size_t live = resident();
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    munmap(holders[0].blocks, target_bytes / 8 * sizeof(void *));
    munmap(holders[1].blocks, target_bytes / 8 * sizeof(void *));
    size_t freed = resident();
    nanosleep(&(struct timespec){.tv_sec = idle_ms / 1000, .tv_nsec = idle_ms % 1000 * 1000000},
              NULL);
    size_t idle = resident();
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 2; i++)
        pthread_join(ids[i], NULL);
    size_t ended = resident();
    malloc_trim(0);
    size_t trimmed = resident();
    printf("{\"live_bytes\": %zu, \"freed_bytes\": %zu, \"idle_bytes\": %zu, \"ended_bytes\": %zu, "
           "\"trimmed_bytes\": %zu, \"asked_bytes\": %zu}\n",
           live, freed, idle, ended, trimmed, holders[0].bytes + holders[1].bytes);
    return 0;
}
