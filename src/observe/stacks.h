/* stacks.h: call sites of other processes, from what a probe copied.
 *
 * A probe on a function's entry copies the registers and the bytes above the stack pointer, and the kernel lists the Python calls
 * of the thread. From these, and from the ELF files that the process has mapped, stack_resolve() makes the frames that the
 * in-process tracker would find there: (module, offset) and lines of scripts. They go into a book by book_site_add_frames()
 * and have the same site key as in every other book.
 *
 * All input is untrusted: the process wrote the stack, its files and its Python objects. Nothing is followed without bounds, and no
 * input of one process changes what is found for another. ELF files are read by pread() once and shared by all processes
 * that map the same file (device, inode, size, time of change).
 *
 * Cost: about 1 us for a stack whose code addresses are known; up to 5 us for each address that is not, 25 us with a parser; 0.1 to 1 ms when the
 * process's maps must be read (the first stack, code in no known mapping, at most every STACK_MAPS_AGE_NS otherwise); some
 * milliseconds for a large file that no process had mapped before. Calls block on reading files and memory of the process.
 *
 * Descriptors: up to MODULE_FILES_MAX (1,024) ELF files stay open; a program that observes many processes raises its limit.
 *
 * Hangs: files on file systems without a block device, and memory of users other than root, are read with a deadline of 200 ms
 * (deadline.h), by a thread that is started when the first of them comes. A process whose memory hangs has no Python names.
 *
 * Threads: all objects of one `struct stacks` belong to one thread at a time. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "book/writer.h" /* struct book_frame */
#include "observe/parser_pool.h"
#include "observe/python_capture.h"

enum {
    STACK_BYTES_MAX = 16384, /* copied bytes of a stack that are looked at */
    STACK_FRAMES_MAX = 64,   /* frames of a result */
    STACK_WORDS_MAX = 12,
};
#define STACK_MAPS_AGE_NS UINT64_C(1000000000)

struct stacks;        /* what all processes share: ELF files, unwind rules */
struct stack_process; /* one process: its mappings, its interpreter, its scripts */

int stacks_new(struct stacks **ret_stacks);
void stacks_free(struct stacks *stacks); /* after all its processes; NULL is fine */

/* What parses ELF files (elf_file.h), before the first process; memory of processes is then interpreted by further ones, one for each user
 * (parser_pool.h). Without it, this process does both, as tests have it. Borrows `parser`. -ENOMEM: then no process may be looked at. */
struct elf_parser;
int stacks_parser_set(struct stacks *stacks, struct elf_parser *parser);

/* The caller makes sure that `pid` is the process it means (a pidfd, start time); it must be readable as ptrace demands.
 * Reads the maps. -ESRCH: no such process; -EACCES: not allowed. Borrows `stacks`. */
int stack_process_new(struct stacks *stacks, pid_t pid, struct stack_process **ret_process);
void stack_process_free(struct stack_process *process); /* NULL is fine */

/* The mappings of executable files changed (mmap, munmap, exec): read them again before the next stack. Costs nothing itself. */
void stack_process_changed(struct stack_process *process);

/* The interpreter of the process, for the kernel: 1 if *ret_facts was filled in, and it is new or differs from what the last call
 * gave; 0 if nothing changed. -ENOENT: no CPython is mapped, or an unknown version; -EAGAIN: one is mapped and
 * runs no Python code yet: ask again with the next stack. Looks only if the maps changed since or the last answer was -EAGAIN,
 * at most every 100 ms. */
int stack_process_python(struct stack_process *process, struct python_kernel_facts *ret_facts);

/* Registers at the entry of the probed function: [rsp] is the return address. */
struct stack_registers {
    uint64_t rip, rsp, rbp, rbx, r12, r13, r14, r15;
};

/* A return address that the kernel replaced by its own trampoline, since the function has a return probe. */
struct stack_return {
    /* Where it lies: rsp at the entry of that function. 0: not known; such addresses are used in their order. */
    uint64_t at;
    uint64_t value; /* the true return address */
};

struct stack_input {
    struct stack_registers registers;
    const uint8_t *bytes; /* [rsp, rsp + n_bytes), at most STACK_BYTES_MAX of them are looked at */
    size_t n_bytes;
    /* Outer probed calls of this thread, innermost first; may be NULL. */
    const struct stack_return *returns;
    size_t n_returns;
    const struct python_capture *python; /* may be NULL */
};

enum stack_flags {
    /* There are more frames: than fit, or beyond the copied bytes. The site gets BOOK_SITE_CUT. */
    STACK_CUT = 1u << 0,
    /* The walk ended at code without unwind tables, or at garbage. Comes with STACK_CUT. */
    STACK_LOST = 1u << 1,
    /* Python calls are among the frames. */
    STACK_PYTHON = 1u << 2,
    /* A Python call could not be named, since its code object is gone. The result must not be kept for other stacks. */
    STACK_UNNAMED = 1u << 3,
    /* More frames than words: some in between have none, and another stack may have the same words. */
    STACK_WORDS_CUT = 1u << 4,
};

/* A word of the stack that must be the same for the stack to be this one: a return address at rsp + offset. */
struct stack_word {
    uint64_t value;
    uint32_t offset;
    uint32_t spare;
};

struct stack_result {
    uint32_t n;     /* frames, innermost first: frames[0] is the caller of the probed function */
    uint32_t flags; /* enum stack_flags */
    /* Words, innermost first. A trampoline is given as it lies on the stack. */
    uint32_t n_words;
    /* Modules in frames live as long as the process object, scripts until the next stack_resolve() of it. */
    struct book_frame frames[STACK_FRAMES_MAX];
    struct stack_word words[STACK_WORDS_MAX];
};

/* 0; -ESRCH when the process is gone and its maps would have been needed (the result then has what was known). */
int stack_resolve(struct stack_process *process, const struct stack_input *input,
                  struct stack_result *ret_result);

/* The caller that a probed function returns to. *ret_fd: its ELF file, borrowed; -1: none. *ret_up: where its own return address lies
 * after the call, in bytes above the stack pointer; 0: at no constant place. The frame's module lives as long as the process
 * object. */
void stack_caller(struct stack_process *process, uint64_t pc, struct book_frame *ret_frame,
                  int *ret_fd, uint32_t *ret_up);

/* The stable key of a result, as the site in a book has it. */
uint64_t stack_result_key(const struct stack_result *result);

/* For tests: treat the page at `start` as the one to which probed functions return. */
void stack_process_trampoline_for_test(struct stack_process *process, uint64_t start);

/* For tests: forget all rules, and the unwind tables that were read. */
void stacks_forget_for_test(struct stacks *stacks, struct stack_process *process);

/* Figures for views and tests. */
struct stacks_figures {
    uint64_t files, file_bytes;         /* ELF files kept now, and bytes of unwind tables */
    uint64_t maps_read;                 /* how often maps of a process were read */
    uint64_t rules_made;                /* code addresses whose rule was computed */
    uint64_t names_read;                /* Python code objects that were read */
    uint64_t stuck;                     /* reads of files and memory that hang: see deadline.h */
    uint64_t walks, lost;               /* stacks, and of those ended by STACK_LOST */
    struct parser_pool_figures parsers; /* of memory */
};
void stacks_figures(const struct stacks *stacks, struct stacks_figures *ret_figures);
