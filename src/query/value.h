/* Inside the query core: values of a row as the viewer may see them. Inline, because each cell of each row
 * goes through here. */
#pragma once

#include "query/plan.h"

static inline bool value_may_see(const struct query_table *table, const struct query_world *world,
                                 const struct query_row *row)
{
    uint32_t uid;
    return !table->owner || !table->owner(row, &uid) ||
           query_may_see(world->sees_all, world->viewer_uid, uid);
}

/* Is it a row that this question, by this viewer, is about at all? */
static inline bool value_may_have(const struct query *q, const struct query_world *world,
                                  const struct query_row *row)
{
    if (q->table->private_rows && !value_may_see(q->table, world, row))
        return false;
    return q->unusual || q->table->usual(row);
}

/* Does the row match, for this viewer? */
static inline bool value_row_matches(const struct query *q, const struct query_world *world,
                                     const struct query_row *row)
{
    return value_may_have(q, world, row) &&
           (q->where.n == 0 ||
            expression_eval(&q->where, q->table, world, row, false) == TRUTH_YES);
}

static inline void value_of_field(const struct query_table *table, const struct query_world *world,
                                  const struct query_row *row, const struct query_field *field,
                                  struct query_value *ret)
{
    unsigned flags = field->column->flags;
    *ret = (struct query_value){0};
    if ((flags & (QUERY_PRIVATE | QUERY_PRIVATE_ENDED)) && !value_may_see(table, world, row) &&
        (flags & QUERY_PRIVATE || !table->ended || table->ended(row)))
        ret->state = QUERY_UNKNOWN;
    else
        field->column->get(world, row, field, ret);
}

/* Absent for count. */
static inline void value_of_output(const struct query *q, const struct output *output,
                                   const struct query_world *world, const struct query_row *row,
                                   struct query_value *ret)
{
    if (output->field.column)
        value_of_field(q->table, world, row, &output->field, ret);
    else
        *ret = (struct query_value){0};
}
