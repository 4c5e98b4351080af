/* Two nodes that keep each other, and nobody keeps them. */
#include "truth.h"

struct node {
    struct node *other;
    char name[40];
};

static void step(int number)
{
    struct node *left = MALLOC(sizeof(*left));   /* LEAK */
    struct node *right = MALLOC(sizeof(*right)); /* LEAK */
    left->other = right;
    right->other = left;
    snprintf(left->name, sizeof(left->name), "pair %d", number);
}

TRUTH_MAIN(step)
