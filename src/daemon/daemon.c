/* memoird: putting its parts together, and taking them apart again. */
#include "daemon/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/version.h"
#include "book/reader.h"
#include "daemon/allowance.h"
#include "daemon/api.h"
#include "daemon/asking.h"
#include "daemon/attaching.h"
#include "daemon/behalf.h"
#include "daemon/broker.h"
#include "daemon/climbing.h"
#include "daemon/clustering.h"
#include "daemon/commands.h"
#include "daemon/config_words.h"
#include "daemon/driver_facts.h"
#include "daemon/events.h"
#include "daemon/exit_watch.h"
#include "daemon/growing.h"
#include "daemon/history.h"
#include "daemon/hosts.h"
#include "daemon/loop.h"
#include "daemon/mount.h"
#include "daemon/native.h"
#include "daemon/pressure.h"
#include "daemon/reaper.h"
#include "daemon/retire.h"
#include "daemon/retired.h"
#include "daemon/server.h"
#include "daemon/service.h"
#include "daemon/traces.h"
#include "daemon/tracing.h"
#include "daemon/tt_device.h"
#include "daemon/watch.h"
#include "daemon/web.h"
#include "ledger/ledger.h"

/* Reading figures may take this long before other events get their turn. */
enum { REFRESH_TURN_NS = 1000000, DESCRIPTORS_WANTED = 65536, LOCK_PATIENCE_MS = 5000 };

static const char books_root[] = "/run/memoir", lock_name[] = "memoird.lock";
static const char run_path[] = "/run", run_lock_prefix[] = "memoird-";

static int log_apply(const struct config *config)
{
    struct log_options options = {
        .level = config->log_level,
        .format = config->log_format,
        .path = config->log_file[0] ? config->log_file : NULL,
    };
    int r = log_open(&options);
    if (r < 0)
        log_error("cannot open log '%s': %s", config->log_file, strerror(-r));
    return r;
}

/* A pidfd for every process, and a place for every user. */
static void raise_limits(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
    /* Root may go beyond: a connection and a pidfd for each of many clients. */
    if (geteuid() == 0 && limit.rlim_cur < DESCRIPTORS_WANTED) {
        limit.rlim_cur = limit.rlim_max = DESCRIPTORS_WANTED;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Deaths are to be seen in time also on a busy machine; it uses next to no time itself. */
static void set_nice(int64_t nice)
{
    if (getpriority(PRIO_PROCESS, 0) != nice && setpriority(PRIO_PROCESS, 0, (int)nice) < 0)
        log_debug("cannot set the nice value to %d: %m", (int)nice);
}

static int open_state(struct daemon *daemon)
{
    const char *set = daemon->config.state;
    daemon->state_path = set[0] ? strdup(set) : config_default_state();
    if (!daemon->state_path) {
        log_error("no directory for state: set --state DIR, or HOME");
        return -ENOENT;
    }
    int r = fs_mkdir_all(daemon->state_path, 0700);
    if (r >= 0) {
        daemon->state_fd = open(daemon->state_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        r = daemon->state_fd < 0 ? -errno : 0;
    }
    if (r < 0)
        log_error("cannot use state directory '%s': %s", daemon->state_path, strerror(-r));
    char *whole = r < 0 ? NULL : realpath(daemon->state_path, NULL);
    if (whole) { /* others are told of it, wherever they are */
        free(daemon->state_path);
        daemon->state_path = whole;
    }
    return r;
}

/* A daemon that was killed while it started a helper leaves its lock to that for a moment: until the helper is
 * a program of its own. And a daemon that sweeps has the lock for a moment, or took the file away under us:
 * then nobody is named in it. */
static int lock_patiently(int dirfd, const char *name, pid_t *ret_holder)
{
    uint64_t deadline_ns = clock_monotonic_ns() + LOCK_PATIENCE_MS * NS_PER_MS;
    for (;;) {
        int fd = service_lock(dirfd, name, ret_holder);
        bool passing =
            fd == -EBUSY && (*ret_holder == 0 || (kill(*ret_holder, 0) < 0 && errno == ESRCH));
        if (!passing || clock_monotonic_ns() > deadline_ns)
            return fd;
        nanosleep(&(struct timespec){.tv_nsec = 10 * NS_PER_MS}, NULL);
    }
}

static int take_lock(int *ret_fd, int dirfd, const char *name, const char *what, const char *path)
{
    pid_t holder = 0;
    int fd = lock_patiently(dirfd, name, &holder);
    if (fd == -EBUSY && holder > 0)
        log_error("another memoird (PID %d) uses %s '%s'", (int)holder, what, path);
    else if (fd == -EBUSY)
        log_error("another memoird uses %s '%s'", what, path);
    else if (fd < 0)
        log_error("cannot lock %s '%s': %s", what, path, strerror(-fd));
    if (fd < 0)
        return fd;
    *ret_fd = fd;
    return 0;
}

/* Where other users can write, only the sticky bit keeps them from renaming each other's directories. */
static void protect_dir(int fd, const char *path)
{
    struct stat st;
    if (fstat(fd, &st) < 0 || !(st.st_mode & (S_IWGRP | S_IWOTH)))
        return;
    if (st.st_uid != geteuid() && st.st_uid != 0)
        log_warn("'%s' belongs to uid %u, and others can write to it: that user can take the "
                 "directories of others away",
                 path, (unsigned)st.st_uid);
    else if (!(st.st_mode & S_ISVTX) && fchmod(fd, (st.st_mode & 07777) | S_ISVTX) < 0)
        log_warn("others can write to '%s', which is not sticky: users can rename each other's "
                 "directories (chmod +t)",
                 path);
}

/* --dir: made if need be, so that every user can have a directory in it where we are root. */
static int make_dir(const char *path)
{
    bool made = access(path, F_OK) < 0;
    int r = fs_mkdir_all(path, 0755);
    if (r >= 0 && made && geteuid() == 0 && chmod(path, 01777) < 0)
        r = -errno;
    if (r < 0) {
        log_error("cannot make '%s': %s", path, strerror(-r));
        return r;
    }
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && fs_is_tmpfs(fd) == 0)
        log_warn("'%s' is not in memory (tmpfs), so programs make no books there", path);
    if (fd >= 0)
        protect_dir(fd, path);
    return 0;
}

/* In a directory where every user may write, any user could keep us away by its own lock. So root's lock on
 * the books in --dir lies in /run, under a name made of that directory's number. */
static int take_run_lock(struct daemon *daemon, const struct stat *books, const char *path)
{
    char name[64];
    MEMOIR_CLEANUP(closep)
    int fd = open(run_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || faccessat(fd, ".", W_OK, AT_EACCESS) < 0) {
        log_debug("cannot write to '%s': %m, only the state directory is locked", run_path);
        return 0;
    }
    service_lock_sweep(run_path, run_lock_prefix);
    snprintf(name, sizeof(name), "%s%016" PRIx64 ".lock", run_lock_prefix,
             hash_combine(hash_combine(0, books->st_dev), books->st_ino));
    return take_lock(&daemon->lock_fds[1], fd, name, "the books of", path);
}

/* Two daemons must share neither state nor books. Without --dir the books are in several places; then
 * the lock lies where every memoird of this user looks. */
static int take_locks(struct daemon *daemon)
{
    int r = take_lock(&daemon->lock_fds[0], daemon->state_fd, lock_name, "state directory",
                      daemon->state_path);
    if (r < 0)
        return r;
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    const char *path = daemon->config.dir[0] ? daemon->config.dir
                       : geteuid() == 0      ? run_path
                       : runtime             ? runtime
                                             : NULL;
    if (!path)
        return 0; /* the lock on the state directory must do */
    if (daemon->config.dir[0] && (r = make_dir(path)) < 0)
        return r;
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat books, state;
    if (fd < 0 || fstat(fd, &books) < 0 || fstat(daemon->state_fd, &state) < 0) {
        r = -errno;
        log_error("cannot open '%s': %s", path, strerror(-r));
        return r;
    }
    if (books.st_dev == state.st_dev && books.st_ino == state.st_ino)
        return 0; /* locked already */
    if (daemon->config.dir[0] && geteuid() == 0)
        return take_run_lock(daemon, &books, path);
    return take_lock(&daemon->lock_fds[1], fd, lock_name, "the books of", path);
}

/* ---- signals and timers ---- */

static void on_stop(void *context)
{
    struct daemon *daemon = context;
    loop_stop(daemon->loop);
}

static void on_refresh_work(void *context)
{
    struct daemon *daemon = context;
    if (!ledger_refresh_some(daemon->ledger, REFRESH_TURN_NS))
        loop_defer(daemon->refresh_work);
    else if (daemon->history)
        history_take(daemon->history, daemon->ledger);
}

static void on_region_book(struct ledger_book *book, void *context)
{
    reaper_add(context, book);
}

static void on_refresh(void *context)
{
    struct daemon *daemon = context;
    (void)ledger_regions_poll(daemon->ledger, on_region_book, daemon); /* else with the next one */
    loop_defer(daemon->refresh_work);
    reaper_tick(daemon);
    retire_tell(daemon);
    if (daemon->exits)
        exit_watch_tick(daemon->exits);
}

static struct history_settings history_settings(const struct config *config)
{
    struct history_settings settings = {.limits.bytes_max = config->history_size,
                                        .flush_ns = config->history_flush_ns,
                                        .per_user_max = config->history_values_per_user_max,
                                        .processes_max = config->history_processes};
    for (int tier = 0; tier < HISTORY_TIERS; tier++)
        settings.limits.keep_s[tier] = config->history_keep_ns[tier] / NS_PER_S;
    return settings;
}

static bool watches_untracked(const struct config *config)
{
    return config->leaks && config->leaks_untracked_ns > 0;
}

/* Without a table of processes, and */
static void start_hosts(struct daemon *daemon)
{
    bool always = daemon->config.history || watches_untracked(&daemon->config);
    int r = hosts_new(always, (unsigned)daemon->config.probe_share, &daemon->hosts);
    if (r < 0)
        log_error("cannot keep a table of all processes: %s", strerror(-r));
    if (r == 0)
        hosts_set_steady(daemon->hosts, daemon->config.growth_window_ns);
    if (r == 0 && daemon->config.exits != CONFIG_AUTO_NO)
        hosts_allow_marks(daemon->hosts);
}

/* without history, everything else goes on. */
static void start_history(struct daemon *daemon)
{
    struct history_settings settings = history_settings(&daemon->config);
    int r = daemon->config.history
                ? history_new(daemon->state_path, &settings, daemon->hosts, &daemon->history)
                : 0;
    if (r < 0)
        log_error("cannot keep history: %s", strerror(-r));
}

/* And without the pressure word, which allocators then do without. */
static void start_pressure(struct daemon *daemon)
{
    int r = daemon->config.pressure ? pressure_new(daemon, &daemon->pressure) : 0;
    if (r == -EMEDIUMTYPE || r == -ENOENT) /* which was said, or is the way of users without one */
        log_debug("no directory in memory for the pressure word: allocators look for themselves");
    else if (r < 0)
        log_warn("cannot publish memory pressure: %s, allocators look for themselves",
                 strerror(-r));
}

/* The same for what the driver of devices says. */
static void start_driver(struct daemon *daemon)
{
    int r = driver_facts_new(daemon, &daemon->driver);
    if (r < 0)
        log_error("cannot ask the driver of devices: %s", strerror(-r));
}

/* The same for CUDA programs. */
static void start_tracing(struct daemon *daemon)
{
    int r = tracing_new(daemon, &daemon->tracing);
    if (r < 0)
        log_error("cannot trace CUDA programs: %s", strerror(-r));
    r = attaching_new(daemon, &daemon->attaching);
    if (r < 0)
        log_error("cannot attach to running processes: %s", strerror(-r));
}

/* The same for other nodes. */
static void start_clustering(struct daemon *daemon)
{
    int r = clustering_new(daemon, &daemon->clustering);
    if (r < 0)
        log_error("cannot join a cluster: %s", strerror(-r));
}

/* The same for the watch over call sites. */
static void start_growing(struct daemon *daemon)
{
    int r = daemon->config.leaks
                ? growing_new(daemon, daemon->config.leaks_interval_ns, &daemon->growing)
                : 0;
    if (r < 0)
        log_error("cannot watch for leaks: %s", strerror(-r));
    if (r >= 0 && watches_untracked(&daemon->config))
        r = climbing_new(daemon, daemon->config.leaks_untracked_ns, &daemon->climbing);
    if (r < 0)
        log_error("cannot watch processes that keep no book: %s", strerror(-r));
}

static void names_append(char *text, size_t size, const char *name)
{
    size_t len = strlen(text);
    snprintf(text + len, size - len, "%s%s", len ? ", " : "", name);
}

/* Take over what may change while we run, and say what may not. */
static void reload_apply(struct daemon *daemon, struct config *fresh)
{
    config_bits differ = config_differ(&daemon->config, fresh), take = 0;
    char taken[256] = "", restart[256] = "";
    size_t n;
    const struct config_key *keys = config_keys(&n);
    for (size_t i = 0; i < n; i++) {
        if (!(differ >> i & 1))
            continue;
        if (keys[i].reload)
            take |= (config_bits)1 << i;
        names_append(keys[i].reload ? taken : restart, sizeof(taken), keys[i].name);
    }
    config_swap(&daemon->config, fresh, take);
    (void)log_apply(&daemon->config); /* on failure it says so, and the log stays as it was */
    loop_timer_set(daemon->refresh_timer, daemon->config.refresh_ns, daemon->config.refresh_ns);
    watch_reconfigure(daemon->watch);
    server_reconfigure(daemon->server);
    retired_set_limits(daemon->retired, daemon->config.retired_keep,
                       daemon->config.retired_file_max);
    struct history_settings history = history_settings(&daemon->config);
    if (daemon->history)
        history_set(daemon->history, &history);
    pressure_reconfigure(daemon->pressure);
    if (daemon->hosts)
        hosts_set_share(daemon->hosts, (unsigned)daemon->config.probe_share);
    log_info("configuration read again: %s%s", taken[0] ? "changed " : "nothing changed", taken);
    if (restart[0])
        log_warn("needs a restart to take effect: %s", restart);
}

static void on_reload(void *context)
{
    struct daemon *daemon = context;
    struct config fresh;
    enum config_action action;
    char error[CONFIG_ERROR_MAX];
    service_notify_reloading();
    int r = config_load(daemon->argc, daemon->argv, &fresh, &action, error);
    if (r < 0) {
        log_error("%s; the old configuration stays", error);
        (void)log_apply(&daemon->config); /* reopen the log all the same */
    } else {
        reload_apply(daemon, &fresh);
        config_release(&fresh);
    }
    if (daemon->clustering) /* certificates and keys may have been renewed */
        (void)clustering_reload(daemon->clustering);
    service_notify("READY=1");
}

static int add_sources(struct daemon *daemon)
{
    static const struct {
        int signal;
        loop_fn *call;
    } signals[] = {{SIGTERM, on_stop}, {SIGINT, on_stop}, {SIGHUP, on_reload}};
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
        int r = loop_add_signal(daemon->loop, signals[i].signal, signals[i].call, daemon,
                                &daemon->signals[i]);
        if (r < 0)
            return r;
    }
    int r = loop_add_deferred(daemon->loop, on_refresh_work, daemon, &daemon->refresh_work);
    if (r >= 0)
        r = loop_add_timer(daemon->loop, on_refresh, daemon, &daemon->refresh_timer);
    if (r >= 0)
        r = loop_timer_set(daemon->refresh_timer, daemon->config.refresh_ns,
                           daemon->config.refresh_ns);
    return r;
}

/* ---- begin and end ---- */

static void command_read(void *context, pid_t pid, char *ret_text, size_t size)
{
    struct daemon *daemon = context;
    commands_read(daemon->commands, pid, ret_text, size);
}

static int make_tables(struct daemon *daemon)
{
    int known = commands_new(&daemon->commands);
    if (known < 0)
        log_warn("cannot start a helper: %s, showing programs without their arguments",
                 strerror(-known));
    struct ledger_options options = {
        .command_read = command_read,
        .command_context = daemon,
        .books_max = daemon->config.books_max,
        .books_per_uid_max = daemon->config.books_per_user_max,
        .regions_dir = ledger_regions_dir(daemon->config.dir[0] ? daemon->config.dir : NULL),
        .device_size = tt_device_size,
        .device_size_context = daemon,
    };
    int r = book_guard_install();
    if (r >= 0)
        r = ledger_new(&options, &daemon->ledger);
    if (r >= 0)
        r = retired_new(daemon->state_fd, daemon->config.retired_keep,
                        daemon->config.retired_file_max, &daemon->retired);
    if (r >= 0)
        r = allowance_new(RETIRE_RECORDS_MAX, RETIRE_RECORDS_REFILL_S * NS_PER_S,
                          &daemon->retire_share);
    if (r >= 0)
        r = events_new(&daemon->events);
    if (r >= 0)
        r = loop_new(&daemon->loop);
    if (r >= 0)
        r = add_sources(daemon);
    if (r >= 0)
        r = exit_watch_new(daemon, &daemon->exits); /* before the first book is found */
    if (r >= 0)
        r = reaper_new(daemon, &daemon->reaper);
    if (r >= 0)
        r = behalf_table_new(daemon, &daemon->behalf);
    if (r >= 0)
        r = watch_new(daemon, &daemon->watch);
    if (r < 0)
        log_error("cannot start: %s", strerror(-r));
    return r;
}

static int write_pid_file(struct daemon *daemon)
{
    if (!daemon->config.pid_file[0])
        return 0;
    int r = service_pid_file(daemon->config.pid_file);
    if (r < 0) {
        log_error("cannot write pid file '%s': %s", daemon->config.pid_file, strerror(-r));
        return r;
    }
    daemon->pid_file = strdup(daemon->config.pid_file);
    return 0;
}

int daemon_start(struct daemon *daemon, struct config *config, int argc, char **argv)
{
    *daemon = (struct daemon){
        .config = *config, .argc = argc, .argv = argv, .state_fd = -1, .lock_fds = {-1, -1}};
    *config = (struct config){0};
    /* First, while there is nothing else that it could have a copy of. */
    int without = broker_start(&daemon->broker);
    int r = log_apply(&daemon->config);
    if (r < 0)
        return r;
    if (without < 0)
        log_warn(
            "cannot act as other users: %s, call sites stay without names and only root sees the ages of heap blocks",
            without == -EPERM ? "CAP_SETUID and CAP_SETGID are missing" : strerror(-without));
    raise_limits();
    set_nice(daemon->config.nice);
    r = open_state(daemon);
    if (r >= 0)
        r = take_locks(daemon);
    if (r < 0)
        return r;
    if (geteuid() == 0 && !daemon->config.dir[0])
        daemon->own_root =
            mount_books(books_root, daemon->config.tmpfs_size, daemon->config.tmpfs_inodes,
                        daemon->config.tmpfs_user_size) >= 0
                ? books_root
                : NULL;
    r = make_tables(daemon);
    if (r >= 0)
        (void)ledger_regions_poll(daemon->ledger, on_region_book, daemon);
    if (r >= 0)
        r = asking_new(daemon, &daemon->asking);
    if (r >= 0)
        r = server_new(daemon, &daemon->server);
    if (r >= 0)
        r = write_pid_file(daemon);
    if (r < 0)
        return r;
    start_pressure(daemon);
    start_driver(daemon);
    start_tracing(daemon);
    start_hosts(daemon);
    start_history(daemon);
    start_growing(daemon);
    start_clustering(daemon);
    r = traces_new(daemon, &daemon->traces);
    if (r >= 0)
        r = api_new(daemon, &daemon->api);
    if (r >= 0)
        r = web_new(daemon, &daemon->web);
    if (r < 0)
        return r;
    size_t processes;
    ledger_processes(daemon->ledger, &processes);
    char status[128];
    size_t books = ledger_books(daemon->ledger).n, places = watch_places(daemon->watch);
    snprintf(status, sizeof(status), "watching %zu book%s of %zu process%s in %zu place%s", books,
             books == 1 ? "" : "s", processes, processes == 1 ? "" : "es", places,
             places == 1 ? "" : "s");
    log_info("memoird %s ready: %s", MEMOIR_VERSION, status);
    service_ready(status);
    return 0;
}

int daemon_run(struct daemon *daemon)
{
    int r = loop_run(daemon->loop);
    if (r < 0)
        log_error("cannot wait for events: %s", strerror(-r));
    return r;
}

void daemon_stop(struct daemon *daemon)
{
    if (daemon->watch) {
        service_notify("STOPPING=1");
        reaper_release_books(daemon);
        log_info("memoird exiting; %zu books left in place, %" PRIu64 " processes retired",
                 ledger_books(daemon->ledger).n, retired_total(daemon->retired));
    }
    clustering_stop(daemon->clustering); /* gives back the calls that wait for other nodes */
    web_free(daemon->web);
    api_free(daemon->api);
    daemon->web = NULL;
    server_free(daemon->server);
    daemon->server = NULL;
    native_free(daemon->native);
    daemon->native = NULL;
    traces_free(daemon->traces);
    daemon->traces = NULL;
    clustering_free(daemon->clustering);
    daemon->clustering = NULL;
    asking_free(daemon->asking);
    exit_watch_free(daemon->exits); /* reads what is left, which it joins with the tables */
    daemon->exits = NULL;
    behalf_table_free(daemon->behalf);
    pressure_free(daemon->pressure);
    history_free(daemon->history);
    climbing_free(daemon->climbing);
    growing_free(daemon->growing);
    driver_facts_free(daemon->driver);
    attaching_free(daemon->attaching);
    tracing_free(daemon->tracing);
    watch_free(daemon->watch);
    ledger_free(daemon->ledger);
    commands_free(daemon->commands);
    reaper_free(daemon->reaper);
    hosts_free(daemon->hosts);
    loop_free(daemon->loop);
    retired_free(daemon->retired);
    events_free(daemon->events);
    allowance_free(daemon->retire_share);
    if (daemon->pid_file)
        unlink(daemon->pid_file);
    free(daemon->pid_file);
    free(daemon->state_path);
    for (int i = 0; i < 2; i++)
        if (daemon->lock_fds[i] >= 0)
            close(daemon->lock_fds[i]);
    if (daemon->state_fd >= 0)
        close(daemon->state_fd);
    broker_free(daemon->broker);
    config_release(&daemon->config);
    log_close();
}
