/* links.h: many blocks in a list that goes through them. */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "cases.h"

#define MIB ((size_t)1 << 20)

/* A stack of blocks, linked through them. */
struct link {
    struct link *next;
};

static struct link *take(size_t total, size_t bytes)
{
    struct link *list = NULL;
    for (size_t i = 0; i < total / bytes; i++) {
        struct link *block = malloc(bytes);
        MUST(block);
        memset(block, 1, bytes);
        block->next = list;
        list = block;
    }
    return list;
}

static void give(struct link *list)
{
    while (list) {
        struct link *next = list->next;
        free(list);
        list = next;
    }
}
