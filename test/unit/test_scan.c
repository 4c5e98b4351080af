/* Reachability in a process of our own making: a child (this program again, so that its memory is fresh) maps a
 * heap and waits, and this process writes blocks and pointers into it from outside: nothing in the child points
 * anywhere by accident. */
#include "scan/scan.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "check.h"
#include "scan/find.h"
#include "scan/maps.h"
#include "scan/memory.h"

/* Where the child has what: an arena as glibc has them (a multiple of 64 MB), a mapping of another
 * allocator, data of the program and of the C library. */
#define ARENA UINT64_C(0x2a0000000000)
#define OTHER UINT64_C(0x2b0000010000) /* of the largest pages */
#define DATA  UINT64_C(0x2c0000010000)
#define LIBC  UINT64_C(0x2d0000010000) /* what /proc calls data of a C library */
enum { MAP_BYTES = 8 << 20, SITES = 10, THREADS = 3 };

static const struct book_trailer_key key = {.key = 0x123456789abcdef1, .generation = 3};

static pid_t child;
static uint64_t child_slot; /* address of a word at the top of the child's stack */
static int ticks_file;
static uint64_t *child_ticks; /* shared: its threads count here */
static struct scan *scan;
static bool gaps_are_roots, glibc;
static struct scan_beside beside;
static uint32_t time_max;

/* ---- the child ---- */

static void *tick(void *context)
{
    volatile uint64_t *ticks = context;
    for (;;)
        ++*ticks;
    return NULL;
}

/* What the process asks for is in the shared page, and done by the child's main thread. */
enum { ASK_AT = 100, ASK_BYTES, ASK_RIGHTS, ASK_DONE };

static void on_protect(int number)
{
    volatile uint64_t *ask = child_ticks;
    ask[ASK_DONE] =
        mprotect((void *)(uintptr_t)ask[ASK_AT], ask[ASK_BYTES], (int)ask[ASK_RIGHTS]) ? 2 : 1;
}

static void map(uint64_t at)
{
    void *got = mmap((void *)(uintptr_t)at, MAP_BYTES, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (got != (void *)(uintptr_t)at)
        _exit(3);
}

/* A private mapping of a file whose name is the C library's. */
static void map_libc(void)
{
    int file = memfd_create("test/libc.so.6", 0);
    void *at = (void *)(uintptr_t)LIBC;
    if (file < 0 || ftruncate(file, MAP_BYTES) < 0 ||
        mmap(at, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED_NOREPLACE, file, 0) != at)
        _exit(7);
    close(file);
}

/* argv: "child", descriptor to tell that it is ready, how many threads to have, descriptor of the ticks, room for a
 * word. */
static int child_run(char **argv)
{
    /* Arguments lie on the stack; variables may not, under a sanitizer. */
    uint64_t address = ((uint64_t)(uintptr_t)argv[5] + 7) & ~UINT64_C(7);
    int ready = atoi(argv[2]), n_threads = atoi(argv[3]);
    child_ticks = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[4]), 0);
    if (child_ticks == MAP_FAILED)
        return 2;
    signal(SIGUSR1, on_protect);
    map(ARENA);
    map(OTHER);
    map(DATA);
    map_libc();
    for (int i = 0; i < n_threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, tick, &child_ticks[i * 8]) != 0)
            return 4;
    }
    if (write(ready, &address, sizeof(address)) != sizeof(address))
        return 5;
    for (;;)
        pause();
}

static void begin_child(int n_threads)
{
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    child = fork();
    if (child == 0) {
        char fd[16], n[16], ticks[16];
        snprintf(fd, sizeof(fd), "%d", ready[1]);
        snprintf(n, sizeof(n), "%d", n_threads);
        snprintf(ticks, sizeof(ticks), "%d", ticks_file);
        execl("/proc/self/exe", "test_scan", "child", fd, n, ticks, "room for a word.", NULL);
        _exit(6);
    }
    close(ready[1]);
    assert_int_equal(read(ready[0], &child_slot, sizeof(child_slot)), sizeof(child_slot));
    close(ready[0]);
}

static int end(void **unused)
{
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    scan_free(scan);
    scan = NULL;
    return 0;
}

/* ---- what is in it ---- */

static void poke(uint64_t at, const void *bytes, size_t len)
{
    struct iovec local = {(void *)(uintptr_t)bytes, len}, remote = {(void *)(uintptr_t)at, len};
    assert_int_equal(process_vm_writev(child, &local, 1, &remote, 1, 0), len);
}

static void point(uint64_t at, uint64_t to)
{
    poke(at, &to, sizeof(to));
}

static void protect(uint64_t at, uint64_t bytes, int rights)
{
    volatile uint64_t *ask = child_ticks;
    uint64_t deadline_ns = clock_monotonic_ns() + 30 * NS_PER_S;
    ask[ASK_AT] = at;
    ask[ASK_BYTES] = bytes;
    ask[ASK_RIGHTS] = (uint64_t)rights;
    ask[ASK_DONE] = 0;
    kill(child, SIGUSR1);
    while (!ask[ASK_DONE] && clock_monotonic_ns() < deadline_ns)
        usleep(100);
    assert_int_equal(ask[ASK_DONE], 1);
}

/* Let the arena begin as one of glibc's: its first heap, all of which is opened. */
static void arena_begin(void)
{
    uint64_t info[] = {ARENA + 0x30, 0, MAP_BYTES, MAP_BYTES};
    poke(ARENA, info, sizeof(info));
}

static int begin(void **unused)
{
    gaps_are_roots = glibc = false;
    beside = (struct scan_beside){0};
    begin_child(0);
    arena_begin();
    return 0;
}

/* A block as the tracker would leave it, `slack` more bytes being usable. */
static void block_of(struct book_trailer_key by, uint64_t start, uint64_t bytes, uint64_t slack,
                     uint32_t site, uint32_t time)
{
    uint64_t words[3] = {0};
    uint64_t at = book_trailer_place(start, book_trailer_request(bytes) + slack);
    assert_true(book_trailer_write(&words[2], by, at, start, bytes, site, time, false));
    size_t first = words[0] ? 0 : words[1] ? 1 : 2;
    poke(at - (2 - first) * 8, &words[first], (3 - first) * 8);
}

static uint64_t block(uint64_t start, uint64_t bytes)
{
    block_of(key, start, bytes, 0, 1, 100);
    return start;
}

static void look(void)
{
    struct scan_threads *threads;
    scan_free(scan);
    scan = NULL;
    assert_int_equal(scan_threads_stop(child, &threads), 0);
    int r = scan_run(
        &(struct scan_options){
            .pid = child,
            .key = key,
            .glibc = glibc,
            .beside = beside,
            .sites = SITES,
            .gaps_are_roots = gaps_are_roots,
            .time_max = time_max,
        },
        threads, &scan);
    scan_threads_release(threads);
    assert_int_equal(r, 0);
#ifndef UNDER_ASAN /* its shadow is beyond every limit */
#ifndef UNDER_TSAN
    assert_true(scan->whole);
#endif
#endif
}

static const struct scan_block *found(uint64_t start)
{
    for (size_t i = 0; i < scan->n; i++)
        if (scan->blocks[i].start == start)
            return &scan->blocks[i];
    return NULL;
}

static void assert_state(uint64_t start, enum scan_state state)
{
    const struct scan_block *b = found(start);
    assert_non_null(b);
    assert_string_equal(scan_state_name(b->state), scan_state_name(state));
}

/* ---- tests ---- */

static void blocks_are_found_with_what_they_say(void **unused)
{
    block_of(key, ARENA + 0x1000, 100, 0, 7, 4710);
    block_of(key, ARENA + 0x2ff0, 24, 8, 2, 5);         /* across a page */
    block_of(key, ARENA + 0xffff0, 300000, 5000, 3, 6); /* far pad, across a window */
    block_of(key, ARENA + 0x1fffd0, 40, 0, 3, 6);       /* ends with a window */
    block_of(key, ARENA + 0x2ffe00, 980, 0, 3, 6);      /* short, across another */
    look();
    assert_int_equal(scan->n, 5);
    const struct scan_block *b = found(ARENA + 0x1000);
    assert_non_null(b);
    assert_int_equal(b->bytes, 100);
    assert_int_equal(b->site, 7);
    assert_int_equal(b->time, 4710);
    assert_int_equal(found(ARENA + 0x2ff0)->bytes, 24);
    assert_int_equal(found(ARENA + 0xffff0)->bytes, 300000);
    assert_int_equal(found(ARENA + 0x1fffd0)->bytes, 40);
    assert_int_equal(found(ARENA + 0x2ffe00)->bytes, 980);
    assert_int_equal(scan->sums[SCAN_LOST].blocks, 5);
    assert_int_equal(scan->sums[SCAN_LOST].bytes, 301144);
}

static void the_word_before_a_block_of_glibc_must_agree(void **unused)
{
    glibc = true;
    block_of(key, ARENA + 0x1010, 40, 8, 1, 1); /* its trailer is 48 bytes on */
    point(ARENA + 0x1008, (48 + 16) | 5);
    block_of(key, ARENA + 0x2010, 40, 8, 1, 1); /* of another size */
    point(ARENA + 0x2008, (64 + 16) | 1);
    block_of(key, ARENA + 0x3010, 40, 8, 1, 1); /* a mapping of its own is no small block */
    point(ARENA + 0x3008, (48 + 16) | 3);
    block_of(key, ARENA + 0x2ffe10, 984, 0, 3,
             6); /* the word is in one window, the trailer in the next */
    point(ARENA + 0x2ffe08, (984 + 16) | 1);
    block_of(key, ARENA + 0x5010, 4000, 0, 1, 1); /* a long trailer needs no help */
    look();
    assert_int_equal(scan->n, 3);
    assert_non_null(found(ARENA + 0x1010));
    assert_non_null(found(ARENA + 0x2ffe10));
    assert_non_null(found(ARENA + 0x5010));
}

/* A block as glibc has it, with the word before it. Its trailer is within what glibc gives for so much; the next piece begins 8 bytes before
 * the end of that. */
static uint64_t chunk(uint64_t start, uint64_t bytes)
{
    uint64_t need = (book_trailer_request(bytes) + 8 + 15) & ~UINT64_C(15);
    uint64_t size = need < 32 ? 32 : need;
    block_of(key, start, bytes, size - 8 - book_trailer_request(bytes), 1, 100);
    point(start - 8, size | 1);
    return start;
}

static void data_of_the_c_library_keeps_blocks_of_all_sizes(void **unused)
{
    enum { SIZES = 300, APART = 0x200 };
    glibc = true;
    for (uint64_t bytes = 0; bytes < SIZES; bytes++)
        point(LIBC + bytes * 8, chunk(ARENA + 0x1010 + bytes * APART, bytes));
    look();
    assert_int_equal(scan->n, SIZES);
    for (uint64_t bytes = 0; bytes < SIZES; bytes++)
        assert_state(ARENA + 0x1010 + bytes * APART, SCAN_REACHABLE);
    for (uint64_t bytes = 1; bytes < SIZES; bytes++) /* and by its last byte */
        point(LIBC + bytes * 8, ARENA + 0x1010 + bytes * APART + bytes - 1);
    look();
    for (uint64_t bytes = 0; bytes < SIZES; bytes++)
        assert_state(ARENA + 0x1010 + bytes * APART, SCAN_REACHABLE);
}

/* The main arena with empty lists, at an address in the data of the C library. */
enum { ARENA_HEADS = 127, ARENA_TOP = 10 * 8, ARENA_BINS = ARENA_TOP + 2 * 8 };

static void arena(uint64_t at)
{
    for (uint64_t i = 0; i < ARENA_HEADS; i++) {
        uint64_t head = at + ARENA_BINS + i * 16;
        point(head, head - 16);
        point(head + 8, head - 16);
    }
}

static void pointers_of_the_c_librarys_malloc_keep_nothing(void **unused)
{
    uint64_t at = LIBC + 0x1000, head = at + ARENA_BINS + 5 * 16;
    glibc = true;
    beside = (struct scan_beside){ARENA + 0x1000, OTHER, 0x400000};
    /* Blocks of 24 bytes, in pieces of 32: their last word is where glibc says that the next piece begins. */
    static const uint64_t starts[] = {ARENA + 0x1010, ARENA + 0x2010, ARENA + 0x3010};
    for (size_t i = 0; i < 3; i++) {
        uint64_t word = beside.words + book_beside_offset(starts[i] - beside.heap);
        point(word, book_beside_word(key, starts[i], 24, 1, book_trailer_short_stamp(100), false));
        point(starts[i] - 8, 32 | 1);
    }
    arena(at);
    point(at, starts[0] + 16);             /* a fast list, */
    point(at + ARENA_TOP, starts[1] + 16); /* what is left of the heap, */
    point(head, starts[2] + 16);           /* and a list of one piece, */
    point(head + 8, starts[2] + 16);
    point(starts[2] + 32, head - 16); /* which names its head */
    point(starts[2] + 40, head - 16);
    look();
    assert_int_equal(scan->n, 3);
    for (size_t i = 0; i < 3; i++)
        assert_state(starts[i], SCAN_LOST);
    point(at - 8, starts[0] + 16); /* beside the arena such a pointer is one of the program's, */
    point(at + ARENA_BINS + ARENA_HEADS * 16, starts[1] + 16);
    look();
    assert_state(starts[0], SCAN_REACHABLE);
    assert_state(starts[1], SCAN_REACHABLE);
    assert_state(starts[2], SCAN_LOST);
    point(starts[2] + 40, 0); /* and so are all where a list makes no sense */
    look();
    assert_state(starts[2], SCAN_REACHABLE);
}

/* A word of the array, which is at OTHER, and what glibc keeps before a block. */
static void block_beside(uint64_t start, uint64_t bytes, uint64_t chunk)
{
    uint64_t at = beside.words + book_beside_offset(start - beside.heap);
    point(at, book_beside_word(key, start, bytes, 1, book_trailer_short_stamp(100), false));
    point(start - 8, chunk);
}

static void words_beside_tell_of_small_blocks(void **unused)
{
    glibc = true;
    beside = (struct scan_beside){ARENA + 0x1000, OTHER, 0x400000};
    block_beside(ARENA + 0x1010, 24, 32 | 1);
    block_beside(ARENA + 0x1030, 56, 64 | 1);
    block_of(key, ARENA + 0x1070, 100, 0, 1, 1); /* a larger one, between them */
    point(ARENA + 0x1068, (104 + 16) | 1);
    block_beside(ARENA + 0x1100, 33, 48 | 1);
    block_beside(ARENA + 0x2010, 40, 1008 | 1); /* glibc says that it is larger, */
    block_beside(ARENA + 0x3010, 40, 32 | 1);   /* or that it is smaller */
    block_beside(ARENA + 0x4010, 984, 992 | 1); /* the largest */
    block_beside(ARENA + 0x102000, 8, 32);      /* the word before it was in the last window */
    point(ARENA + 0x102000, 1);
    block_of(key, OTHER + 0x200000, 200, 0, 1, 1); /* the array has no blocks, */
    point(OTHER + 0x200000, ARENA + 0x1010);       /* and keeps none */
    point(DATA, ARENA + 0x1030 + 48);
    look();
    assert_int_equal(scan->n, 6);
    assert_int_equal(found(ARENA + 0x4010)->bytes, 984);
    assert_int_equal(found(ARENA + 0x1010)->state, SCAN_LOST);
    assert_int_equal(found(ARENA + 0x1010)->bytes, 24);
    assert_int_equal(found(ARENA + 0x1030)->state, SCAN_REACHABLE); /* by its last word */
    assert_int_equal(found(ARENA + 0x1030)->bytes, 56);
    assert_int_equal(found(ARENA + 0x1070)->bytes, 100);
    assert_int_equal(found(ARENA + 0x1100)->bytes, 33);
    assert_int_equal(found(ARENA + 0x102000)->bytes, 8);
}

struct sum {
    uint64_t blocks, bytes, last;
};

static void count(const struct scan_block *b, void *context)
{
    struct sum *sum = context;
    assert_true(b->start > sum->last); /* by address */
    sum->last = b->start;
    sum->blocks++;
    sum->bytes += b->bytes;
}

static void many_blocks_are_told_of_one_by_one(void **unused)
{
    struct scan_options options = {.pid = child, .key = key, .sites = SITES};
    struct sum sum = {0};
    uint64_t searched;
    for (uint64_t i = 0; i < 10000; i++) /* more than are held at once, in two mappings */
        block_of(key, (i % 2 ? ARENA : OTHER) + 0x1000 + i * 0x100, 100, 0, 1, 5);
    block_of(key, ARENA + 0x300000, 300, 0, 2, 9); /* one lies over another, which is older */
    block_of(key, ARENA + 0x300100, 8, 0, 2, 8);
    assert_int_equal(scan_each(&options, 0, count, &sum, &searched), 0);
    assert_int_equal(sum.blocks, 10001);
    assert_int_equal(sum.bytes, 1000300);
    assert_true(searched >= 10000 * 0x100);
    assert_int_equal(scan_each(&options, 1, count, &(struct sum){0}, &searched), -ETIME);
}

static void garbage_is_no_block(void **unused)
{
    uint64_t random = 88172645463325252, words[512];
    for (uint64_t at = ARENA; at < ARENA + MAP_BYTES; at += sizeof(words)) {
        for (size_t i = 0; i < 512; i++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            words[i] = random & (i % 3 ? UINT64_MAX : 0xffff); /* small sizes pass the first look */
        }
        poke(at, words, sizeof(words));
    }
    look();
    assert_int_equal(scan->n, 0);
    block_of(key, ARENA + 0x1000, 100, 0, SITES, 1); /* a site that the book does not have */
    look();
    assert_int_equal(scan->n, 0);
}

static void what_nobody_points_to_is_lost(void **unused)
{
    uint64_t kept = block(ARENA + 0x1000, 100), lost = block(ARENA + 0x2000, 100);
    point(DATA + 80, kept);
    look();
    assert_state(kept, SCAN_REACHABLE);
    assert_state(lost, SCAN_LOST);
    assert_int_equal(scan->sums[SCAN_REACHABLE].bytes, 100);
}

static void pointers_are_followed_through_blocks(void **unused)
{
    uint64_t previous = DATA;
    for (uint64_t i = 0; i < 1000; i++) { /* a list, whose payload hangs on it */
        uint64_t node = block(ARENA + 0x1000 + i * 0x100, 40);
        uint64_t payload = block(OTHER + i * 0x400, 600);
        point(previous, node);
        point(node + 8, payload);
        previous = node;
    }
    uint64_t large = block(ARENA + 0x100000, 1 << 20), behind = block(ARENA + 0x300000, 8);
    point(previous, large);
    point(large + (1 << 20) - 8, behind);
    look();
    assert_int_equal(scan->n, 2002);
    assert_int_equal(scan->sums[SCAN_REACHABLE].blocks, 2002);
}

static void what_hangs_on_the_lost_is_indirectly_lost(void **unused)
{
    uint64_t high = block(ARENA + 0x9000, 64), middle = block(ARENA + 0x5000, 64);
    uint64_t low = block(ARENA + 0x1000, 64); /* found first, belongs to the others */
    point(high, middle);
    point(middle + 16, low);
    look();
    assert_state(high, SCAN_LOST);
    assert_state(middle, SCAN_INDIRECT);
    assert_state(low, SCAN_INDIRECT);
}

static void a_cycle_has_one_that_leads_it(void **unused)
{
    uint64_t a = block(ARENA + 0x1000, 64), b = block(ARENA + 0x2000, 64);
    uint64_t own = block(ARENA + 0x3000, 64), kept = block(ARENA + 0x4000, 64);
    point(a, b);
    point(b, a);
    point(own, own);
    point(a + 8, kept);
    point(DATA, kept);
    look();
    assert_state(a, SCAN_LOST);
    assert_state(b, SCAN_INDIRECT);
    assert_state(own, SCAN_LOST);
    assert_state(kept, SCAN_REACHABLE);
}

static void pointers_into_the_middle_count_and_those_behind_do_not(void **unused)
{
    uint64_t inside = block(ARENA + 0x1000, 64), behind = block(ARENA + 0x2000, 64);
    uint64_t tagged = block(ARENA + 0x3000, 64), empty = block(ARENA + 0x4000, 0);
    point(DATA, inside + 63);
    point(DATA + 8, behind + 64);
    point(DATA + 16, tagged | UINT64_C(0xfffa) << 48); /* a type in the bits above */
    point(DATA + 24, empty);
    look();
    assert_state(inside, SCAN_REACHABLE);
    assert_state(behind, SCAN_LOST);
    assert_state(tagged, SCAN_REACHABLE);
    assert_state(empty, SCAN_REACHABLE);
}

static void free_memory_of_the_heap_holds_no_pointers(void **unused)
{
    uint64_t lost = block(ARENA + 0x1000, 64);
    point(ARENA + 0x8000, lost); /* what a freed block held */
    look();
    assert_state(lost, SCAN_LOST);
    gaps_are_roots = true;
    look();
    assert_state(lost, SCAN_REACHABLE);
}

static void a_mapping_that_only_lies_like_an_arena_is_none(void **unused)
{
    uint64_t kept = block(ARENA + 0x1000, 64), no_bytes = 0;
    point(ARENA + 0x8000, kept);
    poke(ARENA + 16, &no_bytes, sizeof(no_bytes));
    look();
    assert_state(kept, SCAN_REACHABLE);
}

static void large_gaps_of_other_mappings_do(void **unused)
{
    uint64_t near = block(OTHER + 0x1000, 64), other = block(OTHER + 0x1100, 64);
    uint64_t far = block(OTHER + 0x9000, 64);
    point(OTHER + 0x1080, near); /* less than a page between two blocks */
    point(OTHER + 0x4000, far);  /* a mapping of the program's own, for all we know */
    look();
    assert_state(near, SCAN_LOST);
    assert_state(other, SCAN_LOST);
    assert_state(far, SCAN_REACHABLE);
}

static void of_two_that_overlap_the_younger_is_there(void **unused)
{
    block_of(key, ARENA + 0x1000, 64, 0, 1, 50);
    block_of(key, ARENA + 0x1100, 64, 0, 1, 51);
    block_of(key, ARENA + 0x1000, 4000, 0, 2, 52); /* in the memory of both */
    block_of(key, ARENA + 0x8100, 64, 0, 1, 61);   /* in the memory of the next */
    block_of(key, ARENA + 0x8000, 4000, 0, 2, 60);
    look();
    assert_int_equal(scan->n, 2);
    assert_int_equal(scan->overlaps, 3);
    assert_int_equal(found(ARENA + 0x1000)->bytes, 4000);
    assert_int_equal(found(ARENA + 0x8100)->bytes, 64);
}

static void few_words_that_look_like_blocks_do_not_speak_against_a_large_one(void **unused)
{
    uint64_t large = OTHER + 0x1000, bytes = 4 << 20;
    block_of(key, large, bytes, 0, 1, 50);
    block_of(key, large + 0x100000, 64, 0, 1, 60);
    block_of(key, large + 0x300000, 64, 0, 1, 60);
    look();
    assert_int_equal(scan->n, 1);
    assert_int_equal(found(large)->bytes, bytes);
    assert_int_equal(scan->overlaps, 2);
    for (uint64_t i = 0; i < 8; i++) /* as many do: its memory is in use again */
        block_of(key, large + 0x200000 + i * 0x100, 64, 0, 1, 60);
    look();
    assert_int_equal(scan->n, 10);
    assert_null(found(large));
}

static void nothing_was_made_later_than_now(void **unused)
{
    block_of(key, ARENA + 0x1000, 64, 0, 1, 70);
    block_of(key, ARENA + 0x2000, 64, 0, 1, 71);
    time_max = 70;
    look();
    time_max = 0;
    assert_int_equal(scan->n, 1);
    assert_non_null(found(ARENA + 0x1000));
    assert_int_equal(scan_time_max(5000, 4000), 8);
    assert_int_equal(scan_time_max(1000, 1000 + (UINT64_C(3) << 27)), 11);
    assert_int_equal(scan_time_max(0, UINT64_MAX), BOOK_TRAILER_TIME_MAX);
}

static void blocks_of_ancestors_are_known_as_such(void **unused)
{
    struct book_trailer_key parent = {.key = key.key, .generation = 2};
    struct book_trailer_key own_child = {.key = key.key, .generation = 4};
    block_of(parent, ARENA + 0x1000, 64, 0, SITES + 5, 1);
    block_of(own_child, ARENA + 0x2000, 64, 0, 1, 1); /* cannot be */
    look();
    assert_int_equal(scan->n, 1);
    assert_true(found(ARENA + 0x1000)->inherited);
    assert_int_equal(found(ARENA + 0x1000)->site, 0);
}

static void stacks_count_from_the_stack_pointer_up(void **unused)
{
    uint64_t on_stack = block(ARENA + 0x1000, 64), below = block(ARENA + 0x2000, 64);
    point(child_slot, on_stack);
    /* Deep below what pause() uses, the loader that finds it included. */
    for (uint64_t at = child_slot - 0x18000; at < child_slot - 0x17000; at += 8)
        point(at, below);
    look();
    assert_state(on_stack, SCAN_REACHABLE);
    assert_state(below, SCAN_LOST);
}

/* The largest pages that there are. */
enum { STEP = 1 << 16 };

static void what_a_program_protects_from_itself_is_looked_at(void **unused)
{
    uint64_t first = block(ARENA + STEP - 64, 1000), second = block(ARENA + 2 * STEP - 64, 1000);
    uint64_t inside = block(ARENA + STEP + 0x2000, 64), wide = block(OTHER + 64, 4 * STEP);
    uint64_t held = block(ARENA + 5 * STEP, 64), lost = block(ARENA + 6 * STEP, 64);
    uint64_t by_data = block(ARENA + 7 * STEP, 64), by_file = block(ARENA + 8 * STEP, 64);
    point(DATA, first);
    point(first + 800, second); /* in a page that cannot be read, */
    point(second + 800, inside);
    point(inside, wide);
    point(wide + 2 * STEP, held); /* and in one between two that can */
    point(DATA + STEP, by_data);
    point(LIBC + 8, by_file);
    protect(ARENA + STEP, STEP, PROT_NONE);
    protect(ARENA + 2 * STEP, STEP, PROT_READ);
    protect(OTHER + 2 * STEP, STEP, PROT_NONE);
    protect(DATA + STEP, STEP, PROT_NONE);
    protect(LIBC, STEP, PROT_READ);
    look();
    assert_int_equal(scan->n, 8);
    uint64_t reachable[] = {first, second, inside, wide, held, by_data, by_file};
    for (size_t i = 0; i < sizeof(reachable) / sizeof(reachable[0]); i++)
        assert_state(reachable[i], SCAN_REACHABLE);
    assert_state(lost, SCAN_LOST);
}

static void pages_that_cannot_be_read_are_counted(void **unused)
{
    struct scan_regions regions = {0};
    struct scan_options options = {.pid = child, .key = key, .sites = SITES};
    struct scan_memory memory;
    struct scan all = {0};
    block(ARENA + 0x1000, 64);
    block(ARENA + STEP, 64);
    block(ARENA + 2 * STEP, 64);
    protect(ARENA + STEP, STEP, PROT_NONE);
    assert_int_equal(scan_memory_open(&memory, child), 0);
    close(memory.own_file); /* as where that is forbidden */
    memory.own_file = -1;
    assert_int_equal(scan_regions_read(child, &regions), 0);
    assert_int_equal(scan_find(&all, &options, &memory, &regions, NULL), 0);
    assert_int_equal(all.n, 2);
    assert_int_equal(memory.unread, memory.page); /* one was ever touched */
    free(all.blocks);
    scan_regions_release(&regions);
    scan_memory_close(&memory);
}

static uint64_t ticks_sum(void)
{
    uint64_t sum = 0;
    for (int i = 0; i < THREADS; i++)
        sum += *(volatile uint64_t *)&child_ticks[i * 8];
    return sum;
}

static int begin_threads(void **unused)
{
    gaps_are_roots = glibc = false;
    begin_child(THREADS);
    return 0;
}

static void threads_stand_still_and_go_on(void **unused)
{
    struct scan_threads *threads;
    uint64_t deadline_ns = clock_monotonic_ns() + 30 * NS_PER_S;
    for (int round = 0; round < 3; round++) {
        assert_int_equal(scan_threads_stop(child, &threads), 0);
        assert_int_equal(scan_threads_count(threads), THREADS + 1);
        uint64_t before = ticks_sum();
        usleep(20000);
        assert_int_equal(ticks_sum(), before);
        scan_threads_release(threads);
        while (ticks_sum() == before && clock_monotonic_ns() < deadline_ns)
            usleep(1000);
        assert_true(ticks_sum() > before);
    }
}

static void who_cannot_be_stopped_is_told(void **unused)
{
    struct scan_threads *threads;
    int ready[2], status;
    char byte = 0;
    assert_int_equal(pipe(ready), 0);
    pid_t tracer = fork();
    assert_true(tracer >= 0);
    if (tracer == 0) {
        byte = ptrace(PTRACE_SEIZE, child, NULL, NULL) == 0;
        if (write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(byte, 1);
    assert_int_equal(scan_threads_stop(child, &threads), -EPERM);
    kill(tracer, SIGKILL);
    waitpid(tracer, &status, 0);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(scan_threads_stop(0x7ffffffe, &threads), -ESRCH);
}

static void lines_of_maps_are_understood_or_refused(void **unused)
{
    struct scan_regions regions;
    static const char text[] =
        "55d000000000-55d000001000 r-xp 00000000 08:01 123   /usr/bin/a b\n"
        "55d000001000-55d000002000 rw-p 00001000 08:01 123   /usr/bin/a b\n"
        "55d000002000-55d000003000 rw-p 00000000 00:00 0     [heap]\n"
        "7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n"
        "7f0000021000-7f0004000000 ---p 00000000 00:00 0 \n"
        "7f0004000000-7f0004800000 rw-p 00000000 00:00 0 \n"
        "7f0005000000-7f0005001000 rw-s 00000000 00:10 9     /dev/shm/x/1-2-3.book\n"
        "7f0005001000-7f0005002000 rw-s 00000000 00:10 9     /run/m/1-2-3.book (deleted)\n"
        "7f0005002000-7f0005003000 rw-s 00000000 00:06 9     /dev/nvidia0\n"
        "7f0005003000-7f0005004000 rw-s 00000000 00:01 9     /dev/zero (deleted)\n"
        "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0     [stack]\n"
        "7ffc00100000-7ffc00104000 r--p 00000000 00:00 0     [vvar]\n"
        "7ffc00200000-7ffc00204000 ---s 00000000 00:01 7     /memfd:x (deleted)\n"
        "7ffc00300000-7ffc00304000 r--s 00000000 08:01 7     /var/lib/data\n";
    assert_int_equal(scan_regions_parse(text, sizeof(text) - 1, &regions), 0);
    static const bool root[] = {1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1, 0, 1, 0};
    static const bool heap[] = {0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0};
    assert_int_equal(regions.n, 14);
    for (size_t i = 0; i < regions.n; i++) {
        assert_int_equal(regions.regions[i].root, root[i]);
        assert_int_equal(regions.regions[i].heap, heap[i]);
        assert_int_equal(regions.regions[i].root && regions.regions[i].altered, i == 0);
    }
    assert_true(regions.regions[5].guarded);
    assert_false(regions.regions[3].guarded);
    assert_true(regions.regions[10].guarded);
    assert_ptr_equal(scan_region_of(&regions, 0x7f0004000000), &regions.regions[5]);
    assert_null(scan_region_of(&regions, 0x7f0004800000));
    assert_null(scan_region_of(&regions, 0));
    scan_regions_release(&regions);
    static const char *const bad[] = {
        "x",
        "5-4 rw-p 0 0:0 0",
        "1000-2000 rw 0 0:0 0",
        "1000-2000 rw-p 0 0:0",
        "2000-3000 rw-p 0 0:0 0\n1000-2000 rw-p 0 0:0 0",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(scan_regions_parse(bad[i], strlen(bad[i]), &regions), -EBADMSG);
}

int main(int argc, char **argv)
{
    if (argc == 6 && strcmp(argv[1], "child") == 0)
        return child_run(argv);
    ticks_file = memfd_create("ticks", 0);
    if (ticks_file < 0 || ftruncate(ticks_file, 4096) < 0)
        return 1;
    child_ticks = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, ticks_file, 0);
    if (child_ticks == MAP_FAILED)
        return 1;
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(blocks_are_found_with_what_they_say),
        TEST(many_blocks_are_told_of_one_by_one),
        TEST(the_word_before_a_block_of_glibc_must_agree),
        TEST(data_of_the_c_library_keeps_blocks_of_all_sizes),
        TEST(pointers_of_the_c_librarys_malloc_keep_nothing),
        TEST(words_beside_tell_of_small_blocks),
        TEST(garbage_is_no_block),
        TEST(what_nobody_points_to_is_lost),
        TEST(pointers_are_followed_through_blocks),
        TEST(what_hangs_on_the_lost_is_indirectly_lost),
        TEST(a_cycle_has_one_that_leads_it),
        TEST(pointers_into_the_middle_count_and_those_behind_do_not),
        TEST(free_memory_of_the_heap_holds_no_pointers),
        TEST(a_mapping_that_only_lies_like_an_arena_is_none),
        TEST(large_gaps_of_other_mappings_do),
        TEST(of_two_that_overlap_the_younger_is_there),
        TEST(few_words_that_look_like_blocks_do_not_speak_against_a_large_one),
        TEST(nothing_was_made_later_than_now),
        TEST(blocks_of_ancestors_are_known_as_such),
        TEST(stacks_count_from_the_stack_pointer_up),
        TEST(what_a_program_protects_from_itself_is_looked_at),
        TEST(pages_that_cannot_be_read_are_counted),
        cmocka_unit_test_setup_teardown(threads_stand_still_and_go_on, begin_threads, end),
        TEST(who_cannot_be_stopped_is_told),
        cmocka_unit_test(lines_of_maps_are_understood_or_refused),
    };
    return cmocka_run_group_tests_name("scan", tests, NULL, NULL);
}
