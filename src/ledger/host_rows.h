/* Rows of the process table, as its files share them. */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>

#include "ledger/host.h"
#include "ledger/host_cgroup.h"
#include "ledger/host_probe.h"
#include "ledger/index.h"

enum {
    HOST_STATM_MAX = 96, /* bytes of statm that are compared */
    HOST_RING = 13,      /* figures that are kept for a rate */
    HOST_QUEUE_MAX = 256,
};
#define HOST_PAGES_UNKNOWN UINT32_MAX
#define HOST_CGROUP_AGE_NS (UINT64_C(5) * 1000 * 1000 * 1000)

/* Resident memory at the moments that struct host_ticks has; 4 bytes a figure, since there are many rows. */
struct host_ring {
    uint64_t first; /* the number of the first tick that it saw */
    uint32_t pages[HOST_RING];
};

struct host_ticks {
    uint64_t n; /* so many have been; number i is in slot i % HOST_RING */
    uint64_t time_ns[HOST_RING];
    bool now; /* this refresh is one */
};

struct host_row {
    struct host_process p; /* first */

    /* What each refresh looks at, close together. */
    int statm_fd;           /* kept; or -1 */
    int stat_fd, status_fd; /* kept while it changes; or -1 */
    bool seen;              /* by the listing of this refresh */
    uint8_t statm_len;
    char statm[HOST_STATM_MAX]; /* as last read */
    struct host_ring rings[HOST_WINDOWS];
    uint64_t mark;    /* taken before statm was last read; 0: none */
    uint64_t changed; /* number of the refresh that last found it changed */
    struct index_node node;

    /* Probes. */
    uint32_t done; /* enum host_probe_kind that were tried */
    uint64_t sizes_rss, sizes_tried_ns, sizes_cost_ns;
    uint64_t watched_ns;    /* until then it is looked at; 0: never was */
    uint64_t rest_until_ns; /* after a probe that came to nothing */
    char *command, *exe;    /* owned; NULL: "" */
};

static inline void host_row_prefetch(const struct host_row *row)
{
    __builtin_prefetch(row);
    __builtin_prefetch(&row->p.rss_bytes);
    __builtin_prefetch(&row->statm_fd);
    __builtin_prefetch((const char *)&row->statm_fd + 64);
    __builtin_prefetch(&row->rings[0], 1);
}

struct host_user {
    uint32_t uid;
    char name[32];
};

struct host {
    char *proc, *cgroup_root;
    int proc_fd;
    DIR *list;
    int loadavg_fd, meminfo_fd, pressure_fd; /* or -1 */
    size_t files, files_max;
    bool user_names;
    uint64_t (*now_ns)(void);
    host_marks_fn *marks; /* or NULL */
    void *marks_context;
    uint32_t page_bytes;

    struct host_process **rows; /* by pid */
    size_t n, size;
    struct index index;
    uint64_t seed;
    uint64_t refreshes, time_ns, left_out;
    uint64_t last_pid; /* as loadavg had it at the last listing */
    uint64_t window_ns[HOST_WINDOWS];
    struct host_ticks ticks[HOST_WINDOWS];

    struct host_user *users;
    size_t n_users;
    struct host_cgroups *cgroups;
    struct host_system system;

    struct host_todo queue[HOST_QUEUE_MAX]; /* best last */
    uint64_t scores[HOST_QUEUE_MAX];
    size_t n_queue;
    uint64_t debt_ns; /* of host_refine() */

    struct host_family *families; /* by row, as of refresh number: */
    uint64_t families_of;
};

static inline struct host_row *host_row(const struct host_process *p)
{
    return (struct host_row *)p;
}

/* host_look.c: all fields of a new row; then the cheap ones, and the others where something changed, as far as
 * `mark` (0: nobody knows) does not say that nothing did. false: the process is gone. */
bool host_row_first(struct host *host, struct host_row *row);
bool host_row_refresh(struct host *host, struct host_row *row, uint64_t mark);
void host_name_renew(struct host_process *p);
void host_file_close(struct host *host, int *kept);

/* host_rate.c */
void host_windows_init(struct host *host);
void host_ticks_advance(struct host *host);
void host_ring_start(const struct host *host, struct host_row *row);
void host_ring_note(const struct host *host, struct host_row *row);

/* host_system.c */
void host_system_open(struct host *host);
void host_system_read(struct host *host);
void host_system_close(struct host *host);

/* Read a whole small file from its start, and a 0 behind it; bytes, or -errno. */
ssize_t host_pread(int fd, char *ret_text, size_t size);
