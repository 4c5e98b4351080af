/*
 * truth.h: a program that knows what it holds.
 *
 * The macros call the allocator from the very line where they stand and note what it gave, so that at the end
 * the program can print what each of its lines allocated and still holds: the truth that trackers are compared
 * with. The notes are static memory and the printing is write(2), so that nothing here is ever allocated.
 *
 * A program is a step that is taken again and again: TRUTH_STEPS times and then the end; or, with a number of
 * milliseconds as its argument, once in so many until its standard input closes, for who looks at rates.
 */
#pragma once

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TRUTH_LINES = 512, TRUTH_BLOCKS = 1 << 16, TRUTH_STEPS = 200 };

struct truth_line {
    uint64_t alloc_blocks, alloc_bytes, freed_blocks, freed_bytes;
};
struct truth_block {
    /* ~address, which is no pointer to who looks for them; 0: free, 1: was used */
    uintptr_t hidden;
    uint64_t bytes;
    int line;
};

static struct truth_line truth_lines[TRUTH_LINES];
static struct truth_block truth_blocks[TRUTH_BLOCKS];
static pthread_mutex_t truth_lock = PTHREAD_MUTEX_INITIALIZER;

static inline struct truth_block *truth_find(uintptr_t address, int empty)
{
    uintptr_t hidden = ~address;
    size_t at = (size_t)(hidden * UINT64_C(0x9e3779b97f4a7c15) >> 48) % TRUTH_BLOCKS;
    for (size_t i = 0; i < TRUTH_BLOCKS; i++) {
        struct truth_block *b = &truth_blocks[(at + i) % TRUTH_BLOCKS];
        if (b->hidden == hidden || (empty && b->hidden <= 1))
            return b;
        if (!empty && b->hidden == 0)
            return NULL;
    }
    return NULL;
}

/* Note a block that `line` got; gives it back. */
static inline void *truth_got(void *p, size_t bytes, int line)
{
    if (!p)
        abort(); /* no program here asks for much */
    pthread_mutex_lock(&truth_lock);
    struct truth_block *b = truth_find((uintptr_t)p, 1);
    if (!b)
        abort(); /* it holds more than it can note */
    b->hidden = ~(uintptr_t)p;
    b->bytes = bytes;
    b->line = line;
    truth_lines[line].alloc_blocks++;
    truth_lines[line].alloc_bytes += bytes;
    pthread_mutex_unlock(&truth_lock);
    return p;
}

/* Note that a block goes; before it goes, since afterwards another thread may get it. */
static inline void *truth_gone(void *p)
{
    if (!p)
        return p;
    pthread_mutex_lock(&truth_lock);
    struct truth_block *b = truth_find((uintptr_t)p, 0);
    if (!b)
        abort(); /* freed twice, or never got */
    truth_lines[b->line].freed_blocks++;
    truth_lines[b->line].freed_bytes += b->bytes;
    b->hidden = 1;
    pthread_mutex_unlock(&truth_lock);
    return p;
}

#define TRUTH_OF(call, bytes)                          \
    (__extension__({                                   \
        size_t truth_bytes_ = (bytes);                 \
        void *truth_got_ = (call);                     \
        truth_got(truth_got_, truth_bytes_, __LINE__); \
    }))
#define MALLOC(n)       TRUTH_OF(malloc(truth_bytes_), n)
#define CALLOC(n, each) TRUTH_OF(calloc(truth_bytes_ / (each), each), (n) * (each))
#define REALLOC(p, n)   TRUTH_OF(realloc(truth_gone(p), truth_bytes_), n)
#define ALIGNED(to, n)  TRUTH_OF(aligned_alloc(to, truth_bytes_), n)
#define MEMALIGN(to, n) TRUTH_OF(memalign(to, truth_bytes_), n)
#define FREE(p)         free(truth_gone(p))

/* What stands on every line, as one line of JSON. */
static inline void truth_tell(void)
{
    const char *comma = "";
    dprintf(STDOUT_FILENO, "TRUTH {\"lines\":[");
    for (int i = 0; i < TRUTH_LINES; i++) {
        const struct truth_line *t = &truth_lines[i];
        if (t->alloc_blocks == 0)
            continue;
        dprintf(
            STDOUT_FILENO,
            "%s{\"line\":%d,\"alloc_blocks\":%llu,\"alloc_bytes\":%llu,\"live_blocks\":%llu,\"live_bytes\":%llu}",
            comma, i, (unsigned long long)t->alloc_blocks, (unsigned long long)t->alloc_bytes,
            (unsigned long long)(t->alloc_blocks - t->freed_blocks),
            (unsigned long long)(t->alloc_bytes - t->freed_bytes));
        comma = ",";
    }
    dprintf(STDOUT_FILENO, "]}\n");
}

/* Take all steps. */
static inline void truth_run(int argc, char **argv, void (*step)(int number))
{
    if (argc < 2) {
        for (int i = 0; i < TRUTH_STEPS; i++)
            step(i);
        return;
    }
    struct pollfd input = {STDIN_FILENO, POLLIN, 0};
    dprintf(STDOUT_FILENO, "running\n");
    for (int i = 0;; i++) {
        char byte;
        step(i);
        if (i == TRUTH_STEPS / 2)
            dprintf(STDOUT_FILENO, "warm\n"); /* all that fills up at the start is full */
        if (poll(&input, 1, atoi(argv[1])) != 0 && read(STDIN_FILENO, &byte, 1) <= 0)
            return;
    }
}

/* Overwrites what the last step left on the stack and in registers, so that who looks for pointers finds only
 * those that the program means. */
__attribute__((noinline)) static void truth_forget(void)
{
    volatile char room[16384];
    for (size_t i = 0; i < sizeof(room); i++)
        room[i] = 0;
}

#define TRUTH_MAIN(step)             \
    int main(int argc, char **argv)  \
    {                                \
        truth_run(argc, argv, step); \
        truth_forget();              \
        truth_tell();                \
        return 0;                    \
    }
