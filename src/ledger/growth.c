/* Series of call sites. See growth.h. */
#include "ledger/growth.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/accountable.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "ledger/index.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

const struct growth_options growth_daemon = {
    .tiers = {{NS_PER_S, 120}, {10 * NS_PER_S, 90}, {120 * NS_PER_S, 60}, {1200 * NS_PER_S, 72}},
    .sites_max = 2048,
    .sites_per_user_max = 1024,
    .sites_per_book_max = 512,
    .bytes_min = 64 << 10,
};

enum {
    RING_FIRST = 16,
    EMPTY_BLOCK_BYTES = 32, /* glibc gives no less */
};

/* Grows by doubling up to the tier's number of points, then goes round. */
struct ring {
    struct detect_point *points;
    unsigned n, room, next;
};

struct site {
    uint32_t number;
    unsigned idle; /* looks in a row at which it held next to nothing */
    struct ring rings[GROWTH_TIERS_MAX];
    struct detect_point low[GROWTH_TIERS_MAX]; /* of the slot that is not over yet; time 0: none */
};

struct user {
    struct index_node node;
    uint32_t uid;
    size_t sites, books;
};

struct book {
    struct index_node node;
    uint64_t dev, ino;
    struct user *user;
    uint64_t round;
    uint64_t first_ns, last_ns; /* looks */
    struct site **sites;        /* by number */
    size_t n, room;
    size_t left_out;
};

struct growth {
    struct growth_options options;
    size_t n_tiers, points_max;
    uint64_t step_ns, seed, round;
    struct index books, users;
    size_t n_sites, bytes;
    struct book_site_counters *counters; /* of the book at hand */
    uint64_t refused_bytes; /* a site of it that holds so much finds no room; 0: none did */
    size_t room;
    struct detect_point *merged; /* points_max */
};

int growth_new(const struct growth_options *options, struct growth **ret_growth)
{
    MEMOIR_CLEANUP(growth_freep)
    struct growth *g = calloc(1, sizeof(*g));
    if (!g)
        return -ENOMEM;
    g->options = *options;
    for (; g->n_tiers < GROWTH_TIERS_MAX && options->tiers[g->n_tiers].points; g->n_tiers++)
        g->points_max += options->tiers[g->n_tiers].points;
    g->step_ns = options->tiers[0].step_ns;
    g->seed = hash_mix(clock_monotonic_ns() ^ (uintptr_t)g);
    g->merged = calloc(g->points_max + 1, sizeof(*g->merged));
    if (!g->merged)
        return -ENOMEM;
    *ret_growth = MEMOIR_TAKE(g);
    return 0;
}

/* ---- sites ---- */

static void site_free(struct growth *g, struct book *book, size_t at)
{
    struct site *site = book->sites[at];
    for (size_t k = 0; k < g->n_tiers; k++) {
        g->bytes -= site->rings[k].room * sizeof(struct detect_point);
        free(site->rings[k].points);
    }
    free(site);
    book->n--;
    memmove(book->sites + at, book->sites + at + 1, (book->n - at) * sizeof(*book->sites));
    book->user->sites--;
    g->n_sites--;
    g->bytes -= sizeof(*site);
}

static struct site *site_new(struct growth *g, struct book *book, size_t at, uint32_t number)
{
    if (book->n == book->room) {
        size_t room = book->room ? book->room * 2 : 8;
        struct site **sites = reallocarray(book->sites, room, sizeof(*sites));
        if (!sites)
            return NULL;
        book->sites = sites;
        book->room = room;
    }
    struct site *site = calloc(1, sizeof(*site));
    if (!site)
        return NULL;
    site->number = number;
    memmove(book->sites + at + 1, book->sites + at, (book->n - at) * sizeof(*book->sites));
    book->sites[at] = site;
    book->n++;
    book->user->sites++;
    g->n_sites++;
    g->bytes += sizeof(*site);
    return site;
}

/* What a site holds, as far as it is worth watching: of blocks without bytes, what they cost their allocator. */
static uint64_t worth(const struct detect_point *point)
{
    uint64_t blocks = detect_live_blocks(point);
    if (point->alloc_bytes > 0)
        return detect_live_bytes(point);
    return blocks < UINT64_MAX / EMPTY_BLOCK_BYTES ? blocks * EMPTY_BLOCK_BYTES : UINT64_MAX;
}

/* Without memory the point is lost, and the series has a gap. */
static void ring_push(struct growth *g, struct ring *ring, unsigned points_max,
                      const struct detect_point *point)
{
    if (ring->n == ring->room && ring->room < points_max) {
        unsigned room = ring->room ? ring->room * 2 : RING_FIRST;
        if (room > points_max)
            room = points_max;
        struct detect_point *points = reallocarray(ring->points, room, sizeof(*points));
        if (!points)
            return;
        g->bytes += (room - ring->room) * sizeof(*points);
        ring->points = points;
        ring->room = room;
    }
    if (ring->n < ring->room) {
        ring->points[ring->n++] = *point;
        return;
    }
    ring->points[ring->next] = *point;
    ring->next = (ring->next + 1) % ring->n;
}

static void site_push(struct growth *g, struct site *site, const struct detect_point *point)
{
    ring_push(g, &site->rings[0], g->options.tiers[0].points, point);
    for (size_t k = 1; k < g->n_tiers; k++) {
        const struct growth_tier *tier = &g->options.tiers[k];
        struct detect_point *low = &site->low[k];
        if (low->time_ns && low->time_ns / tier->step_ns != point->time_ns / tier->step_ns) {
            ring_push(g, &site->rings[k], tier->points, low);
            low->time_ns = 0;
        }
        if (!low->time_ns || worth(point) < worth(low))
            *low = *point;
    }
}

/* ---- books ---- */

static struct user *user_get(struct growth *g, uint32_t uid)
{
    uint64_t hash = hash_mix(g->seed ^ uid);
    for (struct index_node *node = index_first(&g->users, hash); node;
         node = index_next(node->next, hash))
        if (index_row(node, struct user, node)->uid == uid)
            return index_row(node, struct user, node);
    struct user *user = calloc(1, sizeof(*user));
    if (!user || index_reserve(&g->users) < 0) {
        free(user);
        return NULL;
    }
    user->uid = uid;
    index_insert(&g->users, &user->node, hash);
    return user;
}

static struct book *book_get(struct growth *g, const struct ledger_book *of, uint64_t now_ns)
{
    uint64_t dev = of->identity->st_dev, ino = of->identity->st_ino;
    uint64_t hash = hash_combine(hash_combine(g->seed, dev), ino);
    for (struct index_node *node = index_first(&g->books, hash); node;
         node = index_next(node->next, hash)) {
        struct book *book = index_row(node, struct book, node);
        if (book->dev == dev && book->ino == ino)
            return book;
    }
    struct book *book = calloc(1, sizeof(*book));
    if (!book || !(book->user = user_get(g, accountable_uid(of->place_uid))) ||
        index_reserve(&g->books) < 0) {
        free(book);
        return NULL;
    }
    book->dev = dev;
    book->ino = ino;
    book->first_ns = now_ns;
    book->user->books++;
    index_insert(&g->books, &book->node, hash);
    return book;
}

static void book_free(struct growth *g, struct book *book)
{
    while (book->n)
        site_free(g, book, book->n - 1);
    if (--book->user->books == 0) {
        index_remove(&g->users, &book->user->node);
        free(book->user);
    }
    index_remove(&g->books, &book->node);
    free(book->sites);
    free(book);
}

void growth_free(struct growth *growth)
{
    if (!growth)
        return;
    growth->round += 2;
    growth_end(growth);
    index_release(&growth->books);
    index_release(&growth->users);
    free(growth->counters);
    free(growth->merged);
    free(growth);
}

void growth_freep(struct growth **growth)
{
    growth_free(*growth);
}

/* ---- a look ---- */

void growth_begin(struct growth *growth)
{
    growth->round++;
}

/* A book that lies may count more freed than allocated. */
static struct detect_point point_of(const struct book_site_counters *c, uint64_t now_ns)
{
    return (struct detect_point){
        .time_ns = now_ns,
        .alloc_bytes = c->alloc_bytes,
        .freed_bytes = c->freed_bytes < c->alloc_bytes ? c->freed_bytes : c->alloc_bytes,
        .alloc_blocks = c->alloc_blocks,
        .freed_blocks = c->freed_blocks < c->alloc_blocks ? c->freed_blocks : c->alloc_blocks,
    };
}

/* Which of its sites holds least; n: it has none. */
static size_t least_of(const struct growth *g, const struct book *book, uint64_t *ret_held)
{
    size_t least = book->n;
    uint64_t held = UINT64_MAX;
    for (size_t i = 0; i < book->n; i++) {
        if (book->sites[i]->number == (uint32_t)GROWTH_OUTSIDE)
            continue;
        struct detect_point p = point_of(&g->counters[book->sites[i]->number], 0);
        if (worth(&p) < held) {
            held = worth(&p);
            least = i;
        }
    }
    *ret_held = held;
    return least;
}

/* Room for one more: within the limits, or in the place of who holds least and less than half as much. Who is refused is
 * so by a number from before, since there may be very many: it can only have risen. */
static bool make_room(struct growth *g, struct book *book, uint64_t bytes, size_t *at)
{
    const struct growth_options *o = &g->options;
    if (book->n < o->sites_per_book_max && g->n_sites < o->sites_max &&
        (book->user->uid == 0 || book->user->sites < o->sites_per_user_max))
        return true;
    if (g->refused_bytes && bytes <= g->refused_bytes)
        return false;
    uint64_t held = 0;
    size_t least = least_of(g, book, &held);
    if (held >= bytes / 2) { /* or there is none to go */
        g->refused_bytes = least == book->n ? UINT64_MAX : bytes;
        return false;
    }
    site_free(g, book, least);
    *at -= least < *at;
    return true;
}

/* The first block of a site: it held nothing at all the looks before. */
static void push_nothing(struct growth *g, const struct book *book, struct site *site)
{
    struct detect_point nothing = {0};
    for (uint64_t time_ns = book->first_ns; time_ns < book->last_ns; time_ns += g->step_ns) {
        nothing.time_ns = time_ns;
        site_push(g, site, &nothing);
    }
}

static void look_at(struct growth *g, struct book *book, uint32_t number, size_t *at,
                    uint64_t now_ns)
{
    struct detect_point point = point_of(&g->counters[number], now_ns);
    uint64_t live = worth(&point), min = g->options.bytes_min;
    if (*at < book->n && book->sites[*at]->number == number) {
        struct site *site = book->sites[*at];
        site->idle = live < min / 4 ? site->idle + 1 : 0;
        if (site->idle > GROWTH_IDLE_LOOKS) {
            site_free(g, book, *at);
            return;
        }
        site_push(g, site, &point);
        ++*at;
        return;
    }
    if (point.alloc_blocks == 0 || live < min)
        return;
    struct site *site = make_room(g, book, live, at) ? site_new(g, book, *at, number) : NULL;
    if (!site) {
        book->left_out++;
        return;
    }
    if (min == 0)
        push_nothing(g, book, site);
    site_push(g, site, &point);
    ++*at;
}

static int room_for(struct growth *g, size_t n)
{
    if (n <= g->room)
        return 0;
    struct book_site_counters *counters = reallocarray(g->counters, n, sizeof(*counters));
    if (!counters)
        return -ENOMEM;
    g->counters = counters;
    g->room = n;
    return 0;
}

static int counters_read(struct growth *g, const struct ledger_book *book, size_t *ret_n)
{
    for (size_t room = g->room ? g->room : 1024;; room *= 2) {
        int r = room_for(g, room);
        if (r == 0)
            r = book_reader_site_counters(book->reader, g->counters, g->room, ret_n);
        if (r < 0 || *ret_n < g->room || g->room >= GROWTH_SITES_READ_MAX)
            return r;
    }
}

/* What the book counts, at all sites together. */
static uint64_t counted(const struct growth *g, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        struct detect_point p = point_of(&g->counters[i], 0);
        if (__builtin_add_overflow(sum, detect_live_bytes(&p), &sum))
            return UINT64_MAX;
    }
    return sum;
}

/* The last of its series, since its number is the highest. */
static void look_outside(struct growth *g, struct book *book, const struct ledger_book *of,
                         size_t n, uint64_t now_ns)
{
    const struct ledger_process *p = of->process;
    struct proc_memory memory;
    if (!book_source_counts_heap(of->identity->source) || !p || !(p->valid & LEDGER_HAS_PID) ||
        *p->host || !ledger_process_holds(p) || proc_memory_read(p->pid, &memory) < 0)
        return;
    uint64_t rss = memory.rss_bytes, heap = counted(g, n);
    struct detect_point point = {.time_ns = now_ns, .alloc_bytes = rss > heap ? rss - heap : 0};
    size_t at = book->n;
    struct site *site = at > 0 ? book->sites[at - 1] : NULL;
    if (!site || site->number != (uint32_t)GROWTH_OUTSIDE)
        site = make_room(g, book, point.alloc_bytes, &at)
                   ? site_new(g, book, book->n, (uint32_t)GROWTH_OUTSIDE)
                   : NULL;
    if (site)
        site_push(g, site, &point);
}

int growth_look(struct growth *growth, const struct ledger_book *of, uint64_t now_ns)
{
    struct book *book = book_get(growth, of, now_ns);
    size_t n, at = 0;
    if (!book)
        return -ENOMEM;
    book->round = growth->round;
    /* A quarter early is no reason to skip a point: rounds do not come like clockwork. */
    if (book->last_ns && now_ns - book->last_ns < growth->step_ns * 3 / 4)
        return 0;
    int r = counters_read(growth, of, &n);
    if (r < 0)
        return r;
    book->left_out = n >= GROWTH_SITES_READ_MAX;
    growth->refused_bytes = 0;
    /* A site that holds most may push out one that comes later: it is then found by its number again. */
    for (uint32_t number = 1; number < n; number++)
        look_at(growth, book, number, &at, now_ns);
    look_outside(growth, book, of, n, now_ns);
    book->last_ns = now_ns;
    return 0;
}

void growth_end(struct growth *growth)
{
    for (size_t i = 0; i < growth->books.n_buckets; i++)
        for (struct index_node *node = growth->books.buckets[i], *next; node; node = next) {
            struct book *book = index_row(node, struct book, node);
            next = node->next;
            if (growth->round - book->round > 1)
                book_free(growth, book);
        }
}

struct growth_counts growth_counts(const struct growth *growth)
{
    struct growth_counts counts = {
        .books = growth->books.n, .sites = growth->n_sites, .bytes = growth->bytes};
    for (size_t i = 0; i < growth->books.n_buckets; i++)
        for (const struct index_node *node = growth->books.buckets[i]; node; node = node->next)
            counts.left_out += index_row(node, const struct book, node)->left_out;
    return counts;
}

/* ---- reading ---- */

static const struct detect_point *ring_at(const struct ring *ring, unsigned i)
{
    return &ring->points[ring->n ? (ring->next + i) % ring->n : 0];
}

/* Coarse points end where finer ones begin. */
static size_t merge(struct growth *g, const struct site *site)
{
    size_t n = 0;
    for (size_t k = g->n_tiers; k-- > 0;) {
        const struct ring *ring = &site->rings[k];
        uint64_t until_ns = UINT64_MAX;
        for (size_t finer = k; finer-- > 0;)
            if (site->rings[finer].n && ring_at(&site->rings[finer], 0)->time_ns < until_ns)
                until_ns = ring_at(&site->rings[finer], 0)->time_ns;
        for (unsigned i = 0; i < ring->n; i++) {
            const struct detect_point *p = ring_at(ring, i);
            if (p->time_ns < until_ns)
                g->merged[n++] = *p;
        }
    }
    return n;
}

int growth_each(struct growth *growth,
                int (*each)(const struct growth_series *series, void *context), void *context)
{
    for (size_t i = 0; i < growth->books.n_buckets; i++)
        for (struct index_node *node = growth->books.buckets[i]; node; node = node->next) {
            const struct book *book = index_row(node, struct book, node);
            for (size_t s = 0; s < book->n; s++) {
                struct growth_series series = {
                    .dev = book->dev,
                    .ino = book->ino,
                    .site = book->sites[s]->number,
                    .points = growth->merged,
                    .n = merge(growth, book->sites[s]),
                };
                int r = each(&series, context);
                if (r != 0)
                    return r;
            }
        }
    return 0;
}
