/* keep_out.c: who asks for addresses of a slot, with libmemoir-malloc-ranges preloaded. The range is not held by us here but for slot 3. */
#include <errno.h>
#include <memoir/malloc.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "cases.h"
#include "ranges.h"

enum { PAGE = 4096 };

static char *from, *to; /* of all slots */
static char *other;     /* in one that nobody has mapped */

static void learn(void)
{
    struct memoir_malloc_range r = range_now();
    from = (char *)(uintptr_t)r.all_base;
    to = from + r.slots * r.bytes;
    other = from + 9 * r.bytes;
}

static bool is_outside(const void *p, size_t bytes)
{
    return (const char *)p + bytes <= from || (const char *)p >= to;
}

static void *map(void *at, size_t bytes, int flags)
{
    errno = 0;
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
}

#define REFUSED(call, error)                                                                       \
    do {                                                                                           \
        errno = 0;                                                                                 \
        MUST_SAY((intptr_t)(call) == -1 && errno == (error), "%s: errno %d, not %s", #call, errno, \
                 #error);                                                                          \
    } while (0)

static void hints_are_left_out(void)
{
    learn();
    char *hints[] = {from,      other,       other + 123,
                     to - PAGE, from - PAGE, (char *)(uintptr_t)range_now().base};
    for (size_t i = 0; i < COUNT_OF(hints); i++) {
        char *p = map(hints[i], 4 * PAGE, 0);
        MUST(p != MAP_FAILED && is_outside(p, 4 * PAGE));
        memset(p, 1, 4 * PAGE);
        MUST(munmap(p, 4 * PAGE) == 0);
        p = mmap64(hints[i], PAGE * 4, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(p != MAP_FAILED && is_outside(p, 4 * PAGE) && munmap(p, 4 * PAGE) == 0);
    }
}

static void who_insists_is_refused(void)
{
    learn();
    void *block = malloc(100);
    char *mine = (char *)((uintptr_t)block & -(uintptr_t)PAGE);
    char *places[] = {from, other, to - PAGE, from - PAGE, mine};
    memset(block, 5, 100);
    for (size_t i = 0; i < COUNT_OF(places); i++) {
        REFUSED(map(places[i], 2 * PAGE, MAP_FIXED), EEXIST);
        REFUSED(map(places[i], 2 * PAGE, MAP_FIXED_NOREPLACE), EEXIST);
        REFUSED(
            mmap64(places[i], PAGE * 2, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
            EEXIST);
    }
    REFUSED(map(from - (1 << 20), (size_t)(to - from) + (2 << 20), MAP_FIXED), EEXIST);
    MUST(((char *)block)[99] == 5);
}

/* Beside the slots everything is as ever. */
static void neighbours_are_not_concerned(void)
{
    learn();
    char *below = from - 4 * PAGE, *above = to + PAGE;
    MUST(map(below, 4 * PAGE, MAP_FIXED_NOREPLACE) == below);
    MUST(map(above, PAGE, MAP_FIXED_NOREPLACE) == above);
    MUST(map(to, 1, MAP_FIXED_NOREPLACE) == to);
    MUST(map(below, PAGE, MAP_FIXED) == below);
    REFUSED(map(below, 4 * PAGE + 1, MAP_FIXED), EEXIST);
    MUST(munmap(below, 4 * PAGE) == 0 && munmap(to, PAGE) == 0 && munmap(above, PAGE) == 0);
}

static void nothing_there_is_unmapped(void)
{
    learn();
    struct memoir_malloc_range r = range_now();
    char *block = malloc(3 << 20);
    memset(block, 6, 3 << 20);
    REFUSED(munmap((void *)(uintptr_t)r.base, r.bytes), EINVAL);
    REFUSED(munmap(from - PAGE, 2 * PAGE), EINVAL);
    REFUSED(munmap(from - PAGE, PAGE + 1), EINVAL);
    REFUSED(munmap(other, PAGE), EINVAL);
    REFUSED(munmap(NULL, (size_t)to), EINVAL);
    /* A length that wraps around is the kernel's to refuse; so is one of nothing. */
    REFUSED(munmap(from - PAGE, SIZE_MAX - PAGE), EINVAL);
    REFUSED(munmap((void *)PAGE, SIZE_MAX & -(size_t)PAGE), EINVAL);
    REFUSED(munmap(other, 0), EINVAL);
    MUST(block[(3 << 20) - 1] == 6);
    free(block);
}

static void nothing_moves_in_or_out(void)
{
    learn();
    char *p = map(NULL, 4 * PAGE, 0), *block = malloc(3 << 20);
    MUST(p != MAP_FAILED);
    memset(p, 7, 4 * PAGE);
    REFUSED(mremap(p, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, other), EEXIST);
    REFUSED(mremap(p, PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, from - PAGE), EEXIST);
    char *page = (char *)((uintptr_t)block & -(uintptr_t)PAGE);
    REFUSED(mremap(page, PAGE, 2 * PAGE, MREMAP_MAYMOVE), EINVAL);
    REFUSED(mremap(page, 0, PAGE, MREMAP_MAYMOVE), EINVAL);
    MUST(p[4 * PAGE - 1] == 7);
    /* With a hint for what stays behind, the kernel chooses; else it is as ever. */
    char *q = mremap(p, 4 * PAGE, 4 * PAGE, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, other);
    MUST(q != MAP_FAILED && is_outside(q, 4 * PAGE) && q[0] == 7);
    q = mremap(q, 4 * PAGE, 64 * PAGE, MREMAP_MAYMOVE);
    MUST(q != MAP_FAILED && is_outside(q, 64 * PAGE) && q[0] == 7);
    MUST(munmap(q, 64 * PAGE) == 0 && munmap(p, 4 * PAGE) == 0);
    /* Up to the slots, and not a page further. */
    char *below = map(from - 2 * PAGE, PAGE, MAP_FIXED_NOREPLACE);
    MUST(below == from - 2 * PAGE && mremap(below, PAGE, 2 * PAGE, 0) == below);
    REFUSED(mremap(below, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE), ENOMEM);
    MUST(munmap(below, 2 * PAGE) == 0);
}

static void shared_memory_stays_out(void)
{
    learn();
    int id = shmget(IPC_PRIVATE, 2 * PAGE, 0600);
    if (id < 0)
        case_skip("no System V shared memory");
    void *anywhere = shmat(id, NULL, 0);
    MUST(anywhere != (void *)-1 && is_outside(anywhere, 2 * PAGE));
    REFUSED(shmat(id, other, 0), EINVAL);
    REFUSED(shmat(id, other + 5, SHM_RND), EINVAL);
    REFUSED(shmat(id, from - PAGE, 0), EINVAL);
    MUST(shmat(id, from - 2 * PAGE, 0) == from - 2 * PAGE);
    MUST(shmdt(anywhere) == 0 && shmdt(from - 2 * PAGE) == 0);
    shmctl(id, IPC_RMID, NULL);
}

/* The wrapper is there for others: the heap goes on, and what is held is held. */
static void the_heap_is_not_kept_out(void)
{
    for (uint64_t seed = 1; seed < 4; seed++) {
        struct tree *t = tree_make(500, seed);
        MUST(in_range(t));
        tree_change(t, seed);
        tree_check(t);
        tree_free(t);
    }
    struct memoir_malloc_range r = range_now();
    /* By the kernel itself, which nobody stands in front of: the slot is held to its last page. */
    long p = syscall(SYS_mmap, r.base + r.bytes - PAGE, PAGE, PROT_READ,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    MUST(p == -1 && errno == EEXIST);
}

/* The library is in front of mmap() all the same. */
static void part_without_plan(void)
{
    char *at = (char *)((uintptr_t)24 << 40);
    MUST(map(at, PAGE, MAP_FIXED_NOREPLACE) == at && map(at, PAGE, MAP_FIXED) == at);
    MUST(mremap(at, PAGE, 2 * PAGE, 0) == at && munmap(at, 2 * PAGE) == 0);
    MUST(map(at, PAGE, 0) == at && munmap(at, PAGE) == 0);
}

static void without_a_plan_all_is_passed_on(void)
{
    static const char *const settings[] = {"", "keep=1M", "range=0", "range=0x123",
                                           "range=auto,slot=256"};
    for (size_t i = 0; i < COUNT_OF(settings); i++) {
        pid_t child = case_fork();
        if (child == 0) {
            setenv("MEMOIR_MALLOC", settings[i], 1);
            execl("/proc/self/exe", "keep_out", "part_without_plan", NULL);
            _exit(99);
        }
        case_reap(child);
    }
}

static const struct test_case cases[] = {
    {"without_a_plan_all_is_passed_on", without_a_plan_all_is_passed_on},
    {"hints_are_left_out", hints_are_left_out},
    {"who_insists_is_refused", who_insists_is_refused},
    {"neighbours_are_not_concerned", neighbours_are_not_concerned},
    {"nothing_there_is_unmapped", nothing_there_is_unmapped},
    {"nothing_moves_in_or_out", nothing_moves_in_or_out},
    {"shared_memory_stays_out", shared_memory_stays_out},
    {"the_heap_is_not_kept_out", the_heap_is_not_kept_out},
};

static const struct test_case parts[] = {{"part_without_plan", part_without_plan}};

int main(int argc, char **argv)
{
    return argc > 1 && strncmp(argv[1], "part_", 5) == 0
               ? cases_main(argc, argv, parts, COUNT_OF(parts))
               : cases_main(argc, argv, cases, COUNT_OF(cases));
}
