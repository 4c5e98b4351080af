/* stack_python.h: the interpreter of a process, looked for as its maps change. For stacks.c. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "observe/modules.h"
#include "observe/python_remote.h"

#define STACK_PYTHON_RETRY_NS UINT64_C(100000000)

struct stack_python {
    struct remote_memory memory;
    struct parser_pool *pool;     /* of parsers that interpret objects; borrowed */
    uint32_t deaths;              /* of the parser over this process */
    struct python_remote *remote; /* NULL: none was found */
    struct module *module;        /* which it is */
    uint32_t maps_number;         /* of the maps in which it was looked for; 0: never */
    uint32_t n_modules;           /* modules that were looked at */
    uint64_t looked_ns;
    int error; /* of the last look: 0, -ENOENT, -EAGAIN */
    bool told; /* the facts were given out */
};

/* As stack_process_python(), for maps that were read `maps_number` times. */
int stack_python_look(struct stack_python *python, struct module_map *map, uint32_t maps_number,
                      struct python_kernel_facts *ret_facts);

/* Ready to name calls? */
static inline bool stack_python_ready(const struct stack_python *python)
{
    return python->remote && python->remote->py.state == PYTHON_READY;
}

void stack_python_release(struct stack_python *python);
