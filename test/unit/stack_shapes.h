/* Functions of many shapes, which call one another at random: for tests of what walks stacks. */
#pragma once

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static __thread volatile unsigned sink;

typedef int leaf_fn(void);
struct plan {
    leaf_fn *leaf;
    unsigned seed;
    int depth;
    /* only the first so many, if not 0: the last one is too large for a cached rule */
    unsigned shapes;
    leaf_fn *
        again; /* called at every depth on the way back, if not NULL; the least of all results is given */
};

static int go_on(struct plan *plan);

static __attribute__((noinline)) int shape_plain(struct plan *plan)
{
    int r = go_on(plan);
    sink++;
    return r;
}

static __attribute__((noinline)) int shape_registers(struct plan *plan)
{
    unsigned a = sink, b = a * 3, c = b ^ 7, d = c + a, e = d * b, f = e ^ c;
    int r = go_on(plan);
    sink = a + b + c + d + e + f;
    return r;
}

static __attribute__((noinline)) int shape_array(struct plan *plan)
{
    char buffer[3000];
    memset(buffer, (int)plan->seed, sizeof(buffer));
    int r = go_on(plan);
    sink += (unsigned)buffer[plan->seed % sizeof(buffer)];
    return r;
}

static __attribute__((noinline)) int shape_huge(struct plan *plan)
{
    volatile char buffer[100000];
    buffer[plan->seed % sizeof(buffer)] = 1;
    int r = go_on(plan);
    sink += (unsigned)buffer[plan->seed % sizeof(buffer)];
    return r;
}

static __attribute__((noinline)) int shape_alloca(struct plan *plan)
{
    char *buffer = __builtin_alloca(plan->seed % 700 + 1);
    memset(buffer, 1, plan->seed % 700 + 1);
    int r = go_on(plan);
    sink += (unsigned)buffer[0];
    return r;
}

static __attribute__((noinline)) int shape_aligned(struct plan *plan)
{
    _Alignas(128) volatile char buffer[256];
    buffer[plan->seed % sizeof(buffer)] = 1;
    int r = go_on(plan);
    sink += (unsigned)buffer[3];
    return r;
}

static __attribute__((noinline)) int shape_aligned_alloca(struct plan *plan)
{
    _Alignas(64) volatile char buffer[64];
    char *more = __builtin_alloca(plan->seed % 300 + 1);
    memset(more, 2, plan->seed % 300 + 1);
    buffer[plan->seed % sizeof(buffer)] = more[0];
    int r = go_on(plan);
    sink += (unsigned)buffer[3] + (unsigned)more[0];
    return r;
}

static __attribute__((noinline)) int shape_variadic_(struct plan *plan, ...)
{
    va_list args;
    va_start(args, plan);
    sink += va_arg(args, unsigned);
    int r = go_on(plan);
    sink += va_arg(args, unsigned);
    va_end(args);
    return r;
}

static int shape_variadic(struct plan *plan)
{
    return shape_variadic_(plan, 1u, 2u, 3.0, 4u, 5u, 6u, 7u, 8u, 9.0);
}

static __thread struct plan *sort_plan;
static __thread int sort_result;
static int sort_compare(const void *a, const void *b)
{
    if (sort_plan) {
        struct plan *plan = sort_plan;
        sort_plan = NULL;
        sort_result = go_on(plan);
    }
    return *(const int *)a - *(const int *)b;
}

static __attribute__((noinline)) int shape_qsort(struct plan *plan)
{
    int values[] = {3, 1, 2};
    sort_plan = plan;
    qsort(values, 3, sizeof(int), sort_compare);
    sink += (unsigned)values[0];
    return sort_result;
}

static __attribute__((noinline)) int shape_bsearch(struct plan *plan)
{
    int values[] = {1, 2, 3}, key = 2;
    sort_plan = plan;
    sink += bsearch(&key, values, 3, sizeof(int), sort_compare) != NULL;
    return sort_result;
}

static int (*const shapes[])(struct plan *) = {
    shape_plain,          shape_registers, shape_array, shape_alloca,  shape_aligned,
    shape_aligned_alloca, shape_variadic,  shape_qsort, shape_bsearch, shape_huge};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static __attribute__((noinline)) int go_on(struct plan *plan)
{
    if (plan->depth-- == 0)
        return plan->leaf();
    plan->seed = plan->seed * 1103515245 + 12345;
    int r = shapes[(plan->seed >> 16) % (plan->shapes ? plan->shapes : SHAPES)](plan);
    int second = plan->again ? plan->again() : r;
    sink++;
    return second < r ? second : r;
}

static inline int run_plan(leaf_fn *leaf, unsigned seed, int depth)
{
    struct plan plan = {.leaf = leaf, .seed = seed, .depth = depth};
    return go_on(&plan);
}
