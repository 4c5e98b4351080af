/* Which program a process runs. See run_image.h. */
#include "cli/run_image.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/elf_program.h"
#include "book/identity.h"
#include "book/layout.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

#define CLOSED                                                                               \
    "it cannot be inspected: it is set-uid or set-gid, or has capabilities, and the loader " \
    "preloads nothing into such programs"

/* The kernel's words for a program whose file was replaced or removed while it runs. */
#define DELETED " (deleted)"

/* The id that a book of this image has: 0 where it is about to end, -errno. */
static int exec_id_read(pid_t pid, uint64_t *ret_id)
{
    struct book_auxv auxv[BOOK_AUXV_MAX];
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/auxv", (int)pid);
    MEMOIR_CLEANUP(closep)
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, auxv, sizeof(auxv));
    if (n < 0)
        return -errno;
    *ret_id = book_exec_id_of(auxv, (size_t)n / sizeof(auxv[0]));
    return 0;
}

static void path_read(pid_t pid, char path[static RUN_IMAGE_PATH_MAX])
{
    char link[64];
    snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
    ssize_t n = readlink(link, path, RUN_IMAGE_PATH_MAX - 1);
    path[n > 0 ? n : 0] = '\0';
    size_t len = strlen(path), cut = strlen(DELETED);
    if (len > cut && strcmp(path + len - cut, DELETED) == 0)
        path[len - cut] = '\0';
}

static void name_read(pid_t pid, char name[static RUN_IMAGE_NAME_MAX])
{
    static_assert((int)PROC_COMM_MAX <= (int)RUN_IMAGE_NAME_MAX, "a name fits");
    if (proc_comm_read(pid, name) < 0)
        name[0] = '\0';
}

void run_image_look(struct run_image *image, pid_t pid, bool mapped)
{
    struct run_image now = {.seen_ns = clock_monotonic_ns()};
    struct proc_stat stat;
    char link[64];
    int r = exec_id_read(pid, &now.exec_id);
    if (r == 0 && now.exec_id == 0)
        return; /* its memory is gone already */
    if (r < 0 && (mapped || proc_stat_read(pid, &stat) < 0 || stat.exiting))
        return; /* a program may close itself to others, too */
    if (r == 0 && now.exec_id == image->exec_id) {
        name_read(pid, image->name); /* it may have called itself something else */
        image->seen_ns = now.seen_ns;
        return;
    }
    now.closed = r == -EACCES || r == -EPERM;
    name_read(pid, now.name);
    path_read(pid, now.path);
    snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid);
    now.why_not = now.path[0]  ? elf_program_why_not(elf_program_inspect(link))
                  : now.closed ? CLOSED
                               : NULL;
    *image = now;
}

void run_image_ended(struct run_image *image, pid_t pid)
{
    name_read(pid, image->end_name);
}

const char *run_image_last(const struct run_image *image)
{
    bool seen =
        image->path[0] && (!image->end_name[0] || strcmp(image->name, image->end_name) == 0);
    return seen ? image->path : image->end_name[0] ? image->end_name : image->name;
}

/* Did the writer of one of its books say that it ends? exit() does; exec, _exit() and signals do not. */
static bool ended_in_order(const struct ledger_process *process)
{
    for (size_t i = 0; i < process->n_books; i++) {
        if (process->books[i]->status.state == BOOK_STATE_CLOSED)
            return true;
    }
    return false;
}

unsigned run_image_proof(const struct run_image *image, const struct ledger_process *process)
{
    if (ended_in_order(process))
        return 2;
    return image && image->exec_id && image->exec_id == process->exec_id;
}

static bool has_book(const struct ledger *ledger, uint64_t exec_id)
{
    size_t n = 0;
    struct ledger_process *const *all = ledger_processes(ledger, &n);
    for (size_t i = 0; i < n; i++)
        if (all[i]->exec_id == exec_id)
            return true;
    return false;
}

uint64_t run_image_created_ns(const struct ledger_process *process)
{
    uint64_t latest = 0;
    for (size_t i = 0; i < process->n_books; i++)
        if (process->books[i]->identity->created_monotonic_ns > latest)
            latest = process->books[i]->identity->created_monotonic_ns;
    return latest;
}

enum run_image_verdict run_image_judge(const struct run_image *image, const struct ledger *ledger,
                                       const struct ledger_process *process)
{
    if (ended_in_order(process))
        return RUN_IMAGE_SAME;
    bool same = image->exec_id && image->exec_id == process->exec_id;
    if (!same && image->seen_ns > run_image_created_ns(process) &&
        (image->exec_id ? !has_book(ledger, image->exec_id) : image->closed))
        return RUN_IMAGE_REPLACED;
    const char *name = same ? image->name : process->comm;
    return image->end_name[0] && strcmp(image->end_name, name) != 0 &&
                   strcmp(image->end_name, process->comm) != 0
               ? RUN_IMAGE_PERHAPS
               : RUN_IMAGE_SAME;
}
