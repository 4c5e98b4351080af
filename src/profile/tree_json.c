/* See tree_json.h. */
#include "profile/tree_json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "base/json.h"
#include "profile/tree.h"
#include "site/short_name.h"

static const char *const value_names[] = {"bytes", "blocks", "allocated",
                                          "allocated_blocks"}; /* as the table `stacks` has them */

/* Numbers in the answer. */
struct numbering {
    uint32_t *node;  /* by number in the tree; TREE_NONE: left out */
    uint32_t *name;  /* by the same: in the list of names */
    uint32_t *first; /* of each name, a node that has it */
    size_t n_nodes, n_names;
};

static void numbering_release(struct numbering *n)
{
    free(n->node);
    free(n->name);
    free(n->first);
}

static bool is_small(const struct profile_figures *figures, const struct profile_figures *all)
{
    return figures->live_bytes < all->live_bytes / TREE_JSON_SHARE + 1 &&
           figures->alloc_bytes < all->alloc_bytes / TREE_JSON_SHARE + 1;
}

struct named {
    profile_string name, module;
    uint32_t node;
};

static int by_name(const void *a, const void *b)
{
    const struct named *x = a, *y = b;
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    if (x->module != y->module)
        return x->module < y->module ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

/* Equal names lie together once they are sorted: strings are there once, so their numbers are enough. */
static int number_names(const struct tree *tree, struct numbering *n)
{
    MEMOIR_CLEANUP(freep)
    struct named *all = calloc(tree->n + 1, sizeof(*all));
    size_t count = 0;
    if (!all)
        return -ENOMEM;
    for (uint32_t i = 0; i < tree->n; i++)
        if (n->node[i] != TREE_NONE)
            all[count++] = (struct named){tree->nodes[i].name, tree->nodes[i].module, i};
    qsort(all, count, sizeof(*all), by_name);
    for (size_t i = 0; i < count; i++) {
        if (i == 0 || all[i].name != all[i - 1].name || all[i].module != all[i - 1].module)
            n->first[n->n_names++] = all[i].node;
        n->name[all[i].node] = (uint32_t)(n->n_names - 1);
    }
    return 0;
}

static int number_all(const struct tree *tree, struct numbering *n)
{
    n->node = calloc(tree->n + 1, sizeof(*n->node));
    n->name = calloc(tree->n + 1, sizeof(*n->name));
    n->first = calloc(tree->n + 1, sizeof(*n->first));
    if (!n->node || !n->name || !n->first)
        return -ENOMEM;
    for (uint32_t i = 0; i < tree->n; i++) {
        const struct tree_node *node = &tree->nodes[i];
        bool out =
            i > 0 && (n->node[node->parent] == TREE_NONE ||
                      (tree->n > TREE_JSON_ALL && is_small(&node->total, &tree->nodes[0].total)));
        n->node[i] = out ? TREE_NONE : (uint32_t)n->n_nodes++;
    }
    return number_names(tree, n);
}

static void names_json(const struct tree *tree, const struct numbering *n, struct json *json)
{
    const struct profile *p = tree->profile;
    json_key(json, "names");
    json_array_begin(json);
    for (size_t i = 0; i < n->n_names; i++) {
        char text[SHORT_NAME_MAX];
        json_string(json, short_name(profile_text(p, tree->nodes[n->first[i]].name), text));
    }
    json_array_end(json);
    json_key(json, "functions");
    json_array_begin(json);
    for (size_t i = 0; i < n->n_names; i++) {
        char text[SHORT_NAME_MAX];
        const char *whole = profile_text(p, tree->nodes[n->first[i]].name);
        json_string(json, strcmp(short_name(whole, text), whole) == 0 ? NULL : whole);
    }
    json_array_end(json);
    json_key(json, "modules");
    json_array_begin(json);
    for (size_t i = 0; i < n->n_names; i++) {
        const char *module = profile_text(p, tree->nodes[n->first[i]].module);
        json_string(json, *module ? module : NULL);
    }
    json_array_end(json);
    json_key(json, "keys");
    json_array_begin(json);
    for (size_t i = 0; i < n->n_names; i++) {
        const struct tree_node *node = &tree->nodes[n->first[i]];
        char key[24];
        uint64_t hash =
            hash_string(profile_text(p, node->name), hash_string(profile_text(p, node->module), 0));
        snprintf(key, sizeof(key), "%016" PRIx64, hash);
        json_string(json, key);
    }
    json_array_end(json);
}

static void nodes_json(const struct tree *tree, const struct numbering *n, struct json *json)
{
    json_key(json, "nodes");
    json_array_begin(json);
    for (uint32_t i = 0; i < tree->n; i++) {
        const struct tree_node *node = &tree->nodes[i];
        if (n->node[i] == TREE_NONE)
            continue;
        json_array_begin(json);
        json_i64(json, i == 0 ? -1 : (int64_t)n->node[node->parent]);
        json_u64(json, n->name[i]);
        json_u64(json, node->total.live_bytes);
        json_u64(json, node->total.live_blocks);
        json_u64(json, node->total.alloc_bytes);
        json_u64(json, node->total.alloc_blocks);
        json_array_end(json);
    }
    json_array_end(json);
    json_key(json, "estimate");
    json_array_begin(json);
    for (uint32_t i = 0; i < tree->n; i++)
        if (n->node[i] != TREE_NONE && tree->nodes[i].estimate)
            json_u64(json, n->node[i]);
    json_array_end(json);
}

int tree_json(const struct tree *tree, struct json *json)
{
    MEMOIR_CLEANUP(numbering_release)
    struct numbering n = {0};
    int r = number_all(tree, &n);
    if (r < 0)
        return r;
    json_key(json, "values");
    json_array_begin(json);
    for (size_t i = 0; i < sizeof(value_names) / sizeof(*value_names); i++)
        json_string(json, value_names[i]);
    json_array_end(json);
    names_json(tree, &n, json);
    nodes_json(tree, &n, json);
    json_field_u64(json, "left_out", tree->n - n.n_nodes);
    return 0;
}
