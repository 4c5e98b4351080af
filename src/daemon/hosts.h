/* memoird's process table: one for all who ask, refreshed each second by a thread of its own while a client
 * needs it. Costly fields are probed by a helper process (commands.h) within a share of a processor, so
 * that neither the loop nor this thread waits for a process's memory. Without questions, and it is kept for history
 * only, it takes less: with many processes refreshes come less often. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct cgroups;
struct host;
struct hosts;

enum {
    HOSTS_WANTED_S = 30,   /* refreshes go on for so long after a question */
    HOSTS_STALE_MS = 3000, /* what is older is refreshed for who asks */
    HOSTS_IDLE_SHARE =
        500, /* without questions, refreshes take one part in so many of a processor, */
    HOSTS_IDLE_PROBES = 5,      /* probes one in so many of their share, */
    HOSTS_IDLE_MAX_MS = 10000,  /* and refreshes come at least so often */
    HOSTS_PROBE_WAIT_MS = 3000, /* for the helper */
    HOSTS_FILES_LEFT = 1024,    /* descriptors for everything else, and of those beyond */
    HOSTS_FILES_SHARE = 4,      /* the part that may be kept */
    HOSTS_MARKS_MIN = 256, /* processes from which on the kernel is asked who changed, by BPF */
};

/* `always`: also without questions. `share` is that of a processor for probes, in thousandths; 0: none. */
int hosts_new(bool always, unsigned share, struct hosts **ret_hosts);
void hosts_free(struct hosts *hosts); /* NULL is fine */

void hosts_set_share(struct hosts *hosts, unsigned share);

/* How long growth has to last: see host_set_steady(). */
void hosts_set_steady(struct hosts *hosts, uint64_t window_ns);

/* Let BPF tell which processes changed, once there are many of them (bpf/tasks.h). */
void hosts_allow_marks(struct hosts *hosts);

/* For who must not wait: would hosts_lock() return at once with a table that is fresh enough? If not, the thread sees to
 * it. Also true when /proc cannot be read, which hosts_lock() tells. */
bool hosts_ready(struct hosts *hosts);

/* The table, at most HOSTS_STALE_MS old, for no longer than it takes to read it: the thread waits. NULL when
 * /proc cannot be read; then it is not locked. Any thread. */
const struct host *hosts_lock(struct hosts *hosts);

/* For periodic readers: does not extend the refresh window and may return an older table. */
const struct host *hosts_lock_idle(struct hosts *hosts);
void hosts_unlock(struct hosts *hosts);

/* The table as it is, for who must not wait: NULL when it is being refreshed. Unlock it likewise. */
const struct host *hosts_peek(struct hosts *hosts);

/* Someone looks at this process: see host_watch(). Does nothing while the table is being refreshed. */
void hosts_watch(struct hosts *hosts, pid_t pid);

/* The tree of cgroups, which the thread reads while there are questions: is there a look that is fresh enough? If not, it comes. The
 * look, NULL where the machine has no cgroups: then nothing is locked. */
bool hosts_cgroups_ready(struct hosts *hosts);
const struct cgroups *hosts_cgroups_lock(struct hosts *hosts);
void hosts_cgroups_unlock(struct hosts *hosts);
