/* Does a daemon run, does it watch these books, and does it answer? See doctor.h. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/units.h"
#include "book/control.h"
#include "cli/ask.h"
#include "cli/doctor.h"
#include "cli/exited_source.h"
#include "cli/ps.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

enum { ANSWER_MS = 2000, LOCKS_BYTES_MAX = 4 << 20, PATH_BYTES_MAX = 4096 };

/* ---- who runs ---- */

/* Is there a process of this name? memoird sets none, so its file's name is there. */
static pid_t process_named(const char *name)
{
    DIR *proc = opendir("/proc");
    pid_t found = 0;
    for (struct dirent *entry; proc && !found && (entry = readdir(proc));) {
        char comm[PROC_COMM_MAX];
        struct proc_stat stat;
        pid_t pid = (pid_t)atoi(entry->d_name);
        if (pid > 0 && proc_comm_read(pid, comm) == 0 && strcmp(comm, name) == 0 &&
            proc_stat_read(pid, &stat) == 0 && !stat.dead)
            found = pid;
    }
    if (proc)
        closedir(proc);
    return found;
}

/* How many of the books a living daemon watches, and who they are: root's and the user's. */
static size_t books_watched(const struct ledger *ledger, size_t *ret_books,
                            pid_t ret_daemons[BOOK_WATCHERS])
{
    struct ledger_books books = ledger_books(ledger);
    size_t watched = 0;
    for (size_t i = 0; i < books.n; i++) {
        struct book_watcher watchers[BOOK_WATCHERS];
        bool any = false;
        /* A book on behalf of another process has no control page: it needs no watcher. One of another mount
         * namespace is not marked: no daemon here can remove it. */
        if (books.books[i]->identity->compat & BOOK_COMPAT_ON_BEHALF || books.books[i]->dirfd < 0)
            continue;
        ++*ret_books;
        if (ledger_book_watchers(ledger, books.books[i], watchers) < 0)
            continue;
        for (size_t k = 0; k < BOOK_WATCHERS; k++)
            if (watchers[k].flags & BOOK_CONTROL_WATCHED) {
                ret_daemons[k] = watchers[k].pid;
                any = true;
            }
        watched += any;
    }
    return watched;
}

/* "memoird (PID 7)", "memoird (root's PID 7, the user's PID 8)" */
static void daemons_describe(const pid_t daemons[BOOK_WATCHERS], char *text, size_t size)
{
    pid_t root = daemons[BOOK_WATCHER_ROOT], user = daemons[BOOK_WATCHER_USER];
    if (root && user && root != user)
        snprintf(text, size, "memoird (root's PID %d, the user's PID %d)", (int)root, (int)user);
    else
        snprintf(text, size, "memoird (PID %d)", (int)(root ? root : user));
}

/* ---- locks ---- */

/* Who holds the lock of a memoird that lies at `path`; 0: none, or it is not known. Asked of the kernel: a
 * lock of ours, however short, could keep a daemon from starting. */
static pid_t lock_holder(const char *path)
{
    struct stat info;
    char wanted[64];
    MEMOIR_CLEANUP(buffer_release)
    struct buffer locks = BUFFER_INIT(LOCKS_BYTES_MAX);
    if (stat(path, &info) < 0 || fs_read_file("/proc/locks", &locks) < 0)
        return 0;
    snprintf(wanted, sizeof(wanted), " %02x:%02x:%" PRIu64 " ", major(info.st_dev),
             minor(info.st_dev), (uint64_t)info.st_ino);
    for (const char *line = buffer_string(&locks); line && *line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *end = strchr(line, '\n'), *at = strstr(line, wanted);
        int pid = 0;
        if (at && (!end || at < end) && sscanf(line, "%*u: FLOCK %*s %*s %d", &pid) == 1 && pid > 0)
            return (pid_t)pid;
    }
    return 0;
}

/* The daemon that has locked these books, by where memoird keeps its locks (src/daemon/daemon.c). */
static pid_t books_locked(const char *dir)
{
    char path[PATH_BYTES_MAX], usual[PS_STATE_PATH_MAX];
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    struct stat books;
    pid_t holder = 0;
    if (dir) {
        if (stat(dir, &books) < 0)
            return 0;
        snprintf(path, sizeof(path), "/run/memoird-%016" PRIx64 ".lock",
                 hash_combine(hash_combine(0, books.st_dev), books.st_ino));
        holder = lock_holder(path);
        snprintf(path, sizeof(path), "%s/memoird.lock", dir);
        return holder ? holder : lock_holder(path);
    }
    holder = lock_holder("/run/memoird.lock");
    if (!holder && runtime) {
        snprintf(path, sizeof(path), "%s/memoird.lock", runtime);
        holder = lock_holder(path);
    }
    if (!holder) {
        ps_state_default(usual);
        snprintf(path, sizeof(path), "%s/memoird.lock", usual);
        holder = lock_holder(path);
    }
    return holder;
}

static void check_daemon(struct doctor *d)
{
    const char *remedy = geteuid() == 0 ? "systemctl enable --now memoird, or: memoird --daemon"
                                        : "memoird --daemon, or ask root for one for the machine";
    pid_t daemons[BOOK_WATCHERS] = {0};
    char who[96];
    size_t books = 0;
    size_t watched = d->ledger ? books_watched(d->ledger, &books, daemons) : 0;
    pid_t locked = watched ? 0 : books_locked(d->dir);
    pid_t named = watched || locked ? 0 : process_named("memoird");
    if (locked)
        daemons[BOOK_WATCHER_ROOT] = locked;
    daemons_describe(daemons, who, sizeof(who));
    if (!watched && !locked && !named)
        doctor_find(d, DOCTOR_WARN, remedy,
                    "none runs: commands work, but books of the dead stay until a later program "
                    "sweeps them, and nothing remembers them");
    else if (!watched && !locked)
        doctor_find(d, DOCTOR_WARN, "look where it looks (--dir), or start one here",
                    "a memoird runs (PID %d), whether for these books is not known", (int)named);
    else if (watched < books)
        doctor_find(d, DOCTOR_WARN, "it may look elsewhere (--dir) or be another user's",
                    "%s runs, but watches %zu of %zu books", who, watched, books);
    else if (books)
        doctor_find(d, DOCTOR_OK, NULL, "%s watches all %zu books that need it", who, books);
    else
        doctor_find(d, DOCTOR_OK, NULL, "%s runs, and would watch books here", who);
}

/* ---- its socket ---- */

/* 0 if a memoird answers there, with the number of reports that it rejected; else -errno. -EPROTO: another
 * server answers. */
static int greet(const char *path, uint64_t *ret_rejected)
{
    static const char question[] = "{\"hello\":1}\n", rejected[] = "\"rejected\":";
    char answer[4096 + PATH_BYTES_MAX];
    MEMOIR_CLEANUP(closep)
    int fd = ask_connect_within(path, ANSWER_MS / 1000);
    if (fd < 0)
        return fd;
    if (send(fd, question, sizeof(question) - 1, MSG_NOSIGNAL) < 0)
        return -errno;
    ssize_t n = recv(fd, answer, sizeof(answer) - 1, 0);
    if (n <= 0)
        return n < 0 ? -errno : -ECONNRESET;
    answer[n] = '\0';
    if (!strstr(answer, "\"hello\":1"))
        return -EPROTO;
    const char *at = strstr(answer, rejected);
    *ret_rejected = at ? strtoull(at + sizeof(rejected) - 1, NULL, 10) : 0;
    return 0;
}

/* Only information: programs that keep their own books need no socket. */
static void check_socket(struct doctor *d)
{
    char own[ASK_PATH_MAX];
    ask_own_path(own);
    const char *paths[] = {ASK_MACHINE_PATH, own};
    bool any = false;
    for (size_t i = 0; i < sizeof(paths) / sizeof(*paths); i++) {
        uint64_t rejected = 0;
        int r = *paths[i] ? greet(paths[i], &rejected) : -ENOENT;
        if (r == -ENOENT)
            continue;
        any = true;
        if (r == 0 && rejected > 0)
            doctor_find(d, DOCTOR_WARN, "its log names the reasons once a minute",
                        "memoird at %s rejected %" PRIu64
                        " reports of clients since its start: they are in no figure",
                        paths[i], rejected);
        else if (r == 0)
            doctor_find(d, DOCTOR_OK, NULL, "memoird answers at %s", paths[i]);
        else if (r == -EACCES)
            doctor_find(
                d, DOCTOR_OK, NULL,
                "this user may not ask the memoird at %s: root, its own user and the members of its "
                "socket-group may",
                paths[i]);
        else
            doctor_find(d, DOCTOR_WARN,
                        "start memoird again: it replaces a socket that is left over",
                        "nothing answers at %s: %s", paths[i],
                        r == -EPROTO ? "what listens there is no memoird" : strerror(-r));
    }
    if (!any)
        doctor_find(d, DOCTOR_OK, NULL,
                    "none at %s: programs that report by libmemoir need none, clients of the "
                    "socket need memoird",
                    ASK_MACHINE_PATH);
}

/* ---- the ends of processes ---- */

/* Does the daemon of this machine see every process end? One for books in --dir need not. */
static void check_exits(struct doctor *d)
{
    struct exited_source source;
    char seen[UNITS_TEXT_MAX], lost[UNITS_TEXT_MAX];
    if (d->dir)
        return;
    int r = exited_source_open(NULL, NULL, &source);
    if (r == 0)
        r = exited_source_look(&source);
    if (r == -EACCES)
        doctor_find(d, DOCTOR_OK, NULL, "whether memoird sees all processes end is not known: %s",
                    "this user may not ask it");
    else if (r < 0)
        doctor_find(d, DOCTOR_OK, NULL,
                    "ends of processes are not recorded: memoird as root records all of them");
    else if (source.state == EXITED_FAILED)
        doctor_find(
            d, DOCTOR_WARN,
            "run memoird as root with CAP_BPF and CAP_PERFMON, on a kernel with BTF that is not locked "
            "down, or set exits = no",
            "memoird sees only processes with a book end: %s", source.why);
    else if (source.state == EXITED_UNWATCHED)
        doctor_find(
            d, DOCTOR_OK, NULL,
            "memoird sees only processes with a book end: as root and with exits = auto or yes it sees all");
    else
        doctor_find(d, source.lost ? DOCTOR_WARN : DOCTOR_OK,
                    source.lost ? "it is too busy: give it more CPU time (nice)" : NULL,
                    "memoird sees every process end: %s so far, %s missed",
                    units_format_count(seen, source.seen), units_format_count(lost, source.lost));
    if (r == 0)
        exited_source_close(&source);
}

const struct doctor_check doctor_daemon_checks[] = {
    {"daemon", check_daemon},
    {"socket", check_socket},
    {"exits", check_exits},
    {0},
};
