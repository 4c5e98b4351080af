/* Rows of processes and their books. See host_books.h. */
#include "ledger/host_books.h"

#include <errno.h>
#include <stdlib.h>

#include "ledger/host.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

static bool is(const struct host_process *row, pid_t pid, uint64_t start_ticks)
{
    return row->pid == pid && (start_ticks == 0 || proc_same_start(row->start_ticks, start_ticks));
}

struct host_process *host_process_of(const struct host *host, pid_t pid, uint64_t start_ticks)
{
    struct host_process *row = host_process_find(host, pid);
    return row && is(row, pid, start_ticks) ? row : NULL;
}

/* The first row whose PID is not below `pid`. Books mostly come in the order of their PIDs, too: the
 * place after the last one is tried first. */
static size_t row_index(struct host_process *const *rows, size_t n, pid_t pid, size_t hint)
{
    size_t low = 0, high = n;
    if (hint < n && rows[hint]->pid == pid)
        return hint;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rows[middle]->pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

int host_books_join(const struct host *host, const struct ledger *ledger,
                    const struct ledger_process ***ret_books)
{
    size_t n_rows, n = 0, at = 0;
    struct host_process *const *rows = host_processes(host, &n_rows);
    struct ledger_process *const *processes = ledger ? ledger_processes(ledger, &n) : NULL;
    const struct ledger_process **books = calloc(n_rows + 1, sizeof(struct ledger_process *));
    if (!books)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct ledger_process *p = processes[i];
        if (!ledger_process_holds(p) || !ledger_process_reachable(p))
            continue;
        at = row_index(rows, n_rows, p->pid, at);
        if (at == n_rows || !is(rows[at], p->pid, p->start_ticks))
            continue;
        if (!books[at] || ledger_process_before(p, books[at]))
            books[at] = p;
        at++;
    }
    *ret_books = books;
    return 0;
}
