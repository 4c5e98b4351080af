/* heap_callers.h: who asked the allocator, seen from a return address.
 *
 * Functions that only hand a request on (operator new, zmalloc, strdup) tell nothing: the kernel follows their callers. They are known
 * by a short list of names, which are looked up once for each file, and by the libraries of the C and C++ runtimes. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "book/writer.h"

struct heap_callers;
struct elf_parser;
struct stack_process;

struct heap_caller {
    struct book_frame frame;
    uint32_t hop; /* heap_node.hop: it hands on, and its caller is found there; 0: it asked */
};

/* Borrows `process`. */
int heap_callers_new(struct stack_process *process, struct elf_parser *parser,
                     struct heap_callers **ret_callers);
void heap_callers_free(struct heap_callers *callers); /* NULL is fine */

/* About a microsecond; the first address of a file takes as long as reading its symbols. */
void heap_callers_find(struct heap_callers *callers, uint64_t pc, struct heap_caller *ret_caller);

/* Does a function of this name hand on? For tests. */
bool heap_callers_hands_on(const char *name);
