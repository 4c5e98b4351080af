/* Exits from the kernel into the store. See exit_watch.h. */
#include "daemon/exit_watch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "bpf/exit_event.h"
#include "bpf/exits.h"
#include "daemon/daemon.h"
#include "daemon/events.h"
#include "daemon/exit_cgroup.h"
#include "daemon/exit_store.h"
#include "daemon/hosts.h"
#include "daemon/loop.h"
#include "ledger/host.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

enum { LAST_TURNS = 16 }; /* what a full ring holds */

struct exit_watch {
    struct exit_store *store;
    struct exits *exits; /* NULL: the kernel does not tell */
    struct exit_cgroups *cgroups;
    struct loop_source *events, *pause, *more;
    struct daemon *daemon;
    const struct host *table; /* of all processes, for the events of one turn; NULL: it is in use */
    uint64_t boot_ns;         /* since 1970, for the same */
    uint64_t lost;            /* told of already, in this run */
    uint64_t lost_old;        /* that were lost to earlier daemons */
};

/* ---- one exit ---- */

/* Names come from strangers: control characters have no place in a name. */
static void name_copy(char *to, size_t to_size, const char *from, size_t from_size)
{
    size_t len = strnlen(from, from_size);
    if (len >= to_size)
        len = to_size - 1;
    for (size_t i = 0; i < len; i++)
        to[i] = (unsigned char)from[i] < ' ' || from[i] == 0x7f ? '?' : from[i];
    memset(to + len, 0, to_size - len);
}

void exit_record_of(const struct exit_event *event, uint64_t boot_ns,
                    struct exit_record *ret_record)
{
    uint64_t ticks_per_s = (uint64_t)sysconf(_SC_CLK_TCK);
    *ret_record = (struct exit_record){
        .end_ns = boot_ns + event->end_ns,
        .start_ns = boot_ns + event->start_ns,
        .cpu_ns = event->cpu_ns,
        .peak_bytes = event->peak_pages * (uint64_t)sysconf(_SC_PAGESIZE),
        .start_ticks = event->start_ns / (NS_PER_S / ticks_per_s),
        .pid = event->pid,
        .inner_pid = event->inner_pid,
        .parent = event->parent,
        .uid = event->uid,
        .status = event->status,
        .flags = (event->flags & EXIT_OOM ? EXIT_RECORD_OOM : 0u) |
                 (event->flags & EXIT_PEAK_MM ? 0u : EXIT_RECORD_PEAK_FORK) |
                 EXIT_RECORD_CGROUP_LEAF,
    };
    name_copy(ret_record->program, sizeof(ret_record->program), event->comm, sizeof(event->comm));
    name_copy(ret_record->cgroup, sizeof(ret_record->cgroup), event->cgroup, sizeof(event->cgroup));
}

/* The kernel's name has 15 bytes and is the interpreter's for a script. Who lived for a second or more is in the
 * process table with a better one; if the kernel's name is another there, exec came in between. */
static void program_take(const struct exit_watch *watch, const struct exit_event *event,
                         struct exit_record *record)
{
    const struct host_process *p =
        watch->table ? host_process_find(watch->table, event->pid) : NULL;
    if (p && proc_same_start(p->start_ticks, record->start_ticks) &&
        strncmp(p->comm, event->comm, sizeof(event->comm)) == 0)
        name_copy(record->program, sizeof(record->program), p->name, sizeof(p->name));
}

static void on_exit_event(const struct exit_event *event, void *context)
{
    struct exit_watch *watch = context;
    struct exit_record record;
    char path[sizeof(record.cgroup)];
    exit_record_of(event, watch->boot_ns, &record);
    program_take(watch, event, &record);
    if (exit_cgroups_path(watch->cgroups, event->cgroup_id, event->flags & EXIT_CGROUP_V1, path,
                          sizeof(path))) {
        name_copy(record.cgroup, sizeof(record.cgroup), path, sizeof(path));
        record.flags &= ~(uint32_t)EXIT_RECORD_CGROUP_LEAF;
    }
    (void)exit_store_add(watch->store, &record);
    if (!ledger_process_find(watch->daemon->ledger, record.pid)) /* else there is more to tell */
        events_process_ended(watch->daemon->events, &record);
}

/* ---- turns ---- */

/* True when there may be more. */
static bool read_some(struct exit_watch *watch)
{
    struct hosts *hosts = watch->daemon->hosts;
    watch->boot_ns = proc_ticks_realtime_ns(0);
    watch->table = hosts ? hosts_peek(hosts) : NULL;
    bool more = exits_read(watch->exits, EXIT_WATCH_TURN) == EXIT_WATCH_TURN;
    if (watch->table)
        hosts_unlock(hosts);
    watch->table = NULL;
    return more;
}

/* A wake-up for each of thousands of exits would cost more than they do. */
static void on_events(void *context, uint32_t events)
{
    struct exit_watch *watch = context;
    if (read_some(watch)) {
        loop_defer(watch->more);
        return;
    }
    loop_fd_events(watch->events, 0);
    loop_timer_set(watch->pause, EXIT_WATCH_PAUSE_MS * NS_PER_MS, 0);
}

static void on_more(void *context)
{
    struct exit_watch *watch = context;
    if (read_some(watch))
        loop_defer(watch->more);
}

static void on_pause_over(void *context)
{
    struct exit_watch *watch = context;
    loop_fd_events(watch->events, EPOLLIN);
}

void exit_watch_tick(struct exit_watch *watch)
{
    struct exit_file_header *header = exit_store_header(watch->store);
    if (!watch->exits)
        return;
    uint64_t lost = exits_lost(watch->exits);
    header->last_ns = clock_real_ns();
    header->lost = watch->lost_old + lost;
    if (lost > watch->lost)
        log_warn("%" PRIu64 " exits were not seen: too many processes ended at once",
                 lost - watch->lost);
    watch->lost = lost;
}

const struct exit_record *exit_watch_find(struct exit_watch *watch, pid_t pid, uint64_t start_ticks)
{
    if (!watch || !watch->exits)
        return NULL;
    /* The kernel tells of an exit before it wakes who waits for it, so it is in the ring by now. */
    const struct exit_record *found = exit_store_find(watch->store, pid, start_ticks);
    for (int turn = 0; !found && turn < LAST_TURNS; turn++) {
        bool more = read_some(watch);
        found = exit_store_find(watch->store, pid, start_ticks);
        if (!more)
            break;
    }
    return found;
}

const struct exit_file *exit_watch_file(const struct exit_watch *watch)
{
    return watch ? exit_store_file(watch->store) : NULL;
}

/* ---- begin and end ---- */

static int sources_add(struct exit_watch *watch, struct loop *loop)
{
    int r = loop_add_deferred(loop, on_more, watch, &watch->more);
    if (r >= 0)
        r = loop_add_timer(loop, on_pause_over, watch, &watch->pause);
    if (r >= 0)
        r = loop_add_fd(loop, exits_fd(watch->exits), EPOLLIN, on_events, watch, &watch->events);
    return r;
}

static void sources_remove(struct exit_watch *watch)
{
    loop_source_free(watch->events);
    loop_source_free(watch->pause);
    loop_source_free(watch->more);
    watch->events = watch->pause = watch->more = NULL;
}

static void watch_begin(struct exit_watch *watch, struct daemon *daemon)
{
    struct exit_file_header *header = exit_store_header(watch->store);
    char why[EXITS_WHY_MAX] = "";
    uint64_t begin = clock_monotonic_ns();
    int r = exits_open(on_exit_event, watch, &watch->exits, why);
    if (r >= 0) {
        r = sources_add(watch, daemon->loop);
        if (r < 0) {
            snprintf(why, sizeof(why), "waiting for the BPF ring failed: %s", strerror(-r));
            sources_remove(watch);
            exits_free(watch->exits);
            watch->exits = NULL;
        }
    }
    uint64_t before_ns = header->last_ns;
    header->watcher = (int32_t)getpid();
    header->last_ns = clock_real_ns();
    if (r < 0) {
        header->state = EXIT_WATCH_CANNOT;
        snprintf(header->why, sizeof(header->why), "%s", why);
        /* Who asked for it is warned; else it is one thing less that this machine offers. */
        log_at(daemon->config.exits == CONFIG_AUTO_YES ? LOG_LEVEL_WARN : LOG_LEVEL_INFO,
               "%s; only processes that keep a book are seen when they end", why);
        return;
    }
    if (header->since_ns) {
        header->gap_from_ns = before_ns;
        header->gap_to_ns = header->last_ns;
    }
    header->state = EXIT_WATCH_ON;
    header->since_ns = header->last_ns;
    header->why[0] = '\0';
    log_debug("watching the exits of all processes, after %" PRIu64 " ms",
              (clock_monotonic_ns() - begin) / NS_PER_MS);
}

int exit_watch_new(struct daemon *daemon, struct exit_watch **ret_watch)
{
    enum config_auto wish = daemon->config.exits;
    /* A daemon for the books of one directory is not the machine's. */
    bool wanted = wish == CONFIG_AUTO_YES ||
                  (wish == CONFIG_AUTO_AUTO && geteuid() == 0 && !daemon->config.dir[0]);
    if (!wanted && faccessat(daemon->state_fd, EXIT_FILE_NAME, F_OK, 0) < 0)
        return 0; /* nothing to keep, nothing to show */
    struct exit_watch *watch = calloc(1, sizeof(*watch));
    int error = 0;
    int r = watch ? exit_store_new(daemon->state_fd, &watch->store, &error) : -ENOMEM;
    if (r >= 0)
        r = exit_cgroups_new(&watch->cgroups);
    if (r < 0) {
        exit_watch_free(watch);
        return r;
    }
    watch->daemon = daemon;
    if (error < 0)
        log_warn("cannot use %s in '%s': %s, keeping exits in memory only", EXIT_FILE_NAME,
                 daemon->state_path, strerror(-error));
    watch->lost_old = exit_store_header(watch->store)->lost;
    if (wanted)
        watch_begin(watch, daemon);
    else
        exit_store_header(watch->store)->state = EXIT_WATCH_NEVER;
    *ret_watch = watch;
    return 0;
}

void exit_watch_free(struct exit_watch *watch)
{
    if (!watch)
        return;
    if (watch->exits) {
        for (int turn = 0; turn < LAST_TURNS && read_some(watch); turn++)
            ;
        exit_watch_tick(watch);
        exit_store_header(watch->store)->state = EXIT_WATCH_NEVER;
    }
    sources_remove(watch);
    exits_free(watch->exits);
    exit_cgroups_free(watch->cgroups);
    exit_store_free(watch->store);
    free(watch);
}
