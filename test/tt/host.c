/* Loads a library privately and calls its tt_main(), as an interpreter would. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*entry)(void) = library ? (int (*)(void))dlsym(library, "tt_main") : NULL;
    if (!entry) {
        fprintf(stderr, "usage: tt_host LIBRARY: %s\n", dlerror());
        return 2;
    }
    return entry();
}
