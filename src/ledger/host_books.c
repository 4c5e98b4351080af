/* Rows of processes and their books. See host_books.h. */
#include "ledger/host_books.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "ledger/host.h"
#include "ledger/ledger.h"
#include "ledger/proc.h"

struct host_claim host_claim_of(const struct ledger_process *process)
{
    bool joins = ledger_process_holds(process) && ledger_process_reachable(process);
    return (struct host_claim){.start_ticks = process->start_ticks,
                               .pid = joins ? process->pid : 0,
                               .precedence = ledger_process_precedence(process)};
}

int host_join_begin(struct host_join *join, const struct host *host)
{
    join->rows = host_processes(host, &join->n_rows);
    join->next_row = 0;
    if (join->n_rows > join->cap_rows) {
        size_t wanted = join->n_rows + join->n_rows / 4;
        struct host_joined *grown = reallocarray(join->joined, wanted, sizeof(*grown));
        if (!grown) {
            join->n_rows = 0;
            return -ENOMEM;
        }
        join->joined = grown;
        join->cap_rows = wanted;
    }
    if (join->n_rows)
        memset(join->joined, 0xff, join->n_rows * sizeof(*join->joined)); /* HOST_JOIN_NONE */
    return 0;
}

void host_join_release(struct host_join *join)
{
    free(join->joined);
    *join = (struct host_join){0};
}

/* The first row whose PID is not below `pid`. Claims mostly come in the order of PIDs: the search goes on
 * from where the last one ended, in steps that double. */
static size_t row_index(const struct host_join *join, pid_t pid)
{
    struct host_process *const *rows = join->rows;
    size_t low = 0, high = join->n_rows, at = join->next_row;
    for (size_t step = 1; at < high; at += step, step *= 2) {
        if (rows[at]->pid == pid)
            return at;
        if (rows[at]->pid > pid) {
            high = at;
            break;
        }
        low = at + 1;
    }
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rows[middle]->pid < pid)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool host_join_add(struct host_join *join, const struct host_claim *claim, uint32_t number)
{
    if (claim->pid == 0)
        return false;
    size_t at = row_index(join, claim->pid);
    join->next_row = at;
    if (at == join->n_rows || join->rows[at]->pid != claim->pid)
        return false;
    if (claim->start_ticks && !proc_same_start(join->rows[at]->start_ticks, claim->start_ticks))
        return false;
    struct host_joined *joined = &join->joined[at];
    if (joined->claim == HOST_JOIN_NONE || claim->precedence < joined->precedence)
        *joined = (struct host_joined){.claim = number, .precedence = claim->precedence};
    join->next_row = at + 1;
    return true;
}

int host_books_join(const struct host *host, const struct ledger *ledger,
                    const struct ledger_process ***ret_books)
{
    struct host_join join = {0};
    size_t n = 0;
    struct ledger_process *const *processes = ledger ? ledger_processes(ledger, &n) : NULL;
    int r = host_join_begin(&join, host);
    if (r < 0)
        return r;
    const struct ledger_process **books = calloc(join.n_rows + 1, sizeof(struct ledger_process *));
    for (size_t i = 0; books && i < n; i++) {
        struct host_claim claim = host_claim_of(processes[i]);
        (void)host_join_add(&join, &claim, (uint32_t)i);
    }
    for (size_t i = 0; books && i < join.n_rows; i++)
        if (join.joined[i].claim != HOST_JOIN_NONE)
            books[i] = processes[join.joined[i].claim];
    host_join_release(&join);
    if (!books)
        return -ENOMEM;
    *ret_books = books;
    return 0;
}
