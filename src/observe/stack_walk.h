/* stack_walk.h: unwind a copied stack. The steps and their order are those of site/unwind.c, so that both find the same
 * frames; memory is the copied bytes, and the tables are those of files (modules.h). For stacks.c. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "observe/modules.h"
#include "observe/stacks.h"

enum {
    WALK_FRAMES_MAX = 192, /* native frames of a stack that are looked at, as script_stack.h */
    WALK_CODES_BITS = 10,  /* code addresses of a process that are found at once */
    WALK_RULES_BITS = 16,  /* rules of all files */
    WALK_TRAMPOLINES_MAX = 4,
};

/* What a code address of a process is. */
struct walk_code {
    uint64_t pc;           /* 0: unused */
    struct module *module; /* NULL: of no module */
    uint32_t rule;         /* rules.h; 0: no unwind tables */
};

/* A rule of a file, for all processes that map it. */
struct walk_rule {
    uint64_t key; /* number of the file and address; 0: unused */
    uint32_t rule;
};

struct walk_frame {
    uint64_t pc;           /* a return address, or an exact one plus 1 */
    uint64_t sp;           /* of the frame that pc returns to */
    uint64_t word;         /* where pc lay on the stack; 0: not known */
    uint64_t raw;          /* what lay there */
    struct module *module; /* NULL: of no module */
};

struct walk_stack {
    uint32_t n;
    uint32_t flags; /* STACK_CUT, STACK_LOST */
    bool complete;  /* ends at the outermost frame */
    struct walk_frame frames[WALK_FRAMES_MAX];
};

/* Where the walk looks code up. */
struct walk_process {
    struct module_map map;
    struct walk_rule *rules; /* 1 << WALK_RULES_BITS, shared */
    struct stacks_figures *figures;
    struct walk_code codes[1 << WALK_CODES_BITS];
    uint64_t trampolines[WALK_TRAMPOLINES_MAX][2];
    uint32_t n_trampolines;
    /* When the maps were read, how long that took, and whether they are known to be out of date. */
    uint64_t maps_ns, maps_cost_ns;
    uint32_t maps_number; /* how often they were read */
    bool changed;
    bool gone; /* the process cannot be read any more */
};

/* Read the maps, whatever is known. 0 or -errno. */
int walk_maps_read(struct walk_process *process);

/* Read the maps again if that is due: `miss` if an address is in no mapping. True if they were read. */
bool walk_maps_refresh(struct walk_process *process, bool miss);

void walk_stack(struct walk_process *process, const struct stack_input *input,
                struct walk_stack *ret_stack);

/* The module of the call that returns to `pc`, NULL: none. *ret_up: where the return address of the calling function lies then, in bytes
 * above the stack pointer; 0: at no constant place. */
struct module *walk_caller(struct walk_process *process, uint64_t pc, uint32_t *ret_up);
