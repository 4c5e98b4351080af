/* The table `explain`. See table.h. */
#include "explain/table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/sum.h"
#include "explain/explain.h"
#include "explain/sites.h"
#include "query/query.h"

/* What row->custom is. */
struct part_row {
    const struct explain_subject *subject;
    const struct explain *explain;
    const struct explain_part *part; /* NULL with `explain`: before it is taken */
    const struct explain_site *site; /* NULL: it is none */
};

static const struct part_row *row_of(const struct query_row *row)
{
    return row->custom;
}

/* ---- whose ---- */

static void get_pid(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, (uint64_t)row_of(row)->subject->pid);
}

static void set_name(struct query_value *ret, const char *name)
{
    if (name)
        query_set_text(ret, name);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_program(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, struct query_value *ret)
{
    set_name(ret, row_of(row)->subject->program);
}

static void get_user(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    set_name(ret, row_of(row)->subject->user);
}

static void get_uid(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    if (row_of(row)->subject->uid != UINT32_MAX)
        query_set_number(ret, row_of(row)->subject->uid);
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_node(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    if (world->node)
        query_set_text(ret, world->node);
}

/* ---- what ---- */

static void get_kind(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    query_set_text(ret, explain_kind_key((enum explain_kind)row_of(row)->part->kind));
}

static void get_part(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct part_row *r = row_of(row);
    query_set_text(ret, r->site ? r->site->text : r->part->name);
}

static void get_via(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    const struct explain_site *site = row_of(row)->site;
    if (site && site->via)
        query_set_text(ret, site->via);
}

enum figure {
    FIGURE_BYTES,
    FIGURE_PRIVATE,
    FIGURE_HUGE,
    FIGURE_SWAP,
    FIGURE_MAPPINGS,
    FIGURE_RSS,
    FIGURE_FOLDED,
};

static void get_figure(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct explain_part *p = row_of(row)->part;
    const uint64_t figures[] = {
        [FIGURE_BYTES] = p->bytes,       [FIGURE_PRIVATE] = p->private_bytes,
        [FIGURE_HUGE] = p->huge_bytes,   [FIGURE_SWAP] = p->swap_bytes,
        [FIGURE_MAPPINGS] = p->mappings, [FIGURE_RSS] = row_of(row)->explain->rss_bytes,
        [FIGURE_FOLDED] = p->others,
    };
    uint32_t which = field->column->arg;
    if (which == FIGURE_MAPPINGS && p->mappings == 0)
        return; /* of a call site: not known */
    query_set_number(ret, figures[which]);
    if (p->marks & EXPLAIN_ESTIMATE && which <= FIGURE_SWAP)
        ret->marks = QUERY_ESTIMATE;
}

enum in_use { IN_USE_BYTES, IN_USE_BLOCKS };

static void get_in_use(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct explain_site *site = row_of(row)->site;
    if (site)
        query_set_number(ret,
                         field->column->arg == IN_USE_BYTES ? site->live_bytes : site->live_blocks);
}

static void get_share(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row_of(row)->part->bytes);
    ret->per = row_of(row)->explain->rss_bytes;
}

/* `arg`: which mark. */
static void get_mark(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, (row_of(row)->part->marks & field->column->arg) != 0);
}

#define FIGURE(name, kind, which, help)                                                   \
    {                                                                                     \
        name, help, kind, .flags = QUERY_DETAIL, .arg = FIGURE_##which, .get = get_figure \
    }

static const struct query_column columns[] = {
    {"pid", NULL, QUERY_NUMBER, QUERY_SAME, .get = get_pid},
    {"program", NULL, QUERY_TEXT, .get = get_program},
    {"user", NULL, QUERY_TEXT, .get = get_user},
    {"uid", NULL, QUERY_NUMBER, QUERY_SAME, .get = get_uid},
    {"node", NULL, QUERY_TEXT, .get = get_node},
    QUERY_COLUMN_NODES,
    {"kind", "heap, slack, older, runtime, anonymous, stack, file, shared, device, memoir or rest",
     QUERY_TEXT, .flags = QUERY_DETAIL, .get = get_kind},
    {"part", "whose memory it is: a call site, an allocator, a runtime, a file, a mapping",
     QUERY_TEXT, .flags = QUERY_DETAIL | QUERY_PRIVATE, .needs = QUERY_NEEDS_SYMBOLS,
     .get = get_part},
    {"via", NULL, QUERY_TEXT, .flags = QUERY_DETAIL | QUERY_PRIVATE, .needs = QUERY_NEEDS_SYMBOLS,
     .get = get_via},
    FIGURE("bytes", QUERY_BYTES, BYTES, "resident; all parts sum to rss"),
    {"share", "of what the process has resident", QUERY_PERCENT, .flags = QUERY_DETAIL,
     .get = get_share},
    FIGURE("private", QUERY_BYTES, PRIVATE, "of it, in no other process"),
    FIGURE("huge", QUERY_BYTES, HUGE, "of it, in huge pages"),
    FIGURE("swap", QUERY_BYTES, SWAP, "swapped out, outside the sum"),
    FIGURE("mappings", QUERY_NUMBER, MAPPINGS, "mappings that have some of it"),
    {"live", NULL, QUERY_BYTES, .flags = QUERY_DETAIL, .arg = IN_USE_BYTES, .get = get_in_use},
    {"blocks", NULL, QUERY_NUMBER, .flags = QUERY_DETAIL, .arg = IN_USE_BLOCKS, .get = get_in_use},
    FIGURE("folded", QUERY_NUMBER, FOLDED, NULL),
    {"rss", "resident memory of the process", QUERY_BYTES, QUERY_MAX, QUERY_DETAIL,
     .arg = FIGURE_RSS, .get = get_figure},
    {"estimated", "divided by a model, not measured", QUERY_YES, .flags = QUERY_DETAIL,
     .arg = EXPLAIN_ESTIMATE, .get = get_mark},
    {"by_shape", "told by sizes, addresses and libraries, not by what lies in the memory",
     QUERY_YES, .flags = QUERY_DETAIL, .arg = EXPLAIN_BY_SHAPE, .get = get_mark},
    {0},
};

/* ---- rows ---- */

/* What the heap's parts have together, of which call sites take their shares. */
static struct explain_part heap_whole(const struct explain *e)
{
    struct explain_part whole = {.kind = EXPLAIN_HEAP};
    for (uint32_t i = 0; i < e->n_parts; i++) {
        const struct explain_part *p = &e->parts[i];
        if (p->kind != EXPLAIN_HEAP)
            continue;
        sum_add(&whole.bytes, p->bytes);
        sum_add(&whole.private_bytes, p->private_bytes);
        sum_add(&whole.huge_bytes, p->huge_bytes);
        sum_add(&whole.swap_bytes, p->swap_bytes);
    }
    return whole;
}

static uint64_t take_share(uint64_t *left, uint64_t bytes, uint64_t of)
{
    uint64_t part = of ? (uint64_t)((double)*left * ((double)bytes / (double)of)) : 0;
    part = bytes >= of || part > *left ? *left : part;
    *left -= part;
    return part;
}

/* Take `bytes` of what is left of the heap, with an equal share of its other figures: only the sums of those are known. */
static struct explain_part heap_take(struct explain_part *left, uint64_t bytes)
{
    bytes = bytes < left->bytes ? bytes : left->bytes;
    struct explain_part part = {
        .kind = EXPLAIN_HEAP,
        .marks = EXPLAIN_ESTIMATE,
        .bytes = bytes,
        .private_bytes = take_share(&left->private_bytes, bytes, left->bytes),
        .huge_bytes = take_share(&left->huge_bytes, bytes, left->bytes),
        .swap_bytes = take_share(&left->swap_bytes, bytes, left->bytes),
    };
    left->bytes -= bytes;
    return part;
}

/* The heap by call site instead of by the allocator's parts. */
static int scan_sites(struct query_scan *scan, struct part_row row,
                      const struct explain_sites *sites)
{
    struct explain_part left = heap_whole(row.explain), part;
    int r = 0;
    row.part = &part;
    for (size_t i = 0; i < sites->n && r == 0; i++) {
        part = heap_take(&left, sites->all[i].bytes);
        row.site = &sites->all[i];
        r = scan->each(scan, &(struct query_row){.custom = &row});
    }
    part = heap_take(&left, UINT64_MAX);
    part.others = sites->others < UINT32_MAX ? (uint32_t)sites->others : UINT32_MAX;
    snprintf(part.name, sizeof(part.name), "other call sites");
    row.site = NULL;
    if (r == 0 && (part.bytes || part.swap_bytes))
        r = scan->each(scan, &(struct query_row){.custom = &row});
    return r;
}

/* A process that cannot be read leaves no rows; the answer says that it is incomplete. */
static int scan_subject(struct query_scan *scan, const struct explain_subject *subject,
                        struct explain *e)
{
    const struct explain_world *world = scan->world->explain;
    MEMOIR_CLEANUP(explain_sites_release)
    struct explain_sites sites = {0};
    int r = world->take(subject, e, &sites, world->context);
    if (r < 0) {
        scan->incomplete |= r != -ESRCH;
        return r == -ENOMEM ? r : 0;
    }
    r = sites.all ? scan_sites(scan, (struct part_row){subject, e, NULL, NULL}, &sites) : 0;
    for (uint32_t i = 0; r == 0 && i < e->n_parts; i++) {
        struct part_row row = {subject, e, &e->parts[i], NULL};
        if (!sites.all || e->parts[i].kind != EXPLAIN_HEAP)
            r = scan->each(scan, &(struct query_row){.custom = &row});
    }
    return r;
}

static int scan_parts(struct query_scan *scan)
{
    const struct explain_world *world = scan->world->explain;
    MEMOIR_CLEANUP(freep)
    struct explain *e = calloc(1, sizeof(*e));
    int r = e ? 0 : -ENOMEM;
    for (size_t i = 0; world && i < world->n && r == 0; i++) {
        struct part_row row = {.subject = &world->subjects[i]};
        if (!scan->may_match(scan, &(struct query_row){.custom = &row}))
            continue;
        if (scan->deadline_ns && clock_monotonic_ns() > scan->deadline_ns)
            return -ETIME;
        r = scan_subject(scan, row.subject, e);
    }
    return r;
}

static bool owner(const struct query_row *row, uint32_t *ret_uid)
{
    *ret_uid = row_of(row)->subject->uid;
    return true;
}

const struct query_table explain_table = {
    .name = "explain",
    .help = "one row for each part of the resident memory of the processes named by pid",
    .columns = columns,
    .needs = QUERY_NEEDS_MAPPINGS,
    .costly = true,
    .show = "pid,program,kind,part,bytes,share",
    .show_by = "bytes",
    .sort = "+pid,-bytes,+part",
    .private_rows = true,
    .scan = scan_parts,
    .owner = owner,
    .named_by = "pid",
    .named_why =
        "reading the mappings of every process would take long and stop each of them for a while",
};
