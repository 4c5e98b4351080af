/* One program on many nodes: what it holds on each of them, how fast it grows there, and which node is the outlier.
 *
 * Nodes are compared by median and median absolute deviation, which one odd node cannot move. Two nodes cannot tell which of
 * them is odd, so a program needs three. A node is an outlier
 *  - by its growth, if the program grows there steadily (column growth_steady) and does not on most others: a leak on one node is
 *    seen so after half a minute, long before it holds much;
 *  - by its level, if one process holds there half as much again as in the median, or half of it, and the difference is worth a
 *    look (SPREAD_LEVEL_LEAST). The level is taken for each process, so that a node with more processes is none.
 *
 * The answer that spread_new() takes is that to spread_spec(). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct buffer;
struct json;
struct query_result;
struct query;
struct query_spec;

enum {
    SPREAD_NODES_LEAST = 3,
    SPREAD_LEVEL_LEAST = 16 << 20,  /* bytes of a process: smaller differences are no outliers */
    SPREAD_GROWTH_LEAST = 16 << 10, /* bytes a second: about a megabyte a minute */
    SPREAD_WHY_MAX = 160,
};

/* Why a node is an outlier. */
enum spread_odd { SPREAD_USUAL, SPREAD_GROWS, SPREAD_MORE, SPREAD_LESS };
const char *spread_odd_word(enum spread_odd odd); /* "grows", "more", "less"; NULL: it is none */

struct spread_node {
    const char *node; /* borrowed from the result, as is the program */
    uint64_t value;   /* of the measure, all processes together */
    uint64_t processes;
    bool has_growth, has_steady;
    double growth, steady; /* bytes a second */
    enum spread_odd odd;
    double typical; /* of an outlier: the median that it differs from */
};

struct spread_program {
    const char *program;
    uint64_t total, processes;
    bool has_growth;
    double growth; /* on all nodes */
    struct spread_node *nodes;
    size_t n; /* nodes that know the measure: outliers first, then by value, largest first */
    size_t n_odd;
};

struct spread {
    struct spread_program *programs; /* those with outliers by growth first, then by total */
    size_t n;
    struct spread_node *nodes; /* of all of them */
};

/* What to ask: host by program and node. `show` has SPREAD_SHOW_MAX bytes. The measure is a column of the table host. */
enum { SPREAD_SHOW_MAX = 160 };
void spread_spec(const char *measure, const char *where, char show[static SPREAD_SHOW_MAX],
                 struct query_spec *ret_spec);

/* The result is finished, and stays as long as the spread. -ENOMEM; -EINVAL: the result answers another question. */
int spread_new(const struct query_result *result, const struct query *query,
               struct spread **ret_spread);
void spread_free(struct spread *spread); /* NULL is fine */
void spread_freep(struct spread **spread);

/* Find the outliers of one program: sets odd, typical and n_odd. Part of spread_new(). */
void spread_judge(struct spread_program *program);

/* For people: "grows by 50.1 kB/s, 0 B/s on other nodes". Returns `why`, "" for a node that is none. */
const char *spread_why(const struct spread_node *node, char why[static SPREAD_WHY_MAX]);

/* The programs, at most `limit`, with at most `nodes_max` nodes each: an array. */
void spread_json(const struct spread *spread, size_t limit, size_t nodes_max, struct json *json);
