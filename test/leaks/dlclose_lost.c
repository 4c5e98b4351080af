/* The only pointer is a variable of a library that is unloaded. */
#include <dlfcn.h>

#include "truth.h"

static void step(int number)
{
    void *library = dlopen(KEEPER, RTLD_NOW);
    if (!library)
        abort();
    void (*keep)(void *) = (void (*)(void *))(uintptr_t)dlsym(library, "keep");
    if (!keep)
        abort();
    (void)number;
    keep(MALLOC(80)); /* LEAK */
    dlclose(library);
}

TRUTH_MAIN(step)
