/*
 * account.c: see account.h.
 *
 * The usual call is for a small block, in a thread that has a heap and has seen its caller before: the slab tells where the
 * block's word is, and four counters change. As in src/track/wrap.c all that is unusual is left to a function that is called last, so
 * that the usual way saves no registers.
 */
#include "malloc/account.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "malloc/core.h"
#include "malloc/heap_error.h"
#include "malloc/thread.h"
#include "malloc/words.h"
#include "track/beside.h"
#include "track/fast.h"

#define LATER __attribute__((noinline))

/* ---- what the tracker asks of the allocator below: track/real.h ---- */

void *real_realloc(void *block, size_t bytes)
{
    return core_realloc(block, bytes);
}

size_t real_usable(void *block)
{
    return core_usable(block);
}

/* Found when it is first needed: most programs close no library. */
int real_dlclose(void *handle)
{
    static int (*next)(void *);
    if (!load_relaxed(&next)) {
        int (*found)(void *) = NULL;
        *(void **)&found = dlsym(RTLD_NEXT, "dlclose");
        store_relaxed(&next, found);
    }
    return load_relaxed(&next)(handle);
}

bool real_is_below(void *other_malloc, void *other_free)
{
    if (!other_malloc || !other_free)
        return false;
    void *block = ((void *(*)(size_t))other_malloc)(1);
    bool ours = block && core_usable(block) != 0;
    ((void (*)(void *))other_free)(block);
    return ours;
}

__attribute__((section(".text.startup"))) bool real_wanted(void)
{
    start_modes();
    return (thread_modes & MODE_ACCOUNT) != 0; /* not in a hardened heap, whatever is asked for */
}

/* ---- and where it keeps what it knows of a block: track/beside.h ---- */

static_assert((int)BESIDE_SITES == (int)WORD_SITES &&
                  (int)BESIDE_GENERATIONS_MAX == (int)WORD_GENERATIONS_MAX,
              "as a word has them");

uint64_t beside_stamp(uint32_t time)
{
    return word_time_pack(time);
}

uint64_t beside_site(uint32_t site, uint32_t generation)
{
    return (uint64_t)(site % WORD_SITES) << WORD_SITE_SHIFT;
}

bool beside_ready(void *block)
{
    if (map_kind(block) != MAP_MACRO)
        return true;
    struct slab *s = slab_of(block);
    return s->class == SLAB_LARGE || words_attach(s);
}

enum beside_where beside_named(const void *block, uint32_t site)
{
    if (map_kind(block) != MAP_MACRO)
        return BESIDE_NOT;
    return site < WORD_SITES ? BESIDE_THERE : BESIDE_NOTHING;
}

enum beside_where beside_put(struct book_trailer_key k, void *block, size_t bytes, uint32_t site,
                             uint32_t time, bool sampled)
{
    if (map_kind(block) != MAP_MACRO)
        return BESIDE_NOT;
    uint32_t low = (uint32_t)(beside_site(site, 0) | beside_stamp(time));
    bool put = site < WORD_SITES && beside_ready(block) &&
               words_put(block, bytes, low, k.generation, sampled);
    return put ? BESIDE_THERE : BESIDE_NOTHING;
}

enum beside_where beside_take(struct book_trailer_key k, void *block, void **ret_place,
                              uint64_t *ret_word, struct book_trailer *ret)
{
    struct word word;
    if (map_kind(block) != MAP_MACRO)
        return BESIDE_NOT;
    struct word *place = words_take(block, k.generation, &word, ret);
    if (!place)
        return BESIDE_NOTHING;
    *ret_place = place;
    *ret_word = word.high; /* the rest stays */
    return BESIDE_THERE;
}

void beside_put_back(void *place, uint64_t word)
{
    ((struct word *)place)->high = (uint16_t)word;
}

bool beside_usable(const void *block, size_t *usable)
{
    if (map_kind(block) != MAP_MACRO)
        return false;
    *usable -= words_inside(block);
    return true;
}

void beside_enter(struct book_header *header)
{
    header->trailer_format = BOOK_TRAILER_FORMAT_WORDS;
}

/* ---- a block more ---- */

static LATER void *no_memory(void)
{
    errno = ENOMEM;
    return NULL;
}

static void *or_enomem(void *block)
{
    return likely(block) ? block : no_memory();
}

static void forget(void *block)
{
    if (map_kind(block) == MAP_MACRO)
        words_forget(block);
}

/* A block that has no word, or not yet, or NULL. */
static void *uncounted(void *block)
{
    if (likely(block))
        forget(block);
    return or_enomem(block);
}

/* What to ask for: a huge block has to have room for a trailer. */
static inline size_t request_of(size_t bytes)
{
    return likely(bytes <= HEAP_LARGE_MAX) ? bytes : track_request(bytes);
}

/* The first word of a free block links it to the next one. In a block that the program never writes, a scan for lost blocks (scan/scan.h) would
 * take that for a pointer of the program's. Its cache line was just read. */
INLINE void link_clear(void *block)
{
    *(void **)block = NULL;
}

/* The same where it may be large or huge, which are in no list: they are not touched, since they may have no memory yet. */
static void *link_clear_any(void *block)
{
    if (block && map_kind(block) == MAP_MACRO && slab_of(block)->class != SLAB_LARGE)
        link_clear(block);
    return block;
}

static LATER void *malloc_slowly(size_t bytes, uintptr_t caller)
{
    if (bytes > BOOK_TRAILER_SIZE_MAX || !track_wanted())
        return uncounted(core_malloc_slowly(bytes));
    void *block = uncounted(link_clear_any(core_malloc_slowly(request_of(bytes))));
    return likely(block) ? track_alloc(block, bytes, caller) : NULL;
}

/* A block that may get no word in the end. */
static LATER void *done_unusually(void *block, size_t bytes, uintptr_t caller)
{
    forget(block);
    return track_done(block, bytes, caller);
}

/* A block that the budget has not been charged for. */
static LATER void *done_slowly(void *block, size_t bytes, uintptr_t caller)
{
    track_self->budget -= (int64_t)bytes;
    return done_unusually(block, bytes, caller);
}

/* Where nothing is known of the block but that this thread may count it. */
static LATER void *malloc_any(size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    if (unlikely(!track_may_alloc(t, &track_page.root.pass) || bytes > BOOK_TRAILER_SIZE_MAX))
        return malloc_slowly(bytes, caller);
    void *block = link_clear_any(core_malloc_slowly(request_of(bytes)));
    return likely(block) ? done_slowly(block, bytes, caller) : no_memory();
}

/* Store the word of a block, and count it: all that is left where nothing is unusual. `slack`: bytes of the block beyond those asked for. */
INLINE void *word_put(struct track_thread *t, const struct slab *s, struct word *words, void *block,
                      size_t bytes, uint32_t slack, const struct track_site *entry)
{
    struct word *word = words_at(words, s, block);
    word->low = (uint32_t)entry->short_site + (uint32_t)t->stamp;
    /* Who reads from outside finds no word before its site. */
    store_release(&word->high, (uint16_t)((slack << WORD_SLACK_SHIFT) + (uint32_t)t->generation));
    count_alloc(t, entry->counters, bytes);
    return block;
}

/* A block of a slab with words, whose slack a word can tell, used up the budget: mostly it is only time to look at the clock. */
static LATER void *slab_ticked(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    const struct slab *s = slab_of(block);
    t->budget += (int64_t)bytes;
    if (track_sample_left(t) < (int64_t)bytes)
        return done_slowly(block, bytes, caller);
    track_tick(t);
    struct track_site *entry = track_site_entry(t, caller);
    t->budget -= (int64_t)bytes;
    if (unlikely(entry->key != caller))
        return done_unusually(block, bytes, caller);
    uint32_t slack = s->block_bytes - (uint32_t)bytes;
    return word_put(t, s, load_acquire(&s->words), block, bytes, slack, entry);
}

/* Count a block of a slab's that the budget has not been charged for: but for a last call where anything is unusual. A slab
 * that several classes share (bin.h) may leave more room than a word can tell. */
INLINE void *slab_done(struct track_thread *t, const struct slab *s, void *block, size_t bytes,
                       uintptr_t caller)
{
    struct track_site *entry = track_site_entry(t, caller);
    struct word *words = load_acquire(&s->words);
    uint32_t slack = s->block_bytes - (uint32_t)bytes;
    if (unlikely(!words || slack > WORD_SLACK_MAX))
        return done_slowly(block, bytes, caller);
    if (unlikely(charge(&t->budget, bytes)))
        return slab_ticked(block, bytes, caller);
    if (unlikely(entry->key != caller)) {
        entry = track_site_beside(entry);
        if (entry->key != caller)
            return done_unusually(block, bytes, caller);
    }
    return word_put(t, s, words, block, bytes, slack, entry);
}

/* Where all is as usual, but that the slab which comes first has no block. */
static LATER void *malloc_refill(size_t bytes, uintptr_t caller)
{
    void *block = heap_alloc_slowly(heap_own, bytes);
    if (unlikely(!block))
        return malloc_any(bytes, caller); /* after what is not needed was given back */
    link_clear(block);
    return slab_done(track_self, slab_of(block), block, bytes, caller);
}

/* The classes of all sizes that the fast way is for, in steps of SIZE_STEP. One table, where the core tells small blocks from larger
 * ones by a branch: in a program that asks for both it is mispredicted often enough to count. */
static_assert(TRACK_LARGE_BYTES <= (int)SIZE_SMALL_MAX, "they have classes");
static uint8_t classes[TRACK_LARGE_BYTES / SIZE_STEP + 1];

void account_begin(void)
{
    for (size_t i = 0; i < sizeof(classes); i++)
        classes[i] = (uint8_t)size_class(i * SIZE_STEP);
}

INLINE void *malloc_from(struct heap *h, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    if (unlikely(!track_may_alloc(t, &track_page.root.near_pass) || bytes >= TRACK_LARGE_BYTES))
        return malloc_any(bytes, caller);
    struct slab *s = h->way[classes[(bytes + SIZE_STEP - 1) / SIZE_STEP]];
    void *block = slab_pop(s);
    if (unlikely(!block))
        return malloc_refill(bytes, caller);
    link_clear(block);
    return slab_done(t, s, block, bytes, caller);
}

void *account_malloc_own(size_t bytes, uintptr_t caller)
{
    return malloc_from(heap_own, bytes, caller);
}

void *account_malloc(size_t bytes, uintptr_t caller)
{
    struct heap *h = heap_own;
    return likely(h) ? malloc_from(h, bytes, caller) : malloc_any(bytes, caller);
}

/* A block of the core's with room for its trailer, or NULL: count it, by the fast way or by the slow one. */
static void *counted_now(void *block, size_t bytes, uintptr_t caller, bool fast)
{
    if (!block)
        return no_memory();
    return fast ? done_slowly(block, bytes, caller) : track_alloc(uncounted(block), bytes, caller);
}

void *account_calloc(size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    if (likely(bytes <= SIZE_DIRECT_MAX)) {
        void *block = account_malloc(bytes, caller);
        return likely(block) ? memset(block, 0, bytes) : NULL;
    }
    bool fast = track_may_alloc(t, &track_page.root.pass);
    if (bytes > BOOK_TRAILER_SIZE_MAX || (!fast && !track_wanted()))
        return uncounted(core_calloc(bytes));
    void *block = core_calloc(request_of(bytes));
    return counted_now(block, bytes, caller, fast);
}

/* With room for any trailer: who made more would lose the alignment. Alignment alone can make a block huge. */
void *account_memalign(size_t align, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    bool fast = track_may_alloc(t, &track_page.root.pass);
    bool huge = bytes > HEAP_LARGE_MAX || align > HEAP_LARGE_MAX;
    if (bytes > BOOK_TRAILER_SIZE_MAX || (!fast && !track_wanted()))
        return uncounted(core_memalign(align, bytes));
    void *block = core_memalign(align, huge ? book_trailer_request_long(bytes) : bytes);
    return counted_now(link_clear_any(block), bytes, caller, fast);
}

/* ---- a block less ---- */

static LATER void free_slowly(void *block)
{
    if (map_kind(block) == MAP_MACRO || core_usable(block) != 0)
        track_free(block);
    core_free_slowly(block);
}

/* A word that was taken away, and where its block was counted. */
struct held {
    struct word *place;
    uint16_t high;
    struct book_site_counters *site;
    size_t bytes;
};

/* The counters of the site that a word names, in their page: its number times their size, in one step. */
INLINE struct book_site_counters *site_in(struct book_site_counters *page, uint32_t low)
{
    enum { EACH = 32, SHIFT = WORD_SITE_SHIFT - 5 };
    static_assert(sizeof(*page) == EACH && EACH == 1 << 5, "as many bits fewer");
    return (struct book_site_counters *)((char *)page +
                                         (low >> SHIFT & (BOOK_SITES_PER_PAGE - 1) * EACH));
}

/* Take the word of a block of this slab's, which is this process's and can be counted as freed at once; else it is as it was. An address
 * inside a block is refused. */
INLINE bool word_take(struct track_thread *t, const struct slab *s, void *block, struct held *ret)
{
    struct word *words = load_acquire(&s->words);
    uint32_t magic = load_relaxed(&s->magic);
    uint64_t product = words_product(magic, s, block);
    if (unlikely(!words || !words_starts(magic, product)))
        return false;
    struct word *word = &words[product >> 32];
    uint32_t high = word->high, low = word->low;
    struct book_site_counters *page =
        t->book.site_pages[(low >> WORD_SITE_SHIFT) / BOOK_SITES_PER_PAGE];
    if (unlikely((high & (WORD_ODD | WORD_GENERATION_MASK)) != t->generation || !page))
        return false;
    *ret = (struct held){word, (uint16_t)high, site_in(page, low),
                         s->block_bytes - (high >> WORD_SLACK_SHIFT)};
    word->high = (uint16_t)(high & ~WORD_GENERATION_MASK);
    return true;
}

/* Ends the program unless it may be a block that the program has. A word alone is not enough: where the block is must say so, too. */
static void must_be_live(const char *function, void *block)
{
    if (map_kind(block) != MAP_MACRO)
        return; /* the core looks at it */
    const struct slab *s = slab_of(block);
    if (!slab_may_have(s, block))
        heap_error(function, block);
    if (s->class == SLAB_LARGE)
        return;
    const struct word *word = words_find(block);
    if (word && word_is_freed(*word) && heap_error_is_free(s, block))
        heap_error(function, block);
}

static LATER void free_any(void *block)
{
    struct track_thread *t = track_self;
    must_be_live("free", block);
    if (unlikely(!track_is_fast(t, &track_page.root.pass))) {
        free_slowly(block);
        return;
    }
    if (core_usable(block) != 0)
        track_free(block);
    if (unlikely(settle_due(t)))
        track_settle(t);
    core_free(block);
}

/* To the heap that has it, or as it may be. A slab that nobody owns is not that of a thread without a heap. */
INLINE void give(void *block, struct slab *s, bool has_heap)
{
    struct heap *h = heap_own;
    if (likely(load_relaxed(&s->owner) == h) && (has_heap || likely(h)))
        heap_push(h, s, block);
    else
        heap_free_slowly(h, s, block);
}

static LATER void free_settling(void *block, struct slab *s)
{
    struct track_thread *t = track_self;
    if (!settle_quickly(t))
        track_settle(t);
    give(block, s, false);
}

void account_free(void *block)
{
    if (likely(map_kind(block) == MAP_MACRO))
        account_free_slab(block, slab_of(block));
    else
        free_any(block);
}

INLINE void free_counted(void *block, struct slab *s, bool has_heap)
{
    struct track_thread *t = track_self;
    struct held old;
    if (unlikely(!track_is_fast(t, &track_page.root.pass) || !word_take(t, s, block, &old))) {
        free_any(block);
        return;
    }
    count_free(t, old.site, old.bytes);
    if (unlikely(settle_due(t)))
        free_settling(block, s);
    else
        give(block, s, has_heap);
}

void account_free_own(void *block, struct slab *s)
{
    free_counted(block, s, true);
}

void account_free_slab(void *block, struct slab *s)
{
    free_counted(block, s, false);
}

/* ---- a block that changes ---- */

static LATER void *realloc_slowly(void *block, size_t bytes, uintptr_t caller)
{
    if (core_usable(block) == 0)
        return or_enomem(core_realloc(block, bytes)); /* says what is wrong with it */
    must_be_live("realloc", block);
    bool counted = bytes <= BOOK_TRAILER_SIZE_MAX && track_wanted();
    struct track_taken old = track_take(block);
    void *moved = core_realloc(block, counted ? request_of(bytes) : bytes);
    if (!moved) {
        track_put_back(&old);
        return no_memory();
    }
    track_taken_free(&old, true);
    forget(moved);
    return counted ? track_alloc(moved, bytes, caller) : moved;
}

/* As core_realloc(), for a block of a slab's that has had a word: it stays, or moves to a block that is at hand, as strings and lists do that
 * grow; else it goes the long way. */
static inline void *resize(struct slab *s, void *block, size_t bytes)
{
    struct heap *h = heap_own;
    size_t had = s->block_bytes;
    if (core_fits(had, bytes))
        return block;
    void *to = NULL;
    if (likely(h && load_relaxed(&s->owner) == h && bytes <= SIZE_SMALL_MAX))
        to = heap_pop_small(h, bytes);
    if (unlikely(!to))
        return core_realloc(block, request_of(bytes));
    link_clear(to);
    memcpy(to, block, had < bytes ? had : bytes);
    heap_push(h, s, block);
    return to;
}

void *account_realloc(void *block, size_t bytes, uintptr_t caller)
{
    struct track_thread *t = track_self;
    struct held old;
    if (unlikely(!track_may_alloc(t, &track_page.root.pass) || map_kind(block) != MAP_MACRO ||
                 bytes > BOOK_TRAILER_SIZE_MAX || !word_take(t, slab_of(block), block, &old)))
        return realloc_slowly(block, bytes, caller);
    void *to = resize(slab_of(block), block, bytes);
    if (unlikely(!to)) {
        old.place->high = old.high;
        return no_memory();
    }
    count_moved(t, old.site, old.bytes);
    if (likely(track_is_fast(t, &track_page.root.near_pass) && map_kind(to) == MAP_MACRO)) {
        struct slab *s = slab_of(to);
        if (likely(s->class != SLAB_LARGE && bytes < TRACK_LARGE_BYTES))
            return slab_done(t, s, to, bytes, caller);
    }
    return done_slowly(to, bytes, caller);
}

/* ---- the rest ---- */

size_t account_usable(void *block)
{
    if (map_kind(block) == MAP_MACRO)
        return slab_usable(slab_of(block)) - words_inside(block);
    return core_usable(block) ? track_usable(block) : 0;
}
