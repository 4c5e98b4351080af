/* shim.c: the table of functions, cuGetProcAddress() and dlsym(). See shim.h. */
#include "pin/shim.h"

#include <dlfcn.h>
#include <string.h>

#include "base/atomic.h"
#include "pin/manager.h"
#include "pin/next.h"
#include "track/tail_call.h"

enum { ERROR_NOT_INITIALIZED = 3, PER_THREAD_STREAM = 2 };

#define SHIM(symbol, name, version) extern char symbol[];
#define TWIN(symbol, name, version) extern char symbol[];
#include "pin/shim_table.h"
#undef SHIM
#undef TWIN

static struct {
    const char *symbol, *name;
    int version;
    bool twin;
    void *own;
    void *real; /* NULL: not known yet; any thread stores the same */
} table[SHIMS] = {
#define SHIM(symbol, name, version) [SHIM_##symbol] = {#symbol, name, version, false, symbol, NULL},
#define TWIN(symbol, name, version) [SHIM_##symbol] = {#symbol, name, version, true, symbol, NULL},
#include "pin/shim_table.h"
#undef SHIM
#undef TWIN
};

static CUresult no_driver(void)
{
    return ERROR_NOT_INITIALIZED;
}

void *shim_real(enum shim which)
{
    void *real = load_acquire(&table[which].real);
    if (__builtin_expect(real != NULL, true))
        return real;
    real = pin_driver_symbol(table[which].symbol);
    if (!real)
        return (void *)no_driver;
    store_release(&table[which].real, real);
    return real;
}

/* One function of the driver stands behind each of ours. */
static void *put(size_t which, void *real)
{
    void *known = NULL;
    if (real == table[which].own)
        return NULL;
    if (cas_acq_rel(&table[which].real, &known, real) || known == real)
        return table[which].own;
    fetch_add_relaxed(&pin_manager.counts.unwrapped, 1);
    return NULL;
}

void *shim_for_symbol(const char *symbol, void *real)
{
    for (size_t i = 0; i < SHIMS; i++)
        if (strcmp(table[i].symbol, symbol) == 0)
            return put(i, real);
    return NULL;
}

/* As the driver chooses: the newest form that the version has; with a default stream per thread the
 * twin, if there is one. */
void *shim_for_name(const char *name, int version, bool per_thread, void *real)
{
    size_t found = SHIMS;
    bool twin = false;
    for (size_t i = 0; i < SHIMS; i++) {
        if (strcmp(table[i].name, name) != 0 || table[i].version > version ||
            (table[i].twin && !per_thread))
            continue;
        if (twin && !table[i].twin && found < SHIMS && table[found].version >= table[i].version)
            continue;
        found = i;
        twin = table[i].twin;
    }
    return found < SHIMS ? put(found, real) : NULL;
}

/* ---- cuGetProcAddress ---- */

static void replace(const char *name, void **function, int version, uint64_t flags)
{
    void *own = name && function && *function
                    ? shim_for_name(name, version, flags & PER_THREAD_STREAM, *function)
                    : NULL;
    if (own)
        *function = own;
}

SHIM_API CUresult shim_proc(const char *name, void **function, int version,
                            unsigned long long flags) __asm__("cuGetProcAddress");
CUresult shim_proc(const char *name, void **function, int version, unsigned long long flags)
{
    CUresult r = SHIM_REAL(CUresult(const char *, void **, int, unsigned long long),
                           cuGetProcAddress)(name, function, version, flags);
    if (r == CUDA_SUCCESS)
        replace(name, function, version, flags);
    return r;
}

SHIM_API CUresult shim_proc_v2(const char *name, void **function, int version,
                               unsigned long long flags,
                               int *status) __asm__("cuGetProcAddress_v2");
CUresult shim_proc_v2(const char *name, void **function, int version, unsigned long long flags,
                      int *status)
{
    CUresult r = SHIM_REAL(CUresult(const char *, void **, int, unsigned long long, int *),
                           cuGetProcAddress_v2)(name, function, version, flags, status);
    if (r == CUDA_SUCCESS)
        replace(name, function, version, flags);
    return r;
}

/* ---- dlsym ---- */

static void *same(void *argument)
{
    return argument;
}

static void *find_nothing(void)
{
    return NULL;
}

/* dlsym() looks at the address of its caller for RTLD_NEXT: hence the jump, and no call in
 * between. */
TAIL_CALL(dlsym, pin_symbol_prepare);
uintptr_t pin_symbol_prepare(uintptr_t arguments[3])
{
    void *handle = (void *)arguments[0];
    const char *name = (const char *)arguments[1];
    if (!pin_next_find())
        return (uintptr_t)find_nothing;
    if (!name || name[0] != 'c' || name[1] != 'u' || handle == RTLD_NEXT ||
        pin_settings.mode == PIN_OFF)
        return (uintptr_t)pin_next.dlsym;
    void *real = pin_next.dlsym(handle, name);
    if (!real)
        return (uintptr_t)pin_next.dlsym; /* says why */
    for (size_t i = 0; i < SHIMS; i++)
        if (real == table[i].own && !pin_driver())
            return (uintptr_t)find_nothing; /* it found ours, and there is no driver behind it */
    void *own = shim_for_symbol(name, real);
    arguments[0] = (uintptr_t)(own ? own : real);
    return (uintptr_t)same;
}
