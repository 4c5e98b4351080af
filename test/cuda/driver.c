#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct known {
    const char *symbol, *name;
    int version, flags;
    bool used;
};

static struct known known[] = {
#define ENTRY(name, symbol, version) {#symbol, #name, version, CU_PROC_DEFAULT, false},
#define TWIN(name, symbol, version, suffix, twin_version) \
    {#symbol, #name, version, CU_PROC_DEFAULT, false},    \
        {#symbol "_" #suffix, #name, twin_version, CU_PROC_PER_THREAD_STREAM, false},
#include "standin/entries.h"
#undef ENTRY
#undef TWIN
};
#define KNOWN_COUNT (sizeof(known) / sizeof(known[0]))

static void *library;
static enum driver_way driver_way;

static void fail(const char *what, const char *symbol)
{
    fprintf(stderr, "%s %s\n", what, symbol);
    exit(2);
}

void driver_open(enum driver_way way)
{
    driver_way = way;
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        fail("cannot load libcuda.so.1:", dlerror());
}

static struct known *find(const char *symbol)
{
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        if (strcmp(known[i].symbol, symbol) == 0)
            return &known[i];
    return NULL;
}

static void *by_version(const struct known *k)
{
    fn_cuGetProcAddress_v2 *get = (fn_cuGetProcAddress_v2 *)dlsym(library, "cuGetProcAddress_v2");
    void *function = NULL;
    int status = -1;

    if (!get || get(k->name, &function, k->version, (unsigned long long)k->flags, &status) != 0 ||
        status != CU_PROC_FOUND)
        return NULL;
    return function;
}

void *driver_symbol(const char *symbol)
{
    struct known *k = find(symbol);
    void *function = NULL;

    if (!k)
        fail("not in the table:", symbol);
    function = driver_way == DRIVER_BY_VERSION ? by_version(k) : dlsym(library, symbol);
    if (!function)
        fail("the driver has no", symbol);
    __atomic_store_n(&k->used, true, __ATOMIC_RELAXED);
    return function;
}

void driver_unused(char *ret, unsigned size)
{
    size_t at = 0;

    ret[0] = '\0';
    for (size_t i = 0; i < KNOWN_COUNT; i++)
        if (!known[i].used && find(known[i].symbol) == &known[i] && at < size)
            at += (size_t)snprintf(ret + at, size - at, "%s%s", at ? " " : "", known[i].symbol);
}

bool driver_counts(struct standin_counts *ret)
{
    void (*counts)(struct standin_counts *) =
        (void (*)(struct standin_counts *))dlsym(library, "standin_counts");

    if (counts)
        counts(ret);
    return counts != NULL;
}
