/*
 * script_stack.h: call stacks with lines of scripts in them, for sources that keep whole stacks.
 *
 * Joins what unwind.h and python.h find, and enters the functions into the book. As everything that lives
 * in a stranger's process it allocates nothing; its tables are the caller's, one struct for each thread, and
 * not small, so that little of the thread's own stack is used. One call at a time with each struct: inside
 * of a report, as for struct book_thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "book/layout.h"
#include "site/python.h"
#include "site/unwind.h"

struct book_thread;
struct book_writer;

enum {
    SCRIPT_NATIVE_MAX =
        192, /* C frames looked at: interpreters use several for one call of a script */
    SCRIPT_FRAMES_MAX =
        BOOK_SITE_FRAMES_MAX + 16, /* what a caller may ask for, its own frames included */
    SCRIPT_CACHE_BITS = 8,
    SCRIPT_CACHE = 1 << SCRIPT_CACHE_BITS,
};

/* What an instruction of a code object was found to be. It holds while python_frame_check() is the same. */
struct script_cache_entry {
    uintptr_t code;
    int64_t at;
    uint64_t check;
    uint64_t frame; /* BOOK_SCRIPT_FRAME() */
    size_t lines_used;
};

/* Zeroed memory is an empty one; also after fork, when there is another book. */
struct script_thread {
    uintptr_t pcs[SCRIPT_NATIVE_MAX], sps[SCRIPT_NATIVE_MAX];
    struct python_stack stack;
    struct python_joined joined[SCRIPT_FRAMES_MAX];
    struct python_name name;
    struct book_script script;
    uint64_t misses; /* names that had to be read */
    struct script_cache_entry cache[SCRIPT_CACHE];
};

/* The stack from `from` on, as book_site_add() takes it: at most `max` frames, SCRIPT_FRAMES_MAX and less.
 * While no interpreter is known it is the C stack and costs no more; a caller who did not see that stack
 * before then calls python_find() and, if python_ready(), this again. `py` is the process's. */
size_t script_stack(struct book_writer *w, struct book_thread *t, struct script_thread *s,
                    const struct python *py, struct unwind_cache *cache,
                    const struct unwind_state *from, uintptr_t *frames, size_t max,
                    struct unwind_trace *ret_trace);

/* The same for a C stack that was walked already: the first `n` of s->pcs and s->sps, all of it if *trace has UNWIND_COMPLETE;
 * UNWIND_CUT is added where there are more. The interpreter is known. */
size_t script_join(struct book_writer *w, struct book_thread *t, struct script_thread *s,
                   const struct python *py, size_t n, uintptr_t *frames, size_t max,
                   struct unwind_trace *trace);

/* A call of Python as script_join() puts it among the frames, if that is known already; else 0. */
uint64_t script_frame_known(struct script_thread *s, const struct python *py,
                            const struct python_frame *frame);
