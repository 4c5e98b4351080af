/* The table of machines: one row, with who holds its memory as parts that add up to the total. */
#include <stddef.h>

#include "book/pressure_level.h"
#include "ledger/host.h"
#include "query/plan.h"

/* `arg` is where it is in the struct. */
static void get_bytes(const struct query_world *world, const struct query_row *row,
                      const struct query_field *field, struct query_value *ret)
{
    uint32_t at = field->column->arg;
    uint32_t bit = at == offsetof(struct host_system, available_bytes) ||
                           at == offsetof(struct host_system, used_bytes)
                       ? HOST_HAS_AVAILABLE
                       : HOST_HAS_TOTAL;
    if (row->system->valid & bit)
        query_set_number(ret, *(const uint64_t *)((const char *)row->system + at));
    else
        ret->state = QUERY_UNKNOWN;
}

static void get_pressure(const struct query_world *world, const struct query_row *row,
                         const struct query_field *field, struct query_value *ret)
{
    if (!(row->system->valid & HOST_HAS_PSI))
        return; /* the kernel does not measure it */
    query_set_number(ret, *(const uint32_t *)((const char *)row->system + field->column->arg));
    ret->per = 10000;
}

/* By the thresholds that memoird begins with, and without its memory of what was before. */
static void get_scarcity(const struct query_world *world, const struct query_row *row,
                         const struct query_field *field, struct query_value *ret)
{
    const struct host_system *s = row->system;
    struct pressure_inputs in = {.total_bytes = s->total_bytes,
                                 .available_bytes = s->available_bytes,
                                 .some_avg10 = s->some.avg10,
                                 .full_avg10 = s->full.avg10};
    if (s->valid & HOST_HAS_AVAILABLE)
        in.valid |= PRESSURE_HAS_MEMORY;
    if (s->valid & HOST_HAS_PSI)
        in.valid |= PRESSURE_HAS_STALL;
    if (in.valid)
        query_set_text(ret,
                       pressure_level_name(pressure_judge(&pressure_limits_default, &in, false)));
}

#define AT(member) offsetof(struct host_system, member)
#define BYTES(name, help, member)                                    \
    {                                                                \
        name, help, QUERY_BYTES, .arg = AT(member), .get = get_bytes \
    }
#define PART(name, part, help) BYTES(name, help, parts[part])
#define PRESSURE(name, help, member)                                                 \
    {                                                                                \
        name, help, QUERY_PERCENT, QUERY_MAX, .arg = AT(member), .get = get_pressure \
    }

static const struct query_column columns[] = {
    {"node", NULL, QUERY_TEXT, .get = query_get_node},
    QUERY_COLUMN_NODES,
    BYTES("total", NULL, total_bytes),
    BYTES("available", NULL, available_bytes),
    BYTES("used", "total - available", used_bytes),
    BYTES("active", NULL, active_bytes),
    BYTES("inactive", NULL, inactive_bytes),
    BYTES("cached", NULL, cached_bytes),
    BYTES("shared", "tmpfs and shared memory", shared_bytes),
    BYTES("slab", NULL, slab_bytes),
    BYTES("dirty", "waits to be written to a disk", dirty_bytes),
    BYTES("swap_total", NULL, swap_total_bytes),
    BYTES("swap_free", NULL, swap_free_bytes),
    BYTES("swap_cached", NULL, swap_cached_bytes),
    PRESSURE("pressure", "part of the last 10 s in which some program waited for memory",
             some.avg10),
    PRESSURE("pressure_1m", "the same over the last minute", some.avg60),
    PRESSURE("pressure_5m", "the same over the last 5 minutes", some.avg300),
    PRESSURE("stall", "part of the last 10 s in which all programs waited for memory", full.avg10),
    PRESSURE("stall_1m", "the same over the last minute", full.avg60),
    PRESSURE("stall_5m", "the same over the last 5 minutes", full.avg300),
    {"scarcity", NULL, QUERY_TEXT, .get = get_scarcity},
    PART("anon", HOST_PART_ANON, "part of the total: programs' own"),
    PART("shmem", HOST_PART_SHMEM, "part: tmpfs and shared memory"),
    PART("cache", HOST_PART_CACHE, "part: files, without tmpfs and shared memory"),
    PART("buffers", HOST_PART_BUFFERS, "part: blocks of disks"),
    PART("slab_reclaimable", HOST_PART_SLAB_RECLAIMABLE, "part: of slab, what can be given up"),
    PART("slab_unreclaimable", HOST_PART_SLAB, "part: of slab, what cannot"),
    PART("page_tables", HOST_PART_PAGE_TABLES, "part: page tables"),
    PART("kernel_stacks", HOST_PART_STACKS, "part: stacks of the kernel"),
    PART("percpu", HOST_PART_PERCPU, "part: the kernel's memory of each processor"),
    PART("hugetlb", HOST_PART_HUGETLB, "part: huge pages set aside"),
    PART("free", HOST_PART_FREE, "part: free"),
    PART("unattributed", HOST_PART_REST, "part: what the kernel does not attribute"),
    {0},
};

static int scan_system(struct query_scan *scan)
{
    if (!scan->world->host)
        return 0;
    return scan->each(scan, &(struct query_row){.system = host_system(scan->world->host)});
}

const struct query_table query_table_system = {
    .name = "system",
    .help = "one row for the machine: who holds its memory",
    .columns = columns,
    .needs = QUERY_NEEDS_HOST,
    .show = "node,total,available,used,anon,shmem,cache,buffers,slab,free,unattributed,swap_total,"
            "swap_free,pressure",
    .show_by = "count,total,available,used",
    .sort = "+node",
    .scan = scan_system,
};
