/* Exported symbols of a loaded module, found in its memory: no dlsym(), which takes the loader's lock and
 * allocates when it finds nothing. Async-signal-safe; what the tables say is believed only inside of the
 * module's own readable segments. A module on the caller's own stack stays mapped meanwhile. */
#pragma once

#include <link.h>
#include <stddef.h>
#include <stdint.h>

struct module_object;

struct module_symbol {
    uintptr_t addr;
    uint64_t bytes;          /* as the file says; 0 if it does not */
    const ElfW(Sym) * entry; /* in the module's table */
};

/* By DT_GNU_HASH. -ENOENT: it exports no such symbol, or has no such table. About a microsecond. */
int module_symbol_find(const struct module_object *object, const char *name,
                       struct module_symbol *ret_symbol);

/* In any module but the one around `beside`, in the order in which they were loaded: for symbols that dlsym() does not see, since their
 * module was loaded with RTLD_LOCAL. Takes the lock of the loader, allocates nothing. -ENOENT: no module exports it. */
int module_symbol_find_any(uintptr_t beside, const char *name, struct module_symbol *ret_symbol);
