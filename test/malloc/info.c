/* info.c: what the allocator tells about itself, by the functions that glibc has for it. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <unistd.h>

#include "cases.h"

static const size_t sizes[] = {32, 48, 100, 1000, 5000, 20000, 40000, 100000, 1000000, 3000000};

struct link {
    struct link *next;
};

/* The figures move with what is in use. */
static void mallinfo_follows_use(void)
{
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        enum { WANTED = 32 << 20 };
        struct link *list = NULL;
        size_t count = WANTED / sizes[i];
        struct mallinfo2 before = mallinfo2();
        for (size_t k = 0; k < count; k++) {
            struct link *block = malloc(sizes[i]);
            MUST(block);
            block->next = list;
            list = block;
        }
        struct mallinfo2 during = mallinfo2();
        while (list) {
            struct link *block = list;
            list = block->next;
            free(block);
        }
        struct mallinfo2 after = mallinfo2();
        size_t rise = during.uordblks + during.hblkhd - before.uordblks - before.hblkhd;
        MUST_SAY(rise >= count * sizes[i] / 10 * 9 && rise < count * sizes[i] * 3,
                 "%zu bytes of %zu taken, in use rose by %zu", count * sizes[i], sizes[i], rise);
        size_t still = after.uordblks + after.hblkhd;
        MUST_SAY(still < during.uordblks + during.hblkhd - rise / 10 * 8,
                 "in use fell only from %zu to %zu after %zu bytes were freed",
                 during.uordblks + during.hblkhd, still, count * sizes[i]);
    }
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    struct mallinfo old = mallinfo();
#pragma GCC diagnostic pop
    MUST(old.uordblks >= 0 && old.arena >= 0);
}

static void malloc_info_is_xml(void)
{
    char text[65536];
    memset(text, 0, sizeof(text));
    FILE *file = fmemopen(text, sizeof(text) - 1, "w");
    MUST(file);
    void *block = malloc(1000);
    MUST(malloc_info(0, file) == 0);
    fclose(file);
    free(block);
    size_t length = strlen(text);
    MUST_SAY(strncmp(text, "<malloc version=", 16) == 0 && length > 30 &&
                 strcmp(text + length - 10, "</malloc>\n") == 0,
             "it begins %.60s", text);
    MUST(malloc_info(1, stderr) == EINVAL);
}

/* ---- against a model ---- */

enum { HUGE_FROM = (1 << 20) + 1, LARGE_FROM = (32 << 10) + 1, SLICE = 16 << 10, SLOTS = 3000 };

static struct slot {
    void *block;
    size_t bytes;
} slots[SLOTS];

struct sums {
    size_t usable, n_large, n_huge, asked_huge;
};

static struct sums model_sums(void)
{
    struct sums sums = {0};
    for (size_t i = 0; i < SLOTS; i++) {
        if (slots[i].bytes >= HUGE_FROM) {
            sums.n_huge++;
            sums.asked_huge += slots[i].bytes;
        } else if (slots[i].block) {
            sums.usable += malloc_usable_size(slots[i].block);
            sums.n_large += slots[i].bytes >= LARGE_FROM;
        }
    }
    return sums;
}

static void slot_change(struct slot *slot, uint64_t random)
{
    free(slot->block);
    *slot = (struct slot){NULL, 0};
    if (random % 3 == 0)
        return;
    size_t most = random % 200 == 1 ? 4 << 20 : random % 20 == 1 ? 200 << 10 : 3000;
    slot->bytes = (random >> 32) % most + 1;
    MUST((slot->block = malloc(slot->bytes)));
}

static void figures_are_those_of_a_model(void)
{
    uint64_t random = 20, round = 0;
    struct mallinfo2 base = mallinfo2();
    for (size_t i = 0; i < 60000; i++) {
        uint64_t r = case_random(&random);
        slot_change(&slots[r % SLOTS], r >> 12);
        if (i % 500)
            continue;
        round++;
        struct mallinfo2 m = mallinfo2();
        struct sums sums = model_sums();
        size_t used = m.uordblks - base.uordblks, huge = m.hblkhd - base.hblkhd;
        MUST_SAY(m.arena == m.uordblks + m.fordblks, "%zu are not %zu and %zu", m.arena, m.uordblks,
                 m.fordblks);
        MUST_SAY(m.keepcost <= m.fordblks, "%zu kept of %zu free", m.keepcost, m.fordblks);
        /* A large block starts somewhere in its first slice. */
        MUST_SAY(used >= sums.usable && used <= sums.usable + sums.n_large * SLICE,
                 "%zu in use, of which the program has %zu", used, sums.usable);
        MUST_SAY(m.hblks - base.hblks == sums.n_huge,
                 "%zu huge blocks, of which the program has %zu", m.hblks - base.hblks,
                 sums.n_huge);
        MUST_SAY(huge >= sums.asked_huge && huge <= sums.asked_huge + sums.n_huge * 4096,
                 "%zu in huge blocks, %zu asked for", huge, sums.asked_huge);
    }
    MUST(round > 100);
    for (size_t i = 0; i < SLOTS; i++)
        free(slots[i].block);
    MUST(mallinfo2().uordblks == base.uordblks);
}

/* Where as many blocks come as go, at random: those that come go where there is little room left, so that the rest empties itself after a
 * peak. */
static void what_a_peak_left_behind_empties(void)
{
    enum { BLOCKS = 40000, TURNS = 1500000, BYTES = 1000 };
    static void *blocks[BLOCKS];
    uint64_t random = 22;
    for (size_t i = 0; i < BLOCKS; i++)
        MUST((blocks[i] = calloc(1, BYTES)));
    size_t peak = case_resident();
    for (size_t i = 0; i < BLOCKS; i++)
        if (case_random(&random) >> 20 & 1) {
            free(blocks[i]);
            blocks[i] = NULL;
        }
    for (size_t i = 0; i < TURNS; i++) {
        uint64_t r = case_random(&random);
        void **from = &blocks[r % BLOCKS], **to = &blocks[(r >> 32) % BLOCKS];
        if (!*from || *to)
            continue;
        free(*from);
        *from = NULL;
        MUST((*to = malloc(BYTES)));
    }
    size_t left = case_resident() - mallinfo2().keepcost; /* what is kept can be given back */
    MUST_SAY(left < peak / 3 * 2, "%zu bytes are left of %zu, and half of the blocks", left, peak);
}

static size_t attribute(const char *at, const char *name)
{
    const char *found = strstr(at, name);
    MUST_SAY(found, "no %s in %.60s", name, at);
    return strtoull(found + strlen(name), NULL, 10);
}

static void text_adds_up_to_the_same(void)
{
    static char text[65536], buffer[4096];
    size_t small_bytes = 0, small_blocks = 0;
    uint64_t random = 21;
    for (size_t i = 0; i < 5000; i++) {
        uint64_t r = case_random(&random);
        slot_change(&slots[r % SLOTS], r >> 12);
    }
    FILE *file = fmemopen(text, sizeof(text) - 1, "w");
    MUST(file && setvbuf(file, buffer, _IOFBF, sizeof(buffer)) == 0);
    struct mallinfo2 m = mallinfo2();
    MUST(malloc_info(0, file) == 0 && fclose(file) == 0);
    for (const char *at = text; (at = strstr(at, "<size bytes=")); at++) {
        size_t used = attribute(at, "used=\""), made = attribute(at, "made=\"");
        MUST(used <= made);
        small_bytes += attribute(at, "bytes=\"") * used;
        small_blocks += used;
    }
    const char *first = strstr(text, "<first ");
    MUST(first);
    small_bytes += attribute(first, "size=\"");
    small_blocks += attribute(first, "count=\"");
    const char *small = strstr(text, "type=\"small\""), *large = strstr(text, "type=\"large\"");
    const char *huge = strstr(text, "type=\"mmap\""), *system = strstr(text, "<system");
    MUST(small && large && huge && system);
    MUST(attribute(small, "size=\"") == small_bytes &&
         attribute(small, "count=\"") == small_blocks);
    MUST(attribute(large, "size=\"") + small_bytes == m.uordblks);
    MUST(attribute(huge, "size=\"") == m.hblkhd && attribute(huge, "count=\"") == m.hblks);
    MUST(attribute(system, "size=\"") == m.arena + m.hblkhd);
    MUST(attribute(system, "<kept size=\"") == m.keepcost);
    for (size_t i = 0; i < SLOTS; i++)
        free(slots[i].block);
}

/* By the setting or by the call. */
static void who_wants_nothing_kept_has_nothing_kept(void)
{
    enum { ROUNDS = 3 };
    const char *settings = getenv("MEMOIR_MALLOC");
    if (!settings || !*settings)
        MUST(mallopt(M_TRIM_THRESHOLD, 0) == 1);
    size_t before = case_resident();
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t random = 22;
        size_t all = 0;
        for (size_t i = 0; i < SLOTS; i++) {
            size_t bytes = case_random(&random) % (i % 100 ? 30000 : 4 << 20) + 1;
            MUST((slots[i].block = malloc(bytes)));
            memset(slots[i].block, 1, bytes);
            all += bytes;
        }
        MUST(case_resident() >= before + all);
        for (size_t i = 0; i < SLOTS; i++)
            free(slots[i].block);
        struct mallinfo2 m = mallinfo2();
        size_t stays = case_resident() - before;
        MUST_SAY(m.keepcost == 0, "%zu bytes are kept", m.keepcost);
        MUST_SAY(stays < 8 << 20, "%zu KiB of %zu stay", stays >> 10, all >> 10);
    }
}

static void mallopt_and_statistics_do_no_harm(void)
{
    MUST(mallopt(M_TRIM_THRESHOLD, 1 << 20) == 1);
    MUST(mallopt(M_TOP_PAD, 1 << 16) == 1);
    MUST(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
    MUST(mallopt(M_ARENA_MAX, 2) == 1);
    mallopt(M_MXFAST, 0);
    mallopt(12345, 6);
    void *block = malloc(100);
    MUST(block);
    malloc_stats();
    free(block);
    MUST(malloc_trim(0) >= 0 && malloc_trim(1 << 20) >= 0 && malloc_trim(SIZE_MAX) >= 0);
}

/* ---- threads that keep blocks, and send others to the next one: by turns ---- */

enum { NEIGHBOURS = 4, KEPT = 256, SENT = 64, NEIGHBOUR_BYTES = 112, TURNS = 400 };

static sem_t turn[NEIGHBOURS + 1]; /* the last one: all have had theirs */
static struct link *inbox[NEIGHBOURS];

static void wait_for(sem_t *what)
{
    while (sem_wait(what) != 0)
        ;
}

static void *neighbour(void *number)
{
    static void *kept[NEIGHBOURS][KEPT];
    uintptr_t own = (uintptr_t)number, next = (own + 1) % NEIGHBOURS;
    uint64_t random = own + 1;
    for (int i = 0; i < TURNS; i++) {
        wait_for(&turn[own]);
        for (struct link *at = inbox[own], *after; at; at = after) {
            after = at->next;
            free(at);
        }
        inbox[next] = NULL;
        for (int k = 0; k < SENT; k++) {
            void **block = &kept[own][case_random(&random) % KEPT];
            struct link *parcel = malloc(NEIGHBOUR_BYTES);
            free(*block);
            *block = malloc(NEIGHBOUR_BYTES);
            MUST(*block && parcel);
            parcel->next = inbox[next];
            inbox[next] = parcel;
        }
        bool last = i == TURNS - 1 && next == 0;
        sem_post(&turn[last ? NEIGHBOURS : next]);
    }
    wait_for(&turn[own]); /* who ends leaves all it has to others */
    return NULL;
}

/* None of them gathers slabs of others that are nearly empty. */
static void blocks_that_threads_send_to_each_other_lie_close(void)
{
    static char text[65536], buffer[4096];
    pthread_t ids[NEIGHBOURS];
    char size[32];
    for (int i = 0; i <= NEIGHBOURS; i++)
        MUST(sem_init(&turn[i], 0, 0) == 0);
    for (uintptr_t i = 0; i < NEIGHBOURS; i++)
        MUST(pthread_create(&ids[i], NULL, neighbour, (void *)i) == 0);
    sem_post(&turn[0]);
    wait_for(&turn[NEIGHBOURS]);
    FILE *file = fmemopen(text, sizeof(text) - 1, "w");
    MUST(file && setvbuf(file, buffer, _IOFBF, sizeof(buffer)) == 0);
    MUST(malloc_info(0, file) == 0 && fclose(file) == 0);
    snprintf(size, sizeof(size), "<size bytes=\"%d\"", NEIGHBOUR_BYTES);
    const char *at = strstr(text, size);
    MUST_SAY(at, "%s", text);
    size_t used = attribute(at, "used=\""), made = attribute(at, "made=\"");
    MUST_SAY(used > NEIGHBOURS * KEPT / 2 && made < 2 * used, "%zu blocks used of %zu", used, made);
    for (int i = 0; i < NEIGHBOURS; i++) {
        sem_post(&turn[i]);
        MUST(pthread_join(ids[i], NULL) == 0);
    }
}

/* ---- blocks that another thread frees ---- */

enum { FIRST = 2000, GIVEN = 1003, GIVEN_BYTES = 240 };

static void *first[FIRST], *given[GIVEN];
static sem_t freed, enough;

static void *frees_what_was_given(void *unused)
{
    for (int i = 0; i < GIVEN; i++)
        free(given[i]);
    sem_post(&freed);
    while (sem_wait(&enough) != 0)
        ;
    return NULL;
}

static size_t in_use(void)
{
    return mallinfo2().uordblks;
}

/* Whatever a thread keeps of them meanwhile, nothing is lost: neither when it ends nor in a child that has it not. */
static void blocks_that_another_thread_freed_are_free(void)
{
    pthread_t id;
    sem_init(&freed, 0, 0);
    sem_init(&enough, 0, 0);
    for (int i = 0; i < FIRST; i++) /* a program's first ones lie elsewhere */
        MUST(first[i] = malloc(GIVEN_BYTES));
    for (int i = 0; i < GIVEN; i++)
        MUST(given[i] = malloc(GIVEN_BYTES));
    size_t before = in_use(), gone = (size_t)GIVEN * GIVEN_BYTES;
    MUST(pthread_create(&id, NULL, frees_what_was_given, NULL) == 0);
    while (sem_wait(&freed) != 0)
        ;
    /* The thread itself needs a few hundred bytes; it may have kept some blocks. */
    size_t now = in_use(), slack = 8192;
    MUST_SAY(now <= before - gone + slack, "%zu bytes in use, %zu before", now, before);
    pid_t child = case_fork();
    if (child == 0) {
        now = in_use();
        MUST_SAY(now + gone <= before + 1024, "%zu bytes in use in the child, %zu before", now,
                 before);
        _exit(0);
    }
    case_reap(child);
    sem_post(&enough);
    MUST(pthread_join(id, NULL) == 0);
    now = in_use();
    MUST_SAY(now + gone <= before + 1024, "%zu bytes in use, %zu before", now, before);
}

int main(int argc, char **argv)
{
#define CASE(name)  \
    {               \
#name, name \
    }
    static const struct test_case cases[] = {
        CASE(mallinfo_follows_use),
        CASE(malloc_info_is_xml),
        CASE(figures_are_those_of_a_model),
        CASE(what_a_peak_left_behind_empties),
        CASE(blocks_that_threads_send_to_each_other_lie_close),
        CASE(blocks_that_another_thread_freed_are_free),
        CASE(text_adds_up_to_the_same),
        CASE(who_wants_nothing_kept_has_nothing_kept),
        CASE(mallopt_and_statistics_do_no_harm),
    };
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
