/* Where books may be kept, whether one can be made, and how those that are there fare. */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memoir/memoir.h>

#include "base/buffer.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "book/place.h"
#include "cli/doctor.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

enum {
    FREE_BYTES_MIN = 16 << 20, /* room for a hundred books or so */
    FREE_FILES_MIN = 64,
    PROBLEMS_SHOWN = 20,
    TRIAL_BYTES = 123456,
    OUTSIDE_BYTES_MIN = 32 << 20, /* resident, of its own, before it is worth a word */
};

/* ---- places ---- */

static void find_room(struct doctor *d, int fd, const char *path, bool first)
{
    struct statvfs fs;
    char text[UNITS_TEXT_MAX];
    const char *role = first ? "programs of this user keep books here" : "further place";
    if (fstatvfs(fd, &fs) < 0) {
        doctor_find(d, DOCTOR_WARN, NULL, "%s: %s", path, strerror(errno));
        return;
    }
    uint64_t bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    units_format_bytes(text, bytes, UNITS_DECIMAL);
    if (fs.f_flag & ST_RDONLY)
        doctor_find(d, DOCTOR_FAIL, "mount it writable", "%s is read-only", path);
    else if (bytes < FREE_BYTES_MIN || (fs.f_files && fs.f_favail < FREE_FILES_MIN))
        doctor_find(
            d, DOCTOR_WARN,
            "remove what else is there, or give the tmpfs a larger size= and nr_inodes=",
            "%s: only %s and %llu files left; programs whose book finds no room go on without "
            "one",
            path, text, (unsigned long long)fs.f_favail);
    else
        doctor_find(d, DOCTOR_OK, NULL, "%s: %s, %s free", path, role, text);
}

static void find_refusal(struct doctor *d, const char *path, int error)
{
    switch (-error) {
    case EPERM:
        doctor_find(d, DOCTOR_FAIL, "remove it, or give it to its user with mode 0700 (as root)",
                    "%s belongs to another user, or other users may write to it: not used", path);
        break;
    case EMEDIUMTYPE:
        doctor_find(d, DOCTOR_WARN, "use a directory on a tmpfs, such as /dev/shm",
                    "%s is not in memory: not used, every store would be a write to a disk", path);
        break;
    case ENOTDIR:
    case ELOOP:
        doctor_find(d, DOCTOR_FAIL, "remove what is in its place",
                    "%s is a link or no directory: not used", path);
        break;
    case ENOENT:
        doctor_find(d, DOCTOR_FAIL, "make it, on a tmpfs, so that users can write to it",
                    "%s is not there", d->dir);
        break;
    default:
        doctor_find(d, DOCTOR_WARN, NULL, "%s cannot be used: %s", path, strerror(-error));
    }
}

static void check_places(struct doctor *d)
{
    bool usable = false;
    for (unsigned which = 0; which < BOOK_PLACE_CANDIDATES; which++) {
        char path[512] = "";
        MEMOIR_CLEANUP(closep)
        int fd = book_place_open(which, path, sizeof(path));
        if (fd == -ENOENT && !(d->dir && which == 0))
            continue;
        if (fd < 0) {
            find_refusal(d, path, fd);
            continue;
        }
        find_room(d, fd, path, !usable);
        usable = true;
    }
    if (!usable && !d->dir)
        doctor_find(d, DOCTOR_FAIL, "make sure that /dev/shm is a tmpfs that users can write to",
                    "no program of this user can keep a book");
}

/* ---- a trial ---- */

/* In a child: report something, say how it went, wait to be read, end in order. */
static void trial_child(int to_parent, int from_parent)
{
    struct memoir_status status = {.struct_size = sizeof(status)};
    char word;
    int error = memoir_open(0);
    memoir_alloc(MEMOIR_HOST, MEMOIR_SPACE_HEAP, 1, TRIAL_BYTES);
    memoir_status(&status);
    if (error < 0 && !status.error)
        status.error = -error;
    if (write(to_parent, &status, sizeof(status)) != (ssize_t)sizeof(status))
        _exit(1);
    if (read(from_parent, &word, 1) < 0)
        _exit(1);
    memoir_free(MEMOIR_HOST, MEMOIR_SPACE_HEAP, 1);
    /* A daemon would remember us among the dead; a test process is not worth that. */
    if (status.state == MEMOIR_STATE_OPEN)
        unlink(status.path);
    exit(0);
}

static void trial_judge(struct doctor *d, pid_t child, const struct memoir_status *status)
{
    if (status->state != MEMOIR_STATE_OPEN) {
        doctor_find(d, DOCTOR_FAIL, "other findings may tell why: places, limits",
                    "a program cannot make a book: %s%s%s",
                    status->reason[0] ? status->reason : "no reason told",
                    status->error ? ": " : "", status->error ? strerror(status->error) : "");
        return;
    }
    MEMOIR_CLEANUP(ledger_freep)
    struct ledger *ledger = NULL;
    uint64_t bytes = 0, blocks = 0;
    int r = ledger_scan(d->dir, &ledger);
    struct ledger_process *p = r < 0 ? NULL : ledger_process_find(ledger, child);
    if (!p)
        doctor_find(d, DOCTOR_FAIL, "look with --dir where programs have MEMOIR_DIR",
                    "a book was made, but is not found: %s", status->path);
    else if (!ledger_process_sum(p, MEMOIR_SPACE_HEAP, NULL, &bytes, &blocks) ||
             bytes != TRIAL_BYTES)
        doctor_find(d, DOCTOR_FAIL, NULL, "a book was made and says %llu instead of %d bytes: %s",
                    (unsigned long long)bytes, TRIAL_BYTES, status->path);
    else
        doctor_find(d, DOCTOR_OK, NULL, "a book was made, read back and removed");
}

static void check_trial(struct doctor *d)
{
    int up[2], down[2];
    if (pipe(up) < 0 || pipe(down) < 0) {
        doctor_find(d, DOCTOR_WARN, NULL, "no trial: %s", strerror(errno));
        return;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        close(up[0]);
        close(down[1]);
        trial_child(up[1], down[0]);
    }
    close(up[1]);
    close(down[0]);
    struct memoir_status status;
    if (child > 0 && read(up[0], &status, sizeof(status)) == (ssize_t)sizeof(status))
        trial_judge(d, child, &status);
    else
        doctor_find(d, DOCTOR_FAIL, NULL, "the trial process ended before it could report");
    close(up[0]);
    close(down[1]);
    if (child > 0)
        waitpid(child, NULL, 0);
}

/* ---- books that are there ---- */

static void check_problems(struct doctor *d)
{
    static const char *const remedies[LEDGER_PROBLEM_KINDS] = {
        [LEDGER_PROBLEM_UNREADABLE] = "look as its user, or as root",
        [LEDGER_PROBLEM_BAD] = "if its process is gone, remove the file",
        [LEDGER_PROBLEM_OWNER] = "remove the file: its owner reports for a process of another user",
        [LEDGER_PROBLEM_LIMIT] = "remove books of dead processes; memoird --books-max",
        [LEDGER_PROBLEM_PLACE] = "give it to its user with mode 0700",
    };
    if (!d->ledger)
        return;
    size_t n, processes, shown = 0;
    ledger_processes(d->ledger, &processes);
    const struct ledger_problem *problems = ledger_problems(d->ledger, &n);
    for (size_t i = 0; i < n; i++) {
        if (problems[i].kind == LEDGER_PROBLEM_NOT_READY)
            continue;
        const char *remedy = problems[i].error == -EPROTONOSUPPORT
                                 ? "look with a newer memoir: its process has one"
                                 : remedies[problems[i].kind];
        if (shown++ < PROBLEMS_SHOWN)
            doctor_find(d, DOCTOR_WARN, remedy, "%s: %s", problems[i].where, problems[i].what);
    }
    if (shown > PROBLEMS_SHOWN)
        doctor_find(d, DOCTOR_WARN, NULL, "%zu more are left out", shown - PROBLEMS_SHOWN);
    const char *others = geteuid() == 0 ? "" : " (only root sees those of other users)";
    if (!shown && !processes)
        doctor_find(d, DOCTOR_OK, NULL, "no process keeps a book now%s", others);
    else if (!shown)
        doctor_find(d, DOCTOR_OK, NULL, "%zu process%s %s, all readable%s", processes,
                    processes == 1 ? "" : "es", processes == 1 ? "keeps a book" : "keep books",
                    others);
}

static void describe_losses(const struct ledger_process *p, struct buffer *out)
{
    static const char *const causes[BOOK_LOSSES_MAX] = {
        [BOOK_LOSS_BLOCKS_FULL] = "no room for blocks",
        [BOOK_LOSS_SITES_FULL] = "no room for call sites",
        [BOOK_LOSS_ACCOUNTS_FULL] = "too many devices or spaces",
        [BOOK_LOSS_TAGS_FULL] = "too many tags",
        [BOOK_LOSS_MODULES_FULL] = "too many libraries",
        [BOOK_LOSS_COUNTERS_FULL] = "no room for counters",
        [BOOK_LOSS_REENTRY] = "reported inside a report",
        [BOOK_LOSS_STUCK_LOCK] = "a lock stayed held",
        [BOOK_LOSS_UNKNOWN_FREE] = "freed what was never reported",
        [BOOK_LOSS_REPLACED] = "reported a live block again",
        [BOOK_LOSS_BAD_ARGUMENT] = "a device, space or size that cannot be",
        [BOOK_LOSS_SUSPENDED] = "reported while suspended",
        [BOOK_LOSS_TORN] = "cut short by a jump or cancellation",
        [BOOK_LOSS_UNKNOWN_MOVE] = "moved what was never reported",
        [BOOK_LOSS_SCRIPTS_FULL] = "no room for functions of scripts",
    };
    for (size_t i = 0; i < BOOK_LOSSES_MAX; i++)
        if (p->losses[i])
            buffer_printf(out, "%s%llu %s", out->len ? ", " : "", (unsigned long long)p->losses[i],
                          causes[i] ? causes[i] : "for an unknown reason");
}

static void check_losses(struct doctor *d)
{
    if (!d->ledger)
        return;
    size_t n, shown = 0;
    struct ledger_process *const *processes = ledger_processes(d->ledger, &n);
    for (size_t i = 0; i < n && shown < PROBLEMS_SHOWN; i++) {
        const struct ledger_process *p = processes[i];
        MEMOIR_CLEANUP(buffer_release)
        struct buffer text = BUFFER_INIT(4096);
        describe_losses(p, &text);
        if (ledger_process_stopped(p))
            buffer_printf(&text, "%saccounting stopped early", text.len ? ", " : "");
        if (!text.len)
            continue;
        shown++;
        doctor_find(d, DOCTOR_WARN, NULL, "PID %d (%s): %s", (int)p->book_pid, p->name,
                    buffer_string(&text));
    }
    if (!shown)
        doctor_find(d, DOCTOR_OK, NULL, "no book lost a report");
}

static uint64_t heap_of(const struct ledger_process *p)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < p->n_accounts; i++)
        if (p->accounts[i].valid && book_source_counts_heap(p->accounts[i].source))
            sum += p->accounts[i].totals.live_bytes;
    return sum;
}

static bool has_heap(const struct ledger_process *p)
{
    for (size_t i = 0; i < p->n_books; i++)
        if (book_source_counts_heap(p->books[i]->identity->source))
            return true;
    return false;
}

/* A book counts what malloc serves: a process may be tracked, and most of its memory be elsewhere. */
static void check_heap(struct doctor *d)
{
    char rss[UNITS_TEXT_MAX], heap[UNITS_TEXT_MAX];
    if (!d->ledger)
        return;
    size_t n, shown = 0, seen = 0;
    struct ledger_process *const *processes = ledger_processes(d->ledger, &n);
    for (size_t i = 0; i < n && shown < PROBLEMS_SHOWN; i++) {
        const struct ledger_process *p = processes[i];
        struct proc_memory memory;
        if (!(p->valid & LEDGER_HAS_PID) || *p->host || !ledger_process_holds(p) || !has_heap(p) ||
            proc_memory_read(p->pid, &memory) < 0)
            continue;
        seen++;
        uint64_t live = heap_of(p), own = memory.rss_bytes - memory.shared_bytes;
        if (memory.rss_bytes < memory.shared_bytes || own < OUTSIDE_BYTES_MIN || live >= own / 2)
            continue;
        shown++;
        doctor_find(d, DOCTOR_WARN, "memoir explain PID tells where the rest goes",
                    "PID %d (%s): most of its memory is not served by malloc, so no line of code "
                    "accounts for it: %s resident, %s of heap",
                    (int)p->pid, p->name, units_format_bytes(rss, memory.rss_bytes, UNITS_DECIMAL),
                    units_format_bytes(heap, live, UNITS_DECIMAL));
    }
    if (!shown && seen)
        doctor_find(d, DOCTOR_OK, NULL,
                    "heap is at least half of what each tracked process has resident of its own");
}

const struct doctor_check doctor_book_checks[] = {
    {"places", check_places}, {"trial book", check_trial}, {"books", check_problems},
    {"losses", check_losses}, {"heap", check_heap},        {0},
};
