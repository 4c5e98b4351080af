/* Rows of a table that match a query, for a result or for a caller of its own. See query.h. */
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "query/result.h"
#include "query/value.h"

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
    if (!value_may_have(q, scan->world, row))
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
    if (!value_row_matches(q, scan->world, row))
        return 0;
    for (size_t o = 0; o < q->n_outputs; o++)
        value_of_output(q, &q->outputs[o], scan->world, row, &values[o]);
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
