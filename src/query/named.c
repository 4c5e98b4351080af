/* Which rows a question names one by one. See query_named() in query.h. */
#include <errno.h>
#include <string.h>

#include "query/plan.h"

struct naming {
    const struct expression *e;
    const char *column;
    uint64_t *values;
    size_t n, max;
};

static int name(struct naming *naming, uint64_t value)
{
    for (size_t i = 0; i < naming->n; i++)
        if (naming->values[i] == value)
            return 1;
    if (naming->n == naming->max)
        return -E2BIG;
    naming->values[naming->n++] = value;
    return 1;
}

/* 1: whatever matches has one of the values named so far; 0: it may have any other; -E2BIG. */
static int walk(struct naming *naming, uint32_t at)
{
    const struct node *node = &naming->e->nodes[at];
    size_t before = naming->n;
    int r;
    switch (node->op) {
    case NODE_AND: /* one side suffices */
        r = walk(naming, node->left);
        return r ? r : walk(naming, node->right);
    case NODE_OR:
        r = walk(naming, node->left);
        if (r > 0)
            r = walk(naming, node->right);
        if (r == 0)
            naming->n = before;
        return r;
    case NODE_EQ:
        if (node->other.column || strcmp(node->field.column->name, naming->column) != 0)
            return 0;
        return name(naming, node->number);
    default:
        return 0;
    }
}

int query_named(const struct query *query, uint64_t *ret_values, size_t max, size_t *ret_n)
{
    struct naming naming = {&query->where, query->table->named_by, ret_values, 0, max};
    if (!naming.column || !query->where.n)
        return -ENOENT;
    int r = walk(&naming, (uint32_t)query->where.n - 1);
    if (r <= 0)
        return r < 0 ? r : -ENOENT;
    *ret_n = naming.n;
    return 0;
}

int query_check_named(const struct query *query, struct query_error *error)
{
    uint64_t values[QUERY_NAMED_MAX];
    const struct query_table *table = query->table;
    size_t n, len = strlen(query->spec.where);
    if (!table->named_by)
        return 0;
    switch (query_named(query, values, QUERY_NAMED_MAX, &n)) {
    case 0:
        return 0;
    case -E2BIG:
        return query_fail(error, "where", 0, len, "the table %s takes at most %d values of %s",
                          table->name, QUERY_NAMED_MAX, table->named_by);
    default:
        return query_fail(error, "where", 0, len ? len : 1,
                          "the table %s needs %s=NUMBER in 'where': %s", table->name,
                          table->named_by, table->named_why);
    }
}
