/*
 * grind.h: under Valgrind, memcheck understands our blocks.
 *
 * Valgrind puts malloc() of its own in the place of everybody's, ours too, unless it is told not to (--soname-synonyms=somalloc=
 * nouserintercepts) or finds none of the names. Then our blocks are told to memcheck one by one, by the requests that its header offers, so
 * that it finds what is touched beyond them, before they are written, or after they are freed, and what is lost. Behind a block lie
 * bytes that are nobody's. What the allocator itself does in free blocks is not told as an error.
 *
 * Outside of Valgrind a request is a few instructions that do nothing, and is made once, when the program starts. Built without its header,
 * none is.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The program runs under Valgrind. Set once, by grind_begin(). */
extern bool grind_on __attribute__((visibility("hidden")));
void grind_begin(void);

/* As hard_alloc() and its kin, which call these. */
void *grind_alloc(size_t bytes, size_t align, bool zero);
void grind_free(void *p);
void *grind_realloc(void *p, size_t bytes);
size_t grind_usable(void *p);

/* Around what the allocator does with free blocks outside of these. */
void grind_errors(bool on);
static inline void grind_enter(void)
{
    if (__builtin_expect(grind_on, 0))
        grind_errors(false);
}
static inline void grind_leave(void)
{
    if (__builtin_expect(grind_on, 0))
        grind_errors(true);
}
