/* Call sites of the process that top shows: the table `sites` of the query core. See top.h.
 *
 * Reading the sites of a book takes milliseconds where there are many, so the table is kept for a while. The largest are
 * found first and named then, since names come from debug information, which may take long the first time: each look
 * names what it can in a moment, later ones the rest. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/table.h"
#include "cli/top.h"
#include "profile/site_lines.h"
#include "profile/site_names.h"
#include "query/query.h"

#define KEPT_NS   (2 * NS_PER_S)
#define NAMING_NS (200 * NS_PER_MS)

enum { SITES_SHOWN = 20, WHERE_MAX = 4096 };

enum { SITE_LIVE, SITE_SHARE, SITE_BLOCKS, SITE_CALLS, SITE_WHERE };

static const struct column columns[] = {
    [SITE_LIVE] = {"bytes", "LIVE", "bytes that live", COLUMN_BYTES},
    [SITE_SHARE] = {"share", "SHARE", "of all sites", COLUMN_PERCENT},
    [SITE_BLOCKS] = {"blocks", "BLOCKS", "blocks that live", COLUMN_NUMBER},
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

/* ---- the questions ---- */

struct answer {
    struct query *query;
    struct query_result *result;
};

static void answer_release(struct answer *answer)
{
    query_result_free(answer->result);
    query_free(answer->query);
}

static int ask(const struct query_world *world, const struct query_spec *spec, struct answer *ret)
{
    struct query_error error;
    int r = query_new(spec, &ret->query, &error);
    if (r == 0)
        r = query_result_new(ret->query, 0, &ret->result);
    if (r == 0)
        r = query_run(ret->query, world, ret->result);
    return r < 0 ? r : query_result_finish(ret->result);
}

struct naming {
    struct site_names *symbols;
    struct site_lines lines;
    uint64_t until_ns;
};

static bool line_in_time(const struct ledger_book *book, uint32_t site, struct query_site *ret_site,
                         void *context)
{
    struct naming *naming = context;
    return clock_monotonic_ns() < naming->until_ns &&
           site_lines_find(&naming->lines, book, site, ret_site);
}

/* A name that takes too long is left to a later look. */
static bool name_in_time(const struct query_code *code, struct query_source *ret_source,
                         void *context)
{
    const struct naming *naming = context;
    return clock_monotonic_ns() < naming->until_ns &&
           site_names_source(naming->symbols, code, ret_source);
}

static void naming_release(struct naming *naming)
{
    site_lines_release(&naming->lines);
}

enum { LARGEST_KEY, LARGEST_BYTES, LARGEST_BLOCKS, LARGEST_CALLS };

static int ask_largest(const struct query_world *world, pid_t pid, struct answer *ret)
{
    char where[64];
    snprintf(where, sizeof(where), "pid=%d and bytes>0", (int)pid);
    return ask(world,
               &(struct query_spec){.table = "sites",
                                    .where = where,
                                    .by = "key",
                                    .show = "bytes,blocks,allocated_blocks",
                                    .sort = "-bytes,+key",
                                    .limit = SITES_SHOWN,
                                    .others = true},
               ret);
}

static int ask_names(const struct query_world *world, pid_t pid, const struct answer *largest,
                     struct answer *ret)
{
    MEMOIR_CLEANUP(buffer_release)
    struct buffer where = BUFFER_INIT(WHERE_MAX);
    buffer_printf(&where, "pid=%d and (key=none", (int)pid);
    for (size_t i = 0; i < query_result_rows(largest->result); i++)
        buffer_printf(&where, " or key=\"%s\"",
                      query_result_value(largest->result, i, LARGEST_KEY).text);
    buffer_append_str(&where, ")");
    if (where.error)
        return where.error;
    return ask(
        world,
        &(struct query_spec){
            .table = "sites", .where = buffer_string(&where), .by = "key", .show = "any(site)"},
        ret);
}

/* ---- the table ---- */

static const char *name_of(const struct answer *names, const char *key)
{
    for (size_t i = 0; i < query_result_rows(names->result); i++) {
        struct query_value site = query_result_value(names->result, i, 1);
        if (strcmp(query_result_value(names->result, i, 0).text, key) == 0)
            return site.state & QUERY_KNOWN ? site.text : NULL;
    }
    return NULL;
}

static uint64_t bytes_of_all(const struct query_result *result)
{
    uint64_t sum =
        query_result_others(result) ? query_result_other(result, LARGEST_BYTES).number : 0;
    for (size_t i = 0; i < query_result_rows(result); i++)
        if (__builtin_add_overflow(sum, query_result_value(result, i, LARGEST_BYTES).number, &sum))
            sum = UINT64_MAX;
    return sum;
}

static int take(struct top_sites *sites, struct top *t, pid_t pid)
{
    MEMOIR_CLEANUP(naming_release)
    struct naming naming = {t->symbols, {.symbols = t->symbols}, clock_monotonic_ns() + NAMING_NS};
    struct query_world world = top_source_world(&t->source);
    world.source_of = t->symbols ? name_in_time : NULL;
    world.site_of = t->symbols ? line_in_time : NULL;
    world.context = &naming;
    MEMOIR_CLEANUP(answer_release)
    struct answer largest = {0};
    MEMOIR_CLEANUP(answer_release)
    struct answer names = {0};
    int r = ask_largest(&world, pid, &largest);
    if (r == 0)
        r = ask_names(&world, pid, &largest, &names);
    if (r < 0)
        return r;
    uint64_t all_bytes = bytes_of_all(largest.result);
    table_release(&sites->table);
    table_init(&sites->table, columns);
    for (size_t i = 0; i < query_result_rows(largest.result); i++) {
        uint64_t live = query_result_value(largest.result, i, LARGEST_BYTES).number;
        const char *name = name_of(&names, query_result_value(largest.result, i, LARGEST_KEY).text);
        table_row(&sites->table);
        table_set_number(&sites->table, SITE_LIVE, live);
        table_set_number(&sites->table, SITE_SHARE,
                         (uint64_t)(10000.0 * (double)live / (double)all_bytes + 0.5));
        table_set_number(&sites->table, SITE_BLOCKS,
                         query_result_value(largest.result, i, LARGEST_BLOCKS).number);
        table_set_number(&sites->table, SITE_CALLS,
                         query_result_value(largest.result, i, LARGEST_CALLS).number);
        if (name)
            table_set_text(&sites->table, SITE_WHERE, name);
    }
    return 0;
}

int top_sites_append(struct top *t, const struct top_row *row, struct buffer *out)
{
    struct top_sites *sites = t->sites;
    uint64_t now_ns = clock_monotonic_ns();
    bool same = sites->pid == row->pid && sites->start_ticks == row->start_ticks;
    if (!same || now_ns - sites->taken_ns >= KEPT_NS) {
        int r = take(sites, t, row->pid);
        if (r < 0)
            return r;
        sites->pid = row->pid;
        sites->start_ticks = row->start_ticks;
        sites->taken_ns = clock_monotonic_ns();
    }
    if (!sites->table.n_rows)
        return 0;
    struct table_layout layout = {.header = true};
    return table_print(&sites->table, &layout, &t->term, out);
}
