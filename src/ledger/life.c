/* Is a process alive? See ledger.h. Only this file and state.c, which sets it, look at `state`:
 *
 *              exists  holds  reachable (with a proved PID of this machine)
 *   RUNNING      yes    yes     yes
 *   STOPPED      yes    yes     yes    the last figures stay the best that is known
 *   CLOSED       yes     no     yes    the writer freed or handed over what it had reported
 *   EXITED        no     no      no
 *   REPLACED      no     no      no    the PID is another program's
 *   UNKNOWN       no    yes      no    nothing says that it ended, so what it held still counts */
#include "ledger/ledger.h"
#include "ledger/rows.h"

bool ledger_process_exists(const struct ledger_process *process)
{
    return process->state == LEDGER_RUNNING || process->state == LEDGER_STOPPED ||
           process->state == LEDGER_CLOSED;
}

bool ledger_process_holds(const struct ledger_process *process)
{
    return process->state == LEDGER_RUNNING || process->state == LEDGER_STOPPED ||
           process->state == LEDGER_UNKNOWN;
}

bool ledger_process_reachable(const struct ledger_process *process)
{
    return ledger_process_exists(process) && process->valid & LEDGER_HAS_PID && process->pid > 0 &&
           !process->host[0] && (process->start_ticks == 0 || process->pid_proved);
}

bool ledger_process_stopped(const struct ledger_process *process)
{
    return process->state == LEDGER_STOPPED;
}

bool ledger_process_replaced(const struct ledger_process *process)
{
    return process->state == LEDGER_REPLACED;
}

uint32_t ledger_process_precedence(const struct ledger_process *process)
{
    return (uint32_t)process->state << 1 | !process_row(process)->trusted;
}

bool ledger_process_before(const struct ledger_process *a, const struct ledger_process *b)
{
    return ledger_process_precedence(a) < ledger_process_precedence(b);
}
