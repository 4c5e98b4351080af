/* Inside the query core: a parsed query, and the calls between its files. */
#pragma once

#include "query/query.h"

/* Texts, a stack among them; other kinds are figures or lists of them. */
static inline bool kind_is_text(enum query_kind kind)
{
    return kind == QUERY_TEXT || kind == QUERY_FRAMES;
}

struct output {
    struct query_output o; /* first */
    struct query_field field;
    enum query_aggregate aggregate; /* never DEFAULT */
    bool plain; /* its cells are values of rows as they are: neither combined nor shares */
};

struct sort_key {
    size_t output;
    bool descending;
};

/* ---- expressions: a tree of nodes in an array, children before parents ---- */

enum node_op {
    NODE_AND,
    NODE_OR,
    NODE_NOT,
    NODE_EQ,
    NODE_NE,
    NODE_LT,
    NODE_LE,
    NODE_GT,
    NODE_GE,
    NODE_LIKE,
    NODE_UNLIKE,
    NODE_IS_NONE,
    NODE_IS_SOME,
};

struct node {
    enum node_op op;
    uint32_t left, right;     /* of AND, OR; left of NOT */
    struct query_field field; /* of comparisons, with */
    struct query_field other; /* another column, or column NULL and: */
    uint64_t number;          /* PERCENT: in millionths */
    const char *text;         /* in `words` of the expression */
    uint32_t len;
    bool pattern; /* has * or ? */
};

struct expression {
    struct node *nodes;
    size_t n; /* 0: everything matches; else the last one is the root */
    char *words;
};

struct query {
    const struct query_table *table;
    struct query_spec spec; /* as asked, never NULL; in `words` */
    char *words;
    bool grouped;
    bool unusual; /* also rows that are not usual: see query_table.usual */
    uint64_t limit;
    struct expression where;
    size_t n_by, n_shown, n_outputs, n_sorts;
    /* Only so many of these are set. Keys, then what is shown, then what only sorts: */
    struct output outputs[QUERY_OUTPUTS_MAX];
    struct sort_key sorts[QUERY_OUTPUTS_MAX];
};

/* parse.c */
int query_fail(struct query_error *error, const char *part, size_t at, size_t len, const char *fmt,
               ...) __attribute__((format(printf, 5, 6)));

/* The column `name` of a table. -EINVAL with an error that names the nearest. */
int query_field_find(const struct query_table *table, const char *part, size_t at, const char *name,
                     size_t len, struct query_field *ret_field, struct query_error *error);

/* named.c: 0; -EINVAL with an error where the table wants rows named one by one and the question does not. */
int query_check_named(const struct query *query, struct query_error *error);

/* expression.c */
int expression_parse(const struct query_table *table, const char *text, struct expression *ret,
                     struct query_error *error);
void expression_release(struct expression *e);

/* Three values, as in SQL: what compares with something absent is neither true nor false. */
enum truth { TRUTH_NO, TRUTH_YES, TRUTH_UNKNOWN };

/* With `rough`, columns with QUERY_DETAIL are unknown. */
enum truth expression_eval(const struct expression *e, const struct query_table *table,
                           const struct query_world *world, const struct query_row *row,
                           bool rough);

/* literal.c: the value of a word for a column of that kind. -EINVAL, or -ERANGE. */
int literal_parse(enum query_kind kind, const char *word, uint64_t *ret_number);
const char *literal_example(enum query_kind kind);
/* Does `text` hold `pattern` (in any case of letters), or match it as a whole if it has * or ?. */
bool literal_like(const char *text, size_t len, const char *pattern, size_t pattern_len, bool wild);

/* tables */
extern const struct query_table query_table_processes, query_table_accounts, query_table_devices,
    query_table_buffers, query_table_sites, query_table_exited, query_table_exited_blocks,
    query_table_host, query_table_system, query_table_cgroups, query_table_device_processes;
