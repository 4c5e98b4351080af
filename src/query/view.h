/* Views: questions with a name. A command, a route of the API and a page show the rows of one; how they look is theirs, which
 * rows and columns there are is said here. Help, routes and their description come from this list. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buffer;
struct query_spec;

struct query_view {
    const char *
        name; /* of the command: "ps"; NULL: there is none. The list ends where both names are NULL */
    const char *route;   /* /api/v1/ROUTE; NULL: none */
    const char *summary; /* one line, for the description of the API; NULL without a route */
    const char *help;    /* more of it, or NULL */
    const char *table;
    /* What it asks unless told otherwise; NULL: what the table has as usual. */
    const char *where, *show, *sort;
};

/* All of them, ended by one without names; and one by the name of its command, or of its route. NULL: none. */
const struct query_view *query_views(void);
const struct query_view *query_view_find(const char *name);
const struct query_view *query_view_route(const char *route);

/* What the view asks with what its user asks for in addition: `asked.where` narrows the view's, the other parts take the
 * place of the view's. Groups show what the table shows of groups. Texts are borrowed from both, and `where` (empty at
 * first) holds what had to be put together. 0 or the buffer's error. */
int query_view_spec(const struct query_view *view, const struct query_spec *asked,
                    struct buffer *where, struct query_spec *ret_spec);

/* Append a test to an expression, joined by "and": COLUMN OPERATOR "VALUE", with quotes in the value escaped. */
void query_where_text(struct buffer *where, const char *column, const char *op, const char *value);
