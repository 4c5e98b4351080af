/* scope_opener.c: a library that finds another one by its own RUNPATH. */
#include <dlfcn.h>

void *scope_open(const char *name, int mode);

void *scope_open(const char *name, int mode)
{
    void *handle = dlopen(name, mode);
    __asm__ volatile("" ::: "memory"); /* no tail call: the caller is here */
    return handle;
}
