/* Who a process is. See subject.h.
 *
 * Only files of /proc that the kernel answers from its own copies: the memory of a stranger may be mapped from
 * a file system of his that never answers, and whoever reads it waits for that. */
#include "ledger/subject.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "book/identity.h"
#include "book/layout.h"
#include "ledger/proc.h"

uint64_t subject_exec_id(pid_t pid)
{
    struct book_auxv auxv[BOOK_AUXV_MAX + 1]; /* one more, for the 0 behind what is read */
    ssize_t got = proc_file_read("/proc", pid, "auxv", (char *)auxv, sizeof(auxv));
    /* None: not permitted, or a kernel thread. */
    return got > 0 ? book_exec_id_of(auxv, (size_t)got / sizeof(auxv[0])) : 0;
}

static uint64_t namespace_inode(pid_t pid, const char *name)
{
    char path[64];
    struct stat st;
    snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
    return stat(path, &st) < 0 ? 0 : st.st_ino;
}

static void names_read(pid_t pid, struct book_header *header)
{
    char path[64];
    char comm[PROC_COMM_MAX];
    if (proc_comm_read(pid, comm) == 0)
        snprintf(header->comm, sizeof(header->comm), "%.15s", comm);
    snprintf(path, sizeof(path), "/proc/%d/exe", (int)pid);
    ssize_t n = readlink(path, header->exe, sizeof(header->exe) - 1);
    header->exe[n > 0 ? n : 0] = '\0';
}

static bool is_of(const struct proc_ids *ids, uint32_t speaker)
{
    return speaker == 0 || proc_ids_are(ids, speaker);
}

int subject_read(pid_t pid, uint32_t speaker, struct book_header *header)
{
    struct proc_stat stat;
    struct proc_ids ids;
    int r = proc_stat_read(pid, &stat);
    if (r >= 0)
        r = proc_ids_read(pid, &ids);
    if (r < 0)
        return r;
    if (stat.dead || stat.exiting)
        return -ESRCH;
    if (!is_of(&ids, speaker))
        return -EPERM;
    book_boot_id(header->boot_id);
    header->pid_ns = namespace_inode(pid, "pid");
    header->time_ns = namespace_inode(pid, "time");
    header->start_ticks = stat.start_ticks;
    /* The speaker can read the book. The addresses behind this hash are for those who may trace the
     * process. */
    if (proc_claim(pid, &ids, ids.effective_uid) == PROC_CLAIM_OWN)
        header->exec_id = subject_exec_id(pid);
    header->pid = ids.levels > 1 ? ids.inner_pid : pid;
    header->uid = ids.effective_uid;
    names_read(pid, header);
    /* Still the same one, and the same user's? Then all of the above was its. */
    struct proc_stat again;
    r = proc_stat_read(pid, &again);
    if (r >= 0)
        r = proc_ids_read(pid, &ids);
    if (r < 0)
        return r;
    if (again.start_ticks != stat.start_ticks)
        return -ESRCH;
    return is_of(&ids, speaker) ? 0 : -EPERM;
}
