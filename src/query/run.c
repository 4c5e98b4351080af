/* Rows of a table that match a query, for a result or for a caller of its own. See query.h. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "query/result.h"

/* ---- rights ---- */

static bool may_see(const struct query_table *table, const struct query_world *world,
                    const struct query_row *row)
{
    uint32_t uid;
    return !table->owner || !table->owner(row, &uid) ||
           query_may_see(world->sees_all, world->viewer_uid, uid);
}

/* Is it a row that this question, by this viewer, is about at all? */
static bool may_have(const struct query *q, const struct query_world *world,
                     const struct query_row *row)
{
    if (q->table->private_rows && !may_see(q->table, world, row))
        return false;
    return q->unusual || q->table->usual(row);
}

bool query_row_matches(const struct query *q, const struct query_world *world,
                       const struct query_row *row)
{
    return may_have(q, world, row) &&
           expression_eval(&q->where, q->table, world, row, false) == TRUTH_YES;
}

/* ---- values ---- */

void query_field_get(const struct query_table *table, const struct query_world *world,
                     const struct query_row *row, const struct query_field *field,
                     struct query_value *ret)
{
    *ret = (struct query_value){0};
    unsigned flags = field->column->flags;
    if ((flags & (QUERY_PRIVATE | QUERY_PRIVATE_ENDED)) && !may_see(table, world, row) &&
        (flags & QUERY_PRIVATE || !table->ended || table->ended(row)))
        ret->state = QUERY_UNKNOWN;
    else
        field->column->get(world, row, field, ret);
}

void query_output_get(const struct query *q, const struct output *output,
                      const struct query_world *world, const struct query_row *row,
                      struct query_value *ret)
{
    if (output->field.column)
        query_field_get(q->table, world, row, &output->field, ret);
    else
        *ret = (struct query_value){0};
}

/* ---- a run ---- */

struct run {
    struct query_scan scan; /* first */
    const struct query *query;
    struct query_world world; /* scan.world */
    char node[QUERY_NAME_MAX];
    struct query_result *result; /* of query_run() */
    query_each_fn *each;         /* of query_each(), with */
    void *context;
};

static bool run_may_match(struct query_scan *scan, const struct query_row *row)
{
    const struct query *q = ((struct run *)scan)->query;
    if (!may_have(q, scan->world, row))
        return false;
    return expression_eval(&q->where, q->table, scan->world, row, true) != TRUTH_NO;
}

static void run_init(struct run *run, const struct query *query, const struct query_world *world)
{
    run->query = query;
    run->world = *world;
    if (!world->node && gethostname(run->node, sizeof(run->node) - 1) == 0)
        run->world.node = run->node;
    if (!world->now_real_ns)
        run->world.now_real_ns = clock_real_ns();
    run->scan.may_match = run_may_match;
    run->scan.world = &run->world;
    run->scan.deadline_ns = world->time_max_ns ? clock_monotonic_ns() + world->time_max_ns : 0;
}

static int add_to_result(struct query_scan *scan, const struct query_row *row)
{
    int r = query_result_add(((struct run *)scan)->result, scan->world, row);
    return r < 0 ? r : 0;
}

int query_run(const struct query *query, const struct query_world *world,
              struct query_result *result)
{
    if (query != result->query || !query->table->scan)
        return -EINVAL;
    struct run run = {.scan.each = add_to_result, .result = result};
    run_init(&run, query, world);
    int r = query->table->scan(&run.scan);
    result->incomplete |= run.scan.incomplete || r == -ETIME;
    struct query_origin origin = {.sees_all = world->sees_all,
                                  .viewer_uid = world->sees_all ? 0 : world->viewer_uid,
                                  .time_ns = run.world.now_real_ns};
    snprintf(origin.node, sizeof(origin.node), "%s", run.world.node ? run.world.node : "");
    result_add_origin(result, &origin);
    return r;
}

static int pass_on(struct query_scan *scan, const struct query_row *row)
{
    const struct run *run = (const struct run *)scan;
    const struct query *q = run->query;
    struct query_value values[QUERY_OUTPUTS_MAX];
    if (!query_row_matches(q, scan->world, row))
        return 0;
    for (size_t o = 0; o < q->n_outputs; o++)
        query_output_get(q, &q->outputs[o], scan->world, row, &values[o]);
    return run->each(row, values, run->context);
}

int query_each(const struct query *query, const struct query_world *world, query_each_fn *each,
               void *context)
{
    if (query->grouped || !query->table->scan)
        return -EINVAL;
    struct run run = {.scan.each = pass_on, .each = each, .context = context};
    run_init(&run, query, world);
    return query->table->scan(&run.scan);
}
