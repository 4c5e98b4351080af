/* python_remote.h: CPython in another process.
 *
 * Three steps. python_remote_look() and python_remote_key() find the interpreter by the symbols of its ELF file and where it keeps a
 * thread's state, so that the kernel can walk the frames of a thread while it is stopped in a probe (python.bpf.h).
 * python_remote_stack() turns what the kernel captured into calls. python_remote_names() names them, from code objects, strings and
 * line tables of the process, which last longer than the frames.
 *
 * Objects of the process are interpreted by the parser (python_objects.h), which has no rights. This side keeps names, so that a call is
 * asked about once, compares the bytes that a name was made from to see whether it still holds, and believes an answer only if lengths, texts (UTF-8) and numbers are what they may be. A parser that dies or takes
 * too long costs names: those of the stack at hand, and after ELF_FILE_DEATHS_MAX times all of that process.
 *
 * A code object may be gone, and another lie at its address, when it is read: the kernel took a check value of it, so that this is
 * noticed and the call gets no name. The layouts are those of site/python_layout.h; an unknown version has no frames. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "book/layout.h"
#include "observe/modules.h"
#include "observe/python_capture.h"
#include "observe/python_objects.h"
#include "observe/remote_memory.h"
#include "site/python.h"

enum {
    PYTHON_REMOTE_SETS_BITS = 6, /* names of calls that are kept for a process: so many sets, */
    PYTHON_REMOTE_WAYS = 4,      /* and places in each */
    /* Bytes that are read to see which names of a stack still hold; calls beyond that are asked about again. */
    PYTHON_REMOTE_WITNESS_BYTES = 65536,
};

/* The name of a call. It holds while its witnesses (struct python_call_told) are what they were. */
struct python_remote_name {
    uint64_t code;
    int64_t at;
    uint64_t check; /* of the witnesses; 0: unused */
    /* Where code objects have numbers of their own: what the kernel's check value is while the name holds. Then nothing need be read.
     * Else 0. */
    uint64_t captured;
    uint32_t line;
    uint32_t n_witnesses;
    struct python_witness witnesses[PYTHON_WITNESSES];
    struct book_script script;
};

struct python_remote {
    remote_read_fn *read;
    void *context;
    /* What interprets objects: the parser of `owner` in the pool; without a pool `parser`; without both this process, for tests.
     * Borrowed. */
    struct parser_pool *pool;
    uint32_t owner;
    struct elf_parser *parser;
    uint32_t *deaths; /* children of the parser that ended over this process */
    struct python py; /* facts: for python_join() */
    struct python_kernel_facts kernel;
    uint64_t names_read;
    /* Of the stack at hand; good until the next. */
    struct python_stack stack;
    uint64_t checks[PYTHON_CAPTURE_ENTRIES]; /* of its calls: python_code_check() */
    struct book_script scripts[PYTHON_CAPTURE_ENTRIES];
    uint32_t lines[PYTHON_CAPTURE_ENTRIES];
    struct python_remote_name names[1 << PYTHON_REMOTE_SETS_BITS][PYTHON_REMOTE_WAYS];
    uint8_t bytes[PYTHON_REMOTE_WITNESS_BYTES]; /* of witnesses */
    /* A question and its answer. */
    struct python_names_ask ask;
    struct python_names_told told;
};

/* Ask what interprets the objects: 0, or as elf_parser_ask_process(); -EBUSY also: there is no parser. For python_remote*.c. */
struct elf_question;
int python_remote_ask(struct python_remote *remote, struct elf_question *question);
static inline bool python_remote_is_here(const struct python_remote *remote)
{
    return !remote->pool && !remote->parser;
}

/* Is this module an interpreter? Fills in py.facts but for the key. -ENOENT: no, or of an unknown version. Reads the file. */
int python_remote_look(struct python_remote *remote, struct module *module);

/* Where threads keep their states; fills in the rest. `libc` has the C library's own description of its threads. -EAGAIN: no
 * thread has a state yet, or there is no parser at the moment. -ENOENT: a C library without that description, an interpreter without
 * GIL, or one over which the parser died. */
int python_remote_key(struct python_remote *remote, struct module *libc);

/* Calls as the kernel captured them, into remote->stack. False if there are none, or they make no sense. */
bool python_remote_stack(struct python_remote *remote, const struct python_capture *capture);

/* Name the first `n` calls of remote->stack: scripts[i] and lines[i]. A call without a name has an empty script. Returns how many have
 * one. */
uint32_t python_remote_names(struct python_remote *remote, uint32_t n);
