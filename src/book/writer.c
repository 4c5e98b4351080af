/*
 * writer.c: the shape of a book and its pages.
 *
 * All sections are laid out at once, with reserves larger than most processes need: reserve costs
 * address space only. It is not larger than that, because programs limit their address space or
 * lock their memory when we are there already. Where limits stand before, smaller ones are tried.
 */
#include "book/writer.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "book/identity.h"
#include "book/lock.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum {
    SECTION_BYTES = 65536,   /* sections start and end on a page, on machines with large ones too */
    RESERVE_STEPS = 12,      /* halvings of the reserve before we give up */
    PROCESS_STEP = 3,        /* 140 MB of address space, room for 2 million live blocks */
    ON_BEHALF_STEP = 4,      /* a daemon keeps thousands of books */
    BARE_STEP = 3,           /* which have room for 2 million live blocks each */
    PROCESS_SHARDS = 8,      /* of the block table */
    ADDRESS_SPACE_PART = 32, /* of RLIMIT_AS that we may reserve, */
    LOCKED_PART = 16,        /* and of RLIMIT_MEMLOCK where it was raised: mlockall() counts all */
    REFUSALS = 1024,
    SPINS = 100,
    YIELDS = 1000, /* before it sleeps */
    YIELDS_SEALED =
        20000, /* where it may not: about a second with a busy machine, less with an idle one */
};
#define MIB (UINT64_C(1) << 20)

/* Room for 17 million live blocks at most, and what each page of them needs besides. */
#define BLOCK_PAGES UINT64_C(131072)
#define HEADS_BYTES (TABLE_CHUNKS_PER_PAGE * sizeof(struct table_head))
#define MOVES_BYTES (BOOK_BLOCKS_PER_PAGE * sizeof(struct book_moves))

/* What each section may grow to. `scaled` ones shrink with the reserve. */
static const struct shape {
    uint32_t kind, entry_bytes;
    uint64_t reserve;
    bool scaled, own_only; /* own_only: not in books written on behalf of others */
} full_shapes[] = {
    {BOOK_SECTION_CONTROL, sizeof(struct book_control), 65536, false, true},
    {BOOK_SECTION_REGISTRY, BOOK_RECORD_BYTES, BOOK_RECORDS_MAX *BOOK_RECORD_BYTES, false, false},
    {BOOK_SECTION_COUNTER_INDEX, sizeof(struct book_counter_page), 1 * MIB, true, false},
    {BOOK_SECTION_COUNTERS, BOOK_COUNTER_PAGE_BYTES, 256 * MIB, true, false},
    {BOOK_SECTION_MODULES, sizeof(struct book_module), 2 * MIB, false, false},
    {BOOK_SECTION_FRAMES, sizeof(uint64_t), 64 * MIB, true, false},
    {BOOK_SECTION_SITES, sizeof(struct book_site), 32 * MIB, true, false},
    {BOOK_SECTION_TAGS, sizeof(struct book_tag), 4 * MIB, true, false},
    {BOOK_SECTION_SCRIPTS, sizeof(struct book_script), 32 * MIB, true, false},
    {BOOK_SECTION_BLOCKS, BOOK_BLOCK_PAGE_BYTES, BLOCK_PAGES *BOOK_BLOCK_PAGE_BYTES, true, false},
    {BOOK_SECTION_BLOCK_INDEX, sizeof(struct table_head), BLOCK_PAGES *HEADS_BYTES, true, false},
    {BOOK_SECTION_MOVES, sizeof(struct book_moves), BLOCK_PAGES *MOVES_BYTES, true, false},
};

/* What every book has pages of comes first, so that they share page tables. */
static const struct shape bare_shapes[] = {
    {BOOK_SECTION_REGISTRY, BOOK_RECORD_BYTES, BOOK_RECORDS_MAX *BOOK_RECORD_BYTES, false, false},
    {BOOK_SECTION_BLOCK_INDEX, sizeof(struct table_head), BLOCK_PAGES *HEADS_BYTES, true, false},
    {BOOK_SECTION_BLOCKS, BOOK_BLOCK_PAGE_BYTES, BLOCK_PAGES *BOOK_BLOCK_PAGE_BYTES, true, false},
    {BOOK_SECTION_TAGS, sizeof(struct book_tag), 4 * MIB, true, false},
    {BOOK_SECTION_MOVES, sizeof(struct book_moves), BLOCK_PAGES *MOVES_BYTES, true, false},
};
enum {
    FULL_SHAPES = sizeof(full_shapes) / sizeof(full_shapes[0]),
    BARE_SHAPES = sizeof(bare_shapes) / sizeof(bare_shapes[0]),
};

/* ---- layout ---- */

static uint64_t align_up(uint64_t value, uint64_t to)
{
    return (value + to - 1) / to * to;
}

static uint64_t shape_bytes(const struct shape *shape, unsigned step)
{
    uint64_t bytes = shape->scaled ? shape->reserve >> step : shape->reserve;
    bool parted = shape->kind == BOOK_SECTION_BLOCKS || shape->kind == BOOK_SECTION_BLOCK_INDEX;
    return align_up(bytes, parted ? PROCESS_SHARDS * SECTION_BYTES : SECTION_BYTES);
}

/* Fill the section directory (if there is a header) and give the size of the file. */
static uint64_t lay_out(struct book_header *header, const struct book_writer_options *options,
                        unsigned step)
{
    const struct shape *shapes = options->bare ? bare_shapes : full_shapes;
    size_t n_shapes = options->bare ? (size_t)BARE_SHAPES : (size_t)FULL_SHAPES;
    uint64_t offset = SECTION_BYTES;
    size_t n = 0;
    for (size_t i = 0; i < n_shapes; i++) {
        if (shapes[i].own_only && options->on_behalf)
            continue;
        uint64_t bytes = shape_bytes(&shapes[i], step);
        if (header)
            header->sections[n++] = (struct book_section){
                .kind = shapes[i].kind,
                .entry_size = shapes[i].entry_bytes,
                .offset = offset,
                .size = bytes,
            };
        offset += bytes;
    }
    return offset;
}

/* The most that this process may reserve as address space and as a file. */
static uint64_t reserve_limit(void)
{
    uint64_t most = UINT64_MAX;
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        most = limit.rlim_cur / ADDRESS_SPACE_PART;
    /* Up to the kernel's own limit hardly any program could lock itself, with us or without. */
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur > 8 * MIB && limit.rlim_cur / LOCKED_PART < most)
        most = limit.rlim_cur / LOCKED_PART;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < most)
        most = limit.rlim_cur;
    return most;
}

/* Point into a mapping at `base` that has a filled header. Counter pages that the private image
 * gave out so far are the common ones. */
void book_writer_rebase(struct book_writer *w, void *base)
{
    bool counters = w->header && !w->bare;
    for (size_t i = 0; counters && i < BOOK_SITES_MAX / BOOK_SITES_PER_PAGE; i++) {
        uint8_t *page = (uint8_t *)w->common.site_pages[i];
        if (!page)
            break; /* they are made in order */
        void *moved = (uint8_t *)base + (page - (uint8_t *)w->header);
        w->common.site_pages[i] = moved;
    }
    w->header = base;
    for (size_t i = 0; i < BOOK_SECTIONS_MAX; i++) {
        struct book_section *section = &w->header->sections[i];
        if (section->kind == 0 || section->kind >= BOOK_SECTION_KINDS)
            continue;
        w->section[section->kind] = section;
        w->at[section->kind] = (uint8_t *)base + section->offset;
    }
    if (w->section[BOOK_SECTION_CONTROL]) /* others may look at it meanwhile */
        store_relaxed(&w->control, (struct book_control *)w->at[BOOK_SECTION_CONTROL]);
    if (w->header->block_shards)
        table_rebase(w);
}

static uint64_t random_word(void)
{
    /* The kernel gave every image 16 random bytes: no system call, and fresh after exec. The
     * clock keeps parent and child of a fork apart. */
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return hash_combine(book_exec_random(), (uint64_t)now.tv_sec * 1000000007 ^
                                                (uint64_t)now.tv_nsec ^ ((uint64_t)getpid() << 32));
}

static int map_image(struct book_writer *w, const struct book_writer_options *options,
                     unsigned step)
{
    w->map_bytes = lay_out(NULL, options, step);
    void *base = book_reserve_new(w->map_bytes, -1);
    if (!base)
        return -errno;
    uint64_t open = w->bare ? w->map_bytes : align_up(BOOK_HEADER_BYTES, w->page_bytes);
    if (mprotect(base, open, PROT_READ | PROT_WRITE) < 0) {
        int r = -errno;
        book_reserve_free(base, w->map_bytes);
        return r;
    }
    lay_out(base, options, step);
    book_writer_rebase(w, base);
    return 0;
}

/* This very process, and none of its children. */
bool book_keep_asked(void)
{
    const char *asked = secure_getenv("MEMOIR_KEEP");
    uint64_t pid = 0;
    for (; asked && *asked >= '0' && *asked <= '9' && pid < INT32_MAX; asked++)
        pid = pid * 10 + (uint64_t)(*asked - '0');
    return asked && !*asked && pid == (uint64_t)getpid();
}

int book_writer_init(struct book_writer *w, const struct book_writer_options *options)
{
    w->page_bytes = (uint32_t)getauxval(AT_PAGESZ);
    w->single = options->on_behalf;
    w->bare = options->bare;
    uint64_t limit = reserve_limit();
    int r = -EFBIG;
    unsigned first = options->bare        ? BARE_STEP
                     : options->on_behalf ? ON_BEHALF_STEP
                     : options->large     ? 0
                                          : PROCESS_STEP;
    for (unsigned step = first; step < RESERVE_STEPS; step++) {
        if (lay_out(NULL, options, step) > limit)
            continue;
        r = map_image(w, options, step);
        if (r == 0)
            break;
    }
    if (r < 0)
        return r;

    struct book_header *header = w->header;
    header->endian_mark = BOOK_ENDIAN_MARK;
    header->version = BOOK_VERSION;
    header->header_bytes = BOOK_HEADER_BYTES;
    header->compat = options->on_behalf ? BOOK_COMPAT_ON_BEHALF : 0;
    header->file_size = w->map_bytes;
    header->page_size = w->page_bytes;
    header->source = options->source;
    header->time_shift = BOOK_TIME_SHIFT;
    header->hash_seed = random_word();
    header->block_shards = options->on_behalf ? 1 : PROCESS_SHARDS;
    header->block_index_format = w->bare ? BOOK_INDEX_BY_DEVICE : BOOK_INDEX_FORMAT;
    w->table.seed = header->hash_seed;
    w->table.plain = !w->single;
    w->table.by_device = w->bare;
    table_rebase(w);
    w->created_ns = options->bare ? 0 : book_identity_self(header);

    r = book_section_open(w, BOOK_SECTION_REGISTRY, BOOK_RECORD_BYTES);
    if (r == 0 && w->control)
        r = book_section_open(w, BOOK_SECTION_CONTROL, sizeof(struct book_control));
    if (r < 0) {
        book_writer_forget(w);
        return r;
    }
    w->section[BOOK_SECTION_REGISTRY]->used = 1; /* record 0 stays empty */
    if (w->control && book_keep_asked())
        w->control->flags = w->control->flags_more = BOOK_CONTROL_WATCHED;
    return 0;
}

void book_writer_forget(struct book_writer *w)
{
    index_release(&w->sites);
    index_release(&w->places);
    index_release(&w->tags);
    index_release(&w->scripts);
    if (w->moves_open)
        book_private_free(w->moves_open, book_moves_bytes(w));
    w->moves_open = NULL;
    if (w->header)
        book_reserve_free(w->header, w->map_bytes);
    w->header = NULL;
}

void book_thread_init(struct book_writer *w, struct book_thread *t)
{
    t->shard = fetch_add_relaxed(&w->shards, 1) + 1;
    t->exclusive = w->single || t->shard < BOOK_SHARDS_MAX;
}

void book_writer_prepare(struct book_writer *w, struct book_thread *t, uintptr_t pc)
{
    static const uint32_t kinds[] = {BOOK_SECTION_MODULES, BOOK_SECTION_FRAMES, BOOK_SECTION_SITES,
                                     BOOK_SECTION_TAGS};
    book_counters_prepare(w, t);
    book_module_prepare(w, t, pc);
    if (!book_lock_take(w, t, &w->lock))
        return;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        book_section_open(w, kinds[i], w->page_bytes);
    index_prepare(&w->sites);
    index_prepare(&w->places);
    index_prepare(&w->tags);
    book_lock_drop(t, &w->lock);
}

/* ---- pages ---- */

/* Kernel and file system are asked here and nowhere else. */
static int open_pages(struct book_writer *w, void *start, uint64_t bytes)
{
    if (w->sealed)
        return -EPERM;
    if (w->refused > 0) {
        w->refused--;
        return -ENOSPC;
    }
    int r = 0;
    if (!w->bare && mprotect(start, bytes, PROT_READ | PROT_WRITE) < 0)
        r = -errno;
    else if (w->published && madvise(start, bytes, MADV_POPULATE_WRITE) < 0)
        r = errno == EFAULT ? -ENOSPC : -errno;
    if (r < 0)
        w->refused = REFUSALS;
    return r;
}

int book_section_open(struct book_writer *w, uint32_t kind, uint64_t bytes)
{
    struct book_section *section = w->section[kind];
    if (bytes <= section->open)
        return 0;
    if (bytes > section->size)
        return -ENOSPC;
    uint64_t open = align_up(bytes, w->page_bytes);
    int r = open_pages(w, w->at[kind] + section->open, open - section->open);
    if (r < 0)
        return r;
    store_release(&section->open, open);
    return 0;
}

int book_section_open_range(struct book_writer *w, uint32_t kind, uint64_t offset, uint64_t bytes)
{
    struct book_section *section = w->section[kind];
    if (offset + bytes > section->size)
        return -ENOSPC;
    uint64_t first = offset / w->page_bytes * w->page_bytes;
    uint64_t end = align_up(offset + bytes, w->page_bytes);
    int r = open_pages(w, w->at[kind] + first, end - first);
    if (r < 0)
        return r;
    if (end > section->open)
        store_release(&section->open, end);
    return 0;
}

int64_t book_entry_next(struct book_writer *w, uint32_t kind, uint64_t most)
{
    struct book_section *section = w->section[kind];
    uint64_t number = section->used > 0 ? section->used : 1;
    if (number >= most)
        return -ENOSPC;
    int r = book_section_open(w, kind, (number + 1) * section->entry_size);
    return r < 0 ? r : (int64_t)number;
}

void book_entry_done(struct book_writer *w, uint32_t kind, int64_t number)
{
    store_release(&w->section[kind]->used, (uint64_t)number + 1);
}

size_t book_moves_bytes(const struct book_writer *w)
{
    uint64_t pages = w->section[BOOK_SECTION_MOVES]->size / w->page_bytes;
    return align_up(pages / 8 + 8, w->page_bytes);
}

int book_moves_prepare(struct book_writer *w)
{
    if (w->moves_open)
        return 0;
    uint64_t *bits = w->sealed ? NULL : book_private_new(book_moves_bytes(w));
    if (!bits)
        return -ENOMEM;
    store_release(&w->moves_open, bits);
    store_relaxed(&w->table.plain, false);
    return 0;
}

/* ---- small things ---- */

void book_calm_begin(struct book_calm *calm)
{
    sigset_t all;
    sigfillset(&all);
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &calm->cancel_state);
    pthread_sigmask(SIG_SETMASK, &all, &calm->signals);
}

void book_calm_end(const struct book_calm *calm)
{
    pthread_sigmask(SIG_SETMASK, &calm->signals, NULL);
    pthread_setcancelstate(calm->cancel_state, NULL);
}

void book_lock_rest(const void *lock, uint64_t held)
{
    struct timespec most = {.tv_nsec = 1000000};
    int saved = errno;
    syscall(SYS_futex, lock, FUTEX_WAIT_PRIVATE, (uint32_t)held, &most, NULL, 0);
    errno = saved;
}

/* How long to wait, as a shift: a lock that was waited for in vain gets half the time at each further try. */
static unsigned impatience(struct book_writer *w, uint32_t *lock)
{
    uint32_t vain = load_relaxed(&w->lost_lock) == lock ? load_relaxed(&w->waits_in_vain) : 0;
    return vain < 31 ? vain : 31;
}

/* Between two looks at a lock. False: long enough. The holder may be a thread that gets no time on a busy machine, so it is
 * the clock that counts. */
static bool wait_on(const struct book_writer *w, const uint32_t *lock, unsigned yields,
                    unsigned shift, uint64_t *until_ns)
{
    if (w->sealed)
        return yields < (unsigned)YIELDS_SEALED >> shift;
    if (yields < (unsigned)YIELDS >> shift) {
        sched_yield();
        return true;
    }
    uint64_t now_ns = clock_monotonic_ns();
    if (*until_ns == 0)
        *until_ns = now_ns + (NS_PER_S >> shift);
    if (now_ns >= *until_ns)
        return false;
    uint32_t held = load_relaxed(lock);
    if (held)
        book_lock_rest(lock, held);
    return true;
}

bool book_lock_wait(struct book_writer *w, uint32_t *lock, uint32_t word)
{
    unsigned shift = impatience(w, lock), yields = 0;
    uint64_t until_ns = 0;
    do {
        for (unsigned i = 0; i < SPINS; i++) {
            uint32_t free_word = 0;
            if (load_relaxed(lock) == 0 && cas_acquire(lock, &free_word, word)) {
                if (load_relaxed(&w->lost_lock) == lock)
                    store_relaxed(&w->lost_lock, NULL);
                return true;
            }
            cpu_relax();
        }
    } while (wait_on(w, lock, yields++, shift, &until_ns));
    bool again = load_relaxed(&w->lost_lock) == lock;
    store_relaxed(&w->waits_in_vain, again ? load_relaxed(&w->waits_in_vain) + 1 : 1);
    store_relaxed(&w->lost_lock, lock);
    book_lose(w, BOOK_LOSS_STUCK_LOCK);
    return false;
}

void book_lose(struct book_writer *w, enum book_loss cause)
{
    fetch_add_relaxed(&w->header->losses[cause], 1);
}
