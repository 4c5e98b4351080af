/* An ordered set of starts. See ranges.h. */
#include "trace/ranges.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { LEAVES_MIN = 16 };

/* How many of the n sorted values are <= value. */
static size_t count_up_to(const uint64_t *values, size_t n, uint64_t value)
{
    const uint64_t *base = values;
    if (n == 0)
        return 0;
    /* Without branches that depend on the data: they would be mispredicted half of the time. */
    while (n > 1) {
        size_t half = n / 2;
        base = base[half - 1] <= value ? base + half : base;
        n -= half;
    }
    return (size_t)(base - values) + (*base <= value);
}

void trace_ranges_release(struct trace_ranges *r)
{
    for (size_t i = 0; i < r->n_leaves; i++)
        free(r->leaves[i]);
    free(r->leaves);
    free(r->firsts);
    *r = (struct trace_ranges){0};
}

static int leaves_grow(struct trace_ranges *r)
{
    if (r->n_leaves < r->cap_leaves)
        return 0;
    size_t cap = r->cap_leaves ? 2 * r->cap_leaves : LEAVES_MIN;
    struct trace_ranges_leaf **leaves = realloc(r->leaves, cap * sizeof(*leaves));
    if (!leaves)
        return -ENOMEM;
    r->leaves = leaves;
    uint64_t *firsts = realloc(r->firsts, cap * sizeof(*firsts));
    if (!firsts)
        return -ENOMEM;
    r->firsts = firsts;
    r->cap_leaves = cap;
    return 0;
}

static int leaf_add(struct trace_ranges *r, size_t at)
{
    int e = leaves_grow(r);
    struct trace_ranges_leaf *leaf = e < 0 ? NULL : malloc(sizeof(*leaf));
    if (!leaf)
        return -ENOMEM;
    leaf->n = 0;
    memmove(r->leaves + at + 1, r->leaves + at, (r->n_leaves - at) * sizeof(*r->leaves));
    memmove(r->firsts + at + 1, r->firsts + at, (r->n_leaves - at) * sizeof(*r->firsts));
    r->leaves[at] = leaf;
    r->n_leaves++;
    return 0;
}

static void leaf_drop(struct trace_ranges *r, size_t at)
{
    free(r->leaves[at]);
    r->n_leaves--;
    memmove(r->leaves + at, r->leaves + at + 1, (r->n_leaves - at) * sizeof(*r->leaves));
    memmove(r->firsts + at, r->firsts + at + 1, (r->n_leaves - at) * sizeof(*r->firsts));
}

/* Move the part of leaf `at` from `from` on to the end of leaf `at + 1` or, if that is empty, into it. */
static void leaf_move(struct trace_ranges_leaf *to, struct trace_ranges_leaf *leaf, size_t from)
{
    size_t n = leaf->n - from;
    memcpy(to->starts + to->n, leaf->starts + from, n * sizeof(*to->starts));
    memcpy(to->slots + to->n, leaf->slots + from, n * sizeof(*to->slots));
    to->n += (uint32_t)n;
    leaf->n = (uint32_t)from;
}

/* The leaf in which `start` is or belongs. */
static size_t leaf_of(const struct trace_ranges *r, uint64_t start)
{
    size_t at = count_up_to(r->firsts, r->n_leaves, start);
    return at > 0 ? at - 1 : 0;
}

int trace_ranges_insert(struct trace_ranges *r, uint64_t start, uint32_t slot)
{
    if (r->n_leaves == 0 && leaf_add(r, 0) < 0)
        return -ENOMEM;
    size_t at = leaf_of(r, start);
    struct trace_ranges_leaf *leaf = r->leaves[at];
    if (leaf->n == RANGES_LEAF) {
        if (leaf_add(r, at + 1) < 0)
            return -ENOMEM;
        /* Addresses often rise: a leaf that is appended to stays full. */
        bool rising = at + 2 == r->n_leaves && start > leaf->starts[RANGES_LEAF - 1];
        leaf_move(r->leaves[at + 1], leaf, rising ? RANGES_LEAF - 1 : RANGES_LEAF / 2);
        r->firsts[at + 1] = r->leaves[at + 1]->starts[0];
        if (start >= r->firsts[at + 1])
            leaf = r->leaves[++at];
    }
    size_t place = count_up_to(leaf->starts, leaf->n, start);
    assert(place == 0 || leaf->starts[place - 1] != start);
    memmove(leaf->starts + place + 1, leaf->starts + place,
            (leaf->n - place) * sizeof(*leaf->starts));
    memmove(leaf->slots + place + 1, leaf->slots + place, (leaf->n - place) * sizeof(*leaf->slots));
    leaf->starts[place] = start;
    leaf->slots[place] = slot;
    leaf->n++;
    r->firsts[at] = leaf->starts[0];
    r->n++;
    return 0;
}

void trace_ranges_remove(struct trace_ranges *r, uint64_t start)
{
    size_t at = leaf_of(r, start);
    struct trace_ranges_leaf *leaf = r->leaves[at];
    size_t place = count_up_to(leaf->starts, leaf->n, start);
    assert(place > 0 && leaf->starts[place - 1] == start);
    place--;
    leaf->n--;
    memmove(leaf->starts + place, leaf->starts + place + 1,
            (leaf->n - place) * sizeof(*leaf->starts));
    memmove(leaf->slots + place, leaf->slots + place + 1, (leaf->n - place) * sizeof(*leaf->slots));
    r->n--;
    if (leaf->n == 0) {
        leaf_drop(r, at);
        return;
    }
    r->firsts[at] = leaf->starts[0];
    /* Neighbours that fill half a leaf together become one, so that leaves are a quarter full on average at least. */
    if (at + 1 < r->n_leaves && leaf->n + r->leaves[at + 1]->n <= RANGES_LEAF / 2) {
        leaf_move(leaf, r->leaves[at + 1], 0);
        leaf_drop(r, at + 1);
    } else if (at > 0 && leaf->n + r->leaves[at - 1]->n <= RANGES_LEAF / 2) {
        leaf_move(r->leaves[at - 1], leaf, 0);
        leaf_drop(r, at);
    }
}

bool trace_ranges_floor(const struct trace_ranges *r, uint64_t address, uint32_t *ret_slot)
{
    if (r->n == 0)
        return false;
    const struct trace_ranges_leaf *leaf = r->leaves[leaf_of(r, address)];
    size_t place = count_up_to(leaf->starts, leaf->n, address);
    if (place == 0) /* only in the first leaf */
        return false;
    *ret_slot = leaf->slots[place - 1];
    return true;
}

bool trace_ranges_ceiling(const struct trace_ranges *r, uint64_t address, uint32_t *ret_slot)
{
    if (r->n == 0)
        return false;
    if (address == 0) {
        *ret_slot = r->leaves[0]->slots[0];
        return true;
    }
    size_t at = leaf_of(r, address - 1);
    const struct trace_ranges_leaf *leaf = r->leaves[at];
    size_t place = count_up_to(leaf->starts, leaf->n, address - 1);
    if (place == leaf->n) {
        if (at + 1 == r->n_leaves)
            return false;
        leaf = r->leaves[at + 1];
        place = 0;
    }
    *ret_slot = leaf->slots[place];
    return true;
}
