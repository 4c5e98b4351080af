/* What dlopen_plugin.c loads: loses a block in each call. */
#include "truth.h"

void plugin_work(void);
void plugin_tell(void);

__attribute__((visibility("default"))) void plugin_work(void)
{
    char *state = MALLOC(96); /* LEAK */
    state[0] = 1;
}

__attribute__((visibility("default"))) void plugin_tell(void)
{
    truth_forget();
    truth_tell();
}
