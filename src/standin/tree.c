#include "standin/tree.h"

/* Priorities come from the key, so that equal sets of keys make equal trees. */
static uint64_t priority(const struct node *n)
{
    uint64_t x = n->key + 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Split `n` into keys below `key` and the others. */
static void split(struct node *n, uint64_t key, struct node **ret_low, struct node **ret_high)
{
    while (n) {
        if (n->key < key) {
            *ret_low = n;
            ret_low = &n->right;
            n = n->right;
        } else {
            *ret_high = n;
            ret_high = &n->left;
            n = n->left;
        }
    }
    *ret_low = NULL;
    *ret_high = NULL;
}

void tree_insert(struct tree *t, struct node *n)
{
    struct node **at = &t->root;

    while (*at && priority(*at) >= priority(n))
        at = n->key < (*at)->key ? &(*at)->left : &(*at)->right;
    split(*at, n->key, &n->left, &n->right);
    *at = n;
    t->count++;
}

void tree_remove(struct tree *t, struct node *n)
{
    struct node **at = &t->root;

    while (*at && *at != n)
        at = n->key < (*at)->key ? &(*at)->left : &(*at)->right;
    if (!*at)
        return;
    struct node *low = n->left, *high = n->right;
    while (low && high) {
        if (priority(low) >= priority(high)) {
            *at = low;
            at = &low->right;
            low = low->right;
        } else {
            *at = high;
            at = &high->left;
            high = high->left;
        }
    }
    *at = low ? low : high;
    t->count--;
}

struct node *tree_find(const struct tree *t, uint64_t key)
{
    struct node *n = tree_floor(t, key);

    return n && n->key == key ? n : NULL;
}

struct node *tree_floor(const struct tree *t, uint64_t key)
{
    struct node *best = NULL;

    for (struct node *n = t->root; n;) {
        if (n->key <= key) {
            best = n;
            n = n->right;
        } else {
            n = n->left;
        }
    }
    return best;
}

struct node *tree_ceiling(const struct tree *t, uint64_t key)
{
    struct node *best = NULL;

    for (struct node *n = t->root; n;) {
        if (n->key >= key) {
            best = n;
            n = n->left;
        } else {
            n = n->right;
        }
    }
    return best;
}
