/* Parsers of /proc. See host_parse.h. */
#include "ledger/host_parse.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/procfs.h"
#include "book/lines.h"
#include "book/meminfo.h"
#include "ledger/host.h"

static uint64_t plus(uint64_t a, uint64_t b)
{
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

#define LINES(table) table, sizeof(table) / sizeof((table)[0])

/* ---- of a process ---- */

int host_parse_status(const char *text, struct host_status *ret_status)
{
    struct host_status status = {0};
    uint64_t uid, group;
    const char *uids = procfs_status_value(text, "\nUid:");
    const char *groups = procfs_status_value(text, "\nTgid:");
    if (!uids || !procfs_number(&uids, &uid) || uid > UINT32_MAX || !groups ||
        !procfs_number(&groups, &group) || group > INT32_MAX)
        return -EBADMSG;
    status.uid = (uint32_t)uid;
    status.group = (pid_t)group;
    const struct procfs_line parts[] = {
        {"RssAnon", &status.anon}, {"RssFile", &status.file}, {"RssShmem", &status.shmem},
        {"VmLib", &status.lib},    {"VmSwap", &status.swap},
    };
    const struct procfs_line peak[] = {{"VmHWM", &status.peak}};
    status.has_parts = procfs_lines_parse(text, LINES(parts)) == sizeof(parts) / sizeof(parts[0]);
    status.has_peak = procfs_lines_parse(text, LINES(peak)) == 1;
    *ret_status = status;
    return 0;
}

int host_parse_rollup(const char *text, struct host_rollup *ret_rollup)
{
    uint64_t pss = 0, clean = 0, dirty = 0, shared_dirty = 0, huge = 0;
    const struct procfs_line lines[] = {
        {"Pss", &pss},
        {"Private_Clean", &clean},
        {"Private_Dirty", &dirty},
        {"Shared_Dirty", &shared_dirty},
    };
    const struct procfs_line hugetlb[] = {{"Private_Hugetlb", &huge}};
    if (procfs_lines_parse(text, LINES(lines)) != sizeof(lines) / sizeof(lines[0]))
        return -EBADMSG;
    (void)procfs_lines_parse(text, LINES(hugetlb));
    ret_rollup->pss = pss;
    ret_rollup->uss = plus(plus(clean, dirty), huge);
    ret_rollup->dirty = plus(dirty, shared_dirty);
    return 0;
}

/* ---- of the machine ---- */

static void parts_sum(struct host_system *s)
{
    uint64_t sum = 0;
    for (int i = 0; i < HOST_PARTS; i++)
        if (i != HOST_PART_REST)
            sum = plus(sum, s->parts[i]);
    s->parts[HOST_PART_REST] = sum < s->total_bytes ? s->total_bytes - sum : 0;
    s->excess_bytes = sum > s->total_bytes ? sum - s->total_bytes : 0;
}

int host_parse_meminfo(const char *text, struct host_system *system)
{
    struct host_system s = {
        .valid = system->valid & HOST_HAS_PSI, .some = system->some, .full = system->full};
    const uint32_t needed = MEMINFO_BIT(MEMINFO_TOTAL) | MEMINFO_BIT(MEMINFO_FREE) |
                            MEMINFO_BIT(MEMINFO_BUFFERS) | MEMINFO_BIT(MEMINFO_CACHED);
    struct lines lines = {.fd = -1, .data = text, .n = strlen(text)};
    struct meminfo m;
    meminfo_parse(&lines, MEMINFO_ALL, &m);
    if ((m.valid & needed) != needed)
        return -EBADMSG;
    s.total_bytes = m.bytes[MEMINFO_TOTAL];
    s.free_bytes = m.bytes[MEMINFO_FREE];
    s.buffers_bytes = m.bytes[MEMINFO_BUFFERS];
    s.cached_bytes = m.bytes[MEMINFO_CACHED];
    s.swap_cached_bytes = m.bytes[MEMINFO_SWAP_CACHED];
    s.active_bytes = m.bytes[MEMINFO_ACTIVE];
    s.inactive_bytes = m.bytes[MEMINFO_INACTIVE];
    s.swap_total_bytes = m.bytes[MEMINFO_SWAP_TOTAL];
    s.swap_free_bytes = m.bytes[MEMINFO_SWAP_FREE];
    s.dirty_bytes = m.bytes[MEMINFO_DIRTY];
    s.shared_bytes = m.bytes[MEMINFO_SHMEM];
    s.slab_bytes = m.bytes[MEMINFO_SLAB];
    s.valid |= HOST_HAS_TOTAL;
    if (m.valid & MEMINFO_BIT(MEMINFO_AVAILABLE)) {
        s.available_bytes = m.bytes[MEMINFO_AVAILABLE];
        s.valid |= HOST_HAS_AVAILABLE;
        s.used_bytes = s.total_bytes > s.available_bytes ? s.total_bytes - s.available_bytes : 0;
    }
    s.parts[HOST_PART_ANON] = m.bytes[MEMINFO_ANON];
    s.parts[HOST_PART_SLAB_RECLAIMABLE] = m.bytes[MEMINFO_SLAB_RECLAIMABLE];
    s.parts[HOST_PART_SLAB] = m.bytes[MEMINFO_SLAB_UNRECLAIMABLE];
    s.parts[HOST_PART_STACKS] = m.bytes[MEMINFO_KERNEL_STACKS];
    s.parts[HOST_PART_PERCPU] = m.bytes[MEMINFO_PERCPU];
    s.parts[HOST_PART_HUGETLB] = m.bytes[MEMINFO_HUGETLB];
    s.parts[HOST_PART_FREE] = s.free_bytes;
    s.parts[HOST_PART_BUFFERS] = s.buffers_bytes;
    s.parts[HOST_PART_SHMEM] = s.shared_bytes; /* which the kernel counts as cached */
    s.parts[HOST_PART_CACHE] =
        s.cached_bytes > s.shared_bytes ? s.cached_bytes - s.shared_bytes : 0;
    s.parts[HOST_PART_PAGE_TABLES] =
        plus(m.bytes[MEMINFO_PAGE_TABLES], m.bytes[MEMINFO_SECOND_PAGE_TABLES]);
    parts_sum(&s);
    *system = s;
    return 0;
}

/* ---- where it comes from ---- */

static const char *const job_names[] = {"SLURM_JOB_ID", "PBS_JOBID",    "LSB_JOBID",
                                        "JOB_ID",       "COBALT_JOBID", "FLUX_JOB_ID"};
static const char *const rank_names[] = {"SLURM_PROCID",         "PMIX_RANK",       "PMI_RANK",
                                         "OMPI_COMM_WORLD_RANK", "MPI_LOCALRANKID", "RANK"};

/* The value of one of `names` in "NAME=VALUE"; its place in the list, or -1. */
static int variable(const char *text, size_t len, const char *const *names, size_t n,
                    const char **ret_value, size_t *ret_len)
{
    const char *equal = memchr(text, '=', len);
    size_t key = equal ? (size_t)(equal - text) : 0;
    for (size_t i = 0; equal && i < n; i++)
        if (strlen(names[i]) == key && memcmp(text, names[i], key) == 0) {
            *ret_value = equal + 1;
            *ret_len = len - key - 1;
            return (int)i;
        }
    return -1;
}

/* What schedulers call jobs; nothing that a terminal would act on. */
static bool is_word(const char *text, size_t len, size_t max)
{
    if (len == 0 || len >= max)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("._-[]:", text[i]))
            return false;
    return true;
}

static bool rank_of(const char *text, size_t len, uint32_t *ret_rank)
{
    uint64_t rank = 0;
    for (size_t i = 0; i < len; i++) {
        if (text[i] < '0' || text[i] > '9' || i > 8)
            return false;
        rank = rank * 10 + (uint64_t)(text[i] - '0');
    }
    *ret_rank = (uint32_t)rank;
    return len > 0;
}

void host_parse_environ(const char *text, size_t len, struct host_environment *ret_environment)
{
    struct host_environment found = {0};
    int best_job = INT32_MAX, best_rank = INT32_MAX; /* earlier in the list is better */
    while (len > 0) {
        const char *end = memchr(text, '\0', len);
        if (!end)
            break; /* cut: a part of a value would mislead */
        size_t one = (size_t)(end - text), value_len = 0;
        const char *value = NULL;
        static const char *const preload[] = {"LD_PRELOAD"};
        int job = variable(text, one, LINES(job_names), &value, &value_len);
        if (job >= 0 && job < best_job && is_word(value, value_len, sizeof(found.job))) {
            memcpy(found.job, value, value_len);
            found.job[value_len] = '\0';
            best_job = job;
        }
        uint32_t number;
        int rank = variable(text, one, LINES(rank_names), &value, &value_len);
        if (rank >= 0 && rank < best_rank && rank_of(value, value_len, &number)) {
            found.rank = number;
            found.has_rank = true;
            best_rank = rank;
        }
        if (variable(text, one, LINES(preload), &value, &value_len) >= 0)
            found.tracker |= strstr(value, "libmemoir-track") || strstr(value, "libmemoir-malloc");
        text += one + 1;
        len -= one + 1;
    }
    *ret_environment = found;
}
