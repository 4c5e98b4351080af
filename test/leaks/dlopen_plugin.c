/* The leak is in a library that is loaded while the program runs. */
#include <dlfcn.h>

#include "truth.h"

static void *plugin;
static void (*work)(void);

static void step(int number)
{
    (void)number;
    if (!plugin) {
        plugin = dlopen(PLUGIN, RTLD_NOW);
        if (!plugin || !(work = (void (*)(void))(uintptr_t)dlsym(plugin, "plugin_work")))
            abort();
    }
    work();
}

int main(int argc, char **argv)
{
    truth_run(argc, argv, step);
    void (*tell)(void) = (void (*)(void))(uintptr_t)dlsym(plugin, "plugin_tell");
    tell(); /* every line that allocates is the plugin's */
    return 0;
}
