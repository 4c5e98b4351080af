/* Reachability: see scan.h. */
#include "scan/scan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/cleanup.h"
#include "base/sum.h"
#include "scan/arena.h"
#include "scan/find.h"
#include "scan/heap.h"
#include "scan/threads.h"

enum {
    BATCH = 256,                 /* small blocks that are read by one system call */
    SMALL_MAX = 4096,            /* bytes of such a block */
    GAP_ROOT_BYTES = 4096,       /* between blocks of a mapping that is not glibc's heap */
    STACK_TOP_BYTES = 256 << 10, /* of a stack, where its thread's descriptor is */
    TLS_ABOVE_BYTES = 8192,      /* the thread's descriptor lies above the thread pointer */
};

/* 47 bits on x86-64, 48 elsewhere: programs keep types and counts in those above. */
#define ADDRESS_BITS_MASK ((UINT64_C(1) << 48) - 1)

struct marker {
    struct scan *scan;
    const struct scan_options *options;
    struct scan_memory *memory;
    struct scan_regions *regions;
    struct scan_run *hint;
    struct scan_heap *heap;   /* of our own allocator; NULL: another one */
    uint64_t lowest, highest; /* addresses of blocks */
    uint32_t *work;           /* blocks that are known and not read yet */
    size_t n_work, room_work;
    bool at_end;             /* of the process: threads that are gone did not end, but were ended */
    bool glibc;              /* descriptors of threads are as we know them */
    struct scan_arena arena; /* pointers of glibc's malloc, which are none of the program's */
    size_t leader;           /* the lost block from which the others are found; SIZE_MAX: roots */
    uint64_t done_bytes;
    int error;
};

/* ---- marking ---- */

static void work_add(struct marker *m, size_t block)
{
    if (m->n_work == m->room_work) {
        size_t room = m->room_work ? m->room_work * 2 : 4096;
        uint32_t *grown = reallocarray(m->work, room, sizeof(*grown));
        if (!grown) {
            m->error = -ENOMEM;
            return;
        }
        m->work = grown;
        m->room_work = room;
    }
    m->work[m->n_work++] = (uint32_t)block;
}

/* Somebody points into this block. */
static void reach(struct marker *m, size_t number)
{
    struct scan_block *block = &m->scan->blocks[number];
    if (block->state == SCAN_STATES) {
        block->state = m->leader == SIZE_MAX ? SCAN_REACHABLE : SCAN_INDIRECT;
        work_add(m, number);
    } else if (block->state == SCAN_LOST && number != m->leader) {
        block->state = SCAN_INDIRECT; /* was taken for a leader before its own was found */
    }
}

static inline void look_at(struct marker *m, uint64_t word)
{
    if (word - m->lowest >= m->highest - m->lowest) {
        word &= ADDRESS_BITS_MASK;
        if (word - m->lowest >= m->highest - m->lowest)
            return;
    }
    size_t number = scan_block_around(m->scan, m->regions, word, &m->hint);
    if (number != SIZE_MAX)
        reach(m, number);
}

static void look_at_all(struct marker *m, const uint64_t *words, size_t n)
{
    for (size_t i = 0; i < n; i++)
        look_at(m, words[i]);
}

static int look_at_run(void *context, uint64_t start, uint64_t end)
{
    struct marker *m = context;
    uint64_t *words = (uint64_t *)m->memory->window;
    start = (start + 7) & ~UINT64_C(7);
    while (start + sizeof(uint64_t) <= end) {
        size_t len = end - start < SCAN_WINDOW ? (size_t)(end - start) : SCAN_WINDOW;
        len &= ~(size_t)7;
        size_t got = scan_memory_read(m->memory, start, words, len);
        look_at_all(m, words, got / sizeof(uint64_t));
        m->done_bytes += got;
        start += got;
        if (got < len) /* one page that cannot be read: the next one may be */
            start = scan_memory_skip(m->memory, start);
    }
    return m->error;
}

/* What was put aside, until nothing is left. */
static void batch_read(struct marker *m, const struct scan_block *const *blocks, size_t n)
{
    struct iovec places[BATCH];
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        places[i] =
            (struct iovec){(void *)(uintptr_t)blocks[i]->start, blocks[i]->bytes & ~UINT64_C(7)};
        len += places[i].iov_len;
    }
    if (len == 0)
        return;
    if (scan_memory_read_many(m->memory, places, n, m->memory->window, len)) {
        look_at_all(m, (uint64_t *)m->memory->window, len / sizeof(uint64_t));
        m->done_bytes += len;
        return;
    }
    for (size_t i = 0; i < n; i++)
        look_at_run(m, blocks[i]->start, blocks[i]->start + blocks[i]->bytes);
}

static void work_off(struct marker *m)
{
    while (m->n_work && !m->error) {
        const struct scan_block *small[BATCH];
        size_t n = 0;
        while (m->n_work && n < BATCH) {
            const struct scan_block *block = &m->scan->blocks[m->work[--m->n_work]];
            if (block->bytes <= SMALL_MAX) {
                small[n++] = block;
                continue;
            }
            uint64_t end = block->start + block->bytes;
            scan_memory_runs(m->memory, block->start, end, look_at_run, m);
        }
        batch_read(m, small, n);
        if (m->options->progress)
            m->options->progress("following pointers", m->done_bytes, 0, m->options->context);
    }
}
_Static_assert(BATCH *SMALL_MAX <= SCAN_WINDOW, "a batch fits into the window");

/* ---- roots ---- */

static void root_range(struct marker *m, uint64_t start, uint64_t end)
{
    uint64_t before = m->done_bytes;
    if (start < end && !m->error)
        scan_memory_runs(m->memory, start, end, look_at_run, m);
    m->scan->root_bytes += m->done_bytes - before;
}

/* What a program has written into its copy of a file, before it gave up the right to. */
static void root_altered(struct marker *m, const struct scan_region *region)
{
    uint64_t before = m->done_bytes;
    if (!m->error)
        scan_memory_runs_altered(m->memory, region->start, region->end, look_at_run, m);
    m->scan->root_bytes += m->done_bytes - before;
}

/* The same less what is our allocator's: its descriptors, and free memory with what was once there. Less glibc's own pointers, too. */
static void root_outside(struct marker *m, uint64_t start, uint64_t end)
{
    if (m->arena.start >= start && m->arena.end <= end && m->arena.end > m->arena.start) {
        root_range(m, start, m->arena.start);
        start = m->arena.end;
    }
    while (m->heap && start < end) {
        bool own;
        uint64_t next = scan_heap_stretch(m->heap, start, &own);
        next = next < end ? next : end;
        if (!own)
            root_range(m, start, next);
        start = next;
    }
    root_range(m, start, end);
}

/* Between the blocks of a region. */
static void gaps(struct marker *m, const struct scan_region *region)
{
    bool all = m->options->gaps_are_roots;
    uint64_t at = region->start;
    if (region->heap && !all)
        return;
    for (size_t i = 0; i <= region->n_blocks; i++) {
        const struct scan_block *next = &m->scan->blocks[region->first_block + i];
        uint64_t end = i < region->n_blocks ? next->start : region->end;
        if (end > at && all)
            root_range(m, at, end);
        else if (end > at && end - at >= GAP_ROOT_BYTES)
            root_outside(m, at, end);
        if (i < region->n_blocks)
            at = next->start + next->bytes;
    }
}

/* The lowest part of a region that is in use, where it is a stack. */
static uint64_t region_low(const struct scan_region *region, const struct scan_registers *threads,
                           size_t n)
{
    uint64_t low = UINT64_MAX;
    for (size_t i = 0; i < n && region->guarded; i++)
        if (threads[i].stack_pointer >= region->start && threads[i].stack_pointer < region->end &&
            threads[i].stack_pointer < low)
            low = threads[i].stack_pointer;
    return low == UINT64_MAX ? region->start : low;
}

/* The descriptor of a thread as glibc has it on x86-64: its number, and how far it got. */
enum { DESCRIPTOR_TID = 720, DESCRIPTOR_STATE = 776, STATE_EXITING = 0x10, STATE_KNOWN = 0x7f };

/* Whether that is so here: the first thread that we know must find itself there. */
static bool descriptors_known(struct marker *m, const struct scan_registers *threads, size_t n)
{
    uint32_t tid = 0, state = 0;
    return n > 0 && threads[0].thread_pointer &&
           scan_memory_read(m->memory, threads[0].thread_pointer + DESCRIPTOR_TID, &tid, 4) == 4 &&
           scan_memory_read(m->memory, threads[0].thread_pointer + DESCRIPTOR_STATE, &state, 4) ==
               4 &&
           tid == (uint32_t)threads[0].tid && state <= STATE_KNOWN;
}

/* At the end of a process all its threads are gone. Those that were on their way until then hold what they held. */
static bool was_ended(struct marker *m, uint64_t descriptor)
{
    uint32_t state;
    if (!m->at_end)
        return false;
    return !m->glibc ||
           scan_memory_read(m->memory, descriptor + DESCRIPTOR_STATE, &state, 4) != 4 ||
           !(state & STATE_EXITING);
}

/* The stack of a thread that has ended is kept by glibc for the next one, with all that was on it. It is known by the
 * thread's descriptor at its top, which begins with its own address, and again 16 bytes on, and which no living thread
 * uses. Its table of thread-local storage (dtv) is kept with it, and stands in the second word. Gives the end of it, or
 * the region's start where it is none. */
static uint64_t dead_stack_end(struct marker *m, const struct scan_region *region,
                               const struct scan_registers *threads, size_t n)
{
    enum { STEP = 64 / sizeof(uint64_t) }; /* descriptors lie on cache lines */
    uint64_t *words = (uint64_t *)m->memory->window;
    uint64_t len = region->end - region->start;
    if (!region->guarded || !region->anonymous)
        return region->start;
    len = len < STACK_TOP_BYTES ? len : STACK_TOP_BYTES;
    uint64_t from = region->end - len;
    size_t got = scan_memory_peek(m->memory, from, words, len) / sizeof(uint64_t);
    for (size_t i = 0; i + STEP <= got; i += STEP) {
        uint64_t at = from + i * sizeof(uint64_t);
        if (words[i] != at || words[i + 2] != at)
            continue;
        for (size_t k = 0; k < n; k++)
            if (threads[k].thread_pointer == at)
                return region->start;
        uint64_t table = words[i + 1];
        if (was_ended(m, at))
            return region->start;
        look_at(m, table);
        return at + TLS_ABOVE_BYTES < region->end ? at + TLS_ABOVE_BYTES : region->end;
    }
    return region->start;
}

/* A stack that shares its region with blocks: what is certainly in use. */
static void stack_among_blocks(struct marker *m, const struct scan_registers *thread)
{
    const struct scan_region *region = scan_region_of(m->regions, thread->stack_pointer);
    if (!region || !region->n_blocks)
        return;
    uint64_t end = region->end, top = thread->thread_pointer + TLS_ABOVE_BYTES;
    if (thread->thread_pointer > thread->stack_pointer && top < end)
        end = top;
    root_range(m, thread->stack_pointer, end);
}

static void roots(struct marker *m, const struct scan_registers *threads, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        look_at_all(m, threads[i].words, threads[i].n);
        stack_among_blocks(m, &threads[i]);
    }
    for (size_t i = 0; i < m->regions->n; i++) {
        const struct scan_region *region = &m->regions->regions[i];
        if (!region->root)
            continue;
        if (!scan_memory_may(m->memory, region->end - region->start))
            sum_add(&m->memory->unread, region->end - region->start);
        else if (region->n_blocks)
            gaps(m, region);
        else if (region->altered)
            root_altered(m, region);
        else {
            uint64_t low = region_low(region, threads, n), dead = region->start;
            if (low == region->start)
                dead = dead_stack_end(m, region, threads, n);
            root_outside(m, low > dead ? low : dead, region->end);
        }
    }
}

/* Those that no root leads to: each leads a group, unless another one's leads to it. */
static void groups(struct marker *m)
{
    for (size_t i = 0; i < m->scan->n && !m->error; i++) {
        struct scan_block *block = &m->scan->blocks[i];
        if (block->state != SCAN_STATES)
            continue;
        m->leader = i;
        block->state = SCAN_LOST;
        work_add(m, i);
        work_off(m);
    }
}

/* ---- a scan ---- */

static int registers_of(const struct scan_threads *threads, struct scan_registers **ret_registers,
                        size_t *ret_n)
{
    struct scan_registers *all = calloc(threads->n + 1, sizeof(*all));
    if (!all)
        return -ENOMEM;
    size_t n = 0;
    if (threads->borrowed)
        all[n++] = *threads->borrowed;
    for (size_t i = 0; i < threads->n && !threads->borrowed; i++)
        if (threads->threads[i].stopped &&
            scan_thread_registers(&threads->threads[i], &all[n]) == 0)
            n++;
    *ret_registers = all;
    *ret_n = n;
    return 0;
}

static void sum_up(struct scan *scan)
{
    for (size_t i = 0; i < scan->n; i++) {
        struct scan_sum *sum = &scan->sums[scan->blocks[i].state];
        sum->blocks++;
        sum_add(&sum->bytes, scan->blocks[i].bytes);
    }
}

static int mark(struct marker *m, const struct scan_threads *threads)
{
    MEMOIR_CLEANUP(freep)
    struct scan_registers *registers = NULL;
    size_t n = 0;
    int r = registers_of(threads, &registers, &n);
    if (r < 0)
        return r;
    if (m->scan->n) {
        const struct scan_block *last = &m->scan->blocks[m->scan->n - 1];
        m->lowest = m->scan->blocks[0].start;
        m->highest = last->start + last->bytes + 1;
    }
    m->leader = SIZE_MAX;
    m->at_end = threads->borrowed != NULL;
    m->glibc = m->at_end && descriptors_known(m, registers, n);
    if (m->options->glibc)
        m->arena = scan_arena_find(m->memory, m->regions);
    roots(m, registers, n);
    work_off(m);
    groups(m);
    return m->error;
}

int scan_run_in(const struct scan_options *options, const struct scan_threads *threads,
                struct scan_regions *regions, struct scan **ret_scan)
{
    MEMOIR_CLEANUP(scan_freep)
    struct scan *scan = calloc(1, sizeof(*scan));
    if (!scan)
        return -ENOMEM;
    struct scan_memory memory;
    int r = scan_memory_open(&memory, options->pid);
    if (r < 0)
        return r;
    memory.file = options->memory_file;
    struct marker m = {.scan = scan, .options = options, .memory = &memory, .regions = regions};
    /* Where it cannot be read, and no words are needed, its free memory counts as roots: fewer blocks are found lost. */
    r = scan_find_heap(options, &memory, regions, &m.heap);
    scan_arena_heaps(&memory, regions);
    if (r == 0)
        r = scan_find(scan, options, &memory, regions, m.heap);
    if (r == 0)
        r = mark(&m, threads);
    scan->damaged = m.heap && m.heap->cut;
    scan_heap_free(m.heap);
    scan->block_bytes = m.done_bytes - scan->root_bytes;
    scan->unread_bytes = memory.unread;
    scan->whole = memory.unread == 0 && scan->left_out == 0 && !scan->damaged;
    free(m.work);
    scan_memory_close(&memory);
    if (r < 0)
        return r;
    sum_up(scan);
    *ret_scan = MEMOIR_TAKE(scan);
    return 0;
}

int scan_run(const struct scan_options *options, const struct scan_threads *threads,
             struct scan **ret_scan)
{
    struct scan_regions regions = {0};
    int r = scan_regions_read(options->pid, &regions);
    if (r == 0)
        r = scan_run_in(options, threads, &regions, ret_scan);
    scan_regions_release(&regions);
    return r;
}

void scan_free(struct scan *scan)
{
    if (!scan)
        return;
    free(scan->blocks);
    free(scan);
}

void scan_freep(struct scan **scan)
{
    scan_free(*scan);
}

const char *scan_state_name(enum scan_state state)
{
    static const char *const names[SCAN_STATES] = {"lost", "indirectly lost", "reachable"};
    return state < SCAN_STATES ? names[state] : "unknown";
}
