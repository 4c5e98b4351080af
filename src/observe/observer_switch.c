/* Tracing of one process: begun, switched off and on. See observer_internal.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "ledger/proc.h"
#include "observe/kernel.h"
#include "observe/observer_internal.h"
#include "observe/plain_user.h"
#include "observe/targets.h"

int observer_trace(struct observer *o, pid_t pid, char why[static KERNEL_WHY_MAX])
{
    struct proc_stat stat;
    struct proc_ids ids;
    int r = proc_stat_read(pid, &stat);
    if (r >= 0)
        r = proc_ids_read(pid, &ids);
    if (r < 0) {
        snprintf(why, KERNEL_WHY_MAX, "no process %d", (int)pid);
        return r;
    }
    targets_of(pid, observer_library_found, o);
    long per_s = sysconf(_SC_CLK_TCK);
    r = kernel_process_add(o->kernel, pid, stat.start_ticks * (1000000000 / (uint64_t)per_s),
                           plain_user_is(pid, ids.real_uid) ? ids.real_uid : 0);
    /* By exec it may have become another user's before the kernel knew of it. */
    struct wire_process entry;
    if (r >= 0 && kernel_process_get(o->kernel, pid, &entry) == 0 && entry.calls == 0 &&
        entry.uid && !plain_user_is(pid, entry.uid))
        r = kernel_process_switch(o->kernel, pid, true, 0);
    if (r < 0)
        snprintf(why, KERNEL_WHY_MAX, "cannot trace process %d: %s", (int)pid, strerror(-r));
    return r;
}

bool observer_is_on(void *context, pid_t pid)
{
    struct observer *o = context;
    struct wire_process entry;
    return kernel_process_get(o->kernel, pid, &entry) < 0 || !entry.off;
}

static void on_released(void *context, const struct probe_table *table, int fd, const char *path)
{
    struct observer *o = context;
    kernel_attached_release(o->kernel, fd);
}

static int off_each(void *context, pid_t pid, const struct wire_process *entry)
{
    if (entry->off)
        targets_of(pid, on_released, context);
    return 0;
}

/* Remove the probes of libraries that are mapped only by processes whose tracing is off. Probes belong to a file, so while
 * another process needs them they stay, and do nothing in those. */
static void libraries_release(struct observer *o)
{
    size_t n = 0, more;
    kernel_attached_mark_all(o->kernel);
    kernel_processes(o->kernel, off_each, o);
    targets_running(observer_is_on, observer_library_used, o);
    while ((more = kernel_attached_evict(o->kernel)) > 0)
        n += more;
    if (n)
        log_info("removed the probes of %zu libraries: no process that is traced uses them", n);
}

int observer_switch(struct observer *o, pid_t pid, bool on, uint32_t asker)
{
    struct wire_process entry;
    observer_drain(o); /* what was called before counts as before */
    int r = kernel_process_get(o->kernel, pid, &entry);
    if (r < 0)
        return -ESRCH;
    if (asker && entry.uid != asker)
        return -EPERM;
    if (!entry.off == on)
        return 0;
    r = kernel_process_switch(o->kernel, pid, on, entry.uid);
    /* By exec it may have become another user's meanwhile; from here on the kernel notices. */
    if (r >= 0 && entry.uid && !plain_user_is(pid, entry.uid)) {
        (void)kernel_process_switch(o->kernel, pid, asker ? true : on, 0);
        r = asker ? -EPERM : 0;
    }
    if (r < 0)
        return r;
    if (on) {
        targets_of(pid, observer_library_found, o);
        return 0;
    }
    struct observed *p = observer_find(o, pid);
    if (p)
        observer_process_close(o, p, true);
    kernel_purge(o->kernel, observer_is_stale, o);
    kernel_users_count(o->kernel);
    libraries_release(o);
    return 0;
}
