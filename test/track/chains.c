/* chains.c: blocks of user chains of every kind, counted by the program itself; the book's account of chains has to say the same. */
#include <errno.h>
#include <memoir/malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 400, ROUNDS = 20000, THREADS = 4 };

static struct {
    uint64_t alloc_bytes, alloc_blocks, freed_bytes, freed_blocks;
} counted;

struct slot {
    void *block;
    size_t bytes;
};

struct load {
    struct memoir_chain *chain;
    struct slot slots[SLOTS];
    uint64_t dice;
};

static void must(int condition, const char *what)
{
    if (condition)
        return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t below(struct load *l, uint64_t n)
{
    l->dice = l->dice * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (l->dice >> 33) % n;
}

static void one_more(size_t bytes)
{
    __atomic_fetch_add(&counted.alloc_bytes, bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&counted.alloc_blocks, 1, __ATOMIC_RELAXED);
}

static void one_less(size_t bytes)
{
    __atomic_fetch_add(&counted.freed_bytes, bytes, __ATOMIC_RELAXED);
    __atomic_fetch_add(&counted.freed_blocks, 1, __ATOMIC_RELAXED);
}

static void tell(const char *who)
{
    printf(
        "{\"who\":\"%s\",\"pid\":%d,\"alloc_bytes\":%llu,\"alloc_blocks\":%llu,\"freed_bytes\":%llu,"
        "\"freed_blocks\":%llu}\n",
        who, (int)getpid(), (unsigned long long)counted.alloc_bytes,
        (unsigned long long)counted.alloc_blocks, (unsigned long long)counted.freed_bytes,
        (unsigned long long)counted.freed_blocks);
    fflush(stdout);
    must(getchar() == '\n', "no answer");
}

/* Fill an empty slot, or resize or free what is in it. */
static __attribute__((noinline)) void turn(struct load *l)
{
    struct slot *s = &l->slots[below(l, SLOTS)];
    size_t bytes = below(l, 10) ? below(l, 300) : below(l, 9000);
    if (!s->block) {
        switch (below(l, 4)) {
        case 0:
            s->block = memoir_chain_calloc(l->chain, 1, bytes);
            break;
        case 1:
            s->block = memoir_chain_aligned(l->chain, (size_t)16 << below(l, 6), bytes);
            break;
        default:
            s->block = memoir_chain_alloc(l->chain, bytes);
        }
        if (s->block)
            one_more(s->bytes = bytes);
    } else if (below(l, 3) == 0) {
        void *moved = memoir_chain_realloc(l->chain, s->block, bytes);
        if (moved || bytes == 0)
            one_less(s->bytes);
        if (moved)
            one_more(bytes);
        if (moved || bytes == 0)
            *s = (struct slot){moved, bytes};
    } else {
        must(memoir_chain_free(l->chain, s->block) == 0, "free");
        one_less(s->bytes);
        s->block = NULL;
    }
}

static void *work(void *argument)
{
    for (int i = 0; i < ROUNDS; i++)
        turn(argument);
    return NULL;
}

/* Free what is left as another thread does it in a chain without lock, but for every third. */
static void *others_free(void *argument)
{
    struct load *l = argument;
    for (int i = 0; i < SLOTS; i++)
        if (l->slots[i].block && i % 3) {
            must(memoir_chain_remote_free(l->chain, l->slots[i].block) == 0, "remote free");
            one_less(l->slots[i].bytes);
            l->slots[i].block = NULL;
        }
    return NULL;
}

static void run(void *(*fn)(void *), void *argument)
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, fn, argument) == 0, "pthread_create");
    pthread_join(thread, NULL);
}

static void all_less(struct load *l)
{
    for (int i = 0; i < SLOTS; i++) {
        if (l->slots[i].block)
            one_less(l->slots[i].bytes);
        l->slots[i].block = NULL;
    }
}

static void *more(void *user, size_t bytes, size_t *ret_bytes)
{
    *ret_bytes = bytes < 65536 ? 65536 : (bytes + 4095) & ~(size_t)4095;
    void *p = mmap(NULL, *ret_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void back(void *user, void *buffer, size_t bytes)
{
    munmap(buffer, bytes);
}

static void init(struct load *l, void *buffer, size_t bytes, unsigned flags, int sourced)
{
    struct memoir_chain_options options = {.struct_size = sizeof(options), .flags = flags};
    if (sourced) {
        options.request = more;
        options.give_back = back;
    }
    l->dice = bytes + flags;
    must(memoir_chain_init(buffer, bytes, &options, &l->chain) == 0, "init");
}

/* In a private chain of no lock; in memory that malloc() gave, large and small; in one that grows. */
static void alone(void)
{
    static char room[1 << 20];
    static struct load plain, large, small, growing;
    init(&plain, room, sizeof(room), 0, 0);
    init(&large, malloc(4 << 20), 4 << 20, MEMOIR_CHAIN_ABORT, 0);
    init(&small, malloc(8000), 8000, 0, 0);
    init(&growing, NULL, 65536, 0, 1);
    struct load *all[] = {&plain, &large, &small, &growing};
    for (int i = 0; i < 4; i++)
        work(all[i]);
    tell("alone");
    for (int i = 0; i < 4; i++)
        run(others_free, all[i]);
    tell("others");
    void *none = memoir_chain_alloc(plain.chain, 100);
    one_more(100);
    must(memoir_chain_free(plain.chain, none) == 0, "free");
    one_less(100);
    must(memoir_chain_free(plain.chain, none) < 0, "second free");
    must(memoir_chain_free(plain.chain, (char *)none + 16) < 0, "free inside");
    for (int i = 0; i < 4; i++) {
        all_less(all[i]);
        must((i % 2 ? memoir_chain_destroy(all[i]->chain) : memoir_chain_reset(all[i]->chain)) == 0,
             "end");
    }
    tell("ended");
}

static void together(void)
{
    static struct load loads[THREADS];
    pthread_t threads[THREADS];
    init(&loads[0],
         mmap(NULL, 16 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 16 << 20,
         MEMOIR_CHAIN_THREAD_SAFE, 0);
    for (int i = 0; i < THREADS; i++) {
        loads[i].chain = loads[0].chain;
        loads[i].dice = (uint64_t)i + 1;
        must(pthread_create(&threads[i], NULL, work, &loads[i]) == 0, "pthread_create");
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    tell("together");
    for (int i = 0; i < THREADS; i++)
        all_less(&loads[i]);
    must(memoir_chain_destroy(loads[0].chain) == 0, "destroy");
}

/* malloc() and its like, served from a chain. */
static void by_default(void)
{
    static char room[1 << 20];
    static struct load l;
    void *blocks[100];
    init(&l, room, sizeof(room), MEMOIR_CHAIN_REGISTER, 0);
    struct memoir_chain *old = memoir_chain_set_default(l.chain);
    must(old != MEMOIR_CHAIN_FAILED, "default");
    for (size_t i = 0; i < 100; i++) {
        blocks[i] = i % 2 ? malloc(i) : calloc(1, i);
        blocks[i] = realloc(blocks[i], 3 * i + 1);
    }
    memoir_chain_restore_default(old);
    for (size_t i = 0; i < 100; i++) {
        must(memoir_chain_find(blocks[i]) == l.chain, "find");
        one_more(i);
        one_less(i);
        one_more(3 * i + 1);
        if (i % 2) {
            free(blocks[i]);
            one_less(3 * i + 1);
        }
    }
    tell("default");
}

/* Other processes may free what lies there: it counts nowhere. */
static void shared(void)
{
    struct load *l = calloc(1, sizeof(*l));
    init(l, mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), 1 << 20,
         MEMOIR_CHAIN_SHARED, 0);
    for (int i = 0; i < 100; i++)
        must(memoir_chain_alloc(l->chain, 100) != NULL, "alloc");
    tell("shared");
}

/* What its parent made is none of the child's. */
static void child(void)
{
    static char room[1 << 20];
    static struct load l;
    init(&l, room, sizeof(room), 0, 0);
    work(&l);
    tell("parent");
    pid_t pid = fork();
    must(pid >= 0, "fork");
    if (pid == 0) {
        memset(&counted, 0, sizeof(counted));
        for (int i = 0; i < SLOTS; i++)
            if (l.slots[i].block && i % 2) {
                must(memoir_chain_free(l.chain, l.slots[i].block) == 0, "free");
                l.slots[i].block = NULL;
            }
        for (int i = 0; i < 50; i++) {
            must(memoir_chain_alloc(l.chain, 50) != NULL, "alloc");
            one_more(50);
        }
        tell("child");
        must(memoir_chain_destroy(l.chain) == 0, "destroy");
        for (int i = 0; i < 50; i++)
            one_less(50);
        tell("child's end");
        exit(0);
    }
    int status;
    must(waitpid(pid, &status, 0) == pid && status == 0, "child");
    all_less(&l);
    must(memoir_chain_destroy(l.chain) == 0, "destroy");
    tell("parent's end");
}

static void suspended(void)
{
    static char room[65536];
    static struct load l;
    init(&l, room, sizeof(room), 0, 0);
    void *seen = memoir_chain_alloc(l.chain, 100);
    one_more(100);
    tell("seen"); /* suspended here */
    void *unseen = memoir_chain_alloc(l.chain, 200);
    must(memoir_chain_free(l.chain, seen) == 0, "free");
    one_less(100);
    tell("unseen"); /* and no more */
    must(memoir_chain_free(l.chain, unseen) == 0, "free");
    must(memoir_chain_alloc(l.chain, 300) != NULL, "alloc");
    one_more(300);
    tell("seen again");
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        suspended();
        return 0;
    }
    alone();
    together();
    by_default();
    shared();
    child();
    return 0;
}
