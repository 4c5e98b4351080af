/* The table of cgroups: the tree of those that account memory. The kernel shows all of this to every user. */
#include <stdint.h>

#include "base/clock.h"
#include "ledger/cgroups.h"
#include "ledger/host.h"
#include "ledger/host_parse.h"
#include "query/plan.h"

/* A row, and what its path tells. */
struct query_cgroup {
    const struct cgroup *g;
    uint64_t order;
    char container[HOST_WORD_MAX], pod[HOST_WORD_MAX], job[HOST_WORD_MAX];
};

enum { TEXT_PATH, TEXT_NAME, TEXT_PARENT, TEXT_CONTAINER, TEXT_POD, TEXT_JOB };

static void get_text(const struct query_world *world, const struct query_row *row,
                     const struct query_field *field, struct query_value *ret)
{
    const struct query_cgroup *c = row->cgroup;
    const char *text = NULL;
    switch (field->column->arg) {
    case TEXT_PATH:
        text = c->g->path;
        break;
    case TEXT_NAME:
        text = c->g->name;
        break;
    case TEXT_PARENT:
        text = c->g->parent ? c->g->parent->path : NULL;
        break;
    case TEXT_CONTAINER:
        text = c->container;
        break;
    case TEXT_POD:
        text = c->pod;
        break;
    case TEXT_JOB:
        text = c->job;
        break;
    }
    if (text && *text)
        query_set_text(ret, text);
}

static void get_order(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row->cgroup->order);
}

static void get_depth(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    query_set_number(ret, row->cgroup->g->depth);
}

static void get_figure(const struct query_world *world, const struct query_row *row,
                       const struct query_field *field, struct query_value *ret)
{
    const struct cgroup *g = row->cgroup->g;
    uint32_t figure = field->column->arg;
    if (g->valid >> figure & 1)
        query_set_number(ret, g->figures[figure]);
    else if (!(g->none >> figure & 1))
        ret->state = QUERY_UNKNOWN;
}

static void get_percent(const struct query_world *world, const struct query_row *row,
                        const struct query_field *field, struct query_value *ret)
{
    const struct cgroup *g = row->cgroup->g;
    uint32_t both = 1u << CGROUP_CURRENT | 1u << CGROUP_LIMIT;
    if ((g->valid & both) == both && g->figures[CGROUP_LIMIT]) {
        query_set_number(ret, g->figures[CGROUP_CURRENT]);
        ret->per = g->figures[CGROUP_LIMIT];
    } else if (!(g->none & both)) {
        ret->state = QUERY_UNKNOWN;
    }
}

static void get_age(const struct query_world *world, const struct query_row *row,
                    const struct query_field *field, struct query_value *ret)
{
    uint64_t now = clock_monotonic_ns(), then = cgroups_time_ns(world->cgroups);
    query_set_number(ret, now > then ? now - then : 0);
}

/* Figures count all that is below: of a group, the largest is that of the one around the others, and a sum would
 * count twice. */
#define BYTES(name, help, figure)                                            \
    {                                                                        \
        name, help, QUERY_BYTES, QUERY_MAX, .arg = figure, .get = get_figure \
    }
#define TEXT(name, help, which)                               \
    {                                                         \
        name, help, QUERY_TEXT, .arg = which, .get = get_text \
    }

static const struct query_column columns[] = {
    TEXT("path", NULL, TEXT_PATH),
    TEXT("name", NULL, TEXT_NAME),
    TEXT("parent_path", NULL, TEXT_PARENT),
    {"depth", NULL, QUERY_NUMBER, QUERY_MIN, .get = get_depth},
    {"order", NULL, QUERY_NUMBER, QUERY_MIN, .get = get_order},
    {"node", NULL, QUERY_TEXT, .get = query_get_node},
    QUERY_COLUMN_NODES,
    TEXT("container", NULL, TEXT_CONTAINER),
    TEXT("pod", NULL, TEXT_POD),
    TEXT("job", NULL, TEXT_JOB),
    BYTES("current", NULL, CGROUP_CURRENT),
    BYTES("peak", "the most that it has held", CGROUP_PEAK),
    BYTES("limit", "what it may hold at most", CGROUP_LIMIT),
    {"percent", "current as a part of the limit", QUERY_PERCENT, QUERY_MAX, .get = get_percent},
    BYTES("high", NULL, CGROUP_HIGH),
    {"headroom", "what it and all around it may still take", QUERY_BYTES, QUERY_MIN,
     .arg = CGROUP_HEADROOM, .get = get_figure},
    BYTES("swap", NULL, CGROUP_SWAP),
    BYTES("anon", "of current, the memory of processes", CGROUP_ANON),
    BYTES("file", "of current, files, with shmem", CGROUP_FILE),
    BYTES("shmem", "of current, tmpfs and shared memory", CGROUP_SHMEM),
    BYTES("kernel", NULL, CGROUP_KERNEL),
    BYTES("slab", "of current, structures of the kernel", CGROUP_SLAB),
    {"processes", "processes in it and below", QUERY_NUMBER, QUERY_MAX, .arg = CGROUP_PROCESSES,
     .get = get_figure},
    {"own_processes", NULL, QUERY_NUMBER, .arg = CGROUP_OWN_PROCESSES, .get = get_figure},
    {"oom_kills", NULL, QUERY_NUMBER, QUERY_MAX, .arg = CGROUP_OOM_KILLS, .get = get_figure},
    {"figures_age", NULL, QUERY_AGE, .get = get_age},
    {0},
};

static int scan_cgroups(struct query_scan *scan)
{
    const struct cgroups *cgroups = scan->world->cgroups;
    size_t n = 0;
    const struct cgroup *rows = cgroups ? cgroups_rows(cgroups, &n) : NULL;
    if (cgroups && cgroups_left_out(cgroups))
        scan->incomplete = true;
    int r = 0;
    for (size_t i = 0; i < n && r == 0; i++) {
        struct query_cgroup row = {.g = &rows[i], .order = i + 1};
        host_cgroup_words(rows[i].path, row.container, row.pod, row.job, HOST_WORD_MAX);
        r = scan->each(scan, &(struct query_row){.cgroup = &row});
    }
    return r;
}

const struct query_table query_table_cgroups = {
    .name = "cgroups",
    .help = "one row for each cgroup that accounts memory, in the order of the tree",
    .columns = columns,
    .needs = QUERY_NEEDS_CGROUPS,
    .costly = true,
    .show = "path,current,peak,limit,percent,headroom,swap,anon,file,processes,oom_kills",
    .show_by = "count,current,peak,limit,processes,oom_kills",
    .sort = "+order",
    .scan = scan_cgroups,
};
