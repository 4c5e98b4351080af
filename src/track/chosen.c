/* chosen.c: see chosen.h. */
#include "track/chosen.h"

#include <dlfcn.h>
#include <link.h>

#include "site/module.h"
#include "site/module_symbol.h"

enum { CHAIN_MAX = 4096 };

/* Libraries from the program's start come first in the list of the loader and stay there, and the first of them that has the name is
 * among these, or dlsym() would have found none but the stub. */
static uintptr_t behind_stub(const struct link_map *program, const char *name)
{
    struct module_object object;
    struct module_symbol symbol;
    const struct link_map *at = program->l_next;
    for (int n = 0; at && n < CHAIN_MAX; n++, at = at->l_next)
        if (module_object_find((uintptr_t)at->l_ld, &object) == 0 &&
            module_symbol_find(&object, name, &symbol) == 0)
            return symbol.addr;
    return 0;
}

uintptr_t chosen_symbol(const char *name)
{
    struct module_object object;
    struct module_symbol symbol;
    uintptr_t found = (uintptr_t)dlsym(RTLD_DEFAULT, name);
    if (found == 0 || module_object_find(found, &object) < 0 || !object.map || object.map->l_prev ||
        module_symbol_find(&object, name, &symbol) == 0)
        return found;
    uintptr_t behind = behind_stub(object.map, name);
    return behind ? behind : found;
}
