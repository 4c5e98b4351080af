/* Who may attach to whom. See heap_internal.h. */
#include <fcntl.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "ledger/proc.h"
#include "observe/heap_internal.h"
#include "observe/plain_user.h"

/* A small file of /proc, as a string. False: it cannot be read. */
static bool file_read(const char *path, char *text, size_t size)
{
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, size - 1);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool yama_restricts(void)
{
    char text[16];
    return file_read("/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text)) && atoi(text) != 0;
}

bool heap_may_trace(uint32_t uid, pid_t pid)
{
    struct proc_ids ids;
    if (uid == 0)
        return true;
    const struct passwd *user = getpwuid(uid);
    uint32_t gid = user ? user->pw_gid : uid;
    return proc_ids_read(pid, &ids) >= 0 && ids.real_gid == gid && ids.permitted == 0 &&
           plain_user_is(pid, uid) && plain_user_same_namespace(pid) && !yama_restricts();
}
