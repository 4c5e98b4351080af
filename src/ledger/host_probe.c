/* A costly look at one process. See host_probe.h. */
#include "ledger/host_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/elf_program.h"
#include "base/procfs.h"
#include "ledger/host_parse.h"
#include "ledger/proc.h"

enum {
    ENVIRON_MAX = 256 << 10, /* bytes that are looked at; schedulers put theirs anywhere */
    TEXT_MAX = 4096,
};

static void sizes_look(const char *proc, pid_t pid, struct host_probe *probe)
{
    char text[TEXT_MAX];
    struct host_rollup rollup;
    if (proc_file_read(proc, pid, "smaps_rollup", text, sizeof(text)) > 0 &&
        host_parse_rollup(text, &rollup) == 0) {
        probe->pss_bytes = rollup.pss;
        probe->uss_bytes = rollup.uss;
        probe->dirty_bytes = rollup.dirty;
        probe->valid |= HOST_HAS_PSS;
    }
    if (proc_file_read(proc, pid, "oom_score", text, sizeof(text)) > 0 && *text >= '0' &&
        *text <= '9') {
        probe->oom_score = (uint32_t)strtoul(text, NULL, 10);
        probe->valid |= HOST_HAS_OOM;
    }
}

static void command_look(const char *proc, pid_t pid, struct host_probe *probe)
{
    ssize_t n = proc_file_read(proc, pid, "cmdline", probe->command, sizeof(probe->command));
    if (procfs_command_line(probe->command, n > 0 ? (size_t)n : 0) > 0)
        probe->valid |= HOST_HAS_COMMAND;
}

/* The environment of a set-uid or set-gid program is not shown to its real user, whose row it is. */
static bool is_plain(const char *proc, pid_t pid)
{
    char text[TEXT_MAX];
    struct procfs_ids uids, gids;
    return proc_file_read(proc, pid, "status", text, sizeof(text)) > 0 &&
           procfs_status_ids(text, "\nUid:", &uids) && procfs_ids_are(&uids, uids.real) &&
           procfs_status_ids(text, "\nGid:", &gids) && procfs_ids_are(&gids, gids.real);
}

static void environ_look(const char *proc, pid_t pid, struct host_probe *probe)
{
    MEMOIR_CLEANUP(freep)
    char *text = malloc(ENVIRON_MAX);
    struct host_environment found;
    ssize_t n = text ? proc_file_read(proc, pid, "environ", text, ENVIRON_MAX) : -ENOMEM;
    if (n < 0)
        return;
    host_parse_environ(text, (size_t)n, &found);
    bool plain = is_plain(proc, pid);
    if (plain && found.has_rank) {
        probe->rank = found.rank;
        probe->valid |= HOST_HAS_RANK;
    }
    if (plain && *found.job) {
        snprintf(probe->job, sizeof(probe->job), "%s", found.job);
        probe->valid |= HOST_HAS_JOB;
    }
    if (found.tracker && probe->tracked == HOST_TRACKED_NOT_ASKED)
        probe->tracked = HOST_TRACKED_ASKED;
}

/* Why nothing is preloaded into it. */
static enum host_tracked why_not(int fd)
{
    static const enum host_tracked words[] = {
        [ELF_PROGRAM_DYNAMIC] = HOST_TRACKED_NOT_ASKED,
        [ELF_PROGRAM_STATIC] = HOST_TRACKED_STATIC,
        [ELF_PROGRAM_GO] = HOST_TRACKED_GO,
        [ELF_PROGRAM_CLASS] = HOST_TRACKED_32BIT,
        [ELF_PROGRAM_MACHINE] = HOST_TRACKED_MACHINE,
        [ELF_PROGRAM_LIBC] = HOST_TRACKED_LIBC,
        [ELF_PROGRAM_SANITIZED] = HOST_TRACKED_NOT_ASKED,
        [ELF_PROGRAM_NO_ACCESS] = HOST_TRACKED_UNKNOWN,
    };
    char interpreter[ELF_PROGRAM_LOADER_MAX];
    struct stat st;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return HOST_TRACKED_UNKNOWN;
    enum elf_program_kind kind = elf_program_read(fd, interpreter);
    if (kind == ELF_PROGRAM_DYNAMIC &&
        (st.st_mode & (S_ISUID | S_ISGID) || fgetxattr(fd, "security.capability", NULL, 0) > 0))
        return HOST_TRACKED_SETUID;
    return kind <= ELF_PROGRAM_NO_ACCESS ? words[kind] : HOST_TRACKED_UNKNOWN;
}

static void program_look(const char *proc, pid_t pid, struct host_probe *probe)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%d/exe", proc, (int)pid);
    ssize_t n = readlink(path, probe->exe, sizeof(probe->exe) - 1);
    probe->exe[n > 0 ? n : 0] = '\0';
    if (n > 0)
        probe->valid |= HOST_HAS_EXE;
    MEMOIR_CLEANUP(closep)
    int fd = proc_file_open(proc, pid, "exe");
    probe->tracked = fd < 0 ? HOST_TRACKED_UNKNOWN : (uint32_t)why_not(fd);
    if (probe->tracked != HOST_TRACKED_UNKNOWN)
        probe->valid |= HOST_HAS_TRACKED;
}

static void cgroup_look(const char *proc, pid_t pid, struct host_probe *probe)
{
    char text[TEXT_MAX];
    bool v1;
    if (proc_file_read(proc, pid, "cgroup", text, sizeof(text)) <= 0 ||
        host_parse_cgroup(text, probe->cgroup, sizeof(probe->cgroup), &v1) < 0)
        return;
    probe->cgroup_v1 = v1;
    probe->valid |= HOST_HAS_CGROUP;
}

int host_probe_read(const char *proc, pid_t pid, uint32_t kinds, struct host_probe *ret_probe)
{
    if (!proc)
        proc = "/proc";
    uint64_t began = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    char path[512];
    struct host_probe probe = {0};
    snprintf(path, sizeof(path), "%s/%d", proc, (int)pid);
    if (kinds & HOST_PROBE_SIZES)
        sizes_look(proc, pid, &probe);
    if (kinds & HOST_PROBE_COMMAND)
        command_look(proc, pid, &probe);
    if (kinds & HOST_PROBE_ORIGIN) {
        program_look(proc, pid, &probe);
        environ_look(proc, pid, &probe);
    }
    if (kinds & HOST_PROBE_CGROUP)
        cgroup_look(proc, pid, &probe);
    if (probe.valid == 0 && access(path, F_OK) < 0)
        return -ESRCH;
    probe.cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - began;
    *ret_probe = probe;
    return 0;
}
