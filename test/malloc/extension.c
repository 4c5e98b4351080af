/* extension.c: a program in C that loads an extension in C++ for itself alone (RTLD_LOCAL): dlsym() does not see the C++ library, and new
 * and delete work as ever. With FIXED it is linked at a fixed address and takes those of functions, which are stubs in the program then. */
#include <dlfcn.h>
#include <string.h>

#include "cases.h"

static int (*function(const char *name))(void)
{
    const char *path = getenv("CASE_EXTENSION");
    if (!path)
        case_skip("CASE_EXTENSION is not set");
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    MUST_SAY(handle != NULL, "%s", dlerror());
    int (*found)(void) = NULL;
    *(void **)&found = dlsym(handle, name);
    MUST(found != NULL && dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv") == NULL);
    (void)dlerror();
    return found;
}

static void new_without_memory_asks_the_handler_and_throws(void)
{
    int well = function("extension_fail")();
    MUST_SAY(well == 31, "%d went well of 31", well);
}

/* Else each new and each delete would look for an operator that it does not find. */
static void new_and_delete_look_nothing_up(void)
{
    int (*run)(void) = function("extension_run");
    MUST(run() == 1000);
    const char *error = dlerror();
    MUST_SAY(error == NULL, "%s", error);
}

static const struct test_case cases[] = {
    {"new_without_memory_asks_the_handler_and_throws",
     new_without_memory_asks_the_handler_and_throws},
    {"new_and_delete_look_nothing_up", new_and_delete_look_nothing_up},
};

int main(int argc, char **argv)
{
#ifdef FIXED
    void *(*volatile some_malloc)(size_t) = malloc;
    void (*volatile some_free)(void *) = free;
    some_free(some_malloc(10));
#endif
    return cases_main(argc, argv, cases, COUNT_OF(cases));
}
