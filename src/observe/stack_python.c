/* Looking for the interpreter of a process. See stack_python.h. */
#include "observe/stack_python.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

enum { NAMED_MAX = 16 }; /* files called after Python that are opened */

static const char *base_of(const struct module_map *map, const struct module_range *range)
{
    const char *name = map->names + range->name, *slash = strrchr(name, '/');
    return slash ? slash + 1 : name;
}

static bool starts_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Where threads are described: the C library, before glibc 2.34 its library for threads. */
static struct module *libc_find(struct module_map *map)
{
    static const char *const names[] = {"libpthread.so", "libpthread-2", "libc.so.6", "libc-2"};
    for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
        for (uint32_t i = 0; i < map->n_ranges; i++) {
            struct elf_symbol symbol;
            struct module_range *range = &map->ranges[i];
            if (range->kind != MODULE_RANGE_FILE || !starts_with(base_of(map, range), names[n]))
                continue;
            struct module *module = module_map_module(map, range);
            if (module && module->file &&
                elf_file_symbol(&module->file->elf, "_thread_db_pthread_specific", &symbol) == 0)
                return module;
        }
    }
    return NULL;
}

static bool module_try(struct stack_python *python, struct module *module)
{
    if (!module || python_remote_look(python->remote, module) < 0)
        return false;
    python->module = module;
    return true;
}

/* By the names of files, and among the modules that were on a stack. */
static bool module_find_python(struct stack_python *python, struct module_map *map)
{
    int named = 0;
    for (uint32_t i = 0; i < map->n_ranges && named < NAMED_MAX; i++) {
        struct module_range *range = &map->ranges[i];
        if (range->kind != MODULE_RANGE_FILE || !strstr(base_of(map, range), "python") ||
            strstr(base_of(map, range), ".cpython-"))
            continue;
        named++;
        if (module_try(python, module_map_module(map, range)))
            return true;
    }
    for (; python->n_modules < map->n_modules; python->n_modules++)
        if (module_try(python, map->modules[python->n_modules]))
            return true;
    return false;
}

/* Is what was found still mapped where it was? */
static bool still_there(const struct stack_python *python, struct module_map *map)
{
    struct module_range *range = module_map_range(map, python->remote->py.facts.eval_start);
    return range && module_map_module(map, range) == python->module;
}

static int find(struct stack_python *python, struct module_map *map)
{
    if (python->memory.stuck)
        return -ENOENT;
    if (!python->remote)
        python->remote = calloc(1, sizeof(*python->remote));
    if (!python->remote)
        return -ENOMEM;
    struct python_remote *r = python->remote;
    r->read = remote_memory_read;
    r->context = &python->memory;
    r->pool = python->pool;
    r->owner = python->memory.owner;
    r->deaths = &python->deaths;
    if (!python->module && !module_find_python(python, map))
        return -ENOENT;
    struct module *libc = libc_find(map);
    return libc ? python_remote_key(r, libc) : -ENOENT;
}

static void forget(struct stack_python *python)
{
    free(python->remote);
    python->remote = NULL;
    python->module = NULL;
    python->told = false;
    python->n_modules = 0;
}

int stack_python_look(struct stack_python *python, struct module_map *map, uint32_t maps_number,
                      struct python_kernel_facts *ret_facts)
{
    uint64_t now = clock_monotonic_ns();
    bool maps_same = python->maps_number == maps_number;
    if (!maps_same && python->module && !still_there(python, map))
        forget(python);
    if (!stack_python_ready(python)) {
        bool same = maps_same && python->n_modules == map->n_modules;
        if (python->looked_ns != 0 && now - python->looked_ns < STACK_PYTHON_RETRY_NS)
            return python->error;
        if (python->maps_number != 0 && same && python->error == -ENOENT)
            return -ENOENT;
        python->looked_ns = now;
        python->error = find(python, map);
        if (python->error == -ENOENT) { /* modules that were looked at stay so */
            uint32_t n = python->n_modules;
            forget(python);
            python->n_modules = n;
        }
    }
    python->maps_number = maps_number;
    if (python->error < 0)
        return python->error;
    if (python->told)
        return 0;
    python->told = true;
    *ret_facts = python->remote->kernel;
    return 1;
}

void stack_python_release(struct stack_python *python)
{
    forget(python);
}
