/* The stacks of a profile as a tree of functions: what each holds itself, and with all that it called. */
#pragma once

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "profile/labels.h"
#include "profile/profile.h"
#include "profile/rows.h"
#include "profile/stacks.h"

enum { TREE_DEPTH_MAX = 2048 }; /* functions; deeper ones count where the tree ends */

#define TREE_NONE UINT32_MAX

struct tree_node {
    profile_string name, module;     /* function, path; of the root "" */
    uint32_t parent, child, sibling; /* children from large to small; TREE_NONE: none */
    uint32_t depth;                  /* of the root 0 */
    bool estimate;                   /* a part of it is */
    struct profile_figures total;    /* with all that is below */
    struct profile_figures self;     /* of stacks that end here */
};

struct tree {
    const struct profile *profile; /* borrowed */
    struct tree_node *nodes;       /* [0] is the root */
    size_t n, room;
    uint32_t depth_max;
    struct numbers by_name;
    struct profile_figures estimated; /* part of the root's total */
    struct profile_figures left_out;  /* of stacks that the focus does not let pass */
};

struct tree_options {
    enum rows_measure measure; /* what children are sorted by */
    uint32_t space;            /* enum memoir_space; 0: any */
    bool inverted;             /* from those who asked to their callers */
    const regex_t *focus;      /* only stacks with such a function, from there on; NULL: all */
};

/* Adds names to the profile's strings, and borrows it. 0 or -errno. */
int tree_take(struct profile *profile, const struct tree_options *options, struct tree *ret_tree);

/* The same stack by stack, from rows of the table `stacks`: begin (to be released in any case), add, end. The strings are those of
 * `names`, which the tree borrows. Errors are -ENOMEM or the profile's. */
struct tree_step {
    profile_string name, module;
};
int tree_begin(struct tree *tree, const struct profile *names);
int tree_add(struct tree *tree, const struct tree_step *steps, size_t n,
             const struct profile_figures *figures, bool estimate);
int tree_end(struct tree *tree, enum rows_measure measure);
void tree_release(struct tree *tree);
