/*
 * life.c: a process that lives as processes do, and keeps count of it where its death cannot take it away.
 *
 * Usage: leak_life SOCKET FOLDER SEED [NUMBER]
 *        leak_life brief FOLDER SEED
 *
 * Threads allocate, resize, hand over, free, lose and end without a pause. What they do is counted in a shared file,
 * FOLDER/PID-NUMBER: each figure twice, as begun before the call and as done after it, so that it tells how far a process got
 * that was killed in the midst of a call. NUMBER counts how often it called exec.
 *
 * It says "PID NUMBER" to SOCKET, and does what single letters say that come from there:
 *   c  stand still, say so, and go on at the next letter, whichever it is
 *   f  fork while all stand still; the child goes on with what it inherited, and frees it
 *   F  fork in the midst of it; the child leaves what it inherited alone
 *   x  exec this program in the midst of it, as the next NUMBER
 *   b  start a brief one: allocates, loses a little, and ends
 *   e  end by exit() in the midst of it
 *   r  let the threads end, free all that is not lost, and return from main
 *   q  _exit(3)
 *   a  abort()
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    WORKERS = 4,
    SLOTS = 256,
    SHARED = 128,
    BATCH = 200,
    LOST_MAX = 1 << 20,
    BRIEF_STEPS = 3000
};

/* Every block knows its size, since another thread may free it, and whose it is. */
struct block {
    uint32_t bytes;
    uint32_t generation;
    uint64_t more;
};
struct counts {
    _Atomic uint64_t alloc_blocks, alloc_bytes, freed_blocks, freed_bytes;
};
/* What one thread did, written by it alone. */
struct page {
    struct counts begun, done;
    struct counts inherited_begun, inherited_done; /* only freed_... */
    _Atomic uint64_t lost_blocks, lost_bytes;
    _Atomic uint64_t threads; /* that ended */
    uint64_t more;
};
_Static_assert(sizeof(struct page) == 160, "test_churn.py reads it");

struct worker {
    pthread_t thread;
    struct page *page;
    uint64_t random;
    _Atomic int ended;
    int running;
    struct block *slots[SLOTS];
};

static struct worker workers[WORKERS];
static _Atomic(struct block *) shared[SHARED];
static _Atomic int ending;
static pthread_rwlock_t gate;
static pthread_key_t key;
static uint32_t generation; /* how many forks lie between this process and the first */
static const char *folder;

static void open_gate(void)
{
    pthread_rwlockattr_t attributes;
    pthread_rwlockattr_init(&attributes); /* else who wants all to stand still may wait for ever */
    pthread_rwlockattr_setkind_np(&attributes, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&gate, &attributes);
}

static void open_pages(int number)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/%d-%d", folder, (int)getpid(), number);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC,
                  0600); /* may be of another with our PID */
    if (fd < 0 || ftruncate(fd, WORKERS * sizeof(struct page)) < 0)
        _exit(98);
    struct page *pages =
        mmap(NULL, WORKERS * sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (pages == MAP_FAILED)
        _exit(98);
    for (int i = 0; i < WORKERS; i++)
        workers[i].page = &pages[i];
}

static void add(_Atomic uint64_t *to, uint64_t n)
{
    atomic_store_explicit(to, atomic_load_explicit(to, memory_order_relaxed) + n,
                          memory_order_release);
}

static uint64_t next(struct worker *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return w->random;
}

/* Before and after each call: that it begins, and that it is done. */
static void count_alloc(struct counts *c, size_t bytes)
{
    add(&c->alloc_blocks, 1);
    add(&c->alloc_bytes, bytes);
}

static void count_free(struct counts *c, size_t bytes)
{
    add(&c->freed_blocks, 1);
    add(&c->freed_bytes, bytes);
}

static struct block *got(struct worker *w, struct block *block, size_t bytes)
{
    if (!block)
        abort();
    count_alloc(&w->page->done, bytes);
    block->bytes = (uint32_t)bytes;
    block->generation = generation;
    return block;
}

static struct block *allocate(struct worker *w, unsigned how, size_t bytes)
{
    count_alloc(&w->page->begun, bytes);
    switch (how) {
    case 0:
        return got(w, calloc(1, bytes), bytes);
    case 1:
        return got(w, aligned_alloc(64, bytes), bytes);
    case 2:
        return got(w, memalign(256, bytes), bytes);
    case 3: {
        void *p = NULL;
        return got(w, posix_memalign(&p, 128, bytes) == 0 ? p : NULL, bytes);
    }
    default:
        return got(w, malloc(bytes), bytes);
    }
}

static void release(struct worker *w, struct block *block)
{
    if (!block)
        return;
    size_t bytes = block->bytes;
    int own = block->generation == generation;
    count_free(own ? &w->page->begun : &w->page->inherited_begun, bytes);
    free(block);
    count_free(own ? &w->page->done : &w->page->inherited_done, bytes);
}

static struct block *resize(struct worker *w, struct block *block, size_t bytes)
{
    size_t old = block ? block->bytes : 0;
    int own = !block || block->generation == generation;
    if (block)
        count_free(own ? &w->page->begun : &w->page->inherited_begun, old);
    count_alloc(&w->page->begun, bytes);
    struct block *moved = realloc(block, bytes);
    if (block)
        count_free(own ? &w->page->done : &w->page->inherited_done, old);
    return got(w, moved, bytes);
}

static void lose(struct worker *w, struct block *block)
{
    if (block && block->generation == generation && w->page->lost_bytes < LOST_MAX) {
        add(&w->page->lost_blocks, 1);
        add(&w->page->lost_bytes, block->bytes);
    } else {
        release(w, block);
    }
}

static void step(struct worker *w)
{
    uint64_t random = next(w);
    struct block **slot = &w->slots[random % SLOTS], *old = *slot;
    size_t bytes = sizeof(struct block) + (random >> 16) % (random % 61 ? 500 : 200000);
    switch (random >> 40 & 15) {
    case 0:
        *slot = resize(w, old, bytes);
        break;
    case 1: /* hand over */
        *slot = atomic_exchange(&shared[random >> 48 & (SHARED - 1)], old);
        break;
    case 2:
        *slot = NULL;
        release(w, old);
        break;
    case 3:
        *slot = NULL;
        if (random >> 56 & 7)
            release(w, old);
        else
            lose(w, old);
        break;
    default:
        *slot = NULL;
        release(w, old);
        *slot = allocate(w, (unsigned)(random >> 44 & 15), bytes);
    }
}

/* The last thing that a thread does is to free what is its own, and to take and free some more. */
static void destroy(void *own)
{
    struct worker *w = *(struct worker **)((struct block *)own + 1);
    pthread_rwlock_rdlock(&gate);
    struct block *last = allocate(w, 4, 300);
    release(w, own);
    release(w, last);
    add(&w->page->threads, 1);
    pthread_rwlock_unlock(&gate);
    atomic_store(&w->ended, 1);
}

static void *work(void *argument)
{
    struct worker *w = argument;
    pthread_rwlock_rdlock(&gate);
    struct block *own = allocate(w, 4, sizeof(*own) + sizeof(w));
    *(struct worker **)(own + 1) = w;
    pthread_setspecific(key, own);
    pthread_rwlock_unlock(&gate);
    do {
        pthread_rwlock_rdlock(&gate);
        for (int i = 0; i < BATCH; i++)
            step(w);
        pthread_rwlock_unlock(&gate);
        usleep(4000);
    } while (!atomic_load(&ending) && next(w) % 256);
    if (next(w) & 1)
        pthread_exit(NULL);
    return NULL;
}

/* Threads that have ended make room for others. */
static void tend(void)
{
    for (int i = 0; i < WORKERS; i++) {
        struct worker *w = &workers[i];
        if (w->running && atomic_load(&w->ended)) {
            pthread_join(w->thread, NULL);
            w->running = 0;
        }
        if (!w->running && !atomic_load(&ending)) {
            atomic_store(&w->ended, 0);
            w->running = pthread_create(&w->thread, NULL, work, w) == 0;
        }
    }
}

static void seed_with(uint64_t seed)
{
    for (int i = 0; i < WORKERS; i++)
        workers[i].random = (seed + (uint64_t)i + 1) * 0x9e3779b97f4a7c15ull | 1;
}

static int call_home(const char *path, int number)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(to.sun_path, sizeof(to.sun_path), "%s", path);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0)
        _exit(97);
    char text[32];
    int n = snprintf(text, sizeof(text), "%d %d\n", (int)getpid(), number);
    return write(fd, text, (size_t)n) == n ? fd : (_exit(97), -1);
}

/* A child has only the thread that forked, and figures of its own. */
static void begin_again(int midst, int seed)
{
    open_pages(0);
    open_gate();
    generation++;
    for (int i = 0; i < WORKERS; i++) {
        workers[i].running = 0;
        if (midst)
            memset(workers[i].slots, 0, sizeof(workers[i].slots));
    }
    for (int i = 0; midst && i < SHARED; i++)
        atomic_store(&shared[i], NULL);
    seed_with((uint64_t)seed * 31 + (uint64_t)getpid());
}

static void end_in_order(void)
{
    atomic_store(&ending, 1);
    for (int i = 0; i < WORKERS; i++) {
        struct worker *w = &workers[i];
        if (w->running)
            pthread_join(w->thread, NULL);
        for (int s = 0; s < SLOTS; s++)
            release(w, w->slots[s]);
    }
    for (int i = 0; i < SHARED; i++)
        release(&workers[0], atomic_load(&shared[i]));
}

static int brief(int seed)
{
    open_pages(0);
    seed_with((uint64_t)seed);
    for (int i = 0; i < BRIEF_STEPS; i++)
        step(&workers[0]);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    int seed = atoi(argv[3]), number = argc > 4 ? atoi(argv[4]) : 0, spawned = 0;
    folder = argv[2];
    if (strcmp(argv[1], "brief") == 0)
        return brief(seed);
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    signal(SIGCHLD, SIG_IGN); /* nobody waits for the children */
    open_pages(number);
    open_gate();
    pthread_key_create(&key, destroy);
    seed_with((uint64_t)seed);
    struct pollfd home = {call_home(argv[1], number), POLLIN, 0};
    for (;;) {
        char letter, text[32];
        tend();
        if (poll(&home, 1, 20) <= 0)
            continue;
        if (read(home.fd, &letter, 1) != 1)
            _exit(0);
        switch (letter) {
        case 'c':
            pthread_rwlock_wrlock(&gate);
            if (write(home.fd, "still\n", 6) != 6 || read(home.fd, &letter, 1) != 1)
                _exit(0);
            pthread_rwlock_unlock(&gate);
            break;
        case 'f':
        case 'F':
            if (letter == 'f')
                pthread_rwlock_wrlock(&gate);
            if (fork() == 0) {
                close(home.fd);
                begin_again(letter == 'F', seed);
                number = 0;
                home.fd = call_home(argv[1], number);
            } else if (letter == 'f') {
                pthread_rwlock_unlock(&gate);
            }
            break;
        case 'x':
            snprintf(text, sizeof(text), "%d", number + 1);
            execl("/proc/self/exe", argv[0], argv[1], argv[2], argv[3], text, (char *)NULL);
            _exit(96);
        case 'b': {
            pid_t pid;
            snprintf(text, sizeof(text), "%d", seed + 7 * ++spawned);
            char word[] = "brief", *words[] = {argv[0], word, argv[2], text, NULL};
            posix_spawn(&pid, "/proc/self/exe", NULL, NULL, words, environ);
            break;
        }
        case 'e':
            exit(0);
        case 'r':
            end_in_order();
            return 0;
        case 'q':
            _exit(3);
        case 'a':
            abort();
        default:
            break;
        }
    }
}
