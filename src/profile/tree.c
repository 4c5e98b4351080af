/* Stacks as a tree. See tree.h. */
#include "profile/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"

struct grow {
    struct tree *tree;
    struct profile *profile;
    const struct tree_options *options;
    struct labels labels;
    int8_t *matches; /* by place of the name: 0 not yet known, 1 it does, -1 it does not */
    size_t n_matches;
    struct tree_step steps[TREE_DEPTH_MAX];
};

static void grow_release(struct grow **g)
{
    if (!*g)
        return;
    labels_release(&(*g)->labels);
    free((*g)->matches);
    free(*g);
}

/* ---- nodes ---- */

static uint32_t node_add(struct tree *t, uint32_t parent, const struct tree_step *step)
{
    if (t->n == t->room) {
        size_t room = t->room ? t->room * 2 : 256;
        struct tree_node *nodes = reallocarray(t->nodes, room, sizeof(*nodes));
        if (!nodes)
            return TREE_NONE;
        t->nodes = nodes;
        t->room = room;
    }
    uint32_t number = (uint32_t)t->n;
    struct tree_node *node = &t->nodes[t->n++];
    *node = (struct tree_node){
        .name = step->name,
        .module = step->module,
        .parent = parent,
        .child = TREE_NONE,
        .sibling = TREE_NONE,
    };
    if (parent != TREE_NONE) {
        node->depth = t->nodes[parent].depth + 1;
        node->sibling = t->nodes[parent].child;
        t->nodes[parent].child = number;
        if (node->depth > t->depth_max)
            t->depth_max = node->depth;
    }
    return number;
}

static uint32_t node_below(struct tree *t, uint64_t seed, uint32_t parent,
                           const struct tree_step *step)
{
    struct numbers_walk walk;
    uint64_t hash =
        hash_combine(hash_combine(seed, parent), (uint64_t)step->name << 32 | step->module);
    for (uint32_t n = numbers_first(&t->by_name, hash, &walk); n != NUMBERS_NONE;
         n = numbers_next(&t->by_name, &walk)) {
        const struct tree_node *node = &t->nodes[n];
        if (node->parent == parent && node->name == step->name && node->module == step->module)
            return n;
    }
    uint32_t number = node_add(t, parent, step);
    if (number != TREE_NONE && numbers_add(&t->by_name, hash, number) < 0)
        return TREE_NONE;
    return number;
}

/* ---- stacks ---- */

static bool matches(struct grow *g, profile_string name)
{
    if (!g->matches[name])
        g->matches[name] =
            regexec(g->options->focus, profile_text(g->profile, name), 0, NULL, 0) == 0 ? 1 : -1;
    return g->matches[name] > 0;
}

/* The functions of a stack from where the tree begins; how many. 0: the focus is not in it. */
static size_t steps_of(struct grow *g, const struct stack *s)
{
    const struct tree_options *o = g->options;
    size_t n = 0;
    bool found = !o->focus;
    for (size_t i = 0; i < s->n_frames; i++) {
        uint32_t frame = s->frames[o->inverted ? i : s->n_frames - 1 - i];
        uint32_t first = g->labels.first[frame], end = g->labels.first[frame + 1];
        for (uint32_t k = 0; k < end - first && n < TREE_DEPTH_MAX; k++) {
            const struct profile_line *line =
                &g->labels.list[o->inverted ? first + k : end - 1 - k];
            found = found || matches(g, line->function);
            if (found)
                g->steps[n++] = (struct tree_step){
                    line->function, g->profile->modules[g->profile->frames[frame].module].path};
        }
    }
    return n;
}

int tree_add(struct tree *t, const struct tree_step *steps, size_t n,
             const struct profile_figures *figures, bool estimate)
{
    uint32_t at = 0;
    for (size_t i = 0;; i++) {
        struct tree_node *node = &t->nodes[at];
        profile_figures_add(&node->total, figures);
        node->estimate |= estimate;
        if (i == n || i == TREE_DEPTH_MAX) {
            profile_figures_add(&node->self, figures);
            break;
        }
        at = node_below(t, t->profile->seed, at, &steps[i]);
        if (at == TREE_NONE)
            return -ENOMEM;
    }
    if (estimate)
        profile_figures_add(&t->estimated, figures);
    return 0;
}

static int stack_add(struct grow *g, const struct stack *s)
{
    size_t n = steps_of(g, s);
    if (n == 0 && g->options->focus) {
        profile_figures_add(&g->tree->left_out, &s->figures);
        return 0;
    }
    return tree_add(g->tree, g->steps, n, &s->figures, s->estimate);
}

/* ---- order ---- */

struct order {
    const struct tree *tree;
    enum rows_measure measure;
};

static int compare(const void *a, const void *b, void *context)
{
    const struct order *order = context;
    const struct tree *t = order->tree;
    const struct tree_node *x = &t->nodes[*(const uint32_t *)a],
                           *y = &t->nodes[*(const uint32_t *)b];
    uint64_t value_x = rows_value(&x->total, order->measure);
    uint64_t value_y = rows_value(&y->total, order->measure);
    if (value_x != value_y)
        return value_x > value_y ? -1 : 1;
    int r = strcmp(profile_text(t->profile, x->name), profile_text(t->profile, y->name));
    return r ? r : strcmp(profile_text(t->profile, x->module), profile_text(t->profile, y->module));
}

int tree_end(struct tree *t, enum rows_measure measure)
{
    struct order order = {t, measure};
    MEMOIR_CLEANUP(freep)
    uint32_t *children = malloc(t->n * sizeof(*children));
    if (!children)
        return -ENOMEM;
    for (size_t i = 0; i < t->n; i++) {
        size_t n = 0;
        for (uint32_t c = t->nodes[i].child; c != TREE_NONE; c = t->nodes[c].sibling)
            children[n++] = c;
        if (n < 2)
            continue;
        qsort_r(children, n, sizeof(*children), compare, &order);
        t->nodes[i].child = children[0];
        for (size_t k = 0; k < n; k++)
            t->nodes[children[k]].sibling = k + 1 < n ? children[k + 1] : TREE_NONE;
    }
    return 0;
}

int tree_begin(struct tree *t, const struct profile *names)
{
    *t = (struct tree){.profile = names};
    return node_add(t, TREE_NONE, &(struct tree_step){0}) == TREE_NONE ? -ENOMEM : 0;
}

int tree_take(struct profile *profile, const struct tree_options *options, struct tree *ret_tree)
{
    MEMOIR_CLEANUP(tree_release)
    struct tree t = {0};
    MEMOIR_CLEANUP(stacks_release)
    struct stacks stacks = {0};
    MEMOIR_CLEANUP(grow_release)
    struct grow *g = calloc(1, sizeof(*g));
    if (!g)
        return -ENOMEM;
    g->tree = &t;
    g->profile = profile;
    g->options = options;
    int r = labels_take(profile, &g->labels);
    if (r == 0)
        r = stacks_take(profile, &stacks);
    if (r < 0)
        return r;
    g->matches = calloc(profile->n_strings + 1, sizeof(*g->matches));
    if (!g->matches || tree_begin(&t, profile) < 0)
        return -ENOMEM;
    for (size_t i = 0; i < stacks.n && r == 0; i++)
        if (!options->space || profile->accounts[stacks.list[i].account].space == options->space)
            r = stack_add(g, &stacks.list[i]);
    if (r == 0)
        r = tree_end(&t, options->measure);
    if (r < 0)
        return r;
    *ret_tree = t;
    t = (struct tree){0};
    return 0;
}

void tree_release(struct tree *t)
{
    free(t->nodes);
    numbers_release(&t->by_name);
    *t = (struct tree){0};
}
