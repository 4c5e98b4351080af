/* helper.c: see helper.h. */
#include "base/helper.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

void helper_attributes_init(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(attributes);
    posix_spawnattr_setsigmask(attributes, &none);
    posix_spawnattr_setsigdefault(attributes, &all);
    posix_spawnattr_setpgroup(attributes, 0);
    posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
                                             POSIX_SPAWN_SETPGROUP);
}

static int files_fill(posix_spawn_file_actions_t *files, int fd)
{
    int r = posix_spawn_file_actions_adddup2(files, fd, 0);
    for (int i = 1; i <= 2 && r == 0; i++)
        r = posix_spawn_file_actions_addopen(files, i, "/dev/null", O_WRONLY, 0);
    if (r == 0)
        r = posix_spawn_file_actions_addchdir_np(files, "/");
    if (r == 0)
        r = posix_spawn_file_actions_addclosefrom_np(files, 3);
    return r;
}

int helper_spawn(const char *name, int fd, pid_t *ret_pid)
{
    char *const argv[] = {(char *)name, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&files);
    helper_attributes_init(&attributes);
    int r = files_fill(&files, fd);
    if (r == 0)
        r = posix_spawn(ret_pid, "/proc/self/exe", &files, &attributes, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    return -r;
}
