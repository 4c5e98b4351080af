/* Sums over families of processes. See host.h. */
#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/sum.h"
#include "ledger/host_rows.h"

#define NO_PARENT SIZE_MAX

static size_t index_of(const struct host *host, pid_t pid)
{
    size_t low = 0, high = host->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (host->rows[middle]->pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low < host->n && host->rows[low]->pid == pid ? low : NO_PARENT;
}

/* PIDs are reused while rows are read, so a process that is older than its "parent" is not its child. */
static size_t parent_of(const struct host *host, size_t i)
{
    const struct host_process *p = host->rows[i];
    if (!(p->valid & HOST_HAS_STAT) || p->parent_pid <= 0)
        return NO_PARENT;
    size_t parent = index_of(host, p->parent_pid);
    if (parent == i || (parent != NO_PARENT && host->rows[parent]->start_ticks > p->start_ticks))
        return NO_PARENT;
    return parent;
}

/* From the leaves up: a process is added to its parent once all of its own children were added to it. Those of a ring, which
 * a read between two moments could show, are never ready and keep what they have. */
static int sums_make(struct host *host, struct host_family *families)
{
    MEMOIR_CLEANUP(freep)
    size_t *parents = calloc(host->n + 1, sizeof(size_t));
    MEMOIR_CLEANUP(freep)
    size_t *children = calloc(host->n + 1, sizeof(size_t));
    MEMOIR_CLEANUP(freep)
    size_t *ready = calloc(host->n + 1, sizeof(size_t));
    if (!parents || !children || !ready)
        return -ENOMEM;
    size_t n_ready = 0;
    for (size_t i = 0; i < host->n; i++) {
        const struct host_process *p = host->rows[i];
        bool known = p->valid & HOST_HAS_MEMORY;
        families[i] = (struct host_family){.rss_bytes = known && !p->kernel ? p->rss_bytes : 0,
                                           .partial = !known && !p->kernel && p->state != 'Z'};
        parents[i] = parent_of(host, i);
        if (parents[i] != NO_PARENT)
            children[parents[i]]++;
    }
    for (size_t i = 0; i < host->n; i++)
        if (children[i] == 0)
            ready[n_ready++] = i;
    for (size_t done = 0; done < n_ready; done++) {
        size_t i = ready[done], parent = parents[i];
        if (parent == NO_PARENT)
            continue;
        sum_add(&families[parent].rss_bytes, families[i].rss_bytes);
        families[parent].partial |= families[i].partial;
        if (--children[parent] == 0)
            ready[n_ready++] = parent;
    }
    return 0;
}

int host_family(const struct host *constant, const struct host_process *process,
                struct host_family *ret_family)
{
    struct host *host = (struct host *)constant; /* what it remembers changes no answer */
    if (host->families_of != host->refreshes) {
        struct host_family *families = reallocarray(host->families, host->n + 1, sizeof(*families));
        if (!families)
            return -ENOMEM;
        host->families = families;
        int r = sums_make(host, families);
        if (r < 0)
            return r;
        host->families_of = host->refreshes;
    }
    size_t i = index_of(host, process->pid);
    if (i == NO_PARENT)
        return -ESRCH;
    *ret_family = host->families[i];
    return 0;
}
