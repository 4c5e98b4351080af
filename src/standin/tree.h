/* tree.h: an ordered set of intervals or handles, by key. A treap: its shape depends on the keys alone, so that runs can be
 * repeated. Callers hold the lock of the stand-in. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct node {
    uint64_t key;
    struct node *left, *right;
};

struct tree {
    struct node *root;
    size_t count;
};

/* Insert a node whose `key` is set and not yet in the tree. The tree borrows it until tree_remove(). */
void tree_insert(struct tree *t, struct node *n);
void tree_remove(struct tree *t, struct node *n);

struct node *tree_find(const struct tree *t, uint64_t key);
/* The node with the largest key <= `key`, or NULL. */
struct node *tree_floor(const struct tree *t, uint64_t key);
/* The node with the smallest key >= `key`, or NULL. */
struct node *tree_ceiling(const struct tree *t, uint64_t key);

#define NODE_OF(n, type, member) ((n) ? (type *)((char *)(n)-offsetof(type, member)) : (type *)NULL)
