/* Call sites of the process that top shows. See top.h.
 *
 * Copying the sites of a book takes milliseconds where there are many, so the table is kept for a while. Names come
 * from debug information, which may take long the first time: each look names what it can in a moment, later ones
 * the rest. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/table.h"
#include "cli/top.h"
#include "ledger/ledger.h"
#include "profile/book_names.h"

#define KEPT_NS   (2 * NS_PER_S)
#define NAMING_NS (200 * NS_PER_MS)

enum { SITES_SHOWN = 20 };

enum { SITE_LIVE, SITE_SHARE, SITE_BLOCKS, SITE_CALLS, SITE_WHERE };

static const struct column columns[] = {
    [SITE_LIVE] = {"live_bytes", "LIVE", "bytes that live", COLUMN_BYTES},
    [SITE_SHARE] = {"share", "SHARE", "of all sites", COLUMN_PERCENT},
    [SITE_BLOCKS] = {"live_blocks", "BLOCKS", "blocks that live", COLUMN_NUMBER},
    [SITE_CALLS] = {"calls", "CALLS", "allocations so far", COLUMN_NUMBER, 0, 2},
    [SITE_WHERE] = {"site", "WHERE", "place in the code", COLUMN_TEXT, COLUMN_STRETCH},
    {0},
};

struct top_sites {
    struct table table;
    pid_t pid;
    uint64_t start_ticks, taken_ns;
};

struct top_sites *top_sites_new(void)
{
    struct top_sites *sites = calloc(1, sizeof(*sites));
    if (sites)
        table_init(&sites->table, columns);
    return sites;
}

void top_sites_free(struct top_sites *sites)
{
    if (!sites)
        return;
    table_release(&sites->table);
    free(sites);
}

/* ---- the largest ---- */

struct site {
    uint64_t live_bytes, live_blocks, calls;
    size_t book;
    uint32_t number;
};

struct largest {
    struct site sites[SITES_SHOWN]; /* the largest first */
    size_t n;
    uint64_t all_bytes;
};

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static void largest_put(struct largest *l, const struct site *site)
{
    size_t at = l->n < SITES_SHOWN ? l->n : SITES_SHOWN;
    while (at > 0 && l->sites[at - 1].live_bytes < site->live_bytes)
        at--;
    if (at == SITES_SHOWN)
        return;
    size_t moved = (l->n < SITES_SHOWN ? l->n : SITES_SHOWN - 1) - at;
    memmove(&l->sites[at + 1], &l->sites[at], moved * sizeof(*l->sites));
    l->sites[at] = *site;
    l->n += l->n < SITES_SHOWN;
}

static void largest_of(const struct book_sites *sites, size_t book, struct largest *l)
{
    for (size_t i = 1; i < sites->n_sites; i++) {
        const struct book_site_counters *c = &sites->counters[i];
        if (sites->sites[i].flags & BOOK_SITE_SAMPLED)
            continue; /* an estimate of blocks that count at their caller's site already */
        struct site site = {
            .live_bytes = minus(c->alloc_bytes, c->freed_bytes),
            .live_blocks = minus(c->alloc_blocks, c->freed_blocks),
            .calls = c->alloc_blocks,
            .book = book,
            .number = (uint32_t)i,
        };
        if (__builtin_add_overflow(l->all_bytes, site.live_bytes, &l->all_bytes))
            l->all_bytes = UINT64_MAX;
        if (site.live_bytes)
            largest_put(l, &site);
    }
}

/* ---- the table ---- */

static void row_add(struct table *table, const struct site *site, uint64_t all_bytes,
                    const struct book_site_name *name)
{
    table_row(table);
    table_set_number(table, SITE_LIVE, site->live_bytes);
    table_set_number(table, SITE_SHARE,
                     (uint64_t)(10000.0 * (double)site->live_bytes / (double)all_bytes + 0.5));
    table_set_number(table, SITE_BLOCKS, site->live_blocks);
    table_set_number(table, SITE_CALLS, site->calls);
    if (name)
        table_set_text(table, SITE_WHERE, name->text);
    if (name && name->via)
        table_set_via(table, SITE_WHERE, name->via);
}

static void take(struct top_sites *sites, const struct ledger_process *books,
                 struct site_names *symbols)
{
    struct book_names names[LEDGER_BOOKS_PER_PROCESS_MAX] = {0};
    struct largest largest = {0};
    for (size_t b = 0; b < books->n_books; b++)
        if (book_names_load(books->books[b], &names[b]) == 0)
            largest_of(&names[b].copy, b, &largest);
    uint64_t until_ns = clock_monotonic_ns() + NAMING_NS;
    table_release(&sites->table);
    table_init(&sites->table, columns);
    for (size_t i = 0; i < largest.n; i++) {
        const struct site *site = &largest.sites[i];
        bool late = clock_monotonic_ns() > until_ns;
        const struct book_site_name *name =
            book_names_site(&names[site->book], site->number, late ? NULL : symbols);
        row_add(&sites->table, site, largest.all_bytes, name);
    }
    for (size_t b = 0; b < books->n_books; b++)
        book_names_release(&names[b]);
}

int top_sites_append(struct top_sites *sites, const struct ledger_process *books,
                     struct site_names *symbols, const struct term *term, struct buffer *out)
{
    uint64_t now_ns = clock_monotonic_ns();
    bool same = sites->pid == books->book_pid && sites->start_ticks == books->start_ticks;
    if (!same || now_ns - sites->taken_ns >= KEPT_NS) {
        take(sites, books, symbols);
        sites->pid = books->book_pid;
        sites->start_ticks = books->start_ticks;
        sites->taken_ns = clock_monotonic_ns();
    }
    if (!sites->table.n_rows)
        return 0;
    struct table_layout layout = {.header = true};
    return table_print(&sites->table, &layout, term, out);
}
