/* The memory pressure word. See pressure.h. */
#include "daemon/pressure.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/units.h"
#include "book/pressure_level.h"
#include "book/pressure_source.h"
#include "daemon/daemon.h"
#include "daemon/loop.h"

enum { SCARCE_TICK_MS = PRESSURE_TICK_MS / 4, MODE = 0644, PATH_BYTES_MAX = 4096 };

/* The kernel tells when some program waited for 50 ms of the last second; unprivileged, when 100 ms of the last two. */
static const char *const triggers[] = {"some 50000 1000000", "some 100000 2000000"};

struct look {
    uint64_t at_ns, waited_us;
};

struct pressure {
    struct daemon *daemon;
    struct pressure_page *page;
    struct pressure_limits limits;
    struct pressure_state state;
    struct pressure_inputs inputs; /* of the last look */
    struct look ticks[2];          /* the last two, the newest first: "the last second or so" */
    uint64_t since_ns, changes, tick_ms;
    struct loop_source *timer, *trigger;
    int trigger_fd; /* -1: the kernel has none */
};

/* ---- the file ---- */

/* What another user put there while no memoird ran, or a file of another size. */
static int make_way(int dirfd)
{
    char aside[64];
    struct stat st;
    if (fstatat(dirfd, PRESSURE_FILE_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (unlinkat(dirfd, PRESSURE_FILE_NAME, S_ISDIR(st.st_mode) ? AT_REMOVEDIR : 0) == 0)
        return 0;
    snprintf(aside, sizeof(aside), ".taken-%" PRIu64 "-%" PRIu64, (uint64_t)st.st_ino,
             clock_monotonic_ns()); /* unique */
    return renameat2(dirfd, PRESSURE_FILE_NAME, dirfd, aside, RENAME_NOREPLACE) < 0 ? -errno : 0;
}

/* That of an earlier memoird of this user; programs have mapped it. */
static int file_reuse(int dirfd)
{
    MEMOIR_CLEANUP(closep)
    int fd =
        openat(dirfd, PRESSURE_FILE_NAME, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_nlink != 1 ||
        st.st_size != PRESSURE_FILE_BYTES || (st.st_mode & 07777) != MODE)
        return -EPERM;
    return MEMOIR_TAKE_FD(fd);
}

static int file_make(int dirfd)
{
    MEMOIR_CLEANUP(closep)
    int fd =
        openat(dirfd, PRESSURE_FILE_NAME, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, MODE);
    if (fd < 0)
        return -errno;
    /* The page is there before a program maps it: in a tmpfs that is full, a hole would be a SIGBUS. */
    int r = posix_fallocate(fd, 0, PRESSURE_FILE_BYTES);
    if (r == 0 && fchmod(fd, MODE) < 0) /* whatever the umask is */
        r = errno;
    if (r != 0) {
        unlinkat(dirfd, PRESSURE_FILE_NAME, 0);
        return -r;
    }
    return MEMOIR_TAKE_FD(fd);
}

static int file_open(int dirfd)
{
    int fd = file_reuse(dirfd);
    if (fd >= 0)
        return fd;
    int r = make_way(dirfd);
    return r < 0 ? r : file_make(dirfd);
}

/* Beside the directories of the users; a user's own memoird without --dir has only its books' directory. */
static int folder_open(const struct daemon *daemon)
{
    char path[PATH_BYTES_MAX];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (daemon->config.dir[0])
        snprintf(path, sizeof(path), "%s", daemon->config.dir);
    else if (daemon->own_root)
        snprintf(path, sizeof(path), "%s", daemon->own_root);
    else if (geteuid() != 0 && runtime && runtime[0] == '/')
        snprintf(path, sizeof(path), "%s/memoir", runtime);
    else
        return -ENOENT;
    if (!daemon->config.dir[0] && !daemon->own_root)
        (void)mkdir(path, 0700); /* as programs do for their books */
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (st.st_uid != geteuid() && st.st_uid != 0)
        return -EPERM; /* programs would not trust it */
    /* Writing to a disk each second would cost more than it brings. */
    return fs_is_tmpfs(fd) > 0 ? MEMOIR_TAKE_FD(fd) : -EMEDIUMTYPE;
}

static int page_map(const struct daemon *daemon, struct pressure_page **ret_page)
{
    MEMOIR_CLEANUP(closep)
    int folder = folder_open(daemon);
    if (folder < 0)
        return folder;
    MEMOIR_CLEANUP(closep)
    int fd = file_open(folder);
    if (fd < 0)
        return fd;
    void *page = mmap(NULL, PRESSURE_FILE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return -errno;
    *ret_page = page;
    return 0;
}

/* ---- writing it ---- */

static void publish(struct pressure *p, uint64_t now_ns)
{
    struct pressure_page *page = p->page;
    uint64_t sequence = page->sequence | 1; /* also after one who died in the middle */
    store_relaxed(&page->sequence, sequence);
    fence_release();
    page->since_ns = p->since_ns;
    page->changes = p->changes;
    page->inputs = p->inputs;
    store_release(&page->sequence, sequence + 1);
    store_release(&page->word, pressure_word(p->state.level, now_ns));
}

static void page_begin(struct pressure *p, uint64_t now_ns)
{
    struct pressure_page *page = p->page;
    store_relaxed(&page->word, 0);
    page->version = PRESSURE_VERSION;
    page->bytes = sizeof(*page);
    page->daemon_pid = (uint64_t)getpid();
    page->daemon_start = now_ns;
    memcpy(page->magic, PRESSURE_MAGIC, sizeof(page->magic)); /* last: who opens it now finds all */
}

/* ---- looking ---- */

static void tell(const struct pressure *p, unsigned before)
{
    const struct pressure_inputs *in = &p->inputs;
    char available[UNITS_TEXT_MAX], total[UNITS_TEXT_MAX], container[128] = "";
    units_format_bytes(available, in->available_bytes, UNITS_BINARY);
    units_format_bytes(total, in->total_bytes, UNITS_BINARY);
    if (in->valid & PRESSURE_HAS_LIMIT) {
        char left[UNITS_TEXT_MAX], limit[UNITS_TEXT_MAX];
        units_format_bytes(left, in->headroom_bytes, UNITS_BINARY);
        units_format_bytes(limit, in->limit_bytes, UNITS_BINARY);
        snprintf(container, sizeof(container), ", %s of the container's limit of %s", left, limit);
    }
    uint32_t stall = pressure_stall(in);
    log_info(
        "memory pressure is %s, was %s: %s of %s available%s; programs wait for it %u.%02u %% of the time",
        pressure_level_name(p->state.level), pressure_level_name(before), available, total,
        container, stall / 100, stall % 100);
}

/* `tick`: a regular look, the begin of "the last second". The share is that since the tick before the last, so that it is
 * never one of a few milliseconds. */
static void look(struct pressure *p, bool tick)
{
    uint64_t now_ns = clock_monotonic_ns(), waited_us;
    struct pressure_inputs in = {0};
    pressure_source_machine("/proc", &in, &waited_us);
    pressure_source_cgroup("/proc", "/sys/fs/cgroup", false, &in);
    const struct look *since = &p->ticks[p->ticks[1].at_ns ? 1 : 0];
    if (in.valid & PRESSURE_HAS_STALL)
        in.some_last = pressure_source_share(since->waited_us, since->at_ns, waited_us, now_ns);
    if (tick) {
        p->ticks[1] = p->ticks[0];
        p->ticks[0] = (struct look){now_ns, waited_us};
    }
    unsigned before = p->state.level;
    p->inputs = in;
    pressure_step(&p->state, &p->limits, &in, now_ns);
    if (p->state.level != before) {
        p->changes++;
        p->since_ns = now_ns;
        tell(p, before);
    }
    publish(p, now_ns);
}

static void on_timer(void *context)
{
    struct pressure *p = context;
    look(p, true);
    uint64_t tick_ms = p->state.level == PRESSURE_PLENTY ? PRESSURE_TICK_MS : SCARCE_TICK_MS;
    if (tick_ms == p->tick_ms)
        return;
    p->tick_ms = tick_ms;
    (void)loop_timer_set(p->timer, tick_ms * NS_PER_MS, tick_ms * NS_PER_MS);
}

static void on_trigger(void *context, uint32_t events)
{
    struct pressure *p = context;
    if (events & EPOLLERR) { /* the kernel gave it up */
        loop_source_free(p->trigger);
        p->trigger = NULL;
        close(p->trigger_fd);
        p->trigger_fd = -1;
        log_debug("the kernel no longer tells at once when programs wait for memory");
        return;
    }
    look(p, false);
    if (p->state.level != PRESSURE_PLENTY && p->tick_ms != SCARCE_TICK_MS)
        on_timer(p);
}

/* Without it a rise is seen by the next tick. */
static void trigger_start(struct pressure *p)
{
    for (size_t i = 0; i < sizeof(triggers) / sizeof(*triggers); i++) {
        int fd = open("/proc/pressure/memory", O_RDWR | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0)
            return;
        size_t len = strlen(triggers[i]) + 1;
        if (write(fd, triggers[i], len) == (ssize_t)len &&
            loop_add_fd(p->daemon->loop, fd, EPOLLPRI, on_trigger, p, &p->trigger) >= 0) {
            p->trigger_fd = fd;
            return;
        }
        log_debug("the kernel takes no trigger '%s' for memory pressure: %m", triggers[i]);
        close(fd);
    }
}

/* ---- begin and end ---- */

void pressure_reconfigure(struct pressure *pressure)
{
    if (!pressure)
        return;
    const struct config *config = &pressure->daemon->config;
    for (unsigned i = 0; i < PRESSURE_LEVELS - 1; i++) {
        pressure->limits.stall[i + 1] = (uint32_t)PRESSURE_PERCENT(config->pressure_stall[i]);
        pressure->limits.left[i + 1] = (uint32_t)PRESSURE_PERCENT(config->pressure_left[i]);
    }
}

static void pressure_freep(struct pressure **pressure)
{
    pressure_free(*pressure);
}

int pressure_new(struct daemon *daemon, struct pressure **ret_pressure)
{
    MEMOIR_CLEANUP(pressure_freep)
    struct pressure *p = calloc(1, sizeof(*p));
    if (!p)
        return -ENOMEM;
    p->daemon = daemon;
    p->trigger_fd = -1;
    p->since_ns = clock_monotonic_ns();
    p->tick_ms = PRESSURE_TICK_MS;
    pressure_reconfigure(p);
    int r = page_map(daemon, &p->page);
    if (r >= 0)
        r = loop_add_timer(daemon->loop, on_timer, p, &p->timer);
    if (r >= 0)
        r = loop_timer_set(p->timer, PRESSURE_TICK_MS * NS_PER_MS, PRESSURE_TICK_MS * NS_PER_MS);
    if (r < 0)
        return r;
    page_begin(p, p->since_ns);
    look(p, true);
    trigger_start(p);
    *ret_pressure = MEMOIR_TAKE(p);
    return 0;
}

void pressure_free(struct pressure *pressure)
{
    if (!pressure)
        return;
    loop_source_free(pressure->trigger);
    loop_source_free(pressure->timer);
    if (pressure->trigger_fd >= 0)
        close(pressure->trigger_fd);
    if (pressure->page) {
        store_release(&pressure->page->word, 0);
        munmap(pressure->page, PRESSURE_FILE_BYTES);
    }
    free(pressure);
}

static void field_or_null(struct json *json, const char *key, bool known, uint64_t value)
{
    if (known)
        json_field_u64(json, key, value);
    else
        json_field_null(json, key);
}

static void share_or_null(struct json *json, const char *key, bool known, uint32_t share)
{
    if (known)
        json_field_double(json, key, (double)share / 100);
    else
        json_field_null(json, key);
}

void pressure_json(const struct pressure *pressure, struct json *json)
{
    if (!pressure) {
        json_null(json);
        return;
    }
    const struct pressure_inputs *in = &pressure->inputs;
    bool memory = in->valid & PRESSURE_HAS_MEMORY, stall = in->valid & PRESSURE_HAS_STALL,
         limit = in->valid & PRESSURE_HAS_LIMIT;
    json_object_begin(json);
    json_field_string(json, "level", pressure_level_name(pressure->state.level));
    json_field_double(json, "level_age",
                      (double)((clock_monotonic_ns() - pressure->since_ns) / NS_PER_MS) / 1000);
    json_field_u64(json, "changes", pressure->changes);
    json_field_bool(json, "trigger", pressure->trigger != NULL);
    field_or_null(json, "available", memory, in->available_bytes);
    field_or_null(json, "total", memory, in->total_bytes);
    field_or_null(json, "headroom", limit, in->headroom_bytes);
    field_or_null(json, "cgroup_limit", limit, in->limit_bytes);
    share_or_null(json, "pressure", stall, in->some_avg10);
    share_or_null(json, "stall", stall, in->full_avg10);
    share_or_null(json, "pressure_last", stall, in->some_last);
    json_object_end(json);
}
