/* A tree of functions as JSON, for pages that draw it. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct json;
struct tree;

enum {
    TREE_JSON_ALL = 2000,    /* nodes: with so many or fewer none is left out */
    TREE_JSON_SHARE = 10000, /* else those that are less than one part in so many of everything */
};

/* Fields of an open object:
 *   "values"   what the figures of a node are, in their order
 *   "names"    functions, each with a module once
 *   "modules"  paths of their modules, null where there is none, and
 *   "keys"     what each of them is known by, the same at every moment and in every run
 *   "nodes"    [parent, name, figures...]: the first is the root, whose parent is -1; parents come before
 *              their children; figures are with all that is below
 *   "estimate" numbers of the nodes that are estimates, at least in part
 *   "left_out" how many nodes were too small to be told of
 * 0 or -ENOMEM. */
int tree_json(const struct tree *tree, struct json *json);
