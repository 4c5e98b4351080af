/* sandbox_early.c: a library whose constructor locks the program up, where the case that is run is about that. */
#include <fcntl.h>
#include <string.h>

#include "sandbox.h"

void case_fail(const char *file, int line, const char *format, ...)
{
    _exit(2);
}

void case_skip(const char *format, ...)
{
    _exit(77);
}

__attribute__((constructor)) static void come(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "a_library_locks_the_program_up") != 0)
        return;
    MUST(dup2(open("/proc/self/maps", O_RDONLY | O_CLOEXEC), SANDBOX_MAPS) == SANDBOX_MAPS);
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    sandbox_enter(SANDBOX_KILLS_UNSEEN);
}
